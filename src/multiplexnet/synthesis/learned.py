"""What was learned of a table, as it is kept in memory and in files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import torch

from multiplexnet.errors import RecordError
from multiplexnet.synthesis import storage
from multiplexnet.synthesis.columns.schema import Schema
from multiplexnet.synthesis.columns.types import pandas_types_from
from multiplexnet.synthesis.training import RowModel

__all__ = ["LearnedModel", "one_thread"]

LIBRARIES = ("polars", "pandas", "arrow")


@dataclass(frozen=True)
class LearnedModel:
    """What was learned.

    Args:
        schema: the columns.
        model: of the rows.
        log_likelihood: the mean over rows that were kept apart, in nats; ``None`` if there were too few rows.
        rows: how many were learned from.
        library: ``"polars"``, ``"pandas"`` or ``"arrow"``: what tables are given back as.
        notes: what was done to columns.
        pandas: types of columns that only pandas has.
    """

    schema: Schema
    model: RowModel
    log_likelihood: float | None
    rows: int
    library: str
    notes: tuple[str, ...]
    pandas: Mapping[str, Any] = field(default_factory=dict)

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
            return LearnedModel(
                schema,
                model,
                None if score is None else float(score),
                int(further["rows"]),
                library,
                tuple(map(str, further["notes"])),
                pandas_types_from(further.get("pandas", {})),
            )
        except (LookupError, TypeError, ValueError, OverflowError) as error:
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
