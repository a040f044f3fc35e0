"""The command line: ``multiplexnet explain``, ``check`` and ``certify``; the playground adds its own command.

Exit codes: 0 all is well; 1 rows that break the rules, rules that contradict each other, inputs without an output, a
certificate that is refuted; 2 input that cannot be read; 3 a certificate of which nothing is refuted and not all is
proved in the time; 130 interrupted; 141 nobody reads the output. With ``--json`` exactly one JSON document goes to
standard output, errors included.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from typer.core import TyperCommand

from multiplexnet.errors import MissingFileError, MultiplexError
from multiplexnet.exact.deadline import SECONDS
from multiplexnet.language.formula import Specification
from multiplexnet.reports.printing import PLAIN_WIDTH, plain_text
from multiplexnet.synthesis.replacing import in_place_of
from multiplexnet.tools.progress import shown_late

__all__ = [
    "AsJson",
    "BadInput",
    "Delimiter",
    "RulesFile",
    "answering",
    "app",
    "loaded",
    "refuse_overwriting",
    "tables_named",
    "write",
    "writing",
]

app = typer.Typer(
    help="Rules on a network's outputs that hold exactly: explain them, check tables against them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


# --- what every command shares --------------------------------------------------------------------------------------


class BadInput(MultiplexError):
    """What the user gave cannot be used."""


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """Errors become a message and exit code 2; a closed pipe ends the program quietly."""
    try:
        yield
        sys.stdout.flush()
    except MultiplexError as error:
        if as_json:
            print(json.dumps({"error": str(error)}))
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or Python complains when it closes stdout
        raise typer.Exit(141) from None


def _printed(
    text: Callable[[], Any], data: Callable[[], dict[str, Any]], as_json: bool
) -> None:
    if as_json:
        print(json.dumps(data(), ensure_ascii=False, allow_nan=False))
        return
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    print(plain_text(text(), width), end="")


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar with the number of rows."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} rows"),
        TimeElapsedColumn(),
    )
    with shown_late(*columns, total=total) as show:
        yield lambda rows: show(rows, max(total or rows, rows), "checking")


@contextmanager
def _phases() -> Iterator[Callable[[str, int], None]]:
    """What is being done and how far it is."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:,}"),
        TimeElapsedColumn(),
    )
    with shown_late(*columns) as show:
        yield lambda doing, done: show(done, None, doing)


def _version(wanted: bool) -> None:
    if wanted:
        from multiplexnet import __version__

        print(f"multiplexnet {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


RulesFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="Rules: .rules, .smt2 or .txt.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="What separates cells (otherwise found in the header).",
    ),
]


def loaded(path: Path) -> Any:
    """The rules in a file."""
    from multiplexnet.rules import Rules

    with _reading(path):
        return Rules.load(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Says which file cannot be read, where one cannot."""
    try:
        yield
    except MissingFileError:
        raise
    except OSError as error:
        name = error.filename or path
        raise BadInput(f"{name} cannot be read: {error.strerror or error}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says which file cannot be written, where one cannot."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


def write(path: Path, text: str) -> None:
    """Write a file, and say so on standard error."""
    with writing(path), in_place_of(path) as draft:
        draft.write_text(text, encoding="utf-8")
    print(f"written: {path}", file=sys.stderr)


def refuse_overwriting(
    written: Sequence[Path | None],
    *,
    tables: Sequence[str | None] = (),
    rules: Path | None = None,
    model: Path | None = None,
) -> None:
    """Raises ``BadInput`` if a file that is read would be written, one file twice, or a file called ``-``.

    Args:
        written: the files that a command writes.
        tables: files that it reads, and patterns of them.
        rules: the rules that it reads.
        model: the model that it reads.
    """
    from multiplexnet.tables.sources.files import files_named

    named = files_named(table for table in tables if table is not None)
    taken = [(own, "is a table that is read") for own in named]
    if rules is not None:
        taken.append((rules, "holds the rules that are read"))
    if model is not None:
        taken.append((model, "is the model that is read"))
    for path in written:
        if path is None or (path.exists() and not path.is_file()):
            continue
        if str(path) == "-":
            raise BadInput("-: nothing is written to standard output, so name a file")
        for other, what in taken:
            if _is_same(path, other):
                raise BadInput(f"{path} {what}: write to another file")
        taken.append((path, "would be written twice"))


def _is_same(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other)
    return os.path.realpath(path) == os.path.realpath(other)


# --- check ----------------------------------------------------------------------------------------------------------


@app.command()
def check(
    file: RulesFile,
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="Files (.csv, .tsv, also .gz; .parquet, .arrow, .feather, .duckdb, .sqlite), patterns of them, or - "
            "for CSV from standard input.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
    by_position: Annotated[
        bool,
        typer.Option(
            "--by-position",
            help="Take columns in order (y_0 is the first) instead of by name.",
        ),
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip", metavar="COLUMN", help="Leave this column out. Can be repeated."
        ),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            metavar="error|pass|fail",
            help="What an empty cell means where the column was not declared with `?`: bad input, nothing, or a row "
            "that fails.",
        ),
    ] = "fail",
    delimiter: Delimiter = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="NAME", help="The table of a .duckdb or .sqlite file."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=0, help="How many rows that do not obey are shown.")
    ] = 10,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all rows that do not obey to this .csv or .parquet file.",
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="In how many processes to check.")
    ] = 1,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS|local", help="Check on the workers of this Dask scheduler."
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="PNG", help="Draw where in the table the rules are broken."
        ),
    ] = None,
) -> None:
    """Which rows of TABLE break which rules, exactly. Exit code 0: none; 1: some; 2: bad input."""
    with answering(as_json):
        from multiplexnet.reports.tables import check_json, check_text
        from multiplexnet.tables.check import CheckOptions, check_table

        refuse_overwriting([output, plot], rules=file)  # tables: check_table does it
        specification: Specification = loaded(file).specification
        tables, rows = tables_named(table, delimiter, name)
        with _progress(rows) as update:
            report = check_table(
                specification,
                tables,
                CheckOptions(
                    by_position=by_position,
                    skip=skip or (),
                    missing=missing,  # type: ignore[arg-type]
                    limit=limit,
                    output=output,
                    progress=update,
                    strips=plot is not None,
                    jobs=jobs,
                    dask=dask,
                ),
            )
        _printed(
            lambda: check_text(report),
            lambda: {"rules_file": str(file), **check_json(report)},
            as_json,
        )
        if plot is not None:
            from multiplexnet.tools.strips import plot_strips

            _drawn(plot, lambda: plot_strips(report, plot))
        if output is not None:
            print(f"written: {output}", file=sys.stderr)
        if not report.all_obey:
            raise typer.Exit(1)


def tables_named(
    names: Sequence[str], delimiter: str | None, table: str | None = None
) -> tuple[list[Any], int | None]:
    """The tables with these names, and about how many rows they have."""
    from multiplexnet.tables.sources.files import (
        estimated_rows,
        files_named,
        refuse_bad_delimiter,
        table_in_file,
    )
    from multiplexnet.tables.sources.separated import streamed_table
    from multiplexnet.tables.sources.table import own_errors

    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    refuse_bad_delimiter(delimiter)
    if "-" not in names:
        paths = files_named(names)
        return [
            table_in_file(path, delimiter, table) for path in paths
        ], estimated_rows(paths)
    if list(names) != ["-"]:
        raise BadInput("-: standard input is read alone, without other files")
    title = "standard input"
    with own_errors(title):
        return [streamed_table(title, sys.stdin.buffer, delimiter)], None


# --- explain --------------------------------------------------------------------------------------------------------


class _Axes(TyperCommand):
    """A command where ``--axes a b`` means ``--axes a --axes b``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _repeated(args, "--axes", 2))


def _repeated(args: Sequence[str], option: str, most: int) -> list[str]:
    result = []
    left = 0
    for k, argument in enumerate(args):
        if argument == option:
            left = most
            continue
        is_name = (
            not argument.startswith("-")
            and argument.replace("[", "_").replace("]", "_").isidentifier()
        )
        left = left if is_name or (left == most and k) else 0
        result += [option, argument] if left else [argument]
        left = max(left - 1, 0)
    return result


@app.command(cls=_Axes)
def explain(
    file: RulesFile,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the terms into this file.")
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A [B]", help="The variables to draw (the first two outputs)."
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER",
            help="The value of an input in the picture. Can be repeated.",
        ),
    ] = None,
    max_terms: Annotated[
        int | None, typer.Option(min=1, help="The most terms a block may have.")
    ] = None,
    all_terms: Annotated[
        bool, typer.Option("--all-terms", help="Show every term, however many.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Tell what was found after so many seconds (0: no limit)."
        ),
    ] = SECONDS,
) -> None:
    """What the rules in FILE mean: terms, ranges, contradictions. Exit code 1: some input, or all, has no output."""
    with answering(as_json):
        from multiplexnet.reports.text import explain_json, explain_text

        refuse_overwriting([plot], rules=file)
        point = dict(_assignment(text) for text in at or ())
        options = {} if max_terms is None else {"max_terms": max_terms}
        rules = loaded(file)
        with _phases() as told:
            explanation = rules.explain(
                **options, seconds=seconds or None, progress=told
            )
        _printed(
            lambda: explain_text(explanation, all_terms=all_terms),
            lambda: {"rules_file": str(file), **explain_json(explanation)},
            as_json,
        )
        if plot is not None and explanation.compiled is not None:
            compiled = explanation.compiled
            if explanation.cascades:  # a picture shows terms
                compiled = rules.compile(**options, seconds=seconds or None)
            _draw(compiled, plot, axes, point)
        if explanation.contradiction or explanation.uncovered_input is not None:
            raise typer.Exit(1)
        if explanation.compiled is None:
            raise typer.Exit(2)


def _assignment(text: str) -> tuple[str, Fraction]:
    from multiplexnet.language.parser.values import Refusal, decimal

    name, _, number = text.partition("=")
    over, _, under = number.partition("/")
    try:
        return name.strip(), decimal(over.strip()) / decimal(under.strip() or "1")
    except (ValueError, ZeroDivisionError, Refusal):
        raise BadInput(f"--at {text}: write it as in --at limit=300") from None


def _draw(
    compiled: Any, path: Path, axes: Sequence[str] | None, at: dict[str, Fraction]
) -> None:
    from multiplexnet.tools.plot import plot_terms

    _drawn(path, lambda: plot_terms(compiled, axes, path, at=at))


def _drawn(path: Path, draw: Callable[[], object]) -> None:
    with writing(path):
        draw()
    print(f"drawn: {path}", file=sys.stderr)


# --- certify --------------------------------------------------------------------------------------------------------


@app.command()
def certify(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What mux.certificate.save wrote.", show_default=False
        ),
    ],
    as_json: AsJson = False,
    rules: Annotated[
        Path | None,
        typer.Option(
            metavar="RULES", help="A rule file that the certificate should be about."
        ),
    ] = None,
) -> None:
    """Check the certificate in FILE again, without the compiler.

    Exit code 0: certified; 1: refuted; 2: unreadable; 3: not proved in the time.
    """
    with answering(as_json):
        from rich.text import Text

        from multiplexnet.certificate.check import certify as check_certificate
        from multiplexnet.certificate.report import report_json

        with _reading(file):
            report = check_certificate(file, rules)
        data = {"certificate_file": str(file), **report_json(report)}
        _printed(lambda: Text(str(report)), lambda: data, as_json)
        if not report.certified:
            raise typer.Exit(3 if report.is_open else 1)
