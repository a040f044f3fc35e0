"""What it takes to check one table, or a piece of one: plain data that can be sent to another process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Specification, Variable
from multiplexnet.tables.cells import cells_of
from multiplexnet.tables.matching import is_named
from multiplexnet.tables.report import FileReport, TableReport, title_of
from multiplexnet.tables.sources.table import Table
from multiplexnet.tables.tally import Chunk, Missing, Tally

__all__ = ["Add", "Progress", "Work", "checked", "empty_report"]

CHUNK = 1 << 16

Progress = Callable[[int], None]
Add = Callable[[pl.DataFrame, Sequence[str]], None]
"""Takes rows that do not obey, each with what it breaks."""


@dataclass(frozen=True)
class Work:
    """What is asked of every row.

    Args:
        specification: the rules.
        missing: what becomes of cells that are empty and were not allowed to be.
        limit: how many rows that do not obey are shown.
        keep_rows: whether to keep what became of every row.
        strips: whether to keep where in the table it is broken.
        whole: whether rows that do not obey are written out, with all of their columns.
    """

    specification: Specification
    missing: Missing
    limit: int
    keep_rows: bool
    strips: bool
    whole: bool


def empty_report(specification: Specification) -> TableReport:
    """The report of a table without rows or columns: nothing changes when it is added to another."""
    tally = Tally(specification, "pass", limit=0, keep_rows=False, strips=False)
    return _report(tally, (), (), (), limit=sys.maxsize, seconds=0.0)


def checked(
    work: Work,
    table: Table,
    chosen: dict[Variable, str],
    add: Add | None = None,
    progress: Progress | None = None,
    *,
    before: int = 0,
    start: int = 0,
) -> TableReport:
    """What became of one table.

    Args:
        work: what is asked of it.
        table: the table, or a piece of one.
        chosen: the column of every variable.
        add: takes rows that do not obey.
        progress: is called with the number of rows so far.
        before: rows of other tables before it.
        start: rows of its own table before it, if it is a piece.
    """
    begun = perf_counter()
    tally = Tally(
        work.specification,
        work.missing,
        limit=work.limit,
        keep_rows=work.keep_rows,
        strips=work.strips,
        start=before + start,
    )
    for chunk, frame in _chunks(table, chosen, tally, whole=work.whole, start=start):
        obeyed = tally.add(chunk)
        if add is not None:
            _write(add, table, frame, chunk, obeyed)
        if progress is not None:
            progress(before + tally.rows)
    ignored = [name for name in table.names if name not in chosen.values()]
    files = (FileReport(table.title, tally.rows),)
    seconds = perf_counter() - begun
    return _report(
        tally, files, chosen.items(), ignored, limit=work.limit, seconds=seconds
    )


def _report(
    tally: Tally,
    files: Any,
    columns: Any,
    ignored: Sequence[str],
    *,
    limit: int,
    seconds: float,
) -> TableReport:
    return TableReport(
        table=title_of(files),
        rows=tally.rows,
        obeying=tally.obeying,
        rules=tuple(tally.rules),
        domains=tuple(tally.domains),
        cells=tally.cell_reports(),
        assumptions=tuple(tally.assumptions),
        columns=tuple(columns),
        ignored=tuple(ignored),
        seconds=seconds,
        files=tuple(files),
        shown=tuple(tally.shown),
        strips=tally.strips,
        limit=limit,
        obeys=tally.kept.obeys() if tally.keep_rows else None,
        breaks=tally.kept.breaks() if tally.keep_rows else None,
    )


def _chunks(
    table: Table, chosen: dict[Variable, str], tally: Tally, *, whole: bool, start: int
) -> Iterator[tuple[Chunk, pl.DataFrame]]:
    """Rows of exact numbers, a chunk at a time, and the cells that they were read from (with ``whole`` all columns)."""
    position = {v: table.names.index(name) for v, name in chosen.items()}
    wanted = range(len(table.names)) if whole else dict.fromkeys(position.values())
    done = start
    for frame in table.frames(list(wanted) or [0]):
        for begin in range(0, frame.height, CHUNK):
            part = frame.slice(begin, CHUNK)
            cells = {v: part[str(p)] for v, p in position.items()}
            read = {v: cells_of(v, series) for v, series in cells.items()}
            chunk = tally.chunk(cells, read, part.height)
            _refuse_missing(table, chosen, chunk, done)
            yield chunk, part
            done += part.height


def _refuse_missing(
    table: Table, chosen: dict[Variable, str], chunk: Chunk, done: int
) -> None:
    if chunk.refused is None:
        return
    variable, row = chunk.refused
    name = chosen[variable]
    read_as = "" if is_named(variable, name) else f" (read as {variable.name})"
    raise TableError(
        f"{table.title}, row {done + row + 1}, column {name!r}{read_as}: the cell is empty; fill it in, drop the row, "
        "or let it be missing with `?` in the declaration or --missing pass (missing='pass')"
    )


def _write(
    add: Add, table: Table, frame: pl.DataFrame, chunk: Chunk, obeyed: Any
) -> None:
    """The rows of a chunk that do not obey."""
    broken = (~obeyed).nonzero()[0]
    if not len(broken):
        return
    rows = frame[broken]
    rows.columns = [table.names[int(name)] for name in rows.columns]
    add(rows, ["; ".join(chunk.broken_by(int(row))) for row in broken])
