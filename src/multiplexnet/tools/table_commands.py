"""Two commands: ``multiplexnet infer`` writes rules that a table suggests, ``multiplexnet sql`` writes rules in SQL."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from multiplexnet.tools.cli import (
    AsJson,
    BadInput,
    Delimiter,
    RulesFile,
    answering,
    app,
    loaded,
    refuse_overwriting,
    tables_named,
    write,
)

__all__ = ["app", "infer", "sql"]


@app.command()
def infer(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="Files with the same columns, or patterns.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the rules to this .rules file.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
    support: Annotated[
        float, typer.Option(help="The share of rows in which a rule has to hold.")
    ] = 0.99,
    delimiter: Delimiter = None,
    as_json: AsJson = False,
) -> None:
    """Rules that TABLE suggests: declarations that hold for it, and candidates with their support. A file to edit."""
    with answering(as_json):
        from multiplexnet.arguments import refuse_bad_share
        from multiplexnet.tables.inference.infer import inferred

        refuse_bad_share("support", support, "rows")
        if output is not None and output.suffix not in (".rules", ".txt"):
            raise BadInput(f"{output}: rules are written to a file that ends in .rules")
        if output is not None and output.is_file() and not force:
            raise BadInput(
                f"{output} is there already: write to another file, or replace it with --force"
            )
        refuse_overwriting([output], tables=table)
        tables, _ = tables_named(table, delimiter)
        found = inferred(tables, support=support)
        if output is not None:
            write(output, found.text)
        if as_json:
            data = {
                "rows": found.rows,
                "rules": found.text,
                "skipped": list(found.skipped),
            }
            print(json.dumps(data, ensure_ascii=False))
        elif output is None:
            print(found.text, end="")


@app.command()
def sql(
    file: RulesFile,
    table: Annotated[
        str, typer.Option(metavar="NAME", help="The table of the database.")
    ],
    dialect: Annotated[
        str, typer.Option(metavar="duckdb|postgres|sqlite", help="The database.")
    ] = "duckdb",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the script to this file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The rules in FILE as CHECK constraints, and the queries that find the rows that break each."""
    with answering(as_json):
        from multiplexnet.tables.sql import sql_of

        refuse_overwriting([output], rules=file)
        found = sql_of(loaded(file).specification, table, dialect)
        if output is not None:
            write(output, str(found))
        if as_json:
            constraints = [asdict(constraint) for constraint in found.constraints]
            data = {
                "table": found.table,
                "dialect": dialect,
                "constraints": constraints,
            }
            print(json.dumps(data, ensure_ascii=False))
        elif output is None:
            print(found, end="")
