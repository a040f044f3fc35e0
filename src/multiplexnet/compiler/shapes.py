"""Rows up to the names of their outputs: what is found of one of many same-shaped blocks holds of all.

Outputs are numbered by the order in which they were declared. Everything that is decided of rows keeps to that order
and to their numbers, so that two groups of rows with the same shape have the same answers, each in its own names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from multiplexnet.language.formula import Atom, Formula, Linear, Relation, Variable

__all__ = ["Shape", "Shaped", "shaped"]


class Row(NamedTuple):
    """A comparison over numbered outputs."""

    summands: tuple[tuple[int, Fraction], ...]
    constant: Fraction
    relation: Relation


Shape = tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Shaped:
    """Groups of rows, and the real outputs that they speak of, in declared order."""

    shape: Shape
    outputs: tuple[Variable, ...]

    def rows_of(self, atoms: Iterable[Atom]) -> tuple[Row, ...]:
        """Comparisons over the outputs, numbered."""
        number = {output: i for i, output in enumerate(self.outputs)}
        return tuple(_numbered(atom, number) for atom in atoms)

    def atoms_of(self, rows: Iterable[Row]) -> tuple[Atom, ...]:
        """Numbered rows as comparisons over the outputs."""
        return tuple(
            Atom(
                Linear(tuple((self.outputs[i], c) for i, c in summands), constant),
                relation,
            )
            for summands, constant, relation in rows
        )


def shaped(*groups: Sequence[Formula]) -> Shaped | None:
    """The shape of groups of comparisons over real outputs; ``None`` if there is anything else in them.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> first, second = parse("a: real; b: real; x: real; y: real; a <= 2*b; x <= 2*y").rules
        >>> shaped([first.formula]).shape == shaped([second.formula]).shape
        True
    """
    found: set[Variable] = set()
    for group in groups:
        for atom in group:
            if not isinstance(atom, Atom):
                return None
            for symbol, _ in atom.linear.summands:
                if not isinstance(symbol, Variable) or symbol.is_input:
                    return None
                found.add(symbol)
    if any(output.is_discrete for output in found):
        return None
    outputs = tuple(sorted(found, key=lambda output: output.index))
    number = {output: i for i, output in enumerate(outputs)}
    shape = tuple(
        tuple(_numbered(atom, number) for atom in group if isinstance(atom, Atom))
        for group in groups
    )
    return Shaped(shape, outputs)


def _numbered(atom: Atom, number: dict[Variable, int]) -> Row:
    summands = tuple(
        (number[symbol], c)
        for symbol, c in atom.linear.summands
        if isinstance(symbol, Variable)
    )
    return Row(summands, atom.linear.constant, atom.relation)
