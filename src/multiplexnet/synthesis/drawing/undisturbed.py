"""Interrupts that wait until something is done as a whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

__all__ = ["undisturbed"]


@contextmanager
def undisturbed() -> Iterator[None]:
    """An interrupt waits meanwhile: a row group that is half written would leave a file that nobody can read."""
    if current_thread() is not main_thread():
        yield
        return
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # nobody listens, or it is not Python who does
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if noted:
        before(signal.SIGINT, None)
