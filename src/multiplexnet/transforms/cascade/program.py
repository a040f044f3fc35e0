r"""A cascade as a list of small operations on rows of numbers, each with its own way back.

The operations (:mod:`~multiplexnet.transforms.cascade.operations`) fill a list of *slots*, one tensor ``(B,)`` each:
values of variables, affine functions of them, ends, maxima and minima of ends, truth values. What is the same in all
rows is a plain number and takes no operation. Which operations there are is decided by
:mod:`~multiplexnet.transforms.cascade.builder` when the layer is built, and their calls of torch are written out
(:mod:`~multiplexnet.transforms.cascade.script`).

``back`` goes through the operations in reverse and adds up gradients, as if nothing had been rounded: of a maximum only
the argument that attains it gets any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.transforms.cascade.builder import Builder
from multiplexnet.transforms.cascade.inside import Inside
from multiplexnet.transforms.cascade.operations import Choice, Operation, Tape
from multiplexnet.transforms.cascade.script import (
    Constants,
    Name,
    Script,
    Writer,
    function_text,
)
from multiplexnet.transforms.cascade.start import Start

__all__ = ["Program", "program_of"]

Place = tuple[torch.dtype, torch.device]
Tensors = tuple[list[Tensor], list[Tensor]]
Kept = tuple[Any, ...]
"""What the way back needs: rows that were read, widths, values, numbers, and what ``forward`` kept."""


@dataclass(frozen=True)
class Program:
    """Operations in the order of computing.

    Args:
        outputs: how many outputs there are, hidden ones too; variable i of the cascade is slot i.
        variables: how many variables there are, the known ones last.
        slots: how many slots there are.
        operations: that fill them.
        guards: truth values that have to hold for a row to have any output.
        script: the operations written out.
        numbers: numbers and tables as tensors, kept from run to run.
    """

    outputs: int
    variables: int
    slots: int
    operations: tuple[Operation, ...]
    guards: tuple[int, ...]
    script: Script
    numbers: dict[tuple[Place, Place], Tensors] = field(
        default_factory=dict, compare=False, repr=False
    )

    def run(
        self, read: Tensor, logits: Tensor | None, known: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Kept]:
        """The whole numbers of all outputs, ``(D, B)``, NaN for rows without any and −0 for others, and what is kept.

        −0 is what can be added to any number without a change: ``−0 + 0`` is 0, and ``−0 − 0`` is −0.

        Args:
            read: ``(D, B)``, what it reads of the raw values.
            logits: ``(O, B)``, finite.
            known: the known variables, ``(B,)`` each.
        """
        values, width = torch.empty_like(read), torch.empty_like(read)
        rows = read.unbind(0), width.unbind(0), values.unbind(0)
        constants = self._constants(read, read if logits is None else logits)
        forward, _ = self.script.functions
        options = () if logits is None else logits.unbind(0)
        guards, kept = forward(*rows, options, known, *constants)
        nothing = width.amin(0) < 0
        for guard in guards:
            nothing.logical_or_(guard == 0)
        for value in known:
            nothing.logical_or_(value.isnan())
        refused = torch.full_like(values[0], -0.0).masked_fill_(nothing, torch.nan)
        return values, refused, (*rows, constants[0], kept)

    def _constants(self, like: Tensor, logits: Tensor) -> Tensors:
        """The numbers and the tables of the script."""
        place = (like.dtype, like.device), (logits.dtype, logits.device)
        if place not in self.numbers:
            self.numbers[place] = (
                [_tensor(number, like) for number in self.script.numbers],
                [_tensor(table, logits) for table in self.script.tables],
            )
        return self.numbers[place]

    def back(
        self, inside: Inside, kept: Kept, read: Tensor, grad: Tensor
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Gradients of the raw values, ``(D, B)``, and of the known variables, for one of the outputs.

        ``grad`` is written to.
        """
        found = torch.zeros_like(grad)
        _, back = self.script.functions
        known = back(*kept, grad.unbind(0), found.unbind(0))
        return inside.read_back(read, found), known


def _tensor(number: float | tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(number, dtype=like.dtype, device=like.device)


def program_of(
    cascade: Cascade,
    first_logit: Mapping[int, int],
    starts: Mapping[int, Start],
    limit: int,
    inside: Inside,
) -> Program:
    """The program of a cascade.

    Args:
        cascade: what was compiled.
        first_logit: where the logits of an output begin.
        starts: what they mean.
        limit: whole numbers below this are exact in the dtype that is computed in.
        inside: how raw values become whole numbers between two ends.
    """
    builder = Builder(cascade, first_logit, starts, limit)
    guards = tuple(builder.guard(clause) for clause in cascade.guards)
    for step in cascade.steps:
        builder.step(step)
    operations = _needed(builder.operations, guards)
    options = sum(step.size for step in cascade.steps if step.size > 1)
    shape = Shape(
        len(cascade.visible), len(cascade.outputs), options, len(cascade.known)
    )
    return Program(
        len(cascade.outputs),
        len(cascade.ranges),
        builder.slots,
        operations,
        guards,
        script_of(operations, guards, builder.slots, shape, inside),
    )


@dataclass(frozen=True)
class Shape:
    """How many outputs are visible, outputs there are, options they have, and known variables."""

    visible: int
    outputs: int
    options: int
    known: int


def script_of(
    operations: Sequence[Operation],
    guards: Sequence[int],
    slots: int,
    shape: Shape,
    inside: Inside,
) -> Script:
    """The operations, run once forwards and once backwards on names."""
    writer = Writer()
    numbers, tables = Constants("n", writer), Constants("o", writer)
    read, width, values = (writer.row(letter, shape.visible) for letter in "rwx")
    logits = writer.row("l", shape.options)
    known = writer.row("k", shape.known)
    given: list[Any] = [None] * slots
    given[shape.outputs : shape.outputs + shape.known] = known
    names: Any = (given, inside, read, width, values, logits, numbers, tables)
    tape = Tape(*names)
    for operation in operations:
        operation.run(tape)
    there = writer.lines
    held = [_text(tape.slots[guard]) for guard in guards]
    writer.lines = []
    grads, found = writer.row("g", shape.visible), writer.row("f", shape.visible)
    tape.grads = cast(Any, dict(enumerate(grads)))
    tape.read_grads = cast(Any, found)
    for operation in reversed(operations):
        operation.back(tape)
    passed = range(shape.outputs, shape.outputs + shape.known)
    results = [_text(tape.grads.get(slot)) for slot in passed]
    used = {own for line in writer.lines for own in line.reads} | set(results)
    made = {line.out for line in there} | {own.text for own in (*logits, *known)}
    kept = sorted(used & made)
    rows: dict[str, Sequence[Name]] = {"read": read, "width": width, "values": values}
    constants = list(numbers.values())
    forward = {**rows, "logits": logits, "known": known, "numbers": constants}
    forward["tables"] = list(tables.values())
    back = {**rows, "numbers": constants, "kept": [Name(own, writer) for own in kept]}
    back |= {"grads": grads, "found": found}
    return Script(
        function_text("forward", forward, there, [held, kept]),
        function_text("back", back, writer.lines, [results]),
        tuple(numbers),
        tuple(tables),
    )


def _text(value: Any) -> str:
    """The name of a tensor, or that there is none."""
    return value.text if isinstance(value, Name) else "None"


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
