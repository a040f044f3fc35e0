"""Tables as matrices of numbers with the same columns: what a figure compares.

A number is itself, a date its day, a time its second, a truth value 0 or 1, a label its place among all labels of the
column (the most frequent is 0); an empty cell is NaN. Columns that cannot be compared are left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.language.formula import (
    Bool,
    Category,
    Domain,
    Int,
    Real,
    Specification,
    Unit,
    Variable,
)
from multiplexnet.quality.sampling import Sample
from multiplexnet.tables.cells import EMPTY, cells_of
from multiplexnet.tables.inference.profile import MOMENTS, ColumnProfile, floats_of
from multiplexnet.tables.matching import is_named

__all__ = [
    "ComparedColumn",
    "Floats",
    "Kind",
    "LeftOut",
    "SampledRows",
    "at_places",
    "canonical",
    "compared",
]

Kind = Literal["number", "date", "time", "truth", "label"]
Floats = NDArray[np.float64]

DOMAINS: Mapping[Kind, Domain] = {
    "number": Real(),
    "truth": Bool(),
    "date": MOMENTS["date"],
    "time": MOMENTS["datetime"],
}
"""What cells are read as."""
FEW_LABELS = 50
"""So many different texts are labels, however few rows there are."""


@dataclass(frozen=True)
class ComparedColumn:
    """One column that is compared.

    Args:
        name: in the tables.
        kind: what its values are.
        labels: of a column of labels, the most frequent first.
        variable: what the rules declare it as, if they do.
        places: of numbers that are compared at so many decimal places; ``None``: as they are.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    variable: Variable | None = None
    places: int | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether larger and smaller mean something."""
        return self.kind != "label"


@dataclass(frozen=True)
class LeftOut:
    """A column that is not compared, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SampledRows:
    """Some rows of a table.

    Args:
        columns: what is compared.
        values: of shape (rows, columns); NaN where a cell is empty.
    """

    columns: tuple[ComparedColumn, ...]
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.intp]) -> SampledRows:
        """Some of the rows, in this order."""
        return SampledRows(self.columns, self.values[rows])


def compared(
    specification: Specification, samples: Sequence[Sample]
) -> tuple[list[SampledRows], list[LeftOut]]:
    """The tables on the columns that all of them have, and the columns that are left out.

    Args:
        specification: the rules, whose declarations say what columns are.
        samples: the tables, the real one first.

    Example:
        >>> from multiplexnet.rules import Rules
        >>> from multiplexnet.quality.sampling import sample
        >>> real = sample({"x": [1, None], "id": [1, 2], "k": ["b", "b"]}, 9, 0)
        >>> made = sample({"x": [3, 4], "k": ["a", "b"]}, 9, 0)
        >>> tables, left_out = compared(Rules("x >= 1").specification, [real, made])
        >>> [(column.name, column.kind, column.labels) for column in tables[0].columns]
        [('x', 'number', ()), ('k', 'label', ('b', 'a'))]
        >>> sorted(tables[1].values.tolist()), [left.name for left in left_out]
        ([[3.0, 1.0], [4.0, 0.0]], ['id'])
    """
    columns: list[ComparedColumn] = []
    values: list[list[Floats]] = []
    left_out: list[LeftOut] = []
    names = dict.fromkeys(name for own in samples for name in own.frame.columns)
    for name in names:
        lacking = [own.title for own in samples if name not in own.frame.columns]
        if lacking:
            left_out.append(LeftOut(name, f"it is not in {' and '.join(lacking)}"))
            continue
        cells = [own.frame[name] for own in samples]
        found = _read(name, _declared(specification, name), cells)
        if isinstance(found, str):
            left_out.append(LeftOut(name, found))
            continue
        columns.append(found[0])
        values.append(found[1])
    own = tuple(columns)
    tables = [
        SampledRows(
            own, _matrix([column[k] for column in values], len(samples[k].frame))
        )
        for k in range(len(samples))
    ]
    return tables, left_out


def canonical(column: ComparedColumn, cells: pl.Series) -> pl.Series:
    """Cells in one form, so that the same values are equal whatever the table holds them as; null where empty.

    Example:
        >>> column = ComparedColumn("x", "number")
        >>> canonical(column, pl.Series(["1.50", None])).to_list()
        [1.5, None]
    """
    if column.kind == "label":
        return _label_texts(column.variable, cells)
    values = _numbers("number" if column.kind == "truth" else column.kind, cells)
    if column.kind == "truth":  # that of the sample; other rows may have other numbers
        values = np.where(np.isnan(values), _numbers("truth", cells), values)
    if column.places is not None:
        values = at_places(values, column.places)
    return pl.Series(values + 0.0).fill_nan(None)


def at_places(values: Floats, places: int) -> Floats:
    """Rounded to so many decimal places; numbers that are too large to have them stay."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.round(values, places)
    return np.where(np.isfinite(found), found, values)


def _matrix(columns: Sequence[Floats], rows: int) -> Floats:
    return np.stack(columns, -1) if columns else np.zeros((rows, 0))


def _declared(specification: Specification, name: str) -> Variable | None:
    named = (v for v in specification.variables if not v.is_flag and is_named(v, name))
    return next(named, None)


def _read(
    name: str, variable: Variable | None, cells: Sequence[pl.Series]
) -> tuple[ComparedColumn, list[Floats]] | str:
    """A column and its values in each table, or why it cannot be compared."""
    kind = _looks_like(cells) if variable is None else _kind_of(variable)
    if kind is None:
        return _reason(cells)
    if kind == "label":
        labels, codes = _labelled(variable, cells)
        return ComparedColumn(name, kind, labels, variable), codes
    values = [_numbers(kind, own) for own in cells]
    together = np.concatenate(values)
    there = together[np.isfinite(together)]
    if kind == "number" and set(np.unique(there)) == {0.0, 1.0}:
        kind = "truth"
    if variable is None and kind == "number" and _counts_rows(values[0]):
        return "it numbers the rows"
    return ComparedColumn(name, kind, (), variable), values


def _kind_of(variable: Variable) -> Kind:
    match variable.domain:
        case Bool():
            return "truth"
        case Category():
            return "label"
        case Int(unit=Unit(kind="date")):
            return "date"
        case Int(unit=Unit(kind="datetime")):
            return "time"
    return "number"


def _looks_like(cells: Sequence[pl.Series]) -> Kind | None:
    profile = ColumnProfile("")
    for own in cells:
        profile.add(_without_zone(own))
    if profile.missing == profile.rows:
        return None
    if profile.is_truth or _are_truths(cells):
        return "truth"
    if "date" in profile.moments:
        return "date"
    if "datetime" in profile.moments:
        return "time"
    if profile.is_number:
        return "number"
    if any(own.dtype not in TEXTS for own in cells):
        return None
    there = profile.rows - profile.missing
    distinct = pl.concat([own.cast(pl.String) for own in cells]).n_unique()
    return "label" if distinct <= max(FEW_LABELS, there // 2) else None


TEXTS = (pl.String, pl.Categorical, pl.Enum)


def _are_truths(cells: Sequence[pl.Series]) -> bool:
    """Whether one table has truth values and all others have 0 and 1, or words for them."""
    if not any(own.dtype == pl.Boolean for own in cells):
        return False
    for own in cells:
        numbers = _numbers("truth", own)
        there = numbers[np.isfinite(numbers)]
        if len(there) < (~_empty(own)).sum() or not np.isin(there, [0.0, 1.0]).all():
            return False
    return True


def _reason(cells: Sequence[pl.Series]) -> str:
    if all(_empty(own).all() for own in cells):
        return "all of its cells are empty"
    types = sorted({str(own.dtype) for own in cells})
    if all(own.dtype in TEXTS for own in cells):
        return "most of its texts appear once: names, or identifiers"
    held = " and ".join(types)
    return f"its values are of type {held}: they cannot be compared"


def _counts_rows(values: Floats) -> bool:
    """Whether the values are the numbers of the rows, in some order."""
    if len(values) < FEW_LABELS or not np.isfinite(values).all():
        return False
    distinct = len(np.unique(values)) == len(values)
    return bool(distinct and values.max() == values.min() + len(values) - 1)


def _empty(cells: pl.Series) -> NDArray[np.bool_]:
    empty = cells.is_null()
    if cells.dtype in TEXTS:
        text = cells.cast(pl.String).str.strip_chars().str.to_lowercase()
        empty = empty | text.is_in(list(EMPTY)).fill_null(True)
    return empty.to_numpy()


# --- values -----------------------------------------------------------------------------------------------------------


def _numbers(kind: Kind, cells: pl.Series) -> Floats:
    found = cells_of(Variable("", 0, DOMAINS[kind]), _without_zone(cells))
    numbers = floats_of(found.column).copy()
    for rows in found.unread.values():
        numbers[rows] = np.nan
    return numbers


def _without_zone(cells: pl.Series) -> pl.Series:
    """Times as clocks show them, in whole seconds."""
    if not isinstance(cells.dtype, pl.Datetime):
        return cells
    return cells.dt.replace_time_zone(None).dt.truncate("1s")


def _labelled(
    variable: Variable | None, cells: Sequence[pl.Series]
) -> tuple[tuple[str, ...], list[Floats]]:
    """All labels by how many cells have them, and the place of each cell's among them."""
    texts = [_label_texts(variable, own) for own in cells]
    counted = pl.concat(texts).drop_nulls().value_counts(name="rows")
    counted.columns = ["label", "rows"]
    ordered = counted.sort(["rows", "label"], descending=[True, False])
    labels = tuple(ordered["label"].to_list())
    place = {label: float(k) for k, label in enumerate(labels)}
    codes = [_codes(own, place) for own in texts]
    return labels, codes


def _label_texts(variable: Variable | None, cells: pl.Series) -> pl.Series:
    """Labels without blanks around them; null where the cell is empty, or says so."""
    declared: set[str] = set()
    if variable is not None and isinstance(variable.domain, Category):
        declared = set(variable.domain.labels)
    no_label = [word for word in EMPTY if word not in declared]
    return _without(cells.cast(pl.String).str.strip_chars(), no_label)


def _without(text: pl.Series, words: Sequence[str]) -> pl.Series:
    is_word = text.str.to_lowercase().is_in(list(words)).fill_null(True)
    nothing = pl.Series([None] * len(text), dtype=pl.String)
    return nothing.zip_with(is_word, text.alias(""))


def _codes(text: pl.Series, place: Mapping[str, float]) -> Floats:
    if not place:
        return np.full(len(text), np.nan)
    found = text.replace_strict(dict(place), default=None, return_dtype=pl.Float64)
    return found.fill_null(np.nan).to_numpy().copy()
