"""Cells of a table as columns of exact numbers: ``0.1`` in a file is one tenth, not the double next to it.

A decimal is an integer over a power of ten. Whole columns are brought to one power 10^E and held as ``10^-E · Σ parts``
(:class:`multiplexnet.verdicts.columns.Column`):
prices and counts need one part and stay exact in float64, 17 digits need two.

A cell that cannot be read ends nothing: it is noted with its reason, and stands as 0 in the column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Bool, Category, Variable
from multiplexnet.verdicts.columns import Column, expanded, widened
from multiplexnet.verdicts.units import has_unit, steps_of

__all__ = ["MISSING", "NAN", "Cells", "cells_of", "is_without_text", "number_otherwise"]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
PLAIN = r"^[+-]?\d+(\.\d+)?$"
UNIT = r"(?:[$€£¥%‰]|EUR|USD|GBP|CHF|JPY)?"
OTHERWISE = rf"^\s*[+-]?\s*{UNIT}\s*[+-]?(\d+|\d{{1,3}}([.,'’\s]\d{{3}})+)([.,]\d+)?\s*{UNIT}\s*$"
"""Numbers as people write them: 1.234,5 and 12,05 €."""
POWERS = np.array(
    [10.0**s for s in range(23)]
)  # 10^22 is the last one that is exact in float64
LONGEST = 1000  # digits in a cell, and size of an exponent: more is a mistake, not a measurement

MISSING = "missing"
NAN = "NaN"
INFINITE = "infinite"
NO_NUMBER = "not a number"
NO_TRUTH = "not a truth value"
NO_LABEL = "not a label"
LONG = f"more than {LONGEST} digits"

EMPTY = frozenset(["", "na", "n/a", "null", "none"])
"""Cells, in lower case, that say that nothing is there; in a column of labels, those that are no label."""
SPELLINGS = {
    **dict.fromkeys(["true", "t", "yes", "y"], "1"),
    **dict.fromkeys(["false", "f", "no", "n"], "0"),
}
SHAPES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")
"""How times are written."""
FRACTION = "%Y-%m-%d %H:%M:%S%.f"
"""The same with a part of a second."""
FINE, FINEST = r"\.\d{1,6}$", r"\.\d{1,9}$"
"""Ends of such texts that are whole micro- and nanoseconds."""
FAR = r"^(1[7-9]|20|21)\d\d-"
"""Years that nanoseconds since 1970 reach."""
TICKS = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of a second, in a column of times."""
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Cells:
    """Some cells of one column.

    Args:
        column: their exact numbers, 0 where there is none.
        unread: for every reason why there is none the rows, from 0, in order.
    """

    column: Column
    unread: Mapping[str, Rows] = field(default_factory=dict)


def cells_of(variable: Variable, cells: pl.Series) -> Cells:
    """The values of the variable in these cells, exactly; a category's unknown labels are −1.

    Example:
        >>> found = cells_of(Variable("x", 0), pl.Series(["0.1", None, "3e-2", "many"]))
        >>> found.column.exact(2), {reason: rows.tolist() for reason, rows in sorted(found.unread.items())}
        (Fraction(3, 100), {'missing': [1], 'not a number': [3]})
    """
    if cells.dtype in (pl.Categorical, pl.Enum):
        cells = cells.cast(pl.String)
    if not cells.null_count():
        return _read(variable, cells)
    empty = cells.is_null().to_numpy()
    whole = np.flatnonzero(~empty)
    if len(whole) == 0:
        return Cells(_zeros(len(cells)), {MISSING: np.flatnonzero(empty)})
    found = _read(variable, _filled(cells, int(whole[0])))
    unread = {reason: rows[~empty[rows]] for reason, rows in found.unread.items()}
    unread[MISSING] = np.union1d(unread.get(MISSING, whole[:0]), np.flatnonzero(empty))
    return _blanked(
        found.column, {reason: rows for reason, rows in unread.items() if len(rows)}
    )


def _filled(cells: pl.Series, row: int) -> pl.Series:
    """The cells, the value in this row in place of those that are missing."""
    if cells.dtype.is_nested() or cells.dtype == pl.Object:
        return cells
    return cells.fill_null(cells[row])


def _read(variable: Variable, cells: pl.Series) -> Cells:
    if isinstance(variable.domain, Category):
        return _labels(cells, variable.domain.labels)
    if isinstance(variable.domain, Bool):
        return _truth_values(cells)
    if variable.unit.kind in ("date", "datetime"):
        _refuse_zone(cells, variable)
        return _moments(cells, variable.unit.kind)
    if has_unit(variable):
        return _steps(cells, variable)
    return _numbers(cells)


def _zeros(length: int) -> Column:
    return Column((np.zeros(length),))


def _blanked(column: Column, unread: Mapping[str, Rows]) -> Cells:
    """The column with 0 in the rows that were not read."""
    rows = np.concatenate(list(unread.values()))
    return Cells(column.with_number(Fraction(0), rows), unread)


def _steps(cells: pl.Series, variable: Variable) -> Cells:
    """Whole numbers of a unit: floats stand for the decimal that they are nearest to, texts for what they say."""
    found = _numbers(cells)
    if not cells.dtype.is_float():
        return Cells(found.column.times(1 / variable.unit.size), found.unread)
    name = str(cells.dtype).lower()  # Float32 is float32
    return Cells(
        Column.floats(steps_of(found.column.parts[0], variable, name)), found.unread
    )


def _moments(cells: pl.Series, kind: str) -> Cells:
    """Days or seconds since 1970 began, of dates, of texts like 2024-08-03, or given as such numbers."""
    unread: dict[str, Rows] = {}
    if cells.dtype == pl.String:
        cells, unread = _read_moments(cells, kind)
    if cells.dtype == pl.Date and kind == "datetime":
        cells = cells.cast(pl.Datetime("us"))
    if isinstance(cells.dtype, pl.Datetime):
        ticks = Column.integers(cells.to_physical().to_numpy())
        of_a_second = TICKS[cells.dtype.time_unit]
        unit = Fraction(1, of_a_second * (86_400 if kind == "date" else 1))
        return Cells(ticks.times(unit), unread)
    if cells.dtype == pl.Date:
        return Cells(
            Column.integers(cells.dt.epoch("d").cast(pl.Int64).to_numpy()), unread
        )
    return _numbers(cells)


def _refuse_zone(cells: pl.Series, variable: Variable) -> None:
    zone = getattr(cells.dtype, "time_zone", None)
    if zone is not None:
        raise TableError(
            f"the column of {variable.name} has times of a zone ({zone}), and those of rules have none: give the times "
            f"that clocks showed, in polars with .dt.convert_time_zone({zone!r}).dt.replace_time_zone(None), in pandas "
            "with .dt.tz_localize(None)"
        )


def _read_moments(cells: pl.Series, kind: str) -> tuple[pl.Series, dict[str, Rows]]:
    """Texts as dates or times, that of 1970 where there is none, and the rows where that is so by their reason."""
    text = cells.str.strip_chars()
    if kind == "date":
        read = text.str.to_date("%Y-%m-%d", strict=False)
        if read.null_count():
            times = _times(text)
            read = read if times.null_count() == len(times) else times
    else:
        read = _times(text)
    rows = np.flatnonzero(read.is_null().to_numpy())
    if not len(rows):
        return read, {}
    empty = text.gather(rows).str.to_lowercase().is_in(list(EMPTY)).to_numpy()
    found = {MISSING: rows[empty], f"not a {kind}": rows[~empty]}
    epoch = date(1970, 1, 1) if read.dtype == pl.Date else datetime(1970, 1, 1)
    return read.fill_null(epoch), {
        reason: own for reason, own in found.items() if len(own)
    }


def _times(text: pl.Series) -> pl.Series:
    """Texts as times, of which a date is its midnight; null where there is none."""
    whole = text.str.replace("T", " ", literal=True)
    read, *others = (whole.str.to_datetime(shape, strict=False) for shape in SHAPES)
    for other in others:
        read = read.fill_null(other)
    return read if not read.null_count() else _with_fractions(whole, read)


def _with_fractions(text: pl.Series, read: pl.Series) -> pl.Series:
    """Times, and those with parts of a second where there was none yet."""
    end, unit = FINE, "us"
    if not text.str.contains(FINE).any() and not text.str.contains(FINEST).any():
        return read
    written = text.filter(read.is_not_null() | text.str.contains(FINEST))
    if not text.str.contains(FINE).all() and written.str.contains(FAR).all():
        end, unit = FINEST, "ns"
    parts = text.set(~text.str.contains(end), None)
    times = parts.str.to_datetime(FRACTION, strict=False, time_unit=unit)  # type: ignore[arg-type]
    return read.cast(times.dtype).fill_null(times)


def _labels(cells: pl.Series, labels: tuple[str, ...]) -> Cells:
    """Places of labels; a cell is taken as it stands, and without blanks at its ends if there is no such label."""
    if is_without_text(cells.dtype):
        return _of_no_kind(cells, NO_LABEL)
    text = _decoded(cells) if cells.dtype == pl.Binary else cells.cast(pl.String)
    position = {label: k for k, label in enumerate(labels)}
    if cells.dtype == pl.Boolean:  # which polars writes as true, and Python as True
        position = {label.lower(): k for label, k in position.items()} | position
    if cells.dtype.is_float():  # which pandas makes of whole numbers beside empty cells
        position = {f"{label}.0": k for label, k in position.items()} | position
    known = text.replace_strict(position, default=-1, return_dtype=pl.Int64)
    if known.min() == -1:
        text = text.str.strip_chars()
        trimmed = text.replace_strict(position, default=-1, return_dtype=pl.Int64)
        known = known.zip_with(known >= 0, trimmed)
    column = Column.integers(known.to_numpy())
    others = np.flatnonzero(known.to_numpy() < 0)
    if not len(others):
        return Cells(column)
    empty = others[text.gather(others).str.to_lowercase().is_in(list(EMPTY)).to_numpy()]
    return _blanked(column, {MISSING: empty}) if len(empty) else Cells(column)


def _truth_values(cells: pl.Series) -> Cells:
    if cells.dtype != pl.String:
        return _numbers(cells)
    text = cells.str.strip_chars().str.to_lowercase()
    return _decimals(text.replace(SPELLINGS), otherwise=NO_TRUTH)


def _numbers(cells: pl.Series) -> Cells:
    if cells.dtype == pl.String:
        return _decimals(cells)
    if cells.dtype == pl.Boolean or (
        cells.dtype.is_integer() and cells.dtype not in (pl.UInt64, pl.Int128)
    ):
        return Cells(Column.integers(cells.cast(pl.Int64).to_numpy()))
    if cells.dtype.is_float():
        return _floats(widened(cells.to_numpy()))
    if cells.dtype.is_numeric():
        return _decimals(cells.cast(pl.String))
    return _of_no_kind(cells, NO_NUMBER)


def _of_no_kind(cells: pl.Series, reason: str) -> Cells:
    """Cells of a type that has no values of the kind that is asked for."""
    every = np.arange(len(cells))
    return Cells(_zeros(len(cells)), {f"of type {cells.dtype}, {reason}": every})


def is_without_text(dtype: pl.DataType) -> bool:
    """Whether polars cannot write the values of this type as texts."""
    return dtype.is_nested() or dtype in (pl.Object, pl.Duration)


def number_otherwise(cells: pl.Series) -> str | None:
    """One of these cells, if all of them are numbers and some are written as no number is read.

    Example:
        >>> number_otherwise(pl.Series(["12", "1.234,5", "12,05 €", None]))
        '1.234,5'
        >>> number_otherwise(pl.Series(["12", "c-05"])) is number_otherwise(pl.Series(["007"])) is None
        True
    """
    if cells.dtype != pl.String:
        return None
    texts = cells.drop_nulls()
    odd = texts.filter(~texts.str.contains(PLAIN))
    if not len(odd) or not texts.str.contains(OTHERWISE).all():
        return None
    return str(odd[0])


def _decoded(cells: pl.Series) -> pl.Series:
    """Bytes as texts; those that are not UTF-8 are no label that anybody writes."""
    texts = [cell.decode("utf-8", errors="replace") for cell in cells.to_list()]
    return pl.Series(texts, dtype=pl.String)


def _floats(values: NDArray[np.float64]) -> Cells:
    finite = np.isfinite(values)
    if finite.all():
        return Cells(Column.floats(values))
    column = Column.floats(np.where(finite, values, 0.0))
    found = {NAN: np.isnan(values), INFINITE: np.isinf(values)}
    return Cells(
        column, {reason: np.flatnonzero(of) for reason, of in found.items() if of.any()}
    )


# --- decimals -------------------------------------------------------------------------------------------------------


def _decimals(cells: pl.Series, otherwise: str = NO_NUMBER) -> Cells:
    digits, places = _split(cells)
    if not digits.null_count():
        return Cells(_scaled(digits.to_numpy(), places.to_numpy(), {}))
    rows = np.flatnonzero(digits.is_null().to_numpy())
    m = digits.fill_null(0).to_numpy().copy()
    e = places.to_numpy().copy()
    m[rows], e[rows], odd, unread = _scientific(cells.gather(rows), rows, otherwise)
    return Cells(_scaled(m, e, odd), unread)


def _split(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Digits as an integer and the number of decimal places; null digits where the cell is not a plain decimal."""
    cell = pl.col("cell").str
    digits = cell.replace(".", "", literal=True).cast(pl.Int64, strict=False)
    misplaced = cell.starts_with(".-") | cell.starts_with(
        ".+"
    )  # without its point it would be a number
    places = (
        cell.len_bytes().cast(pl.Int64)
        - 1
        - cell.find(".", literal=True).cast(pl.Int64)
    ).fill_null(0)
    found = (
        cells.alias("cell")
        .to_frame()
        .select(digits=pl.when(~misplaced).then(digits), places=places)
    )
    return found["digits"], found["places"]


def _scientific(
    cells: pl.Series, rows: Rows, otherwise: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[int, Fraction], dict[str, Rows]]:
    """The same for cells with exponents, signs and blanks.

    What has too many digits goes to the dictionary of fractions, what is not a number to that of reasons.
    """
    text = cells.str.strip_chars().str.to_lowercase()
    halves = text.str.splitn("e", 2).struct.unnest()
    digits, places = _split(halves["field_0"])
    exponent = halves["field_1"].cast(pl.Int64, strict=False)
    plain = halves["field_1"].is_null()
    places = places - exponent.zip_with(~plain, pl.repeat(0, len(cells), eager=True))
    read = (
        (digits.is_not_null() & places.is_not_null() & (places.abs() <= LONGEST))
        .fill_null(False)
        .to_numpy()
    )
    odd: dict[int, Fraction] = {}
    unread: dict[str, list[int]] = {}
    known: dict[str, Fraction | str] = {}
    for k in np.flatnonzero(~read).tolist():
        cell = cells[k]
        if cell not in known:
            known[cell] = _fraction(cell, otherwise)
        found = known[cell]
        if isinstance(found, str):
            unread.setdefault(found, []).append(int(rows[k]))
        else:
            odd[int(rows[k])] = found
    m = digits.fill_null(0).to_numpy()
    e = places.fill_null(0).to_numpy()
    reasons = {reason: np.array(own, dtype=np.intp) for reason, own in unread.items()}
    return np.where(read, m, 0), np.where(read, e, 0), odd, reasons


def _fraction(cell: str, otherwise: str) -> Fraction | str:
    """The number in a cell, or why there is none."""
    text = cell.strip()
    if text.lower() in EMPTY:
        return MISSING
    if text.lower().lstrip("+-") == "nan":
        return NAN
    if text.lower().lstrip("+-") in ("inf", "infinity"):
        return INFINITE
    if not (match := NUMBER.fullmatch(text)):
        return otherwise
    if len(text) > LONGEST or abs(int((match[2] or "e0")[1:])) > LONGEST:
        return LONG
    return Fraction(text)


def _scaled(
    digits: NDArray[np.int64], places: NDArray[np.int64], odd: dict[int, Fraction]
) -> Column:
    """``digits / 10^places`` with one common power of ten; rows that would need too large a factor become odd."""
    common = _common_places(places[digits != 0])
    shift = np.where(digits == 0, 0, common - places)
    outside = (shift < 0) | (shift > 22)
    for row in np.flatnonzero(outside):
        odd[int(row)] = Fraction(int(digits[row])) / Fraction(10) ** int(places[row])
    integers = Column.integers(np.where(outside, 0, digits))
    parts = (
        integers.parts
        if not shift.any()
        else expanded(integers.parts, POWERS[np.where(outside, 0, shift)])
    )
    return Column(parts, Fraction(10) ** -common, odd)


def _common_places(places: NDArray[np.int64]) -> int:
    """The number of places that brings the most cells to integers by a factor of at most 10^22."""
    if len(places) == 0:
        return 0
    if places.max() - places.min() <= 22:
        return int(places.max())
    distinct, counts = np.unique(places, return_counts=True)
    covered = [counts[(distinct <= e) & (distinct >= e - 22)].sum() for e in distinct]
    return int(distinct[np.argmax(covered)])
