"""Linear equations over the dyadic rationals: Hermite's reduction by columns, one equation after the other.

A unimodular matrix ``U = [fixed, free]`` brings ``E U`` to echelon form: each equation is met by one column of
``fixed`` with the greatest common divisor of what is left, and does not see the ``free`` ones, which are a basis of the
integer kernel. Free columns are shortened after every equation, so that entries stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.reduction import Columns, reduce_basis, rounded
from multiplexnet.exact.rows import dot

__all__ = ["NotDyadic", "Solutions", "solutions"]


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
    free: Columns = [[int(i == j) for i in range(n)] for j in range(n)]
    origin = [Fraction(0)] * n
    for i, (row, right) in enumerate(zip(E, e, strict=True)):
        rest = right - dot(row, origin)
        pivot = _isolated(row, free, deadline)
        if pivot is None:
            if rest:
                raise ValueError(f"equation {i} contradicts the ones before it")
            continue
        share = rest / _dot(row, pivot)
        if share.denominator & (share.denominator - 1):
            raise NotDyadic(i)
        moved = [x + share * c for x, c in zip(origin, pivot, strict=True)]
        origin = _near_zero(moved, free, deadline)
    basis = tuple(tuple(column[i] for column in free) for i in range(n))
    return Solutions(tuple(origin), basis)


def _isolated(
    row: Sequence[int], free: Columns, deadline: Deadline
) -> list[int] | None:
    """Take the one column out of ``free`` that the equation sees, after Euclid's algorithm; shorten the others."""
    values = [_dot(row, column) for column in free]
    while True:
        deadline.check()
        seen = [j for j, value in enumerate(values) if value]
        if not seen:
            return None
        p = min(seen, key=lambda j: (abs(values[j]), sum(map(abs, free[j])), -j))
        if len(seen) == 1:
            break
        for j in seen:
            q = rounded(values[j], values[p])
            if j == p or not q:
                continue
            values[j] -= q * values[p]
            free[j] = [x - q * y for x, y in zip(free[j], free[p], strict=True)]
    pivot = free.pop(p)
    if any(abs(c) > 1 for column in free for c in column):
        reduce_basis(free, deadline)
    return pivot


def _near_zero(
    origin: list[Fraction], free: Columns, deadline: Deadline
) -> list[Fraction]:
    """The origin moved by whole steps of the basis while it gets shorter."""
    shorter = True
    while shorter:
        shorter = False
        for column in free:
            deadline.check()
            q = round(dot(origin, column) / _dot(column, column))
            if not q:
                continue
            moved = [x - q * c for x, c in zip(origin, column, strict=True)]
            if dot(moved, moved) < dot(origin, origin):
                origin = moved
                shorter = True
    return origin


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    pairs = zip(a, b, strict=True)
    return sum(x * y for x, y in pairs if x)
