"""How long work may take, and who is told how far it is: one object that goes along from rules to layer.

A deadline never changes an answer. Work either ends in time, and then it is what it would have been without one, or
it ends in :class:`~multiplexnet.errors.CompileTimeout`. Python code looks at the clock between its steps. A question to
z3 is interrupted by a thread that waits for the end of the time; that the question then has no answer is never taken
for one (:mod:`~multiplexnet.smt.search`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from numbers import Real
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Self

from multiplexnet.errors import CompileTimeout, OptionError

__all__ = ["NEVER", "SECONDS", "Deadline", "Phase", "Tell"]

SECONDS = 60.0
"""How long compiling rules and building a layer may take unless told otherwise."""
LONGEST = 1e9
"""Seconds from which on there is no limit: some thirty years."""
PAUSE = 0.05
"""Seconds between two interruptions of z3 once the time is over."""

Tell = Callable[[str, int], None]
"""Called with what is being done and how many steps of it are done."""


@dataclass(frozen=True)
class Phase:
    """One kind of work.

    Args:
        doing: what is done, as in «finding the terms of».
        counted: what its steps are, as in «terms».
        advice: what makes it shorter.
    """

    doing: str
    counted: str
    advice: str

    def __str__(self) -> str:
        return self.doing


FEWER = (
    'build the layer with structure="cascade", give cover=rows (data that the terms must contain: sound, but not '
    "complete), or split the rules so that fewer outputs depend on each other"
)
SIZES = (
    "write a sum of sizes such as norm(x, 1) <= 3 with outputs of their own for the sizes, t: real[12], "
    "all(abs(x[i]) <= t[i] for i in range(12)) and sum(t) <= 3: it has 2^12 walls otherwise"
)
START = Phase("starting", "steps", "")
NORMAL_FORM = Phase(
    "bringing the rules into normal form", "parts", "write fewer or shorter rules"
)
CONTRADICTION = Phase(
    "looking for a contradiction", "questions", "drop rules until the rest is decided"
)
TERMS = Phase("finding the terms of", "terms", FEWER)
DECOMPOSITION = Phase("decomposing", "terms", FEWER)
PROJECTION = Phase(
    "projecting the rules onto the outputs before",
    "clauses",
    "name another order of the outputs with order=[…], give them narrower ranges, or drop or split rules that tie many "
    "of them together",
)
PROOF = Phase("proving that the terms say what the rules say", "proofs", FEWER)
INPUTS = Phase(
    "looking for inputs without an output",
    "blocks",
    "declare narrower ranges of the inputs",
)
SUPERFLUOUS = Phase(
    "looking for superfluous rules", "rules", "explain fewer rules at a time"
)
RANGES = Phase(
    "looking for the range of every output", "outputs", "explain fewer rules at a time"
)
SHAPES = Phase(
    "looking for the shape of every term", "terms", "explain fewer rules at a time"
)
GEOMETRY = Phase(
    "finding room for the terms in",
    "terms",
    "tie fewer outputs together, or build the layer once and load its state_dict() with Multiplexer.from_state",
)
TABLES = Phase(
    "filling the tables of the maps",
    "tables",
    "tie fewer outputs together, or choose a smaller max_terms",
)


class Deadline:
    """A limit of time, and a listener.

    Used as a context manager while the work is done; inside, questions to z3 are interrupted when the time is over.

    Args:
        seconds: from now on; ``None``: no limit.
        progress: told of every phase and its steps.

    Raises:
        OptionError: ``seconds`` is not a positive number, or ``progress`` no function.

    Example:
        >>> told = []
        >>> with Deadline(60, lambda doing, done: told.append((doing, done))) as deadline:
        ...     deadline.begin(TERMS, "x")
        ...     deadline.step()
        >>> told
        [('finding the terms of x', 0), ('finding the terms of x', 1)]
    """

    def __init__(
        self, seconds: float | None = None, progress: Tell | None = None
    ) -> None:
        is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise OptionError(
                "seconds", seconds, "a positive number, or None for no limit"
            )
        if progress is not None and not callable(progress):
            raise OptionError(
                "progress",
                progress,
                "a function of two arguments: what is being done, and how far it is",
            )
        self.seconds = (
            float(seconds) if seconds is not None and seconds < LONGEST else None
        )
        self._progress = progress
        self._end = inf if self.seconds is None else monotonic() + self.seconds
        self._phase = START
        self._doing = str(START)
        self._done = 0
        self._asked: Any = None  # the z3 context that looks for an answer
        self._over = Event()

    # --- how far it is ----------------------------------------------------------------------------------------------

    def begin(self, phase: Phase, of: str = "") -> None:
        """A phase begins."""
        self._phase = phase
        self._doing = f"{phase} {of}".rstrip()
        self.step(0)

    def step(self, done: int | None = None) -> None:
        """So many steps of the phase are done, by default one more.

        Raises:
            CompileTimeout: the time is over.
        """
        self._done = self._done + 1 if done is None else done
        if self._progress is not None:
            self._progress(self._doing, self._done)
        self.check()

    def check(self) -> None:
        """Raises ``CompileTimeout`` if the time is over."""
        if monotonic() > self._end:
            raise self._timeout()

    @property
    def left(self) -> float:
        """The seconds that are left, infinitely many without a limit."""
        return max(self._end - monotonic(), 0.0)

    def _timeout(self) -> CompileTimeout:
        phase = self._phase
        return CompileTimeout(
            self.seconds or 0.0,
            self._doing,
            f"{self._done:,} {phase.counted}",
            phase.advice,
        )

    # --- z3 ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def asking(self, context: Any) -> Iterator[None]:
        """While z3 looks for an answer in this context."""
        self.check()
        self._asked = context
        try:
            yield
        finally:
            self._asked = None

    def __enter__(self) -> Self:
        if self.seconds is not None:
            Thread(target=self._interrupt, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._over.set()
        if (
            error is not None and _is_of_z3(error) and not self.left
        ):  # a call that was interrupted as it began
            raise self._timeout() from None

    def _interrupt(self) -> None:
        wait = self.left
        while not self._over.wait(wait):
            context = self._asked
            if context is not None:
                context.interrupt()
            wait = PAUSE


def _is_of_z3(error: BaseException) -> bool:
    """Whether z3 raised it; z3 is not imported to find out."""
    z3 = sys.modules.get("z3")
    return z3 is not None and isinstance(error, z3.Z3Exception)


NEVER = Deadline()
"""No limit, and nobody to tell."""
