"""Distributions over the outputs of a cascade: probabilities of grid points beside densities of terms."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

import multiplexnet as mx
from multiplexnet.errors import CascadeError, InputError, ShapeError

SMALL = "n: int[0, 5]; m: int[0, 9]; on: bool; n <= m; n + m >= 3; implies(on, m >= n + 2); m == 0 or m >= 2"
LOTS = "u: input[10, 300]; x: real[4]; y: real; 0 <= y <= 1; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= u"


def layer(text: str, dtype: torch.dtype = torch.float64) -> mx.Multiplexer:
    return mx.Multiplexer(mx.Rules(text), structure="cascade", dtype=dtype).eval()


@pytest.fixture(autouse=True)
def _calm() -> None:
    torch.manual_seed(0)


def test_probabilities_of_all_points_sum_to_one_and_are_those_of_samples() -> None:
    mux = layer(SMALL)
    base = Normal(
        torch.tensor([0.3, -0.5, 0.0]).double(), torch.tensor([0.7, 1.5, 1.0]).double()
    )
    logits = torch.randn(mux.in_features - 3).double()
    p = mx.RulesDistribution(mux, base, logits)
    points = torch.tensor(
        list(itertools.product(range(6), range(10), range(2)))
    ).double()
    probabilities = p.log_prob(points).exp()
    assert torch.allclose(probabilities.sum(), torch.tensor(1.0).double())
    assert torch.equal(probabilities > 0, mux.rules.satisfied(points))
    assert torch.equal(p.support.check(points), mux.rules.satisfied(points))
    drawn = p.sample((20_000,))
    share = torch.stack([(drawn == point).all(-1).double().mean() for point in points])
    assert (share - probabilities).abs().max() < 0.015
    exact = -(probabilities * probabilities.clamp(min=1e-300).log()).sum()
    assert (p.entropy(20_000) - exact).abs() < 0.05


def test_a_cascade_beside_terms_with_inputs_in_batches() -> None:
    mux = layer(LOTS, torch.float32)
    u = torch.tensor([50.0, 250.0, 300.0])
    loc = torch.zeros(5, requires_grad=True)
    logits = torch.zeros(3, mux.in_features - 5, requires_grad=True)
    p = mx.RulesDistribution(mux, Normal(loc, 1.0), logits, inputs={"u": u})
    assert p.batch_shape == (3,)
    chunks = list(p.samples(500, chunk=200))
    assert [len(chunk) for chunk in chunks] == [200, 200, 100]
    for x in chunks:
        assert mux.rules.satisfied(x, u=u.expand(len(x), 3)).all()
        assert p.support.check(x).all()
    log_prob = p.log_prob(chunks[0])
    assert log_prob.shape == (200, 3)
    assert log_prob.isfinite().all()
    for gradient in torch.autograd.grad(log_prob.sum(), (loc, logits)):
        assert gradient.isfinite().all()
        assert (gradient != 0).any()
    outside = chunks[0].clone()
    outside[..., 0] = 5.0
    assert p.log_prob(outside).isneginf().all()
    assert mux.rules.satisfied(p.mode, u=u).all()
    assert "cascade of 4 outputs" in repr(p)
    assert p.expand((2, 3)).sample().shape == (2, 3, 5)


def test_what_a_cascade_cannot_have_is_said() -> None:
    mux = layer(LOTS, torch.float32)
    u = {"u": torch.tensor(200.0)}
    p = mx.RulesDistribution(mux, Normal(torch.zeros(5), 1.0), inputs=u)
    assert not p.has_rsample
    with pytest.raises(CascadeError, match="draws from all terms"):
        p.branches()
    with pytest.raises(
        InputError,
        match=r"independent distributions with a cdf.*Normal\(torch.zeros\(5\), 1.0\)",
    ):
        mx.RulesDistribution(
            mux, MultivariateNormal(torch.zeros(5), torch.eye(5)), inputs=u
        )
    with pytest.raises(
        ShapeError,
        match="their last dimension must be 8: 0 of terms, then 8 of options",
    ):
        mx.RulesDistribution(mux, Normal(torch.zeros(5), 1.0), torch.zeros(3), inputs=u)
