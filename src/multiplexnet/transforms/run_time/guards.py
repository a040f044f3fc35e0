"""Guards: what a term asks of run-time values alone, ``u ≤ 4`` or ``limit > 2 total``.

A guard has no outputs, so there is nothing to map: it only decides whether its term can be met. A guard over one value
is decided exactly, with the float64 numbers on both sides of its end. A guard over several values is decided up to the
rounding of float64, and where that leaves doubt the term counts as one that cannot be met.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from multiplexnet.exact.formats import FORMATS
from multiplexnet.geometry.magnitudes import down, level
from multiplexnet.geometry.parts import Bound, Parametric
from multiplexnet.transforms.base import UNDERFLOW, UNIT64, Transform, margin
from multiplexnet.transforms.gauge import times
from multiplexnet.transforms.run_time.reading import read

__all__ = ["Condition", "Guards"]


def interval(bound: Bound) -> tuple[int, float, float] | None:
    """The values that ``c u + d ≤ 0`` (``< 0``) leaves to a single u: its position and the ends, both included."""
    used = [j for j, c in enumerate(bound.parameters) if c]
    if len(used) != 1:
        return None
    (j,) = used
    c = bound.parameters[j]
    end = -bound.constant / abs(c)
    last = down(end)  # the last float64 up to the end: of u, or of -u where c < 0
    if bound.strict and last == end:
        double = FORMATS["float64"]
        last = (
            float(double.next_down(Fraction(last))) if last > -double.max else -math.inf
        )
    if c > 0:
        return j, -math.inf, last
    return j, -last, math.inf


class Condition(Transform, ABC):
    """What depends on the values of parameters alone: there are no outputs, and nothing to map."""

    @abstractmethod
    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether it is shown to hold, ``(*batch, T)`` or ``(*batch,)``."""

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        shape: tuple[int, ...] = raw.shape[:-1]
        if index is None:
            shape = (*raw.shape[:-2], len(self))
        nothing = raw.expand(*shape, 0)
        return nothing.to(self.precision.dtype)

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.forward(x, index)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.forward(x.double(), index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x = self(raw, index)
        return x, x.sum(-1).to(self.precision.computing)


class Guards(Condition):
    """Terms that depend on the values of parameters, and on nothing else.

    Args:
        parts: one part without outputs per term; ``guards`` are the rows that count.
        dtype: of the values.

    Example: u ≤ 4.
        >>> from fractions import Fraction
        >>> from multiplexnet.language.formula import Variable
        >>> u, four = Variable("u", 0, role="input"), Bound((), (Fraction(1),), Fraction(-4), False)
        >>> guards = Guards([Parametric((), (u,), (), (), (), (), (), (four,))], torch.float32)
        >>> guards.feasible(torch.tensor([[4.0], [4.001]])[:, None]).tolist()
        [[True], [False]]
    """

    lower: Tensor
    upper: Tensor
    matrix: Tensor
    constant: Tensor
    underflow: Tensor

    def __init__(self, parts: Sequence[Parametric], dtype: torch.dtype) -> None:
        p = max(len(part.parameters) for part in parts)
        m = max(len(part.guards) for part in parts)
        lower = np.full((len(parts), p), -np.inf)
        upper = np.full((len(parts), p), np.inf)
        matrix = np.zeros((len(parts), m, p))
        constant = np.full((len(parts), m), -1.0)
        for k, part in enumerate(parts):
            for i, bound in enumerate(part.guards):
                alone = interval(bound)
                if alone is None:
                    scale = level(bound.parameters, bound.constant)
                    row = [float(c * scale) for c in bound.parameters]
                    matrix[k, i, : len(row)] = row
                    constant[k, i] = float(bound.constant * scale)
                else:
                    j, low, high = alone
                    lower[k, j] = max(lower[k, j], low)
                    upper[k, j] = min(upper[k, j], high)
        arrays = {
            "lower": lower,
            "upper": upper,
            "matrix": matrix,
            "constant": constant,
        }
        tables = {name: torch.from_numpy(array) for name, array in arrays.items()}
        tables["underflow"] = margin((p + 4) * UNDERFLOW, len(parts))
        super().__init__(dtype, tables)

    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether every guard is shown to hold, ``(*batch, T)`` or ``(*batch,)``."""
        known = read(parameters)
        above = known.low >= self._at(self.lower, index)
        below = known.high <= self._at(self.upper, index)
        u = self._of_all(known.low, index)
        constant = self._at(self.constant, index)
        total = times(self.matrix, u, index) + constant
        size = times(self.matrix.abs(), u.abs(), index) + constant.abs()
        count = u.shape[-1] + 4
        error = size * (2.02 * count * UNIT64) + self.underflow[0]
        if known.rise is not None:
            rise = self._of_all(known.rise, index)
            error = error + 2 * times(self.matrix.abs(), rise, index)
        together = total + error < 0
        return (above & below).all(-1) & together.all(-1)
