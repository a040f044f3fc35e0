"""The certificate: a fresh solver proves that the terms say what the rules say.

It reads the rules as they were written, not their normal form, and shares nothing with the search. Atoms are only
divided by the size of their first coefficient, rules and terms alike, so that z3 sees one atom where there is one.

* *Sound*: every term implies the rules. Conjuncts that lie in one block are checked term by term; one that several
  blocks share is checked against all of them at once.
* *Complete*: the rules imply the disjunction of the terms of every block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from multiplexnet.logic.components import conjuncts
from multiplexnet.logic.encoder import Encoder, domain_z3, input_range_z3
from multiplexnet.logic.formula import And, Atom, Formula, Iff, Not, Or, Specification, conjunction, negation, variables
from multiplexnet.logic.solver import Questions
from multiplexnet.logic.terms import Block, Certificate, Term

__all__ = ["certificate"]


def certificate(specification: Specification, blocks: Sequence[Block], *, complete: bool) -> Certificate:
    """What a fresh solver proves of the blocks.

    Raises:
        AssertionError: a term does not imply the rules, or (``complete``) the terms miss a point that obeys. Both are
            errors of the compiler, never of the user.
    """
    checker = _Checker(specification)
    parts = _parts(specification, blocks)
    for i, block in enumerate(blocks):
        own = [part.formula for part in parts if part.blocks == {i}]
        if not checker.all_imply(block.terms, own):
            raise AssertionError("a term does not imply the rules")
    for part in parts:
        if len(part.blocks) != 1 and not checker.imply([blocks[i].formula for i in part.blocks], part.formula):
            raise AssertionError("the terms do not imply a rule that several blocks share")
    covers = all(_covers(checker, parts, i, block) for i, block in enumerate(blocks))
    if complete and not covers:
        raise AssertionError("the terms do not contain every point that obeys the rules")
    return Certificate(sound=True, complete=covers, solver=f"z3 {z3.get_version_string()}", checks=checker.checks)


@dataclass(frozen=True)
class _Part:
    """One conjunct of the rules and the positions of the blocks it speaks of."""

    formula: Formula
    blocks: frozenset[int]


def _parts(specification: Specification, blocks: Sequence[Block]) -> list[_Part]:
    home = {output: i for i, block in enumerate(blocks) for output in block.outputs}
    nowhere = frozenset(i for i, block in enumerate(blocks) if not block.outputs)
    found = []
    for formula in (part for rule in specification.rules for part in conjuncts(rule.formula)):
        named = variables(formula)
        mentioned = frozenset(home[v] for v in named if not v.is_input)
        found.append(_Part(formula, mentioned | nowhere if any(v.is_input for v in named) else mentioned))
    return found


def _covers(checker: _Checker, parts: Sequence[_Part], i: int, block: Block) -> bool:
    """Whether the rules imply the block; those that speak of it nearly always do, without the others."""
    near = [part.formula for part in parts if i in part.blocks]
    return checker.imply(near, block.formula) or (
        len(near) < len(parts) and checker.imply([part.formula for part in parts], block.formula)
    )


class _Checker:
    """Asks a fresh solver what implies what, where every variable is in its domain."""

    def __init__(self, specification: Specification) -> None:
        self._context = z3.Context()
        self._encoder = Encoder(self._context)
        self._scaled: dict[int, tuple[Formula, Formula]] = {}  # holds the formula, so that its id stays its own
        self._atoms: dict[Atom, Atom] = {}
        named = specification.variables
        self._domains = [
            *domain_z3(named, context=self._context),
            *input_range_z3(named, context=self._context),
        ]
        self.checks = 0

    def imply(self, premises: Iterable[Formula], conclusion: Formula) -> bool:
        """Whether the premises together imply the conclusion."""
        self.checks += 1
        solver = self._solver()
        for premise in premises:
            solver.add(self._written(premise))
        solver.add(*map(self._written, conjuncts(_denied(conclusion))))
        return bool(solver.check() == z3.unsat)

    def all_imply(self, terms: Iterable[Term], conclusions: Sequence[Formula]) -> bool:
        """Whether every one of the terms implies all of the conclusions."""
        if not conclusions:
            return True
        solver = self._solver()
        solver.add(z3.Not(self._written(And(tuple(conclusions)))))
        questions = Questions(self._written, solver)
        for term in terms:
            self.checks += 1
            if questions.answer(conjuncts(term.formula)) is not False:
                return False
        return True

    def _solver(self) -> Any:
        solver = z3.SimpleSolver(ctx=self._context)
        solver.add(*self._domains)
        return solver

    def _written(self, formula: Formula) -> Any:
        return self._encoder.formula(self._divided(formula))

    def _divided(self, formula: Formula) -> Formula:
        if id(formula) not in self._scaled:
            self._scaled[id(formula)] = formula, self._divide(formula)
        return self._scaled[id(formula)][1]

    def _divide(self, formula: Formula) -> Formula:
        match formula:
            case Atom(linear, relation) if linear.terms:
                atom = Atom(linear * (1 / abs(linear.terms[0][1])), relation)
                return self._atoms.setdefault(atom, atom)
            case Not(argument):
                return Not(self._divided(argument))
            case And(arguments):
                return And(tuple(map(self._divided, arguments)))
            case Or(arguments):
                return Or(tuple(map(self._divided, arguments)))
            case Iff(left, right):
                return Iff(self._divided(left), self._divided(right))
        return formula


def _denied(formula: Formula) -> Formula:
    """The negation of a disjunction as a conjunction of negations."""
    return conjunction(map(negation, formula.arguments)) if isinstance(formula, Or) else negation(formula)
