"""Arguments of another kind than is meant: our own errors, which say what to give."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import z3

import multiplexnet as mx
from multiplexnet.errors import (
    DtypeError,
    MissingFileError,
    OptionError,
    RuleSyntaxError,
    RuleTypeError,
    ShapeError,
    SourceError,
    TableError,
)
from multiplexnet.tools.cli import BadInput, _assignment

check: Any = mx.check  # types are what is tested here
sql: Any = mx.sql
infer: Any = mx.infer
Rules: Any = mx.Rules
Multiplexer: Any = mx.Multiplexer
RULES = Rules("a: real; b: real\na <= b")
TABLE = {"a": [1, 2], "b": [2, 1]}
SCHEMA = {"properties": {"p": {"type": "number"}}, "required": ["p"]}
SCRIPT = "(declare-const x Real)(assert (> x 0))"


def checked(**options: Any) -> Any:
    return check(RULES, TABLE, **options)


MESSAGES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: checked(limit="a"),
        "limit = 'a'; it is a number of rows to show, at least 0",
    ),
    (lambda: checked(limit=-1), "limit = -1; it is a number of rows to show"),
    (lambda: checked(limit=True), "limit = True; it is a number of rows to show"),
    (lambda: checked(jobs=1.5), "jobs = 1.5; it is a number of processes, at least 1"),
    (lambda: checked(jobs=None), "jobs = None; it is a number of processes"),
    (
        lambda: checked(dask=5),
        'dask = 5; it is the address of a scheduler, as in "tcp:',
    ),
    (
        lambda: checked(missing=["fail"]),
        'missing = [\'fail\']; it is "error", "pass" or "fail"',
    ),
    (lambda: checked(skip=5), "skip = 5; it is a list of names, as in ['a', 'b']"),
    (lambda: checked(skip=[1]), "skip = [1]; it is a list of names"),
    (lambda: checked(columns=np.array(3)), "columns = array(3); it is a list of names"),
    (lambda: checked(by_position=pl.Series([1])), "it is True or False"),
    (
        lambda: checked(output=5),
        'output = 5; it is the path of a file, as in "rows.csv"',
    ),
    (lambda: checked(output=""), "output = ''; it is the path of a file"),
    (
        lambda: checked(progress=5),
        "progress = 5; it is a function of the number of rows",
    ),
    (lambda: checked(name=5), "name = 5; it is the name of a table in a database file"),
    (
        lambda: infer(TABLE, support="most"),
        "support = 'most'; it is a share of rows",
    ),
    (lambda: infer(TABLE, support=0), "support = 0; it is a share of rows, above 0"),
    (
        lambda: sql(RULES, "t", dialect="oracle"),
        'it is "duckdb", "postgres" or "sqlite"',
    ),
    (lambda: sql(RULES, "t", dialect=[]), "dialect = []; it is"),
    (
        lambda: sql(RULES, " "),
        "table = ' '; it is the name of a table, as in \"loans\"",
    ),
    (lambda: sql(RULES, 5), "table = 5; it is the name of a table"),
    (
        lambda: Rules.from_arrays([[1]], [1], names=True),
        "names = True; it is one name for each",
    ),
    (
        lambda: Rules.from_arrays([[1]], [1], names=np.array(3)),
        "names = array(3); it is one",
    ),
    (
        lambda: Rules.from_json_schema(SCHEMA, skip=5),
        "skip = 5; it is a list of names",
    ),
    (
        lambda: Rules.from_smtlib(SCRIPT, inputs=5),
        "inputs = 5; it is a list of names",
    ),
    (
        lambda: Rules.from_z3(z3.Real("x") > 0, outputs=5),
        "outputs = 5; it is a list of z3",
    ),
]


@pytest.mark.parametrize(("call", "message"), MESSAGES)
def test_an_argument_of_another_kind(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        call()


def test_a_long_argument_is_shown_in_short() -> None:
    with pytest.raises(OptionError) as told:
        checked(limit=list(range(10_000)))
    assert str(told.value).startswith("limit = [0, 1, 2, 3, 4, 5, ...]; it is")


STRANGE: list[Any] = [
    *(None, 0, -1, 1.5, float("nan"), 10**30, 1j, True, Decimal("1.5"), Fraction(1, 3)),
    *("a", "", b"x", Path("x"), date(2020, 1, 1), int, object(), RULES),
    *(
        [],
        [1],
        ["a"],
        [None],
        [[1, 2], [3]],
        (1, 2),
        {1, 2},
        {},
        {"n": 5},
        {"a": ["x"]},
    ),
    *(range(3), np.array(3), np.array([1.0]), np.array(["a"]), np.array([[1j]])),
    *(
        torch.tensor(1.0),
        pl.Series([1, 2]),
        pd.Series([1, 2]),
        pl.LazyFrame({"a": [1]}),
    ),
]


def _checked_with(option: str, given: Any) -> Any:
    return checked(**{option: given})


ENTRIES: dict[str, Callable[[Any], Any]] = {
    "check, rules": lambda given: check(given, TABLE),
    "check, table": lambda given: check(RULES, given),
    "check, column": lambda given: check(RULES, {"a": given, "b": [1, 2]}),
    **{
        f"check, {option}": partial(_checked_with, option)
        for option in (
            *("columns", "by_position", "skip", "missing", "delimiter", "name"),
            *("limit", "output", "progress"),
        )
    },
    "check, jobs": lambda given: checked(jobs=1 if isinstance(given, int) else given),
    "check, dask": lambda given: checked(
        dask=None if isinstance(given, str) else given
    ),
    "infer, table": infer,
    "infer, support": lambda given: infer(TABLE, support=given),
    "infer, delimiter": lambda given: infer(TABLE, delimiter=given),
    "sql, rules": lambda given: sql(given, "t"),
    "sql, table": lambda given: sql(RULES, given),
    "sql, dialect": lambda given: sql(RULES, "t", dialect=given),
    "Rules": Rules,
    "load": Rules.load,
    "from_ordering": Rules.from_ordering,
    "from_smtlib": Rules.from_smtlib,
    "from_smtlib, inputs": lambda given: Rules.from_smtlib(SCRIPT, inputs=given),
    "from_z3": Rules.from_z3,
    "from_z3, inputs": lambda given: Rules.from_z3(z3.Real("x") > 0, inputs=given),
    "from_z3, outputs": lambda given: Rules.from_z3(z3.Real("x") > 0, outputs=given),
    "from_arrays, A": lambda given: Rules.from_arrays(given, [1]),
    "from_arrays, b": lambda given: Rules.from_arrays([[1]], given),
    "from_arrays, C": lambda given: Rules.from_arrays(C=given, d=[1]),
    "from_arrays, d": lambda given: Rules.from_arrays(C=[[1]], d=given),
    "from_arrays, names": lambda given: Rules.from_arrays([[1]], [1], names=given),
    "from_json_schema": Rules.from_json_schema,
    "from_json_schema, skip": lambda given: Rules.from_json_schema(SCHEMA, skip=given),
    "from_json_schema, a property": lambda given: Rules.from_json_schema(
        {"properties": {"p": given}}
    ),
    "from_json_schema, a type": lambda given: Rules.from_json_schema(
        {"properties": {"p": {"type": given}}}
    ),
    "from_pydantic": Rules.from_pydantic,
    "an element": lambda given: RULES[given],
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_whatever_is_given_the_error_is_our_own(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in STRANGE:
        try:
            ENTRIES[entry](given)
        except (mx.MultiplexError, OSError):  # of files that are not there
            continue
        except Exception as error:
            pytest.fail(f"{entry}: {given!r} ends in {type(error).__name__}: {error}")


def test_a_property_whose_name_is_no_text() -> None:
    with pytest.raises(
        SourceError, match="property 5: a name that is not text: rename"
    ):
        Rules.from_json_schema({"properties": {5: {"type": "number"}}})


def test_one_name_is_a_list_of_one(tmp_path: Path) -> None:
    ordered = pl.DataFrame({"label": ["x"], "p": [2], "q": [1]})
    report = check(RULES, ordered, skip="label", by_position=True)
    assert report.counts == {"a <= b": 1}
    assert check("x >= 0", np.array([[1.0]]), columns="x").all_obey
    schema = {"properties": {"p": {"type": "number"}, "who": {"type": "string"}}}
    assert str(Rules.from_json_schema(schema, skip="who")) == "p: real?"


# --- rules as their text --------------------------------------------------------------------------------------------


def test_rules_can_be_given_as_text() -> None:
    lines = ["a: real; b: real", "a <= b"]
    for given in ("a: real; b: real\na <= b", lines, RULES):
        assert check(given, TABLE).counts == {"a <= b": 1}
        assert sql(given, "t") == sql(RULES, "t")
        assert mx.Multiplexer(given).rules.specification == RULES.specification
    assert mx.FiniteTerms("a: bool").outputs == mx.FiniteTerms(Rules("a: bool")).outputs


@pytest.mark.parametrize(
    "entry", [lambda given: check(given, TABLE), lambda given: sql(given, "t"), mx.Multiplexer]
)  # fmt: skip
def test_what_is_neither_rules_nor_text(entry: Callable[[Any], Any]) -> None:
    with pytest.raises(
        RuleTypeError, match=r"rules are text, .*; found None: give the rules"
    ):
        entry(None)


# --- tables in memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (5, "5"),
        (None, "None"),
        ("12", "'12'"),
        (b"12", "b'12'"),
        ({1: 2}, "{1: 2}"),
        ({3}, "{3}"),
    ],
)
def test_a_column_that_is_no_list(column: Any, found: str) -> None:
    message = f"the table, column 'a': expected is a list of values, one for each row; found {found}"
    with pytest.raises(TableError, match=re.escape(message)):
        check(RULES, {"a": column, "b": [1, 2]})


def test_a_table_without_columns() -> None:
    tables: tuple[Any, ...] = ({}, pl.DataFrame(), pd.DataFrame())
    for table in tables:
        with pytest.raises(TableError, match="the table has no columns"):
            check("x: real", table)


def test_a_list_of_rows() -> None:
    with pytest.raises(
        TableError, match=r"of rows, pandas\.DataFrame\(rows\) makes one"
    ):
        check(RULES, [{"a": 1, "b": 2}])


def test_values_of_several_kinds() -> None:
    message = (
        r"of type Fraction, float; numbers alone \(int, float, Decimal\), labels alone"
    )
    with pytest.raises(TableError, match=message):
        check("a >= 0", {"a": [Fraction(1, 3), 0.5]})


@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_beside_decimals_a_float_is_the_decimal_that_is_printed(make: Any) -> None:
    mixed = make({"a": [0.1, Decimal("0.1"), 0.125, Decimal("0.125"), 1]})
    cents = check("a: decimal(2)[0, 1]", mixed)
    assert cents.obeys.tolist() == [True, True, False, False, True]
    assert check("a: real; a == 0.1", mixed).obeys.tolist()[:2] == [True, True]
    alone = make({"a": [0.1]})
    assert not check(
        "a: real; a <= 0.1", alone
    ).all_obey  # a double is the double it is


@pytest.mark.parametrize("make", [dict, pl.DataFrame, pd.DataFrame])
@pytest.mark.parametrize(
    ("labels", "cells"),
    [
        ('"True", "False"', [True, False]),
        ('"true", "false"', [True, False]),
        ('"TRUE", "FALSE"', [True, False]),
        ('"1", "2"', [1, 2]),
        ('"1", "2"', [1.0, 2.0]),
        ('"1.0", "2.0"', [1.0, 2.0]),
        ('"1.5", "2"', [1.5, 2.0]),
    ],
)
def test_labels_that_are_no_text_in_the_table(
    make: Any, labels: str, cells: Any
) -> None:
    rules = f"c: {{{labels}}}; c == {labels.split(',')[0]}"
    assert (
        check(rules, make({"c": cells})).counts[rules[len(f"c: {{{labels}}}; ") :]] == 1
    )
    assert check(f"c: {{{labels}}}?", make({"c": [cells[0], None]})).all_obey


def test_a_label_keeps_its_case_where_that_tells_it_apart() -> None:
    report = check('c: {"True", "true"}; c == "true"', {"c": [True]})
    assert report.all_obey
    assert not check('c: {"True", "False"}', {"c": ["true"]}).all_obey  # as written


# --- numbers that would fill the memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999"])
def test_a_short_text_that_is_a_number_of_endless_digits(
    number: str, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(f'{{"properties": {{"p": {{"minimum": {number}}}}}}}')
    long = "a number of more than 2,000 digits"
    with pytest.raises(SourceError, match=f"schema.json: {long}: scale the rule"):
        Rules.from_json_schema(schema)
    with pytest.raises(SourceError, match=rf"A\[0, 0\] is {long}: scale its row"):
        Rules.from_arrays([[Decimal(number)]], [1])
    with pytest.raises(mx.RuleSyntaxError, match=long):
        Rules.from_z3(z3.Real("x") > 0, inputs={"u": (0, Decimal(number))})
    with pytest.raises(BadInput, match="write it as in --at limit=300"):
        _assignment(f"u={number}")


def test_a_whole_number_of_too_many_digits() -> None:
    with pytest.raises(SourceError, match=r"b\[0\] is a number of more than 2,000"):
        Rules.from_arrays([[1]], [10**5000])


def test_numbers_on_the_command_line() -> None:
    assert _assignment("u = 1/3") == ("u", Fraction(1, 3))
    assert _assignment("u=-2.5e1") == ("u", Fraction(-25))


# --- what is said, and what is understood ---------------------------------------------------------------------------


def test_a_dtype_is_no_text() -> None:
    with pytest.raises(
        DtypeError, match="dtype = 'float32'; it is a dtype of torch, as in dtype=torch"
    ):
        Multiplexer("x <= 3", dtype="float32")


def test_advice_for_a_dtype_is_possible() -> None:
    mux = Multiplexer("x <= 3")
    with pytest.raises(DtypeError, match=r"convert it, raw.to\(torch.float32\)"):
        mux(torch.zeros(1, 1).to(torch.float8_e4m3fn))
    with pytest.raises(DtypeError, match=r"or the layer with mux.to\(torch.float64\)"):
        mux(torch.zeros(1, 1).double())


@pytest.mark.filterwarnings("ignore:Complex modules")
def test_a_layer_is_not_made_complex() -> None:
    mux = Multiplexer("x <= 3")
    with pytest.raises(
        DtypeError, match=r"no guarantee can be given in torch\.complex64"
    ):
        mux.to(torch.complex64)
    assert mux.dtype is torch.float32


@pytest.mark.parametrize("path", ["nope.rules", "some/dir/nope.smt2", "nope.txt"])
def test_a_path_is_not_the_rules_in_the_file(path: str) -> None:
    for call in (Rules, Multiplexer, partial(check, table=TABLE)):
        with pytest.raises(RuleSyntaxError, match=re.escape(f"Rules.load('{path}')")):
            call(path)


@pytest.mark.parametrize(
    "rule", ["norm(x) >= 0", "norm(x) > -1", "not norm(x) < 0", "x @ x >= -2"]
)
def test_what_holds_of_every_norm_is_no_wall(rule: str) -> None:
    rules = Rules(f"x: real[2]; {rule}; x[0] <= 1")
    assert rules.satisfied(np.array([[0.0, 0.0], [2.0, 0.0]])).tolist() == [True, False]
    assert str(rules.explain().always_true[0].text) == rule
    x = Multiplexer(rules)(torch.randn(9, 2)).best()
    assert rules.satisfied(x).all()
    with pytest.raises(RuleSyntaxError, match="not convex"):
        Rules("x: real[2]; norm(x) > 0")


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_frame_keep_their_names(frame: Any) -> None:
    A = frame({"a": [1.0], "b": [2.0]})
    assert [v.name for v in Rules.from_arrays(A, [3]).outputs] == ["a", "b"]
    both = Rules.from_arrays(A=[[1, 1]], b=[9], C=A, d=[3])
    assert [v.name for v in both.outputs] == ["a", "b"]
    named = Rules.from_arrays(A, [3], names="y")
    assert [v.name for v in named.outputs] == ["y[0]", "y[1]"]
    other = frame({"b": [1.0], "a": [2.0]})
    with pytest.raises(SourceError, match=r"A has the columns .*, and C .*names="):
        Rules.from_arrays(A, [3], C=other, d=[1])


def test_a_frame_without_names_is_a_vector() -> None:
    rules = Rules.from_arrays(pd.DataFrame([[1.0, 2.0]]), [3])
    assert [v.name for v in rules.outputs] == ["x[0]", "x[1]"]


# --- values of another kind -----------------------------------------------------------------------------------------


def _branches() -> Any:
    return Multiplexer("x <= 3 or x >= 4")(torch.zeros(3, 3))


def _distribution(mux: Any) -> Any:
    base = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
    return mx.RulesDistribution(mux, torch.distributions.Independent(base, 1))


ANY: Any = mx
"""The library without its types."""

KINDS: list[tuple[Callable[[], Any], type[mx.MultiplexError], str]] = [
    (
        lambda: Multiplexer("x: real; u: input; x <= u")(
            torch.zeros(3, 1), u=torch.zeros(3, device="meta")
        ),
        ShapeError,
        "input u is on meta and the layer on cpu: move one of them",
    ),
    (
        lambda: _branches().loss(3),
        OptionError,
        "f = 3; it is a function of values, as in lambda x",
    ),
    (
        lambda: _branches().evidence_loss(lambda x: None),
        DtypeError,
        "the loss returned NoneType; it must return a tensor",
    ),
    (
        lambda: _branches().loss(lambda x: x.detach().numpy().sum(-1)),
        DtypeError,
        "the loss returned ndarray; it must return a tensor",
    ),
    (
        lambda: _distribution(Multiplexer("x <= 3")).log_prob(np.zeros((1, 1))),
        DtypeError,
        "value is of type ndarray; a tensor is expected: torch.from_numpy(value)",
    ),
    (lambda: _distribution(Rules("x <= 3")), OptionError, "it is a layer, as in mx."),
    (lambda: _distribution(3), OptionError, "mux = 3; it is a layer, as in mx."),
    (
        lambda: ANY.dl2_loss(RULES, np.zeros((2, 2))),
        DtypeError,
        "x is of type ndarray; a tensor is expected",
    ),
    (
        lambda: ANY.penalty(RULES, [[1.0, 2.0]]),
        DtypeError,
        "x is of type list; a tensor is expected: torch.tensor(x)",
    ),
    (lambda: ANY.penalty(3, torch.zeros(1, 1)), RuleTypeError, "type int"),
    (
        lambda: ANY.semantic_loss(RULES, torch.zeros(1, 2)),
        OptionError,
        "it is what obeys, as mx.FiniteTerms(rules) finds it",
    ),
    (
        lambda: ANY.certify(3),
        OptionError,
        "certificate = 3; it is a certificate, as mux.certificate is, or the path",
    ),
    (
        lambda: ANY.certify(Multiplexer("x <= 3")),
        OptionError,
        "it is a certificate, as mux.certificate is, or the path",
    ),
    (
        lambda: ANY.certify("nope.json"),
        MissingFileError,
        "nope.json: there is no such file",
    ),
    (
        lambda: Rules.load("nope.rules"),
        MissingFileError,
        "nope.rules: there is no such file",
    ),
    (
        lambda: Rules("x <= 3").satisfied(torch.zeros(2, 1).to(torch.float8_e4m3fn)),
        DtypeError,
        "a tensor of torch.float8_e4m3fn is not read: convert it first",
    ),
    (
        lambda: Multiplexer("x <= 3 or x >= 4", cover="abc"),
        OptionError,
        "cover = 'abc'; it is rows of numbers",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), KINDS)
def test_a_value_of_another_kind(
    call: Callable[[], Any], error: type[mx.MultiplexError], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_rules_of_a_loss_may_be_a_text() -> None:
    assert ANY.dl2_loss("x <= 3", torch.tensor([[5.0]])).tolist() == [2.0]


def test_a_missing_file_is_one_for_the_system_too() -> None:
    with pytest.raises(FileNotFoundError) as told:
        Rules.load("nope.rules")
    assert told.value.filename == "nope.rules"
