r"""Cones ``√(Σ w_i (Y x + y)_i²) ≤ s·x + t``: balls, ellipsoids, paraboloids and second-order cones, exactly.

Seen from a point c strictly inside, a cone has a *gauge*: ``c + q`` lies inside where ``g(q) < 1``, and on the boundary
where ``g(q) = 1``. With ``y0 = Y c + y``, ``t0 = s·c + t`` and ``N = t0² − |y0|² > 0`` (lengths with weights) the gauge
in the direction q is the larger root of ``N g² + 2 β g + γ = 0``, ``β = t0 s·q − y0·Y q``, ``γ = (s·q)² − |Y q|²``, so
that

    g(q) = (−β + √(β² − N γ)) / N  =  w·q + |L q|,

linear plus a norm. What stands under the root is a sum of squares,

    β² − N γ  =  (|y0| s·q − t0 y0·Yq / |y0|)²  +  N |Yq − y0 (y0·Yq) / |y0|²|²,

and ``t0² |Yq|²`` where y0 = 0. So every row of L is the root of a rational number times a rational row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, floor, isqrt, lcm

import numpy as np
from numpy.typing import NDArray

from multiplexnet.exact.rows import dot

__all__ = ["Cone", "ConeGauge", "Reach", "reaches", "root_above"]

Vector = tuple[Fraction, ...]
Array = NDArray[np.float64]

ROOT_BITS = 64
"""Digits of a root that is rounded up."""


def root_above(number: Fraction) -> Fraction:
    """A fraction that is at least the square root, and larger by at most one part in 2⁶⁰.

    Example:
        >>> root_above(Fraction(2)) ** 2 >= 2, float(root_above(Fraction(9, 4)))
        (True, 1.5)
    """
    if number <= 0:
        return Fraction(0)
    bits = number.denominator.bit_length() - number.numerator.bit_length()
    shift = ROOT_BITS + (bits + 1) // 2
    scaled = number * Fraction(4) ** shift
    whole = -(-scaled.numerator // scaled.denominator)
    found = isqrt(whole)
    if found * found < whole:
        found += 1
    return Fraction(found) / Fraction(2) ** shift


@dataclass(frozen=True)
class Reach:
    """How far a coordinate gets: ``|x − middle| ≤ size · √(Σ w (Y x + y)²)`` for every x, with the least size, nearly.

    Args:
        middle: the coordinate where the norm is least.
        size: at least ``√z_i`` with ``Q z = e_i``, ``Q = Yᵀ W Y``, and hardly more.
    """

    middle: Fraction
    size: Fraction

    @property
    def around(self) -> tuple[Fraction, Fraction]:
        """The middle from below and from above, in few digits if it has many."""
        middle = self.middle
        longest = max(middle.numerator.bit_length(), middle.denominator.bit_length())
        if longest <= 2 * ROOT_BITS:
            return middle, middle
        bits = self.size.denominator.bit_length() - self.size.numerator.bit_length()
        unit = Fraction(2) ** (bits + ROOT_BITS)
        return Fraction(floor(middle * unit)) / unit, Fraction(
            ceil(middle * unit)
        ) / unit


def reaches(
    weights: Sequence[Fraction],
    rows: Sequence[Mapping[int, Fraction]],
    shifts: Sequence[Fraction],
    n: int,
) -> list[Reach | None]:
    """For each coordinate how far it gets within a norm; ``None``: the norm does not bound it.

    With ``Q z = e_i`` the inequality of Cauchy and Schwarz says ``x_i + z·YᵀWy = Σ w (Y z) (Y x + y) ≤ √z_i norm``.

    Args:
        weights: of the squares.
        rows: the coefficients of Y that are not 0.
        shifts: y.
        n: the number of coordinates.

    Example:
        >>> two, one, zero = Fraction(2), Fraction(1), Fraction(0)
        >>> found = reaches([one, one], [{0: two, 1: one}, {1: one}], [zero, -one], 3)
        >>> found[1], found[2]
        (Reach(middle=Fraction(1, 1), size=Fraction(1, 1)), None)
    """
    Q: list[dict[int, Fraction]] = [{} for _ in range(n)]
    h = [Fraction(0)] * n
    for weight, row, shift in zip(weights, rows, shifts, strict=True):
        for i, a in row.items():
            own = weight * a
            h[i] += own * shift
            held = Q[i]
            for j, b in row.items():
                if j >= i:
                    held[j] = held[j] + own * b if j in held else own * b
    for i, held in enumerate(Q):
        for j, c in held.items():
            if j > i:
                Q[j][i] = c
    found: list[Reach | None] = [None] * n
    for part in _coupled(Q):
        block = [[Q[i].get(j, Fraction(0)) for j in part] for i in part]
        for i, z in zip(part, _columns_of_inverse(block), strict=True):
            if z is None:
                continue
            own = z[part.index(i)]
            middle = sum(
                (h[j] * c for j, c in zip(part, z, strict=True) if c), Fraction(0)
            )
            found[i] = Reach(-middle, root_above(own))
    return found


def _coupled(Q: Sequence[Mapping[int, Fraction]]) -> Iterator[list[int]]:
    """Coordinates that belong together; those that occur nowhere are left out."""
    seen: set[int] = set()
    for first, row in enumerate(Q):
        if first in seen or not row:
            continue
        part = {first}
        fresh = [first]
        while fresh:
            for j in Q[fresh.pop()]:
                if j not in part:
                    part.add(j)
                    fresh.append(j)
        seen |= part
        yield sorted(part)


def _columns_of_inverse(Q: Sequence[Sequence[Fraction]]) -> list[list[Fraction] | None]:
    """For each unit vector a solution of ``Q z = e_i``, if there is one; Q is positive semidefinite.

    Whole numbers are eliminated without fractions (Bareiss): every division is exact.
    """
    n = len(Q)
    unit = lcm(*(c.denominator for row in Q for c in row))
    rows = [
        [c.numerator * (unit // c.denominator) for c in row]
        + [unit if i == j else 0 for j in range(n)]
        for i, row in enumerate(Q)
    ]
    last = 1
    pivots = []
    for k in range(n):
        pivot = rows[k][k]
        if not pivot:
            continue  # of a positive semidefinite rest: so the rest of the row, too
        own = rows[k]
        for i, row in enumerate(rows):
            if i == k:
                continue
            factor = row[k]
            rows[i] = [
                (pivot * a - factor * b) // last for a, b in zip(row, own, strict=True)
            ]
        last = pivot
        pivots.append(k)
    found: list[list[Fraction] | None] = [None] * n
    for k in pivots:
        row = rows[k]
        if not any(row[j] for j in range(n) if j != k):
            found[k] = [Fraction(c, row[k]) for c in row[n:]]
    return found


@dataclass(frozen=True)
class ConeGauge:
    """The gauge ``w·q + |L q|`` of a cone around a point inside it.

    Args:
        w: the linear part.
        factors: for each row of L the square of the number that it is multiplied by.
        L: the rows without these numbers.
    """

    w: Vector
    factors: Vector
    L: tuple[Vector, ...]

    @cached_property
    def sizes(self) -> Vector:
        """At least ``|w_j| + |L e_j|`` for each coordinate j: how far a step along it may move the gauge."""
        squares = [Fraction(0)] * len(self.w)
        for factor, row in zip(self.factors, self.L, strict=True):
            for j, c in enumerate(row):
                if c:
                    squares[j] += factor * c * c
        pairs = zip(self.w, squares, strict=True)
        return tuple(abs(own) + root_above(square) for own, square in pairs)


@dataclass(frozen=True)
class Cone:
    """``√(Σ w_i (Y x + y)_i²) ≤ s·x + t``, ``strict``: ``<``.

    Example:
        >>> one, zero = Fraction(1), Fraction(0)
        >>> disc = Cone((one, one), ((one, zero), (zero, one)), (zero, zero), (zero, zero), Fraction(2))
        >>> disc.contains_strictly((one, one)), disc.contains_strictly((Fraction(2), zero))
        (True, False)
        >>> disc.gauge((zero, zero)).sizes
        (Fraction(1, 2), Fraction(1, 2))
    """

    weights: Vector
    Y: tuple[Vector, ...]
    y: Vector
    s: Vector
    t: Fraction
    strict: bool = False

    @property
    def n(self) -> int:
        return len(self.s)

    @property
    def squares(self) -> Iterator[Fraction]:
        """The squares of all its numbers but 0, those of the norm with their weights."""
        for weight, row, shift in zip(self.weights, self.Y, self.y, strict=True):
            for number in (*row, shift):
                if number:
                    yield weight * number * number
        for number in (*self.s, self.t):
            if number:
                yield number * number

    def at(self, point: Sequence[Fraction]) -> tuple[Vector, Fraction]:
        """``Y x + y`` and ``s·x + t``."""
        inside = []
        for row, shift in zip(self._entries, self.y, strict=True):
            inside.append(sum((c * point[j] for j, c in row), shift))
        return tuple(inside), dot(self.s, point) + self.t

    @cached_property
    def _entries(self) -> tuple[tuple[tuple[int, Fraction], ...], ...]:
        """The places and coefficients of Y that are not 0, row by row."""
        return tuple(tuple((j, c) for j, c in enumerate(row) if c) for row in self.Y)

    def square(self, values: Sequence[Fraction]) -> Fraction:
        """``Σ w_i v_i²``."""
        pairs = zip(self.weights, values, strict=True)
        return sum((w * v * v for w, v in pairs), Fraction(0))

    def contains_strictly(self, point: Sequence[Fraction]) -> bool:
        """Whether the point lies inside, off the boundary."""
        values, bound = self.at(point)
        return bound > 0 and self.square(values) < bound * bound

    def contains(self, point: Sequence[Fraction]) -> bool:
        """Whether the point belongs to the cone."""
        values, bound = self.at(point)
        beyond = self.square(values) - bound * bound
        if self.strict:
            return bound > 0 and beyond < 0
        return bound >= 0 and beyond <= 0

    @cached_property
    def reaches(self) -> list[Reach | None]:
        """How far each coordinate gets within the norm."""
        rows = [dict(row) for row in self._entries]
        return reaches(self.weights, rows, self.y, self.n)

    def moved(
        self, origin: Sequence[Fraction], basis: Sequence[Sequence[Fraction | int]]
    ) -> Cone:
        """The same cone in coordinates k, ``x = origin + basis k``; one row of the basis for each x."""
        values, bound = self.at(origin)
        columns = list(zip(*basis, strict=True))
        Y = tuple(tuple(dot(row, column) for column in columns) for row in self.Y)
        s = tuple(dot(self.s, column) for column in columns)
        return Cone(self.weights, Y, values, s, bound, self.strict)

    def gauge(self, anchor: Sequence[Fraction]) -> ConeGauge:
        """The gauge around a point strictly inside.

        Raises:
            ValueError: it is not.
        """
        y0, t0 = self.at(anchor)
        length = self.square(y0)
        room = t0 * t0 - length
        if t0 <= 0 or room <= 0:
            raise ValueError("the anchor does not lie strictly inside a curved wall")
        along = self._products(y0)
        w = tuple((a - t0 * s) / room for a, s in zip(along, self.s, strict=True))
        if not length:
            factor = t0 * t0 / (room * room)
            factors = tuple(factor * weight for weight in self.weights)
            return ConeGauge(w, factors, self.Y)
        radial = tuple(s - t0 * a / length for a, s in zip(along, self.s, strict=True))
        across = []
        for row, own in zip(self.Y, y0, strict=True):
            share = own / length
            across.append(tuple(c - share * a for c, a in zip(row, along, strict=True)))
        factors = (length / room**2, *(weight / room for weight in self.weights))
        return ConeGauge(w, factors, (radial, *across))

    def _products(self, y0: Vector) -> Vector:
        """``y0·Y e_j`` with weights, for each coordinate j."""
        found = [Fraction(0)] * self.n
        for weight, own, row in zip(self.weights, y0, self._entries, strict=True):
            factor = weight * own
            if factor:
                for j, c in row:
                    found[j] += factor * c
        return tuple(found)

    @cached_property
    def floats(self) -> tuple[Array, Array, Array, float]:
        """Y and y with the roots of the weights in them, s and t."""
        roots = np.sqrt([float(weight) for weight in self.weights])
        Y = np.array([[float(c) for c in row] for row in self.Y], dtype=np.float64)
        y = np.array([float(c) for c in self.y])
        s = np.array([float(c) for c in self.s])
        return (
            Y.reshape(len(roots), self.n) * roots[:, None],
            y * roots,
            s,
            float(self.t),
        )
