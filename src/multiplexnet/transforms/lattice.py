r"""Equalities: the gauge on a grid, where arithmetic does not round.

The solutions of the equalities that a format holds well are ``x = origin + basis t`` with an integer basis and t on a
grid of spacing ``step``, ``|t| ≤ bound``. The gauge map finds t among the inequalities, t is rounded to the grid, and
from there on every sum is exact in float64 and the result is a number of the format: ten weights sum to exactly 1.

That rounding is treated like any other: half a step in every coordinate is taken off the slacks beforehand, and a row
too narrow for that is taken loosely, since the anchor lies on the grid. Its gradient is passed on as if it were not
there.

The d coordinates of t read the raw values of d outputs, those whose rows of the basis are independent; the raw values
of the other outputs have no effect, so that the map from d values to the set is one to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from multiplexnet.geometry.parts import Lattice, Polyhedron
from multiplexnet.transforms.base import Transform, gradient_floor
from multiplexnet.transforms.gauge import Gauge, Grid, times

__all__ = ["LatticeGauge"]


def bounded(part: Lattice) -> Polyhedron:
    """The inequalities on t, those of ``|t| ≤ bound`` among them."""
    d = len(part.anchor)
    unit = [tuple(Fraction(int(i == j)) for i in range(d)) for j in range(d)]
    A = (*part.A, *unit, *(tuple(-c for c in row) for row in unit))
    return Polyhedron((), A, (*part.b, *(part.bound,) * (2 * d)), (*part.strict, *(False,) * (2 * d)), part.anchor)


def independent(basis: np.ndarray) -> list[int]:
    """The first rows of the basis that are linearly independent, as many as it has columns."""
    chosen: list[int] = []
    for i in range(len(basis)):
        if np.linalg.matrix_rank(basis[[*chosen, i]]) > len(chosen):
            chosen.append(i)
    return chosen


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
    step: Tensor

    def __init__(self, parts: Sequence[Lattice], dtype: torch.dtype) -> None:
        n, d = max(len(part.origin) for part in parts), max(len(part.anchor) for part in parts)
        tables = {
            "origin": np.zeros((len(parts), n)),
            "basis": np.zeros((len(parts), n, d)),
            "coordinates": np.zeros((len(parts), d, n)),
            "step": np.array([[float(part.step)] for part in parts]),
        }
        select = np.zeros((len(parts), d, n))
        for k, part in enumerate(parts):
            check_exact(part)
            rows, columns = len(part.origin), len(part.anchor)
            basis = np.array(part.basis, dtype=np.float64).reshape(rows, columns)
            tables["origin"][k, :rows] = [float(c) for c in part.origin]
            tables["basis"][k, :rows, :columns] = basis
            tables["coordinates"][k, :columns, :rows] = np.linalg.pinv(basis)
            select[k, range(columns), independent(basis)] = 1.0
        super().__init__(dtype, {name: torch.from_numpy(table) for name, table in tables.items()})
        self.gauge = Gauge([bounded(p) for p in parts], torch.float64, grain=[part.step / 2 for part in parts])
        self.gauge.read(torch.from_numpy(select))
        self.gauge.floor = gradient_floor(dtype)

    def forward(self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        return self.gauge.on_grid(raw, index, Grid(self.step, self.origin, self.basis), self.precision.dtype)

    def inverse(self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        t = times(self.coordinates, x.double() - self._at(self.origin, index), index)
        raw: Tensor = self.gauge.inverse(t, index)
        return raw.to(self.precision.dtype)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``x`` and the log-determinant of t in the d raw values that it reads."""
        return self(raw, index), self.gauge.log_abs_det(raw, index).to(self.precision.computing)
