r"""Late rows of a cascade in a certificate: rows whose coefficients are inputs.

A *late row* is ``Σ α_v x_v ≤ β`` (or ``<``) over outputs ``x = h k``; every ``α_v``, and ``β``, is a polynomial of
inputs. The layer keeps it as a budget (*Coefficients from inputs* in docs/understand/guarantee.md): when it computes an
output, the row holds with all later ones at their *easy ends*. What has to be proved of that:

* ``α_v`` keeps the sign that is said, for all inputs that ranges and assumptions allow (0: nothing is said, and the
  layer looks in every row);
* an output whose late rows agree has as easy end the end of its range where all their products are smallest. Where the
  invariant and the clauses before hold, this end obeys the clauses of the output (of one that swings, either end does);
* an output whose late rows disagree has none. It is computed first, and the layer refuses rows that leave it nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from multiplexnet.compiler.record import flag_from, list_from, whole_from

__all__ = ["LateRow", "LateTerm", "Polynomial", "easy_ends", "late_from", "torn"]

Polynomial = tuple[tuple[tuple[int, ...], int], ...]
"""Whole multiples of products of inputs (by position); the empty product is 1."""

FACTORS = 2
"""The most inputs that are multiplied."""


@dataclass(frozen=True)
class LateTerm:
    """``coefficient · output``, and the sign that the coefficient never loses: 1, -1, or 0 if it may have either."""

    variable: int
    coefficient: Polynomial
    sign: int


@dataclass(frozen=True)
class LateRow:
    """``Σ coefficient · output ≤ bound``, or ``<``, over outputs in their own units."""

    terms: tuple[LateTerm, ...]
    bound: Polynomial
    strict: bool

    def of(self, variable: int) -> LateTerm | None:
        """The term of an output."""
        return next((term for term in self.terms if term.variable == variable), None)


def _signs(rows: Sequence[LateRow]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows:
        for term in row.terms:
            found.setdefault(term.variable, []).append(term.sign)
    return found


def _agree(signs: Sequence[int]) -> bool:
    return len(signs) == 1 or (len(set(signs)) == 1 and 0 not in signs)


def torn(rows: Sequence[LateRow]) -> set[int]:
    """The outputs whose late rows disagree on their easy end, or may do so."""
    return {v for v, signs in _signs(rows).items() if not _agree(signs)}


def easy_ends(
    rows: Sequence[LateRow], ranges: Sequence[tuple[int, int]]
) -> dict[int, tuple[int, ...]]:
    """The easy end of every output whose late rows agree; both ends of its range for one that swings."""
    found: dict[int, tuple[int, ...]] = {}
    for v, signs in _signs(rows).items():
        lower, upper = ranges[v]
        if _agree(signs):
            found[v] = {1: (lower,), -1: (upper,), 0: (lower, upper)}[signs[0]]
    return found


# --- reading --------------------------------------------------------------------------------------------------------


def late_from(
    record: Any,
    inputs: int,
    computed: int,
    visible: int,
    carried: Collection[int],
    first: int,
) -> tuple[LateRow, ...]:
    """The late rows that a record describes.

    Args:
        record: what was written.
        inputs: how many inputs the rules have.
        computed: how many outputs the cascade has, hidden ones too.
        visible: how many of them are outputs of the layer.
        carried: those that carry something beyond the grid, which no late row may have.
        first: the output that is computed first.

    Raises:
        KeyError, IndexError, TypeError, ValueError: it is not a record of late rows.
    """
    rows = tuple(_row(one, inputs, computed) for one in list_from(record))
    every = {term.variable for row in rows for term in row.terms}
    if not rows or not every.isdisjoint(carried):
        raise ValueError("no late rows, or one of an output that carries an input")
    if not torn(rows) <= {first} or not torn(rows) <= set(range(visible)):
        raise ValueError("late rows disagree on an output that is not computed first")
    return rows


def _row(record: Any, inputs: int, computed: int) -> LateRow:
    written, bound, strict = list_from(record)
    terms = tuple(_terms(list_from(written), inputs, computed))
    places = [term.variable for term in terms]
    if not terms or places != sorted(set(places)):
        raise ValueError("a late row without outputs, or that is not in order")
    return LateRow(terms, _polynomial(bound, inputs), flag_from(strict))


def _terms(records: Sequence[Any], inputs: int, computed: int) -> Iterator[LateTerm]:
    for variable, coefficient, sign in map(list_from, records):
        if not 0 <= whole_from(variable) < computed or whole_from(sign) not in (
            *(1, 0, -1),
        ):
            raise ValueError("a late row over outputs that there are not")
        yield LateTerm(variable, _polynomial(coefficient, inputs), sign)


def _polynomial(record: Any, inputs: int) -> Polynomial:
    found = []
    for places, c in map(list_from, list_from(record)):
        factors = tuple(whole_from(place) for place in list_from(places))
        if len(factors) > FACTORS or not all(0 <= place < inputs for place in factors):
            raise ValueError("a product of inputs that there are not")
        found.append((factors, whole_from(c)))
    return tuple(found)
