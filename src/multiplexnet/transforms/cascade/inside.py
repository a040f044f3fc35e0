r"""How a raw value becomes a whole number between two ends: as a share of the interval, or as a value of its own.

:class:`Share`: ``k = round(L + (U − L) σ(raw))``. Every raw value means something in every interval, which makes a
density (:meth:`~multiplexnet.transforms.cascade.map.CascadeMap.log_prob`) and is a safe start. What the raw value means
depends on the ends, and so on all outputs before.

:class:`Clamp`: ``k = clamp(round(p), L, U)`` of a prediction p, the middle of the output's range plus raw times half of
it: raw values from −1 to 1 are the whole range. What the raw value means depends on nothing else, and that is best for
regression. Outside of the interval the derivative would be 0, and a bad start would stay one. So the gradient leaks: a
prediction outside gets all of it where it leads back, and none where it would lead further out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.projection.rows import Range
from multiplexnet.transforms.base import (
    Differentiable,
    following,
    recorded,
    wants_gradient,
)

if TYPE_CHECKING:
    from multiplexnet.transforms.cascade.operations import Tape

__all__ = [
    "Clamp",
    "EndGrads",
    "Inside",
    "Share",
    "Values",
    "WantedGrads",
    "inside_of",
]

Values = Literal["share", "clamp"]

FAR = 2.0**54
"""Predictions are cut here: beyond all whole numbers of a cascade, and a float32 number."""


@dataclass(frozen=True)
class WantedGrads:
    """Which gradients of ends are wanted: of lower and of upper ones, and of intervals that are a single number."""

    lower: bool
    upper: bool
    point: bool


@dataclass(frozen=True)
class EndGrads:
    """Gradients of the ends of intervals, ``(B,)`` each; ``None`` for what was not wanted."""

    lower: Tensor | None
    upper: Tensor | None
    point: Tensor | None


class Inside(ABC):
    """From raw values and ends to whole numbers.

    A batch of raw values ``(D, B)`` is *read* once; ``take`` and ``back`` work on one output of it, on the tape of a
    program; ``value`` does the same with torch's own operations.
    """

    name: Values

    @abstractmethod
    def read(self, raw: Tensor) -> Tensor:
        """What is needed of the raw values, ``(D, B)``."""

    @abstractmethod
    def read_back(self, read: Tensor, grad: Tensor) -> Tensor:
        """The gradient of the raw values, given that of what was read; ``grad`` may be written to."""

    @abstractmethod
    def value(self, lower: Tensor, upper: Tensor, read: Tensor) -> Tensor:
        """Whole numbers between the ends, ``(B,)``, with gradients as if nothing had been rounded."""

    @abstractmethod
    def take(
        self, tape: Tape, place: int, lower: Tensor | float, upper: Tensor | float
    ) -> Tensor:
        """The same on a tape."""

    @abstractmethod
    def back(
        self, tape: Tape, place: int, grad: Tensor, wanted: WantedGrads
    ) -> EndGrads:
        """Passes the gradient of a value to what was read; returns those of the ends that are wanted."""

    @abstractmethod
    def raw_of(self, steps: Tensor, lower: Tensor, upper: Tensor, place: int) -> Tensor:
        """A raw value, in float64, that leads to these whole numbers."""


class Share(Inside):
    """``round(L + (U − L) σ(raw))``."""

    name = "share"

    def read(self, raw: Tensor) -> Tensor:
        return raw.sigmoid()

    def read_back(self, read: Tensor, grad: Tensor) -> Tensor:
        return grad.mul_(read).mul_(1 - read)

    def value(self, lower: Tensor, upper: Tensor, read: Tensor) -> Tensor:
        # σ of another library may leave [0, 1] by a rounding
        return _rounded(torch.addcmul(lower, upper - lower, read.clamp(0.0, 1.0)))

    def take(
        self, tape: Tape, place: int, lower: Tensor | float, upper: Tensor | float
    ) -> Tensor:
        width, value = _width(tape, place, lower, upper), tape.values[place]
        torch.addcmul(tape.whole(lower), width, tape.read[place], out=value)
        return value.round_()

    def back(
        self, tape: Tape, place: int, grad: Tensor, wanted: WantedGrads
    ) -> EndGrads:
        torch.mul(tape.width[place], grad, out=tape.read_grads[place])
        if not (wanted.lower or wanted.upper):
            return EndGrads(None, None, grad)
        upper = grad * tape.read[place]
        return EndGrads(grad - upper if wanted.lower else None, upper, grad)

    def raw_of(self, steps: Tensor, lower: Tensor, upper: Tensor, place: int) -> Tensor:
        width = (upper - lower).double().clamp(min=1.0)
        share = ((steps - lower).double() / width).clamp(0.25 / width, 1 - 0.25 / width)
        return torch.log(share) - torch.log1p(-share)


class Clamp(Inside):
    """``clamp(round(middle + half · raw), L, U)``.

    Args:
        ranges: of the outputs, in whole numbers.
    """

    name = "clamp"

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._middle = [(ends.lower + ends.upper) / 2 for ends in ranges]
        self._half = [max(ends.upper - ends.lower, 1) / 2 for ends in ranges]

    def _scale(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The middles and halves of the ranges, ``(D, 1)``."""
        middle, half = (
            torch.tensor(numbers, dtype=like.dtype, device=like.device).unsqueeze(-1)
            for numbers in (self._middle, self._half)
        )
        return middle, half

    def read(self, raw: Tensor) -> Tensor:
        middle, half = self._scale(raw)
        return (middle + half * raw).clamp(-FAR, FAR)

    def read_back(self, read: Tensor, grad: Tensor) -> Tensor:
        return grad.mul_(self._scale(read)[1])

    def value(self, lower: Tensor, upper: Tensor, read: Tensor) -> Tensor:
        low, high = lower.detach(), upper.detach()
        rounded = torch.minimum(torch.maximum(read.detach().round(), low), high)
        below, above = read < low, read > high
        smooth = torch.where(below, lower, torch.where(above, upper, read))
        inside = following(rounded, smooth)
        if not wants_gradient(smooth):
            return inside
        leak: Tensor = recorded(_Leak, read, below, above)
        return inside + leak

    def take(
        self, tape: Tape, place: int, lower: Tensor | float, upper: Tensor | float
    ) -> Tensor:
        low, high = tape.whole(lower), tape.whole(upper)
        value, read = tape.values[place], tape.read[place]
        _width(tape, place, lower, upper)
        torch.round(read, out=value)
        torch.minimum(torch.maximum(value, low), high, out=value)
        tape.outside[place] = (
            torch.lt(read, low, out=tape.empty()),
            torch.gt(read, high, out=tape.empty()),
        )
        return value

    def back(
        self, tape: Tape, place: int, grad: Tensor, wanted: WantedGrads
    ) -> EndGrads:
        below, above = tape.outside[place]
        lower, upper = grad * below, grad * above
        outward = lower.clamp(min=0.0).add_(upper.clamp(max=0.0))
        torch.sub(grad, outward, out=tape.read_grads[place])
        return EndGrads(lower, upper, lower + upper if wanted.point else None)

    def raw_of(self, steps: Tensor, lower: Tensor, upper: Tensor, place: int) -> Tensor:
        return (steps.double() - self._middle[place]) / self._half[place]


class _Leak(Differentiable):
    """0, whose gradient goes to a prediction outside where it leads back inside."""

    @staticmethod
    def forward(read: Tensor, below: Tensor, above: Tensor) -> Tensor:
        return torch.zeros_like(read)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        below, above = ctx.saved_tensors
        back = (above & (grads[0] > 0)) | (below & (grads[0] < 0))
        return torch.where(back, grads[0], 0.0), None, None


def inside_of(name: Values, ranges: Sequence[Range]) -> Inside:
    """The map of that name for outputs with these ranges."""
    return Share() if name == "share" else Clamp(ranges)


def _width(
    tape: Tape, place: int, lower: Tensor | float, upper: Tensor | float
) -> Tensor:
    """How wide the interval is, kept on the tape: negative where nothing was possible."""
    width = tape.width[place]
    if isinstance(lower, float) and isinstance(upper, float):
        return width.fill_(upper - lower)
    return torch.sub(tape.whole(upper), lower, out=width)


def _rounded(smooth: Tensor) -> Tensor:
    return following(smooth.detach().round(), smooth)
