"""The report on a made table as one page of HTML that needs nothing else: no script, no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from multiplexnet.synthesis.report.comparison import Comparison, Histogram

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --paper: #fff; --real: #8a93a6; --made: #2f6fde; --bad: #c62f2f;
  --line: #d9dde5; --soft: #f3f5f9 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --paper: #14171d; --real: #7d8698; --made: #6aa0ff;
  --bad: #ff7a7a; --line: #333a47; --soft: #1d222b } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 60rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100% } th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: var(--bad); font-weight: 600 } .note { opacity: .8; font-size: .9rem }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem }
figure { margin: 0; padding: .6rem; background: var(--soft); border-radius: .5rem }
figcaption { font-size: .9rem; overflow-wrap: anywhere } svg { width: 100%; height: auto; display: block }
.key span { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin: 0 .3rem 0 1rem }
@media (max-width: 40rem) { body { margin: 1rem auto } .wide { overflow-x: auto } }
"""


def page(comparison: Comparison) -> str:
    """The whole page."""
    parts = [
        f"<h1>{escape(comparison.made_title)} beside {escape(comparison.real_title)}</h1>",
        f"<p>{comparison.made_rows:,} made rows, {comparison.real_rows:,} real ones, "
        f"{len(comparison.histograms)} columns. Every figure stands beside the same figure for two halves of the real "
        "table: that is what «perfect» scores.</p>",
        _rules(comparison),
        _figures(comparison),
        _pairs(comparison),
        _columns(comparison),
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(comparison.made_title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table whose last ``numbers`` columns are numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        first = len(row) - numbers
        marks = ["" if i < first else ' class="n"' for i in range(len(row))]
        return "".join(
            f"<{tag}{mark}>{cell}</{tag}>" for cell, mark in zip(row, marks, strict=True)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{cells("th", head)}</tr></thead><tbody>{lines}</tbody></table></div>'


def _rules(comparison: Comparison) -> str:
    rows = []
    for rule, real, made in comparison.violations:
        shown = f'<span class="bad">{made:,}</span>' if made else "0"
        rows.append((f"<code>{escape(rule)}</code>", f"{real:,}", shown))
    broken = sum(made for _, _, made in comparison.violations)
    word = "No made row breaks a rule." if not broken else "Some made rows break rules."
    return (
        f"<h2>Rules</h2><p>{word} Judged exactly, with no tolerance, on the numbers as they are written.</p>"
        + _table(("rule", "real rows that break it", "made rows"), rows, 2)
    )


def _figures(comparison: Comparison) -> str:
    rows = [
        (escape(name), _number(made), _number(real), escape(note))
        for name, made, real, note in comparison.figures
    ]
    head = (
        '<tr><th>figure</th><th class="n">made</th><th class="n">two halves of the real table</th>'
        "<th>what it says</th></tr>"
    )
    lines = "".join(
        f'<tr><td>{a}</td><td class="n">{b}</td><td class="n">{c}</td><td class="note">{d}</td></tr>'
        for a, b, c, d in rows
    )
    return (
        "<h2>Alike, useful, no copies</h2>"
        f'<div class="wide"><table><thead>{head}</thead><tbody>{lines}</tbody></table></div>'
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _pairs(comparison: Comparison) -> str:
    if not comparison.pairs:
        return ""
    rows = [
        (f"{escape(a)} – {escape(b)}", f"{real:.3f}", f"{made:.3f}")
        for a, b, real, made in comparison.pairs
    ]
    return (
        "<h2>Pairs of columns that differ most</h2><p>How much each column of a pair tells of the other "
        "(normalised mutual information, 0 to 1).</p>" + _table(("pair", "real", "made"), rows, 2)
    )


def _columns(comparison: Comparison) -> str:
    figures = "".join(map(_histogram, comparison.histograms))
    key = (
        '<p class="key"><span style="background:var(--real);margin-left:0"></span>real'
        '<span style="background:var(--made)"></span>made'
        '<span style="background:var(--bad)"></span>what the rules allow ends here</p>'
    )
    return f'<h2>Columns side by side</h2>{key}<div class="grid">{figures}</div>'


def _histogram(histogram: Histogram) -> str:
    width, height = 260.0, 90.0
    top = max([*histogram.real, *histogram.made, 1e-12])
    step = width / len(histogram.real)
    bars = []
    for i, (real, made) in enumerate(zip(histogram.real, histogram.made, strict=True)):
        for share, colour, offset in ((real, "--real", 0.08), (made, "--made", 0.5)):
            tall = height * share / top
            bars.append(
                f'<rect x="{(i + offset) * step:.2f}" y="{height - tall:.2f}" width="{0.4 * step:.2f}" '
                f'height="{tall:.2f}" fill="var({colour})"/>'
            )
    walls = [
        f'<line x1="{x * width:.2f}" x2="{x * width:.2f}" y1="0" y2="{height}" '
        'stroke="var(--bad)" stroke-dasharray="3 3"/>'
        for x in histogram.walls
        if np.isfinite(x)
    ]
    note = f"{escape(histogram.first)} … {escape(histogram.last)}"
    if histogram.missing != (0.0, 0.0):
        note += f"; missing {histogram.missing[0]:.1%} and {histogram.missing[1]:.1%}"
    return (
        f"<figure><figcaption><b>{escape(histogram.name)}</b></figcaption>"
        f'<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(histogram.name)}: real and made">{"".join(bars)}{"".join(walls)}</svg>'
        f'<figcaption class="note">{note}</figcaption></figure>'
    )
