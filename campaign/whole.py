"""Numbers over one denominator, so that what is judged is judged in whole numbers: nothing is rounded, nothing reduced.

Fractions would say the same, and take a greatest common divisor for every sum and every product.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import lcm

__all__ = ["Over", "dot", "over_one"]

Over = tuple[tuple[int, ...], int]
"""Whole numbers, and what all of them are divided by, which is positive."""


def over_one(numbers: Iterable[float | Fraction]) -> Over:
    """Floats or fractions over the least denominator that they share; of floats a power of two.

    Example:
        >>> over_one([0.75, -2.0, 0.5])
        ((3, -8, 2), 4)
        >>> over_one([Fraction(1, 3), Fraction(1, 2)])
        ((2, 3), 6)
    """
    ratios = [number.as_integer_ratio() for number in numbers]
    common = lcm(*(denominator for _, denominator in ratios))
    return tuple(n * (common // d) for n, d in ratios), common


def dot(row: Sequence[int], numbers: Sequence[int]) -> int:
    """The sum of the products."""
    return sum(map(int.__mul__, row, numbers))
