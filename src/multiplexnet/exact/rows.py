"""Rows ``a·x ≤ b``: a system of linear inequalities with integer coefficients, and exact evaluation of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import TypeVar

__all__ = ["Entries", "Number", "Rows", "dot", "entries_of"]

Number = Fraction | int
N = TypeVar("N", Fraction, int, Number)
Entries = tuple[tuple[int, int], ...]
"""The places of a row, in order, where it is not 0, and what it is there."""


@dataclass(frozen=True)
class Rows:
    """``A x ≤ b`` in ``n`` variables, ``strict`` rows ``<``; the coefficients of a row are coprime integers.

    Rows are kept without their zeros: many mention a few of thousands of variables.

    Example:
        >>> rows = Rows.of([[1, 1], [Fraction(-1, 2), 0]], [1, 0], strict=[True, False])
        >>> rows.A, rows.contains((Fraction(1, 2), Fraction(1, 4)))
        (((1, 1), (-1, 0)), True)
        >>> rows.slacks((Fraction(1, 2), Fraction(1, 4)))
        (Fraction(1, 4), Fraction(1, 2))
    """

    entries: tuple[Entries, ...]
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
        if n is None:
            n = len(A[0]) if A else 0
        return Rows.sparse(list(map(entries_of, A)), b, strict, n)

    @staticmethod
    def sparse(
        entries: Sequence[Sequence[tuple[int, Number]]],
        b: Sequence[Number],
        strict: Sequence[bool] | None,
        n: int,
    ) -> Rows:
        """The same, of rows that are given by the places, in order, where they are not 0.

        Example:
            >>> Rows.sparse([[(1, Fraction(1, 2))]], [1], None, 3).A
            ((0, 1, 0),)
        """
        if strict is None:
            strict = [False] * len(b)
        scaled = [_coprime(row, bound) for row, bound in zip(entries, b, strict=True)]
        coefficients = tuple(row for row, _ in scaled)
        bounds = tuple(bound for _, bound in scaled)
        return Rows(coefficients, bounds, tuple(strict), n)

    @cached_property
    def A(self) -> tuple[tuple[int, ...], ...]:
        """The coefficients, zeros among them."""
        return tuple(_with_zeros(row, self.n) for row in self.entries)

    @property
    def coefficients(self) -> list[list[int]]:
        """Those of every row that are not 0."""
        return [[c for _, c in own] for own in self.entries]

    @cached_property
    def norms(self) -> tuple[int, ...]:
        """``Σ_j |a_ij|`` of every row."""
        return tuple(sum(abs(c) for _, c in entries) for entries in self.entries)

    def __len__(self) -> int:
        return len(self.b)

    def subset(self, indices: Iterable[int]) -> Rows:
        """The rows with these indices, in the order given."""
        chosen = list(indices)
        return Rows(
            tuple(self.entries[i] for i in chosen),
            tuple(self.b[i] for i in chosen),
            tuple(self.strict[i] for i in chosen),
            self.n,
        )

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            self.entries + other.entries,
            self.b + other.b,
            self.strict + other.strict,
            self.n,
        )

    def reversed(self) -> Rows:
        """``a·x ≥ b`` for every row: together with the rows, the equalities ``a·x = b``."""
        entries = tuple(tuple((j, -c) for j, c in own) for own in self.entries)
        b = tuple(-bound for bound in self.b)
        return Rows(entries, b, (False,) * len(self), self.n)

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


def entries_of(row: Sequence[N]) -> list[tuple[int, N]]:
    """The places where a row is not 0, and what it is there."""
    return [(j, c) for j, c in enumerate(row) if c]


def _with_zeros(entries: Entries, n: int) -> tuple[int, ...]:
    row = [0] * n
    for j, c in entries:
        row[j] = c
    return tuple(row)


def _coprime(
    entries: Sequence[tuple[int, Number]], bound: Number
) -> tuple[Entries, Fraction]:
    """The row with coprime integers for coefficients, and its bound scaled along."""
    scale = lcm(*(c.denominator for _, c in entries))
    whole = [c.numerator * (scale // c.denominator) for _, c in entries]
    divisor = gcd(*whole) or 1
    coprime = tuple((j, c // divisor) for (j, _), c in zip(entries, whole, strict=True))
    return coprime, Fraction(bound) * Fraction(scale, divisor)
