"""Known values in float64 and numbers of a format, whatever the mode of the processor does to subnormal numbers.

``torch.set_flush_denormal(True)`` makes a thread read and write subnormal numbers of float64, float32 and bfloat16 as
zero: in arithmetic, in comparisons, in conversions. Each thread has a mode of its own, so that nobody knows which of
two operations flushes. What is computed here is right in every mode: bits are looked at as integers, which no mode
touches, and what is handed on is zero or a normal number of float64.

A graph that is recorded for ONNX cannot look at bits. There subnormal numbers are read as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.transforms.base import Precision
from multiplexnet.transforms.graph_constants import for_onnx, solid

__all__ = [
    "Read",
    "at_least",
    "at_most",
    "clear_of_zero",
    "exact_number",
    "has_small",
    "kept",
    "read",
    "without_subnormals",
]

INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
}
"""The integers that have the bits of a dtype whose subnormal numbers can be flushed."""
EXPONENTS = {
    torch.float64: 0x7FF << 52,
    torch.float32: 0xFF << 23,
    torch.bfloat16: 0xFF << 7,
}
"""The bits of the exponent, which are 0 in zero and in subnormal numbers."""


class Read(NamedTuple):
    """Known values: the true ones lie between ``low`` and ``low + rise``.

    Args:
        low: float64, zero or normal numbers.
        rise: 0, or the smallest normal number where a value is subnormal in float64; ``None``: 0 everywhere.
        small: whether some value may lie closer to zero than the normal numbers of its dtype.
    """

    low: Tensor
    rise: Tensor | None
    small: bool

    @property
    def high(self) -> Tensor:
        return self.low if self.rise is None else self.low + self.rise


def read(values: Tensor) -> Read:
    """The values of a tensor, exactly; those that are subnormal in float64 itself between their normal neighbours.

    Example:
        >>> read(torch.tensor([2.0**-140, -0.5])).low.tolist() == [2.0**-140, -0.5]
        True
        >>> read(torch.tensor([-1e-310], dtype=torch.float64)).high
        tensor([0.], dtype=torch.float64)
    """
    wide = values.double()
    if values.dtype not in INTEGERS or not has_small(wide, values.dtype):
        return Read(wide, None, False)
    if for_onnx():
        return Read(wide, None, True)
    info = torch.finfo(values.dtype)
    integer = INTEGERS[values.dtype]
    magnitude = values.detach().view(integer) & torch.iinfo(integer).max
    digits = round(
        1 / info.eps
    )  # the magnitudes below this are 0 and the subnormal numbers
    subnormal = (magnitude > 0) & (magnitude < digits)
    if values.dtype is torch.float64:
        rise = subnormal.double() * info.smallest_normal
        below = torch.where(torch.signbit(values.detach()), -rise, 0.0)
        return Read(torch.where(subnormal, below, wide), rise, True)
    exact = torch.copysign(
        magnitude.double() * (info.smallest_normal / digits), wide.detach()
    )
    return Read(
        torch.where(subnormal, exact + (wide - wide.detach()), wide), None, True
    )


def has_small(values: Tensor, dtype: torch.dtype) -> bool:
    """Whether there may be zeros or subnormal numbers, also where that cannot be known."""
    if torch.compiler.is_compiling():
        return True
    if not values.numel():
        return False
    try:
        return float(values.detach().abs().amin()) < torch.finfo(dtype).smallest_normal
    except RuntimeError:  # vmap, the meta device
        return True


def exact_number(value: float, like: Tensor) -> float | Tensor:
    """The number itself; in a graph for ONNX a tensor ``(1,)`` of the dtype of another one, which keeps all digits.

    Its exporter makes plain numbers float32, and takes those close to 0 or 1 for 0 or 1.
    """
    if not for_onnx():
        return value
    return solid(torch.tensor([value], dtype=like.dtype, device=like.device), like)


def at_least(value: Tensor, end: float) -> Tensor:
    """``value``, cut at a number below; in a graph for ONNX by a choice, since its optimiser loses cuts of cuts."""
    number = exact_number(end, value)
    if isinstance(number, Tensor):
        return torch.where(value < number, number, value)
    return value.clamp(min=number)


def at_most(value: Tensor, end: float) -> Tensor:
    """``value``, cut at a number above; see :func:`at_least`."""
    number = exact_number(end, value)
    if isinstance(number, Tensor):
        return torch.where(value > number, number, value)
    return value.clamp(max=number)


def kept(y: Tensor, precision: Precision) -> Tensor:
    """``y`` rounded to the format, in float64, with 0 in place of the numbers that a mode could flush."""
    rounded = y.to(precision.dtype).double()
    if precision.dtype not in INTEGERS or for_onnx():
        return rounded
    return F.hardshrink(rounded, precision.tiny)


def without_subnormals(x: Tensor) -> Tensor:
    """``x`` with 0 in place of the numbers that a mode could flush, by their bits.

    In that mode a clamp compares such a number as zero and may hand it on as it is.
    """
    if x.dtype not in INTEGERS:
        return x
    exponent = x.view(INTEGERS[x.dtype]) & EXPONENTS[x.dtype]
    return torch.where(exponent == 0, torch.zeros_like(x), x)


def clear_of_zero(y: Tensor, precision: Precision) -> Tensor:
    """``y`` with 0 in place of the numbers that a flushed neighbour would be far from."""
    if precision.dtype not in INTEGERS or for_onnx():
        return y
    return F.hardshrink(y, 2 * precision.tiny)
