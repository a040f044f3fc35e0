"""The command line: what it prints, its exit codes, its JSON, and that nothing ends in a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from multiplexnet import __version__
from multiplexnet.compiler.explanation.diagnose import (
    Explanation,
    OutputRange,
    TermShape,
    explain,
)
from multiplexnet.compiler.terms import Block, Term
from multiplexnet.language.formula import Atom, Linear
from multiplexnet.language.parser.parse import parse
from multiplexnet.reports.text import explain_json, explain_text
from multiplexnet.tools.cli import app

ACTUATOR = Path(__file__).parents[1] / "examples" / "actuator.rules"
COMMAND = [sys.executable, "-W", "error", "-m", "multiplexnet"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def run_json(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "good.csv").write_text("limit,a,b\n500,0,3\n700,250.5,252.5\n")
    (tmp_path / "bad.csv").write_text(
        "id,limit,a,b\n1,500,0,3\n2,700,250.5,252.4\n3,700,400,402\n4,100,0,5\n"
    )
    (tmp_path / "clash.rules").write_text(
        "x: real; y: real\nx >= 2\ny >= 0\nx + y <= 1\ny <= 9\n"
    )
    (tmp_path / "gap.rules").write_text("u: input[0, 10]; x: real\nx >= u\nx <= 5\n")
    (tmp_path / "wrong.rules").write_text("x: real\nx >= y\n")
    return tmp_path


# --- check ----------------------------------------------------------------------------------------------------------


def unwrapped(text: str) -> str:
    """The text on one line: where it is broken depends on the length of the path in it."""
    return " ".join(text.split())


def test_check_says_that_all_obey(files: Path) -> None:
    result = run("check", ACTUATOR, files / "good.csv")
    assert result.exit_code == 0
    assert "2 rows checked" in result.stdout
    assert "all obey the rules." in unwrapped(result.stdout)


def test_check_names_rule_rows_and_amount(files: Path) -> None:
    result = run("check", ACTUATOR, files / "bad.csv", "--limit", 0)
    assert result.exit_code == 1
    assert "4 rows checked" in result.stdout
    assert "3 do not obey the rules." in unwrapped(result.stdout)
    lines = result.stdout.splitlines()
    (first,) = [line.split() for line in lines if "200 < a" in line]
    assert first[0] == "7"
    assert first[-5:] == ["1", "3", "on", "the", "boundary"]
    (second,) = [line.split() for line in lines if "implies" in line]
    assert second[-3:] == ["1", "2", "0.1"]
    (domain,) = [line.split() for line in lines if line.startswith("limit")]
    assert domain == ["limit", "input[250,", "1000]", "1", "4"]
    assert "ignored columns: id" in result.stdout


def test_check_as_json(files: Path) -> None:
    answer = run_json("check", ACTUATOR, files / "bad.csv", "--limit", 1)
    assert answer.pop("seconds") >= 0
    assert answer == {
        "rules_file": str(ACTUATOR),
        "table": str(files / "bad.csv"),
        "files": [{"file": str(files / "bad.csv"), "rows": 4}],
        "rows": 4,
        "obeying_rows": 1,
        "all_obey": False,
        "rules": [
            {
                "line": 7,
                "text": "a == 0 or 200 < a < 400",
                "violating_rows": 1,
                "first_violating_row": 3,
                "largest_violation": "0",
            },
            {
                "line": 8,
                "text": "implies(a > 0, b >= a + 2)",
                "violating_rows": 1,
                "first_violating_row": 2,
                "largest_violation": "0.1",
            },
            {
                "line": 9,
                "text": "0 <= b <= limit",
                "violating_rows": 0,
                "first_violating_row": None,
                "largest_violation": None,
            },
        ],
        "domains": [
            {
                "variable": "limit",
                "domain": "input[250, 1000]",
                "rows_outside": 1,
                "first_row_outside": 4,
            },
        ],
        "assumptions": [],
        "cells": [],
        "columns": {"a": "a", "b": "b", "limit": "limit"},
        "ignored_columns": ["id"],
        "violating_rows": [
            {
                "row": 2,
                "file": str(files / "bad.csv"),
                "row_in_file": 2,
                "values": {"a": "250.5", "b": "252.4", "limit": "700"},
                "breaks": ["implies(a > 0, b >= a + 2)"],
            }
        ],
    }


def test_check_shows_rows_and_says_how_they_are_counted(files: Path) -> None:
    result = run("check", ACTUATOR, files / "bad.csv", "--limit", 2)
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [
        "2",
        "implies(a",
        ">",
        "0,",
        "b",
        ">=",
        "a",
        "+",
        "2)",
        "250.5",
        "252.4",
        "700",
    ] in lines
    assert (
        "rows are counted from 1, without the header; 1 more does not obey"
        in result.stdout
    )


def test_check_reads_standard_input_and_writes_rows_and_a_picture(files: Path) -> None:
    rows = files / "bad.csv"
    bad, picture = files / "rows.csv", files / "where.png"
    options = [
        "--delimiter",
        ",",
        "--output",
        bad,
        "--plot",
        picture,
        "--missing",
        "pass",
    ]
    given = rows.read_bytes() + b"5,,,500\n"
    result = CliRunner().invoke(
        app, [str(w) for w in ["check", ACTUATOR, "-", *options]], input=given
    )
    assert result.exit_code == 1, result.output
    assert "standard input: 5 rows checked" in result.stdout
    assert (
        bad.read_text().splitlines()[1]
        == '2,700,250.5,252.4,"implies(a > 0, b >= a + 2)"'
    )
    assert len(bad.read_text().splitlines()) == 4
    assert picture.stat().st_size > 1000
    assert run("check", ACTUATOR, "-", rows).exit_code == 2


def test_check_of_a_table_without_rows(files: Path) -> None:
    (files / "empty.csv").write_text("a,b,limit\n")
    result = run("check", ACTUATOR, files / "empty.csv")
    assert result.exit_code == 0
    assert "a header and no rows" in result.stdout


def test_check_by_position(files: Path) -> None:
    (files / "named.csv").write_text("label,p,q,r\nyes,0,3,500\n")
    result = run(
        "check", ACTUATOR, files / "named.csv", "--by-position", "--skip", "label"
    )
    assert result.exit_code == 0, result.output
    assert "columns: a = p, b = q, limit = r" in result.stdout


def test_check_shows_numbers_that_are_short(files: Path) -> None:
    (files / "thirds.rules").write_text("x: real\nx / 3 <= 1\nx <= 1e-40")
    (files / "x.csv").write_text("x\n4\n")
    result = run("check", files / "thirds.rules", files / "x.csv")
    assert "1/3" in result.stdout
    assert "≈ 4" in result.stdout
    exact = run_json("check", files / "thirds.rules", files / "x.csv")["rules"][1][
        "largest_violation"
    ]
    assert Fraction(exact) == 4 - Fraction(1, 10**40)


def test_progress_goes_to_standard_error(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiplexnet.tools.progress.SLOW_SECONDS", -1.0)
    quiet = run("check", ACTUATOR, files / "good.csv")
    assert quiet.stderr == ""  # which is no terminal
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = run("check", ACTUATOR, files / "good.csv")
    assert "checking" in shown.stderr
    assert shown.exit_code == quiet.exit_code == 0


# --- explain --------------------------------------------------------------------------------------------------------


def test_explain_shows_terms_and_ranges() -> None:
    result = run("explain", ACTUATOR)
    assert result.exit_code == 0
    for text in (
        "2 outputs, 1 input, 3 rules",
        "limit: input[250, 1000]",
        "block 1 of 1: a, b: 2 terms",
        "200 < a < 400",
    ):
        assert text in result.stdout
    assert "[0, 400)" in result.stdout
    assert (
        "complete: the terms are exactly the outputs that obey the rules"
        in result.stdout
    )


def test_explain_as_json() -> None:
    answer = run_json("explain", ACTUATOR)
    assert set(answer) == {
        *(
            "rules_file",
            "outputs",
            "inputs",
            "functions",
            "rules",
            "ranges",
            "diagnosis",
            "problem",
            "blocks",
            "cascades",
            "assumptions",
        ),
        *("complete", "covered", "certificate", "seconds"),
    }
    assert answer["outputs"] == [
        {"name": "a", "domain": "real"},
        {"name": "b", "domain": "real"},
    ]
    assert answer["inputs"] == [{"name": "limit", "domain": "input[250, 1000]"}]
    assert answer["ranges"][0] == {
        "name": "a",
        "lower": "0",
        "lower_attained": True,
        "upper": "400",
        "upper_attained": False,
    }
    assert answer["diagnosis"] == {
        "contradiction": [],
        "always_true": [],
        "implied": [],
        "fixed": {},
        "input_without_output": None,
    }
    (block,) = answer["blocks"]
    assert block["outputs"] == ["a", "b"]
    assert block["terms"][0]["rows"][0] == "a == 0"
    assert [(t["dimension"], t["bounded"]) for t in block["terms"]] == [
        (1, True),
        (2, True),
    ]
    assert answer["certificate"]["sound"] is True
    assert answer["complete"] is True


def test_explain_names_the_contradicting_lines(files: Path) -> None:
    result = run("explain", files / "clash.rules")
    assert result.exit_code == 1
    assert (
        "no output obeys the rules: these rules contradict each other" in result.stdout
    )
    assert [line.strip() for line in result.stdout.splitlines() if "line " in line] == [
        "line 2: x >= 2",
        "line 3: y >= 0",
        "line 4: x + y <= 1",
    ]
    answer = run_json("explain", files / "clash.rules")
    assert [rule["line"] for rule in answer["diagnosis"]["contradiction"]] == [2, 3, 4]
    assert answer["blocks"] is None


def test_explain_names_an_input_without_output(files: Path) -> None:
    result = run("explain", files / "gap.rules")
    assert result.exit_code == 1
    assert "no output obeys the rules for the input u = " in result.stdout


def test_explain_over_the_budget(files: Path) -> None:
    (files / "many.rules").write_text(
        "x: real\n" + " or ".join(f"x == {i}" for i in range(9))
    )
    result = run("explain", files / "many.rules", "--max-terms", 3)
    assert result.exit_code == 2
    assert "more than 3 terms" in " ".join(result.stdout.split())


def test_long_blocks_are_abbreviated(files: Path) -> None:
    (files / "many.rules").write_text(
        "x: real\n" + " or ".join(f"x == {i}" for i in range(60))
    )
    short, long = (
        run("explain", files / "many.rules"),
        run("explain", files / "many.rules", "--all-terms"),
    )
    assert "… and 10 more terms (--all-terms shows them)" in short.stdout
    assert short.stdout.count("x == ") == 50
    assert long.stdout.count("x == ") == 60


def _shown(explanation: Explanation) -> str:
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(explain_text(explanation))
    console.file.close()
    return console.export_text()


def test_every_diagnosis_is_said() -> None:
    specification = parse("x: real; y: real\nx >= 0\nx >= -1\ny == 3\ny == y")
    found = explain(specification)
    x, y = specification.variables
    shown = _shown(found)
    assert "follows from the other rules: line 3: x >= -1" in shown
    assert "always true, and can go: line 5: y == y" in shown
    assert "y is always 3" in shown
    assert "= 3" in shown
    assert "[0, ∞)" in shown
    told = _shown(
        replace(found, uncovered_input=((x, Fraction(1, 3)), (y, Fraction(1, 2))))
    )
    assert "no output obeys the rules for the input x = 1/3, y = 0.5" in told
    assert found.compiled is not None
    part = replace(found.compiled, complete=False, covered=Fraction(3, 4))
    assert "they contain 75 % of the given rows" in " ".join(
        _shown(replace(found, compiled=part)).split()
    )
    assert explain_json(replace(found, compiled=part))["covered"] == "0.75"


def test_nested_choices_are_shown() -> None:
    specification = parse("x: real; y: real\nx >= 0\ny >= 0")
    x, y = specification.variables
    inner = Block(
        (y,),
        (Term((Atom(Linear.of(y), "<="),)), Term((Atom(-Linear.of(y) + 1, "<="),))),
    )
    outer = Block((x, y), (Term((Atom(-Linear.of(x), "<="),), blocks=(inner,)),))
    found = explain(specification)
    assert found.compiled is not None
    nested = replace(
        found,
        compiled=replace(found.compiled, blocks=(outer,)),
        shapes=((TermShape(2, False),),),
    )
    shown = _shown(nested)
    assert "x, y: 1 term (2 terms in disjunctive normal form)" in shown
    assert "and one of" in shown
    assert explain_json(nested)["blocks"][0]["terms"][0]["blocks"][0]["terms"][1][
        "rows"
    ] == ["y >= 1"]


def test_ranges_are_written_as_intervals() -> None:
    specification = parse("x: real\nx >= 0")
    (x,) = specification.variables
    half = OutputRange(x, None, False, Fraction(1, 3), True)
    assert "(−∞, 1/3]" in _shown(Explanation(specification, ranges=(half,)))


@pytest.mark.parametrize(
    "axes", [["--axes", "a", "b"], ["--axes", "b"], ["--axes", "a", "--axes", "b"], []]
)
def test_explain_draws(axes: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "p.png"
    before = run("explain", "--plot", picture, *axes, ACTUATOR)
    assert before.exit_code == 0, before.output
    assert picture.stat().st_size > 1000
    after = run("explain", ACTUATOR, "--plot", picture, *axes, "--at", "limit=300")
    assert after.exit_code == 0, after.output


# --- what can be wrong ----------------------------------------------------------------------------------------------


def test_bad_input_is_said_with_exit_code_2(files: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.rules").mkdir()
    cases = [
        (["explain", files / "wrong.rules"], "line 2, column 6"),
        (["explain", files / "none.rules"], "none.rules: there is no such file"),
        (["certify", files / "none.json"], "none.json: there is no such file"),
        (
            ["explain", tmp_path / "folder.rules"],
            "folder.rules cannot be read: Is a directory",
        ),
        (["explain", files], "ends in .rules, .smt2, .txt"),
        (["check", ACTUATOR, files / "none.csv"], "none.csv: there is no such file"),
        (
            ["check", files / "none.rules", files / "good.csv"],
            "none.rules: there is no such file",
        ),
        (
            ["check", ACTUATOR, ACTUATOR],
            ".arrow, .feather, .duckdb and .sqlite files can be checked",
        ),
        (
            ["explain", ACTUATOR, "--plot", tmp_path / "p.png", "--axes", "a", "c"],
            "'c' is not an output of the rules",
        ),
        (
            ["explain", ACTUATOR, "--plot", tmp_path / "no" / "p.png"],
            "cannot be written: No such file or directory",
        ),
        (
            ["explain", ACTUATOR, "--at", "limit"],
            "--at limit: write it as in --at limit=300",
        ),
        (
            ["explain", ACTUATOR, "--plot", tmp_path / "p.png", "--at", "x=1"],
            "'x' is not an input of the rules",
        ),
    ]
    for arguments, message in cases:
        result = run(*arguments)
        assert (result.exit_code, message in result.stderr) == (2, True), (
            arguments,
            result.output,
            result.exception,
        )


def test_syntax_errors_point_at_the_place(files: Path) -> None:
    assert "    x >= y\n         ^" in run("explain", files / "wrong.rules").stderr


def test_errors_as_json(files: Path) -> None:
    result = run("check", ACTUATOR, files / "none.csv", "--json")
    assert result.exit_code == 2
    assert "there is no such file" in json.loads(result.stdout)["error"]


def test_wrong_usage() -> None:
    assert run("check").exit_code == 2
    assert run("frobnicate").exit_code == 2


def test_version() -> None:
    assert run("--version").stdout == f"multiplexnet {__version__}\n"


# --- as a program ---------------------------------------------------------------------------------------------------


def test_as_a_program(files: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "check", ACTUATOR, files / "bad.csv", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["rows"] == 4
    assert done.stderr == ""


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_closed_pipe_is_quiet(option: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, "explain", ACTUATOR, *option],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("seconds", [0.3, 2.0])
def test_an_interrupt_ends_quietly(files: Path, seconds: float) -> None:
    os.mkfifo(files / "slow.rules")  # nobody writes: the command waits while it reads
    started = subprocess.Popen(
        [*COMMAND, "explain", files / "slow.rules"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    sleep(seconds)
    started.send_signal(signal.SIGINT)
    out, error = started.communicate(timeout=20)  # closes both pipes
    assert (started.returncode, out, "Traceback" in error) == (130, "", False)


def test_without_its_libraries_it_says_how_to_install_them() -> None:
    program = "import sys; sys.modules['typer'] = None; from multiplexnet.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert (
        done.stderr
        == "the command line needs typer: in a clone of multiplexnet, pip install -c constraints.txt '.[cli]'\n"
    )
