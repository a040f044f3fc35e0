"""Rules that were asked about lately, compiled, and their layers; and the situation that a picture shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from multiplexnet import Multiplexer, Rules
from multiplexnet.errors import QuestionError
from multiplexnet.playground.answers.values import amount, inputs_of, named
from multiplexnet.playground.asked import Question
from multiplexnet.playground.library import (
    FORMATS,
    Block,
    Cascade,
    Compiled,
    Plan,
    Variable,
    planned,
)

__all__ = [
    "DTYPES",
    "MOST_REGIONS",
    "Situation",
    "layer",
    "ordered",
    "refuse_many",
    "situation",
]

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
REMEMBERED = 8
MOST_REGIONS = 200


@lru_cache(REMEMBERED)
def _rules(text: str) -> Rules:
    rules = Rules(text)
    if not rules.outputs:
        raise QuestionError(
            "the rules have no outputs to draw: declare one, as in `x: real`"
        )
    return rules


@lru_cache(REMEMBERED)
def _plan(text: str, dtype: str) -> Plan:
    """Which outputs a layer of this dtype computes by terms, and which one after another."""
    return planned(_rules(text).specification, "auto", FORMATS[dtype])


@lru_cache(REMEMBERED)
def _compiled(text: str, dtype: str) -> Compiled:
    """The terms of those outputs that have any."""
    plan = _plan(text, dtype)
    rules = _rules(text)
    written = Rules.from_specification(plan.terms) if plan.cascades else rules
    return written.compile(nested=True)


def _refuse_functions(rules: Rules) -> None:
    if rules.specification.functions:
        names = ", ".join(rules.specification.functions)
        raise QuestionError(
            f"the rules call {names}, which is code that the playground does not have: build the layer in Python, "
            "with functions={…}"
        )


@lru_cache(REMEMBERED)
def layer(text: str, dtype: str) -> Multiplexer:
    """The layer of these rules, ready for use (``eval()``)."""
    rules = _rules(text)
    _refuse_functions(rules)
    if _plan(text, dtype).cascades:
        return Multiplexer(rules, dtype=DTYPES[dtype]).eval()
    compiled = _compiled(text, dtype)
    return Multiplexer.from_compiled(rules, compiled, dtype=DTYPES[dtype]).eval()


@lru_cache(REMEMBERED)
def ordered(text: str, dtype: str, order: tuple[Variable, ...]) -> list[Cascade]:
    """The cascades that compute these outputs before all others that rules tie to them."""
    specification = _rules(text).specification
    plan = planned(specification, "cascade", FORMATS[dtype], order=list(order))
    return [cascade for _, cascade in plan.cascades]


@dataclass(frozen=True)
class Situation:
    """Rules, the outputs on the axes, and values of inputs.

    Args:
        text: the rules as written.
        rules: as read.
        dtype: of the layer, by name.
        axes: one output or two.
        inputs: a value for every input, in the formulas' words; a real one is a number of the dtype.
    """

    text: str
    rules: Rules
    dtype: str
    axes: tuple[Variable, ...]
    inputs: dict[Variable, Fraction]

    @property
    def compiled(self) -> Compiled:
        """The terms."""
        return _compiled(self.text, self.dtype)

    @property
    def layer(self) -> Multiplexer:
        return layer(self.text, self.dtype)

    @property
    def columns(self) -> list[int]:
        """Where the outputs on the axes stand among all."""
        return [self.rules.outputs.index(v) for v in self.axes]

    @property
    def blocks(self) -> list[Block]:
        """The blocks that the axes belong to; the others do not matter for the picture."""
        return [
            block
            for block in self.compiled.blocks
            if set(block.outputs) & set(self.axes)
        ]

    @property
    def cascades(self) -> list[Cascade]:
        """What is computed one output after another."""
        return [cascade for _, cascade in _plan(self.text, self.dtype).cascades]

    @property
    def is_cascade(self) -> bool:
        """Whether an axis has no terms."""
        axes = set(self.axes)
        return any(axes & set(cascade.visible) for cascade in self.cascades)

    def input_tensors(self, rows: int) -> dict[str, Any]:
        """The inputs as a layer takes them, the same for every row; a vector or matrix as one tensor."""
        columns: dict[str, list[Tensor]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for variable, value in self.inputs.items():
            number = float(amount(variable, value))
            column = torch.full((rows,), number, dtype=DTYPES[self.dtype])
            name, index = variable.place
            columns.setdefault(name, []).append(column)
            shapes[name] = tuple(i + 1 for i in index)
        return {
            name: torch.stack(own, -1).reshape(rows, *shapes[name])
            for name, own in columns.items()
        }


def situation(asked: Question) -> Situation:
    """What the page asks about."""
    rules = _rules(asked.text)
    dtype = asked.choice("dtype", list(DTYPES))
    axes = tuple(named(rules.outputs, asked.names("axes"), "output")) or _first(
        rules.outputs
    )
    if len(axes) > 2 or len(set(axes)) < len(axes):
        raise QuestionError("a picture has one axis or two different ones")
    inputs = inputs_of(rules, asked.typed("inputs"), dtype)
    return Situation(asked.text, rules, dtype, axes, inputs)


def refuse_many(there: Situation) -> None:
    """Raises ``QuestionError`` if there are more regions than can be looked at."""
    count = prod(block.size for block in there.blocks)
    if count > MOST_REGIONS:
        names = " and ".join(v.name for v in there.axes)
        raise QuestionError(
            f"{names} have {count:,} terms, too many to be drawn (at most {MOST_REGIONS}): choose other outputs"
        )


def _first(outputs: Sequence[Variable]) -> tuple[Variable, ...]:
    """Two outputs to begin with: real ones if there are two."""
    reals = [v for v in outputs if not v.is_discrete]
    return tuple(reals if len(reals) > 1 else outputs)[:2]
