"""Predictors of an order: what they read and say, and that those that learn find what is to be found."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import data
import harness
import pytest
import sushi
import sushi_predictors
import torch
from sushi_predictors import Orders
from torch import Tensor


def some_rows(count: int, seed: int) -> Orders:
    """Places of six kinds; the order of the others is term 3 where the first kind is liked more, else term 7."""
    places = torch.rand(
        count, 6, generator=torch.Generator().manual_seed(seed)
    ).argsort(1)
    return Orders(places, torch.where(places[:, 0] < places[:, 1], 3, 7))


@pytest.mark.parametrize("name", sushi_predictors.CANDIDATES)
def test_a_candidate_says_probabilities_and_learns(name: str) -> None:
    rows, fresh = some_rows(1500, 0), some_rows(400, 1)
    log_p = sushi_predictors.CANDIDATES[name](rows, fresh.places)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(400))
    share = float((log_p.argmax(-1) == fresh.term).double().mean())
    if name == "most frequent":
        assert share == pytest.approx(0.5, abs=0.1)
    else:
        assert share > 0.7


def test_what_is_read_of_an_order() -> None:
    places = torch.tensor([[2, 0, 1]])
    assert sushi_predictors.pairs(places).tolist() == [[-1, -1, 1]]
    assert sushi_predictors.matrix(places).tolist() == [[0, 0, 1, 1, 0, 0, 0, 1, 0]]
    every = torch.tensor(list(permutations(range(6))))
    read = sushi_predictors.ranks(every)
    assert read.mean().item() == pytest.approx(0, abs=1e-6)
    assert read.square().mean().item() == pytest.approx(1)
    assert torch.allclose(sushi.Ranks()(sushi_predictors.matrix(every)), read)


def test_products_of_coordinates_are_the_kernel() -> None:
    some = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 0, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]])
    x = sushi_predictors.mallows(0.1, parts=720)(some)
    differing = torch.tensor([[0.0, 1, 15], [1, 0, 14], [15, 14, 0]])
    torch.testing.assert_close(x @ x.T, (-0.1 * differing).exp())


def test_no_row_is_answered_by_a_model_that_saw_it_and_none_is_reported_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    orders = torch.stack([torch.randperm(10) for _ in range(100)])
    monkeypatch.setattr(data, "sushi", lambda folder: orders)
    monkeypatch.chdir(tmp_path)
    rows = sushi_predictors.loaded(sushi_predictors.Settings())
    assert len(rows.term) == 80
    *_, test = sushi.splits(orders)
    known = {tuple(x) for x in sushi_predictors.matrix(rows.places).tolist()}
    reported = [tuple(x) for x in test.x.tolist()]
    assert sum(x in known for x in reported) < len(reported) / 2

    def predict(known: Orders, places: Tensor) -> Tensor:
        assert len(known.term) + len(places) == 80
        return torch.full((len(places), 24), -3.0)

    assert (sushi_predictors.folded(rows, 0, predict) == -3).all()
    options = ["--seeds", "0", "--results", "results", "--candidates", "most frequent"]
    harness.command(sushi_predictors.Settings, sushi_predictors.main, options)
    (line,) = harness.read(Path("results/sushi-predictors.jsonl"))
    assert line["rows"] == 80
