r"""Boxes: every variable by itself.

With the softplus g(z) = log(1 + e^z) and the sigmoid σ = g′ (Section 3 of the paper for the half-lines)::

    a ≤ x            x = a + g(z)
    x ≤ b            x = b − g(−z)
    a ≤ x ≤ b        x = a + (b − a) σ(z)                                     Separable
                     x = b − g(k − g(z)),  k = log(e^{b−a} − 1)               PaperSeparable, the paper's own map
    x = a            x = a
    x free           x = z

One formula without branches serves all kinds, with a width w = b − a, a sign s and f ∈ {0, 1} that are zero where a
kind does not apply: ``x = base + w σ(z) + s g(s z) + f z``. The result is clamped to the bounds, which are numbers of
the format: so it is exact. (Intervals by themselves need no clamp; see ``_widths``.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.geometry.parts import Box
from multiplexnet.transforms.base import (
    LIMIT,
    Precision,
    Transform,
    applied,
    exactly,
    precision_of,
    quarter_cell,
)
from multiplexnet.transforms.elementary import (
    inverse_softplus,
    portable_sigmoid,
    portable_softplus,
    softplus,
)

__all__ = ["PaperSeparable", "Separable"]


class Kinds(NamedTuple):
    """Which kinds of columns occur: what does not occur costs nothing."""

    interval: bool
    half: bool
    free: bool
    signed: bool
    """Whether anything but lower half-lines occurs."""


def _tables(parts: Sequence[Box], precision: Precision) -> dict[str, Tensor]:
    """The constants of all entries, each ``(T, n)``; an unbounded end is the largest number of the format."""
    inf = float("inf")
    largest = precision.largest
    lower = torch.tensor(
        [[-inf if a is None else float(a) for a in p.lower] for p in parts], dtype=torch.float64
    )
    upper = torch.tensor(
        [[inf if b is None else float(b) for b in p.upper] for p in parts], dtype=torch.float64
    )
    free = lower.isinf() & upper.isinf()
    # A half-line whose end is close to the end of the format is an interval: its softplus would stick at the clamp.
    above = upper.isinf() & ~free & (lower < largest / 2)
    below = lower.isinf() & ~free & (upper > -largest / 2)
    interval = ~(free | above | below)
    lower = lower.clamp(min=-largest)
    upper = upper.clamp(max=largest)
    width = _widths(lower, upper, precision.computing) * interval
    tables = {
        "lower": lower,
        "upper": upper,
        "base": torch.where(free, 0.0, torch.where(below, upper, lower)),
        "width": width,
        "sign": above.double() - below.double(),
        "free": free.double(),
    }
    return {name: table.to(precision.computing) for name, table in tables.items()}


def _widths(lower: Tensor, upper: Tensor, dtype: torch.dtype) -> Tensor:
    """Widths w with ``lower + w ≤ upper`` as computed in the dtype; beyond its largest number they are cut.

    Rounding is monotone, so ``lower + w σ`` then lies in the interval for any ``0 ≤ σ ≤ 1``.
    """
    low = lower.to(dtype)
    high = upper.to(dtype)
    width = (upper - lower).clamp(max=torch.finfo(dtype).max).to(dtype)
    while (low + width > high).any():
        width = torch.where(
            low + width > high, torch.nextafter(width, torch.zeros_like(width)), width
        )
    return width.double()


class _Boxed(torch.autograd.Function):
    """``clamp(base + w σ(z) + s g(s z) + f z)`` whose derivative neither stops at the clamp nor underflows.

    ``portable`` computes the value in float64, so that an exported layer gives the same bits.

    autograd's own σ′ = σ(1 − σ) is 0 in float32 from z = 17 on; here it is t(1 − t) with t = σ(−|z|), where t is at
    least the smallest normal number of the format (``floor``), so that a gradient survives in float16 too.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        z: Tensor,
        lower: Tensor,
        upper: Tensor,
        base: Tensor,
        width: Tensor,
        sign: Tensor,
        free: Tensor,
        kinds: Kinds,
        floor: float,
        portable: bool,
    ) -> Tensor:
        if portable:
            z, base, width, sign, free = (t.double() for t in (z, base, width, sign, free))
        sigma, g = (
            (portable_sigmoid, portable_softplus) if portable else (torch.sigmoid, F.softplus)
        )
        x = torch.addcmul(base, sigma(z), width) if kinds.interval else base
        if kinds.half:
            x = torch.addcmul(x, g(sign * _cut(z)), sign) if kinds.signed else x + g(z)
        x = torch.addcmul(x, z.clamp(lower, upper), free) if kinds.free else x
        return x.clamp(lower, upper) if kinds.half or kinds.free else x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, _, _, _, width, sign, free, ctx.kinds, ctx.floor, _ = inputs
        ctx.save_for_backward(z, width, sign, free)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        z, width, sign, free = ctx.saved_tensors
        kinds = ctx.kinds
        g = grad[0]
        pulled: list[Tensor] = []
        if kinds.interval:
            t = _raised(torch.sigmoid(-z.abs()), ctx.floor)
            pulled.append(torch.ops.aten.sigmoid_backward(g, t) * width)
        if kinds.half:
            t = _raised(torch.sigmoid(sign * _cut(z) if kinds.signed else z), ctx.floor)
            pulled.append(g * (t * sign.abs() if kinds.signed else t))
        if kinds.free:
            pulled.append(g * free)
        return sum(pulled[1:], pulled[0]), *[None] * 9


def _raised(t: Tensor, floor: float) -> Tensor:
    return t.clamp(min=floor) if floor > 1e-30 else t


def _cut(z: Tensor) -> Tensor:
    """``z``, finite, since 0 · inf is NaN; the ends are float32 numbers, as ONNX needs them."""
    return z.clamp(-LIMIT, LIMIT)


class Separable(Transform):
    """Boxes: half-lines by softplus, intervals by the sigmoid.

    Args:
        parts: one box per term, all over the same number n of outputs.
        dtype: of the values that come out.

    Example:
        >>> from fractions import Fraction
        >>> box = Box((), (Fraction(0), Fraction(2), None), (Fraction(1), None, None))
        >>> transform = Separable([box], torch.float32)
        >>> transform(torch.tensor([[-float("inf"), -1e30, 7.0]]))
        tensor([[0., 2., 7.]])
    """

    lower: Tensor
    upper: Tensor
    base: Tensor
    width: Tensor
    sign: Tensor
    free: Tensor

    def __init__(self, parts: Sequence[Box], dtype: torch.dtype) -> None:
        super().__init__(dtype, _tables(parts, precision_of(dtype)))
        half = bool(self.sign.any())
        free = bool(self.free.any())
        signed = bool((self.sign != 1).any())
        interval = bool(((self.sign == 0) & (self.free == 0)).any())
        self.kinds = Kinds(interval, half, free, signed)
        self.floor = float(torch.finfo(dtype).smallest_normal)

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        constants = (self.lower, self.upper, self.base, self.width, self.sign, self.free)
        interval, half, free, _ = self.kinds
        needed = (half or free, half or free, True, interval, half, free)
        rows = [
            self._at(table, index) if used else table
            for table, used in zip(constants, needed, strict=True)
        ]
        z = raw.to(self.precision.computing)
        x: Tensor = applied(_Boxed, z, *rows, self.kinds, self.floor, not self.training)
        return x.to(self.precision.dtype)

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        lower, base, width, sign, free = (
            self._at(t, index) for t in (self.lower, self.base, self.width, self.sign, self.free)
        )
        y = x.to(self.precision.computing)
        smallest = torch.finfo(y.dtype).smallest_normal
        share = ((y - lower) / width).clamp(smallest, 1 - torch.finfo(y.dtype).eps)
        distance = (sign * (y - base)).clamp(min=smallest)
        interval = torch.where(width > 0, torch.logit(share), 0.0)
        raw = torch.where(
            sign != 0, sign * inverse_softplus(distance), torch.where(free != 0, y, interval)
        )
        return raw.to(self.precision.dtype)

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        lower, base, width, sign, free = (
            self._at(t, index).double()
            for t in (self.lower, self.base, self.width, self.sign, self.free)
        )
        y = x.double()
        nearest = quarter_cell(x, self.precision.dtype)
        above, below = (d.clamp(min=nearest) for d in (y - lower, lower + width - y))
        half = sign * inverse_softplus((sign * (y - base)).clamp(min=nearest))
        interval = torch.where(width > 0, torch.log(above) - torch.log(below), 0.0)
        return torch.where(sign != 0, half, torch.where(free != 0, y, interval))

    def nearest(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        lower = self._at(self.lower, index)
        upper = self._at(self.upper, index)
        return x.to(self.precision.computing).clamp(lower, upper).to(self.precision.dtype)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self(raw, index), self.log_slopes(raw, index).sum(-1)

    def log_slopes(self, raw: Tensor, index: Tensor | None = None) -> Tensor:
        """``log ∂x_j/∂raw_j`` of every column; 0 for a constant."""
        z = raw.to(self.precision.computing)
        width = self._at(self.width, index)
        sign = self._at(self.sign, index)
        interval = torch.log(width) - F.softplus(z) - F.softplus(-z)
        return torch.where(width > 0, interval, -sign.abs() * F.softplus(-sign * z))


class PaperSeparable(Transform):
    """Boxes with the paper's own map of an interval, ``x = b − g(k − g(z))`` with ``k = log(e^{b−a} − 1)``.

    The textbook k overflows for b − a ≥ 89 in float32; here ``k = (b − a) + log(−expm1(−(b − a)))`` holds at any
    width. The clamp that makes the map exact passes the gradient on.

    Example:
        >>> from fractions import Fraction
        >>> transform = PaperSeparable([Box((), (Fraction(0),), (Fraction(1000),))], torch.float32)
        >>> transform(torch.tensor([[-50.0]])), transform(torch.tensor([[1e30]]))
        (tensor([[0.]]), tensor([[1000.]]))
    """

    lower: Tensor
    upper: Tensor
    k: Tensor
    interval: Tensor
    others: Separable

    def __init__(self, parts: Sequence[Box], dtype: torch.dtype) -> None:
        others = Separable(parts, dtype)
        interval = (others.sign == 0) & (others.free == 0)
        k = inverse_softplus(others.width.double())
        ends = {"lower": others.lower.double(), "upper": others.upper.double()}
        super().__init__(dtype, {**ends, "k": k, "interval": interval})
        self.others = others

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        lower, upper, k, interval = (
            self._at(t, index) for t in (self.lower, self.upper, self.k, self.interval)
        )
        z = _cut(raw.double())
        y = upper - softplus(k - softplus(z))
        inside = exactly(y.clamp(lower, upper), y + self.others.floor * z).to(self.precision.dtype)
        return torch.where(interval, inside, self.others(raw, index))

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        lower, upper, k, interval = (
            self._at(t, index) for t in (self.lower, self.upper, self.k, self.interval)
        )
        y = x.double()
        smallest = torch.finfo(y.dtype).smallest_normal
        inner = k - inverse_softplus((upper - y).clamp(min=smallest))
        raw = inverse_softplus(inner.clamp(min=smallest)).to(self.precision.dtype)
        return torch.where(
            interval, torch.where(lower == upper, 0.0, raw), self.others.inverse(x, index)
        )

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        lower, upper, k, interval = (
            self._at(t, index) for t in (self.lower, self.upper, self.k, self.interval)
        )
        y = x.double()
        nearest = quarter_cell(x, self.precision.dtype)
        above, below = (d.clamp(min=nearest) for d in (y - lower, upper - y))
        # g(z) = k − g⁻¹(b − y) grows faster than y − a, which it is compared with at the lower end, where it cancels.
        raw = inverse_softplus(torch.maximum(k - inverse_softplus(below), above))
        return torch.where(
            interval, torch.where(lower == upper, 0.0, raw), self.others.unrounded(x, index)
        )

    def nearest(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.others.nearest(x, index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self(raw, index), self.log_slopes(raw, index).sum(-1)

    def log_slopes(self, raw: Tensor, index: Tensor | None = None) -> Tensor:
        """``log ∂x_j/∂raw_j`` of every column; 0 for a constant."""
        z = raw.double()
        k = self._at(self.k, index)
        interval = self._at(self.interval, index)
        paper = -softplus(softplus(z) - k) - softplus(-z)
        return torch.where(
            interval & k.isfinite(),
            paper.to(self.precision.computing),
            self.others.log_slopes(raw, index),
        )
