"""What users call by a public name: checking tables and certificates from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow
import pytest
import torch

import multiplexnet as mx
from multiplexnet.language.text import number_text

RULES = mx.Rules("low: real; high: real\nlow <= high\nlow + high <= 0.3")
LOW = [0.1, 0.25, 0.1, 0.5]
HIGH = [0.2, 0.05, 0.1, 0.5]
BREAKS = [
    [Fraction(low) > Fraction(high), Fraction(low) + Fraction(high) > Fraction(3, 10)]
    for low, high in zip(LOW, HIGH, strict=True)
]
"""The doubles themselves: 0.1 and 0.2 together are more than three tenths."""


class Exporter:
    """A table that others know only by Arrow's interface, as those of pandas are known."""

    def __init__(self, table: pyarrow.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Columns:
    """A table with the two things that those of older pandas have."""

    def __init__(self, **columns: Any) -> None:
        self.columns = list(columns)
        self.values = columns

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def structured() -> Any:
    return np.array(
        list(zip(LOW, HIGH, strict=True)), dtype=[("low", "f8"), ("high", "f8")]
    )


TABLES: dict[str, Callable[[], Any]] = {
    "polars": lambda: pl.DataFrame({"low": LOW, "high": HIGH}),
    "arrow": lambda: pyarrow.table({"low": LOW, "high": HIGH}),
    "arrow batch": lambda: pyarrow.RecordBatch.from_pydict({"low": LOW, "high": HIGH}),
    "arrow's interface": lambda: Exporter(pyarrow.table({"low": LOW, "high": HIGH})),
    "columns by name": lambda: Columns(low=np.array(LOW), high=np.array(HIGH)),
    "lists": lambda: {"low": LOW, "high": HIGH},
    "arrays": lambda: {"low": np.array(LOW, ">f8"), "high": np.array(HIGH)},
    "tensors": lambda: {
        "low": torch.tensor(LOW, dtype=torch.float64),
        "high": torch.tensor(HIGH, dtype=torch.float64),
    },
    "structured array": structured,
    "array": lambda: np.stack([LOW, HIGH], axis=1),
    "tensor": lambda: (
        torch.tensor([LOW, HIGH], dtype=torch.float64, requires_grad=True).T
    ),
    "objects": lambda: np.array([LOW, HIGH], dtype=object).T,
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_is_checked_exactly(kind: str) -> None:
    report = mx.check(RULES, TABLES[kind]())
    assert report.breaks is not None
    assert report.obeys is not None
    assert report.breaks.tolist() == BREAKS
    assert report.obeys.tolist() == [not any(row) for row in BREAKS]
    assert [*report.counts.values()] == np.sum(BREAKS, axis=0).tolist() == [1, 3]
    assert (report.rows, report.obeying, report.table) == (4, 1, "the table")


def test_tensors_of_low_precision_are_what_they_hold() -> None:
    tenth = torch.tensor([[0.1]], dtype=torch.bfloat16)
    held = Fraction(tenth.item())
    assert held > Fraction(1, 10)
    report = mx.check(mx.Rules("x <= 0.1"), tenth)
    assert report.rules[0].largest == held - Fraction(1, 10)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)
def test_subnormal_numbers_are_read_in_every_mode(dtype: torch.dtype) -> None:
    smallest = torch.tensor([[torch.finfo(dtype).smallest_normal / 2]], dtype=dtype)
    assert smallest.item() > 0
    tables = [smallest, {"x": smallest[:, 0]}]
    if dtype in (torch.float64, torch.float32):
        tables += [smallest.numpy(), pl.DataFrame({"x": smallest[:, 0].numpy()})]
    torch.set_flush_denormal(True)
    try:
        counts = [
            mx.check(mx.Rules("x <= 0"), table).counts["x <= 0"] for table in tables
        ]
    finally:
        torch.set_flush_denormal(False)
    assert counts == [1] * len(tables)


def test_a_file_and_its_frame_give_one_report(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("low,high\n0.1,0.2\n0.25,0.05\n", encoding="utf-8")
    report = mx.check(RULES, path)
    assert report.counts == {
        "low <= high": 1,
        "low + high <= 0.3": 0,
    }  # decimals, not doubles
    assert mx.check(RULES, str(path)) == report
    assert mx.check(RULES, pl.read_csv(path, infer_schema=False)).rules == report.rules


@pytest.mark.parametrize(
    "values",
    [
        [2**53 + 1, 0.5],
        [0.5, 2**53 + 1],
        [Decimal(2**53 + 1), Decimal("0.5")],
        [2**80 + 1, 1],
        np.array([2**53 + 1, 0], dtype=np.int64),
        np.array([2**64 - 1, 0], dtype=np.uint64),
        np.array([2**53 + 1, 0.5], dtype=object),
        ["9007199254740993", "0.5"],
    ],
    ids=str,
)
def test_no_number_is_rounded(values: Any) -> None:
    largest = max(Fraction(str(value)) for value in values)
    report = mx.check(mx.Rules("x < 0"), {"x": values})
    assert report.rules[0].largest == largest
    assert mx.check(mx.Rules(f"x <= {largest - 1}"), {"x": values}).obeying == 1
    assert mx.check(mx.Rules(f"x <= {largest}"), {"x": values}).obeying == 2


def test_numbers_that_would_be_rounded_are_refused() -> None:
    for values in (np.array([0.1], np.longdouble), [Fraction(1, 3)], [1j], ["1", 2]):
        with pytest.raises(
            mx.errors.TableError, match=r"the table, column 'x': its values are of type"
        ):
            mx.check(mx.Rules("x < 0"), {"x": values})


def test_labels_truth_values_and_inputs_in_memory() -> None:
    rules = mx.Rules(
        'on: bool; k: {"a", "b"}; top: input[0, 9]\nimplies(on, k == "a"); top >= 1'
    )
    table = {"top": [1, 10], "k": ["a", "b"], "on": [True, True]}
    report = mx.check(rules, table)
    assert report.counts == {'implies(on, k == "a")': 1, "top >= 1": 0}
    assert [(d.variable.name, d.violations) for d in report.domains][-1] == ("top", 1)


def test_arrays_have_the_columns_of_outputs_and_inputs_or_those_given() -> None:
    rules = mx.Rules("x: real[2]; top: input\nx[0] + x[1] <= top")
    rows = np.array([[1.0, 1.0, 2.0], [1.0, 2.0, 2.0]])
    assert mx.check(rules, rows).obeying == 1
    named = ["top", "id", "x_1", "x_0"]
    report = mx.check(rules, np.array([[2.0, 7.0, 1.0, 1.0]]), columns=named)
    assert report.all_obey
    assert report.ignored == ("id",)
    with pytest.raises(
        mx.errors.TableError, match=r"an array of shape \(2, 3\): expected is .*4\)"
    ):
        mx.check(rules, rows, columns=named)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            7,
            "an object of type int is not a table: give a polars, pandas or Arrow table",
        ),
        (
            pl.LazyFrame({"low": LOW}),
            r"a LazyFrame has not been read yet: give frame\.collect\(\)",
        ),
        (
            {"low": [1.0], "high": [1.0, 2.0]},
            "'low' has 1 values and column 'high' has 2",
        ),
        ({"low": [1.0], "hihg": [1.0]}, r"no column 'high' \(did you mean 'hihg'\?\)"),
        ([], "an empty list: give the path of a table, or several"),
        (
            {"low": np.zeros((1, 1)), "high": [1.0]},
            r"column 'low': .*found shape \(1, 1\)",
        ),
        (pyarrow.table([[1.0], [2.0]], names=["low", "low"]), "the table"),
        ("none.csv", r"none\.csv: there is no such file"),
    ],
    ids=str,
)
def test_what_is_no_table(table: Any, message: str) -> None:
    with pytest.raises(mx.errors.TableError, match=message):
        mx.check(RULES, table)


def test_cells_without_a_value_in_memory() -> None:
    table = {"low": [1.0, None, 5.0], "high": [None, float("nan"), 2.0]}
    report = mx.check(RULES, table)
    assert [(c.variable.name, c.reason, c.first_row) for c in report.cells] == [
        ("low", "missing", 2),
        ("high", "NaN", 2),
        ("high", "missing", 1),
    ]
    assert report.obeying == 0
    assert mx.check(RULES, table, missing="pass").obeying == 1
    with pytest.raises(
        mx.errors.TableError, match="the table, row 1, column 'high': the cell is"
    ):
        mx.check(RULES, table, missing="error")


def test_a_table_without_rows() -> None:
    report = mx.check(RULES, {"low": [], "high": []})
    assert report.breaks is not None
    assert report.breaks.shape == (0, 2)
    assert report.all_obey


def test_a_report_is_readable_for_people_and_programs() -> None:
    report = mx.check(RULES, {"low": LOW, "high": HIGH})
    assert str(report).startswith("the table: 4 rows checked in ")
    assert "low + high <= 0.3" in str(report)
    told = json.loads(report.to_json())
    assert [rule["violating_rows"] for rule in told["rules"]] == [1, 3]
    assert told["rules"][0]["largest_violation"] == number_text(
        Fraction(0.25) - Fraction(0.05)
    )


def test_checking_without_polars_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['polars'] = None\n"
        "import multiplexnet as mx\n"
        "try:\n    mx.check\n"
        "except mx.MultiplexError as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert run.stdout.strip() == (
        "multiplexnet.check needs polars, which is not installed: "
        "in a clone of multiplexnet, pip install -c constraints.txt '.[cli]'"
    )


# --- certificates ---------------------------------------------------------------------------------------------------


def test_a_certificate_is_checked_from_python(tmp_path: Path) -> None:
    rules = mx.Rules("x >= 2 or x <= -2")
    certificate = mx.Multiplexer(rules).certificate
    path = tmp_path / "layer.json"
    certificate.save(path)
    rule_file = tmp_path / "some.rules"
    rule_file.write_text("x >= 1 or x <= -1", encoding="utf-8")
    assert mx.Certificate.load(path) == certificate
    report = mx.certify(path, rules)
    assert report.certified
    assert report == mx.certify(certificate, rules)
    assert (
        str(report).splitlines()[-2]
        == f"certified: {len(report.statements)} statements"
    )
    assert not mx.certify(
        certificate, rule_file
    ).certified  # sound for these, and not complete
    told = json.loads(report.to_json())
    assert told["certified"]
    assert len(told["statements"]) == len(report.statements)


def test_rules_of_every_language_are_compared_with_a_certificate() -> None:
    z3 = pytest.importorskip("z3")
    x = z3.Real("x")
    certificate = mx.Multiplexer(mx.Rules("x >= 2 or x <= -2")).certificate
    same = [
        mx.Rules.from_z3(z3.Or(x >= 2, x <= -2)),
        mx.Rules.from_smtlib(
            "(declare-const x Real)(assert (or (>= x 2.0) (<= x (- 2.0))))"
        ),
    ]
    for rules in same:
        assert mx.certify(certificate, rules).certified
    assert not mx.certify(certificate, mx.Rules.from_z3(x >= 2)).certified


# --- other names ----------------------------------------------------------------------------------------------------


def test_estimators_and_the_paper_map_by_their_public_names() -> None:
    mux = mx.Multiplexer(mx.Rules("0 <= x <= 1 or x >= 3"), boxes=mx.PaperSeparable)
    branches = mux(torch.zeros(5, mux.in_features))
    for name in ("ScoreFunction", "TopTerms", "StraightThrough", "Concrete"):
        estimator = getattr(mx.estimators, name)()
        assert estimator(branches, lambda x: x.square().sum(-1)).shape == (5,)


def test_the_budget_that_a_refusal_names_has_a_public_name() -> None:
    rules = mx.Rules("x: real[4]\nall(v == 0 or 1 <= v <= 9 for v in x); sum(x) <= 12")
    with pytest.raises(
        mx.errors.CascadeBudgetExceeded, match=r"budget=mx\.Budget\(options="
    ) as refusal:
        mx.Multiplexer(rules, structure="cascade", budget=mx.Budget(options=1))
    assert refusal.value.allowed == 1
    assert mx.Multiplexer(
        rules, structure="cascade", budget=mx.Budget(options=9)
    ).cascades


def test_errors_are_caught_by_their_public_names() -> None:
    rules = mx.Rules("x: real; top: input\nx <= top")
    with pytest.raises(mx.InputError):
        rules.satisfied(np.zeros((1, 1)))
    with pytest.raises(mx.CompileTimeout):
        rules.compile(seconds=1e-9)
    assert issubclass(mx.errors.TableError, mx.MultiplexError)


def test_every_public_name_has_an_example() -> None:
    names = {name: getattr(mx, name) for name in mx.__all__}
    names |= {name: getattr(mx.estimators, name) for name in mx.estimators.__all__}
    for name in ("satisfied", "violation", "allowed", "from_arrays", "from_smtlib"):
        names[name] = getattr(mx.Rules, name)
    for name in ("best", "sample", "loss", "log_prob"):
        names[name] = getattr(mx.Branches, name)
    without = [
        name
        for name, public in names.items()
        if callable(public)
        and not (isinstance(public, type) and issubclass(public, Exception))
        and ">>>" not in (public.__doc__ or "")
    ]
    assert without == []
