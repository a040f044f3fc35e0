"""What goes into the layers: raw values of every size, and inputs within their declared ranges."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, isfinite, nan
from random import Random

import torch
from torch import Tensor

from campaign.sentences import Declared

__all__ = ["extreme_values", "input_values", "raw_rows"]

WIDE = (0.0, 1.0, -3.3, 202.0, 1e4, -6e4)
"""Inputs without a declared range."""


def raw_rows(
    count: int,
    width: int,
    dtype: torch.dtype,
    generator: torch.Generator,
    *,
    with_nan: bool = False,
) -> Tensor:
    """Rows of N(0, 1), N(0, 30²), ±1e4, ±1e30, N(0, 1e30²), ±inf, subnormal, zero, and all of these mixed."""
    z = torch.randn(count, width, generator=generator, dtype=torch.float64)
    sign = z.sign()
    tiny = torch.finfo(dtype).smallest_normal * torch.rand(
        count, width, generator=generator, dtype=torch.float64
    )
    kinds = torch.stack(
        [z, 30 * z, 1e4 * sign, 1e30 * sign, 1e30 * z, inf * sign, tiny * sign, 0 * z]
    )
    chosen = torch.randint(len(kinds) + 4, (count, 1), generator=generator).expand(
        count, width
    )
    each = torch.randint(len(kinds), (count, width), generator=generator)
    mixed = torch.where(chosen < len(kinds), chosen, each)
    raw = kinds.gather(0, mixed.unsqueeze(0)).squeeze(0)
    if with_nan:
        raw = raw.masked_fill(torch.rand(count, width, generator=generator) < 0.02, nan)
    return raw.to(dtype)


def input_values(
    declared: Declared,
    dtype: torch.dtype,
    generator: torch.Generator,
    constants: Sequence[Fraction] = (),
) -> list[float]:
    """A few numbers of the dtype within the declared range, its ends or the numbers next to them included.

    ``constants`` are numbers that the rules compare inputs with: they and their neighbours are tried as well.
    """
    edges = torch.tensor(_numbers([float(c) for c in constants], dtype), dtype=dtype)
    close = [
        v
        for side in (-inf, inf)
        for v in torch.nextafter(edges, torch.full_like(edges, side)).tolist()
    ]
    near = [value for value in (*edges.tolist(), *close) if isfinite(value)]
    if declared.lower is None or declared.upper is None:
        return sorted({*(v for v in _numbers(WIDE, dtype) if isfinite(v)), *near})
    low = declared.lower
    high = declared.upper
    shares = [
        0.0,
        1.0,
        0.5,
        *torch.rand(3, generator=generator, dtype=torch.float64).tolist(),
    ]
    offers = [float(low + (high - low) * Fraction(share)) for share in shares]
    tensor = torch.tensor(_numbers(offers, dtype), dtype=dtype)
    middle = torch.tensor(_numbers([float((low + high) / 2)], dtype), dtype=dtype)
    inward = torch.nextafter(tensor, middle.expand_as(tensor))
    found = {
        value
        for value in (*tensor.tolist(), *inward.tolist(), *near)
        if isfinite(value)
    }
    return sorted(value for value in found if low <= Fraction(value) <= high)


def extreme_values(
    declared: Declared, dtype: torch.dtype, random: Random
) -> list[float]:
    """Numbers of the dtype within the declared range: its ends, those of the format, subnormal ones, any magnitude."""
    info = torch.finfo(dtype)
    sizes = [
        info.max,
        info.max / 2,
        info.smallest_normal,
        info.smallest_normal / 2,
        info.smallest_normal * info.eps,
    ]
    least = Fraction(info.smallest_normal * info.eps)
    most = Fraction(info.max)
    powers = [Fraction(10) ** k for k in (random.randint(-320, 308) for _ in range(6))]
    sizes += [float(power) for power in powers if least <= power <= most]
    ends = [
        end
        for end in (declared.lower, declared.upper)
        if end is not None and abs(end) <= most
    ]
    offers = [0.0, 1.0, -1.0, *sizes, *(-size for size in sizes)]
    edges = torch.tensor(_numbers([float(end) for end in ends], dtype), dtype=dtype)
    near = [
        v
        for side in (-inf, inf)
        for v in torch.nextafter(edges, torch.full_like(edges, side)).tolist()
    ]
    found = {
        value
        for value in (*_numbers(offers, dtype), *edges.tolist(), *near)
        if isfinite(value)
    }
    low = declared.lower
    high = declared.upper
    return sorted(
        value
        for value in found
        if (low is None or low <= Fraction(value))
        and (high is None or Fraction(value) <= high)
    )


def _numbers(values: Sequence[float], dtype: torch.dtype) -> list[float]:
    return [
        float(value)
        for value in torch.tensor(values, dtype=torch.float64).to(dtype).tolist()
    ]
