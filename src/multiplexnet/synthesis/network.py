r"""The network: for every column the logits of its tokens, given the tokens of the columns before it.

All columns are computed side by side. Column j sees the embeddings of the columns before it (:class:`Triangle`), two
residual layers, and a head. Logits of a column whose values have an order are

    log(share of the token) + Σ_r c_r cos(π r · rank) + a free part,

where the cosines make neighbours alike: what is learned of one value is learned of those around it. Embeddings of such
columns are made of cosines and a free part, too: a column with hundreds of values says nearly the same to later columns
by neighbouring ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, pad

from multiplexnet.synthesis.columns.tokens import Tokens
from multiplexnet.synthesis.triangle import Triangle

__all__ = ["Network", "Shape"]

FREE = 0.1
"""How large the free part of an embedding begins, beside the smooth one."""
MOST_TOKENS = 1_000_000
"""Tokens of all columns of a model,"""
MOST_WEIGHTS = 1 << 28
"""and weights, about: a file that tells of more is not read."""


@dataclass(frozen=True)
class Shape:
    """How large a network is.

    Args:
        embedding: numbers for a token.
        width: of the layers, for every column.
        layers: residual ones.
        waves: cosines of the smooth part.
        dropout: share of hidden numbers that are left out in training.
    """

    embedding: int = 16
    width: int = 64
    layers: int = 2
    waves: int = 24
    dropout: float = 0.5

    def is_too_large(self, columns: int, tokens: int) -> bool:
        """Whether a network over so many columns and tokens is larger than those that are read from files."""
        weights = columns**2 * self.embedding * self.width + tokens * self.width
        return tokens > MOST_TOKENS or weights > MOST_WEIGHTS


class Network(nn.Module):
    """Logits of all tokens of all columns.

    Args:
        tokens: of every column, in the order of computing.
        ordered: for every column whether its values have an order (labels have none).
        shape: how large.
    """

    shares: Tensor
    waves: Tensor

    def __init__(
        self, tokens: Sequence[Tokens], ordered: Sequence[bool], shape: Shape
    ) -> None:
        super().__init__()
        self.shape = shape
        self.counts = [len(own) for own in tokens]
        count = len(tokens)
        total = sum(self.counts)
        self.embedding = _embedding(self.counts, ordered, shape.embedding)
        self.lift = nn.Parameter(torch.randn(count, shape.waves, shape.embedding) / 2)
        self.first = Triangle(count, shape.embedding, shape.width)
        self.start = nn.Parameter(torch.zeros(count * shape.width))
        self.inner = nn.ParameterList(
            _weights(count, shape.width, shape.width, fan=shape.width)
            for _ in range(shape.layers)
        )
        self.bends = nn.ParameterList(
            nn.Parameter(torch.zeros(count, 1, shape.width))
            for _ in range(shape.layers)
        )
        self.smooth = nn.Parameter(torch.zeros(count, shape.width + 1, shape.waves))
        self.free = nn.Parameter(torch.zeros(total, shape.width + 1))
        shares = torch.cat([torch.from_numpy(own.log_share).float() for own in tokens])
        self.register_buffer("shares", shares, persistent=False)
        waves = [
            _waves(own, is_ordered, shape.waves)
            for own, is_ordered in zip(tokens, ordered, strict=True)
        ]
        self.register_buffer("waves", torch.cat(waves, -1), persistent=False)
        starts = [0]
        for own in self.counts:
            starts.append(starts[-1] + own)
        self.starts = starts

    @property
    def embeddings(self) -> Tensor:
        """For every token, and «between» after those of its column, what later columns see of it."""
        lifts = self.lift.unbind(0)
        smooth = [
            pad(waves.t() @ lift, (0, 0, 0, 1))
            for waves, lift in zip(self._waves, lifts, strict=True)
        ]
        return self.embedding.weight + torch.cat(smooth)

    @property
    def _waves(self) -> tuple[Tensor, ...]:
        """``(R, T_j)`` for every column."""
        return torch.split(self.waves, self.counts, -1)

    def places(self, tokens: Tensor) -> Tensor:
        """Tokens ``(B, D)``, −1 for values between them, as rows of the embedding."""
        offsets = torch.tensor([s + j for j, s in enumerate(self.starts[:-1])])
        between = torch.tensor(self.counts)
        return torch.where(tokens < 0, between, tokens) + offsets

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """For every column the logits ``(B, T_j)`` of its tokens, given tokens ``(B, D)`` of the columns before it."""
        seen = embedding(self.places(tokens), self.embeddings).flatten(-2)
        hidden = self.first(seen, self.start)
        count = len(self.counts)
        hidden = hidden.reshape(-1, count, self.shape.width).transpose(0, 1)
        hidden = self._layers(hidden)
        return [
            torch.addmm(shift, own, weights)
            for own, (weights, shift) in zip(hidden.unbind(0), self.heads, strict=True)
        ]

    def rows(self, j: int) -> range:
        """The rows of the embedding that belong to column j: its tokens, then «between»."""
        start = self.starts[j] + j
        return range(start, start + self.counts[j] + 1)

    def first_layer(self, j: int, places: Tensor, embeddings: Tensor) -> Tensor:
        """What column j sees ``(B, width)`` of the rows ``(B, j)`` of the embeddings before it."""
        own = slice(j * self.shape.width, (j + 1) * self.shape.width)
        if not j:
            return self.start[own].expand(len(places), -1)
        seen = embedding(places, embeddings).flatten(-2)
        return torch.addmm(self.start[own], seen, self.first.of(j))

    @property
    def residual(self) -> list[tuple[Tensor, Tensor]]:
        """Weights ``(D, width, width)`` and shifts ``(D, 1, width)`` of the layers."""
        return list(zip(self.inner, self.bends, strict=True))

    @property
    def heads(self) -> list[tuple[Tensor, Tensor]]:
        """Weights ``(width, T)`` and shifts ``(T,)`` that make logits of every column.

        Parameters are split at once: a slice of its own for every column would cost a gradient of all of them each.
        """
        found = []
        free = torch.split(self.free, self.counts)
        shares = torch.split(self.shares, self.counts)
        waves = self._waves
        for j, smooth in enumerate(self.smooth.unbind(0)):
            both = smooth @ waves[j] + free[j].t()
            weights, last = torch.split(both, [self.shape.width, 1])
            found.append((weights, shares[j] + last[0]))
        return found

    def _layers(self, hidden: Tensor) -> Tensor:
        for weights, bend in self.residual:
            inside = gelu(layer_norm(hidden, hidden.shape[-1:]))
            if self.training and self.shape.dropout:
                inside = inside * _dropped(inside, self.shape.dropout)
            hidden = hidden + torch.baddbmm(bend, inside, weights)
        return gelu(layer_norm(hidden, hidden.shape[-1:]))


def _embedding(
    counts: Sequence[int], ordered: Sequence[bool], size: int
) -> nn.Embedding:
    """The free part, small at first for values with an order: neighbours begin alike. One more for «between»."""
    found = nn.Embedding(sum(counts) + len(counts), size)
    sizes = [FREE if is_ordered else 1.0 for is_ordered in ordered]
    repeats = torch.tensor([count + 1 for count in counts])
    scale = torch.repeat_interleave(torch.tensor(sizes), repeats)
    found.weight.data *= scale.unsqueeze(-1)
    return found


def _dropped(like: Tensor, share: float) -> Tensor:
    """Factors that leave out a share of numbers, in steps of 1/256: eight at a time, as drawing takes long."""
    kept = 256 - round(256 * share)
    words = torch.empty(-(-like.numel() // 8), dtype=torch.int64).random_(
        -(2**63), None
    )
    drawn = words.view(torch.uint8)[: like.numel()].view(like.shape)
    return (drawn < kept).to(like.dtype) * (256 / max(kept, 1))


def _weights(*size: int, fan: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size) / fan**0.5)


def _waves(tokens: Tokens, is_ordered: bool, count: int) -> Tensor:
    """``cos(π r · rank)``, ``(R, T)``, scaled down where they swing fast; zeros for labels."""
    if not is_ordered:
        return torch.zeros(count, len(tokens))
    ranks = torch.from_numpy(tokens.ranks)
    orders = torch.arange(1, count + 1, dtype=torch.float64).unsqueeze(-1)
    return (torch.cos(pi * orders * ranks) / orders.sqrt()).float()
