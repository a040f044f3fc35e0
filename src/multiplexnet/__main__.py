"""``python -m multiplexnet`` and the command ``multiplexnet``."""

from __future__ import annotations

import sys

from multiplexnet.errors import install
from multiplexnet.tools.interrupts import end_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its libraries say how to install them."""
    end_on_interrupt()
    try:
        from multiplexnet.playground.command import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich"):
            raise
        print(f"the command line needs {error.name}: {install('cli')}", file=sys.stderr)
        sys.exit(2)
    app(prog_name="multiplexnet")


if __name__ == "__main__":
    main()
