"""Rain is never negative, and on most days it is exactly zero: dry or wet is a choice, and how much is a number."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("rain == 0 or rain > 0")
mux = mx.Multiplexer(rules)
x = torch.randn(512, 3)
wet = x[:, 0] + 0.5 * x[:, 1] > 0.6
y = torch.where(wet, 4 + x[:, 2] + x[:, 1].square(), 0.0).clamp(min=0).unsqueeze(-1)


def cost(rain):
    """Of every term: its squared error, and 1 if it is wet on a dry day or dry on a wet one."""
    return (rain[..., 0] - y).square() + ((rain[..., 0] > 0) != (y > 0))


def report(name, rain):
    """One line."""
    zero, below = (rain[~wet] == 0).float().mean(), (rain < 0).float().mean()
    print(f"{name}: exactly 0 on {zero:.0%} of the dry days, negative on {below:.0%}", end=", ")
    print(f"off by {(rain - y).abs().mean():.2f} mm")


losses = (lambda raw: (raw[:, :1] - y).square().mean()), (lambda raw: mux(raw).loss(cost).mean())
for name, loss in zip(("plain", "rules"), losses, strict=True):
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, mux.in_features))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(300):
        optimiser.zero_grad()
        loss(net(x)).backward()
        optimiser.step()
    report(name, net(x)[:, :1] if name == "plain" else mux(net(x)).best())

assert rules.satisfied(mux(net(x)).best()).all()
