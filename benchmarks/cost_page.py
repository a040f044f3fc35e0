"""The tables of docs/understand/cost.md, made of what benchmarks/layer.py and benchmarks/setup.py kept.

    python benchmarks/cost_page.py

A place of the page is named by a pair of comments, ``<!-- cost: layers -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "understand" / "cost.md"
ROWS = 16384
FEW = 1024

Line = dict[str, Any]


def processor() -> str:
    """What the processor calls itself, if the system says."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found[1].strip() if found else "unknown"


def said(results: Line) -> str:
    """On what machine, and how busy it was when it began."""
    others = results["load_before"]
    quiet = "nothing else was running" if others < 0.5 else f"load {others:.1f} before"
    return f"Measured on an {results['processor']}, one thread; {quiet}."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def layers() -> Iterator[str]:
    """A row for each kind of rules: forward / forward and backward."""
    results = _read("layer.json")
    lines: list[Line] = results["layers"]
    at = {(line["name"], line["dtype"], line["batch"]): line for line in lines}

    def both(name: str, dtype: str, batch: int) -> str:
        line = at.get((name, dtype, batch))
        return _ratios(line) if line else ""

    yield said(results)
    yield ""
    names = [line["name"] for line in lines if ", loss" not in line["name"]]
    yield from table(
        [
            "rules",
            "float32",
            "wanted",
            "products in float32, too",
            "float64",
            "float32, 1,024 rows",
            "wanted",
        ],
        [
            [
                name,
                both(name, "float32", ROWS),
                _goal(at.get((name, "float32", ROWS))),
                both(name, "float32, products too", ROWS),
                both(name, "float64", ROWS),
                both(name, "float32", FEW),
                _goal(at.get((name, "float32", FEW))),
            ]
            for name in dict.fromkeys(names)
            if (name, "float32", ROWS) in at
        ],
    )


def others() -> Iterator[str]:
    """Losses over all terms, and single rows: forward and backward."""
    lines: list[Line] = _read("layer.json")["layers"]
    chosen = [
        line
        for line in lines
        if line["dtype"] == "float32"
        and (", loss" in line["name"] or line["batch"] == 1)
    ]
    yield from table(
        ["rules", "rows", "forward and backward", "wanted"],
        [
            [
                line["name"],
                f"{line['batch']:,}",
                f"{line['both_ratio']:.1f}",
                _goal(line),
            ]
            for line in chosen
        ],
    )


def many_terms() -> Iterator[str]:
    """What many terms cost."""
    yield from table(
        ["terms", "`best()` ms", "training step s", "its memory, in (B, K, D) tensors"],
        [
            [
                f"{line['terms']:,}",
                f"{line['best_ms']:.1f}",
                f"{line['step_seconds']:.2f}",
                f"{line['step_memory']:.2f}",
            ]
            for line in _read("layer.json")["many_terms"]
        ],
    )


def setup() -> Iterator[str]:
    """How long large sets take to build."""
    results = _read("setup.json")
    yield said(results)
    yield ""
    yield from table(
        ["set", "s", "wanted", "MB"],
        [
            [
                line["name"],
                f"{line['seconds']:.1f}",
                f"{line['goal']:g}",
                f"{line['megabytes']:,}",
            ]
            for line in results["sets"]
        ],
    )


PLACES: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "layers": ("layer.json", layers),
    "others": ("layer.json", others),
    "many terms": ("layer.json", many_terms),
    "setup": ("setup.json", setup),
}
"""By their names, what is read for them and what stands there."""


def fill() -> None:
    """Writes the tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page), encoding="utf-8")


def filled(page: str) -> str:
    """The page with the tables that the kept results give."""
    for name, (file, lines) in PLACES.items():
        if not (RESULTS / file).exists():
            continue
        text = "\n".join(lines())
        marks = rf"(<!-- cost: {name} -->\n).*?(<!-- end -->)"
        page = re.sub(marks, rf"\g<1>{text}\n\g<2>", page, flags=re.DOTALL)
    return page


def _read(name: str) -> Line:
    found: Line = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def _ratios(line: Line) -> str:
    return f"{line['forward_ratio']:.1f} / {line['both_ratio']:.1f}"


def _goal(line: Line | None) -> str:
    return "" if line is None or line["goal"] is None else f"{line['goal']:g}"


if __name__ == "__main__":
    fill()
