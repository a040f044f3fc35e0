"""Pictures inside a page: histograms, bars and matrices as SVG, in the colours of the page."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from multiplexnet.quality.columns import ComparedColumn, Floats
from multiplexnet.quality.marginals import Bar, ColumnFigure, Mark, moment

__all__ = ["bars", "column_picture", "is_steep", "matrix", "png", "steps"]

WIDTH = 320
HEIGHT = 130
LEFT = 8
TOP = 18
BOTTOM = 18
LINE = 17
"""Height of a bar with its text."""
LONGEST = 18
"""Characters of a label that are shown."""
MOST_NAMES = 40
"""Columns of a matrix that have their names beside it."""
FARTHEST = 1e300
"""Pictures end there: differences of larger numbers may be infinite."""
NEAR = 0.25
"""A mark so many times the picture's width beyond its edge is still drawn: the picture is made wider."""


STEEP = 0.5
"""Where one bar of a histogram has such a share of all rows, heights are square roots, so that others can be seen."""


def is_steep(figure: ColumnFigure) -> bool:
    """Whether the heights of a histogram are the square roots of shares."""
    shares = [max(bar.real, bar.made) for bar in figure.bars if bar.lower is not None]
    return figure.shape == "histogram" and max(shares) > STEEP


def column_picture(figure: ColumnFigure) -> str:
    """The picture of a column: a histogram, or a bar for every value."""
    ordered = [bar for bar in figure.bars if bar.lower is not None]
    if figure.shape == "histogram":
        return _histogram(figure, ordered)
    if figure.column.kind in ("label", "truth") or not ordered:
        return bars(figure.bars)
    return _spikes(figure, ordered)


def _svg(width: float, height: float, parts: Sequence[str], about: str) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(about)}">{inner}</svg>'


# --- columns with an order --------------------------------------------------------------------------------------------


class _Axis:
    """Where numbers stand in a picture."""

    def __init__(self, low: float, high: float, marks: Sequence[Mark]) -> None:
        low, high = (float(np.clip(end, -FARTHEST, FARTHEST)) for end in (low, high))
        span = high - low or 1.0
        near = [
            mark.value
            for mark in marks
            if low - NEAR * span <= mark.value <= high + NEAR * span
        ]
        self.low = min([low, *near])
        self.high = max([high, *near])
        if self.low == self.high:
            margin = max(0.5, float(np.spacing(abs(self.low))))
            self.low -= margin
            self.high += margin

    def x(self, value: float) -> float:
        inner = WIDTH - 2 * LEFT
        return LEFT + inner * (value - self.low) / (self.high - self.low)

    def holds(self, mark: Mark) -> bool:
        return self.low <= mark.value <= self.high

    def ends(self, column: ComparedColumn) -> list[str]:
        y = TOP + HEIGHT + 13
        return [
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - LEFT}" y1="{TOP + HEIGHT}" y2="{TOP + HEIGHT}"/>',
            f'<text x="{LEFT}" y="{y}">{escape(moment(column, self.low))}</text>',
            f'<text x="{WIDTH - LEFT}" y="{y}" text-anchor="end">{escape(moment(column, self.high))}</text>',
        ]

    def marks(self, marks: Sequence[Mark]) -> list[str]:
        parts = []
        taken: list[tuple[float, float]] = []
        for mark in sorted(marks, key=lambda own: not own.is_bound):
            if not self.holds(mark):
                continue
            x = self.x(mark.value)
            kind = "bound" if mark.is_bound else "threshold"
            parts.append(
                f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{TOP + HEIGHT}"/>'
            )
            half = 3.2 * len(mark.text) + 3
            middle = min(max(x, half), WIDTH - half)
            if all(abs(middle - other) > half + size for other, size in taken):
                taken.append((middle, half))
                parts.append(
                    f'<text x="{middle:.1f}" y="{TOP - 7}" text-anchor="middle">{escape(mark.text)}</text>'
                )
        return parts


def _empty(figure: ColumnFigure) -> list[str]:
    """What is said of empty cells, below the axis."""
    own = [bar for bar in figure.bars if bar.lower is None]
    if not own:
        return []
    text = f"empty: {own[0].real:.1%} real, {own[0].made:.1%} made"
    y = TOP + HEIGHT + 13
    return [f'<text x="{WIDTH / 2}" y="{y}" text-anchor="middle">{text}</text>']


def _histogram(figure: ColumnFigure, own: Sequence[Bar]) -> str:
    low = own[0].lower or 0.0
    high = own[-1].upper or 0.0
    axis = _Axis(low, high, figure.marks)
    edges = [axis.x(bar.lower or 0.0) for bar in own] + [axis.x(high)]
    shares = np.array([[bar.real, bar.made] for bar in own])
    heights = np.sqrt(shares) if is_steep(figure) else shares
    heights = heights / (heights.max() or 1.0)
    real, made = heights.T.tolist()
    parts = [
        *axis.ends(figure.column),
        f'<path class="area" d="{_stairs(edges, real, True)}"/>',
        f'<path class="outline" d="{_stairs(edges, made, False)}"/>',
        *axis.marks(figure.marks),
        *_empty(figure),
    ]
    about = f"histogram of {figure.column.name}"
    return _svg(WIDTH, TOP + HEIGHT + BOTTOM, parts, about)


def _stairs(edges: Sequence[float], heights: Sequence[float], closed: bool) -> str:
    base = TOP + HEIGHT
    points = [f"M{edges[0]:.1f} {base}"]
    for k, height in enumerate(heights):
        points.append(f"V{base - HEIGHT * height:.1f}H{edges[k + 1]:.1f}")
    points.append(f"V{base}")
    return "".join(points) + ("Z" if closed else "")


def _spikes(figure: ColumnFigure, own: Sequence[Bar]) -> str:
    """Two bars at every value."""
    values = [bar.lower or 0.0 for bar in own]
    axis = _Axis(values[0], values[-1], figure.marks)
    places = [axis.x(value) for value in values]
    gap = min(np.diff(places), default=float(WIDTH))
    width = min(max(0.4 * gap, 1.5), 14.0)
    top = max(max(bar.real, bar.made) for bar in own) or 1.0
    parts = axis.ends(figure.column)
    for x, bar in zip(places, own, strict=True):
        middle = min(max(x, width), WIDTH - width)
        for kind, share, start in (
            ("real", bar.real, middle - width),
            ("made", bar.made, middle),
        ):
            height = HEIGHT * share / top
            parts.append(
                f'<rect class="{kind}" x="{start:.1f}" y="{TOP + HEIGHT - height:.1f}" '
                f'width="{width:.1f}" height="{height:.1f}">'
                f"<title>{escape(bar.text)}: {share:.1%} {kind}</title></rect>"
            )
    parts += [*axis.marks(figure.marks), *_empty(figure)]
    return _svg(WIDTH, TOP + HEIGHT + BOTTOM, parts, f"values of {figure.column.name}")


# --- labels -----------------------------------------------------------------------------------------------------------


def bars(own: Sequence[Bar]) -> str:
    """Two horizontal bars for every value, with its name."""
    top = max((max(bar.real, bar.made) for bar in own), default=0.0) or 1.0
    start = 118
    room = WIDTH - 118 - 48
    parts = []
    for k, bar in enumerate(own):
        y = 2 + LINE * k
        parts.append(
            f'<text class="text" x="{start - 6}" y="{y + 11}" text-anchor="end">{escape(_short(bar.text))}'
            f"<title>{escape(bar.text)}</title></text>"
        )
        for kind, share, down in (("real", bar.real, 1), ("made", bar.made, 7)):
            width = room * share / top
            parts.append(
                f'<rect class="{kind}" x="{start}" y="{y + down}" width="{width:.1f}" height="5.5"/>'
            )
        widest = start + room * max(bar.real, bar.made) / top
        parts.append(f'<text x="{widest + 4:.1f}" y="{y + 11}">{bar.made:.1%}</text>')
    return _svg(WIDTH, 4 + LINE * len(own), parts, "shares of values")


def _short(text: str) -> str:
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


# --- two lines --------------------------------------------------------------------------------------------------------


def steps(edges: Sequence[float], real: Sequence[float], made: Sequence[float]) -> str:
    """Two histograms with the same bins."""
    axis = _Axis(edges[0], edges[-1], ())
    places = [axis.x(edge) for edge in edges]
    top = max([*real, *made]) or 1.0
    parts = [
        *axis.ends(ComparedColumn("", "number")),
        f'<path class="area" d="{_stairs(places, [own / top for own in real], True)}"/>',
        f'<path class="outline" d="{_stairs(places, [own / top for own in made], False)}"/>',
    ]
    return _svg(WIDTH, TOP + HEIGHT + BOTTOM, parts, "distances to the nearest row")


# --- matrices ---------------------------------------------------------------------------------------------------------


def matrix(values: Floats, names: Sequence[str], about: str) -> str:
    """Numbers between −1 and 1 as a square of coloured cells: orange above 0, blue below, clear at 0."""
    count = len(names)
    has_names = count <= MOST_NAMES
    left = 112 if has_names else 4
    size = WIDTH - left - 4
    side = size / count
    colours = np.zeros((count, count, 4), dtype=np.uint8)
    colours[values >= 0] = (214, 84, 20, 0)
    colours[values < 0] = (30, 120, 220, 0)
    strength = np.sqrt(np.clip(np.abs(values), 0, 1))
    colours[..., 3] = np.round(255 * strength)
    uri = "data:image/png;base64," + b64encode(png(colours)).decode("ascii")
    parts = [
        f'<rect class="track" x="{left}" y="4" width="{size}" height="{size}"/>',
        f'<image x="{left}" y="4" width="{size}" height="{size}" href="{uri}"/>',
    ]
    font = min(11.0, max(side * 0.95, 5.0))
    for k, name in enumerate(names if has_names else ()):
        y = 4 + (k + 0.5) * side + font * 0.35
        parts.append(
            f'<text x="{left - 4}" y="{y:.1f}" text-anchor="end" '
            f'style="font-size:{font:.1f}px">{escape(_short(name))}</text>'
        )
    return _svg(WIDTH, size + 8, parts, about)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture of shape (height, width, 4), red, green, blue and opacity, as a PNG file."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + pixels[row].tobytes() for row in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    written = b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + written
