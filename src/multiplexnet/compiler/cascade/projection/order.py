"""Variables leave one after the other; who leaves last is computed first.

Each round takes the variable whose projection promises the fewest new clauses. Ties go to the one that was declared
last, so that outputs are computed in the order they were declared where nothing speaks against it. Variables that
resolution could only treat by a dark shadow (no coefficient ±1 on one side) wait, which puts coarse grids before fine
ones in the order of computing. What a hidden variable is a function of leaves right after it: computed in pairs, counts
of the outputs so far are all that has to be remembered of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from multiplexnet.compiler.cascade.late_rows import eased, is_easy
from multiplexnet.compiler.cascade.projection.implied import Minimal
from multiplexnet.compiler.cascade.projection.project import (
    Bucket,
    Projection,
    Tick,
    bucket_of,
    projection,
)
from multiplexnet.compiler.cascade.projection.rows import Clause, Ranges

__all__ = ["Clauses", "Elimination", "HeldBackError", "Project"]

WATCHED = 256
"""After how many clauses the clock is looked at: each is compared with those before it."""
WIDE = 1_000
"""Variables in the clauses of one, each counted where it occurs, up to which those that occur twice are told apart."""

Cost = tuple[bool, int, int, int]
Project = Callable[[Bucket, Ranges, Tick], Projection]


class HeldBackError(Exception):
    """Outputs of late rows that clauses hold back from their easy ends."""

    def __init__(self, variables: Sequence[int]) -> None:
        super().__init__(variables)
        self.variables = tuple(variables)


class Clauses:
    """A conjunction of clauses in which none follows from another one alone; found by variable."""

    def __init__(self, clauses: Iterable[Clause] = ()) -> None:
        self._minimal = Minimal()
        self._numbers: dict[Clause, int] = {}
        self._by_variable: dict[int, set[Clause]] = {}
        self._signs: dict[Clause, dict[int, tuple[int, int]]] = {}
        self._count = 0
        self.touched: set[int] = set()
        """The variables whose clauses have changed; whoever looks at them empties it."""
        self.is_false = False
        for clause in clauses:
            self.add(clause)

    def __len__(self) -> int:
        return len(self._minimal)

    def __iter__(self) -> Iterator[Clause]:
        return iter(list(self._minimal))

    def of(self, variable: int) -> list[Clause]:
        """The clauses that mention a variable, older ones first."""
        return sorted(
            self._by_variable.get(variable, ()), key=self._numbers.__getitem__
        )

    def add(self, clause: Clause) -> None:
        if not clause:
            self.is_false = True
            return
        replaced = self._minimal.add(clause)
        if replaced is None:
            return
        for other in replaced:
            self._forget(other)
        self._count += 1
        self._numbers[clause] = self._count
        self._signs[clause] = _signs(clause)
        for v in self._signs[clause]:
            self._by_variable.setdefault(v, set()).add(clause)
        self.touched.update(self._signs[clause])

    def remove(self, clause: Clause) -> None:
        self._minimal.remove(clause)
        self._forget(clause)

    def _forget(self, clause: Clause) -> None:
        del self._numbers[clause]
        self.touched.update(self._signs[clause])
        for v in self._signs.pop(clause):
            self._by_variable[v].discard(clause)

    def signs(self, variable: int) -> list[tuple[int, int]]:
        """For every clause that mentions the variable its least and its largest coefficient in it."""
        return [
            self._signs[clause][variable]
            for clause in self._by_variable.get(variable, ())
        ]

    def degree(self, variable: int) -> int:
        """How many variables share a clause with this one, itself counted; a bound where they are very many."""
        own = [self._signs[clause] for clause in self._by_variable.get(variable, ())]
        bound = sum(map(len, own))
        return bound if bound > WIDE else len(set().union(*own))


def _signs(clause: Clause) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in clause:
        for v, c in row.terms:
            low, high = found.get(v, (c, c))
            found[v] = min(low, c), max(high, c)
    return found


class Elimination:
    """Projects clauses variable by variable.

    Args:
        clauses: what has to hold.
        ranges: of all variables.
        variables: those that shall leave, in declared order.
        after: for a variable those that have to be computed before it (the arguments of a hidden variable).
        order: the order in which the variables are computed, if the user has named it.
        tick: called with the variable that leaves and the number of clauses so far; it may raise to stop.
        ends: the easy ends of outputs of late rows, which leave by taking one of them, whichever it is.
        torn: the output that has to be computed first, if there is one.
        project: what makes the clauses that are left of a bucket.
    """

    def __init__(
        self,
        clauses: Iterable[Clause],
        ranges: Ranges,
        variables: Sequence[int],
        *,
        after: Mapping[int, frozenset[int]],
        order: Sequence[int] | None = None,
        tick: Callable[[int, int], None] = lambda variable, count: None,
        ends: Mapping[int, Sequence[int]] | None = None,
        torn: int | None = None,
        project: Project = projection,
    ) -> None:
        self.clauses = Clauses()
        for number, clause in enumerate(clauses):
            self.clauses.add(clause)
            if number % WATCHED == WATCHED - 1:
                tick(variables[0], 0)
        self._ranges = ranges
        self._after = after
        self._tick = tick
        self._project = project
        self._ends = ends or {}
        self._torn = torn
        self._left = dict.fromkeys(variables)
        self._place = {v: i for i, v in enumerate(variables)}
        self._costs: dict[int, Cost] = {}
        self._queue: list[tuple[Cost, int]] = []
        self._leaving = None if order is None else list(order)
        self.buckets: list[Bucket] = []
        self.projections: list[Projection] = []

    def run(self) -> None:
        """All variables leave; ``buckets`` are in the order of computing then, ``clauses`` speak of what is known."""
        while self._left and not self.clauses.is_false:
            variable = self._next()
            del self._left[variable]
            bucket = bucket_of(variable, self.clauses.of(variable), self._ranges)
            found = self._projected(bucket)
            for clause in bucket.clauses:
                self.clauses.remove(clause)
            for clause in found.clauses:
                self.clauses.add(clause)
            self._tick(variable, len(found.clauses))
            self.buckets.insert(0, bucket)
            self.projections.insert(0, found)

    def _projected(self, bucket: Bucket) -> Projection:
        variable = bucket.variable
        if variable in self._ends:
            return eased(bucket, self._ends[variable][0], self._ranges)
        return self._project(
            bucket, self._ranges, lambda count: self._tick(variable, count)
        )

    def _may_leave(self, variable: int) -> bool:
        """Whether a variable leaves by projection, or no clause holds it back from its easy ends."""
        if variable == self._torn:
            return len(self._left) == 1
        return all(
            is_easy(c, variable, end, self._ranges)
            for end in self._ends.get(variable, ())
            for c in self.clauses.of(variable)
        )

    def _next(self) -> int:
        if self._leaving is not None:
            named = self._leaving.pop()
            if not self._may_leave(named):
                raise HeldBackError([named])
            return named
        self._weigh()
        needed = {v for w, own in self._after.items() if w in self._left for v in own}
        arguments = (
            self._after.get(self.buckets[0].variable, ()) if self.buckets else ()
        )
        following = [
            v
            for v in arguments
            if v in self._left and v not in needed and self._may_leave(v)
        ]
        if following:
            return min(following, key=self._costs.__getitem__)
        return self._cheapest(needed)

    def _weigh(self) -> None:
        """What each variable costs whose clauses have changed; the first time, every one."""
        changed = self.clauses.touched if self._costs else self._left
        for v in changed:
            if v in self._left:
                self._costs[v] = self._cost(v)
                heappush(self._queue, (self._costs[v], v))
        self.clauses.touched.clear()

    def _cheapest(self, needed: Collection[int]) -> int:
        """The variable of the least cost among those that may leave; others keep their places in the queue."""
        waiting = []
        found = None
        while self._queue and found is None:
            cost, v = heappop(self._queue)
            if v not in self._left or cost != self._costs[v]:
                continue
            if v in needed or not self._may_leave(v):
                waiting.append((cost, v))
            else:
                found = v
        for entry in waiting:
            heappush(self._queue, entry)
        if found is None:
            raise HeldBackError([v for v in self._left if v in self._ends])
        return found

    def _cost(self, variable: int) -> Cost:
        signs = self.clauses.signs(variable)
        lower = 1 + sum(low < 0 for low, _ in signs)
        upper = 1 + sum(high > 0 for _, high in signs)
        dark = any(low < -1 for low, _ in signs) and any(high > 1 for _, high in signs)
        return (
            dark,
            lower * upper - len(signs),
            self.clauses.degree(variable),
            -self._place[variable],
        )
