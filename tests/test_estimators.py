"""Estimators against the exact gradient: unbiased ones agree on average, and their spread is what it should be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import multiplexnet as mx
from multiplexnet.layer.branches import Branches
from multiplexnet.learning.estimators import (
    Concrete,
    Estimator,
    ScoreFunction,
    StraightThrough,
    TopTerms,
)

ONE_BLOCK = "0 <= x <= 1 or 2 <= x <= 3 or 5 <= x <= 9 or x == -1"
TWO_BLOCKS = "x <= -1 or x >= 1\n y <= -2 or y == 0 or y >= 2"


def branches_of(
    text: str, batch: int = 1, seed: int = 0
) -> tuple[Branches, Tensor, mx.Rules]:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(
        1, mux.in_features, dtype=torch.float64, generator=generator
    ).requires_grad_()
    return mux(raw.expand(batch, -1)), raw, rules


def joint_loss(x: Tensor) -> Tensor:
    """A loss that is not a sum over outputs."""
    return (x.sum(-1) - 2.5).square() + torch.sin(x.prod(-1))


def gradient(estimate: Tensor, raw: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(estimate.mean(), raw, retain_graph=True)
    return grad


UNBIASED: list[Callable[[torch.Generator], Estimator]] = [
    lambda g: ScoreFunction(2, generator=g),
    lambda g: ScoreFunction(5, generator=g),
    lambda g: TopTerms(1, 1, generator=g),
    lambda g: TopTerms(2, 3, generator=g),
    lambda g: TopTerms(50, 1, generator=g),
]


@pytest.mark.parametrize("text", [ONE_BLOCK, TWO_BLOCKS])
@pytest.mark.parametrize("make", UNBIASED)
def test_unbiased_estimators_agree_with_the_exact_gradient(
    text: str, make: Callable[[torch.Generator], Estimator]
) -> None:
    batch = 25_000
    branches, raw, _ = branches_of(text, batch)
    exact = branches.loss(joint_loss)
    estimate = branches.loss(
        joint_loss, estimator=make(torch.Generator().manual_seed(1))
    )
    spread = estimate.detach().std() / batch**0.5
    assert (estimate.mean() - exact.mean()).abs() <= 5 * spread + 1e-9
    assert torch.allclose(
        gradient(estimate, raw), gradient(exact, raw), atol=0.08, rtol=0.05
    )


def test_all_terms_at_the_top_leave_nothing_to_chance() -> None:
    branches, raw, _ = branches_of(TWO_BLOCKS, 5)
    exact, estimate = (
        branches.loss(joint_loss),
        branches.loss(joint_loss, estimator=TopTerms(6)),
    )
    assert torch.allclose(exact, estimate)
    assert torch.allclose(gradient(exact, raw), gradient(estimate, raw))


def test_summing_the_top_terms_lowers_the_variance() -> None:
    branches, _, _ = branches_of(ONE_BLOCK, 20_000)
    generator = torch.Generator().manual_seed(2)
    spread = [
        branches.loss(
            joint_loss, estimator=TopTerms(count, 2, generator=generator)
        ).std()
        for count in (1, 2, 3)
    ]
    drawn = branches.loss(
        joint_loss, estimator=ScoreFunction(3, generator=generator)
    ).std()
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < drawn


@pytest.mark.parametrize("text", [ONE_BLOCK, TWO_BLOCKS])
def test_straight_through_shows_the_loss_only_what_obeys(text: str) -> None:
    branches, raw, rules = branches_of(text, 500)
    seen: list[Tensor] = []

    def f(x: Tensor) -> Tensor:
        seen.append(x)
        return joint_loss(x)

    estimate = branches.loss(
        f, estimator=StraightThrough(0.5, generator=torch.Generator().manual_seed(3))
    )
    assert rules.satisfied(seen[0].detach()).all()
    assert gradient(estimate, raw).abs().sum() > 0


def test_the_relaxed_choice_hardens_as_it_cools() -> None:
    branches, _, _ = branches_of(ONE_BLOCK, 20_000)
    exact = branches.loss(joint_loss).mean()
    far, near = (
        (
            branches.loss(
                joint_loss,
                estimator=Concrete(t, generator=torch.Generator().manual_seed(4)),
            ).mean()
            - exact
        )
        for t in (5.0, 1e-3)
    )
    assert near.abs() < 0.2 * far.abs()


def test_a_sum_over_outputs_needs_no_combinations() -> None:
    text = "x: real[20]\nall(v <= -1 or v >= 1 for v in x)"
    branches, raw, _ = branches_of(text, 3)
    loss = branches.loss(lambda x: (x - 0.3).square())
    expected = sum(
        (
            choice.log_probs.exp()
            * (
                (choice.x - 0.3).square().sum(-1)
                + choice.log_probs
                - torch.tensor(0.5).log()
            )
        ).sum(-1)
        for choice in branches.choices
    )
    assert torch.allclose(loss, torch.as_tensor(expected))
    assert gradient(loss, raw).isfinite().all()
    with pytest.raises(mx.MultiplexError, match="one value per output"):
        branches.loss(joint_loss)
    estimated = branches.loss(joint_loss, estimator=ScoreFunction(3))
    assert estimated.isfinite().all()


def test_additive_and_joint_losses_agree_where_both_work() -> None:
    branches, raw, _ = branches_of(TWO_BLOCKS, 2)
    apart = branches.loss(
        lambda x: (x - 1.5).square(), prior=[torch.tensor([0.0, 1.0]), None]
    )
    together = branches.loss(
        lambda x: (x - 1.5).square().sum(-1), prior=[torch.tensor([0.0, 1.0]), None]
    )
    assert torch.allclose(apart, together)
    assert torch.allclose(gradient(apart, raw), gradient(together, raw))


def test_logits_of_masked_blocks_get_their_gradient() -> None:
    rules = mx.Rules(
        "x: real; y: real; u: input[0, 3]\nx <= -1 or 1 <= x <= u\ny <= -1 or y >= u"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    raw = torch.zeros(4, mux.in_features, dtype=torch.float64, requires_grad=True)
    u = torch.tensor([0.5, 1.5, 2.0, 3.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(
        mux(raw, u=u).loss(lambda x: (x - 0.7).square()).sum(), raw
    )
    assert (gradient[1:, 2:] != 0).all()
    assert (gradient[0, 2:4] == 0).all()  # there is nothing to choose


@pytest.mark.parametrize("text", [ONE_BLOCK, TWO_BLOCKS])
def test_the_evidence_is_the_loss_of_the_best_choice(text: str) -> None:
    branches, _, _ = branches_of(text)
    evidence, bound = branches.evidence_loss(joint_loss), branches.loss(joint_loss)
    direct = -torch.logsumexp(
        -joint_loss(branches.x) - torch.tensor(float(branches.size)).log(), -1
    )
    assert torch.allclose(evidence, direct)
    assert (bound > evidence).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ScoreFunction(1), "samples = 1"),
        (lambda: TopTerms(0), "count = 0"),
        (lambda: Concrete(0.0), "temperature = 0.0"),
    ],
)
def test_settings_that_make_no_sense(make: Callable[[], Estimator], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_prior_for_every_block() -> None:
    branches, _, _ = branches_of(TWO_BLOCKS)
    with pytest.raises(mx.MultiplexError, match="2 blocks"):
        branches.loss(lambda x: x.square(), prior=[None])
