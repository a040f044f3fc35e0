"""One term as torch's own Transform: torch's tools get from it what the layer's own code computes."""

# mypy: allow-untyped-calls

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from test_transforms import CASES, LATTICES, SMOOTH, Case, broken, exact, raws
from torch import Tensor
from torch.distributions import (
    Dirichlet,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)
from torch.distributions.transforms import ComposeTransform, ExpTransform

from multiplexnet import Multiplexer, Rules
from multiplexnet.errors import InputError, NestedError, ShapeError
from multiplexnet.language.formula import Atom, Linear, Rule, Specification, variables
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.learning.term_transform import term_transform
from multiplexnet.transforms.as_torch import TermConstraint, TermTransform

WELL_SCALED = [
    case
    for case in SMOOTH
    if not any(
        word in case.name for word in ("far", "narrow", "tiny", "end", "apart", "whole")
    )
]
"""Cases in which raw values survive the way to x and back in float64."""

RULES = {
    "an interval": "0 <= x <= 1",
    "half-lines": "x: real[2]; x[0] > 2; x[1] < -3",
    "a polyhedron": "x: real[3]; x[0] < x[1]; x[1] < x[2]; x[2] < 4",
    "weights": "x: real[3]; sum(x) == 1; x[0] >= 0; x[1] >= 0; x[2] >= 0",
    "a constant": "x: real[2]; x[0] == 3; x[1] >= 0",
}


def transform_of(case: Case, dtype: torch.dtype, count: int) -> TermTransform:
    variables = (*case.outputs, *case.input_variables)
    rules = []
    for coefficients, relation, bound in case.rows:
        linear = Linear.total(
            dict(zip(variables, exact(coefficients), strict=True)), -Fraction(bound)
        )
        rules.append(Rule(Atom(linear, relation), ""))
    inputs = case.known(count, dtype)
    given = {}
    if inputs is not None:
        given = {v.name: inputs[:, j] for j, v in enumerate(case.input_variables)}
    codomain = TermConstraint(Specification(variables, tuple(rules)), given)
    return TermTransform(case.maps(dtype), 0, codomain, inputs=inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lands_in_its_codomain(case: Case, dtype: torch.dtype) -> None:
    if dtype not in case.dtypes:
        dtype = torch.float64
    raw = raws(case.n, dtype)
    transform = transform_of(case, dtype, len(raw))
    own = raw.index_select(-1, transform.reads)
    y = transform(own)
    assert y.shape == transform.forward_shape(own.shape) == (len(raw), case.n)
    assert own.shape == transform.inverse_shape(y.shape)
    assert bool(transform.codomain.check(y).all())
    assert bool(transform.inv(y).isfinite().all())


@pytest.mark.parametrize("case", WELL_SCALED, ids=str)
def test_inv_is_the_way_back(case: Case) -> None:
    transform = transform_of(case, torch.float64, 50)
    raw = torch.randn(50, case.n, dtype=torch.float64)
    y = transform(raw)
    assert transform.inv.inv is transform
    torch.testing.assert_close(transform.inv(y), raw, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(transform(transform.inv(y)), y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_log_abs_det_jacobian_agrees_with_autograd(case: Case) -> None:
    transform = transform_of(case, torch.float64, 1)
    raw = torch.randn(1, case.n, dtype=torch.float64)
    y = transform(raw)
    found = transform.log_abs_det_jacobian(raw, y)
    J = torch.autograd.functional.jacobian(transform, raw)[0, :, 0]
    assert found.shape == (1,)
    torch.testing.assert_close(
        found[0], torch.linalg.slogdet(J)[1], rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(transform.inv.log_abs_det_jacobian(y, raw), -found)


@pytest.mark.parametrize("case", LATTICES, ids=str)
def test_equalities_leave_fewer_raw_values(case: Case) -> None:
    transform = transform_of(case, torch.float64, 1)
    equalities = sum(relation == "==" for _, relation, _ in case.rows)
    assert transform.reads.numel() == case.n - equalities
    raw = torch.randn(20, case.n - equalities, dtype=torch.float64)
    y = transform(raw)
    assert broken(case.rows, y) == 0
    torch.testing.assert_close(transform.inv(y), raw, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str
)
def test_a_transformed_distribution_has_the_density_of_the_rules(
    name: str, dtype: torch.dtype
) -> None:
    mux = Multiplexer(Rules(RULES[name]), dtype=dtype)
    transform = term_transform(mux)
    computing = torch.float32 if dtype is torch.bfloat16 else dtype
    count = transform.reads.numel()
    base = Normal(
        torch.zeros(count, dtype=computing), torch.ones(count, dtype=computing)
    )
    torchs = TransformedDistribution(base, [transform])
    ours = RulesDistribution(mux, base)
    x = torchs.sample((64,)).to(dtype)
    assert x.shape == (64, mux.out_features)
    assert bool(mux.rules.satisfied(x).all())
    assert torchs.event_shape == ours.event_shape
    torch.testing.assert_close(
        torchs.log_prob(x), ours.log_prob(x), rtol=1e-5, atol=1e-5
    )


def test_weights_have_the_measure_of_dirichlet() -> None:
    """With the exact map inverted, the density that Dirichlet gives raw values integrates to 1."""
    rules = Rules("x: real[2]; sum(x) == 1; x[0] >= 0; x[1] >= 0")
    transform = term_transform(Multiplexer(rules, dtype=torch.float64))
    z = torch.linspace(-12, 12, 20_001, dtype=torch.float64).unsqueeze(-1)
    y = transform(z)
    dirichlet = Dirichlet(
        torch.tensor([2.0, 3.0], dtype=torch.float64), validate_args=False
    )
    density = (dirichlet.log_prob(y) + transform.log_abs_det_jacobian(z, y)).exp()
    torch.testing.assert_close(
        torch.trapezoid(density, z.squeeze(-1)),
        torch.ones((), dtype=torch.float64),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_value_outside_is_refused_by_torch() -> None:
    transform = term_transform(Multiplexer(Rules("x > 5")))
    base = Normal(torch.zeros(1), 1.0)
    p = TransformedDistribution(base, [transform], validate_args=True)
    with pytest.raises(ValueError, match="within the support"):
        p.log_prob(torch.tensor([5.0]))


def test_inputs_and_one_of_several_terms() -> None:
    rules = Rules("x: real; u: input; x < u - 1 or x > u + 1")
    mux = Multiplexer(rules)
    u = torch.tensor([0.0, 10.0, -4.0])
    signs = set[float]()
    for term in range(2):
        transform = term_transform(mux, term, u=u)
        y = transform(torch.zeros(7, 3, 1))
        assert y.shape == (7, 3, 1)
        assert bool(transform.codomain.check(y).all())
        signs |= set((y.squeeze(-1) - u).sign().flatten().tolist())
    assert signs == {-1.0, 1.0}


def test_several_blocks() -> None:
    mux = Multiplexer(Rules("x: real[4]; x[0] < x[1]; x[2] > x[3] + 1"))
    assert len(mux.blocks) == 2
    second = term_transform(mux, block=1)
    y = second(torch.randn(100, 2))
    assert bool((y[:, 0] > y[:, 1] + 1).all())
    assert bool(second.codomain.check(y).all())


def test_composes_and_caches() -> None:
    transform = term_transform(Multiplexer(Rules("x > 5")))
    cached = transform.with_cache()
    assert transform.with_cache(0) is transform
    z = torch.randn(3, 1)
    y = cached(z)
    assert cached.inv(y) is z
    chain = ComposeTransform([transform, ExpTransform()])
    assert chain.domain.event_dim == chain.codomain.event_dim == 1
    assert torch.equal(chain(z), transform(z).exp())
    scale = torch.eye(1)
    p = TransformedDistribution(MultivariateNormal(torch.zeros(1), scale), [transform])
    loss = p.rsample((5,)).sum()
    assert isinstance(loss, Tensor)


def test_gradients_reach_the_base() -> None:
    transform = term_transform(
        Multiplexer(Rules("x: real[2]; x[0] < x[1]"), dtype=torch.float64)
    )
    loc = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    p = TransformedDistribution(
        Normal(loc, torch.ones(2, dtype=torch.float64)), [transform]
    )
    p.rsample((10,)).sum().backward()
    assert loc.grad is not None
    assert bool((loc.grad != 0).all())


def test_refusals_say_what_was_expected() -> None:
    mux = Multiplexer(Rules("x: real; u: input; 0 < x < u or x > 5"))
    with pytest.raises(ShapeError, match="term 2 of a block with 2 terms"):
        term_transform(mux, 2, u=1.0)
    with pytest.raises(ShapeError, match="block 3 of rules with 1 blocks"):
        term_transform(mux, 0, 3, u=1.0)
    with pytest.raises(InputError):
        term_transform(mux)
    roomy = [
        term
        for term in mux.terms
        if not any(s.is_input for s in variables(term.formula))
    ]
    (free,) = (mux.terms.index(term) for term in roomy)
    assert bool(term_transform(mux, free, u=-1.0)(torch.zeros(1)) > 5)
    with pytest.raises(InputError, match="no term leaves room"):
        term_transform(mux, 1 - free, u=-1.0)
    transform = term_transform(mux, u=1.0)
    with pytest.raises(ValueError, match="its last dimension must be 1"):
        transform.forward_shape(torch.Size([3, 2]))
    decomposed = Rules("x: bool[30]; sum(x) <= 3")
    with pytest.raises(NestedError):
        term_transform(Multiplexer(decomposed, max_terms=256))


# --- the words of torch.distributions ---------------------------------------------------------------------------------


def rules_distribution(
    logits: Tensor | None = None, *, validate_args: bool = False
) -> RulesDistribution:
    mux = Multiplexer(Rules("x >= 2 or x <= -2"))
    base = Normal(torch.zeros(1), 1.0)
    return RulesDistribution(mux, base, logits, validate_args=validate_args)


def test_the_distribution_of_rules_speaks_as_torch_does() -> None:
    p = rules_distribution()
    assert set(p.arg_constraints) == {"logits"}
    for name, constraint in p.arg_constraints.items():
        assert bool(constraint.check(getattr(p, name)).all())
    assert p.event_shape == (1,)
    assert p.support.event_dim == 1
    assert not p.has_rsample
    given = torch.tensor([[0.0, 1.0], [2.0, -torch.inf]])
    assert rules_distribution(given).batch_shape == (2,)
    assert torch.equal(rules_distribution(given).logits, given)


def test_arguments_are_validated_if_that_is_asked_for() -> None:
    outside = torch.tensor([0.0])
    assert rules_distribution().log_prob(outside) == -torch.inf
    with pytest.raises(ValueError, match="within the support"):
        rules_distribution(validate_args=True).log_prob(outside)
    with pytest.raises(ValueError, match="logits"):
        rules_distribution(torch.tensor([0.0, torch.nan]), validate_args=True)
