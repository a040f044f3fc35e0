"""Where the maps of the terms send a raw point, a grid of raw points, and random ones; judged exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from math import isnan
from typing import Any, cast

import torch
from torch import Tensor

from multiplexnet import Branches
from multiplexnet.errors import MultiplexError, QuestionError
from multiplexnet.playground.answers.layers import (
    DTYPES,
    Situation,
    refuse_many,
    situation,
)
from multiplexnet.playground.answers.values import written
from multiplexnet.playground.asked import Question
from multiplexnet.playground.library import Variable

__all__ = ["nearby", "point", "samples"]

MOST_TERMS = 64
"""Images of a raw point that are shown."""

SURE = 1000.0
"""A logit that decides."""

FEW = 200
"""Samples that say where a picture should look."""

MOST_GRIDS = 12
GRID = 4.0
LINES = 17
STEPS = 41
MOST_SAMPLES = 2000


def point(asked: Question) -> dict[str, Any]:
    """What each term makes of a raw point.

    Fields: those of a picture, ``raw`` (one number for each output, 0 by default), ``grid`` (1: the images of a grid
    of raw points as well).
    """
    there = situation(asked)
    raw = torch.tensor(_raw(asked, there), dtype=DTYPES[there.dtype])
    if there.is_cascade:
        return _answer(there, raw, options_taken(there, raw), [], kind="cascade")
    if there.layer.is_nested:
        return _answer(there, raw, [], [], kind="nested")
    refuse_many(there)
    chosen = _chosen(there)
    images = _images(there, raw.expand(len(chosen), -1), chosen)
    grids = (
        _grids(there, raw, chosen)
        if asked.whole("grid", 0, 1) and len(chosen) <= MOST_GRIDS
        else []
    )
    return _answer(there, raw, images, grids, kind="terms")


def _answer(
    there: Situation,
    raw: Tensor,
    images: list[dict[str, Any]],
    grids: list[dict[str, Any]],
    *,
    kind: str,
) -> dict[str, Any]:
    """What is drawn has a place; images with a missing value on an axis are counted."""
    placed = [image for image in images if None not in image["at"]]
    return {
        "images": placed,
        "missing": len(images) - len(placed),
        "grids": grids,
        "best": _best(there, raw),
        "kind": kind,
    }


def samples(asked: Question) -> dict[str, Any]:
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
    places = x[:, there.columns].double()
    are_there = ~places.isnan().any(-1)
    return {
        "points": places[are_there].tolist(),
        "obeying": int(obeys.sum()),
        "missing": int((~are_there).sum()),
        "count": count,
    }


def nearby(there: Situation) -> list[list[float]]:
    """Where the terms send small raw values: what a picture should show. Nothing, if there is no layer."""
    try:
        has_terms = not there.is_cascade and not there.layer.is_nested
        x = _stepped(there) if has_terms else _sampled(there)
    except MultiplexError:
        return []
    places = x[:, there.columns].double()
    points: list[list[float]] = places[~places.isnan().any(-1)].tolist()
    return points


def _stepped(there: Situation) -> Tensor:
    """A step in each direction of the axes, by every term."""
    chosen = _chosen(there)
    size = len(there.rules.outputs)
    steps = torch.cat(
        [
            torch.zeros(1, size),
            torch.eye(size)[there.columns],
            -torch.eye(size)[there.columns],
        ]
    )
    raw = steps.to(DTYPES[there.dtype]).repeat(len(chosen), 1)
    every = [combination for combination in chosen for _ in range(len(steps))]
    x, allowed = _at(there, raw, every)
    return x[allowed]


def _sampled(there: Situation) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(FEW, there.layer.in_features, generator=generator)
    branches = there.layer(raw.to(there.layer.dtype), **there.input_tensors(FEW))
    return cast(Tensor, branches.sample(generator))


def _chosen(there: Situation) -> list[tuple[int, ...]]:
    """For each region of the picture the term that it takes of each block on the axes."""
    return list(
        islice(
            product(*(range(len(block.terms)) for block in there.blocks)), MOST_TERMS
        )
    )


def _raw(asked: Question, there: Situation) -> list[float]:
    size = len(there.rules.outputs)
    raw = asked.floats("raw") or [0.0] * size
    if len(raw) != size:
        raise QuestionError(f"raw: expected {size} numbers, one for each output")
    return raw


def _branches(there: Situation, values: Tensor) -> Branches:
    """The layer's branches for raw values, with the same logit for every term."""
    rest = values.new_zeros((len(values), there.layer.in_features - values.shape[-1]))
    inputs = there.input_tensors(len(values))
    return cast(Branches, there.layer(torch.cat([values, rest], -1), **inputs))


def _best(there: Situation, raw: Tensor) -> dict[str, Any]:
    x = _branches(there, raw.unsqueeze(0)).best()
    return _told(there, x)[0]


def _told(there: Situation, x: Tensor) -> list[dict[str, Any]]:
    """Rows of outputs as numbers, with the exact verdict on each."""
    obeys = there.rules.satisfied(x, **there.input_tensors(len(x))).tolist()
    outputs = there.rules.outputs
    return [
        {
            "at": [_placed(row[column]) for column in there.columns],
            "row": {v.name: written(v, n) for v, n in zip(outputs, row, strict=True)},
            "obeys": good,
        }
        for row, good in zip(x.double().tolist(), obeys, strict=True)
    ]


def _placed(value: float) -> float | None:
    return None if isnan(value) else value


def options_taken(there: Situation, raw: Tensor) -> list[dict[str, Any]]:
    """What a cascade makes of a raw point, once for every choice among the options of the axes."""
    places = [options for v in there.axes if (options := _logits(there, v))]
    chosen = list(product(*places))
    if len(chosen) > MOST_TERMS:
        chosen = [()]
    values = raw.new_zeros((len(chosen), there.layer.in_features))
    values[:, : len(raw)] = raw
    for row, logits in zip(values, chosen, strict=True):
        row[list(logits)] = SURE
    images = _told(there, _branches(there, values).best())
    different = {str(image["at"]): image for image in images}  # impossible options fall
    return [{"number": 0, **image} for image in different.values()]  # back on others


def _logits(there: Situation, variable: Variable) -> range:
    """Where among the raw features the logits of an output's options stand; those of cascades come last."""
    parts = [maps for _, maps in there.layer.cascade_parts()]
    first = there.layer.in_features - sum(maps.in_logits for maps in parts)
    for maps in parts:
        for step in maps.cascade.steps:
            own = maps.cascade.outputs[step.variable] == variable
            if own and step.variable in maps.first_logit:
                begin = first + maps.first_logit[step.variable]
                return range(begin, begin + step.size)
        first += maps.in_logits
    return range(0)


def _at(
    there: Situation, values: Tensor, chosen: Sequence[tuple[int, ...]]
) -> tuple[Tensor, Tensor]:
    """The outputs of one chosen term of each block on the axes, row by row, and whether the inputs allow it."""
    branches = _branches(there, values)
    allowed = torch.ones(len(values), dtype=torch.bool)
    indices = []
    for block, choice in zip(there.layer.blocks, branches.blocks, strict=True):
        own = next(
            (
                j
                for j, part in enumerate(there.blocks)
                if part.outputs[0] in block.outputs
            ),
            None,
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
    return [
        {"number": k, **told}
        for k, told in zip(kept, _told(there, x[allowed]), strict=True)
    ]


def _grids(
    there: Situation, raw: Tensor, chosen: Sequence[tuple[int, ...]]
) -> list[dict[str, Any]]:
    """For every term the images of the lines on which one raw value is constant."""
    lines = _lines(there, raw)
    flat = lines.flatten(0, 1)
    everything = flat.repeat(len(chosen), 1)
    x, allowed = _at(
        there,
        everything,
        [combination for combination in chosen for _ in range(len(flat))],
    )
    shaped = (
        x[:, there.columns]
        .double()
        .reshape(len(chosen), len(lines), -1, len(there.columns))
    )
    possible = allowed.reshape(len(chosen), -1).all(-1)
    drawn = possible & ~shaped.isnan().flatten(1).any(
        -1
    )  # not where values are missing
    lines_of = shaped.tolist()
    return [{"number": k, "lines": lines_of[k]} for k in range(len(chosen)) if drawn[k]]


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
    lines[:LINES, :, first] = levels[:, None]
    lines[:LINES, :, second] = along
    lines[LINES:, :, first] = along
    lines[LINES:, :, second] = levels[:, None]
    return lines.to(raw.dtype)
