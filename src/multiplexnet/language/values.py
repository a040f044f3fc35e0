"""What a piece of rule text stands for, and what may be done with it.

::

    Value = Number   an exact linear expression          x + 2*y, max(x, y), f(x)
          | Truth    a formula                           x <= 2, on
          | Label    a label, as written                 "red"
          | Choice   a variable with labels              colour
          | Vector   several values                      x of `x: real[3]`, [x, 1], range(3)

Functions here raise :class:`Refusal` with a short reason; the reader adds the place in the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache

from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Atom,
    Bool,
    Category,
    Formula,
    Linear,
    Symbol,
    Variable,
)

__all__ = [
    "Choice",
    "Label",
    "Number",
    "Refusal",
    "Truth",
    "Value",
    "Vector",
    "amount",
    "counted",
    "decimal",
    "described",
    "did_you_mean",
    "difference",
    "exact",
    "integer",
    "iterated",
    "number",
    "refuse_no_number",
    "total",
    "truth",
    "value_of",
    "variable_in",
    "vector",
]

MOST_DIGITS = 2_000  # of a numerator or denominator; floats need 1,100
_MOST_BITS = (10**MOST_DIGITS).bit_length()


def refuse_no_number(name: str) -> None:
    """Raises ``Refusal`` for a name that stands for infinity or NaN elsewhere."""
    if name.lower() in ("inf", "infinity", "infty", "oo"):
        raise Refusal(
            f"`{name}` is no number: a bound that is infinite bounds nothing, so leave it out"
        )
    if name.lower() == "nan":
        raise Refusal(
            f"`{name}` is no number, and nothing can be compared with it: leave the rule out"
        )


class Refusal(Exception):
    """Why something cannot be done; ``argument`` says with which argument of a call, if with one."""

    def __init__(self, reason: str, argument: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.argument = argument


@dataclass(frozen=True)
class Number:
    """A linear expression."""

    linear: Linear


@dataclass(frozen=True)
class Truth:
    """A formula; ``variable`` is set where it is a Boolean variable by itself."""

    formula: Formula
    variable: Variable | None = None


@dataclass(frozen=True)
class Label:
    """A label of some category."""

    text: str


@dataclass(frozen=True)
class Choice:
    """A variable whose values are labels."""

    variable: Variable
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Vector:
    """Several values in order."""

    elements: tuple[Value, ...]


Value = Number | Truth | Label | Choice | Vector


def value_of(variable: Variable) -> Value:
    """What the name of a variable stands for."""
    match variable.domain:
        case Bool():
            return Truth(Atom(Linear.of(variable) - 1, "=="), variable)
        case Category(labels):
            return Choice(variable, labels)
    return Number(Linear.of(variable))


def variable_in(value: Value) -> Variable | None:
    """The variable that a value is, if it is one."""
    match value:
        case Truth(_, variable) | Choice(variable):
            return variable
        case Number(Linear(((Variable() as variable, _),), constant)) if not constant:
            return variable
    return None


def described(value: Value) -> str:
    """The value's kind in words."""
    match value:
        case Number():
            return "a number"
        case Truth():
            return "a truth value"
        case Label(text):
            return f'the label "{text}"'
        case Choice(variable):
            return f"the category `{variable.name}`"
        case Vector(elements):
            return f"a vector of {len(elements)}"


def counted(count: int, noun: str) -> str:
    """``1 argument``, ``2 arguments``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean `…`?)`` if a known word is close, else nothing."""
    words = {known_word.lower(): known_word for known_word in known}
    close = get_close_matches(word.lower(), words, n=1)
    return f" (did you mean `{words[close[0]]}`?)" if close else ""


# --- one kind from another ------------------------------------------------------------------------------------------


def number(value: Value) -> Linear:
    """The linear expression, where one is needed."""
    match value:
        case Number(linear):
            return linear
        case Vector(elements):
            raise Refusal(
                f"a vector of {len(elements)} where one number is needed: take an element, as in `x[0]`, "
                "or `sum`, `min` or `max` of it"
            )
        case Truth():
            raise Refusal("a truth value where a number is needed: write `1 if p else 0`")
    raise Refusal(
        f"{described(value)} where a number is needed: labels can only be compared with `==`, `!=` and `in`"
    )


def amount(value: Value) -> Linear:
    """The linear expression in a sum or product, where a Boolean variable counts as 0 or 1."""
    if isinstance(value, Truth) and value.variable:
        return Linear.of(value.variable)
    return number(value)


def truth(value: Value) -> Formula:
    """The formula, where one is needed."""
    match value:
        case Truth(formula):
            return formula
        case Vector():
            raise Refusal(
                f"{described(value)} where a truth value is needed: write `all([…])` or `any([…])`"
            )
        case Number():
            raise Refusal("a number where a truth value is needed: compare it, as in `x >= 0`")
    raise Refusal(
        f'{described(value)} where a truth value is needed: compare it, as in `colour == "red"`'
    )


def vector(value: Value) -> tuple[Value, ...]:
    """The elements, where several values are needed."""
    if isinstance(value, Vector):
        return value.elements
    raise Refusal(
        f"{described(value)} where a vector or list is needed, as in `[a, b]` or `x[i] for i in range(3)`"
    )


def integer(value: Value) -> int:
    """The whole number, where a constant one is needed."""
    linear = number(value)
    if not linear.is_constant or linear.constant.denominator != 1:
        raise Refusal("a constant whole number is needed here, as in `3`")
    return int(linear.constant)


def iterated(value: Value) -> Value:
    """The value, if a comprehension may run over it: constants, variables, sums and rows of them stay small."""
    for element in value.elements if isinstance(value, Vector) else (value,):
        match element:
            case Number(linear) if all(
                isinstance(symbol, Variable) for symbol, _ in linear.summands
            ):
                continue
            case Truth(formula, variable) if variable or formula in (TRUE, FALSE):
                continue
            case Label() | Choice():
                continue
        raise Refusal(
            "a comprehension runs over numbers, labels, variables, their sums and rows of these only"
        )
    return value


# --- numbers --------------------------------------------------------------------------------------------------------


def exact(fraction: Fraction) -> Fraction:
    """The fraction, if it is of a size that can be worked with."""
    if max(fraction.numerator.bit_length(), fraction.denominator.bit_length()) > _MOST_BITS:
        raise Refusal(
            f"a number of more than {MOST_DIGITS:,} digits: scale the rule to smaller numbers"
        )
    return fraction


@lru_cache(maxsize=1024)
def decimal(text: str) -> Fraction:
    """The exact value of a decimal literal: ``0.1`` is 1/10."""
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    if len(mantissa) > MOST_DIGITS or len(exponent) > 8 or abs(int(exponent or 0)) > MOST_DIGITS:
        raise Refusal(
            f"a number of more than {MOST_DIGITS:,} digits: scale the rule to smaller numbers"
        )
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def total(linears: Iterable[Linear]) -> Linear:
    """Their sum, in one pass."""
    coefficients: dict[Symbol, Fraction] = {}
    constant = Fraction(0)
    for linear in linears:
        constant = exact(constant + linear.constant) if linear.constant else constant
        for symbol, c in linear.summands:
            known = coefficients.get(symbol)
            coefficients[symbol] = c if known is None else exact(known + c)
    return Linear.total(coefficients, constant)


def difference(a: Linear, b: Linear) -> Linear:
    """``a - b``; most comparisons are with a constant, which is quick."""
    if a.is_constant or b.is_constant:
        exact(a.constant - b.constant)
        return a + -b.constant if b.is_constant else -b + a.constant
    return total([a, -b])
