"""The contract of the whole layer: whatever comes in, what comes out obeys the rules, read as exact numbers."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import CASES, by_name
from torch import Tensor, nn

from multiplexnet.branches import Branches
from multiplexnet.errors import (
    ContradictionError,
    DtypeError,
    EqualityError,
    InputError,
    ProductError,
    RecordError,
    ShapeError,
    ThinTermError,
)
from multiplexnet.layer import Multiplexer
from multiplexnet.logic.formula import Real, Variable, holds
from multiplexnet.rules import Rules
from multiplexnet.transforms.separable import PaperSeparable

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TORCH_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {"h": torch.sin, "f": lambda x, y: x * y - 1}

UNBUILDABLE = {"third", "decimal_sum", "input_equality"}
"""No binary float meets them, or some input leaves no output."""

REFUSED: dict[tuple[str, torch.dtype], str] = {
    ("paper_super_classes", torch.bfloat16): "float16",
    ("thin_slab", torch.float16): "float32",
    ("far_from_origin", torch.bfloat16): "float32",
    ("far_from_origin", torch.float16): "float32",
    ("far_wedge", torch.float16): "float32",
}
"""Terms too thin for a dtype, and the dtype that would do."""

NAMES = [case.name for case in CASES if case.satisfiable and case.name not in UNBUILDABLE]
BUILT = [(name, dtype) for name in NAMES for dtype in DTYPES if (name, dtype) not in REFUSED]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def ids(value: object) -> str:
    return name_of(value) if isinstance(value, torch.dtype) else str(value)


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@cache
def _compiled(name: str) -> Multiplexer:
    rules = Rules(by_name(name).text)
    functions = {f: TORCH_FUNCTIONS[f] for f in rules.specification.functions}
    return Multiplexer(rules, dtype=torch.float64, functions=functions)


def layer(name: str, dtype: torch.dtype = torch.float32) -> Multiplexer:
    """The layer of a case: compiled once, built anew for the dtype."""
    return copy.deepcopy(_compiled(name)).to(dtype)


# --- the judge: exact numbers, one row at a time ----------------------------------------------------------------------


def violations(
    rules: Rules, x: Tensor, functions: Mapping[str, Callable[..., Tensor]] | None = None, **inputs: Tensor
) -> list[list[float]]:
    """The rows that break the rules: ``x`` is ``(*batch, D)``, each input ``(*batch,)`` or ``(*batch, n)``."""
    given = rules.scalar_inputs(inputs)
    columns = [x.unbind(-1), [given[v.name].expand(x.shape[:-1]) for v in rules.inputs]]
    flat = torch.stack([column for group in columns for column in group], -1).reshape(
        -1, len(rules.specification.variables)
    )
    rows = {tuple(row) for row in flat.double().tolist()}
    variables = (*rules.outputs, *rules.inputs)
    exact = {name: _exactly(f, x.dtype) for name, f in (functions or {}).items()}
    return [list(row) for row in rows if not _obeys(rules, variables, row, exact)]


def _obeys(rules: Rules, variables: tuple[Variable, ...], row: tuple[float, ...], functions: Any) -> bool:
    if not all(abs(value) < inf for value in row):
        return False
    point = {variable: Fraction(value) for variable, value in zip(variables, row, strict=True)}
    inside = all(isinstance(v.domain, Real) or point[v] in v.domain.values for v in variables)
    return inside and holds(rules.formula, point, functions)


def _exactly(f: Callable[..., Tensor], dtype: torch.dtype) -> Callable[..., Fraction]:
    """The torch function as it is evaluated in the dtype, over exact numbers."""

    def exact(*arguments: Fraction) -> Fraction:
        values = [torch.tensor([float(a)], dtype=torch.float64).to(dtype) for a in arguments]
        assert all(Fraction(v.item()) == a for v, a in zip(values, arguments, strict=True))
        return Fraction(f(*values).item())

    return exact


# --- what comes in ---------------------------------------------------------------------------------------------------


def raws(width: int, dtype: torch.dtype, *, rows: int = 3) -> Tensor:
    """A few rows of every scale: N(0, 1), N(0, 30²), ±1e4, ±1e30, ±inf, subnormal, zero, and all of them mixed."""
    normal = torch.randn(rows, width, dtype=torch.float64)
    sign = torch.sign(torch.randn(3, rows, width, dtype=torch.float64))
    tiny = torch.finfo(dtype).smallest_normal * torch.rand(rows, width, dtype=torch.float64)
    pure = [normal, 30 * normal, 1e4 * sign[0], 1e30 * sign[1], inf * sign[2], tiny, 0 * normal]
    pool = torch.stack([part.flatten() for part in pure])
    mixed = pool.gather(0, torch.randint(len(pool), (1, pool.shape[1]))).reshape(rows, width)
    return torch.cat([*pure, mixed]).to(dtype)


def inputs_of(rules: Rules, batch: tuple[int, ...], dtype: torch.dtype) -> dict[str, Tensor]:
    """Values for all inputs in their ranges, ends included; large and small where there is no range."""
    wide = torch.tensor([0.0, 1.0, -3.3, 201.9, 202.0, 250.7, 1e4, -1e4, 6e4, -6e4], dtype=torch.float64)
    scalars: dict[str, list[Tensor]] = {}
    for variable in rules.inputs:
        domain = variable.domain
        low, high = getattr(domain, "lower", None), getattr(domain, "upper", None)
        if low is None or high is None:
            values = wide[torch.randint(len(wide), batch)].to(dtype)
        else:
            share = (torch.rand(batch, dtype=torch.float64) * 1.4 - 0.2).clamp(0, 1)
            values = (float(low) + (float(high) - float(low)) * share).to(dtype)
        scalars.setdefault(variable.name.partition("[")[0], []).append(values)
    vectors = {v.name.partition("[")[0] for v in rules.inputs if "[" in v.name}
    return {name: torch.stack(v, -1) if name in vectors else v[0] for name, v in scalars.items()}


def check(mux: Multiplexer, branches: Branches, given: Mapping[str, Tensor]) -> None:
    """best(), sample() and every term that can be met obey; none of them breaks a rule by any amount."""
    functions = {name: TORCH_FUNCTIONS[name] for name in mux.rules.specification.functions}
    for x in (branches.best(), branches.sample()):
        assert x.shape == (*branches.batch, mux.out_features)
        assert x.dtype == mux.dtype
        assert violations(mux.rules, x, functions, **given) == []
        assert bool(mux.rules.satisfied(x, functions=functions, **given).all())
    if branches.size > mux.max_terms:
        return
    terms = branches.x
    assert terms.shape == (*branches.batch, branches.size, mux.out_features)
    possible = torch.ones(terms.shape[:-1], dtype=torch.bool)
    if given:
        assert len(branches.choices) == 1
        possible = ~branches.logits.isneginf()
    each = {
        name: value.unsqueeze(len(branches.batch)).expand(*possible.shape, *value.shape[len(branches.batch) :])[
            possible
        ]
        for name, value in given.items()
    }
    assert violations(mux.rules, terms[possible], functions, **each) == []


# --- the guarantee ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "dtype"), BUILT, ids=ids)
def test_every_output_obeys(name: str, dtype: torch.dtype) -> None:
    mux = layer(name, dtype)
    raw = raws(mux.in_features, dtype)
    given = inputs_of(mux.rules, raw.shape[:-1], dtype)
    check(mux, mux(raw, **given), given)
    check(mux, mux.eval()(raw, **given), given)


@pytest.mark.parametrize(("name", "dtype"), BUILT, ids=ids)
def test_any_batch_shape(name: str, dtype: torch.dtype) -> None:
    mux = layer(name, dtype)
    pool = raws(mux.in_features, dtype, rows=1)
    for batch in ((), (0,), (2, 3)):
        raw = pool[torch.randint(len(pool), batch)]
        given = inputs_of(mux.rules, batch, dtype)
        check(mux, mux(raw, **given), given)


@pytest.mark.parametrize(("name", "dtype"), BUILT, ids=ids)
def test_nan_is_safe_in_eval(name: str, dtype: torch.dtype) -> None:
    mux = layer(name, dtype).eval()
    raw = raws(mux.in_features, dtype)
    raw = torch.where(torch.rand(raw.shape) < 0.5, nan, raw)
    raw[0] = nan
    given = inputs_of(mux.rules, raw.shape[:-1], dtype)
    check(mux, mux(raw, **given), given)


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_seen_in_training(name: str) -> None:
    mux = layer(name)
    given = inputs_of(mux.rules, (2,), mux.dtype)
    raw = torch.stack([torch.full((mux.in_features,), nan), torch.zeros(mux.in_features)])
    shown = mux(raw, **given).best()
    moved = mux(torch.randn(50, mux.in_features), **inputs_of(mux.rules, (50,), mux.dtype)).best()
    fixed = (moved == moved[0]).all()
    assert shown[0].isnan().any() or fixed
    assert not shown[1].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=ids)
@pytest.mark.parametrize("name", NAMES)
def test_no_gradient_is_all_zero(name: str, dtype: torch.dtype) -> None:
    """For raws N(0, 10²), unless a term is a point."""
    mux = layer(name, dtype)
    rows = 40
    given = inputs_of(mux.rules, (rows,), dtype)
    raw = (10 * torch.randn(rows, mux.in_features, dtype=dtype)).requires_grad_()
    for choice in mux(raw, **given).choices:
        calm = mux(torch.randn(rows, mux.in_features, dtype=dtype), **given).choices
        other = next(c for c in calm if torch.equal(c.columns, choice.columns))
        for k in range(choice.size):
            x, possible = choice.terms(k, k + 1).squeeze(-2), ~choice.logits[:, k].isneginf()
            if bool((other.x[:, k] == other.x[:1, k]).all()) or not possible.any():
                continue
            (gradient,) = torch.autograd.grad(
                (x * torch.randn(x.shape, dtype=dtype))[possible].sum(), raw, retain_graph=True
            )
            assert gradient.isfinite().all()
            assert gradient[possible].ne(0).any(-1).all(), f"term {k}"


@pytest.mark.parametrize("name", ["paper_eight_boxes", "simplex", "design_actuator", "function_of_two", "hexagon"])
def test_training_with_a_large_rate_stays_inside(name: str) -> None:
    mux = layer(name)
    head = nn.Linear(4, mux.in_features)
    optimiser = torch.optim.SGD(head.parameters(), lr=100.0)
    h, y = torch.randn(20, 4), 100 * torch.randn(20, 1, mux.out_features)
    given = inputs_of(mux.rules, (20,), mux.dtype)
    for _ in range(5):
        branches = mux(head(h), **given)
        check(mux, branches, given)
        optimiser.zero_grad()
        branches.loss(lambda x: (x - y).abs().sum(-1)).mean().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
        optimiser.step()
    check(mux, mux(head(h), **given), given)
