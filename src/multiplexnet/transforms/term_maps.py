"""All terms of a block as one map: the simplest transform for each part, parts of a kind in one table.

Boxes of all terms are one :class:`Separable` table. Every other part belongs to a *group*: parts of one kind and
similar size, at most one per term, computed together. What they compute is put in its place by one gather with
positions known beforehand::

    raw (*batch, D)                     →  x (*batch, K, D)      all terms read the same raw values
    raw (*batch, K, D), per_term=True   →  x (*batch, K, D)      every term has its own
    raw (*batch, D), index (*batch,)    →  x (*batch, D)         the chosen term alone; the cost does not grow with K
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from multiplexnet.geometry.parts import Box, Parametric, Part
from multiplexnet.language.formula import Variable
from multiplexnet.transforms.assembly import Assembly
from multiplexnet.transforms.base import (
    Transform,
    in_full_precision,
    is_transformed,
    saturated,
)
from multiplexnet.transforms.grouping import (
    Group,
    Places,
    RunTimeValues,
    groups_of,
    transform_of,
)
from multiplexnet.transforms.lattice import LatticeGauge
from multiplexnet.transforms.run_time.intervals import IntervalFrame, Intervals
from multiplexnet.transforms.run_time.parameters import Functions, Parameters
from multiplexnet.transforms.run_time.parametric import ParametricGauge
from multiplexnet.transforms.separable import Separable
from multiplexnet.transforms.tables import Tabled

__all__ = ["Room", "TermMaps"]

Boxes = Callable[[Sequence[Box], torch.dtype], Transform]
Ends = tuple[Fraction | None, Fraction | None]
Frames = Mapping[int, IntervalFrame]


def _boxes(
    terms: Sequence[Sequence[Part]], outputs: Sequence[Variable]
) -> tuple[list[int], list[Box]]:
    """The columns that are boxed in some term, and one box over them per term (0 where a term couples a column)."""
    coupled = [_coupled(parts) for parts in terms]
    columns = [j for j, v in enumerate(outputs) if not all(v in own for own in coupled)]
    kept = tuple(outputs[j] for j in columns)
    boxes = []
    for parts, others in zip(terms, coupled, strict=True):
        if len(parts) == 1 and isinstance(parts[0], Box) and parts[0].outputs == kept:
            boxes.append(parts[0])
            continue
        ends: dict[Variable, Ends] = dict.fromkeys(kept, (None, None))
        ends |= dict.fromkeys(others, (Fraction(0), Fraction(0)))
        ends |= _ends(parts)
        lower = tuple(ends[variable][0] for variable in kept)
        upper = tuple(ends[variable][1] for variable in kept)
        boxes.append(Box(kept, lower, upper))
    return columns, boxes


def _coupled(parts: Sequence[Part]) -> set[Variable]:
    """The outputs of a term that depend on each other."""
    others = [part for part in parts if not isinstance(part, Box)]
    return {variable for part in others for variable in part.outputs}


def _ends(parts: Sequence[Part]) -> dict[Variable, Ends]:
    """The ends of the outputs that the boxes of a term bound."""
    found: dict[Variable, Ends] = {}
    for part in parts:
        if isinstance(part, Box):
            pairs = zip(part.lower, part.upper, strict=True)
            found |= zip(part.outputs, pairs, strict=True)
    return found


class Room(NamedTuple):
    """What known values leave to the terms of a block.

    Args:
        feasible: which terms have room, ``(*batch, K)`` or with index ``(*batch,)``; ``None``: all.
        frames: of the groups of intervals by number, what is left for every output.
    """

    feasible: Tensor | None
    frames: Frames


class TermMaps(Tabled):
    """The maps h_1 … h_K of the terms of a block, into its D outputs.

    In training NaN in raw comes out as NaN; in ``eval()`` it is read as 0, which every transform sends well inside.

    Args:
        terms: the parts of each term. Outputs that no part of a term mentions are free in it.
        outputs: the outputs of the block; they fix the columns of raw and x.
        dtype: of the values that come out.
        inputs: all inputs of the rules; they fix the columns of ``inputs`` in ``forward``.
        boxes: the transform of boxes, :class:`Separable` or :class:`PaperSeparable`.
        in_turn: whether outputs that bound each other at run time are computed one after another.
        precision: what products are made in, ``"float64"``, or ``"float32"`` where that costs little.

    Example:
        >>> from fractions import Fraction
        >>> x = Variable("x", 0)
        >>> above, below = Box((x,), (Fraction(2),), (None,)), Box((x,), (None,), (Fraction(-2),))
        >>> maps = TermMaps([[above], [below]], [x], torch.float32)
        >>> maps(torch.tensor([-1e30])).tolist()
        [[2.0], [-1.0000000150474662e+30]]
        >>> maps(torch.tensor([[-1e30]]), torch.tensor([0])).tolist()
        [[2.0]]
    """

    boxed: Tensor

    def __init__(
        self,
        terms: Sequence[Sequence[Part]],
        outputs: Sequence[Variable],
        dtype: torch.dtype,
        *,
        inputs: Sequence[Variable] = (),
        boxes: Boxes = Separable,
        in_turn: bool = True,
        precision: str = "float64",
    ) -> None:
        super().__init__()
        self.dtype = dtype
        columns, own = _boxes(terms, outputs)
        self.separable = boxes(own, dtype) if columns else None
        self.hold({"boxed": torch.tensor(columns, dtype=torch.int64)})
        self.all_boxed = columns == list(range(len(outputs)))
        members = groups_of(terms)
        position = {variable: j for j, variable in enumerate(outputs)}
        where = [
            [[position[v] for v in part.outputs] for _, part in group]
            for group in members
        ]
        self.groups = nn.ModuleList()
        found: dict[object, int] = {}  # groups that know the same share a number
        for group, place in zip(members, where, strict=True):
            parts = [part for _, part in group]
            numbers = [k for k, _ in group]
            symbols = tuple(
                part.parameters for part in parts if isinstance(part, Parametric)
            )
            number = found.setdefault((symbols, tuple(numbers)), len(found))
            known = (
                Parameters(symbols, inputs, outputs, dtype, number) if symbols else None
            )
            transform = transform_of(
                parts, dtype, in_turn=in_turn, single=precision == "float32"
            )
            self.groups.append(Group(transform, numbers, place, len(terms), known))
        places = _places(members, where, columns, len(terms), len(outputs))
        self.assembly = Assembly(*places, self._shapes(len(terms)))

    def _shapes(self, count: int) -> list[tuple[int, int]]:
        """Rows and columns of the pieces: the boxes first (if any column is boxed), then the groups."""
        boxes = [(count, len(self.boxed))] if self.separable is not None else []
        return boxes + [(len(group.transform), group.width) for group in self._groups]

    @property
    def _groups(self) -> list[Group]:
        return list(self.groups)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """The number K of terms."""
        return len(self.assembly.piece)

    def terms(self, start: int, stop: int) -> Self:
        """The maps of terms ``start`` to ``stop`` alone; they share the memory of this one."""
        part = copy.copy(self)
        part._modules = dict(self._modules)
        sliced = [group.slice(start, stop) for group in self._groups]
        part.groups = nn.ModuleList(group for group, _ in sliced)
        first = [before for _, before in sliced]
        if self.separable is not None:
            part.separable = self.separable.terms(start, stop)
            first = [start, *first]
        part.assembly = self.assembly.slice(
            start, stop, first, part._shapes(stop - start)
        )
        part.groups = nn.ModuleList(group for group, _ in sliced if group.numbers)
        return part

    @in_full_precision
    def forward(
        self,
        raw: Tensor,
        index: Tensor | None = None,
        *,
        inputs: Tensor | None = None,
        functions: Functions | None = None,
        per_term: bool = False,
        frames: Frames = MappingProxyType({}),
    ) -> Tensor:
        """``x = h_k(raw)`` for all terms or the chosen ones; shapes as above.

        Args:
            raw: ``(*batch, D)``, or ``(*batch, K, D)`` with ``per_term``.
            index: ``(*batch,)``, the chosen terms.
            inputs: ``(*batch, number of inputs)``, numbers of the format.
            functions: torch code of the opaque functions by name.
            per_term: whether every term has raw values of its own.
            frames: those of :meth:`room` for the same inputs, if it was asked for all terms.
        """
        given = RunTimeValues(inputs, functions or {})
        pieces: list[Tensor] = []
        first = 0 if self.separable is None else 1
        calls = self._calls(self._read(raw), index, given, per_term, pieces)
        for number, (transform, own, chosen, parameters) in enumerate(calls):
            frame = frames.get(number - first)
            if frame is not None:
                intervals = cast(Intervals, transform)
                pieces.append(intervals.between(own, frame, chosen))
            elif index is None or number < first:
                pieces.append(transform(own, chosen, parameters))
            else:
                rows = self._groups[number - first].rows(index)
                pieces.append(_computed(transform, rows, own, chosen, parameters))
        x: Tensor = self.assembly(pieces, index)
        return x

    @in_full_precision
    def inverse(
        self,
        x: Tensor,
        index: Tensor | None = None,
        *,
        inputs: Tensor | None = None,
        functions: Functions | None = None,
        per_term: bool = False,
    ) -> Tensor:
        """Raw values that the terms map to ``x``; shapes as in ``forward``."""
        given = RunTimeValues(inputs, functions or {})
        whole = x
        if index is None and not per_term:
            whole = x.unsqueeze(-2).expand(*x.shape[:-1], len(self), x.shape[-1])
        pieces = [
            transform.inverse(own, chosen, parameters)
            for transform, own, chosen, parameters in self._calls(
                x, index, given, per_term, whole
            )
        ]
        raw: Tensor = self.assembly(pieces, index)
        return raw

    @in_full_precision
    def unrounded_and_log_det(
        self,
        x: Tensor,
        index: Tensor,
        *,
        inputs: Tensor | None = None,
        functions: Functions | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The raw values of what floats ``x``, ``(*batch, D)``, of the chosen terms stand for; ``log|det|`` there."""
        given = RunTimeValues(inputs, functions or {})
        pieces: list[Tensor] = []
        log_dets: list[Tensor] = []
        for transform, own, chosen, parameters in self._calls(
            x, index, given, False, x
        ):
            pieces.append(transform.unrounded(own, chosen, parameters))
            log_dets.append(
                transform.log_abs_det_jacobian(pieces[-1], chosen, parameters)
            )
        raw: Tensor = self.assembly(pieces, index)
        return raw, self._total(log_dets, index)

    @in_full_precision
    def nearest(
        self,
        x: Tensor,
        *,
        inputs: Tensor | None = None,
        functions: Functions | None = None,
    ) -> Tensor:
        """For every term a point of it near ``x``: ``(*batch, D)`` becomes ``(*batch, K, D)``."""
        pieces: list[Tensor] = []
        given = RunTimeValues(inputs, functions or {})
        for transform, own, chosen, parameters in self._calls(
            x, None, given, False, pieces
        ):
            pieces.append(transform.nearest(own, chosen, parameters))
        near: Tensor = self.assembly(pieces, None)
        return near

    @in_full_precision
    def forward_and_log_det(
        self,
        raw: Tensor,
        index: Tensor | None = None,
        *,
        inputs: Tensor | None = None,
        functions: Functions | None = None,
        per_term: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """``x`` and ``log |det ∂x/∂raw|``, ``(*batch, K)`` or ``(*batch,)``; constants do not count."""
        given = RunTimeValues(inputs, functions or {})
        pieces: list[Tensor] = []
        log_dets: list[Tensor] = []
        for transform, own, chosen, parameters in self._calls(
            self._read(raw), index, given, per_term, pieces
        ):
            x, log_det = transform.forward_and_log_det(own, chosen, parameters)
            pieces.append(x)
            log_dets.append(log_det)
        return self.assembly(pieces, index), self._total(log_dets, index)

    @property
    def has_centres(self) -> bool:
        """Whether some part goes out from a centre that inputs move, since it is too dense for another map."""
        transforms = [group.transform for group in self._groups]
        return any(isinstance(one, ParametricGauge) and one.mixes for one in transforms)

    def resolution(self) -> list[Fraction]:
        """For each output how far apart its values lie in terms where equalities tie it, at most; 0: in no term."""
        first = 0 if self.separable is None else 1
        steps: dict[int, list[list[Fraction]]] = {}
        for number, group in enumerate(self._groups, start=first):
            if isinstance(group.transform, LatticeGauge):
                steps[number] = group.transform.steps()
        coarsest = [Fraction(0)] * self.assembly.piece.shape[1]
        tables = (self.assembly.piece, self.assembly.row, self.assembly.slot)
        places = torch.stack(tables, -1).tolist()
        for term in places:
            for j, (piece, row, slot) in enumerate(term):
                if piece in steps:
                    coarsest[j] = max(coarsest[j], steps[piece][row][slot])
        return coarsest

    def reads(self, *, inputs: Tensor | None, functions: Functions) -> Tensor:
        """Which raw values have an effect in which term, ``(K, D)``; the gradient at some point tells.

        A constant has none. Where equalities hold, as many raw values have one as the term has dimensions.

        Args:
            inputs: ``(*batch, number of inputs)``, if the rules have any.
            functions: torch code of the opaque functions by name.
        """
        shape = self.assembly.piece.shape
        device = self.boxed.device
        batch = () if inputs is None else inputs.shape[:-1]
        with torch.inference_mode(False), torch.enable_grad():
            number = torch.arange(
                1, shape.numel() + 1, dtype=torch.float64, device=device
            )
            point = number.cos().reshape(shape).to(self.dtype)
            weight = (1.7 * number).sin().reshape(shape)
            known = None if inputs is None else inputs.detach().clone()

            def weighed(raw: Tensor) -> Tensor:
                every = raw.expand(*batch, *shape)
                x: Tensor = self(
                    every, inputs=known, functions=functions, per_term=True
                )
                return (x.double() * weight).sum()

            if is_transformed():
                gradient: Tensor = torch.func.grad(weighed)(point)
            else:
                raw = point.requires_grad_()
                (gradient,) = torch.autograd.grad(weighed(raw), raw)
        return gradient != 0

    def _total(self, log_dets: Sequence[Tensor], index: Tensor | None) -> Tensor:
        """The sum over the boxes and the groups, for every term."""
        boxes = len(log_dets) - len(self.groups)
        spread = list(log_dets[:boxes])
        for group, log_det in zip(self._groups, log_dets[boxes:], strict=True):
            spread.append(group.spread(log_det, index, 0.0))
        return sum(spread[1:], spread[0])

    def feasible(
        self,
        inputs: Tensor | None,
        x: Tensor | None = None,
        index: Tensor | None = None,
        *,
        functions: Functions | None = None,
    ) -> Tensor | None:
        """Which terms have room for these known values, ``(*batch, K)`` or with index ``(*batch,)``.

        Without ``x``, the values of ``forward``, only parts that depend on inputs alone are looked at. ``None`` if
        there is nothing to look at: no part has parameters.
        """
        return self.room(inputs, x, index, functions=functions).feasible

    @in_full_precision
    def room(
        self,
        inputs: Tensor | None,
        x: Tensor | None = None,
        index: Tensor | None = None,
        *,
        functions: Functions | None = None,
    ) -> Room:
        """:meth:`feasible`, and what was found on the way."""
        given = RunTimeValues(inputs, functions or {})
        verdict: Tensor | None = None
        frames: dict[int, IntervalFrame] = {}
        for number, group in enumerate(self._groups):
            if group.known is None or (x is None and group.known.needs_x):
                continue
            parameters = group.parameters_of(given, x, index)
            transform = group.transform
            if isinstance(transform, Intervals):
                assert parameters is not None
                frame = transform.frame(parameters, group.chosen(index))
                frames[number] = frame
                if frame.width is not None and len(self) == 1:
                    continue  # the only term is seen to have room
                per_part = transform.met(frame)
            else:
                per_part = transform.feasible(parameters, group.chosen(index))  # type: ignore[operator]
            own = group.met(per_part, index)
            verdict = own if verdict is None else verdict & own
        return Room(verdict, frames)

    def _read(self, raw: Tensor) -> Tensor:
        raw = saturated(raw)
        if self.training:
            return raw
        return torch.nan_to_num(raw, nan=0.0, posinf=torch.inf, neginf=-torch.inf)

    def _calls(
        self,
        values: Tensor,
        index: Tensor | None,
        given: RunTimeValues,
        per_term: bool,
        so_far: list[Tensor] | Tensor,
    ) -> Iterator[tuple[Transform, Tensor, Tensor | None, Tensor | None]]:
        """Each transform with its columns of ``values``, its chosen rows and its known values.

        ``so_far`` is x, or the list of pieces that the caller fills while this runs.
        """
        if self.separable is not None:
            own = values if self.all_boxed else values.index_select(-1, self.boxed)
            if index is None and not per_term:
                own = own.unsqueeze(-2)
            yield self.separable, own, index, None
        found: dict[int, Tensor | None] = {}
        for group in self._groups:
            number = -1 if group.known is None else group.known.number
            if number not in found:
                x = None
                if group.known is not None and group.known.needs_x:
                    x = (
                        so_far
                        if isinstance(so_far, Tensor)
                        else self.assembly(so_far, index)
                    )
                found[number] = group.parameters_of(given, x, index)
            picked = group.pick(values, index, per_term=per_term)
            yield group.transform, picked, group.chosen(index), found[number]


def _computed(
    transform: Transform,
    rows: Tensor | None,
    own: Tensor,
    chosen: Tensor | None,
    parameters: Tensor | None,
) -> Tensor:
    """What a group makes of chosen terms, in these rows alone if there are such; it is 0 in others, which read none."""
    if rows is None:
        whole: Tensor = transform(own, chosen, parameters)
        return whole
    told = [
        None if t is None else t.index_select(0, rows) for t in (chosen, parameters)
    ]
    x: Tensor = transform(own.index_select(0, rows), *told)
    return x.new_zeros(len(own), x.shape[-1]).index_copy(0, rows, x)


def _places(
    members: Sequence[Sequence[tuple[int, Part]]],
    where: Sequence[Places],
    columns: Sequence[int],
    count: int,
    width: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Piece, row and slot of every column of every term; see :class:`Assembly`."""
    piece = np.zeros((count, width), dtype=np.int64)
    row = np.repeat(np.arange(count)[:, None], width, axis=1)
    slot = np.zeros_like(piece)
    slot[:, columns] = np.arange(len(columns))
    first = 1 if columns else 0
    groups = zip(members, where, strict=True)
    for number, (group, places) in enumerate(groups, start=first):
        for i, ((term, _), place) in enumerate(zip(group, places, strict=True)):
            piece[term, place] = number
            row[term, place] = i
            slot[term, place] = np.arange(len(place))
    return torch.from_numpy(piece), torch.from_numpy(row), torch.from_numpy(slot)
