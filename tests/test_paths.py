"""Shortest paths on a grid: the grid, its symmetries, layers that know all simple paths, what each method answers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import data
import harness
import paths
import pytest
import torch

Fit = Callable[..., dict[str, dict[str, Any]]]
MIDDLE = ((5, 6), (5, 9), (6, 10), (9, 10))
"""Pairs of ends that one layer serves."""


def shortest(removed: set[int], ends: tuple[int, int]) -> list[list[int]]:
    """All shortest paths, by breadth first."""
    ways: list[tuple[int, list[int]]] = [(ends[0], [])]
    for _ in range(paths.NODES):
        ways = [
            (other, [*way, edge])
            for node, way in ways
            for edge in range(paths.EDGES)
            if edge not in removed and node in paths.joined(edge)
            for other in paths.joined(edge)
            if other != node
        ]
        if found := [way for node, way in ways if node == ends[1]]:
            return found
    return []


def some_questions(folder: Path | None = None) -> list[data.Question]:
    """Sixty questions between nodes in the middle, with a quarter of the edges removed."""
    draw = random.Random(0)
    questions: list[data.Question] = []
    while len(questions) < 60:
        removed, ends = draw.sample(range(paths.EDGES), 6), draw.choice(MIDDLE)
        if found := shortest({*removed}, ends):
            questions.append((removed, [*ends], found))
    return questions


@pytest.fixture(autouse=True)
def cache_of_its_own(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer is built for all tests of this file, in no folder of the user's."""
    folder = tmp_path_factory.getbasetemp() / "layers"
    monkeypatch.setattr(data, "cache", lambda: folder)


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run the experiment on made questions; its lines by method."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "grid_paths", some_questions)

    def run(*options: str) -> dict[str, dict[str, Any]]:
        fixed = ["--seeds", "0", "--results", "results", "--figures", "figures"]
        harness.command(paths.Settings, paths.main, [*fixed, *options])
        lines = harness.read(Path("results/paths.jsonl"))
        return {line.pop("method"): line for line in lines}

    return run


def test_the_grid_has_the_known_numbers_of_cycles_and_paths() -> None:
    assert len(paths.cycles()) == 213
    pairs = list(combinations(range(16), 2))
    counts = {
        ends: len(list(paths.walks(*ends, frozenset(ends[:1])))) for ends in pairs
    }
    assert sum(counts.values()) == 14_248
    assert counts[0, 15] == 184
    assert len({paths.canonical(ends)[0] for ends in pairs}) == 21


def test_a_symmetry_carries_paths_to_paths() -> None:
    for ends in list(combinations(range(16), 2))[::7]:
        target, places = paths.canonical(ends)
        assert sorted(places) == list(range(24))
        moved = {
            frozenset(places[edge] for edge in walk)
            for walk in paths.walks(*ends, frozenset(ends[:1]))
        }
        assert moved == {
            frozenset(walk) for walk in paths.walks(*target, frozenset(target[:1]))
        }


def test_a_layer_chooses_among_all_simple_paths_and_no_other() -> None:
    walks = paths.walks(5, 6, frozenset([5]))
    expected = {tuple(paths.bits(walk, 24).tolist()) for walk in walks}
    assert {tuple(row) for row in paths.terms((5, 6)).tolist()} == expected


def test_open_paths_are_those_without_a_removed_edge() -> None:
    questions = some_questions()
    rows = paths.rows_of(questions)
    for row, (removed, ends, listed) in enumerate(questions):
        walks = paths.walks(ends[0], ends[1], frozenset(ends[:1]))
        expected = {frozenset(walk) for walk in walks if not {*walk} & {*removed}}
        found = rows.paths[row][rows.open[row]]
        assert {frozenset(path.nonzero()[:, 0].tolist()) for path in found} == expected
        assert rows.right[row].sum() == len(listed)
        (first,) = rows.paths[row][rows.first[row]]
        assert first.nonzero()[:, 0].tolist() == sorted(listed[0])


def test_every_method_writes_its_line(fit: Fit) -> None:
    lines = fit("--epochs", "12", "--batch", "16", "--weights", "1")
    assert set(lines) == set(paths.Method.__args__)  # type: ignore[attr-defined]
    for line in lines.values():
        assert 0 <= line["first"] <= line["exact"] <= line["consistent"] <= 1
    for method in ("rules-alone", "sigmoid-path", "multiplexnet"):
        assert lines[method]["consistent"] == 1
    assert lines["rules-alone"]["exact"] == 1, (
        "with equal scores the best is a shortest"
    )
    assert lines["multiplexnet"]["exact"] > 0.5
    assert Path("figures/paths_exact.png").stat().st_size > 1000


def test_what_is_published_wants_the_first_path_and_does_not_know_what_is_removed() -> (
    None
):
    rows = paths.rows_of(some_questions()[:6])
    model = paths.Model("multiplexnet-first", paths.Settings(), 0.0).eval()
    logits = torch.einsum("bke,be->bk", rows.paths, model.net(rows.x))
    log_p = logits.masked_fill(~rows.between, -torch.inf).log_softmax(-1)
    loss = model(rows, torch.arange(6))
    torch.testing.assert_close(loss, -log_p[rows.first].mean())


def test_the_semantic_loss_is_the_probability_of_an_open_path() -> None:
    settings = paths.Settings(dropout=0.0)
    rows = paths.rows_of(some_questions()[:4])
    torch.manual_seed(0)
    bare, model = (paths.Model("semantic", settings, weight) for weight in (0.0, 1.0))
    bare.load_state_dict(model.state_dict())
    index = torch.arange(4)
    p = model.net(rows.x).sigmoid()
    chances = [
        sum(
            torch.where(path > 0, p[row], 1 - p[row]).prod()
            for path in rows.paths[row][rows.open[row]]
        )
        for row in range(4)
    ]
    expected = (
        -torch.stack([torch.as_tensor(chance) for chance in chances]).log().mean()
    )
    torch.testing.assert_close(model(rows, index) - bare(rows, index), expected)


def test_answers_are_those_of_the_layer() -> None:
    """Looked up in the table, they are what ``best()`` says for the same logits and inputs."""
    rows = paths.rows_of(some_questions())
    torch.manual_seed(0)
    model = paths.Model("multiplexnet", paths.Settings(), 0.0).eval()
    mux = paths.layer((5, 6))
    found = model.answers(rows)
    for group in rows.groups:
        scores = group.turned(model.net(rows.x[group.rows]))
        logits = scores @ paths.terms(group.ends).T
        raw = torch.cat([torch.zeros(len(logits), 24), logits], -1)
        present = group.turned(rows.x[group.rows, :24])
        best = mux(raw, present=present).best()
        assert torch.equal(group.turned(found[group.rows]), best)


@pytest.mark.skipif(
    "MULTIPLEXNET_DATA" not in os.environ,
    reason="set MULTIPLEXNET_DATA to a folder with grid_paths/paths.txt",
)
def test_quick_on_the_real_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    harness.command(paths.Settings, paths.main, ["--quick"])
    lines = {line["method"]: line for line in harness.read(Path("out/paths.jsonl"))}
    assert lines["multiplexnet"]["consistent"] == 1
    assert lines["rules-alone"]["exact"] == 1
