"""At most 4 of 30 sensors may be on at a time, and together they may draw 2.5 W: which ones, and how much?"""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    power: real[30]
    all(0 <= v <= 1 for v in power)
    sum(1 if v > 0 else 0 for v in power) <= 4
    sum(power) <= 2.5
""")
mux = mx.Multiplexer(rules)  # 31,931 subsets of sensors, 30 choices between off and on
place = torch.rand(30, 2)  # where the sensors are
guess = torch.rand(256, 2)  # where something is thought to be
near = (-(guess.unsqueeze(1) - place).square().sum(-1) / 0.02).exp()  # what each sensor would see of it
top = near.topk(4)
wanted = torch.zeros(256, 30).scatter(-1, top.indices, top.values / top.values.amax(-1, keepdim=True))
target = mux.repair(wanted)

net = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(120):
    loss = -mux(net(4 * guess - 2)).log_prob(target).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

power = mux(net(4 * guess - 2)).best().detach()
seen, best = ((p * near).sum(-1).mean() for p in (power, target))
print(f"{power.gt(0).sum(-1).float().mean():.1f} sensors on, never more than {power.gt(0).sum(-1).max()};", end=" ")
print(f"they see {seen / best:.0%} of what the planned ones see")
assert rules.satisfied(power).all()
