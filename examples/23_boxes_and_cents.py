"""Orders in whole boxes and whole cents: the bill is exact, stays in the budget, and so do the pallets."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
price = torch.tensor([1249.0, 399.0, 2075.0])  # cents a box
rules = mx.Rules("""
    budget: input[0, 1000000]
    boxes: int[0, 400][3]; pallets: int[0, 30]; bill: int[0, 2000000]
    bill == 1249*boxes[0] + 399*boxes[1] + 2075*boxes[2] + 1500*pallets
    bill <= budget
    40*pallets >= sum(boxes); 40*pallets <= sum(boxes) + 39
""")
mux = mx.Multiplexer(rules, dtype=torch.float64)  # 400³ combinations of boxes, and no term for any of them
need, budget = 90 * torch.rand(512, 3).double(), (50000 + 150000 * torch.rand(512)).round().double()
full = (need * price).sum(-1) + 1500 * need.sum(-1) / 40
wish = need * (0.97 * budget / full).clamp(max=1).unsqueeze(-1)  # what the budget allows of what is needed
features = torch.cat([need / 45 - 1, budget.unsqueeze(-1) / 1e5 - 1], -1)

net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, mux.in_features)).double()
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(300):
    boxes = mux(net(features), budget=budget).best()[:, :3]  # gradients pass through the whole numbers
    loss = ((boxes - wish) / 20).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

order = mux(net(features), budget=budget).best().detach()
spent = (order[:, 4] / budget).mean()
print(f"boxes off the wish by {(order[:, :3] - wish).abs().mean():.1f}, {spent:.0%} of the budget spent;", end=" ")
print(f"all bills are right to the cent, the largest is {order[:, 4].max() / 100:.2f}")
assert rules.satisfied(order, budget=budget).all()
