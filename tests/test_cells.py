"""The same cells in every container: one answer, whatever a table is kept in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import multiplexnet as mx
from multiplexnet.errors import TableError

MIDNIGHT = datetime(2024, 5, 1)
NOON = datetime(2024, 5, 1, 12)
MIDNIGHTS: dict[str, Any] = {
    "a list of times": {"d": [MIDNIGHT, NOON]},
    "a list of timestamps": {"d": [pd.Timestamp(MIDNIGHT), pd.Timestamp(NOON)]},
    "an array": {"d": np.array([MIDNIGHT, NOON], dtype="datetime64[us]")},
    "hours": {"d": np.array([MIDNIGHT, NOON], dtype="datetime64[h]")},
    "seconds": {"d": np.array([MIDNIGHT, NOON], dtype="datetime64[s]")},
    "pandas": pd.DataFrame({"d": [MIDNIGHT, NOON]}),
    "objects": pd.DataFrame({"d": pd.Series([MIDNIGHT, NOON], dtype=object)}),
    "dates and times": pd.DataFrame(
        {"d": pd.Series([MIDNIGHT.date(), NOON], dtype=object)}
    ),
    "texts": {"d": ["2024-05-01 00:00:00", "2024-05-01T12:00"]},
}


@pytest.mark.parametrize("table", MIDNIGHTS.values(), ids=MIDNIGHTS)
def test_midnight_is_its_date_and_noon_is_none(table: Any) -> None:
    report = mx.check('d: date\nd == "2024-05-01"', table)
    assert report.obeys is not None
    assert report.obeys.tolist() == [True, False]
    assert not report.cells


def test_months_and_years_are_their_first_days() -> None:
    for unit, first in (("M", "2024-05-01"), ("Y", "2024-01-01")):
        times = np.array(["2024-05-01", "NaT"], dtype=f"datetime64[{unit}]")
        report = mx.check(f'd: date?\nd == "{first}"', {"d": times})
        assert report.obeying == 2
    for odd in (np.array([1], "datetime64[ps]"), np.array([2**62], "datetime64[Y]")):
        with pytest.raises(TableError, match=r"'d': its times .* are no whole micro"):
            mx.check("d: date", {"d": odd})


@pytest.mark.parametrize("first_has_it", [True, False])
def test_times_of_a_zone_are_refused_as_objects_too(first_has_it: bool) -> None:
    times = [datetime(2024, 5, 1, tzinfo=UTC), MIDNIGHT]
    own = times if first_has_it else times[::-1]
    for table in (
        {"d": own},
        {"d": [times[0]]},
        pd.DataFrame({"d": pd.Series(own, dtype=object)}),
        pd.DataFrame({"d": pd.Series([times[0]], dtype=object)}),
    ):
        with pytest.raises(TableError, match="the column of d has times of a zone"):
            mx.check("d: date", table)


def test_categorical_columns_of_dates_and_truth_values_are_read() -> None:
    days = ["2024-05-01", "2024-05-02", None]
    words = ["yes", "no", None]
    for days_type, words_type in (
        (pl.Categorical(), pl.Categorical()),
        (pl.Enum(["2024-05-01", "2024-05-02"]), pl.Enum(["yes", "no"])),
    ):
        table = pl.DataFrame(
            {
                "d": pl.Series(days, dtype=days_type),
                "p": pl.Series(words, dtype=words_type),
            }
        )
        report = mx.check('d: date?; p: bool?\np == (d == "2024-05-01")', table)
        assert (report.obeying, report.rows) == (3, 3)
        assert str(mx.infer(table)).splitlines()[2:4] == [
            'd: date["2024-05-01", "2024-05-02"]?  # 1 cells are empty',
            "p: bool?  # 1 cells are empty",
        ]
    frame = pd.DataFrame({"d": pd.Categorical(days), "p": pd.Categorical(words)})
    assert mx.check("d: date?; p: bool?", frame).obeying == 3


def test_labels_with_blanks_at_an_end_are_found() -> None:
    assert mx.check('c: {" a", "b"}\nc == " a"', {"c": [" a"]}).obeying == 1
    report = mx.check('c: {" a", "b"}', {"c": [" a", " b", "a", "a "]})
    assert report.obeys is not None
    assert report.obeys.tolist() == [True, True, False, False]
    both = mx.check('c: {" a", "a"}\nc == " a"', {"c": [" a", "a", "a "]})
    assert both.obeying == 1


def test_infer_keeps_labels_apart_that_differ_by_blanks() -> None:
    assert 'c: {" a", "a "}\n' in str(mx.infer({"c": [" a", "a "]}))
    assert 'c: {"a", "b"}\n' in str(mx.infer({"c": [" a", "b "]}))


ODD_COLUMNS = {
    "list": pl.Series([[1], None]),
    "array": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2)),
    "struct": pl.Series([{"a": 1}, None]),
    "object": pl.Series([object(), None], dtype=pl.Object),
    "duration": pl.Series([timedelta(1), None]),
}


@pytest.mark.parametrize("column", ODD_COLUMNS.values(), ids=ODD_COLUMNS)
@pytest.mark.parametrize(
    ("rules", "kind"), [('x: {"a"}?', "label"), ("x: real?\nx >= 0", "number")]
)
def test_columns_of_other_types_are_counted_by_reason(
    column: pl.Series, rules: str, kind: str
) -> None:
    report = mx.check(rules, pl.DataFrame({"x": column}))
    assert (report.obeying, report.rows) == (1, 2)
    assert f"of type {column.dtype}, not a {kind}" in [c.reason for c in report.cells]


def test_bytes_are_labels_where_they_are_text() -> None:
    column = pl.Series([b"a", b"\xff", None])
    report = mx.check('x: {"a"}?', pl.DataFrame({"x": column}))
    assert report.obeys is not None
    assert report.obeys.tolist() == [True, False, True]


# --- Arrow ----------------------------------------------------------------------------------------------------------

INTERVALS = pa.array([pa.MonthDayNano([1, 2, 3]), None])


def test_an_arrow_column_that_nobody_asks_for_stands_in_nobodys_way(
    tmp_path: Path,
) -> None:
    table = pa.table({"x": [1.0, -1.0], "span": INTERVALS})
    pa.feather.write_feather(table, tmp_path / "t.feather")
    for own in (table, table.to_reader(), tmp_path / "t.feather"):
        assert mx.check("x: real\nx >= 0", own).obeying == 1
    for own in (table, tmp_path / "t.feather"):
        with pytest.raises(TableError, match=r"'span': .*month_day_nano_interval.*lea"):
            mx.check("span: real\nspan >= 0", own)


@pytest.mark.parametrize(
    "kind", [pa.decimal256(60, 2), pa.decimal256(60, -2), pa.decimal128(30, -2)]
)
def test_decimals_that_polars_does_not_have_are_exact(
    kind: pa.DataType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    number = 12 * 10**25
    numbers = pa.array([Decimal(number), Decimal(number + 100), None], type=kind)
    table = pa.table({"x": numbers})
    pa.feather.write_feather(table, tmp_path / "t.feather")
    owns: list[Any] = [table, tmp_path / "t.feather"]
    if kind.scale > 0:
        pa.parquet.write_table(table, tmp_path / "t.parquet")
        owns.append(tmp_path / "t.parquet")
    for own in owns:
        report = mx.check(f"x: real?\nx <= {number}", own)
        assert report.obeys is not None
        assert report.obeys.tolist() == [True, False, True]
    assert not capfd.readouterr().err


def test_dictionaries_of_arrow_are_labels() -> None:
    table = pa.table({"c": pa.array(["a", "b", None]).dictionary_encode()})
    assert mx.check('c: {"a"}?', table).obeying == 2


# --- names ----------------------------------------------------------------------------------------------------------


def test_a_name_without_quotes_finds_the_column_that_it_was_typed_like() -> None:
    micro = "\u00b5"  # which Python reads as the Greek letter U+03BC
    report = mx.check(f"{micro}: real\n{micro} >= 0", {micro: [1.0, -1.0]})
    assert report.obeying == 1
    both = mx.check(f"{micro}: real\n{micro} >= 0", {micro: [1.0], "\u03bc": [-1.0]})
    assert both.obeying == 0  # the column of exactly that name comes first
