"""Files as tables: which reader a file needs, patterns of names, and several files as one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from multiplexnet.errors import TableError, brief
from multiplexnet.tables.sources.columnar import (
    arrow_table,
    parquet_rows,
    parquet_table,
)
from multiplexnet.tables.sources.databases import DATABASES, database_table
from multiplexnet.tables.sources.separated import separated_table
from multiplexnet.tables.sources.table import Source, Table, own_errors

__all__ = ["estimated_rows", "files_named", "refuse_bad_delimiter", "table_in_file"]

SEPARATED = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET = (".parquet",)
ARROW = (".arrow", ".feather", ".ipc")
KINDS = ".csv, .tsv (also .gz), .parquet, .arrow, .feather, .duckdb and .sqlite"


def table_in_file(
    path: Path, delimiter: str | None = None, table: str | None = None
) -> Table:
    """The table in a file; only the names of its columns are read yet.

    Args:
        path: of the file; its ending says what it is.
        delimiter: what separates the cells of a CSV file; ``None``: found by itself.
        table: the name of the table in a database file; ``None``: the only one.

    Raises:
        TableError: there is no such file, or it is not a table.
    """
    refuse_bad_delimiter(delimiter)
    if path.is_dir():
        raise TableError(
            f"{path} is a directory: give a file, or a pattern such as {path}/*.parquet"
        )
    if not path.exists():
        raise TableError(f"{path}: there is no such file")
    name = path.name.lower()
    if table is not None and not name.endswith(DATABASES):
        raise TableError(
            f"{path} is not a database: --table (table=…) names a table of a .duckdb or .sqlite file"
        )
    with own_errors(path):
        found = _opened(path, name, delimiter, table)
    return replace(found, source=Source(path.absolute(), delimiter, table))


def _opened(path: Path, name: str, delimiter: str | None, table: str | None) -> Table:
    if name.endswith(DATABASES):
        return database_table(path, table)
    if name.endswith(PARQUET):
        return parquet_table(path)
    if name.endswith(ARROW):
        return arrow_table(path)
    if name.endswith(SEPARATED):
        is_tabbed = ".tsv" in name and delimiter is None
        return separated_table(path, "\t" if is_tabbed else delimiter)
    raise TableError(f"{path}: only {KINDS} files can be checked")


def refuse_bad_delimiter(delimiter: str | None) -> None:
    """Raises ``TableError`` unless it is one character that can stand between cells."""
    if delimiter is None:
        return
    is_text = isinstance(delimiter, str)
    if (
        not is_text
        or len(delimiter) != 1
        or not delimiter.isascii()
        or delimiter in '"\r\n'
    ):
        raise TableError(
            f"{brief(delimiter)} cannot separate cells: give one character, such as ; or a tab"
        )


def files_named(names: Iterable[str | Path]) -> list[Path]:
    """The files with these names; a pattern such as ``2024/*.csv`` stands for all files that fit it, in order.

    Raises:
        TableError: nothing fits a pattern.
    """
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if path.exists() or not set(str(name)) & set("*?["):
            found.append(path)
            continue
        parent = Path(path.anchor or ".")
        fitting = sorted(parent.glob(str(path.relative_to(path.anchor))))
        if not fitting:
            raise TableError(f"{name}: no file fits this pattern")
        found += fitting
    return found


def estimated_rows(paths: Sequence[Path]) -> int | None:
    """About how many rows the files have together, without reading them; ``None`` if that cannot be told."""
    counts = [_estimated(path) for path in paths]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _estimated(path: Path) -> int | None:
    name = path.name.lower()
    try:
        with own_errors(path):
            if name.endswith(PARQUET):
                return parquet_rows(path)
            if not name.endswith(SEPARATED) or name.endswith(".gz"):
                return None
            with path.open("rb") as file:
                sample = file.read(1 << 16)
            return path.stat().st_size * sample.count(b"\n") // max(len(sample), 1)
    except TableError:
        return None
