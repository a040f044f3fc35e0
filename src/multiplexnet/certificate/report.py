"""What a check found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from multiplexnet.certificate.check import Report, Statement

__all__ = ["report_json", "report_text"]

SHOWN = 8
"""Variables of a point that are shown."""


def report_text(report: Report) -> str:
    """Every statement with what became of it, and the verdict."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
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
