"""Tables in memory: of polars, pandas and Arrow, mappings, arrays and tensors. Every value keeps its exact number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from multiplexnet.arguments import refuse_no_text
from multiplexnet.errors import TableError, brief
from multiplexnet.tables.sources.columnar import streamed_arrow
from multiplexnet.tables.sources.files import files_named, table_in_file
from multiplexnet.tables.sources.pandas_tables import float_text, pandas_table, times_of
from multiplexnet.tables.sources.table import Table, own_errors

__all__ = ["tables_of"]

TITLE = "the table"
EXACT_ARRAYS = "biuU"
"""Kinds of numpy arrays, besides floats of at most 64 bits, that polars takes over as they are."""


UNITS = ("D", "ms", "us", "ns")
"""Of numpy's times, those that polars has as well."""
NO_COLUMNS = (str, bytes, bytearray, Mapping, Set)
"""What can be walked through and is not a list of cells."""
HELD = (({int}, 2**63 - 1, pl.Int64), ({int, float}, 2**53, pl.Float64))
"""Kinds of numbers in a list, up to where all whole ones are numbers of a dtype, and the dtype."""


def tables_of(
    data: Any,
    columns: Sequence[str],
    delimiter: str | None = None,
    table: str | None = None,
) -> list[Table]:
    """The table in an object, or those in the files at a path, a pattern or a list of these.

    Args:
        data: the object, the path, the pattern or the list.
        columns: the names of the columns of an array, which has none.
        delimiter: what separates the cells of CSV files; ``None``: found by itself.
        table: the name of the table in a database file.

    Raises:
        TableError: it is not a table.

    Example:
        >>> tables_of({"x": [1, 2**70]}, ())[0].names
        ('x',)
    """
    refuse_no_text("name", table, "the name of a table in a database file")
    named = [data] if isinstance(data, str | Path) else data
    if isinstance(named, list | tuple) and all(
        isinstance(name, str | Path) for name in named
    ):
        if not named:
            raise TableError("an empty list: give the path of a table, or several")
        return [table_in_file(path, delimiter, table) for path in files_named(named)]
    if table is not None:
        raise TableError("name= names a table of a database file: give the path of one")
    if isinstance(data, pl.LazyFrame):
        raise TableError("a LazyFrame has not been read yet: give frame.collect()")
    if type(data).__module__.partition(".")[0] == "pandas":
        return [pandas_table(data, TITLE)]
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pl.DataFrame):
        return [streamed_arrow(data, TITLE)]
    with own_errors(TITLE):
        names, series = _columns(data, columns)
    _refuse_unequal(names, series)

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        yield pl.DataFrame([series[p].alias(str(p)) for p in positions])

    return [Table(TITLE, tuple(names), read)]


def _columns(data: Any, columns: Sequence[str]) -> tuple[list[str], list[pl.Series]]:
    """Names and columns."""
    if isinstance(data, pl.DataFrame):
        return data.columns, data.get_columns()
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        names = list(data if isinstance(data, Mapping) else data.columns)
        return [str(name) for name in names], [
            _series(name, data[name]) for name in names
        ]
    array = _array(data)
    if array.dtype.names is not None:
        names = list(array.dtype.names)
        return names, [_series(name, array[name]) for name in names]
    if not columns:
        raise TableError(
            f"an array of shape {array.shape} has no names of columns: give a table that has them, as "
            "polars.DataFrame(array, schema=[…]) makes one"
        )
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise TableError(
            f"an array of shape {array.shape}: expected is shape (N, {len(columns)}), "
            f"one column for each of {', '.join(columns)}; or name its columns with columns=[…]"
        )
    return list(columns), [_series(name, array[:, k]) for k, name in enumerate(columns)]


def _array(data: Any) -> np.ndarray[Any, np.dtype[Any]]:
    if hasattr(
        data, "detach"
    ):  # a tensor; numpy has no bfloat16, and float32 holds its numbers
        values = data.detach().cpu()
        is_brain = str(values.dtype) == "torch.bfloat16"
        return np.asarray(values.float() if is_brain else values)
    if isinstance(data, np.ndarray):
        return data
    rows = (
        " (of rows, pandas.DataFrame(rows) makes one)" if isinstance(data, list) else ""
    )
    raise TableError(
        f"an object of type {type(data).__name__} is not a table{rows}: give a polars, pandas or Arrow table, a "
        "mapping from names to columns, an array of shape (N, C), or the path of a file"
    )


def _series(name: object, values: Any) -> pl.Series:
    """A column. What polars would round, such as whole numbers among floats, is given to it as text."""
    if isinstance(values, pl.Series):
        return values
    if hasattr(values, "detach"):
        values = _array(values)
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise TableError(
                f"{TITLE}, column {str(name)!r}: expected are N values, found shape {values.shape}"
            )
        is_float = values.dtype.kind == "f" and values.dtype.itemsize <= 8
        if is_float:
            return pl.Series(values.astype(values.dtype.newbyteorder("=")))
        if values.dtype.kind == "M":
            return _times(name, values)
        if values.dtype.kind in EXACT_ARRAYS:
            return pl.Series(values.astype(values.dtype.newbyteorder("=")))
    if isinstance(values, NO_COLUMNS) or not isinstance(values, Iterable):
        raise TableError(
            f"{TITLE}, column {str(name)!r}: expected is a list of values, one for each row; found {brief(values)}"
        )
    return _series_of_objects(name, values)


def _times(name: object, values: np.ndarray[Any, np.dtype[Any]]) -> pl.Series:
    """Times of numpy; those of a unit that polars does not have become microseconds."""
    unit, _ = np.datetime_data(values.dtype)
    native = values.astype(values.dtype.newbyteorder("="))
    if unit in UNITS:
        return pl.Series(native)
    times = native.astype("datetime64[us]")
    same = (times.astype(native.dtype) == native) | np.isnat(native)
    if not same.all():
        raise TableError(
            f"{TITLE}, column {str(name)!r}: its times ({values.dtype}) are no whole microseconds, or too far away: "
            "give them as datetime64[us]"
        )
    return pl.Series(times)


def _series_of_objects(name: object, values: Iterable[Any]) -> pl.Series:
    plain = [
        value.item() if isinstance(value, np.generic) else value for value in values
    ]
    kinds = {type(value) for value in plain if value is not None}
    if len(kinds) <= 1 and kinds <= {bool, float, str, date}:
        return pl.Series(plain)
    if kinds and all(issubclass(kind, datetime) for kind in kinds):
        times = times_of(plain)
        if times is not None:
            return times
    for kinds_held, held, dtype in HELD:
        if kinds and kinds <= kinds_held and _fit(plain, held):
            return pl.Series(plain, dtype=dtype, strict=False)
    for kind in kinds:
        if kind is not float and not issubclass(kind, Integral | Decimal):
            found = ", ".join(sorted(k.__name__ for k in kinds))
            raise TableError(
                f"{TITLE}, column {str(name)!r}: its values are of type {found}; numbers alone (int, float, Decimal), "
                "labels alone, truth values alone, dates alone or times alone are expected"
            )
    printed = Decimal in kinds
    return pl.Series([_text(value, printed) for value in plain], dtype=pl.String)


def _fit(values: Iterable[Any], held: int) -> bool:
    """Whether all whole numbers among the values are at most ``held``."""
    return all(abs(value) <= held for value in values if isinstance(value, int))


def _text(value: Any, printed: bool) -> str | None:
    if value is None:
        return None
    if isinstance(value, Integral):
        return str(int(value))
    return float_text(value, printed) if isinstance(value, float) else str(value)


def _refuse_unequal(names: Sequence[str], columns: Sequence[pl.Series]) -> None:
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise TableError(
                f"{TITLE}: column {names[0]!r} has {len(columns[0])} values and column {name!r} has {len(column)}"
            )
