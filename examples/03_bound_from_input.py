"""The bounds are known at run time, one per row: y > x₃ and y + x₅ + x₇ < K, where x and K come with the sample."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    y: real
    x: input[0, 1][8]; K: input[3.5, 5]
    y > x[3]
    y + x[5] + x[7] < K
""")
mux = mx.Multiplexer(rules)
x, K = torch.rand(512, 8), 3.5 + 1.5 * torch.rand(512)
target = 4 * x[:, 0] + 0.5 * x[:, 1]  # often impossible: then the nearest possible value is the best there is
best = torch.clamp(target, x[:, 3], K - x[:, 5] - x[:, 7])
optimum = (best - target).square().mean()

net = nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(400):
    y = mux(net(torch.cat([x, K.unsqueeze(-1)], -1)), x=x, K=K).best()
    loss = (y[:, 0] - target).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

print(f"loss {loss:.4f}, the constrained optimum is {optimum:.4f}")
assert rules.satisfied(y, x=x, K=K).all()
