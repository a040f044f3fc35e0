"""The options of an output: on which side of each gap its value lies.

With many gaps these are too many, though in any one row all but a few are empty: twelve outputs that keep their
distance leave the last one eleven gaps, 2^11 sides and at most twelve intervals. The options are *ranks* then: how many
gaps lie below the value.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from math import inf

from multiplexnet.compiler.cascade.projection.project import Bucket
from multiplexnet.compiler.cascade.projection.rows import Clause, Ranges, Row

__all__ = ["sides_of", "splits_of"]

Sides = tuple[bool, ...]


def sides_of(bucket: Bucket, ranges: Ranges, most: int) -> tuple[Sides, ...] | None:
    """For every option, and every gap, whether it lies above the gap; ``None`` if there are more than ``most``.

    A value is *above* a gap if it is at least the gap's upper end, and *below* otherwise, so that every value belongs
    to exactly one option. Options whose ends cross whatever the variables before are left out.

    Example: two gaps at fixed places leave three intervals.
        >>> from multiplexnet.compiler.cascade.projection.project import bucket_of
        >>> from multiplexnet.compiler.cascade.projection.rows import Range
        >>> gaps = [(Row(((0, 1),), 0), Row(((0, -1),), -10)), (Row(((0, 1),), 20), Row(((0, -1),), -30))]
        >>> sides_of(bucket_of(0, gaps, {0: Range(0, 99)}), {0: Range(0, 99)}, most=9)
        ((False, False), (True, False), (True, True))
    """
    x = bucket.variable
    open_ends = bucket.range.lower, bucket.range.upper
    partial: list[tuple[Sides, float, float]] = [((), *open_ends)]
    for gap in bucket.gaps:
        above_from = _least_above(x, gap, ranges)
        below_to = _most_below(x, gap, ranges)
        grown = []
        for sides, low, high in partial:
            for above in (False, True):
                ends = (
                    (max(low, above_from), high)
                    if above
                    else (low, min(high, below_to))
                )
                if ends[0] <= ends[1]:
                    grown.append(((*sides, above), *ends))
        partial = grown
        if len(partial) > most:
            return None
    return tuple(sides for sides, _, _ in partial)


def splits_of(bucket: Bucket, decisive: Container[Row] = ()) -> tuple[Clause, ...]:
    """Gaps without any width, which hold always, that make single values at the ends of a range options of their own.

    Rules such as «at most 3 of these are positive» say of an output that starts at 0 that it is 0 unless …: being 0
    is a decision, and a map from raw values to an interval would practically never take it. It is one, too, where
    what comes later depends on it: ``decisive`` has the rows over single variables on which that is so.
    """
    x = bucket.variable
    lower, upper = bucket.range
    if upper - lower < 2:
        return ()
    found = []
    at_lower = Row(((x, 1),), lower)
    above_lower = Row(((x, -1),), -lower - 1)
    at_upper = Row(((x, -1),), -upper)
    below_upper = Row(((x, 1),), upper - 1)
    if (
        _is_in(at_lower, bucket.upper)
        or at_lower in decisive
        or above_lower in decisive
    ):
        found.append((above_lower, at_lower))
    if (
        _is_in(at_upper, bucket.lower)
        or at_upper in decisive
        or below_upper in decisive
    ):
        found.append((at_upper, below_upper))
    return tuple(found)


def _is_in(row: Row, clauses: Iterable[Clause]) -> bool:
    return any(row in clause for clause in clauses)


def _least_above(x: int, gap: Clause, ranges: Ranges) -> float:
    """The least that the upper end of a gap can be."""
    return min(
        (_end(x, row, ranges, largest=False) for row in gap if row.coefficient(x) < 0),
        default=inf,
    )


def _most_below(x: int, gap: Clause, ranges: Ranges) -> float:
    """The most that a value below a gap can be: a gap that other rows can close asks only for not being above it."""
    not_above = (
        min(_end(x, row, ranges, largest=True) for row in gap if row.coefficient(x) < 0)
        - 1
    )
    if any(not row.coefficient(x) for row in gap):
        return not_above
    return min(
        not_above,
        max(
            _end(x, row, ranges, largest=True) for row in gap if row.coefficient(x) > 0
        ),
    )


def _end(x: int, row: Row, ranges: Ranges, *, largest: bool) -> int:
    """The least or largest end that a row can give to x."""
    c = row.coefficient(x)
    rest = Row(row.without(x), 0)
    if c > 0:  # c x ≤ bound − rest
        room = row.bound - (rest.least(ranges) if largest else rest.most(ranges))
        return room // c
    need = (
        rest.most(ranges) if largest else rest.least(ranges)
    ) - row.bound  # |c| x ≥ rest − bound
    return -(-need // -c)
