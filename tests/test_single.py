"""Products in float32: every output obeys all the same, and where that would cost too much they stay in float64."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import lru_cache
from random import Random

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import multiplexnet as mx
from multiplexnet.errors import OptionError, RecordError
from multiplexnet.transforms import single
from multiplexnet.transforms.gauge import Gauge, largest_column

SIMPLEX = "w: real[6]\nall(v >= 0 for v in w)\nsum(w) == 1"
TRIANGLE = "x: real; y: real\nx >= 0; y >= 0; 3*x + 7*y <= 10.1"
LONG = "x: real; y: real\n0 <= x - y <= 0.001; -1000 <= x <= 1000"


def polytope(n: int, m: int, size: float = 1.0) -> str:
    """Dense rows around the origin."""
    random = Random(n)
    rows = []
    for _ in range(m):
        left = " + ".join(f"{random.gauss(0, 1) / size:.6g}*x[{j}]" for j in range(n))
        rows.append(f"{left} <= {random.uniform(0.1, 10):.3f}")
    return "\n".join([f"x: real[{n}]", *rows])


TEXTS = {
    "simplex": SIMPLEX,
    "triangle": TRIANGLE,
    "polytope": polytope(7, 20),
    "tiny": polytope(4, 12, size=1e-20),
    "huge": polytope(4, 12, size=1e10),
    "many rows": polytope(2, 140),
}


@lru_cache
def layer_of(name: str, dtype: torch.dtype = torch.float32) -> mx.Multiplexer:
    return narrow(TEXTS[name], dtype)


def narrow(text: str, dtype: torch.dtype = torch.float32) -> mx.Multiplexer:
    return mx.Multiplexer(mx.Rules(text), dtype=dtype, precision="float32")


def gauges(mux: mx.Multiplexer) -> list[Gauge]:
    return [module for module in mux.modules() if isinstance(module, Gauge)]


def is_single(mux: mx.Multiplexer) -> bool:
    (own,) = gauges(mux)
    return own.rows.dtype is torch.float32


def raw_values(mux: mx.Multiplexer, rows: int = 3000) -> Tensor:
    """Of every size, in the middle of the set and at its walls."""
    raw = torch.randn(rows, mux.in_features)
    raw *= torch.logspace(-45, 38, rows).unsqueeze(-1)
    raw[::2] = 30 * torch.randn_like(raw[::2])
    raw[0] = torch.inf
    raw[1] = -torch.inf
    raw[2] = 0.0
    return raw.to(mux.dtype)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize("name", TEXTS)
def test_products_in_float32_obey(name: str, dtype: torch.dtype, flush: bool) -> None:
    if dtype is torch.float16 and name in ("tiny", "huge"):
        pytest.skip("a set that this dtype cannot hold")
    mux = layer_of(name, dtype).train()
    rules = mux.rules
    if dtype is torch.float32:
        assert is_single(mux)
    raw = raw_values(mux).requires_grad_()
    torch.set_flush_denormal(flush)
    try:
        x = mux(raw).best()
        x.double().sum().backward()
    finally:
        torch.set_flush_denormal(False)
    assert x.is_contiguous()
    assert rules.satisfied(x).all()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    alone = mux.eval()(raw.detach()).best()
    assert rules.satisfied(alone).all()


def test_the_bound_of_a_row_holds_for_every_sum_in_float32() -> None:
    """With fractions: what is computed, and the added error, is at least the row, in whatever order sums are made."""
    random = Random(0)
    for n in (1, 2, 5, 30, 200):
        rows = torch.randn(1, 4, n, dtype=torch.float64).exp2().mul(100)
        rows *= torch.randn_like(rows).sign()
        q = torch.randn(n)
        added = single.added_errors(rows, rows)[0]
        for i in range(4):
            w = rows[0, i].float()
            order = list(range(n))
            random.shuffle(order)
            total = torch.zeros(())
            for j in order:
                total = total + w[j] * q[j]
            exact = [Fraction(float(a)) for a in rows[0, i]]
            point = [Fraction(float(c)) for c in q]
            row = sum((a * c for a, c in zip(exact, point, strict=True)), Fraction(0))
            slack = sum(
                (
                    Fraction(float(e)) * abs(c)
                    for e, c in zip(added[i], point, strict=True)
                ),
                Fraction(0),
            )
            spare = slack * Fraction(single.OTHERS - 2, n + single.OTHERS)
            for found in (total, w @ q):
                assert Fraction(float(found)) + slack - spare >= row


def test_without_the_margin_a_wall_is_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = mx.Rules(TRIANGLE)

    def obeys() -> bool:
        torch.manual_seed(0)
        mux = mx.Multiplexer(rules, precision="float32")
        assert is_single(mux)
        raw = 30 * torch.randn(20_000, mux.in_features)
        return bool(rules.satisfied(mux(raw).best()).all())

    assert obeys()
    monkeypatch.setattr(single, "added_errors", lambda rows, errors: 0 * errors)
    assert not obeys()


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        "x: real; y: real\nx <= y",
        "x: real; y: real\nx >= 0; y >= 0; x + y >= 1",
        "x: real[3]\nx[0] <= x[1] + 0.1*x[2]; 2*x[1] + x[2] <= 3",
    ],
)
def test_long_sets_and_those_without_an_end_stay_in_float64(text: str) -> None:
    assert not is_single(narrow(text))
    assert is_single(narrow(TRIANGLE))


@pytest.mark.parametrize("rows", ["1e-35*x + y <= 3", "1e35*x + y <= 3"])
def test_numbers_that_float32_does_not_have_stay_in_float64(rows: str) -> None:
    assert not is_single(narrow(f"{rows}; x - y <= 1; x + y >= -1"))


def test_float32_is_there_for_those_who_ask() -> None:
    rules = mx.Rules(TRIANGLE)
    near = mx.Multiplexer(rules)
    assert not is_single(near)
    assert not is_single(narrow(TRIANGLE, torch.float64))
    assert not is_single(mx.Multiplexer.from_state(near.state_dict()))
    with pytest.raises(OptionError, match="precision"):
        mx.Multiplexer(rules, precision="float16")  # type: ignore[arg-type]
    raw = torch.full((1, 2), 1e4)
    far = narrow(TRIANGLE)(raw).best().double()
    lost = 10.1 - (far * torch.tensor([3.0, 7.0])).sum()
    assert 0 < lost < 1e-4


def test_layers_that_were_saved_before_compute_as_they_did() -> None:
    mux = narrow(TRIANGLE)
    assert is_single(mx.Multiplexer.from_state(mux.state_dict()))
    record = json.loads(mux.get_extra_state().numpy().tobytes())
    del record["sha256"]
    del record["precision"]

    def state() -> Tensor:
        return torch.frombuffer(
            bytearray(json.dumps(record).encode()), dtype=torch.uint8
        )

    before = mx.Multiplexer.from_state(state())
    assert not is_single(before)
    mux.load_state_dict({"_extra_state": state()})
    assert not is_single(mux)
    record["precision"] = "float128"
    with pytest.raises(RecordError, match="float128"):
        mx.Multiplexer.from_state(state())


@pytest.mark.parametrize("name", ["polytope", "simplex"])
def test_settings_that_take_digits_away_lead_to_float64(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mux = layer_of(name).eval()
    raw = raw_values(mux)
    found = [mux(raw).best()]
    usual = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found.append(mux(raw).best())
    finally:
        torch.set_float32_matmul_precision(usual)
    monkeypatch.setattr(single, "_keeps_digits", lambda: False)
    found.append(mux(raw).best())
    assert torch.equal(found[1], found[2])
    assert not torch.equal(found[0], found[1])
    assert mux.rules.satisfied(found[1]).all()
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of products that oneDNN was asked for; no product is too small for it."""
    if not single._onednn_keeps_digits():
        pytest.skip("torch was built without oneDNN")
    seen: list[tuple[int, ...]] = []
    plain = single._by_onednn

    def counted(left: Tensor, right: Tensor) -> Tensor:
        seen.append((*left.shape, len(right)))
        return plain(left, right)

    monkeypatch.setattr(single, "LARGE", 1)
    monkeypatch.setattr(single, "_by_onednn", counted)
    return seen


@pytest.mark.parametrize("name", TEXTS)
def test_products_of_another_library_obey(
    name: str, asked: list[tuple[int, ...]]
) -> None:
    mux = layer_of(name).train()
    raw = raw_values(mux).requires_grad_()
    x = mux(raw).best()
    forward = len(asked)
    x.sum().backward()
    assert 0 < forward < len(asked)
    assert mux.rules.satisfied(x).all()
    alone = mux.eval()(raw.detach()).best()
    assert mux.rules.satisfied(alone).all()
    with torch.no_grad():
        assert torch.equal(mux(raw).best(), alone)


def test_products_of_another_library_are_those_of_torch(
    asked: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mux = layer_of("polytope").train()
    raw = torch.randn(100, mux.in_features)
    weight = torch.randn(100, mux.out_features)

    def found() -> tuple[Tensor, Tensor]:
        own = raw.clone().requires_grad_()
        x = mux(own).best()
        return x.detach(), torch.autograd.grad(x, own, weight)[0]

    others = found()
    assert asked
    asked.clear()
    monkeypatch.setattr(single, "_onednn_keeps_digits", lambda: False)
    for own, other in zip(found(), others, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
    assert not asked


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch
def test_where_torch_records_it_makes_the_products(
    asked: list[tuple[int, ...]],
) -> None:
    mux = layer_of("polytope").train()
    raw = torch.randn(3, mux.in_features)
    plain = mux(raw).best()
    asked.clear()

    def best(raw: Tensor) -> Tensor:
        x: Tensor = mux(raw).best()
        return x

    found = torch.func.jvp(best, (raw,), (torch.ones_like(raw),))
    moved, slope = found[:2]
    torch.testing.assert_close(moved, plain, rtol=1e-4, atol=1e-5)
    assert (slope != 0).any()
    torch.testing.assert_close(torch.vmap(best)(raw), plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        torch.export.export(_Best(mux), (raw,)).module()(raw),
        plain,
        rtol=1e-4,
        atol=1e-5,
    )
    assert not asked


def test_fewer_digits_of_another_library_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_halves(left: Tensor, right: Tensor) -> Tensor:
        return (left.bfloat16() @ right.bfloat16().mT).float()

    single._onednn_keeps_digits.cache_clear()
    monkeypatch.setattr(single, "_by_onednn", by_halves)
    try:
        assert not single._onednn_keeps_digits()
    finally:
        single._onednn_keeps_digits.cache_clear()


def test_graphs_make_no_products_in_float32() -> None:
    mux = layer_of("polytope").eval()
    raw = torch.randn(5, mux.in_features)
    program = torch.export.export(_Best(mux), (raw,))
    products = [
        node.meta["val"].dtype
        for node in program.graph.nodes
        if any(word in str(node.target) for word in ("mm.", "matmul", "linear"))
    ]
    assert products
    assert set(products) == {torch.float64}


class _Best(torch.nn.Module):
    def __init__(self, mux: mx.Multiplexer) -> None:
        super().__init__()
        self.mux = mux

    def forward(self, raw: Tensor) -> Tensor:
        best: Tensor = self.mux(raw).best()
        return best


@pytest.mark.parametrize("name", ["polytope", "simplex"])
def test_gradients_are_those_of_float64(name: str) -> None:
    rules = mx.Rules(TEXTS[name])
    raw = torch.randn(200, 7)
    found = []
    for precision in ("float32", "float64"):
        mux = mx.Multiplexer(rules, precision=precision)
        own = raw[:, : mux.in_features].clone().requires_grad_()
        (mux(own).best() * torch.arange(mux.out_features)).sum().backward()
        found.append(own.grad)
    single_gradient, double_gradient = found
    assert single_gradient is not None
    assert double_gradient is not None
    distance = (single_gradient - double_gradient).norm()
    assert distance < 1e-3 * double_gradient.norm()


@pytest.mark.parametrize("name", ["polytope", "simplex"])
def test_what_was_mapped_is_found_again(name: str) -> None:
    mux = layer_of(name)
    (own,) = mux.maps
    x = mux(0.3 * torch.randn(50, mux.in_features)).best()
    again = own(own.inverse(x).squeeze(-2)).squeeze(-2)  # type: ignore[operator]
    torch.testing.assert_close(again, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("m", [1, 12, 128, 129, 300, 1001])
@pytest.mark.parametrize("batch", [0, 1, 50])
def test_the_largest_of_many_columns(m: int, batch: int) -> None:
    products = torch.randint(0, 9, (m, batch)).double().mT
    value, column = largest_column(products)
    if batch:
        assert torch.equal(value, products.max(-1)[0])
        first = (products == value.unsqueeze(-1)).int().argmax(-1)
        assert torch.equal(column, first)
    assert value.shape == column.shape == (batch,)
    nothing = torch.full((m, batch), torch.nan).mT
    assert (largest_column(nothing)[1] < m).all()


def test_second_derivatives_near_the_anchor_are_those_of_float64() -> None:
    torch.manual_seed(0)
    direction = torch.nn.functional.normalize(
        torch.randn(2, dtype=torch.float64), dim=0
    )
    exact = mx.Multiplexer(mx.Rules(TRIANGLE), dtype=torch.float64)
    for length in (1e-4, 3e-4, 1e-3, 1e-2, 1.0):
        found, expected = (
            torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
                lambda z, mux=mux: mux(z.unsqueeze(0)).best()[0, 0],
                (length * direction).to(mux.dtype),
            )
            for mux in (narrow(TRIANGLE), exact)
        )
        assert (found - expected).abs().max() < 1e-3 * expected.abs().max()


def test_tensors_without_numbers_need_no_look_at_digits() -> None:
    mux = narrow(TRIANGLE)
    single._keeps_digits.cache_clear()
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert mux(torch.randn(4, 2)).best().shape == (4, 2)
