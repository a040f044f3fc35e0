"""The pictures of the gallery: what a plain network does, what the layer does, and the rules drawn in.

    python docs/pictures/gallery.py [NAME …]

writes docs/images/gallery/NAME.png for every program in examples/ (or for those named). A program is run as it stands,
and its networks are kept as it makes them. Where it trains none without rules, one of the same size is trained here on
the same data. Red: breaks the rules. Green: obeys them. Blue: what the rules allow. Grey: data.

A card of the gallery is about 350 pixels wide, on a phone as on a desk: words are large and few.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from contextlib import contextmanager, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon
from PIL import Image
from torch import Tensor, nn

import multiplexnet as mx

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/images/gallery"
OBEYS, BREAKS, DATA = "#1a7f5a", "#c8372d", "#b4b9bf"
ALLOWED, WALL = "#d7e8f7", "#3b6ea5"
SHADES = [
    "#0f5c3f",
    "#1a7f5a",
    "#2f9c73",
    "#5ab491",
    "#88c9af",
    "#3b6ea5",
    "#6f9ac7",
    "#a9c6e3",
]
STYLE = {
    "font.size": 11,
    "axes.titlesize": 11.5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "legend.handletextpad": 0.3,
    "legend.borderpad": 0.25,
    "legend.labelspacing": 0.25,
    "legend.columnspacing": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555b61",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@contextmanager
def networks_kept(kept: list[nn.Module]) -> Any:
    """Every ``nn.Sequential`` that is made meanwhile is put on a list."""
    original = nn.Sequential

    class Kept(nn.Sequential):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__(*layers)
            kept.append(self)

    nn.Sequential = Kept  # type: ignore[misc]
    try:
        yield
    finally:
        nn.Sequential = original  # type: ignore[misc]


def program(name: str) -> SimpleNamespace:
    """An example's names after it has run; ``networks`` are those it made, in order."""
    kept: list[nn.Module] = []
    with networks_kept(kept), redirect_stdout(StringIO()):
        names = runpy.run_path(str(ROOT / f"examples/{name}.py"), run_name="__main__")
    return SimpleNamespace(**names, networks=kept)


def fitted(
    x: Tensor,
    loss: Callable[[Tensor], Tensor],
    outputs: int,
    steps: int = 400,
    width: int = 64,
) -> Tensor:
    """The outputs of a network without rules after training, and nothing else."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(x.shape[-1], width), nn.Tanh(), nn.Linear(width, outputs)
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(net(x)).backward()
        optimiser.step()
    return net(x).detach()


def panels(
    count: int = 2, width: float = 5.4, height: float = 2.8, **options: Any
) -> tuple[Figure, Any]:
    return plt.subplots(
        1, count, figsize=(width, height), layout="constrained", **options
    )


def percent(which: Tensor) -> int:
    """How many in a hundred, rounded down: only all are 100."""
    return int(100 * which.double().mean().item())


def share(obeys: Tensor) -> str:
    return (
        "every output obeys" if obeys.all() else f"{percent(~obeys)} % break the rules"
    )


def points(ax: Axes, u: Tensor, v: Tensor, obeys: Tensor, size: float = 11) -> None:
    for mask, colour in ((~obeys, BREAKS), (obeys, OBEYS)):
        ax.scatter(
            u[mask], v[mask], s=size, color=colour, alpha=0.75, linewidths=0, zorder=3
        )


def title(ax: Axes, who: str, what: str) -> None:
    """Two lines: whose outputs these are, and what is seen. Each for itself, so that neighbours stand level."""
    ax.set_title(what)
    size = plt.rcParams["axes.titlesize"]
    above = {"xytext": (0, 6 + 1.5 * size), "textcoords": "offset points"}
    ax.annotate(
        who, (0.5, 1), xycoords="axes fraction", ha="center", fontsize=size, **above
    )


def corners(ax: Axes, *xy: tuple[float, float]) -> None:
    ax.add_patch(Polygon(xy, facecolor=ALLOWED, edgecolor=WALL, linewidth=1, zorder=0))


def intervals() -> Figure:
    run = program("01_intervals")
    clipped, ruled = run.networks
    outputs = clipped(run.x).clamp(run.low, run.high), run.mux(ruled(run.x)).best()
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes, outputs, ("A clipped network", "With the rules"), strict=True
    ):
        corners(ax, (0, 195), (0.5, 195), (0.5, 220), (0, 220))
        ax.scatter(*run.y.T, s=9, color=DATA, linewidths=0, label="data")
        ax.scatter(
            *out.detach().T,
            s=11,
            color=OBEYS,
            alpha=0.75,
            linewidths=0,
            label="outputs",
        )
        error = ((out - run.y) / (run.high - run.low)).square().mean().sqrt()
        ax.set(xlabel="ratio", xlim=(-0.03, 0.53), ylim=(184, 223))
        title(ax, who, f"error {100 * error:.0f} % of the range")
        assert run.rules.satisfied(out).all()
    axes[0].scatter(
        *outputs[0][0].detach(), s=60, color=BREAKS, zorder=4, clip_on=False
    )
    axes[0].text(
        0,
        187,
        "all outputs: nothing learned",
        color=BREAKS,
        fontsize=10,
    )
    axes[0].set_ylabel("temperature")
    axes[1].legend(loc="lower right", ncols=2)
    return figure


def precipitation() -> Figure:
    run = program("02_precipitation")
    plain, ruled = run.networks
    outputs = plain(run.x)[:, :1], run.mux(ruled(run.x)).best()
    sign = run.x[:, 0] + 0.5 * run.x[:, 1] - 0.6
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        obeys = run.rules.satisfied(out)
        ax.axhspan(0, 14, color=ALLOWED, zorder=0)
        ax.axhline(0, color=WALL, linewidth=1)
        ax.scatter(sign, run.y[:, 0], s=9, color=DATA, linewidths=0, label="measured")
        points(ax, sign, out.detach()[:, 0], obeys)
        dry = percent(out[~run.wet] == 0)
        ax.set(xlabel="sky (dry below 0)", ylim=(-2, 12), xlim=(-3.2, 2.6))
        below = f"{percent(out < 0)} % below zero"
        title(ax, who, "exactly 0 on dry days" if dry == 100 else below)
    axes[0].set_ylabel("rain, mm")
    axes[0].legend(loc="upper left")
    return figure


def bound_from_input() -> Figure:
    run = program("03_bound_from_input")
    features = torch.cat([run.x, run.K.unsqueeze(-1)], -1)
    plain = fitted(features, lambda y: (y[:, 0] - run.target).square().mean(), 1)
    low, high = run.x[:, 3], run.K - run.x[:, 5] - run.x[:, 7]
    rows = torch.arange(512)[:: 512 // 42][:42]
    rows = rows[run.target[rows].argsort()]
    place = torch.arange(len(rows))
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes,
        (plain, run.y.detach()),
        ("A plain network", "With the rules"),
        strict=True,
    ):
        obeys = run.rules.satisfied(out, x=run.x, K=run.K)
        ax.vlines(place, low[rows], high[rows], color="#bcd8ef", linewidth=3, zorder=0)
        ax.scatter(
            place,
            run.target[rows],
            s=10,
            color="#7d848c",
            marker="x",
            linewidths=0.9,
            label="wanted",
        )
        points(ax, place, out[rows, 0], obeys[rows], size=16)
        ax.set(xlabel="rows, with their bounds", xticks=[])
        title(ax, who, share(obeys))
    axes[0].set_ylabel("y")
    axes[0].legend(loc="upper left")
    return figure


def quantiles() -> Figure:
    run = program("04_quantiles")
    plain, ruled = run.networks
    figure, axes = panels(sharey=True)
    outputs = plain(run.grid).detach(), run.mux(ruled(run.grid)).best().detach()
    for ax, q, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        obeys = run.rules.satisfied(q)
        ax.scatter(run.x, run.y, s=7, color=DATA, linewidths=0, zorder=1)
        for i in range(5):
            ax.plot(run.grid[:, 0], q[:, i], color=WALL, linewidth=1.3, alpha=0.9)
        ax.fill_between(
            run.grid[:, 0],
            -4,
            4,
            where=~obeys,
            color=BREAKS,
            alpha=0.25,
            linewidth=0,
            zorder=0,
        )
        title(
            ax,
            who,
            "they never cross" if obeys.all() else f"they cross on {percent(~obeys)} %",
        )
        ax.set(xlabel="x (data from 0 to 4)", xlim=(-1, 5), ylim=(-3.2, 3.2))
    axes[0].set_ylabel("5 % to 95 %")
    return figure


def stacked(ax: Axes, w: Tensor, cap: float) -> None:
    bottom = np.zeros(len(w))
    for i, column in enumerate(w.T.numpy()):
        colours = [BREAKS if v > cap else SHADES[i] for v in column]
        ax.bar(
            range(len(w)),
            column,
            bottom=bottom,
            color=colours,
            width=0.92,
            edgecolor="white",
            linewidth=0.3,
        )
        bottom += column


def portfolio() -> Figure:
    run = program("05_portfolio")
    free = fitted(
        run.signal, lambda raw: -(raw.softmax(-1) * run.realised).sum(-1).mean(), 8
    ).softmax(-1)
    whole = mx.Rules("w: real[8]\nsum(w) == 1")
    figure, axes = panels(sharey=True)
    for ax, w in zip(axes, (free, run.w.detach()), strict=True):
        stacked(ax, w[:30], 0.3)
        one = percent(whole.satisfied(w))
        ax.set(xlabel=f"sum is 1: {one} % of days", xticks=[], ylim=(0, 1.03))
    title(axes[0], "A softmax", "red: above 30 %")
    title(axes[1], "With the rules", "none above 30 %")
    axes[0].set_ylabel("shares of 8 assets")
    return figure


def two_heads() -> Figure:
    run = program("06_two_heads")
    wanted = nn.functional.one_hot(run.rhythm, 4).float()

    def loss(out: Tensor) -> Tensor:
        return (out[:, :4] - wanted).square().sum(-1).mean() + (
            out[:, 4] - (run.rate - 90) / 20
        ).square().mean()

    raw = fitted(run.x, loss, 5, steps=300)
    plain = torch.cat([raw[:, :4], 90 + 20 * raw[:, 4:]], -1)
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes,
        (plain, run.out.detach()),
        ("A plain network", "With the rules"),
        strict=True,
    ):
        obeys = run.rules.satisfied(out)
        ax.vlines(1, 55, 140, color="#9cc4e6", linewidth=7, zorder=0)
        ax.hlines([55, 140], 0.78, 1.22, color=WALL, linewidth=0.8, linestyle=":")
        points(ax, out[:, :4].double().sum(-1), out[:, 4], obeys)
        ax.set(xlabel="sum of 4 probabilities", xlim=(0.78, 1.22), ylim=(20, 175))
        ax.set_xticks([0.8, 0.9, 1, 1.1, 1.2])
        title(ax, who, share(obeys))
    axes[0].set_ylabel("heart rate")
    return figure


def sums() -> Figure:
    run = program("07_sums")
    plain, ruled = run.networks
    outputs = (
        30 * plain(run.x).detach().double(),
        run.mux(ruled(run.x)).best().detach().double(),
    )
    figure, axes = panels(sharey=True)
    for ax, y, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        ax.axhline(0, color="#9cc4e6", linewidth=4, zorder=0)
        gap = y[:, 0] - y[:, 1:4].sum(-1)
        obeys = run.rules.satisfied(y)
        points(ax, y[:, 0], gap, obeys)
        ax.set(xlabel="total", ylim=(-2.6, 2.6))
        title(
            ax,
            who,
            "adds up in every row" if obeys.all() else "adds up in no row",
        )
        assert obeys.all() or not obeys.any()
    axes[0].set_ylabel("total − regions")
    return figure


def pixel_map() -> Figure:
    run = program("08_map")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 3, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(100):
        optimiser.zero_grad()
        (net(run.image).movedim(1, -1) - run.target).square().sum(-1).mean().backward()
        optimiser.step()
    plain = net(run.image).movedim(1, -1).detach()
    figure, axes = panels(3, sharey=True)
    total = run.target.sum(-1)
    shown = int(run.inside.sum((1, 2, 3)).argmax())  # the one that obeys most
    images = (
        (total, run.rules.satisfied(run.target), "Asked for"),
        (plain.sum(-1), run.rules.satisfied(plain), "Plain"),
        (run.y.detach().sum(-1), run.rules.satisfied(run.y.detach()), "With the rules"),
    )
    row = 32  # a cut through the middle of the image
    for ax, (sums, obeys, who) in zip(axes, images, strict=True):
        ax.axhspan(0, 1, color=ALLOWED, zorder=0)
        for end in (0, 1):
            ax.axhline(end, color=WALL, linewidth=1)
        cut = sums[shown, row].numpy()
        good = obeys[shown, row].numpy()
        ax.scatter(np.arange(64), cut, s=11, c=np.where(good, OBEYS, BREAKS), zorder=3)
        ax.set(xlabel="pixel", xticks=[0, 32, 63])
        title(ax, who, f"{percent(obeys)} % obey")
        _thumbnail(ax, sums[shown].numpy(), obeys[shown].numpy(), row)
    axes[0].set(ylabel="a + b + c", ylim=(-1.9, 4.4), yticks=[-1, 0, 1, 2])
    return figure


def _thumbnail(ax: Axes, sums: Any, obeys: Any, row: int) -> None:
    """The whole image in a corner: green where it obeys, red where not, and the line of the cut."""
    inset = ax.inset_axes((0.3, 0.62, 0.4, 0.36))
    colours = np.where(obeys[..., None], _rgb(OBEYS), _rgb(BREAKS))
    shade = 0.55 + 0.45 * (sums - sums.min()) / max(float(np.ptp(sums)), 1e-9)
    inset.imshow(colours * shade[..., None] + 1 - shade[..., None])
    inset.axhline(row, color="black", linewidth=0.8, linestyle="--")
    inset.set(xticks=[], yticks=[])


def _rgb(colour: str) -> Any:
    return np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])


def l1_ball() -> Figure:
    run = program("09_l1_ball")
    plain = fitted(run.features, lambda out: (out - run.y).square().sum(-1).mean(), 4)
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes,
        (plain, run.x.detach()),
        ("A plain network", "With the rules"),
        strict=True,
    ):
        corners(ax, (0, 0), (1, 0), (0, 1))
        obeys = run.rules.satisfied(out)
        size = out.abs()
        ax.scatter(
            run.y.abs()[:, :2].sum(-1),
            run.y.abs()[:, 2:].sum(-1),
            s=7,
            color=DATA,
            linewidths=0,
            label="data",
        )
        points(ax, size[:, :2].sum(-1), size[:, 2:].sum(-1), obeys)
        ax.set(xlabel="|x₁| + |x₂|", xlim=(-0.04, 1.3), ylim=(-0.04, 1.5))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("|x₃| + |x₄|")
    axes[0].legend(loc="upper right")
    return figure


def actuators() -> Figure:
    run = program("10_actuators")
    plain = (
        fitted(
            run.x,
            lambda out: (350 * out - run.wish).square().mean() / 1e4,
            12,
            steps=300,
        )
        * 350
    )
    figure, axes = panels(sharey=True)
    rows = 60
    noise = 0.6 * (torch.rand(rows, generator=torch.Generator().manual_seed(0)) - 0.5)
    for ax, out, who in zip(
        axes,
        (plain, run.a.detach()),
        ("A plain network", "With the rules"),
        strict=True,
    ):
        for i in range(12):
            ax.bar(
                i,
                200,
                bottom=200 + 10 * i,
                width=0.85,
                color=ALLOWED,
                edgecolor=WALL,
                linewidth=0.8,
                zorder=0,
            )
            ax.plot(
                [i - 0.42, i + 0.42],
                [0, 0],
                color=WALL,
                linewidth=3,
                alpha=0.5,
                zorder=0,
            )
            column = out[:rows, i]
            obeys = (column == 0) | ((column > run.low[i]) & (column < run.high[i]))
            points(ax, i + noise, column, obeys, size=7)
        ax.set(xlabel="actuator", xticks=range(0, 12, 2), ylim=(-90, 530))
        title(ax, who, share(run.rules.satisfied(out)))
    axes[0].set_ylabel("power")
    return figure


def mixed_types() -> Figure:
    run = program("11_mixed_types")
    net, ruled = run.networks
    out = net(run.features)[:, :2] * torch.tensor([1.0, 100.0])
    plain = torch.cat([out[:, :1].round().clamp(0, 1), out[:, 1:]], -1).detach()
    outputs = plain, run.mux(ruled(run.features), limit=run.limit).best().detach()
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        corners(ax, (10, 0), (100, 0), (100, 100), (10, 10))
        obeys = run.rules.satisfied(out, limit=run.limit)
        fast = out[:, 0] == 1
        ax.scatter(
            run.limit[~fast],
            out[~fast, 1],
            s=8,
            color=DATA,
            linewidths=0,
            label="slow: free",
        )
        points(ax, run.limit[fast], out[fast, 1], obeys[fast])
        ax.scatter([], [], s=11, color=OBEYS, label="fast: below limit")
        ax.set(xlabel="limit of the row", ylim=(-12, 205))
        title(ax, who, share(obeys))
    axes[1].legend(loc="upper left")
    axes[0].set_ylabel("pressure")
    return figure


def whole_cents() -> Figure:
    run = program("12_whole_cents")
    plain, _ = run.networks
    rounded = (run.y.mean(0) + plain(run.guest).detach() * run.scale).round()
    figure, axes = panels(sharey=True)
    for ax, table, who in zip(
        axes,
        (rounded, run.table),
        ("Plain, rounded", "Rules, rounded down"),
        strict=True,
    ):
        obeys = run.rules.satisfied(table)
        ax.plot(
            [1, 28],
            [0, 0],
            color="#9cc4e6",
            linewidth=5,
            zorder=0,
            solid_capstyle="butt",
        )
        points(
            ax,
            table[:, 1] - table[:, 0],
            (table[:, 4] - table[:, 2] - table[:, 3]) / 100,
            obeys,
        )
        ax.set(xlabel="nights", xlim=(-1, 13))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("error of the total, €")
    return figure


def state_dependent_actions() -> Figure:
    run = program("13_state_dependent_actions")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(100):
        optimiser.zero_grad()
        run.simulated(
            lambda stock, free: 20 * nn.functional.softplus(net(stock / 20)), rows=64
        )[0].backward()
        optimiser.step()
    stock = torch.rand(400, 2, generator=torch.Generator().manual_seed(1)) * 29
    free = 60 - stock.sum(-1)
    plain = 20 * nn.functional.softplus(net(stock / 20)).detach()
    figure, axes = panels(sharey=True)
    outputs = plain, run.policies["rules"](stock, free).detach()
    for ax, order, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        corners(ax, (0, 0), (60, 0), (60, 60))
        obeys = run.rules.satisfied(order, free=free)
        points(ax, free, order.sum(-1), obeys)
        ax.set(xlabel="free space", xlim=(0, 61), ylim=(-2, 82))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("ordered")
    return figure


def power_flow() -> Figure:
    from scipy.optimize import linprog

    run = program("14_power_flow")
    best = []
    for d in run.demand.double().numpy():
        b = np.concatenate(
            [
                run.limit + run.ptdf @ d,
                run.limit - run.ptdf @ d,
                [d.sum(), 100 - d.sum()],
            ]
        )
        best.append(
            linprog(run.cost[1:] - run.cost[0], run.A, b, bounds=[(0, 100)] * 2).x
        )
    best = torch.tensor(np.array(best)).float()
    plain = 50 * fitted(
        run.demand / 20 - 2, lambda g: (g - best / 50).square().mean(), 2
    )
    ptdf = torch.tensor(run.ptdf)
    figure, axes = panels(sharey=True)
    noise = 0.6 * (torch.rand(256, generator=torch.Generator().manual_seed(0)) - 0.5)
    names = ("Trained on optima, plain", "With the rules")
    for ax, g, who in zip(axes, (plain, run.g.detach()), names, strict=True):
        power = torch.cat([g - run.demand[:, :2], -run.demand[:, 2:]], -1).double()
        load = 100 * (power @ ptdf.T).abs() / torch.tensor(run.limit)
        for i in range(5):
            ax.bar(
                i,
                100,
                width=0.8,
                color=ALLOWED,
                edgecolor=WALL,
                linewidth=0.8,
                zorder=0,
            )
            points(ax, i + noise, load[:, i], load[:, i] <= 100, size=7)
        ax.set(
            xticks=range(5),
            xticklabels=[f"{i}–{j}" for i, j in run.lines],
            xlabel="line of the grid",
        )
        ax.set_ylim(0, 118)
        title(ax, who, share(run.rules.satisfied(g, d=run.demand)))
    axes[0].set_ylabel("load, % of the limit")
    return figure


def obstacles() -> Figure:
    run = program("15_obstacles")
    lengths = run.length(run.bends).masked_fill(
        ~run.rules.satisfied(run.bends, start=run.start), torch.inf
    )
    shortest = run.bends[torch.arange(64), lengths.argmin(-1)]
    plain = 5 + 5 * fitted(
        run.start / 5 - 1,
        lambda x: (5 + 5 * x - shortest).square().mean() / 25,
        6,
        width=32,
    )
    figure, axes = panels(sharey=True, height=3)
    names = ("A plain network", "With the rules")
    for ax, x, who in zip(axes, (plain, run.x[:, 0].detach()), names, strict=True):
        obeys = run.rules.satisfied(x, start=run.start[:, 0])
        path = torch.cat(
            [
                torch.zeros(64, 1),
                run.start,
                x,
                torch.tensor([[10.0, 5.0]]).expand(64, 2),
            ],
            -1,
        )
        for row, good in zip(path.unflatten(-1, (5, 2)), obeys, strict=True):
            ax.plot(*row.T, color=OBEYS if good else BREAKS, linewidth=0.8, alpha=0.7)
        for polygon in run.polygons:
            ax.add_patch(Polygon(polygon, facecolor="#4a5058", alpha=0.55, zorder=3))
        ax.scatter([10], [5], s=30, color=WALL, zorder=4)
        ax.set(xlim=(-0.2, 10.4), ylim=(-0.2, 10.2), xticks=[], yticks=[])
        title(
            ax,
            who,
            "no path cuts a corner"
            if obeys.all()
            else f"{percent(~obeys)} % hit an obstacle",
        )
    return figure


def retrofit() -> Figure:
    run = program("16_retrofit")

    def steps(out: Tensor) -> Tensor:
        """The smallest of the three steps in 0 <= low <= mid <= high: none may be negative."""
        low, mid, high = out.unbind(-1)
        return torch.stack([low, mid - low, high - mid], -1).amin(-1)

    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes,
        (run.before, run.after),
        ("The network as it is", "After repair"),
        strict=True,
    ):
        corners(ax, (0, -1), (1, -1), (1, 9), (0, 9))
        obeys = run.rules.satisfied(out)
        if out is run.after:
            moved = ~run.same
            ax.plot(
                [steps(run.before)[moved], steps(out)[moved]],
                [run.before[moved, 2], out[moved, 2]],
                color=BREAKS,
                linewidth=0.6,
            )
        points(ax, steps(out), out[:, 2], obeys, size=12)
        ax.set(xlabel="smallest step", xlim=(-0.06, 0.16), ylim=(-0.1, 2.4))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("high")
    return figure


def dose() -> Figure:
    run = program("17_dose")
    given_by = torch.tensor(run.dose).float().T
    plain = fitted(
        run.centre, lambda x: ((1 - x @ given_by) * run.inside).square().mean(), 24
    )
    figure, axes = panels(height=3.9)
    outs = ((plain, "A plain network"), (run.x, "With the rules"))
    organ, tumour = (0.45, 0.3), run.centre[0].numpy()
    for ax, (out, who) in zip(axes, outs, strict=True):
        out = out.detach()
        given = run.dose @ out[0].double().numpy()
        above = given > run.limit
        ax.add_patch(Circle((0, 0), 0.97, facecolor="#f1f2f4", edgecolor="#9aa1a8"))
        ax.scatter(
            *run.points[~above].T,
            c=given[~above],
            s=15,
            cmap="Greens",
            vmin=0,
            vmax=1.2,
            linewidths=0,
        )
        ax.scatter(*run.points[above].T, s=17, color=BREAKS, linewidths=0)
        for spot, radius, text, style in (
            (tumour, 0.2, "tumour: wants 1", "-"),
            (organ, 0.25, "organ: at most 0.4", "--"),
        ):
            edge = {"edgecolor": "black", "linewidth": 1.4, "linestyle": style}
            ax.add_patch(Circle(spot, radius, fill=False, zorder=4, **edge))
            side = -1 if spot is tumour else 1
            ax.annotate(
                text,
                (float(spot[0]), float(spot[1]) + side * radius),
                (float(spot[0]), side * 1.13),
                ha="center",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                arrowprops={"arrowstyle": "-", "linewidth": 0.8},
            )
        _beams(ax, run.side, out[0].numpy())
        ax.set(aspect="equal", xlim=(-1.35, 1.35), ylim=(-1.3, 1.3))
        ax.axis("off")
        mean = given[np.linalg.norm(run.points - tumour, axis=-1) < 0.2].mean()
        worst = given[run.limit < 1].max()
        title(ax, who, f"tumour {mean:.2f}, organ {worst:.2f}")
    shares = [percent(~run.rules.satisfied(out.detach())) for out, _ in outs]
    figure.supxlabel(
        "green: dose, red: above its limit, blue: beams\n"
        f"plans that break a rule: {shares[0]} % and {shares[1]} %",
        fontsize=10.5,
    )
    return figure


def _beams(ax: Axes, side: Any, strength: Any) -> None:
    """A line for every beam, where it comes from, as long and dark as it is strong."""
    largest = max(float(np.abs(strength).max()), 1e-9)
    for (u, v), power in zip(side.T, strength, strict=True):
        length = 0.24 * max(float(power), 0) / largest
        ax.plot(
            [1.02 * u, (1.02 + length) * u],
            [1.02 * v, (1.02 + length) * v],
            color=WALL,
            linewidth=3,
            solid_capstyle="butt",
        )


def blood_pressure() -> Figure:
    run = program("18_blood_pressure")
    plain, ruled = run.networks
    raw = plain(run.person).detach()
    numbers = (
        (run.middle + run.scale * raw[:, :2])
        .round()
        .masked_fill(raw[:, 2:4] < 0, torch.nan)
    )
    outputs = numbers, run.mux(ruled(run.person)).best().detach()
    strip = torch.rand(len(raw), generator=torch.Generator().manual_seed(0))
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        corners(ax, (70, 50), (170, 150), (170, 40), (70, 40))
        obeys = run.rules.satisfied(out)
        gone = out.isnan()
        upper = torch.where(
            gone[:, 0], 52 + 10 * strip, out[:, 0]
        )  # missing: in the margin
        lower = torch.where(gone[:, 1], 22 + 10 * strip.flip(0), out[:, 1])
        points(ax, upper, lower, obeys)
        ax.axvline(65, color="#555b61", linewidth=0.6)
        ax.axhline(35, color="#555b61", linewidth=0.6)
        ax.set(xlim=(50, 170), ylim=(20, 135), xlabel="upper number")
        ax.set_xticks([57, 100, 140], ["missing", "100", "140"])
        ax.set_yticks([27, 60, 90, 120], ["missing", "60", "90", "120"])
        title(ax, who, share(obeys))
    axes[0].set_ylabel("lower number")
    return figure


def price_band() -> Figure:
    run = program("19_price_band")
    plain = fitted(
        run.features, lambda out: (out - run.wish).square().mean(), 2, steps=150
    )
    plain = torch.stack([plain[:, 0], plain[:, 1].round()], -1)
    figure, axes = panels(sharey=True)
    outputs = plain, run.agreed.detach()
    for ax, out, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        band = run.given["high"] - run.given["low"]
        place = (out[:, 0] - run.given["low"]) / band.clamp(min=0.01)
        spent = run.given["unit"] * out[:, 1] / run.given["budget"].clamp(min=0.01)
        corners(ax, (0, 0), (1, 0), (1, 1), (0, 1))
        points(
            ax,
            place.clamp(-0.5, 1.5),
            spent.clamp(-0.2, 1.6),
            run.rules.satisfied(out, **run.given),
        )
        ax.set(xlim=(-0.55, 1.55), ylim=(-0.25, 1.65), xlabel="price (0 low, 1 high)")
        title(ax, who, share(run.rules.satisfied(out, **run.given)))
    axes[0].set_ylabel("budget spent")
    return figure


def minimum_lots() -> Figure:
    run = program("20_minimum_lots")
    plain = fitted(
        run.signal, lambda w: (50 * w - run.target).square().mean() / 900, 12, steps=200
    )
    figure, axes = panels(sharey=True)
    outputs = 50 * plain, run.w
    for ax, w, who in zip(
        axes, outputs, ("A plain network", "With the rules"), strict=True
    ):
        lot = (w == 0) | ((w >= 5) & (w <= 40))
        place = torch.arange(40).unsqueeze(-1).expand(40, 12)
        ax.axhspan(5, 40, color=ALLOWED, zorder=0)
        ax.axhline(0, color=WALL, linewidth=1, zorder=0)
        points(ax, place.reshape(-1), w[:40].reshape(-1), lot[:40].reshape(-1), size=9)
        ax.set(xlabel="days, 12 assets each", xticks=[], ylim=(-12, 48))
        obeys = run.rules.satisfied(w)
        title(ax, who, share(obeys) if obeys.any() else "no portfolio obeys")
    axes[0].set_ylabel("share, %")
    return figure


def unit_commitment() -> Figure:
    run = program("21_unit_commitment")
    features = run.demand / 100 - 1.5
    plain = 100 * fitted(
        features, lambda x: (100 * x - run.target).square().mean() / 1e4, 72, steps=200
    )
    figure, axes = panels(sharey=True)
    for ax, x, who in zip(
        axes, (plain, run.x), ("A plain network", "With the rules"), strict=True
    ):
        parts = x[0].unflatten(-1, (3, 24)).numpy()
        bottom = np.zeros(24)
        for part, colour, name in zip(
            parts,
            (SHADES[0], SHADES[2], SHADES[7]),
            ("base", "middle", "peak"),
            strict=True,
        ):
            least = {"base": 40, "middle": 30, "peak": 10}[name]
            wrong = (part != 0) & (part < least)
            colours = [BREAKS if bad else colour for bad in wrong]
            ax.bar(range(24), part, bottom=bottom, color=colours, width=0.9, label=name)
            bottom = bottom + part
        ax.step(
            range(24),
            run.demand[0],
            where="mid",
            color="#20262c",
            linewidth=1.2,
            label="demand",
        )
        met = (x.unflatten(-1, (3, 24)).double().sum(-2) == run.demand).float()
        ax.set(xlabel="hour (red: too low)", ylim=(-12, 310))
        title(ax, who, f"demand met: {percent(met)} %")
    axes[0].set_ylabel("power, MW")
    handles, names = axes[1].get_legend_handles_labels()
    axes[1].legend(handles, names, loc="upper left", ncols=2, framealpha=0.9)
    return figure


def sensors() -> Figure:
    run = program("22_sensors")
    plain = fitted(
        4 * run.guess - 2, lambda p: (p - run.target).square().mean(), 30, steps=200
    )
    figure, axes = panels(sharey=True)
    for ax, power, who in zip(
        axes, (plain, run.power), ("A plain network", "With the rules"), strict=True
    ):
        on = (power > 0).sum(-1)
        obeys = run.rules.satisfied(power)
        corners(ax, (-0.4, 0), (4.4, 0), (4.4, 2.5), (-0.4, 2.5))
        shift = torch.linspace(-0.25, 0.25, len(on))
        points(ax, on + shift, power.sum(-1), obeys, size=12)
        ax.set(xlabel="sensors that are on", xlim=(-1, 24), ylim=(-0.3, 3.2))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("power, W")
    return figure


def boxes_and_cents() -> Figure:
    run = program("23_boxes_and_cents")
    plain = 20 * fitted(
        run.features.float(),
        lambda x: (20 * x - run.wish.float()).square().mean() / 400,
        3,
    )
    cents = torch.cat([run.price, torch.tensor([1500.0])]).double()
    figure, axes = panels(sharey=True)
    for ax, boxes, who in zip(
        axes,
        (plain.round().double(), run.order[:, :3]),
        ("A plain network, rounded", "With the rules"),
        strict=True,
    ):
        pallets = (boxes.sum(-1, keepdim=True) / 40).ceil()
        order = torch.cat([boxes, pallets], -1)
        bill = (order * cents).sum(-1)
        rows = torch.cat([order, bill.unsqueeze(-1)], -1)
        obeys = run.rules.satisfied(rows, budget=run.budget)
        corners(ax, (0, 0), (2000, 2000), (2000, 0))
        points(ax, run.budget / 100, bill / 100, obeys)
        ax.set(xlabel="budget", xlim=(450, 2050), ylim=(0, 2300))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("bill")
    return figure


def power_balance() -> Figure:
    run = program("24_power_balance")
    wanted = run.x.detach()
    plain = 30 * fitted(
        run.demand / 10 - 1,
        lambda x: (30 * x - wanted).square().mean() / 900,
        25,
        steps=300,
    )
    sign = torch.zeros(14, 25, dtype=torch.float64)
    for i, (start, end) in enumerate(run.lines):
        sign[start - 1, i], sign[end - 1, i] = -1, 1
    for i, bus in enumerate(run.plants):
        sign[bus - 1, 20 + i] = 1
    figure, axes = panels(sharey=True)
    for ax, x, who in zip(
        axes,
        (plain, wanted),
        ("A plain network", "With the rules"),
        strict=True,
    ):
        gap = x.double() @ sign.T - run.demand.double()
        ax.axhline(0, color="#9cc4e6", linewidth=4, zorder=0)
        place = torch.arange(1, 15) + torch.linspace(-0.3, 0.3, 256).unsqueeze(-1)
        points(ax, place.reshape(-1), gap.reshape(-1), (gap == 0).reshape(-1), size=5)
        ax.set(xlabel="bus", xticks=range(1, 15, 3), ylim=(-2.6, 2.6))
        title(ax, who, f"{percent(gap == 0)} % of balances hold")
    axes[0].set_ylabel("in − out, MW")
    return figure


def invoices() -> Figure:
    run = program("25_invoices")
    plain, ruled = run.networks
    raw = run.y.mean(0) + plain(run.order)[:, :4].detach() * run.scale
    rounded = torch.cat([raw[:, :2].round(), raw[:, 2:].round(decimals=2)], -1)
    outputs = rounded, run.mux(ruled(run.order), ordered=run.ordered).best().detach()
    start, christmas, new_year = 19997, 20077, 20089  # days since 1970-01-01
    figure, axes = panels(sharey=True)
    for ax, out, who in zip(
        axes, outputs, ("Plain, rounded", "With the rules"), strict=True
    ):
        corners(ax, (start, 0), (christmas, 0), (christmas, 30), (start, 30))
        late = new_year - christmas
        corners(ax, (christmas, late), (new_year, 0), (new_year, 30), (christmas, 30))
        obeys = run.rules.satisfied(out, ordered=run.ordered)
        points(ax, run.ordered, out[:, 0] - run.ordered, obeys)
        ax.set(xlabel="day of the order", xlim=(start, new_year), ylim=(-6, 36))
        ax.set_xticks(
            [start, 20028, 20058, new_year], ["1 Oct", "1 Nov", "1 Dec", "1 Jan"]
        )
        title(ax, who, share(obeys))
    axes[0].set_ylabel("days until shipped")
    return figure


def grasp() -> Figure:
    run = program("26_grasp")

    def loss(out: Tensor) -> Tensor:
        return ((out - run.target) / run.scale).square().sum(-1).mean()

    plain = fitted(run.scene, loss, 5)
    figure, axes = panels(sharey=True)
    angle = np.linspace(0, np.pi, 100)
    reach = list(zip(0.2 + np.cos(angle), np.sin(angle), strict=True))
    for ax, out, who in zip(
        axes,
        (plain, run.x.detach()),
        ("A plain network", "With the rules"),
        strict=True,
    ):
        corners(ax, *reach)
        obeys = run.rules.satisfied(out)
        points(ax, out[:, 0], out[:, 1], obeys)
        ax.set(xlabel="fingertip, sideways", xlim=(-1, 1.5), ylim=(-0.5, 1.4))
        title(ax, who, share(obeys))
    axes[0].set_ylabel("above the table")
    return figure


DRAWN: dict[str, Callable[[], Figure]] = {
    "01_intervals": intervals,
    "02_precipitation": precipitation,
    "03_bound_from_input": bound_from_input,
    "04_quantiles": quantiles,
    "05_portfolio": portfolio,
    "06_two_heads": two_heads,
    "07_sums": sums,
    "08_map": pixel_map,
    "09_l1_ball": l1_ball,
    "10_actuators": actuators,
    "11_mixed_types": mixed_types,
    "12_whole_cents": whole_cents,
    "13_state_dependent_actions": state_dependent_actions,
    "14_power_flow": power_flow,
    "15_obstacles": obstacles,
    "16_retrofit": retrofit,
    "17_dose": dose,
    "18_blood_pressure": blood_pressure,
    "19_price_band": price_band,
    "20_minimum_lots": minimum_lots,
    "21_unit_commitment": unit_commitment,
    "22_sensors": sensors,
    "23_boxes_and_cents": boxes_and_cents,
    "24_power_balance": power_balance,
    "25_invoices": invoices,
    "26_grasp": grasp,
}


def save(figure: Figure, path: Path) -> None:
    """In 255 colours: a third of the size, and nobody sees it."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=180)
    plt.close(figure)
    image = (
        Image.open(buffer)
        .convert("RGB")
        .quantize(255, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    )
    image.save(path, optimize=True)


def main(names: list[str]) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for name in names or DRAWN:
            save(DRAWN[name](), PICTURES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
