"""Whether points that obey the rules are reached: a point well inside a term, its raw values, and there again."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import torch
import z3
from torch import Tensor

from campaign.sentences import Sentence
from campaign.solver import Meaning
from campaign.verdict import Judge
from multiplexnet.compiler.terms import Term
from multiplexnet.errors import InputError
from multiplexnet.language.formula import Variable
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["unreached"]

CLOSE = 1e-6
CLOSE_ON_GRID = 1e-3
"""By how much of its size, or of the numbers in the rows (at least of 1), a point may be missed; solutions of
equalities lie on a grid, which spends half of its digits on how far it goes."""
ROOM = Fraction(1, 2**30)
"""The share of the numbers in a row that its slack has to be: where it is less, rounding has its say."""
FURTHEST = 10**6
"""How far out points are asked for, in units of the numbers in the rows."""
AROUND = 64
"""Solutions of equalities are asked for within so many times the size of the point that raw values of zero lead to."""
ORDINARY = 30.0
"""The raw values that lead half-way to any point of a bounded set that inputs move: no network learns a thousand."""
LARGEST = 2.0**90
"""Sets with larger numbers in them are left out: raw values are cut at 2¹⁰⁰."""


def unreached(
    mux: Multiplexer, sentence: Sentence, random: Random, judge: Judge
) -> tuple[str, int]:
    """What is missed, in words (nothing: an empty text), and how many points were tried.

    The point lies half-way between one that z3 finds in a random term and the one that raw values of zero lead to:
    inside, and as far from the boundary as the layer's own centre allows.
    """
    chosen = [random.randrange(len(block.terms)) for block in mux.blocks]
    terms = [block.terms[k] for block, k in zip(mux.blocks, chosen, strict=True)]
    if max(_size(terms), _spread(terms)) > LARGEST:
        return "", 0
    size = float(_size(terms))
    near = (
        _centre(mux, chosen, {})
        if any(term.equalities for term in terms) and not sentence.inputs
        else None
    )
    found = _point(
        Meaning(sentence), terms, random, None if near is None else near[0].tolist()
    )
    if found is None:
        return "", 0
    given = {
        d.name: torch.tensor([float(found[d.name])], dtype=torch.float64)
        for d in sentence.inputs
    }
    try:
        inputs = mux.input_columns(given, torch.Size((1,)))
        centre = _centre(mux, chosen, given)
        wanted = (
            centre
            + torch.tensor(
                [[float(found[d.name]) for d in sentence.outputs]], dtype=torch.float64
            )
        ) / 2
        columns = {d.name: wanted[:, j] for j, d in enumerate(sentence.outputs)} | given
        row = torch.stack([columns[d.name] for d in sentence.declared], -1).numpy()
        if not any(term.equalities for term in terms) and not judge(np.asarray(row))[0]:
            return (
                "",
                0,
            )  # what floats make of the point, or of the inputs, lies outside
        if not _has_room(
            terms, {name: Fraction(float(column)) for name, column in columns.items()}
        ):
            return "", 0
        raw = _raw_for(mux, wanted, inputs, chosen)
        reached = mux(raw, **given).best()
    except InputError:
        return "", 0
    furthest = float(raw[:, : mux.out_features].abs().max())
    if sentence.kind == "moved" and furthest > ORDINARY:
        return (
            f"{wanted[0].tolist()} needs raw values of {furthest:g} (inputs {given})",
            1,
        )
    off = float((reached - wanted).abs().max()) / max(float(wanted.abs().max()), size)
    if off <= (CLOSE_ON_GRID if any(term.equalities for term in terms) else CLOSE):
        return "", 1
    return (
        f"{wanted[0].tolist()} is missed by {off:g} of its size: {reached[0].tolist()} (inputs {given})",
        1,
    )


def _has_room(terms: list[Term], point: dict[str, Fraction]) -> bool:
    """Whether rounding the numbers in the inequalities takes up little of their slacks."""
    for row in (row for term in terms for row in term.inequalities):
        parts = [
            c * point[s.name] for s, c in row.linear.summands if isinstance(s, Variable)
        ]
        if -sum(parts, row.linear.constant) < ROOM * sum(map(abs, parts)):
            return False
    return True


def _centre(mux: Multiplexer, chosen: list[int], given: dict[str, Tensor]) -> Tensor:
    """The outputs that raw values of zero lead to in these terms."""
    raw = torch.zeros(1, mux.in_features, dtype=torch.float64)
    branches: Branches = mux(raw, **given)
    return branches.at([torch.tensor([k]) for k in chosen])


def _point(
    meaning: Meaning, terms: list[Term], random: Random, around: list[float] | None
) -> dict[str, Fraction] | None:
    """A point of these terms where every inequality has room, if possible on a random side."""
    rows = [
        row if row.relation == "==" else replace(row, relation="<")
        for term in terms
        for row in term.rows
    ]
    fixed = [
        part
        for term in terms
        for part in meaning.at({v.name: value for v, value in term.fixed})
    ]
    reals: list[Any] = [c for c in meaning.constants.values() if z3.is_real(c)]
    centres = {
        d.name: Fraction(c)
        for d, c in zip(meaning.sentence.outputs, around or (), strict=False)
    }
    near = []
    for constant in reals:
        centre = centres.get(str(constant), Fraction(0))
        radius = (
            _size(terms) * FURTHEST
            if around is None
            else AROUND * max(Fraction(1), abs(centre))
        )
        near += [constant <= str(centre + radius), constant >= str(centre - radius)]
    wish = (
        random.choice(reals) >= str(Fraction(random.randint(-30, 30), 10))
        if reals
        else z3.BoolVal(True)
    )
    for more in ([wish], []):
        found = meaning.model(
            *map(meaning.row, rows), *fixed, *near, *more, rules=False
        )
        if isinstance(found, dict):
            return found
    return None


def _size(terms: list[Term]) -> Fraction:
    """The largest number in the rows, as a distance, and at least 1."""
    rows = [row.linear for term in terms for row in term.rows if row.linear.summands]
    return max(
        [
            Fraction(1),
            *(abs(row.constant) / max(abs(c) for _, c in row.summands) for row in rows),
        ]
    )


def _spread(terms: list[Term]) -> Fraction:
    """How many times a coefficient is another one of its row, at most."""
    rows = [
        [abs(c) for _, c in row.linear.summands]
        for term in terms
        for row in term.rows
        if row.linear.summands
    ]
    return max((max(row) / min(row) for row in rows), default=Fraction(1))


def _raw_for(
    mux: Multiplexer, x: Tensor, inputs: Tensor | None, chosen: list[int]
) -> Tensor:
    """Raw values and logits with which the layer chooses these terms and should come out at ``x``."""
    raw = torch.zeros(1, mux.in_features, dtype=torch.float64)
    place = {variable: j for j, variable in enumerate(mux.compiled.outputs)}
    logit = mux.out_features
    for (block, maps), k in zip(mux.block_maps(), chosen, strict=True):
        columns = [place[variable] for variable in block.outputs]
        raw[:, columns] = maps.inverse(x[:, columns], torch.tensor([k]), inputs=inputs)
        if len(block.terms) > 1:
            raw[:, logit + k] = 1.0
            logit += len(block.terms)
    return raw
