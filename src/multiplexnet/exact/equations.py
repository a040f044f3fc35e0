"""Linear equations over the integers, solved exactly by elimination without fractions (Bareiss)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["rank", "solve"]


def rank(matrix: Sequence[Sequence[int]]) -> int:
    """The rank of an integer matrix.

    Example:
        >>> rank([[1, 2], [2, 4], [0, 1]])
        2
    """
    if not matrix or not matrix[0]:
        return 0
    return len(_echelon(np.array(matrix, dtype=object))[1])


def solve(matrix: Sequence[Sequence[int]], right: Sequence[int]) -> list[Fraction] | None:
    """The solution of a square system, or ``None`` if it has not exactly one.

    Example:
        >>> solve([[2, 1], [0, 4]], [1, 2])
        [Fraction(1, 4), Fraction(1, 2)]
    """
    n = len(matrix)
    system = np.array([[*row, r] for row, r in zip(matrix, right, strict=True)], dtype=object)
    T, pivots = _echelon(system)
    if pivots != list(range(n)):
        return None
    x = [Fraction(0)] * n
    for i in reversed(range(n)):
        x[i] = Fraction(T[i, n] - sum(T[i, j] * x[j] for j in range(i + 1, n)), T[i, i])
    return x


def _echelon(T: NDArray[Any]) -> tuple[NDArray[Any], list[int]]:
    """The echelon form and its pivot columns; every division is exact."""
    pivots: list[int] = []
    last = 1
    for j in range(T.shape[1]):
        k = len(pivots)
        candidates = [i for i in range(k, len(T)) if T[i, j]]
        if not candidates:
            continue
        i = min(candidates, key=lambda i: abs(T[i, j]))
        T[[k, i]] = T[[i, k]]
        T[k + 1 :] = (T[k + 1 :] * T[k, j] - np.outer(T[k + 1 :, j], T[k])) // last
        last = T[k, j]
        pivots.append(j)
        if len(pivots) == len(T):
            break
    return T, pivots
