"""Layers that version 0.1.0 saved load today and return what they returned then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import multiplexnet as mx
from multiplexnet.errors import RecordError

SAVED = json.loads(
    (Path(__file__).parent / "saved" / "layers-0.1.0.json").read_text(encoding="utf-8")
)


def name_of(saved: dict[str, Any]) -> str:
    return f"{saved['name']}-{saved['state']['dtype']}"


def last_bits(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far results may lie apart.

    The order of additions within a product differs between processors, and so do the last bits of float64. Rounded
    to a narrower dtype nothing of that is left.
    """
    if dtype is not torch.float64:
        return torch.zeros_like(values)
    return 64 * torch.finfo(dtype).eps * values.abs().amax(0, keepdim=True)


@pytest.mark.parametrize("saved", SAVED, ids=name_of)
def test_a_layer_of_the_first_version_returns_what_it_returned(
    saved: dict[str, Any],
) -> None:
    state = torch.tensor(list(json.dumps(saved["state"]).encode()), dtype=torch.uint8)
    mux = mx.Multiplexer.from_state(state).eval()
    raw = torch.tensor(saved["raw"], dtype=torch.float64).to(mux.dtype)
    inputs: dict[str, Any] = {
        name: torch.full((len(raw),), value, dtype=mux.dtype)
        for name, value in saved["inputs"].items()
    }
    best = mux(raw, **inputs).best()
    then = torch.tensor(
        [[float.fromhex(value) for value in row] for row in saved["best"]],
        dtype=torch.float64,
    )
    assert ((best.double() - then).abs() <= last_bits(then, mux.dtype)).all()
    assert mux.rules.satisfied(best, **inputs).all()


def changed(mux: mx.Multiplexer, old: bytes, new: bytes) -> torch.Tensor:
    content = bytes(mux.get_extra_state().tolist())
    assert old in content
    return torch.tensor(list(content.replace(old, new)), dtype=torch.uint8)


def test_a_state_that_does_not_fit_its_checksum_is_refused() -> None:
    mux = mx.Multiplexer(mx.Rules("x: real; 0 <= x <= 7"))
    state = {"_extra_state": changed(mux, b"x <= 7", b"x <= 9")}
    with pytest.raises(RecordError, match="this state was changed or damaged"):
        mx.Multiplexer.from_state(state)
    with pytest.raises(RecordError, match="this state was changed or damaged"):
        mux.load_state_dict(state)


def test_a_state_that_is_written_with_other_blanks_or_without_a_checksum_is_loaded() -> (
    None
):
    mux = mx.Multiplexer(mx.Rules("x: real; 0 <= x <= 7"))
    for state in (changed(mux, b", ", b",  "), changed(mux, b'"sha256"', b'"none"')):
        assert mx.Multiplexer.from_state(state).rules == mux.rules
