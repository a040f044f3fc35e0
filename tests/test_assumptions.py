"""``assume``: what is known of inputs, read, used in every proof, and checked in every row."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

import multiplexnet as mx
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import specification_text
from multiplexnet.transforms.run_time.balls import Ball, number, total

BAND = "low: input; high: input; v: real\nassume low <= high\nlow <= v <= high"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def test_a_band_between_two_inputs_is_a_layer_and_without_the_assumption_the_message_says_what_to_write() -> (
    None
):
    with pytest.raises(mx.InputError, match=r"no output obeys.*`assume low <= high`"):
        mx.Multiplexer(mx.Rules(BAND.replace("assume low <= high\n", "")))
    rules = mx.Rules(BAND)
    for dtype in DTYPES:
        mux = mx.Multiplexer(rules, dtype=dtype)
        ends = torch.randn(2000, 2).to(dtype).sort(-1).values
        ends[:50, 1] = ends[:50, 0]  # a point
        raw = (30 * torch.randn(2000, mux.in_features)).to(dtype)
        x = mux(raw, low=ends[:, 0], high=ends[:, 1]).best()
        assert rules.satisfied(x, low=ends[:, 0], high=ends[:, 1]).all()


def test_a_broken_assumption_is_an_error_that_names_row_and_assumption() -> None:
    mux = mx.Multiplexer(mx.Rules(BAND))
    low, high = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.5, 1.0, 2.0])
    assert mux(torch.zeros(3, mux.in_features), low=low, high=high).best().shape == (
        3,
        1,
    )
    beyond = torch.nextafter(low, torch.tensor(9.0))
    for call in (
        lambda: mux(torch.zeros(3, mux.in_features), low=beyond, high=high),
        lambda: mux.repair(torch.zeros(3, 1), low=beyond, high=high),
    ):
        with pytest.raises(
            mx.InputError, match=r"assumption `low <= high` .* in rows 1, 2"
        ):
            call()


def test_a_long_assumption_is_told_in_one_line() -> None:
    whole = " and ".join(f"low <= {n}" for n in range(5, 500))
    mux = mx.Multiplexer(f"low: input[0, 1000]\nx: real\nassume {whole}\nx >= low")
    with pytest.raises(
        mx.InputError, match=r"assumption `low <= 5 and .*…` does not hold in row 0"
    ) as told:
        mux(torch.zeros(1, mux.in_features), low=torch.tensor([6.0]))
    assert len(str(told.value)) < 300


def test_numbers_are_judged_as_they_were_given() -> None:
    """0.3 and the number just above it are one float32: only exact numbers tell them apart."""
    mux = mx.Multiplexer(
        mx.Rules("a: input; b: input; x: real\nassume a <= b\nx <= a\nx <= b")
    )
    raw = torch.zeros(1, mux.in_features)
    third, more = Fraction(3, 10), Fraction(3, 10) + Fraction(1, 10**20)
    assert mux.rules.satisfied(mux(raw, a=third, b=more).best(), a=third, b=more).all()
    with pytest.raises(mx.InputError, match="assumption `a <= b`"):
        mux(raw, a=more, b=third)


def test_proofs_use_assumptions() -> None:
    rules = mx.Rules(
        "a: input; b: input; x: real\nassume a <= b\nx <= a\nx <= b\nx >= 0 or a < 0"
    )
    compiled = rules.compile()
    assert compiled.proof.sound
    assert compiled.proof.complete
    rows = {str(row) for term in compiled.blocks[0].terms for row in term.rows}
    assert len(rows) == 3  # x <= b follows
    explanation = rules.explain()
    assert [rule.text for rule in explanation.implied] == ["x <= b"]
    assert "assume a <= b" in str(explanation)


def test_assumptions_that_contradict_each_other_or_the_rules_are_named() -> None:
    with pytest.raises(
        mx.ContradictionError, match="line 2: assume u >= 3\n    line 3: u <= 2"
    ):
        mx.Rules("u: input; x: real\nassume u >= 3\nu <= 2\nx <= u").compile()
    explanation = mx.Rules(
        "u: input; x: real\nassume u >= 3 and u <= 2\nx <= u"
    ).explain()
    assert explanation.contradiction[0].text == "assume u >= 3 and u <= 2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "u: input; x: real\nassume x <= u\nx <= 2",
            "line 2, column 8: `x` is an output",
        ),
        ("assume x <= 2; x >= 0", "`x` is an output.*declare `x: input`"),
        (
            "u: input; f: function; x: real\nassume f(u) <= 2\nx <= u",
            "`f` is a function",
        ),
        ("u: input; x: real\nassume\nx <= u", "`assume` stands before"),
        ("u: input; x: real\nassume u = 2\nx <= u", "line 2, column 8: `=` assigns"),
        ("assume: real; assume <= 2", "`assume` is a word of the language"),
        (
            "u: input; x: real\nassume (u\n  >= q)\nx <= u",
            "line 3, column 6: unknown name `q`",
        ),
    ],
)
def test_what_is_no_assumption_is_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(mx.RuleSyntaxError, match=message):
        mx.Rules(text)


def test_text_state_and_memory_keep_assumptions() -> None:
    rules = mx.Rules(BAND)
    assert rules.specification.assumptions[0].text == "low <= high"
    again = parse(specification_text(rules.specification))
    assert again.assumed == rules.specification.assumed
    loaded = mx.Multiplexer.from_state(mx.Multiplexer(rules).state_dict())
    with pytest.raises(mx.InputError, match="assumption"):
        loaded(
            torch.zeros(1, loaded.in_features), low=torch.ones(1), high=torch.zeros(1)
        )


def test_a_certificate_holds_for_inputs_that_keep_the_assumptions() -> None:
    rules = mx.Rules(BAND)
    report = mx.certify(mx.Multiplexer(rules).certificate, rules)
    assert report.certified
    assert "for inputs that keep, as the layer checks in every row, low <= high" in str(
        report
    )
    dropped = mx.Rules("a: input; b: input; x: real\nassume a <= b\nx <= a\nx <= b")
    certificate = mx.Multiplexer(dropped).certificate
    assert mx.certify(certificate).certified
    without = mx.Rules("a: input; b: input; x: real\nx <= a\nx <= b")
    assert not mx.certify(certificate, without).certified


def test_a_table_that_breaks_an_assumption_breaks_no_rule() -> None:
    table = {"low": [0, 3, 0, None], "high": [1, 2, 1, 2], "v": [0.5, 2.5, 5.0, 1.0]}
    report = mx.check(mx.Rules(BAND), table)
    assert report.counts == {"low <= v <= high": 1}
    assert report.assumptions[0].violations == 1
    assert report.assumptions[0].first_row == 2
    assert report.obeys is not None
    assert report.obeys.tolist() == [True, False, False, False]
    assert report.shown[0].breaks == ("assume low <= high",)
    assert "rows that break it" in str(report)
    assert (
        '"assumptions": [{"line": 2, "text": "low <= high", "violating_rows": 1'
        in report.to_json()
    )


def test_in_a_graph_the_row_is_nan_and_equal_ends_are_decided() -> None:
    mux = mx.Multiplexer(
        mx.Rules(BAND + "\nassume 3*low - high <= 100"), dtype=torch.float64
    )

    class Best(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mux = mux

        def forward(
            self, raw: torch.Tensor, low: torch.Tensor, high: torch.Tensor
        ) -> torch.Tensor:
            x: torch.Tensor = self.mux(raw, low=low, high=high).best()
            return x

    low = torch.tensor([0.1, 0.1, 0.3, 60.0], dtype=torch.float64)
    high = torch.tensor([0.1, 0.2, 0.1, 61.0], dtype=torch.float64)
    raw = torch.zeros(4, mux.in_features, dtype=torch.float64)
    program = torch.export.export(Best(), (raw, low, high)).module()
    x = program(raw, low, high)
    assert x.isnan().any(-1).tolist() == [False, False, True, True]
    assert mux.rules.allowed(low=low, high=high).tolist() == [True, True, False, False]


def test_balls_contain_the_exact_value_and_are_points_where_nothing_is_rounded() -> (
    None
):
    generator = np.random.default_rng(0)
    sizes = 2.0 ** generator.integers(-530, 500, (3, 400))
    a, b, c = torch.tensor(
        generator.standard_normal((3, 400)) * sizes, dtype=torch.float64
    )
    zero = torch.zeros_like(a)
    found = total(
        [Ball(a, zero) * Ball(b, zero), Ball(c, zero) * number(Fraction(1, 3), c)], c
    )
    for i in range(400):
        exact = (
            Fraction(a[i].item()) * Fraction(b[i].item()) + Fraction(c[i].item()) / 3
        )
        if found.radius[i].isfinite():
            assert abs(exact - Fraction(found.middle[i].item())) <= Fraction(
                found.radius[i].item()
            )
    whole = torch.arange(1.0, 400.0, dtype=torch.float64)
    point = Ball(whole, torch.zeros_like(whole)) * Ball(whole, torch.zeros_like(whole))
    assert not point.radius.any()
