"""A row to check: which rule it breaks and by how much, and where ``repair`` moves it. Everything in float64."""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import nan
from typing import Any

import numpy as np
import torch

from multiplexnet.errors import QuestionError
from multiplexnet.playground.answers.layers import Situation, situation
from multiplexnet.playground.answers.values import amount, read, written
from multiplexnet.playground.asked import Question
from multiplexnet.playground.library import Variable, ends, number_text, value_text

__all__ = ["judged", "repaired"]

LEAST = sys.float_info.min
"""How a strict rule says that a row is on its boundary: the least normal number above 0."""

DIGITS = 24


def judged(asked: Question) -> dict[str, Any]:
    """Rule by rule whether the row obeys. Fields: ``text``, ``row`` and ``inputs`` (numbers by name)."""
    there = _situation(asked)
    return _verdict(there, _row(asked, there))


def repaired(asked: Question) -> dict[str, Any]:
    """Where the row moves, and the verdict on it there. Fields as for :func:`judged`."""
    there = _situation(asked)
    before = _row(asked, there)
    moved = there.layer.repair(
        torch.from_numpy(before), **there.input_tensors(1)
    ).numpy()
    changed = [
        v.name
        for v, old, new in zip(there.rules.outputs, before[0], moved[0], strict=True)
        if old != new and not (np.isnan(old) and np.isnan(new))
    ]
    return {**_verdict(there, moved), "moved": changed}


def _situation(asked: Question) -> Situation:
    there = situation(asked)
    if there.rules.specification.functions:
        raise QuestionError(
            "the rules call functions, whose code the playground does not have: check the row in Python"
        )
    return replace(there, dtype="float64")


def _row(asked: Question, there: Situation) -> Any:
    """The typed numbers as one row of float64; an empty field of an output that may be missing is NaN."""
    typed = asked.typed("row")
    numbers = [_stored(there, v, typed.get(v.name, "")) for v in there.rules.outputs]
    return np.array([numbers], dtype=np.float64)


def _stored(there: Situation, variable: Variable, typed: object) -> float:
    if typed == "" and variable in there.rules.specification.flags:
        return nan
    value = amount(variable, read(variable, typed))
    try:
        return float(value)
    except OverflowError:
        raise QuestionError(
            f"{variable.name} = {number_text(value)} is beyond float64"
        ) from None


def _verdict(there: Situation, row: Any) -> dict[str, Any]:
    rules = there.rules
    inputs = there.input_tensors(1)
    tensor = torch.from_numpy(row)
    outputs = rules.outputs
    outside = [_outside(v, value) for v, value in zip(outputs, row[0], strict=True)]
    amounts = rules.violation(tensor, **inputs)[0].tolist()
    told = [
        {
            "line": rule.line,
            "text": rule.text,
            "obeyed": amount == 0,
            "amount": _amount(amount) if amount else None,
        }
        for rule, amount in zip(rules.specification.rules, amounts, strict=True)
    ]
    return {
        "obeys": bool(rules.satisfied(tensor, **inputs)[0]),
        "rules": [] if any(outside) else told,
        "outside": [words for words in outside if words],
        "row": {
            v.name: written(v, float(value))
            for v, value in zip(outputs, row[0], strict=True)
        },
        "stored": {
            v.name: _digits(value)
            for v, value in zip(outputs, row[0], strict=True)
            if v.unit.kind == "int" and not np.isnan(value)
        },
        "at": [
            None if np.isnan(row[0, column]) else float(row[0, column])
            for column in there.columns
        ],
    }


def _outside(variable: Variable, value: float) -> str | None:
    """What is said of a value that its variable cannot have, such as half a piece."""
    if not variable.is_discrete or np.isnan(value):
        return None
    steps = Fraction(value) / variable.unit.size
    nearest = Fraction(round(steps))
    is_that_one = float(amount(variable, nearest)) == value
    if is_that_one and nearest in variable.domain.values:  # type: ignore[union-attr]
        return None
    low, high = (value_text(variable, end) for end in ends(variable.domain))  # type: ignore[arg-type]
    kind = "the whole numbers"
    if variable.unit.size != 1:
        kind = f"the multiples of {number_text(variable.unit.size)}"
    return f"{variable.name} = {value:g} is not one of {kind} {low}, …, {high}"


def _amount(amount: float) -> str:
    return (
        "on the boundary, which is excluded" if amount == LEAST else f"by {amount:.6g}"
    )


def _digits(value: float) -> str:
    """The number that is stored, written out as far as a reader may want it."""
    text = (
        format(Decimal(value), "f")
        if 1e-6 < abs(value) < 1e15 or value == 0
        else str(Decimal(value))
    )
    return text if len(text) <= DIGITS else text[:DIGITS] + "…"
