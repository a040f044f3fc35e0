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
the format: so it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.geometry.parts import Box
from multiplexnet.transforms.base import Precision, Transform, exactly, precision_of

__all__ = ["PaperSeparable", "Separable"]


class Kinds(NamedTuple):
    """Which kinds of columns occur: what does not occur costs nothing."""

    interval: bool
    half: bool
    free: bool


def inverse_softplus(y: Tensor) -> Tensor:
    """``log(e^y − 1)``, written so that it neither overflows nor loses small y."""
    return y + torch.log(-torch.expm1(-y))


def _tables(parts: Sequence[Box], precision: Precision) -> dict[str, Tensor]:
    """The constants of all entries, each ``(T, n)``; an unbounded end is the largest number of the format."""
    inf, largest = float("inf"), precision.largest
    lower = torch.tensor([[-inf if a is None else float(a) for a in p.lower] for p in parts], dtype=torch.float64)
    upper = torch.tensor([[inf if b is None else float(b) for b in p.upper] for p in parts], dtype=torch.float64)
    free = lower.isinf() & upper.isinf()
    # A half-line whose end is close to the end of the format is an interval: its softplus would stick at the clamp.
    above = upper.isinf() & ~free & (lower < largest / 2)
    below = lower.isinf() & ~free & (upper > -largest / 2)
    interval = ~(free | above | below)
    lower, upper = lower.clamp(min=-largest), upper.clamp(max=largest)
    # A width beyond the numbers in which we compute is cut: such a map ends early, inside.
    width = torch.where(interval, upper - lower, 0.0).clamp(max=torch.finfo(precision.computing).max)
    smallest = float(torch.finfo(precision.dtype).smallest_normal)
    tables = {
        "lower": lower,
        "upper": upper,
        "base": torch.where(free, 0.0, torch.where(below, upper, lower)),
        "width": width,
        "sign": above.double() - below.double(),
        "free": free.double(),
        "floor": torch.where(lower == upper, 0.0, smallest),
    }
    return {name: table.to(precision.computing) for name, table in tables.items()}


def _finite(z: Tensor) -> Tensor:
    return z.clamp(-torch.finfo(z.dtype).max, torch.finfo(z.dtype).max)


class _Boxed(torch.autograd.Function):
    """``clamp(base + w σ(z) + s g(s z) + f z)`` whose derivative neither stops at the clamp nor underflows.

    autograd's own σ′ = σ(1 − σ) is 0 in float32 from z = 17 on; here it is t(1 − t) with t = σ(−|z|), plus the
    smallest normal number of the format, so that a gradient survives in float16 too.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        z: Tensor,
        upper: Tensor,
        base: Tensor,
        width: Tensor,
        sign: Tensor,
        free: Tensor,
        floor: Tensor,
        kinds: Kinds,
        largest: float,
    ) -> Tensor:
        z = _finite(z) if sum(kinds) > 1 else z  # 0 · inf is NaN
        x = torch.addcmul(base, torch.sigmoid(z), width) if kinds.interval else base
        x = torch.addcmul(x, F.softplus(sign * z), sign) if kinds.half else x
        x = torch.addcmul(x, z, free) if kinds.free else x
        # A finite lower end needs no clamp: rounding is monotone, so lower + (something ≥ 0) stays at or above lower.
        x = torch.minimum(x, upper) if kinds.interval else x
        return x.clamp(-largest, largest) if kinds.half or kinds.free else x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, _, _, width, sign, free, floor, ctx.kinds, _ = inputs
        ctx.save_for_backward(z, width, sign, free, floor)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        z, width, sign, free, floor = ctx.saved_tensors
        z = _finite(z) if sum(ctx.kinds) > 1 else z
        slope = floor
        if ctx.kinds.interval:
            t = torch.sigmoid(-z.abs())
            slope = torch.addcmul(slope, torch.addcmul(t, t, t, value=-1), width)
        if ctx.kinds.half:
            slope = torch.addcmul(slope, torch.sigmoid(sign * z), sign.abs())
        if ctx.kinds.free:
            slope = slope + free
        return grad[0] * slope, *[None] * 8


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
    floor: Tensor

    def __init__(self, parts: Sequence[Box], dtype: torch.dtype) -> None:
        super().__init__(dtype, _tables(parts, precision_of(dtype)))
        half, free = bool(self.sign.any()), bool(self.free.any())
        interval = bool(((self.sign == 0) & (self.free == 0)).any())
        self.kinds = Kinds(interval, half, free)

    def forward(self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        constants = (self.upper, self.base, self.width, self.sign, self.free, self.floor)
        rows = [self._at(table, index) for table in constants]
        z = raw.to(self.precision.computing)
        x: Tensor = _Boxed.apply(z, *rows, self.kinds, self.precision.largest)  # type: ignore[no-untyped-call]
        return x.to(self.precision.dtype)

    def inverse(self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        lower, base, width, sign, free = (
            self._at(t, index) for t in (self.lower, self.base, self.width, self.sign, self.free)
        )
        y = x.to(self.precision.computing)
        smallest = torch.finfo(y.dtype).smallest_normal
        share = ((y - lower) / width).clamp(smallest, 1 - torch.finfo(y.dtype).eps)
        distance = (sign * (y - base)).clamp(min=smallest)
        interval = torch.where(width > 0, torch.logit(share), 0.0)
        raw = torch.where(sign != 0, sign * inverse_softplus(distance), torch.where(free != 0, y, interval))
        return raw.to(self.precision.dtype)

    def nearest(self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        lower, upper = self._at(self.lower, index), self._at(self.upper, index)
        return x.to(self.precision.computing).clamp(lower, upper).to(self.precision.dtype)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self(raw, index), self.log_slopes(raw, index).sum(-1)

    def log_slopes(self, raw: Tensor, index: Tensor | None = None) -> Tensor:
        """``log ∂x_j/∂raw_j`` of every column; 0 for a constant."""
        z = raw.to(self.precision.computing)
        width, sign = self._at(self.width, index), self._at(self.sign, index)
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
        k = inverse_softplus(others.width.double()).to(others.width.dtype)
        super().__init__(dtype, {"lower": others.lower, "upper": others.upper, "k": k, "interval": interval})
        self.others = others

    def forward(self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        lower, upper, k, interval = (self._at(t, index) for t in (self.lower, self.upper, self.k, self.interval))
        z = _finite(raw.to(self.precision.computing))
        y = upper - F.softplus(k - F.softplus(z))
        inside = exactly(y.clamp(lower, upper), y + self._at(self.others.floor, index) * z).to(self.precision.dtype)
        return torch.where(interval, inside, self.others(raw, index))

    def inverse(self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        lower, upper, k, interval = (self._at(t, index) for t in (self.lower, self.upper, self.k, self.interval))
        y = x.to(self.precision.computing)
        smallest = torch.finfo(y.dtype).smallest_normal
        inner = k - inverse_softplus((upper - y).clamp(min=smallest))
        raw = inverse_softplus(inner.clamp(min=smallest)).to(self.precision.dtype)
        return torch.where(interval, torch.where(lower == upper, 0.0, raw), self.others.inverse(x, index))

    def nearest(self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None) -> Tensor:
        return self.others.nearest(x, index)

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self(raw, index), self.log_slopes(raw, index).sum(-1)

    def log_slopes(self, raw: Tensor, index: Tensor | None = None) -> Tensor:
        """``log ∂x_j/∂raw_j`` of every column; 0 for a constant."""
        z = raw.to(self.precision.computing)
        k, interval = self._at(self.k, index), self._at(self.interval, index)
        paper = -F.softplus(F.softplus(z) - k) - F.softplus(-z)
        return torch.where(interval & k.isfinite(), paper, self.others.log_slopes(raw, index))
