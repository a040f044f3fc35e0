"""The playground on every kind of rules: cascades, units, missing values, assumptions, products, quoted names."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import multiplexnet as mx
from multiplexnet.language.formula import Atom, Linear, conjunction
from multiplexnet.playground.questions import ANSWERS
from multiplexnet.playground.worker import answered
from multiplexnet.smt.questions import satisfiable

KINDS = {
    "lots": "demand: input[10, 300]; x: real[9]\nall(v == 0 or 10 <= v <= 100 for v in x)\nsum(x) == demand",
    "at most 3": "x: real[12]\nall(0 <= v <= 1 for v in x)\ncount(v > 0 for v in x) <= 3",
    "dates": 'start: date["2024-01-01", "2024-12-31"]; end: date["2024-01-01", "2025-12-31"]\n0 <= end - start <= 30',
    "times": 't: datetime["2024-01-01 00:00", "2024-01-02 00:00"]; n: int[0, 9]\n'
    't >= datetime("2024-01-01 12:30"); n >= 3',
    "decimals": "net: decimal(2)[0, 900]; tax: decimal(2)[0, 100]\nnet + tax == 99.99",
    "few steps": "x: real[0, 10] step 0.5; y: real\n0 <= y <= x",
    "units of inputs": 'budget: input decimal(2)[1, 99]; first: input date["2024-01-01", "2024-12-31"]\n'
    'spend: decimal(2)[0, 99]; day: date["2024-01-01", "2025-12-31"]\nspend <= budget; 0 <= day - first <= 9',
    "missing": "low: real?; high: real?\n0 <= low <= high; high <= 100; iff(low is missing, high is missing)",
    "missing in a cascade": "a: real?; c: real[9]\nall(v == 0 or 10 <= v <= 99 for v in c)\n"
    "sum(c) + a <= 500; 0 <= a <= 300",
    "assumptions": "low: input[0, 10]; high: input[0, 10]; v: real\nassume low + 3 <= high\nlow <= v <= high",
    "products": "price: input[0, 100][3]; budget: input[0, 1000]; x: real[3]\n"
    "all(v == 0 or 10 <= v <= 100 for v in x); sum(price[j]*x[j] for j in range(3)) <= budget",
    "quoted names": '"Loan Amount": real; "class": {"a", "b"}; "my limit": input[1, 9]\n'
    'implies("class" == "a", "Loan Amount" <= "my limit"); 0 <= `Loan Amount` <= 10',
    "wide": "n: int[0, 1000000]; w: real\n10*n <= w <= 12*n",
    "many labels": 'c: {LABELS}; v: real\n0 <= v <= 9; implies(c == "l7", v >= 5)'.replace(
        "LABELS", ", ".join(f'"l{i}"' for i in range(300))
    ),
    "both": "n: int[0, 9]; w: int[0, 100000]; v: int[0, 100000]\nn >= 3; v <= w",
    "matrix input": "c: input[0, 1][2, 3]; x: real[2]\nall(0 <= x <= 5); x[0] <= 2 + sum(c[1])",
}
CASCADES = {"lots", "at most 3", "dates", "decimals", "wide", "products", "both"}


def ask(question: str, **fields: Any) -> Any:
    kind = next(kind for kind, own in ANSWERS.items() if question in own)
    asked = json.dumps({"question": question, "fields": fields})
    told = json.loads(answered(kind, asked))
    assert "answer" in told, told
    return told["answer"]


@pytest.mark.parametrize("name", KINDS)
def test_everything_on_the_page_works(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdict, picture, images, samples, row, repair and code."""
    text = KINDS[name]
    verdict = ask("verdict", text=text)
    assert verdict["problem"] is None
    fields = {"text": text, "dtype": verdict["dtype"]}
    picture = ask("picture", **fields)
    assert picture["empty"] is None
    assert picture["regions"]
    assert picture["cascade"] or name not in CASCADES
    assert not picture.get("samples_only")
    point = ask("point", **fields, grid=1)
    assert point["images"]
    assert all(image["obeys"] for image in point["images"])
    samples = ask("samples", **fields, count=60)
    assert samples["obeying"] == 60
    assert len(samples["points"]) + samples["missing"] == 60
    row = ask("row", **fields, row=point["best"]["row"])
    assert row["obeys"]
    assert ask("repair", **fields, row=row["row"])["moved"] == []
    for kind, code in verdict["code"].items():
        exec(compile(code, kind, "exec"), {})
    assert "nan" not in capsys.readouterr().out


def test_times_need_float64_and_the_verdict_says_so() -> None:
    assert ask("verdict", text=KINDS["times"])["dtype"] == "float64"
    assert ask("verdict", text=KINDS["lots"])["dtype"] == "float32"
    wide = "a: decimal(2)[0, 1000000]\na >= 1"
    assert ask("verdict", text=wide)["dtype"] == "float64"
    assert "dtype=torch.float64" in ask("verdict", text=wide)["code"]["layer"]


# --- what is left ----------------------------------------------------------------------------------------------------


def is_left(regions: list[dict[str, Any]], x: float, y: float) -> bool:
    """Whether a place lies in one of the pieces: between the ends at x, or on a line along the first axis."""
    for region in regions:
        points = region["points"]
        if len(points) == 2 and points[0][0] < x <= points[1][0]:
            if points[0][1] == points[1][1] == y:
                return True
            continue
        half = len(points) // 2
        below, above = points[:half], points[half:][::-1]
        for (x0, low0), (_, high0) in zip(below, above, strict=True):
            if x0 == x and low0 <= y <= high0:
                return True
    return False


def test_what_is_left_is_what_some_values_of_the_others_complete() -> None:
    """Column by column, decided by z3: inside a piece something obeys, outside nothing does."""
    text = (
        "x: real[3]; all(v == 0 or 2 <= v <= 8 for v in x)\n"
        "7 <= sum(x) <= 12; implies(x[2] > 0, x[0] >= x[1])"
    )
    rules = mx.Rules(text)
    a, b, _ = rules.outputs
    from multiplexnet.playground.answers.layers import situation
    from multiplexnet.playground.answers.left import described, pieces
    from multiplexnet.playground.asked import Question

    there = situation(Question({"text": text, "axes": ["x[0]", "x[1]"]}))
    found = described(pieces(there, {}, None))
    columns = sorted({point[0] for region in found for point in region["points"]})
    seen = set()
    for x in columns[::40]:
        for y in (0.0, 1.0, 2.0, 3.0, 4.5, 6.0, 7.5, 8.0, 8.5):
            at = [
                Atom(Linear.of(a) - Fraction(x), "=="),
                Atom(Linear.of(b) - Fraction(y), "=="),
            ]
            possible = satisfiable(conjunction([rules.formula, *at])) is not None
            assert is_left(found, x, y) == possible, (x, y)
            seen.add(possible)
    assert seen == {True, False}


def test_a_fixed_output_narrows_what_is_left() -> None:
    text = "x: real[12]\nall(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 150"
    axes = ["x[0]", "x[1]"]
    free = ask("picture", text=text, axes=axes)
    fixed = ask("picture", text=text, axes=axes, fixed={"x[5]": "95"})
    top = [
        max(p[0] for r in told["regions"] for p in r["points"])
        for told in (free, fixed)
    ]
    assert top == [100, 55]
    nothing = ask("picture", text=text, axes=axes, fixed={"x[5]": "5"})
    assert nothing["regions"] == []
    assert "no output obeys the rules with x[5] = 5" in nothing["empty"]


def test_options_of_the_axes_have_an_image_each() -> None:
    text = "x: real[12]\nall(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 900"
    images = ask("point", text=text, raw=[0.0] * 12)["images"]
    assert {tuple(v > 0 for v in image["at"]) for image in images} == {
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    }
    moved = ask("point", text=text, raw=[2.0] + [0.0] * 11)["images"]
    assert max(i["at"][0] for i in moved) > max(i["at"][0] for i in images)


# --- values ----------------------------------------------------------------------------------------------------------


def test_dates_and_amounts_are_typed_as_people_write_them() -> None:
    text = KINDS["dates"]
    good = {"start": "2024-07-02", "end": "2024-07-17"}
    told = ask("row", text=text, row=good)
    assert told["obeys"]
    assert told["row"] == good
    late = ask("row", text=text, row={**good, "end": "2024-09-01"})
    assert late["rules"][0]["amount"] == "by 31"
    moved = ask("repair", text=text, row={**good, "end": "2024-09-01"})
    assert moved["obeys"]
    assert moved["row"]["end"].startswith("2024-0")
    cents = {"net": "50.01", "tax": "49.98"}
    assert ask("row", text=KINDS["decimals"], row=cents)["obeys"]
    half = ask("row", text=KINDS["decimals"], row={"net": "50.005", "tax": "49.985"})
    assert half["outside"][0] == (
        "net = 50.005 is not one of the multiples of 0.01 0, …, 900"
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"row": {"start": "2024-02-30", "end": "2024-07-17"}}, "is not a date"),
        ({"row": {"start": "3-7-2024", "end": "2024-07-17"}}, "year, month and day"),
        ({"row": {"start": "", "end": "2024-07-17"}}, "start has no value"),
        ({"row": {"start": "soon", "end": "2024-07-17"}}, "write a number"),
    ],
)
def test_a_date_that_is_none_is_refused(fields: dict[str, Any], words: str) -> None:
    question = json.dumps(
        {"question": "row", "fields": {"text": KINDS["dates"], **fields}}
    )
    assert words in json.loads(answered("layer", question))["error"]["message"]


def test_inputs_with_a_unit_are_amounts() -> None:
    fields = {"text": KINDS["units of inputs"]}
    told = ask(
        "samples", **fields, count=40, inputs={"budget": "2.5", "first": "2024-02-28"}
    )
    assert told["obeying"] == 40
    assert max(spend for spend, _ in told["points"]) <= 2.5
    picture = ask("picture", **fields, inputs={"budget": "2.5", "first": "2024-02-28"})
    assert picture["inputs"]["budget"] == "2.5"


def test_an_empty_field_is_a_missing_value_where_that_may_be() -> None:
    text = KINDS["missing"]
    told = ask("row", text=text, row={"low": "", "high": ""})
    assert told["obeys"]
    assert told["at"] == [None, None]
    half = ask("row", text=text, row={"low": "", "high": "3"})
    assert [rule["obeyed"] for rule in half["rules"]][-1] is False
    variables = ask("verdict", text=text)["variables"]
    assert [v["optional"] for v in variables] == [True, True]


def test_inputs_begin_where_the_assumptions_hold() -> None:
    told = ask("verdict", text=KINDS["assumptions"])
    start = {v["name"]: v["start"] for v in told["variables"]}
    assert Fraction(start["low"]) + 3 <= Fraction(start["high"])
    assert start["v"] is None
    odd = "a: input[0, 10]; b: input[0, 10]; x: real\nassume a == 2*b + 1\n0 <= x <= a"
    told = ask("verdict", text=odd)
    start = {v["name"]: v["start"] for v in told["variables"]}
    assert Fraction(start["a"]) == 2 * Fraction(start["b"]) + 1
    assert ask("samples", text=odd, count=9)["obeying"] == 9
