"""Two heads, one rule text: probabilities of four rhythms on the simplex, and a heart rate in [55, 140]."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    p: real[4]; rate: real
    all(v > 0 for v in p)
    sum(p) == 1
    55 <= rate <= 140
""")
mux = mx.Multiplexer(rules)
x = torch.randn(512, 6)
rhythm = (2 * x @ torch.randn(6, 4) + torch.randn(512, 4)).argmax(-1)
rate = (90 + 25 * x[:, 0] - 10 * (rhythm == 2)).clamp(55, 140)

net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(300):
    out = mux(net(x)).best()
    p, predicted = out[:, :4], out[:, 4]
    loss = nn.functional.nll_loss(p.log(), rhythm) + ((predicted - rate) / 20).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

right, off = (p.argmax(-1) == rhythm).float().mean(), (predicted - rate).abs().mean()
print(f"rhythm right in {right:.1%} of the rows, the smallest probability is {p.min():.1g};", end=" ")
print(f"heart rate off by {off:.2f} a minute")
assert rules.satisfied(out).all()
