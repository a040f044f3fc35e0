"""Declarations: which variables and functions a text speaks of.

::

    x: real                    x: real[3]              x: real[3, 4]     an output, three x[0], x[1], x[2], a matrix
    n: int[0, 9]               n: int[0, 9][3]
    price: decimal(2)[0, 1000]                         whole cents
    x: real[0, 10] step 0.5    n: int[0, 100] step 5   the multiples of a step
    start: date                start: date["2024-01-01", "2024-12-31"]   days since 1970-01-01
    t: datetime                                        seconds since then
    on: bool                   on: bool[3]
    c: {"red", "green"}        c: {"red", "green"}[3]
    u: input                   u: input[0, 100]        known at run time, here within a range
    u: input[3]                u: input[0, 100][3, 4]  several of them
    d: input date              u: input real[3, 4]     an input of any other kind
    f: function
    x: real?                   n: int[0, 9]?[3]        outputs that may be missing

A name may stand in quotes or back-ticks; then it may be any text.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import floor, prod
from typing import Literal

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.budget import ReadingBudget
from multiplexnet.language.formula import (
    Bool,
    Category,
    Domain,
    Int,
    Real,
    Unit,
    Variable,
)
from multiplexnet.language.missing import flag_of
from multiplexnet.language.parser.advice import quote
from multiplexnet.language.parser.expressions import ExpressionReader, Names
from multiplexnet.language.parser.moments import (
    FIRST,
    LAST,
    Moment,
    moment_number,
    moment_text,
)
from multiplexnet.language.parser.operations import TYPES, WORDS
from multiplexnet.language.parser.source import Statement
from multiplexnet.language.parser.values import (
    Refusal,
    Value,
    Vector,
    did_you_mean,
    refuse_no_number,
    value_of,
)
from multiplexnet.language.text import number_text

__all__ = ["Appearances", "declared"]

MOST_VARIABLES = 200_000
_TYPES_LISTED = (
    'write `real`, `int[0, 9]`, `decimal(2)[0, 99]`, `date`, `datetime`, `bool`, `{"red", "green"}`, `input` or '
    "`function`"
)
_SIMILAR = {
    "float": "real",
    "number": "real",
    "boolean": "bool",
    "integer": "int",
    **dict.fromkeys(("Literal", "enum", "category", "categorical"), '{"red", "green"}'),
    "time": "datetime",
    "timestamp": "datetime",
    "matrix": "real[3, 4]",
    "vector": "real[3]",
}
_TEXTS = ("str", "string", "text", "varchar", "char", "object")
MOST_DIGITS_AFTER_POINT = 12


def declared(
    declarations: Iterable[tuple[Statement, ast.AnnAssign]], budget: ReadingBudget
) -> Names:
    """What the names mean by these declarations."""
    names = Names()
    nullable: list[Variable] = []
    for statement, node in declarations:
        known = len(names.variables)
        _Declaration(statement, node, names, budget).enter()
        if statement.may_be_missing:
            nullable += names.variables[known:]
    for variable in nullable:  # behind all others, so that outputs keep their columns
        flag = flag_of(variable, len(names.variables))
        names.variables.append(flag)
        names.flags[variable] = flag
    return names


class _Declaration:
    """One ``name: type`` that is to be entered among the names."""

    def __init__(
        self,
        statement: Statement,
        node: ast.AnnAssign,
        names: Names,
        budget: ReadingBudget,
    ) -> None:
        self.statement = statement
        self.node = node
        self.names = names
        self.reader = ExpressionReader(
            statement, Names(), budget
        )  # knows no names: ranges and sizes are constants

    def enter(self) -> None:
        name, is_quoted = self._name()
        role, kind, step = self._annotation()
        base, brackets = _peeled(kind)
        is_known = role == "input" or (
            isinstance(base, ast.Name) and base.id == "function"
        )
        if self.statement.may_be_missing and is_known:
            raise self._error(
                base,
                "`?` is for outputs: inputs and functions are known, and never missing",
            )
        if isinstance(base, ast.Name) and base.id == "function" and not brackets:
            self._refuse(step, role == "input")
            self.names.functions.append(name)
            return
        domain = self._domain(base, brackets, step, role)
        if len(brackets) > 1:
            raise self._error(
                brackets[1],
                "more than one size: a vector has one, as in `real[3]`, and a matrix two, as in `real[3, 4]`",
            )
        shape = self._shape(brackets[0]) if brackets else ()
        whole = is_quoted and not shape and Variable(name, 0).place[1] != ()
        variable = Variable(name, len(self.names.variables), domain, role, whole)
        try:
            _enter(self.names, variable, shape)
        except Refusal as refusal:
            raise self._error(self.node.annotation, refusal.reason) from None

    def _name(self) -> tuple[str, bool]:
        """The name, and whether it was quoted."""
        target = self.node.target
        if isinstance(target, ast.Attribute):
            written = self.statement.written(target)
            raise self._error(target, quote(written, "is not a plain name: quote it"))
        if not isinstance(target, ast.Name):
            raise self._error(
                target,
                "a plain name is needed before `:`; declare a vector as in `x: real[3]`",
            )
        if self.node.value is not None:
            raise self._error(
                self.node.value,
                "a value in a declaration: write it as a rule, as in `x == 1`",
            )
        is_quoted = self.statement.written(target) != target.id
        is_formula = isinstance(
            self.node.annotation, ast.Compare | ast.BoolOp | ast.Call
        )
        if target.id == "assume" and not is_quoted and is_formula:
            raise self._error(
                target,
                "`assume:`: write it without the colon, as in `assume low <= high`",
            )
        if target.id in WORDS and not is_quoted:
            raise self._error(
                target,
                f"`{target.id}` is a word of the language: choose another name, or quote it, "
                f'as in `"{target.id}": real`',
            )
        if target.id in self.names.values or target.id in self.names.functions:
            raise self._error(target, f"`{target.id}` is declared twice: remove one")
        return target.id, is_quoted

    def _annotation(
        self,
    ) -> tuple[Literal["output", "input"], ast.expr, ast.expr | None]:
        """The role, the kind, and what stands behind ``step``; both are respelled with ``|``."""
        kind = self.node.annotation
        if not isinstance(kind, ast.BinOp):
            return _role(kind), kind, None
        step = None
        if "|" in self.statement.text or not isinstance(kind.op, ast.BitOr):
            raise self._no_type(kind)
        if not _is_input(kind.left):
            step = kind.right
            kind = kind.left
        if (
            isinstance(kind, ast.BinOp)
            and isinstance(kind.op, ast.BitOr)
            and _is_input(kind.left)
        ):
            return "input", kind.right, step
        return _role(kind), kind, step

    def _domain(
        self, base: ast.expr, brackets: list[ast.expr], step: ast.expr | None, role: str
    ) -> Domain:
        """Where values lie; takes the range out of the brackets."""
        match base:
            case ast.Name("real") if step is not None:
                return self._grid(brackets, step, self.reader.constant)
            case ast.Name("int") if step is not None:
                return self._grid(brackets, step, self.reader.integer)
        self._refuse(step)
        match base:
            case ast.Name("real"):
                return Real()
            case ast.Name("int"):
                return self._whole_range(brackets)
            case ast.Call(ast.Name("decimal"), [digits], []):
                return self._decimal(digits, brackets)
            case ast.Name("decimal"):
                raise self._error(
                    base,
                    "a `decimal` without digits: write how many, as in `decimal(2)[0, 1000]`",
                )
            case ast.Name(("date" | "datetime") as kind):
                return self._moments(kind, brackets)
            case ast.Name("input"):
                return self._range(brackets)
        self._refuse(None, role == "input")
        match base:
            case ast.Name("bool"):
                return Bool()
            case ast.Set(labels):
                return Category(tuple(self._labels(labels)))
            case ast.Name("function"):
                raise self._error(base, "a function has no size: write `f: function`")
            case ast.Name(word) if word in _TEXTS:
                raise self._error(
                    base,
                    f'`{word}`: of texts only labels are declared, as in `{{"red", "green"}}`; a column of other '
                    "texts is left out, and tables may have it",
                )
            case ast.Name(word):
                hint = (
                    f" (did you mean `{_SIMILAR[word]}`?)"
                    if word in _SIMILAR
                    else did_you_mean(word, [*TYPES, "decimal", "date", "datetime"])
                )
                raise self._error(base, f"unknown type `{word}`{hint}: {_TYPES_LISTED}")
        raise self._no_type(base)

    def _no_type(self, found: ast.expr) -> RuleSyntaxError:
        """The error for what stands in place of a type."""
        advice = _TYPES_LISTED
        match found:
            case ast.List([ast.Constant(str()), *_]) | ast.BinOp(ast.Constant(str())):
                advice = 'labels stand in braces, as in `{"red", "green"}`'
            case ast.BinOp(_, ast.FloorDiv()):
                advice = "comments begin with `#`"
            case ast.Compare():
                advice = (
                    "write a range in brackets, as in `n: int[0, 9]`, or as a rule of its own, as in "
                    "`x: real; x >= 0`"
                )
        return self._error(found, f"this is not a type: {advice}")

    def _refuse(self, step: ast.expr | None, is_input: bool = False) -> None:
        if step is not None:
            raise self._error(
                step, "`step` is for numbers, as in `real[0, 10] step 0.5`"
            )
        if is_input:
            raise self._error(
                self.node.annotation,
                "an input is a number: write `input`, `input int[0, 9]`, `input decimal(2)[0, 99]` or `input date`",
            )

    # --- ranges ---------------------------------------------------------------------------------------------------

    def _whole_range(self, brackets: list[ast.expr]) -> Int:
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            raise self._error(
                self.node.annotation,
                "an `int` without a range: write both ends, as in `int[0, 9]`",
            )
        lower, upper = self._ends(brackets.pop(0), self.reader.integer)
        return Int(int(lower), int(upper))

    def _grid(
        self,
        brackets: list[ast.expr],
        step: ast.expr,
        number: Callable[[ast.expr], Fraction | int],
    ) -> Int:
        if isinstance(step, ast.Subscript):
            raise self._error(
                step, "the range stands before `step`, as in `real[0, 10] step 0.5`"
            )
        size = Fraction(number(step))
        if size <= 0:
            raise self._error(step, f"a step of {size}: write a positive number")
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            raise self._error(
                self.node.annotation,
                "a `step` without a range: write both ends, as in `real[0, 10] step 0.5`",
            )
        return self._multiples(brackets.pop(0), Unit(size, "step"), number)

    def _decimal(self, digits: ast.expr, brackets: list[ast.expr]) -> Int:
        count = self.reader.integer(digits)
        if not 0 <= count <= MOST_DIGITS_AFTER_POINT:
            raise self._error(
                digits,
                f"{count} digits after the point: write 0 to {MOST_DIGITS_AFTER_POINT}",
            )
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            raise self._error(
                self.node.annotation,
                f"a `decimal` without a range: write both ends, as in `decimal({count})[0, 1000]`",
            )
        unit = Unit(Fraction(1, 10**count), "decimal")
        return self._multiples(brackets.pop(0), unit, self.reader.constant)

    def _multiples(
        self, node: ast.expr, unit: Unit, number: Callable[[ast.expr], Fraction | int]
    ) -> Int:
        """The multiples of a unit between two ends, which are such multiples themselves."""
        lower, upper = self._ends(node, number)
        for end in (lower, upper):
            if (end / unit.size).denominator > 1:
                below = floor(end / unit.size) * unit.size
                raise self._error(
                    node,
                    f"{end} is not a multiple of {unit.size}: both ends have to be; write "
                    f"{number_text(below)} or {number_text(below + unit.size)}",
                )
        return Int(int(lower / unit.size), int(upper / unit.size), unit)

    def _moments(self, kind: Moment, brackets: list[ast.expr]) -> Int:
        unit = Unit(Fraction(1), kind)
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            return Int(FIRST[kind], LAST[kind], unit)

        def moment(node: ast.expr) -> int:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                try:
                    return moment_number(node.value, kind)
                except Refusal as refusal:
                    raise self._error(node, refusal.reason) from None
            return self.reader.integer(node)

        def shown(number: Fraction | int) -> str:
            return moment_text(int(number), kind) or str(number)

        lower, upper = self._ends(brackets.pop(0), moment, shown)
        return Int(int(lower), int(upper), unit)

    def _range(self, brackets: list[ast.expr]) -> Real:
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            return Real()
        return Real(*self._ends(brackets.pop(0), self.reader.constant))

    def _ends(
        self,
        node: ast.expr,
        end: Callable[[ast.expr], Fraction | int],
        shown: Callable[[Fraction | int], str] = str,
    ) -> tuple[Fraction, Fraction]:
        if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
            raise self._error(node, "a range has two ends, as in `[0, 9]`")
        lower, upper = map(end, node.elts)
        if lower > upper:
            raise self._error(
                node,
                f"an empty range: {shown(lower)} is greater than {shown(upper)}; write the smaller end first",
            )
        return Fraction(lower), Fraction(upper)

    def _labels(self, nodes: Sequence[ast.expr]) -> list[str]:
        labels: dict[str, None] = {}
        for node in nodes:
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                raise self._error(
                    node, 'labels are strings in quotes, as in `{"red", "green"}`'
                )
            if node.value in labels:
                raise self._error(
                    node, f'the label "{node.value}" stands twice: remove one'
                )
            labels[node.value] = None
        return list(labels)

    def _shape(self, node: ast.expr) -> tuple[int, ...]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        shape = tuple(map(self.reader.integer, parts))
        for size, part in zip(shape, parts, strict=True):
            if size < 1:
                what = "vector" if len(shape) == 1 else "matrix"
                raise self._error(
                    part,
                    f"a {what} of size {size}: give at least 1; a range is given to `int`, `decimal` and `input`, "
                    "write others as a rule, as in `0 <= x <= 1`",
                )
        return shape

    def _error(self, node: ast.expr | ast.stmt, reason: str) -> RuleSyntaxError:
        return self.statement.error(node, reason)


def _peeled(annotation: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """The type without its brackets, and what stands in them from left to right."""
    brackets: list[ast.expr] = []
    while isinstance(annotation, ast.Subscript):
        brackets.insert(0, annotation.slice)
        annotation = annotation.value
    return annotation, brackets


def _is_input(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "input"


def _role(kind: ast.expr) -> Literal["output", "input"]:
    return "input" if _is_input(_peeled(kind)[0]) else "output"


def _enter(names: Names, variable: Variable, shape: tuple[int, ...]) -> None:
    """Give a name the meaning of one variable, or of the vector or matrix that begins with it."""
    if len(names.variables) + prod(shape) > MOST_VARIABLES:
        raise Refusal(
            f"more than {MOST_VARIABLES:,} variables: use fewer or smaller vectors"
        )
    places = product(*map(range, shape))
    elements = [_element(variable, place, i) for i, place in enumerate(places)]
    clash = names.odd.intersection(v.name for v in elements) if names.odd else None
    if clash:
        raise Refusal(f"`{min(clash)}` is declared twice: remove one")
    if variable.whole:
        if any(v.name == variable.name for v in names.variables):
            raise Refusal(f"`{variable.name}` is declared twice: remove one")
        names.odd.add(variable.name)
    names.variables.extend(elements)
    names.values[variable.name] = _shaped([value_of(v) for v in elements], shape)


def _element(variable: Variable, place: tuple[int, ...], offset: int) -> Variable:
    if not place:
        return variable
    name = f"{variable.name}[{', '.join(map(str, place))}]"
    return replace(variable, name=name, index=variable.index + offset)


def _shaped(values: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """Values row by row as nested vectors."""
    if not shape:
        return values[0]
    length = len(values) // shape[0]
    rows = (values[i * length : (i + 1) * length] for i in range(shape[0]))
    return Vector(tuple(_shaped(row, shape[1:]) for row in rows))


# --- without declarations -------------------------------------------------------------------------------------------


class Appearances:
    """The names of undeclared rules in order of appearance: real outputs.

    A name that is indexed is a vector, as long as its largest literal index asks for.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[Statement, ast.Name]] = {}
        self._sizes: dict[str, int | None] = {}

    def note(self, statement: Statement, tree: ast.Expr) -> None:
        """Take in the names of one rule."""
        for node, size in sorted(_uses(tree), key=_place):
            self._first.setdefault(node.id, (statement, node))
            known = self._sizes.setdefault(node.id, size)
            if size is not None:
                self._sizes[node.id] = max(size, known or 0)

    def names(self) -> Names:
        """What the names mean."""
        names = Names()
        for name, (statement, node) in self._first.items():
            try:
                _infer(names, name, self._sizes[name])
            except Refusal as refusal:
                raise statement.error(node, refusal.reason) from None
        return names


def _place(use: tuple[ast.Name, int | None]) -> tuple[int, int]:
    name, _ = use
    return name.lineno, name.col_offset


def _infer(names: Names, name: str, size: int | None) -> None:
    if name in WORDS:
        raise Refusal(
            f"`{name}` is a word of the language: call it if it is a function, or choose another name"
        )
    refuse_no_number(name)
    if size == 0:
        raise Refusal(
            f"the size of `{name}` is not known: declare it and all other names, as in `{name}: real[3]`"
        )
    whole = size is None and Variable(name, 0).place[1] != ()
    shape = () if size is None else (size,)
    _enter(names, Variable(name, len(names.variables), whole=whole), shape)


def _uses(root: ast.AST) -> Iterator[tuple[ast.Name, int | None]]:
    """Names that no comprehension binds, and for indexed ones the size that the index asks for (0: any)."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(root, frozenset())]
    while stack:
        node, bound = stack.pop()
        match node:
            case ast.Constant():
                continue
            case ast.Name(name):
                if name not in bound:
                    yield node, None
                continue
            case ast.Subscript(ast.Name(name) as value, index):
                if name not in bound:
                    yield value, _size_for(index)
                stack.append((index, bound))
                continue
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp():
                bound |= {
                    n.id
                    for g in node.generators
                    for n in ast.walk(g.target)
                    if isinstance(n, ast.Name)
                }
        children = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr | ast.comprehension)
        ]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            del children[0]
        stack.extend((child, bound) for child in children)


def _size_for(index: ast.expr) -> int:
    if isinstance(index, ast.Constant) and type(index.value) is int:
        return index.value + 1
    return 0
