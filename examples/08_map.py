"""A convolutional network paints three channels of a (64, 64) map, and at every pixel 0 ≤ a + b + c ≤ 1."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("0 <= a + b + c <= 1")
mux = mx.Multiplexer(rules)
axis = torch.linspace(-1, 1, 64)
u, v = torch.meshgrid(axis, axis, indexing="ij")
phase = torch.rand(4, 1, 1) * 6
target = torch.stack([torch.sin(3 * u + phase), torch.cos(2 * v - phase), u * v - phase / 6], -1)  # (4, 64, 64, 3)
total = target.sum(-1, keepdim=True)
optimum = (total.clamp(0, 1) - total).square().div(3).mean()  # the excess is shared by three channels

ones = torch.ones(4, 1, 1)
image = torch.stack([u * ones, v * ones, phase.sin() * torch.ones(64, 64), phase.cos() * torch.ones(64, 64)], 1)
net = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 3, 1))
optimiser = torch.optim.Adam(net.parameters(), lr=0.03)
for _ in range(100):
    y = mux(net(image).movedim(1, -1)).best()  # the values are the last axis, all others are the batch
    loss = (y - target).square().sum(-1).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

inside = (total >= 0) & (total <= 1)
print(f"{tuple(y.shape)}: loss {loss:.3f}, the constrained optimum is {optimum:.3f};", end=" ")
print(f"the target itself obeys at {inside.float().mean():.0%} of the pixels")
assert rules.satisfied(y).all()
