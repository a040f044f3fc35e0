"""Rules that a table suggests: they parse, and the table obeys them as often as their comments say."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

import multiplexnet as mx
from multiplexnet.errors import TableError
from multiplexnet.playground.command import app

ROWS = 3000


def loans() -> pl.DataFrame:
    random = np.random.default_rng(0)
    cents = random.integers(1, 100_000, ROWS)
    fee = random.integers(0, 5_000, ROWS)
    total = cents + fee
    total[:7] += 1
    first = random.integers(0, 50, ROWS)
    plan = random.choice(["basic", "full", "rest"], ROWS)
    months = np.where(plan == "rest", 0, random.integers(1, 60, ROWS))
    return pl.DataFrame(
        {
            "amount": [f"{c / 100:.2f}" for c in cents.tolist()],
            "Late fee": fee / 100,
            "total": [f"{c / 100:.2f}" for c in total.tolist()],
            "first": first,
            "last": first + random.integers(0, 9, ROWS),
            "left": pl.Series(100 - first).set(pl.Series(first == 3), None),
            "plan": plan,
            "months": months,
            "open": random.random(ROWS) < 0.5,
            "noise": random.normal(size=ROWS) * 1e6,
            "opened": [
                date(2024, 1, 1) + timedelta(days=int(k)) for k in first.tolist()
            ],
            "closed": [
                f"2024-0{4 + k % 4}-1{k % 9}" if k % 50 else None for k in range(ROWS)
            ],
            "paid": [
                date(2024, 1, 1) + timedelta(days=2 * int(k)) for k in first.tolist()
            ],
            "who": [f"person {k}" for k in range(ROWS)],
            "blank": pl.Series([None] * ROWS, dtype=pl.String),
        }
    )


def support(text: str) -> dict[str, int]:
    """For every rule of the file how many rows its comment says break it."""
    found = {}
    for line in text.splitlines():
        rule, _, comment = line.partition("  # ")
        if comment == "all rows":
            found[rule] = 0
        elif broken := re.fullmatch(
            r"[\d.]+ % of the rows, broken by ([\d,]+)", comment
        ):
            found[rule] = int(broken[1].replace(",", ""))
    return found


@pytest.fixture(scope="module")
def inferred() -> str:
    return str(mx.infer(loans()))


def test_the_file_declares_what_the_columns_are(inferred: str) -> None:
    lines = [line.partition("  # ")[0] for line in inferred.splitlines()]
    for wanted in (
        "amount: decimal(2)[0.19, 999.94]",
        'opened: date["2024-01-01", "2024-02-19"]',
        "last: int[0, 57]",
        'plan: {"basic", "full", "rest"}',
        "open: bool",
    ):
        assert wanted in lines


def test_ties_between_columns_are_found(inferred: str) -> None:
    found = support(inferred)
    assert found["amount + `Late fee` == total"] == 7
    assert found["first + left == 100"] == 0
    assert found["first <= last"] == 0
    assert found["opened <= paid"] == 0
    assert found['implies(plan == "rest", months == 0)'] == 0
    assert found['implies(months == 0, plan == "rest")'] == 0
    orders = [rule for rule in found if "noise" in rule and "<" in rule]
    assert orders == [
        "-3919360 <= noise <= 3064320"
    ]  # its range, and no order by chance


def test_what_was_skipped_is_said(inferred: str) -> None:
    assert (
        '# skipped: column "who": texts of many kinds, neither numbers nor a few labels'
        in inferred
    )
    assert '# skipped: column "blank": all cells are empty' in inferred


def test_check_reports_what_the_comments_say(inferred: str) -> None:
    report = mx.check(mx.Rules(inferred), loans())
    assert report.counts == support(inferred)
    assert all(domain.violations == 0 for domain in report.domains)
    assert report.obeying == ROWS - 7


def test_a_sample_suggests_and_all_rows_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiplexnet.tables.inference.profile.SAMPLE", 500)
    frame = loans()
    text = str(mx.infer(frame))
    assert "in one row of 8" in text
    assert mx.check(mx.Rules(text), frame).counts == support(text)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": []}, "has no rows"),
        (
            {"who": [f"p{k}" for k in range(99)]},
            "no column holds numbers, truth values or labels",
        ),
    ],
)
def test_tables_that_suggest_nothing(table: Any, message: str) -> None:
    with pytest.raises(TableError, match=message):
        mx.infer(table)


def test_the_command_writes_a_file_that_check_reads(tmp_path: Path) -> None:
    table = tmp_path / "loans.csv"
    loans().write_csv(table)
    rules = tmp_path / "loans.rules"

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    assert run("infer", str(table), "-o", str(rules)).exit_code == 0
    again = run("infer", str(table), "-o", str(rules))
    assert again.exit_code == 2
    assert "is there already: write to another file, or replace it with --force" in (
        again.stderr
    )
    assert run("infer", str(table), "-o", str(rules), "--force").exit_code == 0
    said = run("check", str(rules), str(table), "--json", "--missing", "pass")
    assert said.exit_code == 1, said.stderr
    assert json.loads(said.stdout)["obeying_rows"] == ROWS - 7
    refused = run("infer", str(table), "-o", str(tmp_path / "loans.csv"))
    assert refused.exit_code == 2
    assert "a file that ends in .rules" in refused.stderr


def test_labels_that_count_as_empty_are_named() -> None:
    inferred = str(mx.infer({"plan": ["full", "NA", "basic", "full", "", "n/a"]}))
    assert (
        'plan: {"basic", "full"}?  # 3 cells are empty or say "NA", "n/a"' in inferred
    )


@pytest.mark.parametrize(
    "numbers",
    [
        [10**30, 1],
        [1, 2 * 10**31, 9 * 10**30],
        [10**30],
        [-(10**40), None, 5],
        [2**60 + 7 * i % 300 for i in range(300)],
    ],
)
def test_ranges_of_long_numbers_are_exact(numbers: list[int | None]) -> None:
    there = [number for number in numbers if number is not None]
    inferred = str(mx.infer({"c": numbers}))
    assert f"c: int[{min(there)}, {max(there)}]" in inferred


@pytest.mark.parametrize("is_text", [True, False])
def test_parts_of_seconds_are_rounded_and_not_declared(is_text: bool) -> None:
    start = datetime(2024, 2, 1, 10)
    times = [start + timedelta(seconds=k, milliseconds=7 * k) for k in range(300)]
    table = {
        "t": [str(t) for t in times] if is_text else times,
        "n": [k % 50 for k in range(300)],
    }
    text = str(mx.infer(table))
    assert "t:" not in text
    assert '# skipped: column "t": times with parts of seconds' in text
    assert mx.check(mx.Rules(text), table).all_obey
    with pytest.warns(UserWarning, match="'t' is rounded to whole seconds") as told:
        model = mx.Synthesizer(
            't: datetime["2024-02-01 10:00:00", "2024-02-02"]; t >= "2024-02-01"'
        ).fit(table, minutes=0)
    assert not any("break rules" in str(own.message) for own in told)
    assert model.report is not None
    assert model.report.all_obey
    assert model.sample(20).height == 20


def test_whole_numbers_that_are_not_learned_are_said() -> None:
    numbers = {"few": [2**53 - 1, 0, None], "many": [2**53, 0, None]}
    lines = str(mx.infer(numbers)).splitlines()
    assert "few: int[0, 9007199254740991]?  # 1 cells are empty" in lines
    said = "1 cells are empty; `fit` learns whole numbers below 2^53"
    assert f"many: int[0, 9007199254740992]?  # {said}" in lines


def test_codes_with_leading_zeros_are_labels() -> None:
    written = str(mx.infer({"zip": ["01234", "90210"] * 20, "n": ["0", "10"] * 20}))
    assert 'zip: {"01234", "90210"}' in written
    assert "n: int[0, 10]" in written


def test_numbers_that_are_written_otherwise_are_named() -> None:
    cost = [f"{k},05 €" for k in range(80)]
    found = mx.infer({"x": range(80), "cost": cost})
    assert (
        '# skipped: column "cost": numbers that are not read, as "0,05 €": write them as 1234.5, without units'
        in str(found).splitlines()
    )


def test_values_so_rare_that_no_probed_row_has_them() -> None:
    random = np.random.default_rng(0)
    one, other = random.integers(0, 100, (2, 5_000))
    rare = np.where(np.arange(5_000) == 1_234, 3, 0)
    table = {"one": one, "other": other, "both": one + other, "rare": rare}
    text = mx.infer(table).text
    assert "rare: int[0, 3]" in text
    assert "one + other == both" in text
    rare_alone = mx.infer({"rare": rare, "again": rare}).text
    assert "rare == again" in rare_alone
