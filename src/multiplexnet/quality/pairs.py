r"""Do pairs of columns depend on each other as in the real table?

*Correlation*: Spearman's, of two columns with an order. *NMI*: normalised mutual information
:math:`2 I(X; Y) / (H(X) + H(Y))` of any two columns, numbers in ten bins of equally many real rows, empty cells as a
value. Most pairs of a table hardly depend on each other, so a mean over pairs is kind to tables without any
dependence. The weighted figure is not: :math:`Σ \min(a, b) / Σ \max(a, b)` over all pairs, a and b the NMI in both
tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiplexnet.quality.columns import ComparedColumn, Floats, SampledRows

__all__ = ["Pair", "Pairs", "correlations", "mutual_information", "pairs"]

BINS = 10
MOST_LABELS = 20
"""Labels of a column that are told apart; all others are one."""

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Pair:
    """One pair of columns.

    Args:
        columns: their names.
        real: NMI in the real table.
        made: NMI in the other.
        real_correlation: Spearman's, if both have an order.
        made_correlation: the same in the other table.
    """

    columns: tuple[str, str]
    real: float
    made: float
    real_correlation: float | None
    made_correlation: float | None

    @property
    def difference(self) -> float:
        """How far apart the tables are in this pair: in NMI or in half the correlation, whichever is more."""
        found = abs(self.made - self.real)
        if self.real_correlation is None or self.made_correlation is None:
            return found
        return max(found, abs(self.made_correlation - self.real_correlation) / 2)


@dataclass(frozen=True)
class Pairs:
    """All pairs of columns.

    Args:
        pairs: the pairs, those that differ most first.
        real: NMI of all columns in the real table, of shape (columns, columns).
        made: the same in the other.
        trend: the mean over pairs with an order of 1 − |difference of correlations| / 2; ``None``: there is none.
        weighted: Σ min / Σ max of NMI over pairs; ``None``: no column depends on another.
        rows: how many rows of each table there were.
    """

    pairs: tuple[Pair, ...]
    real: Floats
    made: Floats
    trend: float | None
    weighted: float | None
    rows: int


def pairs(made: SampledRows, real: SampledRows) -> Pairs | None:
    """How pairs depend in two tables; ``None``: there are fewer than two columns, or rows."""
    count = min(len(made), len(real))
    columns = real.columns
    if len(columns) < 2 or count < 2:
        return None
    cells = [own.values[:count] for own in (real, made)]
    codes = _coded(cells, columns)
    nmi = [mutual_information(own) for own in codes]
    rho = [correlations(own, columns) for own in cells]
    found = []
    for i in range(len(columns)):
        for j in range(i):
            found.append(
                Pair(
                    (columns[j].name, columns[i].name),
                    float(nmi[0][i, j]),
                    float(nmi[1][i, j]),
                    _number(rho[0][i, j]),
                    _number(rho[1][i, j]),
                )
            )
    ordered = tuple(sorted(found, key=lambda pair: -pair.difference))
    return Pairs(ordered, nmi[0], nmi[1], _trend(found), _weighted(found), count)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _trend(found: list[Pair]) -> float | None:
    differences = [
        abs(pair.made_correlation - pair.real_correlation)
        for pair in found
        if pair.made_correlation is not None and pair.real_correlation is not None
    ]
    return 1 - float(np.mean(differences)) / 2 if differences else None


def _weighted(found: list[Pair]) -> float | None:
    most = sum(max(pair.real, pair.made) for pair in found)
    least = sum(min(pair.real, pair.made) for pair in found)
    return least / most if most > 0 else None


# --- correlation ------------------------------------------------------------------------------------------------------


def correlations(values: Floats, columns: tuple[ComparedColumn, ...]) -> Floats:
    """Spearman's correlation of all columns, over rows with both cells; NaN for labels and constants."""
    count = len(columns)
    found = np.full((count, count), np.nan)
    there = np.isfinite(values)
    ordered = [k for k, column in enumerate(columns) if column.is_ordered]
    ranks = {k: _ranks(values[:, k]) for k in ordered if there[:, k].all()}
    for a in ordered:
        for b in ordered:
            if b >= a:
                break
            one = ranks.get(a)
            other = ranks.get(b)
            if one is None or other is None:
                both = there[:, a] & there[:, b]
                one = _ranks(values[both, a])
                other = _ranks(values[both, b])
            found[a, b] = found[b, a] = _pearson(one, other)
    return found


def _ranks(values: Floats) -> Floats:
    if not len(values):
        return values
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[place]
    return ranks


def _pearson(one: Floats, other: Floats) -> float:
    if len(one) < 2:
        return np.nan
    one = one - one.mean()
    other = other - other.mean()
    size = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / size) if size > 0 else np.nan


# --- mutual information -----------------------------------------------------------------------------------------------


def _coded(cells: list[Floats], columns: tuple[ComparedColumn, ...]) -> list[Codes]:
    """Small whole numbers in place of values, the same in both tables."""
    codes = [np.zeros(own.shape, dtype=np.int64) for own in cells]
    for k, column in enumerate(columns):
        edges = _edges(cells[0][:, k])
        for own, code in zip(cells, codes, strict=True):
            values = own[:, k]
            if column.kind == "label":
                found = np.minimum(values, MOST_LABELS)
            else:
                found = np.searchsorted(edges, values, side="left").astype(np.float64)
            code[:, k] = np.where(np.isnan(values), -1, found) + 1
    return codes


def _edges(values: Floats) -> Floats:
    """The upper ends of the bins but the last, by the real rows."""
    there = values[np.isfinite(values)]
    if not len(there):
        return there
    shares = np.arange(1, BINS) / BINS
    return np.unique(np.quantile(there, shares, method="inverted_cdf"))


def mutual_information(codes: Codes) -> Floats:
    """Normalised mutual information of all columns, between 0 and 1.

    Example:
        >>> mutual_information(np.array([[0, 0, 1], [0, 0, 0], [1, 1, 1], [1, 1, 0]])).round(6).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    count = codes.shape[1]
    found = np.eye(count)
    sizes = codes.max(axis=0, initial=0) + 1
    entropy = [_entropy(np.bincount(codes[:, k])) for k in range(count)]
    for a in range(count):
        for b in range(a):
            together = _entropy(np.bincount(codes[:, a] * sizes[b] + codes[:, b]))
            shared = entropy[a] + entropy[b] - together
            both = entropy[a] + entropy[b]
            found[a, b] = found[b, a] = max(0.0, 2 * shared / both) if both else 0.0
    return found


def _entropy(counts: NDArray[np.intp]) -> float:
    there = counts[counts > 0]
    share = there / there.sum()
    return float(-(share * np.log(share)).sum())
