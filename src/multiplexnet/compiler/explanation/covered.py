"""A proof that no input is left without an output, which needs no quantifiers: outputs that follow the inputs.

Whether every u has an x with ``A x + P u ≤ b`` is a question with a quantifier, and z3 takes minutes for a dense set
with twenty inputs. An affine function x = c_0 + C u that stays inside for every u in its range answers it. A linear
program in floats proposes one; its slack in every row, at the worst of all inputs, is then computed in fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np

from multiplexnet.exact import lp
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.formula import (
    Atom,
    Formula,
    Linear,
    Or,
    Real,
    Symbol,
    Variable,
    conjuncts,
)

__all__ = ["is_covered"]

LARGEST = 2_000
"""Rows times inputs beyond which no linear program is tried."""
MODERATE = 10**100
"""The largest number with which one is tried."""


def is_covered(formula: Formula, deadline: Deadline = NEVER) -> bool:
    """Whether it is proved that every input in its range has an output; ``False`` proves nothing.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> rules = parse("x: real; y: real; u: input[1, 2]; 0 <= x; 0 <= y; 0.5 <= x + y <= u")
        >>> from multiplexnet.language.formula import conjunction
        >>> is_covered(conjunction(rule.formula for rule in rules.rules))
        True
    """
    alternatives = formula.arguments if isinstance(formula, Or) else (formula,)
    return any(_is_answered(conjuncts(part), deadline) for part in alternatives)


def _is_answered(rows: Sequence[Formula], deadline: Deadline) -> bool:
    atoms = [row for row in rows if isinstance(row, Atom)]
    if len(atoms) < len(rows) or not all(map(_is_of_reals, atoms)):
        return False
    rest = _without_equalities(atoms)
    if not rest:
        return rest is not None
    system = _system(rest)
    return system is not None and system.is_answered(deadline)


def _is_of_reals(row: Atom) -> bool:
    """Whether all symbols are real variables."""
    return all(
        isinstance(s, Variable) and isinstance(s.domain, Real)
        for s, _ in row.linear.summands
    )


def _without_equalities(rows: Iterable[Atom]) -> list[Atom] | None:
    """The inequalities, with an output eliminated for each equality; ``None`` if one has no output."""
    rest = list(rows)
    while equality := next((row for row in rest if row.relation == "=="), None):
        outputs = [(s, c) for s, c in equality.linear.summands if not _is_input(s)]
        if not outputs:
            return None
        output, factor = outputs[-1]
        rest.remove(equality)
        rest = [_solved(row, output, equality.linear * (1 / factor)) for row in rest]
    return rest


def _solved(row: Atom, output: Symbol, zero: Linear) -> Atom:
    """The row without an output, of which ``zero``, a sum with it once, is 0."""
    return Atom(row.linear - zero * row.linear.coefficient(output), row.relation)


def _is_input(symbol: Symbol) -> bool:
    return isinstance(symbol, Variable) and symbol.is_input


@dataclass(frozen=True)
class _System:
    """``A x + P u ≤ b``, or ``<`` in rows that are strict; u between its ends."""

    A: list[list[Fraction]]
    P: list[list[Fraction]]
    b: list[Fraction]
    strict: list[bool]
    ends: list[tuple[Fraction, Fraction]]

    def is_answered(self, deadline: Deadline) -> bool:
        if len(self.b) * len(self.ends) > LARGEST or not self._is_moderate:
            return False
        found = lp.moving_centre(
            np.array(self.A, dtype=np.float64),
            np.array(self.P, dtype=np.float64).reshape(len(self.b), len(self.ends)),
            np.array(self.b, dtype=np.float64),
            np.array([float(low + high) / 2 for low, high in self.ends]),
            np.array([float(high - low) / 2 for low, high in self.ends]),
            deadline,
        )
        if found is None or not all(np.isfinite(each).all() for each in found):
            return False
        constant, slope = ([*map(Fraction, each.ravel().tolist())] for each in found)
        return all(self._is_kept(i, constant, slope) for i in range(len(self.b)))

    @property
    def _is_moderate(self) -> bool:
        """Whether a linear program in floats has a chance: none of the numbers is too large for it."""
        numbers = chain(*self.A, *self.P, self.b, *self.ends)
        return all(abs(number) <= MODERATE for number in numbers)

    def _is_kept(
        self, i: int, constant: Sequence[Fraction], slope: Sequence[Fraction]
    ) -> bool:
        """Whether the row holds for every input."""
        inputs = len(self.ends)
        own = [(j, c) for j, c in enumerate(self.A[i]) if c]
        slack = self.b[i] - sum(c * constant[j] for j, c in own)
        for k, (low, high) in enumerate(self.ends):
            moved = self.P[i][k] + sum(c * slope[j * inputs + k] for j, c in own)
            slack -= moved * (high if moved > 0 else low)
        return slack > 0 if self.strict[i] else slack >= 0


def _system(rows: Sequence[Atom]) -> _System | None:
    """Inequalities of real variables as matrices; ``None`` if inputs have no ends, or a row has no output."""
    symbols = dict.fromkeys(s for row in rows for s, _ in row.linear.summands)
    inputs = [s for s in symbols if _is_input(s)]
    outputs = [s for s in symbols if not _is_input(s)]
    ends = [found for found in map(_ends, inputs) if found is not None]
    tied = all(any(row.linear.coefficient(s) for s in outputs) for row in rows)
    if len(ends) < len(inputs) or not tied:
        return None
    return _System(
        [[row.linear.coefficient(s) for s in outputs] for row in rows],
        [[row.linear.coefficient(s) for s in inputs] for row in rows],
        [-row.linear.constant for row in rows],
        [row.relation == "<" for row in rows],
        ends,
    )


def _ends(symbol: Symbol) -> tuple[Fraction, Fraction] | None:
    """The range of an input, if it has both ends."""
    if not isinstance(symbol, Variable) or not isinstance(symbol.domain, Real):
        return None
    low, high = symbol.domain.lower, symbol.domain.upper
    return None if low is None or high is None else (low, high)
