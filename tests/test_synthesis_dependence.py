"""Columns with hundreds of values, few rows each: what one value says is learned from its neighbours."""

from __future__ import annotations

import numpy as np

import multiplexnet as mx
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe


def test_a_column_of_many_values_says_what_the_next_one_is() -> None:
    random = np.random.default_rng(0)
    one = random.integers(0, 300, 1_500)
    other = np.clip(np.rint(one / 2 + random.normal(0, 10, 1_500)), 0, 200)
    recipe = Recipe(Shape(8, 32, 1, 16, 0.0), steps=195, batch=128)
    model = mx.Synthesizer("one: int[0, 300]; other: int[0, 200]; one >= 0")
    model.fit({"one": one, "other": other}, recipes=(recipe,))
    made = model.sample(2_000)
    assert np.corrcoef(one, other)[0, 1] > 0.95
    assert np.corrcoef(made["one"], made["other"])[0, 1] > 0.9
    assert model.log_likelihood is not None
    assert model.log_likelihood > -10.2  # by themselves: -log 300 - log 150 = -10.7
