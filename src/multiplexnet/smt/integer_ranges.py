"""Finite ranges for integers that came without one, as z3 and SMT-LIB constants do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import z3

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import And, Atom, Formula, Int, Relation, Variable

__all__ = ["WIDEST", "integer_ranges"]

WIDEST = 1_000_000
"""How many values an integer may have."""

SECONDS = 10
"""How long z3 may look for bounds."""


def integer_ranges(
    known: Mapping[str, tuple[Fraction | None, Fraction | None]],
    formulas: Iterable[Formula],
    expressions: Sequence[z3.BoolRef],
) -> dict[str, Int]:
    """A range for every integer that contains all values the rules allow.

    Bounds come from rules with one variable, such as ``n >= 0``; where these leave a side open, z3 is asked what the
    rules together imply.

    Args:
        known: the integers by name, with the bounds known beforehand.
        formulas: the rules.
        expressions: the rules in z3, and what else is known.

    Raises:
        RuleSyntaxError: the rules allow infinitely many values, or more than ``WIDEST``.

    Example:
        >>> n = z3.Int("n")
        >>> integer_ranges({"n": (None, None)}, [], [z3.Or(n == 1, n == 7)])
        {'n': Int(lower=1, upper=7)}
    """
    sides = {name: _Sides(name, *bounds) for name, bounds in known.items()}
    for atom in _outer_atoms(formulas):
        _narrow(sides, atom)
    if any(s.is_open for s in sides.values()):
        _ask_z3(list(sides.values()), expressions)
    return {name: s.range() for name, s in sides.items()}


@dataclass
class _Sides:
    """What is known so far of the range of one integer."""

    name: str
    lower: Fraction | int | None
    upper: Fraction | int | None

    def at_least(self, bound: Fraction | int) -> None:
        if self.lower is None or self.lower < bound:
            self.lower = bound

    def at_most(self, bound: Fraction | int) -> None:
        if self.upper is None or bound < self.upper:
            self.upper = bound

    @property
    def is_open(self) -> bool:
        return self.lower is None or self.upper is None

    def known_z3(self, context: z3.Context) -> Iterator[z3.BoolRef]:
        if self.lower is not None:
            yield z3.Int(self.name, context) >= math.ceil(self.lower)
        if self.upper is not None:
            yield z3.Int(self.name, context) <= math.floor(self.upper)

    def range(self) -> Int:
        if self.lower is None or self.upper is None:
            side = "below" if self.lower is None else "above"
            raise RuleSyntaxError(
                f"the integer {self.name} is not bounded {side}: integers must be finite, "
                f"add rules such as {self.name} >= 0 and {self.name} <= 9"
            )
        # Bounds that contradict each other are kept in order: the rules they come from tell of the contradiction.
        lower, upper = sorted((math.ceil(self.lower), math.floor(self.upper)))
        if upper - lower >= WIDEST:
            raise RuleSyntaxError(
                f"the integer {self.name} ranges from {lower} to {upper}: more than {WIDEST:,} values, "
                "bound it more tightly or make it a real"
            )
        return Int(lower, upper)


def _outer_atoms(formulas: Iterable[Formula]) -> Iterator[Atom]:
    """The atoms that hold in any case."""
    stack = list(formulas)
    while stack:
        formula = stack.pop()
        if isinstance(formula, And):
            stack.extend(formula.arguments)
        elif isinstance(formula, Atom):
            yield formula


def _narrow(sides: Mapping[str, _Sides], atom: Atom) -> None:
    if len(atom.linear.summands) != 1:
        return
    symbol, coefficient = atom.linear.summands[0]
    if not isinstance(symbol, Variable) or symbol.name not in sides:
        return
    bound = -atom.linear.constant / coefficient
    side = sides[symbol.name]
    if atom.relation == "==" or coefficient > 0:
        side.at_most(_last(bound, atom.relation))
    if atom.relation == "==" or coefficient < 0:
        side.at_least(-_last(-bound, atom.relation))


def _last(bound: Fraction, relation: Relation) -> int:
    """The last integer up to the bound, or below it if the relation is strict."""
    if relation == "<":
        return math.ceil(bound) - 1
    return math.floor(bound)


def _ask_z3(sides: Sequence[_Sides], expressions: Sequence[z3.BoolRef]) -> None:
    context = expressions[0].ctx if expressions else z3.main_ctx()
    optimize = z3.Optimize(ctx=context)
    optimize.set(priority="box", timeout=SECONDS * 1000)
    optimize.add(*expressions)
    for s in sides:
        optimize.add(*s.known_z3(context))
    open_sides = [s for s in sides if s.is_open]
    constants = [z3.Int(s.name, context) for s in open_sides]
    least = [optimize.minimize(c) for c in constants]
    most = [optimize.maximize(c) for c in constants]
    answer = optimize.check()
    for s, low, high in zip(open_sides, least, most, strict=True):
        if answer == z3.unsat:
            _widen(s)
        elif answer == z3.sat:
            _settle(s, low.value(), high.value())


def _widen(sides: _Sides) -> None:
    """Any wide range will do where the rules contradict each other without it."""
    if sides.lower is None:
        sides.lower = (sides.upper or 0) - WIDEST // 2
    if sides.upper is None:
        sides.upper = sides.lower + WIDEST // 2


def _settle(sides: _Sides, low: z3.ArithRef, high: z3.ArithRef) -> None:
    """Takes over the bounds that z3 found; an infinite one is not a number and is left open."""
    if z3.is_int_value(low):
        sides.at_least(low.as_long())
    if z3.is_int_value(high):
        sides.at_most(high.as_long())
