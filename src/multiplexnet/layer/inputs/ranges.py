"""The declared range of an input, as a layer compares it with values that it is given."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from multiplexnet.errors import InputError
from multiplexnet.geometry.magnitudes import down, up
from multiplexnet.language.formula import Real, Variable, ends
from multiplexnet.language.text import value_text
from multiplexnet.layer.checks import anywhere, rows_where
from multiplexnet.transforms.run_time.reading import exact_number, read

__all__ = ["FloatRange", "number_is_inside", "refuse_out_of_range", "refused_range"]


@dataclass(frozen=True)
class FloatRange:
    """The declared range of an input as float64 numbers, rounded inward: what a layer compares values with.

    Args:
        variable: the input.
        is_whole: whether its values are whole numbers.
        least: the smallest float64 number in the range; ``None`` if it has no lower end.
        most: the largest one.
    """

    variable: Variable
    is_whole: bool
    least: float | None
    most: float | None

    @staticmethod
    def of(variable: Variable) -> FloatRange:
        lower, upper = ends(variable.domain)
        return FloatRange(
            variable,
            not isinstance(variable.domain, Real),
            None if lower is None else up(lower),
            None if upper is None else down(upper),
        )

    def contains(self, values: Tensor) -> Tensor:
        """Where values lie in the range, compared exactly."""
        inside = values.isfinite()
        if not self.is_whole and self.least is None and self.most is None:
            return inside
        known = read(values)
        if self.is_whole:
            inside = (
                inside
                & (known.low == known.low.round())
                & (known.high == known.high.round())
            )
        if self.least is not None:
            inside = inside & (known.low >= exact_number(self.least, known.low))
        if self.most is not None:
            inside = inside & (known.high <= exact_number(self.most, known.high))
        return inside

    def plainly_contains(self, values: Tensor) -> bool:
        """Whether all values are seen to lie in the range by the least and the largest of them; false in a graph.

        Ends and values that a mode of the processor could take for zero are left to :meth:`contains`.
        """
        if self.is_whole or not values.numel() or torch.compiler.is_compiling():
            return False
        try:
            least, most = (float(end) for end in values.detach().aminmax())
        except RuntimeError:  # vmap, the meta device
            return False
        tiny = torch.finfo(values.dtype).smallest_normal
        return self._begins_below(least, tiny) and self._ends_above(most, tiny)

    def _begins_below(self, least: float, tiny: float) -> bool:
        if self.least is None:
            return least > -torch.inf
        return least >= (tiny if abs(self.least) < tiny else self.least)

    def _ends_above(self, most: float, tiny: float) -> bool:
        if self.most is None:
            return most < torch.inf
        return most <= (-tiny if abs(self.most) < tiny else self.most)


def refuse_out_of_range(within: FloatRange, values: Tensor) -> Tensor:
    """The values of an input, NaN where they lie outside its range and that could not be raised as ``InputError``."""
    if within.plainly_contains(values):
        return values
    outside = ~within.contains(values)
    if anywhere(outside):
        raise refused_range(within.variable, f"in {rows_where(outside)}")
    return values.masked_fill(outside, torch.nan)


def refused_range(variable: Variable, where: str) -> InputError:
    """The error for an input outside its declared range; of a number without one, that it is not finite."""
    if variable.domain == Real():
        found = "is not a finite number"
    elif isinstance(variable.domain, Real):
        found = f"is outside its declared range {_range(variable)}"
    else:
        found = f"is not one of its declared values {_values(variable)}"
    return InputError(f"input {variable.name} {found} {where}")


def number_is_inside(variable: Variable, number: Fraction) -> bool:
    """Whether an exact number lies in the domain of an input."""
    lower, upper = ends(variable.domain)
    whole = isinstance(variable.domain, Real) or number.denominator == 1
    return (
        whole
        and (lower is None or number >= lower)
        and (upper is None or number <= upper)
    )


def _range(variable: Variable) -> str:
    lower, upper = ends(variable.domain)
    low = "-inf" if lower is None else value_text(variable, lower)
    high = "inf" if upper is None else value_text(variable, upper)
    return f"[{low}, {high}]"


def _values(variable: Variable) -> str:
    """Three values, or the first two, which show the step, and the last."""
    lower, upper = ends(variable.domain)
    assert lower is not None
    assert upper is not None
    listed = [
        value_text(variable, lower + i) for i in range(int(upper - lower) + 1)[:3]
    ]
    if upper - lower > 2:
        listed[2:] = ["…", value_text(variable, upper)]
    return f"{{{', '.join(listed)}}}"
