"""Forecasts that add up: the children sum to the parent, and what flows between the regions sums to zero."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    total: real; region: real[3]; flow: real[3]
    total == sum(region)
    sum(flow) == 0
    all(-30 <= v <= 30 for v in region); all(-30 <= v <= 30 for v in flow)
""")
mux = mx.Multiplexer(rules)
x = torch.randn(256, 4)
region = 3 + x @ torch.randn(4, 3) + x.square()[:, :3]
flow = x @ torch.randn(4, 3)
true = torch.cat([region.sum(-1, keepdim=True), region, flow - flow.mean(-1, keepdim=True)], -1)
seen = true + 0.5 * torch.randn(256, 7)  # measured one by one: what is measured does not add up

for name, layer in (("plain", lambda raw: 30 * raw), ("rules", lambda raw: mux(raw).best())):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 7))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(400):
        optimiser.zero_grad()
        (layer(net(x)) - seen).square().mean().backward()
        optimiser.step()
    y = layer(net(x)).detach()
    error, share = (y - true).square().mean(), rules.satisfied(y).float().mean()
    print(f"{name}: error {error:.3f}, adds up in {share:.0%} of the rows, gaps up to {rules.violation(y).max():.1g}")

assert rules.satisfied(y).all()
