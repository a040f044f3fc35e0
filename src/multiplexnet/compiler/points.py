"""Exact points, which atoms hold at them, and which formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.language.formula import And, Atom, Formula, Or, Symbol

__all__ = ["AtomTable", "Bools", "Pool", "Tree"]

Bools = NDArray[np.bool_]

Places = NDArray[np.intp]

LARGEST = 2**62
"""Products up to this size are exact in int64."""


class AtomTable:
    """Atoms as one matrix of integers, so that a point decides all of them at once, exactly.

    Example:
        >>> from multiplexnet.language.formula import Linear, Variable
        >>> x = Variable("x", 0)
        >>> AtomTable([Atom(Linear.of(x) - 1, "<="), Atom(Linear.of(x) * 3 - 1, "==")]).truth({x: Fraction(1, 3)})
        array([ True,  True])
    """

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = tuple(atoms)
        self.place = {atom: i for i, atom in enumerate(self.atoms)}
        self.symbols: tuple[Symbol, ...] = tuple(
            dict.fromkeys(s for atom in atoms for s, _ in atom.linear.summands)
        )
        column = {symbol: j for j, symbol in enumerate(self.symbols)}
        self._left: NDArray[Any] = np.zeros(
            (len(self.atoms), len(self.symbols)), dtype=object
        )
        self._right: NDArray[Any] = np.zeros(len(self.atoms), dtype=object)
        for i, atom in enumerate(self.atoms):
            linear = atom.linear
            denominators = [c.denominator for _, c in linear.summands]
            scale = lcm(linear.constant.denominator, *denominators)
            self._right[i] = int(linear.constant * scale)
            for symbol, c in linear.summands:
                self._left[i, column[symbol]] = int(c * scale)
        self._equal = np.array(
            [atom.relation == "==" for atom in self.atoms], dtype=np.bool_
        )
        self._strict = np.array(
            [atom.relation == "<" for atom in self.atoms], dtype=np.bool_
        )

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """The largest sum of coefficients and the largest constant, as sizes."""
        left = max(abs(self._left).sum(axis=1), default=0)
        right = max(abs(self._right), default=0)
        return left, right

    @cached_property
    def _short(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        left = self._left.astype(np.int64)
        right = self._right.astype(np.int64)
        return left, right

    def truth(self, point: Mapping[Symbol, Fraction]) -> Bools:
        """Which atoms hold at the point. Shape (M,)."""
        values = [point[symbol] for symbol in self.symbols]
        scale = lcm(*(v.denominator for v in values))
        whole = [v.numerator * (scale // v.denominator) for v in values]
        if self._fits(whole, scale):
            A, b = self._short
            sums = A @ np.array(whole, dtype=np.int64) + b * scale
        else:
            sums = self._left @ np.array(whole, dtype=object) + self._right * scale
        zero = np.asarray(sums == 0, dtype=np.bool_)
        negative = np.asarray(sums < 0, dtype=np.bool_)
        return np.where(self._equal, zero, negative | (zero & ~self._strict))

    def _fits(self, whole: Sequence[int], scale: int) -> bool:
        """Whether all products and sums at this point stay within 64 bits."""
        left, right = self._sizes
        most = max(map(abs, whole), default=0)
        largest_number = max(left, right, most, scale)
        largest_sum = left * most + right * scale
        return largest_number < LARGEST and largest_sum < LARGEST


class Tree:
    """A formula in normal form, decided from the truth of its atoms: all parts of one height at once.

    Args:
        formula: atoms, conjunctions and disjunctions.
        place: where the truth of each atom stands.

    Example:
        >>> from multiplexnet.language.formula import And, Linear, Or, Variable
        >>> x, y = (Atom(Linear.of(Variable(name, i)), "<") for i, name in enumerate("xy"))
        >>> tree = Tree(Or((x, And((x, y)))), {x: 0, y: 1})
        >>> tree.holds(np.array([False, True])), tree.holds(np.array([True, False]))
        (False, True)
    """

    def __init__(self, formula: Formula, place: Mapping[Atom, int]) -> None:
        self._atoms = place
        self._places: dict[int, int] = {}  # of every part met so far, by identity
        self._parts = len(place) + 2  # two for what empty parts come to
        self._heights: dict[int, int] = {}
        self._groups: dict[tuple[int, bool], list[And | Or]] = {}
        self._visit(formula)
        self._root = self._places[id(formula)]
        self._levels = [
            (is_and, *self._level(self._groups[height, is_and]))
            for height, is_and in sorted(self._groups)
        ]

    def _visit(self, node: Formula) -> int:
        """The height of a part, which gets a place, as all parts in it do."""
        key = id(node)
        if key in self._heights:
            return self._heights[key]
        match node:
            case Atom():
                self._places[key], self._heights[key] = self._atoms[node], 0
            case And(arguments) | Or(arguments):
                height = 1 + max(map(self._visit, arguments), default=0)
                group = self._groups.setdefault((height, isinstance(node, And)), [])
                group.append(node)
                self._places[key], self._heights[key] = self._parts, height
                self._parts += 1
            case _:
                raise TypeError(f"not in normal form: {node!r}")
        return self._heights[key]

    def _level(self, nodes: Sequence[And | Or]) -> tuple[Places, Places, Places]:
        """Where the values of these parts go, those of their arguments, and where each part's arguments begin."""
        empty = len(self._atoms)
        parts = [
            [self._places[id(a)] for a in node.arguments]
            or [empty + isinstance(node, And)]
            for node in nodes
        ]
        arguments = list(chain.from_iterable(parts))
        begins = np.cumsum([0, *map(len, parts[:-1])])
        targets = [self._places[id(node)] for node in nodes]
        return np.array(targets), np.array(arguments, dtype=np.intp), begins

    def holds(self, true: Bools) -> bool:
        """Whether the formula holds where these atoms do."""
        values = np.zeros(self._parts, dtype=np.bool_)
        values[: len(true)] = true
        values[len(true) + 1] = True
        for is_and, targets, arguments, begins in self._levels:
            combine = np.logical_and if is_and else np.logical_or
            values[targets] = combine.reduceat(values[arguments], begins)
        return bool(values[self._root])


class Pool:
    """Points outside a set, each remembered by the atoms that hold there.

    Example:
        >>> pool = Pool(3)
        >>> pool.add(np.array([True, False, False]))
        >>> pool.excluding([0, 1, 2]), pool.excluding([1, 2, 0]), pool.excluding([0, 1])
        ([2], [2], [1])
    """

    def __init__(self, atoms: int) -> None:
        self._false = np.zeros((64, atoms), dtype=np.bool_)
        self._count = 0

    def add(self, truth: Bools) -> None:
        if self._count == len(self._false):
            self._false = np.concatenate([self._false, np.zeros_like(self._false)])
        self._false[self._count] = ~truth
        self._count += 1

    def excluding(self, atoms: Sequence[int]) -> list[int]:
        """Those of the atoms that are left when every one is dropped, first ones first, without which still at least
        one of the others is false at every point."""
        false = self._false[: self._count, atoms]
        times = false.sum(axis=1)
        kept = []
        for column, atom in enumerate(atoms):
            if (times[false[:, column]] == 1).any():
                kept.append(atom)
            else:
                times -= false[:, column]
        return kept
