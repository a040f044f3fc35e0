"""Tables under rules: every row obeys, probabilities add up, conditions hold, seeds and files give the same rows."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import multiplexnet as mx
from multiplexnet.compiler.cascade import build
from multiplexnet.compiler.cascade.build import Budget
from multiplexnet.errors import (
    CurvedError,
    DenseRulesError,
    RecordError,
    RuleSyntaxError,
    TableError,
)
from multiplexnet.synthesis import synthesizer
from multiplexnet.synthesis.allowed import allowed_by
from multiplexnet.synthesis.drawing import making
from multiplexnet.synthesis.drawing.conditions import Condition
from multiplexnet.synthesis.drawing.counters import uniforms
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe
from multiplexnet.tools.synthesis_commands import app

TINY = (Recipe(Shape(4, 8, 1, 4, 0.0), steps=9, batch=64),)

RULES = """
net: real; tax: real; gross: real
age: int[0, 120]
pension: decimal(1)[0, 500]?
start: date["2020-01-01", "2024-12-31"]; end: date["2020-01-01", "2030-12-31"]
net + tax == gross
tax <= 0.5*net
start <= end
implies(age < 60, pension is missing)
implies(age >= 65, pension is not missing and pension >= age)
"""


def people(count: int = 240) -> pl.DataFrame:
    random = np.random.default_rng(0)
    age = random.integers(17, 90, count)
    net = random.integers(1_000, 9_000, count)
    tax = net // 5
    first = date(2021, 1, 1)
    start = [first + timedelta(int(k)) for k in random.integers(0, 900, count)]
    return pl.DataFrame(
        {
            "age": age,
            "net": net / 100,
            "tax": tax / 100,
            "gross": (net + tax) / 100,
            "sex": random.choice(["F", "M"], count),
            "start": start,
            "end": [day + timedelta(int(k)) for day, k in zip(start, age, strict=True)],
            "seen": [datetime(2024, 1, 1, 8, int(k) % 60) for k in age],
            "pension": [None if a < 62 else a * 1.5 for a in age.tolist()],
        }
    )


@pytest.fixture(scope="module")
def fitted() -> mx.Synthesizer:
    return mx.Synthesizer(RULES).fit(people(), recipes=TINY)


def test_every_row_obeys_in_memory_and_as_it_is_written(
    fitted: mx.Synthesizer, tmp_path: Path
) -> None:
    made = fitted.sample(3_000)
    assert made.columns == people().columns
    assert mx.check(mx.Rules(RULES), made).all_obey
    made.write_csv(tmp_path / "made.csv")
    report = mx.check(mx.Rules(RULES), tmp_path / "made.csv")
    assert (report.rows, report.all_obey) == (3_000, True)
    assert made["gross"].dtype == pl.Decimal(38, 2)
    assert 0 < made["pension"].null_count() < 3_000


def test_probabilities_add_up_to_one() -> None:
    rules = "a: int[0, 3]; b: int[0, 3]; c: {'x', 'y'}?; a + b <= 4; implies(a == 3, c is missing)"
    rows = [(0, 1, "x"), (3, 1, None), (2, 2, "y"), (1, 3, None), (0, 0, "y")] * 8
    table = pl.DataFrame(rows, schema=["a", "b", "c"], orient="row")
    model = mx.Synthesizer(rules).fit(table, recipes=TINY)
    everything = list(product(range(4), range(4), ["x", "y", None]))
    frame = pl.DataFrame(everything, schema=["a", "b", "c"], orient="row")
    found = model.log_prob(frame)
    obeys = np.array([a + b <= 4 and (a < 3 or c is None) for a, b, c in everything])
    assert (np.isfinite(found) == (obeys & (frame["b"].to_numpy() < 4))).all()
    assert np.exp(found).sum() == pytest.approx(1, abs=1e-5)


def test_samples_are_as_frequent_as_their_probabilities_say() -> None:
    rules = "a: int[0, 2]; b: int[0, 2]; a <= b"
    rows = [(0, 0)] * 20 + [(0, 2)] * 10 + [(1, 1)] * 30 + [(2, 2)] * 20
    table = pl.DataFrame(rows, schema=["a", "b"], orient="row")
    model = mx.Synthesizer(rules).fit(table, recipes=TINY)
    made = model.sample(20_000)
    shares = made.group_by("a", "b").len().with_columns(pl.col("len") / 20_000)
    expected = np.exp(model.log_prob(shares))
    assert np.abs(expected - shares["len"].to_numpy()).max() < 0.015


def test_a_condition_shifts_the_columns_before_it() -> None:
    """The last column is asked for; the first, which decides it in the table, has to follow."""
    random = Random(0)
    rows = [(a, a if random.random() < 0.95 else 1 - a) for a in [0] * 150 + [1] * 150]
    table = pl.DataFrame(rows, schema=["a", "b"], orient="row")
    recipe = (Recipe(Shape(8, 16, 1, 4, 0.0), steps=94, batch=64),)
    model = mx.Synthesizer("a: bool; b: bool").fit(
        table.cast(pl.Boolean), recipes=recipe
    )
    made = model.sample(1_000, where="b")
    assert made["b"].all()
    assert made["a"].mean() > 0.8


def test_conditions_hold_together_with_the_rules(fitted: mx.Synthesizer) -> None:
    made = fitted.sample(300, where='age >= 70 and sex == "F" and gross <= 50.5')
    assert made.height == 300
    assert mx.check(mx.Rules(RULES), made).all_obey
    meets = (pl.col("age") >= 70) & (pl.col("sex") == "F") & (pl.col("gross") <= 50.5)
    assert made.filter(meets).height == 300
    with pytest.raises(
        TableError, match="no row within the ranges of the table can meet it"
    ):
        fitted.sample(5, where="age >= 70 and pension is missing")
    with pytest.raises(TableError, match=r"under the rules \(age: \d+ to \d+\)$"):
        fitted.sample(5, where="age >= 119")
    with pytest.raises(RuleSyntaxError, match=r"line 1, column 1: unknown name `agee`"):
        fitted.sample(5, where="agee > 5")


@pytest.mark.parametrize(
    "where",
    ["a == 0.105", "2*b == 1", "b > b", "1 == 2", "a != a", "a == 0.105 and b == 1"],
)
def test_a_condition_that_is_false_whatever_the_row_is_refused(where: str) -> None:
    rows = {"a": [k / 100 for k in range(50)], "b": [0, 1] * 25}
    model = mx.Synthesizer("a: real; b: int[0, 1]; a >= 0; a + b <= 1.5")
    model.fit(rows, minutes=0, recipes=TINY)
    with pytest.raises(TableError, match="can meet it under the rules"):
        model.sample(3, where=where)
    with pytest.raises(TableError, match="can meet it under the rules"):
        model.sample(given=pl.DataFrame({"b": [0, 1]}), where=where)


def test_an_empty_condition_is_refused() -> None:
    rows = {"b": [0, 1] * 25}
    model = mx.Synthesizer("b: int[0, 1]").fit(rows, minutes=0, recipes=TINY)
    with pytest.raises(TableError, match="where is empty"):
        model.sample(3, where=" ")


def test_rows_that_do_not_meet_a_condition_are_not_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the compiler of conditions does: each row is decided once more, exactly."""
    rows = {"b": [0, 1] * 25}
    model = mx.Synthesizer("b: int[0, 1]").fit(rows, minutes=0, recipes=TINY)

    def nothing(_: object, allowed: object, *__: object) -> Condition:
        return Condition(model._known().model.allowed)

    monkeypatch.setattr(making, "condition_of", nothing)
    with pytest.raises(TableError, match="rows were drawn that do not meet it"):
        model.sample(50, where="b == 1")


def test_numbers_that_no_decimal_place_tells_apart_are_refused() -> None:
    for size in (1e-300, 1e-20):
        rows = {"a": [size * k for k in range(50)]}
        with pytest.raises(TableError, match="'a' holds numbers that are all the same"):
            mx.Synthesizer("a: real").fit(rows, minutes=0, recipes=TINY)


def test_known_columns_are_completed(fitted: mx.Synthesizer) -> None:
    given = pl.DataFrame(
        {"pension": [None, 105.0, 120.0], "gross": [30.5, 40.25, 60.0]}
    )
    made = fitted.sample(given=given)
    assert made["gross"].cast(pl.Float64).to_list() == [30.5, 40.25, 60.0]
    assert made["pension"].to_list() == [None, 105.0, 120.0]
    assert mx.check(mx.Rules(RULES), made).all_obey
    with pytest.warns(
        UserWarning,
        match=r"row 2 \(`implies\(age >= 65, pension is not missing and pension >= age\)`\): left out",
    ):
        some = fitted.sample(given={"age": [30, 80], "pension": [None, None]})
    assert some["age"].to_list() == [30]
    with pytest.raises(
        TableError, match=r"given: row 1, column 'age': '3000' is not among .* 17 to 89"
    ):
        fitted.sample(given={"age": [3_000]})
    with pytest.raises(TableError, match=r"no column 'agee' \(did you mean `age`\?\)"):
        fitted.sample(given={"agee": [3]})


def test_the_same_seed_gives_the_same_rows_whatever_the_block(
    fitted: mx.Synthesizer,
) -> None:
    many = fitted.sample(5_000, seed=3)
    assert fitted.sample(4_100, seed=3).equals(many.head(4_100))
    assert not fitted.sample(100, seed=4).equals(many.head(100))
    where = fitted.sample(600, where="age >= 40", seed=3)
    assert fitted.sample(300, where="age >= 40", seed=3).equals(where.head(300))
    again = mx.Synthesizer(RULES).fit(people(), recipes=TINY)
    assert again.sample(50).equals(fitted.sample(50))


def test_a_saved_model_makes_the_same_rows(
    fitted: mx.Synthesizer, tmp_path: Path
) -> None:
    path = tmp_path / "model.mx"
    fitted.save(path)
    loaded = mx.Synthesizer.load(path)
    assert loaded.sample(100, seed=5).equals(fitted.sample(100, seed=5))
    assert (loaded.log_prob(people()) == fitted.log_prob(people())).all()
    where = "age >= 40 and net <= 50"
    assert loaded.sample(20, where=where).equals(fitted.sample(20, where=where))


def test_damaged_models_end_in_an_error_of_our_own(
    fitted: mx.Synthesizer, tmp_path: Path
) -> None:
    path = tmp_path / "model.mx"
    fitted.save(path)
    whole = path.read_bytes()
    random = Random(1)
    damaged = tmp_path / "damaged.mx"
    for _ in range(40):
        piece = bytearray(whole)
        for _ in range(random.choice([1, 20])):
            piece[random.randrange(len(piece))] = random.randrange(256)
        damaged.write_bytes(
            bytes(piece[: random.choice([len(piece), len(piece) // 2])])
        )
        with suppress(RecordError):  # a byte that nobody reads does no harm
            mx.Synthesizer.load(damaged).sample(3)
    end = (
        whole.rindex(b"PK\x05\x06") + 16
    )  # where the list of parts begins, by its own word
    begins = int.from_bytes(whole[end : end + 4], "little") + 10**6
    damaged.write_bytes(whole[:end] + begins.to_bytes(4, "little") + whole[end + 4 :])
    with pytest.raises(RecordError, match="is damaged, or is not a model of tables"):
        mx.Synthesizer.load(damaged)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(damaged, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part.replace(b", }", b",  "))  # the header of an array
    with pytest.raises(RecordError, match="is damaged, or is not a model of tables"):
        mx.Synthesizer.load(damaged)
    with zipfile.ZipFile(damaged, "w") as file:
        file.writestr("model.json", "[1]")
    with pytest.raises(RecordError, match="fit and save the model again"):
        mx.Synthesizer.load(damaged)


def test_parts_of_a_document_that_do_not_fit_are_refused(
    fitted: mx.Synthesizer, tmp_path: Path
) -> None:
    path = tmp_path / "model.mx"
    fitted.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    document = json.loads(parts["model.json"])
    random = Random(2)
    for _ in range(60):
        changed = json.loads(json.dumps(document))
        key = random.choice(sorted(changed))
        changed[key] = random.choice(
            [None, 7, "x", [], [[]], {}, [1, 2], changed["order"][::-1]]
        )
        if changed == document:
            continue
        parts["model.json"] = json.dumps(changed).encode()
        with zipfile.ZipFile(path, "w") as file:
            for name, content in parts.items():
                file.writestr(name, content)
        with pytest.raises(RecordError):
            mx.Synthesizer.load(path)


def saved_as(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)


def places(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in a document."""
    if at:
        yield at
    if isinstance(node, list):
        node = dict(enumerate(node))
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*at, key))


def under(node: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        node = node[key]
    return node


def test_whatever_is_changed_in_a_document_it_is_refused_or_rows_are_made(
    fitted: mx.Synthesizer, tmp_path: Path
) -> None:
    path = tmp_path / "model.mx"
    fitted.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    document = json.loads(parts["model.json"])
    ways = list(places(document))
    junk: list[Any] = [
        None,
        True,
        -1,
        10**30,
        1.5,
        "",
        "1/0",
        [],
        {},
        [1, 2],
        float("inf"),
    ]
    random = Random(5)
    refused = 0
    for _ in range(150):
        changed = json.loads(json.dumps(document))
        way = random.choice(ways)
        others = [*junk, under(document, random.choice(ways))]
        under(changed, way[:-1])[way[-1]] = random.choice(others)
        saved_as(path, {**parts, "model.json": json.dumps(changed).encode()})
        try:
            own = mx.Synthesizer.load(path)
            made = own.sample(3)
        except RecordError:
            refused += 1
            continue
        assert mx.check(own.rules, made).all_obey
    assert 100 < refused < 150


@pytest.mark.parametrize(
    ("way", "value", "message"),
    [
        (("further", "rows"), float("inf"), "cannot convert float infinity"),
        (("fields", 0, 5), "label", "a column of the kind 'label' that is another"),
        (("fields", 1, 4), "1/7", "a column that is not counted in steps"),
        (("fields", 0, 4), "1/10", "a column of the kind 'int' in steps of 1/10"),
        (("ranges", 0), [-5, 1000], "a range that '.*' does not have"),
    ],
)
def test_parts_that_would_fail_when_rows_are_drawn_are_refused_at_once(
    fitted: mx.Synthesizer,
    tmp_path: Path,
    way: tuple[Any, ...],
    value: object,
    message: str,
) -> None:
    path = tmp_path / "model.mx"
    fitted.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    document = json.loads(parts["model.json"])
    under(document, way[:-1])[way[-1]] = value
    saved_as(path, {**parts, "model.json": json.dumps(document).encode()})
    with pytest.raises(RecordError, match=message):
        mx.Synthesizer.load(path)


def test_rows_that_break_rules(tmp_path: Path) -> None:
    table = pl.DataFrame({"a": [1, 2, 9, 3] * 10, "b": [2, 2, 5, 4] * 10})
    rules = "a: int[0, 9]; b: int[0, 9]; a <= b"
    with pytest.warns(
        UserWarning,
        match=r"10 of 40 rows break rules \(`a <= b` by 10, first in row 3\)",
    ):
        model = mx.Synthesizer(rules).fit(table, recipes=TINY)
    assert model.report is not None
    assert model.report.counts == {"a <= b": 10}
    with pytest.raises(TableError, match="violations='drop' or 'repair'"):
        mx.Synthesizer(rules).fit(table, recipes=TINY, violations="error")
    with pytest.warns(UserWarning, match="moved to the nearest values that obey"):
        mended = mx.Synthesizer(rules).fit(table, recipes=TINY, violations="repair")
    assert mx.check(mx.Rules(rules), mended.sample(500)).all_obey
    with pytest.raises(TableError, match="no row is left to learn from"):
        mx.Synthesizer("a: int[0, 9]; a == 0").fit(table, recipes=TINY)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ((3, 2), (3, 3)),
        ((3, 200), (3, 100)),
        ((30, 10), (10, 10)),
        ((2.6, 50), (3, 50)),
    ],
)
def test_repair_moves_cells_as_little_as_it_can(
    cells: tuple[float, float], expected: tuple[int, int]
) -> None:
    """Whatever the rows that obey reach."""
    table = {"x": [1, 2] * 20 + [cells[0]] * 20, "y": [3, 2] * 20 + [cells[1]] * 20}
    rules = "x: int[0, 100]; y: int[0, 100]; x <= y"
    with pytest.warns(UserWarning, match="moved to the nearest values that obey"):
        model = mx.Synthesizer(rules).fit(table, recipes=TINY, violations="repair")
    made = set(model.sample(300).rows())
    assert expected in made
    with pytest.warns(UserWarning, match="left out"):
        mx.Synthesizer(rules).fit(table, recipes=TINY)


@pytest.mark.parametrize("rule", ["x**2 + y**2 <= 1", "norm([x, y]) <= 1"])
def test_curved_rules_are_refused_at_once_as_they_were_written(rule: str) -> None:
    table = {"x": [0.1, 0.2, 0.3] * 20, "y": [0.25, 0.5, 0.1] * 20}
    with pytest.raises(CurvedError) as caught:
        mx.Synthesizer(f"x: real; y: real; {rule}").fit(table, recipes=TINY)
    assert f"`{rule}`" in str(caught.value)
    assert "rules of tables are flat" in str(caught.value)
    assert "structure" not in str(caught.value)


def test_curved_conditions_are_refused_with_advice_that_fits() -> None:
    table = {"x": [0.1, 0.2, 0.3] * 20, "y": [0.25, 0.5, 0.1] * 20}
    model = mx.Synthesizer("x: real; y: real").fit(table, recipes=TINY)
    with pytest.raises(CurvedError) as caught:
        model.sample(5, where="x**2 + y**2 <= 1")
    assert "`x**2 + y**2 <= 1`" in str(caught.value)
    assert "conditions on tables are flat" in str(caught.value)
    assert "structure" not in str(caught.value)


def test_decimals_in_floats_are_decimals() -> None:
    """0.1 + 0.2 is no 0.3 in floats; the rows say so in decimals and are kept."""
    table = pl.DataFrame(
        {"a": [0.1, 0.2, 0.7] * 8, "b": [0.2, 0.1, 0.1] * 8, "c": [0.3, 0.3, 0.8] * 8}
    )
    rules = "a: real; b: real; c: real; a + b == c"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = mx.Synthesizer(rules).fit(table, recipes=TINY)
    assert mx.check(mx.Rules(rules), model.sample(200)).all_obey


def test_columns_that_cannot_be_learned_are_named() -> None:
    table = pl.DataFrame(
        {"id": [f"p{k}" for k in range(120)], "n": [1, 2] * 60, "x": [0.1 / 3] * 120}
    )
    with pytest.warns(UserWarning, match="column") as told:
        model = mx.Synthesizer("n: int[1, 2]").fit(table, recipes=TINY)
    assert str(told[0].message).startswith("column 'id' has a value of its own")
    assert model.sample(3)["id"].to_list() == ["p1", "p2", "p3"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("n: int[0, 9]; u: input; n <= u", "declare it as a column, as in `u: real`"),
        ("n: int[0, 9]; m: int[0, 9]; n <= m", "has no column 'm'"),
    ],
)
def test_rules_that_do_not_fit_the_table(rules: str, message: str) -> None:
    with pytest.raises(TableError, match=message.replace("[", r"\[")):
        mx.Synthesizer(rules).fit({"n": [1, 2, 3]}, recipes=TINY)


DENSE = mx.Rules("""
    a: real; b: real; c: real; d: real
    3*a + 5*b - 7*c + 2*d <= 9; 5*a - 3*b + 2*c - 7*d <= 8; 2*a + 7*b + 3*c - 5*d >= -3
    3*a - 2*b + 4*c + d >= 5; a == b or b == c or c == d
""")


def dense_rows() -> pl.DataFrame:
    every = pl.DataFrame(
        list(product(range(8), repeat=4)), schema=list("abcd"), orient="row"
    )
    return every.filter(np.asarray(mx.check(DENSE, every).obeys))


def test_rules_that_cannot_be_written_down_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "WRITTEN", 2)
    with pytest.raises(DenseRulesError, match="no model can be fitted") as caught:
        mx.Synthesizer(DENSE).fit(dense_rows(), minutes=0)
    assert "are more than 2 clauses" in str(caught.value)
    assert "mx.Multiplexer(rules).repair(rows)" in str(caught.value)
    assert "order=" not in str(caught.value)


def test_rules_that_are_too_dense_to_be_projected_are_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tight = partial(allowed_by, budget=Budget(clauses=2))
    monkeypatch.setattr(synthesizer, "allowed_by", tight)
    with pytest.warns(UserWarning, match="too densely to be projected"):
        model = mx.Synthesizer(DENSE).fit(dense_rows(), minutes=0, recipes=TINY)
    assert mx.check(DENSE, model.sample(500)).all_obey


def test_choices_that_no_rule_ties_to_others_come_last() -> None:
    towns = ", ".join(f'"town {k}"' for k in range(11))
    rules = mx.Rules(f"""
        risk: bool; kind: {{"a", "b", "c"}}?; town: {{{towns}}}; half: int[4, 5]; paid: bool; age: int[0, 120]
        implies(paid, age >= 18)
    """)
    order = allowed_by(rules.specification).columns
    assert [column.name for column in order] == [
        "town",
        "paid",
        "age",
        "kind is missing",
        "kind",
        "risk",
        "half",
    ]


def test_nothing_learned_yet() -> None:
    with pytest.raises(TableError, match="call fit"):
        mx.Synthesizer("x: int[0, 3]").sample(3)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiplexnet.synthesis.synthesizer.RECIPES", TINY)
    rules = tmp_path / "my.rules"
    rules.write_text(RULES)
    people(80).write_csv(tmp_path / "data.csv")
    run = CliRunner()
    model = str(tmp_path / "model.mx")
    told = [
        "fit",
        str(tmp_path / "data.csv"),
        "--rules",
        str(rules),
        "-o",
        model,
        "--minutes",
        "0",
    ]
    answer = run.invoke(app, told)
    assert answer.exit_code == 0, answer.output
    for name in ("out.csv", "out.parquet"):
        out = tmp_path / name
        answer = run.invoke(
            app, ["sample", model, "-n", "500", "-o", str(out), "--where", "age < 50"]
        )
        assert answer.exit_code == 0, answer.output
        report = mx.check(mx.Rules(RULES + "\nage < 50"), out)
        assert (report.rows, report.all_obey) == (500, True)
    answer = run.invoke(
        app, ["sample", str(rules), "-n", "5", "-o", str(tmp_path / "x.csv")]
    )
    assert answer.exit_code == 2
    assert "not a model of tables" in answer.output


def test_seeds_and_rows_do_not_change_places() -> None:
    """Row 1 of seed 0 is not row 0 of seed 1, and row s of seed s is not the same for all s."""
    first = {seed: uniforms(seed, 0, 50, 1)[0].tolist() for seed in range(50)}
    assert len({number for numbers in first.values() for number in numbers}) == 2_500


# --- kinds ------------------------------------------------------------------------------------------------------------


def test_columns_of_every_kind_are_learned_without_rules_about_them() -> None:
    count = 900
    random = np.random.default_rng(1)
    labels = [f"town {k:03}" for k in range(300)]
    heap = np.where(random.random(count) < 0.4, 0, random.integers(1, 10**6, count))
    table = pl.DataFrame(
        {
            "flag": random.random(count) < 0.3,
            "town": random.choice(labels, count),
            "heap": heap,
            "code": random.choice([-9, 1, 2, 3], count),
            "share": random.integers(0, 101, count) / 100,
            "day": [date(2020, 1, 1) + timedelta(int(k) % 300) for k in heap],
            "when": [datetime(2020, 1, 1) + timedelta(seconds=int(k)) for k in heap],
            "maybe": [None if k % 3 == 0 else k % 7 for k in range(count)],
            "n": [1, 2] * (count // 2),
        }
    )
    model = mx.Synthesizer("n: int[1, 2]").fit(table, recipes=TINY)
    made = model.sample(2_000)
    assert made.schema == table.schema
    assert 0.3 < (made["heap"] == 0).mean() < 0.5
    assert set(made["code"]) == {-9, 1, 2, 3}
    assert set(made["town"]) <= set(labels)
    assert 0.2 < made["maybe"].null_count() / 2_000 < 0.5
    assert np.isfinite(model.log_prob(table)).all()


def test_what_the_rules_fix_is_said_before_learning() -> None:
    said: list[str] = []
    rules = "a: int[0, 9]; b: int[0, 18]; c: int[0, 9]; b == 2*a; c == 3"
    rows = pl.DataFrame({"a": [1, 2, 3] * 9, "b": [2, 4, 6] * 9, "c": [3] * 27})
    model = mx.Synthesizer(rules).fit(rows, recipes=TINY, note=said.append)
    assert any("the rules fix" in text for text in said)
    assert model.notes == tuple(said)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("a: int[0, 9]; a >= 7; a <= 3", "these 2 rules contradict each other"),
        ("a: int[0, 9]; a >= 7", "`a >= 7` holds in none"),
        ("a: {'x', 'y'}", "`a` has labels that are not declared"),
        ("a: date['2020-01-01', '2021-01-01']", "`a` is outside its range in 27"),
    ],
)
def test_rules_that_no_row_meets(rules: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mx.Synthesizer(rules).fit({"a": [1, 2, 3] * 9}, recipes=TINY)


def test_a_table_of_which_no_row_obeys_is_repaired_if_it_can_be() -> None:
    rules = mx.Rules("a: real; b: real; c: real; a + b == c")
    k = np.arange(1, 41)
    cents = pl.DataFrame({"a": k / 100, "b": k / 4, "c": (26 * k + 1) / 100})
    with pytest.warns(UserWarning, match="40 of 40 rows break rules .* moved"):
        model = mx.Synthesizer(rules).fit(cents, recipes=TINY, violations="repair")
    assert mx.check(rules, model.sample(200)).all_obey
    with (
        pytest.warns(UserWarning, match="40 of 40 rows break rules"),
        pytest.raises(TableError, match="within the ranges of its columns"),
    ):
        mx.Synthesizer(rules).fit(
            cents.with_columns(c=pl.lit(99)), recipes=TINY, violations="repair"
        )
    with pytest.raises(TableError, match="no row is left to learn from"):
        mx.Synthesizer("a: {'x', 'y'}").fit(
            {"a": [1, 2, 3] * 9}, recipes=TINY, violations="repair"
        )


def test_pandas_and_arrow_come_back_as_they_went_in() -> None:
    rows = pl.DataFrame({"a": [1, 2, 3] * 9, "b": ["x", None, "y"] * 9})
    rules = "a: int[0, 9]"
    pandas = rows.to_pandas()
    made = mx.Synthesizer(rules).fit(pandas, recipes=TINY).sample(7)
    assert type(made) is type(pandas)
    arrow = rows.to_arrow()
    assert type(mx.Synthesizer(rules).fit(arrow, recipes=TINY).sample(7)) is type(arrow)


def test_arrays_of_a_model_that_were_changed_are_refused_or_obey(
    fitted: mx.Synthesizer, tmp_path: Path
) -> None:
    """Whatever stands in the arrays: a model that loads makes rows that obey."""
    path = tmp_path / "model.mx"
    fitted.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    names = sorted(name for name in parts if name.endswith(".npy"))
    random = Random(3)
    loaded = 0
    for _ in range(25):
        changed = dict(parts)
        name = random.choice(names)
        content = bytearray(parts[name])
        for _ in range(random.choice([1, 8, 40])):
            content[random.randrange(len(content))] = random.randrange(256)
        changed[name] = bytes(content)
        with zipfile.ZipFile(path, "w") as file:
            for own, content_of in changed.items():
                file.writestr(own, content_of)
        with suppress(RecordError):
            model = mx.Synthesizer.load(path)
            loaded += 1
            assert mx.check(mx.Rules(RULES), model.sample(20)).all_obey
    assert loaded


# --- columns as strangers have them ---------------------------------------------------------------------------------


def test_cents_that_are_declared_come_back_as_decimals() -> None:
    room = np.arange(1, 91) * 11
    table = pl.DataFrame(
        {"room": room / 100, "extra": 0.35, "total": (room + 35) / 100}
    )
    rules = (
        "room: decimal(2)[0, 99]; extra: real[0, 9] step 0.05; total: decimal(2)[0, 99]"
    )
    model = mx.Synthesizer(f"{rules}; room + extra == total")
    made = model.fit(table, recipes=TINY).sample(200)
    assert set(made.dtypes) == {pl.Decimal(38, 2)}
    assert (made["room"] + made["extra"] == made["total"]).all()


def test_words_for_nothing_are_missing_in_columns_that_nobody_declared(
    tmp_path: Path,
) -> None:
    rows = [f"{k % 5},{'NA' if k % 4 == 0 else k % 7},{'nan' if k % 3 == 0 else 2.5}," for k in range(60)]  # fmt: skip
    moments = ["None" if k % 5 == 0 else f"2024-01-01 10:00:0{k % 10}" for k in range(60)]  # fmt: skip
    text = "\n".join(row + own for row, own in zip(rows, moments, strict=True))
    (tmp_path / "t.csv").write_text(f"x,y,z,t\n{text}\n")
    model = mx.Synthesizer("x: int[0, 9]").fit(tmp_path / "t.csv", recipes=TINY)
    made = model.sample(300)
    assert made.dtypes == [pl.Int64, pl.Int64, pl.Float64, pl.Datetime("us")]
    assert all(0 < made[name].null_count() < 150 for name in ("y", "z", "t"))
    assert np.isfinite(model.log_prob(tmp_path / "t.csv")).all()


def test_labels_stay_as_they_are_written() -> None:
    table = pl.DataFrame(
        {
            "x": [0, 1, 2, 3] * 15,
            "side": [" a", "a", "b ", "b"] * 15,
            "none": ["", "k", "", "k"] * 15,
            "zip": ["01234", "00501", "90210", "00501"] * 15,
            "paid": ["Y", "N", "Y", "Y"] * 15,
            "pad": [" one", " two", " one", " two"] * 15,
        }
    )
    rules = 'x: int[0, 9]; side: {" a", "a", "b ", "b"}; none: {"", "k"}'
    model = mx.Synthesizer(rules).fit(table, recipes=TINY)
    made = model.sample(200)
    for name in ("side", "none", "zip", "paid"):
        assert set(made[name]) == set(table[name])
    assert set(made["pad"]) == {"one", "two"}
    assert set(model.sample(50, where='paid == "Y"')["paid"]) == {"Y"}
    undeclared = mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY).sample(200)
    assert set(undeclared["side"]) == set(table["side"])


def test_times_between_seconds_are_rounded_with_a_word() -> None:
    times = [datetime(2024, 1, 1, 0, k % 60, 0, 250_000) for k in range(60)]
    table = pl.DataFrame({"x": [0, 1] * 30, "t": times})
    with pytest.warns(UserWarning, match="'t' is rounded to whole seconds"):
        model = mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY)
    assert np.isfinite(model.log_prob(table)).all()


def test_columns_of_no_kind_are_left_out_with_a_word() -> None:
    table = pl.DataFrame(
        {
            "x": [0, 1] * 30,
            "wait": [timedelta(seconds=k) for k in range(60)],
            "list": [[1, 2]] * 60,
            "pair": [{"a": 1}] * 60,
            "raw": [b"\xff"] * 60,
        }
    )
    with pytest.warns(UserWarning, match="is left out: its cells are neither"):
        model = mx.Synthesizer("x: int[0, 9]").fit(table, recipes=TINY)
    assert model.sample(3).columns == ["x"]


@pytest.mark.parametrize("declared", ["", "; y: real?"])
def test_cells_that_cannot_be_read_are_named(declared: str) -> None:
    table = pl.DataFrame({"x": [0, 1] * 30, "y": [1.5, 2.5, float("inf")] * 20})
    with pytest.warns(
        UserWarning, match=r"20 of 60 rows .*`y` is .*20, first in row 3"
    ):
        mx.Synthesizer("x: int[0, 9]" + declared).fit(table, recipes=TINY)


def test_short_floats_are_the_decimals_that_they_print_as() -> None:
    cents = np.arange(1, 61)
    table = pl.DataFrame({"a": cents / 100, "b": cents / 100 + 1})
    table = table.cast(pl.Float32)
    with warnings.catch_warnings(action="error"):
        made = mx.Synthesizer("a: real; b: real; b == a + 1").fit(table, recipes=TINY)
    assert made.sample(3).dtypes == [pl.Decimal(38, 2)] * 2
