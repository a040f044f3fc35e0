"""What there is to say about a table and its rules before anything is learned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from multiplexnet.compiler.explanation.words import counted
from multiplexnet.errors import ContradictionError, MultiplexError
from multiplexnet.language.formula import Category, Variable
from multiplexnet.rules import Rules
from multiplexnet.synthesis.allowed import AllowedRows
from multiplexnet.synthesis.columns.reading import ReadTable
from multiplexnet.synthesis.columns.schema import Schema
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.tables.report import TableReport

__all__ = [
    "broken",
    "fixed",
    "lost_by_rounding",
    "moved",
    "refuse_contradictions",
    "shortened",
    "too_dense",
    "unmet",
    "unread",
]

Bools = NDArray[np.bool_]

SHOWN = 5
QUOTED = r"""'[^']*'|"[^"]*\""""
CHANGING = rf"{QUOTED}|\d+"
SECONDS = 20.0
"""How long it is tried to find rules that contradict each other."""


def broken(report: TableReport) -> str:
    """What rows break, the worst first, with the first row of each."""
    named = [
        (own.violations, f"`{own.rule.text}` by {_rows(own.violations, own.first_row)}")
        for own in report.rules
        if own.violations
    ]
    for domain in report.domains:
        if domain.violations:
            text = f"{_outside(domain.variable)} in {_rows(domain.violations, domain.first_row)}"
            named.append((domain.violations, text))
    for cell in report.cells:
        if cell.fails:
            what = (
                "is empty"
                if cell.reason == "missing"
                else f"is {cell.reason} ({cell.example!r})"
            )
            text = (
                f"`{cell.variable.name}` {what} in {_rows(cell.cells, cell.first_row)}"
            )
            named.append((cell.cells, text))
    worst = sorted(named, key=lambda pair: -pair[0])
    more = f"; and {len(worst) - SHOWN} more" if len(worst) > SHOWN else ""
    return "; ".join(text for _, text in worst[:SHOWN]) + more


def unread(report: TableReport, found: ReadTable) -> Iterator[str]:
    """Cells that cannot be read of columns that the report of a check says nothing of."""
    told = {own.variable.name for own in report.cells if own.fails}
    for field in found.schema.fields:
        if field.declared not in told:
            yield from found.strange.get(field.name, ())


def _rows(count: int, first: int | None) -> str:
    return f"{count:,}, first in row {first}"


def _outside(variable: Variable) -> str:
    if isinstance(variable.domain, Category):
        return f"`{variable.name}` has labels that are not declared"
    size = variable.unit.size
    between = f", or between its steps of {float(size):g}," if size != 1 else ""
    return f"`{variable.name}` is outside its range{between}"


def lost_by_rounding(lost: Bools) -> str:
    """What is said of rows that obey, and not when their numbers are rounded."""
    return (
        f"{int(lost.sum()):,} of {len(lost):,} rows, first row {int(lost.argmax()) + 1}, obey the rules, and no longer "
        "when their numbers are rounded as they are learned; numbers with fewer digits, or columns without the largest "
        "numbers, are rounded less"
    )


def moved(count: int) -> Iterator[str]:
    """What is said of rows that were rounded otherwise than to the nearest steps."""
    if count:
        yield (
            f"in {counted(count, 'row')} numbers are rounded to the second nearest step, which obeys the rules: the "
            "nearest one does not"
        )


def unmet(report: TableReport) -> list[str]:
    """Rules that hold in no row."""
    return [own.rule.text for own in report.rules if own.violations == report.rows]


def refuse_contradictions(rules: Rules) -> None:
    """Raises ``ContradictionError`` if no row at all can obey, as far as a solver tells soon."""
    try:
        rules.compile(seconds=SECONDS)
    except ContradictionError:
        raise
    except MultiplexError:  # too many terms, no solver: nothing is known
        return


def fixed(schema: Schema, allowed: AllowedRows, values: Whole) -> Iterator[str]:
    """Columns of which the rules leave one value, always or given the columns before them.

    Args:
        schema: the columns.
        allowed: what the rules leave.
        values: rows that obey, columns in the order of computing.
    """
    names = {v: field.name for field in schema.fields for v in (field.variable,)}
    rows = allowed.rows(len(values))
    whole = torch.from_numpy(values)
    for j, column in enumerate(allowed.columns):
        own = whole[:, j].double()
        if allowed.is_bound(column):
            left = rows.left(column)
            only = left.only
            if only is not None and column in names and not _is_alone(column):
                yield _told(names[column], bool((only == only[0]).all()))
        rows.take(column, own)


def shortened(notes: Sequence[str]) -> list[str]:
    """Notes of which many say the same of other columns: one of them, and how many more columns there are.

    Example:
        >>> shortened([f"column 'c{k}' is rounded" for k in range(9)])
        ["column 'c0' is rounded; the like of 8 more columns: 'c1', 'c2', 'c3', 'c4', 'c5', …"]
    """
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(re.sub(CHANGING, "…", note), []).append(note)
    told: list[str] = []
    for own in alike.values():
        told += own if len(own) <= SHOWN else [_together(own)]
    return told


def _together(notes: Sequence[str]) -> str:
    names = [found[0] for note in notes[1:] if (found := re.search(QUOTED, note))]
    shown = ", ".join(names[:SHOWN]) + ", …" * (len(names) > SHOWN)
    return f"{notes[0]}; the like of {len(names):,} more columns: {shown}"


def too_dense(schema: Schema, allowed: AllowedRows) -> Iterator[str]:
    """Columns that rules tie together too densely to be projected."""
    if not allowed.outer:
        return
    names = [f.name for f in schema.fields if f.variable in allowed.dense]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    yield (
        f"the rules tie {', '.join(names[:SHOWN])}{more} together too densely to be projected: every row obeys, and "
        "some tries to draw one end nowhere"
    )


def _is_alone(column: Variable) -> bool:
    """Whether the table has one value of it, so that nothing is said by saying so."""
    values = column.domain.values  # type: ignore[union-attr]
    return len(values) == 1


def _told(name: str, is_same: bool) -> str:
    if is_same:
        return f"the rules leave one value of {name!r}: there is nothing to learn of it"
    return (
        f"the rules fix {name!r}, given the columns before it: it is computed, not "
        "learned"
    )
