"""Cascades inside a Multiplexer: chosen where terms would explode, with everything else that a layer promises."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import multiplexnet as mx
from multiplexnet.learning.estimators import ScoreFunction

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

LOTS = "x: real[10]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 300"
MIXED = (
    "u: input[20, 300]; x: real[10]; y: real; z: real; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) == u; "
    "y >= 2 or y <= -2; z >= u"
)


def raws(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    scales = torch.tensor([1.0, 10.0, 1e4, 1e30, torch.inf])
    drawn = torch.randn(rows, columns) * scales[torch.randint(0, 5, (rows, columns))]
    return drawn.nan_to_num(0.0, torch.inf, -torch.inf).to(dtype)


def halves(rows: int, dtype: torch.dtype) -> Tensor:
    return (torch.randint(40, 601, (rows,)) / 2).to(dtype)


@pytest.fixture(scope="module")
def lots() -> mx.Multiplexer:
    return mx.Multiplexer(mx.Rules(LOTS)).eval()


# --- which structure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        (LOTS, 10),
        (MIXED, 10),
        (
            "x: real[30]; all(0 <= v <= 9 for v in x); sum(1 if v > 0 else 0 for v in x) <= 3",
            30,
        ),
        ("n: int[0, 100000]; m: int[0, 100000]; n <= m", 2),
        ("u: input[0, 4]; a: real; b: real; 0 <= a <= 2; 0 <= b <= 2; a + b == u", 2),
    ],
)
def test_a_cascade_is_taken_where_terms_explode_or_equalities_hold_inputs(
    text: str, outputs: int
) -> None:
    mux = mx.Multiplexer(mx.Rules(text))
    assert sum(len(cascade.visible) for cascade in mux.cascades) == outputs
    assert set(mux.resolution) == {
        v.name for cascade in mux.cascades for v in cascade.visible
    }
    assert f"cascade of {outputs} outputs" in repr(mux)


@pytest.mark.parametrize(
    "text",
    [
        "x >= 2 or x <= -2",
        "x: real[4]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 300",
        "on: bool[30]; sum(on) <= 3",
        "u: input[0, 9]; a: real; b: real; a + b <= u; a >= b",
        "n: int[0, 9]; x: real; x >= n",
    ],
)
def test_what_terms_serve_stays_with_them_to_the_last_bit(text: str) -> None:
    rules = mx.Rules(text)
    chosen, insisted = mx.Multiplexer(rules), mx.Multiplexer(rules, structure="terms")
    assert not chosen.cascades
    assert chosen.terms == insisted.terms
    raw = torch.randn(20, chosen.in_features)
    given = {v.name: torch.rand(20) * 9 for v in rules.inputs}
    assert torch.equal(chosen(raw, **given).best(), insisted(raw, **given).best())


def test_a_rule_that_speaks_of_two_parts_is_told_apart() -> None:
    """What hides behind a negation belongs to both: nothing of it may be lost when one part becomes a cascade."""
    rules = mx.Rules(
        'x: int[-5, 200]; y: real; c: {"a", "b", "c"}; 3 <= y <= 4; '
        'not (implies(c != "b", y - x >= 10) or y >= 10); -y >= 2 or x < 4; max(y, z) <= 3.5; z: real; z >= 0'
    )
    mux = mx.Multiplexer(rules, structure="cascade").eval()
    assert [len(cascade.visible) for cascade in mux.cascades] == [2]
    assert rules.satisfied(mux(raws(500, mux.in_features, torch.float32)).best()).all()


def test_contradictions_are_told_from_a_grid_that_is_too_coarse() -> None:
    contradiction = "x: real; y: real; 0 <= x <= 1; 0 <= y <= 1; x + y >= 3"
    with pytest.raises(mx.ContradictionError, match=r"x \+ y >= 3"):
        mx.Multiplexer(mx.Rules(contradiction), structure="cascade")
    coarse = "x: real; y: real; 0 <= x <= 1; 0 <= y <= 1; x + y == 0.3"
    with pytest.raises(
        mx.MultiplexError, match="no point of the grid obeys the rules in float32"
    ):
        mx.Multiplexer(mx.Rules(coarse), structure="cascade")


def test_sums_of_inputs_get_a_grid_on_which_they_are_exact() -> None:
    rules = mx.Rules(
        "u: input[0, 1000]; v: input[0, 1000]; x: real; y: real; 0 <= x <= 1; 0 <= y <= 1; x + y <= u + v; x <= y"
    )
    mux = mx.Multiplexer(rules, structure="cascade", dtype=torch.float64).eval()
    given = {name: torch.rand(200, dtype=torch.float64) * 1000 for name in ("u", "v")}
    x = mux(raws(200, mux.in_features, torch.float64), **given).best()
    assert rules.satisfied(x, functions=None, **given).all()


def test_a_cascade_can_be_insisted_on_and_its_order_named() -> None:
    rules = mx.Rules(
        "x: real[3]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 150"
    )
    mux = mx.Multiplexer(rules, structure="cascade", order=["x[2]", "x[0]"])
    assert [v.name for v in mux.cascades[0].order] == ["x[2]", "x[0]", "x[1]"]
    with pytest.raises(
        mx.MultiplexError,
        match=r"'w' is not an output of the rules \(they have: x\[0\]",
    ):
        mx.Multiplexer(rules, structure="cascade", order=["w"])
    with pytest.raises(ValueError, match="structure = 'dnf'"):
        mx.Multiplexer(rules, structure="dnf")  # type: ignore[arg-type]


# --- the contract of a layer ----------------------------------------------------------------------------------------


BESIDE = LOTS + "; y: real; z: int[0, 3]; 0 <= y <= 1"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", [LOTS, MIXED, BESIDE])
def test_whatever_goes_in_obeys_in_all_dtypes(text: str, dtype: torch.dtype) -> None:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=dtype).eval()
    given = {"u": halves(300, dtype)} if rules.inputs else {}
    branches = mux(raws(300, mux.in_features, dtype), **given)
    for x in (
        branches.best(),
        branches.sample(),
        mux.repair(raws(300, mux.out_features, dtype), **given),
    ):
        assert rules.satisfied(x, functions=None, **given).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cast_builds_the_grid_anew(dtype: torch.dtype) -> None:
    rules = mx.Rules(MIXED)
    mux = mx.Multiplexer(rules).eval().to(dtype)
    given = halves(100, dtype)
    x = mux(raws(100, mux.in_features, dtype), u=given).best()
    assert x.dtype == dtype
    assert rules.satisfied(x, u=given).all()
    fresh = mx.Multiplexer(rules, dtype=dtype)
    assert fresh.cascades == mux.cascades


def test_rows_that_obey_come_back_bit_for_bit_from_repair(lots: mx.Multiplexer) -> None:
    x = lots(torch.randn(50, lots.in_features)).best()
    x[0, :2] = torch.tensor([0.0, 10.1])  # obeys, and is not on the grid
    assert torch.equal(lots.repair(x), x)
    moved = lots.repair(x + 40.0)
    assert lots.rules.satisfied(moved).all()


def test_saved_layers_load_without_z3_and_give_the_same_bits(tmp_path: object) -> None:
    mux = mx.Multiplexer(mx.Rules(MIXED)).eval()
    buffer = io.BytesIO()
    torch.save(mux.state_dict(), buffer)
    raw, given = torch.randn(20, mux.in_features), halves(20, torch.float32)
    path = f"{tmp_path}/layer.pt"
    torch.save(
        {
            "state": mux.state_dict(),
            "raw": raw,
            "u": given,
            "x": mux(raw, u=given).best(),
        },
        path,
    )
    code = f"""
import sys, torch, multiplexnet as mx
saved = torch.load({path!r}, weights_only=True)
mux = mx.Multiplexer.from_state(saved["state"]).eval()
assert torch.equal(mux(saved["raw"], u=saved["u"]).best(), saved["x"])
mux.to(torch.float64)
print("z3" in sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_copies_pickles_and_loaded_states_agree(lots: mx.Multiplexer) -> None:
    raw = torch.randn(20, lots.in_features)
    expected = lots(raw).best()
    assert torch.equal(copy.deepcopy(lots)(raw).best(), expected)
    assert torch.equal(pickle.loads(pickle.dumps(lots))(raw).best(), expected)
    other = mx.Multiplexer(mx.Rules(LOTS), structure="cascade", order=["x[9]"]).eval()
    other.load_state_dict(lots.state_dict())
    assert torch.equal(other(raw).best(), expected)


class _Net(nn.Module):
    def __init__(self, mux: mx.Multiplexer) -> None:
        super().__init__()
        self.mux = mux

    def forward(self, raw: Tensor) -> Tensor:
        return self.mux(raw).best()  # type: ignore[no-any-return]


def test_compiled_exported_and_vectorised_layers_give_the_same_bits() -> None:
    rules = mx.Rules(
        "x: real[3]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 150"
    )
    net = _Net(mx.Multiplexer(rules, structure="cascade").eval())
    raw = torch.randn(8, net.mux.in_features)
    expected = net(raw)
    assert torch.equal(
        torch.compile(net, fullgraph=True, backend="aot_eager")(raw), expected
    )
    assert torch.equal(torch.export.export(net, (raw,)).module()(raw), expected)
    assert torch.equal(torch.vmap(net)(raw), expected)


def test_a_layer_cast_back_is_the_one_it_was() -> None:
    """The search finds its order while it makes the grid coarser; a named order may do with a finer one."""
    rules = mx.Rules("""
        a: real; b: real; u: input[-2, 5]
        -10 <= a <= 10; -10 <= b <= 10
        u < a + 3*b <= u + 0.00001
        a - b <= u + 1.5
    """)
    mux = mx.Multiplexer(rules, structure="cascade", dtype=torch.float64).eval()
    raw = torch.randn(64, mux.in_features, dtype=torch.float64)
    u = torch.linspace(-2, 5, 64, dtype=torch.float64)
    before = mux(raw, u=u).best()
    resolution = mux.resolution
    mux.to(torch.float32).to(torch.float64)
    assert mux.resolution == resolution
    assert torch.equal(mux(raw, u=u).best(), before)


def test_autocast_changes_nothing(lots: mx.Multiplexer) -> None:
    raw = torch.randn(20, lots.in_features)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = lots(raw).best()
    assert torch.equal(x, lots(raw).best())


def test_any_batch_shape_will_do(lots: mx.Multiplexer) -> None:
    raw = torch.randn(2, 3, lots.in_features)
    assert torch.equal(lots(raw).best().reshape(6, 10), lots(raw.reshape(6, -1)).best())
    assert lots(raw[0, 0]).best().shape == (10,)
    assert lots(raw[:0]).best().shape == (0, 3, 10)


# --- learning -------------------------------------------------------------------------------------------------------


def test_what_needs_terms_is_refused_with_the_ways_that_there_are(
    lots: mx.Multiplexer,
) -> None:
    branches = lots(torch.randn(4, lots.in_features))
    for ask in (
        lambda: branches.x,
        lambda: branches.log_probs,
        lambda: branches.loss(lambda x: x.sum(-1)),
        lambda: branches.evidence_loss(lambda x: x.sum(-1)),
        lambda: list(lots.block_maps()),
    ):
        with pytest.raises(
            mx.MultiplexError, match=r"one output after another.*branches\.log_prob"
        ):
            ask()


def test_probabilities_train_a_layer_and_an_estimator_runs(
    lots: mx.Multiplexer,
) -> None:
    data = lots(torch.randn(64, lots.in_features)).best()
    head = nn.Linear(1, lots.in_features)
    optimiser = torch.optim.Adam(head.parameters(), 0.05)
    losses = []
    for _ in range(30):
        loss = -lots(head(torch.ones(64, 1))).log_prob(data).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 1
    raw = torch.randn(16, lots.in_features, requires_grad=True)
    estimate = ScoreFunction()(lots(raw), lambda x: (x - 30.0).square().sum(-1))
    estimate.sum().backward()  # type: ignore[no-untyped-call]
    assert raw.grad is not None
    assert raw.grad[:, 10:].abs().sum() > 0


def test_a_band_that_an_input_moves_is_learned() -> None:
    rules = mx.Rules(
        "d: input[0, 100]; a: real; b: real; 0 <= a <= 100; 0 <= b <= 100; d <= a + b <= d + 0.01"
    )
    mux = mx.Multiplexer(rules, structure="cascade")
    torch.manual_seed(0)
    d = torch.rand(512) * 80 + 10
    target = torch.stack([0.3 * d, 0.7 * d], -1)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, mux.in_features))
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(300):
        x = mux(net((d / 100).unsqueeze(-1)), d=d).best()
        loss = (x - target).abs().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 1.0
    assert rules.satisfied(x.detach(), d=d).all()


def test_an_input_off_the_grid_names_the_row_and_the_helper() -> None:
    rules = mx.Rules(
        "u: input[0, 6]; x: real; y: real; -3 <= x <= 3; 0 <= y <= 3; x + y == u"
    )
    mux = mx.Multiplexer(rules).eval()
    given = torch.tensor([1.5, 1e-9])
    with pytest.raises(
        mx.MultiplexError,
        match=r"row 1\. In float32 outputs have to add up to multiples of .*mux\.on_grid",
    ):
        mux(torch.randn(2, 2), u=given)
    rounded = mux.on_grid(u=given)
    assert rules.satisfied(
        mux(torch.randn(2, 2), **rounded).best(), functions=None, **rounded
    ).all()
