"""CSV a block at a time, so that a file of any length is read in the memory of one block.

A file is read as bytes and cut at line ends outside quotes, and polars takes its cells apart. What separates the cells
is found in the header, unless it is said.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.tables.sources.table import Table

__all__ = ["separated_table", "streamed_table"]

BLOCK = 1 << 20  # bytes of a CSV file
LONGEST = (
    1 << 26
)  # bytes of one row of a CSV file, before a quote that nobody closes has filled the memory
DELIMITERS = ",;\t|"
MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}
GZIP = b"\x1f\x8b"


def separated_table(path: Path, delimiter: str | None = None) -> Table:
    """The table in a CSV file, compressed by gzip or not; its names are read, nothing else yet.

    Args:
        path: of the file.
        delimiter: what stands between cells; ``None``: whichever cuts the header into the most names.
    """
    with path.open("rb") as begin:
        is_gzip = begin.read(2) == GZIP

    def opened() -> AbstractContextManager[BinaryIO]:
        return cast(BinaryIO, gzip.open(path)) if is_gzip else path.open("rb")

    with opened() as file:
        header = _first_row(str(path), file)
    return _table(str(path), header, delimiter, opened, skip=True)


def streamed_table(title: str, stream: BinaryIO, delimiter: str | None = None) -> Table:
    """The table in a stream of bytes, such as standard input, that can be read once."""
    buffered = (
        stream if hasattr(stream, "peek") else BufferedReader(cast(BytesIO, stream))
    )
    is_gzip = buffered.peek(2)[:2] == GZIP
    file = cast(BinaryIO, gzip.GzipFile(fileobj=buffered) if is_gzip else buffered)
    header = _first_row(title, file)
    return _table(title, header, delimiter, lambda: nullcontext(file), skip=False)


def _table(
    title: str,
    header: bytes,
    delimiter: str | None,
    opened: Callable[[], AbstractContextManager[BinaryIO]],
    *,
    skip: bool,
) -> Table:
    """The table with this header; ``skip``: it comes once more when the file is opened."""
    separator, names = _names(title, header, delimiter)
    numbers = separator.join(map(str, range(len(names)))).encode() + b"\n"

    def read(positions: Sequence[int]) -> Iterator[pl.DataFrame]:
        columns = [str(p) for p in positions]
        is_part = len(columns) < len(names)
        done = 0
        with opened() as file:
            if skip:
                _first_row(title, file)
            for rows in _whole_rows(title, file, line=header.count(b"\n") + 1):
                # polars passes over cells too many if it is asked for some of the columns only
                is_sure = is_part and _is_narrow(rows, separator, len(names))
                with _naming_the_row(title, rows, separator, len(names), done):
                    frame = pl.read_csv(
                        BytesIO(numbers + rows),
                        infer_schema=False,
                        columns=columns if is_sure else None,
                        separator=separator,
                    )
                done += frame.height
                yield frame.select(columns)

    return Table(title, names, read)


def _is_narrow(rows: bytes, separator: str, width: int) -> bool:
    """Whether it is plain that no row has more cells than this: no quotes, and as many separators in every row."""
    if b'"' in rows:
        return False
    mark = separator.encode()
    others = bytes(set(range(256)) - set(mark + b"\n"))
    marks = rows.translate(None, others)
    row = mark * (width - 1) + b"\n"
    return (row * (len(marks) // len(row) + 1)).startswith(marks)


@contextmanager
def _naming_the_row(
    title: str, rows: bytes, separator: str, width: int, done: int
) -> Iterator[None]:
    """Says which row has too many cells, where polars says that there is one."""
    try:
        yield
    except pl.exceptions.ComputeError as error:
        if "more fields than defined" not in str(error):
            raise
        if found := _too_wide(rows, separator, width):
            row, cells = found
            raise TableError(
                f"{title} cannot be read: a row has more cells than the header has names (row {done + row}: "
                f"{cells} cells, {width} names); put quotes around cells with "
                f"{MARKS.get(separator, repr(separator))}"
            ) from None
        raise


def _too_wide(rows: bytes, separator: str, width: int) -> tuple[int, int] | None:
    """The first row with too many cells, and how many it has, where Python's reader finds it, too."""
    lines = rows.decode("utf-8", "replace").split("\n")
    with suppress(csv.Error):
        for k, cells in enumerate(csv.reader(lines, delimiter=separator), start=1):
            if len(cells) > width:
                return k, len(cells)
    return None


def _first_row(title: str, file: BinaryIO) -> bytes:
    row = file.readline(LONGEST)
    while row.count(b'"') % 2 and (line := file.readline(LONGEST)):
        row = _short_enough(title, row + line)
    return _closed(title, row, 1)


def _names(
    title: str, header: bytes, delimiter: str | None
) -> tuple[str, tuple[str, ...]]:
    """What separates the cells, and the names of the columns."""
    try:
        text = header.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableError(
            f"{title} cannot be read: it is not UTF-8 text; save it as UTF-8"
        ) from None
    cut: dict[str, list[str]] = {}
    reason = ""
    for character in delimiter or DELIMITERS:
        try:
            cut[character] = next(csv.reader([text], delimiter=character), [])
        except csv.Error as error:
            reason = reason or str(error)
    if not cut:
        raise TableError(f"{title} cannot be read: its header is not CSV ({reason})")
    separator = max(
        cut, key=lambda character: len(cut[character])
    )  # the first of equals
    if not cut[separator]:
        raise TableError(f"{title} is empty: a header with column names is expected")
    return separator, tuple(name.strip() for name in cut[separator])


def _whole_rows(title: str, file: BinaryIO, line: int) -> Iterator[bytes]:
    """The rest of the file, which begins with that line, in blocks of whole rows."""
    rest = b""
    while block := file.read(BLOCK):
        rest += block
        if end := _end_of_rows(rest):
            yield rest[:end]
            line += rest.count(b"\n", 0, end)
        rest = _short_enough(title, rest[end:])
    if rest:
        yield _closed(title, rest, line)


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


def _short_enough(title: str, row: bytes) -> bytes:
    if len(row) < LONGEST:
        return row
    what = "opens a quote that is never closed" if b'"' in row else "has no line ends"
    raise TableError(
        f"{title} cannot be read: it {what} (one row is longer than {LONGEST >> 20} MB)"
    )


def _closed(title: str, row: bytes, line: int) -> bytes:
    if row.count(b'"') % 2 == 0:
        return row
    raise TableError(
        f"{title} cannot be read: line {line} opens a quote that is never closed"
    )
