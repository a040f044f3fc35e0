"""The parts of a term: groups of outputs that no row ties together, each of the simplest kind that fits.

::

    Box         every row bounds one variable                  2 ≤ x, 0 < y < 1, z = 3, w free
    Polyhedron  rows tie variables together, inside not empty  x > y + 2, x < 5
    Lattice     equalities tie variables together              w1 + w2 + w3 = 1, w ≥ 0
    Parametric  bounds depend on what is known at run time     b ≤ limit, y > f(x)

What stands here is exact (fractions) and already fits a float format: bounds are rounded inward, anchors are
representable. The transforms turn each kind into tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from multiplexnet.exact.cones import Cone
from multiplexnet.exact.rows import Number
from multiplexnet.language.formula import Symbol, Variable

__all__ = ["Box", "Lattice", "Parametric", "Part", "Polyhedron"]


@dataclass(frozen=True)
class Box:
    """Independent intervals ``lower ≤ x ≤ upper``, closed, their ends representable (``None``: unbounded).

    An open bound of the rules has become the next float inside it; ``lower == upper`` is a constant.
    """

    outputs: tuple[Variable, ...]
    lower: tuple[Fraction | None, ...]
    upper: tuple[Fraction | None, ...]


@dataclass(frozen=True)
class Polyhedron:
    """``A x ≤ b`` and cones with nonempty interior; ``strict`` rows are ``<``.

    ``anchor``: representable, strictly inside.
    """

    outputs: tuple[Variable, ...]
    A: tuple[tuple[Number, ...], ...]
    b: tuple[Fraction, ...]
    strict: tuple[bool, ...]
    anchor: tuple[Fraction, ...]
    cones: tuple[Cone, ...] = ()


@dataclass(frozen=True)
class Lattice:
    """``x = origin + basis t`` with every ``t`` a multiple of ``step`` (a power of two) and ``|t| ≤ bound``.

    ``origin`` and ``basis`` (one row per output, integers) are such that all arithmetic is exact in the format.
    ``t`` obeys ``A t ≤ b`` (``strict`` rows ``<``), which implies ``|t| ≤ bound``, and ``anchor`` is a multiple of
    ``step`` strictly inside: half a step in every coordinate takes less than half of any slack. Where the rules leave
    an output unbounded, or more room than multiples of the step have in the format, A ends with ``cuts`` rows that
    bound it by what the grid can hold. ``cones`` are curved walls over t, beside A.
    """

    outputs: tuple[Variable, ...]
    origin: tuple[Fraction, ...]
    basis: tuple[tuple[int, ...], ...]
    step: Fraction
    bound: Fraction
    A: tuple[tuple[Number, ...], ...]
    b: tuple[Fraction, ...]
    strict: tuple[bool, ...]
    anchor: tuple[Fraction, ...]
    cuts: int = 0
    cones: tuple[Cone, ...] = ()

    @property
    def anchor_in_steps(self) -> tuple[Fraction, ...]:
        """The anchor in units of a step."""
        return tuple(c / self.step for c in self.anchor)

    @property
    def cones_in_steps(self) -> tuple[Cone, ...]:
        """The curved walls over t in units of a step."""
        if not self.cones:
            return ()
        d = len(self.anchor)
        zero = (Fraction(0),) * d
        scale = [
            [self.step if i == j else Fraction(0) for j in range(d)] for i in range(d)
        ]
        return tuple(cone.moved(zero, scale) for cone in self.cones)

    @property
    def steps(self) -> dict[str, Fraction]:
        """What the values of each output lie apart; constants have no step."""
        pairs = zip(self.outputs, self.basis, strict=True)
        return {
            variable.name: self.step * gcd(*row) for variable, row in pairs if any(row)
        }


@dataclass(frozen=True)
class Parametric:
    """``A x + P u ≤ b``, parameters ``u`` (inputs, opaque functions, outputs of earlier parts) being known first.

    ``steps`` is the triangular form that Fourier–Motzkin elimination leaves: step ``j`` bounds ``outputs[j]`` by rows
    ``(coefficients of outputs[:j], coefficients of parameters, constant, strict)``, each the affine function that is a
    lower (upper) bound. Any choice inside the bounds of step j leaves those of the later steps nonempty, as long as
    ``guards`` hold: affine functions of the parameters alone that must be ``≤ 0`` (``strict``: ``< 0``). Outputs stand
    in the order of the steps. A part without outputs is only guards. Parts whose parameters are outputs, or functions
    of outputs, have no guards: their rows leave room whatever those values are.

    Dense parts have no such form. They have a ``reference``, the middle of the ranges of the parameters, and their
    steps lie a unit to both sides of a centre that moves with the parameters. A ball or ellipsoid that parameters move
    is one of the ``cones``, over outputs and then parameters, and nothing else.
    """

    outputs: tuple[Variable, ...]
    parameters: tuple[Symbol, ...]
    A: tuple[tuple[Fraction, ...], ...]
    P: tuple[tuple[Fraction, ...], ...]
    b: tuple[Fraction, ...]
    strict: tuple[bool, ...]
    steps: tuple[OutputBounds, ...]
    guards: tuple[Bound, ...]
    reference: tuple[Fraction, ...] = ()
    cones: tuple[Cone, ...] = ()


@dataclass(frozen=True)
class Bound:
    """The affine function ``outputs · x + parameters · u + constant`` that bounds something, strictly or not."""

    outputs: tuple[Fraction, ...]
    parameters: tuple[Fraction, ...]
    constant: Fraction
    strict: bool


@dataclass(frozen=True)
class OutputBounds:
    """All lower and upper bounds of one output in terms of the outputs before it and the parameters."""

    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]


Part = Box | Polyhedron | Lattice | Parametric
