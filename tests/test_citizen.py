"""The layer among torch's tools: compiled, exported, mapped, differentiated, cast and moved, it keeps its word."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from corpus import by_name
from torch import Tensor, nn

from multiplexnet.errors import GraphError
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.rules import Rules
from multiplexnet.transforms.separable import PaperSeparable

# What torch warns of in its own code.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning",
    "ignore:`torch.jit.:DeprecationWarning",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning",
)

GUARDED = "x: real; y: real; u: input[0, 10]\nx == 0 and u <= 4 or x >= u and u >= 3 or y >= 1 and x <= -1"


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    torch.compiler.reset()


@cache
def _built(name: str) -> Multiplexer:
    return Multiplexer(Rules(by_name(name).text), dtype=torch.float32)


def layer(name: str, dtype: torch.dtype = torch.float32) -> Multiplexer:
    return copy.deepcopy(_built(name)).to(dtype)


def raws(mux: Multiplexer, rows: int = 20) -> Tensor:
    """N(0, 1), N(0, 30²), 1e4, 1e30 and infinite rows."""
    scales = torch.tensor(
        [1.0, 30.0, 1e4, 1e30, inf], dtype=torch.float64
    ).repeat_interleave(rows)
    normal = torch.randn(len(scales), mux.in_features, dtype=torch.float64)
    return (normal * scales[:, None]).to(mux.dtype)


def obeys(mux: Multiplexer, x: Tensor, **inputs: Tensor) -> bool:
    return bool(mux.rules.satisfied(x, functions=None, **inputs).all())


class Best(nn.Module):
    """A layer that ends in its best term, as one would deploy it."""

    def __init__(self, mux: Multiplexer) -> None:
        super().__init__()
        self.mux = mux
        self.train(mux.training)

    def forward(self, raw: Tensor, **inputs: Tensor) -> Tensor:
        branches: Branches = self.mux(raw, **inputs)
        return branches.best()


# --- compiled --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["paper_eight_boxes", "hexagon", "simplex", "twenty_two_sided"]
)
def test_one_graph_gives_the_same_values(name: str) -> None:
    mux = layer(name).eval()
    raw = raws(mux)
    compiled = torch.compile(Best(mux), fullgraph=True, backend="aot_eager")
    x = compiled(raw)
    assert torch.equal(x, mux(raw).best())
    assert obeys(mux, x)


@pytest.mark.parametrize(
    "text",
    [
        GUARDED,
        "x: real; u: input[0, 9]; x >= u or x <= -2",
        "a: real; b: real; u: input[1, 10]; a + b <= u; a - b <= 2; 2*a + b >= -4",
        "a: real; b: real; u: input[0, 9]; a + b == u; all(-99 <= v <= 99 for v in [a, b])",
        "x: real[2]; u: input[2, 3]; norm([x[0], x[1]]) <= u",
        "x: real; u: input[0, 9]; v: input[0, 9]; assume u < v; u <= x; x <= v",
    ],
)
def test_a_second_layer_is_one_graph_as_well(text: str) -> None:
    """With inputs torch has read the first one, and looks at everything again that differs."""
    inputs = {name: torch.full((4,), value) for name, value in (("u", 2.5), ("v", 3.5))}
    for _ in range(2):
        mux = Multiplexer(Rules(text)).eval()
        given = {v.name: inputs[v.name] for v in mux.rules.inputs}
        raw = torch.randn(4, mux.in_features)
        compiled = torch.compile(Best(mux), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(raw, **given), mux(raw, **given).best())


@pytest.mark.parametrize("name", ["paper_eight_boxes", "simplex"])
def test_a_loss_is_one_graph(name: str) -> None:
    mux = layer(name, torch.float64)
    y = torch.randn(8, 1, mux.out_features, dtype=torch.float64)

    def loss(raw: Tensor) -> Tensor:
        branches: Branches = mux(raw)
        return branches.loss(lambda x: (x - y).square().sum(-1)).mean()

    raw = torch.randn(8, mux.in_features, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(loss(raw), raw)[0]
    found = torch.autograd.grad(
        torch.compile(loss, fullgraph=True, backend="aot_eager")(raw), raw
    )[0]
    assert torch.allclose(found, expected)


def test_generated_code_obeys() -> None:
    """The default backend writes kernels of its own; whatever bits they give, they obey."""
    mux = layer("paper_eight_boxes")
    compiled = torch.compile(Best(mux), fullgraph=True)
    raw = raws(mux, 200).requires_grad_()
    x = compiled(raw)
    assert obeys(mux, x.detach())
    (gradient,) = torch.autograd.grad(x.clamp(-9, 9).sum(), raw)
    assert gradient.isfinite().all()


def test_inputs_in_a_graph() -> None:
    """What is refused outside a graph comes out of it as NaN, never as a number that breaks a rule."""
    mux = Multiplexer(Rules(GUARDED)).eval()
    compiled = torch.compile(Best(mux), fullgraph=True, backend="aot_eager")
    raw, u = torch.randn(11, mux.in_features), torch.arange(11.0)
    x = compiled(raw, u=u)
    assert torch.equal(x, mux(raw, u=u).best())
    assert obeys(mux, x, u=u)
    u[3], u[7] = 11.0, -1e30
    x = compiled(raw, u=u)
    lost = x.isnan().any(-1)
    assert obeys(mux, x[~lost], u=u[~lost])
    two_sided = layer("input_two_sided").eval()
    compiled = torch.compile(Best(two_sided), fullgraph=True, backend="aot_eager")
    x = compiled(
        torch.randn(4, two_sided.in_features), u=torch.tensor([1.0, 2.5, nan, 2.0])
    )
    assert x.isnan().squeeze(-1).tolist() == [False, True, True, False]


# --- exported --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["paper_eight_boxes", "simplex", "nested"])
def test_export_for_any_batch(name: str) -> None:
    mux = layer(name).eval()
    batch = torch.export.Dim("batch", min=2, max=10_000)
    program = torch.export.export(
        Best(mux), (raws(mux, 2),), dynamic_shapes=({0: batch},)
    )
    raw = raws(mux)
    x = program.module()(raw)
    assert torch.equal(x, mux(raw).best())
    assert obeys(mux, x)


@pytest.mark.parametrize(
    "name", ["paper_eight_boxes", "hexagon", "simplex", "nested", "paper_sum_or"]
)
def test_onnxruntime_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    mux = layer(name).eval()
    batch = torch.export.Dim("batch", min=2, max=10_000)
    program = torch.onnx.export(
        Best(mux),
        (raws(mux, 2),),
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: batch},),
    )
    assert program is not None
    program.save(str(tmp_path / "layer.onnx"))
    session = onnxruntime.InferenceSession(
        str(tmp_path / "layer.onnx"), providers=["CPUExecutionProvider"]
    )
    raw = raws(mux, 200)
    (found,) = session.run(None, {session.get_inputs()[0].name: raw.numpy()})
    x = torch.from_numpy(found)
    assert torch.equal(x, mux(raw).best())
    assert obeys(mux, x)


# --- mapped and differentiated ---------------------------------------------------------------------------------------

SMOOTH = [
    "paper_eight_boxes",
    "hexagon",
    "simplex",
    "paper_sum_or",
    "twenty_two_sided",
    "mixed",
]


@pytest.mark.parametrize("name", SMOOTH)
def test_vmap_is_a_batch(name: str) -> None:
    mux = layer(name)
    raw = raws(mux)
    x = torch.vmap(Best(mux))(raw)
    assert obeys(mux, x)
    assert torch.allclose(x, mux(raw).best())


def test_vmap_over_inputs() -> None:
    mux = Multiplexer(Rules(GUARDED))
    raw, u = torch.randn(11, mux.in_features), torch.arange(11.0)
    x = torch.vmap(lambda r, v: mux(r, u=v).best())(raw, u)
    assert torch.equal(x, mux(raw, u=u).best())


@pytest.mark.parametrize("name", SMOOTH)
def test_jacobians(name: str) -> None:
    mux = layer(name, torch.float64)
    raw = torch.randn(mux.in_features, dtype=torch.float64)
    best = Best(mux)
    jacobian = torch.func.jacrev(best)(raw)
    stacked = torch.autograd.functional.jacobian(best, raw)  # type: ignore[no-untyped-call]
    assert jacobian.shape == (mux.out_features, mux.in_features)
    assert torch.allclose(jacobian, stacked)
    assert (jacobian[:, mux.out_features :] == 0).all()  # logits only choose


@pytest.mark.parametrize(
    "name", [name for name in SMOOTH if name != "twenty_two_sided"]
)
def test_gradients_are_right(name: str) -> None:
    """Also twice; ties between rows and the rounding to a lattice aside, which random points stay clear of."""
    mux = layer(name, torch.float64)
    raw = torch.randn(2, mux.in_features, dtype=torch.float64, requires_grad=True)
    rough = (
        1e-3 if name == "simplex" else 1e-6
    )  # the lattice is a staircase with steps of 2⁻⁴⁰ or so
    assert torch.autograd.gradcheck(Best(mux), raw, eps=rough, atol=1e-4)
    assert torch.autograd.gradgradcheck(Best(mux), raw, eps=1e-5, atol=1e-4)


def test_the_loss_under_function_transforms() -> None:
    mux = layer("paper_eight_boxes", torch.float64)
    raw, y = (
        torch.randn(5, 10, dtype=torch.float64),
        torch.randn(5, 2, dtype=torch.float64),
    )

    def loss(raw: Tensor, y: Tensor) -> Tensor:
        branches: Branches = mux(raw)
        return branches.loss(lambda x: (x - y).square().sum(-1))

    each = torch.vmap(torch.func.grad(loss))(raw, y)
    leaf = raw.clone().requires_grad_()
    together = torch.stack([loss(r, t) for r, t in zip(leaf, y, strict=True)]).sum()
    assert torch.allclose(each, torch.autograd.grad(together, leaf)[0])
    rows = torch.func.jacrev(loss)(raw[0], y[0])
    assert torch.allclose(rows, each[0])
    hessian = torch.func.jacrev(torch.func.grad(loss))(raw[0], y[0])
    assert torch.allclose(hessian, hessian.mT)


# --- precision and places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["paper_eight_boxes", "simplex", "hexagon", "design_actuator"]
)
def test_autocast(name: str) -> None:
    """A network under autocast speaks bfloat16; the layer still gives float32 numbers that obey."""
    mux = layer(name)
    given: dict[str, Any] = (
        {"limit": torch.linspace(-10, 500, 50)} if name == "design_actuator" else {}
    )
    head = nn.Linear(3, mux.in_features)
    with torch.autocast("cpu", torch.bfloat16):
        raw = head(100 * torch.randn(50, 3))
        assert raw.dtype == torch.bfloat16
        branches = mux(raw, **given)
        x, loss = branches.best(), branches.loss(lambda x: x.square().sum(-1)).mean()
    assert x.dtype == torch.float32
    assert obeys(mux, x, **given)
    loss.backward()
    assert head.weight.grad is not None
    assert head.weight.grad.isfinite().all()


class Head(nn.Module):
    """A network that ends in a layer, and says what it would lose."""

    def __init__(self, mux: Multiplexer) -> None:
        super().__init__()
        self.head = nn.Linear(3, mux.in_features)
        self.mux = mux

    def forward(self, x: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
        branches: Branches = self.mux(self.head(x), **inputs)
        best = branches.best()
        return best, best.square().sum(-1)


RECORDED = [
    GUARDED,
    "a: real; b: real; u: input[0, 9]; a + b == u; all(-99 <= v <= 99 for v in [a, b])",
    "x: real[3]; u: input[2, 3]; sum(x) == 1; all(v >= 0 for v in x) or x[0] >= 2",
    "n: int[0, 300]; m: int[0, 300]; u: input[0, 9]; 2*n + m <= 400; n + m >= 3 or m >= 2",
]


@pytest.mark.parametrize("text", RECORDED)
def test_one_graph_under_autocast(text: str) -> None:
    """What the layer switches off is switched off in the graph, too; nothing breaks the graph."""
    model = Head(Multiplexer(text)).eval()
    u = torch.full((20,), 3.0)
    given: dict[str, Any] = {"u": u} if model.mux.rules.inputs else {}
    x = 30 * torch.randn(20, 3)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        best, loss = compiled(x, **given)
        same, _ = model(x, **given)
    assert best.dtype == torch.float32
    assert torch.equal(best, same)
    assert obeys(model.mux, best, **given)
    loss.mean().backward()
    assert model.head.weight.grad is not None
    assert model.head.weight.grad.isfinite().all()


@pytest.mark.parametrize("text", RECORDED)
@pytest.mark.parametrize("strict", [False, True])
def test_export_under_autocast(text: str, strict: bool) -> None:
    model = Head(Multiplexer(text)).eval()
    u = torch.full((20,), 3.0)
    given: dict[str, Any] = {"u": u} if model.mux.rules.inputs else {}
    x = 30 * torch.randn(20, 3)
    with torch.autocast("cpu", torch.bfloat16):
        program = torch.export.export(model, (x,), given, strict=strict)
        best, _ = program.module()(x, **given)
        same, _ = model(x, **given)
    assert torch.equal(best, same)
    assert obeys(model.mux, best, **given)


def test_a_function_is_asked_in_the_dtype_of_the_layer_under_autocast() -> None:
    class Bound(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x.unsqueeze(-1))
            return y.squeeze(-1)

    bound = Bound()
    mux = Multiplexer(
        Rules("x1: real; x2: real; h: function\nx2 > h(x1)"), functions={"h": bound}
    )
    with torch.autocast("cpu", torch.bfloat16):
        x = mux(30 * torch.randn(50, 2)).best()
    assert bool((x[:, 1] > bound(x[:, 0])).all())


def test_replicas_share_nothing_that_moves() -> None:
    mux = layer("paper_eight_boxes")
    replicas = [copy.deepcopy(mux) for _ in range(2)]
    raw = raws(mux)
    for replica, part in zip(replicas, raw.chunk(2), strict=True):
        assert torch.equal(replica(part).best(), mux(part).best())
    own = {buffer.data_ptr() for buffer in mux.buffers()}
    assert own.isdisjoint(
        buffer.data_ptr()
        for replica in replicas
        for buffer in replica.buffers()
        if buffer.numel()
    )


@pytest.mark.parametrize(
    "name", ["paper_eight_boxes", "hexagon", "simplex", "twenty_two_sided", "mixed"]
)
def test_nothing_assumes_a_cpu(name: str) -> None:
    """On the meta device everything moves, and shapes come out; a tensor left behind would raise."""
    mux = layer(name).to("meta")
    assert {buffer.device.type for buffer in mux.buffers()} == {"meta"}
    assert mux.device.type == "meta"
    raw = torch.zeros(5, mux.in_features, device="meta")
    for training in (True, False):
        branches = mux.train(training)(raw)
        assert branches.best().shape == (5, mux.out_features)
        assert branches.best().device.type == "meta"
        if branches.size <= mux.max_terms:
            assert branches.loss(lambda x: x.sum(-1)).device.type == "meta"


def test_inputs_assume_no_cpu() -> None:
    mux = Multiplexer(Rules(GUARDED)).to("meta")
    raw, u = (
        torch.zeros(5, mux.in_features, device="meta"),
        torch.zeros(5, device="meta"),
    )
    assert mux(raw, u=u).best().shape == (5, 2)


def test_other_modules_carry_it() -> None:
    mux = layer("paper_sum_or")
    model = nn.Sequential(nn.Linear(3, mux.in_features), Best(mux))
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "0.bias"]
    state = model.state_dict()
    assert "1.mux._extra_state" in state
    other = nn.Sequential(nn.Linear(3, mux.in_features), Best(layer("paper_sum_or")))
    other.load_state_dict(state)
    h = torch.randn(7, 3)
    assert torch.equal(other(h), model(h))
    called = torch.func.functional_call(model, dict(model.named_parameters()), (h,))
    assert torch.equal(called, model(h))


def test_gradients_of_rules_with_inputs_under_vmap() -> None:
    mux = Multiplexer(
        Rules("x: real; u: input[0, 1]\nx >= u or x <= -2"), dtype=torch.float64
    )

    def best(raw: Tensor, u: Tensor) -> Tensor:
        found: Tensor = mux(raw, u=u).best()
        return found

    raw, u = (
        torch.randn(6, mux.in_features, dtype=torch.float64),
        torch.rand(6, dtype=torch.float64),
    )
    jacobians = torch.vmap(torch.func.jacrev(best))(raw, u)
    one_by_one = [
        torch.func.jacrev(best)(row, value) for row, value in zip(raw, u, strict=True)
    ]
    torch.testing.assert_close(jacobians, torch.stack(one_by_one))


FORWARD_MODE = {
    "box": ("x: real; 0 <= x; x <= 1", {}),
    "choice": ("x: real; x >= 1 or x <= -1", {}),
    "polytope": ("a: real; b: real; a <= b; b <= 4; a + b >= -3", {}),
    "ball": ("a: real; b: real; norm([a, b]) <= 2", {}),
    "simplex": ("x: real[3]; sum(x) == 1; all(v >= 0 for v in x)", {}),
    "equality": ("x: real[3]; x[0] + x[1] == x[2]", {}),
    "ends from an input": (
        "a: real; b: real; u: input[1, 10]; a <= u; b >= u",
        {"u": 3.0},
    ),
    "rows from an input": (
        "a: real; b: real; u: input[1, 10]; a + b <= u; a - b <= 2; 2*a + b >= -4",
        {"u": 3.0},
    ),
    "moved ball": (
        "x: real[2]; c: input[-1, 1]; u: input[2, 3]; norm([x[0] - c, x[1]]) <= u",
        {"c": 0.5, "u": 3.0},
    ),
    "cascade": (
        "a: real; b: real; u: input[0, 10]; a + b == u; -100 <= a <= 100; -100 <= b <= 100",
        {"u": 3.0},
    ),
    "decimals": ("x: decimal(2)[0, 10]; y: decimal(2)[0, 10]; x + y == 7.5", {}),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode_agrees_with_backward(name: str, training: bool) -> None:
    text, numbers = FORWARD_MODE[name]
    mux = Multiplexer(Rules(text), dtype=torch.float64).train(training)
    inputs = {key: torch.tensor(v, dtype=torch.float64) for key, v in numbers.items()}
    best = Best(mux)

    def values(raw: Tensor, known: dict[str, Tensor]) -> Tensor:
        found: Tensor = best(raw, **known)
        return found

    def energy(raw: Tensor) -> Tensor:
        return values(raw, inputs).square().sum()

    raw = torch.randn(mux.in_features, dtype=torch.float64)
    both = (0, 1) if inputs else 0
    backward = torch.func.jacrev(values, both)(raw, inputs)
    forward = torch.func.jacfwd(values, both)(raw, inputs)
    torch.testing.assert_close(forward, backward)
    curvature = torch.func.jacrev(torch.func.jacrev(energy))(raw)
    torch.testing.assert_close(torch.func.hessian(energy)(raw), curvature)

    tangent = torch.randn_like(raw)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(raw, tangent)  # type: ignore[no-untyped-call]
        x, change = torch.autograd.forward_ad.unpack_dual(values(dual, inputs))  # type: ignore[no-untyped-call]
    slopes = torch.func.jacrev(values)(raw, inputs)
    assert torch.equal(x, values(raw, inputs))
    torch.testing.assert_close(change, slopes @ tangent)


@pytest.mark.parametrize("name", [name for name in FORWARD_MODE if name != "cascade"])
def test_losses_in_forward_mode_agree_with_backward(name: str) -> None:
    text, numbers = FORWARD_MODE[name]
    mux = Multiplexer(Rules(text), dtype=torch.float64)
    inputs = {key: torch.tensor(v, dtype=torch.float64) for key, v in numbers.items()}

    def loss(raw: Tensor) -> Tensor:
        branches: Branches = mux(raw, **inputs)
        return branches.loss(lambda x: x.square().sum(-1))

    raw = torch.randn(mux.in_features, dtype=torch.float64)
    torch.testing.assert_close(torch.func.jacfwd(loss)(raw), torch.func.grad(loss)(raw))


@pytest.mark.parametrize("name", ["simplex", "equality", "polytope", "decimals"])
def test_forward_mode_inside_of_a_graph(name: str) -> None:
    mux = Multiplexer(Rules(FORWARD_MODE[name][0]))
    best = Best(mux)
    raw, tangent = torch.randn(mux.in_features), torch.randn(mux.in_features)

    def change(raw: Tensor, tangent: Tensor) -> Tensor:
        found: Tensor = torch.func.jvp(best, (raw,), (tangent,))[1]
        return found

    compiled = torch.compile(change, fullgraph=True, backend="eager")
    assert torch.equal(compiled(raw, tangent), change(raw, tangent))


@pytest.mark.parametrize("name", ["simplex", "equality", "polytope", "decimals"])
def test_an_exported_layer_can_be_trained(name: str) -> None:
    """Also if what it was recorded with required no gradient."""
    mux = Multiplexer(Rules(FORWARD_MODE[name][0])).train()
    raw = torch.randn(5, mux.in_features)
    exported = torch.export.export(Best(mux), (raw,)).module()
    weight = torch.arange(1.0, mux.out_features + 1)
    raw.requires_grad_()
    expected = torch.autograd.grad((mux(raw).best() * weight).sum(), raw)
    found = torch.autograd.grad((exported(raw) * weight).sum(), raw)
    assert expected[0].any()
    torch.testing.assert_close(found, expected)


def test_the_papers_map_is_exported_with_gradients_where_a_choice_has_no_interval() -> (
    None
):
    rules = Rules("x: real; u: input[-4, 4]; 0 <= x <= 1 or u > 3; y: real; y == 2")
    mux = Multiplexer(rules, dtype=torch.float64, boxes=PaperSeparable).eval()

    class OfRaw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = mux

        def forward(self, raw: Tensor, u: Tensor) -> Tensor:
            x: Tensor = self.mux(raw, u=u).best()
            return x

    raw = torch.randn(20, mux.in_features, dtype=torch.float64)
    u = torch.linspace(-4, 4, 20, dtype=torch.float64)
    exported = torch.export.export(OfRaw().eval(), (raw, u)).module()
    leaf = raw.clone().requires_grad_()
    (found,) = torch.autograd.grad(exported(leaf, u).sum(), leaf)
    (expected,) = torch.autograd.grad(OfRaw()(leaf, u).sum(), leaf)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected)
    change = torch.func.jvp(lambda rows: OfRaw()(rows, u), (raw,), (raw,))[1]
    torch.testing.assert_close(change.sum(-1), (expected * raw).sum(-1))


@pytest.mark.parametrize("training", [True, False])
def test_an_end_that_rounding_reaches_is_followed_in_every_way(training: bool) -> None:
    """Where both ends are the input the output moves with it, though ``u σ(−z) + u σ(z)`` may be rounded beyond u."""
    mux = Multiplexer(
        Rules("u: input[0, 4]; x: real; u <= x <= u"), dtype=torch.float64
    )
    raw = torch.randn(50, mux.in_features, dtype=torch.float64)

    class OfInput(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = mux.train(training)

        def forward(self, u: Tensor) -> Tensor:
            x: Tensor = self.mux(raw, u=u).best()[..., 0]
            return x

    u = torch.linspace(0.1, 3.9, 50, dtype=torch.float64)
    ask = OfInput().train(training)
    ones = torch.ones_like(u)
    forward = torch.func.jacfwd(ask)(u) @ ones
    exported = torch.export.export(ask, (u,)).module()
    leaf = u.clone().requires_grad_()
    (backward,) = torch.autograd.grad(exported(leaf).sum(), leaf)
    torch.testing.assert_close(forward, ones)
    torch.testing.assert_close(backward, ones)


def test_what_looks_at_numbers_does_so_inside_of_derivatives() -> None:
    mux = Multiplexer(Rules("x: real[2]; l: input[0, 9]; norm(x) <= l"))
    x = torch.tensor([3.0, 4.0])

    def judged(x: Tensor) -> Tensor:
        assert not mux.rules.satisfied(x, l=2.0)
        assert mux.rules.satisfied(mux.repair(x, l=torch.tensor(2)), l=2.0)
        return mux.repair(x, l=2.0)

    assert torch.equal(torch.func.jacrev(judged)(x), torch.eye(2))
    assert torch.equal(torch.func.jacfwd(judged)(x), torch.eye(2))
    with pytest.raises(GraphError, match="an exact verdict looks at"):
        torch.func.vmap(lambda row: mux.rules.satisfied(row, l=2.0))(x.repeat(3, 1))


def test_densities_inside_of_derivatives() -> None:
    mux = Multiplexer(Rules("x: real[2]; norm(x) <= 2"), dtype=torch.float64)
    x, place = torch.tensor([[0.3, 0.4], [0.0, 0.1]], dtype=torch.float64)

    def log_prob(place: Tensor) -> Tensor:
        found: Tensor = RulesDistribution(
            mux, torch.distributions.Normal(place, 1.0)
        ).log_prob(x)
        return found

    expected = torch.autograd.functional.jacobian(log_prob, place)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.grad(log_prob)(place), expected)
    torch.testing.assert_close(torch.func.jacfwd(log_prob)(place), expected)
    with torch.inference_mode():
        assert torch.equal(log_prob(place), log_prob(place.clone()))
