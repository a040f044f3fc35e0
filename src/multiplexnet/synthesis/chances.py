r"""Exact probabilities of whole numbers under logits of tokens and what the rules leave.

Without rules a value k of token t has the weight

    w(k) = (1 − ε) · p_t / |t| + ε / |range|,

p_t the softmax of the logits. With rules the same weights are taken over the values that are left, and divided by their
sum: ``Z = (1 − ε) Σ_t p_t |t ∩ left| / |t| + ε |left| / |range|``, which is never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.synthesis.allowed import LeftIntervals
from multiplexnet.synthesis.columns.tokens import Tokens

__all__ = ["Chances", "ColumnChances", "Sums", "Weights"]

LEAST = 1e-9
"""Below this the probability of what is left is not a difference of sums any more."""


@dataclass(frozen=True)
class Chances:
    """The tokens of one column as tensors.

    Args:
        lower: ``(T,)``, float64.
        upper: ``(T,)``.
        size: ``(T,)``, how many whole numbers each holds.
        least: of the range.
        most: of the range.
        anywhere: the probability of the token that is the whole range.
    """

    lower: Tensor
    upper: Tensor
    size: Tensor
    least: float
    most: float
    anywhere: float

    @staticmethod
    def of(tokens: Tokens) -> Chances:
        lower = torch.from_numpy(tokens.lower).double()
        upper = torch.from_numpy(tokens.upper).double()
        return Chances(
            lower,
            upper,
            upper - lower + 1,
            float(tokens.least),
            float(tokens.most),
            tokens.anywhere,
        )

    @property
    def width(self) -> float:
        """How many whole numbers the range holds."""
        return self.most - self.least + 1

    def log_prob(
        self, logits: Tensor, tokens: Tensor, left: LeftIntervals | None
    ) -> Tensor:
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
        weight = (1 - self.anywhere) * weight + self.anywhere / self.width
        if left is None:
            return weight.log()
        return weight.log() - self.mass(log_p, left).log()

    def mass(self, log_p: Tensor, left: LeftIntervals) -> Tensor:
        """The probability of what is left, ``(B,)``, under log-probabilities ``(B, T)`` of the tokens."""
        part = left.overlaps(self.lower, self.upper).sum(0) / self.size
        free = left.counts.sum(0) / self.width
        total = (1 - self.anywhere) * (log_p.exp() * part.to(log_p.dtype)).sum(-1)
        return total + self.anywhere * free.to(log_p.dtype)

    def tokens(self, values: Tensor) -> Tensor:
        """The token of each value ``(B,)``; −1 where it lies between tokens."""
        place = torch.searchsorted(self.upper, values).clamp(max=len(self.upper) - 1)
        inside = (self.lower[place] <= values) & (values <= self.upper[place])
        return torch.where(inside, place, -1)

    def kept(self, sums: Sums, left: LeftIntervals) -> ColumnChances:
        """The probabilities of what is left, interval by interval."""
        counts = left.counts
        bottom = self._below(sums, left.lower)
        mass = (self._below(sums, left.upper + 1) - bottom).clamp(min=0)
        mass = torch.where(counts > 0, mass, 0.0)
        free = self.anywhere / self.width * counts.sum(0)
        ends = mass.cumsum(0)
        total = (1 - self.anywhere) * ends[-1] + free
        return ColumnChances(left, bottom, mass, ends, free, total)

    def log_mass(self, sums: Sums, left: LeftIntervals) -> Tensor:
        """The logarithm of the probability of what is left, ``(B,)``."""
        kept = self.kept(sums, left)
        found = kept.total.expand(sums.rows).log()
        rare = (kept.ends[-1] < LEAST).expand(sums.rows).nonzero().squeeze(-1)
        if len(rare):  # sums would cancel here
            found = found.clone()
            log_p = torch.log_softmax(sums.logits_of(rare).double(), -1)
            found[rare] = self.mass(log_p, left.at(rare)).log()
        return found

    def draw(self, sums: Sums, left: LeftIntervals | None, uniform: Tensor) -> Tensor:
        """Values drawn by their probabilities, ``(B,)``, float64 whole numbers.

        Args:
            sums: of the probabilities of the tokens.
            left: what the rules leave, not empty in any row; ``None``: everything.
            uniform: ``(2, B)``, between 0 and 1: one for the token and the interval, one for the value.
        """
        if left is None:
            return self._anything(sums, uniform)
        return self._among(sums, self.kept(sums, left), uniform)

    def _anything(self, sums: Sums, uniform: Tensor) -> Tensor:
        anywhere = uniform[0] < self.anywhere
        share = (uniform[0] - self.anywhere).clamp(min=0) / (1 - self.anywhere)
        token = sums.token(share * sums.total)
        low = torch.where(anywhere, self.least, self.lower[token])
        high = torch.where(anywhere, self.most, self.upper[token])
        return _between(low, high, uniform[1])

    def _among(self, sums: Sums, kept: ColumnChances, uniform: Tensor) -> Tensor:
        target = (uniform[0] * kept.total - kept.free) / (1 - self.anywhere)
        interval = _first_above(kept.ends, target)
        rest = target - _at(kept.ends, interval) + _at(kept.mass, interval)
        token = sums.token(_at(kept.bottom, interval) + rest)
        low, high = _cut(
            _at(kept.left.lower, interval),
            _at(kept.left.upper, interval),
            self.lower[token],
            self.upper[token],
        )
        found = _between(low, high, uniform[1])
        rare = ((target < 0) | (kept.ends[-1] < LEAST)).nonzero().squeeze(-1)
        if len(rare):  # sums would cancel here
            logits = sums.logits_of(rare)
            left = kept.left.at(rare)
            found[rare] = self.draw_exactly(logits, left, uniform[:, rare])
        return found

    def _below(self, sums: Sums, values: Tensor) -> Tensor:
        """The probability of everything below values ``(O, B)``, or ``(O, 1)`` that all rows share."""
        token = torch.searchsorted(self.upper, values).clamp(max=len(self.upper) - 1)
        size = self.size[token]
        part = torch.minimum((values - self.lower[token]).clamp(min=0), size) / size
        before = sums.before(token)
        return before + part * (sums.before(token + 1) - before)

    def draw_exactly(
        self, logits: Tensor, left: LeftIntervals, uniform: Tensor
    ) -> Tensor:
        """As :meth:`draw`, with the weight of every token in every interval: slower, for weights of any size."""
        part = left.overlaps(self.lower, self.upper)  # (O, B, T)
        part = part.expand(-1, len(logits), -1)
        free = left.counts.expand(-1, len(logits)).unsqueeze(-1)  # (O, B, 1)
        each = (1 - self.anywhere) / self.size
        chance = torch.softmax(logits.double(), -1) * each
        anywhere = free * (self.anywhere / self.width)
        weights = torch.cat([anywhere, part * chance], -1)
        count = weights.shape[-1]
        flat = weights.permute(1, 2, 0).flatten(1)  # (B, (1 + T) * O), anywhere first
        chosen = _chosen(flat, uniform[0])
        token = chosen // len(left.lower)
        interval = chosen % len(left.lower)
        least = self.lower.new_tensor([self.least])
        most = self.upper.new_tensor([self.most])
        bottom = torch.cat([least, self.lower])[token]
        top = torch.cat([most, self.upper])[token]
        assert count == len(self.lower) + 1
        low = torch.maximum(_at(left.lower, interval), bottom)
        high = torch.minimum(_at(left.upper, interval), top)
        return _between(low, high, uniform[1])


@dataclass(frozen=True)
class Weights:
    """What turns the probability of a token into that of one of its values, for all columns at once.

    Args:
        shares: of a value in its token, all tokens of all columns; times the probability that it is no other token.
        starts: ``(D,)``, where the tokens of each column begin.
        anywhere: ``(D,)``, the probability of a value by the token that is the whole range.
    """

    shares: Tensor
    starts: Tensor
    anywhere: Tensor

    @staticmethod
    def of_columns(columns: Sequence[Chances]) -> Weights:
        counts = torch.tensor([len(own.size) for own in columns])
        shares = [(1 - own.anywhere) / own.size for own in columns]
        anywhere = [own.anywhere / own.width for own in columns]
        return Weights(
            torch.cat(shares).float(),
            counts.cumsum(0) - counts,
            torch.tensor(anywhere, dtype=torch.float32),
        )

    def of(self, nats: Tensor, tokens: Tensor) -> Tensor:
        """The probability of values with these tokens (−1: between them), ``(B, D)``, if all values are left.

        Args:
            nats: the negative log-probability of each token.
            tokens: ``(B, D)``.
        """
        share = self.shares[self.starts + tokens.clamp(min=0)]
        weight = torch.where(tokens < 0, 0.0, share * (-nats).exp())
        return weight + self.anywhere


@dataclass(frozen=True)
class ColumnChances:
    """What is left of a column, with its probabilities.

    Args:
        left: the intervals.
        bottom: the probability of everything below each, ``(O, B)``.
        mass: that of each, ``(O, B)``.
        ends: these added up.
        free: that of all by the token that is the whole range, ``(B,)``.
        total: of all that is left, ``(B,)``.
    """

    left: LeftIntervals
    bottom: Tensor
    mass: Tensor
    ends: Tensor
    free: Tensor
    total: Tensor


@dataclass(frozen=True)
class Sums:
    """Probabilities of tokens, added up: of every row, or of every group of rows.

    Args:
        logits: ``(G, T)``.
        sums: ``(G, T + 1)``, float64, from 0 on.
        group: the group of each row ``(B,)``; ``None``: each row has its own.
    """

    logits: Tensor
    sums: Tensor
    group: Tensor | None

    @staticmethod
    def of(logits: Tensor, group: Tensor | None = None) -> Sums:
        """From logits ``(G, T)``."""
        sums = torch.zeros(len(logits), logits.shape[-1] + 1, dtype=torch.float64)
        chance = torch.softmax(logits, -1)
        torch.cumsum(chance, -1, dtype=torch.float64, out=sums[:, 1:])
        return Sums(logits, sums, group)

    @property
    def rows(self) -> int:
        return len(self.sums) if self.group is None else len(self.group)

    def logits_of(self, rows: Tensor) -> Tensor:
        """``(b, T)``, of some rows."""
        return self.logits[rows if self.group is None else self.group[rows]]

    @property
    def total(self) -> Tensor:
        """``(B,)``; 1 but for rounding."""
        whole = self.sums[:, -1]
        return whole if self.group is None else whole[self.group]

    def before(self, token: Tensor) -> Tensor:
        """The probability of the tokens before these, ``(O, B)``, or ``(O, 1)`` that all rows share."""
        if self.group is None and token.shape[1] == 1:
            return self.sums[:, token[:, 0]].t()
        if self.group is None:
            return self.sums.gather(1, token.t()).t()
        return self.sums.view(-1)[self.group * self.sums.shape[-1] + token]

    def token(self, target: Tensor) -> Tensor:
        """The token whose share of the sum holds the target, ``(B,)``."""
        count = self.sums.shape[-1]
        if self.group is None:
            place = torch.searchsorted(self.sums, target.unsqueeze(-1), right=True)
            return (place.squeeze(-1) - 1).clamp(0, count - 2)
        start = 2.0 * torch.arange(len(self.sums), dtype=torch.float64).unsqueeze(-1)
        flat = (self.sums + start).flatten()  # groups one above the other
        place = torch.searchsorted(flat, target + 2.0 * self.group, right=True)
        return (place - 1 - self.group * count).clamp(0, count - 2)


def _at(numbers: Tensor, interval: Tensor) -> Tensor:
    """Of numbers ``(O, B)`` those of one interval in each row."""
    if numbers.shape[1] == 1:
        return numbers[:, 0][interval]
    return numbers.gather(0, interval.unsqueeze(0)).squeeze(0)


def _first_above(ends: Tensor, target: Tensor) -> Tensor:
    """The first interval whose end ``(O, B)`` is above the target, or the last that adds something."""
    place = (ends <= target).sum(0)
    last = (ends < ends[-1]).sum(0)
    return torch.minimum(place, last)


def _cut(
    low: Tensor, high: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """What a token and an interval have in common; the interval where that is nothing."""
    bottom = torch.maximum(low, lower)
    top = torch.minimum(high, upper)
    meets = bottom <= top
    return torch.where(meets, bottom, low), torch.where(meets, top, high)


def _between(low: Tensor, high: Tensor, uniform: Tensor) -> Tensor:
    count = high - low + 1
    steps = torch.floor(count * uniform)
    return torch.minimum(low + steps, high)


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
