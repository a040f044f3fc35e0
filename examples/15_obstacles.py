"""A path around obstacles: three way-points, and no part of the path enters a polygon, whatever the network says.
A segment avoids a convex polygon if both its ends lie beyond one of the polygon's edges: an «or» over the edges."""

from itertools import chain, pairwise, product

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
polygons = [[(2, 2), (4, 2), (4, 8), (2, 8)], [(6, 4), (8, 0), (8, 6)]]  # corners, counter-clockwise
text = "x: real[6]; start: input[0, 10]\nall(0 <= v <= 10 for v in x)\n"
for (p, q), (r, s) in pairwise([(0, "start"), ("x[0]", "x[1]"), ("x[2]", "x[3]"), ("x[4]", "x[5]"), (10, 5)]):
    for corners in polygons:
        edges = [(d - b, a - c, a * d - b * c) for (a, b), (c, d) in pairwise([*corners, corners[0]])]
        text += " or ".join(f"{u}*{p} + {v}*{q} >= {w} and {u}*{r} + {v}*{s} >= {w}" for u, v, w in edges) + "\n"
rules, start = mx.Rules(text), 10 * torch.rand(64, 1)
mux = mx.Multiplexer(rules)
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, mux.in_features))


def length(x):
    """Of the path from (0, start) over x (64, K, 6) to (10, 5)."""
    path = nn.functional.pad(torch.cat([start.expand(x.shape[:2]).unsqueeze(-1), x], -1), (1, 2))
    return (path + torch.tensor([0] * 8 + [10, 5])).unflatten(-1, (5, 2)).diff(dim=-2).norm(dim=-1).sum(-1)


optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(200):
    optimiser.zero_grad()
    branches = mux(net(start / 5 - 1), start=start[:, 0])
    branches.loss(lambda x: 5 * length(x)).mean().backward()
    optimiser.step()
x = branches.best().unsqueeze(-2)
bends = torch.tensor([sum(three, ()) for three in product(chain(*polygons), repeat=3)]).float().expand(64, -1, -1)
best = length(bends).masked_fill(~rules.satisfied(bends, start=start), torch.inf).amin(-1)  # they bend at corners
print(f"mean length {length(x).mean():.2f}, of the shortest paths {best.mean():.2f}; {len(mux.terms)} ways around")
assert rules.satisfied(x, start=start).all()
