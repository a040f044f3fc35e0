"""One term as torch's own ``Transform``, for ``torch.distributions.TransformedDistribution`` and flow libraries.

The map of a term goes from the r raw values that it reads to the D outputs of its block. It is one to one, onto the
inside of the term. Constants read no raw value, and equalities leave fewer raw values than outputs, so r may be less
than D; the determinant is then that of the coordinates on the lattice of the equalities. For weights that sum to 1 this
is the measure of ``torch.distributions.Dirichlet``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints, transforms

from multiplexnet.language.formula import Specification
from multiplexnet.transforms.base import precision_of
from multiplexnet.transforms.run_time.parameters import Functions
from multiplexnet.transforms.term_maps import TermMaps
from multiplexnet.verdicts.satisfaction import verdict

__all__ = ["TermConstraint", "TermTransform"]


class TermConstraint(constraints.Constraint):
    """The values that satisfy a specification, as a constraint of torch: ``check`` has no tolerance.

    Args:
        specification: the outputs, which are the columns of a value, the inputs, and the rules.
        inputs: for every input its values.
        functions: torch code of the opaque functions by name.
    """

    event_dim = 1

    def __init__(
        self,
        specification: Specification,
        inputs: Mapping[str, Any] | None = None,
        functions: Functions | None = None,
    ) -> None:
        super().__init__()
        self._specification = specification
        self._inputs = dict(inputs or {})
        self._functions = dict(functions or {})

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        """Whether all outputs are."""
        return all(variable.is_discrete for variable in self._specification.outputs)

    def check(self, value: Tensor) -> Tensor:
        """Whether each row of ``value``, ``(*batch, D)``, satisfies the rules exactly."""
        return verdict(
            self._specification, value, self._inputs, self._functions or None
        )

    def __repr__(self) -> str:
        names = ", ".join(variable.name for variable in self._specification.outputs)
        return f"TermConstraint({names})"


class TermTransform(transforms.Transform):
    """The map of one term, ``(*batch, r) → (*batch, D)``.

    ``transform(z)`` satisfies the term exactly, whatever ``z``. ``transform.inv`` and ``log_abs_det_jacobian`` belong
    to the smooth map. ``inv`` reads a float on the boundary as the reals that are rounded to it, so that what it
    returns is finite; raw values come back in the dtype of the maps, but at least in float32.

    Args:
        maps: the maps of the terms of one block.
        term: which of them.
        codomain: the set of the term.
        inputs: ``(*batch, number of inputs)``, if the rules have any.
        functions: torch code of the opaque functions by name.
        cache_size: 1 keeps the last pair of values, as torch's transforms do.

    ``reads`` are the positions of the r raw values that the term reads among those of the block, ``(r,)``.

    Example:
        >>> from fractions import Fraction
        >>> from multiplexnet.geometry.parts import Box
        >>> from multiplexnet.language.formula import Variable
        >>> x = Variable("x", 0)
        >>> maps = TermMaps([[Box((x,), (Fraction(2),), (None,))]], [x], torch.float32)
        >>> above = TermTransform(maps, 0, constraints.independent(constraints.greater_than_eq(2.0), 1))
        >>> base = torch.distributions.Normal(torch.zeros(1), 1.0)
        >>> p = torch.distributions.TransformedDistribution(base, [above])
        >>> bool((p.sample((100,)) >= 2).all()), p.log_prob(torch.tensor([3.0]))
        (True, tensor(-0.6068))
    """

    bijective = True
    domain = constraints.real_vector
    reads: Tensor

    def __init__(
        self,
        maps: TermMaps,
        term: int,
        codomain: constraints.Constraint,
        *,
        inputs: Tensor | None = None,
        functions: Functions | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.codomain = codomain
        self._maps = maps
        self._term = term
        self._inputs = inputs
        self._functions = dict(functions or {})
        reads = maps.reads(inputs=inputs, functions=self._functions)
        self.reads = reads[term].nonzero().squeeze(-1)
        self._width = reads.shape[-1]

    def with_cache(self, cache_size: int = 1) -> TermTransform:
        """The same transform with a cache, or without one."""
        if cache_size == self._cache_size:
            return self
        return TermTransform(
            self._maps,
            self._term,
            self.codomain,
            inputs=self._inputs,
            functions=self._functions,
            cache_size=cache_size,
        )

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """``log |det ∂y/∂x|`` of raw values ``x``, ``(*batch,)``; ``y`` follows from them."""
        raw = self._placed(x)
        _, log_det = self._maps.forward_and_log_det(raw, **self._known(raw))
        return log_det

    def forward_shape(self, shape: Size) -> Size:
        return self._resized(shape, self.reads.numel(), self._width)

    def inverse_shape(self, shape: Size) -> Size:
        return self._resized(shape, self._width, self.reads.numel())

    def _call(self, x: Tensor) -> Tensor:
        raw = self._placed(x)
        y: Tensor = self._maps(raw, **self._known(raw))
        return y

    def _inverse(self, y: Tensor) -> Tensor:
        raw, _ = self._maps.unrounded_and_log_det(y, **self._known(y))
        computing = precision_of(self._maps.dtype).computing
        return raw.index_select(-1, self.reads).to(computing)

    def _placed(self, x: Tensor) -> Tensor:
        """The raw values among all D of the block; 0 for those that the term does not read."""
        raw = x.new_zeros(*x.shape[:-1], self._width)
        return raw.index_copy(-1, self.reads, x)

    def _known(self, rows: Tensor) -> dict[str, Any]:
        """What the maps are told besides ``rows``, ``(*batch, D)``: the term, the inputs and the functions."""
        batch = rows.shape[:-1]
        index = torch.full(batch, self._term, dtype=torch.int64, device=rows.device)
        inputs = self._inputs
        if inputs is not None:
            inputs = inputs.expand(*batch, inputs.shape[-1])
        return {"index": index, "inputs": inputs, "functions": self._functions}

    @staticmethod
    def _resized(shape: Size, found: int, wanted: int) -> Size:
        if shape[-1:] != (found,):
            raise ValueError(
                f"a shape {tuple(shape)}; its last dimension must be {found}"
            )
        return Size([*shape[:-1], wanted])

    def __repr__(self) -> str:
        return f"TermTransform(term={self._term}, from {self.reads.numel()} to {self._width} values)"
