"""What is known of rules: terms, blocks, ranges, contradictions, superfluous rules, and code that uses them."""

from __future__ import annotations

from typing import Any

from multiplexnet import Rules
from multiplexnet.playground.answers.snippets import needed_dtype, snippets
from multiplexnet.playground.answers.values import amount, start
from multiplexnet.playground.library import (
    Bool,
    Category,
    Int,
    Variable,
    explain_json,
    number_text,
    term_text,
)

__all__ = ["verdict"]

MOST_TERMS = 100
"""How many terms of a block are listed."""

MOST_BLOCKS = 50


def verdict(text: str) -> dict[str, Any]:
    """The explanation of the rules as ``multiplexnet explain --json`` gives it, shortened to what a page can show."""
    rules = Rules(text)
    explanation = rules.explain()
    answer = explain_json(explanation)
    begun = start(rules)
    optional = rules.specification.flags
    answer["variables"] = [
        {
            **_variable(v),
            "optional": v in optional,
            "start": number_text(amount(v, begun[v])) if v in begun else None,
        }
        for v in rules.specification.variables
        if not v.is_flag
    ]
    answer["dtype"] = needed_dtype(rules, explanation)
    answer["code"] = snippets(rules, explanation)
    if explanation.compiled is not None:
        sizes = [len(block.terms) for block in explanation.compiled.blocks]
        answer["sizes"] = sizes
        blocks = zip(
            answer["blocks"][:MOST_BLOCKS], explanation.compiled.blocks, strict=False
        )
        answer["blocks"] = [_shortened(shown, block) for shown, block in blocks]
    return answer


def _shortened(shown: dict[str, Any], block: Any) -> dict[str, Any]:
    terms = [
        {**own, "text": term_text(term)}
        for own, term in zip(shown["terms"][:MOST_TERMS], block.terms, strict=False)
    ]
    return {**shown, "terms": terms, "hidden": len(block.terms) - len(terms)}


def _variable(variable: Variable) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "name": variable.name,
        "role": variable.role,
        "kind": "real",
        "labels": None,
    }
    match variable.domain:
        case Int(lower, upper, unit):
            return {
                **answer,
                "kind": unit.kind,
                "lower": number_text(lower * unit.size),
                "upper": number_text(upper * unit.size),
                "step": number_text(unit.size),
            }
        case Bool():
            return {
                **answer,
                "kind": "bool",
                "labels": ["false", "true"],
                "lower": "0",
                "upper": "1",
            }
        case Category(labels):
            return {
                **answer,
                "kind": "category",
                "labels": list(labels),
                "lower": "0",
                "upper": str(len(labels) - 1),
            }
        case real:
            ends = [
                None if end is None else number_text(end)
                for end in (real.lower, real.upper)
            ]
            return {**answer, "lower": ends[0], "upper": ends[1]}
