r"""The network as it is asked when rows are drawn: one column after another, for many rows at once.

What a column says to the first layer of a later one depends on its token alone, so these sums are tables, made once.
Rows that begin alike get the same logits, so the network is asked once for all rows with the same tokens so far,
as long as these are few.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from multiplexnet.synthesis.leaves import Leaves
from multiplexnet.synthesis.network import Network

__all__ = ["Beginnings", "PreparedNetwork"]

LARGEST_TABLE = 1 << 24
"""Numbers in the tables of one network, at most; beyond that embeddings are multiplied anew."""
FEW = 0.5
"""Rows are grouped by how they begin as long as there are fewer groups than this share of them."""


class PreparedNetwork:
    """A network with what does not depend on rows computed ahead.

    Args:
        network: in the state that it will be asked in.
        leaves: the trees of each column that has some; empty: no column has.
    """

    @torch.no_grad()
    def __init__(self, network: Network, leaves: Sequence[Leaves | None] = ()) -> None:
        self._network = network
        self._leaves = leaves or [None] * len(network.counts)
        starts = [network.rows(j).start for j in range(len(network.counts))]
        self._starts = torch.tensor(starts)
        self._embeddings = network.embeddings
        self._heads = network.heads
        size = network.embedding.num_embeddings * len(network.counts)
        self._tables: list[Tensor] | None = None
        if size * network.shape.width <= LARGEST_TABLE:
            self._tables = [self._table(j) for j in range(len(network.counts))]
        self._inner = [
            [(bend[j, 0], weights[j]) for weights, bend in network.residual]
            for j in range(len(network.counts))
        ]

    def _table(self, j: int) -> Tensor:
        """What each token before column j adds to its first layer; the start goes with the first column."""
        network = self._network
        own = slice(j * network.shape.width, (j + 1) * network.shape.width)
        weights = torch.split(network.first.of(j), network.shape.embedding)
        parts = []
        for i in range(j):
            rows = self._embeddings[network.rows(i)]
            parts.append(rows @ weights[i])
        if not parts:
            return network.start[own].unsqueeze(0).contiguous()
        parts[0] = parts[0] + network.start[own]
        return torch.cat(parts)

    def logits(self, j: int, places: Tensor) -> Tensor:
        """The logits of column j, ``(B, T)``.

        Args:
            j: the column.
            places: ``(B, j)``, the rows of the embedding of the tokens before it.
        """
        logits = self._of_network(j, places)
        leaves = self._leaves[j]
        if leaves is None:
            return logits
        return leaves.mixed(logits, places - self._starts[:j])

    def _of_network(self, j: int, places: Tensor) -> Tensor:
        hidden = self._first(j, places)
        for bend, weights in self._inner[j]:
            hidden = hidden + torch.addmm(bend, _bent(hidden), weights)
        weights, shift = self._heads[j]
        return torch.addmm(shift, _bent(hidden), weights)

    def _first(self, j: int, places: Tensor) -> Tensor:
        if self._tables is None:
            return self._network.first_layer(j, places, self._embeddings)
        if not j:
            return self._tables[0].expand(len(places), -1)
        return embedding_bag(places, self._tables[j], mode="sum")


def _bent(hidden: Tensor) -> Tensor:
    return torch.nn.functional.gelu(
        torch.nn.functional.layer_norm(hidden, hidden.shape[-1:])
    )


class Beginnings:
    """The tokens of a batch of rows so far, and which rows begin alike.

    Args:
        network: whose embedding the tokens have rows in.
        rows: how many rows.
    """

    def __init__(self, network: Network, rows: int) -> None:
        self._network = network
        self.places = torch.zeros(rows, len(network.counts), dtype=torch.int64)
        self.group: Tensor | None = torch.zeros(rows, dtype=torch.int64)
        self._first = torch.zeros(1, dtype=torch.int64)

    def logits(self, prepared: PreparedNetwork, j: int) -> Tensor:
        """The logits of column j: of every group, or of every row if there are no groups any more."""
        places = self.places[:, :j]
        if self.group is not None:
            places = places[self._first]
        return prepared.logits(j, places.contiguous())

    def at(self, rows: Tensor) -> Beginnings:
        """Some of the rows."""
        found = Beginnings(self._network, len(rows))
        found.places = self.places[rows]
        if self.group is None:
            found.group = None
        else:
            found._grouped(self.group[rows])
        return found

    def take(self, j: int, tokens: Tensor) -> None:
        """Column j has these tokens, ``(B,)``; −1 for values between them."""
        count = self._network.counts[j]
        own = torch.where(tokens < 0, count, tokens)
        self.places[:, j] = own + self._network.rows(j).start
        if self.group is None:
            return
        self._grouped(self.group * (count + 1) + own)

    def _grouped(self, labels: Tensor) -> None:
        """Rows with the same label begin alike."""
        found, self.group = torch.unique(labels, return_inverse=True)
        if len(found) > FEW * len(labels):
            self.group = None
            return
        self._first = torch.empty(len(found), dtype=torch.int64)
        self._first[self.group.flip(0)] = torch.arange(len(labels) - 1, -1, -1)
