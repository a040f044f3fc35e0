r"""Boxes whose ends are known at run time only: ``L_j(u) ≤ x_j ≤ U_j(u)``, every output on its own.

Both ends are maxima of affine functions, of x_j and of −x_j, evaluated in float64 and moved inward by their rounding
errors. Between them lies the same map as in :mod:`multiplexnet.transforms.separable`, and what it gives is clamped to
numbers of the format that are shown to be inside::

    x = L σ(−z) + U σ(z)      or with one end alone (x₂ > h(x₁) in the paper)      x = L + g(z),   x = U − g(−z)

σ the sigmoid, g the softplus. Where no number of the format can be shown to be inside the part is *infeasible* for this
u, and NaN comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.exact.formats import FORMATS
from multiplexnet.geometry.magnitudes import level
from multiplexnet.geometry.parts import Bound, Parametric
from multiplexnet.transforms.base import (
    LIMIT,
    UNDERFLOW,
    UNIT64,
    Differentiable,
    Transform,
    applied,
    by_operations,
    exactly,
    gradient_floor,
    margin,
    precision_of,
    quarter_cell,
    within,
)
from multiplexnet.transforms.elementary import (
    inverse_softplus,
    portable_sigmoid,
    softplus,
)
from multiplexnet.transforms.gauge import times
from multiplexnet.transforms.run_time.reading import Read, has_small, kept, read
from multiplexnet.transforms.tiles import plus

__all__ = ["Intervals", "affine", "are_intervals", "underflow_of"]

LARGEST64 = torch.finfo(torch.float64).max


def are_intervals(part: Parametric) -> bool:
    """Whether the part has outputs, and none of them bounds another."""
    bounds = [bound for step in part.steps for bound in (*step.lower, *step.upper)]
    between_outputs = [bound for bound in bounds if any(bound.outputs)]
    return bool(part.outputs) and not between_outputs


def affine(
    values: Tensor,
    matrix: Tensor,
    constant: Tensor,
    index: Tensor | None,
    underflow: Tensor,
) -> tuple[Tensor, Tensor]:
    """``matrix @ values + constant`` and a bound of its error, that of the stored coefficients included."""
    total = times(matrix, values, index) + constant
    size = times(matrix.abs(), values.detach().abs(), index) + constant.abs()
    count = matrix.shape[-1] + 4
    return total, size * (1.01 * count * UNIT64) + underflow[0]


def underflow_of(matrix: Tensor) -> Tensor:
    """What ``affine`` may lose among the subnormal numbers, as a table."""
    return margin((matrix.shape[-1] + 4) * UNDERFLOW, len(matrix))


def _held(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """``clamp(x)``; where torch differentiates operation by operation, its derivative does not stop at the clamp."""
    inside = x.clamp(first, last)
    if not by_operations():
        return inside
    return exactly(inside, torch.where(x.isfinite(), x, inside))


class _Between(Differentiable):
    """``clamp(L σ(−z) + U σ(z))`` whose derivative does not stop at the clamp.

    ``portable`` builds the sigmoid such that an exported layer gives the same bits.
    """

    @staticmethod
    def forward(
        z: Tensor,
        lower: Tensor,
        upper: Tensor,
        first: Tensor,
        last: Tensor,
        floor: float,
        portable: bool,
    ) -> Tensor:
        sigma = portable_sigmoid if portable else torch.sigmoid
        x = torch.addcmul(lower * sigma(-z), upper, sigma(z))
        return _held(x, first, last)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, lower, upper, _, _, ctx.floor, _ = inputs
        ctx.save_for_backward(z, lower, upper)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        z, lower, upper = ctx.saved_tensors
        g = grad[0]
        share = torch.sigmoid(z)
        rest = torch.sigmoid(-z)
        slope = share * rest
        in_z = g * (upper * slope - lower * slope + ctx.floor)
        if not any(ctx.needs_input_grad[1:3]):
            return in_z, None, None, None, None, None, None
        return in_z, g * rest, g * share, None, None, None, None


class _Stretched(Differentiable):
    """``clamp(L + w σ(z))``, w the finite distance of the ends, whose derivative does not stop at the clamp."""

    @staticmethod
    def forward(
        z: Tensor,
        lower: Tensor,
        width: Tensor,
        first: Tensor,
        last: Tensor,
        floor: float,
    ) -> Tensor:
        return _held(torch.addcmul(lower, width, torch.sigmoid(z)), first, last)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, _, width, _, _, ctx.floor = inputs
        ctx.save_for_backward(z, width)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        z, width = ctx.saved_tensors
        g = grad[0]
        t = torch.sigmoid(-z.abs())
        slope = torch.ops.aten.sigmoid_backward(g, t) * width
        in_z = torch.add(slope, g, alpha=ctx.floor)
        in_width = g * torch.sigmoid(z) if ctx.needs_input_grad[2] else None
        return in_z, g, in_width, None, None, None


class IntervalFrame(NamedTuple):
    """What u leaves for each output, ``(*batch, T, n)``: the ends, and the first numbers of the format inside them."""

    lower: Tensor
    upper: Tensor
    first: Tensor
    last: Tensor
    width: Tensor | None = None
    """How far the ends are apart, if they are seen to be normal numbers of the format, a finite distance apart."""

    @property
    def is_met(self) -> Tensor:
        """Whether there is a number that is shown to be inside."""
        return self.first <= self.last

    def read(self, raw: Tensor) -> Tensor:
        """Raw values in the dtype of the ends, finite where an infinite one would be multiplied by 0."""
        if self.width is not None and raw.dtype is self.lower.dtype:
            return raw
        return raw.to(self.lower.dtype).clamp(-LIMIT, LIMIT)

    def cut(self, y: Tensor) -> Tensor:
        """The nearest numbers that are shown to be inside."""
        return y.clamp(self.first, self.last)


class Intervals(Transform):
    """``L_j(u) ≤ x_j ≤ U_j(u)`` for u known at run time; ends may be missing, and x = z if both are.

    Args:
        parts: one part per term, no output of which bounds another; smaller ones are padded.
        dtype: of the values that come out.

    Example: x > u in bfloat16.
        >>> from fractions import Fraction
        >>> from multiplexnet.geometry.parts import OutputBounds
        >>> from multiplexnet.language.formula import Variable
        >>> x, u, one = Variable("x", 0), Variable("u", 1, role="input"), Fraction(1)
        >>> step = OutputBounds((Bound((), (one,), Fraction(0), True),), ())
        >>> part = Parametric((x,), (u,), ((-one,),), ((one,),), (Fraction(0),), (True,), (step,), ())
        >>> transform = Intervals([part], torch.bfloat16)
        >>> raw, limit = torch.tensor([[-1e4]]).bfloat16(), torch.tensor([[100.0]]).bfloat16()
        >>> bool(transform(raw, parameters=limit) > limit)
        True
    """

    rows: Tensor
    constants: Tensor
    rounds: Tensor
    shift: Tensor
    has: Tensor
    strict: Tensor
    underflow: Tensor
    step: Tensor
    largest: Tensor
    end: Tensor
    lower_rows: Tensor
    lower_ends: Tensor
    upper_rows: Tensor
    upper_ends: Tensor

    def __init__(self, parts: Sequence[Parametric], dtype: torch.dtype) -> None:
        arrays = _tables(parts, torch.finfo(dtype).max)
        tables = {name: torch.from_numpy(array) for name, array in arrays.items()}
        tables["underflow"] = underflow_of(tables["rows"])
        tables["step"] = margin(3 * precision_of(dtype).tiny, len(parts), axes=2)
        tables["largest"] = margin(LARGEST64, len(parts), axes=2)
        tables["end"] = margin(precision_of(dtype).largest, len(parts), axes=2)
        super().__init__(dtype, tables)
        both = self.has.all(1)
        self.any_both = bool(both.any())
        self.any_one = bool((~both).any())
        self.any_free = bool((~self.has).all(1).any())
        self.exact = not self.rounds.any()
        self.any_shift = bool((self.shift != 1).any())
        any_large = bool((self.rows.abs() > 1).any())
        is_widest = dtype is torch.float64
        self.may_overflow = self.any_shift or (is_widest and any_large)
        # Ends that are inputs or numbers of the format, and belong to the set, are the first and last numbers inside.
        same = torch.equal(self.constants, self._rounded(self.constants))
        self.attained = self.exact and same and not self.strict.any() and not any_large
        self.is_plain = self.attained and not self.any_one
        if self.is_plain:
            self.hold({**self.own_tables(), **self._picks()})
        self.floor = gradient_floor(dtype)

    def feasible(self, parameters: Tensor, index: Tensor | None = None) -> Tensor:
        """Whether every output has a number that is shown to be inside, ``(*batch, T)`` or ``(*batch,)``."""
        return self.met(self.frame(parameters, index))

    def met(self, frame: IntervalFrame) -> Tensor:
        """:meth:`feasible` of known values that leave this."""
        if frame.width is None:
            return frame.is_met.all(-1)
        shape = frame.width.shape[:-1]
        return torch.ones(shape, dtype=torch.bool, device=frame.width.device)

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        return self.between(raw, self.frame(parameters, index), index)

    def between(
        self, raw: Tensor, frame: IntervalFrame, index: Tensor | None
    ) -> Tensor:
        """:meth:`forward` for known values that leave this."""
        return self._point(frame.read(raw), frame, index)

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self.frame(parameters, index)
        smallest = torch.finfo(torch.float64).smallest_normal
        raw = self.mapped_back(x.double(), frame, smallest, index)
        return raw.to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self.frame(parameters, index)
        quarter = quarter_cell(x, self.precision.dtype)
        return self.mapped_back(x.double(), frame, quarter, index)

    def mapped_back(
        self,
        y: Tensor,
        frame: IntervalFrame,
        least: float | Tensor,
        index: Tensor | None,
    ) -> Tensor:
        """The raw values of y, which is taken to lie at least so far from both ends."""
        has_lower, has_upper = self._at(self.has, index).unbind(-2)
        above = torch.clamp(y - frame.lower, min=least)
        below = torch.clamp(frame.upper - y, min=least)
        between = torch.log(above) - torch.log(below)
        one = torch.where(has_lower, inverse_softplus(above), -inverse_softplus(below))
        if self.any_free:
            one = torch.where(has_lower | has_upper, one, y)
        return torch.where(has_lower & has_upper, between, one)

    def nearest(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        assert parameters is not None
        frame = self.frame(parameters, index)
        y = torch.where(frame.is_met, frame.cut(x.double()), torch.nan)
        return y.to(self.precision.dtype)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        assert parameters is not None
        frame = self.frame(parameters, index)
        z = frame.read(raw)
        log_det = self.log_slopes(z, frame, index).sum(-1).to(self.precision.computing)
        return self._point(z, frame, index), log_det

    def log_slopes(
        self, z: Tensor, frame: IntervalFrame, index: Tensor | None
    ) -> Tensor:
        """``log dx_j/dz_j``: d g(z)/dz = σ(z), d (−g(−z))/dz = σ(−z), and an interval has both factors."""
        has_lower, has_upper = self._at(self.has, index).unbind(-2)
        width = (frame.upper - frame.lower).clamp(
            min=torch.finfo(z.dtype).smallest_normal
        )
        log_slopes = torch.where(has_lower & has_upper, torch.log(width), 0.0)
        log_slopes = log_slopes - torch.where(has_lower, F.softplus(-z), 0.0)
        return log_slopes - torch.where(has_upper, F.softplus(z), 0.0)

    def _point(self, z: Tensor, frame: IntervalFrame, index: Tensor | None) -> Tensor:
        x = self.inside(z, frame, index)
        if frame.width is None:
            x = torch.where(frame.is_met, x, torch.nan)
        return x.to(self.precision.dtype)

    def inside(self, z: Tensor, frame: IntervalFrame, index: Tensor | None) -> Tensor:
        """The values of finite raw values; without a meaning where no number is shown to be inside."""
        has_lower, has_upper = self._at(self.has, index).unbind(-2)
        lower, upper, first, last, width = frame
        if self.any_both:
            z, _ = torch.broadcast_tensors(z, lower)  # type: ignore[no-untyped-call]
        if width is not None and z.dtype is torch.float32:
            stretched: Tensor = applied(
                _Stretched, z, lower, width, first, last, self.floor
            )
            return stretched
        if self.any_both:
            inside: Tensor = applied(
                _Between, z, lower, upper, first, last, self.floor, not self.training
            )
        if self.any_one:
            g = F.softplus if self.training else softplus
            y = torch.where(has_lower, lower + g(z), upper - g(-z))
            if self.any_free:
                y = torch.where(has_lower | has_upper, y, z)
            one = exactly(y.clamp(first, last), y + self.floor * z)
            both = has_lower & has_upper
            inside = torch.where(both, inside, one) if self.any_both else one
        return inside

    def middle(self, frame: IntervalFrame) -> Tensor:
        """Half-way between the ends, as far as the format goes."""
        half_way = frame.lower / 2 + frame.upper / 2
        return within(half_way, self.end[0, 0])

    def frame(self, parameters: Tensor, index: Tensor | None) -> IntervalFrame:
        """What these known values leave for each output."""
        plain = self._plain(parameters, index)
        if plain is not None:
            return plain
        attained = self.attained and parameters.dtype is self.precision.dtype
        known = read(parameters)
        ends = self._ends(known, index)
        inside = ends.detach()
        if self.may_overflow:
            # An end of ±inf says what it should, but is not a number to compute with.
            largest = self.largest[0]
            ends = within(ends, largest)
            inside = torch.maximum(inside, -largest)
        if not attained:
            inside = self._inside(inside, index)
        elif known.small:
            inside = self._normal(inside)
        if attained and self.any_one:
            inside = torch.where(self._at(self.has, index), inside, -self.end[0])
        if attained and self.training:
            # The ends are numbers of the format. The map of eval() is computed in float64.
            ends = ends.to(self.precision.computing)
            inside = inside.to(self.precision.computing)
        return IntervalFrame(
            ends[..., 0, :], -ends[..., 1, :], inside[..., 0, :], -inside[..., 1, :]
        )

    def _picks(self) -> dict[str, Tensor]:
        """The bounds of x itself, in the dtype that it is computed in: each is one known value, or a constant."""
        halves = self.rows.chunk(2, 1)
        ends = self.constants.chunk(2, 1)
        tables = {
            "lower_rows": halves[0],
            "lower_ends": ends[0],
            "upper_rows": -halves[1],
            "upper_ends": -ends[1],
        }
        computing = self.precision.computing
        return {name: table.to(computing) for name, table in tables.items()}

    def _plain(self, parameters: Tensor, index: Tensor | None) -> IntervalFrame | None:
        """The frame, if its ends are seen to be normal numbers, lower ones first, a finite distance apart.

        Nothing is rounded: in the sum that a bound is, all summands but one are 0.
        """
        if not self.is_plain or parameters.dtype is not self.precision.dtype:
            return None
        if not parameters.numel() or has_small(parameters, parameters.dtype):
            return None
        u = parameters.to(self.precision.computing)
        lower = self._picked(self.lower_rows, self.lower_ends, u, index)
        upper = self._picked(self.upper_rows, self.upper_ends, u, index)
        n = self.has.shape[-1]
        if lower.shape[-1] > n:
            shape = (*lower.shape[:-1], n, -1)
            lower = lower.reshape(shape).amax(-1)
            upper = upper.reshape(shape).amin(-1)
        width = upper - lower
        least, most = (float(end) for end in width.detach().aminmax())
        if not 0 < least <= most < math.inf:
            return None
        if not self.training:  # whose map is computed in float64
            lower = lower.double()
            upper = upper.double()
        return IntervalFrame(lower, upper, lower.detach(), upper.detach(), width)

    def _picked(
        self, rows: Tensor, ends: Tensor, u: Tensor, index: Tensor | None
    ) -> Tensor:
        return plus(times(rows, u, index), self._at(ends, index))

    def _ends(self, known: Read, index: Tensor | None) -> Tensor:
        """The largest lower bounds of x and of −x, ``(*batch, T, 2, n)``, not below the true ones; 0 for none."""
        constants = self._at(self.constants, index)
        rounds = self._at(self.rounds, index)
        if self.exact:
            total = times(self.rows, known.low, index) + constants
        else:
            total, error = affine(
                known.low, self.rows, constants, index, self.underflow
            )
            total = total + 2 * error * rounds
        if known.rise is not None:
            total = total + times(self.rows.clamp(min=0), known.rise, index) * (
                1 + rounds
            )
        if self.any_shift:
            total = total * self._at(self.shift, index)
        sides, n = self.has.shape[1:]
        most = total.shape[-1] // (sides * n)
        ends = total.reshape(*total.shape[:-1], sides, n, most)
        return ends.squeeze(-1) if most == 1 else ends.amax(-1)

    def _inside(self, ends: Tensor, index: Tensor | None) -> Tensor:
        """Numbers of the format beyond the ends: the nearest if it is, one some steps away, or the middle of both."""
        has = self._at(self.has, index)
        strict = self._at(self.strict, index)
        near = self._rounded(ends)
        further = self._rounded(self._outward(ends))
        beyond = torch.where(_above(near, ends, strict), near, further)
        lower = ends[..., :1, :]
        minus_upper = ends[..., 1:, :]
        middle = self._rounded(lower / 2 - minus_upper / 2)
        pair = torch.cat([middle, -middle], -2)
        between = (_above(pair, ends, strict) | ~has).all(-2, keepdim=True)
        nearer = torch.minimum(beyond, pair)
        beyond = torch.where(between, nearer, beyond)
        found = torch.where(has, beyond, -torch.inf)
        return torch.maximum(found, -self.end[0])

    def _rounded(self, y: Tensor) -> Tensor:
        return kept(y, self.precision)

    def _normal(self, ends: Tensor) -> Tensor:
        """The first numbers beyond the ends, which are numbers of the format, that no mode takes for zero."""
        if self.precision.dtype not in (torch.float32, torch.bfloat16):
            return ends
        tiny = self.precision.tiny
        normal = torch.where(ends > 0, tiny, 0.0)
        return torch.where(ends.abs() < tiny, normal, ends)

    def _outward(self, y: Tensor) -> Tensor:
        """A number from which rounding to the format does not come back to y."""
        rounding = 3 * self.precision.unit * y.abs()
        return y + rounding + self.step[0]


def _above(y: Tensor, ends: Tensor, strict: Tensor) -> Tensor:
    return (y > ends) | (~strict & (y == ends))


def _tables(parts: Sequence[Parametric], largest: float) -> dict[str, np.ndarray]:
    """The tables of :class:`Intervals`: bounds of x, then of −x, one block per output.

    A bound whose sum could overflow is divided by a power of two, ``shift``, and multiplied by it in the end.
    """
    count = len(parts)
    n = max(len(part.outputs) for part in parts)
    p = max(len(part.parameters) for part in parts)
    steps = [step for part in parts for step in part.steps]
    m = max(1, *(len(side) for step in steps for side in (step.lower, step.upper)))
    tables = {
        "rows": np.zeros((count, 2, n, m, p)),
        "constants": np.zeros((count, 2, n, m)),
        "rounds": np.zeros((count, 2, n, m)),
        "shift": np.ones((count, 2, n, m)),
        "has": np.zeros((count, 2, n), dtype=np.bool_),
        "strict": np.zeros((count, 2, n), dtype=np.bool_),
    }
    for k, part in enumerate(parts):
        for j, step in enumerate(part.steps):
            _fill(tables, (k, 0, j), step.lower, 1, largest)
            _fill(tables, (k, 1, j), step.upper, -1, largest)
    tables["rows"] = tables["rows"].reshape(count, -1, p)
    for name in ("constants", "rounds", "shift"):
        tables[name] = tables[name].reshape(count, -1)
    return tables


def _fill(
    tables: dict[str, np.ndarray],
    place: tuple[int, int, int],
    bounds: Sequence[Bound],
    sign: int,
    largest: float,
) -> None:
    """Writes the bounds of one side of one output; where there are fewer than room for, the first again."""
    tables["has"][place] = bool(bounds)
    tables["strict"][place] = any(bound.strict for bound in bounds)
    m = tables["shift"].shape[-1]
    repeated = (*bounds, *bounds[:1] * (m - len(bounds)))
    for i, bound in enumerate(repeated):
        here = (*place, i)
        scale = _scale(bound, largest) * sign
        row = [float(scale * c) for c in bound.parameters]
        tables["rows"][here][: len(row)] = row
        tables["constants"][here] = float(scale * bound.constant)
        tables["rounds"][here] = not _is_exact(bound)
        tables["shift"][here] = float(1 / abs(scale))


def _scale(bound: Bound, largest: float) -> Fraction:
    """1 where the bound cannot overflow for inputs up to ``largest``, or does so as a single product; else less."""
    size = sum(map(abs, bound.parameters), Fraction(0))
    total = size * Fraction(largest) + abs(bound.constant)
    if _is_exact(bound) or total <= Fraction(LARGEST64):
        return Fraction(1)
    return min(level(bound.parameters, bound.constant), Fraction(1))


def _is_exact(bound: Bound) -> bool:
    """Whether float64 evaluates the bound without rounding: it is a constant, or ±u_i, ±2u_i, ±4u_i, ±8u_i."""
    used = [abs(c) for c in bound.parameters if c]
    if not used:
        return FORMATS["float64"].representable(bound.constant)
    return not bound.constant and len(used) == 1 and used[0] in (1, 2, 4, 8)
