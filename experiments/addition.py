"""Digits from sums: rows of images of which nothing is known but the sum of the two numbers that they show.

A row has two numbers of N digits, 2N images, and their sum. A label net q(y|x) learns by the probability of the sum,

    log P(sum | images) = log Σ Π q(digit | image)   over all digits that add up to it,

exactly. Ten to the power of 2N combinations are never written out: the terms of one column, a + b + carry = 10·after +
digit, are what ``mx.FiniteTerms`` finds (200 of them), and the carry leads from column to column.

In the cases ``free-N`` the sum is not known either: its N + 1 digits are images, too, as in ``mnist.py``. The loss is
then the evidence ratio of 10 to the power of 2N terms, by the same columns.

Whether labels can be told apart at all is asked before training. ``mx.symmetries`` says which permutations of labels
keep what is known, ``mx.shortcuts`` which maps of digits to labels do. Every run ends in one of these maps:

* ``sum-N``: the identity alone, so that digits are found;
* ``free-N``: the identity, and the map of all digits to 0. The evidence ratio tells one from the other: labels that are
  all alike are worth nothing to it. The likelihood does not;
* ``parity``: only whether the sum is odd is known, and 2 · 5¹⁰ maps keep that;
* ``half``: digits 0 … 4, and the only pairs are 0 + 0, 0 + 1, 2 + 3 and 2 + 4 (MNIST-Half of rsbench, by memory). No
  permutation of labels keeps all sums, but two other maps do: 2, 3, 4 as 3, 2, 3 or as 4, 1, 2. The evidence ratio
  tells these from the truth: they use labels unevenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import data
import harness
import torch
from matplotlib.figure import Figure
from mnist import Digits, Encoder, all_labels, label_net, log_labels, one_cycle, stepped
from torch import Tensor, nn

import multiplexnet as mx

Case = Literal[
    "sum-1", "sum-2", "sum-4", "free-1", "free-2", "free-4", "parity", "half"
]
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
        "the loss: of what is known given the images; or the evidence ratio (cases half and free-N)",
    )
    encoders: tuple[Encoder, ...] = harness.option(("mlp", "cnn"), "the label net")
    images: int = harness.option(256, "a step")
    free_images: int = harness.option(
        1024,
        "a step in the cases free-N, whose loss looks at how often labels are used",
    )
    rate: float = harness.option(4e-3, "highest learning rate")
    validation: int = harness.option(
        5_000, "last training images, set aside for the choice of the epoch"
    )
    rows: int | None = harness.option(None, "only so many rows to train on")
    curve: tuple[int, ...] = harness.option(
        (),
        "a run for each of these numbers of rows, in as many steps as with all; to addition-curve.jsonl",
    )

    predict: bool = harness.option(
        False, "say what is predicted, to addition-predicted.jsonl, and train nothing"
    )

    def for_quick(self) -> Self:
        return replace(
            self, cases=("sum-1", "half"), encoders=("mlp",), epochs=1, rows=4000
        )

    def epochs_of(self, case: Case) -> int:
        """Epochs of training: rows of four-digit numbers say less, and there are fewer of them."""
        return self.epochs or {"sum-4": 6, "parity": 2, "half": 2}.get(case, 4)

    def batch_of(self, case: Case) -> int:
        """Rows a step."""
        if is_free(case):
            return self.free_images // (3 * places_of(case) + 1)
        return self.images // (2 * places_of(case))


# --- what is known ---------------------------------------------------------------------------------------------------

ADDENDS = "a: int[0, 9]; b: int[0, 9]"
COLUMN = f"""
{ADDENDS}; carry: int[0, 1]; digit: int[0, 9]; after: int[0, 1]
a + b + carry == 10 * after + digit
"""
QUESTIONS = {
    "sum-1": f"{ADDENDS}; s: int[0, 18]; zero: bool\na + b == s\niff(zero, s == 0)",
    "sum-2": f"{ADDENDS}; s: int[0, 19]; zero: bool\n0 <= s - a - b <= 1\niff(zero, s == 0)",
    "free-1": f"{ADDENDS}; tens: int[0, 9]; units: int[0, 9]\na + b == 10 * tens + units",
    "free-2": f"{ADDENDS}; tens: int[0, 9]; units: int[0, 9]\n0 <= 10 * tens + units - a - b <= 1",
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
    """Which permutations of the digits' labels keep what is known."""
    rules = mx.Rules(QUESTIONS[case.replace("-4", "-2")])
    if is_free(case):
        return mx.symmetries(rules)
    names = ["digit", "digit", *(variable.name for variable in rules.outputs[2:])]
    return mx.symmetries(rules, classifier=names)


@cache
def shortcuts(case: Case) -> mx.learning.shortcuts.Shortcuts:
    """Which maps of digits to labels keep what is known.

    Of longer numbers it is asked about the sums whose digits are zero but for the last two. There are more in the data:
    a map that keeps those keeps these.
    """
    if case == "parity":
        return mx.shortcuts(QUESTIONS["parity"], given=["odd"])
    if case == "half":
        rules = "a: int[0, 4]; b: int[0, 4]; s: int[0, 8]\na + b == s"
        return mx.shortcuts(rules, [(a, b, a + b) for a, b in HALF], given=["s"])
    count = places_of(case)
    addends = torch.cartesian_prod(torch.arange(10), torch.arange(10))
    numbers = torch.zeros(100, 2, count, dtype=torch.int64)
    numbers[:, :, -1] = addends
    total = addends.sum(1, keepdim=True)
    if not is_free(case):
        rows = torch.cat([numbers.flatten(1), total], 1)
        return mx.shortcuts(long_sum(count, "total"), rows, given=["total"])
    rows = torch.cat([numbers.flatten(1), digits_of(total, count + 1)], 1)
    return mx.shortcuts(long_sum(count, "digits"), rows)


def long_sum(count: int, result: Literal["total", "digits"]) -> str:
    """The rule of a sum of two numbers of so many digits: of a total, or of the digits of one."""
    powers = [10**place for place in reversed(range(count + 1))]
    places = zip(powers[1:], range(count), strict=True)
    left = " + ".join(f"{power} * (a[{n}] + b[{n}])" for power, n in places)
    numbers = f"a: int[0, 9][{count}]; b: int[0, 9][{count}]"
    if result == "total":
        return f"{numbers}; total: int[0, {2 * powers[0] - 2}]\n{left} == total"
    right = " + ".join(f"{power} * s[{n}]" for n, power in enumerate(powers))
    return f"{numbers}; s: int[0, 9][{count + 1}]\n{left} == {right}"


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
    return log_addition(log_q, seen(digits, 10))


def log_addition(log_q: Tensor, log_digits: Tensor) -> Tensor:
    """log of the sum over all additions of what their digits weigh, ``(B,)``.

    Args:
        log_q: of the addends, ``(B, 2, N, 10)``.
        log_digits: of the sum, ``(B, N + 1, 10)``.
    """
    terms = column()
    after = terms.codes(0)[:, 4]
    carry = seen(torch.zeros(len(log_q), dtype=torch.int64), 2)
    for place in reversed(range(log_q.shape[2])):
        a, b = log_q[:, 0, place], log_q[:, 1, place]
        free = torch.zeros_like(carry)
        (scores,) = terms.scores([a, b, carry, log_digits[:, place + 1], free])
        sides = [scores[:, after == value].logsumexp(-1) for value in (0, 1)]
        carry = torch.stack(sides, -1)
    return (carry + log_digits[:, 0, :2]).logsumexp(-1)


def free_loss(log_q: Tensor, method: Method) -> Tensor:
    """The mean loss of labels of two numbers and their sum, all images: ``(B, 3N + 1, 10)``.

    It is −log of the probability that they add up, or the evidence ratio: labels are then weighed against p̄, how often
    they are given to addends and to the digits of sums but the first, which are 0 or 1.
    """
    count = log_q.shape[1] // 3
    if method == "evidence":
        fair = torch.cat([log_q[:, : 2 * count], log_q[:, 2 * count + 1 :]], 1)
        fair = fair.flatten(0, 1)
        log_q = log_q - (fair.logsumexp(0) - math.log(len(fair)))
    addends = log_q[:, : 2 * count].reshape(-1, 2, count, 10)
    found = log_addition(addends, log_q[:, 2 * count :])
    if method == "evidence":
        found = found - 2 * count * math.log(10)
    return -found.mean()


# --- data ------------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Image numbers ``(B, 2, N)``, the digits that they show, and what is known: digits of the sum, or its parity.

    In the cases ``free-N`` there are images of the sum, too, ``(B, 3N + 1)``, and what is known is that they add up.
    """

    images: Tensor
    labels: Tensor
    known: Tensor

    def first(self, count: int | None) -> Rows:
        """Only so many of them."""
        return Rows(self.images[:count], self.labels[:count], self.known[:count])


def places_of(case: Case) -> int:
    """The number N of digits of a number."""
    return int(case[-1]) if "-" in case else 1


def is_free(case: Case) -> bool:
    """Whether the sum is not known, but shown."""
    return case.startswith("free")


def rows_of(case: Case, digits: Digits, seed: int, limit: int | None = None) -> Rows:
    """Every image in one row (in the case ``half``, images as the pairs need them), always the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    if case == "half":
        images = half_images(digits, generator)
    else:
        images = torch.randperm(len(digits.labels), generator=generator)
        size = 2 * places_of(case)
        images = images[: len(images) // size * size].reshape(-1, 2, places_of(case))
    if is_free(case):
        images = with_sums(digits, images, generator)
    images = images[:limit]
    labels = digits.labels[images]
    return Rows(images, labels, known_of(case, labels))


def half_images(digits: Digits, generator: torch.Generator) -> Tensor:
    """Pairs of images ``(B, 2, 1)``, as many as there are images of digits 0 … 4 by two."""
    count = int((digits.labels < 5).sum()) // 2
    which = torch.randint(len(HALF), (count,), generator=generator)
    return showing(digits, torch.tensor(HALF)[which], generator).unsqueeze(-1)


def with_sums(digits: Digits, images: Tensor, generator: torch.Generator) -> Tensor:
    """Images of two numbers, ``(B, 2, N)``, and of the digits of their sum: ``(B, 3N + 1)``."""
    total = known_of("sum-1", digits.labels[images])
    return torch.cat([images.flatten(1), showing(digits, total, generator)], 1)


def showing(digits: Digits, wanted: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers of images that show the digits that are wanted, drawn from all of these."""
    place = torch.rand(wanted.shape, generator=generator)
    images = torch.empty_like(wanted)
    for digit, own in enumerate(digits.of_digit):
        here = wanted == digit
        images[here] = own[(place[here] * len(own)).long()]
    return images


def known_of(case: Case, labels: Tensor) -> Tensor:
    """What is known of rows: the digits of the sum, ``(B, N + 1)``; or the sum, its parity, or whether it is right."""
    if is_free(case):
        count = labels.shape[-1] // 3
        addends, shown = labels[:, : 2 * count], labels[:, 2 * count :]
        wanted = known_of("sum-1", addends.reshape(-1, 2, count))
        return (wanted == shown).all(-1, keepdim=True).long()
    count = labels.shape[-1]
    powers = 10 ** torch.arange(count - 1, -1, -1)
    total = (labels * powers).sum((1, 2)).unsqueeze(-1)
    if case == "parity":
        return total % 2
    if case == "half":
        return total
    return digits_of(total, count + 1)


def digits_of(total: Tensor, count: int) -> Tensor:
    """The digits of numbers ``(B, 1)``: ``(B, count)``."""
    return total // 10 ** torch.arange(count - 1, -1, -1) % 10


# --- model -----------------------------------------------------------------------------------------------------------


class Known(nn.Module):
    """The loss of rows of images, ``(B, …, 28, 28)``, of which something is known."""

    def __init__(self, labels: nn.Module, case: Case, method: Method) -> None:
        super().__init__()
        self.labels, self.case, self.method = labels, case, method

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        return known_loss(log_labels(self.labels, x), known, self.case, self.method)


def known_loss(log_q: Tensor, known: Tensor, case: Case, method: Method) -> Tensor:
    """The mean loss of labels ``(B, 2, N, 10)``; in the cases ``free-N``, ``(B, 3N + 1, 10)``."""
    if is_free(case):
        return free_loss(log_q, method)
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
        **followed(rows.labels, found),
    }
    if is_free(case):
        values["evidence"] = float(free_loss(log_q, "evidence"))
        truth = seen(rows.labels, 10)
        values["evidence_of_truth"] = float(free_loss(truth, "evidence"))
    if case == "half":
        values["evidence"] = float(evidence(log_q, rows.known))
        truth = seen(rows.labels, 5)
        values["evidence_of_truth"] = float(evidence(truth, rows.known))
        values["labels"] = confusion(rows.labels, found)
    return values


def followed(digits: Tensor, labels: Tensor) -> dict[str, Any]:
    """The label that each digit gets most often, and the share of images that get theirs."""
    pairs = torch.bincount(10 * digits.flatten() + labels.flatten(), minlength=100)
    most, label = pairs.reshape(10, 10).max(1)
    share = float(most.sum() / pairs.sum())
    count = int(digits.max()) + 1
    return {"map": label[:count].tolist(), "follow_map": share}


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
    order, wrong = prediction(case).order, shortcuts(case).count
    every = rows_of(case, digits, run.key["seed"], settings.rows)
    rows = every.first(run.key.get("rows"))
    run.seed(run.key["seed"])
    labels = label_net(encoder, 0.3)
    batch = settings.batch_of(case)
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
    found |= {"relabellings": order, "shortcuts": wrong, "rows": len(rows.images)}
    found["predicted"] = shortcuts(case).keeps([found["map"]])
    run.finish(**{name: each for name, each in found.items() if name not in run.key})


# --- results ---------------------------------------------------------------------------------------------------------


def keys(settings: Settings) -> Iterator[dict[str, Any]]:
    """What tells each run from the others; the evidence ratio is for the cases ``half`` and ``free-N``."""
    for encoder, case, method, seed in product(
        settings.encoders, settings.cases, settings.methods, settings.seeds
    ):
        if method == "likelihood" or case == "half" or is_free(case):
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


def foretold(case: Case) -> dict[str, Any]:
    """How many permutations and how many other maps keep what is known, and the first of the latter."""
    wrong = shortcuts(case)
    return {
        "relabellings": prediction(case).order,
        "shortcuts": wrong.count,
        "first": [*islice((labels for (labels,) in wrong), 3)],
    }


def main(settings: Settings) -> None:
    """What is predicted, then all runs of the settings, then the picture."""
    predicted = harness.Results("addition-predicted", settings)
    for case in settings.cases:
        print(f"{case}: {prediction(case)}\n{shortcuts(case)}")
        predicted.write({"case": case}, foretold(case))
    if settings.predict:
        return
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
