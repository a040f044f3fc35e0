"""Reports of rich as plain text, without anything that computes: `multiplexnet certify` loads no numpy."""

from __future__ import annotations

from rich.console import Console, RenderableType

__all__ = ["PLAIN_WIDTH", "plain_text"]

PLAIN_WIDTH = 120
"""Characters of a line where there is no terminal."""


def plain_text(report: RenderableType, width: int | None = PLAIN_WIDTH) -> str:
    """A report as it is printed into a file."""
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        console.print(report)
    return captured.get()
