"""A table that is read a block of rows at a time, whatever it is kept in.

Columns of the frames are called ``0``, ``1``, …: names in files can be anything.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from multiplexnet.errors import TableError

__all__ = ["Source", "Table", "own_errors"]


@dataclass(frozen=True)
class Source:
    """A file that another process can open as well.

    Args:
        path: of the file.
        delimiter: what separates the cells of a CSV file; ``None``: found by itself.
        table: the name of the table in a database file.
        groups: the row groups of a Parquet file that are meant; ``None``: all.
    """

    path: Path
    delimiter: str | None = None
    table: str | None = None
    groups: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Table:
    """A table that is read a block of rows at a time.

    Args:
        title: what messages call it: the path of a file.
        names: the names of its columns.
        read: yields frames of the columns at the given positions, named by them.
        source: the file that it is in, if another process can open it.
    """

    title: str
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], Iterator[pl.DataFrame]]
    source: Source | None = None

    def __post_init__(self) -> None:
        if not self.names:
            raise TableError(f"{self.title} has no columns")
        doubled = [name for name, count in Counter(self.names).items() if count > 1]
        if doubled:
            raise TableError(
                f"{self.title}: the column name {doubled[0]!r} appears twice: rename one of them"
            )

    def frames(self, positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        """The columns at these positions, a block of rows at a time.

        Raises:
            TableError: the file is damaged.
        """
        frames = self.read(positions)
        while True:
            with own_errors(self.title):
                frame = next(frames, None)
            if frame is None:
                return
            yield frame


@contextmanager
def own_errors(title: str | Path) -> Iterator[None]:
    """What polars and pyarrow say about a damaged table, as our own error."""
    try:
        yield
    except TableError:
        raise
    except MemoryError:  # a length that a damaged file claims
        raise TableError(
            f"{title} cannot be read: it is damaged, or a block of it does not fit into memory"
        ) from None
    except (
        OSError,
        EOFError,
        ValueError,
        NotImplementedError,
        zlib.error,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as error:
        raise TableError(f"{title} cannot be read: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    reason = str(error).strip().split("\n", 1)[0]
    if "more fields than defined" in reason:
        return "a row has more cells than the header has names; put quotes around cells with commas"
    return (
        "it is not UTF-8 text; save it as UTF-8" if "utf" in reason.lower() else reason
    )
