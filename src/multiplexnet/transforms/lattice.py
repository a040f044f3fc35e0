r"""Equalities: the gauge on a grid, where arithmetic does not round.

The solutions of the equalities that a format holds well are ``x = origin + basis t`` with an integer basis and t on a
grid of spacing ``step``, ``|t| ≤ bound``. The gauge map finds t among the inequalities, t is rounded to the grid, and
from there on every sum is exact in float64 and the result is a number of the format: ten weights sum to exactly 1.

The gauge works in units of a step, so that the grid is the integers. Rounding to it is treated like any other: half a
step in every coordinate is taken off the slacks beforehand, and a row too narrow for that is taken loosely, since the
anchor lies on the grid. The gradient is passed on as if nothing had been rounded.

The d coordinates of t read the raw values of d outputs, those whose rows of the basis are independent; the raw values
of the other outputs have no effect, so that the map from d values to the set is one to one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from multiplexnet.geometry.parts import Lattice, Polyhedron
from multiplexnet.transforms.base import Transform, gradient_floor
from multiplexnet.transforms.gauge import Gauge, Grid, Scale, times

__all__ = ["LatticeGauge"]

STEPS = 16.0
"""The least that a raw value of 1 means along a coordinate that no row mentions, in steps of the grid."""


def in_steps(part: Lattice) -> Polyhedron:
    """The inequalities on t in units of a step, with those of ``|t| ≤ bound`` that do not follow from the others."""
    d = len(part.anchor)
    ranges = ranges_of(part)
    rows = list(part.A)
    for j in range(d):
        highest = ranges.upper[j]
        if highest is None or highest > part.bound:
            rows.append(_unit(d, j, 1))
    for j in range(d):
        lowest = ranges.lower[j]
        if lowest is None or lowest < -part.bound:
            rows.append(_unit(d, j, -1))
    added = len(rows) - len(part.A)
    A = tuple(tuple(a * part.step for a in row) for row in rows)
    b = (*part.b, *(part.bound,) * added)
    strict = (*part.strict, *(False,) * added)
    anchor = tuple(c / part.step for c in part.anchor)
    return Polyhedron((), A, b, strict, anchor)


def _unit(d: int, j: int, sign: int) -> tuple[Fraction, ...]:
    """The row of ``sign · t_j``."""
    return tuple(Fraction(sign if i == j else 0) for i in range(d))


@dataclass
class Ranges:
    """What is known of the range of every coordinate t_j; ``None``: nothing yet.

    Args:
        lower: the lower ends.
        upper: the upper ends.
    """

    lower: list[Fraction | None]
    upper: list[Fraction | None]

    def least(self, a: Fraction, j: int) -> Fraction | None:
        """The least that ``a t_j`` can be, if that is known."""
        if not a:
            return Fraction(0)
        end = self.lower[j] if a > 0 else self.upper[j]
        return None if end is None else a * end

    def bound_above(self, j: int, limit: Fraction) -> None:
        """From now on ``t_j ≤ limit`` is known."""
        old = self.upper[j]
        self.upper[j] = limit if old is None else min(old, limit)

    def bound_below(self, j: int, limit: Fraction) -> None:
        """From now on ``t_j ≥ limit`` is known."""
        old = self.lower[j]
        self.lower[j] = limit if old is None else max(old, limit)


def ranges_of(part: Lattice) -> Ranges:
    """Bounds of every t_j that follow from one row and the bounds of the other coordinates, found in two rounds."""
    d = len(part.anchor)
    ranges = Ranges([None] * d, [None] * d)
    for _ in range(2):
        for row, bound in zip(part.A, part.b, strict=True):
            _bound_by(row, bound, ranges)
    return ranges


def _bound_by(row: Sequence[Fraction], bound: Fraction, ranges: Ranges) -> None:
    """What ``row · t ≤ bound`` says of each coordinate, when all the others are as low as they can be."""
    least = [ranges.least(a, i) for i, a in enumerate(row)]
    for j, a in enumerate(row):
        others = [value for i, value in enumerate(least) if i != j]
        known = [value for value in others if value is not None]
        if not a or len(known) < len(others):
            continue
        limit = (bound - sum(known)) / a
        if a > 0:
            ranges.bound_above(j, limit)
        else:
            ranges.bound_below(j, limit)


def independent(basis: np.ndarray) -> list[int]:
    """The first rows of the basis that are linearly independent, as many as it has columns."""
    chosen: list[int] = []
    for i in range(len(basis)):
        if np.linalg.matrix_rank(basis[[*chosen, i]]) > len(chosen):
            chosen.append(i)
    return chosen


def _common_step(numbers: Sequence[Fraction]) -> Fraction:
    """The largest number that all are multiples of; 0 if they are 0."""
    unit = math.lcm(*(c.denominator for c in numbers))
    integers = [int(c * unit) for c in numbers]
    return Fraction(math.gcd(*integers), unit)


def check_exact(part: Lattice) -> None:
    """Raises ``ValueError`` unless float64 computes ``origin + basis t`` without rounding."""
    spacings = [Fraction(1, c.denominator) for c in part.origin]
    grain = min([part.step, *spacings])
    for origin, row in zip(part.origin, part.basis, strict=True):
        furthest = abs(origin) + sum(abs(c) for c in row) * part.bound
        if furthest > 2**53 * grain:
            raise ValueError("the lattice is too wide for its step: float64 would round its sums")


class LatticeGauge(Transform):
    """Solutions of equalities, exactly.

    Args:
        parts: one lattice per term.
        dtype: of the values that come out.

    Example: three weights that sum to 1.
        >>> row, zero, quarter = ((-1, 0), (0, -1), (1, 1)), Fraction(0), Fraction(1, 4)
        >>> A = tuple(tuple(map(Fraction, r)) for r in row)
        >>> origin, basis = (zero, zero, Fraction(1)), ((1, 0), (0, 1), (-1, -1))
        >>> step, bound, b = Fraction(1, 1024), Fraction(2), (zero, zero, Fraction(1))
        >>> part = Lattice((), origin, basis, step, bound, A, b, (False,) * 3, (quarter, quarter))
        >>> LatticeGauge([part], torch.float16)(torch.randn(1000, 1, 3)).sum(-1).unique()
        tensor([1.], dtype=torch.float16)
    """

    origin: Tensor
    basis: Tensor
    coordinates: Tensor

    def __init__(self, parts: Sequence[Lattice], dtype: torch.dtype) -> None:
        tables, select = _tables(parts)
        super().__init__(dtype, {name: torch.from_numpy(table) for name, table in tables.items()})
        self.gauge = Gauge(
            [in_steps(part) for part in parts],
            torch.float64,
            grain=[Fraction(1, 2)] * len(parts),
            scales=[_scale(part) for part in parts],
        )
        self.gauge.read(torch.from_numpy(select))
        log_steps = [len(part.anchor) * math.log(part.step) for part in parts]
        self.gauge.log_det += torch.tensor(log_steps)
        self.gauge.floor = gradient_floor(dtype)

    def steps(self) -> list[list[Fraction]]:
        """What the values of each output of each term lie apart; 0 for a constant."""
        found = []
        for term in self.basis.tolist():
            rows = [[Fraction(c) for c in row] for row in term]
            found.append([_common_step(row) for row in rows])
        return found

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.gauge.on_grid(raw, index, Grid(self.origin, self.basis), self.precision.dtype)

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        t = self._coordinates(x, index)
        raw: Tensor = self.gauge.inverse(t, index)
        return raw.to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        t = self._coordinates(x, index)
        quarter = torch.full_like(t, 0.25)
        return self.gauge.off_grid(t, quarter, index)

    def _coordinates(self, x: Tensor, index: Tensor | None) -> Tensor:
        """t of ``x = origin + basis t``, in steps."""
        difference = x.double() - self._at(self.origin, index)
        return times(self.coordinates, difference, index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``x`` and the log-determinant of t in the d raw values that it reads."""
        log_det = self.gauge.log_abs_det_jacobian(raw, index)
        return self(raw, index), log_det.to(self.precision.computing)


def _tables(parts: Sequence[Lattice]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The tables of :class:`LatticeGauge`, and ``(T, d, n)`` which raw values the coordinates read."""
    n = max(len(part.origin) for part in parts)
    d = max(len(part.anchor) for part in parts)
    origin = np.zeros((len(parts), n))
    basis = np.zeros((len(parts), n, d))
    select = np.zeros((len(parts), d, n))
    for k, part in enumerate(parts):
        check_exact(part)
        rows = len(part.origin)
        columns = len(part.anchor)
        own = np.array(part.basis, dtype=np.float64).reshape(rows, columns)
        origin[k, :rows] = [float(c) for c in part.origin]
        basis[k, :rows, :columns] = own * float(part.step)
        select[k, range(columns), independent(own)] = 1.0
    tables = {"origin": origin, "basis": basis, "coordinates": np.linalg.pinv(basis)}
    return tables, select


def _scale(part: Lattice) -> Scale:
    """What raw values are measured by: the rows of the rules, and not those that only keep |t| in its bound."""
    return Scale(
        rows=len(part.A) - part.cuts,
        unit=max(1 / float(part.step), STEPS),
        reach=float(part.bound / part.step) / 8,
    )
