"""Samples written into a file or a folder as they are made, in the memory of a few pieces."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from multiplexnet.errors import RecordError, TableError
from multiplexnet.synthesis.drawing.making import MadeRows, Maker, SampleRequest
from multiplexnet.synthesis.drawing.pieces import Order, Piece, made_pieces, pieces
from multiplexnet.synthesis.drawing.shards import (
    SHARD,
    begun_rows,
    is_done,
    opened_folder,
    written_shard,
)
from multiplexnet.synthesis.drawing.undisturbed import undisturbed
from multiplexnet.synthesis.replacing import in_place_of
from multiplexnet.tables.output import writer_of

__all__ = ["SampleProgress", "Tell", "write"]


@dataclass(frozen=True)
class SampleProgress:
    """How far a sample is.

    Args:
        rows: made so far, and written if there is a file.
        total: how many are wanted.
        exact: how many of them are drawn exactly from the distribution that was asked for; less than ``rows`` under
            conditions that are rarely met only.
        effective: among how many equally good candidates each of the others was chosen, on average.
        unfound: the numbers of given rows, from 1 on, of which no completion was found.
    """

    rows: int
    total: int
    exact: int = 0
    effective: float = 0.0
    unfound: tuple[int, ...] = ()

    def and_then(self, made: MadeRows, rows: int) -> SampleProgress:
        """With further rows."""
        exact = self.exact + made.exact
        done = self.rows + rows
        weighed = self.effective * (self.rows - self.exact) + made.effective
        unfound = (*self.unfound, *made.unfound)
        mean = weighed / max(done - exact, 1)
        return SampleProgress(done, self.total, exact, mean, unfound)


Tell = Callable[[SampleProgress], None]


def write(
    maker: Maker,
    wanted: SampleRequest,
    path: Path,
    *,
    jobs: int = 1,
    dask: str | None = None,
    tell: Tell | None = None,
) -> SampleProgress:
    """Write a sample: a ``.csv`` or ``.parquet`` file, or a folder of Parquet files.

    When it is stopped, by a full disk or by the user, what was written is whole and can be read. A file that was there
    before is replaced only then, or at the end; without any row it stays.

    Raises:
        TableError: it cannot be written.
        RecordError: a row breaks a rule; those before it are there.
    """
    state = SampleProgress(0, wanted.count)
    kinds = {".csv": _file, ".parquet": _file, "": _folder}
    if path.suffix.lower() not in kinds:
        raise TableError(
            f"{path}: rows are written as .csv or .parquet, or into a folder (a name without an ending)"
        )
    try:
        made = kinds[path.suffix.lower()](maker, wanted, path, jobs, dask, state)
        with closing(made) as steps:
            for state in steps:
                if tell is not None:
                    tell(state)
    except OSError as error:
        raise TableError(
            f"{path} cannot be written: {error.strerror or error}; {state.rows:,} of {wanted.count:,} rows are there"
        ) from None
    except RecordError as error:
        kept = (
            f"{state.rows:,} of {wanted.count:,} rows, which obey,"
            if state.rows
            else "no rows"
        )
        raise RecordError(f"{error} ({kept} are in {path})") from None
    return state


def _file(
    maker: Maker,
    wanted: SampleRequest,
    path: Path,
    jobs: int,
    dask: str | None,
    state: SampleProgress,
) -> Generator[SampleProgress]:
    with in_place_of(path, lambda: state.rows > 0) as draft:
        writer = writer_of(path, "rows", draft)
        try:
            if not wanted.count:
                writer.write(maker.nothing().frame)
            for made in made_pieces(maker, pieces(wanted), jobs=jobs, dask=dask):
                with undisturbed():
                    writer.write(_texts(made.frame) if path.suffix.lower() == ".csv" else made.frame)  # fmt: skip
                    state = state.and_then(made, made.frame.height)
                    yield state
        finally:
            with undisturbed():
                writer.close()


def _texts(frame: pl.DataFrame) -> pl.DataFrame:
    """Times as texts that are read back."""
    return frame.with_columns(
        pl.col(pl.Datetime).dt.strftime("%Y-%m-%d %H:%M:%S"),
        pl.col(pl.Time).dt.strftime("%H:%M:%S"),
    )


def _folder(
    maker: Maker,
    wanted: SampleRequest,
    path: Path,
    jobs: int,
    dask: str | None,
    state: SampleProgress,
) -> Generator[SampleProgress]:
    if wanted.given is not None:
        raise TableError(f"{path}: completed rows are written as .csv or .parquet")
    folder = path.resolve()
    order = Order.of(maker)
    opened_folder(folder, order.digest, wanted.count)
    every = [replace(piece, folder=folder) for piece in pieces(wanted, SHARD)]
    todo: list[Piece] = []
    for piece in every:
        if is_done(folder, piece.number):
            state = replace(state, rows=state.rows + piece.rows)
        else:
            todo.append(piece)
    state = replace(state, exact=state.rows)
    if state.rows:
        yield state
    answers = made_pieces(maker, iter(todo), jobs=jobs, dask=dask)
    try:
        for piece, made in zip(todo, answers, strict=True):
            if made.frame.height:  # a worker that does not see the folder sends them
                written_shard(made, folder, piece.number)
            state = state.and_then(made, piece.rows)
            yield state
    except KeyboardInterrupt:
        there = sum(_rows_there(folder, piece) for piece in every)
        if there > state.rows:
            yield replace(state, rows=there)
        raise


def _rows_there(folder: Path, piece: Piece) -> int:
    """Rows of a shard that can be read: all of them, or the first ones."""
    if is_done(folder, piece.number):
        return piece.rows
    return begun_rows(folder, piece.number)
