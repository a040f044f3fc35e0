r"""A cascade as a list of small operations on rows of numbers, each with its own way back.

The operations fill a list of *slots*, one tensor ``(B,)`` each: values of variables, affine functions of them, ends,
maxima and minima of ends. What is the same in all rows is a plain number and takes no operation. Affine functions are
built from those that were there before (``300 − x_1 − x_2 − x_3`` is ``300 − x_1 − x_2`` less x_3), so that a sum of
n outputs costs n operations and not n².

``back`` goes through the operations in reverse and adds up gradients, as if nothing had been rounded: of a maximum only
the argument that attains it gets any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade, Step
from multiplexnet.compiler.cascade.rows import Clause, Row
from multiplexnet.transforms.cascade.inside import Inside, Share
from multiplexnet.transforms.cascade.start import Start

__all__ = ["Program", "Tape", "offset_of", "program_of"]

Operand = int | float
"""A slot (int), or a number that is the same in all rows (float)."""
Terms = tuple[tuple[int, int], ...]
Constant = tuple[float | tuple[float, ...], torch.dtype, torch.device]


@dataclass
class Tape:
    """One run of a program.

    Args:
        slots: what was computed, by slot.
        inside: how raw values become whole numbers between two ends.
        read: ``(D, B)``, what it reads of the raw values.
        width: ``(D, B)``, how wide the chosen intervals are; negative where nothing was possible.
        values: ``(D, B)``, the whole numbers that came out.
        logits: ``(O, B)``, finite.
        constants: numbers that were needed as tensors before.
        chosen: for every output with options the number of the chosen one; with two, whether it is the second.
        grads: of the slots, on the way back.
        read_grads: ``(D, B)``, of what was read of the raw values, on the way back.
        outside: for every output whose prediction was cut, where it lay below and above.
    """

    slots: list[Tensor | None]
    inside: Inside
    read: Sequence[Tensor]
    width: Sequence[Tensor]
    values: Sequence[Tensor]
    logits: Tensor | None
    constants: dict[Constant, Tensor]
    chosen: dict[int, Tensor] = field(default_factory=dict)
    grads: dict[int, Tensor] = field(default_factory=dict)
    read_grads: Sequence[Tensor] = ()
    outside: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def at(self, operand: Operand) -> Tensor | float:
        return operand if isinstance(operand, float) else self._tensor(operand)

    def _tensor(self, slot: int) -> Tensor:
        found = self.slots[slot]
        assert found is not None
        return found

    def tensor(self, operand: Operand) -> Tensor:
        """The operand as a tensor, of no dimension if it is a number."""
        return self.constant(operand) if isinstance(operand, float) else self._tensor(operand)

    def constant(self, value: float) -> Tensor:
        """A number as a tensor of no dimension."""
        like = self.values[0]
        key: Constant = (value, like.dtype, like.device)
        if key not in self.constants:
            self.constants[key] = torch.tensor(value, dtype=like.dtype, device=like.device)
        return self.constants[key]

    def table(self, numbers: tuple[float, ...], like: Tensor) -> Tensor:
        """Numbers as a tensor of the dtype of another one."""
        key: Constant = (numbers, like.dtype, like.device)
        if key not in self.constants:
            self.constants[key] = torch.tensor(numbers, dtype=like.dtype, device=like.device)
        return self.constants[key]

    def whole(self, value: Tensor | float) -> Tensor:
        """A tensor or a number as a tensor."""
        return value if isinstance(value, Tensor) else self.constant(value)

    def add(
        self, operand: Operand, grad: Tensor, factor: float = 1.0, *, fresh: bool = False
    ) -> None:
        """``factor · grad`` goes to the gradient of a slot; ``fresh`` says that nobody else holds ``grad``."""
        if isinstance(operand, float):
            return
        old = self.grads.get(operand)
        if old is not None:
            self.grads[operand] = old.add_(grad, alpha=factor)
        elif factor != 1.0:
            self.grads[operand] = grad * factor
        else:
            self.grads[operand] = grad if fresh else grad.clone()


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
        if self.base is not None:
            total = tape.tensor(self.base)
        else:
            slot, c = terms.pop(0)
            total = tape.tensor(slot)
            if c != 1:
                total = total * float(c)
        for slot, c in terms:
            total = torch.add(total, tape.tensor(slot), alpha=c)
        tape.slots[self.out] = total + self.constant if self.constant else total

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        for slot, c in self.terms:
            tape.add(slot, grad, float(c))
        if self.base is not None:
            tape.add(self.base, grad, fresh=True)


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
class Holds(Operation):
    """Whether one of some rows ``slot ≤ bound`` holds."""

    out: int
    rows: tuple[tuple[int, float], ...]

    def reads(self) -> Iterable[Operand]:
        return [slot for slot, _ in self.rows]

    def run(self, tape: Tape) -> None:
        held = None
        for slot, bound in self.rows:
            own = tape.tensor(slot) <= bound
            held = own if held is None else held.logical_or_(own)
        tape.slots[self.out] = held


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
        tape.slots[self.out] = torch.where(
            tape.tensor(self.mask), tape.tensor(self.otherwise), tape.tensor(self.end)
        )

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        mask = tape.tensor(self.mask)
        if not isinstance(self.end, float):
            tape.add(self.end, grad.masked_fill(mask, 0.0), fresh=True)
        if not isinstance(self.otherwise, float):
            tape.add(self.otherwise, grad.masked_fill(~mask, 0.0), fresh=True)


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
        result = tape.tensor(self.slots[0])
        for slot in self.slots[1:]:
            result = (torch.maximum if self.is_largest else torch.minimum)(
                result, tape.tensor(slot)
            )
        if self.number is not None:
            result = (
                result.clamp(min=self.number) if self.is_largest else result.clamp(max=self.number)
            )
        tape.slots[self.out] = result

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None:
            return
        if len(self.slots) == 1:
            assert self.number is not None
            tape.add(self.slots[0], self._within(grad, tape.tensor(self.slots[0])), fresh=True)
            return
        value = tape.tensor(self.out)
        for place, slot in enumerate(self.slots):
            other = tape.tensor(slot) != value
            tape.add(slot, grad.masked_fill(other, 0.0), fresh=True)
            if place + 1 < len(self.slots):
                grad = grad.masked_fill(~other, 0.0)

    def _within(self, grad: Tensor, value: Tensor) -> Tensor:
        """The gradient where a whole number was not cut, in one operation; it is not cut at the number itself."""
        assert self.number is not None
        ends = (self.number - 0.5, inf) if self.is_largest else (-inf, self.number + 0.5)
        found: Tensor = torch.ops.aten.hardtanh_backward(grad, value, *ends)
        return found


@dataclass
class Choice(Operation):
    """The value of an output: an option is chosen, then a whole number in its interval.

    Args:
        out: the slot of the output.
        place: its row among raw values; ``None`` for a hidden one, whose interval is a point.
        ends: for every option the ends between which values are taken.
        tests: for every option the ends that it needs to be possible (``None``: it always is).
        logits: the first logit, if there is more than one option.
        start: where the second option starts, if that depends on what was chosen before.
    """

    out: int
    place: int | None
    ends: tuple[tuple[Operand, Operand], ...]
    tests: tuple[tuple[int, ...] | None, ...]
    logits: int | None
    start: Start | None = None

    def reads(self) -> Iterable[Operand]:
        tests = [slot for test in self.tests if test is not None for slot in test]
        before = () if self.start is None else self.start.before
        return [*(end for pair in self.ends for end in pair), *tests, *before]

    def run(self, tape: Tape) -> None:
        lower, upper = self._interval(tape)
        if self.place is None:
            tape.slots[self.out] = (
                lower if isinstance(lower, Tensor) else torch.full_like(tape.values[0], lower)
            )
            return
        if self.takes_points and isinstance(tape.inside, Share):
            tape.width[self.place].zero_()
            tape.slots[self.out] = tape.values[self.place].copy_(tape.whole(lower))
            return
        tape.slots[self.out] = tape.inside.take(tape, self.place, lower, upper)

    @property
    def takes_points(self) -> bool:
        """Whether every option is a single number."""
        return all(isinstance(low, float) and low == high for low, high in self.ends)

    def _interval(self, tape: Tape) -> tuple[Tensor | float, Tensor | float]:
        if self.logits is None:
            return tape.at(self.ends[0][0]), tape.at(self.ends[0][1])
        assert tape.logits is not None
        logits = tape.logits[self.logits : self.logits + len(self.ends)]
        possible = [self._possible(tape, test) for test in self.tests]
        if len(self.ends) == 2:
            later = logits[1]
            if self.start is not None:
                counted = [tape.tensor(slot) for slot in self.start.before]
                table = tape.table(self.start.offsets, logits)
                later = later + offset_of(self.start, counted, logits, table)
            second = later > logits[0]
            if possible[0] is not None:
                second = possible[0] <= second  # it is larger, or the first is impossible
            if possible[1] is not None:
                second = second.logical_and_(possible[1])
            tape.chosen[self.out] = second
            (low0, high0), (low1, high1) = self.ends
            lower = _either(tape, second, low0, low1)
            return lower, lower if self.takes_points else _either(tape, second, high0, high1)
        return self._largest(tape, logits.unbind(0), possible)

    def _largest(
        self, tape: Tape, logits: Sequence[Tensor], possible: Sequence[Tensor | None]
    ) -> tuple[Tensor | float, Tensor | float]:
        """The ends of the possible option with the largest logit, found one by one: faster than a maximum over rows."""
        best = logits[0]
        if possible[0] is not None:
            best = best.masked_fill(~possible[0], -torch.inf)
        number_type = torch.int8 if len(logits) < 128 else torch.int32  # labels come by the hundred
        index = torch.zeros(best.shape, dtype=number_type, device=best.device)
        lower, upper = (tape.at(end) for end in self.ends[0])
        for number in range(1, len(logits)):
            better = logits[number] > best
            mask = possible[number]
            if mask is not None:
                better = better.logical_and_(mask)
            if number + 1 < len(logits):
                best = torch.where(better, logits[number], best)
            index.masked_fill_(better, number)
            lower = _replaced(tape, better, lower, self.ends[number][0])
            upper = (
                lower if self.takes_points else _replaced(tape, better, upper, self.ends[number][1])
            )
        tape.chosen[self.out] = index
        return lower, upper

    @staticmethod
    def _possible(tape: Tape, test: tuple[int, ...] | None) -> Tensor | None:
        if test is None:
            return None
        mask = tape.tensor(test[0])
        for other in test[1:]:
            mask = mask & tape.tensor(other)
        return mask

    def back(self, tape: Tape) -> None:
        grad = tape.grads.pop(self.out, None)
        if grad is None or self.place is None:
            if grad is not None:
                tape.add(self.ends[0][0], grad, fresh=True)
            return
        moves = any(not isinstance(end, float) for pair in self.ends for end in pair)
        lower, upper = tape.inside.back(tape, self.place, grad, ends=moves)
        if moves:
            zero = tape.constant(0.0)
            for number, (low, high) in enumerate(self.ends):
                mask = self._not_chosen(tape, number)
                for end, part in ((low, lower), (high, upper)):
                    if not isinstance(end, float):
                        tape.add(
                            end,
                            part if mask is None else torch.where(mask, zero, part),
                            fresh=mask is not None,
                        )

    def _not_chosen(self, tape: Tape, number: int) -> Tensor | None:
        if self.logits is None:
            return None
        chosen = tape.chosen[self.out]
        if len(self.ends) == 2:
            return ~chosen if number else chosen
        return chosen != number


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


def _either(tape: Tape, second: Tensor, first: Operand, other: Operand) -> Tensor | float:
    if first == other and isinstance(first, float) == isinstance(other, float):
        return tape.at(first)
    return torch.where(second, tape.tensor(other), tape.tensor(first))


def _replaced(tape: Tape, mask: Tensor, old: Tensor | float, new: Operand) -> Tensor | float:
    """``new`` where the mask holds."""
    if isinstance(old, float) and old == new and isinstance(new, float):
        return old
    return torch.where(mask, tape.tensor(new), tape.whole(old))


# --- building -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Operations in the order of computing.

    Args:
        outputs: how many outputs there are, hidden ones too; variable i of the cascade is slot i.
        variables: how many variables there are, the known ones last.
        slots: how many slots there are.
        operations: that fill them.
        guards: truth values that have to hold for a row to have any output.
        constants: numbers as tensors, kept from run to run.
    """

    outputs: int
    variables: int
    slots: int
    operations: tuple[Operation, ...]
    guards: tuple[int, ...]
    constants: dict[Constant, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def run(
        self, inside: Inside, read: Tensor, logits: Tensor | None, known: Sequence[Tensor]
    ) -> tuple[Tensor, Tape]:
        """The whole numbers of all outputs, ``(D, B)``, NaN in rows that have none, and how they came about.

        Args:
            inside: how raw values become whole numbers between two ends.
            read: ``(D, B)``, what it reads of them.
            logits: ``(O, B)``, finite.
            known: the known variables, ``(B,)`` each.
        """
        values, width = torch.empty_like(read), torch.empty_like(read)
        slots: list[Tensor | None] = [None] * self.slots
        slots[self.variables - len(known) : self.variables] = known
        tape = Tape(
            slots,
            inside,
            read.unbind(0),
            width.unbind(0),
            values.unbind(0),
            logits,
            self.constants,
        )
        for operation in self.operations:
            operation.run(tape)
        nothing = (width < 0).any(0)
        for guard in self.guards:
            nothing = nothing | ~tape.tensor(guard)
        for value in known:
            nothing = nothing | value.isnan()
        return values.masked_fill(nothing, torch.nan), tape

    def back(self, tape: Tape, read: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """Gradients of the raw values, ``(D, B)``, and of the known variables, for one of the outputs."""
        found = torch.zeros_like(grad)
        tape.grads = dict(enumerate(grad.clone().unbind(0)))
        tape.read_grads = found.unbind(0)
        for operation in reversed(self.operations):
            operation.back(tape)
        known = [tape.grads.get(slot) for slot in range(self.outputs, self.variables)]
        return tape.inside.read_back(read, found), known


def program_of(
    cascade: Cascade, first_logit: dict[int, int], starts: Mapping[int, Start]
) -> Program:
    """The program of a cascade; ``first_logit`` says where the logits of an output begin, ``starts`` what they mean."""
    builder = _Builder(cascade, first_logit, starts)
    guards = tuple(builder.holds(clause) for clause in cascade.guards)
    for step in cascade.steps:
        builder.step(step)
    operations = _needed(builder.operations, guards)
    return Program(len(cascade.outputs), len(cascade.ranges), builder.slots, operations, guards)


def _needed(operations: Sequence[Operation], wanted: Iterable[int]) -> tuple[Operation, ...]:
    """The operations without those whose slot nobody reads."""
    read: set[Operand] = set(wanted)
    found: list[Operation] = []
    for operation in reversed(operations):
        if isinstance(operation, Choice) or operation.out in read:
            found.append(operation)
            read.update(operand for operand in operation.reads() if not isinstance(operand, float))
    return tuple(reversed(found))


class _Builder:
    def __init__(
        self, cascade: Cascade, first_logit: dict[int, int], starts: Mapping[int, Start]
    ) -> None:
        self._cascade, self._first_logit, self._starts = cascade, first_logit, starts
        self._ranges = dict(enumerate(cascade.ranges))
        self.slots = len(cascade.ranges)
        self.operations: list[Operation] = []
        self._affine: dict[tuple[Terms, int], int] = {}
        self._meaning: dict[int, tuple[Terms, int]] = {}
        self._made: dict[int, Extreme] = {}
        self._by_term: dict[tuple[int, int], list[tuple[Terms, int]]] = {}
        self._held: dict[Clause, int] = {}
        self._extremes: dict[tuple[object, ...], Operand] = {}

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    # --- affine functions -------------------------------------------------------------------------------------------

    def affine(self, terms: Terms, constant: int) -> Operand:
        """A slot that holds ``constant + Σ c v``."""
        if not terms:
            return float(constant)
        if len(terms) == 1 and terms[0][1] == 1 and not constant:
            return terms[0][0]
        key = (terms, constant)
        if key not in self._affine:
            base = self._best_base(terms, constant)
            if base is None:
                operation = Affine(self._slot(), None, self._with_one_first(terms), float(constant))
            else:
                known = dict(base[0])
                more = tuple((v, c - known.get(v, 0)) for v, c in terms if c != known.get(v, 0))
                operation = Affine(
                    self._slot(), self._affine[base], more, float(constant - base[1])
                )
            self.operations.append(operation)
            self._affine[key] = operation.out
            self._meaning[operation.out] = key
            for term in terms:
                self._by_term.setdefault(term, []).append(key)
        return self._affine[key]

    @staticmethod
    def _with_one_first(terms: Terms) -> Terms:
        return tuple(sorted(terms, key=lambda term: term[1] != 1))

    def _best_base(self, terms: Terms, constant: int) -> tuple[Terms, int] | None:
        """An affine function from before from which this one takes fewer operations than from nothing."""
        wanted = set(terms)
        cost = len(terms) - 1 + any(c != 1 for _, c in terms[:1]) + bool(constant)
        best = None
        for candidate in {key for term in terms for key in self._by_term.get(term, ())[-24:]}:
            own = set(candidate[0])
            if (
                own <= wanted
                and (price := len(wanted) - len(own) + (candidate[1] != constant)) < cost
            ):
                best, cost = candidate, price
        return best

    # --- rows -------------------------------------------------------------------------------------------------------

    def holds(self, clause: Clause) -> int:
        """A slot that says whether one of the rows holds."""
        if clause not in self._held:
            rows = []
            for row in clause:
                slot = self.affine(row.terms, 0)
                assert isinstance(slot, int)
                rows.append((slot, float(row.bound)))
            operation = Holds(self._slot(), tuple(rows))
            self.operations.append(operation)
            self._held[clause] = operation.out
        return self._held[clause]

    def end(self, x: int, row: Row) -> Operand:
        """The end that a row gives to x: ⌈(rest − bound)/a⌉ of a lower one, ⌊(bound − rest)/a⌋ of an upper one."""
        c, rest = row.coefficient(x), row.without(x)
        sign = -1 if c > 0 else 1
        inner = self.affine(tuple((v, sign * a) for v, a in rest), -sign * row.bound)
        if isinstance(inner, float):
            return float(int(inner) // c if c > 0 else -(-int(inner) // -c))
        if abs(c) == 1:
            return inner
        operation = Divided(self._slot(), inner, abs(c), c < 0)
        self.operations.append(operation)
        return operation.out

    def extreme(self, operands: Sequence[Operand], *, largest: bool) -> Operand:
        flat = [part for operand in operands for part in self._flat(operand, largest)]
        slots = self._without_parallel([o for o in flat if not isinstance(o, float)], largest)
        numbers = [o for o in flat if isinstance(o, float)]
        number = (max if largest else min)(numbers) if numbers else None
        if not slots:
            assert number is not None
            return number
        if len(slots) == 1 and number is None:
            return slots[0]
        key = ("extreme", slots, number, largest)
        if key not in self._extremes:
            operation = Extreme(self._slot(), slots, number, largest)
            self.operations.append(operation)
            self._made[operation.out] = operation
            self._extremes[key] = operation.out
        return self._extremes[key]

    def _flat(self, operand: Operand, largest: bool) -> list[Operand]:
        """The arguments of a maximum inside a maximum (a minimum inside a minimum), or the operand itself."""
        inner = None if isinstance(operand, float) else self._made.get(operand)
        if inner is None or inner.is_largest != largest:
            return [operand]
        return [*inner.slots, *([] if inner.number is None else [inner.number])]

    def _without_parallel(self, slots: Sequence[int], largest: bool) -> tuple[int, ...]:
        """Of affine functions that differ by a number only the one that wins."""
        best: dict[object, tuple[int, int]] = {}
        for slot in slots:
            terms, constant = self._meaning.get(slot, (((slot, 1),), 0))
            old = best.get(terms)
            if old is None or (constant > old[0] if largest else constant < old[0]):
                best[terms] = constant, slot
        return tuple(slot for _, slot in best.values())

    def _unless(self, x: int, clause: Clause, end: Operand, otherwise: Operand) -> Operand:
        others = tuple(row for row in clause if not row.coefficient(x))
        if not others or (end == otherwise and type(end) is type(otherwise)):
            return end
        operation = Unless(self._slot(), self.holds(others), end, otherwise)
        self.operations.append(operation)
        return operation.out

    def _crossings(self, low: Operand, high: Operand) -> list[int | bool]:
        """Comparisons that say together whether ``low ≤ high``: of the arguments of maxima and minima, if that is less.

        The maximum and the minimum need not be computed then unless the option is an interval between them.
        """
        lows, highs = self._flat(low, largest=True), self._flat(high, largest=False)
        pairs = [(a, b) for a in lows for b in highs if type(a) is not type(b) or a != b]
        found = [self._order_of(a, b) for a, b in pairs]
        if any(known is False for known in found):
            return [False]
        open_pairs = [pair for pair, known in zip(pairs, found, strict=True) if known is None]
        if len(open_pairs) > 2:
            return [self._at_most(low, high)]
        return [self._at_most(a, b) for a, b in open_pairs]

    def _order_of(self, low: Operand, high: Operand) -> bool | None:
        """Whether ``low ≤ high``, if that is the same in all rows: both are numbers, or differ by one."""
        if isinstance(low, float) and isinstance(high, float):
            return low <= high
        if isinstance(low, float) or isinstance(high, float):
            return None
        (terms, constant), (others, other) = (
            self._meaning.get(slot, (((slot, 1),), 0)) for slot in (low, high)
        )
        return constant <= other if terms == others else None

    def _at_most(self, low: Operand, high: Operand) -> int | bool:
        """A slot that says whether ``low ≤ high``."""
        if isinstance(low, float) and isinstance(high, float):
            return low <= high
        key = ("≤", low, high, type(low), type(high))
        if key not in self._extremes:
            operation = Compared(self._slot(), low, high)
            self.operations.append(operation)
            self._extremes[key] = operation.out
        return int(self._extremes[key])

    # --- steps ------------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        x, bucket = step.variable, step.bucket
        bottom, top = float(bucket.range.lower), float(bucket.range.upper)
        lowers = [self._unless(x, c, self._lower(x, c), bottom) for c in bucket.lower]
        uppers = [self._unless(x, c, self._upper(x, c), top) for c in bucket.upper]
        lower, upper = (
            self.extreme([bottom, *lowers], largest=True),
            self.extreme([top, *uppers], largest=False),
        )
        gaps = [self._gap(x, clause) for clause in bucket.gaps]
        ends: list[tuple[Operand, Operand]] = []
        tests: list[tuple[int, ...] | None] = []
        if step.values is not None:
            for value in step.values:
                ends.append((float(value), float(value)))
                tests.append(self._value_tests(float(value), lower, upper, gaps))
        else:
            for sides in step.sides:
                low = self.extreme(
                    [lower, *(g[1] for g, up in zip(gaps, sides, strict=False) if up)], largest=True
                )
                high = self.extreme(
                    [upper, *(g[0] for g, up in zip(gaps, sides, strict=False) if not up)],
                    largest=False,
                )
                ends.append(self._as_point(low, high))
                tests.append(self._tests(self._crossings(low, high)))
        place = x if x < len(self._cascade.visible) else None
        self.operations.append(
            Choice(
                x,
                place,
                tuple(ends),
                tuple(tests),
                self._first_logit.get(x),
                self._started(self._starts.get(x)),
            )
        )

    def _started(self, start: Start | None) -> Start | None:
        """The start with the sum of what counts in one slot."""
        if start is None or not start.before:
            return start
        slot = self.affine(tuple((v, 1) for v in sorted(start.before)), 0)
        return Start((int(slot),), start.offsets)

    def _lower(self, x: int, clause: Clause) -> Operand:
        return self.extreme(
            [self.end(x, row) for row in clause if row.coefficient(x) < 0], largest=False
        )

    def _upper(self, x: int, clause: Clause) -> Operand:
        return self.extreme(
            [self.end(x, row) for row in clause if row.coefficient(x) > 0], largest=True
        )

    def _gap(self, x: int, clause: Clause) -> tuple[Operand, Operand]:
        """The largest value below a gap, and the smallest above; a gap that other rows close ends just below itself."""
        above, below = self._lower(x, clause), self._upper(x, clause)
        just_below = self._less_one(above)
        return self._unless(
            x, clause, self.extreme([below, just_below], largest=False), just_below
        ), above

    def _less_one(self, operand: Operand) -> Operand:
        if isinstance(operand, float):
            return operand - 1.0
        terms, constant = self._meaning.get(operand, (((operand, 1),), 0))
        return self.affine(terms, constant - 1)

    def _value_tests(
        self, value: float, lower: Operand, upper: Operand, gaps: Sequence[tuple[Operand, Operand]]
    ) -> tuple[int, ...] | None:
        found = [self._at_most(lower, value), self._at_most(value, upper)]
        for below, above in gaps:
            sides = [self._at_most(value, below), self._at_most(above, value)]
            if True in sides:
                continue
            slots = [slot for slot in sides if slot is not False]
            operation = Either(self._slot(), tuple(int(slot) for slot in slots))
            self.operations.append(operation)
            found.append(operation.out)
        return self._tests(found)

    def _tests(self, found: Sequence[int | bool]) -> tuple[int, ...] | None:
        if any(test is False for test in found):
            never = Either(self._slot(), ())
            self.operations.append(never)
            return (never.out,)
        return tuple(test for test in found if test is not True) or None

    def _as_point(self, low: Operand, high: Operand) -> tuple[Operand, Operand]:
        """The ends, as one number where these are the only value that a possible interval can have."""
        least, most = self._least(low), self._most(high)
        return (least, least) if least is not None and least == most else (low, high)

    def _least(self, operand: Operand) -> float | None:
        return self._limit(operand, largest=True)

    def _most(self, operand: Operand) -> float | None:
        return self._limit(operand, largest=False)

    def _limit(self, operand: Operand, *, largest: bool) -> float | None:
        """A number that a maximum is never below (a minimum never above), if it shows one."""
        if isinstance(operand, float):
            return operand
        found = self._made.get(operand)
        return found.number if found is not None and found.is_largest == largest else None


@dataclass
class Compared(Operation):
    """Whether ``low ≤ high``."""

    out: int
    low: Operand
    high: Operand

    def reads(self) -> Iterable[Operand]:
        return [self.low, self.high]

    def run(self, tape: Tape) -> None:
        low, high = tape.at(self.low), tape.at(self.high)
        tape.slots[self.out] = low <= high if isinstance(low, Tensor) else high >= low  # type: ignore[assignment]


@dataclass
class Either(Operation):
    """Whether one of some truth values holds; never, if there are none."""

    out: int
    masks: tuple[int, ...]

    def reads(self) -> Iterable[Operand]:
        return self.masks

    def run(self, tape: Tape) -> None:
        if not self.masks:
            tape.slots[self.out] = torch.zeros_like(tape.values[0], dtype=torch.bool)
            return
        held = tape.tensor(self.masks[0])
        for other in self.masks[1:]:
            held = held | tape.tensor(other)
        tape.slots[self.out] = held
