"""Linear programs in floats (HiGHS), and every tolerance there is.

Nothing that leaves this module is trusted: a point is a proposal to be checked in exact arithmetic, a verdict only
chooses what is tried first. HiGHS is known to call an unbounded program infeasible, so its status is not read either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.rows import Rows

__all__ = [
    "analytic_centre",
    "chebyshev_centre",
    "escaping_rows",
    "has_full_rank",
    "least_norm",
    "maximise",
    "moving_centre",
    "tight_rows",
    "unit_rows",
]

Array = NDArray[np.float64]

ESCAPE_TOLERANCE = 0.5
"""The level between 0 and 1 above which a slack is taken to grow for ever."""
REDUNDANT_TOLERANCE = 1e-7
"""Rows that look implied up to this much are worth an exact proof."""
FAR = 1e9
"""How far a row is looked for that the others do not imply."""
TIGHT_TOLERANCE = 1e-7
"""Rows with a relative slack below this are proposed as tight."""
KEPT_SLACK = 0.9
"""The share of the slack aimed at that a point of least norm must keep."""
NEWTON_STEPS = 60
"""Newton steps towards the analytic centre."""
NEWTON_FAR = 1e8
"""Newton steps that lead this many times as far as the start are taken for a set without end."""
NEWTON_REACH = 0.95
"""The share of the way to the boundary that a Newton step may go."""
NEWTON_DECREMENT = 1e-6
"""The squared Newton decrement at which the centre is near enough."""
EVERYWHERE = 10.0
"""How much more a slack for all inputs counts than one in the middle of their ranges."""
LEAST_ROOM = 1e-9
"""The share of the numbers in the rows that the slack in the middle has to be."""


REMEMBERED_NUMBERS = 4096
"""The most coefficients of a program whose answer is remembered."""
REMEMBERED_PROGRAMS = 1024
"""How many answers are remembered before all are forgotten: a few megabytes."""

_answers: dict[bytes, Any] = {}
"""Answers by program: a layer in another dtype, its certificate or its copy asks the same again."""


def _solved(deadline: Deadline, goal: Array, A: Array, b: Array, bounds: Array) -> Any:
    """The point of least ``goal · x`` with ``A x ≤ b`` and ``x`` between its bounds, one row ``(low, high)`` each.

    HiGHS looks at the clock itself: a program that is cut short by it is never read.
    """
    deadline.check()
    program = b"".join(
        [str(A.shape).encode(), *map(np.ndarray.tobytes, (goal, A, b, bounds))]
    )
    if program in _answers:
        return _answers[program]
    answer = linprog(
        goal, A, b, bounds=bounds, method="highs", options={"time_limit": deadline.left}
    )
    deadline.check()
    if answer.x is not None:
        answer.x.flags.writeable = False
    if A.size <= REMEMBERED_NUMBERS:
        if len(_answers) >= REMEMBERED_PROGRAMS:
            _answers.clear()
        _answers[program] = answer
    return answer


def _all_between(low: float, high: float, n: int) -> Array:
    """The same bounds for n variables."""
    return np.array([[low, high]] * n).reshape(n, 2)


def maximise(
    objective: Array,
    A: Array,
    b: Array,
    *,
    reach: float | None = None,
    deadline: Deadline = NEVER,
) -> tuple[float, Array] | None:
    """The maximum of ``objective · x`` over ``A x ≤ b``, ``|x| ≤ reach``, and where it is; ``None``: none was found.

    Example:
        >>> value, x = maximise(np.array([1.0]), np.array([[2.0]]), np.array([3.0]))
        >>> value
        1.5
    """
    end = np.inf if reach is None else reach
    bounds = _all_between(-end, end, len(objective))
    answer = _solved(deadline, -objective, A, b, bounds)
    if answer.x is None or answer.status:
        return None
    return -float(answer.fun), np.asarray(answer.x)


def tight_rows(A: Array, b: Array, x: Array) -> list[int]:
    """The rows that look tight at ``x``, the tightest first."""
    slack = (b - A @ x) / (np.abs(A).sum(axis=1) + np.abs(b) + TIGHT_TOLERANCE)
    order = np.argsort(slack)
    return [int(i) for i in order if slack[i] < TIGHT_TOLERANCE]


def escaping_rows(A: Array, deadline: Deadline = NEVER) -> NDArray[np.bool_]:
    """Which rows have a slack that seems to grow for ever along some ``d`` with ``A d ≤ 0``.

    Maximise ``Σ t_i`` with ``0 ≤ t_i ≤ 1`` and ``A d + t ≤ 0``: the d form a cone, so each ``t_i`` ends at 0 or 1.

    Example:
        >>> escaping_rows(np.array([[1.0, -1.0], [-1.0, 1.0], [-1.0, 0.0]]))  # a strip that begins at x = 0
        array([False, False,  True])
    """
    m, n = A.shape
    bounds = np.vstack([_all_between(-np.inf, np.inf, n), _all_between(0.0, 1.0, m)])
    goal = np.append(np.zeros(n), -np.ones(m))
    answer = _solved(deadline, goal, np.hstack([A, np.eye(m)]), np.zeros(m), bounds)
    if answer.x is None:
        return np.zeros(m, dtype=bool)
    growth = np.asarray(answer.x[n:])
    return growth > ESCAPE_TOLERANCE


def chebyshev_centre(
    A: Array, b: Array, scale: Array, reach: float, deadline: Deadline = NEVER
) -> tuple[float, Array] | None:
    """The largest ``r ≤ 1`` with ``A x + r · scale ≤ b`` for some ``|x| ≤ reach``, and that ``x``.

    With ``scale = |a_i|₁`` and no cap it is the centre of the largest cube inside.

    Example:
        >>> radius, x = chebyshev_centre(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]), np.ones(2), 10.0)
        >>> radius, x
        (0.5, array([0.5]))
    """
    n = A.shape[1]
    objective = np.append(np.zeros(n), -1.0)
    of_the_point = _all_between(-reach, reach, n)
    of_the_radius = _all_between(-np.inf, 1.0, 1)
    bounds = np.vstack([of_the_point, of_the_radius])
    rows = np.column_stack([A, scale])
    answer = _solved(deadline, objective, rows, b, bounds)
    if answer.x is None:
        return None
    return float(answer.x[n]), np.asarray(answer.x[:n])


def least_norm(
    A: Array,
    b: Array,
    origin: Array,
    share: Array | None = None,
    *,
    deadline: Deadline = NEVER,
) -> Array | None:
    """The point of ``A x ≤ b`` that is nearest to ``origin``, distances summed over the coordinates.

    With ``share``, one number per row, row i keeps a slack of ``share_i Σ_j |a_ij| |x_j − origin_j|``.

    Example:
        >>> A, b = np.array([[-1.0, 0.0], [1.0, -1.0]]), np.array([-80.0, 0.0])
        >>> least_norm(A, b, np.zeros(2), np.array([0.0, 0.1])).round()  # 80 ≤ x ≤ y − (x + y) / 10
        array([80., 98.])
    """
    n = A.shape[1]
    eye = np.eye(n)
    kept = np.zeros_like(A) if share is None else np.abs(A) * share[:, None]
    stacked = np.block([[A, kept], [eye, -eye], [-eye, -eye]])
    bound = np.concatenate([b, origin, -origin])
    goal = np.append(np.zeros(n), np.ones(n))
    answer = _solved(
        deadline, goal, stacked, bound, _all_between(-np.inf, np.inf, 2 * n)
    )
    return None if answer.x is None else np.asarray(answer.x[:n])


def analytic_centre(
    A: Array, b: Array, start: Array, deadline: Deadline = NEVER
) -> tuple[Array, bool]:
    """The maximum of ``Σ log(b − A x)`` by Newton steps from a point inside, and whether the set looks bounded.

    It does when the steps arrive and A has full rank. A step goes at most :data:`NEWTON_REACH` of the way to the
    boundary and is halved until the sum grows.

    Example:
        >>> x, is_bounded = analytic_centre(np.array([[1.0], [-1.0]]), np.array([1.0, 0.0]), np.array([0.01]))
        >>> round(float(x[0]), 3), is_bounded
        (0.5, True)
    """
    with np.errstate(all="ignore"):
        return _newton(A, b, start, deadline)


def _newton(A: Array, b: Array, start: Array, deadline: Deadline) -> tuple[Array, bool]:
    x = start
    slack = b - A @ start
    regular = has_full_rank(A)
    end = NEWTON_FAR * (1.0 + float(np.abs(start).max(initial=0.0)))
    for _ in range(NEWTON_STEPS):
        deadline.check()
        gradient = A.T @ (1.0 / slack)
        weighted = A / slack[:, None]
        hessian = weighted.T @ weighted
        if not np.isfinite(hessian).all():  # slacks that are hardly any
            break
        direction = _newton_direction(hessian, gradient, regular)
        decrement = -float(gradient @ direction)
        if not decrement > NEWTON_DECREMENT:
            return x, regular and bool(np.isfinite(x).all())
        speed = A @ direction
        length = min(
            1.0, NEWTON_REACH / max(float((speed / slack).max(initial=0.0)), 1e-300)
        )
        while (
            np.log1p(-length * speed / slack).sum() < 0.1 * length * decrement
            and length > 1e-9
        ):
            length /= 2
        x = x + length * direction
        slack = slack - length * speed
        if float(np.abs(x).max(initial=0.0)) > end:
            break
    return x, False


def has_full_rank(A: Array) -> bool:
    """Whether the rows seem to leave no direction in which nothing changes."""
    if not len(A):
        return False
    alone = A[np.count_nonzero(A, axis=1) == 1]
    if alone.any(axis=0).all():  # every column by itself, as in a box
        return True
    rank = int(np.linalg.matrix_rank(A))
    return bool(rank == A.shape[1])


def _newton_direction(hessian: Array, gradient: Array, regular: bool) -> Array:
    try:
        if regular:
            return np.asarray(np.linalg.solve(hessian, -gradient))
    except np.linalg.LinAlgError:  # far out along a ray, where it is singular in floats
        pass
    return np.asarray(np.linalg.lstsq(hessian, -gradient, rcond=None)[0])


def moving_centre(
    A: Array,
    P: Array,
    b: Array,
    middle: Array,
    radius: Array,
    deadline: Deadline = NEVER,
) -> tuple[Array, Array] | None:
    """c_0 and C, so that ``x = c_0 + C u`` lies deep inside ``A x + P u ≤ b`` for all u; ``None``: none was found.

    The slack of row i is affine in u, so that its least value over a box of inputs with middles m and half widths r is

        b_i − A_i c_0 − d_i·m − |d_i|·r      with d_i = A_i C + P_i,

    and a linear program makes the least of them large. Its unknowns are c_0, C row by row, bounds of |d_i|, the slack
    everywhere and the slack in the middle.

    Example: 0 ≤ x ≤ u for u from 2 to 4.
        >>> A, P = np.array([[1.0], [-1.0]]), np.array([[-1.0], [0.0]])
        >>> c, C = moving_centre(A, P, np.zeros(2), np.array([3.0]), np.array([1.0]))
        >>> c + C @ np.array([3.0])
        array([1.5])
    """
    m, n = A.shape
    k = P.shape[1]
    size = np.abs(A).sum(1)
    slopes = np.hstack([np.zeros((m * k, n)), np.kron(A, np.eye(k))])
    own = np.hstack([A, np.kron(A, middle[None, :])])
    moved = b - P @ middle
    none = np.zeros((m, m * k))
    reach = np.kron(np.eye(m), radius[None, :])
    bounds = -np.eye(m * k)
    two = np.zeros((m * k, 2))
    zero = np.zeros((m, 1))
    slack = size[:, None]
    before = own.shape[1] + m * k
    everywhere = np.hstack([own, reach, slack, zero])
    in_the_middle = np.hstack([own, none, zero, slack])
    above = np.hstack([slopes, bounds, two])
    below = np.hstack([-slopes, bounds, two])
    not_negative = _row(before, (-1.0, 0.0))
    not_larger = _row(before, (0.0, 1.0))
    rows = np.vstack(
        [everywhere, in_the_middle, above, below, not_negative, not_larger]
    )
    room = np.abs(moved) / np.maximum(size, 1e-300)
    largest = float(np.max(room, initial=1.0))
    right = np.concatenate([moved, moved, -P.ravel(), P.ravel(), [0.0], [largest]])
    goal = np.zeros(rows.shape[1])
    goal[-2:] = EVERYWHERE, 1.0
    answer = maximise(goal, rows, right, deadline=deadline)
    if answer is None or answer[1][-1] <= LEAST_ROOM * largest:
        return None
    x = answer[1]
    return x[:n], x[n : n + n * k].reshape(n, k)


def _row(before: int, last: tuple[float, float]) -> Array:
    return np.append(np.zeros(before), last)[None, :]


def unit_rows(rows: Rows) -> tuple[Array, Array]:
    """The rows ``A x ≤ b`` as floats, each divided by the sum of its absolute coefficients, which may be huge."""
    norms = [norm or 1 for norm in rows.norms]
    matrix = np.zeros((len(rows), rows.n))
    for i, (entries, k) in enumerate(zip(rows.entries, norms, strict=True)):
        places = [j for j, _ in entries]
        matrix[i, places] = [c / k for _, c in entries]
    return matrix, as_floats(
        [bound / k for bound, k in zip(rows.b, norms, strict=True)]
    )


def as_floats(values: Sequence[Any]) -> Array:
    """An array of floats; numbers beyond the range of floats become the largest ones."""
    largest = np.finfo(np.float64).max
    return np.array([float(max(min(v, largest), -largest)) for v in values])
