"""Rules in SMT-LIB 2: declarations, texts and places, and errors that point to them."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import proves

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import Atom, Int, Linear, Real, Variable
from multiplexnet.smt.questions import to_z3
from multiplexnet.smt.smtlib import from_smtlib

SCRIPT = """(set-logic QF_UFLRA) ; a comment (with a bracket
(set-info :status sat)
(set-info :inputs "limit[0, 1/2] load")
(declare-fun x () Real) (declare-const |y 1| Real)
(declare-const free Real)
(declare-const limit Real) (declare-const load Real)
(declare-fun h (Real Real) Real)
(define-fun more ((a Real)) Real (+ a 3))
(assert (! (<= x (more limit)
               ; a comment inside
               (h x |y 1|)) :named first))
(assert (let ((a (+ x 1))) (or (> a 2) (and (< a 0.1) (distinct a load)))))
(check-sat) (get-model)
(exit)
(nothing is read here)
"""


def test_smtlib_declares_in_order_and_keeps_text_and_lines() -> None:
    spec = from_smtlib(SCRIPT)
    assert [v.name for v in spec.outputs] == ["x", "y 1", "free"]
    assert [(v.name, v.domain) for v in spec.inputs] == [
        ("limit", Real(Fraction(0), Fraction(1, 2))),
        ("load", Real()),
    ]
    assert spec.functions == ("h",)
    assert [rule.line for rule in spec.rules] == [9, 12]
    assert spec.rules[0].text == "(! (<= x (more limit) (h x |y 1|)) :named first)"
    assert spec.text == SCRIPT


def test_smtlib_means_what_z3_reads() -> None:
    assert proves(
        to_z3(from_smtlib(SCRIPT).formula)
        == z3.And(list(z3.parse_smt2_string(SCRIPT.partition("(check-sat)")[0])))
    )


def test_in_a_logic_of_reals_whole_numbers_are_reals() -> None:
    script = "(set-logic QF_LRA) (define-fun k () Real 3) (declare-const x Real) (assert (> x k))"
    assert from_smtlib(script).rules[0].formula == Atom(
        -Linear.of(Variable("x", 0)) + 3, "<"
    )


def test_questions_and_unknown_logics_print_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    from_smtlib(
        '(set-logic QF_OURS) (declare-const x Real) (assert (> x 0)) (echo "x") (check-sat) (get-value (x))'
    )
    assert capfd.readouterr() == ("", "")


def test_inputs_can_be_given_besides_the_script() -> None:
    spec = from_smtlib(
        "(declare-const a Real) (declare-const n Int) (assert (<= 0 n 3)) (assert (>= a n))",
        inputs=["n"],
    )
    assert [(v.name, v.domain) for v in spec.inputs] == [("n", Int(0, 3))]


@pytest.mark.parametrize(
    ("script", "place", "message"),
    [
        (
            "",
            None,
            "there are no rules: declare outputs and write at least one (assert …)",
        ),
        ("; only a comment", None, "there are no rules"),
        ("(assert (> x 0))", (1, 12), "unknown constant x"),
        ("(declare-const x Real)\n(assert (> x yy))", (2, 14), "unknown constant yy"),
        (
            "(declare-const x Real)\n (assert (> x 0)",
            (2, 2),
            "this bracket is never closed",
        ),
        (
            "(declare-const x Real))",
            (1, 23),
            "expected a command such as (assert …), found `)`",
        ),
        ("x > 0", (1, 1), "expected a command such as (assert …), found `x`"),
        ('(echo "a)', (1, 7), 'the quote " is never closed'),
        ("(echo |a)", (1, 7), "the quote | is never closed"),
        ("()", (1, 1), "expected the name of a command after `(`"),
        ("(reset)", (1, 1), "the command reset is not known here"),
        ('(include "rules")', (1, 1), "the command include is not known here"),
        (
            "(define-fun-rec g ((a Real)) Real (g a))",
            (1, 1),
            "the command define-fun-rec is not known here",
        ),
        (
            "(declare-sort S 0)",
            (1, 1),
            "declare-sort is not known here: rules know Real, Int and Bool only",
        ),
        (
            "(declare-const a (Array Int Real))",
            (1, 18),
            "a is of sort (Array Int Real): rules know Real, Int and Bool",
        ),
        ("(declare-fun a () (_ BitVec 8))", (1, 19), "a is of sort (_ BitVec 8)"),
        (
            "(declare-fun g (Real Int) Real)",
            (1, 22),
            "the function g must take reals and give a real",
        ),
        ("(declare-const x Real)(declare-const x Int)", (1, 38), "x is declared twice"),
        (
            "(declare-const x Real)\n (assert (forall ((y Real)) (> x y)))",
            (2, 2),
            "is a quantifier",
        ),
        (
            "(declare-const x Real)\n\n(assert (> (* x x) 2))",
            (3, 1),
            "`x*x` multiplies `x` by `x`",
        ),
        (
            "(declare-const n Int)\n(assert (= (mod n 2) 0))",
            (2, 1),
            "rules have no integer division",
        ),
        (
            "(declare-const n Int) (assert (> n 0))",
            None,
            "the integer n is not bounded above",
        ),
        ("(declare-const x Real) (assert x)", (1, 33), "term is not Boolean"),
        ("(declare-const x Real) (assert (> x 0) (< x 1))", (1, 40), "')' expected"),
        ("(assert)", (1, 8), "unexpected ')'"),
        ("(declare-const x)", (1, 17), "unexpected ')'"),
        ("(assert (> 1 \0))", (1, 14), "null character"),
        (
            '(set-info :inputs "z") (assert true)',
            None,
            "the input z is not declared: add (declare-const z Real)",
        ),
        ("(set-info :inputs a b)", (1, 1), "expected one string of names"),
        ('(set-info :inputs "z[0")', (1, 19), "expected names and ranges as in"),
        ('(set-info :inputs "z[0, 1/0]")', (1, 19), "expected names and ranges as in"),
        (
            '(set-info :inputs "z[1, 0]")',
            (1, 19),
            "the range of z is empty: 1 is above 0",
        ),
    ],
)
def test_bad_smtlib_is_refused_with_its_place(
    script: str, place: tuple[int, int] | None, message: str
) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        from_smtlib(script)
    assert message in caught.value.reason
    assert (caught.value.line, caught.value.column) == (place or (None, None))


PIECES = [
    "(",
    ")",
    "(assert ",
    "(declare-const ",
    "x",
    " Real",
    " 1",
    "(> ",
    "(exit)",
    "|",
    '"',
    ";",
    "é",
    "\0",
    "\n",
    " ",
]
WORDS = [
    "x",
    "y",
    "on",
    "f",
    "1",
    "2.5",
    "true",
    "+",
    "-",
    "*",
    "/",
    ">",
    "<=",
    "=",
    "and",
    "or",
    "not",
    "=>",
    "ite",
    "let",
]
ODD_WORDS = [
    "!",
    "_",
    "as",
    "mod",
    "abs",
    "^",
    "div",
    "to_int",
    "forall",
    "Real",
    ":named",
    "distinct",
    "é",
    '"s"',
    "|y|",
    "#x1",
]

TERMS = st.recursive(
    st.sampled_from([*WORDS, *WORDS, *ODD_WORDS]),
    lambda part: st.lists(part, max_size=4).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=10,
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), TERMS)
@settings(max_examples=200, deadline=None)
def test_any_smtlib_text_is_read_or_refused(text: str, term: str) -> None:
    start = "(declare-const x Real)(declare-const y Real)(declare-const on Bool)(declare-fun f (Real) Real)"
    for script in (
        text,
        f"{start}(assert (> x y)){text}",
        f"{start}(assert {term})",
        f"{start}(assert (<= x {term}))",
    ):
        with suppress(RuleSyntaxError):
            from_smtlib(script)
