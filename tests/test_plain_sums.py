"""Plain sums are read without a syntax tree: what is read, charged and refused is what the reader of trees says."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.budget import ReadingBudget
from multiplexnet.language.formula import Specification, Variable
from multiplexnet.language.parser import parse as parser
from multiplexnet.language.parser import source
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.parser.plain import LONGEST, PlainSums, is_plain_sum
from multiplexnet.language.parser.values import value_of

HEAD = 'x: real[3]; y: real; u: input; n: int[0, 9]; z: real?; on: bool; "lambda": real; w: real[2, 2]\n'

numbers = st.sampled_from(
    ["0", "1", "2", "0.5", "12.340", "1e3", "2.5e-7", "0.000", "10", "007", "1.", "3_0"]
)
places = st.sampled_from(
    ["x[0]", "x[1]", "x[2]", "y", "u", "z", "x[3]", "x", "n", "on", "q", "lambda", "w"]
)
blanks = st.sampled_from(["", " ", "  "])
signs = st.sampled_from(["", "-", "+", "- "])


@st.composite
def statements(draw: st.DrawFn) -> str:
    """Mostly plain sums; some are unusual, and some cannot be read."""
    text = draw(signs)
    for position in range(draw(st.integers(1, 5))):
        if position:
            text += draw(blanks) + draw(st.sampled_from("+-")) + draw(blanks)
        if draw(st.booleans()):
            text += draw(signs) + draw(numbers) + draw(blanks) + "*" + draw(blanks)
        text += draw(places)
    relation = draw(st.sampled_from(["<=", "<", ">=", ">", "==", "!="]))
    return text + draw(blanks) + relation + draw(blanks) + draw(signs) + draw(numbers)


def outcome(text: str) -> tuple[Specification | str, int]:
    """What was read, or the error; and what is left of the budget."""
    budgets = []

    def budget(characters: int) -> ReadingBudget:
        budgets.append(ReadingBudget(characters))
        return budgets[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "ReadingBudget", budget)
        try:
            found: Specification | str = parse(text)
        except RuleSyntaxError as error:
            return str(error), 0
    return found, budgets[0]._left


def by_trees(text: str) -> tuple[Specification | str, int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "is_plain_sum", lambda _: False)
        return outcome(text)


@settings(max_examples=300, deadline=None)
@given(statements())
@example("-0.5*x[0] + x[2] - 0.000*y >= -3")
@example("--2*x[0] - -3*z < 1e3")
@example("x[0] + 2*x[0] <= 1")
@example("x[0] - x[0] <= 1")
@example("2*lambda <= 1")
@example("2*x[3] <= 1")
@example("2*missing <= 1")
def test_plain_sums_are_read_as_trees_are(statement: str) -> None:
    assert outcome(HEAD + statement) == by_trees(HEAD + statement)


def test_many_statements_are_plain() -> None:
    plain = PlainSums({}, ReadingBudget(0))
    for text in ("0.5*x[0] - y <= 3", "-x[1]+ 2*y == -1e-3", "-1.5*x[0] > 0"):
        assert is_plain_sum(text)
        assert plain.atom(text) is None  # no name is known
    for text in ("x <= y", "2024-10-10 <= x", "x*2 <= 1", "x <= 08"):
        assert not is_plain_sum(text)


def test_no_tree_is_made_of_a_plain_sum() -> None:
    """Otherwise long texts are slow, and nothing else would say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "ExpressionReader", None)
        assert len(parse("x: real[3]\n0.5*x[0] - x[2] <= 3").rules) == 1


def test_an_assumption_is_none() -> None:
    text = "u: input; assume: real\nassume - u <= 3"
    found = outcome("u: input; x: real\nassume - u <= 3")
    assert found == by_trees("u: input; x: real\nassume - u <= 3")
    assert isinstance(found[0], Specification)
    assert len(found[0].assumptions) == 1
    assert outcome(text) == by_trees(text)


def test_what_cannot_be_paid_is_left_to_trees_which_say_so() -> None:
    budget = ReadingBudget(0)
    plain = PlainSums({"x": value_of(Variable("x", 0))}, budget)
    assert plain.atom("2*x <= 3") is not None
    assert budget.paid(budget._left)
    assert plain.atom("2*x <= 3") is None


def test_sums_that_are_too_long_are_left_to_trees() -> None:
    fitting = " + ".join(["x"] * LONGEST) + " <= 1"
    assert is_plain_sum(fitting)
    assert not is_plain_sum("x + " + fitting)


PIECES = ["a", "[", "]", "(", ")", ";", "\n", "#", '"', "'", "`", "\\", " ", "{", "}"]


@settings(max_examples=500)
@given(st.lists(st.sampled_from([*PIECES, "[0]", "x[12] + ", '"""', "0"])).map("".join))
@example("x[0] + y[1]; (z[2]\n)")
@example("x[0] '; [1]' ; y[0]#[2];\n")
def test_elements_end_statements_no_sooner_and_no_later(text: str) -> None:
    """Elements are passed over at once; bracket by bracket the text is cut in the same places."""
    one_by_one = re.compile(
        source._TOKEN.pattern.replace(source._ELEMENTS + "|", ""), re.DOTALL
    )
    found = list(source._spans(text))
    assert one_by_one.pattern != source._TOKEN.pattern
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_TOKEN", one_by_one)
        assert found == list(source._spans(text))


def test_a_keyword_is_refused_where_it_stands() -> None:
    """Before what stands below it, as it would be without a quick way."""
    with pytest.raises(RuleSyntaxError, match="line 2"):
        parse("x: real\nx + if <= 3\ny: rael")
