"""Late rows at run time: a budget for each of them, of which one output after another takes a part.

A late row ``Σ α_v x_v ≤ β`` (:mod:`multiplexnet.compiler.cascade.late`) is ``Σ a_v d_v ≤ s`` with ``d_v = |x_v −
e_v|``, ``a_v = |α_v|`` and the budget ``s = β − Σ α_v e_v``. When x_v is computed, ``d_v = h_v n`` may take whole n
with ``a_v h_v n ≤ s``, and s becomes ``s − a_v d_v``. All of it is done in balls
(:mod:`~multiplexnet.transforms.run_time.balls`), which contain the exact numbers.

**The largest n.** Let the budget lie within r of m, and a_v within q of c. ``n_0 = ⌊(m − r)(1 − 2^-48) / (c + q) / h⌋``
is safe: ``m − r``, its product, ``c + q`` and the quotient are rounded, each by at most 2^-53 in
relative size, so that the quotient is below ``s / a_v`` if it is positive (flushed to zero it is, too), and at most 0
otherwise, where n = 0 is taken, which the theorem allows. So much for rounding; but then ``2 n ≤ 10`` would end at 4 in
some units. Therefore ``n_1``, the whole number next to ``m / c / h``, is tried: where the ball of ``a_v h n_1 − s``
shows that it fits, it is taken. Where products and sums do not round, as with whole numbers, that ball is a point, and
nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.late import Polynomial
from multiplexnet.transforms.run_time.balls import Ball, number, total
from multiplexnet.transforms.run_time.reading import at_least, at_most, exact_number

__all__ = ["Budgets"]

MARGIN = 1 - 2.0**-48
"""Less than what four roundings leave of a quotient."""


class Budgets:
    """What late rows have left in each row of a batch.

    Args:
        cascade: with late rows.
        inputs: ``(I, B)``, exactly, in float64.
    """

    def __init__(self, cascade: Cascade, inputs: Tensor) -> None:
        self._cascade = cascade
        self._inputs = inputs
        self._sizes: list[dict[int, Ball]] = []
        self._left: list[Ball] = []
        for row in cascade.late:
            coefficients = {v: self._value(own) for v, own, _ in row.terms}
            parts = [self._value(row.bound)]
            for v, _, sign in row.terms:
                parts.append(-(coefficients[v] * self._number(self._easy(v))))
                if sign < 0:
                    coefficients[v] = -coefficients[v]
            self._sizes.append(coefficients)
            self._left.append(total(parts, inputs[0]))

    @property
    def exceeded(self) -> Tensor:
        """Where the easy ends of all outputs together are not shown to fit, ``(B,)``."""
        nothing = torch.zeros_like(self._inputs[0], dtype=torch.bool)
        for row, left in zip(self._cascade.late, self._left, strict=True):
            nothing = nothing | ~(-left).is_surely("<" if row.strict else "<=")
        return nothing

    def ends(self, variable: int) -> tuple[list[Tensor], list[Tensor]]:
        """The lower and the upper ends that late rows leave to an output, in steps, ``(B,)`` each, in float64."""
        lower: list[Tensor] = []
        upper: list[Tensor] = []
        for number_of_row, row in enumerate(self._cascade.late):
            sign = next((sign for v, _, sign in row.terms if v == variable), 0)
            if not sign:
                continue
            steps = self._steps(number_of_row, variable)
            end = exact_number(float(self._cascade.easy_ends[variable]), steps)
            (upper if sign > 0 else lower).append(end + steps if sign > 0 else end - steps)
        return lower, upper

    def take(self, variable: int, value: Tensor) -> None:
        """An output has this value, in steps."""
        for i, sizes in enumerate(self._sizes):
            if variable not in sizes:
                continue
            whole = value.double()
            end = exact_number(float(self._cascade.easy_ends[variable]), whole)
            distance = (whole - end).abs() * self._spacing(variable)
            spent = sizes[variable] * self._exactly(distance)
            self._left[i] = self._left[i] + -spent

    def _steps(self, row: int, variable: int) -> Tensor:
        """The most steps that an output may be away from its easy end."""
        left, size = self._left[row], self._sizes[row][variable]
        spacing = self._spacing(variable)
        ends = self._cascade.ranges[variable]
        width = float(ends.upper - ends.lower)
        middle, about = left.middle.detach(), size.middle.detach()
        margin = exact_number(MARGIN, middle)
        safe = (middle - left.radius) * margin / (about + size.radius) / spacing
        safe = at_least(at_most(safe.nan_to_num(0.0).floor(), width), 0.0)
        near = at_least(at_most((middle / about / spacing).nan_to_num(0.0).round(), width), 0.0)
        over = size * self._exactly(near * spacing) + -left
        fits = over.is_surely("<" if self._cascade.late[row].strict else "<=")
        steps = torch.where(fits, torch.maximum(safe, near), safe)
        free = (about == 0) & (size.radius == 0)
        steps = torch.where(free, exact_number(width, steps), steps)
        if not (left.middle.requires_grad or size.middle.requires_grad):
            return steps
        moving = (steps > 0) & (steps < width)
        smooth = left.middle / torch.where(moving, size.middle, 1.0) / spacing
        smooth = torch.where(moving, smooth, 0.0)
        return steps + (smooth - smooth.detach())

    def _spacing(self, variable: int) -> float | Tensor:
        return exact_number(float(self._cascade.spacing[variable]), self._inputs)

    def _easy(self, variable: int) -> Fraction:
        """The easy end of an output, in its own unit."""
        return self._cascade.easy_ends[variable] * self._cascade.spacing[variable]

    def _number(self, value: Fraction) -> Ball:
        return number(value, self._inputs[0])

    def _exactly(self, value: Tensor) -> Ball:
        return Ball(value, torch.zeros_like(value))

    def _value(self, polynomial: Polynomial) -> Ball:
        """A sum of products of inputs."""
        return total([self._monomial(places, c) for places, c in polynomial], self._inputs[0])

    def _monomial(self, places: Sequence[int], c: int) -> Ball:
        factors = [self._exactly(self._inputs[place]) for place in places]
        if c != 1 or not factors:
            factors.append(self._number(Fraction(c)))
        found = factors[0]
        for factor in factors[1:]:
            found = found * factor
        return found
