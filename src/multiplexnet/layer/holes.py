"""Missing values in a layer: NaN on the outside, a flag and a number that stands for the value on the inside.

A layer computes a flag for every output that may be missing. Where it says so, the output is a constant inside
(:attr:`multiplexnet.language.formula.Specification.stand_ins`) and NaN for whoever asks. No gradient flows through such
an output; that of the choice flows through its logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn.functional import pad

from multiplexnet.language.formula import Specification, nearest_to_zero

__all__ = ["Holes", "hole_tables"]

Loss = Callable[[Tensor], Tensor]


def hole_tables(specification: Specification, dtype: torch.dtype) -> dict[str, Tensor]:
    """The tables of :class:`Holes`; none if no output may be missing."""
    columns = specification.columns
    flags = list(specification.flags.values())
    if not flags:
        return {}
    owned = [specification.flags.get(v) for v in columns]
    places = [len(flags) if flag is None else flags.index(flag) for flag in owned]
    numbers = [nearest_to_zero(v.domain) for v in columns]
    return {
        "hole_flags": torch.tensor(places, dtype=torch.int64),
        "hole_numbers": _exact(numbers, dtype),
    }


def _exact(numbers: Sequence[Fraction], dtype: torch.dtype) -> Tensor:
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64).to(
        dtype
    )


@dataclass(frozen=True)
class Holes:
    """Which outputs may be missing.

    Args:
        flags: for each of the D outputs the position of its flag among the F flags; F if it has none.
        numbers: what stands for each output where it is missing, ``(D,)``.
        count: the number F.
    """

    flags: Tensor
    numbers: Tensor
    count: int

    @property
    def width(self) -> int:
        """The number D of outputs."""
        return self.flags.numel()

    def outward(self, x: Tensor) -> Tensor:
        """Outputs ``(…, D)`` of everything that is computed, ``(…, D + F)``: NaN where a flag says so."""
        return self.values(x).masked_fill(self.missing(x), torch.nan)

    def missing(self, x: Tensor) -> Tensor:
        """Where outputs are missing, ``(…, D)``, in everything that is computed, ``(…, D + F)``."""
        flags = pad(x.narrow(-1, self.width, self.count), (0, 1))
        return flags.index_select(-1, self.flags) > 0.5

    def values(self, x: Tensor) -> Tensor:
        """Outputs ``(…, D)`` with numbers that stand for what is missing."""
        return x.narrow(-1, 0, self.width)

    def inward(self, x: Tensor) -> Tensor:
        """What is computed, ``(…, D + F)``, for outputs ``(…, D)`` with NaN where they are missing."""
        empty = x.isnan() & (self.flags < self.count)
        values = torch.where(empty, self.numbers, x)
        flags = x.new_zeros(*x.shape[:-1], self.count + 1)
        flags = flags.index_copy(-1, self.flags, empty.to(x.dtype))
        return torch.cat([values, flags.narrow(-1, 0, self.count)], -1)

    def loss(self, f: Loss) -> Loss:
        """A loss of outputs as a loss of everything that is computed; flags cost nothing by themselves."""

        def of_everything(x: Tensor) -> Tensor:
            values = self.values(x)
            losses = f(values)
            return (
                pad(losses, (0, self.count)) if losses.shape == values.shape else losses
            )

        return of_everything
