"""What the compiler hands on: independent blocks, each a choice between terms, each term a conjunction of rows.

::

    Compiled   one block after another, all of them hold            (and)
      Block    a choice: at least one of its terms holds            (or)
        Term   rows a·x ≤ b, a·x < b, a·x = b, discrete outputs fixed (and); ``blocks`` for an independent rest
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

from multiplexnet.language.curves import Tangent
from multiplexnet.language.formula import (
    Atom,
    Formula,
    Linear,
    Specification,
    Variable,
    conjunction,
    disjunction,
)

__all__ = ["Block", "Compiled", "Proof", "Term", "with_inner"]


@dataclass(frozen=True)
class Term:
    """One conjunction φ_k: a polyhedron in the real outputs, and one value for every discrete output.

    Args:
        rows: canonical atoms (coprime integer coefficients) over real outputs, inputs and opaque functions, in
            canonical order. Equalities are explicit, also those that inequalities only imply together; no row
            follows from the others.
        fixed: the discrete outputs of the block and their values.
        blocks: parts that are independent of ``rows`` and of each other once this term is chosen. Empty unless
            the block was decomposed to stay within the budget of terms.
    """

    rows: tuple[Atom, ...]
    fixed: tuple[tuple[Variable, Fraction], ...] = ()
    blocks: tuple[Block, ...] = ()

    def __repr__(self) -> str:
        from multiplexnet.language.text import formula_text

        own = formula_text(replace(self, blocks=()).formula)
        if not self.blocks:
            return f"Term({own})"
        return f"Term({own}, and {len(self.blocks)} inner blocks)"

    @property
    def equalities(self) -> tuple[Atom, ...]:
        return tuple(row for row in self.rows if row.relation == "==")

    @property
    def inequalities(self) -> tuple[Atom, ...]:
        return tuple(row for row in self.rows if row.relation != "==")

    @cached_property
    def formula(self) -> Formula:
        fixed = [
            Atom(Linear.of(variable) - number, "==") for variable, number in self.fixed
        ]
        inner = [block.formula for block in self.blocks]
        return conjunction([*self.rows, *fixed, *inner])

    def to_z3(self) -> Any:
        """The term as a z3 expression in z3's main context."""
        from multiplexnet.smt.questions import to_z3

        return to_z3(self.formula)

    @cached_property
    def size(self) -> int:
        """The number of plain terms that this one stands for."""
        return prod(block.size for block in self.blocks)

    @cached_property
    def count(self) -> int:
        """As ``size``, but conditions on inputs alone, blocks without outputs, are no choice and do not count."""
        choices = [block for block in self.blocks if block.outputs]
        return prod(sum(term.count for term in block.terms) for block in choices)


@dataclass(frozen=True)
class Block:
    """A choice between terms over outputs that no other block mentions.

    Args:
        outputs: the outputs of the block in declared order.
        terms: the alternatives in canonical order; logit k of the block means ``terms[k]``.
    """

    outputs: tuple[Variable, ...]
    terms: tuple[Term, ...]

    @cached_property
    def formula(self) -> Formula:
        return disjunction(term.formula for term in self.terms)

    @cached_property
    def size(self) -> int:
        """The number of plain terms in disjunctive normal form."""
        return sum(term.size for term in self.terms)


@dataclass(frozen=True)
class Proof:
    """What a fresh solver proved of a compilation.

    Args:
        sound: every term implies the rules.
        complete: the rules imply the disjunction of the terms.
        solver: name and version of the solver.
        checks: the number of questions it was asked.
    """

    sound: bool
    complete: bool
    solver: str
    checks: int


@dataclass(frozen=True)
class Compiled:
    """The rules in disjunctive normal form, block by block.

    Args:
        outputs: all outputs in declared order; each belongs to exactly one block.
        inputs: all inputs in declared order.
        blocks: independent parts, ordered by their first output.
        complete: whether the terms contain every point that obeys the rules (``cover=`` gives a part of them).
        covered: with ``cover=``, the share of the given obeying rows that some term contains.
        proof: what was proved.
        seconds: the time it took.
        specification: the rules that were compiled, if they are known.
        tangents: facts about norms by which terms were left out that have no point.
    """

    outputs: tuple[Variable, ...]
    inputs: tuple[Variable, ...]
    blocks: tuple[Block, ...]
    proof: Proof
    complete: bool = True
    covered: Fraction | None = None
    seconds: float = 0.0
    specification: Specification | None = None
    tangents: tuple[Tangent, ...] = ()

    @property
    def terms(self) -> Iterator[tuple[Block, Term]]:
        for block in self.blocks:
            for term in block.terms:
                yield block, term

    @property
    def formula(self) -> Formula:
        return conjunction(block.formula for block in self.blocks)


def with_inner(blocks: Iterable[Block]) -> list[Block]:
    """The blocks, then those that their terms go on in, each once however often it is shared."""
    found = list(blocks)
    seen = {id(block) for block in found}
    for block in found:  # it grows while we walk
        for inner in (inner for term in block.terms for inner in term.blocks):
            if id(inner) not in seen:
                seen.add(id(inner))
                found.append(inner)
    return found
