"""Formulas in z3: translation, models, implication, contradictions, and there and back for the whole corpus."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from itertools import combinations

import pytest
import z3
from corpus import CASES, FUNCTIONS, Case
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import back_from_z3, meaning, numeral_z3, proves
from strategies import VARIABLES, atoms, formulas, points

from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Formula,
    Linear,
    Not,
    Or,
    Real,
    Rule,
    Specification,
    Variable,
    holds,
)
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import specification_text
from multiplexnet.smt import questions as smt
from multiplexnet.smt.questions import (
    constant_z3,
    equivalent,
    implies,
    satisfiable,
    to_z3,
    unsat_core,
)
from multiplexnet.smt.smtlib import from_smtlib, to_smtlib

X, Y, N, ON, COLOUR, LIMIT = VARIABLES
x, y, n, on, colour, limit = (Linear.of(v) for v in VARIABLES)


# --- formula → z3 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (Atom(x * 2 - y + 1, "<="), "2*x + -1*y <= -1"),
        (Atom(-x + 2, "<"), "x > 2"),
        (Atom(x - Fraction(1, 10), "=="), "x == 1/10"),
        (Atom(on - 1, "=="), "on"),
        (Atom(on, "=="), "Not(on)"),
        (Atom(on * -1, "<"), "on"),
        (Atom(on - 1, "<="), "True"),
        (Atom(on - 2, "=="), "False"),
        (Atom(n * Fraction(1, 2) - Fraction(1, 3), "<="), "3*n <= 2"),
        (Atom(n + colour, "=="), "n + colour == 0"),
        (Atom(n + on - 1, "<="), "n + If(on, 1, 0) <= 1"),
        (Atom(x + n, "<="), "x + ToReal(n) <= 0"),
        (Atom(Linear.of(Apply("f", (x, n))) - 1, "<="), "f(x, ToReal(n)) <= 1"),
        (Atom(Linear.number(1), "<="), "False"),
        (And(()), "True"),
        (Or(()), "False"),
        (Not(Or((Atom(x, "=="), Atom(y, "==")))), "Not(Or(x == 0, y == 0))"),
    ],
)
def test_to_z3_reads_as_one_would_write_it(formula: Formula, expected: str) -> None:
    assert str(to_z3(formula)) == expected


@given(formulas(functions=("f",), depth=2), points())
@settings(deadline=None)
def test_z3_and_fractions_agree_at_every_point(
    formula: Formula, point: dict[Variable, Fraction]
) -> None:
    functions = {"f": lambda v: 2 * v - 1}
    real = z3.Real("argument")
    f = z3.Function("f", z3.RealSort(), z3.RealSort())
    values = [(constant_z3(v), numeral_z3(v, value)) for v, value in point.items()]
    there = z3.substitute_funs(
        z3.substitute(to_z3(formula), *values), (f, 2 * z3.Var(0, real.sort()) - 1)
    )
    assert z3.is_true(z3.simplify(there)) == holds(formula, point, functions)


def test_shared_parts_are_written_once() -> None:
    part: Formula = Atom(x, "<=")
    for _ in range(200):  # 2**200 leaves if each were written on its own
        part = And((part, Not(part)))
    assert z3.is_and(to_z3(part))


def test_depth_and_number_do_not_matter() -> None:
    deep: Formula = Atom(x, "<=")
    for i in range(5_000):
        deep = And((Or((deep, Atom(y - i, "<="))), Atom(y + i, "<")))
    assert satisfiable(deep) is not None
    assert satisfiable(And(tuple(Atom(x - i, "<=") for i in range(5_000)))) is not None


def test_contexts_are_kept_apart() -> None:
    context = z3.Context()
    formula = Or((Atom(n + on, "<="), Atom(x, "<")))
    assert to_z3(formula, context=context).ctx is context
    assert to_z3(formula).ctx is z3.main_ctx()


COLLECTED_IN_ANOTHER_THREAD = """
import gc
import threading

import z3

from multiplexnet.smt.context import new_context

class Ring:
    def __init__(self, held):
        self.held = held
        self.itself = self

def collect():
    while not is_done.wait(0.01):
        gc.collect()

context = new_context()
names = [z3.Int(f"x{i}", context) for i in range(50)]
rows = [z3.Sum([names[(k + j) % 50] * (j + 1) for j in range(10)]) <= k for k in range(100)]
gc.disable()
is_done = threading.Event()
collector = threading.Thread(target=collect)
collector.start()
for turn in range(40):
    for k in range(200):
        Ring([names[(k * 7 + j) % 50] * (turn * 31 + j * k + 2) <= j * k for j in range(20)])
    solver = z3.SimpleSolver(ctx=context)
    solver.add(*rows)
    assert solver.check() == z3.sat
is_done.set()
collector.join()
"""


def test_garbage_may_be_collected_in_another_thread() -> None:
    """With z3's own contexts, this ends the process within four seconds."""
    command = [sys.executable, "-c", COLLECTED_IN_ANOTHER_THREAD]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


# --- questions ------------------------------------------------------------------------------------------------------


@given(formulas(), points())
@settings(deadline=None)
def test_a_model_satisfies_and_none_means_none(
    formula: Formula, point: dict[Variable, Fraction]
) -> None:
    model = satisfiable(formula, VARIABLES)
    if model is None:
        assert not holds(formula, point)
        return
    assert holds(formula, model)
    assert list(model) == list(VARIABLES)
    assert all(
        model[v] in v.domain.values for v in VARIABLES if not isinstance(v.domain, Real)
    )
    assert -1 <= model[LIMIT] <= Fraction(5, 2)


def test_domains_count() -> None:
    assert satisfiable(Atom(n - 4, "==")) is None
    assert satisfiable(Atom(n * 2 - 1, "==")) is None
    assert satisfiable(Atom(limit * -1 + 3, "<=")) is None
    assert implies(And(()), Atom(colour - 2, "<="), [COLOUR])
    assert equivalent(Not(Atom(on, "==")), Atom(on - 1, "=="))
    assert not equivalent(Atom(x, "<="), Atom(x, "<"))


@given(st.lists(atoms(depth=0), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_core_is_a_smallest_contradiction(rules: list[Atom]) -> None:
    core = unsat_core(rules)

    def contradictory(chosen: tuple[int, ...]) -> bool:
        return satisfiable(And(tuple(rules[i] for i in chosen))) is None

    sizes = (
        k
        for k in range(1, len(rules) + 1)
        if any(map(contradictory, combinations(range(len(rules)), k)))
    )
    assert len(core) == next(sizes, 0)
    assert not core or contradictory(tuple(core))
    assert core == sorted(set(core))


LONG_AND_SHORT = [
    Atom(-x + 1, "<="),  # x >= 1
    Atom(x - y, "<="),  # x <= y
    Atom(y - limit, "<="),  # y <= limit
    Atom(limit, "<="),  # limit <= 0: the first four contradict each other
    Atom(y - 3, "<="),
    Atom(-y + 5, "<"),  # and so do these two
]


def test_a_short_contradiction_is_preferred_to_a_long_one() -> None:
    assert unsat_core(LONG_AND_SHORT) == [4, 5]
    assert unsat_core(LONG_AND_SHORT[:4]) == [0, 1, 2, 3]
    assert unsat_core(LONG_AND_SHORT[:3]) == []
    assert unsat_core([]) == []
    assert unsat_core([Atom(y, "<="), Atom(n - 7, "==")]) == [1]


def test_whatever_z3_finds_first_the_core_is_shrunk_and_made_smallest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(smt._CoreSearch, "first", lambda self: [0, 1, 2, 3])
    assert unsat_core(LONG_AND_SHORT) == [4, 5]
    monkeypatch.setattr(smt._CoreSearch, "first", lambda self: [0, 1, 2, 3, 4])
    assert unsat_core(LONG_AND_SHORT[:5]) == [0, 1, 2, 3]


def test_without_time_for_the_smallest_the_core_is_still_minimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(smt, "CORE_CHECKS", 0)
    monkeypatch.setattr(smt._CoreSearch, "first", lambda self: [0, 1, 2, 3, 4])
    assert unsat_core(LONG_AND_SHORT) == [0, 1, 2, 3]


def test_the_core_among_many_rules() -> None:
    rules = [Atom(x * (i % 7 + 1) - y - i, "<=") for i in range(400)]
    assert unsat_core([*rules, Atom(y + 1, "<"), Atom(-y - 1, "<=")]) == [400, 401]


def test_z3_giving_up_is_said() -> None:
    assert "resource" in str(smt.SolverGaveUp("resource limits"))


# --- there and back -------------------------------------------------------------------------------------------------


def specification(formula: Formula, functions: tuple[str, ...] = ()) -> Specification:
    return Specification(VARIABLES, (Rule(formula, "rule"),), functions)


@given(formulas(functions=("f",), depth=2))
@settings(max_examples=80, deadline=None)
def test_formula_to_z3_and_back_keeps_the_meaning(formula: Formula) -> None:
    given_ = specification(formula, ("f",))
    assert proves(meaning(back_from_z3(given_)) == meaning(given_))


@given(formulas(functions=("f",)))
@settings(max_examples=60, deadline=None)
def test_smtlib_and_back_keeps_the_meaning(formula: Formula) -> None:
    given_ = specification(formula, ("f",))
    again = from_smtlib(to_smtlib(given_))
    assert [(v.name, v.role) for v in again.variables] == [
        (v.name, v.role) for v in VARIABLES
    ]
    assert proves(meaning(again) == meaning(given_))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_text_to_z3_to_text_keeps_the_meaning(case: Case) -> None:
    given_ = parse(case.text)
    again = parse(specification_text(back_from_z3(given_)))
    assert {v.name for v in again.outputs} == {v.name for v in given_.outputs}
    assert proves(meaning(again) == meaning(given_))
    assert proves(meaning(from_smtlib(to_smtlib(given_))) == meaning(given_))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_z3_finds_what_is_known_of_the_corpus(case: Case) -> None:
    given_ = parse(case.text)
    assert (
        satisfiable(given_.formula, given_.variables) is not None
    ) == case.satisfiable
    assert (
        bool(unsat_core([rule.formula for rule in given_.rules], given_.variables))
        != case.satisfiable
    )
    again = back_from_z3(given_)
    for point, verdict in ((case.inside, True), (case.outside, False)):
        if point is not None:
            there = {v: Fraction(point[v.name]) for v in again.variables}
            assert holds(again.formula, there, FUNCTIONS) is verdict
