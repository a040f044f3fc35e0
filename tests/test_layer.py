"""The contract of the whole layer: whatever comes in, what comes out obeys the rules, read as exact numbers."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
import z3
from corpus import CASES, by_name
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import VARIABLES, formulas
from torch import Tensor, nn

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
from multiplexnet.language.formula import (
    Formula,
    Real,
    Rule,
    Specification,
    Variable,
    holds,
)
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.transforms.separable import PaperSeparable

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TORCH_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "h": torch.sin,
    "f": lambda x, y: x * y - 1,
}

UNBUILDABLE = {"third", "decimal_sum", "input_equality"}
"""No binary float meets them, or some input leaves no output."""

REFUSED: dict[tuple[str, torch.dtype], str] = {
    ("far_from_origin", torch.bfloat16): "float32",
    ("far_from_origin", torch.float16): "float32",
    ("far_wedge", torch.float16): "float32",
}
"""Terms too thin for a dtype, and the dtype that would do."""

NAMES = [
    case.name for case in CASES if case.satisfiable and case.name not in UNBUILDABLE
]
BUILT = [
    (name, dtype) for name in NAMES for dtype in DTYPES if (name, dtype) not in REFUSED
]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def ids(value: object) -> str:
    return name_of(value) if isinstance(value, torch.dtype) else str(value)


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
    rules: Rules,
    x: Tensor,
    functions: Mapping[str, Callable[..., Tensor]] | None = None,
    **inputs: Tensor,
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


def _obeys(
    rules: Rules,
    variables: tuple[Variable, ...],
    row: tuple[float, ...],
    functions: Any,
) -> bool:
    if not all(abs(value) < inf for value in row):
        return False
    point = {
        variable: Fraction(value)
        for variable, value in zip(variables, row, strict=True)
    }
    inside = all(
        isinstance(v.domain, Real) or point[v] in v.domain.values for v in variables
    )
    return inside and holds(rules.formula, point, functions)


def _exactly(f: Callable[..., Tensor], dtype: torch.dtype) -> Callable[..., Fraction]:
    """The torch function as it is evaluated in the dtype, over exact numbers."""

    def exact(*arguments: Fraction) -> Fraction:
        values = [
            torch.tensor([float(a)], dtype=torch.float64).to(dtype) for a in arguments
        ]
        assert all(
            Fraction(v.item()) == a for v, a in zip(values, arguments, strict=True)
        )
        return Fraction(f(*values).item())

    return exact


# --- what comes in ---------------------------------------------------------------------------------------------------


def raws(width: int, dtype: torch.dtype, *, rows: int = 3) -> Tensor:
    """A few rows of every scale: N(0, 1), N(0, 30²), ±1e4, ±1e30, ±inf, subnormal, zero, and all of them mixed."""
    normal = torch.randn(rows, width, dtype=torch.float64)
    sign = torch.sign(torch.randn(3, rows, width, dtype=torch.float64))
    tiny = torch.finfo(dtype).smallest_normal * torch.rand(
        rows, width, dtype=torch.float64
    )
    pure = [
        normal,
        30 * normal,
        1e4 * sign[0],
        1e30 * sign[1],
        inf * sign[2],
        tiny,
        0 * normal,
    ]
    pool = torch.stack([part.flatten() for part in pure])
    mixed = pool.gather(0, torch.randint(len(pool), (1, pool.shape[1]))).reshape(
        rows, width
    )
    return torch.cat([*pure, mixed]).to(dtype)


def inputs_of(
    rules: Rules, batch: tuple[int, ...], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Values for all inputs in their ranges, ends included; large and small where there is no range."""
    wide = torch.tensor(
        [0.0, 1.0, -3.3, 201.9, 202.0, 250.7, 1e4, -1e4, 6e4, -6e4], dtype=torch.float64
    )
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
    return {
        name: torch.stack(v, -1) if name in vectors else v[0]
        for name, v in scalars.items()
    }


def check(mux: Multiplexer, branches: Branches, given: Mapping[str, Tensor]) -> None:
    """best(), sample() and every term that can be met obey; none of them breaks a rule by any amount."""
    functions = {
        name: TORCH_FUNCTIONS[name] for name in mux.rules.specification.functions
    }
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
        impossible = branches.joint(
            [choice.logits.isneginf().double() for choice in branches.choices]
        )
        possible &= impossible == 0
    each = {
        name: value.unsqueeze(len(branches.batch)).expand(
            *possible.shape, *value.shape[len(branches.batch) :]
        )[possible]
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
    raw = torch.stack(
        [torch.full((mux.in_features,), nan), torch.zeros(mux.in_features)]
    )
    shown = mux(raw, **given).best()
    moved = mux(
        torch.randn(50, mux.in_features), **inputs_of(mux.rules, (50,), mux.dtype)
    ).best()
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
            x, possible = (
                choice.terms(k, k + 1).squeeze(-2),
                ~choice.logits[:, k].isneginf(),
            )
            if bool((other.x[:, k] == other.x[:1, k]).all()) or not possible.any():
                continue
            (gradient,) = torch.autograd.grad(
                (x * torch.randn(x.shape, dtype=dtype))[possible].sum(),
                raw,
                retain_graph=True,
            )
            assert gradient.isfinite().all()
            assert gradient[possible].ne(0).any(-1).all(), f"term {k}"


@pytest.mark.parametrize(
    "name",
    ["paper_eight_boxes", "simplex", "design_actuator", "function_of_two", "hexagon"],
)
def test_training_with_a_large_rate_stays_inside(name: str) -> None:
    mux = layer(name)
    head = nn.Linear(4, mux.in_features)
    optimiser = torch.optim.SGD(head.parameters(), lr=100.0)
    h, y = torch.randn(8, 4), 100 * torch.randn(8, 1, mux.out_features)
    given = inputs_of(mux.rules, (8,), mux.dtype)
    for _ in range(5):
        branches = mux(head(h), **given)
        check(mux, branches, given)
        optimiser.zero_grad()
        branches.loss(lambda x: (x - y).abs().sum(-1)).mean().backward()
        assert all(
            p.grad is not None and p.grad.isfinite().all() for p in head.parameters()
        )
        optimiser.step()
    check(mux, mux(head(h), **given), given)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(formula=formulas(depth=0, max_leaves=5), dtype=st.sampled_from(DTYPES))
def test_random_rules_are_kept_or_refused(formula: Formula, dtype: torch.dtype) -> None:
    """Every kind of variable, every connective: an exception with a reason, or rows that obey."""
    rules = Rules.from_specification(
        Specification(VARIABLES, (Rule(formula, "random"),))
    )
    try:
        mux = Multiplexer(rules, dtype=dtype)
    except (ContradictionError, InputError, ThinTermError, EqualityError):
        return
    raw = raws(mux.in_features, dtype, rows=2)
    given = inputs_of(rules, raw.shape[:-1], dtype)
    try:
        branches = mux.eval()(raw, **given)
    except InputError:  # a term has no width for just this input
        return
    check(mux, branches, given)


PAPER = {
    "paper_two_sided": "x >= 2 or x <= -2",
    "paper_interval": "-1.5 < x < 4",
    "paper_function_bound": "x1: real; x2: real; h: function\nx2 > h(x1)",
    "paper_constant": "x == 0.75",
    "paper_sum_or": "(x + y >= z) and (z > 5 or z < 3)",
    "paper_coupled": "x > y + 2 and x < 5",
}


@pytest.mark.parametrize("name", PAPER)
def test_examples_of_the_paper(name: str) -> None:
    """Eight hundred rows of each in all dtypes, judged by the library's exact verdict, a few by fractions."""
    assert by_name(name).text == PAPER[name]
    for dtype in DTYPES:
        mux = layer(name, dtype)
        branches = mux(raws(mux.in_features, dtype, rows=100))
        functions = {f: TORCH_FUNCTIONS[f] for f in mux.rules.specification.functions}
        x = torch.cat([branches.x.flatten(0, 1), branches.best(), branches.sample()])
        assert bool(mux.rules.satisfied(x, functions=functions).all())
        assert violations(mux.rules, x[::37], functions) == []


# --- what cannot be kept is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_a_third_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(
        EqualityError, match=r"no binary float meets this equality exactly.*nearest"
    ) as caught:
        Multiplexer(Rules(by_name("third").text), dtype=dtype)
    assert "x == 1/3" in str(caught.value)


@pytest.mark.parametrize(("name", "dtype"), REFUSED, ids=ids)
def test_thin_terms_name_the_dtype_that_would_do(name: str, dtype: torch.dtype) -> None:
    with pytest.raises(
        ThinTermError,
        match=f"(too thin for|beyond the range of) {name_of(dtype)}.*{REFUSED[name, dtype]} would do",
    ):
        layer(name, dtype)


@pytest.mark.parametrize("name", [case.name for case in CASES if not case.satisfiable])
def test_contradictions_are_refused(name: str) -> None:
    with pytest.raises(ContradictionError, match="no output obeys the rules"):
        Multiplexer(Rules(by_name(name).text))


def test_rules_without_outputs() -> None:
    with pytest.raises(
        ShapeError, match="the rules have no outputs: declare one, as in `x: real`"
    ):
        Multiplexer(Rules("u: input[0, 1]\nu >= 0"))


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_inputs_may_close_an_interval(dtype: torch.dtype) -> None:
    """Ends that are inputs belong to the set, and a set of one point is that point."""
    rules = Rules("x: real; y: real; u: input[0, 10]\n0 <= x <= u; u <= y <= 2*u")
    mux = Multiplexer(rules, dtype=dtype)
    raw = torch.tensor([[-1e4, -1e4], [0.0, 0.0], [1e4, 1e4]], dtype=dtype)
    assert mux(raw, u=0.0).best().tolist() == [[0.0, 0.0]] * 3
    assert mux(raw, u=5.0).best().flatten().tolist() == pytest.approx(
        [0, 5, 2.5, 7.5, 5, 10]
    )
    smallest = torch.finfo(dtype).smallest_normal
    assert rules.satisfied(
        mux(raw, u=smallest).best(), u=torch.tensor(smallest, dtype=dtype)
    ).all()


def test_inputs_that_leave_no_output() -> None:
    with pytest.raises(
        InputError,
        match=r"for total = .* no output obeys the rules: declare narrower ranges",
    ):
        Multiplexer(Rules(by_name("input_equality").text))


def test_other_dtypes_have_no_guarantee() -> None:
    with pytest.raises(
        DtypeError, match="use one of float64, float32, bfloat16, float16"
    ):
        Multiplexer(Rules("x >= 0"), dtype=torch.float8_e5m2)


# --- raw -------------------------------------------------------------------------------------------------------------


def test_wrong_last_dimension_says_what_is_expected_and_why() -> None:
    with pytest.raises(ShapeError) as caught:
        layer("paper_sum_or")(torch.zeros(7, 3))
    assert str(caught.value) == (
        "raw has shape (7, 3); its last dimension must be in_features = 5 (3 raw values + 2 logits)"
    )
    with pytest.raises(ShapeError, match=r"in_features = 2 \(2 raw values\)"):
        layer("triangle")(torch.tensor(0.0))


def test_wrong_dtypes() -> None:
    mux = layer("triangle")
    with pytest.raises(
        DtypeError,
        match=r"raw has dtype torch.int64; .* floating point: torch.float32 here",
    ):
        mux(torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(
        DtypeError,
        match=r"built for torch.float32: convert raw, or the layer with mux.to\(torch.float64\)",
    ):
        mux(torch.zeros(3, 2, dtype=torch.float64))


def test_mixed_devices() -> None:
    with pytest.raises(
        ShapeError, match=r"raw is on meta and the layer on cpu: move one of them"
    ):
        layer("triangle")(torch.zeros(3, 2, device="meta"))


# --- blocks and terms ------------------------------------------------------------------------------------------------


def test_blocks_are_a_product() -> None:
    rules = Rules("x <= -1 or x >= 1\ny == 0 or 2 < y < 3 or y > 9\nz >= 0")
    mux = Multiplexer(rules)
    assert mux.in_features == 3 + 2 + 3
    branches = mux(raws(8, torch.float32))
    assert branches.x.shape == (24, 6, 3)
    check(mux, branches, {})
    assert torch.allclose(branches.log_probs.exp().sum(-1), torch.ones(24))
    logits = branches.choices[0].log_probs.unsqueeze(-1) + branches.choices[
        1
    ].log_probs.unsqueeze(-2)
    assert torch.allclose(branches.logits, logits.flatten(-2), equal_nan=True)
    single = torch.cat([branches.terms(k, k + 1) for k in range(6)], -2)
    assert torch.equal(single, branches.x)


def test_twenty_two_sided_are_never_written_out() -> None:
    mux = layer("twenty_two_sided")
    assert mux.in_features == 20 + 20 * 2
    branches = mux(torch.randn(3, 60))
    assert branches.size == 2**20
    looks: list[Callable[[], Tensor]] = [
        lambda: branches.x,
        lambda: branches.logits,
        lambda: branches.loss(lambda x: x.sum(-1)),
    ]
    for look in looks:
        with pytest.raises(
            ProductError,
            match=r"20 blocks .* = 1048576 combinations, more than max_terms = 4096",
        ):
            look()
    index = [torch.full((3,), 1)] * 20
    assert branches.at(index).shape == (3, 20)


def test_best_is_the_most_probable_term() -> None:
    mux = layer("paper_eight_boxes")
    raw = torch.randn(50, mux.in_features)
    branches = mux(raw)
    best = branches.log_probs.argmax(-1)
    chosen = branches.x.gather(-2, best[:, None, None].expand(-1, 1, 2)).squeeze(-2)
    assert torch.allclose(branches.best(), chosen, rtol=1e-6)


def test_samples_follow_the_probabilities() -> None:
    mux = layer("one_of_points")
    logits = torch.tensor([0.1, 0.6, 0.3]).log()
    branches = mux(torch.cat([torch.zeros(1), logits]).expand(20_000, -1))
    generator = torch.Generator().manual_seed(1)
    values, counts = branches.sample(generator).unique(return_counts=True)
    assert values.tolist() == [-1.0, 0.5, 2.0]
    order = [float(branches.choices[0].terms(k, k + 1)[0, 0, 0]) for k in range(3)]
    share = dict(zip(values.tolist(), (counts / 20_000).tolist(), strict=True))
    assert [share[v] for v in order] == pytest.approx([0.1, 0.6, 0.3], abs=0.02)


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize(
    "name",
    [
        "paper_sum_or",
        "paper_eight_boxes",
        "mixed",
        "nested",
        "maximum",
        "twenty_two_sided",
    ],
)
def test_every_term_may_have_raw_values_of_its_own(
    name: str, dtype: torch.dtype
) -> None:
    mux = Multiplexer(Rules(by_name(name).text), per_term=True, dtype=dtype)
    sizes = [(len(block.terms), len(block.outputs)) for block in mux.blocks]
    assert mux.in_features == sum(k * d + (k if k > 1 else 0) for k, d in sizes)
    check(mux, mux(raws(mux.in_features, dtype)), {})
    with pytest.raises(ShapeError, match=f"{sum(k * d for k, d in sizes)} raw values"):
        mux(torch.zeros(1, dtype=dtype))


def test_a_term_of_its_own_reads_its_own_values() -> None:
    mux = Multiplexer(Rules("x >= 2 or x <= -2"), per_term=True)
    raw = torch.randn(4)
    changed = raw.clone()
    changed[0] += 1
    x, y = mux(raw).x, mux(changed).x
    assert (x != y).squeeze(-1).tolist() == [True, False]


def test_the_papers_own_map_obeys_too() -> None:
    mux = Multiplexer(Rules(by_name("paper_interval").text), boxes=PaperSeparable)
    check(mux, mux(raws(1, torch.float32, rows=50)), {})


def test_discrete_outputs_are_fixed_by_the_term() -> None:
    mux = layer("mixed")
    x = mux(torch.randn(5, mux.in_features)).x
    assert torch.equal(x[..., :3], x[:1, :, :3].expand(5, -1, -1))
    fixed = [[float(value) for _, value in term.fixed] for term in mux.terms]
    assert x[0, :, :3].tolist() == fixed


# --- inputs ----------------------------------------------------------------------------------------------------------

GUARDED = "x: real; y: real; u: input[0, 10]\nx == 0 and u <= 4 or x >= u and u >= 3 or y >= 1 and x <= -1 and u >= 8"


@pytest.mark.parametrize("value", [-inf, nan, inf, -1e30, 1e30])
def test_terms_that_cannot_be_met_are_never_chosen(value: float) -> None:
    mux = Multiplexer(Rules(GUARDED)).eval()
    u = torch.tensor([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    raw = torch.randn(11, mux.in_features)
    raw[:, 2:] = value
    for k in range(len(mux.terms)):
        pushed = raw.clone()
        pushed[:, 2 + k] = 1e30
        check(mux, mux(pushed, u=u), {"u": u})
    branches = mux(raw, u=u)
    check(mux, branches, {"u": u})
    masked = branches.logits.isneginf()
    assert masked.any()
    assert not masked.all(-1).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
def test_cases_by_inputs_are_told_apart_exactly(dtype: torch.dtype) -> None:
    """At the very end of a case, and at the floats around it."""
    rules = Rules(
        "x: real; u: input[-10, 10]\nimplies(u >= 0.1, x >= 1)\nimplies(u < 0.1, x <= -1)"
    )
    mux = Multiplexer(rules, dtype=dtype)
    end = torch.tensor(0.1, dtype=dtype)
    ends = [end, torch.nextafter(end, end + 1), torch.nextafter(end, end - 1)]
    u = torch.stack(
        [*ends, *(torch.tensor(v, dtype=dtype) for v in (0, 0.125, -10, 10))]
    )
    raw = torch.randn(len(u), mux.in_features, dtype=dtype)
    branches = mux(raw, u=u)
    check(mux, branches, {"u": u})
    assert branches.best().squeeze(-1).ge(1).tolist() == [
        Fraction(v) >= Fraction(1, 10) for v in u.double().tolist()
    ]


def test_inputs_out_of_range_are_named_by_row() -> None:
    mux = layer("input_two_sided").eval()
    raw = torch.zeros(8, mux.in_features)
    u = torch.tensor([1.0, 2.0, 2.5, 1.5, nan, inf, 0.999, 1.0])
    with pytest.raises(
        InputError,
        match=r"input u is outside its declared range \[1, 2\] in rows 2, 4, 5, 6",
    ):
        mux(raw, u=u)
    with pytest.raises(InputError, match=r"in row \(1, 0\)|in rows \(1, 0\)"):
        mux(torch.zeros(2, 2, mux.in_features), u=torch.tensor([[1.0, 1], [3, 1]]))
    with pytest.raises(InputError, match="in the only row"):
        mux(raw[0], u=7.0)
    with pytest.raises(InputError, match="u is not a finite number in row 1"):
        layer("input_bound")(torch.zeros(2, 1), u=torch.tensor([0.0, nan]))


def test_ranges_are_exact() -> None:
    """0.1 is not a float: the float64 number next to it lies outside, and its neighbour inside."""
    mux = Multiplexer(Rules("x: real; u: input[0, 0.1]\nx <= u"), dtype=torch.float64)
    end = torch.tensor(0.1, dtype=torch.float64)
    assert Fraction(end.item()) > Fraction(1, 10)
    with pytest.raises(InputError, match="outside"):
        mux(torch.zeros(1, dtype=torch.float64), u=end)
    mux(
        torch.zeros(1, dtype=torch.float64),
        u=torch.nextafter(end, torch.zeros_like(end)),
    )


def test_discrete_inputs_are_whole() -> None:
    n, x = z3.Int("n"), z3.Real("x")
    mux = Multiplexer(Rules.from_z3(x >= z3.ToReal(n), outputs=[x], inputs={n: (0, 3)}))
    with pytest.raises(InputError, match=r"values \{0, 1, …, 3\} in row 1"):
        mux(torch.zeros(2, 1), n=torch.tensor([1.0, 0.5]))


def test_inputs_missing_unknown_and_misshapen() -> None:
    mux = layer("input_vector")
    raw = torch.zeros(4, mux.in_features)
    with pytest.raises(InputError, match=r"the rules need the input 'u': pass u="):
        mux(raw)
    with pytest.raises(
        InputError, match=r"'v' is not an input of the rules \(they declare: u\)"
    ):
        mux(raw, u=torch.zeros(4, 2), v=1.0)
    with pytest.raises(ShapeError, match="input u is a vector of 2"):
        mux(raw, u=torch.zeros(4, 3))
    with pytest.raises(
        ShapeError, match=r"input u\[0\] has shape \(3,\); one value per row is \(4,\)"
    ):
        mux(raw, u=torch.zeros(3, 2))
    with pytest.raises(
        DtypeError,
        match=r"input u\[0\] has dtype torch.float64; the layer works in torch.float32",
    ):
        mux(raw, u=torch.zeros(4, 2, dtype=torch.float64))
    with pytest.raises(
        InputError, match=r"'u' is not an input of the rules \(they declare: none\)"
    ):
        layer("triangle")(torch.zeros(2), u=1)


def test_a_number_is_an_input_for_every_row() -> None:
    mux = layer("input_bound")
    x = mux(100 * torch.randn(50, 1), u=-3).best()
    assert violations(mux.rules, x, u=torch.full((50,), -3.0)) == []


# --- opaque functions ------------------------------------------------------------------------------------------------

ABOVE = "x1: real; x2: real; h: function\nx2 > h(x1)"


def test_functions_are_bound_at_construction() -> None:
    with pytest.raises(
        InputError, match=r"the rules use 'h': give it as functions=\{'h': …\}"
    ):
        Multiplexer(Rules(ABOVE))
    with pytest.raises(
        InputError, match=r"'g' is not a function of the rules \(they declare: h\)"
    ):
        Multiplexer(Rules(ABOVE), functions={"h": torch.sin, "g": torch.cos})


def test_functions_may_be_modules() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * x.clamp(-100, 100).square()

    square = Square()
    mux = Multiplexer(Rules(ABOVE), functions={"h": square})
    raw = raws(2, torch.float32, rows=20)
    for module in (mux, copy.deepcopy(mux)):
        x = module(raw).best()
        assert violations(mux.rules, x, {"h": square}) == []
        x.sum().backward()
    assert square.scale.grad is not None
    assert "modules_of_functions.h.scale" in mux.state_dict()
    half = copy.deepcopy(mux).to(torch.bfloat16)
    x = half(raws(2, torch.bfloat16, rows=20)).best()
    assert violations(mux.rules, x, dict(half.modules_of_functions.items())) == []


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x: x.sum(),
            ShapeError,
            r"'h' returned shape \(\) for arguments of shape \(3",
        ),
        (
            lambda x: x.double(),
            DtypeError,
            r"'h' returned torch.float64 for arguments of torch.float32",
        ),
        (lambda x: 0.0, InputError, "'h' returned float; it must return a tensor"),
        (
            lambda x: x * nan,
            InputError,
            r"cannot be met where h is NaN or infinite.*: rows \(?0",
        ),
        (
            lambda x: x.abs() + inf,
            InputError,
            r"cannot be met where h is NaN or infinite.*: rows \(?0",
        ),
        (
            lambda x: 0 * x + 3.4028234e38,
            InputError,
            "no number of float32 lies between the bounds",
        ),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_functions_that_return_nonsense(
    function: Callable[..., Any], error: type[Exception], message: str, training: bool
) -> None:
    branches = Multiplexer(Rules(ABOVE), functions={"h": function}).train(training)(
        torch.zeros(3, 2)
    )
    for look in (branches.best, branches.sample, lambda: branches.x):
        with pytest.raises(error, match=message):
            look()


def test_a_function_is_asked_only_where_it_counts() -> None:
    """log is NaN below 0, where the other term holds."""
    rules = Rules(
        "x: real; y: real; log: function\nx >= 1 and y > log(x) or x <= -1 and y == 0"
    )
    mux = Multiplexer(rules, functions={"log": torch.log}).eval()
    x = mux(raws(4, torch.float32, rows=20)).best()
    assert (
        (x[:, 0] <= -1) & (x[:, 1] == 0) | (x[:, 0] >= 1) & (x[:, 1] > x[:, 0].log())
    ).all()


@pytest.mark.parametrize("per_term", [False, True])
def test_one_call_serves_all_terms(per_term: bool) -> None:
    """Terms that differ only in what the function reads; the values are those of terms computed one by one."""
    calls = []

    def bound(*others: Tensor) -> Tensor:
        calls.append(others[0].shape)
        return torch.stack(others, -1).double().logsumexp(-1).to(others[0].dtype)

    terms = [
        "x[0] > bound(x[2], x[3]) and x[1] > bound(x[2], x[3])",
        "x[2] > bound(x[0], x[1])",
    ]
    rules = Rules(
        f"x: real[4]; bound: function\n{' or '.join(f'({term})' for term in [*terms, 'x[3] > bound(x[0], x[2])'])}"
    )
    mux = Multiplexer(rules, functions={"bound": bound}, per_term=per_term)
    raw = torch.randn(20, mux.in_features)
    branches = mux(raw)
    x = branches.x
    assert len(calls) <= 2, (
        "the first output of each term, then the second of the first term"
    )
    for k in range(3):
        calls.clear()
        index = torch.full((20,), k)
        torch.testing.assert_close(branches.at([index]), x[:, k], rtol=0, atol=0)
        torch.testing.assert_close(
            branches.terms(k, k + 1)[:, 0], x[:, k], rtol=0, atol=0
        )
        assert rules.satisfied(x[:, k], functions={"bound": bound}).all()


# --- other dtypes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "paper_eight_boxes",
        "simplex",
        "paper_coupled",
        "decimal_bound",
        "input_interval",
    ],
)
def test_casts_build_the_layer_anew(name: str) -> None:
    mux = layer(name)
    casts: list[Callable[[nn.Module], nn.Module]] = [
        lambda m: m.half(),
        lambda m: m.bfloat16(),
        lambda m: m.to(torch.float16),
        lambda m: m.double(),
        lambda m: m.float(),
        lambda m: m.to("cpu", torch.bfloat16),
    ]
    dtypes = (
        torch.float16,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.float32,
        torch.bfloat16,
    )
    parent = nn.Sequential(nn.Linear(3, mux.in_features), mux)
    for cast, dtype in zip(casts, dtypes, strict=True):
        assert cast(parent) is parent
        assert mux.dtype == dtype
        raw = raws(mux.in_features, dtype, rows=2)
        given = inputs_of(mux.rules, raw.shape[:-1], dtype)
        check(mux, mux(raw, **given), given)
        if not given:
            check(mux, parent(30 * torch.randn(5, 3, dtype=dtype)), {})


def test_a_refused_cast_leaves_the_layer_as_it_was() -> None:
    mux = layer("far_wedge").eval()
    raw = raws(2, torch.float32)
    before = mux(raw).best()
    parent = nn.Sequential(mux)
    for cast in (mux.half, parent.half, lambda: parent.to(torch.float16)):
        with pytest.raises(ThinTermError, match="float32 would do"):
            cast()
        assert mux.dtype == torch.float32
        assert torch.equal(mux(raw).best(), before)
        check(mux, mux(raw), {})
    assert not mux.training
    assert not mux.double().maps[0].training


def test_a_cast_stays_on_its_device() -> None:
    mux = layer("paper_eight_boxes").to("meta").half()
    assert {buffer.device.type for buffer in mux.buffers()} == {"meta"}


# --- other processes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["paper_eight_boxes", "simplex", "mixed", "design_actuator", "far_from_origin"],
)
def test_copies_give_the_same_bits(name: str) -> None:
    mux = layer(name)
    raw = raws(mux.in_features, torch.float32)
    given = inputs_of(mux.rules, raw.shape[:-1], torch.float32)
    expected = mux(raw, **given).best()
    copies = [
        copy.deepcopy(mux),
        pickle.loads(pickle.dumps(mux)),
        Multiplexer.from_state(mux.state_dict()),
    ]
    for other in copies:
        assert torch.equal(other(raw, **given).best(), expected)
        assert other.terms == mux.terms
        assert other.certificate == mux.certificate
        assert str(other.rules) == str(mux.rules)
        assert repr(other) == repr(mux)


SAVED = """
import pickle, sys
import torch
from multiplexnet.layer.multiplexer import Multiplexer
folder = sys.argv[1]
mux = Multiplexer.from_state(torch.load(folder + "/state.pt", weights_only=True))
with open(folder + "/layer.pickle", "rb") as file:
    other = pickle.load(file)
raw = torch.load(folder + "/raw.pt", weights_only=True)
assert torch.equal(mux(raw).best(), other(raw).best())
assert bool(mux.rules.satisfied(mux(raw).best()).all())
mux.double()
torch.save(other(raw).best(), folder + "/best.pt")
assert not any(name == "z3" or name.startswith("z3.") for name in sys.modules), "z3 was imported"
"""


def test_a_saved_layer_needs_no_z3(tmp_path: Path) -> None:
    mux = layer("paper_sum_or")
    raw = raws(mux.in_features, torch.float32)
    torch.save(mux.state_dict(), tmp_path / "state.pt")
    (tmp_path / "layer.pickle").write_bytes(pickle.dumps(mux))
    torch.save(raw, tmp_path / "raw.pt")
    run = subprocess.run(
        [sys.executable, "-c", SAVED, str(tmp_path)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert torch.equal(
        torch.load(tmp_path / "best.pt", weights_only=True), mux(raw).best()
    )


def _permuted(state: Tensor) -> Tensor:
    record = json.loads(bytes(state.tolist()))
    del record["sha256"]  # a changed record would not fit it
    record["compiled"]["blocks"][0]["terms"].reverse()
    return torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)


def test_a_logit_means_the_same_tomorrow() -> None:
    """A layer saved with its terms in another order keeps that order wherever it is loaded."""
    mux = layer("paper_eight_boxes")
    state = mux.state_dict()
    state["_extra_state"] = _permuted(state["_extra_state"])
    loaded = copy.deepcopy(mux)
    loaded.load_state_dict(state)
    raw = raws(mux.in_features, torch.float32)
    flipped = torch.cat([raw[:, :2], raw[:, 2:].flip(-1)], -1)
    for other in (loaded, Multiplexer.from_state(state)):
        assert other.terms == mux.terms[::-1]
        assert torch.equal(other(raw).x, mux(flipped).x.flip(-2))
        check(other, other(raw), {})


def test_a_state_of_other_rules_is_refused() -> None:
    state = layer("paper_two_sided").state_dict()
    with pytest.raises(RecordError, match="built from other rules"):
        layer("half_line").load_state_dict(state)
    with pytest.raises(RecordError, match="per_term=False"):
        Multiplexer(
            Rules(by_name("paper_two_sided").text), per_term=True
        ).load_state_dict(state)
    for nonsense in (
        torch.zeros(3),
        {"_extra_state": torch.zeros(3, dtype=torch.uint8)},
        None,
    ):
        with pytest.raises(RecordError, match="this is not the state of a Multiplexer"):
            Multiplexer.from_state(nonsense)


def test_the_layer_tells_what_it_is() -> None:
    mux = layer("paper_sum_or")
    assert (
        repr(mux)
        == "Multiplexer(in_features=5, out_features=3, terms=2, dtype=float32)"
    )
    assert mux.complete
    assert mux.certificate.sound
    assert [term.to_z3() for term in mux.terms]


@pytest.mark.parametrize("structure", ["terms", "cascade"])
def test_gradients_of_wide_ranges_are_finite_in_float16(structure: Any) -> None:
    """A range of 130,000 and a weight of 3: the gradient is larger than any float16."""
    rules = Rules(
        "a: real; b: real; -60000 <= a <= 60000; -60000 <= b <= 60000; a <= b"
    )
    mux = Multiplexer(rules, structure=structure, dtype=torch.float16)
    raw = torch.zeros(1, mux.in_features, dtype=torch.float16, requires_grad=True)
    (10 * mux(raw).best().double().sum()).backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    assert raw.grad.abs().max() == torch.finfo(torch.float16).max
