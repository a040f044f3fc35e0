"""Types of cells: columns are given back in those that they came in, where these hold every value that can be made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

__all__ = [
    "holds",
    "in_plain",
    "in_type",
    "pandas_frame",
    "pandas_types",
    "pandas_types_from",
    "times_in",
    "type_from",
    "type_record",
]

PLAIN: dict[str, pl.DataType] = {
    str(dtype()): dtype()
    for dtype in (
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.UInt8,
        pl.UInt16,
        pl.UInt32,
        pl.UInt64,
        pl.Float32,
        pl.Float64,
        pl.Boolean,
        pl.Date,
        pl.Time,
        pl.Categorical,
    )
}
SECOND = 10**9
"""What times of a day are counted in."""
UNITS = ("ms", "us", "ns")
NULLABLE = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean|string")
"""Types of pandas with empty cells of their own."""
ARROW = "arrow"
"""Any type of pandas whose cells Arrow keeps."""

Record = Any


def holds(dtype: pl.DataType, cells: pl.Series) -> bool:
    """Whether cells stay what they are in this type.

    Example:
        >>> holds(pl.Int8(), pl.Series([1, 127])), holds(pl.Int8(), pl.Series([1, 128]))
        (True, False)
    """
    try:
        back = in_plain(in_type(cells, dtype)).cast(cells.dtype)
    except pl.exceptions.PolarsError:
        return False
    return bool(back.equals(cells))


def in_type(cells: pl.Series, dtype: pl.DataType) -> pl.Series:
    """The cells in this type; times of a day are learned as seconds."""
    if dtype != pl.Time:
        return cells.cast(dtype)
    return (cells.cast(pl.Int64) * SECOND).cast(pl.Time)


def in_plain(cells: pl.Series) -> pl.Series:
    """Times of a day in whole seconds as these; other cells as they are.

    Example:
        >>> in_plain(pl.Series(["00:01:01"]).str.to_time()).to_list()
        [61]
    """
    if cells.dtype != pl.Time:
        return cells
    ticks = cells.cast(pl.Int64)
    return ticks // SECOND if (ticks % SECOND == 0).all() else cells


def times_in(cells: pl.Series) -> pl.Series:
    """Texts that are times of a day as these, as files of text have them; other cells as they are.

    Example:
        >>> times_in(pl.Series(["00:01:01"])).to_list()
        [datetime.time(0, 1, 1)]
    """
    if cells.dtype != pl.String:
        return cells
    times = cells.str.to_time("%H:%M:%S", strict=False)
    return cells if times.null_count() > cells.null_count() else times


def type_record(dtype: pl.DataType) -> Record:
    """A type as JSON holds it; ``None`` for those that columns are not given back in.

    Example:
        >>> type_record(pl.Int8()), type_record(pl.Decimal(9, 2)), type_record(pl.List(pl.Int8))
        ('Int8', ['Decimal', 9, 2], None)
    """
    match dtype:
        case pl.Enum():
            return ["Enum", *dtype.categories.to_list()]
        case pl.Decimal():
            return ["Decimal", dtype.precision, dtype.scale]
        case pl.Datetime(time_zone=None):
            return ["Datetime", dtype.time_unit]
    return str(dtype) if str(dtype) in PLAIN else None


def type_from(record: Record) -> pl.DataType:
    """The type that a record tells of.

    Raises:
        ValueError: it tells of none.
    """
    if isinstance(record, str) and record in PLAIN:
        return PLAIN[record]
    match record:
        case ["Enum", *labels] if all(isinstance(label, str) for label in labels):
            return pl.Enum(labels)
        case ["Decimal", int(precision), int(scale)] if 0 <= scale <= precision <= 38:
            return pl.Decimal(precision, scale)
        case ["Datetime", str(unit)] if unit in UNITS:
            return pl.Datetime(unit)  # type: ignore[arg-type]
    raise ValueError(f"unknown type {str(record)[:60]!r}")


# --- pandas -----------------------------------------------------------------------------------------------------------


def pandas_types(table: Any) -> dict[str, Record]:
    """The columns of a DataFrame whose types polars does not have."""
    found: dict[str, Record] = {}
    for name, dtype in table.dtypes.items():
        text = str(dtype)
        if text.endswith("[pyarrow]"):
            found[str(name)] = ARROW
        elif NULLABLE.fullmatch(text):
            found[str(name)] = text
        elif text == "category" and _are_texts(dtype.categories):
            found[str(name)] = [bool(dtype.ordered), *map(str, dtype.categories)]
    return found


def pandas_types_from(record: Record) -> dict[str, Record]:
    """The same, from a file.

    Raises:
        ValueError: it tells of no types.
    """
    for own in record.values():
        is_named = isinstance(own, str) and (own == ARROW or NULLABLE.fullmatch(own))
        if not is_named and not (isinstance(own, list) and own and _are_texts(own[1:])):
            raise ValueError(f"unknown type {str(own)[:60]!r}")
    return dict(record)


def _are_texts(labels: Any) -> bool:
    return all(isinstance(label, str) for label in labels)


def pandas_frame(frame: pl.DataFrame, types: Mapping[str, Record]) -> Any:
    """A DataFrame of pandas, its columns of these types where these hold them."""
    table = frame.to_pandas()
    for name, record in types.items():
        if name in frame.columns:
            table[name] = _pandas_column(frame[name], record)
    return table


def _pandas_column(cells: pl.Series, record: Record) -> Any:
    column = cells.to_pandas(use_pyarrow_extension_array=True)
    if record == ARROW:
        return column
    if isinstance(record, list):
        return _pandas_labels(cells, record)
    try:
        found = column.astype(record)
    except (TypeError, ValueError, OverflowError):
        return cells.to_pandas()
    return found if _same(cells, found) else cells.to_pandas()


def _same(cells: pl.Series, found: Any) -> bool:
    """Whether a column of pandas holds the same cells; floats hold no decimals that rules bind."""
    back = pl.Series(pl.from_pandas(found))
    if isinstance(cells.dtype, pl.Decimal) and back.dtype.is_float():
        return False
    return bool(back.cast(cells.dtype).equals(cells))


def _pandas_labels(cells: pl.Series, record: Record) -> Any:
    from pandas import CategoricalDtype

    is_ordered, *labels = record
    texts = cells.cast(pl.String)
    if len(set(labels)) < len(labels) or not texts.drop_nulls().is_in(labels).all():
        return cells.to_pandas()
    wanted = CategoricalDtype(labels, ordered=bool(is_ordered))
    return texts.to_pandas().astype(wanted)
