"""Few terms instead of many: covers without superfluous terms, of a whole formula or of given rows of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import z3
from numpy.typing import NDArray

from multiplexnet.logic.formula import Atom, Formula, Symbol, Variable
from multiplexnet.logic.implicants import Encoder, Found, Implicants, Literals

__all__ = ["Rows", "covering", "irredundant"]

Bools = NDArray[np.bool_]
CERTAIN = 1e-9
"""Relative size from which the sign of a float64 dot product with a witness is beyond doubt."""


# --- covers of a formula --------------------------------------------------------------------------------------------


def irredundant(found: Sequence[Found], known: Sequence[Formula]) -> list[Literals]:
    """The implicants without those that the others cover together, given what is known.

    An implicant whose witness lies in no other one is needed, which floats can tell; only the rest is asked of z3.
    """
    encoder = Encoder()
    solver = encoder.solver(*map(encoder.formula, known))
    outside = [z3.Bool(f"outside{k}", encoder.context) for k in range(len(found))]
    for name, implicant in zip(outside, found, strict=True):
        absent = [z3.Not(encoder.formula(atom)) for atom in implicant.literals]
        solver.add(z3.Implies(name, z3.Or([z3.BoolVal(False, encoder.context), *absent])))
    alive = set(range(len(found)))
    for k in np.flatnonzero(~_surely_needed(found)).tolist():
        inside = [encoder.proxy(atom, solver) for atom in found[k].literals]
        if solver.check(*inside, *(outside[j] for j in sorted(alive - {k}))) == z3.unsat:
            alive.remove(k)
    return [found[k].literals for k in sorted(alive)]


def _surely_needed(found: Sequence[Found]) -> Bools:
    """Which witnesses certainly lie outside all other implicants. (*, K) Booleans."""
    symbols: dict[Symbol, int] = {}
    for implicant in found:
        for symbol in implicant.witness:
            symbols.setdefault(symbol, len(symbols))
    points = np.zeros((len(found), len(symbols)))
    for k, implicant in enumerate(found):
        for symbol, value in implicant.witness.items():
            points[k, symbols[symbol]] = float(value)
    false = {atom: _surely_false(atom, points, symbols) for implicant in found for atom in implicant.literals}
    needed = np.ones(len(found), dtype=np.bool_)
    for j, implicant in enumerate(found):
        excluded = reduce(np.logical_or, (false[atom] for atom in implicant.literals), np.zeros(len(found), np.bool_))
        excluded[j] = True
        needed &= excluded
    return needed


def _surely_false(atom: Atom, points: NDArray[np.float64], symbols: Mapping[Symbol, int]) -> Bools:
    columns = [symbols[symbol] for symbol, _ in atom.linear.terms]
    products = points[:, columns] * np.array([float(c) for _, c in atom.linear.terms])
    constant = float(atom.linear.constant)
    values, sizes = products.sum(axis=1) + constant, np.abs(products).sum(axis=1) + abs(constant)
    distance = np.abs(values) if atom.relation == "==" else values
    return np.asarray(distance > CERTAIN * sizes)


# --- covers of data -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows of data, column by column.

    Args:
        columns: for every variable its values, float64 read as exact numbers. Shape (N,).
        holds: exact verdicts on formulas over such columns.
    """

    columns: Mapping[Variable, NDArray[np.float64]]
    holds: Callable[[Formula, Mapping[Variable, NDArray[np.float64]]], Bools]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def truth(self, formula: Formula) -> Bools:
        return self.holds(formula, self.columns)

    def where(self, formula: Formula) -> Rows:
        return self._at(self.truth(formula))

    def _at(self, mask: Bools) -> Rows:
        return Rows({variable: column[mask] for variable, column in self.columns.items()}, self.holds)

    def groups(self, discrete: Sequence[Variable]) -> Iterator[tuple[tuple[tuple[Variable, Fraction], ...], Rows]]:
        """The rows that agree in the discrete variables, with the values they agree in."""
        if not len(self):
            return
        if not discrete:
            yield (), self
            return
        table = np.stack([self.columns[variable] for variable in discrete], axis=1)
        for values in np.unique(table, axis=0):
            fixed = tuple((v, Fraction(float(x))) for v, x in zip(discrete, values, strict=True))
            yield fixed, self._at(np.asarray((table == values).all(axis=1)))

    def share(self, formula: Formula, terms: Formula) -> Fraction:
        """Of the rows that obey the formula, the share that the terms contain (1 if no row obeys)."""
        obeying = self.where(formula)
        return Fraction(int(obeying.truth(terms).sum()), len(obeying)) if len(obeying) else Fraction(1)


def covering(engine: Implicants, formula: Formula, rows: Rows) -> list[Literals]:
    """Prime implicants of the formula that together contain all the rows; few, by a greedy choice.

    From the first row that is not contained yet an implicant is grown that gives up those literals first which keep
    the most rows out. Of all implicants found the one that contains the most rows is taken, then the next.
    """
    truth: dict[Atom, Bools] = {}

    def holds(atom: Atom) -> Bools:
        if atom not in truth:
            truth[atom] = rows.truth(atom)
        return truth[atom]

    def inside(literals: Literals) -> Bools:
        return reduce(np.logical_and, map(holds, literals), np.ones(len(rows), dtype=np.bool_))

    open_rows, found = np.ones(len(rows), dtype=np.bool_), dict[Literals, Bools]()
    while open_rows.any():
        row = int(np.argmax(open_rows))
        order = _most_excluding_first(holds, open_rows.copy())
        literals = engine.prime(_at_row(holds, row), order)
        found[literals] = inside(literals)
        open_rows &= ~found[literals]
    return _fewest(found, len(rows))


def _at_row(holds: Callable[[Atom], Bools], row: int) -> Callable[[Atom], bool]:
    return lambda atom: bool(holds(atom)[row])


def _most_excluding_first(holds: Callable[[Atom], Bools], wanted: Bools) -> Callable[[Literals], Sequence[Atom]]:
    return lambda literals: sorted(literals, key=lambda atom: int((holds(atom) & wanted).sum()))


def _fewest(found: Mapping[Literals, Bools], count: int) -> list[Literals]:
    left, chosen = np.ones(count, dtype=np.bool_), list[Literals]()
    while left.any():
        best = max(found, key=lambda literals: int((found[literals] & left).sum()))
        chosen.append(best)
        left &= ~found[best]
    for literals in list(chosen):  # a later choice may have made an earlier one superfluous
        rest = [found[other] for other in chosen if other is not literals]
        if rest and np.logical_or.reduce(rest).all():
            chosen.remove(literals)
    return chosen
