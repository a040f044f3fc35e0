"""Rows that a model made are checked before anybody gets them: exactly, as the cells that are handed out.

A model draws in what its *cascades* leave, and a file holds these beside the rules. Nothing in a file proves that the
two belong together, and a stranger may have written it. So what a row obeys is not taken from the model: every made
row is decided by the checker of tables, under the rules as they were written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from multiplexnet.errors import RecordError
from multiplexnet.language.formula import Category, Variable, ends
from multiplexnet.synthesis.columns.schema import Field, Schema
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.columns.types import in_plain
from multiplexnet.tables.cells import Cells, cells_of
from multiplexnet.tables.matching import matched
from multiplexnet.tables.sources.table import Table
from multiplexnet.tables.tally import Tally
from multiplexnet.verdicts.columns import Column

__all__ = ["RowCheck"]


@dataclass(frozen=True)
class RowCheck:
    """Whether made rows obey.

    Args:
        schema: the columns of the rows, and the rules as they were written.
        title: what messages call the model.
    """

    schema: Schema
    title: str

    def refuse_outside(self, values: Whole) -> None:
        """Refuse whole numbers ``(N, D)`` that their columns cannot have.

        Raises:
            RecordError: there are some; names their column.
        """
        low, high = self._ends
        outside = ((values < low) | (values > high)).any(0)
        if outside.any():
            own = self.schema.specification.variables[int(outside.argmax())]
            raise self._error(f"`{own.name}` is not in its range")

    def refuse_broken(self, frame: pl.DataFrame, values: Whole, rows: Whole) -> None:
        """Refuse rows that break a rule.

        Args:
            frame: rows as they are handed out.
            values: what they were made from, ``(N, D)``.
            rows: their numbers, from 0 on.

        Raises:
            RecordError: one of them does; names it and what it breaks.
        """
        tally = Tally(
            self.schema.declared, "fail", limit=1, keep_rows=False, strips=False
        )
        cells = {v: in_plain(frame[field.name]) for v, field in self.columns.items()}
        read = {v: self._read(v, own, values) for v, own in cells.items()}
        if tally.add(tally.chunk(cells, read, frame.height)).all():
            return
        found = tally.shown[0]
        number = int(rows[found.row - 1]) + 1
        broken = " and ".join(f"`{text}`" for text in found.breaks)
        raise self._error(f"row {number:,}: {broken}")

    def _read(self, variable: Variable, cells: pl.Series, values: Whole) -> Cells:
        """Cells as the rules see them; of labels, which are the same few texts again and again, each is read once."""
        labels = self._labels.get(variable)
        if labels is None or cells.null_count():
            return cells_of(variable, cells)
        return Cells(labels.take(values[:, self.columns[variable].variable.index]))

    @cached_property
    def _labels(self) -> dict[Variable, Column]:
        """What the rules see in every label, by its place."""
        found = {}
        for variable, field in self.columns.items():
            domain = field.variable.domain
            if isinstance(domain, Category):
                read = cells_of(variable, pl.Series(domain.labels, dtype=pl.String))
                if not read.unread:
                    found[variable] = read.column
        return found

    def _error(self, found: str) -> RecordError:
        return RecordError(
            f"{self.title} makes rows that break its own rules ({found}): the model and the rules in it do not belong "
            "together. Do not use it: take another copy of the file, or fit the model again"
        )

    @cached_property
    def _ends(self) -> tuple[Whole, Whole]:
        """The least and the largest whole number of every column, ``(D,)`` each."""
        own = self.schema.specification.variables
        both = np.array([ends(v.domain) for v in own], dtype=np.int64)
        return both[:, 0], both[:, 1]

    @cached_property
    def columns(self) -> dict[Variable, Field]:
        """The columns that rules mention, or that have values which they must not have.

        Raises:
            TableError: there is no such column.
        """
        own = {field.declared: field for field in self.schema.fields}
        table = Table(self.title, tuple(own), lambda _: iter(()))
        found = matched(self.schema.declared, table, by_position=None, skip=())
        return {variable: own[name] for variable, name in found.items()}
