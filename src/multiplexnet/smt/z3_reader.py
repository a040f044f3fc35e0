"""One z3 expression read as a formula.

The reading goes bottom up, without recursion and each shared part once: a handler for every kind of z3 operator
(``_READ``) turns the operands, read already, into a formula or a linear expression. What rules cannot say (quantifiers,
arrays, products of variables …) is refused with the expression and what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations
from typing import Any

import z3

from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Apply,
    Atom,
    Bool,
    Domain,
    Formula,
    Iff,
    Int,
    Ite,
    Linear,
    Max,
    Real,
    Relation,
    Symbol,
    Variable,
    conjunction,
    disjunction,
    implies,
    maximum,
    negation,
)
from multiplexnet.language.parser.values import MOST_DIGITS
from multiplexnet.language.text import short

__all__ = ["NotARule", "Z3Reader", "domain_of", "operands"]

LARGEST_RULE = 1_000_000
LARGEST_NUMBER = 10_000
"""How many parts a rule and a number in it may have once what z3 shares is written out (sharing may double them at
every step). Numbers with conditions inside are ordered by their text, which makes large ones slow."""


_MOST_BITS = (10**MOST_DIGITS).bit_length()
_TOO_LONG = (
    f"a number of more than {MOST_DIGITS:,} digits: scale the rule to smaller numbers"
)


class NotARule(Exception):
    """Why an expression is not a rule; whoever knows what the user wrote adds it."""


class Z3Reader:
    """Reads z3 expressions over given variables, or over variables that it makes as they appear.

    Args:
        variables: what the constants stand for; ``None``: outputs, in order of appearance, integers with the
            provisional range 0 to 0.
    """

    def __init__(self, variables: dict[str, Variable] | None = None) -> None:
        self.variables = variables or {}
        self.functions: dict[str, int] = {}
        self._read: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}

    def formula(self, expression: z3.BoolRef) -> Formula:
        """The formula of a Boolean expression, which has to outlive the reader.

        Raises:
            Refused: it says what rules cannot say.
        """
        stack: list[tuple[z3.ExprRef, list[z3.ExprRef] | None]] = [(expression, None)]
        while stack:
            node, parts = stack.pop()
            if node.get_id() in self._read:
                continue
            if parts is None:
                parts = _parts(node)
                if parts:  # they come first
                    stack.append((node, parts))
                    stack.extend((part, None) for part in reversed(parts))
                    continue
            self._remember(node, [part.get_id() for part in parts])
        return self._read[expression.get_id()]  # type: ignore[no-any-return]

    def _remember(self, node: z3.ExprRef, parts: list[int]) -> None:
        value = self._value(node, [self._read[part] for part in parts])
        key = node.get_id()
        plain = isinstance(value, Linear) and all(
            isinstance(symbol, Variable) for symbol, _ in value.summands
        )
        self._read[key] = value
        self._sizes[key] = 1 if plain else 1 + sum(self._sizes[part] for part in parts)
        what, largest = (
            ("number", LARGEST_NUMBER)
            if isinstance(value, Linear)
            else ("rule", LARGEST_RULE)
        )
        if self._sizes[key] > largest:
            raise NotARule(
                f"with its shared parts written out this {what} has more than {largest:,} parts: "
                "introduce a constant for what is shared"
            )

    def _value(self, node: z3.ExprRef, parts: list[Any]) -> Formula | Linear:
        kind = node.decl().kind()
        if kind == z3.Z3_OP_UNINTERPRETED:
            return self._apply(node, parts) if parts else self._constant(node)
        if kind not in _READ:
            raise NotARule(
                f"`{short(node)}`: rules have no operator {node.decl().name()}"
            )
        return _of_size(_READ[kind](node, parts))

    def _constant(self, node: z3.ExprRef) -> Formula | Linear:
        name = node.decl().name()
        domain = domain_of(node)
        variable = self.variables.setdefault(
            name, Variable(name, len(self.variables), domain)
        )
        if type(variable.domain) is not type(domain):
            raise NotARule(
                f"there are two constants of different sort named `{name}`: give them different names"
            )
        return _is_true(variable) if isinstance(domain, Bool) else Linear.of(variable)

    def _apply(self, node: z3.ExprRef, parts: list[Any]) -> Linear:
        function = node.decl()
        name = node.decl().name()
        sorts = [
            function.range(),
            *(function.domain(i) for i in range(function.arity())),
        ]
        if any(sort.kind() != z3.Z3_REAL_SORT for sort in sorts):
            raise NotARule(
                f"`{short(node)}`: an opaque function takes reals and gives a real, {name} does not"
            )
        if self.functions.setdefault(name, len(parts)) != len(parts):
            raise NotARule(
                f"`{short(node)}`: the function {name} is used with different numbers of arguments"
            )
        return Linear.of(Apply(name, tuple(parts)))


def operands(expression: z3.ExprRef, kind: int) -> list[z3.ExprRef]:
    """The operands of nested ``And`` (``Or``), in order and each once; the expression itself if it is none."""
    found = []
    seen = set()
    stack = [expression]
    while stack:
        node = stack.pop()
        if node.get_id() not in seen:
            seen.add(node.get_id())
            if z3.is_app_of(node, kind):
                stack.extend(reversed(node.children()))
            else:
                found.append(node)
    return found


def _parts(node: z3.ExprRef) -> list[z3.ExprRef]:
    """The operands to read before the node; refuses what is not a number or a truth value."""
    if z3.is_quantifier(node):
        raise NotARule(
            f"`{short(node)}` is a quantifier: write the rule out for each of finitely many cases"
        )
    domain_of(node)
    kind = node.decl().kind()
    return (
        operands(node, kind) if kind in (z3.Z3_OP_AND, z3.Z3_OP_OR) else node.children()
    )


_DOMAINS: dict[int, Domain] = {
    z3.Z3_REAL_SORT: Real(),
    z3.Z3_INT_SORT: Int(0, 0),
    z3.Z3_BOOL_SORT: Bool(),
}
_REFUSED_SORTS = {
    z3.Z3_ARRAY_SORT: "an array: use one constant for each element",
    z3.Z3_BV_SORT: "a bit-vector: use Int with bounds",
    z3.Z3_SEQ_SORT: "a string or sequence: use Int, one number for each value",
    z3.Z3_FLOATING_POINT_SORT: "a floating-point number: use Real",
    z3.Z3_DATATYPE_SORT: "of a datatype: use Int, one number for each value",
}


def domain_of(node: z3.ExprRef) -> Domain:
    """The kind of values of the expression; for integers with a provisional range."""
    kind = node.sort_kind()
    if kind not in _DOMAINS:
        what = _REFUSED_SORTS.get(kind, f"of sort {node.sort()}: use Real, Int or Bool")
        raise NotARule(f"`{short(node)}` is {what}")
    return _DOMAINS[kind]


# --- handlers: the node and its operands, read already, give its value ----------------------------------------------


def _is_true(variable: Variable) -> Atom:
    return Atom(Linear.of(variable) - 1, "==")


def _equal(node: z3.ExprRef, parts: list[Any]) -> Formula:
    left, right = parts
    return Atom(left - right, "==") if isinstance(left, Linear) else _iff(left, right)


def _iff(left: Formula, right: Formula) -> Formula:
    for constant, other in ((left, right), (right, left)):
        if constant in (TRUE, FALSE):
            return other if constant == TRUE else negation(other)
    return Iff(left, right)


def _xor(node: z3.ExprRef, parts: list[Any]) -> Formula:
    odd: Formula = FALSE
    for part in parts:
        odd = negation(_iff(odd, part))
    return odd


def _distinct(node: z3.ExprRef, parts: list[Any]) -> Formula:
    return conjunction(
        [negation(_equal(node, list(pair))) for pair in combinations(parts, 2)]
    )


def _compare(
    relation: Relation, *, turned: bool = False
) -> Callable[[z3.ExprRef, list[Any]], Formula]:
    def atom(node: z3.ExprRef, parts: list[Any]) -> Formula:
        left, right = reversed(parts) if turned else parts
        return Atom(left - right, relation)

    return atom


def _ite(node: z3.ExprRef, parts: list[Any]) -> Formula | Linear:
    condition, then, otherwise = parts
    if not isinstance(then, Linear):
        return conjunction(
            [implies(condition, then), disjunction([condition, otherwise])]
        )
    return _larger_or_smaller(condition, then, otherwise) or _switched(
        condition, then, otherwise
    )


def _larger_or_smaller(
    condition: Formula, then: Linear, otherwise: Linear
) -> Linear | None:
    """``If(a > b, a, b)`` is a maximum and ``If(a < b, a, b)`` a minimum, whatever the comparison was scaled by."""
    difference = then - otherwise
    if (
        not isinstance(condition, Atom)
        or condition.relation == "=="
        or difference.is_constant
    ):
        return None
    symbol, coefficient = difference.summands[0]
    factor = condition.linear.coefficient(symbol) / coefficient
    if not factor or condition.linear != difference * factor:
        return None
    if factor < 0:
        return maximum([*_maximum_of(then), *_maximum_of(otherwise)])
    return -maximum([*_maximum_of(-then), *_maximum_of(-otherwise)])


def _maximum_of(linear: Linear) -> tuple[Linear, ...]:
    """The arguments if the expression is a maximum, so that nested ones become one."""
    if len(linear.summands) == 1 and not linear.constant:
        symbol, coefficient = linear.summands[0]
        if isinstance(symbol, Max) and coefficient == 1:
            return symbol.arguments
    return (linear,)


def _switched(condition: Formula, then: Linear, otherwise: Linear) -> Linear:
    """``then if condition else otherwise``; for two numbers and a Boolean variable just a multiple of that variable."""
    if condition in (TRUE, FALSE):
        return then if condition == TRUE else otherwise
    if (
        then.is_constant
        and otherwise.is_constant
        and isinstance(condition, Atom)
        and len(condition.linear.summands) == 1
    ):
        variable = condition.linear.summands[0][0]
        if (
            isinstance(variable, Variable)
            and isinstance(variable.domain, Bool)
            and condition == _is_true(variable)
        ):
            return (
                Linear.of(variable) * (then.constant - otherwise.constant)
                + otherwise.constant
            )
    return Linear.of(Ite(condition, then, otherwise))


def _sum(node: z3.ExprRef, parts: Sequence[Linear]) -> Linear:
    if len(parts) == 2:
        return parts[0] + parts[1]
    coefficients: dict[Symbol, Fraction] = {}
    constant = Fraction(0)
    for part in parts:
        constant += part.constant
        for symbol, coefficient in part.summands:
            coefficients[symbol] = coefficients.get(symbol, Fraction(0)) + coefficient
    return Linear.total(coefficients, constant)


def _difference(node: z3.ExprRef, parts: list[Any]) -> Linear:
    first, *others = parts
    return _sum(node, [first, *(-other for other in others)])


def _numeral(node: z3.ExprRef) -> Linear:
    text = node.as_string()
    if max(map(len, text.split("/"))) > MOST_DIGITS:
        raise NotARule(_TOO_LONG)
    return Linear.number(Fraction(text))


def _of_size(value: Formula | Linear) -> Formula | Linear:
    """The value, unless its numbers are of a size that cannot be worked with: squaring makes them so in few steps."""
    if isinstance(value, Linear):
        for number in (value.constant, *(c for _, c in value.summands)):
            if (
                max(number.numerator.bit_length(), number.denominator.bit_length())
                > _MOST_BITS
            ):
                raise NotARule(_TOO_LONG)
    return value


def _product(node: z3.ExprRef, parts: list[Any]) -> Linear:
    varying = [
        (part, factor)
        for part, factor in zip(parts, node.children(), strict=True)
        if not part.is_constant
    ]
    if len(varying) > 1:
        (_, first), (_, second), *_ = varying
        raise NotARule(
            f"`{short(node)}` multiplies `{short(first)}` by `{short(second)}`: "
            "rules are linear, one of the two factors must be a number"
        )
    factor = reduce(
        lambda a, b: a * b,
        (part.constant for part in parts if part.is_constant),
        Fraction(1),
    )
    return varying[0][0] * factor if varying else Linear.number(factor)


def _quotient(node: z3.ExprRef, parts: list[Any]) -> Linear:
    if len(parts) != 2:
        raise NotARule(
            f"`{short(node)}`: a quotient has two operands, this one has {len(parts)}"
        )
    left, right = parts
    if not right.is_constant:
        raise NotARule(
            f"`{short(node)}` divides by `{short(node.arg(1))}`: rules are linear, divide by numbers only"
        )
    if right.constant == 0:
        raise NotARule(f"`{short(node)}` divides by zero")
    return left * (1 / right.constant)  # type: ignore[no-any-return]


def _folded(advice: str) -> Callable[[z3.ExprRef, list[Any]], Linear]:
    """The number that z3 computes if all operands are numbers; else refused with the advice."""

    def number(node: z3.ExprRef, parts: list[Any]) -> Linear:
        result = z3.simplify(node)
        if all(part.is_constant for part in parts) and (
            z3.is_int_value(result) or z3.is_rational_value(result)
        ):
            return _numeral(result)
        raise NotARule(f"`{short(node)}`: {advice}")

    return number


def _refuse(advice: str) -> Callable[[z3.ExprRef, list[Any]], Linear]:
    def refused(node: z3.ExprRef, parts: list[Any]) -> Linear:
        raise NotARule(f"`{short(node)}`: {advice}")

    return refused


def _absolute(node: z3.ExprRef, parts: list[Any]) -> Linear:
    return maximum([parts[0], -parts[0]])


def _count(
    relation: Relation, *, turned: bool = False, weighted: bool = True
) -> Callable[..., Formula]:
    """``AtMost``, ``AtLeast`` and the pseudo-Boolean comparisons: a (weighted) count of true operands and a number."""

    def atom(node: z3.ExprRef, parts: list[Any]) -> Formula:
        bound, *weights = (int(p) for p in node.decl().params())
        ones = [_switched(part, Linear.number(1), Linear.number(0)) for part in parts]
        total = _sum(
            node,
            [
                one * w
                for one, w in zip(
                    ones, weights if weighted else [1] * len(ones), strict=True
                )
            ],
        )
        return Atom(Linear.number(bound) - total if turned else total - bound, relation)

    return atom


_INTEGER_DIVISION = "rules have no integer division; introduce an integer q with n == d*q + r and 0 <= r < d"

_READ: dict[int, Callable[[z3.ExprRef, list[Any]], Formula | Linear]] = {
    z3.Z3_OP_TRUE: lambda node, parts: TRUE,
    z3.Z3_OP_FALSE: lambda node, parts: FALSE,
    z3.Z3_OP_AND: lambda node, parts: conjunction(parts),
    z3.Z3_OP_OR: lambda node, parts: disjunction(parts),
    z3.Z3_OP_NOT: lambda node, parts: negation(parts[0]),
    z3.Z3_OP_IMPLIES: lambda node, parts: implies(*parts),
    z3.Z3_OP_XOR: _xor,
    z3.Z3_OP_IFF: _equal,
    z3.Z3_OP_EQ: _equal,
    z3.Z3_OP_DISTINCT: _distinct,
    z3.Z3_OP_ITE: _ite,
    z3.Z3_OP_LE: _compare("<="),
    z3.Z3_OP_LT: _compare("<"),
    z3.Z3_OP_GE: _compare("<=", turned=True),
    z3.Z3_OP_GT: _compare("<", turned=True),
    z3.Z3_OP_ANUM: lambda node, parts: _numeral(node),
    z3.Z3_OP_AGNUM: _refuse("this number is irrational; write a fraction near it"),
    z3.Z3_OP_ADD: _sum,
    z3.Z3_OP_SUB: _difference,
    z3.Z3_OP_UMINUS: lambda node, parts: -parts[0],
    z3.Z3_OP_MUL: _product,
    z3.Z3_OP_DIV: _quotient,
    z3.Z3_OP_ABS: _absolute,
    z3.Z3_OP_TO_REAL: lambda node, parts: parts[0],
    z3.Z3_OP_IDIV: _folded(_INTEGER_DIVISION),
    z3.Z3_OP_MOD: _folded(_INTEGER_DIVISION),
    z3.Z3_OP_REM: _folded(_INTEGER_DIVISION),
    z3.Z3_OP_POWER: _folded("rules are linear and have no powers"),
    z3.Z3_OP_TO_INT: _folded(
        "rules do not round; introduce an integer n with n <= x and x < n + 1"
    ),
    z3.Z3_OP_IS_INT: _refuse(
        "rules cannot ask whether a real is whole; declare an Int"
    ),
    z3.Z3_OP_PB_AT_MOST: _count("<=", weighted=False),
    z3.Z3_OP_PB_AT_LEAST: _count("<=", turned=True, weighted=False),
    z3.Z3_OP_PB_LE: _count("<="),
    z3.Z3_OP_PB_GE: _count("<=", turned=True),
    z3.Z3_OP_PB_EQ: _count("=="),
}
