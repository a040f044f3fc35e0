"""The rows that break something, written into a file as they are found: in the memory of one block, however many."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Protocol
from uuid import uuid4

import polars as pl

from multiplexnet.errors import TableError

__all__ = ["COLUMN", "FrameWriter", "Output", "output_file", "writer_of"]

COLUMN = "breaks"
"""The column that says what a row breaks; with underscores behind it where the table has such a column."""
ENOUGH = 1 << 16
"""Rows that are collected before they are written."""
END = 1 << 20
"""Bytes that are kept free for the end of a Parquet file."""


class FrameWriter(Protocol):
    """Writes frames of the same columns one after another."""

    def write(self, frame: pl.DataFrame) -> None: ...

    def close(self) -> None: ...


def writer_of(path: Path, what: str, draft: Path | None = None) -> FrameWriter:
    """What writes tables to a file, by its ending; or to a draft of it.

    Raises:
        TableError: the ending is another one.
        OSError: as the system says.
    """
    writers: dict[str, Callable[[Path], FrameWriter]] = {
        ".csv": _Csv,
        ".parquet": _Parquet,
    }
    if path.suffix.lower() not in writers:
        raise TableError(f"{path}: {what} are written as .csv or .parquet")
    return writers[path.suffix.lower()](draft or path)


class Output:
    """A file of rows that is being written: a draft beside it, which takes its place when all is written.

    Args:
        path: of the file, ``.csv`` or ``.parquet``.
        names: of the columns.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path = path
        self.names = list(names)
        self._reason = COLUMN
        while self._reason in self.names:
            self._reason += "_"
        self._draft = path.with_name(f".{path.name}-{uuid4().hex[:8]}.part")
        self._writer = writer_of(path, "violating rows", self._draft)
        self._waiting: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame, breaks: Sequence[str]) -> None:
        """Write some rows, each with what it breaks; columns that they do not have are left empty."""
        length = frame.height
        columns = [
            frame[name]
            if name in frame.columns
            else pl.Series(name, [None] * length, pl.Null)
            for name in self.names
        ]
        columns.append(pl.Series(self._reason, list(breaks), pl.String))
        self._waiting.append(
            pl.DataFrame([column.alias(str(k)) for k, column in enumerate(columns)])
        )
        if sum(part.height for part in self._waiting) >= ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if not self._waiting:
            return
        frame = pl.concat(self._waiting, how="vertical_relaxed")
        frame.columns = [*self.names, self._reason]
        self._waiting = []
        self._writer.write(frame)

    def finish(self) -> None:
        """Write what is left, and put the file in its place."""
        if not self._waiting:
            self.add(pl.DataFrame(), ())  # so that there is a header at least
        self.flush()
        self._writer.close()
        self._draft.replace(self.path)

    def drop(self) -> None:
        """Leave nothing behind: half of the rows would look like all of them."""
        with suppress(Exception):
            self._writer.close()
        self._draft.unlink(missing_ok=True)


class _Csv:
    """Rows as text, with one header. A piece that cannot be written whole is not there at all."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb", buffering=0)
        self._is_begun = False

    def write(self, frame: pl.DataFrame) -> None:
        if self._is_begun and not frame.height:
            return
        text = BytesIO()
        try:
            frame.write_csv(text, include_header=not self._is_begun)
        except pl.exceptions.PolarsError as error:
            raise TableError(
                f"violating rows: {error}: write a .parquet file instead"
            ) from None
        before = self._file.tell()
        try:
            _write_all(self._file, text.getbuffer())
        except BaseException:
            self._file.truncate(before)
            raise
        self._is_begun = True

    def close(self) -> None:
        self._file.close()


def _write_all(file: IO[bytes], content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


class _Parquet:
    """Row groups of the columns that came first.

    Room for a row group and for the end of the file is reserved before it is written. So a disk that is full is noticed
    while what was written before can still be closed, and read.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")
        self._writer: Any = None
        self._first: pl.Schema | None = None

    def write(self, frame: pl.DataFrame) -> None:
        if self._first is None:
            self._begin(frame)
        assert self._first is not None
        if not frame.height:
            return
        try:
            table = _arrow(frame.cast(self._first))
        except pl.exceptions.PolarsError:
            changed = [
                name
                for name, kind in frame.schema.items()
                if kind not in (self._first[name], pl.Null)
            ]
            raise TableError(
                f"violating rows: the column {(changed or frame.columns)[0]!r} is not of one type in all tables: "
                "write a .csv file instead"
            ) from None
        self._reserve(int(1.2 * table.nbytes) + END)
        self._writer.write_table(table)

    def _begin(self, frame: pl.DataFrame) -> None:
        from pyarrow.lib import ArrowException
        from pyarrow.parquet import ParquetWriter

        self._first = pl.Schema(
            {
                name: pl.String() if kind == pl.Null else kind
                for name, kind in frame.schema.items()
            }
        )
        if any("\0" in name for name in self._first):
            raise TableError(
                "violating rows: a column name with a zero byte, which Parquet does not hold: write a .csv file instead"
            )
        empty = _arrow(pl.DataFrame(schema=self._first))
        try:
            self._writer = ParquetWriter(self._file, empty.schema)
        except ArrowException as error:
            raise TableError(f"violating rows: {error}") from None

    def _reserve(self, size: int) -> None:
        self._file.flush()
        try:
            os.posix_fallocate(self._file.fileno(), self._file.tell(), size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.truncate()
        self._file.close()


def _arrow(frame: pl.DataFrame) -> Any:
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


@contextmanager
def output_file(path: Path | None, names: Sequence[str]) -> Iterator[Output | None]:
    """The output at a path, which is there once all went well; ``None`` without a path.

    Raises:
        TableError: it cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        output = Output(path, names)
        try:
            yield output
            output.finish()
        except BaseException:
            output.drop()
            raise
    except OSError as error:
        raise TableError(
            f"{path} cannot be written: {error.strerror or error}"
        ) from None
