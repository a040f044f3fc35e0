"""Losses over all terms: finite where a row can obey, and their gradients too, whichever terms are impossible there."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor

from campaign.raws import input_values
from campaign.subject import Finding, Given, Subject, combinations

__all__ = ["losses"]

ROWS = 12
FEW_TERMS = 32
"""Up to here a loss is asked for every combination of terms."""


def losses(subject: Subject) -> Iterator[Finding]:
    """A loss that is finite for every number, with a parameter of its own; other attacks draw as they did without."""
    mux = subject.mux
    if not subject.sentence.inputs or subject.sentence.calls or mux.cascades:
        return
    generator = torch.Generator().manual_seed(mux.in_features)
    width = (ROWS, mux.in_features)
    raw = torch.randn(width, generator=generator, dtype=torch.float64).to(mux.dtype)
    given = _given(subject, generator)
    if not given:
        return
    for _, rows, known in subject.answers(subject.best, raw, given):
        for here in combinations(known):
            own = {name: column[here] for name, column in known.items()}
            yield Finding("losses over all terms", _wrong(subject, rows[here], own))


def _given(subject: Subject, generator: torch.Generator) -> Given:
    found = {}
    for declared in subject.sentence.inputs:
        values = input_values(declared, subject.mux.dtype, generator)
        if not values:
            return {}
        chosen = torch.randint(len(values), (ROWS,), generator=generator)
        column = torch.tensor(values, dtype=torch.float64)[chosen]
        found[declared.name] = column.to(subject.mux.dtype)
    return found


def _wrong(subject: Subject, rows: Tensor, given: Given) -> str:
    mux = subject.mux
    raw = rows.clone().requires_grad_()
    scale = torch.ones((), dtype=raw.dtype, requires_grad=True)
    branches = mux(raw, **given)
    several = prod(len(block.terms) for block in mux.blocks)
    together = not mux.is_nested and several <= FEW_TERMS

    def cost(x: Tensor) -> Tensor:
        each = torch.tanh(scale * x)
        return each.sum(-1) if together else each

    loss = branches.loss(cost)
    if not loss.isfinite().all():
        return f"a loss is {loss.tolist()} with inputs {_told(given)}"
    gradients = torch.autograd.grad(
        loss.double().sum(), (raw, scale), allow_unused=True
    )
    for of, gradient in zip(("raw values", "a parameter"), gradients, strict=True):
        if gradient is not None and not gradient.isfinite().all():
            return f"the gradient of {of} is {gradient.tolist()} with inputs {_told(given)}"
    return ""


def _told(given: Given) -> str:
    return ", ".join(f"{name} = {float(column[0])}" for name, column in given.items())
