"""Late rows at run time: a budget for each of them, of which one output after another takes a part.

A late row ``Σ α_v x_v ≤ β`` (:mod:`multiplexnet.compiler.cascade.late_rows`) is ``Σ a_v d_v ≤ s`` with ``d_v = |x_v −
e_v|``, ``a_v = |α_v|`` and the budget ``s = β − Σ α_v e_v``. When x_v is computed, ``d_v = h_v n`` may take whole n
with ``a_v h_v n ≤ s``, and s becomes ``s − a_v d_v``. All of it is done in balls
(:mod:`~multiplexnet.transforms.run_time.balls`), which contain the exact numbers.

**Either sign.** Where the sign of α_v is known in a row of a batch only, e_v is the lower end if the middle of its ball
is at least 0, and ``a_v`` is the ball of α_v or of −α_v accordingly. It may contain numbers of the other sign, which
does not matter: ``α_v (x_v − e_v) = ±α_v d_v`` lies in ``a_v d_v`` all the same, and e_v is a possible value.

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
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.late_rows import Polynomial
from multiplexnet.transforms.base import exactly, is_followed
from multiplexnet.transforms.run_time.balls import Ball, number, total
from multiplexnet.transforms.run_time.reading import at_least, at_most, exact_number

__all__ = ["Budgets"]

MARGIN = 1 - 2.0**-48
"""Less than what four roundings leave of a quotient."""


@dataclass(frozen=True)
class _Part:
    """What a late row says of one output.

    Args:
        size: a_v.
        end: its easy end in steps, ``(B,)`` in float64.
        rises: whether it goes up from there, ``(B,)`` where that is known in a row of a batch only.
    """

    size: Ball
    end: Tensor
    rises: bool | Tensor


class Budgets:
    """What late rows have left in each row of a batch.

    Args:
        cascade: with late rows.
        inputs: ``(I, B)``, exactly, in float64.
    """

    def __init__(self, cascade: Cascade, inputs: Tensor) -> None:
        self._cascade = cascade
        self._inputs = inputs
        self._parts: list[dict[int, _Part]] = []
        self._left: list[Ball] = []
        for row in cascade.late:
            parts: dict[int, _Part] = {}
            summands = [self._value(row.bound)]
            for v, polynomial, sign in row.terms:
                coefficient = self._value(polynomial)
                parts[v] = self._part(v, coefficient, sign)
                at_end = self._exactly(parts[v].end * self._spacing(v))
                summands.append(-(coefficient * at_end))
            self._parts.append(parts)
            self._left.append(total(summands, inputs[0]))

    def _part(self, variable: int, coefficient: Ball, sign: int) -> _Part:
        lower, upper = (self._full(end) for end in self._cascade.ranges[variable])
        if sign > 0:
            return _Part(coefficient, lower, True)
        if sign < 0:
            return _Part(-coefficient, upper, False)
        rises = coefficient.middle.detach() >= 0
        middle = torch.where(rises, coefficient.middle, -coefficient.middle)
        end = torch.where(rises, lower, upper)
        return _Part(Ball(middle, coefficient.radius), end, rises)

    def _full(self, number_of_steps: int) -> Tensor:
        zero = torch.zeros_like(self._inputs[0])
        return zero + exact_number(float(number_of_steps), zero)

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
        bottom, top = (self._full(end) for end in self._cascade.ranges[variable])
        for row, parts in enumerate(self._parts):
            if variable not in parts:
                continue
            part = parts[variable]
            steps = self._steps(row, variable)
            if part.rises is True:
                upper.append(part.end + steps)
            elif part.rises is False:
                lower.append(part.end - steps)
            else:
                upper.append(torch.where(part.rises, part.end + steps, top))
                lower.append(torch.where(part.rises, bottom, part.end - steps))
        return lower, upper

    def take(self, variable: int, value: Tensor) -> None:
        """An output has this value, in steps."""
        for i, parts in enumerate(self._parts):
            if variable not in parts:
                continue
            part = parts[variable]
            distance = (value.double() - part.end).abs() * self._spacing(variable)
            self._left[i] = self._left[i] + -(part.size * self._exactly(distance))

    def _steps(self, row: int, variable: int) -> Tensor:
        """The most steps that an output may be away from its easy end."""
        left, size = self._left[row], self._parts[row][variable].size
        spacing = self._spacing(variable)
        ends = self._cascade.ranges[variable]
        width = float(ends.upper - ends.lower)
        middle, about = left.middle.detach(), size.middle.detach()
        margin = exact_number(MARGIN, middle)
        safe = (middle - left.radius) * margin / (about + size.radius) / spacing
        safe = at_least(at_most(safe.nan_to_num(0.0).floor(), width), 0.0)
        near = at_least(
            at_most((middle / about / spacing).nan_to_num(0.0).round(), width), 0.0
        )
        over = size * self._exactly(near * spacing) + -left
        fits = over.is_surely("<" if self._cascade.late[row].strict else "<=")
        steps = torch.where(fits, torch.maximum(safe, near), safe)
        free = (about == 0) & (size.radius == 0)
        steps = torch.where(free, exact_number(width, steps), steps)
        if not is_followed(left.middle, size.middle):
            return steps
        moving = (steps > 0) & (steps < width)
        smooth = left.middle / torch.where(moving, size.middle, 1.0) / spacing
        return exactly(steps, torch.where(moving, smooth, 0.0))

    def _spacing(self, variable: int) -> float | Tensor:
        return exact_number(float(self._cascade.spacing[variable]), self._inputs)

    def _number(self, value: Fraction) -> Ball:
        return number(value, self._inputs[0])

    def _exactly(self, value: Tensor) -> Ball:
        return Ball(value, torch.zeros_like(value))

    def _value(self, polynomial: Polynomial) -> Ball:
        """A sum of products of inputs."""
        return total(
            [self._monomial(places, c) for places, c in polynomial], self._inputs[0]
        )

    def _monomial(self, places: Sequence[int], c: int) -> Ball:
        factors = [self._exactly(self._inputs[place]) for place in places]
        if c != 1 or not factors:
            factors.append(self._number(Fraction(c)))
        found = factors[0]
        for factor in factors[1:]:
            found = found * factor
        return found
