"""Formulas of linear arithmetic as plain frozen data.

A *formula* is a Boolean combination of *atoms*; an atom compares a linear expression with zero. Numbers are
``fractions.Fraction`` throughout, so nothing is rounded before geometry is done::

    Formula = Atom | Not | And | Or | Iff
    Atom    = Linear  (<=, <, ==)  0
    Linear  = constant + Σ coefficient · Symbol
    Symbol  = Variable | Product | Apply | Max | Ite | Norm

``Product`` is an input times another variable: linear in the outputs once inputs are known. ``Apply`` is an opaque
function of linear arguments; ``Max`` and ``Ite`` keep ``max``, ``min``, ``abs`` and ``a if p else b`` as the user wrote
them until :mod:`multiplexnet.compiler.normal` removes them. ``Norm`` is the one curved symbol: ``norm(x) <= t`` is a
convex set, and such comparisons occur unnegated only (:mod:`multiplexnet.language.curves`).

Discrete variables are numbers too: a Boolean is 0 or 1, a category is the position of its label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd, lcm
from typing import Literal, overload

__all__ = [
    "FALSE",
    "ONE",
    "TRUE",
    "And",
    "Apply",
    "Atom",
    "Bool",
    "Category",
    "Domain",
    "Formula",
    "Iff",
    "Int",
    "Ite",
    "Linear",
    "Max",
    "Node",
    "Norm",
    "Not",
    "Or",
    "Point",
    "Product",
    "Real",
    "Relation",
    "Rule",
    "Specification",
    "Symbol",
    "Unit",
    "Variable",
    "atoms",
    "children",
    "compare",
    "conjunction",
    "conjuncts",
    "coprime",
    "count_of",
    "disjunction",
    "ends",
    "holds",
    "implies",
    "inside_out",
    "maximum",
    "nearest_to_zero",
    "negation",
    "norm_in",
    "operands",
    "sign",
    "symbols",
    "value",
    "variables",
    "walk",
]

# --- domains and variables ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Real:
    """The real line, or for an input the interval it is declared in (``None``: no bound)."""

    lower: Fraction | None = None
    upper: Fraction | None = None


@dataclass(frozen=True)
class Unit:
    """What one step of a whole number stands for where people see it.

    Args:
        size: how much one step is: 1/100 for cents.
        kind: how such numbers are declared and written.
    """

    size: Fraction = Fraction(1)
    kind: Literal["int", "decimal", "step", "date", "datetime"] = "int"


ONE = Unit()


@dataclass(frozen=True)
class Int:
    """The integers from ``lower`` to ``upper``, both included; the number ``k`` stands for ``k`` steps of the unit.

    Formulas speak of ``k``: ``price <= 9.99`` of a price in cents is ``1/100 k <= 9.99``.
    """

    lower: int
    upper: int
    unit: Unit = field(default=ONE, repr=False)

    @property
    def values(self) -> range:
        return range(self.lower, self.upper + 1)


@dataclass(frozen=True)
class Bool:
    """Truth values, as 0 and 1."""

    @property
    def values(self) -> range:
        return range(2)


@dataclass(frozen=True)
class Category:
    """Named alternatives; the value of a variable is the position of its label."""

    labels: tuple[str, ...]

    @property
    def values(self) -> range:
        return range(len(self.labels))


Domain = Real | Int | Bool | Category


@overload
def ends(domain: Int | Bool | Category) -> tuple[Fraction, Fraction]: ...
@overload
def ends(domain: Domain) -> tuple[Fraction | None, Fraction | None]: ...
def ends(domain: Domain) -> tuple[Fraction | None, Fraction | None]:
    """The least and the greatest value of the domain (``None``: no bound).

    Example:
        >>> ends(Int(1, 6))
        (Fraction(1, 1), Fraction(6, 1))
    """
    if isinstance(domain, Real):
        return domain.lower, domain.upper
    values = domain.values
    return Fraction(values.start), Fraction(values.stop - 1)


def count_of(domain: Int | Bool | Category) -> int:
    """How many values the domain has; ``len`` knows no more than 2^63.

    Example:
        >>> count_of(Int(1, 10**30)) == 10**30
        True
    """
    return domain.values.stop - domain.values.start


def nearest_to_zero(domain: Domain) -> Fraction:
    """The value of the domain that is next to 0.

    Example:
        >>> nearest_to_zero(Int(3, 9)), nearest_to_zero(Real())
        (Fraction(3, 1), Fraction(0, 1))
    """
    least, most = ends(domain)
    number = Fraction(0)
    if least is not None:
        number = max(number, least)
    return number if most is None else min(number, most)


_ELEMENT = re.compile(r"(.+)\[([0-9]+(?:, [0-9]+)*)\]", re.DOTALL)


@dataclass(frozen=True)
class Variable:
    """One scalar output or input.

    Args:
        name: as the user writes it, ``"x"`` or ``"x[0]"``.
        index: position among all declared variables; fixes every canonical order.
        domain: where its values lie.
        role: ``"output"`` (computed by the network), ``"input"`` (known at run time) or ``"missing"``: computed too,
            and true where the output that it is named after has no value (:mod:`multiplexnet.language.missing`).
        whole: whether the name belongs to no vector, even if it looks like that of an element.
    """

    name: str
    index: int
    domain: Domain = Real()
    role: Literal["output", "input", "missing"] = "output"
    whole: bool = field(default=False, repr=False)

    @cached_property
    def place(self) -> tuple[str, tuple[int, ...]]:
        """The name that was declared, and the index of this element in it.

        Example:
            >>> Variable("x", 0).place, Variable("w[1, 2]", 0).place, Variable("pay [EUR]", 0).place
            (('x', ()), ('w', (1, 2)), ('pay [EUR]', ()))
        """
        match = None if self.whole else _ELEMENT.fullmatch(self.name)
        if match is None:
            return self.name, ()
        return match[1], tuple(map(int, match[2].split(", ")))

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.index))

    def __hash__(self) -> int:
        return self._hash

    @property
    def unit(self) -> Unit:
        """What one step of its value stands for."""
        return self.domain.unit if isinstance(self.domain, Int) else ONE

    @property
    def is_discrete(self) -> bool:
        return not isinstance(self.domain, Real)

    @property
    def is_input(self) -> bool:
        return self.role == "input"

    @property
    def is_flag(self) -> bool:
        return self.role == "missing"


# --- linear expressions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """``known · other``: an input times an output or another input; of two inputs the one that was declared first."""

    known: Variable
    other: Variable


@dataclass(frozen=True)
class Apply:
    """``function(arguments)``: a function that is opaque to logic and bound to torch code later."""

    function: str
    arguments: tuple[Linear, ...]


@dataclass(frozen=True)
class Max:
    """The largest of its arguments (at least two, sorted, distinct). ``min(a, b)`` is ``-max(-a, -b)``."""

    arguments: tuple[Linear, ...]


@dataclass(frozen=True)
class Ite:
    """``then if condition else otherwise`` over numbers."""

    condition: Formula
    then: Linear
    otherwise: Linear


@dataclass(frozen=True)
class Norm:
    """``√(Σ weight · argument²)``, weights positive: the length of a vector of linear expressions."""

    weights: tuple[Fraction, ...]
    arguments: tuple[Linear, ...]

    @cached_property
    def text(self) -> str:
        """What it is sorted by; of a thousand arguments it takes a while."""
        return repr(self)

    @cached_property
    def _hash(self) -> int:
        return hash((self.weights, self.arguments))

    def __hash__(self) -> int:
        return self._hash


Symbol = Variable | Product | Apply | Max | Ite | Norm
Summands = tuple[tuple[Symbol, Fraction], ...]


def _order(symbol: Symbol) -> tuple[int, int, str]:
    """The canonical order of symbols: variables as declared, then everything else by its text."""
    if isinstance(symbol, Variable):
        return (0, symbol.index, "")
    if isinstance(symbol, Product):
        return (1, symbol.other.index, f"{symbol.known.index:012d}")
    if isinstance(symbol, Norm):
        return (3, 0, symbol.text)
    return (2, 0, repr(symbol))


@dataclass(frozen=True)
class Linear:
    """``constant + Σ coefficient · symbol``, coefficients nonzero, symbols distinct and in canonical order.

    Build it with :meth:`of`, :meth:`number` and arithmetic, which keep that form.

    Example:
        >>> x, y = Variable("x", 0), Variable("y", 1)
        >>> (Linear.of(x) * 2 - Linear.of(y) + 1).constant
        Fraction(1, 1)
    """

    summands: Summands = ()
    constant: Fraction = Fraction(0)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Its symbols in order, those inside of others not among them."""
        return tuple(symbol for symbol, _ in self.summands)

    @cached_property
    def whole(self) -> tuple[tuple[int, ...], int]:
        """The coefficients as whole numbers over their least common denominator, and that.

        Example:
            >>> x, y = Linear.of(Variable("x", 0)), Linear.of(Variable("y", 1))
            >>> (x * Fraction(1, 2) - y * Fraction(2, 3)).whole
            ((3, -4), 6)
        """
        unit = lcm(*(c.denominator for _, c in self.summands))
        if unit == 1:
            return tuple(c.numerator for _, c in self.summands), 1
        summands = self.summands
        return tuple(c.numerator * (unit // c.denominator) for _, c in summands), unit

    @cached_property
    def is_plain(self) -> bool:
        """Whether all symbols are variables."""
        return all(type(symbol) is Variable for symbol in self.symbols)

    @cached_property
    def _hash(self) -> int:  # of whole numbers: the hash of a fraction takes its time
        constant = self.constant
        return hash(
            (self.symbols, self.whole, constant.numerator, constant.denominator)
        )

    def __hash__(self) -> int:
        return self._hash

    @staticmethod
    def of(symbol: Symbol) -> Linear:
        if type(symbol) is Variable:
            return _of_variable(symbol, 1)
        return Linear(((symbol, _of_whole(1)),))

    @staticmethod
    def number(constant: Fraction | int) -> Linear:
        return Linear((), _fraction(constant))

    @staticmethod
    def total(
        coefficients: Mapping[Symbol, Fraction], constant: Fraction | int = 0
    ) -> Linear:
        """The expression with these coefficients; zeros are dropped, the order is made canonical."""
        kept = [(symbol, _fraction(c)) for symbol, c in coefficients.items() if c]
        kept.sort(key=lambda summand: _order(summand[0]))
        return Linear(tuple(kept), _fraction(constant))

    @property
    def is_constant(self) -> bool:
        return not self.summands

    def __add__(self, other: Linear | Fraction | int) -> Linear:
        if not isinstance(other, Linear):
            return Linear(self.summands, _sum(self.constant, _fraction(other)))
        if not other.summands:
            return Linear(self.summands, _sum(self.constant, other.constant))
        coefficients = dict(self.summands)
        for symbol, c in other.summands:
            coefficients[symbol] = coefficients.get(symbol, Fraction(0)) + c
        return Linear.total(coefficients, _sum(self.constant, other.constant))

    def __mul__(self, factor: Fraction | int) -> Linear:
        if factor == 0:
            return Linear()
        own = _fraction(factor)
        summands = tuple(
            (symbol, own if c == 1 else c * own) for symbol, c in self.summands
        )
        return Linear(summands, self.constant and self.constant * own)

    def __neg__(self) -> Linear:
        return Linear(_opposite(self.summands), _negated(self.constant))

    def __sub__(self, other: Linear | Fraction | int) -> Linear:
        return self + (-other)

    def coefficient(self, symbol: Symbol) -> Fraction:
        return dict(self.summands).get(symbol, Fraction(0))


def norm_in(linear: Linear) -> tuple[Norm, Fraction] | None:
    """The norm among the symbols of the expression, which is the last of them, and its coefficient.

    Example:
        >>> x = Linear.of(Variable("x", 0))
        >>> norm_in(Linear.of(Norm((Fraction(1),), (x,))) * 2 - x)[1], norm_in(x)
        (Fraction(2, 1), None)
    """
    if linear.summands:
        symbol, coefficient = linear.summands[-1]
        if isinstance(symbol, Norm):
            return symbol, coefficient
    return None


def _fraction(number: Fraction | int) -> Fraction:
    """The number as a fraction; to make one of a fraction takes longer than to ask."""
    return number if type(number) is Fraction else _of_whole(number)


def _negated(number: Fraction) -> Fraction:
    return _of_whole(-number.numerator) if number.denominator == 1 else -number


def _sum(first: Fraction, second: Fraction) -> Fraction:
    if first.denominator == 1 == second.denominator:
        return _of_whole(first.numerator + second.numerator)
    return first + second


def _opposite(summands: Summands) -> Summands:
    if len(summands) == 1:
        ((symbol, c),) = summands
        if type(symbol) is Variable and c.denominator == 1:
            return _of_variable(symbol, -c.numerator).summands
    return tuple([(symbol, _negated(c)) for symbol, c in summands])


@lru_cache(maxsize=1 << 14)
def _of_variable(variable: Variable, coefficient: int) -> Linear:
    """A whole multiple of a variable; all rows that bound the variable alone share it."""
    return Linear(((variable, _of_whole(coefficient)),))


@lru_cache(maxsize=1 << 14)
def _of_whole(number: Fraction | int) -> Fraction:
    """A whole number as a fraction; most are made again and again."""
    return Fraction(number)


def _linear_order(linear: Linear) -> tuple[object, ...]:
    summands = tuple((_order(symbol), c) for symbol, c in linear.summands)
    return (summands, linear.constant)


def coprime(linear: Linear) -> Linear:
    """A positive multiple of the expression whose coefficients are integers without a common divisor.

    Example:
        >>> x, y = Variable("x", 0), Variable("y", 1)
        >>> coprime(Linear.of(x) * 4 - Linear.of(y) * 6 + 1).summands[1][1]
        Fraction(-3, 1)
    """
    if linear.is_constant:
        return linear
    whole, unit = linear.whole
    divisor = gcd(*whole)
    if unit == divisor:
        return linear
    summands = tuple(
        (symbol, _fraction(c // divisor))
        for symbol, c in zip(linear.symbols, whole, strict=True)
    )
    return Linear(summands, linear.constant * Fraction(unit, divisor))


def maximum(arguments: Iterable[Linear]) -> Linear:
    """The largest of the arguments, as an expression; constants and doubles are folded."""
    distinct = sorted(set(arguments), key=_linear_order)
    if not distinct:
        raise ValueError("the maximum of no arguments")
    numbers = [a for a in distinct if a.is_constant]
    rest = [a for a in distinct if not a.is_constant]
    if numbers:
        rest.append(max(numbers, key=lambda a: a.constant))
    return rest[0] if len(rest) == 1 else Linear.of(Max(tuple(rest)))


# --- formulas -------------------------------------------------------------------------------------------------------

Relation = Literal["<=", "<", "=="]


@dataclass(frozen=True)
class Atom:
    """``linear relation 0``: one linear comparison."""

    linear: Linear
    relation: Relation

    @cached_property
    def _hash(self) -> int:
        return hash((self.linear, self.relation))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Not:
    argument: Formula


@dataclass(frozen=True)
class And:
    arguments: tuple[Formula, ...]

    @cached_property
    def _hash(self) -> int:  # kept, because normal forms share their parts
        return hash(("and", self.arguments))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Or:
    arguments: tuple[Formula, ...]

    @cached_property
    def _hash(self) -> int:
        return hash(("or", self.arguments))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Iff:
    """Both sides true or both false."""

    left: Formula
    right: Formula


Formula = Atom | Not | And | Or | Iff

TRUE = And(())
FALSE = Or(())


def conjunction(arguments: Iterable[Formula]) -> Formula:
    """Their conjunction: nested conjunctions are flattened, true parts dropped, a single part stands alone."""
    parts: list[Formula] = []
    for argument in arguments:
        parts.extend(argument.arguments if isinstance(argument, And) else (argument,))
    if FALSE in parts:
        return FALSE
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def disjunction(arguments: Iterable[Formula]) -> Formula:
    """Their disjunction: nested disjunctions are flattened, false parts dropped, a single part stands alone."""
    parts: list[Formula] = []
    for argument in arguments:
        parts.extend(argument.arguments if isinstance(argument, Or) else (argument,))
    if TRUE in parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def negation(formula: Formula) -> Formula:
    """The negation; a double one falls away. A negated inequality turns round, a negated equality stays ``Not``."""
    match formula:
        case Not(argument):
            return argument
        case Atom(linear, "<="):
            return Atom(-linear, "<")
        case Atom(linear, "<"):
            return Atom(-linear, "<=")
        case And(()):
            return FALSE
        case Or(()):
            return TRUE
    return Not(formula)


def implies(premise: Formula, conclusion: Formula) -> Formula:
    return disjunction([negation(premise), conclusion])


# --- the parts of a formula -----------------------------------------------------------------------------------------

Node = Formula | Symbol
"""Anything that a formula is made of."""


def operands(formula: Node) -> tuple[Formula, ...]:
    """The formulas that this one joins; an atom joins none."""
    match formula:
        case Not(argument):
            return (argument,)
        case And(arguments) | Or(arguments):
            return arguments
        case Iff(left, right):
            return (left, right)
    return ()


def children(node: Node) -> Iterator[Node]:
    """What stands directly inside a formula or symbol: formulas, and the symbols of its linear expressions."""
    match node:
        case Atom(linear, _):
            yield from _symbols_of([linear])
        case Product(known, other):
            yield known
            yield other
        case Apply(_, arguments) | Max(arguments) | Norm(_, arguments):
            yield from _symbols_of(arguments)
        case Ite(condition, then, otherwise):
            yield condition
            yield from _symbols_of([then, otherwise])
        case _:
            yield from operands(node)


def _symbols_of(linears: Iterable[Linear]) -> Iterator[Symbol]:
    for linear in linears:
        for symbol, _ in linear.summands:
            yield symbol


def walk(
    root: Node, inside: Callable[[Node], Iterable[Node]] = children
) -> Iterator[Node]:
    """The root and everything inside it, from left to right, each object once. It does not recurse.

    Args:
        root: where to begin.
        inside: what stands directly inside a node; :func:`operands` leaves symbols out.
    """
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        parts = list(inside(node))
        stack.extend(reversed(parts))


def inside_out(
    root: Node,
    done: Container[int],
    inside: Callable[[Node], Iterable[Node]] = children,
) -> Iterator[Node]:
    """The nodes whose identity is not yet in ``done``, each after everything inside it. It does not recurse.

    Whoever asks enters each node, ``done[id(node)] = node, …``, before asking for the next one. It has to keep the
    node beside what it found: otherwise the identity might be taken by another object.

    Args:
        root: the last node that is returned.
        done: the identities of the nodes that are finished.
        inside: what stands directly inside a node; :func:`operands` leaves symbols out.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if id(node) not in done:
            missing = [part for part in inside(node) if id(part) not in done]
            if missing:
                stack.extend(missing)
                continue
            yield node
        stack.pop()


def symbols(formula: Node) -> Iterator[Symbol]:
    """Every symbol in the formula, those inside ``Apply``, ``Max``, ``Ite`` and ``Norm`` too, each once."""
    if isinstance(formula, Atom) and formula.linear.is_plain:
        yield from formula.linear.symbols
        return
    seen: set[Symbol] = set()
    for node in walk(formula):
        if (
            isinstance(node, Variable | Product | Apply | Max | Ite | Norm)
            and node not in seen
        ):
            seen.add(node)
            yield node


def variables(formula: Node) -> list[Variable]:
    """The variables of the formula in declared order."""
    if isinstance(formula, Atom):
        own = [s for s in formula.linear.symbols if isinstance(s, Variable)]
        if len(own) == len(formula.linear.summands):  # which stand in that order
            return own
    found = [symbol for symbol in symbols(formula) if isinstance(symbol, Variable)]
    return sorted(found, key=lambda variable: variable.index)


def atoms(formula: Formula) -> list[Atom]:
    """The distinct atoms that the formula joins, in order of first appearance."""
    found = (node for node in walk(formula, operands) if isinstance(node, Atom))
    return list(dict.fromkeys(found))


def conjuncts(formula: Formula) -> tuple[Formula, ...]:
    """The parts of a conjunction; the formula itself if it is none."""
    return formula.arguments if isinstance(formula, And) else (formula,)


# --- values ---------------------------------------------------------------------------------------------------------

Point = Mapping[Variable, Fraction]
Functions = Mapping[str, Callable[..., Fraction]]


def compare(number: Fraction, relation: Relation) -> bool:
    """Whether ``number relation 0``."""
    if relation == "<=":
        return number <= 0
    if relation == "<":
        return number < 0
    return number == 0


def value(linear: Linear, point: Point, functions: Functions | None = None) -> Fraction:
    """The exact value of the expression at a point."""
    total = linear.constant
    for symbol, c in linear.summands:
        total += c * _symbol_value(symbol, point, functions)
    return total


def _symbol_value(
    symbol: Symbol, point: Point, functions: Functions | None
) -> Fraction:
    match symbol:
        case Variable():
            return point[symbol]
        case Product(known, other):
            return point[known] * point[other]
        case Apply(name, arguments):
            function = (functions or {})[name]
            return function(*(value(a, point, functions) for a in arguments))
        case Max(arguments):
            return max(value(a, point, functions) for a in arguments)
        case Ite(condition, then, otherwise):
            chosen = then if holds(condition, point, functions) else otherwise
            return value(chosen, point, functions)
        case Norm():
            raise TypeError("a norm need not be rational: ask for the sign")


def sign(linear: Linear, point: Point, functions: Functions | None = None) -> Fraction:
    """The expression at a point, or with a norm in it any number of the same sign; exactly."""
    found = norm_in(linear)
    if found is None:
        return value(linear, point, functions)
    norm, c = found
    bound = -value(Linear(linear.summands[:-1], linear.constant), point, functions) / c
    numbers = [value(argument, point, functions) for argument in norm.arguments]
    total = sum(
        (w * n * n for w, n in zip(norm.weights, numbers, strict=True)), Fraction(0)
    )
    beyond = Fraction(1) if bound < 0 else total - bound * bound
    return beyond if c > 0 else -beyond


def holds(formula: Formula, point: Point, functions: Functions | None = None) -> bool:
    """Whether the formula is true at a point, decided in exact arithmetic."""
    match formula:
        case Atom(linear, relation):
            return compare(sign(linear, point, functions), relation)
        case Not(argument):
            return not holds(argument, point, functions)
        case And(arguments):
            return all(holds(a, point, functions) for a in arguments)
        case Or(arguments):
            return any(holds(a, point, functions) for a in arguments)
        case Iff(left, right):
            return holds(left, point, functions) == holds(right, point, functions)


# --- what was written -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """One rule: its formula, the text as written and the line it stands on (``None``: it came from no text)."""

    formula: Formula
    text: str
    line: int | None = None


@dataclass(frozen=True)
class Specification:
    """Everything that was written: declared variables in order, opaque functions, rules, assumptions.

    ``domain`` of a discrete output is part of the meaning: rules hold for values in their domain only. ``assumptions``
    say what inputs keep to, besides their ranges: rules are judged for such inputs only.
    """

    variables: tuple[Variable, ...]
    rules: tuple[Rule, ...]
    functions: tuple[str, ...] = ()
    text: str = field(default="", compare=False)
    assumptions: tuple[Rule, ...] = ()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """What is computed: the columns, and then the flags of those that may be missing."""
        return tuple(v for v in self.variables if not v.is_input)

    @property
    def columns(self) -> tuple[Variable, ...]:
        """The outputs that were declared: the columns of a tensor of values."""
        return tuple(v for v in self.variables if v.role == "output")

    @cached_property
    def flags(self) -> dict[Variable, Variable]:
        """For every output that may be missing the flag that says so."""
        named = {v.name: v for v in self.variables if not v.is_flag}
        return {
            named[v.name.removesuffix(" is missing")]: v
            for v in self.variables
            if v.is_flag
        }

    @property
    def inputs(self) -> tuple[Variable, ...]:
        return tuple(v for v in self.variables if v.is_input)

    @property
    def stand_ins(self) -> tuple[Formula, ...]:
        """What is asked of missing values besides the rules: each has one value that stands for it.

        So a row in which something is missing is one point, with a probability of its own, and not a whole line.
        """
        found = []
        for variable, flag in self.flags.items():
            number = nearest_to_zero(variable.domain)
            is_there = negation(Atom(Linear.of(flag) - 1, "=="))
            found.append(
                disjunction([is_there, Atom(Linear.of(variable) - number, "==")])
            )
        return tuple(found)

    @cached_property
    def formula(self) -> Formula:
        """The conjunction of all rules, and what stands for missing values."""
        return conjunction([*(rule.formula for rule in self.rules), *self.stand_ins])

    @cached_property
    def assumed(self) -> Formula:
        """The conjunction of all assumptions."""
        return conjunction(rule.formula for rule in self.assumptions)
