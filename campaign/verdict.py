"""Exact verdicts on rows of floats, independent of the library: no code of the layer, none of ``Rules.satisfied``.

The rules are evaluated twice. First in float64 for all rows at once, where every number carries a bound of its error
(``u = 2⁻⁵³`` for each rounding, and a little for the rounding of the bound itself): a comparison whose difference is
larger than its error is decided. Rows that this leaves open, those on or near a boundary, are decided in integers:
every float is an integer times a power of two, every constant a fraction, and nothing is rounded.

While the processor takes subnormal numbers for zero, the floats are not asked at all: the integers are read from the
bits, which no mode changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import inf, lcm, nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from campaign.flushing import is_flushing
from campaign.sentences import COMPARISONS, Node, Sentence

__all__ = ["Judge"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

UNIT = 2.0**-53
GROWTH = 1 + 2.0**-48
"""Covers the roundings of an error bound that is itself computed in floats."""
UNDERFLOW = 1e-300
"""More than an underflowing product can lose."""


class Judge:
    """Whether rows obey a sentence.

    Args:
        sentence: the rules.

    Attributes:
        in_floats: rows that float64 decided.
        in_integers: rows that needed integers.

    Example:
        >>> from campaign.sentences import Declared, number, variable
        >>> third = Node("<", (variable("x"), number(Fraction(1, 3))))
        >>> judge = Judge(Sentence((Declared("x"),), (third,)))
        >>> judge(np.array([[0.0], [1 / 3], [0.33333333333333337], [np.nan]])).tolist()
        [True, True, False, False]
        >>> judge.in_floats, judge.in_integers
        (2, 2)
    """

    def __init__(self, sentence: Sentence) -> None:
        self.names = [*(d.name for d in sentence.declared), *map(str, sentence.calls)]
        self.labels = {d.name: d.labels for d in sentence.declared}
        self.domains = [
            (
                i,
                _float_beside(d.values.start, inf),
                _float_beside(d.values.stop - 1, -inf),
            )
            for i, d in enumerate(sentence.declared)
            if d.values is not None
        ]
        self.rules = Node("and", sentence.rules)
        self.in_floats = self.in_integers = 0

    def __call__(self, rows: Floats) -> Bools:
        """The verdicts on rows of shape (N, number of declared variables and of calls, whose values are data)."""
        verdict: Bools = np.array(np.isfinite(rows).all(axis=1))
        for i, low, high in self.domains:
            column = np.where(verdict, rows[:, i], 0.5)
            verdict &= (column == np.floor(column)) & (column >= low) & (column <= high)
            verdict &= ~_is_subnormal(rows[:, i])
        candidates = np.flatnonzero(verdict)
        yes, no = self._in_floats(rows[candidates])
        open_ = candidates[~(yes | no)]
        verdict[candidates[no]] = False
        self.in_floats += len(rows) - len(open_)
        self.in_integers += len(open_)
        if len(open_):
            verdict[open_] = _Integers(self, rows[open_]).truth(self.rules)
        return verdict

    def _in_floats(self, rows: Floats) -> Known:
        if is_flushing():
            nothing = np.zeros(len(rows), np.bool_)
            return nothing, nothing
        with np.errstate(all="ignore"):
            return _Enclosures(self, rows).truth(self.rules)


def _float_beside(value: int, side: float) -> float:
    """The float next to a whole number on one side, which is the number itself if it is one."""
    near = float(value)
    if Fraction(near) == value or (Fraction(near) > value) == (side > 0):
        return near
    return nextafter(near, side)


# --- floats with error bounds ---------------------------------------------------------------------------------------

Enclosed = tuple[Floats, Floats]
"""Values, and by how much each is off at most."""
Known = tuple[Bools, Bools]
"""Where something surely holds, and where it surely does not."""


def _key(node: Node) -> str:
    """The column of a variable by its name, that of a call by its text."""
    return str(node.value) if node.op == "variable" else str(node)


class _Enclosures:
    def __init__(self, judge: Judge, rows: Floats) -> None:
        self.columns = dict(zip(judge.names, rows.T, strict=True))
        self.labels = judge.labels
        self.count = len(rows)
        self.zeros = np.zeros(len(rows))

    def number(self, node: Node) -> Enclosed:
        match node.op:
            case "number":
                near, off = _constant(node.value)
                return self.zeros + near, self.zeros + off
            case "variable" | "call":
                return self.columns[_key(node)], self.zeros
            case "+":
                return reduce(_sum, map(self.number, node.parts))
            case "*":
                return _product(*_constant(node.value), self.number(node.parts[0]))
            case "max" | "min":
                pick = np.maximum if node.op == "max" else np.minimum
                values, errors = zip(*map(self.number, node.parts), strict=True)
                return reduce(pick, values), reduce(np.maximum, errors)
            case "abs":
                value, error = self.number(node.parts[0])
                return np.abs(value), error
        yes, no = self.truth(node.parts[0])
        (a, ea), (b, eb) = map(self.number, node.parts[1:])
        return np.where(yes, a, b), np.where(yes, ea, np.where(no, eb, np.inf))

    def truth(self, node: Node) -> Known:
        match node.op:
            case "and" | "or":
                return (
                    self._all(node.parts) if node.op == "and" else self._any(node.parts)
                )
            case "not":
                yes, no = self.truth(node.parts[0])
                return no, yes
            case "implies":
                (p, not_p), (q, not_q) = map(self.truth, node.parts)
                return not_p | q, p & not_q
            case "iff" | "xor":
                (p, not_p), (q, not_q) = map(self.truth, node.parts)
                same = (p & q) | (not_p & not_q)
                other = (p & not_q) | (not_p & q)
                return (same, other) if node.op == "iff" else (other, same)
            case "case":
                (c, not_c), (p, not_p), (q, not_q) = map(self.truth, node.parts)
                return (c & p) | (not_c & q) | (p & q), (c & not_p) | (
                    not_c & not_q
                ) | (not_p & not_q)
            case "flag":
                on = self.columns[str(node.value)] == 1
                return on, ~on
            case "is":
                here = self.columns[str(node.value)] == _position(node, self.labels)
                return here, ~here
            case "in":
                return self._any(
                    [Node("==", (node.parts[0], other)) for other in node.parts[1:]]
                )
        return self._compared(node)

    def _all(self, nodes: Sequence[Node]) -> Known:
        yes = np.ones(self.count, np.bool_)
        no = np.zeros(self.count, np.bool_)
        for own_yes, own_no in map(self.truth, nodes):
            yes = yes & own_yes
            no = no | own_no
        return yes, no

    def _any(self, nodes: Sequence[Node]) -> Known:
        yes = np.zeros(self.count, np.bool_)
        no = np.ones(self.count, np.bool_)
        for own_yes, own_no in map(self.truth, nodes):
            yes = yes | own_yes
            no = no & own_no
        return yes, no

    def _compared(self, node: Node) -> Known:
        (a, ea), (b, eb) = map(self.number, node.parts)
        value, error = _sum((a, ea), (-b, eb))
        above = value > error
        below = value < -error
        equal = (value == 0) & (error == 0)
        match node.op:
            case "<=":
                return below | equal, above
            case "<":
                return below, above | equal
            case ">=":
                return above | equal, below
            case ">":
                return above, below | equal
            case "==":
                return equal, above | below
        assert node.op == "!="
        return above | below, equal


def _constant(value: Fraction | str | None) -> tuple[float, float]:
    assert isinstance(value, Fraction)
    try:
        near = float(value)
    except OverflowError:
        return 0.0, np.inf
    return near, 0.0 if Fraction(near) == value else abs(near) * 2 * UNIT + UNDERFLOW


def _sum(left: Enclosed, right: Enclosed) -> Enclosed:
    (a, ea), (b, eb) = left, right
    value = a + b
    return value, (ea + eb + np.abs(value) * UNIT) * GROWTH


def _product(factor: float, error: float, node: Enclosed) -> Enclosed:
    value, own = node
    result = factor * value
    off = np.abs(factor) * own + error * (np.abs(value) + own) + np.abs(result) * UNIT
    return result, np.where((value == 0) & (own == 0), 0.0, off * GROWTH + UNDERFLOW)


def _position(node: Node, labels: Mapping[str, tuple[str, ...]]) -> int:
    return labels[str(node.value)].index(str(node.parts[0].value))


# --- integers -------------------------------------------------------------------------------------------------------

Ratios = tuple[NDArray[Any], int]
"""Integers, and what all of them are divided by."""


class _Integers:
    def __init__(self, judge: Judge, rows: Floats) -> None:
        self.labels = judge.labels
        numerators, denominator = _integers(rows)
        self.columns: dict[str, Ratios] = {
            n: (numerators[:, i], denominator) for i, n in enumerate(judge.names)
        }
        self.count = len(rows)

    def number(self, node: Node) -> Ratios:
        match node.op:
            case "number":
                assert isinstance(node.value, Fraction)
                return np.array(
                    [node.value.numerator] * self.count, dtype=object
                ), node.value.denominator
            case "variable" | "call":
                return self.columns[_key(node)]
            case "*":
                assert isinstance(node.value, Fraction)
                value, denominator = self.number(node.parts[0])
                return (
                    value * node.value.numerator,
                    denominator * node.value.denominator,
                )
            case "abs":
                value, denominator = self.number(node.parts[0])
                return np.abs(value), denominator
            case "case":
                chosen = self.truth(node.parts[0])
                (a, b), denominator = _alike(list(map(self.number, node.parts[1:])))
                return np.where(chosen, a, b), denominator
        values, denominator = _alike(list(map(self.number, node.parts)))
        join: dict[str, Callable[[Any, Any], Any]] = {
            "+": np.add,
            "max": np.maximum,
            "min": np.minimum,
        }
        return reduce(join[node.op], values), denominator

    def truth(self, node: Node) -> Bools:
        if node.op in COMPARISONS:
            return self._compared(node.op, *node.parts)
        match node.op:
            case "flag":
                value, denominator = self.columns[str(node.value)]
                return _bools(value == denominator)
            case "is":
                value, denominator = self.columns[str(node.value)]
                return _bools(value == denominator * _position(node, self.labels))
            case "in":
                parts = [
                    self._compared("==", node.parts[0], other)
                    for other in node.parts[1:]
                ]
                return reduce(np.logical_or, parts)
        parts = [self.truth(part) for part in node.parts]
        match node.op:
            case "and":
                return reduce(np.logical_and, parts, np.ones(self.count, np.bool_))
            case "or":
                return reduce(np.logical_or, parts, np.zeros(self.count, np.bool_))
            case "not":
                return ~parts[0]
            case "implies":
                return ~parts[0] | parts[1]
            case "case":
                return np.where(*parts)
        same = parts[0] == parts[1]
        return _bools(same if node.op == "iff" else ~same)

    def _compared(self, op: str, left: Node, right: Node) -> Bools:
        (a, b), _ = _alike([self.number(left), self.number(right)])
        compare: dict[str, Callable[[Any, Any], Any]] = {
            "<=": np.less_equal,
            "<": np.less,
            ">=": np.greater_equal,
            ">": np.greater,
            "==": np.equal,
            "!=": np.not_equal,
        }
        return _bools(compare[op](a, b))


def _bools(array: Any) -> Bools:
    return np.asarray(array, dtype=np.bool_)


def _alike(ratios: Sequence[Ratios]) -> tuple[list[NDArray[Any]], int]:
    """The numerators over one denominator."""
    common = lcm(*(denominator for _, denominator in ratios))
    return [values * (common // denominator) for values, denominator in ratios], common


def _bits(rows: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The exponents and the fractions of floats, as integers."""
    bits = np.ascontiguousarray(rows, dtype=np.float64).view(np.int64)
    return (bits >> 52) & 0x7FF, bits & ((1 << 52) - 1)


def _is_subnormal(rows: Floats) -> Bools:
    exponents, fractions = _bits(rows)
    return _bools((exponents == 0) & (fractions != 0))


def _integers(rows: Floats) -> tuple[NDArray[Any], int]:
    """Floats as integers over one power of two."""
    exponents, fractions = _bits(rows)
    whole = np.where(exponents == 0, fractions, fractions | (1 << 52)) * np.where(
        np.signbit(rows), -1, 1
    )
    shifts = np.where(whole == 0, 0, np.maximum(exponents, 1) - 1075)
    least = min(0, int(shifts.min()))
    return whole.astype(object) << (shifts - least).astype(object), 1 << -least
