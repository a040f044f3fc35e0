"""Faults planted in the cascade: projections, guards, the grid, rounding, inputs, carriers, options, masks.

Each is a name, what is done instead, and its patches; ``benchmarks/faults.py`` hunts them among sentences that become
cascades.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from multiplexnet.compiler.cascade import build, carriers, grid, record
from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.input_parts import Bit, Form, Known, right_side
from multiplexnet.compiler.cascade.projection import between, options, project
from multiplexnet.compiler.cascade.projection.between import Between
from multiplexnet.compiler.cascade.projection.project import Projection
from multiplexnet.compiler.cascade.projection.rows import Row
from multiplexnet.language.formula import Atom
from multiplexnet.transforms.cascade import map as maps
from multiplexnet.transforms.cascade import operations, walk

__all__ = ["CASCADE_FAULTS", "one_gap"]

Patch = tuple[Any, str, Any]


def _dropped() -> Sequence[Patch]:
    honest = project.projection

    def projected(*arguments: Any) -> Projection:
        found = honest(*arguments)
        return replace(found, clauses=found.clauses[:-1])

    return [(build, "projection", projected)]


def _real_shadow() -> Sequence[Patch]:
    honest = between.between

    def shadow(*arguments: Any) -> Between:
        found = honest(*arguments)
        return replace(found, clauses=((found.real,),), exact=True)

    return [(project, "between", shadow)]


def _unguarded() -> Sequence[Patch]:
    honest = build._Search._eliminated

    def eliminated(self: Any, own: Any) -> Cascade:
        return replace(honest(self, own), guards=())

    return [(build._Search, "_eliminated", eliminated)]


def _too_fine() -> Sequence[Patch]:
    honest = grid._step

    def step(*arguments: Any) -> Fraction:
        found = honest(*arguments)
        return found if found == 1 else found / 4

    return [(grid, "_step", step)]


def _inexact() -> Sequence[Patch]:
    return [
        (build._Search, "_coarser", lambda self, own, rows: {}),
        (maps, "EXACT", 2**300),
        (record, "EXACT", 2**300),
    ]


def _outward() -> Sequence[Patch]:
    def run(self: operations.Divided, tape: operations.Tape) -> None:
        quotient = tape.tensor(self.slot) / float(self.divisor)
        tape.slots[self.out] = quotient.floor() if self.is_lower else quotient.ceil()

    return [(operations.Divided, "run", run)]


def _closed() -> Sequence[Patch]:
    honest = grid.Builder.row

    def row(self: grid.Builder, atom: Atom) -> Row:
        return honest(
            self, replace(atom, relation="<=") if atom.relation == "<" else atom
        )

    return [(grid.Builder, "row", row)]


def _without_bits() -> Sequence[Patch]:
    honest = right_side

    def without(
        form: Form, sign: int, value: Fraction, strict: bool
    ) -> tuple[dict[Known, int], int]:
        added, bound = honest(form, sign, value, strict)
        return {
            one: times for one, times in added.items() if not isinstance(one, Bit)
        }, bound

    return [(grid, "right_side", without)]


def _lost_side() -> Sequence[Patch]:
    honest = options.sides_of

    def sides_of(*arguments: Any) -> Any:
        found = honest(*arguments)
        return found[1:] if found is not None and len(found) > 1 else found

    return [(build, "sides_of", sides_of)]


def one_gap() -> Sequence[Patch]:
    """Of many gaps one is seen."""
    honest = walk.Walk._ranked

    def ranked(self: walk.Walk, lower: Any, upper: Any, gaps: Any) -> list[walk.Option]:
        found = honest(self, lower, upper, gaps[:1])
        return [*found, *found[-1:] * (len(gaps) - 1)]

    return [(walk.Walk, "_ranked", ranked)]


CASCADE_FAULTS: Mapping[str, tuple[str, Callable[[], Sequence[Patch]]]] = {
    "cascade: resolvents": ("one clause of every projection is dropped", _dropped),
    "cascade: dark shadow": (
        "room over the real numbers is taken for a whole number",
        _real_shadow,
    ),
    "cascade: room": (
        "gaps are taken never to block everything",
        lambda: [(project._Search, "_room", lambda self, lower: 2.0**60)],
    ),
    "cascade: guards": ("inputs that leave nothing are let in", _unguarded),
    "cascade: spacing": ("the grid is four times as fine as the format", _too_fine),
    "cascade: exactness": ("sums may exceed 2^53", _inexact),
    "cascade: rounding": ("ends that are divided are rounded outward", _outward),
    "cascade: strictness": ("< is taken for <=", _closed),
    "cascade: bits of inputs": (
        "what an input has beyond the grid is left out",
        _without_bits,
    ),
    "cascade: rests": (
        "the carrier of an equality does not get what the input has beyond the grid",
        lambda: [(maps.CascadeMap, "_with_rests", lambda self, x, inputs, sign=1.0: x)],
    ),
    "cascade: carriers": (
        "outputs of both signs may carry",
        lambda: [(carriers, "_is_positive", lambda ends: True)],
    ),
    "cascade: sides": ("the first option of every output is lost", _lost_side),
    "cascade: masks": (
        "options without a value are taken",
        lambda: [
            (operations.Choice, "_possible", staticmethod(lambda tape, test: None))
        ],
    ),
}
"""By name: what is done instead, and the patches."""
