"""Equalities met exactly: the float vectors on ``E x = e`` as a lattice, and the grid on which a format holds it.

Binary floats are dyadic rationals, so the solutions that can occur at all are ``x = origin + basis t`` with dyadic t
(:mod:`multiplexnet.exact.hermite`). With t on the multiples of one power of two, ``step``, every x_i is a multiple
of some ``g_i``; it is representable while ``|x_i| ≤ 2^p g_i``, and sums of float64 numbers on the way to it are exact
while they stay below ``2^53`` times the grid that all of them share. So the finest step follows from the largest
``|x_i|`` on the set. Where the set is unbounded, ``|x_i| ≤ max(2^⌈p/2⌉, REACH · |c_i|)`` is added, c being its centre:
half of the digits go to the range and half to the resolution, and far from the origin the range ends a little beyond
where raw values of ordinary size lead to. If the format has no such step (an origin of 1.75 and a range up to 4e7 in
float32), or no anchor on it, finer steps are tried, each with the widest range that it has, then coarser ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import EqualityError, MagnitudeError, ThinTermError
from multiplexnet.exact import lp, simplex
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS, Format, floor_log2, power_of_two
from multiplexnet.exact.hermite import NotDyadic, Solutions, solutions
from multiplexnet.exact.propagation import ranges
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.anchors import (
    EXACT_SIZE,
    THIN,
    Point,
    centres,
    refuse_out_of_range,
    text,
)
from multiplexnet.geometry.magnitudes import LARGEST, refuse_far
from multiplexnet.geometry.parts import Box, Lattice
from multiplexnet.language.formula import Variable

__all__ = ["grid_clearance", "lattice_of"]

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


def lattice_of(
    outputs: Sequence[Variable],
    equalities: Rows,
    rows: Rows,
    form: Format,
    deadline: Deadline = NEVER,
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
        wider = sorted(
            (f for f in FORMATS.values() if f.precision > form.precision), key=lambda f: f.precision
        )
        would_do = next(
            (f.name for f in wider if _lattice(outputs, found, equalities, rows, f, deadline)), None
        )
        refuse_out_of_range(equalities + rows, form, names, would_do)
        raise ThinTermError(
            [*text(equalities, names, "=="), *text(rows, names)], form.name, would_do
        )
    slacks = [
        b - sum(map(Fraction.__mul__, a, part.anchor), Fraction(0))
        for a, b in zip(part.A, part.b, strict=True)
    ]
    steps = [[c * part.step for c in a] for a in part.A]
    # the last: |t| ≤ bound
    steps = [*steps, [part.step]]
    slacks = [*slacks, part.bound]
    refuse_far(
        steps, slacks, lambda i: "; ".join([*text(equalities, names, "=="), *text(rows, names)])
    )
    return part


NO_FLOAT = (
    'no binary float can meet this equality (equality="nearest" takes the nearest numbers instead)'
)


def _check_constants(
    found: Solutions, equalities: Rows, names: Sequence[str], form: Format
) -> None:
    """Outputs that the equalities fix must be numbers of the format."""
    for name, value, row in zip(names, found.origin, found.basis, strict=True):
        if any(row) or form.representable(value):
            continue
        does = [f.name for f in FORMATS.values() if f.representable(value)]
        reason = f"they make {name} the number {value}, which {form.name} does not hold exactly"
        raise EqualityError(
            text(equalities, names, "=="), reason + (f" ({does[-1]} would)" if does else "")
        )


class _Grid(NamedTuple):
    """A step, the rows over t with those that keep x where multiples of it are numbers of the format, and ``|t|``."""

    rows: Rows
    step: Fraction
    bound: Fraction
    whole: bool
    """Whether no output that the rules bound had to be cut further."""


def _lattice(
    outputs: Sequence[Variable],
    found: Solutions,
    equalities: Rows,
    rows: Rows,
    form: Format,
    deadline: Deadline,
) -> Lattice | None:
    """The part on the first grid that has an anchor.

    Grids that hold all of a bounded set come first: with a centre of the term itself that has ample room, then with
    whatever will do. After them come those that cut it short.
    """
    longest = max(abs(c) for row in found.basis for c in row)
    inverse = _inverse(found) if longest <= LARGEST else None
    if inverse is None:
        raise MagnitudeError(text(equalities, [v.name for v in outputs], "=="), Fraction(longest))
    pulled = _pulled_back(rows, found)
    own = _own_centres(pulled, deadline)
    grids = _grids(
        found, inverse, _sizes(found, equalities, rows, pulled, deadline), pulled, own, form
    )
    for grid, anchor in _anchored(grids, own, deadline):
        deadline.check()
        if anchor is not None:
            A = tuple(tuple(map(Fraction, a)) for a in grid.rows.A)
            cuts = len(grid.rows) - len(pulled)
            b = grid.rows.b
            strict = grid.rows.strict
            return Lattice(
                tuple(outputs),
                found.origin,
                found.basis,
                grid.step,
                grid.bound,
                A,
                b,
                strict,
                anchor,
                cuts,
            )
    return None


def _anchored(
    grids: Iterable[_Grid], own: Sequence[Point], deadline: Deadline
) -> Iterator[tuple[_Grid, Point | None]]:
    """Every grid with its anchor, if it has one, in the order of preference."""
    whole: list[_Grid] = []
    others: list[_Grid] = []
    for grid in grids:
        (whole if grid.whole else others).append(grid)
        if grid.whole:
            yield grid, _grid_anchor(grid.rows, grid.step, own, AMPLE)
    for k, grid in enumerate(whole):
        more = centres(grid.rows, Fraction(lp.FAR), deadline) if k == 0 else ()
        yield (
            grid,
            _grid_anchor(
                grid.rows, grid.step, [*own, *more, *_largest_cube(grid.rows, deadline)], THIN
            ),
        )
    offers = [(grid, [*own, *_largest_cube(grid.rows, deadline)]) for grid in others]
    for limit in (AMPLE, THIN):
        for grid, points in offers:
            yield grid, _grid_anchor(grid.rows, grid.step, points, limit)


def _pulled_back(rows: Rows, found: Solutions) -> Rows:
    """The rows over t: ``a·(origin + basis t) ≤ b``; those that do not see t are left out."""
    columns = list(zip(*found.basis, strict=True))
    A = [[sum(map(int.__mul__, a, column)) for column in columns] for a in rows.A]
    seen = [i for i, a in enumerate(A) if any(a)]
    slacks = rows.slacks(found.origin)
    if any(
        slacks[i] < 0 or (slacks[i] == 0 and rows.strict[i]) for i in set(range(len(A))) - set(seen)
    ):
        raise ValueError("the equalities contradict a row: the term is empty")
    return Rows.of(
        [A[i] for i in seen],
        [slacks[i] for i in seen],
        [rows.strict[i] for i in seen],
        n=found.dimension,
    )


# --- how large x and t can be ---------------------------------------------------------------------------------------


class _Sizes(NamedTuple):
    """The largest ``|x_i|`` on the set: as the rows say, as floats say where the rows do not; ``None``: no end.

    ``least`` is a lower bound of every ``|x_i|``.
    """

    known: list[Fraction | None]
    guessed: dict[int, Fraction | None]
    least: list[Fraction]

    def of(self, i: int) -> Fraction | None:
        return self.guessed.get(i) if self.known[i] is None else self.known[i]


def _sizes(
    found: Solutions, equalities: Rows, rows: Rows, pulled: Rows, deadline: Deadline
) -> _Sizes:
    reverse = Rows.of([[-c for c in a] for a in equalities.A], [-e for e in equalities.b], n=rows.n)
    ends = ranges(equalities + reverse + rows)
    known = [
        max(abs(low), abs(high)) if low is not None and high is not None else None
        for low, high in ends
    ]
    least = [max(Fraction(0), low or Fraction(0), -(high or Fraction(0))) for low, high in ends]
    open_ = [i for i, size in enumerate(known) if size is None and any(found.basis[i])]
    return _Sizes(known, {i: _float_size(found, pulled, i, deadline) for i in open_}, least)


def _cuts(found: Solutions, spread: dict[int, Fraction]) -> Rows:
    """``|x_i| ≤ spread_i`` as rows over t."""
    A = [[sign * c for c in found.basis[i]] for i in spread for sign in (1, -1)]
    b = [size - sign * found.origin[i] for i, size in spread.items() for sign in (1, -1)]
    return Rows.of(A, b, n=found.dimension)


def _float_size(found: Solutions, pulled: Rows, i: int, deadline: Deadline) -> Fraction | None:
    """The largest ``|x_i|`` a float solver sees, a little more than that; ``None`` if it looks unbounded."""
    A, b = (
        lp.unit_rows(pulled.A, pulled.b) if len(pulled) else (np.zeros((0, pulled.n)), np.zeros(0))
    )
    row = np.array(found.basis[i], dtype=np.float64)
    ends = [lp.maximise(sign * row, A, b, reach=lp.FAR, deadline=deadline) for sign in (1.0, -1.0)]
    if any(end is None or float(np.abs(end[1]).max()) > lp.FAR / 2 for end in ends):
        return None
    sizes = [
        abs(sign * Fraction(end[0]) + found.origin[i])
        for sign, end in zip((1, -1), ends, strict=True)
        if end
    ]
    return max(sizes) * (1 + LP_MARGIN) + LP_MARGIN


def _wanted(found: Solutions, sizes: _Sizes, own: Sequence[Point], form: Format) -> list[Fraction]:
    """The largest ``|x_i|`` that the grid should hold: all of a bounded output, enough around the centre of others."""
    centre = own[0] if own else (Fraction(0),) * found.dimension
    half = power_of_two((form.precision + 1) // 2)
    reach = DOUBLE_REACH if form is DOUBLE else REACH
    wanted = []
    for i, (origin, row) in enumerate(zip(found.origin, found.basis, strict=True)):
        size = sizes.of(i) if any(row) else abs(origin)
        at_centre = origin + sum((c * t for c, t in zip(row, centre, strict=True)), Fraction(0))
        wanted.append(min(max(half, reach * abs(at_centre)), form.max) if size is None else size)
    return wanted


class _Inverse(NamedTuple):
    """The pseudoinverse ``P / 2^INVERSE_BITS`` of the basis N, and the norm ρ < 1 of ``1 − P N``."""

    P: NDArray[Any]
    rho: Fraction


def _inverse(found: Solutions) -> _Inverse | None:
    """The inverse of the basis in fixed point; ``None`` if its numbers are too far apart for that."""
    unit = 1 << INVERSE_BITS
    N = np.array(found.basis, dtype=object)
    P = np.vectorize(lambda v: round(v * unit), otypes=[object])(
        np.linalg.pinv(N.astype(np.float64))
    )
    residual = np.abs(np.eye(found.dimension, dtype=object) * unit - P.dot(N)).sum(axis=1)
    rho = Fraction(int(max(residual)), unit)
    return _Inverse(P, rho) if rho < 1 else None


def _bound(found: Solutions, inverse: _Inverse, largest: Sequence[Fraction]) -> Fraction:
    """A power of two that no ``|t_j|`` exceeds while ``|x_i| ≤ largest_i``.

    ``t = P (x − origin) + (1 − P N) t``, so ``|t|_∞ ≤ max_j Σ_i |P_ji| |x_i − origin_i| / (1 − ρ)``.
    """
    unit = 1 << INVERSE_BITS
    reach = [size + abs(o) for size, o in zip(largest, found.origin, strict=True)]
    most = (
        max(
            sum((abs(int(p)) * r for p, r in zip(row, reach, strict=True)), Fraction(0))
            for row in inverse.P
        )
        / unit
    )
    return power_of_two(floor_log2(most / (1 - inverse.rho)) + 1) if most else Fraction(1)


# --- the grid -------------------------------------------------------------------------------------------------------


def _grids(
    found: Solutions,
    inverse: _Inverse,
    sizes: _Sizes,
    pulled: Rows,
    own: Sequence[Point],
    form: Format,
) -> Iterator[_Grid]:
    """The grid that holds what is wanted, then finer and coarser ones with the widest ranges that they hold."""
    wanted = _wanted(found, sizes, own, form)
    first = _step(found, wanted, _bound(found, inverse, wanted), form)
    if first is not None:
        yield from _on_grid(found, inverse, sizes, wanted, pulled, first, form)
    middle = floor_log2(max([*wanted, form.tiny]) * form.epsilon if first is None else first)
    finer = {*range(middle - form.precision - EXTRA_STEPS, middle), *_roomy(pulled, own)}
    coarser = range(middle if first is None else middle + 1, middle + EXTRA_STEPS)
    for exponent in (*sorted(finer - set(coarser), reverse=True), *coarser):
        yield from _on_grid(
            found, inverse, sizes, sizes.least, pulled, power_of_two(exponent), form
        )


def _roomy(rows: Rows, own: Sequence[Point]) -> Iterator[int]:
    """The exponents of some steps that are small beside the room around a centre, if it has any."""
    for room in filter(None, (_room(rows, centre) for centre in own)):
        middle = floor_log2(room * 2 * AMPLE)
        yield from range(middle - EXTRA_STEPS // 2, middle + 1)


def _on_grid(
    found: Solutions,
    inverse: _Inverse,
    sizes: _Sizes,
    least: Sequence[Fraction],
    pulled: Rows,
    step: Fraction,
    form: Format,
) -> Iterator[_Grid]:
    """The grid of this step with the widest range on which it is exact, at least ``least``; nothing if there is none.

    What the format holds is halved until all sums are exact in float64.
    """
    pairs = zip(found.origin, found.basis, strict=True)
    held = {
        i: _held(_grain(origin, row, step), form)
        for i, (origin, row) in enumerate(pairs)
        if any(row)
    }
    if any(size < least[i] or size == 0 for i, size in held.items()):
        return
    digits = min([step, *(Fraction(1, origin.denominator) for origin in found.origin)])
    for halvings in range(form.precision):
        largest = [abs(origin) for origin in found.origin]
        spread: dict[int, Fraction] = {}
        whole = True
        for i, size in held.items():
            end = sizes.of(i)
            room = max(size * power_of_two(-halvings), least[i])
            largest[i] = room if end is None else min(room, end)
            whole = whole and (end is None or end <= room)
            if end is None or end > room or i in sizes.guessed:
                spread[i] = largest[i]
        bound = _bound(found, inverse, largest)
        if _exact(found, bound) <= digits:
            yield _Grid(pulled + _cuts(found, spread), step, bound, whole)
            return


def _held(grain: Fraction, form: Format) -> Fraction:
    """Up to where all multiples of ``grain`` are numbers of the format; 0: nowhere."""
    return (
        min(grain * power_of_two(form.precision), form.max) if grain >= form.tiny else Fraction(0)
    )


def _grain(origin: Fraction, row: Sequence[int], step: Fraction) -> Fraction:
    """What an output is a multiple of, on the multiples of ``step``."""
    moves = [_grid(Fraction(c)) * step for c in row if c]
    return min([*moves, *([_grid(origin)] if origin else [])])


def _exact(found: Solutions, bound: Fraction) -> Fraction:
    """The finest digit that float64 keeps in all sums on the way to x."""
    on_the_way = max(
        abs(o) + sum(map(abs, row)) * bound
        for o, row in zip(found.origin, found.basis, strict=True)
    )
    return max(on_the_way * power_of_two(-DOUBLE.precision), DOUBLE.tiny)


def _step(
    found: Solutions, largest: Sequence[Fraction], bound: Fraction, form: Format
) -> Fraction | None:
    """The finest power of two on which all x are representable and all sums exact; ``None`` if there is none."""
    step = exact = _exact(found, bound)
    if any(Fraction(1, origin.denominator) < exact for origin in found.origin):
        return None
    for size, origin, row in zip(largest, found.origin, found.basis, strict=True):
        if not any(row):
            continue
        coarsest = max(size * power_of_two(-form.precision), form.tiny)
        if size > form.max or (origin and _grid(origin) < coarsest):
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
    return max(
        (sum(map(abs, a)) * step / 2 / s for a, s in zip(rows.A, slacks, strict=True)),
        default=Fraction(0),
    )


def _grid_anchor(
    rows: Rows, step: Fraction, offers: Sequence[Point], limit: Fraction
) -> Point | None:
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


def _own_centres(rows: Rows, deadline: Deadline) -> list[Point]:
    """Centres of the set, looked for further out if there are none near by."""
    for reach in (Fraction(lp.FAR), Fraction(lp.FAR) ** 2):
        found = list(centres(rows, reach, deadline))
        if found:
            return found
    return []


def _largest_cube(rows: Rows, deadline: Deadline) -> Iterator[Point]:
    """The centre of the largest cube, the safest point on a grid, by an exact linear program (if large, in floats)."""
    if len(rows) * rows.n > EXACT_SIZE:
        yield from centres(rows, Fraction(lp.FAR), deadline)
        return
    A = [[*a, sum(map(abs, a))] for a in rows.A]
    best = simplex.maximise([0] * rows.n + [1], Rows.of(A, rows.b, n=rows.n + 1), deadline=deadline)
    if best.status == "optimal":
        yield best.point[: rows.n]


def _coarse(rows: Rows, point: Point, step: Fraction) -> Fraction:
    """A power of two an eighth of the room around the point, for short numbers; at least ``step``."""
    room = _room(rows, point)
    return step if room is None else max(step, power_of_two(floor_log2(room) - 3))


def _room(rows: Rows, point: Point) -> Fraction | None:
    """Half the edge of the largest cube around the point inside the rows (no rows: 1); ``None``: it is not inside."""
    room = min(
        (s / sum(map(abs, a)) for a, s in zip(rows.A, rows.slacks(point), strict=True)),
        default=Fraction(1),
    )
    return room if room > 0 else None
