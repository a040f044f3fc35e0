"""The layout of a layer: which blocks it has, and where each finds its values, its logits and its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from multiplexnet.compiler.terms import Block, Term, with_inner
from multiplexnet.language.formula import Variable
from multiplexnet.layer.construction.blueprint import Blueprint

__all__ = ["Layout"]

Link = tuple[int, int]
"""A term, by its number in its block, and the number of a block that it goes on in."""


@dataclass(frozen=True)
class Layout:
    """Where blocks and cascades stand.

    Args:
        outer: the blocks that do not lie inside a term.
        blocks: these, then the inner ones.
        links: for every block those to its inner blocks.
        columns: for every block, then for every cascade, the positions of its outputs.
        sizes: for every block how many terms it has.
        logits: for every block how many logits choose among them.
        in_values: how many raw values there are.
        in_order: whether a single block or cascade computes all outputs in their order.
    """

    outer: tuple[Block, ...]
    blocks: tuple[Block, ...]
    links: tuple[tuple[Link, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    logits: tuple[int, ...]
    in_values: int
    in_order: bool

    @staticmethod
    def of(blueprint: Blueprint) -> Layout:
        compiled = blueprint.compiled
        outer = _joined([block for block in compiled.blocks if block.outputs])
        blocks = with_inner(outer)
        computed = [block.outputs for block in blocks]
        computed += [cascade.visible for cascade in blueprint.cascades]
        position = {variable: j for j, variable in enumerate(compiled.outputs)}
        columns = tuple(tuple(position[v] for v in own) for own in computed)
        in_values = len(compiled.outputs)
        if blueprint.settings.per_term:
            in_values = sum(len(block.terms) * len(block.outputs) for block in blocks)
        return Layout(
            outer=tuple(outer),
            blocks=tuple(blocks),
            links=_links(blocks),
            columns=columns,
            sizes=tuple(len(block.terms) for block in blocks),
            logits=tuple(map(_logits, blocks)),
            in_values=in_values,
            in_order=columns == (tuple(range(len(compiled.outputs))),),
        )

    @property
    def side_by_side(self) -> bool:
        """Whether blocks and cascades, one after another, compute all outputs in their order."""
        every = [column for own in self.columns for column in own]
        return every == list(range(len(every)))

    @property
    def is_nested(self) -> bool:
        """Whether some terms go on in inner blocks."""
        return any(self.links)

    def tables(self, dtype: torch.dtype, *, counted: bool) -> dict[str, Tensor | None]:
        """What a layer looks up when it is called.

        Args:
            dtype: of the layer.
            counted: whether logits of 0 mean all plain terms alike.
        """
        columns = [torch.tensor(own, dtype=torch.int64) for own in self.columns]
        visible = torch.cat([*columns[: len(self.outer)], *columns[len(self.blocks) :]])
        return {
            "order": visible.argsort(),
            "visible": visible,
            **{f"columns_{b}": own for b, own in enumerate(columns)},
            **self._places(columns),
            **self._offsets(dtype, counted and self.is_nested),
        }

    def _places(self, columns: Sequence[Tensor]) -> dict[str, Tensor]:
        """Where the outputs of inner blocks stand among those of the block around them, for every link."""
        return {  # found here, since ONNX does not know how to search
            f"places_{b}_{i}": torch.searchsorted(columns[b], columns[child])
            for b, links in enumerate(self.links)
            for i, (_, child) in enumerate(links)
        }

    def _offsets(self, dtype: torch.dtype, counted: bool) -> dict[str, Tensor | None]:
        """What is added to the logits of decomposed rules, so that logits of 0 mean all plain terms alike.

        «At most 3 of 30» branches thirty times. With both branches alike the first outputs would be drawn half the
        time and the last ones never; the log of the number of plain terms below a branch makes up for that. Layers
        that were saved before this was counted have none.
        """
        offsets: dict[str, Tensor | None] = {}
        for b, block in enumerate(self.blocks):
            offsets[f"offset_{b}"] = None
            if counted and self.logits[b]:
                counts = [log(term.count) for term in block.terms]
                most = max(counts)
                offsets[f"offset_{b}"] = torch.tensor(
                    [count - most for count in counts], dtype=dtype
                )
        return offsets


def _logits(block: Block) -> int:
    """How many logits choose among the terms of a block.

    A block without outputs is a condition on inputs: it holds or not, and there is nothing to choose.
    """
    if block.outputs and len(block.terms) > 1:
        return len(block.terms)
    return 0


def _links(blocks: Sequence[Block]) -> tuple[tuple[Link, ...], ...]:
    number = {id(block): b for b, block in enumerate(blocks)}
    return tuple(
        tuple(
            (k, number[id(inner)])
            for k, term in enumerate(block.terms)
            for inner in term.blocks
        )
        for block in blocks
    )


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, those that are a single box as one block: they cost one map together instead of one each."""
    boxes = [
        block for block in blocks if len(block.terms) == 1 and _is_box(block.terms[0])
    ]
    if len(boxes) < 2:
        return list(blocks)
    outputs = sorted(
        (v for block in boxes for v in block.outputs), key=lambda v: v.index
    )
    terms = [block.terms[0] for block in boxes]
    rows = (row for term in terms for row in term.rows)
    fixed = (pair for term in terms for pair in term.fixed)
    joined = Block(tuple(outputs), (Term(tuple(rows), tuple(fixed)),))
    others = [block for block in blocks if block not in boxes]
    return sorted([joined, *others], key=lambda block: block.outputs[0].index)


def _is_box(term: Term) -> bool:
    """Whether every row bounds one output, by a number or by inputs."""
    symbols = [[symbol for symbol, _ in row.linear.summands] for row in term.rows]
    others = [
        [s for s in row if not (isinstance(s, Variable) and s.is_input)]
        for row in symbols
    ]
    return not term.blocks and all(
        len(s) == 1 and isinstance(s[0], Variable) for s in others
    )
