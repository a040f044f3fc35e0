"""Which rows of a table break which rules: files and tables in memory, in chunks, decided exactly from what they say.

In a CSV file ``0.1`` is one tenth. Elsewhere a double is the double it is, and a decimal column is exact.
A row *obeys* when every rule holds, every discrete value lies in its domain, every input in its declared range, every
assumption about inputs is kept, and every cell can be read. A row that breaks an assumption is judged by no rule.
A rule that needs a cell without a value is unknown, and unknown does not fail
(:mod:`multiplexnet.language.missing`): the cell is counted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Specification, Variable
from multiplexnet.rules import Rules
from multiplexnet.tables.cells import cells_of
from multiplexnet.tables.files import files_named, table_in_file
from multiplexnet.tables.matching import is_named, matched
from multiplexnet.tables.objects import tables_of
from multiplexnet.tables.output import Output, output_file
from multiplexnet.tables.report import FileReport, TableReport
from multiplexnet.tables.table import Table
from multiplexnet.tables.tally import Chunk, Missing, Tally

__all__ = ["check", "check_table"]

CHUNK = 1 << 16
SHOWN = 10
"""Rows that a report shows unless told otherwise."""


def check(
    rules: Rules,
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    by_position: bool = False,
    skip: Sequence[str] = (),
    missing: Missing = "fail",
    delimiter: str | None = None,
    name: str | None = None,
    limit: int = SHOWN,
    output: str | Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> TableReport:
    """Which rows of a table break which rules, exactly: no tolerance, and decimals are decimals.

    Columns are found by the variables' names; an element ``x[0]`` of a vector also as ``x_0`` or ``x0``. Columns of
    categories hold labels, those of Booleans true and false, yes and no, t and f, 1 and 0.

    Args:
        rules: the rules.
        table: a polars, pandas or Arrow table; a mapping from names to columns; a structured array; an array or tensor
            of shape (N, C); or the path of a ``.csv``, ``.tsv``, ``.csv.gz``, ``.parquet``, ``.arrow``, ``.feather``,
            ``.duckdb`` or ``.sqlite`` file, a pattern such as ``"2024/*.csv"``, or a list of these, which are one
            table together.
        columns: the names of the C columns of an array; by default those of the outputs, then of the inputs.
        by_position: take columns in order instead of by name. Where all names end in a number (``y_0``, ``y_1``, …)
            that number is the position, otherwise the order of declaration.
        skip: columns to leave out of the table before that, such as a label.
        missing: what an empty cell means where the column was not declared with ``?``: its row fails (``"fail"``),
            rules that need it are unknown and the row may pass (``"pass"``), or the table is refused (``"error"``).
        delimiter: what separates the cells of a CSV file; by default it is found by itself.
        name: the name of the table in a ``.duckdb`` or ``.sqlite`` file; by default the only one.
        limit: how many rows that do not obey the report shows.
        output: a ``.csv`` or ``.parquet`` file for all rows that do not obey, with a column that says why.
        progress: is called with the number of rows checked so far.

    Returns:
        A report with ``obeys`` (a Boolean for every row), ``breaks`` (for every row and rule) and ``counts``.

    Raises:
        TableError: the table cannot be read, or a column is missing.

    Example:
        >>> import multiplexnet as mx
        >>> report = mx.check(mx.Rules("low <= high; low >= 0"), {"low": [1, 2, -1], "high": [2.5, 1.5, 3.5]})
        >>> report.obeys.tolist(), report.counts
        ([True, False, False], {'low <= high': 1, 'low >= 0': 1})
        >>> report.breaks.nonzero()
        (array([1, 2]), array([0, 1]))
        >>> [(row.row, row.breaks) for row in report.shown]
        [(2, ('low <= high',)), (3, ('low >= 0',))]
    """
    names = columns or [v.name for v in (*rules.outputs, *rules.inputs)]
    return check_table(
        rules.specification,
        tables_of(table, names, delimiter, name),
        by_position=by_position,
        skip=skip,
        missing=missing,
        limit=limit,
        output=None if output is None else Path(output),
        progress=progress,
        keep_rows=True,
    )


def check_table(
    specification: Specification,
    table: Table | Path | Sequence[Table],
    *,
    by_position: bool = False,
    skip: Sequence[str] = (),
    missing: Missing = "fail",
    limit: int = SHOWN,
    output: Path | None = None,
    progress: Callable[[int], None] | None = None,
    keep_rows: bool = False,
    strips: bool = False,
) -> TableReport:
    """As :func:`check`; without ``keep_rows`` in the memory of one block, however long the file is.

    With ``strips`` the report says where in the table it is broken, for a picture.
    """
    start = perf_counter()
    if specification.functions:
        raise TableError(
            f"the rules call {specification.functions[0]}(…), and a table has no functions: "
            f"check such rules in Python, with rules.satisfied(…)"
        )
    if missing not in ("error", "pass", "fail"):
        raise TableError(f"missing = {missing!r}: it is 'error', 'pass' or 'fail'")
    if isinstance(table, Path):
        table = [table_in_file(path) for path in files_named([table])]
    tables = [table] if isinstance(table, Table) else list(table)
    chosen = [matched(specification, t, by_position=by_position, skip=skip) for t in tables]
    names = list(dict.fromkeys(name for t in tables for name in t.names))
    _refuse_overwriting(output, tables)
    tally = Tally(specification, missing, limit=limit, keep_rows=keep_rows, strips=strips)
    files = []
    with output_file(output, names) as written:
        for one, own in zip(tables, chosen, strict=True):
            before = tally.rows
            for chunk, frame in _chunks(one, own, tally, whole=output is not None):
                obeyed = tally.add(chunk)
                if written is not None:
                    _write(written, one, frame, chunk, obeyed)
                if progress is not None:
                    progress(tally.rows)
            files.append(FileReport(one.title, tally.rows - before))
    used = {name for own in chosen for name in own.values()}
    return TableReport(
        table=tables[0].title if len(tables) == 1 else f"{len(tables)} files",
        rows=tally.rows,
        obeying=tally.obeying,
        rules=tuple(tally.rules),
        domains=tuple(tally.domains),
        cells=tally.cell_reports(),
        assumptions=tuple(tally.assumptions),
        columns=tuple(chosen[0].items()),
        ignored=tuple(name for name in names if name not in used),
        seconds=perf_counter() - start,
        files=tuple(files),
        shown=tuple(tally.shown),
        strips=tally.strips,
        obeys=tally.kept.obeys() if keep_rows else None,
        breaks=tally.kept.breaks() if keep_rows else None,
    )


def _refuse_overwriting(output: Path | None, tables: Sequence[Table]) -> None:
    if output is None or not output.exists():
        return
    for table in tables:
        path = Path(table.title)
        if path.exists() and path.samefile(output):
            raise TableError(f"{output} is the table that is read: write the rows to another file")


def _chunks(
    table: Table, chosen: dict[Variable, str], tally: Tally, *, whole: bool
) -> Iterator[tuple[Chunk, pl.DataFrame]]:
    """Rows of exact numbers, a chunk at a time, and the cells that they were read from (with ``whole`` all columns)."""
    position = {v: table.names.index(name) for v, name in chosen.items()}
    wanted = range(len(table.names)) if whole else dict.fromkeys(position.values())
    done = 0
    for frame in table.frames(list(wanted) or [0]):
        for start in range(0, frame.height, CHUNK):
            part = frame.slice(start, CHUNK)
            cells = {v: part[str(p)] for v, p in position.items()}
            read = {v: cells_of(v, series) for v, series in cells.items()}
            chunk = tally.chunk(cells, read, part.height)
            _refuse_missing(table, chosen, chunk, done)
            yield chunk, part
            done += part.height


def _refuse_missing(table: Table, chosen: dict[Variable, str], chunk: Chunk, done: int) -> None:
    if chunk.refused is None:
        return
    variable, row = chunk.refused
    name = chosen[variable]
    read_as = "" if is_named(variable, name) else f" (read as {variable.name})"
    raise TableError(
        f"{table.title}, row {done + row + 1}, column {name!r}{read_as}: the cell is empty; fill it in, drop the row, "
        "or let it be missing with `?` in the declaration or --missing pass (missing='pass')"
    )


def _write(output: Output, table: Table, frame: pl.DataFrame, chunk: Chunk, obeyed: Any) -> None:
    """The rows of a chunk that do not obey."""
    broken = (~obeyed).nonzero()[0]
    if not len(broken):
        return
    rows = frame[broken]
    rows.columns = [table.names[int(name)] for name in rows.columns]
    output.add(rows, ["; ".join(chunk.broken_by(int(row))) for row in broken])
