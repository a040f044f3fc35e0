"""The process that answers: a line of JSON in, a line of JSON out, until nobody asks any more.

It is started by :mod:`multiplexnet.playground.pool` and limits itself before it reads the first question: so much
memory and no more, no files written. Time is limited from outside, by ending the process.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any

from multiplexnet.errors import ContradictionError, MultiplexError, RuleSyntaxError

__all__ = ["answered", "main"]

LARGEST_ANSWER = 8 << 20
"""Bytes."""


def answered(kind: str, line: str) -> str:
    """The answer to one question as a line of JSON, or what is wrong with it."""
    from multiplexnet.playground.asked import Question
    from multiplexnet.playground.questions import ANSWERS

    try:
        question = json.loads(line)
        answer = json.dumps(
            {
                "answer": ANSWERS[kind][question["question"]](
                    Question(question["fields"])
                )
            },
            allow_nan=False,
        )
        return (
            answer
            if len(answer) <= LARGEST_ANSWER
            else _error("memory", "the answer is too long for a page")
        )
    except MultiplexError as error:
        return json.dumps({"error": _refusal(error)})
    except MemoryError:
        return _error(
            "memory", "the question needs more memory than the playground gives"
        )
    except Exception as error:
        traceback.print_exc()
        if "memory" in str(error):  # z3's own word for it
            return _error(
                "memory", "the question needs more memory than the playground gives"
            )
        return _error(
            "unexpected", f"unexpected {type(error).__name__}: {str(error)[:300]}"
        )


def _error(kind: str, message: str) -> str:
    return json.dumps({"error": {"kind": kind, "message": message}})


def _refusal(error: MultiplexError) -> dict[str, Any]:
    if isinstance(error, RuleSyntaxError):
        return {
            "kind": "syntax",
            "message": error.reason,
            "line": error.line,
            "column": error.column,
        }
    if isinstance(error, ContradictionError):
        rules = [{"line": line, "text": text} for line, text in error.rules]
        return {"kind": "contradiction", "message": str(error), "rules": rules}
    return {"kind": "refused", "message": str(error)}


def main(kind: str, megabytes: int) -> None:
    """Answer questions from standard input until it is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    from multiplexnet.playground.questions import ANSWERS, load

    load(kind)
    _limit(megabytes)
    _say(answers, json.dumps({"ready": sorted(ANSWERS[kind])}))
    asked = _lines_of(sys.stdin)
    while True:
        _say(answers, answered(kind, asked.get()))


def _say(answers: IO[str], line: str) -> None:
    answers.write(line + "\n")
    answers.flush()


def _lines_of(stream: IO[str]) -> queue.Queue[str]:
    """The lines of a stream, read in a thread of its own: when it ends, so does the process, even in mid-answer."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _limit(megabytes: int) -> None:
    """Take away what a question has no use for: more memory than this on top of the libraries, files, dumps."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limits
        return
    address_space = megabytes << 20
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        address_space += int(statistics.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
