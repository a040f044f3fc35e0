"""A table as columns of whole numbers, and back: what is learned are numbers of steps, labels by their place, flags.

A declared ``real`` column is counted in steps of 10^-d, d the decimal places that its cells have: so rounding is
inside the guarantee. Columns that the rules do not declare are read as what they look like. A column that may be
missing has a flag right before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import floor, log10
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.errors import TableError
from multiplexnet.language.formula import (
    ONE,
    Bool,
    Category,
    Domain,
    Int,
    Linear,
    Real,
    Rule,
    Specification,
    Unit,
    Variable,
    ends,
    nearest_to_zero,
    variables,
)
from multiplexnet.language.missing import flag_of
from multiplexnet.language.parse import parse
from multiplexnet.language.text import declaration_text
from multiplexnet.readers.names import cannot_be_written
from multiplexnet.synthesis.tokens import Whole
from multiplexnet.synthesis.whole import rule_in_steps
from multiplexnet.tables.cells import MISSING, cells_of
from multiplexnet.tables.inference.profile import DATE, profile_of
from multiplexnet.tables.matching import is_named, matched
from multiplexnet.tables.sources.table import Table
from multiplexnet.verdicts.columns import Column

__all__ = ["Field", "Found", "Kind", "Schema", "cut", "decimal_texts", "found_in", "schema_of"]

MOST_LABELS = 1_000
"""Different texts of a column that is learned; with more it is taken for names or identifiers."""
MOST_PLACES = 9
FINE = 9
"""Numbers with more places than that are rounded so that the range has about 10^9 steps."""
LARGEST = 2.0**50
DATETIME = Int(-(2**40), 2**40, Unit(Fraction(1), "datetime"))

Kind = Literal["int", "float", "decimal", "bool", "label", "date", "datetime"]
KINDS: tuple[str, ...] = get_args(Kind)
Bools = NDArray[np.bool_]


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
    """

    name: str
    declared: str
    variable: Variable
    flag: Variable | None
    size: Fraction
    kind: Kind

    @property
    def step(self) -> Fraction:
        """How much one step is to people."""
        return self.size * self.variable.unit.size


@dataclass(frozen=True)
class Schema:
    """The columns that are learned.

    Args:
        fields: in the order of the table.
        declared: everything that is declared, by the rules or by what the table holds, and the rules as written.
    """

    fields: tuple[Field, ...]
    declared: Specification

    @cached_property
    def specification(self) -> Specification:
        """The rules over whole numbers: their outputs are what is learned."""
        own = []
        for field in self.fields:
            own += [field.variable] if field.flag is None else [field.flag, field.variable]
        rules = tuple(
            rule_in_steps(rule, self._steps(self.declared)) for rule in self.declared.rules
        )
        return Specification(tuple(own), rules)

    def further(self, text: str) -> tuple[Rule, ...]:
        """Rules about columns of the table, over whole numbers.

        Raises:
            RuleSyntaxError: the text cannot be read.
        """
        speakable = [v for v in self.declared.variables if not cannot_be_written(v.place[0])]
        known = replace(self.declared, variables=tuple(speakable), rules=(), functions=())
        above = declaration_text(known)
        try:
            parsed = parse(f"{above}\n{text}")
        except ValueError as error:
            raise _without_lines(error, above.count("\n") + 1) from None
        if len([v for v in parsed.variables if not v.is_flag]) != len(
            [v for v in speakable if not v.is_flag]
        ):
            raise TableError(f"a condition declares nothing: found in {text!r}")
        return tuple(rule_in_steps(rule, self._steps(parsed)) for rule in parsed.rules)

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

    def frame(self, values: Whole) -> pl.DataFrame:
        """Rows ``(N, D)``, columns as in the specification, as a table."""
        return pl.DataFrame([_series(field, values) for field in self.fields])


def _without_lines(error: ValueError, lines: int) -> ValueError:
    """The error of a text that stood below so many lines."""
    from multiplexnet.errors import RuleSyntaxError

    if not isinstance(error, RuleSyntaxError) or error.line is None:
        return error
    return RuleSyntaxError(
        error.reason, line=error.line - lines, column=error.column, source=error.source
    )


def _series(field: Field, values: Whole) -> pl.Series:
    found = _cells(field, values[:, field.variable.index]).alias(field.name)
    if field.flag is None:
        return found
    there = pl.Series(values[:, field.flag.index] == 0)
    return found.zip_with(there, pl.Series(field.name, [None] * len(found), dtype=found.dtype))


def _cells(field: Field, steps: Whole) -> pl.Series:
    match field.kind:
        case "bool":
            return pl.Series(steps != 0)
        case "label":
            assert isinstance(field.variable.domain, Category)
            return pl.Series(field.variable.domain.labels, dtype=pl.String).gather(steps)
        case "date":
            return pl.Series(steps).cast(pl.Int32).cast(pl.Date)
        case "datetime":
            return (pl.Series(steps) * 10**6).cast(pl.Datetime("us"))
        case "int":
            return pl.Series(steps * field.step.numerator)
        case "float":
            size = field.step
            return pl.Series(steps.astype(np.float64) * size.numerator / size.denominator)
        case "decimal":
            places = _places_of(field.step)
            return decimal_texts(steps, places).cast(pl.Decimal(38, places))


def _places_of(step: Fraction) -> int:
    return len(str(step.denominator)) - 1


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


# --- from a table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A table that was read.

    Args:
        schema: its columns.
        values: ``(N, D)``, columns as in the specification; anything in rows that cannot be read.
        readable: rows whose every cell has a value of its column, or none where that is allowed.
        exact: the columns as rules see them: decimals in place of floats.
        notes: what was done to columns that nobody asked for.
    """

    schema: Schema
    values: Whole
    readable: Bools
    exact: pl.DataFrame
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Read:
    """One column on its way: whole numbers, where they cannot be read, where they are missing."""

    field: Field
    steps: Whole
    unread: Bools
    missing: Bools
    exact: pl.Series


def schema_of(specification: Specification, table: Table, frame: pl.DataFrame) -> Found:
    """The columns of a table under rules.

    Args:
        specification: the rules.
        table: for its title and the names of its columns.
        frame: all of its rows, under these names.

    Raises:
        TableError: rules that speak of what a table does not have.
    """
    _refuse_inputs(specification)
    matched(specification, table, by_position=False, skip=())
    named = {name: v for v in specification.columns for name in frame.columns if is_named(v, name)}
    notes: list[str] = []
    declared: list[Variable] = list(specification.variables)
    bound = {v for rule in specification.rules for v in variables(rule.formula)}
    read: list[_Read] = []
    nullable = set(specification.flags)
    for name in frame.columns:
        cells = _plain(frame[name])
        variable = named.get(name)
        if variable is None:
            variable, reason = _seen(name, cells, len(declared))
            if variable is None:
                notes.append(f"column {name!r} is left out: {reason}")
                continue
            declared.append(variable)
            if cells.null_count():
                nullable.add(variable)
                declared.append(flag_of(variable, len(declared)))
        own = _column(name, cells, variable, variable in nullable, variable in bound, notes)
        read.append(own)
    if not read:
        raise TableError(f"{table.title}: there is no column to learn ({'; '.join(notes)})")
    everything = replace(specification, variables=tuple(declared))
    return _together(read, everything, notes)


def _refuse_inputs(specification: Specification) -> None:
    if specification.inputs:
        name = specification.inputs[0].name
        raise TableError(
            f"`{name}` is declared as an input, and a table that is made has columns alone: declare it as a column, as "
            f"in `{name}: real`, and give its values with sample(given=…)"
        )
    if specification.functions:
        raise TableError(
            f"the rules call {specification.functions[0]}(…), and a table has no functions: leave such rules out"
        )


def _plain(cells: pl.Series) -> pl.Series:
    """The cells, NaN and blank texts as missing."""
    if cells.dtype.is_float():
        return cells.fill_nan(None)
    if cells.dtype in (pl.Categorical, pl.Enum):
        cells = cells.cast(pl.String)
    if cells.dtype == pl.String:
        text = cells.str.strip_chars()
        return text.set(text == "", None)
    return cells


def _seen(name: str, cells: pl.Series, index: int) -> tuple[Variable | None, str]:
    """What a column that the rules do not declare looks like, or why it cannot be learned."""
    if cells.null_count() == len(cells):
        return None, "all cells are empty"
    domain = _looks_like(cells)
    if domain is None:
        return None, f"more than {MOST_LABELS:,} different texts, or a text of its own in most rows"
    return Variable(name, index, domain, whole=True), ""


def _looks_like(cells: pl.Series) -> Domain | None:
    table = Table("the table", ("0",), lambda _: iter([pl.DataFrame([cells.alias("0")])]))
    profile = profile_of([table]).columns[0]
    if profile.is_truth:
        return Bool()
    if profile.is_date:
        return DATE
    if profile.is_number:
        return Real()
    if (
        isinstance(cells.dtype, pl.Datetime)
        or not cells_of(Variable("0", 0, DATETIME), cells.drop_nulls()).unread
    ):
        return DATETIME
    labels = sorted(cells.drop_nulls().cast(pl.String).unique().to_list())
    few = max(50, (len(cells) - cells.null_count()) // 2)
    return Category(tuple(labels)) if len(labels) <= min(MOST_LABELS, few) else None


def _column(
    name: str,
    cells: pl.Series,
    variable: Variable,
    is_nullable: bool,
    is_bound: bool,
    notes: list[str],
) -> _Read:
    domain = variable.domain
    read = cells_of(variable, cells)
    missing = np.zeros(len(cells), dtype=np.bool_)
    missing[read.unread.get(MISSING, np.empty(0, np.intp))] = True
    unread = np.zeros(len(cells), dtype=np.bool_)
    for reason, rows in read.unread.items():
        unread[rows] |= reason != MISSING or not is_nullable
    numbers = _floats(read.column)
    exact = cells
    size = Fraction(1)
    kind: Kind = "int"
    if isinstance(domain, Real):
        places, is_rounded = _places(name, numbers[~unread & ~missing])
        size = Fraction(1, 10**places)
        steps = np.rint(numbers * 10.0**places)
        if is_rounded:
            notes.append(f"column {name!r} is rounded to {places} decimal places")
        texts = decimal_texts(steps.astype(np.int64), places)
        exact = texts.set(pl.Series(missing | unread), None)
        kind = "int" if not places else "float"
        if places and is_bound:
            kind = "decimal"
    else:
        steps = np.rint(numbers)
        inside = (steps >= domain.values.start) & (steps < domain.values.stop)
        unread |= ((numbers != steps) | ~inside) & ~missing
        kind = _kind(domain)
    steps = np.where(unread | missing, 0, steps)
    flag = Variable("", 0, Bool(), "missing") if is_nullable else None
    field = Field(name, variable.name, variable, flag, size, kind)
    return _Read(field, steps.astype(np.int64), unread, missing & is_nullable, exact.alias(name))


def _kind(domain: Int | Bool | Category) -> Kind:
    match domain:
        case Bool():
            return "bool"
        case Category():
            return "label"
    if domain.unit.kind == "date":
        return "date"
    if domain.unit.kind == "datetime":
        return "datetime"
    return "int" if domain.unit.size.denominator == 1 else "float"


def _floats(column: Column) -> NDArray[np.float64]:
    numbers = np.array(column.near)
    if column.unit != 1:
        numbers = numbers * column.unit.numerator / column.unit.denominator
    for row, number in column.odd.items():
        numbers[row] = float(number)
    return numbers


def _places(name: str, numbers: NDArray[np.float64]) -> tuple[int, bool]:
    """Decimal places that hold all numbers, or that leave enough of them; and whether something is lost."""
    top = float(np.abs(numbers).max(initial=0.0))
    if top >= LARGEST:
        raise TableError(
            f"column {name!r} holds {top:g}: numbers up to 2^50 are learned; measure it in larger units"
        )
    for places in range(MOST_PLACES + 1):
        if top * 10.0**places >= LARGEST:
            break
        if (np.round(numbers, places) == numbers).all():
            return places, False
    span = float(np.ptp(numbers)) or 1.0
    wanted = FINE - floor(log10(span))
    most = floor(log10(LARGEST / max(top, 1e-300)))
    return max(0, min(wanted, most, 18)), True


def _together(read: Sequence[_Read], declared: Specification, notes: list[str]) -> Found:
    """Columns and flags in one matrix, ranges as wide as what was read."""
    fields = []
    columns: list[Whole] = []
    readable = np.ones(len(read[0].steps), dtype=np.bool_)
    for own in read:
        readable &= ~own.unread
        flag = None
        if own.field.flag is not None:
            flag = flag_of(own.field.variable, len(columns))
            columns.append(own.missing.astype(np.int64))
        variable = replace(own.field.variable, index=len(columns))
        columns.append(own.steps)
        fields.append(replace(own.field, variable=variable, flag=flag))
    values = np.stack(columns, -1)
    exact = pl.DataFrame([own.exact for own in read])
    return Found(Schema(tuple(fields), declared), values, readable, exact, tuple(notes))


def cut(found: Found, rows: Bools) -> Found:
    """The table with the ranges that these rows have; missing values are what stands for them in that range."""
    fields = []
    values = found.values.copy()
    for field in found.schema.fields:
        own = values[:, field.variable.index]
        missing = np.zeros(len(own), dtype=np.bool_)
        if field.flag is not None:
            missing = values[:, field.flag.index] == 1
        domain = _cut(field.variable.domain, own[rows & ~missing])
        own[missing] = int(nearest_to_zero(domain))
        fields.append(replace(field, variable=replace(field.variable, domain=domain)))
    return replace(found, schema=Schema(tuple(fields), found.schema.declared), values=values)


def _cut(domain: Domain, steps: Whole) -> Domain:
    """The range that was seen, in whole numbers; labels and truth values stay as they are."""
    if isinstance(domain, Bool | Category):
        return domain
    unit = domain.unit if isinstance(domain, Int) else ONE
    if not len(steps):
        return Int(0, 0) if isinstance(domain, Real) else replace(domain, upper=domain.lower)
    return Int(int(steps.min()), int(steps.max()), unit)


def found_in(
    schema: Schema, frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[dict[Variable, Whole], Bools]:
    """Whole numbers of some columns of another table, and the rows where all of them have one."""
    found: dict[Variable, Whole] = {}
    good = np.ones(frame.height, dtype=np.bool_)
    for field in schema.fields:
        if field.name not in columns:
            continue
        declared = next(v for v in schema.declared.columns if v.name == field.declared)
        read = cells_of(declared, _plain(frame[field.name]))
        missing = np.zeros(frame.height, dtype=np.bool_)
        for reason, rows in read.unread.items():
            if reason == MISSING and field.flag is not None:
                missing[rows] = True
            else:
                good[rows] = False
        numbers = _floats(read.column)
        steps = np.rint(numbers * field.size.denominator)
        low, high = ends(field.variable.domain)
        assert low is not None
        assert high is not None
        is_whole = steps / field.size.denominator == numbers
        fits = is_whole & (steps >= float(low)) & (steps <= float(high))
        good &= fits | missing
        stand_in = int(nearest_to_zero(field.variable.domain))
        found[field.variable] = np.where(missing | ~fits, stand_in, steps).astype(np.int64)
        if field.flag is not None:
            found[field.flag] = missing.astype(np.int64)
    return found, good
