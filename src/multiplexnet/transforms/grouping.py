"""Groups: parts of one kind from many terms, computed together."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from multiplexnet.geometry.parts import Box, Parametric, Part
from multiplexnet.language.formula import Symbol, Variable, symbols
from multiplexnet.transforms.base import Transform, rows_of
from multiplexnet.transforms.chosen import rows_with
from multiplexnet.transforms.gauge import Gauge
from multiplexnet.transforms.lattice import LatticeGauge
from multiplexnet.transforms.run_time.curved_guards import CurvedGuards
from multiplexnet.transforms.run_time.guards import Guards
from multiplexnet.transforms.run_time.intervals import Intervals, are_intervals
from multiplexnet.transforms.run_time.parameters import Functions, Parameters
from multiplexnet.transforms.run_time.parametric import ParametricGauge
from multiplexnet.transforms.run_time.spheres import Spheres
from multiplexnet.transforms.run_time.triangular import Triangular
from multiplexnet.transforms.tables import Tabled

__all__ = ["Group", "Places", "RunTimeValues", "groups_of", "transform_of"]

Places = Sequence[Sequence[int]]

FEW_OF = 4
"""Parts of at most one term in so many are computed in the rows that chose these terms, and in no others."""


class RunTimeValues(NamedTuple):
    """What is known at run time: the inputs, ``(*batch, number of inputs)``, and torch code for opaque functions."""

    inputs: Tensor | None
    functions: Functions


class Group(Tabled):
    """Parts of one kind, at most one per term, and where they stand.

    Args:
        transform: the maps, one row per part.
        terms: the terms of the parts, ascending.
        columns: for each part the positions of its outputs among all D; a shorter part repeats its first one, which
            has no effect.
        count: the number K of terms of the block.
        known: the parameters of the parts, if they have any.
    """

    transform: Transform
    known: Parameters | None
    columns: Tensor
    members: Tensor
    entry: Tensor
    present: Tensor

    def __init__(
        self,
        transform: Transform,
        terms: Sequence[int],
        columns: Places,
        count: int,
        known: Parameters | None = None,
    ) -> None:
        super().__init__()
        self.transform = transform
        self.numbers = list(terms)
        self.known = known
        width = max(map(len, columns))
        padded = [[*row, *list(row[:1]) * (width - len(row))] for row in columns]
        self.shared = all(row == padded[0] for row in padded)
        self.natural = padded[0] == list(range(width))
        entry = np.zeros(count, dtype=np.int64)
        present = np.zeros(count, dtype=np.bool_)
        entry[self.numbers] = np.arange(len(self.numbers))
        present[self.numbers] = True
        tables = {
            "columns": np.array(padded, dtype=np.int64).reshape(len(padded), width),
            "members": np.array(self.numbers, dtype=np.int64),
            "entry": entry,
            "present": present,
        }
        self.hold({name: torch.from_numpy(table) for name, table in tables.items()})

    @property
    def width(self) -> int:
        return self.columns.shape[-1]

    def slice(self, start: int, stop: int) -> tuple[Self, int]:
        """The group for terms ``start`` to ``stop`` alone, and the number of its parts before them."""
        first = bisect_left(self.numbers, start)
        last = bisect_left(self.numbers, stop)
        part = copy.copy(self)
        part._modules = {"transform": self.transform.terms(first, last), "known": None}
        part.known = None if self.known is None else self.known.slice(first, last)
        part.numbers = [number - start for number in self.numbers[first:last]]
        tables = {
            "columns": self.columns[first:last],
            "members": self.members[first:last] - start,
            "entry": (self.entry[start:stop] - first).clamp(min=0),
            "present": self.present[start:stop],
        }
        part.hold(tables)
        return part, first

    def pick(self, values: Tensor, index: Tensor | None, *, per_term: bool) -> Tensor:
        """The columns of the group: ``(*batch, 1 or T, n)`` for all terms, ``(*batch, n)`` for chosen ones."""
        everywhere = len(self.numbers) == len(self.present)
        if per_term and not (self.shared and everywhere):
            return values[..., self.members.unsqueeze(-1), self.columns]
        if self.shared:
            whole = self.natural and self.width == values.shape[-1]
            own = values if whole else values.index_select(-1, self.columns[0])
            return own if index is not None or per_term else own.unsqueeze(-2)
        if index is None:
            flat = values.index_select(-1, self.columns.flatten())
            return flat.reshape(*flat.shape[:-1], *self.columns.shape)
        return values.gather(-1, rows_of(self.columns, rows_of(self.entry, index)))

    def chosen(self, index: Tensor | None) -> Tensor | None:
        """The rows of the table for chosen terms; the first for terms without a part."""
        return None if index is None else rows_of(self.entry, index)

    def rows(self, index: Tensor) -> Tensor | None:
        """The rows of a batch that chose a term with a part; ``None`` if these are many, or if that is not known."""
        if FEW_OF * len(self.numbers) > len(self.present) or index.dim() != 1:
            return None
        return rows_with(self.present, index)

    def spread(
        self, per_part: Tensor, index: Tensor | None, otherwise: float
    ) -> Tensor:
        """A number per part, ``(*batch, T)`` or ``(*batch,)``, as one per term, ``otherwise`` where a term has none."""
        if index is None:
            return torch.where(
                self.present, per_part.index_select(-1, self.entry), otherwise
            )
        return torch.where(rows_of(self.present, index), per_part, otherwise)

    def met(self, per_part: Tensor, index: Tensor | None) -> Tensor:
        """A verdict per part, shapes as in ``spread``, as one per term; a term without a part is met.

        Without ``torch.where``, which onnxruntime does not have for truth values.
        """
        if index is None:
            return per_part.index_select(-1, self.entry) | ~self.present
        return per_part | ~rows_of(self.present, index)

    def parameters_of(
        self, given: RunTimeValues, x: Tensor | None, index: Tensor | None
    ) -> Tensor | None:
        """The known values of the parts; see :class:`Parameters`."""
        if self.known is None:
            return None
        parameters: Tensor = self.known(
            given.inputs, x, given.functions, self.chosen(index), self.members
        )
        return parameters


def levels(parts: Sequence[Part]) -> list[int]:
    """For each part of a term the number of parts that have to be computed one after the other before it."""
    depth: dict[Variable, int] = {}
    found = []
    for part in parts:
        before = [
            depth[s] for s in _needed(part) if isinstance(s, Variable) and s in depth
        ]
        level = 1 + max(before, default=-1)
        depth |= dict.fromkeys(part.outputs, level)
        found.append(level)
    return found


def _needed(part: Part) -> list[Symbol]:
    """All symbols in the parameters of a part."""
    if not isinstance(part, Parametric):
        return []
    return [symbol for parameter in part.parameters for symbol in symbols(parameter)]


def groups_of(terms: Sequence[Sequence[Part]]) -> list[list[tuple[int, Part]]]:
    """Parts other than boxes as (term, part), in groups of one kind and similar size with at most one per term.

    A group comes after those whose outputs its parameters need.
    """
    groups: dict[tuple[int, str, int, int, int], list[tuple[int, Part]]] = defaultdict(
        list
    )
    for number, parts in enumerate(terms):
        seen: dict[object, int] = defaultdict(int)
        for part, level in zip(parts, levels(parts), strict=True):
            if isinstance(part, Box):
                continue
            width = len(part.outputs).bit_length()
            height = len(part.A).bit_length()
            key = (level, _kind(part), width, height)
            groups[(*key, seen[key])].append((number, part))
            seen[key] += 1
    return [groups[key] for key in sorted(groups)]


def _kind(part: Part) -> str:
    if isinstance(part, Parametric) and part.cones:
        return "Spheres" if part.outputs else "CurvedGuards"
    if isinstance(part, Parametric) and not part.outputs:
        return "Guards"
    if isinstance(part, Parametric) and part.reference:
        return "Centred"
    if isinstance(part, Parametric) and are_intervals(part):
        return "Intervals"
    return type(part).__name__


def transform_of(
    parts: Sequence[Part],
    dtype: torch.dtype,
    *,
    in_turn: bool = True,
    single: bool = False,
) -> Transform:
    """The transform of parts of one kind, the simplest that fits.

    Without ``in_turn`` outputs that bound each other at run time are computed at once, around an anchor; with
    ``single`` products are made in float32 where that costs little.
    """
    kinds: dict[str, Callable[..., Transform]] = {
        "Polyhedron": partial(Gauge, single=single),
        "Lattice": partial(LatticeGauge, single=single),
        "Parametric": Triangular if in_turn else ParametricGauge,
        "Centred": ParametricGauge,
        "Intervals": Intervals,
        "Guards": Guards,
        "CurvedGuards": CurvedGuards,
        "Spheres": Spheres,
    }
    return kinds[_kind(parts[0])](parts, dtype)
