"""Which structure a block gets, that all of what inputs leave is reached, and what is said of it."""

from __future__ import annotations

import copy
import time
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import multiplexnet as mx
from multiplexnet.compiler.cascade.build import Budget
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    ContradictionError,
    DtypeError,
    InputError,
    RangeError,
)
from multiplexnet.language.formula import variables
from multiplexnet.language.text import formula_text
from multiplexnet.reports.text import explain_json
from multiplexnet.transforms import DTYPES

MOVED = {
    "a thin band": (
        "d: input[0, 1000]; a: real; b: real; 0 <= a <= 500; 0 <= b <= 600; d <= a + b <= d + 0.01",
        {"d": "300.25"},
    ),
    "a simplex": (
        "u: input[1, 9]; a: real; b: real; c: real; a >= 0; b >= 0; c >= 0; a + b + c <= u; a <= 2*b",
        {"u": "7.75"},
    ),
    "two inputs": (
        "u: input[1, 9]; v: input[0, 5]; a: real; b: real; -20 <= a <= 20; -20 <= b <= 20\n"
        "a - b <= u; b - a <= v; a + b <= 10; 3*a + 2*b >= -20",
        {"u": "7.75", "v": "0.5"},
    ),
}


CHOSEN = {
    "a thin band or nothing": (
        "d: input[10, 100]; a: real; b: real; 0 <= a <= 100; 0 <= b <= 100\n"
        "d <= a + b <= d + 0.01 or a + b <= 1",
        {"d": "50.25"},
    ),
    "a simplex or a chain": (
        "u: input[0, 5]; v: input[20, 30]; x: real; y: real; z: real\n"
        "x + y + z <= v and x >= u and y >= 0 and z >= 0 or -6 <= x <= -5 and x <= y <= v and y <= z <= x + 0.5",
        {"u": "4.5", "v": "25.25"},
    ),
    "the one of the README": (
        "limit: input[250, 1000]; a: real; b: real; b >= -500\n"
        "a == 0 or 200 < a < 400\nimplies(a > 0, b >= a + 2)\nb <= limit",
        {"limit": "500.5"},
    ),
}
"""What inputs move, and something to choose: terms serve these, since they have losses over the choice."""


def fixed(text: str, inputs: dict[str, str]) -> mx.Rules:
    """The rules with numbers in the place of inputs."""
    lines = [f"{name}: real; {name} == {number}" for name, number in inputs.items()]
    kept = text.replace("\n", ";").split(";")
    return mx.Rules("\n".join([*lines, *(k for k in kept if "input" not in k)]))


def declared(text: str) -> str:
    """The declarations of outputs alone, a line each."""
    kept = [part for part in text.replace("\n", ";").split(";") if ": real" in part]
    return "\n".join(kept) + "\n"


@pytest.mark.parametrize("name", MOVED)
def test_all_of_what_inputs_leave_is_reached(name: str) -> None:
    text, inputs = MOVED[name]
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules)
    assert mux.cascades
    given: dict[str, Any] = {
        n: torch.full((20_000,), float(v)) for n, v in inputs.items()
    }
    x = mux(3 * torch.randn(20_000, mux.in_features), **given).best()
    assert rules.satisfied(x, **given).all()
    true = {
        found.variable.name: found for found in fixed(text, inputs).explain().ranges
    }
    for j, output in enumerate(rules.outputs):
        found = true[output.name]
        assert found.lower is not None
        assert found.upper is not None
        slack = float(found.upper - found.lower) / 100
        assert float(x[:, j].min()) <= float(found.lower) + slack
        assert float(x[:, j].max()) >= float(found.upper) - slack


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CHOSEN)
def test_all_of_every_term_that_inputs_move_is_reached(
    name: str, dtype: torch.dtype
) -> None:
    text, inputs = CHOSEN[name]
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=dtype)
    assert not mux.cascades
    given: dict[str, Any] = {
        n: torch.full((20_000,), float(v), dtype=dtype) for n, v in inputs.items()
    }
    branches = mux((3 * torch.randn(20_000, mux.in_features)).to(dtype), **given)
    numbers = {n: str(float(values[0])) for n, values in given.items()}
    spacing = torch.finfo(dtype).eps
    for k, term in enumerate(mux.terms):
        own = "\n".join(map(formula_text, term.rows))
        x = branches.x[:, k]
        still = not any(v.is_input for row in term.rows for v in variables(row))
        if still or (dtype is torch.bfloat16 and x.isnan().all()):
            continue  # in bfloat16 no two floats add up to a number of the band
        true = {
            found.variable.name: found
            for found in fixed(declared(text) + own, numbers).explain().ranges
        }
        for j, output in enumerate(rules.outputs):
            found = true[output.name]
            assert found.lower is not None
            assert found.upper is not None
            lower, upper = float(found.lower), float(found.upper)
            slack = (upper - lower) / 100 + spacing * max(abs(lower), abs(upper))
            assert float(x[:, j].min()) <= lower + slack
            assert float(x[:, j].max()) >= upper - slack


def dense(n: int, m: int) -> tuple[np.ndarray, str]:
    """Rows that tie every output to every other one, and their rules with an input on the right."""
    A = np.random.default_rng(1).normal(size=(m, n)).round(2)
    rows = [" + ".join(f"({a})*x[{j}]" for j, a in enumerate(row)) for row in A]
    rules = "\n".join(f"{row} <= u" for row in rows)
    return A, f"u: input[5, 10]; x: real[{n}]; all(-10 <= v <= 10 for v in x)\n{rules}"


@pytest.fixture(scope="module")
def dense_layer() -> tuple[np.ndarray, mx.Multiplexer]:
    A, text = dense(5, 20)
    return A, mx.Multiplexer(mx.Rules(text), dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dense_polytope_that_inputs_move_is_obeyed(
    dense_layer: tuple[np.ndarray, mx.Multiplexer], dtype: torch.dtype
) -> None:
    _, built = dense_layer
    mux = copy.deepcopy(built).to(dtype)
    raw = 3 * torch.randn(400, 5)
    raw[100:200] *= 1e4
    raw[200:300] *= 1e30
    raw[300:] *= torch.inf
    u = (5 + 5 * torch.rand(400)).to(dtype)
    u[::7], u[1::7] = 5, 10
    x = mux(raw.to(dtype).nan_to_num(0.0, torch.inf, -torch.inf), u=u).best()
    assert mux.rules.satisfied(x, u=u).all()
    again = mx.Multiplexer.from_state(mux.state_dict())
    assert torch.equal(again(raw.to(dtype), u=u).best(), mux(raw.to(dtype), u=u).best())


def test_raw_values_of_ordinary_size_lead_into_every_corner_of_a_dense_polytope(
    dense_layer: tuple[np.ndarray, mx.Multiplexer],
) -> None:
    A, mux = dense_layer
    corners = [
        linprog(sign * np.eye(5)[j], A, np.full(20, 7.5), bounds=(-10, 10)).x
        for j in range(5)
        for sign in (-1, 1)
    ]
    u = torch.full((10,), 7.5, dtype=torch.float64)
    centre = mux(torch.zeros(10, 5, dtype=torch.float64), u=u).best()
    wanted = centre + 0.99 * (torch.tensor(np.array(corners)) - centre)
    ((_, maps),) = mux.block_maps()
    index = torch.zeros(10, dtype=torch.int64)
    raw = maps.inverse(wanted, index, inputs=u[:, None])
    assert raw.abs().max() < 20
    assert (mux(raw, u=u).best() - wanted).abs().max() < 1e-6


def test_a_moved_band_with_a_choice_is_learned_by_the_loss_over_terms() -> None:
    text, _ = CHOSEN["a thin band or nothing"]
    mux = mx.Multiplexer(mx.Rules(text))
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, mux.in_features)
    )
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    d = 10 + 90 * torch.rand(128)
    a = 0.15 * d
    target = torch.stack([a, d - a + 0.005], -1)
    error = torch.tensor(0.0)
    for _ in range(200):
        branches = mux(net(d[:, None] / 50 - 1), d=d)
        optimizer.zero_grad()
        branches.loss(
            lambda x: (x - target.unsqueeze(-2)).square().sum(-1)
        ).mean().backward()
        optimizer.step()
        error = (branches.best().detach() - target).abs().mean()
    assert float(error) < 0.6


def test_what_inputs_move_has_losses_over_its_one_term() -> None:
    text, _ = MOVED["a simplex"]
    mux = mx.Multiplexer(mx.Rules(text))
    raw = torch.randn(5, mux.in_features, requires_grad=True)
    branches = mux(raw, u=torch.full((5,), 3.0))
    assert branches.x.shape == (5, 1, 3)
    assert torch.equal(branches.x.squeeze(-2), branches.best())
    branches.loss(lambda x: x.square().sum(-1)).sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


def test_what_has_no_ends_or_is_dense_stays_with_terms() -> None:
    unbounded = "u: input[0, 9]; a: real; b: real; a + b <= u; a >= b"
    assert not mx.Multiplexer(mx.Rules(unbounded)).cascades
    torch.manual_seed(7)
    rows = torch.randint(-9, 10, (14, 6)).tolist()
    dense = "\n".join(
        ["x: real[6]", "all(-9 <= v <= 9 for v in x)"]
        + [
            f"{' + '.join(f'{c}*x[{i}]' for i, c in enumerate(row))} <= 40"
            for row in rows
        ]
    )
    assert not mx.Multiplexer(mx.Rules(dense)).cascades
    still = "a: real; b: real; a >= 0; b >= 0; a + b <= 3"
    assert not mx.Multiplexer(mx.Rules(still)).cascades


def test_an_input_without_an_output_is_refused_when_the_layer_is_built() -> None:
    with pytest.raises(
        InputError, match="no output obeys the rules: declare narrower ranges"
    ):
        mx.Multiplexer(
            mx.Rules("u: input[0, 9]; a: real; b: real; a >= 2; b >= 1; a + b <= u")
        )
    mx.Multiplexer(
        mx.Rules("u: input[3, 9]; a: real; b: real; a >= 2; b >= 1; a + b <= u")
    )
    with pytest.raises(ContradictionError):
        mx.Multiplexer(
            mx.Rules("u: input[0, 1]; a: real; b: real; a >= 2; b >= 1; a + b <= u")
        )


def test_wide_whole_numbers_build_at_once() -> None:
    start = time.process_time()
    mux = mx.Multiplexer(mx.Rules("n: int[0, 100000]"))
    assert time.process_time() - start < 5
    x = mux(3 * torch.randn(5_000, mux.in_features)).best()
    assert x.max() - x.min() > 99_000


# --- what is said ---------------------------------------------------------------------------------------------------


def test_rules_of_many_terms_are_explained_in_a_second() -> None:
    rules = mx.Rules(
        "x: real[30]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 300; x[0] <= 500"
    )
    rules.explain()  # what is loaded once is loaded
    start = time.process_time()
    found = rules.explain()
    assert time.process_time() - start < 3
    (cascade,) = found.cascades
    assert cascade.why == "it has more than 256 terms"
    assert len(cascade.order) == 30
    assert cascade.options == (2,) * 30
    assert [rule.text for rule in found.implied] == ["x[0] <= 500"]
    assert {r.lower for r in found.ranges} == {Fraction(0)}
    assert {r.upper for r in found.ranges} == {Fraction(100)}
    text = str(found)
    assert "a cascade, since it has more than 256 terms" in text
    assert "order: x[0]" in text
    assert "grid in float32: multiples of 7.63e-06" in text
    (data,) = explain_json(found)["cascades"]
    assert data["order"][0] == "x[0]"
    assert data["steps"]["x[0]"] == "0.00000762939453125"


def test_times_and_cents_are_explained_in_their_units() -> None:
    """Times are beyond float32's whole numbers, which once was an error instead of an explanation."""
    found = mx.Rules(
        't: datetime; n: int[0, 9]\nt >= "2024-01-01 12:30"; n >= 3'
    ).explain()
    (cascade,) = found.cascades
    assert cascade.form == "float64"
    assert "grid in float64: multiples of 1 for t" in str(found)
    cents = mx.Rules(
        "a: decimal(2)[0, 900]; b: decimal(2)[0, 900]\na + b <= 99"
    ).explain()
    assert "grid in float32: multiples of 0.01 for a, b" in str(cents)
    assert explain_json(cents)["cascades"][0]["steps"] == {"a": "0.01", "b": "0.01"}


def test_contradictions_and_inputs_are_told_of_cascades() -> None:
    lots = "x: real[12]; all(v == 0 or 10 <= v <= 100 for v in x); "
    found = mx.Rules(lots + "sum(x) <= 300; sum(x) >= 301").explain()
    assert {rule.text for rule in found.contradiction} == {
        "sum(x) <= 300",
        "sum(x) >= 301",
    }
    found = mx.Rules(
        "u: input[0, 9]; a: real; b: real; a >= 2; b >= 1; a + b <= u"
    ).explain()
    assert found.uncovered_input is not None
    found = mx.Rules(
        "u: input[0, 9]; a: real; b: real; a >= 0; b >= 0; a + b <= u"
    ).explain()
    assert found.cascades[0].why == "inputs bound outputs that depend on each other"
    assert found.uncovered_input is None


def test_a_layer_says_what_was_chosen_and_why() -> None:
    text = repr(
        mx.Multiplexer(mx.Rules("n: int[0, 100000]; z: real; z >= 2 or z <= 1"))
    )
    assert "terms=2" in text
    assert "cascade of 1 output with 0 options (n has 100,001 values; order n)" in text
    asked = mx.Multiplexer(
        mx.Rules("a: real; b: real; 0 <= a <= b; b <= 3"), structure="cascade"
    )
    assert "it was asked for; order a, b" in repr(asked)
    again = mx.Multiplexer.from_state(asked.state_dict())
    assert repr(again) == repr(asked)


# --- bad input ------------------------------------------------------------------------------------------------------


def test_an_input_for_which_nothing_obeys_names_the_row_and_the_rule() -> None:
    rules = mx.Rules(
        "d: input[5, 900]; x: real[10]; all(v == 0 or 10 <= v <= 100 for v in x)\nsum(x) == d"
    )
    mux = mx.Multiplexer(rules)
    with pytest.raises(
        InputError,
        match=r"no output on the grid obeys `sum\(x\) == d` \(line 2\): row 1\.",
    ) as told:
        mux(torch.randn(3, mux.in_features), d=torch.tensor([50.0, 5.0, 20.0]))
    assert "declare narrower ranges" in str(told.value)


def test_an_input_off_the_grid_names_the_grid_and_the_helper() -> None:
    rules = mx.Rules(
        "u: input[0, 6]; x: real; y: real; -3 <= x <= 3; 0 <= y <= 3; x + y == u"
    )
    mux = mx.Multiplexer(rules, dtype=torch.bfloat16)
    raw = torch.randn(2, mux.in_features).bfloat16()
    given = torch.tensor([1.0, 0.1], dtype=torch.bfloat16)
    with pytest.raises(
        InputError,
        match=r"between the points of the grid: row 1\..*multiples of 0\.015625.*on_grid",
    ):
        mux(raw, u=given)
    on_grid: dict[str, Any] = mux.on_grid(u=given)
    assert rules.satisfied(mux(raw, **on_grid).best(), **on_grid).all()


def test_missing_ranges_name_the_output_and_what_to_write() -> None:
    rules = mx.Rules("x: real; y: real; x >= 0; y >= x")
    with pytest.raises(
        RangeError,
        match=r"x depends on other outputs.*no upper end.*`-1000 <= x <= 1000`",
    ):
        mx.Multiplexer(rules, structure="cascade")


def test_an_explosion_names_the_output_the_time_and_what_would_help() -> None:
    rules = mx.Rules(
        "x: real[3]; all(v == 0 or 10 <= v <= 20 or 30 <= v <= 90 for v in x); sum(x) <= 99"
    )
    with pytest.raises(
        CascadeBudgetExceeded,
        match=r"x\[\d\] has more than 1 options.* \(after \d+\.\d s\)\. Drop or split.*order=\[…\].*narrower",
    ):
        mx.Multiplexer(rules, structure="cascade", budget=Budget(options=1))


def test_remainders_of_wide_numbers_are_options_without_being_asked_for() -> None:
    rules = mx.Rules(
        "n: int[0, 300]; m: int[0, 300]; n % 2 == 1; m % 3 == 2; n + m <= 400"
    )
    mux = mx.Multiplexer(rules)
    assert sorted(mux.options) == [100, 150]
    x = mux(3 * torch.randn(2_000, mux.in_features)).best()
    n, m = x.long().unbind(-1)
    assert bool((n % 2 == 1).all())
    assert bool((m % 3 == 2).all())
    assert bool(rules.satisfied(x).all())
    with pytest.raises(CascadeBudgetExceeded, match="more than 64 options"):
        mx.Multiplexer(rules, structure="cascade", budget=Budget(options=64))


def test_ranges_beyond_all_formats_are_refused_by_name() -> None:
    for text in ("n: int[-3, 10**30]; n >= 2", "n: int[0, 10**30]?; n >= 1"):
        with pytest.raises(DtypeError, match="holds whole numbers up to"):
            mx.Multiplexer(mx.Rules(text))


def test_a_dense_set_that_inputs_move_is_said_to_be_computed_from_a_centre() -> None:
    random = Random(0)
    sums = [
        " + ".join(f"{random.randint(-9, 9) or 1}*x[{j}]" for j in range(10))
        for _ in range(20)
    ]
    rows = "; ".join(f"{one} <= {random.randint(20, 40)} + u" for one in sums)
    head = "u: input[0, 5]; x: real[10]; all(-10 <= v <= 10 for v in x); "
    rules = mx.Rules(head + rows)
    mux = mx.Multiplexer(rules)
    assert "dense sets that inputs move (random raw values seldom" in repr(mux)
    told = str(rules.explain())
    assert "x[0], x[1], x[2], …, x[9] (10 outputs): inputs move a set too dense" in told
    assert "random ones seldom the ends" in told
    x = mux(3 * torch.randn(500, mux.in_features), u=2.0).best()
    assert rules.satisfied(x, u=2.0).all()
    few = mx.Rules("u: input[0, 5]; x: real; y: real; x + y <= u or x - y >= u")
    assert "dense" not in repr(mx.Multiplexer(few)) + str(few.explain())


EQUALITIES_BEHIND_A_CHOICE = [
    "u: input int[0, 10]; x: real; y: real; 0 <= x <= 20; 0 <= y <= 20; x + y == u or x - y == u",
    "u: input[0, 1]; x: real[3]; all(0 <= v <= 5 for v in x); sum(x) <= u; x[0] == 0 or x[0] == x[2]",
]


@pytest.mark.parametrize("text", EQUALITIES_BEHIND_A_CHOICE)
def test_an_equality_behind_a_choice_that_terms_refuse_becomes_a_cascade(
    text: str,
) -> None:
    rules = mx.Rules(text)
    with pytest.raises(mx.errors.RunTimeEqualityError):
        mx.Multiplexer(rules, structure="terms")
    mux = mx.Multiplexer(rules)
    u = torch.tensor([0.0, 1.0, 0.0, 1.0])
    x = mux(torch.randn(4, mux.in_features), u=u).best()
    assert bool(rules.satisfied(x, u=u).all())
    assert "since inputs bound outputs of an equality" in str(rules.explain())
    assert "(inputs bound outputs of an equality;" in repr(mux)


def test_only_the_part_that_terms_refuse_becomes_a_cascade() -> None:
    rules = mx.Rules(f"{EQUALITIES_BEHIND_A_CHOICE[0]}; z: real; z >= 1 or z <= -1")
    mux = mx.Multiplexer(rules)
    assert [len(c.visible) for c in mux._blueprint.cascades] == [2]
    assert [len(block.terms) for block in mux.compiled.blocks] == [2]
    explained = rules.explain()
    assert explained.compiled is not None
    assert [len(block.terms) for block in explained.compiled.blocks] == [2]


def test_a_choice_between_copies_of_inputs_stays_terms() -> None:
    rules = mx.Rules("u: input[0, 1]; v: input[0, 1]; x: real; x == u or x == v")
    assert len(mx.Multiplexer(rules).compiled.blocks[0].terms) == 2


# --- nothing is lost that another grid or order reaches -----------------------------------------------------------


WHOLE = {
    "a cone": (
        "n: int[0, 100]; k: int[0, 100]; 2*n <= 3*k <= 7*n",
        {},
        [(0, 0), (1, 1), (1, 2), (100, 67)],
    ),
    "multiples": (
        "n: int[0, 1000]; k: int[0, 1000]; u: input[0, 50]; 3*n + 5*k == 15*u",
        {"u": 7},
        [(0, 21), (5, 18), (35, 0)],
    ),
    "a sum of two lots": (
        "n: int[0, 60]; k: int[0, 60]; 3*n + 5*k == 37",
        {},
        [(4, 5), (9, 2)],
    ),
    "cents": (
        "net: decimal(2)[0, 1000]; tax: decimal(2)[0, 1000]; tax == 0.19*net or tax == 0",
        {},
        [(0, 0), (100, 19), (100, 0), (99.99, 0), (1, 0.19)],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_lose_nothing_where_another_grid_or_order_keeps_it(
    name: str,
) -> None:
    text, given, points = WHOLE[name]
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, structure="cascade")
    assert mux.complete
    x = torch.tensor(points, dtype=mux.dtype)
    inputs: dict[str, Any] = {key: torch.tensor(float(v)) for key, v in given.items()}
    assert rules.satisfied(x, **inputs).all()
    branches = mux(torch.zeros(len(x), mux.in_features), **inputs)
    assert branches.log_prob(x).isfinite().all()
    drawn = mux(3 * torch.randn(300, mux.in_features), **inputs).sample()
    assert rules.satisfied(drawn, **inputs).all()
    assert mx.certify(mux.certificate).certified


def test_multiples_are_saved_and_cast() -> None:
    rules = mx.Rules(WHOLE["multiples"][0])
    mux = mx.Multiplexer(rules)
    assert mux.resolution == {"n": 5, "k": 3}
    raw = torch.randn(40, mux.in_features)
    u = torch.arange(40.0)
    x = mux(raw, u=u).best()
    again = copy.deepcopy(mux).to(torch.float64)
    assert rules.satisfied(again(raw.double(), u=u.double()).best(), u=u).all()
    loaded = mx.Multiplexer.from_state(mux.state_dict())
    assert torch.equal(loaded(raw, u=u).best(), x)
    with pytest.raises(InputError, match="u"):
        mux(raw[:1], u=torch.tensor([0.5]))


def test_a_sum_over_values_that_may_be_missing_builds() -> None:
    rules = mx.Rules(
        "x: real?[8]; all(implies(v is not missing, 2 <= v <= 10) for v in x)\n"
        "30 <= sum((v if v is not missing else 5) for v in x) <= 50"
    )
    mux = mx.Multiplexer(rules, structure="cascade")
    assert mux.complete
    x = mux(2 * torch.randn(500, mux.in_features)).sample()
    assert rules.satisfied(x).all()
    assert x.isnan().any(0).all()
    assert x.isfinite().any(0).all()


# --- what is tried, and what is said where nothing serves ---------------------------------------------------------


def test_truth_values_that_are_weighed_become_a_cascade_at_once() -> None:
    weights = [3 + 7 * i % 11 for i in range(20)]
    total = " + ".join(f"{w}*p[{i}]" for i, w in enumerate(weights))
    rules = mx.Rules(f"p: bool[20]; {total} <= 60")
    start = time.process_time()
    mux = mx.Multiplexer(rules)
    assert time.process_time() - start < 10  # a second; terms took a minute
    assert mux.options == (2,) * 20
    x = mux(3 * torch.randn(200, mux.in_features)).sample()
    assert rules.satisfied(x).all()


def test_truth_values_with_few_terms_stay_terms_whatever_they_weigh() -> None:
    few = mx.Multiplexer(mx.Rules("p: bool[4]; 3*p[0] + 5*p[1] + 7*p[2] + p[3] <= 9"))
    assert not few.cascades
    counted = mx.Multiplexer(mx.Rules("p: bool[8]; sum(p) <= 2"))
    assert not counted.cascades


NO_ENDS = "u: input; x: real; y: real; x + y == u or x - y == u; x >= 0"


def test_an_equality_that_neither_structure_meets_says_what_to_write() -> None:
    with pytest.raises(mx.errors.RunTimeEqualityError) as told:
        mx.Multiplexer(mx.Rules(NO_ENDS))
    message = str(told.value)
    assert "here there is none. x depends on other outputs" in message
    assert "Add a rule such as `-1000 <= x <= 1000`" in message
    assert "line 1: x + y == u or x - y == u" in message
    ends = "-1000 <= x <= 1000; -1000 <= y <= 1000; -100 <= u; u <= 100"
    mended = mx.Rules(f"{NO_ENDS}; {ends}".replace("u: input", "u: input[-100, 100]"))
    assert mx.Multiplexer(mended).cascades


def test_explain_shows_no_terms_where_a_layer_refuses_both_structures() -> None:
    explanation = mx.Rules(NO_ENDS).explain()
    assert explanation.compiled is None
    assert "here there is none. x depends" in str(explanation.problem)


# --- what only one engine serves ----------------------------------------------------------------------------------

SWITCHES = "on: bool[8]; x: real[8]; all(implies(on[i], x[i] >= 0) for i in range(8)); sum(on) <= 4"
APART = "x: real[4]; all(abs(x[i] - x[j]) >= 1 for i in range(4) for j in range(i))"
ANCHORED = "limit: input[250, 1000]; a: real; b: real; a == 0 or 200 < a < 400; implies(a > 0, b >= a + 2); b <= limit"


@pytest.mark.parametrize("text", [SWITCHES, APART, ANCHORED])
def test_outputs_without_ends_have_no_cascade(text: str) -> None:
    with pytest.raises(RangeError, match="a cascade needs one to choose its grid"):
        mx.Multiplexer(mx.Rules(text), structure="cascade")


def test_a_circuit_serves_many_combinations_over_outputs_without_ends() -> None:
    rules = mx.Rules(SWITCHES)
    mux = mx.Multiplexer(rules, max_terms=100)
    assert any(term.blocks for block in mux.compiled.blocks for term in block.terms)
    assert mux.complete
    x = mux(torch.randn(100, mux.in_features)).sample()
    assert rules.satisfied(x).all()


def test_an_anchor_serves_a_bound_known_at_run_time_without_another_end() -> None:
    rules = mx.Rules(ANCHORED)
    mux = mx.Multiplexer(rules)
    assert not mux.cascades
    x = mux(3 * torch.randn(100, mux.in_features), limit=300.0).sample()
    assert rules.satisfied(x, limit=300.0).all()


def test_cover_serves_terms_that_are_too_many_for_a_circuit() -> None:
    rules = mx.Rules(APART)
    with pytest.raises(mx.errors.TermBudgetExceeded, match="inner blocks were tried"):
        mx.Multiplexer(rules, max_terms=20)
    rows = torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])
    mux = mx.Multiplexer(rules, max_terms=20, cover=rows)
    x = mux(torch.randn(100, mux.in_features)).sample()
    assert rules.satisfied(x).all()


def test_a_term_for_each_whole_number_gives_every_logit_a_gradient() -> None:
    rules = mx.Rules("n: int[0, 5]; x: real; n != 1; 0 <= x <= n")

    def loss_of(structure: Any) -> torch.Tensor:
        mux = mx.Multiplexer(rules, structure=structure)
        raw = torch.zeros(1, mux.in_features, requires_grad=True)
        loss = mux(raw).loss(lambda x: ((x - 2.5) ** 2).sum(-1))
        return torch.autograd.grad(loss.sum(), raw)[0]

    assert (loss_of("terms")[0, -5:] != 0).all()
    with pytest.raises(mx.errors.CascadeError, match="one output after another"):
        loss_of("cascade")
