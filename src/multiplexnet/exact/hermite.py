"""Linear equations over the dyadic rationals: Hermite's reduction by columns, one equation after the other.

A unimodular matrix ``U = [fixed, free]`` brings ``E U`` to echelon form: each equation is met by one column of
``fixed`` with the greatest common divisor of what is left, and does not see the ``free`` ones, which are a basis of the
integer kernel. Free columns are shortened after every equation, so that entries stay small. Columns are kept without
their zeros: of a thousand outputs with one sum each has two entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.reduction import reduce_basis, rounded
from multiplexnet.exact.rows import Entries, Number, entries_of

__all__ = ["NotDyadic", "Solutions", "solutions"]

Column = dict[int, int]
"""The entries of a column that are not 0, by their places."""


class NotDyadic(Exception):
    """Equation ``row`` asks for a number whose denominator is not a power of two."""

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(
            f"equation {row} has no solution whose denominators are powers of two"
        )


@dataclass(frozen=True)
class Solutions:
    """All dyadic solutions ``x = origin + basis t`` of some equations, ``t`` dyadic.

    Args:
        origin: one solution, with the smallest denominator there is.
        basis: one row per variable, integers; its columns are a basis of the integer kernel.
    """

    origin: tuple[Fraction, ...]
    basis: tuple[tuple[int, ...], ...]

    @cached_property
    def entries(self) -> tuple[Entries, ...]:
        """The rows of the basis without their zeros."""
        return tuple(tuple(entries_of(row)) for row in self.basis)

    @property
    def dimension(self) -> int:
        return len(self.basis[0])


def solutions(
    E: Sequence[Sequence[int]], e: Sequence[Fraction], deadline: Deadline = NEVER
) -> Solutions:
    """The dyadic solutions of ``E x = e`` (at least one equation).

    Raises:
        NotDyadic: there are rational solutions but no dyadic ones.
        ValueError: there is no solution at all.

    Example:
        >>> found = solutions([[1, 1, 1]], [Fraction(1)])
        >>> [int(v) for v in found.origin], found.basis
        ([0, 0, 1], ((1, 0), (0, 1), (-1, -1)))
    """
    n = len(E[0])
    free: list[Column] = [{j: 1} for j in range(n)]
    origin = [Fraction(0)] * n
    for i, (row, right) in enumerate(zip(E, e, strict=True)):
        rest = right - sum(c * x for c, x in zip(row, origin, strict=True) if c and x)
        pivot = _isolated(row, free, n, deadline)
        if pivot is None:
            if rest:
                raise ValueError(f"equation {i} contradicts the ones before it")
            continue
        share = rest / _dot(pivot, row)
        if share.denominator & (share.denominator - 1):
            raise NotDyadic(i)
        _add(origin, share, pivot)
        _move_near_zero(origin, free, deadline)
    basis = [[0] * len(free) for _ in range(n)]
    for j, column in enumerate(free):
        for i, c in column.items():
            basis[i][j] = c
    return Solutions(tuple(origin), tuple(map(tuple, basis)))


def _isolated(
    row: Sequence[int], free: list[Column], n: int, deadline: Deadline
) -> Column | None:
    """Take the one column out of ``free`` that the equation sees, after Euclid's algorithm; shorten the others."""
    values = [_dot(column, row) for column in free]
    while True:
        deadline.check()
        seen = [j for j, value in enumerate(values) if value]
        if not seen:
            return None
        p = min(seen, key=lambda j: (abs(values[j]), _length(free[j]), -j))
        if len(seen) == 1:
            break
        for j in seen:
            q = rounded(values[j], values[p])
            if j == p or not q:
                continue
            values[j] -= q * values[p]
            free[j] = _without(free[j], q, free[p])
    pivot = free.pop(p)
    if any(abs(c) > 1 for column in free for c in column.values()):
        dense = [[column.get(i, 0) for i in range(n)] for column in free]
        reduce_basis(dense, deadline)
        free[:] = [{i: c for i, c in enumerate(own) if c} for own in dense]
    return pivot


def _length(column: Column) -> int:
    return sum(map(abs, column.values()))


def _without(column: Column, times: int, other: Column) -> Column:
    """``column − times · other``."""
    found = dict(column)
    for i, c in other.items():
        left = found.pop(i, 0) - times * c
        if left:
            found[i] = left
    return found


def _add(point: list[Fraction], times: Number, column: Column) -> None:
    """Moves a point by a multiple of a column."""
    for i, c in column.items():
        point[i] += times * c


def _move_near_zero(
    origin: list[Fraction], free: Sequence[Column], deadline: Deadline
) -> None:
    """Moves the origin by whole steps of the basis while it gets shorter."""
    shorter = True
    while shorter:
        shorter = False
        for column in free:
            deadline.check()
            product = sum((c * origin[i] for i, c in column.items()), Fraction(0))
            square = sum(c * c for c in column.values())
            q = round(product / square)
            # |x − q c|² < |x|²
            if q and q * q * square < 2 * q * product:
                _add(origin, -q, column)
                shorter = True


def _dot(column: Column, other: Sequence[int]) -> int:
    return sum(c * other[i] for i, c in column.items())
