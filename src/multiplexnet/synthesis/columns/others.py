"""Columns that are not learned: identifiers, which are numbered anew, and texts that are neither labels nor numbers.

Neither says anything about other columns that a model could use. Where such a column is given, its cells are passed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import polars as pl

from multiplexnet.errors import TableError
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.tables.cells import number_otherwise

__all__ = ["GIVEN", "OTHER_KINDS", "Other", "other_of"]

OtherKind = Literal["number", "name", "text"]
OTHER_KINDS: tuple[str, ...] = get_args(OtherKind)
FEWEST = 20
"""Rows that a table needs before whole numbers that are all different are taken for identifiers."""
TYPES = {"Int32": pl.Int32, "UInt32": pl.UInt32, "UInt64": pl.UInt64}
GIVEN: dict[str, OtherKind] = {**dict.fromkeys(TYPES, "number"), "Categorical": "name"}
"""Types that identifiers are given back in; shorter ones would not hold the numbers of many rows."""
CALLED = re.compile(
    r"(.*[^a-z])?(id|key|uuid|guid|index|nr|number|no|row)\d*", re.IGNORECASE
)
ENDS = re.compile(r".*[a-z](Id|ID|Key|Nr|No)")


@dataclass(frozen=True)
class Other:
    """A column that is not learned.

    Args:
        name: in the table.
        kind: ``"number"`` and ``"name"`` are numbered anew, 1, 2, … and p1, p2, …; ``"text"`` is left out.
        before: what stands before the number of a name.
        digits: how many digits a name has at least.
        given: the type of the cells, one of :data:`GIVEN`; empty: whole numbers of 64 bits, or texts.
    """

    name: str
    kind: OtherKind
    before: str = ""
    digits: int = 0
    given: str = ""

    def in_type(self, dtype: pl.DataType) -> Other:
        """The same, numbered in the type of its cells."""
        is_kept = str(dtype) in GIVEN and self.kind == GIVEN[str(dtype)]
        return replace(self, given=str(dtype)) if is_kept else self

    @property
    def note(self) -> str:
        """What is done with it."""
        if self.kind == "text":
            return (
                f"column {self.name!r} is left out: its cells are neither labels nor "
                "numbers; where it is given, it is passed on"
            )
        return (
            f"column {self.name!r} has a value of its own in every row: it is numbered "
            f"anew, {self._name(1)!r}, {self._name(2)!r}, …; where it is given, it is "
            "passed on"
        )

    def _name(self, number: int) -> int | str:
        if self.kind == "number":
            return number
        return self.before + str(number).zfill(self.digits)

    def cells(self, rows: Whole) -> pl.Series:
        """For rows with these numbers, from 0 on."""
        numbers = pl.Series(self.name, rows + 1, dtype=pl.Int64)
        if self.kind == "number":
            return self._numbered(numbers)
        digits = numbers.cast(pl.String).str.zfill(self.digits)
        found = (self.before + digits).alias(self.name)
        return found.cast(pl.Categorical) if self.given else found

    def _numbered(self, numbers: pl.Series) -> pl.Series:
        if not self.given:
            return numbers
        try:
            return numbers.cast(TYPES[self.given])
        except pl.exceptions.PolarsError:
            raise TableError(
                f"column {self.name!r} numbers the rows, and its type {self.given} holds no more of them: "
                "learn it as Int64"
            ) from None


def other_of(name: str, cells: pl.Series, *, is_number: bool) -> Other | None:
    """The column as one that is not learned, if its cells look like identifiers.

    Args:
        name: of the column.
        cells: of the column, numbers or texts.
        is_number: whether they are numbers, or can be read as such.

    Example:
        >>> other_of("who", pl.Series([f"p{k:03}" for k in range(30)]), is_number=False)
        Other(name='who', kind='name', before='p', digits=3, given='')
        >>> other_of("size", pl.Series([3, 1, 2] * 10), is_number=True) is None
        True
    """
    if cells.null_count() or len(cells) < FEWEST or cells.n_unique() < len(cells):
        return None
    if is_number:
        whole = cells.cast(pl.Int64, strict=False)
        is_whole = not whole.null_count() and not cells.dtype.is_float()
        return Other(name, "number") if is_whole and _counts(name, whole) else None
    if number_otherwise(cells) is not None:
        return Other(name, "text")
    parts = cells.cast(pl.String).str.extract_groups(r"^(.*?)(\d+)$").struct.unnest()
    before = parts.to_series(0)
    digits = parts.to_series(1)
    if before.null_count() or before.n_unique() > 1:
        return Other(name, "name")
    lengths = digits.str.len_chars()
    width = int(lengths[0]) if lengths.n_unique() == 1 else 0
    return Other(name, "name", str(before[0]), width)


def _counts(name: str, numbers: pl.Series) -> bool:
    """Whether numbers that are all different count the rows, or are called as identifiers are.

    Rows are counted from 0 or 1 on: years in order, such as 1825, 1826, …, are values as others are.
    """
    own = numbers.to_numpy()
    is_counted = own[0] in (0, 1) and bool((np.diff(own) == 1).all())
    return is_counted or bool(CALLED.fullmatch(name) or ENDS.fullmatch(name))
