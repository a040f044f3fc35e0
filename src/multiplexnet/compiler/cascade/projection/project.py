r"""One variable leaves: from clauses over x and others to clauses over the others alone, on whole numbers.

The clauses that mention x are its *bucket*. Each of them, where its other rows fail, asks for ``x ≥ some ends``
(*lower*), for ``x ≤ some ends`` (*upper*), or for one of the two, which leaves a *gap* in between. Given the others,
the values of x that obey are therefore an interval with gaps.

**Resolution.** A lower row ``a x ≥ l`` and an upper row ``b x ≤ u`` leave room for a whole number if

    b l + (a − 1)(b − 1) ≤ a u

(Pugh's dark shadow; it says ``⌈l/a⌉ ≤ ⌊u/b⌋`` exactly if a = 1 or b = 1, and implies it always). Where a, b > 1
:mod:`~multiplexnet.compiler.cascade.projection.between` says more. Write l → u for what is said; it may be several
clauses, and what follows is meant for each of them. A lower clause ``C ∨ x ≥ l_1 ∨ …`` and an upper one ``D ∨ x ≤ u_1
∨ …`` give ``C ∨ D ∨ l_i → u_k …``. A lower clause and a gap ``D ∨ x ≤ u_1 ∨ … ∨ x ≥ m_1 ∨ …`` give a further lower
clause ``C ∨ D ∨ l_i → u_k … ∨ x ≥ m_1 ∨ …``, each gap at most once on the way. The projection is what lower clauses,
given and found, make with upper ones.

**Theorem.** Where the projection holds, some whole x obeys the bucket; if no shadow was dark (all pairs had a = 1 or
b = 1, or l → u was found exactly), the converse holds, too.

*Proof.* Fix the others. Call a lower clause active if its rows without x fail; then it asks for x ≥ e with e the
least of its ends ⌈l/a⌉. Let x be the largest such e (the range of x is a lower clause that is always active), asked
for by c. An upper clause d whose rows without x fail: the clause made of c and d holds, so some l_i → u_k does, and x
≤ ⌈l_i/a⌉ ≤ ⌊u_k/b⌋. A gap g whose rows without x fail: if it was used on the way to c, a clause before c, active as
well, asks for g's upper part. Otherwise the clause made of c and g, or one that implies it, was found, and x
satisfies it: either some l_i → u_k holds and x is below the gap, or x is above it. So x obeys. Conversely every step
is an implication over the whole numbers if → is exact. ∎

**Room.** «All different» has a gap for every other output, and resolution would pass them in every order. Often that
is needless: gaps that together block fewer values than lie between a lower clause and each upper one, whatever the
others are, leave one free. No gap is passed from such a lower clause. (In the proof: if it is the one that asks for the
largest e, some value between e and the least upper end is in no gap, and obeys.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import inf, prod

from multiplexnet.compiler.cascade.projection.between import between
from multiplexnet.compiler.cascade.projection.implied import Known, Minimal
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Range,
    Ranges,
    Row,
    Simplifier,
    Terms,
)

__all__ = ["Bucket", "Projection", "Tick", "bucket_of", "projection"]

Tick = Callable[[int], None]

MOST = 64
"""So many clauses may two make together; beyond, only dark shadows are taken."""


@dataclass(frozen=True)
class Bucket:
    """The clauses that mention a variable.

    Args:
        variable: its number.
        range: where it stays.
        lower: clauses that ask for ``x ≥ …`` where their other rows fail.
        upper: clauses that ask for ``x ≤ …``.
        gaps: clauses that ask for one of the two.
    """

    variable: int
    range: Range
    lower: tuple[Clause, ...]
    upper: tuple[Clause, ...]
    gaps: tuple[Clause, ...]

    @property
    def clauses(self) -> tuple[Clause, ...]:
        return (*self.lower, *self.upper, *self.gaps)


@dataclass(frozen=True)
class Projection:
    """What is left of a bucket without its variable.

    Args:
        clauses: they hold if, and only if where ``exact``, some value of the variable obeys. Those of an outer
            projection (:mod:`~multiplexnet.compiler.cascade.projection.outer`) hold where one does, and elsewhere, too.
        exact: whether no shadow was dark.
    """

    clauses: tuple[Clause, ...]
    exact: bool


def bucket_of(variable: int, clauses: Iterable[Clause], ranges: Ranges) -> Bucket:
    """The bucket of a variable, of clauses that mention it."""
    kinds: dict[tuple[bool, bool], list[Clause]] = {}
    for clause in clauses:
        signs = [row.coefficient(variable) for row in clause]
        kinds.setdefault(
            (any(c < 0 for c in signs), any(c > 0 for c in signs)), []
        ).append(clause)
    return Bucket(
        variable,
        ranges[variable],
        tuple(kinds.get((True, False), ())),
        tuple(kinds.get((False, True), ())),
        tuple(kinds.get((True, True), ())),
    )


def projection(
    bucket: Bucket, ranges: Ranges, tick: Tick = lambda count: None
) -> Projection:
    """The bucket without its variable.

    Args:
        bucket: see :func:`bucket_of`.
        ranges: of all variables.
        tick: called with the number of clauses so far; it may raise to stop.

    Example: x between y and 5, and not strictly between 0 and 10 − y.
        >>> ranges = {0: Range(0, 9), 1: Range(-20, 20)}
        >>> y_to_5 = [(Row(((0, 1), (1, -1)), 0),), (Row(((1, 1),), 5),)]
        >>> gap = (Row(((1, 1),), 0), Row(((0, -1), (1, -1)), -10))
        >>> projection(bucket_of(1, [*y_to_5, gap], ranges), ranges).clauses  # 0 ≤ y ≤ 5, and y ≤ 0 or y ≥ 5
        ((Row(terms=((0, 1),), bound=5),), (Row(terms=((0, -1),), bound=-5), Row(terms=((0, 1),), bound=0)))
    """
    search = _Search(bucket, ranges, tick)
    search.run()
    return Projection(tuple(search.found), search.exact)


Conditions = dict[Terms, int]


@dataclass(frozen=True)
class _Side:
    """A clause by what its rows say of a variable: nothing, ``≥``, ``≤``."""

    clause: Clause
    others: tuple[Row, ...]
    lowers: tuple[Row, ...]
    uppers: tuple[Row, ...]

    @staticmethod
    def of(x: int, clause: Clause) -> _Side:
        signs = [row.coefficient(x) for row in clause]
        return _Side(
            clause,
            tuple(row for row, c in zip(clause, signs, strict=True) if not c),
            tuple(row for row, c in zip(clause, signs, strict=True) if c < 0),
            tuple(row for row, c in zip(clause, signs, strict=True) if c > 0),
        )

    @property
    def conditions(self) -> Conditions:
        """The rows that do not mention the variable, by their left sides."""
        return dict(self.others)


@dataclass(frozen=True)
class _Meeting:
    """What lower rows and upper rows leave of the others.

    Args:
        parts: rows of which one holds, for every clause that they make; without those that always hold.
        exact: whether there is no room elsewhere.
        real: the same over the real numbers, as rows of which one holds.
    """

    parts: tuple[tuple[Row, ...], ...]
    exact: bool
    real: tuple[Row, ...]


class _Search:
    """The clauses that resolution finds, without those that another one implies."""

    def __init__(self, bucket: Bucket, ranges: Ranges, tick: Tick) -> None:
        self._bucket = bucket
        self._ranges = ranges
        self._tick = tick
        self._simplifier = Simplifier(ranges)
        self._meetings: dict[tuple[Clause, Clause], _Meeting] = {}
        self._gaps = [_Side.of(bucket.variable, gap) for gap in bucket.gaps]
        self._passed: dict[Clause, list[int]] = {}
        self.found = Minimal()
        self.exact = True

    def run(self) -> None:
        x = self._bucket.variable
        ends = self._bucket.range
        top: Clause = (Row(((x, 1),), ends.upper),)
        uppers = [_Side.of(x, clause) for clause in (top, *self._bucket.upper)]
        conditions = [upper.conditions for upper in uppers]
        for lower in self._lower_clauses():
            opposite = {
                tuple((v, -c) for v, c in t): b for t, b in lower.conditions.items()
            }
            for upper, own in zip(uppers, conditions, strict=True):
                if not _leave_nothing_out(own, opposite):
                    for clause in self._resolved(lower, upper):
                        self._keep(clause)

    def _lower_clauses(self) -> Sequence[_Side]:
        """Lower clauses, given and found by passing gaps."""
        x = self._bucket.variable
        bottom: Clause = (Row(((x, -1),), -self._bucket.range.lower),)
        given = (bottom, *self._bucket.lower)
        roomy = set() if self._bucket.gaps else set(given)
        blocked = sum(self._blocked(gap) for gap in self._bucket.gaps)
        if self._bucket.gaps and blocked < inf:
            roomy = {clause for clause in given if self._room(clause) > blocked}
        reached: list[tuple[_Side, frozenset[int]]] = [
            (_Side.of(x, c), frozenset()) for c in given
        ]
        known = Known(given)
        for lower, used in reached:  # it grows while we walk
            self._tick(len(reached))
            if not used and lower.clause in roomy:
                continue
            for number in self._passing(lower.lowers):
                self._tick(
                    len(reached)
                )  # clauses that come to nothing take their time, too
                if number in used:
                    continue
                for derived in self._resolved(lower, self._gaps[number]):
                    if known.implies(derived):
                        continue
                    side = _Side.of(x, derived)
                    if side.lowers:
                        reached.append((side, used | {number}))
                        known.add(derived)
                    else:
                        self._keep(derived)
        return [lower for lower, _ in reached]

    def _passing(self, lowers: Clause) -> list[int]:
        """The gaps that say something where these rows ask for ``x ≥ …``: most leave room wherever they end."""
        found = self._passed.get(lowers)
        if found is None:
            found = self._passed[lowers] = [
                number
                for number, gap in enumerate(self._gaps)
                if self._meeting(lowers, gap.uppers).parts
            ]
        return found

    def _blocked(self, gap: Clause) -> float:
        """The most values that a gap can block."""
        x = self._bucket.variable
        widths = [
            -1 - self._apart(low, high)
            for low, high in product(_lowers(x, gap), _uppers(x, gap))
        ]
        return max(0, min(widths))

    def _room(self, lower: Clause) -> float:
        """The least number of values between a lower clause and any upper one."""
        x = self._bucket.variable
        ends = self._bucket.range
        uppers = [(Row(((x, 1),), ends.upper),), *self._bucket.upper]
        return min(
            max(
                1 + self._apart(low, high)
                for low, high in product(_lowers(x, lower), _uppers(x, upper))
            )
            for upper in uppers
        )

    def _apart(self, low: Row, high: Row) -> float:
        """The least that the end of an upper row can be less that of a lower one; −∞ if one of them is divided."""
        x = self._bucket.variable
        if low.coefficient(x) != -1 or high.coefficient(x) != 1:
            return -inf
        together: dict[int, int] = {}
        for row in (low, high):
            for v, c in row.without(x):
                together[v] = together.get(v, 0) + c
        most = Row(tuple((v, c) for v, c in sorted(together.items()) if c), 0).most(
            self._ranges
        )
        return low.bound + high.bound - most

    def _resolved(self, lower: _Side, other: _Side) -> list[Clause]:
        """A lower clause with an upper one or a gap; the lower rows of a gap stay."""
        clause_of = self._simplifier.clause
        meeting = self._meeting(lower.lowers, other.uppers)
        rows = (*lower.others, *other.others, *other.lowers)
        clauses = [clause_of((*rows, *part)) for part in meeting.parts]
        found = [clause for clause in clauses if clause is not None]
        if self.exact and not meeting.exact:
            real = clause_of((*rows, *meeting.real))
            self.exact = set(found) <= {real} and (real in found or real is None)
        return found

    def _meeting(self, lowers: Clause, uppers: Clause) -> _Meeting:
        """What rows of two clauses leave of the others; the same rows meet in many clauses."""
        found = self._meetings.get((lowers, uppers))
        if found is None:
            found = self._meetings[lowers, uppers] = self._met(lowers, uppers)
        return found

    def _met(self, lowers: Clause, uppers: Clause) -> _Meeting:
        x = self._bucket.variable
        pairs = [
            between(x, low, high, self._ranges) for low, high in product(lowers, uppers)
        ]
        if prod(len(pair.clauses) for pair in pairs) > MOST:
            pairs = [pair.dark_alone for pair in pairs]
        every = product(*(pair.clauses for pair in pairs))
        parts = [tuple(chain.from_iterable(clauses)) for clauses in every]
        return _Meeting(
            tuple(p for p in parts if self._simplifier.clause(p) is not None),
            all(pair.exact for pair in pairs),
            tuple(pair.real for pair in pairs),
        )

    def _keep(self, clause: Clause) -> None:
        if self.found.add(clause) is not None:
            self._tick(len(self.found))


def _leave_nothing_out(rows: Conditions, opposite: Conditions) -> bool:
    """Whether one row and one with the opposite left side hold everywhere, as of two clauses on different labels."""
    for terms, bound in opposite.items():
        other = rows.get(terms)
        if other is not None and -bound <= other + 1:
            return True
    return False


def _lowers(x: int, clause: Clause) -> list[Row]:
    return [row for row in clause if row.coefficient(x) < 0]


def _uppers(x: int, clause: Clause) -> list[Row]:
    return [row for row in clause if row.coefficient(x) > 0]
