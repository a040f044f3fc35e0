"""The anchor of a polyhedron: a point deep inside that a float format holds exactly.

Floats propose a centre (the largest cube inside, then the analytic centre of a bounded set or the point of least norm
of an unbounded one), exact arithmetic rounds it and judges. Where rounding could matter, an exact linear program gives
the point that loses least by rounding (up to the size :data:`EXACT_SIZE`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil

import numpy as np

from multiplexnet.errors import OutOfRangeError, ThinTermError
from multiplexnet.exact import lp, simplex
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import Format, first_wider, floor_log2, power_of_two
from multiplexnet.exact.rows import Rows
from multiplexnet.language.formula import Atom, Linear, Relation, Variable
from multiplexnet.language.text import formula_text

__all__ = [
    "anchor",
    "centres",
    "clearance",
    "find_anchor",
    "refuse_out_of_range",
    "text",
]

Point = tuple[Fraction, ...]

THIN = Fraction(1, 2)
"""The clearance from which on a set is refused as too thin: rounding leaves less than half of a slack."""
COMFORTABLE = Fraction(1, 32)
"""The clearance at which the search for a better anchor ends."""
EXACT_SIZE = 1500
"""The largest number of coefficients for which a linear program is solved exactly to find an anchor."""
REFINEMENTS = 3
"""How often a float centre is sought again in coordinates magnified around the last one."""
MAGNIFIED = 1e-3
"""The radius below which it is."""
NEARBY = 1e4
"""How far from the origin a centre is sought first, in units of the numbers in the rows, and by what that grows."""
NEARLY = 1e-6
"""What a linear program may miss the largest radius, or its bounds, by."""
REPAIR_SWEEPS = 4
"""Sweeps over the coordinates that try the neighbours on the grid of the format."""


def anchor(
    rows: Rows,
    form: Format,
    *,
    names: Sequence[str] | None = None,
    deadline: Deadline = NEVER,
) -> Point:
    """A point strictly inside all rows, representable in the format, with :func:`clearance` below 1/2.

    Args:
        rows: a set with nonempty interior, bounded or not.
        form: the float format.
        names: of the variables, for the message.
        deadline: when it gives up.

    Raises:
        ThinTermError: there is none; the message names a wider format that has one.

    Example:
        >>> triangle = Rows.of([[-1, 0], [0, -1], [1, 1]], [0, 0, 1])
        >>> anchor(triangle, Format("float16", 11, 15, keeps_subnormals=True))
        (Fraction(21, 64), Fraction(21, 64))
    """
    found = find_anchor(rows, form, deadline)
    if found is not None:
        return found
    wider = first_wider(
        form, lambda other: find_anchor(rows, other, deadline) is not None
    )
    refuse_out_of_range(rows, form, names, wider)
    raise ThinTermError(text(rows, names), form.name, wider)


def refuse_out_of_range(
    rows: Rows, form: Format, names: Sequence[str] | None, wider: str | None
) -> None:
    """Raises ``OutOfRangeError`` for rows that no number of the format can meet: all of them are too small.

    Args:
        rows: the set.
        form: the format.
        names: of the variables, for the message.
        wider: a format that would do for the whole set.
    """
    beyond = [i for i in range(len(rows)) if not _reaches(rows.subset([i]), form)]
    if beyond:
        far = rows.subset(beyond)
        raise OutOfRangeError(text(far, names), form.name, form.max, wider)


def _reaches(rows: Rows, form: Format) -> bool:
    """Whether ``a_i·x ≤ b_i`` for some numbers of the format, for every row by itself."""
    for norm, bound, is_strict in zip(rows.norms, rows.b, rows.strict, strict=True):
        least = -norm * form.max
        if least > bound or (least == bound and is_strict):
            return False
    return True


def find_anchor(rows: Rows, form: Format, deadline: Deadline = NEVER) -> Point | None:
    """The anchor, or ``None`` where :func:`anchor` would raise."""
    best: tuple[Fraction, Point] | None = None
    for candidate in _candidates(rows, form, deadline):
        deadline.check()
        judged = (
            clearance(rows, candidate, form)
            if max(map(abs, candidate)) < form.max
            else None
        )
        if judged is None or (best is not None and judged >= best[0]):
            continue
        best = (judged, candidate)
        if judged < COMFORTABLE:
            break
    if best is not None and best[0] >= THIN:
        best = _repaired(rows, form, *best, deadline)
    return best[1] if best is not None and best[0] < THIN else None


def clearance(rows: Rows, point: Sequence[Fraction], form: Format) -> Fraction | None:
    """The share of a slack that rounding eats: ``max_i Σ_j |a_ij| (ε |c_j| + tiny) / 2 s_i`` with ``s = b − A c``.

    The first part of μ in the contraction of the gauge map. ``None``: the point is not strictly inside, or a coordinate
    of it is so close to zero that flushing a subnormal neighbour to zero would carry that far from it.

    Example:
        >>> half = Format("float16", 11, 15, keeps_subnormals=True)
        >>> clearance(Rows.of([[1]], [1]), [Fraction(1, 2)], half)
        Fraction(8193, 16777216)
    """
    slacks = rows.slacks(point)
    if any(slack <= 0 for slack in slacks):
        return None
    if not all(map(form.is_clear_of_zero, point)):
        return None
    sizes = tuple(tuple((j, abs(c)) for j, c in own) for own in rows.entries)
    rounding = [(form.epsilon * abs(c) + form.tiny) / 2 for c in point]
    # 0 − |A| (−rounding) = |A| rounding
    zeros = (Fraction(0),) * len(rows)
    eaten = Rows(sizes, zeros, rows.strict, rows.n).slacks(
        [-error for error in rounding]
    )
    shares = [error / slack for error, slack in zip(eaten, slacks, strict=True)]
    return max(shares, default=Fraction(0))


# --- candidates -----------------------------------------------------------------------------------------------------


def _candidates(rows: Rows, form: Format, deadline: Deadline) -> Iterator[Point]:
    for centre in centres(
        rows, form.max / 8, deadline, share=form.epsilon / COMFORTABLE
    ):
        yield from _roundings(rows, form, centre)
    if len(rows) * rows.n <= EXACT_SIZE:
        for reach in (form.max / 8, form.max * 31 / 32):
            yield from _exact_candidates(rows, form, reach, deadline)


def _exact_candidates(
    rows: Rows, form: Format, reach: Fraction, deadline: Deadline
) -> Iterator[Point]:
    """The point with the largest cube that will do, and the one where rounding hardly matters, if there is one."""
    for wanted in (THIN, COMFORTABLE):
        exact = _safest(rows, form, wanted, reach, deadline)
        if exact is None:
            return
        yield from _roundings(rows, form, exact)


def _roundings(rows: Rows, form: Format, centre: Point) -> Iterator[Point]:
    """The centre on a coarse grid, as short dyadic numbers, then as near as the format allows."""
    room = rows.room(centre)
    if room is not None:
        grid = power_of_two(floor_log2(min(room, Fraction(1))) - 3)
        coarse = tuple(round(c / grid) * grid for c in centre)
        if all(map(form.representable, coarse)):
            yield coarse
    yield tuple(map(form.rounded, centre))


def _repaired(
    rows: Rows, form: Format, judged: Fraction, point: Point, deadline: Deadline
) -> tuple[Fraction, Point]:
    """Walk to neighbours on the grid of the format, one coordinate at a time, while the clearance falls."""
    for _ in range(REPAIR_SWEEPS):
        before = judged
        for j in range(rows.n):
            deadline.check()
            for neighbour in (form.next_up(point[j]), form.next_down(point[j])):
                moved = (*point[:j], neighbour, *point[j + 1 :])
                fresh = (
                    clearance(rows, moved, form) if abs(neighbour) < form.max else None
                )
                if fresh is not None and fresh < judged:
                    judged = fresh
                    point = moved
        if judged == before:
            break
    return judged, point


def _safest(
    rows: Rows, form: Format, wanted: Fraction, reach: Fraction, deadline: Deadline
) -> Point | None:
    """The point that keeps the largest cube after rounding took its share, by an exact linear program.

    Maximise ``t`` with ``a_i·c + (ε / 2 wanted) |a_i|·v + t |a_i|₁ ≤ b_i`` and ``|c_j| ≤ v_j ≤ reach``: a point with a
    clearance below ``wanted`` exists when ``t > 0`` is possible, up to the tiny absolute error near zero.
    """
    n = rows.n
    share = form.epsilon / (2 * wanted)
    A: list[Sequence[Fraction | int]] = []
    b: list[Fraction] = []
    for a, norm, bound in zip(rows.A, rows.norms, rows.b, strict=True):
        rounding = [share * abs(c) for c in a]
        A.append([*a, *rounding, norm])
        b.append(bound)
    zeros = [0] * n
    for j in range(n):
        unit = [int(i == j) for i in range(n)]
        minus = [-c for c in unit]
        A += [[*unit, *minus, 0], [*minus, *minus, 0], [*zeros, *unit, 0]]
        b += [Fraction(0), Fraction(0), reach]
    radius = [*zeros, *zeros, 1]
    A.append(radius)
    b.append(Fraction(1))
    best = simplex.maximise(radius, Rows.of(A, b, n=2 * n + 1), deadline=deadline)
    if best.status != "optimal" or best.value <= 0:
        return None
    return best.point[:n]


# --- float centres --------------------------------------------------------------------------------------------------


def centres(
    rows: Rows,
    reach: Fraction,
    deadline: Deadline = NEVER,
    *,
    share: Fraction | None = None,
) -> Iterator[Point]:
    """Proposals for a point deep inside, the best first; unchecked.

    Rows whose slack is bounded on the set (all rows of a bounded set) keep the slacks of their analytic centre. The
    others get a slack of about ``max(1, |b_i| / 4)``, and the point of least norm is taken: near the origin, and never
    nearer to a face than the size of the numbers asks for. That may be less than floats can tell apart (``a ≤ b`` asks
    for 1, also where both are above 2,000,000): with ``share`` the second proposal gives these rows as much as
    ``share · |a_i|·|x|`` more.
    """
    if not len(rows):
        yield (Fraction(0),) * rows.n
        return
    norms = [Fraction(norm or 1) for norm in rows.norms]
    A, b = lp.unit_rows(rows)
    pointed = lp.has_full_rank(A)
    if pointed and (b > MAGNIFIED).all():
        centre, is_bounded = lp.analytic_centre(A, b, np.zeros(rows.n), deadline)
        if is_bounded:  # no linear program needed
            yield _global((Fraction(0),) * rows.n, Fraction(1), centre)
    scale = [
        max(Fraction(1), abs(bound) / k / 4)
        for bound, k in zip(rows.b, norms, strict=True)
    ]
    found = _magnified(rows, A, norms, scale, reach, deadline)
    if found is None:
        return
    origin, size, x = found
    b = _local(rows, norms, origin, size)
    if not (A @ x < b).all():
        return
    centre, is_bounded = (
        lp.analytic_centre(A, b, x, deadline) if pointed else (x, False)
    )
    if is_bounded:
        yield _global(origin, size, centre)
        yield _global(origin, size, x)
        return
    home = lp.as_floats([-o / size for o in origin])
    widths = lp.as_floats([w / size for w in scale])
    yield _global(origin, size, _near(A, b, x, widths, home, deadline))
    if share is not None:
        yield _global(
            origin, size, _near(A, b, x, widths, home, deadline, float(share))
        )
    yield _global(origin, size, x)


def _near(
    A: lp.Array,
    b: lp.Array,
    x: lp.Array,
    widths: lp.Array,
    home: lp.Array,
    deadline: Deadline,
    share: float | None = None,
) -> lp.Array:
    """The centre of an unbounded set: the point nearest to ``home`` that keeps its distances from all rows."""
    escapes = lp.escaping_rows(A, deadline)
    centre, _ = lp.analytic_centre(A[~escapes], b[~escapes], x, deadline)
    wanted = np.where(escapes, widths, b - A @ centre)
    shares = None if share is None else np.where(escapes, share, 0.0)
    near = lp.least_norm(A, b - lp.KEPT_SLACK * wanted, home, shares, deadline=deadline)
    return x if near is None else near


def _magnified(
    rows: Rows,
    A: lp.Array,
    norms: list[Fraction],
    scale: list[Fraction],
    reach: Fraction,
    deadline: Deadline,
) -> tuple[Point, Fraction, lp.Array] | None:
    """The centre of the largest cube as ``origin + size · x``, in coordinates where its radius is not tiny."""
    origin = (Fraction(0),) * rows.n
    size = Fraction(1)
    for _ in range(REFINEMENTS + 1):
        widths = lp.as_floats([min(w / size, Fraction(10**6)) for w in scale])
        limit = float(min(reach / size, Fraction(10) ** 15))
        found = _largest_cube(
            A, _local(rows, norms, origin, size), widths, limit, deadline
        )
        if found is None:
            return None
        radius, x = found
        thickness = radius * float(widths.min())
        if thickness >= MAGNIFIED or not np.isfinite(thickness):
            break
        origin = _global(origin, size, x)
        size = size * power_of_two(ceil(np.log2(max(thickness, 1e-8))) + 2)
    return origin, size, x


def _largest_cube(
    A: lp.Array, b: lp.Array, widths: lp.Array, limit: float, deadline: Deadline
) -> tuple[float, lp.Array] | None:
    """The largest cube, the nearest to the origin of those as large as it: far out floats have no digits left."""
    near = NEARBY * float(max(1.0, np.abs(b).max(), widths.max()))
    while near < limit:
        found = lp.chebyshev_centre(A, b, widths, near, deadline)
        if found is not None:
            radius, centre = found
            is_full = radius >= 1 - NEARLY
            is_clear = np.abs(centre).max() < (1 - NEARLY) * near
            if is_full or is_clear:
                return found
        near *= NEARBY
    return lp.chebyshev_centre(A, b, widths, limit, deadline)


def _local(
    rows: Rows, norms: list[Fraction], origin: Point, size: Fraction
) -> lp.Array:
    """The right-hand sides in coordinates ``(x − origin) / size``, rows of unit size."""
    return lp.as_floats(
        [s / (k * size) for s, k in zip(rows.slacks(origin), norms, strict=True)]
    )


def _global(origin: Point, size: Fraction, x: lp.Array) -> Point:
    moves = [size * Fraction(float(v)) for v in x]
    return tuple(o + move for o, move in zip(origin, moves, strict=True))


# --- text -----------------------------------------------------------------------------------------------------------


def text(
    rows: Rows, names: Sequence[str] | None = None, relation: Relation | None = None
) -> list[str]:
    """The rows as a person writes them; ``relation`` replaces their own.

    Example:
        >>> text(Rows.of([[1, -2]], [Fraction(1, 2)], strict=[True]), ["a", "b"])
        ['a - 2*b < 0.5']
    """
    variables = [
        Variable(name, j)
        for j, name in enumerate(names or [f"x[{j}]" for j in range(rows.n)])
    ]
    shown = []
    for a, bound, strict in zip(rows.A, rows.b, rows.strict, strict=True):
        linear = Linear.total(
            dict(zip(variables, map(Fraction, a), strict=True)), -bound
        )
        shown.append(formula_text(Atom(linear, relation or ("<" if strict else "<="))))
    return shown
