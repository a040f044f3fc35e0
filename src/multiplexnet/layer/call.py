"""One call of a layer: raw features, checked, cut into values and logits, and handed to blocks and cascades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from multiplexnet.errors import DtypeError, ShapeError
from multiplexnet.layer.branches import Choice, Inner
from multiplexnet.layer.checks import refuse_no_tensor, refuse_roomless, refuse_stuck
from multiplexnet.layer.stacks import Stacked
from multiplexnet.transforms.base import DTYPES
from multiplexnet.transforms.cascade.choice import CascadeChoice
from multiplexnet.transforms.chosen import reordered
from multiplexnet.transforms.term_maps import Room

if TYPE_CHECKING:
    from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["Call", "checked_raw"]


@dataclass(frozen=True)
class Call:
    """What a layer was given.

    Args:
        mux: the layer.
        values: the raw values, ``(*batch, V)``.
        logits: those of all blocks and cascades, ``(*batch, L)``; of no meaning if there are none.
        inputs: ``(*batch, I)``; ``None`` if the rules have none.
    """

    mux: Multiplexer
    values: Tensor
    logits: Tensor
    inputs: Tensor | None

    @staticmethod
    def of(mux: Multiplexer, raw: Tensor, inputs: Tensor | None) -> Call:
        """Raw features cut into values and logits."""
        count = mux.layout.in_values
        rest = raw.shape[-1] - count
        if not rest:  # no copy backward
            return Call(mux, raw, raw, inputs)
        if not mux.maps:  # the logits of a cascade seldom get a gradient: less to copy
            return Call(mux, raw[..., :count], raw[..., count:], inputs)
        values, logits = raw.split_with_sizes([count, rest], -1)
        return Call(mux, values, logits, inputs)

    def choices(self) -> tuple[Choice, ...]:
        """The choices of all outer blocks.

        Raises:
            InputError: a row whose inputs leave a block no term.
        """
        nodes = list(self._nodes())
        choices = self._linked(nodes)
        if self.inputs is not None:
            lost = refuse_roomless(
                self.inputs,
                [choice.feasible for choice in choices],
                self.mux.compiled.inputs,
                self.mux.dtype,
            )
            if lost is not None:
                return self._linked([node.without(lost) for node in nodes])
            choices = tuple(choice.with_room() for choice in choices)
        return choices

    def stacked(self) -> Stacked | None:
        """The blocks of one shape together, if there are such."""
        if self.mux.stacks is None:
            return None
        return Stacked(self.mux.stacks, self.values, self.logits)

    def _nodes(self) -> Iterator[Choice]:
        """The choice of every block, inner ones included."""
        mux = self.mux
        layout = mux.layout
        functions = mux.functions
        values = self._values()
        value = 0
        logit = 0
        for b, (maps, size) in enumerate(
            zip(mux.block_term_maps, layout.sizes, strict=True)
        ):
            columns = mux.columns(b)
            if mux.per_term:
                width = columns.numel()
                own = self.values[..., value : value + size * width]
                own = own.reshape(*own.shape[:-1], size, width)
                value += size * width
            elif layout.is_nested:
                own = self.values.index_select(-1, columns)
            else:
                own = values[b]
            mine = self.logits[..., logit : logit + size] if layout.logits[b] else None
            logit += layout.logits[b]
            offset = getattr(mux, f"offset_{b}", None)
            if mine is not None and offset is not None:
                mine = mine + offset
            room = Room(None, {})
            if self.inputs is not None:
                room = maps.room(self.inputs, functions=functions)
            yield Choice(
                maps,
                own,
                mine,
                columns,
                room.feasible,
                self.inputs,
                functions,
                mux.per_term,
                offset=offset,
                frames=room.frames,
                units=None if mux.units is None else mux.units.of(columns),
            )

    def _values(self) -> Sequence[Tensor]:
        """The raw values of every block, then of every cascade, where no two read the same."""
        mux = self.mux
        layout = mux.layout
        if mux.per_term or layout.is_nested or not mux.maps:
            return ()
        if layout.in_order:
            return (self.values,)
        own = self.values
        if not layout.side_by_side:
            own = reordered(own, mux.visible, mux.order, -1)
        return own.split_with_sizes([len(columns) for columns in layout.columns], -1)

    def _linked(self, nodes: Sequence[Choice]) -> tuple[Choice, ...]:
        """The choices of the outer blocks, each with the inner ones of its terms; shared ones stay shared."""
        layout = self.mux.layout
        if not layout.is_nested:
            return tuple(nodes)
        done: dict[int, Choice] = {}

        def linked(b: int) -> Choice:
            if b not in done:
                inner = [
                    Inner(k, linked(child), getattr(self.mux, f"places_{b}_{i}"))
                    for i, (k, child) in enumerate(layout.links[b])
                ]
                done[b] = nodes[b].with_inner(inner)
            return done[b]

        return tuple(linked(b) for b in range(len(layout.outer)))

    def cascades(self) -> Iterator[CascadeChoice]:
        """The parts that are computed one output after another; their logits come last.

        Raises:
            InputError: a row whose inputs leave a cascade no output.
        """
        mux = self.mux
        layout = mux.layout
        logit = sum(layout.logits)
        for columns, maps in mux.cascade_parts():
            own = self.values
            if not layout.in_order:
                own = own.index_select(-1, columns)
            mine = None
            if maps.in_logits:
                mine = self.logits[..., logit : logit + maps.in_logits]
            logit += maps.in_logits
            known = maps.known(self.inputs)
            if known:
                refused = maps.refused(known).reshape(self.values.shape[:-1])
                refuse_stuck(
                    refused, known, maps.cascade, mux.rules.specification, mux.dtype
                )
            yield CascadeChoice(maps, own, mine, columns, self.inputs, known)


def checked_raw(mux: Multiplexer, raw: Tensor) -> Tensor:
    """Raw features in the dtype of the layer.

    Raises:
        ShapeError, DtypeError: what was found and what was expected.
    """
    refuse_no_tensor("raw", raw)
    if raw.dim() == 0 or raw.shape[-1] != mux.in_features:
        raise ShapeError(
            f"raw has shape {tuple(raw.shape)}; its last dimension must be in_features = {mux.in_features} "
            f"({_features_text(mux)})"
        )
    if not raw.is_floating_point():
        raise DtypeError(
            f"raw has dtype {raw.dtype}; a network's output is floating point: {mux.dtype} here"
        )
    mux.check_device("raw", raw)
    if raw.dtype == mux.dtype:
        return raw
    if not torch.is_autocast_enabled(raw.device.type):
        either = (
            f"convert raw, or the layer with mux.to({raw.dtype}), which builds it anew"
        )
        advice = either if raw.dtype in DTYPES else f"convert it, raw.to({mux.dtype})"
        raise DtypeError(
            f"raw has dtype {raw.dtype}, but the guarantee was built for {mux.dtype}: {advice}"
        )
    return raw.to(mux.dtype)


def _features_text(mux: Multiplexer) -> str:
    """Of what raw features consist: ``2 raw values + 2 + 3 logits``."""
    values = f"{mux.layout.in_values} raw values"
    if not mux.logit_sizes:
        return values
    return f"{values} + {' + '.join(map(str, mux.logit_sizes))} logits"
