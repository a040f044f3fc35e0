"""Tables of pandas, column by column: one that nobody asks for stands in nobody's way. Every value keeps its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral
from typing import Any

import numpy as np
import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.tables.sources.table import Table

__all__ = ["float_text", "pandas_table", "times_of"]

PLAIN = (bool, str)
"""Types of objects that polars takes over as they are, where a column has no other."""


def pandas_table(data: Any, title: str) -> Table:
    """A DataFrame.

    Raises:
        TableError: it is a Series, or its columns have names of several levels.
    """
    if not hasattr(data, "columns"):
        raise TableError(
            f"a {type(data).__name__} of pandas is one column: give a DataFrame, as in series.to_frame()"
        )
    if data.columns.nlevels > 1:
        raise TableError(
            f"the columns have names of {data.columns.nlevels} levels: make them one, as in "
            "frame.columns = ['_'.join(map(str, name)) for name in frame.columns]"
        )

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        columns = [data.iloc[:, position] for position in positions]
        yield pl.DataFrame(
            [
                _series(column).alias(str(position))
                for position, column in zip(positions, columns, strict=True)
            ]
        )

    return Table(title, tuple(map(str, data.columns)), read)


def _series(column: Any) -> pl.Series:
    """A column, empty cells as such; what Arrow cannot take over goes cell by cell."""
    if column.dtype != object:
        try:
            found: pl.Series = pl.from_pandas(column)  # type: ignore[assignment]
            if not _is_of_pandas(found.dtype):
                return found
        except Exception:  # types of other libraries, sparse ones, complex numbers: each ends in its own way
            pass
    cells = zip(column, column.isna(), strict=True)
    return _objects([None if is_empty else value for value, is_empty in cells])


def _is_of_pandas(dtype: pl.DataType) -> bool:
    """Whether it is a type that only pandas knows, such as that of periods and of intervals."""
    return "Extension" in {own.__name__ for own in type(dtype).__mro__}


def _objects(values: Sequence[Any]) -> pl.Series:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and kinds <= set(PLAIN):
        return pl.Series(values, dtype=pl.String if not kinds else None)
    if kinds == {float}:
        return pl.Series(values, dtype=pl.Float64)
    if kinds and all(issubclass(kind, datetime) for kind in kinds):
        times = times_of(values)
        if times is not None:
            return times
    printed = Decimal in kinds
    return pl.Series([_text(value, printed) for value in values], dtype=pl.String)


def times_of(values: Sequence[Any]) -> pl.Series | None:
    """Times of Python or pandas, of a zone if one of them has one; ``None``: some have parts of microseconds."""
    there = [value for value in values if value is not None]
    if any(getattr(value, "nanosecond", 0) for value in there):
        return None
    times = [
        value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
        for value in values
    ]
    zones = {value.tzinfo for value in there}
    if len(zones) <= 1:
        return pl.Series(times)
    # polars would shift those with a zone beside those without
    shown = [None if time is None else time.replace(tzinfo=None) for time in times]
    return pl.Series(shown).dt.replace_time_zone("UTC")


def float_text(value: float, printed: bool) -> str:
    """A float as a file would have it: with all its digits, or as Python prints it.

    The latter is what is meant beside decimals, where 0.1 is one tenth.

    Example:
        >>> float_text(0.1, printed=True), float_text(0.1, printed=False)[:24]
        ('0.1', '0.1000000000000000055511')
    """
    return str(value) if printed else str(Decimal(value))


def _text(value: Any, printed: bool) -> str | None:
    """A cell as a file would have it, a number with all its digits."""
    if value is None:
        return None
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return float_text(float(value), printed)
    if isinstance(value, date):  # of which times are a kind
        return value.isoformat().replace("T", " ")
    return str(value)
