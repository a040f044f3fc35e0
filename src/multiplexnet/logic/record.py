"""Specifications and compiled terms as JSON-able records, exact numbers included, and back.

A saved layer carries these, so that it loads without a solver and logit k keeps its meaning. Records are lists, dicts,
strings and whole numbers; reading one runs no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from multiplexnet.errors import RecordError
from multiplexnet.logic.formula import (
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
    Not,
    Or,
    Real,
    Rule,
    Specification,
    Symbol,
    Variable,
)
from multiplexnet.logic.terms import Block, Certificate, Compiled, Term

__all__ = ["compiled_from", "record_of_compiled", "record_of_specification", "specification_from"]

Record = Any


# --- writing --------------------------------------------------------------------------------------------------------


def record_of_specification(specification: Specification) -> Record:
    """Everything that was written, as a record."""
    return {
        "variables": [[v.name, v.role, _domain(v.domain)] for v in specification.variables],
        "functions": list(specification.functions),
        "rules": [[r.text, r.line, _formula(r.formula)] for r in specification.rules],
        "text": specification.text,
    }


def record_of_compiled(compiled: Compiled) -> Record:
    """Blocks, terms and certificate as a record; variables stand for themselves by their position."""
    certificate, writer = compiled.certificate, _Writer()
    return {
        "blocks": [writer.block(block) for block in compiled.blocks],
        "inner": writer.inner,
        "complete": compiled.complete,
        "covered": None if compiled.covered is None else str(compiled.covered),
        "certificate": [certificate.sound, certificate.complete, certificate.solver, certificate.checks],
    }


def _domain(domain: Domain) -> Record:
    match domain:
        case Real(lower, upper):
            return ["real", *(None if end is None else str(end) for end in (lower, upper))]
        case Int(lower, upper):
            return ["int", lower, upper]
        case Bool():
            return ["bool"]
        case Category(labels):
            return ["category", *labels]


class _Writer:
    """Blocks as records; those inside terms go to a list, each once however often it is shared, inner ones first."""

    def __init__(self) -> None:
        self.inner: list[Record] = []
        self._numbers: dict[int, int] = {}

    def block(self, block: Block) -> Record:
        return {"outputs": [v.index for v in block.outputs], "terms": [self._term(term) for term in block.terms]}

    def _term(self, term: Term) -> Record:
        return {
            "rows": [_formula(row) for row in term.rows],
            "fixed": [[v.index, str(value)] for v, value in term.fixed],
            "blocks": [self._number(block) for block in term.blocks],
        }

    def _number(self, block: Block) -> int:
        if id(block) not in self._numbers:
            record = self.block(block)
            self._numbers[id(block)] = len(self.inner)
            self.inner.append(record)
        return self._numbers[id(block)]


def _linear(linear: Linear) -> Record:
    return [str(linear.constant), *([_symbol(s), str(c)] for s, c in linear.terms)]


def _symbol(symbol: Symbol) -> Record:
    match symbol:
        case Variable():
            return symbol.index
        case Apply(function, arguments):
            return ["apply", function, *map(_linear, arguments)]
        case Max(arguments):
            return ["max", *map(_linear, arguments)]
        case Ite(condition, then, otherwise):
            return ["if", _formula(condition), _linear(then), _linear(otherwise)]


def _formula(formula: Formula) -> Record:
    match formula:
        case Atom(linear, relation):
            return [relation, _linear(linear)]
        case Not(argument):
            return ["not", _formula(argument)]
        case And(arguments):
            return ["and", *map(_formula, arguments)]
        case Or(arguments):
            return ["or", *map(_formula, arguments)]
        case Iff(left, right):
            return ["iff", _formula(left), _formula(right)]


# --- reading --------------------------------------------------------------------------------------------------------


def specification_from(record: Record) -> Specification:
    """The specification that was recorded.

    Raises:
        RecordError: the record is not one.
    """
    try:
        variables = tuple(
            Variable(name, index, _domain_from(domain), role)
            for index, (name, role, domain) in enumerate(record["variables"])
        )
        reader = _Reader(variables)
        rules = tuple(Rule(reader.formula(formula), text, line) for text, line, formula in record["rules"])
        return Specification(variables, rules, tuple(record["functions"]), record["text"])
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RecordError(f"this is no record of rules ({error}); save the layer again") from error


def compiled_from(record: Record, specification: Specification) -> Compiled:
    """The compiled terms that were recorded for this specification.

    Raises:
        RecordError: the record is not one.
    """
    try:
        reader = _Reader(specification.variables)
        for inner in record["inner"]:
            reader.inner.append(reader.block(inner))
        return Compiled(
            specification.outputs,
            specification.inputs,
            tuple(map(reader.block, record["blocks"])),
            Certificate(*record["certificate"]),
            complete=record["complete"],
            covered=None if record["covered"] is None else Fraction(record["covered"]),
        )
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RecordError(f"this is no record of compiled rules ({error}); save the layer again") from error


def _domain_from(record: Record) -> Domain:
    kind, *rest = record
    if kind == "real":
        lower, upper = (None if end is None else Fraction(end) for end in rest)
        return Real(lower, upper)
    if kind == "int":
        return Int(*map(int, rest))
    return Category(tuple(map(str, rest))) if kind == "category" else Bool()


class _Reader:
    def __init__(self, variables: Sequence[Variable]) -> None:
        self._variables = variables
        self.inner: list[Block] = []

    def block(self, record: Record) -> Block:
        outputs = tuple(self._variables[index] for index in record["outputs"])
        return Block(outputs, tuple(map(self._term, record["terms"])))

    def _term(self, record: Record) -> Term:
        rows = tuple(self._atom(row) for row in record["rows"])
        fixed = tuple((self._variables[index], Fraction(value)) for index, value in record["fixed"])
        return Term(rows, fixed, tuple(self.inner[number] for number in record["blocks"]))

    def _atom(self, record: Record) -> Atom:
        relation, linear = record
        if relation not in ("<=", "<", "=="):
            raise ValueError(f"unknown relation {relation!r}")
        return Atom(self._linear(linear), relation)

    def _linear(self, record: Record) -> Linear:
        constant, *terms = record
        return Linear(tuple((self._symbol(s), Fraction(c)) for s, c in terms), Fraction(constant))

    def _symbol(self, record: Record) -> Symbol:
        if isinstance(record, int):
            return self._variables[record]
        kind, *rest = record
        if kind == "apply":
            return Apply(rest[0], tuple(map(self._linear, rest[1:])))
        if kind == "max":
            return Max(tuple(map(self._linear, rest)))
        if kind == "if":
            return Ite(self.formula(rest[0]), self._linear(rest[1]), self._linear(rest[2]))
        raise ValueError(f"unknown symbol {kind!r}")

    def formula(self, record: Record) -> Formula:
        kind, *rest = record
        if kind == "not":
            return Not(self.formula(rest[0]))
        if kind in ("and", "or"):
            return (And if kind == "and" else Or)(tuple(map(self.formula, rest)))
        if kind == "iff":
            return Iff(self.formula(rest[0]), self.formula(rest[1]))
        return self._atom(record)
