"""A price between two that come with each offer: `assume low <= high` says that they do not cross, and is checked."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    price: real; pieces: int[0, 40]
    low: input[1, 50]; high: input[1, 50]; unit: input[0.5, 9]; budget: input[0, 200]
    assume low <= high
    low <= price <= high
    unit * pieces <= budget
""")
mux = mx.Multiplexer(rules)


def offers(rows):
    """What comes with an offer, and the price and number of pieces that were agreed upon."""
    low = 1 + 30 * torch.rand(rows)
    high, unit, budget = low + 15 * torch.rand(rows), 0.5 + 8.5 * torch.rand(rows), 200 * torch.rand(rows)
    given = {"low": low, "high": high, "unit": unit, "budget": budget}
    wish = torch.stack([0.7 * low + 0.4 * high, 0.9 * budget / unit], -1) + torch.randn(rows, 2)
    return given, torch.minimum(wish, torch.tensor([50.0, 40.0]))


given, wish = offers(512)
features = torch.stack([value / value.max() for value in given.values()], -1)
net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(150):
    agreed = mux(net(features), **given).best()
    loss = (agreed - wish).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"off by {(agreed - wish).abs().mean(0)[0]:.2f} in price, {(agreed - wish).abs().mean(0)[1]:.1f} pieces")
assert rules.satisfied(agreed, **given).all()
