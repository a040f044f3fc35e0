r"""What a certificate says of a cascade: outputs on a grid, one computed after another.

Variables are numbered: outputs first (hidden ones last), then *known values*, which inputs give. All are whole
numbers k between the ends of their range; an output is ``x = h k``, or ``h k + f`` where it carries what an input has
beyond the grid. A *row* is ``Σ A k ≤ β``, a *clause* a list of rows of which one holds. Each *step* computes one
variable: any whole number in its range for which its clauses hold, on one of the listed sides of its gaps (or among
the listed values). Steps speak of known values and of what was computed before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from multiplexnet.certificate.cascade.late_rows import LateRow, easy_ends, late_from
from multiplexnet.certificate.formats import Format, power
from multiplexnet.compiler.record import (
    RecordReader,
    flag_from,
    list_from,
    number_from,
    text_from,
    whole_from,
)
from multiplexnet.language.formula import Bool, Formula, Int, Real, Variable

__all__ = [
    "Bit",
    "Cascade",
    "Clause",
    "Form",
    "Known",
    "Row",
    "Step",
    "Whole",
    "cascade_from",
]

EXACT = {"float64": 2**53, "float32": 2**24}
"""Whole numbers below this are exact in the dtype that is computed in, and so are sums that stay below it."""
NAMES = {
    *(
        "outputs",
        "hidden",
        "spacing",
        "known",
        "ranges",
        "steps",
        "guards",
        "complete",
        "carried",
    ),
    *("conditions", "computing"),
}


@dataclass(frozen=True)
class Row:
    """``Σ coefficient · variable ≤ bound``."""

    terms: tuple[tuple[int, int], ...]
    bound: int

    def of(self, variable: int) -> int:
        """The coefficient of a variable."""
        return dict(self.terms).get(variable, 0)


Clause = tuple[Row, ...]


@dataclass(frozen=True)
class Form:
    """``F = Σ c · input / 2^exponent``, inputs by their position among the inputs."""

    terms: tuple[tuple[int, int], ...]
    exponent: int

    @property
    def is_exact(self) -> bool:
        """Whether the layer splits F without rounding: a single input with the coefficient 1."""
        return len(self.terms) == 1 and self.terms[0][1] == 1


@dataclass(frozen=True)
class Whole:
    """The whole part r of a form: ``0 ≤ F − r < 1``; ``< 2`` where the form is rounded."""

    form: Form


@dataclass(frozen=True)
class Bit:
    """Whether ``F − r`` exceeds a threshold (``closed``: or equals it), as 0 or 1.

    Where the form is rounded, a bit that ``subtracts`` is 1 only if that is certain; another one also counts that
    ``F − r`` exceeds the threshold by 1, and is 1 where that is not certain.
    """

    form: Form
    threshold: Fraction
    closed: bool
    subtracts: bool


Known = Whole | Bit


@dataclass(frozen=True)
class Step:
    """One variable: its clauses, and its options (sides of the gaps, values, or the ranks between all gaps)."""

    variable: int
    clauses: tuple[Clause, ...]
    sides: tuple[tuple[bool, ...], ...]
    values: tuple[int, ...] | None
    ranked: bool = False

    @property
    def admits_all(self) -> bool:
        """Whether its options leave out nothing that its clauses admit."""
        return self.ranked or (
            self.values is None and len(self.sides) == 2 ** len(self.gaps)
        )

    @property
    def gaps(self) -> tuple[Clause, ...]:
        """Clauses that bound the variable from below or from above, whichever is chosen."""
        signs = [
            {row.of(self.variable) > 0 for row in c if row.of(self.variable)}
            for c in self.clauses
        ]
        return tuple(
            c for c, own in zip(self.clauses, signs, strict=True) if len(own) == 2
        )


@dataclass(frozen=True)
class Cascade:
    """A cascade as the certificate describes it.

    Args:
        outputs: of the layer; variables 0, 1, ….
        conditions: variable ``len(outputs) + i`` is hidden, 1 where ``conditions[i]`` holds and 0 elsewhere.
        spacing: h of every output, hidden ones too.
        known: the known values, after the hidden outputs.
        ranges: of all variables.
        steps: in the order of computing.
        guards: clauses over known values; where one fails, the layer refuses the row.
        complete: whether it claims to reach every point of the grid that obeys, or only a part.
        carried: outputs that carry what an input has beyond the grid, with this input in steps.
        computing: the dtype in which the layer adds.
        late: rows whose coefficients are inputs.
    """

    outputs: tuple[Variable, ...]
    conditions: tuple[Formula, ...]
    spacing: tuple[Fraction, ...]
    known: tuple[Known, ...]
    ranges: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]
    guards: tuple[Clause, ...]
    complete: bool
    carried: Mapping[int, Form]
    computing: str
    late: tuple[LateRow, ...] = ()

    @property
    def first_known(self) -> int:
        """The number of the first known value."""
        return len(self.spacing)

    @property
    def easy_ends(self) -> dict[int, tuple[int, ...]]:
        """The ends that outputs of late rows may always take."""
        return easy_ends(self.late, self.ranges)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses of all steps, and the guards."""
        return (
            *self.guards,
            *(clause for step in self.steps for clause in step.clauses),
        )

    def faults(self, form: Format) -> Iterator[str]:
        """What exact arithmetic finds wrong."""
        sizes = [max(abs(lower), abs(upper)) for lower, upper in self.ranges]
        limit = EXACT[self.computing]
        for row in (row for clause in self.clauses for row in clause):
            if (
                sum(abs(c) * sizes[v] for v, c in row.terms) + abs(row.bound) + 1
                >= limit
            ):
                yield f"a row whose sums are rounded in {self.computing}"
        for lower, upper in self.ranges[: self.first_known]:
            if upper - lower + 1 >= limit:
                yield f"a range that is too wide for {self.computing}"
        for i, output in enumerate(self.outputs):
            yield from self._grid_faults(i, output, sizes[i], form)
        for i in range(self.first_known):
            if self._is_truth_value(i) and not (
                self.ranges[i][0] >= 0 and self.ranges[i][1] <= 1
            ):
                yield "a truth value beyond 0 and 1"
        for step in self.steps:
            if step.variable >= len(self.outputs) and (
                step.gaps or step.values is not None
            ):
                yield "a hidden output with a choice"

    def _is_truth_value(self, i: int) -> bool:
        return i >= len(self.outputs) or isinstance(self.outputs[i].domain, Bool)

    def _grid_faults(
        self, i: int, output: Variable, size: int, form: Format
    ) -> Iterator[str]:
        h = self.spacing[i]
        is_whole = isinstance(output.domain, Int)
        if not isinstance(output.domain, Real) and h != 1 and not is_whole:
            yield f"{output.name} is not a number, and its spacing is {h}"
        if is_whole and h.denominator != 1:
            yield f"{output.name} is a whole number, and its spacing is {h}"
        digits = _odd_part(h.numerator) * size
        if h < form.tiny or digits > power(form.p) or h * size > form.largest:
            yield f"not every multiple of {h} in the range of {output.name} is a number of the format"
        carried = self.carried.get(i)
        if carried is not None and not (
            carried.is_exact and power(carried.exponent) == h
        ):
            yield f"{output.name} carries something else than one input in its own steps"


# --- reading --------------------------------------------------------------------------------------------------------


def cascade_from(
    record: Any, reader: RecordReader, variables: Sequence[Variable]
) -> Cascade:
    """The cascade that a record describes.

    Raises:
        KeyError, IndexError, TypeError, ValueError: it is not a record of a cascade.
    """
    if not isinstance(record, dict) or set(record) - {"late"} != NAMES:
        raise TypeError(f"a cascade has exactly {', '.join(sorted(NAMES))}")
    outputs = tuple(map(reader.variable, list_from(record["outputs"])))
    if (
        any(v.is_input for v in outputs)
        or len(set(outputs)) < len(outputs)
        or not outputs
    ):
        raise ValueError("the outputs of a cascade are not different outputs")
    conditions = tuple(map(reader.formula, list_from(record["conditions"])))
    inputs = sum(v.is_input for v in variables)
    computed = len(outputs) + len(conditions)
    spacing = tuple(map(_spacing, list_from(record["spacing"])))
    known = tuple(_known(one, inputs) for one in list_from(record["known"]))
    ranges = tuple(map(_range, list_from(record["ranges"])))
    if whole_from(record["hidden"]) != len(conditions):
        raise ValueError("a hidden output without a condition")
    if len(spacing) != computed or len(ranges) != computed + len(known):
        raise ValueError("spacings or ranges that are too many or too few")
    if any(
        one.form not in {w.form for w in known if isinstance(w, Whole)} for one in known
    ):
        raise ValueError("a rest without its whole part")
    before = set(range(computed, len(ranges)))
    guards = tuple(_clause(one, before) for one in list_from(record["guards"]))
    steps = tuple(_steps(list_from(record["steps"]), before, computed))
    if len(steps) != computed:
        raise ValueError("a cascade does not compute every output")
    carried = {
        whole_from(variable): _form(form, inputs)
        for variable, form in map(list_from, list_from(record["carried"]))
    }
    if not set(carried) <= set(range(len(outputs))) or any(
        Whole(form) not in known for form in carried.values()
    ):
        raise ValueError("an output that carries an input which is not known")
    computing = text_from(record["computing"])
    if computing not in EXACT:
        raise ValueError("a cascade computes in float32 or float64")
    complete = flag_from(record["complete"])
    late: tuple[LateRow, ...] = ()
    if "late" in record:
        first = steps[0].variable
        late = late_from(record["late"], inputs, computed, len(outputs), carried, first)
    return Cascade(
        outputs,
        conditions,
        spacing,
        known,
        ranges,
        steps,
        guards,
        complete,
        carried,
        computing,
        late,
    )


def _steps(records: Sequence[Any], before: set[int], computed: int) -> Iterator[Step]:
    for record in records:
        wanted_keys = {"variable", "clauses", "sides", "values"}
        if not isinstance(record, dict) or set(record) - {"ranked"} != wanted_keys:
            raise TypeError("a step has a variable, clauses, sides and values")
        variable = whole_from(record["variable"])
        if not 0 <= variable < computed or variable in before:
            raise ValueError("an output is computed twice, or is none")
        before.add(variable)
        clauses = tuple(_clause(one, before) for one in list_from(record["clauses"]))
        if not all(any(row.of(variable) for row in clause) for clause in clauses):
            raise ValueError("a clause in the wrong place")
        sides = tuple(
            tuple(map(flag_from, list_from(one))) for one in list_from(record["sides"])
        )
        values = record["values"]
        if values is not None:
            values = tuple(map(whole_from, list_from(values)))
        ranked = flag_from(record.get("ranked", False))
        step = Step(variable, clauses, sides, values, ranked)
        wanted = len(step.gaps)
        if bool(sides) + (values is not None) + ranked != 1 or any(
            len(one) != wanted for one in sides
        ):
            raise ValueError("options that do not fit the gaps")
        if len(set(sides)) < len(sides) or (
            values is not None and len(set(values)) < len(values)
        ):
            raise ValueError("an option that is listed twice")
        yield step


def _clause(record: Any, allowed: set[int]) -> Clause:
    rows = []
    for bound, terms in map(list_from, list_from(record)):
        pairs = tuple(
            (whole_from(v), whole_from(c)) for v, c in map(list_from, list_from(terms))
        )
        places = [v for v, _ in pairs]
        if (
            places != sorted(set(places))
            or not set(places) <= allowed
            or not all(c for _, c in pairs)
        ):
            raise ValueError("a row that is not in order")
        rows.append(Row(pairs, whole_from(bound)))
    if not rows or not all(row.terms for row in rows):
        raise ValueError("a clause without rows")
    return tuple(rows)


def _known(record: Any, inputs: int) -> Known:
    kind, form, *rest = list_from(record)
    if kind == "whole" and not rest:
        return Whole(_form(form, inputs))
    if kind != "bit":
        raise ValueError(f"a known value of unknown kind {str(kind)[:40]!r}")
    threshold, closed, subtracts = rest
    return Bit(
        _form(form, inputs),
        number_from(threshold),
        flag_from(closed),
        flag_from(subtracts),
    )


def _form(record: Any, inputs: int) -> Form:
    exponent, terms = list_from(record)
    pairs = tuple(
        (whole_from(place), whole_from(c))
        for place, c in map(list_from, list_from(terms))
    )
    places = [place for place, _ in pairs]
    if (
        not pairs
        or len(set(places)) < len(places)
        or not all(0 <= p < inputs for p in places)
    ):
        raise ValueError("a form over inputs that there are not")
    if not all(c for _, c in pairs) or abs(whole_from(exponent)) > 2000:
        raise ValueError("a form out of all proportion")
    return Form(pairs, exponent)


def _range(record: Any) -> tuple[int, int]:
    lower, upper = map(whole_from, list_from(record))
    if lower > upper:
        raise ValueError("an empty range")
    return lower, upper


def _odd_part(number: int) -> int:
    """A positive number without its factors 2."""
    return number // (number & -number)


def _spacing(record: Any) -> Fraction:
    value = number_from(record)
    if value <= 0 or _odd_part(value.denominator) != 1:
        raise ValueError(f"{value} is not a whole number times a power of two")
    return value
