"""Repair: outputs of a network that already exists are moved into the rules, and only where they have to.

What obeys comes back bit for bit. In every other row each block that is broken moves to the nearest of its terms: to
the point that the term's own transform makes of it, which lies exactly inside. The gradient passes through as if
nothing had moved, so that the network feels the loss at the repaired point. Outputs of a cascade move one after
another, each to the nearest value that is left for it. Missing values stay missing where the rules allow it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from multiplexnet.compiler.terms import Block
from multiplexnet.errors import DtypeError, ShapeError
from multiplexnet.language.formula import Real, Rule, Specification
from multiplexnet.layer.checks import refuse_no_tensor, refuse_unmoved, refuse_unseen
from multiplexnet.transforms.base import Differentiable
from multiplexnet.transforms.run_time.reading import without_subnormals
from multiplexnet.transforms.term_maps import TermMaps
from multiplexnet.verdicts.satisfaction import verdict

if TYPE_CHECKING:
    from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["repaired"]

CHUNK = 1 << 20
"""How many values of candidates are held at once."""

FAR = 1e150
"""Broken rows are read as no farther out than this: squares of it are finite in float64."""


class _WithGradientOf(Differentiable):
    """``value``, with the gradient of ``x0``."""

    @staticmethod
    def forward(value: Tensor, x0: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Nothing needs to be kept."""

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[None, Tensor]:
        return None, grad[0]

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return tangents[1]


CHANGED = 1e305
"""The distance of a term that says of another output that it is missing."""


WHY = (
    "Multiplexer.repair looks at the values of every row: call it outside of the graph"
)


@torch.compiler.disable(reason=WHY)  # type: ignore[no-untyped-call, untyped-decorator]
def repaired(mux: Multiplexer, x0: Tensor, inputs: dict[str, Any]) -> Tensor:
    """The rows of ``x0``, moved where they break the rules; see :meth:`Multiplexer.repair`."""
    refuse_no_tensor("x0", x0)
    refuse_unseen(x0, "repair")
    if x0.dim() == 0 or x0.shape[-1] != mux.out_features:
        raise ShapeError(
            f"x0 has shape {tuple(x0.shape)}; its last dimension must be the {mux.out_features} outputs"
        )
    if x0.dtype != mux.dtype:
        raise DtypeError(
            f"x0 has dtype {x0.dtype}, but the guarantee was built for {mux.dtype}"
        )
    mux.check_device("x0", x0)
    with torch.no_grad():
        batch = x0.shape[:-1]
        given = mux.input_columns(inputs, batch)
        flat = x0.detach().reshape(-1, mux.out_features)
        known = None if given is None else given.reshape(-1, given.shape[-1])
        broken = ~mux.rules.satisfied(
            x0.detach(), functions=mux.functions or None, **inputs
        ).reshape(-1)
        value = flat.clone()
        if bool(broken.any()):
            rows = mux.computed(flat[broken])
            moved = _moved(mux, rows, None if known is None else known[broken])
            whole = moved.new_zeros(len(flat), moved.shape[-1]).masked_scatter(
                broken.unsqueeze(-1), moved
            )
            refuse_unmoved(whole.reshape(*batch, -1), mux.dtype)
            value[broken] = mux.seen(moved)
    result: Tensor = _WithGradientOf.apply(value.reshape(x0.shape), x0)  # type: ignore[no-untyped-call]
    return result


def _moved(mux: Multiplexer, rows: Tensor, inputs: Tensor | None) -> Tensor:
    """Rows that break the rules, every broken block moved into its nearest term; NaN where there is none."""
    far = min(FAR, torch.finfo(rows.dtype).max)
    result = without_subnormals(torch.nan_to_num(rows)).clamp(-far, far)
    for columns, cascade in mux.cascade_parts():
        result[:, columns] = cascade.nearest(result.index_select(-1, columns), inputs)
    for block, maps in mux.term_parts():
        columns = torch.tensor(
            [mux.compiled.outputs.index(v) for v in block.outputs], device=rows.device
        )
        own = result.index_select(-1, columns)
        obeys = _obeys(mux, block, result, inputs).unsqueeze(-1)
        flags = torch.tensor([v.is_flag for v in block.outputs], device=rows.device)
        result[:, columns] = torch.where(
            obeys, own, _nearest(mux, maps, own, inputs, flags)
        )
    return result


def _obeys(
    mux: Multiplexer, block: Block, rows: Tensor, inputs: Tensor | None
) -> Tensor:
    """Whether each row satisfies one block of the rules, exactly; what other blocks hold does not matter."""
    specification = mux.rules.specification
    variables = tuple(
        v if v in block.outputs or not v.is_discrete else replace(v, domain=Real())
        for v in specification.variables
    )
    part = Specification(variables, (Rule(block.formula, ""),), specification.functions)
    given = (
        {}
        if inputs is None
        else {v.name: inputs[:, i] for i, v in enumerate(mux.compiled.inputs)}
    )
    return verdict(part, mux.seen(rows), given, mux.functions or None)


def _nearest(
    mux: Multiplexer, maps: TermMaps, own: Tensor, inputs: Tensor | None, flags: Tensor
) -> Tensor:
    """For every row the nearest of the points that the terms make of it; NaN if none of them can be met.

    What is missing stays so, and nothing else becomes so, if that can be: it is farther than any number.
    """
    feasible = None
    if inputs is not None:
        feasible = maps.feasible(inputs, functions=mux.functions)
    best = torch.full_like(own, torch.nan)
    distance = own.new_full(own.shape[:-1], torch.inf, dtype=torch.float64)
    step = max(1, CHUNK // max(1, own.numel()))
    for start in range(0, len(maps), step):
        stop = min(start + step, len(maps))
        part = maps if stop - start == len(maps) else maps.terms(start, stop)
        points = part.nearest(own, inputs=inputs, functions=mux.functions)
        moved = points.double() - own.double().unsqueeze(-2)
        changed = (moved.abs() * flags).sum(-1)
        far = moved.square().sum(-1) + CHANGED * changed
        farthest = torch.finfo(far.dtype).max
        far = far.nan_to_num(nan=farthest, posinf=farthest)
        if feasible is not None:
            far = far.masked_fill(~feasible[..., start:stop], torch.inf)
        nearest, k = far.min(-1)
        place = k[..., None, None].expand(*k.shape, 1, own.shape[-1])
        point = points.gather(-2, place).squeeze(-2)
        closer = nearest < distance
        best = torch.where(closer.unsqueeze(-1), point, best)
        distance = torch.where(closer, nearest, distance)
    return best
