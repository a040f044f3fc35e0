r"""Maximum likelihood of the rows under the rules.

Each factor ``p(x_j | x_<j)`` is divided by its mass on what the rules leave, in training as in sampling. What is left
depends on the rows alone, so it is found once. A few settings are tried, each with its own cosine of the learning
rate; rows that were kept apart choose among them, say when to stop, and which columns trees help. Then the best of
them is trained once more, as long as it was best for, from all rows.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import cos, pi
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Category, Variable
from multiplexnet.synthesis.allowed import AllowedRows, LeftIntervals
from multiplexnet.synthesis.chances import Chances, Weights
from multiplexnet.synthesis.checkpoint import Checkpoint, fingerprint, read, write
from multiplexnet.synthesis.columns.tokens import Tokens, Whole, tokens_of
from multiplexnet.synthesis.growing import tree_kinds
from multiplexnet.synthesis.inference import PreparedNetwork
from multiplexnet.synthesis.leaves import Leaves, Worth, codes_of, leaves_of
from multiplexnet.synthesis.network import Network, Shape
from multiplexnet.synthesis.together import Processes

__all__ = [
    "Data",
    "Progress",
    "Recipe",
    "RowModel",
    "begun_with",
    "data_of",
    "trained",
]

APART = 0.1
"""The share of rows that is kept apart for choosing."""
MOST_APART = 5_000
WORTH_LEARNING = 0.05
"""A smaller share of rows kept apart is not worth learning everything once more."""
SAVED = 30.0
"""Seconds after which training is saved again."""
PATIENCE = 3
"""Times through the table without a better score for rows kept apart, after which a recipe is over."""
CHUNK = 2_048
"""Rows that are looked at together where nothing is learned."""
ANYWHERE = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Rows that the network may be worth beside those of a leaf;"""
NEARBY = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
"""and in the range of the leaf."""

CHOOSING = 0.5
"""It takes about this part of the time of growing trees to choose among them."""
SURELY = 1.0
"""Standard errors by which trees make rows kept apart more likely: some help by chance;"""
WORTH_ASKING = 0.01
"""and nats a row: trees that do less are not to be seen in rows, and cost time and remember single ones."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Args:
        shape: of the network.
        steps: about how many there are; they go through the table a whole number of times.
        batch: rows of a step, at most.
        rate: the largest learning rate.
        decay: of the weights.
        memory: how much of the moving average of the weights is kept in each step.
        leaf: rows that a leaf of a tree has at least; 0: no trees.
        part: a batch is this part of a short table, at most: the noise of small ones keeps the network from learning
            rows by heart.
        columns: it is for tables with so many columns, or more.
    """

    shape: Shape = field(default_factory=Shape)
    steps: int = 550
    batch: int = 512
    rate: float = 1e-2
    decay: float = 1.0
    memory: float = 0.998
    leaf: int = 3
    part: float = 0.01
    columns: int = 0

    def epochs(self, count: int) -> int:
        """How often a table of so many rows is gone through."""
        rows = self.steps * self.batch_of(count)
        return max(3, min(60, round(rows / max(count, 1))))

    def batch_of(self, count: int) -> int:
        """Rows of a step."""
        return min(self.batch, max(64, int(self.part * count)))


RECIPES = (
    Recipe(Shape(8, 32, dropout=0.2), rate=2e-2, part=0.02, columns=50),
    Recipe(),
    Recipe(Shape(dropout=0.3)),
    Recipe(Shape(dropout=0.5), steps=800, rate=2e-2),
    Recipe(Shape(dropout=0.5, width=96), steps=800),
)
"""What is tried, in this order, as long as there is time: for wide tables first a small network, which is soon done."""


@dataclass(frozen=True)
class Progress:
    """How far training is.

    Args:
        recipe: which one, from 0 on; after all of them the best one, with rows that were kept apart as well.
        recipes: how many there are at most.
        step: steps of this recipe that are done.
        steps: all of them.
        log_likelihood: the mean over rows kept apart so far, in nats.
        rows_per_second: how fast rows are learned from.
        seconds_left: how long this recipe takes at most from now on.
    """

    recipe: int
    recipes: int
    step: int
    steps: int
    log_likelihood: float | None
    rows_per_second: float
    seconds_left: float


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
    left: tuple[LeftIntervals | None, ...]

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: Tensor) -> Data:
        """Some of the rows."""
        left = tuple(None if own is None else own.at(rows) for own in self.left)
        return Data(self.values[rows], self.tokens[rows], left)


def data_of(values: Whole, tokens: Sequence[Tokens], allowed: AllowedRows) -> Data:
    """Rows ``(N, D)`` that obey the rules, columns in the order of computing."""
    found = np.stack([own.of(values[:, j]) for j, own in enumerate(tokens)], -1)
    whole = torch.from_numpy(values)
    rows = allowed.rows(len(values))
    left: list[LeftIntervals | None] = []
    for j, column in enumerate(allowed.columns):
        left.append(rows.left(column) if allowed.is_bound(column) else None)
        rows.take(column, whole[:, j].double())
    return Data(whole, torch.from_numpy(found), tuple(left))


@dataclass(frozen=True)
class RowModel:
    """p(row): tokens, rules, network and trees together.

    Args:
        allowed: columns in their order, and what the rules leave.
        tokens: of every column.
        network: that gives logits to them.
        leaves: the trees of each column that has some; empty: no column has.
    """

    allowed: AllowedRows
    tokens: tuple[Tokens, ...]
    network: Network
    leaves: tuple[Leaves | None, ...] = ()

    @staticmethod
    def fresh(allowed: AllowedRows, tokens: Sequence[Tokens], shape: Shape) -> RowModel:
        network = Network(tokens, _ordered(allowed), shape)
        return RowModel(allowed, tuple(tokens), network)

    @cached_property
    def chances(self) -> list[Chances]:
        return [Chances.of(own) for own in self.tokens]

    @cached_property
    def weights(self) -> Weights:
        return Weights.of_columns(self.chances)

    @cached_property
    def prepared(self) -> PreparedNetwork:
        """The network as it is now, and the trees, for drawing."""
        return PreparedNetwork(self.network, self.leaves)

    def logits(self, tokens: Tensor) -> list[Tensor]:
        """For every column the logits ``(B, T_j)`` of its tokens, given tokens ``(B, D)`` of the columns before it."""
        found: list[Tensor] = self.network(tokens)
        if not self.leaves:
            return found
        codes = codes_of(tokens, self.network.counts)
        return [
            logits if leaves is None else leaves.mixed(logits, codes[:, :j])
            for j, (logits, leaves) in enumerate(zip(found, self.leaves, strict=True))
        ]

    def log_prob(self, data: Data) -> Tensor:
        """The log-probability of every row."""
        logits = self.logits(data.tokens)
        places = data.tokens.clamp(min=0)
        nats = [
            cross_entropy(own, places[:, j], reduction="none")
            for j, own in enumerate(logits)
        ]
        weights = self.weights.of(torch.stack(nats, -1), data.tokens)
        total = weights.log().sum(-1)
        for j, left in enumerate(data.left):
            if left is not None:
                log_p = torch.log_softmax(logits[j], -1)
                total = total - self.chances[j].mass(log_p, left).log()
        return total

    @torch.no_grad()
    def mean_log_prob(self, data: Data) -> float:
        """Of all rows, in nats."""
        self.network.eval()
        parts = torch.split(torch.arange(len(data)), CHUNK)
        sums = [float(self.log_prob(data.at(part)).double().sum()) for part in parts]
        return sum(sums) / max(len(data), 1)

    def with_trees(self, leaves: Sequence[Leaves | None], held: Data) -> RowModel:
        """The same with trees where they make rows that were kept apart clearly more likely, and not by chance."""
        gains = np.zeros((2, len(leaves), len(ANYWHERE), len(NEARBY)))
        for part in torch.split(torch.arange(len(held)), CHUNK):
            gains += self._gains(leaves, held.at(part))
        kept = []
        for own, sums, squares in zip(leaves, *gains, strict=True):
            a, b = np.unravel_index(sums.argmax(), sums.shape)
            error = squares[a, b] ** 0.5  # of the sum
            worth = Worth(ANYWHERE[a], NEARBY[b])
            least = max(SURELY * error, WORTH_ASKING * len(held))
            helps = own is not None and sums[a, b] > least
            kept.append(replace(own, worth=worth) if own and helps else None)
        return replace(self, leaves=tuple(kept) if any(kept) else ())

    @torch.no_grad()
    def _gains(self, leaves: Sequence[Leaves | None], data: Data) -> Floats:
        """By how much trees make rows more likely, for every column and worth: summed up, and squares summed up."""
        self.network.eval()
        codes = codes_of(data.tokens, self.network.counts)
        gains = np.zeros((2, len(leaves), len(ANYWHERE), len(NEARBY)))
        for j, logits in enumerate(self.network(data.tokens)):
            own = leaves[j]
            if own is None:
                continue
            parts, size = own.parts(logits, codes[:, :j])
            gain = self._gain(j, parts, size, data).double()
            gains[0, j] = gain.sum(-1).numpy()
            gains[1, j] = gain.square().sum(-1).numpy()
        return gains

    def _gain(self, j: int, parts: Tensor, size: Tensor, data: Data) -> Tensor:
        """The same of column j, ``(A, B, N)``, row by row. Mixed parts have mixed chances, also of what is left."""
        chances = self.chances[j]
        left = data.left[j]
        own = data.tokens[:, j]
        found = torch.stack([chances.log_prob(part, own, None).exp() for part in parts])
        kept = torch.ones_like(found)
        if left is not None:
            kept = torch.stack([chances.mass(part, left) for part in parts])
        anywhere = torch.tensor(ANYWHERE)[:, None, None]
        nearby = torch.tensor(NEARBY)[:, None]

        def mixed(part: Tensor) -> Tensor:
            whole = size * part[0] + anywhere * part[1] + nearby * part[2]
            return whole.log()

        return (mixed(found) - mixed(kept)) - (found[1] / kept[1]).log()


def _ordered(allowed: AllowedRows) -> list[bool]:
    return [_is_ordered(column) for column in allowed.columns]


def _is_ordered(column: Variable) -> bool:
    return not isinstance(column.domain, Category)


def trained(
    values: Whole,
    allowed: AllowedRows,
    *,
    seconds: float,
    seed: int,
    recipes: Sequence[Recipe] = RECIPES,
    tell: Callable[[Progress], None] | None = None,
    checkpoint: Path | None = None,
) -> tuple[RowModel, float]:
    """The model of rows ``(N, D)`` that obey, and the mean log-likelihood of those that were kept apart.

    Args:
        values: columns in the order of computing.
        allowed: what the rules leave.
        seconds: no recipe is begun that would not end by then, as far as those before tell; the first one always is,
            and goes through the table as often as there is time for, at least once.
        seed: of everything that is drawn.
        recipes: what is tried.
        tell: called as it goes.
        checkpoint: a file to go on from, if it is there; written now and then.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fit = _Fit(values, allowed, seconds, recipes, tell)
        fit.begun = begun_with(values, allowed, seed, recipes)
        fit.file = checkpoint
        return fit.result()


def begun_with(
    values: Whole, allowed: AllowedRows, seed: int, recipes: Sequence[Recipe]
) -> str:
    """The same for trainings that would end with the same model, if they had the same time."""
    own = (allowed.columns, allowed.cascades, seed, tuple(recipes))
    return fingerprint(values, *own)


def _range(column: Variable) -> tuple[int, int]:
    domain = column.domain
    values = domain.values  # type: ignore[union-attr]
    return values.start, values.stop - 1


@dataclass(frozen=True)
class _Course:
    """What a recipe did, in times through the table.

    Args:
        best: when rows kept apart were most likely.
        whole: when the learning rate would have been 0.
    """

    best: int
    whole: int


class _Fit:
    """Recipes one after another, and the best model so far."""

    def __init__(
        self,
        values: Whole,
        allowed: AllowedRows,
        seconds: float,
        recipes: Sequence[Recipe],
        tell: Callable[[Progress], None] | None,
    ) -> None:
        self.processes = Processes.present()
        order = torch.randperm(len(values))
        apart = min(MOST_APART, int(APART * len(values)))
        self.allowed = allowed
        self.values = values
        self.tokens = self._tokens_of(values[order[apart:].numpy()])
        data = data_of(values, self.tokens, allowed)
        self.held = data.at(order[:apart])
        self.used = data.at(order[apart:])
        self.seconds = seconds
        self.recipes = self._fitting(recipes)
        self.tell = tell
        self.begun = ""
        self.file: Path | None = None
        self.start = monotonic()
        self.best: RowModel | None = None
        self.best_recipe = 0
        self.best_score = -np.inf
        self.best_course = _Course(0, 0)
        self.again = 0.0
        """Seconds that it would take to do as the best recipe did with all rows."""
        self.longest = 0.0
        self.trees: dict[int, list[Leaves | None]] = {}
        self.growing = 0.0
        """Seconds that trees took to grow."""

    def _fitting(self, recipes: Sequence[Recipe]) -> list[Recipe]:
        """The recipes for so many columns, whose networks files can hold."""
        columns = len(self.tokens)
        sizes = columns, sum(map(len, self.tokens))
        wanted = [own for own in recipes if own.columns <= columns] or recipes
        found = [own for own in wanted if not own.shape.is_too_large(*sizes)]
        if not found:
            raise TableError(
                f"{columns:,} columns are too many to be learned together (one with empty cells counts as two): "
                "leave some out"
            )
        return found

    @property
    def spent(self) -> float:
        return monotonic() - self.start

    def result(self) -> tuple[RowModel, float]:
        state = None
        if self.file is not None:
            state = read(self.file, self.begun)
        number = 0 if state is None else self._go_on(state)
        while number < len(self.recipes):
            if self.best is not None and self._is_over():
                break
            self._try(number, state)
            state = None
            number += 1
        if state is not None or self._is_worth_all_rows():
            self._learn_from_all(state)
        assert self.best is not None
        self.best.network.eval()
        return self.best, self.best_score

    def _is_over(self) -> bool:
        """Whether another recipe would end too late, as far as those before tell, or could not be compared."""
        if not len(self.held):
            return True
        ends = self.spent + 1.5 * self.longest + 1.2 * self.again
        return self.processes.as_first(ends > self.seconds)

    def _is_worth_all_rows(self) -> bool:
        """Whether rows kept apart are many enough to be learned from as well, and there is time for it."""
        if len(self.held) < WORTH_LEARNING * len(self.values):
            return False
        ends = self.spent + 1.2 * self.again
        return self.processes.as_first(ends <= self.seconds)

    def _try(self, number: int, state: Checkpoint | None) -> None:
        """One recipe, with the rows that are not kept apart."""
        recipe = self.recipes[number]
        if recipe.leaf and len(self.held):
            self._grown(recipe.leaf)
        fresh = RowModel.fresh(self.allowed, self.tokens, recipe.shape)
        end = self.start + self.seconds - CHOOSING * self.growing
        run = _Run(fresh, self.used, self.held, recipe, end, self.processes)
        begun = self._train(number, run, state)
        seconds = self.spent - begun
        model, score = self._with_trees(fresh, recipe, run.score)
        if self.best is None or score > self.best_score:
            self.best = model
            self.best_score = score
            self.best_recipe = number
            self.best_course = run.course
            share = run.course.best * run.per_epoch / max(run.done, 1)
            more = len(self.values) / max(len(self.used), 1)
            growing = self.growing if model.leaves else 0.0
            self.again = share * more * seconds + 2 * growing
        self.longest = max(self.longest, self.spent - begun)

    def _learn_from_all(self, state: Checkpoint | None) -> None:
        """What the best recipe did, with rows that were kept apart as well; left alone if it takes too long."""
        assert self.best is not None
        recipe = self.recipes[self.best_recipe]
        tokens = self._tokens_of(self.values)
        data = data_of(self.values, tokens, self.allowed)
        nothing = data.at(torch.arange(0))
        fresh = RowModel.fresh(self.allowed, tokens, recipe.shape)
        growing = self.growing if self.best.leaves else 0.0
        end = self.start + self.seconds - growing
        run = _Run(fresh, data, nothing, recipe, end, self.processes)
        run.follow(self.best_course)
        self._train(len(self.recipes), run, state)
        if run.done < run.per_epoch * self.best_course.best:
            return
        if self.best.leaves:
            fresh = replace(fresh, leaves=self._grown_again(recipe, tokens, data))
        self.best = fresh

    def _grown_again(
        self, recipe: Recipe, tokens: Sequence[Tokens], data: Data
    ) -> tuple[Leaves | None, ...]:
        """Trees of all rows, for the columns of the best model that have one, and worth as much as there."""
        assert self.best is not None
        grown = leaves_of(tokens, _ordered(self.allowed), data.tokens, recipe.leaf)
        return tuple(
            replace(new, worth=old.worth) if new and old else None
            for new, old in zip(grown, self.best.leaves, strict=True)
        )

    def _train(self, number: int, run: _Run, state: Checkpoint | None) -> float:
        """Runs to the end, and saves it now and then; when it was begun, in seconds spent."""
        begun = self.spent
        if state is not None:
            begun -= run.go_on(state)
        saved = monotonic()
        try:
            for step in run.steps():
                self._told(number, step, run)
                if self.file is not None and monotonic() - saved > SAVED:
                    self._save(number, run, self.spent - begun)
                    saved = monotonic()
        except KeyboardInterrupt:
            if self.file is not None and run.done and not run.is_busy:
                self._save(number, run, self.spent - begun)
            raise
        return begun

    def _tokens_of(self, values: Whole) -> list[Tokens]:
        """Those of every column, for rows that are learned from."""
        return [
            tokens_of(values[:, j], *_range(column), has_order=_is_ordered(column))
            for j, column in enumerate(self.allowed.columns)
        ]

    def _grown(self, rows: int) -> list[Leaves | None]:
        """Trees for every column with so many rows in a leaf, grown once."""
        if rows not in self.trees:
            tree_kinds()  # what is loaded is not counted
            begun = monotonic()
            ordered = _ordered(self.allowed)
            self.trees[rows] = leaves_of(self.tokens, ordered, self.used.tokens, rows)
            self.growing = self.processes.of_first(monotonic() - begun)
        return self.trees[rows]

    def _with_trees(
        self, model: RowModel, recipe: Recipe, score: float | None
    ) -> tuple[RowModel, float]:
        """The model with trees where they help, and the score of rows that were kept apart."""
        if score is None:
            return model, -np.inf
        if not recipe.leaf:
            return model, score
        found = model.with_trees(self._grown(recipe.leaf), self.held)
        return found, found.mean_log_prob(self.held)

    def _told(self, number: int, step: int, run: _Run) -> None:
        if self.tell is None:
            return
        speed = run.speed
        left = (run.last - step) * run.size / max(speed, 1e-9)
        left = max(0.0, min(left, self.seconds - self.spent))
        self.tell(
            Progress(number, len(self.recipes), step, run.last, run.score, speed, left)
        )

    def _save(self, number: int, run: _Run, spent: float) -> None:
        assert self.file is not None
        if not self.processes.is_first:
            return
        numbers: dict[str, Any] = {
            "recipe": number,
            "spent": self.spent,
            "spent here": spent,
            "longest": self.longest,
            "best recipe": None if self.best is None else self.best_recipe,
            "best score": float(self.best_score),
            "best course": [self.best_course.best, self.best_course.whole],
            "again": self.again,
        }
        own_numbers, tensors = run.state()
        if self.best is not None:
            for name, tensor in self.best.network.state_dict().items():
                tensors[f"before/{name}"] = tensor
        try:
            write(self.file, self.begun, Checkpoint(numbers | own_numbers, tensors))
        except OSError as error:
            why = error.strerror or error
            text = f"{self.file} cannot be written ({why}): what is learned from here on is lost if it is interrupted"
            warnings.warn(text, stacklevel=5)

    def _go_on(self, state: Checkpoint) -> int:
        numbers = state.numbers
        self.start -= numbers["spent"]
        self.longest = numbers["longest"]
        self.best_score = numbers["best score"]
        if numbers["best recipe"] is not None:
            self.best_recipe = numbers["best recipe"]
            self.best_course = _Course(*numbers["best course"])
            self.again = numbers["again"]
            shape = self.recipes[self.best_recipe].shape
            self.best = RowModel.fresh(self.allowed, self.tokens, shape)
            self.best.network.load_state_dict(state.under("before"))
            recipe = self.recipes[self.best_recipe]
            self.best, _ = self._with_trees(self.best, recipe, self.best_score)
        return int(numbers["recipe"])


class _Run:
    """One recipe."""

    def __init__(
        self,
        model: RowModel,
        used: Data,
        held: Data,
        recipe: Recipe,
        end: float,
        processes: Processes,
    ) -> None:
        self.end = end
        self.processes = processes
        self.model = model
        self.used = used
        self.held = held
        self.recipe = recipe
        self.size = recipe.batch_of(len(used))
        self.per_epoch = max(1, len(used) // self.size)
        self.count = self.per_epoch * recipe.epochs(len(used))
        """Steps over which the learning rate falls to 0,"""
        self.last = self.count
        """and after which it ends."""
        self.best_at = 0
        """Steps that were done when rows kept apart had their best score."""
        self.score: float | None = None
        self.since = 0
        """How often rows kept apart were judged since they had their best score."""
        self.done = 0
        self.optimizer = torch.optim.AdamW(
            model.network.parameters(),
            lr=recipe.rate,
            weight_decay=recipe.decay,
            fused=True,
        )
        self.average = copy.deepcopy(model.network)
        self.best = copy.deepcopy(model.network.state_dict())
        self.order = torch.empty(0, dtype=torch.int64)
        self.random: Tensor | None = None
        self.is_busy = False
        """Whether a step is half done, so that nothing can be saved."""
        self.begun = monotonic()
        self.before = 0

    @property
    def speed(self) -> float:
        """Rows a second."""
        seconds = max(monotonic() - self.begun, 1e-9)
        return (self.done - self.before) * self.size / seconds

    @property
    def course(self) -> _Course:
        return _Course(self.best_at // self.per_epoch, self.count // self.per_epoch)

    def follow(self, course: _Course) -> None:
        """Go as often through the table as was best, at the same rates."""
        self.count = self.per_epoch * course.whole
        self.last = self.per_epoch * course.best

    def steps(self) -> Iterator[int]:
        """Trains, and ends with the best weights that were met in the network."""
        network = self.model.network
        if self.random is not None:
            torch.set_rng_state(self.random)
        parameters = list(network.parameters())
        self.processes.follow_first(parameters)
        while self.done < self.last:
            step = self.done
            if step % self.per_epoch == 0:
                self.order = torch.randperm(len(self.used))
                self.processes.follow_first([self.order])
            first = step % self.per_epoch * self.size
            self.is_busy = True
            self._step(self.order[first : first + self.size], step)
            memory = min(self.recipe.memory, (step + 1) / (step + 10))
            _follow(self.average, network, memory)
            self.done = step + 1
            if self.done % self.per_epoch == 0 and len(self.held):
                self._judge()
            if self.done == self.per_epoch:
                self._fit_into_time()
            self.is_busy = False
            yield self.done
            late = self.processes.as_first(monotonic() > self.end)
            if late and self.done >= self.per_epoch:
                break
        last = self.average.state_dict()
        network.load_state_dict(self.best if len(self.held) else last)
        self.processes.follow_first(parameters)

    def _fit_into_time(self) -> None:
        """After the first time through the table: only as many more as end in time, so that the rate falls to 0."""
        now = monotonic()
        once = max(now - self.begun, 1e-9)
        more = int(self.processes.of_first(max(self.end - now, 0.0) // once))
        most = self.per_epoch * (1 + more)
        if most < self.last:
            self.count = most
            self.last = most

    def _judge(self) -> None:
        model = replace(self.model, network=self.average)
        score = self.processes.of_first(model.mean_log_prob(self.held))
        self.since += 1
        if self.score is None or score > self.score:
            self.score = score
            self.since = 0
            self.best_at = self.done
            self.best = copy.deepcopy(self.average.state_dict())
        if self.since == PATIENCE:
            self.last = self.done

    def _step(self, rows: Tensor, step: int) -> None:
        rate = self.recipe.rate * 0.5 * (1 + cos(pi * step / self.count))
        for group in self.optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 20)
        self.model.network.train()
        own = self.used.at(self.processes.part(rows))
        loss = -self.model.log_prob(own).sum() / len(rows)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.processes.add_up(list(self.model.network.parameters()))
        torch.nn.utils.clip_grad_norm_(self.model.network.parameters(), 1.0)
        self.optimizer.step()

    # --- going on -------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that the next steps depend on."""
        tensors = {"order": self.order, "random": torch.get_rng_state()}
        parts = {
            "network": self.model.network.state_dict(),
            "average": self.average.state_dict(),
            "best": self.best,
        }
        for part, own in parts.items():
            for name, tensor in own.items():
                tensors[f"{part}/{name}"] = tensor
        for index, own in self.optimizer.state_dict()["state"].items():
            for name, tensor in own.items():
                tensors[f"optimizer/{index}/{name}"] = tensor
        numbers = {
            "step": self.done,
            "steps": self.count,
            "last": self.last,
            "best at": self.best_at,
            "score": self.score,
            "since": self.since,
        }
        return numbers, tensors

    def go_on(self, state: Checkpoint) -> float:
        """Take over a state; the seconds that it took to come there."""
        self.done = int(state.numbers["step"])
        self.before = self.done
        self.count = int(state.numbers["steps"])
        self.last = int(state.numbers["last"])
        self.best_at = int(state.numbers["best at"])
        self.score = state.numbers["score"]
        self.since = int(state.numbers["since"])
        self.order = state.tensors["order"]
        self.random = state.tensors["random"]
        self.best = state.under("best")
        self.model.network.load_state_dict(state.under("network"))
        self.average.load_state_dict(state.under("average"))
        record = self.optimizer.state_dict()
        record["state"] = {}
        for name, tensor in state.under("optimizer").items():
            index, _, key = name.partition("/")
            record["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(record)
        return float(state.numbers["spent here"])


@torch.no_grad()
def _follow(average: Network, network: Network, memory: float) -> None:
    for old, new in zip(average.parameters(), network.parameters(), strict=True):
        old.lerp_(new, 1 - memory)
