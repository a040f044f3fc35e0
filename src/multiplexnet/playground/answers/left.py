"""What the rules leave for two outputs that have no terms: the outputs of a cascade.

A cascade that computes the fixed outputs first, then the axes, leaves for each of them exactly what some values of the
others can go on from: a projection of the rules. It is read off column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from multiplexnet.errors import QuestionError
from multiplexnet.playground.answers.layers import Situation, ordered
from multiplexnet.playground.library import (
    Bool,
    Cascade,
    Category,
    Frame,
    Step,
    Variable,
    frame_of,
    outline,
    regions,
)
from multiplexnet.transforms.cascade.map import CascadeMap

__all__ = ["PicturePart", "described", "pieces"]

COLUMNS = 161
"""How many values of the first axis are looked at, at most."""

TOUCHING = 1.5
"""Intervals no further apart than so many steps of the grid are drawn as one."""

Values = Mapping[Variable, Tensor]
"""Amounts of outputs that are known, ``(rows,)`` each."""

Interval = tuple[float, float]
"""As amounts, from below."""


@dataclass(frozen=True)
class PicturePart:
    """A part of the picture: the corners of a polygon, or the two ends of a line."""

    points: list[list[float]]


def pieces(
    there: Situation, fixed: Mapping[Variable, Fraction], frame: Frame | None
) -> list[PicturePart]:
    """What is left for the axes, inside a frame (``None``: all of it)."""
    look = _Look(there, (*fixed, *there.axes))
    known = {v: _column(v, value) for v, value in fixed.items()}
    first, *others = there.axes
    found = look.left(first, known, 1)[0]
    if not others:
        return [PicturePart([[low], [high]]) for low, high in found]
    result: list[PicturePart] = []
    for stretch in _stretches(first, found, frame):
        rows = {v: column.expand(len(stretch)) for v, column in known.items()}
        left = look.left(others[0], {**rows, first: stretch}, len(stretch))
        is_apart = first.is_discrete and len(stretch) < COLUMNS
        result += _runs(stretch.tolist(), left, is_apart)
    return result


def described(found: Sequence[PicturePart]) -> list[dict[str, Any]]:
    """Pieces as the page draws regions: all of one colour, since they are no terms."""
    return [
        {
            "number": 0,
            "label": "",
            "text": "",
            "points": piece.points,
            "kinds": ["closed"] * len(piece.points),
            "ends": ["closed", "closed"] if len(piece.points) == 2 else [],
        }
        for piece in found
    ]


def _column(variable: Variable, value: Fraction) -> Tensor:
    return torch.tensor([float(value * variable.unit.size)], dtype=torch.float64)


# --- columns --------------------------------------------------------------------------------------------------------


def _stretches(
    variable: Variable, found: Sequence[Interval], frame: Frame | None
) -> list[Tensor]:
    """Values of the first axis; single ones are looked at together, since each of them is a line of its own."""
    columns = [_columns(variable, interval, frame) for interval in found]
    single = [column for column in columns if len(column) == 1]
    long = [column for column in columns if len(column) > 1]
    if not variable.is_discrete:
        return [*single, *long]
    return [*([torch.cat(single)] if single else []), *long]


def _columns(variable: Variable, interval: Interval, frame: Frame | None) -> Tensor:
    """Values in an interval, ends included: all whole numbers if they are few, else as many as one can see."""
    low, high = interval
    if frame is not None:
        low = min(max(low, float(frame[0][0])), high)
        high = max(min(high, float(frame[1][0])), low)
    if low == high:
        return torch.tensor([low], dtype=torch.float64)
    size = float(variable.unit.size) if variable.is_discrete else 0.0
    count = round((high - low) / size) + 1 if size else COLUMNS
    at = torch.linspace(low, high, min(max(count, 2), COLUMNS), dtype=torch.float64)
    return (at / size).round() * size if size else at


def _runs(
    at: Sequence[float], left: Sequence[list[Interval]], is_apart: bool
) -> Iterator[PicturePart]:
    """Intervals that move along the first axis: polygons for each stretch in which there are as many of them."""
    begin = 0
    for k in range(1, len(at) + 1):
        if k == len(at) or is_apart or len(left[k]) != len(left[begin]):
            for number in range(len(left[begin])):
                own = [intervals[number] for intervals in left[begin:k]]
                yield _polygon(at[begin:k], own)
            begin = k


def _polygon(at: Sequence[float], intervals: Sequence[Interval]) -> PicturePart:
    below = [[x, low] for x, (low, _) in zip(at, intervals, strict=True)]
    above = [[x, high] for x, (_, high) in zip(at, intervals, strict=True)]
    if len(at) == 1:
        return PicturePart([below[0], above[0]])
    if below == above and _is_straight(below):
        return PicturePart([below[0], below[-1]])
    return PicturePart([*below, *reversed(above)])


def _is_straight(points: Sequence[Sequence[float]]) -> bool:
    """Whether the points lie on the line between the first and the last, as far as one can see."""
    at, height = torch.tensor(points, dtype=torch.float64).unbind(-1)
    share = (at - at[0]) / (at[-1] - at[0])
    rise = height[-1] - height[0]
    off = height - (height[0] + share * rise)
    size = max(1.0, height.abs().max().item())
    return bool(off.abs().max() <= 1e-6 * size)


# --- what is left ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ends:
    """One interval in every row, in steps of the grid: its ends, and whether it is there."""

    lower: Tensor
    upper: Tensor
    possible: Tensor


class _Look:
    """What is left for an output once others are known, these being computed first."""

    def __init__(self, there: Situation, order: tuple[Variable, ...]) -> None:
        tied = ordered(there.text, there.dtype, order)
        self._there = there
        self._cascades = (*tied, *there.cascades)

    def left(self, wanted: Variable, known: Values, rows: int) -> list[list[Interval]]:
        """The intervals of an output, row by row."""
        for cascade in self._cascades:
            if wanted in cascade.outputs:
                return _PartialWalk(self._there, cascade, rows).to(wanted, known)
        return [self._alone(wanted)] * rows

    def _alone(self, wanted: Variable) -> list[Interval]:
        """The intervals of an output that no rule ties to others, and that has terms."""
        found = list(regions(self._there.compiled, (wanted,), self._there.inputs))
        frame = frame_of(found, 1)
        size = float(wanted.unit.size)
        edges = [edge for region in found for edge in outline(region, frame)]
        ends = [sorted((edge.start.item(), edge.end.item())) for edge in edges]
        return [(low * size, high * size) for low, high in ends]


class _PartialWalk:
    """Rows on their way through a cascade, as far as an output."""

    def __init__(self, there: Situation, cascade: Cascade, rows: int) -> None:
        mux = there.layer
        self._maps = CascadeMap(cascade, mux.dtype)
        inputs = mux.input_columns(there.input_tensors(rows), torch.Size([rows]))
        self._walk = self._maps.walk(inputs, rows, mux.device)
        self._alive = ~self._walk.refused

    def to(self, wanted: Variable, known: Values) -> list[list[Interval]]:
        """What is left for this output after the known ones."""
        for step in self._maps.cascade.steps:
            variable = self._maps.cascade.outputs[step.variable]
            found = self._options(step)
            if variable == wanted:
                return self._seen(step, variable, found)
            self._walk.take(step, self._taken(step, variable, found, known))
        raise AssertionError(f"{wanted.name} is not an output of the cascade")

    def _options(self, step: Step) -> list[Ends]:
        found = []
        for option in self._walk.options(step):
            lower = self._walk.full(option.lower)
            upper = self._walk.full(option.upper)
            possible = (lower <= upper) & self._alive
            if option.possible is not None:
                possible &= option.possible
            found.append(Ends(lower, upper, possible))
        return found

    def _size(self, step: Step) -> float:
        """How much one step of the grid is."""
        cascade = self._maps.cascade
        unit = cascade.outputs[step.variable].unit
        return float(cascade.spacing[step.variable] * unit.size)

    def _seen(
        self, step: Step, variable: Variable, found: Sequence[Ends]
    ) -> list[list[Interval]]:
        size = self._size(step)
        lower = torch.stack([ends.lower.double() * size for ends in found]).t().tolist()
        upper = torch.stack([ends.upper.double() * size for ends in found]).t().tolist()
        possible = torch.stack([ends.possible for ends in found]).t().tolist()
        is_named = isinstance(variable.domain, Bool | Category)
        gap = 0.0 if is_named else TOUCHING * size
        return [
            _joined([pair for *pair, there in zip(*row, strict=True) if there], gap)
            for row in zip(lower, upper, possible, strict=True)
        ]

    def _taken(
        self, step: Step, variable: Variable, found: Sequence[Ends], known: Values
    ) -> Tensor:
        """The value of an output before the wanted one; rows that it is not left for are dropped."""
        if variable in known:
            wanted = (known[variable] / self._size(step)).round().to(found[0].lower)
        elif variable.is_flag:
            wanted = torch.zeros_like(found[0].lower)
        elif step.variable >= self._maps.in_values:
            return found[0].lower
        else:
            raise QuestionError(
                f"{variable.name} is computed before the outputs on the axes: fix it with its slider, or choose it"
            )
        inside = torch.zeros_like(self._alive)
        for ends in found:
            inside |= ends.possible & (ends.lower <= wanted) & (wanted <= ends.upper)
        self._alive = self._alive & inside
        return wanted


def _joined(found: Sequence[Sequence[float]], gap: float) -> list[Interval]:
    """Intervals from below, those that touch as one."""
    result: list[Interval] = []
    for low, high in sorted(map(tuple, found)):
        if result and low <= result[-1][1] + gap and gap:
            result[-1] = (result[-1][0], max(result[-1][1], high))
        else:
            result.append((low, high))
    return result
