"""A head that sees what is left: the raw values of one output after another, each computed from the outputs before it.

A plain head says all raw values at once, before any output is known. In a cascade the interval of an output depends on
those before it, and a head that is told which values these have, and what is left, can say better what it wants. What
comes out are raw values as from any other head: the layer makes outputs of them that obey.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Step
from multiplexnet.errors import DtypeError, ShapeError
from multiplexnet.layer.checks import refuse_no_tensor
from multiplexnet.transforms.cascade.map import CascadeMap
from multiplexnet.transforms.cascade.walk import Option, Walk

if TYPE_CHECKING:
    from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["Head", "Left", "unrolled"]


@dataclass(frozen=True)
class Left:
    """What is known when an output is to be computed; no gradients pass through it.

    Args:
        x: the outputs, ``(*batch, D)``, 0 where they are still to come.
        lower: the least value that is left for this output, ``(*batch,)``.
        upper: the largest.
        possible: which of its options there are, ``(*batch, K)``.
    """

    x: Tensor
    lower: Tensor
    upper: Tensor
    possible: Tensor


Head = Callable[[int, Tensor, Left], Tensor]
"""From the position of an output, what the network says, and what is left: a value and K logits, if K > 1."""


def unrolled(
    mux: Multiplexer, head: Head, h: Tensor, x: Tensor | None, inputs: Tensor | None
) -> Tensor:
    """The raw features, ``(*batch, in_features)``, that a head says; see :meth:`Multiplexer.unroll`."""
    batch = h.shape[:-1]
    values: dict[int, Tensor] = {}
    logits: list[Tensor] = []
    so_far = torch.zeros(*batch, mux.out_features, dtype=mux.dtype, device=h.device)
    for columns, maps in mux.cascade_parts():
        roll = _Roll(mux, head, h, maps, columns.tolist(), so_far, values, logits)
        so_far = roll.through(x, inputs)
    own = [values[column] for column in range(mux.out_features)]
    return torch.cat([torch.stack(own, -1), *logits], -1)


def _fitting(x: Tensor, batch: torch.Size, outputs: int) -> Tensor:
    """Outputs to go along, one row for each of the batch."""
    refuse_no_tensor("x", x)
    shape = (*batch, outputs)
    if x.shape[-1:] == shape[-1:]:
        with suppress(RuntimeError):
            return x.detach().expand(shape)
    raise ShapeError(
        f"x has shape {tuple(x.shape)}; the outputs to go along are {shape}, one row for each of h"
    )


@dataclass
class _Roll:
    """One cascade, one output after another."""

    mux: Multiplexer
    head: Head
    h: Tensor
    maps: CascadeMap
    columns: Sequence[int]
    so_far: Tensor
    values: dict[int, Tensor]
    logits: list[Tensor]

    def through(self, x: Tensor | None, inputs: Tensor | None) -> Tensor:
        """Asks the head for every output; what was computed, or given, so far."""
        batch = self.h.shape[:-1]
        rows = batch.numel()
        wanted = None if x is None else _fitting(x, batch, self.mux.out_features)
        given = (
            None
            if wanted is None
            else self.maps.in_steps(
                self.mux.computed(wanted)[..., list(self.columns)], inputs
            )
        )
        walk = self.maps.walk(inputs, rows, self.h.device)
        for step in self.maps.cascade.steps:
            options = walk.options(step)
            if step.variable >= self.maps.in_values:
                walk.take(step, walk.full(options[0].lower))
                continue
            value = self._asked(walk, step, options)
            walk.take(
                step, value if given is None else given[step.variable].to(value.dtype)
            )
            column = self.columns[step.variable]
            found = self._seen(step, walk.values[step.variable].detach())
            self.so_far = self.so_far.clone()
            self.so_far[..., column] = found.reshape(batch).to(self.so_far.dtype)
        return self.so_far

    def _seen(self, step: Step, value: Tensor) -> Tensor:
        """A value of the grid as it leaves the layer."""
        found = value * float(self.maps.cascade.spacing[step.variable])
        if self.mux.units is None:
            return found
        column = torch.tensor([self.columns[step.variable]], device=found.device)
        return self.mux.units.of(column).outward(found.unsqueeze(-1)).squeeze(-1)

    def _asked(self, walk: Walk, step: Step, options: Sequence[Option]) -> Tensor:
        """The value of an output by what the head says of it."""
        batch = self.h.shape[:-1]
        column = self.columns[step.variable]
        said = self.head(column, self.h, self._left(walk, step, options))
        count = 1 + (step.size if step.size > 1 else 0)
        name = self.mux.rules.outputs[column].name
        if not isinstance(said, Tensor):
            raise DtypeError(
                f"the head says something of type {type(said).__name__} of {name} (output {column}); it has to be a "
                f"tensor of shape {(*batch, count)}"
            )
        if tuple(said.shape) != (*batch, count):
            raise ShapeError(
                f"the head says {tuple(said.shape)} of {name} (output {column}); it has to be {(*batch, count)}: "
                "a value" + (f" and {count - 1} logits" if count > 1 else "")
            )
        self.values[column] = said[..., 0]
        if count > 1:
            self.logits.append(said[..., 1:])
        with torch.no_grad():
            return self.maps.chosen(walk, step, options, said.reshape(-1, count))

    def _left(self, walk: Walk, step: Step, options: Sequence[Option]) -> Left:
        batch = self.h.shape[:-1]
        every = [
            torch.ones_like(walk.full(0.0), dtype=torch.bool)
            if o.possible is None
            else o.possible
            for o in options
        ]
        possible = torch.stack(every, -1)
        lowers = torch.stack([walk.full(option.lower) for option in options], -1)
        uppers = torch.stack([walk.full(option.upper) for option in options], -1)
        lower = lowers.masked_fill(~possible, torch.inf).amin(-1)
        upper = uppers.masked_fill(~possible, -torch.inf).amax(-1)
        ends = [
            self._seen(step, end.detach()).to(self.mux.dtype).reshape(batch)
            for end in (lower, upper)
        ]
        return Left(
            self.so_far, ends[0], ends[1], possible.reshape(*batch, len(options))
        )
