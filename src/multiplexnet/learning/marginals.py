"""Marginals: the distribution of just those raw values that a term reads.

The base of a :class:`~multiplexnet.learning.distribution.RulesDistribution` is a distribution of all raw values, but a
term rarely reads them all: constants and discrete outputs read none, and where equalities hold a term reads as many as
it has dimensions. The density on a term is made from the marginal of the base over the values that the term does read.
Terms that have the same base and read the same values share one :class:`Marginal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Independent, MultivariateNormal

from multiplexnet.errors import InputError, ShapeError

__all__ = ["Marginal", "bases_of", "marginals_of"]


@dataclass(frozen=True)
class Marginal:
    """The distribution of the raw values that some terms of a block read.

    Args:
        base: of those values; with ``picked``, univariate distributions of more values side by side.
        terms: the terms, ``(K',)``.
        columns: the raw values that they read, among those of the block, ``(r,)``.
        picked: the positions of these values in the base.
    """

    base: Any
    terms: Tensor
    columns: Tensor
    picked: Tensor | None

    @property
    def batch_shape(self) -> Size:
        shape = Size(getattr(self.base, "batch_shape", ()))
        return shape if self.picked is None else shape[:-1]

    def log_prob(self, z: Tensor, dtype: torch.dtype) -> Tensor:
        """The log-density of values ``(*batch, r)``; bases other than univariate ones get them in ``dtype``."""
        if self.picked is None:
            return torch.as_tensor(self.base.log_prob(z.to(dtype)))
        every = z.new_zeros(*z.shape[:-1], self.base.batch_shape[-1])
        every = every.index_copy(-1, self.picked, z)
        log_probs = torch.as_tensor(self.base.log_prob(every))
        return self._own(log_probs).sum(-1)

    def rsample(self, sample_shape: Size, batch: Size) -> Tensor:
        """Draws, ``(*sample, *batch, r)``, independent in every row of the batch."""
        if not self.batch_shape:
            return self._own(self.base.rsample(sample_shape + batch))
        side_by_side = () if self.picked is None else self.base.batch_shape[-1:]
        expanded = self.base.expand(Size([*batch, *side_by_side]))
        return self._own(expanded.rsample(sample_shape))

    def mode(self, batch: Size) -> Tensor:
        """The base's mode, ``(*batch, r)``."""
        try:
            mode = self._own(self.base.mode)
        except (AttributeError, NotImplementedError):
            raise NotImplementedError(
                f"the base, {type(self.base).__name__}, has no mode"
            ) from None
        return mode.expand(*batch, mode.shape[-1])

    def _own(self, values: Tensor) -> Tensor:
        return values if self.picked is None else values.index_select(-1, self.picked)


def bases_of(base: Any, sizes: Sequence[int]) -> list[list[Any]]:
    """For every block the base of each of its terms.

    Raises:
        ShapeError: a sequence of another length than there are terms.
        InputError: something that cannot be a base.
    """
    count = sum(sizes)
    bases = list(base) if isinstance(base, Sequence) else [base] * count
    if len(bases) != count:
        raise ShapeError(
            f"found {len(bases)} bases; give one, or one for each of the {count} terms"
        )
    for one in bases:
        if not _can_be_base(one):
            raise InputError(
                f"a base needs log_prob and rsample; {type(one).__name__} has not both"
            )
    rest = iter(bases)
    return [[next(rest) for _ in range(size)] for size in sizes]


def _can_be_base(base: Any) -> bool:
    has_both = hasattr(base, "log_prob") and hasattr(base, "rsample")
    return has_both and bool(getattr(base, "has_rsample", True))


def marginals_of(
    bases: Sequence[Any], reads: Tensor, places: Tensor, whole: int
) -> Iterator[Marginal]:
    """The marginals of a block; a term that reads nothing has none.

    Args:
        bases: one per term.
        reads: which raw values of the block each term reads, ``(K, D_b)``.
        places: where the raw values of the block stand among those of a base, ``(D_b,)``.
        whole: the number of values of a base that is not cut to what a term reads.

    Raises:
        ShapeError: a base whose size does not fit, or whose marginal is not known.
    """
    groups: dict[tuple[int, tuple[bool, ...]], list[int]] = {}
    for k, row in enumerate(reads.tolist()):
        if any(row):
            key = (id(bases[k]), tuple(row))
            groups.setdefault(key, []).append(k)
    for (_, row), terms in groups.items():
        columns = torch.tensor(
            [j for j, read in enumerate(row) if read], device=reads.device
        )
        base, picked = _marginal(bases[terms[0]], places[columns], whole)
        yield Marginal(base, torch.tensor(terms, device=reads.device), columns, picked)


def _marginal(base: Any, wanted: Tensor, whole: int) -> tuple[Any, Tensor | None]:
    """The distribution of some of the raw values, as ``base`` and ``picked`` of a marginal."""
    if not hasattr(base, "event_shape"):  # any object with the two methods
        return base, None
    count = wanted.numel()
    shape = tuple(base.event_shape)
    name = type(base).__name__
    if _is_side_by_side(base):
        return _marginal(base.base_dist, wanted, whole)
    if not shape:
        base = base if base.batch_shape else base.expand(Size([whole]))
        shape = tuple(base.batch_shape[-1:])
        if shape == (whole,):
            return base, wanted
        if shape == (count,):
            return base, torch.arange(count, device=wanted.device)
    if shape == (count,):
        return base, None
    if shape != (whole,):
        fitting = str(whole) if count == whole else f"{whole} or {count}"
        raise ShapeError(
            f"a term reads {count} of {whole} raw values, so that its base lives on {fitting} of them; "
            f"{name} is over {' × '.join(map(str, shape))}"
        )
    if isinstance(base, MultivariateNormal):
        covariance = base.covariance_matrix[..., wanted.unsqueeze(-1), wanted]
        return MultivariateNormal(base.loc[..., wanted], covariance), None
    raise ShapeError(
        f"a term reads {count} of {whole} raw values, and the marginal of {name} over them is not known: give "
        "Independent univariate distributions, a MultivariateNormal, or one base per term over what the term reads"
    )


def _is_side_by_side(base: Any) -> bool:
    """Whether the base is ``Independent`` over univariate distributions."""
    if not isinstance(base, Independent):
        return False
    return base.reinterpreted_batch_ndims == 1 and not base.base_dist.event_shape
