r"""A solver's word on a cascade: nothing breaks a rule, nothing gets stuck, nothing is lost.

Everything is asked of whole numbers k on the grid, in clauses that the search had no part in where that is possible:

* **meaning**: each comparison of the rules holds for ``x = h k`` exactly if its row holds for k (inputs are real
numbers u
  here, and known values what :mod:`~multiplexnet.compiler.cascade.input_parts` defines them to be).
* **sound**: wherever the clauses of all steps hold, the rules' clauses do.
* **never stuck**: wherever the clauses of the steps before hold, and the guards, so does every clause of the projection
  of the next step, which by the theorem of :mod:`~multiplexnet.compiler.cascade.projection.project` leaves it a value.
* **complete**: wherever the rules' clauses hold, the clauses of all steps do, and the guards.

Questions are first asked of real numbers, which is faster and enough if the answer is that there is no such point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import z3

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.clauses import AtomClause
from multiplexnet.compiler.cascade.grid import Builder
from multiplexnet.compiler.cascade.input_parts import Bit, Form, Whole
from multiplexnet.compiler.cascade.late_rows import eased, is_late
from multiplexnet.compiler.cascade.projection.project import projection
from multiplexnet.compiler.cascade.projection.rows import Clause, Row
from multiplexnet.language.formula import Atom, Variable
from multiplexnet.smt.context import new_context

__all__ = ["Proof", "proof_of"]

SECONDS = 20
"""What one question may take."""


@dataclass(frozen=True)
class Proof:
    """What was proved of a cascade.

    Args:
        sound: every output obeys the rules.
        never_stuck: every output has a value whatever was chosen before, for inputs that the guards admit.
        complete: every point of the grid that obeys is reached.
        questions: how many questions the solver was asked.
    """

    sound: bool
    never_stuck: bool
    complete: bool
    questions: int


def proof_of(
    cascade: Cascade, clauses: Sequence[AtomClause], inputs: Sequence[Variable]
) -> Proof:
    """What z3 says of a cascade and the rules it was made of.

    Args:
        cascade: what is doubted.
        clauses: the rules, as clauses of comparisons.
        inputs: all inputs of the rules.
    """
    asked = _Questions(cascade)
    builder = Builder(
        cascade.outputs,
        inputs,
        cascade.spacing,
        dict(enumerate(cascade.ranges)),
        dict(cascade.carried),
    )
    builder.adopt(cascade.known)
    clauses = [clause for clause in clauses if not any(map(is_late, clause))]
    rows = [[builder.row(atom) for atom in clause] for clause in clauses]
    meant = len(builder.known) == len(cascade.known) and all(
        asked.means_the_same(atom, row, cascade, inputs)
        for atoms, own in zip(clauses, rows, strict=True)
        for atom, row in zip(atoms, own, strict=True)
    )
    rules = [tuple(own) for own in rows]
    every = [
        *cascade.guards,
        *(c for step in cascade.steps for c in step.bucket.clauses),
    ]
    sound = meant and asked.implied(rules, every)
    complete = meant and asked.implied(every, rules)
    return Proof(sound, _never_stuck(cascade, asked), complete, asked.count)


def _never_stuck(cascade: Cascade, asked: _Questions) -> bool:
    ranges = dict(enumerate(cascade.ranges))
    before = list(cascade.guards)
    for step in cascade.steps:
        ends = cascade.easy_ends.get(step.variable)
        left = (
            [projection(step.bucket, ranges)]
            if ends is None
            else [eased(step.bucket, end, ranges) for end in ends]
        )
        if not all(asked.implied(found.clauses, before) for found in left):
            return False
        before += step.bucket.clauses
    return True


class _Questions:
    """Clauses of rows as z3 expressions, over real and over whole numbers."""

    def __init__(self, cascade: Cascade) -> None:
        self._context = new_context()
        self._ranges = cascade.ranges
        self.count = 0
        self._names = {
            sort: [make(f"v{i}", self._context) for i in range(len(self._ranges))]
            for sort, make in (("real", z3.Real), ("whole", z3.Int))
        }

    def implied(self, wanted: Iterable[Clause], known: Sequence[Clause]) -> bool:
        """Whether every wanted clause holds wherever the known ones do."""
        solvers = {sort: self._solver(sort, known) for sort in self._names}
        held = set(known)
        return all(
            clause in held or self._follows(clause, solvers) for clause in wanted
        )

    def _solver(self, sort: str, known: Sequence[Clause]) -> z3.Solver:
        solver = z3.Solver(ctx=self._context)
        solver.set("timeout", 1000 * SECONDS)
        for name, ends in zip(self._names[sort], self._ranges, strict=True):
            solver.add(name >= ends.lower, name <= ends.upper)
        solver.add(*(self._clause(clause, sort) for clause in known))
        return solver

    def _follows(self, clause: Clause, solvers: dict[str, z3.Solver]) -> bool:
        for sort, solver in solvers.items():
            self.count += 1
            solver.push()
            solver.add(*(self._row(row.negation, sort) for row in clause))
            answer = solver.check()
            solver.pop()
            if answer == z3.unsat:
                return True
        return False

    def _clause(self, clause: Clause, sort: str) -> z3.BoolRef:
        return z3.Or(
            [
                z3.BoolVal(False, self._context),
                *(self._row(row, sort) for row in clause),
            ]
        )

    def _row(self, row: Row, sort: str) -> z3.BoolRef:
        names = self._names[sort]
        zero = (
            z3.RealVal(0, self._context)
            if sort == "real"
            else z3.IntVal(0, self._context)
        )
        return z3.Sum([zero, *(c * names[v] for v, c in row.terms)]) <= row.bound

    # --- meaning ----------------------------------------------------------------------------------------------------

    def means_the_same(
        self, atom: Atom, row: Row, cascade: Cascade, inputs: Sequence[Variable]
    ) -> bool:
        """Whether a comparison of x = h k and of inputs holds exactly where its row does.

        Where a sum of inputs is rounded, the row may fail where the comparison holds, never the other way round.
        """
        self.count += 1
        first = len(cascade.outputs)
        reals = [z3.Real(f"u{i}", self._context) for i in range(len(inputs))]
        names = self._names["whole"][first:]
        wholes = {
            known.form: name
            for known, name in zip(cascade.known, names, strict=True)
            if isinstance(known, Whole)
        }
        total = self._number(atom.linear.constant)
        for symbol, c in atom.linear.summands:
            variable = cast(Variable, symbol)
            if variable.is_input:
                value = reals[list(inputs).index(variable)]
            else:
                value = self._output(
                    cascade.outputs.index(variable), cascade, reals, wholes
                )
            total = total + self._number(c) * value
        holds = total < 0 if atom.relation == "<" else total <= 0
        solver = z3.Solver(ctx=self._context)
        solver.set("timeout", 1000 * SECONDS)
        exact = True
        for i, (known, name) in enumerate(zip(cascade.known, names, strict=True)):
            exact = exact and (known.form.is_exact or not row.coefficient(first + i))
            form = self._form(known.form, reals)
            solver.add(self._definition(known, name, form, wholes[known.form]))
        written = self._row(row, "whole")
        solver.add(holds != written if exact else z3.And(written, z3.Not(holds)))
        return bool(solver.check() == z3.unsat)

    def _output(
        self,
        number: int,
        cascade: Cascade,
        reals: Sequence[z3.ArithRef],
        wholes: Mapping[Form, z3.ArithRef],
    ) -> z3.ArithRef:
        """An output: a multiple of its spacing, and what an input has beyond the grid if it carries that."""
        unit = self._number(cascade.spacing[number])
        value = unit * z3.ToReal(self._names["whole"][number])
        form = dict(cascade.carried).get(number)
        if form is None:
            return value
        return value + reals[form.terms[0][0]] - unit * z3.ToReal(wholes[form])

    def _definition(
        self,
        known: Whole | Bit,
        name: z3.ArithRef,
        form: z3.ArithRef,
        whole: z3.ArithRef,
    ) -> z3.BoolRef:
        """What is promised of a known value; ``whole`` is the whole part of its form."""
        rest = form - z3.ToReal(whole)
        if isinstance(known, Whole):
            return z3.And(rest >= 0, rest < (1 if known.form.is_exact else 2))
        if known.form.is_exact:
            return name == self._over(rest, known, 0)
        if known.subtracts:
            return name <= self._over(rest, known, 0)
        return name >= self._over(rest, known, 0) + self._over(rest, known, 1)

    def _over(self, rest: z3.ArithRef, bit: Bit, more: int) -> z3.ArithRef:
        threshold = self._number(bit.threshold + more)
        over = rest >= threshold if bit.closed else rest > threshold
        return z3.If(over, z3.IntVal(1, self._context), z3.IntVal(0, self._context))

    def _form(self, form: Form, inputs: Sequence[z3.ArithRef]) -> z3.ArithRef:
        unit = Fraction(2) ** form.exponent
        return z3.Sum(
            [
                self._number(Fraction(c) / unit) * inputs[place]
                for place, c in form.terms
            ]
        )

    def _number(self, number: Fraction) -> z3.RatNumRef:
        return z3.RealVal(str(number), self._context)
