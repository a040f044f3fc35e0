r"""The operations of a program: each fills one slot of a tape, and knows its own way back.

They are run once, when a layer is built, on names instead of tensors, which write down what torch is asked for
(:mod:`~multiplexnet.transforms.cascade.script`); so nothing in them may depend on what a tensor holds.

Everything here is a whole number that its dtype holds exactly, truth values too: these are 0.0 and 1.0 in the dtype of
the numbers. «And» is then a product, «not» ``1 − m``, and a choice between two numbers ``lerp(a, b, m)``, which is
``a + 0 · (b − a)`` or ``b − 0 · (b − a)`` and rounds nothing. Torch computes all of these several numbers at a time;
``where``, ``masked_fill`` and comparisons that give ``bool`` go through a batch one by one and take three times as
long.

Where a number is NaN so is all that is computed from it: such a row comes out as NaN.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from multiplexnet.transforms.cascade.inside import (
    EndGrads,
    Inside,
    Share,
    WantedGrads,
)
from multiplexnet.transforms.cascade.start import Start

__all__ = [
    "LARGEST_DUEL",
    "Affine",
    "AnyOf",
    "Choice",
    "Compared",
    "Divided",
    "Extreme",
    "Operand",
    "Operation",
    "Rival",
    "Tape",
    "Terms",
    "Unless",
    "Within",
    "offset_of",
]

Operand = int | float
"""A slot (int), or a number that is the same in all rows (float)."""
Terms = tuple[tuple[int, int], ...]


@dataclass
class Tape:
    """One run of a program.

    Args:
        slots: what was computed, by slot; ``None`` before.
        inside: how raw values become whole numbers between two ends.
        read: ``(D, B)``, what it reads of the raw values.
        width: ``(D, B)``, how wide the chosen intervals are; negative where nothing was possible.
        values: ``(D, B)``, the whole numbers that came out.
        logits: ``(O, B)``, finite.
        numbers: as tensors of the dtype that is computed in.
        tables: of numbers, in the dtype of the logits.
        chosen: for every output with options where each of them replaced those before it.
        grads: of the slots, on the way back.
        read_grads: ``(D, B)``, of what was read of the raw values, on the way back.
        outside: for every output whose prediction was cut, where it lay below and above.
    """

    slots: list[Tensor | None]
    inside: Inside
    read: Sequence[Tensor]
    width: Sequence[Tensor]
    values: Sequence[Tensor]
    logits: Sequence[Tensor]
    numbers: Mapping[float, Tensor]
    tables: Mapping[tuple[float, ...], Tensor]
    chosen: dict[int, dict[int, Tensor]] = field(default_factory=dict)
    grads: dict[int, Tensor] = field(default_factory=dict)
    read_grads: Sequence[Tensor] = ()
    outside: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def tensor(self, operand: Operand) -> Tensor:
        """The operand as a tensor, of no dimension if it is a number."""
        if isinstance(operand, float):
            return self.numbers[operand]
        found = self.slots[operand]
        assert found is not None
        return found

    def empty(self) -> Tensor:
        """A place for numbers or truth values of the batch."""
        return torch.empty_like(self.values[0])

    def whole(self, value: Tensor | float) -> Tensor:
        """A tensor or a number as a tensor."""
        return self.numbers[value] if isinstance(value, float) else value

    def without(self, mask: Tensor) -> Tensor:
        """Where a truth value does not hold."""
        return self.numbers[1.0] - mask

    def add(
        self,
        operand: Operand,
        grad: Tensor,
        factor: float = 1.0,
        *,
        fresh: bool = False,
    ) -> None:
        """``factor · grad`` goes to the gradient of a slot; ``fresh`` says that nobody else holds ``grad``."""
        if isinstance(operand, float):
            return
        old = self.grads.get(operand)
        if old is not None:
            self.grads[operand] = _add_times(old, grad, factor)
        elif factor != 1.0:
            self.grads[operand] = grad * factor
        else:
            self.grads[operand] = grad if fresh else grad.clone()


def _add_times(total: Tensor, more: Tensor, factor: float) -> Tensor:
    """``total + factor · more``, in place; torch is slower where a factor is said."""
    if factor == 1:
        return total.add_(more)
    if factor == -1:
        return total.sub_(more)
    return total.add_(more, alpha=factor)


class Operation(ABC):
    """Fills one slot."""

    out: int

    @abstractmethod
    def run(self, tape: Tape) -> None:
        """Computes the slot."""

    def back(self, tape: Tape) -> None:  # noqa: B027 - truth values have no gradient
        """Passes the gradient of the slot on."""

    @abstractmethod
    def reads(self) -> Iterable[Operand]:
        """What it needs."""


# --- numbers --------------------------------------------------------------------------------------------------------


@dataclass
class Affine(Operation):
    """``constant + base + Σ c · slot``; ``base`` is an earlier slot or none."""

    out: int
    base: int | None
    terms: Terms
    constant: float

    def reads(self) -> Iterable[Operand]:
        own = [slot for slot, _ in self.terms]
        return own if self.base is None else [self.base, *own]

    def run(self, tape: Tape) -> None:
        terms = list(self.terms)
        is_own = False
        if self.base is not None:
            total = tape.tensor(self.base)
        else:
            slot, c = terms.pop(0)
            total = tape.tensor(slot)
            if c != 1:
                total = total * tape.numbers[float(c)]
                is_own = True
        for slot, c in terms:
            other = tape.tensor(slot)
            if is_own:
                _add_times(total, other, c)
            else:
                total = _plus_times(total, other, c)
                is_own = True
        if self.constant:
            number = tape.numbers[self.constant]
            total = total.add_(number) if is_own else total + number
        tape.slots[self.out] = total

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        for slot, c in self.terms:
            tape.add(slot, grad, float(c))
        if self.base is not None:
            tape.add(self.base, grad, fresh=True)


def _plus_times(total: Tensor, more: Tensor, factor: int) -> Tensor:
    if factor == 1:
        return total + more
    if factor == -1:
        return total - more
    return torch.add(total, more, alpha=factor)


@dataclass
class Divided(Operation):
    """``⌈slot / divisor⌉`` of a lower end, ``⌊slot / divisor⌋`` of an upper one."""

    out: int
    slot: int
    divisor: int
    is_lower: bool

    def reads(self) -> Iterable[Operand]:
        return [self.slot]

    def run(self, tape: Tape) -> None:
        quotient = tape.tensor(self.slot) / float(self.divisor)
        tape.slots[self.out] = quotient.ceil_() if self.is_lower else quotient.floor_()

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is not None:
            tape.add(self.slot, grad, 1 / self.divisor)


@dataclass
class Unless(Operation):
    """``end``, but ``otherwise`` where a truth value holds."""

    out: int
    mask: int
    end: Operand
    otherwise: Operand

    def reads(self) -> Iterable[Operand]:
        return [self.mask, self.end, self.otherwise]

    def run(self, tape: Tape) -> None:
        tape.slots[self.out] = torch.lerp(
            tape.tensor(self.end), tape.tensor(self.otherwise), tape.tensor(self.mask)
        )

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        held = grad * tape.tensor(self.mask)
        tape.add(self.otherwise, held, fresh=True)
        tape.add(self.end, grad.sub_(held), fresh=True)


@dataclass
class Extreme(Operation):
    """The largest (or the smallest) of some slots and a number."""

    out: int
    slots: tuple[int, ...]
    number: float | None
    is_largest: bool

    def reads(self) -> Iterable[Operand]:
        return self.slots

    def run(self, tape: Tape) -> None:
        better = torch.maximum if self.is_largest else torch.minimum
        result = tape.tensor(self.slots[0])
        for slot in self.slots[1:]:
            result = better(result, tape.tensor(slot))
        if self.number is not None:
            result = better(result, tape.numbers[self.number])
        tape.slots[self.out] = result

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        if len(self.slots) == 1:
            value = tape.tensor(self.slots[0])
            tape.add(self.slots[0], self._within(grad, value), fresh=True)
            return
        value = tape.tensor(self.out)
        for place, slot in enumerate(self.slots):
            if place + 1 == len(self.slots) and self.number is None:
                tape.add(slot, grad, fresh=True)  # nobody else is left
                return
            own = torch.eq(tape.tensor(slot), value, out=tape.empty()).mul_(grad)
            tape.add(slot, own, fresh=True)
            grad = grad.sub_(own)

    def _within(self, grad: Tensor, value: Tensor) -> Tensor:
        """The gradient where a whole number was not cut, in one operation; it is not cut at the number itself."""
        assert self.number is not None
        ends = (
            (self.number - 0.5, inf) if self.is_largest else (-inf, self.number + 0.5)
        )
        found: Tensor = torch.ops.aten.hardtanh_backward(grad, value, *ends)
        return found


# --- truth values ---------------------------------------------------------------------------------------------------


@dataclass
class Within(Operation):
    """Whether ``lower ≤ slot ≤ upper``; one of the ends may be infinite."""

    out: int
    slot: int
    lower: float
    upper: float

    def reads(self) -> Iterable[Operand]:
        return [self.slot]

    def run(self, tape: Tape) -> None:
        value = tape.tensor(self.slot)
        numbers = tape.numbers
        if self.upper == inf:
            held = torch.ge(value, numbers[self.lower], out=tape.empty())
        elif self.lower == -inf:
            held = torch.le(value, numbers[self.upper], out=tape.empty())
        elif self.lower == self.upper:
            held = torch.eq(value, numbers[self.lower], out=tape.empty())
        else:
            held = torch.clamp(value, self.lower, self.upper).eq_(value)
        tape.slots[self.out] = held


@dataclass
class Compared(Operation):
    """Whether ``low ≤ high``."""

    out: int
    low: int
    high: int

    def reads(self) -> Iterable[Operand]:
        return [self.low, self.high]

    def run(self, tape: Tape) -> None:
        low, high = tape.tensor(self.low), tape.tensor(self.high)
        tape.slots[self.out] = torch.le(low, high, out=tape.empty())


@dataclass
class AnyOf(Operation):
    """Whether one of some truth values holds; never, if there are none."""

    out: int
    masks: tuple[int, ...]

    def reads(self) -> Iterable[Operand]:
        return self.masks

    def run(self, tape: Tape) -> None:
        if not self.masks:
            tape.slots[self.out] = torch.zeros_like(tape.values[0])
            return
        held = tape.tensor(self.masks[0])
        for other in self.masks[1:]:
            held = torch.maximum(held, tape.tensor(other))
        tape.slots[self.out] = held


# --- choices --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rival:
    """An option that one after it has to beat.

    Args:
        number: of that option.
        is_sure: whether it is possible wherever the later one is.
    """

    number: int
    is_sure: bool


@dataclass
class Choice(Operation):
    """The value of an output: an option is chosen, then a whole number in its interval.

    Options are gone through in order; each replaces what was chosen before it where it is possible and its logit is
    larger than those of all possible ones before it. What nothing replaces is the first.

    Args:
        out: the slot of the output.
        place: its row among raw values; ``None`` for a hidden one, whose interval is a point.
        ends: for every option the ends between which values are taken.
        tests: for every option truth values that have to hold for it to be possible (``None``: it always is).
        rivals: for every option those before it that it has to beat; ``None`` for one that never has to be looked at.
        logits: the first logit, if there is more than one option.
        start: where the second option starts, if that depends on what was chosen before.
    """

    out: int
    place: int | None
    ends: tuple[tuple[Operand, Operand], ...]
    tests: tuple[tuple[int, ...] | None, ...]
    rivals: tuple[tuple[Rival, ...] | None, ...]
    logits: int | None
    start: Start | None = None

    def __post_init__(self) -> None:
        pairs = {
            number: pair
            for number, (pair, rivals) in enumerate(
                zip(self.ends, self.rivals, strict=True)
            )
            if rivals is not None
        }
        self._takes_points = all(
            isinstance(low, float) and _is_point(low, high)
            for low, high in pairs.values()
        )
        moving = [
            number
            for number, pair in pairs.items()
            if not all(isinstance(end, float) for end in pair)
        ]
        intervals = [
            pairs[number] for number in moving if not _is_point(*pairs[number])
        ]
        self._moving = moving
        self._wanted = WantedGrads(
            lower=any(not isinstance(low, float) for low, _ in intervals),
            upper=any(not isinstance(high, float) for _, high in intervals),
            point=len(intervals) < len(moving),
        )

    def reads(self) -> Iterable[Operand]:
        tests = [slot for test in self.tests if test is not None for slot in test]
        before = () if self.start is None else self.start.before
        return [*(end for pair in self.ends for end in pair), *tests, *before]

    # --- forward ----------------------------------------------------------------------------------------------------

    def run(self, tape: Tape) -> None:
        lower, upper = self._interval(tape)
        if self.place is None:
            tape.slots[self.out] = tape.whole(lower).expand_as(tape.values[0])
            return
        if self._takes_points and isinstance(tape.inside, Share):
            tape.width[self.place].zero_()
            tape.slots[self.out] = tape.values[self.place].copy_(tape.whole(lower))
            return
        tape.slots[self.out] = tape.inside.take(tape, self.place, lower, upper)

    def _interval(self, tape: Tape) -> tuple[Tensor | float, Tensor | float]:
        first = self.ends[0]
        lower, upper = self._at(tape, first[0]), self._at(tape, first[1])
        if self.logits is None:
            return lower, upper
        replaced = dict(self._replaced(tape))
        tape.chosen[self.out] = replaced
        for number, mask in replaced.items():
            low, high = self.ends[number]
            lower = _either(tape, lower, low, mask)
            upper = lower if self._takes_points else _either(tape, upper, high, mask)
        return lower, upper

    @staticmethod
    def _at(tape: Tape, operand: Operand) -> Tensor | float:
        return operand if isinstance(operand, float) else tape.tensor(operand)

    def _replaced(self, tape: Tape) -> Iterable[tuple[int, Tensor]]:
        """Options after the first, and where each replaces those before it."""
        assert self.logits is not None
        logits = self._started(tape)
        possible = [self._possible(tape, test) for test in self.tests]
        if len(self.ends) > LARGEST_DUEL:
            return self._running(tape, logits, possible)
        return self._duels(tape, logits, possible)

    def _started(self, tape: Tape) -> Sequence[Tensor]:
        """The logits of the options, from where they start."""
        assert self.logits is not None
        logits = tape.logits[self.logits : self.logits + len(self.ends)]
        if self.start is None:
            return logits
        counted = [tape.tensor(slot) for slot in self.start.before]
        table = tape.tables[self.start.offsets]
        offset = offset_of(self.start, counted, logits[1], table)
        return logits[0], logits[1] + offset

    def _duels(
        self, tape: Tape, logits: Sequence[Tensor], possible: Sequence[Tensor | None]
    ) -> Iterable[tuple[int, Tensor]]:
        """Each option is compared with each that may be possible at the same time."""
        for number in range(1, len(self.ends)):
            rivals = self.rivals[number]
            if rivals is None:
                continue
            beaten = None
            for rival in rivals:
                own = self._beaten(tape, logits, number, rival, possible[rival.number])
                beaten = own if beaten is None else beaten.mul_(own)
            yield number, self._both(tape, beaten, possible[number])

    @staticmethod
    def _beaten(
        tape: Tape,
        logits: Sequence[Tensor],
        number: int,
        rival: Rival,
        possible: Tensor | None,
    ) -> Tensor:
        """Where an option has a larger logit than another one, or that is not possible."""
        mine, other = logits[number], logits[rival.number]
        if rival.is_sure or possible is None:
            return torch.gt(mine, other, out=tape.empty())
        stands = torch.le(mine, other, out=tape.empty()).mul_(possible)
        return torch.sub(tape.numbers[1.0], stands, out=stands)

    @staticmethod
    def _both(tape: Tape, beaten: Tensor | None, possible: Tensor | None) -> Tensor:
        if beaten is None:
            return torch.ones_like(tape.values[0]) if possible is None else possible
        return beaten if possible is None else beaten.mul_(possible)

    def _running(
        self, tape: Tape, logits: Sequence[Tensor], possible: Sequence[Tensor | None]
    ) -> Iterable[tuple[int, Tensor]]:
        """Each option is compared with the best of those before: what is left to do where there are many."""
        best = logits[0]
        if possible[0] is not None:
            best = best.masked_fill(possible[0] == 0, -torch.inf)
        for number in range(1, len(logits)):
            better = torch.gt(logits[number], best, out=tape.empty())
            mask = possible[number]
            if mask is None:
                best = torch.maximum(best, logits[number])
            else:
                better.mul_(mask)
                best = torch.where(better.bool(), logits[number], best)
            yield number, better

    @staticmethod
    def _possible(tape: Tape, test: tuple[int, ...] | None) -> Tensor | None:
        if test is None:
            return None
        mask = tape.tensor(test[0])
        for other in test[1:]:
            mask = mask * tape.tensor(other)
        return mask

    # --- backward ---------------------------------------------------------------------------------------------------

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        if self.place is None:
            tape.add(self.ends[0][0], grad, fresh=True)
            return
        found = tape.inside.back(tape, self.place, grad, self._wanted)
        if not self._moving:
            return
        free = None
        chosen = tape.chosen.get(self.out, {})
        for number in reversed(chosen):
            mask = chosen[number]
            if number in self._moving:
                own = mask if free is None else mask * free
                self._give(tape, found, self.ends[number], own)
            if number > self._moving[0]:
                free = (
                    tape.without(mask)
                    if free is None
                    else free.mul_(tape.without(mask))
                )
        if self._moving[0] == 0:
            self._give(tape, found, self.ends[0], free)

    @staticmethod
    def _give(
        tape: Tape, found: EndGrads, pair: tuple[Operand, Operand], mask: Tensor | None
    ) -> None:
        """Adds gradients to the ends of an option where it was chosen."""
        low, high = pair
        parts = [(low, found.lower), (high, found.upper)]
        if _is_point(low, high):
            parts = [(low, found.point)]
        for end, grad in parts:
            if isinstance(end, float):
                continue
            assert grad is not None
            tape.add(end, grad if mask is None else grad * mask, fresh=True)


def _is_point(low: Operand, high: Operand) -> bool:
    return low == high and isinstance(low, float) == isinstance(high, float)


LARGEST_DUEL = 6
"""Up to so many options are compared two by two."""


def offset_of(
    start: Start, counted: Sequence[Tensor], like: Tensor, table: Tensor | None = None
) -> Tensor:
    """What is added to the logit of a second option, given the truth values that count, ``(B,)`` or a single number.

    ``table`` has the offsets, if somebody kept them.
    """
    if table is None:
        table = torch.tensor(start.offsets, dtype=like.dtype, device=like.device)
    if not counted or len(set(start.offsets)) == 1:
        return table[:1]
    count = counted[0]
    for other in counted[1:]:
        count = count + other
    return table[count.detach().nan_to_num(0.0).long()]


def _either(
    tape: Tape, old: Tensor | float, new: Operand, mask: Tensor
) -> Tensor | float:
    """``new`` where the mask holds; never −0."""
    if isinstance(old, float) and isinstance(new, float) and old == new:
        return old
    if isinstance(old, float) and old == 0.0:
        return torch.addcmul(tape.numbers[0.0], tape.tensor(new), mask)
    return torch.lerp(tape.whole(old), tape.tensor(new), mask)
