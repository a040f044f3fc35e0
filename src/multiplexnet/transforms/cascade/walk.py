"""A batch on its way through a cascade, with torch's own operations: the options of each output, one after another.

Values come out bit for bit as from :mod:`~multiplexnet.transforms.cascade.program`, which is faster; this way is the
one that torch can record, vectorise and differentiate as often as it likes, and the one that sees all options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade, Step
from multiplexnet.compiler.cascade.projection.rows import Clause, Row
from multiplexnet.transforms.base import following
from multiplexnet.transforms.cascade.late_rows import Budgets
from multiplexnet.transforms.run_time.reading import at_least, at_most, exact_number

__all__ = ["Number", "Option", "Walk", "straight_through"]

SINGLE = 2**24
"""Whole numbers up to this are exact in float32, which is what ONNX's exporter makes of plain numbers."""
Number = Tensor | float
"""A tensor ``(B,)``, or a number that is the same in all rows."""


@dataclass(frozen=True)
class Option:
    """One interval of an output: its ends, and where it has any value (``None``: everywhere)."""

    lower: Number
    upper: Number
    possible: Tensor | None


class Walk:
    """What is known of a batch: inputs first, then one output after another.

    Args:
        cascade: the way.
        known: the known variables, ``(B,)`` each, whole numbers in the dtype to compute in.
        like: a tensor ``(B,)`` of that dtype.
        budgets: what late rows have left, if there are any.
    """

    def __init__(
        self,
        cascade: Cascade,
        known: Sequence[Tensor],
        like: Tensor,
        budgets: Budgets | None = None,
    ) -> None:
        self._budgets = budgets
        self._cascade, self._like = cascade, like
        self.values: dict[int, Tensor] = {
            len(cascade.outputs) + i: value for i, value in enumerate(known)
        }
        self._exceeded = None if budgets is None else self._nothing_left(budgets)

    def _nothing_left(self, budgets: Budgets) -> Tensor:
        """Where late rows leave no output at all: easy ends do not fit, or nothing is left to the one that is torn."""
        nothing = budgets.exceeded
        if self._cascade.torn is None:
            return nothing
        some = torch.zeros_like(nothing)
        for option in self.options(self._cascade.steps[0]):
            own = self._mask(option.lower, option.upper)
            some = some | (own if option.possible is None else own & option.possible)
        return nothing | ~some

    @property
    def refused(self) -> Tensor:
        """Where the inputs leave no output at all, or are not known."""
        nothing = torch.zeros_like(self._like, dtype=torch.bool)
        for clause in self._cascade.guards:
            nothing = nothing | ~self._any(clause)
        for variable in range(len(self._cascade.outputs), len(self._cascade.ranges)):
            nothing = nothing | self.values[variable].isnan()
        if self._exceeded is not None:
            nothing = nothing | self._exceeded
        return nothing

    def full(self, number: Number) -> Tensor:
        """The number as a tensor ``(B,)``, in the dtype to compute in."""
        found = number if isinstance(number, Tensor) else self._whole(number)
        if isinstance(found, Tensor):
            return found.expand(self._like.shape)
        return torch.full_like(self._like, found)

    def _whole(self, value: float) -> Number:
        """A whole number, as a tensor where a graph would lose digits of it."""
        return (
            float(value)
            if abs(value) <= SINGLE
            else exact_number(float(value), self._like)
        )

    # --- rows -------------------------------------------------------------------------------------------------------

    def _sum(self, terms: Sequence[tuple[int, int]]) -> Number:
        total: Number = 0.0
        for v, c in terms:
            part = self.values[v] if c == 1 else self.values[v] * self._whole(c)
            total = part if isinstance(total, float) else total + part
        return total

    def _any(self, rows: Sequence[Row]) -> Tensor:
        """Whether one of the rows holds."""
        result = torch.zeros_like(self._like, dtype=torch.bool)
        for row in rows:
            result = result | (self._sum(row.terms) <= self._whole(row.bound))
        return result

    def _end(self, x: int, row: Row) -> Number:
        """The end that a row gives to x: ⌈(rest − bound)/a⌉ of a lower one, ⌊(bound − rest)/a⌋ of an upper one."""
        c, rest = row.coefficient(x), self._sum(row.without(x))
        if isinstance(rest, float):
            return float(row.bound // c if c > 0 else -(row.bound // -c))
        if c > 0:
            room = self._whole(row.bound) - rest
            return (
                room if c == 1 else straight_through(room / self._whole(c), torch.floor)
            )
        need = rest - self._whole(row.bound)
        return need if c == -1 else straight_through(need / self._whole(-c), torch.ceil)

    def _lower(self, x: int, clause: Clause) -> Number:
        return _smallest(
            [self._end(x, row) for row in clause if row.coefficient(x) < 0]
        )

    def _upper(self, x: int, clause: Clause) -> Number:
        return _largest([self._end(x, row) for row in clause if row.coefficient(x) > 0])

    def _unless_held(
        self, x: int, clause: Clause, end: Number, otherwise: Number
    ) -> Number:
        others = [row for row in clause if not row.coefficient(x)]
        return (
            torch.where(self._any(others), self.full(otherwise), self.full(end))
            if others
            else end
        )

    # --- options ----------------------------------------------------------------------------------------------------

    def options(self, step: Step) -> list[Option]:
        """The intervals of an output, given what comes before."""
        x, (bottom, top) = step.variable, (float(end) for end in step.bucket.range)
        lowers = [
            self._unless_held(x, c, self._lower(x, c), bottom)
            for c in step.bucket.lower
        ]
        uppers = [
            self._unless_held(x, c, self._upper(x, c), top) for c in step.bucket.upper
        ]
        if self._budgets is not None:
            late_lowers, late_uppers = self._budgets.ends(x)
            lowers += [end.to(self._like.dtype) for end in late_lowers]
            uppers += [end.to(self._like.dtype) for end in late_uppers]
        lower, upper = _largest([bottom, *lowers]), _smallest([top, *uppers])
        gaps = [self._gap(x, clause) for clause in step.bucket.gaps]
        if step.values is not None:
            return [self._at(float(value), lower, upper, gaps) for value in step.values]
        if step.ranked:
            return self._ranked(lower, upper, gaps)
        found = []
        for sides in step.sides:
            low = _largest(
                [
                    lower,
                    *(above for (_, above), up in zip(gaps, sides, strict=False) if up),
                ]
            )
            high = _smallest(
                [
                    upper,
                    *(
                        below
                        for (below, _), up in zip(gaps, sides, strict=False)
                        if not up
                    ),
                ]
            )
            found.append(
                Option(low, high, None if step.size == 1 else self._mask(low, high))
            )
        return found

    def _ranked(
        self, lower: Number, upper: Number, gaps: Sequence[tuple[Number, Number]]
    ) -> list[Option]:
        """The intervals between gaps in the order of their lower ends, from below; overlapping gaps leave empty ones.

        Interval r lies above the first r gaps (above the highest of them) and below the next, so that every value that
        is in no gap is in exactly one interval.
        """
        below = torch.stack([self.full(end) for end, _ in gaps])
        above = torch.stack([self.full(end) for _, end in gaps])
        order = below.detach().argsort(dim=0)
        below, above = below.gather(0, order), above.gather(0, order)
        found = []
        low = self.full(lower)
        for number in range(len(gaps) + 1):
            high = self.full(upper)
            if number < len(gaps):
                high = torch.minimum(high, below[number])
            found.append(Option(low, high, low <= high))
            if number < len(gaps):
                low = torch.maximum(low, above[number])
        return found

    def _gap(self, x: int, clause: Clause) -> tuple[Number, Number]:
        """The largest value below a gap, and the smallest above; a gap that other rows close ends just below itself."""
        above, below = self._lower(x, clause), self._upper(x, clause)
        return self._unless_held(
            x, clause, _smallest([below, above - 1.0]), above - 1.0
        ), above

    def _at(
        self,
        value: float,
        lower: Number,
        upper: Number,
        gaps: Sequence[tuple[Number, Number]],
    ) -> Option:
        possible = self._mask(lower, value) & self._mask(value, upper)
        for below, above in gaps:
            possible = possible & (self._mask(value, below) | self._mask(above, value))
        return Option(value, value, possible)

    def broken(self, step: Step) -> Tensor:
        """Where the value that an output has breaks one of its clauses."""
        found = torch.zeros_like(self._like, dtype=torch.bool)
        for clause in step.bucket.clauses:
            found = found | ~self._any(clause)
        return found

    def _mask(self, small: Number, large: Number) -> Tensor:
        return self.full(small) <= self.full(large)

    def take(self, step: Step, value: Tensor) -> None:
        """The output has this value."""
        self.values[step.variable] = value
        if self._budgets is not None:
            self._budgets.take(step.variable, value)


# --- numbers and tensors alike --------------------------------------------------------------------------------------


def straight_through(value: Tensor, rounding: Callable[[Tensor], Tensor]) -> Tensor:
    """The rounded value with the gradient of the unrounded one."""
    return following(rounding(value.detach()), value)


def _largest(numbers: Sequence[Number]) -> Number:
    floats, tensors = _parted(numbers)
    if not tensors:
        return max(floats)
    result = tensors[0]
    for other in tensors[1:]:
        result = torch.maximum(result, other)
    return at_least(result, max(floats)) if floats else result


def _smallest(numbers: Sequence[Number]) -> Number:
    floats, tensors = _parted(numbers)
    if not tensors:
        return min(floats)
    result = tensors[0]
    for other in tensors[1:]:
        result = torch.minimum(result, other)
    return at_most(result, min(floats)) if floats else result


def _parted(numbers: Sequence[Number]) -> tuple[list[float], list[Tensor]]:
    return [n for n in numbers if not isinstance(n, Tensor)], [
        n for n in numbers if isinstance(n, Tensor)
    ]
