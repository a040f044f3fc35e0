"""Densities on the rules' set: they integrate to one, agree with samples and closed forms, and vanish outside."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import inf, log, nan
from typing import Any

import pytest
import torch
from corpus import CASES, by_name
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Dirichlet,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    SigmoidTransform,
    TransformedDistribution,
    Uniform,
)

from multiplexnet.errors import DtypeError, InputError, ShapeError
from multiplexnet.language.formula import holds
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.rules import Rules

DOUBLE = torch.float64
TRIANGLE = "0 <= x <= y and y <= 1"
SIMPLEX = "w: real[3]\nw[0] + w[1] + w[2] == 1\nall(w[i] >= 0 for i in range(3))"
ACTUATOR = "a == 0 or 2 < a < 4"
MIXED = 'mode: {"slow", "fast"}; p: real\n0 <= p <= 10\nimplies(mode == "fast", p <= 4)'


@cache
def layer(
    text: str, dtype: torch.dtype = DOUBLE, **functions: Callable[..., Tensor]
) -> Multiplexer:
    return Multiplexer(Rules(text), dtype=dtype, functions=functions)


def tensor(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def normal(size: int, loc: float = 0.0, scale: float = 1.0) -> Distribution:
    return Independent(
        Normal(
            torch.full((size,), loc, dtype=DOUBLE),
            torch.full((size,), scale, dtype=DOUBLE),
        ),
        1,
    )


def logistic(size: int) -> Distribution:
    uniform = Uniform(torch.zeros(size, dtype=DOUBLE), torch.ones(size, dtype=DOUBLE))
    return Independent(TransformedDistribution(uniform, [SigmoidTransform().inv]), 1)


def correlated(size: int) -> Distribution:
    covariance = 0.5 * torch.eye(size, dtype=DOUBLE) + 0.5
    return MultivariateNormal(torch.linspace(-0.5, 0.5, size, dtype=DOUBLE), covariance)


class Turned:
    """A base with no more than the two methods: a Gaussian, sheared."""

    shear = torch.tensor([[1.0, 0.0], [0.7, 1.0]], dtype=DOUBLE)

    def log_prob(self, z: Tensor) -> Tensor:
        return normal(2).log_prob(z @ torch.linalg.inv(self.shear).T)

    def rsample(self, shape: torch.Size) -> Tensor:
        return normal(2).rsample(shape) @ self.shear.T


def middles(lower: float, upper: float, count: int) -> tuple[Tensor, float]:
    """The points of the midpoint rule and the length that each stands for."""
    step = (upper - lower) / count
    return lower + step * (torch.arange(count, dtype=DOUBLE) + 0.5), step


def line(p: RulesDistribution, lower: float, upper: float, count: int = 4001) -> float:
    x, step = middles(lower, upper, count)
    return float(p.log_prob(x.unsqueeze(-1)).exp().sum()) * step


def in_triangle(count: int = 160) -> tuple[Tensor, Tensor]:
    """Points of 0 ≤ x ≤ y ≤ 1, multiples of 2⁻⁵⁰ and dense at the border, and the area that each stands for."""
    s, step = middles(-30, 30, count)
    u, slope = torch.sigmoid(s), torch.sigmoid(s) * torch.sigmoid(-s) * step
    square, area = (
        torch.cartesian_prod(u, u),
        torch.outer(slope, slope).flatten() * u.repeat(count),
    )
    points = torch.stack(
        [square[:, 0] * square[:, 1], square[:, 1]], -1
    )  # (u, v) ↦ (u v, v), with area v
    return (points * 2**50).round() / 2**50, area


def weights() -> tuple[Tensor, Tensor]:
    """Points of the simplex in three dimensions, their sums exactly 1, and the area in two coordinates."""
    points, area = in_triangle()
    x, y = points.unbind(-1)
    return torch.stack([x, y - x, 1 - y], -1), area


def plane(p: RulesDistribution, lower: float, upper: float, count: int) -> float:
    u, step = middles(lower, upper, count)
    return float(p.log_prob(torch.cartesian_prod(u, u)).exp().sum()) * step**2


# --- one, in total ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [normal(1), normal(1, 1.0, 0.5), logistic(1), Normal(0.0, 1.0), correlated(1)],
)
@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("-1.5 < x < 4", -1.5, 4),
        ("0 <= x <= 1 or 2 <= x <= 5", -1, 6),
        ("0 <= x <= 2 or 1 <= x <= 3", 0, 3),
    ],
)
def test_intervals_integrate_to_one(
    text: str, lower: float, upper: float, base: Distribution
) -> None:
    mux = layer(text)
    logits = tensor(0.3, -0.5) if len(mux.terms) == 2 else None
    assert line(RulesDistribution(mux, base, logits), lower, upper) == pytest.approx(
        1, abs=1e-3
    )


def test_half_lines_integrate_to_one() -> None:
    p = RulesDistribution(layer("x >= 2 or x <= -2"), normal(1), tensor(1.0, 0.0))
    assert line(p, -12, 12, 20001) == pytest.approx(1, abs=1e-4)
    assert line(p, 2, 12, 20001) == pytest.approx(
        float(tensor(1.0, 0.0).softmax(0)[_first(p)]), abs=1e-4
    )


def _first(p: RulesDistribution) -> int:
    """The term that holds x = 3."""
    return [
        holds(t.formula, {p.mux.rules.outputs[0]: Fraction(3)}) for t in p.mux.terms
    ].index(True)


@pytest.mark.parametrize(
    "base", [normal(2), normal(2, 0.5, 0.7), correlated(2), logistic(2), Turned()]
)
def test_a_polygon_integrates_to_one(base: Any) -> None:
    points, area = in_triangle()
    p = RulesDistribution(layer(TRIANGLE), base)
    assert float((p.log_prob(points).exp() * area).sum()) == pytest.approx(1, abs=2e-3)


def test_a_union_with_overlap_integrates_to_one() -> None:
    parts = "0 <= x <= 2 and 0 <= y <= 2", "1 <= x <= 3 and 1 <= y <= 3"
    p = RulesDistribution(layer(f"({parts[0]}) or ({parts[1]})"), normal(2))
    assert plane(p, 0, 3, 300) == pytest.approx(1, abs=1e-3)
    points = tensor(
        [1.5, 1.5], [0.5, 0.5], [2.5, 1.25], [0.5, 2.5]
    )  # in both, in one, in the other, in none
    alone = [
        RulesDistribution(layer(part), normal(2)).log_prob(points).exp()
        for part in parts
    ]
    torch.testing.assert_close(p.log_prob(points).exp(), (alone[0] + alone[1]) / 2)
    assert p.log_prob(points[3]) == -inf


def test_masses_and_densities_together_are_one() -> None:
    p = RulesDistribution(layer(ACTUATOR), normal(1), tensor(0.25, 0.75).log())
    mass = float(p.log_prob(tensor(0.0)).exp())
    assert mass in (pytest.approx(0.25), pytest.approx(0.75))
    assert mass + line(p, 2, 4) == pytest.approx(1, abs=1e-3)


def test_discrete_and_continuous_outputs() -> None:
    p = RulesDistribution(layer(MIXED), normal(2), tensor(0.3, 0.7).log())
    u, step = middles(0, 10, 5000)
    slow, fast = (
        float(p.log_prob(torch.stack([torch.full_like(u, mode), u], -1)).exp().sum())
        * step
        for mode in (0.0, 1.0)
    )
    assert slow + fast == pytest.approx(1, abs=1e-3)
    assert (slow, fast) == pytest.approx(
        (0.3, 0.7), abs=1e-3
    )  # terms are ordered by their discrete values
    assert p.log_prob(tensor([0.5, 1.0], [2.0, 1.0], [1.0, 4.5])).tolist() == [-inf] * 3


def test_finite_rules_have_masses() -> None:
    rules = "a: int[0, 3]; b: int[0, 3]\na + b == 3 or a == b"
    mux = layer(rules)
    logits = torch.randn(len(mux.terms), dtype=DOUBLE)
    p = RulesDistribution(
        mux, Turned(), logits
    )  # nothing reads the base, so that any will do
    grid = torch.cartesian_prod(*[torch.arange(-1.0, 5.0, dtype=DOUBLE)] * 2)
    masses = p.log_prob(grid).exp()
    assert float(masses.sum()) == pytest.approx(1)
    assert torch.equal(masses > 0, mux.rules.satisfied(grid))
    values = [[float(value) for _, value in term.fixed] for term in mux.terms]
    torch.testing.assert_close(
        p.log_prob(torch.tensor(values, dtype=DOUBLE)), logits.log_softmax(0)
    )
    assert p.support.is_discrete
    assert not RulesDistribution(layer(MIXED), normal(2)).support.is_discrete


@pytest.mark.parametrize(
    "base", [normal(3), correlated(3), normal(2), correlated(2), Turned()]
)
def test_a_simplex_integrates_to_one_in_the_coordinates_of_its_lattice(
    base: Any,
) -> None:
    p = RulesDistribution(layer(SIMPLEX), base)
    w, area = weights()
    assert float((p.log_prob(w).exp() * area).sum()) == pytest.approx(1, abs=2e-3)


def test_a_segment_integrates_to_one() -> None:
    p = RulesDistribution(layer("x + y == 1 and 0 <= x <= 1"), normal(2))
    u, step = middles(0, 1, 1024)
    assert float(
        p.log_prob(torch.stack([u, 1 - u], -1)).exp().sum()
    ) * step == pytest.approx(1, abs=1e-3)
    assert p.log_prob(tensor(0.5, 0.5000001)) == -inf


def test_a_direction_of_length_two_counts_integer_steps() -> None:
    """On x = 2 y the coordinate t is y: from one integer point to the next it grows by one."""
    p = RulesDistribution(layer("x == 2*y and 0 <= y <= 1"), normal(2))
    u, step = middles(0, 1, 1024)
    assert float(
        p.log_prob(torch.stack([2 * u, u], -1)).exp().sum()
    ) * step == pytest.approx(1, abs=1e-3)


def test_a_line_through_a_square() -> None:
    """Where dimensions overlap the lower one counts: the square gives the line no mass."""
    p = RulesDistribution(
        layer("(x == y and -1 <= x <= 2) or (0 <= x <= 1 and 0 <= y <= 1)"), normal(2)
    )
    u, _ = middles(0, 1, 200)
    off = torch.cartesian_prod(u, u + 1 / 1024)  # misses the line
    square = float(p.log_prob(off).exp().mean())
    v, step = middles(-1, 2, 3 * 1024)
    diagonal = float(p.log_prob(torch.stack([v, v], -1)).exp().sum()) * step
    assert square == pytest.approx(0.5, abs=5e-3)
    assert diagonal == pytest.approx(0.5, abs=1e-3)


def test_the_same_subspace_written_in_two_ways() -> None:
    text = "(x == y and y == z and 0 <= x <= 1) or (x == z and 2*y == x + z and 0.5 <= z <= 2)"
    p = RulesDistribution(layer(text), normal(3))
    v, step = middles(0, 2, 2048)
    assert float(
        p.log_prob(torch.stack([v, v, v], -1)).exp().sum()
    ) * step == pytest.approx(1, abs=1e-3)


def test_blocks_are_independent_factors() -> None:
    p = RulesDistribution(
        layer("x >= 2 or x <= -2\n0 <= y <= 1 or 3 <= y <= 5"),
        normal(2),
        tensor(1.0, 0, 0, 2.0),
    )
    q = RulesDistribution(layer("x >= 2 or x <= -2"), normal(1), tensor(1.0, 0.0))
    r = RulesDistribution(
        layer("0 <= y <= 1 or 3 <= y <= 5"), normal(1), tensor(0.0, 2.0)
    )
    points = torch.cartesian_prod(tensor(-3.0, 0.0, 2.5), tensor(0.25, 2.0, 4.0))
    torch.testing.assert_close(
        p.log_prob(points), q.log_prob(points[:, :1]) + r.log_prob(points[:, 1:])
    )
    assert len(p.mux.blocks) == 2


# --- closed forms ----------------------------------------------------------------------------------------------------


def test_a_logistic_base_gives_the_uniform_law_of_an_interval() -> None:
    p = RulesDistribution(layer("-1 <= x <= 3"), logistic(1))
    x = torch.linspace(-0.999, 2.999, 50, dtype=DOUBLE).unsqueeze(-1)
    torch.testing.assert_close(p.log_prob(x), torch.full((50,), -log(4), dtype=DOUBLE))


def test_a_union_of_intervals_with_equal_density() -> None:
    p = RulesDistribution(
        layer("0 <= x <= 1 or 2 <= x <= 5"), logistic(1), tensor(0.25, 0.75).log()
    )
    assert p.log_prob(tensor([0.5], [3.0])).exp().tolist() == pytest.approx(
        [0.25, 0.25]
    )


def test_a_free_output_keeps_the_base() -> None:
    p = RulesDistribution(layer("x: real; y: real\ny >= 0"), normal(2, 0.3, 2.0))
    x = torch.randn(20, dtype=DOUBLE)
    z = torch.randn(20, dtype=DOUBLE)
    y = torch.nn.functional.softplus(z)
    expected = normal(2, 0.3, 2.0).log_prob(
        torch.stack([x, z], -1)
    ) - torch.nn.functional.logsigmoid(z)
    torch.testing.assert_close(p.log_prob(torch.stack([x, y], -1)), expected)


def test_the_measure_is_that_of_dirichlet() -> None:
    """The mean of q / p under p is 1 only if both densities are with respect to one measure."""
    p = RulesDistribution(layer(SIMPLEX), normal(3, scale=0.5))
    q: Distribution = Dirichlet(torch.full((3,), 3.0, dtype=DOUBLE))
    w = p.sample((20000,))
    assert float((q.log_prob(w) - p.log_prob(w)).exp().mean()) == pytest.approx(
        1, abs=0.05
    )


def test_two_terms_of_a_gauge_are_the_mixture_of_their_laws() -> None:
    left, right = "x + y <= 1 and x >= 0 and y >= 0", "x + y >= 2 and x <= 2 and y <= 2"
    p = RulesDistribution(layer(f"({left}) or ({right})"), normal(2), tensor(0.0, 0.0))
    for part, point in ((left, (0.2, 0.3)), (right, (1.7, 1.2))):
        alone = RulesDistribution(layer(part), normal(2)).log_prob(tensor(*point))
        torch.testing.assert_close(p.log_prob(tensor(*point)), alone - log(2))


# --- samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize(
    "text",
    [ACTUATOR, MIXED, SIMPLEX, TRIANGLE, "x >= 2 or x <= -2\n0 < y < 1 or y == 3"],
)
def test_samples_obey_exactly(text: str, dtype: torch.dtype) -> None:
    rules = Rules(text)
    mux = layer(text, dtype)
    base = Normal(
        torch.zeros(mux.out_features), 30.0
    )  # of another dtype: the layer's is what comes out
    p = RulesDistribution(mux, base)
    x = p.sample((200,))
    assert x.dtype == dtype
    assert x.shape == (200, mux.out_features)
    assert p.support.check(x).all()
    for row in x.double().tolist():
        assert holds(
            rules.formula, dict(zip(rules.outputs, map(Fraction, row), strict=True))
        )
    assert p.log_prob(x).isfinite().all()


def test_a_histogram_of_samples_is_the_density() -> None:
    p = RulesDistribution(
        layer("0 <= x <= 2 or 1 <= x <= 4"), normal(1, 0.4, 0.8), tensor(0.0, 0.7)
    )
    counts = torch.histc(p.sample((40000,)), bins=16, min=0, max=4) / 40000
    x, step = middles(0, 4, 1600)
    expected = (p.log_prob(x.unsqueeze(-1)).exp() * step).reshape(16, 100).sum(-1)
    assert (counts - expected).abs().max() < 4 * (0.25 / 40000) ** 0.5


def test_moments_of_samples_are_those_of_the_density() -> None:
    p = RulesDistribution(layer(SIMPLEX), correlated(3))
    drawn, (w, area) = p.sample((20000,)), weights()
    mass = (p.log_prob(w).exp() * area).unsqueeze(-1)
    torch.testing.assert_close(drawn.mean(0), (mass * w).sum(0), atol=0.01, rtol=0)
    torch.testing.assert_close(
        drawn.T @ drawn / len(drawn), w.T @ (mass * w), atol=0.01, rtol=0
    )


def test_per_term_bases_are_drawn_for_their_terms() -> None:
    bases = [normal(1, -3.0, 0.1), normal(1, 3.0, 0.1)]
    mux = layer("0 <= x <= 1 or 2 <= x <= 3")
    p = RulesDistribution(mux, bases)
    x = p.sample((2000,)).squeeze(-1)
    low = torch.sigmoid(torch.tensor(-3.0, dtype=DOUBLE))
    assert ((x - low).abs() < 0.05).double().mean() == pytest.approx(0.5, abs=0.05)
    assert ((x - (3 - low)).abs() < 0.05).double().mean() == pytest.approx(
        0.5, abs=0.05
    )
    assert line(p, 0, 3, 30001) == pytest.approx(1, abs=1e-3)
    b = p.branches((7,))
    assert torch.equal(b.x[:, 0] < 0.2, torch.ones(7, 1, dtype=torch.bool))
    assert torch.equal(b.x[:, 1] > 2.8, torch.ones(7, 1, dtype=torch.bool))
    assert float(p.expand((2,)).mode[0]) == pytest.approx(float(low))


def test_terms_of_different_dimension_take_their_marginals() -> None:
    text = "(x == 0.5 and 0 <= y <= 1) or (x + y == 3 and 1 <= x <= 2) or (4 <= x <= 5 and 4 <= y <= 5)"
    p = RulesDistribution(layer(text), correlated(2))
    u, step = middles(0, 1, 1024)
    parts = [
        p.log_prob(torch.stack([torch.full_like(u, 0.5), u], -1)).exp().sum() * step,
        p.log_prob(torch.stack([1 + u, 2 - u], -1)).exp().sum() * step,
    ]
    assert [float(part) for part in parts] == pytest.approx([1 / 3, 1 / 3], abs=1e-3)
    assert plane(p, 4, 5, 256) == pytest.approx(1 / 3, abs=1e-3)
    assert len(p._factors[0].marginals) == 3
    assert p.mux.rules.satisfied(p.sample((500,))).all()
    assert p.mux.rules.satisfied(p.branches((20,)).x).all()


def test_rsample_where_there_is_no_choice() -> None:
    loc = torch.zeros(2, dtype=DOUBLE, requires_grad=True)
    p = RulesDistribution(layer(TRIANGLE), Independent(Normal(loc, 1.0), 1))
    assert p.has_rsample
    x = p.rsample((5,))
    assert x.shape == (5, 2)
    torch.autograd.backward(x.sum())
    assert loc.grad is not None
    assert loc.grad.ne(0).all()


def test_rsample_of_a_choice_is_refused() -> None:
    p = RulesDistribution(layer(ACTUATOR), normal(1))
    assert not p.has_rsample
    with pytest.raises(
        NotImplementedError, match=r"no reparameterised sample: use branches\(\)"
    ):
        p.rsample()


def test_branches_have_the_gradient_of_an_expectation() -> None:
    """E x over «0 ≤ x ≤ 1 or 2 ≤ x ≤ 5» in closed form: uniform laws, shares π."""
    logits = tensor(0.2, -0.4).requires_grad_()
    p = RulesDistribution(layer("0 <= x <= 1 or 2 <= x <= 5"), logistic(1), logits)
    b = p.branches((40000,))
    estimate = (b.log_probs.exp() * b.x.squeeze(-1)).sum(-1).mean()
    exact = (logits.softmax(0) * tensor(0.5, 3.5)).sum()
    assert estimate.item() == pytest.approx(exact.item(), abs=0.02)
    (found,), (expected,) = (
        torch.autograd.grad(estimate, logits),
        torch.autograd.grad(exact, logits),
    )
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


NAMES = [
    c.name
    for c in CASES
    if c.satisfiable and c.name not in {"third", "decimal_sum", "input_equality"}
]


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_every_case_lie_in_the_support(name: str) -> None:
    rules = Rules(by_name(name).text)
    code: dict[str, Callable[..., Tensor]] = {
        "h": torch.sin,
        "f": lambda x, y: x * y - 1,
    }
    functions = {f: code[f] for f in rules.specification.functions}
    mux = Multiplexer(rules, dtype=DOUBLE, functions=functions)
    p = RulesDistribution(mux, normal(mux.out_features), inputs=_middle_inputs(rules))
    x = p.sample((32,))
    assert p.support.check(x).all()
    assert p.log_prob(x).isfinite().all()


def _middle_inputs(rules: Rules) -> dict[str, Tensor]:
    """The middle of the range of every input."""
    columns: dict[str, list[float]] = {}
    for variable in rules.inputs:
        lower, upper = (
            getattr(variable.domain, end, None) for end in ("lower", "upper")
        )
        middle = (
            float(lower + upper) / 2 if lower is not None and upper is not None else 0.0
        )
        columns.setdefault(variable.name.partition("[")[0], []).append(middle)
    names = {variable.name for variable in rules.inputs}
    return {
        name: tensor(*column) if name not in names else tensor(*column)[0]
        for name, column in columns.items()
    }


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("0 <= x <= 2 or 1 <= x <= 3", [[0.4], [1.3], [2.6]]),
        (ACTUATOR, [[0.0], [2.5]]),
        (TRIANGLE, [[0.2, 0.7], [0.1, 0.3]]),
        (SIMPLEX, [[0.25, 0.5, 0.25], [0.125, 0.125, 0.75]]),
        (MIXED, [[0.0, 3.0], [1.0, 3.0]]),
    ],
)
def test_gradcheck_of_the_log_density(text: str, points: list[list[float]]) -> None:
    mux = layer(text)
    x = torch.tensor(points, dtype=DOUBLE)
    choices = mux.in_features - mux.out_features

    def density(loc: Tensor, scale: Tensor, logits: Tensor) -> Tensor:
        return RulesDistribution(mux, Normal(loc, scale), logits).log_prob(x)

    loc = torch.randn(mux.out_features, dtype=DOUBLE, requires_grad=True)
    scale = torch.rand(mux.out_features, dtype=DOUBLE).add(0.5).requires_grad_()
    logits = torch.randn(choices, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(density, (loc, scale, logits))


def test_gradcheck_in_x_where_the_set_has_an_inside() -> None:
    p = RulesDistribution(
        layer("0 <= x <= y and y <= 1 or x + y >= 3 and x <= 2 and y <= 4"),
        correlated(2),
    )
    x = tensor([0.2, 0.7], [1.8, 2.2]).requires_grad_()
    assert torch.autograd.gradcheck(p.log_prob, (x,))


def test_rows_outside_do_not_spoil_the_gradient() -> None:
    loc = torch.zeros(2, dtype=DOUBLE, requires_grad=True)
    p = RulesDistribution(layer(TRIANGLE), Normal(loc, 1.0))
    points = tensor([0.2, 0.5], [5.0, -7.0], [nan, 0.5], [inf, 0.0])
    assert p.log_prob(points)[1:].tolist() == [-inf] * 3
    with torch.autograd.set_detect_anomaly(True):  # raises for a NaN on the way, too
        (gradient,) = torch.autograd.grad(p.log_prob(points).sum(), loc)
    assert gradient.isfinite().all()
    assert gradient.ne(0).all()


def test_maximum_likelihood_finds_the_frequencies() -> None:
    """Three in four points lie in the upper interval: the logits learn it, the base the place."""
    logits, loc = (
        torch.zeros(2, dtype=DOUBLE, requires_grad=True),
        torch.zeros(1, dtype=DOUBLE, requires_grad=True),
    )
    mux = layer("0 <= x <= 1 or 2 <= x <= 3")
    data = tensor([0.75], [2.75], [2.75], [2.75])
    optimiser = torch.optim.Adam([logits, loc], lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        torch.autograd.backward(
            -RulesDistribution(mux, Normal(loc, 1.0), logits).log_prob(data).mean()
        )
        optimiser.step()
    assert sorted(logits.softmax(0).tolist()) == pytest.approx([0.25, 0.75], abs=0.01)
    assert loc.item() == pytest.approx(log(3), abs=0.01)


# --- batches, inputs, functions --------------------------------------------------------------------------------------


def test_batches_of_bases_and_logits() -> None:
    mux = layer("0 <= x <= 1 or 2 <= x <= 3")
    loc, logits = tensor([0.0], [1.0], [2.0]), torch.randn(4, 1, 2, dtype=DOUBLE)
    p = RulesDistribution(mux, Independent(Normal(loc, 1.0), 1), logits)
    assert p.batch_shape == (4, 3)
    assert p.event_shape == (1,)
    x = p.sample((5,))
    assert x.shape == (5, 4, 3, 1)
    found = p.log_prob(x)
    assert found.shape == (5, 4, 3)
    one = RulesDistribution(mux, Independent(Normal(loc[2], 1.0), 1), logits[1, 0])
    torch.testing.assert_close(found[:, 1, 2], one.log_prob(x[:, 1, 2]))
    assert p.mode.shape == (4, 3, 1)
    assert p.branches((2,)).x.shape == (2, 4, 3, 2, 1)
    assert mux.rules.satisfied(p.mode).all()


def test_expand() -> None:
    p = RulesDistribution(layer(ACTUATOR), normal(1)).expand((3, 2))
    x = p.sample((4,))
    assert p.batch_shape == (3, 2)
    assert x.shape == (4, 3, 2, 1)
    assert p.log_prob(x).shape == (4, 3, 2)
    assert p.log_prob(tensor(2.5)).shape == (3, 2)
    assert (
        len(
            set(
                RulesDistribution(layer(TRIANGLE), normal(2))
                .expand((50,))
                .sample()[:, 0]
                .tolist()
            )
        )
        == 50
    )
    with pytest.raises(RuntimeError):
        p.expand((5, 7))


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_sample_shape(shape: tuple[int, ...]) -> None:
    for text in (ACTUATOR, SIMPLEX, MIXED):
        p = RulesDistribution(layer(text), Normal(torch.tensor(0.0, dtype=DOUBLE), 1.0))
        x = p.sample(shape)
        assert x.shape == (*shape, p.mux.out_features)
        assert p.log_prob(x).shape == shape
        assert p.support.check(x).all()


def test_inputs_bound_each_row() -> None:
    mux = layer("y: real; u: input[0, 10]\n0 <= y <= u + 1 or y == 20")
    u = tensor(0.0, 3.0, 9.0)
    p = RulesDistribution(mux, normal(1), tensor(0.5, 0.5), inputs={"u": u})
    assert p.batch_shape == (3,)
    for row, bound in enumerate(u.tolist()):
        x, step = middles(0, 10, 5000)
        density = p.log_prob(x.reshape(-1, 1, 1).expand(-1, 3, 1)).exp()[:, row]
        assert float(density.sum() * step) == pytest.approx(0.5, abs=2e-3)
        assert (density[x > bound + 1] == 0).all()
    assert p.log_prob(tensor(20.0)).exp().tolist() == pytest.approx([0.5] * 3)
    x = p.sample((100,))
    assert mux.rules.satisfied(x, u=u.expand(100, 3)).all()
    assert p.support.check(x).all()


def test_inputs_rule_terms_out() -> None:
    mux = layer("y: real; u: input[0, 10]\n0 <= y <= 5 - u or 12 <= y <= 14")
    p = RulesDistribution(mux, logistic(1), inputs={"u": tensor(1.0, 6.0)})
    assert p.log_prob(tensor(13.0)).exp().tolist() == pytest.approx([0.25, 0.5])
    first, second = p.log_prob(tensor(2.0)).tolist()
    assert first > -inf
    assert second == -inf
    assert (p.sample((50,))[:, 1] >= 12).all()


def test_opaque_functions() -> None:
    mux = Multiplexer(
        Rules("x: real; y: real; f: function\ny > f(x)"),
        dtype=DOUBLE,
        functions={"f": torch.sin},
    )
    p = RulesDistribution(mux, normal(2))
    x = p.sample((200,))
    z = x[:, 1] - x[:, 0].sin()
    raw = z + torch.log(-torch.expm1(-z))
    expected = normal(2).log_prob(
        torch.stack([x[:, 0], raw], -1)
    ) - torch.nn.functional.logsigmoid(raw)
    torch.testing.assert_close(p.log_prob(x), expected, rtol=1e-6, atol=1e-6)
    assert p.log_prob(tensor(0.0, -0.5)) == -inf


def test_terms_that_do_not_cover_everything() -> None:
    mux = Multiplexer(
        Rules("0 <= x <= 1 or 2 <= x <= 3"), dtype=DOUBLE, cover=tensor([0.5])
    )
    p = RulesDistribution(mux, normal(1))
    assert not mux.complete
    assert p.support.check(tensor([0.5], [2.5])).tolist() == [True, False]
    assert p.log_prob(tensor(2.5)) == -inf


# --- bases -----------------------------------------------------------------------------------------------------------


def test_a_base_is_read_in_several_ways() -> None:
    """Independent, side by side, a MultivariateNormal with diagonal covariance: one law."""
    mux, x = layer(SIMPLEX), tensor(0.25, 0.5, 0.25)
    loc, scale = tensor(0.1, -0.2, 0.3), tensor(0.5, 1.0, 2.0)
    whole = [
        Independent(Normal(loc, scale), 1),
        Normal(loc, scale),
        MultivariateNormal(loc, scale.square().diag()),
    ]
    read = [
        Independent(Normal(loc[:2], scale[:2]), 1),
        MultivariateNormal(loc[:2], scale[:2].square().diag()),
    ]
    first, *others = [
        float(RulesDistribution(mux, base).log_prob(x)) for base in [*whole, *read]
    ]
    assert others == pytest.approx([first] * 4)


def test_bases_that_do_not_fit_are_refused() -> None:
    flow = TransformedDistribution(normal(3), [])
    with pytest.raises(
        ShapeError,
        match=r"reads 2 of 3 raw values, and the marginal of TransformedDistribution",
    ):
        RulesDistribution(layer(SIMPLEX), flow)
    with pytest.raises(ShapeError, match=r"lives on 3 or 2 of them; Normal is over 5"):
        RulesDistribution(layer(SIMPLEX), Normal(torch.zeros(5), 1.0))
    with pytest.raises(
        ShapeError, match="found 3 bases; give one, or one for each of the 2 terms"
    ):
        RulesDistribution(layer(ACTUATOR), [normal(1)] * 3)
    with pytest.raises(InputError, match="Bernoulli has not both"):
        RulesDistribution(layer(ACTUATOR), Bernoulli(torch.tensor([0.5])))
    with pytest.raises(InputError, match="float has not both"):
        RulesDistribution(layer(ACTUATOR), 1.0)


def test_logits_and_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ShapeError,
        match=r"logits have shape \(3,\); their last dimension must be 2 \(2\)",
    ):
        RulesDistribution(layer(ACTUATOR), normal(1), torch.zeros(3))
    p = RulesDistribution(layer(ACTUATOR), normal(1))
    with pytest.raises(ShapeError, match="must be the 1 outputs"):
        p.log_prob(torch.zeros(2, dtype=DOUBLE))
    with pytest.raises(DtypeError, match=r"float32; the layer works in torch.float64"):
        p.log_prob(torch.zeros(1, dtype=torch.float32))
    with pytest.raises(InputError, match="need the input 'u'"):
        RulesDistribution(
            layer("y: real; u: input[0, 10]\n0 <= y <= u + 1 or y == 20"), normal(1)
        )


def test_a_base_without_a_mode() -> None:
    with pytest.raises(
        NotImplementedError, match="the base, TransformedDistribution, has no mode"
    ):
        _ = RulesDistribution(layer("-1 <= x <= 3"), logistic(1)).mode
    p = RulesDistribution(layer(ACTUATOR), normal(1), tensor(-9.0, 9.0))
    assert p.mode.tolist() in ([0.0], [3.0])
    assert (p.log_prob(p.mode) > log(0.5)).all()


def test_it_prints() -> None:
    assert repr(RulesDistribution(layer(ACTUATOR), normal(1))) == (
        "RulesDistribution(Rules(1 rules over a), terms=2, batch_shape=())"
    )


def test_a_flow_of_zuko_is_a_base() -> None:
    zuko = pytest.importorskip("zuko")
    flow = zuko.flows.MAF(2, context=3, transforms=1, hidden_features=[8]).double()
    p = RulesDistribution(layer(TRIANGLE), flow(torch.randn(4, 3, dtype=DOUBLE)))
    x = p.sample((2,))
    assert x.shape == (2, 4, 2)
    assert p.expand((6, 4)).sample().shape == (6, 4, 2)
    torch.autograd.backward(p.log_prob(x).sum())
    assert all(parameter.grad is not None for parameter in flow.parameters())
    points, area = in_triangle()
    density = (
        RulesDistribution(layer(TRIANGLE), flow(torch.zeros(3, dtype=DOUBLE)))
        .log_prob(points)
        .exp()
    )
    assert float((density * area).sum().detach()) == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize(
    "value", [Fraction(1, 10), Decimal("0.1"), [0.5, Fraction(1, 3)], 10**20]
)
def test_inputs_of_a_distribution_are_numbers_of_any_kind(value: Any) -> None:
    mux = Multiplexer(Rules("x: real; u: input\nx <= u"))
    base = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
    distribution = RulesDistribution(mux, base, inputs={"u": value})
    x = distribution.sample((5,))
    assert mux.rules.satisfied(x, u=value).all()


@pytest.mark.parametrize("value", [None, "3", {}])
def test_what_is_no_number_is_refused_by_a_distribution(value: Any) -> None:
    mux = Multiplexer(Rules("x: real; u: input\nx <= u"))
    base = torch.distributions.Normal(torch.zeros(1), torch.ones(1))
    with pytest.raises(InputError):
        RulesDistribution(mux, base, inputs={"u": value})
