"""The marginal objective of the paper: the choice of the term is summed out, exactly.

Eq. 9: L = Σ_k q(k) [ℓ_k − log p(k) + log q(k)], an upper bound on −log Σ_k p(k) e^{−ℓ_k}. The losses ℓ_k of a chunk of
terms are computed, and computed again when the gradient is taken, so that no ``(*batch, K, D)`` tensor ever exists. The
sum itself knows its gradient: with a_k = ℓ_k − log p(k) + log q(k) it is ∂L/∂ℓ_k = q(k), ∂L/∂log p(k) = −q(k) and
∂L/∂logit_k = q(k) (a_k − L).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from multiplexnet.errors import ShapeError

if TYPE_CHECKING:
    from multiplexnet.branches import Branches

__all__ = ["Prior", "marginal_loss"]

Prior = Tensor | None

CHUNK = 1 << 18
"""How many values of x are held at once."""


def marginal_loss(branches: Branches, f: Callable[[Tensor], Tensor], prior: Prior = None) -> Tensor:
    """Σ_k q(k) [f(x_k) − log p(k) + log q(k)] for every row; see :meth:`Branches.loss`."""
    logits = branches.logits
    log_p = _log_prior(prior, logits, branches.masked)
    losses = term_losses(branches, f)
    result: Tensor = _Marginal.apply(losses, logits, log_p)  # type: ignore[no-untyped-call]
    return result


class _Marginal(torch.autograd.Function):
    """``Σ_k q(k) a_k`` over the last axis; it keeps its arguments and nothing else. log p may have fewer axes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(losses: Tensor, logits: Tensor, log_p: Tensor) -> Tensor:
        q, a = _parts(losses, logits, log_p)
        return (q * a).sum(-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        losses, logits, log_p = ctx.saved_tensors
        q, a = _parts(losses, logits, log_p)
        total = (q * a).sum(-1, keepdim=True)
        weight = q * grads[0].unsqueeze(-1)
        del q  # every (*batch, K) tensor counts
        surplus = weight * (a - total)
        return weight, surplus, -weight.sum_to_size(log_p.shape) if ctx.needs_input_grad[2] else None


def _parts(losses: Tensor, logits: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """q and a. Where q is 0 (a term that cannot be met, say) a is 0: nothing it would have cost must matter."""
    log_q = torch.log_softmax(logits, -1)
    q = log_q.exp()
    return q, (losses - log_p + log_q).masked_fill(q == 0, 0.0)


def _log_prior(prior: Prior, logits: Tensor, masked: bool) -> Tensor:
    """log p(k) over the terms that can be met, of a shape that broadcasts to ``(*batch, K)``."""
    count = logits.shape[-1]
    if prior is None:
        possible = (~logits.isneginf()).sum(-1, keepdim=True) if masked else logits.new_tensor([count])
        return -possible.clamp(min=1).to(logits.dtype).log()
    if prior.shape[-1:] != (count,) or not _broadcasts(prior.shape, logits.shape):
        raise ShapeError(
            f"prior has shape {tuple(prior.shape)}; it must be the logits of the {count} terms, ({count},) or "
            f"{tuple(logits.shape)}"
        )
    return torch.log_softmax(prior.masked_fill(logits.isneginf(), -torch.inf) if masked else prior, -1)


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    short = len(shape) <= len(to)
    return short and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


def term_losses(branches: Branches, f: Callable[[Tensor], Tensor]) -> Tensor:
    """The losses f(x_k) of all terms, ``(*batch, K)``, a chunk of terms at a time."""
    count = branches.size
    width = sum(choice.columns.numel() for choice in branches.choices) * max(1, branches.batch.numel())
    step = max(1, CHUNK // max(1, width))
    if step >= count:
        return _checked(f(branches.terms(0, count)), branches, count)

    if len(branches.choices) > 1:
        for choice in branches.choices:
            choice.x  # noqa: B018  (kept from here on: combinations only pick from it)

    def chunk(start: int, stop: int) -> Tensor:
        return _checked(f(branches.terms(start, stop)), branches, stop - start)

    bounds = [(start, min(start + step, count)) for start in range(0, count, step)]
    return torch.cat([_again(chunk, *bound) if torch.is_grad_enabled() else chunk(*bound) for bound in bounds], -1)


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
