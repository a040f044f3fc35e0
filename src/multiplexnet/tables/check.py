"""Which rows of a table break which rules: files and tables in memory, in chunks, decided exactly from what they say.

In a CSV file ``0.1`` is one tenth. Elsewhere a double is the double it is, and a decimal column is exact.
A row *obeys* when every rule holds, every discrete value lies in its domain, every input in its declared range, every
assumption about inputs is kept, and every cell can be read. A row that breaks an assumption is judged by no rule.
A rule that needs a cell without a value is unknown, and unknown does not fail
(:mod:`multiplexnet.language.missing`): the cell is counted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from multiplexnet.arguments import (
    names_given,
    refuse_bad_count,
    refuse_bad_path,
    refuse_no_function,
    refuse_no_truth,
    refuse_unknown,
)
from multiplexnet.errors import TableError
from multiplexnet.language.formula import Specification, Variable
from multiplexnet.rules import Rules, rules_of
from multiplexnet.tables.matching import matched
from multiplexnet.tables.output import Output, output_file
from multiplexnet.tables.parallel import Run, run_of, tasks_of
from multiplexnet.tables.report import TableReport
from multiplexnet.tables.sources.files import files_named, table_in_file
from multiplexnet.tables.sources.objects import tables_of
from multiplexnet.tables.sources.table import Table
from multiplexnet.tables.tally import Missing
from multiplexnet.tables.work import Progress, Work, checked, empty_report

__all__ = ["CheckOptions", "check", "check_table"]

SHOWN = 10
"""Rows that a report shows unless told otherwise."""


@dataclass(frozen=True)
class CheckOptions:
    """How a table is checked; :func:`check` explains all but the last two.

    Args:
        by_position: whether columns are taken in order; ``None``: they are not, and messages do not advise it to people
            who have no such option.
        skip: columns to leave out.
        missing: what an empty cell means.
        limit: how many rows are shown.
        output: a file for all rows that do not obey.
        progress: is called with the number of rows so far.
        jobs: in how many processes.
        dask: the address of a scheduler.
        keep_rows: whether to keep what became of every row; without it a file is read in the memory of one block.
        strips: whether the report says where in the table it is broken, for a picture.

    Raises:
        OptionError: one of them is of another kind.
    """

    by_position: bool | None = False
    skip: Sequence[str] = ()
    missing: Missing = "fail"
    limit: int = SHOWN
    output: Path | None = None
    progress: Progress | None = None
    jobs: int = 1
    dask: str | None = None
    keep_rows: bool = False
    strips: bool = False

    def __post_init__(self) -> None:
        if self.by_position is not None:
            refuse_no_truth("by_position", self.by_position)
        refuse_unknown("missing", self.missing, ("error", "pass", "fail"))
        refuse_bad_count("limit", self.limit, 0, "rows to show")
        refuse_bad_path("output", self.output)
        refuse_no_function("progress", self.progress, "the number of rows so far")


def check(
    rules: Rules | str | Sequence[str],
    table: Any,
    *,
    columns: str | Sequence[str] | None = None,
    by_position: bool = False,
    skip: str | Sequence[str] = (),
    missing: Missing = "fail",
    delimiter: str | None = None,
    name: str | None = None,
    limit: int = SHOWN,
    output: str | Path | None = None,
    jobs: int = 1,
    dask: str | None = None,
    progress: Progress | None = None,
) -> TableReport:
    """Which rows of a table break which rules, exactly: no tolerance, and decimals are decimals.

    Columns are found by the variables' names; an element ``x[0]`` of a vector also as ``x_0`` or ``x0``. Columns of
    categories hold labels, those of Booleans true and false, yes and no, t and f, 1 and 0. A float is the double it is;
    only beside ``Decimal`` values in one list it is the decimal that Python prints for it.

    Args:
        rules: the rules, or their text.
        table: a polars, pandas or Arrow table; a mapping from names to columns; a structured array; an array or tensor
            of shape (N, C); or the path of a ``.csv``, ``.tsv``, ``.csv.gz``, ``.parquet``, ``.arrow``, ``.feather``,
            ``.duckdb`` or ``.sqlite`` file, a pattern such as ``"2024/*.csv"``, or a list of these, which are one
            table together.
        columns: the names of the C columns of an array; by default those of the outputs, then of the inputs.
        by_position: take columns in order instead of by name. Where all names end in a number (``y_0``, ``y_1``, …)
            that number is the position, otherwise the order of declaration.
        skip: columns to leave out of the table before that, such as a label; or one.
        missing: what an empty cell means where the column was not declared with ``?``: its row fails (``"fail"``),
            rules that need it are unknown and the row may pass (``"pass"``), or the table is refused (``"error"``).
        delimiter: what separates the cells of a CSV file; by default it is found by itself.
        name: the name of the table in a ``.duckdb`` or ``.sqlite`` file; by default the only one.
        limit: how many rows that do not obey the report shows.
        output: a ``.csv`` or ``.parquet`` file for all rows that do not obey, with a column that says why.
        jobs: in how many processes to check; their partial reports add up to the same report.
        dask: the address of a Dask scheduler whose workers check, such as ``"tcp://10.0.0.1:8786"``, or ``"local"`` for
            a cluster on this machine with ``jobs`` workers (at least two). Files have to be where workers find them.
        progress: is called with the number of rows checked so far.

    Returns:
        A report with ``obeys`` (a Boolean for every row), ``breaks`` (for every row and rule) and ``counts``.

    Raises:
        TableError: the table cannot be read, or a column is missing.
        OptionError: an argument of another kind.

    Example:
        >>> import multiplexnet as mx
        >>> report = mx.check("low <= high; low >= 0", {"low": [1, 2, -1], "high": [2.5, 1.5, 3.5]})
        >>> report.obeys.tolist(), report.counts
        ([True, False, False], {'low <= high': 1, 'low >= 0': 1})
        >>> report.breaks.nonzero()
        (array([1, 2]), array([0, 1]))
        >>> [(row.row, row.breaks) for row in report.shown]
        [(2, ('low <= high',)), (3, ('low >= 0',))]
    """
    asked = rules_of(rules)
    refuse_bad_path("output", output)
    refuse_no_truth("by_position", by_position)
    declared = [v.name for v in (*asked.outputs, *asked.inputs)]
    names = declared if columns is None else names_given("columns", columns)
    options = CheckOptions(
        by_position=by_position,
        skip=names_given("skip", skip),
        missing=missing,
        limit=limit,
        output=None if output is None else Path(output),
        progress=progress,
        jobs=jobs,
        dask=dask,
        keep_rows=True,
    )
    tables = tables_of(table, names, delimiter, name)
    return check_table(asked.specification, tables, options)


def check_table(
    specification: Specification,
    table: Table | Path | Sequence[Table],
    options: CheckOptions = CheckOptions(),  # noqa: B008 (it is frozen)
) -> TableReport:
    """As :func:`check`, for tables that are open already."""
    start = perf_counter()
    run = run_of(options.jobs, options.dask)
    if specification.functions:
        raise TableError(
            f"the rules call {specification.functions[0]}(…), and a table has no functions: "
            f"check such rules in Python, with rules.satisfied(…)"
        )
    if isinstance(table, Path):
        table = [table_in_file(path) for path in files_named([table])]
    tables = [table] if isinstance(table, Table) else list(table)
    chosen = [
        matched(specification, t, by_position=options.by_position, skip=options.skip)
        for t in tables
    ]
    names = list(dict.fromkeys(name for t in tables for name in t.names))
    _refuse_overwriting(options.output, tables)
    work = Work(
        specification,
        options.missing,
        options.limit,
        options.keep_rows,
        options.strips,
        whole=options.output is not None,
    )
    with output_file(options.output, names) as written:
        if run is None:
            report = _here(work, tables, chosen, written, options.progress)
        else:
            report = _elsewhere(run, work, tables, chosen, written, options.progress)
    return replace(report, seconds=perf_counter() - start)


def _here(
    work: Work,
    tables: Sequence[Table],
    chosen: Sequence[dict[Variable, str]],
    written: Output | None,
    progress: Progress | None,
) -> TableReport:
    """One table after the other, in this process."""
    total = empty_report(work.specification)
    for table, own in zip(tables, chosen, strict=True):
        add = None if written is None else written.add
        total += checked(work, table, own, add, progress, before=total.rows)
    return total


def _elsewhere(
    run: Run,
    work: Work,
    tables: Sequence[Table],
    chosen: Sequence[dict[Variable, str]],
    written: Output | None,
    progress: Progress | None,
) -> TableReport:
    """Pieces of the tables in other processes; their reports are added up in order."""
    total = empty_report(work.specification)
    for part in run(tasks_of(work, tables, chosen)):
        total += part.report
        for frame, breaks in part.violating:
            assert written is not None
            written.add(frame, breaks)
        if progress is not None:
            progress(total.rows)
    return total


def _refuse_overwriting(output: Path | None, tables: Sequence[Table]) -> None:
    if output is None or not output.exists():
        return
    for table in tables:
        path = Path(table.title)
        if path.exists() and path.samefile(output):
            raise TableError(
                f"{output} is the table that is read: write the rows to another file"
            )
