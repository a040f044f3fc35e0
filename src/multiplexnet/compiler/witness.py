"""Points that prove something about rows: floats find them, a bound on the error of floats proves them.

A point that breaks one row and keeps the others with room to spare shows that the row is needed; a point with room in
every row shows that no equality is hidden in them. z3 answers such questions too, but its exact simplex takes seconds
for one dense polytope of fifty variables, and floats take milliseconds for all of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.language.formula import Atom, Linear, Symbol

__all__ = ["Inequalities", "signs", "without_equalities"]

Floats = NDArray[np.float64]
Matrix = Any
"""An array, or one of scipy's sparse ones: products with them are written alike."""
Bools = NDArray[np.bool_]

CERTAIN = 1e-9
"""Relative size from which the sign of a float64 dot product is beyond doubt (rounding is 1e-15 per operation)."""
UNDERFLOW = 1e-280
"""Absolute size below which products may have lost digits."""
ROUNDS = 60
"""How often a direction is corrected that shall leave through one row only."""
LEAD = 1 + 1e-4
"""By how much a row has to come before the others."""
RIDGE = 1e-12
"""What is added to WᵀW, relative to its trace, so that it can be inverted."""
REACH = 1e6
"""How far from the origin the LP looks for a point."""
MOST_ROWS = 5_000
"""Beyond this many rows the square matrix of their products is too large to be worth it."""

LARGE = 100_000
"""From this many entries on a matrix is kept without its zeros,"""
SPARSE = 1 / 8
"""if at most this share of it is something else."""


def signs(
    linears: Sequence[Linear], symbols: Sequence[Symbol], points: Floats
) -> NDArray[np.int8]:
    """The signs of linear expressions at points, 0 where floats leave a doubt.

    Args:
        linears: M expressions.
        symbols: the meaning of the columns of ``points``; they contain those of the expressions.
        points: shape (N, D), each number within a few units in the last place of the one that is meant.

    Returns:
        −1, 0 and 1, shape (N, M).
    """
    return _signs(*_matrix(linears, symbols), points)


def _signs(A: Floats, b: Floats, points: Floats) -> NDArray[np.int8]:
    """The signs of ``A x + b`` at points x, 0 where floats leave a doubt."""
    kept = _without_zeros(A)
    with np.errstate(all="ignore"):  # infinities and NaN leave a doubt, as they should
        values: Floats = points @ kept.T + b
        values[~np.isfinite(points).all(axis=1)] = np.nan
        doubt: Floats = CERTAIN * (np.abs(points) @ abs(kept).T + np.abs(b)) + UNDERFLOW
        positive = (values > doubt).astype(np.int8)
        negative = (values < -doubt).astype(np.int8)
        return positive - negative


def _without_zeros(A: Floats) -> Matrix:
    """The matrix, kept without its zeros if it is large and has few other numbers."""
    from scipy.sparse import csr_array

    if A.size < LARGE or np.count_nonzero(A) > SPARSE * A.size:
        return A
    return csr_array(A)


def _matrix(
    linears: Sequence[Linear], symbols: Sequence[Symbol]
) -> tuple[Floats, Floats]:
    column = {symbol: j for j, symbol in enumerate(symbols)}
    constants = [_float(linear.constant) for linear in linears]
    A = np.zeros((len(linears), len(symbols)))
    for i, linear in enumerate(linears):
        columns = [column[symbol] for symbol in linear.symbols]
        A[i, columns] = _floats_of(linear)
    return A, np.array(constants)


def _floats_of(linear: Linear) -> Sequence[float]:
    """The coefficients, each the float next to it."""
    whole, unit = linear.whole
    if unit == 1:
        try:
            return list(map(float, whole))
        except OverflowError:
            pass
    return [_float(c) for _, c in linear.summands]


def _float(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return float("nan")


def without_equalities(rows: Sequence[Atom]) -> tuple[list[Linear], list[Atom]]:
    """The left sides of the inequalities in the same order, with one variable eliminated for each equality, exactly.

    Returns:
        The left sides, and the equalities that do not follow from those before them.
    """
    others = [row.linear for row in rows if row.relation != "=="]
    equalities = [row for row in rows if row.relation == "=="]
    solved: list[tuple[Symbol, Linear]] = []
    independent = []
    for row in equalities:
        equality = _inserted(row.linear, solved)
        if not equality.is_constant:
            pivot, c = equality.summands[-1]
            solved.append((pivot, Linear.of(pivot) - equality * (1 / c)))
            independent.append(row)
    return [_inserted(linear, solved) for linear in others], independent


def _inserted(linear: Linear, solved: Sequence[tuple[Symbol, Linear]]) -> Linear:
    for symbol, expression in solved:
        if c := linear.coefficient(symbol):
            linear = linear - Linear.of(symbol) * c + expression * c
    return linear


@dataclass(frozen=True)
class Inequalities:
    """``linear < 0`` for every one of the expressions."""

    linears: tuple[Linear, ...]

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        found: dict[Symbol, None] = {}
        last: tuple[Symbol, ...] = ()
        for linear in self.linears:
            if linear.symbols != last:  # those of a dense set are all alike
                found.update(dict.fromkeys(linear.symbols))
                last = linear.symbols
        return tuple(found)

    @cached_property
    def _floats(self) -> tuple[Floats, Floats]:
        return _matrix(self.linears, self.symbols)

    def point(self, values: Mapping[Symbol, Fraction]) -> Floats:
        return np.array([_float(values[symbol]) for symbol in self.symbols])

    def at(self, values: Mapping[Symbol, float]) -> Floats | None:
        """The point with these values, if it certainly has room in every row."""
        if not all(symbol in values for symbol in self.symbols):
            return None
        point = np.array([values[symbol] for symbol in self.symbols])
        return point if self.contain(point) else None

    def contain(self, point: Floats) -> bool:
        """Whether the point certainly has room in every row."""
        found = _signs(*self._floats, point[None])
        return bool((found < 0).all())

    def interior_point(self, deadline: Deadline = NEVER) -> Floats | None:
        """A point with room in every row, if an LP in floats finds one; ``None`` proves nothing."""
        from scipy.optimize import linprog

        A, b = self._floats
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            return None
        n = A.shape[1]
        # the LP goes by absolute tolerances, which whole coefficients of ten digits are beyond
        size = np.abs(A).max(axis=1, initial=0.0, keepdims=True)
        size[size == 0] = 1.0
        rows = A / size
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        answer = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=np.hstack([rows, lengths]),
            b_ub=-b / size[:, 0],
            bounds=[(-REACH, REACH)] * n + [(None, 1.0)],
            method="highs",
            options={"time_limit": deadline.left},
        )
        deadline.check()
        if answer.x is None:
            return None
        found = np.asarray(answer.x[:-1])
        return found if self.contain(found) else None

    def needed(self, centre: Floats, deadline: Deadline = NEVER) -> Bools:
        """The rows that certainly do not follow from the others, found from a point with room in all. Shape (M,).

        Seen from the centre the rows are ``w_i·d ≤ 1``. A direction d with ``w_i·d`` above all other ``w_j·d`` leaves
        through row i first, and a little beyond only that row is broken. One starts from ``d = (WᵀW)⁻¹ w_i``, in which
        no scaling of the variables matters, and as long as some ``w_j`` is in the way adds ``(WᵀW)⁻¹ (w_i − w_j)``:
        the perceptron, for all rows at once, written with the products ``H = W (WᵀW)⁻¹ Wᵀ``.
        """
        A, b = self._floats
        m, n = A.shape
        with np.errstate(all="ignore"):
            W = A / -(A @ centre + b)[:, None]
            # the size is taken out: squares of 2⁻¹⁰⁰⁰ are zero in floats, those of 2¹⁰⁰⁰ infinite
            size = np.abs(W).max(initial=0.0)
            if not 0 < m <= MOST_ROWS or not np.isfinite(W).all() or not size:
                return np.zeros(m, dtype=np.bool_)
            W = W / size
            kept = _without_zeros(W)
            square = _dense(kept.T @ kept)
            ridge = RIDGE * np.trace(square) * np.eye(n)
            inverse = np.linalg.solve(square + ridge, W.T).T
            weights, products = self._contest(kept @ inverse.T, deadline)
            own, _, best = _winners(products)
            directions = _without_zeros(weights) @ inverse
            lengths = 2 / (own + np.maximum(best, 0)) / size
            points = centre + lengths[:, None] * directions
        found = _signs(A, b, points)
        only_own_row_broken = np.where(np.eye(m, dtype=np.bool_), 1, -1)
        return np.asarray((found == only_own_row_broken).all(axis=1))

    @staticmethod
    def _contest(H: Floats, deadline: Deadline) -> tuple[Floats, Floats]:
        """For every row the weights of a direction in which it comes first, if one was found, and its products."""
        weights = np.eye(len(H))
        products = H.copy()
        for _ in range(ROUNDS):
            deadline.check()
            own, rival, best = _winners(products)
            late = np.flatnonzero(own <= np.maximum(best, 0) * LEAD)
            if not len(late):
                break
            products[late] += H[late] - H[rival[late]]
            weights[late, late] += 1
            weights[late, rival[late]] -= 1
        return weights, products


def _dense(A: Matrix) -> Floats:
    return A if isinstance(A, np.ndarray) else np.asarray(A.toarray())


def _winners(products: Floats) -> tuple[Floats, NDArray[np.intp], Floats]:
    """For every row its own product, the row with the largest other one, and that one."""
    others = products.copy()
    np.fill_diagonal(others, -np.inf)
    rival = others.argmax(axis=1)
    best = others[np.arange(len(others)), rival]
    return products.diagonal().copy(), rival, best
