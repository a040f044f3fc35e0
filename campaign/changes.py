"""How answers change, said in three ways: backward, in forward mode, and backward through a recorded graph.

Backward goes through gradients that are written by hand, forward mode and recorded graphs through torch's own rules for
each operation. Where these are cut off, a derivative is zero, and no row tells.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp

from campaign.subject import Finding, Given, Subject

__all__ = ["changes", "in_a_graph"]

ROWS = 6
CLOSE = {torch.float64: 1e-6, torch.float32: 1e-2}
"""How far two sums may be apart, by the sizes of their summands; smaller formats are too coarse to be compared."""
LARGE = 1e30
NARROW = ("thin", "scales", "ends", "wide")
"""Families of sets that are about as wide as the margins for rounding, or as large as a format.

Gradients by hand are those of the map without margins, which are most of it there.
"""
FLOOR = 1e-9
"""What a gradient by hand may have where the true one is smaller, by the sizes of weights and directions."""
NOISE = 1e-12
"""What summands as large as outputs may leave of each other, by the sizes of these."""

SIZES = (1.0, 30.0, 1e4)
FAR = 5.0
"""Beyond it maps are all but flat, margins and floors are what is left, and derivatives have to be finite."""

Ask = Callable[[Tensor, Given], Tensor]


def changes(subject: Subject) -> Iterator[Finding]:
    """Forward mode beside backward, in a random direction; other attacks draw as they did without."""
    if not _is_comparable(subject) or subject.sentence.calls:
        return
    generator = torch.Generator().manual_seed(subject.mux.in_features)
    raw = _raw(ROWS, subject, generator)
    given = _inputs(ROWS, subject, generator)
    for _, rows, known in subject.answers(subject.best, raw, given):
        told = _forward(subject.best, rows, known, generator, _may_tie(subject))
        yield Finding("forward mode", told)


def in_a_graph(subject: Subject, graph: Ask, rows: int) -> str:
    """What is wrong with the gradients of a graph that was recorded for so many rows (nothing: an empty text)."""
    if not _is_comparable(subject):
        return ""
    mux = subject.mux
    generator = torch.Generator().manual_seed(mux.in_features)
    raw = _raw(rows, subject, generator)
    given = _inputs(rows, subject, generator)
    answered = subject.answered(raw, given).nonzero().squeeze(-1)
    if not len(answered):
        return ""
    again = answered.repeat(rows)[:rows]
    raw = raw[again]
    given = {name: column[again] for name, column in given.items()}
    expected, weights = _backward(subject.best, raw, given, None, generator)
    if expected is None:
        return ""
    found, _ = _backward(graph, raw, given, weights, generator)
    if found is None:
        return "the graph has no gradient"
    near = ~_is_far(raw)
    for a, b in zip(expected, found, strict=True):
        if not b.isfinite().all():
            return "a gradient of the graph is not finite"
        one, other = a[near], b[near]
        close = CLOSE[mux.dtype] * (one.abs() + other.abs()).max()
        wrong = _apart(one, other, close, _may_tie(subject))
        if wrong:
            return wrong
    return ""


def _is_comparable(subject: Subject) -> bool:
    """Whether sums of derivatives can be told apart by their sizes."""
    if subject.mux.dtype not in CLOSE or subject.sentence.kind in NARROW:
        return False
    # at a single value ends tie
    return all(d.lower != d.upper or d.upper is None for d in subject.sentence.inputs)


def _may_tie(subject: Subject) -> bool:
    """Whether ends of outputs are rounded to whole numbers, where different ones often meet.

    There derivatives have two answers, and the two ways may differ; that one of them is cut off shows all the same.
    """
    return any(d.kind != "real" for d in subject.sentence.outputs)


def _forward(
    ask: Ask,
    raw: Tensor,
    given: Given,
    generator: torch.Generator,
    may_tie: bool,
) -> str:
    expected, weights = _backward(ask, raw, given, None, generator)
    if expected is None:
        return ""
    names = list(given)
    columns = (raw, *given.values())
    directions = tuple(
        _normal(column.shape, generator).to(column.dtype) for column in columns
    )

    def of(rows: Tensor, *values: Tensor) -> Tensor:
        return ask(rows, dict(zip(names, values, strict=True)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about torch
        told: Any = jvp(of, columns, directions)
    x, moved = told
    along = [
        (gradient * direction).reshape(len(raw), -1)
        for gradient, direction in zip(expected, directions, strict=True)
    ]
    backward = torch.cat(along, -1)
    forward = moved.double() * weights
    sizes = backward.abs().sum(-1) + forward.abs().sum(-1)
    most = max(float(direction.abs().max()) for direction in directions)
    lost = most * (weights.abs() * (FLOOR + NOISE * x.double().abs())).sum(-1)
    lost = lost.masked_fill((x.abs() > LARGE).any(-1) | _is_far(raw), torch.inf)
    close = CLOSE[raw.dtype] * sizes + lost
    return _apart(backward.sum(-1), forward.sum(-1), close, may_tie)


def _backward(
    ask: Ask,
    raw: Tensor,
    given: Given,
    weights: Tensor | None,
    generator: torch.Generator,
) -> tuple[list[Tensor] | None, Tensor]:
    """Gradients of a weighted sum of the outputs, by raw values and inputs, and the weights."""
    leaf = raw.detach().clone().requires_grad_()
    leaves = {name: column.clone().requires_grad_() for name, column in given.items()}
    x = ask(leaf, leaves)
    if weights is None:
        weights = _normal(x.shape, generator)
    if not x.requires_grad:
        return None, weights
    found = torch.autograd.grad(
        (x.double() * weights).sum(), (leaf, *leaves.values()), materialize_grads=True
    )
    return [gradient.double() for gradient in found], weights


def _apart(backward: Tensor, other: Tensor, close: Tensor, may_tie: bool) -> str:
    """Where two are not close, in words."""
    wrong = ~((backward - other).abs() <= close) & (backward != other)
    if not wrong.any() or (may_tie and other.any()):
        return ""
    return f"{float(backward[wrong][0])} backward, and {float(other[wrong][0])}"


def _raw(rows: int, subject: Subject, generator: torch.Generator) -> Tensor:
    """Raw values near zero, far out, and very far out in turn."""
    sizes = torch.tensor(SIZES, dtype=torch.float64)[torch.arange(rows) % len(SIZES)]
    raw = _normal((rows, subject.mux.in_features), generator)
    return (raw * sizes.unsqueeze(-1)).to(subject.mux.dtype)


def _inputs(rows: int, subject: Subject, generator: torch.Generator) -> Given:
    """Any numbers within the ranges of inputs: where an end ties with another one derivatives have two answers."""
    found = {}
    for declared in subject.sentence.inputs:
        lower = -3.0 if declared.lower is None else float(declared.lower)
        upper = 3.0 if declared.upper is None else float(declared.upper)
        share = torch.rand(rows, generator=generator, dtype=torch.float64)
        column = lower * (1 - share) + upper * share
        found[declared.name] = column.to(subject.mux.dtype)
    return found


def _is_far(raw: Tensor) -> Tensor:
    return (raw.abs() > FAR).any(-1)


def _normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)
