r"""Rules for a generator of any kind: rows as columns of plain numbers, and any such numbers as rows that obey.

Column after column, the values that the rules leave are laid side by side on the unit interval, each as wide as its
share in the table (values that were never seen get a little, too):

    u = (weight of the values that are left below x  +  ½ · weight of x) / weight of all that are left,    z = Φ⁻¹(u).

The z of a table are about standard normal, whatever the rules say, and no rule binds them. Back, ``Φ(z)`` falls on
exactly one of the values that are left. So every z gives a row that obeys, and a row that was encoded comes back as it
was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from torch import Tensor

from multiplexnet.arguments import refuse_bad_seed, refuse_unknown
from multiplexnet.errors import StuckRowsError, TableError
from multiplexnet.language.formula import Bool, Category, Variable
from multiplexnet.language.missing import flag_name
from multiplexnet.synthesis.allowed import LeftIntervals
from multiplexnet.synthesis.columns.frames import frame_of, refuse_lacking
from multiplexnet.synthesis.columns.reading import cells_in
from multiplexnet.synthesis.columns.tokens import Tokens, Whole
from multiplexnet.synthesis.drawing.counters import uniforms
from multiplexnet.synthesis.learned import LearnedModel

__all__ = ["Encoder"]

UNSEEN = 1e-3
"""The share of the values of the range that are all alike: no value has nothing."""
ROWS = 1 << 15
"""Rows that are computed together."""
Labels = Literal["numbers", "keep"]


@dataclass(frozen=True)
class _Weights:
    """The weight of everything below a value of one column: a line with a knot at either end of every token.

    Args:
        knots: ``(K,)``, whole numbers, float64.
        sums: ``(K,)``, the weight below each.
    """

    knots: Tensor
    sums: Tensor

    @staticmethod
    def of(tokens: Tokens) -> _Weights:
        share = (tokens.counts + 0.5) / (tokens.counts + 0.5).sum()
        width = tokens.most - tokens.least + 1
        both = np.stack([tokens.lower, tokens.upper + 1])
        knots = np.unique(np.append(both, [tokens.least, tokens.most + 1]))
        ends = np.append(0.0, np.cumsum(share))
        place = np.searchsorted(tokens.upper + 1, knots)
        inside = np.clip(place, 0, len(tokens) - 1)
        begun = place < len(tokens)
        begun &= knots > tokens.lower[inside]
        seen = ends[place] + np.where(begun, share[inside], 0.0)
        sums = (1 - UNSEEN) * seen + UNSEEN * (knots - tokens.least) / width
        return _Weights(torch.from_numpy(knots).double(), torch.from_numpy(sums))

    def below(self, values: Tensor) -> Tensor:
        """The weight of everything below the values."""
        place = self._segment(self.knots, values)
        return self.sums[place] + (values - self.knots[place]) * self._slope(place)

    def value(self, weight: Tensor) -> Tensor:
        """The value that such a weight lies on, but for rounding."""
        place = self._segment(self.sums, weight)
        steps = torch.floor((weight - self.sums[place]) / self._slope(place))
        return self.knots[place] + steps

    def _segment(self, ends: Tensor, values: Tensor) -> Tensor:
        place = torch.searchsorted(ends, values.contiguous(), right=True) - 1
        return place.clamp(0, len(ends) - 2)

    def _slope(self, place: Tensor) -> Tensor:
        rise = self.sums[place + 1] - self.sums[place]
        return rise / (self.knots[place + 1] - self.knots[place])


class _Line:
    """What is left of one column in every row, laid side by side.

    Args:
        weights: of the column.
        left: what the rules leave.
        count: how many rows there are.
    """

    def __init__(self, weights: _Weights, left: LeftIntervals, count: int) -> None:
        counts = left.counts.expand(-1, count)
        lower = left.lower.expand(-1, count)
        lower, order = torch.where(counts > 0, lower, torch.inf).sort(0)
        self.counts = counts.gather(0, order)
        self.lower = torch.where(self.counts > 0, lower, 0.0)
        self.upper = self.lower + self.counts - 1
        self.weights = weights
        self.start = weights.below(self.lower)
        mass = weights.below(self.lower + self.counts) - self.start
        self.ends = torch.where(self.counts > 0, mass, 0.0).cumsum(0)
        self.begin = self.ends - torch.where(self.counts > 0, mass, 0.0)

    def encoded(self, values: Tensor, within: Tensor) -> Tensor:
        """Where values ``(B,)`` lie, between 0 and 1; ``within``: how far in their own part."""
        inside = (self.lower <= values) & (values <= self.upper)
        own = inside.to(torch.int8).argmax(0, keepdim=True)
        start = self.weights.below(values)
        size = self.weights.below(values + 1) - start
        before = (self.begin - self.start).gather(0, own).squeeze(0)
        return (before + start + within * size) / self.ends[-1]

    def decoded(self, places: Tensor) -> Tensor:
        """The values at places ``(B,)`` between 0 and 1."""
        target = places * self.ends[-1]
        last = (self.ends < self.ends[-1]).sum(0)
        own = torch.minimum((self.ends <= target).sum(0), last).unsqueeze(0)
        target = target + (self.start - self.begin).gather(0, own).squeeze(0)
        value = self.weights.value(target)
        for _ in range(2):  # rounding may have gone one step too far
            value = value - (self.weights.below(value) > target).double()
            value = value + (self.weights.below(value + 1) <= target).double()
        low = self.lower.gather(0, own).squeeze(0)
        high = self.upper.gather(0, own).squeeze(0)
        return torch.minimum(torch.maximum(value, low), high)


@dataclass(frozen=True)
class _Codes:
    """A column to be decoded: numbers, or the places of labels that stand as themselves."""

    numbers: Tensor
    is_kept: bool


class Encoder:
    """Rows of a table as numbers that no rule binds, and back.

    Args:
        learned: the columns of the table, and what the rules leave. The network is not used.

    Raises:
        StuckRowsError: rows may get stuck on the way, so that some numbers would stand for none.

    Example:
        >>> from multiplexnet.synthesis.synthesizer import Synthesizer
        >>> table = pl.DataFrame({"low": [1, 2, 3, 4] * 10, "high": [2, 2, 5, 9] * 10})
        >>> model = Synthesizer("low: int[0, 9]; high: int[0, 9]; low <= high").fit(table, minutes=0)
        >>> codes = model.encoder.encode(table)
        >>> model.encoder.decode(codes).equals(table)
        True
        >>> made = model.encoder.decode({"low": [-3.0, 0.0, 8.0], "high": [-9.0, 0.0, 9.0]})
        >>> (made["low"] <= made["high"]).all()
        True
    """

    def __init__(self, learned: LearnedModel) -> None:
        if learned.model.allowed.outer:
            raise StuckRowsError(
                "encoder: the rules of this model tie columns too densely to be projected, so that rows may get stuck "
                "on the way, and some numbers would stand for no row. Drop or split rules over many columns"
            )
        self._learned = learned
        self._schema = learned.schema
        self._allowed = learned.model.allowed
        self._weights = [_Weights.of(tokens) for tokens in learned.model.tokens]
        self._tokens = learned.model.tokens
        names = {}
        for field in learned.schema.fields:
            names[field.variable] = field.name
            if field.flag is not None:
                names[field.flag] = flag_name(field.name)
        self._names = names

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the encoded columns: those of the table, and of the flags of what may be missing."""
        own = self._schema.specification.variables
        return tuple(self._names[v] for v in own)

    def encode(
        self,
        table: Any,
        *,
        labels: Labels = "numbers",
        seed: int | None = None,
    ) -> pl.DataFrame:
        """Rows that obey as columns of numbers, about standard normal.

        Args:
            table: with all columns that were learned, of any kind that ``fit`` takes.
            labels: ``"keep"`` leaves labels and truth values as they are, for generators that know such columns.
            seed: spreads equal values over the whole of their part, instead of all in its middle: for generators of
                densities.

        Raises:
            TableError: a row breaks the rules, or has a value that its column did not have; a column is not there.
        """
        refuse_unknown("labels", labels, get_args(Labels))
        if seed is not None:
            refuse_bad_seed(seed)
            seed = int(seed)
        _, frame = frame_of(table)
        refuse_lacking([field.name for field in self._schema.fields], frame)
        cells = cells_in(self._schema, frame)
        values = np.stack([cells.steps[v] for v in self._allowed.columns], -1)
        good = cells.good
        good &= self._allowed.reached(torch.from_numpy(values)).numpy()
        if not good.all():
            rows = np.flatnonzero(~good) + 1
            raise TableError(
                f"row {rows[0]} breaks the rules, or holds what its column did not have "
                f"in the table that was learned ({len(rows):,} such rows): drop or repair them first"
            )
        parts = [
            self._encoded(values[first : first + ROWS], first, seed)
            for first in range(0, len(values), ROWS)
        ]
        codes = np.concatenate(parts or [np.zeros((0, len(self._weights)))])
        return self._frame(codes, values, labels)

    def _encoded(self, values: Whole, first: int, seed: int | None) -> Any:
        whole = torch.from_numpy(values).double()
        count = len(values)
        within = torch.full((len(self._weights), count), 0.5, dtype=torch.float64)
        if seed is not None:
            within = uniforms(seed, first, count, len(self._weights))
        rows = self._allowed.rows(count)
        found = []
        for j, column in enumerate(self._allowed.columns):
            line = _Line(self._weights[j], rows.left(column), count)
            places = line.encoded(whole[:, j], within[j])
            found.append(torch.special.ndtri(places))
            rows.take(column, whole[:, j].contiguous())
        return torch.stack(found, -1).numpy()

    def _frame(self, codes: Any, values: Whole, labels: Labels) -> pl.DataFrame:
        place = {column: j for j, column in enumerate(self._allowed.columns)}
        found = {}
        for column in self._schema.specification.variables:
            j = place[column]
            own = pl.Series(codes[:, j])
            if labels == "keep" and isinstance(column.domain, Category):
                names = pl.Series(column.domain.labels, dtype=pl.String)
                own = names.gather(values[:, j])
            elif labels == "keep" and isinstance(column.domain, Bool):
                own = pl.Series(values[:, j] != 0)
            found[self._names[column]] = own
        return pl.DataFrame(found)

    def decode(self, codes: Any) -> pl.DataFrame:
        """Any numbers as rows that obey.

        Args:
            codes: a table with the encoded columns, or an array of them in their order, numbers of any size; labels
                and truth values may stand as themselves: where the rules do not leave one, the most frequent that
                they leave takes its place.

        Raises:
            TableError: a column is not there, or holds something else.
            RecordError: the model was read from a file, and what it leaves breaks the rules in the file.
        """
        _, frame = frame_of(codes, self.columns)
        own = {column: self._codes(frame, column) for column in self._allowed.columns}
        parts = []
        for first in range(0, frame.height, ROWS):
            part = slice(first, first + ROWS)
            some = {v: replace(all_, numbers=all_.numbers[part]) for v, all_ in own.items()}  # fmt: skip
            parts.append(self._decoded(some, min(ROWS, frame.height - first)))
        width = len(self._weights)
        values = np.concatenate(parts or [np.zeros((0, width), np.int64)])
        back = np.argsort([v.index for v in self._allowed.columns])
        return self._learned.frame(values[:, back], np.arange(len(values)))

    def _codes(self, frame: pl.DataFrame, column: Variable) -> _Codes:
        """The numbers of one column, or the places of its labels."""
        name = self._names[column]
        if name not in frame.columns:
            raise TableError(
                f"codes: there is no column {name!r}; expected are {', '.join(self.columns)}"
            )
        cells = frame[name]
        is_text = cells.dtype in (pl.String, pl.Categorical, pl.Enum)
        if isinstance(column.domain, Category) and is_text:
            place = {label: k for k, label in enumerate(column.domain.labels)}
            labels = cells.cast(pl.String)
            cells = labels.replace_strict(place, default=None, return_dtype=pl.Float64)
        elif cells.dtype != pl.Boolean and not cells.dtype.is_numeric():
            raise TableError(f"codes: column {name!r} holds {cells.dtype}, not numbers")
        numbers = cells.cast(pl.Float64).fill_null(np.nan).to_numpy()
        if np.isnan(numbers).any():
            row = int(np.flatnonzero(np.isnan(numbers))[0]) + 1
            raise TableError(
                f"codes: row {row}, column {name!r}: no number, and no label of the table"
            )
        is_kept = is_text or cells.dtype == pl.Boolean
        return _Codes(torch.from_numpy(numbers.copy()), is_kept)

    def _decoded(self, codes: Mapping[Variable, _Codes], count: int) -> Whole:
        rows = self._allowed.rows(count)
        found = []
        for j, column in enumerate(self._allowed.columns):
            left = rows.left(column)
            own = codes[column].numbers
            if codes[column].is_kept:
                other = self._frequent(j, left, count)
                values = torch.where(left.contain(own), own, other)
            else:
                line = _Line(self._weights[j], left, count)
                places = torch.special.ndtr(own)
                values = line.decoded(places.clamp(max=1 - 2.0**-53))
            rows.take(column, values)
            found.append(values.long())
        return np.asarray(torch.stack(found, -1).numpy())

    def _frequent(self, j: int, left: LeftIntervals, count: int) -> Tensor:
        """The most frequent token of column j that is left in each row, by its first value."""
        tokens = self._tokens[j]
        lower = torch.from_numpy(tokens.lower).double()
        counts = torch.from_numpy(tokens.counts + 0.5).double()
        allowed = left.overlaps(lower, lower).sum(0).expand(count, -1) > 0
        best = torch.where(allowed, counts, 0.0).argmax(-1)
        return lower[best]
