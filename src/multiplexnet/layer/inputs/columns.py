"""What was given for the inputs of the rules, as the columns of one tensor that a layer computes with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from multiplexnet.compiler.terms import Block
from multiplexnet.language.formula import ONE, Variable
from multiplexnet.layer.construction.blueprint import Blueprint
from multiplexnet.layer.construction.settings import Functions
from multiplexnet.layer.inputs.assumptions import Assumptions
from multiplexnet.layer.inputs.conditions import refuse_broken_inputs
from multiplexnet.layer.inputs.numbers import (
    GivenInput,
    given_inputs,
    input_tensor,
    rounded_input,
)
from multiplexnet.rules import Rules
from multiplexnet.transforms.term_maps import TermMaps
from multiplexnet.verdicts.numbers import refuse_unlisted

__all__ = ["InputColumns"]


@dataclass(frozen=True)
class InputColumns:
    """How a layer reads its inputs.

    Args:
        rules: whose inputs they are.
        given: what is known of each before it is given.
        assumptions: what the rules assume of them.
        conditions: what the rules ask of inputs alone.
        units: for inputs that outputs of a cascade add up to, the step between numbers that they can.
    """

    rules: Rules
    given: tuple[GivenInput, ...]
    assumptions: Assumptions
    conditions: tuple[Block, ...]
    units: Mapping[Variable, Fraction]

    @staticmethod
    def of(
        rules: Rules,
        blueprint: Blueprint,
        blocks: Sequence[Block],
        conditions: Sequence[Block],
    ) -> InputColumns:
        """The inputs of a layer with these blocks, and these conditions on inputs alone."""
        inputs = blueprint.compiled.inputs
        return InputColumns(
            rules,
            given_inputs([*blocks, *conditions], inputs, blueprint.cascades),
            Assumptions.of(rules.specification),
            tuple(conditions),
            _units(blueprint),
        )

    def read(
        self,
        given: Mapping[str, Any],
        like: Tensor,
        conditions: Iterable[TermMaps],
        functions: Functions,
    ) -> Tensor:
        """The inputs side by side, ``(*batch, I)``.

        Args:
            given: by name, the elements of vectors one by one.
            like: ``(*batch, 0)``, in the dtype and on the device of the layer.
            conditions: the maps of the conditions on inputs alone.
            functions: torch code of opaque functions by name.

        Raises:
            ShapeError, DtypeError, InputError: what was found and what was expected.
        """
        columns = [
            input_tensor(own, given[own.variable.name], like) for own in self.given
        ]
        inputs = self.assumptions.kept(torch.stack(columns, -1), given)
        for block, maps in zip(self.conditions, conditions, strict=True):
            met = maps.feasible(inputs, functions=functions)
            if met is not None:
                inputs = refuse_broken_inputs(
                    met.any(-1),
                    inputs,
                    given,
                    block,
                    self.rules.specification,
                    functions,
                )
        return inputs

    def on_grid(self, given: Mapping[str, Any], like: Tensor) -> dict[str, Any]:
        """What was given, each input rounded to numbers that the layer takes; see ``Multiplexer.on_grid``."""
        self.rules.refuse_unknown_inputs(given)
        return {name: self._rounded(name, value, like) for name, value in given.items()}

    def _rounded(self, name: str, value: Any, like: Tensor) -> Any:
        """What was given for an input, a vector included, rounded to the coarsest grid of its elements."""
        refuse_unlisted(name, value)
        own = self.rules.input_groups[name]
        if own[0].unit != ONE:
            return value
        sides = {given.side for given in self.given if given.variable in own}
        side = sides.pop() if len(sides) == 1 else 0
        whole = GivenInput.of(replace(own[0], name=name), side)
        units = [self.units[variable] for variable in own if variable in self.units]
        return rounded_input(whole, value, max(units, default=None), like)


def _units(blueprint: Blueprint) -> dict[Variable, Fraction]:
    """The coarsest step of every input that some cascade has a grid for."""
    units: dict[Variable, Fraction] = {}
    for cascade in blueprint.cascades:
        for place, unit in cascade.input_units.items():
            variable = blueprint.compiled.inputs[place]
            units[variable] = max(units.get(variable, Fraction(0)), unit)
    return units
