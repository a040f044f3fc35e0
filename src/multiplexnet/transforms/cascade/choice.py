"""What a cascade returns for one batch: a choice of an option for every output, made one after another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from multiplexnet.transforms.cascade.map import CascadeMap

__all__ = ["CascadeChoice", "OneTerm"]


@dataclass(frozen=True)
class OneTerm:
    """A cascade in which no output has options, as the map of a single term: losses over terms can have it.

    Args:
        maps: the cascade.
        known: what the inputs of a batch contribute, if that was computed before.
    """

    maps: CascadeMap
    known: list[Tensor] | None = None

    def __len__(self) -> int:
        return 1

    @property
    def training(self) -> bool:
        """Whether NaN stays NaN."""
        return self.maps.training

    def terms(self, start: int, stop: int) -> OneTerm:
        """The terms from ``start`` to ``stop``: the only one."""
        return self

    def __call__(
        self,
        raw: Tensor,
        index: Tensor | None = None,
        *,
        inputs: Tensor | None = None,
        **options: object,
    ) -> Tensor:
        """Its values, ``(*batch, 1, D_b)``; with an index, which is 0 everywhere, ``(*batch, D_b)``."""
        x: Tensor = self.maps(raw, None, inputs, self.known)
        return x.unsqueeze(-2) if index is None else x


@dataclass(frozen=True)
class CascadeChoice:
    """The part of the outputs that a cascade computes.

    Args:
        maps: the cascade.
        raw: the raw values of its outputs, ``(*batch, D_b)``.
        given: the logits of its options, ``(*batch, O)``; ``None`` if no output has more than one.
        columns: the positions of its outputs among all D.
        inputs: the inputs of the rules, ``(*batch, I)``, if there are any.
        known: what they contribute, if that was computed before.
    """

    maps: CascadeMap
    raw: Tensor
    given: Tensor | None
    columns: Tensor
    inputs: Tensor | None = None
    known: list[Tensor] | None = None

    @property
    def as_term(self) -> OneTerm | None:
        """The map of the only term that there is, if no output has options."""
        return OneTerm(self.maps, self.known) if self.given is None else None

    def best(self) -> Tensor:
        """The most probable option of every output, ``(*batch, D_b)``."""
        x: Tensor = self.maps(self.raw, self.given, self.inputs, self.known)
        return x

    def draw(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Options drawn from q, ``(*batch, D_b)``, and their log-probability, ``(*batch,)``."""
        return self.maps.draw(self.raw, self.given, self.inputs, generator, self.known)

    def sample(
        self, generator: torch.Generator | None = None, *, noisy: bool = False
    ) -> Tensor:
        """Options drawn from q, and with ``noisy`` values in them, too."""
        return self.maps.sample(
            self.raw, self.given, self.inputs, generator, self.known, noisy=noisy
        )

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-probability of x, ``(*batch, D_b)``, under ``sample(noisy=True)``: ``(*batch,)``."""
        batch = torch.broadcast_shapes(x.shape[:-1], self.raw.shape[:-1])  # type: ignore[no-untyped-call]
        raw, given, inputs = (
            None if t is None else t.expand(*batch, t.shape[-1])
            for t in (self.raw, self.given, self.inputs)
        )
        assert raw is not None
        return self.maps.log_prob(x.expand(*batch, x.shape[-1]), raw, given, inputs)
