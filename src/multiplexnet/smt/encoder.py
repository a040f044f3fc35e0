"""Formulas in z3.

A real output is a z3 real, an integer and a category are z3 integers, a Boolean is a z3 Boolean, an opaque function is
an uninterpreted one; numbers stay exact. The domains of discrete variables are no part of a formula: they are stated by
:func:`domain_z3` and :func:`input_range_z3`.

Without a context of their own, expressions live in z3's main context; those of one context must not be used by two
threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import z3

from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Bool,
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
    Real,
    Relation,
    Specification,
    Symbol,
    Variable,
    compare,
    ends,
    inside_out,
    norm_in,
)

__all__ = [
    "COMPARE",
    "Z3Encoder",
    "constant_z3",
    "domain_z3",
    "input_range_z3",
    "joined",
    "number_z3",
    "specification_z3",
    "to_z3",
]


def to_z3(formula: Formula, *, context: z3.Context | None = None) -> z3.BoolRef:
    """The formula as a z3 expression. Any depth and any number of rules will do: nothing here recurses.

    Args:
        formula: over variables of any domain; the domains themselves are not asserted (see :func:`domain_z3`).
        context: where z3 keeps the expression; ``None`` is z3's main context.

    Example:
        >>> x, on = Variable("x", 0), Variable("on", 1, Bool())
        >>> to_z3(Or((Atom(Linear.of(x) * 2 - 1, "<="), Atom(Linear.of(on) - 1, "=="))))
        Or(2*x <= 1, on)
    """
    return Z3Encoder(context).formula(formula)


def specification_z3(specification: Specification) -> z3.BoolRef:
    """All rules, and the domains of the discrete variables, as one expression in z3's main context."""
    rules = [to_z3(rule.formula) for rule in specification.rules]
    stand_ins = map(to_z3, specification.stand_ins)
    return z3.And([*domain_z3(specification.variables), *rules, *stand_ins])


def constant_z3(variable: Variable, *, context: z3.Context | None = None) -> z3.ExprRef:
    """The z3 constant that stands for the variable: a real, an integer (also for a category) or a Boolean."""
    match variable.domain:
        case Real():
            return z3.Real(variable.name, context)
        case Bool():
            return z3.Bool(variable.name, context)
    return z3.Int(variable.name, context)


def number_z3(
    number: Fraction | int, *, context: z3.Context | None = None
) -> z3.ArithRef:
    """The exact number as a z3 real."""
    return z3.RealVal(str(number), context)


def _comparison(
    make: Callable[[Any, Any, Any], Any],
) -> Callable[[z3.ArithRef, z3.ArithRef], z3.BoolRef]:
    """``left ? right`` by z3's own constructor: the operators of z3's Python classes turn numbers to the left."""

    def compared(left: z3.ArithRef, right: z3.ArithRef) -> z3.BoolRef:
        atom = make(left.ctx_ref(), left.as_ast(), right.as_ast())
        return z3.BoolRef(atom, left.ctx)

    return compared


_at_most = _comparison(z3.Z3_mk_le)
_at_least = _comparison(z3.Z3_mk_ge)
_equal = _comparison(z3.Z3_mk_eq)
COMPARE = {"<=": _at_most, "<": _comparison(z3.Z3_mk_lt), "==": _equal}
_COMPARE_TURNED = {"<=": _at_least, "<": _comparison(z3.Z3_mk_gt), "==": _equal}


def joined(
    make: Callable[[Any, int, Any], Any], parts: Sequence[z3.ArithRef]
) -> z3.ArithRef:
    """A sum or product of parts of one sort; z3's Python operators would check and convert each part again."""
    first = parts[0]
    asts = [part.as_ast() for part in parts]
    array = (z3.Ast * len(asts))(*asts)
    return z3.ArithRef(make(first.ctx_ref(), len(asts), array), first.ctx)


class Z3Encoder:
    """Writes formulas in one z3 context and remembers every part, so that shared parts are written once.

    Parts are remembered by identity: hashing a deep formula would recurse.

    Args:
        context: where the expressions live.
        plain_norms: whether a norm is a real constant of which nothing is known. Otherwise a comparison with one is
            written without a root, which takes nonlinear arithmetic: ``norm ≤ t`` is ``t ≥ 0`` and ``norm² ≤ t²``.
    """

    def __init__(
        self, context: z3.Context | None = None, *, plain_norms: bool = False
    ) -> None:
        self.context = context
        self._plain_norms = plain_norms
        self._norms: dict[Norm, z3.ArithRef] = {}
        self._written: dict[int, tuple[Node, z3.ExprRef]] = {}
        self._reals: set[int] = (
            set()
        )  # the ids of the symbols among them that are not integers
        self._constants: dict[Variable, z3.ExprRef] = {}
        self._numbers: dict[tuple[Fraction, bool], z3.ArithRef] = {}
        self._multiples: dict[tuple[int, Fraction, bool], z3.ArithRef] = {}

    def formula(self, formula: Formula) -> z3.BoolRef:
        return self._walk(formula)

    def linear(self, linear: Linear) -> z3.ArithRef:
        """The linear expression; an integer one if all its symbols and numbers are integers, else a real one."""
        for symbol, _ in linear.summands:
            self._walk(symbol)
        return self._linear(linear)

    def constant(self, variable: Variable) -> z3.ExprRef:
        if variable not in self._constants:
            self._constants[variable] = constant_z3(variable, context=self.context)
        return self._constants[variable]

    def number(self, number: Fraction, *, integer: bool = False) -> z3.ArithRef:
        key = number, integer
        if key not in self._numbers:
            make = z3.IntVal if integer else z3.RealVal
            self._numbers[key] = make(str(number), self.context)
        return self._numbers[key]

    def _walk(self, root: Node) -> Any:
        """Writes the parts of ``root`` before ``root`` itself."""
        for node in inside_out(root, self._written):
            written = self._WRITE[type(node)](self, node)
            self._written[id(node)] = node, written
            if z3.is_real(written):
                self._reals.add(id(node))
        return self._done(root)

    def _done(self, node: Node) -> Any:
        return self._written[id(node)][1]

    # one writer for each kind of node; the parts of the node are written already

    def _atom(self, atom: Atom) -> z3.BoolRef:
        """``Σ c·s relation number``, turned so that the first coefficient is positive."""
        linear = atom.linear
        if not linear.summands:
            return z3.BoolVal(compare(linear.constant, atom.relation), self.context)
        if norm_in(linear) is not None and not self._plain_norms:
            return self._within(linear, atom.relation)
        first, coefficient = linear.summands[0]
        is_single = len(linear.summands) == 1
        if is_single and isinstance(first, Variable) and isinstance(first.domain, Bool):
            if_off = compare(linear.constant, atom.relation)
            if_on = compare(linear.constant + coefficient, atom.relation)
            return self._truth(self.constant(first), if_off, if_on)
        turned = coefficient < 0
        scale = -1 if turned else 1
        integer = not any(id(symbol) in self._reals for symbol, _ in linear.summands)
        if integer:
            scale *= lcm(
                *(c.denominator for _, c in linear.summands),
                linear.constant.denominator,
            )
        left = self._sum(linear.summands, Fraction(0), scale=scale, integer=integer)
        right = self.number(-linear.constant * scale, integer=integer)
        compared = _COMPARE_TURNED[atom.relation] if turned else COMPARE[atom.relation]
        return compared(left, right)

    def _within(self, linear: Linear, relation: Relation) -> z3.BoolRef:
        """``c · norm + rest relation 0``, without a root."""
        found = norm_in(linear)
        assert found is not None
        norm, c = found
        bound = _as_real(
            self._linear(Linear(linear.summands[:-1], linear.constant) * (-1 / c))
        )
        square = self._done(norm)
        if c < 0 and relation != "==":  # norm >= bound, or >
            strictly = relation == "<="
            inside = [square < bound * bound, bound > 0]
            if not strictly:
                inside = [square <= bound * bound, bound >= 0]
            return z3.Not(z3.And(inside))
        if relation == "==":
            return z3.And(square == bound * bound, bound >= 0)
        if relation == "<":
            return z3.And(square < bound * bound, bound > 0)
        return z3.And(square <= bound * bound, bound >= 0)

    def _norm(self, norm: Norm) -> z3.ArithRef:
        """The norm as a constant, or its square."""
        if self._plain_norms:
            name = f"norm {len(self._norms)}"
            if norm not in self._norms:
                self._norms[norm] = z3.Real(name, self.context)
            return self._norms[norm]
        parts = []
        for weight, argument in zip(norm.weights, norm.arguments, strict=True):
            own = _as_real(self._linear(argument))
            parts.append(joined(z3.Z3_mk_mul, [self.number(weight), own, own]))
        return parts[0] if len(parts) == 1 else joined(z3.Z3_mk_add, parts)

    def _truth(self, constant: z3.BoolRef, if_off: bool, if_on: bool) -> z3.BoolRef:
        """The Boolean condition that is ``if_off`` where the constant is false and ``if_on`` where it is true."""
        if if_off == if_on:
            return z3.BoolVal(if_on, self.context)
        return constant if if_on else z3.Not(constant)

    def _linear(self, linear: Linear) -> z3.ArithRef:
        integer = linear.constant.denominator == 1
        for symbol, c in linear.summands:
            if id(symbol) in self._reals or c.denominator != 1:
                integer = False
        return self._sum(linear.summands, linear.constant, integer=integer)

    def _sum(
        self,
        summands: Iterable[tuple[Symbol, Fraction]],
        constant: Fraction,
        *,
        scale: int = 1,
        integer: bool,
    ) -> z3.ArithRef:
        parts = [
            self._multiple(symbol, c * scale, integer=integer) for symbol, c in summands
        ]
        if constant or not parts:
            parts.append(self.number(constant, integer=integer))
        return parts[0] if len(parts) == 1 else joined(z3.Z3_mk_add, parts)

    def _multiple(
        self, symbol: Symbol, factor: Fraction, *, integer: bool
    ) -> z3.ArithRef:
        key = id(symbol), factor, integer
        if key not in self._multiples:
            part = self._done(symbol)
            if not integer and id(symbol) not in self._reals:
                part = _as_real(part)
            number = self.number(factor, integer=integer)
            if factor != 1:
                part = joined(z3.Z3_mk_mul, [number, part])
            self._multiples[key] = part
        return self._multiples[key]

    def _variable(self, variable: Variable) -> z3.ArithRef:
        constant = self.constant(variable)
        if isinstance(variable.domain, Bool):
            one = self.number(Fraction(1), integer=True)
            zero = self.number(Fraction(0), integer=True)
            return z3.If(constant, one, zero)
        return constant

    def _product(self, product: Product) -> z3.ArithRef:
        factors = [_as_real(self._done(v)) for v in (product.known, product.other)]
        return joined(z3.Z3_mk_mul, factors)

    def _apply(self, apply: Apply) -> z3.ArithRef:
        sorts = [z3.RealSort(self.context)] * (len(apply.arguments) + 1)
        arguments = [_as_real(self._linear(a)) for a in apply.arguments]
        return z3.Function(apply.function, *sorts)(*arguments)

    def _max(self, maximum: Max) -> z3.ArithRef:
        largest, *others = _same_sort([self._linear(a) for a in maximum.arguments])
        for other in others:
            largest = z3.If(other > largest, other, largest)
        return largest

    def _ite(self, ite: Ite) -> z3.ArithRef:
        condition = self._done(ite.condition)
        sides = [self._linear(ite.then), self._linear(ite.otherwise)]
        then, otherwise = _same_sort(sides)
        return z3.If(condition, then, otherwise)

    def _not(self, node: Not) -> z3.BoolRef:
        return z3.Not(self._done(node.argument))

    def _and(self, node: And) -> z3.BoolRef:
        parts = [self._done(a) for a in node.arguments]
        return z3.And(parts) if parts else z3.BoolVal(True, self.context)

    def _or(self, node: Or) -> z3.BoolRef:
        parts = [self._done(a) for a in node.arguments]
        return z3.Or(parts) if parts else z3.BoolVal(False, self.context)

    def _iff(self, node: Iff) -> z3.BoolRef:
        return self._done(node.left) == self._done(node.right)

    _WRITE: Mapping[type, Callable[[Z3Encoder, Any], z3.ExprRef]] = {
        Atom: _atom,
        Variable: _variable,
        Product: _product,
        Apply: _apply,
        Max: _max,
        Ite: _ite,
        Norm: _norm,
        Not: _not,
        And: _and,
        Or: _or,
        Iff: _iff,
    }


def _as_real(expression: z3.ArithRef) -> z3.ArithRef:
    return z3.ToReal(expression) if expression.is_int() else expression


def _same_sort(expressions: list[z3.ArithRef]) -> list[z3.ArithRef]:
    if all(e.is_int() for e in expressions):
        return expressions
    return [_as_real(e) for e in expressions]


# --- domains --------------------------------------------------------------------------------------------------------


def domain_z3(
    variables: Iterable[Variable], *, context: z3.Context | None = None
) -> list[z3.BoolRef]:
    """That every integer and category among the variables lies in its domain. Reals and Booleans need nothing.

    Example:
        >>> from multiplexnet.language.formula import Int
        >>> domain_z3([Variable("n", 0, Int(1, 6)), Variable("x", 1)])
        [n >= 1, n <= 6]
    """
    bounds = []
    for variable in variables:
        if isinstance(variable.domain, Real | Bool):
            continue
        lower, upper = ends(variable.domain)
        constant = constant_z3(variable, context=context)
        bounds.append(constant >= int(lower))
        bounds.append(constant <= int(upper))
    return bounds


def input_range_z3(
    variables: Iterable[Variable], *, context: z3.Context | None = None
) -> list[z3.BoolRef]:
    """That every real variable with a declared interval (only inputs have one) lies in it.

    Example:
        >>> input_range_z3([Variable("limit", 0, Real(Fraction(0), Fraction(1, 2)), "input")])
        [limit >= 0, limit <= 1/2]
    """
    bounds = []
    for variable in variables:
        if not isinstance(variable.domain, Real):
            continue
        lower, upper = ends(variable.domain)
        if lower is not None:
            constant = constant_z3(variable, context=context)
            bounds.append(_at_least(constant, number_z3(lower, context=context)))
        if upper is not None:
            constant = constant_z3(variable, context=context)
            bounds.append(_at_most(constant, number_z3(upper, context=context)))
    return bounds
