"""What people write: names of columns, matrices, decimals, steps, dates, and the functions they expect."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
import torch

import multiplexnet as mx
from campaign.vocabulary import other_words
from multiplexnet.errors import (
    DtypeError,
    InputError,
    RuleSyntaxError,
    ShapeError,
    UnknownNameError,
)
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import TRUE, Int, Specification, Variable, holds
from multiplexnet.language.parser import operations
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.parser.values import Number
from multiplexnet.language.text import formula_text, specification_text
from multiplexnet.verdicts.units import refuse_indistinct, steps_of


def refused(text: str) -> RuleSyntaxError:
    with pytest.raises(RuleSyntaxError) as caught:
        parse(text)
    return caught.value


def written_again(specification: Specification) -> Specification:
    return parse(specification_text(specification))


# --- names ------------------------------------------------------------------------------------------------------------

NAMED = """
"Loan Amount": real; 'class': {"a", "Loan Amount"}; `größe [€]`: real[2]; "sum": real; "q``uote": bool; "x[7]": real
"Loan Amount" >= 2 and implies("class" == "a", "Loan Amount" <= 3)
"class" == "Loan Amount" or `größe [€]`[1] == "sum"
`q````uote` or "x[7]" > 1
"""


def test_any_name_can_be_written() -> None:
    read = parse(NAMED)
    names = [
        "Loan Amount",
        "class",
        "größe [€][0]",
        "größe [€][1]",
        "sum",
        "q``uote",
        "x[7]",
    ]
    assert [v.name for v in read.variables] == names
    plain = parse(
        """a: real; b: {"a", "Loan Amount"}; g: real[2]; s: real; q: bool; x: real
        a >= 2 and implies(b == "a", a <= 3)
        b == "Loan Amount" or g[1] == s
        q or x > 1"""
    )
    named = dict(zip(names, plain.variables, strict=True))
    for values in product([0, 1], [0, 1], [0], [0, 1], [0, 1], [0, 1], [0, 2]):
        point = {
            v: Fraction(value) for v, value in zip(read.variables, values, strict=True)
        }
        same = {named[v.name]: value for v, value in point.items()}
        assert holds(read.formula, point) == holds(plain.formula, same)


def test_names_are_written_back() -> None:
    read = parse(NAMED)
    again = written_again(read)
    assert again.variables == read.variables
    assert specification_text(again) == specification_text(read)
    assert formula_text(read.rules[0].formula).startswith("`Loan Amount` >= 2")


def test_a_label_goes_before_a_name_and_back_ticks_are_always_names() -> None:
    text = 'colour: {"red", "green"}; red: {"red", "green"}\ncolour == "red"\ncolour == `red`'
    label, name = parse(text).rules
    assert formula_text(label.formula) == 'colour == "red"'
    assert formula_text(name.formula) == "colour == red"


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        (
            "class: real",
            1,
            1,
            '`class` is a word of Python: if it is a name, quote it, as in `"class": real`',
        ),
        ("x: real\nx <= from", 2, 6, "`from` is a word of Python"),
        ('"größe €": real\n"größe €" <= oops', 2, 14, "unknown name `oops`"),
        ("`größe €`: real\n`größe €` <= ) 3", 2, 14, "cannot be read"),
        ("x: real\n`x <= 3", 2, 1, "back-ticks that does not end"),
        ('"": real', 1, 1, "a name without letters"),
        ('"a\\nb": real', 1, 1, "line break"),
        (
            "Price: real\nprice <= 3",
            2,
            1,
            "(did you mean `Price`? upper and lower case differ)",
        ),
        (
            '"Loan Amount": real\n"Loan Amuont" <= 3',
            2,
            1,
            "(did you mean `Loan Amount`?)",
        ),
        ('x: real\nx == "red"', 2, 1, "a category is compared with a label"),
        ("sum: real", 1, 1, 'or quote it, as in `"sum": real`'),
        ('x: real[2]; "x[1]": real', 1, 21, "`x[1]` is declared twice"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(
    text: str, line: int, column: int, reason: str
) -> None:
    error = refused(text)
    assert (error.line, error.column) == (line, column)
    assert reason in error.reason


def test_rules_find_a_variable_by_its_name() -> None:
    rules = mx.Rules('"Loan Amount": real; limit: input; `Loan Amount` <= limit')
    assert rules["Loan Amount"].index == 0
    assert "limit" in rules
    assert [v.name for v in rules] == ["Loan Amount", "limit"]
    with pytest.raises(
        UnknownNameError, match=r"no 'loan amount' \(did you mean `Loan Amount`\?"
    ):
        rules["loan amount"]


def test_inputs_with_odd_names_are_passed_by_keyword() -> None:
    rules = mx.Rules('"my limit": input[0, 9]; x: real; 0 <= x <= "my limit"')
    mux = mx.Multiplexer(rules)
    limit = torch.tensor([1.0, 2.0])
    given: dict[str, Any] = {"my limit": limit}
    x = mux(torch.randn(2, mux.in_features), **given).best()
    assert rules.satisfied(x, **given).all()
    with pytest.raises(InputError, match=r"pass \*\*\{'my limit': …\}"):
        mux(torch.randn(2, mux.in_features))


def test_names_that_came_later_are_left_to_old_rules() -> None:
    read = parse(
        "mean: function; count: real; date: real; count <= 3; date <= mean(count)"
    )
    assert read.functions == ("mean",)
    assert [v.name for v in parse("step >= 2; year <= 3").variables] == ["step", "year"]


def test_saved_layers_and_certificates_keep_names_and_units() -> None:
    text = """
    "My price": decimal(2)[0, 5]; "x[3]": real; start: date["2024-01-01", "2024-01-09"]
    0 <= "x[3]" <= "My price"
    """
    mux = mx.Multiplexer(mx.Rules(text), dtype=torch.float64)
    again = mx.Multiplexer.from_state(mux.state_dict())
    assert again.rules.outputs == mux.rules.outputs
    raw = torch.randn(5, mux.in_features, dtype=torch.float64)
    assert torch.equal(again(raw).best(), mux(raw).best())


def test_any_kind_may_be_missing() -> None:
    text = """
    "my price": decimal(2)[1, 9]?; "x[3]": real?; d: date["2024-01-02", "2024-01-09"]?; s: real[0, 2]? step 0.5
    implies("my price" is missing, "x[3]" is not missing and "x[3]" == 2)
    implies(d is missing, s is missing) and 0 <= "x[3]" <= 9
    """
    rules = mx.Rules(text)
    again = written_again(rules.specification)
    assert again.variables == rules.specification.variables
    assert "`my price` is not missing" in specification_text(again)
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    x = mux(3 * torch.randn(300, mux.in_features, dtype=torch.float64)).best()
    assert rules.satisfied(x).all()
    assert (x.isnan().any(0)[1:] & x.isfinite().any(0)[1:]).all()
    prices = {round(value, 2) for value in x[:, 0].tolist() if value == value}
    assert len(prices) > 9
    assert prices == {value for value in x[:, 0].tolist() if value == value}
    broken = torch.tensor([[torch.nan, 1.0, 19724.0, 0.25]], dtype=torch.float64)
    assert rules.satisfied(mux.repair(broken)).all()


# --- matrices ---------------------------------------------------------------------------------------------------------

SAME = [  # what is written for a matrix `w: real[2, 3]` and a vector `x: real[3]`, and what it means
    ("all(w >= 0)", "all(v >= 0 for r in w for v in r)"),
    ("w[1, 2] <= w[0][1]", "w[1][2] <= w[0][1]"),
    ("sum(w[:, 2]) == 1", "w[0][2] + w[1][2] == 1"),
    ("sum(w[1, 1:]) == 1", "w[1][1] + w[1][2] == 1"),
    ("all(sum(w, axis=0) <= x)", "all(w[0][j] + w[1][j] <= x[j] for j in range(3))"),
    (
        "all(s <= 1 for s in sum(w, axis=1))",
        "all(w[i][0] + w[i][1] + w[i][2] <= 1 for i in range(2))",
    ),
    (
        "sum(w) <= len(w)",
        "w[0][0] + w[0][1] + w[0][2] + w[1][0] + w[1][1] + w[1][2] <= 2",
    ),
    ("any(0 <= x < 1)", "any(0 <= v and v < 1 for v in x)"),
    (
        "all(2*x - 1 <= [1, 2, 3])",
        "2*x[0] - 1 <= 1 and 2*x[1] - 1 <= 2 and 2*x[2] - 1 <= 3",
    ),
    ("all(w[:, :0] @ x[:0] == [0, 0])", "True"),
    (
        "all([[1, 2, 3], [0, 1, 0]] @ x <= [4, 5])",
        "x[0] + 2*x[1] + 3*x[2] <= 4 and x[1] <= 5",
    ),
    ("dot([1, 2, 0], x) <= 4", "x[0] + 2*x[1] <= 4"),
    ("mean(x) <= 4", "(x[0] + x[1] + x[2])/3 <= 4"),
    ("is_sorted(x)", "x[0] <= x[1] and x[1] <= x[2]"),
    ("argmax(x) == 1", "x[0] < x[1] and x[2] <= x[1]"),
    (
        "argmin(x) in {0, 2}",
        "(x[0] <= x[1] and x[0] <= x[2]) or (x[2] < x[0] and x[2] < x[1])",
    ),
    (
        "argmax(x) + 1 == n",
        "(n == 1 and argmax(x) == 0) or (n == 2 and argmax(x) == 1) or (n == 3 and argmax(x) == 2)",
    ),
    ("count(x > 1) <= 1", "sum(1 if v > 1 else 0 for v in x) <= 1"),
    ("count(v > x[2] for v in x) < 1", "not (x[0] > x[2] or x[1] > x[2])"),
    ("norm(x, 1) <= 3", "sum(abs(v) for v in x) <= 3"),
    ("norm(x, inf) <= 3", "all(abs(v) <= 3 for v in x)"),
    ("norm(x) <= 3", "x[0]**2 + x[1]**2 + x[2]**2 <= 9"),
    ("x[0]**2 + 4*x[1]**2 <= 9", "norm([x[0], 2*x[1]], 2) <= 3"),
    ("quad(x[:2], [[2, 1], [1, 2]]) <= 3", "(x[0] + x[1])**2 + x[0]**2 + x[1]**2 <= 3"),
    ("x[0]**2 <= 4*x[1]", "norm([x[0], x[1] - 1]) <= x[1] + 1"),
    ("n in range(0, 9, 4)", "n in {0, 4, 8}"),
    ("n % 3 == 1", "n in {1, 4, 7}"),
    ("(2*n + 1) % 4 >= 3", "n in {1, 3, 5, 7, 9}"),
    ("n // 3 == 2", "n in {6, 7, 8}"),
    ("floor(x[0]) >= 2", "x[0] >= 2"),
    ("floor(x[0]) < 2.5", "x[0] < 3"),
    ("floor(x[0]) == 2.5", "False"),
    ("n == floor(x[0])", "n <= x[0] and x[0] < n + 1"),
    ("ceil(x[0]) <= n", "x[0] <= n"),
    ("ceil(x[0]) == 2", "1 < x[0] and x[0] <= 2"),
    ("round(x[0]) > 2", "x[0] >= 2.5"),
    ("n != floor(5/2)", "n != 2"),
    ("n <= 10**1 - 3*2**1", "n <= 4"),
    ("year(d) >= 2024", 'd >= date("2024-01-01")'),
    ("year(d) == 2024", 'date("2024-01-01") <= d and d < d"2025-01-01"'),
    ("year(d) < 2024", 'd < date("2024-01-01")'),
    ('d in {d"2024-02-29"}', "d == 19782"),
]
KINDS = 'w: real[2, 3]; x: real[3]; n: int[0, 9]; d: date["2023-12-01", "2025-02-01"]\n'


@pytest.mark.parametrize(("text", "same"), SAME)
def test_words_mean_what_people_expect(text: str, same: str) -> None:
    generator = np.random.default_rng(0)
    one, other = parse(KINDS + text), parse(KINDS + same)
    again = written_again(one)
    for _ in range(120):
        point = {v: _some_value(v, generator) for v in one.variables}
        assert holds(one.formula, point) == holds(other.formula, point)
        assert holds(again.formula, point) == holds(one.formula, point)


def _some_value(variable: Variable, generator: np.random.Generator) -> Fraction:
    if isinstance(variable.domain, Int):
        return Fraction(
            int(generator.integers(variable.domain.lower, variable.domain.upper + 1))
        )
    return Fraction(int(generator.integers(-4, 17)), 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x >= 0", "write `all(…)` or `any(…)` around it"),
        ("all(x <= [1, 2])", "a vector of 3 beside a vector of 2"),
        ("w[1, 2, 0] <= 1", "3 indices for `w`, which has fewer"),
        ("x[0, 1] <= 1", "2 indices for `x`, which has fewer"),
        ("w[2, 0] <= 1", "index 2 is out of range"),
        ("sum(x, axis=0) <= 1", "`axis` is for a matrix"),
        ("all(sum(w, axis=2) <= 1)", "axis 2: write 0"),
        ("sum(w, dim=0) <= 1", "`dim` in a call"),
        ("norm(x) >= 1", "is not convex"),
        ("norm(x, 3) <= 1", "write `norm(x)`"),
        ("x[0] <= inf", "bounds nothing, so leave it out"),
        ("x[0] % 2 == 0", "`%` of a number that need not be whole"),
        ("n % 0 == 0", "`%` needs a whole number on its right"),
        ("floor(x[0]) <= x[1]", "declare one, as in `n: int[0, 9]`"),
        ("floor(x[0]) + 1 <= 2", "write `n == floor(x)`"),
        ("dot(x, [x[1], x[0], 1]) <= 1", "product of variables"),
        ("2**x[0] <= 1", "a power: squares `x**2` are read"),
        ("n <= 10**99999", "a power that is not a short number"),
        ("year(n) == 3", "the year of something else than a date"),
        ("year(d) == n", "a year is compared with a number"),
        ('d >= date("2024-13-01")', "is not a date"),
        (
            'd >= date("tomorrow")',
            '"tomorrow" is not a date: write year, month and day',
        ),
        ("d >= date(2024)", 'write it in quotes, as in `date("2024-08-03")`'),
        ('d >= datetime("2024-08-03 10:00")', "one counts days, the other seconds"),
    ],
)
def test_near_misses_are_explained(text: str, reason: str) -> None:
    assert reason in refused(KINDS + text).reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x: real[0, 1]", "write others as a rule"),
        ("x: real[2, 2][3]", "more than one size"),
        ("x: real[0, 1] step 0.3", "1 is not a multiple of 3/10"),
        ("x: real step 0.5", "write both ends, as in `real[0, 10] step 0.5`"),
        ("x: real[0, 1] step 0", "write a positive number"),
        ("x: bool step 2", "`step` is for numbers"),
        ("x: decimal[0, 1]", "write how many, as in `decimal(2)[0, 1000]`"),
        ("x: decimal(2)", "write both ends"),
        ("x: decimal(40)[0, 1]", "40 digits after the point"),
        ("x: real[0, 1] | 0.5", "this is not a type"),
        ("x: time", "did you mean `datetime`?"),
        ('x: date["2024-01-01", "2023-01-01"]', "an empty range"),
        ("f: input function", "an input is a number"),
    ],
)
def test_declarations_that_cannot_be_are_explained(text: str, reason: str) -> None:
    assert reason in refused(text).reason


def test_matrix_inputs_are_one_tensor() -> None:
    rules = mx.Rules(
        "c: input[0, 1][2, 3]; u: input[0, 1][2, 2]; v: input real[2, 2]; w: real[2, 3]\n"
        "all(0 <= w <= c) and all(w[:, :2] <= u)"
    )
    assert written_again(rules.specification).variables == rules.specification.variables
    mux = mx.Multiplexer(rules)
    given: dict[str, Any] = {
        "c": torch.rand(4, 2, 3),
        "u": torch.rand(4, 2, 2),
        "v": torch.rand(4, 2, 2),
    }
    x = mux(torch.randn(4, mux.in_features), **given).best()
    assert rules.satisfied(x, **given).all()
    assert (x.reshape(4, 2, 3) <= given["c"]).all()
    assert not rules.satisfied(x + 1, **given).any()
    with pytest.raises(
        ShapeError, match=r"a matrix of 2 × 3: its last dimensions must be these"
    ):
        rules.satisfied(x, **given | {"c": torch.rand(4, 3, 2)})


# --- units ------------------------------------------------------------------------------------------------------------

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
UNITS = [  # declaration, format
    ("decimal(2)[-1000, 1000]", "float64"),
    ("decimal(12)[0, 1]", "float64"),
    ("decimal(2)[-1000, 1000]", "float32"),
    ("real[-10, 10] step 0.125", "bfloat16"),
    ("real[-7, 7] step 7/3", "float32"),
    ("decimal(1)[-5, 5]", "bfloat16"),
    ("decimal(2)[-2, 2]", "float16"),
    ("real[0, 400] step 100/3", "float16"),
]


def _nearest(number: Fraction, name: str) -> Fraction:
    """By exact arithmetic alone, ties to the even one."""
    form = FORMATS[name]
    low, high = form.down(number), form.up(number)
    if high - number == number - low and low != high:
        return low if (low / form.spacing(low)).numerator % 2 == 0 else high
    return low if number - low < high - number else high


@pytest.mark.parametrize(("kind", "name"), UNITS)
def test_the_float_of_a_unit_is_the_nearest_and_no_other_float_stands_for_it(
    kind: str, name: str
) -> None:
    rules = mx.Rules(f"x: {kind}")
    domain = rules["x"].domain
    assert isinstance(domain, Int)
    dtype = DTYPES[name]
    mux = mx.Multiplexer(rules, dtype=dtype)
    x = mux(3 * torch.randn(2000, mux.in_features, dtype=dtype)).best().squeeze(-1)
    steps = {round(Fraction(value) / domain.unit.size) for value in x.double().tolist()}
    assert len(steps) > 5
    expected = {float(_nearest(k * domain.unit.size, name)) for k in steps}
    assert set(x.double().tolist()) == expected
    assert rules.satisfied(x.unsqueeze(-1)).all()
    beside = (
        torch.nextafter(x, torch.full_like(x, torch.inf))
        if dtype.itemsize > 2
        else None
    )
    if beside is not None:
        assert not rules.satisfied(beside.unsqueeze(-1)).any()
    every = torch.tensor(
        [float(_nearest(k * domain.unit.size, name)) for k in sorted(steps)]
    )
    read = steps_of(
        every.numpy().astype(np.float64)
        if name != "float64"
        else np.array(sorted(expected)),
        rules["x"],
        name,
    )
    assert read.tolist() == sorted(steps)


@pytest.mark.parametrize(
    ("kind", "name", "advice"),
    [
        (
            "decimal(2)[0, 1000000]",
            "float32",
            "steps of 0.01 up to 1000000, which float32 cannot tell apart: use float64",
        ),
        ("decimal(2)[0, 2]", "bfloat16", "use float16"),
        (
            'date["2020-01-01", "2024-12-31"]',
            "bfloat16",
            "up to 2024-12-31, which bfloat16 cannot tell apart: use float32",
        ),
        ("datetime", "float32", "use float64"),
    ],
)
def test_what_a_dtype_cannot_tell_apart_is_refused(
    kind: str, name: str, advice: str
) -> None:
    rules = mx.Rules(f"x: {kind}")
    with pytest.raises(DtypeError, match="`x` is counted") as caught:
        mx.Multiplexer(rules, dtype=DTYPES[name])
    assert advice in str(caught.value)
    with pytest.raises(DtypeError):
        refuse_indistinct(rules["x"], name)


def test_decimals_are_exact_in_every_part_of_the_layer() -> None:
    rules = mx.Rules(
        "a: decimal(2)[0, 60]; b: decimal(2)[0, 60]; c: real; a + b == 99.99; a >= b + 0.01; 0 <= c <= a"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    branches = mux(3 * torch.randn(300, mux.in_features, dtype=torch.float64))
    for x in (branches.best(), branches.sample()):
        assert rules.satisfied(x).all()
        cents = [
            [round(100 * Fraction(value)) for value in row[:2]] for row in x.tolist()
        ]
        assert all(a + b == 9999 and a > b for a, b in cents)
        assert x[:, :2].tolist() == [[a / 100, b / 100] for a, b in cents]
    given = torch.tensor(
        [[55.55, 44.44, 1.0], [10.0, 20.0, 5.0], [55.555, 44.435, 1.0]],
        dtype=torch.float64,
    )
    moved = mux.repair(given)
    assert torch.equal(moved[0], given[0])
    assert rules.satisfied(given).tolist() == [True, False, False]
    assert rules.satisfied(moved).all()
    assert rules.violation(given)[1].tolist() == pytest.approx([69.99, 10.01, 0.0])
    assert rules.violation(given)[2].isinf().all()  # 55.555 is not an amount in cents


def test_a_cascade_of_decimals_has_probabilities() -> None:
    rules = mx.Rules("a: decimal(2)[0, 9]; b: decimal(2)[0, 9]; a <= b")
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    assert mux.cascades
    branches = mux(torch.zeros(1, mux.in_features, dtype=torch.float64))
    x = torch.tensor([[1.23, 4.56], [4.56, 1.23], [1.234, 5.0]], dtype=torch.float64)
    assert branches.log_prob(x).isfinite().tolist() == [True, False, False]
    assert mux.resolution == {"a": Fraction(1, 100), "b": Fraction(1, 100)}


@pytest.mark.parametrize(
    ("price", "is_read"),
    [
        (12.34, True),
        (Decimal("12.34"), True),
        (Fraction(1234, 100), True),
        (12, True),
        ([12.34, 12.35], True),
        (torch.tensor([12.34, 12.35], dtype=torch.float64), True),
        (np.array([12.34, 12.35]), True),
        (12.345, False),
        (torch.tensor([12.34, 12.345], dtype=torch.float64), False),
    ],
)
def test_inputs_in_cents_are_read(price: object, is_read: bool) -> None:
    rules = mx.Rules(
        "price: input decimal(2)[0, 99]; x: decimal(2)[0, 300]; price <= x <= 2*price"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    raw = torch.randn(2, mux.in_features, dtype=torch.float64)
    if is_read:
        assert rules.satisfied(mux(raw, price=price).best(), price=price).all()
        return
    with pytest.raises(
        InputError, match=r"not one of its declared values \{0, 0.01, …, 99\}"
    ):
        mux(raw, price=price)


def test_dates() -> None:
    rules = mx.Rules(
        """start: input date["2024-01-01", "2025-12-31"]; end: date["2024-01-01", "2026-12-31"]
        0 <= end - start <= 30 and end != date("2024-08-10")"""
    )
    mux = mx.Multiplexer(rules)
    for start in (
        date(2024, 8, 3),
        "2024-08-03",
        np.datetime64("2024-08-03T12:00"),
        19938,
        torch.tensor(19938.0),
    ):
        end = mux(3 * torch.randn(200, mux.in_features), start=start).best()
        assert rules.satisfied(end, start=start).all()
        days = {
            date.fromordinal(int(d) + date(1970, 1, 1).toordinal())
            for d in end[:, 0].tolist()
        }
        assert min(days) >= date(2024, 8, 3)
        assert max(days) <= date(2024, 9, 2)
    with pytest.raises(InputError, match='"soon" is not a date'):
        rules.satisfied(end, start="soon")
    few = mx.Rules(
        'd: date["2024-01-01", "2024-01-09"]; price: decimal(2)[0, 1]; d >= d"2024-01-05"; price <= 0.07'
    )
    assert "[2024-01-05, 2024-01-09]" in str(few.explain())
    assert "[0, 0.07]" in str(few.explain())
    times = mx.Rules(
        't: datetime; u: input datetime; t >= u + 3600 and t >= d"2024-08-03 14:30"'
    )
    late = torch.tensor([[1722695400.0], [1722695399.0]], dtype=torch.float64)
    assert times.satisfied(late, u=datetime(2024, 8, 3, 13, 30)).tolist() == [
        True,
        False,
    ]


def obeying(rules: mx.Rules, table: pl.DataFrame) -> list[bool]:
    found = mx.check(rules, table).obeys
    assert found is not None
    return [bool(row) for row in found]


def test_tables_hold_decimals_and_dates() -> None:
    rules = mx.Rules(
        '"my price": decimal(2)[0, 99]; start: date["2024-01-01", "2024-12-31"]; "my price" <= 12.34'
    )
    days = ["2024-08-03", "2024-08-03", "2023-08-03", "soon"]
    exact = pl.DataFrame({"my price": ["12.34", "12.341", "0.1", "1"], "start": days})
    assert obeying(rules, exact) == [True, False, False, False]
    floats = pl.DataFrame(
        {"my price": [12.34, 12.35, 0.1 + 0.2], "start": [date(2024, 8, 3)] * 3}
    )
    assert obeying(rules, floats) == [True, False, False]


# --- the reference ----------------------------------------------------------------------------------------------------

REFERENCE = Path(__file__).parents[1] / "docs/reference/language.md"
CELL = re.compile(r"(?<!`)(?:``\s(.+?)\s``|`([^`]+)`)(?!`)")
EVERYTHING = """
x: real[3]; w: real[2, 3]; n: int[0, 9]; on: bool; colour: {"red", "green"}; t: datetime; limit: input[0, 9]
start: date["2024-01-01", "2024-12-31"]; end: date["2024-01-01", "2024-12-31"]
"""


def table_lines(heading: str) -> list[tuple[str, str]]:
    """What a table of the reference says can be written, line by line."""
    text = REFERENCE.read_text(encoding="utf-8").partition(heading)[2]
    lines = [
        line
        for line in text.partition("\n\n")[2].partition("\n\n")[0].split("\n")[2:]
        if line
    ]
    cells = [(line.split("|")[1].strip(), line.split("|", 2)[2]) for line in lines]
    return [(name, a or b) for name, cell in cells for a, b in CELL.findall(cell)]


def test_the_tables_of_the_reference_are_the_language() -> None:
    declarations = table_lines("**What the network puts out, and what is known**")
    rules = table_lines("**What holds**")
    assert len(declarations) > 25
    assert len(rules) > 45
    for _, text in declarations:
        read = parse(text)
        again = written_again(read)
        assert again.variables == read.variables
        assert again.functions == read.functions
    for _, text in rules:
        if text != "x[2]":
            read = parse(EVERYTHING + text)
            assert len(read.rules) + len(read.assumptions) == 1


# --- the campaign -----------------------------------------------------------------------------------------------------


def test_the_campaign_finds_nothing_and_notices_planted_faults() -> None:
    def wrong(*numbers: int) -> list[str]:
        findings = [f for k in numbers for f in other_words(Random(k))]
        return [f.check for f in findings if f.wrong]

    assert not wrong(2, 7, 44, 46)
    with patch.object(operations, "_is_first", lambda numbers, place: TRUE):
        assert "words: satisfied" in wrong(46)
    with patch.object(
        operations, "rounded_quotient", lambda linear, name: Number(linear)
    ):
        assert "words: satisfied" in wrong(7, 44)


def test_hundreds_of_labels_need_no_term_each() -> None:
    labels = ", ".join(f'"l{k}"' for k in range(400))
    text = f'c: {{{labels}}}; d: {{{labels}}}; x: real\n0 <= x <= 9; c != d; implies(c == "l3", x <= 1)'
    mux = mx.Multiplexer(text)
    assert mux.in_features < 2 * 400 + 20  # and not 400 * 399
    x = mux(torch.randn(64, mux.in_features)).best()
    assert mux.rules.satisfied(x).all()


@pytest.mark.parametrize("structure", ["terms", "cascade"])
@pytest.mark.parametrize(
    ("text", "axes"),
    [
        (
            "x: decimal(1)[0, 3]; y: decimal(1)[0, 3]; x + y == 2.5 or x <= 0.3",
            [[i / 10 for i in range(31)]] * 2,
        ),
        (
            "x: real[0, 4] step 0.5; y: real[0, 4] step 0.25; x + y <= 3",
            [[i / 2 for i in range(9)], [i / 4 for i in range(17)]],
        ),
        (
            "x: int[0, 20] step 5; y: int[0, 20] step 5; x + y <= 25",
            [[0, 5, 10, 15, 20]] * 2,
        ),
    ],
)
def test_a_distribution_draws_and_weighs_outputs_in_their_units(
    text: str, axes: list[list[float]], structure: Any
) -> None:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=torch.float64, structure=structure)
    base = torch.distributions.Normal(torch.zeros(2, dtype=torch.float64), 1.0)
    p = mx.RulesDistribution(mux, base)
    points = torch.cartesian_prod(*(torch.tensor(a, dtype=torch.float64) for a in axes))
    probabilities = p.log_prob(points).exp()
    assert float(probabilities.sum()) == pytest.approx(1.0)
    assert torch.equal(probabilities > 0, rules.satisfied(points))
    assert torch.equal(p.support.check(points), rules.satisfied(points))
    drawn = p.sample((100,))
    for x in (drawn, p.mode.unsqueeze(0), next(p.samples(10))):
        assert rules.satisfied(x).all()
        assert p.log_prob(x).isfinite().all()
    assert p.entropy(200).isfinite()
    if structure == "terms":
        assert rules.satisfied(p.branches((5,)).x.flatten(0, -2)).all()


def test_a_head_that_sees_what_is_left_sees_it_in_units() -> None:
    rules = mx.Rules(
        "x: decimal(2)[0, 10]; y: decimal(2)[0, 10]; u: input decimal(2)[0, 20]; x + y == u"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float64, structure="cascade")
    seen = []

    def head(j: int, h: torch.Tensor, left: Any) -> torch.Tensor:
        seen.append((left.x.tolist(), left.lower.item(), left.upper.item()))
        return torch.zeros(1, 1 + mux.options[j], dtype=torch.float64)

    target = torch.tensor([[6.09, 1.68]], dtype=torch.float64)
    u = torch.tensor([7.77], dtype=torch.float64)
    mux.unroll(head, torch.zeros(1, 1).double(), target, u=u)
    assert seen == [([[0.0, 0.0]], 0.0, 7.77), ([[6.09, 0.0]], 1.68, 1.68)]


def test_an_input_between_two_cents_is_told_so() -> None:
    mux = mx.Multiplexer("x: real; u: input decimal(2)[0, 20]; 0 <= x <= u")
    with pytest.raises(
        InputError,
        match=r"u is not one of its declared values \{0, 0.01, …, 20\} in row 1",
    ):
        mux(torch.zeros(2, 1), u=torch.tensor([3.33, 3.333]))
