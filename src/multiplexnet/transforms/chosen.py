"""Rows of a batch that have chosen different terms, brought together by term.

A product of every row with the matrix of its own term reads a matrix a row. Where rows of one term stand together it is
one product a term, of matrices that stay in the cache.
"""

from __future__ import annotations

from math import isnan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from multiplexnet.transforms.base import (
    Differentiable,
    applied,
    can_look,
    is_transformed,
    largest_seen,
)

__all__ = [
    "ByTerm",
    "by_term",
    "largest_place",
    "reordered",
    "rows_with",
    "run_products",
]

FEWEST = 32
"""Rows a term, on average, that are worth bringing together."""

MANY = 2**13
"""So many rows are worth another way to their largest numbers."""


class ByTerm(NamedTuple):
    """An order of rows in which those of a term stand together.

    Args:
        order: the rows in that order.
        back: the places of the rows in it.
        counts: how many rows each term has.
    """

    order: Tensor
    back: Tensor
    counts: tuple[int, ...]


def by_term(index: Tensor, count: int) -> ByTerm | None:
    """The order of rows that chose these of so many terms, ``(B,)``; ``None`` if it is not worth it, or not known.

    Example:
        >>> by_term(torch.tensor([1, 0, 1, 0] * 16), 2).counts
        (32, 32)
    """
    if not can_look(index) or len(index) < FEWEST * count:
        return None
    counts = tuple(index.bincount(minlength=count).tolist())
    if index.is_cpu and count < 2**16 and not is_transformed():
        # numpy sorts numbers of 16 bits digit by digit, in a sixth of the time
        sorted_rows = np.argsort(index.numpy().astype(np.uint16), kind="stable")
        places = np.empty_like(sorted_rows)
        places[sorted_rows] = np.arange(len(sorted_rows))
        return ByTerm(torch.from_numpy(sorted_rows), torch.from_numpy(places), counts)
    order = index.argsort(stable=True)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return ByTerm(order, back, counts)


def largest_place(values: Tensor) -> Tensor:
    """Where the largest number along the last axis stands, the first of several, as ``max`` finds it; NaN is larger.

    Example:
        >>> largest_place(torch.tensor([[1.0, 3.0, 3.0], [torch.nan, 1.0, 2.0]]))
        tensor([1, 0])
    """
    if is_transformed() or not values.is_cpu or values.dtype is not torch.float32:
        return values.max(-1).indices  # half the time of argmax
    count = values.shape[-1]
    if values.numel() < MANY * count:
        return values.max(-1).indices
    own = values.detach()
    found = _second_of_two(own) if count == 2 else _first_of_largest(own)
    return values.max(-1).indices if found is None else found


def _second_of_two(values: Tensor) -> Tensor | None:
    """Whether the second of two numbers is larger; ``None`` if there may be NaN, or if that is not known."""
    first, second = values.unbind(-1)
    if _may_be_nan(first + second):
        return None
    return (second > first).long()


def _first_of_largest(values: Tensor) -> Tensor | None:
    """The place of the largest number along the last axis; ``None`` as above."""
    count = values.shape[-1]
    by_feature = values.reshape(-1, count).mT
    features = by_feature.clone(memory_format=torch.contiguous_format)  # to overwrite
    largest = features.amax(0)
    if _may_be_nan(largest):
        return None
    ranks = torch.arange(count, 0, -1, dtype=values.dtype).unsqueeze(-1)
    places = features.eq_(largest).mul_(ranks).amax(0)
    return places.neg_().add_(count).long().reshape(values.shape[:-1])


def _may_be_nan(values: Tensor) -> bool:
    largest = largest_seen(values)
    return largest is None or isnan(largest)


class _Reordered(Differentiable):
    """Rows, or whatever stands along an axis, in another order; ``back`` leads back to the old one."""

    @staticmethod
    def forward(values: Tensor, order: Tensor, back: Tensor, axis: int) -> Tensor:
        return values.index_select(axis, order)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, order, back, ctx.axis = inputs
        ctx.save_for_backward(order, back)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        order, back = ctx.saved_tensors
        return reordered(grads[0], back, order, ctx.axis), None, None, None


def reordered(values: Tensor, order: Tensor, back: Tensor, axis: int = 0) -> Tensor:
    """``values`` in an order along an axis, of which ``back`` is the inverse.

    The gradient is picked out as well, where that of ``index_select`` is added up in a tensor of zeros.
    """
    result: Tensor = applied(_Reordered, values, order, back, axis)
    return result


def run_products(vectors: Tensor, matrices: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Vectors ``(B, n)``, the first ``counts[0]`` of them times the first matrix, ``(T, n, m)``, and so on.

    Example:
        >>> run_products(torch.ones(3, 1), torch.tensor([[[2.0]], [[5.0]]]), (2, 1)).flatten()
        tensor([2., 2., 5.])
    """
    runs = zip(vectors.split(counts), matrices, strict=True)  # type: ignore[no-untyped-call]
    return torch.cat([own @ matrix for own, matrix in runs if len(own)])


def rows_with(present: Tensor, index: Tensor) -> Tensor | None:
    """The rows whose term is present, ``(K,)``, if some are not; ``None`` if all are, or if that is not known."""
    if not can_look(index):
        return None
    found = present.index_select(0, index)
    return None if bool(found.all()) else found.nonzero().squeeze(-1)
