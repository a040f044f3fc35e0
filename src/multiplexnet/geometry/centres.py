"""A centre that moves with the inputs: an affine function of them that lies inside for every value in their ranges.

Fourier–Motzkin elimination bounds one output after another, and its rows explode for dense polytopes. A map around an
anchor needs no such bounds, only a point c(u) inside ``A x + P u ≤ b``. Here it is ``c(u) = c_0 + C u``, as
``lp.moving_centre`` finds it. Floats do, since the layer computes the slacks of every row of a batch anew, and masks
the term where one is not positive.
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
    found = lp.moving_centre(
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
