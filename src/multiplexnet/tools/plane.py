"""Terms in the plane of two variables, for pictures: vertices, edges and a frame, in float64.

A term that ties the two variables to others is projected: the support function of the projection, one LP a direction,
gives its vertices exactly as far as the LP is exact. Nothing here decides anything about rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import PlotError
from multiplexnet.language.formula import Atom, Linear, Variable
from multiplexnet.verdicts.columns import nearest

__all__ = ["Edge", "Frame", "Region", "frame_of", "is_attained", "outline", "regions"]

Floats = NDArray[np.float64]
FAR = 1e9  # bounds beyond it count as none
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


# --- terms to regions -----------------------------------------------------------------------------------------------


def regions(
    compiled: Compiled, axes: Sequence[Variable], at: Mapping[Variable, Fraction]
) -> Iterator[Region]:
    """One region for every choice of terms in the blocks of the axes, nested choices included."""
    blocks = [block for block in compiled.blocks if set(block.outputs) & set(axes)]
    for chosen in product(*(list(_plain_terms(block)) for block in blocks)):
        rows = tuple(row for _, term in chosen for row in term.rows)
        fixed = tuple(pair for _, term in chosen for pair in term.fixed)
        yield _region("·".join(label for label, _ in chosen), Term(rows, fixed), axes, at)


def _plain_terms(block: Block) -> Iterator[tuple[str, Term]]:
    """The terms of the block with every nested choice made, and their labels."""
    for k, term in enumerate(block.terms):
        for chosen in product(*(list(_plain_terms(inner)) for inner in term.blocks)):
            rows = term.rows + tuple(row for _, t in chosen for row in t.rows)
            fixed = term.fixed + tuple(pair for _, t in chosen for pair in t.fixed)
            yield ".".join([str(k), *(label for label, _ in chosen)]), Term(rows, fixed)


def _region(
    label: str, term: Term, axes: Sequence[Variable], at: Mapping[Variable, Fraction]
) -> Region:
    fixed = [Atom(Linear.of(v) - n, "==") for v, n in term.fixed]
    rows = [Atom(_fixed(row.linear, at), row.relation) for row in (*term.rows, *fixed)]
    names = list(axes) + _tied(rows, axes)
    kept = [
        r for r in rows if {s for s, _ in r.linear.summands} & set(names) or not r.linear.summands
    ]
    matrix = np.array([[nearest(r.linear.coefficient(v)) for v in names] for r in kept]).reshape(
        -1, len(names)
    )
    right = np.array([nearest(-r.linear.constant) for r in kept])
    length = np.linalg.norm(matrix, axis=1)
    scale = np.where(length > 0, length, 1.0)
    matrix = matrix / scale[:, None]
    right = right / scale
    equal = np.array([r.relation == "==" for r in kept], dtype=np.bool_)
    strict = np.array([r.relation == "<" for r in kept], dtype=np.bool_)
    A = matrix[~equal]
    b = right[~equal]
    strict = strict[~equal]
    C = matrix[equal]
    d = right[equal]
    return Region(label, term, A, b, strict, C, d, len(axes))


def _fixed(linear: Linear, at: Mapping[Variable, Fraction]) -> Linear:
    """The expression with its inputs put in."""
    for symbol, _ in linear.summands:
        if not isinstance(symbol, Variable):
            raise PlotError(
                "rules with functions cannot be drawn: what the functions return is not known here"
            )
    constant = sum(
        (c * at[s] for s, c in linear.summands if isinstance(s, Variable) and s in at),
        linear.constant,
    )
    return Linear(tuple((s, c) for s, c in linear.summands if s not in at), constant)


def _tied(rows: Sequence[Atom], axes: Sequence[Variable]) -> list[Variable]:
    """The other variables that rows connect to the axes."""
    reached = set(axes)
    while True:
        new = {
            s
            for row in rows
            for s, _ in row.linear.summands
            if reached & {t for t, _ in row.linear.summands}
        } - reached
        if not new:
            return sorted(
                (v for v in reached - set(axes) if isinstance(v, Variable)), key=lambda v: v.index
            )
        reached |= {v for v in new if isinstance(v, Variable)}


# --- outlines -------------------------------------------------------------------------------------------------------


def outline(region: Region, frame: Frame) -> list[Edge]:
    """The sides of the region inside the frame, in order; a segment has one side, a point one without length."""
    scaled = _in_unit_square(region, frame)
    points = _ordered(_apart(_corners(scaled), CLOSE))
    place = [frame[0] + p * (frame[1] - frame[0]) for p in points]
    if len(points) < 3:
        return [Edge(place[0], place[-1], "closed")] if points else []
    kinds = [_kind(scaled, p, q) for p, q in zip(points, [*points[1:], points[0]], strict=True)]
    return [Edge(*side) for side in zip(place, [*place[1:], place[0]], kinds, strict=True)]


def is_attained(region: Region, point: Floats, frame: Frame) -> bool:
    """Whether the point belongs to the region, not only to its closure."""
    return (
        _room(
            _in_unit_square(region, frame),
            np.eye(region.axes),
            (point - frame[0]) / (frame[1] - frame[0]),
        )
        > 0
    )


def _in_unit_square(region: Region, frame: Frame) -> Region:
    """The region moved and stretched so that the frame is the unit square, rows of length one."""
    lower = np.zeros(region.A.shape[1])
    width = np.ones(region.A.shape[1])
    lower[: region.axes], width[: region.axes] = frame[0], frame[1] - frame[0]

    def moved(rows: Floats, right: Floats) -> tuple[Floats, Floats]:
        length = np.linalg.norm(rows * width, axis=1)
        length = np.where(length > 0, length, 1.0)
        return rows * width / length[:, None], (right - rows @ lower) / length

    A, b = moved(region.A, region.b)
    C, d = moved(region.C, region.d)
    return replace(region, A=A, b=b, C=C, d=d)


def _unit_square(axes: int) -> Frame:
    return np.zeros(axes), np.ones(axes)


def _corners(region: Region) -> Floats:
    square = _unit_square(region.axes)
    return _projected(region, square) if region.is_projection else _vertices(region, square)


def _on_frame(points: Floats) -> NDArray[np.bool_]:
    """For every point, axis and end of the axis: whether the point lies on that side of the unit square."""
    return np.stack([np.abs(points) <= CLOSE, np.abs(points - 1) <= CLOSE], axis=-1)


def _kind(region: Region, p: Floats, q: Floats) -> str:
    if _on_frame(np.array([p, q])).all(axis=0).any():
        return "frame"
    normal = np.array([q[1] - p[1], p[0] - q[0]])
    normal /= np.linalg.norm(normal)
    return "closed" if _room(region, normal[None, :], normal[None, :] @ p) > 0 else "open"


def _room(region: Region, normals: Floats, level: Floats) -> float:
    """How far strict rows can be from tight where ``normals · axes = level``, less a tolerance; 1 if none is strict."""
    if not region.strict.any():
        return 1.0
    width = region.A.shape[1]
    there = np.zeros((len(normals), width + 1))
    there[:, : region.axes] = normals
    A = np.vstack([np.hstack([region.A, region.strict[:, None]]), there, -there])
    b = np.concatenate([region.b, level, -level]) + CLOSE
    found = linprog(
        [0.0] * width + [-1.0],
        A_ub=A,
        b_ub=b,
        A_eq=np.hstack([region.C, np.zeros((len(region.C), 1))]) if len(region.C) else None,
        b_eq=region.d if len(region.C) else None,
        bounds=[(None, None)] * width + [(None, 1.0)],
    )
    return float(-found.fun) - 100 * CLOSE if found.status == 0 else 0.0


def _apart(points: Floats, close: float) -> Floats:
    kept: list[Floats] = []
    for p in points:
        if all(np.abs(p - q).max() > close for q in kept):
            kept.append(p)
    return np.array(kept).reshape(len(kept), points.shape[1] if len(points) else 0)


def _ordered(points: Floats) -> list[Floats]:
    """Round their centre; on a line, along it; corners only."""
    if len(points) < 3:
        return list(points)
    centre = points.mean(axis=0)
    _, spread, directions = np.linalg.svd(points - centre)
    if points.shape[1] == 1 or spread[1] < 1e-6 * spread[0]:
        along = (points - centre) @ directions[0]
        return [points[along.argmin()], points[along.argmax()]]
    angles = np.arctan2(*(points - centre).T[::-1])
    return list(points[np.argsort(angles)])


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
    corners = [
        _meeting(lines[list(k)], levels[list(k)])
        for k in combinations(range(len(lines)), region.axes)
    ]
    points = np.array([c for c in corners if c is not None]).reshape(-1, region.axes)
    slack = 1e-9 * (1 + np.abs(points).max(axis=1, initial=0.0))[:, None]
    inequalities = len(region.A)
    values = points @ lines.T - levels
    inside = (values[:, :inequalities] <= slack).all(axis=1)
    equal = values[:, inequalities : inequalities + len(region.C)]
    inside &= (np.abs(equal) <= slack).all(axis=1)
    inside &= (values[:, inequalities + len(region.C) :] <= slack).all(axis=1)
    return np.asarray(points[inside])


def _meeting(lines: Floats, levels: Floats) -> Floats | None:
    if abs(np.linalg.det(lines)) < 1e-12:
        return None
    return np.asarray(np.linalg.solve(lines, levels), dtype=np.float64)


# --- projections ----------------------------------------------------------------------------------------------------


def _support(region: Region, direction: Floats, frame: Frame) -> Floats | None:
    """The point of the projection, inside the frame, that lies farthest in this direction."""
    cost = np.zeros(region.A.shape[1])
    cost[: region.axes] = -direction
    bounds = [*zip(*frame, strict=True), *([(None, None)] * (len(cost) - region.axes))]
    found = linprog(
        cost,
        A_ub=region.A if len(region.A) else None,
        b_ub=region.b if len(region.A) else None,
        A_eq=region.C if len(region.C) else None,
        b_eq=region.d if len(region.C) else None,
        bounds=bounds,
    )
    return np.asarray(found.x[: region.axes]) if found.status == 0 else None


def _projected(region: Region, frame: Frame) -> Floats:
    """The corners of the projection: sides are moved outwards until none gives."""
    first = [_support(region, s * e, frame) for e in np.eye(region.axes) for s in (1.0, -1.0)]
    found = [p for p in first if p is not None]
    close = 1e-6  # frames of projections are unit squares
    points = _ordered(_apart(np.array(found).reshape(-1, region.axes), close))
    if region.axes == 1 or not points:
        return np.array(points).reshape(-1, region.axes)
    sides = list(zip(points, [*points[1:], points[0]], strict=True))
    corners = list(points)
    while sides and len(corners) < 200:
        p, q = sides.pop()
        normal = np.array([q[1] - p[1], p[0] - q[0]])
        if (length := float(np.linalg.norm(normal))) <= close:
            continue
        r = _support(region, normal / length, frame)
        if r is not None and (normal / length) @ (r - p) > close:
            corners.append(r)
            sides += [(p, r), (r, q)]
    return np.array(corners)


# --- the frame ------------------------------------------------------------------------------------------------------


def frame_of(shown: Sequence[Region], axes: int) -> Frame:
    """A frame with every corner and some room, more of it where sets go on; ±10 on an axis without corners."""
    landmarks = [_landmarks(region) for region in shown]
    coordinates = [
        np.concatenate([np.zeros(0), *(values[i] for values in landmarks)]) for i in range(axes)
    ]
    frame = _around(coordinates, 0.15)
    return _around(coordinates, 0.4) if any(_touches(region, frame) for region in shown) else frame


def _around(coordinates: Sequence[Floats], room: float) -> Frame:
    spans = [float(np.ptp(c)) if len(c) else 0.0 for c in coordinates]
    sides = [_side(c, span, max(spans), room) for c, span in zip(coordinates, spans, strict=True)]
    return np.array([side[0] for side in sides]), np.array([side[1] for side in sides])


def _side(coordinates: Floats, span: float, widest: float, room: float) -> tuple[float, float]:
    if not len(coordinates):
        return -10.0, 10.0
    if span <= 1e-9 * max(
        np.abs(coordinates).max(), 1.0
    ):  # one coordinate only: as wide as the other axis
        span = widest or max(2 * float(np.abs(coordinates).max()), 4.0)
        room = 0.5
    return float(coordinates.min()) - room * span, float(coordinates.max()) + room * span


def _touches(region: Region, frame: Frame) -> bool:
    """Whether the region reaches the frame, and so goes on."""
    return bool(_on_frame(_corners(_in_unit_square(region, frame))).any())


def _landmarks(region: Region) -> list[Floats]:
    """What to show on each axis: corners; without any, where boundary lines are nearest to the origin."""
    if region.is_projection:
        everywhere = (np.full(region.axes, -FAR), np.full(region.axes, FAR))
        ends = [
            [_support(region, s * e, everywhere) for s in (1.0, -1.0)] for e in np.eye(region.axes)
        ]
        found = [np.array([p[i] for p in pair if p is not None]) for i, pair in enumerate(ends)]
    elif len(corners := _vertices(region, None)):
        found = list(corners.T)
    else:
        lines = np.vstack([region.A, region.C])
        levels = np.concatenate([region.b, region.d])
        found = [(lines[:, i] * levels)[lines[:, i] != 0] for i in range(region.axes)]
    return [values[np.abs(values) < FAR / 2] for values in found]
