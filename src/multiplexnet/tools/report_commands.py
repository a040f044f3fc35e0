"""``multiplexnet report``: how good a made table is, as a page and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from multiplexnet.tools.cli import (
    BadInput,
    answering,
    loaded,
    refuse_overwriting,
    write,
)
from multiplexnet.tools.progress import shown_late
from multiplexnet.tools.synthesis_commands import RulesOption, app

__all__ = ["app", "report"]


@app.command()
def report(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="The real table: a file, or a pattern of files."
        ),
    ],
    made: Annotated[
        str, typer.Argument(metavar="MADE", help="The made table, as for DATA.")
    ],
    rules: RulesOption,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="HTML", help="The page to write."),
    ],
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="Write all figures to this .json file, too."
        ),
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Real rows that MADE was not learned from."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="What models are trained to predict (the last column of labels or truth values).",
        ),
    ] = None,
    obeying: Annotated[
        bool,
        typer.Option(
            "--obeying", help="Compare only with real rows that obey the rules."
        ),
    ] = False,
    rows: Annotated[
        int,
        typer.Option(
            min=2,
            help="How many rows of each table are compared; violations are counted in all.",
        ),
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
) -> None:
    """How good the table MADE is beside the real table DATA: rules, detection, usefulness, pairs, columns, copies.

    Exit code 0: every made row obeys the rules; 1: some do not; 2: bad input.
    """
    with answering(False):
        from multiplexnet.quality.report import report as quality

        if output.suffix.lower() not in (".html", ".htm"):
            raise BadInput(
                f"{output}: the page is written to a file that ends in .html"
            )
        refuse_overwriting(
            [output, json_file], tables=[data, made, holdout], rules=rules
        )
        if json_file is not None and json_file.suffix.lower() != ".json":
            raise BadInput(
                f"{json_file}: figures are written to a file that ends in .json"
            )
        with _steps() as told:
            found = quality(
                loaded(rules),
                data,
                made,
                holdout=holdout,
                target=target,
                obeying=obeying,
                rows=rows,
                seed=seed,
                progress=told,
            )
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
        print(found)
        write(output, found.to_html())
        if json_file is not None:
            write(json_file, found.to_json())
        if not found.made.all_obey:
            raise typer.Exit(1)


@contextmanager
def _steps() -> Iterator[Callable[[str, int, int], None]]:
    """What is being done, as a bar."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with shown_late(*columns) as show:
        yield lambda doing, done, of: show(done, of, doing)
