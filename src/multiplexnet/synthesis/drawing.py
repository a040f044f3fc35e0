"""Rows drawn one column after another, each in what the rules leave of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from multiplexnet.language.formula import Variable
from multiplexnet.synthesis.allowed import Allowed
from multiplexnet.synthesis.counters import uniforms
from multiplexnet.synthesis.training import RowModel

__all__ = ["BLOCK", "blocks", "drawn"]

BLOCK = 4_096
"""Rows that are drawn together. Always as many: sums of floats may depend on how many rows there are."""


def blocks(count: int) -> Iterator[tuple[int, int]]:
    """The first row and the number of rows of every block of a sample."""
    for first in range(0, count, BLOCK):
        yield first, min(BLOCK, count - first)


@torch.inference_mode()
def drawn(
    model: RowModel,
    allowed: Allowed,
    seed: int,
    first: int,
    *,
    given: Mapping[Variable, Tensor] | None = None,
) -> Tensor:
    """A block of rows from row ``first`` on, ``(BLOCK, D)``, whole numbers in the order of the model's columns.

    Args:
        model: what is learned.
        allowed: what the rules leave; the model's own, or with further rules over the same columns in the same order.
        seed: of the random numbers.
        first: a multiple of ``BLOCK``.
        given: values ``(BLOCK,)`` of columns that are known.
    """
    known = given or {}
    random = uniforms(seed, first, BLOCK, 2 * len(allowed.columns)).reshape(-1, 2, BLOCK)
    rows = allowed.rows(BLOCK)
    tokens = torch.zeros(BLOCK, len(allowed.columns), dtype=torch.int64)
    found = torch.zeros(BLOCK, len(allowed.columns), dtype=torch.int64)
    for j, column in enumerate(allowed.columns):
        if column in known:
            values = known[column].double()
        else:
            logits = model.network.column(j, tokens[:, :j])
            values = model.chances[j].draw(logits, rows.left(column), random[j])
        rows.take(column, values)
        found[:, j] = values.long()
        tokens[:, j] = torch.from_numpy(model.tokens[j].of(found[:, j].numpy()))
    return found
