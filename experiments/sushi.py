"""Rankings of sushi: from the order of six kinds, the order of the four others, as a permutation matrix of 16 bits.

The rules say that every kind has one place and every place one kind. They have 24 terms, the orders of four kinds. The
layer's network says a logit for each and is trained by cross-entropy, so that every answer is an order. The baselines
say 16 bits:

* ``sigmoid``, each bit alone, and ``sigmoid-order``, the same with the most probable order as its answer;
* ``semantic``, the bits with the semantic loss (Xu et al. 2018), exact over the 24 orders;
* ``most-frequent``, the order that most training rows have, whatever is asked.

``multiplexnet-average`` is several networks of the layer's kind that answer together: the order with the largest mean
probability. ``multiplexnet-ranks`` is the same with six places as inputs instead of the 36 bits of their matrix, the
best of the predictors that ``sushi_predictors.py`` compares on the rows to train on and to choose by.

60 % of the rows to train on, 20 % to choose by, 20 % to report on: one split for all seeds, that of published code, or
with ``--splits`` another for every seed (``sushi-splits.jsonl``). Epoch, dropout and weight of the semantic loss are
chosen in every run, by exact match on the second part and, among equals, by right bits; for the averages by their
likelihood there.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from itertools import product, starmap
from pathlib import Path
from typing import Literal, NamedTuple, Self

import data
import harness
import torch
from exact_matches import ExactMatches
from torch import Tensor, nn
from torch.nn import functional as F

import multiplexnet as mx

GIVEN, ASKED = [0, 1, 2, 4, 6, 7], [3, 5, 8, 9]
"""Kinds 1, 2, 3, 5, 7, 8 and kinds 4, 6, 9, 10, counted from 0."""

ORDERS = """
y: bool[4, 4]                                # y[i, j]: kind i has place j
all(count(y[i]) == 1 for i in range(4))
all(count(y[:, j]) == 1 for j in range(4))
"""

Method = Literal[
    "most-frequent",
    "sigmoid",
    "sigmoid-order",
    "semantic",
    "multiplexnet",
    "multiplexnet-average",
    "multiplexnet-ranks",
]
AVERAGES = ("multiplexnet-average", "multiplexnet-ranks")
RANKS_EPOCHS = 12
"""Of ``multiplexnet-ranks``, as in the comparison of predictors; the other networks have 20."""


@dataclass(frozen=True)
class Settings(harness.Common):
    """The order of four kinds of sushi from that of six others."""

    methods: tuple[Method, ...] = harness.option(Method.__args__, "what to train")  # type: ignore[attr-defined]
    hidden: int = harness.option(64, "units of the one hidden layer")
    dropouts: tuple[float, ...] = harness.option(
        (0.0, 0.5), "shares of hidden units that are left out, to choose from"
    )
    batch: int = harness.option(128, "rows a step")
    rate: float = harness.option(3e-3, "highest learning rate of AdamW")
    decay: float = harness.option(0.1, "weight decay")
    weights: tuple[float, ...] = harness.option(
        (0.1, 0.3, 1.0), "of the semantic loss, to choose from"
    )
    members: int = harness.option(8, "networks that answer together")
    splits: bool = harness.option(
        False, "every seed has its own split; to sushi-splits.jsonl"
    )

    def for_quick(self) -> Self:
        few = replace(self, dropouts=(0.5,), weights=(1.0,), members=2)
        return replace(few, seeds=(0,), epochs=3)


# --- data ------------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Orders as permutation matrices, written row by row: 36 bits that are given, 16 that are asked for."""

    x: Tensor
    y: Tensor


def matrices(orders: Tensor, kinds: list[int]) -> Tensor:
    """The places of some kinds among themselves, ``(N, len(kinds)²)``, from orders of all kinds."""
    places = orders.argsort(1)[:, kinds].argsort(1).argsort(1)
    return F.one_hot(places, len(kinds)).flatten(1).float()


def splits(orders: Tensor, seed: int | None = None) -> list[Rows]:
    """Rows to train on, to choose by and to report on: 60, 20 and 20 %, as published code has them, or by a seed."""
    if seed is None:
        mixed = orders[data.published_order(len(orders))]
    else:
        generator = torch.Generator().manual_seed(seed)
        mixed = orders[torch.randperm(len(orders), generator=generator)]
    rows = Rows(matrices(mixed, GIVEN), matrices(mixed, ASKED))
    first, second = int(0.6 * len(orders)), int(0.8 * len(orders))
    cuts = (slice(first), slice(first, second), slice(second, None))
    return [Rows(rows.x[cut], rows.y[cut]) for cut in cuts]


@cache
def rules() -> mx.Rules:
    """Every kind has one place, every place one kind."""
    return mx.Rules(ORDERS)


@cache
def finite_terms() -> mx.FiniteTerms:
    """The 24 orders, for bits with probabilities."""
    return mx.FiniteTerms(rules())


@cache
def layer() -> mx.Multiplexer:
    """The same for all runs: it has no parameters."""
    return mx.Multiplexer(rules())


# --- models ----------------------------------------------------------------------------------------------------------


class Ranks(nn.Module):
    """The places of six kinds as numbers with mean 0 and variance 1, from the bits of their matrix."""

    def forward(self, x: Tensor) -> Tensor:
        places: Tensor = x.reshape(*x.shape[:-1], 6, 6) @ torch.arange(6.0)
        return (places - 2.5) / math.sqrt(35 / 12)


def trunk(
    settings: Settings, dropout: float, outputs: int, *, ranks: bool = False
) -> nn.Sequential:
    """The network of all methods; it reads 36 bits or six ranks."""
    return nn.Sequential(
        Ranks() if ranks else nn.Identity(),
        nn.Linear(6 if ranks else 36, settings.hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(settings.hidden, outputs),
    )


class Candidate(NamedTuple):
    """What is chosen beside the epoch."""

    dropout: float
    weight: float


class Bits(nn.Module):
    """Sixteen bits, each with a probability; some semantic loss, and orders as answers if so told."""

    def __init__(self, settings: Settings, chosen: Candidate, in_order: bool) -> None:
        super().__init__()
        self.net = trunk(settings, chosen.dropout, 16)
        self.weight, self.in_order = chosen.weight, in_order

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = self.net(x)
        loss = F.binary_cross_entropy_with_logits(z, y, reduction="none").sum(-1)
        if self.weight:
            loss = loss + self.weight * mx.semantic_loss(finite_terms(), log_bits(z))
        return loss.mean()

    def answer(self, x: Tensor) -> Tensor:
        z: Tensor = self.net(x)
        if not self.in_order:
            return (z > 0).float()
        (scores,) = finite_terms().scores(log_bits(z))
        return finite_terms().codes(0)[scores.argmax(-1)].float()


def log_bits(z: Tensor) -> Tensor:
    """Log-probabilities of 0 and of 1: ``(…, 2)``."""
    return torch.stack([F.logsigmoid(-z), F.logsigmoid(z)], -1)


class Layered(nn.Module):
    """A logit for each of the 24 orders; several networks answer by their mean probability."""

    orders: Tensor

    def __init__(
        self,
        settings: Settings,
        chosen: Candidate,
        members: int = 1,
        *,
        ranks: bool = False,
    ) -> None:
        super().__init__()
        self.mux = layer()
        self.nets = nn.ModuleList(
            trunk(settings, chosen.dropout, self.mux.in_features, ranks=ranks)
            for _ in range(members)
        )
        terms = self.mux(torch.zeros(self.mux.in_features)).x
        self.register_buffer("orders", terms.detach(), persistent=False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Every network learns by itself: the sum of their losses."""
        term = self.term(y).repeat(len(self.nets))
        loss = F.cross_entropy(self.logits(x).flatten(0, 1), term)
        return len(self.nets) * loss

    def logits(self, x: Tensor) -> Tensor:
        """Of the orders, as each network has them, ``(members, B, 24)``."""
        logits: Tensor = self.mux(torch.stack([net(x) for net in self.nets])).logits
        return logits

    def together(self, x: Tensor) -> Tensor:
        """The logarithm of the mean probability of each order, ``(B, 24)``."""
        log_p = self.logits(x).log_softmax(-1)
        return log_p.logsumexp(0) - math.log(len(self.nets))

    def answer(self, x: Tensor) -> Tensor:
        log_p = self.together(x)
        values = log_p.new_zeros(len(x), self.mux.in_features - log_p.shape[-1])
        answers: Tensor = self.mux(torch.cat([values, log_p], -1)).best()
        return answers

    def term(self, y: Tensor) -> Tensor:
        """The number of the order that a row has."""
        return (y.unsqueeze(-2) == self.orders).all(-1).long().argmax(-1)

    @torch.no_grad()
    def log_likelihood(self, rows: Rows) -> float:
        """Of rows, the mean."""
        self.eval()
        found = -float(F.nll_loss(self.together(rows.x), self.term(rows.y)))
        self.train()
        return found


class MostFrequent(nn.Module):
    """The answer that most rows have."""

    def __init__(self, y: Tensor) -> None:
        super().__init__()
        ((common, _),) = Counter(map(tuple, y.tolist())).most_common(1)
        self.y = torch.tensor(common)

    def answer(self, x: Tensor) -> Tensor:
        return self.y.expand(len(x), -1)


def model_of(method: Method, settings: Settings, chosen: Candidate) -> Bits | Layered:
    """The network of a method, before training."""
    if method == "multiplexnet":
        return Layered(settings, chosen)
    if method in AVERAGES:
        reads = method == "multiplexnet-ranks"
        return Layered(settings, chosen, settings.members, ranks=reads)
    return Bits(settings, chosen, method == "sigmoid-order")


# --- training and measuring ------------------------------------------------------------------------------------------


@torch.no_grad()
def measure(model: Bits | Layered | MostFrequent, rows: Rows) -> dict[str, float]:
    """Shares of rows answered as they were ranked, and of answers that obey."""
    model.eval()
    answers = model.answer(rows.x)
    model.train()
    return {
        "exact": float((answers == rows.y).all(-1).double().mean()),
        "bits": float((answers == rows.y).double().mean()),
        "consistent": float(rules().satisfied(answers).double().mean()),
    }


def merit(method: Method, model: Bits | Layered, rows: Rows) -> float:
    """What is chosen by: exact match, and right bits among equals; for averages their likelihood."""
    if method in AVERAGES:
        assert isinstance(model, Layered)
        return model.log_likelihood(rows)
    found = measure(model, rows)
    return found["exact"] + found["bits"] / (2 * len(rows.x))


def learned(
    run: harness.Run, method: Method, rows: Rows, held_out: Rows, settings: Settings
) -> tuple[Bits | Layered, dict[str, float]]:
    """The best model by held-out rows, over epochs and candidates; and which it was."""
    epochs = settings.epochs or (RANKS_EPOCHS if method == "multiplexnet-ranks" else 20)
    dropouts = (0.5,) if method == "multiplexnet-ranks" else settings.dropouts
    steps = epochs * -(-len(rows.x) // settings.batch)
    weights = settings.weights if method == "semantic" else (0.0,)
    best, chosen = harness.Best(), Candidate(0.0, 0.0)
    for candidate in starmap(Candidate, product(dropouts, weights)):
        run.seed(run.key["seed"])
        model = model_of(method, settings, candidate)
        optimizer = torch.optim.AdamW(
            model.parameters(), settings.rate, weight_decay=settings.decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, steps)
        training, optimizer = run.prepare(model, optimizer)
        before = best.value
        for epoch in run.epochs(
            epochs,
            stage=f"{candidate.dropout} {candidate.weight}",
            model=training,
            optimizer=optimizer,
            schedule=schedule,
            best=best,
        ):
            for index in run.batches(len(rows.x), settings.batch):
                loss = training(rows.x[index], rows.y[index])
                run.check(loss)
                optimizer.zero_grad()
                run.backward(loss)
                optimizer.step()
                schedule.step()
            best.offer(-merit(method, model, held_out), epoch, model)
        chosen = candidate if best.value < before else chosen
    best.restore(model)
    found = {"epoch": float(best.epoch), "dropout": chosen.dropout}
    return model, found | ({"weight": chosen.weight} if method == "semantic" else {})


def one_run(run: harness.Run, method: Method, settings: Settings) -> None:
    """Train, report on test rows, write the line."""
    split = run.key["seed"] if settings.splits else None
    rows, held_out, test = splits(data.sushi(settings.data), split)
    if method == "most-frequent":
        model: Bits | Layered | MostFrequent = MostFrequent(rows.y)
        found = dict[str, float]()
    else:
        model, found = learned(run, method, rows, held_out, settings)
    found["validation"] = measure(model, held_out)["exact"]
    run.finish(**measure(model, test), **found, rows=len(test.x))


# --- results ---------------------------------------------------------------------------------------------------------

LITERATURE = {"SPL": 20.8, "Semantic Loss": 15.0}
"""Exact match in per cent, from memory of the literature and not checked here."""


def draw(results: harness.Results, settings: Settings, path: Path) -> None:
    """Exact match of every seed, and what is remembered of the literature."""
    picture = ExactMatches(
        "test rows answered exactly, %; one point a seed (*: from memory)", 30, 25.5
    )
    picture.draw(results, settings.methods, LITERATURE, path)


def main(settings: Settings) -> None:
    """All runs of the settings, then the picture."""
    name = "sushi-splits" if settings.splits else "sushi"
    results = harness.Results(name, settings)
    for method in settings.methods:
        alike = method == "most-frequent" and not settings.splits
        for seed in (0,) if alike else settings.seeds:
            with results.run({"method": method, "seed": seed}) as run:
                if not run.done:
                    one_run(run, method, settings)
    if results.accelerator.is_main_process:
        path = settings.figures_folder / f"{name.replace('-', '_')}_exact.png"
        draw(results, settings, path)


if __name__ == "__main__":
    harness.command(Settings, main)
