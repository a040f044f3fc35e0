"""``python -m multiplexnet`` and the command ``multiplexnet``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its libraries say how to install them."""
    try:
        from multiplexnet.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich"):
            raise
        print(f"the command line needs {error.name}: pip install 'multiplexnet[cli]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="multiplexnet")


if __name__ == "__main__":
    main()
