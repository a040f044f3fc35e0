"""z3 as the oracle of the tests: what a specification means, and whether a claim holds."""

from __future__ import annotations

from fractions import Fraction

import z3

from multiplexnet.language.formula import Bool, Real, Specification, Variable
from multiplexnet.smt.from_z3 import Range, from_z3
from multiplexnet.smt.questions import (
    constant_z3,
    domain_z3,
    input_range_z3,
    number_z3,
    to_z3,
)

__all__ = ["back_from_z3", "meaning", "numeral_z3", "proves"]


def meaning(specification: Specification) -> z3.BoolRef:
    """Rules and domains together: what the specification means."""
    variables = specification.variables
    return z3.And(
        [
            to_z3(specification.formula),
            *domain_z3(variables),
            *input_range_z3(variables),
        ]
    )


def proves(claim: z3.BoolRef) -> bool:
    """Whether the claim holds for all values of its constants."""
    solver = z3.Solver()
    solver.add(z3.Not(claim))
    return bool(solver.check() == z3.unsat)


def back_from_z3(given: Specification) -> Specification:
    """The specification written in z3 and read again. Categories come back as integers."""
    rules = [*(to_z3(rule.formula) for rule in given.rules), *domain_z3(given.outputs)]
    ranges = {constant_z3(v): _range(v) for v in given.inputs}
    return from_z3(
        rules, outputs=[constant_z3(v) for v in given.outputs], inputs=ranges
    )


def _range(variable: Variable) -> Range | None:
    match variable.domain:
        case Real(lower, upper):
            return lower, upper
        case Bool():
            return None
    return variable.domain.values.start, variable.domain.values.stop - 1


def numeral_z3(variable: Variable, value: Fraction) -> z3.ExprRef:
    """The value of the variable as a z3 numeral of its sort."""
    match variable.domain:
        case Real():
            return number_z3(value)
        case Bool():
            return z3.BoolVal(value == 1)
    return z3.IntVal(int(value))
