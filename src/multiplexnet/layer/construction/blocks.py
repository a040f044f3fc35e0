"""The blocks of a layer, built: the parts of every term in a float format, and their maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.compiler.terms import Block, Term
from multiplexnet.exact.deadline import GEOMETRY, TABLES, Deadline
from multiplexnet.geometry.moved_equalities import parts_with_moved_equalities
from multiplexnet.geometry.parts import Part
from multiplexnet.geometry.split import parts_of
from multiplexnet.language.formula import Atom, Variable
from multiplexnet.layer.construction.blueprint import Blueprint
from multiplexnet.transforms.base import dtype_name
from multiplexnet.transforms.term_maps import TermMaps

__all__ = ["BuiltBlock", "Moved", "built_blocks", "term_maps"]

Moved = Mapping[Atom, Fraction]


@dataclass(frozen=True)
class BuiltBlock:
    """What a layer made of one block: for every term its parts, and by how much equalities were moved."""

    block: Block
    terms: Sequence[tuple[Sequence[Part], Moved]]

    def maps(self, blueprint: Blueprint) -> TermMaps:
        """The map of its terms."""
        return TermMaps(
            [parts for parts, _ in self.terms],
            self.block.outputs,
            blueprint.dtype,
            inputs=blueprint.compiled.inputs,
            boxes=blueprint.settings.boxes,
            in_turn=blueprint.settings.in_turn,
            precision=blueprint.settings.precision,
        )


def built_blocks(
    blocks: Sequence[Block], blueprint: Blueprint, deadline: Deadline
) -> list[BuiltBlock]:
    """The parts of all terms in the dtype of the layer.

    Raises:
        ThinTermError, EqualityError: a term that the dtype cannot hold.
    """
    form = dtype_name(blueprint.dtype)
    parts = {"exact": _exact_parts, "nearest": parts_with_moved_equalities}[
        blueprint.settings.equality
    ]
    deadline.begin(GEOMETRY, form)
    return [
        BuiltBlock(
            block,
            [parts(term, block.outputs, form, deadline) for term in block.terms],
        )
        for block in blocks
    ]


def term_maps(
    built: Sequence[BuiltBlock], blueprint: Blueprint, deadline: Deadline
) -> list[TermMaps]:
    """The maps of all blocks."""
    deadline.begin(TABLES)
    maps: list[TermMaps] = []
    for own in built:
        deadline.step(len(maps))
        maps.append(own.maps(blueprint))
    return maps


def _exact_parts(
    term: Term, outputs: tuple[Variable, ...], form: str, deadline: Deadline
) -> tuple[tuple[Part, ...], dict[Atom, Fraction]]:
    return parts_of(term, outputs, form, deadline), {}
