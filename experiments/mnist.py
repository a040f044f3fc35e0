"""Label-free MNIST: ten digits learned from nothing but the rule of addition.

A row of data is four images (x₁, x₂, x₃, x₄) whose labels obey label(x₁) + label(x₂) = 10·label(x₃) + label(x₄). The
labels serve to draw the rows and to measure accuracy at the end; no training and no selection sees them.

The rule has 100 terms, and a label net q(y|x) weighs them: π_h ∝ Π_n q(h_n|x_n). It is learned in two phases:

* A, the label net alone, by the evidence ratio of the terms, a loss that also tells without labels whether it worked;
* B, a generative model of the images (M2 of Kingma et al. 2014) around it, by the free energy
  F = Σ_h π_h [Σ_n V(x_n, h_n) + log π_h + log 100] and four times the evidence ratio. The −ELBO is F.

The baseline m2 is the same model with the rule erased: four labels, each free.

``--fixed 300 1000 …`` asks how many rows that takes: phase A alone, on so many quadruples that never change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import data
import harness
import torch
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

import multiplexnet as mx

DIGITS = "a: int[0, 9]; b: int[0, 9]; tens: int[0, 9]; units: int[0, 9]"
ADDITION = f"{DIGITS}\na + b == 10 * tens + units"

Method = Literal["multiplexnet", "m2"]
Encoder = Literal["mlp", "cnn"]
Ablation = Literal[
    "none", "no-ratio-in-b", "full-initialisation", "no-augmentation", "joint", "paper"
]


@dataclass(frozen=True)
class Settings(harness.Common):
    """Digits learned without labels, from images of sums."""

    seeds: tuple[int, ...] = harness.option(tuple(range(10)), "one run for each")
    methods: tuple[Method, ...] = harness.option(
        ("multiplexnet", "m2"), "with the rule, without it"
    )
    encoders: tuple[Encoder, ...] = harness.option(("mlp", "cnn"), "the label net")
    ablations: tuple[Ablation, ...] = harness.option(
        ("none",),
        "what is left out of multiplexnet: the ratio in phase B; the small weights at the start, and restarts; "
        "the augmentation; phase A (joint); phase A and the ratio (paper). These lines go to mnist-ablations.jsonl",
    )
    fixed: tuple[int, ...] = harness.option(
        (),
        "phase A alone, on so many quadruples that never change, a run for each number; to mnist-fixed.jsonl",
    )
    label_epochs: int = harness.option(6, "epochs of phase A")
    quadruples: int = harness.option(
        20_480, "rows drawn for an epoch of phase A; of phase B three quarters"
    )
    batch: int = harness.option(256, "rows a step in phase A; in phase B half")
    restarts: int = harness.option(
        3, "how often phase A may start again when its evidence says that it is stuck"
    )
    stuck: float = harness.option(
        -3.9, "evidence ratio above which phase A starts again; a perfect one is −4.605"
    )
    validation: int = harness.option(
        5_000, "last training images, set aside for the choice of the epoch"
    )

    def for_quick(self) -> Settings:
        return replace(
            self,
            seeds=(0,),
            methods=("multiplexnet",),
            encoders=("mlp",),
            epochs=1,
            label_epochs=3,
        )

    def generative_epochs(self, plan: Phases) -> int:
        """Epochs of phase B: three after phase A; four, which take as long, without it."""
        return self.epochs if self.epochs is not None else 3 if plan.labels else 4


class Phases(NamedTuple):
    """What a method consists of.

    ``labels``: phase A. ``ratio``: the weight of the evidence ratio in phase B. ``slow``: the label net's learning rate
    in phase B. ``scale``: of the label net's last weights at the start. ``augmented``: images of phase A are distorted.
    ``restarts``: phase A starts again when it is stuck.
    """

    labels: bool
    ratio: float
    slow: float
    scale: float = 0.3
    augmented: bool = True
    restarts: bool = True


def phases(method: Method, ablation: Ablation) -> Phases:
    """The recipe, or what an ablation leaves of it."""
    if method == "m2" or ablation == "paper":
        return Phases(labels=False, ratio=0.0, slow=1.0, scale=1.0)
    recipe = Phases(labels=True, ratio=4.0, slow=0.1)
    return {
        "none": recipe,
        "no-ratio-in-b": recipe._replace(ratio=0.0),
        "full-initialisation": recipe._replace(scale=1.0, restarts=False),
        "no-augmentation": recipe._replace(augmented=False),
        "joint": recipe._replace(labels=False, slow=1.0),
    }[ablation]


# --- data ------------------------------------------------------------------------------------------------------------


class Digits:
    """Images in [0, 1], and rows of four of them whose labels obey the rule."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.of_digit = [(labels == digit).nonzero().squeeze(1) for digit in range(10)]

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.images[index].float() / 255

    def quadruples(self, rows: int, generator: torch.Generator) -> Tensor:
        """Image numbers ``(rows, 4)``: two uniform ones, one of the digit of their tens, one of that of their units."""
        addends = torch.randint(len(self.labels), (rows, 2), generator=generator)
        total = self.labels[addends].sum(1)
        place = torch.rand((rows, 2), generator=generator)
        result = torch.empty_like(addends)
        for column, wanted in enumerate((total // 10, total % 10)):
            for digit, images in enumerate(self.of_digit):
                here = wanted == digit
                result[here, column] = images[
                    (place[here, column] * len(images)).long()
                ]
        return torch.cat([addends, result], 1)

    def fixed(self, rows: int) -> Tensor:
        """The same quadruples always, for evaluation."""
        return self.quadruples(rows, torch.Generator().manual_seed(0))


class FewRows(Digits):
    """Images of which only some quadruples are known, the same in every epoch."""

    def __init__(self, digits: Digits, count: int, seed: int) -> None:
        super().__init__(digits.images, digits.labels)
        self.rows = digits.quadruples(count, torch.Generator().manual_seed(seed))

    def quadruples(self, rows: int, generator: torch.Generator) -> Tensor:
        """So many of them, ``(rows, 4)``: all as often as each other, or at most once where there are more."""
        passes = math.ceil(rows / len(self.rows))
        order = torch.cat(
            [torch.randperm(len(self.rows), generator=generator) for _ in range(passes)]
        )
        return self.rows[order[:rows]]


def distorted(images: Tensor) -> Tensor:
    """Images ``(N, 28, 28)``, each turned, scaled and sheared by up to 0.1 or 10° and moved by up to two pixels."""
    turn, wide, high, shear, right, down = (
        2 * torch.rand(6, len(images), device=images.device) - 1
    ).unbind()
    sine, cosine = (math.radians(10) * turn).sin(), (math.radians(10) * turn).cos()
    wide, high, shear, right, down = (
        1 + 0.1 * wide,
        1 + 0.1 * high,
        0.1 * shear,
        right / 7,
        down / 7,
    )
    rows = (
        (cosine * wide, shear - sine * high, right),
        (sine * wide, cosine * high, down),
    )
    maps = torch.stack([torch.stack(row, -1) for row in rows], -2)
    grid = F.affine_grid(maps, [len(images), 1, 28, 28], align_corners=False)
    return F.grid_sample(images.unsqueeze(1), grid, align_corners=False).squeeze(1)


# --- models ----------------------------------------------------------------------------------------------------------


def dense(features: int, out: int) -> list[nn.Module]:
    """A hidden layer."""
    return [nn.Linear(features, out), nn.BatchNorm1d(out), nn.ReLU()]


def halved(channels: int, out: int, kernel: int) -> list[nn.Module]:
    """A convolution that halves the image."""
    return [
        nn.Conv2d(channels, out, kernel, 2, kernel // 2, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(),
    ]


def label_net(encoder: Encoder, scale: float) -> nn.Sequential:
    """Images ``(N, 28, 28)`` to log q(y|x), ``(N, 10)``; nearly uniform at the start if ``scale`` is small.

    A confident random q leads into labellings in which chains of digits are off by one.
    """
    net: list[nn.Module]
    if encoder == "mlp":
        net = [nn.Flatten(), *dense(784, 250), *dense(250, 100)]
    else:
        convolutions = [*halved(1, 16, 5), *halved(16, 32, 5), *halved(32, 64, 3)]
        net = [
            nn.Unflatten(1, (1, 28)),
            *convolutions,
            nn.Flatten(),
            *dense(64 * 16, 128),
        ]
    last = nn.Linear(100 if encoder == "mlp" else 128, 10)
    with torch.no_grad():
        last.weight *= scale
    return nn.Sequential(*net, last, nn.LogSoftmax(1))


class M2(nn.Module):
    """p(x|y, z) p(z) p(labels | rules), and q(y|x) q(z|x): the generative model of four images and their labels.

    The first layer of the decoder is W z + C[y], so that the ten labels of an image share the product with z. Labels
    that no term has are not decoded.
    """

    def __init__(
        self, labels: nn.Module, terms: mx.FiniteTerms, latent: int = 50
    ) -> None:
        super().__init__()
        self.labels, self.terms = labels, terms
        self.encoder = nn.Sequential(
            nn.Flatten(), *dense(784, 250), *dense(250, 100), nn.Linear(100, 2 * latent)
        )
        self.of_z, self.of_y = (
            nn.Linear(latent, 100),
            nn.Parameter(torch.randn(10, 100)),
        )
        self.decoder = nn.Sequential(
            nn.ReLU(), nn.Linear(100, 250), nn.ReLU(), nn.Linear(250, 784)
        )
        marginals = torch.stack(self.terms.marginals(torch.zeros(4, 10)))
        self.possible = nn.Buffer(
            marginals.isfinite().nonzero()
        )  # pairs of a position and a label that it can have

    def images(self, z: Tensor, y: Tensor) -> Tensor:
        """Logits of the pixels for z ``(*batch, latent)`` and labels ``(*batch)``: ``(*batch, 784)``."""
        logits: Tensor = self.decoder(self.of_z(z) + self.of_y[y])
        return logits

    def costs(self, x: Tensor, kl_weight: float = 1.0) -> Tensor:
        """V(x_n, y) = −E log p(x_n|y, z) + KL(q(z|x_n) ‖ p(z)) of rows ``(B, 4, 28, 28)``: ``(B, 4, 10)``."""
        encoded: Tensor = self.encoder(x.flatten(0, 1))
        mean, log_variance = encoded.reshape(len(x), 4, -1).chunk(2, -1)
        kl = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(
            -1, keepdim=True
        )
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        position, label = self.possible[:, 0], self.possible[:, 1]
        logits = self.decoder(self.of_z(z)[:, position] + self.of_y[label])
        grey = x.flatten(2)[
            :, position
        ]  # the cross-entropy with grey values is that of binarised images, on average
        surprise = F.binary_cross_entropy_with_logits(
            logits, grey, reduction="none"
        ).sum(-1)
        costs = x.new_zeros(len(x), 40).index_copy(1, 10 * position + label, surprise)
        return costs.reshape(-1, 4, 10) + kl_weight * kl

    def free_energy(self, log_q: Tensor, costs: Tensor) -> Tensor:
        """Σ_h π_h [Σ_n V(x_n, h_n) + log π_h − log p(h)] of every row, block by block, p(h) uniform: ``(B,)``."""
        blocks = zip(self.terms.log_probs(log_q), self.terms.scores(costs), strict=True)
        return torch.stack(
            [
                (log_pi.exp() * (cost + log_pi + math.log(cost.shape[-1]))).sum(-1)
                for log_pi, cost in blocks
            ]
        ).sum(0)


@cache
def finite_terms(rules: str) -> mx.FiniteTerms:
    """What the compiler makes of the rules: 100 sums, or four times ten free digits."""
    return mx.FiniteTerms(mx.Rules(rules))


@cache
def evidence_ratio() -> mx.EvidenceRatio:
    """The loss of labels without labels. The tens are 0 or 1, no fair sample of digits: p̄(y) leaves them out."""
    return mx.EvidenceRatio(finite_terms(ADDITION), marginal=["a", "b", "units"])


def log_labels(labels: nn.Module, x: Tensor) -> Tensor:
    """log q(y|x) of rows of images ``(*batch, 28, 28)``: ``(*batch, 10)``."""
    found: Tensor = labels(x.flatten(0, -3))
    return found.reshape(*x.shape[:-2], 10)


class LabelPhase(nn.Module):
    """The loss of phase A: the evidence ratio of rows ``(B, 4, 28, 28)`` under the label net."""

    def __init__(self, labels: nn.Module) -> None:
        super().__init__()
        self.labels, self.ratio = labels, evidence_ratio()

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.ratio(log_labels(self.labels, x))
        return loss


class GenerativePhase(nn.Module):
    """The loss of phase B: the free energy of rows ``(B, 4, 28, 28)`` and ``weight`` times the evidence ratio."""

    def __init__(self, model: M2, weight: float) -> None:
        super().__init__()
        self.model, self.weight, self.ratio = model, weight, evidence_ratio()

    def forward(self, x: Tensor, kl_weight: float) -> Tensor:
        log_q = log_labels(self.model.labels, x)
        loss = self.model.free_energy(log_q, self.model.costs(x, kl_weight)).mean()
        return loss + self.weight * self.ratio(log_q) if self.weight else loss


# --- evaluation ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def all_labels(labels: nn.Module, digits: Digits, device: torch.device) -> Tensor:
    """log q(y|x) of all images, ``(N, 10)``."""
    labels.eval()
    chunks = torch.split(torch.arange(len(digits.labels)), 1000)
    found = torch.cat(
        [log_labels(labels, digits[index].to(device)) for index in chunks]
    )
    labels.train()
    return found


def evidence(labels: nn.Module, digits: Digits, device: torch.device) -> float:
    """The evidence ratio of fixed quadruples of these images: the meter of success that needs no labels."""
    log_q = all_labels(labels, digits, device)[digits.fixed(len(digits.labels))]
    return float(evidence_ratio()(log_q))


def accuracy(log_q: Tensor, labels: Tensor) -> tuple[float, float]:
    """The share of images whose most probable label is theirs; and the same after the best renaming of the labels."""
    confusion = (
        torch.bincount(10 * labels + log_q.argmax(1).cpu(), minlength=100)
        .reshape(10, 10)
        .double()
    )
    best = linear_sum_assignment(-confusion.numpy())
    return float(confusion.trace() / len(labels)), float(
        confusion[best].sum() / len(labels)
    )


@torch.no_grad()
def negative_elbo(model: M2, digits: Digits, device: torch.device) -> float:
    """−ELBO in nats per image, on fixed quadruples, with fixed z."""
    rows = digits.fixed(len(digits.labels) // 4)
    model.eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        total = 0.0
        for chunk in torch.split(rows, 250):
            x = digits[chunk].to(device)
            total += float(
                model.free_energy(log_labels(model.labels, x), model.costs(x)).sum()
            )
    model.train()
    return total / (4 * len(rows))


# --- training --------------------------------------------------------------------------------------------------------


def one_cycle(
    groups: list[dict[str, Any]], steps: int
) -> tuple[torch.optim.Adam, OneCycleLR]:
    """Adam whose learning rates rise to what is given for 15 % of the steps and fall to zero after."""
    peaks = [group["lr"] for group in groups]
    optimizer = torch.optim.Adam(groups)
    return optimizer, OneCycleLR(optimizer, peaks, steps, pct_start=0.15)


def learned_labels(
    run: harness.Run,
    encoder: Encoder,
    plan: Phases,
    digits: Digits,
    held_out: Digits,
    settings: Settings,
) -> tuple[nn.Module, float, int]:
    """Phase A: the label net, its evidence on held-out images, and how often it had to start again."""
    for attempt in range(settings.restarts + 1 if plan.restarts else 1):
        run.seed(run.key["seed"] + 10_000 * attempt)
        labels = label_net(encoder, plan.scale)
        steps = math.ceil(settings.quadruples / settings.batch)
        optimizer, schedule = one_cycle(
            [{"params": labels.parameters(), "lr": 3e-3}], steps * settings.label_epochs
        )
        phase, optimizer = run.prepare(LabelPhase(labels), optimizer)
        for _ in run.epochs(
            settings.label_epochs,
            stage=f"a{attempt}",
            phase=phase,
            optimizer=optimizer,
            schedule=schedule,
        ):
            rows = digits.quadruples(settings.quadruples, run.shuffle)
            for index in run.batches(len(rows), settings.batch):
                x = digits[rows[index]].to(run.device)
                x = distorted(x.flatten(0, 1)).view_as(x) if plan.augmented else x
                stepped(run, phase(x), optimizer, schedule)
            run.log(evidence=evidence(labels, held_out, run.device))
        meter = run.agree(evidence(labels, held_out, run.device))
        if meter <= settings.stuck:
            break
    return labels, meter, attempt


def stepped(
    run: harness.Run,
    loss: Tensor,
    optimizer: torch.optim.Optimizer,
    schedule: OneCycleLR,
) -> None:
    """One step of training."""
    run.check(loss)
    optimizer.zero_grad()
    run.backward(loss)
    optimizer.step()
    schedule.step()


def learned_model(
    run: harness.Run,
    model: M2,
    plan: Phases,
    digits: Digits,
    held_out: Digits,
    settings: Settings,
) -> float:
    """Phase B: train the model and leave it at its best epoch, whose −ELBO on held-out images is returned."""
    epochs, batch = settings.generative_epochs(plan), settings.batch // 2
    steps = math.ceil(settings.quadruples * 3 // 4 / batch)
    others = [
        p for name, p in model.named_parameters() if not name.startswith("labels.")
    ]
    groups = [
        {"params": model.labels.parameters(), "lr": 4e-3 * plan.slow},
        {"params": others, "lr": 4e-3},
    ]
    optimizer, schedule = one_cycle(groups, steps * epochs)
    phase, optimizer = run.prepare(GenerativePhase(model, plan.ratio), optimizer)
    best = harness.Best()
    for epoch in run.epochs(
        epochs,
        stage="b",
        phase=phase,
        optimizer=optimizer,
        schedule=schedule,
        best=best,
    ):
        rows = digits.quadruples(settings.quadruples * 3 // 4, run.shuffle)
        for step, index in enumerate(run.batches(len(rows), batch), epoch * steps):
            kl_weight = max(
                1.0, 10 - 9 * 2 * step / (steps * epochs)
            )  # from 10 to 1 over the first half
            stepped(
                run,
                phase(digits[rows[index]].to(run.device), kl_weight),
                optimizer,
                schedule,
            )
        value = run.agree(negative_elbo(model, held_out, run.device))
        best.offer(value, epoch, model)
        run.log(elbo=value)
    best.restore(model)
    return best.value


def train(
    run: harness.Run, method: Method, encoder: Encoder, plan: Phases, settings: Settings
) -> None:
    """One run, both phases, and its line."""
    train, train_labels, test, test_labels = data.mnist(settings.data)
    kept = len(train) - settings.validation
    digits, held_out = (
        Digits(train[:kept], train_labels[:kept]),
        Digits(train[kept:], train_labels[kept:]),
    )
    unseen = Digits(test, test_labels)
    run.seed(run.key["seed"])
    model = M2(
        label_net(encoder, plan.scale),
        finite_terms(ADDITION if method == "multiplexnet" else DIGITS),
    )
    extras: dict[str, Any] = {}
    if plan.labels:
        labels, meter, restarts = learned_labels(
            run, encoder, plan, digits, held_out, settings
        )
        model.labels.load_state_dict(labels.state_dict())
        right, _ = accuracy(all_labels(labels, unseen, run.device), test_labels)
        extras = {"evidence_a": meter, "accuracy_a": right, "restarts": restarts}
    validation = learned_model(run, model, plan, digits, held_out, settings)
    right, matched = accuracy(all_labels(model.labels, unseen, run.device), test_labels)
    run.keep(samples=prior_samples(model))
    run.finish(
        accuracy=right,
        elbo=negative_elbo(model, unseen, run.device),
        validation_elbo=validation,
        evidence=evidence(model.labels, held_out, run.device),
        accuracy_best_renaming=matched,
        **extras,
    )


def train_few(
    run: harness.Run, encoder: Encoder, rows: int, settings: Settings
) -> None:
    """Phase A on a fixed number of quadruples, without a second attempt, and its line."""
    train, train_labels, test, test_labels = data.mnist(settings.data)
    kept = len(train) - settings.validation
    seed = run.key["seed"]
    few = FewRows(Digits(train[:kept], train_labels[:kept]), rows, seed)
    held_out = Digits(train[kept:], train_labels[kept:])
    plan = phases("multiplexnet", "none")._replace(restarts=False)
    labels, meter, _ = learned_labels(run, encoder, plan, few, held_out, settings)
    unseen = Digits(test, test_labels)
    right, matched = accuracy(all_labels(labels, unseen, run.device), test_labels)
    known = all_labels(labels, few, run.device)[few.rows]
    run.finish(
        accuracy=right,
        accuracy_best_renaming=matched,
        evidence=meter,
        evidence_of_rows=float(evidence_ratio()(known)),
        images=len({*few.rows.flatten().tolist()}),
    )


# --- figures ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def prior_samples(model: M2, rows: int = 8) -> Tensor:
    """Mean images of z drawn from the prior, one z a row, one label a column: ``(rows, 10, 28, 28)``."""
    z = torch.randn(
        rows, 1, model.of_z.in_features, generator=torch.Generator().manual_seed(0)
    )
    device = model.of_y.device
    return (
        model.images(z.to(device), torch.arange(10, device=device))
        .sigmoid()
        .reshape(rows, 10, 28, 28)
        .cpu()
    )


def draw(samples: Tensor, title: str, path: Path) -> None:
    """The picture of ten columns, one for each label."""
    rows = samples.shape[0]
    figure = Figure(figsize=(5, 0.5 * rows + 0.6), layout="constrained")
    axes = figure.subplots()
    axes.imshow(
        samples.permute(0, 2, 1, 3).reshape(28 * rows, 280).numpy(),
        cmap="gray_r",
        vmin=0,
        vmax=1,
    )
    axes.set_xticks([28 * y + 14 for y in range(10)], [str(y) for y in range(10)])
    axes.set_yticks([])
    axes.set_xlabel("label y; one z of the prior a row")
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=100)


def figures(results: harness.Results, settings: Settings) -> None:
    """Prior samples of the run whose validation −ELBO is best, for every method and encoder."""
    for method in settings.methods:
        for encoder in settings.encoders:
            lines = [
                line
                for line in results
                if (line["method"], line["encoder"]) == (method, encoder)
            ]
            for line in sorted(lines, key=lambda line: line["validation_elbo"])[:1]:
                samples = results.kept(
                    {name: line[name] for name in ("method", "encoder", "seed")}
                ).get("samples")
                if samples is not None:
                    title = f"{method}, {encoder}: labels {100 * line['accuracy']:.1f} % right, none given"
                    draw(
                        samples,
                        title,
                        settings.figures_folder / f"mnist_{method}_{encoder}.png",
                    )


def draw_few(results: harness.Results, path: Path) -> None:
    """Accuracy over the number of fixed quadruples, a point for every run."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    for encoder, colour in (("mlp", "#3b6ea5"), ("cnn", "#1a7f5a")):
        lines = [line for line in results if line["encoder"] == encoder]
        if lines:
            rows = [line["rows"] for line in lines]
            right = [100 * line["accuracy"] for line in lines]
            axes.plot(rows, right, "o", color=colour, alpha=0.7, label=encoder)
    axes.set(xscale="log", xlabel="quadruples, the same in every epoch")
    axes.set_ylabel("digits of test images right, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def keys(settings: Settings) -> Iterator[tuple[Method, Encoder, Ablation, int]]:
    """All runs; nothing is left out of m2, which has nothing to leave out."""
    for method in settings.methods:
        for ablation in settings.ablations if method == "multiplexnet" else ("none",):
            for encoder in settings.encoders:
                for seed in settings.seeds:
                    yield method, encoder, ablation, seed


def few(settings: Settings) -> None:
    """All runs on fixed quadruples, then their picture."""
    results = harness.Results("mnist-fixed", settings)
    for encoder, rows, seed in product(
        settings.encoders, settings.fixed, settings.seeds
    ):
        with results.run({"encoder": encoder, "rows": rows, "seed": seed}) as run:
            if not run.done:
                train_few(run, encoder, rows, settings)
    if results.accelerator.is_main_process:
        draw_few(results, settings.figures_folder / "mnist_fixed.png")


def main(settings: Settings) -> None:
    """All runs of the settings, then the pictures."""
    if settings.fixed:
        few(settings)
        return
    plain, partial = (
        harness.Results("mnist", settings),
        harness.Results("mnist-ablations", settings),
    )
    for method, encoder, ablation, seed in keys(settings):
        key = {"method": method, "encoder": encoder, "ablation": ablation, "seed": seed}
        results = partial if ablation != "none" else plain
        if ablation == "none":
            del key["ablation"]
        with results.run(key) as run:
            if not run.done:
                train(run, method, encoder, phases(method, ablation), settings)
    if plain.accelerator.is_main_process:
        figures(plain, settings)


if __name__ == "__main__":
    harness.command(Settings, main)
