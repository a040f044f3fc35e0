"""Baselines from the same rules: losses that pull a network towards them and guarantee nothing.

One formula serves every comparison. Its comparisons keep the scale in which they are written:

======================  =====================  =============  ==================  ===================
loss                    a ≤ b, a < b           a = b          and                 or
======================  =====================  =============  ==================  ===================
:func:`dl2_loss`        max(0, a − b)          \\|a − b\\|      sum                 minimum, row by row
:func:`penalty`         max(0, a − b)²         (a − b)²       sum                 minimum, row by row
======================  =====================  =============  ==================  ===================

*not* is moved inwards first; *iff* is «both or neither»; an implication is a disjunction. :func:`semantic_loss` is −log
of the probability that discrete outputs obey, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from multiplexnet.arguments import refuse_other_kind
from multiplexnet.errors import ShapeError
from multiplexnet.geometry.magnitudes import refuse_far_rows
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Formula,
    Iff,
    Ite,
    Linear,
    Max,
    Norm,
    Not,
    Or,
    Product,
    Relation,
    Symbol,
    Variable,
    nearest_to_zero,
)
from multiplexnet.layer.checks import refuse_no_tensor, refuse_unknown_functions
from multiplexnet.learning.finite import FiniteTerms, LogProbs
from multiplexnet.rules import Rules, rules_of

__all__ = ["dl2_loss", "penalty", "semantic_loss"]

Functions = Mapping[str, Callable[..., Tensor]]
Amount = Callable[[Tensor, Relation], Tensor]

MARGIN = 1e-6
"""What a strict comparison asks for beyond equality, so that a point on an open bound is not free of loss."""

FLIPPED = 1e6
"""What it costs that a value is missing or is not, against the rules: no gradient leads from one to the other."""


def dl2_loss(
    rules: Rules | str, x: Tensor, *, functions: Functions | None = None, **inputs: Any
) -> Tensor:
    """The loss of DL2 (Fischer et al., ICML 2019), with the minimum for *or*.

    The paper on DL2 multiplies the losses of a disjunction; the minimum has the same zeros and keeps the scale. It is
    taken for every row by itself.

    Args:
        rules: what should hold. Domains of discrete outputs are no part of the loss.
        x: outputs, ``(*batch, D)``.
        functions: for every opaque function its torch code.
        inputs: for every input its values, ``(*batch,)`` or a number.

    Returns:
        One loss per row, ``(*batch,)``; zero where the rules hold as the floats of ``x.dtype`` compute them, strict
        comparisons by a margin of 1e-6.

    Raises:
        ShapeError, InputError: what was found and what was expected.

    Example:
        >>> dl2_loss(Rules("x >= 2 or x <= -2"), torch.tensor([[1.5], [-3.0], [-1.0]]))
        tensor([0.5000, 0.0000, 1.0000])
    """
    return _loss(rules, x, functions, inputs, _hinge)


def penalty(
    rules: Rules | str, x: Tensor, *, functions: Functions | None = None, **inputs: Any
) -> Tensor:
    """The quadratic penalty: squared violations, summed over *and*, the smallest over *or*. Arguments as above.

    Example:
        >>> penalty(Rules("0 <= x <= 1"), torch.tensor([[3.0], [0.5]]))
        tensor([4., 0.])
    """
    return _loss(
        rules,
        x,
        functions,
        inputs,
        lambda value, relation: _hinge(value, relation).square(),
    )


def semantic_loss(terms: FiniteTerms, log_q: LogProbs) -> Tensor:
    """The semantic loss (Xu et al., ICML 2018): −log of the probability that independent labels obey, ``(*batch,)``.

    Args:
        terms: the assignments that obey.
        log_q: log-probabilities of the labels, as for :class:`FiniteTerms`.

    Example:
        >>> terms = FiniteTerms(Rules("a: bool; b: bool; a or b"))
        >>> semantic_loss(terms, torch.full((2, 2), 0.5).log()).exp()
        tensor(1.3333)
    """
    refuse_other_kind(
        "terms", terms, FiniteTerms, "what obeys, as mx.FiniteTerms(rules) finds it"
    )
    return -terms.log_satisfaction(log_q)


def _hinge(value: Tensor, relation: Relation) -> Tensor:
    if relation == "==":
        return value.abs()
    return torch.relu(value + MARGIN if relation == "<" else value)


def _loss(
    rules: Rules | str,
    x: Tensor,
    functions: Functions | None,
    inputs: Mapping[str, Any],
    amount: Amount,
) -> Tensor:
    rules = rules_of(rules)
    refuse_no_tensor("x", x)
    if x.dim() == 0 or x.shape[-1] != len(rules.outputs):
        raise ShapeError(
            f"x has shape {tuple(x.shape)}; its last dimension must be the {len(rules.outputs)} outputs"
        )
    refuse_unknown_functions(rules.specification.functions, functions or {})
    columns = dict(zip(rules.outputs, x.unbind(-1), strict=True))
    given = rules.scalar_inputs(inputs)
    for variable, flag in rules.specification.flags.items():
        missing = columns[variable].isnan()
        number = float(nearest_to_zero(variable.domain))
        columns[variable] = torch.where(missing, number, columns[variable])
        columns[flag] = missing.to(x.dtype)
    for variable in rules.inputs:
        columns[variable] = _spread(variable, given[variable.name], x)
    return _Walk(columns, functions or {}, amount, x.new_zeros(x.shape[:-1])).loss(
        rules.formula, True
    )


def _spread(variable: Variable, value: Any, x: Tensor) -> Tensor:
    """The values of an input, one for every row."""
    tensor = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    try:
        return tensor.expand(x.shape[:-1])
    except RuntimeError:
        raise ShapeError(
            f"input {variable.name} has shape {tuple(tensor.shape)}; one value per row is {tuple(x.shape[:-1])}"
        ) from None


class _Walk:
    """The loss of formulas over given columns.

    Args:
        columns: the values of every variable, ``(*batch,)``.
        functions: torch code of opaque functions.
        amount: the loss of ``value relation 0``.
        zero: of the batch's shape.
    """

    def __init__(
        self,
        columns: Mapping[Variable, Tensor],
        functions: Functions,
        amount: Amount,
        zero: Tensor,
    ) -> None:
        self._columns = columns
        self._functions = functions
        self._amount = amount
        self._zero = zero
        self._losses: dict[
            tuple[Formula, bool], Tensor
        ] = {}  # nested iff would double the work at every level

    def loss(self, formula: Formula, positive: bool) -> Tensor:
        """The loss of the formula, or of its negation."""
        if (formula, positive) not in self._losses:
            self._losses[formula, positive] = self._loss(formula, positive)
        return self._losses[formula, positive]

    def _loss(self, formula: Formula, positive: bool) -> Tensor:
        match formula:
            case Atom(Linear(((Variable(role="missing"), _),))):
                obeyed = self._holds(formula) == positive
                return torch.where(obeyed, self._zero, self._zero + FLIPPED)
            case Atom(linear, relation):
                return self._atom(self._value(linear), relation, positive)
            case Not(argument):
                return self.loss(argument, not positive)
            case And(arguments) | Or(arguments):
                losses = [self.loss(argument, positive) for argument in arguments]
                if isinstance(formula, And) == positive:
                    return sum(losses, self._zero)
                return reduce(torch.minimum, losses, self._zero + torch.inf)
            case Iff(left, right):
                both = self.loss(left, True) + self.loss(right, positive)
                return torch.minimum(
                    both, self.loss(left, False) + self.loss(right, not positive)
                )

    def _atom(self, value: Tensor, relation: Relation, positive: bool) -> Tensor:
        if positive:
            return self._amount(value, relation)
        if relation == "==":
            return torch.minimum(self._amount(value, "<"), self._amount(-value, "<"))
        return self._amount(-value, "<" if relation == "<=" else "<=")

    def _value(self, linear: Linear) -> Tensor:
        refuse_far_rows([Atom(linear, "<=")])
        value = self._zero + float(linear.constant)
        for symbol, coefficient in linear.summands:
            value = value + float(coefficient) * self._symbol(symbol)
        return value

    def _symbol(self, symbol: Symbol) -> Tensor:
        match symbol:
            case Max(arguments):
                return reduce(torch.maximum, map(self._value, arguments))
            case Ite(condition, then, otherwise):
                return torch.where(
                    self._holds(condition), self._value(then), self._value(otherwise)
                )
            case Product(known, other):
                return self._columns[known] * self._columns[other]
            case Apply(function, arguments):
                return self._functions[function](*map(self._value, arguments))
            case Norm(weights, arguments):
                squares = [
                    float(w) * self._value(a).square()
                    for w, a in zip(weights, arguments, strict=True)
                ]
                return sum(squares, self._zero).clamp(min=1e-30).sqrt()
        return self._columns[symbol]

    def _holds(self, formula: Formula) -> Tensor:
        """Whether the formula holds, as floats tell."""
        match formula:
            case Atom(linear, relation):
                value = self._value(linear)
                if relation == "<=":
                    return value <= 0
                return value < 0 if relation == "<" else value == 0
            case Not(argument):
                return ~self._holds(argument)
            case And(arguments):
                return reduce(
                    torch.logical_and, map(self._holds, arguments), self._zero == 0
                )
            case Or(arguments):
                return reduce(
                    torch.logical_or, map(self._holds, arguments), self._zero != 0
                )
            case Iff(left, right):
                return self._holds(left) == self._holds(right)
