"""Terms in the plane of two variables, for pictures: vertices, edges and a frame, in float64.

A term that ties the two variables to others is projected: the support function of the projection, one LP a direction,
gives its vertices exactly as far as the LP is exact. Nothing here decides anything about rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import PlotError
from multiplexnet.language.formula import Atom, Linear, Symbol, Variable, norm_in
from multiplexnet.verdicts.columns import to_float64

__all__ = ["Edge", "Frame", "Region", "frame_of", "is_attained", "outline", "regions"]

Floats = NDArray[np.float64]
FAR = 1e9  # bounds beyond it count as none
TANGENTS = 96  # that stand for a circle
MOST_SIDES = 5  # of a norm that is drawn in full
CLOSE = 1e-7  # of the frame's width: nearer points are one point


@dataclass(frozen=True)
class Region:
    """A term with its inputs fixed, as rows ``A x ≤ b`` (strict or not) and ``C x = d``; the axes come first in x."""

    label: str
    term: Term
    A: Floats
    b: Floats
    strict: NDArray[np.bool_]
    C: Floats
    d: Floats
    axes: int

    @property
    def is_projection(self) -> bool:
        return bool(self.A.shape[1] > self.axes)


@dataclass(frozen=True)
class Edge:
    """A side of an outline, from the point to the next one."""

    start: Floats
    end: Floats
    kind: str  # "closed", "open", or "frame" where the set goes on


Frame = tuple[Floats, Floats]  # lower left, upper right
Bounds = tuple[float | None, float | None]  # of one variable of a linear program


# --- terms to regions -----------------------------------------------------------------------------------------------


def regions(
    compiled: Compiled, axes: Sequence[Variable], at: Mapping[Variable, Fraction]
) -> Iterator[Region]:
    """One region for every choice of terms in the blocks of the axes, nested choices included."""
    blocks = [block for block in compiled.blocks if set(block.outputs) & set(axes)]
    for chosen in _choices(blocks):
        label = "·".join(plain.label for plain in chosen)
        term = _conjunction([plain.term for plain in chosen])
        yield _region(label, term, axes, at)


class _PlainTerm(NamedTuple):
    """A term with every nested choice made."""

    label: str
    term: Term


def _choices(blocks: Sequence[Block]) -> Iterator[tuple[_PlainTerm, ...]]:
    """Every way to choose one plain term of each block."""
    options = [list(_plain_terms(block)) for block in blocks]
    return product(*options)


def _conjunction(terms: Sequence[Term]) -> Term:
    """The rows of all the terms, as one term without nested choices."""
    rows: list[Atom] = []
    fixed: list[tuple[Variable, Fraction]] = []
    for term in terms:
        rows += term.rows
        fixed += term.fixed
    return Term(tuple(rows), tuple(fixed))


def _plain_terms(block: Block) -> Iterator[_PlainTerm]:
    for k, term in enumerate(block.terms):
        for chosen in _choices(term.blocks):
            labels = [str(k)]
            terms = [term]
            for plain in chosen:
                labels.append(plain.label)
                terms.append(plain.term)
            yield _PlainTerm(".".join(labels), _conjunction(terms))


def _region(
    label: str, term: Term, axes: Sequence[Variable], at: Mapping[Variable, Fraction]
) -> Region:
    rows = [
        Atom(_fixed(flat, at), row.relation)
        for row in _rows(term)
        for flat in _flattened(row.linear, axes)
    ]
    names = [*axes, *_tied(rows, axes)]
    kept = [row for row in rows if _mentions(row, names) or not row.linear.summands]
    equalities = [row for row in kept if row.relation == "=="]
    inequalities = [row for row in kept if row.relation != "=="]
    A, b = _matrix(inequalities, names)
    C, d = _matrix(equalities, names)
    strict = np.array([row.relation == "<" for row in inequalities], dtype=np.bool_)
    return Region(label, term, A, b, strict, C, d, len(axes))


def _flattened(linear: Linear, axes: Sequence[Variable]) -> Iterator[Linear]:
    """The expression; one with a norm as many flat ones, tangents in every plane of two of its arguments."""
    found = norm_in(linear)
    if found is None:
        yield linear
        return
    norm, c = found
    rest = Linear(linear.summands[:-1], linear.constant)
    sides = [
        argument * Fraction(to_float64(weight) ** 0.5)
        for weight, argument in zip(norm.weights, norm.arguments, strict=True)
    ]
    if len(sides) > MOST_SIDES:
        sides = [s for s in sides if any(v in axes for v, _ in s.summands)]
    if len(sides) == 1:
        sides.append(Linear())
    for one, other in combinations(sides, 2):
        for k in range(TANGENTS):
            angle = 2 * np.pi * k / TANGENTS
            turned = one * Fraction(np.cos(angle)) + other * Fraction(np.sin(angle))
            yield turned * c + rest


def _rows(term: Term) -> list[Atom]:
    """The rows of a term, and an equality for each output that it fixes."""
    rows = list(term.rows)
    for variable, value in term.fixed:
        rows.append(Atom(Linear.of(variable) - value, "=="))
    return rows


def _symbols(row: Atom) -> set[Symbol]:
    return {symbol for symbol, _ in row.linear.summands}


def _mentions(row: Atom, names: Sequence[Variable]) -> bool:
    return not _symbols(row).isdisjoint(names)


def _matrix(rows: Sequence[Atom], names: Sequence[Variable]) -> tuple[Floats, Floats]:
    """Coefficients and right sides of the rows, each row of length one."""
    matrix = np.zeros((len(rows), len(names)))
    right = np.zeros(len(rows))
    for i, row in enumerate(rows):
        right[i] = to_float64(-row.linear.constant)
        for j, variable in enumerate(names):
            matrix[i, j] = to_float64(row.linear.coefficient(variable))
    return _of_length_one(matrix, right)


def _of_length_one(matrix: Floats, right: Floats) -> tuple[Floats, Floats]:
    length = np.linalg.norm(matrix, axis=1)
    scale = np.where(length > 0, length, 1.0)
    return matrix / scale[:, None], right / scale


def _fixed(linear: Linear, at: Mapping[Variable, Fraction]) -> Linear:
    """The expression with its inputs put in."""
    constant = linear.constant
    free = []
    for symbol, coefficient in linear.summands:
        if not isinstance(symbol, Variable):
            raise PlotError(
                "rules with functions cannot be drawn: what the functions return is not known here"
            )
        if symbol in at:
            constant += coefficient * at[symbol]
        else:
            free.append((symbol, coefficient))
    return Linear(tuple(free), constant)


def _tied(rows: Sequence[Atom], axes: Sequence[Variable]) -> list[Variable]:
    """The other variables that rows connect to the axes."""
    reached = set(axes)
    before = 0
    while len(reached) > before:
        before = len(reached)
        for row in rows:
            variables = {
                symbol for symbol in _symbols(row) if isinstance(symbol, Variable)
            }
            if reached & variables:
                reached |= variables
    return sorted(reached - set(axes), key=lambda variable: variable.index)


# --- outlines -------------------------------------------------------------------------------------------------------


def outline(region: Region, frame: Frame) -> list[Edge]:
    """The sides of the region inside the frame, in order; a segment has one side, a point one without length."""
    scaled = _in_unit_square(region, frame)
    points = _ordered(_apart(_corners(scaled), CLOSE))
    lower, upper = frame

    def placed(point: Floats) -> Floats:
        return lower + point * (upper - lower)

    if not points:
        return []
    if len(points) < 3:
        return [Edge(placed(points[0]), placed(points[-1]), "closed")]
    edges = []
    for p, q in _sides(points):
        edges.append(Edge(placed(p), placed(q), _kind(scaled, p, q)))
    return edges


def _sides(points: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
    """Each point with the next one; the last with the first."""
    following = [*points[1:], points[0]]
    return list(zip(points, following, strict=True))


def is_attained(region: Region, point: Floats, frame: Frame) -> bool:
    """Whether the point belongs to the region, not only to its closure."""
    lower, upper = frame
    scaled = _in_unit_square(region, frame)
    place = (point - lower) / (upper - lower)
    return _room(scaled, np.eye(region.axes), place) > 0


def _in_unit_square(region: Region, frame: Frame) -> Region:
    """The region moved and stretched so that the frame is the unit square, rows of length one."""
    lower = np.zeros(region.A.shape[1])
    width = np.ones(region.A.shape[1])
    lower[: region.axes] = frame[0]
    width[: region.axes] = frame[1] - frame[0]
    A, b = _of_length_one(region.A * width, region.b - region.A @ lower)
    C, d = _of_length_one(region.C * width, region.d - region.C @ lower)
    return replace(region, A=A, b=b, C=C, d=d)


def _unit_square(axes: int) -> Frame:
    return np.zeros(axes), np.ones(axes)


def _corners(region: Region) -> Floats:
    square = _unit_square(region.axes)
    if region.is_projection:
        return _projected(region, square)
    return _vertices(region, square)


def _on_frame(points: Floats) -> NDArray[np.bool_]:
    """For every point, axis and end of the axis: whether the point lies on that side of the unit square."""
    on_lower = np.abs(points) <= CLOSE
    on_upper = np.abs(points - 1) <= CLOSE
    return np.stack([on_lower, on_upper], axis=-1)


def _kind(region: Region, p: Floats, q: Floats) -> str:
    ends = np.array([p, q])
    shared_sides = _on_frame(ends).all(axis=0)
    if shared_sides.any():
        return "frame"
    normal = _normal(p, q)
    normal /= np.linalg.norm(normal)
    normals = normal[None, :]
    is_attained = _room(region, normals, normals @ p) > 0
    return "closed" if is_attained else "open"


def _normal(p: Floats, q: Floats) -> Floats:
    """The outward normal of the side from p to q, as long as the side."""
    right = q[1] - p[1]
    up = p[0] - q[0]
    return np.array([right, up])


def _room(region: Region, normals: Floats, level: Floats) -> float:
    """How far strict rows can be from tight where ``normals · axes = level``, less a tolerance; 1 if none is strict."""
    if not region.strict.any():
        return 1.0
    width = region.A.shape[1]
    there = np.zeros((len(normals), width + 1))
    there[:, : region.axes] = normals
    with_room = np.hstack([region.A, region.strict[:, None]])
    without_room = np.hstack([region.C, np.zeros((len(region.C), 1))])
    A = np.vstack([with_room, there, -there])
    b = np.concatenate([region.b, level, -level]) + CLOSE
    cost = np.zeros(width + 1)
    cost[-1] = -1.0
    bounds: list[Bounds] = [(None, None)] * width
    bounds.append((None, 1.0))
    found = _minimum(cost, A, b, without_room, region.d, bounds)
    if found is None:
        return 0.0
    return float(-found.fun) - 100 * CLOSE


def _minimum(
    cost: Floats, A: Floats, b: Floats, C: Floats, d: Floats, bounds: Sequence[Bounds]
) -> Any | None:
    """What the LP solver finds for ``A x ≤ b, C x = d``; None where there is no minimum."""
    rows: dict[str, Floats] = {}
    if len(A):
        rows.update(A_ub=A, b_ub=b)
    if len(C):
        rows.update(A_eq=C, b_eq=d)
    found = linprog(cost, **rows, bounds=bounds)
    return found if found.status == 0 else None


def _apart(points: Floats, close: float) -> Floats:
    kept: list[Floats] = []
    for p in points:
        if all(np.abs(p - q).max() > close for q in kept):
            kept.append(p)
    if not kept:
        return np.zeros((0, 0))
    return np.array(kept)


def _ordered(points: Floats) -> list[Floats]:
    """Round their centre; on a line, along it; corners only."""
    if len(points) < 3:
        return list(points)
    offsets = points - points.mean(axis=0)
    _, spread, directions = np.linalg.svd(offsets)
    if points.shape[1] == 1 or spread[1] < 1e-6 * spread[0]:
        along = offsets @ directions[0]
        first = along.argmin()
        last = along.argmax()
        return [points[first], points[last]]
    angles = np.arctan2(offsets[:, 1], offsets[:, 0])
    order = np.argsort(angles)
    return list(points[order])


def _vertices(region: Region, frame: Frame | None) -> Floats:
    """Where the boundary lines (and the frame's) meet inside the region."""
    rows = [region.A, region.C]
    right = [region.b, region.d]
    if frame is not None:
        eye = np.eye(region.axes)
        rows = [*rows, -eye, eye]
        right = [*right, -frame[0], frame[1]]
    lines = np.vstack(rows)
    levels = np.concatenate(right)
    chosen = np.array(list(combinations(range(len(lines)), region.axes)), dtype=np.intp)
    chosen = chosen.reshape(-1, region.axes)
    meets = np.abs(np.linalg.det(lines[chosen])) >= 1e-12
    crossing = chosen[meets]
    found = np.linalg.solve(lines[crossing], levels[crossing][..., None])
    points = found.reshape(-1, region.axes)
    sizes = np.abs(points).max(axis=1, initial=0.0)
    slack = 1e-9 * (1 + sizes)
    excess = points @ lines.T - levels
    equalities = slice(len(region.A), len(region.A) + len(region.C))
    excess[:, equalities] = np.abs(excess[:, equalities])
    inside = (excess <= slack[:, None]).all(axis=1)
    return np.asarray(points[inside])


# --- projections ----------------------------------------------------------------------------------------------------


def _support(region: Region, direction: Floats, frame: Frame) -> Floats | None:
    """The point of the projection, inside the frame, that lies farthest in this direction."""
    cost = np.zeros(region.A.shape[1])
    cost[: region.axes] = -direction
    lower, upper = frame
    bounds: list[Bounds] = list(zip(lower, upper, strict=True))
    bounds += [(None, None)] * (len(cost) - region.axes)
    found = _minimum(cost, region.A, region.b, region.C, region.d, bounds)
    if found is None:
        return None
    return np.asarray(found.x[: region.axes])


def _ends(region: Region, axis: Floats, frame: Frame) -> list[Floats]:
    """The points of the projection farthest along an axis, and farthest against it."""
    ends = [_support(region, axis, frame), _support(region, -axis, frame)]
    return [end for end in ends if end is not None]


def _projected(region: Region, frame: Frame) -> Floats:
    """The corners of the projection: sides are moved outwards until none gives."""
    found: list[Floats] = []
    for axis in np.eye(region.axes):
        found += _ends(region, axis, frame)
    close = 1e-6  # frames of projections are unit squares
    points = _ordered(_apart(np.array(found).reshape(-1, region.axes), close))
    if region.axes == 1 or not points:
        return np.array(points).reshape(-1, region.axes)
    sides = _sides(points)
    corners = list(points)
    while sides and len(corners) < 200:
        p, q = sides.pop()
        normal = _normal(p, q)
        length = float(np.linalg.norm(normal))
        if length <= close:
            continue
        outward = normal / length
        farthest = _support(region, outward, frame)
        if farthest is None or outward @ (farthest - p) <= close:
            continue
        corners.append(farthest)
        sides += [(p, farthest), (farthest, q)]
    return np.array(corners)


# --- the frame ------------------------------------------------------------------------------------------------------


def frame_of(shown: Sequence[Region], axes: int) -> Frame:
    """A frame with every corner and some room, more of it where sets go on; ±10 on an axis without corners."""
    landmarks = [_landmarks(region) for region in shown]
    coordinates = []
    for i in range(axes):
        own = [values[i] for values in landmarks]
        coordinates.append(np.concatenate([np.zeros(0), *own]))
    frame = _around(coordinates, 0.15)
    if any(_touches(region, frame) for region in shown):
        return _around(coordinates, 0.4)
    return frame


def _around(coordinates: Sequence[Floats], room: float) -> Frame:
    widest = max(map(_span, coordinates))
    sides = [_side(values, widest, room) for values in coordinates]
    lower = np.array([side[0] for side in sides])
    upper = np.array([side[1] for side in sides])
    return lower, upper


def _span(values: Floats) -> float:
    if not len(values):
        return 0.0
    return float(np.ptp(values))


def _side(values: Floats, widest: float, room: float) -> tuple[float, float]:
    if not len(values):
        return -10.0, 10.0
    span = _span(values)
    largest = float(np.abs(values).max())
    if span <= 1e-9 * max(
        largest, 1.0
    ):  # one coordinate only: as wide as the other axis
        span = widest or max(2 * largest, 4.0)
        room = 0.5
    lower = float(values.min()) - room * span
    upper = float(values.max()) + room * span
    return lower, upper


def _touches(region: Region, frame: Frame) -> bool:
    """Whether the region reaches the frame, and so goes on."""
    scaled = _in_unit_square(region, frame)
    corners = _corners(scaled)
    return bool(_on_frame(corners).any())


def _landmarks(region: Region) -> list[Floats]:
    """What to show on each axis: corners; without any, where boundary lines are nearest to the origin."""
    if region.is_projection:
        found = _extremes(region)
    else:
        corners = _vertices(region, None)
        found = list(corners.T) if len(corners) else _feet(region)
    return [values[np.abs(values) < FAR / 2] for values in found]


def _extremes(region: Region) -> list[Floats]:
    """On each axis the coordinates of the farthest points of a projection."""
    everywhere = (np.full(region.axes, -FAR), np.full(region.axes, FAR))
    found = []
    for i, axis in enumerate(np.eye(region.axes)):
        ends = _ends(region, axis, everywhere)
        found.append(np.array([end[i] for end in ends]))
    return found


def _feet(region: Region) -> list[Floats]:
    """On each axis the coordinates of the points of the boundary lines that are nearest to the origin."""
    lines = np.vstack([region.A, region.C])
    levels = np.concatenate([region.b, region.d])
    found = []
    for normals in lines.T:
        coordinates = normals * levels
        found.append(coordinates[normals != 0])
    return found
