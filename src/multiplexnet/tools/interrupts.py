"""Ctrl-C on the command line: it ends the program at once, unless a command asks for time to end in order.

Then SIGTERM, which batch systems and `timeout` send, is taken for Ctrl-C.

While z3 works it takes the signal for itself, gives up one question and lets the program go on. So the signal is
blocked before any library starts threads, and one thread waits for it.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["end_on_interrupt", "in_order"]

PATIENCE = 2
"""So many interrupts may be dealt with in order; the next one ends the program in any case."""

_asked = threading.Event()
"""Whether a command wants to end in order."""


def end_on_interrupt() -> None:
    """Let Ctrl-C end the program with exit code 130, also where whoever started it ignores the signal."""
    if not hasattr(signal, "pthread_sigmask"):
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=_wait, daemon=True).start()


@contextmanager
def in_order() -> Iterator[None]:
    """Meanwhile Ctrl-C is what it is to any program in Python: ``KeyboardInterrupt``, or what a handler does."""
    _asked.set()
    try:
        with _terminated_as_interrupted():
            yield
    finally:
        _asked.clear()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    own = os.getpid()

    def interrupt(*_: object) -> None:
        if os.getpid() != own:  # a copy of this process, which nobody waits for
            os._exit(128 + signal.SIGTERM)
        os.kill(own, signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait() -> None:
    for _ in range(PATIENCE):
        signal.sigwait([signal.SIGINT])
        if not _asked.is_set():
            _end()
        _thread.interrupt_main()
    signal.sigwait([signal.SIGINT])
    _end()


def _end() -> None:
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h\n")  # a progress bar hides the cursor
    os._exit(130)
