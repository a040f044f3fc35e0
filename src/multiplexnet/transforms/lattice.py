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

from multiplexnet.exact.propagation import ranges
from multiplexnet.exact.rows import Number, Rows, entries_of
from multiplexnet.geometry.parts import Lattice, Polyhedron
from multiplexnet.transforms.base import Transform
from multiplexnet.transforms.gauge import Gauge, Rounding, Scale, times

__all__ = ["LatticeGauge"]

PRIME = 2**31 - 1
"""Products of two numbers below it are whole numbers of 64 bits."""
STEPS = 16.0
"""The least that a raw value of 1 means along a coordinate that no row mentions, in steps of the grid."""


def in_steps(part: Lattice) -> Polyhedron:
    """The inequalities on t in units of a step, with those of ``|t| ≤ bound`` that do not follow from the others."""
    d = len(part.anchor)
    rows = list(map(entries_of, part.A))
    known = ranges(Rows.sparse(rows, part.b, None, d), sweeps=2)
    for j, (_, highest) in enumerate(known):
        if highest is None or highest > part.bound:
            rows.append([(j, 1)])
    for j, (lowest, _) in enumerate(known):
        if lowest is None or lowest < -part.bound:
            rows.append([(j, -1)])
    added = len(rows) - len(part.A)
    A = tuple(_scaled(row, part.step, d) for row in rows)
    b = (*part.b, *(part.bound,) * added)
    strict = (*part.strict, *(False,) * added)
    anchor = tuple(c / part.step for c in part.anchor)
    return Polyhedron((), A, b, strict, anchor, part.cones_in_steps)


def _scaled(
    entries: Sequence[tuple[int, Number]], step: Fraction, d: int
) -> tuple[Number, ...]:
    """The row times the step, zeros among it."""
    row: list[Number] = [0] * d
    for j, c in entries:
        row[j] = c * step
    return tuple(row)


def independent(basis: Sequence[Sequence[int]]) -> list[int]:
    """The first rows of the basis that are linearly independent, as many as it has columns.

    They are eliminated modulo a prime, in whole numbers: what is independent there is independent.
    """
    rest = np.zeros((len(basis), len(basis[0])), dtype=np.int64)
    for i, own in enumerate(basis):
        for j, c in entries_of(own):
            rest[i, j] = c % PRIME
    chosen: list[int] = []
    for i, row in enumerate(rest):
        seen = np.flatnonzero(row)
        if not len(seen):
            continue
        chosen.append(i)
        pivot = seen[0]
        unit_row = row * pow(int(row[pivot]), -1, PRIME) % PRIME
        below = i + 1 + np.flatnonzero(rest[i + 1 :, pivot])
        factors = rest[below, pivot]
        rest[below] = (rest[below] - factors[:, None] * unit_row % PRIME) % PRIME
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
        furthest = abs(origin) + sum(map(abs, row)) * part.bound
        if furthest > 2**53 * grain:
            raise ValueError(
                "the lattice is too wide for its step: float64 would round its sums"
            )


class LatticeGauge(Transform):
    """Solutions of equalities, exactly.

    Args:
        parts: one lattice per term.
        dtype: of the values that come out.
        single: whether products may be made in float32 unless that is float64.

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

    def __init__(
        self, parts: Sequence[Lattice], dtype: torch.dtype, *, single: bool = False
    ) -> None:
        tables, select = _tables(parts)
        super().__init__(
            dtype, {name: torch.from_numpy(table) for name, table in tables.items()}
        )
        self.gauge = Gauge(
            [in_steps(part) for part in parts],
            torch.float64,
            grain=[Fraction(1, 2)] * len(parts),
            scales=[_scale(part) for part in parts],
            single=single and dtype is not torch.float64,
        )
        self.gauge.read(torch.from_numpy(select), self.basis, dtype)
        log_steps = [len(part.anchor) * math.log(part.step) for part in parts]
        self.gauge.log_det += torch.tensor(log_steps)

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
        return self.gauge.on_grid(
            raw, index, Rounding(self.origin, self.basis), self.precision.dtype
        )

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
        select[k, range(columns), independent(part.basis)] = 1.0
    tables = {"origin": origin, "basis": basis, "coordinates": np.linalg.pinv(basis)}
    return tables, select


def _scale(part: Lattice) -> Scale:
    """What raw values are measured by: the rows of the rules, and not those that only keep |t| in its bound."""
    return Scale(
        rows=len(part.A) - part.cuts,
        unit=max(1 / float(part.step), STEPS),
        reach=float(part.bound / part.step) / 8,
    )
