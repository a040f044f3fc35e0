"""Declarations: which variables and functions a text speaks of.

::

    x: real              x: real[3]               three outputs x[0], x[1], x[2]
    n: int[0, 9]         n: int[0, 9][3]
    on: bool             on: bool[3]
    c: {"red", "green"}  c: {"red", "green"}[3]
    u: input             u: input[0, 100]         known at run time, here within a range
    f: function
    x: real?             n: int[0, 9]?[3]         outputs that may be missing
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.budget import Budget
from multiplexnet.language.expressions import TYPES, WORDS, ExpressionReader, Names
from multiplexnet.language.formula import Bool, Category, Int, Real, Variable
from multiplexnet.language.missing import flag_of
from multiplexnet.language.source import Statement
from multiplexnet.language.values import Refusal, Vector, did_you_mean, refuse_no_number, value_of

__all__ = ["Appearances", "declared"]

MOST_VARIABLES = 200_000
_TYPES_LISTED = 'write `real`, `int[0, 9]`, `bool`, `{"red", "green"}`, `input` or `function`'
_SIMILAR = {
    "float": "real",
    "number": "real",
    "boolean": "bool",
    "integer": "int",
    "str": '{"red", "green"}',
}


def declared(declarations: Iterable[tuple[Statement, ast.AnnAssign]], budget: Budget) -> Names:
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
        self, statement: Statement, node: ast.AnnAssign, names: Names, budget: Budget
    ) -> None:
        self.statement = statement
        self.node = node
        self.names = names
        self.reader = ExpressionReader(
            statement, Names(), budget
        )  # knows no names: ranges and sizes are constants

    def enter(self) -> None:
        name = self._name()
        base, brackets = _peeled(self.node.annotation)
        if self.statement.may_be_missing and _is_known(base):
            raise self._error(
                base, "`?` is for outputs: inputs and functions are known, and never missing"
            )
        if isinstance(base, ast.Name) and base.id == "function" and not brackets:
            self.names.functions.append(name)
            return
        variable = self._variable(name, base, brackets)
        if len(brackets) > 1:
            raise self._error(brackets[1], "more than one size: a vector has one, as in `real[3]`")
        size = self._size(brackets[0]) if brackets else None
        try:
            _enter(self.names, variable, size)
        except Refusal as refusal:
            raise self._error(self.node.annotation, refusal.reason) from None

    def _name(self) -> str:
        target = self.node.target
        if not isinstance(target, ast.Name):
            raise self._error(
                target, "a plain name is needed before `:`; declare a vector as in `x: real[3]`"
            )
        if self.node.value is not None:
            raise self._error(
                self.node.value, "a value in a declaration: write it as a rule, as in `x == 1`"
            )
        if target.id in WORDS:
            raise self._error(
                target, f"`{target.id}` is a word of the language: choose another name"
            )
        if target.id in self.names.values or target.id in self.names.functions:
            raise self._error(target, f"`{target.id}` is declared twice: remove one")
        return target.id

    def _variable(self, name: str, base: ast.expr, brackets: list[ast.expr]) -> Variable:
        """The variable, or the first of a vector; takes the range out of the brackets."""
        index = len(self.names.variables)
        match base:
            case ast.Name("real"):
                return Variable(name, index)
            case ast.Name("bool"):
                return Variable(name, index, Bool())
            case ast.Name("int"):
                return Variable(name, index, self._whole_range(brackets))
            case ast.Name("input"):
                return Variable(name, index, self._range(brackets), "input")
            case ast.Set(labels):
                return Variable(name, index, Category(tuple(self._labels(labels))))
            case ast.Name("function"):
                raise self._error(base, "a function has no size: write `f: function`")
            case ast.Name(word):
                hint = (
                    f" (did you mean `{_SIMILAR[word]}`?)"
                    if word in _SIMILAR
                    else did_you_mean(word, TYPES)
                )
                raise self._error(base, f"unknown type `{word}`{hint}: {_TYPES_LISTED}")
        raise self._error(base, f"this is no type: {_TYPES_LISTED}")

    def _whole_range(self, brackets: list[ast.expr]) -> Int:
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            raise self._error(
                self.node.annotation, "an `int` without a range: write both ends, as in `int[0, 9]`"
            )
        lower, upper = self._ends(brackets.pop(0), self.reader.integer)
        return Int(int(lower), int(upper))

    def _range(self, brackets: list[ast.expr]) -> Real:
        if not (brackets and isinstance(brackets[0], ast.Tuple)):
            return Real()
        return Real(*self._ends(brackets.pop(0), self.reader.constant))

    def _ends(
        self, node: ast.expr, end: Callable[[ast.expr], Fraction | int]
    ) -> tuple[Fraction, Fraction]:
        if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
            raise self._error(node, "a range has two ends, as in `[0, 9]`")
        lower, upper = map(end, node.elts)
        if lower > upper:
            raise self._error(
                node,
                f"an empty range: {lower} is greater than {upper}; write the smaller end first",
            )
        return Fraction(lower), Fraction(upper)

    def _labels(self, nodes: Sequence[ast.expr]) -> list[str]:
        labels: dict[str, None] = {}
        for node in nodes:
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                raise self._error(node, 'labels are strings in quotes, as in `{"red", "green"}`')
            if node.value in labels:
                raise self._error(node, f'the label "{node.value}" stands twice: remove one')
            labels[node.value] = None
        return list(labels)

    def _size(self, node: ast.expr) -> int:
        if isinstance(node, ast.Tuple):
            raise self._error(
                node,
                "a range is given to `int` and `input`; write others as a rule, as in `0 <= x <= 1`",
            )
        size = self.reader.integer(node)
        if size < 1:
            raise self._error(node, f"a vector of size {size}: give at least 1")
        return size

    def _error(self, node: ast.expr | ast.stmt, reason: str) -> RuleSyntaxError:
        return self.statement.error(node, reason)


def _is_known(base: ast.expr) -> bool:
    return isinstance(base, ast.Name) and base.id in ("input", "function")


def _peeled(annotation: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """The type without its brackets, and what stands in them from left to right."""
    brackets: list[ast.expr] = []
    while isinstance(annotation, ast.Subscript):
        brackets.insert(0, annotation.slice)
        annotation = annotation.value
    return annotation, brackets


def _enter(names: Names, variable: Variable, size: int | None) -> None:
    """Give a name the meaning of one variable, or of a vector that begins with it."""
    if len(names.variables) + (size or 1) > MOST_VARIABLES:
        raise Refusal(f"more than {MOST_VARIABLES:,} variables: use fewer or smaller vectors")
    name = variable.name
    first = variable.index
    if size is None:
        names.variables.append(variable)
        names.values[name] = value_of(variable)
        return
    elements = [replace(variable, name=f"{name}[{i}]", index=first + i) for i in range(size)]
    names.variables.extend(elements)
    names.values[name] = Vector(tuple(map(value_of, elements)))


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
    _enter(names, Variable(name, len(names.variables)), size)


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
