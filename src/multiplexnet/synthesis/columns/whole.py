"""Rules over numbers as rules over whole numbers of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from multiplexnet.errors import CurvedError
from multiplexnet.language.curves import put_in
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Norm,
    Not,
    Or,
    Product,
    Rule,
    Symbol,
    Variable,
    maximum,
    symbols,
)

__all__ = ["in_steps", "refuse_curves", "rule_in_steps"]

Steps = Mapping[Variable, Linear]
"""What stands for a variable: a whole number of steps, times the size of one."""


def refuse_curves(rules: Sequence[Rule], asked: str = "rules of tables") -> None:
    """Raises ``CurvedError`` if a rule has a curved wall.

    Args:
        rules: as they were written.
        asked: what messages call them.
    """
    for rule in rules:
        if any(isinstance(symbol, Norm) for symbol in symbols(rule.formula)):
            raise CurvedError(
                rule.text,
                f"{asked} are flat, without norms and squares",
                "write linear ones that lie inside of it, as in `abs(x) + abs(y) <= 1`",
            )


def rule_in_steps(rule: Rule, steps: Steps) -> Rule:
    """The rule with other expressions in place of its variables."""
    return replace(rule, formula=in_steps(rule.formula, steps))


def in_steps(formula: Formula, steps: Steps) -> Formula:
    """The formula with other expressions in place of its variables.

    Example:
        >>> x, k = Variable("x", 0), Variable("k", 0)
        >>> in_steps(Atom(Linear.of(x) - 3, "<="), {x: Linear.of(k) * 2}) == Atom(Linear.of(k) * 2 - 3, "<=")
        True
    """
    match formula:
        case Atom(linear, relation):
            return Atom(_linear(linear, steps), relation)
        case Not(argument):
            return Not(in_steps(argument, steps))
        case And(arguments):
            return And(tuple(in_steps(argument, steps) for argument in arguments))
        case Or(arguments):
            return Or(tuple(in_steps(argument, steps) for argument in arguments))
        case Iff(left, right):
            return Iff(in_steps(left, steps), in_steps(right, steps))


def _linear(linear: Linear, steps: Steps) -> Linear:
    total = Linear.number(linear.constant)
    for symbol, c in linear.summands:
        total = total + _symbol(symbol, steps) * c
    return total


def _symbol(symbol: Symbol, steps: Steps) -> Linear:
    match symbol:
        case Variable():
            return steps.get(symbol, Linear.of(symbol))
        case Apply(function, arguments):
            return Linear.of(
                Apply(function, tuple(_linear(a, steps) for a in arguments))
            )
        case Max(arguments):
            return maximum(_linear(argument, steps) for argument in arguments)
        case Ite(condition, then, otherwise):
            own = Ite(
                in_steps(condition, steps),
                _linear(then, steps),
                _linear(otherwise, steps),
            )
            return Linear.of(own)
        case Norm(_, arguments):
            return put_in(symbol, [_linear(a, steps) for a in arguments])
        case Product():
            raise ValueError("a product of inputs: a table has none")
