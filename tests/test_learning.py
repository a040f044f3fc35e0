"""Learning through the choice, on problems whose answer is known."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import multiplexnet as mx


def trained(
    parameters: list[Tensor], loss: Callable[[], Tensor], steps: int, rate: float
) -> None:
    optimiser = torch.optim.Adam(parameters, rate, betas=(0.9, 0.95))
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def test_the_layer_reaches_the_constrained_optimum_where_clipping_is_dead() -> None:
    """y = 1.4 with x ≤ −2 or 1 ≤ x ≤ 2 (optimum 1.4): started at −50, the clipped network never moves."""
    torch.manual_seed(0)
    rules = mx.Rules("x <= -2 or 1 <= x <= 2")
    mux = mx.Multiplexer(rules)
    raw = torch.zeros(mux.in_features)
    raw[0] = -10.0
    raw.requires_grad_()
    free = torch.tensor([-50.0], requires_grad=True)

    def f(x: Tensor) -> Tensor:
        return (x - 1.4).square().sum(-1)

    trained([raw], lambda: mux(raw).loss(f), 400, 0.1)
    trained([free], lambda: f(free.clamp(1.0, 2.0)), 400, 0.1)
    best = mux(raw).best()
    assert abs(float(best.detach()) - 1.4) < 0.05
    assert bool(rules.satisfied(best.detach()))
    assert float(free.detach()) == -50.0


def test_coupled_rules_reach_the_projection() -> None:
    """The nearest point of {x + y ≤ 1, x ≥ 0, y ≥ 0} to (2, 1) is (1, 0); to (0.4, 0.3) the point itself."""
    torch.manual_seed(0)
    mux = mx.Multiplexer(mx.Rules("x + y <= 1\nx >= 0\ny >= 0"))
    targets = torch.tensor([[2.0, 1.0], [0.4, 0.3]])
    raw = torch.zeros(2, mux.in_features, requires_grad=True)
    trained(
        [raw],
        lambda: (
            mux(raw).loss(lambda x: (x - targets.unsqueeze(-2)).square().sum(-1)).sum()
        ),
        800,
        0.05,
    )
    found = mux(raw).best().detach()
    assert torch.allclose(found, torch.tensor([[1.0, 0.0], [0.4, 0.3]]), atol=0.03)


def test_a_learnable_prior_finds_the_frequencies_of_the_terms() -> None:
    """Data in three intervals, 60 : 30 : 10; with the optimal q the prior's maximum likelihood is just that."""
    generator = torch.Generator().manual_seed(0)
    mux = mx.Multiplexer(mx.Rules("0 <= x <= 1 or 2 <= x <= 3 or 4 <= x <= 5"))
    frequency = torch.tensor([0.6, 0.3, 0.1])
    kinds = torch.multinomial(frequency, 3000, replacement=True, generator=generator)
    y = 2.0 * kinds + torch.rand(3000, generator=generator)
    prior = nn.Parameter(torch.zeros(3))
    raw = nn.Parameter(torch.zeros(1))

    def loss() -> Tensor:
        full = torch.cat([raw.expand(3000, 1), torch.zeros(3000, 3)], -1)
        loss: Tensor = mux(full).evidence_loss(
            lambda x: 10 * (x.squeeze(-1) - y.unsqueeze(-1)).square(), prior
        )
        return loss.mean()

    trained([prior, raw], loss, 250, 0.05)
    found = torch.softmax(prior.detach(), -1)
    values = mux(torch.zeros(mux.in_features)).x.squeeze(-1)
    order = values.argsort().tolist()
    expected = torch.bincount(kinds, minlength=3) / 3000
    assert torch.allclose(found[order], expected, atol=0.02)
