"""The SQL that is written for Postgres, in a real one: run where ``MULTIPLEXNET_POSTGRES`` says how to reach it.

``initdb -D data && pg_ctl -D data -o '-k /tmp' start`` makes a server, and
``MULTIPLEXNET_POSTGRES='host=/tmp dbname=postgres' pytest tests/test_postgres.py`` asks it.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import multiplexnet as mx
from multiplexnet.tables.sql import Sql

SERVER = os.environ.get("MULTIPLEXNET_POSTGRES", "")
pytestmark = pytest.mark.skipif(
    not SERVER, reason="MULTIPLEXNET_POSTGRES does not say how to reach a Postgres"
)

TEXT = """
"Loan Amount": decimal(2)[0, 500]?; fee: real; n: int[0, 9]; k: int[0, 60] step 5; half: real[0, 9] step 1.5
"on": bool?; plan: {"basic", "it's \\"full\\""}?; start: date["2023-01-01", "2025-12-31"]?; "End": date; w: real[2, 2]
limit: input[0, 100]; price: input[0, 9]
assume price <= limit
fee <= 0.1*"Loan Amount" or plan == "basic"
implies("on", "Loan Amount"/3 + fee >= 8.25)
abs("Loan Amount" - 2.5*fee) <= 90 and not (n in {3, 5})
max(w[0, 0], w[1, 1], fee) <= limit
("Loan Amount" if plan != "basic" else 2*fee - 1/7) <= 60
iff("on", n >= 2) or w[0, 1] < w[1, 0]
sum(w) + "on" <= 22
0 <= "End" - start <= 30 or year(start) == 2023
price*fee <= 20
n % 3 != 2
start is missing or "on" is not missing
plan != "basic" or count(w > 3) <= 2
mean(w) <= 4.6 and norm(w[0], 1) <= 15
"""
TYPES = {
    "Loan Amount": "NUMERIC(12,3)", "fee": "NUMERIC(9,3)", "n": "NUMERIC(4,1)", "k": "BIGINT", "half": "NUMERIC(5,2)",
    "on": "BOOLEAN", "plan": "TEXT", "start": "DATE", "End": "DATE",
    **{f"w_{i}_{j}": "NUMERIC(6,2)" for i in range(2) for j in range(2)},
    "limit": "NUMERIC(6,1)", "price": "SMALLINT",
}  # fmt: skip


def asked(script: str) -> list[list[str]]:
    """What the server answers, as rows of texts."""
    command = ["psql", "-X", "-q", "-t", "--csv", "-v", "ON_ERROR_STOP=1", SERVER]
    said = subprocess.run(
        command, input=script, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    return list(csv.reader(StringIO(said.stdout)))


def drawn(count: int, odd: float = 1.0) -> dict[str, list[Any]]:
    """Rows near the edges of the rules, some cells empty; ``odd``: the share of rows that keep to no domain."""
    chance = random.Random(0)
    first = date(2022, 12, 1)

    def row() -> list[Any]:
        is_odd = chance.random() < odd
        amount = Decimal(chance.randrange(0, 9000)) / 100
        if is_odd and chance.random() < 0.1:
            amount += Decimal("0.001")
        start = first + timedelta(days=chance.randrange(1200))
        cells: list[Any] = [
            amount,
            Decimal(chance.randrange(0, 90)) / 10,
            Decimal(chance.randrange(-2, 21) if is_odd else 8) / 2,
            chance.choice([0, 5, 7, 10, 60, 65] if is_odd else [0, 5]),
            Decimal(chance.choice([0, 15, 30, 10, 90, 105] if is_odd else [15])) / 10,
            chance.random() < 0.5,
            chance.choice(["basic", 'it\'s "full"', "other"][: 3 if is_odd else 2]),
            start,
            start + timedelta(days=chance.randrange(-3, 40)),
        ]
        cells += [Decimal(chance.randrange(0, 80)) / 10 for _ in range(4)]
        cells += [
            Decimal(chance.choice([5, 7, 101] if is_odd else [9])),
            chance.randrange(0, 9),
        ]
        return [None if chance.random() < 0.05 * is_odd else c for c in cells]

    columns = zip(*(row() for _ in range(count)), strict=True)
    return {name: list(own) for name, own in zip(TYPES, columns, strict=True)}


def table_of(columns: dict[str, list[Any]], types: dict[str, str]) -> str:
    """Statements that make the table, with a column that counts its rows."""
    declared = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    lines = [
        "DROP TABLE IF EXISTS loans;",
        f"CREATE TABLE loans (row BIGINT, {declared});",
    ]
    for k, cells in enumerate(zip(*columns.values(), strict=True)):
        lines.append(
            f"INSERT INTO loans VALUES ({k}, {', '.join(map(_literal, cells))});"
        )
    return "\n".join(lines) + "\n"


def _literal(cell: Any) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, str | date):
        escaped = str(cell).replace("'", "''")
        return f"'{escaped}'"
    return str(cell)


def found_by(constraints: Sequence[Any], made: str) -> dict[str, list[int]]:
    """The rows that each query finds."""
    queries = [
        f"SELECT '{one.name.replace(chr(39), chr(39) * 2)}', row FROM ({one.query}) AS found;"
        for one in constraints
    ]
    found: dict[str, list[int]] = {one.name: [] for one in constraints}
    for name, row in asked(made + "\n".join(queries)):
        found[name].append(int(row))
    return {name: sorted(rows) for name, rows in found.items()}


@pytest.fixture(scope="module")
def script() -> Sql:
    return mx.sql(mx.Rules(TEXT), "loans", dialect="postgres")


def test_postgres_finds_the_rows_that_check_finds(script: Sql) -> None:
    columns = drawn(500)
    rules = mx.Rules(TEXT)
    report = mx.check(rules, columns | {"row": list(range(500))}, missing="pass")
    assert report.breaks is not None
    found = found_by(script.constraints, table_of(columns, TYPES))
    for k, rule in enumerate(report.rules):
        assert found[f"rule_{k + 1}"] == report.breaks[:, k].nonzero()[0].tolist(), (
            rule.rule.text
        )
        assert found[f"rule_{k + 1}"], rule.rule.text
    for domain in report.domains:
        name = f"{domain.variable.name}_domain"
        if name in found:
            assert len(found[name]) == domain.violations, name
            assert domain.violations or domain.variable.name in ("End", "price")
    for cell in report.cells:
        column = (
            cell.variable.name.replace("[", "_").replace(", ", "_").replace("]", "")
        )
        if f"{column}_is_there" in found:
            assert len(found[f"{column}_is_there"]) == cell.cells
    assert found["assumption_1"]


def test_a_table_with_the_checks_takes_exactly_the_rows_that_obey(script: Sql) -> None:
    columns = drawn(400, odd=0.2)
    report = mx.check(mx.Rules(TEXT), columns)
    assert report.obeys is not None
    every = table_of(columns, TYPES)
    lines = every.splitlines()
    tried = [*lines[:2], *script.checks.splitlines()]
    for line in lines[2:]:
        tried.append(
            f"DO $$ BEGIN {line} EXCEPTION WHEN check_violation THEN NULL; END $$;"
        )
    taken = asked("\n".join([*tried, "SELECT row FROM loans ORDER BY row;"]))
    assert [int(row) for (row,) in taken] == report.obeys.nonzero()[0].tolist()
    assert 0 < len(taken) < 400


def test_columns_of_floats_and_of_small_types_are_understood(script: Sql) -> None:
    types = {
        name: "DOUBLE PRECISION" if kind.startswith("NUMERIC") else kind
        for name, kind in TYPES.items()
    }
    types |= {"k": "DOUBLE PRECISION", "n": "SMALLINT", "plan": "VARCHAR(20)"}
    columns = drawn(100)
    columns["n"] = [None if n is None else int(n) for n in columns["n"]]
    columns = {
        name: [float(c) if isinstance(c, Decimal) else c for c in own]
        for name, own in columns.items()
    }
    found_by(script.constraints, table_of(columns, types))
    asked(table_of({name: [] for name in types}, types) + script.checks)


def test_the_command_writes_a_script_that_runs_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "loans.rules"
    path.write_text(TEXT, encoding="utf-8")
    said = subprocess.run(
        [sys.executable, "-m", "multiplexnet", "sql", str(path), "--table", "public.loans", "--dialect", "postgres"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    asked(table_of({name: [] for name in TYPES}, TYPES) + said.stdout)


def test_a_parquet_file_says_the_same(script: Sql, tmp_path: Path) -> None:
    columns = drawn(200)
    frame = pl.DataFrame(
        {
            name: pl.Series(
                own, dtype=pl.Decimal(12, 3) if "NUMERIC" in TYPES[name] else None
            )
            for name, own in columns.items()
        }
    )
    path = tmp_path / "t.parquet"
    frame.write_parquet(path)
    report = mx.check(mx.Rules(TEXT), path, missing="pass")
    found = found_by(script.constraints, table_of(columns, TYPES))
    counts = [len(found[f"rule_{k + 1}"]) for k in range(len(report.rules))]
    assert counts == list(report.counts.values())
