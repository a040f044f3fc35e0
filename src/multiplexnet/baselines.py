"""Baselines from the same rules: losses that pull a network towards them and guarantee nothing.

One formula serves every comparison. It is brought into normal form, so that only comparisons, *and* and *or* are left:

======================  =====================  ==================  ===================
loss                    a·x ≤ b                and                 or
======================  =====================  ==================  ===================
:func:`dl2_loss`        max(0, a·x − b)        sum                 minimum, row by row
:func:`penalty`         max(0, a·x − b)²       sum                 minimum, row by row
======================  =====================  ==================  ===================

:func:`semantic_loss` is −log of the probability that discrete outputs obey, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from multiplexnet.errors import ShapeError
from multiplexnet.finite import FiniteTerms, LogProbs
from multiplexnet.logic.formula import And, Atom, Formula, Linear, Or, Relation, Variable
from multiplexnet.logic.normal import normal_form
from multiplexnet.rules import Rules
from multiplexnet.transforms.known import Functions, symbol_value

__all__ = ["dl2_loss", "penalty", "semantic_loss"]

Amount = Callable[[Tensor, Relation], Tensor]

MARGIN = 1e-6
"""What a strict comparison asks for beyond equality, so that a point on an open bound is not free of loss."""


def dl2_loss(rules: Rules, x: Tensor, *, functions: Functions | None = None, **inputs: Any) -> Tensor:
    """The loss of DL2 (Fischer et al., ICML 2019), with the minimum for *or*.

    The paper on DL2 multiplies the losses of a disjunction; the minimum has the same zeros and keeps its scale.

    Args:
        rules: what should hold.
        x: outputs, ``(*batch, D)``.
        functions: for every opaque function its torch code.
        inputs: for every input its values.

    Returns:
        One loss per row, ``(*batch,)``; zero exactly where the rules hold with floats, up to the margin of ``<``.

    Example:
        >>> dl2_loss(Rules("x >= 2 or x <= -2"), torch.tensor([[1.5], [-3.0], [-1.0]]))
        tensor([0.5000, 0.0000, 1.0000])
    """
    return _evaluated(rules, x, functions or {}, inputs, _hinge)


def penalty(rules: Rules, x: Tensor, *, functions: Functions | None = None, **inputs: Any) -> Tensor:
    """The quadratic penalty: squared violations, summed over *and*, the smallest over *or*. Arguments as above.

    Example:
        >>> penalty(Rules("0 <= x <= 1"), torch.tensor([[3.0], [0.5]]))
        tensor([4., 0.])
    """
    return _evaluated(rules, x, functions or {}, inputs, lambda v, relation: _hinge(v, relation).square())


def semantic_loss(terms: FiniteTerms, log_q: LogProbs) -> Tensor:
    """The semantic loss (Xu et al., ICML 2018): −log of the probability that independent labels obey, ``(*batch,)``.

    Example:
        >>> terms = FiniteTerms(Rules("a: bool; b: bool; a or b"))
        >>> semantic_loss(terms, torch.full((2, 2), 0.5).log()).exp()
        tensor(1.3333)
    """
    return -terms.log_satisfaction(log_q)


def _hinge(value: Tensor, relation: Relation) -> Tensor:
    if relation == "==":
        return value.abs()
    return torch.relu(value + MARGIN if relation == "<" else value)


def _evaluated(rules: Rules, x: Tensor, functions: Functions, inputs: Mapping[str, Any], amount: Amount) -> Tensor:
    if x.dim() == 0 or x.shape[-1] != len(rules.outputs):
        raise ShapeError(f"x has shape {tuple(x.shape)}; its last dimension must be the {len(rules.outputs)} outputs")
    columns = dict(zip(rules.outputs, x.unbind(-1), strict=True))
    given = rules.scalar_inputs(inputs)
    for variable in rules.inputs:
        columns[variable] = torch.as_tensor(given[variable.name], dtype=x.dtype, device=x.device).expand(x.shape[:-1])
    return _loss(normal_form(rules.formula), columns, functions, amount, x.new_zeros(x.shape[:-1]))


def _loss(
    formula: Formula, columns: Mapping[Variable, Tensor], functions: Functions, amount: Amount, zero: Tensor
) -> Tensor:
    match formula:
        case Atom(linear, relation):
            return amount(_value(linear, columns, functions, zero), relation)
        case And(arguments):
            return sum((_loss(a, columns, functions, amount, zero) for a in arguments), zero)
        case Or(arguments):
            options = [_loss(a, columns, functions, amount, zero) for a in arguments]
            return reduce(torch.minimum, options) if options else zero + torch.inf
    raise TypeError(f"not in normal form: {formula!r}")


def _value(linear: Linear, columns: Mapping[Variable, Tensor], functions: Functions, zero: Tensor) -> Tensor:
    value = zero + float(linear.constant)
    for symbol, c in linear.terms:
        value = value + float(c) * symbol_value(symbol, columns.__getitem__, functions, zero.dtype)
    return value
