"""Rows of whole numbers, and clauses of them: what a cascade computes with.

A *row* is ``Σ A_i v_i ≤ β`` with coprime whole A and whole β, over variables that are numbered and take whole values
between known ends. A *clause* is a set of rows of which at least one holds. On whole numbers nothing else is needed:
``<`` is ``≤`` with a smaller β, the negation of a row is a row, an equality is two rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import NamedTuple

__all__ = [
    "Clause",
    "Range",
    "Ranges",
    "Row",
    "Simplifier",
    "Terms",
    "clause_of",
    "implied",
    "implies",
    "row_of",
    "subsumes",
    "variables_of",
]


class Range(NamedTuple):
    """The whole numbers from ``lower`` to ``upper``."""

    lower: int
    upper: int

    @property
    def size(self) -> int:
        """The largest absolute value."""
        return max(abs(self.lower), abs(self.upper))


Ranges = Mapping[int, Range]


Terms = tuple[tuple[int, int], ...]
"""A left side: variables with their coefficients."""


class Row(NamedTuple):
    """``Σ coefficient · variable ≤ bound``, terms sorted by variable, coefficients coprime and not zero."""

    terms: Terms
    bound: int

    def coefficient(self, variable: int) -> int:
        return next((c for v, c in self.terms if v == variable), 0)

    def without(self, variable: int) -> Terms:
        return tuple(term for term in self.terms if term[0] != variable)

    @property
    def negation(self) -> Row:
        """``Σ A v ≥ β + 1``."""
        return Row(tuple((v, -c) for v, c in self.terms), -self.bound - 1)

    def span(self, ranges: Ranges) -> tuple[int, int]:
        """The least and the largest value of the left side."""
        least = most = 0
        for v, c in self.terms:
            lower, upper = ranges[v]
            if c > 0:
                least += c * lower
                most += c * upper
            else:
                least += c * upper
                most += c * lower
        return least, most

    def least(self, ranges: Ranges) -> int:
        """The least value of the left side."""
        return self.span(ranges)[0]

    def most(self, ranges: Ranges) -> int:
        """The largest value of the left side."""
        return self.span(ranges)[1]

    def size(self, ranges: Ranges) -> int:
        """A bound of everything that is met while the row is evaluated, in whatever order: Σ|A|K + |β|."""
        return sum(abs(c) * ranges[v].size for v, c in self.terms) + abs(self.bound)

    def holds(self, point: Mapping[int, int]) -> bool:
        return sum(c * point[v] for v, c in self.terms) <= self.bound


Clause = tuple[Row, ...]


def row_of(coefficients: Mapping[int, int], bound: int) -> Row:
    """The row with coprime coefficients that holds for the same whole numbers.

    Example:
        >>> row_of({1: 4, 0: -2}, 7)
        Row(terms=((0, -1), (1, 2)), bound=3)
    """
    kept = sorted((v, c) for v, c in coefficients.items() if c)
    divisor = gcd(*(c for _, c in kept)) if kept else 1
    return Row(tuple((v, c // divisor) for v, c in kept), bound // divisor)


def variables_of(clause: Clause) -> set[int]:
    """The variables that occur in a clause."""
    return {v for row in clause for v, _ in row.terms}


def clause_of(rows: Iterable[Row], ranges: Ranges) -> Clause | None:
    """The clause of these rows, simplified where the variables stay in their ranges; ``None`` if it always holds.

    Variables with one value only are replaced by it. Of rows with the same left side the weakest is kept; rows that
    never hold are dropped; two rows that together leave nothing out, like ``x ≤ 3`` and ``x ≥ 4``, make the clause
    true.

    Example:
        >>> ranges = {0: Range(0, 9)}
        >>> clause_of([Row(((0, 1),), 3), Row(((0, 1),), 5), Row(((0, -1),), -12)], ranges)
        (Row(terms=((0, 1),), bound=5),)
        >>> clause_of([Row(((0, 1),), 3), Row(((0, -1),), -4)], ranges) is None
        True
    """
    return Simplifier(ranges).clause(rows)


class Simplifier:
    """Makes clauses as :func:`clause_of` does, many of the same rows: what the ranges say of a row is found once."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._rows: dict[Row, Row | bool] = {}
        self._opposites: dict[Terms, Terms] = {}

    def clause(self, rows: Iterable[Row]) -> Clause | None:
        """The clause of these rows, simplified; ``None`` if it always holds."""
        bounds: dict[Terms, int] = {}
        for given in rows:
            row = self._rows.get(given)
            if row is None:
                row = self._rows[given] = self._simplified(given)
            if row is True:
                return None
            if row is False:
                continue
            terms, bound = row
            if bounds.get(terms, bound) <= bound:
                bounds[terms] = bound
        for terms, bound in bounds.items():
            opposite = bounds.get(self._opposite(terms))
            if opposite is not None and -opposite <= bound + 1:
                return None
        return tuple(Row(terms, bounds[terms]) for terms in sorted(bounds))

    def _simplified(self, given: Row) -> Row | bool:
        """A row without variables that have one value only; whether it holds, where that is always the same."""
        row = _without_fixed(given, self._ranges)
        least, most = row.span(self._ranges)
        if most <= row.bound:
            return True
        return row if least <= row.bound else False

    def _opposite(self, terms: Terms) -> Terms:
        """The left side with the other sign."""
        found = self._opposites.get(terms)
        if found is None:
            found = self._opposites[terms] = tuple((v, -c) for v, c in terms)
        return found


def _without_fixed(row: Row, ranges: Ranges) -> Row:
    """The row with the values of variables that can have only one."""
    fixed = [(v, c) for v, c in row.terms if ranges[v].lower == ranges[v].upper]
    if not fixed:
        return row
    rest = {v: c for v, c in row.terms if ranges[v].lower != ranges[v].upper}
    return row_of(rest, row.bound - sum(c * ranges[v].lower for v, c in fixed))


def subsumes(strong: Clause, weak: Clause) -> bool:
    """Whether each row of the first implies a row of the second with the same left side."""
    bounds = {row.terms: row.bound for row in weak}
    return all(row.terms in bounds and row.bound <= bounds[row.terms] for row in strong)


def implied(clause: Clause, by: Sequence[Clause], ranges: Ranges) -> bool:
    """Whether a single one of the other clauses implies this one, as far as the ranges of the variables tell.

    Row r implies row s if ``bound of r + the most that (left side of s − left side of r) can be`` is at most the bound
    of s.
    """
    return any(
        all(any(implies(r, s, ranges) for s in clause) for r in other) for other in by
    )


def implies(strong: Row, weak: Row, ranges: Ranges) -> bool:
    """Whether one row implies another one, as far as the ranges of the variables tell."""
    difference = dict(weak.terms)
    for v, c in strong.terms:
        difference[v] = difference.get(v, 0) - c
    most = sum(
        c * (ranges[v].upper if c > 0 else ranges[v].lower)
        for v, c in difference.items()
    )
    return strong.bound + most <= weak.bound
