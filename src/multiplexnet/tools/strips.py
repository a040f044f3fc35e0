"""A picture of where in a table rules are broken: a strip for every rule, from the first row to the last."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import PlotError
from multiplexnet.tables.report import TableReport

__all__ = ["plot_strips"]

MOST_STRIPS = 40


def plot_strips(report: TableReport, path: str | Path) -> None:
    """Draw the share of rows that break each rule, along the table, into a file.

    Args:
        report: of a check with ``strips``.
        path: where the picture goes; its ending chooses the format.

    Raises:
        PlotError: the picture cannot be written in this format.
    """
    from matplotlib.figure import Figure

    strips = report.strips
    counts = {} if strips is None else strips.counts
    width = 1 if strips is None else strips.width
    worst = sorted(counts, key=lambda finding: -int(counts[finding].sum()))
    findings = worst[:MOST_STRIPS]
    bins = max(1, -(-report.rows // width))
    figure = Figure(
        figsize=(9, 1.4 + 0.32 * max(1, len(findings))), layout="constrained", dpi=150
    )
    ax = figure.add_subplot()
    if findings:
        held = np.minimum(width, report.rows - width * np.arange(bins))
        shares = np.stack([counts[finding][:bins] / held for finding in findings])
        image = ax.imshow(
            np.where(shares > 0, shares, np.nan),
            aspect="auto",
            interpolation="nearest",
            cmap="autumn_r",
            vmin=0,
            vmax=1,
            extent=(1, report.rows + 1, len(findings), 0),
        )
        figure.colorbar(image, ax=ax, label="share of rows", shrink=0.9)
    ax.set_yticks(
        np.arange(len(findings)) + 0.5,
        [_label(f, counts) for f in findings],
        fontsize=8,
    )
    ax.set_facecolor("#e9f3ec")
    ax.set_xlim(1, report.rows + 1)
    failed = report.rows - report.obeying
    ax.set_title(f"{failed:,} of {report.rows:,} rows do not obey", fontsize=11)
    ax.set_xlabel("row of the table, from 1")
    try:
        figure.savefig(path)
    except ValueError as error:
        raise PlotError(f"{path}: {error}") from None


def _label(finding: str, counts: Mapping[str, NDArray[np.int64]]) -> str:
    return f"{shorten(finding, 50, placeholder='…')}  {int(counts[finding].sum()):,}"
