"""The comparison of makers of tables: its tables come from its lines, and its simple methods do what they say."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import table_methods
import table_pages
from table_methods import (
    cart,
    discrete,
    factorised,
    places,
    rejected,
    repaired,
    shielded,
)
from table_sets import RULES, TARGETS, TableSet, obeying, table_set

import multiplexnet as mx
from multiplexnet.language.formula import variables


def small() -> TableSet:
    random = np.random.default_rng(0)
    low = random.integers(0, 50, 400)
    share = np.round(random.random(400), 2)
    frame = pl.DataFrame(
        {
            "low": low,
            "high": low + random.integers(0, 9, 400),
            "share": share,
            "kind": np.where(low > 25, "a", "b"),
        }
    )
    rules = mx.Rules(
        'low: int[0, 99]; high: int[0, 99]; share: real; kind: {"a", "b"}\n'
        'low <= high\nimplies(kind == "a", low > 25)\nshare <= 1'
    )
    return TableSet("small", rules, "kind", frame.head(300), frame.tail(100), (0, 0))


def test_one_tree_a_column_draws_values_of_rows_in_the_same_leaf() -> None:
    own = small()
    made = cart(5)(own, 0, 1.0).draw(2_000)
    assert made.schema == own.train.schema
    for name in own.train.columns:
        assert set(made[name]) <= set(own.train[name])
    wrong = made.filter((pl.col("low") > 25) != (pl.col("kind") == "a"))
    assert wrong.height < 20
    alone = factorised(own, 0, 1.0).draw(2_000)
    assert obeying(own.rules, alone).height < 1_500


def test_rows_are_rejected_or_moved_into_the_rules() -> None:
    own = small()
    draw = factorised(own, 0, 1.0).draw
    for variant in (rejected, repaired):
        made = variant(own, draw, 300)
        assert made.height == 300
        assert mx.check(own.rules, made).all_obey
        assert made.schema == own.train.schema
    assert {v.name for v in discrete(own).outputs} == set(own.train.columns)
    assert places(pl.Series([0.5, 0.25])) == 2


def test_columns_that_no_rule_mentions_are_moved_into_their_range() -> None:
    rules = mx.Rules("a: int[0, 9]; b: int[0, 9]; free: int[1, 99]; a <= b")
    train = pl.DataFrame({"a": [0, 1, 2], "b": [1, 5, 9], "free": [1, 40, 99]})
    own = TableSet("own", rules, "b", train, train, (0, 0))
    made = pl.DataFrame({"a": [5, 0], "b": [1, 3], "free": [-3, 120]})
    moved = repaired(own, lambda _: made, 2)
    assert mx.check(rules, moved).all_obey
    assert moved["free"].to_list() == [1, 99]


def test_ends_of_decimals_are_written_in_their_places() -> None:
    column = pl.Series("share", [0.7238805970000001, 0.25])
    assert (
        table_methods._declaration("share", column)
        == "share: decimal(9)[0.250000000, 0.723880597]"
    )


def test_rules_that_others_cannot_say_are_named_as_such(tmp_path: Path) -> None:
    own = small()
    with pytest.raises(ValueError, match="know no if-then rules"):
        table_methods.copula(own, 0, 1.0)
    path = tmp_path / "constraints.txt"
    path.write_text("ordering y_0 y_1\nneg y_0 > 0 or y_1 > 0\n", encoding="utf-8")
    draw = factorised(own, 0, 1.0).draw
    for requirements in (None, path):
        with pytest.raises(ValueError, match="not if-then rules"):
            shielded(replace(own, requirements=requirements), draw, 10)


def test_epochs_of_other_generators_end_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(table_methods, "process_time", lambda: clock[0])
    epochs = table_methods._Epochs(10.0)
    for _ in epochs(range(300), disable=True):
        clock[0] += 3.0
    assert epochs.done == 3
    late = table_methods._Epochs(0.0)
    assert list(late(range(300))) == [0]


def test_tables_are_means_of_lines_and_say_what_failed() -> None:
    line: dict[str, Any] = {
        "set": "x", "rows": 10, "violating": 1, "score": 0.5, "made_auc": 0.4, "real_auc": 0.8, "fit_seconds": 3,
        "rows_per_second": 2_000, "budget_minutes": 0.5,
    }  # fmt: skip
    lines: list[dict[str, Any]] = [
        {**line, "method": "b"},
        {**line, "method": "b", "score": 0.7, "violating": 3},
        {**line, "method": "a", "score": 0.9},
        {**line, "method": "b", "score": 0.95, "budget_minutes": 10.0},
        {
            "set": "x",
            "method": "c",
            "budget_minutes": 0.5,
            "error": "ValueError: no | yes",
        },
        {**line, "set": "y", "method": "d"},
    ]
    rows = table_pages.table(lines, "x").splitlines()
    assert rows[0].startswith(
        "|  | minutes | rows that violate | detection score | AUC over real"
    )
    assert rows[2].startswith("| b | 10 | 10.00% | 0.950 |")
    assert rows[3].startswith("| a | 0.5 | 10.00% | 0.900 | 0.500 | – |")
    assert rows[4].startswith("| b | 0.5 | 20.00% | 0.600 |")
    assert rows[4].endswith("| 3 | 2,000 | – | 2 |")
    assert rows[5].startswith("| c | 0.5 | ValueError: no / yes |")
    assert len(rows) == 6


def test_the_page_has_a_table_for_every_data_set() -> None:
    text = table_pages.PAGE.read_text(encoding="utf-8")
    assert all(text.count(f"<!-- tables: {name} -->") == 1 for name in TARGETS)


def test_draws_of_one_model_are_judged_by_rows_kept_apart() -> None:
    pytest.importorskip("xgboost")
    import tables_apart

    whole = small()
    own = tables_apart.parted(replace(whole, train=whole.train.with_row_index("row")))
    assert (own.train.height, own.held.height) == (225, 75)
    assert not set(own.train["row"]) & set(own.held["row"])

    own = tables_apart.parted(whole)
    alone = factorised(own, 0, 1.0)
    found = tables_apart.figures(own, alone, 3, by_column=True)
    assert found["score"][0] < 0.6 < found["replaced_score"][0]
    assert found["real_score"][0] > 0.8
    assert found["alone"]["kind"]["made"][0] > 0.8
    assert "log_likelihood" not in found


def test_the_rules_of_adult_are_read() -> None:
    rules = mx.Rules.load(RULES / "adult.rules")
    assert len(rules.specification.rules) == 24


@pytest.mark.parametrize("name", TARGETS)
def test_data_sets_are_split_into_rows_that_obey(name: str) -> None:
    folder = os.environ.get("MULTIPLEXNET_DATA")
    if folder is None:
        pytest.skip("set MULTIPLEXNET_DATA to a folder with tabular/ to run this")
    own = table_set(name, Path(folder))
    assert own.target in own.train.columns
    assert own.train.columns == own.held.columns
    assert mx.check(own.rules, own.held).all_obey
    assert (own.requirements is None) == (name == "adult")
    if own.chains is not None:
        said = {pair for chain in own.chains for pair in pairwise(chain)}
        rules = [rule.formula for rule in own.rules.specification.rules]
        assert {frozenset(pair) for pair in said} == {
            frozenset(v.name for v in variables(rule)) for rule in rules
        }
        for low, high in said:
            assert (own.train[low] < own.train[high]).all()
    shares = {"adult": (3, 1), "heloc": (782, 254), "faults": (1, 0)}
    if name in shares:
        assert own.dropped == shares[name]
