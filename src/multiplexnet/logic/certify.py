"""The certificate: a fresh solver proves that the terms say what the rules say.

It reads the rules as they were written, not their normal form, and shares no state with the search.

* *Sound*: every term implies the rules. Rules that lie in one block are checked term by term; a rule that several
  blocks share is checked against all of them at once.
* *Complete*: the rules imply the disjunction of the terms of every block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import z3

from multiplexnet.logic.formula import Formula, Rule, Specification, Variable, conjunction, variables
from multiplexnet.logic.smt import domain_z3, input_range_z3, to_z3
from multiplexnet.logic.terms import Block, Certificate

__all__ = ["certificate"]


def certificate(specification: Specification, blocks: Sequence[Block], *, complete: bool) -> Certificate:
    """What a fresh solver proves of the blocks.

    Raises:
        AssertionError: a term does not imply the rules, or (``complete``) the terms miss a point that obeys. Both are
            errors of the compiler, never of the user.
    """
    checker = _Checker(specification)
    for block in blocks:
        mine = [rule.formula for rule in specification.rules if _belongs(rule, block)]
        if mine and not checker.all_imply((term.formula for term in block.terms), conjunction(mine)):
            raise AssertionError("a term does not imply the rules")
    shared = [rule.formula for rule in specification.rules if not any(_belongs(rule, block) for block in blocks)]
    if shared and not checker.all_imply([conjunction(block.formula for block in blocks)], conjunction(shared)):
        raise AssertionError("the terms do not imply the rules that several blocks share")
    covers = all(checker.all_imply([specification.formula], block.formula) for block in blocks)
    if complete and not covers:
        raise AssertionError("the terms do not contain every point that obeys the rules")
    return Certificate(sound=True, complete=covers, solver=f"z3 {z3.get_version_string()}", checks=checker.checks)


def _belongs(rule: Rule, block: Block) -> bool:
    outputs = [v for v in variables(rule.formula) if not v.is_input]
    return bool(outputs) and set(outputs) <= set(block.outputs)


class _Checker:
    """Asks a fresh solver whether formulas imply another one where every variable is in its domain."""

    def __init__(self, specification: Specification) -> None:
        self._variables: tuple[Variable, ...] = specification.variables
        self.checks = 0

    def all_imply(self, premises: Iterable[Formula], conclusion: Formula) -> bool:
        context = z3.Context()
        solver = z3.SimpleSolver(ctx=context)
        solver.add(*domain_z3(self._variables, context=context), *input_range_z3(self._variables, context=context))
        solver.add(z3.Not(to_z3(conclusion, context=context)))
        return all(self._contradicts(solver, to_z3(premise, context=context)) for premise in premises)

    def _contradicts(self, solver: Any, premise: Any) -> bool:
        self.checks += 1
        solver.push()
        solver.add(premise)
        answer = solver.check()
        solver.pop()
        return bool(answer == z3.unsat)
