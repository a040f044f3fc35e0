"""``python -m multiplexnet`` and the command ``multiplexnet``."""

from __future__ import annotations

import os
import signal
import sys
import threading

from multiplexnet.errors import install

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its libraries say how to install them."""
    _end_on_interrupt()
    try:
        from multiplexnet.playground.command import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich"):
            raise
        print(f"the command line needs {error.name}: {install('cli')}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="multiplexnet")


def _end_on_interrupt() -> None:
    """Let Ctrl-C end the program at once, with exit code 130.

    While z3 works it takes the signal for itself, gives up one question and lets the program go on. So the signal is
    blocked here, before any library starts threads, and one thread waits for it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=_wait_for_interrupt, daemon=True).start()


def _wait_for_interrupt() -> None:
    signal.sigwait([signal.SIGINT])
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h\n")  # a progress bar hides the cursor
    os._exit(130)


if __name__ == "__main__":
    main()
