"""Power balance of the IEEE 14-bus network: at every bus what comes in is what goes out, to the last bit."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
lines = [(1, 2), (1, 5), (2, 3), (2, 4), (2, 5), (3, 4), (4, 5), (4, 7), (4, 9), (5, 6), (6, 11), (6, 12), (6, 13)]
lines += [(7, 8), (7, 9), (9, 10), (9, 14), (10, 11), (12, 13), (13, 14)]
plants, cost = [1, 2, 3, 6, 8], torch.tensor([20.0, 25.0, 40.0, 35.0, 45.0])
balance = []
for bus in range(1, 15):
    flows = [f"{'+' if end == bus else '-'} f[{i}]" for i, (start, end) in enumerate(lines) if bus in (start, end)]
    made = f" + g[{plants.index(bus)}]" if bus in plants else ""
    balance.append(f"0 {' '.join(flows)}{made} == d[{bus - 1}]")
rules = mx.Rules(f"""
    d: input[0, 40][14]
    f: real[20]; all(-60 <= v <= 60 for v in f)  # on the lines, which hold 60 each
    g: real[5]; all(0 <= v <= 120 for v in g)    # of the plants
    {"; ".join(balance)}
""")
mux = mx.Multiplexer(rules)
demand = mux.on_grid(d=20 * torch.rand(256, 14))["d"]  # rounded to the grid on which sums are exact
net = nn.Sequential(nn.Linear(14, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(150):
    x = mux(net(demand / 10 - 1), d=demand).best()
    price = (x[:, 20:] * cost).sum(-1) + 0.01 * x[:, :20].square().sum(-1)  # of making it and of losses on lines
    optimiser.zero_grad()
    price.mean().backward()
    optimiser.step()
first = mux(torch.zeros(256, mux.in_features), d=demand).best()
start = ((first[:, 20:] * cost).sum(-1) + 0.01 * first[:, :20].square().sum(-1)).mean()
print(f"cost {price.mean():.0f}, before training {start:.0f}; all 14 balances hold exactly in all 256 rows")
assert rules.satisfied(x, d=demand).all()
