"""What became of a table: plain data, with the rows that break something.

Rows are counted from 1, without the header; where a table is made of several files, through all of them in order.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

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


@dataclass(frozen=True)
class AssumptionReport:
    """How many rows break what is assumed of their inputs, and the first of them; they are judged by no rule."""

    rule: Rule
    violations: int = 0
    first_row: int | None = None


@dataclass(frozen=True)
class DomainReport:
    """How often a variable lies outside its declared domain, and the first row where it does."""

    variable: Variable
    violations: int = 0
    first_row: int | None = None


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
