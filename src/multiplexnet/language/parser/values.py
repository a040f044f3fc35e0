"""What a piece of rule text stands for, and what may be done with it.

::

    Value = Number   an exact linear expression          x + 2*y, max(x, y), f(x)
          | Truth    a formula                           x <= 2, on
          | Label    a quoted text: a label, or a name   "red", "Loan Amount"
          | Choice   a variable with labels              colour
          | Stairs   a number rounded to whole ones      floor(x), year(start)
          | Cases    one of several numbers              argmax(x), n % 3
          | Squares  a sum of squares                    x**2 + 2*y**2 - 4
          | Vector   several values                      x of `x: real[3]`, [x, 1], range(3)

Functions here raise :class:`Refusal` with a short reason; the reader adds the place in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache

from multiplexnet.language.curves import Square
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Atom,
    Bool,
    Category,
    Formula,
    Ite,
    Linear,
    Symbol,
    Variable,
)

__all__ = [
    "MOST_BITS",
    "MOST_DIGITS",
    "Cases",
    "Choice",
    "Label",
    "Number",
    "Refusal",
    "Squares",
    "Stairs",
    "Truth",
    "Value",
    "Vector",
    "amount",
    "counted",
    "decimal",
    "decimal_number",
    "described",
    "did_you_mean",
    "difference",
    "exact",
    "flat",
    "integer",
    "inverse",
    "is_whole",
    "iterated",
    "meant",
    "number",
    "paired",
    "refuse_no_number",
    "squares",
    "total",
    "truth",
    "value_of",
    "variable_in",
    "vector",
]

MOST_DIGITS = 2_000  # of a numerator or denominator; floats need 1,100
MOST_BITS = (10**MOST_DIGITS).bit_length()


def refuse_no_number(name: str) -> None:
    """Raises ``Refusal`` for a name that stands for infinity or NaN elsewhere."""
    if name.lower() in ("inf", "infinity", "infty", "oo"):
        raise Refusal(
            f"`{name}` is not a number: a bound that is infinite bounds nothing, so leave it out"
        )
    if name.lower() == "nan":
        raise Refusal(
            f"`{name}` is not a number, and nothing can be compared with it: leave the rule out"
        )


class Refusal(Exception):
    """Why something cannot be done; ``argument`` says with which argument of a call, if with one."""

    def __init__(self, reason: str, argument: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.argument = argument


@dataclass(frozen=True)
class Number:
    """A linear expression; ``moment`` says what a date or time was written as: ``date`` or ``datetime``."""

    linear: Linear
    moment: str | None = None


@dataclass(frozen=True)
class Truth:
    """A formula; ``variable`` is set where it is a Boolean variable by itself."""

    formula: Formula
    variable: Variable | None = None


@dataclass(frozen=True)
class Label:
    """A quoted text: a label of some category, or a declared name, with what that stands for."""

    text: str
    meaning: Value | None = None


@dataclass(frozen=True)
class Choice:
    """A variable whose values are labels."""

    variable: Variable
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Stairs:
    """A whole number that grows with an expression.

    Args:
        linear: the expression.
        start: where it reaches a whole number ``w``: it is at least ``w`` from ``linear >= start(w)`` on.
        strict: from ``linear > start(w)`` on.
        name: of the function, for messages.
    """

    linear: Linear
    start: Callable[[Linear], Linear]
    strict: bool
    name: str


@dataclass(frozen=True)
class Cases:
    """Each number under its condition, exactly one of which is true."""

    cases: tuple[tuple[int, Formula], ...]


@dataclass(frozen=True)
class Squares:
    """``Σ weight · linear² + rest``."""

    squares: tuple[Square, ...]
    rest: Linear = field(default_factory=Linear)

    def __add__(self, other: Squares) -> Squares:
        return Squares((*self.squares, *other.squares), total([self.rest, other.rest]))

    def __mul__(self, factor: Fraction) -> Squares:
        squares = tuple((w * factor, linear) for w, linear in self.squares)
        return Squares(squares, self.rest * factor)


@dataclass(frozen=True)
class Vector:
    """Several values in order; those of a matrix are its rows."""

    elements: tuple[Value, ...]


Value = Number | Truth | Label | Choice | Stairs | Cases | Squares | Vector


def value_of(variable: Variable) -> Value:
    """What the name of a variable stands for."""
    match variable.domain:
        case Bool():
            return Truth(Atom(Linear.of(variable) - 1, "=="), variable)
        case Category(labels):
            return Choice(variable, labels)
    return Number(Linear.of(variable) * variable.unit.size)


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
        case Stairs() | Cases():
            return "a whole number"
        case Squares():
            return "a sum of squares"
        case Vector((Vector(row), *_) as rows):
            return f"a matrix of {len(rows)} by {len(row)}"
        case Vector(elements):
            return f"a vector of {len(elements)}"


def counted(count: int, noun: str) -> str:
    """``1 argument``, ``2 arguments``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean `…`?)`` if a known word is close, else nothing."""
    words = {known_word.lower(): known_word for known_word in known}
    close = get_close_matches(word.lower(), words, n=1)
    if not close:
        return ""
    case = " upper and lower case differ" if close[0] == word.lower() else ""
    return f" (did you mean `{words[close[0]]}`?{case})"


# --- one kind from another ------------------------------------------------------------------------------------------


def meant(value: Value) -> Value:
    """The value; what it stands for, if it is a declared name in quotes."""
    if isinstance(value, Label) and value.meaning is not None:
        return value.meaning
    return value


def number(value: Value) -> Linear:
    """The linear expression, where one is needed."""
    match meant(value):
        case Number(linear):
            return linear
        case Cases(cases):
            return total(
                Linear.of(Ite(p, Linear.number(n), Linear())) for n, p in cases
            )
        case Stairs(name=name):
            raise Refusal(
                f"`{name}` is compared, as in `{name}(x) >= 2`; to calculate with it give it a name: "
                f"declare `n: int[0, 9]` and write `n == {name}(x)`"
            )
        case Squares():
            raise Refusal(
                "a square is curved: it is added, multiplied by a number and compared, as in `x**2 + 2*y**2 <= 4`"
            )
        case Vector(elements):
            raise Refusal(
                f"a vector of {len(elements)} where one number is needed: take an element, as in `x[0]`, "
                "or `sum`, `min` or `max` of it"
            )
        case Truth():
            raise Refusal(
                "a truth value where a number is needed: write `count(p for …)` to count, or `1 if p else 0`"
            )
    raise Refusal(
        f"{described(value)} where a number is needed: labels can only be compared with `==`, `!=` and `in`"
    )


def squares(value: Value) -> Squares:
    """The sum of squares, of which a plain number has none."""
    value = meant(value)
    return value if isinstance(value, Squares) else Squares((), amount(value))


def amount(value: Value) -> Linear:
    """The linear expression in a sum or product, where a Boolean variable counts as 0 or 1."""
    value = meant(value)
    if isinstance(value, Truth) and value.variable:
        return Linear.of(value.variable)
    return number(value)


def truth(value: Value) -> Formula:
    """The formula, where one is needed."""
    match meant(value):
        case Truth(formula):
            return formula
        case Vector():
            raise Refusal(
                f"{described(meant(value))} where a truth value is needed: write `all(…)` or `any(…)` around it, "
                "as in `all(x >= 0)`"
            )
        case Number() | Stairs() | Cases() | Squares():
            raise Refusal(
                "a number where a truth value is needed: compare it, as in `x >= 0`"
            )
    raise Refusal(
        f'{described(value)} where a truth value is needed: compare it, as in `colour == "red"`'
    )


def vector(value: Value) -> tuple[Value, ...]:
    """The elements, where several values are needed."""
    value = meant(value)
    if isinstance(value, Vector):
        return value.elements
    raise Refusal(
        f"{described(value)} where a vector or list is needed, as in `[a, b]` or `x[i] for i in range(3)`"
    )


def integer(value: Value) -> int:
    """The whole number, where a constant one is needed."""
    linear = number(value)
    is_moment = isinstance(value, Number) and value.moment is not None
    if is_moment or not linear.is_constant or linear.constant.denominator != 1:
        raise Refusal("a constant whole number is needed here, as in `3`")
    return int(linear.constant)


def flat(value: Value) -> list[Value]:
    """The elements, those of a matrix row by row."""
    elements: list[Value] = []
    for element in vector(value):
        inner = meant(element)
        elements.extend(flat(inner) if isinstance(inner, Vector) else [element])
    return elements


def paired(
    operation: Callable[[Value, Value], Value], left: Value, right: Value
) -> Value:
    """The operation on two values: element by element where one is a vector; a single value goes with all elements."""
    a = meant(left)
    b = meant(right)
    match a, b:
        case Vector(some), Vector(others):
            if len(some) != len(others):
                raise Refusal(
                    f"{described(a)} beside {described(b)}: both need as many elements as the other"
                )
            pairs = zip(some, others, strict=True)
            return Vector(tuple(paired(operation, x, y) for x, y in pairs))
        case Vector(some), _:
            return Vector(tuple(paired(operation, x, right) for x in some))
        case _, Vector(others):
            return Vector(tuple(paired(operation, left, y) for y in others))
    return operation(left, right)


def is_whole(linear: Linear) -> bool:
    """Whether the value of an expression is always a whole number.

    Example:
        >>> from multiplexnet.language.formula import Int
        >>> n = Linear.of(Variable("n", 0, Int(0, 9)))
        >>> is_whole(n * 2 + 1), is_whole(n * Fraction(1, 2)), is_whole(Linear.of(Variable("x", 0)))
        (True, False, False)
    """
    numbers = [linear.constant, *(c for _, c in linear.summands)]
    return all(c.denominator == 1 for c in numbers) and all(
        isinstance(symbol, Variable) and symbol.is_discrete
        for symbol, _ in linear.summands
    )


def iterated(value: Value) -> Value:
    """The value, if a comprehension may run over it: constants, variables, sums and rows of them stay small."""
    own = meant(value)
    for element in own.elements if isinstance(own, Vector) else (own,):
        match meant(element):
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
    if (
        max(fraction.numerator.bit_length(), fraction.denominator.bit_length())
        > MOST_BITS
    ):
        raise Refusal(
            f"a number of more than {MOST_DIGITS:,} digits: scale the rule to smaller numbers"
        )
    return fraction


def decimal(text: str) -> Fraction:
    """The exact value of a decimal literal: ``0.1`` is 1/10."""
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    if (
        len(mantissa) > MOST_DIGITS
        or len(exponent) > 8
        or abs(int(exponent or 0)) > MOST_DIGITS
    ):
        raise Refusal(
            f"a number of more than {MOST_DIGITS:,} digits: scale the rule to smaller numbers"
        )
    whole, _, digits = mantissa.partition(".")
    power = int(exponent or 0) - len(digits)
    number = int(whole + digits)
    return Fraction(number * 10**power) if power >= 0 else Fraction(number, 10**-power)


@lru_cache(maxsize=1024)
def decimal_number(text: str) -> Number:
    """A decimal literal as an expression."""
    return Number(Linear((), exact(decimal(text))))


def inverse(number: Fraction) -> Fraction:
    """One over the number."""
    if not number:
        raise Refusal("division by zero: divide by another number")
    return 1 / number


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
