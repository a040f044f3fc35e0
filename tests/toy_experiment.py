"""The smallest experiment: a line is fitted. Run by the tests of the harness, alone and with two processes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

import harness
import torch
from torch import nn


@dataclass(frozen=True)
class Settings(harness.Common):
    """Fit a line."""

    seeds: tuple[int, ...] = harness.option((0,), "one run for each")
    kinds: tuple[Literal["plain", "noisy"], ...] = harness.option(
        ("plain",), "what is fitted"
    )
    learning_rate: float = harness.option(0.1, "of plain gradient descent")
    stop_after: int = harness.option(-1, "interrupt after this many epochs")

    def for_quick(self) -> Self:
        return replace(self, learning_rate=0.01)


class Line(nn.Module):
    def __init__(self, noise: float) -> None:
        super().__init__()
        self.linear, self.noise = nn.Linear(3, 1, dtype=torch.float64), noise

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        target = x.sum(-1, keepdim=True) + self.noise * torch.randn(
            len(x), 1, dtype=x.dtype
        )
        loss: torch.Tensor = (self.linear(x) - target).square().mean()
        return loss


def main(settings: Settings) -> None:
    results = harness.Results("toy", settings)
    rows = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(12, 3)
    for key in (
        {"kind": kind, "seed": seed}
        for kind in settings.kinds
        for seed in settings.seeds
    ):
        with results.run(key) as run:
            if run.done:
                continue
            run.seed(int(key["seed"]))
            line = Line(noise=0.1 if key["kind"] == "noisy" else 0.0)
            optimizer = torch.optim.SGD(
                line.parameters(), settings.learning_rate, momentum=0.9
            )
            model, optimizer = run.prepare(line, optimizer)
            best = harness.Best()
            for epoch in run.epochs(
                settings.epochs or 4, model=model, optimizer=optimizer, best=best
            ):
                if epoch == settings.stop_after:
                    raise KeyboardInterrupt
                for index in run.batches(len(rows), 4):
                    loss = model(rows[index])
                    run.check(loss)
                    optimizer.zero_grad()
                    run.backward(loss)
                    optimizer.step()
                best.offer(float(loss.detach()), epoch, model)
                run.log(loss=float(loss.detach()))
            run.keep(weight=line.linear.weight.detach())
            run.finish(
                weights=line.linear.weight.flatten().tolist(),
                best=best.value,
                points=len(run.curve),
            )


if __name__ == "__main__":
    harness.command(Settings, main)
