"""Are made rows copies? Distances to the nearest row that was learned from, and to the nearest that was not.

The distance of two rows is the sum over columns: of numbers how far apart they stand among all values (between 0 and
1), of labels 1 if they differ, 1 too where one of two cells is empty. A model that copies is nearer to the rows it
was fitted on than to others; one that does not is as near to both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from multiplexnet.quality.columns import ComparedColumn, Floats, SampledRows

__all__ = [
    "Distances",
    "Nearness",
    "nearest",
    "nearness",
    "nearness_of_equal_samples",
    "placed",
]

MOST = 2_000
"""Rows whose nearest is looked for."""
AT_ONCE = 250


@dataclass(frozen=True)
class Distances:
    """Distances to the nearest row.

    Args:
        median: half of the rows have a smaller one.
        low: one row in twenty has a smaller one.
        copies: the share of rows that have one of 0.
    """

    median: float
    low: float
    copies: float


@dataclass(frozen=True)
class Nearness:
    """How near made rows are to rows that were learned from.

    Args:
        made_to_learned: from made rows to the nearest row that was learned from.
        made_to_others: to the nearest of as many that were not.
        real_to_learned: from real rows that were not learned from: what fresh rows would have.
        share: of made rows that are nearer to one that was learned from than to any other; ties count half. ½ is right.
        rows: how many made rows there were.
        among: how many rows that were learned from, and how many others, the nearest were looked for among.
        histogram: shares of made rows, and of real ones, by distance to rows that were learned from.
        edges: of its bins.
    """

    made_to_learned: Distances
    made_to_others: Distances
    real_to_learned: Distances
    share: float
    rows: int
    among: int
    histogram: tuple[tuple[float, ...], tuple[float, ...]]
    edges: tuple[float, ...]


def nearness(
    made: SampledRows, learned: SampledRows, others: SampledRows
) -> Nearness | None:
    """Distances to all rows that were learned from and to all others, but as many of both; ``None``: there are none.

    A made row that is nearly a copy of one of the rows that are not looked at is as near to both kinds.
    """
    among = min(len(learned), len(others))
    count = min(len(made), MOST)
    if not count or not among or not made.columns:
        return None
    own = [made.values[:count], learned.values[:among], others.values[:among]]
    parts = placed(own, made.columns)
    to_learned = nearest(parts[0], parts[1], made.columns)
    to_others = nearest(parts[0], parts[2], made.columns)
    fresh = nearest(parts[2][:MOST], parts[1], made.columns)
    nearer = (to_learned < to_others).mean() + (to_learned == to_others).mean() / 2
    top = float(max(np.quantile(to_learned, 0.99), np.quantile(fresh, 0.99))) or 1.0
    edges = np.linspace(0, top, 31)
    shares = [
        np.histogram(np.minimum(found, top), edges)[0] / len(found)
        for found in (to_learned, fresh)
    ]
    return Nearness(
        _distances(to_learned),
        _distances(to_others),
        _distances(fresh),
        float(nearer),
        count,
        among,
        (tuple(shares[0].tolist()), tuple(shares[1].tolist())),
        tuple(edges.tolist()),
    )


def nearness_of_equal_samples(
    made: SampledRows, learned: SampledRows, others: SampledRows
) -> Nearness | None:
    """Distances among as many rows of each, at most 2,000: what ``benchmarks/made_tables.py`` compares methods by.

    Copies show in it as far as their originals are among these rows, so it compares tables with each other, and does
    not say how many copies there are.
    """
    count = np.arange(min(len(made), len(learned), len(others), MOST))
    return nearness(made.take(count), learned.take(count), others.take(count))


def _distances(found: Floats) -> Distances:
    low, median = np.quantile(found, [0.05, 0.5])
    return Distances(float(median), float(low), float((found == 0).mean()))


def placed(parts: list[Floats], columns: tuple[ComparedColumn, ...]) -> list[Floats]:
    """Values of ordered columns as the share of all rows below them; labels as they are."""
    found = [own.copy() for own in parts]
    for k, column in enumerate(columns):
        if not column.is_ordered:
            continue
        together = np.concatenate([own[:, k] for own in parts])
        there = np.sort(together[np.isfinite(together)])
        for own in found:
            values = own[:, k]
            low = np.searchsorted(there, values, side="left")
            high = np.searchsorted(there, values, side="right")
            place = (low + high) / (2 * max(len(there), 1))
            own[:, k] = np.where(np.isnan(values), np.nan, place)
    return found


def nearest(one: Floats, other: Floats, columns: tuple[ComparedColumn, ...]) -> Floats:
    """For every row of the first table the distance to the nearest of the second.

    Example:
        >>> columns = (ComparedColumn("x", "number"), ComparedColumn("k", "label", ("a", "b")))
        >>> nearest(np.array([[0.5, 0.0]]), np.array([[0.25, 0.0], [0.5, 1.0]]), columns).tolist()
        [0.25]
    """
    plain = [
        k
        for k, column in enumerate(columns)
        if column.is_ordered and not np.isnan([*one[:, k], *other[:, k]]).any()
    ]
    found = np.empty(len(one))
    for start in range(0, len(one), AT_ONCE):
        part = one[start : start + AT_ONCE]
        total = np.asarray(cdist(part[:, plain], other[:, plain], "cityblock"))
        for k, column in enumerate(columns):
            if k not in plain:
                total += _apart(part[:, k, None], other[None, :, k], column)
        found[start : start + AT_ONCE] = total.min(axis=1)
    return found


def _apart(one: Floats, other: Floats, column: ComparedColumn) -> Floats:
    """How far apart two cells are, of which one or both may be empty."""
    if not column.is_ordered:
        one, other = (np.where(np.isnan(own), -1.0, own) for own in (one, other))
        return np.asarray(one != other, dtype=np.float64)
    apart = np.abs(one - other)
    both = np.isnan(one) & np.isnan(other)
    return np.asarray(np.where(both, 0.0, np.where(np.isnan(apart), 1.0, apart)))
