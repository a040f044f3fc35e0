"""Shortest paths on a 4 × 4 grid from which edges are removed: 24 bits of edges and 16 of ends, to 24 bits of a path.

The rules of a question say what a simple path between its two ends is. An end has one edge of the path, any other node
none or two; none of the 213 cycles of the grid is a part of it; and an edge that is removed, which is an input, is not
taken. The grid has 14,248 simple paths, more terms than one layer should have. For a fixed pair of ends there are at
most a few hundred, and turning and mirroring the grid leaves 21 pairs that differ: 21 layers serve all questions.

A network says a score for every edge; the logit of a path is the sum over its edges, and training maximises the
probability of the shortest paths:

* ``multiplexnet``: every answer is a simple path between the ends along edges that are there;
* ``multiplexnet-ends``: the layer is not told which edges are removed; the network sees it, and has to learn it;
* ``multiplexnet-first``: the same, trained and chosen by the first of the shortest paths alone, as published work is;
* ``rules-alone``: no network, every edge has the same score. What is left to learn is little, and this row says so;
* ``sigmoid``, each edge alone, ``sigmoid-path``, the same with the most probable path as its answer;
* ``semantic``: edges with the semantic loss (Xu et al. 2018), exact over the paths of the question.

The layers say which paths are open to a question; that is asked once and kept as a table, in which training and answers
look. One split of the questions for all seeds, that of published code: 60 % to train on, 20 % to choose epoch and
weight by, 20 % to report on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, Self

import data
import harness
import torch
from exact_matches import ExactMatches
from torch import Tensor, nn
from torch.nn import functional as F

import multiplexnet as mx

Method = Literal[
    "rules-alone",
    "sigmoid",
    "sigmoid-path",
    "semantic",
    "multiplexnet-ends",
    "multiplexnet-first",
    "multiplexnet",
]


@dataclass(frozen=True)
class Settings(harness.Common):
    """Shortest paths between two nodes of a grid with holes."""

    methods: tuple[Method, ...] = harness.option(Method.__args__, "what to train")  # type: ignore[attr-defined]
    hidden: int = harness.option(128, "units of the one hidden layer")
    dropout: float = harness.option(0.2, "share of hidden units that is left out")
    batch: int = harness.option(64, "questions a step")
    rate: float = harness.option(3e-3, "highest learning rate of AdamW")
    decay: float = harness.option(0.01, "weight decay")
    weights: tuple[float, ...] = harness.option(
        (0.1, 1.0, 10.0), "of the semantic loss; the best on validation rows is taken"
    )
    pairs: int | None = harness.option(
        None, "only questions of the so many most frequent pairs of ends"
    )

    def for_quick(self) -> Self:
        return replace(self, seeds=(0,), epochs=10, weights=(1.0,), pairs=1)


# --- the grid --------------------------------------------------------------------------------------------------------

NODES, EDGES = 16, 24


def joined(edge: int) -> tuple[int, int]:
    """The two nodes of an edge: edges 0 … 11 lie within rows, 12 … 23 within columns."""
    if edge < 12:
        node = 4 * (edge // 3) + edge % 3
        return node, node + 1
    node = 4 * ((edge - 12) % 3) + (edge - 12) // 3
    return node, node + 4


NUMBER = {frozenset(joined(edge)): edge for edge in range(EDGES)}
"""The edge between two nodes."""

AROUND = {
    node: [other for other in range(NODES) if frozenset((node, other)) in NUMBER]
    for node in range(NODES)
}


def walks(node: int, end: int, seen: frozenset[int]) -> Iterator[list[int]]:
    """The edges of all simple paths from a node to an end that pass no node twice, nor one that was seen."""
    for other in AROUND[node]:
        edge = NUMBER[frozenset((node, other))]
        if other == end:
            yield [edge]
        elif other not in seen:
            yield from ([edge, *rest] for rest in walks(other, end, seen | {other}))


@cache
def cycles() -> tuple[tuple[int, ...], ...]:
    """The edges of all simple cycles, each once, from its least node."""
    found = {
        tuple(sorted(walk))
        for node in range(NODES)
        for walk in walks(node, node, frozenset(range(node)))
        if len(walk) > 2
    }
    return tuple(sorted(found))


Turn = tuple[int, ...]
"""A symmetry of the square: where each node goes."""


@cache
def turns() -> tuple[Turn, ...]:
    """The eight symmetries of the square."""
    found = []
    for flipped in (False, True):
        cells = [(row, column) for row in range(4) for column in range(4)]
        if flipped:
            cells = [(column, row) for row, column in cells]
        for _ in range(4):
            cells = [(column, 3 - row) for row, column in cells]
            found.append(tuple(4 * row + column for row, column in cells))
    return tuple(found)


def canonical(ends: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The least pair of ends that a symmetry carries these to, and where it carries each edge."""

    def moved(turn: Turn) -> tuple[int, int]:
        low, high = sorted(turn[node] for node in ends)
        return low, high

    turn = min(turns(), key=moved)
    places = [
        NUMBER[frozenset(turn[node] for node in joined(edge))] for edge in range(EDGES)
    ]
    return moved(turn), tuple(places)


# --- rules and layers ------------------------------------------------------------------------------------------------


def rules_text(ends: tuple[int, int]) -> str:
    """What a simple path between two ends is, along edges that are present."""
    lines = ["present: input int[0, 1][24]", "edge: bool[24]"]
    for node in range(NODES):
        own = [NUMBER[frozenset((node, other))] for other in AROUND[node]]
        degree = "count([" + ", ".join(f"edge[{e}]" for e in own) + "])"
        lines.append(f"{degree} == 1" if node in ends else f"{degree} in {{0, 2}}")
    for cycle in cycles():
        lines.append("not (" + " and ".join(f"edge[{e}]" for e in cycle) + ")")
    lines.append("all(implies(edge[e], present[e] == 1) for e in range(24))")
    ways = [
        " and ".join(f"present[{e}] == 1" for e in walk)
        for walk in walks(ends[0], ends[1], frozenset([ends[0]]))
    ]
    lines.append("assume " + " or ".join(f"({way})" for way in ways))
    return "\n".join(lines)


@cache
def rules(ends: tuple[int, int]) -> mx.Rules:
    """Those of a pair of ends."""
    return mx.Rules(rules_text(ends))


@cache
def layer(ends: tuple[int, int]) -> mx.Multiplexer:
    """That of a pair of ends, built once and kept in the cache folder."""
    digest = hashlib.sha256((mx.__version__ + rules_text(ends)).encode()).hexdigest()
    path = data.cache() / "paths" / f"{ends[0]}-{ends[1]}-{digest[:16]}.pt"
    if path.exists():
        return mx.Multiplexer.from_state(torch.load(path, weights_only=True))
    mux = mx.Multiplexer(rules(ends), structure="terms", seconds=None)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(mux.state_dict(), path)
    return mux


@cache
def terms(ends: tuple[int, int]) -> Tensor:
    """The paths that a layer chooses from, in the order of its logits: ``(K, 24)``."""
    mux = layer(ends)
    found: Tensor = mux(torch.zeros(mux.in_features), present=torch.ones(EDGES)).x
    return found.detach()


# --- data ------------------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Questions that one layer answers.

    ``rows``: which ones. ``places``: for every question where its edges are among those of the layer, ``(B, 24)``.
    """

    ends: tuple[int, int]
    rows: Tensor
    places: Tensor

    def turned(self, edges: Tensor) -> Tensor:
        """Something about edges, ``(B, 24)``, as the layer numbers them."""
        return torch.zeros_like(edges).scatter(-1, self.places, edges)


class Rows(NamedTuple):
    """Questions.

    ``x``: edges present, then end nodes, ``(N, 40)``. ``y``: a shortest path, ``(N, 24)``. ``paths``: the simple paths
    between the ends, ``(N, K, 24)``, 0 beyond the last. ``between``: which of them there are; ``open``: those without a
    removed edge; ``right``: those that are listed as shortest; ``first``: the first of these, each ``(N, K)``.
    """

    x: Tensor
    y: Tensor
    paths: Tensor
    between: Tensor
    open: Tensor
    right: Tensor
    first: Tensor
    groups: list[Group]

    def cut(self, part: slice, groups: list[Group]) -> Rows:
        """A part of the questions, whose groups are these."""
        cut = {name: getattr(self, name)[part] for name in self._fields[:-1]}
        return Rows(**cut, groups=groups)


def bits(numbers: list[int], size: int) -> Tensor:
    """Ones at these places."""
    found = torch.zeros(size)
    found[numbers] = 1
    return found


def grouped(questions: list[data.Question]) -> list[Group]:
    """The questions by the layer that answers them."""
    members: dict[tuple[int, int], list[tuple[int, tuple[int, ...]]]] = {}
    for row, (_, (first, second), _) in enumerate(questions):
        ends, places = canonical((first, second))
        members.setdefault(ends, []).append((row, places))
    return [
        Group(
            ends,
            torch.tensor([row for row, _ in own]),
            torch.tensor([places for _, places in own]),
        )
        for ends, own in sorted(members.items())
    ]


def rows_of(questions: list[data.Question]) -> Rows:
    """Questions as tensors; which paths are open to each of them is what its layer says."""
    present = torch.stack([1 - bits(removed, EDGES) for removed, _, _ in questions])
    ends = torch.stack([bits(ends, NODES) for _, ends, _ in questions])
    listed = [[bits(path, EDGES) for path in paths] for _, _, paths in questions]
    groups = grouped(questions)
    most = max(len(terms(group.ends)) for group in groups)
    paths = torch.zeros(len(questions), most, EDGES)
    between = torch.zeros(len(questions), most, dtype=torch.bool)
    free = torch.zeros_like(between)
    for group in groups:
        found = terms(group.ends)
        mux = layer(group.ends)
        raw = torch.zeros(len(group.rows), mux.in_features)
        branches = mux(raw, present=group.turned(present[group.rows]))
        own = found[:, group.places].transpose(0, 1)
        paths[group.rows, : len(found)] = own
        between[group.rows, : len(found)] = True
        free[group.rows, : len(found)] = ~branches.logits.isneginf()
    right = torch.zeros_like(between)
    for row, every in enumerate(listed):
        for path in every:
            right[row] |= (paths[row] == path).all(-1) & between[row]
    y = torch.stack([every[0] for every in listed])
    first = (paths == y.unsqueeze(-2)).all(-1)
    x = torch.cat([present, ends], -1)
    return Rows(x, y, paths, between, free, right, first, groups)


def loaded(settings: Settings) -> list[data.Question]:
    """All questions, or those of the most frequent pairs of ends, symmetries apart."""
    questions = data.grid_paths(settings.data)
    pairs = [canonical((ends[0], ends[1]))[0] for _, ends, _ in questions]
    kept = {pair for pair, _ in Counter(pairs).most_common(settings.pairs)}
    return [q for q, pair in zip(questions, pairs, strict=True) if pair in kept]


def splits(questions: list[data.Question]) -> list[Rows]:
    """Questions to train on, to choose by and to report on: 60, 20 and 20 %, always the same."""
    mixed = [questions[i] for i in data.published_order(len(questions))]
    rows = rows_of(mixed)
    first, second = int(0.6 * len(mixed)), int(0.8 * len(mixed))
    cuts = (slice(first), slice(first, second), slice(second, None))
    return [rows.cut(cut, grouped(mixed[cut])) for cut in cuts]


# --- models ----------------------------------------------------------------------------------------------------------


class Scores(nn.Module):
    """The network of all methods: a score for every edge, by a hidden layer and a direct way beside it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.direct = nn.Linear(EDGES + NODES, EDGES)
        self.deep = nn.Sequential(
            nn.Linear(EDGES + NODES, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, EDGES),
        )

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.direct(x) + self.deep(x)
        return scores


class Model(nn.Module):
    """A method: its loss on rows with these numbers, its answers to all rows."""

    def __init__(self, method: Method, settings: Settings, weight: float) -> None:
        super().__init__()
        self.net = Scores(settings)
        self.method, self.weight = method, weight

    @property
    def knows_removed(self) -> bool:
        """Whether the layer is told which edges are removed."""
        return self.method not in ("multiplexnet-ends", "multiplexnet-first")

    def possible(self, rows: Rows) -> Tensor:
        """The paths that are chosen from, ``(N, K)``."""
        return rows.open if self.knows_removed else rows.between

    def wanted(self, rows: Rows) -> Tensor:
        """The paths that are right in training, ``(N, K)``."""
        return rows.first if self.method == "multiplexnet-first" else rows.right

    @property
    def as_bits(self) -> bool:
        """Whether edges have probabilities of their own."""
        return self.method in ("sigmoid", "sigmoid-path", "semantic")

    def forward(self, rows: Rows, index: Tensor) -> Tensor:
        scores = self.net(rows.x[index])
        logits = torch.einsum("bke,be->bk", rows.paths[index], scores)
        if self.as_bits:
            loss = F.binary_cross_entropy_with_logits(
                scores, rows.y[index], reduction="none"
            ).sum(-1)
            if self.weight:
                none = F.logsigmoid(-scores).sum(
                    -1
                )  # log-probability of no edge at all
                allowed = masked(logits, rows.open[index]).logsumexp(-1) + none
                loss = loss - self.weight * allowed
            return loss.mean()
        every = masked(logits, self.possible(rows)[index]).logsumexp(-1)
        right = masked(logits, self.wanted(rows)[index]).logsumexp(-1)
        return (every - right).mean()

    def chosen(self, rows: Rows) -> Tensor:
        """The position of the path with the largest logit among those of each question, ``(N,)``."""
        alone = self.method == "rules-alone"
        scores: Tensor = torch.full_like(rows.y, -1.0) if alone else self.net(rows.x)
        logits = torch.einsum("bke,be->bk", rows.paths, scores)
        return masked(logits, self.possible(rows)).argmax(-1)

    def answers(self, rows: Rows) -> Tensor:
        """Paths, or bits that need not be one, ``(N, 24)``."""
        if self.method in ("sigmoid", "semantic"):
            scores: Tensor = self.net(rows.x)
            return (scores > 0).float()
        return rows.paths[torch.arange(len(rows.x)), self.chosen(rows)]


def masked(logits: Tensor, possible: Tensor) -> Tensor:
    """Logits of what is possible, −inf elsewhere."""
    return logits.masked_fill(~possible, -torch.inf)


# --- training and measuring ------------------------------------------------------------------------------------------


@torch.no_grad()
def measure(model: Model, rows: Rows) -> dict[str, float]:
    """Shares of questions answered by a listed path and by the first of these; of answers that obey all rules."""
    model.eval()
    answers = model.answers(rows)
    model.train()
    obey = torch.zeros(len(answers), dtype=torch.bool)
    for group in rows.groups:
        present = group.turned(rows.x[group.rows, :EDGES])
        mine = group.turned(answers[group.rows])
        obey[group.rows] = rules(group.ends).satisfied(mine, present=present)
    share = float(obey.double().mean())
    return {
        "exact": answered(answers, rows, rows.right),
        "first": answered(answers, rows, rows.first),
        "consistent": share,
    }


def answered(answers: Tensor, rows: Rows, right: Tensor) -> float:
    """The share of questions that one of the right paths answers."""
    same = (rows.paths == answers.unsqueeze(-2)).all(-1)
    return float((same & right).any(-1).double().mean())


@torch.no_grad()
def merit(model: Model, rows: Rows) -> float:
    """What is chosen by: exact match, and right bits among equals."""
    model.eval()
    answers = model.answers(rows)
    model.train()
    bits = float((answers == rows.y).double().mean())
    return answered(answers, rows, model.wanted(rows)) + bits / (2 * len(rows.x))


def learned(
    run: harness.Run, method: Method, rows: Rows, held_out: Rows, settings: Settings
) -> tuple[Model, dict[str, float]]:
    """The model at its best epoch by exact match on held-out questions, and by the best weight; which these were."""
    epochs = settings.epochs or 40
    steps = epochs * -(-len(rows.x) // settings.batch)
    best = harness.Best()
    chosen = 0.0
    for weight in settings.weights if method == "semantic" else (0.0,):
        run.seed(run.key["seed"])
        model = Model(method, settings, weight)
        optimizer = torch.optim.AdamW(
            model.parameters(), settings.rate, weight_decay=settings.decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, steps)
        training, optimizer = run.prepare(model, optimizer)
        before = best.value
        for epoch in run.epochs(
            epochs,
            stage=f"weight {weight}",
            model=training,
            optimizer=optimizer,
            schedule=schedule,
            best=best,
        ):
            for index in run.batches(len(rows.x), settings.batch):
                loss = training(rows, index)
                run.check(loss)
                optimizer.zero_grad()
                run.backward(loss)
                optimizer.step()
                schedule.step()
            best.offer(-merit(model, held_out), epoch, model)
        chosen = weight if best.value < before else chosen
    best.restore(model)
    found = {"epoch": float(best.epoch)}
    return model, found | ({"weight": chosen} if method == "semantic" else {})


# --- results ---------------------------------------------------------------------------------------------------------

LITERATURE = {"SPL": 37.6, "Semantic Loss": 28.5}
"""Exact match in per cent, from memory of the literature and not checked here."""


def draw(results: harness.Results, settings: Settings, path: Path) -> None:
    """Answers of every seed that are the first path listed, and what is remembered of the literature."""
    picture = ExactMatches(
        "questions answered by the first shortest path listed, % (*: from memory)",
        width=122,
        beside=104,
        field="first",
    )
    picture.draw(results, settings.methods, LITERATURE, path)


def main(settings: Settings) -> None:
    """All runs of the settings, then the picture."""
    results = harness.Results("paths", settings)
    rows, held_out, test = splits(loaded(settings))
    for method in settings.methods:
        for seed in (0,) if method == "rules-alone" else settings.seeds:
            with results.run({"method": method, "seed": seed}) as run:
                if run.done:
                    continue
                if method == "rules-alone":
                    model = Model(method, settings, 0.0)
                    found = dict[str, float]()
                else:
                    model, found = learned(run, method, rows, held_out, settings)
                found["validation"] = measure(model, held_out)["exact"]
                run.finish(**measure(model, test), **found, rows=len(test.x))
    if results.accelerator.is_main_process:
        draw(results, settings, settings.figures_folder / "paths_exact.png")


if __name__ == "__main__":
    harness.command(Settings, main)
