"""Few terms instead of many: covers without superfluous terms, of a whole formula or of given rows of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import z3
from numpy.typing import NDArray

from multiplexnet.compiler.implicants import Implicant, Implicants, Literals
from multiplexnet.compiler.points import AtomTable, Bools
from multiplexnet.language.formula import Atom, Formula, Variable
from multiplexnet.smt.search import Sandbox

__all__ = ["DataRows", "covering", "irredundant"]


# --- covers of a formula --------------------------------------------------------------------------------------------


def irredundant(
    sandbox: Sandbox,
    found: Sequence[Implicant],
    table: AtomTable,
    known: Sequence[Formula],
) -> list[Literals]:
    """The implicants without those that the others cover together, given what is known.

    An implicant whose witness lies in no other one is needed; z3 is asked about the rest.
    """
    literals = np.zeros((len(found), len(table.atoms)), dtype=np.float32)
    for k, implicant in enumerate(found):
        places = [table.place[atom] for atom in implicant.literals]
        literals[k, places] = 1
    true = np.stack([implicant.true for implicant in found])
    needed = _surely_needed(true, literals)
    doubtful = np.flatnonzero(~needed).tolist()
    sure = np.flatnonzero(needed).tolist()
    questions = sandbox.questions(known)
    questions.solver.add(*(sandbox.absent(found[k].literals) for k in sure))
    outside = [z3.Bool(f"outside{k}", sandbox.context) for k in doubtful]
    for k, name in zip(doubtful, outside, strict=True):
        questions.solver.add(z3.Implies(name, sandbox.absent(found[k].literals)))
    handles = [name.as_ast() for name in outside]
    for i, k in enumerate(doubtful):
        if questions.answer(found[k].literals, handles[i + 1 :]) is not False:
            questions.solver.add(outside[i])
            needed[k] = True
    return [found[k].literals for k in np.flatnonzero(needed).tolist()]


def _surely_needed(true: Bools, literals: NDArray[np.float32]) -> Bools:
    """Which witnesses lie outside all other implicants. Shape (K,)."""
    false = (~true).astype(np.float32)
    broken = false @ literals.T  # how many literals of implicant j fail at witness k
    containing = (broken == 0).sum(axis=1)
    return np.asarray(containing == 1)


# --- covers of data -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataRows:
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

    def where(self, formula: Formula) -> DataRows:
        return self._at(self.truth(formula))

    def _at(self, mask: Bools) -> DataRows:
        return DataRows(
            {variable: column[mask] for variable, column in self.columns.items()},
            self.holds,
        )

    def groups(
        self, discrete: Sequence[Variable]
    ) -> Iterator[tuple[tuple[tuple[Variable, Fraction], ...], DataRows]]:
        """The rows that agree in the discrete variables, with the values they agree in."""
        if not len(self):
            return
        if not discrete:
            yield (), self
            return
        table = np.stack([self.columns[variable] for variable in discrete], axis=1)
        for values in np.unique(table, axis=0):
            fixed = tuple(
                (v, Fraction(float(x))) for v, x in zip(discrete, values, strict=True)
            )
            yield fixed, self._at(np.asarray((table == values).all(axis=1)))

    def share(self, formula: Formula, terms: Formula) -> Fraction:
        """Of the rows that obey the formula, the share that the terms contain (1 if no row obeys)."""
        obeying = self.where(formula)
        return (
            Fraction(int(obeying.truth(terms).sum()), len(obeying))
            if len(obeying)
            else Fraction(1)
        )


def covering(engine: Implicants, formula: Formula, rows: DataRows) -> list[Literals]:
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
        return reduce(
            np.logical_and, map(holds, literals), np.ones(len(rows), dtype=np.bool_)
        )

    deadline = engine.deadline
    open_rows = np.ones(len(rows), dtype=np.bool_)
    found = dict[Literals, Bools]()
    while open_rows.any():
        deadline.step(len(found))
        row = int(np.argmax(open_rows))
        order = _most_excluding_first(holds, open_rows.copy())
        literals = engine.prime(
            np.array([holds(atom)[row] for atom in engine.table.atoms], dtype=np.bool_),
            order,
        )
        found[literals] = inside(literals)
        open_rows &= ~found[literals]
    return _fewest(found, len(rows))


def _most_excluding_first(
    holds: Callable[[Atom], Bools], wanted: Bools
) -> Callable[[Literals], Sequence[Atom]]:
    return lambda literals: sorted(
        literals, key=lambda atom: int((holds(atom) & wanted).sum())
    )


def _fewest(found: Mapping[Literals, Bools], count: int) -> list[Literals]:
    left = np.ones(count, dtype=np.bool_)
    chosen = list[Literals]()
    while left.any():
        best = max(found, key=lambda literals: int((found[literals] & left).sum()))
        chosen.append(best)
        left &= ~found[best]
    for literals in list(
        chosen
    ):  # a later choice may have made an earlier one superfluous
        rest = [found[other] for other in chosen if other is not literals]
        if rest and np.logical_or.reduce(rest).all():
            chosen.remove(literals)
    return chosen
