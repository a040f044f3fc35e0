"""Texts, tables, files and models that can be read: what the fuzzer's inputs are made from."""

from __future__ import annotations

import sqlite3
import sys
import zipfile
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.smt.smtlib import to_smtlib
from multiplexnet.synthesis.synthesizer import Synthesizer

__all__ = [
    "ARRAYS",
    "OF_KINDS",
    "ORDERINGS",
    "RULES_OF_KINDS",
    "RULES_OF_TABLES",
    "SCHEMAS",
    "SCRIPTS",
    "TABLES",
    "WORDS",
    "arrow_files",
    "corpus",
    "duckdb_files",
    "layers_of",
    "models",
    "parquet_files",
    "sqlite_files",
]

HERE = Path(__file__).parent
MOST_TERMS = 12
"""Layers with more terms are too long for a seed."""

WORDS = (
    '"Loan Amount": real; `class`: {"a", "b"}\nimplies("class" == "a", 0 <= "Loan Amount" <= 3)',
    "price: decimal(2)[0, 9]?; x: real[0, 4] step 0.5; price <= 2.5 or price is missing; x != 1.5",
    's: input date["2024-01-01", "2024-12-31"]; e: date; 0 <= e - s <= 30 and year(e) == 2024; e != d"2024-08-03"',
    't: datetime["2024-01-01", "2024-12-31 23:59:59"]; t >= datetime("2024-08-03 14:30")',
    "w: real[2, 3]; c: input[0, 1][2, 3]; all(0 <= w <= c); all(sum(w, axis=0) <= 1); w[1, 2] <= sum(w[:, 0])",
    "x: real[3]; n: int[0, 30]; argmax(x) == 1; count(x > 0) <= 2; mean(x) <= 1; norm(x, 1) <= 3; is_sorted(x[:2])",
    "x: real[3]; n: int[0, 30]; n % 3 == 1; n // 4 <= 5; n == floor(x[0]); round(x[1]) >= 2; norm(x, inf) <= 10**2",
    "x: real[2]; y: real[2]; all(x + 2*y <= [1, 2]); dot([1, 2], x) <= 3; all([[1, 2], [3, 4]] @ x >= -y)",
    "low: input; high: input[0, 9]; v: real\nassume low <= high and low >= -1\nlow <= v <= high",
    "price: input[0, 100][2]; budget: input[0, 9]; u: input[1, 2]; x: real[2]; 0 <= x[0] <= 9 and 0 <= x[1] <= 9\n"
    "price[0]*x[0] + price[1]*x[1] <= budget; x[0] <= u*x[1]; x[1]/u <= 3",
    "x: real[3]; demand: input[0, 9]; all(0 <= x <= 5); sum(x) == demand; x[0] == 0 or 2 <= x[0]",
    'n: int[0, 10**9]?[2]; c: {"a", "b c", "d\'e"}?; on: bool?\n'
    "(n[0] if n[0] is not missing else 3) in range(0, 90, 3)\n"
    'iff(c is missing, on is not missing); c in {"a", "b c"}; count(v > 1 for v in n) <= 1',
    "x: real[2, 2]; n: int[1, 6][2, 2]; argmin(x[0]) in {0, 1}; all(max(n, axis=1) <= 5); ceil(x[1, 1]) == n[0, 0]; "
    "xor(x[0, 0] > 1, len(n) == 2)",
    'd: date["2024-01-01", "2024-12-31"]?; e: date["2024-02-29", "2025-02-28"]; e - d >= 7 or d is missing; '
    'd != "2024-05-01"; p: decimal(3)[0, 1] step 0.005; q: input decimal(2)[0, 1]; p <= q',
)
"""Words that came after the first version, each a seed."""

SCRIPTS = (
    "(declare-const x Real)(declare-const p Bool)(push 1)(assert (< x 9))(pop 1)(assert (> x 1))\n"
    "(assert (=> p (< x 4)))(check-sat-assuming (p))",
    "(set-logic QF_LIRA)(declare-fun n () Int)(push 2)(define-fun small ((k Int)) Bool (<= k 9))\n"
    "(assert (small n))(push 1)(assert (>= n (- 2)))(check-sat)",
    "(declare-const x Real)(declare-const y Real)(assert (let ((s (+ x y))) (and (<= 0.0 s) (<= s 1.5))))\n"
    "(assert (! (or (< x 0.5) (distinct y 0.25)) :named a))(check-sat)(get-model)(exit)",
)
"""Scripts of SMT-LIB with scopes and with what is asked."""

SCHEMAS: tuple[Any, ...] = (
    {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "price": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01},
            "plan": {"enum": ["basic", "full"]},
            "on": {"type": ["boolean", "null"]},
            "start": {"type": "string", "format": "date"},
        },
        "required": ["age", "plan"],
    },
    {
        "$defs": {"Share": {"type": "number", "minimum": 0, "maximum": 1}},
        "properties": {
            "shares": {
                "type": "array",
                "items": {"$ref": "#/$defs/Share"},
                "minItems": 3,
                "maxItems": 3,
            },
            "level": {"anyOf": [{"type": "integer", "enum": [1, 2]}, {"type": "null"}]},
            "kind": {"const": "a"},
            "both": {"allOf": [{"$ref": "#/$defs/Share"}, {"minimum": 0.5}]},
        },
    },
)

ARRAYS: tuple[Any, ...] = (
    {"A": [[1, 1, 0], [0.1, -2, 1e-3]], "b": [10, 0.5], "names": ["a", "b", "c d"]},
    {"A": [[1, 2]], "b": [3], "C": [[1, -1]], "d": [0], "names": "x"},
    {"C": [[1.5]], "d": [2]},
)

TABLES = (
    "x,n,on,c,u\n1.5,1,true,a,0.5\n2e3,2,0,b,1\n",
    'x,n,on,c,u\n"1.5", 1 ,TRUE,"a",0.5\n-1e-3,2,false,b,1e0\n+.5,0,1,a,0\n',
    "u;x;n\n1;2;3\n",
    "id,x,n,on,c,u\r\n1,12345678901234567890.5,9,1,b,0.1\r\n",
    "x;n;on;c;u\n1,5;;yes;;0.5\nNaN;n/a;T;a;1\n",
    "u\tx\tn\ton\tc\n1\t2\tnull\tno\tb\n\t-inf\t3\tf\tx\n",
)

OF_KINDS = (
    "start,price,step,until\n2024-08-03,12.34,0.5,2024-08-03 14:30\n2023-02-28,0.1,3,2024-08-03T14:30:59\n,,4.5,\n",
    "start;price;step;until\n03.08.2024;1.234,56;1,5;x\n2024-13-01;1e2;-0;2024-08-03T14:30:59+02:00\n",
)
"""Tables of dates, decimals and steps."""

COLUMNS: dict[str, Any] = {
    "x": [1.5, None] * 20,
    "n": [1, 2] * 20,
    "on": [True, None] * 20,
    "c": ["a", None] * 20,
    "u": [0.5, 1.0] * 20,
}
"""A table whose cells may be empty."""

RULES_OF_TABLES = (
    'x: real; n: int[0, 9]?; on: bool; c: {"a", "b"}?; u: input[0, 1]\nx >= n; implies(on, x > u); '
    "c is missing or n is not missing"
)
RULES_OF_KINDS = (
    "start: date?; price: decimal(2)[0, 2000]?; step: real[0, 10] step 0.5; until: datetime?\n"
    "year(start) >= 2024 or price >= 10; step != 3; until >= datetime('2024-01-01')"
)

ORDERINGS = (
    "ordering y_1 y_0 y_2\ny_1 - 2 y_0 >= 0\nneg y_2 > 0.5 or y_1 > 3",
    "ordering a\n# note\n2.5*a = 1e-3\n",
)


def arrow_files() -> list[bytes]:
    """Files and streams, compressed and not."""
    frame = pl.DataFrame(COLUMNS)
    files = []
    for write in (frame.write_ipc, frame.write_ipc_stream):
        for compression in ("uncompressed", "zstd"):
            file = BytesIO()
            write(file, compression=compression, compat_level=pl.CompatLevel.oldest())
            files.append(file.getvalue())
    return files


def parquet_files() -> list[bytes]:
    """Usual types and others, compressed and not."""
    columns: dict[str, Any] = {
        "x": [1.5, 2e3] * 20,
        "n": [1, 2] * 20,
        "on": [True, False] * 20,
        "c": ["a", "b"] * 20,
    }
    usual = pl.DataFrame({**columns, "u": [0.5, 1.0] * 20})
    other = usual.with_columns(
        pl.col("x").cast(pl.Decimal(10, 2)), pl.col("n").cast(pl.UInt8), pl.col("on").cast(pl.Int64),
        pl.col("c").cast(pl.Categorical), pl.col("u").cast(pl.Float32), lists=pl.concat_list("n", "n"),
    )  # fmt: skip
    files = []
    for frame in (usual, other):
        for compressed in (True, False):
            frame.write_parquet(
                file := BytesIO(), compression="zstd" if compressed else "uncompressed"
            )
            files.append(file.getvalue())
    return files


def duckdb_files(folder: Path) -> list[bytes]:
    """A file of DuckDB with one table, plain and with other types."""
    found = []
    types = (
        'x DOUBLE, n INTEGER, "on" BOOLEAN, c VARCHAR, u DOUBLE',
        "x DECIMAL(9, 2), n UTINYINT, \"on\" BOOLEAN, c ENUM ('a', 'b'), u FLOAT",
    )
    for k, declared in enumerate(types):
        path = folder / f"seed{k}.duckdb"
        path.unlink(missing_ok=True)
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE t ({declared})")
            rows = list(zip(*COLUMNS.values(), strict=True))
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        found.append(path.read_bytes())
    return found


def sqlite_files(folder: Path) -> list[bytes]:
    """A file of SQLite with one table, with and without types."""
    found = []
    types = ('x REAL, n INTEGER, "on" INTEGER, c TEXT, u REAL', 'x, n, "on", c, u')
    for k, declared in enumerate(types):
        path = folder / f"seed{k}.sqlite"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TABLE t ({declared})")
            rows = list(zip(*COLUMNS.values(), strict=True))
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        found.append(path.read_bytes())
    return found


def models(folder: Path) -> list[dict[str, bytes]]:
    """A model of tables: the parts of its zip file."""
    rules = "low: decimal(2)[0, 9]; high: decimal(2)[0, 9]?; c: {'a', 'b'}; low <= high"
    table = {
        "low": [0.5, 1.25, 2, 3] * 5,
        "high": [1, None, 5.5, 9] * 5,
        "c": ["a", "b"] * 10,
    }
    path = folder / "seed.model"
    Synthesizer(rules).fit(table, minutes=0).save(path)
    with zipfile.ZipFile(path) as file:
        return [{name: file.read(name) for name in file.namelist()}]


def corpus() -> tuple[list[str], list[Rules]]:
    """The texts of the tests' corpus, and the rules of the short ones that can be obeyed."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from corpus import CASES

    texts = [case.text for case in CASES if len(case.text) < 2_000]
    small = [
        Rules(case.text)
        for case in CASES
        if case.satisfiable and len(case.text) < 120 and "function" not in case.text
    ]
    return texts, small


def layers_of(small: list[Rules], every: int) -> list[Multiplexer]:
    """Layers of one in ``every`` of the rules."""
    from_smtlib = [
        Rules.from_smtlib(to_smtlib(rules.specification))
        for rules in small[:: 3 * every]
    ]
    found = []
    for rules in [*small[::every], *from_smtlib]:
        try:
            found.append(Multiplexer(rules))
        except MultiplexError:
            continue
    return [mux for mux in found if len(mux.terms) <= MOST_TERMS]
