"""Curved walls: read, judged, compiled, proved, mapped into, refused."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import multiplexnet as mx
from multiplexnet.compiler import compile as compile_module
from multiplexnet.compiler.compile import compile_rules
from multiplexnet.compiler.explanation.diagnose import explain
from multiplexnet.errors import (
    ContradictionError,
    CurvedError,
    InputError,
    MagnitudeError,
    MultiplexError,
    RuleSyntaxError,
    ThinTermError,
)
from multiplexnet.exact.cones import Cone, reaches
from multiplexnet.exact.deadline import PROOF
from multiplexnet.language.formula import holds
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import formula_text, specification_text
from multiplexnet.transforms import DTYPES
from multiplexnet.transforms import curves as curves_module
from multiplexnet.transforms import gauge as gauge_module

Number = Fraction
Judge = Callable[[Sequence[Number]], bool]


@dataclass(frozen=True)
class Case:
    """Rules, and whether a point obeys them, written a second time in Python's own arithmetic of fractions."""

    name: str
    text: str
    obeys: Judge
    n: int

    def __str__(self) -> str:
        return self.name


def squares(x: Sequence[Number]) -> Number:
    return sum((v * v for v in x), Fraction(0))


TENTH = Fraction(1, 10)
CASES = [
    Case("ball", "x: real[3]; norm(x) <= 2", lambda x: squares(x) <= 4, 3),
    Case(
        "open ball off zero, cut",
        "x: real[3]; norm(x - [1, 2, 3]) < 0.1; x[0] >= 1.01",
        lambda x: (
            squares([x[0] - 1, x[1] - 2, x[2] - 3]) < TENTH**2
            and x[0] >= Fraction(101, 100)
        ),
        3,
    ),
    Case(
        "ellipse",
        "x: real[2]; x[0]**2 + 2*x[1]**2 <= 4",
        lambda x: x[0] ** 2 + 2 * x[1] ** 2 <= 4,
        2,
    ),
    Case(
        "quadratic form and a wall",
        "x: real[2]; quad(x, [[2, 1], [1, 2]]) <= 3; x[0] + x[1] <= 1",
        lambda x: 2 * x[0] ** 2 + 2 * x[0] * x[1] + 2 * x[1] ** 2 <= 3 and x[0] + x[1] <= 1,
        2,
    ),
    Case(
        "cone",
        "x: real[2]; t: real; norm(x) <= 2*t + 1; t <= 10",
        lambda x: (
            2 * x[2] + 1 >= 0 and squares(x[:2]) <= (2 * x[2] + 1) ** 2 and x[2] <= 10
        ),
        3,
    ),
    Case(
        "cone without end",
        "x: real[2]; t: real; norm(x) < t",
        lambda x: x[2] > 0 and squares(x[:2]) < x[2] ** 2,
        3,
    ),
    Case(
        "paraboloid",
        "x: real[2]; t: real; x[0]**2 + 2*x[1]**2 <= t",
        lambda x: x[0] ** 2 + 2 * x[1] ** 2 <= x[2],
        3,
    ),
    Case(
        "two balls",
        "x: real[2]; norm(x) <= 1.25; norm(x - [1, 0]) <= 1.25",
        lambda x: (
            squares(x) <= Fraction(25, 16)
            and squares([x[0] - 1, x[1]]) <= Fraction(25, 16)
        ),
        2,
    ),
    Case(
        "either or",
        "x: real[2]; norm(x) <= 1 or norm(x - 3) <= 1.5; implies(x[0] > 2, x[1] >= 2.9)",
        lambda x: (
            (squares(x) <= 1 or squares([v - 3 for v in x]) <= Fraction(9, 4))
            and (x[0] <= 2 or x[1] >= Fraction(29, 10))
        ),
        2,
    ),
    Case(
        "weights in a ball",
        "x: real[3]; sum(x) == 1; norm(x - 1/3) <= 0.25",
        lambda x: (
            sum(x) == 1
            and squares([v - Fraction(1, 3) for v in x]) <= Fraction(1, 16)
        ),
        3,
    ),
    Case(
        "a root that is no fraction",
        "x: real; x**2 <= 2",
        lambda x: x[0] ** 2 <= 2,
        1,
    ),
]  # fmt: skip
EACH = [(case, dtype) for case in CASES for dtype in DTYPES]
SINGLE = [
    case
    for case in CASES
    if case.name not in ("either or", "a root that is no fraction", "weights in a ball")
]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def broken(obeys: Judge, x: Tensor) -> int:
    """How many rows, read as fractions, do not obey."""
    points = x.detach().double().reshape(-1, x.shape[-1]).tolist()
    return sum(not _obeys(obeys, point) for point in points)


def _obeys(obeys: Judge, point: Sequence[float]) -> bool:
    if any(v != v or abs(v) == inf for v in point):
        return False
    return obeys([Fraction(v) for v in point])


def raws(n: int, dtype: torch.dtype, count: int = 24) -> Tensor:
    """Raw values of every size: N(0, 1), N(0, 30), ±1e4, ±1e30, ±inf, subnormal, 0, and all of them mixed."""
    z = torch.randn(count, n, dtype=torch.float64)
    tiny = torch.finfo(dtype).smallest_normal / 4
    sizes = [1.0, 30.0, 1e4, 1e30]
    pool = torch.cat(
        [
            *(size * z for size in sizes),
            *(size * z.sign() for size in (*sizes, inf, tiny)),
            0 * z,
        ]
    )
    mixed = torch.gather(pool, 0, torch.randint(len(pool), (4 * count, n)))
    return torch.cat([pool, mixed]).to(dtype)


@cache
def rules_of(text: str) -> mx.Rules:
    """The rules, which remember their terms."""
    return mx.Rules(text)


def layer_of(case: Case, dtype: torch.dtype = torch.float64) -> mx.Multiplexer:
    return mx.Multiplexer(rules_of(case.text), dtype=dtype)


# --- maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "dtype"), EACH, ids=lambda v: str(v))
def test_every_output_obeys(case: Case, dtype: torch.dtype) -> None:
    mux = layer_of(case, dtype)
    branches = mux(raws(mux.in_features, dtype))
    for k in range(branches.x.shape[-2]):
        assert broken(case.obeys, branches.x[..., k, :]) == 0
    best = branches.best()
    assert broken(case.obeys, best) == 0
    assert rules_of(case.text).satisfied(best).all()
    assert best.isfinite().all()
    nothing = torch.full((3, mux.in_features), nan, dtype=dtype)
    assert mux(nothing).best().isnan().all()
    assert broken(case.obeys, mux.eval()(nothing).best()) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_wall_is_reached(dtype: torch.dtype) -> None:
    mux = layer_of(CASES[0], dtype)
    far = (1e4 * torch.randn(200, 3, dtype=torch.float64).sign()).to(dtype)
    length = mux(far).best().double().norm(dim=-1)
    assert float(length.min()) > 2 * (1 - 4 * torch.finfo(dtype).eps - 1e-13)


@pytest.mark.parametrize("case", SINGLE, ids=str)
def test_inverts_with_its_determinant_and_its_gradients(case: Case) -> None:
    mux = layer_of(case)
    raw = torch.randn(3, case.n, dtype=torch.float64, requires_grad=True)
    maps: Any = mux.maps[0]
    x, log_det = maps.forward_and_log_det(raw)
    back = maps.inverse(x.squeeze(-2)).squeeze(-2)
    torch.testing.assert_close(back, raw, rtol=1e-6, atol=1e-6)
    for i in range(len(raw)):
        J = torch.autograd.functional.jacobian(lambda z: maps(z).squeeze(-2), raw[i])  # type: ignore[no-untyped-call]
        expected = torch.linalg.slogdet(J)[1]
        torch.testing.assert_close(log_det[i, 0], expected, rtol=1e-6, atol=1e-6)
    scale = float(x.detach().abs().max().clamp(min=1))
    assert torch.autograd.gradcheck(lambda z: maps(z) / scale, (raw,))
    assert torch.autograd.gradgradcheck(lambda z: maps(z) / scale, (raw,))
    vmapped = torch.func.vmap(torch.func.jacrev(maps))(raw.detach())
    assert vmapped.isfinite().all()


def test_extremes_have_gradients() -> None:
    for case in CASES:
        mux = layer_of(case, torch.float32)
        raw = raws(mux.in_features, torch.float32).requires_grad_()
        x = mux(raw).x
        (gradient,) = torch.autograd.grad(x.double().mean(), raw)
        assert gradient.isfinite().all()


def test_a_density_integrates_to_one() -> None:
    rules = mx.Rules("x: real[2]; norm(x - [0.25, 0]) <= 1; x[0] >= 0")
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    side = torch.linspace(-1.25, 1.5, 501, dtype=torch.float64)
    x = torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    inside = rules.satisfied(x)
    base = torch.distributions.Normal(torch.tensor([0.3, -0.2]).double(), 1.0)
    distribution = mx.RulesDistribution(mux, base)
    density = distribution.log_prob(x[inside]).exp().sum() * (side[1] - side[0]) ** 2
    assert abs(float(density) - 1) < 0.01
    drawn = distribution.sample((500,))
    assert rules.satisfied(drawn).all()


def test_repair_moves_inside_and_leaves_what_obeys() -> None:
    for case in (CASES[1], CASES[5], CASES[8]):
        rules = mx.Rules(case.text)
        mux = layer_of(case)
        x = 3 * torch.randn(50, case.n, dtype=torch.float64)
        moved = mux.repair(x)
        assert broken(case.obeys, moved) == 0
        fine = rules.satisfied(x)
        assert torch.equal(moved[fine], x[fine])


def test_repair_moves_to_the_nearest_point() -> None:
    mux = mx.Multiplexer(
        mx.Rules("x: real[2]; x[0]**2 + 4*x[1]**2 <= 4; x[0] + x[1] <= 1.5"),
        dtype=torch.float64,
    )
    x = 3 * torch.randn(20, 2, dtype=torch.float64)
    moved = mux.repair(x)
    angle = torch.linspace(0, 2 * torch.pi, 20001, dtype=torch.float64)
    wall = torch.stack([2 * angle.cos(), angle.sin()], -1)
    wall = wall[wall.sum(-1) <= 1.5]
    side = torch.linspace(-2, 2, 20001, dtype=torch.float64)
    flat = torch.stack([side, 1.5 - side], -1)
    flat = flat[flat[:, 0] ** 2 + 4 * flat[:, 1] ** 2 <= 4]
    every = torch.cat([wall, flat])
    nearest = (x.unsqueeze(1) - every).norm(dim=-1).amin(-1)
    outside = ~mx.Rules("x: real[2]; x[0]**2 + 4*x[1]**2 <= 4; x[0] + x[1] <= 1.5").satisfied(x)  # fmt: skip
    gone = (moved - x).norm(dim=-1)
    assert bool((gone[outside] <= nearest[outside] * 1.01 + 1e-3).all())


def test_a_layer_travels() -> None:
    case = CASES[8]
    mux = layer_of(case, torch.float32)
    raw = torch.randn(20, mux.in_features)
    x = mux(raw).best()
    file = io.BytesIO()
    torch.save(mux.state_dict(), file)
    file.seek(0)
    again = mx.Multiplexer.from_state(torch.load(file, weights_only=True))
    assert torch.equal(again(raw).best(), x)
    assert torch.equal(copy.deepcopy(mux)(raw).best(), x)
    for dtype in DTYPES:
        cast = copy.deepcopy(mux).to(dtype)
        assert broken(case.obeys, cast(raws(mux.in_features, dtype)).best()) == 0


@pytest.mark.parametrize("rest", ["", "sum(x) >= 0", "sum(x) == 0"])
def test_a_batch_may_be_empty(rest: str) -> None:
    mux = mx.Multiplexer(mx.Rules(f"x: real[3]; norm(x) <= 1; {rest}"))
    raw = torch.zeros(0, mux.in_features, requires_grad=True)
    x = mux(raw).best()
    assert x.shape == (0, 3)
    x.sum().backward()
    assert mux.repair(torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch
def test_it_compiles_as_one_graph() -> None:
    case = CASES[1]
    maps: Any = layer_of(case, torch.float32).maps[0]
    raw = raws(case.n, torch.float32).requires_grad_()
    x = torch.compile(lambda z: maps(z), fullgraph=True, backend="aot_eager")(raw)
    x.sum().backward()
    assert broken(case.obeys, x) == 0
    assert raw.grad is not None


@pytest.mark.parametrize("size", ["1e-9", "1e-30", "1e-60"])
@pytest.mark.parametrize(
    ("rules", "n"),
    [
        ("norm(x) <= {}; x[0] + x[1] >= 0", 2),
        ("norm(x) <= {0}; norm(x - 1.2*{0}) < {0}", 2),
        ("norm(x[:2] - {0}) <= x[2] - {0}; x[2] <= 4*{0}", 3),
        ("sum(x) == 0; norm(x) <= {0}; x[0] >= {0}/2", 3),
    ],
)
def test_small_units_have_room(rules: str, n: int, size: str) -> None:
    text = f"x: real[{n}]\n{rules.format(size)}"
    mux = mx.Multiplexer(rules_of(text), dtype=torch.float64)
    x = mux(raws(n, torch.float64, 4)[:, : mux.in_features]).best()
    assert rules_of(text).satisfied(x).all()


# --- known at run time ------------------------------------------------------------------------------------------------

MOVED = [
    (
        "x: real[2]; u: input[0.1, 5]; norm(x - [1, 2]) <= u",
        lambda x, u: squares([x[0] - 1, x[1] - 2]) <= u[0] ** 2,
    ),
    (
        "x: real[2]; u: input[3]; norm(x - u[:2]) < 2*u[2] - 0.25 or x[0] + x[1] > 1000",
        lambda x, u: (
            squares([x[0] - u[0], x[1] - u[1]]) < (2 * u[2] - Fraction(1, 4)) ** 2
            or x[0] + x[1] > 1000
        ),
    ),
    (
        "x: real[2]; u: input[1, 9]; x[0]**2 + 2*(x[1] - u)**2 <= 4",
        lambda x, u: x[0] ** 2 + 2 * (x[1] - u[0]) ** 2 <= 4,
    ),
    (
        "x: real[2]; u: input[1, 9]; quad(x - u, [[2, 1], [1, 2]]) < 3*u",
        lambda x, u: 2 * (squares(p := [v - u[0] for v in x]) + p[0] * p[1]) < 3 * u[0],
    ),
    (
        "x: real[2]; u: input[3]; norm([x[0] - u[0], x[0] + x[1], x[1] - u[1], u[2], 1]) <= 9",
        lambda x, u: squares([x[0] - u[0], x[0] + x[1], x[1] - u[1], u[2]]) + 1 <= 81,
    ),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize(("text", "obeys"), MOVED, ids=[t for t, _ in MOVED])
def test_balls_that_inputs_move(
    text: str, obeys: Callable[..., bool], dtype: torch.dtype
) -> None:
    mux = mx.Multiplexer(rules_of(text), dtype=dtype).eval()
    raw = raws(mux.in_features, dtype, 8)
    width = 3 if "input[3]" in text else 1
    u = (1 + 2 * torch.rand(len(raw), width)).to(dtype)
    x = mux(raw, u=u if width > 1 else u[:, 0]).best()
    for row, known in zip(x.double().tolist(), u.double().tolist(), strict=True):
        assert obeys(list(map(Fraction, row)), list(map(Fraction, known)))


@pytest.mark.parametrize("text", [MOVED[0][0], MOVED[3][0]])
def test_a_moved_ball_inverts_with_its_determinant(text: str) -> None:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    maps: Any = mux.maps[0]
    raw = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    u = (1 + torch.rand(3, 1, dtype=torch.float64)).requires_grad_()
    x, log_det = maps.forward_and_log_det(raw, inputs=u)
    back = maps.inverse(x.squeeze(-2), inputs=u).squeeze(-2)
    torch.testing.assert_close(back, raw)
    J = torch.autograd.functional.jacobian(lambda z: maps(z, inputs=u[0])[0], raw[0])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(log_det[0, 0], torch.linalg.slogdet(J)[1])
    assert torch.autograd.gradcheck(lambda z, w: maps(z, inputs=w), (raw, u))
    assert mx.certify(mux.certificate, rules).certified
    base = torch.distributions.Normal(raw[0].detach(), 1.0)
    distribution = mx.RulesDistribution(mux, base, inputs={"u": 2.0})
    drawn = distribution.sample((20,))
    assert distribution.log_prob(drawn).isfinite().all()


@pytest.mark.parametrize(
    ("rule", "u", "radius"),
    [
        ("x @ x <= u", 100.0, 10.0),
        ("x @ x <= u", 1e-20, 1e-10),
        ("x @ x <= u", 1e-290, 1e-145),
        ("x @ x <= u", 1e200, 1e100),
        ("norm([x[0], x[1], 3]) <= u", 5.0, 4.0),
        ("norm([x[0], x[1], 2*u, u]) <= 7", 3.0, 2.0),
        ("norm([x[0], x[1], u - x[0], u - x[1]]) <= 4*u", 1.0, 7**0.5),
    ],
)
def test_what_inputs_take_of_a_square_leaves_the_rest_of_it(
    rule: str, u: float, radius: float
) -> None:
    rules = mx.Rules(f"x: real[2]; u: input\n{rule}")
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    x = mux(1e6 * torch.randn(50, 2).double(), u=u).best()
    assert rules.satisfied(x, u=u).all()
    middle = u / 2 if "u - x" in rule else 0.0
    length = (x - middle).norm(dim=-1)
    assert bool((length > radius * (1 - 1e-9)).all())
    far = torch.tensor([[middle + 3 * radius, middle]], dtype=torch.float64)
    assert float((mux.repair(far, u=u) - far).norm()) < 2 * radius * (1 + 1e-6)


@pytest.mark.parametrize("u", [8e307, 1e308, 1.7976931348623157e308])
@pytest.mark.parametrize(
    "raw", [(50.0, -40.0), (torch.inf, -1.0), (-torch.inf, torch.inf)]
)
def test_a_ball_as_large_as_floats_are_has_numbers_for_every_raw_value(
    u: float, raw: tuple[float, float]
) -> None:
    rules = mx.Rules("x: real[2]; u: input; c: input[2]; norm(x - c) <= u")
    mux = mx.Multiplexer(rules, dtype=torch.float64).eval()
    given = {
        "u": torch.tensor([u], dtype=torch.float64),
        "c": torch.ones(1, 2).double(),
    }
    x = mux(torch.tensor([raw]).double(), **given).best()
    total = sum((Fraction(v) - 1) ** 2 for v in x[0].tolist())
    assert total <= Fraction(u) ** 2
    assert x.abs().max() > 0.1 * u


def test_a_moved_ball_of_tiny_numbers_is_judged_though_their_squares_vanish() -> None:
    rules = mx.Rules("x: real; c: input[2]; u: input; norm([x - c[0], x - c[1]]) <= u")
    mux = mx.Multiplexer(rules, dtype=torch.float64).eval()
    c = torch.tensor([[1e-170, -1e-170]], dtype=torch.float64).expand(8, -1)
    raw = 5 * torch.randn(8, 1).double()
    with pytest.raises(InputError, match="no term"):  # at least √2 e-170 is needed
        mux(raw, c=c, u=torch.full((8,), 1.3e-170, dtype=torch.float64))
    for size, u in ((1e-170, 1.5e-170), (1e160, 1e161)):
        centre = c / 1e-170 * size
        x = mux(raw, c=centre, u=torch.full((8,), u, dtype=torch.float64)).best()
        for (value,), (a, b) in zip(x.tolist(), centre.tolist(), strict=True):
            total = (Fraction(value) - Fraction(a)) ** 2 + (
                Fraction(value) - Fraction(b)
            ) ** 2
            assert total <= Fraction(u) ** 2


def test_a_radius_that_leaves_no_room_is_refused_in_its_row() -> None:
    mux = mx.Multiplexer(mx.Rules("x: real[2]; u: input; norm(x) <= u"))
    with pytest.raises(InputError, match="no term"):
        mux(torch.zeros(2, 2), u=torch.tensor([1.0, -1.0]))
    assert mux(torch.zeros(1, 2), u=torch.tensor([1e-30])).best().isfinite().all()


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("norm(x) <= u and x[0] >= 0.5*u", "other walls bound its outputs"),
        ("norm([x[0], u]) <= x[1]", "a cone that inputs move"),
    ],
)
def test_what_inputs_may_not_move(rule: str, reason: str) -> None:
    with pytest.raises(CurvedError, match=reason):
        mx.Multiplexer(mx.Rules(f"x: real[2]; u: input[1, 2]; {rule}"))


# --- inputs alone -----------------------------------------------------------------------------------------------------

ALONE = "x: real[2]; c: input[2]; norm(c) <= 1; norm(x) <= 1"
EITHER = "x: real; c: input[2]; norm(c) <= 1 or x >= 2"
BETWEEN = """
    x: real; c: input[2]; u: input
    norm([c[0] - 1, 2*c[1]]) < u + 1 or c[0] >= 5
    x >= 2 and norm(c) <= u or x <= c[0] and c[0]**2 + 3*c[1]**2 <= 4*u
"""
"""Curved walls around inputs alone: of all rows, of one of two terms, and of both."""


def places(count: int) -> Tensor:
    """Points in the plane, many of them on the circles of radius 1 and 5."""
    walls = [[1, 0], [0, -1], [0.6, 0.8], [3, 4], [5, 0], [0, 0], [1e-42, 1], [7, 7]]
    return torch.cat([torch.tensor(walls), 1.5 * torch.randn(count, 2)])


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_curved_rules_about_inputs_alone_are_checked_in_every_row(
    dtype: torch.dtype,
) -> None:
    mux = mx.Multiplexer(ALONE, dtype=dtype)
    c = places(40).to(dtype)
    inside = torch.tensor(
        [sum(Fraction(v) ** 2 for v in row) <= 1 for row in c.tolist()]
    )
    raw = torch.randn(len(c), mux.in_features).to(dtype)
    x = mux(raw[inside], c=c[inside]).best()
    assert inside.any()
    assert mux.rules.satisfied(x, c=c[inside]).all()
    for row in c[~inside]:
        with pytest.raises(InputError, match=r"the rule `norm\(c\) <= 1` .* in row 1:"):
            mux(raw[:2], c=torch.stack([torch.zeros(2, dtype=dtype), row]))


@pytest.mark.parametrize("text", [EITHER, BETWEEN])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_term_may_ask_curved_things_of_inputs(text: str, dtype: torch.dtype) -> None:
    mux = mx.Multiplexer(text, dtype=dtype)
    c = places(200).to(dtype)
    given = {"c": c, "u": torch.rand(len(c)).to(dtype)}
    given = {name: given[name] for name in mux.rules.input_groups}
    met = torch.ones(len(c), dtype=torch.bool)
    raw = torch.randn(len(c), mux.in_features).to(dtype)
    for i in range(len(c)):
        own: dict[str, Any] = {name: value[i] for name, value in given.items()}
        try:
            branches = mux(raw[i], **own)
        except InputError:
            met[i] = False
            continue
        for x in (branches.best(), branches.sample()):
            assert mux.rules.satisfied(x, **own)
    assert met.any()
    assert (text == EITHER) == bool(met.all())

    def best(raw: Tensor, given: dict[str, Tensor]) -> Any:
        return mux(raw, **given).best()

    x = torch.vmap(best)(raw, given)
    assert torch.equal(~x.isnan().any(-1), met)


def test_curved_walls_of_inputs_are_decided_exactly() -> None:
    mux = mx.Multiplexer("x: real; c: input[2]; norm(c) <= 5 or x >= 2")
    up = torch.nextafter(torch.tensor(4.0), torch.tensor(9.0))
    c = torch.tensor([[3.0, 4.0], [3.0, up], [0.0, -5.0], [5.0, 1e-42]])
    branches = mux(torch.randn(4, mux.in_features), c=c)
    left = (branches.logits > -inf).sum(-1)
    assert left.tolist() == [2, 1, 2, 1]


def test_what_curved_rules_refuse_is_nan_in_graphs() -> None:
    mux = mx.Multiplexer(ALONE).eval()
    c = torch.tensor([[3.0, 4.0], [0.6, 0.0], [0.0, 1.0], [inf, 0.0]])
    raw = torch.randn(4, mux.in_features)
    compiled = torch.compile(
        lambda raw, c: mux(raw, c=c).best(), backend="aot_eager", fullgraph=True
    )
    nans = compiled(raw, c).isnan().all(-1).tolist()
    assert nans == [True, False, False, True]


def test_layers_with_curved_rules_about_inputs_travel() -> None:
    mux = mx.Multiplexer(BETWEEN)
    again = mx.Multiplexer.from_state(mux.state_dict())
    given: dict[str, Any] = {
        "c": torch.tensor([[0.25, 0.5]]),
        "u": torch.tensor([1.0]),
    }
    raw = torch.randn(1, mux.in_features)
    assert torch.equal(mux(raw, **given).best(), again(raw, **given).best())
    with pytest.raises(InputError, match="about inputs does not hold"):
        again(raw, c=torch.tensor([[0.0, 9.0]]), u=torch.tensor([1.0]))
    moved = again.repair(torch.tensor([[1.5]]), **given)
    assert mx.Rules(BETWEEN).satisfied(moved, **given).all()


@pytest.mark.parametrize("text", [ALONE, EITHER, BETWEEN])
def test_curved_rules_about_inputs_are_certified(text: str) -> None:
    mux = mx.Multiplexer(text)
    report = mx.certify(mux.certificate)
    assert report.certified
    listed = "as the layer checks in every row, norm("
    assert (listed in str(report)) == (text != EITHER)


def test_a_certificate_is_not_of_another_curved_rule_about_inputs() -> None:
    def rules(condition: str) -> mx.Rules:
        return mx.Rules(f"x: real; c: input[2]; x <= c[0]; {condition}")

    certificate = mx.Multiplexer(rules("norm(c) <= 1")).certificate
    assert mx.certify(certificate, rules("norm(c) <= 1")).certified
    for other in ("norm(c) <= 2", "norm(c) <= 1/2", "x <= 2*c[0] + 1"):
        assert not mx.certify(certificate, rules(other)).certified
    certificate = mx.Multiplexer(rules("")).certificate
    assert not mx.certify(certificate, rules("norm(c) <= 1")).certified


# --- proofs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[8], CASES[9]], ids=str)
def test_a_certificate_is_proved_again(case: Case) -> None:
    mux = layer_of(case)
    rules = mx.Rules(case.text)
    assert mx.certify(mux.certificate, rules).certified
    smaller = mx.Rules(f"{case.text}; x[0] <= 1/8")
    assert not mx.certify(mux.certificate, smaller).certified


@pytest.mark.parametrize(
    "text",
    [
        "x: real; x**2 <= 3; x == 1",
        "x: real[2]; x @ x <= 3; x[0] == 1; x[1] == x[0] / 2",
        "x: real[2]; (x @ x <= 3 and x[0] == 1 and x[1] == 1) or x[0] >= 5",
        "x: real[2]; t: real; norm(x) <= t; x[0] == 3; x[1] == 4",
        "x: real[2]; t: real; norm(x) <= t; x[0] == 1; x[1] == 1",
    ],
)
def test_norms_of_constants_are_certified(text: str) -> None:
    mux = mx.Multiplexer(text)
    assert mx.certify(mux.certificate).certified
    smaller = text.replace("<= 3", "<= 1").replace("<= t", "<= t - 1")
    assert not mx.certify(mux.certificate, mx.Rules(smaller)).certified


def test_what_a_certificate_says_of_curved_walls_is_checked() -> None:
    document = layer_of(CASES[8]).certificate.data
    changes: list[Callable[[Any], Any]] = [
        lambda d: d["terms"]["tangents"][0].__setitem__(1, ["2", "0"]),
        lambda d: d["terms"].pop("tangents"),
        lambda d: _curved(d)["left"].__setitem__(0, "1"),
        lambda d: _curved(d)["sizes"][0].__setitem__(0, "1/1000"),
        lambda d: _curved(d)["anchor"].__setitem__(0, "100"),
        lambda d: _curved(d)["cones"][0][1].__setitem__(0, "-7"),
    ]
    for change in changes:
        changed = copy.deepcopy(dict(document))
        change(changed)
        assert not _accepted(changed)
    assert _accepted(copy.deepcopy(dict(document)))


def _curved(document: Any) -> Any:
    parts = document["layer"]["maps"][0]["terms"][0]["parts"]
    return next(part for part in parts if part["kind"] == "curved")


def _accepted(data: Any) -> bool:
    from multiplexnet.certificate.document import Certificate, hashes

    data["sha256"] = hashes(data)
    try:
        return mx.certify(Certificate(data)).certified
    except MultiplexError:
        return False


def test_terms_that_miss_a_ball_are_left_out() -> None:
    compiled = compile_rules(parse("x: real[2]; norm(x) < 1 or x[0] > 2; x[0] >= 1"))
    assert [len(block.terms) for block in compiled.blocks] == [1]
    assert compiled.tangents
    assert all(tangent.is_valid for tangent in compiled.tangents)
    assert compiled.proof.complete


@pytest.mark.parametrize(
    "text",
    [
        "x: real[2]; norm(x) <= 1; x[0] + x[1] >= 1.415",
        "x: real[2]; norm(x) <= 1; norm(x - 2) <= 1.8",
        "x: real[2]; t: real; norm(x) <= t; t < 0",
        "x: real[20]; norm(x) <= 1; sum(x) >= 4.5",
    ],
)
def test_contradictions_name_the_rules(text: str) -> None:
    with pytest.raises(ContradictionError, match="these 2 rules"):
        mx.Rules(text).compile()


def test_what_only_touches_has_no_room() -> None:
    with pytest.raises(ThinTermError, match="norm"):
        mx.Multiplexer(mx.Rules("x: real[2]; norm(x) <= 1; x[0] >= 1"))


def test_explain_tells_what_curved_walls_bound() -> None:
    rules = mx.Rules("x: real[3]; t: real\nsum(x) == 1; norm(x) <= 0.8\nnorm(x) <= t")
    found = explain(rules.specification)
    assert [shape.bounded for shape in found.shapes[0]] == [False]
    ranges = {r.variable.name: (r.lower, r.upper, r.outer) for r in found.ranges}
    assert ranges["x[0]"] == (Fraction(-3, 5), Fraction(4, 5), True)
    assert ranges["t"] == (Fraction(1, 3), None, True)
    assert not found.implied


def test_a_radius_of_zero_is_a_point() -> None:
    rules = mx.Rules("x: real[2]; n: int[0, 2]; norm(x, 2, [1, 4]) <= n")
    mux = mx.Multiplexer(rules)
    x = mux(torch.randn(200, mux.in_features)).best()
    assert rules.satisfied(x).all()
    assert mx.certify(mux.certificate, rules).certified


# --- the language -----------------------------------------------------------------------------------------------------

WRITTEN = [
    ("x: real[2]; norm(x) <= 2", "norm([x[0], x[1]]) <= 2"),
    ("x: real[2]; not norm(x) >= 2", "norm([x[0], x[1]]) < 2"),
    ("x: real[2]; norm(x) <= 0", "x[0] == 0 and x[1] == 0"),
    ("x: real[2]; norm(x) < 0", "False"),
    ("x: real[2]; norm(x, 2, [4, 9]) <= 6", "4*x[0]**2 + 9*x[1]**2 <= 36"),
    ("x: real[2]; x @ x < 3", "x[0]**2 + x[1]**2 < 3"),
    ("x: real[2]; 4 - x[0]**2 - 2*x[1]**2 > 0", "x[0]**2 + 2*x[1]**2 < 4"),
    ("x: real[2]; sum(v**2 for v in x) / 2 <= 3", "x[0]**2 + x[1]**2 <= 6"),
    ("x: real; x**2 <= 4", "abs(x) <= 2"),
    ("x: real[2]; (x[0] + x[1])**2 <= 4", "(x[0] + x[1])**2 <= 4"),
    ("x: real[2]; (3*x[0] - x[1] - 1)**2 > 4", "(3*x[0] - x[1] - 1)**2 > 4"),
    ("x: real[2]; abs(x[0] + x[1]) <= 2", "abs(x[0] + x[1]) <= 2"),
    ("x: real[2]; norm(x, 2, [4, 4]) <= 1e-200", "x[0]**2 + x[1]**2 <= 25e-402"),
    ("x: real[2]; norm([x[0], x[1], 4]) <= 5", "x[0]**2 + x[1]**2 <= 9"),
    ("x: real[2]; norm([3, 4]) <= x[0]", "x[0] >= 5"),
    ("x: real[2]; norm([1, 1]) <= 1.5 and x[0] <= 1", "x[0] <= 1"),
    ("x: real[2]; t: real; norm(x) <= 2*t + 1", "norm([x[0], x[1]]) <= 2*t + 1"),
]


@pytest.mark.parametrize(("text", "said"), WRITTEN, ids=[t for t, _ in WRITTEN])
def test_what_is_read_is_written_again(text: str, said: str) -> None:
    specification = parse(text)
    assert formula_text(specification.rules[-1].formula) == said
    again = parse(specification_text(specification))
    assert [r.formula for r in again.rules] == [r.formula for r in specification.rules]


REFUSED = [
    ("norm(x) >= 2", "not convex"),
    ("not norm(x) <= 2", "not convex"),
    ("implies(norm(x) <= 1, x[0] > 0)", "not convex"),
    ("iff(norm(x) <= 1, x[0] > 0)", "not convex"),
    ("x[0]**2 >= 3", "not convex"),
    ("norm(x) == 1", "the surface of a ball"),
    ("x[0]**2 == 1", "no convex set"),
    ("norm(x) + norm(x - 1) <= 3", "several norms"),
    ("max(norm(x), 1) <= 3", "several norms"),
    ("x[0]**2 - x[1]**2 <= 3", "a difference of squares"),
    ("quad(x, [[1, 2], [2, 1]]) <= 3", "not positive semidefinite"),
    ("quad(x, [[1]]) <= 3", "needs 2 rows of 2 numbers"),
    ("norm(x, 3) <= 2", "a norm of another kind"),
    ("norm(x, 2, [1, 0]) <= 2", "weights are positive"),
    ("norm(x, 2, [1]) <= 2", "1 weight for 2 numbers"),
    ("x[0]**3 <= 2", "a power: squares"),
    ("abs(x[0]**2) <= 2", "a square is curved"),
    ("abs(x[0])**2 <= 2", "a square of"),
    ("u * x[0] <= norm(x)", "not convex"),
    ("norm(x) <= u * x[0]", "products with inputs"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[t for t, _ in REFUSED])
def test_what_is_not_read_is_explained(text: str, reason: str) -> None:
    with pytest.raises(RuleSyntaxError, match=reason):
        parse(f"x: real[2]; u: input[0, 1]\n{text}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n: int[0, 9]; x: real; norm([n, x]) <= 5", "is a whole number"),
        ("x: real[2]; f: function; norm(x) <= 5; x[1] <= f(x[0])", "a curved wall"),
    ],
)
def test_where_no_map_is_known(text: str, reason: str) -> None:
    with pytest.raises(CurvedError, match=reason):
        mx.Multiplexer(mx.Rules(text), functions={"f": torch.sin} if "f:" in text else None)  # fmt: skip


@pytest.mark.parametrize(
    "wall", ["norm(x) <= 1e200", "norm([1e200*x[0], x[1]]) <= 1", "norm(x) <= 1e400"]
)
def test_numbers_that_float64_cannot_square_are_refused(wall: str) -> None:
    with pytest.raises(MagnitudeError):
        mx.Multiplexer(mx.Rules(f"x: real[2]; {wall}"), dtype=torch.float64)


@pytest.mark.parametrize("wall", ["norm(x) <= 1e-30", "norm([1e30*x[0], x[1]]) <= 1"])
def test_small_sets_are_found(wall: str) -> None:
    rules = mx.Rules(f"x: real[2]; {wall}")
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    assert rules.satisfied(mux(torch.randn(50, 2, dtype=torch.float64)).best()).all()


def test_a_cascade_has_no_curved_walls() -> None:
    rules = mx.Rules("x: real[2]; norm(x) <= 1; all(-1 <= x <= 1)")
    with pytest.raises(CurvedError, match="one after another"):
        mx.Multiplexer(rules, structure="cascade")


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_verdicts_agree_with_fractions() -> None:
    generator = np.random.default_rng(0)
    for case in CASES:
        rules = mx.Rules(case.text)
        x = generator.integers(-20, 21, (200, case.n)) / 8.0
        x[:50] *= 1e-170
        x[50:60] *= 1e200
        expected = [_obeys(case.obeys, row) for row in x.tolist()]
        assert rules.satisfied(x).tolist() == expected
        amounts = rules.violation(x)
        assert ((amounts == 0).all(-1) == expected).all()
        formula = rules.specification.formula
        for row in x[:20].tolist():
            point = dict(zip(rules.specification.variables, map(Fraction, row), strict=True))  # fmt: skip
            assert holds(formula, point) == _obeys(case.obeys, row)


def test_ties_are_decided_exactly() -> None:
    rules = mx.Rules("x: real[2]; t: real; norm(x) <= t")
    x = torch.tensor([[3, 4, 5], [0.6, 0.8, 1], [3, 4, 5 - 2.0**-50]]).double()
    x[2, 2] = 5 - 2.0**-50
    assert rules.satisfied(x).tolist() == [True, Fraction(0.6) ** 2 + Fraction(0.8) ** 2 <= 1, False]  # fmt: skip


def test_squares_and_bounds_beyond_float64_are_decided_without_a_warning() -> None:
    """There ∞ - ∞ is NaN, whose cast to a whole number depends on the machine and warned."""
    rules = mx.Rules("x: real[2]; t: real; norm(x) <= 10*t")
    x = np.array([[1e300, 0, 1e308], [1.7e308, 1.7e308, 2.3e307], [1, 0, -1e308]])
    wide = np.array([[1.7e308, 1.7e308, 1e308], [1e200, 1e200, 1.5e199]])
    x = np.concatenate([x, wide])
    exact = [squares(list(map(Fraction, row[:2]))) <= (10 * Fraction(row[2])) ** 2 for row in x]  # fmt: skip
    expected = [fits and row[2] >= 0 for fits, row in zip(exact, x, strict=True)]
    assert rules.satisfied(x).tolist() == expected == [True, False, False, True, True]
    assert ((rules.violation(x) == 0).all(-1) == expected).all()


def test_a_table_is_judged() -> None:
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"a": [3, 1], "b": [4, 9]})
    report = mx.check("a: int[0, 9]; b: int[0, 9]\na**2 + b**2 <= 25", table)
    assert report.rows == 2
    assert report.obeying == 1


def test_z3_means_the_same() -> None:
    from multiplexnet.smt.questions import implies, satisfiable

    ball = parse("x: real[2]; norm(x) <= 1").formula
    box = parse("x: real[2]; all(abs(v) <= 1 for v in x)").formula
    assert implies(ball, box)
    assert not implies(box, ball)
    found = satisfiable(parse("x: real[2]; norm(x) < 1; x[0] + x[1] > 1.4").formula)
    assert found is not None


# --- one set, many ways to write it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("squares", "norm"),
    [
        ("x[0]**2 + x[1]**2 <= 4*x[0] - 3", "norm(x - [2, 0]) <= 1"),
        ("x @ x < 2*x[0] - 6*x[1] - 6", "(x[0] - 1)**2 + (x[1] + 3)**2 < 4"),
        ("4*x[0]**2 + x[1]**2 + 4*x[0] <= 8", "norm(x + [0.5, 0], 2, [4, 1]) <= 3"),
        ("quad(x, [[2, 1], [1, 2]]) <= 6*x[0] + 3", "quad(x - [2, -1], [[2, 1], [1, 2]]) <= 9"),
        ("(x[0] + x[1])**2 + x[1]**2 <= 2*x[0]", "(x[0] + x[1] - 1)**2 + (x[1] + 1)**2 <= 2"),
    ],
)  # fmt: skip
def test_squares_are_completed(squares: str, norm: str) -> None:
    first, second = (parse(f"x: real[2]; {rule}") for rule in (squares, norm))
    assert first.formula == second.formula


def test_a_square_that_is_completed_says_the_same() -> None:
    generator = np.random.default_rng(3)
    for _ in range(40):
        a, b, c, d, e, f, g = (int(k) for k in generator.integers(-4, 5, 7))
        rule = f"({a}*x[0] + {b}*x[1] + u)**2 + 2*({c}*x[1] + 1)**2 <= {d}*x[0] + {e}*x[1] + {f}*u + {g}*t"
        try:
            rules = mx.Rules(f"x: real[2]; t: real; u: input; {rule}")
        except RuleSyntaxError:
            continue
        x = generator.integers(-8, 9, (200, 3)) / 4
        u = generator.integers(-8, 9, 200) / 4
        left = (a * x[:, 0] + b * x[:, 1] + u) ** 2 + 2 * (c * x[:, 1] + 1) ** 2
        right = d * x[:, 0] + e * x[:, 1] + f * u + g * x[:, 2]
        assert (rules.satisfied(x, u=u) == (left <= right)).all()


@pytest.mark.parametrize(
    "empty", ["x @ x <= 4*x[0] - 5", "quad(x, [[2, 1], [1, 2]]) < 6*x[0] - 7"]
)
def test_squares_without_a_point_are_a_contradiction(empty: str) -> None:
    with pytest.raises(ContradictionError):
        mx.Multiplexer(mx.Rules(f"x: real[2]; {empty}"))
    rules = mx.Rules(f"x: real[2]; {empty} or x[0] >= 3")
    assert compile_rules(rules.specification).blocks[0].terms[0].rows
    x = mx.Multiplexer(rules).eval()(torch.randn(50, 2)).best()
    assert rules.satisfied(x).all()


def test_a_ball_moved_by_its_linear_part_may_have_an_input() -> None:
    rules = mx.Rules("x: real[2]; u: input[0, 9]; x @ x <= 4*x[0] + u")
    mux = mx.Multiplexer(rules)
    u = 9 * torch.rand(100)
    x = mux(torch.randn(100, 2), u=u).best()
    assert rules.satisfied(x, u=u).all()
    assert mx.certify(mux.certificate, rules).certified


def test_a_ball_is_known_as_exactly_as_it_is_written() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16):
        found = [
            mx.Multiplexer(mx.Rules(f"x: real[3]; {ball}; sum(x) == 2"), dtype=dtype)
            for ball in ("norm(x - [2, 0, 0]) <= 1", "x @ x <= 4*x[0] - 3")
        ]
        assert found[0].resolution == found[1].resolution


@pytest.mark.parametrize(
    "ball",
    ["norm(x) <= 3", "x @ x <= 9", "quad(x, [[1, 0], [0, 1]]) <= 9", "2*norm(x) <= 6",
     "norm(x, 2, [4, 4]) <= 6", "(x[0] + x[1])**2 + (x[0] - x[1])**2 <= 18"],
)  # fmt: skip
def test_the_violation_of_a_ball_is_the_distance(ball: str) -> None:
    x = np.array([[9.0, 0.0], [0.0, -9.0], [6.0, 8.0], [1.0, 1.0]])
    found = mx.Rules(f"x: real[2]; {ball}").violation(x)[:, 0]
    assert np.abs(found - [6, 6, 7, 0]).max() < 1e-12


def test_the_violation_of_an_ellipsoid_is_at_most_the_distance() -> None:
    spelled = ["norm(x, 2, [1, 4]) <= 4", "x[0]**2 + 4*x[1]**2 <= 16", "x[0]**2/4 + x[1]**2 <= 4"]  # fmt: skip
    x = np.array([[9.0, 0.0], [0.0, 7.0], [5.0, 5.0]])
    for rule in spelled:
        found = mx.Rules(f"x: real[2]; {rule}").violation(x)[:, 0]
        assert np.abs(found[:2] - [2.5, 5]).max() < 1e-12
        assert 0 < found[2] <= 4.2  # the distance
    for rule in ("x[0]**2 <= 4", "x[0]**2/4 <= 1", "2*x[0]**2 <= 8"):
        assert mx.Rules(f"x: real[2]; {rule}").violation(x)[0, 0] == 7


@pytest.mark.parametrize("size", [1.23, 1.23e6, 2e155])
def test_violations_of_a_paraboloid_are_zero_exactly_where_it_holds(
    size: float,
) -> None:
    """The two sides nearly cancel out: what is left is less than float64 has, or they are beyond its numbers."""
    rules = mx.Rules("x: real[2]; x[0]**2 <= 1000*x[1]")
    bound = size / 1000 * size
    x = np.array([[size, bound * (1 + k * 2.0**-52)] for k in range(-4, 5)])
    found = rules.violation(x)[:, 0]
    assert 0 < (found == 0).sum() < len(x)
    assert ((found == 0) == rules.satisfied(x)).all()
    for (a, b), amount in zip(x.tolist(), found.tolist(), strict=True):
        # norm([x[0], (s - 1)/2]) less (s + 1)/2, s = 1000*x[1]
        side = 1000 * Fraction(b)
        missed = max(Fraction(a) ** 2 - side, Fraction(0))
        assert amount == pytest.approx(float(missed / (1 + side)), abs=1e-15)


@pytest.mark.parametrize("rule", ["norm(x) <= 2", "x @ x <= 4", "norm(x) <= x[1] + 2"])
def test_violations_do_not_overflow(rule: str) -> None:
    x = np.array([[1e160, 0.0], [-1e300, 1e-300], [1e308, 0.0]])
    found = mx.Rules(f"x: real[2]; {rule}").violation(x)[:, 0]
    assert np.abs(found / [1e160, 1e300, 1e308] - 1).max() < 1e-12


@pytest.mark.parametrize(
    ("rule", "x", "distance"),
    [
        ("norm(x) <= 1e-200", [3.0, 4.0], 5.0),
        ("norm(x) <= 1e-300", [3e20, 4e20], 5e20),
        ("norm(x) <= 1e200", [3e200, 0.0], 2e200),
        ("x @ x <= 1e-400", [3.0, 4.0], 5.0),
        ("norm(x, 2, [4, 4]) <= 1e-200", [3.0, 4.0], 5.0),
        ("2*(x @ x) <= 3e-400", [3.0, 4.0], 5.0),
        ("(x[0] + x[1])**2 <= 4", [5.0, 0.0], 3 / 2**0.5),
        ("(x[0] + x[1])**2 <= 2", [5.0, 0.0], 5 / 2**0.5 - 1),
        ("(3*x[0])**2 <= 36", [5.0, 0.0], 3.0),
        ("norm([x[0], x[1], 4]) <= 5", [3.0, 4.0], 2.0),
        ("x[0]**2 + (x[0] - 2)**2 + 2*x[1]**2 <= 4", [1.0, 4.0], 3.0),
        ("norm(x) <= 0", [3.0, 4.0], 4.0),  # x[0] == 0 and x[1] == 0
    ],
)  # fmt: skip
def test_violations_are_lengths(rule: str, x: list[float], distance: float) -> None:
    found = mx.Rules(f"x: real[2]; {rule}").violation(np.array(x))
    assert abs(found[0] / distance - 1) < 1e-12


# --- squares that depend on each other --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("squares", "independent"),
    [
        ("x[0]**2 + (x[0] - 2)**2 + x[1]**2 <= 4", "2*(x[0] - 1)**2 + x[1]**2 <= 2"),
        ("x[0]**2 + (x[0] - 2)**2 + x[1]**2 <= 2", "x[0] == 1 and x[1] == 0"),
        ("x[0]**2 + (x[0] - 2)**2 + x[1]**2 < 2", "False"),
        ("norm([x[0], x[1], 4]) <= 5", "x @ x <= 9"),
        ("not norm([x[0], x[1], 4]) >= 5", "x @ x < 9"),
        ("norm([x[0], x[1], 4]) <= 4", "x[0] == 0 and x[1] == 0"),
        ("norm([x[0], x[1], 4]) <= 3.9", "False"),
        ("norm([x[0], x[0] - 6]) <= 6", "abs(x[0] - 3) <= 3"),
        ("x[0]**2 + (x[0] - x[1])**2 + x[1]**2 <= 6", "quad(x, [[2, -1], [-1, 2]]) <= 6"),
    ],
)  # fmt: skip
def test_dependent_squares_are_taken_apart(squares: str, independent: str) -> None:
    first, second = (parse(f"x: real[2]; {rule}") for rule in (squares, independent))
    assert first.formula == second.formula


def test_dependent_squares_say_the_same() -> None:
    generator = np.random.default_rng(4)
    for _ in range(60):
        a, b, c, d, e, f, g, h = (int(k) for k in generator.integers(-3, 4, 8))
        parts = [f"{a}*x[0] + {b}*u + {g}", f"{c}*x[0] + {d}*x[1]", f"x[1] - {h}", f"x[0] + {e}*u", "3"]  # fmt: skip
        weights = [int(k) for k in generator.integers(1, 5, len(parts))]
        rule = f"norm([{', '.join(parts)}], 2, {weights}) <= {8 + f}"
        rules = mx.Rules(f"x: real[2]; u: input; {rule} or x[0] >= 100")
        x = generator.integers(-8, 9, (200, 2)) / 4
        u = generator.integers(-8, 9, 200) / 4
        y, z = x.T
        values = [a * y + b * u + g, c * y + d * z, z - h, y + e * u, 3 + 0 * u]
        square = sum(w * v * v for w, v in zip(weights, values, strict=True))
        assert (rules.satisfied(x, u=u) == (square <= (8 + f) ** 2)).all()


def test_the_ends_of_dependent_squares_are_told() -> None:
    ball = "x: real[2]; x[0]**2 + (x[0] - 2)**2 + x[1]**2 <= 4"
    side = 2**0.5
    told: list[tuple[str, list[tuple[float, float]]]] = [
        (ball, [(0, 2), (-side, side)]),
        (f"{ball}; x[0] + x[1] == 1", [(0, 2), (-1, 1)]),
        (f"{ball}; x[0] >= -5", [(0, 2), (-side, side)]),
        ("x: real[2]; norm([x[0], x[1], 4]) <= 5", [(-3, 3), (-3, 3)]),
        ("x: real[2]; x[0]**2 + (x[0] - 2)**2 + x[1]**2 <= 2", [(1, 1), (0, 0)]),
    ]
    for text, ends in told:
        found = explain(parse(text)).ranges
        for r, (lower, upper) in zip(found, ends, strict=True):
            assert r.lower is not None
            assert r.upper is not None
            assert abs(float(r.lower) - lower) < 1e-9
            assert abs(float(r.upper) - upper) < 1e-9


@pytest.mark.parametrize(
    "point",
    ["x[0]**2 + (x[0] - 2)**2 + x[1]**2 <= 2", "norm([x[0] - 1, x[1], 4]) <= 4"],
)
def test_dependent_squares_of_one_point_are_a_term(point: str) -> None:
    rules = mx.Rules(f"x: real[2]; ({point}) or x[0] >= 9")
    mux = mx.Multiplexer(rules).eval()
    x = mux(torch.randn(50, mux.in_features)).best()
    assert rules.satisfied(x).all()
    terms = compile_rules(rules.specification).blocks[0].terms
    said = {" and ".join(map(formula_text, term.rows)) for term in terms}
    assert said == {"x[0] == 1 and x[1] == 0", "x[0] >= 9"}


def test_many_dependent_squares_are_read_at_once() -> None:
    many = "sum(v**2 + (v - 2)**2 for v in x) <= 1200"
    rules = mx.Rules(f"x: real[500]; {many}")
    assert len(str(rules)) < 100_000
    n = 30
    A = np.random.default_rng(0).normal(size=(60, n)).round(3)
    sums = [" + ".join(f"({c})*x[{j}]" for j, c in enumerate(row)) for row in A]
    rules = mx.Rules(f"x: real[{n}]; norm([{', '.join(f'{s} + 1' for s in sums)}]) <= 100")  # fmt: skip
    x = mx.Multiplexer(rules).eval()(torch.randn(20, n)).best()
    assert rules.satisfied(x).all()


def test_a_row_that_breaks_by_less_than_a_rounding_is_violated_beyond_floats() -> None:
    large = 2**1100
    sides = np.random.default_rng(0).integers(1, 30, (200, 3))
    square = (sides * sides).sum(-1)
    bound = np.sqrt(square.astype(np.float64))
    rules = mx.Rules(f"x: real[3]; t: real; norm({large}*x) <= {large}*t")
    rows = np.column_stack([sides, bound])
    obeys = [Fraction(float(t)) ** 2 >= int(s) for t, s in zip(bound, square, strict=True)]  # fmt: skip
    assert (rules.satisfied(rows) == obeys).all()
    assert ((rules.violation(rows)[:, 0] == 0) == obeys).all()


# --- ends -------------------------------------------------------------------------------------------------------------


def random_form(n: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    L = np.round(np.random.default_rng(seed).normal(size=(n, n)), 3)
    return (L @ L.T).round(6)


@pytest.mark.parametrize("n", [2, 4, 9])
@pytest.mark.parametrize("rest", ["", "; x[0] >= -1000"])
def test_the_ends_of_an_ellipsoid_are_told(n: int, rest: str) -> None:
    Q = random_form(n, n)
    centre = list(range(n))
    found = explain(parse(f"x: real[{n}]; quad(x - {centre}, {Q.tolist()}) <= 4{rest}"))
    assert all(shape.bounded for block in found.shapes for shape in block)
    exact = np.sqrt(4 * np.diag(np.linalg.inv(Q)))
    for i, r in enumerate(found.ranges):
        assert r.lower is not None
        assert r.upper is not None
        assert abs(float(r.upper) - i - exact[i]) < 1e-9 * exact[i] + 1e-12
        assert abs(float(r.lower) - i + exact[i]) < 1e-9 * exact[i] + 1e-12


def test_ends_are_told_that_the_range_of_an_input_leaves() -> None:
    wall = "(x - c)**2 + y**2 + c**2 <= 4"
    found = explain(parse(f"x: real; y: real; c: input[0, 1]; {wall}")).ranges
    told = [(float(r.lower or -9), float(r.upper or 9)) for r in found]
    assert told == [(-2, pytest.approx(8**0.5)), (-2, 2)]  # 8: any number for c


def test_reach_is_safe_and_tight() -> None:
    generator = np.random.default_rng(5)
    for _ in range(60):
        n, p = (int(k) for k in generator.integers(1, 6, 2))
        numbers = generator.integers(-3, 4, (p, n + 1))
        rows = [{j: Fraction(int(c)) for j, c in enumerate(row[:-1]) if c} for row in numbers]  # fmt: skip
        shifts = [Fraction(int(row[-1])) for row in numbers]
        weights = [Fraction(int(k), 3) for k in generator.integers(1, 9, p)]
        W = np.diag([float(w) for w in weights])
        Y, y = numbers[:, :-1].astype(float), numbers[:, -1].astype(float)
        Q = Y.T @ W @ Y
        inverse = np.linalg.pinv(Q)
        for j, reach in enumerate(reaches(weights, rows, shifts, n)):
            unit = np.eye(n)[j]
            bounded = bool(np.abs(Q @ inverse @ unit - unit).max() < 1e-9)
            assert (reach is not None) == bounded
            if reach is not None:
                assert abs(float(reach.size) ** 2 - inverse[j, j]) < 1e-9
                assert abs(float(reach.middle) + (inverse @ Y.T @ W @ y)[j]) < 1e-8


@pytest.mark.parametrize("n", [20, 50])
def test_ellipsoids_of_many_outputs_are_compiled(n: int) -> None:
    rules = mx.Rules(f"x: real[{n}]; quad(x, {random_form(n, 0).tolist()}) <= 4")
    found = rules.explain()
    assert found.problem is None
    assert found.shapes[0][0].bounded
    assert len(str(found)) < 20 * n * n
    x = mx.Multiplexer(rules).eval()(torch.randn(20, n)).best()
    assert rules.satisfied(x).all()


@pytest.mark.parametrize("centre", ["", " - 0.3"])
def test_a_large_form_is_written_as_its_matrix(centre: str) -> None:
    Q = random_form(9, 1).tolist()
    specification = parse(f"x: real[9]; quad(x{centre}, {Q}) <= 3")
    (rule,) = specification.rules
    said = formula_text(rule.formula)
    assert said.startswith("quad([x[0]")
    assert len(said) < 2000
    again = parse(specification_text(specification))
    assert again.rules[0].formula == rule.formula


def test_a_sum_of_many_sizes_is_better_written_with_outputs_for_them() -> None:
    slow = parse("x: real[12]; norm(x, 1) <= 3")
    assert "sum(t) <= 3" in compile_module._advised(PROOF, slow).advice
    assert compile_module._advised(PROOF, parse("x: real[3]; norm(x, 1) <= 3")) == PROOF
    rules = mx.Rules(
        "x: real[12]; t: real[12]; all(abs(x[i]) <= t[i] for i in range(12)) and sum(t) <= 3"
    )
    x = mx.Multiplexer(rules).eval()(torch.randn(20, 24)).best()
    assert (x[:, :12].abs().double().sum(-1) <= 3).all()


# --- the checks have teeth --------------------------------------------------------------------------------------------


def _violations(case: Case, dtype: torch.dtype) -> int:
    mux = layer_of(case, dtype)
    raw = (30 * torch.randn(2000, mux.in_features)).to(dtype)
    return broken(case.obeys, mux(raw).best())


def test_cones_without_contraction_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[1]
    assert _violations(case, torch.float32) == 0
    honest = curves_module.cone_rows

    def naive(
        cones: Sequence[Cone],
        anchor: Sequence[Fraction],
        margins: curves_module.Margins,
    ) -> curves_module.ConeRows:
        return honest(cones, anchor, margins._replace(unit=0.0, tiny=0.0, safety=0.0))

    monkeypatch.setattr(gauge_module, "cone_rows", naive)
    assert _violations(case, torch.float32) > 0


def test_a_gauge_is_one_on_the_boundary() -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        n, p = 4, 3
        numbers = [Fraction(int(k), 4) for k in generator.integers(-9, 10, 40)]
        rows = tuple(tuple(numbers[i * n : (i + 1) * n]) for i in range(p))
        s, y = tuple(numbers[20:24]), tuple(numbers[24:27])
        cone = Cone(
            (Fraction(2), Fraction(1), Fraction(1, 3)), rows, y, s, Fraction(30)
        )
        anchor = tuple(numbers[30:34])
        if not cone.contains_strictly(anchor):
            continue
        gauge = cone.gauge(anchor)
        q = generator.normal(size=n)
        pairs = zip(gauge.factors, gauge.L, strict=True)
        inside = [float(f) ** 0.5 * np.dot([float(c) for c in row], q) for f, row in pairs]  # fmt: skip
        g = np.dot([float(c) for c in gauge.w], q) + np.linalg.norm(inside)
        if g > 1e-6:
            Y, y0, s0, t0 = cone.floats
            x = np.array([float(c) for c in anchor]) + q / g
            bound = float(s0 @ x) + t0
            assert abs(np.linalg.norm(Y @ x + y0) - bound) < 1e-9 * max(1, abs(bound))
        sizes = np.array([float(h) for h in gauge.sizes])
        assert g <= sizes @ np.abs(q) + 1e-12
