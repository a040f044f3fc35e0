"""Small experiments: tasks that are what they say, and a quick run of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import extras
import harness
import pytest
import synthetic
import torch
from generators import GENERATORS, Density
from torch import Tensor


@pytest.mark.parametrize("count", [2, 20, 256])
def test_positions_obey_the_intervals(count: int) -> None:
    rows = extras.positions(count, 500, 0)
    rules = extras.intervals(count).rules
    assert rules.satisfied(rows.x.unsqueeze(-1)).all()
    middle_of_a_gap = torch.tensor([1.5 / (2 * count - 1)])
    assert not rules.satisfied(middle_of_a_gap)


def test_a_share_of_rows_breaks_the_rule() -> None:
    rows = extras.limited(2000, 0, 0.2)
    rules = extras.limited_layer(1).rules
    obeys = rules.satisfied(rows.y.unsqueeze(-1), limit=rows.limit)
    assert 0.15 < 1 - float(obeys.double().mean()) < 0.25


def test_the_true_density_adds_up_to_one() -> None:
    """The mean of 1 / density over its own rows is the size of the set: 1 + 2 + 3 + 4 without, 4 with the switch on."""
    found = extras.mixture(200_000, 0)
    size = float((-found.log_prob).exp().mean())
    assert size == pytest.approx(14, rel=0.1)


def in_a_square(x: Tensor) -> Tensor:
    """Of 4 × 4, around the origin."""
    return x.abs().amax(-1) < 2


def in_a_rectangle(x: Tensor) -> Tensor:
    """In the middle of one of the eight rectangles: six tenths of each side."""
    frame = synthetic.frames(torch.float64)
    turned = torch.einsum("kij,nj->nki", frame.turn, x)
    place = (turned - frame.low) / frame.width
    return ((place > 0.2) & (place < 0.8)).all(-1).any(-1)


@pytest.mark.parametrize(
    ("method", "region", "area"),
    [("flow", in_a_square, 16), ("flow-layer", in_a_rectangle, 0.36 * 28)],
)
def test_a_flow_knows_the_density_of_its_own_samples(
    method: str, region: Callable[[Tensor], Tensor], area: float
) -> None:
    """The mean of 1 / density over the samples in a region is the region's area."""
    torch.manual_seed(0)
    model = GENERATORS[method]()
    assert isinstance(model, Density)
    with torch.no_grad():
        samples = model.sample(20_000)
        density = model.log_prob(samples).exp()
    found = float((region(samples) / density).mean())
    assert found == pytest.approx(area, rel=0.1)


def test_the_choice_of_a_gan_has_a_gradient_and_its_value_is_that_of_the_term() -> None:
    torch.manual_seed(0)
    model = GENERATORS["gan-layer"]()
    samples = model.sample(200)
    assert synthetic.rules().satisfied(samples.detach()).all()
    slopes = torch.autograd.grad(samples.sum(), list(model.parameters()))
    choice = slopes[-1][-len(synthetic.KNOWN) :]
    assert choice.abs().min() > 0


def test_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harness.command(extras.Settings, extras.main, ["--quick"])
    lines = harness.read(Path("out/extras.jsonl"))
    attack = {line["method"]: line for line in lines if line["part"] == "attack"}
    assert attack["layer"]["broken_attacked"] == 0
    assert attack["net"]["broken_attacked"] > attack["net"]["broken"] > 0
    (mixed,) = (line for line in lines if line["part"] == "mixed")
    assert mixed["nll_truth"] < mixed["nll"] < mixed["nll_start"]
    assert mixed["obey"] == 1
    generators = {
        line["method"]: line for line in lines if line["part"] == "generators"
    }
    for method in ("flow", "gan"):
        assert generators[f"{method}-layer"]["obey"] == 1
        assert generators[method]["obey"] < 1
    assert Path("out/extras.png").stat().st_size > 1000
