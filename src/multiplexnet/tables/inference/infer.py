"""Rules that hold for a table, as a file to edit: declarations, and candidates with their support.

Every line of the file has been checked against the whole table, exactly: its comment says what ``multiplexnet check``
reports of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10
from typing import Any

import numpy as np
import polars as pl

from multiplexnet.arguments import refuse_bad_share
from multiplexnet.errors import TableError
from multiplexnet.language.formula import Bool, Category, Variable
from multiplexnet.language.parser.moments import moment_text
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import number_text
from multiplexnet.readers.names import cannot_be_written, written_name
from multiplexnet.rules import Rules
from multiplexnet.tables.cells import cells_of, number_otherwise
from multiplexnet.tables.check import CheckOptions, check_table
from multiplexnet.tables.inference.candidates import Values, candidates_of
from multiplexnet.tables.inference.profile import (
    MOMENTS,
    ColumnProfile,
    Profile,
    floats_of,
    profile_of,
)
from multiplexnet.tables.sources.objects import tables_of
from multiplexnet.tables.sources.table import Table
from multiplexnet.verdicts.columns import to_float64

__all__ = ["InferredRules", "infer", "inferred"]

LEARNED = 1 << 53
"""Whole numbers that a Synthesizer learns are smaller."""
LONGEST_END = 12
DIGITS = 6
"""The end of a range that would take more characters is written with so many digits, rounded outwards."""
SUPPORT = 0.99
"""The share of rows in which a rule has to hold."""


@dataclass(frozen=True)
class InferredRules:
    """Rules that a table suggests. ``str(inferred)`` is the file, ``inferred.rules`` its rules.

    Args:
        text: declarations and rules, each with what the table says of it as a comment.
        rows: how many rows the table has.
        skipped: what was not looked at, and columns that rules cannot speak of.
    """

    text: str
    rows: int
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        return self.text

    @property
    def rules(self) -> Rules:
        """The rules of the file."""
        return Rules(self.text)


def infer(
    table: Any, *, support: float = SUPPORT, delimiter: str | None = None
) -> InferredRules:
    """Declarations and rules that a table suggests, as a text to edit: a proposal, not an oracle.

    Looked for are kinds, ranges, labels and empty cells; orders between columns, sums, «if … then …» between values.
    Long tables are sampled for candidates; every rule that is proposed is then checked exactly on all rows, and its
    comment says how many break it.

    Args:
        table: as for :func:`multiplexnet.check`.
        support: the share of rows in which a rule has to hold to be proposed.
        delimiter: what separates the cells of a CSV file; by default it is found by itself.

    Raises:
        TableError: the table cannot be read, or has no rows.
        OptionError: an argument of another kind.

    Example:
        >>> found = infer({"low": range(100), "high": range(5, 105)})
        >>> found.text.splitlines()[2:]
        ['low: int[0, 99]', 'high: int[5, 104]', 'low + 5 == high  # all rows']
    """
    refuse_bad_share("support", support, "rows")
    return inferred(tables_of(table, [], delimiter), support=float(support))


def inferred(tables: Sequence[Table], *, support: float = SUPPORT) -> InferredRules:
    """As :func:`infer`, for tables that have been opened."""
    profile = profile_of(tables)
    if not profile.rows:
        raise TableError(f"{profile.title} has no rows: rules are found in rows")
    columns, skipped = _usable(profile)
    if not columns:
        raise TableError(
            f"{profile.title}: no column holds numbers, truth values or labels ({'; '.join(skipped)})"
        )
    sample = [_sampled(column) for column in columns]
    found = candidates_of(sample, support)
    declarations = [f"{written_name(c.name)}: {_type_text(c)}" for c in columns]
    ranges = [rule for column in columns for rule in _range_rules(column)]
    checked = _checked([*ranges, *found.rules], declarations, tables, support)
    notes = [*skipped, *found.skipped]
    lines = [
        *_header(profile, support),
        *(_declared(text, c) for text, c in zip(declarations, columns, strict=True)),
        *checked,
        *(f"# skipped: {note}" for note in notes),
    ]
    return InferredRules("\n".join(lines) + "\n", profile.rows, tuple(notes))


# --- columns --------------------------------------------------------------------------------------------------------


def _usable(profile: Profile) -> tuple[list[ColumnProfile], list[str]]:
    """The columns that rules can speak of, and why not the others."""
    usable = []
    skipped = []
    for column in profile.columns:
        shown = json.dumps(column.name, ensure_ascii=False)
        if reason := cannot_be_written(column.name):
            skipped.append(f"column {shown}: {reason}")
        elif column.missing == column.rows:
            skipped.append(f"column {shown}: all cells are empty")
        elif column.kind is None:
            skipped.append(f"column {shown}: {_no_kind(column)}")
        else:
            usable.append(column)
    return usable, skipped


def _no_kind(column: ColumnProfile) -> str:
    dtype = column.kept[0].dtype
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return f"times of a zone ({dtype.time_zone}), and those of rules have none"
    times = Variable(column.name, 0, MOMENTS["datetime"])
    if not cells_of(times, column.kept[0].drop_nulls()).unread:
        return "times with parts of seconds, and those of rules are whole seconds"
    odd = number_otherwise(column.kept[0])
    if odd is not None:
        shown = json.dumps(odd, ensure_ascii=False)
        return f"numbers that are not read, as {shown}: write them as 1234.5, without units"
    if dtype == pl.String:
        return "texts of many kinds, neither numbers nor a few labels"
    return f"of type {dtype}, of which rules do not speak"


def _type_text(column: ColumnProfile) -> str:
    mark = "?" if column.missing else ""
    if column.kind == "truth":
        return f"bool{mark}"
    if column.kind == "label":
        labels = [json.dumps(label, ensure_ascii=False) for label in column.labels]
        return f"{{{', '.join(labels)}}}{mark}"
    if column.kind == "date" or column.kind == "datetime":
        ends = column.moments[column.kind]
        assert ends is not None
        least, most = (moment_text(end, column.kind) for end in ends)
        return f'{column.kind}["{least}", "{most}"]{mark}'
    assert column.least is not None
    assert column.most is not None
    if column.is_whole:
        return f"int[{column.least}, {column.most}]{mark}"
    if column.places:
        least, most = (
            number_text(round(end, column.places))
            for end in (column.least, column.most)
        )
        return f"decimal({column.places})[{least}, {most}]{mark}"
    return f"real{mark}"


def _declared(text: str, column: ColumnProfile) -> str:
    comments = [own for own in (_empty_cells(column), _too_large(column)) if own]
    return f"{text}  # {'; '.join(comments)}" if comments else text


def _too_large(column: ColumnProfile) -> str:
    """What is said of whole numbers that tables with them can be checked, and not made."""
    if column.kind != "number" or not column.is_whole:
        return ""
    assert column.least is not None
    assert column.most is not None
    is_learned = max(-column.least, column.most) < LEARNED
    return "" if is_learned else "`fit` learns whole numbers below 2^53"


def _empty_cells(column: ColumnProfile) -> str:
    if not column.missing:
        return ""
    words = ", ".join(
        json.dumps(word, ensure_ascii=False) for word in column.empty_words
    )
    said = f" or say {words}" if words and column.kind == "label" else ""
    return f"{column.missing:,} cells are empty{said}"


def _range_rules(column: ColumnProfile) -> list[str]:
    if column.kind != "number" or column.is_whole or column.places:
        return []
    assert column.least is not None
    assert column.most is not None
    if column.least == column.most:
        return [f"{written_name(column.name)} == {number_text(column.least)}"]
    least = _short(column.least, down=True)
    most = _short(column.most, down=False)
    return [f"{least} <= {written_name(column.name)} <= {most}"]


def _short(number: Fraction, *, down: bool) -> str:
    """The number, or if that takes many digits one of few that lies outwards."""
    text = number_text(number)
    if len(text) <= LONGEST_END:
        return text
    places = DIGITS - 1 - floor(log10(abs(to_float64(number)) or 1.0))
    unit = Fraction(10) ** places
    rounded = floor(number * unit) if down else ceil(number * unit)
    return number_text(rounded / unit)


def _sampled(column: ColumnProfile) -> Values:
    cells = pl.concat(column.kept)
    variable, words = _read_as(column)
    read = cells_of(variable, cells)
    numbers = floats_of(read.column)
    for rows in read.unread.values():
        numbers[rows] = np.nan
    name = written_name(column.name)
    return Values(
        name,
        numbers,
        words,
        is_number=column.kind == "number",
        moment=column.kind if column.kind in ("date", "datetime") else "",
    )


def _read_as(column: ColumnProfile) -> tuple[Variable, tuple[str, ...]]:
    """What the cells of the sample are read as, and how rules say «has this value»."""
    name = written_name(column.name)
    if column.kind == "truth":
        return Variable(column.name, 0, Bool()), (f"not {name}", name)
    if column.kind == "date" or column.kind == "datetime":
        return Variable(column.name, 0, MOMENTS[column.kind]), ()
    if column.kind == "label":
        labels = column.labels
        words = [
            f"{name} == {json.dumps(label, ensure_ascii=False)}" for label in labels
        ]
        return Variable(column.name, 0, Category(labels)), tuple(words)
    return Variable(column.name, 0), ()


# --- what the whole table says of it --------------------------------------------------------------------------------


def _checked(
    rules: Sequence[str],
    declarations: Sequence[str],
    tables: Sequence[Table],
    support: float,
) -> list[str]:
    """The rules that hold often enough, with how often, exactly."""
    if not rules:
        return []
    specification = parse("\n".join([*declarations, *rules]))
    report = check_table(specification, tables, CheckOptions(missing="pass", limit=0))
    return list(
        _supported(rules, [r.violations for r in report.rules], report.rows, support)
    )


def _supported(
    rules: Sequence[str], violations: Sequence[int], rows: int, support: float
) -> Iterator[str]:
    for rule, broken in zip(rules, violations, strict=True):
        if not broken:
            yield f"{rule}  # all rows"
        elif rows - broken >= Fraction(str(support)) * rows:
            share = (
                10_000 * (rows - broken) // rows / 100
            )  # rounded down: only all are 100
            yield f"{rule}  # {share:.2f} % of the rows, broken by {broken:,}"


def _header(profile: Profile, support: float) -> list[str]:
    share = f"{100 * support:g} %"
    lines = [
        f"# Rules that {profile.title} suggests: {profile.rows:,} rows, of which at least {share} obey each of them.",
        "# Each was checked exactly on all rows; what is said here is true of this table, and a proposal for others.",
    ]
    if profile.stride > 1:
        lines.append(f"# Candidates were looked for in one row of {profile.stride}.")
    return lines
