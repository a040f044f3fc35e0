"""The drawing of the layer: a network, a map into each term, and a choice among the terms.

python docs/pictures/layer.py docs/images/layer.png
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

NETWORK = "#e9edf2"
MAP = "#d6e6f5"
CHOICE = "#f7dfdc"
OUTPUT = "#d5ece3"
LINE = "#3a4048"


def box(ax: Axes, x: float, y: float, text: str, colour: str, width: float) -> None:
    """A part, around its middle."""
    shape = FancyBboxPatch(
        (x - width / 2, y - 0.3),
        width,
        0.6,
        boxstyle="round,pad=0.02,rounding_size=0.08",
        facecolor=colour,
        edgecolor=LINE,
        linewidth=0.8,
    )
    ax.add_patch(shape)
    ax.text(x, y, text, ha="center", va="center", fontsize=9)


def arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From part to part."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE})


def draw(ax: Axes) -> None:
    """From left to right: what the network says, the maps, the choice."""
    box(ax, 0.7, 1.5, "any network", NETWORK, 1.3)
    heights = (2.6, 1.8, 0.6)
    for height, k in zip(heights, ("1", "2", "K"), strict=True):
        arrow(ax, (1.4, 1.5), (2.75, height))
        box(
            ax, 3.7, height, f"$h_{k}$: $\\mathbb{{R}}^r$ → term $\\phi_{k}$", MAP, 1.85
        )
        arrow(ax, (4.68, height), (6.1, 1.6))
        ax.text(4.85, height + (0.08 if height > 1 else -0.12), f"$x_{k}$", fontsize=9)
    ax.text(1.75, 2.3, "raw values", ha="center", fontsize=8.5)
    ax.text(3.7, 1.2, "⋮", ha="center", va="center", fontsize=13)
    box(ax, 6.9, 1.5, "choose one $k$", CHOICE, 1.5)
    ax.plot([0.7, 0.7, 6.9], [1.16, -0.15, -0.15], color=LINE, linewidth=1)
    arrow(ax, (6.9, -0.15), (6.9, 1.16))
    ax.text(3.7, -0.1, "logits of $\\pi$, one a term", ha="center", fontsize=8.5)
    arrow(ax, (7.7, 1.5), (8.6, 1.5))
    box(ax, 9.2, 1.5, "$x = x_k$ obeys", OUTPUT, 1.15)
    ax.text(
        7.3,
        2.75,
        "in training: $\\sum_k \\pi_k \\,(loss(x_k) + \\log \\pi_k)$",
        ha="center",
        fontsize=9,
    )
    ax.set(xlim=(-0.1, 9.9), ylim=(-0.4, 3.1))
    ax.set_axis_off()


def main(path: str) -> None:
    """Draw it and write it."""
    figure, ax = plt.subplots(figsize=(8.6, 2.9), layout="constrained")
    draw(ax)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
