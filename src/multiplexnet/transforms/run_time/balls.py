r"""Numbers with a bound of their error: float64 arithmetic that knows what it has rounded, and rounds nothing in vain.

A *ball* is all numbers within ``radius`` of ``middle``. Sums and products are computed with their rounding errors
(Knuth's and Dekker's error-free transformations), and the errors go to the radius: where nothing is rounded, it is 0.
So ``low <= high`` is decided for all floats, and ``price * x <= budget`` at the very price that just fits.

**Bounds.** Let ``s = fl(a + b)`` and e as Knuth's algorithm computes it. If all numbers are 0 or at least 2^-960, then
``a + b = s + e``. Otherwise digits below 2^-1022 may be flushed to zero in a few operations, and ``|a + b − s − e| <
2^-1015``. The same holds for ``a b = p + e`` and products of at least 2^-900, since e consists of digits of the
product of which the last is at least ``2^-105 |p|``. Radii are sums of at most four numbers ≥ 0, computed with a
relative error below 2^-50, and are enlarged by that. What is not finite has an infinite radius.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import torch
from torch import Tensor

from multiplexnet.language.formula import Relation
from multiplexnet.transforms.graph_constants import for_onnx
from multiplexnet.transforms.run_time.reading import Read, exact_number

__all__ = ["Ball", "ball_of", "nearest", "number", "total"]

LARGER = 1 + 2.0**-49
"""More than the rounding of a radius."""
FLUSHED = 2.0**-1015
"""More than is lost among the digits below 2^-1022."""
SMALL_SUMMAND = 2.0**-960
SMALL_PRODUCT = 2.0**-900
SPLITTER = 2.0**27 + 1


@dataclass(frozen=True)
class Ball:
    """All numbers within ``radius`` of ``middle``, float64 tensors of one shape; a radius may be infinite.

    Gradients pass through the middle.
    """

    middle: Tensor
    radius: Tensor

    def __add__(self, other: Ball) -> Ball:
        whole = self.middle + other.middle
        a = self.middle.detach()
        b = other.middle.detach()
        s = whole.detach()
        t = s - a
        error = _near(s) if for_onnx() else (a - (s - t)) + (b - t)
        smaller = torch.minimum(a.abs(), b.abs())
        lost = (smaller < exact_number(SMALL_SUMMAND, a)) & (a != 0) & (b != 0)
        return _ball(whole, self.radius + other.radius + error.abs(), lost)

    def __mul__(self, other: Ball) -> Ball:
        whole = self.middle * other.middle
        a = self.middle.detach()
        b = other.middle.detach()
        p = whole.detach()
        error = _near(p) if for_onnx() else _error_of_product(a, b, p)
        rounds = (a != 0) & (b != 0)
        error = torch.where(rounds, error, 0.0)  # large factors of 0 overflow there
        lost = (p.abs() < exact_number(SMALL_PRODUCT, p)) & rounds
        spread = a.abs() * other.radius + self.radius * (b.abs() + other.radius)
        return _ball(whole, spread + error.abs(), lost)

    def __neg__(self) -> Ball:
        return Ball(-self.middle, self.radius)

    def is_surely(self, relation: Relation) -> Tensor:
        """Where every number of the ball is ``<=``, ``<`` or ``==`` 0; not where the middle is NaN."""
        if relation == "<=":
            return self.middle <= -self.radius
        if relation == "<":
            return self.middle < -self.radius
        return (self.middle == 0) & (self.radius == 0)


def _near(rounded: Tensor) -> Tensor:
    """A bound of the error of one operation, by its result alone: onnxruntime rewrites sums, and does not keep errors.

    The difference of two floats has the right sign then, too, and is 0 for equal ones alone.
    """
    return rounded.abs() * exact_number(2.0**-52, rounded)


def _error_of_product(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    high_a = _high(a)
    high_b = _high(b)
    low_a = a - high_a
    low_b = b - high_b
    return low_a * low_b - (((p - high_a * high_b) - low_a * high_b) - high_a * low_b)


def _high(a: Tensor) -> Tensor:
    """The upper half of the digits."""
    c = exact_number(SPLITTER, a) * a
    return c - (c - a)


def _ball(middle: Tensor, radius: Tensor, lost: Tensor) -> Ball:
    radius = radius + lost.double() * exact_number(FLUSHED, radius)
    radius = radius * exact_number(LARGER, radius)
    finite = middle.detach().isfinite()
    return Ball(
        middle, torch.where(finite, radius, torch.inf).nan_to_num(torch.inf, torch.inf)
    )


def ball_of(known: Read) -> Ball:
    """Known values; those that are subnormal in float64 lie in a ball."""
    rise = torch.zeros_like(known.low) if known.rise is None else known.rise
    return Ball(known.low, rise)


def number(value: Fraction, like: Tensor) -> Ball:
    """An exact number, as often as another tensor has rows.

    Example:
        >>> number(Fraction(1, 3), torch.zeros(1)).radius > 0, number(Fraction(1, 4), torch.zeros(1)).radius > 0
        (tensor([True]), tensor([False]))
    """
    near, distance = nearest(value)
    wide = like.double()
    zero = torch.zeros_like(wide)
    return Ball(zero + exact_number(near, wide), zero + exact_number(distance, wide))


def nearest(value: Fraction) -> tuple[float, float]:
    """A float64 number and how far an exact one is from it, at most."""
    try:
        near = float(value)
    except OverflowError:
        near = float("inf") if value > 0 else -float("inf")
    distance = (
        float("inf")
        if abs(near) == float("inf")
        else float(abs(value - Fraction(near)))
    )
    if 0 < abs(value) < Fraction(SMALL_SUMMAND) or (not distance and value != near):
        distance += FLUSHED
    return near, distance * LARGER


def total(parts: Iterable[Ball], like: Tensor) -> Ball:
    """The sum of balls."""
    return reduce(Ball.__add__, parts, number(Fraction(0), like))
