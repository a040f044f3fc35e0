"""The functions of the rule language, each from values to a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil, floor
from typing import TypeVar

from multiplexnet.language.curves import length, squares_of
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Formula,
    Ite,
    Linear,
    Variable,
    conjunction,
    disjunction,
    ends,
    implies,
    maximum,
    negation,
)
from multiplexnet.language.parser.comparisons import comparison, equivalence
from multiplexnet.language.parser.moments import Moment, moment_number, new_year
from multiplexnet.language.parser.products import product_of
from multiplexnet.language.parser.values import (
    Cases,
    Label,
    Number,
    Refusal,
    Squares,
    Stairs,
    Truth,
    Value,
    Vector,
    amount,
    counted,
    described,
    exact,
    flat,
    integer,
    is_whole,
    meant,
    number,
    squares,
    total,
    truth,
    vector,
)

__all__ = [
    "FUNCTIONS",
    "TYPES",
    "WORDS",
    "Function",
    "dot",
    "product",
    "remainder",
    "rounded_quotient",
    "square",
]

LONGEST_RANGE = 100_000
LONGEST_CHOICE = 500
"""The most numbers among which ``argmax`` and ``argmin`` choose."""
LONGEST_REMAINDER = 4096
TYPES = ("real", "int", "bool", "input", "function")
_FIRST = (
    "implies",
    "iff",
    "xor",
    "all",
    "any",
    "sum",
    "min",
    "max",
    "abs",
    "len",
    "range",
)
WORDS = frozenset([*TYPES, *_FIRST, "assume"])
"""What no name may be, unless it is quoted. Types and functions that came later leave their names to old rules."""

T = TypeVar("T")
Values = Sequence[Value]


@dataclass(frozen=True)
class Function:
    """One function: how it is written, how many arguments it takes, what it gives."""

    usage: str
    least: int
    most: int | None
    result: Callable[[Values], Value]
    has_axis: bool = False

    def __call__(self, arguments: Values, axis: int | None = None) -> Value:
        count = len(arguments)
        too_few = count < self.least
        too_many = self.most is not None and count > self.most
        if too_few or too_many:
            raise Refusal(f"{counted(count, 'argument')}: write {self.usage}")
        if axis is None:
            return self.result(arguments)
        return Vector(tuple(self.result([line]) for line in _lines(arguments, axis)))


def _lines(arguments: Values, axis: int) -> list[Value]:
    """What a function runs along: the columns of a matrix for axis 0, its rows for axis 1."""
    if len(arguments) != 1:
        raise Refusal("`axis` with several arguments: give one matrix")
    rows = [meant(row) for row in _each(vector, arguments)[0]]
    lengths = {len(row.elements) if isinstance(row, Vector) else None for row in rows}
    if None in lengths or len(lengths) > 1:
        raise Refusal(
            "`axis` is for a matrix, as in `sum(w, axis=0)` after `w: real[3, 4]`", 0
        )
    if axis not in (0, 1, -1, -2):
        raise Refusal(
            f"axis {axis}: write 0 to run along the columns, 1 to run along the rows"
        )
    if axis in (1, -1):
        return rows
    columns = zip(*map(vector, rows), strict=True)
    return [Vector(tuple(column)) for column in columns]


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
    """The elements of the only argument as one kind, those of a matrix row by row."""
    (elements,) = _each(flat, arguments)
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
    (elements,) = _each(flat, arguments)
    if any(isinstance(meant(element), Squares) for element in elements):
        return reduce(Squares.__add__, _listed(squares, arguments))
    return Number(total(_listed(amount, arguments)))


def _compared(arguments: Values) -> list[Linear]:
    numbers = (
        _listed(number, arguments) if len(arguments) == 1 else _each(number, arguments)
    )
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
        raise Refusal(
            f"a range of more than {LONGEST_RANGE:,} numbers: use a shorter one"
        )
    return Vector(tuple(Number(Linear.number(i)) for i in numbers))


# --- sums, orders and positions ---------------------------------------------------------------------------------------


def _mean(arguments: Values) -> Value:
    numbers = _listed(amount, arguments)
    if not numbers:
        raise Refusal("the mean of nothing: give at least one number")
    return Number(total(numbers) * Fraction(1, len(numbers)))


def _count(arguments: Values) -> Value:
    elements = [meant(element) for element in _each(flat, arguments)[0]]
    try:
        return Number(total(map(_one_if, elements)))
    except Refusal as refusal:
        raise Refusal(refusal.reason, 0) from None


def _one_if(value: Value) -> Linear:
    """1 where it is true, else 0."""
    if isinstance(value, Truth) and value.variable:
        return Linear.of(value.variable)
    formula = truth(value)
    if formula in (TRUE, FALSE):
        return Linear.number(formula == TRUE)
    return Linear.of(Ite(formula, Linear.number(1), Linear()))


def _is_sorted(arguments: Values) -> Value:
    numbers = [Number(linear) for linear in _listed(number, arguments)]
    return Truth(conjunction(comparison("<=", a, b) for a, b in pairwise(numbers)))


def _argmax(arguments: Values) -> Value:
    return _first_of(_listed(number, arguments))


def _argmin(arguments: Values) -> Value:
    return _first_of([-linear for linear in _listed(number, arguments)])


def _first_of(numbers: Sequence[Linear]) -> Value:
    """The position of the largest number, the first of them if there are several."""
    if not numbers:
        raise Refusal("no numbers to choose from: give at least one")
    if len(numbers) > LONGEST_CHOICE:
        raise Refusal(
            f"the largest or smallest of {len(numbers):,} numbers, each compared with every other: at most "
            f"{LONGEST_CHOICE}; say which one it is by comparing that one alone, as in `all(v <= x[3] for v in x)`"
        )
    return Cases(tuple((i, _is_first(numbers, i)) for i in range(len(numbers))))


def _is_first(numbers: Sequence[Linear], place: int) -> Formula:
    own = Number(numbers[place])
    before = [comparison("<", Number(other), own) for other in numbers[:place]]
    after = [comparison("<=", Number(other), own) for other in numbers[place + 1 :]]
    return conjunction([*before, *after])


# --- products ---------------------------------------------------------------------------------------------------------


def product(left: Linear, right: Linear) -> Linear:
    """The product of two expressions, one of which is a number or known at run time."""
    if not left.is_constant and not right.is_constant:
        made = product_of(left, right)
        if made is None:
            raise Refusal(
                "product of variables: rules are linear; one factor has to be a number or an input"
            )
        return made
    linear, factor = (
        (left, right.constant) if right.is_constant else (right, left.constant)
    )
    scaled = linear * factor
    for c in (scaled.constant, *(c for _, c in scaled.summands)):
        exact(c)
    return scaled


def dot(left: Value, right: Value) -> Value:
    """``left @ right``: sums of products, as numpy has them, of vectors and of a matrix and a vector."""
    rows = [meant(row) for row in vector(left)]
    if rows and all(isinstance(row, Vector) for row in rows):
        return Vector(tuple(dot(row, right) for row in rows))
    columns = [meant(row) for row in vector(right)]
    if columns and all(isinstance(row, Vector) for row in columns):
        lines = zip(*map(vector, columns), strict=True)
        return Vector(tuple(dot(left, Vector(tuple(line))) for line in lines))
    if len(rows) != len(columns):
        raise Refusal(
            f"{counted(len(rows), 'element')} times {len(columns)}: both need as many"
        )
    pairs = zip(rows, columns, strict=True)
    numbers = [(amount(a), amount(b)) for a, b in pairs]
    if all(a == b for a, b in numbers) and not all(a.is_constant for a, _ in numbers):
        return reduce(Squares.__add__, (square(a) for a, _ in numbers))
    return Number(total(product(a, b) for a, b in numbers))


def _dot(arguments: Values) -> Value:
    left, right = arguments
    _each(vector, arguments)
    return dot(left, right)


def square(linear: Linear) -> Squares:
    """The square of a sum of variables.

    Raises:
        Refusal: of something else.
    """
    if any(not isinstance(symbol, Variable) for symbol, _ in linear.summands):
        raise Refusal(
            "a square of a product, a maximum, a condition or a function: name that by an output of its own"
        )
    return Squares(((Fraction(1), linear),))


def _norm(arguments: Values) -> Value:
    numbers = _listed(number, arguments[:1])
    order = meant(arguments[1]) if len(arguments) > 1 else Number(Linear.number(2))
    if order == Number(Linear.number(2)):
        return Number(_length(numbers, arguments[2:]))
    if len(arguments) > 2:
        raise Refusal("weights belong to `norm(x, 2, weights)` alone", 2)
    sizes = [maximum([linear, -linear]) for linear in numbers]
    if order == Label("inf"):
        return Number(maximum(sizes or [Linear()]))
    if isinstance(order, Number) and order.linear == Linear.number(1):
        return Number(total(sizes))
    raise Refusal(
        "a norm of another kind: write `norm(x)` (the length), `norm(x, 1)` (the sum of the sizes) or `norm(x, inf)` "
        "(the largest size)",
        1,
    )


def _length(numbers: Sequence[Linear], given: Values) -> Linear:
    """The Euclidean norm, with weights if they are given."""
    weights = [Fraction(1)] * len(numbers)
    if given:
        weights = [_positive(linear) for linear in _listed(number, given)]
    if len(weights) != len(numbers):
        raise Refusal(
            f"{counted(len(weights), 'weight')} for {counted(len(numbers), 'number')}: both need as many",
            2,
        )
    parts = [square(linear) * w for linear, w in zip(numbers, weights, strict=True)]
    return length([part for own in parts for part in own.squares])


def _positive(linear: Linear) -> Fraction:
    if not linear.is_constant or linear.constant <= 0:
        raise Refusal("weights are positive numbers, as in `norm(x, 2, [1, 4])`", 2)
    return linear.constant


def _quad(arguments: Values) -> Value:
    numbers = _listed(number, arguments[:1])
    (rows,) = _each(vector, arguments[1:])
    Q = [[_constant(number(c)) for c in vector(row)] for row in rows]
    n = len(numbers)
    if len(Q) != n or any(len(row) != n for row in Q):
        raise Refusal(
            f"`quad(x, Q)` of {counted(n, 'number')} needs {n} rows of {n} numbers", 1
        )
    for linear in numbers:
        square(linear)
    found = squares_of(Q, numbers)
    if found is None:
        raise Refusal(
            "this matrix is not positive semidefinite, so `quad(x, Q) <= c` is not convex: its eigenvalues have to be "
            "at least 0, exactly",
            1,
        )
    return Squares(tuple(found))


def _constant(linear: Linear) -> Fraction:
    if not linear.is_constant:
        raise Refusal("`quad(x, Q)` needs a matrix of constant numbers", 1)
    return linear.constant


# --- whole numbers ----------------------------------------------------------------------------------------------------


def _floor(arguments: Values) -> Value:
    (linear,) = _each(number, arguments)
    return rounded_quotient(linear, "floor")


def _ceil(arguments: Values) -> Value:
    (linear,) = _each(number, arguments)
    return rounded_quotient(linear, "ceil")


def _round(arguments: Values) -> Value:
    (linear,) = _each(number, arguments)
    return rounded_quotient(linear + Fraction(1, 2), "round")


def rounded_quotient(linear: Linear, name: str) -> Value:
    """The expression rounded down to a whole number, or up for ``ceil``."""
    if linear.is_constant:
        rounded = ceil(linear.constant) if name == "ceil" else floor(linear.constant)
        return Number(Linear.number(rounded))
    if name == "ceil":
        return Stairs(linear, lambda whole: whole - 1, strict=True, name=name)
    return Stairs(linear, lambda whole: whole, strict=False, name=name)


def remainder(linear: Linear, divisor: Linear) -> Value:
    """``linear % divisor`` of a whole number, as one case for each remainder."""
    if (
        not divisor.is_constant
        or divisor.constant.denominator > 1
        or divisor.constant < 1
    ):
        raise Refusal(
            "`%` needs a whole number on its right, and a positive one, as in `n % 3`"
        )
    if not is_whole(linear):
        raise Refusal(
            "`%` of a number that need not be whole: declare an `int`, as in `n: int[0, 99]`"
        )
    step = int(divisor.constant)
    if linear.is_constant:
        return Number(Linear.number(int(linear.constant) % step))
    first, last = _range_of(linear)
    if last - first >= LONGEST_REMAINDER:
        raise Refusal(
            f"a remainder of a number with more than {LONGEST_REMAINDER:,} values: declare the number of steps, as in "
            f"`q: int[0, 99]` and `n == {step}*q`, or the grid itself, as in `n: int[0, {99 * step}] step {step}`"
        )
    rests = sorted({n % step for n in range(first, last + 1)})
    return Cases(tuple((r, _remains(linear, r, step, first, last)) for r in rests))


def _remains(linear: Linear, rest: int, step: int, first: int, last: int) -> Formula:
    start = first + (rest - first) % step
    numbers = range(start, last + 1, step)
    return disjunction(
        comparison("==", Number(linear), Number(Linear.number(n))) for n in numbers
    )


def _range_of(linear: Linear) -> tuple[int, int]:
    """The least and the greatest value of an expression of whole numbers."""
    lower = upper = linear.constant
    for symbol, c in linear.summands:
        assert isinstance(symbol, Variable)
        least, most = ends(symbol.domain)
        assert least is not None
        assert most is not None
        lower += min(c * least, c * most)
        upper += max(c * least, c * most)
    return int(lower), int(upper)


# --- dates ------------------------------------------------------------------------------------------------------------


def _date(arguments: Values) -> Value:
    return _moment(arguments, "date")


def _datetime(arguments: Values) -> Value:
    return _moment(arguments, "datetime")


def _moment(arguments: Values, kind: Moment) -> Value:
    (argument,) = arguments
    if not isinstance(argument, Label):
        raise Refusal(
            f'{described(argument)}: write it in quotes, as in `{kind}("2024-08-03")`',
            0,
        )
    return Number(Linear.number(moment_number(argument.text, kind)), kind)


def _year(arguments: Values) -> Value:
    (linear,) = _each(number, arguments)
    kinds = {
        s.unit.kind if isinstance(s, Variable) else "int" for s, _ in linear.summands
    }
    coefficients = {c for _, c in linear.summands}
    if (
        kinds not in ({"date"}, {"datetime"})
        or len(linear.summands) != 1
        or coefficients != {1}
    ):
        raise Refusal(
            "the year of something else than a date: write `year(d)` after `d: date`", 0
        )
    kind: Moment = "date" if kinds == {"date"} else "datetime"

    def start(whole: Linear) -> Linear:
        if not whole.is_constant:
            raise Refusal("a year is compared with a number, as in `year(d) >= 2020`")
        return Linear.number(new_year(int(whole.constant), kind))

    return Stairs(linear, start, strict=False, name="year")


FUNCTIONS = {
    "implies": Function("`implies(p, q)`", 2, 2, _implies),
    "iff": Function("`iff(p, q)`", 2, 2, _iff),
    "xor": Function("`xor(p, q)`", 2, 2, _xor),
    "all": Function(
        "`all([p, q])` or `all(p for i in range(3))`", 1, 1, _all, has_axis=True
    ),
    "any": Function(
        "`any([p, q])` or `any(p for i in range(3))`", 1, 1, _any, has_axis=True
    ),
    "sum": Function(
        "`sum([a, b])` or `sum(x[i] for i in range(3))`", 1, 1, _sum, has_axis=True
    ),
    "min": Function(
        "`min(a, b)` or `min(x)` with a vector `x`", 1, None, _min, has_axis=True
    ),
    "max": Function(
        "`max(a, b)` or `max(x)` with a vector `x`", 1, None, _max, has_axis=True
    ),
    "abs": Function("`abs(a)`", 1, 1, _abs),
    "len": Function("`len(x)`", 1, 1, _len),
    "range": Function("`range(stop)` or `range(start, stop, step)`", 1, 3, _range),
    "mean": Function("`mean(x)`", 1, 1, _mean, has_axis=True),
    "count": Function(
        "`count(x > 0)` or `count(p for i in range(3))`", 1, 1, _count, has_axis=True
    ),
    "is_sorted": Function("`is_sorted(x)`", 1, 1, _is_sorted, has_axis=True),
    "argmax": Function("`argmax(x) == 0`", 1, 1, _argmax, has_axis=True),
    "argmin": Function("`argmin(x) == 0`", 1, 1, _argmin, has_axis=True),
    "dot": Function("`dot([1, 2], x)`", 2, 2, _dot),
    "norm": Function("`norm(x)`, `norm(x, 1)` or `norm(x, inf)`", 1, 3, _norm),
    "quad": Function("`quad(x, [[2, 1], [1, 2]]) <= 4`", 2, 2, _quad),
    "floor": Function("`floor(x) == 2`", 1, 1, _floor),
    "ceil": Function("`ceil(x) == 2`", 1, 1, _ceil),
    "round": Function(
        "`round(x) == 2`, and to two decimals `100*v == round(100*x)` with `v: decimal(2)[0, 99]`",
        1,
        1,
        _round,
    ),
    "date": Function('`date("2024-08-03")`', 1, 1, _date),
    "datetime": Function('`datetime("2024-08-03 14:30")`', 1, 1, _datetime),
    "year": Function("`year(d) >= 2020`", 1, 1, _year),
}
