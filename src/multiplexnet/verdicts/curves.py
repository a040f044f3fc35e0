"""Norms over whole columns: how large ``c · norm + rest`` is, with a bound of the error, in float64.

The sign of such an expression is decided by these numbers where they are far enough from zero, and in fractions where
they are not: ``c · √(Σ w l²) + rest ≤ 0`` is ``rest ≤ 0`` and ``c² Σ w l² ≤ rest²``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, sqrt

import numpy as np

from multiplexnet.language.formula import Linear, Norm, Point, norm_in, value
from multiplexnet.verdicts.columns import Floats, to_float64

__all__ = ["Near", "bounded_norm", "near_value"]

Near = tuple[Floats, Floats]
"""Numbers, and how far each can be from the exact one."""

ROUNDING = 2.0**-50
"""More than the relative error of a product, a sum or a root in float64."""
LOST = 2.0**-480
"""More than the length of what squares lose among the subnormal numbers, with weights within :data:`PLAIN`."""
LARGE = 400
"""Numbers from the power of two with this exponent on are measured in a larger unit."""
PLAIN = 1e50
"""Weights and coefficients up to this, and down to its inverse, are computed with."""


def bounded_norm(
    norm: Norm, factor: Fraction, parts: Sequence[Near], rest: Near
) -> Near:
    """``factor · √(Σ weight · part²) + rest``, where the exact numbers are as near to those given as these say.

    Rows with large parts are squared in a larger unit, a power of two.
    """
    weights = [to_float64(weight) for weight in norm.weights]
    c = to_float64(factor)
    square = np.zeros_like(rest[0])
    spread = np.zeros_like(rest[0])
    unit = _units([near for near, _ in parts], rest[0])
    for weight, (near, error) in zip(weights, parts, strict=True):
        square += weight * (near / unit) * (near / unit)
        spread += weight * (error / unit) * (error / unit)
    length = np.sqrt(square) * unit
    rounding = ROUNDING * (len(parts) + 8)
    missed = np.sqrt(spread) * unit * 1.001 + rounding * length + LOST * unit
    size = abs(c) * length
    found = c * length + rest[0]
    error = abs(c) * missed + rest[1] + ROUNDING * (size + np.abs(rest[0]))
    if any(not 1 / PLAIN < number < PLAIN for number in (*weights, abs(c))):
        error = np.full_like(error, inf)
    return found, np.where(np.isfinite(found) & np.isfinite(error), error, inf)


def _units(parts: Sequence[Floats], like: Floats) -> Floats:
    """For each row 1, or the power of two above its parts where these are so large that squares might overflow."""
    largest = np.zeros_like(like)
    for near in parts:
        np.maximum(largest, np.abs(near), out=largest)
    _, exponents = np.frexp(largest)
    plain = ~np.isfinite(largest) | (exponents < LARGE)
    return np.ldexp(np.ones_like(like), np.where(plain, 0, exponents - 1))


def near_value(linear: Linear, point: Point) -> Fraction:
    """The value of an expression at a point; of one with a norm as near as float64 has the root, and of the right sign.

    Where the norm and the rest nearly cancel out, the textbook form ``c · norm + rest`` would lose its digits.
    """
    found = norm_in(linear)
    if found is None:
        return value(linear, point)
    norm, c = found
    numbers = [value(argument, point) for argument in norm.arguments]
    total = sum(
        (w * n * n for w, n in zip(norm.weights, numbers, strict=True)), Fraction(0)
    )
    rest = value(Linear(linear.summands[:-1], linear.constant), point)
    length = c * _root(total)
    if c * rest >= 0:
        return length + rest
    return (c * c * total - rest * rest) / (length - rest)


def _root(number: Fraction) -> Fraction:
    """The square root, up to some digits, whatever the size of the number."""
    bits = number.numerator.bit_length() - number.denominator.bit_length()
    shift = Fraction(4) ** (bits // 2)
    return Fraction(sqrt(number / shift)) * Fraction(2) ** (bits // 2)
