"""Parts with curved walls, checked in fractions.

A cone ``√(Σ w_i (Y x + y)_i²) ≤ s·x + t`` around an anchor c strictly inside has the gauge ``w·q + √(q·Q q)``. With
``y0 = Y c + y``, ``t0 = s·c + t`` and ``N = t0² − |y0|²`` the numbers that the theorem uses of it are

    w_j = (y0·Y_j − t0 s_j) / N   and   Q_jj = ((t0 s_j − y0·Y_j)² − N (s_j² − |Y_j|²)) / N².

A certificate says a ``size`` for each cone and output, at least ``|w_j| + √Q_jj``, and what rounding leaves: the
float64 number next to ``1 − Σ_j size_j (unit |c_j| + tiny)``, or 0 where less than half is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

from multiplexnet.certificate.formats import Format
from multiplexnet.certificate.margins import NotInside
from multiplexnet.certificate.parts import (
    Formulas,
    Part,
    Polyhedron,
    is_coprime,
    numbers_from,
)
from multiplexnet.compiler.record import RecordReader, list_from, number_from
from multiplexnet.language.formula import (
    Atom,
    Linear,
    Norm,
    Symbol,
    Variable,
    norm_in,
    symbols,
)

__all__ = ["Curved", "vanishing"]

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Curved(Part):
    """Rows and cones around an anchor strictly inside.

    Args:
        flat: the outputs, the linear rows and the anchor.
        cones: comparisons with a norm.
        sizes: for each cone and output how far a step along it may move the gauge.
        left: for each cone the share of its room that rounding leaves.
    """

    flat: Polyhedron
    cones: tuple[Atom, ...]
    sizes: tuple[tuple[Fraction, ...], ...]
    left: tuple[Fraction, ...]

    @property
    def outputs(self) -> tuple[Variable, ...]:  # type: ignore[override]
        return self.flat.outputs

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> Curved:
        """From a record."""
        flat = Polyhedron.of(record, reader)
        cones = tuple(map(reader.atom, list_from(record["cones"])))
        for cone in cones:
            found = norm_in(cone.linear)
            named = {s for s in symbols(cone) if not isinstance(s, Norm)}
            if found is None or found[1] <= 0 or cone.relation == "==":
                raise ValueError("a curved wall that bounds no convex set")
            if not named <= set(flat.outputs) or not is_coprime(cone):
                raise ValueError(
                    "a curved wall over something else than the outputs of its part"
                )
        width = len(flat.outputs)
        sizes = tuple(numbers_from(row, width) for row in list_from(record["sizes"]))
        left = tuple(map(number_from, list_from(record["left"])))
        if not cones or len(sizes) != len(cones) or len(left) != len(cones):
            raise ValueError("a curved part without sizes for each of its walls")
        return cls(flat, cones, sizes, left)

    def keeps(self) -> Formulas:
        return [*self.flat.keeps(), *self.cones]

    def needs(self, form: Format) -> Formulas:
        return [*self.flat.needs(form), *self.cones]

    def faults(self, form: Format) -> Iterator[str]:
        yield from self.flat.faults(form)
        errors = [form.unit * abs(c) + form.tiny for c in self.flat.anchor]
        for cone, sizes, left in zip(self.cones, self.sizes, self.left, strict=True):
            try:
                least = _least_sizes(cone, self.flat.outputs, self.flat.anchor)
            except NotInside as error:
                yield f"its anchor is not strictly inside: {error}"
                return
            if not all(map(_is_enough, sizes, least)):
                yield "a curved wall moves faster than the certificate says"
            spent = sum(
                (h * e for h, e in zip(sizes, errors, strict=True)), Fraction(0)
            )
            found = 1 - spent if 1 - spent >= HALF else Fraction(0)
            if Fraction(float(found)) != left:
                yield "what is left of a curved wall is not what the certificate says"


def _is_enough(size: Fraction, least: tuple[Fraction, Fraction]) -> bool:
    """Whether ``size ≥ |w| + √Q``."""
    rest = size - abs(least[0])
    return rest >= 0 and rest * rest >= least[1]


def _least_sizes(
    cone: Atom, outputs: Sequence[Variable], anchor: Sequence[Fraction]
) -> list[tuple[Fraction, Fraction]]:
    """``(w_j, Q_jj)`` for every output."""
    found = norm_in(cone.linear)
    assert found is not None
    norm, c = found
    point: dict[Symbol, Fraction] = dict(zip(outputs, anchor, strict=True))
    bound = Linear(cone.linear.summands[:-1], cone.linear.constant) * (-1 / c)
    y0 = [_value(argument, point) for argument in norm.arguments]
    t0 = _value(bound, point)
    room = t0 * t0 - sum(
        (w * v * v for w, v in zip(norm.weights, y0, strict=True)), Fraction(0)
    )
    if t0 <= 0 or room <= 0:
        raise NotInside("it lies beyond a curved wall")
    along = dict.fromkeys(outputs, Fraction(0))
    square = dict.fromkeys(outputs, Fraction(0))
    for weight, own, argument in zip(norm.weights, y0, norm.arguments, strict=True):
        for symbol, d in argument.summands:
            assert isinstance(symbol, Variable)
            along[symbol] += weight * own * d
            square[symbol] += weight * d * d
    sizes = []
    for output in outputs:
        s = bound.coefficient(output)
        beta = t0 * s - along[output]
        gamma = s * s - square[output]
        sizes.append((-beta / room, (beta * beta - room * gamma) / (room * room)))
    return sizes


def _value(linear: Linear, point: Mapping[Symbol, Fraction]) -> Fraction:
    return linear.constant + sum(
        (c * point[symbol] for symbol, c in linear.summands), Fraction(0)
    )


def vanishing(norm: Norm) -> list[Atom]:
    """What is true of every norm, and enough to know where it is 0: it is 0 at 0, and no smaller than its parts."""
    zeros = tuple(Linear() for _ in norm.arguments)
    facts = [Atom(Linear.of(Norm(norm.weights, zeros)), "==")]
    for weight, argument in zip(norm.weights, norm.arguments, strict=True):
        size = _root_below(weight)
        for sign in (1, -1):
            facts.append(Atom(argument * (sign * size) - Linear.of(norm), "<="))
    return facts


def _root_below(number: Fraction) -> Fraction:
    """A positive number whose square is at most the given positive one."""
    shift = number.denominator.bit_length() + 32
    return Fraction(isqrt(int(number * 4**shift)), 2**shift)
