"""What a layer with cascades refuses, how it says so, and that what it advises works."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch

import multiplexnet as mx
from multiplexnet.compiler.cascade.build import Budget
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CascadeError,
    DtypeError,
    GridError,
    InputError,
    OptionError,
    RunTimeEqualityError,
    ShapeError,
)

LOTS = "all(v == 0 or 10 <= v <= 100 for v in x)"
PARTLY_REACHED = (
    "n: int[0, 99]; k: int[0, 99]; m: int[0, 99]; "
    "3*n + 2*k + 3 <= 4*m; 4*m <= 3*n + 3*k + 3; n + k + m"
)


# --- inputs on the grid ---------------------------------------------------------------------------------------------


def test_inputs_are_rounded_into_their_range() -> None:
    rules = mx.Rules(
        "u: input[0.1, 6]; x: real; y: real; -3<=x<=3; 0<=y<=3; x + y == u"
    )
    mux = mx.Multiplexer(rules, dtype=torch.bfloat16)
    given: dict[str, Any]
    for value in (
        torch.tensor([0.1016], dtype=torch.bfloat16),
        0.1,
        [0.1, 6],
        Fraction(1, 3),
    ):
        given = mux.on_grid(u=value)
        rows = given["u"].numel()
        x = mux(torch.randn(rows, mux.in_features).bfloat16(), **given).best()
        assert given["u"].dtype == torch.bfloat16
        assert rules.satisfied(x, **given).all()
    with pytest.raises(InputError, match="outside its declared range"):
        mux.on_grid(u=torch.tensor([0.05], dtype=torch.bfloat16))


def test_inputs_that_need_no_grid_become_tensors_that_the_layer_takes() -> None:
    rules = mx.Rules(
        f"d: input[10, 150]; x: real[4]; n: int[0, 5]; {LOTS}; sum(x) == d; n <= x[0]"
    )
    mux = mx.Multiplexer(rules, dtype=torch.float32)
    raw = torch.randn(1, mux.in_features)
    given: dict[str, Any]
    for value in (20.3, torch.tensor(20.3, dtype=torch.float64), Fraction(61, 3)):
        given = mux.on_grid(d=value)
        assert given["d"].dtype == torch.float32
        assert rules.satisfied(mux(raw, **given).best(), **given).all()
    plain = mx.Multiplexer(mx.Rules("u: input[0, 1]; x: real; x <= u"))
    assert Fraction(plain.on_grid(u=0.1)["u"].item()) < Fraction(
        0.1
    )  # the side on which it is safe


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str
)
def test_inputs_of_equalities_behind_or_are_rounded_for_every_alternative(
    dtype: torch.dtype,
) -> None:
    rules = mx.Rules(
        "u: input[-3, 6]; v: input[-3, 6]; x: real; y: real; -3 <= x <= 3; -3 <= y <= 3; x + y == u or x - y == v"
    )
    mux = mx.Multiplexer(rules, dtype=dtype, structure="cascade")
    off = 3 * 2.0**-10 if dtype in (torch.bfloat16, torch.float16) else 2.0**-60
    inputs: dict[str, Any] = {"u": torch.full((1,), off, dtype=dtype)}
    inputs["v"] = inputs["u"]
    with pytest.raises(InputError, match=r"between the points .* mux\.on_grid"):
        mux(torch.zeros(1, mux.in_features, dtype=dtype), **inputs)
    assert mux.on_grid(**inputs)["v"] % float(mux.resolution["x"]) == 0
    inputs = {"u": 9 * torch.rand(300).double() - 3, "v": 6 * torch.rand(300).double()}
    given: dict[str, Any] = mux.on_grid(**inputs)
    assert (given["u"].double() - inputs["u"]).abs().max() <= 0.05
    x = mux(3 * torch.randn(300, mux.in_features).to(dtype), **given).sample()
    assert rules.satisfied(x, **given).all()
    first = mx.Rules("u: input; x: real; y: real; x + y == u")
    taken = first.satisfied(x, u=given["u"])
    assert taken.any()
    assert not taken.all()


def test_what_is_no_input_is_refused() -> None:
    mux = mx.Multiplexer(
        mx.Rules(f"d: input[10, 150]; x: real[4]; {LOTS}; sum(x) == d")
    )
    with pytest.raises(
        InputError, match=r"'e' is not an input of the rules.*they declare: d"
    ):
        mux.on_grid(e=1)
    for value in ("a", None):
        with pytest.raises(InputError, match="it must be a number"):
            mux.on_grid(d=value)


# --- rows without an output ------------------------------------------------------------------------------------------


def test_a_cascade_that_reaches_a_part_does_not_say_that_no_output_obeys() -> None:
    """0, 2, 2 obeys for u = 4 and is lost to a dark shadow; the advice leads to it."""
    rules = mx.Rules(f"u: input[4, 9]; {PARTLY_REACHED} <= u")
    mux = mx.Multiplexer(rules, structure="cascade")
    assert not mux.complete
    assert rules.satisfied(torch.tensor([[0.0, 2.0, 2.0]]), u=4.0).all()
    with pytest.raises(InputError, match="none of the points that this layer") as told:
        mux(torch.zeros(1, mux.in_features), u=4.0)
    assert "reaches only a part" in str(told.value)
    assert "no output" not in str(told.value)
    assert "order=[…]" in str(told.value)
    assert 'structure="terms"' in str(told.value)
    terms = mx.Multiplexer(rules, structure="terms")
    assert rules.satisfied(
        terms(torch.zeros(1, terms.in_features), u=4.0).best(), u=4.0
    ).all()


def test_terms_are_advised_only_where_they_serve() -> None:
    mux = mx.Multiplexer(mx.Rules(f"u: input[0, 9]; {PARTLY_REACHED} == u"))
    assert not mux.complete
    with pytest.raises(InputError, match="reaches only a part") as told:
        mux(torch.zeros(1, mux.in_features), u=4.0)
    assert "order=[…]" in str(told.value)
    assert "structure" not in str(told.value)


def test_a_cascade_that_reaches_all_of_its_grid_says_that_none_of_it_obeys() -> None:
    rules = mx.Rules(f"u: input[0, 900]; x: real[10]; {LOTS}; sum(x) == u")
    mux = mx.Multiplexer(rules)
    assert mux.complete
    with pytest.raises(InputError, match=r"no output on the grid obeys.*: row 1\."):
        mux(torch.zeros(2, mux.in_features), u=torch.tensor([12.0, 5.0]))


def test_rules_of_which_a_cascade_reaches_nothing_are_not_said_to_have_no_point() -> (
    None
):
    rules = mx.Rules(f"{PARTLY_REACHED} <= 4")
    with pytest.raises(GridError, match="none of the points that a cascade reaches"):
        mx.Multiplexer(rules, structure="cascade")
    mux = mx.Multiplexer(rules)  # what the message advises
    assert rules.satisfied(mux(torch.zeros(1, mux.in_features)).best()).all()


# --- terms and a cascade in one layer -------------------------------------------------------------------------------


def test_where_terms_and_a_cascade_meet_the_advice_for_log_prob_works() -> None:
    rules = mx.Rules(
        f"a: real; b: real; 0 <= a <= 1; 0 <= b <= 1 - a; d: input[10, 150]; x: real[4]; {LOTS}; sum(x) == d"
    )
    mux = mx.Multiplexer(rules)
    branches = mux(torch.randn(3, mux.in_features), d=20.0)
    x = branches.best()
    with pytest.raises(
        CascadeError, match=r'RulesDistribution.*structure="cascade"'
    ) as told:
        branches.log_prob(x)
    assert "-branches.log_prob" not in str(told.value)
    assert "insists on terms" not in str(told.value)
    base = torch.distributions.Normal(torch.zeros(6), 1.0)
    assert (
        mx.RulesDistribution(mux, base, inputs={"d": 20.0}).log_prob(x).isfinite().all()
    )
    whole = mx.Multiplexer(rules, structure="cascade")
    branches = whole(torch.randn(3, whole.in_features), d=20.0)
    assert branches.log_prob(branches.best()).isfinite().all()


# --- arguments ------------------------------------------------------------------------------------------------------


def test_values_of_another_shape_have_no_probability() -> None:
    mux = mx.Multiplexer(
        mx.Rules(f"x: real[4]; {LOTS}; sum(x) <= 150"), structure="cascade"
    )
    branches = mux(torch.randn(4, mux.in_features))
    for shape in ((4, 5), (3, 4), ()):
        with pytest.raises(ShapeError, match=r"4 outputs for every row: \(4, 4\)"):
            branches.log_prob(torch.zeros(shape))
    assert branches.log_prob(torch.zeros(2, 1, 4)).shape == (2, 4)
    with pytest.raises(DtypeError, match="x is of type list"):
        branches.log_prob([0.0] * 4)


def test_a_head_that_says_nothing_is_named() -> None:
    mux = mx.Multiplexer(
        mx.Rules(f"x: real[4]; {LOTS}; sum(x) <= 150"), structure="cascade"
    )
    with pytest.raises(
        DtypeError, match=r"of type NoneType of x\[\d\].* shape \(3, 3\)"
    ):
        mux.unroll(lambda j, h, left: None, torch.randn(3, 2))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"structure": "casc"},
            r"structure = 'casc'; it is \"auto\", \"terms\" or \"cascade\"",
        ),
        ({"values": "x"}, r"values = 'x'; it is \"share\" or \"clamp\""),
        ({"equality": "x"}, "equality = 'x'"),
        ({"seconds": 0}, "seconds = 0; it is a positive number"),
        ({"budget": -1}, r"budget = -1; it is a Budget, as in Budget\(clauses=5000\)"),
        ({"budget": "a"}, "budget = 'a'"),
        ({"order": "x[1]"}, r"a list of names of outputs, as in order=\['x\[1\]'\]"),
    ],
)
def test_unknown_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as told:
        mx.Multiplexer(mx.Rules(f"x: real[2]; {LOTS}"), **options)
    assert isinstance(told.value, mx.MultiplexError)
    assert isinstance(told.value, ValueError)


def test_budgets_are_positive_whole_numbers() -> None:
    for most in (-1, 0, "a", 2.5):
        with pytest.raises(
            OptionError, match=r"Budget: clauses = .* a positive whole number"
        ):
            Budget(clauses=most)  # type: ignore[arg-type]


def test_an_order_names_every_output_once() -> None:
    rules = mx.Rules(f"x: real[2]; {LOTS}")
    with pytest.raises(InputError, match=r"order: it names x\[1\] twice"):
        mx.Multiplexer(rules, order=["x[1]", "x[1]"])
    with pytest.raises(InputError, match="order: 3 is not an output"):
        mx.Multiplexer(rules, order=[3])  # type: ignore[list-item]


def test_terms_that_refuse_an_equality_with_inputs_quote_the_rule_and_name_the_way_out() -> (
    None
):
    rules = mx.Rules(f"d: input[10, 150]; x: real[4]; {LOTS}\nsum(x) == d")
    with pytest.raises(
        RunTimeEqualityError,
        match=r'leave out structure="terms"(.|\n)*line 2: sum\(x\) == d',
    ) as told:
        mx.Multiplexer(rules, structure="terms")
    assert "x[2] + x[3]" not in str(told.value)


def test_conditional_numbers_that_make_a_sum_explode_are_named_and_the_advice_works() -> (
    None
):
    head = "u: input[0, 5]; x: real[4]; all(0 <= v <= 100 for v in x); "
    inside = mx.Rules(head + "sum((v if v >= 1 else 5) for v in x) <= 150 + u")
    with pytest.raises(CascadeBudgetExceeded, match="`v if c else 5`") as told:
        mx.Multiplexer(inside, structure="cascade")
    advised = str(told.value).partition("as in `w")[2].partition("`")[0]
    rules = mx.Rules(f"{head}w{advised}; sum(w) <= 150 + u")
    mux = mx.Multiplexer(rules, structure="cascade")
    x = mux(torch.randn(50, mux.in_features), u=1.0).best()
    assert rules.satisfied(x, u=1.0).all()
    assert inside.satisfied(x[:, :4], u=1.0).all()


ADDED_LOTS = f"d: input[10, 200]; x: real[4]; {LOTS}; sum(x) == d"


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("max_terms", "a", "a number of terms, at least 1"),
        ("max_terms", 0, "a number of terms, at least 1"),
        ("max_terms", 2.5, "a number of terms, at least 1"),
        ("boxes", 5, "a map of intervals"),
        ("functions", 5, "a mapping from the functions of the rules"),
        ("progress", 5, "a function of two arguments"),
        ("order", 5, r"a list of names of outputs, as in order=\['x\[0\]'\]"),
    ],
)
def test_an_option_of_another_kind_is_refused_before_anything_is_built(
    option: str, given: Any, told: str
) -> None:
    with pytest.raises(OptionError, match=f"{option} = {given!r}; it is {told}"):
        mx.Multiplexer(mx.Rules(ADDED_LOTS), **{option: given})


def test_the_name_of_a_vector_stands_for_its_elements_in_an_order() -> None:
    rules = mx.Rules(f"{ADDED_LOTS}; y: real; 0 <= y <= x[0]")
    mux = mx.Multiplexer(rules, structure="cascade", order=["y", "x"])
    named = mx.Multiplexer(
        rules, structure="cascade", order=["y", "x[0]", "x[1]", "x[2]", "x[3]"]
    )
    assert repr(mux) == repr(named)
    with pytest.raises(InputError, match=r"order: it names x\[1\] twice"):
        mx.Multiplexer(rules, order=["x[1]", "x"])


def test_unrolling_refuses_a_head_that_is_no_function_and_outputs_for_other_rows() -> (
    None
):
    mux = mx.Multiplexer(mx.Rules(ADDED_LOTS))
    head: Any = 5
    with pytest.raises(OptionError, match="head = 5; it is a function of"):
        mux.unroll(head, torch.zeros(3, 2), d=50)

    def zeros(j: int, h: torch.Tensor, left: Any) -> torch.Tensor:
        return torch.zeros(3, 1 + mux.options[j])

    for shape in ((2, 4), (3, 5), (2, 3, 4), ()):
        with pytest.raises(ShapeError, match=r"x has shape .*; .* \(3, 4\)"):
            mux.unroll(zeros, torch.zeros(3, 2), torch.zeros(shape), d=50)


@pytest.mark.parametrize("d", [0.5, 201, Fraction(1, 3), torch.tensor([50.0, 9.0])])
def test_inputs_outside_their_range_are_not_rounded(d: Any) -> None:
    mux = mx.Multiplexer(mx.Rules(ADDED_LOTS))
    with pytest.raises(
        InputError, match=r"d is outside its declared range \[10, 200\]"
    ):
        mux.on_grid(d=d)


def test_inputs_beyond_every_float_are_not_rounded() -> None:
    mux = mx.Multiplexer(mx.Rules(ADDED_LOTS))
    with pytest.raises(
        InputError, match=r"d is 1E\+400, and the largest number of float32"
    ):
        mux.on_grid(d=10**400)


def test_an_equality_with_a_share_of_an_input_names_a_way_that_works() -> None:
    outputs = "x: real[2]; all(0 <= v <= 20 for v in x)"
    with pytest.raises(GridError, match=r"0\.3 times a float is none") as told:
        mx.Multiplexer(
            mx.Rules(f"a: input[0.1, 10]; {outputs}; x[0] + x[1] == 0.3*a"),
            structure="cascade",
        )
    assert "leave out" not in str(told.value)
    rules = mx.Rules(f"share: input[0.03, 3]; {outputs}; x[0] + x[1] == share")
    mux = mx.Multiplexer(rules)
    given = mux.on_grid(share=0.3 * 7)
    assert rules.satisfied(mux(torch.randn(1, 2), **given).best(), **given).all()
