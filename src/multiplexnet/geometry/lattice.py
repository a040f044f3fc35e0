"""Equalities met exactly: the float vectors on ``E x = e`` as a lattice.

Binary floats are dyadic rationals, so the solutions that can occur at all are ``x = origin + basis t`` with dyadic t
(:mod:`multiplexnet.exact.hermite`). On which multiples of a power of two t may lie, so that a format holds x, says
:mod:`multiplexnet.geometry.grids`; here the first of these grids is taken that has an anchor with room around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from multiplexnet.errors import EqualityError, MagnitudeError, ThinTermError
from multiplexnet.exact import lp, simplex
from multiplexnet.exact.cones import Cone
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import (
    Format,
    first_wider,
    floor_log2,
    holding,
    power_of_two,
)
from multiplexnet.exact.hermite import NotDyadic, Solutions, solutions
from multiplexnet.exact.rows import Entries, Rows
from multiplexnet.geometry.anchors import (
    EXACT_SIZE,
    THIN,
    Point,
    centres,
    refuse_out_of_range,
    text,
)
from multiplexnet.geometry.curves import (
    cone_of,
    curved_centres,
    eaten,
    outer_rows,
    refuse_far_cones,
    refuse_far_numbers,
)
from multiplexnet.geometry.grids import AMPLE, Grid, Inverse, LatticeSet, Sizes, grids
from multiplexnet.geometry.magnitudes import LARGEST, refuse_far
from multiplexnet.geometry.parts import Box, Lattice
from multiplexnet.language.formula import Atom, Variable
from multiplexnet.language.text import formula_text

__all__ = ["grid_clearance", "lattice_of"]

NO_FLOAT = 'no binary float can meet this equality (equality="nearest" takes the nearest numbers instead)'


def lattice_of(
    outputs: Sequence[Variable],
    equalities: Rows,
    rows: Rows,
    form: Format,
    deadline: Deadline = NEVER,
    curved: Sequence[Atom] = (),
) -> Lattice | Box:
    """The lattice part of a group of outputs, or a box of constants where the equalities leave one point.

    Args:
        outputs: the variables of both systems.
        equalities: read as ``E x = e``.
        rows: the inequalities; together they have a point with slack in every row.
        form: the float format of x.
        deadline: when it gives up.
        curved: comparisons with a norm of these outputs.

    Raises:
        EqualityError: no dyadic number, or no number of the format, meets an equality, or its coefficients have too
            many digits.
        ThinTermError: the grid has no point with room around it.
        MagnitudeError: coefficients that are too large for float64.

    Example:
        >>> from multiplexnet.exact.formats import FORMATS
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
    cones = [cone_of(atom, outputs) for atom in curved]
    refuse_far_numbers(cones, curved)
    if found.dimension == 0:
        if not all(cone.contains(found.origin) for cone in cones):
            raise ValueError(
                "the equalities contradict a curved wall: the term is empty"
            )
        return Box(tuple(outputs), found.origin, found.origin)

    def part_in(candidate: Format) -> Lattice | None:
        return _lattice(outputs, found, equalities, rows, candidate, deadline, cones)

    part = part_in(form)
    if part is None:
        wider = first_wider(form, lambda other: part_in(other) is not None)
        refuse_out_of_range(equalities + rows, form, names, wider)
        walls = [*_texts(equalities, rows, names), *map(formula_text, curved)]
        raise ThinTermError(walls, form.name, wider)
    if curved:
        refuse_far_cones(part.cones_in_steps, part.anchor_in_steps, curved)
    _refuse_far_lattice(part, lambda i: "; ".join(_texts(equalities, rows, names)))
    return part


def _texts(equalities: Rows, rows: Rows, names: Sequence[str]) -> list[str]:
    return [*text(equalities, names, "=="), *text(rows, names)]


def _refuse_far_lattice(part: Lattice, text_of: Callable[[int], str]) -> None:
    """Raises ``MagnitudeError`` for numbers that float64 cannot work with, t counted in steps."""
    rows = Rows.of(part.A, part.b, n=len(part.anchor))
    coefficients = [[c * part.step for _, c in own] for own in rows.entries]
    slacks = [*rows.slacks(part.anchor)]
    # one row more: |t| ≤ bound
    coefficients.append([part.step])
    slacks.append(part.bound)
    refuse_far(coefficients, slacks, text_of)


def _check_constants(
    found: Solutions, equalities: Rows, names: Sequence[str], form: Format
) -> None:
    """Outputs that the equalities fix must be numbers of the format."""
    for name, value, row in zip(names, found.origin, found.basis, strict=True):
        if any(row) or form.representable(value):
            continue
        reason = f"they make {name} the number {value}, which {form.name} does not hold exactly"
        would_do = holding(value)
        if would_do:
            reason += f" ({would_do[-1]} would)"
        raise EqualityError(text(equalities, names, "=="), reason)


def _lattice(
    outputs: Sequence[Variable],
    found: Solutions,
    equalities: Rows,
    rows: Rows,
    form: Format,
    deadline: Deadline,
    given: Sequence[Cone] = (),
) -> Lattice | None:
    """The part on the first grid that has an anchor; ``None`` if none has."""
    longest = max(abs(c) for row in found.entries for _, c in row)
    written = text(equalities, [v.name for v in outputs], "==")
    if longest > LARGEST:
        raise MagnitudeError(written, Fraction(longest))
    inverse = Inverse.of(found)
    if inverse is None:
        reason = (
            f"the points that meet them are whole multiples of numbers up to {float(longest):.3g}, "
            "too far apart for float64: write the coefficients with fewer digits"
        )
        raise EqualityError(written, reason)
    over_t = _pulled_back(rows, found)
    cones = tuple(cone.moved(found.origin, found.basis) for cone in given)
    own = (
        list(curved_centres(over_t, cones, deadline))
        if cones
        else _own_centres(over_t, deadline)
    )
    outer = over_t + outer_rows(cones, found.dimension)
    sizes = Sizes.of(found, equalities, rows, outer, deadline)
    lattice = LatticeSet(found, inverse, over_t, sizes, own, form)
    for grid, anchor in _anchored(grids(lattice), own, deadline, cones):
        deadline.check()
        if anchor is None:
            continue
        return Lattice(
            outputs=tuple(outputs),
            origin=found.origin,
            basis=found.basis,
            step=grid.step,
            bound=grid.bound,
            A=grid.rows.A,
            b=grid.rows.b,
            strict=grid.rows.strict,
            anchor=anchor,
            cuts=len(grid.rows) - len(over_t),
            cones=cones,
        )
    return None


def _pulled_back(rows: Rows, found: Solutions) -> Rows:
    """The rows over t: ``a·(origin + basis t) ≤ b``; those that do not see t are left out."""
    A: list[list[tuple[int, int]]] = []
    b: list[Fraction] = []
    strict: list[bool] = []
    for entries, slack, is_strict in zip(
        rows.entries, rows.slacks(found.origin), rows.strict, strict=True
    ):
        a = _combined(entries, found.entries)
        if a:
            A.append(a)
            b.append(slack)
            strict.append(is_strict)
        elif slack < 0 or (slack == 0 and is_strict):
            raise ValueError("the equalities contradict a row: the term is empty")
    return Rows.sparse(A, b, strict, found.dimension)


def _combined(entries: Entries, basis: Sequence[Entries]) -> list[tuple[int, int]]:
    """``row · basis``; most rows mention a few outputs only."""
    total: dict[int, int] = {}
    for j, c in entries:
        for k, v in basis[j]:
            total[k] = total.get(k, 0) + c * v
    return sorted((k, c) for k, c in total.items() if c)


# --- anchors on a grid ----------------------------------------------------------------------------------------------


def _anchored(
    offered: Iterable[Grid],
    own: Sequence[Point],
    deadline: Deadline,
    cones: Sequence[Cone] = (),
) -> Iterator[tuple[Grid, Point | None]]:
    """Every grid with its anchor, if it has one, in the order of preference.

    Grids that hold all of a bounded set come first: with a centre of the term itself that has ample room, then with
    whatever will do. After them come those that cut it short.
    """
    whole: list[Grid] = []
    others: list[Grid] = []
    for grid in offered:
        if grid.is_whole:
            whole.append(grid)
            yield grid, _grid_anchor(grid, own, AMPLE, cones)
        else:
            others.append(grid)
    for k, grid in enumerate(whole):
        points = list(own)
        if k == 0:
            points += centres(grid.rows, Fraction(lp.FAR), deadline)
        points += _largest_cube(grid.rows, deadline)
        yield grid, _grid_anchor(grid, points, THIN, cones)
    offers = [(grid, [*own, *_largest_cube(grid.rows, deadline)]) for grid in others]
    for limit in (AMPLE, THIN):
        for grid, points in offers:
            yield grid, _grid_anchor(grid, points, limit, cones)


def grid_clearance(
    rows: Rows, point: Sequence[Fraction], step: Fraction
) -> Fraction | None:
    """``max_i Σ_j |a_ij| · step / 2 / s_i``: how much of a slack rounding to the grid can eat; ``None``: not inside."""
    slacks = rows.slacks(point)
    if any(slack <= 0 for slack in slacks):
        return None
    shares = [
        norm * step / 2 / slack for norm, slack in zip(rows.norms, slacks, strict=True)
    ]
    return max(shares, default=Fraction(0))


def _grid_anchor(
    grid: Grid, offers: Sequence[Point], limit: Fraction, cones: Sequence[Cone] = ()
) -> Point | None:
    """The multiple of the step near the points on offer with the least clearance, if that is below the limit."""
    best: Point | None = None
    least = limit
    for centre in offers:
        for unit in (_coarse(grid, centre), grid.step):
            point = tuple(round(c / unit) * unit for c in centre)
            judged = grid_clearance(grid.rows, point, grid.step)
            if judged is not None and cones:
                taken = eaten(cones, point, [grid.step / 2] * len(point))
                judged = None if taken is None else max(judged, taken)
            if judged is None:
                continue
            if judged < AMPLE:
                return point
            if judged < least:
                best = point
                least = judged
    return best


def _coarse(grid: Grid, point: Point) -> Fraction:
    """A power of two an eighth of the room around the point, for short numbers; at least the step."""
    room = grid.rows.room(point)
    if room is None:
        return grid.step
    return max(grid.step, power_of_two(floor_log2(room) - 3))


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
    A = [[*a, norm] for a, norm in zip(rows.A, rows.norms, strict=True)]
    radius = [0] * rows.n + [1]
    best = simplex.maximise(radius, Rows.of(A, rows.b, n=rows.n + 1), deadline=deadline)
    if best.status == "optimal":
        yield best.point[: rows.n]
