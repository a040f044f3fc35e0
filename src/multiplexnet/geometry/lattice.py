"""Equalities met exactly: the float vectors on ``E x = e`` as a lattice, and the grid on which a format holds it.

Binary floats are dyadic rationals, so the solutions that can occur at all are ``x = origin + basis t`` with dyadic t
(:mod:`multiplexnet.geometry.hermite`). With t on the multiples of one power of two, ``step``, every x_i is a multiple
of some ``g_i``; it is representable while ``|x_i| ≤ 2^p g_i``, and sums of float64 numbers on the way to it are exact
while they stay below ``2^53`` times the grid that all of them share. So the finest step follows from the largest
``|x_i|`` on the set. Where the set is unbounded, ``|x_i| ≤ 2^⌈p/2⌉ · scale`` is added: half of the digits go to the
range, half to the resolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import EqualityError, MagnitudeError, ThinTermError
from multiplexnet.geometry import lp, simplex
from multiplexnet.geometry.anchors import EXACT_SIZE, THIN, Point, centres, refuse_out_of_range, text
from multiplexnet.geometry.formats import FORMATS, Format, floor_log2, power_of_two
from multiplexnet.geometry.hermite import NotDyadic, Solutions, solutions
from multiplexnet.geometry.magnitudes import LARGEST, refuse_far
from multiplexnet.geometry.parts import Box, Lattice
from multiplexnet.geometry.ranges import ranges
from multiplexnet.geometry.rows import Rows
from multiplexnet.logic.deadline import NEVER, Deadline
from multiplexnet.logic.formula import Variable

__all__ = ["grid_clearance", "lattice_of"]

DOUBLE = FORMATS["float64"]
AMPLE = THIN / 4
"""The clearance on a grid at which the search for a better anchor ends."""
LP_MARGIN = Fraction(1, 1 << 20)
"""How much wider than a float solver says a range is taken; the rows that enforce it are added."""
INVERSE_BITS = 40
"""Bits of the fixed-point inverse that bounds t by x."""


def lattice_of(
    outputs: Sequence[Variable], equalities: Rows, rows: Rows, form: Format, deadline: Deadline = NEVER
) -> Lattice | Box:
    """The lattice part of a group of outputs, or a box of constants where the equalities leave one point.

    Args:
        outputs: the variables of both systems.
        equalities: read as ``E x = e``.
        rows: the inequalities; together they have a point with slack in every row.
        form: the float format of x.
        deadline: when it gives up.

    Raises:
        EqualityError: no dyadic number, or no number of the format, meets an equality.
        ThinTermError: the grid has no point with room around it.
        MagnitudeError: coefficients that are too far apart for float64.

    Example:
        >>> x = tuple(Variable(f"x[{i}]", i) for i in range(3))
        >>> positive = Rows.of([[-1, 0, 0], [0, -1, 0], [0, 0, -1]], [0, 0, 0])
        >>> part = lattice_of(x, Rows.of([[1, 1, 1]], [1]), positive, FORMATS["float16"])
        >>> part.step, part.bound, part.anchor
        (Fraction(1, 2048), Fraction(2, 1), (Fraction(21, 64), Fraction(21, 64)))
    """
    names = [v.name for v in outputs]
    try:
        found = solutions(equalities.A, equalities.b, deadline)
    except NotDyadic as error:
        row = text(equalities.subset([error.row]), names, "==")
        raise EqualityError(row, NO_FLOAT) from None
    _check_constants(found, equalities, names, form)
    if found.dimension == 0:
        return Box(tuple(outputs), found.origin, found.origin)
    part = _lattice(outputs, found, equalities, rows, form, deadline)
    if part is None:
        wider = sorted((f for f in FORMATS.values() if f.precision > form.precision), key=lambda f: f.precision)
        would_do = next((f.name for f in wider if _lattice(outputs, found, equalities, rows, f, deadline)), None)
        refuse_out_of_range(equalities + rows, form, names, would_do)
        raise ThinTermError([*text(equalities, names, "=="), *text(rows, names)], form.name, would_do)
    slacks = [b - sum(map(Fraction.__mul__, a, part.anchor), Fraction(0)) for a, b in zip(part.A, part.b, strict=True)]
    steps = [[c * part.step for c in a] for a in part.A]
    steps, slacks = [*steps, [part.step]], [*slacks, part.bound]  # the last: |t| ≤ bound
    refuse_far(steps, slacks, lambda i: "; ".join([*text(equalities, names, "=="), *text(rows, names)]))
    return part


NO_FLOAT = 'no binary float can meet this equality (equality="nearest" takes the nearest numbers instead)'


def _check_constants(found: Solutions, equalities: Rows, names: Sequence[str], form: Format) -> None:
    """Outputs that the equalities fix must be numbers of the format."""
    for name, value, row in zip(names, found.origin, found.basis, strict=True):
        if any(row) or form.representable(value):
            continue
        does = [f.name for f in FORMATS.values() if f.representable(value)]
        reason = f"they make {name} the number {value}, which {form.name} does not hold exactly"
        raise EqualityError(text(equalities, names, "=="), reason + (f" ({does[-1]} would)" if does else ""))


def _lattice(
    outputs: Sequence[Variable], found: Solutions, equalities: Rows, rows: Rows, form: Format, deadline: Deadline
) -> Lattice | None:
    """The part on the first grid that has an anchor, from the widest range to the finest step.

    A centre of the term itself with ample room comes first, on a finer grid if it must; then whatever will do.
    """
    longest = max(abs(c) for row in found.basis for c in row)
    inverse = _inverse(found) if longest <= LARGEST else None
    if inverse is None:
        raise MagnitudeError(text(equalities, [v.name for v in outputs], "=="), Fraction(longest))
    pulled = _pulled_back(rows, found)
    own = list(centres(pulled, Fraction(lp.FAR), deadline))
    grids = [
        (pulled + cuts, step, bound)
        for largest, cuts in _sizes(found, equalities, rows, pulled, own, form, deadline)
        for bound in [_bound(found, inverse, largest)]
        if (step := _step(found, largest, bound, form)) is not None
    ]
    ample = ((grid, _grid_anchor(grid[0], grid[1], own, AMPLE)) for grid in grids)
    scarce = ((grid, _grid_anchor(grid[0], grid[1], [*own, *_grid_centres(grid[0], deadline)], THIN)) for grid in grids)
    for (inside, step, bound), anchor in chain(ample, scarce):
        deadline.check()
        if anchor is not None:
            A = tuple(tuple(map(Fraction, a)) for a in inside.A)
            cuts = len(inside) - len(pulled)
            return Lattice(
                tuple(outputs), found.origin, found.basis, step, bound, A, inside.b, inside.strict, anchor, cuts
            )
    return None


def _pulled_back(rows: Rows, found: Solutions) -> Rows:
    """The rows over t: ``a·(origin + basis t) ≤ b``; those that do not see t are left out."""
    columns = list(zip(*found.basis, strict=True))
    A = [[sum(map(int.__mul__, a, column)) for column in columns] for a in rows.A]
    seen = [i for i, a in enumerate(A) if any(a)]
    slacks = rows.slacks(found.origin)
    if any(slacks[i] < 0 or (slacks[i] == 0 and rows.strict[i]) for i in set(range(len(A))) - set(seen)):
        raise ValueError("the equalities contradict a row: the term is empty")
    return Rows.of([A[i] for i in seen], [slacks[i] for i in seen], [rows.strict[i] for i in seen], n=found.dimension)


# --- how large x and t can be ---------------------------------------------------------------------------------------


def _sizes(
    found: Solutions,
    equalities: Rows,
    rows: Rows,
    pulled: Rows,
    own: Sequence[Point],
    form: Format,
    deadline: Deadline,
) -> Iterator[tuple[list[Fraction], Rows]]:
    """The largest ``|x_i|``, and rows over t that enforce it where nothing else does; several offers if unbounded."""
    reverse = Rows.of([[-c for c in a] for a in equalities.A], [-e for e in equalities.b], n=rows.n)
    known = [
        max(abs(low), abs(high)) if low is not None and high is not None else None
        for low, high in ranges(equalities + reverse + rows)
    ]
    open_ = [i for i, size in enumerate(known) if size is None and any(found.basis[i])]
    guessed = {i: _float_size(found, pulled, i, deadline) for i in open_}
    scale = _scale(found, own) if None in guessed.values() else []
    for digits in range((form.precision + 1) // 2, 0, -1):
        spread = {i: g if g is not None else scale[i] * 2**digits for i, g in guessed.items()}
        largest = [spread.get(i, known[i]) for i in range(rows.n)]
        filled = [abs(o) if size is None else size for o, size in zip(found.origin, largest, strict=True)]
        yield filled, _cuts(found, spread)
        if None not in guessed.values():
            return


def _cuts(found: Solutions, spread: dict[int, Fraction]) -> Rows:
    """``|x_i| ≤ spread_i`` as rows over t."""
    A = [[sign * c for c in found.basis[i]] for i in spread for sign in (1, -1)]
    b = [size - sign * found.origin[i] for i, size in spread.items() for sign in (1, -1)]
    return Rows.of(A, b, n=found.dimension)


def _float_size(found: Solutions, pulled: Rows, i: int, deadline: Deadline) -> Fraction | None:
    """The largest ``|x_i|`` a float solver sees, a little more than that; ``None`` if it looks unbounded."""
    A, b = lp.unit_rows(pulled.A, pulled.b) if len(pulled) else (np.zeros((0, pulled.n)), np.zeros(0))
    row = np.array(found.basis[i], dtype=np.float64)
    ends = [lp.maximise(sign * row, A, b, reach=lp.FAR, deadline=deadline) for sign in (1.0, -1.0)]
    if any(end is None or float(np.abs(end[1]).max()) > lp.FAR / 2 for end in ends):
        return None
    sizes = [abs(sign * Fraction(end[0]) + found.origin[i]) for sign, end in zip((1, -1), ends, strict=True) if end]
    return max(sizes) * (1 + LP_MARGIN) + LP_MARGIN


def _scale(found: Solutions, own: Sequence[Point]) -> list[Fraction]:
    """A power of two per output that covers it at the centre of the set, at least 1."""
    centre = own[0] if own else (Fraction(0),) * found.dimension
    x = [
        o + sum((c * t for c, t in zip(row, centre, strict=True)), Fraction(0))
        for o, row in zip(found.origin, found.basis, strict=True)
    ]
    return [power_of_two(floor_log2(v) + 1) if abs(v) >= 1 else Fraction(1) for v in x]


class _Inverse(NamedTuple):
    """The pseudoinverse ``P / 2^INVERSE_BITS`` of the basis N, and the norm ρ < 1 of ``1 − P N``."""

    P: NDArray[Any]
    rho: Fraction


def _inverse(found: Solutions) -> _Inverse | None:
    """The inverse of the basis in fixed point; ``None`` if its numbers are too far apart for that."""
    unit = 1 << INVERSE_BITS
    N = np.array(found.basis, dtype=object)
    P = np.vectorize(lambda v: round(v * unit), otypes=[object])(np.linalg.pinv(N.astype(np.float64)))
    residual = np.abs(np.eye(found.dimension, dtype=object) * unit - P.dot(N)).sum(axis=1)
    rho = Fraction(int(max(residual)), unit)
    return _Inverse(P, rho) if rho < 1 else None


def _bound(found: Solutions, inverse: _Inverse, largest: Sequence[Fraction]) -> Fraction:
    """A power of two that no ``|t_j|`` exceeds while ``|x_i| ≤ largest_i``.

    ``t = P (x − origin) + (1 − P N) t``, so ``|t|_∞ ≤ max_j Σ_i |P_ji| |x_i − origin_i| / (1 − ρ)``.
    """
    unit = 1 << INVERSE_BITS
    reach = [size + abs(o) for size, o in zip(largest, found.origin, strict=True)]
    most = max(sum((abs(int(p)) * r for p, r in zip(row, reach, strict=True)), Fraction(0)) for row in inverse.P) / unit
    return power_of_two(floor_log2(most / (1 - inverse.rho)) + 1) if most else Fraction(1)


# --- the grid -------------------------------------------------------------------------------------------------------


def _step(found: Solutions, largest: Sequence[Fraction], bound: Fraction, form: Format) -> Fraction | None:
    """The finest power of two on which all x are representable and all sums exact; ``None`` if there is none."""
    on_the_way = max(abs(o) + sum(map(abs, row)) * bound for o, row in zip(found.origin, found.basis, strict=True))
    exact = max(on_the_way * power_of_two(-DOUBLE.precision), DOUBLE.tiny)
    if any(Fraction(1, origin.denominator) < exact for origin in found.origin):
        return None
    step = exact
    for size, origin, row in zip(largest, found.origin, found.basis, strict=True):
        if not any(row):
            continue
        coarsest = max(size * power_of_two(-form.precision), form.tiny)
        if size > power_of_two(form.largest_exponent) or (origin and _grid(origin) < coarsest):
            return None
        step = max(step, coarsest / min(_grid(Fraction(c)) for c in row if c))
    exponent = floor_log2(step)
    return step if step == power_of_two(exponent) else power_of_two(exponent + 1)


def _grid(value: Fraction) -> Fraction:
    """The largest power of two that divides a dyadic number."""
    return Fraction(value.numerator & -value.numerator, value.denominator)


def grid_clearance(rows: Rows, point: Sequence[Fraction], step: Fraction) -> Fraction | None:
    """``max_i Σ_j |a_ij| · step / 2 / s_i``: how much of a slack rounding to the grid can eat; ``None``: not inside."""
    slacks = rows.slacks(point)
    if any(s <= 0 for s in slacks):
        return None
    return max((sum(map(abs, a)) * step / 2 / s for a, s in zip(rows.A, slacks, strict=True)), default=Fraction(0))


def _grid_anchor(rows: Rows, step: Fraction, offers: Sequence[Point], limit: Fraction) -> Point | None:
    """The multiple of ``step`` near the points on offer with the least clearance, if that is below the limit."""
    best: tuple[Fraction, Point] | None = None
    for centre in offers:
        for grid in (_coarse(rows, centre, step), step):
            point = tuple(round(c / grid) * grid for c in centre)
            judged = grid_clearance(rows, point, step)
            if judged is not None and judged < AMPLE:
                return point
            if judged is not None and (best is None or judged < best[0]):
                best = (judged, point)
    return best[1] if best is not None and best[0] < limit else None


def _grid_centres(rows: Rows, deadline: Deadline) -> Iterator[Point]:
    """Float centres, then the centre of the largest cube by an exact linear program: the safest one on a grid."""
    yield from centres(rows, Fraction(lp.FAR), deadline)
    if len(rows) * rows.n <= EXACT_SIZE:
        A = [[*a, sum(map(abs, a))] for a in rows.A]
        best = simplex.maximise([0] * rows.n + [1], Rows.of(A, rows.b, n=rows.n + 1), deadline=deadline)
        if best.status == "optimal":
            yield best.point[: rows.n]


def _coarse(rows: Rows, point: Point, step: Fraction) -> Fraction:
    """A power of two an eighth of the room around the point, for short numbers; at least ``step``."""
    room = min((s / sum(map(abs, a)) for a, s in zip(rows.A, rows.slacks(point), strict=True)), default=Fraction(1))
    return max(step, power_of_two(floor_log2(room) - 3)) if room > 0 else step
