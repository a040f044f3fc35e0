"""Recorded graphs, impossible rows and terms, conditions on inputs inside decomposed rules, and where those start."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import multiplexnet as mx
from multiplexnet.certificate.check import checked
from multiplexnet.compiler.terms import Block
from multiplexnet.errors import GraphError, InputError, RecordError
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.objective import term_losses
from multiplexnet.learning.estimators import (
    Concrete,
    ScoreFunction,
    StraightThrough,
    TopTerms,
)

# What torch warns of in its own code.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:`torch.jit.:DeprecationWarning",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
)


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    torch.compiler.reset()


# --- what is recorded -----------------------------------------------------------------------------------------------


def squares(x: Tensor) -> Tensor:
    return x.square().sum(-1)


ENDS: dict[str, Callable[[Branches], Tensor]] = {
    "best": Branches.best,
    "sample": Branches.sample,
    "x": lambda branches: branches.x,
    "loss": lambda branches: branches.loss(squares),
    "evidence loss": lambda branches: branches.evidence_loss(squares),
}


class Ended(nn.Module):
    """A layer and one of the ways to use what it returns."""

    def __init__(self, mux: mx.Multiplexer, end: str = "best") -> None:
        super().__init__()
        self.mux, self.end = mux, end
        self.train(mux.training)

    def forward(self, raw: Tensor, **inputs: Tensor) -> Tensor:
        return ENDS[self.end](self.mux(raw, **inputs))


class EveryEnd(nn.Module):
    """A layer and several ways to use what it returns, so that one graph has them all."""

    def __init__(self, mux: mx.Multiplexer, ends: Sequence[str]) -> None:
        super().__init__()
        self.mux = mux
        self.ends = ends
        self.train(mux.training)

    def forward(self, raw: Tensor, **inputs: Tensor) -> tuple[Tensor, ...]:
        branches = self.mux(raw, **inputs)
        return tuple(ENDS[end](branches) for end in self.ends)


def exported(
    model: nn.Module, raw: Tensor, inputs: Mapping[str, Tensor]
) -> Callable[..., Any]:
    return torch.export.export(model, (raw,), dict(inputs)).module()


def traced(
    model: nn.Module, raw: Tensor, inputs: Mapping[str, Tensor]
) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(
        model, fullgraph=True, backend="aot_eager"
    )
    return compiled


def generated(
    model: nn.Module, raw: Tensor, inputs: Mapping[str, Tensor]
) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(model, fullgraph=True)
    return compiled


def followed(
    model: nn.Module, raw: Tensor, inputs: Mapping[str, Tensor]
) -> Callable[..., Any]:
    names = list(inputs)
    graph = make_fx(lambda r, *given: model(r, **dict(zip(names, given, strict=True))))(
        raw, *inputs.values()
    )
    return lambda r, **given: graph(r, *(given[name] for name in names))


def mapped(
    model: nn.Module, raw: Tensor, inputs: Mapping[str, Tensor]
) -> Callable[..., Any]:
    names = list(inputs)
    row = torch.vmap(
        lambda r, *given: model(r, **dict(zip(names, given, strict=True))),
        randomness="different",
    )
    return lambda r, **given: row(r, *(given[name] for name in names))


RECORDERS = {
    "export": exported,
    "aot_eager": traced,
    "make_fx": followed,
    "vmap": mapped,
}


def through_onnx(
    model: Ended, raw: Tensor, inputs: Mapping[str, Tensor], folder: Path
) -> Callable[[Tensor, Mapping[str, Tensor]], Tensor]:
    """The layer as onnxruntime runs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about torch
        program = torch.onnx.export(
            model, (raw,), kwargs=dict(inputs), dynamo=True, verbose=False
        )
    assert program is not None
    program.save(str(folder / "layer.onnx"))
    session = onnxruntime.InferenceSession(
        str(folder / "layer.onnx"), providers=["CPUExecutionProvider"]
    )
    wanted = {node.name for node in session.get_inputs()}

    def run(raw: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        given = {"raw": raw, **inputs}
        (found,) = session.run(None, {name: given[name].numpy() for name in wanted})
        return torch.from_numpy(found)

    return run


# --- the rules, and their meaning in fractions ----------------------------------------------------------------------

Row = Sequence[Fraction]


@dataclass(frozen=True)
class Case:
    """Rules with an independent verdict on one row of outputs and inputs.

    Args:
        text: the rules.
        obeys: the same in fractions.
        ends: of every input; values at the ends and between them are tried.
        functions: code for the functions of the rules.
        max_terms: as for the layer.
    """

    text: str
    obeys: Callable[[Row, Mapping[str, Fraction]], bool]
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    max_terms: int = 4096

    def layer(self, dtype: torch.dtype = torch.float32) -> mx.Multiplexer:
        return mx.Multiplexer(
            mx.Rules(self.text),
            dtype=dtype,
            functions=dict(self.functions),
            max_terms=self.max_terms,
        ).eval()

    def inputs(self, rows: int, dtype: torch.dtype) -> dict[str, Tensor]:
        found = {}
        for name, (low, high) in self.ends.items():
            share = torch.rand(rows).round(decimals=1)
            found[name] = (low + (high - low) * share).to(dtype)
        return found


def tripled(x: Tensor) -> Tensor:
    return x.clamp(-50, 50) * 3


def thirds(x: Fraction) -> Fraction:
    """What ``tripled`` gives in float32, exactly."""
    return Fraction(float(tripled(torch.tensor(float(x), dtype=torch.float32))))


def argument(x: Fraction) -> Fraction:
    """1.000001 x + 1e-9 as the layer computes it in float32."""
    wide = torch.tensor(1e-9, dtype=torch.float64) + 1.000001 * torch.tensor(
        float(x), dtype=torch.float64
    )
    return Fraction(float(wide.float()))


README = """
a: real; b: real
limit: input[250, 1000]
a == 0 or 200 < a < 400
implies(a > 0, b >= a + 2)
b <= limit
"""
GUARD = "p: bool[30]; u: input[-4,4]\nsum(p) <= 3\np[0] or u < 0 or u > 3"

CASES = {
    "readme": Case(
        README,
        lambda x, u: (x[0] == 0 or (200 < x[0] < 400 and x[1] >= x[0] + 2)) and x[1] <= u["limit"],
        {"limit": (250, 1000)},
    ),
    "conditions": Case(
        "x: real; y: real; u: input[0, 10]\nx == 0 and u <= 4 or x >= u and u >= 3 or y >= 1 and x <= -1",
        lambda x, u: (x[0] == 0 and u["u"] <= 4) or (x[0] >= u["u"] >= 3) or (x[1] >= 1 and x[0] <= -1),
        {"u": (0, 10)},
    ),
    "above an input": Case("x: real; u: input[0, 1]\nx > u", lambda x, u: x[0] > u["u"], {"u": (0, 1)}),
    "between inputs": Case(
        "x: real; u: input[0, 5]; v: input[6, 9]\nu < x < v",
        lambda x, u: u["u"] < x[0] < u["v"],
        {"u": (0, 5), "v": (6, 9)},
    ),
    "chain": Case(
        "x: real; y: real; u: input[0, 1]\nu < x; x < y",
        lambda x, u: u["u"] < x[0] < x[1],
        {"u": (0, 1)},
    ),
    "sums of inputs": Case(
        "x: real; y: real; u: input[0,5]; v: input[0,5]\nx >= u + v or y <= u\nimplies(u + v > 3, x + y <= 1)",
        lambda x, u: (
            (x[0] >= u["u"] + u["v"] or x[1] <= u["u"]) and (u["u"] + u["v"] <= 3 or x[0] + x[1] <= 1)
        ),
        {"u": (0, 5), "v": (0, 5)},
    ),
    "whole numbers": Case(
        "n: int[0,9]; x: real; k: input[0,9]\nn >= k; x >= n; x <= n + 1",
        lambda x, u: x[0].denominator == 1 and 9 >= x[0] >= u["k"] and x[0] <= x[1] <= x[0] + 1,
        {"k": (0, 9)},
    ),
    "equality": Case(
        "w: real[4]; y: real; u: input[0,1]\nsum(w) == 1; all(v >= 0 for v in w)\ny >= u",
        lambda x, u: sum(x[:4]) == 1 and min(x[:4]) >= 0 and x[4] >= u["u"],
        {"u": (0, 1)},
    ),
    "function": Case(
        "x: real; y: real; u: input[0, 9]; h: function\ny > h(1.000001 * x + 0.000000001); x <= u",
        lambda x, u: x[1] > thirds(argument(x[0])) and x[0] <= u["u"],
        {"u": (0, 9)},
        {"h": tripled},
    ),
    "decomposed": Case(
        "p: bool[6]; u: input[-4,4]\nsum(p) <= 3\np[0] or u < 0 or u > 3",
        lambda x, u: set(x) <= {0, 1} and sum(x) <= 3 and (x[0] == 1 or u["u"] < 0 or u["u"] > 3),
        {"u": (-4, 4)},
        max_terms=30,
    ),
}  # fmt: skip


@cache
def built(name: str, dtype: torch.dtype = torch.float32) -> mx.Multiplexer:
    return CASES[name].layer(dtype)


def raws(mux: mx.Multiplexer, rows: int = 60) -> Tensor:
    """N(0, 1), N(0, 30²), ±1e4, ±inf and NaN in turn."""
    scales = torch.tensor([1.0, 30.0, 1e4, inf, nan], dtype=torch.float64).repeat(
        rows // 5
    )
    return (
        torch.randn(len(scales), mux.in_features, dtype=torch.float64) * scales[:, None]
    ).to(mux.dtype)


def broken_rows(case: Case, x: Tensor, inputs: Mapping[str, Tensor]) -> list[int]:
    """The rows that break the rules, by fractions; NaN breaks them."""
    found = []
    for i, row in enumerate(x.double().tolist()):
        given = {name: Fraction(float(values[i])) for name, values in inputs.items()}
        if any(value != value or abs(value) == inf for value in row) or not case.obeys(
            list(map(Fraction, row)), given
        ):
            found.append(i)
    return found


# --- rows that cannot obey ------------------------------------------------------------------------------------------

PARTLY = "a: real; b: real; c: real; u: input[0, 10]; unused: input[0, 1]\n0 <= a <= u\nb >= 0 or b <= -1\nc >= 1"
BAD_INPUTS = {
    "u": [1.0, -5.0, nan, 20.0, inf, 3.0],
    "unused": [0.0, 0.5, 0.5, 0.5, 0.5, 2.0],
}
"""Only the first row can obey. The last one has a wrong value of an input that no rule mentions."""


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_row_whose_inputs_are_out_of_range_is_nan_everywhere(recorder: str) -> None:
    mux = mx.Multiplexer(mx.Rules(PARTLY)).eval()
    raw = torch.randn(6, mux.in_features)
    fine = {"u": torch.ones(6), "unused": torch.zeros(6)}
    bad = {name: torch.tensor(values) for name, values in BAD_INPUTS.items()}
    graph = RECORDERS[recorder](EveryEnd(mux, list(ENDS)), raw, fine)
    for end, good, found in zip(ENDS, graph(raw, **fine), graph(raw, **bad), strict=True):  # fmt: skip
        assert good.isfinite().all(), end
        rows = found.reshape(6, -1)
        assert rows[0].isfinite().all(), end
        assert rows[1:].isnan().all(), end
    with pytest.raises(InputError, match="outside its declared range"):
        mux(raw, **bad)


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_row_without_room_between_the_floats_is_nan_everywhere(recorder: str) -> None:
    mux = mx.Multiplexer(
        mx.Rules(
            "x: real; y: real; u: input[0,1]\nu < x; x < u + 1e-12\ny >= 1 or y <= 0"
        )
    ).eval()
    raw, u = torch.randn(2, mux.in_features), torch.tensor([0.0, 0.5])
    graph = RECORDERS[recorder](Ended(mux), raw, {"u": torch.zeros(2)})
    assert graph(raw, u=u).isnan().tolist() == [[False, False], [True, True]]
    with pytest.raises(InputError, match="row 1"):
        mux(raw, u=u)


@pytest.mark.parametrize("recorder", RECORDERS)
def test_a_row_that_cannot_obey_is_nan_in_inner_blocks_too(recorder: str) -> None:
    mux = built("decomposed")
    raw = torch.randn(4, mux.in_features)
    ends = ["best", "sample"]
    graph = RECORDERS[recorder](EveryEnd(mux, ends), raw, {"u": torch.ones(4)})
    for found in graph(raw, u=torch.tensor([1.0, nan, 5.0, -4.0])):
        assert found.isnan().all(-1).tolist() == [False, True, True, False]
        assert found.isnan().any(-1).tolist() == [False, True, True, False]


@pytest.mark.parametrize("recorder", RECORDERS)
def test_where_a_function_is_infinite_the_whole_row_is_nan(recorder: str) -> None:
    rules = mx.Rules(
        "x: real; y: real; z: real; h: function\ny > h(x); z >= 1 or z <= 0"
    )
    mux = mx.Multiplexer(
        rules, functions={"h": lambda x: 1 / (x - 1).clamp(max=0)}
    ).eval()
    raw = torch.tensor([[0.0] * mux.in_features, [1.0] * mux.in_features])
    graph = RECORDERS[recorder](Ended(mux), raw, {})
    assert graph(raw).isnan().tolist() == [[False] * 3, [True] * 3]
    with pytest.raises(InputError, match="h is NaN or infinite"):
        mux(raw).best()


def test_kernels_that_torch_writes_do_the_same() -> None:
    mux = mx.Multiplexer(mx.Rules(PARTLY)).eval()
    raw, bad = (
        torch.randn(6, mux.in_features),
        {name: torch.tensor(v) for name, v in BAD_INPUTS.items()},
    )
    found = generated(Ended(mux), raw, bad)(raw, **bad)
    assert (
        found.isnan().all(-1).tolist()
        == found.isnan().any(-1).tolist()
        == [False, *[True] * 5]
    )


# --- terms that cannot be met ---------------------------------------------------------------------------------------

TWO_WAYS = "x: real; u: input[0, 10]\nx >= 1 and u <= 4 or 2 <= x <= u or x == 7"
"""At u = 1 the second term is empty, at u = 9 the first."""


@pytest.fixture
def two_ways() -> mx.Multiplexer:
    return mx.Multiplexer(mx.Rules(TWO_WAYS), dtype=torch.float64)


def test_values_of_impossible_terms_are_nan(two_ways: mx.Multiplexer) -> None:
    branches = two_ways(
        torch.randn(3, two_ways.in_features).double(),
        u=torch.tensor([1.0, 9.0, 3.0]).double(),
    )
    impossible = branches.logits.isneginf()
    assert impossible.sum(-1).tolist() == [1, 1, 0]
    assert torch.equal(branches.x.isnan().squeeze(-1), impossible)
    rules = two_ways.rules
    for u, x, possible in zip((1.0, 9.0, 3.0), branches.x, ~impossible, strict=True):
        assert rules.satisfied(
            x[possible], u=torch.full((int(possible.sum()),), u).double()
        ).all()


def distance(centre: Tensor) -> Callable[[Tensor], Tensor]:
    """−log x and a distance: infinite at 0 and NaN below, where no output is; with something to be learned."""
    return lambda x: -x.log().sum(-1) + (x - centre).square().sum(-1)


@pytest.mark.parametrize("way", ["loss", "evidence_loss"])
def test_impossible_terms_cost_nothing_and_lose_no_gradient(
    two_ways: mx.Multiplexer, way: str
) -> None:
    raw = torch.randn(3, two_ways.in_features).double().requires_grad_()
    u, centre = (
        torch.tensor([1.0, 9.0, 3.0]).double(),
        torch.tensor(2.5).double().requires_grad_(),
    )
    branches = two_ways(raw, u=u)
    found = getattr(branches, way)(distance(centre))
    for i in range(3):
        kept = ~branches.logits[i].isneginf()
        losses, logits = distance(centre)(branches.x[i][kept]), branches.logits[i][kept]
        log_q, log_p = (
            torch.log_softmax(logits, -1),
            -torch.tensor(float(kept.sum())).double().log(),
        )
        each = log_q.exp() * (losses - log_p + log_q)
        expected = each.sum() if way == "loss" else -torch.logsumexp(log_p - losses, -1)
        assert torch.allclose(found[i], expected)
    for gradient in torch.autograd.grad(found.sum(), (raw, centre)):
        assert gradient.isfinite().all()
        assert (gradient != 0).any()


@pytest.mark.parametrize(
    "estimator",
    [
        ScoreFunction(3),
        TopTerms(2, 1),
        TopTerms(3),
        TopTerms(1, 2),
        Concrete(),
        StraightThrough(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_leave_impossible_terms_out(
    two_ways: mx.Multiplexer, estimator: object
) -> None:
    raw = torch.randn(50, two_ways.in_features).double().requires_grad_()
    u, centre = (
        torch.tensor([1.0, 9.0]).double().repeat(25),
        torch.tensor(2.5).double().requires_grad_(),
    )
    loss = two_ways(raw, u=u).loss(distance(centre), estimator=estimator)
    assert loss.isfinite().all()
    for gradient in torch.autograd.grad(loss.sum(), (raw, centre)):
        assert gradient.isfinite().all()


def test_several_blocks_with_impossible_terms() -> None:
    text = "x: real; y: real; u: input[0, 10]\nx >= 1 and u <= 4 or x >= u\ny >= 2 or y >= 1 and u >= 5"
    mux = mx.Multiplexer(mx.Rules(text), dtype=torch.float64)
    raw = torch.randn(2, mux.in_features).double().requires_grad_()
    centre = torch.tensor(2.5).double().requires_grad_()
    branches = mux(raw, u=torch.tensor([1.0, 9.0]).double())
    assert branches.x.isnan().any()
    assert term_losses(branches, distance(centre)).isfinite().all()
    each = branches.loss(lambda x: -x.log() + (x - centre).square())
    together = branches.loss(distance(centre))
    assert torch.allclose(each, together)
    for gradient in torch.autograd.grad(each.sum() + together.sum(), (raw, centre)):
        assert gradient.isfinite().all()


def test_outputs_that_a_term_leaves_to_inner_blocks_lose_no_gradient() -> None:
    """Their own values are arbitrary until the inner block has chosen: −log of them must not be asked for."""
    text = """
    x: real[9]
    all(1 <= v <= 2 or v >= 3 for v in x)
    all(implies(x[i] >= 3, x[i + 1] >= 3 or x[i + 1] <= 1.5) for i in range(8))
    """
    mux = mx.Multiplexer(mx.Rules(text), max_terms=60, dtype=torch.float64)
    assert mux.is_nested
    raw = (3 * torch.randn(20, mux.in_features)).double().requires_grad_()
    centre = torch.tensor(2.5).double().requires_grad_()
    loss = mux(raw).loss(lambda x: -x.log() + (x - centre).square())
    assert loss.isfinite().all()
    for gradient in torch.autograd.grad(loss.sum(), (raw, centre)):
        assert gradient.isfinite().all()


# --- repair ---------------------------------------------------------------------------------------------------------


def test_a_row_that_cannot_be_repaired_is_refused() -> None:
    mux = mx.Multiplexer(mx.Rules("x: real; u: input[0,1]\nu < x; x < u + 1e-12"))
    with pytest.raises(InputError, match=r"cannot be repaired.*row 1"):
        mux.repair(torch.zeros(2, 1), u=torch.tensor([0.0, 0.5]))
    wild = mx.Multiplexer(
        mx.Rules("x: real; y: real; h: function\ny > h(x)"),
        functions={"h": lambda x: x * inf},
    )
    with pytest.raises(InputError, match=r"cannot be repaired.*the only row"):
        wild.repair(torch.ones(2))


def test_repair_is_no_part_of_a_graph() -> None:
    mux = mx.Multiplexer(mx.Rules("x: real; u: input[0, 9]\nx >= u")).eval()

    class Repaired(nn.Module):
        def forward(self, x: Tensor, u: Tensor) -> Tensor:
            return mux.repair(2 * x, u=u) + 1

    x, u = torch.zeros(2, 1), torch.tensor([0.0, 5.0])
    with pytest.raises(
        GraphError, match="call repair outside, on what the graph returns"
    ):
        torch.export.export(Repaired(), (x, u))
    with pytest.raises(GraphError):
        torch.vmap(lambda row, limit: mux.repair(row, u=limit))(x, u)
    compiled = torch.compile(
        Repaired(), backend="aot_eager"
    )  # two graphs, with repair between them
    assert compiled(x, u).tolist() == [[1.0], [6.0]]
    with pytest.raises(InputError, match="outside its declared range"):
        compiled(x, torch.tensor([0.0, 50.0]))


# --- ONNX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_obeys(name: str, tmp_path: Path) -> None:
    case, mux = CASES[name], built(name)
    raw = raws(mux)
    inputs = case.inputs(len(raw), mux.dtype)
    run = through_onnx(Ended(mux), raw, inputs, tmp_path)
    assert broken_rows(case, run(raw, inputs), inputs) == []
    worst = raw.clone()
    worst[:, : mux.out_features] = torch.where(
        torch.rand(len(raw), mux.out_features) < 0.5, -inf, inf
    )
    assert broken_rows(case, run(worst, inputs), inputs) == []
    first = next(iter(inputs))
    inputs[first][:3] = torch.tensor([nan, 1e6, -1e6])
    found = run(raw, inputs)
    assert found[:3].isnan().all()
    assert (
        broken_rows(
            case, found[3:], {name: values[3:] for name, values in inputs.items()}
        )
        == []
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["readme", "chain", "equality"])
def test_onnxruntime_obeys_in_other_formats(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    case, mux = CASES[name], built(name, dtype)
    raw = raws(mux)
    inputs = case.inputs(len(raw), dtype)
    found = through_onnx(Ended(mux), raw, inputs, tmp_path)(raw, inputs)
    assert found.dtype == dtype
    assert broken_rows(case, found, inputs) == []


@pytest.mark.parametrize(
    "text",
    [
        "0 < x < 1",
        "x: real; 1e-60 <= x <= 2e-60",
        "x: real; u: input[0, 1]; x > 1.0000000001*u",
        "x: real; u: input[0, 1]; u + 1e-60 <= x <= 1.000000001*u + 2e-60",
    ],
)
def test_onnxruntime_keeps_every_digit_of_a_table(text: str, tmp_path: Path) -> None:
    """It reads constants of one element as float32, and leaves out what is 0 or 1 there: 0 < x < 1 gave 1.0."""
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=torch.float64).eval()
    raw = raws(mux)
    rows = len(raw)
    u = torch.tensor([0.0, 1e-300, 1e-60, 0.5, 1.0], dtype=torch.float64)
    inputs: dict[str, Any] = {v.name: u.repeat(rows)[:rows] for v in rules.inputs}
    found = through_onnx(Ended(mux), raw, inputs, tmp_path)(raw, inputs)
    assert rules.satisfied(found, **inputs).all()
    expected = mux(raw, **inputs).best()
    assert torch.allclose(found, expected, rtol=1e-12, atol=0)


def test_onnxruntime_says_nan_where_eager_refuses_for_lack_of_room(
    tmp_path: Path,
) -> None:
    mux = mx.Multiplexer(
        mx.Rules("x: real; u: input[0, 1000]; 0 <= x <= 3*u"), dtype=torch.float64
    ).eval()
    raw = torch.randn(3, mux.in_features, dtype=torch.float64)
    u = torch.tensor([0.0, 1e-310, 1.0], dtype=torch.float64)
    found = through_onnx(Ended(mux), raw, {"u": u}, tmp_path)(raw, {"u": u})
    assert found.isnan().squeeze(-1).tolist() == [True, True, False]


def test_onnxruntime_keeps_every_digit_of_a_range(tmp_path: Path) -> None:
    """The ends of u were compared as float32, next to which 0.1 and 0.3 have neighbours on both sides."""
    rules = mx.Rules("x: real; u: input[0.1, 0.3]; u <= x <= u + 1")
    mux = mx.Multiplexer(rules, dtype=torch.float64).eval()
    ends = torch.tensor([0.1, 0.3], dtype=torch.float64)  # 0.1 is rounded up, 0.3 down
    below, above = (torch.nextafter(ends, torch.full_like(ends, o)) for o in (-1, 1))
    u = torch.cat([below, ends, above])
    raw = torch.randn(len(u), mux.in_features, dtype=torch.float64)
    found = through_onnx(Ended(mux), raw, {"u": u}, tmp_path)(raw, {"u": u})
    assert found.isnan().squeeze(-1).tolist() == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    inside = ~found.isnan().squeeze(-1)
    expected = mux(raw[inside], u=u[inside]).best()
    assert torch.allclose(found[inside], expected, rtol=1e-12, atol=0)


def test_onnxruntime_has_no_bfloat16(tmp_path: Path) -> None:
    """docs/understand/guarantee.md says so. Once this fails the format belongs to the test above."""
    mux = built("above an input", torch.bfloat16)
    raw, u = torch.randn(5, mux.in_features).bfloat16(), torch.zeros(5).bfloat16()
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        through_onnx(Ended(mux), raw, {"u": u}, tmp_path)


def test_all_terms_go_through_onnx(tmp_path: Path) -> None:
    mux = built("conditions")
    raw, u = raws(mux, 20), torch.linspace(0, 10, 20)
    found = through_onnx(Ended(mux, "x"), raw, {"u": u}, tmp_path)(raw, {"u": u})
    assert torch.allclose(found, mux(raw, u=u).x, equal_nan=True)
    assert found.isnan().any()


# --- conditions on inputs inside decomposed rules -------------------------------------------------------------------

GUARDED: dict[str, tuple[str, Callable[[Sequence[int], Fraction], bool]]] = {
    "two cases": (GUARD, lambda p, u: sum(p) <= 3 and (p[0] == 1 or u < 0 or u > 3)),
    "one case": (
        "p: bool[30]; u: input[-4,4]\nsum(p) <= 3\np[0] or u < 0",
        lambda p, u: sum(p) <= 3 and (p[0] == 1 or u < 0),
    ),
    "many cases": (
        "p: bool[30]; u: input[-4,4]\nsum(p) <= 3\np[0] or any(i / 4 < u < i / 4 + 0.125 for i in range(12))",
        lambda p, u: sum(p) <= 3 and (p[0] == 1 or any(Fraction(i, 4) < u < Fraction(2 * i + 1, 8) for i in range(12))),
    ),
    "deep inside": (
        "p: bool[30]; u: input[-4,4]\nsum(p) <= 3\nimplies(p[3] and p[17], u < 0 or u > 3)\nimplies(p[5], u <= 2)",
        lambda p, u: sum(p) <= 3 and not (p[3] and p[17] and 0 <= u <= 3) and (not p[5] or u <= 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDED)
def test_decomposed_rules_with_conditions_on_inputs(name: str) -> None:
    text, obeys = GUARDED[name]
    mux = mx.Multiplexer(mx.Rules(text)).eval()
    assert mux.is_nested
    u = torch.linspace(-4, 4, 65)
    for scale in (0.0, 1.0, 30.0, inf):
        raw = torch.nan_to_num(
            scale * torch.randn(65, mux.in_features), nan=0.0, posinf=inf, neginf=-inf
        )
        branches = mux(raw, u=u)
        for x in (branches.best(), branches.sample()):
            assert all(
                set(row) <= {0, 1} and obeys(row, Fraction(limit))
                for row, limit in zip(x.int().tolist(), u.tolist(), strict=True)
            )
    raw = torch.randn(65, mux.in_features, requires_grad=True)
    loss = mux(raw, u=u).loss(lambda x: (x - 0.3).square())
    assert loss.isfinite().all()
    assert torch.autograd.grad(loss.sum(), raw)[0].isfinite().all()


def test_a_condition_needs_no_logits() -> None:
    """Which of several conditions holds is known: nothing is to be chosen between them."""
    with_condition, without = (
        mx.Multiplexer(mx.Rules(text)) for text in (GUARD, "p: bool[30]\nsum(p) <= 3")
    )
    assert with_condition.in_features == without.in_features
    again = mx.Multiplexer.from_state(with_condition.state_dict())
    assert again.in_features == with_condition.in_features


def test_the_certificate_of_decomposed_rules_with_conditions_is_proved_again() -> None:
    case = CASES["decomposed"]
    certificate = case.layer().certificate
    assert certificate.sound
    assert certificate.complete
    assert checked(certificate, rules=("rules", case.text)).certified


# --- where decomposed rules start -----------------------------------------------------------------------------------


def test_at_logits_of_zero_every_plain_term_is_as_likely_as_any_other() -> None:
    mux = mx.Multiplexer(mx.Rules("on: bool[7]\nsum(on) <= 3"), max_terms=30).eval()
    assert mux.is_nested
    count = sum((1, 7, 21, 35))
    x, log_q = mux(torch.zeros(4000, mux.in_features)).draw()
    assert torch.allclose(log_q.exp(), torch.full((4000,), 1 / count), rtol=1e-4)
    rows, times = x.unique(dim=0, return_counts=True)
    assert len(rows) == count
    assert times.max() < 2 * 4000 / count


def test_at_most_three_of_thirty_starts_without_favourites() -> None:
    mux = mx.Multiplexer(mx.Rules("on: bool[30]\nsum(on) <= 3")).eval()
    branches = mux(torch.randn(3000, mux.in_features))
    shares = branches.sample().mean(
        0
    )  # 0.098 each would be uniform; without offsets 0.5 for the first, 0 for the last
    assert shares.min() > 0.01
    assert shares.max() < 0.25
    assert branches.best().any(0).all()
    fresh = nn.Linear(64, mux.in_features)
    shares = mux(fresh(torch.randn(3000, 64))).sample().mean(0)
    assert shares.min() > 0.04
    assert shares.max() < 0.2


def test_a_uniform_prior_is_uniform_over_plain_terms() -> None:
    """At logits of 0 the choice is the prior, so nothing is paid for it."""
    mux = mx.Multiplexer(
        mx.Rules("on: bool[7]\nsum(on) <= 3"), max_terms=30, dtype=torch.float64
    )
    loss = mux(torch.zeros(mux.in_features).double()).loss(torch.zeros_like)
    assert torch.allclose(loss, torch.zeros_like(loss))


@pytest.mark.parametrize("loaded", ["from_state", "load_state_dict"])
def test_a_layer_that_was_saved_before_gives_what_it_gave(loaded: str) -> None:
    saved = json.loads(
        (Path(__file__).parent / "saved" / "decomposed-0.1.0.json").read_text()
    )
    state = torch.frombuffer(
        bytearray(json.dumps(saved["record"]).encode()), dtype=torch.uint8
    )
    mux = mx.Multiplexer.from_state(state)
    if loaded == "load_state_dict":
        fresh = mx.Multiplexer(
            mx.Rules(saved["record"]["specification"]["text"]), max_terms=30
        )
        fresh.load_state_dict({"_extra_state": state})
        mux = fresh
    assert mux.is_nested
    for layer in (
        mux,
        mx.Multiplexer.from_state(mux.state_dict()),
        mux.double().float(),
    ):
        branches = layer.eval()(torch.tensor(saved["raw"]), u=torch.tensor(saved["u"]))
        assert torch.equal(branches.best(), torch.tensor(saved["best"]))
        assert torch.equal(
            branches.choices[0].log_probs, torch.tensor(saved["log_probs"])
        )


def test_where_a_layer_starts_is_saved_with_it() -> None:
    mux = built("decomposed")
    raw, u = torch.randn(20, mux.in_features), torch.full((20,), -1.0)
    again = mx.Multiplexer.from_state(mux.state_dict()).eval()
    other = CASES["decomposed"].layer()
    other.load_state_dict(mux.state_dict())
    for layer in (again, other):
        assert torch.equal(
            layer(raw, u=u).choices[0].log_probs, mux(raw, u=u).choices[0].log_probs
        )
    record = json.loads(mux.get_extra_state().numpy().tobytes())
    del record["sha256"]  # a changed record would not fit it
    damaged = torch.frombuffer(
        bytearray(json.dumps({**record, "counted": "yes"}).encode()), dtype=torch.uint8
    )
    with pytest.raises(RecordError):
        mx.Multiplexer.from_state(damaged)


def test_conditions_on_inputs_are_not_counted() -> None:
    (block,) = (
        block for block in mx.Rules(GUARD).compile(nested=True).blocks if block.outputs
    )
    inner = [part for term in block.terms for part in term.blocks]
    assert any(not part.outputs for part in inner)

    def count(part: Block) -> int:
        return sum(term.count for term in part.terms)

    assert count(block) == 1 + 30 + 435 + 4060
