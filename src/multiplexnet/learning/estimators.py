"""Estimators of E_q[f(x_k)], for when there are too many combinations of terms to sum over.

==========================  =========  ======================================================================
estimator                   unbiased   what it evaluates per row
==========================  =========  ======================================================================
:class:`ScoreFunction`      yes        ``samples`` terms drawn from q; leave-one-out baseline
:class:`TopTerms`           yes        the ``count`` most probable terms, and ``samples`` of the rest
:class:`StraightThrough`    no         one term, with the gradient of the relaxed choice
:class:`Concrete`           no         the relaxed choice itself: a mixture of terms, which need not obey
==========================  =========  ======================================================================

Each is called with :class:`~multiplexnet.layer.branches.Branches` and a loss that maps values ``(*batch, S, D)`` to
``(*batch, S)``; the divergence of q from the prior is never estimated, since it is a sum over blocks.

Example:
    >>> import torch
    >>> import multiplexnet as mx
    >>> branches = mx.Multiplexer(mx.Rules("x >= 2 or x <= -2"))(torch.randn(4, 3))
    >>> mx.estimators.ScoreFunction()(branches, lambda x: x.square().sum(-1)).shape
    torch.Size([4])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from multiplexnet.errors import NestedError
from multiplexnet.layer.branches import Branches, Choice
from multiplexnet.transforms.base import exactly

__all__ = ["Concrete", "Estimator", "ScoreFunction", "StraightThrough", "TopTerms"]

Loss = Callable[[Tensor], Tensor]


class Estimator(ABC):
    """A way to estimate the expected loss over the choice of terms, ``(*batch,)``, and its gradient.

    Example:
        >>> import multiplexnet as mx
        >>> class Best(Estimator):
        ...     def __call__(self, branches, f):
        ...         return f(branches.best().unsqueeze(-2)).squeeze(-1)
        >>> branches = mx.Multiplexer("x >= 2 or x <= -2")(torch.randn(4, 3))
        >>> branches.loss(lambda x: x.square().sum(-1), estimator=Best()).shape
        torch.Size([4])
    """

    @abstractmethod
    def __call__(self, branches: Branches, f: Loss) -> Tensor:
        """The estimate for every row."""


class ScoreFunction(Estimator):
    """Terms drawn from q, weighted by how much better they do than the other draws (Kool et al., 2019).

    ∇E_q[f] = E_q[∇f + (f − b) ∇log q], where the baseline b of a draw is the mean loss of the other draws.

    Args:
        samples: how many terms are drawn per row; at least 2.
        generator: where the draws come from.

    Example:
        >>> import multiplexnet as mx
        >>> branches = mx.Multiplexer("x >= 2 or x <= -2")(torch.randn(4, 3))
        >>> estimator = ScoreFunction(samples=8)
        >>> branches.loss(lambda x: x.square().sum(-1), estimator=estimator).shape
        torch.Size([4])
    """

    def __init__(
        self, samples: int = 4, *, generator: torch.Generator | None = None
    ) -> None:
        if samples < 2:
            raise ValueError(
                f"samples = {samples}: the baseline of a draw is the mean of the others; take at least 2"
            )
        self.samples = samples
        self.generator = generator

    def __call__(self, branches: Branches, f: Loss) -> Tensor:
        draws = [branches.draw(self.generator) for _ in range(self.samples)]
        losses = f(torch.stack([x for x, _ in draws], -2))
        log_q = torch.stack([log_q for _, log_q in draws], -1)
        return _scored(losses, log_q, _others(losses)).mean(-1)


class TopTerms(Estimator):
    """The most probable terms summed exactly, the rest sampled (Liu et al., 2019).

    Σ_k q_k f_k = Σ_{k in top} q_k f_k + (1 − q(top)) E[f_k | k not in top]. What is sampled carries little weight, so
    the variance is small once q has made up its mind.

    Args:
        count: how many terms are summed per row.
        samples: how many of the rest are drawn.
        generator: where the draws come from.

    Example:
        >>> import multiplexnet as mx
        >>> branches = mx.Multiplexer("x >= 2 or x <= -2")(torch.randn(4, 3))
        >>> estimator = TopTerms(count=1, samples=2)
        >>> branches.loss(lambda x: x.square().sum(-1), estimator=estimator).shape
        torch.Size([4])
    """

    def __init__(
        self,
        count: int = 8,
        samples: int = 2,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        if count < 1 or samples < 1:
            raise ValueError(
                f"count = {count}, samples = {samples}: take at least one of each"
            )
        self.count = count
        self.samples = samples
        self.generator = generator

    def __call__(self, branches: Branches, f: Loss) -> Tensor:
        log_q = branches.log_probs
        top = log_q.detach().topk(min(self.count, log_q.shape[-1]), -1).indices
        values = f(
            torch.stack(
                [branches.at_combination(k) for k in _met(top, log_q).unbind(-1)], -2
            )
        )
        q = log_q.gather(-1, top).exp()
        exact = torch.where(q > 0, q * values, 0.0).sum(-1)
        if top.shape[-1] == log_q.shape[-1]:
            return exact
        return exact + self._rest(
            branches, f, log_q.scatter(-1, top, -torch.inf), top[..., :1]
        )

    def _rest(self, branches: Branches, f: Loss, log_q: Tensor, best: Tensor) -> Tensor:
        """Σ q_k f_k over terms whose log q is not −inf, from draws among them; ``best`` if nothing is left."""
        mass = log_q.exp().sum(-1, keepdim=True)
        draws = torch.stack(
            [_drawn(log_q.detach(), self.generator) for _ in range(self.samples)], -1
        )
        chosen = log_q.gather(-1, draws)
        met = torch.where(chosen.isneginf(), best, draws)
        losses = f(
            torch.stack([branches.at_combination(k) for k in met.unbind(-1)], -2)
        )
        drawn = torch.where(
            chosen.isneginf(), 0.0, chosen
        )  # only if nothing at all is left, and then mass = 0
        baseline = _others(losses) if self.samples > 1 else torch.zeros_like(losses)
        scored = mass.detach() * _scored(losses, drawn, baseline) + baseline * (
            mass - mass.detach()
        )
        return torch.where(mass > 0, scored, 0.0).mean(-1)


class Concrete(Estimator):
    """The relaxed choice y = softmax((log q + Gumbel noise) / temperature), and the mixture Σ_k y_k x_k it makes.

    A mixture of terms need not obey the rules: this is for training alone. (Maddison et al., 2017; Jang et al., 2017.)

    Args:
        temperature: small is close to a choice, with gradients of high variance.
        generator: where the noise comes from.

    Example:
        >>> import multiplexnet as mx
        >>> branches = mx.Multiplexer("x >= 2 or x <= -2")(torch.randn(4, 3))
        >>> estimator = Concrete(temperature=0.5)
        >>> branches.loss(lambda x: x.square().sum(-1), estimator=estimator).shape
        torch.Size([4])
    """

    def __init__(
        self, temperature: float = 1.0, *, generator: torch.Generator | None = None
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature = {temperature}: it must be positive")
        self.temperature = temperature
        self.generator = generator

    def __call__(self, branches: Branches, f: Loss) -> Tensor:
        if any(choice.inner for choice in branches.choices):
            raise NestedError("relaxed choices")
        return f(
            branches.ordered(
                [self._value(choice) for choice in branches.choices]
            ).unsqueeze(-2)
        ).squeeze(-1)

    def _value(self, choice: Choice) -> Tensor:
        return self._relaxed(choice)[1]

    def _relaxed(self, choice: Choice) -> tuple[Tensor, Tensor]:
        """The relaxed choice ``(*batch, K)`` and its mixture ``(*batch, D_b)``."""
        noisy = choice.log_probs + _gumbel(choice.log_probs, self.generator)
        weights = torch.softmax(noisy / self.temperature, -1)
        x = choice.terms(0, choice.size, choice.stand_in())
        return weights, (weights.unsqueeze(-1) * x).sum(-2)


class StraightThrough(Concrete):
    """One term per row, drawn from q, with the gradient of :class:`Concrete`: what the loss sees obeys the rules.

    Example:
        >>> import multiplexnet as mx
        >>> branches = mx.Multiplexer("x >= 2 or x <= -2")(torch.randn(4, 3))
        >>> estimator = StraightThrough(temperature=0.5)
        >>> branches.loss(lambda x: x.square().sum(-1), estimator=estimator).shape
        torch.Size([4])
    """

    def _value(self, choice: Choice) -> Tensor:
        weights, mixture = self._relaxed(choice)
        return exactly(choice.at(weights.argmax(-1)), mixture)


# --- draws ----------------------------------------------------------------------------------------------------------


def _gumbel(like: Tensor, generator: torch.Generator | None) -> Tensor:
    uniform = torch.rand(
        like.shape, generator=generator, dtype=torch.float64, device=like.device
    )
    return -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16))).to(like.dtype)


def _drawn(log_q: Tensor, generator: torch.Generator | None) -> Tensor:
    return (log_q + _gumbel(log_q, generator)).argmax(-1)


def _met(index: Tensor, log_q: Tensor) -> Tensor:
    """The chosen terms, the first of them in place of those that cannot be met: their losses do not count."""
    cannot = log_q.gather(-1, index).isneginf()
    first = index[..., :1]
    return torch.where(cannot, first, index)


def _others(losses: Tensor) -> Tensor:
    """For each draw the mean loss of the other draws."""
    fixed = losses.detach()
    return (fixed.sum(-1, keepdim=True) - fixed) / (losses.shape[-1] - 1)


def _scored(losses: Tensor, log_q: Tensor, baseline: Tensor) -> Tensor:
    """The losses, with the gradient ∇f + (f − b) ∇log q."""
    return losses + (losses - baseline).detach() * (log_q - log_q.detach())
