"""Which predictor suits the rankings of sushi? Cross-validation, without the rows that ``sushi.py`` reports on.

A candidate gives a probability to each of the 24 orders of four kinds, from the order of six others. All of them could
stand before the layer, whose logits these are. Five folds of the rows to train on and to choose by; a seed is one way
to fold. Every row is answered once, by a model that did not see it: ``exact`` is the share of right orders among the
most probable ones, ``likelihood`` the mean logarithm of the probability of the right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, permutations
from typing import NamedTuple, Self

import data
import harness
import sushi
import torch
from torch import Tensor, nn
from torch.nn import functional as F

FOLDS = 5


class Orders(NamedTuple):
    """Rows: the places of six given kinds, ``(N, 6)``, and the number of the order of the four others, ``(N,)``."""

    places: Tensor
    term: Tensor


Predictor = Callable[[Orders, Tensor], Tensor]
"""From rows to learn from and the places of other rows to the log-probabilities of the orders of these, ``(N, 24)``."""


@cache
def places_of_terms() -> Tensor:
    """The places of the four kinds in each of the 24 orders, in the order of the layer's terms."""
    mux = sushi.layer()
    terms: Tensor = mux(torch.zeros(mux.in_features)).x
    return terms.detach().reshape(-1, 4, 4).argmax(-1)


def loaded(settings: Settings) -> Orders:
    """The rows to train on and to choose by; the others are left out."""
    *known, _ = sushi.splits(data.sushi(settings.data))
    x, y = (torch.cat(parts) for parts in zip(*known, strict=True))
    places = y.reshape(-1, 1, 4, 4).argmax(-1)
    term = (places == places_of_terms()).all(-1).long().argmax(-1)
    return Orders(x.reshape(-1, 6, 6).argmax(-1), term)


# --- what is read, and what is said ----------------------------------------------------------------------------------


def ranks(places: Tensor) -> Tensor:
    """The places as numbers, with mean 0 and variance 1."""
    kinds = places.shape[-1]
    return (places - (kinds - 1) / 2) / math.sqrt((kinds**2 - 1) / 12)


def pairs(places: Tensor) -> Tensor:
    """For every two kinds, 1 if the first is liked more and −1 if not."""
    first, second = zip(*combinations(range(places.shape[-1]), 2), strict=True)
    return 2.0 * (places[..., first] < places[..., second]) - 1.0


def matrix(places: Tensor) -> Tensor:
    """Bits: which kind has which place."""
    return F.one_hot(places, places.shape[-1]).flatten(-2).float()


def itself(places: Tensor) -> Tensor:
    """A number of its own for every order."""
    return torch.eye(len(places))


Reading = Callable[[Tensor], Tensor]


# --- candidates ------------------------------------------------------------------------------------------------------


def most_frequent(rows: Orders, places: Tensor) -> Tensor:
    """How often each order is, whatever is asked."""
    counts = torch.bincount(rows.term, minlength=24) + 1.0
    return (counts / counts.sum()).log().expand(len(places), -1)


def logistic(x: Tensor, term: Tensor, codes: Tensor, decay: float) -> nn.Linear:
    """A penalised fit of the numbers that a code is multiplied with; the logits of orders are a bias plus products."""
    fitted = nn.Linear(x.shape[-1], codes.shape[-1], bias=False)
    bias = torch.zeros(24, requires_grad=True)
    nn.init.zeros_(fitted.weight)
    optimizer = torch.optim.LBFGS(
        [fitted.weight, bias],
        max_iter=60,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = bias + fitted(x) @ codes.T
        penalty = decay * fitted.weight.square().sum() / 2
        value = (F.cross_entropy(logits, term, reduction="sum") + penalty) / len(x)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    whole = nn.Linear(x.shape[-1], 24)
    with torch.no_grad():
        whole.weight.copy_(codes @ fitted.weight)
        whole.bias.copy_(bias)
    return whole


def linear(read: Reading, said: Reading, decay: float) -> Predictor:
    """Logits that are linear in what is read, by a number for every part of what is said."""

    def predict(rows: Orders, places: Tensor) -> Tensor:
        codes = said(places_of_terms())
        fitted = logistic(read(rows.places), rows.term, codes, decay)
        logits: Tensor = fitted(read(places))
        return logits.log_softmax(-1).detach()

    return predict


@cache
def all_orders() -> Tensor:
    """The places of six kinds in all 720 orders."""
    return torch.tensor(list(permutations(range(6))))


def mallows(sharpness: float, parts: int = 150) -> Reading:
    """Coordinates whose products are exp(−sharpness · pairs in which two orders differ)."""
    signs = pairs(all_orders()).double()
    apart = (signs.shape[-1] - signs @ signs.T) / 2
    values, vectors = torch.linalg.eigh((-sharpness * apart).exp())
    table = (vectors * values.clamp(min=0).sqrt())[:, -parts:].float()
    number = {tuple(order): row for row, order in enumerate(all_orders().tolist())}

    def read(places: Tensor) -> Tensor:
        found: Tensor = table[[number[tuple(order)] for order in places.tolist()]]
        return found

    return read


def neighbours(sharpness: float) -> Predictor:
    """How often each order is among the rows, those with like orders counting for more."""

    def predict(rows: Orders, places: Tensor) -> Tensor:
        apart = 15 - pairs(places) @ pairs(rows.places).T
        weights = (-sharpness * apart / 2).exp()
        counts = weights @ F.one_hot(rows.term, 24).float()
        counts = counts + most_frequent(rows, places).exp()
        return (counts / counts.sum(-1, keepdim=True)).log()

    return predict


def plackett_luce(tastes: int, steps: int = 200) -> Predictor:
    """A mixture of tastes, each with a worth of every kind: given the taste, both orders are drawn one by one."""

    def drawn(worth: Tensor, places: Tensor) -> Tensor:
        """The log-probability of orders for each taste, ``(N, tastes)``."""
        best_first = worth[:, places.argsort(-1)]
        rest = best_first.flip(-1).logcumsumexp(-1).flip(-1)
        return (best_first - rest).sum(-1).T

    def predict(rows: Orders, places: Tensor) -> Tensor:
        torch.manual_seed(0)
        share = torch.zeros(tastes, requires_grad=True)
        worth = (0.3 * torch.randn(tastes, 10)).requires_grad_()
        optimizer = torch.optim.Adam([share, worth], 0.05)
        for _ in range(steps):
            given = share.log_softmax(-1) + drawn(worth[:, :6], rows.places)
            asked = drawn(worth[:, 6:], places_of_terms())[rows.term]
            loss = -(given + asked).logsumexp(-1).mean()
            loss = loss + 1e-3 * worth.square().sum() / tastes
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            given = share.log_softmax(-1) + drawn(worth[:, :6], places)
            asked = drawn(worth[:, 6:], places_of_terms())
            return (given.softmax(-1) @ asked.T.exp()).log()

    return predict


def networks(method: sushi.Method, members: int) -> Predictor:
    """The networks of ``sushi.py``, as many as told, without a choice of the epoch."""

    def predict(rows: Orders, places: Tensor) -> Tensor:
        torch.manual_seed(0)
        settings = sushi.Settings(members=members)
        chosen = sushi.Candidate(0.5, 0.0)
        reads = method == "multiplexnet-ranks"
        model = sushi.Layered(settings, chosen, members, ranks=reads)
        epochs = sushi.RANKS_EPOCHS
        steps = epochs * -(-len(rows.term) // settings.batch)
        optimizer = torch.optim.AdamW(
            model.parameters(), settings.rate, weight_decay=settings.decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, steps)
        x, y = matrix(rows.places), model.orders[rows.term]
        for _ in range(epochs):
            for index in torch.split(torch.randperm(len(x)), settings.batch):
                optimizer.zero_grad()
                model(x[index], y[index]).backward()
                optimizer.step()
                schedule.step()
        model.eval()
        return model.together(matrix(places)).detach()

    return predict


CANDIDATES: dict[str, Predictor] = {
    "most frequent": most_frequent,
    "linear: bits to orders": linear(matrix, itself, 30),
    "linear: pairs to orders": linear(pairs, itself, 100),
    "linear: ranks to orders": linear(ranks, itself, 10),
    "linear: bits to bits": linear(matrix, matrix, 10),
    "linear: bits to pairs": linear(matrix, pairs, 10),
    "linear: bits to ranks": linear(matrix, ranks, 10),
    "neighbours": neighbours(0.6),
    "kernel to orders": linear(mallows(0.1), itself, 5),
    "kernel to pairs": linear(mallows(0.1), pairs, 5),
    "Plackett–Luce, 4 tastes": plackett_luce(4),
    "Plackett–Luce, 10 tastes": plackett_luce(10),
    "network: bits": networks("multiplexnet-average", 1),
    "network: ranks": networks("multiplexnet-ranks", 1),
    "8 networks: bits": networks("multiplexnet-average", 8),
    "8 networks: ranks": networks("multiplexnet-ranks", 8),
}


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings(harness.Common):
    """Predictors of an order, compared on rows that are not reported on."""

    seeds: tuple[int, ...] = harness.option((0, 1), "ways to fold the rows")
    candidates: tuple[str, ...] = harness.option(
        tuple(CANDIDATES), "which predictors; without it, all"
    )

    def for_quick(self) -> Self:
        few = ("most frequent", "linear: ranks to orders", "network: ranks")
        return replace(self, seeds=(0,), candidates=few)


def folded(rows: Orders, seed: int, predict: Predictor) -> Tensor:
    """The log-probabilities of all rows, each by a model that learned from the other folds."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(len(rows.term), 24)
    for fold in torch.randperm(len(rows.term), generator=generator).chunk(FOLDS):
        others = torch.ones(len(rows.term), dtype=torch.bool)
        others[fold] = False
        known = Orders(rows.places[others], rows.term[others])
        found[fold] = predict(known, rows.places[fold])
    return found


def main(settings: Settings) -> None:
    """A line for every candidate and way to fold."""
    results = harness.Results("sushi-predictors", settings)
    rows = loaded(settings)
    for name in settings.candidates:
        for seed in settings.seeds:
            with results.run({"method": name, "seed": seed}) as run:
                if run.done:
                    continue
                log_p = folded(rows, seed, CANDIDATES[name])
                right = log_p.argmax(-1) == rows.term
                run.finish(
                    exact=float(right.double().mean()),
                    likelihood=-float(F.nll_loss(log_p.double(), rows.term)),
                    rows=len(rows.term),
                )


if __name__ == "__main__":
    harness.command(Settings, main)
