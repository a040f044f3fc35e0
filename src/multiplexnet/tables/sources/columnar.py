"""Parquet and Arrow files a batch of rows at a time.

They are read by pyarrow: polars's own reader of Parquet ends the process on some damaged files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from multiplexnet.errors import TableError, install
from multiplexnet.tables.sources.table import Table, own_errors

if TYPE_CHECKING:
    import pyarrow.ipc
    import pyarrow.parquet

__all__ = [
    "arrow_table",
    "parquet_groups",
    "parquet_rows",
    "parquet_table",
    "streamed_arrow",
]

BATCH = 1 << 16  # rows of a Parquet file
LONGEST_CELL = 1 << 12  # bytes of one text: numbers and labels are shorter


def parquet_table(path: Path, groups: Sequence[int] | None = None) -> Table:
    """The table in a Parquet file, or in some of its row groups; its names are read, nothing else yet."""
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty: a Parquet file is expected")
    names = tuple(_opened(path).schema_arrow.names)

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        import pyarrow.compute

        wanted = {names[p]: str(p) for p in positions}
        texts = [
            field.name
            for field in _opened(path).schema_arrow
            if field.name in wanted and _is_text(field.type)
        ]
        file = _opened(path, texts)
        _refuse_long_texts(path, file, texts)
        chosen = None if groups is None else list(groups)
        for batch in file.iter_batches(
            BATCH, row_groups=chosen, columns=list(wanted), use_threads=False
        ):
            batch.validate(
                full=True
            )  # text is UTF-8, offsets lie inside: polars takes them on trust
            yield pl.DataFrame(
                [
                    _measured(path, name, batch.column(name)).alias(wanted[name])
                    for name in wanted
                ]
            )
            pyarrow.default_memory_pool().release_unused()  # which otherwise grows by some 30 MB on long files

    return Table(str(path), names, read)


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return any(
        test(kind) for test in (pyarrow.types.is_string, pyarrow.types.is_large_string)
    )


def _refuse_long_texts(
    path: Path, file: pyarrow.parquet.ParquetFile, texts: Sequence[str]
) -> None:
    """By what the file says of itself, before anything is unpacked: two kilobytes can hold fifty million letters."""
    for g in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(g)
        for c in range(group.num_columns):
            chunk = group.column(c)
            if (
                chunk.path_in_schema in texts
                and chunk.total_uncompressed_size > LONGEST_CELL * (group.num_rows + 16)
            ):
                raise _long_text(path, chunk.path_in_schema)


def _measured(path: Path, name: str, array: pyarrow.Array) -> pl.Series:
    """A column of a file."""
    return _series(path, name, _plain(path, name, array))


def _series(
    title: str | Path, name: str, array: pyarrow.Array | pyarrow.ChunkedArray
) -> pl.Series:
    """A column; what polars has no type for is written as text, number by number, or refused by its type."""
    import pyarrow

    kind = array.type
    if pyarrow.types.is_decimal(kind) and not _is_short_decimal(kind):
        return pl.Series(array.cast(pyarrow.string()))
    if pyarrow.types.is_interval(kind):
        raise TableError(
            f"{title}, column {name!r}: it is of type {kind}, which has no numbers or labels: leave the column out, or "
            "make numbers of it"
        )
    with own_errors(f"{title}, column {name!r} of type {kind},"):
        return pl.Series(array)


def _is_short_decimal(kind: pyarrow.DataType) -> bool:
    """Whether polars has such decimals."""
    return bool(kind.bit_width <= 128 and kind.scale >= 0)


def _plain(path: Path, name: str, array: pyarrow.Array) -> pyarrow.Array:
    """The column without its dictionary: texts come with one, so that each is measured before it is repeated."""
    import pyarrow

    if not pyarrow.types.is_dictionary(array.type) or not _is_text(
        array.type.value_type
    ):
        return array
    longest = pyarrow.compute.max(
        pyarrow.compute.binary_length(array.dictionary)
    ).as_py()
    if longest is not None and longest > LONGEST_CELL:
        raise _long_text(path, name)
    return array.dictionary_decode()


def _long_text(path: Path, name: str) -> TableError:
    return TableError(
        f"{path}, column {name!r}: a cell is longer than {LONGEST_CELL:,} bytes; numbers and labels are expected"
    )


def _opened(
    path: Path, dictionaries: Sequence[str] = ()
) -> pyarrow.parquet.ParquetFile:
    try:
        from pyarrow.parquet import (
            ParquetFile,
        )  # only those who have such files wait for it
    except ImportError:
        raise _without_pyarrow(path) from None
    return ParquetFile(path, pre_buffer=False, read_dictionary=list(dictionaries))


def parquet_groups(path: Path) -> list[int]:
    """How many rows each row group of a Parquet file says that it has."""
    metadata = _opened(path).metadata
    return [int(metadata.row_group(g).num_rows) for g in range(metadata.num_row_groups)]


def parquet_rows(path: Path) -> int:
    """How many rows a Parquet file says that it has."""
    return int(_opened(path).metadata.num_rows)


# --- Arrow ----------------------------------------------------------------------------------------------------------


def arrow_table(path: Path) -> Table:
    """The table in an Arrow file (Feather of version 2), or in a stream of Arrow batches."""
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty: an Arrow file is expected")
    with _batches(path) as (schema, _):
        names = tuple(schema.names)

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        with _batches(path) as (_, batches):
            for batch in batches:
                batch.validate(full=True)
                wanted = {str(p): batch.column(p) for p in positions}
                for start in range(0, max(batch.num_rows, 1), BATCH):
                    yield pl.DataFrame(
                        [
                            _measured(
                                path, names[int(p)], array.slice(start, BATCH)
                            ).alias(p)
                            for p, array in wanted.items()
                        ]
                    )

    return Table(str(path), names, read)


def streamed_arrow(data: Any, title: str) -> Table:
    """A table in memory that speaks Arrow's protocol; a column that nobody asks for stands in nobody's way."""
    try:
        import pyarrow
    except ImportError:
        raise TableError(
            f"{title} is one of Arrow and cannot be read without pyarrow: {install('cli')}"
        ) from None
    with own_errors(title):
        whole = pyarrow.table(data)

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        yield pl.DataFrame(
            [
                _series(title, whole.column_names[p], whole.column(p)).alias(str(p))
                for p in positions
            ]
        )

    return Table(title, tuple(whole.column_names), read)


@contextmanager
def _batches(
    path: Path,
) -> Iterator[tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]]:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise _without_pyarrow(path) from None
    with pyarrow.OSFile(str(path)) as file:
        try:
            opened = pyarrow.ipc.open_file(file)
        except pyarrow.ArrowInvalid:
            file.seek(0)
            stream = pyarrow.ipc.open_stream(file)
            yield stream.schema, iter(stream)
            return
        count = opened.num_record_batches
        yield opened.schema, (opened.get_batch(k) for k in range(count))


def _without_pyarrow(path: Path) -> TableError:
    return TableError(f"{path} cannot be read without pyarrow: {install('cli')}")
