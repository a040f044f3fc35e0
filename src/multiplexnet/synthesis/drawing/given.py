"""Rows of which some columns are known: which cells are, and which rows cannot be completed, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from multiplexnet.errors import CompileTimeout, MultiplexError, TableError
from multiplexnet.exact.deadline import SECONDS, Deadline
from multiplexnet.language.formula import (
    Rule,
    Specification,
    Variable,
    ends,
    variables,
)
from multiplexnet.language.parser.values import did_you_mean
from multiplexnet.language.text import value_text
from multiplexnet.synthesis.allowed import allowed_by
from multiplexnet.synthesis.columns.reading import cells_in
from multiplexnet.synthesis.columns.schema import Field, Schema
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.columns.types import in_type
from multiplexnet.synthesis.drawing.conditions import Condition

__all__ = [
    "Impossible",
    "KnownCells",
    "condition_of",
    "given_of",
    "had",
    "impossible",
]

SHOWN = 5
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class KnownCells:
    """Rows of which some cells are known: plain data.

    Args:
        steps: for every variable that is known in some row, by its index, whole numbers ``(N,)``.
        patterns: sets of variables that are known together, by their indices.
        pattern: for every row which of these.
        numbers: of the rows, in the table that was given.
        passed: cells of columns that are not learned.
    """

    steps: Mapping[int, Whole]
    patterns: tuple[tuple[int, ...], ...]
    pattern: Whole
    numbers: Whole
    passed: pl.DataFrame

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, rows: Whole | Bools) -> KnownCells:
        """Some of the rows."""
        steps = {index: own[rows] for index, own in self.steps.items()}
        passed = self.passed
        if passed.width:
            passed = passed[np.arange(len(self))[rows]]
        return replace(
            self,
            steps=steps,
            pattern=self.pattern[rows],
            numbers=self.numbers[rows],
            passed=passed,
        )

    def parts(self) -> Iterator[tuple[tuple[int, ...], Whole]]:
        """For every pattern the rows that have it."""
        for number, pattern in enumerate(self.patterns):
            rows = np.flatnonzero(self.pattern == number)
            if len(rows):
                yield pattern, rows

    def tensors(
        self, pattern: Sequence[int], rows: Whole, own: Sequence[Variable]
    ) -> dict[Variable, torch.Tensor]:
        """The known values of rows with this pattern."""
        known = {own[i]: self.steps[i][rows] for i in pattern}
        return {variable: torch.from_numpy(steps) for variable, steps in known.items()}


def given_of(schema: Schema, frame: pl.DataFrame, *, fill: bool) -> KnownCells:
    """The known cells of a table.

    An empty cell of a column that may be missing is known to be missing, unless ``fill``; other empty cells are
    unknown.

    Raises:
        TableError: a column is none of the model's, or a cell cannot be what it says.
    """
    _refuse_strange(schema, frame)
    cells = cells_in(schema, frame)
    fields = [field for field in schema.fields if field.name in frame.columns]
    _refuse_bad(fields, {f.name: cells.bad[f.name] & ~cells.empty[f.name] for f in fields}, frame)  # fmt: skip
    known = np.ones((frame.height, len(fields)), dtype=np.bool_)
    for k, field in enumerate(fields):
        if fill or field.flag is None:
            known[:, k] = ~cells.empty[field.name]
    distinct, pattern = np.unique(known, axis=0, return_inverse=True)
    patterns = [
        [field for field, is_known in zip(fields, row, strict=True) if is_known]
        for row in distinct
    ]
    passed = [other.name for other in schema.others if other.name in frame.columns]
    return KnownCells(
        {variable.index: own for variable, own in cells.steps.items()},
        tuple(tuple(_indices(own)) for own in patterns),
        pattern.reshape(-1),
        np.arange(frame.height),
        frame.select(passed),
    )


def _indices(fields: Sequence[Field]) -> Iterator[int]:
    for field in fields:
        if field.flag is not None:
            yield field.flag.index
        yield field.variable.index


def _refuse_strange(schema: Schema, frame: pl.DataFrame) -> None:
    for name in frame.columns:
        if name not in schema.names:
            hint = did_you_mean(name, schema.names)
            raise TableError(
                f"given: the model has no column {name!r}{hint}; its columns: "
                f"{', '.join(schema.names)}"
            )


def _refuse_bad(
    fields: Sequence[Field], bad: Mapping[str, Bools], frame: pl.DataFrame
) -> None:
    for field in fields:
        rows = np.flatnonzero(bad[field.name])
        if not len(rows):
            continue
        cell = frame[field.name][int(rows[0])]
        more = f" (and {len(rows) - 1:,} more)" if len(rows) > 1 else ""
        raise TableError(
            f"given: row {rows[0] + 1}, column {field.name!r}: {str(cell)!r}{more} is not "
            f"among what the column had in the table that was learned: {had(field)}"
        )


def had(field: Field) -> str:
    """What a column had in the table that was learned, in words."""
    domain = field.variable.domain
    labels = getattr(domain, "labels", None)
    if labels is not None:
        shown = ", ".join(map(repr, labels[:SHOWN]))
        return shown + (", …" if len(labels) > SHOWN else "")
    low, high = ends(domain)
    assert low is not None
    assert high is not None
    if field.kind in ("int", "float", "decimal"):
        step = f" in steps of {float(field.step):g}" if field.step != 1 else ""
        if field.given == pl.Time:
            first, last = in_type(pl.Series([int(low), int(high)]), pl.Time())
            step = f" seconds, {first} to {last}"
        return (
            f"{float(low * field.step):.15g} to {float(high * field.step):.15g}{step}"
        )
    if field.kind == "bool":
        return "true or false"
    return " to ".join(value_text(field.variable, Fraction(end)) for end in (low, high))


# --- what is left of them -------------------------------------------------------------------------------------------


def condition_of(
    specification: Specification,
    columns: Sequence[Variable],
    further: Sequence[Rule],
    known: Sequence[Variable],
    dense: Collection[Variable] = (),
) -> Condition:
    """Rules and condition, compiled with known columns first; ``dense`` columns have rules that are too dense."""
    order = (
        *(v for v in columns if v in known),
        *(v for v in columns if v not in known),
    )
    wanted = replace(specification, rules=(*specification.rules, *further))
    allowed = allowed_by(wanted, order, deadline=Deadline(SECONDS), dense=dense)
    return Condition(allowed, tuple(known))


@dataclass(frozen=True)
class Impossible:
    """A row that cannot be completed.

    Args:
        row: its number, from 1 on.
        rules: those that no completion can meet, each by itself; none: they only fail together.
    """

    row: int
    rules: tuple[str, ...]

    def __str__(self) -> str:
        named = " and ".join(f"`{rule}`" for rule in self.rules[:SHOWN])
        return f"row {self.row} ({named or 'by several rules together'})"


def impossible(
    specification: Specification,
    columns: Sequence[Variable],
    further: Sequence[Rule],
    given: KnownCells,
    bad: Bools,
) -> list[Impossible]:
    """Why rows cannot be completed."""
    found: dict[int, list[str]] = {int(row): [] for row in np.flatnonzero(bad)}
    own = specification.variables
    for pattern, rows in given.at(bad).parts():
        few = np.flatnonzero(bad)[rows]
        known = [own[i] for i in pattern]
        values = given.tensors(pattern, few, own)
        for rule in (*specification.rules, *further):
            if set(variables(rule.formula)).isdisjoint(known):
                continue
            alone = _alone(specification, columns, rule, known)
            if alone is None:
                continue
            good = alone.possible(values, len(few)).numpy()
            for row in few[~good]:
                found[int(row)].append(rule.text)
    return [
        Impossible(int(given.numbers[row]) + 1, tuple(rules))
        for row, rules in found.items()
    ]


def _alone(
    specification: Specification,
    columns: Sequence[Variable],
    rule: Rule,
    known: Sequence[Variable],
) -> Condition | None:
    try:
        return condition_of(replace(specification, rules=(rule,)), columns, (), known)
    except CompileTimeout:
        raise
    except MultiplexError:
        return None
