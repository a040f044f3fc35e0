"""Numbers at the edges: subnormal ones that a mode flushes, inputs that are not floats, and the ends of the formats."""

from __future__ import annotations

import json
import runpy
import threading
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from multiplexnet import Multiplexer, Rules
from multiplexnet.certificate.formats import FORMATS as CERTIFIED
from multiplexnet.errors import (
    DtypeError,
    EqualityError,
    InputError,
    MagnitudeError,
    MultiplexError,
    ShapeError,
    ThinTermError,
)
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import Real, Variable, holds
from multiplexnet.layer.inputs.ranges import FloatRange

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
FLUSHED = DTYPES[:3]
BITS = {
    torch.float64: (torch.int64, 52),
    torch.float32: (torch.int32, 23),
    torch.bfloat16: (torch.int16, 7),
}
BITS |= {torch.float16: (torch.int16, 10)}


@pytest.fixture(params=[False, True], ids=["as ever", "flushing"])
def flushing(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Both modes of the processor."""
    if not torch.set_flush_denormal(request.param):
        pytest.skip("this processor cannot flush")
    yield request.param
    torch.set_flush_denormal(False)


def exact(values: Tensor) -> list[Fraction | None]:
    """The numbers of a tensor by their bits, which no mode touches; ``None``: NaN or infinite."""
    integer, digits = BITS[values.dtype]
    width = 8 * values.element_size()
    bias = (1 << (width - 2 - digits)) - 1
    found: list[Fraction | None] = []
    for bits in values.contiguous().view(integer).flatten().tolist():
        magnitude = bits & (1 << (width - 1)) - 1
        exponent, rest = magnitude >> digits, magnitude & (1 << digits) - 1
        size = Fraction(rest + (1 << digits if exponent else 0)) * Fraction(2) ** (
            max(exponent, 1) - bias - digits
        )
        found.append(None if exponent == 2 * bias + 1 else -size if bits < 0 else size)
    return found


def tensor_of(numbers: Sequence[Fraction | float], dtype: torch.dtype) -> Tensor:
    """The numbers as they are, subnormal ones included, whatever the mode; those of float64 as fractions."""
    made: list[Tensor] = []

    def work() -> None:
        torch.set_flush_denormal(False)
        made.append(
            torch.tensor([float(n) for n in numbers], dtype=torch.float64).to(dtype)
        )

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return made[0]


def disobeying(rules: Rules, x: Tensor, **inputs: Any) -> list[int]:
    """The rows that break the rules, in fractions; numbers are inputs of all rows."""
    wrong = []
    for i, row in enumerate(x):
        known = {v.name: inputs[v.name] for v in rules.inputs}
        given = {
            name: exact(u[i : i + 1])[0] if isinstance(u, Tensor) else Fraction(u)
            for name, u in known.items()
        }
        values = exact(row)
        point = dict(zip(rules.outputs, values, strict=True)) | {
            v: given[v.name] for v in rules.inputs
        }
        obeys = None not in values and all(
            holds(rule.formula, point)  # type: ignore[arg-type]
            for rule in rules.specification.rules
        )
        wrong += [] if obeys else [i]
    return wrong


@cache
def built(text: str, dtype: torch.dtype, *, flushing: bool = False) -> Multiplexer:
    """A layer for several tests; one that was built while the mode was on is another one."""
    return Multiplexer(Rules(text), dtype=dtype)


def smallest(dtype: torch.dtype) -> Fraction:
    return FORMATS[str(dtype).removeprefix("torch.")].tiny


# --- subnormal numbers ----------------------------------------------------------------------------------------------

OPEN = (
    "x > 0",
    "0 < x < 1",
    "x >= 1e-40",
    "x >= 1e-310",
    "x < 0",
    "x >= -1e-310; x <= 3",
    "x > 0; x + y < 1; y > x",
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", OPEN)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_open_ends_survive_flushing(
    text: str, dtype: torch.dtype, training: bool, flushing: bool
) -> None:
    mux = built(text, dtype, flushing=flushing).train(training)
    rules = mux.rules
    raw = torch.tensor(
        [-90.0, -720.0, -1e4, -inf, 90.0, 720.0, inf, 0.0], dtype=dtype
    ).unsqueeze(-1)
    raw = raw.expand(-1, mux.in_features).contiguous()
    assert not disobeying(rules, mux(raw).best())
    small = Fraction("1e-310")
    near = tensor_of(
        [0.0, small, -small, 1e-40, -1e-40, 3e-8, 1.0, -1.0], dtype
    ).unsqueeze(-1)
    assert not disobeying(
        rules, mux.repair(near.expand(-1, mux.out_features).contiguous())
    )


@pytest.mark.parametrize("dtype", FLUSHED, ids=str)
def test_an_open_end_starts_at_the_smallest_normal_number(dtype: torch.dtype) -> None:
    mux = Multiplexer(Rules("x > 0"), dtype=dtype)
    assert (
        mux(torch.tensor([-inf], dtype=dtype)).best().item()
        == torch.finfo(dtype).smallest_normal
    )


def test_float16_keeps_its_subnormal_numbers(flushing: bool) -> None:
    mux = Multiplexer(Rules("x > 0"), dtype=torch.float16)
    assert exact(mux(torch.tensor([-inf], dtype=torch.float16)).best()) == [
        Fraction(1, 2**24)
    ]


@pytest.mark.parametrize("dtype", FLUSHED[1:], ids=str)
def test_rules_that_need_subnormal_numbers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(
        ThinTermError, match=r"too thin for b?float\d+ \(float64 would do\)"
    ):
        Multiplexer(Rules("x >= 1e-40; x <= 2e-40"), dtype=dtype)
    with pytest.raises(
        EqualityError, match=r"does not hold this number exactly, float64 would"
    ):
        Multiplexer(Rules(f"x == 1/{2**130}"), dtype=dtype)
    with pytest.raises((ThinTermError, EqualityError)):
        Multiplexer(Rules(f"x + y == 1/{2**130}; x >= 0; y >= 0"), dtype=dtype)


def test_float64_refuses_its_own_subnormal_numbers() -> None:
    for text in ("x >= 1e-310; x <= 2e-310", f"x == 1/{2**1040}"):
        with pytest.raises((ThinTermError, EqualityError)):
            Multiplexer(Rules(text), dtype=torch.float64)


WITH_INPUT = (
    "x: real; u: input\nx >= u",
    "x: real; u: input\nx <= u",
    "x: real; u: input\nx > u",
    "x: real; u: input\nx >= 4*u",
    "x: real; u: input\nx >= 3*u",
    "x: real; u: input\nx >= u; x <= u + 1",
    "x: real; y: real; u: input\nx >= u; y >= x",
    "x: real; y: real; u: input\nx <= u; y <= x",
    "x: real; u: input\nx > 1 or u <= 0; x < 0 or u > 0",
    "x: real; u: input; v: input\nx > 1 or u <= v; x < 0 or u > v",
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", WITH_INPUT)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_subnormal_inputs(
    text: str, dtype: torch.dtype, training: bool, flushing: bool
) -> None:
    """Every row obeys or is refused; in formats that float64 is wider than, a single input is never refused."""
    mux = built(text, dtype, flushing=flushing).train(training)
    rules = mux.rules
    tiny = smallest(dtype)
    for size in (
        tiny / 2,
        -tiny / 2,
        tiny / 128,
        -tiny / 128,
        tiny,
        -tiny,
        Fraction(0),
    ):
        inputs = {
            v.name: tensor_of([size / (1 + v.index % 2)] * 4, dtype)
            for v in rules.inputs
        }
        raw = (
            torch.tensor([-720.0, -inf, 0.0, inf], dtype=dtype)
            .unsqueeze(-1)
            .expand(-1, mux.in_features)
        )
        try:
            x = mux(raw.contiguous(), **inputs).best()
        except InputError:
            assert dtype is torch.float64 or len(rules.inputs) > 1
            continue
        assert not disobeying(rules, x, **inputs)
        assert rules.satisfied(x, functions=None, **inputs).all()
        assert not disobeying(
            rules, mux.repair(torch.zeros_like(x), **inputs), **inputs
        )


def test_an_interval_that_subnormal_inputs_close_is_refused(flushing: bool) -> None:
    rules = Rules(
        "x: real; u: input; v: input\nx >= u or u > v; x <= v or u > v; x >= 1 or u <= v"
    )
    mux = Multiplexer(rules)
    u, v = tensor_of([1e-40], torch.float32), tensor_of([2e-40], torch.float32)
    with pytest.raises(
        InputError, match=r"no term leaves room between the floats of float32: row 0"
    ):
        mux(torch.zeros(1, mux.in_features), u=u, v=v)


def test_declared_ranges_are_compared_exactly(flushing: bool) -> None:
    mux = Multiplexer(Rules("x: real; u: input[0, 1]\nx >= u"))
    with pytest.raises(
        InputError, match=r"input u is outside its declared range \[0, 1\] in row 0"
    ):
        mux(torch.zeros(1, 1), u=tensor_of([-1e-40], torch.float32))
    assert not disobeying(
        mux.rules,
        mux(torch.zeros(1, 1), u=(u := tensor_of([1e-40], torch.float32))).best(),
        u=u,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_range_is_seen_at_a_glance_where_it_is_plain(
    dtype: torch.dtype, flushing: bool
) -> None:
    """Never where a value is outside, subnormal numbers included, and always where all are well inside."""
    tiny = float(torch.finfo(dtype).smallest_normal)
    values = [-inf, -2.0, -1.0, -tiny, -tiny / 2, 0.0, tiny / 2, tiny, 1.0, 2.0]
    values += [inf, nan]
    ends = [None, *(Fraction(v) for v in (-1.0, -tiny / 4, 0.0, tiny / 4, tiny, 1.0))]
    for lower, upper in product(ends, ends):
        if lower is not None and upper is not None and lower > upper:
            continue
        within = FloatRange.of(Variable("u", 0, Real(lower, upper), role="input"))
        for value in values:
            one = tensor_of([value], dtype)
            inside = isfinite(value)
            inside = inside and (lower is None or Fraction(value) >= lower)
            inside = inside and (upper is None or Fraction(value) <= upper)
            assert inside or not within.plainly_contains(one), (lower, upper, value)
    unit = FloatRange.of(Variable("u", 0, Real(Fraction(0), Fraction(1)), role="input"))
    assert unit.plainly_contains(tensor_of([tiny, 0.5, 1.0], dtype))


VERDICTS = {
    "x > 0": [True, False, False, True, False],
    "x == 0": [False, True, False, False, False],
    "max(x, 0) > 0": [True, False, False, True, False],
    "(x if x > 0 else -1) >= 0": [True, False, False, True, False],
    "x + x > 0": [True, False, False, True, False],
    "3*x < 0": [False, False, True, False, True],
    "n: int[0, 1]\nn >= 0": [False, True, False, True, False],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", VERDICTS)
def test_verdicts_of_subnormal_numbers(
    text: str, dtype: torch.dtype, flushing: bool
) -> None:
    half = smallest(dtype) / (1 if dtype is torch.float16 else 2)
    rules, x = (
        Rules(text),
        tensor_of([half, 0.0, -half, 1.0, -1.0], dtype).unsqueeze(-1),
    )
    assert rules.satisfied(x).tolist() == VERDICTS[text]
    assert [v == 0 for v in rules.violation(x).flatten().tolist()] == VERDICTS[text]
    if dtype is not torch.bfloat16:
        assert rules.satisfied(x.numpy()).tolist() == VERDICTS[text]


def test_verdicts_of_functions_with_subnormal_values(flushing: bool) -> None:
    small = Fraction("1e-310")
    rules, values = (
        Rules("x: real; f: function\nf(x) > 0"),
        tensor_of([small, 0, -small], torch.float64),
    )
    x = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1)
    assert rules.satisfied(x, functions={"f": lambda x: values}).tolist() == [
        True,
        False,
        False,
    ]


def test_products_of_small_numbers_are_not_lost(flushing: bool) -> None:
    """The last digits of 3·10⁻³⁰⁰ are subnormal numbers."""
    third = 1e-300 / 3
    rules = Rules("x: real; y: real\n3*x <= y")
    ends = (third * 3, np.nextafter(third * 3, 1), np.nextafter(third * 3, 0))
    x = torch.tensor([[third, end] for end in ends], dtype=torch.float64)
    expected = [3 * Fraction(a) <= Fraction(b) for a, b in x.tolist()]
    assert rules.satisfied(x).tolist() == expected


def test_the_numbers_of_a_format_are_those_that_every_mode_keeps() -> None:
    for name, form in FORMATS.items():
        least = (
            Fraction(1, 2**24)
            if name == "float16"
            else Fraction(2) ** (1 - form.largest_exponent)
        )
        assert form.next_up(Fraction(0)) == least == CERTIFIED[name].after(Fraction(0))
        assert form.next_down(least) == 0 == CERTIFIED[name].before(least)
        assert form.next_up(-least) == 0
        assert form.representable(least)
        assert not form.representable(least / 2)
        assert not CERTIFIED[name].holds(least / 2)
        assert [form.down(least / 3), form.up(least / 3)] == [Fraction(0), least]
        assert [form.down(-least / 3), form.up(-least / 3)] == [-least, Fraction(0)]


def test_another_thread_may_flush() -> None:
    """Each thread has a mode of its own; a layer that was built in one serves both."""
    mux, found = Multiplexer(Rules("x > 0")), list[Tensor]()

    def work() -> None:
        torch.set_flush_denormal(True)
        found.append(mux(torch.tensor([[-90.0], [-inf]])).best())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not disobeying(mux.rules, found[0])


# --- the safeguards are needed --------------------------------------------------------------------------------------

FAULTS: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[1] / "benchmarks" / "faults.py")
)
BY_NAME = {fault.name: fault for fault in FAULTS["FAULTS"]}


def _broken_bound() -> bool:
    mux = Multiplexer(Rules("x > 0"))
    return bool(disobeying(mux.rules, mux(torch.tensor([[-inf]])).best()))


def _broken_input() -> bool:
    mux, u = (
        Multiplexer(Rules("x: real; u: input\nx >= u")),
        tensor_of([1e-40], torch.float32),
    )
    return bool(disobeying(mux.rules, mux(torch.tensor([[-inf]]), u=u).best(), u=u))


def _broken_verdict() -> bool:
    return (
        not Rules("x > 0")
        .satisfied(tensor_of([Fraction("1e-310")], torch.float64).unsqueeze(-1))
        .all()
    )


def _broken_side() -> bool:
    mux = Multiplexer(Rules("x: real; u: input\nx <= u"))
    return bool(disobeying(mux.rules, mux(torch.tensor([[inf]]), u=0.1).best(), u=0.1))


def _broken_direction() -> bool:
    mux = Multiplexer(
        Rules("x: real; y: real; u: input[0, 1e300]\nx <= y; y <= u; x >= -u"),
        dtype=torch.float64,
        structure="terms",
    )
    record = json.loads(bytes(mux.get_extra_state().tolist()))
    del record["sha256"]  # a changed record would not fit it
    record["in_turn"] = False  # as version 0.1.0 did: at once, around an anchor
    saved = torch.tensor(list(json.dumps(record).encode()), dtype=torch.uint8)
    mux = Multiplexer.from_state(saved)
    x = mux.eval()(torch.tensor([[inf, -inf]], dtype=torch.float64), u=1e279).best()
    return bool(x.isnan().any())


def _broken_step() -> bool:
    rules = Rules(
        "u: input[-2, 5]; a: real; b: real; -10 <= a <= 10; -10 <= b <= 10\n"
        "u <= a + b <= u + 0.005; a <= 0 or a >= u"
    )
    mux = Multiplexer(rules, dtype=torch.float16)
    raw = 3 * torch.randn(400, mux.in_features)
    u = torch.full((400,), 0.001, dtype=torch.float16)
    return bool(disobeying(rules, mux(raw.half(), u=u).best(), u=u))


def _broken_repair() -> bool:
    mux, u = (
        Multiplexer(Rules("x: real; u: input\nx < u")),
        torch.tensor([torch.finfo(torch.float32).min]),
    )
    try:
        return bool(disobeying(mux.rules, mux.repair(torch.zeros(1, 1), u=u), u=u))
    except InputError:
        return False


PROBES: dict[str, Callable[[], bool]] = {
    "subnormal bounds": _broken_bound,
    "subnormal inputs": _broken_input,
    "subnormal ends": _broken_input,
    "subnormal verdicts": _broken_verdict,
    "sides of numbers": _broken_side,
    "cut of directions": _broken_direction,
    "numbers left": _broken_step,
    "room in repair": _broken_repair,
}


@pytest.mark.parametrize("name", PROBES)
def test_a_safeguard_that_is_switched_off_is_missed(name: str) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        assert not PROBES[name]()
        with FAULTS["planted"](BY_NAME[name]):
            assert PROBES[name]()
    finally:
        torch.set_flush_denormal(False)


# --- inputs as numbers ----------------------------------------------------------------------------------------------

BELOW, ABOVE = 0.09999999403953552, 0.10000000149011612
RAW = torch.tensor([[inf], [-inf], [0.0]])
NUMBERS: list[Any] = [
    *(
        0.1,
        1,
        True,
        -3.25,
        2**24 + 1,
        10**30 + 1,
        Fraction(1, 3),
        Decimal("0.1"),
        1e-40,
        -1e-40,
        1e-310,
    ),
    *(
        np.float64(0.1),
        np.float32(0.1),
        np.float16(0.1),
        np.int64(2**60 + 1),
        np.uint8(7),
        np.bool_(True),
    ),
    *(
        np.array(0.1),
        torch.tensor(2**24 + 1),
        torch.tensor(True),
        torch.tensor(7, dtype=torch.int8),
    ),
]


def number(value: Any) -> Fraction:
    item = value.item() if hasattr(value, "item") else value
    return Fraction(item)


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "text", ["x <= u", "x >= u", "x < u", "x > u", "x <= 3*u - 1", "x <= u; y >= 2 - u"]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_number_is_met_exactly(value: Any, text: str, dtype: torch.dtype) -> None:
    outputs = "x: real; y: real" if "y" in text else "x: real"
    mux = built(f"{outputs}; u: input\n{text}", dtype)
    rules = mux.rules
    meant = number(value)
    raw = RAW.to(dtype).expand(-1, mux.in_features).contiguous()
    try:
        x = mux(raw, u=value).best()
    except InputError:
        assert abs(meant) * 4 > FORMATS[str(dtype).removeprefix("torch.")].max
        return
    for found in (x, mux.repair(raw, u=value)):
        assert not disobeying(rules, found, u=meant)
        assert rules.satisfied(found, u=value).all()


def test_a_number_is_rounded_to_the_side_that_is_sound() -> None:
    below, above = (
        Multiplexer(Rules(f"x: real; u: input\nx {sign} u")) for sign in ("<=", ">=")
    )
    assert below(RAW, u=0.1).best().max().item() == BELOW
    assert above(RAW, u=0.1).best().min().item() == ABOVE
    assert above(RAW, u=torch.tensor(2**24 + 1)).best().min().item() == 2**24 + 2
    assert below(RAW, u=[0.1, Fraction(1, 3), 2]).best()[0].item() == BELOW
    assert below(RAW, u=10**400).best().max().item() == torch.finfo(torch.float32).max


def test_a_number_that_neither_neighbour_may_stand_for_is_refused() -> None:
    for text in ("u <= x; x <= u + 1", "x <= u or x >= u + 1", "x >= u; x >= -u"):
        mux = Multiplexer(Rules(f"x: real; u: input\n{text}"))
        raw = torch.zeros(2, mux.in_features)
        message = (
            r"input u is 0.1, which float32 does not hold; its neighbours there are 0.0999\d* and 0.1000\d*, and the "
            r"rules hold for neither in its place, .* give a number that float32 holds, for example a tensor of torch"
        )
        with pytest.raises(InputError, match=message):
            mux(raw, u=Fraction(1, 10))
        with pytest.raises(InputError, match=r"which float32 does not hold"):
            mux.repair(raw[:, :1], u=0.1)
        assert not disobeying(mux.rules, mux(raw, u=0.5).best(), u=Fraction(1, 2))
    mux = Multiplexer(
        Rules("x: real; f: function; u: input\nx >= f(u)"), functions={"f": torch.sin}
    )
    with pytest.raises(InputError, match=r"in both directions"):
        mux(torch.zeros(1, 1), u=0.1)
    assert mux(torch.zeros(1, 1), u=0.5).best().isfinite().all()


def test_a_number_beyond_the_format_is_refused_where_no_neighbour_is_left() -> None:
    mux = Multiplexer(Rules("x: real; u: input\nx >= u"))
    with pytest.raises(
        InputError,
        match=r"is 1E\+400, .* need one that is larger, and float32 has none",
    ):
        mux(RAW, u=10**400)


def test_the_verdict_on_a_number_is_exact() -> None:
    rules = Rules("x: real; u: input\nx <= u")
    x = torch.tensor([[BELOW], [ABOVE], [1 / 3]], dtype=torch.float64)
    assert rules.satisfied(x, u=0.1).tolist() == [True, False, False]
    assert rules.satisfied(x, u=Fraction(1, 3)).tolist() == [True, True, True]
    assert rules.satisfied(
        x, u=[Fraction(1, 10), Decimal("0.1"), 2**60 + 1]
    ).tolist() == [
        True,
        False,
        True,
    ]
    assert rules.satisfied(x, u=torch.tensor([1, 0, 2**62 + 1])).tolist() == [
        True,
        False,
        True,
    ]
    many = torch.full((200_000, 1), 1 / 3, dtype=torch.float64)
    assert rules.satisfied(many, u=Fraction(1 / 3) + Fraction(1, 10**40)).all()
    assert not rules.satisfied(many, u=Fraction(1 / 3) - Fraction(1, 10**40)).any()


NO_NUMBERS: list[tuple[Any, type[MultiplexError], str]] = [
    (None, InputError, r"input u is None \(NoneType\); it must be a number"),
    ("3", InputError, r"input u is '3' \(str\); it must be a number"),
    ({}, InputError, r"input u is \{\} \(dict\)"),
    (["3"], InputError, r"input u is '3' \(str\)"),
    (np.array("a"), InputError, r"input u has dtype <U1; it must be numbers"),
    (1j, DtypeError, r"input u is the complex number 1j; it must be a real number"),
    (torch.tensor([1j]), DtypeError, r"input u has dtype complex64: give real numbers"),
    (
        np.longdouble(1),
        DtypeError,
        r"input u has dtype .*: give real numbers of float64 or less",
    ),
    (nan, InputError, r"input u is nan; it must be a finite number"),
    (-inf, InputError, r"input u is -inf; it must be a finite number"),
    (Decimal("inf"), InputError, r"input u is Infinity; it must be a finite number"),
    ([1.0, [2.0]], ShapeError, r"input u is a list whose parts have different lengths"),
    ([1.0, 2.0], ShapeError, r"input u has shape \(2,\); one value"),
]


@pytest.mark.parametrize(
    ("value", "kind", "message"), NO_NUMBERS, ids=lambda v: repr(v)[:20]
)
def test_what_is_no_number_is_refused_in_our_words(
    value: Any, kind: type[MultiplexError], message: str
) -> None:
    mux = Multiplexer(Rules("x: real; u: input\nx <= u"))
    with pytest.raises(kind, match=message):
        mux(RAW, u=value)
    with pytest.raises(kind, match=message):
        mux.repair(RAW, u=value)
    with pytest.raises(kind, match=message):
        mux.rules.satisfied(RAW, u=value)


def test_numbers_outside_the_declared_range_are_refused_exactly() -> None:
    mux = Multiplexer(Rules("x: real; u: input[0, 0.1]\nx <= u"))
    assert not disobeying(
        mux.rules, mux(RAW, u=Fraction(1, 10)).best(), u=Fraction(1, 10)
    )
    with pytest.raises(
        InputError, match=r"input u is outside its declared range \[0, 0.1\]"
    ):
        mux(RAW, u=0.1)  # which is a little more than one tenth
    with pytest.raises(
        InputError, match=r"input u is outside its declared range \[0, 0.1\]"
    ):
        mux(RAW, u=-1)


def test_vectors_may_be_lists() -> None:
    rules = Rules("x: real; u: input[2]\nx <= u[0]; x <= u[1]")
    mux = Multiplexer(rules)
    assert mux(RAW, u=[0.1, 2]).best().max().item() == BELOW
    assert rules.satisfied(RAW[2:], u=[[0.1, 2]]).tolist() == [True]
    with pytest.raises(ShapeError, match=r"input u is a vector of 2"):
        mux(RAW, u=[1.0])


# --- the ends of the formats ----------------------------------------------------------------------------------------

FAR = {
    "x: real; u: input\nx >= 2*u": [{"u": -1e308}],
    "x: real; u: input\nx > 2*u": [{"u": -1e308}],
    "x: real; u: input\nx >= 3*u + 1": [{"u": -1e308}, {"u": -1.7e308}],
    "x: real; u: input; v: input\nx >= 3*u + 3*v": [
        {"u": -1e308, "v": 1e308},
        {"u": -1.7e308, "v": -1.7e308},
    ],
    "x: real; y: real; u: input[0, 1e300]\nx <= y; y <= u; x >= -u": [
        {"u": 1e279},
        {"u": 9e299},
    ],
    "x: real; y: real; lo: input; hi: input\nlo > hi or (lo <= x and x <= y and y <= hi)": [
        {"lo": -1e308, "hi": 1e308},
        {"lo": 1e308, "hi": 1.5e308},
        {"lo": -1.7e308, "hi": -1e308},
    ],
    "x: real; y: real; u: input\n1e200*x <= u; y >= 1e-200*u; x <= y": [
        {"u": 1e308},
        {"u": -1e308},
        {"u": 1.0},
    ],
}
EXTREME = (0.0, 1.0, -1.0, inf, -inf, nan, 1e30, -1e300)


@pytest.mark.parametrize("text", FAR)
def test_inputs_near_the_end_of_float64(text: str) -> None:
    rules = Rules(text)
    mux = Multiplexer(rules, dtype=torch.float64).eval()
    values = torch.tensor(EXTREME, dtype=torch.float64)
    raw = values[torch.arange(64 * mux.in_features) * 5 % 7].view(64, -1)
    for known in FAR[text]:
        inputs = {
            name: torch.full((64,), value, dtype=torch.float64)
            for name, value in known.items()
        }
        assert not disobeying(rules, mux(raw, **inputs).best(), **inputs)
        assert not disobeying(
            rules, mux.repair(raw[:, : mux.out_features], **inputs), **inputs
        )


def test_gradients_are_finite_where_a_bound_overflows() -> None:
    mux = Multiplexer(
        Rules("x: real; u: input\nx >= 2*u or x <= -8*u"), dtype=torch.float64
    )
    raw = torch.randn(5, mux.in_features, dtype=torch.float64, requires_grad=True)
    mux(raw, u=torch.full((5,), -1e308, dtype=torch.float64)).best().sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_repair_of_numbers_that_are_far_out(dtype: torch.dtype) -> None:
    for text in (
        "1e200*x <= y; y <= 1e200",
        "1e-200*x + y <= 1; x >= 1e-200*y",
        "x - y <= 1e-200; y <= 1e200*x",
    ):
        rules = Rules(text)
        try:
            mux = Multiplexer(rules, dtype=dtype)
        except MultiplexError:
            continue
        far = torch.tensor([[a, b] for a in EXTREME for b in EXTREME], dtype=dtype)
        assert not disobeying(rules, mux.repair(far))


def test_repair_refuses_rows_without_room() -> None:
    """It once gave such rows back as they were, though they break the rules."""
    mux = Multiplexer(Rules("x: real; u: input\nx < u"))
    end = torch.finfo(torch.float32).min
    with pytest.raises(
        InputError, match=r"for these inputs no term leaves room .* row 1"
    ):
        mux.repair(torch.zeros(2, 1), u=torch.tensor([1.0, end]))
    assert mux.repair(torch.tensor([[0.0]]), u=torch.tensor([1.0])).item() == 0


def test_coefficients_too_far_apart_for_float64_are_refused() -> None:
    with pytest.raises(MagnitudeError, match=r"1\.?0*e\+400"):
        Multiplexer(Rules("x: real; y: real; u: input\n1e200*x + 1e-200*y <= u"))


def test_points_with_huge_denominators_compile() -> None:
    """A product of numbers that int64 does not hold once ended in an OverflowError of numpy."""
    text = "x: real; y: real; u: input; v: input\n1e-290*y + 1*u + 1e-200*v <= 1e-300\nx <= 1e200*u\ny >= -1e-10*x"
    assert Rules(text).compile().blocks


# --- what an attack on the merged mends found ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [1e-310, 5e-324, -1e-310])
def test_numbers_that_are_subnormal_in_float64_are_no_zeros_while_flushing(
    dtype: torch.dtype, value: float
) -> None:
    rule = "x >= u" if value > 0 else "x <= u"
    mux = Multiplexer(Rules(f"x: real; u: input\n{rule}"), dtype=dtype).eval()
    raw = torch.tensor([[-1e4], [1e4], [0.0]], dtype=dtype)
    torch.set_flush_denormal(True)
    try:
        found = [mux(raw, u=value).best(), mux.repair(raw, u=value)]
    finally:
        torch.set_flush_denormal(False)
    for x in torch.cat(found).flatten().double().tolist():
        assert (
            Fraction(x) >= Fraction(value)
            if value > 0
            else Fraction(x) <= Fraction(value)
        )


def test_integers_are_refused_where_a_graph_is_recorded() -> None:
    mux = Multiplexer(Rules("x: real; u: input\nx <= u"))
    raw = torch.randn(2, 1)

    def best(raw: Tensor, u: Tensor) -> Tensor:
        found: Tensor = mux(raw, u=u).best()
        return found

    with pytest.raises(
        DtypeError, match=r"input u is not a tensor of torch.float32: .*u=value.to"
    ):
        torch.vmap(best)(raw, torch.tensor([1, 2]))


def test_a_decimal_beyond_all_floats_is_refused_at_once() -> None:
    mux = Multiplexer(Rules("x: real; u: input\nx <= u"))
    with pytest.raises(InputError, match="beyond all floats"):
        mux(torch.zeros(1, 1), u=Decimal("1e999999999"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_repair_hands_on_no_subnormal_number_while_flushing(dtype: torch.dtype) -> None:
    """In wide batches a clamp compares a subnormal number as zero and returns it as it is."""
    mux = Multiplexer(Rules("x: real\nx > -1e-330"), dtype=dtype).eval()
    least = torch.nextafter(torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype))
    x = (-least * torch.arange(1, 65)).to(dtype).unsqueeze(-1)
    torch.set_flush_denormal(True)
    try:
        moved = mux.repair(x)
    finally:
        torch.set_flush_denormal(False)
    assert all(
        Fraction(value) > -(Fraction(10) ** -330)
        for value in moved.flatten().double().tolist()
    )
