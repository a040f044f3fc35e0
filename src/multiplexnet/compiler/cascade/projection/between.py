r"""Whether a whole number lies between two ends, those of a lower row ``a x ≥ l`` and of an upper row ``b x ≤ u``.

Over the real numbers there is one if ``b l ≤ a u`` (the real shadow). A whole one is sure if ``b l + (a − 1)(b − 1) ≤
a u`` (the dark shadow), which is the same if a = 1 or b = 1. In between, some values of the others leave one and some
do not:

* If l and u speak of one variable alone, and few of its values lie in between, each of them is tried. What is said is
  exact then: ``2 n ≤ 3 k ≤ 7 n`` leaves a k for n = 0, which the dark shadow loses.
* Otherwise the dark shadow is taken, or that x may be the number of its range that is next to 0: ``l ≤ 0 ≤ u`` keeps
  the origin of a cone.
* If a and b are powers of two, as the spacings of floats make them, the dark shadow alone is taken: rules have many
  such rows, and clauses would multiply.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, pairwise

from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Range,
    Ranges,
    Row,
    row_of,
)

__all__ = ["Between", "between", "shadows"]

TRIED = 256
"""The most values that are tried."""


@dataclass(frozen=True)
class Between:
    """What leaves a whole number between two ends.

    Args:
        clauses: where all of them hold there is one.
        exact: whether there is none elsewhere.
        dark: the dark shadow.
        real: the real shadow.
    """

    clauses: tuple[Clause, ...]
    exact: bool
    dark: Row
    real: Row

    @property
    def dark_alone(self) -> Between:
        """The same with nothing but the dark shadow."""
        return replace(self, clauses=((self.dark,),), exact=self.dark == self.real)


def between(x: int, low: Row, high: Row, ranges: Ranges) -> Between:
    """What a lower and an upper row of x leave of the others.

    Args:
        x: the variable between the ends.
        low: a row with a negative coefficient of x.
        high: a row with a positive one.
        ranges: of all variables.

    Example: y ≤ 3 x ≤ y leaves multiples of three.
        >>> ranges = {0: Range(0, 6), 1: Range(0, 9)}
        >>> found = between(1, Row(((0, 1), (1, -3)), 0), Row(((0, -1), (1, 3)), 0), ranges)
        >>> [[(row.terms, row.bound) for row in clause] for clause in found.clauses]
        [[(((0, 1),), 0), (((0, -1),), -3)], [(((0, 1),), 3), (((0, -1),), -6)]]
    """
    dark, real = shadows(x, low, high)
    found = Between(((dark,),), dark == real, dark, real)
    if found.exact:
        return found
    others = {v for row in (low, high) for v, _ in row.without(x)}
    if _is_of_the_grid(low, high, x):
        return found  # else clauses would multiply from one output to the next
    if len(others) == 1:
        (other,) = others
        tried = _tried(x, low, high, other, ranges[other])
        if tried is not None:
            return replace(found, clauses=tried, exact=True)
    return replace(found, clauses=_at_one_value(x, low, high, dark, ranges[x]))


def _is_of_the_grid(low: Row, high: Row, x: int) -> bool:
    """Whether both coefficients of x are powers of two, as spacings of floats make them."""
    sizes = (abs(row.coefficient(x)) for row in (low, high))
    return all(size & (size - 1) == 0 for size in sizes)


def shadows(x: int, low: Row, high: Row) -> tuple[Row, Row]:
    """The dark shadow and the real one."""
    a = -low.coefficient(x)
    b = high.coefficient(x)
    coefficients: dict[int, int] = {}
    for factor, row in ((b, low), (a, high)):
        for v, c in row.without(x):
            coefficients[v] = coefficients.get(v, 0) + factor * c
    bound = a * high.bound + b * low.bound
    return row_of(coefficients, bound - (a - 1) * (b - 1)), row_of(coefficients, bound)


def _tried(
    x: int, low: Row, high: Row, other: int, ends: Range
) -> tuple[Clause, ...] | None:
    """Which values of another variable leave one of x; ``None`` if too many would have to be tried."""
    dark, real = shadows(x, low, high)
    sure = _narrowed(ends, dark)
    possible = _narrowed(ends, real)
    if possible.upper - possible.lower - (sure.upper - sure.lower) > TRIED:
        return None
    below = range(possible.lower, min(sure.lower - 1, possible.upper) + 1)
    above = range(max(sure.upper + 1, possible.lower), possible.upper + 1)
    values = [v for v in chain(below, above) if _has_room(x, low, high, other, v)]
    return _clauses(other, _joined([*(Range(v, v) for v in values), sure]), ends)


def _narrowed(ends: Range, row: Row) -> Range:
    """The values of the only variable of a row for which it holds; the row's coefficient is 1 or −1, or it has none."""
    if not row.terms:
        return ends if row.bound >= 0 else Range(ends.lower, ends.lower - 1)
    ((_, sign),) = row.terms
    if sign > 0:
        return Range(ends.lower, max(min(ends.upper, row.bound), ends.lower - 1))
    return Range(min(max(ends.lower, -row.bound), ends.upper + 1), ends.upper)


def _has_room(x: int, low: Row, high: Row, other: int, value: int) -> bool:
    least = -((low.bound - low.coefficient(other) * value) // -low.coefficient(x))
    most = (high.bound - high.coefficient(other) * value) // high.coefficient(x)
    return least <= most


def _joined(ranges: list[Range]) -> list[Range]:
    """The same values in as few ranges as can be, from below."""
    found: list[Range] = []
    for own in sorted(own for own in ranges if own.lower <= own.upper):
        if found and found[-1].upper + 1 >= own.lower:
            found[-1] = Range(found[-1].lower, max(found[-1].upper, own.upper))
        else:
            found.append(own)
    return found


def _clauses(variable: int, allowed: list[Range], ends: Range) -> tuple[Clause, ...]:
    """That a variable has one of some values."""
    if not allowed:
        return ((),)

    def at_most(value: int) -> Row:
        return Row(((variable, 1),), value)

    def at_least(value: int) -> Row:
        return Row(((variable, -1),), -value)

    found: list[Clause] = []
    if allowed[0].lower > ends.lower:
        found.append((at_least(allowed[0].lower),))
    if allowed[-1].upper < ends.upper:
        found.append((at_most(allowed[-1].upper),))
    for below, above in pairwise(allowed):
        found.append((at_most(below.upper), at_least(above.lower)))
    return tuple(found)


def _at_one_value(
    x: int, low: Row, high: Row, dark: Row, ends: Range
) -> tuple[Clause, ...]:
    """The dark shadow, or that both rows allow x the number of its range that is next to 0."""
    value = min(max(0, ends.lower), ends.upper)
    rows = [
        row_of(dict(row.without(x)), row.bound - row.coefficient(x) * value)
        for row in (low, high)
    ]
    return tuple((dark, row) for row in rows)
