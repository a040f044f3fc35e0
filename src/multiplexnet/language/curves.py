"""Curved walls: ``norm(x - c) <= t``, sums of squares, and where in a formula they may stand.

There is one kind of curved comparison, a second-order cone: ``√(Σ w_i l_i²) ≤ t`` with linear ``l_i`` and ``t``. It is
a convex set, so a conjunction of such comparisons and of linear ones is convex too. A sum of squares is one of them:

    Σ w_i l_i² ≤ c    is   √(Σ (w_i / c) l_i²) ≤ 1                for a number c > 0
    Σ w_i l_i² ≤ s    is   √(Σ 4 w_i l_i² + (s − 1)²) ≤ s + 1     for an expression s

The outside of such a set is not convex, so nothing may negate the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    And,
    Atom,
    Formula,
    Iff,
    Linear,
    Norm,
    Not,
    Or,
    Relation,
    Symbol,
    Variable,
    compare,
    conjunction,
    maximum,
    norm_in,
    sign,
    symbols,
)

__all__ = [
    "Square",
    "Tangent",
    "flattened",
    "is_constant",
    "length",
    "merged",
    "misplaced",
    "put_in",
    "root",
    "settled",
    "squares_of",
    "within",
]

Square = tuple[Fraction, Linear]
"""``weight · linear²``."""

OUTSIDE = (
    "the outside of a ball, an ellipsoid or a cone is not convex, and no map of one piece reaches it: keep "
    "`norm(…) <= …` and sums of squares `<= …` unnegated, out of the premise of `implies` and out of `iff`; in place "
    "of `norm(x) >= r` write flat walls, as in `any(abs(v) >= r for v in x)`"
)


def root(number: Fraction) -> Fraction | None:
    """The square root of a number that has a rational one.

    Example:
        >>> root(Fraction(4, 9)), root(Fraction(2))
        (Fraction(2, 3), None)
    """
    if number < 0:
        return None
    above = isqrt(number.numerator)
    below = isqrt(number.denominator)
    found = Fraction(above, below)
    return found if found * found == number else None


def length(squares: Sequence[Square]) -> Linear:
    """``√(Σ weight · linear²)`` as an expression: a number or an absolute value where it is one."""
    kept = merged(squares)
    if all(linear.is_constant for _, linear in kept):
        total = sum((w * linear.constant**2 for w, linear in kept), Fraction(0))
        number = root(total)
        if number is not None:
            return Linear.number(number)
    if len(kept) == 1:
        weight, linear = kept[0]
        factor = root(weight)
        if factor is not None:
            return maximum([linear * factor, -linear * factor])
    weights = tuple(w for w, _ in kept)
    return Linear.of(Norm(weights, tuple(linear for _, linear in kept)))


def merged(squares: Sequence[Square]) -> list[Square]:
    """The squares without zeros, those of one expression as one."""
    found: dict[Linear, Fraction] = {}
    for weight, linear in squares:
        if linear.summands and linear.summands[0][1] < 0:
            linear = -linear
        if linear != Linear():
            found[linear] = found.get(linear, Fraction(0)) + weight
    return [(weight, linear) for linear, weight in found.items() if weight]


def within(squares: Sequence[Square], rest: Linear, relation: Relation) -> Formula:
    """``Σ weight · linear² + rest relation 0`` with positive weights, as one comparison with a norm."""
    bound = -rest
    if not bound.is_constant:
        scaled = [(4 * weight, linear) for weight, linear in squares]
        one = (Fraction(1), bound - 1)
        return settled(length([*scaled, one]) - bound - 1, relation)
    number = bound.constant
    if number <= 0:
        return settled(length(squares) - number, relation)
    return Atom(length([(w / number, linear) for w, linear in squares]) - 1, relation)


def settled(linear: Linear, relation: Relation) -> Formula:
    """``linear relation 0``, a norm that is compared with a number in one of few ways.

    One that is compared with 0 or less is written without it; otherwise the number goes into the weights, unless all
    of these are 1.
    """
    found = norm_in(linear)
    if found is not None and is_constant(linear):
        return TRUE if compare(sign(linear, {}), relation) else FALSE
    flat = flattened(linear, relation)
    if flat is not None:
        return flat
    if found is None or len(linear.summands) > 1 or relation == "==":
        return Atom(linear, relation)
    norm, coefficient = found
    bound = -linear.constant / coefficient
    if bound > 0 and any(weight != 1 for weight in norm.weights):
        scaled = tuple(weight / (bound * bound) for weight in norm.weights)
        unit = Linear.of(Norm(scaled, norm.arguments)) - 1
        return Atom(unit if coefficient > 0 else -unit, relation)
    return Atom(linear, relation)


def flattened(linear: Linear, relation: Relation) -> Formula | None:
    """Comparisons of a norm with 0 or a negative number without the norm; ``None`` for everything else.

    No norm is negative: ``norm >= 0`` always holds, ``norm < 0`` never.
    """
    found = norm_in(linear)
    if found is None or len(linear.summands) > 1 or relation == "==":
        return None
    norm, coefficient = found
    bound = -linear.constant / coefficient
    if coefficient < 0:
        holds_always = bound < 0 or (bound == 0 and relation == "<=")
        return TRUE if holds_always else None
    if bound > 0:
        return None
    if bound < 0 or relation == "<":
        return FALSE
    return conjunction(_vanishing(argument) for argument in norm.arguments)


def _vanishing(linear: Linear) -> Formula:
    if linear.is_constant:
        return conjunction([]) if compare(linear.constant, "==") else FALSE
    return Atom(linear, "==")


def squares_of(
    Q: Sequence[Sequence[Fraction]], x: Sequence[Linear]
) -> list[Square] | None:
    """``x · Q x`` as a sum of squares, exactly (Q = L D Lᵀ); ``None`` if Q is not positive semidefinite.

    Example:
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> two, one = Fraction(2), Fraction(1)
        >>> [weight for weight, _ in squares_of([[two, one], [one, two]], [x, y])]
        [Fraction(2, 1), Fraction(3, 2)]
        >>> squares_of([[one, two], [two, one]], [x, y]) is None
        True
    """
    n = len(x)
    rest = [[(Q[i][j] + Q[j][i]) / 2 for j in range(n)] for i in range(n)]
    found: list[Square] = []
    for k in range(n):
        pivot = rest[k][k]
        column = rest[k][k:]
        if pivot < 0 or (pivot == 0 and any(column)):
            return None
        if pivot == 0:
            continue
        factors = [c / pivot for c in column]
        coefficients: dict[Symbol, Fraction] = {}
        constant = Fraction(0)
        for factor, own in zip(factors, x[k:], strict=True):
            constant += factor * own.constant
            for symbol, c in own.summands:
                coefficients[symbol] = (
                    coefficients.get(symbol, Fraction(0)) + factor * c
                )
        found.append((pivot, Linear.total(coefficients, constant)))
        for i in range(k + 1, n):
            for j in range(i, n):
                rest[i][j] -= factors[i - k] * column[j - k]
                rest[j][i] = rest[i][j]
    return found


def put_in(norm: Norm, arguments: Sequence[Linear]) -> Linear:
    """The norm with other arguments; a number where it has become a rational one."""
    if all(argument.is_constant for argument in arguments):
        pairs = zip(norm.weights, arguments, strict=True)
        number = root(sum((w * a.constant**2 for w, a in pairs), Fraction(0)))
        if number is not None:
            return Linear.number(number)
    return Linear.of(Norm(norm.weights, tuple(arguments)))


def is_constant(linear: Linear) -> bool:
    """Whether no variable is left, a norm of numbers apart."""
    found = norm_in(linear)
    if found is None:
        return linear.is_constant
    arguments = found[0].arguments
    return len(linear.summands) == 1 and all(a.is_constant for a in arguments)


@dataclass(frozen=True)
class Tangent:
    """A linear function that a norm is never below.

    Example:
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> one = Fraction(1)
        >>> length = Norm((one, one), (x, y))
        >>> Tangent(length, (Fraction(3, 5), Fraction(4, 5))).is_valid, Tangent(length, (one, one)).is_valid
        (True, False)
    """

    norm: Norm
    direction: tuple[Fraction, ...]

    @property
    def is_valid(self) -> bool:
        weights = self.norm.weights
        squares = (w * v * v for w, v in zip(weights, self.direction, strict=True))
        return sum(squares, Fraction(0)) <= 1

    @property
    def atom(self) -> Atom:
        linear = -Linear.of(self.norm)
        for weight, v, argument in zip(
            self.norm.weights, self.direction, self.norm.arguments, strict=True
        ):
            linear = linear + argument * (weight * v)
        return Atom(linear, "<=")


# --- where they may stand ---------------------------------------------------------------------------------------------


def misplaced(formula: Formula) -> str | None:
    """What is wrong with the place of a norm in the formula; ``None`` if every one bounds a convex set.

    Example:
        >>> x = Linear.of(Variable("x", 0))
        >>> inside = Atom(Linear.of(Norm((Fraction(2),), (x,))) - 1, "<=")
        >>> misplaced(inside), misplaced(Not(inside)) == OUTSIDE
        (None, True)
    """
    return _misplaced(formula, True, {})


def _misplaced(
    formula: Formula, polarity: bool, done: dict[tuple[int, bool], str | None]
) -> str | None:
    key = (id(formula), polarity)
    if key not in done:
        done[key] = _reason(formula, polarity, done)
    return done[key]


def _reason(
    formula: Formula, polarity: bool, done: dict[tuple[int, bool], str | None]
) -> str | None:
    match formula:
        case Atom(linear, relation):
            return _of_atom(linear, relation, polarity)
        case Not(argument):
            return _misplaced(argument, not polarity, done)
        case And(arguments) | Or(arguments):
            reasons = (_misplaced(a, polarity, done) for a in arguments)
            return next((reason for reason in reasons if reason), None)
        case Iff(left, right):
            sides = [(side, sign) for side in (left, right) for sign in (True, False)]
            reasons = (_misplaced(side, sign, done) for side, sign in sides)
            return next((reason for reason in reasons if reason), None)


def _of_atom(linear: Linear, relation: Relation, polarity: bool) -> str | None:
    if all(isinstance(symbol, Variable) for symbol, _ in linear.summands):
        return None
    norms = [s for s in symbols(Atom(linear, relation)) if isinstance(s, Norm)]
    if not norms:
        return None
    found = norm_in(linear)
    if found is None or len(norms) > 1:
        return (
            "several norms or squares in one comparison, or one inside `max`, `min`, `abs`, `if` or a function: "
            "compare each by itself, as in `norm(x) <= s`, `norm(y) <= t` and `s + t <= 3` with outputs s and t"
        )
    norm, coefficient = found
    if relation == "==":
        return (
            "the surface of a ball is not convex: write `<=`, or say which point of it"
        )
    if (coefficient > 0) != polarity:
        return OUTSIDE
    return _of_expressions([linear - Linear.of(norm) * coefficient, *norm.arguments])


def _of_expressions(linears: Sequence[Linear]) -> str | None:
    for linear in linears:
        for symbol, _ in linear.summands:
            if not isinstance(symbol, Variable):
                return (
                    "a norm is compared with sums of variables, and of sums of variables: products with inputs, `max`, "
                    "`abs`, `if` and functions in or beside it are not read"
                )
    return None
