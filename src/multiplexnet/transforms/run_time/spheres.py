r"""Balls and ellipsoids that inputs move: ``|Y x + P u + y| ≤ β·u + t`` for u known at run time.

Squares are completed first, so that the norm has rows that hold outputs, as many as are independent, and rows v(u) that
hold inputs alone: what is left for the former is ``R(u) = √((β·u + t)² − |v(u)|²)``. For one of the latter the factors
``β·u + t ± v_1`` are rows themselves: of ``x @ x <= u`` they are 2 and 2 u.

The anchor c(u) is the point where ``Y x + P u + y`` is 0, rounded to the format; it need not be accurate. What is
left inside there is a length, bounded from above, and with R from below there is a room

    room(u) = R(u) − |Y c + P u + y| − Σ_j H_j (υ |c_j| + τ),     H_j = |Y e_j|,

whatever way the rounding goes. With ``q = room · M z`` the gauge is that of a ball,
``G ≥ (|Y q| + υ Σ_j H_j |q_j|) / room``,
and ``x = c + q tanh(G) / G`` is strictly inside by the triangle inequality. Where no room can be shown the part is
*infeasible* for this u, and NaN comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from multiplexnet.exact.cones import Cone, root_above
from multiplexnet.geometry.curves import squares_completed
from multiplexnet.geometry.parts import Parametric
from multiplexnet.language.curves import root
from multiplexnet.transforms.base import (
    UNIT64,
    Transform,
    exactly,
    finite,
    gradient_floor,
    margin,
    precision_of,
    quarter_cell,
    within,
)
from multiplexnet.transforms.curves import lengths
from multiplexnet.transforms.gauge import (
    SAFETY,
    GaugeRows,
    Scale,
    log_slope,
    times,
    whitening,
)
from multiplexnet.transforms.run_time.intervals import affine, underflow_of
from multiplexnet.transforms.run_time.reading import clear_of_zero, read

__all__ = ["Spheres"]

LEAST = 2.0**-900
"""A room has to be shown to be larger than this."""
ROOTABLE = 2.0**-1000
"""Roots are taken of numbers that are larger than this."""
LARGEST = 2.0**1020
"""Numbers beyond this are not told apart where roots are taken."""
ROUNDING = 2.0**-48
"""With ``1 + p / 16`` times this, more than the relative error of the lengths of p numbers that a room is made of."""


class SphereFrame(NamedTuple):
    """What the map needs to know of one u."""

    anchor: Tensor
    room: Tensor
    feasible: Tensor


class Spheres(Transform):
    """Balls and ellipsoids whose centre and radius are known at run time.

    Args:
        parts: one per term, with one cone each over outputs and parameters; smaller ones are padded.
        dtype: of the values that come out.

    Example: a ball of radius u around 1.
        >>> from fractions import Fraction
        >>> from multiplexnet.exact.cones import Cone
        >>> from multiplexnet.language.formula import Variable
        >>> x, u, one, zero = Variable("x", 0), Variable("u", 1, role="input"), Fraction(1), Fraction(0)
        >>> ball = Cone((one,), ((one, zero),), (-one,), (zero, one), zero)
        >>> part = Parametric((x,), (u,), (), (), (), (), (), (), (), (ball,))
        >>> transform = Spheres([part], torch.float32)
        >>> bool((transform(torch.tensor([[1e30]]), parameters=torch.tensor([[2.0]])) < 3).all())
        True
        >>> transform.feasible(torch.tensor([[2.0], [-1.0]])[:, None]).tolist()
        [[True], [False]]
    """

    rows: Tensor
    constants: Tensor
    Y: Tensor
    alone: Tensor
    factored: Tensor
    sizes: Tensor
    centre: Tensor
    start: Tensor
    mix: Tensor
    unmix: Tensor
    log_mix: Tensor
    dimension: Tensor
    underflow: Tensor
    relative: Tensor
    unit: Tensor
    tiny: Tensor
    least: Tensor
    rootable: Tensor
    rounding: Tensor
    end: Tensor
    kept: Tensor
    shrunk: Tensor
    grown: Tensor

    def __init__(self, parts: Sequence[Parametric], dtype: torch.dtype) -> None:
        arrays = _tables(parts)
        tables = {name: torch.from_numpy(array) for name, array in arrays.items()}
        precision = precision_of(dtype)
        count, p, n = tables["Y"].shape
        margins = {
            "underflow": underflow_of(tables["rows"]),
            "relative": margin(precision.unit + 4 * (n + p + 8) * UNIT64, count),
            "unit": margin(precision.unit, count),
            "tiny": margin(precision.tiny, count),
            "least": margin(LEAST, count),
            "rootable": margin(ROOTABLE, count),
            "rounding": margin(ROUNDING * (1 + p / 16), count),
            "end": margin(precision.largest, count),
            "kept": margin(1 - SAFETY, count),
            "shrunk": margin(1 - 2 * precision.unit - 16 * UNIT64, count),
            "grown": margin(1 + precision.unit, count),
        }
        super().__init__(dtype, {**tables, **margins})
        self.floor = gradient_floor(dtype)

    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether room can be shown around the anchor, ``(*batch, T)`` or ``(*batch,)``."""
        return self._frame(parameters, index).feasible

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        frame, p = self._start(raw, index, parameters)
        return self._point(frame, p, self._gauge(frame, p, index))

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self._frame(parameters, index)
        p = (x.double() - frame.anchor) / frame.room.unsqueeze(-1)
        G = self._gauge(frame, p, index).clamp(1e-8, 1 - UNIT64)
        z = p * (torch.atanh(G) / G).unsqueeze(-1)
        return times(self.unmix, z, index).to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self._frame(parameters, index)
        room = frame.room.unsqueeze(-1)
        cell = quarter_cell(x, self.precision.dtype) / room.detach()
        change = (self._at(self.sizes, index) * cell).sum(-1)
        p = (x.double() - frame.anchor) / room
        found = self._gauge(frame, p, index).clamp(min=1e-8)
        G = torch.minimum(found, 1 - change.clamp(UNIT64, 0.5))
        z = p * (torch.atanh(G) / found).unsqueeze(-1)
        return times(self.unmix, z, index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        frame, p = self._start(raw, index, parameters)
        G = self._gauge(frame, p, index)
        safe = G.clamp(min=1e-8)
        n = self._at(self.dimension, index)
        across = (n - 1) * torch.log(torch.tanh(safe) / safe)
        scale = n * torch.log(frame.room) + self._at(self.log_mix, index)
        log_det = across + log_slope(G) + scale
        return self._point(frame, p, G), log_det.to(self.precision.computing)

    def _start(
        self, raw: Tensor, index: Tensor | None, parameters: Tensor | None
    ) -> tuple[SphereFrame, Tensor]:
        """The frame, and the direction in units of its room."""
        assert parameters is not None
        frame = self._frame(parameters, index)
        return frame, self._of_all(times(self.mix, finite(raw), index), index)

    def _frame(self, parameters: Tensor, index: Tensor | None) -> SphereFrame:
        known = read(parameters)
        u = self._of_all(known.low, index)
        middle = times(self.centre, u, index) + self._at(self.start, index)
        middle = within(torch.where(middle.isnan(), 0.0, middle), self.end[0])
        rounded = exactly(middle.to(self.precision.dtype).double(), middle)
        anchor = clear_of_zero(rounded, self.precision)
        given = torch.cat([anchor, u], -1)
        value, error = affine(
            given, self.rows, self._at(self.constants, index), index, self.underflow
        )
        if known.rise is not None:
            P = self.rows[..., anchor.shape[-1] :]
            error = error + times(P.abs(), self._of_all(known.rise, index), index)
        off = value[..., :-2].detach().abs() + 2 * error[..., :-2]
        alone = self._at(self.alone, index) > 0
        length = _length(off.masked_fill(alone, 0.0), self.tiny[0, 0])
        factors = value[..., -2:] - 2 * error[..., -2:]
        bound, shown = self._left(factors, off.masked_fill(~alone, 0.0), index)
        sizes = self._at(self.sizes, index)
        errors = self.unit[0] * anchor.detach().abs() + self.tiny[0]
        moved = (sizes * errors).sum(-1)
        doubt = self.rounding[0, 0] * (bound.detach().abs() + length + moved)
        room = bound - length - 1.01 * moved - doubt
        inside = (anchor.abs() < self.end[0]).all(-1) & shown
        feasible = (room > self.least[0, 0]) & inside & room.isfinite()
        # an infeasible part gets room 1: its values are not used, and their gradients, times 0, must be finite
        return SphereFrame(anchor, torch.where(feasible, room, 1.0), feasible)

    def _left(
        self, factors: Tensor, apart: Tensor, index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What rows of inputs alone leave of the bound, from below, and whether that is positive.

        Args:
            factors: the bound less and plus one such row, or the bound twice; ``(…, 2)``, from below.
            apart: the values of other such rows, from above; 0 for rows with outputs.
            index: of the terms.
        """
        factored = self._at(self.factored, index) > 0
        product = self._root_of_product(factors)
        bound = torch.where(factored, product, factors[..., 0])
        others = (self._at(self.alone, index) > 0).any(-1)
        length = _length(apart, self.tiny[0, 0]) * (1 + self.rounding[0, 0])
        least = bound * (1 - self.rounding[0, 0])
        beside = torch.stack([least - length, least + length], -1)
        left = torch.where(others, self._root_of_product(beside), bound)
        rooted = (beside > self.rootable[0]).all(-1)
        shown = (factors > self.rootable[0]).all(-1) & (rooted | ~others)
        return left, shown

    def _root_of_product(self, factors: Tensor) -> Tensor:
        """``√(f g)`` of ``(…, 2)`` numbers, whose product may overflow; those that have no root have finite slopes."""
        roots = factors.clamp(min=self.rootable[0, 0]).clamp(max=LARGEST).sqrt()
        first, second = roots.unbind(-1)
        return first * second

    def _gauge(self, frame: SphereFrame, p: Tensor, index: Tensor | None) -> Tensor:
        """The gauge of a direction in units of the room."""
        _, length = lengths(times(self.Y, p, index), 1)
        size = (self._at(self.sizes, index) * p.detach().abs()).sum(-1)
        ball = (length.squeeze(-1) + self.relative[0, 0] * size) / self.kept[0, 0]
        distance = (self.end[0] - frame.anchor.detach().abs()) * self.shrunk[0]
        # the room over the distance, and not a direction times the room, which may overflow
        share = frame.room.detach().unsqueeze(-1) / torch.maximum(
            distance, self.end[0] * UNIT64
        )
        ranges = p.detach().abs() * self.grown[0] * share
        return torch.maximum(ball, ranges.amax(-1))

    def _point(self, frame: SphereFrame, p: Tensor, G: Tensor) -> Tensor:
        safe = G.clamp(min=1e-8)
        reach = torch.tanh(safe).clamp(max=1.0)
        # the added zero keeps a gradient where the reach is flat
        reach = reach + self.floor * (safe / safe.detach() - 1)
        # the direction is cut before it is multiplied by the room: both may be as large as floats are
        x = frame.anchor + p * (reach / safe).unsqueeze(-1) * frame.room.unsqueeze(-1)
        return torch.where(frame.feasible.unsqueeze(-1), x, torch.nan).to(
            self.precision.dtype
        )


def _length(parts: Tensor, tiny: Tensor) -> Tensor:
    """``√(Σ parts²)`` of ``(…, p)`` numbers that are not negative, and ``tiny`` more; no square under- or overflows."""
    largest = torch.maximum(parts.amax(-1, keepdim=True), tiny)
    length = (parts / largest).square().sum(-1).sqrt()
    return length * largest.squeeze(-1) + tiny


def _tables(parts: Sequence[Parametric]) -> dict[str, np.ndarray]:
    """The tables of :class:`Spheres`; padding is zero, and in no row."""
    count = len(parts)
    n = max(len(part.outputs) for part in parts)
    k = max(len(part.parameters) for part in parts)
    walls = [_wall_of(part) for part in parts]
    p = max(len(wall.norm.weights) for wall in walls)
    tables = {
        "rows": np.zeros((count, p + 2, n + k)),
        "constants": np.zeros((count, p + 2)),
        "Y": np.zeros((count, p, n)),
        "alone": np.zeros((count, p)),
        "factored": np.array([float(wall.factored) for wall in walls]),
        "sizes": np.zeros((count, n)),
        "centre": np.zeros((count, n, k)),
        "start": np.zeros((count, n)),
        "mix": np.zeros((count, n, n)),
        "unmix": np.zeros((count, n, n)),
        "log_mix": np.zeros(count),
        "dimension": np.array([float(len(part.outputs)) for part in parts]),
    }
    for i, (part, wall) in enumerate(zip(parts, walls, strict=True)):
        _fill({name: table[i : i + 1] for name, table in tables.items()}, part, wall)
    return tables


class _Wall(NamedTuple):
    """A moved ball with its squares completed.

    Args:
        norm: the cone, without the row of inputs alone that the factors hold.
        factors: two rows over coordinates and 1: the bound less and plus that row; the bound twice if there is none.
        factored: whether there is.
    """

    norm: Cone
    factors: tuple[Sequence[Fraction], Sequence[Fraction]]
    factored: bool


def _wall_of(part: Parametric) -> _Wall:
    own = len(part.outputs)
    cone = squares_completed(part.cones[0], own)
    bound = (*cone.s, cone.t)
    walls = [_Wall(cone, (bound, bound), False)]
    for i, (weight, row) in enumerate(zip(cone.weights, cone.Y, strict=True)):
        size = root(weight)
        if size is None or any(row[:own]):
            continue
        values = [size * c for c in (*row, cone.y[i])]
        less = [b - v for b, v in zip(bound, values, strict=True)]
        more = [b + v for b, v in zip(bound, values, strict=True)]
        walls.append(_Wall(_without(cone, i), (less, more), True))
    return min(walls, key=_held)


def _held(wall: _Wall) -> tuple[bool, int]:
    """How much stands in the factors: where little does, they are accurate for numbers of every size."""
    numbers = [c for factor in wall.factors for c in factor if c]
    return not wall.factored, len(numbers)


def _without(cone: Cone, i: int) -> Cone:
    """The cone without a row of its norm."""
    kept = [j for j in range(len(cone.weights)) if j != i]
    return Cone(
        tuple(cone.weights[j] for j in kept),
        tuple(cone.Y[j] for j in kept),
        tuple(cone.y[j] for j in kept),
        cone.s,
        cone.t,
        cone.strict,
    )


def _fill(tables: dict[str, np.ndarray], part: Parametric, wall: _Wall) -> None:
    cone = wall.norm
    own = len(part.outputs)
    n = tables["Y"].shape[-1]
    used = len(part.parameters)
    rows, constants, _, _ = cone.floats
    p = len(rows)
    Y, P = rows[:, :own], rows[:, own:]
    tables["rows"][0, :p, :own] = Y
    tables["rows"][0, :p, n : n + used] = P
    tables["constants"][0, :p] = constants
    for place, factor in zip((-2, -1), wall.factors, strict=True):
        numbers = [float(c) for c in factor]
        tables["rows"][0, place, n : n + used] = numbers[own:-1]
        tables["constants"][0, place] = numbers[-1]
    tables["Y"][0, :p, :own] = Y
    tables["alone"][0, :p] = ~Y.any(-1)
    for j in range(own):
        column = [row[j] for row in cone.Y]
        tables["sizes"][0, j] = np.nextafter(float(root_above(cone.square(column))), np.inf)  # fmt: skip
    inverse = np.linalg.pinv(Y)
    tables["centre"][0, :own, :used] = -inverse @ P
    tables["start"][0, :own] = -inverse @ constants
    none = GaugeRows(np.zeros((0, own)), np.zeros((0, own)))
    M = whitening(none, Scale(0), Y[None])
    tables["mix"][0, :own, :own] = M
    tables["unmix"][0, :own, :own] = np.linalg.inv(M)
    tables["log_mix"][0] = np.linalg.slogdet(M)[1]
