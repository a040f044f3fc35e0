"""Which structure a block gets, that all of what inputs leave is reached, and what is said of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import multiplexnet as mx
from multiplexnet.errors import ContradictionError, InputError

MOVED = {
    "a thin band": (
        "d: input[0, 1000]; a: real; b: real; 0 <= a <= 500; 0 <= b <= 600; d <= a + b <= d + 0.01",
        {"d": "300.25"},
    ),
    "a simplex": (
        "u: input[1, 9]; a: real; b: real; c: real; a >= 0; b >= 0; c >= 0; a + b + c <= u; a <= 2*b",
        {"u": "7.75"},
    ),
    "two inputs": (
        "u: input[1, 9]; v: input[0, 5]; a: real; b: real; -20 <= a <= 20; -20 <= b <= 20\n"
        "a - b <= u; b - a <= v; a + b <= 10; 3*a + 2*b >= -20",
        {"u": "7.75", "v": "0.5"},
    ),
}


def fixed(text: str, inputs: dict[str, str]) -> mx.Rules:
    """The rules with numbers in the place of inputs."""
    lines = [f"{name}: real; {name} == {number}" for name, number in inputs.items()]
    kept = text.replace("\n", ";").split(";")
    return mx.Rules("\n".join([*lines, *(k for k in kept if "input" not in k)]))


@pytest.mark.parametrize("name", MOVED)
def test_all_of_what_inputs_leave_is_reached(name: str) -> None:
    text, inputs = MOVED[name]
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules)
    assert mux.cascades
    given: dict[str, Any] = {n: torch.full((20_000,), float(v)) for n, v in inputs.items()}
    x = mux(3 * torch.randn(20_000, mux.in_features), **given).best()
    assert rules.satisfied(x, **given).all()
    true = {found.variable.name: found for found in fixed(text, inputs).explain().ranges}
    for j, output in enumerate(rules.outputs):
        found = true[output.name]
        assert found.lower is not None
        assert found.upper is not None
        slack = float(found.upper - found.lower) / 100
        assert float(x[:, j].min()) <= float(found.lower) + slack
        assert float(x[:, j].max()) >= float(found.upper) - slack


def test_what_inputs_move_has_losses_over_its_one_term() -> None:
    text, _ = MOVED["a simplex"]
    mux = mx.Multiplexer(mx.Rules(text))
    raw = torch.randn(5, mux.in_features, requires_grad=True)
    branches = mux(raw, u=torch.full((5,), 3.0))
    assert branches.x.shape == (5, 1, 3)
    assert torch.equal(branches.x.squeeze(-2), branches.best())
    branches.loss(lambda x: x.square().sum(-1)).sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


def test_what_has_no_ends_or_is_dense_stays_with_terms() -> None:
    unbounded = "u: input[0, 9]; a: real; b: real; a + b <= u; a >= b"
    assert not mx.Multiplexer(mx.Rules(unbounded)).cascades
    torch.manual_seed(7)
    rows = torch.randint(-9, 10, (14, 6)).tolist()
    dense = "\n".join(
        ["x: real[6]", "all(-9 <= v <= 9 for v in x)"]
        + [f"{' + '.join(f'{c}*x[{i}]' for i, c in enumerate(row))} <= 40" for row in rows]
    )
    assert not mx.Multiplexer(mx.Rules(dense)).cascades
    still = "a: real; b: real; a >= 0; b >= 0; a + b <= 3"
    assert not mx.Multiplexer(mx.Rules(still)).cascades


def test_an_input_without_an_output_is_refused_when_the_layer_is_built() -> None:
    with pytest.raises(InputError, match="no output obeys the rules: declare narrower ranges"):
        mx.Multiplexer(mx.Rules("u: input[0, 9]; a: real; b: real; a >= 2; b >= 1; a + b <= u"))
    mx.Multiplexer(mx.Rules("u: input[3, 9]; a: real; b: real; a >= 2; b >= 1; a + b <= u"))
    with pytest.raises(ContradictionError):
        mx.Multiplexer(mx.Rules("u: input[0, 1]; a: real; b: real; a >= 2; b >= 1; a + b <= u"))


def test_wide_whole_numbers_build_at_once() -> None:
    start = time.process_time()
    mux = mx.Multiplexer(mx.Rules("n: int[0, 100000]"))
    assert time.process_time() - start < 5
    x = mux(3 * torch.randn(5_000, mux.in_features)).best()
    assert x.max() - x.min() > 99_000
