"""What people write first, in the sizes in which they write it: lots, counts, orders, networks, tables, labels."""

from __future__ import annotations

from fractions import Fraction
from time import process_time
from typing import Any

import pytest
import torch
from torch import Tensor

import multiplexnet as mx
from multiplexnet.compiler.cascade.projection.project import bucket_of, projection
from multiplexnet.compiler.cascade.projection.rows import Range, Row
from multiplexnet.errors import DtypeError

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

LINES = (
    (1, 2), (1, 5), (2, 3), (2, 4), (2, 5), (3, 4), (4, 5), (4, 7), (4, 9), (5, 6), (6, 11), (6, 12), (6, 13), (7, 8),
    (7, 9), (9, 10), (9, 14), (10, 11), (12, 13), (13, 14),
)  # fmt: skip
"""Of the IEEE 14-bus network."""
PLANTS = (1, 2, 3, 6, 8)
"""The buses with a generator or a condenser."""


def lots(n: int, rest: str) -> str:
    return f"x: real[{n}]; all(v == 0 or 10 <= v <= 100 for v in x); {rest}"


def apart(n: int, top: int) -> str:
    pairs = [f"abs(x[{i}] - x[{j}]) >= 1" for i in range(n) for j in range(i)]
    return "\n".join([f"x: real[{n}]; all(0 <= v <= {top} for v in x)", *pairs])


def different(n: int, top: int) -> str:
    pairs = [f"x[{i}] != x[{j}]" for i in range(n) for j in range(i)]
    return "\n".join([f"x: int[0, {top}][{n}]", *pairs])


def largest(n: int) -> str:
    labels = ", ".join(f'"l{i}"' for i in range(n))
    pairs = [
        f'implies(best == "l{i}", x[{i}] >= x[{j}])'
        for i in range(n)
        for j in range(n)
        if i != j
    ]
    return "\n".join(
        [f"x: real[{n}]; best: {{{labels}}}; all(-5 <= v <= 5 for v in x)", *pairs]
    )


def power_balance() -> str:
    """What flows into a bus, and what is made there, is what leaves it and what is asked for there."""
    rules = [
        f"f: real[{len(LINES)}]; g: real[{len(PLANTS)}]; d: input[0, 40][14]",
        "all(-100 <= v <= 100 for v in f); all(0 <= v <= 300 for v in g)",
    ]
    for bus in range(1, 15):
        flows = [
            f"{'+' if end == bus else '-'} f[{i}]"
            for i, (start, end) in enumerate(LINES)
            if bus in (start, end)
        ]
        made = [f"+ g[{PLANTS.index(bus)}]"] if bus in PLANTS else []
        rules.append(f"0 {' '.join(flows + made)} == d[{bus - 1}]")
    return "\n".join(rules)


def inventory(hours: int) -> str:
    rules = [
        f"s: real[{hours}]; q: real[{hours}]; d: input[0, 40][{hours}]",
        "all(0 <= v <= 200 for v in s); all(0 <= v <= 80 for v in q); s[0] == 100 + q[0] - d[0]",
        *(f"s[{t}] == s[{t - 1}] + q[{t}] - d[{t}]" for t in range(1, hours)),
    ]
    return "\n".join(rules)


def labelled(count: int) -> str:
    """A label for every interval of x."""
    labels = ", ".join(f'"l{i}"' for i in range(count))
    rules = [
        f"kind: {{{labels}}}; x: real; y: real; 0 <= x <= 400; 0 <= y <= 400; x + y <= 500"
    ]
    rules += [f'implies(kind == "l{i}", {i} <= x <= {i + 10})' for i in range(count)]
    return "\n".join(rules)


def raws(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    scales = torch.tensor([1.0, 10.0, 1e4, 1e30, torch.inf])
    drawn = torch.randn(rows, columns) * scales[torch.randint(0, 5, (rows, 1))]
    return drawn.nan_to_num(0.0, torch.inf, -torch.inf).to(dtype)


def check(mux: mx.Multiplexer, rows: int = 60, **given: Any) -> Tensor:
    """Rows of every size obey, whether they are the best ones or drawn."""
    branches = mux.eval()(raws(rows, mux.in_features, mux.dtype), **given)
    best: Tensor = branches.best()
    for x in (best, branches.sample()):
        assert x.dtype == mux.dtype
        assert mux.rules.satisfied(x, **given).all()
    return best


# --- lots and counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_hundred_lots_add_up_to_whatever_is_asked_for(dtype: torch.dtype) -> None:
    text = "u: input[10, 300]; x: real[100]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) == u"
    mux = mx.Multiplexer(mx.Rules(text), dtype=dtype)
    assert mux.complete
    check(mux, 40, u=(10 + 290 * torch.rand(40)).to(dtype))


def test_lots_of_different_sizes_share_a_grid_and_lose_nothing() -> None:
    text = (
        "u: input[1, 200]; assume u <= 9 or u >= 10; a: real; b: real; c: real; a == 0 or 1 <= a <= 9; "
        "b == 0 or 10 <= b <= 100; c == 0 or 20 <= c <= 99; a + b + c == u"
    )
    mux = mx.Multiplexer(mx.Rules(text), dtype=torch.float32)
    assert mux.complete
    assert len(set(mux.resolution.values())) == 1
    check(mux, 100, u=torch.cat([torch.arange(2, 18), torch.arange(22, 190, 2)]) / 2)


def test_a_hundred_truth_values_are_counted_without_terms() -> None:
    start = process_time()
    mux = mx.Multiplexer(mx.Rules("b: bool[100]; sum(b) == 3"))
    assert process_time() - start < 5
    assert mux.cascades
    assert (check(mux).sum(-1) == 3).all()


# --- orders ---------------------------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("text", [apart(12, 24), different(12, 11), largest(12)])
def test_twelve_outputs_keep_their_distance_or_differ(
    text: str, dtype: torch.dtype
) -> None:
    mux = mx.Multiplexer(mx.Rules(text), dtype=dtype, structure="cascade")
    assert mux.complete
    check(mux)
    x = check(mux, 8)
    assert (
        mux(torch.zeros(8, mux.in_features, dtype=dtype)).log_prob(x).isfinite().all()
    )


def test_a_tight_range_leaves_all_orders_and_nothing_else() -> None:
    mux = mx.Multiplexer(mx.Rules(different(4, 3)), structure="cascade")
    x = mux(3 * torch.randn(2000, mux.in_features)).sample()
    assert len({tuple(row) for row in x.tolist()}) == 24


def test_gaps_that_leave_room_are_not_passed_and_those_that_may_not_are() -> None:
    ranges = {i: Range(0, 3) for i in range(4)}
    gaps = [(Row(((i, -1), (3, 1)), -1), Row(((i, 1), (3, -1)), -1)) for i in range(3)]
    assert projection(bucket_of(3, gaps, ranges), ranges).clauses == ()
    narrow = {**ranges, 3: Range(0, 2)}
    found = projection(bucket_of(3, gaps, narrow), narrow)
    assert found.exact
    for point in ((0, 1, 2), (0, 0, 1), (3, 1, 0), (2, 2, 2)):
        free = any(all(value != other for other in point) for value in range(3))
        known = dict(enumerate(point))
        assert (
            all(any(row.holds(known) for row in clause) for clause in found.clauses)
            == free
        )


def test_options_by_rank_survive_a_file_and_find_every_point_again() -> None:
    mux = mx.Multiplexer(mx.Rules(apart(9, 20)), structure="cascade").eval()
    assert any(step.ranked for step in mux.cascades[0].steps)
    raw = raws(30, mux.in_features, mux.dtype)
    loaded = mx.Multiplexer.from_state(mux.state_dict()).eval()
    x = mux(raw).best()
    assert torch.equal(loaded(raw).best(), x)
    assert torch.equal(mux.repair(x), x)
    raw = torch.randn(4, mux.in_features, requires_grad=True)
    (gradient,) = torch.autograd.grad(mux(raw).best().sum(), raw)
    assert gradient.isfinite().all()
    assert gradient.any()


# --- whole numbers --------------------------------------------------------------------------------------------------


def test_whole_numbers_to_a_billion_and_the_dtype_that_cannot_hold_them() -> None:
    text = (
        'n: int[0, 1000000000]; m: int[0, 1000000000]; x: real; size: {"small", "large"}; n <= m <= 3*n + 5; 0 <= x; '
        '4*x <= n; implies(size == "small", n <= 9)'
    )
    check(mx.Multiplexer(mx.Rules(text), dtype=torch.float64))
    for dtype in DTYPES[1:]:
        with pytest.raises(
            DtypeError, match=f"{str(dtype)[6:]} holds whole numbers up to .* n"
        ):
            mx.Multiplexer(mx.Rules(text), dtype=dtype)


# --- balances -------------------------------------------------------------------------------------------------------


@every_dtype
def test_the_power_balance_of_fourteen_buses_is_exact(dtype: torch.dtype) -> None:
    mux = mx.Multiplexer(mx.Rules(power_balance()), dtype=dtype)
    assert mux.complete
    demand = (20 * torch.rand(60, 14)).to(dtype)
    assert check(mux, 60, **mux.on_grid(d=demand)).shape == (60, 25)


@every_dtype
def test_an_inventory_over_a_day_is_exact(dtype: torch.dtype) -> None:
    mux = mx.Multiplexer(mx.Rules(inventory(24)), dtype=dtype)
    assert mux.complete
    check(mux, 60, **mux.on_grid(d=(40 * torch.rand(60, 24)).to(dtype)))


def test_an_output_that_has_to_equal_an_input_does_so_however_it_is_built() -> None:
    text = "u: input[0, 4]; a: real; 0 <= a <= 9; a == u"
    for structure in ("auto", "cascade"):
        mux = mx.Multiplexer(mx.Rules(text), structure=structure)
        u = 4 * torch.rand(20)
        assert torch.equal(check(mux, 20, u=u)[:, 0], u)


# --- labels and densities -------------------------------------------------------------------------------------------


def test_three_hundred_labels_are_options_and_no_terms() -> None:
    mux = mx.Multiplexer(mx.Rules(labelled(300)), structure="cascade")
    (cascade,) = mux.cascades
    sizes = {
        v.name: step.size for v, step in zip(cascade.order, cascade.steps, strict=True)
    }
    assert sizes == {"kind": 300, "x": 1, "y": 1}
    assert len(set(check(mux, 400)[:, 0].tolist())) > 100
    with pytest.raises(
        DtypeError, match=r"bfloat16 holds whole numbers up to 256 .* kind"
    ):
        mx.Multiplexer(mx.Rules(labelled(300)), dtype=torch.bfloat16)


def test_samples_on_the_finest_grid_are_probable() -> None:
    """Among 2^51 cells the edges of one are the same float."""
    mux = mx.Multiplexer(
        mx.Rules(lots(5, "sum(x) <= 300")), dtype=torch.float64, structure="cascade"
    )
    branches = mux(torch.randn(500, mux.in_features, dtype=torch.float64))
    x = branches.ordered([part.sample(noisy=True) for part in branches.cascades])
    found = branches.log_prob(x)
    assert found.isfinite().all()
    assert (found < 0).all()
    assert min(mux.resolution.values()) < Fraction(1, 2**40)
