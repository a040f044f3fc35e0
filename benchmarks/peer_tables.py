"""The tables and the picture of benchmarks/peers.py, from its JSON alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["draw", "markdown"]

OURS = "multiplexnet"
FULL = 16384
RAWS = ("N(0,10)", "1e4", "1e30")
TOOLS = ("compile", "export", "vmap", "deepcopy", "pickle", "empty batch")
COLOURS = (
    "#d62728",
    "#1f77b4",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#ff7f0e",
    "#e7ba52",
    "#7f7f7f",
)
Cell = dict[str, Any]


class Found:
    """The measurements, by peer and set."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.cells: dict[tuple[str, str], Cell] = {
            (cell["peer"], cell["set"]): cell for cell in data["cells"]
        }
        self.sets = list(dict.fromkeys(cell["set"] for cell in data["cells"]))
        measured = {cell["peer"] for cell in data["cells"] if "cannot" not in cell}
        self.peers = [name for name in data["versions"] if name in measured]
        self.absent = [name for name in data["versions"] if name not in measured]

    def ratio(self, peer: str, name: str) -> float | None:
        """Time as a multiple of softplus, if it was measured."""
        step = self.cells.get((peer, name), {}).get("time")
        return float(step["ratio"]) if isinstance(step, dict) else None


def markdown(data: dict[str, Any]) -> str:
    """All tables."""
    found = Found(data)
    loads = [cell["load"] for cell in data["cells"] if "load" in cell]
    versions = ", ".join(
        f"{name} {version}" for name, version in data["versions"].items()
    )
    double = ", ".join(
        name
        for name, dtype in data["dtypes"].items()
        if dtype == "float64" and name in found.peers
    )
    parts = [
        "# Peers side by side",
        f"Written by `{data['command']}` (benchmarks/peers.py, which says how everything is measured); not edited. "
        f"{versions}; Python {data['python']}, torch {data['torch']}, one thread of {data['processors']} processors, "
        f"load of the machine {min(loads)} to {max(loads)}. float32, batch 16,384; {double} in float64, as in "
        "their examples. «–»: the set is beyond the peer, see below.",
        "## Forward and backward, as a multiple of softplus",
        "In brackets the batch where 16,384 rows take too long; times are then compared per row. With a choice "
        "among terms, `best()` and then the loss marginalised over all of them.",
        table(found, time_cell),
        *faster(found),
        "## Rows that violate, in per cent, exactly",
        "Raw values N(0, 10²) / ±1e4 / ±1e30; in brackets by how much the worst of all these rows misses.",
        table(found, violation_cell),
        "## Dead gradients: entries that are exactly zero, in per cent",
        "Raw values N(0, 10²) / ±1e4 / ±1e30.",
        table(found, dead_cell),
        "## Set-up, seconds",
        table(found, setup_cell),
        "## As a torch module",
        "`torch.compile(fullgraph=True)`, `torch.export` with a batch of any size, `vmap` over a leading dimension; "
        "with how many of the sets they work.",
        tools(found),
        *errors(found),
        *moved(found),
        "## What a peer cannot express",
        *cannot(found),
    ]
    return "\n\n".join(parts) + "\n"


# --- tables -----------------------------------------------------------------------------------------------------------


def rows_of(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(found: Found, show: Callable[[Cell], str]) -> str:
    """Sets down, peers across."""

    def entry(cell: Cell | None) -> str:
        if cell is None or "cannot" in cell:
            return "–"
        return cell["set-up"] if isinstance(cell["set-up"], str) else show(cell)

    body = [
        [name, *(entry(found.cells.get((peer, name))) for peer in found.peers)]
        for name in found.sets
    ]
    return rows_of(["", *found.peers], body)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def time_cell(cell: Cell) -> str:
    step = cell["time"]
    if isinstance(step, str):
        return step
    text = number(step["ratio"]) + (
        f" ({step['batch']:,})" if step["batch"] < FULL else ""
    )
    return text + (
        f"; loss {number(step['marginal_ratio'])}" if "marginal_ratio" in step else ""
    )


def per_cent(share: float) -> str:
    if share in (0, 1):
        return f"{100 * share:.0f}"
    return f"{min(max(100 * share, 0.1), 99.9):.1f}"


def violation_cell(cell: Cell) -> str:
    steps = [cell[kind] for kind in RAWS]
    shares = [
        per_cent(step["violating"]) if isinstance(step, dict) else short(step)
        for step in steps
    ]
    worst = max(
        [step["excess"] for step in steps if isinstance(step, dict)], default=0.0
    )
    return " / ".join(shares) + (f" ({worst:.0e})" if worst else "")


def dead_cell(cell: Cell) -> str:
    steps = [cell[kind] for kind in RAWS]
    shares = [
        step if isinstance(step, str) else step.get("gradient", step.get("dead"))
        for step in steps
    ]
    return " / ".join(
        short(share) if isinstance(share, str) else per_cent(share) for share in shares
    )


def short(text: str) -> str:
    return "stopped" if text.startswith("stopped") else "error"


def setup_cell(cell: Cell) -> str:
    return f"{cell['set-up']['seconds']:.2f}"


def tools(found: Found) -> str:
    def entry(peer: str, tool: str) -> str:
        results = outcomes(found, peer, tool)
        good = results.count("works")
        if not results:
            return "as above"
        return "works" if good == len(results) else f"{good} of {len(results)}"

    return rows_of(
        ["", *found.peers],
        [[tool, *(entry(peer, tool) for peer in found.peers)] for tool in TOOLS],
    )


def outcomes(found: Found, peer: str, tool: str) -> list[str]:
    return [
        found.cells[peer, name][tool]
        for name in found.sets
        if tool in found.cells.get((peer, name), {})
    ]


# --- lists ------------------------------------------------------------------------------------------------------------


def faster(found: Found) -> list[str]:
    """Where a peer takes less time than we do."""
    pairs = [
        f"{name}: {peer} {number(theirs)}, {OURS} {number(ours)}"
        for name in found.sets
        for peer in found.peers
        if peer != OURS
        if (theirs := found.ratio(peer, name)) is not None
        if (ours := found.ratio(OURS, name)) is not None and theirs < ours
    ]
    return [
        "A peer is faster here: " + "; ".join(pairs) + "."
        if pairs
        else f"No peer is faster than {OURS} on any set."
    ]


def errors(found: Found) -> list[str]:
    """What is said where something does not work, the most frequent of each."""
    lines = []
    for peer in found.peers:
        for tool in TOOLS:
            bad = [text for text in outcomes(found, peer, tool) if text != "works"]
            if bad:
                lines.append(f"* {peer}, {tool}: {Counter(bad).most_common(1)[0][0]}")
        for kind in RAWS:
            bad = [
                cell[kind]
                for (name, _), cell in found.cells.items()
                if name == peer and isinstance(cell.get(kind), str)
            ]
            if bad:
                lines.append(
                    f"* {peer}, raw values {kind}: {Counter(bad).most_common(1)[0][0]}"
                )
    return ["\n".join(lines)] if lines else []


def moved(found: Found) -> list[str]:
    """Layers that correct, and move rows that obey already."""
    lines = [
        f"* {peer}, {name}: {per_cent(step['moved'])} % of the raw rows that obey already move by more than 0.01"
        for (peer, name), cell in found.cells.items()
        if peer.startswith("pishield")
        and isinstance(step := cell.get("N(0,10)"), dict)
        and step.get("moved")
    ]
    return (
        ["A layer that corrects should leave alone what obeys:", "\n".join(lines)]
        if lines
        else []
    )


def cannot(found: Found) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for (peer, name), cell in found.cells.items():
        if "cannot" in cell:
            reasons.setdefault((peer, cell["cannot"]), []).append(name)
    return [
        "\n".join(
            f"* {peer}: {', '.join(names)} ({reason})"
            for (peer, reason), names in sorted(reasons.items())
        )
    ]


# --- picture ----------------------------------------------------------------------------------------------------------


def draw(data: dict[str, Any], path: Path) -> None:
    """Time and violations side by side, a line of dots a set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = Found(data)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 0.45 * len(found.sets) + 1.6), sharey=True
    )
    offsets = [
        0.6 * (k / max(len(found.peers) - 1, 1) - 0.5) for k in range(len(found.peers))
    ]
    for peer, offset, colour in zip(found.peers, offsets, COLOURS, strict=False):
        size = {"s": 70, "marker": "D"} if peer == OURS else {"s": 40}
        times = [
            (found.ratio(peer, name), y + offset) for y, name in enumerate(found.sets)
        ]
        points = [(x, y) for x, y in times if x is not None]
        left.scatter(
            *zip(*points, strict=True), color=colour, label=peer, zorder=3, **size
        )
        shares = [
            (100 * cell["N(0,10)"]["violating"], y + offset)
            for y, name in enumerate(found.sets)
            if isinstance(
                (cell := found.cells.get((peer, name), {})).get("N(0,10)"), dict
            )
        ]
        right.scatter(*zip(*shares, strict=True), color=colour, zorder=3, **size)
    left.set_xscale("log")
    left.set_xlabel("forward and backward, × softplus (log scale)")
    right.set_xlabel("rows that violate, exactly, %, raw values N(0, 10²)")
    right.set_xlim(-4, 104)
    left.set_yticks(range(len(found.sets)), found.sets)
    left.invert_yaxis()
    for axes in (left, right):
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        for y in range(len(found.sets) - 1):
            axes.axhline(y + 0.5, color="#eeeeee", linewidth=0.8)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.legend(loc="upper center", ncols=len(found.peers), frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(path, dpi=130)
    plt.close(figure)
