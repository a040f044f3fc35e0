"""The exact objective, streamed and stacked: time and memory of a training step for K terms, side by side.

    python benchmarks/objective.py [--quick]

*Streamed* is ``branches.loss``: a chunk of terms at a time, computed again when the gradient is taken. *Stacked* is the
textbook form, autograd through all values ``branches.x`` of shape (B, K, D). Both give the same number. Boxes in ten
dimensions, batch 1,024, float32, one thread; seconds of processor time, memory as a share of one (B, K, D) tensor.
"""

from __future__ import annotations

import argparse
from math import log

import torch
from layer import boxes, peak_bytes, turns
from torch import Tensor

from multiplexnet.layer.multiplexer import Multiplexer


def measured(
    count: int, batch: int = 1024, width: int = 10
) -> tuple[list[float], list[float], float]:
    """Seconds and memory of both forms, and how far their losses differ, relatively."""
    rules, compiled = boxes(count, width)
    mux = Multiplexer.from_compiled(rules, compiled, dtype=torch.float32)
    raw = torch.randn(batch, mux.in_features, requires_grad=True)
    target = torch.randn(batch, 1, width)

    def losses(x: Tensor) -> Tensor:
        return (x - target).square().sum(-1)

    def streamed() -> Tensor:
        loss: Tensor = mux(raw).loss(losses).mean()
        return loss

    def stacked() -> Tensor:
        branches = mux(raw)
        q = branches.log_probs.exp()
        loss: Tensor = (
            (q * (losses(branches.x) + log(count) + branches.log_probs)).sum(-1).mean()
        )
        return loss

    def step(loss: object) -> None:
        raw.grad = None
        loss().backward()  # type: ignore[operator]

    seconds = turns(lambda: step(streamed), lambda: step(stacked), seconds=0)
    raw.grad = None
    memory = []
    for loss in (streamed, stacked):
        raw.grad = None
        memory.append(
            peak_bytes(lambda loss=loss: step(loss)) / (4 * batch * count * width)  # type: ignore[misc]
        )
    apart = float((streamed() - stacked()).detach().abs() / stacked().detach().abs())
    return seconds, memory, apart


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="up to 1,000 terms")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        "     K   streamed s  stacked s   ratio   streamed memory  stacked memory   losses differ by"
    )
    for count in (100, 1000) if options.quick else (100, 1000, 3000, 10_000):
        (fast, slow), (small, large), apart = measured(count)
        print(
            f"{count:>6,}   {fast:10.3f} {slow:10.3f} {slow / fast:7.1f}   {small:15.2f} {large:15.2f}   {apart:16.1e}"
        )


if __name__ == "__main__":
    main()
