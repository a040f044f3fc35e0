r"""Balls and ellipsoids that inputs move: ``|Y x + P u + y| ≤ β·u + t`` for u known at run time.

The anchor c(u) is the point where ``Y x + P u + y`` is least, rounded to the format; it need not be accurate. What is
left inside there is a length, bounded from above, and with the bound from below there is a room

    room(u) = β·u + t − |Y c + P u + y| − Σ_j H_j (υ |c_j| + τ),     H_j = |Y e_j|,

whatever way the rounding goes. With ``q = room · M z`` the gauge is that of a ball,
``G ≥ (|Y q| + υ Σ_j H_j |q_j|) / room``,
and ``x = c + q tanh(G) / G`` is strictly inside by the triangle inequality. Where no room can be shown the part is
*infeasible* for this u, and NaN comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from multiplexnet.exact.cones import root_above
from multiplexnet.geometry.parts import Parametric
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
        off = value[..., :-1].detach().abs() + 2 * error[..., :-1]
        length = _length(off, self.tiny[0, 0])
        bound = value[..., -1] - 2 * error[..., -1]
        sizes = self._at(self.sizes, index)
        errors = self.unit[0] * anchor.detach().abs() + self.tiny[0]
        moved = (sizes * errors).sum(-1)
        doubt = self.rounding[0, 0] * (bound.detach().abs() + length + moved)
        room = bound - length - 1.01 * moved - doubt
        inside = (anchor.abs() < self.end[0]).all(-1)
        feasible = (room > self.least[0, 0]) & inside & room.isfinite()
        # an infeasible part gets room 1: its values are not used, and their gradients, times 0, must be finite
        return SphereFrame(anchor, torch.where(feasible, room, 1.0), feasible)

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
    p = max(len(part.cones[0].weights) for part in parts)
    tables = {
        "rows": np.zeros((count, p + 1, n + k)),
        "constants": np.zeros((count, p + 1)),
        "Y": np.zeros((count, p, n)),
        "sizes": np.zeros((count, n)),
        "centre": np.zeros((count, n, k)),
        "start": np.zeros((count, n)),
        "mix": np.zeros((count, n, n)),
        "unmix": np.zeros((count, n, n)),
        "log_mix": np.zeros(count),
        "dimension": np.array([float(len(part.outputs)) for part in parts]),
    }
    for i, part in enumerate(parts):
        _fill({name: table[i : i + 1] for name, table in tables.items()}, part)
    return tables


def _fill(tables: dict[str, np.ndarray], part: Parametric) -> None:
    (cone,) = part.cones
    own = len(part.outputs)
    n = tables["Y"].shape[-1]
    used = len(part.parameters)
    rows, constants, bound, t = cone.floats
    p = len(rows)
    Y, P = rows[:, :own], rows[:, own:]
    tables["rows"][0, :p, :own] = Y
    tables["rows"][0, :p, n : n + used] = P
    tables["rows"][0, -1, n : n + used] = bound[own:]
    tables["constants"][0, :p] = constants
    tables["constants"][0, -1] = t
    tables["Y"][0, :p, :own] = Y
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
