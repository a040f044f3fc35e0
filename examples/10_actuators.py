"""Twelve actuators, each off or in a band of its own: 4,096 combinations that nobody writes out."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    a: real[12]
    all(a[i] == 0 or 200 + 10*i < a[i] < 400 + 10*i for i in range(12))
""")
mux = mx.Multiplexer(rules)
x = torch.randn(256, 6)
wish = 350 * torch.sigmoid(1.5 * x @ torch.randn(6, 12))  # what each would do if it were free
low, high = 200 + 10 * torch.arange(12), 400 + 10 * torch.arange(12)
nearest = torch.maximum(low, torch.minimum(wish, high))
optimum = torch.minimum(wish.square(), (nearest - wish).square()).mean().sqrt()

net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
for _ in range(100):
    branches = mux(net(x))
    # One loss per output: they add up, so the choice of every actuator is summed out by itself, exactly.
    loss = branches.loss(lambda a: (a - wish.unsqueeze(-2)).square() / 1000).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

a = branches.best()
print(f"{len(mux.blocks)} blocks of 2 terms, {mux.in_features} raw features; {(a > 0).float().mean():.0%} are on;")
print(f"off the wish by {(a - wish).square().mean().sqrt():.1f}, with the best of all combinations {optimum:.1f}")
assert rules.satisfied(a).all()
