"""Specifications and compiled terms as JSON-able records, exact numbers included, and back.

A saved layer carries these, so that it loads without a solver and logit k keeps its meaning. Records are lists, dicts,
strings and whole numbers. Reading one runs no code, takes nothing for what it does not look like, and ends in
:class:`~multiplexnet.errors.RecordError` or in data that fits together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from multiplexnet.compiler.terms import Block, Compiled, Proof, Term
from multiplexnet.errors import MultiplexError, RecordError
from multiplexnet.language.curves import Tangent
from multiplexnet.language.formula import (
    ONE,
    And,
    Apply,
    Atom,
    Bool,
    Category,
    Domain,
    Formula,
    Iff,
    Int,
    Ite,
    Linear,
    Max,
    Norm,
    Not,
    Or,
    Product,
    Real,
    Rule,
    Specification,
    Symbol,
    Unit,
    Variable,
    symbols,
)
from multiplexnet.language.formula import variables as variables_of
from multiplexnet.language.missing import flag_name

__all__ = [
    "BlockRecorder",
    "RecordReader",
    "atom_record",
    "compiled_from",
    "flag_from",
    "formula_record",
    "list_from",
    "number_from",
    "reading",
    "record_of_compiled",
    "record_of_specification",
    "specification_from",
    "tangent_records",
    "text_from",
    "variable_record",
    "variables_from",
    "whole_from",
]

Record = Any

LONGEST = 10_000
"""Characters of a number in a record."""


# --- writing --------------------------------------------------------------------------------------------------------


def record_of_specification(specification: Specification) -> Record:
    """Everything that was written, as a record."""
    return {
        "variables": [variable_record(v) for v in specification.variables],
        "functions": list(specification.functions),
        "rules": list(map(_rule, specification.rules)),
        "text": specification.text,
        "assumptions": list(map(_rule, specification.assumptions)),
    }


def _rule(rule: Rule) -> Record:
    return [rule.text, rule.line, formula_record(rule.formula)]


def record_of_compiled(compiled: Compiled) -> Record:
    """Blocks, terms and certificate as a record; variables stand for themselves by their position."""
    certificate = compiled.proof
    writer = BlockRecorder()
    return {
        "blocks": [writer.block(block) for block in compiled.blocks],
        "inner": writer.inner,
        "complete": compiled.complete,
        "covered": None if compiled.covered is None else str(compiled.covered),
        **tangent_records(compiled.tangents),
        "certificate": [
            certificate.sound,
            certificate.complete,
            certificate.solver,
            certificate.checks,
        ],
    }


def tangent_records(tangents: Sequence[Tangent]) -> dict[str, Record]:
    """What is known of norms, if something is."""
    if not tangents:
        return {}
    records = [[_symbol(t.norm), [str(v) for v in t.direction]] for t in tangents]
    return {"tangents": records}


def variable_record(variable: Variable) -> Record:
    """Name, role and domain of a variable; its position is its place in a list.

    A fourth part says that the name belongs to no vector, although it looks so.
    """
    record = [variable.name, variable.role, _domain(variable.domain)]
    return [*record, "whole"] if variable.whole else record


def _domain(domain: Domain) -> Record:
    match domain:
        case Real(lower, upper):
            return [
                "real",
                *(None if end is None else str(end) for end in (lower, upper)),
            ]
        case Int(lower, upper, unit):
            seen = [] if unit == ONE else [unit.kind, str(unit.size)]
            return ["int", lower, upper, *seen]
        case Bool():
            return ["bool"]
        case Category(labels):
            return ["category", *labels]


class BlockRecorder:
    """Blocks as records; those inside terms go to a list, each once however often it is shared, inner ones first."""

    def __init__(self) -> None:
        self.inner: list[Record] = []
        self._numbers: dict[int, int] = {}

    def block(self, block: Block) -> Record:
        return {
            "outputs": [v.index for v in block.outputs],
            "terms": [self._term(term) for term in block.terms],
        }

    def _term(self, term: Term) -> Record:
        return {
            "rows": [atom_record(row) for row in term.rows],
            "fixed": [[v.index, str(value)] for v, value in term.fixed],
            "blocks": [self._number(block) for block in term.blocks],
        }

    def number_of(self, block: Block) -> int | None:
        """The place of a block in the list of inner ones, if it is one of them."""
        return self._numbers.get(id(block))

    def _number(self, block: Block) -> int:
        if id(block) not in self._numbers:
            record = self.block(block)
            self._numbers[id(block)] = len(self.inner)
            self.inner.append(record)
        return self._numbers[id(block)]


def atom_record(atom: Atom) -> Record:
    """One comparison as a record."""
    return [atom.relation, _linear(atom.linear)]


def _linear(linear: Linear) -> Record:
    summands = [[_symbol(symbol), str(c)] for symbol, c in linear.summands]
    return [str(linear.constant), *summands]


def _symbol(symbol: Symbol) -> Record:
    match symbol:
        case Variable():
            return symbol.index
        case Product(known, other):
            return ["times", known.index, other.index]
        case Apply(function, arguments):
            return ["apply", function, *map(_linear, arguments)]
        case Max(arguments):
            return ["max", *map(_linear, arguments)]
        case Norm(weights, arguments):
            return ["norm", list(map(str, weights)), *map(_linear, arguments)]
        case Ite(condition, then, otherwise):
            return ["if", formula_record(condition), _linear(then), _linear(otherwise)]


def formula_record(formula: Formula) -> Record:
    """A formula as a record."""
    match formula:
        case Atom():
            return atom_record(formula)
        case Not(argument):
            return ["not", formula_record(argument)]
        case And(arguments):
            return ["and", *map(formula_record, arguments)]
        case Or(arguments):
            return ["or", *map(formula_record, arguments)]
        case Iff(left, right):
            return ["iff", formula_record(left), formula_record(right)]


# --- reading --------------------------------------------------------------------------------------------------------


@contextmanager
def reading(what: str, advice: str = "save the layer again") -> Iterator[None]:
    """What is wrong with a record becomes a ``RecordError``."""
    try:
        yield
    except MultiplexError:
        raise
    except RecursionError:
        raise RecordError(
            f"this is not a record of {what} (it is nested too deeply); {advice}"
        ) from None
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        AssertionError,
    ) as error:
        raise RecordError(
            f"this is not a record of {what} ({error}); {advice}"
        ) from error


def specification_from(record: Record) -> Specification:
    """The specification that was recorded.

    Raises:
        RecordError: the record is not one.
    """
    with reading("rules"):
        variables = variables_from(record["variables"])
        reader = RecordReader(variables)
        rules = tuple(map(reader.rule, record["rules"]))
        assumptions = tuple(map(reader.rule, record.get("assumptions", [])))
        if any(
            not v.is_input for rule in assumptions for v in variables_of(rule.formula)
        ):
            raise ValueError("an assumption about an output")
        functions = tuple(map(text_from, record["functions"]))
        if unknown := reader.functions - set(functions):
            raise ValueError(f"{min(unknown)!r} is not a function of the rules")
        text = text_from(record["text"])
        return Specification(variables, rules, functions, text, assumptions)


def compiled_from(
    record: Record, specification: Specification, apart: Collection[Variable] = ()
) -> Compiled:
    """The compiled terms that were recorded for this specification; outputs that stand ``apart`` are in no block.

    Raises:
        RecordError: the record is not one, or its blocks do not fit together.
    """
    with reading("compiled rules"):
        reader = RecordReader(specification.variables, specification.functions)
        blocks = reader.blocks(record["blocks"], record["inner"], apart)
        sound, complete, solver, checks = record["certificate"]
        return Compiled(
            specification.outputs,
            specification.inputs,
            blocks,
            Proof(
                flag_from(sound),
                flag_from(complete),
                text_from(solver),
                whole_from(checks),
            ),
            complete=flag_from(record["complete"]),
            covered=None
            if record["covered"] is None
            else number_from(record["covered"]),
            specification=specification,
            tangents=tuple(map(reader.tangent, list_from(record.get("tangents", [])))),
        )


def variables_from(records: Record) -> tuple[Variable, ...]:
    """The variables of a list of :func:`variable_record`."""
    found = []
    for index, (name, role, domain, *whole) in enumerate(list_from(records)):
        if role not in ("output", "input", "missing"):
            raise ValueError(f"unknown role {role!r}")
        if whole not in ([], ["whole"]):
            raise ValueError(f"{whole!r} is not a part of a variable")
        own = Variable(text_from(name), index, _domain_from(domain), role, bool(whole))
        found.append(own)
    if len({variable.name for variable in found}) < len(found):
        raise ValueError("two variables have the same name")
    outputs = {flag_name(v.name) for v in found if v.role == "output"}
    if any(v.is_flag and (v.name not in outputs or v.domain != Bool()) for v in found):
        raise ValueError("a flag of an output that is none")
    return tuple(found)


def _domain_from(record: Record) -> Domain:
    kind, *rest = list_from(record)
    if kind == "real":
        lower, upper = (None if end is None else number_from(end) for end in rest)
        return Real(lower, upper)
    if kind == "int":
        first, last = map(whole_from, rest[:2])
        if first > last:
            raise ValueError(f"an empty range of integers, {first} to {last}")
        return Int(first, last, _unit_from(rest[2:]))
    if kind == "category":
        if not rest:
            raise ValueError("a category without labels")
        return Category(tuple(map(text_from, rest)))
    if kind != "bool" or rest:
        raise ValueError(f"unknown domain {kind!r}")
    return Bool()


def _unit_from(record: list[Record]) -> Unit:
    if not record:
        return ONE
    kind, size = record
    found = Unit(number_from(size), kind)
    is_known = kind in ("decimal", "step") or (
        kind in ("date", "datetime") and found.size == 1
    )
    if not is_known or found.size <= 0:
        raise ValueError(f"unknown unit {kind!r} of {size!r}")
    return found


_NUMBER = re.compile(r"-?[0-9]+(?:/[0-9]+)?", re.ASCII)


def number_from(record: Record) -> Fraction:
    """An exact number ``"p"`` or ``"p/q"``; exponents are refused, since ``1e999999999`` would fill the memory."""
    if (
        not isinstance(record, str)
        or len(record) > LONGEST
        or not _NUMBER.fullmatch(record)
    ):
        raise ValueError(f"{str(record)[:40]!r} is not an exact number")
    return Fraction(record)


def whole_from(record: Record) -> int:
    """A whole number."""
    if type(record) is not int:
        raise TypeError(f"{record!r} is not a whole number")
    return record


def flag_from(record: Record) -> bool:
    """True or false."""
    if type(record) is not bool:
        raise TypeError(f"{record!r} is neither true nor false")
    return record


def text_from(record: Record) -> str:
    """A text; half of a surrogate pair, which JSON can hold, is none, and crashes who writes it down."""
    if not isinstance(record, str) or any(
        "\ud800" <= character <= "\udfff" for character in record
    ):
        raise TypeError(f"{record!r} is not text")
    return record


def list_from(record: Record) -> list[Record]:
    """A list."""
    if not isinstance(record, list):
        raise TypeError(f"{str(record)[:40]!r} is not a list")
    return record


class RecordReader:
    """Reads what was written of formulas and terms over some variables.

    Args:
        variables: by position.
        functions: the opaque functions that may occur; ``None``: any, and ``functions`` collects them.

    ``inner`` holds the inner blocks that were read, by number.
    """

    def __init__(
        self, variables: Sequence[Variable], functions: Sequence[str] | None = None
    ) -> None:
        self._variables = variables
        self._allowed = functions
        self.functions: set[str] = set()
        self.inner: list[Block] = []

    def blocks(
        self, records: Record, inner: Record, apart: Collection[Variable] = ()
    ) -> tuple[Block, ...]:
        """Blocks that hold every output once, but for those ``apart``, and the inner ones they go on in.

        Raises:
            ValueError, TypeError: something does not fit.
        """
        for record in list_from(inner):
            self.inner.append(self._block(record))
        found = tuple(map(self._block, list_from(records)))
        placed = [v for block in found for v in block.outputs]
        wanted = [v.index for v in self._variables if not v.is_input and v not in apart]
        if sorted(v.index for v in placed) != wanted:
            raise ValueError("the blocks do not hold every output once")
        return found

    def _block(self, record: Record) -> Block:
        if not isinstance(record, dict) or set(record) != {"outputs", "terms"}:
            raise TypeError("a block has outputs and terms")
        outputs = tuple(map(self.variable, list_from(record["outputs"])))
        if len(set(outputs)) < len(outputs) or any(v.is_input for v in outputs):
            raise ValueError("the outputs of a block are not different outputs")
        terms = tuple(self._term(term, outputs) for term in list_from(record["terms"]))
        if not terms:
            raise ValueError("a block without terms")
        return Block(outputs, terms)

    def _term(self, record: Record, outputs: Sequence[Variable]) -> Term:
        if not isinstance(record, dict) or set(record) != {"rows", "fixed", "blocks"}:
            raise TypeError("a term has rows, fixed values and blocks")
        rows = tuple(self.atom(row) for row in list_from(record["rows"]))
        fixed = tuple(
            (self.variable(index), number_from(value))
            for index, value in list_from(record["fixed"])
        )
        numbers = [whole_from(number) for number in list_from(record["blocks"])]
        if any(not 0 <= number < len(self.inner) for number in numbers):
            raise IndexError("an inner block that comes later, or not at all")
        term = Term(rows, fixed, tuple(self.inner[number] for number in numbers))
        self._check(term, outputs)
        return term

    def _check(self, term: Term, outputs: Sequence[Variable]) -> None:
        """Inner outputs lie apart; the discrete others are fixed once; rows speak of real others and of inputs."""
        inner = [v for block in term.blocks for v in block.outputs]
        own = set(outputs) - set(inner)
        if len(set(inner)) < len(inner) or not set(inner) <= set(outputs):
            raise ValueError(
                "inner blocks that share outputs, or have outputs of other blocks"
            )
        discrete = {v for v in own if v.is_discrete}
        if len(term.fixed) != len(discrete) or {v for v, _ in term.fixed} != discrete:
            raise ValueError("a term does not fix each of its discrete outputs once")
        if any(
            value not in v.domain.values
            for v, value in term.fixed
            if not isinstance(v.domain, Real)
        ):
            raise ValueError("a discrete output is fixed outside its domain")
        named = {s for row in term.rows for s in symbols(row)}
        if any(
            isinstance(s, Variable) and not s.is_input and s not in own for s in named
        ):
            raise ValueError("a row speaks of an output that is not its own")
        if any(isinstance(s, Max | Ite) for s in named):
            raise ValueError("a row with a maximum or a condition in it")

    def variable(self, record: Record) -> Variable:
        """The variable at a position."""
        if not 0 <= whole_from(record) < len(self._variables):
            raise IndexError(f"there is no variable {record}")
        return self._variables[record]

    def atom(self, record: Record) -> Atom:
        """One comparison."""
        relation, linear = list_from(record)
        if relation not in ("<=", "<", "=="):
            raise ValueError(f"unknown relation {str(relation)[:40]!r}")
        return Atom(self.linear(linear), relation)

    def linear(self, record: Record) -> Linear:
        """A linear expression; its symbols come in canonical order, each once, with a coefficient that is not 0."""
        constant, *terms = list_from(record)
        pairs = [(self._symbol(s), number_from(c)) for s, c in map(list_from, terms)]
        found = Linear.total(dict(pairs), number_from(constant))
        if found.summands != tuple(pairs):
            raise ValueError("a linear expression out of order")
        return found

    def _symbol(self, record: Record) -> Symbol:
        if not isinstance(record, list):
            return self.variable(record)
        kind, *rest = record
        if kind == "times":
            known, other = map(self.variable, rest)
            if not known.is_input or (other.is_input and known.index > other.index):
                raise ValueError("a product that does not begin with an input")
            return Product(known, other)
        if kind == "apply":
            name, *arguments = rest
            if not arguments or (
                self._allowed is not None and name not in self._allowed
            ):
                raise ValueError(f"unknown function {str(name)[:40]!r}")
            self.functions.add(text_from(name))
            return Apply(name, tuple(map(self.linear, arguments)))
        if kind == "max":
            if len(rest) < 2:
                raise ValueError("a maximum of fewer than two")
            return Max(tuple(map(self.linear, rest)))
        if kind == "norm":
            given, *arguments = rest
            weights = tuple(map(number_from, list_from(given)))
            if not arguments or len(weights) != len(arguments) or min(weights) <= 0:
                raise ValueError("a norm without a positive weight for each argument")
            return Norm(weights, tuple(map(self.linear, arguments)))
        if kind == "if":
            condition, then, otherwise = rest
            return Ite(
                self.formula(condition), self.linear(then), self.linear(otherwise)
            )
        raise ValueError(f"unknown symbol {str(kind)[:40]!r}")

    def tangent(self, record: Record) -> Tangent:
        """What is known of a norm."""
        norm, numbers = list_from(record)
        found = self._symbol(norm)
        direction = tuple(map(number_from, list_from(numbers)))
        if not isinstance(found, Norm) or len(direction) != len(found.weights):
            raise ValueError("a tangent of something else than a norm")
        return Tangent(found, direction)

    def rule(self, record: Record) -> Rule:
        """A rule, or an assumption."""
        text, line, formula = list_from(record)
        place = None if line is None else whole_from(line)
        return Rule(self.formula(formula), text_from(text), place)

    def formula(self, record: Record) -> Formula:
        """A formula."""
        kind, *rest = list_from(record)
        if kind == "not":
            (argument,) = rest
            return Not(self.formula(argument))
        if kind in ("and", "or"):
            return (And if kind == "and" else Or)(tuple(map(self.formula, rest)))
        if kind == "iff":
            left, right = rest
            return Iff(self.formula(left), self.formula(right))
        return self.atom(record)
