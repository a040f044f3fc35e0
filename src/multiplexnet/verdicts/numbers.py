"""What was given for an input, as exact numbers: Python's and numpy's numbers, fractions, decimals, arrays, lists.

One policy serves ``forward``, ``repair`` and the verdicts. A floating tensor has a dtype, and its numbers are what they
are. Everything else is read as the exact number that it says: ``0.1`` is the float64 next to one tenth,
``Fraction(1, 3)`` is a third, ``2**24 + 1`` is not ``2**24``. Nothing is rounded here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Rational
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import DtypeError, GraphError, InputError, ShapeError
from multiplexnet.verdicts.columns import Floats, is_exact_in_float64, widened

__all__ = ["Exact", "fraction_of", "is_tensor", "numbers_of", "refuse_unlisted"]

Exact = Floats | NDArray[np.object_]
"""Numbers in float64, or, where that does not hold some of them, fractions."""


LARGEST_EXPONENT = 5000
"""Of a decimal; float64 ends at 308."""


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def array_of(values: Any) -> NDArray[Any]:
    """A tensor as an array, also inside of what ``torch.func`` differentiates.

    bfloat16, which numpy does not have, comes as the same numbers in float32.

    Raises:
        DtypeError: numbers that numpy does not have, such as float8.
        GraphError: under ``torch.vmap``, where a tensor stands for many, or on the meta device.
    """
    torch = sys.modules["torch"]
    wrappers = torch._C._functorch
    while wrappers.is_gradtrackingtensor(values):
        values = wrappers.get_unwrapped(values)
    if wrappers.is_batchedtensor(values) or values.is_meta:
        raise GraphError("an exact verdict")
    with torch._C._DisableFuncTorch():
        plain = values.detach().cpu()
        if plain.dtype is not torch.bfloat16:
            try:
                return cast(NDArray[Any], plain.numpy())
            except TypeError:  # what numpy does not have
                raise DtypeError(
                    f"a tensor of {plain.dtype} is not read: convert it first, as in values.to(torch.float32)"
                ) from None
        bits = plain.contiguous().view(torch.int16).to(torch.int32) << 16
        return cast(NDArray[Any], bits.numpy().view(np.float32))


def refuse_unlisted(name: str, value: object) -> None:
    """Raises ``DtypeError`` for a tensor that does not simply list its numbers: sparse, nested, quantized ones."""
    if not is_tensor(value):
        return
    tensor: Any = value
    if tensor.is_quantized:
        raise DtypeError(
            f"{name} is a quantized tensor, whose numbers are not what it holds: give {name}.dequantize()"
        )
    if tensor.is_nested:
        raise DtypeError(
            f"{name} is a nested tensor, whose rows may have different lengths: give one row after the other, or "
            f"torch.stack({name}.unbind()) if they are all alike"
        )
    kind = str(tensor.layout).removeprefix("torch.")
    if kind != "strided":
        raise DtypeError(
            f"{name} is a tensor of layout {kind}, which leaves numbers out: give {name}.to_dense()"
        )


def numbers_of(value: Any, name: str) -> Exact:
    """The numbers that were given for the input ``name``, in the shape in which they came.

    Raises:
        InputError: something that is not a number, or a single number that is not finite.
        DtypeError: complex numbers, or floats longer than float64.
        ShapeError: lists of different lengths.

    Example:
        >>> numbers_of([1, 2.5], "u"), numbers_of(Fraction(1, 3), "u")
        (array([1. , 2.5]), array(Fraction(1, 3), dtype=object))
    """
    if is_tensor(value):
        value = array_of(value)
    if isinstance(value, list | tuple):
        value = _array(value, name)
    if isinstance(value, np.ndarray | np.generic) and not isinstance(value, float):
        return _of_array(np.asarray(value), name)
    return _joined([_number(value, name)], ())


def fraction_of(number: Any) -> Fraction:
    """One number of an array of :func:`numbers_of`; it is finite."""
    return number if isinstance(number, Fraction) else _from_bits(float(number))


def _array(value: Any, name: str) -> NDArray[Any]:
    """Nested lists as an array of objects; arrays and tensors inside are taken apart."""
    plain = [item.tolist() if hasattr(item, "tolist") else item for item in value]
    try:
        array = np.array(plain, dtype=object)
    except ValueError:
        array = np.array([[]], dtype=object)
    if array.size and any(isinstance(item, list | tuple) for item in array.flat):
        raise ShapeError(
            f"input {name} is a list whose parts have different lengths: give one number for each row"
        )
    return array


def _of_array(array: NDArray[Any], name: str) -> Exact:
    kind = array.dtype.kind
    if kind == "f" and array.dtype.itemsize <= 8:
        return widened(array)
    if kind == "b":
        return array.astype(np.float64)
    if kind in "iu":
        return _of_integers(array)
    if kind == "O":
        return _joined([_number(item, name) for item in array.flat], array.shape)
    if kind in "fc":
        raise DtypeError(
            f"input {name} has dtype {array.dtype}: give real numbers of float64 or less"
        )
    raise InputError(f"input {name} has dtype {array.dtype}; it must be numbers")


def _of_integers(array: NDArray[Any]) -> Exact:
    ends = [array.min(), array.max()] if array.size else []
    if all(abs(int(end)) <= 2**53 for end in ends):
        return array.astype(np.float64)
    return _joined([Fraction(int(number)) for number in array.flat], array.shape)


def _joined(numbers: Iterable[Fraction], shape: tuple[int, ...]) -> Exact:
    found = list(numbers)
    if all(map(is_exact_in_float64, found)):
        return np.array([float(number) for number in found], dtype=np.float64).reshape(
            shape
        )
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return cast(Exact, array.reshape(shape))


def _number(value: Any, name: str) -> Fraction:
    if isinstance(value, complex | np.complexfloating):
        raise DtypeError(
            f"input {name} is the complex number {value}; it must be a real number"
        )
    if isinstance(value, np.generic) and not isinstance(value, float):
        return fraction_of(_of_array(np.asarray(value), name)[()])
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, float) and isfinite(value):
        return _from_bits(value)
    if isinstance(value, Decimal) and value.is_finite():
        return _of_decimal(value, name)
    if isinstance(value, float | Decimal):
        raise InputError(f"input {name} is {value}; it must be a finite number")
    raise InputError(
        f"input {name} is {_shown(value)}; it must be a number, or an array, list or tensor of numbers"
    )


def _of_decimal(value: Decimal, name: str) -> Fraction:
    if (
        abs(value.adjusted()) > LARGEST_EXPONENT
    ):  # as a fraction it would fill the memory
        raise InputError(
            f"input {name} is {_shown(value)}, beyond all floats: its exponent may be ±{LARGEST_EXPONENT:,} at most"
        )
    return Fraction(value)


def _from_bits(value: float) -> Fraction:
    """The float as a fraction, by its bits: arithmetic on subnormal floats may be flushed to zero."""
    bits = int(np.array(value, dtype=np.float64).view(np.int64))
    exponent = bits >> 52 & 0x7FF
    digits = bits & (1 << 52) - 1
    hidden_bit = 1 << 52 if exponent else 0
    magnitude = Fraction(digits + hidden_bit)
    number = magnitude * Fraction(2) ** (max(exponent, 1) - 1075)
    return -number if bits < 0 else number


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) > 40:
        text = text[:40] + "…"
    return f"{text} ({type(value).__name__})"
