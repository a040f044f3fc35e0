"""What follows from comparisons without a solver: «A and B imply A», and ``x <= 1`` implies ``x <= 2``.

Two comparisons with the same left side, up to a factor, are compared by their numbers. For a plain conjunction with a
thousand dense rows that is all the proof there is, where a solver would take minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from multiplexnet.language.formula import Atom, Formula, Symbol, compare, conjuncts

__all__ = ["Comparisons"]

Left = tuple[tuple[Symbol, ...], tuple[int, ...]]
"""The left side of a comparison: symbols, and coprime whole coefficients of which the first is positive."""
Limit = tuple[Fraction, bool]
"""A bound and whether it is open; the greater one is the weaker one above, read with a minus below."""


@dataclass
class _Bounds:
    """What is known of one left side: ``left <= upper`` and ``-left <= lower``, open or not."""

    upper: Limit | None = None
    lower: Limit | None = None


class Comparisons:
    """Comparisons that hold.

    Example:
        >>> from multiplexnet.language.formula import Linear, Variable
        >>> x = Linear.of(Variable("x", 0))
        >>> known = Comparisons([Atom(x * 2 - 2, "<=")])
        >>> known.imply(Atom(x - 3, "<")), known.imply(Atom(x - 1, "<")), known.imply(Atom(-x + 1, "<="))
        (True, False, False)
    """

    def __init__(self, formulas: Iterable[Formula] = ()) -> None:
        self._bounds: dict[Left, _Bounds] = {}
        for formula in formulas:
            for part in conjuncts(formula):
                if isinstance(part, Atom) and part.linear.summands:
                    self._add(part)

    def _add(self, atom: Atom) -> None:
        left, factor = _left_of(atom)
        known = self._bounds.setdefault(left, _Bounds())
        bound = -atom.linear.constant * abs(factor)
        is_open = atom.relation == "<"
        if factor > 0 or atom.relation == "==":
            upper = bound if factor > 0 else -bound
            known.upper = _stronger(known.upper, (upper, is_open))
        if factor < 0 or atom.relation == "==":
            lower = bound if factor < 0 else -bound
            known.lower = _stronger(known.lower, (lower, is_open))

    def imply(self, atom: Atom) -> bool:
        """Whether the comparison follows from one of these, or an equality from two."""
        if not atom.linear.summands:
            return compare(atom.linear.constant, atom.relation)
        left, factor = _left_of(atom)
        known = self._bounds.get(left)
        if known is None:
            return False
        bound = -atom.linear.constant * abs(factor)
        wanted = (bound, atom.relation == "<")
        own, other = (
            (known.upper, known.lower) if factor > 0 else (known.lower, known.upper)
        )
        if atom.relation == "==":
            return _reaches(own, (bound, False)) and _reaches(other, (-bound, False))
        return _reaches(own, wanted)


def _left_of(atom: Atom) -> tuple[Left, Fraction]:
    """The left side, and the number that the comparison's own is multiplied with to get it."""
    whole, unit = atom.linear.whole
    divisor = gcd(*whole)
    if whole[0] < 0:
        divisor = -divisor
    if divisor != 1:
        whole = tuple(c // divisor for c in whole)
    return (atom.linear.symbols, whole), Fraction(unit, divisor)


def _stronger(one: Limit | None, other: Limit) -> Limit:
    return other if one is None or _reaches(other, one) else one


def _reaches(known: Limit | None, wanted: Limit) -> bool:
    """Whether a known limit is at least as strong as the wanted one."""
    if known is None:
        return False
    return known[0] < wanted[0] or (known[0] == wanted[0] and known[1] >= wanted[1])
