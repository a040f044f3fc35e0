"""Where the maps of the terms send a raw point, a grid of raw points, and random ones; judged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor

from multiplexnet import Branches
from multiplexnet.errors import MultiplexError, QuestionError
from multiplexnet.playground.answers.layers import DTYPES, Situation, refuse_many, situation
from multiplexnet.playground.asked import Asked

__all__ = ["nearby", "point", "samples"]

MOST_TERMS = 64
"""Images of a raw point that are shown."""

MOST_GRIDS = 12
GRID = 4.0
LINES = 17
STEPS = 41
MOST_SAMPLES = 2000


def point(asked: Asked) -> dict[str, Any]:
    """What each term makes of a raw point.

    Fields: those of a picture, ``raw`` (one number for each output, 0 by default), ``grid`` (1: the images of a grid
    of raw points as well).
    """
    there = situation(asked)
    mux = there.layer
    raw = torch.tensor(_raw(asked, there), dtype=DTYPES[there.dtype])
    if mux.is_nested:
        return {"images": [], "grids": [], "best": _best(there, raw), "nested": True}
    refuse_many(there)
    chosen = _chosen(there)
    images = _images(there, raw.expand(len(chosen), -1), chosen)
    grids = (
        _grids(there, raw, chosen)
        if asked.whole("grid", 0, 1) and len(chosen) <= MOST_GRIDS
        else []
    )
    return {"images": images, "grids": grids, "best": _best(there, raw), "nested": False}


def samples(asked: Asked) -> dict[str, Any]:
    """Outputs of a fresh layer for normal raw values, a term drawn for each, and how many of them obey.

    Fields: those of a picture, ``count``, ``seed``, ``spread`` (the raw values' standard deviation in tenths).
    """
    there = situation(asked)
    mux = there.layer
    count = asked.whole("count", 1, MOST_SAMPLES)
    generator = torch.Generator().manual_seed(asked.whole("seed", 0, 1 << 30))
    raw = (
        torch.randn(count, mux.in_features, generator=generator)
        * asked.whole("spread", 1, 100)
        / 10
    )
    inputs = there.input_tensors(count)
    x = mux(raw.to(mux.dtype), **inputs).sample(generator)
    obeys = there.rules.satisfied(x, **inputs)
    return {
        "points": x[:, there.columns].double().tolist(),
        "obeying": int(obeys.sum()),
        "count": count,
    }


def nearby(there: Situation) -> list[list[float]]:
    """Where the terms send small raw values: what a picture should show. Nothing, if there is no layer."""
    try:
        if there.layer.is_nested:
            return []
        chosen = _chosen(there)
        size = len(there.rules.outputs)
        steps = torch.cat(
            [torch.zeros(1, size), torch.eye(size)[there.columns], -torch.eye(size)[there.columns]]
        )
        raw = steps.to(DTYPES[there.dtype]).repeat(len(chosen), 1)
        x, allowed = _at(
            there, raw, [combination for combination in chosen for _ in range(len(steps))]
        )
        points: list[list[float]] = x[allowed][:, there.columns].double().tolist()
        return points
    except MultiplexError:
        return []


def _chosen(there: Situation) -> list[tuple[int, ...]]:
    """For each region of the picture the term that it takes of each block on the axes."""
    return list(islice(product(*(range(len(block.terms)) for block in there.blocks)), MOST_TERMS))


def _raw(asked: Asked, there: Situation) -> list[float]:
    size = len(there.rules.outputs)
    raw = asked.floats("raw") or [0.0] * size
    if len(raw) != size:
        raise QuestionError(f"raw: expected {size} numbers, one for each output")
    return raw


def _branches(there: Situation, values: Tensor) -> Branches:
    """The layer's branches for raw values, with the same logit for every term."""
    mux = there.layer
    logits = values.new_zeros((len(values), mux.in_features - mux.out_features))
    return mux(torch.cat([values, logits], -1), **there.input_tensors(len(values)))  # type: ignore[no-any-return]


def _best(there: Situation, raw: Tensor) -> dict[str, Any]:
    x = _branches(there, raw.unsqueeze(0)).best()
    return _told(there, x)[0]


def _told(there: Situation, x: Tensor) -> list[dict[str, Any]]:
    """Rows of outputs as numbers, with the exact verdict on each."""
    obeys = there.rules.satisfied(x, **there.input_tensors(len(x))).tolist()
    rows = x.double().tolist()
    names = [v.name for v in there.rules.outputs]
    return [
        {
            "at": [row[c] for c in there.columns],
            "row": dict(zip(names, map(repr, row), strict=True)),
            "obeys": good,
        }
        for row, good in zip(rows, obeys, strict=True)
    ]


def _at(
    there: Situation, values: Tensor, chosen: Sequence[tuple[int, ...]]
) -> tuple[Tensor, Tensor]:
    """The outputs of one chosen term of each block on the axes, row by row, and whether the inputs allow it."""
    branches = _branches(there, values)
    allowed = torch.ones(len(values), dtype=torch.bool)
    indices = []
    for block, choice in zip(there.layer.blocks, branches.blocks, strict=True):
        own = next(
            (j for j, part in enumerate(there.blocks) if part.outputs[0] in block.outputs), None
        )
        index = (
            choice.best_index()
            if own is None
            else torch.tensor([combination[own] for combination in chosen])
        )
        if choice.feasible is not None:
            allowed &= choice.feasible.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        indices.append(index)
    return branches.at(indices), allowed


def _images(
    there: Situation, values: Tensor, chosen: Sequence[tuple[int, ...]]
) -> list[dict[str, Any]]:
    x, allowed = _at(there, values, chosen)
    kept = [k for k, possible in enumerate(allowed.tolist()) if possible]
    return [{"number": k, **told} for k, told in zip(kept, _told(there, x[allowed]), strict=True)]


def _grids(
    there: Situation, raw: Tensor, chosen: Sequence[tuple[int, ...]]
) -> list[dict[str, Any]]:
    """For every term the images of the lines on which one raw value is constant."""
    lines = _lines(there, raw)
    flat = lines.flatten(0, 1)
    everything = flat.repeat(len(chosen), 1)
    x, allowed = _at(
        there, everything, [combination for combination in chosen for _ in range(len(flat))]
    )
    shaped = (
        x[:, there.columns]
        .double()
        .reshape(len(chosen), len(lines), -1, len(there.columns))
        .tolist()
    )
    possible = allowed.reshape(len(chosen), -1).all(-1).tolist()
    return [{"number": k, "lines": shaped[k]} for k in range(len(chosen)) if possible[k]]


def _lines(there: Situation, raw: Tensor) -> Tensor:
    """Raw points on the lines of a grid, ``(lines, steps, D)``; on one axis each line is a point."""
    levels = torch.linspace(-GRID, GRID, LINES, dtype=torch.float64)
    along = torch.linspace(-GRID, GRID, STEPS, dtype=torch.float64)
    if len(there.columns) == 1:
        lines = raw.double().repeat(LINES, 1, 1)
        lines[:, 0, there.columns[0]] = levels
        return lines.to(raw.dtype)
    lines = raw.double().repeat(2 * LINES, STEPS, 1)
    first, second = there.columns
    lines[:LINES, :, first], lines[:LINES, :, second] = levels[:, None], along
    lines[LINES:, :, first], lines[LINES:, :, second] = along, levels[:, None]
    return lines.to(raw.dtype)
