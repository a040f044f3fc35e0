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
from multiplexnet.playground.answers.values import middle, named, values_of
from multiplexnet.playground.asked import Asked
from multiplexnet.playground.library import Block, Compiled, Variable

__all__ = ["DTYPES", "MOST_REGIONS", "Situation", "layer", "refuse_many", "situation"]

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
        raise QuestionError("the rules have no outputs to draw: declare one, as in `x: real`")
    return rules


@lru_cache(REMEMBERED)
def _compiled(text: str) -> Compiled:
    return _rules(text).compile(nested=True)


@lru_cache(REMEMBERED)
def layer(text: str, dtype: str) -> Multiplexer:
    """The layer of these rules, ready for use (``eval()``)."""
    rules = _rules(text)
    if rules.specification.functions:
        names = ", ".join(rules.specification.functions)
        raise QuestionError(
            f"the rules call {names}, which is code that the playground does not have: build the layer in Python, "
            "with functions={…}"
        )
    return Multiplexer.from_compiled(rules, _compiled(text), dtype=DTYPES[dtype]).eval()


@dataclass(frozen=True)
class Situation:
    """Rules, the outputs on the axes, and values of inputs.

    Args:
        text: the rules as written.
        rules: as read.
        dtype: of the layer, by name.
        axes: one output or two.
        inputs: a number of that dtype for every input.
    """

    text: str
    rules: Rules
    dtype: str
    axes: tuple[Variable, ...]
    inputs: dict[Variable, Fraction]

    @property
    def compiled(self) -> Compiled:
        """The terms."""
        return _compiled(self.text)

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
        return [block for block in self.compiled.blocks if set(block.outputs) & set(self.axes)]

    def input_tensors(self, rows: int) -> dict[str, Any]:
        """The inputs as a layer takes them, the same for every row; a vector as one tensor."""
        columns: dict[str, list[Tensor]] = {}
        for variable, number in self.inputs.items():
            column = torch.full((rows,), float(number), dtype=DTYPES[self.dtype])
            columns.setdefault(variable.place[0], []).append(column)
        vectors = {v.place[0] for v in self.inputs if v.place[1]}
        return {
            name: torch.stack(own, -1) if name in vectors else own[0]
            for name, own in columns.items()
        }


def situation(asked: Asked) -> Situation:
    """What the page asks about."""
    rules = _rules(asked.text)
    dtype = asked.choice("dtype", list(DTYPES))
    given = {v.name: middle(v) for v in rules.inputs} | asked.numbers("inputs")
    axes = tuple(named(rules.outputs, asked.names("axes"), "output")) or _first(rules.outputs)
    if len(axes) > 2 or len(set(axes)) < len(axes):
        raise QuestionError("a picture has one axis or two different ones")
    inputs = values_of(rules.inputs, given, dtype, "input")
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
