"""Bounds on the work that rules may ask for, so that a short text cannot ask for hours."""

from __future__ import annotations

from multiplexnet.language.formula import (
    Apply,
    Atom,
    Ite,
    Linear,
    Max,
    Node,
    Norm,
    Variable,
    children,
)
from multiplexnet.language.parser.values import (
    Cases,
    Number,
    Refusal,
    Squares,
    Stairs,
    Truth,
    Value,
    Vector,
)

__all__ = ["MAX_TERMS", "ReadingBudget"]

MAX_TERMS = 4096
"""How many terms a block of rules may have unless told otherwise."""

PARTS = 1_000_000  # what comprehensions may unfold to, beyond what stands in the text
PARTS_PER_CHARACTER = (
    20  # generous: a value is charged for each time something is made of it
)
LARGEST_SYMBOL = 20_000  # parts of one max, min, abs, call or if-else


class ReadingBudget:
    """What is left of the work allowed for a text of the given length."""

    def __init__(self, characters: int) -> None:
        self._allowed = PARTS + PARTS_PER_CHARACTER * characters
        self._left = self._allowed
        # by identity: shared parts are common, and costly to compare
        self._known: dict[int, tuple[Node, int]] = {}

    def charge(self, value: Value) -> None:
        """Pay for a value that was made: one for every part of it, shared parts as often as they occur."""
        self._left -= 1 + self._value(value)
        if self._left < 0:
            raise Refusal(
                f"the rules up to here unfold to more than {self._allowed:,} parts: "
                "use shorter ranges and vectors, or less nesting"
            )

    def paid(self, parts: int) -> bool:
        """Pay for so many parts, if that many are left."""
        if self._left < parts:
            return False
        self._left -= parts
        return True

    def _value(self, value: Value) -> int:
        match value:
            case Number(linear) | Stairs(linear):
                return self._linear(linear)
            case Cases(cases):
                return sum(self._parts(formula) for _, formula in cases)
            case Squares(parts, rest):
                return sum(self._linear(linear) for _, linear in parts) + len(
                    rest.summands
                )
            case Truth(formula):
                return self._parts(formula)
            case Vector(elements):
                return len(elements)  # the elements were paid for when they were made
        return 1

    def _linear(self, linear: Linear) -> int:
        if len(linear.summands) == 1 and isinstance(linear.summands[0][0], Variable):
            return 1  # by far the most common
        return sum(self._parts(symbol) for symbol, _ in linear.summands)

    def _parts(self, node: Node) -> int:
        """How many parts a formula or symbol has; those of functions, maxima and case distinctions are limited."""
        if isinstance(node, Variable):
            return 1
        if isinstance(node, Atom):
            return self._linear(node.linear) + 1
        if id(node) in self._known:
            return self._known[id(node)][1]
        own = len(node.arguments) if isinstance(node, Apply | Max | Norm) else 1
        parts = own + sum(map(self._parts, children(node)))
        if isinstance(node, Apply | Max | Ite | Norm) and parts > LARGEST_SYMBOL:
            raise Refusal(
                f"more than {LARGEST_SYMBOL:,} parts inside one another: name a part by an output of its own"
            )
        self._known[id(node)] = node, parts
        return parts
