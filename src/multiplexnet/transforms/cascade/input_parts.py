"""What inputs contribute to a cascade, computed from tensors: whole parts and bits, none of them rounded.

See :mod:`multiplexnet.compiler.cascade.input_parts` for what they mean.

One input times a power of two: ``u = n 2^e + rest`` with n the whole part towards zero. Both ``n 2^e`` and ``rest``
are made of digits of u, so float64 holds them exactly, and a comparison of ``rest`` with a number is exact, too.

Several inputs: whole parts are summed exactly; the rests are summed with rounding, unless all of them are 0, and
``MARGIN`` times the sum of the coefficients is more than that rounding. The whole part r then belongs to the sum less
this margin, and bits are decided on the safe side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.input_parts import Bit, Form, Known, Whole
from multiplexnet.compiler.cascade.projection.rows import Range
from multiplexnet.geometry.magnitudes import down, up
from multiplexnet.transforms.base import following
from multiplexnet.transforms.run_time.reading import at_least, at_most, exact_number

__all__ = ["known_values", "rest_of"]

LARGEST = 2.0**52
"""Whole parts beyond this are not summed: the row is refused."""
MARGIN = 2.0**-46
"""More than the relative error of a sum of up to a hundred rests, each below 1 in size."""


def known_values(
    known: Sequence[Known], ranges: Sequence[Range], inputs: Tensor
) -> list[Tensor]:
    """The known variables for these inputs: whole numbers in float64, ``(B,)`` each; NaN if they are too large.

    Args:
        known: what is asked for.
        ranges: of each of them; a whole part beyond its range decides all rows as one at its end does.
        inputs: ``(I, B)``, finite.
    """
    parts: dict[Form, _Parts] = {}
    found = []
    for one, ends in zip(known, ranges, strict=True):
        if one.form not in parts:
            parts[one.form] = (
                _exact(one.form, inputs)
                if one.form.is_exact
                else _summed(one.form, inputs)
            )
        own = parts[one.form]
        value = _between(own.whole, ends) if isinstance(one, Whole) else own.bit(one)
        found.append(value)
    return found


def rest_of(form: Form, inputs: Tensor) -> Tensor:
    """``u − 2^e ⌊u / 2^e⌋`` of a form with one input, ``(B,)``, in float64, without rounding."""
    return _Exact(inputs[form.terms[0][0]].double(), form.exponent).beyond()


def _between(whole: Tensor, ends: Range) -> Tensor:
    return at_most(at_least(whole, float(ends.lower)), float(ends.upper))


class _Parts(ABC):
    """The whole part of a form, and comparisons of its rest."""

    whole: Tensor

    @abstractmethod
    def bit(self, bit: Bit) -> Tensor:
        """Whether the comparison holds, ``(B,)``."""


class _Exact(_Parts):
    def __init__(self, value: Tensor, exponent: int) -> None:
        unit = exact_number(2.0**exponent, value)
        smooth = value / unit
        towards_zero = smooth.trunc().clamp(-2 * LARGEST, 2 * LARGEST)
        rest = value - towards_zero * unit
        self._rest, self._negative, self._exponent = rest, rest < 0, exponent
        whole = towards_zero - self._negative.double()
        self.whole = following(whole, smooth)

    def beyond(self) -> Tensor:
        """What lies beyond the whole part, between 0 and a unit; for a form that is never negative."""
        return self._rest

    def bit(self, bit: Bit) -> Tensor:
        unit = Fraction(2) ** self._exponent
        compared = [
            self._compared(threshold * unit, bit.closed)
            for threshold in (bit.threshold, bit.threshold - 1)
        ]
        below = (
            self._negative & compared[1]
        )  # ONNX Runtime has no choice between truth values
        return (below | (~self._negative & compared[0])).double()

    def _compared(self, threshold: Fraction, closed: bool) -> Tensor:
        return _reaches(self._rest, threshold, closed)


def _reaches(value: Tensor, threshold: Fraction, closed: bool) -> Tensor:
    """``value ≥ threshold`` if closed, ``value > threshold`` if not, exactly: value is a float64."""
    if closed:
        return value >= exact_number(up(threshold), value)
    return value > exact_number(down(threshold), value)


def _exact(form: Form, inputs: Tensor) -> _Parts:
    return _Exact(inputs[form.terms[0][0]].double(), form.exponent)


class _Summed(_Parts):
    def __init__(self, form: Form, inputs: Tensor) -> None:
        unit = exact_number(2.0**form.exponent, inputs.double())
        total, rests = (
            torch.zeros_like(inputs[0], dtype=torch.float64),
            torch.zeros_like(inputs[0], dtype=torch.float64),
        )
        size, rounded = (
            torch.zeros_like(total),
            torch.zeros_like(total, dtype=torch.bool),
        )
        smooth = torch.zeros_like(total)
        for place, c in form.terms:
            value = inputs[place].double()
            whole = (value / unit).trunc()
            rest = (value - whole * unit) / unit
            factor = exact_number(float(c), whole)
            total, size = total + factor * whole, size + (factor * whole).abs()
            rests, rounded = rests + factor * rest, rounded | (value != whole * unit)
            smooth = smooth + factor * (value / unit)
        margin = rounded.double() * exact_number(
            MARGIN * sum(abs(c) for _, c in form.terms), total
        )
        low = (rests - margin).floor()
        self._least, self._most = rests - margin - low, rests + margin - low
        value = (total + low).masked_fill(size > LARGEST, torch.nan)
        self.whole = following(value, smooth)

    def bit(self, bit: Bit) -> Tensor:
        if bit.subtracts:
            return _reaches(self._least, bit.threshold, bit.closed).double()
        thresholds = bit.threshold, bit.threshold + 1
        return sum(
            (_reaches(self._most, t, bit.closed).double() for t in thresholds),
            torch.zeros_like(self._most),
        )


def _summed(form: Form, inputs: Tensor) -> _Parts:
    return _Summed(form, inputs)
