"""Rows that obey until their numbers are rounded: these go to the steps beside the nearest ones, where that helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.rules import Rules
from multiplexnet.synthesis.columns.reading import ReadTable, Rounded
from multiplexnet.synthesis.columns.schema import decimal_places, decimal_texts
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.tables.check import check
from multiplexnet.tables.report import TableReport

__all__ = ["CheckedTable", "checked"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class CheckedTable:
    """A table that was read, and which of its rows obey.

    Args:
        found: the table; some of its numbers are rounded to the second nearest step, where that one obeys.
        report: of its rows; those that rounding alone breaks are in it as they were given.
        moved: how many rows obey because of that.
        lost: rows that obey as they were given, and not when their numbers are rounded.
    """

    found: ReadTable
    report: TableReport
    moved: int
    lost: Bools

    @cached_property
    def obeys(self) -> Bools:
        """Rows that obey as they are learned."""
        own = np.asarray(self.report.obeys)
        return np.asarray(self.found.readable & own & ~self.lost)


@dataclass(frozen=True)
class _Rows:
    """Some rows on their way: their steps, their cells as the rules see them, how many rules each row breaks."""

    values: Whole
    exact: pl.DataFrame
    broken: NDArray[np.intp]

    def moved(self, rules: Rules, place: int, steps: Whole, texts: pl.Series) -> _Rows:
        """Other steps of one column where fewer rules are broken so."""
        old = self.exact[texts.name]
        exact = self.exact.with_columns(texts.zip_with(old.is_not_null(), old))
        broken = _broken(rules, exact)
        is_better = broken < self.broken
        values = self.values.copy()
        values[is_better, place] = steps[is_better]
        mixed = exact[texts.name].zip_with(pl.Series(is_better), old)
        broken = np.where(is_better, broken, self.broken)
        return _Rows(values, self.exact.with_columns(mixed), broken)


def checked(rules: Rules, found: ReadTable) -> CheckedTable:
    """Which rows obey; numbers that are rounded go to the second nearest step where the nearest one breaks rules.

    Args:
        rules: as they were written.
        found: the table.
    """
    report = check(rules, found.exact)
    nothing = CheckedTable(found, report, 0, np.zeros(len(found.values), np.bool_))
    if not found.rounded:
        return nothing
    rows = np.flatnonzero(found.readable & ~nothing.obeys)
    given = found.exact[rows].with_columns(own.cells[rows] for own in found.rounded)
    rows = rows[np.asarray(check(rules, given).obeys)] if len(rows) else rows
    if not len(rows):
        return nothing
    exact = found.exact[rows]
    own = _Rows(found.values[rows], exact, _broken(rules, exact))
    for rounded in found.rounded:
        steps = rounded.beside[rows]
        texts = decimal_texts(steps, _places(found, rounded))
        own = own.moved(rules, rounded.place, steps, texts.alias(rounded.cells.name))
    is_lost = own.broken > 0
    lost = nothing.lost.copy()
    lost[rows[is_lost]] = True
    values = found.values.copy()
    values[rows[~is_lost]] = own.values[~is_lost]
    columns = []
    for rounded in found.rounded:
        name = rounded.cells.name
        texts = own.exact[name].zip_with(pl.Series(~is_lost), rounded.cells[rows])
        columns.append(_written(found.exact[name], rows, texts))
    found = replace(found, values=values, exact=found.exact.with_columns(columns))
    count = len(rows) - int(is_lost.sum())
    return CheckedTable(found, check(rules, found.exact), count, lost)


def _broken(rules: Rules, exact: pl.DataFrame) -> NDArray[np.intp]:
    """How many rules each row breaks, and one more if it does not obey."""
    report = check(rules, exact)
    breaks = np.asarray(report.breaks, np.intp)
    return np.asarray(breaks.sum(1) + ~np.asarray(report.obeys))


def _places(found: ReadTable, rounded: Rounded) -> int:
    field = next(
        own for own in found.schema.fields if own.variable.index == rounded.place
    )
    places = decimal_places(field.size)
    assert places is not None
    return places


def _written(cells: pl.Series, rows: NDArray[np.intp], new: pl.Series) -> pl.Series:
    """The cells with others in some rows."""
    return cells.cast(pl.String).scatter(rows, new.cast(pl.String))
