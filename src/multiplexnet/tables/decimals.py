"""Cells of a table as columns of exact numbers: ``0.1`` in a file is one tenth, not the double next to it.

A decimal is an integer over a power of ten. Whole columns are brought to one power 10^E and held as ``10^-E · Σ parts``
(:class:`multiplexnet.verdicts.columns.Column`):
prices and counts need one part and stay exact in float64, 17 digits need two.
"""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.language.formula import Bool, Category, Variable
from multiplexnet.verdicts.columns import Column, expanded, widened
from multiplexnet.verdicts.units import has_unit, steps_of

__all__ = ["BadCell", "column"]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
POWERS = np.array([10.0**s for s in range(23)])  # 10^22 is the last one that is exact in float64
LONGEST = 1000  # digits in a cell, and size of an exponent: more is a mistake, not a measurement


class BadCell(Exception):
    """A cell that cannot be read: its row (from 0) and what is wrong with it."""

    def __init__(self, row: int, reason: str) -> None:
        self.row = row
        self.reason = reason
        super().__init__(reason)


def column(variable: Variable, cells: pl.Series) -> Column:
    """The values of the variable in these cells, exactly; a category's unknown labels are −1.

    Example:
        >>> column(Variable("x", 0), pl.Series(["0.1", "-2", "3e-2"])).exact(2)
        Fraction(3, 100)
    """
    if cells.null_count():
        row = cells.is_null().arg_max() or 0
        raise BadCell(row, "the cell is empty: fill it in or drop the row")
    if isinstance(variable.domain, Category):
        return _labels(cells, variable.domain.labels)
    if isinstance(variable.domain, Bool):
        return _truth_values(cells)
    if variable.unit.kind in ("date", "datetime"):
        return _moments(cells, variable.unit.kind)
    if has_unit(variable):
        return _steps(cells, variable)
    return _numbers(cells)


def _steps(cells: pl.Series, variable: Variable) -> Column:
    """Whole numbers of a unit: floats stand for the decimal that they are nearest to, texts for what they say."""
    if cells.dtype in (pl.Float32, pl.Float64):
        values = _floats(widened(cells.to_numpy()))
        name = "float32" if cells.dtype == pl.Float32 else "float64"
        return Column.floats(steps_of(values.parts[0], variable, name))
    return _numbers(cells).times(1 / variable.unit.size)


def _moments(cells: pl.Series, kind: str) -> Column:
    """Days or seconds since 1970 began, of dates, of texts like 2024-08-03, or given as such numbers."""
    if cells.dtype == pl.String:
        cells = _read_moments(cells, kind)
    if cells.dtype == pl.Date and kind == "datetime":
        cells = cells.cast(pl.Datetime("us"))
    if isinstance(cells.dtype, pl.Datetime):
        micros = Column.integers(cells.dt.epoch("us").to_numpy())
        return micros.times(Fraction(1, 10**6 * (86_400 if kind == "date" else 1)))
    if cells.dtype == pl.Date:
        return Column.integers(cells.dt.epoch("d").cast(pl.Int64).to_numpy())
    return _numbers(cells)


def _read_moments(cells: pl.Series, kind: str) -> pl.Series:
    text = cells.str.strip_chars()
    if kind == "date":
        read = text.str.to_date("%Y-%m-%d", strict=False)
        example = "2024-08-03"
    else:
        whole = text.str.replace("T", " ", literal=True)
        shapes = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")
        read, *others = (whole.str.to_datetime(shape, strict=False) for shape in shapes)
        for other in others:
            read = read.fill_null(other)
        example = "2024-08-03 14:30"
    if read.null_count():
        row = read.is_null().arg_max() or 0
        raise BadCell(row, f"{text[row]!r} is no {kind} such as {example}")
    return read


def _labels(cells: pl.Series, labels: tuple[str, ...]) -> Column:
    text = cells.cast(pl.String).str.strip_chars()
    position = {label: k for k, label in enumerate(labels)}
    known = text.replace_strict(position, default=-1, return_dtype=pl.Int64)
    return Column.integers(known.to_numpy())


def _truth_values(cells: pl.Series) -> Column:
    if cells.dtype != pl.String:
        return _numbers(cells)
    text = cells.str.strip_chars().str.to_lowercase()
    return _decimals(text.replace({"true": "1", "false": "0"}), expected="true, false, 1 or 0")


def _numbers(cells: pl.Series) -> Column:
    if cells.dtype == pl.String:
        return _decimals(cells)
    if cells.dtype == pl.Boolean or (
        cells.dtype.is_integer() and cells.dtype not in (pl.UInt64, pl.Int128)
    ):
        return Column.integers(cells.cast(pl.Int64).to_numpy())
    if cells.dtype.is_float():
        return _floats(widened(cells.to_numpy()))
    if cells.dtype.is_numeric() or cells.dtype in (pl.Categorical, pl.Enum):
        return _decimals(cells.cast(pl.String))
    raise BadCell(0, f"the column holds values of type {cells.dtype}: numbers are expected")


def _floats(values: NDArray[np.float64]) -> Column:
    if not (finite := np.isfinite(values)).all():
        row = int(np.argmin(finite))
        raise BadCell(row, f"{values[row]} is not a finite number: fill it in or drop the row")
    return Column.floats(values)


# --- decimals -------------------------------------------------------------------------------------------------------


def _decimals(cells: pl.Series, expected: str = "a number such as 12.5 or 3e-4") -> Column:
    digits, places = _split(cells)
    if not digits.null_count():
        return _scaled(digits.to_numpy(), places.to_numpy(), {})
    rows = np.flatnonzero(digits.is_null().to_numpy())
    m = digits.fill_null(0).to_numpy().copy()
    e = places.to_numpy().copy()
    m[rows], e[rows], odd = _scientific(cells.gather(rows), rows, expected)
    return _scaled(m, e, odd)


def _split(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Digits as an integer and the number of decimal places; null digits where the cell is no plain decimal."""
    cell = pl.col("cell").str
    digits = cell.replace(".", "", literal=True).cast(pl.Int64, strict=False)
    misplaced = cell.starts_with(".-") | cell.starts_with(
        ".+"
    )  # without its point it would be a number
    places = (
        cell.len_bytes().cast(pl.Int64) - 1 - cell.find(".", literal=True).cast(pl.Int64)
    ).fill_null(0)
    found = (
        cells.alias("cell")
        .to_frame()
        .select(digits=pl.when(~misplaced).then(digits), places=places)
    )
    return found["digits"], found["places"]


def _scientific(
    cells: pl.Series, rows: NDArray[np.intp], expected: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[int, Fraction]]:
    """The same for cells with exponents, signs and blanks; what has too many digits goes to the last dictionary."""
    text = cells.str.strip_chars().str.to_lowercase()
    halves = text.str.split_exact("e", 1).struct.unnest()
    digits, places = _split(halves["field_0"])
    exponent = halves["field_1"].cast(pl.Int64, strict=False)
    plain = halves["field_1"].is_null()
    places = places - exponent.zip_with(~plain, pl.repeat(0, len(cells), eager=True))
    read = (
        (digits.is_not_null() & places.is_not_null() & (places.abs() <= LONGEST))
        .fill_null(False)
        .to_numpy()
    )
    odd = {
        int(rows[k]): _fraction(cells[int(k)], int(rows[k]), expected)
        for k in np.flatnonzero(~read)
    }
    m = digits.fill_null(0).to_numpy()
    e = places.fill_null(0).to_numpy()
    return np.where(read, m, 0), np.where(read, e, 0), odd


def _fraction(cell: str, row: int, expected: str) -> Fraction:
    text = cell.strip()
    if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise BadCell(row, f"{cell!r} is not a finite number: fill it in or drop the row")
    if not text:
        raise BadCell(row, "the cell is empty: fill it in or drop the row")
    if not (match := NUMBER.fullmatch(text)):
        raise BadCell(row, f"{_shortened(cell)} is not {expected}")
    if len(text) > LONGEST or abs(int((match[2] or "e0")[1:])) > LONGEST:
        raise BadCell(row, f"{_shortened(cell)} has more than {LONGEST} digits")
    return Fraction(text)


def _shortened(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:40] + "…")


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
