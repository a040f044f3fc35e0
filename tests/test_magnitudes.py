"""Rules are exact and may hold any number; a layer computes in float64. What lies between is refused, and says so."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from multiplexnet import Multiplexer, MultiplexError, Rules, dl2_loss
from multiplexnet.errors import EqualityError, MagnitudeError, TermBudgetExceeded
from multiplexnet.geometry.magnitudes import down, up

BEYOND = ("1e400", "1" + "0" * 400, "1e-400", "1e-310")
"""Numbers that float64 does not hold, or not with all of its digits."""

SHAPES = {
    "coefficient": "x: real; y: real\nx + {n}*y <= 1",
    "constant": "x: real; y: real\nx + y <= {n}",
    "strip": "x: real; y: real\nx - y <= {n}\ny - x <= {n}",
    "negation": "x: real; y: real\nnot (x + {n}*y <= 1)",
    "distance": "x: real; y: real\nabs(x - {n}*y) <= 1",
    "vector": "x: real[3]\nx[0] + {n}*x[1] - x[2] <= 1",
    "equality": "x: real; y: real\nx + {n}*y == 1",
    "equality of three": "x: real; y: real; z: real\nx + y + {n}*z == 0\nx >= 0\ny >= 0",
    "bound beside an equality": "x: real; y: real\nx + y == 1\nx <= {n}",
    "factor of an input": "y: real; u: input\ny <= {n}*u",
    "beside an input": "y: real; u: input\ny <= u + {n}",
    "rows of an input": "x: real; y: real; u: input\nx + {n}*y <= u\nx >= u",
    "range of an input": "y: real; u: input[-{n}, {n}]\ny <= u",
    "guard": "y: real; u: input\nimplies(u > {n}, y > 1)",
    "guard of two inputs": "y: real; u: input; v: input\nimplies(u > {n}*v, y > 1)\nimplies(u <= {n}*v, y < 0)",
    "integer factor": "k: int[0, 3]; x: real\nx <= {n}*k",
    "category": 'c: {{"red", "green"}}; x: real; y: real\nimplies(c == "red", x + y >= {n})',
    "factor of a function": "x: real; y: real; f: function\ny >= {n}*f(x)",
    "beside a function": "x: real; y: real; f: function\ny >= f(x) + {n}",
    "argument of a function": "x: real; y: real; f: function\ny >= f({n}*x)",
    "factor of what follows a function": "x: real; y: real; z: real; f: function\ny + {n}*z >= f(x)",
}


def clamped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-3, 3)


RAW = (0.0, 1.0, -30.0, 1e4, -1e4, torch.inf, -torch.inf)


def rows_that_disobey(rules: Rules, dtype: torch.dtype) -> int:
    """How many rows of a layer break the rules or are lost, for inputs of all sizes; own refusals are no such rows."""
    functions = {"f": clamped} if rules.specification.functions else {}
    try:
        mux = Multiplexer(rules, dtype=dtype, functions=functions)
    except MultiplexError:
        return 0
    raw = torch.tensor(RAW, dtype=dtype)[
        torch.arange(49 * mux.in_features) * 3 % 7
    ].view(-1, mux.in_features)
    info, wrong = torch.finfo(dtype), 0
    for size in (1.0, -info.tiny, info.max, -info.max) if rules.inputs else (0.0,):
        inputs = {
            v.name: torch.full((len(raw),), size, dtype=dtype) for v in rules.inputs
        }
        try:
            x = mux(raw, **inputs).best()
        except MultiplexError:  # no room for this input
            continue
        wrong += int((~rules.satisfied(x, functions=functions, **inputs)).sum())
    return wrong


@pytest.mark.parametrize("number", BEYOND, ids=["huge", "digits", "tiny", "subnormal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_any_number_is_obeyed_exactly_or_refused(shape: str, number: str) -> None:
    rules = Rules(SHAPES[shape].format(n=number))
    assert [
        rows_that_disobey(rules, dtype) for dtype in (torch.float64, torch.float16)
    ] == [0, 0]


@pytest.mark.parametrize(
    "shape", ["coefficient", "equality", "factor of an input", "guard of two inputs"]
)
def test_the_refusal_names_the_number_and_the_row(shape: str) -> None:
    rules = Rules(SHAPES[shape].format(n="1e400"))
    with pytest.raises(
        MagnitudeError,
        match=r"the number -?1.00e\+400.*between 1e-301 and 1e301.*units(.|\n)*1e400",
    ):
        Multiplexer(rules)


def test_where_float64_is_not_needed_any_number_will_do() -> None:
    mux = Multiplexer(
        Rules(
            "x: real; u: input[0, 1e400]\n-1e400 < x < 1e400\nimplies(u > 1e400, x > 1)"
        )
    )
    assert (
        mux(torch.zeros(7, mux.in_features), u=torch.full((7,), 1e38))
        .best()
        .isfinite()
        .all()
    )


def test_a_loss_refuses_what_it_cannot_compute() -> None:
    with pytest.raises(MagnitudeError, match=r"1.00e\+400"):
        dl2_loss(Rules("x + 1e400*y <= 1"), torch.zeros(2))


def test_an_equality_of_too_many_digits_is_told_so() -> None:
    row = "1.3*x[0] + 0.21672043448261965*x[1]"
    rules = Rules(f"x: real[2]\n{row} <= 1.5\n{row} >= 1.5\nx[0] <= 0.5")
    with pytest.raises(EqualityError, match=r"2\.6e\+16.*fewer digits"):
        Multiplexer(rules, dtype=torch.float64)
    fewer = "1.3*x[0] + 0.2167*x[1]"
    assert Multiplexer(Rules(f"x: real[2]\n{fewer} == 1.5\nx[0] <= 0.5"))


# --- whole numbers --------------------------------------------------------------------------------------------------


def test_a_whole_number_that_the_format_does_not_hold_is_refused() -> None:
    rules = Rules("k: int[0, 5000]\nk == 2049")  # float16 has 2048 and 2050
    with pytest.raises(
        EqualityError,
        match=r"float16 does not hold this number exactly(.|\n)*k == 2049",
    ):
        Multiplexer(rules, dtype=torch.float16)
    assert Multiplexer(rules, dtype=torch.float32)(torch.zeros(1)).best() == 2049


@pytest.mark.parametrize("last", [10**10, 10**400])
def test_a_wide_range_of_integers_is_not_written_out(last: int) -> None:
    with pytest.raises(TermBudgetExceeded):
        Rules(f"k: int[0, {last}]\nk >= 1").compile(max_terms=5)


def test_integers_are_in_their_range_whatever_its_ends() -> None:
    beyond = Rules(f"k: int[{10**400}, {10**400 + 1}]")
    odd = Rules(f"k: int[{2**53 + 1}, {2**53 + 5}]")  # its first number is not float64
    x = np.array([[2.0**53], [2.0**53 + 2], [1.7e308]])
    assert beyond.satisfied(x).tolist() == [False, False, False]
    assert odd.satisfied(x).tolist() == [False, True, False]


def test_ends_are_rounded_to_the_inside() -> None:
    tenth = Fraction(1, 10)
    assert down(tenth) < tenth < up(tenth)
    assert [down(Fraction(10) ** 400), up(-(Fraction(10) ** 400))] == [
        1.7976931348623157e308,
        -1.7976931348623157e308,
    ]
    assert [up(Fraction(10) ** 400), down(-(Fraction(10) ** 400))] == [np.inf, -np.inf]
