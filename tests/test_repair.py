"""Repair: what obeys stays bit for bit, the rest moves little and lands exactly inside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from corpus import CASES, Case
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

import multiplexnet as mx
from multiplexnet.transforms.base import DTYPES

PLAIN = [c for c in CASES if c.satisfiable]


def rows_for(mux: mx.Multiplexer) -> Tensor:
    """Rows that break the rules, odd ones, and rows that obey."""
    width = mux.out_features
    odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.0])
    wild = torch.cat([3 * torch.randn(40, width), odd.unsqueeze(-1).expand(6, width)])
    obeying = mux(torch.randn(20, mux.in_features, dtype=mux.dtype)).best().detach()
    return torch.cat([wild.to(mux.dtype), obeying, -0.0 * obeying])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_rows_that_obey_stay_and_all_obey_afterwards(
    case: Case, dtype: torch.dtype
) -> None:
    rules = mx.Rules(case.text)
    if rules.inputs or rules.specification.functions:
        return  # below
    try:
        mux = mx.Multiplexer(rules, dtype=dtype)
    except (mx.MultiplexError, ValueError):
        return  # refused, as other tests see
    x0 = rows_for(mux).requires_grad_()
    y = mux.repair(x0)
    before = rules.satisfied(x0.detach())
    assert rules.satisfied(y.detach()).all()
    kept, same = y.detach()[before], x0.detach()[before]
    assert torch.equal(
        kept.view(torch.uint8), same.view(torch.uint8)
    )  # bit for bit, the sign of zero too
    (gradient,) = torch.autograd.grad(y.double().sum(), x0)
    assert (gradient == 1).all()


def projection(
    x0: NDArray[np.float64], A: NDArray[np.float64], b: NDArray[np.float64]
) -> float:
    """The distance to {A x ≤ b} by a solver of quadratic programs."""
    found = minimize(
        lambda x: ((x - x0) ** 2).sum(),
        np.zeros_like(x0),
        jac=lambda x: 2 * (x - x0),
        constraints=[{"type": "ineq", "fun": lambda x: b - A @ x, "jac": lambda x: -A}],
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    return float(np.linalg.norm(found.x - x0))


@pytest.mark.parametrize(
    "text",
    [
        "x + y <= 4\nx >= 0\ny >= 0",
        "q: real[4]\nall(q[i] <= q[i + 1] for i in range(3))",
        "abs(x) + abs(y) + abs(z) <= 1",
    ],
)
def test_polyhedra_are_met_about_where_the_projection_meets_them(text: str) -> None:
    rules = mx.Rules(text)
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    ((term,),) = (block.terms for block in mux.blocks)
    A = np.array(
        [[float(row.linear.coefficient(v)) for v in rules.outputs] for row in term.rows]
    )
    b = np.array([-float(row.linear.constant) for row in term.rows])
    x0 = 3 * torch.randn(25, mux.out_features, dtype=torch.float64)
    moved = (mux.repair(x0) - x0).norm(dim=-1)
    best = torch.tensor([projection(row, A, b) for row in x0.numpy()])
    assert (moved <= best + 1e-3 * (1 + best)).all()


def test_a_row_moves_to_the_nearest_term_and_only_where_it_is_broken() -> None:
    mux = mx.Multiplexer(mx.Rules("x <= -2 or x >= 2\ny <= 1"))
    y = mux.repair(torch.tensor([[0.5, 0.25], [-0.5, 0.25], [3.0, 7.0]]))
    assert torch.equal(y, torch.tensor([[2.0, 0.25], [-2.0, 0.25], [3.0, 1.0]]))


def test_discrete_outputs_move_to_a_value_of_their_domain() -> None:
    rules = mx.Rules("n: int[0, 9]; on: bool\nimplies(on, n >= 5)")
    mux = mx.Multiplexer(rules)
    y = mux.repair(torch.tensor([[3.2, 0.1], [4.6, 0.9], [7.0, 1.0]]))
    assert torch.equal(y, torch.tensor([[3.0, 0.0], [5.0, 1.0], [7.0, 1.0]]))


def test_inputs_decide_what_is_broken() -> None:
    rules = mx.Rules("x: real; y: real; u: input[0, 10]\nx <= u\nx + y <= 2 * u + 1")
    mux = mx.Multiplexer(rules)
    x0, u = 4 * torch.randn(50, 2), 10 * torch.rand(50)
    y = mux.repair(x0, u=u)
    before = rules.satisfied(x0, u=u)
    assert rules.satisfied(y, u=u).all()
    assert torch.equal(y[before], x0[before])


@pytest.mark.parametrize(
    ("x0", "words"),
    [
        (torch.zeros(3), "last dimension must be the 1 outputs"),
        (torch.zeros(2, 1).double(), "guarantee was built for"),
    ],
)
def test_bad_rows(x0: Tensor, words: str) -> None:
    with pytest.raises(mx.MultiplexError, match=words):
        mx.Multiplexer(mx.Rules("x >= 0")).repair(x0)
