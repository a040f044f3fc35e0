"""Rows of one table that stand in another, cell by cell: looked for among all rows, not in samples.

Each row becomes one number of 64 bits, so that tables of any length are compared in 8 bytes a row. Two different rows
have the same number once in 10^19 pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.quality.columns import ComparedColumn, canonical
from multiplexnet.tables.sources.table import Table

__all__ = ["Copies", "copies"]

LEAST = 0.01
"""So much more than among real rows, as a share of the rows, is worth a word."""


@dataclass(frozen=True)
class Copies:
    """How many rows stand in the real table, in all columns that are compared.

    Args:
        made: the share of made rows of which the real table has the same.
        real: that share of held-out rows; if there are none, of real rows of which the real table has another one.
        made_rows: how many made rows there are.
        real_rows: how many rows ``real`` is a share of.
        learned_rows: among how many real rows they were looked for.
    """

    made: float
    real: float
    made_rows: int
    real_rows: int
    learned_rows: int

    @property
    def are_many(self) -> bool:
        """Whether more made rows are copies than chance and the table itself explain."""
        chance = self.real * (1 - self.real) * (1 / self.made_rows + 1 / self.real_rows)
        return self.made - self.real > max(LEAST, 3 * sqrt(chance))


def copies(
    made: Sequence[Table],
    learned: Sequence[Table],
    others: Sequence[Table] | None,
    columns: tuple[ComparedColumn, ...],
) -> Copies:
    """Copies among all rows of the tables, none of which is empty.

    Args:
        made: the made table.
        learned: the real table.
        others: the table that was held out, if there is one.
        columns: what makes two rows the same.
    """
    there, counts = np.unique(_numbers(learned, columns), return_counts=True)
    own = _numbers(made, columns)
    rows = int(counts.sum())
    if others is None:
        again = float(counts[counts > 1].sum() / rows)
        return Copies(_share(own, there), again, len(own), rows, rows)
    held = _numbers(others, columns)
    return Copies(_share(own, there), _share(held, there), len(own), len(held), rows)


def _share(rows: NDArray[np.uint64], there: NDArray[np.uint64]) -> float:
    places = np.searchsorted(there, rows).clip(max=len(there) - 1)
    return float((there[places] == rows).mean())


def _numbers(
    tables: Sequence[Table], columns: tuple[ComparedColumn, ...]
) -> NDArray[np.uint64]:
    """A number for every row, the same for the same cells."""
    found = []
    for table in tables:
        places = [table.names.index(column.name) for column in columns]
        for frame in table.frames(places):
            cells = [
                canonical(column, frame[str(place)]).alias(column.name)
                for column, place in zip(columns, places, strict=True)
            ]
            found.append(pl.DataFrame(cells).hash_rows(seed=0).to_numpy())
    return np.concatenate(found) if found else np.zeros(0, np.uint64)
