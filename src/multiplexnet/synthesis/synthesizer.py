"""``Synthesizer``: a model of the rows of a table whose every sample obeys the rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from multiplexnet.errors import CompileTimeout, MultiplexError, RecordError, TableError
from multiplexnet.exact.deadline import SECONDS, Deadline
from multiplexnet.language.formula import Specification, Variable
from multiplexnet.rules import Rules
from multiplexnet.synthesis import storage
from multiplexnet.synthesis.allowed import Allowed, allowed_by
from multiplexnet.synthesis.drawing import (
    BLOCK,
    CANDIDATES,
    Condition,
    blocks,
    drawn,
    drawn_under,
)
from multiplexnet.synthesis.schema import Found, Schema, cut, found_in, schema_of
from multiplexnet.synthesis.tokens import Whole
from multiplexnet.synthesis.training import (
    CHUNK,
    RECIPES,
    Progress,
    Recipe,
    RowModel,
    data_of,
    trained,
)
from multiplexnet.tables.check import check
from multiplexnet.tables.report import TableReport
from multiplexnet.tables.sources.objects import tables_of
from multiplexnet.tables.sources.table import Table

__all__ = ["Synthesizer", "Violations"]

Violations = Literal["drop", "repair", "error"]
MINUTES = 10.0
SHOWN = 5
"""Rules, and rows, that a message names."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class _Fitted:
    """What was learned.

    Args:
        schema: the columns.
        model: of the rows.
        log_likelihood: the mean over rows that were kept apart, in nats; ``None`` if there were too few rows.
        rows: how many were learned from.
        library: ``"polars"``, ``"pandas"`` or ``"arrow"``: what tables are given back as.
        notes: what was done to columns.
    """

    schema: Schema
    model: RowModel
    log_likelihood: float | None
    rows: int
    library: str
    notes: tuple[str, ...]


class Synthesizer:
    """A model of the rows of a table, p(row) = Π_j p(x_j | x_<j), each factor restricted to what the rules leave.

    Every row that is drawn obeys the rules, exactly; none is rejected. Decimals, dates, labels and missing values are
    inside the guarantee: they are drawn as whole numbers of steps.

    Args:
        rules: the rules, or their text. Columns that they do not declare are learned as what they look like.

    Example:
        >>> table = {"low": [1, 2, 3, 4] * 10, "high": [2, 2, 5, 9] * 10}
        >>> model = Synthesizer("low: int[0, 9]; high: int[0, 9]; low <= high").fit(table, minutes=0)
        >>> made = model.sample(100, where="low >= 3", seed=1)
        >>> made.filter((pl.col("low") < 3) | (pl.col("low") > pl.col("high"))).height
        0
    """

    def __init__(self, rules: Rules | str) -> None:
        self.rules = rules if isinstance(rules, Rules) else Rules(rules)
        self.report: TableReport | None = None
        self._fitted: _Fitted | None = None

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        table: Any,
        *,
        minutes: float = MINUTES,
        seed: int = 0,
        violations: Violations = "drop",
        progress: Callable[[Progress], None] | None = None,
        recipes: tuple[Recipe, ...] | None = None,
    ) -> Synthesizer:
        """Learn the rows of a table.

        Args:
            table: as for :func:`multiplexnet.check`: a polars, pandas or Arrow table, a mapping, or the path of a file.
            minutes: how long to go on trying settings; the first one is trained in any case, if need be for one time
                through the table.
            seed: of everything that is drawn while learning.
            violations: what becomes of rows that break rules: ``"drop"`` leaves them out with a warning,
                ``"repair"`` moves them to the nearest values that obey, column by column, ``"error"`` refuses the
                table.
            progress: is called as it goes.
            recipes: settings to try; the one that gives rows kept apart the highest likelihood is taken.

        Raises:
            TableError: the table has no row that obeys, or lacks a column; or rows break rules and
                ``violations="error"``.
            CascadeBudgetExceeded: the rules tie too many columns together.
        """
        if violations not in ("drop", "repair", "error"):
            raise TableError(f"violations = {violations!r}: it is 'drop', 'repair' or 'error'")
        opened, frame = _frame(table)
        found = schema_of(self.rules.specification, opened, frame)
        self.report = check(self.rules, found.exact)
        obeys = found.readable & np.asarray(self.report.obeys)
        self._tell(obeys, violations)
        found = cut(found, obeys)
        allowed = _compiled(found.schema.specification)
        values = self._rows(found, obeys, allowed, violations)
        model, score = trained(
            values,
            allowed,
            seconds=60 * minutes,
            seed=seed,
            recipes=RECIPES if recipes is None else recipes,
            tell=progress,
        )
        for note in found.notes:
            warnings.warn(note, stacklevel=2)
        self._fitted = _Fitted(
            found.schema,
            model,
            score if np.isfinite(score) else None,
            len(values),
            _library(table),
            found.notes,
        )
        return self

    def _tell(self, obeys: Bools, violations: Violations) -> None:
        broken = int((~obeys).sum())
        if not broken:
            return
        assert self.report is not None
        worst = sorted(self.report.rules, key=lambda own: -own.violations)
        named = [
            f"`{own.rule.text}` by {own.violations:,}, first in row {own.first_row}"
            for own in worst[:SHOWN]
            if own.violations
        ]
        why = "; ".join(named) or "cells that are empty, cannot be read or lie outside their column"
        text = f"{broken:,} of {len(obeys):,} rows break rules ({why})"
        if violations == "error":
            raise TableError(f"{text}: mend them, or fit with violations='drop' or 'repair'")
        if not obeys.any():
            raise TableError(f"{text}: no row is left to learn from")
        done = "left out" if violations == "drop" else "moved to the nearest values that obey"
        warnings.warn(f"{text}: they are {done}", stacklevel=3)

    def _rows(self, found: Found, obeys: Bools, allowed: Allowed, violations: str) -> Whole:
        """The rows to learn from, columns in the order of computing."""
        order = [v.index for v in allowed.columns]
        wanted = found.readable if violations == "repair" else obeys
        values = found.values[wanted][:, order]
        if violations == "repair":
            mended: Whole = allowed.nearest(torch.from_numpy(values)).numpy()
            return mended
        reached: Bools = allowed.reached(torch.from_numpy(values)).numpy()
        lost = int((~reached).sum())
        if lost == len(values):
            raise TableError("no row can be drawn step by step under these rules: loosen them")
        if lost:
            warnings.warn(
                f"{lost:,} rows obey and cannot be drawn column by column: left out", stacklevel=3
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
        seed: int = 0,
    ) -> Any:
        """Rows that obey the rules, in the kind of table that was fitted.

        The same seed gives the same rows; row 5 of a thousand is row 5 of a million.

        Args:
            count: how many rows; with ``given`` as many as that has.
            where: a condition that all rows meet, as in ``'age >= 40 and sex == "F"'``. It is compiled as a further
                rule; rows are chosen among a few candidates so that other columns follow, too.
            given: a table of known columns, to be completed. Rows that cannot obey are left out with a warning.
            seed: of the rows.

        Raises:
            TableError: nothing can meet the condition.
        """
        frames = list(self.sampled_blocks(count, where=where, given=given, seed=seed))
        fitted = self._known()
        return _as(fitted.library, pl.concat(frames))

    def sampled_blocks(
        self,
        count: int | None = None,
        *,
        where: str | None = None,
        given: Any = None,
        seed: int = 0,
    ) -> Iterator[pl.DataFrame]:
        """As :meth:`sample`, a block of rows at a time, as polars tables: in the memory of one block."""
        fitted = self._known()
        if (count is None) == (given is None):
            raise TableError(
                "give either how many rows, as in sample(1000), or sample(given=table)"
            )
        if count is not None and count < 0:
            raise TableError(f"sample({count}): the number of rows is 0 or more")
        if where is None and given is None:
            return _free(fitted, count or 0, seed)
        known, rows = ({}, count or 0) if given is None else _known_columns(fitted, given)
        condition = _condition(fitted, where, tuple(known))
        if given is not None:
            known, rows = _possible(condition, known, rows)
        return _conditional(fitted, condition, known, rows, seed)

    def log_prob(self, table: Any) -> NDArray[np.float64]:
        """The log-probability of every row, in nats; −∞ for rows that break rules or hold values never seen.

        Raises:
            TableError: the table lacks a column.
        """
        fitted = self._known()
        _, frame = _frame(table)
        names = [field.name for field in fitted.schema.fields]
        _refuse_lacking(names, frame)
        columns, good = found_in(fitted.schema, frame, names)
        model = fitted.model
        values = np.stack([columns[v] for v in model.allowed.columns], -1)
        good &= model.allowed.reached(torch.from_numpy(values)).numpy()
        found = np.full(len(values), -np.inf)
        rows = np.flatnonzero(good)
        for part in np.array_split(rows, -(-len(rows) // CHUNK) or 1):
            if len(part):
                found[part] = _log_prob(model, values[part])
        return found

    @property
    def log_likelihood(self) -> float | None:
        """The mean log-probability of rows that were kept apart while learning, in nats."""
        return self._known().log_likelihood

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to a file: a zip of JSON and plain arrays."""
        fitted = self._known()
        further = {
            "log_likelihood": fitted.log_likelihood,
            "rows": fitted.rows,
            "library": fitted.library,
            "notes": list(fitted.notes),
        }
        storage.save(Path(path), fitted.schema, fitted.model, further)

    @classmethod
    def load(cls, path: str | Path) -> Synthesizer:
        """The model in a file. Reading it runs no code of the file, and needs no solver.

        Raises:
            RecordError: the file is damaged, or is no model.
        """
        schema, model, further = storage.load(Path(path))
        try:
            score = further["log_likelihood"]
            fitted = _Fitted(
                schema,
                model,
                None if score is None else float(score),
                int(further["rows"]),
                str(further["library"]),
                tuple(map(str, further["notes"])),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise RecordError(f"{path} is no model of tables ({error}); fit it again") from None
        made = cls(Rules.from_specification(schema.declared))
        made._fitted = fitted
        return made

    def _known(self) -> _Fitted:
        if self._fitted is None:
            raise TableError("nothing has been learned yet: call fit(table) first")
        return self._fitted


# --- tables -----------------------------------------------------------------------------------------------------------


def _frame(data: Any) -> tuple[Table, pl.DataFrame]:
    """All rows of a table, under the names of its columns."""
    tables = tables_of(data, [])
    first = tables[0]
    parts = []
    for table in tables:
        if table.names != first.names:
            raise TableError(f"{table.title} has other columns than {first.title}")
        parts += list(table.frames(range(len(table.names))))
    if not parts or not sum(part.height for part in parts):
        raise TableError(f"{first.title} has no rows: there is nothing to learn from")
    frame = pl.concat(parts, how="vertical_relaxed")
    frame.columns = list(first.names)
    return first, frame


def _library(table: Any) -> str:
    root = type(table).__module__.partition(".")[0]
    return {"pandas": "pandas", "pyarrow": "arrow"}.get(root, "polars")


def _as(library: str, frame: pl.DataFrame) -> Any:
    if library == "pandas":
        return frame.to_pandas()
    return frame.to_arrow() if library == "arrow" else frame


def _refuse_lacking(names: list[str], frame: pl.DataFrame) -> None:
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        raise TableError(f"the table has no column {', '.join(map(repr, lacking[:SHOWN]))}")


# --- what is left -----------------------------------------------------------------------------------------------------


def _compiled(specification: Specification, order: tuple[Variable, ...] | None = None) -> Allowed:
    return allowed_by(specification, order, deadline=Deadline(SECONDS))


def _condition(fitted: _Fitted, where: str | None, known: tuple[Variable, ...]) -> Condition:
    """Rules and condition, compiled with known columns first."""
    specification = fitted.schema.specification
    further = () if where is None else fitted.schema.further(where)
    columns = fitted.model.allowed.columns
    order = (*(v for v in columns if v in known), *(v for v in columns if v not in known))
    if not further and not known:
        return Condition(fitted.model.allowed)
    wanted = replace(specification, rules=(*specification.rules, *further))
    try:
        return Condition(_compiled(wanted, order), known)
    except CompileTimeout:
        raise
    except MultiplexError as error:
        if where is None:
            raise
        raise TableError(
            f"where = {where!r}: no row within the ranges of the table can meet it under the rules, or they cannot be "
            f"compiled together ({error})"
        ) from None


# --- rows -------------------------------------------------------------------------------------------------------------


def _free(fitted: _Fitted, count: int, seed: int) -> Iterator[pl.DataFrame]:
    if not count:
        yield _made(fitted, torch.zeros(0, len(fitted.model.tokens), dtype=torch.int64))
    for first, rows in blocks(count):
        yield _made(fitted, drawn(fitted.model, seed, first)[:rows])


def _conditional(
    fitted: _Fitted,
    condition: Condition,
    known: dict[Variable, Whole],
    count: int,
    seed: int,
) -> Iterator[pl.DataFrame]:
    size = BLOCK // CANDIDATES
    if not count:
        yield _made(fitted, torch.zeros(0, len(fitted.model.tokens), dtype=torch.int64))
    for first, rows in blocks(count, size):
        own = {v: _padded(values[first : first + rows], size) for v, values in known.items()}
        found = drawn_under(fitted.model, condition, own, seed, first)
        yield _made(fitted, found[:rows])


def _padded(values: Whole, size: int) -> torch.Tensor:
    """The values, the last of them repeated so that there are enough."""
    last = np.full(size - len(values), values[-1])
    return torch.from_numpy(np.concatenate([values, last]))


def _made(fitted: _Fitted, values: torch.Tensor) -> pl.DataFrame:
    columns = fitted.model.allowed.columns
    back = np.argsort([v.index for v in columns])
    return fitted.schema.frame(values.numpy()[:, back])


def _known_columns(fitted: _Fitted, given: Any) -> tuple[dict[Variable, Whole], int]:
    """The known columns of a table as whole numbers, without rows that hold something else."""
    _, frame = _frame(given)
    names = [field.name for field in fitted.schema.fields]
    unknown = [name for name in frame.columns if name not in names]
    if unknown:
        raise TableError(
            f"given: the model has no column {unknown[0]!r}; its columns: {', '.join(names)}"
        )
    columns, good = found_in(fitted.schema, frame, frame.columns)
    if not good.all():
        raise TableError(
            f"given: {_rows_text(~good)}: a cell is empty, cannot be read, or lies outside what its column had in "
            "the table that was learned"
        )
    return columns, frame.height


def _possible(
    condition: Condition, known: dict[Variable, Whole], count: int
) -> tuple[dict[Variable, Whole], int]:
    """The rows that can be completed; the others are named."""
    tensors = {v: torch.from_numpy(values) for v, values in known.items()}
    good = condition.possible(tensors, count).numpy()
    if not good.any():
        raise TableError("given: no row can be completed under the rules")
    if not good.all():
        warnings.warn(
            f"given: {_rows_text(~good)} cannot be completed under the rules: left out",
            stacklevel=4,
        )
    return {v: values[good] for v, values in known.items()}, int(good.sum())


def _rows_text(mask: Bools) -> str:
    rows = (np.flatnonzero(mask) + 1).tolist()
    listed = ", ".join(map(str, rows[:SHOWN]))
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"row{'s' if len(rows) > 1 else ''} {listed}{more}"


@torch.inference_mode()
def _log_prob(model: RowModel, values: Whole) -> NDArray[np.float64]:
    data = data_of(values, model.tokens, model.allowed)
    return model.log_prob(data).double().numpy()
