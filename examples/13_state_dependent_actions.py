"""The set of actions depends on the state: never order more than fits into the warehouse beside what is there."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    order: real[2]; free: input[1, 60]
    all(v >= 0 for v in order); sum(order) <= free
""")
mux = mx.Multiplexer(rules)
rate = torch.tensor([20.0, 30.0])
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, mux.in_features))


def simulated(policy, rows):
    """Cost a day over a week (1 for a piece in store, 8 for a lost sale), and which orders were allowed."""
    stock, cost, allowed = torch.full((rows, 2), 10.0), torch.zeros(()), []
    for _ in range(7):
        free = 60 - stock.sum(-1).detach()
        order, demand = policy(stock, free), rate * (0.5 + torch.rand(rows, 2))
        allowed.append(rules.satisfied(order.detach(), free=free))
        cost = cost + (stock + 8 * (demand - stock - order).clamp(min=0)).sum(-1).mean() / 7
        stock = (stock + order - demand).clamp(min=0)
    return cost, torch.cat(allowed)


policies = {"all that fits": lambda stock, free: rate / 50 * free.unsqueeze(-1)}
policies["rules"] = lambda stock, free: mux(net(stock / 20), free=free).best()
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(100):
    optimiser.zero_grad()
    simulated(policies["rules"], rows=64)[0].backward()
    optimiser.step()
for name, policy in policies.items():
    cost, allowed = simulated(policy, rows=2048)
    print(f"{name}: cost {cost:.2f} a day, {allowed.float().mean():.1%} of the orders allowed")
assert allowed.all()  # rules.satisfied(…) of every order
