r"""What rows that are alike have in a column: a tree whose leaves count tokens, mixed with the network.

A network is smooth, and columns that are functions of others are not: the logarithm of an area, a flag that says
whether another column is zero, the longest of a few lengths. A tree finds the few rows that earlier columns send the
same way, and what those have is near to what a new row has. Few rows say little by themselves, so the network speaks
for further ones: α rows anywhere, and β rows in the range R of tokens that the leaf has. With counts c_t of the n rows
of a leaf, and the network's p_t, token t has the probability

    (c_t + α p_t + β p_t [t ∈ R] / p(R)) / (n + α + β).

Rows that were kept apart choose α and β for every column; a column where the tree does not help has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiplexnet.synthesis.columns.tokens import Tokens
from multiplexnet.synthesis.growing import Branches, grown

__all__ = ["LeafCounts", "Leaves", "Worth", "codes_of", "leaves_of"]

MOST_CELLS = 1 << 26
"""Rows times columns squared that trees are grown from, at most: it takes some seconds then."""
WAVES = 4
"""Cosines of the rank that the rows of a leaf are alike in."""
LEAST = 1e-30
"""The probability of a leaf's range is taken for this if it is less."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LeafCounts:
    """The tokens that rows have in each leaf, leaf after leaf.

    Args:
        starts: ``(L + 1,)``, where each leaf begins.
        tokens: ascending in each leaf.
        counts: how many rows of the leaf have the token.
    """

    starts: Counts
    tokens: Counts
    counts: Counts


@dataclass(frozen=True)
class Worth:
    """How many rows the network is worth beside those of a leaf.

    Args:
        anywhere: α.
        nearby: β, in the range of the leaf.
    """

    anywhere: float
    nearby: float = 0.0


@dataclass(frozen=True)
class _Spread:
    """The leaves of a batch of rows, as what they add to tokens.

    Args:
        place: where in the flat ``(B, T)`` each of them adds something.
        counts: how many rows it adds.
        size: rows of the leaf, ``(B, 1)``.
        inside: the tokens in the range of the leaf, ``(B, T)``.
    """

    place: Tensor
    counts: Tensor
    size: Tensor
    inside: Tensor


@dataclass(frozen=True)
class Leaves:
    """The tree of one column.

    Args:
        branches: that lead from the codes of earlier columns to a leaf.
        found: what is in the leaves.
        worth: of the network.
    """

    branches: Branches
    found: LeafCounts
    worth: Worth

    def mixed(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Logits ``(B, T)`` of leaves and network together.

        Args:
            logits: of the network.
            codes: ``(B, j)``, of earlier columns.
        """
        log_p = torch.log_softmax(logits, -1)
        spread = self._spread(codes, logits.shape[-1])
        factor = torch.full_like(log_p[:, :1], self.worth.anywhere)
        mixed = log_p + factor.log()
        if self.worth.nearby:
            more = factor + self.worth.nearby / _mass(log_p, spread.inside)
            mixed = torch.where(spread.inside, log_p + more.log(), mixed)
        flat = mixed.view(-1)
        flat[spread.place] = torch.logaddexp(flat[spread.place], spread.counts.log())
        return mixed

    def parts(self, logits: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(3, B, T)`` of leaf, network, and network nearby; rows of each leaf ``(B,)``."""
        log_p = torch.log_softmax(logits, -1)
        spread = self._spread(codes, logits.shape[-1])
        leaf = torch.zeros_like(log_p)
        leaf.view(-1)[spread.place] = spread.counts
        nearby = log_p - _mass(log_p, spread.inside).log()
        nearby = torch.where(spread.inside, nearby, -torch.inf)
        parts = torch.stack([(leaf / spread.size).log(), log_p, nearby])
        return parts, spread.size.squeeze(-1)

    def leaf(self, codes: Tensor) -> Tensor:
        """The leaf of each row, ``(B,)``, by the codes ``(B, j)`` of its earlier columns."""
        asked, most, below = self._steps
        node = torch.zeros(len(codes), dtype=torch.int64)
        for _ in range(self._depth):
            code = codes.gather(1, asked[node].unsqueeze(-1)).squeeze(-1)
            node = below[node + len(asked) * (code > most[node])]
        return self._leaf[node]

    def _spread(self, codes: Tensor, count: int) -> _Spread:
        starts, tokens, counts, sizes = self._entries
        leaf = self.leaf(codes)
        first = starts[leaf]
        last = starts[leaf + 1] - 1
        many = last - first + 1
        rows = torch.repeat_interleave(torch.arange(len(leaf)), many)
        before = many.cumsum(0) - many
        entry = torch.arange(len(rows)) + (first - before)[rows]
        every = torch.arange(count)
        low = tokens[first].unsqueeze(-1)
        high = tokens[last].unsqueeze(-1)
        return _Spread(
            rows * count + tokens[entry],
            counts[entry],
            sizes[leaf].unsqueeze(-1),
            (low <= every) & (every <= high),
        )

    # --- as tensors -------------------------------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> tuple[Tensor, Tensor, Tensor]:
        branches = self.branches
        below = np.concatenate([branches.first, branches.second])
        return (
            torch.from_numpy(branches.asked),
            torch.from_numpy(branches.most),
            torch.from_numpy(below),
        )

    @cached_property
    def _depth(self) -> int:
        return self.branches.depth

    @cached_property
    def _leaf(self) -> Tensor:
        return torch.from_numpy(self.branches.leaf)

    @cached_property
    def _entries(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = self.found
        sizes = np.add.reduceat(found.counts, found.starts[:-1])
        return (
            torch.from_numpy(found.starts),
            torch.from_numpy(found.tokens),
            torch.from_numpy(found.counts).float(),
            torch.from_numpy(sizes).float(),
        )


def _mass(log_p: Tensor, inside: Tensor) -> Tensor:
    return (log_p.exp() * inside).sum(-1, keepdim=True).clamp(min=LEAST)


def codes_of(tokens: Tensor, counts: Sequence[int]) -> Tensor:
    """Tokens ``(B, D)`` as trees see them: −1, for values between tokens, is one beyond the last."""
    return torch.where(tokens < 0, torch.tensor(counts), tokens)


def leaves_of(
    tokens: Sequence[Tokens], ordered: Sequence[bool], found: Tensor, rows: int
) -> list[Leaves | None]:
    """A tree for every column that has earlier ones and more than one token.

    Args:
        tokens: of every column, in the order of computing.
        ordered: for every column whether its values have an order.
        found: the tokens ``(N, D)`` of rows in any order; of very many only the first ones are used.
        rows: that a leaf has at least.
    """
    used = found[: max(1, MOST_CELLS // len(tokens) ** 2)]
    codes = codes_of(used, [len(own) for own in tokens]).numpy()
    leaves: list[Leaves | None] = []
    for j, own in enumerate(tokens):
        inside = codes[:, j] < len(own)
        if not j or len(own) == 1 or inside.sum() < 2 * rows:
            leaves.append(None)
            continue
        answers = codes[inside, j]
        targets = _waves(own, answers) if ordered[j] else answers
        branches, leaf = grown(codes[inside, :j], targets, rows)
        leaves.append(Leaves(branches, _counted(leaf, answers, len(own)), Worth(1.0)))
    return leaves


def _waves(tokens: Tokens, answers: Counts) -> NDArray[np.float64]:
    """What rows of a leaf should have in common: slow waves of the rank, which say more than its mean."""
    orders = np.arange(1, WAVES + 1)
    ranks = tokens.ranks[answers]
    return np.asarray(np.cos(np.pi * np.outer(ranks, orders)) / np.sqrt(orders))


def _counted(leaf: Counts, tokens: Counts, count: int) -> LeafCounts:
    """How often each token is in each leaf."""
    pairs, counts = np.unique(leaf * count + tokens, return_counts=True)
    starts = np.searchsorted(pairs, count * np.arange(leaf.max() + 2))
    return LeafCounts(starts, pairs % count, counts)
