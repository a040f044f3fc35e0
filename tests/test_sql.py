"""Rules in SQL: a database finds the rows that ``check`` finds, and refuses what breaks a rule."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, suppress
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import multiplexnet as mx
from multiplexnet.errors import SqlError, TableError
from multiplexnet.playground.command import app

duckdb = pytest.importorskip("duckdb")

RULES = mx.Rules(
    """
    amount: real; fee: real; total: real; n: int[0, 9]; on: bool; plan: {"basic", "it's full"}; x: real[2]
    limit: input[0, 100]
    total == amount + fee
    fee <= 0.1*amount or plan == "basic"
    implies(on, amount/3 + fee >= 1.25)
    abs(amount - 2.5*fee) <= 20 and not (n in {3, 5})
    max(x[0], x[1], fee) <= limit
    (amount if plan != "basic" else 2*fee - 1/7) <= 6
    iff(on, n >= 2) or x[0] < x[1]
    sum(x) + on <= 12
    """
)
TYPES = {
    **dict.fromkeys(("amount", "fee", "total", "x_0", "x_1", "limit"), "DECIMAL(12,3)"),
    "n": "DECIMAL(4,1)",
    "on": "BOOLEAN",
    "plan": "VARCHAR",
}


def rows(count: int) -> list[tuple[Any, ...]]:
    """Rows near the edges of the rules, a tenth of their cells missing."""
    chance = random.Random(0)
    found = []
    for _ in range(count):
        amount = Decimal(chance.randrange(0, 300)) / 10
        fee = Decimal(chance.randrange(0, 40)) / 10
        total = amount + fee + chance.choice([Decimal(0)] * 3 + [Decimal("0.001")])
        x = [Decimal(chance.randrange(0, 80)) / 10 for _ in range(2)]
        limit = Decimal(chance.choice([5, 7, 101]))
        row: list[Any] = [
            amount,
            fee,
            total,
            *x,
            limit,
            Decimal(chance.randrange(-2, 21)) / 2,
        ]
        row += [chance.random() < 0.5, chance.choice(["basic", "it's full", "other"])]
        found.append(tuple(None if chance.random() < 0.1 else cell for cell in row))
    return found


COLUMNS = ["amount", "fee", "total", "x_0", "x_1", "limit", "n", "on", "plan"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "loans.duckdb"
    connection = duckdb.connect(str(path))
    declared = ", ".join(f'"{name}" {TYPES[name]}' for name in COLUMNS)
    connection.execute(f"CREATE TABLE loans (row INTEGER, {declared})")
    marks = ", ".join("?" * 10)
    connection.executemany(
        f"INSERT INTO loans VALUES ({marks})",
        [(k, *row) for k, row in enumerate(rows(400))],
    )
    connection.close()
    return path


def test_duckdb_finds_the_rows_that_check_finds(database: Path) -> None:
    report = mx.check(RULES, database, missing="pass")
    assert report.breaks is not None
    constraints = {c.name: c for c in mx.sql(RULES, "loans").constraints}
    with duckdb.connect(str(database), read_only=True) as connection:
        for k, rule in enumerate(report.rules):
            query = constraints[f"rule_{k + 1}"].query.replace("SELECT *", "SELECT row")
            found = sorted(row for (row,) in connection.execute(query).fetchall())
            assert found == report.breaks[:, k].nonzero()[0].tolist(), rule.rule.text
            assert found
        for domain in report.domains:
            name = f"{domain.variable.name}_domain"
            if name in constraints:
                count = len(connection.execute(constraints[name].query).fetchall())
                assert count == domain.violations
        for cell in report.cells:
            name = cell.variable.name.replace("[", "_").replace("]", "")
            query = constraints[f"{name}_is_there"].query
            assert len(connection.execute(query).fetchall()) == cell.cells


def test_thousands_of_alternatives_are_not_too_deep_for_a_database() -> None:
    rules = mx.Rules("n: int[0, 10**6]; n in range(0, 9000, 3)")
    (constraint,) = mx.sql(rules, "t", dialect="sqlite").constraints[-1:]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (n)")
        connection.executemany(
            "INSERT INTO t VALUES (?)", [(0,), (4,), (8997,), (9000,)]
        )
        found = connection.execute(constraint.query).fetchall()
    assert sorted(row[0] for row in found) == [4, 9000]


def test_sqlite_finds_the_rows_that_check_finds(tmp_path: Path) -> None:
    rules = mx.Rules(
        'a: real; b: real; on: bool; plan: {"x", "y"}\n'
        "abs(a - 0.5*b) <= 7/3\nimplies(on, a + b <= 9.5)\n(a if plan == 'x' else b/3) >= 2"
    )
    path = tmp_path / "t.sqlite"
    chance = random.Random(1)
    cells = [
        (
            chance.randrange(-9, 9),
            chance.randrange(0, 9),
            chance.randrange(2),
            chance.choice("xy"),
        )
        for _ in range(300)
    ]
    with sqlite3.connect(path) as connection:
        connection.execute(
            'CREATE TABLE t (a INTEGER, b INTEGER, "on" INTEGER, plan TEXT)'
        )
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", cells)
    report = mx.check(rules, path, name="t")
    assert report.breaks is not None
    with sqlite3.connect(path) as connection:
        for k, constraint in enumerate(
            mx.sql(rules, "t", dialect="sqlite").constraints[-3:]
        ):
            query = constraint.query.replace("SELECT *", "SELECT rowid")
            found = sorted(row - 1 for (row,) in connection.execute(query))
            assert found == report.breaks[:, k].nonzero()[0].tolist()
            assert found


def test_a_table_with_the_checks_takes_what_obeys_and_nothing_else() -> None:
    rules = mx.Rules('n: int[0, 9]; plan: {"a", "b"}\nimplies(plan == "a", n <= 3)')
    checks = mx.sql(rules, "t").checks.rstrip(",")
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (n DOUBLE, plan VARCHAR,\n{checks})")
        connection.execute("INSERT INTO t VALUES (3, 'a'), (9, 'b')")
        for row in ("4, 'a'", "10, 'b'", "2.5, 'b'", "1, 'c'", "NULL, 'a'"):
            with pytest.raises(duckdb.ConstraintException):
                connection.execute(f"INSERT INTO t VALUES ({row})")


def test_assumptions_are_constraints_and_rules_judge_the_other_rows() -> None:
    rules = mx.Rules(
        "x: real; low: input; high: input\nassume low <= high\nlow <= x <= high"
    )
    found = mx.sql(rules, "t")
    frame = pl.DataFrame({"x": [1, 5, 5], "low": [0, 0, 9], "high": [2, 2, 3]})
    report = mx.check(rules, frame)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM frame")
        counts = [
            len(connection.execute(c.query).fetchall()) for c in found.constraints[-2:]
        ]
    assert (
        counts
        == [report.assumptions[0].violations, report.rules[0].violations]
        == [1, 1]
    )


def test_what_may_be_missing_is_asked_for_by_its_absence() -> None:
    rules = mx.Rules(
        "x: real?; y: real\nx is missing or y >= 1\nx <= y\nimplies(y > 5, x is not missing)"
    )
    frame = pl.DataFrame({"x": [None, 1, 2, None, 0], "y": [0, 0, 1, 6, 7]})
    report = mx.check(rules, frame)
    assert report.breaks is not None
    found = mx.sql(rules, "t").constraints
    assert [c.name for c in found] == ["y_is_there", "rule_1", "rule_2", "rule_3"]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM frame")
        for k, constraint in enumerate(found[1:]):
            rows = connection.execute(constraint.query.replace("*", "rowid")).fetchall()
            assert (
                [row for (row,) in rows]
                == report.breaks[:, k].nonzero()[0].tolist()
                != []
            )


def test_dates_decimals_steps_and_odd_names() -> None:
    rules = mx.Rules(
        """
        "Loan Amount": decimal(2)[0, 50]; grade: real[0, 3] step 0.5
        start: date["2024-01-01", "2024-12-31"]; end: date["2024-01-01", "2025-12-31"]
        `Loan Amount` >= 4.1 or grade <= 1.5
        end - start >= 30
        start >= date("2024-02-01") or grade + `Loan Amount` <= 9.95
        """
    )
    chance = random.Random(2)
    first = date(2023, 12, 25)
    cells = [
        (
            Decimal(chance.randrange(0, 6000)) / chance.choice([100, 1000]),
            Decimal(chance.randrange(0, 70)) / chance.choice([10, 20]),
            first + timedelta(days=chance.randrange(380)),
            first + timedelta(days=chance.randrange(380)),
        )
        for _ in range(300)
    ]
    names = ["Loan Amount", "grade", "start", "end"]
    table = {
        name: pl.Series(own)
        for name, own in zip(names, zip(*cells, strict=True), strict=True)
    }
    report = mx.check(rules, pl.DataFrame(table))
    assert report.breaks is not None
    found = {c.name: c.query for c in mx.sql(rules, "t").constraints}
    with duckdb.connect() as connection:
        connection.execute(
            'CREATE TABLE t ("Loan Amount" DECIMAL(9, 3), grade DECIMAL(9, 3), start DATE, "end" DATE)'
        )
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", cells)
        for k in range(3):
            rows = connection.execute(
                found[f"rule_{k + 1}"].replace("*", "rowid", 1)
            ).fetchall()
            assert (
                sorted(row for (row,) in rows)
                == report.breaks[:, k].nonzero()[0].tolist()
                != []
            )
        for domain in report.domains:
            query = found[f"{domain.variable.name}_domain"]
            assert len(connection.execute(query).fetchall()) == domain.violations > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x: real; f: function\nf(x) >= 0",
            r"the rules call f\(…\), and a database does not",
        ),
        (
            "x >= 1e-40",
            "a number of 41 digits .*: databases calculate exactly with 38",
        ),
    ],
)
def test_what_cannot_be_written(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        mx.sql(mx.Rules(text), "t")


def test_names_and_labels_are_quoted() -> None:
    found = mx.sql(mx.Rules('c: {"a\'b"}\nc == "a\'b"'), 'my "t".x', dialect="postgres")
    assert found.table == '"my ""t"""."x"'
    assert found.constraints[-1].condition == "\"c\" = 'a''b'"
    assert "ALTER TABLE" in found.checks


def test_databases_whose_table_is_not_known(database: Path, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no table 'loan'; there are: loans"):
        mx.check(RULES, database, name="loan")
    other = tmp_path / "two.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE a (x INTEGER); CREATE TABLE b (y HUGEINT)")
        connection.execute(
            "INSERT INTO b VALUES (170141183460469231731687303715884105727)"
        )
    with pytest.raises(TableError, match=r"which table.*there are: a, b"):
        mx.check(RULES, other)
    report = mx.check(
        mx.Rules("y >= 170141183460469231731687303715884105728"), other, name="b"
    )
    assert report.rules[0].largest == 1
    (tmp_path / "no.duckdb").write_bytes(b"nothing")
    with pytest.raises(TableError, match="is not a database that can be read"):
        mx.check(RULES, tmp_path / "no.duckdb")
    (tmp_path / "t.csv").write_text("x\n1\n", encoding="utf-8")
    with pytest.raises(TableError, match="is not a database: --table"):
        mx.check(RULES, tmp_path / "t.csv", name="t")


def test_the_command_writes_a_script(tmp_path: Path, database: Path) -> None:
    rules = tmp_path / "loans.rules"
    rules.write_text("total: real; amount: real\namount <= total", encoding="utf-8")

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    said = run("sql", str(rules), "--table", "loans")
    assert said.exit_code == 0, said.stderr
    with duckdb.connect(str(database), read_only=True) as connection:
        connection.execute(
            said.stdout.partition("-- Rows that break")[2].partition("\n")[2]
        )
    said = run("check", str(rules), str(database), "--table", "loans", "--json")
    assert said.exit_code == 1


def test_columns_have_names_of_their_own() -> None:
    rules = mx.Rules("w: real[2, 2]; x: real[2]\nw[1, 0] <= x[1]")
    assert mx.sql(rules, "t").columns == (
        "w_0_0",
        "w_0_1",
        "w_1_0",
        "w_1_1",
        "x_0",
        "x_1",
    )
    assert '"w_1_0" - "x_1" <= 0' in str(mx.sql(rules, "t"))
    with pytest.raises(
        SqlError, match=r"`x\[0\]` and `x_0` would be one column in duckdb: rename"
    ):
        mx.sql(mx.Rules("x: real[2]; x_0: real\nx[0] <= x_0"), "t")
    cases = mx.Rules("Low: real; low: real\nLow <= low")
    with pytest.raises(SqlError, match="`Low` and `low` would be one column in sqlite"):
        mx.sql(cases, "t", dialect="sqlite")
    assert mx.sql(cases, "t", dialect="postgres").columns == ("Low", "low")


def test_a_damaged_database_ends_in_an_error_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS x FROM range(100000)")
    whole = path.read_bytes()
    chance = random.Random(0)
    for _ in range(20):
        damaged = bytearray(whole)
        for _ in range(20):
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with suppress(TableError):  # a byte that nobody reads does no harm
            mx.check(mx.Rules("x >= 0"), path)
