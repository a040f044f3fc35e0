"""Equalities that no float meets, moved to the nearest that floats can meet, and then met exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

import multiplexnet as mx
from multiplexnet.transforms.base import DTYPES

CASES = {
    "third": ("3*x == 1", ["x"]),
    "tenth and more": ("x == 0.1\ny >= x", ["x"]),
    "decimal sum": ("x + y == 0.3\nx >= 0.1\ny >= 0.1", ["x", "y"]),
    "two equalities": ("x + y + z == 0.1\nx - y == 1/3\nx >= 0", ["x", "y", "z"]),
    "free sum": ("a + b + c == 0.7", ["a", "b", "c"]),
    "either": ("x == 1/3 or x == 1/7", ["x"]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_what_is_moved_is_met_exactly_and_stays_near(
    name: str, dtype: torch.dtype
) -> None:
    rules = mx.Rules(CASES[name][0])
    with pytest.raises(mx.MultiplexError, match='equality="nearest"'):
        mx.Multiplexer(rules, dtype=dtype)
    mux = mx.Multiplexer(rules, dtype=dtype, equality="nearest").eval()
    assert mux.moved
    assert max(mux.moved.values()) <= 8 * Fraction(torch.finfo(dtype).eps)
    raw = torch.cat(
        [torch.randn(20, mux.in_features) * scale for scale in (1.0, 30.0, 1e4)]
    ).to(dtype)
    columns = dict(zip(rules.outputs, mux(raw).best().unbind(-1), strict=True))
    for row in mux.moved:
        if len(mux.terms) == 1:
            sums = {
                sum(
                    (
                        c * Fraction(float(columns[s][i]))  # type: ignore[index]
                        for s, c in row.linear.summands
                    ),
                    row.linear.constant,
                )
                for i in range(len(raw))
            }
            assert len(sums) == 1
            assert abs(sums.pop()) == mux.moved[row]


def test_equalities_that_floats_meet_are_left_alone() -> None:
    mux = mx.Multiplexer(mx.Rules("x + y == 0.5\nx >= 0"), equality="nearest")
    assert mux.moved == {}


def test_the_choice_is_saved_and_rebuilt_for_other_dtypes() -> None:
    mux = mx.Multiplexer(mx.Rules("x + y == 0.3"), equality="nearest")
    again = mx.Multiplexer.from_state(mux.state_dict())
    assert again.moved == mux.moved
    assert max(again.half().moved.values()) > max(mux.moved.values())


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="exact"):
        mx.Multiplexer(mx.Rules("x == 1"), equality="close")  # type: ignore[arg-type]
