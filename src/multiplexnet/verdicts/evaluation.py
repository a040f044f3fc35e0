"""Formulas over whole columns of exact numbers: where they hold, and where not, how far off each row is.

The violation of a formula is 0 where it holds. For ``a·x ≤ b`` it is the amount ``a·x − b``, for a ball the distance to
it (:func:`multiplexnet.language.curves.settled`); for ``and`` the largest
violation of its parts, for ``or`` the smallest; ``not`` is moved inwards first. A strict comparison that fails by
nothing, and ``x != y`` with equal sides, are violated by the smallest positive normal float.

A comparison of Booleans and categories alone is a *choice*: it has no unit, and one that fails is violated by 1, or for
Booleans by the count that is missing. An alternative of an ``or`` that needs another choice cannot be compared with
one that does not, and is passed over as long as there is one that does not. So ``implies(sex == "M", rate <= 100)`` is
violated by 80 where a man's rate is 180: it is not said that he might as well be no man. A part of an ``and`` that
needs another choice makes all of it need one; what the other parts miss still counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import inf, lcm
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import InputError
from multiplexnet.geometry.magnitudes import down, up
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Bool,
    Category,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Not,
    Or,
    Product,
    Real,
    Relation,
    Symbol,
    Variable,
    holds,
    norm_in,
    sign,
    value,
    variables,
)
from multiplexnet.verdicts.columns import (
    TINY,
    Column,
    Floats,
    Signs,
    amounts,
    bounded_amounts,
    product,
    select,
    signs,
    to_float64,
    total,
)
from multiplexnet.verdicts.curves import bounded_norm, near_value

__all__ = [
    "Bools",
    "ExactRows",
    "Functions",
    "amount",
    "in_domain",
    "largest_violation",
    "truth",
]

Bools = NDArray[np.bool_]
Functions = Mapping[str, Callable[..., Any]]
T = TypeVar("T")


# --- rows: what a formula is evaluated on ---------------------------------------------------------------------------


class ExactRows:
    """Some rows of exact numbers, one column a variable; every other symbol is evaluated on first use.

    Args:
        columns: the column of each variable, all of the same length.
        functions: for each opaque function a callable from float64 arrays to a float array, read as exact.
        length: the number of rows (needed when there is no column).
    """

    def __init__(
        self,
        columns: Mapping[Variable, Column],
        functions: Functions | None = None,
        length: int | None = None,
    ) -> None:
        self.variables = columns
        self.functions = functions or {}
        self.length = len(next(iter(columns.values()))) if length is None else length
        self.odd: set[int] = (
            set()
        )  # rows where Max and Ite have no column, or a function none
        self.bad = np.zeros(
            self.length, dtype=np.bool_
        )  # some function gave no finite number
        self._columns: dict[Symbol, Column] = dict(columns.items())
        self._signs: dict[Linear, Signs] = {}

    def take(self, index: NDArray[np.intp]) -> ExactRows:
        """These rows alone."""
        columns = {v: column.take(index) for v, column in self.variables.items()}
        taken = ExactRows(columns, self.functions, len(index))
        for symbol, column in self._columns.items():
            if isinstance(symbol, Apply):
                taken._columns[symbol] = column.take(index)
        return taken

    def column(self, symbol: Symbol) -> Column:
        if symbol not in self._columns:
            self._columns[symbol] = self._evaluated(symbol)
        return self._columns[symbol]

    def signs(self, linear: Linear) -> Signs:
        if linear not in self._signs:
            self._signs[linear] = self._signs_of(linear)
        return self._signs[linear]

    def _signs_of(self, linear: Linear) -> Signs:
        if norm_in(linear) is None:
            return signs(self._weighted(linear), linear.constant, self.length)
        near, error = self.bounded_amounts(linear)
        decided = np.abs(near) > error  # of NaN, ∞ - ∞ beyond float64's squares, never
        found = np.zeros(self.length, dtype=np.int8)
        found[decided] = np.sign(near[decided])
        for row in np.flatnonzero(~decided).tolist():
            exact = sign(linear, self.point(row))
            found[row] = (exact > 0) - (exact < 0)
        return found

    def amounts(self, linear: Linear) -> Floats:
        if norm_in(linear) is None:
            return amounts(self._weighted(linear), linear.constant, self.length)
        found, _ = self.bounded_amounts(linear)
        exact = self.signs(linear)
        is_near = np.isfinite(found) & (np.sign(found) == exact)
        for row in np.flatnonzero(~is_near).tolist():
            found[row] = to_float64(near_value(linear, self.point(row)))
        return np.where(np.sign(found) == exact, found, TINY * exact)  # underflow

    def bounded_amounts(self, linear: Linear) -> tuple[Floats, Floats]:
        found = norm_in(linear)
        if found is None:
            return bounded_amounts(self._weighted(linear), linear.constant, self.length)
        norm, c = found
        rest = Linear(linear.summands[:-1], linear.constant)
        with np.errstate(all="ignore"):
            parts = [self.bounded_amounts(argument) for argument in norm.arguments]
            return bounded_norm(norm, c, parts, self.bounded_amounts(rest))

    def decided_singly(self, formula: Formula) -> set[int]:
        """The rows where columns do not hold the numbers of the formula; known once it has been evaluated."""
        mentioned = [v for v in self.variables if self.variables[v].odd]
        if mentioned:
            mentioned = [v for v in variables(formula) if v in mentioned]
        return self.odd.union(*(self.variables[v].odd for v in mentioned))

    def point(self, row: int) -> dict[Variable, Fraction]:
        return {
            variable: column.exact(row) for variable, column in self.variables.items()
        }

    def functions_at(self, row: int) -> Mapping[str, Callable[..., Fraction]]:
        """The opaque functions at this row's arguments, as exact numbers."""
        known: dict[str, dict[tuple[Fraction, ...], Fraction]] = {}
        result = {
            name: lambda *arguments, name=name: known[name][arguments]
            for name in self.functions
        }
        for symbol in [s for s in self._columns if isinstance(s, Apply)]:
            arguments = tuple(
                value(a, self.point(row), result) for a in symbol.arguments
            )
            known.setdefault(symbol.function, {})[arguments] = self._columns[
                symbol
            ].exact(row)
        return result

    def _weighted(self, linear: Linear) -> list[tuple[Fraction, Column]]:
        return [(c, self.column(symbol)) for symbol, c in linear.summands]

    def _evaluated(self, symbol: Symbol) -> Column:
        match symbol:
            case Product(known, other):
                column, lost = product(self.column(known), self.column(other))
                self.odd |= set(lost.tolist())
                return column
            case Max(arguments):
                return reduce(self._larger, self._totals(arguments))
            case Ite(condition, then, otherwise):
                is_false = ~_truth(condition, self)
                return select(is_false.astype(np.intp), self._totals((then, otherwise)))
            case Apply(function, arguments):
                return self._applied(function, arguments)
        raise KeyError(symbol)

    def _totals(self, linears: tuple[Linear, ...]) -> list[Column]:
        """The expressions as columns of one unit; rows that have no such column become odd."""
        denominators = []
        for linear in linears:
            denominators.append(linear.constant.denominator)
            for coefficient, column in self._weighted(linear):
                denominators.append((coefficient * column.unit).denominator)
        common = lcm(*denominators)
        columns = []
        for linear in linears:
            column, lost = total(
                self._weighted(linear), linear.constant, self.length, common
            )
            self.odd |= set(lost.tolist())
            columns.append(column)
        return columns

    def _larger(self, first: Column, second: Column) -> Column:
        difference = [(Fraction(1), second), (Fraction(-1), first)]
        second_wins = signs(difference, Fraction(0), self.length) > 0
        return select(second_wins.astype(np.intp), [first, second])

    def _applied(self, function: str, arguments: tuple[Linear, ...]) -> Column:
        if function not in self.functions:
            raise InputError(
                f"the rules call {function}(…): give the function, functions={{{function!r}: …}}"
            )
        given = [self.amounts(argument) for argument in arguments]
        values = np.asarray(self.functions[function](*given), dtype=np.float64)
        finite = np.isfinite(values)
        self.bad |= ~finite
        column = Column.floats(np.where(finite, values, 0.0))
        self.odd |= column.odd.keys()
        return column


# --- truth ----------------------------------------------------------------------------------------------------------


def _truth(formula: Formula, rows: ExactRows) -> Bools:
    match formula:
        case Atom(linear, relation):
            return _obeys(rows.signs(linear), relation)
        case Not(argument):
            return ~_truth(argument, rows)
        case And(arguments):
            return reduce(
                np.logical_and,
                (_truth(a, rows) for a in arguments),
                np.ones(rows.length, dtype=np.bool_),
            )
        case Or(arguments):
            return reduce(
                np.logical_or,
                (_truth(a, rows) for a in arguments),
                np.zeros(rows.length, dtype=np.bool_),
            )
        case Iff(left, right):
            return ~(_truth(left, rows) ^ _truth(right, rows))


def _obeys(values: Signs | Floats, relation: Relation) -> Bools:
    """Where ``value relation 0`` holds."""
    if relation == "<=":
        return values <= 0
    if relation == "<":
        return values < 0
    return np.asarray(values == 0, dtype=np.bool_)


def truth(formula: Formula, rows: ExactRows) -> Bools:
    """Whether the formula holds, row by row."""
    result: Bools = _truth(formula, rows)
    for row in rows.decided_singly(formula):
        result[row] = holds(formula, rows.point(row), rows.functions_at(row))
    return result & ~rows.bad


def in_domain(variable: Variable, rows: ExactRows, *, ranges: bool = False) -> Bools:
    """Whether the variable has a value of its domain: an integer in range; with ``ranges``, a real one in its range."""
    match variable.domain:
        case Real() as domain:
            return truth(And(_bounds(variable, domain) if ranges else ()), rows)
        case domain:
            return _in_values(variable, domain.values, rows)


def _bounds(variable: Variable, domain: Real) -> tuple[Atom, ...]:
    """The declared range of a real variable."""
    bounds = []
    if domain.lower is not None:
        bounds.append(Atom(-Linear.of(variable) + domain.lower, "<="))
    if domain.upper is not None:
        bounds.append(Atom(Linear.of(variable) - domain.upper, "<="))
    return tuple(bounds)


def _in_values(variable: Variable, values: range, rows: ExactRows) -> Bools:
    """Whether the variable has one of these integer values."""
    column = rows.column(variable)
    if column.unit == 1 and len(column.parts) == 1:
        result = _floats_in(column.parts[0], values)
    else:
        result = _sums_in(column, values)
    for row, number in column.odd.items():
        result[row] = number.denominator == 1 and int(number) in values
    return result


def _floats_in(numbers: Floats, values: range) -> Bools:
    """Whether plain floats are among these integers: whether they equal the one next to them."""
    first = up(Fraction(values[0]))
    last = down(Fraction(values[-1]))
    if first > last:  # no float64 lies in the domain
        return np.zeros(len(numbers), dtype=np.bool_)
    return np.asarray(numbers == np.rint(numbers).clip(first, last))


def _sums_in(column: Column, values: range) -> Bools:
    """The same for numbers that need a unit or several parts, such as 2^53 + 1.

    The integer next to such a number need not be a float64 either: it is the float next to it and, where that is too
    long for the units, the rest, rounded. Whether the two add up to the number is decided exactly, as is the range.
    """
    length = len(column)
    one = Fraction(1)
    zero = Fraction(0)
    own = [(one, column)]
    first = Fraction(values[0])
    last = Fraction(values[-1])
    below = signs(own, -first, length) < 0
    above = signs(own, -last, length) > 0
    with np.errstate(all="ignore"):
        near = np.rint(column.near * to_float64(column.unit))
    high = Column((_finite(near),))
    low = amounts([*own, (-one, high)], zero, length)
    integer = Column((*high.parts, _finite(np.rint(low))))
    is_integer = signs([*own, (-one, integer)], zero, length) == 0
    return np.asarray(is_integer & ~below & ~above)


def _finite(numbers: Floats) -> Floats:
    """The numbers, 0 where they are infinite or NaN."""
    return np.where(np.isfinite(numbers), numbers, 0.0)


# --- amounts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Walk(Generic[T]):
    """The violation of a formula and that of its negation, over any ordered values: arrays or exact ones."""

    atom: Callable[[Atom], tuple[T, T]]
    largest: Callable[[T, T], T]
    smallest: Callable[[T, T], T]
    nothing: T
    infinite: T

    def __call__(self, formula: Formula) -> tuple[T, T]:
        match formula:
            case Atom():
                return self.atom(formula)
            case Not(argument):
                return self(argument)[::-1]
            case And(arguments):
                pairs = [self(a) for a in arguments]
                return self._max(p for p, _ in pairs), self._min(n for _, n in pairs)
            case Or(arguments):
                pairs = [self(a) for a in arguments]
                return self._min(p for p, _ in pairs), self._max(n for _, n in pairs)
            case Iff(left, right):
                p, n = self(left)
                q, m = self(right)
                both = self.largest(p, q)
                neither = self.largest(n, m)
                only_left = self.largest(p, m)
                only_right = self.largest(n, q)
                return self.smallest(both, neither), self.smallest(
                    only_left, only_right
                )

    def _max(self, values: Iterator[T]) -> T:
        return reduce(self.largest, values, self.nothing)

    def _min(self, values: Iterator[T]) -> T:
        return reduce(self.smallest, values, self.infinite)


def _is_choice(atom: Atom) -> bool:
    """Whether the atom speaks of Booleans and categories alone."""
    found = [symbol for symbol, _ in atom.linear.summands]
    return bool(found) and all(
        isinstance(s, Variable) and isinstance(s.domain, Bool | Category) for s in found
    )


def _is_count(atom: Atom) -> bool:
    """Whether the atom speaks of Booleans alone, so that its amount is a number of them."""
    return all(
        isinstance(s, Variable) and isinstance(s.domain, Bool)
        for s, _ in atom.linear.summands
    )


@dataclass(frozen=True)
class _Far:
    """Violations row by row: whether another choice is needed, shape (N,), and amounts, shape (N,) or (2, N)."""

    choice: Bools
    amount: Floats

    def largest(self, other: _Far) -> _Far:
        return _Far(self.choice | other.choice, np.maximum(self.amount, other.amount))

    def smallest(self, other: _Far) -> _Far:
        """That without another choice; among equals the smaller amount."""
        near = np.minimum(self.amount, other.amount)
        near = np.where(self.choice < other.choice, self.amount, near)
        near = np.where(other.choice < self.choice, other.amount, near)
        return _Far(self.choice & other.choice, near)


def _amounts(formula: Formula, rows: ExactRows, *, bounds: bool = False) -> Floats:
    """Violations in float64, shape (N,). With ``bounds`` a lower and an upper bound of the exact ones, shape (2, N)."""

    def distance(linear: Linear) -> tuple[Floats, Floats]:
        """The value, and how far it is from zero; never 0."""
        if not bounds:
            near = rows.amounts(linear)
            return near, np.maximum(np.abs(near), TINY)
        near, error = rows.bounded_amounts(linear)
        size = np.abs(near)
        low = np.maximum(size - error, TINY)
        low = np.where(np.isfinite(error), low, TINY)
        high = np.maximum(size + error, TINY)
        return near, np.stack([low, high])

    def atom(a: Atom) -> tuple[_Far, _Far]:
        near, far = distance(a.linear)
        obeyed = _obeys(near, a.relation)
        turned = far
        if a.relation == "==":
            turned = np.full_like(far, TINY)
        is_choice = _is_choice(a)
        if is_choice and _is_count(a):
            far = np.maximum(far, 1.0)
            turned = np.maximum(turned, 1.0)
        elif is_choice:
            far = np.ones_like(far)
            turned = np.ones_like(far)
        choice = np.full(rows.length, is_choice)
        violation = np.where(obeyed, 0.0, far)
        of_negation = np.where(obeyed, turned, 0.0)
        return _Far(choice & ~obeyed, violation), _Far(choice & obeyed, of_negation)

    shape = (2, rows.length) if bounds else (rows.length,)
    never = np.zeros(rows.length, dtype=np.bool_)
    nothing = _Far(never, np.zeros(shape))
    infinite = _Far(~never, np.full(shape, inf))
    walk = _Walk[_Far](atom, _Far.largest, _Far.smallest, nothing, infinite)
    violation, _ = walk(formula)
    return violation.amount


class _Exact(NamedTuple):
    """An exact violation; one that needs another choice is larger than any that does not."""

    needs_choice: bool
    amount: Fraction | float
    is_there: bool  # a strict comparison can fail by 0


_OBEYED = _Exact(False, Fraction(0), False)
_HOPELESS = _Exact(True, inf, True)


def _larger(first: _Exact, second: _Exact) -> _Exact:
    needs_choice = first.needs_choice or second.needs_choice
    amount = max(first.amount, second.amount)
    is_there = first.is_there or second.is_there
    return _Exact(needs_choice, amount, is_there)


def _exact_amount(formula: Formula, rows: ExactRows, row: int) -> Fraction | float:
    point = rows.point(row)
    functions = rows.functions_at(row)

    def atom(a: Atom) -> tuple[_Exact, _Exact]:
        v = (
            near_value(a.linear, point)
            if norm_in(a.linear)
            else value(a.linear, point, functions)
        )
        missed = abs(v) if a.relation == "==" else v
        turned = Fraction(0) if a.relation == "==" else -v
        if _is_choice(a):
            missed = max(missed, Fraction(1)) if _is_count(a) else Fraction(1)
            turned = max(turned, Fraction(1)) if _is_count(a) else Fraction(1)
        if holds(a, point, functions):
            return _OBEYED, _Exact(_is_choice(a), turned, True)
        return _Exact(_is_choice(a), missed, True), _OBEYED

    walk = _Walk[_Exact](atom, _larger, min, _OBEYED, _HOPELESS)
    violation, _ = walk(formula)
    return violation.amount


def amount(formula: Formula, rows: ExactRows) -> Floats:
    """How far each row is from obeying the formula: 0 exactly where it holds, infinity where a value is none."""
    result = _amounts(formula, rows)
    for row in rows.decided_singly(formula):
        if holds(formula, rows.point(row), rows.functions_at(row)):
            result[row] = 0.0
        else:
            exact = to_float64(_exact_amount(formula, rows, row))
            result[row] = max(exact, TINY)
    return np.where(rows.bad, inf, result)


def largest_violation(
    formula: Formula, rows: ExactRows, violating: NDArray[np.intp], floor: float = 0.0
) -> Fraction | float:
    """The exact largest violation among these rows (infinite where nothing could obey, as with the rule ``False``).

    Float64 with error bounds leaves a few candidates, distinct rows of which are evaluated in fractions. ExactRows that
    certainly violate by less than ``floor`` are passed over.
    """
    few = rows.take(violating)
    with np.errstate(all="ignore"):
        low, high = _amounts(formula, few, bounds=True)
    found_odd = set(few.odd)
    singly = rows.decided_singly(formula)
    if singly:
        found_odd |= {k for k, row in enumerate(violating.tolist()) if row in singly}
    odd = sorted(found_odd)
    low[odd] = 0.0
    high[odd] = 0.0
    best = int(np.argmax(low))
    candidates = np.flatnonzero((high > 0) & (high >= max(low[best], floor)))
    if high[best] == low[best] == high.max() and len(candidates):
        candidates = np.array([best])
    chosen = [*_distinct(few, candidates).tolist(), *odd]
    exact = [_exact_amount(formula, rows, int(violating[k])) for k in chosen]
    return max(exact, default=Fraction(0))


def _distinct(rows: ExactRows, index: NDArray[np.intp]) -> NDArray[np.intp]:
    """The first of each group of equal rows."""
    if len(index) < 2:
        return index
    parts = [part[index] for column in rows.variables.values() for part in column.parts]
    _, first = np.unique(np.stack(parts, axis=1), axis=0, return_index=True)
    return index[np.sort(first)]
