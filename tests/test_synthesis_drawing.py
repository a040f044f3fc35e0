"""Rows as they are drawn: frequencies, conditions, blocks; each against a count of everything that can be."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import multiplexnet as mx
from multiplexnet.errors import CascadeBudgetExceeded, TableError
from multiplexnet.synthesis.allowed import LeftIntervals
from multiplexnet.synthesis.chances import Chances, Sums
from multiplexnet.synthesis.columns import tokens
from multiplexnet.synthesis.columns.tokens import tokens_of
from multiplexnet.synthesis.drawing import making
from multiplexnet.synthesis.drawing.batches import Batch, blocks
from multiplexnet.synthesis.drawing.counters import uniforms
from multiplexnet.synthesis.inference import PreparedNetwork
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe

SMALL = (Recipe(Shape(8, 16, 1, 4, 0.0), steps=62, batch=64, leaf=0),)
RULES = "a: int[0, 3]; b: int[0, 3]; c: {'x', 'y'}?; a + b <= 4; implies(a == 3, c is missing)"


@pytest.fixture(scope="module")
def model() -> mx.Synthesizer:
    rows = [(0, 1, "x"), (3, 1, None), (2, 2, "y"), (1, 3, None), (0, 0, "y")] * 20
    table = pl.DataFrame(rows, schema=["a", "b", "c"], orient="row")
    return mx.Synthesizer(RULES).fit(table, recipes=SMALL)


def everything() -> pl.DataFrame:
    rows = list(product(range(4), range(4), ["x", "y", None]))
    return pl.DataFrame(rows, schema=["a", "b", "c"], orient="row")


def worst(made: pl.DataFrame, chances: Any) -> float:
    """The largest difference between shares of rows and their probabilities, in standard errors."""
    space = everything()
    counted = space.join(
        made.group_by("a", "b", "c").len(),
        on=["a", "b", "c"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )["len"].fill_null(0)
    expected = np.asarray(chances)
    error = np.sqrt(expected * (1 - expected) / made.height) + 1e-4
    return float(np.abs((counted.to_numpy() / made.height - expected) / error).max())


# --- chances --------------------------------------------------------------------------------------------------------


def many_tokens() -> tuple[Chances, torch.Tensor]:
    random = np.random.default_rng(0)
    values = np.concatenate([random.integers(0, 90_000, 3_000), np.full(200, 77)])
    chances = Chances.of(tokens_of(values, 0, 100_000))
    return chances, torch.randn(300, len(chances.lower))


def test_sums_and_single_weights_give_the_same_masses() -> None:
    torch.manual_seed(0)
    chances, logits = many_tokens()
    lower = torch.randint(0, 60_000, (3, 300)).sort(0).values.double()
    upper = torch.stack([lower[1] - 1, lower[2] - 1, lower[2] + 900])
    possible = torch.rand(3, 300) < 0.8
    possible[2] = True
    left = LeftIntervals(lower, upper, possible)
    expected = chances.mass(torch.log_softmax(logits.double(), -1), left).log()
    found = chances.log_mass(Sums.of(logits), left)
    assert torch.allclose(found, expected, atol=1e-5)


def test_drawn_values_are_among_those_that_are_left_however_unlikely() -> None:
    torch.manual_seed(0)
    chances, logits = many_tokens()
    logits = 200 * logits  # nearly all of the mass on one token
    lower = torch.randint(0, 99_000, (2, 300)).sort(0).values.double()
    left = LeftIntervals(lower, torch.stack([lower[0], lower[1] + 3]))
    uniform = torch.rand(2, 300, dtype=torch.float64)
    uniform[0, :5] = 0.0
    uniform[0, 5:9] = 1 - 2.0**-53
    for values in (
        chances.draw(Sums.of(logits), left, uniform),
        chances.draw_exactly(logits, left, uniform),
    ):
        assert left.contain(values).all()


def test_groups_of_rows_draw_what_rows_do() -> None:
    torch.manual_seed(0)
    chances, logits = many_tokens()
    group = torch.randint(0, 300, (2_000,))
    uniform = torch.rand(2, 2_000, dtype=torch.float64)
    lower = torch.full((1, 2_000), 500.0, dtype=torch.float64)
    for left in (None, LeftIntervals(lower, lower + 40_000)):
        alone = chances.draw(Sums.of(logits[group]), left, uniform)
        together = chances.draw(Sums.of(logits, group), left, uniform)
        assert (alone == together).double().mean() > 0.999  # but for rounding


# --- conditions -----------------------------------------------------------------------------------------------------


def test_shares_of_rows_are_their_probabilities(model: mx.Synthesizer) -> None:
    assert worst(model.sample(20_000), np.exp(model.log_prob(everything()))) < 5


@pytest.mark.parametrize(
    ("where", "meets"),
    [
        ("b >= 1", pl.col("b") >= 1),
        ("c == 'y'", pl.col("c") == "y"),
        ("a + b <= 2 and c is missing", (pl.col("a") + pl.col("b") <= 2) & pl.col("c").is_null()),
        ("a <= 1 or c is not missing", (pl.col("a") <= 1) | pl.col("c").is_not_null()),
    ],
)  # fmt: skip
def test_a_condition_gives_the_conditional_distribution(
    model: mx.Synthesizer, where: str, meets: pl.Expr
) -> None:
    space = everything()
    chances = np.exp(model.log_prob(space))
    chances *= space.select(meets.fill_null(False)).to_series().to_numpy()
    made = model.sample(20_000, where=where, seed=2)
    assert worst(made, chances / chances.sum()) < 5


def test_missing_values_do_not_meet_a_condition(model: mx.Synthesizer) -> None:
    made = model.sample(500, where="c == 'x'")
    assert made["c"].to_list() == ["x"] * 500
    assert model.sample(500, where="not (c == 'x')")["c"].null_count() == 0
    assert model.sample(500, where="c is missing")["c"].null_count() == 500


@pytest.mark.parametrize(
    ("asked", "named"),
    [({"count": 5, "where": "b >= 1"}, "where = 'b >= 1'"), ({"given": {"a": [1]}}, "given")],
)  # fmt: skip
def test_a_condition_that_ties_too_much_together_is_refused_with_advice_that_helps(
    model: mx.Synthesizer, monkeypatch: pytest.MonkeyPatch, asked: Any, named: str
) -> None:
    def grown(*_: object) -> None:
        raise CascadeBudgetExceeded("b", 500)

    monkeypatch.setattr(making, "condition_of", grown)
    with pytest.raises(TableError) as caught:
        model.sample(**asked)
    told = str(caught.value)
    assert told.startswith(f"{named}: rows may obey")
    assert "the rules without b have more than 500 clauses. Ask for a part" in told
    assert "order=" not in told  # which `sample` does not have


# --- blocks ---------------------------------------------------------------------------------------------------------


def test_blocks_do_not_depend_on_how_many_rows_are_wanted() -> None:
    many = {(block.first, block.size) for block in blocks(200_000)}
    for count in (1, 255, 256, 257, 5_000, 70_000):
        own = list(blocks(count))
        assert {(block.first, block.size) for block in own} <= many
        assert sum(block.wanted for block in own) == count


def test_the_network_is_asked_once_for_rows_that_begin_alike(
    model: mx.Synthesizer,
) -> None:
    """Half of the rows have the same values: what is drawn next has the same chances, and other random numbers."""
    own = model._known().model
    batch = Batch(own, uniforms(0, 0, 1_000, 2 * len(own.tokens)))
    batch.take(0, torch.arange(1_000).remainder(2).double())
    with torch.inference_mode():
        (_, sums), *others = batch.sums(1)
    assert len(sums.logits) == 2
    assert not others


def test_tables_of_sums_and_products_of_embeddings_give_the_same_logits(
    model: mx.Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = model._known().model.network
    places = torch.stack([torch.tensor(network.rows(j)[:2]) for j in range(3)], -1)
    whole = PreparedNetwork(network)
    monkeypatch.setattr("multiplexnet.synthesis.inference.LARGEST_TABLE", 0)
    other = PreparedNetwork(network)
    with torch.no_grad():
        for j in range(4):
            own = places[:, :j].contiguous()
            found = whole.logits(j, own)
            assert torch.allclose(found, other.logits(j, own), atol=1e-5)
            tokens = torch.zeros(2, 4, dtype=torch.int64)
            tokens[1, :j] = 1
            assert torch.allclose(found, network(tokens)[j], atol=1e-5)


# --- tokens -----------------------------------------------------------------------------------------------------------


def ratios(seed: int) -> tokens.Whole:
    """Shares of small numbers with five decimal places: they repeat, and have nothing around them."""
    random = np.random.default_rng(seed)
    some, others = random.integers(1, 40, (2, 3_000))
    found: tokens.Whole = np.rint(100_000 * some / (some + others)).astype(np.int64)
    return found


def test_values_that_repeat_without_neighbours_are_tokens_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new = ratios(1)
    found = tokens_of(ratios(0), 0, 100_000).log_likelihood(new).mean()
    monkeypatch.setattr(tokens, "FEWER", ())
    binned = tokens_of(ratios(0), 0, 100_000).log_likelihood(new).mean()
    assert found > binned + 1


def test_values_that_repeat_by_chance_are_binned() -> None:
    values = np.random.default_rng(0).integers(0, 2_000, 3_000)
    assert (tokens_of(values, 0, 1_999).sizes > 1).mean() > 0.9


def test_probabilities_of_tokens_alone_add_up_to_one() -> None:
    found = tokens_of(ratios(0), 0, 100_000)
    every = np.arange(100_001)
    assert np.exp(found.log_likelihood(every)).sum() == pytest.approx(1)
