"""A category and a number together: if the mode is «fast», the pressure stays below the limit given with the row."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    mode: {"slow", "fast"}; pressure: real
    limit: input[10, 100]
    0 <= pressure <= 200
    implies(mode == "fast", pressure < limit)
""")
mux = mx.Multiplexer(rules)
x, limit = torch.randn(512, 4), 10 + 90 * torch.rand(512)
fast = (x[:, 0] + 0.3 * x[:, 1] > 0).float()
pressure = torch.where(fast == 1, limit * torch.sigmoid(x[:, 2] + 2), 100 + 30 * torch.tanh(x[:, 3]))
y = torch.stack([fast, pressure], -1)  # a category is the position of its label
features = torch.cat([x, limit.unsqueeze(-1) / 50], -1)
scale = torch.tensor([0.3, 10.0])

for name in ("plain", "rules"):
    net = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(300):
        raw = net(features)
        if name == "plain":
            out = raw[:, :2] * torch.tensor([1.0, 100.0])
            loss = ((out - y) / scale).square().sum(-1)
            out = torch.cat([out[:, :1].round().clamp(0, 1), out[:, 1:]], -1)
        else:
            loss = mux(raw, limit=limit).loss(lambda out: ((out - y.unsqueeze(-2)) / scale).square().sum(-1))
            out = mux(raw, limit=limit).best()
        optimiser.zero_grad()
        loss.mean().backward()
        optimiser.step()
    obeyed, off = rules.satisfied(out, limit=limit).float().mean(), (out - y).abs().mean(0)
    print(f"{name}: mode right in {1 - off[0]:.1%}, pressure off by {off[1]:.2f}, rules obeyed in {obeyed:.1%}")
assert rules.satisfied(out, limit=limit).all()
