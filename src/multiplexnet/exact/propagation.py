"""Exact intervals for the variables of a system, by carrying bounds from row to row."""

from __future__ import annotations

from fractions import Fraction

from multiplexnet.exact.rows import Rows

__all__ = ["Interval", "ranges"]

Interval = tuple[Fraction | None, Fraction | None]

SWEEPS = 3
"""How often all rows are gone through; later bounds are valid too, only wider."""


def ranges(rows: Rows, sweeps: int = SWEEPS) -> tuple[Interval, ...]:
    """An interval around each variable on the set ``A x ≤ b``; ``None`` where no bound was found. Sound, not tight.

    Example:
        >>> [tuple(map(int, pair)) for pair in ranges(Rows.of([[1, 1], [-1, 0], [0, -1]], [1, 0, 0]))]
        [(0, 1), (0, 1)]
    """
    lower: list[Fraction | None] = [None] * rows.n
    upper: list[Fraction | None] = [None] * rows.n
    for _ in range(sweeps):
        before = (list(lower), list(upper))
        for entries, bound in zip(rows.entries, rows.b, strict=True):
            _tighten(entries, bound, lower, upper)
        if before == (lower, upper):
            break
    return tuple(zip(lower, upper, strict=True))


def _tighten(
    entries: tuple[tuple[int, int], ...],
    bound: Fraction,
    lower: list[Fraction | None],
    upper: list[Fraction | None],
) -> None:
    """What the row leaves for each variable when the others contribute the least they can."""
    least: dict[int, Fraction | None] = {}
    for j, c in entries:
        end = lower[j] if c > 0 else upper[j]
        least[j] = None if end is None else c * end
    unknown = [j for j, value in least.items() if value is None]
    if len(unknown) > 1:
        return
    total = sum((value for value in least.values() if value is not None), Fraction(0))
    for j, c in entries:
        if unknown and j != unknown[0]:
            continue
        limit = (bound - total + (least[j] or 0)) / c
        if c > 0:
            known = upper[j]
            upper[j] = limit if known is None else min(limit, known)
        else:
            known = lower[j]
            lower[j] = limit if known is None else max(limit, known)
