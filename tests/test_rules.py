"""``Rules``: four ways in, one meaning; immutable, printable, and a façade over everything that can be asked."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import z3
from corpus import CASES, Case
from oracle import meaning, proves

import multiplexnet as mx
from multiplexnet.errors import ContradictionError, MultiplexError, RuleSyntaxError
from multiplexnet.rules import Rules
from multiplexnet.smt.questions import equivalent, input_range_z3

TEXT = """
a: real; b: real                    # outputs
limit: input                        # known at run time
a == 0 or 200 < a < 400
implies(a > 0, b >= a + 2)
b <= limit
"""
SMTLIB = """
(declare-const a Real) (declare-const b Real) (declare-const limit Real)
(assert (or (= a 0) (and (< 200 a) (< a 400))))
(assert (=> (> a 0) (>= b (+ a 2))))
(assert (<= b limit))
"""
ORDERING = "ordering y_0 y_1 y_2\ny_0 - y_1 >= 0.5\n-y_2 > 0 or y_1 > 1\n"


def by_z3() -> Rules:
    a, b, limit = z3.Reals("a b limit")
    rules = [
        z3.Or(a == 0, z3.And(a > 200, a < 400)),
        z3.Implies(a > 0, b >= a + 2),
        b <= limit,
    ]
    return Rules.from_z3(rules, outputs=[a, b], inputs=[limit])


# --- ways in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [by_z3, lambda: Rules.from_smtlib(SMTLIB, inputs=["limit"])],
    ids=["z3", "smtlib"],
)
def test_all_ways_in_have_one_meaning(make: object) -> None:
    given, rules = Rules(TEXT), make()  # type: ignore[operator]
    assert rules.outputs == given.outputs
    assert rules.inputs == given.inputs
    assert equivalent(rules.formula, given.formula)
    assert rules.compile().blocks == given.compile().blocks


def test_the_ordering_format_is_a_way_in() -> None:
    rules = Rules.from_ordering(ORDERING)
    assert [v.name for v in rules.outputs] == ["y_0", "y_1", "y_2"]
    same = Rules(
        "y_0: real; y_1: real; y_2: real\ny_0 - y_1 >= 0.5\ny_2 < 0 or y_1 > 1"
    )
    assert equivalent(rules.formula, same.formula)


def test_rules_that_were_read_already_are_taken_as_they_are() -> None:
    rules = Rules(TEXT)
    assert Rules.from_specification(rules.specification) == rules


@pytest.mark.parametrize(
    ("name", "text", "outputs"),
    [
        ("some.rules", TEXT, ["a", "b"]),
        ("some.smt2", SMTLIB, ["a", "b", "limit"]),
        ("some.txt", ORDERING, ["y_0", "y_1", "y_2"]),
        ("plain.txt", "x >= 2 or x <= -2", ["x"]),
    ],
)
@pytest.mark.parametrize("kind", [str, Path])
def test_files_are_read_by_their_ending(
    tmp_path: Path,
    name: str,
    text: str,
    outputs: list[str],
    kind: type[str] | type[Path],
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert [v.name for v in Rules.load(kind(path)).outputs] == outputs


def test_a_file_with_another_ending_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("x >= 1")
    with pytest.raises(
        RuleSyntaxError,
        match=r"ends in \.rules, \.smt2, \.txt, not in '\.csv'; rename it",
    ):
        Rules.load(tmp_path / "some.csv")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.rules").write_bytes(b"x >= 1\n\xff\xfe")
    with pytest.raises(
        RuleSyntaxError,
        match=r"some\.rules is not UTF-8 text \(byte 7\); save it as UTF-8",
    ):
        Rules.load(tmp_path / "some.rules")


def test_what_the_system_says_of_a_file_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Rules.load(tmp_path / "none.rules")
    (tmp_path / "folder.rules").mkdir()
    with pytest.raises(IsADirectoryError):
        Rules.load(tmp_path / "folder.rules")


def test_errors_in_a_file_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "some.rules").write_text("x >= 1\nx * x <= 4")
    with pytest.raises(RuleSyntaxError, match="line 2"):
        Rules.load(tmp_path / "some.rules")


# --- values ---------------------------------------------------------------------------------------------------------


def test_rules_are_equal_when_they_say_the_same_in_the_same_words() -> None:
    assert Rules("x >= 1") == Rules("x >= 1")
    assert hash(Rules("x >= 1")) == hash(Rules("x >= 1"))
    assert Rules("x >= 1") != Rules("x >= 2")
    assert Rules("x >= 1") != "x >= 1"
    assert len({Rules("x >= 1"), Rules("x >= 1"), Rules("x > 1")}) == 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rules_survive_pickling_and_printing(case: Case) -> None:
    rules = Rules(case.text)
    again = pickle.loads(pickle.dumps(rules))
    assert again == rules
    assert str(again) == str(rules)
    assert Rules(str(rules)) == rules


def test_rules_print_as_they_were_written() -> None:
    assert str(Rules(TEXT)) == TEXT.strip("\n")
    assert repr(Rules(TEXT)) == "Rules(3 rules over a, b)"
    assert (
        repr(Rules("x: real[9]\nall(v >= 0 for v in x)"))
        == "Rules(1 rules over x[0], x[1], x[2], x[3], x[4], x[5], …)"
    )


def test_rules_from_elsewhere_print_in_the_language() -> None:
    assert equivalent(Rules(str(by_z3())).formula, by_z3().formula)


@pytest.mark.parametrize(
    "name", ["formula", "outputs", "specification", "_specification", "anything"]
)
def test_rules_cannot_be_changed(name: str) -> None:
    rules = Rules("x >= 1")
    with pytest.raises(
        AttributeError, match=f"Rules cannot be changed: {name} is read-only"
    ):
        setattr(rules, name, None)
    with pytest.raises(AttributeError, match="read-only"):
        delattr(rules, name)
    assert str(copy.deepcopy(rules)) == "x >= 1"


# --- questions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_z3_gets_rules_and_domains(case: Case) -> None:
    rules = Rules(case.text)
    assert proves(
        z3.And(rules.to_z3(), *input_range_z3(rules.inputs))
        == meaning(rules.specification)
    )


def test_an_integer_is_bounded_in_z3() -> None:
    assert str(Rules("n: int[1, 6]\nn >= 5").to_z3()) == "And(n >= 1, n <= 6, n >= 5)"


def test_verdicts_and_violations_pass_through() -> None:
    rules = Rules(TEXT)
    x = torch.tensor([[0.0, 5.0], [300.0, 310.0], [300.0, 301.0]])
    assert rules.satisfied(x, limit=torch.tensor([5.0, 320.0, 320.0])).tolist() == [
        True,
        True,
        False,
    ]
    assert rules.violation(x, limit=320.0).tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert rules.satisfied(np.array([[0.0, 5.0]]), limit=4.0).tolist() == [False]


def test_functions_pass_through() -> None:
    rules = Rules("x1: real; x2: real; h: function\nx2 > h(x1)")
    h = {"h": lambda x: x * x}
    assert rules.satisfied(
        np.array([[2.0, 5.0], [2.0, 4.0]]), functions=h
    ).tolist() == [
        True,
        False,
    ]


def test_compile_and_explain_pass_their_options_on() -> None:
    calls: list[tuple[str, int]] = []
    rules = Rules("x: real; y: real\nx != y")
    assert (
        len(
            rules.compile(max_terms=2, progress=lambda *told: calls.append(told))
            .blocks[0]
            .terms
        )
        == 2
    )
    assert [
        count for doing, count in calls if doing == "finding the terms of x, y"
    ] == [0, 1, 2]
    assert rules.explain(max_terms=1).problem is not None
    assert rules.explain().problem is None


def test_errors_are_of_the_library_and_of_the_fitting_builtin() -> None:
    with pytest.raises(ContradictionError) as refusal:
        Rules("x > 1\nx < 0").compile()
    assert isinstance(refusal.value, MultiplexError)
    assert isinstance(refusal.value, ValueError)
    assert mx.Rules is Rules
    assert mx.ContradictionError is ContradictionError
