"""The corpus: named formulas and what is known of each, shared by all tests.

``by_name("paper_interval")`` gives one; ``CASES`` are all of them. Points are exact and name every variable; a Boolean
is 0 or 1, a category the position of its label. Opaque functions mean what ``FUNCTIONS`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["CASES", "FUNCTIONS", "Case", "by_name"]

Point = Mapping[str, int | Fraction]

FUNCTIONS: Mapping[str, Callable[..., Fraction]] = {
    "h": lambda x: x * x,
    "f": lambda x, y: x * y - 1,
}


@dataclass(frozen=True)
class Case:
    """A text and what is known of it.

    Args:
        name: unique.
        text: the rules.
        satisfiable: whether some output obeys (for some input).
        terms: terms of an irredundant disjunctive normal form of the whole, discrete outputs fixed in each (the
            product over blocks); ``None`` where thought does not give it.
        bounded: whether the outputs that obey lie in a ball, for each input; ``None`` where nothing obeys or inputs
            decide.
        inside: a point that obeys.
        outside: a point that does not (within the domains of discrete variables).
    """

    name: str
    text: str
    satisfiable: bool = True
    terms: int | None = None
    bounded: bool | None = None
    inside: Point | None = None
    outside: Point | None = None


def by_name(name: str) -> Case:
    return _BY_NAME[name]


def _vector(name: str, *values: int | Fraction) -> Point:
    return {f"{name}[{i}]": value for i, value in enumerate(values)}


def _eight_boxes() -> str:
    """Four boxes along the axes and four turned by 45°, apart from each other."""
    upright = [
        f"{x - 1} <= x <= {x + 1} and {y - 1} <= y <= {y + 1}"
        for x in (-3, 3)
        for y in (-3, 3)
    ]
    turned = [
        f"{s} - 1.25 <= x + y <= {s} + 1.25 and {d} - 4/3 <= x - y <= {d} + 4/3"
        for s, d in ((8, 8), (8, -8), (-8, 8), (-8, -8))
    ]
    return " or ".join(f"({box})" for box in [*upright, *turned])


_PAPER = (
    Case(
        "paper_two_sided",
        "x >= 2 or x <= -2",
        terms=2,
        bounded=False,
        inside={"x": 2},
        outside={"x": 0},
    ),
    Case(
        "paper_interval",
        "-1.5 < x < 4",
        terms=1,
        bounded=True,
        inside={"x": 0},
        outside={"x": 4},
    ),
    Case(
        "paper_function_bound",
        "x1: real; x2: real; h: function\nx2 > h(x1)",
        terms=1,
        bounded=False,
        inside={"x1": 2, "x2": 5},
        outside={"x1": 2, "x2": 4},
    ),
    Case(
        "paper_constant",
        "x == 0.75",
        terms=1,
        bounded=True,
        inside={"x": Fraction(3, 4)},
        outside={"x": 0},
    ),
    Case(
        "paper_sum_or",
        "(x + y >= z) and (z > 5 or z < 3)",
        terms=2,
        bounded=False,
        inside={"x": 3, "y": 3, "z": 6},
        outside={"x": 9, "y": 9, "z": 4},
    ),
    Case(
        "paper_coupled",
        "x > y + 2 and x < 5",
        terms=1,
        bounded=False,
        inside={"x": 4, "y": 1},
        outside={"x": 4, "y": 2},
    ),
    Case(
        "paper_eight_boxes",
        _eight_boxes(),
        terms=8,
        bounded=True,
        inside={"x": 8, "y": 0},
        outside={"x": 0, "y": 0},
    ),
    Case(
        "paper_mnist_addition",
        "y: int[0, 9][4]\ny[0] + y[1] == 10*y[2] + y[3]",
        terms=100,
        bounded=True,
        inside=_vector("y", 7, 5, 1, 2),
        outside=_vector("y", 7, 5, 1, 3),
    ),
    Case(
        "paper_super_classes",
        "p: real[6]\nall(v >= 0 for v in p)\nsum(p) == 1\nany(sum(p[2*k:2*k + 2]) >= 0.95 for k in range(3))",
        terms=3,
        bounded=True,
        inside=_vector("p", 1, 0, 0, 0, 0, 0),
        outside=_vector("p", *[Fraction(1, 6)] * 6),
    ),
)

_DESIGN = (
    Case(
        "design_actuator",
        "a: real; b: real                    # outputs\n"
        "limit: input                        # known at run time, one value per row\n"
        "a == 0 or 200 < a < 400\n"
        "implies(a > 0, b >= a + 2)\n"
        "b <= limit",
        terms=2,
        bounded=False,
        inside={"a": 300, "b": 310, "limit": 320},
        outside={"a": 300, "b": 310, "limit": 305},
    ),
    Case(
        "off_or_on",
        "a == 0 or 200 < a < 400",
        terms=2,
        bounded=True,
        inside={"a": 0},
        outside={"a": 200},
    ),
    Case(
        "twenty_two_sided",
        "x: real[20]\nall(v <= -1 or v >= 1 for v in x)",
        terms=2**20,
        bounded=False,
        inside=_vector("x", *[1, -1] * 10),
        outside=_vector("x", *[1] * 19, 0),
    ),
    Case(
        "if_fast_then_low",
        'mode: {"slow", "fast"}; pressure: real\nlimit: input[1, 100]\n'
        'pressure >= 0\nimplies(mode == "fast", pressure <= limit)',
        terms=2,
        bounded=False,
        inside={"mode": 1, "pressure": 3, "limit": 4},
        outside={"mode": 1, "pressure": 5, "limit": 4},
    ),
)

_POLYHEDRA = (
    Case(
        "half_line",
        "x >= 1/3",
        terms=1,
        bounded=False,
        inside={"x": 1},
        outside={"x": 0},
    ),
    Case(
        "open_half_line",
        "x > 0",
        terms=1,
        bounded=False,
        inside={"x": 1},
        outside={"x": 0},
    ),
    Case(
        "box",
        "0 <= x <= 1\n-1 < y < 2",
        terms=1,
        bounded=True,
        inside={"x": 0, "y": 0},
        outside={"x": 0, "y": 2},
    ),
    Case(
        "half_open_box",
        "0 <= x < 1 and 0 < y <= 1",
        terms=1,
        bounded=True,
        inside={"x": 0, "y": 1},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "triangle",
        "x >= 0; y >= 0; x + y <= 1",
        terms=1,
        bounded=True,
        inside={"x": 0, "y": 1},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "wedge",
        "y >= 2*x - 1\ny <= 3*x + 1",
        terms=1,
        bounded=False,
        inside={"x": 0, "y": 0},
        outside={"x": -5, "y": 0},
    ),
    Case(
        "strip",
        "-1 <= x - y <= 1",
        terms=1,
        bounded=False,
        inside={"x": 7, "y": 7},
        outside={"x": 2, "y": 0},
    ),
    Case(
        "simplex",
        "w: real[4]\nall(v >= 0 for v in w)\nsum(w) == 1",
        terms=1,
        bounded=True,
        inside=_vector("w", *[Fraction(1, 4)] * 4),
        outside=_vector("w", *[Fraction(1, 3)] * 4),
    ),
    Case(
        "capped_simplex",
        "w: real[4]\nall(0 <= v <= 0.4 for v in w)\nsum(w) == 1",
        terms=1,
        bounded=True,
        inside=_vector("w", *[Fraction(1, 4)] * 4),
        outside=_vector("w", Fraction(1, 2), Fraction(1, 2), 0, 0),
    ),
    Case(
        "chain_of_five",
        "q: real[5]\nall(q[i] <= q[i + 1] for i in range(4))",
        terms=1,
        bounded=False,
        inside=_vector("q", 0, 0, 1, 2, 3),
        outside=_vector("q", 0, 1, 0, 2, 3),
    ),
    Case(
        "strict_chain",
        "a < b < c",
        terms=1,
        bounded=False,
        inside={"a": 0, "b": 1, "c": 2},
        outside={"a": 0, "b": 0, "c": 2},
    ),
    Case(
        "l1_ball",
        "abs(x) + abs(y) + abs(z) <= 1",
        bounded=True,
        inside={"x": 0, "y": Fraction(-1, 2), "z": Fraction(1, 2)},
        outside={"x": 1, "y": -1, "z": 0},
    ),
    Case(
        "linf_ball",
        "max(abs(x - 1), abs(y + 1)) <= 0.5",
        bounded=True,
        inside={"x": 1, "y": -1},
        outside={"x": 0, "y": -1},
    ),
    Case(
        "hexagon",
        "abs(x) <= 2; abs(y) <= 2; abs(x - y) <= 2",
        terms=1,
        bounded=True,
        inside={"x": 2, "y": 2},
        outside={"x": 2, "y": -1},
    ),
    Case(
        "dense_polytope",
        "x: real[3]\n"
        "x[0] + 2*x[1] - x[2] <= 3\n-2*x[0] + x[1] + x[2] <= 4\nx[0] - 3*x[1] + 2*x[2] <= 5\n"
        "-x[0] - x[1] - x[2] <= 6\n3*x[0] + x[1] + x[2] <= 7",
        terms=1,
        inside=_vector("x", 0, 0, 0),
        outside=_vector("x", 3, 3, 3),
    ),
    Case("free", "x: real; y: real", terms=1, bounded=False, inside={"x": 0, "y": 0}),
    Case(
        "free_beside",
        "x: real; y: real\nx >= 0",
        terms=1,
        bounded=False,
        inside={"x": 0, "y": -9},
    ),
)

_EQUALITIES = (
    Case(
        "point",
        "x == 1; y == -2",
        terms=1,
        bounded=True,
        inside={"x": 1, "y": -2},
        outside={"x": 1, "y": 2},
    ),
    Case(
        "line",
        "x + y == 1",
        terms=1,
        bounded=False,
        inside={"x": 3, "y": -2},
        outside={"x": 0, "y": 0},
    ),
    Case(
        "segment",
        "x == 2*y\n0 <= x <= 1",
        terms=1,
        bounded=True,
        inside={"x": 0, "y": 0},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "third",
        "3*x == 1",
        terms=1,
        bounded=True,
        inside={"x": Fraction(1, 3)},
        outside={"x": Fraction(333_333, 1_000_000)},
    ),
    Case(
        "implicit_equality",
        "x <= y; y <= x",
        terms=1,
        bounded=False,
        inside={"x": 5, "y": 5},
        outside={"x": 5, "y": 4},
    ),
    Case(
        "implicit_point",
        "x + y <= 2\nx - y <= 0\nx >= 1",
        terms=1,
        bounded=True,
        inside={"x": 1, "y": 1},
        outside={"x": 1, "y": 2},
    ),
    Case(
        "implicit_cycle",
        "a <= b; b <= c; c <= a",
        terms=1,
        bounded=False,
        inside={"a": 3, "b": 3, "c": 3},
        outside={"a": 3, "b": 4, "c": 4},
    ),
    Case(
        "balance",
        "flow: real[4]\nflow[0] + flow[1] == flow[2] + flow[3]\nall(0 <= f <= 10 for f in flow)",
        terms=1,
        bounded=True,
        inside=_vector("flow", 1, 9, 4, 6),
        outside=_vector("flow", 1, 9, 4, 5),
    ),
    Case(
        "two_equalities",
        "x + y + z == 3 and x - y == 0.5 and z >= 0",
        terms=1,
        bounded=False,
        inside={"x": Fraction(1, 2), "y": 0, "z": Fraction(5, 2)},
        outside={"x": 1, "y": 1, "z": 1},
    ),
    Case(
        "one_of_points",
        "x in {-1, 0.5, 2}",
        terms=3,
        bounded=True,
        inside={"x": -1},
        outside={"x": 0},
    ),
    Case(
        "one_of_values",
        "x: real; y: real\nx in {y, y + 1, 0}",
        terms=3,
        bounded=False,
        inside={"x": 3, "y": 2},
        outside={"x": 3, "y": 1},
    ),
)

_NUMBERS = (
    Case(
        "decimal_bound",
        "x >= 0.1",
        terms=1,
        bounded=False,
        inside={"x": Fraction(1, 10)},
        outside={"x": 0},
    ),
    Case(
        "decimal_sum",
        "x + y == 0.3; x >= 0.1; y >= 0.1",
        terms=1,
        bounded=True,
        inside={"x": Fraction(1, 10), "y": Fraction(1, 5)},
        outside={"x": Fraction(0.1), "y": Fraction(0.2)},
    ),
    Case(
        "thin_interval",
        "1 <= x <= 1.000001",
        terms=1,
        bounded=True,
        inside={"x": 1},
        outside={"x": Fraction(1_000_002, 1_000_000)},
    ),
    Case(
        "thin_slab",
        "0 < x + y - z < 1e-6",
        terms=1,
        bounded=False,
        inside={"x": 0, "y": Fraction(1, 2_000_000), "z": 0},
        outside={"x": 0, "y": 0, "z": 0},
    ),
    Case(
        "far_from_origin",
        "1e6 <= x <= 1e6 + 1; 1e6 <= y <= x",
        terms=1,
        bounded=True,
        inside={"x": 1_000_000, "y": 1_000_000},
        outside={"x": 0, "y": 0},
    ),
    Case(
        "far_wedge",
        "x - y >= 123456.789\nx + y <= -1e5",
        terms=1,
        bounded=False,
        inside={"x": 0, "y": -200_000},
        outside={"x": 0, "y": 0},
    ),
    Case(
        "huge_coefficient",
        "1e30*x <= 1",
        terms=1,
        bounded=False,
        inside={"x": 0},
        outside={"x": 1},
    ),
    Case(
        "tiny_coefficient",
        "1e-30*x + y <= 1; x >= 0; y >= 0",
        terms=1,
        bounded=True,
        inside={"x": 10**30, "y": 0},
        outside={"x": 10**31, "y": 0},
    ),
    Case(
        "mixed_scales",
        "1e8*x + y <= 1e8; x + 1e8*y <= 1e8; x >= 0; y >= 0",
        terms=1,
        bounded=True,
        inside={"x": 0, "y": 0},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "sevenths",
        "x/7 + y/11 <= 1/13 and x >= y/3",
        terms=1,
        bounded=False,
        inside={"x": 0, "y": 0},
        outside={"x": 1, "y": 0},
    ),
)

_DISJUNCTIONS = (
    Case(
        "disequality",
        "x != 0",
        terms=2,
        bounded=False,
        inside={"x": 1},
        outside={"x": 0},
    ),
    Case(
        "disequality_of_two",
        "x != y and 0 <= x <= 1 and 0 <= y <= 1",
        terms=2,
        bounded=True,
        inside={"x": 0, "y": 1},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "punctured",
        "0 <= x <= 3 and x not in {1, 2}",
        terms=3,
        bounded=True,
        inside={"x": 0},
        outside={"x": 2},
    ),
    Case(
        "separated",
        "abs(x - y) >= 1",
        terms=2,
        bounded=False,
        inside={"x": 0, "y": 1},
        outside={"x": 0, "y": 0},
    ),
    Case(
        "overlapping",
        "0 <= x <= 2 or 1 <= x <= 3",
        bounded=True,
        inside={"x": 3},
        outside={"x": 4},
    ),
    Case(
        "absorbed",
        "0 <= x <= 3 or 1 <= x <= 2",
        bounded=True,
        inside={"x": 3},
        outside={"x": 4},
    ),
    Case(
        "cross",
        "abs(x) <= 3 and abs(y) <= 1 or abs(x) <= 1 and abs(y) <= 3",
        terms=2,
        bounded=True,
        inside={"x": 3, "y": 1},
        outside={"x": 3, "y": 3},
    ),
    Case(
        "outside_box",
        "not (0 <= x <= 1 and 0 <= y <= 1)",
        terms=4,
        bounded=False,
        inside={"x": 2, "y": 0},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "implication",
        "implies(x > 1, y > 2)",
        terms=2,
        bounded=False,
        inside={"x": 1, "y": 0},
        outside={"x": 2, "y": 2},
    ),
    Case(
        "two_implications",
        "implies(x > 0, y >= 1)\nimplies(x < 0, y <= -1)",
        terms=3,
        bounded=False,
        inside={"x": 0, "y": 0},
        outside={"x": 1, "y": 0},
    ),
    Case(
        "exclusive",
        "xor(x >= 1, y >= 1)",
        terms=2,
        bounded=False,
        inside={"x": 1, "y": 0},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "equivalence",
        "iff(x > 0, y > 0)",
        terms=2,
        bounded=False,
        inside={"x": 0, "y": 0},
        outside={"x": 0, "y": 1},
    ),
    Case(
        "nested",
        "x >= 0 and (y >= 1 or (y <= -1 and (z == 0 or z >= 5)))",
        terms=3,
        bounded=False,
        inside={"x": 0, "y": -1, "z": 5},
        outside={"x": 0, "y": -1, "z": 1},
    ),
    Case(
        "truth_by_cases",
        "(y >= 1) if x >= 0 else (y <= -1)",
        terms=2,
        bounded=False,
        inside={"x": 0, "y": 1},
        outside={"x": 0, "y": -1},
    ),
    Case(
        "piecewise",
        "y == (2*x if x >= 0 else -x)",
        terms=2,
        bounded=False,
        inside={"x": -3, "y": 3},
        outside={"x": 3, "y": 3},
    ),
    Case(
        "three_pieces",
        "-5 <= x <= 5\ny == (-1 if x < -1 else 1 if x > 1 else x)",
        terms=3,
        bounded=True,
        inside={"x": 3, "y": 1},
        outside={"x": 3, "y": 3},
    ),
    Case(
        "maximum",
        "z == max(x, y)",
        terms=2,
        bounded=False,
        inside={"x": 1, "y": 2, "z": 2},
        outside={"x": 1, "y": 2, "z": 1},
    ),
    Case(
        "above_maximum",
        "z >= max(x, y, 0)",
        terms=1,
        bounded=False,
        inside={"x": 1, "y": 2, "z": 2},
        outside={"x": -1, "y": -2, "z": -1},
    ),
    Case(
        "above_minimum",
        "z >= min(x, y)",
        terms=2,
        bounded=False,
        inside={"x": 1, "y": 2, "z": 1},
        outside={"x": 1, "y": 2, "z": 0},
    ),
    Case(
        "shell",
        "1 <= abs(x) <= 2",
        terms=2,
        bounded=True,
        inside={"x": -1},
        outside={"x": 0},
    ),
    Case(
        "clamped",
        "y == min(max(x, 0), 1)",
        terms=3,
        bounded=False,
        inside={"x": 7, "y": 1},
        outside={"x": 7, "y": 7},
    ),
    Case(
        "bigger_first",
        "x: real[4]\nany(x[i] >= 1 for i in range(4)) and all(v >= 0 for v in x[1:])",
        terms=4,
        bounded=False,
        inside=_vector("x", -3, 0, 0, 1),
        outside=_vector("x", 0, 0, 0, 0),
    ),
    Case(
        "no_neighbours_near",
        "x: real[3]\nall(abs(x[i] - x[j]) >= 0.5 for i in range(3) for j in range(i))\nall(0 <= v <= 2 for v in x)",
        terms=6,
        bounded=True,
        inside=_vector("x", 0, 1, 2),
        outside=_vector("x", 0, 1, 1),
    ),
)

_DISCRETE = (
    Case(
        "bool_alone",
        "on: bool\non",
        terms=1,
        bounded=True,
        inside={"on": 1},
        outside={"on": 0},
    ),
    Case(
        "bool_guard",
        "on: bool; x: real\nimplies(on, x >= 1)\nimplies(not on, x == 0)",
        terms=2,
        bounded=False,
        inside={"on": 0, "x": 0},
        outside={"on": 0, "x": 1},
    ),
    Case(
        "bool_parity",
        "a: bool; b: bool; c: bool\nxor(xor(a, b), c)",
        terms=4,
        bounded=True,
        inside={"a": 1, "b": 1, "c": 1},
        outside={"a": 1, "b": 1, "c": 0},
    ),
    Case(
        "bool_at_most_two",
        "on: bool[4]\n1 <= sum(on) <= 2",
        terms=10,
        bounded=True,
        inside=_vector("on", 0, 1, 1, 0),
        outside=_vector("on", 1, 1, 1, 0),
    ),
    Case(
        "bool_equal",
        "a: bool; b: bool\na == b and a != False",
        terms=1,
        bounded=True,
        inside={"a": 1, "b": 1},
        outside={"a": 0, "b": 0},
    ),
    Case(
        "int_range",
        "n: int[0, 9]\nn >= 7.5",
        terms=2,
        bounded=True,
        inside={"n": 8},
        outside={"n": 7},
    ),
    Case(
        "int_negative",
        "n: int[-3, 3]\nabs(n) == 2",
        terms=2,
        bounded=True,
        inside={"n": -2},
        outside={"n": 1},
    ),
    Case(
        "int_even",
        "n: int[0, 8]; half: int[0, 4]\nn == 2*half",
        terms=5,
        bounded=True,
        inside={"n": 6, "half": 3},
        outside={"n": 5, "half": 2},
    ),
    Case(
        "int_and_real",
        "n: int[1, 3]; x: real\nn <= x < n + 0.5",
        terms=3,
        bounded=True,
        inside={"n": 2, "x": 2},
        outside={"n": 2, "x": 3},
    ),
    Case(
        "all_different",
        "n: int[1, 3][3]\nall(n[i] != n[j] for i in range(3) for j in range(i))",
        terms=6,
        bounded=True,
        inside=_vector("n", 3, 1, 2),
        outside=_vector("n", 3, 1, 3),
    ),
    Case(
        "category_guard",
        'colour: {"red", "green", "blue"}; x: real\n'
        'implies(colour == "red", x >= 1)\nimplies(colour in {"green", "blue"}, x <= -1)',
        terms=3,
        bounded=False,
        inside={"colour": 0, "x": 1},
        outside={"colour": 1, "x": 1},
    ),
    Case(
        "category_excluded",
        'colour: {"red", "green", "blue"}\ncolour != "green"',
        terms=2,
        bounded=True,
        inside={"colour": 2},
        outside={"colour": 1},
    ),
    Case(
        "category_pair",
        'left: {"a", "b", "c"}; right: {"a", "b", "c"}\nleft != right',
        terms=6,
        bounded=True,
        inside={"left": 0, "right": 2},
        outside={"left": 2, "right": 2},
    ),
    Case(
        "category_prices",
        'size: {"small", "large"}; price: real\nprice >= (10 if size == "small" else 25)\nprice <= 100',
        terms=2,
        bounded=True,
        inside={"size": 0, "price": 10},
        outside={"size": 1, "price": 10},
    ),
    Case(
        "mixed",
        'on: bool; n: int[0, 3]; mode: {"eco", "boost"}; power: real\n'
        "power >= 0\nimplies(not on, power == 0 and n == 0)\n"
        'implies(on, 1 <= n and power <= (2 if mode == "eco" else 5)*1)',
        terms=8,
        bounded=True,
        inside={"on": 1, "n": 2, "mode": 1, "power": 4},
        outside={"on": 1, "n": 2, "mode": 0, "power": 4},
    ),
    Case(
        "label_vector",
        'c: {"r", "g"}[3]\nall(c[i] != c[i + 1] for i in range(2))',
        terms=2,
        bounded=True,
        inside=_vector("c", 0, 1, 0),
        outside=_vector("c", 0, 1, 1),
    ),
)

_INPUTS = (
    Case(
        "input_bound",
        "x: real; u: input\nx <= u",
        terms=1,
        bounded=False,
        inside={"x": 1, "u": 1},
        outside={"x": 2, "u": 1},
    ),
    Case(
        "input_interval",
        "x: real; u: input[0, 10]\n-u <= x <= u + 1",
        terms=1,
        bounded=True,
        inside={"x": 0, "u": 0},
        outside={"x": 3, "u": 1},
    ),
    Case(
        "input_two_sided",
        "x: real; u: input[1, 2]\nx >= u or x <= -u",
        terms=2,
        bounded=False,
        inside={"x": 2, "u": 2},
        outside={"x": 1, "u": 2},
    ),
    Case(
        "input_vector",
        "x: real[2]; u: input[0, 1][2]\nall(x[i] >= u[i] for i in range(2)); sum(x) <= 3",
        terms=1,
        bounded=True,
        inside={**_vector("x", 1, 1), **_vector("u", 1, 0)},
        outside={**_vector("x", 2, 2), **_vector("u", 1, 0)},
    ),
    Case(
        "input_equality",
        "x: real; y: real; total: input\nx + y == total\nx >= 0; y >= 0",
        terms=1,
        bounded=True,
        inside={"x": 1, "y": 2, "total": 3},
        outside={"x": 1, "y": 1, "total": 3},
    ),
    Case(
        "function_of_two",
        "x: real[3]; f: function\n0 <= x[0] <= 1; 0 <= x[1] <= 1\nx[2] > f(x[0], x[1]) + 1",
        terms=1,
        bounded=False,
        inside=_vector("x", 1, 1, 2),
        outside=_vector("x", 1, 1, 1),
    ),
    Case(
        "function_either_side",
        "x: real; y: real; h: function\ny >= h(x) + 1 or y <= h(x) - 1",
        terms=2,
        bounded=False,
        inside={"x": 1, "y": 2},
        outside={"x": 1, "y": 1},
    ),
)

_EXTREMES = (
    Case("contradiction", "x > 1\nx < 0", satisfiable=False, outside={"x": 0}),
    Case(
        "contradiction_strict",
        "x < y\ny < x",
        satisfiable=False,
        outside={"x": 0, "y": 0},
    ),
    Case("contradiction_open_point", "0 < x <= 0", satisfiable=False, outside={"x": 0}),
    Case(
        "contradiction_of_three",
        "x + y >= 3\nx <= 1\nz >= 0\ny < 2",
        satisfiable=False,
        outside={"x": 1, "y": 2, "z": 0},
    ),
    Case(
        "contradiction_in_every_branch",
        "x >= 1 or x <= -1\n-0.5 < x < 0.5",
        satisfiable=False,
        outside={"x": 0},
    ),
    Case(
        "contradiction_int",
        "n: int[0, 9]\n2*n == 5",
        satisfiable=False,
        outside={"n": 2},
    ),
    Case(
        "contradiction_pigeons",
        "n: int[0, 1][3]\nall(n[i] != n[j] for i in range(3) for j in range(i))",
        satisfiable=False,
        outside=_vector("n", 0, 1, 0),
    ),
    Case(
        "contradiction_constant", "x: real\n1 > 2", satisfiable=False, outside={"x": 0}
    ),
    Case("tautology", "x >= 0 or x <= 1", terms=1, bounded=False, inside={"x": 5}),
    Case(
        "tautology_constant", "x: real\nTrue", terms=1, bounded=False, inside={"x": 5}
    ),
    Case(
        "tautology_excluded_middle",
        "x > y or not x > y",
        terms=1,
        bounded=False,
        inside={"x": 5, "y": 5},
    ),
    Case(
        "tautology_cancelled",
        "x + y - x - y <= 0",
        terms=1,
        bounded=False,
        inside={"x": 5, "y": 5},
    ),
    Case(
        "redundant_rows",
        "x <= 1; x <= 2; 2*x <= 2; x + y <= 5; y <= 1; x >= 0; y >= 0",
        terms=1,
        bounded=True,
        inside={"x": 1, "y": 1},
        outside={"x": 2, "y": 1},
    ),
    Case(
        "redundant_rule",
        "x >= 2\nx >= 2 or y >= 0",
        terms=1,
        bounded=False,
        inside={"x": 2, "y": -1},
        outside={"x": 1, "y": 1},
    ),
    Case(
        "dead_branch",
        "x >= 0\nx <= -1 or y >= 3 or y == x",
        terms=2,
        bounded=False,
        inside={"x": 1, "y": 1},
        outside={"x": 1, "y": 2},
    ),
)

CASES: tuple[Case, ...] = (
    *_PAPER,
    *_DESIGN,
    *_POLYHEDRA,
    *_EQUALITIES,
    *_NUMBERS,
    *_DISJUNCTIONS,
    *_DISCRETE,
    *_INPUTS,
    *_EXTREMES,
)
_BY_NAME = {case.name: case for case in CASES}
