"""How good a made table is: each figure against a small computation of its own, odd tables, the page, the command."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date, datetime, timedelta
from fractions import Fraction
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import ks_2samp, spearmanr
from sklearn.metrics import (
    f1_score,
    normalized_mutual_info_score,
    r2_score,
    roc_auc_score,
)
from typer.testing import CliRunner

import multiplexnet as mx
from multiplexnet.errors import TableError
from multiplexnet.quality import usefulness as useful
from multiplexnet.quality.columns import ComparedColumn, SampledRows, compared
from multiplexnet.quality.detection import auc, detection
from multiplexnet.quality.heaps import heaps
from multiplexnet.quality.marginals import _bars, distance, marks_of
from multiplexnet.quality.nearness import (
    nearest,
    nearness,
    nearness_of_equal_samples,
    placed,
)
from multiplexnet.quality.page import _number, _table, _with_minus
from multiplexnet.quality.pairs import _coded, correlations, mutual_information, pairs
from multiplexnet.quality.pictures import png
from multiplexnet.quality.report import QualityReport
from multiplexnet.quality.sampling import sample
from multiplexnet.tools.report_commands import app

RULES = mx.Rules("""
    net: decimal(2)[0, 100]; tax: decimal(2)[0, 50]; gross: decimal(2)[0, 150]
    age: int[0, 120]
    start: date["2020-01-01", "2024-12-31"]
    net + tax == gross
    tax <= 0.5*net
    implies(age < 18, tax <= 1)
""")


def people(count: int, seed: int, noise: float = 0.0) -> pl.DataFrame:
    """A table with every kind of column."""
    random = np.random.default_rng(seed)
    age = random.integers(10, 90, count)
    net = random.integers(100, 9_000, count)
    tax = np.where(age < 18, 0, net // 5)
    works = (age > 30) ^ (random.random(count) < noise)
    first = date(2021, 1, 1)
    pension = [None if a < 60 else float(a) * 2 for a in age.tolist()]
    return pl.DataFrame(
        {
            "age": age,
            "net": net / 100,
            "tax": tax / 100,
            "gross": (net + tax) / 100,
            "start": [first + timedelta(int(k) * 5) for k in age],
            "seen": [datetime(2024, 1, 1, 8, int(k) % 60) for k in age],
            "pension": pension,
            "town": [f"town {int(k) % 300}" for k in random.integers(0, 900, count)],
            "works": works,
            "plan": np.where(works, "full", "basic"),
        }
    )


def rows_of(table: dict[str, Any], rules: str = "x >= 0") -> SampledRows:
    tables, _ = compared(mx.Rules(rules).specification, [sample(table, 10**6, 0)])
    return tables[0]


@pytest.fixture(scope="module")
def found() -> QualityReport:
    return mx.report(RULES, people(600, 0), people(400, 1, 0.3), holdout=people(500, 2))


# --- figures ----------------------------------------------------------------------------------------------------------


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, 60)
    score = (random.integers(0, 9, 60) + truth).astype(float)
    pairs = list(product(score[truth == 1].tolist(), score[truth == 0].tolist()))
    wins = sum((a > b) + (a == b) / 2 for a, b in pairs)
    assert auc(truth, score) == pytest.approx(wins / len(pairs))
    assert auc(truth, score) == pytest.approx(roc_auc_score(truth, score))


def test_rows_of_one_kind_cannot_be_told_apart_and_a_shifted_column_is_named() -> None:
    random = np.random.default_rng(0)
    columns = (ComparedColumn("a", "number"), ComparedColumn("b", "number"))
    tables = [SampledRows(columns, random.normal(size=(900, 2))) for _ in range(3)]
    alike = detection(tables[0], tables[1], 0)
    shifted = SampledRows(columns, tables[2].values + np.array([0.0, 1.5]))
    apart = detection(shifted, tables[1], 0)
    assert alike is not None
    assert apart is not None
    assert (alike.score > 0.9, apart.score < 0.5) == (True, True)
    assert apart.score == pytest.approx(2 - 2 * apart.auc)
    assert apart.columns[0].name == "b"
    assert apart.columns[0].fall > 0.1 > abs(apart.columns[1].fall)
    assert apart.columns[0].alone > 0.7
    assert apart.auc == pytest.approx(np.mean(apart.folds))
    assert detection(tables[0].take(np.arange(49)), tables[1], 0) is None


def test_a_dependence_gives_away_what_no_column_does_alone() -> None:
    random = np.random.default_rng(0)
    columns = (ComparedColumn("a", "number"), ComparedColumn("b", "number"))
    one = random.normal(size=(900, 1))
    real = SampledRows(columns, np.concatenate([one, one], axis=1))
    told = detection(SampledRows(columns, random.normal(size=(900, 2))), real, 0)
    assert told is not None
    assert told.score < 0.3
    assert all(abs(column.alone - 0.5) < 0.1 for column in told.columns)


@pytest.mark.parametrize("classes", [2, 3])
def test_usefulness_is_what_scikit_learn_calculates(classes: int) -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, classes, 300).astype(float)
    raw = random.random((300, classes)) + 0.7 * (truth[:, None] == np.arange(classes))
    chances = raw / raw.sum(1, keepdims=True)
    asked = {float(k): chances[:, k] for k in range(classes)}
    worked = useful._classified(truth, asked, 1.0 if classes == 2 else None)
    guess = chances.argmax(1)
    if classes == 2:
        expected = roc_auc_score(truth == 1, chances[:, 1]), f1_score(truth, guess)
    else:
        expected = (
            roc_auc_score(truth, chances, multi_class="ovr"),
            f1_score(truth, guess, average="macro"),
        )
    assert (worked.auc, worked.f1) == pytest.approx(expected)
    other = truth + random.normal(size=300)
    assert useful._r2(truth, other) == pytest.approx(r2_score(truth, other))


def test_what_cannot_be_learned_from_made_rows_is_of_no_use() -> None:
    random = np.random.default_rng(0)
    columns = (ComparedColumn("x", "number"), ComparedColumn("k", "label", ("a", "b")))

    def table(shuffled: bool) -> SampledRows:
        x = random.normal(size=800)
        k = (x > 0.5).astype(float)
        return SampledRows(
            columns, np.stack([x, random.permutation(k) if shuffled else k], 1)
        )

    own = useful.usefulness(table(True), table(False), table(False), columns[1], 0)
    assert isinstance(own, useful.Usefulness)
    assert (own.target, own.task, own.positive, own.rows) == ("k", "class", "b", 800)
    assert own.made.auc is not None
    assert own.real.auc is not None
    assert own.made.auc < 0.7 < 0.99 < own.real.auc


def test_a_number_is_predicted_with_the_share_of_its_variance() -> None:
    found = mx.report(RULES, people(300, 0), people(300, 1), target="gross")
    assert isinstance(found.usefulness, useful.Usefulness)
    assert found.usefulness.task == "number"
    assert found.usefulness.made.r2 is not None
    assert found.usefulness.made.r2 > 0.9
    assert found.usefulness.made.auc is None


def test_pairs_are_what_scikit_learn_and_scipy_calculate() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=400)
    table = {
        "x": x,
        "y": np.round(x + random.normal(size=400), 1),
        "k": [f"{int(v > 0)}" + "ab"[int(v > 1)] for v in x],
        "z": [None if v > 1 else float(v**2) for v in x],
    }
    rows = rows_of(table)
    codes = _coded([rows.values], rows.columns)[0]
    nmi = mutual_information(codes)
    rho = correlations(rows.values, rows.columns)
    for i, j in product(range(4), range(4)):
        own = normalized_mutual_info_score(codes[:, i], codes[:, j])
        assert nmi[i, j] == pytest.approx(own, abs=1e-9)
        if i == j or 2 in (i, j):
            assert np.isnan(rho[i, j])
            continue
        both = np.isfinite(rows.values[:, [i, j]]).all(1)
        expected = spearmanr(rows.values[both, i], rows.values[both, j]).statistic
        assert rho[i, j] == pytest.approx(expected)
    edges = [int((codes[:, 0] == k).sum()) for k in range(1, 11)]
    assert edges == [40] * 10  # ten bins of equally many rows


def test_weighted_nmi_is_nearly_0_without_dependence_where_trend_is_high() -> None:
    random = np.random.default_rng(0)
    columns = tuple(ComparedColumn(name, "number") for name in "abcd")
    values = random.normal(size=(2_000, 4))
    values[:, 1] += values[:, 0]
    real = SampledRows(columns, values)
    alone = SampledRows(columns, np.stack([random.permutation(c) for c in values.T], 1))
    both = pairs(alone, real)
    assert both is not None
    lists = [(own.real, own.made) for own in both.pairs]
    least, most = sum(map(min, lists)), sum(map(max, lists))
    assert both.weighted == pytest.approx(least / most)
    assert both.weighted is not None
    assert both.trend is not None
    assert both.weighted < 0.3 < 0.9 < both.trend
    assert both.pairs[0].columns == ("a", "b")
    same = pairs(real, real)
    assert same is not None
    assert (same.weighted, same.trend) == (1.0, 1.0)


def test_distances_of_columns_are_those_of_scipy_and_of_counting() -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(size=200), random.normal(0.3, 1, 150)
    number = ComparedColumn("x", "number")
    assert distance(number, one, other) == pytest.approx(ks_2samp(one, other).statistic)
    labels = ComparedColumn("k", "label", ("a", "b", "c"))
    left = np.array([0.0, 0, 1, np.nan])
    right = np.array([0.0, 1, 1, 2, 2])
    shares = [Counter(np.nan_to_num(own, nan=9).tolist()) for own in (left, right)]
    keys = {*shares[0], *shares[1]}
    expected = sum(abs(shares[0][k] / 4 - shares[1][k] / 5) for k in keys) / 2
    assert distance(labels, left, right) == pytest.approx(expected)


def test_heaps_are_counted_and_boundaries_are_exact() -> None:
    rules = mx.Rules("x: real; y: real; z: real\nx + y <= z\nx >= 0\nz <= 9")
    random = np.random.default_rng(0)
    real = {
        "x": ["0.1"] * 30 + [f"{v:.3f}" for v in random.random(70)],
        "y": ["0.2"] * 30 + ["1"] * 70,
        "z": ["0.3"] * 30 + [f"{v:.3f}" for v in 2 + random.random(70)],
    }
    own = mx.report(rules, real, real, holdout=real)
    assert Fraction("0.1") + Fraction("0.2") == Fraction("0.3")
    assert [(heap.where, heap.made) for heap in own.tight] == [("x + y == z", 0.3)]
    shares = {(heap.what, heap.where): heap for heap in own.heaps}
    assert shares["x", "0.1"].made == shares["x", "0.1"].real == 0.3
    assert ("x", "0") not in shares  # nobody is there
    missing = {"x": [None] * 100, "y": real["y"], "z": real["z"]}
    nobody = mx.report(
        mx.Rules("x: real?; y: real; z: real\nx + y <= z"), real, missing, holdout=real
    )
    assert nobody.tight[0].made == 0


def test_no_bar_reaches_beyond_the_last_value() -> None:
    days = np.arange(0.0, 700.0)
    kind, bars = _bars(ComparedColumn("day", "date"), days, days[:650])
    assert kind == "histogram"
    assert bars[-1].upper == 699
    assert sum(bar.real for bar in bars) == pytest.approx(1)
    assert all(bar.lower < bar.upper for bar in bars)  # type: ignore[operator]


def test_marks_are_in_the_numbers_of_the_table() -> None:
    marks = marks_of(RULES.specification)
    named = {v.name: [(m.value, m.text, m.is_bound) for m in marks[v]] for v in marks}
    assert named["net"] == [(0.0, "0", True), (100.0, "100", True)]
    assert named["tax"][-1] == (1.0, "1", False)
    assert named["start"][0] == (18262.0, "2020-01-01", True)
    assert named["age"] == [(0, "0", True), (120, "120", True), (18, "18", False)]
    rows = rows_of({"age": list(range(60)) + [0] * 40}, "age: int[0, 120]")
    found = heaps(
        rows, rows, rows, marks_of(mx.Rules("age: int[0, 120]").specification)
    )
    assert [(heap.where, heap.real) for heap in found] == [("0", 0.41)]


def test_the_nearest_row_is_found_and_copies_are_counted() -> None:
    random = np.random.default_rng(0)
    columns = (ComparedColumn("x", "number"), ComparedColumn("k", "label", ("a", "b")))
    parts = [
        np.stack([random.integers(0, 30, 40), random.integers(0, 2, 40)], 1).astype(
            float
        )
        for _ in range(3)
    ]
    for own in parts:
        own[3, 0] = own[5, 1] = np.nan
    places = placed(parts, columns)
    everything = np.concatenate([own[:, 0] for own in parts])
    everything = everything[np.isfinite(everything)]

    def place(value: float) -> float:
        below, same = (everything < value).sum(), (everything == value).sum()
        return float((below + same / 2) / len(everything))

    def apart(one: Any, other: Any) -> float:
        total = 0.0
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            if np.isnan(a) or np.isnan(b):
                total += not (np.isnan(a) and np.isnan(b))
            else:
                total += abs(place(a) - place(b)) if k == 0 else a != b
        return total

    expected = [min(apart(row, other) for other in parts[1]) for row in parts[0]]
    assert nearest(places[0], places[1], columns) == pytest.approx(expected)
    tables = [SampledRows(columns, own) for own in parts]
    copied = nearness(tables[1], tables[1], tables[2])
    assert copied is not None
    assert copied.made_to_learned.copies == 1
    assert copied.share > 0.6
    fresh = nearness(*tables)
    assert fresh is not None
    copies = [apart(row, other) == 0 for row in parts[0] for other in parts[1]]
    there = np.reshape(copies, (40, 40)).any(1).mean()
    assert fresh.made_to_learned.copies == pytest.approx(there)


def test_copies_are_looked_for_among_all_rows(tmp_path: Path) -> None:
    """However few are drawn, and whatever the table holds the cells as; chance is what held-out rows have."""
    random = np.random.default_rng(1)
    frame = pl.DataFrame(random.integers(0, 10**6, (8_000, 3)), schema=["a", "b", "c"])
    frame = frame.with_columns(b=pl.col("b") * 0.01, k=pl.lit("x"))
    learned, held, made = frame[:4_000], frame[4_000:], frame[:200]
    as_texts = made.with_columns(pl.col("b").round(2).cast(pl.String), k=pl.lit(" x"))
    learned[:1_500].write_csv(tmp_path / "0.csv")
    learned[1_500:].write_csv(tmp_path / "1.csv")
    rules = mx.Rules("a: int[0, 1000000]; b: real; c: int[0, 1000000]")
    found = mx.report(rules, tmp_path / "*.csv", as_texts, holdout=held, rows=300)
    own = found.copies
    assert (own.made, own.real, own.are_many) == (1.0, 0.0, True)
    assert (own.made_rows, own.real_rows, own.learned_rows) == (200, 4_000, 4_000)
    assert "copies of rows of the real table        100.0%          0.0%" in str(found)
    assert found.notes[0].startswith("COPIES: 100.0% of the made rows are in the real")
    assert found.nearness is not None
    assert "of the other 3,700 rows of the real table does not" in found.to_html()
    data = json.loads(found.to_json())
    assert data["copies"]["made"] == 1.0
    assert "copies" not in data["nearness"]["made_to_learned"]
    half = pl.concat([made, held[:200]])
    some = mx.report(rules, learned, half, holdout=held[200:], rows=300).copies
    assert (some.made, some.are_many) == (0.5, True)
    twice = pl.concat([learned, learned[:1_000]])
    alone = mx.report(rules, twice, held[:500], rows=300)
    assert (alone.copies.made, alone.copies.real) == (0.0, 0.4)
    assert not alone.copies.are_many
    assert not any("COPIES" in note for note in alone.notes)


def test_copies_are_nearer_to_what_they_were_learned_from() -> None:
    """As many rows of both kinds as there are, however few made ones."""
    random = np.random.default_rng(0)
    columns = (ComparedColumn("x", "number"), ComparedColumn("y", "number"))
    one, other = (SampledRows(columns, random.random((3_000, 2))) for _ in range(2))
    made = one.take(np.arange(2_900, 3_000))
    near = nearness(made, one, other)
    assert near is not None
    assert (near.share, near.rows, near.among) == (1.0, 100, 3_000)
    even = nearness_of_equal_samples(made, one, other)
    assert even is not None
    assert (even.rows, even.among) == (100, 100)
    assert 0.3 < even.share < 0.7


def test_digits_that_mean_nothing_do_not_give_rows_away() -> None:
    """Models count in steps of a last place: a made third has ten digits, a real one sixteen."""
    random = np.random.default_rng(0)
    values = np.array([0.1, 0.25, 1 / 3])
    real = {"x": values[random.integers(0, 3, 3_000)], "y": random.random(3_000)}
    made = {"x": np.round(values, 10)[random.integers(0, 3, 1_000)]}
    made["y"] = np.round(random.random(1_000), 2)
    found = mx.report(mx.Rules("x >= 0"), real, {**made, "y": real["y"][:1_000]})
    told = found.detection.made
    assert told is not None
    assert told.auc < 0.57
    assert any("difference is tiny: x (10)." in note for note in found.notes)
    coarse = mx.report(
        mx.Rules("x >= 0"), real, made
    )  # digits that are missing are seen
    told = coarse.detection.made
    assert told is not None
    assert told.auc > 0.7
    alone = {own.name: own.alone for own in told.columns}
    assert alone["x"] < 0.57


def test_one_column_alone_is_seen_as_sharply_as_all_together() -> None:
    shades = np.repeat([1 / 3, 0.3333333333], 200)
    columns = (ComparedColumn("x", "number"),)
    one, other = (SampledRows(columns, own[:, None]) for own in np.split(shades, 2))
    found = detection(one, other, 0)
    assert found is not None
    assert found.auc == found.columns[0].alone == 1.0


def test_copies_have_no_score_where_nothing_was_held_out() -> None:
    random = np.random.default_rng(0)
    real = pl.DataFrame(random.random((2_000, 3)), schema=["a", "b", "c"])
    found = mx.report(mx.Rules("a >= 0"), real, real)
    told = found.detection.made
    assert told is not None
    assert told.auc < 0.45
    assert told.is_reversed
    assert json.loads(found.to_json())["detection"]["made"]["score"] is None
    assert re.search(r"score \(1: cannot tell\) +–", str(found))
    assert "the same rows are in both tables" in found.to_html()
    assert found.notes[0].startswith("COPIES: 100.0% of the made rows")
    assert "Detection has no score: AUC is" in found.notes[1]
    fresh = mx.report(mx.Rules("a >= 0"), real[:1_000], real[1_000:])
    assert fresh.detection.made is not None
    assert not fresh.detection.made.is_reversed


def test_rows_are_drawn_evenly_and_the_same_whatever_the_blocks(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": range(5_000)})
    frame.write_csv(tmp_path / "one.csv")
    frame.head(1_234).write_csv(tmp_path / "a.csv")
    frame.tail(5_000 - 1_234).write_csv(tmp_path / "b.csv")
    one = sample(tmp_path / "one.csv", 300, 7)
    two = sample([tmp_path / "a.csv", tmp_path / "b.csv"], 300, 7)
    assert one.frame.equals(two.frame)
    assert (one.rows, two.rows) == (5_000, 5_000)
    drawn = np.concatenate(
        [sample(frame, 100, seed).frame["x"].to_numpy() for seed in range(40)]
    )
    counts = np.histogram(drawn, bins=5, range=(0, 5_000))[0]
    assert counts.min() > 700  # of 800; five standard deviations are 127


# --- the report -------------------------------------------------------------------------------------------------------


def test_every_figure_stands_beside_that_of_real_rows(found: QualityReport) -> None:
    assert found.made.counts == mx.check(RULES, people(400, 1, 0.3)).counts
    assert found.data.all_obey == mx.check(RULES, people(600, 0)).all_obey
    assert found.rows == (400, 600, 500)
    told, apart = found.detection.made, found.detection.real
    assert told is not None
    assert apart is not None
    assert (told.rows, apart.rows) == (400, 400)
    assert told.score < apart.score
    assert isinstance(found.usefulness, useful.Usefulness)
    assert found.usefulness.target == "plan"
    own = {figure.column.name: figure.column.kind for figure in found.columns}
    assert own == {
        "age": "number",
        "net": "number",
        "tax": "number",
        "gross": "number",
        "start": "date",
        "seen": "time",
        "pension": "number",
        "town": "label",
        "works": "truth",
        "plan": "label",
    }
    town = next(own for own in found.columns if own.column.name == "town")
    assert len(town.column.labels) > 250  # more than trees tell apart
    assert found.nearness is not None
    assert 0.3 < found.nearness.share < 0.7
    json.loads(found.to_json())


def test_what_breaks_rules_is_counted_in_all_rows_however_few_are_compared() -> None:
    made = people(3_000, 1).with_columns(tax=pl.col("net"))
    found = mx.report(RULES, people(300, 0), made, rows=100)
    assert found.made.counts["tax <= 0.5*net"] == 3_000
    assert found.rows == (100, 100, 100)
    assert "the made table has 3,000 rows: figures are taken from 100" in " ".join(
        found.notes
    )
    assert "No held-out table was given" in found.notes[0]


def test_real_rows_that_break_rules_are_named_or_left_out() -> None:
    real = people(400, 0).with_columns(
        tax=pl.when(pl.col("age") > 80).then(pl.col("net")).otherwise(pl.col("tax"))
    )
    broken = 400 - mx.check(RULES, real).obeying
    assert broken > 20
    made = people(400, 1)
    found = mx.report(RULES, real, made, holdout=real)
    assert f"{broken / 400:.1%} of the real rows break rules" in " ".join(found.notes)
    obeying = mx.report(RULES, real, made, holdout=real, obeying=True)
    assert obeying.rows == (400, 400 - broken, 400 - broken)
    assert "real rows that obey the rules alone" in " ".join(obeying.notes)


ODD: dict[str, tuple[str, Any, Any]] = {
    "one column": ("x >= 0", {"x": range(200)}, {"x": list(range(150)) * 2}),
    "two rows": ("x >= 0", {"x": [1, 2], "k": ["a", "b"]}, {"x": [1, 2], "k": ["a", "a"]}),
    "constant": ("x >= 0", {"x": [1] * 90, "y": [2] * 90}, {"x": [1] * 90, "y": [2] * 90}),
    "more columns": (
        "x >= 0",
        {"x": range(80), "y": range(80)},
        {"x": range(80), "z": range(80)},
    ),
    "empty in made": (
        "x: real?; x >= 0",
        {"x": [1.5, 2.5] * 60, "y": [1, 2, 4] * 40},
        {"x": [None] * 99, "y": [1, 2, 4] * 33},
    ),
    "empty everywhere": (
        "x >= 0",
        {"x": range(60), "y": [None] * 60},
        {"x": range(60), "y": [None] * 60},
    ),
    "text and types": (
        "x >= 0",
        {"x": ["1", "2.5"] * 50, "b": ["0", "1"] * 50},
        {"x": [1.0, 3.5] * 50, "b": [True, False] * 50},
    ),
    "labels beyond declared ones": (
        'k: {"a", "b"}; x: real\nx >= 0',
        {"k": ["a", "b"] * 50, "x": range(100)},
        {"k": ["a", "zz"] * 50, "x": range(100)},
    ),
    "one class in made": (
        "x >= 0",
        {"x": range(100), "k": ["a", "b"] * 50},
        {"x": range(100), "k": ["a"] * 100},
    ),
    "names": (
        "x >= 0",
        {"x": [1, 2] * 50, "name": [f"n{k}" for k in range(100)]},
        {"x": [1, 2] * 50, "name": [f"m{k}" for k in range(100)]},
    ),
    "huge and tiny": (
        "x >= 0",
        {"x": [1e300, 1e-300, 0.0] * 40, "y": [2**62, 1] * 60},
        {"x": [1e299, 1e-300, 5.0] * 40, "y": [2**62, 3] * 60},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_odd_tables_have_a_report(kind: str) -> None:
    rules, real, made = ODD[kind]
    found = mx.report(mx.Rules(rules), real, made)
    balanced(found.to_html())
    json.loads(found.to_json())
    assert str(found)
    reasons = {own.name: own.reason for own in found.left_out}
    expected = {
        "more columns": {"y": "not in the made table", "z": "not in the real table"},
        "empty everywhere": {"y": "all of its cells are empty"},
        "names": {"name": "most of its texts appear once"},
    }.get(kind, {})
    for name, reason in expected.items():
        assert reason in reasons[name]
    if kind == "two rows":
        assert found.detection.made is None
        assert "50 rows" in str(found.usefulness)
    if kind == "one class in made":
        assert found.usefulness == "k has one value alone in the made rows"
    if kind == "text and types":
        assert [own.column.kind for own in found.columns] == ["number", "truth"]


def test_numbers_of_rows_and_times_with_zones() -> None:
    real = people(120, 0).with_columns(
        id=pl.int_range(1, 121), seen=pl.col("seen").dt.replace_time_zone("UTC")
    )
    made = people(100, 1).with_columns(id=pl.int_range(1, 101))
    found = mx.report(RULES, real, made, holdout=real)
    assert [(own.name, own.reason) for own in found.left_out] == [
        ("id", "it numbers the rows")
    ]
    assert "seen" in [own.column.name for own in found.columns]


@pytest.mark.parametrize(
    ("real", "made", "options", "message"),
    [
        ({"x": [1, 2]}, {"y": [1, 2]}, {}, "the made table has no column 'x'"),
        ({"x": []}, {"x": [1]}, {}, "the real table has no rows"),
        ({"x": [1]}, {"x": [1]}, {}, "one row: two halves of it take two"),
        ({"x": [1, 2]}, {"x": [1]}, {"rows": 1}, "rows = 1: figures are taken from 2"),
        ({"x": [-1, -2]}, {"x": [1]}, {"obeying": True}, "no row obeys the rules"),
        (
            {"x": [1, 2], "y": [1, 2]},
            {"x": [1], "y": [1]},
            {"target": "z"},
            "--target z: there is no such column to compare; there are: x, y",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_reported(
    real: Any, made: Any, options: Any, message: str
) -> None:
    with pytest.raises(TableError, match=re.escape(message)):
        mx.report(mx.Rules("x >= 0"), real, made, **options)


def test_nothing_in_common_is_refused() -> None:
    rules = mx.Rules("x: real; x >= 0 or x < 0")
    real = {"x": [None, None], "a": [1, 2]}
    with pytest.raises(TableError, match="no column in common that can be compared: "):
        mx.report(mx.Rules("z: real"), {"a": [1, 2]}, {"b": [1, 2]})
    assert mx.report(rules, real, real).left_out == ()


# --- the page ---------------------------------------------------------------------------------------------------------


class _Balanced(HTMLParser):
    """Every element that is opened is closed, in order; nothing is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert name not in ("src", "onclick", "onload")
            assert name != "href" or (value or "").startswith("data:image/png;base64,")
        assert tag not in ("script", "link", "iframe")
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def balanced(text: str) -> None:
    parser = _Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_is_whole_and_loads_nothing(found: QualityReport) -> None:
    text = found.to_html()
    balanced(text)
    for piece in ("Detection", "Usefulness", "Pairs of columns", "Columns", "Heaps"):
        assert piece in text
    assert text.count("<svg") == len(found.columns) + 4
    assert 'class="bound"' in text
    assert 'class="threshold"' in text


def test_numbers_of_the_page_have_a_minus_and_zero_has_no_sign() -> None:
    shown = [_number(x) for x in (-0.0004, 0.0, -0.25, 1.5, None)]
    assert shown == ["0.000", "0.000", "−0.250", "1.500", "–"]
    assert [_with_minus(f"{x:+.3f}") for x in (-0.0001, 0.011, -0.011)] == [
        "0.000",
        "+0.011",
        "−0.011",
    ]


def test_long_tables_say_how_many_rows_there_are() -> None:
    rows = [[f"row {k}"] for k in range(105)]
    assert "<summary>48 more; there are 105 (all of them" in _table(["x"], rows)
    assert "<summary>8 more</summary>" in _table(["x"], rows[:20])


def test_names_and_labels_are_shown_and_never_obeyed() -> None:
    evil = '<script>alert("1")</script>&'
    real = {evil: [evil, "b"] * 60, "x": range(120)}
    text = mx.report(mx.Rules("x >= 0"), real, real).to_html()
    balanced(text)
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "cells",
    [
        [1e300, -1e300, 1.0, 5e-324],
        [1.7e308, -1.7e308, 1.0, 2.0],
        [2**62, 2**62 + 1, 2**62 + 2, 2**62 + 3],
        [1e306 * k - 5e307 for k in range(100)],
    ],
)
def test_numbers_of_any_size_are_reported(cells: list[float]) -> None:
    count = 200
    table = pl.DataFrame(
        {"x": np.arange(count) % 10, "y": (cells * count)[:count]}, strict=False
    )
    own = mx.report("x: int[0, 9]", table, table[::-1])
    assert json.loads(own.to_json())["usefulness"]
    assert "nan" not in re.sub("<[^>]*aria[^>]*>", "", own.to_html()).lower()


def test_a_picture_is_a_png(tmp_path: Path) -> None:
    import matplotlib.image

    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "p.png").write_bytes(png(pixels))
    read = matplotlib.image.imread(tmp_path / "p.png")
    assert np.array_equal(np.rint(read * 255).astype(np.uint8), pixels)


def test_the_page_in_a_browser(found: QualityReport, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    from test_playground_page import CHROMIUM, FLAGS

    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    found.save(tmp_path / "report.html")
    asked: list[str] = []
    colours = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for scheme, width in (("light", 1280), ("dark", 390)):
            context = browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme=scheme
            )
            page = context.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.goto((tmp_path / "report.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == width
            script = "getComputedStyle(document.body).backgroundColor"
            colours.append(page.evaluate(script))
        browser.close()
    assert {own.partition(":")[0] for own in asked} <= {"file", "data"}
    assert colours == ["rgb(243, 245, 248)", "rgb(13, 17, 23)"]


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    people(200, 0).write_csv(tmp_path / "data.csv")
    people(200, 1).write_parquet(tmp_path / "made.parquet")
    people(200, 2).write_csv(tmp_path / "held.csv")
    (tmp_path / "my.rules").write_text(str(RULES), encoding="utf-8")
    return tmp_path


def run(files: Path, *more: str) -> Any:
    given = [str(files / name) for name in ("data.csv", "made.parquet")]
    rules = ["--rules", str(files / "my.rules")]
    return CliRunner().invoke(app, ["report", *given, *rules, *more])


def test_the_command_writes_page_and_figures(files: Path) -> None:
    page, figures = files / "r.html", files / "r.json"
    held = str(files / "held.csv")
    done = run(files, "-o", str(page), "--json", str(figures), "--holdout", held)
    assert done.exit_code == 0, done.output
    assert "rows that break a rule                       0             0" in done.stdout
    balanced(page.read_text(encoding="utf-8"))
    data = json.loads(figures.read_text(encoding="utf-8"))
    assert data["violations"]["made"]["all_obey"] is True
    assert data["has_holdout"] is True
    assert data["usefulness"]["target"] == "plan"
    assert f"written: {page}" in done.stderr


def test_the_command_says_what_is_wrong(files: Path) -> None:
    people(200, 1).with_columns(tax=pl.col("net")).write_parquet(files / "made.parquet")
    done = run(files, "-o", str(files / "r.html"))
    assert done.exit_code == 1
    assert "note: No held-out table was given" in done.stderr
    done = run(files, "-o", str(files / "r.txt"))
    assert done.exit_code == 2
    assert "the page is written to a file that ends in .html" in done.stderr
    done = run(files, "-o", str(files / "no" / "r.html"))
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
    done = run(files, "-o", str(files / "r.html"), "--json", str(files / "data.csv"))
    assert done.exit_code == 2
    assert "is a table that is read: write to another file" in done.stderr


def test_the_command_writes_over_nothing_that_is_read_or_written(files: Path) -> None:
    page = files / "r.html"
    rules = (files / "my.rules").read_text(encoding="utf-8")
    for name, message in (
        ("my.rules", "holds the rules that are read: write to another file"),
        ("r.html", "would be written twice: write to another file"),
        ("model.mx", "figures are written to a file that ends in .json"),
    ):
        done = run(files, "-o", str(page), "--json", str(files / name))
        assert done.exit_code == 2, name
        assert f"{files / name}" in done.stderr
        assert message in done.stderr
    assert (files / "my.rules").read_text(encoding="utf-8") == rules
    both = [str(files / "*.csv"), str(files / "made.parquet"), "--rules"]
    more = [str(files / "my.rules"), "-o", str(page), "--json", str(files / "held.csv")]
    done = CliRunner().invoke(app, ["report", *both, *more])
    assert "held.csv is a table that is read: write to another file" in done.stderr
    assert not page.exists()


@pytest.mark.parametrize("name", ["README.md", "docs/howto/make_tables.md"])
def test_quick_starts_report_rows_that_were_made_without_a_condition(name: str) -> None:
    text = (Path(__file__).parents[1] / name).read_text(encoding="utf-8")
    made = re.findall(r"^multiplexnet report \S+ (\S+)", text, re.MULTILINE)
    assert made
    for file in made:
        line = re.search(rf"^multiplexnet sample .*-o {file}.*$", text, re.MULTILINE)
        assert line is not None
        assert "--where" not in line.group()
