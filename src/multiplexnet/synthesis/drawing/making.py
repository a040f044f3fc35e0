"""Tables to order: what is asked of a model, and who makes it, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import torch

from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CompileTimeout,
    GridError,
    MultiplexError,
    StuckRowsError,
    TableError,
)
from multiplexnet.language.formula import variables
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.drawing.batches import RowBlock, blocks, drawn
from multiplexnet.synthesis.drawing.conditions import (
    CONDITIONED,
    Condition,
    ConditionalRows,
    drawn_under,
)
from multiplexnet.synthesis.drawing.given import (
    Impossible,
    KnownCells,
    condition_of,
    had,
    impossible,
)
from multiplexnet.synthesis.learned import LearnedModel, one_thread
from multiplexnet.verdicts.columns import Column
from multiplexnet.verdicts.evaluation import Bools, ExactRows, truth

__all__ = ["MadeRows", "Maker", "SampleRequest"]

SHOWN = 5
"""Columns that a message names."""


@dataclass(frozen=True)
class SampleRequest:
    """What is asked of a model.

    Args:
        count: how many rows.
        seed: of the rows.
        where: a condition that all rows meet.
        given: known cells of the rows.
    """

    count: int
    seed: int
    where: str | None = None
    given: KnownCells | None = None

    def blocks(self) -> Iterator[RowBlock]:
        """What is made together."""
        is_free = self.where is None and self.given is None
        return blocks(self.count) if is_free else blocks(self.count, CONDITIONED)


@dataclass(frozen=True)
class MadeRows:
    """Rows that were made.

    Args:
        frame: the rows.
        exact: how many of them are drawn exactly from the distribution that was asked for.
        effective: the others added up, each by how many equally good candidates theirs were worth.
        unfound: the numbers of given rows, from 1 on, of which no completion was found.
    """

    frame: pl.DataFrame
    exact: int
    effective: float
    unfound: tuple[int, ...] = ()

    @staticmethod
    def together(parts: Sequence[MadeRows]) -> MadeRows:
        """One after another."""
        return MadeRows(
            pl.concat([part.frame for part in parts]),
            sum(part.exact for part in parts),
            sum(part.effective for part in parts),
            tuple(number for part in parts for number in part.unfound),
        )


class Maker:
    """Makes rows with a model, under a condition or not.

    Args:
        learned: the model.
        seed: of the rows.
        where: a condition that all rows meet.

    Raises:
        TableError: nothing can meet the condition.
    """

    def __init__(self, learned: LearnedModel, seed: int, where: str | None) -> None:
        self.learned = learned
        self.seed = seed
        self.where = where
        columns = learned.model.allowed.columns
        self._back = np.argsort([v.index for v in columns])
        self._further = () if where is None else learned.schema.further(where)
        self._conditions: dict[tuple[int, ...], Condition] = {}
        if where is not None:
            self._condition(())

    def _condition(self, pattern: tuple[int, ...]) -> Condition:
        """What is left where these columns are known."""
        if pattern not in self._conditions:
            self._conditions[pattern] = self._compiled(pattern)
        return self._conditions[pattern]

    def _compiled(self, pattern: tuple[int, ...]) -> Condition:
        model = self.learned.model
        specification = self.learned.schema.specification
        if not pattern and not self._further:
            return Condition(model.allowed)
        known = [specification.variables[i] for i in pattern]
        try:
            return condition_of(
                specification,
                model.allowed.columns,
                self._further,
                known,
                model.allowed.dense,
            )
        except CompileTimeout:
            raise
        except CascadeBudgetExceeded as error:
            raise TableError(self._too_dense(error)) from None
        except MultiplexError as error:
            if self.where is None:
                raise
            nothing = (
                "no row within the ranges of the table can meet it under the rules"
            )
            told = f"{nothing}, or they cannot be compiled together ({error})"
            if isinstance(error, GridError) and error.is_empty:
                told = f"{nothing} ({self._had()})"
            raise TableError(f"where = {self.where!r}: {told}") from None

    def _too_dense(self, error: CascadeBudgetExceeded) -> str:
        """What to do where the rules are fine, and what is asked beside them is not."""
        found = str(error).partition(". ")[0]
        asked = "given" if self.where is None else f"where = {self.where!r}"
        return (
            f"{asked}: rows may obey, but are made one column after another, and what is left of one column cannot be "
            f"written down: {found}. Ask for a part of it (for one side of an `or`, say, or with fewer columns known), "
            "and leave out of the rows that are made those that do not meet the rest"
        )

    def _had(self) -> str:
        """What the columns of the condition had in the table."""
        asked = {v for rule in self._further for v in variables(rule.formula)}
        fields = [f for f in self.learned.schema.fields if f.variable in asked]
        return "; ".join(f"{field.name}: {had(field)}" for field in fields)

    def possible(self, given: KnownCells) -> tuple[KnownCells, list[Impossible]]:
        """The given rows that can be completed, and why the others cannot."""
        specification = self.learned.schema.specification
        good = np.ones(len(given), dtype=np.bool_)
        for pattern, rows in given.parts():
            values = given.tensors(pattern, rows, specification.variables)
            possible = self._condition(pattern).possible(values, len(rows))
            good[rows] = possible.numpy()
        if good.all():
            return given, []
        columns = self.learned.model.allowed.columns
        reasons = impossible(specification, columns, self._further, given, ~good)
        return given.at(good), reasons

    def nothing(self) -> MadeRows:
        """No rows at all, in the right columns."""
        values = np.zeros((0, len(self._back)), np.int64)
        return self._made(values, np.arange(0))

    def made(self, block: RowBlock) -> MadeRows:
        """The rows of a block."""
        numbers = torch.arange(block.first, block.first + block.size)
        model = self.learned.model
        first = slice(block.wanted)
        with one_thread():
            if self.where is None and not model.allowed.outer:
                values = drawn(model, self.seed, block)
                return self._made(values[first].numpy(), numbers[first].numpy())
            found = drawn_under(model, self._condition(()), {}, self.seed, numbers)
        if not found.ended.all():
            raise self._stuck(found)
        made = self._made(found.values[first].numpy(), numbers[first].numpy())
        return _counted(made, found.exact[first], found.effective[first])

    def completed(self, given: KnownCells) -> MadeRows:
        """Rows of which some cells are known."""
        own = self.learned.schema.specification.variables
        values = torch.zeros(len(given), len(own), dtype=torch.int64)
        exact = torch.zeros(len(given), dtype=torch.bool)
        effective = torch.zeros(len(given), dtype=torch.float64)
        ended = torch.zeros(len(given), dtype=torch.bool)
        for pattern, rows in given.parts():
            with one_thread():
                found = drawn_under(
                    self.learned.model,
                    self._condition(pattern),
                    given.tensors(pattern, rows, own),
                    self.seed,
                    torch.from_numpy(given.numbers[rows]),
                )
            values[rows] = found.values
            exact[rows] = found.exact
            effective[rows] = found.effective
            ended[rows] = found.ended
        good = ended.numpy()
        kept = given if good.all() else given.at(good)
        made = self._made(values.numpy()[good], kept.numbers, kept.passed)
        unfound = tuple(int(number) + 1 for number in given.numbers[~good])
        counted = _counted(made, exact[ended], effective[ended])
        return replace(counted, unfound=unfound)

    def _stuck(self, found: ConditionalRows) -> StuckRowsError:
        """What is told where no try of a row ended."""
        often = sorted(found.stuck.items(), key=lambda pair: -pair[1])
        names = {f.variable: f.name for f in self.learned.schema.fields}
        columns = [names.get(v, v.name) for v, _ in often[:SHOWN]]
        lost = int((~found.ended).sum())
        where = "" if self.where is None else f"where = {self.where!r}: "
        return StuckRowsError(
            f"{where}for {lost:,} of {len(found.ended):,} rows no try ended, although {found.tries:,} were made: in "
            f"most of them nothing was left of {', '.join(columns)}. The rules are too dense to be projected; "
            "drop or split rules over these columns, or fit with more rows and minutes, so that fewer tries get stuck"
        )

    def _made(
        self, values: Whole, rows: Whole, passed: pl.DataFrame | None = None
    ) -> MadeRows:
        """Rows in the order of computing as a table; columns that are not learned are numbered or passed on."""
        own = values[:, self._back]
        if not self._meets(own).all():
            raise TableError(
                f"where = {self.where!r}: rows were drawn that do not meet it, and none is handed out: "
                "please report this as an error of the library"
            )
        frame = self.learned.frame(own, rows, passed)
        return MadeRows(frame, frame.height, 0.0)

    def _meets(self, values: Whole) -> Bools:
        """Which rows of whole numbers ``(N, D)`` meet the condition, decided exactly."""
        own = self.learned.schema.specification.variables
        columns = {v: Column.integers(values[:, v.index]) for v in own}
        read = ExactRows(columns, length=len(values))
        met = np.ones(len(values), dtype=np.bool_)
        for rule in self._further:
            met &= truth(rule.formula, read)
        return met


def _counted(made: MadeRows, exact: torch.Tensor, effective: torch.Tensor) -> MadeRows:
    others = effective[~exact]
    return MadeRows(made.frame, int(exact.sum()), float(others.sum()))
