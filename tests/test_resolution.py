"""What low precision can tell apart: wide sets are not refused, lattices are as fine as can be, densities agree."""

from __future__ import annotations

import json
from fractions import Fraction
from math import log, pi
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal
from typer.testing import CliRunner

from campaign.sentences import Declared, Sentence
from campaign.solver import Meaning
from multiplexnet.certificate.check import checked
from multiplexnet.errors import ShapeError, ThinTermError
from multiplexnet.exact.formats import FORMATS, power_of_two
from multiplexnet.language.formula import Atom, holds
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.rules import Rules
from multiplexnet.tools.cli import app
from multiplexnet.transforms.base import quarter_cell

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
SUM = "y == a + b; y >= 2000"


def extremes(mux: Multiplexer, count: int = 400) -> Tensor:
    """Raw values of many sizes, infinite ones included."""
    sizes = torch.tensor(
        [0.0, 1e-30, 1e-3, 1.0, 1.0, 3.0, 30.0, 1e4, 1e30, float("inf")]
    ).to(mux.dtype)
    raw = torch.randn(count, mux.in_features).to(mux.dtype)
    return torch.nan_to_num(
        raw * sizes[torch.arange(count) % len(sizes)].unsqueeze(-1), nan=1.0
    )


def obeys(mux: Multiplexer) -> bool:
    """Whether rows of extreme raw values satisfy the rules, their floats read as fractions."""
    rows = mux.eval()(extremes(mux)).best().double().tolist()
    points = [
        dict(zip(mux.compiled.outputs, map(Fraction, row), strict=True)) for row in rows
    ]
    return all(holds(mux.rules.specification.formula, point) for point in points)


# --- sets that are not thin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("a >= 2630004530000000/1265439; a <= b", torch.float32),
        ("a >= 2000000; a <= b", torch.bfloat16),
        ("a <= -2000000; b <= a; c <= b", torch.bfloat16),
        ("a >= 1000000; b >= 3*a; c >= 100*b", torch.bfloat16),
        ("a >= 20000; a <= b", torch.float16),
        ("a >= 60000; a <= b", torch.float16),
        (SUM, torch.bfloat16),
        (SUM, torch.float16),
        ("x - s == -1.75; x <= 40000024; s > 25.75", torch.float32),
        ("x - s == -1.75; x <= 40000024; s > 25.75", torch.bfloat16),
        (
            "x + y - 4*z == 99.75; x >= 0; x <= 70; y >= 0; y <= 70; z >= -17.4375; z <= 0.0625",
            torch.bfloat16,
        ),
        ("x - y + z - w == 33.125; z < 1.5", torch.bfloat16),
        (
            "x + z2 - s == -23; x > -0.125; x - 5*z2 - s <= 47; y2 - s >= -61/56; y2 - s <= 0.425",
            torch.float32,
        ),
        ("60*x + 21*z - 140*w == 4500000585", torch.float32),
        (
            "y + x == s; y < 0.000000000015; 5*x + z >= -23000000000.2; x - s <= 0.000000000005",
            torch.float32,
        ),
    ],
)
def test_a_wide_set_is_built_obeys_and_is_certified(
    text: str, dtype: torch.dtype
) -> None:
    mux = Multiplexer(Rules(text), dtype=dtype)
    assert obeys(mux)
    assert checked(mux.certificate).certified


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("exponent", [3, 7, 11, 14, 60, 100])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_cone_has_an_anchor_wherever_the_format_has_numbers(
    exponent: int, sign: int, dtype: torch.dtype
) -> None:
    if exponent > FORMATS[str(dtype).removeprefix("torch.")].largest_exponent:
        pytest.skip("beyond the format")
    start = f"{sign * 2**exponent}"
    text = (
        f"a >= {start}; a <= b; b <= c" if sign > 0 else f"a <= {start}; a >= b; b >= c"
    )
    assert obeys(Multiplexer(Rules(text), dtype=dtype))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (
            "x - s == -18; x <= -39985/6",
            torch.bfloat16,
        ),  # both would be multiples of 32
        ("x - s == -18; x <= -39985/6", torch.float16),
        ("a >= 4000000; a <= b; b <= a + 1000", torch.bfloat16),
        ("a >= 100000; a <= b", torch.float16),
    ],
)
def test_what_the_format_cannot_hold_is_still_refused(
    text: str, dtype: torch.dtype
) -> None:
    with pytest.raises(ThinTermError):
        Multiplexer(Rules(text), dtype=dtype)


@dtypes
def test_a_bounded_set_is_not_cut_where_the_format_holds_all_of_it(
    dtype: torch.dtype,
) -> None:
    mux = Multiplexer(Rules("x + y == 1; 0 <= x <= 1"), dtype=dtype)
    far = mux.eval()(torch.tensor([[1e4, 0.0], [-1e4, 0.0]], dtype=dtype)).best()
    assert float(far[0, 0]) > 0.98
    assert float(far[1, 0]) < 0.02


def test_the_campaign_asks_for_room_on_the_grid_where_there_are_equalities() -> None:
    meaning = Meaning(Sentence((Declared("x"), Declared("s")), ()))
    eighteen, half = (
        [
            rule.formula
            for rule in Rules(text).specification.rules
            if isinstance(rule.formula, Atom)
        ]
        for text in ("x - s == -18; x <= -39985/6", "x - s == -18; x <= -20")
    )
    assert meaning.room(half, Fraction(1), Fraction(256), Fraction(1))
    assert not meaning.room(half, Fraction(1), Fraction(256), Fraction(4))
    assert not meaning.room(eighteen, Fraction(64), Fraction(8192), Fraction(32))


# --- the step of a lattice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "step", "values"),
    [
        (torch.float64, 2**-23, 3900),
        (torch.float32, 2**-11, 2000),
        (torch.float16, 4, 60),
    ],
)
def test_a_sum_far_from_zero_has_the_resolution_of_its_size(
    dtype: torch.dtype, step: float, values: int
) -> None:
    mux = Multiplexer(Rules(SUM), dtype=dtype)
    assert set(mux.resolution) == {"y", "a", "b"}
    assert max(mux.resolution.values()) <= step
    x = mux(torch.randn(4000, 3).to(dtype)).best()
    assert all(len(column.unique()) >= values for column in x.T)


@pytest.mark.parametrize(
    ("dtype", "step"),
    [(torch.float32, Fraction(1, 2**12)), (torch.bfloat16, Fraction(1, 16))],
)
def test_around_zero_half_of_the_digits_are_resolution(
    dtype: torch.dtype, step: Fraction
) -> None:
    assert set(Multiplexer(Rules("y == a + b"), dtype=dtype).resolution.values()) == {
        step
    }


@dtypes
@pytest.mark.parametrize(
    "text", [SUM, "2*x == 3*y; 0 <= x <= 10", "x + 4*y == 8.5; 1 <= y <= 2"]
)
def test_values_lie_apart_by_the_resolution(text: str, dtype: torch.dtype) -> None:
    mux = Multiplexer(Rules(text), dtype=dtype)
    x = mux(torch.randn(500, mux.in_features).to(dtype)).best()
    for j, output in enumerate(mux.compiled.outputs):
        step, column = (
            mux.resolution[output.name],
            [Fraction(v) for v in x[:, j].double().unique().tolist()],
        )
        assert all(((v - column[0]) / step).denominator == 1 for v in column)


def test_only_outputs_in_equalities_have_a_step() -> None:
    assert Multiplexer(Rules("x >= 2; y == 3")).resolution == {}
    assert "step" not in repr(Multiplexer(Rules("x >= 2; y == 3")))
    mux = Multiplexer(
        Rules("x: real; y: real; z: real; x + y == 1; 0 <= x <= 1; z >= 0"),
        dtype=torch.float16,
    )
    assert mux.resolution == {"x": Fraction(1, 2048), "y": Fraction(1, 2048)}
    assert "coarsest_step=0.000488" in repr(mux)
    assert set(mux.to(torch.bfloat16).resolution.values()) == {Fraction(1, 256)}


def test_of_several_terms_the_coarsest_step_is_told() -> None:
    mux = Multiplexer(
        Rules(
            "x + y == 1 and 0 <= x <= 1 or x + y == 1000 and 0 <= x <= 1000 or x == y + 5 and y == 2"
        )
    )
    assert set(mux.resolution.values()) == {Fraction(1000, 1000) / 2**14}


def test_explain_tells_the_step(tmp_path: Path) -> None:
    file = tmp_path / "sum.rules"
    file.write_text(f"{SUM}\nx >= 0\n", encoding="utf-8")
    said = CliRunner().invoke(app, ["explain", str(file)])
    assert "steps in float32" in said.output
    assert "y, a, b: 0.000488" in said.output
    told = json.loads(CliRunner().invoke(app, ["explain", str(file), "--json"]).stdout)
    assert [term["steps"] for block in told["blocks"] for term in block["terms"]] == [
        dict.fromkeys("yab", "0.00048828125"),
        {},
    ]


# --- densities ------------------------------------------------------------------------------------------------------


def outside_two(dtype: torch.dtype, scale: float = 5.0) -> RulesDistribution:
    kind = dtype if dtype is torch.float64 else torch.float32
    return RulesDistribution(
        Multiplexer(Rules("x >= 2 or x <= -2"), dtype=dtype),
        Normal(torch.zeros(1, dtype=kind), scale),
    )


def cells(dtype: torch.dtype, low: float, high: float) -> tuple[Tensor, Tensor]:
    """All floats of a short dtype from ``low`` to ``high``, and how much of [low, high] is rounded to each."""
    bits = torch.arange(1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    x = bits[(bits >= low) & (bits <= high)]
    ends = torch.cat(
        [
            torch.tensor([low]),
            (x.double()[1:] + x.double()[:-1]) / 2,
            torch.tensor([high]),
        ]
    )
    return x, ends.diff()


@pytest.mark.parametrize(
    ("dtype", "within"),
    [(torch.float32, 0.05), (torch.bfloat16, 0.4), (torch.float16, 0.2)],
)
@pytest.mark.parametrize(
    "rules",
    ["x >= 2 or x <= -2", "u: input; x: real; x >= u", "-1 < x < 1 or 3 <= x <= 4"],
)
def test_own_samples_are_as_likely_in_every_dtype(
    rules: str, dtype: torch.dtype, within: float
) -> None:
    found = []
    for kind in (torch.float64, dtype):
        mux = Multiplexer(Rules(rules), dtype=kind)
        inputs = {"u": torch.tensor(2.0, dtype=kind)} if mux.compiled.inputs else {}
        p = RulesDistribution(mux, Normal(torch.zeros(1), 5.0), inputs=inputs)
        found.append(float(p.log_prob(p.sample((20_000,))).double().mean()))
    assert found[1] == pytest.approx(
        found[0], abs=within + 0.06
    )  # the deviation of two samples


@dtypes
@pytest.mark.parametrize(
    "rules",
    ["0 <= x; x <= y; y <= 1", "w: real[3]; sum(w) == 1; all(v >= 0 for v in w)", "u: input[0, 9]; x: real; y: real; "
     "x >= u; y >= x; y <= 20"],
)  # fmt: skip
def test_samples_of_polyhedra_are_as_likely_in_every_dtype(
    rules: str, dtype: torch.dtype
) -> None:
    """Of terms: the points of a cascade have probabilities, which depend on the grid."""
    found = []
    for kind in (torch.float64, dtype):
        mux = Multiplexer(Rules(rules), structure="terms", dtype=kind)
        inputs = {"u": torch.tensor(2.0, dtype=kind)} if mux.compiled.inputs else {}
        p = RulesDistribution(
            mux, Normal(torch.zeros(mux.out_features), 1.0), inputs=inputs
        )
        found.append(float(p.log_prob(p.sample((20_000,))).double().mean()))
    assert found[1] == pytest.approx(found[0], abs=0.15)


@pytest.mark.parametrize(("scale", "within"), [(1.0, 0.005), (2.0, 0.02), (5.0, 0.1)])
@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_densities_of_all_floats_add_up_to_one(
    dtype: torch.dtype, scale: float, within: float
) -> None:
    x, width = cells(dtype, 2.0, 200.0)
    total = 2 * float(
        (
            outside_two(dtype, scale).log_prob(x.unsqueeze(-1)).double().exp() * width
        ).sum()
    )
    assert total == pytest.approx(1, abs=within)


def test_the_density_in_float64_still_integrates_to_one() -> None:
    """Over log(x − 2), with x as close to 2 as float64 comes."""
    p = outside_two(torch.float64)
    step = 1e-3
    s = torch.arange(-34, 5, step, dtype=torch.float64)
    x = 2 + s.exp()
    total = 2 * float((p.log_prob(x.unsqueeze(-1)).exp() * s.exp()).sum()) * step
    assert total == pytest.approx(1, abs=1e-2)


def test_densities_away_from_the_boundary_are_those_of_float64() -> None:
    x = torch.tensor([[3.0], [2.5], [-10.0], [-2.25]])
    exact = outside_two(torch.float64).log_prob(x.double())
    for dtype in DTYPES[1:]:
        assert outside_two(dtype).log_prob(x.to(dtype)).double() == pytest.approx(
            exact, abs=1e-5
        )


def test_a_quarter_of_the_spacing() -> None:
    for dtype in DTYPES:
        form = FORMATS[str(dtype).removeprefix("torch.")]
        for value in (1.0, 1.5, 0.75, 100.0, -3.0, 2.0**-10):
            found = quarter_cell(torch.tensor(value, dtype=dtype), dtype)
            assert Fraction(found.item()) == form.spacing(Fraction(value)) / 4
        if (
            dtype is not torch.float64
        ):  # whose own quarters of subnormal numbers it cannot hold
            zero = torch.zeros(1, dtype=dtype)
            subnormal = power_of_two(form.least_exponent)
            assert Fraction(quarter_cell(zero, dtype).item()) == subnormal / 4


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
def test_zero_stands_for_what_underflows_to_it(dtype: torch.dtype) -> None:
    p = RulesDistribution(
        Multiplexer(Rules("x >= 0"), dtype=dtype), Normal(torch.zeros(1), 1.0)
    )
    at_zero, close = p.log_prob(torch.tensor([[0.0], [0.125]], dtype=dtype)).tolist()
    assert at_zero < close - 10  # raw values of −17 and below, and of −2


# --- entropy and support --------------------------------------------------------------------------------------------


@dtypes
def test_entropy_is_estimated_from_samples(dtype: torch.dtype) -> None:
    # x = 2 + g(z): the entropy of z, the mean of log σ(z), and one bit for the side.
    z = 5 * torch.randn(200_000, dtype=torch.float64)
    exact = (
        0.5 * log(2 * pi * 25)
        + 0.5
        + float(torch.nn.functional.logsigmoid(z).mean())
        + log(2)
    )
    assert float(outside_two(dtype).entropy()) == pytest.approx(
        exact, abs=0.35 if dtype is torch.bfloat16 else 0.2
    )
    assert float(outside_two(dtype).entropy(samples=50_000)) == pytest.approx(
        exact, abs=0.3 if dtype is torch.bfloat16 else 0.15
    )


def test_entropy_of_points_is_exact() -> None:
    base = Normal(torch.zeros(1), 1.0)
    logits = torch.tensor([0.5, 0.25, 0.25]).log()
    p = RulesDistribution(Multiplexer(Rules("x in {1, 2, 4}")), base, logits)
    assert float(p.entropy(samples=1)) == pytest.approx(1.5 * log(2), abs=1e-6)


def test_entropy_has_the_shape_of_the_batch_and_leaves_out_impossible_terms() -> None:
    mux = Multiplexer(Rules("u: input[0, 9]; x: int[0, 3]; x <= u"))
    p = RulesDistribution(
        mux, Normal(torch.zeros(1), 1.0), inputs={"u": torch.tensor([0.0, 1.0, 3.0])}
    )
    assert p.entropy().exp().tolist() == pytest.approx([1, 2, 4])


def test_blocks_add_their_entropies() -> None:
    mux = Multiplexer(Rules("x in {1, 2, 4, 8}; 0 <= y <= 4"), dtype=torch.float64)
    p = RulesDistribution(mux, Normal(torch.zeros(2, dtype=torch.float64), 1.0))
    alone = RulesDistribution(
        Multiplexer(Rules("0 <= y <= 4"), dtype=torch.float64),
        Normal(torch.zeros(1, dtype=torch.float64), 1.0),
    )
    assert float(p.entropy()) == pytest.approx(
        log(4) + float(alone.entropy()), abs=0.05
    )


def test_an_entropy_of_nothing_is_refused() -> None:
    with pytest.raises(
        ShapeError, match="an entropy from 0 samples; it needs 1 or more"
    ):
        outside_two(torch.float32).entropy(samples=0)


def test_the_support_says_what_it_is() -> None:
    assert (
        repr(outside_two(torch.float32).support)
        == "RulesConstraint(Rules(1 rules over x))"
    )
    mux = Multiplexer(Rules("u: input[0, 9]; x: real; x <= u"))
    p = RulesDistribution(mux, Normal(torch.zeros(1), 1.0), inputs={"u": 2.0})
    assert repr(p.support) == "RulesConstraint(Rules(1 rules over x), u=2.0)"
