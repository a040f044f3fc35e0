"""Geometry of one term against exact oracles: fractions for points, z3 for statements about sets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import sympy  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiplexnet.compiler.terms import Term
from multiplexnet.errors import (
    CyclicFunctionError,
    EliminationError,
    EqualityError,
    ThinTermError,
    UnboundableError,
)
from multiplexnet.exact import lp, simplex
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.exact.hermite import NotDyadic, solutions
from multiplexnet.exact.propagation import ranges
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry import polyhedron
from multiplexnet.geometry.anchors import THIN, anchor, clearance
from multiplexnet.geometry.elimination import ROW_BUDGET, triangular
from multiplexnet.geometry.lattice import grid_clearance
from multiplexnet.geometry.parts import (
    Bound,
    Box,
    Lattice,
    Parametric,
    Part,
    Polyhedron,
)
from multiplexnet.geometry.split import parts_of
from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Formula,
    Linear,
    Symbol,
    Variable,
    conjunction,
)
from multiplexnet.language.formula import variables as variables_of
from multiplexnet.language.parser.parse import parse
from multiplexnet.smt.questions import implies, satisfiable
from multiplexnet.transforms.lattice import independent

formats = pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
Point = tuple[Fraction, ...]

# --- formats --------------------------------------------------------------------------------------------------------

NUMPY: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
}
numbers = st.one_of(
    st.fractions(-10, 10),
    st.floats(allow_nan=False, allow_infinity=False).map(Fraction),
    st.floats(width=16, allow_nan=False, allow_infinity=False).map(Fraction),
)


@pytest.mark.parametrize("name", NUMPY)
@example(value=Fraction(1, 2**1023))
@given(value=numbers)
def test_rounding_agrees_with_numpy(name: str, value: Fraction) -> None:
    form = FORMATS[name]
    value = Fraction(float(value))
    if abs(value) > form.max:
        return
    if form.keeps_subnormals or abs(value) >= form.tiny:
        assert form.rounded(value) == Fraction(float(NUMPY[name](float(value))))
    else:  # zero or the smallest normal number, whichever is nearer
        assert form.rounded(value) == (abs(value) > form.tiny / 2) * form.tiny * (
            1 if value > 0 else -1
        )


@formats
@given(value=numbers)
def test_directed_rounding_encloses(form: Format, value: Fraction) -> None:
    if abs(value) >= form.max:
        return
    down, up = form.down(value), form.up(value)
    assert form.representable(down)
    assert form.representable(up)
    assert down <= value <= up
    assert (down == up) == form.representable(value)
    assert form.rounded(value) in (down, up)
    assert form.next_up(value) > value >= form.next_down(form.next_up(value))
    if down != up:
        assert form.next_up(down) == up


@formats
def test_the_ends_of_a_format(form: Format) -> None:
    assert form.representable(form.max)
    assert not form.representable(form.tiny / 2)
    assert form.next_up(Fraction(0)) == form.tiny
    assert form.down(form.max * 2) == form.max
    with pytest.raises(OverflowError, match=form.name):
        form.up(form.max * 2)
    with pytest.raises(OverflowError):
        form.next_up(form.max)


# --- exact systems against z3 ---------------------------------------------------------------------------------------

coefficients = st.integers(-3, 3)
bounds = st.one_of(
    st.integers(-3, 4).map(Fraction), st.fractions(-2, 3, max_denominator=4)
)


@st.composite
def systems(draw: st.DrawFn, most_variables: int = 3, most_rows: int = 6) -> Rows:
    n = draw(st.integers(1, most_variables))
    m = draw(st.integers(1, most_rows))
    A = draw(
        st.lists(st.lists(coefficients, min_size=n, max_size=n), min_size=m, max_size=m)
    )
    b = draw(st.lists(bounds, min_size=m, max_size=m))
    strict = draw(st.lists(st.booleans(), min_size=m, max_size=m))
    return Rows.of(A, b, strict, n=n)


def variables(n: int) -> list[Variable]:
    return [Variable(f"x[{j}]", j) for j in range(n)]


def atoms(rows: Rows) -> list[Atom]:
    names = variables(rows.n)
    return [
        Atom(
            Linear.total(dict(zip(names, map(Fraction, a), strict=True)), -b),
            "<" if strict else "<=",
        )
        for a, b, strict in zip(rows.A, rows.b, rows.strict, strict=True)
    ]


def formula(rows: Rows) -> Formula:
    return conjunction(atoms(rows))


@given(rows=systems())
@settings(max_examples=60, deadline=None)
def test_emptiness_agrees_with_z3(rows: Rows) -> None:
    assert polyhedron.is_empty(rows) == (satisfiable(formula(rows)) is None)


@given(rows=systems())
@settings(max_examples=60, deadline=None)
def test_implicit_equalities_agree_with_z3(rows: Rows) -> None:
    if polyhedron.is_empty(rows):
        return
    tight = [
        i
        for i, atom in enumerate(atoms(rows))
        if implies(formula(rows), Atom(-atom.linear, "<="), variables(rows.n))
    ]
    assert polyhedron.implicit_equalities(rows) == tuple(tight)


@given(rows=systems())
@settings(max_examples=60, deadline=None)
def test_redundant_rows_are_implied_by_the_rest(rows: Rows) -> None:
    kept = polyhedron.without_redundant(rows)
    assert implies(formula(kept), formula(rows), variables(rows.n))
    if polyhedron.is_empty(rows):
        return
    for i in range(len(kept)):
        others = kept.subset(k for k in range(len(kept)) if k != i)
        assert not implies(formula(others), atoms(kept)[i], variables(rows.n))


@given(
    rows=systems(),
    objective=st.lists(coefficients, min_size=3, max_size=3),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_simplex_proves_its_answer(
    rows: Rows, objective: list[int], data: st.DataObject
) -> None:
    c = objective[: rows.n]
    prefer = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    closed = Rows(rows.entries, rows.b, (False,) * len(rows), rows.n)
    best = simplex.maximise(c, closed, prefer=prefer)
    if best.status == "infeasible":
        assert satisfiable(formula(closed)) is None
        return
    assert closed.contains(best.point)
    if best.status == "unbounded":
        goal = Linear.total(dict(zip(variables(rows.n), map(Fraction, c), strict=True)))
        assert (
            satisfiable(
                conjunction([formula(closed), Atom(-goal + 10**6, "<=")]),
                variables(rows.n),
            )
            is not None
        )
        return
    y = best.multipliers
    assert all(v >= 0 for v in y)
    assert (
        sum((ci * x for ci, x in zip(c, best.point, strict=True)), Fraction(0))
        == best.value
    )
    assert (
        sum((v * b for v, b in zip(y, rows.b, strict=True)), Fraction(0)) == best.value
    )
    assert [
        sum((v * a[j] for v, a in zip(y, rows.A, strict=True)), Fraction(0))
        for j in range(rows.n)
    ] == c


@given(rows=systems(most_variables=4))
@settings(max_examples=50, deadline=None)
def test_ranges_enclose_the_set(rows: Rows) -> None:
    for variable, (low, high) in zip(variables(rows.n), ranges(rows), strict=True):
        if low is not None:
            assert implies(
                formula(rows), Atom(-Linear.of(variable) + low, "<="), variables(rows.n)
            )
        if high is not None:
            assert implies(
                formula(rows), Atom(Linear.of(variable) - high, "<="), variables(rows.n)
            )


# --- anchors --------------------------------------------------------------------------------------------------------


def unit(n: int, j: int, value: int = 1) -> list[int]:
    return [value if i == j else 0 for i in range(n)]


def simplex_rows(n: int) -> Rows:
    return Rows.of([unit(n, j, -1) for j in range(n)] + [[1] * n], [0] * n + [1])


def chain(n: int) -> Rows:
    return Rows.of(
        [[int(i == j) - int(i + 1 == j) for j in range(n)] for i in range(n - 1)],
        [0] * (n - 1),
    )


def random_polytope(n: int, m: int, offset: int = 0) -> Rows:
    draw = random.Random(n * 1000 + m)
    A = [
        [Fraction(round(draw.gauss(0, 1) * 1000), 1000) for _ in range(n)]
        for _ in range(m)
    ]
    return Rows.of(
        A, [Fraction(draw.randint(1000, 2000), 1000) + sum(a) * offset for a in A]
    )


def slab(width: Fraction | int, offset: int = 0) -> Rows:
    """``0 ≤ x − y ≤ width`` with x + y in a unit interval around ``2 · offset``."""
    return Rows.of(
        [[1, -1], [-1, 1], [1, 1], [-1, -1]], [width, 0, 2 * offset + 1, 1 - 2 * offset]
    )


MICRO = Fraction(1, 10**6)
ALL = frozenset(FORMATS)
SETS: dict[str, tuple[Rows, frozenset[str]]] = {
    "triangle": (simplex_rows(2), ALL),
    "simplex 20": (simplex_rows(20), ALL),
    "simplex 50": (simplex_rows(50), ALL),
    "chain 20": (chain(20), ALL),
    "random 3/8": (random_polytope(3, 8), ALL),
    "random 10/30": (random_polytope(10, 30), ALL),
    "random 50/200": (random_polytope(50, 200), ALL),
    "random far away": (
        random_polytope(10, 30, offset=1000),
        ALL - {"bfloat16", "float16"},
    ),
    "random very far away": (
        random_polytope(10, 30, offset=10**6),
        frozenset({"float64", "float32"}),
    ),
    "cone": (Rows.of([[-1, 2], [2, -5]], [0, 0]), ALL),
    "wedge": (Rows.of([[0, -1], [-MICRO, 1]], [0, 0]), ALL),
    "thin": (slab(MICRO), ALL),
    "very thin": (slab(MICRO**2), ALL - {"float16"}),
    "thin far away": (slab(MICRO, offset=10**6), frozenset({"float64"})),
    "half plane": (Rows.of([[1, 1]], [-5]), ALL),
    "far half plane": (Rows.of([[-1, -1]], [-(10**6)]), ALL - {"float16"}),
    "strip": (Rows.of([[1, -1], [-1, 1]], [1000, 0]), ALL),
    "tiny triangle": (
        Rows.of([[-1, 0], [0, -1], [1, 1]], [0, 0, MICRO / 1000]),
        ALL - {"float16"},
    ),
    "mixed scales": (
        Rows.of([[10**8, 1], [1, 10**8], [-1, 0], [0, -1]], [10**8, 10**8, 0, 0]),
        ALL,
    ),
    "tiny coefficient": (Rows.of([[MICRO**5, 1], [-1, 0], [0, -1]], [1, 0, 0]), ALL),
    "plane": (Rows.of([], [], n=2), ALL),
}


@formats
@pytest.mark.parametrize("name", SETS)
def test_anchors_are_representable_and_strictly_inside(name: str, form: Format) -> None:
    rows, fits = SETS[name]
    if form.name not in fits:
        wider = next(
            f
            for f in sorted(FORMATS.values(), key=lambda f: f.precision)
            if f.name in fits
        )
        with pytest.raises(ThinTermError) as caught:
            anchor(rows, form)
        assert caught.value.dtype == form.name
        assert caught.value.wider is not None
        assert caught.value.wider in fits
        assert (
            FORMATS[caught.value.wider].precision >= wider.precision
            or caught.value.wider == wider.name
        )
        return
    point = anchor(rows, form)
    assert rows.contains_strictly(point)
    assert all(map(form.representable, point))
    judged = clearance(rows, point, form)
    assert judged is not None
    assert judged < THIN
    assert max(map(abs, point)) <= 4 * 10**6  # not somewhere at the end of the format


def test_what_a_thin_set_says() -> None:
    with pytest.raises(ThinTermError) as caught:
        anchor(slab(MICRO, offset=10**6), FORMATS["float32"], names=["a", "b"])
    assert str(caught.value).splitlines()[:2] == [
        "these rows are too thin for float32 (float64 would do):",
        "    a - b <= 0.000001",
    ]
    with pytest.raises(ThinTermError, match="no wider dtype would do either"):
        anchor(slab(Fraction(1, 10**30), offset=10**6), FORMATS["float32"])


@given(rows=systems())
@settings(max_examples=60, deadline=None)
def test_a_full_dimensional_set_of_moderate_size_has_an_anchor(rows: Rows) -> None:
    rows = rows.subset(i for i, a in enumerate(rows.A) if any(a))
    if not polyhedron.is_empty(rows) and not polyhedron.implicit_equalities(rows):
        point = anchor(rows, FORMATS["float32"])
        assert rows.contains_strictly(point)
        assert all(map(FORMATS["float32"].representable, point))


# --- equations ------------------------------------------------------------------------------------------------------


@given(
    E=st.lists(
        st.lists(st.integers(-5, 5), min_size=4, max_size=4), min_size=1, max_size=3
    ),
    x=st.lists(st.fractions(-5, 5, max_denominator=8), min_size=4, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_solutions_of_equations(E: list[list[int]], x: list[Fraction]) -> None:
    e = [sum((a * v for a, v in zip(row, x, strict=True)), Fraction(0)) for row in E]
    dyadic = all(v.denominator in (1, 2, 4, 8) for v in x)
    try:
        found = solutions(E, e)
    except NotDyadic:
        assert not dyadic
        return
    times = [
        [
            sum(a * found.basis[i][j] for i, a in enumerate(row))
            for j in range(found.dimension)
        ]
        for row in E
    ]
    assert not any(c for row in times for c in row)
    assert [
        sum(a * v for a, v in zip(row, found.origin, strict=True)) for row in E
    ] == e
    assert found.dimension == 4 - sympy.Matrix(E).rank()
    assert all(v.denominator & (v.denominator - 1) == 0 for v in found.origin)
    if (
        dyadic
    ):  # the denominator is the smallest there is, and every dyadic solution is reached
        assert max(v.denominator for v in found.origin) <= max(v.denominator for v in x)
        _coordinates(found.basis, [v - o for v, o in zip(x, found.origin, strict=True)])


def _coordinates(basis: Sequence[Sequence[int]], difference: list[Fraction]) -> None:
    """The difference is a dyadic combination of the basis, with denominators that it has itself."""
    size = max((v.denominator for v in difference), default=1)
    k = len(basis[0])
    if k == 0:
        assert not any(difference)
        return
    gram = [[sum(row[i] * row[j] for row in basis) for j in range(k)] for i in range(k)]
    right = [
        sum(
            (row[i] * v * size for row, v in zip(basis, difference, strict=True)),
            Fraction(0),
        )
        for i in range(k)
    ]
    t = sympy.Matrix(gram).LUsolve(sympy.Matrix([int(v) for v in right]))
    assert all(v.is_integer for v in t)


def test_a_dense_system_keeps_small_numbers() -> None:
    draw = random.Random(0)
    E = [[draw.randint(-9, 9) for _ in range(20)] for _ in range(6)]
    found = solutions(E, [Fraction(sum(row)) for row in E])
    assert max(abs(c) for row in found.basis for c in row) <= 10
    assert max(map(abs, found.origin)) <= 100


# --- parts of terms -------------------------------------------------------------------------------------------------


def conjuncts(node: Formula) -> list[Atom]:
    if isinstance(node, And):
        return [atom for argument in node.arguments for atom in conjuncts(argument)]
    assert isinstance(node, Atom)
    return [node]


def parts(text: str, form: str = "float32") -> tuple[Part, ...]:
    specification = parse(text)
    return parts_of(
        Term(tuple(conjuncts(specification.formula))), specification.outputs, form
    )


def only(text: str, form: str = "float32") -> Part:
    (part,) = parts(text, form)
    return part


def names(part: Part) -> list[str]:
    return [v.name for v in part.outputs]


def test_a_box_collects_what_nothing_ties() -> None:
    box = only(
        "a: real; b: real; c: real; d: real\n0.1 <= a < 0.5\nb == 2\nc > 3 - b\n",
        "float16",
    )
    assert isinstance(box, Box)
    assert names(box) == ["a", "b", "c", "d"]
    half = FORMATS["float16"]
    assert box.lower == (
        half.up(Fraction(1, 10)),
        Fraction(2),
        half.next_up(Fraction(1)),
        None,
    )
    assert box.upper == (half.next_down(Fraction(1, 2)), Fraction(2), None, None)


@formats
def test_box_bounds_are_the_last_numbers_inside(form: Format) -> None:
    box = only("x: real\n0.1 < x < 0.7\n-1e300 < x < 1e300", form.name)
    assert isinstance(box, Box)
    (low,), (high,) = box.lower, box.upper
    assert low is not None
    assert high is not None
    assert form.next_down(low) <= Fraction(1, 10) < low
    assert high < Fraction(7, 10) <= form.next_up(high)


def test_discrete_outputs_are_constants() -> None:
    specification = parse('mode: {"slow", "fast"}; x: real\nx >= 0')
    mode, x = specification.outputs
    term = Term((Atom(-Linear.of(x) + Linear.of(mode), "<="),), ((mode, Fraction(1)),))
    (box,) = parts_of(term, specification.outputs, "float32")
    assert isinstance(box, Box)
    assert box.lower == (Fraction(1), Fraction(1))
    assert box.upper == (Fraction(1), None)


def test_groups_become_parts_of_their_own() -> None:
    found = parts(
        "x: real[7]\nx[0] < x[1]\nx[2] + x[3] == 1; x[2] >= 0; x[3] >= 0\nx[4] <= 5\nx[5] + 2*x[6] <= 1"
    )
    assert [type(part) for part in found] == [Box, Polyhedron, Lattice, Polyhedron]
    assert [names(part) for part in found] == [
        ["x[4]"],
        ["x[0]", "x[1]"],
        ["x[2]", "x[3]"],
        ["x[5]", "x[6]"],
    ]


def test_errors_of_constants_name_the_row_and_the_way_out() -> None:
    with pytest.raises(
        EqualityError,
        match=r"no binary float meets this equality.*nearest(.|\n)*x == 0\.1",
    ):
        parts("x == 0.1")
    with pytest.raises(
        EqualityError, match="float32 does not hold this number exactly, float64 would"
    ):
        parts("x == 16777217")
    with pytest.raises(
        ThinTermError, match=r"too thin for float16 \(float32 would do\)"
    ):
        parts("0.1 < x < 0.1000001", "float16")
    with pytest.raises(
        ThinTermError,
        match=r"too thin for float16 \(bfloat16 would do\)|\(float32 would do\)",
    ):
        parts("x > 1e6", "float16")


def test_an_empty_term_is_no_part() -> None:
    with pytest.raises(ValueError, match="the term is empty"):
        parts("x < y; y < z; z < x")


# --- lattices -------------------------------------------------------------------------------------------------------

LATTICES = {
    "ten weights": "w: real[10]\nall(0 <= w[i] for i in range(10))\nsum(w) == 1",
    "twenty positive weights": "w: real[20]\nall(0 < w[i] for i in range(20))\nsum(w) == 1",
    "capped": "w: real[4]\nall(0 <= v <= 0.4 for v in w)\nsum(w) == 1",
    "line": "x + y == 1",
    "ratio": "2*x == 3*y\n0 <= x <= 10",
    "balance": "x: real[4]\nx[0] + x[1] == x[2] + x[3]\nall(0 <= v <= 100 for v in x)",
    "two equalities": "x + 2*y + 4*z == 8.5\nx - y == 0.25\n0 < z < 1",
    "half open": "x + y + z == 100\nx >= 0\ny >= 0\nx <= y",
    "far away": "x + y + z == 3072\n1000 <= x <= 1048; 1000 <= y <= 1048; 1000 <= z <= 1048",
    "hidden": "x <= y; y <= x; 0 <= x <= 1",
    "large coefficients": "x + 1000*y == 500\n0 <= y <= 1",
}

TOO_THIN: set[tuple[str, str]] = set()


@formats
@pytest.mark.parametrize("name", LATTICES)
def test_every_point_of_the_grid_meets_the_equalities(name: str, form: Format) -> None:
    specification = parse(LATTICES[name])
    rows = conjuncts(specification.formula)
    if (name, form.name) in TOO_THIN:
        with pytest.raises(ThinTermError, match="would do"):
            parts_of(Term(tuple(rows)), specification.outputs, form)
        return
    (part,) = parts_of(Term(tuple(rows)), specification.outputs, form)
    assert isinstance(part, Lattice)
    inside = Rows.of(part.A, part.b, part.strict, n=len(part.anchor))
    judged = grid_clearance(inside, part.anchor, part.step)
    assert judged is not None
    assert judged < THIN
    double, met = FORMATS["float64"], 0
    for t in _grid_points(part, inside):
        assert max(map(abs, t)) <= part.bound
        x = []
        for origin, row in zip(part.origin, part.basis, strict=True):
            parts_of_sum = [origin, *(c * v for c, v in zip(row, t, strict=True))]
            for order in (parts_of_sum, sorted(parts_of_sum)):
                assert all(map(double.representable, accumulate(order)))
            x.append(sum(parts_of_sum, Fraction(0)))
        assert all(map(form.representable, x))
        point = dict(zip(part.outputs, x, strict=True))
        assert all(_holds(row, point) for row in rows)
        met += 1
    assert met >= 10


def _grid_points(part: Lattice, inside: Rows) -> list[Point]:
    """Points of the grid on rays from the anchor, as far out as the rows allow, those that satisfy all rows."""
    draw = random.Random(1)
    points: list[Point] = [part.anchor]
    slacks = inside.slacks(part.anchor)
    for _ in range(60):
        ray = [draw.choice([draw.gauss(0, 1), 0.0]) for _ in part.anchor]
        speeds = [sum(c * d for c, d in zip(a, ray, strict=True)) for a in inside.A]
        reach = min(
            (float(s) / v for s, v in zip(slacks, speeds, strict=True) if v > 0),
            default=1e30,
        )
        length = Fraction(reach * draw.choice([1.0, 0.999, 0.5]))
        points.append(
            tuple(
                a + round(length * Fraction(d) / part.step) * part.step
                for a, d in zip(part.anchor, ray, strict=True)
            )
        )
    return [t for t in points if inside.contains(t)]


def _holds(row: Atom, point: dict[Variable, Fraction]) -> bool:
    value = row.linear.constant + sum(
        (c * point[s] for s, c in row.linear.summands if isinstance(s, Variable)),
        Fraction(0),
    )
    return (
        value == 0
        if row.relation == "=="
        else value < 0
        if row.relation == "<"
        else value <= 0
    )


def test_weights_use_every_bit_of_the_format() -> None:
    steps = {
        name: only(LATTICES["ten weights"], name)
        for name in ("float32", "bfloat16", "float16")
    }
    assert {
        name: part.step for name, part in steps.items() if isinstance(part, Lattice)
    } == {
        "float32": Fraction(1, 2**24),
        "bfloat16": Fraction(1, 2**8),
        "float16": Fraction(1, 2**11),
    }


def test_equalities_that_leave_one_point_are_constants() -> None:
    box = only("x: real; y: real; z: real\nx + y == 1\nx - y == 0.5")
    assert isinstance(box, Box)
    assert box.lower == box.upper == (Fraction(3, 4), Fraction(1, 4), None)


@pytest.mark.parametrize(
    "text", ["3*x + 6*y == 1", "x + y == 0.3; x >= 0.1", "x + y == 1; x - y == 1/3"]
)
def test_equalities_without_a_binary_solution_are_refused(text: str) -> None:
    with pytest.raises(
        EqualityError,
        match=r'no binary float can meet this equality \(equality="nearest"',
    ) as caught:
        parts(text)
    assert len(caught.value.rows) == 1
    assert "==" in caught.value.rows[0]


def test_an_equality_too_fine_for_the_format_says_which_would_do() -> None:
    text = "x + y == 1.000000059604644775390625\n0 <= x <= 1; 0 <= y <= 1"  # 1 + 2^-24
    with pytest.raises(
        ThinTermError,
        match=r"too thin for bfloat16 \(float32 would do\)|\(float64 would do\)",
    ):
        parts(text, "bfloat16")
    assert isinstance(only(text, "float64"), Lattice)


# --- bounds known at run time ---------------------------------------------------------------------------------------


def affine(bound: Bound, x: Sequence[Fraction], u: Sequence[Fraction]) -> Fraction:
    terms = [
        *zip(bound.outputs, x, strict=True),
        *zip(bound.parameters, u, strict=True),
    ]
    return bound.constant + sum((c * v for c, v in terms), Fraction(0))


def chosen(
    lower: list[tuple[Fraction, bool]],
    upper: list[tuple[Fraction, bool]],
    draw: random.Random,
) -> Fraction:
    """A value between the bounds: an end where that is allowed, or something between."""
    low, high = (
        max(lower, default=None),
        min(upper, default=None, key=lambda pair: (pair[0], not pair[1])),
    )
    if low is None or high is None:
        far = Fraction(draw.choice([1, 1000]))
        return (
            Fraction(0)
            if low is high
            else low[0] + far
            if low is not None
            else high[0] - far
            if high
            else Fraction(0)
        )
    assert low[0] < high[0] or (low[0] == high[0] and not low[1] and not high[1])
    ends = [v for v, strict in (low, high) if not strict]
    inner = low[0] + (high[0] - low[0]) * Fraction(draw.randint(1, 99), 100)
    return draw.choice([*ends, inner])


def walk(
    part: Parametric, u: Sequence[Fraction], draw: random.Random
) -> list[Fraction]:
    x: list[Fraction] = []
    for step in part.steps:
        lower = [(affine(bound, x, u), bound.strict) for bound in step.lower]
        upper = [(affine(bound, x, u), bound.strict) for bound in step.upper]
        x.append(chosen(lower, upper, draw))
    return x


@given(rows=systems(most_variables=5, most_rows=7), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_any_choice_inside_the_steps_satisfies_all_rows(rows: Rows, seed: int) -> None:
    draw = random.Random(seed)
    known = [v for v in variables(rows.n) if v.index >= 3]
    outputs = [v for v in variables(rows.n) if v.index < 3]
    kept = [
        row for row in atoms(rows) if any(s in outputs for s, _ in row.linear.summands)
    ]
    if satisfiable(conjunction(kept)) is None:
        return
    part = triangular(outputs, kept)
    u = {v: Fraction(draw.randint(-4, 4), 2) for v in known}
    values = [u[s] for s in part.parameters if isinstance(s, Variable)]
    feasible = [
        affine(guard, (), values) < (0 if guard.strict else Fraction(1, 10**9))
        for guard in part.guards
    ]
    held = all(
        affine(guard, (), values) < 0
        if guard.strict
        else affine(guard, (), values) <= 0
        for guard in part.guards
    )
    fixed = conjunction([*kept, *(Atom(Linear.of(v) - c, "==") for v, c in u.items())])
    assert held == (satisfiable(fixed, variables(rows.n)) is not None), feasible
    if held:
        for _ in range(5):
            x = walk(part, values, draw)
            point = dict(zip(part.outputs, x, strict=True)) | u
            assert all(_holds(row, point) for row in kept)
            total = [
                sum(
                    (c * v for c, v in zip(a + p, [*x, *values], strict=True)),
                    Fraction(0),
                )
                for a, p in zip(part.A, part.P, strict=True)
            ]
            assert all(
                t < b if s else t <= b
                for t, b, s in zip(total, part.b, part.strict, strict=True)
            )


def test_inputs_leave_guards() -> None:
    part = only("x: real; low: input; high: input\nlow < x <= high")
    assert isinstance(part, Parametric)
    assert names(part) == ["x"]
    (guard,) = part.guards
    assert (
        affine(guard, (), [Fraction(1), Fraction(2)])
        < 0
        < affine(guard, (), [Fraction(2), Fraction(1)])
    )
    assert guard.strict


def test_rows_over_inputs_alone_are_a_part_without_outputs() -> None:
    box, part = parts("x: real; u: input\nx >= 0\nu <= 3")
    assert isinstance(box, Box)
    assert isinstance(part, Parametric)
    assert (part.outputs, part.steps, len(part.guards)) == ((), (), 1)


def test_constants_are_put_in_before_anything_else() -> None:
    box, part = parts("a: real; b: real; limit: input\na == 0\na + 2 <= b; b <= limit")
    assert isinstance(box, Box)
    assert isinstance(part, Parametric)
    assert (names(box), names(part)) == (["a"], ["b"])


def test_equalities_with_run_time_values_are_refused() -> None:
    with pytest.raises(EqualityError, match=r"not supported(.|\n)*x \+ y == total"):
        parts("x: real; y: real; total: input\nx + y == total")


def test_a_function_bounds_what_comes_after_its_arguments() -> None:
    early, late = parts(
        "x: real[3]; f: function\nx[2] > f(x[0], x[1]) + 1\nx[0] < x[1]"
    )
    assert isinstance(early, Polyhedron)
    assert isinstance(late, Parametric)
    assert names(late) == ["x[2]"]
    (function,) = late.parameters
    assert isinstance(function, Apply)
    assert late.guards == ()


def test_functions_of_functions_keep_their_order() -> None:
    text = "x: real; y: real; z: real; w: real; f: function\ny > f(x); z > f(y); z < w; 0 <= x <= 1"
    found = parts(text)
    assert names(found[0]) == ["x"]
    assert [names(part) for part in found[1:]] == [["y"], ["w", "z"]]
    _check_order(found)


def test_what_a_function_forces_on_earlier_outputs() -> None:
    found = parts(
        "x: real; y: real; z: real; f: function\nz > f(x); z < y; y >= 1; x <= 2"
    )
    assert [names(part) for part in found] == [["x"], ["y", "z"]]
    _check_order(found)
    late = found[1]
    assert isinstance(late, Parametric)
    draw = random.Random(0)
    for value in (Fraction(-5), Fraction(0), Fraction(1, 3), Fraction(10**6)):
        y, z = walk(late, [value], draw)
        assert value < z < y
        assert y >= 1


def _check_order(found: Sequence[Part]) -> None:
    known: set[Symbol] = set()
    for part in found:
        if isinstance(part, Parametric):
            for symbol in part.parameters:
                assert set(variables_of(symbol)) <= known
        known |= set(part.outputs)


@pytest.mark.parametrize(
    "rules",
    [
        "x > f(x)",
        "x > f(y); y > f(x)",
        "x > f(y); y > f(z); z > f(x)",
        "x >= f(x) + y; y <= 1",
    ],
)
def test_cycles_of_functions_are_refused(rules: str) -> None:
    text = f"x: real; y: real; z: real; f: function\n{rules}"
    if "+ y" in rules:  # y is not an argument: it can follow
        assert [names(part) for part in parts(text)][-1] == ["y"]
        return
    with pytest.raises(CyclicFunctionError, match=r"no order of computing(.|\n)*f\("):
        parts(text)


def test_a_function_value_cannot_be_promised() -> None:
    with pytest.raises(
        UnboundableError, match=r"which can be anything(.|\n)*f\(x\) < 5"
    ):
        parts("x: real; y: real; f: function\nf(x) < y; y < 5")
    part = only("y: real; u: input; f: function\nf(u) < y; y < 5")
    assert isinstance(part, Parametric)
    assert len(part.guards) == 1  # a function of inputs is known beforehand


def test_elimination_gives_up_in_words() -> None:
    draw = random.Random(5)
    outputs = [f"x[{j}]" for j in range(8)]
    lines = [
        " + ".join(f"{draw.randint(-9, 9)}*{name}" for name in outputs) + f" <= u + {i}"
        for i in range(60)
    ]
    with pytest.raises(EliminationError, match=rf"allowed: {ROW_BUDGET}"):
        parts("x: real[8]; u: input\n" + "\n".join(lines).replace("+ -", "- "))


# --- linear programs that were solved before ------------------------------------------------------------------------


def test_a_program_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    honest: Any = vars(lp)["linprog"]

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return honest(*arguments, **options)

    monkeypatch.setattr(lp, "linprog", counted)
    monkeypatch.setattr(lp, "_answers", {})
    monkeypatch.setattr(lp, "REMEMBERED_PROGRAMS", 2)
    A = np.array([[2.0], [-1.0]])
    goal = np.array([1.0])
    first = [lp.maximise(goal, A, np.array([3.0, k])) for k in (0.0, 1.0)]
    again = [lp.maximise(goal, A, np.array([3.0, k])) for k in (0.0, 1.0)]
    assert len(calls) == 2
    assert first == again
    lp.maximise(goal, A, np.array([3.0, 2.0]))  # there is room for two
    assert len(lp._answers) == 1
    assert again[0] is not None
    with pytest.raises(ValueError, match="read-only"):
        again[0][1][0] = 5.0


@given(
    st.integers(1, 5).flatmap(
        lambda d: st.lists(
            st.lists(
                st.integers(-3, 3) | st.integers(-(2**40), 2**40),
                min_size=d,
                max_size=d,
            ),
            min_size=d,
            max_size=8,
        )
    )
)
def test_the_first_independent_rows_are_those_that_raise_the_rank(
    basis: list[list[int]],
) -> None:
    chosen: list[int] = []
    for i in range(len(basis)):
        if sympy.Matrix([basis[j] for j in [*chosen, i]]).rank() > len(chosen):
            chosen.append(i)
    assert independent(basis) == chosen
