"""Five quantiles of one distribution must not cross, also where there are few data."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    q: real[5]
    all(q[i] <= q[i + 1] for i in range(4))
""")
mux = mx.Multiplexer(rules)
levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
x = torch.rand(300, 1) * 4
y = torch.sin(x) + (0.1 + 0.2 * x) * torch.randn(300, 1)
grid = torch.linspace(-1, 5, 601).unsqueeze(-1)  # beyond the data on both sides


def pinball(q, y):
    """What the true quantiles make smallest."""
    return torch.maximum(levels * (y - q), (levels - 1) * (y - q)).mean()


for name, layer in (("plain", lambda raw: raw), ("rules", lambda raw: mux(raw).best())):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 5))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        loss = pinball(layer(net(x)), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    crossed = ~rules.satisfied(layer(net(grid)))
    print(f"{name}: pinball loss {loss:.4f}, crossed on {crossed.float().mean():.0%} of the grid")
true = torch.sin(x) + (0.1 + 0.2 * x) * torch.distributions.Normal(0, 1).icdf(levels)
print(f"pinball loss of the true quantiles: {pinball(true, y):.4f}")
assert rules.satisfied(mux(net(grid)).best()).all()
