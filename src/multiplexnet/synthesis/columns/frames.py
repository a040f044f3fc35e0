"""Tables of any kind as frames of polars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.tables.sources.objects import tables_of
from multiplexnet.tables.sources.table import Table

__all__ = ["frame_of", "refuse_empty", "refuse_lacking"]

SHOWN = 5
"""Columns that a message names."""


def frame_of(data: Any, columns: Sequence[str] = ()) -> tuple[Table, pl.DataFrame]:
    """All rows of a table, under the names of its columns, and the table; ``columns`` are those of an array."""
    tables = tables_of(data, columns)
    first = tables[0]
    parts = []
    for table in tables:
        if table.names != first.names:
            raise TableError(f"{table.title} has other columns than {first.title}")
        parts += list(table.frames(range(len(table.names))))
    if not parts:
        nothing = {name: pl.Series([], dtype=pl.String) for name in first.names}
        return first, pl.DataFrame(nothing)
    frame = pl.concat(parts, how="vertical_relaxed")
    frame.columns = list(first.names)
    return first, frame


def refuse_empty(table: Table, frame: pl.DataFrame) -> None:
    """Raises ``TableError`` if there are no rows."""
    if not frame.height:
        raise TableError(f"{table.title} has no rows: there is nothing to learn from")


def refuse_lacking(names: list[str], frame: pl.DataFrame) -> None:
    """Raises ``TableError`` unless all these columns are there."""
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        raise TableError(
            f"the table has no column {', '.join(map(repr, lacking[:SHOWN]))}"
        )
