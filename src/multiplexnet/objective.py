"""The marginal objective of the paper: the choice of the term is summed out, exactly.

Eq. 9: L = Σ_k q(k) [ℓ_k − log p(k) + log q(k)], an upper bound on −log Σ_k p(k) e^{−ℓ_k}. The losses ℓ_k of a chunk of
terms are computed, and computed again when the gradient is taken, so that no ``(*batch, K, D)`` tensor ever exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from multiplexnet.errors import ShapeError

if TYPE_CHECKING:
    from multiplexnet.branches import Branches

__all__ = ["Prior", "marginal_loss"]

Prior = Tensor | None

CHUNK = 1 << 19
"""How many values of x are held at once."""


def marginal_loss(branches: Branches, f: Callable[[Tensor], Tensor], prior: Prior = None) -> Tensor:
    """Σ_k q(k) [f(x_k) − log p(k) + log q(k)] for every row; see :meth:`Branches.loss`."""
    log_q = branches.log_probs
    log_p = _log_prior(prior, log_q)
    surplus = term_losses(branches, f) - log_p + log_q
    # A term that cannot be met has q = 0; what it would have cost must not matter, were it infinite.
    return torch.where(log_q.isneginf(), 0.0, log_q.exp() * surplus).sum(-1)


def _log_prior(prior: Prior, log_q: Tensor) -> Tensor:
    """log p(k) over the terms that can be met."""
    if prior is None:
        prior = torch.zeros(log_q.shape[-1], dtype=log_q.dtype, device=log_q.device)
    if prior.shape[-1:] != log_q.shape[-1:]:
        raise ShapeError(
            f"prior has shape {tuple(prior.shape)}; its last dimension must be the {log_q.shape[-1]} terms"
        )
    return torch.log_softmax(prior.masked_fill(log_q.isneginf(), -torch.inf), -1)


def term_losses(branches: Branches, f: Callable[[Tensor], Tensor]) -> Tensor:
    """The losses f(x_k) of all terms, ``(*batch, K)``, a chunk of terms at a time."""
    count = branches.size
    width = sum(choice.columns.numel() for choice in branches.choices) * max(1, branches.batch.numel())
    step = max(1, CHUNK // max(1, width))
    if step >= count:
        return _checked(f(branches.terms(0, count)), branches, count)

    def chunk(start: int, stop: int) -> Tensor:
        return _checked(f(branches.terms(start, stop)), branches, stop - start)

    bounds = [(start, min(start + step, count)) for start in range(0, count, step)]
    return torch.cat([_again(chunk, *bound) for bound in bounds], -1)


def _again(chunk: Callable[[int, int], Tensor], start: int, stop: int) -> Tensor:
    losses = checkpoint(chunk, start, stop, use_reentrant=False)
    if not isinstance(losses, Tensor):
        raise TypeError("a loss is a tensor")
    return losses


def _checked(losses: Tensor, branches: Branches, count: int) -> Tensor:
    expected = (*branches.batch, count)
    if tuple(losses.shape) != expected:
        raise ShapeError(
            f"the loss of {count} terms has shape {tuple(losses.shape)}, not {expected}: it must keep batch and terms "
            "and sum over the outputs, as (x - y.unsqueeze(-2)).square().sum(-1) does"
        )
    return losses
