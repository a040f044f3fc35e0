"""One output has to stay in (0, 0.5), another in 195…220. Clipping does it too, but where it clips, nothing learns."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    ratio: real; temperature: real
    0 < ratio < 0.5
    195 <= temperature <= 220
""")
mux = mx.Multiplexer(rules)
x = torch.rand(256, 4)
y = torch.stack([0.05 + 0.4 * x[:, 0] * x[:, 1], 198 + 20 * x[:, 2]], -1)
low, high = torch.tensor([1e-6, 195.0]), torch.tensor([0.499999, 220.0])

for name, layer in (("clipped", lambda raw: raw.clamp(low, high)), ("rules", lambda raw: mux(raw).best())):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for step in range(300):
        raw = net(x)
        raw.retain_grad()
        loss = ((layer(raw) - y) / (high - low)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step == 0:
            dead = (raw.grad == 0).float().mean()
    print(f"{name}: {dead:.0%} of the first gradients are zero, error after training {loss.sqrt():.2%}")

assert rules.satisfied(mux(net(x)).best()).all()
