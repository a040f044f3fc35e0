"""Pictures of terms: the union of all terms in two variables (or one), a colour for each term.

Solid sides belong to a term, dashed ones do not; what runs out of the frame goes on. Terms over more variables are
projected, and the title says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiplexnet.compiler.terms import Compiled
from multiplexnet.errors import PlotError
from multiplexnet.language.formula import Bool, Category, Int, Real, Variable
from multiplexnet.language.text import formula_text, number_text
from multiplexnet.tools.plane import (
    Edge,
    Frame,
    Region,
    frame_of,
    is_attained,
    outline,
    regions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_terms"]

MOST_REGIONS = 1000
MOST_LABELS = 30
MOST_IN_LEGEND = 10
Colour = Any


def plot_terms(
    compiled: Compiled,
    axes: Sequence[str] | None,
    path: str | Path,
    *,
    at: Mapping[str, Fraction] | None = None,
) -> None:
    """Draw the terms into a file, one colour a term.

    Args:
        compiled: the rules in disjunctive normal form.
        axes: the names of one or two outputs; by default the first two.
        path: where the picture goes; its ending chooses the format.
        at: values of inputs; an input that is not given is put in the middle of its range, and the title says where.

    Raises:
        PlotError: an output or input that does not exist, more than two axes, rules that call functions.
    """
    from matplotlib.figure import (
        Figure,
    )  # a figure of its own: no window, no global state

    chosen = _axes(compiled, axes)
    inputs = _inputs(compiled, at or {})
    found = list(regions(compiled, chosen, inputs))
    if len(found) > MOST_REGIONS:
        raise PlotError(
            f"{len(found):,} terms are too many for a picture (at most {MOST_REGIONS:,})"
        )
    figure = Figure(
        figsize=(8, 6 if len(chosen) == 2 else min(1.6 + 0.35 * len(found), 12)),
        layout="constrained",
        dpi=150,
    )
    canvas = figure.add_subplot()
    colours = _colours(len(found))
    frame = frame_of(found, len(chosen))
    draw = _draw_plane if len(chosen) == 2 else _draw_line
    drawn = draw(canvas, found, colours, frame)
    canvas.set_title(_title(compiled, chosen, inputs, found, drawn), fontsize=11)
    _label_axes(canvas, chosen)
    _legend(figure, found, colours)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise PlotError(f"{path}: {error}") from None


# --- what is drawn --------------------------------------------------------------------------------------------------


def _axes(compiled: Compiled, names: Sequence[str] | None) -> list[Variable]:
    if not names:
        reals = [v for v in _outputs(compiled) if not v.is_discrete]
        return (reals if len(reals) > 1 else _outputs(compiled))[:2]
    known = {v.name: v for v in _outputs(compiled)}
    for name in names:
        if name not in known:
            raise PlotError(
                f"{name!r} is not an output of the rules (their outputs: {', '.join(known)})"
            )
    if len(names) > 2 or len(set(names)) < len(names):
        raise PlotError("a picture has one axis or two different ones")
    return [known[name] for name in names]


def _outputs(compiled: Compiled) -> list[Variable]:
    return [v for v in compiled.outputs if not v.is_flag]


def _inputs(compiled: Compiled, at: Mapping[str, Fraction]) -> dict[Variable, Fraction]:
    known = [v.name for v in compiled.inputs]
    for name in at:
        if name not in known:
            raise PlotError(
                f"{name!r} is not an input of the rules (their inputs: {', '.join(known) or 'none'})"
            )
    return {v: at.get(v.name, _middle(v)) for v in compiled.inputs}


def _middle(variable: Variable) -> Fraction:
    match variable.domain:
        case Real(None, None):
            return Fraction(0)
        case Real(lower, upper):
            return (
                (lower + upper) / 2
                if lower is not None and upper is not None
                else (lower or upper or Fraction(0))
            )
        case domain:
            return Fraction(domain.values[0])


def _title(
    compiled: Compiled,
    axes: list[Variable],
    inputs: dict[Variable, Fraction],
    found: list[Region],
    drawn: int,
) -> str:
    count = f"{len(found)} term" if len(found) == 1 else f"{len(found)} terms"
    words = [f"{count} in {' and '.join(v.name for v in axes)}"]
    if inputs:
        words.append(
            "at " + ", ".join(f"{v.name} = {number_text(n)}" for v, n in inputs.items())
        )
    if any(region.is_projection for region in found):
        others = len(_outputs(compiled)) - len(axes)
        words.append(
            f"(projection along {others} other output{'' if others == 1 else 's'})"
        )
    if drawn < len(found):
        words.append(
            f"({len(found) - drawn} without points {'there' if inputs else 'in the frame'})"
        )
    return " ".join(words)


def _colours(count: int) -> list[Colour]:
    from matplotlib import colormaps

    if count <= 10:
        return [colormaps["tab10"](k) for k in range(count)]
    return [
        colormaps["turbo"](0.05 + 0.9 * ((k * 0.618034) % 1)) for k in range(count)
    ]  # neighbours far apart


def _text(region: Region) -> str:
    text = formula_text(region.term.formula)
    return text if len(text) <= 80 else text[:79] + "…"


def _legend(figure: Any, found: list[Region], colours: list[Colour]) -> None:
    if not 0 < len(found) <= MOST_IN_LEGEND:
        return
    from matplotlib.patches import Patch

    handles = [
        Patch(color=c, alpha=0.6, label=f"{r.label}: {_text(r)}")
        for r, c in zip(found, colours, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower left", fontsize=8, frameon=False)


def _label_axes(canvas: Axes, axes: Sequence[Variable]) -> None:
    canvas.set_xlabel(axes[0].name)
    if len(axes) == 2:
        canvas.set_ylabel(axes[1].name)
    for variable, axis in zip(axes, (canvas.xaxis, canvas.yaxis), strict=False):
        match variable.domain:
            case Category(labels):
                axis.set_ticks(range(len(labels)), labels=labels)
            case Bool():
                axis.set_ticks([0, 1], labels=["false", "true"])
            case Int(lower, upper) if upper - lower <= 20:
                axis.set_ticks(range(lower, upper + 1))


# --- two axes -------------------------------------------------------------------------------------------------------


def _draw_plane(
    canvas: Axes, found: list[Region], colours: list[Colour], frame: Frame
) -> int:
    shapes = [outline(region, frame) for region in found]
    labels: dict[bytes, list[str]] = {}
    for region, edges, colour in zip(found, shapes, colours, strict=True):
        if not edges:
            continue
        same = labels.setdefault(_key(edges, frame), [])
        same.append(region.label)
        if len(same) == 1:  # terms that differ elsewhere are drawn once
            _draw_shape(canvas, region, edges, colour, frame)
    if len(found) <= MOST_LABELS:
        _draw_labels(
            canvas,
            {_key(edges, frame): edges for edges in shapes if edges},
            labels,
            frame,
        )
    canvas.set_xlim(frame[0][0], frame[1][0])
    canvas.set_ylim(frame[0][1], frame[1][1])
    canvas.grid(alpha=0.25)
    return sum(map(bool, shapes))


def _key(edges: list[Edge], frame: Frame) -> bytes:
    """The same for the same outline."""
    corners = np.array([edge.start for edge in edges] + [edges[0].end])
    placed = np.rint((corners - frame[0]) / (frame[1] - frame[0]) * 1e5).astype(
        np.int64
    )
    return np.unique(placed, axis=0).tobytes()


def _draw_shape(
    canvas: Axes, region: Region, edges: list[Edge], colour: Colour, frame: Frame
) -> None:
    if len(edges) > 2:
        _draw_polygon(canvas, edges, colour)
    else:
        _draw_thin(canvas, region, edges[0], colour, frame)


def _draw_polygon(canvas: Axes, edges: list[Edge], colour: Colour) -> None:
    corners = np.array([edge.start for edge in edges])
    canvas.fill(corners[:, 0], corners[:, 1], color=colour, alpha=0.3, linewidth=0)
    for edge in edges:
        if edge.kind != "frame":
            style = "-" if edge.kind == "closed" else (0, (4, 3))
            canvas.plot(
                *zip(edge.start, edge.end, strict=True),
                color=colour,
                linestyle=style,
                linewidth=1.8,
            )


def _draw_thin(
    canvas: Axes, region: Region, edge: Edge, colour: Colour, frame: Frame
) -> None:
    """A segment with its ends, or a point."""
    if not np.allclose(edge.start, edge.end):
        canvas.plot(
            *zip(edge.start, edge.end, strict=True),
            color=colour,
            linewidth=2.5,
            solid_capstyle="butt",
        )
    for end in (edge.start, edge.end):
        if not _on_frame(end, frame):
            _draw_end(canvas, end, colour, filled=is_attained(region, end, frame))


def _draw_end(canvas: Axes, point: Any, colour: Colour, *, filled: bool) -> None:
    face = colour if filled else "white"
    canvas.plot(
        point[0],
        point[1],
        "o",
        color=colour,
        markerfacecolor=face,
        markersize=6,
        zorder=3,
        clip_on=False,
    )


def _on_frame(point: Any, frame: Frame) -> bool:
    close = 1e-7 * (frame[1] - frame[0])
    return bool(
        (
            (np.abs(point - frame[0]) <= close) | (np.abs(point - frame[1]) <= close)
        ).any()
    )


def _draw_labels(
    canvas: Axes,
    shapes: dict[bytes, list[Edge]],
    labels: dict[bytes, list[str]],
    frame: Frame,
) -> None:
    """Each label inside its shape, and away from the labels before it."""
    placed: list[Any] = []
    for key, edges in shapes.items():
        spots = [(spot - frame[0]) / (frame[1] - frame[0]) for spot in _spots(edges)]
        room = [
            min((np.abs(spot - other).max() for other in placed), default=1.0)
            for spot in spots
        ]
        best = next(
            (k for k, distance in enumerate(room) if distance > 0.08),
            int(np.argmax(room)),
        )
        placed.append(spots[best])
        side = 0
        if len(edges) < 3:
            side = -1 if spots[best][0] > 0.85 else 1
        _draw_label(canvas, ", ".join(labels[key]), _spots(edges)[best], side)


def _spots(edges: list[Edge]) -> list[Any]:
    """Places for a label, the best first."""
    if len(edges) < 3:
        return [
            edges[0].start + t * (edges[0].end - edges[0].start)
            for t in (0.5, 0.25, 0.75, 0.125, 0.875)
        ]
    corners = np.array([edge.start for edge in edges])
    centre = _centroid(corners)
    middles = (corners + np.roll(corners, -1, axis=0)) / 2
    return [centre, *(0.25 * centre + 0.75 * middles), *(0.4 * centre + 0.6 * corners)]


def _draw_label(canvas: Axes, label: str, where: Any, side: int) -> None:
    """A label on the spot, or to its left (−1) or right (1)."""
    canvas.annotate(
        label,
        (float(where[0]), float(where[1])),
        xytext=(7 * side, 7 * abs(side)),
        textcoords="offset points",
        ha=("center", "left", "right")[side],
        va="center",
        fontsize=10,
        fontweight="bold",
        bbox={
            "boxstyle": "round,pad=0.15",
            "facecolor": "white",
            "edgecolor": "none",
            "alpha": 0.7,
        },
    )


def _centroid(corners: Any) -> Any:
    x, y = (corners - corners[0]).T
    cross = x * np.roll(y, -1) - np.roll(x, -1) * y
    area = cross.sum() / 2
    moments = [((c + np.roll(c, -1)) * cross).sum() / (6 * area) for c in (x, y)]
    return corners[0] + np.array(moments)


# --- one axis -------------------------------------------------------------------------------------------------------


def _draw_line(
    canvas: Axes, found: list[Region], colours: list[Colour], frame: Frame
) -> int:
    """A number line for each term, one above the other."""
    drawn = 0
    for k, (region, colour) in enumerate(zip(found, colours, strict=True)):
        edges = outline(region, frame)
        drawn += bool(edges)
        if edges:
            _draw_interval(canvas, region, edges[0], -k, colour, frame)
    canvas.set_xlim(frame[0][0], frame[1][0])
    canvas.set_ylim(-len(found) + 0.4, 0.6)
    few = len(found) <= MOST_LABELS
    canvas.set_yticks(
        range(0, -len(found), -1) if few else [],
        labels=[r.label for r in found] if few else [],
    )
    canvas.grid(axis="x", alpha=0.25)
    return drawn


def _draw_interval(
    canvas: Axes,
    region: Region,
    edge: Edge,
    height: float,
    colour: Colour,
    frame: Frame,
) -> None:
    ends = sorted([float(edge.start[0]), float(edge.end[0])])
    canvas.plot(
        ends, [height, height], color=colour, linewidth=3, solid_capstyle="butt"
    )
    for x, marker in zip(ends, "<>", strict=True):
        if _on_frame(np.array([x]), frame):
            canvas.plot(
                x, height, marker, color=colour, markersize=9, zorder=3, clip_on=False
            )
        else:
            _draw_end(
                canvas,
                (x, height),
                colour,
                filled=is_attained(region, np.array([x]), frame),
            )
