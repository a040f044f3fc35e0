"""Eager, compiled and exported: the same layer, the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from multiplexnet.branches import Branches
from multiplexnet.layer import Multiplexer

__all__ = ["same_in_graphs"]


class _Best(nn.Module):
    """A layer that ends in its best term, as one would deploy it."""

    def __init__(self, mux: Multiplexer) -> None:
        super().__init__()
        self.mux = mux
        self.train(mux.training)

    def forward(self, raw: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        branches: Branches = self.mux(raw, **inputs)
        return branches.best()


def same_in_graphs(
    mux: Multiplexer, raw: Tensor, inputs: Mapping[str, Tensor], *, inductor: bool
) -> Iterator[tuple[str, str, Tensor | None]]:
    """The name of each kind of graph, what is wrong with it (nothing: an empty text), and the values it gives.

    Kernels that torch writes itself (``inductor``) may give other bits, and have to obey all the same.
    """
    given, best = dict(inputs), _Best(mux)
    expected = best(raw, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about torch
        traced = torch.compile(best, fullgraph=True, backend="aot_eager")(raw, given)
        yield "aot_eager", _difference(expected, traced), traced
        program = torch.export.export(best, (raw, given))
        exported = program.module()(raw, given)
        yield "export", _difference(expected, exported), exported
        if inductor:
            generated = torch.compile(best, fullgraph=True)(raw, given)
            yield "inductor", "", generated
        torch.compiler.reset()


def _difference(expected: Tensor, found: Tensor) -> str:
    if torch.equal(expected, found):
        return ""
    row = int((expected != found).any(-1).nonzero()[0, 0])
    return f"row {row} is {found[row].tolist()}, eager {expected[row].tolist()}"
