"""A fingertip within the arm's reach and above the table, pressing with a force inside its friction cone."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    tip: real[2]; force: real[3]
    norm(tip - [0.2, 0]) <= 1 and tip[1] >= 0      # within reach, above the table
    norm(force[:2]) <= 0.5*force[2]                # it does not slip
    force[2] <= 10
""")
mux = mx.Multiplexer(rules)
scene = torch.randn(512, 6)
wish = 0.7 * (scene @ torch.randn(6, 2)).tanh() + torch.tensor([0.5, 0.5])
push = torch.tensor([2.0, 2, 3]) * (scene @ torch.randn(6, 3)).tanh() + torch.tensor([0.0, 0, 5])
target = torch.cat([wish, push], -1)
scale = torch.tensor([0.3, 0.3, 2, 2, 2])

net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(300):
    x = mux(net(scene)).best()
    loss = ((x - target) / scale).square().sum(-1).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

nearest = mux.repair(target)
least = ((nearest - target) / scale).square().sum(-1).mean()
length = x[:, 2:4].double().norm(dim=-1)
print(f"of the wishes {rules.satisfied(target).float().mean():.0%} can be had;", end=" ")
print(f"loss {loss:.3f}, of the wishes moved inside {least:.3f};", end=" ")
print(f"at most {(length / x[:, 4]).max():.7f} of the force is sideways")
assert rules.satisfied(x).all()
