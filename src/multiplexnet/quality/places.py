"""Real numbers with more decimal places than made ones, cut to as many.

A model counts numbers in steps of a last place. A real 0.3333333333333333 beside a made 0.3333333333 would tell made
rows from real ones by digits that mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from multiplexnet.quality.columns import Floats, SampledRows, at_places

__all__ = ["at_places_of"]

MOST_PLACES = 18
FINE = 1e-7
"""Digits that are more than this share of the largest number mean something, and are left."""


def at_places_of(made: SampledRows, parts: Sequence[SampledRows]) -> list[SampledRows]:
    """The tables with the numbers rounded to the places of the made table, where digits are cut that mean nothing.

    Example:
        >>> from multiplexnet.quality.columns import ComparedColumn
        >>> column = ComparedColumn("x", "number")
        >>> one, other = (SampledRows((column,), np.array([[v]])) for v in (0.3333333333, 1 / 3))
        >>> [(own.values.item(), own.columns[0].places) for own in at_places_of(one, [one, other])]
        [(0.3333333333, 10), (0.3333333333, 10)]
    """
    columns = list(made.columns)
    values = [own.values.copy() for own in parts]
    for k, column in enumerate(columns):
        if column.kind != "number":
            continue
        places = _cut(made.values[:, k], np.concatenate([own[:, k] for own in values]))
        if places is None:
            continue
        columns[k] = replace(column, places=places)
        for own in values:
            own[:, k] = at_places(own[:, k], places)
    return [SampledRows(tuple(columns), own) for own in values]


def _cut(made: Floats, together: Floats) -> int | None:
    """The places to cut to; ``None``: none has more, or their digits mean something."""
    made = made[np.isfinite(made)]
    together = together[np.isfinite(together)]
    top = np.abs(made).max(initial=0.0)
    for places in range(MOST_PLACES + 1):
        if (at_places(made, places) == made).all():
            cut = np.abs(at_places(together, places) - together).max(initial=0.0)
            return places if 0 < cut <= FINE * top else None
    return None
