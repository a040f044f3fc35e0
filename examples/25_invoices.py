"""Invoices: shipped in 30 days, from Christmas on in the new year; due 14 to 60 days later; 19 % tax to the cent."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    ordered: input date["2024-10-01", "2024-12-31"]
    shipped: date["2024-10-01", "2025-01-31"]; due: date["2024-10-01", "2025-04-30"]
    net: decimal(2)[1, 500]; tax: decimal(2)[0, 100]
    0 <= shipped - ordered <= 30 and 14 <= due - shipped <= 60
    implies(ordered >= date("2024-12-20"), year(shipped) >= 2025)
    -0.005 <= tax - 0.19*net < 0.005
""")
mux = mx.Multiplexer(rules, dtype=torch.float64)
order = torch.rand(512, 3, dtype=torch.float64)
ordered = (20000 + 85 * order[:, 0]).floor()  # days since 1970-01-01
shipped = torch.where(ordered < 20077, ordered + 1 + 9 * order[:, 1], 20090 + 9 * order[:, 1])
net = 5 + 400 * order[:, 2] ** 2
y = torch.stack([shipped, shipped + 30, net, 0.19 * net], -1)
scale = torch.tensor([20, 20, 100, 20])

for name in ("plain", "rules"):
    network = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, mux.in_features)).double()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(300):
        raw = network(order)
        x = mux(raw, ordered=ordered).best() if name == "rules" else y.mean(0) + raw[:, :4] * scale
        loss = ((x - y) / scale).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x = x if name == "rules" else torch.cat([x[:, :2].round(), x[:, 2:].round(decimals=2)], -1)
    obeys = rules.satisfied(x, ordered=ordered)
    print(f"{name}: off by {loss.sqrt():.1%}, {obeys.double().mean():.1%} of the rows obey")
assert obeys.all()
