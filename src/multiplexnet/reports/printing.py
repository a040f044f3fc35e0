"""Reports of rich as plain text, without anything that computes: `multiplexnet certify` loads no numpy."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["PLAIN_WIDTH", "plain_table", "plain_text", "row_cells"]

PLAIN_WIDTH = 120
"""Characters of a line where there is no terminal."""


def plain_text(report: RenderableType, width: int | None = PLAIN_WIDTH) -> str:
    """A report as it is printed into a file."""
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def plain_table(*columns: tuple[str, bool]) -> Table:
    """A table without lines; a column is its header and whether it holds numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header, is_number in columns:
        table.add_column(
            Text(header),  # a text as it is: brackets in names are no markup
            justify="right" if is_number else "left",
            overflow="fold",
            header_style="dim",
        )
    return table


def row_cells(*cells: object) -> tuple[Text, ...]:
    """The cells of one row of such a table; nothing for ``None``."""
    return tuple(Text("" if cell is None else str(cell)) for cell in cells)
