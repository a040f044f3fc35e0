r"""Projections cut short: only what is implied, and not all of it.

Where rules tie many variables together densely, their exact projections cannot be written down. An *outer* projection
keeps some clauses that hold wherever the bucket can be obeyed, and drops the others. It loses no point, but it does
not promise any: the last variable of a clause is still asked for the whole clause, and nothing may be left for it then.

What is kept is made as by :mod:`~multiplexnet.compiler.cascade.projection.project`, with *real* shadows alone
(``b l ≤ a u`` holds wherever some x lies between ``a x ≥ l`` and ``b x ≤ u``, whole or not), and never with dark ones,
which may lose points. Among these clauses those are taken that the most points break: of points that are spread evenly
over the ranges of all variables, the left side of a row is about normally distributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, product
from math import erfc, isqrt, log, sqrt

from multiplexnet.compiler.cascade.projection.between import shadows
from multiplexnet.compiler.cascade.projection.project import (
    Bucket,
    Projection,
    Tick,
)
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Ranges,
    Row,
    clause_of,
    subsumes,
)

__all__ = ["KEPT", "outer_projection"]

KEPT = 64
"""Clauses that are kept of a projection, at most."""
ALTERNATIVES = 8
"""Rows of a clause that is kept, at most."""
MOST = 192
"""Lower clauses that are gone through, those among them that gaps make; and upper ones."""
FEW = 8
"""So many are gone through whatever it costs."""
WORK = 8_000_000
"""Coefficients that are met in all projections, about: some seconds."""
EXACT = 2**53
"""Whole numbers below this are exact in float64; rows that reach it are dropped."""
RARELY = -60.0
"""The logarithm of the share of points that break a clause, below which it is dropped."""


def outer_projection(
    bucket: Bucket,
    ranges: Ranges,
    tick: Tick = lambda count: None,
    *,
    work: int = WORK,
) -> Projection:
    """Some of what holds wherever a value of the variable obeys the bucket.

    Args:
        bucket: see :func:`~multiplexnet.compiler.cascade.projection.project.bucket_of`.
        ranges: of all variables.
        tick: called now and then; it may raise to stop.
        work: coefficients that are met, about.

    Example: 3 x between y and y + 1 leaves no whole x for y = 1, and that is not said.
        >>> from multiplexnet.compiler.cascade.projection.project import bucket_of
        >>> from multiplexnet.compiler.cascade.projection.rows import Range
        >>> ranges = {0: Range(0, 9), 1: Range(0, 2)}
        >>> clauses = [(Row(((0, 1), (1, -3)), 0),), (Row(((0, -1), (1, 3)), 1),)]
        >>> outer_projection(bucket_of(1, clauses, ranges), ranges).clauses
        ((Row(terms=((0, 1),), bound=6),),)
    """
    search = _Search(bucket, ranges, tick, _pairs(bucket, work))
    search.run()
    return Projection(tuple(_kept(search.found, ranges)), exact=True)


def _pairs(bucket: Bucket, work: int) -> int:
    """How many pairs of clauses such work is."""
    sizes = [sum(len(row.terms) for row in clause) for clause in bucket.clauses]
    mean = max(1, sum(sizes) // max(1, len(sizes)))
    return min(max(work // mean, FEW * FEW), MOST * MOST)


class _Search:
    """What pairs of clauses imply, no more than so many of them."""

    def __init__(self, bucket: Bucket, ranges: Ranges, tick: Tick, pairs: int) -> None:
        self._bucket = bucket
        self._ranges = ranges
        self._tick = tick
        self._pairs = pairs
        self._side = isqrt(pairs)
        self.found: dict[Clause, None] = {}

    def run(self) -> None:
        x = self._bucket.variable
        ends = self._bucket.range
        top: Clause = (Row(((x, 1),), ends.upper),)
        bottom: Clause = (Row(((x, -1),), -ends.lower),)
        uppers = (top, *self._most_broken(self._bucket.upper))
        lowers = (bottom, *self._most_broken(self._bucket.lower))
        for lower, upper in product(self._passing_gaps(lowers), uppers):
            clause = self._resolved(lower, upper)
            if clause is not None:
                self.found[clause] = None

    def _most_broken(self, clauses: Sequence[Clause]) -> Sequence[Clause]:
        """Clauses that most points break, if there are too many."""
        if len(clauses) < self._side:
            return clauses
        ordered = sorted(clauses, key=lambda own: -_broken(own, self._ranges))
        return ordered[: self._side - 1]

    def _passing_gaps(self, lowers: Sequence[Clause]) -> Sequence[Clause]:
        """Lower clauses, and those that they make with gaps, each gap at most once on the way."""
        reached: dict[Clause, frozenset[int]] = dict.fromkeys(lowers, frozenset())
        waiting = list(lowers)
        ways = (
            (clause, number, gap)
            for clause in waiting  # it grows while we walk
            for number, gap in enumerate(self._bucket.gaps)
            if number not in reached[clause]
        )
        for clause, number, gap in islice(ways, self._pairs):
            derived = self._resolved(clause, gap)
            if derived is None or not _is_short(derived, self._ranges):
                continue
            if not any(row.coefficient(self._bucket.variable) for row in derived):
                self.found[derived] = None
            elif derived not in reached and len(reached) < self._side:
                reached[derived] = reached[clause] | {number}
                waiting.append(derived)
        return waiting

    def _resolved(self, lower: Clause, other: Clause) -> Clause | None:
        """What a lower clause and an upper one or a gap imply together; the lower rows of a gap stay."""
        self._tick(0)
        x = self._bucket.variable
        rows = [row for row in lower if not row.coefficient(x)]
        rows += [row for row in other if row.coefficient(x) <= 0]
        lows = [row for row in lower if row.coefficient(x)]
        highs = [row for row in other if row.coefficient(x) > 0]
        rows += [shadows(x, low, high)[1] for low, high in product(lows, highs)]
        return clause_of(rows, self._ranges)


def _is_short(clause: Clause, ranges: Ranges) -> bool:
    return len(clause) <= ALTERNATIVES and all(
        row.size(ranges) + 1 < EXACT for row in clause
    )


def _kept(found: Iterable[Clause], ranges: Ranges) -> list[Clause]:
    """The clauses that most points break, without those that another one implies."""
    weighed = [(_broken(own, ranges), own) for own in found if _is_short(own, ranges)]
    kept: list[Clause] = []
    for share, clause in sorted(weighed, key=lambda pair: -pair[0]):
        if len(kept) == KEPT or share < RARELY:
            break
        if not any(subsumes(other, clause) for other in kept):
            kept.append(clause)
    return kept


def _broken(clause: Clause, ranges: Ranges) -> float:
    """About the logarithm of the share of all points between the ranges that break a clause."""
    return sum((_row_broken(row, ranges) for row in clause), 0.0)


def _row_broken(row: Row, ranges: Ranges) -> float:
    middle = sum(c * (ranges[v].lower + ranges[v].upper) for v, c in row.terms) / 2
    squares = sum((c * (ranges[v].upper - ranges[v].lower)) ** 2 for v, c in row.terms)
    apart = (row.bound - middle) / sqrt(max(squares / 12, 1e-9))
    if apart > 8:
        return -apart * apart / 2 - log(2.5 * apart)
    return log(erfc(apart / sqrt(2)) / 2)
