"""What was learned of a table, as it is kept in memory and in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import polars as pl
import torch

from multiplexnet.errors import RecordError
from multiplexnet.synthesis import storage
from multiplexnet.synthesis.columns.schema import Schema
from multiplexnet.synthesis.columns.tokens import Whole
from multiplexnet.synthesis.columns.types import pandas_types_from
from multiplexnet.synthesis.obeying import RowCheck
from multiplexnet.synthesis.training import RowModel

__all__ = ["LearnedModel", "one_thread"]

LIBRARIES = ("polars", "pandas", "arrow")


@dataclass(frozen=True)
class LearnedModel:
    """What was learned.

    Args:
        schema: the columns.
        model: of the rows.
        log_likelihood: the mean over rows kept apart, before they were learned from, in nats; ``None`` if there were
            too few rows.
        rows: how many were learned from.
        library: ``"polars"``, ``"pandas"`` or ``"arrow"``: what tables are given back as.
        notes: what was done to columns.
        pandas: types of columns that only pandas has.
        title: what messages call it: the path of the file that it was read from.
    """

    schema: Schema
    model: RowModel
    log_likelihood: float | None
    rows: int
    library: str
    notes: tuple[str, ...]
    pandas: Mapping[str, Any] = field(default_factory=dict)
    title: str = "the model"

    def frame(
        self, values: Whole, rows: Whole, passed: pl.DataFrame | None = None
    ) -> pl.DataFrame:
        """Rows that the model made as a table (:meth:`Schema.frame`), each of which was checked.

        Raises:
            RecordError: one breaks a rule.
        """
        self._check.refuse_outside(values)
        found = self.schema.frame(values, rows, passed)
        self._check.refuse_broken(found, values, rows)
        return found

    @cached_property
    def _check(self) -> RowCheck:
        return RowCheck(self.schema, self.title)

    def save(self, file: Path | IO[bytes]) -> None:
        """Write it: a zip of JSON and plain arrays."""
        further = {
            "log_likelihood": self.log_likelihood,
            "rows": self.rows,
            "library": self.library,
            "notes": list(self.notes),
            "pandas": dict(self.pandas),
        }
        storage.save(file, self.schema, self.model, further)

    def to_bytes(self) -> bytes:
        """As a file would hold it."""
        buffer = BytesIO()
        self.save(buffer)
        return buffer.getvalue()

    @staticmethod
    def load(file: IO[bytes], title: str) -> LearnedModel:
        """What was saved.

        Raises:
            RecordError: the file is damaged, or is not a model.
        """
        schema, model, further = storage.load(file, title)
        try:
            score = further["log_likelihood"]
            library = str(further["library"])
            if library not in LIBRARIES:
                raise ValueError(f"unknown kind of table {library[:60]!r}")
            found = LearnedModel(
                schema,
                model,
                None if score is None else float(score),
                int(further["rows"]),
                library,
                tuple(map(str, further["notes"])),
                pandas_types_from(further.get("pandas", {})),
                title,
            )
            _ = found._check.columns  # rules about columns that are not there
            return found
        except (
            AttributeError,
            LookupError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise RecordError(
                f"{title} is not a model of tables ({error}); fit it again"
            ) from None


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes in one thread meanwhile: how sums are rounded may depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
