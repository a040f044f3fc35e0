"""Beams from 24 sides: none of a thousand points gets more dose than it may. The matrix goes in as an array."""

import numpy as np
import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
side = np.stack([np.cos(a := np.arange(24) * np.pi / 12), np.sin(a)])  # where each beam comes from
grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 39)] * 2), -1).reshape(-1, 2)
points = grid[np.square(grid).sum(-1) < 0.9]
across = points @ np.stack([-side[1], side[0]])  # how far a point lies from the middle of a beam
dose = (np.exp(points @ side - np.square(across / 0.3)) / 4).round(3)  # per point and unit of each beam
limit = np.where(np.linalg.norm(points - [0.45, 0.3], axis=-1) < 0.25, 0.4, 1.2)  # an organ may get little

rules = mx.Rules.from_arrays(np.vstack([dose, -np.eye(24)]), np.append(limit, np.zeros(24)), names="beam")
mux = mx.Multiplexer(rules)

centre = 0.5 * torch.rand(64, 2) - torch.tensor([0.5, 0.25])  # of the tumour, another one for each patient
inside = (torch.cdist(centre, torch.tensor(points).float()) < 0.2).float()


def shortfall(beams: torch.Tensor) -> torch.Tensor:
    """How much the tumour misses of a dose of 1."""
    return ((1 - beams @ torch.tensor(dose).float().T).clamp(min=0) * inside).sum(-1).div(inside.sum(-1)).mean()


net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(300):
    x = mux(net(centre)).best()
    optimiser.zero_grad()
    shortfall(x).backward()
    optimiser.step()
alike = (limit / dose.sum(1)).min() * torch.ones(64, 24)
print(
    f"{len(limit)} points; tumours miss {shortfall(x):.0%} of their dose, with all beams alike {shortfall(alike):.0%}"
)
assert rules.satisfied(x).all()
