"""How far the work is, on a terminal, once it has taken a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.progress import Progress, ProgressColumn

__all__ = ["SLOW_SECONDS", "shown_late"]

SLOW_SECONDS = 2.0
"""What takes longer shows its progress."""


@contextmanager
def shown_late(
    *columns: ProgressColumn, doing: str = "", total: int | None = None
) -> Iterator[Callable[[int, int | None, str], None]]:
    """A line that is taken away in the end.

    Args:
        columns: what the line consists of.
        doing: what is being done at first.
        total: how many steps there are, if that is known.

    Yields:
        What to call with the steps done, all steps, and what is being done.
    """
    console = Console(stderr=True)
    hidden = not console.is_terminal  # a log wants none, not even an empty line
    line = Progress(*columns, console=console, transient=True, disable=hidden)
    task = line.add_task(doing, total=total)
    start = perf_counter()

    def update(done: int, of: int | None, doing: str) -> None:
        if perf_counter() - start > SLOW_SECONDS:
            line.start()
            line.update(task, completed=done, total=of, description=doing)

    try:
        yield update
    finally:
        if line.live.is_started:
            line.stop()
