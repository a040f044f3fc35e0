"""Numbers that float64 can compute with: rules are exact and may hold 1e400, the tables of a layer may not.

The proofs of ``docs/understand/guarantee.md`` speak of relative errors, so a number of a table must neither overflow
nor be so small that it loses digits. What is checked here, on exact numbers and with the rows at hand, no table has to
check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from multiplexnet.errors import MagnitudeError
from multiplexnet.exact.formats import FORMATS, floor_log2, power_of_two
from multiplexnet.language.formula import Apply, Atom, Linear
from multiplexnet.language.text import formula_text

__all__ = [
    "LARGEST",
    "LEAST_SLACK",
    "down",
    "level",
    "refuse_far",
    "refuse_far_rows",
    "up",
]

LARGEST = power_of_two(1000)
"""Numbers up to here, and down to 1 / LARGEST, are converted to float64 as they are: some 1e±301."""

LARGEST_QUOTIENT = power_of_two(900)
"""Coefficients over slacks up to here, some 1e±270: a number that is flushed to zero then means nothing to a row."""

LEAST_SLACK = power_of_two(-900)
"""Slacks below this are refused: underflow in float64 would matter."""


def down(value: Fraction) -> float:
    """The largest float64 that is at most ``value``, zero or a normal number; −inf if there is none.

    Example:
        >>> down(Fraction(10) ** 400), down(-Fraction(10) ** 400), down(Fraction(1, 10)) < Fraction(1, 10)
        (1.7976931348623157e+308, -inf, True)
    """
    double = FORMATS["float64"]
    return float(double.down(value)) if value >= -double.max else -math.inf


def up(value: Fraction) -> float:
    """The smallest float64 that is at least ``value``; inf if there is none."""
    return -down(-value)


def level(coefficients: Iterable[Fraction], constant: Fraction) -> Fraction:
    """A power of two that keeps ``Σ c_i u_i + constant``, times it, from overflow for all float64 numbers u_i.

    The coefficients then add up to less than 1/8 or so, and the constant is below 2¹⁰²⁰. A row multiplied by a power of
    two is the same row, and no number of it loses a digit (their ratios are checked by :func:`refuse_far_rows`).

    Example:
        >>> level([Fraction(1), Fraction(-3)], Fraction(7))
        Fraction(1, 64)
    """
    total = sum(map(abs, coefficients), Fraction(0))
    most = [-4 - floor_log2(total)] if total else [0]
    if constant:
        most.append(1019 - floor_log2(constant))
    return power_of_two(min(most))


def _far(number: Fraction, largest: Fraction = LARGEST) -> bool:
    return bool(number) and not 1 / largest <= abs(number) <= largest


def refuse_far(
    A: Sequence[Sequence[Fraction | int]],
    slacks: Sequence[Fraction],
    text_of: Callable[[int], str],
) -> None:
    """Raises ``MagnitudeError`` for a row whose coefficients, slack or their quotients float64 cannot work with.

    Args:
        A: the coefficients.
        slacks: of the rows at the anchor, positive.
        text_of: row i as text.
    """
    for i, (a, slack) in enumerate(zip(A, slacks, strict=True)):
        used = [c if c > 0 else -c for c in a if c] or [1]
        ends = [Fraction(max(used)), Fraction(min(used))]
        quotients = [c / slack for c in ends]
        far = [number for number in (*ends, slack) if _far(number)]
        far += [number for number in quotients if _far(number, LARGEST_QUOTIENT)]
        found = next(iter(far), slack if slack < LEAST_SLACK else None)
        if found is not None:
            raise MagnitudeError([text_of(i)], found)


def refuse_far_rows(rows: Iterable[Atom]) -> None:
    """Raises ``MagnitudeError`` for a row with run-time values, or an argument of a function in it, of such numbers.

    A constant may be as small as it likes: what it loses is covered by the bound of all absolute errors.
    """
    for row in rows:
        found = next(filter(_far, _numbers(row.linear)), None)
        if found is not None:
            raise MagnitudeError([formula_text(row)], found)


def _numbers(linear: Linear) -> Iterable[Fraction]:
    yield max(linear.constant, -linear.constant, Fraction(1))
    used = [abs(coefficient) for _, coefficient in linear.summands]
    if used:
        yield max(used) / min(used)
    for symbol, coefficient in linear.summands:
        yield coefficient
        if isinstance(symbol, Apply):
            for argument in symbol.arguments:
                yield from _numbers(argument)
