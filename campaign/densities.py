"""Densities in every dtype: the mean of −log p over a layer's own samples is about that of float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from campaign.subject import Finding, Subject
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution

__all__ = ["densities"]

SAMPLES = 2000
CLOSE = 2.0
"""Nats for each output. A density near a bound is lumpy where the floats are sparse, which accounts for about one."""
KIND = "sides"
"""The family of sentences whose sets are some units wide, in any dtype."""


def densities(subject: Subject) -> Iterator[Finding]:
    """Only where the set is wide by construction: elsewhere a dtype may well change the density."""
    if subject.sentence.kind != KIND or subject.mux.dtype is torch.float64:
        return
    wide = Multiplexer.from_compiled(
        subject.mux.rules,
        subject.mux.compiled,
        **{**subject.options, "dtype": torch.float64},
    )
    scale = subject.random.choice([1.0, 2.0, 5.0])
    seed = subject.random.getrandbits(60)
    expected, found = (_mean(mux, scale, seed) for mux in (wide, subject.mux))
    away = abs(found - expected)
    close = away <= CLOSE * subject.mux.out_features
    wrong = (
        ""
        if close
        else f"−E log p is {found:.3g}, in float64 {expected:.3g} (base N(0, {scale:g}²))"
    )
    yield Finding("densities", wrong)


def _mean(mux: Multiplexer, scale: float, seed: int) -> float:
    """−E log p of the layer's own samples."""
    base = torch.distributions.Normal(
        torch.zeros(mux.out_features, dtype=mux.dtype), scale
    )
    own = RulesDistribution(mux, base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        x = own.sample((SAMPLES,))
        return -float(own.log_prob(x).double().mean())
