"""A made table beside the real one: rules, detection, usefulness, pairs, columns, copies."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import inf

import numpy as np
import polars as pl

from multiplexnet.rules import Rules
from multiplexnet.synthesis.report.measures import (
    Coded,
    Floats,
    coded,
    detection,
    nearest,
    pair_strengths,
    usefulness,
)
from multiplexnet.tables.check import check

__all__ = ["Comparison", "Histogram", "compared"]

BARS = 24
PAIRS = 12
"""Pairs of columns that are listed."""


@dataclass(frozen=True)
class Histogram:
    """One column of both tables.

    Args:
        name: of the column.
        real: the share of rows in each part.
        made: the same of the made table.
        first: what the first part begins with.
        last: what the last one ends with.
        walls: where the rules end the column, as shares of the width.
        missing: the shares of rows without a value.
    """

    name: str
    real: tuple[float, ...]
    made: tuple[float, ...]
    first: str
    last: str
    walls: tuple[float, ...]
    missing: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Args:
        real_title: of the real table.
        made_title: of the made table.
        real_rows: how many.
        made_rows: how many.
        violations: for every rule how many real and made rows break it.
        figures: name, of the made table, of two halves of the real one, and what it says.
        pairs: two columns, and the strength of their bond in the real and in the made table.
        histograms: of all columns.
    """

    real_title: str
    made_title: str
    real_rows: int
    made_rows: int
    violations: tuple[tuple[str, int, int], ...]
    figures: tuple[tuple[str, float | None, float | None, str], ...]
    pairs: tuple[tuple[str, str, float, float], ...]
    histograms: tuple[Histogram, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def compared(
    rules: Rules,
    real: pl.DataFrame,
    made: pl.DataFrame,
    *,
    titles: tuple[str, str] = ("the real table", "the made table"),
    target: str | None = None,
    held_out: pl.DataFrame | None = None,
    seed: int = 0,
) -> Comparison:
    """All figures of a made table.

    Args:
        rules: what has to hold.
        real: the table that was learned from.
        made: the other one.
        titles: what they are called.
        target: a column of labels that a classifier shall predict.
        held_out: real rows that nothing was learned from; without them a half of the real table stands for them.
        seed: of the halves.
    """
    names = [name for name in real.columns if name in made.columns]
    random = np.random.default_rng(seed)
    order = random.permutation(real.height)
    half = real.height // 2
    first, second = real[order[:half]], real[order[half:]]
    judge = second if held_out is None else held_out
    tables = coded([frame.select(names) for frame in (real, made, first, second, judge)])
    counts = [check(rules, frame.select(names)).counts for frame in (real, made)]
    violations = tuple((rule, counts[0][rule], counts[1][rule]) for rule in counts[0])
    return Comparison(
        *titles,
        real.height,
        made.height,
        violations,
        tuple(_figures(tables, target)),
        tuple(_pairs(tables)),
        tuple(_histograms(rules, tables)),
    )


REAL, MADE, FIRST, SECOND, JUDGE = range(5)


def _figures(
    tables: Coded, target: str | None
) -> list[tuple[str, float | None, float | None, str]]:
    told = detection(tables, JUDGE, MADE)
    halves = detection(tables, FIRST, SECOND)
    away = ", ".join(f"{name} ({loss:.3f})" for name, loss in told.gave_away if loss > 0.002)
    found: list[tuple[str, float | None, float | None, str]] = [
        (
            "detection score",
            told.score,
            halves.score,
            "1: boosted trees cannot tell made rows from real ones"
            + (f"; given away by {away}" if away else ""),
        )
    ]
    if target is not None:
        made, real = (usefulness(tables, which, JUDGE, target) for which in (MADE, FIRST))
        for name, note in (("auc", "AUC"), ("f1", "F1")):
            values = [None if own is None else float(getattr(own, name)) for own in (made, real)]
            found.append(
                (
                    f"{target}: {note}",
                    values[0],
                    values[1],
                    "trained on made rows, beside trained on real rows, both judged on other real rows",
                )
            )
    strengths = [pair_strengths(tables, which) for which in (REAL, MADE, FIRST, SECOND)]
    found.append(
        (
            "bonds between columns",
            _distance(strengths[0], strengths[1]),
            _distance(strengths[2], strengths[3]),
            "mean difference of normalised mutual information over all pairs; 0 is best",
        )
    )
    near, apart = nearest(tables, MADE, FIRST), nearest(tables, SECOND, FIRST)
    found.append(
        (
            "distance to the nearest real row",
            near.median,
            apart.median,
            "median; much less means copying",
        )
    )
    found.append(
        (
            "exact copies",
            near.copies,
            apart.copies,
            "share of rows that stand in a half of the real table",
        )
    )
    return found


def _distance(first: Floats, second: Floats) -> float:
    places = np.tril_indices(len(first), -1)
    return float(np.abs(first - second)[places].mean()) if len(first) > 1 else 0.0


def _pairs(tables: Coded) -> list[tuple[str, str, float, float]]:
    real, made = pair_strengths(tables, REAL), pair_strengths(tables, MADE)
    rows, columns = np.tril_indices(len(real), -1)
    order = np.argsort(-np.abs(real - made)[rows, columns])[:PAIRS]
    return [
        (
            tables.names[columns[k]],
            tables.names[rows[k]],
            float(real[rows[k], columns[k]]),
            float(made[rows[k], columns[k]]),
        )
        for k in order
    ]


def _histograms(rules: Rules, tables: Coded) -> list[Histogram]:
    ends = {v.name: _ends(rules, v.name) for v in rules.outputs}
    return [
        _histogram(tables, j, ends.get(name, (-inf, inf))) for j, name in enumerate(tables.names)
    ]


def _ends(rules: Rules, name: str) -> tuple[float, float]:
    """What single rules say of one column alone."""
    from multiplexnet.compiler.cascade.clauses import clauses_of, ranges_of
    from multiplexnet.compiler.normal import normal_form
    from multiplexnet.errors import MultiplexError

    try:
        clauses = clauses_of(normal_form(rules.formula), 10_000)
        found = ranges_of(clauses, rules.outputs)
    except (MultiplexError, RuntimeError):
        return -inf, inf
    variable = next(v for v in rules.outputs if v.name == name)
    low, high = found[variable]
    return -inf if low is None else float(low), inf if high is None else float(high)


def _histogram(tables: Coded, j: int, ends: tuple[float, float]) -> Histogram:
    real, made = tables.tables[REAL][:, j], tables.tables[MADE][:, j]
    both = np.concatenate([real, made])
    known = both[~np.isnan(both)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if high <= low:
        high = low + 1.0
    count = min(BARS, int(high - low) + 1) if _is_whole(known) else BARS
    edges = np.linspace(low, high, count + 1)
    shares = [_shares(values, edges) for values in (real, made)]
    walls = [] if tables.is_label[j] else [(end - low) / (high - low) for end in ends]
    missing = tuple(float(np.isnan(values).mean()) for values in (real, made))
    return Histogram(
        tables.names[j],
        shares[0],
        shares[1],
        f"{low:g}",
        f"{high:g}",
        tuple(wall for wall in walls if 0 <= wall <= 1),
        (missing[0], missing[1]),
    )


def _is_whole(values: Floats) -> bool:
    return bool((values == np.round(values)).all())


def _shares(values: Floats, edges: Floats) -> tuple[float, ...]:
    known = values[~np.isnan(values)]
    counts = np.histogram(known, edges)[0] / max(len(values), 1)
    return tuple(counts.tolist())
