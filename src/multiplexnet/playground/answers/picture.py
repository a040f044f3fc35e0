"""The terms in the plane of two outputs, or on a line, with all other values fixed or free.

Whether a term has points there is decided exactly; its outline is drawn in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from multiplexnet.errors import QuestionError
from multiplexnet.playground.answers.layers import Situation, refuse_many, situation
from multiplexnet.playground.answers.maps import nearby
from multiplexnet.playground.answers.values import values_of
from multiplexnet.playground.asked import Asked
from multiplexnet.playground.library import (
    Atom,
    Frame,
    Linear,
    Region,
    Variable,
    conjunction_of,
    frame_of,
    is_attained,
    number_text,
    outline,
    regions,
    satisfiable,
    term_text,
)

__all__ = ["picture"]

ROOM = 0.12
"""What is left free around points that a frame is widened for, as a part of its width."""


def picture(asked: Asked) -> dict[str, Any]:
    """The regions of all terms inside a frame.

    Fields: ``text``, ``axes`` (names), ``inputs`` and ``fixed`` (numbers by name; an output that is not fixed is free:
    the picture is a projection along it), ``frame`` (lower and upper ends, or nothing: all of it).
    """
    there = situation(asked)
    fixed = values_of(there.rules.outputs, asked.numbers("fixed"), None, "output")
    fixed = {v: n for v, n in fixed.items() if v not in there.axes}
    refuse_many(there)
    at = {**there.inputs, **fixed}
    found = list(regions(there.compiled, there.axes, at))
    frame = _frame(asked, there) or _widened(frame_of(found, len(there.axes)), nearby(there))
    empty = _empty_elsewhere(there, at)
    shown = (
        {}
        if empty
        else {k: region for k, region in enumerate(found) if _has_points(region.term.formula, at)}
    )
    return {
        "axes": [v.name for v in there.axes],
        "frame": [list(map(float, frame[0])), list(map(float, frame[1]))],
        "regions": [{"number": k, **_drawn(region, frame)} for k, region in shown.items()],
        "terms": len(found),
        "projected": any(region.is_projection for region in shown.values()),
        "empty": empty,
        "inputs": {v.name: number_text(n) for v, n in there.inputs.items()},
    }


def _frame(asked: Asked, there: Situation) -> Frame | None:
    ends = asked.floats("frame")
    if ends is None:
        return None
    size = len(there.axes)
    lower, upper = np.array(ends[:size]), np.array(ends[size:])
    if (
        len(ends) != 2 * size
        or not (upper - lower > 1e-12 * np.maximum(np.abs(upper), np.abs(lower))).all()
    ):
        raise QuestionError("frame: expected the lower ends of the axes, then the upper ones")
    return lower, upper


def _widened(frame: Frame, points: Sequence[Sequence[float]]) -> Frame:
    """The frame with these points in it: sets without end have no corners that would say where to look."""
    if not points:
        return frame
    lowest, highest = np.min(points, axis=0), np.max(points, axis=0)
    lower, upper = np.minimum(frame[0], lowest), np.maximum(frame[1], highest)
    room = ROOM * (upper - lower)
    return np.where(lowest < frame[0], lower - room, lower), np.where(
        highest > frame[1], upper + room, upper
    )


def _has_points(formula: Any, at: dict[Variable, Fraction]) -> bool:
    """Whether something obeys the formula there, exactly."""
    if not at:
        return True  # no term is empty
    there = [Atom(Linear.of(v) - n, "==") for v, n in at.items()]
    return satisfiable(conjunction_of([formula, *there])) is not None


def _empty_elsewhere(there: Situation, at: dict[Variable, Fraction]) -> str | None:
    """Why nothing obeys whatever the axes say: a block without them that the fixed values break."""
    for block in there.compiled.blocks:
        if not set(block.outputs) & set(there.axes) and set(block.outputs) & set(at):
            own = {v: n for v, n in at.items() if v.is_input or v in block.outputs}
            if not _has_points(block.formula, own):
                values = ", ".join(f"{v.name} = {number_text(n)}" for v, n in own.items())
                return f"no output obeys the rules with {values}"
    return None


def _drawn(region: Region, frame: Frame) -> dict[str, Any]:
    edges = outline(region, frame)
    points = [edge.start for edge in edges]
    if len(edges) == 1:
        points.append(edges[0].end)
    return {
        "label": region.label,
        "text": term_text(region.term),
        "points": [list(map(float, point)) for point in points],
        "kinds": [edge.kind for edge in edges],
        "ends": _ends(region, points, frame) if len(edges) == 1 else [],
    }


def _ends(region: Region, points: Sequence[Any], frame: Frame) -> list[str]:
    """Of a segment: whether its ends belong to it, or whether it goes on there."""
    return [_end(region, point, frame) for point in points]


def _end(region: Region, point: Any, frame: Frame) -> str:
    close = 1e-7 * (frame[1] - frame[0])
    if ((np.abs(point - frame[0]) <= close) | (np.abs(point - frame[1]) <= close)).any():
        return "frame"
    return "closed" if is_attained(region, point, frame) else "open"
