"""What a layer says of itself: its size, its cascades and why there are any, the steps between values."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.structure import reason, rule_parts
from multiplexnet.exact.formats import FORMATS
from multiplexnet.transforms.base import dtype_name

if TYPE_CHECKING:
    from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["description", "reasons", "resolution"]

SIZES = 8
"""Sizes of blocks that are written out."""

NAMES = 3
"""Names of outputs that are written out."""


def description(mux: Multiplexer) -> str:
    """The layer in one line, for ``print``."""
    parts = [f"in_features={mux.in_features}", f"out_features={mux.out_features}"]
    sizes = mux.layout.sizes
    if sizes:
        more = " × …" if len(sizes) > SIZES else ""
        parts.append(f"terms={' × '.join(map(str, sizes[:SIZES]))}{more}")
    if any(maps.has_centres for maps in mux.block_term_maps):
        parts.append(
            "dense sets that inputs move (random raw values seldom reach their ends)"
        )
    parts += [_cascade_text(cascade, why) for cascade, why in mux.reasons.items()]
    parts.append(f"dtype={dtype_name(mux.dtype)}")
    if mux.device.type != "meta":  # where tables cannot be read
        steps = mux.resolution.values()
        if steps:
            parts.append(f"coarsest_step={float(max(steps)):.3g}")
    return ", ".join(parts)


def _cascade_text(cascade: Cascade, why: str) -> str:
    visible = set(cascade.visible)
    order = [v.name for v in cascade.order if v in visible]
    named = ", ".join(order)
    if len(order) > NAMES:
        named = f"{order[0]}, {order[1]}, …, {order[-1]}"
    options = sum(step.size for step in cascade.steps if step.size > 1)
    outputs = f"{len(order)} output{'s' if len(order) > 1 else ''}"
    return f"cascade of {outputs} with {options} options ({why}; order {named})"


def reasons(mux: Multiplexer) -> dict[Cascade, str]:
    """The cascades, and why each of them was taken instead of terms."""
    if not mux.cascades:
        return {}
    parts = {part.outputs: part for part in rule_parts(mux.rules.specification)}
    form = FORMATS[dtype_name(mux.dtype)]
    return {
        cascade: reason(parts[cascade.visible], mux.compiled.inputs, form)
        for cascade in mux.cascades
    }


def resolution(mux: Multiplexer) -> dict[str, Fraction]:
    """By name, the steps of outputs on a lattice; of several terms the coarsest."""
    steps: dict[int, Fraction] = {}
    for columns, maps in zip(mux.layout.columns, mux.block_term_maps, strict=False):
        for column, step in zip(columns, maps.resolution(), strict=True):
            steps[column] = max(step, steps.get(column, Fraction(0)))
    for own, cascade in mux.cascade_parts():
        steps |= zip(own.tolist(), cascade.cascade.spacing, strict=False)
    return {
        v.name: steps[j] * v.unit.size
        for j, v in enumerate(mux.rules.outputs)
        if steps.get(j)
    }
