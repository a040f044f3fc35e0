"""Numbers with more digits than are learned: no row that obeys is lost because of that, and what is done is said."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import multiplexnet as mx
from multiplexnet.errors import TableError


def fitted(table: Any, rules: str) -> tuple[mx.Synthesizer, list[str], list[str]]:
    """The model, what is warned of, and what is noted."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = mx.Synthesizer(rules).fit(table, minutes=0, note=said.append)
    return model, [str(own.message) for own in told], said


def heavy(rows: int = 600) -> pl.DataFrame:
    random = np.random.default_rng(0)
    x = np.exp(random.normal(0, 6, rows))
    return pl.DataFrame({"k": random.integers(0, 9, rows), "x": x, "y": x / 2})


@pytest.mark.parametrize("kind", ["frame", "file"])
def test_rows_with_small_numbers_beside_large_ones_are_learned(
    kind: str, tmp_path: Path
) -> None:
    table = heavy()
    source: Any = table
    if kind == "file":
        source = tmp_path / "heavy.csv"
        table.write_csv(source)
    rules = "k: int[0, 8]; x: real; y: real; x > 0; y <= x"
    assert mx.check(rules, source).all_obey
    model, told, said = fitted(source, rules)
    assert not told
    assert any("numbers are rounded to the second nearest step" in own for own in said)
    made = model.sample(2_000, seed=1)
    assert mx.check(rules, made).all_obey
    ratio = float(made["x"].cast(float).median()) / float(table["x"].median())  # type: ignore[arg-type]
    assert 0.5 < ratio < 2
    assert np.isfinite(model.log_prob(table)).all()
    assert model.report is not None
    assert model.report.all_obey


def test_one_large_number_throws_no_row_out() -> None:
    random = np.random.default_rng(0)
    reading = random.lognormal(0, 1, 1_000)
    reading[7] = 3.2e13
    model, told, said = fitted({"reading": reading}, "reading > 0")
    assert not told
    assert said[0] == "column 'reading' is rounded to 1 decimal place"
    assert (model.sample(500)["reading"] > 0).all()


def test_shares_near_both_ends_stay_between_them() -> None:
    random = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-random.normal(0, 15, 1_000)))
    q = np.minimum(1 - p, 1 - 1e-16)
    rules = "0 < p <= 1; 0 <= q < 1; p + q <= 1.5"
    table = pl.DataFrame({"p": p, "q": q})
    table = table.filter(pl.Series(np.asarray(mx.check(rules, table).obeys)))
    model, told, _ = fitted(table, rules)
    assert not told
    assert mx.check(rules, model.sample(500)).all_obey


def test_steps_are_coarser_where_sums_of_finer_ones_would_not_be_exact() -> None:
    random = np.random.default_rng(0)
    x = np.exp(random.normal(0, 6, 300))
    table = pl.DataFrame({"k": random.integers(0, 9, 300), "x": x, "y": x / 2})
    rules = "k: int[0, 8]; x: real; y: real; x > 0; y <= x; 1000*x + k >= 2*y"
    model, told, said = fitted(table, rules)
    assert not told
    assert said[0] == "column 'x' is rounded to 2 decimal places"
    assert mx.check(rules, model.sample(300)).all_obey


def test_rows_that_rounding_breaks_do_not_count_as_rows_that_break_rules() -> None:
    """Between 0 and 1e-20 there is a number, and no step."""
    random = np.random.default_rng(0)
    x = random.random(100) + 1
    x[3:5] = 1e-21
    rules = "x: real; x >= 1 or 0 < x < 1e-20"
    model, told, _ = fitted({"x": x}, rules)
    assert len(told) == 1
    assert told[0].startswith(
        "2 of 100 rows, first row 4, obey the rules, and no longer"
    )
    assert "rows break rules" not in told[0]
    assert model.report is not None
    assert model.report.all_obey
    only = {"x": np.append(np.full(50, 1e-21), 1 / 3)}
    with pytest.raises(TableError, match="50 of 51 rows, first row 1, obey"):
        fitted(only, "x: real; 0 < x < 1e-20 or x == 2")


def test_rows_that_break_rules_are_told_from_those_that_rounding_breaks() -> None:
    table = heavy().with_columns(y=pl.when(pl.col("k") == 0).then(-1.0).otherwise("y"))
    _, told, _ = fitted(table, "k: int[0, 8]; x: real; y: real; x > 0; 0 < y <= x")
    broken = int((table["y"] < 0).sum())
    assert len(told) == 1
    assert told[0].startswith(f"{broken:,} of 600 rows break rules (")
    assert f"by {broken}, " in told[0]


def test_a_column_whose_first_cell_is_empty_is_rounded_to_the_second_nearest_step() -> (
    None
):
    x = np.random.default_rng(0).uniform(0.1, 1, 60).tolist()
    table = {"x": [None, 0.49999999999999, *x]}
    said: list[str] = []
    rules = "x: real?\nx < 0.5 or x >= 0.5000000001"
    model = mx.Synthesizer(rules).fit(table, minutes=0, note=said.append)
    assert any("in 1 row numbers are rounded to the second" in text for text in said)
    assert mx.check(rules, model.sample(50, seed=0)).all_obey
