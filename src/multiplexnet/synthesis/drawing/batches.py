r"""Rows drawn one column after another, each in what the rules leave of it.

Rows are numbered, and drawn in blocks that depend on these numbers alone: sums of floats may depend on how many rows
are computed together, so the same row always has the same company.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.synthesis.allowed import LeftIntervals
from multiplexnet.synthesis.chances import Chances, Sums
from multiplexnet.synthesis.drawing.counters import uniforms
from multiplexnet.synthesis.inference import Beginnings
from multiplexnet.synthesis.training import RowModel

__all__ = ["Batch", "RowBlock", "blocks", "drawn"]

FIRST = 256
"""Rows of the first block; the next ones are larger, so that a few rows do not take as long as many."""
LARGEST = 16_384
CELLS = 1 << 18
"""Numbers that are computed together, about: as many as a processor keeps at hand."""


@dataclass(frozen=True)
class RowBlock:
    """Rows that are drawn together.

    Args:
        first: the number of the first row.
        size: how many there are.
        wanted: how many of them are asked for.
    """

    first: int
    size: int
    wanted: int


def blocks(count: int, largest: int = LARGEST, start: int = 0) -> Iterator[RowBlock]:
    """The blocks of the rows from ``start`` (where a block begins) up to ``count``.

    Example:
        >>> [(block.first, block.size, block.wanted) for block in blocks(1000, 400)]
        [(0, 256, 256), (256, 400, 400), (656, 400, 344)]
    """
    first = 0
    while first < count:
        size = min(max(FIRST, 3 * first), largest)
        if first >= start:
            yield RowBlock(first, size, min(size, count - first))
        first += size


@torch.inference_mode()
def drawn(model: RowModel, seed: int, block: RowBlock) -> Tensor:
    """A block of rows, ``(size, D)``, whole numbers in the order of the model's columns."""
    random = uniforms(seed, block.first, block.size, 2 * len(model.tokens))
    batch = Batch(model, random)
    rows = model.allowed.rows(block.size)
    for j, column in enumerate(model.allowed.columns):
        left = rows.left(column) if model.allowed.is_bound(column) else None
        values = batch.draw(j, left)
        rows.take(column, values)
        batch.take(j, values)
    return batch.values


class Batch:
    """Rows on their way: values and tokens so far.

    Args:
        model: of the rows.
        random: ``(2 D, B)``, two numbers for every column.
    """

    def __init__(self, model: RowModel, random: Tensor) -> None:
        count = len(model.tokens)
        size = random.shape[1]
        self.model = model
        self.random = random
        self.values = torch.zeros(size, count, dtype=torch.int64)
        self.beginnings = Beginnings(model.network, size)

    def __len__(self) -> int:
        return len(self.values)

    def draw(self, j: int, left: LeftIntervals | None) -> Tensor:
        """Values of column j, ``(B,)``."""
        only = None if left is None else left.only
        if only is not None:
            return only.expand(len(self)).contiguous()
        found = []
        chances = self.model.chances[j]
        for rows, sums in self.sums(j):
            own = left if left is None or rows is None else left.at(rows)
            uniform = self.random[2 * j : 2 * j + 2]
            uniform = uniform if rows is None else uniform[:, rows]
            found.append(chances.draw(sums, own, uniform))
        return torch.cat(found)

    def log_ratio(self, j: int, inner: LeftIntervals, outer: LeftIntervals) -> Tensor:
        """How much of the probability of what is left outside lies inside, ``(B,)``."""
        chances = self.model.chances[j]
        found = [
            _log_ratio(chances, sums, inner, outer)
            if rows is None
            else _log_ratio(chances, sums, inner.at(rows), outer.at(rows))
            for rows, sums in self.sums(j)
        ]
        return torch.cat(found)

    def sums(self, j: int) -> Iterator[tuple[Tensor | None, Sums]]:
        """The chances of column j for a part of the rows at a time, or for all of them by groups."""
        prepared = self.model.prepared
        group = self.beginnings.group
        if group is not None:
            yield None, Sums.of(self.beginnings.logits(prepared, j), group)
            return
        size = max(1, CELLS // len(self.model.tokens[j]))
        for rows in torch.split(torch.arange(len(self)), size):
            yield rows, Sums.of(prepared.logits(j, self.beginnings.places[rows, :j]))

    def take(self, j: int, values: Tensor) -> None:
        """Column j has these values, ``(B,)``."""
        self.values[:, j] = values.long()
        self.beginnings.take(j, self.model.chances[j].tokens(values))

    def at(self, rows: Tensor) -> Batch:
        """Some of the rows, as far as they have come."""
        found = Batch(self.model, self.random[:, rows])
        found.values = self.values[rows]
        found.beginnings = self.beginnings.at(rows)
        return found


def _log_ratio(
    chances: Chances, sums: Sums, inner: LeftIntervals, outer: LeftIntervals
) -> Tensor:
    found = chances.log_mass(sums, inner) - chances.log_mass(sums, outer)
    return found.clamp(max=0.0)
