"""What the rules assume of inputs, in every row: exactly where values can be looked at, and in recorded graphs.

A row whose inputs break an assumption is an ``InputError`` that names row and assumption; in a graph it is NaN in every
output. Numbers that were given are judged as they were given, before the dtype has rounded them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from multiplexnet.compiler.normal import normal_form
from multiplexnet.errors import InputError
from multiplexnet.language.formula import (
    And,
    Atom,
    Formula,
    Linear,
    Or,
    Rule,
    Specification,
    Variable,
)
from multiplexnet.language.text import short
from multiplexnet.layer.checks import anywhere, rows_where
from multiplexnet.transforms.run_time.balls import Ball, ball_of, number, total
from multiplexnet.transforms.run_time.reading import read
from multiplexnet.verdicts.satisfaction import allowed

__all__ = ["Assumptions"]


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of inputs.

    Args:
        inputs: in declared order.
        rules: as they were written.
        formulas: the same in normal form.
    """

    inputs: tuple[Variable, ...]
    rules: tuple[Rule, ...]
    formulas: tuple[Formula, ...]

    @staticmethod
    def of(specification: Specification) -> Assumptions:
        formulas = tuple(
            normal_form(rule.formula) for rule in specification.assumptions
        )
        return Assumptions(specification.inputs, specification.assumptions, formulas)

    def kept(self, inputs: Tensor, given: Mapping[str, Any]) -> Tensor:
        """The inputs, NaN in rows that break an assumption where that cannot be raised.

        Args:
            inputs: ``(*batch, I)``, in the dtype of the layer.
            given: what was given, by name.

        Raises:
            InputError: names the assumption and the rows.
        """
        if not self.rules:
            return inputs
        rows = inputs.detach()
        # By number: torch.compile cannot always look variables up.
        columns = {
            v.index: ball_of(read(rows[..., i])) for i, v in enumerate(self.inputs)
        }
        exact = all(
            isinstance(v, Tensor) and v.is_floating_point() for v in given.values()
        )
        for rule, formula in zip(self.rules, self.formulas, strict=True):
            open_rows = ~_surely(formula, columns, rows[..., 0])
            seen = anywhere(open_rows)
            if seen is None:
                inputs = inputs.masked_fill(open_rows.unsqueeze(-1), torch.nan)
            elif seen or not exact:
                self._refuse(rule, given, inputs.shape[:-1])
        return inputs

    def _refuse(
        self, rule: Rule, given: Mapping[str, Any], batch: Sequence[int]
    ) -> None:
        """Raises ``InputError`` unless the assumption holds of what was given, exactly."""
        held = allowed(
            Specification(self.inputs, (), assumptions=(rule,)), given, tuple(batch)
        )
        broken = torch.as_tensor(~held)
        if bool(broken.any()):
            raise InputError(
                f"the assumption `{short(rule.text)}` does not hold in {rows_where(broken)}: "
                "pass inputs that keep it, or assume less"
            )


def _surely(formula: Formula, columns: Mapping[int, Ball], like: Tensor) -> Tensor:
    """Where a formula in normal form holds, as far as float64 can tell: always, if nothing is rounded."""
    match formula:
        case Atom(linear, relation):
            return _sum(linear, columns, like).is_surely(relation)
        case And(arguments):
            found = torch.ones_like(like, dtype=torch.bool)
            for argument in arguments:
                found = found & _surely(argument, columns, like)
            return found
        case Or(arguments):
            found = torch.zeros_like(like, dtype=torch.bool)
            for argument in arguments:
                found = found | _surely(argument, columns, like)
            return found
    raise TypeError(f"not in normal form: {formula!r}")


def _sum(linear: Linear, columns: Mapping[int, Ball], like: Tensor) -> Ball:
    parts = []
    for symbol, c in linear.summands:
        assert isinstance(symbol, Variable)
        value = columns[symbol.index]
        parts.append(value if c == 1 else value * number(c, like))
    return total([*parts, number(linear.constant, like)], like)
