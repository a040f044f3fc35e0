"""Learning with cascades: what a raw value means, where a fresh layer starts, heads that see what is left."""

from __future__ import annotations

import copy
import json
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import multiplexnet as mx
from multiplexnet.layer.unroll import Left

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
BAND = "d: input[0, 200]; a: real; b: real; 0 <= a <= 100; 0 <= b <= 100; d <= a + b <= d + 0.01"
LOTS = "x: real[4]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 150"


@pytest.fixture(autouse=True)
def _calm() -> None:
    torch.manual_seed(0)


# --- predictions that are cut ---------------------------------------------------------------------------------------


def raws(rows: int, mux: mx.Multiplexer) -> Tensor:
    scales = torch.tensor([1.0, 10.0, 1e4, torch.inf], dtype=torch.float64).repeat(
        rows // 4
    )
    drawn = torch.randn(rows, mux.in_features, dtype=torch.float64)
    return (drawn * scales[:, None]).to(mux.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_predictions_are_cut_into_what_obeys(dtype: torch.dtype) -> None:
    rules = mx.Rules(LOTS)
    mux = mx.Multiplexer(rules, structure="cascade", values="clamp", dtype=dtype).eval()
    raw = raws(200, mux)
    raw[0] = torch.nan
    branches = mux(raw)
    for x in (branches.best(), branches.sample()):
        assert rules.satisfied(x).all()
    ((_, maps),) = mux.cascade_parts()
    x = branches.best()
    values, logits = maps.inverse(x)
    if dtype in (torch.float64, torch.float32):
        assert (maps(values, logits) - x).abs().max() <= 2 * float(
            mux.resolution["x[0]"]
        )


def test_the_way_of_the_program_is_that_of_the_walk() -> None:
    mux = mx.Multiplexer(
        mx.Rules(BAND), structure="cascade", values="clamp", dtype=torch.float64
    )
    raw = (
        torch.randn(200, mux.in_features, dtype=torch.float64) * 0.7
    ).requires_grad_()
    d = torch.rand(200, dtype=torch.float64) * 90
    x = mux(raw, d=d).best()
    assert torch.equal(
        torch.vmap(lambda r, u: mux(r, d=u).best())(raw.detach(), d), x.detach()
    )
    weights = torch.randn_like(x)
    (plain,) = torch.autograd.grad((x * weights).sum(), raw)
    x = mux(raw, d=d).best()
    (walked,) = torch.autograd.grad((x * weights).sum(), raw, create_graph=True)
    free = ((x > 0.02) & (x < 99.98)).all(
        -1
    )  # elsewhere two ends meet, and either may get the gradient
    assert free.sum() > 50
    assert torch.allclose(plain[free], walked[free], rtol=1e-6, atol=1e-6)
    narrow = plain[
        :, 1
    ]  # the band leaves 0.01 for b: its prediction lies outside, and half of the gradients lead back
    assert 0.3 < (narrow != 0).float().mean() < 0.7


def test_which_map_is_part_of_the_state_and_has_no_density() -> None:
    mux = mx.Multiplexer(mx.Rules(LOTS), structure="cascade", values="clamp").eval()
    raw = torch.randn(8, mux.in_features)
    expected = mux(raw).best()
    twins = mx.Multiplexer.from_state(mux.state_dict()).eval(), copy.deepcopy(mux)
    other = mx.Multiplexer(mx.Rules(LOTS), structure="cascade").eval()
    assert not torch.equal(other(raw).best(), expected)
    other.load_state_dict(mux.state_dict())
    for twin in (*twins, other):
        assert torch.equal(twin(raw).best(), expected)
    with pytest.raises(
        mx.MultiplexError, match=r'values="clamp".*no log_prob.*values="share"'
    ):
        mux(raw).log_prob(expected)
    with pytest.raises(ValueError, match="values = 'sigmoid'"):
        mx.Multiplexer(mx.Rules(LOTS), values="sigmoid")  # type: ignore[arg-type]


def test_a_band_that_an_input_moves_is_learned_as_well_as_without_rules() -> None:
    rules = mx.Rules(BAND)
    mux = mx.Multiplexer(rules, structure="cascade", values="clamp")
    d = torch.rand(256) * 110 + 10
    share = 0.5 + 0.3 * torch.sin(d / 20)
    target = torch.stack([share * d, (1 - share) * d], -1)

    def trained(bound: bool) -> float:
        torch.manual_seed(1)
        net = nn.Sequential(
            nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )
        optimiser = torch.optim.Adam(net.parameters(), 0.005)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=300)
        for _ in range(300):
            raw = net((d / 60 - 1).unsqueeze(-1))
            x = mux(raw, d=d).best() if bound else 50 + 50 * raw
            loss = (x - target).abs().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if bound:
            assert rules.satisfied(x.detach(), d=d).all()
        return float(loss.detach())

    free, obeying = trained(bound=False), trained(bound=True)
    assert obeying < 1.1 * free


# --- where a fresh layer starts -------------------------------------------------------------------------------------


def fresh(text: str, rows: int = 4000) -> Tensor:
    """Samples of a layer whose raw values and logits are 0."""
    mux = mx.Multiplexer(mx.Rules(text), structure="cascade").eval()
    drawn: Tensor = mux(torch.zeros(rows, mux.in_features)).sample(
        torch.Generator().manual_seed(0)
    )
    return drawn


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (
            "on: bool[20]; sum(on) <= 3",
            (20 + 2 * 190 + 3 * 1140) / (20 * (1 + 20 + 190 + 1140)),
        ),
        ("on: bool[6]; sum(on) == 2", 1 / 3),
        ("on: bool[6]; sum(on) >= 5", 6 / 7),
        (
            "x: real[20]; all(0 <= v <= 9 for v in x); sum(1 if v > 0 else 0 for v in x) <= 3",
            (20 + 2 * 190 + 3 * 1140) / (20 * (1 + 20 + 190 + 1140)),
        ),
    ],
)
def test_combinations_start_equally_likely(text: str, share: float) -> None:
    on = (fresh(text) > 0).double().mean(0)
    assert (on - share).abs().max() < 4 * (share * (1 - share) / 4000) ** 0.5


def test_shares_of_a_budget_start_alike() -> None:
    simplex = fresh("x: real[10]; all(0 <= v <= 1 for v in x); sum(x) == 1", 1)
    assert (simplex - 0.1).abs().max() < 1e-5
    ordered = fresh(
        "x: real[5]; 0 <= x[0]; x[4] <= 12; all(x[i] <= x[i+1] for i in range(4))", 1
    )
    assert torch.allclose(
        ordered[0], torch.tensor([2.0, 4.0, 6.0, 8.0, 10.0]), atol=1e-3
    )


def test_saved_layers_start_where_they_did() -> None:
    mux = mx.Multiplexer(
        mx.Rules("on: bool[20]; sum(on) <= 3"), structure="cascade"
    ).eval()
    record = json.loads(mux.get_extra_state().numpy().tobytes())
    del record["sha256"]  # a changed record would not fit it
    del record["started"]
    old = mx.Multiplexer.from_state(
        torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)
    ).eval()
    raw = torch.zeros(2000, mux.in_features)
    assert (old(raw).sample()[:, 0] > 0).float().mean() > 0.4
    new = mx.Multiplexer.from_state(mux.state_dict()).eval()
    assert (new(raw).sample()[:, 0] > 0).float().mean() < 0.2
    mux.load_state_dict({"_extra_state": old.get_extra_state()})
    assert (mux(raw).sample()[:, 0] > 0).float().mean() > 0.4


# --- heads that see what is left ------------------------------------------------------------------------------------


class Seeing(nn.Module):
    """A small head that every output shares but for its last layer."""

    def __init__(self, mux: mx.Multiplexer, features: int) -> None:
        super().__init__()
        width = features + mux.out_features + 2
        self.last = nn.ModuleList(nn.Linear(width, 1 + k) for k in mux.options)
        self.asked: list[int] = []

    def forward(self, j: int, h: Tensor, left: Left) -> Tensor:
        self.asked.append(j)
        assert (left.lower <= left.upper).all()
        seen = torch.cat(
            [h, left.x / 100, left.lower[..., None], left.upper[..., None]], -1
        )
        said: Tensor = self.last[j](seen)
        return said


@pytest.mark.parametrize("values", ["share", "clamp"])
def test_a_head_may_see_what_is_left(values: Literal["share", "clamp"]) -> None:
    rules = mx.Rules("u: input[20, 300]; " + LOTS.replace("<= 150", "== u"))
    mux = mx.Multiplexer(rules, values=values)
    head, h = Seeing(mux, 3), torch.randn(2, 5, 3)
    u = torch.rand(2, 5) * 200 + 50
    branches = mux.unroll(head, h, u=u)
    x = branches.best()
    assert rules.satisfied(x, u=u).all()
    assert sorted(head.asked) == [0, 1, 2, 3]
    x.sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in head.parameters())
    again = mux.unroll(
        head, h, x.detach(), u=u
    )  # along its own outputs it says the same
    assert torch.equal(again.best(), x)
    if values == "share":
        assert again.log_prob(x.detach()).isfinite().all()


def test_a_head_that_says_too_little_is_told() -> None:
    mux = mx.Multiplexer(mx.Rules(LOTS), structure="cascade")
    assert mux.options == (2, 2, 2, 2)
    with pytest.raises(
        mx.MultiplexError,
        match=r"of x\[0\] \(output 0\); it has to be \(5, 3\): a value and 2 logits",
    ):
        mux.unroll(lambda j, h, left: h[:, :1], torch.randn(5, 3))
    beside = mx.Multiplexer(
        mx.Rules(LOTS + "; y: real; y >= 1 or y <= 0"), structure="cascade"
    )
    with pytest.raises(
        mx.MultiplexError, match="some of these outputs come from terms"
    ):
        beside.unroll(lambda j, h, left: h, torch.randn(5, 3))
