"""A budget on the sum of absolute values: |x₁| + … + |x₄| ≤ 1, learned against the exact projection."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    x: real[4]
    sum(abs(v) for v in x) <= 1
""")
mux = mx.Multiplexer(rules)
features = torch.randn(512, 3)
y = 0.6 * torch.sin(0.7 * features @ torch.randn(3, 4))

size = y.abs().sort(descending=True).values  # the nearest point of the ball: shrink by a threshold
threshold = ((size.cumsum(-1) - 1) / torch.arange(1, 5)).amax(-1, keepdim=True).clamp(min=0)
nearest = y.sign() * (y.abs() - threshold).clamp(min=0)
optimum = (nearest - y).square().sum(-1).mean()

net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(400):
    x = mux(net(features)).best()
    loss = (x - y).square().sum(-1).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

obeyed = rules.satisfied(nearest).float().mean()
print(f"loss {loss:.4f}, of the projection {optimum:.4f}; the projection in floats obeys in {obeyed:.0%} of the rows")
assert rules.satisfied(x).all()
