"""Which rows of a table break which rules: CSV and Parquet, read in chunks, decided exactly from what the file says.

In a CSV file ``0.1`` is one tenth. In a Parquet file a double is the double it is, and a decimal column is exact.
A row *obeys* when every rule holds, every discrete value lies in its domain and every input in its declared range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Real, Rule, Specification, Variable, variables
from multiplexnet.tools.decimals import BadCell, column
from multiplexnet.tools.table_files import TableFile
from multiplexnet.verdicts.columns import Column, nearest
from multiplexnet.verdicts.evaluation import Bools, ExactRows, in_domain, largest_violation, truth

__all__ = ["DomainReport", "RuleReport", "TableReport", "check_table"]

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
    """What became of a table.

    Args:
        path: the file.
        rows: how many rows it has.
        obeying: how many of them obey everything.
        rules: one report a rule, in order.
        domains: one report for every variable with a domain (discrete, or an input with a range).
        columns: the column that each variable was read from.
        ignored: columns that no variable was read from.
        seconds: the time it took.
    """

    path: str
    rows: int
    obeying: int
    rules: tuple[RuleReport, ...]
    domains: tuple[DomainReport, ...]
    columns: tuple[tuple[Variable, str], ...]
    ignored: tuple[str, ...]
    seconds: float = field(compare=False)

    @property
    def all_obey(self) -> bool:
        return self.obeying == self.rows


# --- checking -------------------------------------------------------------------------------------------------------


def check_table(
    specification: Specification,
    path: str | Path,
    *,
    by_position: bool = False,
    skip: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> TableReport:
    """Check every row of a CSV or Parquet file against the rules, exactly.

    Columns are found by the variables' names; an element ``x[0]`` of a vector also as ``x_0`` or ``x0``. Columns of
    categories hold labels, those of Booleans true, false, 1 or 0.

    Args:
        specification: the rules.
        path: a file that ends in ``.csv`` or ``.parquet``.
        by_position: take columns in order instead of by name. Where all names end in a number (``y_0``, ``y_1``, …)
            that number is the position, otherwise the order of declaration.
        skip: columns to leave out of the table before that, such as a label.
        progress: is called with the number of rows checked so far.

    Raises:
        TableError: the file cannot be read, a column is missing, a cell is empty or not a number.
    """
    start = perf_counter()
    if specification.functions:
        raise TableError(
            f"the rules call {specification.functions[0]}(…), and a table has no functions: "
            f"check such rules in Python, with rules.satisfied(…)"
        )
    table = TableFile.open(Path(path))
    chosen = _matched(specification, table, by_position=by_position, skip=skip)
    tally = _Tally(specification)
    for rows in _chunks(table, chosen):
        tally.add(rows)
        if progress is not None:
            progress(tally.rows)
    return TableReport(
        path=str(path),
        rows=tally.rows,
        obeying=tally.obeying,
        rules=tuple(tally.rules),
        domains=tuple(tally.domains),
        columns=tuple(chosen.items()),
        ignored=tuple(name for name in table.names if name not in chosen.values()),
        seconds=perf_counter() - start,
    )


class _Tally:
    """The counts so far."""

    def __init__(self, specification: Specification) -> None:
        self.rows = self.obeying = 0
        self.rules = [RuleReport(rule) for rule in specification.rules]
        self.domains = [DomainReport(v) for v in specification.variables if _has_domain(v)]

    def add(self, rows: ExactRows) -> None:
        obeyed = np.ones(rows.length, dtype=np.bool_)
        for k, domain in enumerate(self.domains):
            inside = in_domain(domain.variable, rows, ranges=True)
            obeyed &= inside
            self.domains[k] = self._with_domain(domain, inside)
        for k, report in enumerate(self.rules):
            holds = truth(report.rule.formula, rows)
            obeyed &= holds
            self.rules[k] = self._with_rule(report, holds, rows)
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
        floor = np.nextafter(nearest(before), 0)  # at most the exact one
        largest = max(before, largest_violation(report.rule.formula, rows, violating, float(floor)))
        return RuleReport(report.rule, report.violations + len(violating), first, largest)


def _has_domain(variable: Variable) -> bool:
    domain = variable.domain
    return not isinstance(domain, Real) or (
        variable.is_input and (domain.lower, domain.upper) != (None, None)
    )


# --- columns --------------------------------------------------------------------------------------------------------


def _matched(
    specification: Specification, table: TableFile, *, by_position: bool, skip: Sequence[str]
) -> dict[Variable, str]:
    """The column of every variable that matters."""
    if unknown := [name for name in skip if name not in table.names]:
        raise TableError(
            f"{table.path}: there is no column {unknown[0]!r} to skip{_nearest_name(unknown[0], table.names)}"
        )
    names = [name for name in table.names if name not in skip]
    used = set(variables(specification.formula)) | {
        v for v in specification.variables if _has_domain(v)
    }
    if by_position:  # all of them, so that text in a number column shows a column too many
        return _in_order(specification, names, table)
    found = {
        v: next((a for a in _spellings(v.name) if a in names), None)
        for v in specification.variables
        if v in used
    }
    if missing := [v.name for v, name in found.items() if name is None]:
        raise TableError(_missing(missing, names, table, nothing_found=len(missing) == len(found)))
    return {v: name for v, name in found.items() if name is not None}


def _spellings(name: str) -> list[str]:
    element = re.fullmatch(r"(\w+)\[(\d+)\]", name)
    return [name, f"{element[1]}_{element[2]}", f"{element[1]}{element[2]}"] if element else [name]


def _in_order(
    specification: Specification, names: list[str], table: TableFile
) -> dict[Variable, str]:
    declared = specification.variables
    numbers = [re.search(r"(\d+)\]?$", v.name) for v in declared]
    positions = [int(n[1]) for n in numbers if n]
    if len(set(positions)) < len(declared):
        positions = list(range(len(declared)))
    if max(positions, default=-1) >= len(names):
        raise TableError(
            f"{table.path} has {len(names)} columns, and by position the rules need {max(positions) + 1} "
            f"({declared[positions.index(max(positions))].name} would be the last)"
        )
    return {v: names[p] for v, p in zip(declared, positions, strict=True)}


def _missing(missing: list[str], names: list[str], table: TableFile, *, nothing_found: bool) -> str:
    one = len(missing) == 1
    listed = ", ".join(repr(name) + _nearest_name(name, names) for name in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    text = f"{table.path} has no column{'' if one else 's'} {listed}{more}. Its columns: {_some(names)}."
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


def _chunks(table: TableFile, chosen: dict[Variable, str]) -> Iterator[ExactRows]:
    """Rows of exact numbers, a chunk at a time."""
    position = {v: table.names.index(name) for v, name in chosen.items()}
    done = 0
    for frame in table.frames(list(dict.fromkeys(position.values())) or [0]):
        for start in range(0, frame.height, CHUNK):
            part = frame.slice(start, CHUNK)
            columns = {v: _column(table, v, part[str(p)], done) for v, p in position.items()}
            yield ExactRows(columns, length=part.height)
            done += part.height


def _column(table: TableFile, variable: Variable, cells: pl.Series, done: int) -> Column:
    try:
        return column(variable, cells)
    except BadCell as bad:
        name = table.names[int(cells.name)]
        other = (
            ""
            if name in _spellings(variable.name)
            else f" (read as {variable.name}; --skip leaves a column out)"
        )
        raise TableError(
            f"{table.path}, row {done + bad.row + 1}, column {name!r}{other}: {bad.reason}"
        ) from None
