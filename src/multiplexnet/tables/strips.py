"""Where in a table something is broken: counts along the rows, in at most a few hundred bins whatever its length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Strips"]

MOST_BINS = 256


class Strips:
    """For each of several findings, how many rows of each bin show it.

    A bin begins as one row. Whenever there are too many of them, neighbours are joined.

    Example:
        >>> strips = Strips()
        >>> strips.add("x >= 0", np.array([True, False, True]), start=0)
        >>> strips.counts["x >= 0"][:3], strips.width
        (array([1, 0, 1]), 1)
    """

    def __init__(self) -> None:
        self.width = 1
        self.counts: dict[str, NDArray[np.int64]] = {}

    def add(self, finding: str, shows: NDArray[np.bool_], start: int) -> None:
        """Note in which of the rows from ``start`` on (from 0) the finding shows."""
        rows = start + np.flatnonzero(shows)
        while (start + len(shows) - 1) // self.width >= MOST_BINS:
            self._widen()
        counts = self.counts.setdefault(finding, np.zeros(MOST_BINS, dtype=np.int64))
        counts += np.bincount(rows // self.width, minlength=MOST_BINS)

    def __add__(self, other: Strips) -> Strips:
        """The counts of both; each was told where its rows begin."""
        total = Strips()
        for part in (self, other):
            while total.width < part.width:
                total._widen()
            own = Strips()
            own.width = part.width
            own.counts = {
                finding: counts.copy() for finding, counts in part.counts.items()
            }
            while own.width < total.width:
                own._widen()
            for finding, counts in own.counts.items():
                before = total.counts.get(finding)
                total.counts[finding] = counts if before is None else before + counts
        return total

    def _widen(self) -> None:
        self.width *= 2
        for finding, counts in self.counts.items():
            joined = np.zeros_like(counts)
            joined[: MOST_BINS // 2] = counts.reshape(-1, 2).sum(1)
            self.counts[finding] = joined
