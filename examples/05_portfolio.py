"""Portfolio weights: none negative, none above 30 %, and together they are 1, not 0.99999994."""

import torch
from torch import nn

import multiplexnet as mx

torch.manual_seed(0)
rules = mx.Rules("""
    w: real[8]
    all(0 <= v <= 0.3 for v in w)
    sum(w) == 1
""")
mux = mx.Multiplexer(rules)
signal, loading = torch.randn(512, 5), torch.randn(5, 8)
expected = 0.01 * signal @ loading  # the return that the signals foretell
realised = expected + 0.005 * torch.randn(512, 8)

net = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, mux.in_features))
optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(400):
    w = mux(net(signal)).best()
    loss = -(w * realised).sum(-1).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

ranked = expected.sort(descending=True).values
optimum = (0.3 * ranked[:, :3].sum(-1) + 0.1 * ranked[:, 3]).mean()  # 30 % in the best three, 10 % in the fourth
softmax = net(signal).softmax(-1)
one = mx.Rules("w: real[8]\nsum(w) == 1").satisfied(softmax).float().mean()
earned, equal = (w * expected).sum(-1).mean(), expected.mean()
print(f"expected return {earned:.2%}, of equal weights {equal:.2%}, at most {optimum:.2%};", end=" ")
print(f"a softmax of the same raw values sums to 1 in {one:.0%} of the rows")
assert rules.satisfied(w).all()
