"""Decomposed blocks: equivalent to the rules, smaller than what they stand for, and certified piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

import pytest
from corpus import CASES, Case
from hypothesis import given, settings
from oracle import meaning, proves
from strategies import VARIABLES, formulas
from test_compile import APART, all_terms, terms_meaning

from multiplexnet.compiler import circuit
from multiplexnet.compiler import compile as dnf
from multiplexnet.compiler.circuit import kept_terms, simplified
from multiplexnet.compiler.compile import compile_rules
from multiplexnet.compiler.normal import normal_form
from multiplexnet.compiler.proof import proof_of
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import ContradictionError, TermBudgetExceeded
from multiplexnet.language.formula import (
    Formula,
    Rule,
    Specification,
    conjunction,
    conjuncts,
)
from multiplexnet.rules import Rules
from multiplexnet.smt.questions import equivalent, satisfiable

FAMILIES = {
    "thirty_terms": ("on: bool[5]; x: real\nsum(on) >= 1\nx >= 0", 18, 31),
    "one_of_twenty": ("on: bool[20]\nsum(on) >= 1", 120, 2**20 - 1),
    "three_of_thirty": (
        "on: bool[30]\nsum(on) <= 3",
        200,
        sum(comb(30, k) for k in range(4)),
    ),
    "colours_in_a_row": (
        'c: {"r", "g", "b"}[12]\nall(c[i] != c[i + 1] for i in range(11))',
        110,
        3 * 2**11,
    ),
    "actuators": (
        "on: bool[12]; a: real[12]\nall((200 < a[i] < 400) if on[i] else a[i] == 0 for i in range(12))\nsum(on) <= 4",
        80,
        sum(comb(12, k) for k in range(5)),
    ),
    "steps": (
        "x: real[9]\nall(v <= -1 or v >= 1 for v in x)\n"
        "all(implies(x[i] >= 1, x[i + 1] >= 1 or x[i + 1] <= -5) for i in range(8))",
        60,
        None,
    ),
}

FEW = tuple(v for v in VARIABLES if v.name != "n")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decompose everything that has more than one term."""
    monkeypatch.setattr(dnf, "QUICK", 1)
    monkeypatch.setattr(circuit, "PLAIN", 2)


def nested(rules: Rules, max_terms: int) -> Compiled:
    return rules.compile(max_terms=max_terms, nested=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_fit_into_fewer_terms_than_they_stand_for(name: str) -> None:
    text, budget, size = FAMILIES[name]
    rules = Rules(text)
    found = nested(rules, budget)
    assert kept_terms(found.blocks) <= budget
    assert found.complete
    assert found.proof.sound
    assert any(term.blocks for _, term in found.terms)
    if size is not None:
        assert max(block.size for block in found.blocks) == size
    if size is None or size < 10_000:
        assert proves(meaning(rules.specification) == terms_meaning(found))
    with pytest.raises(TermBudgetExceeded):
        rules.compile(max_terms=budget)


def test_a_chain_of_implications_needs_no_decomposition() -> None:
    rules = Rules(
        "x: real[40]\nall(implies(x[i] > 0, x[i + 1] > 0) for i in range(39))"
    )
    assert max(len(block.terms) for block in nested(rules, 4096).blocks) <= 41


def test_plain_terms_are_kept_where_they_fit() -> None:
    text = FAMILIES["thirty_terms"][0]
    assert nested(Rules(text), 4096).blocks == Rules(text).compile().blocks


def test_what_does_not_fall_apart_is_refused_as_before() -> None:
    with pytest.raises(TermBudgetExceeded, match="more than 40 terms"):
        nested(Rules(APART), 40)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.satisfiable], ids=lambda case: case.name
)
def test_the_corpus_survives_decomposition(case: Case) -> None:
    rules = Rules(case.text)
    try:
        found = nested(rules, 200)
    except TermBudgetExceeded:
        pytest.skip("does not fit")
    assert_well_formed(found)
    assert proves(meaning(rules.specification) == terms_meaning(found))


@pytest.mark.usefixtures("always")
@given(formulas(FEW, max_leaves=5))
@settings(max_examples=20)
def test_random_formulas_survive_decomposition(formula: Formula) -> None:
    specification = Specification(FEW, (Rule(formula, "…"),))
    try:
        found = compile_rules(specification, max_terms=1000, nested=True)
    except ContradictionError:
        return
    assert_well_formed(found)
    assert proves(meaning(specification) == terms_meaning(found))


def assert_well_formed(found: Compiled) -> None:
    """Rows, values and inner blocks of a term share no output, and every output of the block is in one of them."""
    for block, term in all_terms(found.blocks):
        assert len(block.terms) >= 1
        inner = [output for part in term.blocks for output in part.outputs]
        assert len(set(inner)) == len(inner)
        assert set(inner) <= set(block.outputs)
        assert {v for v, _ in term.fixed} == {
            v for v in block.outputs if v.is_discrete
        } - set(inner)
        assert not {s for row in term.rows for s, _ in row.linear.summands} & {
            *inner,
            *(v for v, _ in term.fixed),
        }


def test_decomposition_is_the_same_in_every_run() -> None:
    first, second = (
        nested(Rules(FAMILIES["actuators"][0]), 80).blocks for _ in range(2)
    )
    assert first == second


def test_shared_parts_are_one_object() -> None:
    (block,) = nested(Rules("on: bool[30]\nsum(on) <= 3"), 200).blocks
    blocks: dict[int, Block] = {}
    stack = [block]
    while stack:
        current = stack.pop()
        if id(current) not in blocks:
            blocks[id(current)] = current
            stack += [inner for term in current.terms for inner in term.blocks]
    assert len({(b.outputs, b.size) for b in blocks.values()}) == len(blocks)


# --- the proof ------------------------------------------------------------------------------------------------


def faulty(block: Block, change: object) -> Block:
    """The block with its first innermost term changed."""
    for k, term in enumerate(block.terms):
        if term.blocks:
            inner = (faulty(term.blocks[0], change), *term.blocks[1:])
            return Block(
                block.outputs,
                (*block.terms[:k], replace(term, blocks=inner), *block.terms[k + 1 :]),
            )
    return Block(block.outputs, change(block.terms))  # type: ignore[operator]


def missing(terms: Sequence[Term]) -> tuple[Term, ...]:
    return tuple(terms[1:])


def wrong_value(terms: Sequence[Term]) -> tuple[Term, ...]:
    (variable, number), *rest = terms[-1].fixed
    return (*terms[:-1], replace(terms[-1], fixed=((variable, number + 1), *rest)))


@pytest.mark.parametrize("change", [missing, wrong_value])
@pytest.mark.parametrize(
    "text",
    [
        "on: bool[8]\nsum(on) <= 3",
        'c: {"r", "g", "b"}[5]\nall(c[i] != c[i + 1] for i in range(4))',
    ],
)
def test_the_certificate_sees_a_fault_deep_inside(text: str, change: object) -> None:
    specification = Rules(text).specification
    found = compile_rules(specification, max_terms=40, nested=True)
    proof_of(specification, found.blocks, complete=True)
    with pytest.raises(
        AssertionError, match=r"do not contain every point|does not imply"
    ):
        proof_of(specification, [faulty(found.blocks[0], change)], complete=True)


def test_a_false_claim_is_refused() -> None:
    specification = Rules("on: bool[8]\nsum(on) <= 3").specification
    found = compile_rules(specification, max_terms=40, nested=True)
    (block,) = found.blocks
    inner = next(part for term in block.terms for part in term.blocks)
    claims = {id(inner): (inner, conjunction([]))}
    with pytest.raises(AssertionError, match="not what it is said to be"):
        proof_of(specification, [block], complete=True, claims=claims)


# --- simplification -------------------------------------------------------------------------------------------------


@given(formulas(max_leaves=6))
@settings(max_examples=60)
def test_simplification_keeps_the_meaning(formula: Formula) -> None:
    before = normal_form(formula)
    parts = simplified(conjuncts(before))
    if parts is None:
        assert satisfiable(before, VARIABLES) is None
    else:
        assert equivalent(before, conjunction(parts), VARIABLES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: real; y: real\nx > 0; x <= 0 or y > 0", 2),
        ("x: real; y: real\nx > 0; x >= 0 or y > 0", 1),
        ("x: real; y: real\nx == 2; x + y <= 3 or y > 7", 2),
        ("n: int[0, 3]; x: real\nn <= 3; n >= 4 or x >= 1", 1),
        ("x: real\nx <= 3; x <= 2", 1),
    ],
)
def test_what_is_known_decides_the_rest(text: str, expected: int) -> None:
    parts = [normal_form(rule.formula) for rule in Rules(text).specification.rules]
    found = simplified(parts)
    assert found is not None
    assert len(found) == expected
