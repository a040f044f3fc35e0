"""A cascade as a JSON-able record, and back: it loads without being compiled again.

Reading a record runs no code and takes nothing for what it does not look like; numbers that do not fit together end in
:class:`~multiplexnet.errors.RecordError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from multiplexnet.compiler.cascade.build import EXACT, Cascade, Step
from multiplexnet.compiler.cascade.input_parts import Bit, Form, Known, Whole
from multiplexnet.compiler.cascade.late_rows import LateRow, Polynomial
from multiplexnet.compiler.cascade.projection.project import bucket_of
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Range,
    Row,
    row_of,
    variables_of,
)
from multiplexnet.compiler.record import (
    flag_from,
    list_from,
    number_from,
    reading,
    whole_from,
)
from multiplexnet.language.formula import Bool, Int, Variable

__all__ = ["cascade_from", "record_of_cascade"]

Record = Any


def record_of_cascade(cascade: Cascade) -> Record:
    """The cascade as lists, numbers and texts; outputs by their index."""
    found = {
        "outputs": [v.index for v in cascade.visible],
        "hidden": cascade.hidden,
        "spacing": [str(h) for h in cascade.spacing],
        "known": [_known(known) for known in cascade.known],
        "ranges": [list(ends) for ends in cascade.ranges],
        "steps": [_step(step) for step in cascade.steps],
        "guards": [_clause(clause) for clause in cascade.guards],
        "complete": cascade.complete,
        "carried": [[variable, _form(form)] for variable, form in cascade.carried],
    }
    return (
        found | {"late": [_late(row) for row in cascade.late]}
        if cascade.late
        else found
    )


def _late(row: LateRow) -> Record:
    terms = [[variable, _polynomial(own), sign] for variable, own, sign in row.terms]
    return [terms, _polynomial(row.bound), row.strict]


def _polynomial(polynomial: Polynomial) -> Record:
    return [[list(places), c] for places, c in polynomial]


def _form(form: Form) -> Record:
    return [form.exponent, [list(term) for term in form.terms]]


def _known(known: Known) -> Record:
    if isinstance(known, Whole):
        return ["whole", _form(known.form)]
    return [
        "bit",
        _form(known.form),
        str(known.threshold),
        known.closed,
        known.subtracts,
    ]


def _step(step: Step) -> Record:
    found = {
        "variable": step.variable,
        "clauses": [_clause(clause) for clause in step.bucket.clauses],
        "sides": [list(sides) for sides in step.sides],
        "values": None if step.values is None else list(step.values),
    }
    return found | {"ranked": True} if step.ranked else found


def _clause(clause: Clause) -> Record:
    return [[row.bound, [list(term) for term in row.terms]] for row in clause]


def cascade_from(record: Record, variables: Sequence[Variable], inputs: int) -> Cascade:
    """The cascade that was recorded.

    Args:
        record: see :func:`record_of_cascade`.
        variables: all variables of the rules, by index.
        inputs: how many inputs the rules have.

    Raises:
        RecordError: the record is not one, or does not fit together.
    """
    with reading("a cascade"):
        return _Reader(record, variables, inputs).cascade()


class _Reader:
    def __init__(
        self, record: Record, variables: Sequence[Variable], inputs: int
    ) -> None:
        self._record = record
        self._variables = variables
        self._inputs = inputs

    def cascade(self) -> Cascade:
        record = self._record
        outputs = [self._output(index) for index in list_from(record["outputs"])]
        hidden = whole_from(record["hidden"])
        if (
            len(set(outputs)) < len(outputs)
            or not outputs
            or not 0 <= hidden <= len(list_from(record["spacing"]))
        ):
            raise ValueError("the outputs of a cascade are not different outputs")
        if outputs != sorted(outputs, key=lambda v: v.index):
            raise ValueError("the outputs of a cascade are not in declared order")
        first = len(self._variables)
        everything = (
            *outputs,
            *(Variable(f"hidden {i}", first + i, Bool()) for i in range(hidden)),
        )
        written = list_from(record["spacing"])
        if len(written) != len(everything):
            raise ValueError("spacings that are too many or too few")
        spacing = tuple(map(_spacing, written, everything))
        known = tuple(self._known(item) for item in list_from(record["known"]))
        self._ranges = tuple(_range(item) for item in list_from(record["ranges"]))
        if len(self._ranges) != len(everything) + len(known):
            raise ValueError("ranges that are too many or too few")
        self._count = len(everything)
        before = set(range(self._count, len(self._ranges)))
        guards = tuple(
            self._clause(item, before) for item in list_from(record["guards"])
        )
        steps = []
        for item in list_from(record["steps"]):
            steps.append(self._step(item, before, hidden))
            before.add(steps[-1].variable)
        if before != set(range(len(self._ranges))):
            raise ValueError("a cascade does not compute every output")
        carried = tuple(
            self._carried(item, spacing, hidden)
            for item in list_from(record["carried"])
        )
        if len({variable for variable, _ in carried}) < len(carried):
            raise ValueError("an output that carries two inputs")
        found = Cascade(
            everything,
            hidden,
            spacing,
            known,
            self._ranges,
            tuple(steps),
            guards,
            flag_from(record["complete"]),
            carried,
            tuple(self._late(item) for item in list_from(record.get("late", []))),
        )
        if found.torn not in (None, found.steps[0].variable):
            raise ValueError("late rows disagree on an output that is not the first")
        if found.size >= EXACT:
            raise ValueError("numbers beyond 2^53")
        return found

    def _output(self, index: Record) -> Variable:
        variable = (
            self._variables[whole_from(index)] if whole_from(index) >= 0 else None
        )
        if variable is None or variable.is_input:
            raise ValueError(f"there is no output {index}")
        return variable

    def _known(self, record: Record) -> Known:
        kind, written, *rest = list_from(record)
        form = self._form(written)
        if kind == "whole" and not rest:
            return Whole(form)
        threshold, closed, subtracts = rest
        if kind != "bit" or not 0 <= number_from(threshold) < 1:
            raise ValueError("an unknown kind of known value")
        return Bit(
            form, number_from(threshold), flag_from(closed), flag_from(subtracts)
        )

    def _form(self, record: Record) -> Form:
        exponent, terms = list_from(record)
        pairs = tuple(
            (whole_from(place), whole_from(c)) for place, c in list_from(terms)
        )
        if (
            not pairs
            or any(not 0 <= place < self._inputs or not c for place, c in pairs)
            or pairs[0][1] < 0
        ):
            raise ValueError("a form over inputs that there are not")
        if abs(whole_from(exponent)) > 1000:
            raise ValueError("a form out of all proportion")
        return Form(pairs, exponent)

    def _carried(
        self, record: Record, spacing: Sequence[Fraction], hidden: int
    ) -> tuple[int, Form]:
        variable, written = list_from(record)
        form = self._form(written)
        if not 0 <= whole_from(variable) < self._count - hidden:
            raise ValueError(
                "a hidden output, or none, that carries what an input has beyond the grid"
            )
        if not form.is_exact or Fraction(2) ** form.exponent != spacing[variable]:
            raise ValueError(
                "an output that carries something else than one input in its own steps"
            )
        return variable, form

    def _late(self, record: Record) -> LateRow:
        terms, bound, strict = list_from(record)
        found = []
        for variable, own, sign in list_from(terms):
            signs = (1, 0, -1)
            if (
                not 0 <= whole_from(variable) < self._count
                or whole_from(sign) not in signs
            ):
                raise ValueError("a late row over outputs that there are not")
            found.append((variable, self._polynomial(own), sign))
        if len({variable for variable, _, _ in found}) < len(found) or not found:
            raise ValueError("a late row without outputs, or with one twice")
        return LateRow(tuple(found), self._polynomial(bound), flag_from(strict))

    def _polynomial(self, record: Record) -> Polynomial:
        found = []
        for places, c in list_from(record):
            factors = tuple(whole_from(place) for place in list_from(places))
            if len(factors) > 2 or any(
                not 0 <= place < self._inputs for place in factors
            ):
                raise ValueError("a product of inputs that there are not")
            found.append((factors, whole_from(c)))
        return tuple(found)

    def _step(self, record: Record, before: set[int], hidden: int) -> Step:
        variable = whole_from(record["variable"])
        if not 0 <= variable < self._count or variable in before:
            raise ValueError("an output is computed twice, or is none")
        clauses = [
            self._clause(item, before | {variable})
            for item in list_from(record["clauses"])
        ]
        if any(variable not in variables_of(clause) for clause in clauses):
            raise ValueError("a clause in the wrong place")
        bucket = bucket_of(variable, clauses, dict(enumerate(self._ranges)))
        sides = tuple(
            tuple(map(flag_from, list_from(item)))
            for item in list_from(record["sides"])
        )
        values = (
            None
            if record["values"] is None
            else tuple(map(whole_from, list_from(record["values"])))
        )
        ranked = flag_from(record.get("ranked", False))  # saved before there were ranks
        if ranked + bool(sides) + (values is not None) != 1 or len(set(sides)) < len(
            sides
        ):
            raise ValueError("an output without options, or with two kinds of them")
        if ranked and variable >= self._count - hidden:
            raise ValueError("a hidden output with ranks")
        if variable < self._count - hidden and any(
            len(item) != len(bucket.gaps) for item in sides
        ):
            raise ValueError("options that do not fit the gaps")
        if values is not None and (not values or not _within(values, bucket.range)):
            raise ValueError("values out of range")
        return Step(bucket, sides, values, ranked)

    def _clause(self, record: Record, allowed: set[int]) -> Clause:
        rows = []
        for bound, terms in list_from(record):
            pairs = {whole_from(v): whole_from(c) for v, c in list_from(terms)}
            row = row_of(pairs, whole_from(bound))
            if (
                not pairs
                or not set(pairs) <= allowed
                or row != Row(tuple((v, c) for v, c in terms), bound)
            ):
                raise ValueError("a row that is not in order")
            rows.append(row)
        if not rows:
            raise ValueError("a clause without rows")
        return tuple(rows)


def _spacing(record: Record, output: Variable) -> Fraction:
    """A power of two; of whole numbers any whole number."""
    value = number_from(record)
    if isinstance(output.domain, Int) and value > 0 and value.denominator == 1:
        return value
    if value <= 0 or any(n & (n - 1) for n in (value.numerator, value.denominator)):
        raise ValueError(f"{value} is not a power of two")
    return value


def _range(record: Record) -> Range:
    lower, upper = map(whole_from, list_from(record))
    if lower > upper:
        raise ValueError("an empty range")
    return Range(lower, upper)


def _within(values: tuple[int, ...], ends: Range) -> bool:
    return all(ends.lower <= value <= ends.upper for value in values) and len(
        set(values)
    ) == len(values)
