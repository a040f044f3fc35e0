"""Optimal power flow on a grid of four buses: A y ≤ b with another b for every demand, trained by its cost alone.

Generator 0 balances the grid, so it is not an output: its power and all line flows are written in terms of the others.
"""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
lines, limit = [(0, 1), (0, 2), (1, 3), (2, 3), (1, 2)], np.array([40, 40, 35, 35, 15])
cost = np.array([30.0, 20.0, 10.0])  # of the generators at buses 0, 1, 2, up to 100 each; the demand is at 1, 2, 3
ends = np.array([[(bus == i) - (bus == j) for bus in (1, 2, 3)] for i, j in lines])
ptdf = (ends @ np.linalg.inv(ends.T @ ends)).round(4)  # the flow on every line for power put in at 1, 2, 3
flows = [f"{a}*(g[0] - d[0]) + {b}*(g[1] - d[1]) - {c}*d[2]" for a, b, c in ptdf]
rules = mx.Rules(f"""
    g: real[2]; d: input[20, 60][3]
    all(0 <= v <= 100 for v in g); 0 <= sum(d) - sum(g) <= 100
    {"; ".join(f"-{most} <= {flow} <= {most}" for flow, most in zip(flows, limit, strict=True))}
""")
mux = mx.Multiplexer(rules)
demand = 20 + 40 * torch.rand(256, 3)
net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(400):
    g = mux(net(demand / 20 - 2), d=demand).best()
    price = cost[0] * demand.sum(-1) + g @ torch.tensor(cost[1:] - cost[0]).float()
    optimiser.zero_grad()
    price.mean().backward()
    optimiser.step()
A, gaps = np.concatenate([ptdf[:, :2], -ptdf[:, :2], [[1, 1], [-1, -1]]]), []
for d, paid in zip(demand.double().numpy(), price.tolist(), strict=True):
    b = np.concatenate([limit + ptdf @ d, limit - ptdf @ d, [d.sum(), 100 - d.sum()]])
    gaps.append(paid / (cost[0] * d.sum() + linprog(cost[1:] - cost[0], A, b, bounds=[(0, 100)] * 2).fun) - 1)
print(f"cost above the optimum of the linear program: {np.mean(gaps):.2%} in the mean, {np.max(gaps):.2%} at most")
assert rules.satisfied(g, d=demand).all()
