r"""Maximum likelihood of the rows under the rules.

Each factor ``p(x_j | x_<j)`` is divided by its mass on what the rules leave, in training as in sampling. What is left
depends on the rows alone, so it is found once. A few settings are tried, each with its own cosine of the learning
rate; rows that were kept apart choose among them and say when to stop.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import cos, pi
from time import monotonic

import numpy as np
import torch
from torch import Tensor

from multiplexnet.language.formula import Category, Variable
from multiplexnet.synthesis.allowed import Allowed, Intervals
from multiplexnet.synthesis.chances import Chances
from multiplexnet.synthesis.network import Network, Shape
from multiplexnet.synthesis.tokens import Tokens, Whole, tokens_of

__all__ = ["Data", "Progress", "Recipe", "RowModel", "data_of", "trained"]

APART = 0.1
"""The share of rows that is kept apart for choosing."""
MOST_APART = 5_000
CHUNK = 2_048
"""Rows that are looked at together where nothing is learned."""


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Args:
        shape: of the network.
        rows: how many rows are seen in all; epochs follow from it.
        batch: rows of a step, at most.
        rate: the largest learning rate.
        decay: of the weights.
        memory: how much of the moving average of the weights is kept in each step.
    """

    shape: Shape = field(default_factory=Shape)
    rows: int = 80_000
    batch: int = 512
    rate: float = 2.5e-3
    decay: float = 0.3
    memory: float = 0.998

    def epochs(self, count: int) -> int:
        """How often a table of so many rows is gone through."""
        return max(3, min(60, round(self.rows / max(count, 1))))

    def batch_of(self, count: int) -> int:
        """Rows of a step, so that a short table has enough of them."""
        return max(32, min(self.batch, count // 40))


RECIPES = (
    Recipe(),
    replace(Recipe(), rows=160_000),
    replace(Recipe(), shape=replace(Shape(), width=96), rows=80_000),
)
"""What is tried, in this order, as long as there is time."""


@dataclass(frozen=True)
class Progress:
    """How far training is: which recipe of how many, steps done of all, and the log-likelihood of rows kept apart."""

    recipe: int
    recipes: int
    step: int
    steps: int
    log_likelihood: float | None


@dataclass(frozen=True)
class Data:
    """Rows as whole numbers, with their tokens and what the rules leave in each of them.

    Args:
        values: ``(N, D)``.
        tokens: ``(N, D)``.
        left: for every column that rules bound what is left; ``None`` for the others.
    """

    values: Tensor
    tokens: Tensor
    left: tuple[Intervals | None, ...]

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: Tensor) -> Data:
        """Some of the rows."""
        left = tuple(
            None if own is None else Intervals(own.lower[:, rows], own.upper[:, rows])
            for own in self.left
        )
        return Data(self.values[rows], self.tokens[rows], left)


def data_of(values: Whole, tokens: Sequence[Tokens], allowed: Allowed) -> Data:
    """Rows ``(N, D)`` that obey the rules, columns in the order of computing."""
    found = np.stack([own.of(values[:, j]) for j, own in enumerate(tokens)], -1)
    whole = torch.from_numpy(values)
    rows = allowed.rows(len(values))
    left: list[Intervals | None] = []
    for j, column in enumerate(allowed.columns):
        left.append(rows.left(column) if allowed.is_bound(column) else None)
        rows.take(column, whole[:, j].double())
    return Data(whole, torch.from_numpy(found), tuple(left))


@dataclass(frozen=True)
class RowModel:
    """p(row): tokens, rules and network together.

    Args:
        allowed: columns in their order, and what the rules leave.
        tokens: of every column.
        network: that gives logits to them.
    """

    allowed: Allowed
    tokens: tuple[Tokens, ...]
    network: Network

    @staticmethod
    def fresh(allowed: Allowed, tokens: Sequence[Tokens], shape: Shape) -> RowModel:
        ordered = [_is_ordered(column) for column in allowed.columns]
        return RowModel(allowed, tuple(tokens), Network(tokens, ordered, shape))

    @cached_property
    def chances(self) -> list[Chances]:
        return [Chances.of(own) for own in self.tokens]

    def log_prob(self, data: Data) -> Tensor:
        """The log-probability of every row."""
        total = torch.zeros(len(data))
        for j, logits in enumerate(self.network(data.tokens)):
            total = total + self.chances[j].log_prob(logits, data.tokens[:, j], data.left[j])
        return total

    @torch.no_grad()
    def mean_log_prob(self, data: Data) -> float:
        """Of all rows, in nats."""
        self.network.eval()
        parts = torch.split(torch.arange(len(data)), CHUNK)
        sums = [float(self.log_prob(data.at(part)).double().sum()) for part in parts]
        return sum(sums) / max(len(data), 1)


def _is_ordered(column: Variable) -> bool:
    return not isinstance(column.domain, Category)


def trained(
    values: Whole,
    allowed: Allowed,
    *,
    seconds: float,
    seed: int,
    recipes: Sequence[Recipe] = RECIPES,
    tell: Callable[[Progress], None] | None = None,
) -> tuple[RowModel, float]:
    """The model of rows ``(N, D)`` that obey, and the mean log-likelihood of those that were kept apart.

    Args:
        values: columns in the order of computing.
        allowed: what the rules leave.
        seconds: no recipe is begun that would not end by then, as far as those before tell; the first one always is,
            and ends after the first time through the table if the time is over.
        seed: of everything that is drawn.
        recipes: what is tried.
        tell: called as it goes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _trained(values, allowed, seconds, recipes, tell)


def _trained(
    values: Whole,
    allowed: Allowed,
    seconds: float,
    recipes: Sequence[Recipe],
    tell: Callable[[Progress], None] | None,
) -> tuple[RowModel, float]:
    order = torch.randperm(len(values))
    apart = min(MOST_APART, int(APART * len(values)))
    ranges = [_range(column) for column in allowed.columns]
    tokens = [tokens_of(values[:, j], *ranges[j]) for j in range(values.shape[1])]
    data = data_of(values, tokens, allowed)
    held, used = data.at(order[:apart]), data.at(order[apart:])
    begun = monotonic()
    best: RowModel | None = None
    best_score = -np.inf
    longest = 0.0
    for number, recipe in enumerate(recipes):
        start = monotonic()
        if best is not None and start - begun + 1.5 * longest > seconds:
            break
        model = RowModel.fresh(allowed, tokens, recipe.shape)
        run = _Run(model, used, held, recipe, begun + seconds)
        for step in run.steps():
            if tell is not None:
                tell(Progress(number, len(recipes), step, run.count, run.score))
        if (run.score is not None and run.score > best_score) or best is None:
            best, best_score = model, run.score if run.score is not None else -np.inf
        longest = max(longest, monotonic() - start)
    assert best is not None
    best.network.eval()
    return best, best_score


def _range(column: Variable) -> tuple[int, int]:
    domain = column.domain
    values = domain.values  # type: ignore[union-attr]
    return values.start, values.stop - 1


class _Run:
    """One recipe."""

    def __init__(self, model: RowModel, used: Data, held: Data, recipe: Recipe, end: float) -> None:
        self.end = end
        self.model = model
        self.used = used
        self.held = held
        self.recipe = recipe
        self.size = recipe.batch_of(len(used))
        self.per_epoch = max(1, len(used) // self.size)
        self.count = self.per_epoch * recipe.epochs(len(used))
        self.score: float | None = None

    def steps(self) -> Iterator[int]:
        """Trains, and ends with the best weights that were met in the network."""
        network = self.model.network
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=self.recipe.rate, weight_decay=self.recipe.decay
        )
        average = copy.deepcopy(network)
        best = copy.deepcopy(network.state_dict())
        for step in range(self.count):
            if step % self.per_epoch == 0:
                order = torch.randperm(len(self.used))
            first = step % self.per_epoch * self.size
            self._step(optimizer, order[first : first + self.size], step)
            _follow(average, network, min(self.recipe.memory, (step + 1) / (step + 10)))
            if (step + 1) % self.per_epoch == 0 and len(self.held):
                score = replace(self.model, network=average).mean_log_prob(self.held)
                if self.score is None or score > self.score:
                    self.score = score
                    best = copy.deepcopy(average.state_dict())
            yield step + 1
            if monotonic() > self.end and step + 1 >= self.per_epoch:
                break
        network.load_state_dict(best if len(self.held) else average.state_dict())

    def _step(self, optimizer: torch.optim.Optimizer, rows: Tensor, step: int) -> None:
        rate = self.recipe.rate * 0.5 * (1 + cos(pi * step / self.count))
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20)
        self.model.network.train()
        loss = -self.model.log_prob(self.used.at(rows)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.network.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def _follow(average: Network, network: Network, memory: float) -> None:
    for old, new in zip(average.parameters(), network.parameters(), strict=True):
        old.lerp_(new, 1 - memory)
