"""Rules given as z3 expressions: what they mean, which range integers get, what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import z3
from oracle import proves

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import Atom, Int, Linear, Real, Variable
from multiplexnet.smt.from_z3 import from_z3
from multiplexnet.smt.questions import to_z3, unsat_core

zx, zy, zlimit = z3.Reals("x y limit")
zn, zm = z3.Ints("n m")
za, zb, zc = z3.Bools("a b c")
f = z3.Function("f", z3.RealSort(), z3.RealSort())
OF_INT = z3.Function("g", z3.IntSort(), z3.RealSort())
PREDICATE = z3.Function("p", z3.RealSort(), z3.BoolSort())


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (z3.If(zx > zy, zx, zy) <= 3, "max(x, y) <= 3"),
        (z3.If(zx <= zy, zx, zy) <= 3, "min(x, y) <= 3"),
        (z3.Abs(zx) >= 1, "abs(x) >= 1"),
        (z3.If(za, 1, 0) + z3.If(zb, 1, 0) == 1, "a + b == 1"),
        (z3.AtMost(za, zb, 1), "a + b <= 1"),
        (z3.PbGe([(za, 2), (zb, 3)], 3), "2*a + 3*b >= 3"),
        (z3.Distinct(zx, zy, z3.RealVal(2)), "x != y and x != 2 and y != 2"),
        (z3.Xor(za, zb), "xor(a, b)"),
        (za == zb, "iff(a, b)"),
        (za == z3.BoolVal(False), "not a"),
        (z3.Implies(za, zx > 0), "not a or x > 0"),
        (f(zx) + 2 * f(zx) >= zy, "y <= 3*f(x)"),
        (-(zx - zy) / 4 + z3.Q(1, 3) < 0, "0.25*x - 0.25*y > 1/3"),
        (zx >= z3.RealVal(7) / 2, "x >= 3.5"),
        (zx >= z3.ToReal(z3.IntVal(7) / 2), "x >= 3"),
        (z3.If(za, zx, zy) > 0, "(x if a else y) > 0"),
    ],
)
def test_z3_operators_read_as_the_language(rule: z3.BoolRef, text: str) -> None:
    [read] = from_z3([rule]).rules
    assert read.text == text
    assert read.line is None


@pytest.mark.parametrize(
    "rule",
    [
        z3.Xor(za, z3.Xor(zb, zc)),
        z3.Distinct(za, zb, zc),
        z3.Distinct(za, zb),
        z3.If(za, zb, zc),
        z3.If(za, zx > 0, zx < 0),
        z3.If(zx > zy, zx, zy) + z3.If(zx + 1 < zy, zx, zy)
        > z3.If(zx >= zy, zx + 1, zy),
        z3.If(z3.Or(za, zb), zx, 2 * zx) <= 3,
        z3.And(za, z3.Or(zb, z3.And(), z3.Or())),
        z3.PbEq([(za, 1), (z3.Or(zb, zx > 0), 2), (zc, -1)], 2),
        z3.AtLeast(za, zb, zx > 1, 2),
        (zx > 0) == (zy > 0),
        z3.Sum(zx, zy, zx, -3 * zy) - zx - 1
        <= zlimit * z3.RealVal(2) * z3.RealVal("0.1"),
        z3.Not(z3.Not(zx == zy)),
    ],
    ids=str,
)
def test_reading_a_z3_expression_keeps_its_meaning(rule: z3.BoolRef) -> None:
    assert proves(to_z3(from_z3(rule).formula) == rule)


def test_the_parts_of_an_outer_and_are_rules() -> None:
    spec = from_z3([z3.And(zx > 0, z3.And(zy > 0, zx < 1)), zy < 1])
    assert [rule.text for rule in spec.rules] == ["x > 0", "y > 0", "x < 1", "y < 1"]


def test_outputs_come_in_order_of_appearance_or_as_given() -> None:
    rules = [zy <= zx, zlimit >= zy]
    assert [v.name for v in from_z3(rules).outputs] == ["y", "x", "limit"]
    spec = from_z3(rules, outputs=["x", zy, "free"], inputs=[zlimit])
    assert [(v.name, v.index, v.role) for v in spec.variables] == [
        ("x", 0, "output"),
        ("y", 1, "output"),
        ("free", 2, "output"),
        ("limit", 3, "input"),
    ]


def test_an_input_has_the_range_it_is_given() -> None:
    [variable] = from_z3(zx <= zlimit, inputs={zlimit: (0, 0.1)}).inputs
    assert variable.domain == Real(Fraction(0), Fraction(1, 10))
    [variable] = from_z3(
        [zx <= zlimit, zlimit >= 0], inputs={"limit": (None, float("inf"))}
    ).inputs
    assert variable.domain == Real()


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([zn >= 0, zn <= 9], Int(0, 9)),
        ([2 * zn > 1, 3 * zn < 10], Int(1, 3)),
        ([zn == 4], Int(4, 4)),
        ([z3.And(zn >= 0, zn < 3) == z3.BoolVal(True), zn != 1], Int(0, 2)),
        ([z3.Or(zn == 2, zn == 5)], Int(2, 5)),
        ([z3.Not(z3.Or(zn < 0, zn > 4))], Int(0, 4)),
        ([zn >= 0, 3 * zn + 2 * z3.If(zx > 0, zx, -zx) <= 7], Int(0, 2)),
        ([zn > 0, zn < 0], Int(-1, 1)),
    ],
    ids=str,
)
def test_integers_get_a_range_that_holds_what_the_rules_allow(
    rules: list[z3.BoolRef], expected: Int
) -> None:
    spec = from_z3(rules)
    assert {v.name: v.domain for v in spec.outputs}["n"] == expected
    assert len(spec.rules) == len(rules)


def test_ranges_of_inputs_bound_integers() -> None:
    spec = from_z3(
        [zm == zn, zm <= zlimit], inputs={zn: (0, 5), zlimit: (0, Fraction(7, 2))}
    )
    assert [v.domain for v in spec.variables] == [
        Int(0, 3),
        Int(0, 5),
        Real(Fraction(0), Fraction(7, 2)),
    ]


def test_contradicting_integers_are_left_to_the_diagnosis() -> None:
    spec = from_z3([zn > zm, zm > zn, zx > 0])
    assert unsat_core([rule.formula for rule in spec.rules], spec.variables) == [0, 1]


def test_expressions_of_another_context_can_be_read() -> None:
    context = z3.Context()
    spec = from_z3(z3.Or(z3.Int("n", context) == 1, z3.Int("n", context) == 2))
    assert spec.outputs[0].domain == Int(1, 2)


def test_a_deep_expression_is_no_problem() -> None:
    nots, ands = zx > 0, zx > 0
    for i in range(10_000):
        nots, ands = (
            z3.Not(nots),
            z3.And(zx > i % 7, ands) if i % 2 else z3.Or(zy > i % 7, ands),
        )
    assert from_z3(nots).rules[0].text == "x > 0"
    spec = from_z3(z3.Or(ands, zx < 0))
    assert len(spec.rules) == 1
    assert proves(to_z3(spec.formula) == z3.Or(ands, zx < 0))


def test_sharing_is_kept_or_refused() -> None:
    shared = zx
    for _ in range(100):
        shared = shared + shared
    assert from_z3(shared >= 0).rules[0].formula == Atom(
        Linear.of(Variable("x", 0)) * -(2**100), "<="
    )
    for i in range(100):
        shared = z3.If(zy > i, f(shared), shared)
    with pytest.raises(
        RuleSyntaxError,
        match="with its shared parts written out this number has more than 10,000 parts",
    ):
        from_z3(shared >= 0)


def test_numbers_nested_too_deeply_are_refused() -> None:
    nested = zx
    for i in range(3_000):
        nested = z3.If(zy > i, zx + i, f(nested))
    with pytest.raises(RuleSyntaxError, match="nested too deeply"):
        from_z3(nested + f(nested) >= 0)


@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        (zx * zy >= 1, {}, "`x*y` multiplies `x` by `y`: rules are linear"),
        (zx / zy >= 1, {}, "`x/y` divides by `y`: rules are linear"),
        (zx / z3.RealVal(0) >= 1, {}, "`x/0` divides by zero"),
        (zx**2 >= 1, {}, "rules are linear and have no powers"),
        (zn % 2 == 0, {}, "`n%2`: rules have no integer division"),
        (zn / 2 == 0, {}, "`n/2`: rules have no integer division"),
        (z3.IsInt(zx), {}, "whether a real is whole; declare an Int"),
        (z3.ToInt(zx) == 1, {}, "rules do not round"),
        (zx >= z3.simplify(z3.Sqrt(2)), {}, "irrational"),
        (z3.ForAll([zx], zx > zy), {}, "is a quantifier"),
        (z3.Exists([zx], zx > zy), {}, "is a quantifier"),
        (
            z3.Array("A", z3.IntSort(), z3.RealSort())[0] > zx,
            {},
            "`A` is an array: use one constant for each element",
        ),
        (z3.BitVec("v", 8) > 3, {}, "`v` is a bit-vector: use Int with bounds"),
        (z3.String("s") == "a", {}, "`s` is a string or sequence"),
        (z3.FP("v", z3.Float32()) > 1, {}, "`v` is a floating-point number: use Real"),
        (
            z3.Const("u", z3.DeclareSort("S")) == z3.Const("v", z3.DeclareSort("S")),
            {},
            "of sort S: use Real, Int or Bool",
        ),
        (
            OF_INT(zn) > 0,
            {},
            "an opaque function takes reals and gives a real, g does not",
        ),
        (
            PREDICATE(zx),
            {},
            "an opaque function takes reals and gives a real, p does not",
        ),
        (
            z3.And(zn >= 0, zx > 0),
            {},
            "the integer n is not bounded above: integers must be finite, add rules such as",
        ),
        (zn <= 0, {}, "the integer n is not bounded below"),
        (
            z3.And(zn >= 0, zn <= 10**6),
            {},
            "the integer n ranges from 0 to 1000000: more than 1,000,000 values",
        ),
        (
            zx > 0,
            {"outputs": ["x", "n"], "inputs": [zn]},
            "the constant n is declared twice",
        ),
        (zx > 0, {"outputs": ["x", zn]}, "the integer n is not bounded"),
        (
            zx > zy,
            {"outputs": [zx]},
            "the rules speak of y, declared neither as an output nor as an input",
        ),
        (zx > 0, {"outputs": [zx + 1]}, "`x + 1` is not a z3 constant"),
        (zx > 0, {"outputs": [3]}, "`3` is not a z3 constant"),
        (
            zx > 0,
            {"outputs": [z3.Int("x")]},
            "the constant x is declared as Int but occurs in the rules as Real",
        ),
        (zx > 0, {"outputs": [z3.BitVec("x", 8)]}, "`x` is a bit-vector"),
        (
            z3.And(zx > 0, z3.Int("x") > 0),
            {},
            "two constants of different sort named `x`",
        ),
        (zx > 0, {"inputs": {zx: (3, 1)}}, "the range of x is empty: 3 is above 1"),
        (
            zx > 0,
            {"inputs": {zx: ("a", 1)}},
            "'a' is not a bound of a range: give a number or None",
        ),
        (zx > 0, {"inputs": {zx: (float("nan"), 1)}}, "nan is not a bound of a range"),
        (za, {"inputs": {za: (0, 1)}}, "the constant a is a Bool and has no range"),
        (zx + 1, {}, "`x + 1` is a value of sort Real, not a rule"),
        (True, {}, "`True` is a Python bool, not a z3 expression"),
        (0.5, {}, "`0.5` is a Python float, not a z3 expression"),
        ("x > 0", {}, "`x > 0` is a Python str, not a z3 expression"),
        ([], {}, "there are no rules"),
    ],
    ids=str,
)
def test_what_rules_cannot_say_in_z3_is_refused(
    rules: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        from_z3(rules, **options)
    assert message in caught.value.reason


def test_a_refusal_shows_the_rule() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        from_z3([zx > 0, z3.Or(zx * zy > 0, zx < 0)])
    assert str(caught.value).endswith("\n    Or(x*y > 0, x < 0)")
