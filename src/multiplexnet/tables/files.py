"""CSV and Parquet files a block at a time, so that a file of any length is read in the memory of one block.

A CSV file is read as bytes and cut at line ends outside quotes, and polars takes its cells apart. A Parquet file is
read by pyarrow: polars's own reader ends the process on some damaged files. Columns of the frames are called ``0``,
``1``, …: names in files can be anything.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from multiplexnet.errors import TableError

if TYPE_CHECKING:
    import pyarrow.parquet

__all__ = ["Table", "estimated_rows", "own_errors", "table_in_file"]

BLOCK = 1 << 20  # bytes of a CSV file
BATCH = 1 << 16  # rows of a Parquet file
LONGEST_CELL = 1 << 12  # bytes of one text in a Parquet file: numbers and labels are shorter
LONGEST = (
    1 << 26
)  # bytes of one row of a CSV file, before a quote that nobody closes has filled the memory


@dataclass(frozen=True)
class Table:
    """A table that is read a block of rows at a time.

    Args:
        title: what messages call it: the path of a file.
        names: the names of its columns.
        read: yields frames of the columns at the given positions, named by them.
    """

    title: str
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], Iterator[pl.DataFrame]]

    def __post_init__(self) -> None:
        doubled = [name for name, count in Counter(self.names).items() if count > 1]
        if doubled:
            raise TableError(
                f"{self.title}: the column name {doubled[0]!r} appears twice: rename one of them"
            )

    def frames(self, positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        """The columns at these positions, a block of rows at a time.

        Raises:
            TableError: the file is damaged.
        """
        frames = self.read(positions)
        while True:
            with own_errors(self.title):
                frame = next(frames, None)
            if frame is None:
                return
            yield frame


def table_in_file(path: Path) -> Table:
    """The table in a CSV or Parquet file; only the names of its columns are read yet.

    Raises:
        TableError: there is no such file, or it is not a table.
    """
    if path.is_dir():
        raise TableError(f"{path} is a directory: give a .csv or .parquet file")
    if not path.exists():
        raise TableError(f"{path}: there is no such file")
    openers = {".csv": _csv, ".parquet": _parquet}
    opener = openers.get(path.suffix.lower())
    if opener is None:
        raise TableError(f"{path}: only .csv and .parquet files can be checked")
    with own_errors(path):
        return opener(path)


def estimated_rows(path: Path) -> int | None:
    """About how many rows the file has, without reading it."""
    try:
        with own_errors(path):
            if path.suffix.lower() == ".parquet":
                return int(_opened(path).metadata.num_rows)
            with path.open("rb") as file:
                sample = file.read(1 << 16)
            return path.stat().st_size * sample.count(b"\n") // max(len(sample), 1)
    except TableError:
        return None


@contextmanager
def own_errors(title: str | Path) -> Iterator[None]:
    """What polars and pyarrow say about a damaged table, as our own error."""
    try:
        yield
    except TableError:
        raise
    except (
        OSError,
        ValueError,
        NotImplementedError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as error:
        raise TableError(f"{title} cannot be read: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    reason = str(error).strip().split("\n", 1)[0]
    if "more fields than defined" in reason:
        return "a row has more cells than the header has names; put quotes around cells with commas"
    return "it is not UTF-8 text; save it as UTF-8" if "utf" in reason.lower() else reason


# --- Parquet --------------------------------------------------------------------------------------------------------


def _parquet(path: Path) -> Table:
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
        for batch in file.iter_batches(BATCH, columns=list(wanted), use_threads=False):
            batch.validate(
                full=True
            )  # text is UTF-8, offsets lie inside: polars takes them on trust
            yield pl.DataFrame(
                [pl.Series(wanted[name], _plain(path, name, batch.column(name))) for name in wanted]
            )
            pyarrow.default_memory_pool().release_unused()  # which otherwise grows by some 30 MB on long files

    return Table(str(path), names, read)


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return any(test(kind) for test in (pyarrow.types.is_string, pyarrow.types.is_large_string))


def _refuse_long_texts(path: Path, file: pyarrow.parquet.ParquetFile, texts: Sequence[str]) -> None:
    """By what the file says of itself, before anything is unpacked: two kilobytes can hold fifty million letters."""
    for g in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(g)
        for c in range(group.num_columns):
            chunk = group.column(c)
            if chunk.path_in_schema in texts and chunk.total_uncompressed_size > LONGEST_CELL * (
                group.num_rows + 16
            ):
                raise _long_text(path, chunk.path_in_schema)


def _plain(path: Path, name: str, array: pyarrow.Array) -> pyarrow.Array:
    """The column without its dictionary: texts come with one, so that each is measured before it is repeated."""
    import pyarrow

    if not pyarrow.types.is_dictionary(array.type) or not _is_text(array.type.value_type):
        return array
    longest = pyarrow.compute.max(pyarrow.compute.binary_length(array.dictionary)).as_py()
    if longest is not None and longest > LONGEST_CELL:
        raise _long_text(path, name)
    return array.dictionary_decode()


def _long_text(path: Path, name: str) -> TableError:
    return TableError(
        f"{path}, column {name!r}: a cell is longer than {LONGEST_CELL:,} bytes; numbers and labels are expected"
    )


def _opened(path: Path, dictionaries: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
    try:
        from pyarrow.parquet import ParquetFile  # only those who have such files wait for it
    except ImportError:
        raise TableError(
            f"{path} cannot be read without pyarrow: pip install 'multiplexnet[cli]'"
        ) from None
    return ParquetFile(path, pre_buffer=False, read_dictionary=list(dictionaries))


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv(path: Path) -> Table:
    with path.open("rb") as file:
        names = _names(path, _first_row(path, file))
    numbers = ",".join(map(str, range(len(names)))).encode() + b"\n"

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        columns = [str(p) for p in positions]
        with path.open("rb") as file:
            header = _first_row(path, file)
            for rows in _whole_rows(path, file, line=header.count(b"\n") + 1):
                yield pl.read_csv(BytesIO(numbers + rows), infer_schema=False, columns=columns)

    return Table(str(path), names, read)


def _first_row(path: Path, file: BinaryIO) -> bytes:
    row = file.readline(LONGEST)
    while row.count(b'"') % 2 and (line := file.readline(LONGEST)):
        row = _short_enough(path, row + line)
    return _closed(path, row, 1)


def _names(path: Path, header: bytes) -> tuple[str, ...]:
    try:
        names = next(csv.reader([header.decode("utf-8-sig")]), [])
    except UnicodeDecodeError:
        raise TableError(f"{path} cannot be read: it is not UTF-8 text; save it as UTF-8") from None
    except csv.Error as error:
        raise TableError(f"{path} cannot be read: its header is not CSV ({error})") from None
    if not names:
        raise TableError(f"{path} is empty: a header with column names is expected")
    return tuple(name.strip() for name in names)


def _whole_rows(path: Path, file: BinaryIO, line: int) -> Iterator[bytes]:
    """The rest of the file, which begins with that line, in blocks of whole rows."""
    rest = b""
    while block := file.read(BLOCK):
        rest += block
        if end := _end_of_rows(rest):
            yield rest[:end]
            line += rest.count(b"\n", 0, end)
        rest = _short_enough(path, rest[end:])
    if rest:
        yield _closed(path, rest, line)


def _end_of_rows(text: bytes) -> int:
    """Where the last whole row ends, in text that begins with one: at a line end after an even number of quotes."""
    quotes = text.count(b'"')
    end = len(text)
    while (line_end := text.rfind(b"\n", 0, end)) >= 0:
        quotes -= text.count(b'"', line_end, end)
        if quotes % 2 == 0:
            return line_end + 1
        end = line_end
    return 0


def _short_enough(path: Path, row: bytes) -> bytes:
    if len(row) < LONGEST:
        return row
    what = "opens a quote that is never closed" if b'"' in row else "has no line ends"
    raise TableError(
        f"{path} cannot be read: it {what} (one row is longer than {LONGEST >> 20} MB)"
    )


def _closed(path: Path, row: bytes, line: int) -> bytes:
    if row.count(b'"') % 2 == 0:
        return row
    raise TableError(f"{path} cannot be read: line {line} opens a quote that is never closed")
