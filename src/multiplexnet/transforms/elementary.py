"""Elementary functions that give the same bits everywhere.

Libraries differ in the last bits of ``sigmoid`` and ``softplus`` (onnxruntime has no float64 softplus at all). Built in
float64 from exp, log and arithmetic, they differ by some 1e-16, which is gone after rounding to a smaller format.
Differentiated operation by operation they would be 0 · ∞ far out: there torch's own derivatives are put beneath them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.transforms.base import (
    Differentiable,
    by_operations,
    can_overwrite,
    exactly,
    recorded,
)

__all__ = ["inverse_softplus", "portable_sigmoid", "portable_softplus", "softplus"]


def portable_sigmoid(z: Tensor) -> Tensor:
    """``1 / (1 + e^−z)`` for float64."""
    if can_overwrite():  # 1 / x would be a reciprocal, times 1
        return torch.neg(z).exp_().add_(1).reciprocal_()
    value = 1 / (1 + torch.exp(-z))
    return exactly(value, torch.sigmoid(z)) if by_operations() else value


def portable_softplus(z: Tensor) -> Tensor:
    """``log(1 + e^z)`` for float64, as ``max(z, 0) + log1p(t)`` with ``t = e^−|z|``.

    log1p(t) = t · log(w)/(w − 1) with w = 1 + t as rounded (Kahan), and t where w is 1.
    """
    t = torch.exp(-z.abs())
    w = 1 + t
    value = z.relu() + torch.where(w == 1, t, t * (torch.log(w) / (w - 1)))
    if not by_operations():
        return value
    largest = torch.finfo(z.dtype).max
    return exactly(value, F.softplus(z.clamp(-largest, largest)))


class _Softplus(Differentiable):
    """:func:`portable_softplus` with the derivative σ."""

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        return portable_softplus(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return grad[0] * torch.sigmoid(z)


def softplus(z: Tensor) -> Tensor:
    """``log(1 + e^z)`` for float64, the same everywhere, differentiable any number of times.

    Example:
        >>> softplus(torch.tensor([-800.0, 0.0, 800.0], dtype=torch.float64)).tolist()
        [0.0, 0.6931471805599453, 800.0]
    """
    value: Tensor = recorded(_Softplus, z)
    return value


def inverse_softplus(y: Tensor) -> Tensor:
    """``log(e^y − 1)``, written so that it neither overflows nor loses small y."""
    return y + torch.log(-torch.expm1(-y))
