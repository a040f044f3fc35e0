"""Model files whose model and rules do not belong together: no row that breaks a rule in the file is handed out."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import multiplexnet as mx
from multiplexnet.errors import RecordError
from multiplexnet.synthesis.drawing.making import Maker, SampleRequest
from multiplexnet.synthesis.drawing.pieces import Order, _answer, pieces
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe
from multiplexnet.tools.synthesis_commands import app

TINY = (Recipe(Shape(4, 8, 1, 4, 0.1), steps=12, batch=64),)
RULES = "low: int[0, 99]; high: int[0, 99]; kind: {'a', 'b'}; low <= high; implies(kind == 'a', high <= 50)"
BELONG = "do not belong together. Do not use it: take another copy of the file"

Forge = Callable[[Callable[[Any], None]], Path]


def table(rows: int = 300) -> pl.DataFrame:
    random = np.random.default_rng(0)
    low = random.integers(0, 50, rows)
    high = low + random.integers(0, 40, rows)
    kind = np.where(high <= 50, random.choice(["a", "b"], rows), "b")
    return pl.DataFrame({"low": low, "high": high, "kind": kind})


def parts_of(model: mx.Synthesizer, path: Path) -> dict[str, bytes]:
    model.save(path)
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def written(path: Path, parts: dict[str, bytes], document: Any) -> Path:
    """A model's file with another document; checksums of zip files fit whatever is written."""
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            own = json.dumps(document).encode() if name == "model.json" else content
            file.writestr(name, own)
    return path


@pytest.fixture(scope="module")
def model() -> mx.Synthesizer:
    return mx.Synthesizer(RULES).fit(table(), recipes=TINY)


@pytest.fixture
def forge(model: mx.Synthesizer, tmp_path: Path) -> Forge:
    """Writes the model with a changed document."""

    def forged(change: Callable[[Any], None]) -> Path:
        parts = parts_of(model, tmp_path / "model.mx")
        document = json.loads(parts["model.json"])
        change(document)
        return written(tmp_path / "forged.mx", parts, document)

    return forged


def without_cascades(document: Any) -> None:
    """The rules are in the file, and nothing that follows them."""
    document["cascades"] = []


def with_swapped_labels(document: Any) -> None:
    """What was drawn as `a` is handed out as `b`."""
    document["variables"][2][2] = ["category", "b", "a"]


WAYS: dict[str, Callable[[mx.Synthesizer, Path], Any]] = {
    "rows": lambda own, _: own.sample(300),
    "where": lambda own, _: own.sample(300, where="high >= 51"),
    "given": lambda own, _: own.sample(given={"high": [20, 60, 70]}),
    "decoded": lambda own, _: own.encoder.decode(
        {"low": [0.0, 1.0, 2.0], "high": [2.0, 2.0, 2.0], "kind": [0.0, 1.0, -1.0]}
    ),
    "processes": lambda own, _: own.sample(300, jobs=2),
    "csv": lambda own, folder: own.sample_to(folder / "x.csv", 300),
    "parquet": lambda own, folder: own.sample_to(folder / "x.parquet", 300),
    "shards": lambda own, folder: own.sample_to(folder / "x", 300),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_that_break_the_rules_in_the_file_are_not_handed_out(
    way: str, forge: Forge, tmp_path: Path
) -> None:
    path = forge(with_swapped_labels)
    forged = mx.Synthesizer.load(path)
    with pytest.raises(RecordError, match=BELONG) as told:
        WAYS[way](forged, tmp_path)
    assert str(told.value).startswith(f"{path} makes rows that break its own rules")
    assert "`implies(kind == 'a', high <= 50)`" in str(told.value)
    assert not list(tmp_path.glob("x/*.parquet"))


def test_rules_that_the_model_does_not_follow_are_found(forge: Forge) -> None:
    forged = mx.Synthesizer.load(forge(without_cascades))
    with pytest.raises(RecordError, match=r"\(row [1-9]\d*: `low <= high`"):
        forged.sample(300)
    for made in (forged.sample(300, where="low >= 3"), forged.sample(given={"low": [40, 3]})):  # fmt: skip
        assert mx.check(forged.rules, made).all_obey  # these are compiled anew


def test_what_workers_say_of_a_file_is_said_of_it(forge: Forge) -> None:
    path = forge(without_cascades)
    learned = mx.Synthesizer.load(path)._known()
    order = Order.of(Maker(learned, 0, None))
    (piece,) = pieces(SampleRequest(300, 0))
    sent = pickle.loads(pickle.dumps((order, piece)))
    with pytest.raises(RecordError, match=BELONG) as told:
        _answer(sent)
    back = pickle.loads(pickle.dumps(told.value))
    assert type(back) is RecordError
    assert str(back).startswith(f"{path} makes rows that break its own rules")


def test_values_outside_their_range_are_found(forge: Forge) -> None:
    def beyond(document: Any) -> None:
        document["cascades"][0]["ranges"][1] = [200, 200]
        document["cascades"][0]["steps"][1]["clauses"] = []

    forged = mx.Synthesizer.load(forge(beyond))
    with pytest.raises(RecordError, match="`high` is not in its range"):
        forged.sample(300)


def test_whatever_is_changed_in_cascades_rows_obey_or_are_refused(
    model: mx.Synthesizer, tmp_path: Path
) -> None:
    parts = parts_of(model, tmp_path / "model.mx")
    document = json.loads(parts["model.json"])
    random = Random(3)
    refused = 0
    for _ in range(60):
        text = json.dumps(document["cascades"])
        places = [k for k, sign in enumerate(text) if sign.isdigit()]
        place = random.choice(places)
        text = text[:place] + str(random.randrange(10)) + text[place + 1 :]
        try:
            changed = {**document, "cascades": json.loads(text)}
            path = written(tmp_path / "forged.mx", parts, changed)
            made = mx.Synthesizer.load(path).sample(200)
        except json.JSONDecodeError:
            continue
        except RecordError:
            refused += 1
            continue
        assert mx.check(RULES, made).all_obey
    assert refused > 10


def test_what_was_written_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "multiplexnet.synthesis.drawing.pieces.pieces.__defaults__", (600,)
    )
    rules = "x: int[0, 3999]; x != 1234"
    rows = np.random.default_rng(0).integers(0, 4_000, 400)
    rare = mx.Synthesizer(rules).fit({"x": rows[rows != 1234]}, recipes=TINY)
    parts = parts_of(rare, tmp_path / "model.mx")
    document = {**json.loads(parts["model.json"]), "cascades": []}
    path = written(tmp_path / "forged.mx", parts, document)
    for name, read in (("x.csv", pl.read_csv), ("x.parquet", pl.read_parquet)):
        out = tmp_path / name
        command = ["sample", str(path), "-n", "60000", "-o", str(out), "--seed", "2"]
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 2
        said = " ".join(answer.output.split())
        assert BELONG in said
        found = read(out)
        assert f"({found.height:,} of 60,000 rows, which obey, are in" in said
        assert found.height >= 600
        assert mx.check(rules, found).all_obey


def test_decimals_that_rules_bind_stay_decimals_in_nullable_columns_of_pandas() -> None:
    random = np.random.default_rng(0)
    net = random.integers(1, 90, 300)
    tax = random.integers(1, 90, 300)
    cents = {"net": net, "tax": tax, "gross": net + tax}
    rows = pd.DataFrame({name: own / 100 for name, own in cents.items()})
    rules = "net: real; tax: real; gross: real; net + tax == gross"
    own = mx.Synthesizer(rules).fit(rows.convert_dtypes(), recipes=TINY)
    made = own.sample(200)
    assert isinstance(made, pd.DataFrame)
    assert mx.check(rules, made).all_obey


def test_what_could_not_be_read_again_is_not_written(
    model: mx.Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiplexnet.synthesis.storage.LARGEST_DOCUMENT", 1_000)
    with pytest.raises(RecordError, match="bytes, and files have 1,000 at most"):
        model.save(tmp_path / "model.mx")
    assert not list(tmp_path.iterdir())


def test_a_document_of_no_sensible_size_is_refused_at_once(tmp_path: Path) -> None:
    """Millions of records are a few kB in a zip, and take very long to be read."""
    path = tmp_path / "forged.mx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("model.json", b"[" + b"[]," * (12 << 20) + b"[]]")
    begun = perf_counter()
    with pytest.raises(RecordError, match="longer than it can be, 33,554,432 bytes"):
        mx.Synthesizer.load(path)
    assert perf_counter() - begun < 1


# --- rules as they are shown ------------------------------------------------------------------------------------------


SAID = "the text of the rules in the file does not say what the rules do"


def with_text(old: str, new: str) -> Callable[[Any], None]:
    """Other rules for those who read them; what the model is held to stays."""

    def change(document: Any) -> None:
        own = document["declared"]
        own["text"] = own["text"].replace(old, new)
        for rule in own["rules"]:
            rule[0] = rule[0].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("old", "new"),
    [("high <= 50", "high <= 9"), ("int[0, 99]", "int[0, 50]"), ("low <= high;", ""), ("low <= high", "low > < high")],
)  # fmt: skip
def test_rules_that_are_shown_are_those_that_rows_obey(
    old: str, new: str, forge: Forge, tmp_path: Path
) -> None:
    path = forge(with_text(old, new))
    forged = mx.Synthesizer.load(path)
    is_read = "> <" not in new
    said = [own for own in forged.notes if own.startswith(SAID)]
    assert len(said) == is_read
    assert str(forged.rules).splitlines() == [
        "low: int[0, 99]",
        "high: int[0, 99]",
        'kind: {"a", "b"}',
        "low <= high",
        'kind != "a" or high <= 50',
    ]
    made = forged.sample(300)
    assert mx.check(str(forged.rules), made).all_obey
    assert made["high"].max() > 50
    forged.save(tmp_path / "again.mx")
    again = mx.Synthesizer.load(tmp_path / "again.mx")
    assert again.notes == forged.notes
    assert str(again.rules) == str(forged.rules)
    assert again.sample(300).equals(made)


def test_texts_of_single_rules_are_those_that_rows_obey(forge: Forge) -> None:
    def change(document: Any) -> None:
        document["declared"]["rules"][0][0] = "low == high"

    forged = mx.Synthesizer.load(forge(change))
    assert forged.notes[-1].startswith(SAID)
    report = mx.check(forged.rules, {"low": [3], "high": [2], "kind": ["a"]})
    assert report.counts["low <= high"] == 1


SMT = "(declare-const a Real)(declare-const b Real)(assert (<= 0 a b))"


@pytest.mark.parametrize(
    "rules",
    [
        mx.Rules(f"# as it was written\n\n{RULES}"),
        mx.Rules(["a: real?; b: real", "a <= b", "b > 0; implies(a is missing, b < 50)"]),
        mx.Rules.from_ordering("ordering a b\nb - a >= 0"),
        mx.Rules.from_arrays([[1, -1]], [0], names=["a", "b"]),
        mx.Rules.from_smtlib(SMT),
    ],
    ids=["text", "list", "ordering", "arrays", "smtlib"],
)  # fmt: skip
def test_rules_of_models_that_nobody_changed_are_shown_as_they_were_written(
    rules: mx.Rules, tmp_path: Path
) -> None:
    rows = table().with_columns(a="low", b=pl.col("high") + 1, more="low")
    names = [v.name for v in rules.outputs if v.name in rows.columns]
    rows = rows.select([*names, "more"])
    mx.Synthesizer(rules).fit(rows, minutes=0).save(tmp_path / "m.mx")
    loaded = mx.Synthesizer.load(tmp_path / "m.mx")
    assert not any(own.startswith(SAID) for own in loaded.notes)
    again = loaded.rules
    if rules.specification.text in ("", SMT):
        assert str(again).startswith("a: real\nb: real\nmore: real\na ")
        return
    assert str(again) == str(rules)
    texts = [own.text for own in rules.specification.rules]
    assert [own.text for own in again.specification.rules] == texts
