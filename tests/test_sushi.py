"""Rankings of sushi: matrices of orders, what each method answers, runs that resume."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import data
import harness
import numpy
import pytest
import sushi
import torch
from torch import Tensor

Fit = Callable[..., dict[str, dict[str, Any]]]
TINY = [
    "--seeds",
    "0",
    "--results",
    "results",
    "--figures",
    "figures",
    "--epochs",
    "2",
    "--dropouts",
    "0",
    "--members",
    "3",
]
OURS = ("multiplexnet", "multiplexnet-average", "multiplexnet-ranks")


def some_orders(folder: Path | None = None) -> Tensor:
    """200 orders; the four asked kinds follow from which of the first two given kinds is liked more."""
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(200, 10, generator=generator)
    first = places[:, :1] < places[:, 1:2]
    forward = torch.tensor([0.1, 0.2, 0.3, 0.4])
    places[:, sushi.ASKED] = torch.where(first, forward, forward.flip(0))
    return places.argsort(1)


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run the experiment on made orders; its lines by method."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "sushi", some_orders)

    def run(*options: str) -> dict[str, dict[str, Any]]:
        harness.command(sushi.Settings, sushi.main, [*TINY, *options])
        lines = harness.read(Path("results/sushi.jsonl"))
        return {line.pop("method"): line for line in lines}

    return run


def test_matrices_are_places_among_the_kinds_asked_for() -> None:
    best_first = torch.tensor([[9, 0, 3, 8, 5, 1, 2, 4, 6, 7]])
    asked = sushi.matrices(best_first, sushi.ASKED).reshape(4, 4)
    assert asked.argmax(1).tolist() == [1, 3, 2, 0], "of kinds 4, 6, 9 and 10"
    given = sushi.matrices(best_first, sushi.GIVEN).reshape(6, 6)
    assert torch.equal(given, torch.eye(6))


def test_the_terms_are_the_orders_of_four_kinds() -> None:
    found = {tuple(code) for code in sushi.finite_terms().codes(0).tolist()}
    expected = {
        tuple(int(place == j) for place in order for j in range(4))
        for order in permutations(range(4))
    }
    assert found == expected


def test_every_part_of_the_split_is_apart() -> None:
    orders = torch.stack([torch.randperm(10) for _ in range(50)])
    parts = sushi.splits(orders)
    assert [len(part.x) for part in parts] == [30, 10, 10]
    whole = torch.cat([torch.cat(part, 1) for part in parts])
    all_rows = torch.cat(
        [sushi.matrices(orders, sushi.GIVEN), sushi.matrices(orders, sushi.ASKED)], 1
    )
    assert sorted(whole.tolist()) == sorted(all_rows.tolist())


def test_without_a_seed_the_split_is_the_published_one() -> None:
    orders = torch.stack([torch.randperm(10) for _ in range(50)])
    published, by_seed = sushi.splits(orders), sushi.splits(orders, 0)
    assert not torch.equal(published[0].x, by_seed[0].x)
    numpy.random.seed(0)
    first = numpy.random.permutation(50)[0]
    expected = sushi.matrices(orders[first : first + 1], sushi.GIVEN)
    assert torch.equal(published[0].x[:1], expected)


def test_networks_answer_by_their_mean_probability() -> None:
    settings = sushi.Settings(members=3)
    model = sushi.Layered(settings, sushi.Candidate(0.0, 0.0), 3).eval()
    rows = sushi.splits(some_orders())[0]
    each = [model.mux(net(rows.x)).logits.softmax(-1) for net in model.nets]
    expected = torch.stack(each).mean(0)
    assert torch.allclose(model.together(rows.x).exp(), expected, atol=1e-6)
    assert torch.equal(model.answer(rows.x), model.orders[expected.argmax(-1)])
    right = expected.detach().gather(-1, model.term(rows.y).unsqueeze(-1)).log().mean()
    assert model.log_likelihood(rows) == pytest.approx(float(right), abs=1e-5)


def test_with_splits_every_seed_has_rows_of_its_own(fit: Fit) -> None:
    fit("--splits", "--methods", "most-frequent", "--seeds", "0", "1", "2")
    lines = harness.read(Path("results/sushi-splits.jsonl"))
    assert [line["seed"] for line in lines] == [0, 1, 2]
    assert len({line["exact"] for line in lines}) > 1
    assert Path("figures/sushi_splits_exact.png").stat().st_size > 1000


def test_every_method_writes_its_line_and_ours_learns_an_order(fit: Fit) -> None:
    lines = fit("--epochs", "15", "--batch", "16", "--weights", "0.5")
    assert set(lines) == set(sushi.Method.__args__)  # type: ignore[attr-defined]
    for line in lines.values():
        assert 0 <= line["exact"] <= line["consistent"] <= 1
    for method in (*OURS, "sigmoid-order", "most-frequent"):
        assert lines[method]["consistent"] == 1
    for method in OURS:
        assert lines[method]["exact"] > 0.8
    assert lines["most-frequent"]["exact"] < 0.7
    assert lines["semantic"]["weight"] == 0.5
    assert Path("figures/sushi_exact.png").stat().st_size > 1000


def test_a_killed_run_ends_with_the_same_line(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two weights of the semantic loss, two epochs of one step each, killed in the second epoch of the second."""
    options = ("--methods", "semantic", "--weights", "0.1", "1")
    whole = fit(*options)
    Path("results/sushi.jsonl").unlink()
    check, steps = harness.Run.check, 0

    def interrupted(run: harness.Run, loss: Tensor) -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise KeyboardInterrupt
        check(run, loss)

    monkeypatch.setattr(harness.Run, "check", interrupted)
    with pytest.raises(SystemExit):
        fit(*options)
    monkeypatch.setattr(harness.Run, "check", check)
    again = fit(*options, "--resume")
    for line in (whole["semantic"], again["semantic"]):
        del line["seconds"]
    assert again == whole


@pytest.mark.skipif(
    "MULTIPLEXNET_DATA" not in os.environ,
    reason="set MULTIPLEXNET_DATA to a folder with sushi/sushi.soc",
)
def test_quick_on_the_real_rankings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    harness.command(sushi.Settings, sushi.main, ["--quick"])
    lines = {line["method"]: line for line in harness.read(Path("out/sushi.jsonl"))}
    assert lines["multiplexnet"]["consistent"] == 1
    assert lines["multiplexnet"]["rows"] == 986
    assert lines["most-frequent"]["validation"] == pytest.approx(
        0.15939087, abs=1e-8
    ), "as in a log of published code: the split is the same"
