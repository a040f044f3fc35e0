r"""The part of a distribution that a cascade makes: a probability for every point of its grid.

An option of every output is drawn by its logits, and a raw value z from the base; ``k = round(W σ(z + shift))`` is then
the value within an interval of width W. So a value has the probability of its *cell*, the z that lead to it:
``F(b) − F(a)`` with the base's distribution function F. Where a cell is narrow, ``log f(middle) + log(b − a)`` is more
accurate than a difference of two numbers close to each other, and has gradients in the tails, where F is flat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Independent

from multiplexnet.errors import InputError
from multiplexnet.transforms.cascade.map import CascadeMap, cell_of, cell_width

__all__ = ["CascadeFactor"]

NARROW = 1e-3
"""Cells below this width have the density at their middle, which is off by a millionth or less."""


@dataclass(frozen=True)
class CascadeFactor:
    """The distribution of the outputs of a cascade.

    Args:
        maps: the cascade.
        columns: its outputs among all D.
        base: univariate distributions of the raw values of all outputs, side by side.
        logits: of its options, ``(*batch, O)``; ``None`` if there are none.
        inputs: ``(*batch, I)``, if the rules have any.
    """

    maps: CascadeMap
    columns: Tensor
    base: Any
    logits: Tensor | None
    inputs: Tensor | None

    @classmethod
    def of(
        cls,
        maps: CascadeMap,
        columns: Tensor,
        base: Any,
        outputs: int,
        logits: Tensor | None,
        inputs: Tensor | None,
    ) -> CascadeFactor:
        """The factor for a base of the raw values of so many outputs.

        Raises:
            InputError: the base is none of univariate distributions with a distribution function.
        """
        if isinstance(base, Independent) and base.reinterpreted_batch_ndims == 1:
            base = base.base_dist
        shape = Size(getattr(base, "batch_shape", ()))
        univariate = getattr(base, "event_shape", None) == Size() and shape[-1:] == (
            outputs,
        )
        if not univariate or not _has_cdf(base):
            raise InputError(
                "part of the outputs are computed one after another (a cascade), and their probabilities need a base "
                f"of independent distributions with a cdf, one for each of the {outputs} outputs, such as "
                f"Normal(torch.zeros({outputs}), 1.0)"
            )
        return cls(maps, columns, base, logits, inputs)

    def batch_shapes(self) -> Iterator[Size]:
        yield self.base.batch_shape[:-1]
        yield from (
            table.shape[:-1]
            for table in (self.logits, self.inputs)
            if table is not None
        )

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-probability of x, ``(*batch, D_b)``: ``(*batch,)``, in float64."""
        batch = x.shape[:-1]
        shift = self.maps.shift

        def mass(variable: int, steps: Tensor, width: Tensor) -> Tensor:
            left, right, first, last = cell_of(steps, width)
            if shift is not None:
                left = left - shift[variable]
                right = right - shift[variable]
            edges = torch.stack([left, right]).reshape(2, *batch)
            first = first.reshape(batch)
            last = last.reshape(batch)
            inner = ~first & ~last
            apart = cell_width(steps.reshape(batch), width.reshape(batch), inner)
            narrow = inner & (apart < NARROW)
            column = self.columns[variable]
            density = self._function(self.base.log_prob, edges.mean(0), column)
            wide = self._log_mass(edges, first, last, column)
            return torch.where(narrow, density + apart.log(), wide).reshape(-1)

        logits = self._expanded(self.logits, batch)
        inputs = self._expanded(self.inputs, batch)
        return self.maps.log_prob_under(x, logits, inputs, mass)

    def _log_mass(
        self, edges: Tensor, first: Tensor, last: Tensor, column: Tensor
    ) -> Tensor:
        """The log-probability of a cell between two edges, ``(2, *batch)``; some have no lower or upper edge."""
        below, above = self._function(self.base.cdf, edges, column)
        below = torch.where(first, 0.0, below)
        above = torch.where(last, 1.0, above)
        tiny = torch.finfo(torch.float64).tiny
        return (above - below).clamp(min=tiny).log()

    def _function(self, function: Any, z: Tensor, column: Tensor) -> Tensor:
        """A function of the base at raw values ``(…, *batch)`` of one output."""
        every = z.unsqueeze(-1).expand(*z.shape, self.base.batch_shape[-1])
        found: Tensor = (
            function(every).index_select(-1, column.reshape(1)).squeeze(-1).double()
        )
        return found

    def sample(self, sample_shape: Size, batch: Size) -> Tensor:
        """Values, ``(*sample, *batch, D_b)``."""
        shape = sample_shape + batch
        wide = self.base.expand(Size([*batch, self.base.batch_shape[-1]]))
        z = self._raw(wide.sample(sample_shape))
        logits = self._expanded(self.logits, shape)
        inputs = self._expanded(self.inputs, shape)
        return self.maps.sample(z, logits, inputs)

    def mode(self, batch: Size) -> Tensor:
        """The most probable options, and in them the images of the base's modes."""
        wide = self.base.expand(Size([*batch, self.base.batch_shape[-1]]))
        found: Tensor = self.maps(
            self._raw(wide.mode),
            self._expanded(self.logits, batch),
            self._expanded(self.inputs, batch),
        )
        return found

    def _raw(self, z: Tensor) -> Tensor:
        """The raw values of the cascade; flags of outputs that may be missing come after all outputs and have none."""
        last = int(self.columns.max()) + 1
        missing = max(0, last - z.shape[-1])
        padded = (
            torch.cat([z, z.new_zeros(*z.shape[:-1], missing)], -1) if missing else z
        )
        return padded.index_select(-1, self.columns).to(self.maps.precision.dtype)

    @staticmethod
    def _expanded(table: Tensor | None, batch: Size) -> Tensor | None:
        return None if table is None else table.expand(*batch, table.shape[-1])


def _has_cdf(base: Any) -> bool:
    try:
        base.cdf(torch.zeros(base.batch_shape))
    except (AttributeError, NotImplementedError):
        return False
    return True
