"""Types of cells: columns come back in those that were given, and what cannot be learned is said in plain words."""

from __future__ import annotations

import json
import warnings
import zipfile
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import multiplexnet as mx
from multiplexnet.errors import (
    MultiplexError,
    OptionError,
    RecordError,
    RuleSyntaxError,
    TableError,
)
from multiplexnet.synthesis.growing import grown
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe
from multiplexnet.tools.report_commands import app

TINY = (Recipe(Shape(4, 8, 1, 4, 0.0), steps=9, batch=64),)
COUNT = 60


def fitted(table: Any, rules: str = "x: int[0, 9]") -> mx.Synthesizer:
    with warnings.catch_warnings(action="ignore"):
        return mx.Synthesizer(rules).fit(table, recipes=TINY)


def typed() -> pl.DataFrame:
    k = np.arange(COUNT)
    moments = [datetime(2024, 1, 1, 0, int(i) % 30) for i in k]
    labels = [["b", "a"][i % 2] for i in k]
    whole = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
    return pl.DataFrame(
        {
            "x": k % 10,
            **{str(dtype()): pl.Series(k % 7, dtype=dtype) for dtype in whole},
            "holes": pl.Series([None if i % 3 else int(i % 4) for i in k], dtype=pl.Int16),
            "short": pl.Series((k % 9) / 10, dtype=pl.Float32),
            "whole floats": (k % 9) * 1.0,
            "category": pl.Series(labels, dtype=pl.Categorical),
            "enum": pl.Series(labels, dtype=pl.Enum(["b", "c", "a"])),
            "ms": pl.Series(moments, dtype=pl.Datetime("ms")),
            "us": pl.Series(moments, dtype=pl.Datetime("us")),
            "ns": pl.Series(moments, dtype=pl.Datetime("ns")),
            "day": [date(2024, 1, 1 + int(i) % 20) for i in k],
            "decimal": pl.Series([f"{i % 9}.{i:02}" for i in k]).cast(pl.Decimal(10, 2)),
            "truth": k % 2 == 0,
            "id": pl.Series(k + 1, dtype=pl.Int32),
        }
    )  # fmt: skip


def test_columns_come_back_in_the_types_that_were_given(tmp_path: Path) -> None:
    table = typed()
    model = fitted(table)
    made = model.sample(200)
    assert made.schema == table.schema
    model.save(tmp_path / "m.mx")
    again = mx.Synthesizer.load(tmp_path / "m.mx").sample(200)
    assert again.schema == table.schema
    assert again.equals(made)
    assert np.isfinite(model.log_prob(table)).all()
    codes = model.encoder.encode(table)
    assert model.encoder.decode(codes).equals(table)


def test_a_type_that_does_not_hold_the_range_is_not_taken() -> None:
    """Short floats leave out whole numbers beyond 2^24, and rules bind these."""
    low = np.arange(COUNT) * 2 + 2**25
    table = pl.DataFrame({"low": low, "high": low + 2}).cast(pl.Float32)
    limits = f"int[0, {2**26}]"
    rules = f"low: {limits}; high: {limits}; low + 1 <= high; high <= low + 3"
    made = fitted(table, rules).sample(300)
    assert set(made.dtypes) == {pl.Int64}
    assert mx.check(rules, made).all_obey


def test_labels_beyond_an_enum_come_back_as_texts() -> None:
    table = pl.DataFrame({"x": ["a", "b"] * 30}, schema={"x": pl.Enum(["a", "b"])})
    made = fitted(table, 'x: {"a", "b", "c"}').sample(300)
    assert made["x"].dtype == pl.String


def test_types_of_pandas_come_back(tmp_path: Path) -> None:
    labels = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    table = pd.DataFrame(
        {
            "x": [1, 2, 3] * 20,
            "whole": pd.Series([1, None, 3] * 20, dtype="Int32"),
            "number": pd.Series([1.5, None, 3] * 20, dtype="Float64"),
            "truth": pd.Series([True, None, False] * 20, dtype="boolean"),
            "text": pd.Series(["a", "b", None] * 20, dtype="string"),
            "order": pd.Series(["low", "high", "low"] * 20, dtype=labels),
            "short": np.array([1.5, 2, 3] * 20, dtype=np.float32),
            "arrow": pd.Series([1, 2, 3] * 20, dtype="int32[pyarrow]"),
            "time": pd.to_datetime(["2024-01-01", "2024-02-01", "2024-03-01"] * 20),
        }
    )
    model = fitted(table)
    made = model.sample(50)
    assert made.dtypes.to_dict() == table.dtypes.to_dict()
    model.save(tmp_path / "m.mx")
    again = mx.Synthesizer.load(tmp_path / "m.mx").sample(50)
    pd.testing.assert_frame_equal(again, made)


@pytest.mark.parametrize(
    "types",
    [
        ["Int8"],
        ["List(Int8)"],
        [["Enum", "a"]],
        [["Decimal", 99, 98]],
        [3],
        ["Int64", "Int64"],
        {},
    ],
)
def test_a_file_with_types_that_do_not_fit_is_refused(
    types: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.mx"
    fitted(pl.DataFrame({"x": [0, 300] * 30}), "x: int[0, 300]").save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    document = json.loads(parts["model.json"])
    assert document["types"] == ["Int64"]
    document["types"] = types
    parts["model.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    with pytest.raises(RecordError):
        mx.Synthesizer.load(path)


# --- what cells say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [1, 3, 6, 9])
def test_texts_with_parts_of_seconds_are_times(digits: int) -> None:
    texts = [f"2024-01-01 10:{k:02}:00.{'123456789'[:digits]}" for k in range(COUNT)]
    table = pl.DataFrame({"x": [1, 2] * 30, "t": texts})
    with pytest.warns(UserWarning, match="'t' is rounded to whole seconds"):
        model = mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY)
    assert isinstance(model.sample(3)["t"].dtype, pl.Datetime)
    assert np.isfinite(model.log_prob(table)).all()


def test_rules_see_parts_of_seconds_in_texts() -> None:
    rules = 't: datetime["2024-01-01 00:00:00", "2024-01-01 00:00:10"]; t <= "2024-01-01 00:00:05"'
    cells = ["2024-01-01T00:00:05.000", "2024-01-01 00:00:05.000000001"]
    for cell, obeys in zip(cells, (True, False), strict=True):
        assert mx.check(rules, {"t": [cell]}).all_obey is obeys
    typed = pl.Series(["2024-01-01 00:00:05.5"]).str.to_datetime()
    assert not mx.check(rules, pl.DataFrame({"t": typed})).all_obey
    far = {"t": ["1500-01-01 00:00:00", "2024-01-01 00:00:05.1234567"]}
    report = mx.check(rules, far)
    assert report.obeying == 0


def test_times_of_a_zone_are_named() -> None:
    times = [datetime(2024, 1, 1, k % 20) for k in range(COUNT)]
    table = pl.DataFrame({"x": [1, 2] * 30, "when": times})
    table = table.with_columns(pl.col("when").dt.replace_time_zone("UTC"))
    with pytest.raises(TableError, match="column of when has times of a zone"):
        mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY)


def test_numbers_that_floats_leave_out_are_refused() -> None:
    table = {"x": [2**60 + k for k in range(COUNT)]}
    with pytest.raises(TableError, match="'x' holds a number of 19 digits"):
        mx.Synthesizer(f"x: int[0, {2**61}]").fit(table, recipes=TINY)


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> mx.Synthesizer:
    table = {
        "age": [20, 30, 40] * 20,
        "sex": ["F", "M", "F"] * 20,
        "who": [f"p{k}" for k in range(COUNT)],
    }
    return fitted(table, "age: int[0, 99]")


@pytest.mark.parametrize("count", [2.5, "5", True, -1])
def test_a_number_of_rows_is_a_whole_number(model: mx.Synthesizer, count: Any) -> None:
    with pytest.raises(OptionError, match="a number of rows, at least 0"):
        model.sample(count)


@pytest.mark.parametrize("seed", [1.5, "1", None, True, 2**63])
def test_a_seed_is_a_whole_number(model: mx.Synthesizer, seed: Any) -> None:
    with pytest.raises(OptionError, match=r"seed = .*a whole number"):
        model.sample(3, seed=seed)
    with pytest.raises(OptionError, match=r"seed = .*a whole number"):
        mx.Synthesizer("x: int[0, 9]").fit({"x": [1, 2]}, seed=seed)


@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3)])
def test_whole_numbers_of_numpy_are_seeds(model: mx.Synthesizer, seed: Any) -> None:
    assert model.sample(5, seed=seed).equals(model.sample(5, seed=3))
    table = model.sample(20)
    codes = model.encoder.encode(table, seed=seed)
    assert codes.equals(model.encoder.encode(table, seed=3))


@pytest.mark.parametrize("rules", ["x: int[0, 9]", "s: {'F', 'M'}?; x: int[0, 9]"])
def test_blanks_that_do_not_come_back_are_said(rules: str, tmp_path: Path) -> None:
    said: list[str] = []
    table = pl.DataFrame({"s": [" M", "F", ""] * 20, "x": [1, 2, 3] * 20})
    mx.Synthesizer(rules).fit(table, minutes=0, note=said.append)
    assert said[:2] == [
        "column 's' has blanks around labels, as in ' M': they come back without",
        "column 's' has texts that are blank: they are learned, and come back, as missing",
    ]
    empty = pl.DataFrame({"s": ["M", "F", None] * 20, "x": [1, 2, 3] * 20})
    empty.write_csv(tmp_path / "empty.csv")
    said.clear()
    mx.Synthesizer(rules).fit(tmp_path / "empty.csv", minutes=0, note=said.append)
    assert not said


def test_blanks_that_tell_labels_apart_come_back() -> None:
    said: list[str] = []
    table = pl.DataFrame({"s": [" M", "F", "M"] * 20, "x": [1, 2, 3] * 20})
    own = mx.Synthesizer("x: int[0, 9]").fit(table, minutes=0, note=said.append)
    assert not said
    assert own.sample(given={"s": [" M", "M"]})["s"].to_list() == [" M", "M"]


@pytest.mark.parametrize("name", ["checkpoint", "progress", "note"])
def test_what_fit_cannot_use_is_refused(model: mx.Synthesizer, name: str) -> None:
    wrong: Any = {name: 5}
    with pytest.raises(OptionError, match=f"{name} = 5"):
        mx.Synthesizer("x: int[0, 9]").fit({"x": [1, 2]}, **wrong)
    if name == "progress":
        with pytest.raises(OptionError, match="progress = 5"):
            model.sample(3, **wrong)


def test_a_condition_that_is_a_comment_is_none(model: mx.Synthesizer) -> None:
    for where in ("# age >= 60", "\n # age >= 60\n"):
        with pytest.raises(TableError, match="says nothing: give a condition"):
            model.sample(3, where=where)


def test_nothing_is_filled_in_where_nothing_is_given(model: mx.Synthesizer) -> None:
    with pytest.raises(TableError, match="fill is for the empty cells of a table"):
        model.sample(3, fill=True)


def test_minutes_are_a_number() -> None:
    for minutes in ("3", -1, float("nan"), float("inf"), None):
        with pytest.raises(OptionError, match="minutes = "):
            mx.Synthesizer("x: int[0, 9]").fit({"x": [1, 2]}, minutes=minutes)  # type: ignore[arg-type]


def test_tables_without_rows_have_no_probabilities(model: mx.Synthesizer) -> None:
    nothing = model.sample(0)
    assert model.log_prob(nothing).shape == (0,)
    assert model.sample(given=nothing.select("age")).schema == nothing.schema
    with pytest.raises(TableError, match="no rows: there is nothing to learn from"):
        mx.Synthesizer("age: int[0, 99]").fit(nothing)


def test_a_condition_on_an_unknown_column_names_those_there_are(
    model: mx.Synthesizer,
) -> None:
    with pytest.raises(RuleSyntaxError) as found:
        model.sample(3, where="agee >= 40")
    assert "did you mean `age`?" in str(found.value)
    assert "columns of the table: age, sex" in str(found.value)
    assert "declare" not in str(found.value)
    with pytest.raises(RuleSyntaxError, match="'who' is not learned"):
        model.sample(3, where='who == "p1"')
    with pytest.raises(OptionError, match="where = 5"):
        model.sample(3, where=5)  # type: ignore[arg-type]


def test_a_condition_on_what_is_never_missing_advises_nothing_that_cannot_be_done(
    model: mx.Synthesizer,
) -> None:
    with pytest.raises(RuleSyntaxError) as found:
        model.sample(3, where="age >= 40 or sex is missing")
    assert "`sex` was missing in no row of the table" in str(found.value)
    assert "declare" not in str(found.value)


def test_a_column_without_a_name_keeps_it(tmp_path: Path) -> None:
    """As pandas writes its index, numbered anew here; other columns without a name are learned."""
    pd.DataFrame({"x": np.arange(COUNT) % 10}).to_csv(tmp_path / "index.csv")
    labels = pl.DataFrame({"": ["a", "b"] * 30, "x": np.arange(COUNT) % 10})
    for table in (tmp_path / "index.csv", labels):
        own = fitted(table)
        made = own.sample(20)
        assert made.columns == ["", "x"]
        for name in ("made.csv", "made.parquet"):
            own.sample_to(tmp_path / name, 20)
            given = own.sample(given=tmp_path / name)
            assert given.with_columns(pl.col("").cast(made[""].dtype)).equals(made)
    assert own.encoder.decode(own.encoder.encode(made)).equals(made)


def test_a_column_that_is_called_as_a_flag_is_refused_before_it_is_learned() -> None:
    for rules in (
        "x: int[0, 9]?",
        'x: int[0, 9]?; "x is missing": bool',
        "y: int[0, 9]",
    ):
        table = {
            "x": [1, None, 3] * 20,
            "x is missing": [True, False, None] * 20,
            "y": [1, 2, 3] * 20,
        }
        with pytest.raises(TableError, match=r"column 'x is missing' .* rename it"):
            fitted(table, rules)


def test_times_of_a_day_are_read_back_from_text(tmp_path: Path) -> None:
    clock = [time(23, 59, 59), None, time(1, 2, 3)] * 20
    own = fitted(pl.DataFrame({"x": [1, 2, 3] * 20, "clock": clock}))
    made = own.sample(20)
    path = tmp_path / "made.csv"
    own.sample_to(path, 20)
    assert set(pl.read_csv(path)["clock"].drop_nulls()) <= {"23:59:59", "01:02:03"}
    assert own.sample(given=path).equals(made)
    assert np.array_equal(own.log_prob(path), own.log_prob(made))
    with pytest.raises(TableError, match=r"'12:00' .* 01:02:03 to 23:59:59"):
        own.sample(given={"clock": ["12:00"]})


def test_what_a_column_had_is_said_with_all_its_digits() -> None:
    own = fitted({"x": [1, 2, 3] * 20, "pay": [0.01, 1234567.25, 8.5] * 20})
    with pytest.raises(TableError, match=r"0\.01 to 1234567\.25 in steps"):
        own.sample(given={"pay": [1234568.5]})


@pytest.mark.parametrize("library", ["pandas", "arrow", "mapping"])
def test_the_encoder_takes_tables_of_any_kind(
    model: mx.Synthesizer, library: str
) -> None:
    own = model.sample(20, seed=2)
    table: Any = {
        "pandas": own.to_pandas,
        "arrow": own.to_arrow,
        "mapping": own.to_dict,
    }[library]()
    codes = model.encoder.encode(table)
    assert codes.equals(model.encoder.encode(own))
    back = model.encoder.decode(codes.to_pandas())
    assert back.drop("who").equals(own.drop("who"))


def test_what_the_encoder_cannot_read_is_said(model: mx.Synthesizer) -> None:
    own = model.sample(3)
    with pytest.raises(TableError, match="no column 'sex'"):
        model.encoder.encode(own.drop("sex"))
    with pytest.raises(MultiplexError, match="labels = 'x'"):
        model.encoder.encode(own, labels="x")  # type: ignore[arg-type]
    with pytest.raises(TableError, match="is not a table"):
        model.encoder.decode(5)


def test_nan_is_learned_as_missing_and_that_is_said() -> None:
    cells = [1.0, float("nan"), 2.0, None] * 10
    table = pl.DataFrame({"a": cells, "b": [1, 2, 3, 4] * 10})
    told: list[str] = []
    model = mx.Synthesizer("b >= 0").fit(table, minutes=0, note=told.append)
    assert "column 'a' is NaN in 10 rows: they are learned, and come back, as missing" in told  # fmt: skip
    made = model.sample(100)["a"]
    assert made.is_nan().sum() == 0
    assert made.null_count() > 0
    with pytest.warns(UserWarning, match="column 'a' is NaN in 10 rows"):
        mx.Synthesizer("b >= 0").fit(table, minutes=0)


@pytest.mark.parametrize("first", [1825, 2, -50])
def test_years_in_order_are_no_identifiers(first: int) -> None:
    years = np.arange(first, first + 200)
    table = pl.DataFrame({"x": years % 10, "year": years})
    with warnings.catch_warnings(action="error"):
        made = mx.Synthesizer("x: int[0, 9]").fit(table, minutes=0).sample(500)
    assert made["year"].is_between(first, first + 199).all()
    assert made["year"].n_unique() > 100


@pytest.mark.parametrize(
    ("name", "first"), [("n", 0), ("n", 1), ("row", 7), ("id", 1825)]
)
def test_numbers_that_count_the_rows_are_identifiers(name: str, first: int) -> None:
    own = np.arange(first, first + 200)
    table = pl.DataFrame({"x": own % 10, name: own})
    with pytest.warns(UserWarning, match=f"'{name}' has a value of its own"):
        made = mx.Synthesizer("x: int[0, 9]").fit(table, minutes=0).sample(5)
    assert made[name].to_list() == [1, 2, 3, 4, 5]


# --- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        ([f"{k},05 €" for k in range(COUNT)], "0,05 €"),
        ([f"{k}.234,5" for k in range(COUNT)], "0.234,5"),
        ([f"$1,{100 + k}.50" for k in range(COUNT)], "$1,100.50"),
        ([f"{k} %" if k % 2 else f"{k}" for k in range(COUNT)], "1 %"),
    ],
)
def test_numbers_that_are_written_otherwise_are_no_identifiers(
    cells: list[str], shown: str
) -> None:
    table = pl.DataFrame({"x": np.arange(COUNT) % 10, "cost": cells})
    with pytest.warns(UserWarning, match="write them as 1234.5, without units") as told:
        model = mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY)
    found = f"its cells are numbers that are not read, as {shown!r}"
    assert f"'cost' is left out: {found}" in str(told[0].message)
    assert model.sample(3).columns == ["x"]


@pytest.mark.parametrize(
    "cells",
    [[f"{k:05}" for k in range(COUNT)], [f"c-{k}" for k in range(COUNT)], [f"10.0.0.{k}" for k in range(COUNT)]],
)  # fmt: skip
def test_identifiers_are_no_numbers_that_are_written_otherwise(
    cells: list[str],
) -> None:
    table = pl.DataFrame({"x": np.arange(COUNT) % 10, "who": cells})
    assert fitted(table).sample(3).columns == ["x", "who"]


@pytest.mark.parametrize("declared", ["real", "int[0, 9]", "bool", "{'a', 'b'}", "decimal(2)[0, 9]"])  # fmt: skip
@pytest.mark.parametrize("what", ["Object", "Binary", "List", "Struct", "Duration", "Time"])  # fmt: skip
def test_a_declared_column_that_cannot_be_read_is_named(
    declared: str, what: str
) -> None:
    every = {
        "Object": pl.Series([Fraction(k, 3) for k in range(COUNT)], dtype=pl.Object),
        "Binary": pl.Series([b"\xff"] * COUNT),
        "List": pl.Series([[k] for k in range(COUNT)]),
        "Struct": pl.Series([{"k": k} for k in range(COUNT)]),
        "Duration": pl.Series([timedelta(seconds=k) for k in range(COUNT)]),
        "Time": pl.Series([time(k % 24) for k in range(COUNT)]),
    }
    table = pl.DataFrame({"x": np.arange(COUNT) % 10, "y": every[what]})
    with pytest.raises(TableError, match=r"60 of 60 rows break rules \(`y` (is|has) "):
        mx.Synthesizer(f"x: int[0, 9]; y: {declared}").fit(table, recipes=TINY)


def test_what_is_said_of_many_columns_alike_is_said_once() -> None:
    random = np.random.default_rng(0)
    wide = {f"c{k:03}": random.random(COUNT) for k in range(40)}
    empty = {"none": [None] * COUNT, "x": np.arange(COUNT) % 10}
    said: list[str] = []
    model = mx.Synthesizer("x: int[0, 9]").fit(
        pl.DataFrame({**wide, **empty}), recipes=TINY, note=said.append
    )
    assert len(said) == 2
    assert said[0] == (
        "column 'c000' is rounded to 10 decimal places; the like of 39 more columns: "
        "'c001', 'c002', 'c003', 'c004', 'c005', …"
    )
    assert len(model.notes) == 41
    with pytest.warns(UserWarning, match="column") as told:
        mx.Synthesizer("x: int[0, 9]").fit(
            pl.DataFrame({**wide, **empty}), recipes=TINY
        )
    assert [str(own.message) for own in told] == said


def test_the_command_shows_the_worst_of_many_rules(tmp_path: Path) -> None:
    wide = {f"c{k:03}": np.arange(COUNT) % (k + 2) for k in range(200)}
    pl.DataFrame(wide).write_csv(tmp_path / "wide.csv")
    rules = "\n".join(f"c{k:03}: int[0, 300]\nc{k:03} <= 40" for k in range(200))
    (tmp_path / "my.rules").write_text(rules)
    files = [str(tmp_path / name) for name in ("wide.csv", "my.rules", "model.mx")]
    command = ["fit", files[0], "--rules", files[1], "-o", files[2], "--minutes", "0"]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("\n") < 60
    assert max(map(len, answer.output.splitlines())) < 500
    assert "more: `multiplexnet check` shows them" in answer.output


def test_a_model_is_not_written_over_the_table(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x\n1\n2\n")
    (tmp_path / "my.rules").write_text("x: int[0, 9]")
    command = ["fit", str(path), "--rules", str(tmp_path / "my.rules"), "-o", str(path)]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 2
    assert "is a table that is read: write to another file" in answer.output
    assert path.read_text() == "x\n1\n2\n"


def test_no_command_writes_over_the_rules_that_it_reads(tmp_path: Path) -> None:
    """Not under another name either."""
    table, rules = tmp_path / "data.csv", tmp_path / "my.rules"
    table.write_text("x\n1\n2\n")
    rules.write_text("x: int[0, 9]")
    linked = tmp_path / "other.rules"
    linked.symlink_to(rules)
    for command in (
        ["fit", str(table), "--rules", str(rules), "--minutes", "0", "-o", str(linked)],
        ["sql", str(rules), "--table", "t", "-o", str(linked)],
        ["explain", str(rules), "--plot", str(linked)],
        ["check", str(rules), str(table), "--plot", str(linked)],
    ):
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 2, answer.output
        assert "holds the rules that are read: write to another file" in answer.output
        assert rules.read_text() == "x: int[0, 9]"


def test_times_of_a_day_come_back(tmp_path: Path) -> None:
    """They are learned as seconds, and conditions see seconds."""
    hours = [None if k == 7 else time(k % 20, 0, k % 4) for k in range(COUNT)]
    table = pl.DataFrame({"x": np.arange(COUNT) % 10, "t": hours})
    before = fitted(table)
    before.save(tmp_path / "model.mx")
    for model in (before, mx.Synthesizer.load(tmp_path / "model.mx")):
        made = model.sample(200)
        assert made.schema["t"] == pl.Time
        assert made["t"].null_count() < 200
        late = model.sample(20, where="t >= 36000")["t"]
        assert min(late) >= time(10)
        known = model.sample(given=pl.DataFrame({"t": [time(5), time(6)]}))["t"]
        assert known.to_list() == [time(5), time(6)]
        assert np.isfinite(model.log_prob(table)).all()


def test_times_with_parts_of_seconds_are_left_out() -> None:
    hours = [time(k % 20, 0, 0, k) for k in range(COUNT)]
    table = pl.DataFrame({"x": np.arange(COUNT) % 10, "t": hours})
    with pytest.warns(UserWarning, match="column 't' is left out"):
        model = mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY)
    assert model.sample(3).columns == ["x"]


def test_messages_name_the_file_the_range_and_a_few_labels(tmp_path: Path) -> None:
    days = [date(2020, 1, 1) + timedelta(days=k % 50) for k in range(180)]
    labels = [f"place {k % 90:02}" for k in range(180)]
    table = pl.DataFrame({"x": np.arange(180) % 9, "day": days, "branch": labels})
    model = fitted(table)
    given = pl.DataFrame({"day": [date(2031, 1, 1)]})
    with pytest.raises(TableError, match=r"learned: 2020-01-01 to 2020-02-19$"):
        model.sample(given=given)
    with pytest.raises(
        MultiplexError, match=r'it has "place 00", .*and 78 more'
    ) as told:
        model.sample(3, where='branch == "nonsense"')
    assert len(str(told.value)) < 400
    missing = tmp_path / "none" / "model.mx"
    with pytest.raises(
        FileNotFoundError, match=r"make the folder .*none first"
    ) as no_file:
        model.save(missing)
    assert no_file.value.filename == str(missing)
    codes = model.encoder.encode(table)
    assert model.encoder.decode(codes.to_numpy()).equals(model.encoder.decode(codes))
    with pytest.raises(TableError, match=r"shape \(9, 1\): expected is shape \(N, 3\)"):
        model.encoder.decode(np.zeros((9, 1)))
    with pytest.raises(TableError, match=r"shape \(9, 1\) has no names of columns"):
        model.log_prob(np.zeros((9, 1)))


def test_no_file_is_called_minus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fitted(pl.DataFrame({"x": np.arange(COUNT) % 9})).save("model.mx")
    answer = CliRunner().invoke(app, ["sample", "model.mx", "-n", "3", "-o", "-"])
    assert answer.exit_code == 2
    assert "-: nothing is written to standard output, so name a file" in answer.output
    assert [path.name for path in tmp_path.iterdir()] == ["model.mx"]


def test_columns_of_many_labels_are_learned_without_a_warning() -> None:
    codes = np.arange(40)[:, None]
    with warnings.catch_warnings(action="error"):
        grown(codes, np.arange(40), rows=5, trees=2)
