"""The functions of the rule language, each from values to a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from multiplexnet.language.comparisons import equivalence
from multiplexnet.language.formula import (
    Linear,
    conjunction,
    disjunction,
    implies,
    maximum,
    negation,
)
from multiplexnet.language.values import (
    Number,
    Refusal,
    Truth,
    Value,
    Vector,
    amount,
    counted,
    integer,
    number,
    total,
    truth,
    vector,
)

__all__ = ["FUNCTIONS", "Function"]

LONGEST_RANGE = 100_000

T = TypeVar("T")
Values = Sequence[Value]


@dataclass(frozen=True)
class Function:
    """One function: how it is written, how many arguments it takes, what it gives."""

    usage: str
    least: int
    most: int | None
    result: Callable[[Values], Value]

    def __call__(self, arguments: Values) -> Value:
        count = len(arguments)
        too_few = count < self.least
        too_many = self.most is not None and count > self.most
        if too_few or too_many:
            raise Refusal(f"{counted(count, 'argument')}: write {self.usage}")
        return self.result(arguments)


def _each(kind: Callable[[Value], T], arguments: Values) -> list[T]:
    """All arguments as one kind; a refusal names the argument."""
    converted = []
    for position, argument in enumerate(arguments):
        try:
            converted.append(kind(argument))
        except Refusal as refusal:
            raise Refusal(refusal.reason, position) from None
    return converted


def _listed(kind: Callable[[Value], T], arguments: Values) -> list[T]:
    """The elements of the only argument as one kind."""
    (elements,) = _each(vector, arguments)
    try:
        return [kind(element) for element in elements]
    except Refusal as refusal:
        raise Refusal(refusal.reason, 0) from None


def _implies(arguments: Values) -> Value:
    premise, conclusion = _each(truth, arguments)
    return Truth(implies(premise, conclusion))


def _iff(arguments: Values) -> Value:
    left, right = _each(truth, arguments)
    return Truth(equivalence(left, right))


def _xor(arguments: Values) -> Value:
    left, right = _each(truth, arguments)
    return Truth(negation(equivalence(left, right)))


def _all(arguments: Values) -> Value:
    return Truth(conjunction(_listed(truth, arguments)))


def _any(arguments: Values) -> Value:
    return Truth(disjunction(_listed(truth, arguments)))


def _sum(arguments: Values) -> Value:
    return Number(total(_listed(amount, arguments)))


def _compared(arguments: Values) -> list[Linear]:
    numbers = _listed(number, arguments) if len(arguments) == 1 else _each(number, arguments)
    if not numbers:
        raise Refusal("no numbers to choose from: give at least one")
    return numbers


def _max(arguments: Values) -> Value:
    return Number(maximum(_compared(arguments)))


def _min(arguments: Values) -> Value:
    reverse = [-linear for linear in _compared(arguments)]
    return Number(-maximum(reverse))


def _abs(arguments: Values) -> Value:
    (linear,) = _each(number, arguments)
    return Number(maximum([linear, -linear]))


def _len(arguments: Values) -> Value:
    (elements,) = _each(vector, arguments)
    return Number(Linear.number(len(elements)))


def _range(arguments: Values) -> Value:
    bounds = _each(integer, arguments)
    if len(bounds) == 3 and not bounds[2]:
        raise Refusal("a step of zero: write 1 or -1", 2)
    numbers = range(*bounds)
    steps = abs((numbers[-1] - numbers[0]) // numbers.step) if numbers else 0
    if steps >= LONGEST_RANGE:
        raise Refusal(f"a range of more than {LONGEST_RANGE:,} numbers: use a shorter one")
    return Vector(tuple(Number(Linear.number(i)) for i in numbers))


FUNCTIONS = {
    "implies": Function("`implies(p, q)`", 2, 2, _implies),
    "iff": Function("`iff(p, q)`", 2, 2, _iff),
    "xor": Function("`xor(p, q)`", 2, 2, _xor),
    "all": Function("`all([p, q])` or `all(p for i in range(3))`", 1, 1, _all),
    "any": Function("`any([p, q])` or `any(p for i in range(3))`", 1, 1, _any),
    "sum": Function("`sum([a, b])` or `sum(x[i] for i in range(3))`", 1, 1, _sum),
    "min": Function("`min(a, b)` or `min(x)` with a vector `x`", 1, None, _min),
    "max": Function("`max(a, b)` or `max(x)` with a vector `x`", 1, None, _max),
    "abs": Function("`abs(a)`", 1, 1, _abs),
    "len": Function("`len(x)`", 1, 1, _len),
    "range": Function("`range(stop)` or `range(start, stop, step)`", 1, 3, _range),
}
