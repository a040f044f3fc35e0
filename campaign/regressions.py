"""Failures as small JSON files, which the test suite replays: a sentence, a dtype, a raw row."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TypedDict

from campaign.sentences import Sentence
from campaign.shrink import MOST_ATTEMPTS, shrunk
from campaign.trial import Outcome, Trial, Violation

__all__ = ["record_of", "replayed", "save", "small"]

ROWS = 400
"""Rows that a replay asks for besides the one that failed."""
FEW_ATTEMPTS = 15
"""At a smaller sentence, where every attempt makes graphs, which takes seconds."""


def small(
    sentence: Sentence, violation: Violation, rows: int = ROWS
) -> tuple[Sentence, Violation]:
    """A small sentence that fails the same check, and how it fails."""
    failures: dict[Sentence, Violation] = {}

    def fails(candidate: Sentence) -> bool:
        given = (
            {violation.dtype: [(violation.raw, violation.inputs)]}
            if violation.dtype and violation.raw
            else None
        )
        outcome = Trial(
            candidate,
            rows,
            random=Random(0),
            given=given,
            thorough=True,
            **_graphs(violation.check),
        ).run()
        same = [
            v
            for v in outcome.violations
            if v.check == violation.check and _crash(v) == _crash(violation)
        ]
        if same:
            failures[candidate] = same[0]
        return bool(same)

    found = shrunk(
        sentence,
        fails,
        attempts=FEW_ATTEMPTS
        if any(_graphs(violation.check).values())
        else MOST_ATTEMPTS,
    )
    return found, failures.get(found, violation)


class Graphs(TypedDict):
    """The kinds of graphs that a trial has to make."""

    graphs: bool
    recorded: bool


def _graphs(check: str) -> Graphs:
    """Those that this check needs: none are made otherwise."""
    return {
        "graphs": " in a graph" in check or "of a graph" in check,
        "recorded": "graph with inputs" in check,
    }


def _crash(violation: Violation) -> str:
    """The last line of a crash; nothing for other violations."""
    return (
        violation.what.strip().splitlines()[-1].partition(":")[0]
        if violation.check.startswith("crash")
        else ""
    )


def record_of(sentence: Sentence, violation: Violation, **more: Any) -> dict[str, Any]:
    """What a regression file says; floats are written in hexadecimal, so that none loses a bit."""
    return {
        "check": violation.check,
        "what": violation.what,
        "text": str(sentence).splitlines(),
        "dtype": violation.dtype,
        "raw": None
        if violation.raw is None
        else [value.hex() for value in violation.raw],
        "inputs": [value.hex() for value in violation.inputs],
        **more,
        "sentence": sentence.record(),
    }


def save(folder: Path, record: dict[str, Any]) -> Path:
    """The file of a regression, named after what it holds; the same one is written once."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = sha256(
        json.dumps([record["sentence"], record["check"]]).encode()
    ).hexdigest()[:10]
    path = (
        folder
        / f"{record['check'].replace(' ', '-').replace('’', '').replace(':', '')}-{digest}.json"
    )
    path.write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return path


def replayed(record: dict[str, Any], *, road: Callable[..., Trial] = Trial) -> Outcome:
    """The trial of a regression once more, with the row that failed."""
    given = None
    if record["dtype"] and record["raw"]:
        pair = (
            [float.fromhex(value) for value in record["raw"]],
            [float.fromhex(value) for value in record["inputs"]],
        )
        given = {record["dtype"]: [pair]}
    sentence = Sentence.from_record(record["sentence"])
    graphs = _graphs(record["check"])
    return road(
        sentence, ROWS, random=Random(0), given=given, thorough=True, **graphs
    ).run()
