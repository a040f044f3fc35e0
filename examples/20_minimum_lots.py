"""A portfolio with minimum lots: 12 assets, each not held at all or with 5 % to 40 %, together exactly 100 %."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    w: real[12]
    all(v == 0 or 5 <= v <= 40 for v in w)
    sum(w) == 100
""")
mux = mx.Multiplexer(rules)  # one output after another: 4,096 combinations of held and not held, 12 small choices
signal, loading = torch.randn(256, 4), torch.randn(4, 12)
value = signal @ loading  # what the signals say of each asset
wish = (value / 0.6).softmax(-1) * 100
held = torch.where(wish >= 5, wish, 0.0).clamp(max=40)  # what a careful person would hold, before it adds up
target = mux.repair(held)  # the nearest that obeys, found output by output

net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(120):
    loss = -mux(net(signal)).log_prob(target).mean()  # exact, lots and sizes together
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

w = mux(net(signal)).best().detach()
same = ((w > 0) == (target > 0)).float().mean()
print(f"held or not as wished in {same:.0%} of all cases, {w.gt(0).sum(-1).float().mean():.1f} assets held;", end=" ")
print(f"off by {(w - target).abs().mean():.1f} % a weight; the sum is 100 in all {len(w)} rows")
assert rules.satisfied(w).all()
