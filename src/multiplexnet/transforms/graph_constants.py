"""Constants of a graph for ONNX, in a form that no optimiser takes for 0 or 1.

The proofs need every digit of a table. ONNX Runtime reads a constant of one element as float32 before it asks whether
it is 0 or 1, and leaves out such a sum or product: of float64 tables it would lose margins below 1e-45 and factors
within 2^-25 of 1, such as the width of ``0 < x < 1``. So in such a graph a table is no constant, but a choice between
two equal ones that depends on what goes in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from multiplexnet.transforms.tables import Tabled

__all__ = ["for_onnx", "solid", "solid_tables"]


def for_onnx() -> bool:
    """Whether a graph for ONNX is being recorded."""
    return torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()


def solid(constant: Tensor, like: Tensor) -> Tensor:
    """The constant, as something that a graph has to compute.

    Args:
        constant: any tensor.
        like: a tensor that depends on what goes into the graph.
    """
    whatever = like.detach().double().sum() == 0
    return torch.where(whatever, constant, constant)


@contextmanager
def solid_tables(module: nn.Module, like: Tensor) -> Iterator[None]:
    """The tables of floats of a module and of all inside it, as something that a graph has to compute.

    Args:
        module: whose tables are read while this lasts.
        like: a tensor that depends on what goes into the graph.
    """
    parts = [part for part in module.modules() if isinstance(part, Tabled)]
    held = [(part, part.own_tables()) for part in parts]
    try:
        for part, tables in held:
            floats = {n: t for n, t in tables.items() if t.is_floating_point()}
            vars(part).update({n: solid(t, like) for n, t in floats.items()})
        yield
    finally:
        for part, tables in held:
            vars(part).update(tables)
