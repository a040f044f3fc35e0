"""Commands that make tables: ``multiplexnet fit``, ``multiplexnet sample`` and ``multiplexnet report``."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from multiplexnet.tools.cli import SLOW_SECONDS, AsJson, BadInput, answering, loaded
from multiplexnet.tools.table_commands import app

__all__ = ["app", "fit", "sample"]

GROUP = 1 << 16
"""Rows that are written together."""

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="What `fit` wrote.", show_default=False)
]
RulesOption = Annotated[
    Path, typer.Option("--rules", metavar="FILE", help="Rules: .rules, .smt2 or .txt.")
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same rows.")]


@contextmanager
def _telling() -> Iterator[None]:
    """Warnings go to standard error, a line each."""

    def shown(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = shown
        yield


@contextmanager
def _bar(doing: str, total: int | None) -> Iterator[Callable[[int, int | None, str], None]]:
    """A bar on standard error, once the work has taken a while."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(doing, total=total)
    start = perf_counter()

    def update(done: int, of: int | None, text: str) -> None:
        if perf_counter() - start > SLOW_SECONDS:
            bar.start()
            bar.update(task, completed=done, total=of, description=text)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


@app.command()
def fit(
    table: Annotated[
        list[str],
        typer.Argument(metavar="TABLE...", help="Files with the same columns.", show_default=False),
    ],
    rules: RulesOption,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="The model.")],
    minutes: Annotated[float, typer.Option(min=0, help="How long settings are tried.")] = 10.0,
    seed: Seed = 0,
    violations: Annotated[
        str,
        typer.Option(
            metavar="drop|repair|error", help="What becomes of rows that break the rules."
        ),
    ] = "drop",
    as_json: AsJson = False,
) -> None:
    """Learn the rows of TABLE under rules: every row that the model makes obeys them, exactly."""
    with answering(as_json), _telling():
        from multiplexnet.synthesis.synthesizer import Synthesizer

        model = Synthesizer(loaded(rules))
        with _bar("learning", None) as update:

            def told(state: Any) -> None:
                score = state.log_likelihood
                shown = "" if score is None else f", log-likelihood {score:.2f}"
                text = f"setting {state.recipe + 1} of at most {state.recipes}{shown}"
                update(state.step, state.steps, text)

            model.fit(
                table,
                minutes=minutes,
                seed=seed,
                violations=violations,  # type: ignore[arg-type]
                progress=told,
            )
        _refuse_unwritable(output, lambda: model.save(output))
        score = model.log_likelihood
        if as_json:
            print(json.dumps({"model": str(output), "log_likelihood": score}))
        else:
            shown = "" if score is None else f" (log-likelihood of rows kept apart: {score:.3f})"
            print(f"written: {output}{shown}", file=sys.stderr)


@app.command()
def sample(
    model: ModelFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A .csv or .parquet file.")
    ],
    rows: Annotated[
        int | None, typer.Option("--rows", "-n", min=0, help="How many rows.", show_default=False)
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="""What all rows meet, as in 'age >= 40'."""),
    ] = None,
    given: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Known columns, to be completed.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Write rows that the MODEL makes: all of them obey its rules."""
    with answering(False), _telling():
        from multiplexnet.synthesis.synthesizer import Synthesizer

        try:
            known = Synthesizer.load(model)
        except OSError as error:
            raise BadInput(f"{model} cannot be read: {error.strerror or error}") from None
        frames = known.sampled_blocks(rows, where=where, given=given, seed=seed)
        _refuse_unwritable(output, lambda: _written(frames, output, rows))
        print(f"written: {output}", file=sys.stderr)


def _written(frames: Iterator[Any], path: Path, total: int | None) -> None:
    """Blocks go to the file a group at a time."""
    import polars as pl

    from multiplexnet.tables.output import writer_of

    writer = writer_of(path, "rows")
    is_text = path.suffix.lower() == ".csv"
    waiting: list[pl.DataFrame] = []
    done = 0
    try:
        with _bar("drawing rows", total) as update:
            for frame in frames:
                waiting.append(_with_texts(frame) if is_text else frame)
                done += frame.height
                if sum(part.height for part in waiting) >= GROUP:
                    writer.write(pl.concat(waiting))
                    waiting = []
                update(done, total, f"{done:,} rows")
            if waiting:
                writer.write(pl.concat(waiting))
    finally:
        writer.close()


def _with_texts(frame: Any) -> Any:
    """Times as texts that are read back."""
    import polars as pl

    return frame.with_columns(pl.col(pl.Datetime).dt.strftime("%Y-%m-%d %H:%M:%S"))


def _refuse_unwritable(path: Path, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None
