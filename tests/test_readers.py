"""Rules that were not written as text: arrays and schemas."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import z3

import multiplexnet as mx
from multiplexnet.compiler.identity import Comparisons
from multiplexnet.errors import SourceError
from multiplexnet.language.formula import Atom, Linear, Relation, Variable
from multiplexnet.smt.questions import to_z3


def dense(n: int, m: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    A = random.normal(size=(m, n)).round(3)
    return A, (np.abs(A).sum(axis=1) / 2 + 1).round(3)


def as_text(A: Any, b: Any) -> mx.Rules:
    lines = [f"x: real[{A.shape[1]}]"]
    for row, bound in zip(A.tolist(), b.tolist(), strict=True):
        lines.append(" + ".join(f"{c}*x[{i}]" for i, c in enumerate(row)) + f" <= {bound}")
    return mx.Rules("\n".join(lines))


# --- arrays ---------------------------------------------------------------------------------------------------------


def test_rows_from_arrays_are_compiled_to_the_terms_of_the_same_text() -> None:
    A, b = dense(6, 9)
    rules = mx.Rules.from_arrays(A, b)
    assert rules.compile().blocks == as_text(A, b).compile().blocks
    assert mx.Rules(str(rules)).formula == rules.formula
    assert [mx.Rules(f"x: real[6]\n{rule.text}").formula for rule in rules.specification.rules] == [
        rule.formula for rule in rules.specification.rules
    ]


def test_every_kind_of_array_gives_the_same_rules() -> None:
    A = np.array([[0.1, 0.0, -2.0], [0.0, 1.0, 1e-5]])
    b = np.array([1.5, 3.0])
    wanted = mx.Rules.from_arrays(A, b)
    coo = torch.tensor(A).to_sparse()
    exact = [[Fraction(1, 10), 0, -2], [0, Decimal(1), Decimal("1e-5")]]
    for given in (A.tolist(), scipy.sparse.coo_matrix(A), torch.tensor(A), coo, exact):
        assert mx.Rules.from_arrays(given, torch.tensor(b)).formula == wanted.formula
    single = mx.Rules.from_arrays(np.array([[0.1]], dtype=np.float32), [1])
    assert single.formula == mx.Rules("x: real[1]\n0.1*x[0] <= 1").formula


def test_equalities_names_and_rows_that_say_nothing() -> None:
    rules = mx.Rules.from_arrays([[1, -1]], [np.inf], C=[[1, 2]], d=[3], names=["low", "high"])
    assert [rule.text for rule in rules.specification.rules] == ["low + 2*high == 3"]
    assert [v.name for v in mx.Rules.from_arrays([[1, 1]], [0], names="w").outputs] == [
        "w[0]",
        "w[1]",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither A and b nor C and d were given"),
        ({"A": [[1]]}, "A was given without b: the rows are A x <= b"),
        ({"A": [1], "b": [1]}, r"A has shape \(1,\): it needs two dimensions"),
        ({"A": [[1], [2]], "b": [1]}, r"b has shape \(1,\); A has 2 rows, so b needs shape \(2,\)"),
        ({"A": [[1, 2], [3]], "b": [1, 2]}, "A is no array: its rows are not all of one length"),
        ({"A": [[1, float("nan")]], "b": [1]}, r"A\[0, 1\] is nan: a finite number is needed"),
        ({"A": [[1]], "b": [-np.inf]}, r"b\[0\] is -inf: a finite number is needed"),
        ({"A": [["1"]], "b": [1]}, r"A\[0, 0\] is a value of type str"),
        ({"A": [[1]], "b": [1], "C": [[1, 2]], "d": [0]}, "A has 1 columns and C has 2"),
        (
            {"A": [[1, 2]], "b": [1], "names": ["a"]},
            "names= holds 1 names, and there are 2 columns",
        ),
        ({"A": [[1, 2]], "b": [1], "names": ["a", "a"]}, "the name 'a' stands twice"),
        ({"A": [[1]], "b": [1], "names": ["sum"]}, "`sum` is a word of the language"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        mx.Rules.from_arrays(**arguments)


def test_a_large_plain_conjunction_needs_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("z3 was asked")

    A, b = dense(40, 120)
    monkeypatch.setattr(z3, "Z3_solver_check_assumptions", asked)
    monkeypatch.setattr(z3.Solver, "check", asked)
    rules = mx.Rules.from_arrays(A, b)
    mux = mx.Multiplexer(rules)
    assert mux.compiled.proof.complete
    assert rules.satisfied(mux(torch.randn(64, mux.in_features) * 30).best()).all()


def test_rules_from_arrays_are_saved_certified_and_contradicted() -> None:
    A, b = dense(3, 5)
    mux = mx.Multiplexer(mx.Rules.from_arrays(A, b, C=[[1, 1, 1]], d=[0.5]))
    assert mx.certify(mux.certificate).certified
    again = mx.Multiplexer.from_state(mux.state_dict())
    assert again.rules == mux.rules
    with pytest.raises(mx.ContradictionError, match=r"x\[0\] <= 1\n.*-x\[0\] <= -2"):
        mx.Rules.from_arrays([[1], [-1]], [1, -2]).compile()


# --- what follows without a solver ----------------------------------------------------------------------------------


def test_a_comparison_follows_from_its_own_numbers_exactly_when_z3_says_so() -> None:
    x, y = Linear.of(Variable("x", 0)), Linear.of(Variable("y", 1))
    lefts = [x * 2 - y * 3, x * -4 + y * 6, x * Fraction(2, 3) - y]
    relations: list[Relation] = ["<=", "<", "=="]
    atoms = [Atom(left + c, r) for left in lefts for c in (0, 1) for r in relations]
    written = {atom: to_z3(atom) for atom in atoms}
    for premise in atoms:
        known = Comparisons([premise])
        for conclusion in atoms:
            solver = z3.Solver()
            solver.add(written[premise], z3.Not(written[conclusion]))
            assert known.imply(conclusion) == (solver.check() == z3.unsat), (premise, conclusion)
    both = Comparisons([Atom(x - 1, "<="), Atom(-x + 1, "<=")])
    assert both.imply(Atom(x * 2 - 2, "=="))
    assert not both.imply(Atom(x - 1, "<"))
