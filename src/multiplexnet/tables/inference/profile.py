"""What the columns of a table are, found in one pass: kind, range, labels, empty cells, and a sample of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from multiplexnet.language.formula import Int, Unit, Variable
from multiplexnet.language.parser.moments import Moment
from multiplexnet.tables.cells import EMPTY, MISSING, NAN, SPELLINGS, cells_of
from multiplexnet.tables.sources.table import Table
from multiplexnet.verdicts.columns import Column, to_float64

__all__ = ["MOMENTS", "ColumnProfile", "Kind", "Profile", "floats_of", "profile_of"]

SAMPLE = 50_000
"""Rows that candidates are looked for in; there are at least half as many if the table is longer."""
MOST_LABELS = 50
"""Different texts of a column of labels."""
LABEL_SHARE = 0.5
"""A column in which more of the texts than this differ is not a column of labels, unless it has few rows."""
FEW_LABELS = 10

MOST_PLACES = 4
"""Decimal places of a column that is declared as a decimal."""
LARGEST_DECIMAL = 10**9
MOMENTS: Mapping[Moment, Int] = {
    "date": Int(-(10**6), 10**7, Unit(Fraction(1), "date")),
    "datetime": Int(-(10**11), 10**12, Unit(Fraction(1), "datetime")),
}
"""What cells are read as, to see whether they are dates or times."""
STEPS = {"date": "1d", "datetime": "1s"}
CODE = r"^\s*0\d+\s*$"

Kind = Literal["number", "truth", "label", "date", "datetime"]
Floats = NDArray[np.float64]


@dataclass
class ColumnProfile:
    """What is known of a column.

    Args:
        name: its name in the table.
        rows: how many cells were seen.
        missing: how many of them have no value.
        is_number: whether every other cell is a number.
        is_truth: whether every other cell says true or false, in a word or as a truth value.
        moments: the first and the last date, where every other cell is a date, and the same of times.
        is_whole: whether every number is whole.
        places: how many decimal places its numbers have at most; ``None``: more than decimals are declared with.
        least: the smallest number.
        most: the largest number.
        texts: the different texts, in order of appearance; ``None``: too many.
        empty_words: the texts that count as empty, such as NA, as they stand there.
        kept: the cells of the sample.
    """

    name: str
    rows: int = 0
    missing: int = 0
    is_number: bool = True
    is_truth: bool = True
    moments: dict[Moment, tuple[int, int] | None] = field(
        default_factory=lambda: dict.fromkeys(MOMENTS)
    )
    is_whole: bool = True
    places: int | None = 0
    least: Fraction | None = None
    most: Fraction | None = None
    texts: dict[str, None] | None = field(default_factory=dict)
    empty_words: dict[str, None] = field(default_factory=dict)
    kept: list[pl.Series] = field(default_factory=list)

    @property
    def kind(self) -> Kind | None:
        """Numbers, truth values or labels; ``None``: nothing that rules speak of."""
        if self.missing == self.rows:
            return None
        if self.is_truth:
            return "truth"
        for moment in self.moments:
            return moment
        if self.is_number:
            return "number"
        if self.texts is None:
            return None
        allowed = max(FEW_LABELS, LABEL_SHARE * (self.rows - self.missing))
        return "label" if len(self.texts) <= allowed else None

    @property
    def labels(self) -> tuple[str, ...]:
        """The texts in order, without blanks at their ends if all differ without them, too."""
        texts = self.texts or {}
        words = {text.strip() for text in texts}
        return tuple(sorted(words if len(words) == len(texts) else texts))

    def add(self, cells: pl.Series) -> None:
        """Take in some cells."""
        if cells.dtype in (pl.Categorical, pl.Enum):
            cells = cells.cast(pl.String)
        self.rows += len(cells)
        number = cells_of(Variable(self.name, 0), cells)
        empty = sum(len(number.unread.get(reason, ())) for reason in (MISSING, NAN))
        self.missing += empty
        is_number = set(number.unread) <= {MISSING, NAN}
        if empty == len(cells):
            return
        self.is_truth &= _all_truths(cells)
        for moment in list(self.moments):
            self._note_moments(cells, moment)
        self.is_number &= is_number and cells.dtype != pl.Boolean
        self.is_number &= not _has_codes(cells)
        if self.is_number:
            rows = [own for own in number.unread.values() if len(own)]
            empty_rows = np.concatenate(rows) if rows else np.empty(0, np.intp)
            self._note_numbers(number.column, empty_rows, cells.dtype.is_float())
        elif cells.dtype == pl.String:
            self._note_labels(cells)
        else:
            self.texts = None
        if self.is_number and self.texts is not None and cells.dtype == pl.String:
            self._note_labels(cells)  # later cells may turn out to be no numbers

    def _note_moments(self, cells: pl.Series, moment: Moment) -> None:
        """Widens the range of dates, or times, unless a cell is none."""
        earlier = self.moments.pop(moment)
        if not _may_be(cells, moment):
            return
        found = cells_of(Variable(self.name, 0, MOMENTS[moment]), cells)
        if not set(found.unread) <= {MISSING}:
            return
        there = np.ones(len(cells), dtype=np.bool_)
        there[found.unread.get(MISSING, np.empty(0, np.intp))] = False
        exactly = floats_of(found.column)[there]
        numbers = np.rint(exactly)
        if (numbers != exactly).any():  # parts of seconds, which no rule declares
            return
        least = int(numbers.min())
        most = int(numbers.max())
        if earlier is not None:
            least, most = min(least, earlier[0]), max(most, earlier[1])
        self.moments = dict(sorted({**self.moments, moment: (least, most)}.items()))

    def _widen(self, least: Fraction, most: Fraction) -> None:
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    def _note_numbers(
        self, column: Column, empty: NDArray[np.intp], is_float: bool
    ) -> None:
        there = np.ones(len(column), dtype=np.bool_)
        there[empty] = False
        near = np.where(there, column.near, np.nan)
        ends = list(_ends(column, there))
        self._widen(min(ends), max(ends))
        if self.places is not None:
            places = _places(column, near, is_float)
            self.places = None if places is None else max(self.places, places)
        self.is_whole = self.is_whole and _is_whole(column, near)

    def _note_labels(self, cells: pl.Series) -> None:
        if self.texts is None:
            return
        for text in cells.drop_nulls().unique(maintain_order=True).to_list():
            word = text.strip()
            if word.lower() not in EMPTY:
                self.texts[text] = None
            elif word:
                self.empty_words[word] = None
        if len(self.texts) > MOST_LABELS:
            self.texts = None


def _may_be(cells: pl.Series, moment: Moment) -> bool:
    """Whether the cells may be dates, or times: texts, or of such a type, in whole days or seconds, without a zone."""
    if cells.dtype == pl.String and moment == "date":
        return not cells.str.contains(":", literal=True).any()
    if not isinstance(cells.dtype, pl.Datetime):
        return cells.dtype in (pl.Date, pl.String)
    if cells.dtype.time_zone is not None:
        return False
    return bool((cells.dt.truncate(STEPS[moment]) == cells).all())


def _has_codes(cells: pl.Series) -> bool:
    """Whether digits stand there that no number is written with, such as the post code 01234."""
    return cells.dtype == pl.String and bool(cells.str.contains(CODE).any())


def _all_truths(cells: pl.Series) -> bool:
    if cells.dtype == pl.Boolean:
        return True
    if cells.dtype != pl.String:
        return False
    texts = cells.drop_nulls().str.strip_chars().str.to_lowercase().unique()
    return bool(texts.is_in([*SPELLINGS, *EMPTY]).all())


def floats_of(column: Column) -> NDArray[np.float64]:
    """The floats next to the numbers: by a division, so that 12.5 is the same in columns of one and two places."""
    if column.unit.numerator == 1:
        numbers = column.near / float(column.unit.denominator)
    else:
        numbers = column.near * float(column.unit)
    for row, number in column.odd.items():
        numbers[row] = to_float64(number)
    return np.array(numbers)


def _ends(column: Column, there: NDArray[np.bool_]) -> Iterator[Fraction]:
    """Numbers of these rows, the least and the greatest among them."""
    near = np.where(there, column.near, np.nan)
    odd = [row for row in column.odd if there[row]]
    near[odd] = np.nan  # the parts do not hold them
    for row in odd:
        yield column.odd[row]
    if np.isnan(near).all():
        return
    for value in (np.nanmin(near), np.nanmax(near)):
        for row in _ties(column, near, value):
            yield column.exact(int(row))


def _ties(column: Column, near: Floats, value: float) -> NDArray[np.intp]:
    """Rows whose number may be this one: floats near it, one of each number."""
    with np.errstate(over="ignore"):  # the two ends of float64 are infinitely far apart
        apart = np.abs(near - value)
    close = np.flatnonzero(apart <= 4 * np.spacing(abs(value)))
    if len(close) <= 64:
        return close
    parts = np.stack([part[close] for part in column.parts])
    return close[np.unique(parts, axis=1, return_index=True)[1]]


def _places(column: Column, near: Floats, is_float: bool) -> int | None:
    """How many decimal places the numbers have; a float has those of the decimal that it is nearest to."""
    numbers = near[np.isfinite(near)]
    if is_float:
        if np.abs(numbers).max(initial=0.0) >= LARGEST_DECIMAL:
            return None
        for places in range(MOST_PLACES + 1):
            if (np.round(numbers, places) == numbers).all():
                return places
        return None
    unit = column.unit
    places = len(str(unit.denominator)) - 1
    if column.odd or unit.numerator != 1 or unit != Fraction(1, 10**places):
        return None
    return places if places <= MOST_PLACES else None


def _is_whole(column: Column, near: Floats) -> bool:
    if column.unit == 1 and len(column.parts) == 1 and not column.odd:
        return bool((column.parts[0] == np.rint(column.parts[0])).all())
    rows = np.flatnonzero(np.isfinite(near))
    if (np.abs(near[rows] - np.rint(near[rows])) > 0).any():
        return False
    return all(column.exact(int(row)).denominator == 1 for row in rows)


@dataclass(frozen=True)
class Profile:
    """The columns of a table.

    Args:
        title: what messages call the table.
        rows: how many it has.
        columns: what is known of each.
        stride: every how many-th row is in the sample.
    """

    title: str
    rows: int
    columns: tuple[ColumnProfile, ...]
    stride: int


def profile_of(tables: Sequence[Table]) -> Profile:
    """What the columns of a table are, which may be made of several files with the same columns."""
    columns = {name: ColumnProfile(name) for name in tables[0].names}
    stride = 1
    rows = 0
    for table in tables:
        common = [(k, name) for k, name in enumerate(table.names) if name in columns]
        for frame in table.frames([k for k, _ in common]):
            chosen = np.arange(-rows % stride, frame.height, stride)
            for k, name in common:
                cells = frame[str(k)]
                columns[name].add(cells)
                columns[name].kept.append(cells.gather(chosen))
            rows += frame.height
            while -(-rows // stride) > SAMPLE:
                stride *= 2
                _thin(columns.values())
    return Profile(tables[0].title, rows, tuple(columns.values()), stride)


def _thin(columns: Iterable[ColumnProfile]) -> None:
    """Every second row of the sample is dropped."""
    for column in columns:
        if column.kept:
            column.kept = [pl.concat(column.kept).gather_every(2)]
