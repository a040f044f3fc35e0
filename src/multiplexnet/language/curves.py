"""Curved walls: ``norm(x - c) <= t``, sums of squares, and where in a formula they may stand.

There is one kind of curved comparison, a second-order cone: ``√(Σ w_i l_i²) ≤ t`` with linear ``l_i`` and ``t``. It is
a convex set, so a conjunction of such comparisons and of linear ones is convex too. A sum of squares is one of them.
First its squares are completed, which moves what the other side has of the same expressions to the centre:

    Σ w_i l_i² + Σ λ_i l_i   is   Σ w_i (l_i + λ_i / 2 w_i)² − Σ λ_i² / 4 w_i

    Σ w_i l_i² ≤ c    is   √(Σ (w_i / c) l_i²) ≤ 1                for a number c > 0
    Σ w_i l_i² ≤ s    is   √(Σ 4 w_i l_i² + (s − 1)²) ≤ s + 1     for an expression s

and for a number c < 0 there is no point. Squares of which some are combinations of others and of numbers are taken
apart into independent ones around the centre, and what they are at least goes to the other side (:func:`independent`):

    x² + (x − 2)² + y² ≤ 4    is   2 (x − 1)² + y² ≤ 2

A norm that is compared with a number is multiplied by a positive one, so that
by how much the comparison fails is a length, the same however the set is written (:func:`settled`).

The outside of such a set is not convex, so nothing may negate the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, sqrt
from typing import TypeVar

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
    Real,
    Relation,
    Symbol,
    Variable,
    compare,
    conjunction,
    maximum,
    negation,
    norm_in,
    sign,
    symbols,
)

__all__ = [
    "Square",
    "Tangent",
    "completed",
    "flattened",
    "form_of",
    "independent",
    "is_constant",
    "length",
    "merged",
    "misplaced",
    "put_in",
    "radius",
    "root",
    "settled",
    "squares_of",
    "within",
]

Key = TypeVar("Key")

Square = tuple[Fraction, Linear]
"""``weight · linear²``."""

LONG = 128
"""Numbers with more bits than this are long."""
MANY = 16
"""Sums of more variables than this are long."""
FURTHEST = 1e150
"""Of a norm with longer expressions, or shorter ones than its inverse, no length is told."""
FAR = 300
"""Weights with more binary digits than this before the point, or zeros behind it, are measured in another unit."""

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
    squares, rest = completed(squares, rest)
    bound = -rest
    if not bound.is_constant:
        scaled = [(4 * weight, linear) for weight, linear in squares]
        one = (Fraction(1), bound - 1)
        missed = length([*scaled, one]) - bound - 1
        return settled(missed * Fraction(1, 2), relation)
    number = bound.constant
    if number <= 0:
        return settled(length(squares) - number, relation)
    unit = [(w / number, linear) for w, linear in merged(squares)]
    if len(unit) == 1 and (size := root(1 / unit[0][0])) is not None:
        own = unit[0][1]
        scale = radius(Norm((Fraction(1),), (own,)), Fraction(1))
        return Atom((maximum([own, -own]) - size) * scale, relation)
    return settled(length(unit) - 1, relation)


def completed(squares: Sequence[Square], rest: Linear) -> tuple[list[Square], Linear]:
    """The same sum ``Σ weight · linear² + rest``, what rest has of the squared expressions moved into the squares.

    Squared expressions that are combinations of others stay as they are. Outputs are removed from rest before inputs.

    Example:
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> squares, rest = completed([(Fraction(1), x), (Fraction(1), y)], x * -4 + 3)
        >>> squares[0][1] == x - 2, squares[1][1] == y, rest == Linear.number(-1)
        (True, True, True)
    """
    if rest.is_constant:
        return list(squares), rest
    shares = _shares([linear for _, linear in squares], rest)
    found = []
    for (weight, linear), share in zip(squares, shares, strict=True):
        shift = share / (2 * weight)
        found.append((weight, linear + shift))
        if share:
            rest = rest - linear * share - share * shift / 2
    return found, rest


def _shares(linears: Sequence[Linear], rest: Linear) -> list[Fraction]:
    """Numbers λ such that ``rest − Σ λ · linear`` has as few variables of the expressions as can be."""
    echelon: list[tuple[Symbol | int, dict[Symbol | int, Fraction]]] = []
    for i, linear in enumerate(linears):
        row: dict[Symbol | int, Fraction] = dict(linear.summands)
        row[i] = Fraction(1)  # how much of which expression is in the row
        _reduce(row, echelon)
        names = [key for key in row if not isinstance(key, int)]
        if not names:
            continue
        pivot = next((s for s in names if not _is_input(s)), names[0])
        scale = 1 / row[pivot]
        echelon.append((pivot, {key: c * scale for key, c in row.items()}))
    wanted: dict[Symbol | int, Fraction] = dict(rest.summands)
    _reduce(wanted, echelon)
    return [-wanted.get(i, Fraction(0)) for i in range(len(linears))]


def _is_input(symbol: Symbol) -> bool:
    return isinstance(symbol, Variable) and symbol.is_input


def _reduce(
    row: dict[Key, Fraction], echelon: Sequence[tuple[Key, dict[Key, Fraction]]]
) -> None:
    """Subtract multiples of other rows, each with 1 at its pivot, so that the row has no pivot left, and no zeros."""
    for pivot, other in echelon:
        factor = row.get(pivot)
        if not factor:
            continue
        for key, c in other.items():
            left = row.get(key, Fraction(0)) - factor * c
            if left:
                row[key] = left
            else:
                row.pop(key, None)


def settled(linear: Linear, relation: Relation) -> Formula:
    """``linear relation 0``, a norm that is compared with a number in one of few ways.

    One that is compared with 0 or less is written without it; one of dependent expressions with independent ones;
    otherwise the number goes into the weights, unless all of these are 1. Then ``norm <= 1`` is multiplied by a length
    r, by the radius of a ball and for an ellipsoid by its shortest half axis or less: outside, ``r · (norm − 1)`` is
    the distance from the ball, and no more than that from the ellipsoid.
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
    if bound <= 0:
        return Atom(linear, relation)
    fewer = independent(norm)
    if fewer is not None:
        squares, least = fewer
        room = Linear.number(least - bound * bound)
        if coefficient > 0:
            return within(squares, room, relation)
        return negation(within(squares, room, "<" if relation == "<=" else "<="))
    if any(weight != 1 for weight in norm.weights):
        scaled = tuple(weight / (bound * bound) for weight in norm.weights)
        norm = Norm(scaled, norm.arguments)
        bound = Fraction(1)
    missed = Linear.of(norm) - bound
    scale = radius(norm, Fraction(1))
    return Atom(missed * (scale if coefficient > 0 else -scale), relation)


def independent(norm: Norm) -> tuple[list[Square], Fraction] | None:
    """The norm's square as squares of independent expressions and the least that it can be; ``None``: as it stands.

    It stands if its expressions are independent, or so many with so many variables that their numbers would be long.

    Example:
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> one = Fraction(1)
        >>> (first, second), least = independent(Norm((one, one, one), (x, x - 2, y)))
        >>> first == (2, x - 1), second == (1, y), least
        (True, True, Fraction(2, 1))
        >>> independent(Norm((one, one), (x + y, y - 2))) is None
        True
    """
    parts = [part for part in _shared(norm.arguments) if _depend(norm, part)]
    if not parts:
        return None
    moved: set[int] = set()
    pairs = list(zip(norm.weights, norm.arguments, strict=True))
    found: list[Square] = []
    for part in parts:
        squares = _taken_apart([pairs[i] for i in part])
        if squares is not None:
            found += squares
            moved.update(part)
    if not moved:
        return None
    found += [square for i, square in enumerate(pairs) if i not in moved]
    least = sum(
        (w * own.constant**2 for w, own in found if own.is_constant), Fraction(0)
    )
    return [square for square in found if not square[1].is_constant], least


def _taken_apart(squares: Sequence[Square]) -> list[Square] | None:
    """Their sum as squares of independent expressions and of a number, outputs before inputs; ``None`` if it is large.

    Those of long sums have numbers of so many digits that all that follows takes longer than it is worth.
    """
    if any(len(linear.summands) > MANY for _, linear in squares):
        return None
    names = dict.fromkeys(s for _, linear in squares for s in linear.symbols)
    variables = [s for s in names if isinstance(s, Variable)]
    if len(variables) < len(names):
        return None
    variables.sort(key=lambda v: (v.is_input, v.index))
    places: dict[Symbol, int] = {v: i for i, v in enumerate(variables)}
    n = len(variables)
    Q = [[Fraction(0)] * (n + 1) for _ in range(n + 1)]
    for weight, linear in squares:
        held = [(places[s], c) for s, c in linear.summands]
        held.append((n, linear.constant))
        for i, a in held:
            own = weight * a
            for j, b in held:
                Q[i][j] += own * b
    one = Linear.number(Fraction(1))
    found = squares_of(Q, [*map(Linear.of, variables), one])
    assert found is not None  # a sum of squares is never negative
    is_large = n > MANY and any(_is_long(linear) for _, linear in found)
    return None if is_large else found


def _shared(linears: Sequence[Linear]) -> list[list[int]]:
    """The places of expressions that may depend on each other, those with variables in common together.

    An expression with a variable of its own takes part in no dependence; without it, others may have one.
    """
    holders: dict[Symbol, set[int]] = {}
    for i, linear in enumerate(linears):
        for symbol in linear.symbols:
            holders.setdefault(symbol, set()).add(i)
    left = dict.fromkeys(range(len(linears)))
    alone = [symbol for symbol, held in holders.items() if len(held) == 1]
    while alone:
        for i in list(holders[alone.pop()]):
            del left[i]
            for symbol in linears[i].symbols:
                holders[symbol].discard(i)
                if len(holders[symbol]) == 1:
                    alone.append(symbol)
    found = []
    while left:
        fresh = [next(iter(left))]
        del left[fresh[0]]
        part = []
        while fresh:
            i = fresh.pop()
            part.append(i)
            for symbol in linears[i].symbols:
                beside = [j for j in holders[symbol] if j in left]
                fresh += beside
                for j in beside:
                    del left[j]
        found.append(sorted(part))
    return found


def _depend(norm: Norm, part: Sequence[int]) -> bool:
    """Whether some combination of these arguments, not all of its numbers 0, is constant."""
    echelon: list[tuple[Symbol, dict[Symbol, Fraction]]] = []
    for i in part:
        row = dict(norm.arguments[i].summands)
        _reduce(row, echelon)
        if not row:
            return True
        pivot, c = next(iter(row.items()))
        echelon.append((pivot, {symbol: a / c for symbol, a in row.items()}))
    return False


def radius(norm: Norm, bound: Fraction) -> Fraction:
    """The radius of the ball ``norm <= bound``, of an ellipsoid its shortest half axis or less, nearly.

    It is ``bound / √λ`` with the largest sum of sizes in a row of ``AᵀWA`` as λ, which no eigenvalue exceeds
    (Gershgorin). Inputs stand still.

    Example:
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> one = Fraction(1)
        >>> radius(Norm((one, one), (x, y - 3)), 3 * one), radius(Norm((one, 4 * one), (x, y)), 3 * one)
        (Fraction(3, 1), Fraction(3, 2))
    """
    products: dict[Symbol, dict[Symbol, float]] = {}
    unit = _unit(max(norm.weights))
    try:
        for weight, argument in zip(norm.weights, norm.arguments, strict=True):
            held = [(s, float(c)) for s, c in argument.summands if not _is_input(s)]
            size = float(weight / (unit * unit) if unit != 1 else weight)
            for symbol, c in held:
                row = products.setdefault(symbol, {})
                for other, d in held:
                    row[other] = row.get(other, 0.0) + size * c * d
        largest = max(
            (sum(map(abs, row.values())) for row in products.values()), default=0.0
        )
        inverse = 1 / sqrt(largest)
    except (OverflowError, ZeroDivisionError, ValueError):  # beyond floats
        return bound
    if not 1 / FURTHEST < inverse < FURTHEST:
        return bound
    exact = Fraction(inverse) * bound / unit
    short = exact.limit_denominator(1 << 20)
    return short if abs(short - exact) <= exact / 10**14 else exact


def _unit(number: Fraction) -> Fraction:
    """1, or a power of two near the root of a number that is far from it."""
    bits = number.numerator.bit_length() - number.denominator.bit_length()
    return Fraction(1) if abs(bits) < FAR else Fraction(2) ** (bits // 2)


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
            if not factor:
                continue
            constant += factor * own.constant
            for symbol, c in own.summands:
                coefficients[symbol] = (
                    coefficients.get(symbol, Fraction(0)) + factor * c
                )
        found.append((pivot, Linear.total(coefficients, constant)))
        held = [i for i in range(k + 1, n) if column[i - k]]
        for at, i in enumerate(held):
            for j in held[at:]:
                rest[i][j] -= factors[i - k] * column[j - k]
                rest[j][i] = rest[i][j]
    return found


def form_of(
    norm: Norm,
) -> tuple[dict[Symbol, Fraction], list[list[Fraction]]] | None:
    """Centre and matrix of a quadratic form that :func:`squares_of` took apart into long numbers; ``None`` for others.

    Its squares are ``x_k + …`` with variables behind x_k, in the order of the variables, one for each of them. The
    numbers of many variables have thousands of digits, those of the matrix as many as were written.
    """
    names = [argument.symbols[0] for argument in norm.arguments if argument.summands]
    places = {symbol: k for k, symbol in enumerate(names)}
    if len(places) < len(norm.arguments) or not any(map(_is_long, norm.arguments)):
        return None
    for k, argument in enumerate(norm.arguments):
        if argument.summands[0][1] != 1 or not all(
            isinstance(s, Variable)
            and isinstance(s.domain, Real)
            and places.get(s, -1) >= k
            for s in argument.symbols
        ):
            return None
    centre: dict[Symbol, Fraction] = {}
    for name, argument in zip(names[::-1], norm.arguments[::-1], strict=True):
        rest = argument.constant
        for symbol, c in argument.summands[1:]:
            if centre[symbol]:
                rest += c * centre[symbol]
        centre[name] = -rest
    n = len(names)
    Q = [[Fraction(0)] * n for _ in range(n)]
    for weight, argument in zip(norm.weights, norm.arguments, strict=True):
        held = [(places[s], c) for s, c in argument.summands]
        for at, (i, a) in enumerate(held):
            own = weight * a
            for j, b in held[at:]:
                Q[i][j] += own * b
    for i in range(n):
        for j in range(i):
            Q[i][j] = Q[j][i]
    return {name: centre[name] for name in names}, Q


def _is_long(linear: Linear) -> bool:
    numbers = (linear.constant, *(c for _, c in linear.summands))
    return any(c.denominator.bit_length() > LONG for c in numbers)


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
        pairs = zip(self.norm.weights, self.direction, strict=True)
        return sum((w * v * v for w, v in pairs if v), Fraction(0)) <= 1

    @property
    def atom(self) -> Atom:
        linear = -Linear.of(self.norm)
        for weight, v, argument in zip(
            self.norm.weights, self.direction, self.norm.arguments, strict=True
        ):
            if v:
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
