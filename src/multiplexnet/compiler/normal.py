"""Negation normal form over canonical atoms: nothing is left but *and*, *or* and comparisons of linear expressions.

``max``, ``min``, ``abs`` and ``if`` disappear exactly and without new variables. In ``c·max(a, b) + r ≤ 0`` a positive
``c`` asks for *both* ``c·a + r ≤ 0`` and ``c·b + r ≤ 0``, a negative one for *either*; so ``abs(x) ≤ 1`` stays one
term and ``abs(x) ≥ 1`` becomes two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil, floor

from multiplexnet.language.curves import is_constant, put_in
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    And,
    Apply,
    Atom,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Node,
    Norm,
    Not,
    Or,
    Product,
    Relation,
    Symbol,
    Variable,
    compare,
    conjunction,
    coprime,
    disjunction,
    inside_out,
    maximum,
    operands,
    sign,
)

__all__ = ["canonical", "normal_form", "opposite", "substitute"]

_OPPOSITE: dict[Relation, Relation] = {"<=": "<", "<": "<="}
"""``not (a <= 0)`` is ``-a < 0``, and the other way round."""


def canonical(linear: Linear, relation: Relation) -> Formula:
    """The atom ``linear relation 0`` with coprime integer coefficients; ``TRUE`` or ``FALSE`` if it has no variable.

    The first coefficient of an equality is positive. Over discrete variables alone the constant is an integer and
    ``<`` becomes ``<=``.

    Example:
        >>> x = Variable("x", 0)
        >>> canonical(Linear.of(x) * 4 - 2, "<").linear.constant
        Fraction(-1, 2)
    """
    if is_constant(linear):
        return TRUE if compare(sign(linear, {}), relation) else FALSE
    linear = coprime(linear)
    if relation == "==" and linear.summands[0][1] < 0:
        linear = -linear
    for symbol, _ in linear.summands:
        if not (isinstance(symbol, Variable) and symbol.is_discrete):
            return Atom(linear, relation)
    return _integral(linear, relation)


def _integral(linear: Linear, relation: Relation) -> Formula:
    """An atom whose left side takes integer values only: its constant is rounded to what that allows."""
    c = linear.constant
    if relation == "==":
        return Atom(linear, "==") if c.denominator == 1 else FALSE
    rounded = floor(c) + 1 if relation == "<" else ceil(c)
    return Atom(Linear(linear.summands, Fraction(rounded)), "<=")


def opposite(atom: Atom) -> Formula:
    """The negation of a canonical atom, again over canonical atoms."""
    if atom.relation == "==":
        return disjunction([canonical(atom.linear, "<"), canonical(-atom.linear, "<")])
    return canonical(-atom.linear, _OPPOSITE[atom.relation])


def normal_form(formula: Formula) -> Formula:
    """The same formula with negations pushed into canonical atoms and no ``Not``, ``Iff``, ``Max`` or ``Ite`` left.

    Shared sub-formulas stay shared, so nested ``iff`` and ``xor`` grow the work only linearly.
    """
    return _Normaliser().visit(formula, True)


_Part = tuple[int, bool]
"""The id of a part of a formula, and a polarity."""


class _Normaliser:
    """Normal forms of the parts of a formula, each part once; with polarity ``False`` those of their negations."""

    def __init__(self) -> None:
        # the formula is kept beside its result, so that its id stays its own
        self._done: dict[_Part, tuple[Formula, Formula]] = {}

    def visit(self, formula: Formula, polarity: bool) -> Formula:
        key = (id(formula), polarity)
        if key not in self._done:
            self._done[key] = formula, self._visit(formula, polarity)
        return self._done[key][1]

    def _visit(self, formula: Formula, polarity: bool) -> Formula:
        match formula:
            case Atom(linear, relation):
                return self._atom(linear, relation, polarity)
            case Not(argument):
                return self.visit(argument, not polarity)
            case And(arguments) | Or(arguments):
                join = (
                    conjunction if isinstance(formula, And) == polarity else disjunction
                )
                return _join(
                    join, [self.visit(argument, polarity) for argument in arguments]
                )
            case Iff(left, right):
                both = conjunction(
                    [self.visit(left, True), self.visit(right, polarity)]
                )
                neither = conjunction(
                    [self.visit(left, False), self.visit(right, not polarity)]
                )
                return disjunction([both, neither])

    def _atom(self, linear: Linear, relation: Relation, polarity: bool) -> Formula:
        if not polarity:
            return self._negated(linear, relation)
        for symbol, c in linear.summands:
            if isinstance(symbol, Max):
                return self._max(linear, relation, symbol, c)
            if isinstance(symbol, Ite):
                return self._ite(linear, relation, symbol, c)
        return canonical(linear, relation)

    def _negated(self, linear: Linear, relation: Relation) -> Formula:
        if relation == "==":
            below = self._atom(linear, "<", True)
            above = self._atom(-linear, "<", True)
            return disjunction([below, above])
        return self._atom(-linear, _OPPOSITE[relation], True)

    def _ite(
        self, linear: Linear, relation: Relation, symbol: Ite, c: Fraction
    ) -> Formula:
        rest = linear - Linear.of(symbol) * c
        yes = [
            self.visit(symbol.condition, True),
            self._atom(rest + symbol.then * c, relation, True),
        ]
        no = [
            self.visit(symbol.condition, False),
            self._atom(rest + symbol.otherwise * c, relation, True),
        ]
        return disjunction([conjunction(yes), conjunction(no)])

    def _max(
        self, linear: Linear, relation: Relation, symbol: Max, c: Fraction
    ) -> Formula:
        if relation == "==":
            return conjunction(
                [self._atom(linear, "<=", True), self._atom(-linear, "<=", True)]
            )
        rest = linear - Linear.of(symbol) * c
        join = conjunction if c > 0 else disjunction
        parts = [
            self._atom(rest + argument * c, relation, True)
            for argument in symbol.arguments
        ]
        return _join(join, parts)


def _join(
    join: Callable[[Iterable[Formula]], Formula], parts: list[Formula]
) -> Formula:
    """The parts joined, each of them once, in the order of first appearance."""
    return join(dict.fromkeys(parts))


def substitute(formula: Formula, values: dict[Variable, Fraction]) -> Formula:
    """A formula in normal form with some variables replaced by numbers, simplified."""
    done: dict[int, tuple[Node, Formula]] = {}

    def replaced(node: Node) -> Formula:
        parts = [done[id(part)][1] for part in operands(node)]
        match node:
            case Atom(linear, relation):
                return canonical(_replaced(linear, values), relation)
            case And():
                return _join(conjunction, parts)
            case Or():
                return _join(disjunction, parts)
        raise TypeError(f"not in normal form: {node!r}")

    for node in inside_out(formula, done, operands):
        done[id(node)] = node, replaced(node)
    return done[id(formula)][1]


def _replaced(linear: Linear, values: dict[Variable, Fraction]) -> Linear:
    constant = linear.constant
    kept: list[tuple[Symbol, Fraction]] = []
    composed: list[tuple[Symbol, Fraction]] = []
    for symbol, c in linear.summands:
        if not isinstance(symbol, Variable):
            composed.append((symbol, c))
        elif symbol in values:
            constant += values[symbol] * c
        else:
            kept.append((symbol, c))
    result = Linear(tuple(kept), constant)
    for symbol, c in composed:
        result = result + _replaced_symbol(symbol, values) * c
    return result


def _replaced_symbol(symbol: Symbol, values: dict[Variable, Fraction]) -> Linear:
    if isinstance(symbol, Variable):
        return Linear.number(values[symbol]) if symbol in values else Linear.of(symbol)
    if isinstance(symbol, Product):
        known, other = (
            _replaced_symbol(v, values) for v in (symbol.known, symbol.other)
        )
        if known.is_constant:
            return other * known.constant
        return known * other.constant if other.is_constant else Linear.of(symbol)
    match symbol:  # the last two stand in arguments of opaque functions only
        case Apply(function, arguments):
            return Linear.of(
                Apply(function, tuple(_replaced(a, values) for a in arguments))
            )
        case Norm(_, arguments):
            return put_in(symbol, [_replaced(a, values) for a in arguments])
        case Max(arguments):
            return maximum(_replaced(a, values) for a in arguments)
        case Ite(condition, then, otherwise):
            condition = substitute(normal_form(condition), values)
            then = _replaced(then, values)
            otherwise = _replaced(otherwise, values)
            if condition in (TRUE, FALSE):
                return then if condition == TRUE else otherwise
            return Linear.of(Ite(condition, then, otherwise))
