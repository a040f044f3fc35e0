"""Which rows of a table break which rules: files and tables in memory, in chunks, decided exactly from what they say.

In a CSV file ``0.1`` is one tenth. Elsewhere a double is the double it is, and a decimal column is exact.
A row *obeys* when every rule holds, every discrete value lies in its domain and every input in its declared range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Real, Rule, Specification, Variable, variables
from multiplexnet.rules import Rules
from multiplexnet.tables.decimals import BadCell, column
from multiplexnet.tables.files import Table, table_in_file
from multiplexnet.tables.objects import table_of
from multiplexnet.verdicts.columns import Column, to_float64
from multiplexnet.verdicts.evaluation import Bools, ExactRows, in_domain, largest_violation, truth

__all__ = ["DomainReport", "RuleReport", "TableReport", "check", "check_table"]

CHUNK = 1 << 16


# --- reports --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleReport:
    """What became of one rule.

    Args:
        rule: the rule.
        violations: how many rows break it.
        first_row: the first of them, counted from 1 without the header.
        largest: the largest violation, exactly; 0 where a strict comparison fails by nothing, infinite for ``False``.
    """

    rule: Rule
    violations: int = 0
    first_row: int | None = None
    largest: Fraction | float | None = None


@dataclass(frozen=True)
class DomainReport:
    """How often a variable lies outside its declared domain, and the first row (from 1) where it does."""

    variable: Variable
    violations: int = 0
    first_row: int | None = None


@dataclass(frozen=True)
class TableReport:
    """What became of a table. ``str(report)`` is for reading, ``report.to_json()`` for programs.

    Args:
        table: the path of the file, or «the table».
        rows: how many rows it has.
        obeying: how many of them obey everything.
        rules: one report a rule, in order.
        domains: one report for every variable with a domain (discrete, or an input with a range).
        columns: the column that each variable was read from.
        ignored: columns that no variable was read from.
        seconds: the time it took.
        obeys: whether each row obeys everything, of shape (rows,); the command line does not keep it.
        breaks: whether each row breaks each rule, of shape (rows, rules); the command line does not keep it.
    """

    table: str
    rows: int
    obeying: int
    rules: tuple[RuleReport, ...]
    domains: tuple[DomainReport, ...]
    columns: tuple[tuple[Variable, str], ...]
    ignored: tuple[str, ...]
    seconds: float = field(compare=False)
    obeys: Bools | None = field(default=None, compare=False, repr=False)
    breaks: Bools | None = field(default=None, compare=False, repr=False)

    @property
    def all_obey(self) -> bool:
        """Whether every row obeys."""
        return self.obeying == self.rows

    @property
    def counts(self) -> dict[str, int]:
        """For every rule, as it was written, how many rows break it."""
        return {report.rule.text: report.violations for report in self.rules}

    def __str__(self) -> str:
        from multiplexnet.reports.printing import plain_text
        from multiplexnet.reports.text import check_text

        return plain_text(check_text(self))

    def to_json(self) -> str:
        """The report as one JSON document, as ``multiplexnet check --json`` prints it; exact numbers are texts."""
        from multiplexnet.reports.text import check_json

        return json.dumps(check_json(self), ensure_ascii=False, allow_nan=False)


# --- checking -------------------------------------------------------------------------------------------------------


def check(
    rules: Rules,
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    by_position: bool = False,
    skip: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> TableReport:
    """Which rows of a table break which rules, exactly: no tolerance, and decimals are decimals.

    Columns are found by the variables' names; an element ``x[0]`` of a vector also as ``x_0`` or ``x0``. Columns of
    categories hold labels, those of Booleans true, false, 1 or 0.

    Args:
        rules: the rules.
        table: a polars, pandas or Arrow table; a mapping from names to columns; a structured array; an array or tensor
            of shape (N, C); or the path of a ``.csv`` or ``.parquet`` file.
        columns: the names of the C columns of an array; by default those of the outputs, then of the inputs.
        by_position: take columns in order instead of by name. Where all names end in a number (``y_0``, ``y_1``, …)
            that number is the position, otherwise the order of declaration.
        skip: columns to leave out of the table before that, such as a label.
        progress: is called with the number of rows checked so far.

    Returns:
        A report with ``obeys`` (a Boolean for every row), ``breaks`` (for every row and rule) and ``counts``.

    Raises:
        TableError: the table cannot be read, a column is missing, a cell is empty or not a number.

    Example:
        >>> import multiplexnet as mx
        >>> report = mx.check(mx.Rules("low <= high; low >= 0"), {"low": [1, 2, -1], "high": [2.5, 1.5, 3.5]})
        >>> report.obeys.tolist(), report.counts
        ([True, False, False], {'low <= high': 1, 'low >= 0': 1})
        >>> report.breaks.nonzero()
        (array([1, 2]), array([0, 1]))
    """
    names = columns or [v.name for v in (*rules.outputs, *rules.inputs)]
    return check_table(
        rules.specification,
        table_of(table, names),
        by_position=by_position,
        skip=skip,
        progress=progress,
        keep_rows=True,
    )


def check_table(
    specification: Specification,
    table: Table | Path,
    *,
    by_position: bool = False,
    skip: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
    keep_rows: bool = False,
) -> TableReport:
    """As :func:`check`; without ``keep_rows`` in the memory of one block, however long the file is."""
    start = perf_counter()
    if specification.functions:
        raise TableError(
            f"the rules call {specification.functions[0]}(…), and a table has no functions: "
            f"check such rules in Python, with rules.satisfied(…)"
        )
    if isinstance(table, Path):
        table = table_in_file(table)
    chosen = _matched(specification, table, by_position=by_position, skip=skip)
    tally = _Tally(specification, keep_rows=keep_rows)
    for rows in _chunks(table, chosen):
        tally.add(rows)
        if progress is not None:
            progress(tally.rows)
    return TableReport(
        table=table.title,
        rows=tally.rows,
        obeying=tally.obeying,
        rules=tuple(tally.rules),
        domains=tuple(tally.domains),
        columns=tuple(chosen.items()),
        ignored=tuple(name for name in table.names if name not in chosen.values()),
        seconds=perf_counter() - start,
        obeys=tally.kept.obeys() if keep_rows else None,
        breaks=tally.kept.breaks() if keep_rows else None,
    )


class _Kept:
    """What became of every row, a chunk at a time."""

    def __init__(self, rules: int) -> None:
        self._obeys: list[Bools] = [np.zeros(0, dtype=np.bool_)]
        self._breaks: list[Bools] = [np.zeros((0, rules), dtype=np.bool_)]

    def add(self, obeys: Bools, holds: Sequence[Bools]) -> None:
        self._obeys.append(obeys)
        if holds:
            self._breaks.append(~np.stack(holds, axis=1))
        else:
            self._breaks.append(np.zeros((len(obeys), 0), dtype=np.bool_))

    def obeys(self) -> Bools:
        return np.concatenate(self._obeys)

    def breaks(self) -> Bools:
        return np.concatenate(self._breaks)


class _Tally:
    """The counts so far."""

    def __init__(self, specification: Specification, *, keep_rows: bool) -> None:
        self.rows = 0
        self.obeying = 0
        self.keep_rows = keep_rows
        self.kept = _Kept(len(specification.rules))
        self.rules = [RuleReport(rule) for rule in specification.rules]
        self.domains = [DomainReport(v) for v in specification.variables if _has_domain(v)]

    def add(self, rows: ExactRows) -> None:
        obeyed = np.ones(rows.length, dtype=np.bool_)
        for k, domain in enumerate(self.domains):
            inside = in_domain(domain.variable, rows, ranges=True)
            obeyed &= inside
            self.domains[k] = self._with_domain(domain, inside)
        verdicts = []
        for k, report in enumerate(self.rules):
            holds = truth(report.rule.formula, rows)
            obeyed &= holds
            verdicts.append(holds)
            self.rules[k] = self._with_rule(report, holds, rows)
        if self.keep_rows:
            self.kept.add(obeyed, verdicts)
        self.rows += rows.length
        self.obeying += int(obeyed.sum())

    def _with_domain(self, report: DomainReport, inside: Bools) -> DomainReport:
        outside = np.flatnonzero(~inside)
        if not len(outside):
            return report
        first = report.first_row or self.rows + int(outside[0]) + 1
        return DomainReport(report.variable, report.violations + len(outside), first)

    def _with_rule(self, report: RuleReport, holds: Bools, rows: ExactRows) -> RuleReport:
        violating = np.flatnonzero(~holds)
        if not len(violating):
            return report
        first = report.first_row or self.rows + int(violating[0]) + 1
        before = Fraction(0) if report.largest is None else report.largest
        floor = np.nextafter(to_float64(before), 0)  # at most the exact one
        largest = max(before, largest_violation(report.rule.formula, rows, violating, float(floor)))
        return RuleReport(report.rule, report.violations + len(violating), first, largest)


def _has_domain(variable: Variable) -> bool:
    domain = variable.domain
    return not isinstance(domain, Real) or (
        variable.is_input and (domain.lower, domain.upper) != (None, None)
    )


# --- columns --------------------------------------------------------------------------------------------------------


def _matched(
    specification: Specification, table: Table, *, by_position: bool, skip: Sequence[str]
) -> dict[Variable, str]:
    """The column of every variable that matters."""
    if unknown := [name for name in skip if name not in table.names]:
        raise TableError(
            f"{table.title}: there is no column {unknown[0]!r} to skip{_nearest_name(unknown[0], table.names)}"
        )
    names = [name for name in table.names if name not in skip]
    if by_position:  # all of them, so that text in a number column shows a column too many
        return _in_order(specification, names, table)
    mentioned = set(variables(specification.formula))
    found = {}
    missing = []
    for variable in specification.variables:
        if variable not in mentioned and not _has_domain(variable):
            continue
        spellings = [name for name in _spellings(variable.name) if name in names]
        if spellings:
            found[variable] = spellings[0]
        else:
            missing.append(variable.name)
    if missing:
        raise TableError(_missing(missing, names, table, nothing_found=not found))
    return found


def _spellings(name: str) -> list[str]:
    element = re.fullmatch(r"(\w+)\[(\d+)\]", name)
    if element is None:
        return [name]
    vector, number = element.groups()
    return [name, f"{vector}_{number}", f"{vector}{number}"]


def _in_order(specification: Specification, names: list[str], table: Table) -> dict[Variable, str]:
    declared = specification.variables
    numbers = [re.search(r"(\d+)\]?$", v.name) for v in declared]
    positions = [int(n[1]) for n in numbers if n]
    if len(set(positions)) < len(declared):
        positions = list(range(len(declared)))
    last = max(positions, default=-1)
    if last >= len(names):
        variable = declared[positions.index(last)]
        raise TableError(
            f"{table.title} has {len(names)} columns, and by position the rules need {last + 1} "
            f"({variable.name} would be the last)"
        )
    return {v: names[p] for v, p in zip(declared, positions, strict=True)}


def _missing(missing: list[str], names: list[str], table: Table, *, nothing_found: bool) -> str:
    one = len(missing) == 1
    listed = ", ".join(repr(name) + _nearest_name(name, names) for name in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    text = f"{table.title} has no column{'' if one else 's'} {listed}{more}. Its columns: {_some(names)}."
    if len(names) == 1 and (separator := re.search(r"[;\t|]", names[0])):
        return f"{text} Cells seem to be separated by {separator[0]!r}: commas are expected."
    if nothing_found:
        return f"{text} Rename them, or take them in order with --by-position (by_position=True)."
    return text


def _nearest_name(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


# --- rows -----------------------------------------------------------------------------------------------------------


def _chunks(table: Table, chosen: dict[Variable, str]) -> Iterator[ExactRows]:
    """Rows of exact numbers, a chunk at a time."""
    position = {v: table.names.index(name) for v, name in chosen.items()}
    done = 0
    distinct = list(dict.fromkeys(position.values()))
    for frame in table.frames(distinct or [0]):
        for start in range(0, frame.height, CHUNK):
            part = frame.slice(start, CHUNK)
            columns = {}
            for variable, p in position.items():
                columns[variable] = _column(table, variable, part[str(p)], done)
            yield ExactRows(columns, length=part.height)
            done += part.height


def _column(table: Table, variable: Variable, cells: pl.Series, done: int) -> Column:
    try:
        return column(variable, cells)
    except BadCell as bad:
        name = table.names[int(cells.name)]
        other = (
            ""
            if name in _spellings(variable.name)
            else f" (read as {variable.name}; --skip (skip=…) leaves a column out)"
        )
        raise TableError(
            f"{table.title}, row {done + bad.row + 1}, column {name!r}{other}: {bad.reason}"
        ) from None
