r"""Exact probabilities of whole numbers under logits of tokens and what the rules leave.

Without rules a value k of token t has the weight

    w(k) = (1 − ε) · p_t / |t| + ε / |range|,

p_t the softmax of the logits. With rules the same weights are taken over the values that are left, and divided by their
sum: ``Z = (1 − ε) Σ_t p_t |t ∩ left| / |t| + ε |left| / |range|``, which is never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.synthesis.allowed import Intervals
from multiplexnet.synthesis.tokens import ANYWHERE, Tokens

__all__ = ["Chances"]


@dataclass(frozen=True)
class Chances:
    """The tokens of one column as tensors.

    Args:
        lower: ``(T,)``, float64.
        upper: ``(T,)``.
        size: ``(T,)``, how many whole numbers each holds.
        least: of the range.
        most: of the range.
    """

    lower: Tensor
    upper: Tensor
    size: Tensor
    least: float
    most: float

    @staticmethod
    def of(tokens: Tokens) -> Chances:
        lower = torch.from_numpy(tokens.lower).double()
        upper = torch.from_numpy(tokens.upper).double()
        return Chances(lower, upper, upper - lower + 1, float(tokens.least), float(tokens.most))

    @property
    def width(self) -> float:
        """How many whole numbers the range holds."""
        return self.most - self.least + 1

    def log_prob(self, logits: Tensor, tokens: Tensor, left: Intervals | None) -> Tensor:
        """The log-probability of values with these tokens (−1: between them), ``(B,)``.

        Args:
            logits: ``(B, T)``.
            tokens: ``(B,)``.
            left: what the rules leave; ``None``: everything. The values are among it.
        """
        log_p = torch.log_softmax(logits, -1)
        share = log_p.gather(-1, tokens.clamp(min=0).unsqueeze(-1)).squeeze(-1).exp()
        own = self.size[tokens.clamp(min=0)].to(share.dtype)
        weight = torch.where(tokens < 0, torch.zeros_like(share), share / own)
        weight = (1 - ANYWHERE) * weight + ANYWHERE / self.width
        if left is None:
            return weight.log()
        return weight.log() - self.mass(log_p, left).log()

    def mass(self, log_p: Tensor, left: Intervals) -> Tensor:
        """The probability of what is left, ``(B,)``, under log-probabilities ``(B, T)`` of the tokens."""
        part = left.overlaps(self.lower, self.upper).sum(0) / self.size
        free = (left.upper - left.lower + 1).clamp(min=0).sum(0) / self.width
        total = (1 - ANYWHERE) * (log_p.exp() * part.to(log_p.dtype)).sum(-1)
        return total + ANYWHERE * free.to(log_p.dtype)

    def draw(self, logits: Tensor, left: Intervals, uniform: Tensor) -> Tensor:
        """Values drawn by their probabilities, ``(B,)``, float64 whole numbers.

        Args:
            logits: ``(B, T)``.
            left: what the rules leave, not empty in any row.
            uniform: ``(2, B)``, between 0 and 1: one for the token and the interval, one for the value.
        """
        part = left.overlaps(self.lower, self.upper)  # (O, B, T)
        free = (left.upper - left.lower + 1).clamp(min=0).unsqueeze(-1)  # (O, B, 1)
        chance = torch.softmax(logits.double(), -1) * ((1 - ANYWHERE) / self.size)
        weights = torch.cat([part * chance, free * (ANYWHERE / self.width)], -1)
        count = weights.shape[-1]
        flat = weights.transpose(0, 1).flatten(1)  # (B, O * (T + 1))
        chosen = _chosen(flat, uniform[0])
        interval, token = chosen // count, chosen % count
        bottom = torch.cat([self.lower, self.lower.new_tensor([self.least])])[token]
        top = torch.cat([self.upper, self.upper.new_tensor([self.most])])[token]
        here = interval.unsqueeze(0)
        low = torch.maximum(left.lower.gather(0, here).squeeze(0), bottom)
        high = torch.minimum(left.upper.gather(0, here).squeeze(0), top)
        value = low + torch.floor((high - low + 1) * uniform[1])
        return torch.minimum(value, high)


def _chosen(weights: Tensor, uniform: Tensor) -> Tensor:
    """The place whose share of the sum of weights ``(B, N)`` holds ``uniform``; one with a positive weight."""
    sums = weights.cumsum(-1)
    target = (uniform * sums[:, -1]).unsqueeze(-1)
    place = torch.searchsorted(sums, target, right=True).squeeze(-1)
    last = _last_positive(weights)
    return torch.minimum(place, last)


def _last_positive(weights: Tensor) -> Tensor:
    """The last place with a positive weight, where rounding would step over the end."""
    count = weights.shape[-1]
    backwards = (weights > 0).flip(-1).to(torch.int8).argmax(-1)
    return count - 1 - backwards
