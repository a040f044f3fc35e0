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

Where rules are too dense to be projected (:mod:`~multiplexnet.synthesis.allowed`), a row may get stuck: a try that does
has the weight 0. So rows are drawn by tries there without a condition, too, and those that end have exactly the
distribution p(row) / Z, Z the share of tries that end. What rules and condition leave is cut with what the rules leave
then, since neither need lie in the other, and no weight exceeds 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from multiplexnet.language.formula import Variable
from multiplexnet.synthesis.allowed import AllowedRows, LeftIntervals, RowBatch
from multiplexnet.synthesis.drawing.batches import Batch
from multiplexnet.synthesis.drawing.counters import uniforms_of
from multiplexnet.synthesis.training import RowModel

__all__ = [
    "CONDITIONED",
    "Condition",
    "ConditionalRows",
    "drawn_under",
    "share_that_ends",
]

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
PATIENT = 512
"""Tries for a row of a block, on average, where they are not taken because they get stuck, and for no other reason."""
MOST = 1 << 16
"""Tries for one row."""
ROUNDS = 16
"""How often so many candidates are made for rows of which all got stuck."""


@dataclass(frozen=True)
class Condition:
    """What rows have to meet besides the rules.

    Args:
        allowed: rules and condition, columns that are known first, then the others in the order of the model.
        known: columns that are given for every row.
    """

    allowed: AllowedRows
    known: tuple[Variable, ...] = ()

    @property
    def may_get_stuck(self) -> bool:
        """Whether a row may come to a column of which nothing is left."""
        return bool(self.allowed.outer)

    def is_free(self, model: RowModel) -> bool:
        """Whether nothing is asked for besides the rules of a model."""
        return self.allowed is model.allowed and not self.known

    def possible(self, given: Mapping[Variable, Tensor], count: int) -> Tensor:
        """Which rows of known values ``(N,)`` can be completed; of rules that may get stuck, as far as is known."""
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
        return rows, found & ~rows.stuck


@dataclass(frozen=True)
class ConditionalRows:
    """Rows that meet a condition.

    Args:
        values: ``(B, D)``, whole numbers in the order of the model's columns.
        exact: which of them are drawn from the conditional distribution exactly, ``(B,)``.
        effective: for the others, how many equally good candidates theirs were worth, ``(B,)``.
        ended: which of them there are: for the others no try ended, ``(B,)``.
        stuck: for every column in how many tries nothing was left of it.
        tries: how many there were, without candidates.
    """

    values: Tensor
    exact: Tensor
    effective: Tensor
    ended: Tensor
    stuck: Mapping[Variable, int]
    tries: int


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
    most = PATIENT if task.is_free else TRIES
    while begun < most * size and tried < MOST and not exact.all():
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
        if task.is_free:
            continue
        if begun >= 4 * size and int(exact.sum()) < HOPELESS * begun:
            break
    ended = exact.clone()
    for number in range(0 if task.is_free else ROUNDS):
        others = (~ended).nonzero().squeeze(-1)
        for rows in torch.split(others, TOGETHER // CANDIDATES) if len(others) else ():
            again = rows.repeat_interleave(CANDIDATES)
            tries = _Tries(again, CANDIDATES, number * CANDIDATES, 1)
            values[rows], effective[rows] = _weighed(task, tries)
        ended[others] = effective[others] != 0
    return ConditionalRows(values, exact, effective, ended, task.stuck, begun)


@torch.inference_mode()
def share_that_ends(model: RowModel, tries: int = CONDITIONED) -> float:
    """The share of tries without a condition that do not get stuck."""
    task = _Task(model, Condition(model.allowed), {}, 0, torch.arange(tries))
    rows, _ = _taken(task, _Tries(torch.arange(tries), 1, 0, 0))
    return len(rows) / tries


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
        self.rules: RowBatch | None = None
        """What the rules leave without the condition; ``None``: there is none."""
        if not condition.is_free(model):
            self.rules = model.allowed.rows(len(rows))
        self.weight = torch.zeros(len(rows), dtype=torch.float64)
        self.is_same = True
        """Whether all tries of a row have the same values so far."""
        self.stuck: dict[Variable, int] = {}
        """For every column in how many tries nothing was left of it."""

    def step(self, j: int) -> None:
        """Column j gets its values, and the weights their factors."""
        allowed = self.batch.model.allowed
        column = allowed.columns[j]
        outer = None if self.rules is None else self.rules.left(column)
        if column in self.known:
            values = self.known[column]
            inner = LeftIntervals(values.unsqueeze(0), values.unsqueeze(0))
        else:
            inner = self._inner(column, outer)
            values = self.batch.draw(j, inner)
            self.under.take(column, values)
        if outer is not None and not self.is_same and not _same(inner, outer):
            self.weight += self.batch.log_ratio(j, inner, outer)
        if self.is_same and column not in self.known:
            self.is_same = inner.only is not None
        if self.rules is not None:
            self.rules.take(column, values)
        self.batch.take(j, values)
        self._give_up(column)

    def _inner(self, column: Variable, outer: LeftIntervals | None) -> LeftIntervals:
        """What rules and condition leave; where they may get stuck, what they and the rules alone do."""
        inner = self.under.left(column)
        if not self.condition.may_get_stuck or outer is None or _same(inner, outer):
            return inner
        return self.under.unless_stuck(column, inner.within(outer))

    def _give_up(self, column: Variable) -> None:
        """Tries that got stuck are not taken."""
        if not self.condition.may_get_stuck:
            return
        stuck = self.under.stuck
        if self.rules is not None:
            stuck = stuck | self.rules.stuck
        fresh = int((stuck & (self.weight > -torch.inf)).sum())
        if fresh:
            self.stuck[column] = self.stuck.get(column, 0) + fresh
            self.weight[stuck] = -torch.inf

    def end(self) -> None:
        """All columns have their values; what hidden outputs say after them counts, too."""
        if self.condition.may_get_stuck:
            self.under.end()
            if self.rules is not None:
                self.rules.end()
            self._give_up(self.batch.model.allowed.columns[-1])

    def keep(self, rows: Tensor) -> None:
        """Go on with some of them."""
        self.batch = self.batch.at(rows)
        self.number = self.number[rows]
        self.known = {column: own[rows] for column, own in self.known.items()}
        self.under = self.under.at(rows)
        if self.rules is not None:
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
    stuck: dict[Variable, int] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        return len(self.model.tokens)

    @property
    def is_free(self) -> bool:
        return self.condition.is_free(self.model)

    def count(self, stuck: Mapping[Variable, int]) -> None:
        """Further tries that got stuck."""
        for column, count in stuck.items():
            self.stuck[column] = self.stuck.get(column, 0) + count

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
        if j == count - 1:
            state.end()
        alive = chance[state.number] < state.weight
        lost = len(alive) - int(alive.sum())
        if lost > DEAD * len(alive) or (lost and j == count - 1):
            state.keep(alive.nonzero().squeeze(-1))
        if not len(state.number):
            break
    task.count(state.stuck)
    return tries.rows[state.number], state.batch.values


def _first_of_each(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in ascending order without repetitions, and where each stands first."""
    found, counts = torch.unique_consecutive(rows, return_counts=True)
    return found, counts.cumsum(0) - counts


def _weighed(task: _Task, tries: _Tries) -> tuple[Tensor, Tensor]:
    """Of the candidates of every row one, chosen by their weights; and how many equally good ones they were worth.

    That is 0 where all of them got stuck.
    """
    state, uniform = task.begun(tries)
    for j in range(task.columns):
        state.step(j)
    state.end()
    task.count(state.stuck)
    weights = state.weight.reshape(-1, CANDIDATES)
    nothing = (weights == -torch.inf).all(-1, keepdim=True)
    nothing &= task.condition.may_get_stuck
    chance = torch.softmax(torch.where(nothing, 0.0, weights), -1)
    sums = chance.cumsum(-1)
    share = uniform.reshape(-1, CANDIDATES)[:, :1]
    target = share * sums[:, -1:]
    place = torch.searchsorted(sums, target, right=True).clamp(max=CANDIDATES - 1)
    rows = torch.arange(len(sums)) * CANDIDATES + place.squeeze(-1)
    effective = 1 / chance.square().sum(-1)
    effective[nothing.squeeze(-1)] = 0.0
    return state.batch.values[rows], effective
