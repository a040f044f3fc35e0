r"""Samples in pieces: made here, by several processes, or on a Dask cluster, and always the same.

A piece is a few blocks of rows. Random numbers depend on the seed and the number of the row alone, so whoever makes a
piece makes the same one, and a piece whose worker was lost is made again by another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import numpy as np

from multiplexnet.synthesis.drawing.batches import RowBlock
from multiplexnet.synthesis.drawing.given import KnownCells
from multiplexnet.synthesis.drawing.making import MadeRows, Maker, SampleRequest
from multiplexnet.synthesis.drawing.shards import keep_begun, written_shard
from multiplexnet.synthesis.learned import LearnedModel
from multiplexnet.tables.parallel import spread

__all__ = ["PIECE", "Order", "Piece", "made_pieces", "pieces"]

PIECE = 1 << 16
"""Rows of a piece, about."""


@dataclass(frozen=True)
class Order:
    """Which rows of which model: plain data that can be sent to another process, but for known cells.

    Args:
        model: as a file would hold it.
        seed: of the rows.
        where: a condition that all rows meet.
        title: what messages call the model.
    """

    model: bytes
    seed: int
    where: str | None
    title: str

    @staticmethod
    def of(maker: Maker) -> Order:
        """What somebody else needs to make the same rows."""
        learned = maker.learned
        return Order(learned.to_bytes(), maker.seed, maker.where, learned.title)

    @cached_property
    def digest(self) -> str:
        """The same for the same rows."""
        told = f"{self.seed} {self.where!r} ".encode()
        return sha256(told + self.model).hexdigest()


@dataclass(frozen=True)
class Piece:
    """Rows that one worker makes.

    Args:
        number: of the piece.
        blocks: of its rows.
        given: what is known of these rows.
        folder: where they are written as a shard; ``None``: they are sent back.
    """

    number: int
    blocks: tuple[RowBlock, ...]
    given: KnownCells | None = None
    folder: Path | None = None

    @property
    def rows(self) -> int:
        return sum(block.wanted for block in self.blocks)


def pieces(wanted: SampleRequest, size: int = PIECE) -> Iterator[Piece]:
    """All rows that are wanted, about so many at a time."""
    waiting: list[RowBlock] = []
    number = 0
    for block in wanted.blocks():
        waiting.append(block)
        if sum(own.wanted for own in waiting) >= size:
            yield _piece(number, waiting, wanted.given)
            number += 1
            waiting = []
    if waiting:
        yield _piece(number, waiting, wanted.given)


def _piece(number: int, own: list[RowBlock], given: KnownCells | None) -> Piece:
    if given is None:
        return Piece(number, tuple(own))
    first = own[0].first
    rows = np.arange(first, own[-1].first + own[-1].wanted)
    moved = tuple(replace(block, first=block.first - first) for block in own)
    return Piece(number, moved, given.at(rows))


def made_pieces(
    maker: Maker,
    wanted: Iterator[Piece],
    *,
    jobs: int = 1,
    dask: str | None = None,
) -> Iterator[MadeRows]:
    """The rows of the pieces, in order; those that became shards are not sent back."""
    if jobs == 1 and dask is None:
        return (_made(maker, piece) for piece in wanted)
    order = Order.of(maker)
    return spread(_answer, ((order, piece) for piece in wanted), jobs, dask)


_MAKERS: dict[str, Maker] = {}
"""What this worker has prepared; one model at a time."""


def _answer(task: tuple[Order, Piece]) -> MadeRows:
    """Make a piece: this is what workers run."""
    order, piece = task
    if order.digest not in _MAKERS:
        _MAKERS.clear()
        learned = LearnedModel.load(BytesIO(order.model), order.title)
        _MAKERS[order.digest] = Maker(learned, order.seed, order.where)
    return _made(_MAKERS[order.digest], piece)


def _made(maker: Maker, piece: Piece) -> MadeRows:
    parts: list[MadeRows] = []
    try:
        for block in piece.blocks:
            parts.append(_of_block(maker, piece, block))
    except KeyboardInterrupt:
        if parts and piece.folder is not None:
            keep_begun(MadeRows.together(parts), piece.folder, piece.number)
        raise
    made = MadeRows.together(parts) if parts else maker.nothing()
    _give_back()
    if piece.folder is None:
        return made
    return written_shard(made, piece.folder, piece.number)


def _of_block(maker: Maker, piece: Piece, block: RowBlock) -> MadeRows:
    if piece.given is None:
        return maker.made(block)
    rows = np.arange(block.first, block.first + block.wanted)
    return maker.completed(piece.given.at(rows))


def _give_back() -> None:
    """Return memory that was freed to the system.

    Blocks need room of many different sizes, and the C library keeps what they leave between them: without this the
    memory of a long sample grows although nothing of it is in use.
    """
    with suppress(AttributeError, OSError, TypeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)
