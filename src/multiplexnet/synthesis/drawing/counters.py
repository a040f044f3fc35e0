r"""Random numbers that depend on the seed and the number of the row alone.

Row 5 of a sample has the same random numbers whoever draws it, in whatever batch and after whatever other rows: each
number is a mix (splitmix64) of the seed, the row and a counter. So a sample of any size can be drawn in parts, in any
order, by several processes, and comes out the same.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["uniforms", "uniforms_of"]

Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mixed(words: Words) -> Words:
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


def uniforms(seed: int, first: int, rows: int, count: int) -> Tensor:
    """``count`` numbers for each of the rows ``first``, ``first + 1``, …: ``(count, rows)``, float64 in [0, 1).

    Example:
        >>> whole = uniforms(7, 0, 10, 3)
        >>> bool((whole[:, 4:] == uniforms(7, 4, 6, 3)).all()), bool((whole == uniforms(8, 0, 10, 3)).any())
        (True, False)
    """
    return uniforms_of(seed, np.arange(first, first + rows, dtype=np.uint64), count)


def uniforms_of(seed: int, numbers: Words, count: int, *, stream: int = 0) -> Tensor:
    """``count`` numbers for each of these rows: ``(count, len(numbers))``, float64 in [0, 1).

    Args:
        seed: of the sample.
        numbers: of the rows.
        count: how many for each.
        stream: another one gives other numbers to the same rows.
    """
    with np.errstate(over="ignore"):
        # mixed twice, so that seed and row cannot change places
        start = _mixed(_mixed(np.full(1, seed % 2**64, dtype=np.uint64)))
        if stream:
            start = _mixed(start + np.uint64(stream))
        row = _mixed(start ^ _mixed(numbers))
        counter = np.arange(count, dtype=np.uint64).reshape(-1, 1) * _GOLDEN
        words = _mixed(row + counter)
    return torch.from_numpy((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)
