"""Quick paths of building a layer return what the long ways return."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiplexnet.compiler import witness
from multiplexnet.compiler.identity import _left_of
from multiplexnet.compiler.terms import Term
from multiplexnet.errors import MultiplexError
from multiplexnet.exact import rows as exact_rows
from multiplexnet.exact.components import components
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry import split
from multiplexnet.geometry.anchors import find_anchor
from multiplexnet.geometry.boxes import interval_box
from multiplexnet.geometry.parts import Box, Part
from multiplexnet.language.formula import (
    Apply,
    Atom,
    Linear,
    Max,
    Product,
    Relation,
    Variable,
    holds,
    symbols,
    walk,
)
from multiplexnet.transforms.term_maps import _boxes

fractions = st.fractions(max_denominator=60)
small = st.fractions(-100, 100, max_denominator=60)
OUTPUTS = tuple(Variable(f"x[{j}]", j) for j in range(4))
KNOWN = Variable("u", 4, role="input")
RELATIONS: list[Relation] = ["<=", "<=", "<=", "<", "=="]


@st.composite
def linears(draw: st.DrawFn) -> Linear:
    chosen = draw(st.lists(st.sampled_from(OUTPUTS), unique=True))
    return Linear.total({v: draw(fractions) for v in chosen}, draw(fractions))


@given(linears())
def test_whole_coefficients_are_the_coefficients(linear: Linear) -> None:
    whole, unit = linear.whole
    assert [Fraction(c, unit) for c in whole] == [c for _, c in linear.summands]
    assert gcd(unit, *whole) == 1
    assert linear.symbols == tuple(symbol for symbol, _ in linear.summands)


@given(linears(), fractions)
def test_equal_expressions_have_equal_hashes(linear: Linear, number: Fraction) -> None:
    other = Linear(linear.summands, linear.constant) + number - number
    assert other == linear
    assert hash(other) == hash(linear)


@given(linears())
def test_the_negation_is_the_product_with_minus_one(linear: Linear) -> None:
    assert -linear == linear * -1
    assert linear + -linear == Linear()


def test_rows_of_one_variable_share_what_is_made_of_it() -> None:
    x = Linear.of(OUTPUTS[0])
    assert Linear.of(Variable("x[0]", 0)) is x
    assert (x + 1).summands is (x - Fraction(7, 2)).summands
    assert (-x + 1).summands is (-(x + 5)).summands


@given(linears().filter(lambda linear: bool(linear.summands)))
def test_left_sides_are_coprime_and_begin_above_zero(linear: Linear) -> None:
    (names, numbers), factor = _left_of(Atom(linear, "<="))
    assert names == linear.symbols
    assert [c * factor for _, c in linear.summands] == list(numbers)
    assert numbers[0] > 0
    assert gcd(*numbers) == 1


def test_symbols_inside_of_others_are_found() -> None:
    x, y = map(Linear.of, OUTPUTS[:2])
    parts = (
        Max((x, y)),
        Apply("f", (x,)),
        Product(KNOWN, OUTPUTS[0]),
    )
    for part in parts:
        atom = Atom(Linear.of(part) - y, "<=")
        assert not atom.linear.is_plain
        assert set(symbols(atom)) == set(walk(atom)) - {atom}
    assert Atom(x - y, "<=").linear.is_plain


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=12))
def test_components_do_not_depend_on_when_all_is_joined(items: list[list[int]]) -> None:
    """Keys beyond those that are given keep several trees; without them all may become one."""
    keys = range(6)
    found = components(keys, items, keys_of=lambda item: item)
    more = components(range(8), items, keys_of=lambda item: [k for k in item if k < 6])
    assert [c for c in more if not set(c.keys) & {6, 7}] == found


@given(st.sampled_from(list(FORMATS.values())), st.data())
def test_whole_numbers_are_rounded_as_others_are(
    form: Format, data: st.DataObject
) -> None:
    most = 2 ** (form.precision + 2)
    number = Fraction(data.draw(st.integers(-most, most)))
    below = form.down(number)
    assert form.representable(below)
    assert below <= number
    assert below == number or form.next_up(below) > number
    assert (below == number) == form.representable(number)
    assert form.up(number) == -form.down(-number)


@st.composite
def terms(draw: st.DrawFn) -> Term:
    """Mostly boxes; some rows tie outputs, are equalities, or speak of an input."""
    rows = []
    for _ in range(draw(st.integers(0, 6))):
        symbol = draw(st.sampled_from([*OUTPUTS, *OUTPUTS, *OUTPUTS, KNOWN]))
        linear = Linear.of(symbol) * draw(fractions.filter(bool)) + draw(fractions)
        if draw(st.integers(0, 9)) == 0:
            linear = linear + Linear.of(OUTPUTS[0])
        relation = draw(st.sampled_from(RELATIONS))
        if linear.summands:
            rows.append(Atom(linear, relation))
    return Term(tuple(rows))


def parts(term: Term, form: str) -> tuple[Part, ...] | str:
    try:
        return split.parts_of(term, OUTPUTS, form)
    except (MultiplexError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=200, deadline=None)
@given(terms(), st.sampled_from(list(FORMATS)))
def test_a_box_is_what_the_long_way_makes_of_it(term: Term, form: str) -> None:
    found = parts(term, form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "_plain_box", lambda *_: None)
        assert found == parts(term, form)


@given(
    small.filter(bool),
    small,
    st.sampled_from(["<=", "<"]),
    st.sampled_from(list(FORMATS)),
)
def test_an_end_is_the_last_number_that_obeys(
    coefficient: Fraction, constant: Fraction, relation: Relation, name: str
) -> None:
    form = FORMATS[name]
    row = Atom(Linear.of(OUTPUTS[0]) * coefficient + constant, relation)
    box = interval_box({OUTPUTS[0]: [row]}, form)
    end = box.upper[0] if coefficient > 0 else box.lower[0]
    assert end is not None
    assert form.representable(end)
    beyond = form.next_up(end) if coefficient > 0 else form.next_down(end)
    assert holds(row, {OUTPUTS[0]: end})
    assert not holds(row, {OUTPUTS[0]: beyond})


def test_the_only_box_of_a_term_is_taken_as_it_is() -> None:
    box = Box(OUTPUTS, (None,) * 4, (Fraction(1),) * 4)
    half = Box(OUTPUTS[:2], (Fraction(0),) * 2, (None,) * 2)
    columns, boxes = _boxes([[box], [half]], OUTPUTS)
    assert columns == [0, 1, 2, 3]
    assert boxes[0] is box
    assert boxes[1] == Box(OUTPUTS, (*half.lower, None, None), (None,) * 4)


@given(st.lists(linears(), min_size=1, max_size=5))
def test_matrices_hold_the_float_next_to_each_coefficient(rows: list[Linear]) -> None:
    A, b = witness._matrix(rows, OUTPUTS)
    wanted = [[float(row.coefficient(v)) for v in OUTPUTS] for row in rows]
    assert np.array_equal(A, wanted)
    assert np.array_equal(b, [float(row.constant) for row in rows])


def test_numbers_that_floats_do_not_hold_leave_a_doubt() -> None:
    x, y = map(Linear.of, OUTPUTS[:2])
    A, _ = witness._matrix([x * 10**400 + y * 3], OUTPUTS)
    assert np.isnan(A[0, 0])
    assert A[0, 1] == 3


@given(
    st.lists(linears().filter(lambda row: bool(row.summands)), min_size=1, max_size=8),
    st.lists(
        st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=1, max_size=3
    ),
)
def test_signs_without_zeros_are_those_with_them(
    rows: list[Linear], points: list[list[float]]
) -> None:
    wanted = witness.signs(rows, OUTPUTS, np.array(points))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witness, "LARGE", 0)
        patch.setattr(witness, "SPARSE", 1.0)
        assert np.array_equal(witness.signs(rows, OUTPUTS, np.array(points)), wanted)


@pytest.mark.parametrize("end", [np.inf, -np.inf, np.nan])
def test_without_zeros_points_without_end_leave_a_doubt(
    end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "LARGE", 0)
    monkeypatch.setattr(witness, "SPARSE", 1.0)
    rows = [Linear.of(OUTPUTS[0]) - 1, Linear.of(OUTPUTS[1]) - 1]
    points = np.array([[0.0, end, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]])
    assert witness.signs(rows, OUTPUTS, points).tolist() == [[0, 0], [-1, 1]]


@given(st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=4), max_size=8))
def test_without_zeros_the_same_rows_are_needed(rows: list[list[int]]) -> None:
    around = [
        Linear.total(dict(zip(OUTPUTS, map(Fraction, row), strict=True)), -1)
        for row in rows
        if any(row)
    ]
    linears = witness.Inequalities((*around, -Linear.of(OUTPUTS[0]) - 1))
    centre = np.zeros(len(linears.symbols))
    wanted = linears.needed(centre)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witness, "LARGE", 0)
        patch.setattr(witness, "SPARSE", 1.0)
        assert np.array_equal(linears.needed(centre), wanted)


def test_rows_of_a_few_variables_are_not_spelled_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 60
    entries = [*([(j, -1)] for j in range(n)), [(j, 1) for j in range(n)]]
    rows = Rows.sparse(entries, [0] * n + [1], None, n)
    dense = [[dict(own).get(j, 0) for j in range(n)] for own in entries]
    assert rows == Rows.of(dense, [0] * n + [1])
    assert tuple(map(tuple, dense)) == rows.A
    monkeypatch.setattr(exact_rows, "_with_zeros", None)
    fresh = Rows.sparse(entries, [0] * n + [1], None, n)
    both = fresh + fresh.reversed()
    assert both.subset(range(n + 1)) == fresh
    assert find_anchor(fresh, FORMATS["float32"]) is not None
