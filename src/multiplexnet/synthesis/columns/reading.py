"""The columns of a table, read: what each of them is, its whole numbers, and what cannot be learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor, log10

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
    Real,
    Specification,
    Unit,
    Variable,
    ends,
    nearest_to_zero,
    variables,
)
from multiplexnet.language.missing import flag_of
from multiplexnet.synthesis.columns.others import Other, other_of
from multiplexnet.synthesis.columns.schema import (
    Field,
    Kind,
    Schema,
    decimal_places,
    decimal_texts,
)
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.columns.types import in_plain, times_in, type_record
from multiplexnet.tables.cells import (
    MISSING,
    NAN,
    SPELLINGS,
    Cells,
    cells_of,
    is_without_text,
    number_otherwise,
)
from multiplexnet.tables.inference.profile import MOMENTS, profile_of
from multiplexnet.tables.matching import is_named, matched
from multiplexnet.tables.sources.table import Table
from multiplexnet.verdicts.columns import Column

__all__ = ["ReadTable", "Rounded", "WholeCells", "cells_in", "cut", "schema_of"]

MOST_LABELS = 1_000
"""Different texts of a column that is learned; with more it is taken for names or identifiers."""
MOST_PLACES = 9
FINE = 9
"""Numbers with more places than that are rounded so that the range has about 10^9 steps, or more:"""
DIGITS = 4
"""so many digits that count are kept of all but the smallest"""
SMALLEST = 0.01
"""share of the numbers,"""
LARGEST = 2.0**50
"""as far as there is room: numbers of steps that nobody declared as whole are smaller."""
TINY = 1e-200
"""Smaller numbers count as this one where decimal places are chosen."""
EXACT = 2.0**53
"""Whole numbers are smaller: beyond it floats leave some out."""
DATETIME = Int(-(2**40), 2**40, Unit(Fraction(1), "datetime"))

OTHER_SPELLINGS = sorted(set(SPELLINGS) - {"true", "false"})

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rounded:
    """What else a column is, the numbers of which have more digits than are learned.

    Args:
        beside: the second nearest steps, those on the other side of each number.
        cells: as they were given, as texts.
        is_finer: whether it has more places than with ``is_fine=False``.
        place: of the column in the matrix of values.
    """

    beside: Whole
    cells: pl.Series
    is_finer: bool
    place: int = 0


@dataclass(frozen=True)
class ReadTable:
    """A table that was read.

    Args:
        schema: its columns.
        values: ``(N, D)``, columns as in the specification; anything in rows that cannot be read.
        readable: rows whose every cell has a value of its column, or none where that is allowed.
        movable: rows whose every cell has a value, or one that moves to one: outside of its range or between its steps.
        exact: the columns as rules see them: decimals in place of floats.
        notes: what was done to columns that nobody asked for.
        blanks: what is said of texts that come back as others, which is no reason to warn.
        strange: cells that cannot be read, in words, by their column.
        rounded: columns that rules bind, and that are rounded.
    """

    schema: Schema
    values: Whole
    readable: Bools
    movable: Bools
    exact: pl.DataFrame
    notes: tuple[str, ...]
    strange: Mapping[str, Sequence[str]]
    blanks: tuple[str, ...] = ()
    rounded: tuple[Rounded, ...] = ()


@dataclass(frozen=True)
class _Read:
    """One column on its way: whole numbers, where there are none (even if cells are moved), where they are missing."""

    field: Field
    steps: Whole
    unread: Bools
    unmoved: Bools
    missing: Bools
    exact: pl.Series
    rounded: Rounded | None = None


def schema_of(
    specification: Specification,
    table: Table,
    frame: pl.DataFrame,
    *,
    is_fine: bool = True,
) -> ReadTable:
    """The columns of a table under rules.

    Args:
        specification: the rules.
        table: for its title and the names of its columns.
        frame: all of its rows, under these names.
        is_fine: whether columns that rules bind, and that are rounded, have as many places as their small numbers need;
            sums of such numbers may be too large to be exact.

    Raises:
        TableError: rules that speak of what a table does not have.
    """
    _refuse_inputs(specification)
    matched(specification, table, by_position=None, skip=())
    named = {
        name: v
        for v in specification.columns
        for name in frame.columns
        if is_named(v, name)
    }
    notes: list[str] = []
    strange: dict[str, Sequence[str]] = {}
    blanks: list[str] = []
    others: list[Other] = []
    declared: list[Variable] = list(specification.variables)
    bound = {v for rule in specification.rules for v in variables(rule.formula)}
    read: list[_Read] = []
    nullable = set(specification.flags)
    for name in frame.columns:
        notes += _lost_numbers(frame[name])
        cells = _plain(frame[name])
        variable = named.get(name)
        if variable is not None:
            found = cells_of(variable, cells)
        else:
            cells = in_plain(_without_blanks(cells))
            if cells.null_count() == len(cells):
                notes.append(f"column {name!r} is left out: all cells are empty")
                continue
            seen = _seen(name, cells)
            if isinstance(seen, Other):
                others.append(seen.in_type(frame[name].dtype))
                notes.append(_left_out(seen, cells) or seen.note)
                continue
            variable = Variable(name, len(declared), seen, whole=True)
            declared.append(variable)
            found = cells_of(variable, cells)
            if _empty(found).any():
                nullable.add(variable)
                declared.append(flag_of(variable, len(declared)))
        strange[name] = _strange(name, found)
        blanks += _lost_blanks(frame[name], variable.domain)
        own = _column(
            name,
            cells,
            found,
            variable,
            variable in nullable,
            variable in bound,
            is_fine,
            notes,
        )
        given = frame[name].dtype
        if type_record(given) is not None:
            own = replace(own, field=replace(own.field, given=given))
        read.append(own)
    if not read:
        raise TableError(
            f"{table.title}: there is no column to learn ({'; '.join(notes)})"
        )
    _refuse_called_as_flags(declared)
    everything = replace(specification, variables=tuple(declared))
    together = _together(read, everything, notes)
    names = {own.field.name for own in read} | {other.name for other in others}
    schema = replace(
        together.schema,
        others=tuple(others),
        names=tuple(name for name in frame.columns if name in names),
    )
    return replace(together, schema=schema, strange=strange, blanks=tuple(blanks))


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


def _refuse_called_as_flags(declared: Sequence[Variable]) -> None:
    """Raises ``TableError`` if a column has the name of what says that another one is missing."""
    flags = {v.name for v in declared if v.is_flag}
    for variable in declared:
        if not variable.is_flag and variable.name in flags:
            raise TableError(
                f"column {variable.name!r} is called as rules call the empty cells of another column: rename it"
            )


def _plain(cells: pl.Series) -> pl.Series:
    """The cells, NaN as missing; a short float is the decimal that it prints as."""
    if cells.dtype == pl.Float32:
        cells = cells.cast(pl.String).cast(pl.Float64)
    if cells.dtype.is_float():
        return cells.fill_nan(None)
    if cells.dtype in (pl.Categorical, pl.Enum):
        return cells.cast(pl.String)
    return cells


def _lost_numbers(cells: pl.Series) -> list[str]:
    """What is said of NaN, which is told from a missing value before, and not after."""
    count = int(cells.is_nan().sum()) if cells.dtype.is_float() else 0
    if not count:
        return []
    return [
        f"column {cells.name!r} is NaN in {count:,} rows: they are learned, and come back, as missing"
    ]


def _lost_blanks(cells: pl.Series, domain: Domain) -> list[str]:
    """What is said of texts that come back as others: labels with blanks around them, and blank cells."""
    if cells.dtype != pl.String or not isinstance(domain, Category):
        return []
    texts = [text for text in cells.unique().drop_nulls() if text not in domain.labels]
    notes = []
    if around := sorted(text for text in texts if text.strip() in domain.labels):
        notes.append(
            f"column {cells.name!r} has blanks around labels, as in {around[0]!r}: they come back without"
        )
    if not all(text.strip() for text in texts):
        notes.append(
            f"column {cells.name!r} has texts that are blank: they are learned, and come back, as missing"
        )
    return notes


def _without_blanks(cells: pl.Series) -> pl.Series:
    """The cells, blank texts as missing; what is left of them without blanks at its ends, if all differ so, too."""
    if cells.dtype != pl.String:
        return cells
    text = cells.str.strip_chars()
    text = text.set(text == "", None)
    full = cells.set(text.is_null(), None)
    return text if text.n_unique() == full.n_unique() else full


def _empty(read: Cells) -> Bools:
    """Where nothing is: an empty cell, a word that says so, or a NaN."""
    empty = np.zeros(len(read.column), dtype=np.bool_)
    for reason in (MISSING, NAN):
        empty[read.unread.get(reason, np.empty(0, np.intp))] = True
    return empty


def _unread(read: Cells) -> Bools:
    """Where something is that is no value of the column."""
    unread = np.zeros(len(read.column), dtype=np.bool_)
    for rows in read.unread.values():
        unread[rows] = True
    return unread & ~_empty(read)


def _strange(name: str, read: Cells) -> list[str]:
    """Cells of a column that cannot be read, by reason."""
    return [
        f"`{name}` is {reason} in {len(rows):,}, first in row {rows[0] + 1}"
        for reason, rows in read.unread.items()
        if reason not in (MISSING, NAN)
    ]


def _seen(name: str, cells: pl.Series) -> Domain | Other:
    """What a column that the rules do not declare looks like."""
    if is_without_text(cells.dtype) or cells.dtype in (pl.Binary, pl.Time):
        return Other(name, "text")
    domain = _looks_like(name, cells)
    other = None
    if domain is None or isinstance(domain, Category | Real):
        other = other_of(name, cells, is_number=isinstance(domain, Real))
    return other or domain or Other(name, "text")


def _left_out(other: Other, cells: pl.Series) -> str:
    """What is said of a column of numbers that are written otherwise; nothing of other columns."""
    odd = number_otherwise(cells)
    if other.kind != "text" or odd is None:
        return ""
    return (
        f"column {other.name!r} is left out: its cells are numbers that are not read, as {odd!r}; write them as "
        "1234.5, without units, to have them learned; where it is given, it is passed on"
    )


def _looks_like(name: str, cells: pl.Series) -> Domain | None:
    table = Table(
        "the table", ("0",), lambda _: iter([pl.DataFrame([cells.alias("0")])])
    )
    profile = profile_of([table]).columns[0]
    if profile.is_truth and _says_true(cells):
        return Bool()
    if "date" in profile.moments and not isinstance(cells.dtype, pl.Datetime):
        return MOMENTS["date"]
    if profile.is_number or cells.dtype.is_numeric():
        return Real()
    times = cells_of(Variable(name, 0, DATETIME), cells)
    if isinstance(cells.dtype, pl.Datetime) or set(times.unread) <= {MISSING}:
        return DATETIME
    labels = sorted(cells.drop_nulls().cast(pl.String).unique().to_list())
    few = max(50, (len(cells) - cells.null_count()) // 2)
    return Category(tuple(labels)) if len(labels) <= min(MOST_LABELS, few) else None


def _says_true(cells: pl.Series) -> bool:
    """Whether truth values are written as they are given back; Y and N are labels, and stay so."""
    if cells.dtype == pl.Boolean:
        return True
    words = cells.drop_nulls().str.strip_chars().str.to_lowercase()
    return not words.is_in(OTHER_SPELLINGS).any()


def _column(
    name: str,
    cells: pl.Series,
    read: Cells,
    variable: Variable,
    is_nullable: bool,
    is_bound: bool,
    is_fine: bool,
    notes: list[str],
) -> _Read:
    domain = variable.domain
    missing = _empty(read)
    unread = _unread(read)
    numbers = _floats(read.column)
    exact = cells
    size = Fraction(1)
    is_rounded = False
    kind: Kind = "int"
    rounded = None
    if isinstance(domain, Real):
        given = numbers[~unread & ~missing]
        places, is_rounded = _places(name, given, is_fine or not is_bound)
        size = Fraction(1, 10**places)
        steps = np.rint(numbers * 10.0**places)
        if is_rounded:
            _refuse_one_value(name, given, places)
            notes.append(f"column {name!r} is rounded to {_places_text(places)}")
        if is_rounded and is_bound:
            there = np.where(unread | missing, 0, numbers * 10.0**places)
            is_finer = places > _places(name, given, False)[0]
            text = _as_text(cells).alias(name)
            rounded = Rounded(_beside(there), text, is_finer)
        texts = decimal_texts(steps.astype(np.int64), places)
        exact = texts.set(pl.Series(missing), None)
        if unread.any():
            exact = exact.zip_with(pl.Series(~unread), _as_text(cells))
        kind = "int" if not places else "float"
        if places and (is_bound or isinstance(cells.dtype, pl.Decimal)):
            kind = "decimal"
        unmoved = unread.copy()
    else:
        unmoved = unread.copy()
        _largest(name, numbers[~unread & ~missing], EXACT)
        steps = np.rint(numbers)
        is_between = (numbers != steps) & ~missing
        is_time = isinstance(domain, Int) and domain.unit.kind == "datetime"
        if is_time and is_between.any():
            notes.append(f"column {name!r} is rounded to whole seconds")
            is_rounded = True
            exact = _whole_seconds(cells, steps, unread, missing)
        inside = (steps >= domain.values.start) & (steps < domain.values.stop)
        unread |= ~inside & ~missing
        unread |= is_between & (not is_rounded)
        if isinstance(domain, Bool | Category):  # nothing is near another
            unmoved = unread.copy()
        steps = np.clip(
            steps, float(domain.values.start), float(domain.values.stop - 1)
        )
        kind = _kind(domain, is_bound)
    unread |= missing & (not is_nullable)
    unmoved |= missing & (not is_nullable)
    steps = np.where(unmoved | missing, 0, steps)
    flag = Variable("", 0, Bool(), "missing") if is_nullable else None
    field = Field(name, variable.name, variable, flag, size, kind, is_rounded)
    return _Read(
        field,
        steps.astype(np.int64),
        unread,
        unmoved,
        missing & is_nullable,
        exact.alias(name),
        rounded,
    )


def _beside(numbers: NDArray[np.float64]) -> Whole:
    """The second nearest whole numbers; those that are whole have none, and stand for themselves."""
    nearest = np.rint(numbers)
    return (nearest + np.sign(numbers - nearest)).astype(np.int64)


def _places_text(places: int) -> str:
    return f"{places} decimal place{'s' if places != 1 else ''}"


def _whole_seconds(
    cells: pl.Series, seconds: NDArray[np.float64], unread: Bools, missing: Bools
) -> pl.Series:
    """Times as they are rounded; what is none as a report shows it."""
    there = ~unread & ~missing
    whole = pl.Series(np.where(there, seconds, 0).astype(np.int64))
    texts = pl.from_epoch(whole, "s").dt.strftime("%Y-%m-%d %H:%M:%S")
    return texts.zip_with(pl.Series(there), _as_text(cells))


def _as_text(cells: pl.Series) -> pl.Series:
    """The cells as a report shows them."""
    if is_without_text(cells.dtype) or cells.dtype == pl.Binary:
        return pl.Series([str(cell) for cell in cells.to_list()])
    return cells.cast(pl.String)


def _kind(domain: Int | Bool | Category, is_bound: bool) -> Kind:
    match domain:
        case Bool():
            return "bool"
        case Category():
            return "label"
    if domain.unit.kind == "date":
        return "date"
    if domain.unit.kind == "datetime":
        return "datetime"
    if domain.unit.size.denominator == 1:
        return "int"
    is_decimal = is_bound and decimal_places(domain.unit.size) is not None
    return "decimal" if is_decimal else "float"


def _floats(column: Column) -> NDArray[np.float64]:
    numbers = np.array(column.near)
    if column.unit != 1:
        numbers = numbers * column.unit.numerator / column.unit.denominator
    for row, number in column.odd.items():
        numbers[row] = float(number)
    return numbers


def _places(name: str, numbers: NDArray[np.float64], is_fine: bool) -> tuple[int, bool]:
    """Decimal places that hold all numbers, or that leave enough of them; and whether something is lost."""
    top = _largest(name, numbers, LARGEST)
    for places in range(MOST_PLACES + 1):
        if top * 10.0**places >= LARGEST:
            break
        if (np.round(numbers, places) == numbers).all():
            return places, False
    span = float(np.ptp(numbers)) or 1.0
    wanted = FINE - floor(log10(span))
    if is_fine:
        wanted = max(wanted, _places_of_small(numbers))
    most = floor(log10(LARGEST / max(top, TINY)))
    return max(0, min(wanted, most, 18)), True


def _places_of_small(numbers: NDArray[np.float64]) -> int:
    """Decimal places that leave small numbers their first digits, and the smallest one more than zero."""
    sizes = np.abs(numbers[numbers != 0])
    if not len(sizes):
        return 0
    small = max(float(np.quantile(sizes, SMALLEST)), TINY)
    least = max(float(sizes.min()), TINY)
    return max(DIGITS - floor(log10(small)), -floor(log10(least)))


def _refuse_one_value(name: str, numbers: NDArray[np.float64], places: int) -> None:
    """Raises ``TableError`` if nothing is left of what tells numbers apart."""
    if np.ptp(numbers) and not np.ptp(np.rint(numbers * 10.0**places)):
        raise TableError(
            f"column {name!r} holds numbers that are all the same after {places} decimal places, and no more are "
            "learned: give it in other units, in which they are larger, or leave it out"
        )


def _largest(name: str, numbers: NDArray[np.float64], limit: float) -> float:
    """The largest size of a number, which is below the limit.

    Raises:
        TableError: it is too large.
    """
    top = float(np.abs(numbers).max(initial=0.0))
    if top < limit:
        return top
    raise TableError(
        f"column {name!r} holds a number of {len(f'{top:.0f}')} digits, and those below {limit:,.0f} are learned: "
        "give it in larger units, or less a number that all its cells have in common, or leave it out"
    )


def _together(
    read: Sequence[_Read], declared: Specification, notes: list[str]
) -> ReadTable:
    """Columns and flags in one matrix, ranges as wide as what was read."""
    fields = []
    columns: list[Whole] = []
    rounded: list[Rounded] = []
    readable = np.ones(len(read[0].steps), dtype=np.bool_)
    movable = readable.copy()
    for own in read:
        readable &= ~own.unread
        movable &= ~own.unmoved
        flag = None
        if own.field.flag is not None:
            flag = flag_of(own.field.variable, len(columns))
            columns.append(own.missing.astype(np.int64))
        variable = replace(own.field.variable, index=len(columns))
        if own.rounded is not None:
            rounded.append(replace(own.rounded, place=variable.index))
        columns.append(own.steps)
        fields.append(replace(own.field, variable=variable, flag=flag))
    values = np.stack(columns, -1)
    exact = pl.DataFrame({own.field.name: own.exact for own in read})
    return ReadTable(
        Schema(tuple(fields), declared),
        values,
        readable,
        movable,
        exact,
        tuple(notes),
        {},
        rounded=tuple(rounded),
    )


def cut(found: ReadTable, rows: Bools) -> ReadTable:
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
        narrow = replace(field, variable=replace(field.variable, domain=domain))
        fields.append(narrow if narrow.holds else replace(narrow, given=None))
    return replace(
        found, schema=replace(found.schema, fields=tuple(fields)), values=values
    )


def _cut(domain: Domain, steps: Whole) -> Domain:
    """The range that was seen, in whole numbers; labels and truth values stay as they are."""
    if isinstance(domain, Bool | Category):
        return domain
    unit = domain.unit if isinstance(domain, Int) else ONE
    if not len(steps):
        return (
            Int(0, 0)
            if isinstance(domain, Real)
            else replace(domain, upper=domain.lower)
        )
    return Int(int(steps.min()), int(steps.max()), unit)


@dataclass(frozen=True)
class WholeCells:
    """Some columns of another table as whole numbers.

    Args:
        steps: for every variable, flags too, one for each row; what stands for a missing value where there is none.
        empty: for every column of the table the rows without a value.
        bad: for every column the rows whose value cannot be read, or that the column cannot have.
    """

    steps: dict[Variable, Whole]
    empty: dict[str, Bools]
    bad: dict[str, Bools]

    @property
    def good(self) -> Bools:
        """Rows in which every column has a value, or none where that is allowed."""
        masks = [~bad for bad in self.bad.values()]
        return np.asarray(np.logical_and.reduce(masks))


def cells_in(schema: Schema, frame: pl.DataFrame) -> WholeCells:
    """The learned columns that a table has."""
    steps: dict[Variable, Whole] = {}
    empty: dict[str, Bools] = {}
    bad: dict[str, Bools] = {}
    for field in schema.fields:
        if field.name not in frame.columns:
            continue
        declared = next(v for v in schema.declared.columns if v.name == field.declared)
        cells = _plain(frame[field.name])
        if field.given == pl.Time:
            cells = times_in(cells)
        read = cells_of(declared, in_plain(cells))
        missing = _empty(read)
        unread = _unread(read)
        numbers = _floats(read.column)
        found = np.rint(numbers * field.size.denominator)
        low, high = ends(field.variable.domain)
        assert low is not None
        assert high is not None
        fits = found / field.size.denominator == numbers
        fits |= field.is_rounded
        found = _in_range(numbers * field.size.denominator, found, int(low), int(high))
        fits &= (found >= float(low)) & (found <= float(high)) & ~unread
        stand_in = int(nearest_to_zero(field.variable.domain))
        own = np.where(missing | ~fits, stand_in, found)
        steps[field.variable] = own.astype(np.int64)
        if field.flag is not None:
            steps[field.flag] = missing.astype(np.int64)
        empty[field.name] = missing
        bad[field.name] = ~fits & ~missing
        if field.flag is None:
            bad[field.name] |= missing
    return WholeCells(steps, empty, bad)


def _in_range(
    numbers: NDArray[np.float64], nearest: NDArray[np.float64], low: int, high: int
) -> NDArray[np.float64]:
    """The nearest steps; the second nearest where these alone are in the range of the column."""
    beside = nearest + np.sign(numbers - nearest)
    is_out = (nearest < low) | (nearest > high)
    helps = is_out & (beside >= low) & (beside <= high)
    return np.where(helps, beside, nearest)
