"""The picture of the cascade: one output after another, each in exactly what is left for it.

    python docs/pictures/cascade.py docs/images/cascade.png

Five quantities are 0 or between 10 and 100 and add up to a demand of 230. Every line is one of them, in the order of
computing: what is left for it given those above, and what was chosen.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

import multiplexnet as mx

DEMAND = 230.0
RULES = mx.Rules(
    "demand: input[10, 500]; x: real[5]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) == demand"
)
WHOLE = "#e9edf2"
LEFT = "#3b6ea5"
CHOSEN = "#1a7f5a"


def draw(ax: Axes, mux: mx.Multiplexer, x: torch.Tensor) -> None:
    """What is left for every output, as the layer itself computes it."""
    ((_, maps),) = mux.cascade_parts()
    inputs = torch.tensor([[DEMAND]])
    walk = maps.walk(inputs, 1, x.device)
    chosen = maps.in_steps(x.unsqueeze(0), inputs)
    rest = DEMAND
    names = []
    for line, step in enumerate(maps.cascade.steps):
        spacing = float(maps.cascade.spacing[step.variable])
        ax.plot(
            [10, 100],
            [line, line],
            color=WHOLE,
            linewidth=13,
            solid_capstyle="butt",
            zorder=0,
        )
        ax.scatter([0], [line], s=130, color=WHOLE, zorder=0, linewidths=0)
        for option in walk.options(step):
            if option.possible is not None and not bool(option.possible):
                continue
            ends = [
                float(walk.full(end)) * spacing for end in (option.lower, option.upper)
            ]
            if ends[0] == ends[1]:
                ax.scatter([ends[0]], [line], s=130, color=LEFT, linewidths=0)
            else:
                ax.plot(
                    ends, [line, line], color=LEFT, linewidth=13, solid_capstyle="butt"
                )
        value = float(x[step.variable])
        ax.scatter(
            [value],
            [line],
            s=42,
            color="white",
            edgecolors=CHOSEN,
            linewidths=2.5,
            zorder=3,
        )
        rest -= value
        ax.annotate(
            f"{value:.1f}",
            (value, line - 0.3),
            ha="center",
            color=CHOSEN,
            fontsize=10.5,
        )
        ax.text(
            112, line, f"{abs(rest):.1f}", va="center", fontsize=10.5, color="#444444"
        )
        names.append(maps.cascade.outputs[step.variable].name)
        walk.take(step, chosen[step.variable])
    ax.text(112, -0.75, "to be met", fontsize=10.5, color="#444444")
    ax.set(
        yticks=range(len(names)),
        yticklabels=names,
        xlim=(-6, 138),
        ylim=(len(names) - 0.5, -1),
    )
    ax.set_xticks([0, 10, 50, 100])
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)


def main(path: str) -> None:
    mux = mx.Multiplexer(RULES).eval()
    torch.manual_seed(3)
    raw = torch.randn(1, mux.in_features)
    x = mux(raw, demand=DEMAND).best()[0]
    figure, ax = plt.subplots(figsize=(6, 3.3), layout="constrained")
    draw(ax, mux, x)
    ax.set_title(
        "five quantities, each 0 or 10 to 100, together 230\nblue: what is left for each",
        fontsize=11,
    )
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main(sys.argv[1])
