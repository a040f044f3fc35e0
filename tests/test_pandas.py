"""Tables of pandas: every kind of column, and what is empty in it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import multiplexnet as mx
from multiplexnet.errors import TableError


def checked(rules: str, **columns: Any) -> tuple[list[bool], dict[str, int]]:
    """Which rows obey, and how many cells could not be read, by their reason."""
    report = mx.check(mx.Rules(rules), pd.DataFrame(columns))
    assert report.obeys is not None
    reasons: dict[str, int] = {}
    for cell in report.cells:
        reasons[cell.reason] = reasons.get(cell.reason, 0) + cell.cells
    return report.obeys.tolist(), reasons


def test_numbers_and_numbers_that_may_be_missing() -> None:
    whole = pd.array([1, None, 30, 2], dtype="Int64")
    real = pd.array([1.0, 2.5, None, 2.5], dtype="Float64")
    found = checked("x: real?; n: int[0, 9]?; x <= n", x=real, n=whole)
    assert found == ([True, True, False, False], {"missing": 2})
    plain = checked("x: real; x <= 2", x=[1.0, np.nan, np.inf, 3.0])
    assert plain == ([True, False, False, False], {"missing": 1, "infinite": 1})
    arrow = pd.array([1, None, 3], dtype="int64[pyarrow]")
    assert checked("x: real?; x <= 2", x=arrow) == ([True, True, False], {"missing": 1})


@pytest.mark.parametrize("kind", ["int8", "uint64", "float16", "float32", "object"])
def test_numbers_of_any_width(kind: str) -> None:
    values = pd.Series([1, 2, 3], dtype=kind)
    assert checked("n: int[0, 9]; n <= 2", n=values)[0] == [True, True, False]


def test_large_numbers_keep_their_digits() -> None:
    large = np.array([2**53, 2**53 + 1, 2**63 + 5], dtype="uint64")
    rules = "n: int[0, 10**30]; n <= 9007199254740992"
    assert checked(rules, n=large)[0] == [True, False, False]
    objects = pd.Series([2**53, 2**53 + 1, 10**25], dtype=object)
    assert checked(rules, n=objects)[0] == [True, False, False]


def test_decimals_are_exact() -> None:
    values = [Decimal("0.1") + Decimal("0.2"), Decimal("0.31"), None, Decimal("0.123")]
    found = checked("p: decimal(2)[0, 9]?; p <= 0.3", p=values)
    assert found == ([True, False, True, False], {"missing": 1})
    long = [Decimal("0.3"), Decimal("0.3") + Decimal("1e-40"), Decimal("nan")]
    exact = [long[0], Decimal("0." + "3".ljust(60, "0") + "1"), long[2]]
    assert checked("p: real?; p <= 0.3", p=exact)[0] == [True, False, True]


def test_texts_categories_and_truth_values() -> None:
    label = pd.Categorical(["a", None, "z", "a"])
    text = pd.array(["v", "u", "v", "u"], dtype="string")
    rules = 'c: {"a", "b"}?; s: {"u", "v"}; implies(c == "a", s == "u")'
    assert checked(rules, c=label, s=text) == (
        [False, True, False, True],
        {"missing": 1},
    )
    numbers = pd.Categorical([1, 3, 2])
    assert checked("n: int[0, 9]; n <= 2", n=numbers)[0] == [True, False, True]
    rules = "b: bool?; x: real; implies(b, x <= 1)"
    for truths in (
        pd.array([True, None, False], dtype="boolean"),
        pd.Series([True, pd.NA, False], dtype=object),
        pd.Series(["yes", None, "F"], dtype=object),
    ):
        found = checked(rules, b=truths, x=[2, 2, 2])
        assert found == ([False, True, True], {"missing": 1})


def test_dates_and_times() -> None:
    times = pd.to_datetime(
        ["2024-02-28", "2024-02-29", "2024-03-01 12:00", None], format="ISO8601"
    )
    found = checked('d: date; d >= "2024-02-29"', d=times)
    assert found == ([False, True, False, False], {"missing": 1})  # noon is not a date
    found = checked('d: datetime?; d >= datetime("2024-02-29 00:00:01")', d=times)
    assert found == ([False, False, True, True], {"missing": 1})
    odd = pd.Series(
        [
            pd.Timestamp("2024-03-01 12:00:00.000000001"),
            pd.Timestamp("2024-03-01 12:00"),
        ]
    )
    assert checked("d: datetime; d >= 0", d=odd.astype("datetime64[ns]"))[0] == [
        False,
        True,
    ]
    days = [date(1000, 2, 28), None, date(9999, 3, 1)]
    assert checked('d: date?; d >= "2024-02-29"', d=days)[0] == [False, True, True]
    mixed = pd.Series(
        [date(2024, 3, 1), datetime(2024, 3, 1, 5), "2024-03-02"], dtype=object
    )
    found = checked("d: datetime; d >= 0", d=mixed)
    assert found == ([True, True, True], {})
    zoned = pd.DataFrame({"d": pd.to_datetime(["2024-02-28"], utc=True)})
    with pytest.raises(
        TableError, match=r"zone \(UTC\).*in pandas with \.dt\.tz_localize"
    ):
        mx.check(mx.Rules('d: date; d >= "2024-02-29"'), zoned)


def test_what_is_no_number_is_counted_by_reason() -> None:
    mixed = pd.Series([1, "2.5", 3.5, "q", Decimal("0.1"), True, None], dtype=object)
    found = checked("x: real; x <= 2", x=mixed)
    assert found == (
        [True, False, False, False, True, False, False],
        {"not a number": 2, "missing": 1},
    )
    assert checked("x: real; x <= 2", x=[1j, 2])[1] == {"not a number": 2}
    sparse = pd.arrays.SparseArray([0.0, 0.0, 5.0])
    assert checked("x: real; x <= 2", x=sparse)[0] == [True, True, False]


def test_a_column_that_nobody_asks_for_stands_in_nobody_s_way(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": [1, 5], "note": [10**30, {"a": 1}]},
        index=["first", "second"],
    )
    target = tmp_path / "bad.csv"
    report = mx.check(mx.Rules("x: real; x <= 2"), frame, output=target)
    assert report.counts == {"x <= 2": 1}
    assert target.read_text() == "x,note,breaks\n5,{'a': 1},x <= 2\n"


def test_frames_that_are_no_tables_are_refused() -> None:
    rules = mx.Rules("x: real; x <= 2")
    with pytest.raises(TableError, match=r"a Series of pandas is one column.*to_frame"):
        mx.check(rules, pd.Series([1], name="x"))
    with pytest.raises(TableError, match=r"names of 2 levels: make them one"):
        mx.check(rules, pd.DataFrame({("x", "a"): [1]}))
    with pytest.raises(TableError, match="'x' appears twice: rename one of them"):
        mx.check(rules, pd.DataFrame([[1, 2]], columns=["x", "x"]))
    with pytest.raises(TableError, match=r"has no column 'x' \(did you mean 'X'\?\)"):
        mx.check(rules, pd.DataFrame({"X": [1]}))


def test_rules_are_inferred_from_every_kind_of_column() -> None:
    count = 20
    frame = pd.DataFrame(
        {
            "n": pd.array([1, 2, None] * count, dtype="Int64"),
            "p": [Decimal("1.10"), Decimal("2.25"), None] * count,
            "c": pd.Categorical(["a", "b", None] * count),
            "b": pd.array([True, False, None] * count, dtype="boolean"),
            "day": pd.to_datetime(["2024-01-01", "2024-02-01", None] * count),
            "time": pd.to_datetime(
                ["2024-01-01 10:00", "2024-02-01 09:30", None] * count
            ),
            "zone": pd.to_datetime(
                ["2024-01-01", "2024-02-01", None] * count, utc=True
            ),
        }
    )
    found = mx.infer(frame)
    for line in (
        "n: int[1, 2]?",
        "p: decimal(2)[1.1, 2.25]?",
        'c: {"a", "b"}?',
        "b: bool?",
        'day: date["2024-01-01", "2024-02-01"]?',
        'time: datetime["2024-01-01 10:00:00", "2024-02-01 09:30:00"]?',
    ):
        assert f"\n{line}  # 20 cells are empty" in found.text
    assert found.skipped == (
        'column "zone": times of a zone (UTC), and those of rules have none',
    )
    report = mx.check(found.rules, frame)
    assert report.obeys is not None
    assert report.obeys.all()


def test_a_synthesizer_gives_back_a_frame_of_pandas_as_it_was_given() -> None:
    frame = pd.DataFrame(
        {
            "low": pd.array([1, 2, 3, None] * 10, dtype="Int64"),
            "high": [2.5, 4.25, 5.0, 6.5] * 10,
            "c": pd.Categorical(["a", "b"] * 20),
            "day": pd.to_datetime(["2024-01-01", "2024-02-01"] * 20),
        }
    )
    rules = 'low: int[0, 9]?; high: decimal(2)[0, 9]; c: {"a", "b"}\nlow <= high'
    model = mx.Synthesizer(rules).fit(frame, minutes=0)
    made = model.sample(50)
    assert isinstance(made, pd.DataFrame)
    assert list(made.columns) == list(frame.columns)
    report = mx.check(mx.Rules(rules), made)
    assert report.obeys is not None
    assert report.obeys.all()


def test_periods_and_intervals_are_what_they_are_printed_as() -> None:
    table = pd.DataFrame(
        {
            "x": range(80),
            "month": pd.period_range("2024-01", periods=4, freq="M").repeat(20),
            "part": pd.cut(pd.Series(range(80)), [-1, 40, 80]),
            "span": pd.interval_range(0, 80),
        }
    )
    rules = 'x: int[0, 99]; part: {"(-1, 40]", "(40, 80]"}; iff(part == "(-1, 40]", x <= 40)'
    assert mx.check(rules, table).all_obey
    with pytest.warns(UserWarning, match="'span'"):
        model = mx.Synthesizer(rules).fit(table, minutes=0)
    made = model.sample(50)
    assert mx.check(rules, made).all_obey
    assert set(made["month"]) <= {"2024-01", "2024-02", "2024-03", "2024-04"}
    with pytest.raises(TableError, match="`span` is not a number"):
        mx.Synthesizer("span: real; span >= 0").fit(table, minutes=0)
