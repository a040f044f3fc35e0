r"""What rows that are alike have in a column: trees whose leaves count tokens, mixed with the network.

A network is smooth, and columns that are functions of others are not: the logarithm of an area, a flag that says
whether another column is zero, the longest of a few lengths. A tree finds the few rows that earlier columns send the
same way, and what those have is near to what a new row has. Several trees that ask at random places agree on what
matters, and differ in what is chance. Few rows say little by themselves, so the network speaks for further ones:
α rows anywhere, and β rows in the range R of tokens that the leaves have. With counts c_t of the n rows of a leaf, both
the mean over the trees, and the network's p_t, token t has the probability

    (c_t + α p_t + β p_t [t ∈ R] / p(R)) / (n + α + β).

Rows that were kept apart choose α and β for every column; a column where trees do not help has none.
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
CELLS = 1 << 25
"""This times the number of trees, about,"""
TREES = range(4, 17)
"""which is one of these."""
WAVES = 4
"""Cosines of the rank that the rows of a leaf are alike in."""
LEAST = 1e-30
"""The probability of a range is taken for this if it is less."""

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
    """The leaves of a batch of rows.

    Args:
        counts: how many rows in them have each token, ``(B, T)``: the mean over the trees.
        inside: the tokens in their range, ``(B, T)``.
    """

    counts: Tensor
    inside: Tensor


@dataclass(frozen=True)
class Leaves:
    """The trees of one column.

    Args:
        branches: that lead from the codes of earlier columns to a leaf of each tree.
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
        chance = torch.softmax(logits, -1)
        spread = self._spread(codes, logits.shape[-1])
        if not self.worth.nearby:
            return (spread.counts + self.worth.anywhere * chance).log()
        nearby = self.worth.nearby / _mass(chance, spread.inside)
        factor = spread.inside * nearby + self.worth.anywhere
        return torch.addcmul(spread.counts, factor, chance).log()

    def parts(self, logits: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``(3, B, T)`` of leaf, network, and network nearby; rows of each leaf ``(B,)``."""
        log_p = torch.log_softmax(logits, -1)
        spread = self._spread(codes, logits.shape[-1])
        size = spread.counts.sum(-1, keepdim=True)
        nearby = log_p - _mass(log_p.exp(), spread.inside).log()
        nearby = torch.where(spread.inside, nearby, -torch.inf)
        parts = torch.stack([(spread.counts / size).log(), log_p, nearby])
        return parts, size.squeeze(-1)

    def leaves(self, codes: Tensor) -> Tensor:
        """The leaf of each row in every tree, ``(B, K)``, by the codes ``(B, j)`` of its earlier columns."""
        roots, asked, most, below = self._steps
        node = roots.expand(len(codes), -1)
        for _ in range(self._depth):
            code = codes.gather(1, asked[node])
            node = below[node + len(asked) * (code > most[node])]
        return self._leaf[node]

    def _spread(self, codes: Tensor, count: int) -> _Spread:
        starts, tokens, counts = self._entries
        leaves = self.leaves(codes)
        first = starts[leaves]
        last = starts[leaves + 1] - 1
        trees = leaves.shape[1]
        many = (last - first + 1).flatten()
        place = torch.repeat_interleave(torch.arange(len(many)), many)
        before = many.cumsum(0) - many
        entry = torch.arange(len(place)) + (first.flatten() - before)[place]
        found = torch.zeros(len(codes) * count)
        flat = place // trees * count + tokens[entry]
        found.index_add_(0, flat, counts[entry] / trees)
        every = torch.arange(count)
        low = tokens[first].amin(1, keepdim=True)
        high = tokens[last].amax(1, keepdim=True)
        inside = (low <= every) & (every <= high)
        return _Spread(found.view(-1, count), inside)

    # --- as tensors -------------------------------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        branches = self.branches
        below = np.concatenate([branches.first, branches.second])
        return (
            torch.from_numpy(branches.roots),
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
    def _entries(self) -> tuple[Tensor, Tensor, Tensor]:
        found = self.found
        return (
            torch.from_numpy(found.starts),
            torch.from_numpy(found.tokens),
            torch.from_numpy(found.counts).float(),
        )


def _mass(chance: Tensor, inside: Tensor) -> Tensor:
    return (chance * inside).sum(-1, keepdim=True).clamp(min=LEAST)


def codes_of(tokens: Tensor, counts: Sequence[int]) -> Tensor:
    """Tokens ``(B, D)`` as trees see them: −1, for values between tokens, is one beyond the last."""
    return torch.where(tokens < 0, torch.tensor(counts), tokens)


def leaves_of(
    tokens: Sequence[Tokens], ordered: Sequence[bool], found: Tensor, rows: int
) -> list[Leaves | None]:
    """Trees for every column that has earlier ones and more than one token.

    Args:
        tokens: of every column, in the order of computing.
        ordered: for every column whether its values have an order.
        found: the tokens ``(N, D)`` of rows in any order; of very many only the first ones are used.
        rows: that a leaf has at least.
    """
    used = found[: max(1, MOST_CELLS // len(tokens) ** 2)]
    trees = CELLS // (max(len(used), 1) * len(tokens) ** 2)
    trees = min(max(trees, TREES[0]), TREES[-1])
    codes = codes_of(used, [len(own) for own in tokens]).numpy()
    leaves: list[Leaves | None] = []
    for j, own in enumerate(tokens):
        inside = codes[:, j] < len(own)
        if not j or len(own) == 1 or inside.sum() < 2 * rows:
            leaves.append(None)
            continue
        answers = codes[inside, j]
        targets = _waves(own, answers) if ordered[j] else answers
        branches, found_leaves = grown(codes[inside, :j], targets, rows, trees)
        counted = _counted(found_leaves, answers, len(own))
        leaves.append(Leaves(branches, counted, Worth(1.0)))
    return leaves


def _waves(tokens: Tokens, answers: Counts) -> NDArray[np.float64]:
    """What rows of a leaf should have in common: slow waves of the rank, which say more than its mean."""
    orders = np.arange(1, WAVES + 1)
    ranks = tokens.ranks[answers]
    return np.asarray(np.cos(np.pi * np.outer(ranks, orders)) / np.sqrt(orders))


def _counted(leaves: Counts, tokens: Counts, count: int) -> LeafCounts:
    """How often each token is in each leaf, from the leaves ``(N, K)`` of the rows."""
    own = (leaves * count + tokens[:, None]).flatten()
    pairs, counts = np.unique(own, return_counts=True)
    starts = np.searchsorted(pairs, count * np.arange(leaves.max() + 2))
    return LeafCounts(starts, pairs % count, counts)
