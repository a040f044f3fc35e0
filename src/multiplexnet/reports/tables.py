"""What a check of a table found: as text for people (rich) and as plain data for programs (JSON)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from multiplexnet.compiler.explanation.words import counted, readable_number
from multiplexnet.language.formula import variables
from multiplexnet.language.text import domain_text, number_text
from multiplexnet.reports.printing import PLAIN_WIDTH, plain_table, row_cells

if TYPE_CHECKING:
    from multiplexnet.tables.report import RowReport, TableReport

__all__ = ["check_json", "check_text"]

LISTED = 12
"""Names in a line; others are counted."""
LONGEST = 40
"""Characters of a cell that are shown."""
GAP = 2
"""Blanks between the columns of a table."""
HINTS = (
    (
        "not a number",
        re.compile(r"\s*[+-]?\d+,\d+\s*"),
        "a decimal is written with a point: 1.5, not 1,5",
    ),
    (
        "not a number",
        re.compile(r".*(?:\d,\d{3}\.|\d\.\d{3},|\d\s*[%$€£]|[$€£]\s*\d).*"),
        "a number is written alone: 1000.5, not 1,000.50 or $1000.50, and 0.12, not 12%",
    ),
    ("not a date", re.compile(r".*\d.*"), "a date is written as 2024-08-03"),
    (
        "not a datetime",
        re.compile(r".*\d.*"),
        "a time is written as 2024-08-03 14:30:59, in whole seconds and without a zone",
    ),
)
"""Why a cell was not read, what it looks like, and how it is written."""
Json = dict[str, Any]


# --- for programs ---------------------------------------------------------------------------------------------------


def check_json(report: TableReport) -> Json:
    """The report as plain data; exact numbers are strings, rows are counted from 1 without the header."""
    rules = [
        {
            "line": r.rule.line,
            "text": r.rule.text,
            "violating_rows": r.violations,
            "first_violating_row": r.first_row,
            "largest_violation": None if r.largest is None else _number(r.largest),
        }
        for r in report.rules
    ]
    domains = [
        {
            "variable": d.variable.name,
            "domain": domain_text(d.variable),
            "rows_outside": d.violations,
            "first_row_outside": d.first_row,
        }
        for d in report.domains
    ]
    assumptions = [
        {
            "line": a.rule.line,
            "text": a.rule.text,
            "violating_rows": a.violations,
            "first_violating_row": a.first_row,
        }
        for a in report.assumptions
    ]
    cells = [
        {
            "variable": c.variable.name,
            "reason": c.reason,
            "cells": c.cells,
            "first_row": c.first_row,
            "example": c.example,
            "fails": c.fails,
        }
        for c in report.cells
    ]
    return {
        "table": report.table,
        "files": [{"file": f.file, "rows": f.rows} for f in report.files],
        "rows": report.rows,
        "obeying_rows": report.obeying,
        "all_obey": report.all_obey,
        "rules": rules,
        "assumptions": assumptions,
        "domains": domains,
        "cells": cells,
        "columns": {v.name: name for v, name in report.columns},
        "ignored_columns": list(report.ignored),
        "violating_rows": [_row_json(report, row) for row in report.shown],
        "seconds": round(report.seconds, 3),
    }


def _row_json(report: TableReport, row: RowReport) -> Json:
    file, number = report.place(row.row)
    return {
        "row": row.row,
        "file": file,
        "row_in_file": number,
        "values": row.values,
        "breaks": list(row.breaks),
    }


def _number(number: Fraction | float) -> str:
    return "∞" if isinstance(number, float) else number_text(number)


def _hints(report: TableReport) -> list[str]:
    """How cells are written, where some that were not read look like a known other way."""
    return [
        hint
        for reason, pattern, hint in HINTS
        if any(
            cell.reason == reason and pattern.fullmatch(cell.example or "")
            for cell in report.cells
        )
    ]


# --- for people -----------------------------------------------------------------------------------------------------


def check_text(report: TableReport) -> RenderableType:
    """The report for reading."""
    parts: list[RenderableType] = [_verdict(report), "", _rule_table(report)]
    if any(a.violations for a in report.assumptions):
        parts += ["", _assumption_table(report)]
    if any(d.violations for d in report.domains):
        parts += ["", _domain_table(report)]
    if report.cells:
        parts += ["", _cell_table(report)]
        parts += [Text(hint, style="dim") for hint in _hints(report)]
    if report.shown:
        parts += ["", _row_table(report), _more(report)]
    renamed = [f"{v.name} = {name}" for v, name in report.columns if name != v.name]
    if renamed:
        parts += ["", Text(f"columns: {', '.join(renamed)}", style="dim")]
    if report.ignored:
        parts += ["", Text(f"ignored columns: {_some(report.ignored)}", style="dim")]
    return Group(*parts)


def _verdict(report: TableReport) -> Text:
    if report.rows == 0:
        return Text(
            f"{report.table}: the table has a header and no rows, so nothing breaks the rules.",
            style="yellow",
        )
    head = f"{report.table}: {counted(report.rows, 'row')} checked in {report.seconds:.1f} s, "
    if report.all_obey:
        return Text.assemble(head, ("all obey the rules.", "green"))
    failed = report.rows - report.obeying
    told = f"{failed:,} {'does' if failed == 1 else 'do'} not obey the rules."
    return Text.assemble(head, (told, "red"))


def _rule_table(report: TableReport) -> Table:
    table = plain_table(
        ("line", True),
        ("rule", False),
        ("violating rows", True),
        ("first", True),
        ("largest violation", True),
    )
    for r in report.rules:
        largest = _largest(r.largest)
        first = _place(report, r.first_row)
        row = row_cells(r.rule.line, r.rule.text, f"{r.violations:,}", first, largest)
        table.add_row(*row, style="red" if r.violations else "")
    return table


def _largest(violation: Fraction | float | None) -> str | None:
    if violation is None:
        return None
    if violation == 0:
        return "on the boundary"
    return "∞" if isinstance(violation, float) else readable_number(violation)


def _assumption_table(report: TableReport) -> Table:
    table = plain_table(
        ("line", True),
        ("assumption", False),
        ("rows that break it", True),
        ("first", True),
    )
    for a in report.assumptions:
        if a.violations:
            first = _place(report, a.first_row)
            row = row_cells(a.rule.line, a.rule.text, f"{a.violations:,}", first)
            table.add_row(*row, style="red")
    return table


def _domain_table(report: TableReport) -> Table:
    table = plain_table(
        ("variable", False),
        ("declared as", False),
        ("rows outside", True),
        ("first", True),
    )
    for d in report.domains:
        if d.violations:
            first = _place(report, d.first_row)
            row = row_cells(
                d.variable.name, domain_text(d.variable), f"{d.violations:,}", first
            )
            table.add_row(*row, style="red")
    return table


def _cell_table(report: TableReport) -> Table:
    table = plain_table(
        ("column", False),
        ("cells that are", False),
        ("", True),
        ("first", True),
        ("as in", False),
    )
    names = dict(report.columns)
    for c in report.cells:
        what = c.reason if c.fails else f"{c.reason} (allowed)"
        first = _place(report, c.first_row)
        example = None if c.example is None else _shortened(c.example)
        row = row_cells(names[c.variable], what, f"{c.cells:,}", first, example)
        table.add_row(*row, style="red" if c.fails else "dim")
    return table


def _row_table(report: TableReport) -> Table:
    broken = [_broken(report, row) for row in report.shown]
    places = [_place(report, row.row) or "" for row in report.shown]
    shown = _columns_shown(report, _width(broken) + _width(places))
    table = plain_table(
        ("row", True), ("breaks", False), *((name, True) for name in shown)
    )
    for row, place, what in zip(report.shown, places, broken, strict=True):
        values = [_shortened(row.values[name] or "") for name in shown]
        table.add_row(*row_cells(place, what, *values))
    return table


def _broken(report: TableReport, row: RowReport) -> str:
    """What a row breaks, one a line; long rules by the line that they stand in."""
    lines = {own.rule.text: own.rule.line for own in report.rules}
    return "\n".join(_brief(text, lines.get(text)) for text in row.breaks)


def _brief(text: str, line: int | None) -> str:
    if len(text) <= LONGEST:
        return text
    return _shortened(text if line is None else f"line {line}: {text}")


def _columns_shown(report: TableReport, taken: int) -> list[str]:
    """Columns that fit into a line beside what takes so much of it, those of broken rules first, in their order."""
    names = list(report.shown[0].values)
    texts = {text for row in report.shown for text in row.breaks}
    named = {
        v.name
        for r in report.rules
        if r.rule.text in texts
        for v in variables(r.rule.formula)
    }
    named |= {d.variable.name for d in report.domains if d.violations}
    named |= {c.variable.name for c in report.cells}
    found: list[str] = []
    for name in sorted(names, key=lambda name: name not in named)[:LISTED]:
        cells = [_shortened(row.values[name] or "") for row in report.shown]
        taken += _width([name, *cells])
        if taken > PLAIN_WIDTH and found:
            break
        found.append(name)
    return [name for name in names if name in found]


def _width(cells: Sequence[str]) -> int:
    return (
        max(len(line) for cell in cells for line in (cell.splitlines() or [""])) + GAP
    )


def _more(report: TableReport) -> Text:
    """How rows are counted, and that there are more."""
    hidden = report.rows - report.obeying - len(report.shown)
    told = "rows are counted from 1, without the header"
    if hidden:
        told += f"; {hidden:,} more {'does' if hidden == 1 else 'do'} not obey (--limit, --output)"
    return Text(told, style="dim")


def _place(report: TableReport, row: int | None) -> str | None:
    """A row, and the file that it stands in where there are several."""
    if row is None:
        return None
    if len(report.files) < 2:
        return str(row)
    file, number = report.place(row)
    return f"{file}:{number}"


def _shortened(text: str) -> str:
    """The text on one line and not too long, characters that a terminal would obey written out."""
    text = text if text.isprintable() else repr(text[:LONGEST])[1:-1]
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(_shortened(name) for name in names[:LISTED]) + more
