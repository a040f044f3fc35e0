"""All terms of a block as one map: the simplest transform for each part, parts of a kind in one table.

Boxes of all terms are one :class:`Separable` table. Every other part belongs to a *group*: parts of one kind and
similar size, at most one per term, computed together. What they compute is put in its place by one gather with
positions known beforehand::

    raw (*batch, D)                     →  x (*batch, K, D)      all terms read the same raw values
    raw (*batch, K, D), per_term=True   →  x (*batch, K, D)      every term has its own
    raw (*batch, D), index (*batch,)    →  x (*batch, D)         the chosen term alone; the cost does not grow with K
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from multiplexnet.geometry.parts import Box, Part, Polyhedron
from multiplexnet.logic.formula import Variable
from multiplexnet.transforms.assembly import Assembly
from multiplexnet.transforms.base import Transform
from multiplexnet.transforms.gauge import Gauge
from multiplexnet.transforms.separable import Separable

__all__ = ["Group", "TermMaps", "groups_of"]

T = TypeVar("T")
Places = Sequence[Sequence[int]]
Boxes = Callable[[Sequence[Box], torch.dtype], Transform]


class Group(nn.Module):
    """Parts of one kind, at most one per term, and where they stand.

    Args:
        transform: the maps, one row per part.
        terms: the terms of the parts, ascending.
        columns: for each part the positions of its outputs among all D; a shorter part repeats its first one, which
            has no effect.
        count: the number K of terms of the block.
    """

    columns: Tensor
    members: Tensor
    entry: Tensor
    present: Tensor

    def __init__(
        self, transform: Transform, terms: Sequence[int], columns: Sequence[Sequence[int]], count: int
    ) -> None:
        super().__init__()
        self.transform, self.numbers = transform, list(terms)
        width = max(map(len, columns))
        padded = [[*row, *[row[0]] * (width - len(row))] for row in columns]
        self.shared = all(row == padded[0] for row in padded)
        self.natural = padded[0] == list(range(width))
        members = torch.tensor(self.numbers)
        entry, present = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.bool)
        entry[members], present[members] = torch.arange(len(members)), True
        tables = {"columns": torch.tensor(padded), "members": members, "entry": entry, "present": present}
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    @property
    def width(self) -> int:
        return self.columns.shape[-1]

    def slice(self, start: int, stop: int) -> tuple[Self, int]:
        """The group for terms ``start`` to ``stop`` alone, and the number of its parts before them."""
        first, last = bisect_left(self.numbers, start), bisect_left(self.numbers, stop)
        part = copy.copy(self)
        part._modules = {"transform": self.transform.terms(first, last)}
        part.numbers = [number - start for number in self.numbers[first:last]]
        part._buffers = {
            "columns": self.columns[first:last],
            "members": self.members[first:last] - start,
            "entry": (self.entry[start:stop] - first).clamp(min=0),
            "present": self.present[start:stop],
        }
        return part, first

    def pick(self, values: Tensor, index: Tensor | None, *, per_term: bool) -> Tensor:
        """The columns of the group: ``(*batch, 1 or T, n)`` for all terms, ``(*batch, n)`` for chosen ones."""
        if per_term:
            return values[..., self.members.unsqueeze(-1), self.columns]
        if self.shared:
            whole = self.natural and self.width == values.shape[-1]
            own = values if whole else values.index_select(-1, self.columns[0])
            return own if index is not None else own.unsqueeze(-2)
        return values[..., self.columns] if index is None else values.gather(-1, self.columns[self.entry[index]])

    def spread(self, per_part: Tensor, index: Tensor | None) -> Tensor:
        """A number per part, ``(*batch, T)`` or ``(*batch,)``, as one per term; 0 for terms without a part."""
        if index is None:
            return torch.where(self.present, per_part.index_select(-1, self.entry), 0.0)
        return torch.where(self.present[index], per_part, 0.0)


def groups_of(terms: Sequence[Sequence[Part]]) -> Iterator[list[tuple[int, Part]]]:
    """Parts other than boxes as (term, part), in groups of one kind and similar size with at most one per term."""
    groups: dict[tuple[object, ...], list[tuple[int, Part]]] = defaultdict(list)
    for number, parts in enumerate(terms):
        seen: dict[tuple[object, ...], int] = defaultdict(int)
        for part in parts:
            if not isinstance(part, Box):
                key = (type(part).__name__, len(part.outputs).bit_length(), len(part.A).bit_length())
                groups[(*key, seen[key])].append((number, part))
                seen[key] += 1
    yield from groups.values()


def transform_of(parts: Sequence[Part], dtype: torch.dtype) -> Transform:
    """The transform of parts of one kind."""
    if isinstance(parts[0], Polyhedron):
        return Gauge([part for part in parts if isinstance(part, Polyhedron)], dtype)
    raise NotImplementedError(type(parts[0]).__name__)


def _boxes(terms: Sequence[Sequence[Part]], outputs: Sequence[Variable]) -> tuple[list[int], list[Box]]:
    """The columns that are boxed in some term, and one box over them per term (0 where a term couples a column)."""
    ends = [
        {v: (a, b) for p in parts if isinstance(p, Box) for v, a, b in zip(p.outputs, p.lower, p.upper, strict=True)}
        for parts in terms
    ]
    coupled = [{v for p in parts if not isinstance(p, Box) for v in p.outputs} for parts in terms]
    columns = [j for j, v in enumerate(outputs) if not all(v in own for own in coupled)]
    kept = [outputs[j] for j in columns]
    boxes = []
    for own, others in zip(ends, coupled, strict=True):
        pairs = [own.get(v, (0, 0) if v in others else (None, None)) for v in kept]
        boxes.append(Box(tuple(kept), tuple(a for a, _ in pairs), tuple(b for _, b in pairs)))  # type: ignore[misc]
    return columns, boxes


class TermMaps(nn.Module):
    """The maps h_1 … h_K of the terms of a block, into its D outputs.

    In training NaN in raw comes out as NaN; in ``eval()`` it is read as 0, which every transform sends well inside.

    Args:
        terms: the parts of each term. Outputs that no part of a term mentions are free in it.
        outputs: the outputs of the block; they fix the columns of raw and x.
        dtype: of the values that come out.
        boxes: the transform of boxes, :class:`Separable` or :class:`PaperSeparable`.

    Example:
        >>> from fractions import Fraction
        >>> x = Variable("x", 0)
        >>> above, below = Box((x,), (Fraction(2),), (None,)), Box((x,), (None,), (Fraction(-2),))
        >>> maps = TermMaps([[above], [below]], [x], torch.float32)
        >>> maps(torch.tensor([-1e30])).tolist()
        [[2.0], [-1.0000000150474662e+30]]
        >>> maps(torch.tensor([[-1e30]]), torch.tensor([0])).tolist()
        [[2.0]]
    """

    boxed: Tensor

    def __init__(
        self,
        terms: Sequence[Sequence[Part]],
        outputs: Sequence[Variable],
        dtype: torch.dtype,
        *,
        boxes: Boxes = Separable,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        columns, own = _boxes(terms, outputs)
        self.separable = boxes(own, dtype) if columns else None
        self.register_buffer("boxed", torch.tensor(columns, dtype=torch.int64), persistent=False)
        self.all_boxed = columns == list(range(len(outputs)))
        members = list(groups_of(terms))
        position = {variable: j for j, variable in enumerate(outputs)}
        where = [[[position[v] for v in part.outputs] for _, part in group] for group in members]
        self.groups = nn.ModuleList(
            Group(transform_of([part for _, part in group], dtype), [k for k, _ in group], place, len(terms))
            for group, place in zip(members, where, strict=True)
        )
        self.assembly = Assembly(*_places(members, where, columns, len(terms), len(outputs)), self._shapes(len(terms)))

    def _shapes(self, count: int) -> list[tuple[int, int]]:
        """Rows and columns of the pieces: the boxes first (if any column is boxed), then the groups."""
        boxes = [(count, len(self.boxed))] if self.separable is not None else []
        return boxes + [(len(group.transform), group.width) for group in self._groups]

    @property
    def _groups(self) -> list[Group]:
        return list(self.groups)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """The number K of terms."""
        return len(self.assembly.piece)

    def terms(self, start: int, stop: int) -> Self:
        """The maps of terms ``start`` to ``stop`` alone; they share the memory of this one."""
        part = copy.copy(self)
        part._modules = dict(self._modules)
        sliced = [group.slice(start, stop) for group in self._groups]
        part.groups = nn.ModuleList(group for group, _ in sliced)
        if self.separable is not None:
            part.separable = self.separable.terms(start, stop)
        first = [start] * (self.separable is not None) + [before for _, before in sliced]
        part.assembly = self.assembly.slice(start, stop, first, part._shapes(stop - start))
        part.groups = nn.ModuleList(group for group, _ in sliced if group.numbers)
        return part

    def forward(self, raw: Tensor, index: Tensor | None = None, *, per_term: bool = False) -> Tensor:
        """``x = h_k(raw)`` for all terms or the chosen ones; shapes as above."""
        pieces = self._pieces(lambda transform: transform.forward, self._read(raw), index, per_term)
        x: Tensor = self.assembly(pieces, index)
        return x

    def inverse(self, x: Tensor, index: Tensor | None = None, *, per_term: bool = False) -> Tensor:
        """Raw values that the terms map to ``x``, of the shapes of ``forward``."""
        raw: Tensor = self.assembly(self._pieces(lambda transform: transform.inverse, x, index, per_term), index)
        return raw

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, *, per_term: bool = False
    ) -> tuple[Tensor, Tensor]:
        """``x`` and ``log |det ∂x/∂raw|``, ``(*batch, K)`` or ``(*batch,)``; constants do not count."""
        pairs = self._pieces(lambda transform: transform.forward_and_log_det, self._read(raw), index, per_term)
        log_dets = [log_det for _, log_det in pairs]
        boxes = len(pairs) - len(self.groups)
        total = sum(log_dets[:boxes], torch.zeros((), device=raw.device))
        for group, log_det in zip(self._groups, log_dets[boxes:], strict=True):
            total = total + group.spread(log_det, index)
        return self.assembly([x for x, _ in pairs], index), total

    def _read(self, raw: Tensor) -> Tensor:
        return raw if self.training else torch.nan_to_num(raw, nan=0.0, posinf=torch.inf, neginf=-torch.inf)

    def _pieces(
        self, method: Callable[[Transform], Callable[..., T]], values: Tensor, index: Tensor | None, per_term: bool
    ) -> list[T]:
        pieces = []
        if self.separable is not None:
            own = values if self.all_boxed else values.index_select(-1, self.boxed)
            pieces.append(method(self.separable)(own if index is not None or per_term else own.unsqueeze(-2), index))
        for group in self._groups:
            chosen = None if index is None else group.entry[index]
            pieces.append(method(group.transform)(group.pick(values, index, per_term=per_term), chosen))
        return pieces


def _places(
    members: Sequence[Sequence[tuple[int, Part]]],
    where: Sequence[Places],
    columns: Sequence[int],
    count: int,
    width: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Piece, row and slot of every column of every term; see :class:`Assembly`."""
    piece = np.zeros((count, width), dtype=np.int64)
    row = np.repeat(np.arange(count)[:, None], width, axis=1)
    slot = np.zeros_like(piece)
    slot[:, columns] = np.arange(len(columns))
    for number, (group, places) in enumerate(zip(members, where, strict=True), start=1 if columns else 0):
        for i, ((term, _), place) in enumerate(zip(group, places, strict=True)):
            piece[term, place], row[term, place], slot[term, place] = number, i, np.arange(len(place))
    return torch.from_numpy(piece), torch.from_numpy(row), torch.from_numpy(slot)
