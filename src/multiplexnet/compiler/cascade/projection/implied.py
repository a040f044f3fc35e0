"""Clauses that others imply, row by row, found without looking at all the others.

A clause implies another one if each of its rows implies a row of the other one with the same left side
(:func:`~multiplexnet.compiler.cascade.projection.rows.subsumes`). So its left sides are some of those of the other one,
in the same order, and clauses can be kept as words in a tree are: each row is a step, and clauses that begin alike
share their first steps. Whether one of them implies a further clause is found by the steps that this clause allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from multiplexnet.compiler.cascade.projection.rows import Clause, Terms, subsumes

__all__ = ["Known", "Minimal"]


class _Node:
    """Where some rows lead: by left side and bound what may follow, and whether a clause ends here."""

    __slots__ = ("ends", "steps")

    def __init__(self) -> None:
        self.steps: dict[int, dict[int, _Node]] = {}
        self.ends = False


class Known:
    """Clauses that grow in number; tells whether one of them implies a further one.

    Example:
        >>> from multiplexnet.compiler.cascade.projection.rows import Row
        >>> known = Known()
        >>> known.add((Row(((0, 1),), 3),))
        >>> known.implies((Row(((0, 1),), 4), Row(((1, 1),), 0)))
        True
        >>> known.implies((Row(((0, 1),), 2), Row(((1, 1),), 0)))
        False
    """

    def __init__(self, clauses: Iterable[Clause] = ()) -> None:
        self._numbers: dict[Terms, int] = {}
        self._root = _Node()
        for clause in clauses:
            self.add(clause)

    def add(self, clause: Clause) -> None:
        """Know one more."""
        node = self._root
        for terms, bound in clause:
            number = self._numbers.setdefault(terms, len(self._numbers))
            node = node.steps.setdefault(number, {}).setdefault(bound, _Node())
        node.ends = True

    def remove(self, clause: Clause) -> None:
        """Forget a clause that was added."""
        node = self._root
        for terms, bound in clause:
            node = node.steps[self._numbers[terms]][bound]
        node.ends = False

    def implies(self, clause: Clause) -> bool:
        """Whether a known clause implies this one."""
        numbers = self._numbers
        rows = [(numbers[terms], bound) for terms, bound in clause if terms in numbers]
        return _leads_on(self._root, rows, 0)


def _leads_on(node: _Node, rows: Sequence[tuple[int, int]], start: int) -> bool:
    """Whether a clause ends here, or after some of the rows from ``start`` on, with their bounds or smaller ones."""
    if node.ends:
        return True
    steps = node.steps
    if not steps:
        return False
    for place in range(start, len(rows)):
        number, most = rows[place]
        for bound, following in steps.get(number, {}).items():
            if bound <= most and _leads_on(following, rows, place + 1):
                return True
    return False


class Minimal:
    """Clauses of which none implies another one, in the order they came."""

    def __init__(self) -> None:
        self._clauses: dict[Clause, None] = {}
        self._known = Known()
        self._by_terms: dict[Terms, dict[Clause, None]] = {}

    def __len__(self) -> int:
        return len(self._clauses)

    def __iter__(self) -> Iterator[Clause]:
        return iter(self._clauses)

    def add(self, clause: Clause) -> list[Clause] | None:
        """The clauses that this one replaces; ``None`` if it is implied itself, and not taken."""
        if self._known.implies(clause):
            return None
        replaced = self._implied_by(clause)
        for other in replaced:
            self.remove(other)
        self._clauses[clause] = None
        self._known.add(clause)
        for terms, _ in clause:
            self._by_terms.setdefault(terms, {})[clause] = None
        return replaced

    def remove(self, clause: Clause) -> None:
        """Forget one."""
        del self._clauses[clause]
        self._known.remove(clause)
        for terms, _ in clause:
            del self._by_terms[terms][clause]

    def _implied_by(self, clause: Clause) -> list[Clause]:
        if not clause:
            return list(self._clauses)
        candidates = [self._by_terms.get(terms, {}) for terms, _ in clause]
        return [c for c in min(candidates, key=len) if subsumes(clause, c)]
