"""The report as one page: it loads nothing, has its pictures inside, and can be read on a phone and in the dark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multiplexnet.compiler.explanation.words import readable_number
from multiplexnet.language.text import domain_text
from multiplexnet.quality.detection import FEWEST, Detection
from multiplexnet.quality.heaps import Heap
from multiplexnet.quality.nearness import Distances, Nearness
from multiplexnet.quality.pairs import Pairs
from multiplexnet.quality.pictures import column_picture, is_steep, matrix, steps
from multiplexnet.quality.trees import MOST_LABELS
from multiplexnet.quality.usefulness import Usefulness
from multiplexnet.tables.report import RuleReport, TableReport

if TYPE_CHECKING:
    from multiplexnet.quality.report import QualityReport

__all__ = ["page"]

LISTED = 12
"""Rows of a table that are shown at once; others are folded."""
MOST = 60
"""Rows of a table that are shown at all."""

Cell = str | tuple[str, str]
"""What stands in a cell of a table, or its class and that."""


def page(report: QualityReport) -> str:
    """The whole page."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    parts = [
        _head(report),
        _cards(report),
        _rules(report),
        _detection(report),
        _usefulness(report),
        _pairs(report),
        _columns(report),
        _heaps(report),
        _nearness(report),
        _foot(report),
    ]
    title = f"{report.made.table} beside {report.data.table}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


# --- pieces -----------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> str:
    """A table that can be pushed sideways; rows beyond the first dozen are folded."""
    head = "".join(_cell("th", cell) for cell in heads)
    lines = ["".join(_cell("td", cell) for cell in row) for row in rows[:MOST]]
    shown = "".join(f"<tr>{line}</tr>" for line in lines[:LISTED])
    text = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{shown}</tbody></table></div>'
    if len(lines) > LISTED:
        rest = "".join(f"<tr>{line}</tr>" for line in lines[LISTED:])
        more = f"{len(lines) - LISTED} more"
        if len(rows) > MOST:
            more += f"; there are {len(rows):,} (all of them are in the JSON document)"
        text += (
            f'<details><summary>{more}</summary><div class="wide"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{rest}</tbody></table></div></details>"
        )
    return text


def _cell(tag: str, cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<{tag}>{escape(cell)}</{tag}>"
    kind, text = cell
    return f'<{tag} class="{kind}">{_breakable(text)}</{tag}>'


def _breakable(text: str) -> str:
    """Long names may be broken between their words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=_)(?=\w)", "<wbr>", escape(text))


def _text(cell: str) -> Cell:
    return "text", cell


def _share(value: float) -> str:
    if 0 < value < 0.0005:
        return f"{value:.1e}"
    return f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else _with_minus(f"{value:.3f}")


def _with_minus(number: str) -> str:
    """A number with a sign that is as wide as a plus, and with none if it is zero."""
    if not number.strip("+-0."):
        return number.lstrip("+-")
    return number.replace("-", "−")


HALVES = "two halves of the real table"
KEY = (
    '<div class="key"><span><i class="area"></i>real</span><span><i class="outline"></i>made</span>'
    '<span><i class="bound"></i>bound of a rule</span><span><i class="threshold"></i>a rule speaks of it</span></div>'
)


# --- head -------------------------------------------------------------------------------------------------------------


def _head(report: QualityReport) -> str:
    made = report.made
    real = report.data
    text = (
        f"<h1>{escape(Path(made.table).name)} beside {escape(Path(real.table).name)}</h1>"
        f'<p class="quiet">{made.rows:,} <span class="made">made</span> rows, learned from {real.rows:,} '
        f'<span class="real">real</span> rows'
    )
    if report.holdout is not None:
        text += (
            f", beside {report.holdout.rows:,} real rows that nothing was learned from"
        )
    text += (
        ". Each figure stands beside the same figure of real rows compared with real rows, which is what a "
        "perfect table "
        "would have.</p>"
    )
    if report.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
        text += f'<ul class="notes">{notes}</ul>'
    return text


def _cards(report: QualityReport) -> str:
    made = report.made
    real = report.data
    broken = made.rows - made.obeying
    own = real.rows - real.obeying
    tone = "good" if not broken else "bad"
    cards = [
        _card(
            "Rows that break a rule",
            f"{broken:,}",
            tone,
            f"real table: {own:,} of {real.rows:,}",
        )
    ]
    told = report.detection.made
    apart = report.detection.real
    if told is not None and apart is not None:
        beside = f"real beside real: {apart.score:.2f}"
        score, tone = f"{told.score:.2f}", ""
        if told.is_reversed:
            score, tone = "none", "bad"
            beside = f"AUC {told.auc:.2f}: the same rows are in both tables"
        cards.append(_card("Detection score (1: cannot tell)", score, tone, beside))
    useful = report.usefulness
    if isinstance(useful, Usefulness):
        name = "auc" if useful.task == "class" else "r2"
        ours = getattr(useful.made, name)
        theirs = getattr(useful.real, name)
        title = f"Trained on made rows: {name.upper().replace('R2', 'R²')}"
        cards.append(
            _card(title, f"{ours:.3f}", "", f"trained on real rows: {theirs:.3f}")
        )
    one = report.pairs.made
    other = report.pairs.real
    if one is not None and other is not None and one.weighted is not None:
        beside = f"real beside real: {other.weighted or 0:.2f}"
        cards.append(
            _card(
                "Dependence in common (weighted NMI)", f"{one.weighted:.2f}", "", beside
            )
        )
    own_copies = report.copies
    usual = "held-out rows" if report.holdout is not None else "real rows there twice"
    cards.append(
        _card(
            "Copies of real rows",
            f"{own_copies.made:.1%}",
            "bad" if own_copies.are_many else "",
            f"{usual}: {own_copies.real:.1%}",
        )
    )
    near = report.nearness
    if near is not None and report.holdout is not None:
        cards.append(
            _card(
                "Nearer to learned rows", f"{near.share:.0%}", "", "copies nobody: 50%"
            )
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(title: str, number: str, tone: str, beside: str) -> str:
    return (
        f'<div class="card"><span>{escape(title)}</span><b class="{tone}">{escape(number)}</b>'
        f'<span class="quiet">{escape(beside)}</span></div>'
    )


# --- rules ------------------------------------------------------------------------------------------------------------


def _rules(report: QualityReport) -> str:
    tables = [report.made, report.data]
    heads: list[Cell] = [_text("rule"), "made", "real"]
    if report.holdout is not None:
        tables.append(report.holdout)
        heads.append("held out")
    heads += ["largest violation, made"]
    broken = [own.rows - own.obeying for own in tables]
    rows: list[list[Cell]] = [
        [_text("rows that break any rule"), *map(_count, broken), ""]
    ]
    for name, counts, largest in _worst_first(tables):
        rows.append([_text(_cut(name)), *map(_count, counts), largest])
    return (
        "<h2>Rules</h2><p>Rows that break each rule, in all rows of the tables. Decided in exact arithmetic, with no "
        "tolerance, from what the files say.</p>" + _table(heads, rows)
    )


def _worst_first(tables: Sequence[TableReport]) -> list[tuple[str, list[int], str]]:
    """What can be broken, how many rows of each table do, and by how much a made row does."""
    found = []
    for k, rule in enumerate(tables[0].rules):
        counts = [own.rules[k].violations for own in tables]
        found.append((rule.rule.text, counts, _largest(rule)))
    for k, domain in enumerate(tables[0].domains):
        counts = [own.domains[k].violations for own in tables]
        name = f"{domain.variable.name}: {domain_text(domain.variable)}"
        if any(counts):
            found.append((name, counts, "–"))
    found += [(name, counts, "–") for name, counts in _cells(tables).items()]
    return sorted(found, key=lambda own: [-count for count in own[1]])


def _cells(tables: Sequence[TableReport]) -> dict[str, list[int]]:
    """Cells that could not be read, by column and reason."""
    found: dict[str, list[int]] = {}
    for k, own in enumerate(tables):
        for cell in own.cells:
            if cell.fails:
                name = f"cells of {cell.variable.name}: {cell.reason}"
                found.setdefault(name, [0] * len(tables))[k] = cell.cells
    return found


def _count(violations: int) -> Cell:
    return ("bad" if violations else "good", f"{violations:,}")


def _largest(rule: RuleReport) -> str:
    if rule.largest is None:
        return "–"
    if rule.largest == 0:
        return "on the boundary"
    return "∞" if isinstance(rule.largest, float) else readable_number(rule.largest)


def _cut(text: str) -> str:
    return text if len(text) <= 120 else text[:119] + "…"


# --- detection --------------------------------------------------------------------------------------------------------


def _detection(report: QualityReport) -> str:
    told = report.detection.made
    apart = report.detection.real
    head = "<h2>Detection: can made rows be told from real ones?</h2>"
    if told is None or apart is None:
        return f"{head}<p>It takes {FEWEST} rows of each table: nothing is said.</p>"
    flatters = ""
    if report.holdout is None:
        flatters = (
            " Rows that were learned from are among the real ones, which flatters."
        )
    text = (
        f"<p>Boosted trees (100, depth 6, rate 0.3) learn from two thirds of {told.rows:,} made and "
        f"{told.rows:,} real rows "
        f"and judge the others, three times.{flatters} AUC is ½ and the score 1 − (2·max(AUC, ½) − 1) is 1 if they "
        "cannot tell. An AUC far below ½ has no score: the same rows are in both tables.</p>"
    )
    rows: list[list[Cell]] = [
        [_text("made beside real"), _number(told.auc), _score(told)],
        [_text(f"real beside real ({HALVES if report.holdout is None else 'learned from, held out'})"),
         _number(apart.auc), _score(apart)],
    ]  # fmt: skip
    given = [
        [_text(own.name), _with_minus(f"{own.fall:+.3f}"), f"{own.alone:.3f}"]
        for own in told.columns
    ]
    return (
        head
        + text
        + _table([_text(""), "AUC", "score"], rows)
        + "<h3>What gave them away</h3><p>By how much AUC falls if the column is shuffled, and AUC of one small "
        "tree that "
        "sees this column alone (½: its distribution gives nothing away).</p>"
        + _table([_text("column"), "AUC falls by", "AUC alone"], given)
    )


def _score(own: Detection) -> str:
    return _number(None if own.is_reversed else own.score)


# --- usefulness -------------------------------------------------------------------------------------------------------


def _usefulness(report: QualityReport) -> str:
    own = report.usefulness
    head = "<h2>Usefulness: a model trained on made rows, tested on real ones</h2>"
    if isinstance(own, str):
        return f"{head}<p>Nothing is said: {escape(own)}.</p>"
    note = f" {escape(own.note)}." if own.note else ""
    text = (
        f"<p>Boosted trees predict <b>{escape(own.target)}</b> (--target) from all other columns. They learn "
        f"from {own.rows:,} "
        f"rows and are tested on {own.tested:,} real "
        f"ones{'' if report.holdout else ', which the made rows were learned from'}."
        f"{note}</p>"
    )
    names = [
        (title, name)
        for title, name in (("AUC", "auc"), ("F1", "f1"), ("R²", "r2"))
        if getattr(own.made, name) is not None
    ]
    rows: list[list[Cell]] = []
    for title, worked in (("made rows", own.made), ("real rows", own.real)):
        figures = [_number(getattr(worked, name)) for _, name in names]
        rows.append([_text(f"trained on {title}"), *figures])
    ratios = [
        _ratio(getattr(own.made, name), getattr(own.real, name)) for _, name in names
    ]
    rows.append([_text("made over real"), *ratios])
    table = _table([_text(""), *(title for title, _ in names)], rows)
    if own.positive is not None:
        table += f'<p class="quiet">F1 is that of the rarer class, {escape(own.positive)}.</p>'
    elif own.task == "class":
        table += '<p class="quiet">AUC and F1 are means over the classes, one against the others.</p>'
    return head + text + table


def _ratio(made: float, real: float) -> str:
    return f"{made / real:.3f}" if real else "–"


# --- pairs ------------------------------------------------------------------------------------------------------------


def _pairs(report: QualityReport) -> str:
    made = report.pairs.made
    real = report.pairs.real
    head = "<h2>Pairs of columns</h2>"
    if made is None or real is None:
        return f"{head}<p>It takes two columns and two rows: nothing is said.</p>"
    text = (
        "<p>NMI is mutual information divided by the mean entropy: 0 if two columns do not depend on each "
        "other, 1 if each "
        "says everything about the other. Weighted NMI is Σ min / Σ max over all pairs: a table without any "
        "dependence has "
        "nearly 0. Trend is the mean of 1 − half the difference of rank correlations, which such a table may pass.</p>"
    )
    rows: list[list[Cell]] = [
        [_text("made beside real"), _number(made.weighted), _number(made.trend)],
        [_text("real beside real"), _number(real.weighted), _number(real.trend)],
    ]
    names = [figure.column.name for figure in report.columns]
    pictures = [
        ("Real rows: NMI", made.real),
        ("Made rows: NMI", made.made),
        ("Made minus real", made.made - made.real),
    ]
    panels = "".join(
        f'<figure class="panel"><h3>{title}</h3>{matrix(_blank(values), names, title)}</figure>'
        for title, values in pictures
    )
    return (
        head
        + text
        + _table([_text(""), "weighted NMI", "trend"], rows)
        + f'<div class="panels">{panels}</div>'
        + '<p class="quiet">Orange: more, blue: less; the scale is that of the square root, so that faint ones '
        "show. From left to right columns are in the same order as from top to bottom.</p>"
        + "<h3>Pairs that differ most</h3>"
        + _table(
            [_text("columns"), "NMI real", "made", "correlation real", "made"],
            [_pair(made, k) for k in range(len(made.pairs))],
        )
    )


def _blank(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Without the diagonal, which says nothing."""
    found = values.copy()
    np.fill_diagonal(found, 0.0)
    return found


def _pair(pairs: Pairs, k: int) -> list[Cell]:
    own = pairs.pairs[k]
    return [
        _text(" · ".join(own.columns)),
        _number(own.real),
        _number(own.made),
        _number(own.real_correlation),
        _number(own.made_correlation),
    ]


# --- columns ----------------------------------------------------------------------------------------------------------


def _columns(report: QualityReport) -> str:
    worst_first = sorted(report.columns, key=lambda own: own.real - own.made)
    panels = []
    for own in worst_first:
        short = "KS" if own.measure.startswith("K") else "TV"
        panels.append(
            f'<figure class="panel"><h3>{escape(own.column.name)}</h3>{column_picture(own)}'
            f"<figcaption>{short} {own.made:.3f}, real beside real {own.real:.3f}"
            f"{'; height: square root' if is_steep(own) else ''}</figcaption></figure>"
        )
    return (
        "<h2>Columns</h2><p>Those that are farthest from the real ones first. KS (Kolmogorov–Smirnov) is the largest "
        "difference of cumulative shares, TV (total variation) half the sum of all differences of shares. The "
        "outermost bars hold what lies beyond; percentages are those of the made rows.</p>"
        f'{KEY}<div class="panels">{"".join(panels)}</div>'
    )


# --- heaps ------------------------------------------------------------------------------------------------------------


def _heaps(report: QualityReport) -> str:
    text = "<h2>Heaps and boundaries</h2>"
    text += (
        "<p>Shares of rows on single values: those that at least 2 % of the rows have in columns of many "
        "values, and those "
        "that rules name.</p>"
    )
    text += _heap_table(report.heaps, "column", "value", "No value is a heap.")
    if report.specification.rules:
        text += (
            "<h3>On the boundaries of rules</h3><p>Shares of rows in which a comparison of two or more columns "
            "holds with "
            "equality, decided exactly.</p>"
        )
        text += _heap_table(report.tight, "rule", "boundary", "No row is on one.")
    return text


def _heap_table(heaps: Sequence[Heap], what: str, where: str, nothing: str) -> str:
    if not heaps:
        return f'<p class="quiet">{nothing}</p>'
    rows: list[list[Cell]] = [
        [_text(_cut(own.what)), _text(_cut(own.where)), _share(own.made), _share(own.real), _share(own.other)]
        for own in heaps
    ]  # fmt: skip
    heads = [_text(what), _text(where), "made", "real", "other real rows"]
    return _table(heads, rows)


# --- nearness ---------------------------------------------------------------------------------------------------------


def _nearness(report: QualityReport) -> str:
    near = report.nearness
    head = "<h2>Are made rows copies?</h2>" + _copies(report)
    head += "<h3>Nearest rows</h3>"
    if near is None:
        return f"{head}<p>There are too few rows: nothing is said.</p>"
    if report.holdout is None:
        caution = (
            "<b>No rows were held out: both halves were learned from, so these figures cannot show rows that are "
            "nearly copies.</b>"
        )
    else:
        caution = _unseen(near, report.data.rows)
    text = (
        f"<p>Distances from {near.rows:,} made rows to the nearest of {near.among:,} rows that were learned from and "
        f"of {near.among:,} others: the sum over columns of how far apart two values stand among all "
        "values (0 to 1), and 1 for labels that differ. A model that copies is nearer to rows that it learned from "
        f"than to others; one that does not is as near to both. {caution}</p>"
    )
    learned = "the first half"
    others = "the second half"
    if report.holdout is not None:
        learned = "learned rows"
        others = "held-out rows"
    rows = [
        _distance(f"made rows to {learned}", near.made_to_learned),
        _distance(f"made rows to {others}", near.made_to_others),
        _distance(f"{others} to {learned}: what fresh rows have", near.real_to_learned),
    ]
    table = _table(
        [_text(""), "median", "lowest\N{NO-BREAK SPACE}5\N{NO-BREAK SPACE}%"], rows
    )
    share = f"<p><b>{near.share:.1%}</b> of the made rows are nearer to {learned} than to {others}; ½ is right.</p>"
    picture = steps(near.edges, near.histogram[1], near.histogram[0])
    return (
        f'{head}{text}{table}{share}<div class="panels"><figure class="panel"><h3>Distance to {learned}</h3>{picture}'
        f'<figcaption><span class="made">made rows</span> and <span class="real">{others}</span></figcaption>'
        "</figure></div>"
    )


def _distance(title: str, own: Distances) -> list[Cell]:
    return [
        _text(title),
        _number(own.median),
        _number(own.low),
    ]


def _copies(report: QualityReport) -> str:
    own = report.copies
    rows: list[list[Cell]] = [
        [
            _text("made rows"),
            f"{own.made_rows:,}",
            ("bad" if own.are_many else "good", _share(own.made)),
        ]
    ]
    if report.holdout is not None:
        rows.append([_text("held-out rows"), f"{own.real_rows:,}", _share(own.real)])
        usual = "Held-out rows are no copies: what they have is chance, or a table that repeats itself."
    else:
        rows.append(
            [
                _text("real rows that are there twice"),
                f"{own.real_rows:,}",
                _share(own.real),
            ]
        )
        usual = "Real rows that are there twice are a table that repeats itself."
    return (
        f"<p>Rows that are in the real table, cell by cell, in all columns that are compared: looked for among all "
        f"{own.learned_rows:,} rows of it. {usual}</p>"
        + _table([_text(""), "rows", "in the real table"], rows)
    )


def _unseen(near: Nearness, learned: int) -> str:
    """What so many rows cannot show."""
    if near.among >= learned:
        return ""
    return (
        f"<b>A row that is nearly a copy of one of the other {learned - near.among:,} rows of the real table does not "
        "show here</b>: as many rows of both kinds are compared, at most those of --rows and as many as were held "
        "out. Copies are looked for among all."
    )


# --- foot -------------------------------------------------------------------------------------------------------------


def _foot(report: QualityReport) -> str:
    made, learned, others = report.rows
    left = "".join(
        f"<li><code>{escape(own.name)}</code>: {escape(own.reason)}</li>"
        for own in report.left_out
    )
    listed = f"<p>Columns that are not compared:</p><ul>{left}</ul>" if left else ""
    return (
        f'<footer class="quiet">{listed}<p>Compared: {made:,} made rows, {learned:,} real rows of the one half '
        f"and {others:,} of "
        f"the other; seed {report.seed}; {report.seconds:.0f} s. Trees tell {MOST_LABELS} labels of a column apart. "
        "Made by multiplexnet report; <code>--json</code> has all figures.</p></footer>"
    )
