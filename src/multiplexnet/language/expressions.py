"""The reader of expressions: from the syntax tree of a rule to its formula, one short method per construct."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

from multiplexnet.language.budget import Budget
from multiplexnet.language.comparisons import Operator, choice_between, comparison, membership
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Apply,
    Formula,
    Linear,
    Variable,
    conjunction,
    disjunction,
    negation,
)
from multiplexnet.language.missing import is_missing
from multiplexnet.language.operations import FUNCTIONS
from multiplexnet.language.products import product_of, quotient_of
from multiplexnet.language.source import Statement
from multiplexnet.language.values import (
    Label,
    Number,
    Refusal,
    Truth,
    Value,
    Vector,
    amount,
    counted,
    decimal,
    did_you_mean,
    exact,
    integer,
    iterated,
    number,
    refuse_no_number,
    total,
    truth,
    variable_in,
    vector,
)

__all__ = ["TYPES", "WORDS", "ExpressionReader", "Names"]

DEEPEST = 100  # nesting of one rule; later stages walk formulas recursively
TYPES = ("real", "int", "bool", "input", "function")
WORDS = frozenset([*TYPES, *FUNCTIONS, "assume"])

T = TypeVar("T")

_RELATIONS: dict[type[ast.cmpop], Operator] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_NO_OPERATOR: dict[type[ast.operator], str] = {
    ast.Pow: "a power: rules are linear; write a constant as a number, as in `1e6`",
    ast.BitXor: "`^`: write `xor(p, q)`; powers are not linear",
    ast.BitAnd: "`&`: write `and`",
    ast.BitOr: "`|`: write `or`",
    ast.Mod: "`%`: a remainder is not linear; use an `int[lower, upper]` output, as in `x == 2*n`",
    ast.FloorDiv: "`//`: rounding is not linear; divide by a constant with `/`",
    ast.MatMult: "`@`: write `sum(a * b for …)` with constants `a`",
    ast.LShift: "`<<`: compare with `<`",
    ast.RShift: "`>>`: compare with `>`",
}
_NO_RULE: dict[type[ast.expr], str] = {
    ast.Attribute: "attribute access",
    ast.Lambda: "a lambda",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "`:=`",
    ast.Await: "`await`",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield`",
    ast.Starred: "`*` before a list",
    ast.Dict: "a dictionary or empty `{}`",
    ast.DictComp: "a dictionary",
    ast.Slice: "a slice",
}


@dataclass(frozen=True)
class Names:
    """What the names of a text stand for.

    ``arities``: how many arguments each function was first given; ``flags``: of the outputs that may be missing.
    """

    values: dict[str, Value] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    arities: dict[str, int] = field(default_factory=dict)
    flags: dict[Variable, Variable] = field(default_factory=dict)


class ExpressionReader:
    """Reads the expressions of one statement.

    Args:
        statement: where the expressions stand.
        names: what the names in them mean.
        budget: the work that is left for the whole text.
    """

    def __init__(self, statement: Statement, names: Names, budget: Budget) -> None:
        self.statement = statement
        self.names = names
        self.budget = budget
        self._scope: dict[str, Value] = {}  # the variables of comprehensions
        self._depth = 0

    def rule(self, node: ast.expr) -> Formula:
        """The formula of a whole rule."""
        if isinstance(node, ast.Tuple):
            raise self.statement.error(
                node, "a comma between rules: write `and`, `;` or one rule a line"
            )
        return self._as(truth, node)

    def integer(self, node: ast.expr) -> int:
        """The constant whole number that an expression stands for."""
        return self._as(integer, node)

    def constant(self, node: ast.expr) -> Fraction:
        """The constant number that an expression stands for."""
        linear = self._as(number, node)
        if not linear.is_constant:
            raise self.statement.error(node, "a constant number is needed here, as in `2.5`")
        return linear.constant

    def value(self, node: ast.expr) -> Value:
        """What an expression stands for; a refusal is turned into an error that points at it."""
        if self._depth == DEEPEST:
            raise self.statement.error(
                node, f"nested deeper than {DEEPEST} levels: split the rule into several"
            )
        self._depth += 1
        try:
            value = self._read(node)
            if not isinstance(node, ast.Name | ast.Constant):  # these make nothing new
                self.budget.charge(value)
        except Refusal as refusal:
            raise self.statement.error(node, refusal.reason) from None
        except RecursionError:
            raise self.statement.error(
                node, "nested too deeply: split the rule into several"
            ) from None
        finally:
            self._depth -= 1
        return value

    def _as(self, kind: Callable[[Value], T], node: ast.expr) -> T:
        value = self.value(node)
        try:
            return kind(value)
        except Refusal as refusal:
            raise self.statement.error(node, refusal.reason) from None

    def _read(self, node: ast.expr) -> Value:
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant():
                return self._literal(node)
            case ast.Compare():
                return Truth(self._comparison(node))
            case ast.BinOp():
                return Number(self._arithmetic(node))
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return Truth(self._connective(node))
            case ast.Subscript():
                return self._element(node)
            case ast.Call():
                return self._call(node)
            case ast.IfExp():
                return self._case(node)
            case ast.List() | ast.Tuple() | ast.Set():
                return Vector(tuple(self.value(element) for element in node.elts))
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp():
                return self._comprehension(node)
        if isinstance(node, ast.Attribute):
            refuse_no_number(node.attr)
        raise Refusal(
            f"{_NO_RULE.get(type(node), 'this')} is no part of the rule language, which is read and never run"
        )

    # --- names and literals ---------------------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self._scope:
            return self._scope[name]
        if name in self.names.values:
            return self.names.values[name]
        if name == "assume":
            raise Refusal("`assume` stands before what inputs keep to, as in `assume low <= high`")
        if name in FUNCTIONS or name in self.names.functions:
            raise Refusal(f"`{name}` is a function: call it, as in `{name}(…)`")
        refuse_no_number(name)
        if not self.names.values and not self.names.functions:
            raise Refusal(f"`{name}` where a constant number is needed, as in `3`")
        known = [*self._scope, *self.names.values]
        raise Refusal(
            f"unknown name `{name}`{did_you_mean(name, known)}: declare it, as in `{name}: real`"
        )

    def _literal(self, node: ast.Constant) -> Value:
        match node.value:
            case bool(flag):
                return Truth(TRUE if flag else FALSE)
            case int(digits):
                return Number(Linear((), exact(Fraction(digits))))
            case float():
                return Number(Linear((), exact(decimal(self.statement.written(node)))))
            case str(text):
                return Label(text)
        raise Refusal(f"`{self.statement.written(node)}` is no number, label or truth value")

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def _arithmetic(self, node: ast.BinOp) -> Linear:
        match node.op:
            case ast.Add() | ast.Sub():
                return total(self._summands(node))
            case ast.Mult():
                return self._product(node)
            case ast.Div():
                return self._quotient(node)
        raise Refusal(f"{_NO_OPERATOR[type(node.op)]}")

    def _summands(self, node: ast.expr) -> list[Linear]:
        """The parts of a chain of ``+`` and ``-``, read in a loop: chains are long where nesting is not."""
        chain: list[tuple[ast.expr, int]] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            sign = 1 if isinstance(node.op, ast.Add) else -1
            chain.append((node.right, sign))
            node = node.left
        chain.append((node, 1))
        linears = []
        for part, sign in reversed(chain):
            linear = self._as(amount, part)
            linears.append(linear if sign > 0 else -linear)
        return linears

    def _product(self, node: ast.BinOp) -> Linear:
        left = self._as(amount, node.left)
        right = self._as(amount, node.right)
        if not left.is_constant and not right.is_constant:
            product = product_of(left, right)
            if product is None:
                advice = "one factor has to be a number, or an input, which is known at run time"
                raise Refusal(self._nonlinear("product of variables", node, advice))
            return product
        linear, factor = (left, right.constant) if right.is_constant else (right, left.constant)
        return _scaled(linear, factor)

    def _quotient(self, node: ast.BinOp) -> Linear:
        left = self._as(amount, node.left)
        right = self._as(amount, node.right)
        if not right.is_constant:
            quotient = quotient_of(left, right)
            if quotient is None:
                advice = "multiply both sides, or divide by a number or by one input"
                raise Refusal(self._nonlinear("division by a variable", node, advice))
            return quotient
        if not right.constant:
            raise Refusal("division by zero: divide by another number")
        return _scaled(left, 1 / right.constant)

    def _nonlinear(self, what: str, node: ast.BinOp, advice: str) -> str:
        return f"{what} `{_short(self.statement.written(node))}`: rules are linear; {advice}"

    def _unary(self, node: ast.UnaryOp) -> Value:
        match node.op:
            case ast.Not():
                return Truth(negation(self._as(truth, node.operand)))
            case ast.USub():
                return Number(-self._as(amount, node.operand))
            case ast.UAdd():
                return Number(self._as(amount, node.operand))
        raise Refusal("`~`: write `not`")

    # --- truth ----------------------------------------------------------------------------------------------------

    def _connective(self, node: ast.BoolOp) -> Formula:
        join, decisive = (
            (conjunction, FALSE) if isinstance(node.op, ast.And) else (disjunction, TRUE)
        )
        formulas = []
        for part in node.values:
            formulas.append(self._as(truth, part))
            if self._scope and formulas[-1] == decisive:
                break  # in a comprehension the rest may be meaningless here, as in `i > 0 and x[i - 1] > 0`
        return join(formulas)

    def _comparison(self, node: ast.Compare) -> Formula:
        if any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            return self._missing(node)
        nodes = [node.left, *node.comparators]
        values = [self.value(part) for part in nodes]
        if len(values) > 2:
            for part, value in zip(nodes, values, strict=True):
                if isinstance(value, Truth):
                    raise self.statement.error(
                        part, "a truth value in a chained comparison: use brackets or `and`"
                    )
        parts = zip(node.ops, pairwise(values), strict=True)
        return conjunction([self._compared(op, left, right) for op, (left, right) in parts])

    def _compared(self, operator: ast.cmpop, left: Value, right: Value) -> Formula:
        match operator:
            case ast.In():
                return membership(left, right)
            case ast.NotIn():
                return negation(membership(left, right))
        return comparison(_RELATIONS[type(operator)], left, right)

    def _missing(self, node: ast.Compare) -> Formula:
        """``x is missing`` or ``x is not missing``."""
        match node.ops, node.comparators:
            case [operator], [ast.Name("missing")]:
                flag = self._flag(node.left)
                formula = is_missing(flag)
                return formula if isinstance(operator, ast.Is) else negation(formula)
        raise Refusal("`is`: write `==` or `!=`; `x is missing` stands alone")

    def _flag(self, node: ast.expr) -> Variable:
        """The flag of the output that an expression names."""
        value = self.value(node)
        name = _short(self.statement.written(node))
        if isinstance(value, Vector):
            raise Refusal(
                f"`{name}` is a vector: say of each element, as in `all(v is missing for v in {name})`"
            )
        variable = variable_in(value) if isinstance(node, ast.Name | ast.Subscript) else None
        if variable is None:
            raise Refusal("only an output by itself can be missing, as in `x is missing`")
        if variable not in self.names.flags:
            raise Refusal(
                f"`{name}` is never missing: declare that it may be with `?`, as in `{name}: real?`"
            )
        return self.names.flags[variable]

    def _case(self, node: ast.IfExp) -> Value:
        condition = self._as(truth, node.test)
        if self._scope and condition in (TRUE, FALSE):
            return self.value(node.body if condition == TRUE else node.orelse)
        return choice_between(condition, self.value(node.body), self.value(node.orelse))

    # --- vectors --------------------------------------------------------------------------------------------------

    def _element(self, node: ast.Subscript) -> Value:
        elements = self._as(vector, node.value)
        if isinstance(node.slice, ast.Slice):
            return Vector(elements[self._slice(node.slice)])
        index = self.integer(node.slice)
        if not -len(elements) <= index < len(elements):
            name = _short(self.statement.written(node.value))
            raise Refusal(
                f"index {index} is out of range: `{name}` has the elements 0 to {len(elements) - 1}"
            )
        return elements[index]

    def _slice(self, node: ast.Slice) -> slice:
        start, stop, step = (
            part and self.integer(part) for part in (node.lower, node.upper, node.step)
        )
        if step == 0:
            raise Refusal("a step of zero: write 1 or -1")
        return slice(start, stop, step)

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp) -> Value:
        outer = self._scope
        try:
            return Vector(tuple(self._unfolded(node.elt, node.generators)))
        finally:
            self._scope = outer

    def _unfolded(self, body: ast.expr, generators: Sequence[ast.comprehension]) -> Iterator[Value]:
        if not generators:
            yield self.value(body)
            return
        first = generators[0]
        rest = generators[1:]
        if first.is_async:
            raise Refusal("`async` is no part of the rule language, which is read and never run")
        outer = self._scope
        for element in self._as(vector, first.iter):
            self.budget.charge(element)
            self._scope = {**outer, **self._bound(first.target, element)}
            if all(self._filter(condition) for condition in first.ifs):
                yield from self._unfolded(body, rest)
        self._scope = outer

    def _bound(self, target: ast.expr, element: Value) -> dict[str, Value]:
        """What the names before ``in`` mean for one element."""
        try:
            match target:
                case ast.Name(name):
                    if name in WORDS:
                        raise Refusal(f"`{name}` is a word of the language: choose another name")
                    return {name: iterated(element)}
                case ast.Tuple(targets) | ast.List(targets):
                    parts = vector(element)
                    if len(parts) != len(targets):
                        raise Refusal(f"{len(targets)} names for {len(parts)} values")
                    pairs = zip(targets, parts, strict=True)
                    return {
                        name: v for t, part in pairs for name, v in self._bound(t, part).items()
                    }
        except Refusal as refusal:
            raise self.statement.error(target, refusal.reason) from None
        raise self.statement.error(
            target, "a plain name is needed before `in`, as in `for i in range(3)`"
        )

    def _filter(self, node: ast.expr) -> bool:
        formula = self._as(truth, node)
        if formula not in (TRUE, FALSE):
            raise self.statement.error(
                node, "this filter depends on a variable: use `implies(p, q)` in the body"
            )
        return formula == TRUE

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name):
            raise Refusal("only functions can be called, by their name, as in `max(a, b)`")
        if node.keywords:
            raise Refusal(
                f"`{node.keywords[0].arg or '**'}` in a call: write the arguments without names"
            )
        name = node.func.id
        if name in FUNCTIONS:
            return self._builtin(name, node)
        if name in self.names.functions:
            return Number(Linear.of(Apply(name, self._arguments(name, node))))
        if name in self._scope or name in self.names.values:
            raise Refusal(
                f"`{name}` is a variable and cannot be called; is a `*` or `[…]` missing?"
            )
        if name == "float":
            raise Refusal(
                "`float`: write numbers as they are, as in `0.5`; a bound that is infinite is left out"
            )
        known = [*FUNCTIONS, *self.names.functions]
        raise Refusal(
            f"unknown function `{name}`{did_you_mean(name, known)}: declare an opaque one as `{name}: function`"
        )

    def _builtin(self, name: str, node: ast.Call) -> Value:
        arguments = [self.value(argument) for argument in node.args]
        try:
            return FUNCTIONS[name](arguments)
        except Refusal as refusal:
            place = node if refusal.argument is None else node.args[refusal.argument]
            raise self.statement.error(place, f"in `{name}`: {refusal.reason}") from None

    def _arguments(self, name: str, node: ast.Call) -> tuple[Linear, ...]:
        count = len(node.args)
        arity = self.names.arities.setdefault(name, count)
        given = counted(count, "argument")
        if count == 0:
            raise Refusal(f"`{name}` with {given}: give at least one, as in `f(x)`")
        if count != arity:
            raise Refusal(f"`{name}` with {given}: give {arity} as before")
        return tuple(self._as(amount, argument) for argument in node.args)


def _scaled(linear: Linear, factor: Fraction) -> Linear:
    scaled = linear * factor
    for c in (scaled.constant, *(c for _, c in scaled.summands)):
        exact(c)
    return scaled


def _short(text: str, width: int = 40) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1] + "…"
