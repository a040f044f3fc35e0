"""Shorter ways through a layer give the bits of the plain ones, and overwrite nothing that somebody reads."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from multiplexnet import Multiplexer, Rules
from multiplexnet.geometry.parts import Box
from multiplexnet.transforms import Separable, separable
from multiplexnet.transforms.chosen import MANY, by_term, largest_place
from multiplexnet.transforms.term_maps import TermMaps
from multiplexnet.transforms.tiles import FEWEST_ROWS, plus, rows_for_all, rows_together

ONE = Fraction(1)
BOXES = {
    "intervals": Box((), (-ONE, ONE / 3, ONE), (ONE, 3 * ONE, ONE)),
    "lower ends": Box((), (ONE, -ONE / 7, ONE / 3), (None, None, None)),
    "all kinds": Box((), (-ONE, None, None, ONE / 3), (ONE, None, ONE, None)),
}
RULES = {
    "box": "x: real[3]; all(-1 <= v <= 3 for v in x)",
    "kinds": "x: real[3]; x[0] >= 0; x[1] <= 1; -1 <= x[2] <= 1",
    "simplex": "w: real[4]; all(v >= 0 for v in w); sum(w) == 1",
    "polytope": "x: real[2]; x[0] + x[1] <= 1; x[0] - 2*x[1] <= 3; x[0] >= -4",
    "wide": "q: real[20]; all(q[i] <= q[i + 1] for i in range(19))",
    "choice": "x: real[2]; x[0] + 1 <= x[1] or x[1] + 1 <= x[0]",
    "boxes": "(0 <= x <= 1 and 0 <= y <= 1) or (3 <= x <= 4 and 3 <= y <= 4)",
}


def raw_rows(rows: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Ordinary, large and infinite raw values."""
    sizes = torch.tensor([1.0, 1.0, 30.0, 1e30, torch.inf])
    raw = torch.randn(rows, width) * sizes[torch.arange(rows) % 5].unsqueeze(-1)
    return raw.to(dtype)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", BOXES)
def test_rows_together_give_the_bits_of_rows_alone(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = Separable([BOXES[name]], torch.float32).train(training)
    raw = raw_rows(FEWEST_ROWS, transform.base.shape[-1]).requires_grad_()
    weight = torch.randn(raw.shape)
    assert rows_together(raw.detach(), transform.base[0]) > 1

    def found() -> tuple[Tensor, Tensor]:
        x = transform(raw.unsqueeze(-2)).squeeze(-2)
        return x, torch.autograd.grad(x, raw, weight)[0]

    together = found()
    monkeypatch.setattr(separable, "rows_together", lambda *_: 1)
    alone = found()
    assert torch.equal(together[0], alone[0])
    assert torch.equal(together[1], alone[1])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", BOXES)
def test_all_terms_of_many_rows_have_the_bits_of_rows_alone(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = BOXES[name]
    other = Box((), box.lower[::-1], box.upper[::-1])
    transform = Separable([box, other, box], torch.float32).train(training)
    raw = raw_rows(FEWEST_ROWS, 2 * len(box.lower)).requires_grad_()
    own = raw.view(2, -1, 1, raw.shape[-1])[..., ::2]
    weight = torch.randn(*own.shape[:-2], 3, own.shape[-1])
    assert rows_for_all(own.detach(), transform.base) > 1

    def found() -> tuple[Tensor, Tensor]:
        x = transform(own)
        return x, torch.autograd.grad(x, raw, weight, retain_graph=True)[0]

    together = found()
    monkeypatch.setattr(separable, "rows_for_all", lambda *_: 1)
    alone = found()
    assert torch.equal(together[0], alone[0])
    assert torch.allclose(together[1], alone[1])


def test_values_of_all_terms_are_in_one_piece() -> None:
    mux = Multiplexer(RULES["boxes"])
    x = mux(torch.randn(FEWEST_ROWS, mux.in_features)).x
    assert x.is_contiguous()


@pytest.mark.parametrize("rows", [FEWEST_ROWS, FEWEST_ROWS + 3, FEWEST_ROWS + 4, 0])
def test_a_table_is_added_to_any_number_of_rows(rows: int) -> None:
    values = torch.randn(rows, 1, 3)
    table = torch.randn(1, 3)
    assert torch.equal(plus(values, table), values + table)
    apart = torch.randn(rows, 1, 6)[..., ::2]
    assert torch.equal(plus(apart, table), apart + table)


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("special", [0.0, torch.inf, -torch.inf, torch.nan])
def test_the_largest_place_is_that_of_max(count: int, special: float) -> None:
    values = torch.randint(-2, 2, (MANY, count)).float()  # many are equal
    values[values == 0] = -0.0
    values[::2] += 0.0  # and some zeros are negative
    values[::3, 1] = special
    assert torch.equal(largest_place(values), values.max(-1).indices)
    apart = torch.cat([values, values], -1)[:, 1 : count + 1]
    assert torch.equal(largest_place(apart), apart.max(-1).indices)
    several = values.reshape(4, -1, count)
    assert torch.equal(largest_place(several), several.max(-1).indices)


def test_rows_by_term_stand_in_their_order() -> None:
    index = torch.randint(0, 7, (1000,))
    found = by_term(index, 7)
    assert found is not None
    assert torch.equal(found.order, index.argsort(stable=True))
    assert torch.equal(found.order[found.back], torch.arange(1000))
    assert list(found.counts) == [int((index == k).sum()) for k in range(7)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RULES)
def test_a_gradient_overwrites_nothing(name: str, dtype: torch.dtype) -> None:
    mux = Multiplexer(RULES[name], dtype=dtype)
    raw = raw_rows(64, mux.in_features, dtype).requires_grad_()
    before = raw.detach().clone()
    x = mux(raw).best()
    weight = torch.randn_like(x)
    kept = weight.clone()
    value = x.detach().clone()
    (first,) = torch.autograd.grad(x, raw, weight, retain_graph=True)
    (again,) = torch.autograd.grad(x, raw, weight, retain_graph=True)
    assert torch.equal(first, again)
    assert torch.equal(raw, before)
    assert torch.equal(weight, kept)
    assert torch.equal(x, value)
    (recorded,) = torch.autograd.grad(x, raw, weight, create_graph=True)
    torch.testing.assert_close(first, recorded)


class _Deaf(torch.autograd.Function):
    """The values as they are, and no gradient at all."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> None:
        return None


@pytest.mark.parametrize("name", ["simplex", "choice"])
def test_without_a_gradient_in_x_that_in_raw_is_zero(name: str) -> None:
    mux = Multiplexer(RULES[name])
    raw = torch.randn(64, mux.in_features, requires_grad=True)
    x: Tensor = _Deaf.apply(mux(raw).best())  # type: ignore[no-untyped-call]
    x.sum().backward()  # type: ignore[no-untyped-call]
    assert raw.grad is not None
    assert not raw.grad.any()


def test_terms_without_a_chance_cost_nothing() -> None:
    mux = Multiplexer(RULES["boxes"])
    raw = torch.tensor([[0.0, 0.0, 200.0, -200.0], [0.0, 0.0, 1.0, 0.0]])
    leaf = raw.clone().requires_grad_()

    def cost(x: Tensor) -> Tensor:
        return torch.tensor([[1.0, torch.inf], [1.0, 2.0]]) + 0 * x.sum(-1)

    loss = mux(leaf).loss(cost)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


def test_columns_that_are_read_once_pass_their_gradient_on() -> None:
    rules = Rules(
        "u: input[0, 10]; x: real[3]; all(0 <= v <= 10 for v in x); x[0] <= u"
    )
    mux = Multiplexer(rules)
    (maps,) = mux.block_term_maps
    assert maps.assembly.is_order
    raw = torch.randn(5, 3, requires_grad=True)
    weight = torch.randn(5, 3)

    def gradient() -> Tensor:
        x = mux(raw, u=torch.full((5,), 4.0)).best()
        return torch.autograd.grad(x, raw, weight)[0]

    found = gradient()
    maps.assembly.is_order = False
    assert torch.equal(found, gradient())


def test_the_only_term_that_is_seen_to_have_room_is_not_asked_again() -> None:
    mux = Multiplexer("u: input[0, 10]; x: real[2]; all(0 <= v <= u for v in x)")
    (maps,) = mux.block_term_maps
    assert isinstance(maps, TermMaps)
    assert maps.feasible(torch.tensor([[3.0], [4.0]])) is None
    found = maps.feasible(torch.tensor([[3.0], [torch.nan]]))
    assert found is not None
    assert found.tolist() == [[True], [False]]


THREE = "x: real[2]; (0 <= x[0] <= 1 and x[1] >= 0) or (2 <= x[0] <= 3 and x[1] >= 0) or (4 <= x[0] <= 5 and x[1] <= 0)"


def test_what_is_given_is_not_overwritten_however_it_is_laid_out() -> None:
    """Memory that lies feature by feature already must not be taken for a copy."""
    mux = Multiplexer(THREE)
    raw = torch.randn(mux.in_features, MANY).mT
    before = raw.clone()
    branches = mux(raw)
    logits = branches.logits.clone()
    branches.best()
    assert torch.equal(raw, before)
    assert torch.equal(branches.logits, logits)


@pytest.mark.parametrize(
    "rules",
    [
        "w: real[3]; all(w >= 0); sum(w) == 1",
        "x: real[3]; x[0] + x[1] + x[2] <= 4; all(x >= 0)",
        "n: int[0, 90]; m: int[0, 90]; x: real; n + m <= 100; 0 <= x; x <= n",
        THREE,
    ],
)
def test_gradients_are_the_same_through_vmap(rules: str) -> None:
    """Within vmap tensors do not say that a gradient is wanted outside of it."""
    mux = Multiplexer(rules, dtype=torch.float64)
    weights = torch.randn(mux.out_features, dtype=torch.float64)
    raw = torch.randn(5, mux.in_features, dtype=torch.float64)

    def cost(raw: Tensor) -> Tensor:
        x: Tensor = torch.func.vmap(lambda row: mux(row).best())(raw)
        return (x * weights).sum()

    leaf = raw.clone().requires_grad_()
    (mux(leaf).best() * weights).sum().backward()
    outside = raw.clone().requires_grad_()
    cost(outside).backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert leaf.grad.any()
    torch.testing.assert_close(outside.grad, leaf.grad)
    torch.testing.assert_close(torch.func.grad(cost)(raw), leaf.grad)
