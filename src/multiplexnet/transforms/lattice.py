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
    lower, upper = ranges(part)
    bounds = [(j, 1) for j in range(d) if upper[j] is None or upper[j] > part.bound]  # type: ignore[operator]
    bounds += [(j, -1) for j in range(d) if lower[j] is None or lower[j] < -part.bound]  # type: ignore[operator]
    rows = (*part.A, *(tuple(Fraction(sign * (i == j)) for i in range(d)) for j, sign in bounds))
    A = tuple(tuple(a * part.step for a in row) for row in rows)
    b = (*part.b, *(part.bound,) * len(bounds))
    strict = (*part.strict, *(False,) * len(bounds))
    return Polyhedron((), A, b, strict, tuple(c / part.step for c in part.anchor))


def ranges(part: Lattice) -> tuple[list[Fraction | None], list[Fraction | None]]:
    """Bounds of every t_j that follow from one row and the bounds of the other coordinates, found in two rounds."""
    d = len(part.anchor)
    ends: tuple[list[Fraction | None], list[Fraction | None]] = ([None] * d, [None] * d)
    for _ in range(2):
        for row, bound in zip(part.A, part.b, strict=True):
            least = [
                None if a and ends[a < 0][i] is None else a * (ends[a < 0][i] or 0)
                for i, a in enumerate(row)
            ]
            for j, a in enumerate(row):
                rest = [value for i, value in enumerate(least) if i != j]
                if a and None not in rest:
                    limit = (bound - sum(value for value in rest if value is not None)) / a
                    old = ends[a > 0][j]
                    ends[a > 0][j] = (
                        limit if old is None else min(old, limit) if a > 0 else max(old, limit)
                    )
    return ends


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
    return Fraction(math.gcd(*(int(c * unit) for c in numbers)), unit)


def check_exact(part: Lattice) -> None:
    """Raises ``ValueError`` unless float64 computes ``origin + basis t`` without rounding."""
    grain = min([part.step, *(Fraction(1, c.denominator) for c in part.origin)])
    for origin, row in zip(part.origin, part.basis, strict=True):
        if abs(origin) + sum(abs(c) for c in row) * part.bound > 2**53 * grain:
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
        n = max(len(part.origin) for part in parts)
        d = max(len(part.anchor) for part in parts)
        shape = (len(parts), n, d)
        origin = np.zeros(shape[:2])
        basis = np.zeros(shape)
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
        super().__init__(dtype, {name: torch.from_numpy(table) for name, table in tables.items()})
        scales = [
            Scale(
                len(part.A) - part.cuts,
                max(1 / float(part.step), STEPS),
                float(part.bound / part.step) / 8,
            )
            for part in parts
        ]
        halves = [Fraction(1, 2)] * len(parts)
        self.gauge = Gauge(
            [in_steps(part) for part in parts], torch.float64, grain=halves, scales=scales
        )
        self.gauge.read(torch.from_numpy(select))
        self.gauge.log_det += torch.tensor(
            [len(part.anchor) * math.log(part.step) for part in parts]
        )
        self.gauge.floor = gradient_floor(dtype)

    def steps(self) -> list[list[Fraction]]:
        """What the values of each output of each term lie apart; 0 for a constant."""
        return [
            [_common_step([Fraction(c) for c in row]) for row in term]
            for term in self.basis.tolist()
        ]

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.gauge.on_grid(raw, index, Grid(self.origin, self.basis), self.precision.dtype)

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        t = times(self.coordinates, x.double() - self._at(self.origin, index), index)
        raw: Tensor = self.gauge.inverse(t, index)
        return raw.to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        t = times(self.coordinates, x.double() - self._at(self.origin, index), index)
        return self.gauge.off_grid(t, torch.full_like(t, 0.25), index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``x`` and the log-determinant of t in the d raw values that it reads."""
        return self(raw, index), self.gauge.log_abs_det(raw, index).to(self.precision.computing)
