"""Coefficients from inputs: ``price * x <= budget`` is read, judged exactly, and computed without a violation."""

from __future__ import annotations

import copy
import itertools
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

import multiplexnet as mx
from campaign.coefficients import (
    coefficients_from_inputs,
    switches_from_inputs,
    walls_from_inputs,
)
from multiplexnet.compiler.cascade import late_rows
from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.clauses import clauses_of
from multiplexnet.compiler.cascade.proof import proof_of
from multiplexnet.compiler.cascade.structure import rule_parts
from multiplexnet.errors import CoefficientError
from multiplexnet.language.formula import ends, holds
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import specification_text
from multiplexnet.layer.inputs.assumptions import Assumptions
from multiplexnet.transforms.cascade import late_rows as late_at_run_time

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ONE = "price: input[0, 100]; budget: input[0, 1000]; x: real\n0 <= x <= 50\nprice * x <= budget"
MATRIX = """
    a0: input[0, 9][10]; a1: input[0, 9][10]; a2: input[0, 9][10]; a3: input[0, 9][10]; a4: input[0, 9][10]
    b: input[0, 500][5]; x: real[10]
    all(v == 0 or 10 <= v <= 100 for v in x)
    sum(a0[j]*x[j] for j in range(10)) <= b[0]
    sum(a1[j]*x[j] for j in range(10)) <= b[1]
    sum(a2[j]*x[j] for j in range(10)) <= b[2]
    sum(a3[j]*x[j] for j in range(10)) <= b[3]
    sum(a4[j]*x[j] for j in range(10)) <= b[4]
    sum(x) <= 300
"""
MIXED = """
    p: input[0, 9][3]; q: input[-4, 0]; budget: input[0, 90]; base: input[1, 5]
    n: int[0, 20]; on: bool; x: real[3]; y: real
    all(0 <= v <= 8 for v in x); 0 <= y <= 30
    x[0] <= x[1] <= x[2]
    p[0]*x[0] + p[1]*x[1] + (p[2] + 1)*x[2] + p[0]*n + 3*on < budget
    x[2] <= base*y
    implies(y > 20, x[0] <= 1)
    q*x[0] - 2*x[1] >= -40
"""


def drawn(rules: mx.Rules, rows: int, dtype: torch.dtype) -> dict[str, Any]:
    """Inputs in their ranges, many at the ends, some tiny."""
    found: dict[str, list[Tensor]] = {}
    for variable in rules.inputs:
        lower, upper = (float(end or 0) for end in ends(variable.domain))
        u = (lower + (upper - lower) * torch.rand(rows)).to(dtype).clamp(lower, upper)
        u[torch.rand(rows) < 0.15] = lower
        u[torch.rand(rows) < 0.15] = upper
        if lower <= 0 <= upper:
            tiny = torch.finfo(dtype).smallest_normal
            u[torch.rand(rows) < 0.05] = tiny if upper > 0 else -tiny
        found.setdefault(variable.name, []).append(u)
    vectors = {name.partition("[")[0] for name in found}
    return {
        name: found[name][0] if name in found else _stacked(name, found)
        for name in vectors
    }


def _stacked(name: str, found: dict[str, list[Tensor]]) -> Tensor:
    members = [
        own[0] for other, own in found.items() if other.partition("[")[0] == name
    ]
    return torch.stack(members, -1)


def raws(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    raw = torch.randn(rows, width) * 10 ** torch.randint(-1, 3, (rows, 1)).double()
    raw[torch.rand(rows, width) < 0.05] = torch.inf
    raw[torch.rand(rows, width) < 0.05] = -torch.inf
    return raw.to(dtype)


@pytest.mark.parametrize("text", [ONE, MATRIX, MIXED], ids=["one", "matrix", "mixed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_row_breaks_a_rule_and_none_is_stuck(text: str, dtype: torch.dtype) -> None:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=dtype)
    given = drawn(rules, 1500, dtype)
    if text is MIXED:
        given["budget"] = given["budget"].clamp(min=0.5)  # 0 < budget
    for x in (
        mux(raws(1500, mux.in_features, dtype), **given).best(),
        mux(raws(1500, mux.in_features, dtype), **given).sample(),
        mux.repair(100 * torch.randn(1500, mux.out_features).to(dtype), **given),
    ):
        assert rules.satisfied(x, **given).all()


def test_the_judge_is_exact() -> None:
    """Products of doubles are decided by their last digits, as fractions decide them."""
    rules = mx.Rules("p: input; q: input; b: input; x: real\np*x <= b + p*q")
    generator = np.random.default_rng(0)
    scale = 2.0 ** generator.choice([-1060, -500, -30, 0, 30, 500], 300)
    p, q, x = (
        generator.standard_normal((3, 300)) * [scale, np.ones(300), np.ones(300)]
    ).astype(float)
    b = p * x - p * q + generator.choice([0.0, 1e-17, -1e-17], 300) * np.abs(p)
    found = rules.satisfied(x[:, None], p=p, q=q, b=b)
    names = {v.name: v for v in rules.specification.variables}
    for i in range(300):
        values = {"p": p[i], "q": q[i], "b": b[i], "x": x[i]}
        point = {names[n]: Fraction(float(value)) for n, value in values.items()}
        assert found[i] == holds(rules.formula, point)
    assert 0 < found.sum() < 300


def test_all_whole_numbers_that_fit_are_reached_and_a_price_of_zero_bounds_nothing() -> (
    None
):
    rules = mx.Rules(
        "p: input[0, 9]; b: input[0, 99]; n: int[0, 20]; m: int[0, 20]\np*n + 3*m <= b"
    )
    mux = mx.Multiplexer(rules)
    p, b = (
        torch.tensor(v)
        for v in zip(
            *itertools.product([0.0, 1.0, 2.5, 7.0], [0.0, 12.0, 35.0]), strict=True
        )
    )
    x = mux(torch.full((12, mux.in_features), torch.inf), p=p, b=b).best()
    first = mux.cascades[0].order[0].name
    for i in range(12):
        size = p[i].item() if first == "n" else 3.0
        wanted = 20 if size == 0 else min(20, b[i].item() // size)
        assert x[i, 0 if first == "n" else 1] == wanted
    assert not mux.complete


def test_an_inequality_that_just_fits_in_float32() -> None:
    """budget = fl(price · k), one unit below and above: the quotient alone cannot tell, the product can."""
    rules = mx.Rules("p: input[1, 3]; b: input[0, 3000]; n: int[0, 1000]\np*n <= b")
    mux = mx.Multiplexer(rules)
    n = torch.arange(1.0, 1001.0)
    p = 1 + 2 * torch.rand(1000)
    b = (p.double() * n.double()).float()
    for given in (
        b,
        torch.nextafter(b, torch.tensor(0.0)),
        torch.nextafter(b, torch.tensor(9e9)),
    ):
        given = given.clamp(max=3000)
        x = mux(torch.full((1000, 1), torch.inf), p=p, b=given).best()[:, 0]
        exact = [
            int(min(1000, Fraction(u.item()) // Fraction(v.item())))
            for u, v in zip(given, p, strict=True)
        ]
        assert x.tolist() == exact


def test_gradients_reach_raws_and_inputs() -> None:
    mux = mx.Multiplexer(mx.Rules(ONE), dtype=torch.float64)
    raw = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    price, budget = (
        torch.tensor([v], dtype=torch.float64, requires_grad=True)
        for v in (20.0, 100.0)
    )
    mux(raw, price=price, budget=budget).best().sum().backward()
    assert raw.grad is not None
    assert raw.grad.item() == pytest.approx(5 / 4)  # half of budget / price
    assert budget.grad is not None
    assert budget.grad.item() == pytest.approx(0.5 / 20)
    assert price.grad is not None
    assert price.grad.item() == pytest.approx(-0.5 * 100 / 400)
    mux(raw, price=torch.zeros_like(price), budget=budget).best().sum().backward()
    assert raw.grad.isfinite().all()


def test_division_by_an_input_and_signs_that_an_assumption_tells() -> None:
    rules = mx.Rules(
        "u: input[0.5, 4]; v: input[-4, -0.5]; x: real[2]\n0 <= x[0] <= 9; 0 <= x[1] <= 9\n"
        "x[0]/u + x[1] <= 2\n(x[0] - 3)/v >= -1"
    )
    mux = mx.Multiplexer(rules)
    given = drawn(rules, 500, torch.float32)
    x = mux(raws(500, 2, torch.float32), **given).best()
    assert rules.satisfied(x, **given).all()
    u, v = given["u"].double(), given["v"].double()
    assert (x[:, 0].double() / u + x[:, 1].double() <= 2 + 1e-9).all()
    assert ((x[:, 0].double() - 3) / v >= -1 - 1e-9).all()
    text = "p: input; q: input; x: real\n0 <= x <= 9\n(p - q)*x <= 5"
    assert mx.Multiplexer(mx.Rules(text)).cascades[0].late[0].terms[0][2] == 0
    mux = mx.Multiplexer(mx.Rules(text + "\nassume p >= q"))
    assert mux.cascades[0].late[0].terms[0][2] == 1
    assert (
        mux(
            torch.full((1, 1), torch.inf), p=torch.tensor([3.0]), q=torch.tensor([1.0])
        ).best()
        == 2.5
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("p*x[0] == 3", "is an equality"),
        ("p*x[0] <= 3 or x[1] >= 1", "only one of several alternatives"),
        (
            "p*x[0] + p*x[1] <= 3; q*x[0] + q*x[1] >= 1",
            "bound each of x\\[0\\], x\\[1\\] from both sides, or may do so",
        ),
        (
            "p*x[0] <= 3; q*x[0] >= 1; x[0] + x[1] >= 1; p*x[1] <= 7",
            "other rules keep x\\[1\\] from the end",
        ),
        (
            "p*x[0] + q*x[1] <= 3; sum(x) == 1",
            "other rules keep x\\[0\\], x\\[1\\] from the end",
        ),
    ],
)
def test_what_is_not_computed_is_refused_with_what_is_possible(
    rule: str, message: str
) -> None:
    text = f"p: input[0, 9]; q: input[0, 9]; x: real[2]; all(0 <= v <= 9 for v in x)\n{rule}"
    with pytest.raises(CoefficientError, match=message):
        mx.Multiplexer(mx.Rules(text))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("x*y <= 2", "product of variables `x\\*y`: .* a number, or an input"),
        ("u*v*x <= 2", "a product of three variables"),
        ("x / v <= 2", "division by the input `v`, which may be 0: declare a range"),
        ("x / u + y / w <= 2", "divisions by `u` and `w` in one comparison"),
        ("v * max(x, y) <= 2", "depends on the sign of `v`"),
        ("assume u * v <= 2; x >= 0", "assumptions are linear"),
    ],
)
def test_what_is_no_product_with_an_input_is_refused_where_it_is_read(
    rule: str, message: str
) -> None:
    with pytest.raises(mx.RuleSyntaxError, match=message):
        mx.Rules(f"u: input[1, 2]; v: input; w: input[1, 2]; x: real; y: real\n{rule}")


def test_terms_say_that_there_are_none() -> None:
    rules = mx.Rules(ONE)
    with pytest.raises(CoefficientError, match=r"has no terms.*Multiplexer"):
        rules.compile()
    with pytest.raises(CoefficientError, match="has no terms"):
        mx.Multiplexer(rules, structure="terms")
    assert "a cascade, since inputs multiply outputs" in str(rules.explain())
    assert mx.certify(mx.Multiplexer(rules).certificate, rules).certified


def test_a_product_of_inputs_alone_is_refused_as_that() -> None:
    rules = mx.Rules("p: input[0, 9]; q: input[0, 9]; x: real; p*q <= 9; 0 <= x <= p")
    with pytest.raises(CoefficientError, match=r"about inputs alone.*of its own"):
        mx.Multiplexer(rules)


def test_text_states_copies_and_a_solver_agree() -> None:
    rules = mx.Rules(MIXED)
    written = specification_text(rules.specification)
    assert parse(written).formula == rules.formula
    mux = mx.Multiplexer(rules)
    given = {
        name: value.clamp(min=0.5) if name == "budget" else value
        for name, value in drawn(rules, 64, mux.dtype).items()
    }
    raw = raws(64, mux.in_features, mux.dtype)
    x = mux(raw, **given).best()
    for other in (copy.deepcopy(mux), mx.Multiplexer.from_state(mux.state_dict())):
        assert torch.equal(other(raw, **given).best(), x)
    double = copy.deepcopy(mux).to(torch.float64)
    again = double(
        raw.double(), **{name: value.double() for name, value in given.items()}
    ).best()
    assert rules.satisfied(
        again, **{name: value.double() for name, value in given.items()}
    ).all()
    (part,) = rule_parts(rules.specification)
    proof = proof_of(mux.cascades[0], clauses_of(part.formula, 999), rules.inputs)
    assert proof.sound
    assert proof.never_stuck


def test_densities_sum_to_one_and_samples_have_them() -> None:
    rules = mx.Rules(
        "p: input[0, 9]; b: input[0, 99]; n: int[0, 4]; m: int[0, 3]\np*n + 3*m <= b"
    )
    mux = mx.Multiplexer(rules)
    points = torch.tensor(
        list(itertools.product(range(5), range(4))), dtype=torch.float32
    )
    raw = torch.randn(1, mux.in_features).expand(20, -1)
    branches = mux(raw, p=torch.full((20,), 2.5), b=torch.full((20,), 8.0))
    probability = branches.log_prob(points).exp()
    assert probability.sum().item() == pytest.approx(1, abs=1e-9)
    obeys = rules.satisfied(points, p=torch.full((20,), 2.5), b=torch.full((20,), 8.0))
    assert ((probability > 0) == obeys).all()


def test_a_row_without_any_output_is_an_error_and_nan_in_a_graph() -> None:
    mux = mx.Multiplexer(
        mx.Rules("p: input[0, 9]; b: input[0, 9]; x: real\n1 <= x <= 5\np*x <= b")
    )
    p, b = torch.tensor([2.0, 3.0, 1.0]), torch.tensor([2.0, 2.9, 5.0])
    with pytest.raises(
        mx.InputError,
        match=r"none of the points that this layer reaches obeys.*: row 1.*more room",
    ):
        mux(torch.zeros(3, 1), p=p, b=b)

    class Best(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = mux

        def forward(self, raw: Tensor, p: Tensor, b: Tensor) -> Tensor:
            x: Tensor = self.mux(raw, p=p, b=b).best()
            return x

    program = torch.export.export(Best(), (torch.zeros(3, 1), p, b)).module()
    x = program(torch.full((3, 1), torch.inf), p, b)
    assert x[:, 0].isnan().tolist() == [False, True, False]
    assert x[[0, 2], 0].tolist() == [1.0, 5.0]


def test_an_exported_budget_passes_gradients_on() -> None:
    """Also if what it was recorded with required none."""
    mux = mx.Multiplexer(mx.Rules(ONE), dtype=torch.float64)

    class Best(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = mux

        def forward(self, raw: Tensor, price: Tensor, budget: Tensor) -> Tensor:
            x: Tensor = self.mux(raw, price=price, budget=budget).best()
            return x

    given = (
        torch.randn(3, 1, dtype=torch.float64),
        torch.tensor([30.0, 40.0, 70.0], dtype=torch.float64),
        torch.tensor([300.0, 100.0, 900.0], dtype=torch.float64),
    )
    exported = torch.export.export(Best(), given).module()
    leaves = [value.requires_grad_() for value in given]
    expected = torch.autograd.grad(Best()(*leaves).sum(), leaves)
    found = torch.autograd.grad(exported(*leaves).sum(), leaves)
    assert all(gradient.all() for gradient in expected)
    torch.testing.assert_close(found, expected)


def test_numbers_that_the_dtype_does_not_hold_are_rounded_to_the_safe_side() -> None:
    rules = mx.Rules(ONE)
    mux = mx.Multiplexer(rules)
    price, budget = Fraction(1, 3), Fraction(7, 10)
    x = mux(torch.full((1, 1), torch.inf), price=price, budget=budget).best()
    assert rules.satisfied(x, price=price, budget=budget).all()
    assert x.item() == pytest.approx(2.1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_output_may_equal_an_input_and_sums_may(dtype: torch.dtype) -> None:
    """``x == u`` is a term, exact for every float; two sums that share an output are a cascade."""
    rules = mx.Rules(
        "u: input; x: real; y: real; x == u; y <= x + 1; implies(y >= 0, u <= 2)"
    )
    mux = mx.Multiplexer(rules, dtype=dtype)
    u = (torch.randn(200) * 100 ** torch.randn(200)).to(dtype)
    u[:3] = torch.tensor(
        [0.0, torch.finfo(dtype).max, -4 * torch.finfo(dtype).smallest_normal],
        dtype=dtype,
    )
    x = mux(raws(200, mux.in_features, dtype), u=u).best()
    assert rules.satisfied(x, u=u).all()
    assert mx.certify(mux.certificate, rules).certified
    sums = mx.Rules(
        "u: input[0, 9]; v: input[0, 9]; x: real[3]; all(0 <= w <= 9 for w in x)\n"
        "x[0] + x[1] == u; x[1] + x[2] == v"
    )
    mux = mx.Multiplexer(sums, dtype=dtype)
    given: dict[str, Any] = {
        "u": (9 * torch.rand(200)).to(dtype),
        "v": (9 * torch.rand(200)).to(dtype),
    }
    assert sums.satisfied(mux(raws(200, 3, dtype), **given).best(), **given).all()
    apart = mx.Rules(
        "u: input[0, 9]; x: real[2]; all(-9 <= w <= 9 for w in x); x[0] - x[1] == u"
    )
    mux = mx.Multiplexer(apart, dtype=dtype)
    off = (
        torch.full((1,), 2.0**-60, dtype=dtype)
        if dtype is not torch.float16
        else torch.full((1,), 2.0**-14, dtype=dtype)
    )
    with pytest.raises(mx.InputError, match=r"multiples of .* mux\.on_grid"):
        mux(torch.zeros(1, mux.in_features, dtype=dtype), u=off)


BOTH = """
    price: input[0, 100]; budget: input[0, 1000]; weight: input[-2, 9]; need: input[-5, 50]; x: real
    0 <= x <= 50
    price * x <= budget
    weight * x >= need
"""
EITHER = """
    a: input[-5, 5][3]; b: input[0, 40]; x: real[2]; n: int[-7, 7]
    all(v == -9 or 0 <= v <= 9 for v in x)
    a[0]*x[0] + a[1]*x[1] + a[2]*n < b + 0.5
"""
SEVERAL = """
    a: input[-5, 5]; c: input[-5, 5]; u: input[0.25, 4]; p: input[0, 9]; b: input[0, 40]; x: real; y: real; on: bool
    -20 <= x <= 20; 0 <= y <= 9
    a*x + p*y <= b
    c*x <= b + 1
    x/u + y <= 12
    implies(on, y <= 5)
"""


@pytest.mark.parametrize(
    "text", [BOTH, EITHER, SEVERAL], ids=["both sides", "either sign", "several"]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_either_sign_and_both_sides(text: str, dtype: torch.dtype) -> None:
    """Rows that leave something obey; of those that leave nothing each is refused, whatever the raw values are."""
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=dtype)
    given = drawn(rules, 600, dtype)
    for own in given.values():  # products of less are not told from 0, see guarantee.md
        own[(own != 0) & (own.abs() < 1e-250)] = 1e-250
    width = torch.ones(600)
    if text is BOTH:
        exact = {name: list(map(Fraction, own.tolist())) for name, own in given.items()}
        width = torch.tensor([room_of_both(exact, i) for i in range(600)])
    kept = {name: own[width > 0.25] for name, own in given.items()}  # a grid point
    count = int((width > 0.25).sum())
    assert count > 200
    for x in (
        mux(raws(count, mux.in_features, dtype), **kept).best(),
        mux(raws(count, mux.in_features, dtype), **kept).sample(),
        mux.repair(30 * torch.randn(count, mux.out_features).to(dtype), **kept),
    ):
        assert rules.satisfied(x, **kept).all()
    for i in (width < 0).nonzero()[:9, 0].tolist():
        own = {name: values[i : i + 1] for name, values in given.items()}
        with pytest.raises(mx.InputError, match=r"layer reaches obeys `price \* x"):
            mux(raws(1, mux.in_features, dtype), **own)
    assert mx.certify(mux.certificate, rules).certified


def room_of_both(exact: dict[str, list[Fraction]], i: int) -> float:
    """How much the inputs of a row leave to x, decided in fractions; negative if nothing."""
    p, b, w, n = (exact[name][i] for name in ("price", "budget", "weight", "need"))
    lower, upper = Fraction(0), Fraction(50)
    if p:
        upper = min(upper, b / p)
    if w > 0:
        lower = max(lower, n / w)
    elif w < 0:
        upper = min(upper, n / w)
    return float(upper - lower) if w or n <= 0 else -1.0


def test_what_is_left_between_two_products_is_reached() -> None:
    mux = mx.Multiplexer(mx.Rules(BOTH), dtype=torch.float64)
    ends = []
    for raw in (-torch.inf, torch.inf):
        own = {"price": 20.0, "budget": 100.0, "weight": 3.0, "need": 6.0}
        given: dict[str, Any] = {
            k: torch.tensor([v], dtype=torch.float64) for k, v in own.items()
        }
        x = mux(torch.full((1, 1), raw, dtype=torch.float64), **given).best()
        ends.append(x.item())
    assert ends == [2.0, 5.0]
    assert mux.cascades[0].torn == 0


def test_the_campaign_finds_nothing_and_notices_planted_faults() -> None:
    def wrong(*numbers: int) -> list[str]:
        findings = [f for k in numbers for f in coefficients_from_inputs(Random(k))]
        return [f.check for f in findings if f.wrong]

    assert not wrong(0, 1, 44)
    with patch.object(late_at_run_time, "MARGIN", 1.0):
        assert "coefficients: rows" in wrong(0, 44)
    with patch.object(Assumptions, "kept", lambda self, inputs, given: inputs):
        assert "coefficients: assumption" in wrong(1)


def test_densities_and_gradients_of_either_sign_and_both_sides() -> None:
    rules = mx.Rules(
        "p: input[0, 9]; q: input[-9, 9]; w: input[-9, 9]; b: input[0, 99]; need: input[-9, 9]\n"
        "n: int[0, 6]; m: int[-2, 3]\np*n + q*m <= b; w*n >= need"
    )
    mux = mx.Multiplexer(rules)
    points = torch.tensor(list(itertools.product(range(7), range(-2, 4)))).float()
    rows = len(points)
    for p, q, w, b, need in (
        (2.5, -3.0, 1.5, 8.0, 3.0),
        (3.0, 4.0, -2.0, 10.0, -7.0),
        (0.0, 0.0, 0.0, 0.0, 0.0),
    ):
        numbers = {"p": p, "q": q, "w": w, "b": b, "need": need}
        given: dict[str, Any] = {
            name: torch.full((rows,), number, requires_grad=True)
            for name, number in numbers.items()
        }
        raw = torch.randn(1, mux.in_features).expand(rows, -1).requires_grad_()
        branches = mux(raw, **given)
        probability = branches.log_prob(points).exp()
        assert probability.sum().item() == pytest.approx(1, abs=1e-9)
        fixed = {name: own.detach() for name, own in given.items()}
        assert ((probability > 0) == rules.satisfied(points, **fixed)).all()
        branches.best().sum().backward()
        assert all(own.grad.isfinite().all() for own in given.values())


def test_a_row_that_leaves_nothing_between_two_products_is_nan_in_a_graph() -> None:
    mux = mx.Multiplexer(mx.Rules(BOTH))

    def best(raw: Tensor, *known: Tensor) -> Tensor:
        names = ("price", "budget", "weight", "need")
        x: Tensor = mux(raw, **dict(zip(names, known, strict=True))).best()
        return x

    known = torch.tensor([[20.0, 100.0, 3.0, 6.0], [20.0, 100.0, 1.0, 6.0]]).t()
    x = torch.func.vmap(best, in_dims=(0, 0, 0, 0, 0))(torch.zeros(2, 1), *known)
    assert x[:, 0].isnan().tolist() == [False, True]
    assert 2 <= x[0, 0] <= 5


SWITCH = """
    low: input[0, 5][2]; high: input[5, 9][2]; q: input[-3, 3]; limit: input[0, 20]
    on: bool[2]; x: real[2]; n: int[0, 9]
    all(0 <= v <= 9 for v in x)
    all(low[i]*on[i] <= x[i] <= high[i]*on[i] for i in range(2))
    q*on[0] + n >= 2 or x[1] <= 1
    sum(x) + n <= limit
"""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_few_truth_values_that_inputs_multiply_are_cases(dtype: torch.dtype) -> None:
    """low * on <= x <= high * on, also behind `or`: all of it is reached, and a certificate says so."""
    rules = mx.Rules(SWITCH)
    mux = mx.Multiplexer(rules, dtype=dtype)
    assert mux.complete
    given = drawn(rules, 600, dtype)
    x = mux(raws(600, mux.in_features, dtype), **given).sample()
    assert rules.satisfied(x, **given).all()
    assert 50 < x[:, 0].sum() < 550
    report = mx.certify(mux.certificate, rules)
    assert report.certified, str(report)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_with_inputs_that_have_ends_bound_an_output(
    dtype: torch.dtype,
) -> None:
    """The example of the documents declares no range of x: those of low and high give it one."""
    rules = mx.Rules(
        "low: input[0, 5]; high: input[5, 9]; on: bool; x: real; low*on <= x <= high*on"
    )
    mux = mx.Multiplexer(rules, dtype=dtype)
    given = drawn(rules, 600, dtype)
    x = mux(raws(600, mux.in_features, dtype), **given).sample()
    assert rules.satisfied(x, **given).all()
    assert x[:, 1].max() > 8
    assert mx.certify(mux.certificate, rules).certified
    free = mx.Rules(
        "low: input[0, 5]; high: input; on: bool; x: real; low*on <= x <= high*on"
    )
    with pytest.raises(mx.MultiplexError, match=r"x depends on .* no upper end"):
        mx.Multiplexer(free, dtype=dtype)


def test_the_campaign_draws_truth_values_that_inputs_multiply() -> None:
    def wrong(*numbers: int) -> list[str]:
        findings = [f for k in numbers for f in switches_from_inputs(Random(k))]
        return [f.check for f in findings if f.wrong]

    assert not wrong(0, 1, 2)
    honest = late_rows._cases

    def one_case(atom: Any) -> Any:
        every = list(honest(atom))
        return iter([(every[-1][0], others) for _, others in every])

    with patch.object(late_rows, "_cases", one_case):
        assert "coefficients: switches" in wrong(0, 1, 2)


def test_the_campaign_draws_either_sign_and_both_sides() -> None:
    def wrong(*numbers: int) -> list[str]:
        findings = [f for k in numbers for f in walls_from_inputs(Random(k))]
        return [f.check for f in findings if f.wrong]

    assert not wrong(2, 3)
    with patch.object(Cascade, "torn", property(lambda self: None)):
        assert "coefficients: walls" in wrong(2, 3)


def test_a_price_near_the_end_of_the_format_leaves_what_it_leaves() -> None:
    """The error of a product was computed with digits that overflow, though one factor is 0."""
    rules = mx.Rules(
        "p: input[0, 1e308]; b: input[0, 1e308]; x: real; 0 <= x <= 5; p*x <= b"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float64).eval()
    p = torch.tensor([1e300, 1e307, 1e307, 9e307], dtype=torch.float64)
    b = torch.tensor([1.0, 0.0, 9e307, 9e307], dtype=torch.float64)
    x = mux(torch.zeros(4, mux.in_features, dtype=torch.float64), p=p, b=b).best()
    assert rules.satisfied(x, p=p, b=b).all()
    assert x[2:].squeeze(-1).tolist() == [2.5, 0.5]
