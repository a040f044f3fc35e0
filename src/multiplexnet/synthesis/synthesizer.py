"""``Synthesizer``: a model of the rows of a table whose every sample obeys the rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from math import log
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from multiplexnet.arguments import (
    refuse_bad_count,
    refuse_bad_minutes,
    refuse_bad_path,
    refuse_bad_seed,
    refuse_no_function,
    refuse_no_text,
    refuse_no_truth,
)
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CompileTimeout,
    DenseRulesError,
    GridError,
    StuckRowsError,
    TableError,
)
from multiplexnet.exact.deadline import Deadline
from multiplexnet.language.formula import Specification
from multiplexnet.rules import Rules, rules_of
from multiplexnet.synthesis.allowed import AllowedRows, allowed_by
from multiplexnet.synthesis.checkpoint import file_of
from multiplexnet.synthesis.columns.frames import (
    frame_of,
    refuse_empty,
    refuse_lacking,
)
from multiplexnet.synthesis.columns.reading import ReadTable, cells_in, cut, schema_of
from multiplexnet.synthesis.columns.rounding import CheckedTable, checked
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.columns.types import pandas_frame, pandas_types
from multiplexnet.synthesis.columns.whole import refuse_curves
from multiplexnet.synthesis.drawing.conditions import share_that_ends
from multiplexnet.synthesis.drawing.files import SampleProgress, Tell, write
from multiplexnet.synthesis.drawing.given import given_of
from multiplexnet.synthesis.drawing.making import Maker, SampleRequest
from multiplexnet.synthesis.drawing.pieces import made_pieces, pieces
from multiplexnet.synthesis.encoder import Encoder
from multiplexnet.synthesis.findings import (
    broken,
    fixed,
    lost_by_rounding,
    moved,
    refuse_contradictions,
    shortened,
    too_dense,
    unmet,
    unread,
)
from multiplexnet.synthesis.learned import LearnedModel, one_thread
from multiplexnet.synthesis.replacing import in_place_of
from multiplexnet.synthesis.together import Processes
from multiplexnet.synthesis.training import (
    CHUNK,
    RECIPES,
    Progress,
    Recipe,
    RowModel,
    begun_with,
    data_of,
    trained,
)
from multiplexnet.tables.report import TableReport
from multiplexnet.tables.sources.table import Table

__all__ = ["Synthesizer", "Violations"]

Violations = Literal["drop", "repair", "error"]
MINUTES = 10.0
PROJECTED = 30.0
"""Seconds that exact projections of the rules may take; after that they are cut short."""
MOST_LOST = 0.5
"""The share of rows that projections may lose (dark shadows do); beyond they are cut short, and lose none."""
SHOWN = 5
"""Rules, and rows, that a message names."""

Bools = NDArray[np.bool_]


class Synthesizer:
    """A model of the rows of a table, p(row) = Π_j p(x_j | x_<j), each factor restricted to what the rules leave.

    Every row that is drawn obeys the rules, exactly. None is rejected, but for rules that are too dense to be projected
    (:attr:`notes` say so): there some tries end nowhere, and are drawn anew. Decimals, dates, labels and missing values
    are inside the guarantee: they are drawn as whole numbers of steps.

    Args:
        rules: the rules, or their text. Columns that they do not declare are learned as what they look like.

    Example:
        >>> table = {"low": [1, 2, 3, 4] * 10, "high": [2, 2, 5, 9] * 10}
        >>> model = Synthesizer("low: int[0, 9]; high: int[0, 9]; low <= high").fit(table, minutes=0)
        >>> made = model.sample(100, where="low >= 3", seed=1)
        >>> made.filter((pl.col("low") < 3) | (pl.col("low") > pl.col("high"))).height
        0
    """

    def __init__(self, rules: Rules | str | Sequence[str]) -> None:
        self.rules = rules_of(rules)
        self.report: TableReport | None = None
        self._fitted: LearnedModel | None = None
        self._checkpoint: Path | None = None

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        table: Any,
        *,
        minutes: float = MINUTES,
        seed: int = 0,
        violations: Violations = "drop",
        progress: Callable[[Progress], None] | None = None,
        note: Callable[[str], None] | None = None,
        checkpoint: str | Path | None = None,
        recipes: tuple[Recipe, ...] | None = None,
    ) -> Synthesizer:
        """Learn the rows of a table.

        Args:
            table: as for :func:`multiplexnet.check`: a polars, pandas or Arrow table, a mapping, or the path of a file.
            minutes: how long to go on trying settings; the first one is trained in any case, if need be for one time
                through the table, and only so often with 0.
            seed: of everything that is drawn while learning. The same one gives the same model on one machine if
                learning ends before the minutes do, or these are 0; else the clock decides how many steps there are.
            violations: what becomes of rows that break rules: ``"drop"`` leaves them out with a warning,
                ``"repair"`` moves them to the nearest values that obey, column by column, ``"error"`` refuses the
                table.
            progress: is called as it goes.
            note: is called with what there is to say about columns and rules, before anything is learned; what is said
                of many columns alike is said once (:attr:`notes` has all of it).
            checkpoint: a file that is written now and then while learning, and removed when the model is saved. If it
                is there already, and was begun with the same table, rules, seed and recipes, learning goes on from
                there. If it holds something else, that stays, and a file beside it is written, with a warning.
            recipes: settings to try; the one that gives rows kept apart the highest likelihood is taken.

        Raises:
            TableError: the table has no row that obeys, or lacks a column; or rows break rules and
                ``violations="error"``.
            DenseRulesError: the rules tie too many columns together.
        """
        if violations not in ("drop", "repair", "error"):
            raise TableError(
                f"violations = {violations!r}: it is 'drop', 'repair' or 'error'"
            )
        refuse_bad_seed(seed)
        refuse_bad_minutes(minutes)
        refuse_bad_path("checkpoint", checkpoint)
        refuse_no_function("progress", progress, "a Progress")
        refuse_no_function("note", note, "a text")
        refuse_curves(self.rules.specification.rules)
        tried = RECIPES if recipes is None else tuple(recipes)
        _refuse_no_recipes(tried)
        self._checkpoint = None
        begun = monotonic()
        opened, frame = frame_of(table)
        refuse_empty(opened, frame)
        own, found, allowed = self._understood(opened, frame, violations)
        obeys = own.obeys
        values = self._rows(found, obeys, allowed, violations)
        facts = (
            *found.blanks,
            *moved(own.moved),
            *fixed(found.schema, allowed, values),
        )
        warned = (*found.notes, *too_dense(found.schema, allowed))
        if note is None:
            for text in shortened(warned):
                warnings.warn(text, stacklevel=2)
        else:
            for text in shortened((*warned, *facts)):
                note(text)
        if checkpoint is not None:
            fit = begun_with(values, allowed, int(seed), tried)
            self._checkpoint = file_of(Path(checkpoint), fit)
        model, score = trained(
            values,
            allowed,
            seconds=60 * minutes - (monotonic() - begun),
            seed=int(seed),
            recipes=tried,
            tell=progress,
            checkpoint=self._checkpoint,
        )
        shares = tuple(_share_that_ends(model)) if allowed.outer else ()
        if note is not None:
            for text in shares:
                note(text)
        self._fitted = LearnedModel(
            found.schema,
            model,
            score if np.isfinite(score) else None,
            len(values),
            _library(table),
            (*warned, *facts, *shares),
            pandas_types(table) if _library(table) == "pandas" else {},
        )
        return self

    def _understood(
        self, opened: Table, frame: pl.DataFrame, violations: Violations
    ) -> tuple[CheckedTable, ReadTable, AllowedRows]:
        """Which rows obey, the table with the ranges of those that are learned from, and what the rules leave."""
        specification = self.rules.specification
        own = checked(self.rules, schema_of(specification, opened, frame))
        self.report = own.report
        self._tell(own, violations)
        is_finer = any(rounded.is_finer for rounded in own.found.rounded)
        found = _of_learned(own, violations)
        allowed = _compiled(found, own.obeys, may_be_too_fine=is_finer)
        if allowed is None:
            coarse = schema_of(specification, opened, frame, is_fine=False)
            own = checked(self.rules, coarse)
            _refuse_nothing_left(own, violations)
            found = _of_learned(own, violations)
            allowed = _compiled(found, own.obeys)
            assert allowed is not None
        if own.lost.any() and violations != "repair":
            text = lost_by_rounding(own.lost)
            warnings.warn(f"{text}: they are left out", stacklevel=3)
        return own, found, allowed

    def _tell(self, own: CheckedTable, violations: Violations) -> None:
        report = own.report
        obeys = own.obeys
        strange = list(unread(report, own.found))
        _refuse_nothing_left(own, violations)
        count = int((~obeys & ~own.lost).sum())
        if not count:
            return
        why = "; ".join(filter(None, (broken(report), *strange[:SHOWN])))
        text = f"{count:,} of {len(obeys):,} rows break rules ({why})"
        if not obeys.any():
            refuse_contradictions(self.rules)
        learned = own.found.movable if violations == "repair" else obeys
        if not learned.any():
            never = unmet(report)
            named = " and ".join(f"`{rule}`" for rule in never[:SHOWN])
            hint = f"; {named} holds in none" if never else ""
            raise TableError(f"{text}: no row is left to learn from{hint}")
        if violations == "error":
            raise TableError(
                f"{text}: mend them, or fit with violations='drop' or 'repair'"
            )
        done = (
            "left out"
            if violations == "drop"
            else "moved to the nearest values that obey"
        )
        warnings.warn(f"{text}: they are {done}", stacklevel=4)

    @property
    def checkpoint(self) -> Path | None:
        """The file that learning is kept in while it lasts, and until the model is saved; ``None``: there is none."""
        own = self._checkpoint
        return own if own is not None and own.exists() else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to columns, and what the rules fix."""
        return self._known().notes

    def _rows(
        self, found: ReadTable, obeys: Bools, allowed: AllowedRows, violations: str
    ) -> Whole:
        """The rows to learn from, columns in the order of computing."""
        order = [v.index for v in allowed.columns]
        wanted = found.movable if violations == "repair" else obeys
        values = found.values[wanted][:, order]
        if violations == "repair":
            mended, stuck = allowed.nearest(torch.from_numpy(values))
            if stuck.any():
                warnings.warn(
                    f"{int(stuck.sum()):,} rows got stuck while they were repaired: left out",
                    stacklevel=3,
                )
            repaired: Whole = mended[~stuck].numpy()
            if not len(repaired):
                raise TableError(
                    "no row is left to learn from: all got stuck while they were repaired"
                )
            return repaired
        reached: Bools = allowed.reached(torch.from_numpy(values)).numpy()
        lost = int((~reached).sum())
        if lost == len(values):
            raise TableError(
                "no row can be drawn step by step under these rules: loosen them"
            )
        if lost:
            warnings.warn(
                f"{lost:,} rows obey and cannot be drawn column by column: left out",
                stacklevel=3,
            )
        kept: Whole = values[reached]
        return kept

    # --- drawing ----------------------------------------------------------------------------------------------------

    def sample(
        self,
        count: int | None = None,
        *,
        where: str | None = None,
        given: Any = None,
        fill: bool = False,
        seed: int = 0,
        jobs: int = 1,
        dask: str | None = None,
        progress: Tell | None = None,
    ) -> Any:
        """Rows that obey the rules, in the kind of table that was fitted.

        The same seed gives the same rows, however many there are and whoever makes them: row 5 of a thousand is row 5
        of a million.

        Args:
            count: how many rows; with ``given`` as many as that has.
            where: a condition that all rows meet, as in ``'age >= 40 and sex == "F"'``; missing values do not meet it.
                It is compiled as a further rule. Rows are drawn exactly from the conditional distribution, unless the
                condition is rarely met; ``progress`` is told how many are.
            given: a table of known columns, to be completed. Rows that cannot obey are left out with a warning that
                names them and the rules. An empty cell is known to be missing if its column may be, and else filled
                in. Columns that are not learned are passed on.
            fill: fill in all empty cells of ``given``.
            seed: of the rows.
            jobs: in how many processes.
            dask: the address of a Dask scheduler whose workers make the rows, or ``"local"``.
            progress: is called as it goes.

        Raises:
            TableError: nothing can meet the condition.
            RecordError: the model was read from a file, and makes a row that breaks the rules in the file.
        """
        refuse_no_function("progress", progress, "a SampleProgress")
        maker, wanted = self._asked(count, where, given, fill, seed)
        parts = _told(maker, wanted, jobs, dask, progress)
        return _as(self._known(), pl.concat(list(parts)))

    def sample_to(
        self,
        path: str | Path,
        count: int | None = None,
        *,
        where: str | None = None,
        given: Any = None,
        fill: bool = False,
        seed: int = 0,
        jobs: int = 1,
        dask: str | None = None,
        progress: Tell | None = None,
    ) -> SampleProgress:
        """As :meth:`sample`, written as they are made into a ``.csv`` or ``.parquet`` file, or a folder of the latter.

        A folder that holds a part of the same sample is completed.

        Raises:
            TableError: it cannot be written, or is what rows are made from; says how many rows are there, which are
                whole.
            RecordError: the model was read from a file, and makes a row that breaks the rules in the file; rows that
                were written before are there.
        """
        refuse_no_function("progress", progress, "a SampleProgress")
        _refuse_overwriting(Path(path), [self._known().title, given])
        maker, wanted = self._asked(count, where, given, fill, seed)
        state = write(maker, wanted, Path(path), jobs=jobs, dask=dask, tell=progress)
        _tell_unfound(state, stacklevel=3)
        return state

    def _asked(
        self, count: int | None, where: str | None, given: Any, fill: bool, seed: int
    ) -> tuple[Maker, SampleRequest]:
        learned = self._known()
        if (count is None) == (given is None):
            raise TableError(
                "give either how many rows, as in sample(1000), or sample(given=table)"
            )
        if count is not None:
            refuse_bad_count("count", count, 0, "rows")
        refuse_bad_seed(seed)
        seed = int(seed)
        refuse_no_text("where", where, """a condition, as in 'age >= 40'""")
        if where is not None and not where.strip():
            raise TableError("where is empty: give a condition, as in 'age >= 40'")
        refuse_no_truth("fill", fill)
        if fill and given is None:
            raise TableError(
                "fill is for the empty cells of a table: give it, as in sample(given=table)"
            )
        maker = Maker(learned, seed, where)
        if given is None:
            return maker, SampleRequest(count or 0, seed, where)
        _, frame = frame_of(given)
        possible, others = maker.possible(given_of(learned.schema, frame, fill=fill))
        if others:
            told = "; ".join(map(str, others[:SHOWN]))
            more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
            text = f"given: cannot be completed under the rules: {told}{more}"
            if not len(possible):
                raise TableError(f"{text}: no row is left")
            warnings.warn(f"{text}: left out", stacklevel=4)
        return maker, SampleRequest(len(possible), seed, where, possible)

    def log_prob(self, table: Any) -> NDArray[np.float64]:
        """The log-probability of every row, in nats; −∞ for rows that break rules or hold values never seen.

        Where the rules are too dense to be projected (``notes`` say so), some tries of rows end nowhere, and are drawn
        anew. Then this is a lower bound: rows are drawn with the probability exp(log_prob) / Z, where Z is the share of
        tries that end.

        Raises:
            TableError: the table lacks a column.
        """
        fitted = self._known()
        _, frame = frame_of(table)
        names = [field.name for field in fitted.schema.fields]
        refuse_lacking(names, frame)
        cells = cells_in(fitted.schema, frame)
        model = fitted.model
        values = np.stack([cells.steps[v] for v in model.allowed.columns], -1)
        good = cells.good & model.allowed.reached(torch.from_numpy(values)).numpy()
        found = np.full(len(values), -np.inf)
        rows = np.flatnonzero(good)
        for part in np.array_split(rows, -(-len(rows) // CHUNK) or 1):
            if len(part):
                found[part] = _log_prob(model, values[part])
        return found

    @property
    def encoder(self) -> Encoder:
        """Rows as numbers that no rule binds, and back: rules for a generator that you already have.

        Raises:
            StuckRowsError: the rules are too dense to be projected, so that some numbers would stand for no row.
        """
        return Encoder(self._known())

    @property
    def log_likelihood(self) -> float | None:
        """The mean log-probability of rows that were kept apart, before they were learned from, in nats.

        A lower bound where the rules are too dense to be projected: see :meth:`log_prob`.
        """
        return self._known().log_likelihood

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to a file, a zip of JSON and plain arrays, and remove the checkpoint of learning it.

        Raises:
            OSError: as the system says; what was in the file before is there still.
            RecordError: the model is larger than files can be.
        """
        with in_place_of(Path(path)) as draft:
            self._known().save(draft)
        if self._checkpoint is not None:
            self._checkpoint.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Synthesizer:
        """The model in a file. Reading it runs no code of the file, and needs no solver.

        What a stranger wrote into a file may be anything. Whatever the model in it draws is checked, exactly, against
        the rules in it (``model.rules``) before it is handed out.

        Raises:
            RecordError: the file is damaged, or is not a model.
            OSError: as the system says.
        """
        with Path(path).open("rb") as file:
            learned = LearnedModel.load(file, str(path))
        made = cls(Rules.from_specification(learned.schema.declared))
        made._fitted = learned
        return made

    def _known(self) -> LearnedModel:
        if self._fitted is None:
            raise TableError("nothing has been learned yet: call fit(table) first")
        return self._fitted


# --- tables -----------------------------------------------------------------------------------------------------------


def _refuse_no_recipes(recipes: Sequence[object]) -> None:
    if not recipes or not all(isinstance(own, Recipe) for own in recipes):
        raise TableError(
            f"recipes = {recipes!r}: give at least one, as in recipes=(Recipe(),)"
        )


def _refuse_overwriting(path: Path, read: Sequence[object]) -> None:
    """Raises ``TableError`` if rows would be written over a file that they are made from."""
    for own in read:
        if isinstance(own, str | Path) and _is_same(path, Path(own)):
            raise TableError(
                f"{path} is what rows are made from: write them to another file"
            )


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there
        return False


def _library(table: Any) -> str:
    root = type(table).__module__.partition(".")[0]
    return {"pandas": "pandas", "pyarrow": "arrow"}.get(root, "polars")


def _as(learned: LearnedModel, frame: pl.DataFrame) -> Any:
    """A table of the library that was given one."""
    if learned.library == "pandas":
        return pandas_frame(frame, learned.pandas)
    return frame.to_arrow() if learned.library == "arrow" else frame


# --- rows -------------------------------------------------------------------------------------------------------------


def _told(
    maker: Maker, wanted: SampleRequest, jobs: int, dask: str | None, tell: Tell | None
) -> Iterator[pl.DataFrame]:
    if not wanted.count:
        yield maker.nothing().frame
    state = SampleProgress(0, wanted.count)
    for made in made_pieces(maker, pieces(wanted), jobs=jobs, dask=dask):
        state = state.and_then(made, made.frame.height)
        if tell is not None:
            tell(state)
        yield made.frame
    _tell_unfound(state, stacklevel=4)


def _tell_unfound(state: SampleProgress, stacklevel: int) -> None:
    """Given rows of which no completion was found."""
    if not state.unfound:
        return
    rows = ", ".join(f"{number:,}" for number in state.unfound[:SHOWN])
    count = len(state.unfound) - SHOWN
    more = f" and {count:,} more" if count > 0 else ""
    text = f"given: no completion was found under the rules for row {rows}{more}, and there may be one"
    if not state.rows:
        raise StuckRowsError(f"{text}: no row is left")
    warnings.warn(f"{text}: left out", stacklevel=stacklevel)


def _refuse_nothing_left(own: CheckedTable, violations: Violations) -> None:
    """Raises ``TableError`` if rounding leaves no row that obeys."""
    if own.lost.any() and not own.obeys.any() and violations != "repair":
        text = lost_by_rounding(own.lost)
        raise TableError(f"{text}: no row is left to learn from")


def _of_learned(own: CheckedTable, violations: Violations) -> ReadTable:
    """The table with the ranges that rows have which are learned from."""
    is_repaired = violations == "repair"
    return cut(own.found, own.found.movable if is_repaired else own.obeys)


def _compiled(
    table: ReadTable, obeys: Bools, *, may_be_too_fine: bool = False
) -> AllowedRows | None:
    """What the rules leave; the first process decides which are too dense, since clocks of others may differ.

    Args:
        table: the columns, and the rules.
        obeys: its rows that do.
        may_be_too_fine: whether ``None`` is the answer to rules that can only be projected where steps are coarser.
    """
    specification = table.schema.specification
    processes = Processes.present()
    found = None
    is_too_fine = False
    if processes.is_first:
        try:
            found = _compiled_here(specification, table.values[obeys])
            is_too_fine = may_be_too_fine and bool(found.outer)
        except GridError as error:
            if error.is_empty or not may_be_too_fine:
                raise
            is_too_fine = True
    if may_be_too_fine and processes.as_first(is_too_fine):
        return None
    dense = [
        column
        for column in specification.outputs
        if processes.as_first(found is not None and column in found.dense)
    ]
    if found is None:
        found = allowed_by(specification, dense=dense)
    return found


def _compiled_here(specification: Specification, rows: Whole) -> AllowedRows:
    deadline = Deadline(PROJECTED)
    try:
        found = allowed_by(specification, deadline=deadline, may_be_outer=True)
    except (CascadeBudgetExceeded, CompileTimeout) as error:
        raise DenseRulesError(error) from None
    except GridError as error:
        if len(rows) or not error.is_empty:
            raise
        raise TableError(
            "no row obeys the rules, nor does any other one within the ranges of its columns: nothing can be repaired; "
            "change a rule, or mend some rows"
        ) from None
    lossy = {v for own in found.cascades if not own.complete for v in own.visible}
    if not lossy or _lost(found, rows) <= MOST_LOST * len(rows):
        return found
    return allowed_by(
        specification,
        deadline=deadline,
        dense=found.dense | lossy,
        may_be_outer=True,
    )


def _lost(allowed: AllowedRows, rows: Whole) -> int:
    """How many rows obey and cannot be drawn column by column."""
    order = [v.index for v in allowed.columns]
    reached = allowed.reached(torch.from_numpy(rows[:, order]))
    return len(rows) - int(reached.sum())


def _share_that_ends(model: RowModel) -> Iterator[str]:
    with one_thread():
        share = share_that_ends(model)
    stuck = f"{100 * (1 - share):.1f} % of tries to draw a row end nowhere"
    if not share:
        yield f"{stuck}: hardly any row can be drawn"
        return
    yield (
        f"{stuck}, and are drawn anew: a row takes {1 / share:.1f} tries, and its log-probability is {-log(share):.2f} "
        "nats larger than log_prob says"
    )


@torch.inference_mode()
def _log_prob(model: RowModel, values: Whole) -> NDArray[np.float64]:
    data = data_of(values, model.tokens, model.allowed)
    return model.log_prob(data).double().numpy()
