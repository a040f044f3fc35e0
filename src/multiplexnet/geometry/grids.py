"""The grids on which a float format holds a lattice: how fine a step may be, and how far x may go on it.

With t on the multiples of one power of two, ``step``, every x_i of ``x = origin + basis t`` is a multiple of some
``g_i``; it is representable while ``|x_i| ≤ 2^p g_i``, and sums of float64 numbers on the way to it are exact while
they stay below ``2^53`` times the grid that all of them share. So the finest step follows from the largest ``|x_i|``
on the set. Where the set is unbounded, ``|x_i| ≤ max(2^⌈p/2⌉, REACH · |c_i|)`` is added, c being its centre: half of
the digits go to the range and half to the resolution, and far from the origin the range ends a little beyond where
raw values of ordinary size lead to. If the format has no such step (an origin of 1.75 and a range up to 4e7 in
float32), finer steps are tried, each with the widest range that it has, then coarser ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.exact import lp
from multiplexnet.exact.deadline import Deadline
from multiplexnet.exact.formats import FORMATS, Format, floor_log2, power_of_two
from multiplexnet.exact.hermite import Solutions
from multiplexnet.exact.propagation import Interval, ranges
from multiplexnet.exact.rows import Entries, Rows, dot
from multiplexnet.geometry.anchors import THIN, Point

__all__ = ["AMPLE", "Grid", "Inverse", "LatticeSet", "Sizes", "grids"]

DOUBLE = FORMATS["float64"]
AMPLE = THIN / 4
"""The clearance on a grid at which the search for a better anchor ends."""
LP_MARGIN = Fraction(1, 1 << 20)
"""How much wider than a float solver says a range is taken; the rows that enforce it are added."""
REACH = 3
"""How far an output without bounds goes, in units of its value at the centre. Rows that it can leave have a quarter of
that for their slack, which is what a raw value of 1 means: raw values up to 8 or so stay clear of the end."""
DOUBLE_REACH = 128
"""The same in float64, which has digits to spare."""
EXTRA_STEPS = 16
"""How many steps beyond a range of 1 are tried, and how many that are coarser than the one wanted."""
INVERSE_BITS = 40
"""Bits of the fixed-point inverse that bounds t by x."""
SAFE = 2.0**62
"""Below it a sum in whole numbers of 64 bits is exact, even if its bound was computed in floats."""


@dataclass(frozen=True)
class Grid:
    """The multiples of a step, and the rows that keep x where these are numbers of the format.

    Args:
        rows: over t, the cuts at their end.
        step: a power of two.
        bound: ``|t| ≤ bound``.
        is_whole: whether no output that the rules bound had to be cut further.
    """

    rows: Rows
    step: Fraction
    bound: Fraction
    is_whole: bool


# --- how large x and t can be ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """The largest ``|x_i|`` on the set.

    Args:
        known: as the rows say; ``None`` where they do not.
        guessed: as floats say where the rows do not; ``None``: no end.
        least: a lower bound of every ``|x_i|``.
    """

    known: list[Fraction | None]
    guessed: dict[int, Fraction | None]
    least: list[Fraction]

    @staticmethod
    def of(
        found: Solutions, equalities: Rows, rows: Rows, over_t: Rows, deadline: Deadline
    ) -> Sizes:
        """The sizes on the set of these equalities and rows (``over_t``: the same rows over t)."""
        intervals = ranges(equalities + equalities.reversed() + rows)
        known = [_largest(interval) for interval in intervals]
        least = [_least(interval) for interval in intervals]
        guessed: dict[int, Fraction | None] = {}
        for i, size in enumerate(known):
            if size is None and any(found.basis[i]):
                guessed[i] = _float_size(found, over_t, i, deadline)
        return Sizes(known, guessed, least)

    def __getitem__(self, i: int) -> Fraction | None:
        known = self.known[i]
        return self.guessed.get(i) if known is None else known


def _largest(interval: Interval) -> Fraction | None:
    low, high = interval
    if low is None or high is None:
        return None
    return max(abs(low), abs(high))


def _least(interval: Interval) -> Fraction:
    low, high = interval
    zero = Fraction(0)
    return max(zero, low or zero, -(high or zero))


def _float_size(
    found: Solutions, over_t: Rows, i: int, deadline: Deadline
) -> Fraction | None:
    """The largest ``|x_i|`` a float solver sees, a little more than that; ``None`` if it looks unbounded."""
    A = np.zeros((0, over_t.n))
    b = np.zeros(0)
    if len(over_t):
        A, b = lp.unit_rows(over_t)
    row = np.array(found.basis[i], dtype=np.float64)
    sizes = []
    for sign in (1, -1):
        end = lp.maximise(sign * row, A, b, reach=lp.FAR, deadline=deadline)
        if end is None:
            return None
        value, where = end
        if float(np.abs(where).max()) > lp.FAR / 2:
            return None
        sizes.append(abs(sign * Fraction(value) + found.origin[i]))
    return max(sizes) * (1 + LP_MARGIN) + LP_MARGIN


@dataclass(frozen=True)
class Inverse:
    """The pseudoinverse ``P / 2^INVERSE_BITS`` of the basis N, and the norm ρ < 1 of ``1 − P N``."""

    P: NDArray[Any]
    rho: Fraction

    @staticmethod
    def of(found: Solutions) -> Inverse | None:
        """The inverse in fixed point; ``None`` if the numbers of the basis are too far apart for that."""
        basis = np.array(found.basis, dtype=np.float64)
        return Inverse._near(found, basis, _quick_inverse(basis)) or Inverse._near(
            found, basis, np.linalg.pinv(basis)
        )

    @staticmethod
    def _near(
        found: Solutions, basis: NDArray[Any], floats: NDArray[Any]
    ) -> Inverse | None:
        """The inverse in fixed point that floats come near to, if they come near enough."""
        unit = 1 << INVERSE_BITS
        inverse = np.rint(floats * unit)
        longest = np.abs(basis).sum(axis=0).max()
        residuals = (np.abs(inverse).max() + 1) * longest + unit
        dtype = _holding(residuals * found.dimension)
        N = np.array(found.basis, dtype=dtype)
        P = _whole(inverse, dtype)
        norms = np.zeros(found.dimension, dtype=dtype)
        for j, column in enumerate(N.T):  # column j of unit · 1 − P N
            seen = np.flatnonzero(column)
            residual = -P[:, seen].dot(column[seen])
            residual[j] += unit
            norms = norms + np.abs(residual)
        rho = Fraction(int(max(norms)), unit)
        return Inverse(P, rho) if rho < 1 else None

    def bound(
        self, origin: Sequence[Fraction], largest: Sequence[Fraction]
    ) -> Fraction:
        """A power of two that no ``|t_j|`` exceeds while ``|x_i| ≤ largest_i``.

        ``t = P (x − origin) + (1 − P N) t``, so ``|t|_∞ ≤ max_j Σ_i |P_ji| |x_i − origin_i| / (1 − ρ)``.
        """
        reach = [size + abs(o) for size, o in zip(largest, origin, strict=True)]
        scale = math.lcm(*(r.denominator for r in reach))
        whole = [r.numerator * (scale // r.denominator) for r in reach]
        sizes = np.abs(self.P)
        dtype = _holding(float(sizes.max()) * sum(whole))
        sums = sizes.astype(dtype, copy=False).dot(np.array(whole, dtype=dtype))
        most = Fraction(int(max(sums)), scale << INVERSE_BITS)
        if not most:
            return Fraction(1)
        return power_of_two(floor_log2(most / (1 - self.rho)) + 1)


def _whole(floats: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Floats that are whole numbers as those of the dtype."""
    if dtype is np.int64:
        return floats.astype(np.int64)
    return np.array([list(map(int, row)) for row in floats.tolist()], dtype=dtype)


def _quick_inverse(basis: NDArray[Any]) -> NDArray[Any]:
    """``(NᵀN)⁻¹ Nᵀ``: less exact than by singular values, and in a fraction of the time; zeros if floats have none."""
    try:
        return np.asarray(np.linalg.solve(basis.T @ basis, basis.T))
    except np.linalg.LinAlgError:
        return np.zeros_like(basis.T)


def _holding(largest: float) -> Any:
    """What numpy calls whole numbers up to some size: those of 64 bits where they are enough, otherwise Python's."""
    return np.int64 if largest < SAFE else object


# --- the grids ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LatticeSet:
    """The set of a lattice part, and what is known of it.

    Args:
        found: the solutions of the equalities.
        inverse: of their basis.
        rows: the inequalities over t.
        sizes: of x.
        centres: proposals for points t deep inside, the best first.
        form: the format of x.
    """

    found: Solutions
    inverse: Inverse
    rows: Rows
    sizes: Sizes
    centres: Sequence[Point]
    form: Format

    def bound(self, largest: Sequence[Fraction]) -> Fraction:
        return self.inverse.bound(self.found.origin, largest)

    def finest_digit(self, bound: Fraction) -> Fraction:
        """The finest digit that float64 keeps in all sums on the way to x while ``|t| ≤ bound``."""
        pairs = zip(self.found.origin, self.found.entries, strict=True)
        on_the_way = max(
            abs(origin) + sum(abs(c) for _, c in row) * bound for origin, row in pairs
        )
        return max(on_the_way * power_of_two(-DOUBLE.precision), DOUBLE.tiny)


def grids(lattice: LatticeSet) -> Iterator[Grid]:
    """The grid that holds what is wanted, then finer and coarser ones with the widest ranges that they hold."""
    form = lattice.form
    wanted = _wanted(lattice)
    first = _step(lattice, wanted)
    if first is None:
        middle = floor_log2(max([*wanted, form.tiny]) * form.epsilon)
        coarser = range(middle, middle + EXTRA_STEPS)
    else:
        yield from _on_grid(lattice, first, wanted)
        middle = floor_log2(first)
        coarser = range(middle + 1, middle + EXTRA_STEPS)
    finer = {*range(middle - form.precision - EXTRA_STEPS, middle), *_roomy(lattice)}
    exponents = [*sorted(finer - set(coarser), reverse=True), *coarser]
    for exponent in exponents:
        yield from _on_grid(lattice, power_of_two(exponent), lattice.sizes.least)


def _wanted(lattice: LatticeSet) -> list[Fraction]:
    """The largest ``|x_i|`` that the grid should hold: all of a bounded output, enough around the centre of others."""
    form = lattice.form
    half = power_of_two((form.precision + 1) // 2)
    reach = DOUBLE_REACH if form is DOUBLE else REACH
    centre: Point = (Fraction(0),) * lattice.found.dimension
    if lattice.centres:
        centre = lattice.centres[0]
    wanted = []
    for i, (origin, row) in enumerate(
        zip(lattice.found.origin, lattice.found.basis, strict=True)
    ):
        size = lattice.sizes[i] if any(row) else abs(origin)
        if size is None:
            at_centre = origin + dot(row, centre)
            size = min(max(half, reach * abs(at_centre)), form.max)
        wanted.append(size)
    return wanted


def _step(lattice: LatticeSet, largest: Sequence[Fraction]) -> Fraction | None:
    """The finest power of two on which all x are representable and all sums exact; ``None`` if there is none."""
    form = lattice.form
    found = lattice.found
    exact = lattice.finest_digit(lattice.bound(largest))
    if any(Fraction(1, origin.denominator) < exact for origin in found.origin):
        return None
    step = exact
    for size, origin, row in zip(largest, found.origin, found.entries, strict=True):
        if not row:
            continue
        coarsest = max(size * power_of_two(-form.precision), form.tiny)
        if size > form.max or (origin and _power_in(origin) < coarsest):
            return None
        finest_move = min(_power_in(Fraction(c)) for _, c in row)
        step = max(step, coarsest / finest_move)
    below = power_of_two(floor_log2(step))
    return below if step == below else 2 * below


def _roomy(lattice: LatticeSet) -> Iterator[int]:
    """The exponents of some steps that are small beside the room around a centre, if it has any."""
    for centre in lattice.centres:
        room = lattice.rows.room(centre)
        if room is not None:
            middle = floor_log2(room * 2 * AMPLE)
            yield from range(middle - EXTRA_STEPS // 2, middle + 1)


def _on_grid(
    lattice: LatticeSet, step: Fraction, least: Sequence[Fraction]
) -> Iterator[Grid]:
    """The grid of this step with the widest range on which it is exact, at least ``least``; nothing if there is none.

    What the format holds is halved until all sums are exact in float64.
    """
    found = lattice.found
    held: dict[int, Fraction] = {}
    for i, (origin, row) in enumerate(zip(found.origin, found.entries, strict=True)):
        if row:
            held[i] = _held(_grain(origin, row, step), lattice.form)
    if any(size < least[i] or size == 0 for i, size in held.items()):
        return
    digits = min([step, *(Fraction(1, origin.denominator) for origin in found.origin)])
    for halvings in range(lattice.form.precision):
        share = power_of_two(-halvings)
        room = {i: max(size * share, least[i]) for i, size in held.items()}
        bound = lattice.bound(_largest_within(lattice, room))
        if lattice.finest_digit(bound) <= digits:
            rows = lattice.rows + _cuts(lattice, room)
            yield Grid(rows, step, bound, _is_whole(lattice.sizes, room))
            return


def _largest_within(
    lattice: LatticeSet, room: Mapping[int, Fraction]
) -> list[Fraction]:
    """The largest ``|x_i|`` once ``|x_i| ≤ room_i``."""
    largest = [abs(origin) for origin in lattice.found.origin]
    for i, limit in room.items():
        size = lattice.sizes[i]
        largest[i] = limit if size is None else min(limit, size)
    return largest


def _is_whole(sizes: Sizes, room: Mapping[int, Fraction]) -> bool:
    """Whether there is room for every output that has an end."""
    for i, limit in room.items():
        size = sizes[i]
        if size is not None and size > limit:
            return False
    return True


def _cuts(lattice: LatticeSet, room: Mapping[int, Fraction]) -> Rows:
    """``|x_i| ≤ room_i`` as rows over t, wherever the rows of the rules do not say so already."""
    largest = _largest_within(lattice, room)
    found = lattice.found
    A: list[list[int]] = []
    b: list[Fraction] = []
    for i, limit in room.items():
        known = lattice.sizes.known[i]
        if known is not None and known <= limit:
            continue
        for sign in (1, -1):
            A.append([sign * c for c in found.basis[i]])
            b.append(largest[i] - sign * found.origin[i])
    return Rows.of(A, b, n=found.dimension)


def _held(grain: Fraction, form: Format) -> Fraction:
    """Up to where all multiples of ``grain`` are numbers of the format; 0: nowhere."""
    if grain < form.tiny:
        return Fraction(0)
    return min(grain * power_of_two(form.precision), form.max)


def _grain(origin: Fraction, row: Entries, step: Fraction) -> Fraction:
    """What an output is a multiple of, on the multiples of ``step``."""
    grains = [_power_in(Fraction(c)) * step for _, c in row]
    if origin:
        grains.append(_power_in(origin))
    return min(grains)


def _power_in(value: Fraction) -> Fraction:
    """The largest power of two that divides a dyadic number."""
    return Fraction(value.numerator & -value.numerator, value.denominator)
