r"""The grid: outputs become whole numbers, rules become clauses of rows over them.

``x_i = h_i k_i`` with ``h_i`` a power of two, the spacing of the format at the top of x_i's range, so that every
``h_i k_i`` in the range is a number of the format. For whole numbers and labels h_i is 1, or a whole number if
equalities leave multiples of it alone. A comparison ``Σ a_i x_i ≤ b`` with whole a becomes ``Σ A_i k_i ≤ ⌊b / g⌋``,
``A_i = a_i h_i / g`` whole: the same set of k. Inputs enter as known whole numbers
(:mod:`~multiplexnet.compiler.cascade.input_parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd

from multiplexnet.compiler.cascade.carriers import carriers_of
from multiplexnet.compiler.cascade.clauses import AtomClause, Ends, ranges_of
from multiplexnet.compiler.cascade.input_parts import Form, Known, Whole, right_side
from multiplexnet.compiler.cascade.late_rows import is_late
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Range,
    Row,
    clause_of,
    row_of,
)
from multiplexnet.errors import DtypeError, RangeError
from multiplexnet.exact.formats import Format
from multiplexnet.language.formula import Atom, Real, Variable, variables

__all__ = ["Builder", "GridRules", "grid_of", "power_at_least"]


DIGITS = 51
"""The most binary digits of a whole number: the difference of two of them is exact in float64, too."""


@dataclass(frozen=True)
class GridRules:
    """Rules on a grid.

    Args:
        outputs: variables 0 … n − 1 are these, hidden ones included.
        steps: their spacings.
        known: variables n, n + 1, … are these.
        ranges: of all variables, in whole steps.
        clauses: what the rules say of them.
        guards: what they say of known values alone and the ranges of these take for granted.
        carried: for an output that carries what an input has beyond the grid, this input in steps.
    """

    outputs: tuple[Variable, ...]
    steps: tuple[Fraction, ...]
    known: tuple[Known, ...]
    ranges: Mapping[int, Range]
    clauses: tuple[Clause, ...]
    guards: tuple[Clause, ...]
    carried: Mapping[int, Form]


def grid_of(
    clauses: Sequence[AtomClause],
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    form: Format,
    least_steps: Mapping[Variable, Fraction],
) -> GridRules:
    """The rules on the finest grid that the format has for the range of every output.

    Args:
        clauses: the rules, over outputs and inputs; late rows among them bound the outputs, and stay outside.
        outputs: in declared order.
        inputs: in declared order.
        form: the format of the outputs.
        least_steps: spacings that some outputs may not fall below.

    Raises:
        RangeError: a real output for which the rules give no ends.
        DtypeError: whole numbers that the format does not hold.
    """
    ends = ranges_of(clauses, [*outputs, *inputs])
    steps = []
    ranges = {}
    for number, output in enumerate(outputs):
        step = _step(output, ends[output], form, least_steps.get(output, Fraction(0)))
        steps.append(step)
        ranges[number] = _range(ends[output], step, form)
    late = {
        v
        for clause in clauses
        for atom in clause
        if is_late(atom)
        for v in variables(atom)
    }
    clauses = [clause for clause in clauses if not any(map(is_late, clause))]
    spacing = dict(zip(outputs, steps, strict=True))
    carriers = carriers_of(clauses, ends, spacing, inputs, late)
    carried = {outputs.index(output): own for output, own in carriers.items()}
    for number in carried:  # x = h k + f with 0 ≤ f < h
        ranges[number] = Range(ranges[number].lower - 1, ranges[number].upper)
    builder = Builder(outputs, inputs, steps, ranges, carried)
    translated = [[builder.row(atom) for atom in clause] for clause in clauses]
    declared = ranges_of(
        [], inputs
    )  # what rules say of inputs is no promise that they keep it
    ranges |= builder.known_ranges(
        declared, [row for clause in translated for row in clause]
    )
    guards = tuple(
        _on_grid(
            [clause[0] for clause in translated if len(clause) == 1],
            ranges,
            len(outputs),
        )
    )
    found = [clause_of(clause, ranges) for clause in translated]
    kept = tuple(dict.fromkeys(clause for clause in found if clause is not None))
    return GridRules(
        tuple(outputs),
        tuple(steps),
        tuple(builder.known),
        ranges,
        kept,
        guards,
        carried,
    )


def _on_grid(
    rows: Sequence[Row], ranges: dict[int, Range], outputs: int
) -> Iterator[Clause]:
    """What equalities ask of inputs: two rows whose left sides add up to a bit bound it, usually by 0.

    The ranges of these bits are narrowed, so that the projections need not carry them along.
    """
    bounds = {row.terms: row.bound for row in rows}
    for row in rows:
        for bit, c in row.terms:
            if bit < outputs or c != 1 or ranges[bit].size > 2:
                continue
            opposite = bounds.get(tuple((v, -a) for v, a in row.without(bit)))
            if opposite is not None and opposite + row.bound < ranges[bit].upper:
                ranges[bit] = Range(
                    ranges[bit].lower, max(opposite + row.bound, ranges[bit].lower)
                )
                yield (Row(((bit, 1),), opposite + row.bound),)


def power_at_least(value: Fraction) -> Fraction:
    """The least power of two that is not below a positive number."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 1
    power = Fraction(2) ** exponent
    while power < value:
        power *= 2
    return power


def _step(output: Variable, ends: Ends, form: Format, least: Fraction) -> Fraction:
    lower, upper = ends
    if lower is None or upper is None:
        raise RangeError(output.name, lower, upper)
    size = min(max(abs(lower), abs(upper)), form.max)
    if not isinstance(output.domain, Real):
        if size > 2**form.precision:
            raise DtypeError(
                f"{form.name} holds whole numbers up to {2**form.precision} without gaps, and {output.name} goes from "
                f"{lower} to {upper}: use a wider dtype or a smaller range"
            )
        return max(least, Fraction(1))
    if not size:
        return Fraction(1)
    if lower == upper and form.representable(lower):
        return _unit(lower)
    digits = min(form.precision, DIGITS)
    return max(power_at_least(size / 2**digits), form.tiny, least)


def _range(ends: Ends, step: Fraction, form: Format) -> Range:
    lower, upper = ends
    assert lower is not None  # _step has refused these
    assert upper is not None
    return Range(ceil(max(lower, -form.max) / step), floor(min(upper, form.max) / step))


class Builder:
    """Comparisons as rows; known values get their numbers as they come."""

    def __init__(
        self,
        outputs: Sequence[Variable],
        inputs: Sequence[Variable],
        steps: Sequence[Fraction],
        ranges: dict[int, Range],
        carried: Mapping[int, Form] | None = None,
    ) -> None:
        self._number = {variable: i for i, variable in enumerate(outputs)}
        self._input = {variable: i for i, variable in enumerate(inputs)}
        self._inputs = inputs
        self._steps = steps
        self._ranges = ranges
        self._carried = carried or {}
        self.known: list[Known] = []
        self._place: dict[Known, int] = {}

    def adopt(self, known: Sequence[Known]) -> None:
        """These known values come first, in this order."""
        for one in known:
            self._known(one)

    def row(self, atom: Atom) -> Row:
        """The row of a comparison."""
        own: dict[int, Fraction] = {}
        given: dict[int, int] = {}
        for symbol, c in atom.linear.summands:
            if symbol in self._input:
                given[self._input[symbol]] = int(c)
            else:
                number = self._number[symbol]  # type: ignore[index]
                own[number] = c * self._steps[number]
        unit = min((_unit(c) for c in own.values()), default=Fraction(1))
        left = {number: int(c / unit) for number, c in own.items()}
        self._carry(
            left,
            given,
            {number: int(c / self._steps[number]) for number, c in own.items()},
        )
        right = -atom.linear.constant / unit
        shared = _odd_divisor([*left.values(), *given.values()])
        left = {number: c // shared for number, c in left.items()}
        given = {position: c // shared for position, c in given.items()}
        right /= shared
        strict = atom.relation == "<"
        if not any(given.values()):
            return row_of(left, ceil(right) - 1 if strict else floor(right))
        form, sign = _form({position: c for position, c in given.items() if c}, unit)
        added, bound = right_side(form, sign, right, strict)
        for known, times in added.items():
            place = self._known(known)
            left[place] = left.get(place, 0) + times
        return row_of(left, bound)

    def _carry(
        self, left: dict[int, int], given: dict[int, int], factors: Mapping[int, int]
    ) -> None:
        """Writes h k + u − h r instead of h k for outputs that carry what an input has beyond the grid."""
        for number in sorted(factors.keys() & self._carried.keys()):
            form = self._carried[number]
            position = form.terms[0][0]
            whole = self._known(Whole(form))
            given[position] = given.get(position, 0) + factors[number]
            left[whole] = left.get(whole, 0) - left[number]

    def _known(self, known: Known) -> int:
        if known not in self._place:
            self._place[known] = len(self._number) + len(self.known)
            self.known.append(known)
        return self._place[known]

    def known_ranges(
        self, ends: Mapping[Variable, Ends], rows: Sequence[Row]
    ) -> dict[int, Range]:
        """Ends of the known values; those of a whole part are wide enough for every row to be decided beyond them."""
        found = {}
        for known, place in self._place.items():
            if isinstance(known, Whole):
                found[place] = self._whole_range(
                    known.form, ends, [row for row in rows if row.coefficient(place)]
                )
            else:
                most = 1 if known.form.is_exact or known.subtracts else 2
                least = int(
                    not known.subtracts and known.closed and known.threshold == 0
                )
                found[place] = Range(least, most)
        return found

    def _whole_range(
        self, form: Form, ends: Mapping[Variable, Ends], rows: Sequence[Row]
    ) -> Range:
        decided = 0
        for row in rows:
            own = sum(
                abs(c) * self._ranges[v].size for v, c in row.terms if v in self._ranges
            )
            decided = max(decided, own + abs(row.bound) + 3)
        lower = -decided
        upper = decided
        low, high = (self._end(form, ends, top) for top in (False, True))
        if low is not None:
            lower = max(lower, min(floor(low) - 1, decided))
        if high is not None:
            upper = min(upper, max(floor(high), -decided))
        return Range(lower, upper)

    def _end(
        self, form: Form, ends: Mapping[Variable, Ends], top: bool
    ) -> Fraction | None:
        total = Fraction(0)
        for position, c in form.terms:
            end = ends[self._inputs[position]][top == (c > 0)]
            if end is None:
                return None
            total += c * end
        return total / Fraction(2) ** form.exponent


def _unit(value: Fraction) -> Fraction:
    """The largest power of two of which the number, a whole number times a power of two, is a whole multiple."""
    low = value.numerator & -value.numerator
    return Fraction(low, value.denominator)


def _odd_divisor(numbers: Iterable[int]) -> int:
    """The largest odd number that divides all of them; rows have one where spacings are no powers of two."""
    divisor = gcd(*numbers)
    return divisor // (divisor & -divisor) if divisor else 1


def _form(given: Mapping[int, int], unit: Fraction) -> tuple[Form, int]:
    """The inputs of a row ``… + Σ c u ≤ …`` in units: a form, and its sign on the left side."""
    terms = sorted(given.items())
    sign = 1 if terms[0][1] > 0 else -1
    shared = min(c & -c for _, c in terms)
    exponent = _exponent(unit / shared)
    return Form(
        tuple((place, sign * c // shared) for place, c in terms), exponent
    ), sign


def _exponent(power: Fraction) -> int:
    return power.numerator.bit_length() - power.denominator.bit_length()
