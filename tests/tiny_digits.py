"""The experiment with MNIST on 28 × 28 stand-ins for digits: ten fixed patterns and some noise. Run by its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))

import data
import harness
import mnist
import torch
from torch import Tensor


def digits(folder: Path | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """600 training and 100 test images as bytes, and their labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(700) % 10
    patterns = (
        torch.nn.functional.interpolate(
            torch.rand(10, 1, 4, 4, generator=generator), 28
        )
        .squeeze(1)
        .round()
    )
    images = 200 * patterns[labels] + 55 * torch.rand(700, 28, 28, generator=generator)
    return images[:600].byte(), labels[:600], images[600:].byte(), labels[600:]


if __name__ == "__main__":
    data.mnist = digits
    harness.command(mnist.Settings, mnist.main)
