r"""Rows drawn one column after another, each in what the rules leave of it.

Under a condition the same holds with the condition among the rules, and columns that are known come first in what is
left. A row then obeys the condition, whatever the network says; but the first columns do not know yet how likely it is
that the later ones would have met the condition by themselves. So each row is drawn a few times, and one of these
*candidates* is chosen by its weight

    Π_j  P(left under rules and condition | x_<j) / P(left under the rules | x_<j),

which is importance resampling: the more candidates, the nearer to the conditional distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.language.formula import Variable
from multiplexnet.synthesis.allowed import Allowed, Intervals, Rows
from multiplexnet.synthesis.counters import uniforms
from multiplexnet.synthesis.training import RowModel

__all__ = ["BLOCK", "CANDIDATES", "Condition", "blocks", "drawn", "drawn_under"]

BLOCK = 4_096
"""Rows that are drawn together. Always as many: sums of floats may depend on how many rows there are."""
CANDIDATES = 16
"""How often each row is drawn under a condition."""


@dataclass(frozen=True)
class Condition:
    """What rows have to meet besides the rules.

    Args:
        allowed: rules and condition, columns that are known first, then the others in the order of the model.
        known: columns that are given for every row.
    """

    allowed: Allowed
    known: tuple[Variable, ...] = ()

    def possible(self, given: Mapping[Variable, Tensor], count: int) -> Tensor:
        """Which rows of known values ``(N,)`` can be completed."""
        return self._begun(given, count)[1]

    def begun(self, given: Mapping[Variable, Tensor], count: int) -> Rows:
        """A batch in which known columns have their values."""
        return self._begun(given, count)[0]

    def _begun(self, given: Mapping[Variable, Tensor], count: int) -> tuple[Rows, Tensor]:
        rows = self.allowed.rows(count)
        found = torch.ones(count, dtype=torch.bool)
        for column in self.allowed.columns:
            if column in self.known:
                values = given[column].double()
                found &= rows.left(column).contain(values)
                rows.take(column, values)
        return rows, found


def blocks(count: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    """The first row and the number of rows of every block of a sample."""
    for first in range(0, count, size):
        yield first, min(size, count - first)


@torch.inference_mode()
def drawn(model: RowModel, seed: int, first: int) -> Tensor:
    """A block of rows from row ``first`` on, ``(BLOCK, D)``, whole numbers in the order of the model's columns.

    Args:
        model: what is learned.
        seed: of the random numbers.
        first: a multiple of ``BLOCK``.
    """
    batch = _Batch(model, uniforms(seed, first, BLOCK, 2 * len(model.tokens)))
    rows = model.allowed.rows(BLOCK)
    for j, column in enumerate(model.allowed.columns):
        values = batch.draw(j, batch.logits(j), rows.left(column))
        rows.take(column, values)
        batch.take(j, values)
    return batch.values


@torch.inference_mode()
def drawn_under(
    model: RowModel,
    condition: Condition,
    given: Mapping[Variable, Tensor],
    seed: int,
    first: int,
) -> Tensor:
    """A block of ``BLOCK // CANDIDATES`` rows that meet a condition, from row ``first`` on.

    Args:
        model: what is learned.
        condition: what they meet.
        given: values ``(BLOCK // CANDIDATES,)`` of the known columns.
        seed: of the random numbers.
        first: a multiple of ``BLOCK // CANDIDATES``.
    """
    count = len(model.tokens)
    random = uniforms(seed, first * CANDIDATES, BLOCK, 2 * count + 1)
    batch = _Batch(model, random[:-1])
    known = {column: own.repeat_interleave(CANDIDATES).double() for column, own in given.items()}
    under = condition.begun(known, BLOCK)
    rules = model.allowed.rows(BLOCK)
    weight = torch.zeros(BLOCK, dtype=torch.float64)
    for j, column in enumerate(model.allowed.columns):
        logits = batch.logits(j)
        if column in known:
            values = known[column]
            left = Intervals(values.unsqueeze(0), values.unsqueeze(0))
        else:
            left = under.left(column)
            values = batch.draw(j, logits, left)
            under.take(column, values)
        log_p = torch.log_softmax(logits.double(), -1)
        weight += model.chances[j].mass(log_p, left).log()
        weight -= model.chances[j].mass(log_p, rules.left(column)).log()
        rules.take(column, values)
        batch.take(j, values)
    return _resampled(batch.values, weight, random[-1])


def _resampled(values: Tensor, weight: Tensor, uniform: Tensor) -> Tensor:
    """Of the candidates of every row one, by their weights."""
    chance = torch.softmax(weight.reshape(-1, CANDIDATES), -1).cumsum(-1)
    target = uniform.reshape(-1, CANDIDATES)[:, :1] * chance[:, -1:]
    place = torch.searchsorted(chance, target, right=True).clamp(max=CANDIDATES - 1)
    rows = torch.arange(len(chance)) * CANDIDATES + place.squeeze(-1)
    return values[rows]


class _Batch:
    """Rows on their way: values and tokens so far."""

    def __init__(self, model: RowModel, random: Tensor) -> None:
        count = len(model.tokens)
        self.model = model
        self.random = random.reshape(count, 2, BLOCK)
        self.values = torch.zeros(BLOCK, count, dtype=torch.int64)
        self.tokens = torch.zeros(BLOCK, count, dtype=torch.int64)

    def logits(self, j: int) -> Tensor:
        return self.model.network.column(j, self.tokens[:, :j])

    def draw(self, j: int, logits: Tensor, left: Intervals) -> Tensor:
        return self.model.chances[j].draw(logits, left, self.random[j])

    def take(self, j: int, values: Tensor) -> None:
        self.values[:, j] = values.long()
        own = self.model.tokens[j].of(self.values[:, j].numpy())
        self.tokens[:, j] = torch.from_numpy(own)
