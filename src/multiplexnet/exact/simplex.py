"""Linear programming in exact arithmetic: the last word where a float solver only proposes.

The dictionary of the simplex method is a matrix of integers over one common denominator (Edmonds' integer pivoting:
each division is exact, entries stay determinants of the data). Dantzig's rule first, Bland's rule after many pivots, so
that it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.rows import Rows

__all__ = ["Optimum", "maximise"]

Status = Literal["optimal", "unbounded", "infeasible"]
DANTZIG_PIVOTS = 5
"""Pivots by Dantzig's rule per row, before Bland's rule takes over."""


@dataclass(frozen=True)
class Optimum:
    """The answer of an exact linear program.

    Args:
        status: ``"optimal"``, ``"unbounded"`` (``point`` is feasible then) or ``"infeasible"``.
        value: the maximum, if there is one.
        point: where it is attained.
        multipliers: ``y ≥ 0``, one per row, with ``yᵀA = c`` and ``yᵀb = value``: the proof.
    """

    status: Status
    value: Fraction = Fraction(0)
    point: tuple[Fraction, ...] = ()
    multipliers: tuple[Fraction, ...] = ()


def maximise(
    objective: Sequence[Fraction | int],
    rows: Rows,
    *,
    prefer: Sequence[int] = (),
    deadline: Deadline = NEVER,
) -> Optimum:
    """The maximum of ``objective · x`` over the closed set ``A x ≤ b`` (strict flags are not looked at).

    Args:
        objective: one coefficient per variable.
        rows: the inequalities; variables are free.
        prefer: rows thought to be tight at the optimum, to start from.
        deadline: when it gives up.

    Example:
        >>> square = Rows.of([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 0, 1, 0])
        >>> best = maximise([1, 2], square)
        >>> best.value, best.point, [int(y) for y in best.multipliers]
        (Fraction(3, 1), (Fraction(1, 1), Fraction(1, 1)), [1, 0, 2, 0])
    """
    dictionary = _Dictionary(objective, rows, deadline)
    dictionary.start(prefer)
    if not dictionary.feasible():
        return Optimum("infeasible")
    bounded = dictionary.climb(dictionary.m)
    return dictionary.optimum("optimal" if bounded else "unbounded")


class _Dictionary:
    """``basic = (T[:, 0] + T[:, 1:] · nonbasic) / d``; variables 0…n−1 are x, n…n+m−1 slacks, n+m the artificial one.

    Row i < m of ``T`` belongs to ``basic[i]``, row m is the objective, row m+1 the objective of phase 1.
    """

    def __init__(
        self, objective: Sequence[Fraction | int], rows: Rows, deadline: Deadline
    ) -> None:
        self.deadline = deadline
        self.m = len(rows)
        self.n = rows.n
        self.scale = [bound.denominator for bound in rows.b]
        self.objective_scale = int(
            np.lcm.reduce(
                [Fraction(c).denominator for c in objective] or [1], dtype=object
            )
        )
        self.T: NDArray[Any] = np.zeros((self.m + 2, self.n + 1), dtype=object)
        for i, (a, bound, k) in enumerate(zip(rows.A, rows.b, self.scale, strict=True)):
            self.T[i] = [bound.numerator, *(-c * k for c in a)]
        self.T[self.m] = [0, *(int(c * self.objective_scale) for c in objective)]
        self.d = 1
        self.basic = list(range(self.n, self.n + self.m))
        self.nonbasic = list(range(self.n))
        self.pivots = 0

    def pivot(self, r: int, k: int) -> None:
        """``nonbasic[k]`` enters, ``basic[r]`` leaves."""
        self.deadline.check()
        T = self.T
        column = self.T[:, k + 1].copy()
        row = self.T[r].copy()
        p = self.T[r, k + 1]
        T = (T * p - np.outer(column, row)) // self.d
        T[:, k + 1] = column
        T[r] = -row
        T[r, k + 1] = self.d
        self.T = T if p > 0 else -T
        self.d = abs(p)
        self.basic[r], self.nonbasic[k] = self.nonbasic[k], self.basic[r]
        self.pivots += 1

    def start(self, prefer: Sequence[int]) -> None:
        """Make every x basic that can be; the rows in ``prefer`` become the tight ones."""
        order = [*prefer, *(i for i in range(self.m) if i not in set(prefer))]
        for k in range(self.n):
            r = next(
                (r for r in order if self.basic[r] >= self.n and self.T[r, k + 1]), None
            )
            if r is not None:
                self.pivot(r, k)

    def feasible(self) -> bool:
        """Phase 1: the artificial variable lifts all slacks; the set is nonempty when it can fall to zero."""
        restricted = [r for r in range(self.m) if self.basic[r] >= self.n]
        worst = min(restricted, key=lambda r: self.T[r, 0], default=None)
        if worst is None or self.T[worst, 0] >= 0:
            return True
        lift = np.zeros((self.m + 2, 1), dtype=object)
        lift[restricted] = self.d
        lift[self.m + 1] = -self.d
        self.T = np.hstack([self.T, lift])
        self.nonbasic.append(self.n + self.m)
        self.pivot(worst, len(self.nonbasic) - 1)
        self.climb(self.m + 1)
        if self.T[self.m + 1, 0] < 0:
            return False
        self._drop_artificial()
        return True

    def _drop_artificial(self) -> None:
        artificial = self.n + self.m
        if artificial in self.basic:
            r = self.basic.index(artificial)
            slacks = [
                k for k, variable in enumerate(self.nonbasic) if variable >= self.n
            ]
            entering = next(k for k in slacks if self.T[r, k + 1])
            self.pivot(r, entering)
        k = self.nonbasic.index(artificial)
        self.T = np.delete(self.T, k + 1, axis=1)
        del self.nonbasic[k]

    def climb(self, goal: int) -> bool:
        """Maximise row ``goal``; whether a maximum exists. A free variable left over moves no slack."""
        while (k := self._entering(goal)) is not None:
            r = self._leaving(k)
            if r is None:
                return False
            self.pivot(r, k)
        return True

    def _entering(self, goal: int) -> int | None:
        row = self.T[goal]
        free = (k for k, v in enumerate(self.nonbasic) if v < self.n and row[k + 1])
        better = [
            k for k, v in enumerate(self.nonbasic) if v >= self.n and row[k + 1] > 0
        ]
        if not better:
            return next(free, None)
        if self.pivots < DANTZIG_PIVOTS * (self.m + self.n):
            return max(better, key=lambda k: row[k + 1])
        return min(better, key=lambda k: self.nonbasic[k])

    def _leaving(self, k: int) -> int | None:
        best: int | None = None
        for r in range(self.m):
            fall = -self.T[r, k + 1]
            if self.basic[r] < self.n or fall <= 0:
                continue
            if best is None:
                best = r
                continue
            left = self.T[r, 0] * -self.T[best, k + 1]
            right = self.T[best, 0] * fall
            if left < right or (left == right and self.basic[r] < self.basic[best]):
                best = r
        return best

    def optimum(self, status: Status) -> Optimum:
        x = [Fraction(0)] * self.n
        for r, variable in enumerate(self.basic):
            if variable < self.n:
                x[variable] = Fraction(self.T[r, 0], self.d)
        goal = self.T[self.m]
        denominator = self.d * self.objective_scale
        y = [Fraction(0)] * self.m
        for k, variable in enumerate(self.nonbasic):
            if variable >= self.n:
                i = variable - self.n
                y[i] = Fraction(-goal[k + 1] * self.scale[i], denominator)
        value = Fraction(goal[0], denominator)
        return Optimum(status, value, tuple(x), tuple(y))
