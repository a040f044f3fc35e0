"""The parts of a term as a certificate describes them, and what each of them claims.

Every part says three things: what its outputs *keep* to (a formula in x), what the term must *imply* so that nothing of
it is lost, and numbers that must be what exact arithmetic makes of the others (:meth:`Part.faults`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import Any

from multiplexnet.certificate.formats import FORMATS, Format, grid, power
from multiplexnet.certificate.margins import (
    Affine,
    Margins,
    NotInside,
    Sparse,
    margins,
    solved,
)
from multiplexnet.compiler.record import (
    RecordReader,
    list_from,
    number_from,
    whole_from,
)
from multiplexnet.language.formula import (
    Apply,
    Atom,
    Linear,
    Norm,
    Symbol,
    Variable,
    symbols,
)

__all__ = [
    "Box",
    "Lattice",
    "Parametric",
    "Part",
    "Polyhedron",
    "is_coprime",
    "numbers_from",
]

Formulas = list[Atom]


class Part(ABC):
    """Some outputs of a term and how the layer computes them."""

    outputs: tuple[Variable, ...]

    @abstractmethod
    def keeps(self) -> Formulas:
        """What holds of every value that the part computes."""

    @abstractmethod
    def needs(self, form: Format) -> Formulas:
        """What the term has to imply: then the part leaves nothing out but what the format cannot hold."""

    @abstractmethod
    def faults(self, form: Format) -> Iterator[str]:
        """What exact arithmetic finds wrong."""

    def holds(self, form: Format) -> Formulas:
        """What has to follow from :meth:`keeps` alone."""
        return []


def _outputs(record: Mapping[str, Any], reader: RecordReader) -> tuple[Variable, ...]:
    found = tuple(map(reader.variable, list_from(record["outputs"])))
    if any(v.is_input for v in found) or len(set(found)) < len(found):
        raise ValueError("the outputs of a part are not different outputs")
    return found


def numbers_from(record: Any, count: int) -> tuple[Fraction, ...]:
    """So many numbers."""
    found = tuple(map(number_from, list_from(record)))
    if len(found) != count:
        raise ValueError(f"{len(found)} numbers where {count} belong")
    return found


def _sparse(record: Any, width: int) -> Sparse:
    """Coefficients ``[[position, number], …]``, positions ascending, numbers not 0."""
    pairs = [
        (whole_from(j), number_from(c)) for j, c in map(list_from, list_from(record))
    ]
    places = [j for j, _ in pairs]
    if places != sorted(set(places)) or not all(0 <= j < width and c for j, c in pairs):
        raise ValueError("a row of a basis out of order")
    return dict(pairs)


def _margins(record: Mapping[str, Any]) -> Margins:
    slack, room = (
        tuple(map(number_from, list_from(record[name]))) for name in ("slack", "room")
    )
    return Margins(slack, room, tuple(map(whole_from, list_from(record["loose"]))))


def _rows(
    record: Any, reader: RecordReader, allowed: Sequence[Variable] | None
) -> tuple[Atom, ...]:
    """Inequalities over the allowed variables (``None``: over anything)."""
    found = tuple(map(reader.atom, list_from(record)))
    named = {s for row in found for s in symbols(row)}
    if allowed is not None and not named <= set(allowed):
        raise ValueError("a row of a part speaks of something else than its outputs")
    if any(row.relation == "==" for row in found) or not all(
        isinstance(s, Variable | Apply) or (allowed is None and isinstance(s, Norm))
        for s in named
    ):
        raise ValueError("a row of a part is not a plain inequality")
    if not all(map(is_coprime, found)):
        raise ValueError("a row of a part whose coefficients are not coprime integers")
    return found


def is_coprime(row: Atom) -> bool:
    """Whether the coefficients are coprime integers, so that there is one way to write the row."""
    coefficients = [c for _, c in row.linear.summands]
    whole = all(c.denominator == 1 for c in coefficients)
    return whole and (
        not coefficients or gcd(*(c.numerator for c in coefficients)) == 1
    )


def _vectors(
    rows: Sequence[Atom], variables: Sequence[Variable], scale: Fraction = Fraction(1)
) -> list[tuple[Sparse, Fraction]]:
    """The rows ``a·x ≤ b`` as ``(a · scale, b)``."""
    place: dict[Symbol, int] = {v: j for j, v in enumerate(variables)}
    return [
        ({place[s]: c * scale for s, c in row.linear.summands}, -row.linear.constant)
        for row in rows
    ]


def _said(found: Margins, said: Margins) -> Iterator[str]:
    if found != said:
        yield "what is left of its slacks is not what the certificate says"


def _at_most(
    symbol: Variable, bound: Fraction, sign: int = 1, *, strict: bool = False
) -> Atom:
    """``sign · x ≤ bound``."""
    return Atom(Linear.of(symbol) * sign - bound, "<" if strict else "<=")


@dataclass(frozen=True)
class Box(Part):
    """Intervals, their ends rounded inward to numbers of the format."""

    outputs: tuple[Variable, ...]
    lower: tuple[Fraction | None, ...]
    upper: tuple[Fraction | None, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> Box:
        """From a record."""
        outputs = _outputs(record, reader)
        ends = [
            tuple(
                None if end is None else number_from(end)
                for end in list_from(record[side])
            )
            for side in ("lower", "upper")
        ]
        if any(len(side) != len(outputs) for side in ends):
            raise ValueError("a box has two ends for every output")
        return cls(outputs, *ends)

    def constants(self) -> Iterator[tuple[Variable, Fraction]]:
        """The outputs that have one value, and this value."""
        for v, low, high in zip(self.outputs, self.lower, self.upper, strict=True):
            if low is not None and low == high:
                yield v, low

    def _ends(self) -> Iterator[tuple[Variable, Fraction, int]]:
        """Output, end and side of every bound."""
        for side, ends in ((-1, self.lower), (1, self.upper)):
            yield from (
                (v, end, side)
                for v, end in zip(self.outputs, ends, strict=True)
                if end is not None
            )

    def keeps(self) -> Formulas:
        found = []
        for variable, end, side in self._ends():
            found.append(_at_most(variable, side * end, side))
        return found

    def needs(self, form: Format) -> Formulas:
        """The next number outside is outside the term."""
        return [
            _at_most(
                v,
                side * (form.after(end) if side > 0 else form.before(end)),
                side,
                strict=True,
            )
            for v, end, side in self._ends()
            if abs(end) < form.largest
        ]

    def faults(self, form: Format) -> Iterator[str]:
        for v, end, _ in self._ends():
            if not form.holds(end):
                yield f"the end {end} of {v.name} is not a number of the format"
        for v, low, high in zip(self.outputs, self.lower, self.upper, strict=True):
            if low is not None and high is not None and low > high:
                yield f"the interval of {v.name} is empty"


@dataclass(frozen=True)
class Parametric(Part):
    """Rows with inputs or functions in them: anchor and margins are computed, and checked, at run time."""

    outputs: tuple[Variable, ...]
    rows: tuple[Atom, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> Parametric:
        """From a record."""
        return cls(_outputs(record, reader), _rows(record["rows"], reader, None))

    def keeps(self) -> Formulas:
        return list(self.rows)

    def needs(self, form: Format) -> Formulas:
        return list(self.rows)

    def faults(self, form: Format) -> Iterator[str]:
        return iter(())


@dataclass(frozen=True)
class Polyhedron(Part):
    """Rows around an anchor strictly inside."""

    outputs: tuple[Variable, ...]
    rows: tuple[Atom, ...]
    anchor: tuple[Fraction, ...]
    margins: Margins

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> Polyhedron:
        """From a record."""
        outputs = _outputs(record, reader)
        rows = _rows(record["rows"], reader, outputs)
        return cls(
            outputs,
            rows,
            numbers_from(record["anchor"], len(outputs)),
            _margins(record),
        )

    def keeps(self) -> Formulas:
        return list(self.rows)

    def needs(self, form: Format) -> Formulas:
        return list(self.rows)

    def faults(self, form: Format) -> Iterator[str]:
        if not all(form.holds(c) and abs(c) < form.largest for c in self.anchor):
            yield "its anchor is not a point of the format"
        if not all(map(form.is_clear_of_zero, self.anchor)):
            yield "its anchor is next to the numbers that some modes of a processor take for zero"
        try:
            found = margins(
                _vectors(self.rows, self.outputs), self.anchor, form.unit, form.tiny
            )
        except (NotInside, OverflowError) as error:
            yield f"its anchor is not strictly inside: {error}"
        else:
            yield from _said(found, self.margins)


@dataclass(frozen=True)
class Lattice(Part):
    """Solutions of equalities, ``x = origin + basis t`` with t on a grid, around an anchor on it.

    ``rows`` over t are those of the term; ``cuts`` keep an output within ± some size, as the format asks for; ``ends``
    are those of the bounds ``±t_j ≤ bound`` that do not follow from all these.
    """

    outputs: tuple[Variable, ...]
    origin: tuple[Fraction, ...]
    basis: tuple[Sparse, ...]
    step: Fraction
    bound: Fraction
    rows: tuple[Atom, ...]
    cuts: tuple[tuple[int, Fraction], ...]
    ends: tuple[tuple[int, int], ...]
    anchor: tuple[Fraction, ...]
    margins: Margins

    @classmethod
    def of(cls, record: Mapping[str, Any], reader: RecordReader) -> Lattice:
        """From a record."""
        outputs = _outputs(record, reader)
        width = len(list_from(record["anchor"]))
        t = [Variable(f"t[{j}]", j) for j in range(width)]
        basis = tuple(_sparse(row, width) for row in list_from(record["basis"]))
        step = number_from(record["step"])
        bound = number_from(record["bound"])
        ends = tuple(
            (whole_from(j), whole_from(sign))
            for j, sign in map(list_from, list_from(record["ends"]))
        )
        cuts = tuple(
            (whole_from(i), number_from(size))
            for i, size in map(list_from, list_from(record["cuts"]))
        )
        if any(not 0 <= i < len(outputs) for i, _ in cuts):
            raise ValueError("a cut of an output that the lattice does not have")
        if len(basis) != len(outputs) or step <= 0 or bound <= 0 or not width:
            raise ValueError("a lattice without a basis, a step or a bound")
        if any(not 0 <= j < width or sign not in (1, -1) for j, sign in ends):
            raise ValueError("a bound of a coordinate that the lattice does not have")
        return cls(
            outputs,
            numbers_from(record["origin"], len(outputs)),
            basis,
            step,
            bound,
            _rows(record["rows"], RecordReader(t), t),
            cuts,
            ends,
            numbers_from(record["anchor"], width),
            _margins(record),
        )

    @cached_property
    def t(self) -> list[Variable]:
        """The coordinates."""
        return [Variable(f"t[{j}]", j) for j in range(len(self.anchor))]

    def _cut_rows(self) -> list[Atom]:
        """``±x_i ≤ size`` over t, with coprime coefficients."""
        found = []
        for i, size in self.cuts:
            factor = Fraction(
                1, gcd(*(c.numerator for c in self.basis[i].values())) or 1
            )
            x = Linear.total(
                {self.t[j]: c for j, c in self.basis[i].items()}, self.origin[i]
            )
            found += [Atom((x * sign - size) * factor, "<=") for sign in (1, -1)]
        return found

    def _bounds(self) -> list[Atom]:
        return [_at_most(v, self.bound, sign) for v in self.t for sign in (1, -1)]

    def _kept_in_t(self) -> list[Atom]:
        ends = [_at_most(self.t[j], self.bound, sign) for j, sign in self.ends]
        return [*self.rows, *self._cut_rows(), *ends]

    @cached_property
    def _solved(self) -> tuple[list[Affine], list[Affine]]:
        return solved(self.origin, self.basis, len(self.anchor))

    def _in_x(self, rows: Sequence[Atom]) -> Formulas:
        """Rows over t as rows over x, for x of the lattice."""
        return [Atom(self.linear_in_x(row.linear), row.relation) for row in rows]

    def linear_in_x(self, linear: Linear) -> Linear:
        """An expression over t as one over x."""
        total: dict[Symbol, Fraction] = {}
        constant = linear.constant
        for symbol, c in linear.summands:
            assert isinstance(symbol, Variable)
            own = self._coordinates[symbol]
            constant += c * own.constant
            for s, d in own.summands:
                total[s] = total.get(s, Fraction(0)) + c * d
        return Linear.total(total, constant)

    @cached_property
    def _coordinates(self) -> dict[Variable, Linear]:
        affine = map(self._linear, self._solved[0])
        return dict(zip(self.t, affine, strict=True))

    def _linear(self, affine: Affine) -> Linear:
        return Linear.total(
            {self.outputs[i]: c for i, c in affine[0].items()}, affine[1]
        )

    def _span(self) -> Formulas:
        return [Atom(self._linear(affine), "==") for affine in self._solved[1]]

    def keeps(self) -> Formulas:
        return [*self._span(), *self._in_x(self._kept_in_t())]

    def needs(self, form: Format) -> Formulas:
        return [*self._span(), *self._in_x(self.rows)]

    def holds(self, form: Format) -> Formulas:
        """``|t| ≤ bound``, and every x is a number of the format."""
        largest = [min(power(form.p) * g, form.largest) for g in self._grids()]
        pairs = zip(self.outputs, largest, strict=True)
        return [
            *self._in_x(self._bounds()),
            *(_at_most(v, size, sign) for v, size in pairs for sign in (1, -1)),
        ]

    def _grids(self) -> list[Fraction]:
        """What every x_i is a multiple of."""
        return [
            min(
                [
                    grid(c)
                    for c in (origin, *(c * self.step for c in row.values()))
                    if c
                ],
                default=Fraction(1),
            )
            for origin, row in zip(self.origin, self.basis, strict=True)
        ]

    def faults(self, form: Format) -> Iterator[str]:
        dyadic = [self.step, *self.origin]
        if any(
            c.denominator & (c.denominator - 1) for c in dyadic
        ) or self.step != grid(self.step):
            yield "its step is not a power of two, or its origin is not a binary number"
            return
        if any(c.denominator != 1 for row in self.basis for c in row.values()):
            yield "its basis is not made of integers"
            return
        try:
            self._solved  # noqa: B018
        except ValueError as error:
            yield f"its points are not unique: {error}"
            return
        if any((c / self.step).denominator != 1 for c in self.anchor):
            yield "its anchor is not on the grid"
        if any(g < form.tiny for g in self._grids()):
            yield "its grid is finer than the format"
        grain = min([self.step, *(Fraction(1, c.denominator) for c in self.origin)])
        sizes = [
            abs(o) + self.bound * sum(map(abs, row.values()))
            for o, row in zip(self.origin, self.basis, strict=True)
        ]
        if max(sizes) > power(53) * grain:
            yield "its sums are rounded in float64"
        yield from self._margin_faults()

    def _margin_faults(self) -> Iterator[str]:
        double = FORMATS["float64"]
        said = [*self.rows, *self._cut_rows(), *self._bounds()]
        rows = _vectors(said, self.t, self.step)
        tiny = Fraction(float(double.tiny) + 0.5)
        try:
            found = margins(
                rows, [c / self.step for c in self.anchor], double.unit, tiny
            )
        except (NotInside, OverflowError) as error:
            yield f"its anchor is not strictly inside: {error}"
        else:
            yield from _said(found, self.margins)
