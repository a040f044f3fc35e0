"""``multiplexnet report``: how good a made table is, as a page and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from multiplexnet.tools.cli import SLOW_SECONDS, BadInput, answering, loaded
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
        typer.Option("--json", metavar="FILE", help="Write all figures as JSON, too."),
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
        _refuse_overwriting([data, made, holdout], [output, json_file])
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
        _write(output, found.to_html())
        if json_file is not None:
            _write(json_file, found.to_json())
        if not found.made.all_obey:
            raise typer.Exit(1)


@contextmanager
def _steps() -> Iterator[Callable[[str, int, int], None]]:
    """What is being done, on standard error, once the work has taken a while."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True)
    task = shown.add_task("", total=None)
    start = perf_counter()

    def told(doing: str, done: int, of: int) -> None:
        if perf_counter() - start > SLOW_SECONDS:
            shown.start()
            shown.update(task, completed=done, total=of, description=doing)

    try:
        yield told
    finally:
        if shown.live.is_started:
            shown.stop()


def _refuse_overwriting(tables: list[str | None], written: list[Path | None]) -> None:
    read = [Path(table) for table in tables if table is not None]
    for path in written:
        if path is None or not path.exists():
            continue
        if any(own.exists() and own.samefile(path) for own in read):
            raise BadInput(f"{path} is a table that is read: write to another file")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None
    print(f"written: {path}", file=sys.stderr)
