"""Columns that are functions of others: trees beside the network, with the same guarantee and the same likelihood."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import multiplexnet as mx
from multiplexnet.errors import RecordError
from multiplexnet.synthesis.growing import grown
from multiplexnet.synthesis.leaves import TREES, Worth, codes_of
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe, RowModel
from multiplexnet.synthesis.triangle import Triangle

SAVED = Path(__file__).parent / "saved"
SHORT = Recipe(Shape(4, 16, 1, 8, 0.1), steps=200, batch=64)
RULES = "one: int[0, 40]; two: int[0, 40]; kind: {'a', 'b', 'c'}; implies(kind == 'a', two <= 20)"


def table(rows: int = 1_000) -> pl.DataFrame:
    """``two`` is a function of ``one``, and not a smooth one."""
    random = np.random.default_rng(0)
    one = random.integers(0, 41, rows)
    two = 17 * one % 41
    kind = np.where(two <= 20, random.choice(["a", "b", "c"], rows), "b")
    return pl.DataFrame({"one": one, "two": two, "kind": kind})


def fitted(leaf: int = 5) -> mx.Synthesizer:
    return mx.Synthesizer(RULES).fit(table(), recipes=(replace(SHORT, leaf=leaf),))


@pytest.fixture(scope="module")
def model() -> mx.Synthesizer:
    return fitted()


def row_model(model: mx.Synthesizer) -> RowModel:
    return model._known().model


def kept(rows: pl.DataFrame) -> float:
    """How many rows keep the function."""
    return float(np.mean(rows["two"].to_numpy() == 17 * rows["one"].to_numpy() % 41))


# --- what they are for ------------------------------------------------------------------------------------------------


def test_a_column_that_is_a_function_of_another_stays_one(
    model: mx.Synthesizer,
) -> None:
    made = model.sample(2_000)
    assert mx.check(mx.Rules(RULES), made).all_obey
    assert kept(made) > 0.9
    without = fitted(leaf=0)
    assert row_model(without).leaves == ()
    assert kept(without.sample(2_000)) < 0.6
    assert model.log_likelihood is not None
    assert without.log_likelihood is not None
    assert model.log_likelihood > without.log_likelihood + 0.5


def test_columns_that_say_nothing_of_each_other_have_no_tree() -> None:
    random = np.random.default_rng(1)
    rows = {name: random.integers(0, 5, 4_000) for name in "abc"}
    model = mx.Synthesizer("a: int[0, 4]; a >= 0").fit(rows, recipes=(SHORT,))
    assert sum(own is not None for own in row_model(model).leaves) <= 1


def test_a_condition_holds_in_all_rows_and_they_keep_the_function(
    model: mx.Synthesizer,
) -> None:
    made = model.sample(300, where="two >= 12 and kind != 'b'")
    assert (made["two"] >= 12).all()
    assert (made["two"] <= 20).filter(made["kind"] == "a").all()
    assert kept(made) > 0.8


# --- probabilities ----------------------------------------------------------------------------------------------------


def test_the_probabilities_of_all_rows_add_up_to_one(model: mx.Synthesizer) -> None:
    every = pl.DataFrame(
        list(product(range(41), range(41), "abc")),
        schema=["one", "two", "kind"],
        orient="row",
    )
    chances = np.exp(model.log_prob(every))
    assert chances.sum() == pytest.approx(1.0, abs=1e-4)
    broken = (every["kind"] == "a") & (every["two"] > 20)
    assert chances[broken.to_numpy()].max() == 0.0


def test_what_is_drawn_and_what_has_a_likelihood_are_the_same(
    model: mx.Synthesizer,
) -> None:
    own = row_model(model)
    assert any(leaves is not None for leaves in own.leaves)
    tokens = torch.tensor([[0, 0, 0], [3, 10, 1], [40, 24, 2], [5, -1, 1]])
    places = own.network.places(tokens)
    with torch.no_grad():
        for j, expected in enumerate(own.logits(tokens)):
            found = own.prepared.logits(j, places[:, :j].contiguous())
            one, other = torch.softmax(found, -1), torch.softmax(expected, -1)
            assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("worth", [Worth(3.0), Worth(0.1, 10.0), Worth(100.0, 1.0)])
def test_leaves_and_network_are_mixed_as_rows_are_counted(
    model: mx.Synthesizer, worth: Worth
) -> None:
    """Against the formula, token by token."""
    own = row_model(model)
    j, found = next((j, own) for j, own in enumerate(own.leaves) if own is not None)
    leaves = replace(found, worth=worth)
    tokens = torch.tensor([[0, 0, 0], [3, 10, 1], [40, 24, 2]])
    codes = codes_of(tokens, own.network.counts)[:, :j]
    logits = torch.randn(3, own.network.counts[j])
    mixed = torch.softmax(leaves.mixed(logits, codes), -1)
    parts, size = leaves.parts(logits, codes)
    assert torch.allclose(parts.exp().sum(-1), torch.ones(3, 3), atol=1e-5)
    for row, own_leaves in enumerate(leaves.leaves(codes).tolist()):
        assert len(own_leaves) == len(set(own_leaves)) == TREES[-1]
        counts = torch.zeros(logits.shape[-1])
        for leaf in own_leaves:
            part = slice(*leaves.found.starts[leaf : leaf + 2])
            found_counts = torch.from_numpy(leaves.found.counts[part])
            assert found_counts.sum() >= SHORT.leaf
            counts[leaves.found.tokens[part]] += found_counts / len(own_leaves)
        p = torch.softmax(logits[row], -1)
        inside = torch.zeros_like(p)
        places = counts.nonzero()
        inside[int(places.min()) : int(places.max()) + 1] = 1
        nearby = p * inside / (p * inside).sum()
        whole = counts + worth.anywhere * p + worth.nearby * nearby
        assert torch.allclose(mixed[row], whole / whole.sum(), atol=1e-6)
        assert size[row] == pytest.approx(float(counts.sum()), rel=1e-5)


def test_trees_of_one_column_ask_at_different_places() -> None:
    random = np.random.default_rng(0)
    codes = random.integers(0, 30, (200, 3))
    branches, leaves = grown(codes, codes[:, :1] + 0.5 * codes[:, 1:2], 3, 5)
    assert leaves.shape == (200, 5)
    assert branches.is_leaf.sum() == len(np.unique(leaves)) == leaves.max() + 1
    assert np.bincount(leaves.flatten()).min() >= 3
    ends = [*branches.roots[1:], len(branches.asked)]
    trees = {
        tuple(branches.most[first:last])
        for first, last in zip(branches.roots, ends, strict=True)
    }
    assert len(trees) == 5


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_keeps_the_trees(model: mx.Synthesizer, tmp_path: Path) -> None:
    model.save(tmp_path / "model.mx")
    back = mx.Synthesizer.load(tmp_path / "model.mx")
    assert row_model(back).leaves[1] is not None
    assert back.sample(500).equals(model.sample(500))
    assert (back.log_prob(table()) == model.log_prob(table())).all()


def changed(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """The file with one part changed."""
    with zipfile.ZipFile(path) as file:
        parts = {part: file.read(part) for part in file.namelist()}
    if name == "model.json":
        parts[name] = json.dumps(change(json.loads(parts[name]))).encode()
    else:
        buffer = BytesIO()
        np.save(buffer, change(np.load(BytesIO(parts[name]))))
        parts[name] = buffer.getvalue()
    with zipfile.ZipFile(path, "w") as file:
        for part, content in parts.items():
            file.writestr(part, content)


def at(place: tuple[int, int], value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[place] = value
        return array

    return change


def with_tree(tree: Any) -> Callable[[Any], Any]:
    def change(document: Any) -> Any:
        document["trees"][1] = tree(document["trees"][1])
        return document

    return change


def all_roots(branches: Any) -> Any:
    """Every node is a tree of its own."""
    found = np.zeros_like(branches)
    found[2:] = np.arange(branches.shape[1])
    return found


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("branches/1.npy", at((2, 0), 0), "lead nowhere"),
        ("branches/1.npy", at((3, 0), 10**6), "lead nowhere"),
        ("branches/1.npy", at((0, 0), 1), "lead nowhere"),
        ("leaves/1.npy", at((0, 0), 3), "do not fit their tree"),
        ("leaves/1.npy", at((1, 0), 41), "do not fit their tree"),
        ("leaves/1.npy", at((2, 0), 0), "do not fit their tree"),
        ("model.json", with_tree(lambda own: [*own[:2], 0.0, 1.0]), "mixed with nothing"),
        ("model.json", with_tree(lambda own: [*own[:2], float("nan"), 1.0]), "mixed with nothing"),
        ("model.json", with_tree(lambda own: [1 << 40, *own[1:]]), "of no usual size"),
        ("branches/1.npy", all_roots, "too many"),
        ("model.json", lambda own: {**own, "trees": [None]}, "too many or too few"),
    ],
)  # fmt: skip
def test_a_damaged_tree_is_refused(
    model: mx.Synthesizer, tmp_path: Path, name: str, change: Any, said: str
) -> None:
    path = tmp_path / "model.mx"
    model.save(path)
    changed(path, name, change)
    with pytest.raises(RecordError, match=said):
        mx.Synthesizer.load(path)


def test_a_file_of_one_tree_a_column_makes_the_rows_that_it_made() -> None:
    """The file, its rows and their likelihood are of the version before there were several trees."""
    old = mx.Synthesizer.load(SAVED / "tables-format-2.mx")
    expected = pl.read_parquet(SAVED / "tables-format-2.parquet")
    trees = [own for own in row_model(old).leaves if own is not None]
    assert [len(own.branches.roots) for own in trees] == [1] * len(trees)
    assert trees
    assert old.sample(len(expected)).equals(expected.drop("log_prob"))
    found = old.log_prob(expected.drop("log_prob"))
    assert found == pytest.approx(expected["log_prob"].to_numpy(), abs=1e-4)


def dense(triangle: Triangle) -> torch.Tensor:
    """The weights as one matrix."""
    found = torch.zeros(triangle.count * triangle.inputs, triangle.count * triangle.outputs)  # fmt: skip
    for j in range(triangle.count):
        own = slice(j * triangle.outputs, (j + 1) * triangle.outputs)
        found[: j * triangle.inputs, own] = triangle.of(j).detach()
    return found


@pytest.mark.parametrize("count", [1, 7, 8, 9, 20])
def test_a_triangle_is_a_matrix_where_columns_see_those_before_them(count: int) -> None:
    triangle = Triangle(count, 3, 4)
    weights = dense(triangle)
    seen = torch.randn(5, count * 3)
    start = torch.randn(count * 4)
    expected = seen @ weights + start
    assert torch.allclose(triangle(seen, start), expected, atol=1e-5)
    again = Triangle(count, 3, 4)
    again.load_state_dict(triangle.parts_of(weights))
    assert torch.equal(dense(again), weights)


def test_a_file_from_before_there_were_trees_is_read(tmp_path: Path) -> None:
    without = fitted(leaf=0)
    path = tmp_path / "model.mx"
    without.save(path)

    def older(document: Any) -> Any:
        del document["trees"]
        return {**document, "format": "multiplexnet table model 1"}

    changed(path, "model.json", older)
    with_matrix(path, dense(row_model(without).network.first))
    assert mx.Synthesizer.load(path).sample(100).equals(without.sample(100))


def with_matrix(path: Path, weights: torch.Tensor) -> None:
    """The first layer as one matrix, as older files have it."""
    with zipfile.ZipFile(path, "a") as file:
        buffer = BytesIO()
        np.save(buffer, weights.numpy())
        file.writestr("network/first.npy", buffer.getvalue())
