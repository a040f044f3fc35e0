"""A mode of the processor in which subnormal numbers count as zero: is it on, and a block of code with it on.

In this mode even comparisons lie: ``x > 0`` is false for a subnormal x, and a product that would be subnormal is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["flushing", "is_flushing"]


def is_flushing() -> bool:
    """Whether subnormal numbers count as zero, in this thread and now.

    Example:
        >>> is_flushing()
        False
    """
    least = np.array([1], dtype=np.int64).view(np.float64)
    return not bool((least + least > 0).all())


@contextmanager
def flushing() -> Iterator[bool]:
    """Subnormal numbers count as zero; what was before is restored, after an error too. False: not on this machine."""
    before = is_flushing()
    possible = torch.set_flush_denormal(True)
    try:
        yield possible
    finally:
        torch.set_flush_denormal(before)
