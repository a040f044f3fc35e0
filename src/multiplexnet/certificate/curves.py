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

from multiplexnet.certificate.formats import FORMATS, Format
from multiplexnet.certificate.margins import NotInside
from multiplexnet.certificate.parts import (
    Formulas,
    Lattice,
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

__all__ = ["Curved", "CurvedLattice", "length_at", "vanishing"]

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Cones:
    """Comparisons with norms around an anchor.

    Args:
        atoms: the comparisons.
        sizes: for each cone and coordinate how far a step along it may move the gauge.
        left: for each cone the share of its room that rounding leaves.
    """

    atoms: tuple[Atom, ...]
    sizes: tuple[tuple[Fraction, ...], ...]
    left: tuple[Fraction, ...]

    @staticmethod
    def of(
        record: Mapping[str, Any], reader: RecordReader, over: Sequence[Variable]
    ) -> Cones:
        """From a record."""
        atoms = tuple(map(reader.atom, list_from(record["cones"])))
        for atom in atoms:
            found = norm_in(atom.linear)
            named = {s for s in symbols(atom) if not isinstance(s, Norm)}
            if found is None or found[1] <= 0 or atom.relation == "==":
                raise ValueError("a curved wall that bounds no convex set")
            if not named <= set(over) or not is_coprime(atom):
                raise ValueError(
                    "a curved wall over something else than the outputs of its part"
                )
        sizes = tuple(
            numbers_from(row, len(over)) for row in list_from(record["sizes"])
        )
        left = tuple(map(number_from, list_from(record["left"])))
        if not atoms or len(sizes) != len(atoms) or len(left) != len(atoms):
            raise ValueError("a curved part without sizes for each of its walls")
        return Cones(atoms, sizes, left)

    def faults(
        self,
        over: Sequence[Variable],
        anchor: Sequence[Fraction],
        step: Fraction,
        errors: Sequence[Fraction],
    ) -> Iterator[str]:
        """What is wrong around an anchor, sizes and errors being in units of the step."""
        for atom, sizes, left in zip(self.atoms, self.sizes, self.left, strict=True):
            try:
                least = _least_sizes(atom, over, anchor)
            except NotInside as error:
                yield f"its anchor is not strictly inside: {error}"
                return
            scaled = [(w * step, q * step * step) for w, q in least]
            if not all(map(_is_enough, sizes, scaled)):
                yield "a curved wall moves faster than the certificate says"
            spent = sum(
                (h * e for h, e in zip(sizes, errors, strict=True)), Fraction(0)
            )
            found = 1 - spent if 1 - spent >= HALF else Fraction(0)
            if Fraction(float(found)) != left:
                yield "what is left of a curved wall is not what the certificate says"


@dataclass(frozen=True)
class Curved(Part):
    """Rows and cones around an anchor strictly inside."""

    flat: Polyhedron
    cones: Cones

    kind = Polyhedron

    @property
    def outputs(self) -> tuple[Variable, ...]:  # type: ignore[override]
        return self.flat.outputs

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> Curved:
        """From a record."""
        flat = Polyhedron.of(record, reader)
        return cls(flat, Cones.of(record, reader, flat.outputs))

    def keeps(self) -> Formulas:
        return [*self.flat.keeps(), *self.cones.atoms]

    def needs(self, form: Format) -> Formulas:
        return [*self.flat.needs(form), *self.cones.atoms]

    def faults(self, form: Format) -> Iterator[str]:
        yield from self.flat.faults(form)
        anchor = self.flat.anchor
        errors = [form.unit * abs(c) + form.tiny for c in anchor]
        yield from self.cones.faults(self.flat.outputs, anchor, Fraction(1), errors)


@dataclass(frozen=True)
class CurvedLattice(Part):
    """Solutions of equalities on a grid, inside rows and cones over its coordinates."""

    flat: Lattice
    cones: Cones

    kind = Lattice

    @property
    def outputs(self) -> tuple[Variable, ...]:  # type: ignore[override]
        return self.flat.outputs

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> CurvedLattice:
        """From a record."""
        flat = Lattice.of(record, reader)
        return cls(flat, Cones.of(record, RecordReader(flat.t), flat.t))

    def _in_x(self) -> Formulas:
        found = []
        for atom in self.cones.atoms:
            norm, c = _norm_of(atom)
            rest = Linear(atom.linear.summands[:-1], atom.linear.constant)
            inside = tuple(map(self.flat.linear_in_x, norm.arguments))
            curved = Linear.of(Norm(norm.weights, inside)) * c
            found.append(Atom(curved + self.flat.linear_in_x(rest), atom.relation))
        return found

    def keeps(self) -> Formulas:
        return [*self.flat.keeps(), *self._in_x()]

    def needs(self, form: Format) -> Formulas:
        return [*self.flat.needs(form), *self._in_x()]

    def holds(self, form: Format) -> Formulas:
        return self.flat.holds(form)

    def faults(self, form: Format) -> Iterator[str]:
        yield from self.flat.faults(form)
        double = FORMATS["float64"]
        half = Fraction(float(double.tiny) + 0.5)
        step = self.flat.step
        errors = [double.unit * abs(c / step) + half for c in self.flat.anchor]
        yield from self.cones.faults(self.flat.t, self.flat.anchor, step, errors)


def _norm_of(atom: Atom) -> tuple[Norm, Fraction]:
    found = norm_in(atom.linear)
    assert found is not None
    return found


def _is_enough(size: Fraction, least: tuple[Fraction, Fraction]) -> bool:
    """Whether ``size ≥ |w| + √Q``."""
    rest = size - abs(least[0])
    return rest >= 0 and rest * rest >= least[1]


def _least_sizes(
    cone: Atom, outputs: Sequence[Variable], anchor: Sequence[Fraction]
) -> list[tuple[Fraction, Fraction]]:
    """``(w_j, Q_jj)`` for every output."""
    norm, c = _norm_of(cone)
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


def length_at(norm: Norm, point: Mapping[Symbol, Fraction]) -> Atom | None:
    """What a norm is, or is less than, where the point says all that stands in it; ``None`` if it does not."""
    if any(symbol not in point for a in norm.arguments for symbol in a.symbols):
        return None
    values = [_value(argument, point) for argument in norm.arguments]
    there = Norm(norm.weights, tuple(map(Linear.number, values)))
    square = sum(
        (w * v * v for w, v in zip(norm.weights, values, strict=True)), Fraction(0)
    )
    bound = _root_above(square)
    return Atom(Linear.of(there) - bound, "==" if bound * bound == square else "<=")


def _root_above(number: Fraction) -> Fraction:
    """The root of a number that has a rational one; else a number above it."""
    product = number.numerator * number.denominator
    exact = isqrt(product)
    if exact * exact == product:
        return Fraction(exact, number.denominator)
    return Fraction(isqrt(product << 128) + 1, number.denominator << 64)


def _root_below(number: Fraction) -> Fraction:
    """A positive number whose square is at most the given positive one."""
    shift = number.denominator.bit_length() + 32
    return Fraction(isqrt(int(number * 4**shift)), 2**shift)
