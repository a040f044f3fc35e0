"""Curved guards: what a term asks of run-time values alone with a norm, ``norm(c) ≤ 1`` or ``u² + v² ≤ 4 w``.

``√(Σ w_i (Y u + y)_i²) ≤ s·u + t`` is ``s·u + t ≥ 0`` and ``Σ w_i (Y u + y)_i² − (s·u + t)² ≤ 0``: sums and products,
which are computed with their rounding errors (:mod:`multiplexnet.transforms.run_time.balls`). Where nothing is rounded
the guard is decided exactly, on the wall too; where rounding leaves doubt the term counts as one that cannot be met.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from multiplexnet.exact.cones import Cone
from multiplexnet.geometry.parts import Parametric
from multiplexnet.transforms.run_time.balls import Ball, ball_of, nearest
from multiplexnet.transforms.run_time.guards import Condition
from multiplexnet.transforms.run_time.reading import read

__all__ = ["CurvedGuards"]


class CurvedGuards(Condition):
    """Terms that ask of parameters that they lie within curved walls.

    Args:
        parts: one part without outputs per term, with cones over its parameters.
        dtype: of the values.

    Example: the disc of radius 5.
        >>> from multiplexnet.language.formula import Variable
        >>> u, v = Variable("u", 0, role="input"), Variable("v", 1, role="input")
        >>> one, zero = Fraction(1), Fraction(0)
        >>> disc = Cone((one, one), ((one, zero), (zero, one)), (zero, zero), (zero, zero), Fraction(5))
        >>> part = Parametric((), (u, v), (), (), (), (), (), (), (), (disc,))
        >>> guards = CurvedGuards([part], torch.float32)
        >>> guards.feasible(torch.tensor([[3.0, 4.0], [3.0, 4.0001]])[:, None]).tolist()
        [[True], [False]]
    """

    rows: Tensor
    row_errors: Tensor
    constants: Tensor
    constant_errors: Tensor
    weights: Tensor
    weight_errors: Tensor
    strict: Tensor

    def __init__(self, parts: Sequence[Parametric], dtype: torch.dtype) -> None:
        arrays = _tables(parts)
        super().__init__(
            dtype, {name: torch.from_numpy(a) for name, a in arrays.items()}
        )

    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether every curved wall is shown to hold, ``(*batch, T)`` or ``(*batch,)``."""
        values = self._values(parameters.detach(), index)
        squares = self._ball("weight", index) * (values * values)
        excess = _summed(squares)
        bound = Ball(values.middle[..., -1], values.radius[..., -1])
        # without torch.where, which onnxruntime does not have for truth values
        closed = (-bound).is_surely("<=") & excess.is_surely("<=")
        off_the_wall = (-bound).is_surely("<") & excess.is_surely("<")
        inside = closed & (off_the_wall | ~self._at(self.strict, index))
        return inside.all(-1)

    def _values(self, parameters: Tensor, index: Tensor | None) -> Ball:
        """What stands in the norms, and the bounds last: ``(…, C, p + 1)``."""
        known = ball_of(read(parameters))
        middle = self._of_all(known.middle, index)
        radius = self._of_all(known.radius, index)
        rows = self._ball("row", index)
        found = self._ball("constant", index)
        for j in range(middle.shape[-1]):
            u = Ball(middle[..., j, None, None], radius[..., j, None, None])
            found = found + Ball(rows.middle[..., j], rows.radius[..., j]) * u
        return found

    def _ball(self, name: str, index: Tensor | None) -> Ball:
        middle = self._at(getattr(self, f"{name}s"), index)
        return Ball(middle, self._at(getattr(self, f"{name}_errors"), index))


def _summed(balls: Ball) -> Ball:
    """The sum along the last axis."""
    found = Ball(balls.middle[..., 0], balls.radius[..., 0])
    for i in range(1, balls.middle.shape[-1]):
        found = found + Ball(balls.middle[..., i], balls.radius[..., i])
    return found


def _tables(parts: Sequence[Parametric]) -> dict[str, np.ndarray]:
    """The tables of :class:`CurvedGuards`; padding cones are 0 ≤ 1."""
    count = len(parts)
    most = max(len(part.cones) for part in parts)
    height = max(len(cone.weights) for part in parts for cone in part.cones) + 1
    width = max(len(part.parameters) for part in parts)
    shapes = {
        "row": (count, most, height, width),
        "constant": (count, most, height),
        "weight": (count, most, height),
    }
    tables: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        tables[f"{name}s"] = np.zeros(shape)
        tables[f"{name}_errors"] = np.zeros(shape)
    tables["constants"][..., -1] = 1.0
    tables["weights"][..., -1] = -1.0
    tables["strict"] = np.zeros((count, most), dtype=np.bool_)
    for k, part in enumerate(parts):
        for i, cone in enumerate(part.cones):
            tables["strict"][k, i] = cone.strict
            _fill({name: table[k, i] for name, table in tables.items()}, cone)
    return tables


def _fill(tables: dict[str, np.ndarray], cone: Cone) -> None:
    minus = Fraction(-1)
    lines = zip(
        (*cone.Y, cone.s), (*cone.y, cone.t), (*cone.weights, minus), strict=True
    )
    places = [*range(len(cone.weights)), len(tables["weights"]) - 1]
    for place, (row, constant, weight) in zip(places, lines, strict=True):
        for name, at, number in (
            *(("row", (place, j), c) for j, c in enumerate(row)),
            ("constant", (place,), constant),
            ("weight", (place,), weight),
        ):
            tables[f"{name}s"][at], tables[f"{name}_errors"][at] = nearest(number)
