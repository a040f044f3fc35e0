"""Mass on single values and on the boundaries of rules: heaps that a smooth model smears.

A *heap* is a value that many rows have in a column with many values (0, a cap, −9), or one that the rules name. A
rule is *tight* in a row where one of its comparisons holds with equality, decided exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.language.formula import (
    Atom,
    Bool,
    Category,
    Rule,
    Specification,
    atoms,
    variables,
)
from multiplexnet.language.text import formula_text
from multiplexnet.quality.columns import Floats, SampledRows
from multiplexnet.quality.marginals import FEW_VALUES, Marks, moment
from multiplexnet.quality.sampling import Sample
from multiplexnet.tables.check import CheckOptions, check_table
from multiplexnet.tables.sources.objects import tables_of

__all__ = ["Heap", "heaps", "tight"]

HEAP = 0.02
"""The share of real or made rows that makes a value a heap."""
MOST_ATOMS = 200
"""Comparisons that are looked at."""


@dataclass(frozen=True)
class Heap:
    """The share of rows on one value, or on one boundary.

    Args:
        what: the column, or the rule.
        where: the value, or the comparison.
        real: the share of the real rows that figures compare with.
        other: the share of the other real rows.
        made: the share of made rows.
    """

    what: str
    where: str
    real: float
    other: float
    made: float

    @property
    def difference(self) -> float:
        return abs(self.made - self.real)


def heaps(
    made: SampledRows, other: SampledRows, real: SampledRows, marks: Marks
) -> tuple[Heap, ...]:
    """Heaps of all columns with many values, those that differ most first."""
    found = []
    for k, column in enumerate(real.columns):
        if column.kind in ("label", "truth"):
            continue
        own = [rows.values[:, k] for rows in (real, other, made)]
        together = np.concatenate(own)
        there = together[np.isfinite(together)]
        named = () if column.variable is None else marks.get(column.variable, ())
        values = {mark.value for mark in named}
        if len(np.unique(there)) > FEW_VALUES:
            values |= {*_heavy(own[0]), *_heavy(own[2])}
        for value in sorted(values):
            shares = [_share(each == value) for each in own]
            if any(shares):
                found.append(Heap(column.name, moment(column, value), *shares))
    return tuple(sorted(found, key=lambda heap: -heap.difference))


def _share(rows: NDArray[np.bool_]) -> float:
    return float(rows.mean()) if len(rows) else 0.0


def _heavy(values: Floats) -> list[float]:
    there = values[np.isfinite(values)]
    distinct, counts = np.unique(there, return_counts=True)
    heavy: list[float] = distinct[counts >= HEAP * max(len(values), 1)].tolist()
    return heavy


# --- boundaries of rules ----------------------------------------------------------------------------------------------


def tight(
    specification: Specification, made: Sample, other: Sample, real: Sample
) -> tuple[Heap, ...]:
    """Shares of rows on the boundaries of rules, exactly; those that differ most first."""
    asked = _comparisons(specification)
    if not asked:
        return ()
    shares = [_tight(specification, asked, own) for own in (real, other, made)]
    found = []
    for k, (rule, boundary) in enumerate(asked):
        own = [share[k] for share in shares]
        if any(own):
            found.append(Heap(rule.text, boundary.text, *own))
    return tuple(sorted(found, key=lambda heap: -heap.difference))


def _comparisons(specification: Specification) -> list[tuple[Rule, Rule]]:
    """The rules, each with the equality of one of its comparisons of several columns."""
    found = []
    for rule in specification.rules:
        for atom in atoms(rule.formula):
            own = variables(atom)
            is_number = not any(
                v.is_flag or isinstance(v.domain, Bool | Category) for v in own
            )
            if len(own) > 1 and is_number and atom.relation != "==":
                equality = Atom(atom.linear, "==")
                found.append((rule, Rule(equality, formula_text(equality))))
    return found[:MOST_ATOMS]


def _tight(
    specification: Specification, asked: Sequence[tuple[Rule, Rule]], sample: Sample
) -> list[float]:
    boundaries = tuple(boundary for _, boundary in asked)
    wanted = Specification(specification.variables, boundaries)
    table = tables_of(sample.frame, [])[0]
    report = check_table(
        wanted, table, CheckOptions(missing="pass", limit=0, keep_rows=True)
    )
    assert report.breaks is not None
    columns = dict(report.columns)
    shares = []
    for k, boundary in enumerate(boundaries):
        own = [columns[v] for v in variables(boundary.formula)]
        there = _there(sample.frame, own, report.rows)
        shares.append(_share(~report.breaks[:, k] & there))
    return shares


def _there(frame: pl.DataFrame, names: Sequence[str], rows: int) -> NDArray[np.bool_]:
    """Rows in which none of these cells is empty."""
    there = np.ones(rows, dtype=np.bool_)
    for name in names:
        cells = frame[name]
        there &= ~cells.is_null().to_numpy()
        if cells.dtype == pl.String:
            there &= (cells.str.strip_chars() != "").fill_null(False).to_numpy()
    return there
