"""Unit commitment over a day: three plants, off or between least and most power, meet each hour's demand.

The first plant moves by at most 30 from hour to hour, so that all 72 outputs depend on one another.
"""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    demand: input[60, 300][24]
    base: real[24]; middle: real[24]; peak: real[24]
    all(40 <= v <= 140 for v in base); all(abs(base[t] - base[t + 1]) <= 30 for t in range(23))
    all(v == 0 or 30 <= v <= 100 for v in middle)
    all(v == 0 or 10 <= v <= 80 for v in peak)
    all(base[t] + middle[t] + peak[t] == demand[t] for t in range(24))
""")
mux = mx.Multiplexer(rules)
hours = torch.arange(24)
level, swing = 130 + 40 * torch.rand(48, 1), 20 + 50 * torch.rand(48, 1)
demand = (level - swing * torch.cos((hours - 3) / 12 * torch.pi) + 8 * torch.randn(48, 24)).clamp(60, 300)
demand = mux.on_grid(demand=demand)["demand"]
base = demand.clamp(40, 140)  # cheapest first: what a dispatcher would like, hour by hour
middle = torch.where(demand - base >= 30, (demand - base).clamp(max=100), 0.0)
target = mux.repair(torch.cat([base, middle, demand - base - middle], -1), demand=demand)  # and what is possible

net = nn.Sequential(nn.Linear(24, 128), nn.Tanh(), nn.Linear(128, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(60):
    loss = -mux(net(demand / 100 - 1.5), demand=demand).log_prob(target).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
x = mux(net(demand / 100 - 1.5), demand=demand).best().detach()
on = ((x > 0) == (target > 0)).float().mean()
print(f"plants on and off as planned in {on:.0%} of the hours, off by {(x - target).abs().mean():.1f} MW in the mean")
assert rules.satisfied(x, demand=demand).all()
