"""Inputs at the ends of the formats and of their ranges; rows of another network, infinite ones too, to be repaired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from campaign.subject import Finding, Given, Subject
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["extreme_inputs", "repairs", "uncovered_inputs"]

COMBINATIONS = 10
EACH = 6
"""Of inputs, and the rows of each."""


def extreme_inputs(subject: Subject) -> Iterator[Finding]:
    """Rows obey for inputs of every size, or are refused; raw values of ±inf are among them."""
    given = subject.extreme_inputs(COMBINATIONS, EACH)
    if not given:
        return
    raw = subject.raw(EACH).repeat(COMBINATIONS, 1)
    for x, own, known in subject.answers(subject.best, raw, given):
        yield subject.judged("rows for extreme inputs", x, own, known)


def uncovered_inputs(subject: Subject) -> Iterator[Finding]:
    """Rules that leave no output for some inputs in their ranges: a layer refuses these, if there is one at all."""
    mux = subject.mux
    saved = Multiplexer.from_state(
        mux.state_dict(), boxes=mux.boxes, functions=subject.functions
    )
    for check, other in (
        ("uncovered inputs are refused", mux),
        ("… by a layer that was saved", saved),
    ):
        asked = replace(subject, mux=other.eval())
        given = asked.extreme_inputs(2 * COMBINATIONS, EACH)
        if not given:
            return
        for x, own, known in asked.answers(
            asked.best, asked.raw(2 * COMBINATIONS * EACH), given
        ):
            yield asked.judged(check, x, own, known)


def repairs(subject: Subject) -> Iterator[Finding]:
    """Repaired rows obey; rows that obeyed come back as they were."""
    given = subject.extreme_inputs(COMBINATIONS, EACH)
    if subject.sentence.inputs and not given:
        return
    rows = (
        subject.outputs(EACH).repeat(COMBINATIONS, 1)
        if given
        else subject.outputs(4 * EACH)
    )
    own = None if given else _obeying(subject)
    if own is not None:
        rows = torch.cat([rows, own])

    def ask(x0: Tensor, known: Given) -> Tensor:
        return subject.mux.repair(x0, **known)

    for x, x0, known in subject.answers(ask, rows, given):
        yield subject.judged("rows of repair", x, None, known)
        yield Finding("repair leaves alone what obeys", _moved(subject, x, x0, known))


def _obeying(subject: Subject) -> Tensor | None:
    """Rows of the layer itself."""
    try:
        return subject.best(subject.raw(EACH), {})
    except MultiplexError:
        return None


def _moved(subject: Subject, x: Tensor, x0: Tensor, given: Given) -> str:
    """The first row that obeyed and was changed nevertheless."""
    obeyed = torch.from_numpy(subject.judge(subject.rows(x0, given)))
    changed = obeyed & (x != x0).any(-1)
    if not changed.any():
        return ""
    row = int(changed.nonzero()[0, 0])
    return f"{x0[row].tolist()} obeys and became {x[row].tolist()}"
