"""Layers that version 0.1.0 saved load today and return the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import multiplexnet as mx

SAVED = json.loads(
    (Path(__file__).parent / "saved" / "layers-0.1.0.json").read_text(encoding="utf-8")
)


def name_of(saved: dict[str, Any]) -> str:
    return f"{saved['name']}-{saved['state']['dtype']}"


@pytest.mark.parametrize("saved", SAVED, ids=name_of)
def test_a_layer_of_the_first_version_returns_the_same_bits(
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
    assert [[value.hex() for value in row] for row in best.double().tolist()] == saved[
        "best"
    ]
    assert mux.rules.satisfied(best, **inputs).all()
