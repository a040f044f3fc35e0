"""Rules that were not written as text: arrays and schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import z3

import multiplexnet as mx
from multiplexnet.compiler.identity import Comparisons
from multiplexnet.errors import SourceError
from multiplexnet.language.formula import Atom, Linear, Relation, Variable
from multiplexnet.readers.entries import entries
from multiplexnet.smt.questions import to_z3


def dense(n: int, m: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    A = random.normal(size=(m, n)).round(3)
    return A, (np.abs(A).sum(axis=1) / 2 + 1).round(3)


def as_text(A: Any, b: Any) -> mx.Rules:
    lines = [f"x: real[{A.shape[1]}]"]
    for row, bound in zip(A.tolist(), b.tolist(), strict=True):
        lines.append(
            " + ".join(f"{c}*x[{i}]" for i, c in enumerate(row)) + f" <= {bound}"
        )
    return mx.Rules("\n".join(lines))


# --- arrays ---------------------------------------------------------------------------------------------------------


def test_rows_from_arrays_are_compiled_to_the_terms_of_the_same_text() -> None:
    A, b = dense(6, 9)
    rules = mx.Rules.from_arrays(A, b)
    assert rules.compile().blocks == as_text(A, b).compile().blocks
    assert mx.Rules(str(rules)).formula == rules.formula
    assert [
        mx.Rules(f"x: real[6]\n{rule.text}").formula
        for rule in rules.specification.rules
    ] == [rule.formula for rule in rules.specification.rules]


def test_every_kind_of_array_gives_the_same_rules() -> None:
    A = np.array([[0.1, 0.0, -2.0], [0.0, 1.0, 1e-5]])
    b = np.array([1.5, 3.0])
    wanted = mx.Rules.from_arrays(A, b)
    coo = torch.tensor(A).to_sparse()
    exact = [[Fraction(1, 10), 0, -2], [0, Decimal(1), Decimal("1e-5")]]
    for given in (A.tolist(), scipy.sparse.coo_matrix(A), torch.tensor(A), coo, exact):
        assert mx.Rules.from_arrays(given, torch.tensor(b)).formula == wanted.formula
    single = mx.Rules.from_arrays(np.array([[0.1]], dtype=np.float32), [1])
    assert single.formula == mx.Rules("x: real[1]\n0.1*x[0] <= 1").formula


def test_equalities_names_and_rows_that_say_nothing() -> None:
    rules = mx.Rules.from_arrays(
        [[1, -1]], [np.inf], C=[[1, 2]], d=[3], names=["low", "high"]
    )
    assert [rule.text for rule in rules.specification.rules] == ["low + 2*high == 3"]
    odd = mx.Rules.from_arrays([[1, -1]], [0], names=["Loan Amount", "x[3]"])
    assert odd.specification.rules[0].text == "`Loan Amount` - `x[3]` <= 0"
    assert mx.Rules(str(odd)).formula == odd.formula
    assert [v.name for v in mx.Rules.from_arrays([[1, 1]], [0], names="w").outputs] == [
        "w[0]",
        "w[1]",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither A and b nor C and d were given"),
        ({"A": [[1]]}, "A was given without b: the rows are A x <= b"),
        ({"A": [1], "b": [1]}, r"A has shape \(1,\): it needs two dimensions"),
        (
            {"A": [[1], [2]], "b": [1]},
            r"b has shape \(1,\); A has 2 rows, so b needs shape \(2,\)",
        ),
        (
            {"A": [[1, 2], [3]], "b": [1, 2]},
            "A is not an array: its rows are not all of one length",
        ),
        (
            {"A": [[1, float("nan")]], "b": [1]},
            r"A\[0, 1\] is nan: a finite number is needed",
        ),
        ({"A": [[1]], "b": [-np.inf]}, r"b\[0\] is -inf: a finite number is needed"),
        ({"A": [["1"]], "b": [1]}, r"A\[0, 0\] is a value of type str"),
        (
            {"A": [[1]], "b": [1], "C": [[1, 2]], "d": [0]},
            "A has 1 columns and C has 2",
        ),
        (
            {"A": [[1, 2]], "b": [1], "names": ["a"]},
            "names= holds 1 names, and there are 2 columns",
        ),
        ({"A": [[1, 2]], "b": [1], "names": ["a", "a"]}, "the name 'a' stands twice"),
        ({"A": [[1]], "b": [1], "names": [" "]}, "names=: a name without letters"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        mx.Rules.from_arrays(**arguments)


def texts(A: Any, b: Any) -> list[str]:
    return [rule.text for rule in mx.Rules.from_arrays(A, b).specification.rules]


@pytest.mark.parametrize(
    ("A", "found"),
    [
        ([[None, 1.0]], r"A\[0, 0\] is missing: a finite number is needed"),
        (
            np.ma.masked_array([[3.0, 1.0]], mask=[[False, True]]),
            r"A\[0, 1\] is missing",
        ),
        ([np.ma.masked_array([3.0, 1.0], mask=[True, False])], r"A\[0, 0\] is missing"),
        ([[1, np.ma.masked]], r"A\[0, 1\] is missing"),
        ([[1, pd.NA]], r"A\[0, 1\] is a value of type NAType"),
        ([["", 1]], r"A\[0, 0\] is a value of type str"),
        ([[{}, 1]], r"A\[0, 0\] is a value of type dict"),
        ([[0j, 1]], r"A\[0, 0\] is a value of type complex"),
    ],
)
def test_what_is_no_number_is_never_taken_for_a_zero(A: Any, found: str) -> None:
    with pytest.raises(SourceError, match=found):
        mx.Rules.from_arrays(A, [1])
    with pytest.raises(SourceError, match=found.replace("A", "C", 1)):
        mx.Rules.from_arrays(C=A, d=[1])


def test_a_missing_right_side_is_refused() -> None:
    for b in ([None], np.ma.masked_array([1.0], mask=[True]), [np.ma.masked]):
        with pytest.raises(SourceError, match=r"b\[0\] is missing"):
            mx.Rules.from_arrays([[1]], b)
    assert texts(np.ma.masked_array([[3, 0]]), [0.0]) == ["3*x[0] <= 0"]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_duplicates_in_sparse_arrays_are_added_exactly() -> None:
    def twice(*values: Any) -> Iterator[Any]:
        """Arrays of one entry that has several values."""
        count = len(values)
        places = np.zeros((2, count), dtype=np.int64)
        data = np.array(values)
        ends = np.array([0, count])
        yield scipy.sparse.coo_array((data, tuple(places)), shape=(1, 1))
        yield scipy.sparse.csr_array((data, places[0], ends), shape=(1, 1))
        yield scipy.sparse.csc_array((data, places[0], ends), shape=(1, 1))
        tensor = torch.tensor(data)
        yield torch.sparse_coo_tensor(torch.tensor(places), tensor, (1, 1))
        yield torch.sparse_coo_tensor(torch.tensor(places[:1]), tensor[:, None], (1, 1))
        yield torch.sparse_csr_tensor(
            torch.tensor(ends), torch.tensor(places[0]), tensor, (1, 1)
        )

    small, large = np.int8(100), np.int64(2**62)
    for values, wanted in (
        ((small, small), "200*x[0] <= 1"),
        ((small, np.int8(-100)), "0 <= 1"),
        ((large, large, large), f"{3 * 2**62}*x[0] <= 1"),
        ((0.1, 0.2), "0.3*x[0] <= 1"),
        ((np.float32(0.1), np.float32(0.2)), "0.3*x[0] <= 1"),
        ((True, True), "x[0] <= 1"),
    ):
        assert [texts(A, [1]) for A in twice(*values)] == [[wanted]] * 6
    for A in twice(1.0, np.inf, -np.inf):
        with pytest.raises(SourceError, match=r"A\[0, 0\] is inf"):
            mx.Rules.from_arrays(A, [1])
    right = torch.sparse_coo_tensor(
        torch.tensor([[1, 1]]), torch.tensor([0.1, 0.2]), (2,)
    )
    assert texts([[1], [2]], right) == ["x[0] <= 0", "2*x[0] <= 0.3"]


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (
            lambda: scipy.sparse.csr_array([1.0, 2.0]),
            r"A has shape \(2,\): it needs two dim",
        ),
        (lambda: np.array([1.0, 2.0]), r"A has shape \(2,\): .* as in \[\[1, 2\]\]"),
        (
            lambda: np.zeros((1, 1, 1)),
            r"A has shape \(1, 1, 1\): it needs two dimensions",
        ),
        (
            lambda: torch.eye(2, device="meta"),
            r"A is a tensor on the device meta, without num",
        ),
        (
            lambda: [torch.ones(2, device="meta")],
            "A is not an array: can't convert meta",
        ),
        (
            lambda: torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.quint8),
            r"A is a quantized tensor: give plain numbers, as from .dequantize\(\)",
        ),
        (lambda: torch.nested.nested_tensor([torch.ones(2)]), "A is a nested tensor"),
        (
            lambda: torch.eye(2).to(torch.complex32),
            r"A is a tensor that cannot be read \(",
        ),
        (lambda: scipy.sparse.csr_array, r"A has shape \(\)"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_arrays_of_other_kinds_are_refused(make: Callable[[], Any], found: str) -> None:
    with pytest.raises(SourceError, match=found):
        mx.Rules.from_arrays(make(), [1, 1])


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_of_numpy_is_an_array() -> None:
    assert texts(np.matrix([[0.1, 2.0]]), [1]) == ["0.1*x[0] + 2*x[1] <= 1"]
    assert texts(np.matrix([[1, 2]]), [1]) == ["x[0] + 2*x[1] <= 1"]
    with pytest.raises(SourceError, match=r"b has shape \(1, 1\)"):
        mx.Rules.from_arrays([[1]], np.matrix([[1]]))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64]
)
def test_a_tenth_is_a_tenth_in_every_format(dtype: torch.dtype) -> None:
    A = torch.tensor([[0.1, 0.0, 3.25]], dtype=dtype)
    b = torch.tensor([-0.3], dtype=dtype)
    for given in (A, A.to_sparse(), torch._neg_view(-A)):
        assert texts(given, b) == ["0.1*x[0] + 3.25*x[2] <= -0.3"]
    if dtype != torch.bfloat16:
        assert texts([row.numpy() for row in A], b) == ["0.1*x[0] + 3.25*x[2] <= -0.3"]
    with pytest.raises(SourceError, match=r"b\[0\] is nan"):
        mx.Rules.from_arrays(A, b * torch.nan)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_short_format_is_read_back_from_its_decimals(dtype: torch.dtype) -> None:
    whole = torch.int16 if dtype == torch.bfloat16 else torch.int8
    every = torch.arange(1, torch.iinfo(whole).max, dtype=whole).view(dtype)
    numbers = every[every.double().isfinite()]
    found = entries(numbers, "b").numbers
    texts = [text for _, text in found]
    again = torch.tensor([float(text) for text in texts], dtype=torch.float64)
    assert (again.to(dtype).double() == numbers.double()).all()
    assert [number for number, _ in found] == [Fraction(text) for text in texts]
    assert max(len(Decimal(text).normalize().as_tuple().digits) for text in texts) <= 4


def test_a_large_plain_conjunction_needs_no_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("z3 was asked")

    A, b = dense(40, 120)
    monkeypatch.setattr(z3, "Z3_solver_check_assumptions", asked)
    monkeypatch.setattr(z3.Solver, "check", asked)
    rules = mx.Rules.from_arrays(A, b)
    mux = mx.Multiplexer(rules)
    assert mux.compiled.proof.complete
    assert rules.satisfied(mux(torch.randn(64, mux.in_features) * 30).best()).all()


def test_rules_from_arrays_are_saved_certified_and_contradicted() -> None:
    A, b = dense(3, 5)
    mux = mx.Multiplexer(mx.Rules.from_arrays(A, b, C=[[1, 1, 1]], d=[0.5]))
    assert mx.certify(mux.certificate).certified
    again = mx.Multiplexer.from_state(mux.state_dict())
    assert again.rules == mux.rules
    with pytest.raises(mx.ContradictionError, match=r"x\[0\] <= 1\n.*-x\[0\] <= -2"):
        mx.Rules.from_arrays([[1], [-1]], [1, -2]).compile()


# --- what follows without a solver ----------------------------------------------------------------------------------


def test_a_comparison_follows_from_its_own_numbers_exactly_when_z3_says_so() -> None:
    x, y = Linear.of(Variable("x", 0)), Linear.of(Variable("y", 1))
    lefts = [x * 2 - y * 3, x * -4 + y * 6, x * Fraction(2, 3) - y]
    relations: list[Relation] = ["<=", "<", "=="]
    atoms = [Atom(left + c, r) for left in lefts for c in (0, 1) for r in relations]
    written = {atom: to_z3(atom) for atom in atoms}
    for premise in atoms:
        known = Comparisons([premise])
        for conclusion in atoms:
            solver = z3.Solver()
            solver.add(written[premise], z3.Not(written[conclusion]))
            assert known.imply(conclusion) == (solver.check() == z3.unsat), (
                premise,
                conclusion,
            )
    both = Comparisons([Atom(x - 1, "<="), Atom(-x + 1, "<=")])
    assert both.imply(Atom(x * 2 - 2, "=="))
    assert not both.imply(Atom(x - 1, "<"))


# --- schemas --------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 121},
        "income": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6},
        "plan": {"$ref": "#/$defs/Plan"},
        "active": {"type": "boolean", "const": True},
        "level": {"enum": [0.5, 1, 2]},
        "dozens": {"type": "integer", "minimum": 0, "maximum": 40, "multipleOf": 12},
        "rates": {
            "type": "array",
            "items": {"type": "number", "minimum": 0},
            "minItems": 2,
            "maxItems": 2,
        },
        "name": {"type": "string", "minLength": 1},
        "Loan Amount": {"type": "number", "maximum": 9},
        "grade": {"type": "number", "minimum": 0.9, "maximum": 3, "multipleOf": 0.5},
        "since": {"type": "string", "format": "date"},
    },
    "$defs": {"Plan": {"enum": ["basic", "full"], "type": "string", "title": "Plan"}},
    "required": [
        "age",
        "income",
        "plan",
        "active",
        "level",
        "dozens",
        "Loan Amount",
        "grade",
        "since",
    ],
}


def test_a_json_schema_becomes_declarations_and_rules(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    rules = mx.Rules.from_json_schema(path, skip=["name"])
    assert str(rules) == str(mx.Rules.from_json_schema(SCHEMA, skip=["name"]))
    assert str(rules).splitlines() == [
        "age: int[0, 120]",
        "income: real",
        'plan: {"basic", "full"}',
        "active: bool",
        "level: real",
        "dozens: int[0, 40]",
        "rates: real?[2]",
        "`Loan Amount`: real",
        "grade: real[1, 3] step 0.5",
        "since: date",
        "income > 0",
        "income <= 1000000",
        "active",
        "level in {0.5, 1, 2}",
        "dozens % 12 == 0",
        "all(v >= 0 for v in rates)",
        "`Loan Amount` <= 9",
        "grade >= 0.9",
        "grade <= 3",
    ]


def test_everything_that_rules_cannot_say_is_named() -> None:
    properties = {
        "name": {"type": "string"},
        "count": {"type": "integer", "minimum": 0},
        "price": {"type": "number", "multipleOf": 0.01},
        "size": {"anyOf": [{"type": "number"}, {"type": "boolean"}]},
        "where": {"type": "object"},
        "list": {"type": "array", "items": {"type": "number"}},
        "odd": {"type": "number", "not": {"const": 2}},
        "lost": {"$ref": "#/nowhere"},
        "empty": {"type": "integer", "minimum": 2, "maximum": 1},
    }
    with pytest.raises(SourceError) as caught:
        mx.Rules.from_json_schema(
            {"properties": properties, "required": list(properties), "if": {}}
        )
    assert str(caught.value).splitlines() == [
        "rules cannot say everything that the schema says:",
        "    the schema: `if` is not understood",
        "    property 'name': a text of any kind: only labels can be told, with enum, and dates",
        "    property 'count': an integer without a range: give it minimum and maximum",
        "    property 'price': `multipleOf` without a range: give it minimum and maximum as well",
        "    property 'size': `anyOf` with several kinds: write one, or one and null",
        "    property 'where': an object inside an object: write its properties one level up",
        "    property 'list': an array of any length: give it minItems and maxItems of the same size",
        "    property 'odd': `not` is not understood",
        "    property 'lost': the reference '#/nowhere' leads nowhere in this schema",
        "    property 'empty': its bounds leave no whole number",
        "change it, or leave properties out with skip=[…]",
    ]


def test_schemas_that_are_none_are_refused() -> None:
    for given, message in (
        ({"type": "object"}, "the schema has no properties"),
        ([], "a JSON Schema is an object, found list"),
        (SCHEMA, "there is no property 'nam' to skip; there are age,"),
    ):
        with pytest.raises(SourceError, match=message):
            mx.Rules.from_json_schema(given, skip=["nam"])
    with pytest.raises(SourceError, match=r"has no model_json_schema\(\)"):
        mx.Rules.from_pydantic(dict)


def test_a_pydantic_model_becomes_rules() -> None:
    pydantic = pytest.importorskip("pydantic")
    fields = {
        "age": (int, pydantic.Field(ge=0, le=120)),
        "share": (float, pydantic.Field(gt=0, lt=1, default=0.5)),
        "price": (Decimal, pydantic.Field(ge=0)),
        "plan": (Literal["basic", "full"], ...),
        "until": (int | None, pydantic.Field(ge=0, le=9)),
    }
    rules = mx.Rules.from_pydantic(pydantic.create_model("Contract", **fields))
    assert str(rules).splitlines() == [
        "age: int[0, 120]",
        "share: real",
        "price: real",
        'plan: {"basic", "full"}',
        "until: int[0, 9]?",
        "share > 0",
        "share < 1",
        "price >= 0",
    ]


def test_what_pydantic_leaves_out_of_its_schema_is_read() -> None:
    pydantic = pytest.importorskip("pydantic")
    day = date(2024, 1, 1)
    cents = pydantic.Field(ge=0, le=100, decimal_places=2)
    fields = {
        "since": (date, pydantic.Field(ge=day)),
        "until": (date | None, pydantic.Field(gt=day, lt=date(2025, 1, 1))),
        "price": (Decimal, cents),
        "extra": (Annotated[Decimal, cents] | None, None),
        "sum": (Decimal, pydantic.Field(max_digits=5, decimal_places=2)),
        "fine": (Decimal, pydantic.Field(ge=Decimal("0.1234567890123456789"))),
    }
    rules = mx.Rules.from_pydantic(pydantic.create_model("Contract", **fields))
    assert str(rules).splitlines() == [
        "since: date",
        "until: date?",
        "price: real[0, 100] step 0.01",
        "extra: real[0, 100] step 0.01?",
        "`sum`: real[-999.99, 999.99] step 0.01",
        "fine: real",
        'since >= date("2024-01-01")',
        'until > date("2024-01-01")',
        'until < date("2025-01-01")',
        "price >= 0",
        "price <= 100",
        "extra >= 0",
        "extra <= 100",
        "`sum` >= -999.99",
        "`sum` <= 999.99",
        "fine >= 0.1234567890123456789",
    ]


def test_what_rules_cannot_say_of_a_model_is_named() -> None:
    pydantic = pytest.importorskip("pydantic")
    fields = {
        "born": (pydantic.PastDate, ...),
        "price": (Decimal, pydantic.Field(decimal_places=2)),
        "long": (Decimal, pydantic.Field(max_digits=4)),
    }
    with pytest.raises(SourceError) as caught:
        mx.Rules.from_pydantic(pydantic.create_model("Odd", **fields))
    assert str(caught.value).splitlines()[1:4] == [
        "    property 'born': `past` is not understood",
        "    property 'price': `multipleOf` without a range: give it minimum and maximum as well",
        "    property 'long': `max_digits` is not understood",
    ]


def test_labels_and_dates_of_a_schema_are_refused_by_property() -> None:
    for own, message in (
        ({"enum": ["a", "a"]}, "property 'c': `enum` holds \"a\" twice"),
        (
            {"type": "string", "format": "date", "formatMinimum": "soon"},
            "property 'c': \"soon\" is not a date: write it like 2024-08-03",
        ),
    ):
        with pytest.raises(SourceError, match=message):
            mx.Rules.from_json_schema({"properties": {"c": own}})


# --- SMT-LIB with scopes --------------------------------------------------------------------------------------------

SCOPED = """(declare-const x Real)
(declare-const p Bool)
(assert (>= x 0))
(push 1)
  (assert (<= x 1))
(pop 1)
(push)
  (assert (<= x 5))
  (check-sat-assuming (p (< 1 x)))
(pop)
(assert (< x 0))
"""


def test_the_rules_of_a_script_are_those_of_its_one_question() -> None:
    rules = mx.Rules.from_smtlib(SCOPED.replace("(< 1 x)", "(not (< x 1))"))
    found = [(rule.line, rule.text) for rule in rules.specification.rules]
    assert found == [(3, "(>= x 0)"), (8, "(<= x 5)"), (9, "(and p (not (< x 1)))")]
    without = mx.Rules.from_smtlib(
        SCOPED.replace("(check-sat-assuming (p (< 1 x)))", "")
    )
    assert [rule.line for rule in without.specification.rules] == [3, 11]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (SCOPED + "(check-sat)", "line 12, column 1: the script asks 2 questions"),
        ("(pop)", r"\(pop 1\) where 0 levels are open"),
        (f"(push {'1' * 50})", "push of more than 9,999 levels"),
        (f"(pop {'9' * 5000})", "pop of more than 9,999 levels"),
        ("(push x)", r"push takes one number, as in \(push 1\)"),
        ("(check-sat-assuming p)", "expected a list of literals"),
    ],
)
def test_scopes_that_cannot_be_followed(script: str, message: str) -> None:
    with pytest.raises(mx.RuleSyntaxError, match=message):
        mx.Rules.from_smtlib(script)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {
                "properties": {
                    "n": {"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0}
                }
            },
            "greater than 0",
        ),
        (
            {
                "properties": {
                    "n": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": 9,
                        "multipleOf": 0,
                    }
                }
            },
            "greater than 0",
        ),
        (
            {"properties": {"n": {"type": "number", "minimum": float("inf")}}},
            "inf is not a finite number",
        ),
        (
            {"required": ["m"]},
            "`required` names 'm', which is not a property; there are n",
        ),
        ({"required": "n"}, "`required` lists names of properties, found 'n'"),
        ({"$ref": "#/nowhere"}, "the schema: the reference '#/nowhere' leads nowhere"),
        ({"required": [["n"]]}, r"`required` names \['n'\], which is not a property"),
        (
            {"properties": {"n": {"allOf": [True]}}},
            "`True` says nothing of its kind: write a schema with a type",
        ),
        (
            {"properties": {"n": {"allOf": {"type": "number"}}}},
            r'`allOf` needs a list, found {"type": "number"}',
        ),
        ({"properties": {"n": {"anyOf": True}}}, "`anyOf` needs a list, found true"),
        ({"properties": {"n": {"enum": -1}}}, "`enum` needs a list, found -1"),
        (
            {"properties": {"n": {"type": {"minimum": Fraction(1, 2)}}}},
            r'{"minimum": 0.5}: it needs number, integer',
        ),
    ],
)
def test_schemas_that_make_no_sense(changed: dict[str, Any], message: str) -> None:
    schema = {"properties": {"n": {"type": "number"}}, **changed}
    with pytest.raises(SourceError, match=message):
        mx.Rules.from_json_schema(schema)


def test_a_schema_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no\.json cannot be read: No such file"):
        mx.Rules.from_json_schema(tmp_path / "no.json")
