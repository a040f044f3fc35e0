r"""Rows under a condition: every one of them meets it, whatever the network says.

The condition is compiled with the rules, and columns that are known come first in what is left. So each column is
drawn in what rules *and* condition leave; but then a column before those of the condition does not know how likely it
makes the condition. Relative to the model's own distribution given the condition, such a row has the weight

    w = Π_j  P(left under rules and condition | x_<j) / P(left under the rules | x_<j)  ≤  1.

Because no weight exceeds 1, taking a try with probability w gives *exactly* that distribution (up to the rounding of
floats). Each row is tried a number of times. Rows for which no try is taken are chosen among ``CANDIDATES`` further
ones by their weights: they meet the condition as well, and their distribution is near the conditional one. How many
rows are which is counted. Factors that are the same for all tries of a row are left out, so that conditions about the
first columns, and known columns that come first, cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from multiplexnet.language.formula import Variable
from multiplexnet.synthesis.allowed import AllowedRows, LeftIntervals, RowBatch
from multiplexnet.synthesis.drawing.batches import Batch
from multiplexnet.synthesis.drawing.counters import uniforms_of
from multiplexnet.synthesis.training import RowModel

__all__ = ["CONDITIONED", "Condition", "ConditionalRows", "drawn_under"]

CONDITIONED = 4_096
"""Rows of a block under a condition, at most."""
TOGETHER = 16_384
"""Tries that are drawn together, about."""
TRIES = 64
"""Tries for a row of a block, on average, before candidates are weighed."""
HOPELESS = 1 / 256
"""Below this share of tries that are taken, no more are made."""
CANDIDATES = 32
"""Among how many a row is chosen for which no try was taken."""
DEAD = 0.3
"""Tries that cannot be taken any more are dropped once they are this share."""


@dataclass(frozen=True)
class Condition:
    """What rows have to meet besides the rules.

    Args:
        allowed: rules and condition, columns that are known first, then the others in the order of the model.
        known: columns that are given for every row.
    """

    allowed: AllowedRows
    known: tuple[Variable, ...] = ()

    def possible(self, given: Mapping[Variable, Tensor], count: int) -> Tensor:
        """Which rows of known values ``(N,)`` can be completed."""
        return self._begun(given, count)[1]

    def begun(self, given: Mapping[Variable, Tensor], count: int) -> RowBatch:
        """A batch in which known columns have their values."""
        return self._begun(given, count)[0]

    def _begun(
        self, given: Mapping[Variable, Tensor], count: int
    ) -> tuple[RowBatch, Tensor]:
        rows = self.allowed.rows(count)
        found = torch.ones(count, dtype=torch.bool)
        for column in self.allowed.columns:
            if column in self.known:
                values = given[column].double()
                found &= rows.left(column).contain(values)
                rows.take(column, values)
        return rows, found


@dataclass(frozen=True)
class ConditionalRows:
    """Rows that meet a condition.

    Args:
        values: ``(B, D)``, whole numbers in the order of the model's columns.
        exact: which of them are drawn from the conditional distribution exactly, ``(B,)``.
        effective: for the others, how many equally good candidates theirs were worth, ``(B,)``.
    """

    values: Tensor
    exact: Tensor
    effective: Tensor


@torch.inference_mode()
def drawn_under(
    model: RowModel,
    condition: Condition,
    given: Mapping[Variable, Tensor],
    seed: int,
    numbers: Tensor,
) -> ConditionalRows:
    """Rows that meet a condition.

    Args:
        model: what is learned.
        condition: what they meet.
        given: values ``(B,)`` of the known columns.
        seed: of the random numbers.
        numbers: of the rows, ``(B,)``.
    """
    task = _Task(model, condition, given, seed, numbers)
    size = len(numbers)
    values = torch.zeros(size, task.columns, dtype=torch.int64)
    exact = torch.zeros(size, dtype=torch.bool)
    effective = torch.ones(size, dtype=torch.float64)
    tried = 0
    begun = 0
    while begun < TRIES * size and not exact.all():
        open_rows = (~exact).nonzero().squeeze(-1)
        wanted = begun // (1 + int(exact.sum()))
        each = max(1, min(TOGETHER // len(open_rows), TRIES, wanted))
        tries = _Tries(open_rows.repeat_interleave(each), each, tried, 0)
        rows, found = _taken(task, tries)
        rows, first = _first_of_each(rows)
        values[rows] = found[first]
        exact[rows] = True
        begun += len(tries.rows)
        tried += each
        if begun >= 4 * size and int(exact.sum()) < HOPELESS * begun:
            break
    others = (~exact).nonzero().squeeze(-1)
    for rows in torch.split(others, TOGETHER // CANDIDATES) if len(others) else ():
        tries = _Tries(rows.repeat_interleave(CANDIDATES), CANDIDATES, 0, 1)
        values[rows], effective[rows] = _weighed(task, tries)
    return ConditionalRows(values, exact, effective)


@dataclass(frozen=True)
class _Tries:
    """Which rows are tried, each ``each`` times in a row; ``before`` tries were made of each."""

    rows: Tensor
    each: int
    before: int
    stream: int

    def random(self, seed: int, numbers: Tensor, count: int) -> Tensor:
        number = torch.arange(len(self.rows)) % self.each + self.before
        words = (numbers[self.rows] * (1 << 20) + number).numpy().astype(np.uint64)
        return uniforms_of(seed, words, count, stream=1 + self.stream)


class _Under:
    """Tries on their way, with the logarithms of their weights."""

    def __init__(
        self,
        model: RowModel,
        condition: Condition,
        given: Mapping[Variable, Tensor],
        random: Tensor,
        rows: Tensor,
    ) -> None:
        self.batch = Batch(model, random)
        self.number = torch.arange(len(rows))
        self.known = {column: own[rows].double() for column, own in given.items()}
        self.under = condition.begun(self.known, len(rows))
        self.condition = condition
        self.rules = model.allowed.rows(len(rows))
        self.weight = torch.zeros(len(rows), dtype=torch.float64)
        self.is_same = True
        """Whether all tries of a row have the same values so far."""

    def step(self, j: int) -> None:
        """Column j gets its values, and the weights their factors."""
        allowed = self.batch.model.allowed
        column = allowed.columns[j]
        outer = self.rules.left(column)
        if column in self.known:
            values = self.known[column]
            inner = LeftIntervals(values.unsqueeze(0), values.unsqueeze(0))
        else:
            inner = self.under.left(column)
            values = self.batch.draw(j, inner)
            self.under.take(column, values)
        if not self.is_same and not _same(inner, outer):
            self.weight += self.batch.log_ratio(j, inner, outer)
        if self.is_same and column not in self.known:
            self.is_same = inner.only is not None
        self.rules.take(column, values)
        self.batch.take(j, values)

    def keep(self, rows: Tensor) -> None:
        """Go on with some of them."""
        self.batch = self.batch.at(rows)
        self.number = self.number[rows]
        self.known = {column: own[rows] for column, own in self.known.items()}
        self.under = self.under.at(rows)
        self.rules = self.rules.at(rows)
        self.weight = self.weight[rows]


def _same(inner: LeftIntervals, outer: LeftIntervals) -> bool:
    """Whether the same is left in all rows, as far as a glance tells."""
    if inner.lower.shape != outer.lower.shape:
        return False
    if not torch.equal(inner.lower, outer.lower):
        return False
    if not torch.equal(inner.upper, outer.upper):
        return False
    if inner.possible is None or outer.possible is None:
        return inner.possible is outer.possible
    return torch.equal(inner.possible, outer.possible)


@dataclass(frozen=True)
class _Task:
    """What :func:`drawn_under` was asked for."""

    model: RowModel
    condition: Condition
    given: Mapping[Variable, Tensor]
    seed: int
    numbers: Tensor

    @property
    def columns(self) -> int:
        return len(self.model.tokens)

    def begun(self, tries: _Tries) -> tuple[_Under, Tensor]:
        """Tries before their first column, and a random number for each that no column uses."""
        random = tries.random(self.seed, self.numbers, 2 * self.columns + 1)
        used = random[:-1]
        state = _Under(self.model, self.condition, self.given, used, tries.rows)
        return state, random[-1]


def _taken(task: _Task, tries: _Tries) -> tuple[Tensor, Tensor]:
    """The tries that are taken: rows of the block in ascending order, and their values."""
    count = task.columns
    state, uniform = task.begun(tries)
    chance = uniform.log()
    for j in range(count):
        state.step(j)
        alive = chance[state.number] < state.weight
        lost = len(alive) - int(alive.sum())
        if lost > DEAD * len(alive) or (lost and j == count - 1):
            state.keep(alive.nonzero().squeeze(-1))
        if not len(state.number):
            break
    return tries.rows[state.number], state.batch.values


def _first_of_each(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in ascending order without repetitions, and where each stands first."""
    found, counts = torch.unique_consecutive(rows, return_counts=True)
    return found, counts.cumsum(0) - counts


def _weighed(task: _Task, tries: _Tries) -> tuple[Tensor, Tensor]:
    """Of the candidates of every row one, chosen by their weights; and how many equally good ones they were worth."""
    state, uniform = task.begun(tries)
    for j in range(task.columns):
        state.step(j)
    weights = state.weight.reshape(-1, CANDIDATES)
    chance = torch.softmax(weights, -1)
    sums = chance.cumsum(-1)
    share = uniform.reshape(-1, CANDIDATES)[:, :1]
    target = share * sums[:, -1:]
    place = torch.searchsorted(sums, target, right=True).clamp(max=CANDIDATES - 1)
    rows = torch.arange(len(sums)) * CANDIDATES + place.squeeze(-1)
    return state.batch.values[rows], 1 / chance.square().sum(-1)
