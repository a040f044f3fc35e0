"""Layers while the processor takes subnormal numbers for zero: built and asked in that mode, judged outside of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from campaign.flushing import flushing
from campaign.subject import Finding, Given, Subject
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["while_flushing"]

COMBINATIONS = 6
EACH = 8
BUILT = 0.25
"""The share of layers that are built in the mode as well."""


def while_flushing(subject: Subject) -> Iterator[Finding]:
    """Rows, repaired rows and verdicts. Functions are left out: what they return is another number in this mode."""
    if subject.sentence.calls:
        return
    given = subject.extreme_inputs(COMBINATIONS, EACH)
    if subject.sentence.inputs and not given:
        return
    raw = subject.raw(COMBINATIONS * EACH)
    raw[0] = (
        -90.0 if raw.dtype is not torch.float64 else -720.0
    )  # e⁻⁹⁰ and e⁻⁷²⁰ are subnormal
    yield from _rows(subject, subject.mux, "while flushing", raw, given)
    yield from _repaired(subject, given)
    yield from _verdicts(subject, raw, given)
    if subject.random.random() < BUILT and not subject.mux.cascades:
        yield from _built(subject, raw, given)


def _rows(
    subject: Subject, mux: Multiplexer, when: str, raw: Tensor, given: Given
) -> Iterator[Finding]:
    def ask(rows: Tensor, known: Given) -> Tensor:
        answer: Tensor = mux(rows, **known).best()
        return answer

    with flushing():
        found = list(subject.answers(ask, raw, given))
    for x, rows, known in found:
        yield subject.judged(f"rows {when}", x, rows, known)


def _repaired(subject: Subject, given: Given) -> Iterator[Finding]:
    def ask(x0: Tensor, known: Given) -> Tensor:
        return subject.mux.repair(x0, **known)

    rows = subject.outputs(COMBINATIONS * EACH)
    with flushing():
        found = list(subject.answers(ask, rows, given))
    for x, _, known in found:
        yield subject.judged("rows of repair while flushing", x, None, known)


def _verdicts(subject: Subject, raw: Tensor, given: Given) -> Iterator[Finding]:
    """``Rules.satisfied`` on rows inside, on their neighbours, and on numbers about zero."""
    for x, _, known in subject.answers(subject.best, raw, given):
        near = [
            torch.nextafter(x, torch.full_like(x, side))
            for side in (-torch.inf, torch.inf)
        ]
        least = torch.nextafter(torch.zeros_like(x), torch.ones_like(x))
        offers = torch.cat([x, *near, least, -least])
        own = {name: value.repeat(5) for name, value in known.items()}
        expected = subject.judge(subject.rows(offers, own))
        check = "Rules.satisfied while flushing"
        try:
            with flushing():
                verdict = subject.mux.rules.satisfied(offers, functions=None, **own)
        except MultiplexError:
            yield Finding(check)
            continue
        different = np.flatnonzero(verdict.numpy() != expected)
        wrong = (
            f"it is wrong on {offers[int(different[0])].tolist()}"
            if len(different)
            else ""
        )
        yield Finding(check, wrong)


def _built(subject: Subject, raw: Tensor, given: Given) -> Iterator[Finding]:
    """A layer that was built in the mode keeps the rules in it and afterwards."""
    try:
        with flushing():
            mux = Multiplexer.from_compiled(
                subject.mux.rules, subject.mux.compiled, **subject.options
            ).eval()
    except MultiplexError:
        yield Finding("rows of a layer built while flushing")
        return
    yield from _rows(subject, mux, "of a layer built while flushing", raw, given)

    def ask(rows: Tensor, known: Given) -> Tensor:
        answer: Tensor = mux(rows, **known).best()
        return answer

    for x, rows, known in subject.answers(ask, raw, given):
        yield subject.judged("rows of a layer built while flushing", x, rows, known)
