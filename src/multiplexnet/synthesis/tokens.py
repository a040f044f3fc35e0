r"""The values of a column as tokens: single values where they are few or heap up, bins where they are many.

A column holds whole numbers k (a price in cents, a day, the number of a label). A *token* is an interval of them. The
network gives probabilities to tokens; inside a token all whole numbers are equally likely. One more token, *anywhere*,
is the whole range of the column with a tiny probability: so every value has a likelihood, and rules that leave only
values that were never seen leave something to draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ANYWHERE", "Tokens", "tokens_of"]

MOST_VALUES = 1000
"""Columns with at most so many different values have a token for each of them."""
BINS = 500
"""Tokens of a column with more values, about."""
HEAP = 1 / 250
"""A value that this share of the rows has is a token of its own, whatever stands around it."""
ANYWHERE = 1e-6
"""The probability of the token that is the whole range."""

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

    def of(self, values: Whole) -> Whole:
        """The token of each value; −1 where it lies between tokens."""
        place = np.searchsorted(self.lower, values, side="right") - 1
        inside = (place >= 0) & (values <= self.upper[np.clip(place, 0, None)])
        return np.where(inside, place, -1)


def tokens_of(values: Whole, least: int, most: int) -> Tokens:
    """The tokens of a column with these values and this range.

    Example:
        >>> tokens = tokens_of(np.array([5, 5, 7]), 0, 9)
        >>> tokens.lower, tokens.upper, tokens.of(np.array([5, 6, 7]))
        (array([5, 7]), array([5, 7]), array([ 0, -1,  1]))
    """
    distinct, counts = np.unique(values, return_counts=True)
    if not len(distinct):
        distinct, counts = np.array([least]), np.array([1])
    if len(distinct) <= MOST_VALUES:
        return Tokens(distinct, distinct, counts, least, most)
    lower, upper = _bins(distinct, counts)
    first = np.searchsorted(distinct, lower)
    return Tokens(lower, upper, np.add.reduceat(counts, first), least, most)


def _bins(distinct: Whole, counts: Whole) -> tuple[Whole, Whole]:
    """Heaps by themselves, and between them bins of about equally many rows that touch each other."""
    heap = counts >= HEAP * counts.sum()
    most = counts[~heap].sum() / BINS
    cells = np.floor((np.cumsum(np.where(heap, 0, counts)) - 1e-9) / max(most, 1.0))
    starts = np.ones(len(distinct), dtype=bool)
    starts[1:] = (cells[1:] != cells[:-1]) | heap[1:] | heap[:-1]
    first = np.flatnonzero(starts)
    lower = distinct[first]
    upper = np.append(distinct[first[1:]] - 1, distinct[-1])
    return lower, np.where(heap[first], lower, upper)
