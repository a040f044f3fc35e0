"""What the library says to a person: amounts that mean something, errors of our own that say what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from campaign.__main__ import app as campaign_app
from multiplexnet import Multiplexer, Rules
from multiplexnet.errors import (
    DtypeError,
    MultiplexError,
    OutOfRangeError,
    RuleSyntaxError,
    RuleTypeError,
    TermBudgetExceeded,
    ThinTermError,
)
from multiplexnet.reports.text import explain_json, explain_text
from multiplexnet.tables.check import check_table
from multiplexnet.tools.cli import app

# --- by how much a rule is violated ---------------------------------------------------------------------------------

PERSON = 'sex: {"M", "F"}; smokes: bool; rate: real; limit: real\n'
AMOUNTS = [  # (rule, sex, smokes, rate, limit, amount)
    ('implies(sex == "M", rate <= 100)', 0, 0, 180, 0, 80),
    ('implies(sex == "M", rate <= 100)', 1, 0, 180, 0, 0),
    ("implies(smokes, rate <= 100)", 0, 1, 180, 0, 80),
    ("implies(not smokes, rate <= 100)", 0, 0, 180, 0, 80),
    ('sex == "F" or rate <= 100', 0, 0, 180, 0, 80),
    ('rate <= 100 or sex == "F" or rate <= 170', 0, 0, 180, 0, 10),
    ('(sex == "F" and rate <= 179) or rate <= 100', 0, 0, 180, 0, 80),
    ('(sex == "F" and rate <= 179) or rate <= 100', 1, 0, 180, 0, 1),
    ('sex == "F" and rate <= 100', 0, 0, 180, 0, 80),
    ('sex == "F" and rate <= 100', 0, 0, 80, 0, 1),
    ('iff(sex == "M", rate <= 100)', 0, 0, 180, 0, 80),
    ('iff(sex == "M", rate >= 100)', 1, 0, 180, 0, 80),
    ('sex == "F" or smokes', 0, 0, 180, 0, 1),
    ('sex != "M"', 0, 0, 0, 0, 1),
    ("smokes", 0, 0, 0, 0, 1),
    ("not smokes", 0, 1, 0, 0, 1),
    ("implies(sex == 'M' and smokes, rate <= limit and rate >= 50)", 0, 1, 20, 30, 30),
    ("rate <= 100 or rate >= 200", 0, 0, 180, 0, 20),
]


@pytest.mark.parametrize(("rule", "sex", "smokes", "rate", "limit", "amount"), AMOUNTS)
def test_a_violation_is_what_a_person_would_say(
    rule: str, sex: int, smokes: int, rate: int, limit: int, amount: int, tmp_path: Path
) -> None:
    rules = Rules(PERSON + rule)
    x = np.array([[sex, smokes, rate, limit]], dtype=np.float64)
    assert rules.violation(x).tolist() == [[amount]]
    assert bool(rules.satisfied(x)[0]) == (amount == 0)
    table = tmp_path / "t.csv"
    table.write_text(f"sex,smokes,rate,limit\n{'MF'[sex]},{smokes},{rate},{limit}\n")
    (report,) = check_table(rules.specification, table).rules
    assert report.largest == (amount or None)


def test_the_largest_is_found_among_many_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sex, rate = (
        rng.integers(0, 2, 5000),
        rng.integers(50, 200, 5000) + rng.integers(0, 10, 5000) / 10,
    )
    rules = Rules('sex: {"M", "F"}; rate: real\nimplies(sex == "M", rate <= 100)')
    table = tmp_path / "t.csv"
    table.write_text(
        "sex,rate\n"
        + "".join(f"{'MF'[s]},{r:.1f}\n" for s, r in zip(sex, rate, strict=True))
    )
    (report,) = check_table(rules.specification, table).rules
    assert report.violations == ((sex == 0) & (rate > 100)).sum()
    assert report.largest is not None
    assert abs(float(report.largest) - (rate[sex == 0].max() - 100)) < 1e-9


def test_counts_of_booleans_stay_counts() -> None:
    rules = Rules("p: bool[5]; rate: real\nsum(p) <= 2\nsum(p) <= 2 or rate <= 100")
    assert rules.violation(np.array([[1.0, 1, 1, 1, 1, 180]])).tolist() == [[3, 80]]


def test_check_says_how_much(tmp_path: Path) -> None:
    (tmp_path / "r.rules").write_text(
        'sex: {"M", "F"}; rate: real\nimplies(sex == "M", rate <= 100)'
    )
    (tmp_path / "t.csv").write_text("sex,rate\nM,180\n")
    result = CliRunner().invoke(
        app, ["check", str(tmp_path / "r.rules"), str(tmp_path / "t.csv")]
    )
    assert result.exit_code == 1
    assert "on the boundary" not in result.stdout
    assert " 80" in result.stdout


# --- what is given for rules ----------------------------------------------------------------------------------------


def test_rules_from_a_list() -> None:
    rules = Rules(["x: real; y: real", "x >= 0  # first", "y >= x\ny <= 10"])
    assert rules == Rules("x: real; y: real\nx >= 0  # first\ny >= x\ny <= 10")
    assert [rule.line for rule in rules.specification.rules] == [2, 3, 4]
    assert Rules(("a >= 0", "b >= a")).outputs == Rules("a >= 0\nb >= a").outputs


@pytest.mark.parametrize(
    ("entries", "line", "column", "reason"),
    [
        (["x: real", "x >= y"], 1, 6, "in entry 1 of the list: unknown name `y`"),
        (
            ["x: real\nx >= 0", "x <= 1\nx >= y"],
            2,
            6,
            "in entry 1 of the list: unknown name `y`",
        ),
        (["x >= (0", "1) <= x"], 1, 6, "in entry 0 of the list: this cannot be read"),
        (["x >= 0", "  # nothing"], 1, 1, "in entry 1 of the list: no rules"),
        ([], None, None, "no rules: the list is empty"),
    ],
)
def test_errors_point_into_the_entry(
    entries: list[str], line: int | None, column: int | None, reason: str
) -> None:
    with pytest.raises(RuleSyntaxError) as refusal:
        Rules(entries)
    assert (refusal.value.line, refusal.value.column) == (line, column)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (None, "found None"),
        (b"x >= 0", r"decode it first, as in Rules\(data.decode\(\)\)"),
        (Path("a.rules"), r"Rules\.load\(path\)"),
        (3, "an object of type int"),
        ({"x": 1}, "an object of type dict"),
        (["x >= 0", None], "found None"),
        (Rules("x >= 0"), "these are Rules already"),
    ],
)
def test_what_is_no_text(given: object, advice: str) -> None:
    with pytest.raises(RuleTypeError, match=advice) as refusal:
        Rules(given)  # type: ignore[arg-type]
    assert isinstance(refusal.value, TypeError)
    assert isinstance(refusal.value, MultiplexError)


@pytest.mark.parametrize("reader", [Rules.from_smtlib, Rules.from_ordering, Rules.load])
@pytest.mark.parametrize("given", [None, 3, b"x"])
def test_other_ways_in_refuse_what_is_no_text(reader: object, given: object) -> None:
    with pytest.raises(RuleTypeError):
        reader(given)  # type: ignore[operator]


@pytest.mark.parametrize(
    "number",
    ["inf", "-inf", "infinity", "Inf", "math.inf", "np.inf", "float('inf')", "oo"],
)
@pytest.mark.parametrize("declaration", ["", "x: real\n"])
def test_infinity_is_no_number(number: str, declaration: str) -> None:
    with pytest.raises(RuleSyntaxError, match=r"leave it out|is left out"):
        Rules(f"{declaration}x <= {number}")


def test_infinity_in_a_range() -> None:
    with pytest.raises(RuleSyntaxError, match="`inf` is not a number"):
        Rules("u: input[0, inf]; x: real; x <= u")


@pytest.mark.parametrize("number", ["nan", "NaN", "math.nan"])
def test_nan_is_no_number(number: str) -> None:
    with pytest.raises(RuleSyntaxError, match="leave the rule out"):
        Rules(f"x >= {number}")


def test_a_name_may_be_declared() -> None:
    assert [v.name for v in Rules("inf: real; inf <= 3").outputs] == ["inf"]


# --- SMT-LIB --------------------------------------------------------------------------------------------------------

SCRIPT = "(declare-const x Real)\n(assert (> x 0))\n"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "(get-unsat-core)",
            "(get-assignment)",
            "(eval x)",
            "(get-model)",
            "(get-proof)",
            "(get-assertions)",
        ),
        *("(get-unsat-assumptions)", "(get-option :produce-models)", "(get-value (x))"),
    ],
)
def test_questions_are_passed_over(command: str) -> None:
    assert (
        Rules.from_smtlib(SCRIPT + command).formula == Rules.from_smtlib(SCRIPT).formula
    )


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (
            "(check-sat-assuming p)",
            "expected a list of literals, as in (check-sat-assuming",
        ),
        (
            "(push 1)(check-sat)(check-sat)",
            "a layer keeps one set of rules: keep one of them",
        ),
        ("(pop 1)", "write a push for each"),
        ("(maximize x)", "rules say what has to hold"),
    ],
)
def test_other_commands_come_with_advice(command: str, advice: str) -> None:
    with pytest.raises(RuleSyntaxError, match=re.escape(advice)) as refusal:
        Rules.from_smtlib(SCRIPT + command)
    assert refusal.value.line == 3


# --- layers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw", [np.zeros(3, dtype=np.float32), [0.0, 1.0, 2.0], 1.0, None]
)
def test_raws_are_tensors(raw: object) -> None:
    mux = Multiplexer(Rules("x >= 2 or x <= -2"))
    for call, name in ((mux, "raw"), (mux.repair, "x0")):
        with pytest.raises(
            DtypeError, match=rf"{name} is of type .*; a tensor is expected: torch\."
        ):
            call(raw)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "dtype", "wider"),
    [
        ("x >= 1e400", torch.float64, None),
        ("x >= 1e400", torch.float16, None),
        ("x <= -1e400", torch.float32, None),
        ("x >= 1e5", torch.float16, "float32"),
        ("x > 65504", torch.float16, "float32"),
        ("x + y >= 1e400", torch.float64, None),
        ("x + y >= 200000", torch.float16, "float32"),
        ("x >= 1e300", torch.float32, "float64"),
    ],
)
def test_numbers_beyond_the_range(
    text: str, dtype: torch.dtype, wider: str | None
) -> None:
    with pytest.raises(OutOfRangeError) as refusal:
        Multiplexer(Rules(text), dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    assert f"beyond the range of {name}, ±" in str(refusal.value)
    assert (f"{wider} would do" if wider else "measure in other units") in str(
        refusal.value
    )
    assert "thin" not in str(refusal.value)
    assert isinstance(
        refusal.value, ThinTermError
    )  # who caught it before catches it now
    assert refusal.value.wider == wider


def test_what_is_thin_is_still_called_thin() -> None:
    with pytest.raises(ThinTermError, match="too thin") as refusal:
        Multiplexer(Rules("1 < x < 1.00001"), dtype=torch.float16)
    assert not isinstance(refusal.value, OutOfRangeError)


def test_what_was_tried_is_not_advised() -> None:
    rules = Rules(
        "x: real[6]\nall(x[i] >= x[j] + 1 or x[j] >= x[i] + 1 for i in range(6) for j in range(i))"
    )
    for build in (
        lambda: rules.compile(nested=True, max_terms=20),
        lambda: Multiplexer(rules, max_terms=20),
    ):
        with pytest.raises(
            TermBudgetExceeded, match="inner blocks were tried"
        ) as refusal:
            build()
        assert "nested=True" not in str(refusal.value)
    with pytest.raises(TermBudgetExceeded, match="nested=True"):
        rules.compile(max_terms=20)


def test_outputs_without_ends_are_named_where_a_cascade_would_do() -> None:
    tied = "all(v <= -1 or v >= 1 for v in x); all(x[i] + x[i + 1] >= -9 for i in range(9))"
    ended = "; all(0 <= v <= 9 for v in x[1:])"
    with pytest.raises(
        TermBudgetExceeded, match=r"Give x\[0\] ends, .*`-1000 <= x\[0\] <= 1000`"
    ) as refusal:
        Multiplexer(Rules(f"x: real[10]\n{tied}{ended}; y: real\ny <= 3"), max_terms=1)
    assert refusal.value.endless == ("x[0]",)


# --- libraries that are not there -----------------------------------------------------------------------------------


def without(library: str, program: str) -> subprocess.CompletedProcess[str]:
    """The program, where importing the library fails."""
    hidden = (
        f"import sys; sys.modules[{library!r}] = None; sys.path[:0] = {sys.path!r}\n"
    )
    return subprocess.run(
        [sys.executable, "-c", hidden + program],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("rules.compile()", "compiling rules"),
        ("rules.explain()", "explaining rules"),
        ("mx.Multiplexer(rules)", "compiling rules"),
        ("mx.Rules.from_smtlib('(declare-const x Real)')", "reading SMT-LIB"),
        ("mx.Rules.from_z3(None)", "reading z3 expressions"),
        ("rules.to_z3()", "writing z3 expressions"),
    ],
)
def test_without_z3(call: str, what: str) -> None:
    program = f"""
import multiplexnet as mx
rules = mx.Rules("x >= 2 or x <= -2")
try:
    {call}
except mx.MultiplexError as error:
    assert isinstance(error, ImportError)
    print(error)
"""
    result = without("z3", program)
    assert result.stdout.startswith(
        f"{what} needs z3, which is not installed: pip install z3-solver"
    ), result.stderr


def test_without_accelerate() -> None:
    folder = str(Path(__file__).parents[1] / "experiments")
    for module in ("harness", "backbones"):
        result = without(
            "accelerate", f"sys.path.insert(0, {folder!r}); import {module}"
        )
        assert result.returncode == 1
        assert (
            result.stderr
            == "the experiments need accelerate: pip install -c constraints.txt '.[experiments]'\n"
        )


# --- commands -------------------------------------------------------------------------------------------------------


def test_campaign_writes_into_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(campaign_app, ["--formulas", "1", "--rows", "1"])
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "campaign.json").exists()


def test_explain_lists_labels() -> None:
    rules = Rules(
        'colour: {"red", "green", "blue"}; size: {"S", "L"}; x: real\ncolour != "green"; size == "L"; x >= 0'
    )
    explanation = rules.explain()
    assert [r.labels for r in explanation.ranges] == [("red", "blue"), ("L",), None]
    data = explain_json(explanation)
    assert data["ranges"][:2] == [
        {"name": "colour", "labels": ["red", "blue"]},
        {"name": "size", "labels": ["L"]},
    ]
    assert data["diagnosis"]["fixed"] == {"size": "L"}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(explain_text(explanation))
    text = captured.get()
    assert "red, blue" in text
    assert "size is always L" in text
    assert "[0, 2]" not in text


def test_truth_values_are_told_in_words() -> None:
    explanation = Rules(
        "p: bool; q: bool; r: bool; x: real\nimplies(p, x >= 2); not q; r"
    ).explain()
    console = Console(width=100)
    with console.capture() as captured:
        console.print(explain_text(explanation))
    text = captured.get()
    for told in (
        "false or true",
        "= false",
        "= true",
        "q is always false",
        "r is always true",
    ):
        assert told in text
    assert "[0, 1]" not in text


# --- Parquet --------------------------------------------------------------------------------------------------------

MEGABYTE = 1 << 20


def long_text(path: Path, rows: int, **options: object) -> Path:
    table = pa.table(
        {
            "x": pa.array(
                ["1" * (50 * MEGABYTE)] * rows if rows == 1 else ["1" * MEGABYTE] * rows
            )
        }
    )
    pq.write_table(table, path, compression="zstd", **options)
    return path


def peak(path: Path) -> tuple[str, int]:
    """What checking the file says, and the most memory in bytes that a process of its own has for it."""
    program = f"""
from pathlib import Path
from multiplexnet import Rules
from multiplexnet.errors import TableError
from multiplexnet.tables.check import check_table
try:
    check_table(Rules("x >= 0").specification, Path({str(path)!r}))
    print("read")
except TableError as error:
    print(error)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    )
    told, kilobytes = result.stdout.splitlines()
    return told, int(kilobytes) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_small_file_that_holds_a_huge_text(
    use_dictionary: bool, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"x": ["1", "2"]}), plain)
    told, ordinary = peak(plain)
    assert told == "read"
    for rows in (1, 40):
        path = long_text(
            tmp_path / f"{rows}.parquet", rows, use_dictionary=use_dictionary
        )
        assert path.stat().st_size < 100_000
        told, memory = peak(path)
        assert (
            told
            == f"{path}, column 'x': a cell is longer than 4,096 bytes; numbers and labels are expected"
        )
        assert memory - ordinary < 100 * MEGABYTE


def test_texts_of_ordinary_length_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    numbers = ["0.1", "-2", "3e-2"] * 50_000
    pl.DataFrame({"x": numbers, "c": ["red", "green", "red"] * 50_000}).write_parquet(
        path
    )
    rules = Rules('x: real; c: {"red", "green"}\nx >= 0\nc == "red"')
    report = check_table(rules.specification, path)
    assert report.rows == 150_000
    assert [r.violations for r in report.rules] == [50_000, 50_000]


# --- tensors that do not list their numbers -------------------------------------------------------------------------


def _unlisted(dense: torch.Tensor) -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # torch's own, about sparse, nested and quantized tensors
        return {
            ".to_dense()": dense.to_sparse(),
            "layout sparse_csr": dense.reshape(-1, 1).to_sparse_csr(),
            "torch.stack": torch.nested.nested_tensor(list(dense.reshape(-1, 1))),
            "one row after the other": torch.nested.nested_tensor(
                list(dense.reshape(-1, 1)), layout=torch.jagged
            ),
            ".dequantize()": torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
            "layout _mkldnn": dense.to_mkldnn(),
        }


@pytest.mark.parametrize("advice", list(_unlisted(torch.ones(2))))
def test_tensors_that_do_not_list_their_numbers(advice: str) -> None:
    mux = Multiplexer(Rules("x: real; u: input[0, 5]\nx <= u"))
    dense = torch.ones(2, 1)
    x = _unlisted(dense)[advice]
    u = _unlisted(torch.ones(2))[advice]
    calls: list[Callable[[], object]] = [
        lambda: mux(x, u=1.0),
        lambda: mux.repair(x, u=1.0),
        lambda: mux.rules.satisfied(x, u=1.0),
        lambda: mux.rules.violation(x, u=1.0),
        lambda: mux(dense, u=u),
        lambda: mux.repair(dense, u=u),
        lambda: mux.rules.satisfied(dense, u=u),
    ]
    for call in calls:
        with pytest.raises(DtypeError, match=re.escape(advice)):
            call()
