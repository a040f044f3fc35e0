"""Baselines: zero where the rules hold, a minimum for every row by itself, exact where domains are finite."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf

import pytest
import torch
import z3
from hypothesis import given, settings
from strategies import VARIABLES, formulas, points
from torch import Tensor

from multiplexnet.errors import InputError, ShapeError
from multiplexnet.language.formula import Formula, Rule, Specification, Variable, holds
from multiplexnet.learning.baselines import dl2_loss, penalty, semantic_loss
from multiplexnet.learning.finite import FiniteTerms
from multiplexnet.rules import Rules

REAL = VARIABLES[:2]


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


# --- what it is ------------------------------------------------------------------------------------------------------


def test_a_disjunction_is_a_minimum_in_every_row() -> None:
    """Near different branches in different rows: a minimum over the batch would give one branch to all."""
    rules = Rules("x >= 2 or x <= -2")
    x = column(1.5, -1.75, 0.0, 3.0, -5.0)
    assert dl2_loss(rules, x).tolist() == [0.5, 0.25, 2.0, 0.0, 0.0]
    assert penalty(rules, x).tolist() == [0.25, 0.0625, 4.0, 0.0, 0.0]
    rows = torch.stack([dl2_loss(rules, row) for row in x])
    assert torch.equal(dl2_loss(rules, x), rows)


def test_eight_boxes_take_the_nearest_box() -> None:
    """The baseline of the paper's experiment: the smallest over boxes of the sum of hinges."""
    centres = list(product((-3.0, 3.0), repeat=2))
    text = " or ".join(
        f"({a} - 1 <= x <= {a} + 1 and {b} - 1 <= y <= {b} + 1)" for a, b in centres
    )
    x = 5 * torch.randn(
        50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    sums = [
        (x - torch.tensor(c, dtype=x.dtype)).abs().sub(1).relu().sum(-1)
        for c in centres
    ]
    torch.testing.assert_close(dl2_loss(Rules(text), x), torch.stack(sums).amin(0))


def test_conjunctions_add_up() -> None:
    assert dl2_loss(Rules("x <= 0\ny >= 1"), torch.tensor([3.0, -1.0])) == 5.0
    assert penalty(Rules("x <= 0\ny >= 1"), torch.tensor([3.0, -1.0])) == 13.0


def test_comparisons_keep_their_scale() -> None:
    assert dl2_loss(Rules("0.5*x <= 1"), torch.tensor([4.0])) == 1.0
    assert dl2_loss(Rules("4*x <= 4"), torch.tensor([2.0])) == 4.0


@pytest.mark.parametrize(
    ("text", "x", "loss"),
    [
        ("x == 1", [3.0, 0.0], 2.0),
        ("x != 1", [1.0, 0.0], 1e-6),
        ("x < 1", [1.0, 0.0], 1e-6),
        ("not (x <= 1 and y <= 1)", [0.0, 0.5], 0.5),
        ("implies(x > 0, y >= 2)", [0.5, 0.0], 0.5),
        ("implies(x > 0, y >= 2)", [5.0, 1.5], 0.5),
        ("max(x, y) <= 1", [3.0, 2.0], 2.0),
        ("min(x, y) >= 1", [-3.0, 0.0], 4.0),
        ("abs(x) <= 1", [-3.0, 0.0], 2.0),
        ("iff(x >= 1, y >= 1)", [1.5, 0.75], 0.25),
        ("x <= (2 if y >= 0 else 1)", [3.0, 0.0], 1.0),
        ("x <= (2 if y >= 0 else 1)", [3.0, -0.5], 2.0),
    ],
)
def test_every_connective(text: str, x: list[float], loss: float) -> None:
    rules = Rules(f"x: real; y: real\n{text}")
    assert float(
        dl2_loss(rules, torch.tensor(x, dtype=torch.float64))
    ) == pytest.approx(loss, rel=1e-4)


def test_inputs_and_functions() -> None:
    rules = Rules("y: real; u: input; w: input[2]\nf: function\ny >= f(u) + w[1]")
    x, u, w = (
        column(1.0, 2.0),
        torch.tensor([1.0, 3.0]),
        torch.tensor([[9.0, 0.5], [9.0, -0.5]]),
    )
    assert dl2_loss(rules, x, functions={"f": torch.square}, u=u, w=w).tolist() == [
        0.5,
        6.5,
    ]
    assert dl2_loss(rules, x, functions={"f": torch.square}, u=0.0, w=w).tolist() == [
        0.0,
        0.0,
    ]


def test_batch_shapes() -> None:
    rules = Rules("x + y <= 1")
    for shape in ((), (0,), (2, 3)):
        assert dl2_loss(rules, torch.zeros(*shape, 2)).shape == shape
    assert dl2_loss(Rules("x: real; True"), torch.zeros(3, 1)).tolist() == [0.0] * 3


# --- zero where the rules hold ---------------------------------------------------------------------------------------


@given(formula=formulas(REAL, depth=0), point=points(REAL))
@settings(max_examples=150, deadline=None)
def test_zero_exactly_where_the_formula_holds(
    formula: Formula, point: dict[Variable, Fraction]
) -> None:
    rules = Rules.from_specification(Specification(REAL, (Rule(formula, ""),)))
    x = torch.tensor([float(point[v]) for v in REAL], dtype=torch.float64)
    obeys = holds(formula, point)
    for loss in (float(dl2_loss(rules, x)), float(penalty(rules, x)) ** 0.5):
        assert (
            (loss < 1e-9) == obeys
        )  # thirds round; the smallest violation, the margin of <, is far above


@pytest.mark.parametrize(
    "text",
    [
        "x > y + 2 and x < 5",
        "max(x, y) <= 1 or x == 2*y",
        "iff(x >= 0, y >= 0)",
        "xor(x > 1, y > 1)",
        "abs(x - y) <= 1",
    ],
)
def test_zero_exactly_where_z3_says_so(text: str) -> None:
    rules = Rules(text)
    formula, (x, y) = rules.to_z3(), z3.Reals("x y")
    steps = [Fraction(i, 2) for i in range(-5, 6)]
    grid = list(product(steps, repeat=2))
    losses = dl2_loss(
        rules,
        torch.tensor([[float(a), float(b)] for a, b in grid], dtype=torch.float64),
    )
    for loss, (a, b) in zip(losses.tolist(), grid, strict=True):
        value = z3.simplify(
            z3.substitute(formula, (x, z3.RealVal(str(a))), (y, z3.RealVal(str(b))))
        )
        assert (loss == 0) == z3.is_true(value)


def test_rules_that_nothing_obeys() -> None:
    assert dl2_loss(Rules("x: real; False"), torch.zeros(1)) == inf


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_point_to_the_nearest_term() -> None:
    x = column(1.5, -1.5, 3.0).requires_grad_()
    (gradient,) = torch.autograd.grad(dl2_loss(Rules("x >= 2 or x <= -2"), x).sum(), x)
    assert gradient.flatten().tolist() == [-1.0, 1.0, 0.0]


@pytest.mark.parametrize("loss", [dl2_loss, penalty])
def test_gradcheck(loss: object) -> None:
    rules = Rules(
        "x + 2*y <= 1 and (x >= 3 or max(x, y) <= -2) and implies(x > y, x + y == 7)"
    )
    x = torch.randn(
        6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: loss(rules, v), (x,))  # type: ignore[operator]


def test_descent_obeys_in_the_end() -> None:
    rules = Rules("0 <= x <= y and y <= 1 or x + y >= 10")
    x = (
        (4 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0)))
        .double()
        .requires_grad_()
    )
    optimiser = torch.optim.SGD([x], lr=0.2)
    for _ in range(200):
        optimiser.zero_grad()
        torch.autograd.backward(penalty(rules, x).sum())
        optimiser.step()
    assert rules.violation(x.detach()).max() < 1e-3


# --- the semantic loss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a: bool; b: bool; c: bool\na or b\nimplies(b, c)",
        "a: int[0, 3]; b: int[-1, 2]; c: bool\na + b == 2 or c",
        'colour: {"red", "green", "blue"}; n: int[0, 2]; on: bool\nimplies(colour == "red", n >= 1)',
    ],
)
def test_semantic_loss_is_a_sum_over_all_assignments(text: str) -> None:
    rules = Rules(text)
    generator = torch.Generator().manual_seed(0)
    domains = [v.domain.values for v in rules.outputs]  # type: ignore[union-attr]
    log_q = [
        torch.randn(5, len(d), dtype=torch.float64, generator=generator).log_softmax(-1)
        for d in domains
    ]
    total = torch.zeros(5, dtype=torch.float64)
    for assignment in product(*domains):
        point = dict(zip(rules.outputs, map(Fraction, assignment), strict=True))
        if holds(rules.formula, point):
            chosen = [
                q[:, d.index(v)]
                for q, d, v in zip(log_q, domains, assignment, strict=True)
            ]
            total += torch.stack(chosen).sum(0).exp()
    torch.testing.assert_close(semantic_loss(FiniteTerms(rules), log_q), -total.log())


def test_semantic_loss_of_certain_labels() -> None:
    terms = FiniteTerms(Rules("a: bool; b: bool; a == b"))
    certain = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]).log()
    assert semantic_loss(terms, certain).tolist() == [0.0, inf]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    rules = Rules("y: real; u: input; f: function\ny >= f(u)")
    with pytest.raises(
        ShapeError,
        match=r"x has shape \(3, 2\); its last dimension must be the 1 outputs",
    ):
        dl2_loss(rules, torch.zeros(3, 2), functions={"f": torch.sin}, u=0.0)
    with pytest.raises(
        ShapeError, match=r"input u has shape \(4,\); one value per row is \(3,\)"
    ):
        dl2_loss(rules, torch.zeros(3, 1), functions={"f": torch.sin}, u=torch.zeros(4))
    with pytest.raises(InputError, match="need the input 'u'"):
        penalty(rules, torch.zeros(3, 1), functions={"f": torch.sin})
    with pytest.raises(InputError, match="the rules use 'f': give it as functions="):
        penalty(rules, torch.zeros(3, 1), u=0.0)
    with pytest.raises(InputError, match="'g' is not a function of the rules"):
        penalty(
            rules, torch.zeros(3, 1), u=0.0, functions={"f": torch.sin, "g": torch.sin}
        )
