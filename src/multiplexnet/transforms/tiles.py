"""Short rows, many at a time.

torch computes ``values * table``, ``(B, n)`` with ``(n,)``, row by row, and with few columns most of the time goes into
the beginnings of rows. Here rows are taken together, as many as divide the batch, and the table is repeated for them:
the same operations on the same numbers, in a fifth of the time.
"""

from __future__ import annotations

from math import gcd

from torch import Tensor

from multiplexnet.transforms.base import is_for_any_size

__all__ = ["plus", "repeated", "repeated_apart", "rows_for_all", "rows_together"]

MOST_TOGETHER = 128
"""Rows that are taken together."""

FEWEST_ROWS = 2**12
"""Fewer rows than this are not worth it."""

LONG = 64
"""Rows of so many numbers are long enough."""


def rows_together(values: Tensor, table: Tensor) -> int:
    """How many rows of values, ``(*batch, *table.shape)``, are to be taken together; 1: each by itself.

    Example:
        >>> import torch
        >>> rows_together(torch.zeros(4096, 10), torch.zeros(10))
        128
        >>> rows_together(torch.zeros(4099, 10), torch.zeros(10))
        1
    """
    if is_for_any_size():
        return 1
    size = table.numel()
    if not 0 < size < LONG or values.numel() < FEWEST_ROWS * size:
        return 1
    if values.shape[values.dim() - table.dim() :] != table.shape:
        return 1
    return gcd(values.numel() // size, MOST_TOGETHER)


def rows_for_all(values: Tensor, table: Tensor) -> int:
    """How many rows of values, ``(*batch, 1, n)``, are taken together by each row of a table, ``(T, n)``; 1: none.

    Example:
        >>> import torch
        >>> rows_for_all(torch.zeros(4096, 1, 10), torch.zeros(5, 10))
        128
    """
    if is_for_any_size():
        return 1
    if table.dim() != 2 or len(table) == 1 or values.dim() < 2 or values.shape[-2] != 1:
        return 1
    return rows_together(values, table[:1])


def repeated_apart(table: Tensor, rows: int) -> Tensor:
    """Each row of a table ``(T, n)`` for so many rows, ``(T, 1, rows · n)``.

    Example:
        >>> import torch
        >>> repeated_apart(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 2)
        tensor([[[1., 2., 1., 2.]],
        <BLANKLINE>
                [[3., 4., 3., 4.]]])
    """
    many = table.unsqueeze(1).expand(len(table), rows, table.shape[-1])
    return many.reshape(len(table), 1, -1)


def repeated(table: Tensor, rows: int) -> Tensor:
    """The table for so many rows, one after another.

    Example:
        >>> import torch
        >>> repeated(torch.tensor([1.0, 2.0]), 2)
        tensor([1., 2., 1., 2.])
    """
    return table.expand(rows, *table.shape).reshape(-1)


def plus(values: Tensor, table: Tensor) -> Tensor:
    """``values + table``.

    Example:
        >>> import torch
        >>> plus(torch.zeros(2, 2), torch.tensor([1.0, 2.0]))
        tensor([[1., 2.],
                [1., 2.]])
    """
    rows = rows_together(values, table)
    if rows == 1:
        return values + table
    many = repeated(table, rows)
    return (values.reshape(-1, len(many)) + many).view(values.shape)
