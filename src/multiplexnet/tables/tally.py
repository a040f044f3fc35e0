"""The counts of a check: what became of every rule, domain and cell, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.language.formula import (
    Formula,
    Specification,
    Variable,
    nearest_to_zero,
    variables,
)
from multiplexnet.language.missing import flag_of, possible
from multiplexnet.language.text import domain_text
from multiplexnet.tables.cells import MISSING, NAN, Cells
from multiplexnet.tables.matching import has_domain
from multiplexnet.tables.report import (
    AssumptionReport,
    CellReport,
    DomainReport,
    RowReport,
    RuleReport,
)
from multiplexnet.tables.strips import Strips
from multiplexnet.verdicts.columns import Column, to_float64
from multiplexnet.verdicts.evaluation import (
    Bools,
    ExactRows,
    in_domain,
    largest_violation,
    truth,
)

__all__ = ["Chunk", "Missing", "Tally"]

Missing = Literal["error", "pass", "fail"]
Rows = NDArray[np.intp]


@dataclass
class Chunk:
    """Some rows of a table.

    Args:
        rows: their exact numbers.
        cells: what they were read from.
        unread: for every variable with cells that could not be read the reasons, each with its rows.
        refused: the first cell that is missing and must not be, if there is one: its variable and row.
        findings: what is broken, in words, and in which rows; filled while rules are decided.
    """

    rows: ExactRows
    cells: Mapping[Variable, pl.Series]
    unread: Mapping[Variable, Mapping[str, Rows]]
    refused: tuple[Variable, int] | None = None
    findings: list[tuple[str, Bools]] = field(default_factory=list)

    def broken_by(self, row: int) -> tuple[str, ...]:
        """What a row breaks, in words."""
        return tuple(text for text, shows in self.findings if shows[row])

    def values(self, row: int) -> dict[str, str | None]:
        """The cells of a row as they stand there."""
        return {v.name: _text(cells, row) for v, cells in self.cells.items()}


class Tally:
    """The counts so far.

    Args:
        specification: the rules.
        missing: what becomes of cells that are empty and were not allowed to be.
        limit: how many rows that do not obey are kept to be shown.
        keep_rows: whether to keep what became of every row.
        strips: whether to keep where in the table it is broken.
        start: how many rows come before the first one, for that.
    """

    def __init__(
        self,
        specification: Specification,
        missing: Missing,
        *,
        limit: int,
        keep_rows: bool,
        strips: bool,
        start: int = 0,
    ) -> None:
        self.start = start
        self.rows = 0
        self.obeying = 0
        self.missing = missing
        self.limit = limit
        self.keep_rows = keep_rows
        self.flags = specification.flags
        self.kept = RowVerdicts(len(specification.rules))
        self.strips = Strips() if strips else None
        self.shown: list[RowReport] = []
        self.rules = [RuleReport(rule) for rule in specification.rules]
        self.assumptions = [
            AssumptionReport(rule) for rule in specification.assumptions
        ]
        self.domains = [
            DomainReport(v)
            for v in specification.variables
            if has_domain(v) and not v.is_flag
        ]
        self.cells: dict[tuple[Variable, str], CellReport] = {}
        self._guarded: dict[tuple[int, frozenset[Variable]], Formula] = {}

    def chunk(
        self,
        cells: Mapping[Variable, pl.Series],
        read: Mapping[Variable, Cells],
        length: int,
    ) -> Chunk:
        """Cells that have been read, ready to be added."""
        unread = {
            v: self._reasons(v, own.unread) for v, own in read.items() if own.unread
        }
        columns = {v: own.column for v, own in read.items()}
        for variable in (v for v in columns if v in self.flags):
            rows = _all_rows(unread.get(variable, {}))
            if len(rows):
                columns[variable] = columns[variable].with_number(
                    nearest_to_zero(variable.domain), rows
                )
        for variable, flag in self.flags.items():
            if variable in columns:
                columns[flag] = _marked(_all_rows(unread.get(variable, {})), length)
        refused = None
        if self.missing == "error":
            empty = [(v, int(r[MISSING][0])) for v, r in unread.items() if MISSING in r]
            empty = [(v, row) for v, row in empty if v not in self.flags]
            refused = min(empty, key=lambda cell: cell[1], default=None)
        return Chunk(ExactRows(columns, length=length), cells, unread, refused)

    def _reasons(
        self, variable: Variable, unread: Mapping[str, Rows]
    ) -> Mapping[str, Rows]:
        """Where a value may be missing, NaN says that it is."""
        if variable not in self.flags or NAN not in unread:
            return unread
        joined = {
            reason: rows
            for reason, rows in unread.items()
            if reason not in (MISSING, NAN)
        }
        return {
            MISSING: _all_rows({r: unread[r] for r in (MISSING, NAN) if r in unread}),
            **joined,
        }

    def add(self, chunk: Chunk) -> Bools:
        """Decide the rows of a chunk and count them; whether each of them obeys."""
        obeyed = np.ones(chunk.rows.length, dtype=np.bool_)
        for k in range(len(self.assumptions)):
            obeyed &= self._assumption(k, chunk)
        judged = obeyed.copy()
        verdicts = [self._rule(k, chunk, judged) for k in range(len(self.rules))]
        for holds in verdicts:
            obeyed &= holds
        for k in range(len(self.domains)):
            obeyed &= self._domain(k, chunk)
        for variable, reasons in chunk.unread.items():
            for reason, rows in reasons.items():
                obeyed &= self._cell(variable, reason, rows, chunk)
        if self.keep_rows:
            self.kept.add(obeyed, verdicts)
        if self.strips is not None:
            for text, shows in chunk.findings:
                self.strips.add(text, shows, self.start + self.rows)
        self._show(obeyed, chunk)
        self.rows += chunk.rows.length
        self.obeying += int(obeyed.sum())
        return obeyed

    def cell_reports(self) -> tuple[CellReport, ...]:
        """Cells that could not be read, by column and reason."""
        return tuple(
            sorted(self.cells.values(), key=lambda c: (c.variable.index, c.reason))
        )

    # --- rules ------------------------------------------------------------------------------------------------------

    def _assumption(self, k: int, chunk: Chunk) -> Bools:
        """Whether the inputs keep an assumption; rows with a value that could not be read are left to that."""
        report = self.assumptions[k]
        held = truth(report.rule.formula, chunk.rows)
        for variable in self._lost(report.rule.formula, chunk):
            held[_all_rows(chunk.unread[variable])] = True
        broken = np.flatnonzero(~held)
        if len(broken):
            chunk.findings.append((f"assume {report.rule.text}", ~held))
            first = report.first_row or self.rows + int(broken[0]) + 1
            self.assumptions[k] = AssumptionReport(
                report.rule, report.violations + len(broken), first
            )
        return held

    def _rule(self, k: int, chunk: Chunk, judged: Bools) -> Bools:
        """Whether each row obeys a rule; rows that are not judged break none."""
        report = self.rules[k]
        formula = report.rule.formula
        rows = chunk.rows
        holds = truth(formula, rows)
        lost = self._lost(formula, chunk)
        few = None
        if lost:
            affected = np.unique(
                np.concatenate([_all_rows(chunk.unread[v]) for v in lost])
            )
            few = _with_flags(rows, lost, chunk.unread, affected)
            guarded = self._possible(k, lost)
            holds[affected] = truth(guarded, few)
        holds |= ~judged
        if holds.all():
            return holds
        violating = np.flatnonzero(~holds)
        chunk.findings.append((report.rule.text, ~holds))
        first = report.first_row or self.rows + int(violating[0]) + 1
        largest = Fraction(0) if report.largest is None else report.largest
        if few is not None:
            inside = np.isin(violating, affected)
            largest = _worst(
                guarded, few, np.searchsorted(affected, violating[inside]), largest
            )
            largest = _worst(formula, rows, violating[~inside], largest)
        else:
            largest = _worst(formula, rows, violating, largest)
        self.rules[k] = RuleReport(
            report.rule, report.violations + len(violating), first, largest
        )
        return holds

    def _lost(self, formula: Formula, chunk: Chunk) -> list[Variable]:
        """The variables of a rule that have cells without a value, and no flag in the rule that says so."""
        if not chunk.unread:
            return []
        return [
            v for v in variables(formula) if v in chunk.unread and v not in self.flags
        ]

    def _possible(self, k: int, lost: Sequence[Variable]) -> Formula:
        key = (k, frozenset(lost))
        if key not in self._guarded:
            self._guarded[key] = possible(self.rules[k].rule.formula, _flags_of(lost))
        return self._guarded[key]

    # --- domains and cells ------------------------------------------------------------------------------------------

    def _domain(self, k: int, chunk: Chunk) -> Bools:
        report = self.domains[k]
        variable = report.variable
        inside = in_domain(variable, chunk.rows, ranges=True)
        inside[_all_rows(chunk.unread.get(variable, {}))] = True
        outside = np.flatnonzero(~inside)
        if len(outside):
            chunk.findings.append(
                (f"{variable.name}: {domain_text(variable)}", ~inside)
            )
            first = report.first_row or self.rows + int(outside[0]) + 1
            self.domains[k] = DomainReport(
                variable, report.violations + len(outside), first
            )
        return inside

    def _cell(self, variable: Variable, reason: str, rows: Rows, chunk: Chunk) -> Bools:
        fine = np.ones(chunk.rows.length, dtype=np.bool_)
        fails = reason != MISSING or not (
            variable in self.flags or self.missing == "pass"
        )
        before = self.cells.get((variable, reason))
        if before is None:
            example = _text(chunk.cells[variable], int(rows[0]))
            before = CellReport(
                variable, reason, 0, self.rows + int(rows[0]) + 1, example, fails
            )
        self.cells[variable, reason] = CellReport(
            variable,
            reason,
            before.cells + len(rows),
            before.first_row,
            before.example,
            fails,
        )
        if fails:
            fine[rows] = False
            chunk.findings.append((f"{variable.name}: {reason}", ~fine))
        return fine

    def _show(self, obeyed: Bools, chunk: Chunk) -> None:
        left = self.limit - len(self.shown)
        if left <= 0 or obeyed.all():
            return
        for row in np.flatnonzero(~obeyed)[:left].tolist():
            self.shown.append(
                RowReport(self.rows + row + 1, chunk.values(row), chunk.broken_by(row))
            )


class RowVerdicts:
    """What became of every row, a chunk at a time."""

    def __init__(self, rules: int) -> None:
        self._obeys: list[Bools] = [np.zeros(0, dtype=np.bool_)]
        self._breaks: list[Bools] = [np.zeros((0, rules), dtype=np.bool_)]

    def add(self, obeys: Bools, holds: Sequence[Bools]) -> None:
        """Keep whether each row obeys everything, and each rule."""
        self._obeys.append(obeys)
        if holds:
            self._breaks.append(~np.stack(holds, axis=1))
        else:
            self._breaks.append(np.zeros((len(obeys), 0), dtype=np.bool_))

    def obeys(self) -> Bools:
        return np.concatenate(self._obeys)

    def breaks(self) -> Bools:
        return np.concatenate(self._breaks)


def _worst(
    formula: Formula, rows: ExactRows, violating: Rows, before: Fraction | float
) -> Fraction | float:
    """The larger of the largest violation among these rows and that of those before."""
    if not len(violating):
        return before
    floor = np.nextafter(to_float64(before), 0)  # at most the exact one
    return max(before, largest_violation(formula, rows, violating, float(floor)))


def _with_flags(
    rows: ExactRows,
    lost: Sequence[Variable],
    unread: Mapping[Variable, Mapping[str, Rows]],
    affected: Rows,
) -> ExactRows:
    """Some of the rows, with a flag for every variable that has lost values."""
    columns = {v: column.at(affected) for v, column in rows.variables.items()}
    for variable, flag in _flags_of(lost).items():
        own = np.searchsorted(affected, _all_rows(unread[variable]))
        columns[flag] = _marked(own, len(affected))
    return ExactRows(columns, length=len(affected))


def _flags_of(lost: Sequence[Variable]) -> dict[Variable, Variable]:
    return {
        v: flag_of(v, -1 - k) for k, v in enumerate(sorted(lost, key=lambda v: v.index))
    }


def _marked(rows: Rows, length: int) -> Column:
    values = np.zeros(length)
    values[rows] = 1.0
    return Column((values,))


def _all_rows(reasons: Mapping[str, Rows]) -> Rows:
    if not reasons:
        return np.empty(0, dtype=np.intp)
    return np.unique(np.concatenate(list(reasons.values())))


def _text(cells: pl.Series, row: int) -> str | None:
    value = cells[row]
    return None if value is None else str(value)
