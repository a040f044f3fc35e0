"""A network exists already and is good on average. `repair` moves the rows that break the rules, and no others."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    low: real; mid: real; high: real
    0 <= low <= mid <= high
    high - low <= 2 or mid >= 1
""")
x = torch.randn(1000, 4)
y = torch.cumsum((x @ torch.randn(4, 3)).square() / 8, -1)
y = torch.where(((y[:, 2] - y[:, 0] > 2) & (y[:, 1] < 1)).unsqueeze(-1), y.clamp(max=1.9), y)  # the data obey
assert rules.satisfied(y).all()

net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))  # trained by somebody who had not heard of rules
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(300):
    optimiser.zero_grad()
    (net(x) - y).square().mean().backward()
    optimiser.step()

mux = mx.Multiplexer(rules)
before = net(x).detach()
after = mux.repair(before)
obeyed, same = rules.satisfied(before), (before == after).all(-1)
moved = (after - before)[~same].norm(dim=-1)
print(f"{obeyed.float().mean():.1%} of the rows obey, {same.float().mean():.1%} are bit for bit the same after repair,")
print(f"the others move by {moved.mean():.3f} (at most {moved.max():.3f})", end=", ")
print(f"the error goes from {(before - y).square().mean():.4f} to {(after - y).square().mean():.4f}")
assert same.equal(obeyed)
assert rules.satisfied(after).all()
