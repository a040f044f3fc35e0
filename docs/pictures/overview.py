"""The picture of the README: one network without rules, the same network with them.

    python docs/pictures/overview.py docs/images/overview.png

A machine is off (a = 0) or runs between 200 and 400; while it runs, b is at least a + 2; b never exceeds the limit.
Both networks see the same noisy data, train for the same number of steps and have the same size.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from torch import Tensor, nn

import multiplexnet as mx

LIMIT = 800.0
RULES = mx.Rules(
    """
    a: real; b: real
    limit: input[250, 1000]
    a == 0 or 200 < a < 400
    implies(a > 0, b >= a + 2)
    0 <= b <= limit
    """
)
SCALE = 100.0
OBEYS = "#1a7f5a"
BREAKS = "#c8372d"


def data(rows: int) -> tuple[Tensor, Tensor]:
    """What the network sees, and where the machine really was, measured with noise."""
    seen = torch.rand(rows, 2) * 2 - 1
    on = seen[:, 0] > 0
    a = torch.where(on, 210 + 180 * seen[:, 0], 0.0)
    b = torch.where(on, a + 20 + 170 * (1 + seen[:, 1]), 350 * (1 + seen[:, 1]))
    return seen, torch.stack([a, b], -1) + 15 * torch.randn(rows, 2)


def network(out_features: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(2, 48),
        nn.Tanh(),
        nn.Linear(48, 48),
        nn.Tanh(),
        nn.Linear(48, out_features),
    )


def trained_without_rules(seen: Tensor, measured: Tensor) -> nn.Module:
    net = network(2)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(600):
        optimiser.zero_grad()
        (SCALE * net(seen) - measured).square().mean().backward()
        optimiser.step()
    return net


def trained_with_rules(
    seen: Tensor, measured: Tensor
) -> tuple[nn.Module, mx.Multiplexer]:
    mux = mx.Multiplexer(RULES, per_term=True)
    net = network(mux.in_features)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(600):
        optimiser.zero_grad()
        branches = mux(net(seen), limit=LIMIT)
        loss = branches.loss(
            lambda x: ((x - measured.unsqueeze(-2)) / SCALE).square().sum(-1)
        )
        loss.mean().backward()
        optimiser.step()
    return net, mux


def draw_rules(ax: Axes) -> None:
    corners = [(200, 202), (400, 402), (400, LIMIT), (200, LIMIT)]
    ax.add_patch(
        Polygon(corners, facecolor="#d7e8f7", edgecolor="#3b6ea5", linewidth=1.2)
    )
    ax.plot(
        [0, 0],
        [0, LIMIT],
        color="#3b6ea5",
        linewidth=5,
        alpha=0.35,
        solid_capstyle="butt",
    )
    ax.set(xlim=(-70, 440), ylim=(-40, 850), xlabel="a")
    ax.spines[["top", "right"]].set_visible(False)


def draw_outputs(ax: Axes, x: Tensor, title: str) -> None:
    obeys = RULES.satisfied(x, limit=LIMIT)
    draw_rules(ax)
    for mask, colour in ((~obeys, BREAKS), (obeys, OBEYS)):
        ax.scatter(*x[mask].T, s=9, color=colour, linewidths=0, alpha=0.8)
    share = 100 * obeys.double().mean().item()
    ax.set_title(f"{title}:\n{share:.0f} % of the outputs obey", fontsize=11.5)


def main(path: str) -> None:
    torch.manual_seed(0)
    seen, measured = data(600)
    plain = trained_without_rules(seen, measured)
    net, mux = trained_with_rules(seen, measured)
    fresh, _ = data(500)
    with torch.no_grad():
        free = SCALE * plain(fresh)
        ruled = mux(net(fresh), limit=LIMIT).best()
    figure, axes = plt.subplots(
        1, 2, figsize=(6.6, 3.3), sharey=True, layout="constrained"
    )
    axes[0].set_ylabel("b")
    draw_outputs(axes[0], free, "A network")
    draw_outputs(axes[1], ruled, "With this layer")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
