"""Tangents of norms: linear facts by which terms with curved walls are proved empty.

The search for terms and the proof take a norm for a number of which nothing is known. What they find is right whatever
the number is: a norm is only ever bounded from above, so it occurs in terms as it occurs in the rules. But a term may
have no point although its numbers could be chosen: ``norm(x) <= 1 and x[0] >= 2``. Then there are *tangents*,

    Σ weight_i · direction_i · argument_i  ≤  norm        if  Σ weight_i · direction_i² ≤ 1,

which is the inequality of Cauchy and Schwarz, and with a few of them the contradiction is one of linear arithmetic, for
every solver to follow. A search in floats ends where the walls miss each other least, and the tangents are those of
that point. A term that touches a curved wall in one point is not proved empty, since it is not: it has no room, and
geometry refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import sqrt

import numpy as np

from multiplexnet.compiler.equalities import symbols_of
from multiplexnet.exact import lp
from multiplexnet.exact.cones import Reach, reaches, root_above
from multiplexnet.exact.deadline import Deadline
from multiplexnet.exact.interior import FloatCone, Walls, deepest
from multiplexnet.language.curves import Tangent, root
from multiplexnet.language.formula import (
    Atom,
    Formula,
    Linear,
    Norm,
    Symbol,
    Variable,
    holds,
    norm_in,
    symbols,
)
from multiplexnet.smt.search import Sandbox

__all__ = ["along_axes", "has_norm", "reached", "refutation", "sides"]

WORK = 20_000_000
"""z3's ``rlimit`` for one question."""
FURTHEST = 2**200
"""Numbers beyond this, or its inverse, are left to others."""
LONG = 128
"""Numbers with more bits than this are long."""
BITS = 40
"""Of the numbers of a direction."""


def has_norm(formula: Formula) -> bool:
    """Whether a norm occurs in the formula."""
    return any(isinstance(symbol, Norm) for symbol in symbols(formula))


def refutation(
    rows: Sequence[Atom], known: Sequence[Formula], sandbox: Sandbox
) -> list[Tangent] | None:
    """Tangents with which the rows contradict each other; ``None`` if none were found: there may be points.

    Args:
        rows: of a term, norms among them.
        known: what holds anyway.
        sandbox: where z3 is asked, which decides.
    """
    norms = dict.fromkeys(n[0] for row in rows if (n := norm_in(row.linear)))
    if not norms:
        return None
    bounds = [part for part in known if isinstance(part, Atom)]
    if any(_is_far(row) for row in (*rows, *bounds)):
        return None  # geometry says so
    if len(rows) == 1 and not bounds and _has_middle(rows[0]):
        return None
    program = _Program([*rows, *bounds])
    depth, point = program.deepest(sandbox.deadline)
    if depth > 0:
        return None
    axes = [tangent for norm in norms for tangent in along_axes(norm)]
    for found in (axes, [*axes, *(_at(norm, point) for norm in norms)]):
        facts = [tangent.atom for tangent in found]
        questions = sandbox.questions([*known, *facts], work=WORK)
        if questions.answer(rows) is False:
            return found
    return None


def _has_middle(row: Atom) -> bool:
    """Whether the point where the norm is least is known, and obeys."""
    found = norm_in(row.linear)
    if found is None or len(row.linear.summands) > 1:
        return False
    ends = reached(found[0])
    point = {s: reach.middle for s, reach in ends.items() if isinstance(s, Variable)}
    every = {s for argument in found[0].arguments for s in argument.symbols}
    return every == point.keys() and holds(row, point)


def _is_far(row: Atom) -> bool:
    """Whether a row has numbers that floats should not be asked about."""
    linears = [row.linear]
    weights: tuple[Fraction, ...] = ()
    if found := norm_in(row.linear):
        linears += found[0].arguments
        weights = found[0].weights
    numbers = [c for linear in linears for _, c in linear.summands]
    numbers += [*weights, *(linear.constant for linear in linears)]
    return any(c and not 1 / FURTHEST < abs(c) < FURTHEST for c in numbers)


def sides(formulas: Iterable[Formula]) -> list[Atom]:
    """How far the variables of every norm in the formulas get within it, and that no part of it is larger than it is.

    Parts are left out that say the same again, and those with long numbers, which solvers take long for, where all
    variables are known to have ends.
    """
    norms = dict.fromkeys(
        s for formula in formulas for s in symbols(formula) if isinstance(s, Norm)
    )
    found = []
    for norm in norms:
        ends = reached(norm)
        names = dict.fromkeys(s for a in norm.arguments for s in a.symbols)
        is_known = len(ends) == len(names)
        for symbol, reach in ends.items():
            found += _ends(norm, symbol, reach)
        for i, part in enumerate(norm.arguments):
            if not (is_known and _adds_nothing(part)):
                found += [tangent.atom for tangent in _along_axis(norm, i)]
    return found


@lru_cache(maxsize=64)
def reached(norm: Norm) -> Mapping[Symbol, Reach]:
    """How far those variables get within a norm that it bounds.

    Example:
        >>> from multiplexnet.language.formula import Variable
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> [float(reach.size) for reach in reached(Norm((Fraction(4), Fraction(1)), (x, x + y - 3))).values()]
        [0.5, 1.118033988749895]
    """
    names = list(dict.fromkeys(s for a in norm.arguments for s in a.symbols))
    places = {symbol: i for i, symbol in enumerate(names)}
    found = reaches(
        norm.weights,
        [{places[s]: c for s, c in a.summands} for a in norm.arguments],
        [a.constant for a in norm.arguments],
        len(names),
    )
    pairs = zip(names, found, strict=True)
    return {symbol: reach for symbol, reach in pairs if reach is not None}


def _ends(norm: Norm, symbol: Symbol, reach: Reach) -> list[Atom]:
    """``±(symbol − middle) ≤ size · norm``, a middle with long numbers rounded outwards."""
    linear = Linear.of(symbol)
    room = Linear.of(norm) * reach.size
    lower, upper = reach.around
    return [
        Atom(linear - upper - room, "<="),
        Atom(-linear + lower - room, "<="),
    ]


def _adds_nothing(part: Linear) -> bool:
    """Whether part of a norm has one variable alone, or numbers of many digits."""
    if len(part.summands) <= 1:
        return True
    numbers = [part.constant, *(c for _, c in part.summands)]
    return any(
        max(c.numerator.bit_length(), c.denominator.bit_length()) > LONG
        for c in numbers
    )


def along_axes(norm: Norm) -> list[Tangent]:
    """``norm ≥ ± √weight · argument`` for each argument, and ``norm ≥ 0``."""
    axes = range(len(norm.weights))
    return [tangent for i in axes for tangent in _along_axis(norm, i)]


def _along_axis(norm: Norm, i: int) -> list[Tangent]:
    weight = norm.weights[i]
    exact = root(1 / weight)
    size = exact if exact is not None else 1 / root_above(weight)
    found = []
    for signed in (size, -size):
        direction = [Fraction(0)] * len(norm.weights)
        direction[i] = signed
        tangent = Tangent(norm, tuple(direction))
        if tangent.is_valid:
            found.append(tangent)
    return found


def _down(number: float) -> Fraction:
    return Fraction(int(number * (1 << BITS) * (1 - 2.0**-30)), 1 << BITS)


def _values(norm: Norm, point: dict[Symbol, float]) -> list[float]:
    return [
        float(a.constant) + sum(float(c) * point[s] for s, c in a.summands)
        for a in norm.arguments
    ]


def _at(norm: Norm, point: dict[Symbol, float]) -> Tangent:
    """The tangent that touches at this point, as nearly as short numbers have it."""
    values = _values(norm, point)
    length = sqrt(
        sum(float(w) * v * v for w, v in zip(norm.weights, values, strict=True))
    )
    scale = 1 / max(length, 1e-300)
    direction = []
    for v in values:
        size = _down(abs(v) * scale)
        direction.append(size if v > 0 else -size)
    return Tangent(norm, tuple(direction))


class _Program:
    """Rows in floats, over all that stands in them but norms; equalities are solved for."""

    def __init__(self, rows: Sequence[Atom]) -> None:
        self.symbols = tuple(dict.fromkeys(s for row in rows for s in symbols_of(row)))
        self._place = {symbol: j for j, symbol in enumerate(self.symbols)}
        equal = [row.linear for row in rows if row.relation == "=="]
        plain = [
            row.linear
            for row in rows
            if row.relation != "==" and norm_in(row.linear) is None
        ]
        curved = [row.linear for row in rows if norm_in(row.linear)]
        self._origin, self._basis = self._solved(equal)
        A, b = self._matrix(plain)
        cones = [self._cone(linear) for linear in curved]
        self.walls = Walls.of(A @ self._basis, b - A @ self._origin, cones)

    def _matrix(self, linears: Sequence[Linear]) -> tuple[lp.Array, lp.Array]:
        """The coefficients, and the constants on the other side."""
        A = np.zeros((len(linears), len(self.symbols)))
        for i, linear in enumerate(linears):
            for symbol, c in linear.summands:
                A[i, self._place[symbol]] = float(c)
        return A, lp.as_floats([-linear.constant for linear in linears])

    def _solved(self, equal: Sequence[Linear]) -> tuple[lp.Array, lp.Array]:
        """A solution of the equalities, and the directions that keep them."""
        n = len(self.symbols)
        if not equal:
            return np.zeros(n), np.eye(n)
        A, b = self._matrix(equal)
        _, sizes, directions = np.linalg.svd(A)
        rank = int((sizes > 1e-12 * sizes.max(initial=1e-300)).sum())
        solution = np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], dtype=np.float64)
        return solution, np.asarray(directions[rank:].T, dtype=np.float64)

    def _cone(self, linear: Linear) -> FloatCone:
        found = norm_in(linear)
        assert found is not None
        norm, c = found
        Y, y = self._matrix(norm.arguments)
        s, t = self._matrix([Linear(linear.summands[:-1], linear.constant) * (-1 / c)])
        roots = np.sqrt(lp.as_floats(norm.weights))[:, None]
        origin = self._origin
        return FloatCone(
            (Y @ self._basis) * roots,
            (Y @ origin - y) * roots[:, 0],
            (s @ self._basis)[0],
            float(s[0] @ origin - t[0]),
        )

    def deepest(self, deadline: Deadline) -> tuple[float, dict[Symbol, float]]:
        """How far inside all walls a point is, negative if it is outside, and the point, the best that was found."""
        depth, found = deepest(self.walls, deadline)
        x = self._origin + self._basis @ found
        return depth, dict(zip(self.symbols, x.tolist(), strict=True))
