"""Blocks of one shape are computed together, and come out as each of them by itself."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import multiplexnet as mx
from multiplexnet.transforms.gauge import first_equal

PAIRS = "\n".join(
    f"x[{2 * i}] <= x[{2 * i + 1}]; x[{2 * i}] >= {i}; x[{2 * i + 1}] <= {10 + i}"
    for i in range(5)
)
CHOICES = "\n".join(
    f"x[{i}] + {i + 1} <= x[{9 - i}] or x[{i}] >= x[{9 - i}] + {i + 1}"
    for i in range(5)
)
SUMS = "\n".join(
    f"x[{i}] >= 0; x[{i + 5}] >= 0; x[{i}] + x[{i + 5}] == {i + 1}" for i in range(5)
)
GAPS = "\n".join(f"x[{i}] <= -{i + 1} or x[{i}] >= {i + 1}" for i in range(9))
TEXTS = {
    "pairs": f"x: real[10]\n{PAIRS}",
    "choices": f"x: real[10]\n{CHOICES}",
    "sums": f"x: real[10]\n{SUMS}",
    "gaps": f"x: real[10]\n{GAPS}\nx[9] >= 3",
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def raw_values(mux: mx.Multiplexer, rows: int = 200) -> Tensor:
    """Ordinary values, and some as far out as they can be."""
    raw = torch.randn(rows, mux.in_features)
    raw[: rows // 4] *= 1e4
    raw[0] = torch.inf
    return raw.to(mux.dtype)


def of_each(branches: mx.Branches) -> Tensor:
    """The best values, block by block."""
    return replace(branches, stacked=None).best()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_a_stack_gives_the_values_of_its_blocks(name: str, dtype: torch.dtype) -> None:
    rules = mx.Rules(TEXTS[name])
    mux = mx.Multiplexer(rules, dtype=dtype).eval()
    assert mux.stacks is not None
    branches = mux(raw_values(mux))
    best = branches.best()
    assert rules.satisfied(best).all()
    torch.testing.assert_close(best, of_each(branches))


@pytest.mark.parametrize("name", TEXTS)
def test_a_stack_has_the_gradient_of_its_blocks(name: str) -> None:
    mux = mx.Multiplexer(mx.Rules(TEXTS[name]), dtype=torch.float64)
    raw = torch.randn(20, mux.in_features, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(20, mux.out_features, dtype=torch.float64)
    found = []
    for best in (lambda b: b.best(), of_each):
        (gradient,) = torch.autograd.grad((best(mux(raw)) * weight).sum(), raw)
        found.append(gradient)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_any_batch_shape(shape: tuple[int, ...]) -> None:
    mux = mx.Multiplexer(mx.Rules(TEXTS["choices"]))
    assert mux(torch.zeros(*shape, mux.in_features)).best().shape == (*shape, 10)


def test_a_copy_and_another_dtype_keep_their_stacks() -> None:
    mux = mx.Multiplexer(mx.Rules(TEXTS["pairs"])).eval()
    raw = torch.randn(50, mux.in_features)
    twin = copy.deepcopy(mux)
    assert torch.equal(twin(raw).best(), mux(raw).best())
    half = mux.to(torch.float16)
    best = half(raw.half()).best()
    assert best.dtype is torch.float16
    assert half.rules.satisfied(best).all()


def test_nan_is_seen_in_training_and_safe_in_eval() -> None:
    mux = mx.Multiplexer(mx.Rules(TEXTS["pairs"]))
    raw = torch.full((1, mux.in_features), torch.nan)
    assert mux(raw).best().isnan().all()
    assert mux.rules.satisfied(mux.eval()(raw).best()).all()


def test_a_stack_is_exported() -> None:
    mux = mx.Multiplexer(mx.Rules(TEXTS["choices"])).eval()

    class Best(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = mux

        def forward(self, raw: Tensor) -> Tensor:
            best: Tensor = self.mux(raw).best()
            return best

    raw = torch.randn(7, mux.in_features)
    program = torch.export.export(Best(), (raw,))
    assert torch.equal(program.module()(raw), mux(raw).best())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch
@pytest.mark.parametrize("name", ["pairs", "choices"])
def test_a_stack_compiles_as_one_graph(name: str) -> None:
    mux = mx.Multiplexer(mx.Rules(TEXTS[name]))
    best = torch.compile(lambda raw: mux(raw).best(), backend="eager", fullgraph=True)
    raw = torch.randn(7, mux.in_features, requires_grad=True)
    found = best(raw)
    found.sum().backward()
    assert raw.grad is not None
    assert torch.equal(found, mux(raw).best())


@pytest.mark.parametrize(
    "text",
    ["x: real[2]; x[0] <= x[1]", "u: input[0, 1]; " + TEXTS["pairs"] + "\nx[0] >= u"],
    ids=["one block", "inputs"],
)
def test_other_layers_have_no_stacks(text: str) -> None:
    assert mx.Multiplexer(mx.Rules(text)).stacks is None


def test_the_first_of_equal_columns_is_found() -> None:
    products = torch.tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0], [0.0, torch.nan, 1.0]])
    value = products.amax(-1)
    assert first_equal(products, value).tolist() == [1, 0, 2]
    wide = torch.zeros(2, 300)
    wide[0, 299] = 1.0
    assert first_equal(wide, wide.amax(-1)).tolist() == [299, 0]
