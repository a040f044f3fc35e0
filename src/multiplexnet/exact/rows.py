"""Rows ``a·x ≤ b``: a system of linear inequalities with integer coefficients, and exact evaluation of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

__all__ = ["Rows"]

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
        scaled = [_coprime(row, bound) for row, bound in zip(A, b, strict=True)]
        flags = tuple(strict) if strict is not None else (False,) * len(scaled)
        width = n if n is not None else len(A[0]) if A else 0
        return Rows(tuple(a for a, _ in scaled), tuple(bound for _, bound in scaled), flags, width)

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
        return Rows(self.A + other.A, self.b + other.b, self.strict + other.strict, self.n)

    def slacks(self, point: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """``b − A x``, exactly."""
        scale = lcm(*(v.denominator for v in point))
        whole = [int(v * scale) for v in point]
        return tuple(
            bound - Fraction(sum(map(int.__mul__, a, whole)), scale)
            for a, bound in zip(self.A, self.b, strict=True)
        )

    def contains(self, point: Sequence[Fraction]) -> bool:
        """Whether the point satisfies every row."""
        return all(
            s > 0 if tight else s >= 0
            for s, tight in zip(self.slacks(point), self.strict, strict=True)
        )

    def contains_strictly(self, point: Sequence[Fraction]) -> bool:
        """Whether the point satisfies every row with slack: it then proves that no row is an implicit equality."""
        return all(s > 0 for s in self.slacks(point))


def _coprime(row: Sequence[Number], bound: Number) -> tuple[tuple[int, ...], Fraction]:
    scale = lcm(*(c.denominator for c in row))
    whole = [c.numerator * (scale // c.denominator) for c in row]
    divisor = gcd(*whole) or 1
    return tuple(c // divisor for c in whole), Fraction(bound) * Fraction(scale, divisor)
