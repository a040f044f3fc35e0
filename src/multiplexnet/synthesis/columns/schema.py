"""A table as columns of whole numbers, and back: what is learned are numbers of steps, labels by their place, flags.

A declared ``real`` column is counted in steps of 10^-d, d the decimal places that its cells have: so rounding is
inside the guarantee. Columns that the rules do not declare are read as what they look like. A column that may be
missing has a flag right before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import polars as pl

from multiplexnet.errors import RuleSyntaxError, TableError
from multiplexnet.language.formula import (
    Category,
    Linear,
    Rule,
    Specification,
    Variable,
    ends,
)
from multiplexnet.language.missing import opposite
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import declaration_text
from multiplexnet.readers.names import cannot_be_written
from multiplexnet.synthesis.columns.others import Other
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.columns.types import holds, in_type
from multiplexnet.synthesis.columns.whole import refuse_curves, rule_in_steps

__all__ = ["KINDS", "Field", "Kind", "Schema", "decimal_places", "decimal_texts"]

Kind = Literal["int", "float", "decimal", "bool", "label", "date", "datetime"]
KINDS: tuple[str, ...] = get_args(Kind)
MOST_PLACES = 18
"""Decimal places of a column that is given back as decimals."""
MOST_NAMES = 40
"""Columns that a message names."""
DECLARE = ": declare it, as in "
"""What is said of names that rules do not know."""
NEVER = " is never missing: declare"
"""What is said of columns that have a value in every row."""


@dataclass(frozen=True)
class Field:
    """One column of the table.

    Args:
        name: in the table.
        declared: its name in rules.
        variable: what is learned: whole numbers.
        flag: true where the value is missing; ``None``: it never is.
        size: how much one step of the variable is to the rules, which count some columns in steps themselves.
        kind: how values are given back.
        is_rounded: whether cells have more decimal places than are learned; those of other tables are rounded, too.
        given: the type that its cells came in, and are given back in; ``None``: that of the kind.
    """

    name: str
    declared: str
    variable: Variable
    flag: Variable | None
    size: Fraction
    kind: Kind
    is_rounded: bool = False
    given: pl.DataType | None = None

    @property
    def step(self) -> Fraction:
        """How much one step is to people."""
        return self.size * self.variable.unit.size

    @property
    def holds(self) -> bool:
        """Whether the type that was given holds every value that can be made.

        Those at the ends of the range tell, and their neighbours: a type that holds them holds what is between.
        """
        if self.given is None:
            return True
        if self.given == pl.Float32 and self.kind == "float":
            return True  # a short float is the decimal that it prints as
        if self.given.is_float() and self.kind == "decimal":
            return False
        domain = self.variable.domain
        if isinstance(domain, Category):
            steps = list(range(len(domain.labels)))
        else:
            low, high = ends(domain)
            assert low is not None
            assert high is not None
            near = (low, low + 1, high - 1, high)
            steps = sorted({int(k) for k in near if low <= k <= high})
        return holds(self.given, _cells(self, np.array(steps, np.int64)))


@dataclass(frozen=True)
class Schema:
    """The columns that are learned.

    Args:
        fields: in the order of the table.
        declared: everything that is declared, by the rules or by what the table holds, and the rules as written.
        others: columns of the table that are not learned.
        names: of all columns that rows are made with, in the order of the table.
    """

    fields: tuple[Field, ...]
    declared: Specification
    others: tuple[Other, ...] = ()
    names: tuple[str, ...] = ()

    @cached_property
    def specification(self) -> Specification:
        """The rules over whole numbers: their outputs are what is learned."""
        own = []
        for field in self.fields:
            own += (
                [field.variable] if field.flag is None else [field.flag, field.variable]
            )
        rules = tuple(
            rule_in_steps(rule, self._steps(self.declared))
            for rule in self.declared.rules
        )
        return Specification(tuple(own), rules)

    def further(self, text: str) -> tuple[Rule, ...]:
        """A condition on columns of the table, over whole numbers.

        A rule holds where a value that it needs is missing, as ``CHECK`` in SQL; a condition does not, as ``WHERE``:
        what is known to be true is the opposite of what is possible of its negation.

        Raises:
            RuleSyntaxError: the text cannot be read.
        """
        speakable = [
            v for v in self.declared.variables if not cannot_be_written(v.place[0])
        ]
        known = replace(
            self.declared, variables=tuple(speakable), rules=(), functions=()
        )
        above = declaration_text(known)
        try:
            parsed = parse(f"{above}\n{text}")
        except ValueError as error:
            told = _without_lines(error, above.count("\n") + 1)
            raise self._of_columns(told) from None
        if len([v for v in parsed.variables if not v.is_flag]) != len(
            [v for v in speakable if not v.is_flag]
        ):
            raise TableError(f"a condition declares nothing: found in {text!r}")
        rules = parsed.rules
        refuse_curves(rules, "conditions on tables")
        if not rules:
            raise TableError(
                f"where = {text!r} says nothing: give a condition, as in 'age >= 40'"
            )
        if parsed.flags:
            denied = [parse(f"{above}\nnot ({rule.text})") for rule in rules]
            rules = tuple(
                replace(rule, formula=opposite(own.rules[0].formula))
                for rule, own in zip(rules, denied, strict=True)
            )
        return tuple(rule_in_steps(rule, self._steps(parsed)) for rule in rules)

    def _of_columns(self, error: ValueError) -> ValueError:
        """The error of a condition: it can declare nothing, and speaks of columns that are there."""
        if not isinstance(error, RuleSyntaxError):
            return error
        if NEVER in error.reason:
            return RuleSyntaxError(
                f"{error.reason.partition(NEVER)[0]} was missing in no row of the table that was learned, "
                "and is in none that is made",
                line=error.line,
                column=error.column,
                source=error.source,
            )
        if DECLARE not in error.reason:
            return error
        unknown = error.reason.partition(DECLARE)[0]
        names = [field.declared for field in self.fields]
        shown = ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
        others = "".join(
            f" (column {other.name!r} is not learned)"
            for other in self.others
            if f"`{other.name}`" in unknown
        )
        return RuleSyntaxError(
            f"{unknown}{others}; a condition speaks of the columns of the table: {shown}",
            line=error.line,
            column=error.column,
            source=error.source,
        )

    def _steps(self, specification: Specification) -> dict[Variable, Linear]:
        """What stands for the variables of rules that were read from a text."""
        own = {field.declared: field for field in self.fields}
        found = {}
        for variable in specification.columns:
            if variable.name in own:
                field = own[variable.name]
                found[variable] = Linear.of(field.variable) * field.size
        for variable, flag in specification.flags.items():
            if variable.name in own:
                mark = own[variable.name].flag
                found[flag] = Linear.number(0) if mark is None else Linear.of(mark)
        return found

    def frame(
        self, values: Whole, rows: Whole, passed: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """Rows ``(N, D)``, columns as in the specification, as a table.

        Args:
            values: what was drawn.
            rows: the numbers of these rows, from 0 on.
            passed: cells of columns that are not learned and are given.
        """
        found = {field.name: _series(field, values) for field in self.fields}
        for other in self.others:
            if passed is not None and other.name in passed.columns:
                found[other.name] = passed[other.name]
            elif other.kind != "text":
                found[other.name] = other.cells(rows)
        return pl.DataFrame({name: found[name] for name in self.names if name in found})


def _without_lines(error: ValueError, lines: int) -> ValueError:
    """The error of a text that stood below so many lines."""
    if not isinstance(error, RuleSyntaxError) or error.line is None:
        return error
    return RuleSyntaxError(
        error.reason, line=error.line - lines, column=error.column, source=error.source
    )


def _series(field: Field, values: Whole) -> pl.Series:
    found = _cells(field, values[:, field.variable.index]).alias(field.name)
    if field.given is not None:
        found = in_type(found, field.given)
    if field.flag is None:
        return found
    there = pl.Series(values[:, field.flag.index] == 0)
    return found.zip_with(
        there, pl.Series(field.name, [None] * len(found), dtype=found.dtype)
    )


def _cells(field: Field, steps: Whole) -> pl.Series:
    match field.kind:
        case "bool":
            return pl.Series(steps != 0)
        case "label":
            assert isinstance(field.variable.domain, Category)
            return pl.Series(field.variable.domain.labels, dtype=pl.String).gather(
                steps
            )
        case "date":
            return pl.Series(steps).cast(pl.Int32).cast(pl.Date)
        case "datetime":
            return (pl.Series(steps) * 10**6).cast(pl.Datetime("us"))
        case "int":
            return pl.Series(steps * field.step.numerator)
        case "float":
            size = field.step
            return pl.Series(
                steps.astype(np.float64) * size.numerator / size.denominator
            )
        case "decimal":
            places = decimal_places(field.step)
            assert places is not None
            whole = steps * int(field.step * 10**places)
            return decimal_texts(whole, places).cast(pl.Decimal(38, places))


def decimal_places(step: Fraction) -> int | None:
    """How many decimal places whole numbers of steps have; ``None``: no decimals are as fine.

    Example:
        >>> decimal_places(Fraction(1, 20)), decimal_places(Fraction(1, 3))
        (2, None)
    """
    for places in range(MOST_PLACES + 1):
        if (step * 10**places).denominator == 1:
            return places
    return None


def decimal_texts(steps: Whole, places: int) -> pl.Series:
    """Whole numbers of 10^-places as texts, exactly.

    Example:
        >>> decimal_texts(np.array([-5, 1234]), 2).to_list()
        ['-0.05', '12.34']
    """
    whole = pl.Series("k", steps)
    if not places:
        return whole.cast(pl.String)
    size = whole.abs()
    sign = pl.Series(np.where(steps < 0, "-", ""))
    rest = (size % 10**places).cast(pl.String).str.zfill(places)
    ones = (size // 10**places).cast(pl.String)
    found: pl.Series = sign + ones + "." + rest
    return found
