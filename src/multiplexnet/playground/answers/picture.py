"""The terms in the plane of two outputs, or on a line, with all other values fixed or free.

Whether a term has points there is decided exactly; its outline is drawn in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from multiplexnet.errors import MultiplexError, QuestionError
from multiplexnet.playground.answers.layers import Situation, refuse_many, situation
from multiplexnet.playground.answers.left import described, pieces
from multiplexnet.playground.answers.maps import nearby
from multiplexnet.playground.answers.values import amount, values_of
from multiplexnet.playground.asked import Question
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
    value_text,
)

__all__ = ["picture"]

ROOM = 0.12
"""What is left free around points that a frame is widened for, as a part of its width."""


def picture(asked: Question) -> dict[str, Any]:
    """The regions of all terms inside a frame.

    Fields: ``text``, ``axes`` (names), ``inputs`` and ``fixed`` (numbers by name; an output that is not fixed is free:
    the picture is a projection along it), ``frame`` (lower and upper ends, or nothing: all of it).
    """
    there = situation(asked)
    fixed = values_of(there.rules.outputs, asked.typed("fixed"), None, "output")
    fixed = {v: n for v, n in fixed.items() if v not in there.axes}
    told = (
        _cascade(asked, there, fixed)
        if there.is_cascade
        else _terms(asked, there, fixed)
    )
    return {
        "axes": [v.name for v in there.axes],
        "inputs": {v.name: number_text(amount(v, n)) for v, n in there.inputs.items()},
        "cascade": there.is_cascade,
        **told,
    }


def _terms(
    asked: Question, there: Situation, fixed: Mapping[Variable, Fraction]
) -> dict[str, Any]:
    refuse_many(there)
    at = {**there.inputs, **fixed}
    size = np.array([float(v.unit.size) for v in there.axes])
    found = list(regions(there.compiled, there.axes, at))
    chosen = _frame(asked, there)
    if chosen is None:
        near = [np.array(point) / size for point in nearby(there)]
        frame = _widened(frame_of(found, len(there.axes)), near)
    else:
        frame = (chosen[0] / size, chosen[1] / size)
    empty = _empty_elsewhere(there, at)
    shown = (
        {}
        if empty
        else {
            k: region
            for k, region in enumerate(found)
            if _has_points(region.term.formula, at)
        }
    )
    return {
        "frame": [list(map(float, end * size)) for end in frame],
        "regions": [
            {"number": k, **_drawn(region, frame, size)} for k, region in shown.items()
        ],
        "terms": len(found),
        "projected": any(region.is_projection for region in shown.values()),
        "empty": empty,
    }


def _cascade(
    asked: Question, there: Situation, fixed: Mapping[Variable, Fraction]
) -> dict[str, Any]:
    """What is left for the axes, or, where that cannot be found, a frame for samples alone."""
    chosen = _frame(asked, there)
    why = None
    try:
        found = pieces(there, fixed, chosen)
    except MultiplexError as error:
        found = []
        why = str(error)
    places = [point for piece in found for point in piece.points]
    frame = chosen or _around(places or nearby(there), len(there.axes))
    others = len(there.rules.outputs) - len(there.axes) - len(fixed)
    return {
        "frame": [list(map(float, end)) for end in frame],
        "regions": described(found),
        "terms": 0,
        "projected": bool(others),
        "empty": None if found or why else _nothing(there, fixed),
        "samples_only": why,
    }


def _nothing(there: Situation, fixed: Mapping[Variable, Fraction]) -> str:
    at = {**there.inputs, **fixed}
    values = ", ".join(f"{v.name} = {value_text(v, n)}" for v, n in at.items())
    return f"no output obeys the rules with {values}"


def _around(points: Sequence[Sequence[float]], axes: int) -> Frame:
    """A frame with some room around points."""
    if not points:
        return -np.ones(axes), np.ones(axes)
    lower = np.min(points, axis=0)
    upper = np.max(points, axis=0)
    width = upper - lower
    room = np.where(width > 0, ROOM * width, np.maximum(1.0, np.abs(upper)) * ROOM)
    return lower - room, upper + room


def _frame(asked: Question, there: Situation) -> Frame | None:
    ends = asked.floats("frame")
    if ends is None:
        return None
    size = len(there.axes)
    lower = np.array(ends[:size])
    upper = np.array(ends[size:])
    if (
        len(ends) != 2 * size
        or not (upper - lower > 1e-12 * np.maximum(np.abs(upper), np.abs(lower))).all()
    ):
        raise QuestionError(
            "frame: expected the lower ends of the axes, then the upper ones"
        )
    return lower, upper


def _widened(frame: Frame, points: Sequence[Sequence[float]]) -> Frame:
    """The frame with these points in it: sets without end have no corners that would say where to look."""
    if not points:
        return frame
    lowest = np.min(points, axis=0)
    highest = np.max(points, axis=0)
    lower = np.minimum(frame[0], lowest)
    upper = np.maximum(frame[1], highest)
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
                values = ", ".join(
                    f"{v.name} = {number_text(n)}" for v, n in own.items()
                )
                return f"no output obeys the rules with {values}"
    return None


def _drawn(region: Region, frame: Frame, size: Any) -> dict[str, Any]:
    edges = outline(region, frame)
    points = [edge.start for edge in edges]
    if len(edges) == 1:
        points.append(edges[0].end)
    return {
        "label": region.label,
        "text": term_text(region.term),
        "points": [list(map(float, point * size)) for point in points],
        "kinds": [edge.kind for edge in edges],
        "ends": _ends(region, points, frame) if len(edges) == 1 else [],
    }


def _ends(region: Region, points: Sequence[Any], frame: Frame) -> list[str]:
    """Of a segment: whether its ends belong to it, or whether it goes on there."""
    return [_end(region, point, frame) for point in points]


def _end(region: Region, point: Any, frame: Frame) -> str:
    close = 1e-7 * (frame[1] - frame[0])
    if (
        (np.abs(point - frame[0]) <= close) | (np.abs(point - frame[1]) <= close)
    ).any():
        return "frame"
    return "closed" if is_attained(region, point, frame) else "open"
