"""Digits from sums: rows of images of which nothing is known but the sum of the two numbers that they show.

A row has two numbers of N digits, 2N images, and their sum. A label net q(y|x) learns by the probability of the sum,

    log P(sum | images) = log Σ Π q(digit | image)   over all digits that add up to it,

exactly. Ten to the power of 2N combinations are never written out: the terms of one column, a + b + carry = 10·after +
digit, are what ``mx.FiniteTerms`` finds (200 of them), and the carry leads from column to column.

Whether sums tell digits apart at all is asked before training, of ``mx.symmetries``. Two cases in which they do not:

* ``parity``: only whether the sum is odd is known. More than 28,000 relabellings keep this rule;
* ``half``: digits 0 … 4, and the only pairs are 0 + 0, 0 + 1, 2 + 3 and 2 + 4 (MNIST-Half of rsbench, by memory). No
  permutation of labels keeps all sums, but two other *maps* of digits to labels do: 2, 3, 4 as 3, 2, 3 or as 4, 1, 2.
  The evidence ratio tells these from the truth: they use labels unevenly. With it as the loss, digits are found.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import data
import harness
import torch
from matplotlib.figure import Figure
from mnist import Digits, Encoder, all_labels, label_net, log_labels, one_cycle, stepped
from torch import Tensor, nn

import multiplexnet as mx

Case = Literal["sum-1", "sum-2", "sum-4", "parity", "half"]
Method = Literal["likelihood", "evidence"]

HALF = ((0, 0), (0, 1), (2, 3), (2, 4))
"""The pairs of digits that occur in the case ``half``."""

NEVER = -1e4
"""The log-probability of what is known not to be so: as good as −inf, with a gradient."""


@dataclass(frozen=True)
class Settings(harness.Common):
    """Digits learned from sums, and from too little."""

    seeds: tuple[int, ...] = harness.option((0,), "one run for each")
    cases: tuple[Case, ...] = harness.option(Case.__args__, "what is known of a row")  # type: ignore[attr-defined]
    methods: tuple[Method, ...] = harness.option(
        ("likelihood", "evidence"),
        "the loss: of what is known given the images; or the evidence ratio (case half only)",
    )
    encoders: tuple[Encoder, ...] = harness.option(("mlp", "cnn"), "the label net")
    images: int = harness.option(256, "a step")
    rate: float = harness.option(4e-3, "highest learning rate")
    validation: int = harness.option(
        5_000, "last training images, set aside for the choice of the epoch"
    )
    rows: int | None = harness.option(None, "only so many rows to train on")
    curve: tuple[int, ...] = harness.option(
        (),
        "a run for each of these numbers of rows, in as many steps as with all; to addition-curve.jsonl",
    )

    def for_quick(self) -> Self:
        return replace(
            self, cases=("sum-1", "half"), encoders=("mlp",), epochs=1, rows=4000
        )

    def epochs_of(self, case: Case) -> int:
        """Epochs of training: rows of four-digit numbers say less, and there are fewer of them."""
        return self.epochs or {"sum-4": 6, "parity": 2, "half": 2}.get(case, 4)


# --- what is known ---------------------------------------------------------------------------------------------------

ADDENDS = "a: int[0, 9]; b: int[0, 9]"
COLUMN = f"""
{ADDENDS}; carry: int[0, 1]; digit: int[0, 9]; after: int[0, 1]
a + b + carry == 10 * after + digit
"""
QUESTIONS = {
    "sum-1": f"{ADDENDS}; s: int[0, 18]; zero: bool\na + b == s\niff(zero, s == 0)",
    "sum-2": f"{ADDENDS}; s: int[0, 19]; zero: bool\n0 <= s - a - b <= 1\niff(zero, s == 0)",
    "parity": f"{ADDENDS}; odd: int[0, 1]\n(a + b) % 2 == odd",
    "half": """a: int[0, 4]; b: int[0, 4]; s: int[0, 3]; zero: bool
        (s == 0 and a + b == 0) or (s == 1 and a + b == 1) or (s == 2 and a + b == 5) or (s == 3 and a + b == 6)
        iff(zero, s == 0)""",
}
"""What ``mx.symmetries`` is asked. A sum is seen, so its labels cannot be renamed: ``zero`` fixes one of them, which is
enough. Of longer numbers it is asked about the first column, whose carry is not seen; s are the first two digits."""


@cache
def column() -> mx.FiniteTerms:
    """The terms of one column of an addition."""
    return mx.FiniteTerms(mx.Rules(COLUMN))


@cache
def prediction(case: Case) -> mx.learning.symmetry.Symmetries:
    """Which relabellings of digits keep what is known."""
    rules = mx.Rules(QUESTIONS["sum-2" if case == "sum-4" else case])
    names = ["digit", "digit", *(variable.name for variable in rules.outputs[2:])]
    return mx.symmetries(rules, classifier=names)


def shortcuts() -> list[tuple[int, ...]]:
    """All maps of the digits 0 … 4 to labels that keep every sum of the case ``half``; the identity is one."""
    return [
        labels
        for labels in product(range(5), repeat=5)
        if all(labels[a] + labels[b] == a + b for a, b in HALF)
    ]


@cache
def half_ratio() -> mx.EvidenceRatio:
    """The evidence ratio of two digits and their sum."""
    rules = mx.Rules("a: int[0, 4]; b: int[0, 4]; s: int[0, 8]\na + b == s")
    return mx.EvidenceRatio(mx.FiniteTerms(rules), classifier=["digit", "digit", "sum"])


def seen(values: Tensor, size: int) -> Tensor:
    """The log-probabilities of something that is known: ``(*batch, size)``."""
    return NEVER * (1 - nn.functional.one_hot(values, size).float())


def log_sum(log_q: Tensor, digits: Tensor) -> Tensor:
    """log P(sum) of rows, ``(B,)``, from labels ``(B, 2, N, 10)`` and the digits of the sum, ``(B, N + 1)``."""
    terms = column()
    after = terms.codes(0)[:, 4]
    carry = seen(torch.zeros_like(digits[:, 0]), 2)
    for place in reversed(range(log_q.shape[2])):
        a, b = log_q[:, 0, place], log_q[:, 1, place]
        known = seen(digits[:, place + 1], 10)
        free = torch.zeros_like(carry)
        (scores,) = terms.scores([a, b, carry, known, free])
        sides = [scores[:, after == value].logsumexp(-1) for value in (0, 1)]
        carry = torch.stack(sides, -1)
    return carry.gather(-1, digits[:, :1]).squeeze(-1)


# --- data ------------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Image numbers ``(B, 2, N)``, the digits that they show, and what is known: digits of the sum, or its parity."""

    images: Tensor
    labels: Tensor
    known: Tensor

    def first(self, count: int | None) -> Rows:
        """Only so many of them."""
        return Rows(self.images[:count], self.labels[:count], self.known[:count])


def places_of(case: Case) -> int:
    """The number N of digits of a number."""
    return int(case[-1]) if case.startswith("sum") else 1


def rows_of(case: Case, digits: Digits, seed: int, limit: int | None = None) -> Rows:
    """Every image in one row (in the case ``half``, images as the pairs need them), always the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    if case == "half":
        images = half_images(digits, generator)
    else:
        images = torch.randperm(len(digits.labels), generator=generator)
        size = 2 * places_of(case)
        images = images[: len(images) // size * size].reshape(-1, 2, places_of(case))
    images = images[:limit]
    labels = digits.labels[images]
    return Rows(images, labels, known_of(case, labels))


def half_images(digits: Digits, generator: torch.Generator) -> Tensor:
    """Pairs of images ``(B, 2, 1)``, as many as there are images of digits 0 … 4 by two."""
    count = int((digits.labels < 5).sum()) // 2
    which = torch.randint(len(HALF), (count,), generator=generator)
    wanted = torch.tensor(HALF)[which]
    place = torch.rand(wanted.shape, generator=generator)
    images = torch.empty_like(wanted)
    for digit in range(5):
        here = wanted == digit
        own = digits.of_digit[digit]
        images[here] = own[(place[here] * len(own)).long()]
    return images.unsqueeze(-1)


def known_of(case: Case, labels: Tensor) -> Tensor:
    """What is known of rows: the digits of the sum, ``(B, N + 1)``; or the sum, or its parity, ``(B, 1)``."""
    count = labels.shape[-1]
    powers = 10 ** torch.arange(count - 1, -1, -1)
    total = (labels * powers).sum((1, 2)).unsqueeze(-1)
    if case == "parity":
        return total % 2
    if case == "half":
        return total
    return total // 10 ** torch.arange(count, -1, -1) % 10


# --- model -----------------------------------------------------------------------------------------------------------


class Known(nn.Module):
    """The loss of rows of images, ``(B, 2, N, 28, 28)``, of which something is known."""

    def __init__(self, labels: nn.Module, case: Case, method: Method) -> None:
        super().__init__()
        self.labels, self.case, self.method = labels, case, method

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        return known_loss(log_labels(self.labels, x), known, self.case, self.method)


def known_loss(log_q: Tensor, known: Tensor, case: Case, method: Method) -> Tensor:
    """The mean loss of labels ``(B, 2, N, 10)``."""
    if method == "evidence":
        return evidence(log_q, known)
    if case == "parity":
        odd = log_q[:, :, 0].reshape(-1, 2, 5, 2).logsumexp(2)
        even_sum = torch.logsumexp(odd[:, 0] + odd[:, 1], -1)
        odd_sum = torch.logsumexp(odd[:, 0] + odd[:, 1].flip(-1), -1)
        return -torch.stack([even_sum, odd_sum], -1).gather(-1, known).mean()
    if case == "half":
        log_q = log_q[:, :, 0, :5].log_softmax(-1)
        terms = half_ratio().terms
        given = [log_q[:, 0], log_q[:, 1], seen(known[:, 0], 9)]
        return -terms.log_satisfaction(given).mean()
    return -log_sum(log_q, known).mean()


def evidence(log_q: Tensor, known: Tensor) -> Tensor:
    """The evidence ratio of two digits 0 … 4 and their sum, which needs no labels."""
    log_q = log_q[:, :, 0, :5].log_softmax(-1)
    ratio: Tensor = half_ratio()([log_q[:, 0], log_q[:, 1], seen(known[:, 0], 9)])
    return ratio


# --- training and measuring ------------------------------------------------------------------------------------------


@torch.no_grad()
def measure(
    labels: nn.Module, case: Case, method: Method, digits: Digits, rows: Rows
) -> dict[str, Any]:
    """The loss of rows, the share of rows whose most probable labels give what is known, that of right labels."""
    log_q = all_labels(labels, digits, torch.device("cpu"))[rows.images]
    if case == "half":
        log_q = log_q[..., :5].log_softmax(-1)
    found = log_q.argmax(-1)
    right = (known_of(case, found) == rows.known).all(-1)
    values: dict[str, Any] = {
        "loss": float(known_loss(log_q, rows.known, case, method)),
        "accuracy": float(right.double().mean()),
        "digits": float((found == rows.labels).double().mean()),
    }
    if case == "half":
        values["evidence"] = float(evidence(log_q, rows.known))
        truth = seen(rows.labels, 5)
        values["evidence_of_truth"] = float(evidence(truth, rows.known))
        values["labels"] = confusion(rows.labels, found)
    return values


def confusion(digits: Tensor, labels: Tensor) -> list[list[float]]:
    """For each digit 0 … 4 the shares of labels 0 … 4 that it gets."""
    pairs = torch.bincount(5 * digits.flatten() + labels.flatten(), minlength=25)
    counts = pairs.reshape(5, 5).double()
    shares: list[list[float]] = (counts / counts.sum(1, keepdim=True)).tolist()
    return [[round(share, 4) for share in row] for row in shares]


def one_run(run: harness.Run, settings: Settings) -> None:
    """Predict, train, choose the epoch by the loss on held-out rows, report on test rows."""
    case, method, encoder = (run.key[name] for name in ("case", "method", "encoder"))
    train, train_labels, test, test_labels = data.mnist(settings.data)
    kept = len(train) - settings.validation
    digits, held_out, unseen = (
        Digits(train[:kept], train_labels[:kept]),
        Digits(train[kept:], train_labels[kept:]),
        Digits(test, test_labels),
    )
    order = prediction(case).order
    every = rows_of(case, digits, run.key["seed"], settings.rows)
    rows = every.first(run.key.get("rows"))
    run.seed(run.key["seed"])
    labels = label_net(encoder, 0.3)
    batch = settings.images // (2 * places_of(case))
    epochs = settings.epochs_of(case)
    passes = max(1, len(every.images) // len(rows.images))
    steps = passes * math.ceil(len(rows.images) / batch)
    groups: list[dict[str, Any]] = [
        {"params": labels.parameters(), "lr": settings.rate}
    ]
    optimizer, schedule = one_cycle(groups, steps * epochs)
    phase, optimizer = run.prepare(Known(labels, case, method), optimizer)
    best = harness.Best()
    check = rows_of(case, held_out, 0)
    for epoch in run.epochs(
        epochs, phase=phase, optimizer=optimizer, schedule=schedule, best=best
    ):
        for index in (
            index
            for _ in range(passes)
            for index in run.batches(len(rows.images), batch)
        ):
            x = digits[rows.images[index]].to(run.device)
            stepped(run, phase(x, rows.known[index]), optimizer, schedule)
        value = measure(labels, case, method, held_out, check)["loss"]
        best.offer(value, epoch, labels)
        run.log(loss=value)
    best.restore(labels)
    found = measure(labels, case, method, unseen, rows_of(case, unseen, 0))
    found |= {"relabellings": order, "rows": len(rows.images)}
    run.finish(**{name: each for name, each in found.items() if name not in run.key})


# --- results ---------------------------------------------------------------------------------------------------------


def keys(settings: Settings) -> Iterator[dict[str, Any]]:
    """What tells each run from the others; the evidence ratio is for the case ``half``."""
    for encoder, case, method, seed in product(
        settings.encoders, settings.cases, settings.methods, settings.seeds
    ):
        if method == "likelihood" or case == "half":
            key = {"case": case, "method": method, "encoder": encoder, "seed": seed}
            yield from ({**key, "rows": rows} for rows in settings.curve)
            if not settings.curve:
                yield key


def draw(results: harness.Results, settings: Settings, path: Path) -> None:
    """Which labels the digits of the case ``half`` get, for every run."""
    lines = [
        line
        for line in results
        if line["case"] == "half" and line["encoder"] == settings.encoders[0]
    ]
    lines.sort(key=lambda line: (line["method"] == "evidence", line["seed"]))
    figure = Figure(figsize=(2.4 * len(lines) + 0.4, 3.4), layout="constrained")
    panels = figure.subplots(1, len(lines), sharey=True, squeeze=False)[0]
    for panel, line in zip(panels, lines, strict=True):
        panel.imshow(line["labels"], cmap="Greens", vmin=0, vmax=1)
        panel.plot(range(5), range(5), "o", mfc="none", mec="#c8372d", ms=12)
        title = f"{line['method']}, seed {line['seed']}"
        panel.set_title(f"{title}\nevidence ratio {line['evidence']:.2f}", fontsize=9)
        panel.set(xticks=range(5), yticks=range(5), xlabel="label")
    panels[0].set_ylabel("digit (circles: the truth)")
    figure.savefig(path, dpi=110)


def main(settings: Settings) -> None:
    """What is predicted, then all runs of the settings, then the picture."""
    for case in settings.cases:
        print(f"{case}: {prediction(case)}")
    if "half" in settings.cases:
        print(f"half: maps of digits 0 … 4 that keep all sums seen: {shortcuts()}")
    results = harness.Results(
        "addition-curve" if settings.curve else "addition", settings
    )
    for key in keys(settings):
        with results.run(key) as run:
            if not run.done:
                one_run(run, settings)
    pictured = "half" in settings.cases and not settings.curve
    if results.accelerator.is_main_process and pictured:
        draw(results, settings, settings.figures_folder / "addition_half.png")


if __name__ == "__main__":
    harness.command(Settings, main)
