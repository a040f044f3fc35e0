"""Where the columns of x come from when several tables compute them.

Term k takes column j from *piece* ``piece[k, j]``, there from the row of its part and from column ``slot[k, j]``. The
pieces are laid side by side and one gather with precomputed positions puts every column in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from multiplexnet.transforms.base import rows_of
from multiplexnet.transforms.chosen import reordered
from multiplexnet.transforms.tables import Tabled

__all__ = ["Assembly"]


class Assembly(Tabled):
    """The positions of all K × D values among the values of the pieces.

    Args:
        piece: ``(K, D)``, the number of the piece.
        row: ``(K, D)``, the row in the table of the piece.
        slot: ``(K, D)``, the column in the table of the piece.
        shapes: of the table of each piece, (rows, columns).

    Example: two terms, the first takes column 1 from piece 1.
        >>> piece, row = torch.tensor([[0, 1], [0, 0]]), torch.tensor([[0, 0], [1, 1]])
        >>> assembly = Assembly(piece, row, torch.tensor([[0, 0], [0, 1]]), [(2, 2), (1, 1)])
        >>> assembly([torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0]])])
        tensor([[1., 5.],
                [3., 4.]])
    """

    piece: Tensor
    row: Tensor
    slot: Tensor
    all_terms: Tensor
    one_term: Tensor
    is_order: bool = False

    def __init__(
        self,
        piece: Tensor,
        row: Tensor,
        slot: Tensor,
        shapes: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__()
        rows, columns = torch.tensor(shapes, device=piece.device).unbind(-1)
        sizes = rows * columns
        start = sizes.cumsum(0) - sizes
        offset = columns.cumsum(0) - columns
        position = start[piece] + row * columns[piece] + slot
        tables = {
            "piece": piece,
            "row": row,
            "slot": slot,
            "all_terms": position.flatten(),
            "one_term": offset[piece] + slot,
        }
        self.hold(tables)
        self.count = len(shapes)
        # If one piece already has every value in its place, there is nothing to do.
        natural = torch.arange(len(self.all_terms), device=piece.device)
        self.in_place = len(shapes) == 1 and torch.equal(self.all_terms, natural)
        if len(piece) == 1 and int(sizes.sum()) == len(natural):
            self.is_order = torch.equal(self.all_terms.sort().values, natural)

    def forward(self, pieces: Sequence[Tensor], index: Tensor | None = None) -> Tensor:
        """The pieces, ``(*batch, rows, columns)`` or with index ``(*batch, columns)``, as x.

        Pieces at the end may be missing; the columns they hold then carry an arbitrary value.
        """
        if self.in_place:
            return pieces[0]
        if index is None:
            flat = torch.cat([piece.flatten(-2) for piece in pieces], -1)
            x = self._picked(flat, len(pieces))
            return x.reshape(*flat.shape[:-1], *self.piece.shape)
        flat = torch.cat(list(pieces), -1)
        positions = self._present(self.one_term, len(pieces), flat)
        return flat.gather(-1, rows_of(positions, index))

    def _picked(self, flat: Tensor, pieces: int) -> Tensor:
        """The values of all terms; where each is read once the gradient is picked out as well."""
        if self.is_order and pieces == self.count and flat.requires_grad:
            return reordered(flat, self.all_terms, self.all_terms.argsort(), -1)
        return flat.index_select(-1, self._present(self.all_terms, pieces, flat))

    def _present(self, positions: Tensor, pieces: int, flat: Tensor) -> Tensor:
        """The positions; those in pieces that are missing point to an arbitrary value."""
        if pieces == self.count:
            return positions
        return positions.clamp(max=flat.shape[-1] - 1)

    def slice(
        self,
        start: int,
        stop: int,
        first: Sequence[int],
        shapes: Sequence[tuple[int, int]],
    ) -> Assembly:
        """The assembly of terms ``start`` to ``stop``.

        Args:
            start: the first term.
            stop: the term after the last.
            first: the rows that each piece loses in front.
            shapes: what is left of the pieces; those without rows fall away.
        """
        old = self.piece[start:stop]
        kept = torch.tensor([rows > 0 for rows, _ in shapes], device=old.device)
        row = self.row[start:stop] - torch.tensor(first, device=old.device)[old]
        new = (kept.cumsum(0) - 1)[old]
        return Assembly(
            new, row, self.slot[start:stop], [shape for shape in shapes if shape[0]]
        )
