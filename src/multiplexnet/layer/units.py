"""Outputs that are whole numbers of a unit, as the floats that stand for them, and back.

The maps of a layer compute whole numbers k; what leaves the layer is the float nearest to k times the unit
(:mod:`multiplexnet.verdicts.units` has the proof).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.language.formula import Variable
from multiplexnet.transforms.base import dtype_name
from multiplexnet.verdicts.units import has_unit, refuse_indistinct

__all__ = ["Units", "unit_table"]


def unit_table(outputs: Sequence[Variable], dtype: torch.dtype) -> Tensor | None:
    """Numerators and denominators of the units, ``(2, D)``, in float64; ``None`` if all are 1.

    Raises:
        DtypeError: the dtype cannot tell the values of an output apart.
    """
    own = [v for v in outputs if has_unit(v)]
    for variable in own:
        refuse_indistinct(variable, dtype_name(dtype))
    if not own:
        return None
    sizes = [v.unit.size for v in outputs]
    return torch.tensor(
        [[s.numerator for s in sizes], [s.denominator for s in sizes]],
        dtype=torch.float64,
    )


@dataclass(frozen=True)
class Units:
    """The units of some outputs: numerators and denominators, each ``(D,)``, in float64."""

    table: Tensor

    def of(self, columns: Tensor) -> Units:
        """Those of some of the outputs."""
        return Units(self.table.index_select(-1, columns))

    def first(self, count: int) -> Units:
        """Those of the first outputs."""
        return Units(self.table[:, :count])

    def outward(self, steps: Tensor) -> Tensor:
        """The floats that stand for whole numbers ``(…, D)``; outputs without a unit stay as they are."""
        p, q = self.table
        seen = (steps.double() * p / q).to(steps.dtype)
        return torch.where(p == q, steps, seen)

    def inward(self, x: Tensor) -> Tensor:
        """The whole numbers that floats ``(…, D)`` stand for; where they stand for none, about how many steps."""
        p, q = self.table
        near = x.double() * q / p
        whole = near.round()
        fits = (whole * p / q).to(x.dtype) == x
        return torch.where(
            p == q,
            x,
            torch.where(fits, whole, near + 0.25 * (near == whole)).to(x.dtype),
        )
