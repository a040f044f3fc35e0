"""Tables for the documentation from the lines that ``benchmarks/made_tables.py`` wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "understand" / "tables.md"
Line = dict[str, Any]
Figure = Callable[[Line], float | None]


def _ratio(made: str, real: str) -> Figure:
    def figure(line: Line) -> float | None:
        above, below = line.get(made), line.get(real)
        return above / below if above is not None and below else None

    return figure


def _share(line: Line) -> float | None:
    rows = line.get("rows")
    return line["violating"] / rows if rows and "violating" in line else None


def _of(name: str) -> Figure:
    return lambda line: line.get(name)


COLUMNS: dict[str, tuple[Figure, str]] = {
    "rows that violate": (_share, "{:.2%}"),
    "detection score": (_of("score"), "{:.3f}"),
    "AUC over real": (_ratio("made_auc", "real_auc"), "{:.3f}"),
    "F1 over real": (_ratio("made_f1", "real_f1"), "{:.3f}"),
    "weighted NMI": (_of("weighted_nmi"), "{:.2f}"),
    "nearest share": (_of("nearest_share"), "{:.2f}"),
    "fit, s": (_of("fit_seconds"), "{:.0f}"),
    "rows/s": (_of("rows_per_second"), "{:,.0f}"),
    "log-likelihood": (_of("log_likelihood"), "{:.2f}"),
}


def table(lines: Sequence[Line], name: str) -> str:
    """The table of one data set, methods with their budgets by detection score."""
    own = [line for line in lines if line["set"] == name]
    grouped: dict[tuple[str, float], list[Line]] = {}
    for line in own:
        grouped.setdefault((line["method"], line["budget_minutes"]), []).append(line)
    scored = sorted(grouped.items(), key=lambda item: -_score(*item))
    head = ["", "minutes", *COLUMNS, "seeds"]
    rows = [head, ["---"] * len(head)]
    for (method, minutes), mine in scored:
        cells = _row(method, mine)
        rows.append([cells[0], f"{minutes:g}", *cells[1:]])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _score(key: tuple[str, float], lines: Sequence[Line]) -> float:
    found = [line["score"] for line in lines if "score" in line]
    if key[0] == "real rows":
        return 2.0
    return mean(found) if found else -1.0


def _row(method: str, lines: Sequence[Line]) -> list[str]:
    good = [line for line in lines if "error" not in line]
    if not good:
        said = str(lines[0]["error"]).replace("|", "/")
        return [method, said[:80], *[""] * (len(COLUMNS) - 1), str(len(lines))]
    cells = []
    for name, (figure, shown) in COLUMNS.items():
        values = [found for line in good if (found := figure(line)) is not None]
        if method == "real rows" and name in ("nearest share", "fit, s", "rows/s"):
            values = []
        cells.append(shown.format(mean(values)) if values else "–")
    return [method, *cells, str(len(good))]


def write(lines: Sequence[Line]) -> None:
    """Fill the tables of the page."""
    text = PAGE.read_text(encoding="utf-8")

    def filled(found: re.Match[str]) -> str:
        return f"{found[1]}\n{table(lines, found[2])}\n<!-- end -->"

    text = re.sub(
        r"(<!-- tables: ([\w ]+) -->)\n.*?<!-- end -->", filled, text, flags=re.S
    )
    PAGE.write_text(text, encoding="utf-8")
    print(f"written: {PAGE}")
