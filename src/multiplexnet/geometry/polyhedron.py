"""Exact answers about the set of some rows: whether it is empty, has a point inside, which rows say nothing new.

Floats propose (:mod:`multiplexnet.exact.lp`), a point or multipliers in exact arithmetic prove; where the proposal
proves nothing, the exact simplex decides. It needs no solver for formulas, so all of it works when a saved layer loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from multiplexnet.exact import lp, simplex
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.anchors import Point, centres

__all__ = [
    "implicit_equalities",
    "interior_point",
    "is_empty",
    "is_redundant",
    "without_redundant",
]

CENTRE_REACH = Fraction(10) ** 12
"""How far from the origin a float centre is sought that shall prove a set full-dimensional."""
CENTRE_BITS = 40
"""Bits that are kept of a float centre before it is tried exactly."""


def interior_point(rows: Rows, deadline: Deadline = NEVER) -> Point | None:
    """A point with slack in every row if floats find one; ``None`` proves nothing."""
    for centre in centres(rows, CENTRE_REACH, deadline):
        point = tuple(c.limit_denominator(1 << CENTRE_BITS) for c in centre)
        if rows.contains_strictly(point):
            return point
    return None


def is_empty(rows: Rows, deadline: Deadline = NEVER) -> bool:
    """Whether no point satisfies all rows, strict ones strictly.

    Example:
        >>> is_empty(Rows.of([[1], [-1]], [0, 0])), is_empty(Rows.of([[1], [-1]], [0, 0], strict=[True, False]))
        (False, True)
    """
    return (
        interior_point(rows, deadline) is None
        and _deepest(rows, rows.strict, deadline) is None
    )


def implicit_equalities(rows: Rows, deadline: Deadline = NEVER) -> tuple[int, ...]:
    """The rows that hold with equality at every point of the set (which is not empty).

    While no point has slack in all other rows, the exact program that looks for one returns multipliers ``y ≥ 0`` with
    ``yᵀA = 0`` and ``yᵀb = 0``: every row with a positive multiplier is an equality.

    Example:
        >>> implicit_equalities(Rows.of([[1, 1], [-1, -1], [-1, 0]], [1, -1, 0]))
        (0, 1)
    """
    if interior_point(rows, deadline) is not None:
        return ()
    found: set[int] = set()
    while True:
        wanted = [i not in found for i in range(len(rows))]
        if not any(wanted):
            return tuple(sorted(found))
        best = _slack_program(rows, wanted, deadline)
        if best.status == "infeasible" or best.value < 0:
            raise ValueError("an empty set has no implicit equalities")
        if best.value > 0:
            return tuple(sorted(found))
        found |= {i for i, y in enumerate(best.multipliers[: len(rows)]) if y > 0}


def is_redundant(
    rows: Rows, i: int, *, prefer: Sequence[int] = (), deadline: Deadline = NEVER
) -> bool:
    """Whether the other rows (which some point satisfies) imply row ``i``, by an exact program.

    Args:
        rows: the system.
        i: the row in question.
        prefer: rows thought to be tight where row ``i`` comes nearest, to start from.
    """
    others = [k for k in range(len(rows)) if k != i]
    place = {k: j for j, k in enumerate(others)}
    start = [place[k] for k in prefer if k != i]
    best = simplex.maximise(
        rows.A[i], rows.subset(others), prefer=start, deadline=deadline
    )
    if best.status == "infeasible":
        return True
    if best.status == "unbounded" or best.value > rows.b[i]:
        return False
    if best.value < rows.b[i] or not rows.strict[i]:
        return True
    beyond = rows.subset([i]).reversed()
    return is_empty(rows.subset(others) + beyond, deadline)


def without_redundant(rows: Rows, deadline: Deadline = NEVER) -> Rows:
    """The rows without those that the others imply. Each row dropped is proved redundant; in doubt a row is kept.

    Example:
        >>> without_redundant(Rows.of([[1], [1], [-1]], [3, 2, 0])).b
        (Fraction(2, 1), Fraction(0, 1))
    """
    A, b = lp.unit_rows(rows)
    kept = list(range(len(rows)))
    for i in reversed(range(len(rows))):
        others = [k for k in kept if k != i]
        answer = lp.maximise(
            A[i], A[others], b[others], reach=lp.FAR, deadline=deadline
        )
        if answer is None or answer[0] > b[i] + lp.REDUNDANT_TOLERANCE * (
            1.0 + abs(b[i])
        ):
            continue
        tight = lp.tight_rows(A[others], b[others], answer[1])
        if is_redundant(
            rows.subset([*others, i]), len(others), prefer=tight, deadline=deadline
        ):
            kept = others
    return rows.subset(kept)


def _deepest(rows: Rows, wanted: Sequence[bool], deadline: Deadline) -> Point | None:
    """A point of the set with slack in every wanted row, or ``None`` if there is none."""
    best = _slack_program(rows, wanted, deadline)
    enough = best.status != "infeasible" and (best.value > 0 or not any(wanted))
    return best.point[: rows.n] if enough else None


def _slack_program(
    rows: Rows, wanted: Sequence[bool], deadline: Deadline
) -> simplex.Optimum:
    """The largest ``t ≤ 1`` that can be the slack of all wanted rows together."""
    slack = [0] * rows.n + [1]
    A = [[*a, int(w)] for a, w in zip(rows.A, wanted, strict=True)]
    program = Rows.of([*A, slack], [*rows.b, 1], n=rows.n + 1)
    return simplex.maximise(slack, program, deadline=deadline)
