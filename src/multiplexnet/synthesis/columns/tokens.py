r"""The values of a column as tokens: single values where they repeat or heap up, bins where they do not.

A column holds whole numbers k (a price in cents, a day, the number of a label). A *token* is an interval of them. The
network gives probabilities to tokens; inside a token all whole numbers are equally likely. One more token, *anywhere*,
is the whole range of the column with a tiny probability: so every value has a likelihood, and rules that leave only
values that were never seen leave something to draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tokens", "Whole", "tokens_of"]

MOST_VALUES = 1000
"""Columns with at most so many different values have a token for each of them, if they repeat."""
ONCE = 0.05
"""They do if at most this share of the rows has a value that no other row has: such a share of new rows has, too."""
BINS = 500
"""Tokens of a column with more values, about."""
FULL = 10
"""Rows that a bin has at least, about."""
HEAP = 1 / 250
"""A value that this share of the rows has is a token of its own, whatever stands around it."""
FEWER = (17, 9, 5, 3, 2)
"""So may one be that this number of rows has, if that makes other rows of the column more likely."""
FOLDS = 5
"""Parts of the rows that are taken for «other rows» in turn,"""
JUDGED = 100_000
"""as long as that makes no more rows than this, about."""
RARELY = 1e-6
"""The probability of the token that is the whole range, at least."""
OFTEN = 1e-3
"""And at most; between them half of the share of rows whose value no other row has."""

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """Intervals of whole numbers that do not overlap, in ascending order, and the range around them.

    Args:
        lower: the smallest value of each token.
        upper: the largest.
        counts: how many rows each token had.
        least: the smallest value that the column may have.
        most: the largest.
    """

    lower: Whole
    upper: Whole
    counts: Whole
    least: int
    most: int

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """How many whole numbers each token holds."""
        return (self.upper - self.lower + 1).astype(np.float64)

    @property
    def log_share(self) -> NDArray[np.float64]:
        """The logarithm of the share of rows of each token, smoothed so that none is zero."""
        smoothed = self.counts + 0.5
        return np.asarray(np.log(smoothed / smoothed.sum()))

    @property
    def ranks(self) -> NDArray[np.float64]:
        """Where each token stands among the rows: between 0 and 1, in the middle of its own share."""
        smoothed = self.counts + 0.5
        ends = np.cumsum(smoothed)
        return np.asarray((ends - smoothed / 2) / ends[-1])

    @property
    def anywhere(self) -> float:
        """The probability of the token that is the whole range."""
        total = max(int(self.counts.sum()), 1)
        once = int((self.counts == 1).sum())
        return min(OFTEN, max(RARELY, 0.5 * once / total))

    def log_likelihood(self, values: Whole) -> NDArray[np.float64]:
        """The log-probability of each value by the shares of the tokens alone."""
        place = self.of(values)
        weights = np.exp(self.log_share) / self.sizes
        own = np.where(place < 0, 0.0, weights[place])
        width = float(self.most - self.least + 1)
        return np.asarray(np.log((1 - self.anywhere) * own + self.anywhere / width))

    def of(self, values: Whole) -> Whole:
        """The token of each value; −1 where it lies between tokens."""
        place = np.searchsorted(self.lower, values, side="right") - 1
        inside = (place >= 0) & (values <= self.upper[np.clip(place, 0, None)])
        return np.where(inside, place, -1)


def tokens_of(
    values: Whole, least: int, most: int, *, has_order: bool = True
) -> Tokens:
    """The tokens of a column with these values and this range; one for every value if they have no order.

    Example:
        >>> tokens = tokens_of(np.array([5, 5, 7, 7]), 0, 9)
        >>> tokens.lower, tokens.upper, tokens.of(np.array([5, 6, 7]))
        (array([5, 7]), array([5, 7]), array([ 0, -1,  1]))
    """
    if not has_order:
        every = np.arange(least, most + 1)
        counts = np.bincount(values - least, minlength=len(every))
        return Tokens(every, every, counts, least, most)
    values = values if len(values) else np.array([least])
    distinct, counts = np.unique(values, return_counts=True)
    once = int((counts == 1).sum())
    if len(distinct) <= MOST_VALUES and once <= ONCE * len(values):
        return Tokens(distinct, distinct, counts, least, most)
    return _heaps_and_bins(values, least, most, _heap(values, least, most))


def _heap(values: Whole, least: int, most: int) -> float:
    """How many rows a value has at least that is a token of its own.

    Ratios of small numbers repeat often and have nothing around them; whole numbers in a short range repeat by chance.
    Rows that are kept apart tell the two from each other.
    """
    highest = max(HEAP * len(values), 2.0)
    choices = [highest, *(float(count) for count in FEWER if count < highest)]
    if len(values) < FOLDS * FULL:
        return highest
    order = np.random.default_rng(0).permutation(len(values))
    parts = np.array_split(values[order], FOLDS)
    folds = max(1, min(FOLDS, JUDGED // max(len(values), 1)))
    scores = np.zeros(len(choices))
    for fold in range(folds):
        others = np.concatenate(parts[:fold] + parts[fold + 1 :])
        for place, choice in enumerate(choices):
            tokens = _heaps_and_bins(others, least, most, choice)
            scores[place] += tokens.log_likelihood(parts[fold]).sum()
            if len(tokens) > MOST_VALUES:
                scores[place] = -np.inf
    return choices[int(scores.argmax())] if np.isfinite(scores).any() else highest


def _heaps_and_bins(values: Whole, least: int, most: int, heap: float) -> Tokens:
    """Values that at least so many rows have by themselves, and bins of the others."""
    distinct, counts = np.unique(values, return_counts=True)
    lower, upper = _bins(distinct, counts, counts >= heap)
    first = np.searchsorted(distinct, lower)
    sums = np.add.reduceat(counts, first)
    if lower[0] < upper[0]:
        lower[0] = least
    if lower[-1] < upper[-1]:
        upper[-1] = most
    return Tokens(lower, upper, sums, least, most)


def _bins(
    distinct: Whole, counts: Whole, heap: NDArray[np.bool_]
) -> tuple[Whole, Whole]:
    """Heaps by themselves, and between them bins of about equally many rows that touch each other."""
    rest = counts[~heap].sum()
    bins = max(1, min(BINS, rest // FULL))
    cells = np.floor(
        (np.cumsum(np.where(heap, 0, counts)) - 1e-9) / max(rest / bins, 1.0)
    )
    starts = np.ones(len(distinct), dtype=bool)
    starts[1:] = (cells[1:] != cells[:-1]) | heap[1:] | heap[:-1]
    first = np.flatnonzero(starts)
    lower = distinct[first]
    upper = np.append(distinct[first[1:]] - 1, distinct[-1])
    return lower, np.where(heap[first], lower, upper)
