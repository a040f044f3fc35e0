"""Small experiments: tasks that are what they say, and a quick run of all."""

from __future__ import annotations

from pathlib import Path

import extras
import harness
import pytest
import torch


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
    assert Path("out/extras.png").stat().st_size > 1000
