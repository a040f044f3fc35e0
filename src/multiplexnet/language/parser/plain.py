"""Plain sums, ``0.5*x[0] - y <= 3``: read from the text itself, because a syntax tree of long ones takes its time.

What is read here is what :class:`~multiplexnet.language.parser.expressions.ExpressionReader` would read, and is charged
as it would be. Everything else is left to that: whatever is unusual, and whatever would be refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from keyword import iskeyword

from multiplexnet.language.budget import ReadingBudget
from multiplexnet.language.formula import Atom, Linear, Real, Relation, Variable
from multiplexnet.language.parser.values import Number, Value, Vector, decimal

__all__ = ["PlainSums", "is_plain_sum"]

LONGEST = 500  # summands; of much longer chains Python's parser makes no tree

_NUMBER = r"(?:0|[1-9][0-9]{0,30}+)(?:\.[0-9]{1,30}+)?(?:e[-+]?[0-9]{1,2}+)?"
_PLACE = r"[A-Za-z_][A-Za-z_0-9]*+(?:\[(?:0|[1-9][0-9]{0,8}+)\])?"
_SUMMAND = rf"(?:-?{_NUMBER} *+\* *+)?{_PLACE}"
_STATEMENT = re.compile(
    rf"-?{_SUMMAND}(?: *+[-+] *+{_SUMMAND}){{0,{LONGEST - 1}}}+ *+(?:<=|<|>=|>|==) *+-?{_NUMBER}"
)
_PARTS = re.compile(rf"([-+]?) *+(?:(-?)({_NUMBER}) *+\* *+)?({_PLACE})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*+")
_RELATION = re.compile(r"[<>=]+")
_RELATIONS: dict[str, Relation] = {
    "<=": "<=",
    "<": "<",
    ">=": "<=",
    ">": "<",
    "==": "==",
}

_Part = tuple[str, str, str, str]
"""Sign of a summand, sign of its number, the number, and the variable, each as written or empty."""


def is_plain_sum(text: str) -> bool:
    """Whether a statement is a sum of variables and multiples of them, compared with a number.

    Names may still be unknown, or those of something that is no number.

    Example:
        >>> is_plain_sum("0.5*x[0] - y <= 3"), is_plain_sum("x <= y"), is_plain_sum("2*max(x, y) <= 3")
        (True, False, False)
    """
    if _STATEMENT.fullmatch(text) is None:
        return False
    return not any(map(iskeyword, _NAME.findall(text)))


class PlainSums:
    """Reads plain sums.

    Args:
        values: what the names stand for.
        budget: the work that is left for the whole text.
    """

    def __init__(self, values: dict[str, Value], budget: ReadingBudget) -> None:
        self._values = values
        self._budget = budget
        self._numbers: dict[tuple[str, str, str], Fraction] = {}
        self._variables: dict[str, Variable | None] = {}

    def atom(self, text: str) -> Atom | None:
        """The comparison that a plain sum is, if all its names are those of real variables, each named once."""
        found = _RELATION.search(text)
        assert found is not None
        parts: list[_Part] = _PARTS.findall(text, 0, found.start())
        bound_text = text[found.end() :].strip()
        summands = self._summands(parts)
        if not summands:
            return None
        bound = decimal(bound_text)
        constant = -bound
        if found[0][0] == ">":
            summands = [(variable, -number) for variable, number in summands]
            constant = bound
        if not self._budget.paid(_cost(parts, bound_text, len(summands))):
            return None
        linear = Linear(tuple(summands), constant)
        return Atom(linear, _RELATIONS[found[0]])

    def _summands(self, parts: Sequence[_Part]) -> list[tuple[Variable, Fraction]]:
        """Variables in their order, with numbers other than 0; none if something is unusual."""
        found = []
        for sign, own, number, place in parts:
            variable = self._variable(place)
            if variable is None:
                return []
            found.append((variable, self._number(sign, own, number)))
        found.sort(key=_index)
        if len({variable.index for variable, _ in found}) < len(found):
            return []
        return [summand for summand in found if summand[1]]

    def _number(self, sign: str, own: str, number: str) -> Fraction:
        key = sign, own, number
        known = self._numbers.get(key)
        if known is None:
            known = decimal(number) if number else Fraction(1)
            if (sign == "-") != (own == "-"):
                known = -known
            self._numbers[key] = known
        return known

    def _variable(self, place: str) -> Variable | None:
        if place not in self._variables:
            self._variables[place] = self._found(place)
        return self._variables[place]

    def _found(self, place: str) -> Variable | None:
        name, bracket, index = place.removesuffix("]").partition("[")
        value = self._values.get(name)
        if bracket:
            if not isinstance(value, Vector) or int(index) >= len(value.elements):
                return None
            value = value.elements[int(index)]
        return _real_variable(value)


def _real_variable(value: Value | None) -> Variable | None:
    """The variable that a value is, if it is one over the reals."""
    match value:
        case Number(Linear(((Variable(domain=Real()) as variable, _),)), None):
            return variable if value.linear == Linear.of(variable) else None
    return None


def _index(summand: tuple[Variable, Fraction]) -> int:
    return summand[0].index


def _cost(parts: Sequence[_Part], bound: str, kept: int) -> int:
    """What the reader of expressions charges: for every value that is made, 1 and its summands."""
    cost = 0
    for position, (sign, own, number, place) in enumerate(parts):
        is_element = place.endswith("]")
        cost += 2 * is_element
        if number:
            cost += 2  # the product
        signs = bool(own) + (position == 0 and bool(sign))
        cost += signs * (1 if number else 2)
    zeros = len(parts) - kept
    cost -= zeros  # a product with 0 has no summands
    if len(parts) > 1:
        cost += 1 + kept
    cost += bound.startswith("-")
    return cost + 1 + kept + 1
