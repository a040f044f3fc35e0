"""Rows as numbers that no rule binds: there and back without a loss, and back from anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_synthesis import RULES, people

import multiplexnet as mx
from multiplexnet.errors import TableError
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe

TINY = (Recipe(Shape(4, 8, 1, 4, 0.0), steps=3, batch=64),)
NAMES = "age", "net", "tax", "gross", "sex", "start", "end", "seen"


@pytest.fixture(scope="module")
def model() -> mx.Synthesizer:
    return mx.Synthesizer(RULES).fit(people(), recipes=TINY)


@pytest.mark.parametrize("labels", ["numbers", "keep"])
@pytest.mark.parametrize("seed", [None, 0])
def test_rows_come_back_as_they_were(
    model: mx.Synthesizer, labels: str, seed: int | None
) -> None:
    codes = model.encoder.encode(people(), labels=labels, seed=seed)  # type: ignore[arg-type]
    back = model.encoder.decode(codes)
    assert back.with_columns(pl.col(pl.Decimal).cast(pl.Float64)).equals(people())
    assert ("F" in codes["sex"].to_list()) == (labels == "keep")
    made = model.sample(2_000)
    again = model.encoder.decode(model.encoder.encode(made, seed=1))
    assert again.equals(made)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**30), st.sampled_from([1.0, 5.0, 1e3, 1e300]))
def test_any_numbers_are_rows_that_obey(seed: int, size: float) -> None:
    encoder = _MODEL[0].encoder
    random = np.random.default_rng(seed)
    codes = {name: size * random.normal(size=200) for name in encoder.columns}
    codes["age"][:3] = [np.inf, -np.inf, 0]
    codes["gross"][:3] = np.inf
    made = encoder.decode(codes)
    assert mx.check(mx.Rules(RULES), made).all_obey


_MODEL: list[mx.Synthesizer] = []


@pytest.fixture(autouse=True)
def _keep(model: mx.Synthesizer) -> None:
    _MODEL[:] = [model]


def test_codes_of_a_table_are_about_normal_and_rules_are_gone(
    model: mx.Synthesizer,
) -> None:
    codes = model.encoder.encode(people(), seed=0)
    ages = codes["age"].to_numpy()
    assert abs(ages.mean()) < 0.2
    assert abs(ages.std() - 1) < 0.2
    apart = np.random.default_rng(0)
    for (
        name
    ) in codes.columns:  # columns that have nothing to do with each other any more
        codes = codes.with_columns(pl.Series(name, apart.permutation(codes[name])))
    assert mx.check(mx.Rules(RULES), model.encoder.decode(codes)).all_obey


def test_labels_that_the_rules_do_not_leave_give_way() -> None:
    rules = "n: {'p', 'q'}; c: {'a', 'b', 'c'}; implies(n == 'p', c == 'b')"
    rows = pl.DataFrame({"n": ["q", "q", "p"] * 20, "c": ["a", "c", "b"] * 20})
    encoder = mx.Synthesizer(rules).fit(rows, recipes=TINY).encoder
    made = encoder.decode({"n": ["q", "p", "p"], "c": ["a", "b", "c"]})
    assert made.rows()[:2] == [("q", "a"), ("p", "b")]
    assert made.rows()[2] in [("q", "c"), ("p", "b")]
    with pytest.raises(TableError, match="no column 'c'; expected are n, c"):
        encoder.decode({"n": [0.5]})
    with pytest.raises(TableError, match="row 2, column 'c': no number, and no label"):
        encoder.decode({"n": [0.5, 0.5], "c": ["a", "z"]})
    with pytest.raises(TableError, match="row 1 breaks the rules"):
        encoder.encode(pl.DataFrame({"n": ["p"], "c": ["a"]}))


def test_a_generator_from_elsewhere_obeys(tmp_path: Path) -> None:
    """A mixture of Gaussians, fitted to codes, makes rows that obey; fitted to the columns themselves it cannot."""
    mixture = pytest.importorskip(
        "sklearn.mixture", reason="pip install scikit-learn to run this"
    )
    random = np.random.default_rng(0)
    low = random.integers(0, 60, 500)
    rows = pl.DataFrame({"low": low, "high": low + random.integers(0, 40, 500)})
    rules = "low: int[0, 99]; high: int[0, 99]; low <= high"
    encoder = mx.Synthesizer(rules).fit(rows, recipes=TINY).encoder
    codes = encoder.encode(rows, seed=0)
    fitted = mixture.GaussianMixture(3, random_state=0).fit(codes.to_numpy())
    made = encoder.decode(pl.DataFrame(fitted.sample(2_000)[0], schema=codes.columns))
    assert mx.check(mx.Rules(rules), made).all_obey
    means = [frame["high"].to_numpy().mean() for frame in (made, rows)]
    assert abs(means[0] - means[1]) < 4
    plain = mixture.GaussianMixture(3, random_state=0).fit(rows.to_numpy())
    others = np.rint(plain.sample(2_000)[0])
    assert (others[:, 0] > others[:, 1]).mean() > 0.005
