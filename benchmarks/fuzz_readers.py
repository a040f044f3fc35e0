"""What reads, or writes, what a stranger gave: each with the seeds that its inputs are made from."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import fuzz_seeds as seeds
import polars as pl
import torch
from fuzz_mutation import damaged, mutated, mutated_bytes, mutated_json

from multiplexnet.certificate import Certificate
from multiplexnet.certificate.check import checked
from multiplexnet.certificate.document import PARTS, hashes
from multiplexnet.errors import MultiplexError
from multiplexnet.language.formula import Bool, Category, Variable
from multiplexnet.language.text import specification_text
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.smt.smtlib import to_smtlib
from multiplexnet.synthesis.synthesizer import Synthesizer
from multiplexnet.tables.check import CheckOptions, check, check_table
from multiplexnet.tables.inference.infer import infer
from multiplexnet.tables.sql import sql

__all__ = ["Target", "targets"]

SECONDS = 5.0
"""How long a layer may be compiled."""
MOST_TERMS = 64
ROWS = 16


@dataclass
class Target:
    """One reader and the texts that its inputs are made from.

    Args:
        name: of the reader.
        seeds: texts, or plain data.
        change: makes an input from a seed.
        read: gives an input to the reader.
        share: how often it comes up, against the others.
    """

    name: str
    seeds: Sequence[Any]
    change: Callable[[Any, random.Random], Any]
    read: Callable[[Any], object]
    share: int = 1
    runs: int = 0
    read_well: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0


# --- rules ----------------------------------------------------------------------------------------------------------


def _written_again(text: str) -> object:
    """Rules, and the text that is written of them, which has to be read as well."""
    rules = Rules(text)
    if not rules.specification.variables:
        return rules
    written = specification_text(rules.specification)
    try:
        return Rules(written)
    except MultiplexError as error:
        raise AssertionError(f"{written!r} cannot be read: {error}") from None


def _reader_of_files(folder: Path) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        suffix = ".rules"
        if b"(declare" in data:
            suffix = ".smt2"
        elif data.startswith(b"ordering"):
            suffix = ".txt"
        path = (folder / "file").with_suffix(suffix)
        path.write_bytes(data)
        return Rules.load(path)

    return read


def _schema(data: Any, dice: random.Random) -> str:
    text = json.dumps(mutated_json(data, dice))
    return mutated(text, dice) if dice.random() < 0.2 else text


def _reader_of_schemas(folder: Path) -> Callable[[str], object]:
    def read(text: str) -> object:
        path = folder / "schema.json"
        path.write_bytes(text.encode(errors="surrogatepass"))
        return Rules.from_json_schema(path)

    return read


def _arrays(data: Any, dice: random.Random) -> str:
    return json.dumps(mutated_json(data, dice))


def _read_arrays(text: str) -> object:
    """Rules from arrays, and the text that is written of them."""
    given = json.loads(text)
    known = {name: given.get(name) for name in ("A", "b", "C", "d", "names")}
    A, b = known.pop("A"), known.pop("b")
    rules = Rules.from_arrays(A, b, **known)
    return Rules(str(rules))


# --- layers ---------------------------------------------------------------------------------------------------------


def _built(text: str) -> object:
    """A layer; without inputs also some rows, which have to obey."""
    mux = Multiplexer(Rules(text), seconds=SECONDS, max_terms=MOST_TERMS)
    if mux.rules.inputs or mux.rules.specification.functions:
        return mux
    raw = 10 * torch.randn(
        ROWS, mux.in_features, generator=torch.Generator().manual_seed(0)
    )
    x = mux(raw).best()
    if not mux.rules.satisfied(x).all():
        raise AssertionError("a row does not obey")
    return mux


def _forged(data: Any, dice: random.Random) -> Any:
    """A changed certificate, mostly with hashes that fit again."""
    data = mutated_json(data, dice)
    is_whole = isinstance(data, dict) and all(name in data for name in PARTS)
    if dice.random() < 0.7 and is_whole:
        data["sha256"] = hashes(data)
    return mutated(json.dumps(data), dice) if dice.random() < 0.3 else json.dumps(data)


def _read_certificate(text: str) -> object:
    return checked(Certificate.from_json(text.encode(errors="surrogatepass"))).certified


def _state(data: Any, dice: random.Random) -> bytes:
    is_json = dice.random() < 0.8
    changed = mutated_json(data, dice) if is_json else data
    text = json.dumps(changed)
    return (text if is_json else mutated(text, dice)).encode(errors="surrogatepass")


def _read_state(state: bytes) -> object:
    return Multiplexer.from_state(
        {"_extra_state": torch.frombuffer(bytearray(state or b" "), dtype=torch.uint8)}
    )


# --- tables ---------------------------------------------------------------------------------------------------------


def _reader_of_tables(
    folder: Path, name: str, text: str = seeds.RULES_OF_TABLES
) -> Callable[[bytes], object]:
    """Checks a table, prints the report, writes the rows that do not obey and reads them again."""
    specification = Rules(text).specification
    written = folder / "written.parquet"

    def read(data: bytes) -> object:
        path = folder / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        report = check_table(
            specification, path, CheckOptions(output=written, strips=True)
        )
        str(report), report.to_json()
        if pl.read_parquet(written).height != report.rows - report.obeying:
            raise AssertionError("other rows were written than those that do not obey")
        return report

    return read


def _inferring(folder: Path) -> Callable[[bytes], object]:
    """Rules that a table suggests, which can be read, and which the table keeps to as it was said."""

    def read(data: bytes) -> object:
        path = folder / "suggesting.csv"
        path.write_bytes(data)
        found = infer(path)
        try:
            return Rules(found.text)
        except MultiplexError as error:
            raise AssertionError(f"{found.text!r} cannot be read: {error}") from None

    return read


def _changed_model(parts: dict[str, bytes], dice: random.Random) -> bytes:
    """A model's zip file with a damaged part, or a damaged zip file."""
    changed = dict(parts)
    name = dice.choice(list(parts))
    whole = dice.random() < 0.3
    if not whole and dice.random() < 0.7:
        name = "model.json"
    if not whole and name == "model.json" and dice.random() < 0.8:
        changed[name] = json.dumps(
            _forged_model(json.loads(parts[name]), dice)
        ).encode()
    elif not whole:
        changed[name] = damaged(parts[name], dice)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for own, content in changed.items():
            file.writestr(own, content)
    return damaged(buffer.getvalue(), dice) if whole else buffer.getvalue()


def _forged_model(document: Any, dice: random.Random) -> Any:
    """A changed document of a model; often what the model draws in, or the rules, no longer fits the other."""
    part = dice.choice(["cascades", "declared", "variables", "fields", None, None])
    if part is None:
        return mutated_json(document, dice)
    return {**document, part: mutated_json(document[part], dice)}


def _reader_of_models(folder: Path) -> Callable[[bytes], object]:
    """Loads a model and draws rows in each way that there is, which obey the rules in the file."""

    def read(data: bytes) -> object:
        path = folder / "changed.model"
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Synthesizer.load(path)
            made = [
                model.sample(ROWS),
                model.sample(given=model.sample(ROWS)[:, :1]),
                model.encoder.decode({n: [0.0, 2.0] for n in model.encoder.columns}),
            ]
        for table in made:
            if not check(model.rules, table).all_obey:
                raise AssertionError("a row breaks the rules in the file")
        return made

    return read


# --- databases ------------------------------------------------------------------------------------------------------


def _in_databases(text: str) -> object:
    """Rules as SQL, given to databases, which have to understand every line of it."""
    rules = Rules(text)
    sql(rules, "t", dialect="postgres")
    own = [v for v in rules.specification.variables if not v.is_flag]
    with closing(sqlite3.connect(":memory:")) as connection:
        _ask(connection, sql(rules, "t", dialect="sqlite"), [""] * len(own))
    with duckdb.connect() as connection:
        _ask(connection, sql(rules, "t"), [_type(v) for v in own])
    return rules


def _type(variable: Variable) -> str:
    if variable.unit.kind == "date":
        return "DATE"
    if isinstance(variable.domain, Bool):
        return "BOOLEAN"
    return "VARCHAR" if isinstance(variable.domain, Category) else "DOUBLE"


def _ask(connection: Any, script: Any, types: Sequence[str]) -> None:
    """A table with the constraints, and the queries."""
    names = [name.replace('"', '""') for name in script.columns]
    columns = [f'"{name}" {kind}' for name, kind in zip(names, types, strict=True)]
    checks = script.checks.rstrip(",")
    lines = ",\n".join(columns) + (f",\n{checks}" if checks else "")
    if not columns:
        return
    connection.execute(f"CREATE TABLE t ({lines})")
    for constraint in script.constraints:
        connection.execute(constraint.query).fetchall()


# --- all of them ----------------------------------------------------------------------------------------------------


def targets(folder: Path, every: int = 4) -> list[Target]:
    """All readers with their seeds; layers are built of one in ``every`` rules of the corpus."""
    texts, small = seeds.corpus()
    layers = seeds.layers_of(small, every)
    states = [json.loads(bytes(mux.get_extra_state().tolist())) for mux in layers]
    certificates = [json.loads(mux.certificate.to_json()) for mux in layers]
    scripts = [*(to_smtlib(rules.specification) for rules in small), *seeds.SCRIPTS]
    files = [*texts, *scripts, *seeds.ORDERINGS]
    short = [text for text in texts if len(text) < 200]

    def of_tables(name: str) -> Callable[[bytes], object]:
        return _reader_of_tables(folder, name)

    of_kinds = _reader_of_tables(folder, "kinds.csv", seeds.RULES_OF_KINDS)
    return [
        Target("rules", texts, mutated, Rules, share=6),
        Target("words", seeds.WORDS, mutated, _written_again, share=6),
        Target("layer", [*short, *seeds.WORDS], mutated, _built),
        Target("sql", [*short, *seeds.WORDS], mutated, _in_databases, share=2),
        Target("smtlib", scripts, mutated, Rules.from_smtlib, share=2),
        Target("scopes", seeds.SCRIPTS, mutated, Rules.from_smtlib, share=2),
        Target("ordering", seeds.ORDERINGS, mutated, Rules.from_ordering, share=2),
        Target("schema", seeds.SCHEMAS, _schema, _reader_of_schemas(folder), share=2),
        Target("arrays", seeds.ARRAYS, _arrays, _read_arrays, share=2),
        Target("file", files, mutated_bytes, _reader_of_files(folder), share=2),
        Target("csv", seeds.TABLES, mutated_bytes, of_tables("table.csv"), share=2),
        Target("kinds", seeds.OF_KINDS, mutated_bytes, of_kinds, share=2),
        Target("csv.gz", seeds.TABLES, mutated_bytes, of_tables("table.csv.gz")),
        Target(
            "parquet", seeds.parquet_files(), damaged, of_tables("table.parquet"), 2
        ),
        Target("arrow", seeds.arrow_files(), damaged, of_tables("table.arrow"), 2),
        Target(
            "duckdb", seeds.duckdb_files(folder), damaged, of_tables("table.duckdb")
        ),
        Target(
            "sqlite", seeds.sqlite_files(folder), damaged, of_tables("table.sqlite")
        ),
        Target(
            "infer",
            [*seeds.TABLES, *seeds.OF_KINDS],
            mutated_bytes,
            _inferring(folder),
        ),
        Target("certificate", certificates, _forged, _read_certificate, share=3),
        Target("state", states, _state, _read_state, share=3),
        Target(
            "model", seeds.models(folder), _changed_model, _reader_of_models(folder)
        ),
    ]
