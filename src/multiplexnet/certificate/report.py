"""What a check found, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from multiplexnet.certificate.questions import Answer

__all__ = ["Claim", "Report", "report_json", "said"]

WORDS = {"proved": "proved", "refuted": "FAILS ", "open": "OPEN  "}
SHOWN = 8
"""Variables of a point that are shown."""


@dataclass(frozen=True)
class Claim:
    """Something that a certificate claims, and what became of it.

    Args:
        text: the claim.
        holds: whether it was proved.
        why: what is wrong, if something is.
        point: values of the variables where the claim fails, if the solver gave some.
        is_open: whether it was neither proved nor refuted, since the solver gave no answer in the time.
    """

    text: str
    holds: bool
    why: str = ""
    point: Mapping[str, Fraction] | None = None
    is_open: bool = False

    @property
    def verdict(self) -> Literal["proved", "refuted", "open"]:
        """What became of it, in a word."""
        if self.holds:
            return "proved"
        return "open" if self.is_open else "refuted"


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

    statements: tuple[Claim, ...]
    sha256: str
    solver: str
    questions: int
    moved: Fraction = Fraction(0)

    @property
    def certified(self) -> bool:
        """Whether every statement was proved."""
        return all(statement.holds for statement in self.statements)

    @property
    def is_open(self) -> bool:
        """Whether nothing was refuted, but something was not proved in the time."""
        verdicts = {statement.verdict for statement in self.statements}
        return "open" in verdicts and "refuted" not in verdicts

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def to_json(self) -> str:
        """The report as one JSON document; numbers are exact texts."""
        return json.dumps(report_json(self), ensure_ascii=False)


def said(text: str, answer: Answer, why: str = "it fails at a point") -> Claim:
    """A statement that holds, that fails, or that was not decided in the time."""
    if answer.proved:
        return Claim(text, True)
    if answer.point is None:
        return Claim(
            text, False, "not decided: cvc5 gave no answer in the time", is_open=True
        )
    return Claim(text, False, why, answer.point)


def _lines(report: Report) -> Iterator[str]:
    """Every statement with what became of it, and the verdict."""
    for statement in report.statements:
        yield f"{WORDS[statement.verdict]}  {statement.text}"
        if not statement.holds:
            yield f"        {statement.why}{_at(statement.point)}"
    yield ""
    yield _verdict(report)
    if report.moved:
        yield f'equalities were moved by up to {float(report.moved):.3g} (equality="nearest"): these hold, exactly'
    yield f"checked with {report.solver}, {report.questions} questions; sha256 {report.sha256}"


def _verdict(report: Report) -> str:
    if report.certified:
        return f"certified: {len(report.statements)} statements"
    verdicts = [statement.verdict for statement in report.statements]
    counts = [
        f"{verdicts.count(verdict)} {word}"
        for verdict, word in (("refuted", "fail"), ("open", "not proved in the time"))
        if verdict in verdicts
    ]
    return f"NOT certified: {', '.join(counts)}"


def _at(point: Mapping[str, Fraction] | None) -> str:
    if not point:
        return ""
    shown = ", ".join(
        f"{name} = {value}" for name, value in list(point.items())[:SHOWN]
    )
    return f": {shown}" + (
        f" and {len(point) - SHOWN} more" if len(point) > SHOWN else ""
    )


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


def _statement(statement: Claim) -> dict[str, Any]:
    point = (
        None
        if statement.point is None
        else {name: str(value) for name, value in statement.point.items()}
    )
    return {
        "statement": statement.text,
        "holds": statement.holds,
        "verdict": statement.verdict,
        "why": statement.why or None,
        "point": point,
    }
