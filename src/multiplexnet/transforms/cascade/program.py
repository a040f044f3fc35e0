r"""A cascade as a list of small operations on rows of numbers, each with its own way back.

The operations (:mod:`~multiplexnet.transforms.cascade.operations`) fill a list of *slots*, one tensor ``(B,)`` each:
values of variables, affine functions of them, ends, maxima and minima of ends, truth values. What is the same in all
rows is a plain number and takes no operation. Which operations there are is decided by
:mod:`~multiplexnet.transforms.cascade.builder` when the layer is built. A slot is given up after it was read for the
last time, so that the next one takes its memory, which is still in the cache.

``back`` goes through the operations in reverse and adds up gradients, as if nothing had been rounded: of a maximum only
the argument that attains it gets any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.transforms.cascade.builder import Builder
from multiplexnet.transforms.cascade.inside import Inside
from multiplexnet.transforms.cascade.operations import Choice, Numbers, Operation, Tape
from multiplexnet.transforms.cascade.start import Start

__all__ = ["Program", "program_of"]

Place = tuple[torch.dtype, torch.device]


@dataclass(frozen=True)
class Program:
    """Operations in the order of computing.

    Args:
        outputs: how many outputs there are, hidden ones too; variable i of the cascade is slot i.
        variables: how many variables there are, the known ones last.
        slots: how many slots there are.
        operations: that fill them.
        given_up: for every operation the slots that nobody needs after it.
        guards: truth values that have to hold for a row to have any output.
        numbers: numbers as tensors, kept from run to run.
    """

    outputs: int
    variables: int
    slots: int
    operations: tuple[Operation, ...]
    given_up: tuple[tuple[int, ...], ...]
    guards: tuple[int, ...]
    numbers: dict[Place, Numbers] = field(
        default_factory=dict, compare=False, repr=False
    )

    def run(
        self,
        inside: Inside,
        read: Tensor,
        logits: Tensor | None,
        known: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, Tape]:
        """The whole numbers of all outputs, ``(D, B)``, NaN for rows that have none and −0 for others, and the tape.

        −0 is what can be added to any number without a change: ``−0 + 0`` is 0, and ``−0 − 0`` is −0.

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
            () if logits is None else logits.unbind(0),
            self._numbers(read),
            self._numbers(read if logits is None else logits),
        )
        for operation, given_up in zip(self.operations, self.given_up, strict=True):
            operation.run(tape)
            for slot in given_up:
                slots[slot] = None
        nothing = width.amin(0) < 0
        for guard in self.guards:
            nothing.logical_or_(tape.tensor(guard) == 0)
        for value in known:
            nothing.logical_or_(value.isnan())
        refused = torch.full_like(values[0], -0.0).masked_fill_(nothing, torch.nan)
        return values, refused, tape

    def _numbers(self, like: Tensor) -> Numbers:
        place = like.dtype, like.device
        if place not in self.numbers:
            self.numbers[place] = Numbers.like(like)
        return self.numbers[place]

    def back(
        self, tape: Tape, read: Tensor, grad: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Gradients of the raw values, ``(D, B)``, and of the known variables, for one of the outputs.

        ``grad`` is written to.
        """
        found = torch.zeros_like(grad)
        tape.grads = dict(enumerate(grad.unbind(0)))
        tape.read_grads = found.unbind(0)
        for operation in reversed(self.operations):
            operation.back(tape)
        known = [tape.grads.get(slot) for slot in range(self.outputs, self.variables)]
        return tape.inside.read_back(read, found), known


def program_of(
    cascade: Cascade,
    first_logit: Mapping[int, int],
    starts: Mapping[int, Start],
    limit: int,
) -> Program:
    """The program of a cascade.

    Args:
        cascade: what was compiled.
        first_logit: where the logits of an output begin.
        starts: what they mean.
        limit: whole numbers below this are exact in the dtype that is computed in.
    """
    builder = Builder(cascade, first_logit, starts, limit)
    guards = tuple(builder.guard(clause) for clause in cascade.guards)
    for step in cascade.steps:
        builder.step(step)
    operations = _needed(builder.operations, guards)
    return Program(
        len(cascade.outputs),
        len(cascade.ranges),
        builder.slots,
        operations,
        _given_up(operations, {*guards, *range(len(cascade.ranges))}),
        guards,
    )


def _needed(
    operations: Sequence[Operation], wanted: Iterable[int]
) -> tuple[Operation, ...]:
    """The operations without those whose slot nobody reads."""
    read = set(wanted)
    found: list[Operation] = []
    for operation in reversed(operations):
        if isinstance(operation, Choice) or operation.out in read:
            found.append(operation)
            read.update(own for own in operation.reads() if isinstance(own, int))
    return tuple(reversed(found))


def _given_up(
    operations: Sequence[Operation], kept: set[int]
) -> tuple[tuple[int, ...], ...]:
    """For every operation the slots that neither a later one nor the way back needs."""
    for operation in operations:
        kept.update(own for own in operation.keeps() if isinstance(own, int))
    found: list[tuple[int, ...]] = []
    for operation in reversed(operations):
        read = {own for own in operation.reads() if isinstance(own, int)}
        last = sorted(read - kept)
        kept |= read
        found.append(tuple(last))
    return tuple(reversed(found))
