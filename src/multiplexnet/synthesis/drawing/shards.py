"""A sample as a folder of Parquet files, each whole or not there; what was begun is continued.

The first rows of a shard that an interrupt finds half made are kept in a file of their own until it is whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.synthesis.drawing.making import MadeRows
from multiplexnet.synthesis.drawing.undisturbed import undisturbed
from multiplexnet.tables.output import writer_of

__all__ = [
    "SHARD",
    "begun_rows",
    "is_done",
    "keep_begun",
    "opened_folder",
    "shard_path",
    "written_shard",
]

SHARD = 1 << 18
"""Rows of a shard, about."""
TOLD = "sample.json"
"""Says which sample a folder holds."""


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard is."""
    return folder / f"part-{number:05}.parquet"


def is_done(folder: Path, number: int) -> bool:
    """Whether a shard is there; if so it is whole."""
    return shard_path(folder, number).exists()


def opened_folder(folder: Path, digest: str, rows: int) -> None:
    """Make the folder of a sample, or find it begun.

    Raises:
        TableError: it holds something else, or is no folder.
        OSError: as the system says.
    """
    told = {"sample": digest, "rows": rows, "shard": SHARD}
    if folder.exists() and not folder.is_dir():
        raise TableError(
            f"{folder} is no folder: name a .csv or .parquet file, or a folder for shards"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TOLD
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != told:
            raise TableError(
                f"{folder} holds another sample, or a part of one: give another folder, or remove this one"
            )
        return
    if any(folder.iterdir()):
        raise TableError(f"{folder} is not empty: give another folder")
    path.write_text(json.dumps(told), encoding="utf-8")


def begun_path(folder: Path, number: int) -> Path:
    """Where the first rows of a shard are that was interrupted; they are made once more with it."""
    return folder / f"begun-{number:05}.parquet"


def begun_rows(folder: Path, number: int) -> int:
    """How many rows of a shard that was interrupted are there."""
    path = begun_path(folder, number)
    if not path.exists():
        return 0
    return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def written_shard(made: MadeRows, folder: Path, number: int) -> MadeRows:
    """Write a shard if the folder is to be seen from here; then without its rows, else with them."""
    if not (folder / TOLD).exists():
        return made
    _write(made.frame, shard_path(folder, number))
    begun_path(folder, number).unlink(missing_ok=True)
    return replace(made, frame=made.frame.clear())


def keep_begun(made: MadeRows, folder: Path, number: int) -> None:
    """Write the first rows of a shard that is interrupted, unless there are as many from an earlier time."""
    if (folder / TOLD).exists() and made.frame.height > begun_rows(folder, number):
        _write(made.frame, begun_path(folder, number))


def _write(frame: pl.DataFrame, path: Path) -> None:
    """A file that is there as a whole, or not at all."""
    draft = path.with_name(f".{path.stem}-{uuid4().hex}.parquet")
    with undisturbed():
        writer = writer_of(path, "rows", draft)
        try:
            writer.write(frame)
            writer.close()
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
