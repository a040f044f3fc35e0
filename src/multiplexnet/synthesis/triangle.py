"""A layer in which every column sees the columns before it, without the weights that nothing passes through."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["Triangle"]

TOGETHER = 8
"""Columns of a group: products of more columns are larger, and more of them is multiplied by zero."""


class Triangle(nn.Module):
    """``(B, D · inputs)`` to ``(B, D · outputs)``; those of column j depend on those of the columns before it.

    Columns stand in groups. What a group sees of the groups before it is one product; what it sees of its own columns
    is another one, with a mask.

    Args:
        count: D.
        inputs: numbers of a column that later ones see.
        outputs: numbers of a column that are computed.
    """

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.count = count
        self.inputs = inputs
        self.outputs = outputs
        fan = max(1, count * inputs // 2)
        self.before = nn.ParameterList()
        self.within = nn.ParameterList()
        for k, group in enumerate(self.groups):
            visible = torch.ones(len(group), len(group)).triu(1)
            mask = visible.repeat_interleave(inputs, 0).repeat_interleave(outputs, 1)
            self.register_buffer(f"mask{k}", mask, persistent=False)
            self.within.append(nn.Parameter(torch.randn_like(mask) / fan**0.5))
            if group.start:
                wide = torch.randn(group.start * inputs, mask.shape[1])
                self.before.append(nn.Parameter(wide / fan**0.5))

    @property
    def groups(self) -> list[range]:
        """The columns of each group."""
        starts = range(0, self.count, TOGETHER)
        return [range(start, min(start + TOGETHER, self.count)) for start in starts]

    def forward(self, seen: Tensor, start: Tensor) -> Tensor:
        """What the inputs ``(B, D · inputs)`` add up to, from ``start`` on, ``(D · outputs,)``."""
        parts = []
        for k, group in enumerate(self.groups):
            own = seen[:, self._inputs(group)]
            weights = self.within[k] * self.get_buffer(f"mask{k}")
            part = torch.addmm(start[self._outputs(group)], own, weights)
            if k:
                before = seen[:, self._inputs(range(group.start))]
                part = torch.addmm(part, before, self.before[k - 1])
            parts.append(part)
        return torch.cat(parts, -1)

    def of(self, j: int) -> Tensor:
        """The weights of column j, ``(j · inputs, outputs)``."""
        k, place = divmod(j, TOGETHER)
        own = self._outputs(range(place, place + 1))
        within: Tensor = self.within[k][: place * self.inputs, own]
        if not k:
            return within
        return torch.cat([self.before[k - 1][:, own], within])

    def parts_of(self, dense: Tensor) -> dict[str, Tensor]:
        """The state that does as one matrix ``(D · inputs, D · outputs)`` would."""
        found = {}
        for k, group in enumerate(self.groups):
            own = dense[:, self._outputs(group)]
            found[f"within.{k}"] = own[self._inputs(group)]
            if k:
                found[f"before.{k - 1}"] = own[self._inputs(range(group.start))]
        return found

    def _inputs(self, columns: range) -> slice:
        return slice(columns.start * self.inputs, columns.stop * self.inputs)

    def _outputs(self, columns: range) -> slice:
        return slice(columns.start * self.outputs, columns.stop * self.outputs)
