"""``report``: everything that is said of a made table, each figure beside that of two halves of the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

from multiplexnet.errors import TableError
from multiplexnet.language.formula import Specification
from multiplexnet.quality.columns import LeftOut, SampledRows, compared
from multiplexnet.quality.copies import Copies, copies
from multiplexnet.quality.detection import Detection, detection
from multiplexnet.quality.heaps import Heap, heaps, tight
from multiplexnet.quality.marginals import ColumnFigure, column_figures, marks_of
from multiplexnet.quality.nearness import Nearness, nearness
from multiplexnet.quality.pairs import Pairs, pairs
from multiplexnet.quality.places import at_places_of
from multiplexnet.quality.sampling import Sample, opened, sample
from multiplexnet.quality.usefulness import Usefulness, target_of, usefulness
from multiplexnet.rules import Rules, rules_of
from multiplexnet.tables.check import CheckOptions, check_table
from multiplexnet.tables.report import TableReport

__all__ = ["Beside", "QualityReport", "Tell", "report"]

ROWS = 10_000
"""Rows of a table that figures are taken from; violations are counted in all."""
STEPS = 9

Tell = Callable[[str, int, int], None]
"""Is told what is being done, how many steps are done and how many there are."""
Figure = TypeVar("Figure")


@dataclass(frozen=True)
class Beside(Generic[Figure]):
    """A figure of the made table, and the same figure of other real rows: what a perfect table would have.

    Args:
        made: made rows beside real ones.
        real: other real rows beside the same ones.
    """

    made: Figure
    real: Figure


@dataclass(frozen=True)
class QualityReport:
    """What was found. ``save`` writes a page that opens offline, ``to_json`` is for programs.

    Args:
        specification: the rules.
        data: violations of the real table.
        made: violations of the made table.
        holdout: violations of the table that was held out, if there is one.
        rows: how many rows figures were taken from: made, real rows of the first half, real rows of the second.
        notes: what a reader has to know first.
        left_out: columns that were not compared.
        detection: whether trees tell made rows from real ones; ``None`` where there are too few rows.
        usefulness: of the made rows for training; or why nothing is said.
        pairs: how columns depend on each other.
        columns: one by one.
        heaps: shares of rows on single values.
        tight: shares of rows on the boundaries of rules.
        nearness: to rows that were learned from.
        copies: made rows that are in the real table, looked for among all rows.
        seed: of everything that was drawn.
        seconds: the time it took.
    """

    specification: Specification
    data: TableReport
    made: TableReport
    holdout: TableReport | None
    rows: tuple[int, int, int]
    notes: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    detection: Beside[Detection | None]
    usefulness: Usefulness | str
    pairs: Beside[Pairs | None]
    columns: tuple[ColumnFigure, ...]
    heaps: tuple[Heap, ...]
    tight: tuple[Heap, ...]
    nearness: Nearness | None
    copies: Copies
    seed: int
    seconds: float

    def to_html(self) -> str:
        """One page, with pictures, that loads nothing."""
        from multiplexnet.quality.page import page

        return page(self)

    def to_json(self) -> str:
        """One JSON document."""
        from multiplexnet.quality.data import data_of

        return json.dumps(data_of(self), ensure_ascii=False, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def __str__(self) -> str:
        from multiplexnet.quality.data import lines_of

        return "\n".join(lines_of(self))


def report(
    rules: Rules | str | Sequence[str],
    data: Any,
    made: Any,
    *,
    holdout: Any = None,
    target: str | None = None,
    obeying: bool = False,
    rows: int = ROWS,
    seed: int = 0,
    progress: Tell | None = None,
) -> QualityReport:
    """How good a made table is: does it obey, look real, serve for training, and copy nobody?

    Every figure of the made table stands beside the same figure of real rows: those of ``data`` beside those of
    ``holdout``. Without ``holdout`` the real table is split into halves.

    Args:
        rules: the rules, or their text.
        data: the real table that the made one was learned from, as for :func:`multiplexnet.check`.
        made: the made table.
        holdout: real rows that nothing was learned from. Figures without them flatter.
        target: the column that models are trained to predict; by default the last one of labels or truth values.
        obeying: whether made rows are compared only with real rows that obey the rules.
        rows: how many rows of each table are compared at most; violations are counted in all.
        seed: of everything that is drawn.
        progress: is told what is being done.

    Raises:
        TableError: a table cannot be read, or has no rows; or the tables have no column in common.

    Example:
        >>> import multiplexnet as mx
        >>> real = {"low": [1, 2, 3, 4] * 100, "high": [2, 2, 5, 9] * 100}
        >>> made = {"low": [1, 2, 3, 4] * 50, "high": [2, 1, 5, 9] * 50}
        >>> found = mx.report(mx.Rules("low <= high"), real, made)
        >>> found.made.counts, found.detection.made.score < 0.9 < found.detection.real.score
        ({'low <= high': 50}, True)
    """
    start = perf_counter()
    if rows < 2:
        raise TableError(f"rows = {rows}: figures are taken from 2 rows or more")
    steps = _Steps(progress)
    specification = rules_of(rules).specification
    tables = {"the real table": data, "the made table": made}
    if holdout is not None:
        tables["the held-out table"] = holdout
    with steps("checking rules"):
        checked = [
            check_table(
                specification, opened(own, title), CheckOptions(by_position=None)
            )
            for title, own in tables.items()
        ]
    for own, title in zip(checked, tables, strict=True):
        if not own.rows:
            raise TableError(f"{own.table} has no rows: {title} needs some")
    with steps("reading rows"):
        drawn = _drawn(specification, tables, rows, seed, obeying)
        parts, left_out = compared(specification, drawn.samples)
    if not parts[0].columns:
        raise TableError(
            f"{drawn.learned.title} and {drawn.made.title} have no column in common that can be compared: "
            + "; ".join(f"{own.name}: {own.reason}" for own in left_out[:5])
        )
    parts = at_places_of(parts[1], parts)
    with steps("looking for copies"):
        every = [opened(own, title) for title, own in tables.items()]
        held = every[2] if holdout is not None else None
        copied = copies(every[1], every[0], held, parts[0].columns)
    found = _measured(specification, drawn, parts, target, copied, seed, steps)
    notes = _notes(checked, drawn, holdout is not None, obeying, rows, left_out)
    return replace(
        found,
        data=checked[0],
        made=checked[1],
        holdout=checked[2] if holdout is not None else None,
        notes=(*_warnings(found, holdout is not None), *notes, *_cut(parts[0])),
        left_out=tuple(left_out),
        seconds=perf_counter() - start,
    )


@dataclass(frozen=True)
class _Comparison:
    """Rows to compare: those learned from, made ones, and real ones that both are compared with."""

    learned: Sample
    made: Sample
    others: Sample

    @property
    def samples(self) -> list[Sample]:
        return [self.learned, self.made, self.others]


class _Steps:
    """Says what is being done."""

    def __init__(self, tell: Tell | None) -> None:
        self.tell = tell
        self.done = 0

    @contextmanager
    def __call__(self, doing: str) -> Iterator[None]:
        if self.tell is not None:
            self.tell(doing, self.done, STEPS)
        yield
        self.done += 1


def _drawn(
    specification: Specification,
    tables: dict[str, Any],
    rows: int,
    seed: int,
    obeying: bool,
) -> _Comparison:
    is_split = len(tables) == 2
    (real, data), (made, made_data), *held = tables.items()
    most = 2 * rows if is_split else rows
    learned = _kept(specification, sample(data, most, seed, real), obeying)
    own = sample(made_data, rows, seed + 1, made)
    if held:
        title, others = held[0]
        kept = _kept(specification, sample(others, rows, seed + 2, title), obeying)
        return _Comparison(learned, own, kept)
    if learned.frame.height < 2:
        raise TableError(
            f"{learned.title} has one row: two halves of it take two, or give a held-out table"
        )
    half = learned.frame.height // 2
    first = replace(learned, frame=learned.frame.head(half))
    return _Comparison(first, own, replace(learned, frame=learned.frame.slice(half)))


def _kept(specification: Specification, own: Sample, obeying: bool) -> Sample:
    """The rows of a sample that obey, if these are wanted."""
    if not obeying:
        return own
    table = opened(own.frame, own.title)
    found = check_table(
        specification, table, CheckOptions(by_position=None, limit=0, keep_rows=True)
    )
    assert found.obeys is not None
    frame = own.frame.filter(found.obeys)
    if not frame.height:
        raise TableError(
            f"{own.title}: no row obeys the rules, so there is nothing to compare with"
        )
    return replace(own, frame=frame)


def _measured(
    specification: Specification,
    drawn: _Comparison,
    parts: list[SampledRows],
    target: str | None,
    copied: Copies,
    seed: int,
    steps: _Steps,
) -> QualityReport:
    learned, made, others = parts
    wanted = target_of(made.columns, target)
    count = min(map(len, parts))
    even = [own.take(np.arange(count)) for own in parts]
    marks = marks_of(specification)
    with steps("telling made rows from real ones"):
        told = detection(even[1], even[2], seed)
    with steps("telling real rows from real ones"):
        apart = detection(even[0], even[2], seed, by_column=False)
    with steps("training on made rows and on real ones"):
        useful: Usefulness | str = "there is one column alone"
        if wanted is not None:
            useful = usefulness(made, learned, others, wanted, seed)
    with steps("comparing pairs of columns"):
        both = Beside(pairs(even[1], even[2]), pairs(even[0], even[2]))
    with steps("comparing columns"):
        columns = column_figures(made, learned, others, marks)
        values = heaps(made, learned, others, marks)
        boundaries = tight(specification, drawn.made, drawn.learned, drawn.others)
    with steps("looking for the nearest rows"):
        near = nearness(made, learned, others)
    nothing = check_table(Specification((), ()), opened({"": [0]}, ""))
    return QualityReport(
        specification=specification,
        data=nothing,
        made=nothing,
        holdout=None,
        rows=(len(made), len(learned), len(others)),
        notes=(),
        left_out=(),
        detection=Beside(told, apart),
        usefulness=useful,
        pairs=both,
        columns=columns,
        heaps=values,
        tight=boundaries,
        nearness=near,
        copies=copied,
        seed=seed,
        seconds=0.0,
    )


def _warnings(found: QualityReport, has_holdout: bool) -> Iterator[str]:
    """What has to be known before any figure."""
    own = found.copies
    if own.are_many:
        usual = (
            "of the held-out rows are"
            if has_holdout
            else "of its own rows are there twice"
        )
        yield (
            f"COPIES: {own.made:.1%} of the made rows are in the real table, cell by cell, in all columns that are "
            f"compared; {own.real:.1%} {usual}. Other figures flatter such a table."
        )
    told = found.detection.made
    if told is not None and told.is_reversed:
        yield (
            f"Detection has no score: AUC is {told.auc:.3f}, far below ½. That happens where the same rows are in both "
            "tables: trees that learned a row as real judge it as made."
        )


def _cut(rows: SampledRows) -> Iterator[str]:
    """Which columns are compared with fewer places than they have."""
    cut = [own for own in rows.columns if own.places is not None]
    if cut:
        named = ", ".join(f"{own.name} ({own.places})" for own in cut[:8])
        more = f", and {len(cut) - 8} more" if len(cut) > 8 else ""
        yield (
            "Numbers are compared at the decimal places that the made table has, where real ones have more and the "
            f"difference is tiny: {named}{more}."
        )


def _notes(
    checked: list[TableReport],
    drawn: _Comparison,
    has_holdout: bool,
    obeying: bool,
    rows: int,
    left_out: list[LeftOut],
) -> tuple[str, ...]:
    notes = []
    if not has_holdout:
        notes.append(
            "No held-out table was given: the real table is split into halves, and rows that the made ones were "
            "learned from are in both. That flatters detection, and says nothing about rows that are nearly copies. "
            "Keep rows apart before you fit, and give them as --holdout (holdout=…)."
        )
    for own in (drawn.learned, drawn.made, drawn.others):
        limit = rows if has_holdout or own is drawn.made else 2 * rows
        note = (
            f"{own.title} has {own.rows:,} rows: figures are taken from {limit:,} of them, drawn evenly (--rows); "
            "violations and copies are counted in all."
        )
        if own.rows > limit and note not in notes:
            notes.append(note)
    broken = checked[0].rows - checked[0].obeying
    if broken and obeying:
        notes.append("Made rows are compared with real rows that obey the rules alone.")
    elif broken and checked[1].all_obey:
        share = broken / checked[0].rows
        notes.append(
            f"{share:.1%} of the real rows break rules and no made row does: trees can tell those by it. --obeying "
            "(obeying=True) compares with real rows that obey alone."
        )
    if min(drawn.made.frame.height, drawn.others.frame.height) < 1_000:
        notes.append("Fewer than 1,000 rows are compared: figures are coarse.")
    if left_out:
        named = "; ".join(f"{own.name} ({own.reason})" for own in left_out[:8])
        more = f"; and {len(left_out) - 8} more" if len(left_out) > 8 else ""
        notes.append(f"Columns that are not compared: {named}{more}.")
    return tuple(notes)
