"""A table of bookings: checkin < checkout, total = room + extras, and all of it still holds in whole days and cents.

Rules between two columns with whole constants survive ``floor``; a sum does not, so the total is added up anew.
"""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    checkin: real; checkout: real                           # days
    room: real; extras: real; total: real                   # cents: whole numbers are floats exactly, euros are not
    0 <= checkin <= 364; checkin + 1 <= checkout <= checkin + 28
    5000 <= room <= 120000; 0 <= extras <= room
    total == room + extras
""")
mux = mx.Multiplexer(rules)
guest = torch.randn(512, 4)
nights = 1 + 9 * torch.sigmoid(2 * guest[:, 0])
checkin, room = 180 + 50 * guest[:, 1].clamp(-3, 3), 9000 * nights
extras = room * torch.sigmoid(guest[:, 2] - 2)
y = torch.stack([checkin, checkin + nights, room, extras, room + extras], -1)
scale = torch.tensor([50.0, 50.0, 2e4, 1e4, 2e4])

for name, layer in (("plain", lambda raw: y.mean(0) + raw * scale), ("rules", lambda raw: mux(raw).best())):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        loss = ((layer(net(guest)) - y) / scale).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x = layer(net(guest)).detach()
    table = x.round() if name == "plain" else torch.cat([x[:, :4].floor(), x[:, 2:4].floor().sum(-1, keepdim=True)], -1)
    print(f"{name}: off by {loss.sqrt():.1%}, in whole days and cents {rules.satisfied(table).float().mean():.1%} obey")
assert rules.satisfied(table).all()
