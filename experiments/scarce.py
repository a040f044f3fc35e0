"""CIFAR-100 with few images: what the rule about super-classes is worth when there is little to learn from.

The heads of ``superclasses.py`` on frozen features, as in ``cifar100.py``, trained on 1,000 images and more. Each seed
draws its own images, the same for all methods. All methods take equally many steps whatever the number of images, and
keep the step with the best super-class accuracy on 2,000 images that nobody trains on.

A method is compared with another on the same test images. The difference of an image is that of the shares of seeds
in which the two are right about its super-class; its standard error is taken over the images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import NormalDist, mean
from typing import Any, Literal, NamedTuple, Self

import backbones
import cifar100
import data
import harness
import torch
from cifar100 import Classifier, Rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from superclasses import HEADS, Head, Hierarchy, certain
from torch import Tensor

Method = Literal[
    "vanilla", "vanilla-superclass", "multiplexnet", "multiplexnet-superclass"
]
PAIRS: tuple[tuple[Method, Method], ...] = (
    ("multiplexnet", "vanilla"),
    ("vanilla-superclass", "vanilla"),
    ("multiplexnet-superclass", "vanilla"),
    ("multiplexnet-superclass", "vanilla-superclass"),
)
"""What is compared with what: the second and the fourth tell the loss and the layer apart."""


@dataclass(frozen=True)
class Settings(harness.Common):
    """Super-classes of CIFAR-100, learned from few images."""

    seeds: tuple[int, ...] = harness.option((0, 1, 2), "one run for each")
    methods: tuple[Method, ...] = harness.option(Method.__args__, "what to train")  # type: ignore[attr-defined]
    sizes: tuple[int, ...] = harness.option(
        (1000, 2000, 5000, 10_000, 20_000, 48_000), "training images"
    )
    held_out: int = harness.option(
        2000, "last training images, for the choice of the step"
    )
    test: int | None = harness.option(None, "only so many test images")
    steps: int = harness.option(600, "of training, whatever the number of images")
    every: int = harness.option(50, "steps between two looks at the held-out images")
    batch: int = harness.option(250, "images a step")
    alpha: float = harness.option(
        0.95, "the probability that some super-class must have"
    )
    rate: float = harness.option(2e-3, "highest learning rate of AdamW")
    decay: float = harness.option(0.01, "weight decay")

    def for_quick(self) -> Self:
        few = replace(self, sizes=(500, 1000), held_out=1000, test=1000)
        return replace(few, seeds=(0,), steps=60, every=20)

    @property
    def head(self) -> cifar100.Settings:
        """The same as settings of the experiment with all images."""
        return cifar100.Settings(alpha=self.alpha, rate=self.rate, decay=self.decay)


# --- data ------------------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Images to draw from, images to choose by, images to report on, as features; and the hierarchy."""

    pool: Rows
    held_out: Rows
    test: Rows
    hierarchy: Hierarchy


def parts(settings: Settings, results: harness.Results) -> Parts:
    """The features of no more images than are needed."""
    (images, fine, coarse), (test_images, test_fine, _) = data.cifar100(settings.data)
    first, last = max(settings.sizes), len(fine) - settings.held_out
    if first > last:
        raise harness.ExperimentError(
            f"{first} images to train on and {settings.held_out} to choose by are more than the {len(fine)} there are"
        )
    shown = [images[:first], images[last:], test_images[: settings.test]]
    pool, held_out, test = backbones.features(shown, settings.data, results.accelerator)
    return Parts(
        Rows(pool, fine[:first]),
        Rows(held_out, fine[last:]),
        Rows(test, test_fine[: settings.test]),
        Hierarchy(fine, coarse),
    )


def scaled(found: Parts, size: int, seed: int) -> Parts:
    """Some images of the pool, and all features scaled by what these have."""
    generator = torch.Generator().manual_seed(seed)
    rows = found.pool[torch.randperm(len(found.pool), generator=generator)[:size]]
    middle, width = rows.x.mean(0), rows.x.std(0) + 1e-6

    def like(part: Rows) -> Rows:
        return Rows((part.x - middle) / width, part.fine)

    return Parts(like(rows), like(found.held_out), like(found.test), found.hierarchy)


# --- training and measuring ------------------------------------------------------------------------------------------


def batches(run: harness.Run, rows: int, batch: int, steps: int) -> Iterator[Tensor]:
    """Row numbers for so many steps, as many passes as that takes."""
    left = steps
    while left > 0:
        for index in run.batches(rows, batch):
            if left > 0:
                yield index
            left -= 1


class Verdicts(NamedTuple):
    """For every image: whether class and super-class are right, and whether the rule holds."""

    fine: Tensor
    coarse: Tensor
    satisfied: Tensor


@torch.no_grad()
def judged(model: Classifier, rows: Rows, alpha: float) -> Verdicts:
    """What a model says of images."""
    model.eval()
    hierarchy = model.head.hierarchy
    answer = model.answer(rows.x)
    assert answer.fine is not None
    return Verdicts(
        answer.fine == rows.fine,
        answer.coarse == hierarchy.parent[rows.fine],
        certain(answer.logits, hierarchy, alpha),
    )


def share(verdicts: Tensor) -> float:
    """Of images, in per cent."""
    return round(100 * float(verdicts.double().mean()), 4)


def learned(
    run: harness.Run, found: Parts, head: Head, settings: Settings
) -> Classifier:
    """A classifier after its best step by the super-class of held-out images, and by the class among equals."""
    model = Classifier(settings.head, head)
    optimizer = cifar100.optimizer_of(model, settings.head)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    training, optimizer = run.prepare(model, optimizer)
    best = harness.Best()
    for look in run.epochs(
        settings.steps // settings.every,
        model=training,
        optimizer=optimizer,
        schedule=schedule,
        best=best,
    ):
        training.train()
        for index in batches(run, len(found.pool), settings.batch, settings.every):
            batch = found.pool[index]
            loss = training(batch.x, batch.fine)
            run.check(loss)
            optimizer.zero_grad()
            run.backward(loss)
            optimizer.step()
            schedule.step()
        verdicts = judged(model, found.held_out, settings.alpha)
        value = share(verdicts.coarse) + 1e-4 * share(verdicts.fine)
        best.offer(-value, look, model)
    best.restore(model)
    run.log(step=(best.epoch + 1) * settings.every)
    return model


def one_run(run: harness.Run, found: Parts, head: Head, settings: Settings) -> None:
    """Train, report on test images, keep who is right for the comparison."""
    own = scaled(found, run.key["images"], run.key["seed"])
    run.seed(run.key["seed"])
    model = learned(run, own, head, settings)
    verdicts = judged(model, own.test, settings.alpha)
    run.keep(coarse=verdicts.coarse)
    shares = {name: share(each) for name, each in verdicts._asdict().items()}
    run.finish(**shares, step=run.curve[-1]["step"])


# --- comparisons -----------------------------------------------------------------------------------------------------


def compared(ours: Tensor, theirs: Tensor) -> dict[str, float]:
    """Two methods on the same images: ``(seeds, images)``, whether each is right; points and their error.

    ``gained`` and ``lost`` count images with a seed, as McNemar's test does.
    """
    difference = 100 * (ours.double() - theirs.double()).mean(0)
    value = float(difference.mean())
    error = float(difference.std()) / math.sqrt(len(difference))
    chance = 2 * NormalDist().cdf(-abs(value) / error) if error else float(value == 0)
    return {
        "difference": round(value, 4),
        "error": round(error, 4),
        "p": float(f"{chance:.2g}"),
        "gained": int((ours & ~theirs).sum()),
        "lost": int((theirs & ~ours).sum()),
    }


def write_comparisons(settings: Settings, results: harness.Results) -> None:
    """A line for every pair of methods whose runs are all there."""
    paired = harness.Results("scarce-paired", settings)
    for images, (method, other) in product(settings.sizes, PAIRS):
        ours, theirs = (
            kept_verdicts(results, each, images, settings.seeds)
            for each in (method, other)
        )
        if ours is not None and theirs is not None:
            key = {"images": images, "method": method, "against": other}
            paired.write(key, compared(ours, theirs) | {"seeds": len(ours)})


def kept_verdicts(
    results: harness.Results, method: str, images: int, seeds: Sequence[int]
) -> Tensor | None:
    """Whether a method is right about each image, ``(seeds, images)``; nothing where a run is missing."""
    kept = [results.kept(key_of(method, images, seed)) for seed in seeds]
    return torch.stack([each["coarse"] for each in kept]) if all(kept) else None


def key_of(method: str, images: int, seed: int) -> dict[str, Any]:
    """What tells a run from others."""
    return {"method": method, "images": images, "seed": seed}


# --- the picture -----------------------------------------------------------------------------------------------------


def draw(settings: Settings, results: harness.Results, path: Path) -> None:
    """Accuracy over the number of images, and the differences with two standard errors over test images."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_accuracies(left, list(results))
    draw_differences(right, harness.read(settings.results_folder / PAIRED))
    figure.savefig(path, dpi=110)


PAIRED = "scarce-paired.jsonl"


def draw_accuracies(panel: Axes, lines: Sequence[dict[str, Any]]) -> None:
    """One line a method, the mean over seeds."""
    for method in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == method]
        sizes = sorted({line["images"] for line in own})
        values = [
            mean(line["coarse"] for line in own if line["images"] == n) for n in sizes
        ]
        panel.plot(sizes, values, "o-", ms=4, label=method)
    panel.set(xscale="log", xlabel="training images")
    panel.set_ylabel("super-class accuracy, %")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


def draw_differences(panel: Axes, lines: Sequence[dict[str, Any]]) -> None:
    """One line a pair; they stand a little apart."""
    if not lines:
        return
    for number, (method, other) in enumerate(PAIRS):
        own = [x for x in lines if (x["method"], x["against"]) == (method, other)]
        own.sort(key=lambda line: line["images"])
        panel.errorbar(
            [line["images"] * 1.04 ** (number - 1.5) for line in own],
            [line["difference"] for line in own],
            [2 * line["error"] for line in own],
            fmt="o-",
            ms=4,
            lw=1,
            label=f"{method} over {other}",
        )
    panel.axhline(0, color="grey", lw=0.8)
    panel.set(xscale="log", xlabel="training images")
    panel.set_ylabel("points of super-class accuracy\n(bars: two standard errors)")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def main(settings: Settings) -> None:
    """All runs of the settings, then the comparisons and the picture."""
    results = harness.Results("scarce", settings)
    found = parts(settings, results)
    heads = {
        method: HEADS[method](found.hierarchy, settings.alpha)
        for method in settings.methods
    }  # they have no parameters
    for images, seed, method in product(
        settings.sizes, settings.seeds, settings.methods
    ):
        with results.run(key_of(method, images, seed)) as run:
            if not run.done:
                one_run(run, found, heads[method], settings)
    if results.accelerator.is_main_process:
        write_comparisons(settings, results)
        draw(settings, results, settings.figures_folder / "scarce.png")


if __name__ == "__main__":
    harness.command(Settings, main)
