"""Diagnosis: contradictions, superfluous rules, ranges, fixed outputs, uncovered inputs and shapes, checked with z3."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations

import pytest
import z3
from corpus import CASES, Case, by_name
from hypothesis import given, settings
from oracle import meaning, numeral_z3, proves
from strategies import VARIABLES, formulas

from multiplexnet.compiler.explanation import diagnose
from multiplexnet.compiler.explanation.covered import is_covered
from multiplexnet.compiler.explanation.diagnose import (
    Explanation,
    OutputRange,
    TermShape,
    explain,
)
from multiplexnet.language.formula import (
    Formula,
    Rule,
    Specification,
    Variable,
    conjunction,
    negation,
)
from multiplexnet.rules import Rules
from multiplexnet.smt.questions import constant_z3, input_range_z3, satisfiable

SATISFIABLE = [case for case in CASES if case.satisfiable]
INFINITE = None


@cache
def explained(text: str) -> Explanation:
    return Rules(text).explain()


def lines(rules: tuple[Rule, ...]) -> list[int | None]:
    return [rule.line for rule in rules]


# --- contradictions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.satisfiable], ids=lambda case: case.name
)
def test_a_contradiction_is_a_smallest_set_of_rules(case: Case) -> None:
    found = explained(case.text)
    rules = found.specification.rules
    variables = found.specification.variables
    assert found.compiled is None
    assert found.problem is not None
    assert (
        satisfiable(conjunction(r.formula for r in found.contradiction), variables)
        is None
    )
    for few in combinations(rules, len(found.contradiction) - 1):
        assert satisfiable(conjunction(r.formula for r in few), variables) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 1\ny >= 0\nx < 0", [1, 3]),
        ("x + y >= 3\nx <= 1\nz >= 0\ny < 2", [1, 2, 4]),
        ("a: real\n\n# nothing\na >= 2 and a <= 1\na >= 0", [4]),
        ("x <= 1\nx <= 2\nx >= 5\nx >= 6\nx == 7 or y > 0\ny < 0", [1, 3]),
        ("n: int[0, 9]\nm: int[0, 9]\nn >= 5\n2*n == 5\nm >= 1", [4]),
        ("x >= 1 or y >= 1\nx <= 0\nx + y <= 5\ny <= 0", [1, 2, 4]),
    ],
)
def test_the_contradicting_lines_are_named(text: str, expected: list[int]) -> None:
    found = explained(text)
    assert lines(found.contradiction) == expected
    for rule in found.contradiction:
        assert f"line {rule.line}: {rule.text}" in str(found.problem)


def test_a_contradiction_has_no_ranges() -> None:
    found = explained("x > 1\nx < 0")
    assert (
        found.ranges,
        found.fixed,
        found.implied,
        found.always_true,
        found.shapes,
    ) == (
        (),
        (),
        (),
        (),
        (),
    )


# --- superfluous rules ----------------------------------------------------------------------------------------------


def test_rules_that_say_nothing_are_named() -> None:
    found = explained("x >= 0 or x <= 1\nx >= 3\n1 <= 2\nabs(x) >= 0")
    assert lines(found.always_true) == [1, 3, 4]
    assert found.implied == ()


def test_rules_that_follow_from_the_others_are_named() -> None:
    found = explained("x >= 2\nx >= 1\ny >= x\ny >= 2\nz >= 0")
    assert lines(found.implied) == [2, 4]
    assert found.always_true == ()


def test_each_of_two_equal_rules_follows_from_the_other() -> None:
    assert lines(explained("x >= 2\ny >= 0\n2*x >= 4").implied) == [1, 3]


def test_domains_and_ranges_count() -> None:
    found = explained(
        "n: int[0, 9]; u: input[0, 1]; x: real\nn <= 9\nu >= 0\nx >= u\nx >= 0\n2*n >= 3\nn >= 2"
    )
    assert lines(found.always_true) == [2, 3]
    assert lines(found.implied) == [5, 6, 7]


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_what_is_superfluous_can_be_dropped_and_nothing_else(case: Case) -> None:
    found = explained(case.text)
    rules, variables = found.specification.rules, found.specification.variables
    for i, rule in enumerate(rules):
        rest = conjunction(r.formula for j, r in enumerate(rules) if j != i)
        follows = (
            satisfiable(conjunction([rest, negation(rule.formula)]), variables) is None
        )
        assert (rule in found.implied or rule in found.always_true) == follows


# --- ranges ---------------------------------------------------------------------------------------------------------


def assert_range(found: OutputRange, specification: Specification) -> None:
    """The bounds hold, they are attained or approached as said, and without bound means beyond every number."""
    allowed = meaning(specification)
    x = constant_z3(found.variable)
    value = (
        z3.If(x, z3.RealVal(1), z3.RealVal(0))
        if z3.is_bool(x)
        else z3.ToReal(x)
        if x.is_int()
        else x
    )
    for bound, attained, sign in (
        (found.lower, found.lower_attained, -1),
        (found.upper, found.upper_attained, 1),
    ):
        if bound is None:
            assert not attained
            assert not proves(z3.Implies(allowed, sign * value <= 10**9))
            continue
        end = z3.RealVal(str(sign * bound))
        assert proves(z3.Implies(allowed, sign * value <= end))
        assert proves(z3.Implies(allowed, sign * value != end)) is not attained
        assert not proves(
            z3.Implies(allowed, sign * value <= end - z3.RealVal("1/1000000000"))
        )


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_ranges_are_exact(case: Case) -> None:
    found = explained(case.text)
    assert [r.variable for r in found.ranges] == list(found.specification.outputs)
    for r in found.ranges[:6]:
        assert_range(r, found.specification)
    if case.bounded and not found.specification.inputs:
        assert all(r.lower is not None and r.upper is not None for r in found.ranges)


@given(formulas(max_leaves=4))
@settings(max_examples=15)
def test_ranges_of_random_formulas_are_exact(formula: Formula) -> None:
    specification = Specification(VARIABLES, (Rule(formula, "…"),))
    found = explain(specification)
    for r in found.ranges:
        assert_range(r, specification)
    assert (found.contradiction == ()) == (satisfiable(formula, VARIABLES) is not None)


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("0 <= x < 1", (0, True), (1, False)),
        ("x > 2", (2, False), (INFINITE, False)),
        ("x <= 1/3 or x == 5", (INFINITE, False), (5, True)),
        ("x: real\ny: real\ny >= 0", (INFINITE, False), (INFINITE, False)),
        (
            "x: real; y: real\nx < y; y < 1; x >= -2*y",
            (Fraction(-2), False),
            (1, False),
        ),
        ("x: int[0, 9]\nx > 2.5; x != 9", (3, True), (8, True)),
        ("x: bool\nx or not x", (0, True), (1, True)),
        ('x: {"red", "green", "blue"}\nx != "red"', (1, True), (2, True)),
        ("x: real; u: input[1, 2]\n0 <= x <= u", (0, True), (2, True)),
        ("x: real; u: input\n0 <= x <= u", (0, True), (INFINITE, False)),
        (
            "x: real; y: real; h: function\n0 <= x; x <= h(y)",
            (0, True),
            (INFINITE, False),
        ),
    ],
)
def test_ranges_tell_open_ends_from_closed_ones(
    text: str, lower: tuple[Fraction | None, bool], upper: tuple[Fraction | None, bool]
) -> None:
    r = explained(text).ranges[0]
    assert (r.lower, r.lower_attained) == lower
    assert (r.upper, r.upper_attained) == upper


def test_outputs_with_one_value_are_fixed() -> None:
    found = explained(
        "x <= y; y <= x; x + y == 1; z >= x; n: int[0, 4]; w: real; z: real; x: real; y: real\n2*n == 6"
    )
    assert {v.name: value for v, value in found.fixed} == {
        "x": Fraction(1, 2),
        "y": Fraction(1, 2),
        "n": 3,
    }


# --- inputs ---------------------------------------------------------------------------------------------------------


def assert_uncovered(found: Explanation) -> dict[str, Fraction]:
    """The counterexample lies in the range of the inputs, and z3 proves that no output obeys there."""
    assert found.uncovered_input is not None
    inputs = dict(found.uncovered_input)
    at = [constant_z3(v) == numeral_z3(v, value) for v, value in inputs.items()]
    assert proves(z3.Implies(z3.And(at), z3.And(input_range_z3(inputs))))
    assert proves(z3.Implies(z3.And(at), z3.Not(meaning(found.specification))))
    return {v.name: value for v, value in inputs.items()}


@pytest.mark.parametrize(
    "text",
    [
        "x: real; u: input[0, 5]\nx >= u; x <= 3",
        "x: real; u: input\n0 <= x <= u",
        "x: real; y: real; u: input\nx >= 0; y >= 0; x + y == u",
        "n: int[0, 3]; u: input[0, 1]\nn >= 4*u + 0.5",
        "x: real; u: input; v: input\nx >= u; x <= v; x >= 0 or v >= 5",
        "x: real; u: input\nx >= 1; u >= 1",
        "x: real; u: input[0, 1]\n(x >= 2 and u < 0.5) or (x <= 1 and u > 0.5)",
    ],
)
def test_an_input_without_output_is_found(text: str) -> None:
    assert_uncovered(explained(text))


@pytest.mark.parametrize(
    "text",
    [
        "x: real; u: input[0, 5]\nx >= u; x <= 5",
        "x: real; u: input\nx >= u or x <= -u",
        "x: real; u: input[0, 1]\n(x >= 2 and u < 0.5) or (x <= 1 and u >= 0.5)",
        "x: real; u: input; h: function\nx >= h(u)",
        "x: real; u: input\nx >= 1",
        "x: real\nx >= 1",
    ],
)
def test_where_every_input_has_an_output_none_is_reported(text: str) -> None:
    assert explained(text).uncovered_input is None


def test_discrete_inputs_keep_to_their_domain() -> None:
    x, n, on = z3.Real("x"), z3.Int("n"), z3.Bool("on")
    covered = Rules.from_z3([x >= n, x <= 3], outputs=[x], inputs={n: (0, 3)}).explain()
    assert covered.uncovered_input is None
    assert covered.ranges[0].lower == 0
    assert covered.ranges[0].upper == 3
    switched = Rules.from_z3(
        [z3.Implies(on, x >= 1), z3.Implies(z3.Not(on), x <= 0)],
        outputs=[x],
        inputs=[on],
    )
    assert [len(block.terms) for block in switched.compile().blocks] == [2]
    blocked = Rules.from_z3(
        [z3.Implies(on, x >= 1), z3.Implies(on, x <= 0)], outputs=[x], inputs=[on]
    ).explain()
    assert assert_uncovered(blocked) == {"on": 1}


@pytest.mark.parametrize(
    "case", [c for c in SATISFIABLE if "input" in c.text], ids=lambda case: case.name
)
def test_inputs_of_the_corpus_are_covered_or_there_is_a_counterexample(
    case: Case,
) -> None:
    found = explained(case.text)
    if found.uncovered_input is not None:
        assert_uncovered(found)
    else:
        outputs = [constant_z3(v) for v in found.specification.outputs]
        allowed = z3.Exists(outputs, meaning(found.specification))
        assert proves(
            z3.Implies(z3.And(input_range_z3(found.specification.inputs)), allowed)
        )


def written(text: str) -> Formula:
    return conjunction(rule.formula for rule in Rules(text).specification.rules)


DENSE = """
x: real[3]; u: input[0.8, 1.2][4]
all(0 <= v <= 2 for v in x); 0 <= sum(u) - sum(x) <= 2
-3 <= 2*x[0] - x[1] + x[2] - u[0] + 2*u[1] - u[3] <= 3
-3 <= x[0] + x[1] - 3*x[2] + u[0] - u[1] + 2*u[2] <= 3
"""


@pytest.mark.parametrize(
    "text",
    [
        DENSE,
        "x: real; u: input[0, 5]\n0 <= x <= u",
        "x: real[2]; u: input[1, 5]\n0 < x[0]; 0 < x[1]; x[0] + x[1] == u",
        "x: real; u: input[0, 5]\nx == u",
        "x: real; u: input[0, 5]\n(x >= 1 and x <= 0.5*u) or (x >= u and x <= 5)",
    ],
)
def test_outputs_that_follow_the_inputs_prove_that_all_are_covered(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """z3, which takes minutes for dense sets with more inputs, is not asked."""
    assert is_covered(written(text))
    monkeypatch.setattr(diagnose, "_is_sure", None)
    assert Rules(text).explain().uncovered_input is None


@pytest.mark.parametrize(
    "text",
    [
        DENSE.replace("<= 3", "<= 0"),
        "x: real; u: input[0, 5]\n0 < x <= u",
        "x: real; u: input[0, 5]\nu <= x <= 4",
        "x: real; u: input\n0 <= x; x <= u",
        "x: real; u: input[0, 5]\nx >= u; u >= 1",
        "x: real; u: input[0, 1]\nx == u; u == 1",
        "n: int[0, 5]; u: input[0, 5]\nn == u",
        "n: int[0, 5]; u: input[0, 4]\nu <= n <= u + 0.5",
        "x: real; u: input[0, 1]; h: function\n0 <= x <= h(u)",
        "x: real; u: input[0, 3]\nx < (-2e398) * u",
    ],
)
def test_what_is_not_covered_or_of_another_kind_is_not_proved(text: str) -> None:
    assert not is_covered(written(text))


# --- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("x: real; y: real\nx + y == 1\nx >= 0; y >= 0", [TermShape(1, True)]),
        ("x <= y; y <= x", [TermShape(1, False)]),
        ("a == 0 or 200 < a < 400", [TermShape(0, True), TermShape(1, True)]),
        (
            "on: bool; x: real\n0 <= x <= 1 if on else x >= 5",
            [TermShape(1, False), TermShape(1, True)],
        ),
        ("x: real; u: input\n0 <= x <= u", [TermShape(1, True)]),
        ("x: real[3]\nsum(x) == 1; x[0] == x[1]; x[0] >= 0", [TermShape(1, False)]),
        ("n: int[0, 4]\nn == 2", [TermShape(0, True)]),
    ],
)
def test_shapes_give_dimension_and_boundedness(
    text: str, shapes: list[TermShape]
) -> None:
    assert list(explained(text).shapes[0]) == shapes


@pytest.mark.parametrize(
    "case",
    [c for c in SATISFIABLE if c.bounded is not None],
    ids=lambda case: case.name,
)
def test_the_corpus_knows_what_is_bounded(case: Case) -> None:
    found = explained(case.text)
    assert (
        all(shape.bounded for block in found.shapes for shape in block) == case.bounded
    )


# --- the whole ------------------------------------------------------------------------------------------------------


def test_rules_over_the_budget_still_get_their_ranges() -> None:
    apart = "x: real[6]\nall(abs(x[i] - x[j]) >= 1 for i in range(6) for j in range(i))"
    found = Rules(f"{apart}\nall(0 <= v <= 9 for v in x)\nx[0] <= 20").explain(
        max_terms=20
    )
    assert found.compiled is None
    assert "more than 20 terms" in str(found.problem)
    assert all(r.lower == 0 and r.upper == 9 for r in found.ranges)
    assert lines(found.implied) == [4]
    assert found.shapes == ()


def test_an_explanation_carries_its_terms_and_time() -> None:
    found = explained(by_name("design_actuator").text)
    assert found.compiled is not None
    assert (
        found.compiled.blocks == Rules(by_name("design_actuator").text).compile().blocks
    )
    assert found.seconds >= found.compiled.seconds > 0
    assert found.problem is None


def test_a_variable_in_no_rule_is_free() -> None:
    found = explained("x: real; y: real\nx == 1")
    assert found.ranges[1] == OutputRange(Variable("y", 1), None, False, None, False)


# --- words ----------------------------------------------------------------------------------------------------------


def test_an_explanation_prints_as_a_short_report() -> None:
    text = """
        a: real; n: {"low", "high"}; limit: input[250, 1000]
        a == 0 or 200 < a <= limit
        n == "low"
        a >= -1
    """
    *report, proof = str(explained(text)).splitlines()
    assert report == [
        "2 outputs, 1 input, 3 rules",
        "  a: real",
        '  n: {"low", "high"}',
        "  limit: input[250, 1000]",
        "2 blocks",
        "  a: 2 terms",
        "    0: a == 0 (dimension 0, bounded)",
        "    1: a > 200 and a <= limit (dimension 1, bounded)",
        "  n: 1 term",
        '    0: n == "low" (dimension 0, bounded)',
        "ranges",
        "  a: [0, 1000]",
        "  n: = low",
        "n is always low",
        "follows from the other rules: line 5: a >= -1",
    ]
    assert proof.startswith(
        "complete: the terms are exactly the outputs that obey the rules"
    )


def test_a_printed_contradiction_names_its_rules() -> None:
    report = str(explained("x >= 1\nx <= 0")).splitlines()
    assert report[-3:] == [
        "no output obeys the rules: these rules contradict each other (change any one of them):",
        "  line 1: x >= 1",
        "  line 2: x <= 0",
    ]


def test_a_printed_explanation_stays_short() -> None:
    report = str(explained("x: real[100]\nall(x[i] >= i for i in range(100))"))
    assert len(report.splitlines()) < 100
    assert "  … and 80 more" in report.splitlines()
