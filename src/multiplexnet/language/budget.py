"""A bound on the work that a text may ask for, so that a short one cannot ask for hours."""

from __future__ import annotations

from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Not,
    Or,
    Symbol,
    Variable,
)
from multiplexnet.language.values import Number, Refusal, Truth, Value, Vector

__all__ = ["Budget"]

PARTS = 1_000_000  # what comprehensions may unfold to, beyond what stands in the text
PARTS_PER_CHARACTER = 20  # generous: a value is charged for each time something is made of it
LARGEST_SYMBOL = 20_000  # parts of one max, min, abs, call or if-else


class Budget:
    """What is left of the work allowed for a text of the given length."""

    def __init__(self, characters: int) -> None:
        self._allowed = PARTS + PARTS_PER_CHARACTER * characters
        self._left = self._allowed
        self._known: dict[
            int, tuple[object, int]
        ] = {}  # by identity: shared parts are common, and costly to compare

    def charge(self, value: Value) -> None:
        """Pay for a value that was made: one for every part of it, shared parts as often as they occur."""
        self._left -= 1 + self._value(value)
        if self._left < 0:
            raise Refusal(
                f"the rules up to here unfold to more than {self._allowed:,} parts: "
                "use shorter ranges and vectors, or less nesting"
            )

    def _value(self, value: Value) -> int:
        match value:
            case Number(linear):
                return self._linear(linear)
            case Truth(formula):
                return self._formula(formula)
            case Vector(elements):
                return len(elements)  # the elements were paid for when they were made
        return 1

    def _linear(self, linear: Linear) -> int:
        if len(linear.summands) == 1 and isinstance(linear.summands[0][0], Variable):
            return 1  # by far the most common
        return sum(self._symbol(symbol) for symbol, _ in linear.summands)

    def _symbol(self, symbol: Symbol) -> int:
        if isinstance(symbol, Variable):
            return 1
        if id(symbol) in self._known:
            return self._known[id(symbol)][1]
        match symbol:
            case Apply(_, arguments) | Max(arguments):
                parts = sum(map(self._linear, arguments)) + len(arguments)
            case Ite(condition, then, otherwise):
                parts = self._formula(condition) + self._linear(then) + self._linear(otherwise) + 1
        if parts > LARGEST_SYMBOL:
            raise Refusal(
                f"more than {LARGEST_SYMBOL:,} parts inside one another: name a part by an output of its own"
            )
        self._known[id(symbol)] = symbol, parts
        return parts

    def _formula(self, formula: Formula) -> int:
        if isinstance(formula, Atom):
            return self._linear(formula.linear) + 1
        if id(formula) in self._known:
            return self._known[id(formula)][1]
        match formula:
            case Not(argument):
                parts = self._formula(argument) + 1
            case And(arguments) | Or(arguments):
                parts = sum(map(self._formula, arguments)) + 1
            case Iff(left, right):
                parts = self._formula(left) + self._formula(right) + 1
        self._known[id(formula)] = formula, parts
        return parts
