"""The rule language: what every construct means, what is said of bad text, and the way back to text."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from corpus import CASES, FUNCTIONS, Case, by_name
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from strategies import VARIABLES, formulas, points

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import (
    FALSE,
    TRUE,
    And,
    Apply,
    Atom,
    Bool,
    Category,
    Formula,
    Iff,
    Int,
    Ite,
    Linear,
    Max,
    Not,
    Or,
    Real,
    Rule,
    Specification,
    Variable,
    holds,
)
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import (
    declaration_text,
    formula_text,
    linear_text,
    number_text,
    specification_text,
)

X, Y, Z = (Linear.of(Variable(name, i)) for i, name in enumerate("xyz"))
DECLARED = """\
x: real; y: real; v: real[3]; n: int[0, 9]; on: bool; off: bool
c: {"red", "green"}; e: {"red", "green"}; d: {"a", "b"}; u: input; f: function
"""


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "multiplexnet.language.budget.PARTS", 20_000
    )  # the limit is met sooner


def formula(text: str) -> Formula:
    """The formula of a rule over x, y and z."""
    return parse(f"x: real; y: real; z: real\n{text}").formula


def true_at(specification: Specification, point: Mapping[str, int | Fraction]) -> bool:
    assert {variable.name for variable in specification.variables} == set(point)
    return holds(
        specification.formula,
        {v: Fraction(point[v.name]) for v in specification.variables},
        FUNCTIONS,
    )


def random_point(
    specification: Specification, draw: random.Random
) -> dict[str, int | Fraction]:
    def number(variable: Variable) -> int | Fraction:
        if isinstance(variable.domain, Real):
            return Fraction(
                draw.randint(-40, 40), draw.choice([1, 2, 4, 10, 3])
            ) * draw.choice([1, 1, 10, 100])
        return draw.choice(variable.domain.values)

    return {variable.name: number(variable) for variable in specification.variables}


# --- declarations and names -----------------------------------------------------------------------------------------


def test_every_declaration() -> None:
    specification = parse(
        'x: real\nw: real[2]; n: int[-1, 9]\non: bool\ncolour: {"red", "green"}\n'
        "u: input; limit: input[0, 12.5]\nf: function\nk: int[0, 1][2]; t: bool[1]\n"
        "s: {'a'}[2]; q: input[1, 2][1]; p: input[1]"
    )
    assert [(v.name, v.domain, v.role) for v in specification.variables] == [
        ("x", Real(), "output"),
        ("w[0]", Real(), "output"),
        ("w[1]", Real(), "output"),
        ("n", Int(-1, 9), "output"),
        ("on", Bool(), "output"),
        ("colour", Category(("red", "green")), "output"),
        ("u", Real(), "input"),
        ("limit", Real(Fraction(0), Fraction(25, 2)), "input"),
        ("k[0]", Int(0, 1), "output"),
        ("k[1]", Int(0, 1), "output"),
        ("t[0]", Bool(), "output"),
        ("s[0]", Category(("a",)), "output"),
        ("s[1]", Category(("a",)), "output"),
        ("q[0]", Real(Fraction(1), Fraction(2)), "input"),
        ("p[0]", Real(), "input"),
    ]
    assert [v.index for v in specification.variables] == list(range(15))
    assert specification.functions == ("f",)
    assert specification.rules == ()


def test_without_declarations_names_are_real_outputs_in_order_of_appearance() -> None:
    specification = parse(
        "b + a >= 2\nx[2] <= (1 if c > x[0] else d)\nall(a > i for i in range(2))"
    )
    assert [v.name for v in specification.variables] == [
        "b",
        "a",
        "x[0]",
        "x[1]",
        "x[2]",
        "c",
        "d",
    ]
    assert all(
        v.domain == Real() and v.role == "output" for v in specification.variables
    )


def test_declarations_may_follow_their_use() -> None:
    assert (
        parse("x >= n\nn: int[0, 1]; x: real").formula
        == parse("n: int[0, 1]; x: real\nx >= n").formula
    )


def test_rules_keep_their_text_and_line() -> None:
    text = "# rules\nx >= 2  # at least\n\n  y <= (1 +   # one\n     x) ; x<3\n\tz == 0"
    specification = parse(text)
    assert specification.text == text
    assert [(rule.line, rule.text) for rule in specification.rules] == [
        (2, "x >= 2"),
        (4, "y <= (1 +\n     x)"),
        (5, "x<3"),
        (6, "z == 0"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x >= 2\ny <= 3",
        "x >= 2\r\ny <= 3\r\n",
        "x >= 2\ry <= 3",
        "\ufeffx >= 2; y <= 3;",
        "    x >= 2\n  y <= 3",
        "\tx >= 2\n        y <= 3\n",
        "\n\n  x >= (\n2)\n;;  y \\\n <= 3",
        "x >= 2 # it's; (\n#'\ny <= 3",
    ],
)
def test_layout_means_nothing(text: str) -> None:
    specification = parse(text)
    assert [rule.formula for rule in specification.rules] == [
        Atom(-X + 2, "<="),
        Atom(Y - 3, "<="),
    ]


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.1", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        (".5", Fraction(1, 2)),
        ("2.", Fraction(2)),
        ("1_000.2_5", Fraction(4001, 4)),
        ("0x10", Fraction(16)),
        ("1/3", Fraction(1, 3)),
        ("-(2 - 0.5)*4/3", Fraction(-2)),
        ("+1.5", Fraction(3, 2)),
        ("1E400", Fraction(10) ** 400),
        ("1e-400", Fraction(1, 10**400)),
        ("0.30000000000000000001", Fraction(30000000000000000001, 10**20)),
        ("len([1, 2, 3])", Fraction(3)),
        ("sum([])", Fraction(0)),
        ("max(1, 2.5, -3)", Fraction(5, 2)),
        ("min([1, 2])", Fraction(1)),
        ("abs(-2)", Fraction(2)),
        ("(1 if 2 > 1 else 3)", Fraction(1)),
    ],
)
def test_numbers_are_exact(text: str, number: Fraction) -> None:
    assert formula(f"x == {text}") == Atom(X - number, "==")


@pytest.mark.parametrize(
    ("text", "linear"),
    [
        ("x + 2*y - z*3", X + Y * 2 - Z * 3),
        ("(x + y)*0.5 - (x - y)/2", Y),
        ("-x - -y", Y - X),
        ("sum([x, y, 2]) + sum(i*x for i in range(4))", X * 7 + Y + 2),
        ("sum(a*b for a in (x, y) for b in [1, 2] if b != 1)", X * 2 + Y * 2),
        ("max(x, y)", Linear.of(Max((X, Y)))),
        ("min(x, y)", -Linear.of(Max((-Y, -X)))),
        ("abs(x - y)", Linear.of(Max((-X + Y, X - Y)))),
        ("x if y > 0 else 2", Linear.of(Ite(Atom(-Y, "<"), X, Linear.number(2)))),
    ],
)
def test_linear_expressions(text: str, linear: Linear) -> None:
    made = formula(f"({text}) <= 0")
    assert isinstance(made, Atom)
    symbols = dict(made.linear.summands)
    assert made.linear == linear or {_unordered(s): c for s, c in symbols.items()} == {
        _unordered(s): c for s, c in linear.summands
    }


def _unordered(symbol: object) -> object:
    return frozenset(symbol.arguments) if isinstance(symbol, Max) else symbol


# --- truth ----------------------------------------------------------------------------------------------------------

A, B = Atom(-X, "<"), Atom(Y - 1, "<=")  # x > 0, y <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x <= 2", Atom(X - 2, "<=")),
        ("x < y", Atom(X - Y, "<")),
        ("x >= 2", Atom(-X + 2, "<=")),
        ("2 > x", Atom(X - 2, "<")),
        ("x == y", Atom(X - Y, "==")),
        ("x != 2", Not(Atom(X - 2, "=="))),
        ("0 < x <= y < 1", And((Atom(-X, "<"), Atom(X - Y, "<="), Atom(Y - 1, "<")))),
        ("x > 0 and y <= 1", And((A, B))),
        ("x > 0 or y <= 1", Or((A, B))),
        ("not x > 0", Atom(X, "<=")),
        ("not (x > 0 and y <= 1)", Not(And((A, B)))),
        ("implies(x > 0, y <= 1)", Or((Atom(X, "<="), B))),
        ("iff(x > 0, y <= 1)", Iff(A, B)),
        ("(x > 0) == (y <= 1)", Iff(A, B)),
        ("xor(x > 0, y <= 1)", Not(Iff(A, B))),
        ("(x > 0) != (y <= 1)", Not(Iff(A, B))),
        (
            "y <= 1 if x > 0 else y == 0",
            Or((And((A, B)), And((Atom(X, "<="), Atom(Y, "=="))))),
        ),
        ("x in {1, y}", Or((Atom(X - 1, "=="), Atom(X - Y, "==")))),
        ("x not in [1, 2]", Not(Or((Atom(X - 1, "=="), Atom(X - 2, "=="))))),
        ("x in range(1, 6, 4)", Or((Atom(X - 1, "=="), Atom(X - 5, "==")))),
        ("all([x > 0, y <= 1])", And((A, B))),
        ("any(v > 0 for v in (x, y))", Or((A, Atom(-Y, "<")))),
        ("all(x > i for i in range(0))", TRUE),
        ("any([])", FALSE),
        ("all(x > i for i in range(3) if i != 1 if i < 2)", A),
        (
            "all(x >= a*b for a, b in [(1, 2), (3, 4)])",
            And((Atom(-X + 2, "<="), Atom(-X + 12, "<="))),
        ),
        (
            "all(x >= b for a in [[1, 2], [3]] for b in a if b > 1)",
            And((Atom(-X + 2, "<="), Atom(-X + 3, "<="))),
        ),
        ("True", TRUE),
        ("x > 0 and not False", A),
        ("1 < 2 < 3", TRUE),
        ("x + 1 == x", FALSE),
        ("(x > 0) == True", A),
        ('all(x > 0 for s in ["a", "b"] if s == "a")', A),
    ],
)
def test_formulas(text: str, expected: Formula) -> None:
    assert formula(text) == expected


def test_comprehensions_decide_what_depends_on_their_variable_only() -> None:
    lazy = "v: real[3]\nall(v[i] <= (v[i + 1] if i < 2 else 9) for i in range(3))"
    plain = "v: real[3]\nv[0] <= v[1] and v[1] <= v[2] and v[2] <= 9"
    assert parse(lazy).formula == parse(plain).formula
    assert (
        parse("v: real[2]\nall(i == 1 or v[i + 1] > 0 for i in range(2))").formula
        == parse("v: real[2]\nv[1] > 0").formula
    )


def test_vectors() -> None:
    specification = parse(
        "v: real[4]\nv[-1] >= max(v[:2])\nsum(v[::2]) == len(v)\nmin(v[1:3]) > v[0]\nv[0] in v[1:]"
    )
    x0, x1, x2, x3 = map(Linear.of, specification.variables)
    first = specification.rules[0].formula
    assert isinstance(first, Atom)
    largest = next(
        symbol for symbol, _ in first.linear.summands if isinstance(symbol, Max)
    )
    assert set(largest.arguments) == {x0, x1}
    assert specification.rules[1].formula == Atom(x0 + x2 - 4, "==")
    assert specification.rules[3].formula == Or(
        tuple(Atom(x0 - x, "==") for x in (x1, x2, x3))
    )


def test_booleans_are_truth_values_and_count_in_sums() -> None:
    specification = parse(
        "a: bool; b: bool; t: bool[2]\nimplies(a, not b)\na + 2*b <= 2\nsum(t) == 1\na == b\nb == False"
    )
    a, b, t0, t1 = map(Linear.of, specification.variables)
    assert [rule.formula for rule in specification.rules] == [
        Or((Not(Atom(a - 1, "==")), Not(Atom(b - 1, "==")))),
        Atom(a + b * 2 - 2, "<="),
        Atom(t0 + t1 - 1, "=="),
        Iff(Atom(a - 1, "=="), Atom(b - 1, "==")),
        Not(Atom(b - 1, "==")),
    ]


def test_categories_are_positions_of_labels() -> None:
    specification = parse(
        'c: {"r", "g", "b"}; d: {"r", "g", "b"}\nc == "g"\n"b" != c\nc in {"r", "b"}\nc == d\nc != d'
    )
    c, d = map(Linear.of, specification.variables)
    assert [rule.formula for rule in specification.rules] == [
        Atom(c - 1, "=="),
        Not(Atom(c - 2, "==")),
        Or((Atom(c, "=="), Atom(c - 2, "=="))),
        Atom(c - d, "=="),
        Not(Atom(c - d, "==")),
    ]


def test_opaque_functions_take_linear_arguments() -> None:
    specification = parse(
        "x: real; y: real; on: bool; f: function\ny > 2*f(x + 1, on) - 1"
    )
    x, y, on = map(Linear.of, specification.variables)
    assert specification.formula == Atom(
        Linear.of(Apply("f", (x + 1, on))) * 2 - 1 - y, "<"
    )


# --- what is said of bad text ---------------------------------------------------------------------------------------

BAD: list[tuple[str, int, str, *tuple[str, ...]]] = [
    # names
    ("x >= offf", 6, "unknown name `offf`", "did you mean `off`?", "declare it"),
    ("y > foo(x)", 5, "unknown function `foo`", "`foo: function`"),
    ("maxx(x, y) < 1", 1, "unknown function `maxx`", "did you mean `max`?"),
    ("Implies(on, off)", 1, "did you mean `implies`?"),
    ("sum > 1", 1, "`sum` is a function: call it"),
    ("x(y) > 1", 1, "`x` is a variable and cannot be called"),
    # arithmetic that is not linear
    ("x*y <= 1", 1, "product of variables `x*y`", "linear"),
    ("1 + 2*(x - 1)*max(x, y) <= 1", 5, "product of variables `2*(x - 1)*max(x, y)`"),
    ("x/y <= 1", 1, "division by a variable `x/y`", "linear"),
    ("x**3 <= 1", 1, "a power", "squares"),
    ("x^2 <= 1", 1, "`^`", "xor(p, q)"),
    ("x % 2 == 0", 1, "`%`"),
    ("x // 2 == y", 1, "`floor` beside a number that need not be whole", "n == floor("),
    ("x/0 > 1", 1, "division by zero"),
    ("x/(1 - 1) > 1", 1, "division by zero"),
    ("x > 1e999999999", 5, "more than 2,000 digits"),
    ("x > " + "9" * 5000, 1, "digits"),
    # calls
    ("implies(on)", 1, "in `implies`: 1 argument", "write `implies(p, q)`"),
    ("iff(on, off, on)", 1, "3 arguments", "write `iff(p, q)`"),
    ("sum(x, y) < 1", 1, "2 arguments", "`sum([a, b])`"),
    ("sum(x) < 1", 5, "in `sum`: a number where a vector or list is needed"),
    ("min() < 1", 1, "0 arguments"),
    ("min([]) < 1", 1, "no numbers to choose from"),
    ("max(on, x) < 1", 5, "in `max`: a truth value where a number is needed"),
    ("abs(v) < 1", 5, "in `abs`: a vector of 3 where one number is needed"),
    ("len(x) > 1", 5, "in `len`: a number where a vector"),
    ("x in range(y)", 12, "in `range`: a constant whole number"),
    ("x in range(1, 2, 0)", 18, "step of zero"),
    ("f() > 1", 1, "`f` with 0 arguments"),
    ("f(x) > f(x, y)", 8, "`f` with 2 arguments: give 1 as before"),
    ("f(v) > 1", 3, "a vector of 3 where one number is needed"),
    ("f > 1", 1, "`f` is a function: call it"),
    ("f(x=1) > 1", 1, "`x` in a call", "without names"),
    ("f(*v) > 1", 3, "`*` before a list"),
    ("f(**v) > 1", 1, "`**` in a call"),
    # kinds
    ("x", 1, "a number where a truth value is needed", "compare it"),
    ("not x + 1", 5, "a number where a truth value is needed"),
    ("x > 1 or y", 10, "a number where a truth value is needed"),
    ("implies(x, on)", 9, "in `implies`: a number where a truth value is needed"),
    ("(x > 1) + 1 < 2", 2, "a truth value where a number is needed", "`1 if p else 0`"),
    ("on == 1", 1, "a truth value and a number cannot be compared", "`p` or `not p`"),
    ("on < off", 1, "truth values have no order"),
    ("on == off == on", 1, "chained comparison"),
    ("x < 1 == on", 10, "chained comparison", "brackets"),
    ("x > 1 if on else 2", 1, "both have to be numbers, or both truth values"),
    ("v", 1, "a vector of 3 where a truth value is needed", "`all(…)`"),
    ("v > 1", 1, "a vector of 3 where a truth value is needed", "`all(x >= 0)`"),
    ("v + 1 > 2", 1, "a vector of 3 where a truth value is needed", "`all(…)`"),
    ("f(v) > 2", 3, "a vector of 3 where one number is needed", "`x[0]`"),
    ("x in 3", 1, "write a set"),
    ("x in {}", 6, "empty `{}`"),
    ("x > 1, y > 1", 1, "a comma between rules"),
    # vectors
    ("v[3] > 1", 1, "index 3 is out of range", "0 to 2"),
    ("v[0.5] > 1", 3, "a constant whole number"),
    ("v[x] > 1", 3, "a constant whole number"),
    ("all(v[::0])", 5, "step of zero"),
    ("x[0] > 1", 1, "a number where a vector"),
    ("all(v[i] > i for i in range(4))", 5, "index 3 is out of range"),
    # categories
    (
        'c == "grean"',
        1,
        '`c` has no label "grean"',
        "did you mean `green`?",
        '"red", "green"',
    ),
    ('c in {"red", "blue"}', 1, '`c` has no label "blue"'),
    ("c == d", 1, "`c` and `d` have different labels"),
    ('c < "red"', 1, "labels have no order"),
    ("c <= e", 1, "labels have no order"),
    ("x + c > 2", 5, "the category `c` where a number is needed"),
    ("c == 1", 1, "the category `c` and a number cannot be compared"),
    ('x == "red"', 1, 'a number and the label "red" cannot be compared'),
    ("c", 1, "the category `c` where a truth value is needed"),
    # comprehensions
    ("all(i > 1 for i in range(3) if x > 1)", 32, "this filter depends on a variable"),
    ("sum(x for i in range(1000000000000)) > 1", 16, "a range of more than"),
    (
        "sum(x for i in v for j in range(90000)) > 1",
        27,
        "unfold to more than 2",
        "shorter ranges",
    ),
    ("all(x > 1 for sum in v)", 15, "`sum` is a word of the language"),
    ("all(i > j for i, j in [(1, 2, 3)])", 15, "2 names for 3 values"),
    ("all(x > a for a in [abs(x)])", 15, "a comprehension runs over"),
    ("all(x > 1 async for i in v)", 4, "`async`"),
    # signs of other languages
    ("x = 3", 1, "`=` assigns", "write `==`"),
    ("on and x = 3", 10, "`=` is not part of the language", "write `==`"),
    ("on && off", 4, "write `and`"),
    ("on || off", 4, "write `or`"),
    ("!on", 1, "write `not`"),
    ("on => off", 4, "write `implies(p, q)`"),
    ("on -> off", 4, "write `implies(p, q)`"),
    ("on <=> off", 4, "write `iff(p, q)`"),
    ("x ≤ 3", 3, "write `<=`"),
    ("x =< 3", 3, "write `<=`"),
    ("on ∧ off", 4, "write `and`"),
    ("on & off", 1, "write `and`"),
    ("on | off", 1, "write `or`"),
    ("~on", 1, "write `not`"),
    ("x is y", 1, "write `==`"),
    ("if on: off", 1, "write `implies(p, q)`"),
    ("if on then off", 1, "write `implies(p, q)`"),
    ("for i in v: i > 1", 1, "write `all("),
    # code
    ("__import__('os')", 1, "unknown function `__import__`"),
    ("__import__('os').system('true')", 1, "only functions can be called"),
    ("x.real > 1", 1, "attribute access"),
    ("lambda: x", 1, "a lambda", "never run"),
    ("f'{x}' == 1", 1, "an f-string", "never run"),
    ("(x := 3) > 1", 2, "`:=`"),
    ("import os", 1, "Python code", "never run"),
    ("def g(): pass", 1, "Python code", "never run"),
    ("await x", 1, "`await`"),
    ("[*v]", 2, "`*` before a list"),
    ("assert x > 1", 1, "write the rule alone"),
    ("x += 1", 1, "`=` assigns"),
    ("{1: x}", 1, "a dictionary"),
    ("3j > x", 1, "`3j` is not a number"),
    ("None", 1, "`None` is not a number"),
    # grammar
    ("x > (1", 5, "'(' was never closed"),
    ("x > 1)", 6, "unmatched ')'"),
    ("x >", 4, "cannot be read"),
    ("x 1", 3, "cannot be read"),
    ("x > 'a", 5, "unterminated string"),
    ("\tx >= foo", 7, "unknown name `foo`"),
    ("'é' == 'é' and foo", 16, "unknown name `foo`"),
    ("x > \0", 5, "NUL byte"),
    ("x > \ud800", 1, "characters that are not text"),
    # declarations
    ("x: real", 1, "`x` is declared twice"),
    ("f: real", 1, "`f` is declared twice"),
    ("z: foo", 4, "unknown type `foo`", "`int[0, 9]`"),
    ("z: reel", 4, "did you mean `real`?"),
    ("z: float", 4, "did you mean `real`?"),
    ("z: int", 4, "an `int` without a range", "`int[0, 9]`"),
    ("z: int[3]", 4, "an `int` without a range"),
    ("z: int[5, 1]", 8, "an empty range: 5 is greater than 1"),
    ("z: int[1, 2, 3]", 8, "a range has two ends"),
    ("z: int[0.5, 1]", 8, "a constant whole number"),
    ("z: int[0, x]", 11, "`x` where a constant number is needed"),
    ("z: input[3, 1]", 10, "an empty range"),
    ("z: real[0]", 9, "a vector of size 0"),
    ("z: real[2][3]", 12, "more than one size"),
    ("z: real[0, 1]", 9, "write others as a rule"),
    ("z: real[1000000000]", 4, "more than 200,000 variables"),
    ("z: function[2]", 4, "a function has no size"),
    ("z: {}", 4, "this is not a type"),
    ('z: {"a", "a"}', 10, 'the label "a" stands twice'),
    ("z: {1, 2}", 5, "labels are strings"),
    ("z: x > 1", 4, "this is not a type"),
    ("sum: real", 1, "`sum` is a word of the language"),
    ("real: real", 1, "`real` is a word of the language"),
    ("z[0]: real", 1, "a plain name is needed", "`x: real[3]`"),
    ("z, w: real", 1, "one name at a time"),
    ("z: real = 3", 11, "a value in a declaration"),
]


@pytest.mark.parametrize(
    ("text", "column", "fragments"),
    [(t, c, f) for t, c, *f in BAD],
    ids=[b[0][:30] for b in BAD],
)
def test_bad_text_is_explained(text: str, column: int, fragments: list[str]) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse(f"{DECLARED}{text}")
    error = caught.value
    assert (error.line, error.column) == (3, column)
    assert [fragment for fragment in fragments if fragment not in error.reason] == []
    if len(text) < 300:
        shown, caret = str(error).split("\n")[-2:]
        assert shown.strip() == text.replace("\t", " ").strip()
        assert caret.index("^") == column + 3


@pytest.mark.parametrize("text", ["", "   \n\t", "# nothing\n  # here", ";;\n;"])
def test_empty_text_is_explained(text: str) -> None:
    with pytest.raises(RuleSyntaxError, match="line 1, column 1: no rules"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("real > 1", "`real` is a word of the language"),
        ("x[i] > 1", "the size of `x` is not known"),
        ("x[-1] > 1", "the size of `x` is not known"),
        ("x[0] > 1 and x > 1", "a vector of 1"),
        ("x[1000000000] > 1", "more than 200,000 variables"),
        ("h(x) > 1", "unknown function `h`"),
    ],
)
def test_undeclared_text_is_explained(text: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError, match="line 1, column") as caught:
        parse(text)
    assert message in caught.value.reason


def test_an_error_in_a_continued_line_points_there() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse("x: real\n    x >= (1 +  # one\n   foo)\n")
    assert (caught.value.line, caught.value.column, caught.value.source) == (
        3,
        4,
        "   foo)",
    )


# --- size -----------------------------------------------------------------------------------------------------------

LARGE: dict[str, str] = {
    "parentheses": "(" * 10_000 + "x" + ")" * 10_000 + " > 1",
    "not": "not " * 10_000 + "x > 1",
    "minus": "-" * 10_000 + "x > 1",
    "sum": "x" + " + x" * 100_000 + " > 1",
    "index": "x" + "[0]" * 5_000 + " > 1",
    "abs": "abs(" * 40 + "x" + " - 1)" * 40 + " > 1",
    "if": "y == (" + "1 if x > 2 else " * 5_000 + "0)",
    "squares": "x: real\nall(a > x for a in [1e1000] " + "for a in [a*a] " * 60 + ")",
    "rows": "x: real\nall(len(a) > x for a in [[1]] " + "for a in [[a, a]] " * 60 + ")",
    "loops": "x: real\nall(x > 1 " + "for i in [1] " * 2_000 + ")",
    "nested loops": "x: real[300]\nall(x[0] > 1 for i in x for j in x for k in x if False)",
    "sums": "v: real[1000]\nall(2*s <= i for s in [sum(v)] for i in range(100000))",
    "unclosed": "x > (1\n" * 20_000,
    "quotes": '"' * 20_001,
}


@pytest.mark.parametrize("name", LARGE)
def test_text_that_asks_for_too_much_is_refused(name: str) -> None:
    with pytest.raises(RuleSyntaxError):
        parse(LARGE[name])


def test_parts_inside_one_another_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiplexnet.language.budget.PARTS", 1_000_000)
    with pytest.raises(RuleSyntaxError, match="inside one another"):
        parse(LARGE["abs"])


def test_long_texts_are_read() -> None:
    began = time.process_time()
    assert (
        len(parse("\n".join(f"x{i % 50} >= {i}" for i in range(10_000))).rules)
        == 10_000
    )
    assert parse("sum([" + "x, " * 10_000 + "]) <= 1").formula == Atom(
        X * 10_000 - 1, "<="
    )
    assert parse("x" + " + x" * 2_000 + " <= 1").formula == Atom(X * 2_001 - 1, "<=")
    assert parse("not " * 90 + "x <= 1").formula == Atom(X - 1, "<=")
    assert time.process_time() - began < 15


# --- nothing else escapes -------------------------------------------------------------------------------------------

WORDS = """
x y v n on c f i 0 1 2.5 1e3 ( ) [ ] { } , : ; == != <= < > = + - * / ** % and or not if else in for is lambda range sum
all any max min abs len implies xor "red" True real int input bool function # \\ ' . @ ~ & | := é
"""
PIECES = [*WORDS.split(), "\n", '"""', "\0"]


def readable(text: str) -> None:
    """Parse, or refuse with words and a place."""
    try:
        parse(text)
    except RuleSyntaxError as caught:
        error = caught
    else:
        return
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert error.line is not None
    assert error.column is not None
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1


@seed(1)
@settings(max_examples=300, deadline=None, database=None)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    readable(text)


@seed(2)
@settings(max_examples=400, deadline=None, database=None)
@given(
    st.booleans(),
    st.lists(st.sampled_from(PIECES), max_size=20),
    st.sampled_from(["", " "]),
)
def test_any_words_are_read_or_refused(
    declared: bool, words: list[str], space: str
) -> None:
    readable((DECLARED if declared else "") + space.join(words))


@seed(3)
@settings(max_examples=400, deadline=None, database=None)
@given(st.sampled_from(CASES), st.data())
def test_damaged_rules_are_read_or_refused(case: Case, data: st.DataObject) -> None:
    text = case.text
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 4))
        text = text[:at] + data.draw(st.sampled_from(["", *PIECES])) + text[at + cut :]
    readable(text)


# --- the way back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("0", "0"),
        ("-7", "-7"),
        ("1/8", "0.125"),
        ("-1/20", "-0.05"),
        ("1/3", "1/3"),
        ("-22/7", "-22/7"),
        ("1e30", "1e30"),
        ("-1.5e-30", "-15e-31"),
        ("12345678901234567890", "12345678901234567890"),
        ("100000", "100000"),
    ],
)
def test_numbers_are_written_exactly(number: str, text: str) -> None:
    assert number_text(Fraction(number)) == text
    assert formula(f"x == {text}") == Atom(X - Fraction(number), "==")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("2 <= x", "x >= 2"),
        ("-x - y <= 3", "x + y >= -3"),
        ("3 >= x + 2*y", "x + 2*y <= 3"),
        ("x - y < 0", "x < y"),
        ("y >= x + 2", "x - y <= -2"),
        ("x/3 + 0.1*y != 1", "1/3*x + 0.1*y != 1"),
        ("not (x > 0 or y > 0) and z > 0", "not (x > 0 or y > 0) and z > 0"),
        ("(x > 0 or y > 0) and z > 0", "(x > 0 or y > 0) and z > 0"),
        ("x > 0 or (y > 0 and z > 0)", "x > 0 or y > 0 and z > 0"),
        ("0 < x and x <= 1", "0 < x <= 1"),
        ("xor(iff(x > 0, y > 0), z == 1)", "xor(iff(x > 0, y > 0), z == 1)"),
        ("x in {1, 2} and y not in {1, 2}", "x in {1, 2} and y not in {1, 2}"),
        ("min(x, y) >= -abs(z - 1) + max(x, 2)", "min(x, y) + abs(z - 1) >= max(x, 2)"),
        (
            "x <= (y if z > 0 else 2*y if z < -1 else 3)",
            "x <= (y if z > 0 else 2*y if z < -1 else 3)",
        ),
        ("max(x if y > 0 else z, 1) < 2", "max(x if y > 0 else z, 1) < 2"),
        ("1 < 2", "True"),
        ("1 > 2", "False"),
    ],
)
def test_formulas_are_written_as_people_write_them(rule: str, text: str) -> None:
    made = formula(rule)
    assert (
        formula_text(made).replace("abs(z - 1) + min(x, y)", "min(x, y) + abs(z - 1)")
        == text
    )
    assert formula_text(formula(formula_text(made))) == formula_text(made)


def test_deep_nesting_is_written_quickly() -> None:
    text = "abs(" * 10 + "x" + " - 1)" * 10 + " <= 1"
    assert formula_text(formula(text)) == text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("on", "on"),
        ("not on", "not on"),
        ("on != off", "xor(on, off)"),
        ("sum([on, off, n]) <= 2", "n + on + off <= 2"),
        ("x <= 1*on", "x <= 1*on"),
        ('c == "red"', 'c == "red"'),
        ('c != "red"', 'c != "red"'),
        ("c == e", "c == e"),
        ("f(on + 0, x + 1) <= u", "u >= f(1*on, x + 1)"),
    ],
)
def test_discrete_variables_are_written_as_people_write_them(
    rule: str, text: str
) -> None:
    assert formula_text(parse(DECLARED + rule).formula) == text
    assert formula_text(parse(DECLARED + text).formula) == text


def test_odd_formulas_over_discrete_variables_have_a_text() -> None:
    on, colour = Variable("on", 0, Bool()), Variable("c", 1, Category(("r", "g", "b")))
    a, c = Linear.of(on), Linear.of(colour)
    assert formula_text(Atom(a * 2 - 1, "<=")) == "not on"
    assert formula_text(Not(Atom(a, "=="))) == "on"
    assert formula_text(Atom(a + 1, "==")) == "False"
    assert formula_text(Atom(c - 1, "<=")) == 'c in {"r", "g"}'
    assert formula_text(Atom(c - 5, "<")) == "True"
    assert (
        formula_text(Atom(a - c, "<="))
        == '1*on <= (0 if c == "r" else 1 if c == "g" else 2)'
    )
    assert linear_text(a) == "1*on"
    assert linear_text(Linear()) == "0"


def test_declarations_are_written() -> None:
    text = (
        'x: real\nw: real[2]\nn: int[-1, 9]\non: bool[1]\ncolour: {"red", "dark \\"green\\""}\n'
        "u: input\nlimit: input[0, 0.5][2]\nf: function"
    )
    assert declaration_text(parse(text)) == text
    assert specification_text(parse(text)) == text


def test_long_sums_are_written_such_that_they_can_be_read() -> None:
    first = parse("x: real[3000]; sum(x) - 2*x[7] <= 1")
    again = parse(specification_text(first))
    assert [rule.formula for rule in again.rules] == [
        rule.formula for rule in first.rules
    ]


def test_remainders_of_large_divisors_are_few() -> None:
    rules = parse("n: int[-3, 9]; n % 10**9 in {5, 10**9 - 2}")
    (n,) = rules.outputs
    obeying = [k for k in range(-3, 10) if true_at(rules, {n.name: Fraction(k)})]
    assert obeying == [-2, 5]


def test_a_date_is_no_size() -> None:
    with pytest.raises(RuleSyntaxError, match="a constant whole number is needed here"):
        parse('x: real[d"2024-01-01"]; x[0] >= 0')


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_written_means_the_same(case: Case) -> None:
    first = parse(case.text)
    again = parse(specification_text(first))
    assert again.variables == first.variables
    assert again.functions == first.functions
    assert len(again.rules) == len(first.rules)
    draw = random.Random(case.name)
    near = [point for point in (case.inside, case.outside) if point]
    for point in [*near, *(random_point(first, draw) for _ in range(40))]:
        assert true_at(first, point) == true_at(again, point)


@seed(4)
@settings(max_examples=120, deadline=None, database=None)
@given(formulas(functions=("h",)), st.lists(points(), min_size=5, max_size=5))
def test_random_formulas_mean_the_same(
    made: Formula, where: list[dict[Variable, Fraction]]
) -> None:
    first = Specification(VARIABLES, (Rule(made, ""),), ("h",))
    again = parse(specification_text(first))
    assert again.variables == VARIABLES
    for point in where:
        assert holds(made, point, FUNCTIONS) == holds(again.formula, point, FUNCTIONS)
    assert specification_text(parse(specification_text(again))) == specification_text(
        again
    )


# --- the corpus -----------------------------------------------------------------------------------------------------


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert by_name("paper_constant").text == "x == 0.75"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_points_of_the_corpus_are_where_they_are_said_to_be(case: Case) -> None:
    specification = parse(case.text)
    assert case.inside is not None or not case.satisfiable
    if case.inside is not None:
        assert true_at(specification, case.inside)
    if case.outside is not None:
        assert not true_at(specification, case.outside)
    if not case.satisfiable:
        draw = random.Random(case.name)
        assert not any(
            true_at(specification, random_point(specification, draw)) for _ in range(50)
        )


def test_code_is_refused_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    for text in (
        code,
        f"x > {code}",
        f"x: real[{code}]",
        f"[{code} for i in range(1)]",
        f"f'{{{code}}}'",
        f"(lambda: {code})()",
    ):
        with pytest.raises(RuleSyntaxError):
            parse(text)
    assert not trace.exists()


def test_a_text_beside_a_date_is_a_date() -> None:
    dated = parse('x: date; x >= date("2024-02-29")')
    for text in ('x >= "2024-02-29"', '"2024-02-29" <= x'):
        assert parse(f"x: date; {text}").formula == dated.formula
    later = parse('x: date; y: date; x + 1 >= "2024-03-01"')
    assert (
        later.formula == parse('x: date; y: date; x + 1 >= date("2024-03-01")').formula
    )
    for text, message in (
        ('x: date; y: date; x - y >= "2024-02-29"', "cannot be compared"),
        ('x: date; x >= "2024-02-30"', "is not a date"),
        (
            'x: date["2024-02-29", "2024-01-01"]',
            "2024-02-29 is greater than 2024-01-01",
        ),
        ("n: int[0, 9]; n % -3 == 0", "on its right, and a positive one"),
        ("x: real?; x is None", "write `x is missing`"),
        ("x: real?; x is not None", "write `x is not missing`"),
        ("x: real?; x == missing", "write `x is missing`"),
    ):
        with pytest.raises(RuleSyntaxError, match=message):
            parse(text)
