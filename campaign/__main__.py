"""``python -m campaign``: attack the guarantee with random rules and extreme raw values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from campaign.run import Plan, Summary
from campaign.run import campaign as run
from multiplexnet.errors import MultiplexError

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def main(
    formulas: Annotated[
        int, typer.Option(min=1, help="Random formulas to try, at least.")
    ] = 1000,
    rows: Annotated[
        int,
        typer.Option(
            min=0, help="Rows to judge exactly, in all dtypes together, at least."
        ),
    ] = 0,
    seed: Annotated[
        int,
        typer.Option(
            help="Of everything: a trial is a function of seed and number alone."
        ),
    ] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The summary, saved as it grows.")
    ] = Path("out/campaign.json"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the summary in --output.")
    ] = False,
    regressions: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save what fails here, shrunk, for the tests to replay.",
        ),
    ] = None,
) -> None:
    """Attack the guarantee with random rules and extreme raw values. Exit code 1: something was violated."""
    torch.set_num_threads(1)  # rows are few: a second thread is waited for
    plan = Plan(formulas, rows or 1000 * formulas, seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=plan.formulas)

        def told(summary: Summary) -> None:
            text = f"{summary.formulas:,} formulas, {summary.rows:,} rows, {len(summary.violations)} violations"
            bar.update(task, completed=summary.formulas, description=text)

        try:
            done = run(
                plan,
                output=output,
                resume=resume,
                jobs=jobs,
                regressions=regressions,
                progress=told,
            )
        except (MultiplexError, OSError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None
    print(
        json.dumps(
            {k: v for k, v in done.record().items() if k != "what was violated"},
            indent=1,
        )
    )
    for violation in done.violations:
        print(
            f"violated: {violation['check']}: seed {seed}, number {violation['index']}: {violation['what']}"
        )
    if done.violations:
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="python -m campaign")
