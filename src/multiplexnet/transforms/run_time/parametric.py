r"""Outputs that bound each other and are bounded at run time: the gauge around an anchor c(u).

A part ``A x + P u ≤ b`` with known u (inputs, values of opaque functions, outputs computed before) comes with its
triangular form: bounds of x_1 by u, of x_2 by u and x_1, and so on. Taking the middle of each in turn gives an anchor
c(u) of the format, its slacks ``s(u) = b − A c − P u`` are bounded from below with their rounding errors, and from
there on it is the gauge map of :mod:`multiplexnet.transforms.gauge` with slacks of its own in every row of the batch.
Where a slack cannot be shown to be positive the part is *infeasible* for this u, and NaN comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from multiplexnet.geometry.magnitudes import level
from multiplexnet.geometry.parts import Bound, Parametric
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
from multiplexnet.transforms.gauge import (
    LOOSE,
    SAFETY,
    GaugeRows,
    Scale,
    log_slope,
    times,
    whitening,
)
from multiplexnet.transforms.run_time.intervals import affine, underflow_of
from multiplexnet.transforms.run_time.reading import clear_of_zero, read

__all__ = ["ParametricGauge"]

Arrays = dict[str, np.ndarray]
LEAST = 2.0**-1000
"""A slack has to be shown to be larger than this: no mode then takes it for zero."""

FAR = 2.0**900
"""How many times its slack a row may be exceeded before the radial map: further out raw values make no difference."""

LARGEST64 = torch.finfo(torch.float64).max


class GaugeFrame(NamedTuple):
    """What the gauge map needs to know of one u."""

    anchor: Tensor
    scale: Tensor
    slack: Tensor
    loose: Tensor
    feasible: Tensor


class ParametricGauge(Transform):
    """``A x + P u ≤ b`` for u known at run time, by the gauge map around c(u).

    Args:
        parts: one part per term; smaller ones are padded.
        dtype: of the values that come out.

    Example: u < x < u + 1.
        >>> from fractions import Fraction
        >>> from multiplexnet.geometry.parts import Bound, OutputBounds
        >>> from multiplexnet.language.formula import Variable
        >>> x, u, one, zero = Variable("x", 0), Variable("u", 1, role="input"), Fraction(1), Fraction(0)
        >>> step = OutputBounds((Bound((), (one,), zero, True),), (Bound((), (one,), one, True),))
        >>> part = Parametric((x,), (u,), ((-one,), (one,)), ((one,), (-one,)), (zero, one), (True, True), (step,), ())
        >>> transform = ParametricGauge([part], torch.float32)
        >>> transform(torch.zeros(1, 1), parameters=torch.tensor([[7.0]]))
        tensor([[7.5000]])
        >>> transform.feasible(torch.tensor([[7.0], [1e30]])[:, None])
        tensor([[ True],
                [False]])
    """

    A: Tensor
    slack_rows: Tensor
    b: Tensor
    step_rows: Tensor
    step_constants: Tensor
    has: Tensor
    real: Tensor
    mix: Tensor
    unmix: Tensor
    log_mix: Tensor
    underflow: Tensor
    tiny: Tensor
    least: Tensor
    largest: Tensor
    end: Tensor
    kept: Tensor
    shrunk: Tensor
    grown: Tensor

    def __init__(self, parts: Sequence[Parametric], dtype: torch.dtype) -> None:
        arrays = _parametric_tables(parts)
        tables = {name: torch.from_numpy(array) for name, array in arrays.items()}
        precision = precision_of(dtype)
        count = len(parts)
        margins = {
            "underflow": underflow_of(tables["slack_rows"]),
            "tiny": margin(precision.tiny, count),
            "least": margin(LEAST, count),
            "largest": margin(LARGEST64, count),
            "end": margin(precision.largest, count),
            "kept": margin(1 - SAFETY, count),
            "shrunk": margin(1 - 2 * precision.unit, count),
            "grown": margin(1 + precision.unit, count),
        }
        super().__init__(dtype, {**tables, **margins})
        self.floor = gradient_floor(dtype)
        self.mixes = any(part.reference for part in parts)
        self.extreme = dtype is torch.float64 or _is_extreme(arrays)

    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether the anchor is shown to lie strictly inside, ``(*batch, T)`` or ``(*batch,)``."""
        return self._frame(parameters, index).feasible

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        frame, q = self._start(raw, index, parameters)
        return self._point(frame, q, self._gauge(frame, q, index))

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self._frame(parameters, index)
        d = x.double() - frame.anchor
        G = self._gauge(frame, d, index).clamp(1e-8, 1 - UNIT64)
        q = d * (torch.atanh(G) / G).unsqueeze(-1)
        return self._unmixed(q, frame, index).to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self._frame(parameters, index)
        cell = quarter_cell(x, self.precision.dtype)
        size = times(self.A.abs(), cell.expand_as(frame.anchor), index)
        change = (
            torch.where(frame.loose, LOOSE * size, size) / frame.slack.detach()
        ).amax(-1)
        d = x.double() - frame.anchor
        found = self._gauge(frame, d, index).clamp(min=1e-8)
        G = torch.minimum(found, 1 - change.clamp(UNIT64, 0.5))
        q = d * (torch.atanh(G) / found).unsqueeze(-1)
        return self._unmixed(q, frame, index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        frame, q = self._start(raw, index, parameters)
        G = self._gauge(frame, q, index)
        real = self._at(self.real, index)
        safe = G.clamp(min=1e-8)
        log_scale = torch.log(torch.where(real > 0, frame.scale, 1.0)).sum(-1)
        log_det = (
            (real.sum(-1) - 1) * torch.log(torch.tanh(safe) / safe)
            + log_slope(G)
            + log_scale
            + self._at(self.log_mix, index)
        )
        return self._point(frame, q, G), log_det.to(self.precision.computing)

    def drawn(self, x: Tensor, index: Tensor | None, parameters: Tensor) -> Tensor:
        """Points of all terms, drawn towards the anchors as far as it takes to show that they are inside."""
        frame = self._frame(parameters, index)
        q = self._cut(x.double() - frame.anchor, frame)
        G = self._gauge(frame, q, index)
        return self._along(frame, q, G, G.clamp(1e-8, 1.0))

    def _start(
        self, raw: Tensor, index: Tensor | None, parameters: Tensor | None
    ) -> tuple[GaugeFrame, Tensor]:
        assert parameters is not None
        frame = self._frame(parameters, index)
        z = finite(raw)
        if self.mixes:
            z = times(self.mix, z, index)
        return frame, self._cut(z * frame.scale, frame)

    def _unmixed(self, q: Tensor, frame: GaugeFrame, index: Tensor | None) -> Tensor:
        """The raw values of a direction."""
        z = torch.where(frame.scale > 0, q / frame.scale, 0.0)
        return times(self.unmix, z, index) if self.mixes else z

    def _cut(self, q: Tensor, frame: GaugeFrame) -> Tensor:
        """A direction, which is arbitrary, of which no row overflows."""
        if not self.extreme:
            return q
        furthest = FAR * frame.slack.detach().amin(-1, keepdim=True)
        return within(q, torch.minimum(furthest, self.largest[0] / 4))

    def _frame(self, parameters: Tensor, index: Tensor | None) -> GaugeFrame:
        known = read(parameters)
        u = self._of_all(known.low, index)
        anchor, scale = self._anchor(u, index)
        given = torch.cat([anchor, u], -1)
        value, error = affine(
            given, self.slack_rows, self._at(self.b, index), index, self.underflow
        )
        if known.rise is not None:
            P = self.slack_rows[..., self.A.shape[-1] :]
            error = error + times(P.abs(), self._of_all(known.rise, index), index)
        loose = value - 2 * error
        rounding = times(
            self.A.abs(),
            self.precision.unit * anchor.detach().abs() + self.tiny[0],
            index,
        )
        firm = loose - 1.01 * rounding
        feasible = (loose > self.least[0]).all(-1) & (anchor.abs() < self.end[0]).all(
            -1
        )
        is_loose = firm < loose / 2
        # An infeasible part gets slacks of 1: its values are not used, and their gradients, times 0, must be finite.
        slack = (
            torch.where(feasible.unsqueeze(-1), torch.where(is_loose, loose, firm), 1.0)
            * self.kept[0]
        )
        return GaugeFrame(anchor, scale, slack, is_loose, feasible)

    def _anchor(self, u: Tensor, index: Tensor | None) -> tuple[Tensor, Tensor]:
        """The middle of the bounds of each output in turn, as a number of the format, and half their distance."""
        n = self.A.shape[-1]
        columns = [u.new_zeros(u.shape[:-1])] * n
        scales = []
        for j in range(n):
            known = torch.cat([torch.stack(columns, -1), u], -1)
            lower, upper = (self._end(known, side, j, index) for side in (0, 1))
            has_lower, has_upper = self._at(self.has[:, j], index).unbind(-1)
            # Where a bound is missing the anchor keeps a distance of 1, or what rounding needs at this size.
            size = torch.maximum(lower.abs(), upper.abs()).detach()
            away = 2 + 32 * self.precision.unit * size
            from_upper = torch.where(has_upper, upper - away, -1.0)
            from_lower = torch.where(has_lower, lower + away, 1.0)
            low = torch.where(has_lower, lower, from_upper)
            high = torch.where(has_upper, upper, from_lower)
            if self.extreme:
                largest = self.largest[0, 0]
                low, high = (within(end, largest) for end in (low, high))
            middle = within(low / 2 + high / 2, self.end[0, 0])
            columns[j] = exactly(middle.to(self.precision.dtype).double(), middle)
            scales.append((high / 2 - low / 2).clamp(min=0))
        anchor = clear_of_zero(torch.stack(columns, -1), self.precision)
        return anchor, torch.stack(scales, -1) * self._at(self.real, index)

    def _end(self, known: Tensor, side: int, j: int, index: Tensor | None) -> Tensor:
        """The largest lower (side 0) or smallest upper (side 1) bound of output j; 0 where there is none."""
        constant = self._at(self.step_constants[:, side, j], index)
        values = times(self.step_rows[:, side, j], known, index) + constant
        if self.extreme:
            largest = self.largest[0, 0]
            values = within(torch.where(values.isnan(), 0.0, values), largest)
        return values.amin(-1) if side else values.amax(-1)

    def _gauge(self, frame: GaugeFrame, q: Tensor, index: Tensor | None) -> Tensor:
        relative = self.precision.unit + 4 * (q.shape[-1] + 8) * UNIT64
        size = times(self.A.abs(), q.detach().abs(), index)
        firm = times(self.A, q, index) + relative * size
        used = torch.where(frame.loose, LOOSE * size, firm)
        rows = used / frame.slack
        distance = self.end[0] - frame.anchor.abs()
        room = distance * self.shrunk[0]
        least = self.end[0] * UNIT64
        needed = q.abs() * self.grown[0]
        ranges = needed / torch.maximum(room, least)
        every = torch.cat([rows, ranges.detach()], -1)
        return every.amax(-1).relu()

    def _point(self, frame: GaugeFrame, q: Tensor, G: Tensor) -> Tensor:
        reached = torch.tanh(G.clamp(min=1e-8))
        return self._along(frame, q, G, reached.clamp(max=1.0))

    def _along(self, frame: GaugeFrame, q: Tensor, G: Tensor, reach: Tensor) -> Tensor:
        """``c + q · reach / G`` for a reach of at most 1."""
        safe = G.clamp(min=1e-8)
        # The added zero keeps a gradient where the reach is flat; relative to G, lest it swamp the gradient in u.
        reach = reach + self.floor * (safe / safe.detach() - 1)
        x = frame.anchor + q * (reach / safe).unsqueeze(-1)
        return torch.where(frame.feasible.unsqueeze(-1), x, torch.nan).to(
            self.precision.dtype
        )


def _is_extreme(tables: dict[str, np.ndarray]) -> bool:
    """Whether numbers of the rules may lead beyond float64 where values of a smaller format do not."""
    numbers = np.concatenate(
        [np.abs(tables[name]).ravel() for name in ("A", "slack_rows", "b", "step_rows")]
    )
    used = numbers[numbers > 0]
    return bool((used < 2.0**-400).any() or (used > 2.0**400).any())


def _parametric_tables(parts: Sequence[Parametric]) -> Arrays:
    """The tables of :class:`ParametricGauge`; padding rows are 0 ≤ 1, padding outputs are in no row."""
    count = len(parts)
    n = max(len(part.outputs) for part in parts)
    p = max(len(part.parameters) for part in parts)
    m = max(len(part.A) for part in parts)
    steps = [step for part in parts for step in part.steps]
    sides = [side for step in steps for side in (step.lower, step.upper)]
    most = max([1, *map(len, sides)])
    tables = {
        "A": np.zeros((count, m, n)),
        "slack_rows": np.zeros((count, m, n + p)),
        "b": np.ones((count, m)),
        "step_rows": np.zeros((count, 2, n, most, n + p)),
        "step_constants": np.zeros((count, 2, n, most)),
        "has": np.zeros((count, n, 2), dtype=np.bool_),
        "real": np.zeros((count, n)),
        "mix": np.tile(np.eye(n), (count, 1, 1)),
        "unmix": np.tile(np.eye(n), (count, 1, 1)),
        "log_mix": np.zeros(count),
    }
    for k, part in enumerate(parts):
        own = {name: table[k] for name, table in tables.items() if name != "log_mix"}
        own["real"][: len(part.outputs)] = 1.0
        tables["log_mix"][k] = _fill_rows(own, part)
        for j, step in enumerate(part.steps):
            _fill_step(own, 0, j, step.lower)
            _fill_step(own, 1, j, step.upper)
    return tables


def _fill_rows(tables: Arrays, part: Parametric) -> float:
    """Writes the inequalities of one part, and the mixing of its outputs; ``log |det|`` of that."""
    rows = len(part.A)
    own = len(part.outputs)
    n = tables["A"].shape[-1]
    scales = [
        level((*a, *p), c) for a, p, c in zip(part.A, part.P, part.b, strict=True)
    ]
    A = _scaled(part.A, scales)
    P = _scaled(part.P, scales)
    b = [float(c * s) for c, s in zip(part.b, scales, strict=True)]
    tables["A"][:rows, :own] = A
    tables["slack_rows"][:rows, :own] = -A
    tables["slack_rows"][:rows, n : n + len(part.parameters)] = -P
    tables["b"][:rows] = b
    if not part.reference:
        return 0.0
    mix = _mixed(part, A, P, tables["b"][:rows])
    tables["mix"][:own, :own] = mix
    tables["unmix"][:own, :own] = np.linalg.inv(mix)
    return float(np.linalg.slogdet(mix)[1])


def _scaled(
    rows: Sequence[Sequence[Fraction]], scales: Sequence[Fraction]
) -> np.ndarray:
    pairs = zip(rows, scales, strict=True)
    return np.array([[float(a * scale) for a in row] for row, scale in pairs])


def _fill_step(tables: Arrays, side: int, j: int, bounds: Sequence[Bound]) -> None:
    """Writes the bounds of one side of output j; where there are fewer than room for, the first again."""
    n = tables["A"].shape[-1]
    most = tables["step_constants"].shape[-1]
    tables["has"][j, side] = bool(bounds)
    padding = bounds[:1] * (most - len(bounds))
    for i, bound in enumerate((*bounds, *padding)):
        row = tables["step_rows"][side, j, i]
        row[: len(bound.outputs)] = [float(c) for c in bound.outputs]
        end = n + len(bound.parameters)
        row[n:end] = [float(c) for c in bound.parameters]
        tables["step_constants"][side, j, i] = float(bound.constant)


def _mixed(part: Parametric, A: np.ndarray, P: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What raw values are measured by around a moving centre: the slacks in the middle of the ranges of inputs."""
    u = np.array([float(value) for value in part.reference])
    bounds = [step.lower[0] for step in part.steps]
    slopes = np.array([[float(c) for c in bound.parameters] for bound in bounds])
    centre = slopes @ u + [float(bound.constant) + 1 for bound in bounds]
    slack = np.maximum(b - A @ centre - P @ u, 1e-300)
    W = A / slack[:, None]
    return whitening(GaugeRows(W, np.zeros_like(W)), Scale(len(W)))
