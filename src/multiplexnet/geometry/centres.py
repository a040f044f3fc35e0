"""A centre that moves with the inputs: an affine function of them that lies inside for every value in their ranges.

Fourier–Motzkin elimination bounds one output after another, and its rows explode for dense polytopes. A map around an
anchor needs no such bounds, only a point c(u) inside ``A x + P u ≤ b``. Here it is ``c(u) = c_0 + C u``. Its slack in
row i is affine in u, so its least value over a box of inputs with middles m and half widths r is

    b_i − A_i c_0 − d_i·m − |d_i|·r      with d_i = A_i C + P_i,

and a linear program finds the c_0 and C whose slacks are largest. Floats do, since the layer computes the slacks of
every row of a batch anew, and masks the term where one is not positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from multiplexnet.exact import lp
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.geometry.elimination import coefficients
from multiplexnet.geometry.magnitudes import refuse_far_rows
from multiplexnet.geometry.parts import Bound, OutputBounds, Parametric
from multiplexnet.language.formula import Atom, Real, Variable

__all__ = ["centred"]

EVERYWHERE = 10.0
"""How much more a slack for all inputs counts than one in the middle of their ranges."""
LEAST = 1e-9
"""The share of the numbers in the rows that the slack in the middle has to be."""


def centred(
    outputs: Sequence[Variable], rows: Sequence[Atom], deadline: Deadline = NEVER
) -> Parametric | None:
    """The inequalities as a part around a moving centre; ``None`` if some input has no range or no centre is found.

    Example:
        >>> from multiplexnet.language.formula import Linear
        >>> x, u = Variable("x", 0), Variable("u", 1, Real(Fraction(0), Fraction(4)), role="input")
        >>> part = centred([x], [Atom(Linear.of(u) - Linear.of(x), "<="), Atom(Linear.of(x) - Linear.of(u) - 2, "<=")])
        >>> step, = part.steps
        >>> [float(c) for c in (*step.lower[0].parameters, step.lower[0].constant, step.upper[0].constant)]
        [1.0, 0.0, 2.0]
    """
    known = {s for row in rows for s, _ in row.linear.summands} - set(outputs)
    inputs = sorted(
        (s for s in known if isinstance(s, Variable)), key=lambda v: v.index
    )
    if len(inputs) < len(known) or any(_ends(v) is None for v in inputs):
        return None
    refuse_far_rows(rows)
    ends = [_ends(v) or (Fraction(0), Fraction(0)) for v in inputs]
    reference = tuple((low + high) / 2 for low, high in ends)
    A = [coefficients(row.linear, outputs) for row in rows]
    P = [coefficients(row.linear, inputs) for row in rows]
    b = [-row.linear.constant for row in rows]
    found = _centre(
        np.array(A, dtype=np.float64),
        np.array(P, dtype=np.float64).reshape(len(rows), len(inputs)),
        np.array(b, dtype=np.float64),
        np.array(reference, dtype=np.float64),
        np.array([float(high - low) / 2 for low, high in ends]),
        deadline,
    )
    if found is None:
        return None
    constant, slope = found
    steps = tuple(
        _around(j, Fraction(constant[j]), tuple(map(Fraction, slope[j].tolist())))
        for j in range(len(outputs))
    )
    return Parametric(
        tuple(outputs),
        tuple(inputs),
        tuple(A),
        tuple(P),
        tuple(b),
        tuple(row.relation == "<" for row in rows),
        steps,
        (),
        reference,
    )


def _ends(variable: Variable) -> tuple[Fraction, Fraction] | None:
    """The range of an input, if it has both ends."""
    domain = variable.domain
    if not variable.is_input or not isinstance(domain, Real):
        return None
    if domain.lower is None or domain.upper is None:
        return None
    return domain.lower, domain.upper


def _around(j: int, constant: Fraction, slope: tuple[Fraction, ...]) -> OutputBounds:
    """A unit to both sides of the centre of output j."""
    before = (Fraction(0),) * j
    lower = Bound(before, slope, constant - 1, True)
    upper = Bound(before, slope, constant + 1, True)
    return OutputBounds((lower,), (upper,))


def _centre(
    A: lp.Array,
    P: lp.Array,
    b: lp.Array,
    middle: lp.Array,
    radius: lp.Array,
    deadline: Deadline,
) -> tuple[lp.Array, lp.Array] | None:
    """c_0 and C; the unknowns are c_0, C row by row, bounds of |d_i|, the slack everywhere, the slack in the middle."""
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
    answer = lp.maximise(goal, rows, right, deadline=deadline)
    if answer is None or answer[1][-1] <= LEAST * largest:
        return None
    x = answer[1]
    return x[:n], x[n : n + n * k].reshape(n, k)


def _row(before: int, last: tuple[float, float]) -> lp.Array:
    return np.append(np.zeros(before), last)[None, :]
