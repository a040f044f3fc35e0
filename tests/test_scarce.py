"""CIFAR-100 with few images: runs on tiny data, images of a seed, and the comparison of two methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import backbones
import data
import harness
import pytest
import scarce
import torch
from torch import Tensor

CLASSES, GROUPS = 12, 4
TINY = ["--sizes", "30", "60", "--held-out", "24", "--batch", "20"]
TINY += ["--steps", "30", "--every", "10", "--seeds", "0", "1"]
TINY += ["--results", "results", "--figures", "figures"]


def some_images(folder: Path | None = None) -> Any:
    """Black images whose class is written into the first pixel."""

    def split(count: int) -> tuple[Tensor, Tensor, Tensor]:
        fine = torch.arange(count) % CLASSES
        images = torch.zeros(count, 3, 32, 32, dtype=torch.uint8)
        images[:, 0, 0, 0] = fine.to(torch.uint8)
        return images, fine, fine % GROUPS

    return split(120), split(48)


def some_features(images: list[Tensor], *others: object) -> list[Tensor]:
    """The class, with noise."""
    centres = torch.randn(
        CLASSES, backbones.FEATURES, generator=torch.Generator().manual_seed(1)
    )
    noise = torch.Generator().manual_seed(2)
    found = []
    for each in images:
        x = centres[each[:, 0, 0, 0].long()]
        found.append(x + 4 * torch.randn(x.shape, generator=noise))
    return found


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "cifar100", some_images)
    monkeypatch.setattr(backbones, "features", some_features)


def lines_of(*options: str) -> list[dict[str, Any]]:
    harness.command(scarce.Settings, scarce.main, [*TINY, *options])
    return harness.read(Path("results/scarce.jsonl"))


@pytest.mark.usefixtures("tiny")
def test_every_method_at_every_size_and_what_it_is_compared_with() -> None:
    lines = lines_of()
    assert len(lines) == 2 * 2 * 4
    for line in lines:
        assert line["coarse"] > 100 / GROUPS
        assert line["step"] in (10, 20, 30)
        if line["method"].startswith("multiplexnet"):
            assert line["satisfied"] == 100
    paired = harness.read(Path("results/scarce-paired.jsonl"))
    assert len(paired) == 2 * len(scarce.PAIRS)
    for pair in paired:
        mean = {
            method: sum(
                line["coarse"]
                for line in lines
                if (line["method"], line["images"]) == (method, pair["images"])
            )
            / 2
            for method in (pair["method"], pair["against"])
        }
        expected = mean[pair["method"]] - mean[pair["against"]]
        assert pair["difference"] == pytest.approx(expected, abs=1e-3)
    assert Path("figures/scarce.png").stat().st_size > 1000


@pytest.mark.usefixtures("tiny")
def test_a_killed_run_ends_with_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--sizes", "30", "--seeds", "0", "--methods", "multiplexnet")
    (whole,) = lines_of(*options)
    Path("results/scarce.jsonl").unlink()
    check, steps = harness.Run.check, 0

    def interrupted(run: harness.Run, loss: Tensor) -> None:
        nonlocal steps
        steps += 1
        if steps == 25:
            raise KeyboardInterrupt
        check(run, loss)

    monkeypatch.setattr(harness.Run, "check", interrupted)
    with pytest.raises(SystemExit):
        lines_of(*options)
    monkeypatch.setattr(harness.Run, "check", check)
    (again,) = lines_of(*options, "--resume")
    del whole["seconds"], again["seconds"]
    assert again == whole


@pytest.mark.usefixtures("tiny")
def test_a_seed_draws_its_images_the_same_for_all_and_none_that_is_held_out() -> None:
    settings = harness.parsed(scarce.Settings, TINY)
    found = scarce.parts(settings, harness.Results("scarce", settings))
    one, same, other = (scarce.scaled(found, 30, seed) for seed in (0, 0, 1))
    assert torch.equal(one.pool.x, same.pool.x)
    assert not torch.equal(one.pool.fine, other.pool.fine)
    assert one.pool.x.mean(0).abs().max() < 1e-5
    assert len(found.pool) + len(found.held_out) <= 120


@pytest.mark.usefixtures("tiny")
def test_more_images_than_there_are_end_in_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="100 images to train on and 24 to choose by"):
        lines_of("--sizes", "100")


def test_the_error_is_over_images() -> None:
    """Four images: one gained in both seeds, one lost in one of them, two alike."""
    ours = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 1]]).bool()
    theirs = torch.tensor([[0, 1, 0, 1], [0, 1, 0, 1]]).bool()
    found = scarce.compared(ours, theirs)
    values = torch.tensor([100.0, -50.0, 0.0, 0.0])
    assert found["difference"] == pytest.approx(12.5)
    assert found["error"] == pytest.approx(float(values.std()) / 2, abs=1e-3)
    assert (found["gained"], found["lost"]) == (2, 1)
    assert scarce.compared(ours, ours)["p"] == 1
