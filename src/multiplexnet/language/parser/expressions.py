"""The reader of expressions: from the syntax tree of a rule to its formula, one short method per construct."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from typing import TypeVar

from multiplexnet.language.budget import ReadingBudget
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    Apply,
    Category,
    Formula,
    Linear,
    Variable,
    conjunction,
    disjunction,
    negation,
)
from multiplexnet.language.missing import is_missing
from multiplexnet.language.parser.advice import other_function, other_name
from multiplexnet.language.parser.comparisons import (
    Operator,
    choice_between,
    comparison,
    membership,
)
from multiplexnet.language.parser.moments import Moment, moment_number
from multiplexnet.language.parser.operations import (
    FUNCTIONS,
    WORDS,
    dot,
    product,
    remainder,
    rounded_quotient,
    square,
)
from multiplexnet.language.parser.products import product_of, quotient_of
from multiplexnet.language.parser.source import Statement
from multiplexnet.language.parser.values import (
    MOST_BITS,
    MOST_DIGITS,
    Label,
    Number,
    Refusal,
    Squares,
    Truth,
    Value,
    Vector,
    amount,
    counted,
    decimal_number,
    did_you_mean,
    exact,
    flat,
    integer,
    inverse,
    iterated,
    meant,
    number,
    paired,
    refuse_no_number,
    squares,
    total,
    truth,
    variable_in,
    vector,
)

__all__ = ["ExpressionReader", "Names"]

DEEPEST = 100  # nesting of one rule; later stages walk formulas recursively

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
    ast.BitXor: "`^`: write `xor(p, q)`; powers are not linear",
    ast.BitAnd: "`&`: write `and`",
    ast.BitOr: "`|`: write `or`",
    ast.LShift: "`<<`: compare with `<`",
    ast.RShift: "`>>`: compare with `>`",
}
_DOTTED = re.compile(r"\w+(\.\w+)+")
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

    ``arities``: how many arguments each function was first given; ``flags``: of the outputs that may be missing;
    ``odd``: names of single variables that look like those of elements.
    """

    values: dict[str, Value] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    arities: dict[str, int] = field(default_factory=dict)
    flags: dict[Variable, Variable] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)


class ExpressionReader:
    """Reads the expressions of one statement.

    Args:
        statement: where the expressions stand.
        names: what the names in them mean.
        budget: the work that is left for the whole text.
    """

    def __init__(
        self, statement: Statement, names: Names, budget: ReadingBudget
    ) -> None:
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
            raise self.statement.error(
                node, "a constant number is needed here, as in `2.5`"
            )
        return linear.constant

    def value(self, node: ast.expr) -> Value:
        """What an expression stands for; a refusal is turned into an error that points at it."""
        if self._depth == DEEPEST:
            raise self.statement.error(
                node,
                f"nested deeper than {DEEPEST} levels: split the rule into several",
            )
        self._depth += 1
        try:
            value = self._read(node)
            if not isinstance(node, ast.Name | ast.Constant):  # these make nothing new
                self._charge(node, value)
        except Refusal as refusal:
            raise self.statement.error(node, refusal.reason) from None
        except RecursionError:
            raise self.statement.error(
                node, "nested too deeply: split the rule into several"
            ) from None
        finally:
            self._depth -= 1
        return value

    def _charge(self, node: ast.expr, value: Value) -> None:
        """Pay for a value; elements of vectors were paid for, unless arithmetic or a comparison has made them."""
        self.budget.charge(value)
        has_made = isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare) or (
            isinstance(node, ast.Call) and node.keywords
        )
        if has_made and isinstance(value, Vector):
            for element in flat(value):
                self.budget.charge(element)

    def _as(self, kind: Callable[[Value], T], node: ast.expr) -> T:
        return self._to(kind, self.value(node), node)

    def _to(self, kind: Callable[[Value], T], value: Value, node: ast.expr) -> T:
        """The value of a part as one kind; a refusal points at the part."""
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
                return self._comparison(node)
            case ast.BinOp():
                return self._arithmetic(node)
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
            f"{_NO_RULE.get(type(node), 'this')} is not a part of the rule language, which is read and never run"
            + self._perhaps_a_name(node)
        )

    # --- names and literals ---------------------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self._scope:
            return self._scope[name]
        if name in self.names.values:
            return self.names.values[name]
        if name == "assume":
            raise Refusal(
                "`assume` stands before what inputs keep to, as in `assume low <= high`"
            )
        if name in FUNCTIONS or name in self.names.functions:
            raise Refusal(f"`{name}` is a function: call it, as in `{name}(…)`")
        if name == "missing":
            raise Refusal(
                "`missing` stands after `is`: write `x is missing` or `x is not missing`"
            )
        if advice := other_name(name):
            raise Refusal(advice)
        refuse_no_number(name)
        if not self.names.values and not self.names.functions:
            raise Refusal(f"`{name}` where a constant number is needed, as in `3`")
        for variable in self.names.variables:
            if isinstance(variable.domain, Category) and name in variable.domain.labels:
                raise Refusal(
                    f'`{name}` is a label of `{variable.name}`: write it in quotes, `"{name}"`'
                )
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
                return decimal_number(self.statement.written(node))
            case str(text):
                return Label(text, self.names.values.get(text))
            case bytes(text) if node.kind == "date":
                return self._moment(text.decode())
        written = self.statement.written(node)
        advice = "; write `x is missing`" if node.value is None else ""
        raise Refusal(f"`{written}` is not a number, label or truth value{advice}")

    def _moment(self, text: str) -> Value:
        """``d"2024-08-03"``, or with a time ``d"2024-08-03 14:30"``."""
        kind: Moment = "datetime" if ":" in text else "date"
        return Number(Linear.number(moment_number(text, kind)), kind)

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def _arithmetic(self, node: ast.BinOp) -> Value:
        if isinstance(node.op, ast.Add | ast.Sub):
            return self._sum(node)
        if type(node.op) in _NO_OPERATOR:
            raise Refusal(_NO_OPERATOR[type(node.op)])
        left = self.value(node.left)
        right = self.value(node.right)
        if isinstance(node.op, ast.MatMult):
            return dot(left, right)
        return paired(lambda a, b: self._combined(node, a, b), left, right)

    def _combined(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        """One element of a product, quotient, remainder or power."""
        if curved := self._curved(node.op, meant(left), meant(right)):
            return curved
        a = self._to(amount, left, node.left)
        b = self._to(amount, right, node.right)
        match node.op:
            case ast.Mult():
                return Number(self._product(node, a, b))
            case ast.Div():
                return Number(self._quotient(node, a, b))
            case ast.FloorDiv():
                return rounded_quotient(self._quotient(node, a, b), "floor")
            case ast.Mod():
                return remainder(a, b)
        return Number(self._power(a, b))

    def _curved(self, op: ast.operator, left: Value, right: Value) -> Squares | None:
        """A square, or a sum of squares times or over a number."""
        match op, left, right:
            case ast.Pow(), Number(base), Number(power) if not base.is_constant:
                return square(base) if power == Linear.number(2) else None
            case ast.Mult(), Squares(), Number(factor) if factor.is_constant:
                return left * factor.constant
            case ast.Mult(), Number(factor), Squares() if factor.is_constant:
                return right * factor.constant
            case ast.Div(), Squares(), Number(factor) if factor.is_constant:
                return left * inverse(factor.constant)
        return None

    def _sum(self, node: ast.BinOp) -> Value:
        """A chain of ``+`` and ``-``, read in a loop: chains are long where nesting is not."""
        parts = [(part, sign, self.value(part)) for part, sign in _chain(node)]
        if any(isinstance(meant(value), Vector) for _, _, value in parts):
            return self._sum_of_vectors(parts)
        return self._total(parts)

    def _total(self, parts: Sequence[tuple[ast.expr, int, Value]]) -> Value:
        if any(isinstance(meant(value), Squares) for _, _, value in parts):
            signed = (
                self._to(squares, value, part) * Fraction(sign)
                for part, sign, value in parts
            )
            return reduce(Squares.__add__, signed)
        linears = []
        moments: list[str | None] = []
        for part, sign, value in parts:
            linear = self._to(amount, value, part)
            linears.append(linear if sign > 0 else -linear)
            moments.append(value.moment if isinstance(value, Number) else None)
        found = [moment for moment in moments if moment]
        return Number(total(linears), found[0] if len(found) == 1 else None)

    def _sum_of_vectors(self, parts: Sequence[tuple[ast.expr, int, Value]]) -> Value:
        result: Value = Number(Linear())
        for part, sign, value in parts:

            def added(
                a: Value, b: Value, part: ast.expr = part, sign: int = sign
            ) -> Value:
                return self._total([(part, 1, a), (part, sign, b)])

            result = paired(added, result, value)
        return result

    def _product(self, node: ast.BinOp, left: Linear, right: Linear) -> Linear:
        if not left.is_constant and not right.is_constant:
            made = product_of(left, right)
            if made is None:
                advice = "one factor has to be a number, or an input, which is known at run time"
                raise Refusal(self._nonlinear("product of variables", node, advice))
            return made
        return product(left, right)

    def _quotient(self, node: ast.BinOp, left: Linear, right: Linear) -> Linear:
        if not right.is_constant:
            quotient = quotient_of(left, right)
            if quotient is None:
                advice = "multiply both sides, or divide by a number or by one input"
                raise Refusal(self._nonlinear("division by a variable", node, advice))
            return quotient
        return product(left, Linear.number(inverse(right.constant)))

    def _power(self, base: Linear, exponent: Linear) -> Linear:
        """``10**9``: a number to the power of a whole number."""
        if not base.is_constant or not exponent.is_constant:
            raise Refusal(
                "a power: squares `x**2` are read, and numbers to the power of numbers; write a constant as a number, "
                "as in `1e6`"
            )
        power = exponent.constant
        size = max(
            base.constant.numerator.bit_length(), base.constant.denominator.bit_length()
        )
        if power.denominator != 1 or abs(power) * size > MOST_BITS:
            raise Refusal(
                "a power that is not a short number: the exponent has to be a whole number, and the result may have "
                f"{MOST_DIGITS:,} digits"
            )
        if power < 0 and not base.constant:
            raise Refusal("division by zero: divide by another number")
        return Linear.number(base.constant ** int(power))

    def _nonlinear(self, what: str, node: ast.BinOp, advice: str) -> str:
        return f"{what} `{_short(self.statement.written(node))}`: rules are linear; {advice}"

    def _unary(self, node: ast.UnaryOp) -> Value:
        match node.op:
            case ast.Not():
                return Truth(negation(self._as(truth, node.operand)))
            case ast.USub() | ast.UAdd():
                sign = -1 if isinstance(node.op, ast.USub) else 1
                value = self.value(node.operand)
                return paired(
                    lambda a, _: self._signed(a, sign, node.operand), value, value
                )
        raise Refusal("`~`: write `not`")

    def _signed(self, value: Value, sign: int, node: ast.expr) -> Value:
        if isinstance(value, Squares):
            return value * Fraction(sign)
        return Number(self._to(amount, value, node) * sign)

    # --- truth ----------------------------------------------------------------------------------------------------

    def _connective(self, node: ast.BoolOp) -> Formula:
        join, decisive = (
            (conjunction, FALSE)
            if isinstance(node.op, ast.And)
            else (disjunction, TRUE)
        )
        formulas = []
        for part in node.values:
            formulas.append(self._as(truth, part))
            if self._scope and formulas[-1] == decisive:
                break  # in a comprehension the rest may be meaningless here, as in `i > 0 and x[i - 1] > 0`
        return join(formulas)

    def _comparison(self, node: ast.Compare) -> Value:
        if any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            return Truth(self._missing(node))
        nodes = [node.left, *node.comparators]
        values = [self.value(part) for part in nodes]
        if len(values) > 2:
            for part, value in zip(nodes, values, strict=True):
                if isinstance(meant(value), Truth):
                    raise self.statement.error(
                        part,
                        "a truth value in a chained comparison: use brackets or `and`",
                    )
        parts = zip(node.ops, pairwise(values), strict=True)
        compared = [self._compared(op, left, right) for op, (left, right) in parts]
        return reduce(partial(paired, _both), compared)

    def _compared(self, operator: ast.cmpop, left: Value, right: Value) -> Value:
        try:
            if isinstance(operator, ast.In | ast.NotIn):
                return _members(left, right, negated=isinstance(operator, ast.NotIn))
            relation = _RELATIONS[type(operator)]
            return paired(lambda a, b: Truth(comparison(relation, a, b)), left, right)
        except Refusal as refusal:
            raise Refusal(refusal.reason + self._perhaps_names(left, right)) from None

    def _perhaps_a_name(self, node: ast.expr) -> str:
        """What to do about ``loan.amount`` if that is a name."""
        written = self.statement.written(node)
        if not isinstance(node, ast.Attribute) or not _DOTTED.fullmatch(written):
            return ""
        return f'; if it is a name, quote it, as in `"{written}" >= 0`'

    def _perhaps_names(self, *values: Value) -> str:
        """What a quoted text that is not a declared name may have been meant to be."""
        for value in values:
            if isinstance(value, Label) and value.meaning is None:
                return did_you_mean(value.text, self.names.values)
        return ""

    def _missing(self, node: ast.Compare) -> Formula:
        """``x is missing`` or ``x is not missing``."""
        match node.ops, node.comparators:
            case [operator], [ast.Name("missing")]:
                flag = self._flag(node.left)
                formula = is_missing(flag)
                return formula if isinstance(operator, ast.Is) else negation(formula)
            case [operator], [ast.Constant(None)]:
                word = "is" if isinstance(operator, ast.Is) else "is not"
                name = _short(self.statement.written(node.left))
                raise Refusal(f"`None`: write `{name} {word} missing`")
            case _, [ast.Name(name)] if (advice := other_name(name)) is not None:
                raise Refusal(advice)
        raise Refusal("`is`: write `==` or `!=`; `x is missing` stands alone")

    def _flag(self, node: ast.expr) -> Variable:
        """The flag of the output that an expression names."""
        value = meant(self.value(node))
        name = _short(self.statement.written(node))
        if isinstance(value, Vector):
            raise Refusal(
                f"`{name}` is a vector: say of each element, as in `all(v is missing for v in {name})`"
            )
        variable = (
            variable_in(value)
            if isinstance(node, ast.Name | ast.Subscript | ast.Constant)
            else None
        )
        if variable is None:
            raise Refusal(
                "only an output by itself can be missing, as in `x is missing`"
            )
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
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        indices = [self._index(part) for part in parts]
        return self._picked(self.value(node.value), indices, node)

    def _index(self, node: ast.expr) -> int | slice:
        if isinstance(node, ast.Slice):
            return self._slice(node)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        return self.integer(node)

    def _picked(
        self, value: Value, indices: Sequence[int | slice], node: ast.Subscript
    ) -> Value:
        """``w[1, 2]``, ``w[:, 2]``: one index for each dimension."""
        if not indices:
            return value
        if len(indices) < _indices(node) and not isinstance(meant(value), Vector):
            raise Refusal(
                f"{_indices(node)} indices for `{_short(self.statement.written(node.value))}`, which has fewer: "
                "write one for a vector, as in `x[0]`, and two for a matrix, as in `w[1, 2]`"
            )
        elements = self._to(vector, value, node.value)
        index, *rest = indices
        if isinstance(index, slice):
            return Vector(
                tuple(self._picked(element, rest, node) for element in elements[index])
            )
        if not -len(elements) <= index < len(elements):
            name = _short(self.statement.written(node.value))
            raise Refusal(
                f"index {index} is out of range: `{name}` has the elements 0 to {len(elements) - 1}"
            )
        return self._picked(elements[index], rest, node)

    def _slice(self, node: ast.Slice) -> slice:
        start, stop, step = (
            part and self.integer(part) for part in (node.lower, node.upper, node.step)
        )
        if step == 0:
            raise Refusal("a step of zero: write 1 or -1")
        return slice(start, stop, step)

    def _comprehension(
        self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp
    ) -> Value:
        outer = self._scope
        try:
            return Vector(tuple(self._unfolded(node.elt, node.generators)))
        finally:
            self._scope = outer

    def _unfolded(
        self, body: ast.expr, generators: Sequence[ast.comprehension]
    ) -> Iterator[Value]:
        if not generators:
            yield self.value(body)
            return
        first = generators[0]
        rest = generators[1:]
        if first.is_async:
            raise Refusal(
                "`async` is not a part of the rule language, which is read and never run"
            )
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
                        raise Refusal(
                            f"`{name}` is a word of the language: choose another name"
                        )
                    return {name: iterated(element)}
                case ast.Tuple(targets) | ast.List(targets):
                    parts = vector(element)
                    if len(parts) != len(targets):
                        raise Refusal(f"{len(targets)} names for {len(parts)} values")
                    pairs = zip(targets, parts, strict=True)
                    return {
                        name: v
                        for t, part in pairs
                        for name, v in self._bound(t, part).items()
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
                node,
                "this filter depends on a variable: use `implies(p, q)` in the body",
            )
        return formula == TRUE

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name):
            raise Refusal(
                "only functions can be called, by their name, as in `max(a, b)`"
            )
        name = node.func.id
        is_declared = name in self.names.functions
        axis = None if is_declared else self._axis(name, node)
        if node.keywords and axis is None:
            raise Refusal(
                f"`{node.keywords[0].arg or '**'}` in a call: write the arguments without names"
            )
        if is_declared:
            return Number(Linear.of(Apply(name, self._arguments(name, node))))
        if name in FUNCTIONS:
            return self._builtin(name, node, axis)
        if name in self._scope or name in self.names.values:
            raise Refusal(
                f"`{name}` is a variable and cannot be called; is a `*` or `[…]` missing?"
            )
        if advice := other_function(name):
            raise Refusal(advice)
        known = [*FUNCTIONS, *self.names.functions]
        raise Refusal(
            f"unknown function `{name}`{did_you_mean(name, known)}: declare an opaque one as `{name}: function`"
        )

    def _axis(self, name: str, node: ast.Call) -> int | None:
        """``axis=0`` in ``sum(w, axis=0)``."""
        if (
            name not in FUNCTIONS
            or not FUNCTIONS[name].has_axis
            or len(node.keywords) != 1
        ):
            return None
        keyword = node.keywords[0]
        return self.integer(keyword.value) if keyword.arg == "axis" else None

    def _argument(self, name: str, node: ast.expr) -> Value:
        if name == "norm" and isinstance(node, ast.Name) and node.id == "inf":
            return Label("inf")
        if name in ("date", "datetime") and isinstance(node, ast.Constant):
            return (
                Label(str(node.value))
                if isinstance(node.value, str)
                else self.value(node)
            )
        return self.value(node)

    def _builtin(self, name: str, node: ast.Call, axis: int | None) -> Value:
        arguments = [self._argument(name, argument) for argument in node.args]
        try:
            return FUNCTIONS[name](arguments, axis)
        except Refusal as refusal:
            place = node if refusal.argument is None else node.args[refusal.argument]
            raise self.statement.error(
                place, f"in `{name}`: {refusal.reason}"
            ) from None

    def _arguments(self, name: str, node: ast.Call) -> tuple[Linear, ...]:
        count = len(node.args)
        arity = self.names.arities.setdefault(name, count)
        given = counted(count, "argument")
        if count == 0:
            raise Refusal(f"`{name}` with {given}: give at least one, as in `f(x)`")
        if count != arity:
            raise Refusal(f"`{name}` with {given}: give {arity} as before")
        return tuple(self._as(_computed, argument) for argument in node.args)


def _chain(node: ast.expr) -> list[tuple[ast.expr, int]]:
    """The parts of a chain of ``+`` and ``-`` with their signs, from left to right."""
    chain: list[tuple[ast.expr, int]] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sign = 1 if isinstance(node.op, ast.Add) else -1
        chain.append((node.right, sign))
        node = node.left
    chain.append((node, 1))
    return chain[::-1]


def _both(left: Value, right: Value) -> Value:
    """``left and right``, the parts of a chained comparison."""
    return Truth(conjunction([truth(left), truth(right)]))


def _members(value: Value, collection: Value, *, negated: bool) -> Value:
    """``value in collection``, element by element if the value is a vector."""
    own = meant(value)
    if isinstance(own, Vector):
        return Vector(
            tuple(_members(v, collection, negated=negated) for v in own.elements)
        )
    formula = membership(value, collection)
    return Truth(negation(formula) if negated else formula)


def _computed(value: Value) -> Linear:
    """An argument of an opaque function: what a layer computes as the verdict does, bit for bit."""
    linear = amount(value)
    for symbol in (symbol for symbol, _ in linear.summands):
        size = symbol.unit.size if isinstance(symbol, Variable) else Fraction(1)
        if size.denominator & (size.denominator - 1):
            raise Refusal(
                "a function of a number that floats only come near to: declare it as `real`, or as an `int` of cents"
            )
    return linear


def _indices(node: ast.Subscript) -> int:
    return len(node.slice.elts) if isinstance(node.slice, ast.Tuple) else 1


def _short(text: str, width: int = 40) -> str:
    if len(text) <= width:
        return text
    return text[: width - 1] + "…"
