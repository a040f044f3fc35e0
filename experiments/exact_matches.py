"""The picture of a task of structured prediction: who answers exactly, and whose answers obey."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

__all__ = ["ExactMatches"]


@dataclass(frozen=True)
class ExactMatches:
    """One line a method, one point a seed.

    Args:
        label: what is counted, in per cent.
        width: where the axis ends.
        beside: where it is told how many answers obey.
        field: of a line, what is counted.
    """

    label: str
    width: float
    beside: float
    field: str = "exact"

    def draw(
        self,
        results: Iterable[Mapping[str, Any]],
        methods: Sequence[str],
        literature: Mapping[str, float],
        path: Path,
    ) -> None:
        """Write the picture, with what is remembered of the literature as dotted lines."""
        figure = Figure(figsize=(8, 0.5 * len(methods) + 1.3), layout="constrained")
        axis = figure.subplots()
        every = list(results)
        for height, method in enumerate(methods):
            lines = [line for line in every if line["method"] == method]
            values = [100 * line[self.field] for line in lines]
            obey = sum(100 * line["consistent"] for line in lines) / max(len(lines), 1)
            axis.plot(values, [height] * len(values), "o", alpha=0.4, color="#3b6ea5")
            axis.text(
                self.beside, height, f"{obey:.0f} % obey", va="center", fontsize=9
            )
        for name, value in literature.items():
            axis.axvline(value, color="grey", lw=0.8, ls=":")
            side = "left" if name == "SPL" else "right"
            axis.text(value, -0.75, f" {name}* ", ha=side, fontsize=8, color="grey")
        axis.set_yticks(range(len(methods)), methods)
        axis.set(xlim=(0, self.width), ylim=(len(methods) - 0.5, -1.1))
        axis.set_xticks(
            [tick for tick in axis.get_xticks() if 0 <= tick <= min(100, self.width)]
        )
        axis.set_xlabel(self.label)
        axis.grid(axis="x", alpha=0.3)
        figure.savefig(path, dpi=110)
