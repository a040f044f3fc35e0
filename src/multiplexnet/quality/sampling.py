"""Rows of a table, drawn evenly while it is read: in the memory of those rows, however long the table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.tables.sources.objects import tables_of
from multiplexnet.tables.sources.table import Table

__all__ = ["Sample", "opened", "sample"]

PLACE = "place in the draw"


@dataclass(frozen=True)
class Sample:
    """Rows of a table, in random order.

    Args:
        title: what the table is called.
        rows: how many the whole table has.
        frame: those that were drawn.
    """

    title: str
    rows: int
    frame: pl.DataFrame


def opened(data: Any, title: str) -> list[Table]:
    """The table in an object or in files, under a name of its own if it is in memory.

    Raises:
        TableError: it is not a table, or its files have different columns.
    """
    tables = tables_of(data, [])
    for table in tables:
        if table.names != tables[0].names:
            raise TableError(
                f"{table.title} has other columns than {tables[0].title}: files of one table have the same"
            )
    if tables[0].source is None:
        return [Table(title, table.names, table.read) for table in tables]
    return tables


def sample(data: Any, most: int, seed: int, title: str = "the table") -> Sample:
    """At most so many rows of a table, each as likely as any other, in an order that the seed decides.

    Example:
        >>> drawn = sample({"x": range(100)}, 5, 0)
        >>> drawn.rows, drawn.frame.height, drawn.frame["x"].n_unique()
        (100, 5, 5)
    """
    tables = opened(data, title)
    random = np.random.default_rng(seed)
    names = tables[0].names
    kept: pl.DataFrame | None = None
    rows = 0
    for table in tables:
        for frame in table.frames(range(len(names))):
            rows += frame.height
            part = frame.with_columns(pl.Series(PLACE, random.random(frame.height)))
            both = [part] if kept is None else [kept, part]
            kept = _joined(both, table.title).sort(PLACE).head(most)
    if kept is None:
        kept = pl.DataFrame(schema={str(k): pl.String for k in range(len(names))})
    kept = kept.drop(PLACE, strict=False)
    kept.columns = list(names)
    more = "" if len(tables) == 1 else f" and {len(tables) - 1} more"
    return Sample(f"{tables[0].title}{more}", rows, kept)


def _joined(frames: list[pl.DataFrame], title: str) -> pl.DataFrame:
    try:
        return pl.concat(frames, how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        reason = str(error).split("\n", 1)[0]
        raise TableError(
            f"{title}: its columns hold other kinds of values than before ({reason})"
        ) from None
