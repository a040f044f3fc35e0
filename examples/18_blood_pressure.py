"""Values that may be missing: blood pressure is read as a pair or not at all, the lower number 20 below the upper."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    upper: int[60, 250]?; lower: int[30, 150]?
    lower <= upper - 20
    iff(upper is missing, lower is missing)
""")
mux = mx.Multiplexer(rules, structure="cascade")
person, noise = torch.randn(300, 4), torch.randn(300, 3)
upper = (120 + 15 * person[:, 0] + 6 * noise[:, 0]).round().clamp(80, 240)
lower = torch.minimum(95 + 12 * person[:, 1] + 5 * noise[:, 1], upper - 20).round().clamp(40, 140)
absent = (person[:, 2] + person[:, 3] + 0.5 * noise[:, 2] > 0.6).unsqueeze(-1)
y = torch.stack([upper, lower], -1).masked_fill(absent, torch.nan)  # NaN: it was not read
middle, scale, known = torch.tensor([120.0, 90.0]), torch.tensor([15.0, 10.0]), ~y.isnan()

for name in ("plain", "rules"):
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, mux.in_features))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(120):
        raw = net(person)
        if name == "plain":  # two numbers, and for each of them whether it is there
            numbers, there = middle + scale * raw[:, :2], raw[:, 2:4]
            off = torch.where(known, (numbers - y.nan_to_num()) / scale, 0.0).square().sum(-1)
            loss = off + nn.functional.binary_cross_entropy_with_logits(there, known.float())
            out = numbers.round().masked_fill(there < 0, torch.nan)
        else:
            branches = mux(raw)
            loss, out = -branches.log_prob(y), branches.best()  # what is missing is a value like others
        optimiser.zero_grad()
        loss.mean().backward()
        optimiser.step()
    same = (out.isnan() == y.isnan()).all(-1).float().mean()
    print(f"{name}: missing where it was in {same:.0%}, rules obeyed in {rules.satisfied(out).float().mean():.1%}")
assert rules.satisfied(out).all()
