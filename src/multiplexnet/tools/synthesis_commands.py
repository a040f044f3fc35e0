"""Commands that make tables: ``multiplexnet fit``, ``multiplexnet sample`` and ``multiplexnet report``."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from multiplexnet.tools.cli import (
    AsJson,
    BadInput,
    answering,
    loaded,
    refuse_overwriting,
    writing,
)
from multiplexnet.tools.interrupts import in_order
from multiplexnet.tools.progress import shown_late
from multiplexnet.tools.table_commands import app

__all__ = ["app", "fit", "sample"]

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="What `fit` wrote.", show_default=False)
]
RulesOption = Annotated[
    Path, typer.Option("--rules", metavar="FILE", help="Rules: .rules, .smt2 or .txt.")
]
LISTED = 12
"""Rules and columns that are broken; others are counted."""
Seed = Annotated[int, typer.Option(help="The same model and seed give the same rows.")]


@contextmanager
def _telling() -> Iterator[None]:
    """Warnings go to standard error, a line each."""

    def shown(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = shown
        yield


def _bar(
    doing: str, total: int | None
) -> AbstractContextManager[Callable[[int, int | None, str], None]]:
    """A bar with the time that is left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    return shown_late(*columns, doing=doing, total=total)


@app.command()
def fit(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...", help="Files with the same columns.", show_default=False
        ),
    ],
    rules: RulesOption,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="The model.")
    ],
    minutes: Annotated[
        float,
        typer.Option(
            min=0, help="How long settings are tried; 0: once through the table."
        ),
    ] = 10.0,
    seed: Annotated[
        int,
        typer.Option(
            help="The same seed gives the same model if learning ends before the minutes do, or these are 0."
        ),
    ] = 0,
    violations: Annotated[
        str,
        typer.Option(
            metavar="drop|repair|error",
            help="What becomes of rows that break the rules.",
        ),
    ] = "drop",
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--anew", help="Go on where an earlier fit was interrupted."
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Learn the rows of TABLE under rules: every row that the model makes obeys them, exactly."""
    with answering(as_json), _telling():
        refuse_overwriting([output], tables=table, rules=rules)
        from multiplexnet.synthesis.synthesizer import Synthesizer
        from multiplexnet.synthesis.together import launched

        processes = launched()
        model = Synthesizer(loaded(rules))
        draft = output.with_name(f".{output.name}.learning")
        if processes.is_first:
            with writing(output):
                _touched(output)
            if not resume:
                draft.unlink(missing_ok=True)
        learn = partial(
            model.fit,
            table,
            minutes=processes.of_first(minutes),  # the others wait for the first here
            seed=seed,
            violations=violations,  # type: ignore[arg-type]
            checkpoint=draft,
        )
        if not processes.is_first:
            with warnings.catch_warnings(action="ignore"):
                learn()
            return
        told_of: list[bool] = []

        def show(report: Any) -> None:
            if not told_of:
                _show_violations(report)
                told_of.append(True)

        try:
            with (
                _bar("learning", None) as update,
                _patient() as interrupted,
                in_order(),
            ):

                def told(state: Any) -> None:
                    show(model.report)
                    if interrupted():
                        raise KeyboardInterrupt
                    update(*_learning(state))

                learn(
                    progress=told,
                    note=lambda text: print(f"note: {text}", file=sys.stderr),
                )
        except KeyboardInterrupt:
            kept = "; the same command goes on from there" if model.checkpoint else ""
            print(f"interrupted while learning{kept}", file=sys.stderr)
            raise typer.Exit(130) from None
        finally:
            show(model.report)
        try:
            with writing(output):
                model.save(output)
        except BadInput as error:
            if model.checkpoint is None:
                raise
            raise BadInput(
                f"{error}. What was learned is in {model.checkpoint}: the same command goes on from there"
            ) from None
        score = model.log_likelihood
        if as_json:
            print(json.dumps({"model": str(output), "log_likelihood": score}))
        else:
            shown = (
                ""
                if score is None
                else f" (log-likelihood of rows kept apart: {score:.3f})"
            )
            print(f"written: {output}{shown}", file=sys.stderr)


@contextmanager
def _patient() -> Iterator[Callable[[], bool]]:
    """The first interrupt is only noted, so that a step is done before; the second ends at once."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _: Any) -> None:
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, before)


def _touched(path: Path) -> None:
    """Whether a file can be written is better known before hours of work."""
    is_new = not path.exists()
    path.open("ab").close()
    if is_new:
        path.unlink()


def _learning(state: Any) -> tuple[int, int, str]:
    """How far training is, for the bar."""
    score = state.log_likelihood
    shown = "" if score is None else f", log-likelihood {score:.2f}"
    setting = f"setting {state.recipe + 1} of at most {state.recipes}"
    if state.recipe == state.recipes:
        setting = "the best setting, with all rows"
    text = f"{setting}{shown}, {state.rows_per_second:,.0f} rows/s"
    return state.step, state.steps, text


def _show_violations(report: Any) -> None:
    """The table by rule, with the first rows, where rows break something."""
    if report is None or report.all_obey:
        return
    from multiplexnet.reports.printing import plain_text
    from multiplexnet.reports.tables import check_text

    told = replace(report, ignored=())  # columns that no rule mentions are learned
    print(plain_text(check_text(_brief(told))), file=sys.stderr)
    if left := _left_out(report):
        print(f"and {left} more: `multiplexnet check` shows them", file=sys.stderr)


def _brief(report: Any) -> Any:
    """The same with what is worst alone, where many rules or columns are broken."""
    if not _left_out(report):
        return report
    return replace(
        report,
        rules=tuple(_worst(report.rules, "violations")),
        domains=tuple(_worst(report.domains, "violations")),
        cells=tuple(_worst(report.cells, "cells")),
        shown=(),
    )


def _left_out(report: Any) -> int:
    """How many broken rules and columns are too many to be shown."""
    broken = (
        sum(own.violations > 0 for own in report.rules),
        sum(own.violations > 0 for own in report.domains),
        sum(own.fails for own in report.cells),
    )
    return sum(max(0, count - LISTED) for count in broken)


def _worst(parts: Any, by: str) -> list[Any]:
    """Those that most rows break, in the order in which they stand."""
    worst = sorted(parts, key=lambda own: -getattr(own, by))[:LISTED]
    return [own for own in parts if own in worst and getattr(own, by)]


@app.command()
def sample(
    model: ModelFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A .csv or .parquet file, or a folder of the latter.",
        ),
    ],
    rows: Annotated[
        int | None,
        typer.Option("--rows", "-n", min=0, help="How many rows.", show_default=False),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="""What all rows meet, as in 'age >= 40'."""),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Known columns, to be completed."),
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Fill in all empty cells of --given.")
    ] = False,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(min=1, help="In how many processes.")] = 1,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Make the rows on the workers of a Dask scheduler, or `local`.",
        ),
    ] = None,
) -> None:
    """Write rows that the MODEL makes: all of them obey its rules."""
    with answering(False), _telling():
        if (rows is None) == (given is None):
            raise BadInput("give either how many rows, -n 1000, or --given TABLE")
        if fill and given is None:
            raise BadInput("--fill is for the empty cells of --given TABLE: give it")
        refuse_overwriting([output], tables=[given], model=model)
        from multiplexnet.synthesis.synthesizer import Synthesizer

        try:
            known = Synthesizer.load(model)
        except OSError as error:
            raise BadInput(
                f"{model} cannot be read: {error.strerror or error}"
            ) from None
        done: list[Any] = []
        start = perf_counter()
        try:
            with in_order(), _bar("drawing rows", rows) as update:

                def told(state: Any) -> None:
                    done[:] = [state]
                    speed = state.rows / max(perf_counter() - start, 1e-9)
                    text = f"{state.rows:,} rows, {speed:,.0f} rows/s"
                    update(state.rows, state.total, text)

                known.sample_to(
                    output,
                    rows,
                    where=where,
                    given=given,
                    fill=fill,
                    seed=seed,
                    jobs=jobs,
                    dask=dask,
                    progress=told,
                )
        except KeyboardInterrupt:
            written = f"nothing was written to {output}"
            if done:
                written = f"{done[0].rows:,} of {done[0].total:,} rows are in {output}"
            print(f"interrupted: {written}", file=sys.stderr)
            raise typer.Exit(130) from None
        print(f"written: {output}{_exactness(done)}", file=sys.stderr)


def _exactness(done: list[Any]) -> str:
    """Whether all rows follow the conditional distribution, where some may not."""
    if not done or done[0].exact == done[0].rows:
        return ""
    state = done[0]
    return (
        f" (all rows meet the condition; {state.exact:,} of {state.rows:,} are drawn exactly from the conditional "
        f"distribution, the others near it: chosen among candidates worth {state.effective:.1f} on average)"
    )
