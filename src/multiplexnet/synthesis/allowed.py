r"""What the rules leave of each column, given the columns before it.

The columns are computed in one order. Each part of the rules is a cascade that follows this order, so that the
values that a column may take are a few intervals whose ends are exact. Columns that no rule mentions may be anything
in their range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Budget, Cascade, Step
from multiplexnet.compiler.cascade.structure import (
    cascade_of_part,
    is_false,
    rule_parts,
)
from multiplexnet.errors import GridError
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import Specification, Variable, ends, variables
from multiplexnet.transforms.cascade.walk import Option, Walk

__all__ = ["AllowedRows", "LeftIntervals", "RowBatch", "allowed_by"]


@dataclass(frozen=True)
class LeftIntervals:
    """The values that are left of one column in every row of a batch: whole numbers in intervals that are disjoint.

    Args:
        lower: ``(O, B)``; or ``(O, 1)``, where all rows have the same ends.
        upper: the same shape; below ``lower`` where an interval is empty.
        possible: ``(O, B)``, false where an interval is left out; ``None``: none is.
    """

    lower: Tensor
    upper: Tensor
    possible: Tensor | None = None

    @property
    def counts(self) -> Tensor:
        """How many whole numbers each interval has, ``(O, B)``."""
        found = (self.upper - self.lower + 1).clamp(min=0)
        if self.possible is None:
            return found
        return torch.where(self.possible, found, 0.0)

    @property
    def only(self) -> Tensor | None:
        """The values ``(B,)`` if exactly one is left in every row, else ``None``."""
        counts = self.counts
        if bool((counts.sum(0) != 1).any()):
            return None
        chosen = counts.argmax(0, keepdim=True)
        return self.lower.expand_as(counts).gather(0, chosen).squeeze(0)

    def at(self, rows: Tensor) -> LeftIntervals:
        """Of some rows."""
        if self.lower.shape[1] == 1 and self.possible is None:
            return self
        ends = (self.lower, self.upper)
        if self.lower.shape[1] > 1:
            ends = (self.lower[:, rows], self.upper[:, rows])
        return LeftIntervals(
            *ends, None if self.possible is None else self.possible[:, rows]
        )

    def overlaps(self, lower: Tensor, upper: Tensor) -> Tensor:
        """How many whole numbers of the intervals ``(T,)`` from ``lower`` to ``upper`` are left: ``(O, B, T)``."""
        top = torch.minimum(self.upper.unsqueeze(-1), upper)
        bottom = torch.maximum(self.lower.unsqueeze(-1), lower)
        found = (top - bottom + 1).clamp(min=0)
        if self.possible is None:
            return found
        return torch.where(self.possible.unsqueeze(-1), found, 0.0)

    def contain(self, values: Tensor) -> Tensor:
        """Where values ``(B,)`` are among those that are left."""
        inside = (self.lower <= values) & (values <= self.upper)
        if self.possible is not None:
            inside = inside & self.possible
        return inside.any(0)

    def nearest(self, values: Tensor) -> Tensor:
        """What is left that lies nearest to values ``(B,)``."""
        moved = torch.minimum(torch.maximum(values, self.lower), self.upper)
        apart = torch.where(self.counts > 0, (moved - values).abs(), torch.inf)
        return moved.gather(0, apart.argmin(0, keepdim=True)).squeeze(0)


@dataclass(frozen=True)
class AllowedRows:
    """The cascades of all rules over the columns of a table.

    Args:
        columns: in the order of computing.
        cascades: of the parts that have rules.
    """

    columns: tuple[Variable, ...]
    cascades: tuple[Cascade, ...]

    def is_bound(self, column: Variable) -> bool:
        """Whether a rule mentions the column."""
        return column in self._bound

    @cached_property
    def _bound(self) -> frozenset[Variable]:
        return frozenset(v for cascade in self.cascades for v in cascade.visible)

    @cached_property
    def places(self) -> dict[Variable, tuple[int, int]]:
        """The cascade of each bound column, and its step there."""
        return {
            cascade.outputs[step.variable]: (c, s)
            for c, cascade in enumerate(self.cascades)
            for s, step in enumerate(cascade.steps)
        }

    def reached(self, values: Tensor) -> Tensor:
        """Which rows ``(N, D)`` of whole numbers, columns in the order of computing, can be drawn."""
        rows = self.rows(len(values))
        found = torch.ones(len(values), dtype=torch.bool)
        for j, column in enumerate(self.columns):
            own = values[:, j].double()
            found &= rows.left(column).contain(own)
            rows.take(column, own)
        return found

    def nearest(self, values: Tensor) -> Tensor:
        """Rows that obey, column after column as near to the given ones ``(N, D)`` as what is left allows."""
        rows = self.rows(len(values))
        found = []
        for j, column in enumerate(self.columns):
            own = rows.left(column).nearest(values[:, j].double())
            rows.take(column, own)
            found.append(own.long())
        return torch.stack(found, -1)

    def rows(self, count: int) -> RowBatch:
        """A batch of so many rows, in which no column has a value yet."""
        return RowBatch(self, count)


def allowed_by(
    specification: Specification,
    order: Sequence[Variable] | None = None,
    *,
    budget: Budget | None = None,
    deadline: Deadline = NEVER,
) -> AllowedRows:
    """What the rules leave of every output of a specification, all of them discrete.

    Args:
        specification: columns as outputs, and the rules.
        order: the order of the columns; found by itself if not given.
        budget: what the projections may cost.
        deadline: when it has to be done.

    Raises:
        CascadeBudgetExceeded: the projections grow too large; names the column where they do.
        GridError: nothing obeys.
    """
    if is_false(specification):
        raise GridError("no row obeys the rules: change one", is_empty=True)
    form = FORMATS["float64"]
    cascades = []
    for part in rule_parts(specification):
        if (
            len(part.outputs) == 1
            and not part.hidden
            and _is_free(specification, part.outputs[0])
        ):
            continue
        cascades.append(
            cascade_of_part(
                part,
                (),
                form,
                order=order,
                budget=budget,
                deadline=deadline,
                multiples=False,
            )
        )
    found = order if order is not None else _order(specification, cascades)
    return AllowedRows(tuple(found), tuple(cascades))


def _is_free(specification: Specification, column: Variable) -> bool:
    return not any(
        column in set(variables(rule.formula)) for rule in specification.rules
    )


def _order(specification: Specification, cascades: Sequence[Cascade]) -> list[Variable]:
    """Columns as they stand in the table, those of a cascade in its order, from the place of its first one on."""
    own = {v: cascade for cascade in cascades for v in cascade.visible}
    found: dict[Variable, None] = {}
    for column in specification.outputs:
        if column not in own:
            found[column] = None
            continue
        cascade = own[column]
        found.update(dict.fromkeys(v for v in cascade.order if v in cascade.visible))
    return list(found)


class RowBatch:
    """A batch on its way: what is left of the next column, then its value, and so on."""

    def __init__(self, allowed: AllowedRows, count: int) -> None:
        like = torch.zeros(count, dtype=torch.float64)
        self._allowed = allowed
        self._walks = [Walk(cascade, (), like) for cascade in allowed.cascades]
        self._done = [0] * len(allowed.cascades)

    @property
    def _place(self) -> Mapping[Variable, tuple[int, int]]:
        return self._allowed.places

    @property
    def _cascades(self) -> tuple[Cascade, ...]:
        return self._allowed.cascades

    def at(self, rows: Tensor) -> RowBatch:
        """Some of the rows, as far as they have come."""
        found = RowBatch(self._allowed, len(rows))
        for old, new in zip(self._walks, found._walks, strict=True):
            new.values.update({v: own[rows] for v, own in old.values.items()})
        found._done = list(self._done)
        return found

    def left(self, column: Variable) -> LeftIntervals:
        """What is left of a column; the columns before it have their values."""
        if column not in self._place:
            low, high = ends(column.domain)
            assert low is not None
            assert high is not None
            whole = torch.tensor([[float(low)], [float(high)]], dtype=torch.float64)
            return LeftIntervals(whole[:1], whole[1:])
        c, s = self._place[column]
        self._catch_up(c, s)
        options = self._walks[c].options(self._cascades[c].steps[s])
        return _intervals(self._walks[c], options)

    def take(self, column: Variable, values: Tensor) -> None:
        """The column has these whole numbers, ``(B,)``."""
        if column in self._place:
            c, s = self._place[column]
            self._catch_up(c, s)
            self._walks[c].take(self._cascades[c].steps[s], values)
            self._done[c] = s + 1

    def _catch_up(self, c: int, s: int) -> None:
        """Hidden outputs before step s get the one value that is left for them."""
        for step in self._cascades[c].steps[self._done[c] : s]:
            self._take_hidden(c, step)
        self._done[c] = s

    def _take_hidden(self, c: int, step: Step) -> None:
        walk = self._walks[c]
        (option,) = walk.options(step)
        walk.take(step, walk.full(option.lower))


def _intervals(walk: Walk, options: Sequence[Option]) -> LeftIntervals:
    possible = None
    if any(option.possible is not None for option in options):
        everywhere = walk.full(1.0) > 0
        own = [everywhere if o.possible is None else o.possible for o in options]
        possible = torch.stack(own)
    ends = [number for o in options for number in (o.lower, o.upper)]
    if any(isinstance(number, Tensor) for number in ends):
        lower = torch.stack([walk.full(option.lower) for option in options])
        upper = torch.stack([walk.full(option.upper) for option in options])
    else:
        both = torch.tensor(ends, dtype=torch.float64).reshape(-1, 2, 1)
        lower = both[:, 0].contiguous()
        upper = both[:, 1].contiguous()
    return LeftIntervals(lower, upper, possible)
