"""Columns side by side: how far their distributions are apart, and the bars and lines of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multiplexnet.language.formula import (
    Atom,
    Bool,
    Category,
    Linear,
    Specification,
    Variable,
    atoms,
    conjuncts,
    ends,
)
from multiplexnet.language.text import value_text
from multiplexnet.quality.columns import ComparedColumn, Floats, SampledRows

__all__ = [
    "Bar",
    "ColumnFigure",
    "Mark",
    "Marks",
    "column_figures",
    "distance",
    "marks_of",
]

BARS = 40
FEW_VALUES = 24
"""Columns with at most so many values have a bar for each of them."""
LABELS = 12
"""Labels that are shown; all others are one bar."""


@dataclass(frozen=True)
class Mark:
    """A number that the rules compare a column with.

    Args:
        value: as in the table.
        text: as people write it.
        is_bound: whether every row keeps to it; otherwise it is a number that some rule speaks of.
    """

    value: float
    text: str
    is_bound: bool


Marks = dict[Variable, tuple[Mark, ...]]


@dataclass(frozen=True)
class Bar:
    """The share of rows in a part of a column, in both tables.

    Args:
        text: what the part is called.
        lower: where it begins; ``None`` for labels and empty cells.
        upper: where it ends.
        real: the share of real rows.
        made: the share of made rows.
    """

    text: str
    lower: float | None
    upper: float | None
    real: float
    made: float


@dataclass(frozen=True)
class ColumnFigure:
    """One column in both tables.

    Args:
        column: the column.
        measure: of numbers the largest difference of cumulative shares (Kolmogorov–Smirnov), of labels half the sum
            of all differences of shares (total variation).
        made: how far made rows are from real ones.
        real: how far other real rows are.
        shape: whether the bars are a histogram or one for each value.
        bars: the parts.
        marks: the numbers that the rules compare it with.
    """

    column: ComparedColumn
    measure: Literal["Kolmogorov–Smirnov", "total variation"]
    made: float
    real: float
    shape: Literal["histogram", "values"]
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


def column_figures(
    made: SampledRows, other: SampledRows, real: SampledRows, marks: Marks
) -> tuple[ColumnFigure, ...]:
    """Every column of made rows, beside that of other real rows."""
    found = []
    for k, column in enumerate(real.columns):
        own = made.values[:, k], other.values[:, k], real.values[:, k]
        shown = () if column.variable is None else marks.get(column.variable, ())
        shape, bars = _bars(column, own[2], own[0])
        found.append(
            ColumnFigure(
                column,
                "total variation" if column.kind == "label" else "Kolmogorov–Smirnov",
                distance(column, own[0], own[2]),
                distance(column, own[1], own[2]),
                shape,
                bars,
                shown,
            )
        )
    return tuple(found)


def distance(column: ComparedColumn, one: Floats, other: Floats) -> float:
    """Between 0 (the same shares) and 1 (nothing in common); an empty cell is a value of its own, below all others.

    Example:
        >>> distance(ComparedColumn("x", "number"), np.array([1.0, 2.0]), np.array([2.0, 3.0]))
        0.5
    """
    if not len(one) or not len(other):
        return 0.0
    low = [np.where(np.isnan(own), -np.inf, own) for own in (one, other)]
    values = np.unique(np.concatenate(low))
    shares = [_shares(own, values) for own in low]
    difference = shares[0] - shares[1]
    if column.kind == "label":
        return float(np.abs(difference).sum() / 2)
    return float(np.abs(np.cumsum(difference)).max())


def _shares(values: Floats, among: Floats) -> Floats:
    place = np.searchsorted(among, values)
    return np.bincount(place, minlength=len(among)) / max(len(values), 1)


# --- bars -------------------------------------------------------------------------------------------------------------


def _bars(
    column: ComparedColumn, real: Floats, made: Floats
) -> tuple[Literal["histogram", "values"], tuple[Bar, ...]]:
    empty = [float(np.isnan(own).mean()) if len(own) else 0.0 for own in (real, made)]
    together = np.concatenate([real, made])
    distinct = np.unique(together[np.isfinite(together)])
    if column.kind == "label":
        bars = _label_bars(column, real, made)
    elif len(distinct) <= FEW_VALUES:
        bars = [
            Bar(_text(column, v), v, v, _share(real == v), _share(made == v))
            for v in distinct.tolist()
        ]
    else:
        return "histogram", _histogram(real, made, distinct, empty)
    if any(empty):
        bars.append(Bar("empty", None, None, *empty))
    return "values", tuple(bars)


def _share(rows: NDArray[np.bool_]) -> float:
    return float(rows.mean()) if len(rows) else 0.0


def _text(column: ComparedColumn, value: float) -> str:
    if column.kind == "truth":
        return "true" if value else "false"
    return moment(column, value)


def moment(column: ComparedColumn, value: float) -> str:
    """A number of the column as people write it.

    Example:
        >>> moment(ComparedColumn("d", "date"), 19938.0), moment(ComparedColumn("x", "number"), 0.25)
        ('2024-08-03', '0.25')
    """
    if column.kind == "date":
        return str(np.datetime64(round(value), "D"))
    if column.kind == "time":
        return str(np.datetime64(round(value), "s")).replace("T", " ")
    return f"{value:.6g}"


def _label_bars(column: ComparedColumn, real: Floats, made: Floats) -> list[Bar]:
    shown = min(len(column.labels), LABELS)
    bars = [
        Bar(column.labels[k], None, None, _share(real == k), _share(made == k))
        for k in range(shown)
    ]
    if shown < len(column.labels):
        rest = f"{len(column.labels) - shown:,} others"
        bars.append(Bar(rest, None, None, _share(real >= shown), _share(made >= shown)))
    return bars


def _histogram(
    real: Floats, made: Floats, distinct: Floats, empty: Sequence[float]
) -> tuple[Bar, ...]:
    """Bins of equal width over where nearly all rows lie; what lies beyond is in the first and the last."""
    there = np.concatenate([own[np.isfinite(own)] for own in (real, made)])
    low, high = np.quantile(there, [0.005, 0.995])
    if not low < high:
        low = distinct[0]
        high = distinct[-1]
    edges = _edges(float(low), float(high), bool((distinct == np.rint(distinct)).all()))
    low = edges[0]
    high = edges[-1]
    counts = []
    for own in (real, made):
        inside = np.clip(own[np.isfinite(own)], low, high)
        counts.append(np.histogram(inside, edges)[0] / max(len(own), 1))
    if edges[-2] < distinct[-1] < edges[-1]:  # nothing is shown beyond the last value
        edges[-1] = distinct[-1]
    bars = [
        Bar(
            "",
            float(edges[k]),
            float(edges[k + 1]),
            float(counts[0][k]),
            float(counts[1][k]),
        )
        for k in range(len(edges) - 1)
    ]
    if any(empty):
        bars.append(Bar("empty", None, None, *empty))
    return tuple(bars)


def _edges(low: float, high: float, is_whole: bool) -> Floats:
    """Of bins of equal width; each has as many whole numbers as any other if all values are whole."""
    if not is_whole:
        return np.linspace(low, high, BARS + 1)
    low = np.floor(low)
    width = np.ceil((high - low + 1) / BARS)
    count = np.ceil((high - low + 1) / width)
    return np.asarray(low + width * np.arange(count + 1))


# --- what rules say of a column ---------------------------------------------------------------------------------------


def marks_of(specification: Specification) -> Marks:
    """The numbers that declarations and rules compare columns with.

    Example:
        >>> from multiplexnet.rules import Rules
        >>> rules = Rules("age: int[0, 120]; rate: real\\nrate >= 1.5\\nimplies(age < 18, rate <= 2)")
        >>> for variable, marks in marks_of(rules.specification).items():
        ...     print(variable.name, [(mark.text, mark.is_bound) for mark in marks])
        age [('0', True), ('120', True), ('18', False)]
        rate [('1.5', True), ('2', False)]
    """
    found: dict[Variable, dict[float, Mark]] = {}
    for variable in specification.columns:
        if isinstance(variable.domain, Bool | Category):
            continue
        for end in ends(variable.domain):
            if end is not None:
                _note(found, variable, Atom(_only(variable) - end, "=="), True)
    for rule in specification.rules:
        bounds = conjuncts(rule.formula)
        for atom in atoms(rule.formula):
            match atom.linear.summands:
                case ((Variable(role="output") as variable, _),):
                    if not isinstance(variable.domain, Bool | Category):
                        _note(found, variable, atom, atom in bounds)
    return {variable: tuple(own.values()) for variable, own in found.items()}


def _only(variable: Variable) -> Linear:
    return Linear.of(variable)


def _note(
    found: dict[Variable, dict[float, Mark]],
    variable: Variable,
    atom: Atom,
    is_bound: bool,
) -> None:
    number = -atom.linear.constant / atom.linear.summands[0][1]
    value = float(number * variable.unit.size)
    own = found.setdefault(variable, {})
    if value not in own or is_bound:
        own[value] = Mark(value, value_text(variable, number), is_bound)
