"""CIFAR-100 with its 20 super-classes: some super-class has at least 95 % of the probability, whatever the image.

The third experiment of the paper. Rules and methods are in ``superclasses.py``, what stands before them in
``backbones.py``; here are the settings, the data, the loop, the results and the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import backbones
import data
import harness
import torch
from superclasses import HEADS, Answer, Head, Hierarchy, certain
from torch import Tensor, nn
from torch.nn import functional as F

# --- settings --------------------------------------------------------------------------------------------------------

Method = Literal[
    "vanilla",
    "vanilla-superclass",
    "superclass",
    "hierarchical",
    "dl2",
    "multiplexnet-paper",
    "multiplexnet",
    "multiplexnet-superclass",
]
Backbone = Literal["features", "wrn-28-10", "wrn-10-1"]


@dataclass(frozen=True)
class Settings(harness.Common):
    """Super-classes of CIFAR-100: rules that hold, against losses that ask for them."""

    methods: tuple[Method, ...] = harness.option(Method.__args__, "what to train")  # type: ignore[attr-defined]
    backbone: Backbone = harness.option(
        "features", "frozen ImageNet features, or a wide residual network on images"
    )
    alpha: float = harness.option(
        0.95, "the probability that some super-class must have"
    )
    batch: int = harness.option(250, "images a step, over all processes together")
    rate: float | None = harness.option(
        None, "learning rate; without it 0.002 (features, AdamW) or 0.1 (SGD)"
    )
    decay: float | None = harness.option(
        None, "weight decay; without it 0.01 (features) or 0.0005; the paper: 0"
    )
    hidden: int = harness.option(
        0, "hidden units between frozen features and classes; 0: a linear head"
    )
    images: int | None = harness.option(
        None, "only so many training images, and half as many of the test"
    )
    validation: bool = harness.option(
        False,
        "hold out 5,000 training images and report on them instead of the test set",
    )

    def for_quick(self) -> Self:
        return replace(self, seeds=(0,), epochs=3, images=2000)

    @property
    def frozen(self) -> bool:
        return self.backbone == "features"

    def key(self, method: str, seed: int) -> dict[str, Any]:
        """What tells a run from others in the results."""
        hidden = {"hidden": self.hidden} if self.frozen else {}
        return {"method": method, "backbone": self.backbone, **hidden, "seed": seed}


# --- data ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Images or their features, with labels."""

    x: Tensor
    fine: Tensor

    def __len__(self) -> int:
        return len(self.fine)

    def __getitem__(self, index: Any) -> Rows:
        return Rows(self.x[index], self.fine[index])


def loaded(
    settings: Settings, results: harness.Results
) -> tuple[Rows, Rows, Hierarchy]:
    """Rows to train on, rows to report on, and the hierarchy."""
    (images, fine, coarse), (test_images, test_fine, _) = data.cifar100(settings.data)
    hierarchy = Hierarchy(fine, coarse)
    train, test = Rows(images, fine)[: settings.images], Rows(test_images, test_fine)
    if settings.images is not None:
        test = test[: settings.images // 2]
    if settings.frozen:
        x, test_x = backbones.features(
            [train.x, test.x], settings.data, results.accelerator
        )
        mean, scale = x.mean(0), x.std(0) + 1e-6
        train, test = (
            Rows((x - mean) / scale, train.fine),
            Rows((test_x - mean) / scale, test.fine),
        )
    if settings.validation:
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
        held = min(5000, len(train) // 10)
        train, test = train[order[held:]], train[order[:held]]
    return train, test, hierarchy


MEAN, SPREAD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
"""Of the channels of the training images."""


def normalised(images: Tensor) -> Tensor:
    """Pixels 0 … 255 as numbers around 0."""
    mean, spread = (
        torch.tensor(values, device=images.device)[:, None, None]
        for values in (MEAN, SPREAD)
    )
    return (images.float() / 255 - mean) / spread


def augmented(images: Tensor) -> Tensor:
    """Each image moved by up to four pixels, black outside, and every other one seen in a mirror."""
    count, _, height, width = images.shape
    device = images.device
    down, right = torch.randint(9, (2, count, 1), device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    rows = torch.arange(height, device=device) + down
    columns = torch.arange(width, device=device) + right
    columns = torch.where(mirrored, columns.flip(-1), columns)
    which = torch.arange(count, device=device)[:, None, None]
    return F.pad(images, (4, 4, 4, 4))[
        which, :, rows[:, :, None], columns[:, None, :]
    ].permute(0, 3, 1, 2)


# --- model ------------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """Backbone, last linear layer, head; called with labels it gives the mean loss, which is what DDP has to see."""

    def __init__(self, settings: Settings, head: Head) -> None:
        super().__init__()
        self.frozen = settings.frozen
        if self.frozen:
            features = settings.hidden or backbones.FEATURES
            hidden = (
                nn.Linear(backbones.FEATURES, features),
                nn.BatchNorm1d(features),
                nn.ReLU(),
                nn.Dropout(0.5),
            )
            self.trunk: nn.Module = nn.Sequential(
                nn.Dropout(0.2), *(hidden if settings.hidden else ())
            )
        else:
            depth, width = map(int, settings.backbone.split("-")[1:])
            self.trunk = network = backbones.WideResNet(depth, width)
            features = network.features
        self.last, self.head = nn.Linear(features, head.outputs), head

    def forward(self, x: Tensor, fine: Tensor) -> Tensor:
        return self.head.loss(
            self.outputs(x if self.frozen else augmented(normalised(x))), fine
        ).mean()

    def answer(self, x: Tensor) -> Answer:
        return self.head.answer(self.outputs(x if self.frozen else normalised(x)))

    def outputs(self, x: Tensor) -> Tensor:
        z: Tensor = self.last(self.trunk(x))
        return z


# --- training and measuring ------------------------------------------------------------------------------------------


def optimizer_of(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW for heads, SGD with momentum for the whole network."""
    rate, decay = (2e-3, 1e-2) if settings.frozen else (0.1, 5e-4)
    rate, decay = (
        settings.rate or rate,
        decay if settings.decay is None else settings.decay,
    )
    if settings.frozen:
        return torch.optim.AdamW(
            model.parameters(), rate, weight_decay=decay, fused=True
        )
    return torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=decay)


def train(run: harness.Run, settings: Settings, rows: Rows, model: Classifier) -> None:
    """SGD or AdamW with a cosine from the learning rate to zero."""
    epochs = settings.epochs or (5 if settings.frozen else 250)
    optimizer = optimizer_of(model, settings)
    steps = epochs * -(-len(rows) // settings.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    training, optimizer = run.prepare(model, optimizer)
    for _ in run.epochs(epochs, model=training, optimizer=optimizer, schedule=schedule):
        training.train()
        total = 0.0
        for index in run.batches(len(rows), settings.batch):
            batch = rows[index]
            loss = training(batch.x.to(run.device), batch.fine.to(run.device))
            run.check(loss)
            optimizer.zero_grad()
            run.backward(loss)
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(index) * run.world
        run.log(loss=total / len(rows))


@torch.no_grad()
def measure(
    run: harness.Run, settings: Settings, rows: Rows, model: Classifier
) -> dict[str, float | None]:
    """Accuracies and satisfaction in percent; what the most probable super-class has is kept for the picture."""
    model.eval()
    hierarchy = model.head.hierarchy
    right: dict[str, list[Tensor]] = {"fine": [], "coarse": [], "satisfied": []}
    most = []
    for part in torch.split(torch.arange(len(rows)), 1000):
        batch = rows[part]
        answer, fine = model.answer(batch.x.to(run.device)), batch.fine.to(run.device)
        if answer.fine is not None:
            right["fine"].append(answer.fine == fine)
        right["coarse"].append(answer.coarse == hierarchy.parent[fine])
        right["satisfied"].append(certain(answer.logits, hierarchy, settings.alpha))
        groups = (
            hierarchy.logits(answer.logits)
            if answer.fine is not None
            else answer.logits
        )
        most.append(groups.softmax(-1).amax(-1))
    run.keep(most=torch.cat(most).float().cpu())
    return {
        name: round(100 * float(torch.cat(each).double().mean()), 4) if each else None
        for name, each in right.items()
    }


def main(settings: Settings) -> None:
    """Train every method with every seed, then print the table and draw."""
    results = harness.Results(
        "cifar100-validation" if settings.validation else "cifar100", settings
    )
    rows, test, hierarchy = loaded(settings, results)
    for seed in settings.seeds:
        for method in settings.methods:
            with results.run(settings.key(method, seed)) as run:
                if run.done:
                    continue
                run.seed(seed)
                model = Classifier(settings, HEADS[method](hierarchy, settings.alpha))
                train(run, settings, rows, model)
                run.finish(**measure(run, settings, test, model))
    if results.accelerator.is_main_process:
        report(settings, results)
        draw(settings, results)


# --- results ---------------------------------------------------------------------------------------------------------

BASELINES = ("vanilla", "vanilla-superclass", "dl2", "hierarchical")


def by_seed(
    lines: Sequence[dict[str, Any]], method: str, name: str
) -> dict[int, float]:
    """One number of a method for every seed that has it."""
    return {
        line["seed"]: line[name]
        for line in lines
        if line["method"] == method and line[name] is not None
    }


def paired(
    lines: Sequence[dict[str, Any]], method: str, baseline: str, name: str
) -> list[float]:
    """The differences between two methods over the seeds that both have."""
    ours, theirs = by_seed(lines, method, name), by_seed(lines, baseline, name)
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def comparable(
    settings: Settings, results: harness.Results
) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines with this backbone and head, and the methods that they are of."""
    same = [(line, settings.key(line["method"], line["seed"])) for line in results]
    lines = [
        line
        for line, key in same
        if all(line.get(name) == value for name, value in key.items())
    ]
    return lines, [
        method for method in HEADS if any(line["method"] == method for line in lines)
    ]


def report(settings: Settings, results: harness.Results) -> None:
    """Print means ± standard errors in percent, and differences of super-class accuracy, seed by seed."""
    lines, methods = comparable(settings, results)
    print(
        f"{'':24} {'fine':>14} {'super-class':>14} {'satisfied':>14}   super-class, over "
        + ", ".join(BASELINES)
    )
    for method in methods:
        names = ("fine", "coarse", "satisfied")
        cells = [
            harness.spread(list(by_seed(lines, method, name).values()))
            for name in names
        ]
        over = [
            paired(lines, method, baseline, "coarse")
            for baseline in BASELINES
            if baseline != method
        ]
        ours = method.startswith("multiplexnet")
        differences = [harness.spread(found, sign="+") for found in over if ours]
        print(
            f"{method:24} {cells[0]:>14} {cells[1]:>14} {cells[2]:>14}   {', '.join(differences)}".rstrip()
        )


def draw(settings: Settings, results: harness.Results) -> None:
    """Two pictures: accuracies of every seed, and how the largest probability of a super-class is distributed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    lines, methods = comparable(settings, results)
    figure, axes = plt.subplots(
        1, 2, figsize=(10, 0.5 * len(methods) + 1.2), sharey=True, layout="constrained"
    )
    for axis, (name, title) in zip(
        axes, (("coarse", "super-class"), ("fine", "class")), strict=True
    ):
        for height, method in enumerate(methods):
            values = list(by_seed(lines, method, name).values())
            axis.plot(values, [height] * len(values), "o", alpha=0.35, color="tab:blue")
            if values:
                axis.plot(
                    sum(values) / len(values), height, "|", markersize=20, color="black"
                )
        axis.set_xlabel(
            f"{title} accuracy, % ({settings.backbone}; each seed, and the mean)"
        )
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(methods)), methods)
    axes[0].invert_yaxis()
    save(figure, settings.figures_folder / f"{results.name}_accuracy.png")

    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for method in methods:
        kept = results.kept(settings.key(method, settings.seeds[0]))
        if "most" in kept:
            most = kept["most"].sort().values
            style = "-" if "multiplexnet" in method else "--"
            axis.plot(
                most, torch.arange(1, len(most) + 1) / len(most), style, label=method
            )
    axis.axvline(settings.alpha, color="grey", linewidth=0.8)
    axis.set_xlabel("probability of the most probable super-class")
    axis.set_ylabel("share of the test images below")
    axis.legend()
    save(figure, settings.figures_folder / f"{results.name}_confidence.png")


def save(figure: Any, path: Path) -> None:
    """Write a picture and say where."""
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    harness.command(Settings, main)
