r"""What the rules leave of each column, given the columns before it.

The columns are computed in one order. Each part of the rules is a cascade that follows this order, so that the
values that a column may take are a few intervals whose ends are exact. Columns that no rule mentions may be anything
in their range.

Where rules tie columns together so densely that their projections cannot be written down, these are cut short
(:mod:`~multiplexnet.compiler.cascade.projection.outer`). Such an *outer* cascade loses no row, and every row that it
ends obeys; but nothing may be left of a column, and then the row is *stuck*. A stuck row goes on with anything, so that
the others of its batch do, and is thrown away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Budget, Cascade, Step
from multiplexnet.compiler.cascade.structure import (
    RulePart,
    cascade_of_part,
    is_false,
    rule_parts,
)
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CompileTimeout,
    GridError,
    MultiplexError,
)
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import (
    Category,
    Real,
    Specification,
    Variable,
    count_of,
    ends,
    variables,
)
from multiplexnet.transforms.cascade.walk import Option, Walk

__all__ = ["AllowedRows", "LeftIntervals", "RowBatch", "allowed_by"]

FEW_LABELS = 10
"""Labels that a column may have to be learned after all others."""


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
    def nothing(self) -> Tensor:
        """Where no value is left, ``(B,)``, or ``(1,)`` if all rows have the same ends."""
        return self.counts.sum(0) == 0

    def within(self, other: LeftIntervals) -> LeftIntervals:
        """What both leave."""
        lower = torch.maximum(self.lower.unsqueeze(1), other.lower).flatten(0, 1)
        upper = torch.minimum(self.upper.unsqueeze(1), other.upper).flatten(0, 1)
        possible = None
        if self.possible is not None:
            own = self.possible.unsqueeze(1).expand(-1, len(other.lower), -1)
            possible = own.flatten(0, 1)
        if other.possible is not None:
            own = other.possible.unsqueeze(0).expand(len(self.lower), -1, -1)
            own = own.flatten(0, 1)
            possible = own if possible is None else possible & own
        return LeftIntervals(lower, upper, possible)._without_most_empty(
            len(self.lower) + len(other.lower) - 1
        )

    def _without_most_empty(self, most: int) -> LeftIntervals:
        """The same in so many intervals, where no more of them hold anything."""
        if len(self.lower) <= most:
            return self
        counts = self.counts
        first = torch.where(counts > 0, self.lower, torch.inf).argsort(0)[:most]
        lower = self.lower.expand_as(counts).gather(0, first)
        upper = self.upper.expand_as(counts).gather(0, first)
        if self.possible is None:
            return LeftIntervals(lower, upper)
        return LeftIntervals(lower, upper, self.possible.gather(0, first))

    def or_all(self, rows: Tensor, low: float, high: float) -> LeftIntervals:
        """With everything from ``low`` to ``high`` in some rows, ``(B,)`` truth values."""
        shape = (len(self.lower), len(rows))
        lower = self.lower.expand(shape).clone()
        upper = self.upper.expand(shape).clone()
        possible = lower <= upper
        if self.possible is not None:
            possible = possible & self.possible
        lower[0, rows] = low
        upper[0, rows] = high
        possible[0, rows] = True
        possible[1:, rows] = False
        return LeftIntervals(lower, upper, possible)

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
        outer: which of them are outer ones, in which rows may get stuck.
    """

    columns: tuple[Variable, ...]
    cascades: tuple[Cascade, ...]
    outer: frozenset[int] = frozenset()

    @property
    def dense(self) -> frozenset[Variable]:
        """The columns of outer cascades."""
        return frozenset(v for c in self.outer for v in self.cascades[c].visible)

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
        return found & ~rows.end()

    def nearest(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Rows that obey, column after column as near to the given ones ``(N, D)`` as what is left allows; and which
        of them got stuck and are none.
        """
        rows = self.rows(len(values))
        found = []
        for j, column in enumerate(self.columns):
            own = rows.left(column).nearest(values[:, j].double())
            rows.take(column, own)
            found.append(own.long())
        return torch.stack(found, -1), rows.end()

    def rows(self, count: int) -> RowBatch:
        """A batch of so many rows, in which no column has a value yet."""
        return RowBatch(self, count)


def allowed_by(
    specification: Specification,
    order: Sequence[Variable] | None = None,
    *,
    budget: Budget | None = None,
    deadline: Deadline = NEVER,
    dense: Collection[Variable] = (),
    may_be_outer: bool = False,
) -> AllowedRows:
    """What the rules leave of every output of a specification, all of them discrete.

    Args:
        specification: columns as outputs, and the rules.
        order: the order of the columns; found by itself if not given.
        budget: what the projections may cost.
        deadline: when it has to be done; outer cascades take no more than seconds.
        dense: columns whose rules become outer cascades at once.
        may_be_outer: whether rules become outer cascades where there are no others.

    Raises:
        CascadeBudgetExceeded: the projections grow too large; names the column where they do.
        GridError: nothing obeys.
    """
    if is_false(specification):
        raise GridError("no row obeys the rules: change one", is_empty=True)
    made = _Compiling(order, budget, deadline, may_be_outer)
    for part in rule_parts(specification):
        is_alone = len(part.outputs) == 1 and not part.hidden
        if is_alone and _is_free(specification, part.outputs[0]):
            continue
        made.add(part, is_dense=not set(dense).isdisjoint(part.outputs))
    found = order if order is not None else _order(specification, made.cascades)
    return AllowedRows(tuple(found), tuple(made.cascades), frozenset(made.outer))


@dataclass
class _Compiling:
    """Cascades of one part after another."""

    order: Sequence[Variable] | None
    budget: Budget | None
    deadline: Deadline
    may_be_outer: bool
    cascades: list[Cascade] = field(default_factory=list)
    outer: list[int] = field(default_factory=list)

    def add(self, part: RulePart, *, is_dense: bool) -> None:
        if not is_dense:
            try:
                self.cascades.append(self._cascade(part, self.deadline))
                return
            except (CascadeBudgetExceeded, CompileTimeout, GridError) as error:
                if not self.may_be_outer or not _is_too_dense(error):
                    raise
        self.outer.append(len(self.cascades))
        self.cascades.append(self._cascade(part, NEVER, is_outer=True))

    def _cascade(
        self, part: RulePart, deadline: Deadline, *, is_outer: bool = False
    ) -> Cascade:
        return cascade_of_part(
            part,
            (),
            FORMATS["float64"],
            order=self.order,
            budget=None if is_outer else self.budget,
            deadline=deadline,
            multiples=False,
            is_outer=is_outer,
        )


def _is_too_dense(error: MultiplexError) -> bool:
    """Whether projections failed, not what is written."""
    match error:
        case CascadeBudgetExceeded(what=what):
            return what in ("clauses", "options")
        case GridError(is_empty=is_empty):
            return not is_empty
    return True


def _is_free(specification: Specification, column: Variable) -> bool:
    return not any(
        column in set(variables(rule.formula)) for rule in specification.rules
    )


def _order(specification: Specification, cascades: Sequence[Cascade]) -> list[Variable]:
    """Columns as they stand in the table, those of a cascade in its order, from the place of its first one on; choices
    that no rule ties to another column come last, those of most values first.

    Such a choice is what tables are often made for: it is learned best where it may look at all other columns.
    """
    tied = {
        column: tuple(v for v in cascade.order if v in cascade.visible)
        for cascade in cascades
        for column in cascade.visible
    }
    groups = dict.fromkeys(tied.get(v, (v,)) for v in specification.outputs)
    in_order = sorted(groups, key=lambda own: (_choices(own) > 0, -_choices(own)))
    return [column for group in in_order for column in group]


def _choices(group: Sequence[Variable]) -> int:
    """How many values the only column of a group has, if these are two or few labels; else 0."""
    columns = [v for v in group if v.role != "missing"]
    if len(columns) != 1 or isinstance(columns[0].domain, Real):
        return 0
    domain = columns[0].domain
    most = FEW_LABELS if isinstance(domain, Category) else 2
    return count_of(domain) if count_of(domain) <= most else 0


class RowBatch:
    """A batch on its way: what is left of the next column, then its value, and so on.

    ``stuck`` says which rows ``(B,)`` got stuck so far; no row does without outer cascades.
    """

    def __init__(self, allowed: AllowedRows, count: int) -> None:
        like = torch.zeros(count, dtype=torch.float64)
        self._allowed = allowed
        self.stuck = torch.zeros(count, dtype=torch.bool)
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
        found.stuck = self.stuck[rows]
        return found

    def left(self, column: Variable) -> LeftIntervals:
        """What is left of a column; the columns before it have their values."""
        if column not in self._place:
            low, high = _ends(column)
            whole = torch.tensor([[low], [high]], dtype=torch.float64)
            return LeftIntervals(whole[:1], whole[1:])
        c, s = self._place[column]
        self._catch_up(c, s)
        options = self._walks[c].options(self._cascades[c].steps[s])
        found = _intervals(self._walks[c], options)
        if c not in self._allowed.outer:
            return found
        return self.unless_stuck(column, found)

    def unless_stuck(self, column: Variable, left: LeftIntervals) -> LeftIntervals:
        """What is left of a column; rows of which nothing is left are stuck, and go on with anything."""
        self.stuck |= left.nothing
        return left.or_all(self.stuck, *_ends(column)) if self.stuck.any() else left

    def take(self, column: Variable, values: Tensor) -> None:
        """The column has these whole numbers, ``(B,)``."""
        if column in self._place:
            c, s = self._place[column]
            self._catch_up(c, s)
            self._walks[c].take(self._cascades[c].steps[s], values)
            self._done[c] = s + 1

    def end(self) -> Tensor:
        """All columns have their values: which rows got stuck, ``(B,)``."""
        for c in self._allowed.outer:
            self._catch_up(c, len(self._cascades[c].steps))
        return self.stuck

    def _catch_up(self, c: int, s: int) -> None:
        """Hidden outputs before step s get the one value that is left for them."""
        for step in self._cascades[c].steps[self._done[c] : s]:
            self._take_hidden(c, step)
        self._done[c] = s

    def _take_hidden(self, c: int, step: Step) -> None:
        walk = self._walks[c]
        (option,) = walk.options(step)
        walk.take(step, walk.full(option.lower))
        if c in self._allowed.outer:
            self.stuck |= walk.broken(step)


def _ends(column: Variable) -> tuple[float, float]:
    low, high = ends(column.domain)
    assert low is not None
    assert high is not None
    return float(low), float(high)


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
