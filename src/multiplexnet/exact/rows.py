"""Rows ``a·x ≤ b``: a system of linear inequalities with integer coefficients, and exact evaluation of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

__all__ = ["Number", "Rows", "dot"]

Number = Fraction | int


@dataclass(frozen=True)
class Rows:
    """``A x ≤ b`` in ``n`` variables, ``strict`` rows ``<``; the coefficients of a row are coprime integers.

    Example:
        >>> rows = Rows.of([[1, 1], [Fraction(-1, 2), 0]], [1, 0], strict=[True, False])
        >>> rows.A, rows.contains((Fraction(1, 2), Fraction(1, 4)))
        (((1, 1), (-1, 0)), True)
        >>> rows.slacks((Fraction(1, 2), Fraction(1, 4)))
        (Fraction(1, 4), Fraction(1, 2))
    """

    A: tuple[tuple[int, ...], ...]
    b: tuple[Fraction, ...]
    strict: tuple[bool, ...]
    n: int

    @staticmethod
    def of(
        A: Sequence[Sequence[Number]],
        b: Sequence[Number],
        strict: Sequence[bool] | None = None,
        n: int | None = None,
    ) -> Rows:
        """The rows with rational coefficients, each scaled to coprime integers."""
        if strict is None:
            strict = [False] * len(b)
        if n is None:
            n = len(A[0]) if A else 0
        scaled = [_coprime(row, bound) for row, bound in zip(A, b, strict=True)]
        coefficients = tuple(row for row, _ in scaled)
        bounds = tuple(bound for _, bound in scaled)
        return Rows(coefficients, bounds, tuple(strict), n)

    @cached_property
    def norms(self) -> tuple[int, ...]:
        """``Σ_j |a_ij|`` of every row."""
        return tuple(sum(abs(c) for _, c in entries) for entries in self.entries)

    @cached_property
    def entries(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The places and coefficients of every row that are not 0."""
        return tuple(tuple((j, c) for j, c in enumerate(a) if c) for a in self.A)

    def __len__(self) -> int:
        return len(self.b)

    def subset(self, indices: Iterable[int]) -> Rows:
        """The rows with these indices, in the order given."""
        chosen = list(indices)
        return Rows(
            tuple(self.A[i] for i in chosen),
            tuple(self.b[i] for i in chosen),
            tuple(self.strict[i] for i in chosen),
            self.n,
        )

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            self.A + other.A, self.b + other.b, self.strict + other.strict, self.n
        )

    def reversed(self) -> Rows:
        """``a·x ≥ b`` for every row: together with the rows, the equalities ``a·x = b``."""
        A = tuple(tuple(-c for c in a) for a in self.A)
        b = tuple(-bound for bound in self.b)
        return Rows(A, b, (False,) * len(self), self.n)

    def slacks(self, point: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """``b − A x``, exactly."""
        scale = lcm(*(v.denominator for v in point))
        whole = [int(v * scale) for v in point]
        return tuple(
            bound - Fraction(sum(c * whole[j] for j, c in entries), scale)
            for entries, bound in zip(self.entries, self.b, strict=True)
        )

    def contains(self, point: Sequence[Fraction]) -> bool:
        """Whether the point satisfies every row."""
        for slack, is_strict in zip(self.slacks(point), self.strict, strict=True):
            if slack < 0 or (slack == 0 and is_strict):
                return False
        return True

    def contains_strictly(self, point: Sequence[Fraction]) -> bool:
        """Whether the point satisfies every row with slack: it then proves that no row is an implicit equality."""
        return all(slack > 0 for slack in self.slacks(point))

    def room(self, point: Sequence[Fraction]) -> Fraction | None:
        """Half the edge of the largest cube around the point inside the rows; ``None``: it is not strictly inside.

        Without rows it is 1.
        """
        sizes = [
            slack / (norm or 1)
            for slack, norm in zip(self.slacks(point), self.norms, strict=True)
        ]
        room = min(sizes, default=Fraction(1))
        return room if room > 0 else None


def dot(a: Sequence[Number], b: Sequence[Number]) -> Fraction:
    """``Σ a_i b_i``, exactly."""
    total = Fraction(0)
    for x, y in zip(a, b, strict=True):
        if x and y:
            total += x * y
    return total


def _coprime(row: Sequence[Number], bound: Number) -> tuple[tuple[int, ...], Fraction]:
    """The row with coprime integers for coefficients, and its bound scaled along."""
    entries = [(j, c) for j, c in enumerate(row) if c]
    scale = lcm(*(c.denominator for _, c in entries))
    whole = [c.numerator * (scale // c.denominator) for _, c in entries]
    divisor = gcd(*whole) or 1
    coprime = [0] * len(row)
    for (j, _), c in zip(entries, whole, strict=True):
        coprime[j] = c // divisor
    return tuple(coprime), Fraction(bound) * Fraction(scale, divisor)
