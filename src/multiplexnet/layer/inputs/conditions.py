"""What the rules ask of inputs alone, which no output can make up for: judged in every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from multiplexnet.compiler.terms import Block, Compiled
from multiplexnet.errors import InputError
from multiplexnet.language.formula import Real, Rule, Specification, variables
from multiplexnet.language.text import formula_text, short
from multiplexnet.layer.checks import Function, anywhere, rows_where
from multiplexnet.verdicts.satisfaction import verdict

__all__ = ["blocks_about_inputs", "refuse_broken_inputs"]


def blocks_about_inputs(compiled: Compiled) -> list[Block]:
    """What the rules ask of inputs alone, which no output can make up for; blocks that always hold are left out.

    Raises:
        InputError: there are too many plain terms to be checked in every row.
    """
    found = [block for block in compiled.blocks if not block.outputs]
    if any(term.blocks for block in found for term in block.terms):
        raise InputError(
            "the rules about inputs alone have too many terms to be checked in every row: simplify them"
        )
    return [block for block in found if all(term.rows for term in block.terms)]


def refuse_broken_inputs(
    met: Tensor,
    inputs: Tensor,
    given: Mapping[str, Any],
    block: Block,
    specification: Specification,
    functions: Mapping[str, Function],
) -> Tensor:
    """The inputs, NaN where they break rules about inputs alone and that could not be raised as ``InputError``.

    Args:
        met: ``(*batch,)``, where the block is shown to hold; what rounding leaves in doubt is decided exactly.
        inputs: ``(*batch, I)``, rounded to the side on which a row that they meet holds of what was given, too.
        given: what was given for them by name, of which the rules are judged.
        block: what the rules ask of inputs alone.
        specification: the rules.
        functions: torch code of the opaque functions by name.
    """
    if not anywhere(~met):
        return inputs.masked_fill(~met.unsqueeze(-1), torch.nan)
    rules = [
        rule
        for rule in specification.rules
        if all(v.is_input for v in variables(rule.formula))
    ]
    for rule in (*rules, Rule(block.formula, "")):
        broken = ~_verdict(rule, inputs, given, specification, functions)
        if broken.any():
            raise InputError(
                f"the rule `{short(rule.text or formula_text(rule.formula))}` about inputs does not hold in "
                f"{rows_where(broken)}: no output obeys there; pass other values"
            )
    return inputs


def _verdict(
    rule: Rule,
    inputs: Tensor,
    given: Mapping[str, Any],
    specification: Specification,
    functions: Mapping[str, Function],
) -> Tensor:
    """Whether a rule about inputs alone holds, exactly; outputs are free."""
    free = tuple(
        v if v.is_input else replace(v, domain=Real()) for v in specification.variables
    )
    x = inputs.new_zeros(*inputs.shape[:-1], len(specification.columns))
    return verdict(
        Specification(free, (rule,), specification.functions),
        x,
        given,
        functions or None,
    )
