"""The questions that the page asks, and who answers them: one kind of worker for verdicts, one for layers.

A verdict needs no torch, so its worker starts quickly: it is the one that is ended when somebody types on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multiplexnet.playground.asked import Question

__all__ = ["ANSWERS", "load"]

Json = dict[str, Any]


def _verdict(asked: Question) -> Json:
    from multiplexnet.playground.answers.verdict import verdict

    return verdict(asked.text)


def _picture(asked: Question) -> Json:
    from multiplexnet.playground.answers.picture import picture

    return picture(asked)


def _point(asked: Question) -> Json:
    from multiplexnet.playground.answers.maps import point

    return point(asked)


def _samples(asked: Question) -> Json:
    from multiplexnet.playground.answers.maps import samples

    return samples(asked)


def _row(asked: Question) -> Json:
    from multiplexnet.playground.answers.row import judged

    return judged(asked)


def _repair(asked: Question) -> Json:
    from multiplexnet.playground.answers.row import repaired

    return repaired(asked)


ANSWERS: dict[str, dict[str, Callable[[Question], Json]]] = {
    "verdict": {"verdict": _verdict},
    "layer": {
        "picture": _picture,
        "point": _point,
        "samples": _samples,
        "row": _row,
        "repair": _repair,
    },
}
"""For each kind of worker its questions."""


def load(kind: str) -> None:
    """Answer each question once, so that the first real one is not slow and the libraries' memory is not counted."""
    if kind == "layer":
        import torch

        torch.set_num_threads(1)
    row = {"x": "0", "y": "0"}
    for answer in ANSWERS[kind].values():
        answer(Question({"text": "x <= y or x >= y + 1", "row": row, "grid": 1}))
