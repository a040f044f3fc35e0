"""Blocks of one shape, stacked: thirty small blocks cost one call of a map instead of one each.

The terms of all blocks of a stack are the terms of one map, over outputs that stand for those of every block in turn.
Raw values ``(*batch, S, D_b)`` of S blocks have a place among the terms each: blocks of a single term take all of them,
and of others those that their logits choose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from multiplexnet.geometry.parts import Box, Parametric, Part
from multiplexnet.layer.construction.blocks import BuiltBlock
from multiplexnet.layer.construction.blueprint import Blueprint
from multiplexnet.layer.construction.layout import Layout
from multiplexnet.transforms.chosen import largest_place
from multiplexnet.transforms.tables import Tabled
from multiplexnet.transforms.term_maps import TermMaps

if TYPE_CHECKING:
    from multiplexnet.layer.branches import Choice

__all__ = ["Stacked", "Stacks", "stacks_of"]

FEWEST = 4
"""So many blocks of one shape make a stack."""


class Stack(Tabled):
    """Blocks of one shape.

    Args:
        maps: the maps of all their terms, block by block.
        count: the number S of blocks.
        columns: the positions of their outputs, block by block.
        logits: the positions of their logits, block by block; none if each has a single term.
    """

    columns: Tensor
    logits: Tensor
    first: Tensor

    def __init__(
        self,
        maps: TermMaps,
        count: int,
        columns: Sequence[int],
        logits: Sequence[int],
    ) -> None:
        super().__init__()
        self.maps = maps
        self.count = count
        tables = {
            "columns": torch.tensor(columns, dtype=torch.int64),
            "logits": torch.tensor(logits, dtype=torch.int64),
            "first": torch.arange(0, len(maps), len(maps) // count),
        }
        self.hold(tables)

    def best(self, values: Tensor, logits: Tensor) -> Tensor:
        """The values of the most probable terms, ``(*batch, S D_b)``, block by block."""
        own = self._blocks(values, self.columns)
        if len(self.maps) == self.count:
            x = self.maps(own, per_term=True)
        else:
            given = self._blocks(logits, self.logits)
            x = self.maps(own, largest_place(given) + self.first)
        flat: Tensor = x.flatten(-2)
        return flat

    def _blocks(self, values: Tensor, places: Tensor) -> Tensor:
        width = len(places) // self.count
        picked = values.index_select(-1, places)
        return picked.reshape(*picked.shape[:-1], self.count, width)


class Stacks(Tabled):
    """All blocks of a layer, some of them in stacks.

    Args:
        each: the stacks.
        alone: the numbers of the other blocks.
        columns: the positions of all outputs, those of the stacks first.
    """

    order: Tensor

    def __init__(
        self, each: Sequence[Stack], alone: Sequence[int], columns: Sequence[int]
    ) -> None:
        super().__init__()
        self.each = nn.ModuleList(each)
        self.alone = tuple(alone)
        order = torch.tensor(columns, dtype=torch.int64).argsort()
        self.hold({"order": order})
        self.in_order = list(columns) == sorted(columns)

    def best(self, values: Tensor, logits: Tensor, blocks: Sequence[Choice]) -> Tensor:
        """The values of the most probable terms of all blocks, ``(*batch, D)``."""
        parts = [stack.best(values, logits) for stack in self.each]  # type: ignore[operator]
        parts += [blocks[b].best() for b in self.alone]
        x = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return x if self.in_order else x.index_select(-1, self.order)


class Stacked(NamedTuple):
    """The stacks of a layer, and the raw values and logits that it was called with."""

    stacks: Stacks
    values: Tensor
    logits: Tensor

    def best(self, blocks: Sequence[Choice]) -> Tensor:
        """The values of the most probable terms of all blocks, ``(*batch, D)``."""
        return self.stacks.best(self.values, self.logits, blocks)


def stacks_of(
    built: Sequence[BuiltBlock], layout: Layout, blueprint: Blueprint
) -> Stacks | None:
    """The stacks of a layer, if it has blocks of one shape and nothing but blocks, known before it is called."""
    compiled = blueprint.compiled
    if compiled.inputs or blueprint.cascades or layout.is_nested:
        return None
    if blueprint.settings.per_term:
        return None
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for b, own in enumerate(built):
        alike[_shape(own, b)].append(b)
    numbers = [own for own in alike.values() if len(own) >= FEWEST]
    if not numbers:
        return None
    each = [_stack(own, built, layout, blueprint) for own in numbers]
    together = [b for own in numbers for b in own]
    alone = [b for b in range(len(built)) if b not in together]
    columns = [j for b in (*together, *alone) for j in layout.columns[b]]
    return Stacks(each, alone, columns)


def _shape(own: BuiltBlock, number: int) -> Hashable:
    """What blocks of a stack have in common; the number of a block that no stack takes."""
    place = {variable: j for j, variable in enumerate(own.block.outputs)}
    terms = []
    for parts, _ in own.terms:
        if any(isinstance(part, Parametric) for part in parts):
            return number
        where = [tuple(place[v] for v in part.outputs) for part in parts]
        terms.append(tuple(zip(map(_kind, parts), where, strict=True)))
    return len(place), tuple(terms)


def _kind(part: Part) -> Hashable:
    if isinstance(part, Box):
        return "Box"
    return type(part).__name__, len(part.A).bit_length(), len(part.cones)


def _stack(
    numbers: Sequence[int],
    built: Sequence[BuiltBlock],
    layout: Layout,
    blueprint: Blueprint,
) -> Stack:
    outputs = built[numbers[0]].block.outputs
    terms: list[list[Part]] = []
    for b in numbers:
        names = dict(zip(built[b].block.outputs, outputs, strict=True))
        for parts, _ in built[b].terms:
            terms.append(
                [
                    replace(part, outputs=tuple(names[v] for v in part.outputs))
                    for part in parts
                ]
            )
    maps = TermMaps(
        terms,
        outputs,
        blueprint.dtype,
        boxes=blueprint.settings.boxes,
        precision=blueprint.settings.precision,
    )
    columns = [j for b in numbers for j in layout.columns[b]]
    return Stack(maps, len(numbers), columns, list(_logits(numbers, layout)))


def _logits(numbers: Sequence[int], layout: Layout) -> Iterable[int]:
    """The positions of the logits of these blocks."""
    for b in numbers:
        first = sum(layout.logits[:b])
        yield from range(first, first + layout.logits[b])
