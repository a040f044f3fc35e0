"""What became of a table: plain data, with the rows that break something.

Rows are counted from 1, without the header; where a table is made of several files, through all of them in order.

Reports add up: ``first + second`` is what a check of the first table followed by the second would have reported, and
brackets do not matter. So parts of a table can be checked anywhere.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate

import numpy as np

from multiplexnet.language.formula import Rule, Variable
from multiplexnet.tables.strips import Strips
from multiplexnet.verdicts.evaluation import Bools

__all__ = [
    "AssumptionReport",
    "CellReport",
    "DomainReport",
    "FileReport",
    "RowReport",
    "RuleReport",
    "TableReport",
    "title_of",
]


@dataclass(frozen=True)
class RuleReport:
    """What became of one rule.

    Args:
        rule: the rule.
        violations: how many rows break it.
        first_row: the first of them.
        largest: the largest violation, exactly; 0 where a strict comparison fails by nothing, infinite for ``False``.
    """

    rule: Rule
    violations: int = 0
    first_row: int | None = None
    largest: Fraction | float | None = None

    def then(self, later: RuleReport, rows: int) -> RuleReport:
        """Of this table and a later one, which begins after so many rows."""
        first = _first(self.first_row, later.first_row, rows)
        sizes = [size for size in (self.largest, later.largest) if size is not None]
        return RuleReport(
            self.rule,
            self.violations + later.violations,
            first,
            max(sizes, default=None),
        )


@dataclass(frozen=True)
class AssumptionReport:
    """How many rows break what is assumed of their inputs, and the first of them; they are judged by no rule."""

    rule: Rule
    violations: int = 0
    first_row: int | None = None

    def then(self, later: AssumptionReport, rows: int) -> AssumptionReport:
        """Of this table and a later one, which begins after so many rows."""
        first = _first(self.first_row, later.first_row, rows)
        return AssumptionReport(self.rule, self.violations + later.violations, first)


@dataclass(frozen=True)
class DomainReport:
    """How often a variable lies outside its declared domain, and the first row where it does."""

    variable: Variable
    violations: int = 0
    first_row: int | None = None

    def then(self, later: DomainReport, rows: int) -> DomainReport:
        """Of this table and a later one, which begins after so many rows."""
        first = _first(self.first_row, later.first_row, rows)
        return DomainReport(self.variable, self.violations + later.violations, first)


@dataclass(frozen=True)
class CellReport:
    """Cells of one column that could not be read for one reason.

    Args:
        variable: what was to be read from them.
        reason: ``"missing"``, or what they are.
        cells: how many.
        first_row: the first of them.
        example: what stands there; ``None`` if nothing does.
        fails: whether their rows fail because of them; a missing value that is allowed is only counted.
    """

    variable: Variable
    reason: str
    cells: int
    first_row: int
    example: str | None
    fails: bool


@dataclass(frozen=True)
class RowReport:
    """One row that does not obey.

    Args:
        row: its number.
        values: its cells by the names of the variables, as they stand there; ``None`` where nothing does.
        breaks: what it breaks, in words: rules as they were written, then domains and cells.
    """

    row: int
    values: dict[str, str | None]
    breaks: tuple[str, ...]


@dataclass(frozen=True)
class FileReport:
    """One of the files that a table is made of, and how many rows it has."""

    file: str
    rows: int


@dataclass(frozen=True)
class TableReport:
    """What became of a table. ``str(report)`` is for reading, ``report.to_json()`` for programs.

    Args:
        table: the path of the file, or «the table».
        rows: how many rows it has.
        obeying: how many of them obey everything.
        rules: one report a rule, in order.
        assumptions: one report for every assumption about inputs, in order.
        domains: one report for every variable with a domain (discrete, or an input with a range).
        cells: one report for every column and every reason why cells of it could not be read.
        columns: the column that each variable was read from.
        ignored: columns that no variable was read from.
        seconds: the time it took.
        files: the files that the table is made of, in order.
        shown: the first rows that do not obey, as many as were asked for.
        strips: where in the table it is broken, for a picture.
        limit: how many rows that do not obey are shown at most.
        obeys: whether each row obeys everything, of shape (rows,); the command line does not keep it.
        breaks: whether each row breaks each rule, of shape (rows, rules); the command line does not keep it.
    """

    table: str
    rows: int
    obeying: int
    rules: tuple[RuleReport, ...]
    domains: tuple[DomainReport, ...]
    cells: tuple[CellReport, ...]
    assumptions: tuple[AssumptionReport, ...]
    columns: tuple[tuple[Variable, str], ...]
    ignored: tuple[str, ...]
    seconds: float = field(compare=False)
    files: tuple[FileReport, ...] = ()
    shown: tuple[RowReport, ...] = ()
    strips: Strips | None = field(default=None, compare=False, repr=False)
    limit: int = field(default=10, compare=False)
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

    def __add__(self, later: TableReport) -> TableReport:
        """The report of this table and a later one together, by the same rules."""
        if [r.rule for r in self.rules] != [r.rule for r in later.rules]:
            raise ValueError(
                "these reports are about different rules: they do not add up"
            )
        pairs = zip(self.rules, later.rules, strict=True)
        assumed = zip(self.assumptions, later.assumptions, strict=True)
        domains = zip(self.domains, later.domains, strict=True)
        columns = tuple(dict.fromkeys([*self.columns, *later.columns]))
        used = {name for _, name in columns}
        ignored = dict.fromkeys([*self.ignored, *later.ignored])
        files = _joined_files([*self.files, *later.files])
        shown = [*self.shown, *(replace(r, row=r.row + self.rows) for r in later.shown)]
        limit = min(self.limit, later.limit)
        return TableReport(
            table=title_of(files),
            rows=self.rows + later.rows,
            obeying=self.obeying + later.obeying,
            rules=tuple(a.then(b, self.rows) for a, b in pairs),
            domains=tuple(a.then(b, self.rows) for a, b in domains),
            cells=_joined_cells(self.cells, later.cells, self.rows),
            assumptions=tuple(a.then(b, self.rows) for a, b in assumed),
            columns=columns,
            ignored=tuple(name for name in ignored if name not in used),
            seconds=self.seconds + later.seconds,
            files=files,
            shown=tuple(shown[:limit]),
            strips=_joined_strips(self.strips, later.strips),
            limit=limit,
            obeys=_joined_rows(self.obeys, later.obeys),
            breaks=_joined_rows(self.breaks, later.breaks),
        )

    def place(self, row: int) -> tuple[str, int]:
        """The file that a row stands in, and its number there."""
        ends = list(accumulate(part.rows for part in self.files))
        k = bisect_left(ends, row)
        before = ends[k - 1] if k else 0
        return self.files[k].file, row - before

    def __str__(self) -> str:
        from multiplexnet.reports.printing import plain_text
        from multiplexnet.reports.tables import check_text

        return plain_text(check_text(self))

    def to_json(self) -> str:
        """The report as one JSON document, as ``multiplexnet check --json`` prints it; exact numbers are texts."""
        from multiplexnet.reports.tables import check_json

        return json.dumps(check_json(self), ensure_ascii=False, allow_nan=False)


# --- adding up ------------------------------------------------------------------------------------------------------


def title_of(files: Sequence[FileReport]) -> str:
    """What a table is called that is made of these files."""
    return files[0].file if len(files) == 1 else f"{len(files)} files"


def _first(one: int | None, later: int | None, rows: int) -> int | None:
    if one is not None or later is None:
        return one
    return later + rows


def _joined_files(files: Iterable[FileReport]) -> tuple[FileReport, ...]:
    """Neighbours of one name are parts of one file."""
    found: list[FileReport] = []
    for file in files:
        if found and found[-1].file == file.file:
            file = FileReport(file.file, found.pop().rows + file.rows)
        found.append(file)
    return tuple(found)


def _joined_cells(
    one: Sequence[CellReport], later: Sequence[CellReport], rows: int
) -> tuple[CellReport, ...]:
    found = {(cell.variable, cell.reason): cell for cell in one}
    for cell in later:
        key = (cell.variable, cell.reason)
        before = found.get(key)
        if before is None:
            found[key] = replace(cell, first_row=cell.first_row + rows)
        else:
            found[key] = replace(before, cells=before.cells + cell.cells)
    return tuple(sorted(found.values(), key=lambda c: (c.variable.index, c.reason)))


def _joined_rows(one: Bools | None, later: Bools | None) -> Bools | None:
    if one is None or later is None:
        return one if later is None else later
    return np.concatenate([one, later])


def _joined_strips(one: Strips | None, later: Strips | None) -> Strips | None:
    if one is None or later is None:
        return one if later is None else later
    return one + later
