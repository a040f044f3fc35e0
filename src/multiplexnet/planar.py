"""Terms in the plane of two variables, for pictures: vertices, edges and a frame, in float64.

A term that ties the two variables to others is projected: the support function of the projection, one LP a direction,
gives its vertices exactly as far as the LP is exact. Nothing here decides anything about rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from multiplexnet.errors import PlotError
from multiplexnet.exact import nearest
from multiplexnet.logic.formula import Atom, Linear, Variable
from multiplexnet.logic.terms import Block, Compiled, Term

__all__ = ["Edge", "Frame", "Region", "frame_of", "outline", "regions"]

Floats = NDArray[np.float64]
FAR = 1e9  # bounds beyond it count as none
CLOSE = 1e-7  # relative to the frame: nearer points are one point


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


def regions(compiled: Compiled, axes: Sequence[Variable], at: Mapping[Variable, Fraction]) -> Iterator[Region]:
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


def _region(label: str, term: Term, axes: Sequence[Variable], at: Mapping[Variable, Fraction]) -> Region:
    fixed = [Atom(Linear.of(v) - n, "==") for v, n in term.fixed]
    rows = [Atom(_fixed(row.linear, at), row.relation) for row in (*term.rows, *fixed)]
    names = list(axes) + _tied(rows, axes)
    kept = [r for r in rows if {s for s, _ in r.linear.terms} & set(names) or not r.linear.terms]
    matrix = np.array([[nearest(r.linear.coefficient(v)) for v in names] for r in kept]).reshape(-1, len(names))
    right = np.array([nearest(-r.linear.constant) for r in kept])
    length = np.linalg.norm(matrix, axis=1) if len(kept) else np.ones(0)
    scale = np.where(length > 0, length, 1.0)
    matrix, right = matrix / scale[:, None], right / scale
    equal = np.array([r.relation == "==" for r in kept], dtype=np.bool_)
    strict = np.array([r.relation == "<" for r in kept], dtype=np.bool_)
    A, b, strict, C, d = matrix[~equal], right[~equal], strict[~equal], matrix[equal], right[equal]
    return Region(label, term, A, b, strict, C, d, len(axes))


def _fixed(linear: Linear, at: Mapping[Variable, Fraction]) -> Linear:
    """The expression with its inputs put in."""
    for symbol, _ in linear.terms:
        if not isinstance(symbol, Variable):
            raise PlotError("rules with functions cannot be drawn: what the functions return is not known here")
    constant = sum((c * at[s] for s, c in linear.terms if isinstance(s, Variable) and s in at), linear.constant)
    return Linear(tuple((s, c) for s, c in linear.terms if s not in at), constant)


def _tied(rows: Sequence[Atom], axes: Sequence[Variable]) -> list[Variable]:
    """The other variables that rows connect to the axes."""
    reached = set(axes)
    while True:
        new = {s for row in rows for s, _ in row.linear.terms if reached & {t for t, _ in row.linear.terms}} - reached
        if not new:
            return sorted((v for v in reached - set(axes) if isinstance(v, Variable)), key=lambda v: v.index)
        reached |= {v for v in new if isinstance(v, Variable)}


# --- outlines -------------------------------------------------------------------------------------------------------


def outline(region: Region, frame: Frame) -> list[Edge]:
    """The sides of the region inside the frame, in order; a segment has one side, a point one without length."""
    size = float(np.max(frame[1] - frame[0]))
    found = _projected(region, frame) if region.is_projection else _vertices(region, frame)
    points = _ordered(_apart(found, size * CLOSE))
    if len(points) < 3:
        return [Edge(points[0], points[-1], "closed")] if len(points) else []
    following = [*points[1:], points[0]]
    return [Edge(p, q, _kind(region, p, q, frame)) for p, q in zip(points, following, strict=True)]


def is_attained(region: Region, point: Floats, frame: Frame) -> bool:
    """Whether the point belongs to the region, not only to its closure."""
    return _slack(region, np.eye(region.axes), point, frame) > 0


def _kind(region: Region, p: Floats, q: Floats, frame: Frame) -> str:
    close = CLOSE * float(np.max(frame[1] - frame[0]))
    if any(np.all(np.abs(np.array([p, q])[:, i] - side[i]) <= close) for side in frame for i in range(len(p))):
        return "frame"
    normal = np.array([q[1] - p[1], p[0] - q[0]])
    normal /= np.linalg.norm(normal)
    return "closed" if _slack(region, normal[None, :], normal[None, :] @ p, frame) > 0 else "open"


def _slack(region: Region, normals: Floats, level: Floats, frame: Frame) -> float:
    """How far strict rows can be from tight where ``normals · axes = level``; 1 where there are none."""
    if not region.strict.any():
        return 1.0
    size = float(np.max(frame[1] - frame[0]))
    width = region.A.shape[1]
    A = np.hstack([region.A, region.strict[:, None].astype(np.float64)])
    fixed = np.zeros((len(normals), width + 1))
    fixed[:, : region.axes] = normals
    C = np.vstack([np.hstack([region.C, np.zeros((len(region.C), 1))]), fixed])
    loose = 1e-6 * size
    found = linprog(
        [0.0] * width + [-1.0],
        A_ub=np.vstack([A, fixed, -fixed]),
        b_ub=np.concatenate([region.b + loose * 1e-3, level + loose * 1e-3, -level + loose * 1e-3]),
        A_eq=C[: len(region.C)] if len(region.C) else None,
        b_eq=region.d if len(region.C) else None,
        bounds=[(None, None)] * width + [(None, 1.0)],
    )
    return float(-found.fun - loose) if found.status == 0 else 0.0


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
    rows, right = [region.A, region.C], [region.b, region.d]
    if frame is not None:
        eye = np.eye(region.axes)
        rows, right = [*rows, -eye, eye], [*right, -frame[0], frame[1]]
    lines, levels = np.vstack(rows), np.concatenate(right)
    corners = [_meeting(lines[list(k)], levels[list(k)]) for k in combinations(range(len(lines)), region.axes)]
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
    close = 1e-6 * float(np.max(frame[1] - frame[0]))
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
    """A frame that shows every corner with some room, and where sets go on without end, more; ±10 without corners."""
    everywhere = (np.full(axes, -FAR), np.full(axes, FAR))
    points = [_landmarks(region, everywhere) for region in shown]
    corners = np.vstack([np.zeros((0, axes)), *points])
    corners = corners[(np.abs(corners) < FAR / 2).all(axis=1)]
    if not len(corners):
        return np.full(axes, -10.0), np.full(axes, 10.0)
    lower, upper = corners.min(axis=0), corners.max(axis=0)
    span = upper - lower
    flat = span <= 1e-9 * np.maximum(np.abs(upper), 1.0)
    span = np.where(
        flat, np.where(flat.all(), np.maximum(2.0 * np.abs(upper), 4.0), np.maximum(span.max() / 2, 1.0)), span
    )
    room = np.where(flat, 0.5, 0.15) * span
    return lower - room, upper + room


def _landmarks(region: Region, everywhere: Frame) -> Floats:
    """Corners of the region; without any, the points of its boundary lines nearest to the origin."""
    if region.is_projection:
        return _projected(region, everywhere)
    if len(corners := _vertices(region, None)):
        return corners
    lines, levels = np.vstack([region.A, region.C]), np.concatenate([region.b, region.d])
    return np.asarray(lines * levels[:, None])
