"""All-SMT with theory prime implicants: the terms of one formula over real variables.

A formula F in normal form is covered by conjunctions of its own literals. Each round asks one solver for a point of F
that no term contains yet, reads off a conjunction of literals that holds there and makes F true, and shrinks it with a
second solver that holds ¬F: a literal is dropped when the rest still contradicts ¬F. What remains is a *prime
implicant*; it is blocked, and the search goes on until nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import z3

from multiplexnet.compiler.points import AtomTable, Bools, Pool, Tree
from multiplexnet.exact.deadline import Deadline
from multiplexnet.language.formula import And, Atom, Formula, Or, Symbol, atoms
from multiplexnet.smt.search import Questions, Sandbox

__all__ = ["Implicant", "Implicants", "Literals"]

Literals = tuple[Atom, ...]

STEP = Fraction(1, 1024)
"""How far beyond a bound a point is looked for that breaks it."""


@dataclass(frozen=True)
class Implicant:
    """A prime implicant, and the atoms that hold at a point in it that no implicant found before contains."""

    literals: Literals
    true: Bools


class Implicants:
    """The prime implicants of ``formula`` where ``background`` holds.

    Args:
        sandbox: where z3 is asked.
        formula: in normal form, over real variables.
        background: what is known anyway; it is not repeated in the implicants.
    """

    def __init__(
        self, sandbox: Sandbox, formula: Formula, background: Sequence[Formula] = ()
    ) -> None:
        self._sandbox = sandbox
        self._formula = formula
        known = [sandbox.formula(part) for part in background]
        self._fixed = {
            s for part in background for a in atoms(part) for s in a.linear.symbols
        }
        goal = sandbox.formula(formula)
        self._inside = sandbox.solver(*known, goal)
        self._outside = Questions(sandbox.formula, sandbox.solver(*known, z3.Not(goal)))
        self.table = AtomTable(atoms(formula))
        self._tree = Tree(formula, self.table.place)
        self._refuting = Pool(len(self.table.atoms))  # points of ¬F that were met

    @property
    def deadline(self) -> Deadline:
        """When the search gives up."""
        return self._sandbox.deadline

    def all(self, *, budget: int) -> list[Implicant] | None:
        """Implicants that together cover the formula, or ``None`` when more than ``budget`` turn up."""
        found: list[Implicant] = []
        while (implicant := self.next()) is not None:
            if len(found) >= budget:
                return None
            found.append(implicant)
            self.deadline.step(len(found))
        return found

    def next(self) -> Implicant | None:
        """A prime implicant that contains a point outside all those found before; ``None`` when they cover all."""
        if not self._sandbox.decided(self._inside):
            return None
        point = self._point(self._inside)
        true = self.table.truth(point)
        start = tuple(self._implicant(true.tolist()))
        self._look_around(start, point)
        literals = self._shrunk(start)
        self._inside.add(self._sandbox.absent(literals))
        return Implicant(literals, true)

    def prime(
        self, true: Bools, order: Callable[[Literals], Sequence[Atom]] | None = None
    ) -> Literals:
        """A prime implicant at the point where the ``true`` atoms of the table hold.

        ``order`` says which literals to drop first.
        """
        start = tuple(self._implicant(true.tolist()))
        return self._shrunk(start if order is None else tuple(order(start)))

    def _point(self, solver: Any) -> Mapping[Symbol, Fraction]:
        """The point that the solver found."""
        found: Mapping[Symbol, Fraction] = self._sandbox.model(solver).point(
            self.table.symbols
        )
        return found

    def _implicant(self, true: Sequence[bool]) -> dict[Atom, None]:
        """Literals that hold and make the formula true; an *or* takes the alternative that adds the fewest."""
        values: dict[int, bool] = {}

        def holds(node: Formula) -> bool:
            if id(node) not in values:
                match node:
                    case Atom():
                        values[id(node)] = true[self.table.place[node]]
                    case And(arguments):
                        values[id(node)] = all(map(holds, arguments))
                    case Or(arguments):
                        values[id(node)] = any(list(map(holds, arguments)))
                    case _:
                        raise TypeError(f"not in normal form: {node!r}")
            return values[id(node)]

        def chosen(node: Formula, literals: dict[Atom, None]) -> dict[Atom, None]:
            self.deadline.check()
            match node:
                case Atom():
                    return {**literals, node: None}
                case And(arguments):
                    for argument in arguments:
                        literals = chosen(argument, literals)
                    return literals
                case Or(arguments):
                    return min(
                        (
                            chosen(argument, literals)
                            for argument in arguments
                            if holds(argument)
                        ),
                        key=len,
                    )
            raise TypeError(f"not in normal form: {node!r}")

        if not holds(self._formula):
            raise ValueError("the formula does not hold at this point")
        return chosen(self._formula, {})

    def _look_around(
        self, literals: Literals, point: Mapping[Symbol, Fraction]
    ) -> None:
        """Remember points of ¬F a step beyond bounds of single variables, which z3 need not be asked for then.

        What is found here changes no answer: whichever points are remembered, the literals that are left when no
        further point refutes them are the same.
        """
        for atom in literals:
            if len(atom.linear.symbols) != 1:
                continue
            ((symbol, c),) = atom.linear.summands
            if symbol in self._fixed:  # the step might lead out of the background
                continue
            beyond = -atom.linear.constant / c + (STEP if c > 0 else -STEP)
            true = self.table.truth({**point, symbol: beyond})
            if not self._tree.holds(true):
                self._refuting.add(true)

    def _shrunk(self, literals: Literals) -> Literals:
        """The literals that are left when every one that is not needed has been dropped, first ones first.

        Points of ¬F that were met before say which literals are needed: one of them has to be false at every such
        point. If these are enough, they are prime; if not, z3 gives another point.
        """
        place = [self.table.place[atom] for atom in literals]
        while True:
            needed = tuple(self.table.atoms[i] for i in self._refuting.excluding(place))
            if self._outside.answer(needed) is False:
                return needed
            if needed == literals:
                raise AssertionError("an implicant does not imply its formula")
            self._refuting.add(self.table.truth(self._point(self._outside.solver)))
