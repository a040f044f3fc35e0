"""Verdicts against fractions: on floats chosen to break float arithmetic, and on ordinary ones in bulk."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fractions import Fraction
from math import inf, isfinite, nan
from time import perf_counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multiplexnet.errors import DtypeError, InputError, ShapeError
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
from multiplexnet.rules import Rules
from multiplexnet.verdicts.columns import Column
from multiplexnet.verdicts.evaluation import ExactRows, largest_violation, truth
from multiplexnet.verdicts.satisfaction import satisfied, verdict, violation, violations

X = tuple(Variable(f"x[{i}]", i) for i in range(3))


def linear(
    coefficients: Iterable[Fraction | int], constant: Fraction | int = 0
) -> Linear:
    return Linear.total(
        {x: Fraction(c) for x, c in zip(X, coefficients, strict=False)}, constant
    )


# --- random formulas and floats -------------------------------------------------------------------------------------

awkward = [
    0.0,
    -0.0,
    0.1,
    0.2,
    0.3,
    -0.3,
    1 / 3,
    1.0,
    2.0,
    3.0,
    1e16,
    1e16 + 2,
    1e30,
    -1e30,
    1.7e308,
    5e-324,
    2.5e-310,
    1e-200,
]
numbers = (
    st.sampled_from(awkward)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-5, 5).map(float)
)
coefficients = (
    st.integers(-3, 3).map(Fraction)
    | st.sampled_from(
        [
            Fraction(1, 10),
            Fraction(3, 10),
            Fraction(1, 3),
            Fraction(10**40),
            Fraction(1, 10**40),
        ]
    )
    | st.fractions(max_denominator=1000)
    | st.integers(-(2**70), 2**70).map(Fraction)
)
linears = st.builds(
    linear,
    st.tuples(coefficients, coefficients, coefficients),
    coefficients | st.just(Fraction(0)),
)
atoms = st.builds(Atom, linears, st.sampled_from(["<=", "<", "=="]))


def _nested(children: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    parts = st.lists(children, max_size=3).map(tuple)
    chosen = st.builds(Ite, children, linears, linears) | st.builds(
        Max, st.lists(linears, min_size=2, max_size=3).map(tuple)
    )
    with_symbol = st.builds(
        lambda symbol, rest, relation: Atom(Linear.of(symbol) + rest, relation),
        chosen,
        linears,
        st.sampled_from(["<=", "<", "=="]),
    )
    return (
        with_symbol
        | st.builds(Not, children)
        | st.builds(And, parts)
        | st.builds(Or, parts)
        | st.builds(Iff, children, children)
    )


formulas = st.recursive(atoms, _nested, max_leaves=6)


def ties(point: tuple[float, ...], a: Linear) -> Linear:
    """The same expression, moved so that it is zero at the point."""
    return a - sum(
        (
            c * Fraction(point[X.index(x)])
            for x, c in a.summands
            if isinstance(x, Variable)
        ),
        a.constant,
    )


def columns(points: list[tuple[float, ...]]) -> dict[Variable, np.ndarray]:
    return dict(
        zip(X, np.array(points, dtype=np.float64).reshape(-1, 3).T, strict=True)
    )


def exactly(formula: Formula, points: list[tuple[float, ...]]) -> list[bool]:
    return [
        holds(formula, {x: Fraction(v) for x, v in zip(X, p, strict=True)})
        for p in points
    ]


points = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=5)


@settings(deadline=None, max_examples=150)
@given(formulas, points)
def test_agrees_with_fractions(
    formula: Formula, points: list[tuple[float, ...]]
) -> None:
    assert satisfied(formula, columns(points)).tolist() == exactly(formula, points)


@settings(deadline=None, max_examples=100)
@given(linears, points, st.sampled_from(["<=", "<", "=="]))
def test_agrees_with_fractions_on_the_boundary(
    a: Linear, points: list[tuple[float, ...]], relation: str
) -> None:
    atom = Atom(ties(points[0], a), relation)  # type: ignore[arg-type]
    assert satisfied(atom, columns(points)).tolist() == exactly(atom, points)


@settings(deadline=None, max_examples=100)
@given(formulas, points)
def test_violation_is_zero_exactly_where_satisfied(
    formula: Formula, points: list[tuple[float, ...]]
) -> None:
    amounts = violation(formula, columns(points))
    assert (amounts >= 0).all()
    assert (amounts == 0).tolist() == exactly(formula, points)


@settings(deadline=None, max_examples=100)
@given(formulas, points)
def test_not_of_a_formula_is_the_opposite_verdict(
    formula: Formula, points: list[tuple[float, ...]]
) -> None:
    assert (
        satisfied(Not(formula), columns(points)) == ~satisfied(formula, columns(points))
    ).all()


@settings(deadline=None, max_examples=100)
@given(formulas, points)
def test_largest_violation_is_exact(
    formula: Formula, points: list[tuple[float, ...]]
) -> None:
    rows = ExactRows({x: Column((c,)) for x, c in columns(points).items()})
    violating = np.flatnonzero(~truth(formula, rows))
    if len(violating):
        largest = largest_violation(formula, rows, violating)
        singles = [
            largest_violation(formula, rows, violating[k : k + 1])
            for k in range(len(violating))
        ]
        assert largest == max(singles)


# --- by hand --------------------------------------------------------------------------------------------------------


def test_a_naive_evaluation_would_be_wrong() -> None:
    rule = Atom(linear([1, 1, -1]), "==")
    data = columns([(0.1, 0.2, 0.1 + 0.2), (0.5, 0.25, 0.75), (1e16, 1.0, 1e16)])
    x, y, z = data.values()
    assert (x + y - z == 0).tolist() == [True, True, True]
    assert satisfied(rule, data).tolist() == [False, True, False]


def test_decimals_in_rules_are_exact() -> None:
    tenth = Atom(linear([1], Fraction(-1, 10)), "<=")
    assert satisfied(
        tenth, columns([(0.1, 0, 0), (float(np.nextafter(0.1, 0)), 0, 0)])
    ).tolist() == [False, True]


def test_integers_beyond_53_bits_together() -> None:
    x, y = 2.0**53 - 3, 2.0**53 - 1
    z = float(3 * int(x) - 2 * int(y))
    rule = Atom(linear([3, -2, -1]), "==")
    assert satisfied(
        rule, columns([(x, y, z), (x, y, z - 1), (x, y, z + 1)])
    ).tolist() == [
        True,
        False,
        False,
    ]


def test_the_largest_violation_is_not_the_least_certain_one() -> None:
    rows = ExactRows(
        {
            v: Column((c,))
            for v, c in columns([(1e16 + 2, 1e16, 0.0), (3.0, 0.0, 0.0)]).items()
        }
    )
    assert largest_violation(Atom(linear([1, -1]), "<="), rows, np.array([0, 1])) == 3


def test_a_verdict_does_not_depend_on_the_other_rows() -> None:
    """The first row alone is short enough for plain floats, and with the second one it is not."""
    rules = Rules("x: real; y: real[2]\nnorm(y) <= x + 47.50000005")
    rows = np.array([[-47.5, 1.0, 1.0], [1e38, 1.0, 1.0]])
    assert rules.satisfied(rows).tolist() == [False, True]
    assert rules.satisfied(rows[:1]).tolist() == [False]
    bound = Rules("x <= -47.50000005")
    far = bound.violation(rows[:, :1])
    assert far[0, 0] == pytest.approx(5e-8)
    assert far[0, 0] == bound.violation(rows[:1, :1])[0, 0]


def test_no_row_with_nan_or_infinity_obeys() -> None:
    data = columns([(nan, 0, 0), (0, inf, 0), (0, 0, -inf), (0, 0, 0)])
    assert satisfied(TRUE, data).tolist() == [False, False, False, True]
    assert violation(Atom(linear([1]), "<="), data).tolist() == [inf, inf, inf, 0]


def test_violations_of_each_kind_of_formula() -> None:
    data = columns([(5.0, -2.0, 0.0)])
    x, y, z = (Linear.of(v) for v in X)
    cases: list[tuple[Formula, float]] = [
        (Atom(x - 2, "<="), 3.0),
        (Atom(x - 5, "<"), sys.float_info.min),
        (Not(Atom(x - 5, "==")), sys.float_info.min),
        (Atom(x - 7, "=="), 2.0),
        (And((Atom(x - 2, "<="), Atom(x - 1, "<="))), 4.0),
        (Or((Atom(x - 2, "<="), Atom(x - 1, "<="))), 3.0),
        (Not(Or((Atom(y, "<="), Atom(x, "<=")))), 2.0),
        (Iff(Atom(x, "<="), Atom(y, "<=")), 2.0),
        (FALSE, inf),
        (TRUE, 0.0),
        (Atom(Linear.of(Max((-x, x))) - 1, "<="), 4.0),
        (Atom(Linear.of(Ite(Atom(z, "=="), x, y)), "<="), 5.0),
        (Atom(x * Fraction(1, 3) - 1, "<="), 2 / 3),
    ]
    assert [float(violation(f, data)[0]) for f, _ in cases] == [
        amount for _, amount in cases
    ]


def test_the_largest_of_forty_arguments() -> None:
    many = Max(tuple(linear([1, k]) for k in range(40)))
    data = columns([(1.0, 1.0, 0.0), (1.0, -1.0, 0.0), (0.1, 0.1, 0.0)])
    assert satisfied(Atom(Linear.of(many) - 40, "=="), data).tolist() == [
        True,
        False,
        False,
    ]


def test_opaque_functions_are_evaluated_once_and_read_as_exact() -> None:
    f = Apply("f", (linear([1, 1]),))
    rule = Atom(Linear.of(f) - Linear.of(X[2]), "<=")
    data = columns([(0.1, 0.2, 0.1 + 0.2), (0.1, 0.2, 0.3), (1.0, 1.0, 9.0)])
    assert satisfied(rule, data, {"f": lambda s: s}).tolist() == [True, False, True]
    assert violation(
        rule, data, {"f": lambda s: np.where(s > 1, nan, 0.0)}
    ).tolist() == [0, 0, inf]


def test_functions_inside_maxima_near_overflow() -> None:
    larger = Max((Linear.of(Apply("f", (linear([1]),))) * 3, linear([0, 1])))
    data = columns([(1e308, 1.0, 0.0), (1.0, 5.0, 0.0)])
    rule = Atom(Linear.of(larger) - 5, "<=")
    assert satisfied(rule, data, {"f": lambda s: s}).tolist() == [False, True]


# --- tensors --------------------------------------------------------------------------------------------------------

limit = Variable("limit", 4, Real(), "input")
count = Variable("count", 3, Int(0, 9))
RULES = Specification(
    (X[0], X[1], count, limit),
    (
        Rule(Atom(linear([1, 1]) - Linear.of(limit), "<="), "x[0] + x[1] <= limit", 3),
        Rule(Atom(Linear.of(count) - 5, "<"), "count < 5", 4),
    ),
)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize("batch", [(), (0,), (4,), (2, 3)])
def test_every_dtype_and_batch_shape(
    dtype: torch.dtype, batch: tuple[int, ...]
) -> None:
    x = torch.ones(*batch, 3, dtype=dtype)
    answer = verdict(RULES, x, {"limit": torch.full(batch, 2.0, dtype=dtype)})
    assert answer.dtype == torch.bool
    assert answer.shape == batch
    assert answer.all()
    assert not verdict(RULES, x, {"limit": 1.5}).any()
    assert violations(RULES, x, {"limit": 1.5}).shape == (*batch, 2)


def test_arrays_give_arrays_and_violations_agree_with_the_verdict() -> None:
    x = np.array(
        [
            [1.0, 1.0, 3.0],
            [1.0, 1.0, 3.5],
            [1.0, 1.0, 12.0],
            [1.0, 2.0, 7.0],
            [nan, 0.0, 0.0],
        ]
    )
    assert verdict(RULES, x, {"limit": 2}).tolist() == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert violations(RULES, x, {"limit": 2}).tolist() == [
        [0, 0],
        [inf, inf],
        [inf, inf],
        [1, 2],
        [inf, inf],
    ]


def test_discrete_outputs_outside_their_domain_never_obey() -> None:
    outputs = (
        Variable("on", 0, Bool()),
        Variable("colour", 1, Category(("red", "green", "blue"))),
    )
    anything = Specification(outputs, (Rule(TRUE, "True"),))
    x = np.array(
        [
            [0.0, 2.0],
            [1.0, 0.0],
            [0.5, 0.0],
            [2.0, 0.0],
            [0.0, 3.0],
            [0.0, -1.0],
            [1e300, 0.0],
            [5e-324, 0.0],
        ]
    )
    assert verdict(anything, x).tolist() == [
        True,
        True,
        False,
        False,
        False,
        False,
        False,
        False,
    ]


def test_functions_get_the_tensor_as_the_network_does() -> None:
    seen: list[tuple[torch.Size, torch.dtype]] = []

    def f(a: torch.Tensor) -> torch.Tensor:
        seen.append((a.shape, a.dtype))
        return torch.sin(a)

    rules = Specification(
        (X[0], X[1]),
        (
            Rule(
                Atom(Linear.of(Apply("f", (linear([1]),))) - linear([0, 1]), "<="), "f"
            ),
        ),
        ("f",),
    )
    x = torch.linspace(-3, 3, 8, dtype=torch.float32).reshape(2, 4, 1)
    x = torch.cat([x, torch.sin(x)], -1)
    assert verdict(rules, x, functions={"f": f}).all()
    assert seen == [(torch.Size([2, 4]), torch.float32)]


def test_no_variable_at_all() -> None:
    assert verdict(
        Specification((), (Rule(FALSE, "False"),)), np.zeros((2, 0))
    ).tolist() == [
        False,
        False,
    ]
    assert satisfied(TRUE, {}).tolist() == []


def test_what_does_not_fit_is_said() -> None:
    x = torch.zeros(4, 3)
    with pytest.raises(
        ShapeError,
        match=r"x has shape \(4, 2\); the rules have 3 outputs \(x\[0\], x\[1\], count\)",
    ):
        verdict(RULES, x[:, :2], {"limit": 1.0})
    with pytest.raises(ShapeError, match=r"x has shape \(\)"):
        verdict(RULES, torch.tensor(1.0), {"limit": 1.0})
    with pytest.raises(
        ShapeError,
        match=r"input limit has shape \(4, 1\); one value for each row of x means shape \(4,\)",
    ):
        verdict(RULES, x, {"limit": torch.zeros(4, 1)})
    with pytest.raises(
        DtypeError,
        match=r"x has dtype torch.int64: give floats, for example x.double\(\)",
    ):
        verdict(RULES, x.long(), {"limit": 1.0})
    with pytest.raises(
        DtypeError, match=r"input limit has dtype complex128: give real numbers"
    ):
        verdict(RULES, x, {"limit": np.zeros(4, dtype=np.complex128)})
    with pytest.raises(
        InputError, match=r"the rules need a value for limit: pass limit=…"
    ):
        verdict(RULES, x)
    with pytest.raises(
        InputError,
        match=r"'limits' is not an input of the rules \(their inputs: limit\)",
    ):
        verdict(RULES, x, {"limits": 1.0, "limit": 2.0})
    with pytest.raises(InputError, match=r"'g' is not a function of the rules"):
        verdict(RULES, x, {"limit": 1.0}, {"g": abs})
    with pytest.raises(InputError, match=r"the rules call f\(…\): give the function"):
        satisfied(
            Atom(Linear.of(Apply("f", (linear([1]),))), "<="), columns([(1, 1, 1)])
        )


# --- in bulk --------------------------------------------------------------------------------------------------------


def _bulk(kind: str, rng: np.random.Generator) -> dict[Variable, np.ndarray]:
    x = rng.normal(size=(3, 200_000))
    if kind == "ties":
        x[1] = x[0]
    if kind == "integers":
        x = rng.integers(-3, 4, size=x.shape).astype(np.float64)
    if kind == "one huge value":
        x[0, 17] = 1e300
    return dict(zip(X, x, strict=True))


@pytest.mark.parametrize("kind", ["ordinary", "ties", "integers", "one huge value"])
def test_bulk_is_right_and_fast(kind: str) -> None:
    data = _bulk(kind, np.random.default_rng(0))
    rule = Or(
        (Atom(linear([1, -1]), "<="), Atom(linear([1, 2, 3], Fraction(1, 3)), "=="))
    )
    start = perf_counter()
    answer = satisfied(rule, data)
    assert perf_counter() - start < 1.0
    some = [*range(0, 200_000, 4001), 17]
    assert answer[some].tolist() == exactly(
        rule, [tuple(float(c[i]) for c in data.values()) for i in some]
    )


def test_integers_of_64_bits_are_exact() -> None:
    numbers = [2**63 - 1, -(2**63), 2**62 + 1, 5, 2**53 + 1, 0]
    column = Column.integers(np.array(numbers, dtype=np.int64))
    assert [column.exact(i) for i in range(len(numbers))] == numbers
    assert all(isfinite(p) for part in column.parts for p in part)


def test_rows_of_different_lengths_are_refused() -> None:
    rules = Rules("x: real[2]\nall(x >= 0)")
    with pytest.raises(ShapeError, match="x is a list whose parts have different len"):
        rules.satisfied([[1.0], [1.0, 2.0]])  # type: ignore[type-var]
