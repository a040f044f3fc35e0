"""Short bases of integer lattices: the algorithm of Lenstra, Lenstra and Lovász, in integers throughout.

The integral form of Cohen, *A Course in Computational Algebraic Number Theory*, algorithm 2.6.7: instead of the
Gram–Schmidt coefficients μ_kj it keeps ``λ_kj = d_j μ_kj`` with ``d_j`` the determinants of the leading Gram matrices.
"""

from __future__ import annotations

from fractions import Fraction

from multiplexnet.exact.deadline import NEVER, Deadline

__all__ = ["Columns", "reduce_basis", "rounded"]

Columns = list[list[int]]


def reduce_basis(basis: Columns, deadline: Deadline = NEVER) -> None:
    """Make the vectors of a basis short, in place.

    Example:
        >>> basis = [[1, 0, 3], [100, 1, 299]]
        >>> reduce_basis(basis)
        >>> basis
        [[0, 1, -1], [1, 2, 1]]
    """
    state = _Reduction(basis)
    k = 1
    while k < len(basis):
        deadline.check()
        state.extend(k)
        state.shorten(k, k - 1)
        if state.should_swap(k):
            state.swap(k)
            k = max(1, k - 1)
        else:
            for j in reversed(range(k - 1)):
                state.shorten(k, j)
            k += 1


class _Reduction:
    """``d[j + 1]`` is d_j (``d[0] = 1``); ``scaled[k][j]`` is λ_kj. Vectors up to ``last`` are taken in."""

    def __init__(self, basis: Columns) -> None:
        self.basis = basis
        self.d = [1]
        self.scaled: Columns = []
        self.last = -1
        if basis:
            self.extend(0)

    def extend(self, k: int) -> None:
        if k <= self.last:
            return
        self.last = k
        row: list[int] = []
        for j in range(k + 1):
            other = row if j == k else self.scaled[j]
            u = sum(x * y for x, y in zip(self.basis[k], self.basis[j], strict=True))
            for i in range(j):
                u = (self.d[i + 1] * u - row[i] * other[i]) // self.d[i]
            row.append(u)
        self.d.append(row.pop())
        self.scaled.append(row)

    def shorten(self, k: int, j: int) -> None:
        if 2 * abs(self.scaled[k][j]) <= self.d[j + 1]:
            return
        q = rounded(self.scaled[k][j], self.d[j + 1])
        long = self.basis[k]
        short = self.basis[j]
        self.basis[k] = [x - q * y for x, y in zip(long, short, strict=True)]
        own = self.scaled[k]
        other = self.scaled[j]
        own[j] -= q * self.d[j + 1]
        for i in range(j):
            own[i] -= q * other[i]

    def should_swap(self, k: int) -> bool:
        """Lovász's condition fails: the projection of vector k is much shorter than that of its neighbour."""
        d = self.d
        product = self.scaled[k][k - 1]
        projected = d[k + 1] * d[k - 1] + product**2
        return 4 * projected < 3 * d[k] ** 2

    def swap(self, k: int) -> None:
        d = self.d
        before = k - 1
        after = k + 1
        own = self.scaled[k]
        product = own[before]
        self.basis[before : k + 1] = [self.basis[k], self.basis[before]]
        beginning = own[:before]
        own[:before] = self.scaled[before]
        self.scaled[before] = beginning
        fresh = (d[before] * d[after] + product**2) // d[k]
        for row in self.scaled[after : self.last + 1]:
            t = row[k]
            row[k] = (d[after] * row[before] - product * t) // d[k]
            row[before] = (fresh * t + product * row[k]) // d[after]
        d[k] = fresh


def rounded(a: int, b: int) -> int:
    """``a / b`` rounded to the nearest integer."""
    return round(Fraction(a, b))
