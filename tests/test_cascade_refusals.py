"""What a layer with cascades refuses, how it says so, and that what it advises works."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

import multiplexnet as mx
from multiplexnet.errors import InputError

LOTS = "all(v == 0 or 10 <= v <= 100 for v in x)"


# --- inputs on the grid ---------------------------------------------------------------------------------------------


def test_inputs_are_rounded_into_their_range() -> None:
    rules = mx.Rules("u: input[0.1, 6]; x: real; y: real; -3<=x<=3; 0<=y<=3; x + y == u")
    mux = mx.Multiplexer(rules, dtype=torch.bfloat16)
    given: dict[str, Any]
    for value in (torch.tensor([0.1016], dtype=torch.bfloat16), 0.1, [0.1, 6], Fraction(1, 3)):
        given = mux.on_grid(u=value)
        rows = given["u"].numel()
        x = mux(torch.randn(rows, mux.in_features).bfloat16(), **given).best()
        assert given["u"].dtype == torch.bfloat16
        assert rules.satisfied(x, **given).all()
    below = mux.on_grid(u=torch.tensor([0.05], dtype=torch.bfloat16))
    with pytest.raises(InputError, match="outside its declared range"):
        mux(torch.randn(1, mux.in_features).bfloat16(), **below)


def test_inputs_that_need_no_grid_become_tensors_that_the_layer_takes() -> None:
    rules = mx.Rules(
        f"d: input[10, 150]; x: real[4]; n: int[0, 5]; {LOTS}; sum(x) == d; n <= x[0]"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float32)
    raw = torch.randn(1, mux.in_features)
    given: dict[str, Any]
    for value in (20.3, torch.tensor(20.3, dtype=torch.float64), Fraction(61, 3)):
        given = mux.on_grid(d=value)
        assert given["d"].dtype == torch.float32
        assert rules.satisfied(mux(raw, **given).best(), **given).all()
    plain = mx.Multiplexer(mx.Rules("u: input[0, 1]; x: real; x <= u"))
    assert Fraction(plain.on_grid(u=0.1)["u"].item()) < Fraction(0.1)  # the side on which it is safe


def test_what_is_no_input_is_refused() -> None:
    mux = mx.Multiplexer(mx.Rules(f"d: input[10, 150]; x: real[4]; {LOTS}; sum(x) == d"))
    with pytest.raises(InputError, match=r"'e' is no input of the rules.*they declare: d"):
        mux.on_grid(e=1)
    for value in ("a", None):
        with pytest.raises(InputError, match="it must be a number"):
            mux.on_grid(d=value)
