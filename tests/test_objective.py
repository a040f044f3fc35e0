"""The marginal objective against its closed form, written down term by term."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import product

import pytest
import torch
from corpus import by_name
from torch import Tensor, nn

from multiplexnet.errors import ShapeError
from multiplexnet.layer import objective
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.layer.objective import term_losses
from multiplexnet.rules import Rules

Loss = Callable[[Tensor], Tensor]


def layer(name: str) -> Multiplexer:
    return Multiplexer(Rules(by_name(name).text), dtype=torch.float64)


def naive(branches: Branches, f: Loss, prior: Tensor | None = None) -> Tensor:
    """Σ_k q(k) [ℓ_k − log p(k) + log q(k)] over the terms that can be met, with a Python loop."""
    total = torch.zeros(branches.batch, dtype=torch.float64)
    log_q, losses = branches.log_probs, f(branches.x)
    possible = ~branches.logits.isneginf()
    weights = torch.zeros_like(log_q) if prior is None else prior.expand(log_q.shape)
    size = torch.logsumexp(torch.where(possible, weights, -torch.inf), -1)
    for k in range(branches.size):
        each = log_q[..., k].exp() * (
            losses[..., k] - (weights[..., k] - size) + log_q[..., k]
        )
        total = total + torch.where(possible[..., k], each, 0.0)
    return total


def squared(y: Tensor) -> Loss:
    return lambda x: (x - y.unsqueeze(-2)).square().sum(-1)


RULES = [
    "paper_two_sided",
    "paper_eight_boxes",
    "nested",
    "simplex",
    "mixed",
    "paper_sum_or",
]


@pytest.mark.parametrize("chunk", [1 << 18, 1], ids=["stacked", "streamed"])
@pytest.mark.parametrize("name", RULES)
def test_value_and_gradients_are_those_of_the_closed_form(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)
    mux = layer(name)
    raw = torch.randn(4, 3, mux.in_features, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, mux.out_features, dtype=torch.float64)
    scale = torch.tensor(
        1.5, dtype=torch.float64, requires_grad=True
    )  # a parameter of the loss alone
    prior = torch.randn(mux(raw).size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 3, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return scale * squared(y)(x)

    found = mux(raw).loss(loss, prior)
    expected = naive(mux(raw), loss, prior)
    assert found.shape == (4, 3)
    assert torch.allclose(found, expected)
    wanted = torch.autograd.grad(
        (expected * weight).sum(), [raw, scale, prior], allow_unused=True
    )
    got = torch.autograd.grad(
        (found * weight).sum(), [raw, scale, prior], allow_unused=True
    )
    for a, b in zip(got, wanted, strict=True):
        assert a is not None
        assert torch.allclose(a, torch.zeros_like(a) if b is None else b)


def test_streaming_holds_a_few_terms_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    mux = layer("paper_mnist_addition")
    monkeypatch.setattr(objective, "CHUNK", 2 * 4 * 7)
    seen: list[int] = []

    def loss(x: Tensor) -> Tensor:
        seen.append(x.shape[-2])
        return x.sum(-1)

    with torch.no_grad():
        mux(torch.randn(2, mux.in_features, dtype=torch.float64)).loss(loss)
    assert sum(seen) == 100
    assert max(seen) == 7


def test_priors() -> None:
    mux = layer("paper_eight_boxes")
    raw, y = (
        torch.randn(5, mux.in_features, dtype=torch.float64),
        torch.randn(5, 2, dtype=torch.float64),
    )
    branches = mux(raw)
    uniform = branches.loss(squared(y))
    assert torch.allclose(uniform, naive(branches, squared(y)))
    assert torch.allclose(
        uniform, branches.loss(squared(y), torch.full((8,), 3.0, dtype=torch.float64))
    )
    conditional = torch.randn(5, 8, dtype=torch.float64)
    assert torch.allclose(
        branches.loss(squared(y), conditional), naive(branches, squared(y), conditional)
    )
    posterior = branches.loss(lambda x: 0 * x.sum(-1), branches.logits)
    assert torch.allclose(posterior, torch.zeros(5, dtype=torch.float64), atol=1e-12)


def test_a_learned_prior_finds_the_terms() -> None:
    """With a prior of its own the objective is smallest where p is the average of q."""
    mux = Multiplexer(Rules("x in {-1, 0.5, 2}"))
    prior = nn.Parameter(torch.zeros(3))
    raw = torch.cat([torch.zeros(1), torch.tensor([0.1, 0.6, 0.3]).log()])
    optimiser = torch.optim.Adam([prior], lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        mux(raw).loss(lambda x: 0 * x.sum(-1), prior).backward()
        optimiser.step()
    assert prior.softmax(-1).tolist() == pytest.approx([0.1, 0.6, 0.3], abs=0.01)


def test_it_is_an_upper_bound_of_the_marginal_likelihood() -> None:
    mux = layer("paper_eight_boxes")
    raw, y = (
        torch.randn(50, mux.in_features, dtype=torch.float64),
        torch.randn(50, 2, dtype=torch.float64),
    )
    branches = mux(raw)
    evidence = -torch.logsumexp(-squared(y)(branches.x) - torch.tensor(8.0).log(), -1)
    assert (branches.loss(squared(y)) >= evidence - 1e-12).all()


# --- terms that cannot be met ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1 << 18, 1], ids=["stacked", "streamed"])
@pytest.mark.parametrize("prior", [False, True])
def test_terms_that_cannot_be_met_contribute_nothing(
    prior: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)
    mux = layer("design_actuator")
    raw = torch.randn(6, mux.in_features, dtype=torch.float64, requires_grad=True)
    limit = torch.tensor([-5.0, 0.0, 100.0, 202.5, 300.0, 500.0], dtype=torch.float64)
    logits = torch.randn(2, dtype=torch.float64, requires_grad=True) if prior else None
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    branches = mux(raw, limit=limit)
    masked = branches.logits.isneginf()
    assert masked.any(-1).tolist() == [True, True, True, False, False, False]

    def loss(x: Tensor) -> Tensor:
        return scale * x.abs().sum(-1)

    found = branches.loss(loss, logits)
    assert torch.allclose(found, naive(branches, loss, logits))
    found.sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    assert scale.grad is not None
    assert scale.grad.isfinite()
    assert (raw.grad[:3, 2:] == 0).all()
    only = branches.x.gather(
        -2, branches.logits.argmax(-1)[:, None, None].expand(-1, 1, 2)
    ).squeeze(-2)
    assert torch.allclose(found[:3], only[:3].abs().sum(-1))


def test_extreme_logits_give_no_nan() -> None:
    mux = layer("paper_eight_boxes")
    largest = torch.finfo(torch.float64).max
    for value in (torch.inf, -torch.inf, largest, -largest):
        raw = torch.zeros(mux.in_features, dtype=torch.float64)
        raw[2:5] = value
        raw.requires_grad_()
        loss = mux(raw).loss(lambda x: x.square().sum(-1))
        (gradient,) = torch.autograd.grad(loss, raw)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_nan_is_seen() -> None:
    raw = torch.full((10,), torch.nan, dtype=torch.float64)
    assert layer("paper_eight_boxes")(raw).loss(lambda x: x.sum(-1)).isnan()


# --- products and shapes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1 << 18, 5, 1], ids=["stacked", "by twos", "single"])
def test_a_product_of_blocks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)
    mux = Multiplexer(
        Rules("x <= -1 or x >= 1\ny == 0 or 2 < y < 3 or y > 9"), dtype=torch.float64
    )
    raw = torch.randn(5, mux.in_features, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 2, dtype=torch.float64)
    found, expected = mux(raw).loss(squared(y)), naive(mux(raw), squared(y))
    assert torch.allclose(found, expected)
    wanted = torch.autograd.grad(expected.sum(), raw)[0]
    assert torch.allclose(torch.autograd.grad(found.sum(), raw)[0], wanted)


@pytest.mark.parametrize(
    "chunk", [1 << 18, 10, 15, 5], ids=["at once", "held", "held, others whole", "anew"]
)
def test_a_loss_by_output_is_that_of_all_combinations(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "CHUNK", chunk)
    monkeypatch.setattr(objective, "KEPT", 2)
    mux = Multiplexer(
        Rules("x <= -1 or x >= 1\ny == 0 or 2 < y < 3 or y > 9"), dtype=torch.float64
    )
    raw = torch.randn(5, mux.in_features, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 1, 2, dtype=torch.float64)
    found = mux(raw).loss(lambda x: (x - y).square())
    expected = naive(mux(raw), lambda x: (x - y).square().sum(-1))
    assert torch.allclose(found, expected)
    wanted = torch.autograd.grad(expected.sum(), raw)[0]
    assert torch.allclose(torch.autograd.grad(found.sum(), raw)[0], wanted)


def test_an_infinite_loss_of_another_block_does_not_count() -> None:
    """An output that costs infinity, at the point where the others stay, is no part of what a block costs."""
    mux = Multiplexer(Rules("a <= -1 or a >= 1\nb <= -1 or b >= 1"))
    raw = torch.randn(6, mux.in_features, requires_grad=True)

    def f(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, torch.inf)

    found = mux(raw).evidence_loss(f)
    expected = mux(raw).evidence_loss(lambda x: f(x).sum(-1))
    assert torch.allclose(found, expected)
    wanted = torch.autograd.grad(expected.sum(), raw)[0]
    assert torch.allclose(torch.autograd.grad(found.sum(), raw)[0], wanted)


@pytest.mark.parametrize("given", [False, True], ids=["alike", "a prior"])
def test_combinations_run_through_the_last_block_first(given: bool) -> None:
    """Log-probabilities of combinations are sums of those of the blocks; uniform ones are a single number."""
    mux = Multiplexer(
        Rules("x <= -1 or x >= 1\ny == 0 or 2 < y < 3 or y > 9\nz != 4"),
        dtype=torch.float64,
    )
    branches = mux(torch.randn(5, mux.in_features, dtype=torch.float64))
    own = [choice.log_probs for choice in branches.choices]
    if given:
        own[0] = torch.full((1,), -0.5, dtype=torch.float64)
        own[2] = torch.randn(2, dtype=torch.float64)
    combinations = list(product(range(2), range(3), range(2)))
    expected = [
        sum(p[..., min(k, p.shape[-1] - 1)] for p, k in zip(own, each, strict=True))
        for each in combinations
    ]
    assert torch.equal(branches.joint(own), torch.stack(expected, -1))
    alike = [torch.tensor([float(k)]) for k in range(3)]
    assert torch.equal(branches.joint(alike), torch.tensor([3.0]))


@pytest.mark.parametrize("chunk", [1, 6], ids=["single", "by twos"])
def test_a_product_of_blocks_of_which_inputs_rule_out_terms(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of blocks that are computed a few terms at a time are those that are computed at once."""
    rules = Rules(
        "u: input[0, 10]; x: real; y: real\nx == 0 or 1 < x < u or x > 20\ny <= u\ny == -1 or 2 <= y <= 3"
    )
    mux = Multiplexer(rules, dtype=torch.float64)
    raw = torch.randn(6, mux.in_features, dtype=torch.float64, requires_grad=True)
    u = torch.tensor([0.0, 0.5, 1.0, 2.5, 3.0, 10.0], dtype=torch.float64)
    y = torch.randn(6, 2, dtype=torch.float64)
    results = []
    for size in (1 << 20, chunk):
        monkeypatch.setattr(objective, "CHUNK", size)
        branches = mux(raw, u=u)
        assert len(branches.choices) > 1
        losses = term_losses(branches, squared(y))
        found = branches.loss(squared(y))
        results.append((losses, found, torch.autograd.grad(found.sum(), raw)[0]))
    for whole, streamed in zip(*results, strict=True):
        assert torch.allclose(whole, streamed, rtol=1e-12, atol=1e-14)
        assert streamed.isfinite().all()


THREE_BLOCKS = """
x: real[7]
x[3] <= -1 or x[3] >= 1
all(0 <= v <= 1 for v in (x[0], x[2], x[5])) or all(2 <= v <= 3 for v in (x[0], x[2], x[5]))
x[1] == 0 or 2 < x[1] < x[4] or x[1] > 9
"""


@pytest.mark.parametrize("wide", [16, 0], ids=["in halves", "laid out anew"])
def test_combinations_are_sums_of_blocks_among_all_outputs(
    wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "CHUNK", 1)
    monkeypatch.setattr(objective, "WIDE", wide * 10_000)
    mux = Multiplexer(Rules(THREE_BLOCKS), dtype=torch.float64)
    raw = torch.randn(5, mux.in_features, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 7, dtype=torch.float64)
    branches = mux(raw)
    assert len(branches.choices) == 4
    losses = term_losses(branches, squared(y))
    assert torch.allclose(losses, squared(y)(branches.x), rtol=1e-14)
    found = branches.loss(squared(y))
    expected = naive(mux(raw), squared(y))
    assert torch.allclose(found, expected)
    wanted = torch.autograd.grad(expected.sum(), raw)[0]
    assert torch.allclose(torch.autograd.grad(found.sum(), raw)[0], wanted)


@pytest.mark.parametrize("text", ["x <= -1 or x >= 1", "x <= -1 or x >= 1; y != 4"])
def test_many_rows_of_few_terms_have_the_loss_of_each_row(text: str) -> None:
    """They are laid out in memory term by term; what the loss is asked for is in one piece."""
    mux = Multiplexer(Rules(text), dtype=torch.float64)
    raw = torch.randn(4096, mux.in_features, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4096, mux.out_features, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        assert x.is_contiguous()
        return squared(y)(x)

    found = mux(raw).loss(loss)
    expected = naive(mux(raw), squared(y))
    assert torch.allclose(found, expected)
    wanted = torch.autograd.grad(expected.sum(), raw)[0]
    assert torch.allclose(torch.autograd.grad(found.sum(), raw)[0], wanted)


def test_batch_shapes() -> None:
    mux = layer("paper_sum_or")
    for batch in ((), (0,), (2, 3), (2, 0, 1)):
        raw = torch.randn(
            *batch, mux.in_features, dtype=torch.float64, requires_grad=True
        )
        loss = mux(raw).loss(lambda x: x.square().sum(-1))
        assert loss.shape == batch
        loss.sum().backward()


def test_wrong_shapes_are_named() -> None:
    branches = layer("paper_sum_or")(torch.randn(4, 5, dtype=torch.float64))
    with pytest.raises(
        ShapeError,
        match=r"the loss of 2 terms has shape \(4,\), not \(4, 2\): it must keep batch and",
    ):
        branches.loss(lambda x: x.sum((-1, -2)))
    with pytest.raises(
        ShapeError,
        match=r"prior has shape \(3,\); it must be the logits of the 2 terms, \(2,\) or \(4",
    ):
        branches.loss(lambda x: x.sum(-1), torch.zeros(3))
    with pytest.raises(ShapeError, match=r"prior has shape \(7, 2\)"):
        branches.loss(lambda x: x.sum(-1), torch.zeros(7, 2))


def test_it_can_be_differentiated_twice() -> None:
    mux = layer("paper_sum_or")
    raw = torch.randn(2, mux.in_features, dtype=torch.float64, requires_grad=True)
    prior = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def loss(raw: Tensor, prior: Tensor) -> Tensor:
        branches: Branches = mux(raw)
        return branches.loss(lambda x: x.square().sum(-1), prior)

    assert torch.autograd.gradcheck(loss, (raw, prior))
    assert torch.autograd.gradgradcheck(loss, (raw, prior))


def test_a_streamed_step_needs_less_than_all_terms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is alive at once, as torch counts it, is less than one tensor of all values of all terms."""
    monkeypatch.setattr(objective, "CHUNK", 1 << 14)
    mux = Multiplexer(
        Rules("k: int[0, 99]; x: real[11]\nall(k <= v <= k + 1 for v in x)")
    )
    batch, terms, width = 512, len(mux.terms), mux.out_features
    assert (terms, width) == (100, 12)
    raw = torch.randn(batch, mux.in_features, requires_grad=True)
    gc.collect()
    with torch.profiler.profile(profile_memory=True) as profile:
        mux(raw).loss(lambda x: x.square().sum(-1)).sum().backward()
    assert profile.profiler is not None
    alive, peak = 0, 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    assert 0 < peak < 0.9 * 4 * batch * terms * width
