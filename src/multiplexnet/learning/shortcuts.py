"""Shortcuts: maps of labels under which every row still obeys, so that rules are met with wrong labels.

A classifier that is trained to obey need not be right: it may give all 4s the label 3, if no row breaks by that. A map
of labels, one for each classifier, is a *shortcut* if it is not the identity and all rows obey after it.
:func:`~multiplexnet.learning.symmetry.symmetries` knows those that permute labels and keep all assignments. Here
labels may also be merged, only the rows that occur have to obey, and outputs that are given keep their values.

To find all of them is a constraint problem. Its unknowns are the images of the labels that occur, and every row is a
condition on the images of its own labels: a table of those that obey. What contradicts a table is struck out of the
others until nothing changes. Then the images of one label are tried, one after another. A table that allows all
combinations of what is left is dropped, so that maps by the million are multiplied and not listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import (
    DomainError,
    ProductError,
    ShapeError,
    ShortcutBudgetExceeded,
    UnknownNameError,
)
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.learning.finite import FiniteTerms, discrete, sharing
from multiplexnet.learning.symmetry import label_texts, listed
from multiplexnet.rules import Rules, rules_of

__all__ = ["Classifier", "Shortcuts", "shortcuts"]

LabelMap = tuple[int, ...]
Domains = dict[int, frozenset[int]]

SHOWN = 3
"""How many shortcuts a text writes out."""

CANDIDATES = 1_000_000
"""The most images of one row that are tried."""

BRANCHES = 10_000
"""The most images of single labels that are tried in counting."""


@dataclass(frozen=True)
class Classifier:
    """What one classifier labels.

    Args:
        outputs: the names of its outputs.
        labels: as the user writes them, in the order of the domain.
        seen: the positions of the labels that occur in rows.
    """

    outputs: tuple[str, ...]
    labels: tuple[str, ...]
    seen: tuple[int, ...]


class _Table(NamedTuple):
    """The images of some labels that obey together: ``rows`` of one image for each point of ``scope``."""

    scope: tuple[int, ...]
    rows: frozenset[tuple[int, ...]]


@dataclass(frozen=True)
class Shortcuts:
    """All maps of labels but the identity under which every row that occurs still obeys.

    Iterating gives them one by one, each as a tuple with one map per classifier: ``map[i]`` is the position of the
    label that label i is taken for. Labels that do not occur keep themselves.

    Args:
        classifiers: what is labelled; outputs that are given are not.
        count: how many shortcuts there are.
    """

    classifiers: tuple[Classifier, ...]
    count: int
    _domains: Domains = field(repr=False)
    _tables: tuple[_Table, ...] = field(repr=False)

    @property
    def identifiable(self) -> bool:
        """Whether labels under which all rows obey are the right ones."""
        return self.count == 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[LabelMap, ...]]:
        identity = {point: self._code(point) for point in self._domains}
        for images in _maps(self._domains, self._tables):
            if images != identity:
                yield self._split(images)

    def keeps(self, maps: Sequence[Sequence[int]]) -> bool:
        """Whether every row obeys under these maps, one for each classifier: a shortcut, or the identity."""
        images = {
            start + code: maps[g][code]
            for g, start in enumerate(self._starts)
            for code in self.classifiers[g].seen
        }
        return all(
            image in self._domains[point] for point, image in images.items()
        ) and all(
            tuple(images[point] for point in table.scope) in table.rows
            for table in self._tables
        )

    def __str__(self) -> str:
        if self.identifiable:
            return "no shortcut: labels under which all rows obey are the right ones"
        head = f"{self.count:,} shortcut{'s' if self.count > 1 else ''}: "
        head += "maps of labels under which all rows obey, and labels are wrong"
        lines = [f"  {self._arrows(maps)}" for maps in islice(self, SHOWN)]
        return "\n".join([head, *lines, *(["  …"] if self.count > SHOWN else [])])

    @property
    def _starts(self) -> list[int]:
        return _starts([len(own.labels) for own in self.classifiers])

    def _code(self, point: int) -> int:
        """The position of a label among those of its classifier."""
        return point - max(start for start in self._starts if start <= point)

    def _split(self, images: Mapping[int, int]) -> tuple[LabelMap, ...]:
        return tuple(
            tuple(images.get(start + code, code) for code in range(len(own.labels)))
            for start, own in zip(self._starts, self.classifiers, strict=True)
        )

    def _arrows(self, maps: Sequence[LabelMap]) -> str:
        parts = []
        for own, images in zip(self.classifiers, maps, strict=True):
            moved = [
                f"{own.labels[code]} → {own.labels[image]}"
                for code, image in enumerate(images)
                if code != image
            ]
            parts += [f"{listed(own.outputs)}: {listed(moved)}"] if moved else []
        return "; ".join(parts)


def shortcuts(
    rules: Rules | str | Sequence[str],
    rows: Any = None,
    *,
    classifier: Sequence[str] | None = None,
    given: Sequence[str] = (),
    max_terms: int = MAX_TERMS,
) -> Shortcuts:
    """The maps of labels, other than the identity, under which every row that occurs still obeys.

    Args:
        rules: all their outputs are discrete, and there are no inputs.
        rows: what occurs, ``(B, D)``, the values of all outputs (default: all assignments that obey).
        classifier: for every output a name; outputs of the same name are labelled alike (default: all outputs with the
            same domain that are not given), as in :func:`~multiplexnet.learning.symmetry.symmetries`.
        given: names of outputs whose values are known in training: nothing labels them.
        max_terms: the most assignments that are written out where no rows are given.

    Raises:
        DomainError: a real output, an input, different domains for one classifier, or a row that breaks the rules.
        ShapeError: rows or names that do not fit the outputs.
        UnknownNameError: a given output that the rules do not have.
        TermBudgetExceeded, ProductError: more than ``max_terms`` assignments. Pass some rows: a shortcut of all rows is
            one of these, too.
        ShortcutBudgetExceeded: too many possibilities to count.

    Example: four sums of which two look like others.
        >>> rules = Rules("a: int[0, 4]; b: int[0, 4]; s: int[0, 8]; a + b == s")
        >>> print(shortcuts(rules, given=["s"]))
        no shortcut: labels under which all rows obey are the right ones
        >>> print(shortcuts(rules, [[0, 0, 0], [0, 1, 1], [2, 3, 5], [2, 4, 6]], given=["s"]))
        2 shortcuts: maps of labels under which all rows obey, and labels are wrong
          a, b: 2 → 3, 3 → 2, 4 → 3
          a, b: 2 → 4, 3 → 1, 4 → 2
    """
    rules = discrete(rules_of(rules))
    groups = _labelled(rules, classifier, given)
    values = _obeying(rules, max_terms) if rows is None else _checked(rules, rows)
    texts = [label_texts(rules.outputs[group[0]]) for group in groups]
    points = _points(rules, groups, values)
    seen = frozenset(points[points >= 0].tolist())
    starts = _starts(list(map(len, texts)))
    domains = {
        start + code: frozenset(range(len(labels)))
        for start, labels in zip(starts, texts, strict=True)
        for code in range(len(labels))
        if start + code in seen
    }
    domains, tables = _tables(rules, values, points, domains)
    classifiers = tuple(
        Classifier(
            tuple(rules.outputs[n].name for n in group),
            labels,
            tuple(code for code in range(len(labels)) if start + code in seen),
        )
        for group, labels, start in zip(groups, texts, starts, strict=True)
    )
    count = _free(domains, tables) * _Counter().count(frozenset(tables))
    return Shortcuts(classifiers, count - 1, domains, tables)


# --- what is asked ---------------------------------------------------------------------------------------------------


def _labelled(
    rules: Rules, classifier: Sequence[str] | None, given: Sequence[str]
) -> list[list[int]]:
    """The positions of the outputs of every classifier."""
    names = [variable.name for variable in rules.outputs]
    for name in given:
        if name not in names:
            raise UnknownNameError(name, "", names)
    free = [n for n, name in enumerate(names) if name not in given]
    if classifier is not None and len(classifier) != len(names):
        raise ShapeError(
            f"classifier has {len(classifier)} names; the rules have {len(names)} outputs"
        )
    own = None if classifier is None else [classifier[n] for n in free]
    groups = sharing([rules.outputs[n] for n in free], own)
    return [[free[n] for n in group] for group in groups]


def _obeying(rules: Rules, max_terms: int) -> NDArray[np.float64]:
    """All assignments that obey, ``(B, D)``."""
    terms = FiniteTerms(rules, max_terms=max_terms)
    if len(terms) > max_terms:
        raise ProductError([len(block.terms) for block in terms.blocks], max_terms)
    rows = np.zeros((len(terms), len(terms.outputs)))
    blocks = [terms.codes(b).tolist() for b in range(len(terms.blocks))]
    for number, chosen in enumerate(product(*blocks)):
        for block, codes in zip(terms.blocks, chosen, strict=True):
            for variable, code in zip(block.outputs, codes, strict=True):
                column = terms.outputs.index(variable)
                rows[number, column] = variable.domain.values[code]  # type: ignore[union-attr]
    return rows


def _checked(rules: Rules, rows: Any) -> NDArray[np.float64]:
    """Rows of values that obey, each once."""
    values = np.asarray(rows, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(rules.outputs):
        raise ShapeError(
            f"rows have the shape {values.shape}; it is (B, {len(rules.outputs)}), a column for each output"
        )
    broken = np.flatnonzero(~rules.satisfied(values))
    if len(broken):
        raise DomainError(
            f"row {broken[0]}, {values[broken[0]].tolist()}, breaks the rules: it cannot occur"
        )
    return np.unique(values, axis=0)


def _starts(sizes: Sequence[int]) -> list[int]:
    """The number of the first label of every classifier: labels of all of them are numbered through, as points."""
    return [sum(sizes[:g]) for g in range(len(sizes))]


def _first_value(rules: Rules, output: int) -> int:
    first: int = rules.outputs[output].domain.values[0]  # type: ignore[union-attr]
    return first


def _points(
    rules: Rules, groups: Sequence[Sequence[int]], values: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The point that each value of a row is, ``(B, D)``; −1 where it is given."""
    sizes = [len(rules.outputs[group[0]].domain.values) for group in groups]  # type: ignore[union-attr]
    points = np.full(values.shape, -1, dtype=np.int64)
    for start, group in zip(_starts(sizes), groups, strict=True):
        for n in group:
            points[:, n] = start + values[:, n] - _first_value(rules, n)
    return points


# --- tables ----------------------------------------------------------------------------------------------------------


def _tables(
    rules: Rules,
    values: NDArray[np.float64],
    points: NDArray[np.int64],
    domains: Domains,
) -> tuple[Domains, tuple[_Table, ...]]:
    """What every row asks of the images of its labels.

    Rows with the fewest undecided labels go first: what they decide need not be tried in the others. A label that is
    decided keeps itself, since the identity is always allowed.
    """
    tables: list[_Table] = []
    left = list(range(len(values)))
    while left:
        scopes = {row: _undecided(domains, points[row]) for row in left}
        least = min(map(len, scopes.values()))
        alike: dict[tuple[int, ...], list[int]] = {}
        for row, scope in scopes.items():
            if len(scope) == least:
                alike.setdefault(scope, []).append(row)
        if least:
            tables += [
                _table(rules, values[rows], points[rows], domains, scope)
                for scope, rows in alike.items()
            ]
            domains, tables = _narrowed(domains, tables)
        left = [row for row in left if len(scopes[row]) > least]
    return domains, tuple(tables)


def _undecided(domains: Domains, row: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(
        sorted(point for point in {*row.tolist()} - {-1} if len(domains[point]) > 1)
    )


def _table(
    rules: Rules,
    values: NDArray[np.float64],
    points: NDArray[np.int64],
    domains: Domains,
    scope: tuple[int, ...],
) -> _Table:
    """The images of undecided labels under which all rows obey that have these; decided ones keep themselves."""
    options = [sorted(domains[point]) for point in scope]
    if (tried := prod(map(len, options)) * len(values)) > CANDIDATES:
        raise ShortcutBudgetExceeded(tried, CANDIDATES)
    candidates = np.array(list(product(*options)), dtype=np.int64)
    images = np.repeat(values[:, None, :], len(candidates), axis=1)
    for row, output in zip(*np.nonzero(np.isin(points, scope)), strict=True):
        own = candidates[:, scope.index(points[row, output])]
        images[row, :, output] = _first_value(rules, int(output)) + own
    kept = rules.satisfied(images).all(0)
    return _Table(scope, frozenset(map(tuple, candidates[kept].tolist())))


def _narrowed(
    domains: Domains, tables: Iterable[_Table]
) -> tuple[Domains, list[_Table]]:
    """Strike out what contradicts a table until nothing does; tables that allow all that is left are dropped.

    If nothing is left for a label, its domain is empty.
    """
    domains, tables = dict(domains), list(tables)
    changed = True
    while changed:
        changed = False
        for number, (scope, rows) in enumerate(tables):
            allowed = [domains[point] for point in scope]
            fitting = frozenset(
                row for row in rows if all(map(frozenset.__contains__, allowed, row))
            )
            tables[number] = _Table(scope, fitting)
            for place, point in enumerate(scope):
                images = frozenset(row[place] for row in fitting)
                if len(images) < len(domains[point]):
                    domains[point] = images
                    changed = True
    open_tables = [_undecided_part(domains, table) for table in tables]
    return domains, [table for table in open_tables if table.scope]


def _undecided_part(domains: Domains, table: _Table) -> _Table:
    """A table without its labels that have one image left; without any if it allows all that is left."""
    places = [n for n, p in enumerate(table.scope) if len(domains[p]) != 1]
    scope = tuple(table.scope[n] for n in places)
    rows = frozenset(tuple(row[n] for n in places) for row in table.rows)
    if rows and len(rows) == prod(len(domains[point]) for point in scope):
        return _Table((), frozenset())
    return _Table(scope, rows)


# --- counting --------------------------------------------------------------------------------------------------------


def _free(domains: Domains, tables: Iterable[_Table]) -> int:
    """In how many ways the labels that no table mentions can be mapped."""
    bound = {point for table in tables for point in table.scope}
    return prod(len(own) for point, own in domains.items() if point not in bound)


class _Counter:
    """Counts the maps of labels that tables allow; what it has counted once, it remembers."""

    def __init__(self) -> None:
        self._known: dict[frozenset[_Table], int] = {}
        self._branches = 0

    def count(self, tables: frozenset[_Table]) -> int:
        return prod(self._of_part(part) for part in _parts(tables))

    def _of_part(self, tables: frozenset[_Table]) -> int:
        if tables not in self._known:
            self._known[tables] = self._tried(tables)
        return self._known[tables]

    def _tried(self, tables: frozenset[_Table]) -> int:
        domains = {
            point: frozenset(row[place] for row in table.rows)
            for table in tables
            for place, point in enumerate(table.scope)
        }
        point = min(domains, key=lambda point: (len(domains[point]), point))
        total = 0
        for image in domains[point]:
            self._branches += 1
            if self._branches > BRANCHES:
                raise ShortcutBudgetExceeded(self._branches, BRANCHES)
            left, rest = _narrowed({**domains, point: frozenset([image])}, tables)
            if all(left.values()):
                total += _free(left, rest) * self.count(frozenset(rest))
        return total


def _parts(tables: frozenset[_Table]) -> Iterator[frozenset[_Table]]:
    """Tables that share no labels, apart."""
    rest = set(tables)
    while rest:
        part = {rest.pop()}
        points = {point for table in part for point in table.scope}
        while near := {table for table in rest if points & set(table.scope)}:
            part |= near
            rest -= near
            points |= {point for table in near for point in table.scope}
        yield frozenset(part)


def _maps(domains: Domains, tables: Sequence[_Table]) -> Iterator[dict[int, int]]:
    """All maps that tables allow, in the order of labels and images."""
    point = min((p for p, own in domains.items() if len(own) > 1), default=None)
    if point is None:
        yield {label: image for label, (image,) in domains.items()}
        return
    for image in sorted(domains[point]):
        left, rest = _narrowed({**domains, point: frozenset([image])}, tables)
        if all(left.values()):
            yield from _maps(left, rest)
