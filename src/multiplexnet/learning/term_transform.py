"""One term of a layer as torch's own ``Transform``."""

from __future__ import annotations

from typing import Any

import torch

from multiplexnet.errors import DomainError, OptionError, ShapeError
from multiplexnet.language.formula import Rule, Specification
from multiplexnet.layer.checks import refuse_roomless
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.transforms.as_torch import TermConstraint, TermTransform

__all__ = ["term_transform"]


def term_transform(
    mux: Multiplexer, term: int = 0, block: int = 0, **inputs: Any
) -> TermTransform:
    """One term of a layer as torch's own ``Transform``, over the outputs of its block.

    ``torch.distributions.TransformedDistribution(base, [term_transform(mux)])`` is then a distribution on the term;
    its base is a distribution of the raw values that the term reads. A distribution over all terms and blocks is
    :class:`~multiplexnet.learning.distribution.RulesDistribution`.

    Args:
        mux: the compiled rules.
        term: the position of the term in ``mux.blocks[block].terms``.
        block: the position of the block in ``mux.blocks``.
        inputs: values of the inputs of the rules, one for every row of the batch.

    Raises:
        ShapeError: there is no such block or term.
        InputError: inputs that are missing, or that leave no room in this term.
        NestedError: the rules have too many plain terms and were decomposed.

    Example:
        >>> from multiplexnet import Multiplexer, Rules
        >>> above = term_transform(Multiplexer(Rules("x > 5")))
        >>> above.inv(torch.tensor([5.5])), above(above.inv(torch.tensor([5.5])))
        (tensor([-0.4328]), tensor([5.5000]))
        >>> above.codomain.check(torch.tensor([[5.0], [5.5]]))
        tensor([False,  True])
    """
    if not isinstance(mux, Multiplexer):
        raise OptionError("mux", mux, "a Multiplexer, as in term_transform(mux, 0)")
    if mux.holes is not None:
        raise DomainError(
            "outputs that may be missing: a term of them is a choice and not a map; use RulesDistribution, or rules "
            "without `?`"
        )
    pairs = list(mux.block_maps())
    if not 0 <= block < len(pairs):
        raise ShapeError(
            f"block {block} of rules with {len(pairs)} blocks; they are counted from 0"
        )
    own, maps = pairs[block]
    if not 0 <= term < len(maps):
        raise ShapeError(
            f"term {term} of a block with {len(maps)} terms; they are counted from 0"
        )
    scalars = mux.rules.scalar_inputs(inputs)
    shapes = [torch.as_tensor(value).shape for value in scalars.values()]
    batch = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    given = mux.input_columns(inputs, batch)
    if given is not None:
        feasible = maps.feasible(given, functions=mux.functions)
        wanted = None if feasible is None else feasible[..., term : term + 1]
        refuse_roomless(given, [wanted], mux.compiled.inputs, mux.dtype)
    rules = (Rule(own.terms[term].formula, ""),)
    written = mux.rules.specification
    specification = Specification(
        (*own.outputs, *written.inputs), rules, written.functions
    )
    codomain = TermConstraint(specification, scalars, mux.functions)
    return TermTransform(maps, term, codomain, inputs=given, functions=mux.functions)
