"""The values of all combinations of the terms of several blocks, each a sum of tensors.

The values of a block are laid out among all outputs, with 0 in the place of the others. The values of a combination are
a sum of such tensors: those of the first blocks, added up once for each of their combinations, and those of the last
ones. So a combination costs one sum of long rows, and its gradient is added up without being taken apart. Where that
would hold far more than the values of all terms, these are laid out anew for each combination.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.transforms.base import Differentiable, is_transformed, recorded

__all__ = ["Among", "Combinations", "Narrow", "cut", "held"]


class _Widened(Differentiable):
    """Values ``(…, D_b)`` of a block among all outputs, ``(…, D)``.

    ``source`` says for every output which of the D_b + 1 values it is, of which the last one is 0.
    """

    @staticmethod
    def forward(values: Tensor, columns: Tensor, source: Tensor) -> Tensor:
        return _picked(F.pad(values, (0, 1)), source)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _, columns, _ = inputs
        ctx.save_for_backward(columns)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (columns,) = ctx.saved_tensors
        return _picked(grads[0], columns), None, None


def _picked(values: Tensor, columns: Tensor) -> Tensor:
    """``index_select`` along the last axis, which torch does with two axes in an eighth of the time."""
    if values.dim() == 2 or is_transformed():
        return values.index_select(-1, columns)
    picked = values.reshape(-1, values.shape[-1]).index_select(-1, columns)
    return picked.view(*values.shape[:-1], len(columns))


class Among(NamedTuple):
    """Where the outputs of a block stand among all.

    Args:
        columns: their positions, ``(D_b,)``.
        source: for every output which one of the block it is; of others D_b, ``(D,)``.
    """

    columns: Tensor
    source: Tensor

    @staticmethod
    def of(columns: Tensor, width: int) -> Among:
        """Of so many outputs."""
        count = len(columns)
        source = torch.full((width,), count, device=columns.device)
        source[columns] = torch.arange(count, device=columns.device)
        return Among(columns, source)

    def widened(self, values: Tensor) -> Tensor:
        """Values ``(…, D_b)`` of the block among all outputs, ``(…, D)``; 0 for those of other blocks.

        Example:
            >>> Among.of(torch.tensor([1]), 2).widened(torch.tensor([[5.0], [6.0]]))
            tensor([[0., 5.],
                    [0., 6.]])
        """
        found: Tensor = recorded(_Widened, values, *self)
        return found


class Narrow(Sequence[Tensor]):
    """The values of all terms of a block, which are laid out among all outputs when they are asked for.

    Args:
        values: of every term, ``(*batch, D_b)``.
        among: where these outputs stand.
    """

    def __init__(self, values: Sequence[Tensor], among: Among) -> None:
        self.values = values
        self.among = among

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, k: Any) -> Any:
        return self.among.widened(self.values[k])


class Combinations(NamedTuple):
    """The parts that combinations are sums of, each ``(*batch, D)``: one of every group; those of the last run fastest.

    Example:
        >>> ones, tens = torch.eye(2), torch.tensor([[0.0, 0.0], [0.0, 10.0]])
        >>> Combinations([ones.unbind(), tens.unbind()]).of(3)
        tensor([ 0., 11.])
    """

    groups: Sequence[Sequence[Tensor]]

    def of(self, number: int) -> Tensor:
        """The values of a combination, ``(*batch, D)``."""
        parts = []
        for group in reversed(self.groups):
            number, own = divmod(number, len(group))
            parts.append(group[own])
        return sum(parts[1:], parts[0])

    @staticmethod
    def in_halves(blocks: Sequence[Sequence[Tensor]]) -> Combinations:
        """Those of at least two blocks, each with the values of its terms among all outputs."""
        here = cut(list(map(len, blocks)))
        return Combinations([_sums(blocks[:here]), _sums(blocks[here:])])


def cut(sizes: Sequence[int]) -> int:
    """How many of the blocks come first, so that these and the others have few combinations in all.

    Example:
        >>> cut([96, 1, 2, 1]), cut([2, 2, 2, 2])
        (1, 2)
    """
    return min(range(1, len(sizes)), key=lambda here: held(sizes, here))


def held(sizes: Sequence[int], here: int) -> int:
    """How many combinations the first blocks have, and the others."""
    return prod(sizes[:here]) + prod(sizes[here:])


def _sums(blocks: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The values of all combinations of some blocks."""
    found = list(blocks[0])
    for own in blocks[1:]:
        found = [x + y for x in found for y in own]
    return found
