"""Tables of a DuckDB or SQLite file, a batch of rows at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl

from multiplexnet.errors import TableError, install
from multiplexnet.tables.sources.table import Table

__all__ = ["DATABASES", "database_table"]

DATABASES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")
"""How the names of database files end."""
SQLITE_ENDINGS = (".sqlite", ".sqlite3")
BATCH = 1 << 16
SQLITE = b"SQLite format 3\0"
AS_TEXT = ("HUGEINT", "UHUGEINT", "ENUM", "UBIGINT", "BIGNUM", "UUID")
"""Types of DuckDB that go through text, so that every number stays itself."""


def database_table(path: Path, name: str | None) -> Table:
    """One table, or view, of a database file.

    Args:
        path: of the file.
        name: of the table; it may be left out if there is only one.

    Raises:
        TableError: there is no such table, or the file is not a database.
    """
    with path.open("rb") as file:
        is_sqlite = file.read(len(SQLITE)) == SQLITE
    if not is_sqlite and path.name.lower().endswith(SQLITE_ENDINGS):
        raise TableError(
            f"{path} is not a SQLite database: it does not begin as one; a file of DuckDB is called .duckdb"
        )
    database = _Sqlite(path) if is_sqlite else _DuckDB(path)
    chosen = _chosen(path, name, database.tables())
    names = tuple(database.columns(chosen))
    return Table(
        f"{path}, table {chosen}",
        names,
        lambda positions: database.read(chosen, names, positions),
    )


def _chosen(path: Path, name: str | None, tables: Sequence[str]) -> str:
    listed = ", ".join(tables) or "none"
    if name is None:
        if len(tables) == 1:
            return tables[0]
        raise TableError(
            f"{path}: which table? Name one with --table (table=…); there are: {listed}"
        )
    if name not in tables:
        raise TableError(f"{path} has no table {name!r}; there are: {listed}")
    return name


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


class _DuckDB:
    """A file of DuckDB, opened for reading only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            import duckdb
        except ImportError:
            raise TableError(
                f"{self.path} cannot be read without duckdb: {install('sql')}"
            ) from None
        try:
            with closing(duckdb.connect(str(self.path), read_only=True)) as connection:
                yield connection
        except duckdb.Error as error:
            reason = str(error).split("\n", 1)[0]
            raise TableError(
                f"{self.path} is not a database that can be read: {reason}"
            ) from None

    def tables(self) -> list[str]:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main' ORDER BY 1"
        with self._connected() as connection:
            return [name for (name,) in connection.execute(query).fetchall()]

    def _types(self, connection: Any, table: str) -> dict[str, str]:
        described = connection.execute(f"DESCRIBE {_quoted(table)}").fetchall()
        return {str(row[0]): str(row[1]) for row in described}

    def columns(self, table: str) -> list[str]:
        with self._connected() as connection:
            return list(self._types(connection, table))

    def read(
        self, table: str, names: Sequence[str], positions: Sequence[int]
    ) -> Iterator[pl.DataFrame]:
        with self._connected() as connection:
            types = self._types(connection, table)
            wanted = []
            for p in positions:
                column = _quoted(names[p])
                is_text = types[names[p]].startswith(AS_TEXT)
                wanted.append(
                    f'{f"CAST({column} AS VARCHAR)" if is_text else column} AS "{p}"'
                )
            found = connection.sql(f"SELECT {', '.join(wanted)} FROM {_quoted(table)}")
            for batch in found.to_arrow_reader(BATCH):
                yield pl.DataFrame(
                    [pl.Series(n, batch.column(n)) for n in map(str, positions)]
                )


class _Sqlite:
    """A file of SQLite, opened for reading only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _connected(self) -> Any:
        return sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)

    def tables(self) -> list[str]:
        query = (
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        )
        return [name for (name,) in self._answered(query)]

    def _answered(self, query: str) -> list[Any]:
        try:
            with closing(self._connected()) as connection:
                return list(connection.execute(query))
        except sqlite3.Error as error:
            raise TableError(
                f"{self.path} is not a database that can be read: {error}"
            ) from None

    def columns(self, table: str) -> list[str]:
        return [
            row[1] for row in self._answered(f"PRAGMA table_info({_quoted(table)})")
        ]

    def read(
        self, table: str, names: Sequence[str], positions: Sequence[int]
    ) -> Iterator[pl.DataFrame]:
        wanted = ", ".join(_quoted(names[p]) for p in positions)
        try:
            with closing(self._connected()) as connection:
                found = connection.execute(f"SELECT {wanted} FROM {_quoted(table)}")
                while rows := found.fetchmany(BATCH):
                    columns = zip(*rows, strict=True)
                    yield pl.DataFrame(
                        [
                            _series(str(p), own)
                            for p, own in zip(positions, columns, strict=True)
                        ]
                    )
        except sqlite3.Error as error:
            raise TableError(f"{self.path} cannot be read: {error}") from None


def _series(name: str, values: Sequence[Any]) -> pl.Series:
    """A column of SQLite, in which every cell has a type of its own; a double stays the double it is."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {float} or kinds <= {str}:
        return pl.Series(
            name, values, dtype=pl.Float64 if kinds == {float} else pl.String
        )
    if kinds == {int} and all(v is None or -(2**63) <= v < 2**63 for v in values):
        return pl.Series(name, values, dtype=pl.Int64)
    return pl.Series(name, [_text(value) for value in values], dtype=pl.String)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return str(Decimal(value))
    return value.hex() if isinstance(value, bytes) else str(value)
