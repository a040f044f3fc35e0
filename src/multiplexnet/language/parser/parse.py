"""Rules written as text, in Python's grammar: read with ``ast``, never evaluated.

::

    a: real; b: real                    # outputs
    limit: input                        # known at run time
    assume limit >= 0                   # what is known of it
    a == 0 or 200 < a < 400
    implies(a > 0, b >= a + 2)
    b <= limit

The road: :mod:`~multiplexnet.language.parser.source` cuts the text into statements,
:mod:`~multiplexnet.language.parser.declarations` gives the names their meaning, and
:mod:`~multiplexnet.language.parser.expressions` reads each rule.
"""

from __future__ import annotations

import ast
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.budget import ReadingBudget
from multiplexnet.language.curves import misplaced
from multiplexnet.language.formula import (
    Apply,
    Norm,
    Product,
    Rule,
    Specification,
    Variable,
    symbols,
)
from multiplexnet.language.missing import possible
from multiplexnet.language.parser.declarations import Appearances, declared
from multiplexnet.language.parser.expressions import ExpressionReader, Names
from multiplexnet.language.parser.plain import PlainSums, is_plain_sum
from multiplexnet.language.parser.source import Statement, source_of, statements

__all__ = ["parse", "parse_all"]

_CODE = "this is Python code: rules are read and never run; write comparisons, as in `x >= 2`"
_NO_STATEMENT: dict[type[ast.stmt], str] = {
    ast.Assign: "`=` assigns: write `==` for equality, or `:` to declare, as in `x: real`",
    ast.AugAssign: "`=` assigns: write `==` for equality",
    ast.If: "`if` as a statement: write `implies(p, q)`",
    ast.For: "`for` as a statement: write `all(… for i in range(n))`",
    ast.Assert: "`assert`: write the rule alone",
}


def parse(text: str) -> Specification:
    """The rules, variables and functions that a text speaks of.

    Args:
        text: declarations and rules, one a line or separated by ``;``. With no declarations at all, names are real
            outputs in order of appearance.

    Raises:
        RuleSyntaxError: the text cannot be read; says where, why and what to do.

    Example:
        >>> specification = parse("x: real; y: real[2]\\nx >= 0.1  # exact")
        >>> [variable.name for variable in specification.outputs]
        ['x', 'y[0]', 'y[1]']
        >>> specification.rules[0].text, specification.rules[0].line
        ('x >= 0.1', 2)
        >>> parse("x >= y * z")
        Traceback (most recent call last):
            ...
        multiplexnet.errors.RuleSyntaxError: line 1, column 6: product of variables `y * z`: rules are linear; ...
    """
    return _read(statements(text), text)


def parse_all(entries: Sequence[str]) -> Specification:
    """As :func:`parse`, for a list of texts; each is read by itself, and names mean the same in all of them.

    Raises:
        RuleSyntaxError: as :func:`parse`; the place is one in the entry that the message names.

    Example:
        >>> parse_all(["x: real", "x >= 0"]).text
        'x: real\\nx >= 0'
        >>> parse_all(["x: real", "x >= y"])
        Traceback (most recent call last):
            ...
        multiplexnet.errors.RuleSyntaxError: line 1, column 6: in entry 1 of the list: unknown name `y`: ...
    """
    lines = [
        entry.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
        for entry in entries
    ]
    before = [0, *accumulate(lines)]
    if not entries:
        raise RuleSyntaxError("no rules: the list is empty; write one, as in `x >= 2`")
    text = "\n".join(entries)
    source = [line for entry in entries for line in source_of(entry)]
    parts: list[Statement] = []
    try:
        for start, entry in zip(before, entries, strict=False):
            parts += [
                replace(part, line=part.line + start, source=source)
                for part in _statements(entry, start)
            ]
        return _read(parts, text)
    except RuleSyntaxError as error:
        raise _in_entry(error, before) from None


def _statements(entry: str, start: int) -> list[Statement]:
    try:
        return statements(entry)
    except RuleSyntaxError as error:
        line = start + (error.line or 1)
        raise RuleSyntaxError(
            error.reason, line=line, column=error.column, source=error.source
        ) from None


def _in_entry(error: RuleSyntaxError, before: Sequence[int]) -> RuleSyntaxError:
    """The error with its place in the entry that it points into."""
    if error.line is None:
        return error
    entry = bisect_left(before, error.line) - 1
    reason = f"in entry {entry} of the list: {error.reason}"
    line = error.line - before[entry]
    return RuleSyntaxError(reason, line=line, column=error.column, source=error.source)


def _read(parts: Sequence[Statement], text: str) -> Specification:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Python's parser warns of what is refused or harmless here
        budget = ReadingBudget(len(text))
        names, rules, assumptions = _outline(parts, budget)
        plain = PlainSums(names.values, budget)
        read = tuple(_rule(part, names, budget, plain) for part in rules)
        assumed = tuple(_assumption(part, names, budget) for part in assumptions)
    return Specification(
        tuple(names.variables), read, tuple(names.functions), text, assumed
    )


def _outline(
    parts: Sequence[Statement], budget: ReadingBudget
) -> tuple[Names, list[Statement], list[Statement]]:
    """What the names mean, the statements that are rules, and those that are assumptions."""
    declarations: list[tuple[Statement, ast.AnnAssign]] = []
    rules: list[Statement] = []
    assumptions: list[Statement] = []
    appearances = Appearances()
    for given in parts:
        part = given.assumed or given
        if declarations and part is given and is_plain_sum(part.text):
            rules.append(part)
            continue
        match part.tree():
            case ast.Expr() as tree if given.assumed:
                assumptions.append(part)
                if not declarations:
                    appearances.note(part, tree)
            case ast.AnnAssign() as tree if not given.assumed:
                declarations.append((part, tree))
            case ast.Expr() as tree:
                rules.append(part)
                if not declarations:
                    appearances.note(part, tree)
            case tree:
                raise part.error(tree, _NO_STATEMENT.get(type(tree), _CODE))
    names = declared(declarations, budget) if declarations else appearances.names()
    return names, rules, assumptions


def _rule(
    part: Statement,
    names: Names,
    budget: ReadingBudget,
    plain: PlainSums | None = None,
) -> Rule:
    if plain is not None and is_plain_sum(part.text):
        atom = plain.atom(part.text)
        if atom is not None:
            return Rule(possible(atom, names.flags), part.text, part.line)
    tree = part.tree()
    assert isinstance(tree, ast.Expr)
    formula = ExpressionReader(part, names, budget).rule(tree.value)
    if reason := misplaced(formula):
        raise part.error(tree.value, reason)
    return Rule(possible(formula, names.flags), part.text, part.line)


def _assumption(part: Statement, names: Names, budget: ReadingBudget) -> Rule:
    """What an ``assume`` says of inputs."""
    rule = _rule(part, names, budget)
    tree = part.tree()
    for symbol in symbols(rule.formula):
        if isinstance(symbol, Variable) and not symbol.is_input:
            raise part.error(
                tree,
                f"`{symbol.name}` is an output, and `assume` speaks of inputs alone: write what outputs have to obey "
                f"as a rule, without `assume`, or declare `{symbol.name}: input`",
            )
        if isinstance(symbol, Product):
            raise part.error(
                tree,
                f"`{symbol.known.name}` times `{symbol.other.name}`: assumptions are linear; give the product as an "
                "input of its own",
            )
        if isinstance(symbol, Norm):
            raise part.error(
                tree,
                "a norm or a square among assumptions, which are linear: give its value as an input of its own",
            )
        if isinstance(symbol, Apply):
            raise part.error(
                tree,
                f"`{symbol.function}` is a function that logic cannot look into, so that nothing can be assumed of it: "
                "give its value as an input of its own",
            )
    return rule
