"""Several processes that learn together: each takes a part of every batch, and gradients are added up.

They are started by ``torchrun`` or ``accelerate launch``. What one process would decide by its clock, the first one
decides for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from multiplexnet.errors import install, needing

__all__ = ["Processes", "launched"]


@dataclass(frozen=True)
class Processes:
    """This process, and how many there are.

    Args:
        number: of this one, from 0 on.
        count: of all.
    """

    number: int = 0
    count: int = 1

    @staticmethod
    def present() -> Processes:
        """Those of ``torch.distributed`` if it has begun, as Accelerate does; else this one alone."""
        if distributed.is_available() and distributed.is_initialized():
            return Processes(distributed.get_rank(), distributed.get_world_size())
        return Processes()

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def part(self, rows: Tensor) -> Tensor:
        """The rows of a batch that this process looks at."""
        return rows[self.number :: self.count]

    def add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        """Give all processes the sum of their gradients."""
        if self.count == 1:
            return
        gradients = [own.grad for own in parameters if own.grad is not None]
        flat = torch.cat([own.flatten() for own in gradients])
        distributed.all_reduce(flat)
        parts = torch.split(flat, [own.numel() for own in gradients])
        for own, found in zip(gradients, parts, strict=True):
            own.copy_(found.view_as(own))

    @torch.no_grad()
    def follow_first(self, tensors: Iterable[Tensor]) -> None:
        """Give all processes the numbers of the first."""
        if self.count > 1:
            for own in tensors:
                distributed.broadcast(own, 0)

    def of_first(self, number: float) -> float:
        """What the first process has found."""
        if self.count == 1:
            return number
        told = torch.tensor([number], dtype=torch.float64)
        self.follow_first([told])
        return float(told)

    def as_first(self, verdict: bool) -> bool:
        """What the first process has decided: clocks of others may differ."""
        return bool(self.of_first(verdict))


def launched() -> Processes:
    """The processes that a launcher has started with this one; they know each other from here on.

    Raises:
        MissingLibrary: there are several, and Accelerate is not installed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        with needing(
            "accelerate", "learning in several processes", install("experiments")
        ):
            from accelerate import Accelerator
        Accelerator(cpu=True)
    return Processes.present()
