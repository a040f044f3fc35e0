"""What a check found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

__all__ = ["Report", "Statement", "report_json"]

SHOWN = 8
"""Variables of a point that are shown."""


@dataclass(frozen=True)
class Statement:
    """Something that a certificate claims, and what became of it.

    Args:
        text: the claim.
        holds: whether it was proved.
        why: what is wrong, if something is.
        point: values of the variables where the claim fails, if the solver gave some.
    """

    text: str
    holds: bool
    why: str = ""
    point: Mapping[str, Fraction] | None = None


@dataclass(frozen=True)
class Report:
    """What a check found.

    Args:
        statements: in the order of the check.
        sha256: the hash of the document.
        solver: name and version of the solver that was asked.
        questions: how often it was asked.
        moved: how far equalities were moved at most (``equality="nearest"``); 0 if none was.
    """

    statements: tuple[Statement, ...]
    sha256: str
    solver: str
    questions: int
    moved: Fraction = Fraction(0)

    @property
    def certified(self) -> bool:
        """Whether every statement was proved."""
        return all(statement.holds for statement in self.statements)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def to_json(self) -> str:
        """The report as one JSON document; numbers are exact texts."""
        return json.dumps(report_json(self), ensure_ascii=False)


def _lines(report: Report) -> Iterator[str]:
    """Every statement with what became of it, and the verdict."""
    for statement in report.statements:
        yield f"{'proved' if statement.holds else 'FAILS '}  {statement.text}"
        if not statement.holds:
            yield f"        {statement.why}{_at(statement.point)}"
    yield ""
    failed = sum(not statement.holds for statement in report.statements)
    yield (
        f"certified: {len(report.statements)} statements"
        if not failed
        else f"NOT certified: {failed} fail"
    )
    if report.moved:
        yield f'equalities were moved by up to {float(report.moved):.3g} (equality="nearest"): these hold, exactly'
    yield f"checked with {report.solver}, {report.questions} questions; sha256 {report.sha256}"


def _at(point: Mapping[str, Fraction] | None) -> str:
    if not point:
        return ""
    shown = ", ".join(f"{name} = {value}" for name, value in list(point.items())[:SHOWN])
    return f": {shown}" + (f" and {len(point) - SHOWN} more" if len(point) > SHOWN else "")


def report_json(report: Report) -> dict[str, Any]:
    """The same as plain data; numbers are exact texts."""
    return {
        "certified": report.certified,
        "sha256": report.sha256,
        "solver": report.solver,
        "questions": report.questions,
        "moved": str(report.moved),
        "statements": [_statement(statement) for statement in report.statements],
    }


def _statement(statement: Statement) -> dict[str, Any]:
    point = (
        None
        if statement.point is None
        else {name: str(value) for name, value in statement.point.items()}
    )
    return {
        "statement": statement.text,
        "holds": statement.holds,
        "why": statement.why or None,
        "point": point,
    }
