"""The exact numbers that the values of an array stand for.

A float stands for the decimal that Python prints for it, as it would in a text: ``0.1`` is one tenth. Whole numbers,
fractions and decimals are what they are.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.language.parser.values import MOST_BITS, MOST_DIGITS
from multiplexnet.language.text import number_text

__all__ = ["LONG", "SURE_DIGITS", "Number", "exact_numbers", "is_long"]

Array = NDArray[Any]
Number = tuple[Fraction | None, str]
"""A number with its text; ``None`` where it is not finite, or none at all."""
LONG = f"a number of more than {MOST_DIGITS:,} digits"
SURE_DIGITS = 15
"""Two decimals of at most so many digits are never read as the same float64."""


def exact_numbers(values: Array) -> list[tuple[Fraction | None, str]]:
    """The numbers of a flat array, exactly, each with its text; ``None`` where it is not finite."""
    if values.dtype != np.float64:
        return (
            [_number(value) for value in values.tolist()]
            if values.dtype.kind in "biu"
            else [_number(value) for value in values]
        )
    known: dict[float, tuple[Fraction | None, str]] = {}
    digits, places = _decimals(values)
    for value, m, k in zip(
        values.tolist(), digits.tolist(), places.tolist(), strict=True
    ):
        if value not in known:
            known[value] = (
                _number(value) if k < 0 else (Fraction(m, 10**k), _text(value))
            )
    return [
        known[value] if value == value else (None, "nan") for value in values.tolist()
    ]


def _decimals(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``digits`` and ``places`` with value = digits / 10^places; −1 places where it takes more than sure digits.

    A decimal of at most :data:`SURE_DIGITS` digits that is read as the value is the one that Python prints for it.
    """
    digits = np.zeros(values.shape, dtype=np.int64)
    places = np.full(values.shape, -1, dtype=np.int64)
    left = np.isfinite(values) & (np.abs(values) < 10.0**SURE_DIGITS)
    for k in range(SURE_DIGITS + 1):
        scaled = np.rint(np.where(left, values, 0.0) * 10.0**k)
        fits = (
            left & (np.abs(scaled) < 10.0**SURE_DIGITS) & (scaled / 10.0**k == values)
        )
        digits[fits] = scaled[fits].astype(np.int64)
        places[fits] = k
        left &= ~fits
        if not left.any():
            break
    return digits, places


def _number(value: Any) -> tuple[Fraction | None, str]:
    if isinstance(value, bool | np.bool_):
        value = int(value)
    if is_long(value):
        return None, LONG
    if isinstance(value, Integral):
        return Fraction(int(value)), str(int(value))
    if isinstance(value, Rational):
        number = Fraction(value)
        return number, number_text(number)
    if isinstance(value, float | np.floating):
        return (Fraction(str(value)) if np.isfinite(value) else None), _text(value)
    if isinstance(value, Decimal):
        return (Fraction(value) if value.is_finite() else None), _text(value)
    if value is None or value is np.ma.masked:
        return None, "missing"
    return None, f"a value of type {type(value).__name__}"


def is_long(value: Any) -> bool:
    """Whether an exact number has more digits than rules may have."""
    if isinstance(value, Rational):
        parts = (int(value.numerator), int(value.denominator))
        most: int = MOST_BITS
        return max(part.bit_length() for part in parts) > most
    if not isinstance(value, Decimal) or not value.is_finite():
        return False
    size = max(len(value.as_tuple().digits), abs(value.adjusted()))
    return size > MOST_DIGITS


def _text(value: Any) -> str:
    return str(value).removesuffix(".0").lower()
