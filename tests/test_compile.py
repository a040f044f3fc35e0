"""The compiler: z3 decides whether the terms say what the rules say, asked by the tests, not by the proof."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import prod
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
import torch
import z3
from corpus import CASES, Case, by_name
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import meaning, proves
from strategies import VARIABLES, formulas

from multiplexnet.compiler.compile import compile_rules
from multiplexnet.compiler.proof import proof_of
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.compiler.tidy import Tidy
from multiplexnet.errors import ContradictionError, ShapeError, TermBudgetExceeded
from multiplexnet.language.formula import (
    Atom,
    Bool,
    Formula,
    Linear,
    Rule,
    Specification,
    Variable,
    conjunction,
    negation,
)
from multiplexnet.rules import Rules
from multiplexnet.smt.questions import domain_z3, input_range_z3, satisfiable, to_z3
from multiplexnet.smt.search import Questions

SATISFIABLE = [case for case in CASES if case.satisfiable]


@cache
def compiled(name: str) -> tuple[Specification, Compiled]:
    specification = Rules(by_name(name).text).specification
    return specification, compile_rules(specification)


def terms_meaning(found: Compiled) -> z3.BoolRef:
    """The terms and the domains together: what a compilation means."""
    variables = [*found.outputs, *found.inputs]
    return z3.And(
        [to_z3(found.formula), *domain_z3(variables), *input_range_z3(variables)]
    )


def is_equivalent(specification: Specification, found: Compiled) -> bool:
    return proves(meaning(specification) == terms_meaning(found))


def all_terms(blocks: Sequence[Block]) -> Iterator[tuple[Block, Term]]:
    """Every term, those of nested blocks too."""
    for block in blocks:
        for term in block.terms:
            yield block, term
            yield from all_terms(term.blocks)


def has_point(parts: Sequence[Formula], found: Compiled) -> bool:
    return satisfiable(conjunction(parts), [*found.outputs, *found.inputs]) is not None


# --- the corpus -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_the_terms_are_equivalent_to_the_rules(case: Case) -> None:
    specification, found = compiled(case.name)
    assert is_equivalent(specification, found)
    assert found.complete
    assert found.proof.sound
    assert found.proof.complete
    if case.terms is not None:
        assert prod(len(block.terms) for block in found.blocks) == case.terms


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.satisfiable], ids=lambda case: case.name
)
def test_contradictory_rules_have_no_terms(case: Case) -> None:
    with pytest.raises(ContradictionError, match="no output obeys the rules"):
        Rules(case.text).compile()


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_no_term_is_empty_and_none_is_covered_by_the_others(case: Case) -> None:
    _, found = compiled(case.name)
    for block in found.blocks:
        for term in block.terms:
            others = [
                negation(o.formula)
                for o in block.terms
                if o is not term and o.fixed == term.fixed
            ]
            assert has_point([term.formula, *others], found)


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_no_row_follows_from_the_others_and_no_equality_is_hidden(case: Case) -> None:
    _, found = compiled(case.name)
    for _, term in all_terms(found.blocks):
        for row in term.rows:
            assert has_point(
                [negation(row), *(other for other in term.rows if other is not row)],
                found,
            )
            if row.relation == "<=":
                assert has_point([Atom(row.linear, "<"), *term.rows], found)


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_every_output_is_in_one_block_and_discrete_ones_are_fixed(case: Case) -> None:
    _, found = compiled(case.name)
    placed = [output for block in found.blocks for output in block.outputs]
    assert sorted(placed, key=lambda v: v.index) == list(found.outputs)
    assert [
        block.outputs[0].index for block in found.blocks if block.outputs
    ] == sorted(block.outputs[0].index for block in found.blocks if block.outputs)
    for block, term in all_terms(found.blocks):
        inner = {output for part in term.blocks for output in part.outputs}
        assert {v for v, _ in term.fixed} == {
            v for v in block.outputs if v.is_discrete
        } - inner
        mentioned = {
            s
            for row in term.rows
            for s, _ in row.linear.summands
            if isinstance(s, Variable)
        }
        assert not any(v.is_discrete for v in mentioned)
        assert {v for v in mentioned if not v.is_input} <= set(block.outputs) - inner


def test_rows_are_canonical() -> None:
    (block,) = Rules("0.5*x - 0.25*y <= 0.125\n-x <= 4").compile().blocks
    x, y = (Linear.of(v) for v in block.outputs)
    assert block.terms[0].rows == (
        Atom(-x - 4, "<="),
        Atom(x * 2 - y - Fraction(1, 2), "<="),
    )


def test_hidden_equalities_are_written_as_such() -> None:
    (block,) = Rules("a <= b; b <= c; c <= a").compile().blocks
    assert len(block.terms[0].equalities) == 2
    assert not block.terms[0].inequalities


def test_what_the_range_of_an_input_says_is_no_row() -> None:
    (block,) = Rules("x: real; u: input[0, 1]\nx <= u; x <= 2; u <= 3").compile().blocks
    assert len(block.terms[0].rows) == 1


def test_rules_on_inputs_alone_are_a_block_without_outputs() -> None:
    found = Rules("x: real; u: input\nx <= u; u >= 1").compile()
    assert [len(block.outputs) for block in found.blocks] == [1, 0]
    assert is_equivalent(
        Rules("x: real; u: input\nx <= u; u >= 1").specification, found
    )


# --- order ----------------------------------------------------------------------------------------------------------

DIGEST = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from corpus import CASES
from multiplexnet.rules import Rules
blocks = [Rules(case.text).compile().blocks for case in CASES if case.satisfiable]
print(hashlib.sha256(repr(blocks).encode()).hexdigest())
"""


def test_terms_are_the_same_in_every_process_and_after_other_work() -> None:
    x, y = z3.Reals("x y")
    proves(z3.Or(x + y > 1, x <= 3, y <= 3))
    blocks = [compiled(case.name)[1].blocks for case in SATISFIABLE]
    here = hashlib.sha256(repr(blocks).encode()).hexdigest()
    command = [sys.executable, "-c", DIGEST, str(Path(__file__).parent)]
    run = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == here


@pytest.mark.parametrize("case", SATISFIABLE, ids=lambda case: case.name)
def test_the_order_of_the_rules_does_not_change_what_they_mean(case: Case) -> None:
    specification, found = compiled(case.name)
    turned = compile_rules(replace(specification, rules=specification.rules[::-1]))
    assert is_equivalent(specification, turned)
    assert [block.outputs for block in turned.blocks] == [
        block.outputs for block in found.blocks
    ]
    for before, after in zip(found.blocks, turned.blocks, strict=True):
        if set(before.terms) == set(after.terms):
            assert before.terms == after.terms


def test_terms_are_sorted_by_the_values_of_discrete_outputs() -> None:
    (block,) = Rules("n: int[0, 9]\nn in {7, 2, 4}").compile().blocks
    assert [term.fixed[0][1] for term in block.terms] == [2, 4, 7]


# --- random formulas ------------------------------------------------------------------------------------------------


def assert_compiles(
    formula: Formula, variables: Sequence[Variable], functions: tuple[str, ...] = ()
) -> None:
    specification = Specification(tuple(variables), (Rule(formula, "…"),), functions)
    try:
        found = compile_rules(specification)
    except ContradictionError:
        assert satisfiable(formula, variables) is None
        return
    assert is_equivalent(specification, found)
    for block, term in all_terms(found.blocks):
        assert len(term.fixed) == sum(v.is_discrete for v in block.outputs)


@given(formulas())
@settings(max_examples=50, deadline=None)
def test_random_formulas_compile_to_equivalent_terms(formula: Formula) -> None:
    assert_compiles(formula, VARIABLES)


@given(
    formulas(
        [Variable(name, i) for i, name in enumerate("xyz")], depth=0, max_leaves=14
    )
)
@settings(max_examples=60, deadline=None)
def test_random_formulas_over_reals_compile_to_equivalent_terms(
    formula: Formula,
) -> None:
    assert_compiles(formula, [Variable(name, i) for i, name in enumerate("xyz")])


@given(formulas(VARIABLES[:3], functions=("h",), max_leaves=4))
@settings(max_examples=40, deadline=None)
def test_random_formulas_with_functions_compile_to_equivalent_terms(
    formula: Formula,
) -> None:
    assert_compiles(formula, VARIABLES[:3], ("h",))


# --- the proof ------------------------------------------------------------------------------------------------

TWO_SIDED = "x: real; y: real; on: bool\nx >= 2 or x <= -2\nimplies(on, y >= x)"


@pytest.mark.parametrize(
    "name", ["paper_eight_boxes", "nested", "mixed", "simplex", "twenty_two_sided"]
)
def test_the_certificate_refuses_a_term_too_wide(name: str) -> None:
    specification, found = compiled(name)
    block = found.blocks[-1]
    wider = [
        replace(block.terms[-1], rows=block.terms[-1].rows[:-1]),
        *block.terms[:-1],
    ]
    with pytest.raises(AssertionError, match="not imply"):
        proof_of(
            specification,
            [*found.blocks[:-1], Block(block.outputs, tuple(wider))],
            complete=True,
        )


@pytest.mark.parametrize(
    "name",
    ["paper_eight_boxes", "nested", "mixed", "all_different", "twenty_two_sided"],
)
def test_the_certificate_refuses_a_missing_term(name: str) -> None:
    specification, found = compiled(name)
    block = found.blocks[-1]
    fewer = [*found.blocks[:-1], Block(block.outputs, block.terms[1:])]
    with pytest.raises(AssertionError, match="do not contain every point"):
        proof_of(specification, fewer, complete=True)
    proof = proof_of(specification, fewer, complete=False)
    assert proof.sound
    assert not proof.complete


def test_the_certificate_refuses_a_wrong_value_of_a_discrete_output() -> None:
    specification, found = compiled("paper_mnist_addition")
    (block,) = found.blocks
    term = block.terms[0]
    wrong = replace(
        term, fixed=(*term.fixed[:-1], (term.fixed[-1][0], term.fixed[-1][1] + 1))
    )
    with pytest.raises(AssertionError, match="not imply"):
        proof_of(
            specification,
            [Block(block.outputs, (wrong, *block.terms[1:]))],
            complete=True,
        )


def test_the_certificate_refuses_a_fault_in_rules_that_blocks_share() -> None:
    specification = Rules("x >= 0 and y >= 0").specification
    found = compile_rules(specification)
    assert len(found.blocks) == 2
    wrong = Block(found.blocks[1].outputs, (Term(()),))
    with pytest.raises(AssertionError, match="not imply"):
        proof_of(specification, [found.blocks[0], wrong], complete=True)


def test_the_certificate_names_the_solver_and_counts_its_checks() -> None:
    proof = Rules(TWO_SIDED).compile().proof
    assert proof.solver == f"z3 {z3.get_version_string()}"
    assert proof.checks >= 2


# --- the budget -----------------------------------------------------------------------------------------------------

APART = "x: real[6]\nall(abs(x[i] - x[j]) >= 1 for i in range(6) for j in range(i))"


def test_too_many_terms_are_refused_with_the_count_the_block_and_the_options() -> None:
    with pytest.raises(TermBudgetExceeded) as refusal:
        Rules(APART + "\ny: real\ny >= 0").compile(max_terms=40)
    assert refusal.value.count > 40
    assert refusal.value.max_terms == 40
    assert refusal.value.outputs == tuple(f"x[{i}]" for i in range(6))
    for word in (
        "x[0], x[1]",
        "more than 40 terms",
        f"{refusal.value.count} found",
        "max_terms",
        "cover=rows",
    ):
        assert word in str(refusal.value)


def test_the_budget_is_per_block() -> None:
    assert (
        len(
            Rules("x: real[9]\nall(v <= -1 or v >= 1 for v in x)")
            .compile(max_terms=2)
            .blocks
        )
        == 9
    )


def test_progress_is_told() -> None:
    calls: list[tuple[str, int]] = []
    Rules("a != b").compile(progress=lambda name, count: calls.append((name, count)))
    assert calls == [
        ("bringing the rules into normal form", 0),
        ("looking for a contradiction", 0),
        ("finding the terms of a, b", 0),
        ("finding the terms of a, b", 1),
        ("finding the terms of a, b", 2),
        ("proving that the terms say what the rules say", 0),
        ("proving that the terms say what the rules say", 1),
        ("proving that the terms say what the rules say", 2),
        ("proving that the terms say what the rules say", 3),
    ]


# --- covers of data -------------------------------------------------------------------------------------------------


def many_boxes() -> Rules:
    return Rules(
        "x: real[4]\nany(v >= 1 for v in x)\nany(v <= -1 for v in x)\nx[0] + x[1] <= 10"
    )


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        torch.tensor,
        lambda rows: pl.DataFrame(rows, [f"x[{i}]" for i in range(4)]),
    ],
)
def test_a_cover_contains_the_rows_that_obey(kind: object) -> None:
    rules = many_boxes()
    rows = np.random.default_rng(0).normal(size=(300, 4)).round(2)
    rows[:, 2], rows[:, 3] = 2.0, -2.0
    rows[::7, 2] = 0.5  # these may disobey and do not count
    found = rules.compile(cover=kind(rows))  # type: ignore[operator]
    assert found.covered == 1
    assert not found.complete
    assert not found.proof.complete
    assert found.proof.sound
    assert proves(z3.Implies(to_z3(found.formula), rules.to_z3()))
    assert not proves(z3.Implies(rules.to_z3(), to_z3(found.formula)))
    assert len(found.blocks[0].terms) <= 4 < len(rules.compile().blocks[0].terms)


def test_one_term_is_enough_for_rows_in_one_term() -> None:
    rows = np.array(
        [[2.0, -2.0, 0.0, 0.0], [3.0, -3.0, 0.5, 0.0], [4.0, -1.0, 0.0, 0.1]]
    )
    assert len(many_boxes().compile(cover=rows).blocks[0].terms) == 1


def test_a_cover_can_be_complete() -> None:
    found = Rules("x <= -1 or x >= 1").compile(cover=np.array([[-2.0], [2.0]]))
    assert found.complete
    assert found.proof.complete
    assert found.covered == 1


def test_a_cover_reads_discrete_columns_inputs_and_names() -> None:
    rules = Rules(
        "on: bool; x: real; u: input[0, 5]\nimplies(on, x >= u or x <= -u)\nimplies(not on, x == 0)"
    )
    table = pl.DataFrame(
        {
            "u": [1.0, 2.0, 3.0, 1.0],
            "x": [1.5, 0.0, -4.0, 9.0],
            "on": [1, 0, 1, 0],
            "more": [0] * 4,
        }
    )
    found = rules.compile(cover=table)
    assert found.covered == 1
    assert found.complete
    fewer = rules.compile(cover=table[:2])
    assert fewer.covered == 1
    assert not fewer.complete
    assert [term.fixed[0][1] for term in fewer.blocks[0].terms] == [0, 1]
    assert proves(z3.Implies(terms_meaning(fewer), meaning(rules.specification)))


def test_rows_that_do_not_obey_are_ignored() -> None:
    rows = np.array([[0.0], [0.5], [2.0], [np.nan], [np.inf]])
    found = Rules("x <= -1 or x >= 1").compile(cover=rows)
    assert len(found.blocks[0].terms) == 1
    assert found.covered == 1


@pytest.mark.parametrize("rows", [np.zeros((3, 1)), np.zeros((0, 1))])
def test_without_rows_that_obey_some_sound_term_is_left(rows: np.ndarray) -> None:
    found = Rules("x <= -1 or x >= 1").compile(cover=rows)
    assert [len(block.terms) for block in found.blocks] == [1]
    assert found.proof.sound
    assert not found.complete


def test_a_cover_goes_where_the_whole_does_not() -> None:
    rows = (
        np.random.default_rng(1).permuted(np.tile(np.arange(6.0), (500, 1)), axis=1) * 2
    )
    found = Rules(APART).compile(max_terms=500, cover=rows[:20])
    assert found.covered == 1
    assert len(found.blocks[0].terms) <= 20
    with pytest.raises(TermBudgetExceeded):
        Rules(APART).compile(max_terms=40, cover=rows)


@pytest.mark.parametrize("rows", [np.zeros((3, 2)), np.zeros(3), torch.zeros(2, 3, 1)])
def test_rows_of_a_wrong_shape_are_refused(rows: object) -> None:
    with pytest.raises(
        ShapeError,
        match=r"expected rows of shape \(N, 1\), one column for each of x; found shape",
    ):
        Rules("x >= 1").compile(cover=rows)


def test_a_table_without_a_column_is_refused() -> None:
    with pytest.raises(ShapeError, match="the table has no column y; it has x, z"):
        Rules("x >= y").compile(cover=pl.DataFrame({"x": [1.0], "z": [2.0]}))


# --- inputs and functions -------------------------------------------------------------------------------------------


def test_the_range_of_an_input_is_taken_for_granted() -> None:
    text = "x: real; u: input[1, 2]\nx >= 0\nx <= u or u > 5"
    assert [len(block.terms) for block in Rules(text).compile().blocks] == [1]
    assert [
        len(block.terms) for block in Rules(text.replace("[1, 2]", "")).compile().blocks
    ] == [2]


def test_a_function_value_is_a_bound_like_any_other() -> None:
    found = Rules(
        "x: real; y: real; f: function\ny > f(x) or y < f(x + 0) - 1"
    ).compile()
    (block,) = found.blocks
    assert len(block.terms) == 2
    assert all(
        len(row.linear.summands) == 2 for term in block.terms for row in term.rows
    )


def test_arguments_of_functions_are_simplified_when_discrete_outputs_are_fixed() -> (
    None
):
    rules = Rules("on: bool; x: real; y: real; f: function\ny >= f(x + on)")
    (block,) = rules.compile().blocks
    assert len(block.terms) == 2
    assert len({row.linear for term in block.terms for row in term.rows}) == 2
    assert is_equivalent(rules.specification, rules.compile())


def test_a_boolean_output_stands_for_zero_and_one() -> None:
    on = Variable("on", 0, Bool())
    found = compile_rules(
        Specification((on,), (Rule(Atom(Linear.of(on) * 2 - 1, "<"), "on < 1/2"),))
    )
    assert found.blocks == (Block((on,), (Term((), ((on, Fraction(0)),)),)),)


@given(
    st.lists(
        st.sampled_from(
            ["x <= 1", "x >= -1", "x + y <= 1", "x - y <= 0", "y >= -2", "x == y"]
        ),
        min_size=1,
    )
)
@settings(max_examples=30, deadline=None)
def test_repeated_rules_say_nothing_new(lines: list[str]) -> None:
    once = Rules("x: real; y: real\n" + "\n".join(dict.fromkeys(lines))).compile()
    assert (
        Rules("x: real; y: real\n" + "\n".join(lines)).compile().blocks == once.blocks
    )


@pytest.mark.parametrize(
    ("count", "outputs", "digits"), [(80, 20, 6), (49, 8, 17), (75, 5, 17), (37, 3, 17)]
)
def test_dense_rows_of_many_digits_are_settled_without_the_solver(
    count: int, outputs: int, digits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of 17 digits are those of arrays; of these, few are many: z3 took half a minute."""

    def asked(self: Tidy, rows: Sequence[Atom]) -> bool:
        raise AssertionError(f"z3 was asked about {len(rows)} rows")

    monkeypatch.setattr(Tidy, "_answer", asked)
    random = Random(0)
    rows = [
        " + ".join(f"{random.gauss(0, 1):.{digits}g} * x[{j}]" for j in range(outputs))
        + f" <= {random.uniform(0.1, 10):.{digits}g}"
        for _ in range(count)
    ]
    found = compile_rules(Rules([f"x: real[{outputs}]", *rows]).specification)
    assert len(list(found.terms)) == 1


def test_of_boxes_z3_is_asked_hardly_more_than_whether_they_are_right() -> None:
    """Points a step beyond their bounds show that these are needed."""
    random = Random(0)

    def box() -> str:
        ends = [(random.randint(-50, 50), random.randint(1, 30)) for _ in range(6)]
        return " and ".join(
            f"{a} <= x[{j}] <= {a + d}" for j, (a, d) in enumerate(ends)
        )

    text = "x: real[6]; " + " or ".join(f"({box()})" for _ in range(20))
    asked = 0
    answer = Questions.answer

    def counting(self: Questions, *arguments: Any) -> bool | None:
        nonlocal asked
        asked += 1
        return answer(self, *arguments)

    with patch.object(Questions, "answer", counting):
        found = Rules(text).compile()
    (block,) = found.blocks
    assert len(block.terms) == 20
    assert asked <= 2 * len(block.terms)
