"""The rows of a term, exactly: no row follows from the others, and every equality is written as one.

Rows with the same left side are compared by their numbers; the rest is asked of z3. A question that z3 does not answer
within a fixed amount of work leaves the row where it is: a row too many costs time and is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import z3

from multiplexnet.logic.formula import And, Atom, Formula, Or, Symbol
from multiplexnet.logic.implicants import Encoder, Literals
from multiplexnet.logic.normal import canonical, opposite

__all__ = ["Tidy", "row_order"]

WORK = 2_000_000
"""z3's ``rlimit`` for one question; unlike a time limit it gives the same answer on every machine."""


def row_order(row: Atom) -> tuple[object, ...]:
    """The canonical order of rows: equalities first, then by their variables as declared, then by their numbers."""
    key = tuple(
        (getattr(s, "index", 1 << 30), repr(s) if not hasattr(s, "index") else "", c) for s, c in row.linear.terms
    )
    return (row.relation != "==", key, row.linear.constant, row.relation)


def tightest(rows: Iterable[Atom]) -> list[Atom]:
    """The rows without those that another one with the same left side makes superfluous."""
    kept: dict[tuple[tuple[Symbol, Any], ...], Atom] = {}
    equalities: dict[tuple[tuple[Symbol, Any], ...], Atom] = {}
    for row in rows:
        if row.relation == "==":
            equalities[row.linear.terms] = row
            continue
        other = kept.get(row.linear.terms)
        if other is None or _strength(row) > _strength(other):
            kept[row.linear.terms] = row
    for terms, row in list(kept.items()):
        mirror = kept.get((-row.linear).terms)
        if mirror is not None and mirror.linear.constant == -row.linear.constant:
            equality = canonical(row.linear, "==")
            if isinstance(equality, Atom):
                equalities[equality.linear.terms] = equality
        if terms in equalities or (-row.linear).terms in equalities:
            del kept[terms]
    return [*equalities.values(), *kept.values()]


def _strength(row: Atom) -> tuple[Any, bool]:
    return (row.linear.constant, row.relation == "<")


class Tidy:
    """Brings the rows of terms over one background into their final form.

    Args:
        known: what holds anyway and is no row of any term (the ranges of the inputs).
    """

    def __init__(self, known: Sequence[Formula] = ()) -> None:
        self._encoder = Encoder()
        self._solver = self._encoder.solver(*(self._encoder.formula(part) for part in known))
        self._solver.set("rlimit", WORK)

    def rows(self, literals: Literals, background: Sequence[Atom] = ()) -> Literals:
        """The rows of the term ``literals ∧ background``: literals a prime implicant where the background holds."""
        rows = tightest([*literals, *background])
        equalities = self._implicit_equalities(rows)
        if equalities:
            rows = tightest([*rows, *equalities])
            suspects = rows
        else:
            suspects = [row for row in rows if row not in literals]
        for row in sorted(suspects, key=row_order, reverse=True):
            rest = [other for other in rows if other is not row]
            if self._follows(row, rest):
                rows = rest
        return tuple(sorted(rows, key=row_order))

    def _implicit_equalities(self, rows: Sequence[Atom]) -> list[Atom]:
        """Equalities that inequalities only imply together, like x ≤ y and y ≤ x."""
        loose = [row for row in rows if row.relation == "<="]
        if not loose or self._answer([*rows, *(_strictly(row) for row in loose)]) == z3.sat:
            return []
        tight = [row for row in loose if self._answer([*rows, _strictly(row)]) == z3.unsat]
        return [atom for row in tight if isinstance(atom := canonical(row.linear, "=="), Atom)]

    def _follows(self, row: Atom, rest: Sequence[Atom]) -> bool:
        return self._refuted(opposite(row), _tied(row, rest))

    def _refuted(self, formula: Formula, rows: Sequence[Atom]) -> bool:
        match formula:
            case Atom():
                return bool(self._answer([*rows, formula]) == z3.unsat)
            case Or(arguments):
                return all(self._refuted(argument, rows) for argument in arguments)
        return formula != And(())

    def _answer(self, rows: Sequence[Atom]) -> Any:
        return self._solver.check(*(self._encoder.proxy(row, self._solver) for row in rows))


def _strictly(row: Atom) -> Atom:
    return Atom(row.linear, "<")


def _tied(row: Atom, rest: Sequence[Atom]) -> list[Atom]:
    """The rows that share variables with this one, directly or through others."""
    reached = {symbol for symbol, _ in row.linear.terms}
    left, tied, grown = list(rest), list[Atom](), True
    while grown:
        near = [other for other in left if any(symbol in reached for symbol, _ in other.linear.terms)]
        left = [other for other in left if other not in near]
        reached.update(symbol for other in near for symbol, _ in other.linear.terms)
        tied += near
        grown = bool(near)
    return tied
