"""The sets that all peers are asked for, and an exact verdict on their outputs that shares no code with any of them.

A set is a formula over the outputs x_0, x_1, … in exact fractions. From the one formula come the rules that
``multiplexnet`` reads, the matrices and the text that the others read, and the verdict: float64 with a bound on its
rounding error where that decides, fractions where it does not. There is no tolerance.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "All",
    "Any_",
    "Atom",
    "Cone",
    "Formula",
    "Set",
    "chosen_sets",
    "excess",
    "obeying",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Atom:
    """Σ c_i x_i ⋈ bound + slope · limit, where limit is an input and ⋈ one of <=, <, ==."""

    coefficients: tuple[tuple[int, Fraction], ...]
    relation: str
    bound: Fraction
    slope: Fraction = Fraction(0)


@dataclass(frozen=True)
class All:
    """All of them hold."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Any_:
    """One of them holds at least."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Cone:
    """√(Σ_k (row_k·x + shift_k)²) ≤ bound·x + number; rows and bound by their entries that are not 0."""

    rows: tuple[tuple[tuple[int, Fraction], ...], ...]
    shifts: tuple[Fraction, ...]
    bound: tuple[tuple[int, Fraction], ...]
    number: Fraction


Formula = Atom | All | Any_ | Cone


@dataclass(frozen=True)
class Set:
    """A formula over some outputs.

    Args:
        name: what the tables call it.
        width: the number D of outputs.
        formula: what has to hold.
        whole: the outputs that are whole numbers, with their ranges.
        limits: the range of the input ``limit``, if there is one.
    """

    name: str
    width: int
    formula: Formula
    whole: tuple[tuple[int, int, int], ...] = ()
    limits: tuple[int, int] | None = None

    @property
    def rows(self) -> tuple[Atom, ...]:
        """The rows of a polyhedron; none if the set is something else."""
        parts = self.formula.parts if isinstance(self.formula, All) else (self.formula,)
        atoms = tuple(part for part in parts if isinstance(part, Atom))
        is_convex = len(atoms) + len(self.cones) == len(parts)
        return atoms if is_convex and not self.whole else ()

    @property
    def is_convex(self) -> bool:
        """Whether it is one polyhedron with cones, without whole numbers."""
        return bool(self.rows or self.cones) and not self.whole

    @property
    def cones(self) -> tuple[Cone, ...]:
        """The curved walls of a convex set."""
        parts = self.formula.parts if isinstance(self.formula, All) else (self.formula,)
        return tuple(part for part in parts if isinstance(part, Cone))

    @property
    def rules(self) -> str:
        """The set in the language of multiplexnet."""
        whole = {i: f"int[{low}, {high}]" for i, low, high in self.whole}
        declared = [f"x{i}: {whole.get(i, 'real')}" for i in range(self.width)]
        if self.limits:
            declared.append(f"limit: input[{self.limits[0]}, {self.limits[1]}]")
        parts = self.formula.parts if isinstance(self.formula, All) else (self.formula,)
        return "\n".join([*declared, *map(_text, parts)])

    def matrices(self, relations: str) -> tuple[Floats, Floats]:
        """A and b of the rows with one of these relations, as floats."""
        rows = [row for row in self.rows if row.relation in relations.split()]
        a = np.zeros((len(rows), self.width))
        for k, row in enumerate(rows):
            for i, c in row.coefficients:
                a[k, i] = float(c)
        return a, np.array([float(row.bound) for row in rows])

    def curves(self) -> list[tuple[Floats, Floats, Floats, float]]:
        """M, s, c and d of every cone ``|M x + s| ≤ c·x + d``, as floats."""
        found = []
        for wall in self.cones:
            m = np.zeros((len(wall.rows), self.width))
            c = np.zeros(self.width)
            for k, row in enumerate(wall.rows):
                for i, value in row:
                    m[k, i] = float(value)
            for i, value in wall.bound:
                c[i] = float(value)
            s = np.array([float(shift) for shift in wall.shifts])
            found.append((m, s, c, float(wall.number)))
        return found

    def slopes(self) -> Floats:
        """How much the right-hand side of every row that is not an equality grows with the input."""
        return np.array([float(row.slope) for row in self.rows if row.relation != "=="])


def _sum_text(row: tuple[tuple[int, Fraction], ...], constant: Fraction) -> str:
    return " + ".join([*(f"{_number(c)}*x{i}" for i, c in row), _number(constant)])


def _text(formula: Formula) -> str:
    if isinstance(formula, Cone):
        pairs = zip(formula.rows, formula.shifts, strict=True)
        inside = ", ".join(_sum_text(row, shift) for row, shift in pairs)
        return f"norm([{inside}]) <= {_sum_text(formula.bound, formula.number)}"
    if isinstance(formula, Atom):
        left = " + ".join(f"{_number(c)}*x{i}" for i, c in formula.coefficients)
        return (
            f"{left} {formula.relation} {_number(formula.bound)} + {_number(formula.slope)}"
            + ("*limit" if formula.slope else "")
        )
    word = " and " if isinstance(formula, All) else " or "
    return "(" + word.join(map(_text, formula.parts)) + ")"


def _number(value: Fraction) -> str:
    return (
        f"({value.numerator}/{value.denominator})"
        if value.denominator > 1
        else f"({value.numerator})"
    )


# --- the sets -------------------------------------------------------------------------------------------------------


def atom(
    coefficients: dict[int, Any], relation: str, bound: Any, slope: int = 0
) -> Atom:
    exact = tuple((i, Fraction(c)) for i, c in coefficients.items())
    if relation in (">=", ">"):
        exact = tuple((i, -c) for i, c in exact)
        relation = "<" + relation[1:]
        bound = -Fraction(bound)
        slope = -slope
    return Atom(exact, relation, Fraction(bound), Fraction(slope))


def between(i: int, low: Any, high: Any) -> list[Atom]:
    return [atom({i: 1}, ">=", low), atom({i: 1}, "<=", high)]


def every(*parts: Formula | Sequence[Formula]) -> All:
    flat = [
        [part] if isinstance(part, Atom | All | Any_ | Cone) else part for part in parts
    ]
    return All(tuple(part for group in flat for part in group))


def box(width: int) -> Set:
    return Set(
        f"box {width}", width, every(*(between(i, "-0.1", "3.3") for i in range(width)))
    )


def chain(width: int) -> Set:
    return Set(
        f"chain {width}",
        width,
        every(*(atom({i: 1, i + 1: -1}, "<=", 0) for i in range(width - 1))),
    )


def simplex(width: int) -> Set:
    whole = atom(dict.fromkeys(range(width), 1), "==", 1)
    return Set(
        f"simplex {width}",
        width,
        every([atom({i: 1}, ">=", 0) for i in range(width)], whole),
    )


def polytope(width: int, rows: int) -> Set:
    """The polytopes of benchmarks/layer.py: dense rows around the origin, coefficients with three decimals."""
    random = Random(0)
    atoms = [
        atom(
            {j: f"{random.gauss(0, 1):.3f}" for j in range(width)},
            "<=",
            f"{random.uniform(1, 10):.3f}",
        )
        for _ in range(rows)
    ]
    return Set(f"polytope {width}/{rows}", width, every(atoms))


def eight_boxes() -> Set:
    corners = [(x, y) for x in (-9, -3, 3, 9) for y in (-3, 3)]
    boxes = (every(between(0, x, x + 2), between(1, y, y + 2)) for x, y in corners)
    return Set("8 boxes", 2, Any_(tuple(boxes)))


def budget(width: int) -> Set:
    """Bounds that are known only at run time."""
    rows = [
        [atom({i: 1}, ">=", 0), atom({i: 1}, "<=", 0, slope=1)] for i in range(width)
    ]
    return Set("bound from input", width, every(*rows), limits=(1, 1000))


def whole_and_real() -> Set:
    """A whole number n from 0 to 5, and a real number from n to n + 1/2."""
    rows = [atom({0: 1, 1: -1}, "<=", 0), atom({1: 1, 0: -1}, "<=", HALF)]
    return Set("whole + real", 2, every(rows), whole=((0, 0, 5),))


def balance(parts: int) -> Set:
    """Some parts and their sum, all from 0 to 100."""
    total = atom({**dict.fromkeys(range(parts), 1), parts: -1}, "==", 0)
    return Set(
        "equality",
        parts + 1,
        every(*(between(i, 0, 100) for i in range(parts + 1)), total),
    )


def lots(width: int, *, demand: bool = False) -> Set:
    """Quantities that are 0 or from 10 to 100, together at most 300, or exactly what an input says."""
    each = [
        Any_((atom({i: 1}, "==", 0), every(between(i, 10, 100)))) for i in range(width)
    ]
    together = dict.fromkeys(range(width), 1)
    if demand:
        total = atom(together, "==", 0, slope=1)
        return Set(
            f"{width} lots == demand", width, every(each, total), limits=(10, 300)
        )
    return Set(f"{width} lots <= 300", width, every(each, atom(together, "<=", 300)))


def at_most(count: int, width: int) -> Set:
    """So many of some zeros and ones."""
    total = atom(dict.fromkeys(range(width), 1), "<=", count)
    whole = tuple((i, 0, 1) for i in range(width))
    return Set(f"{count} of {width}", width, every(total), whole=whole)


def table(columns: int, rules: int) -> Set:
    """«If … and … then …» over columns between −20 and 20: each rule is a clause of three comparisons."""
    random = Random(0)
    clauses = []
    for _ in range(rules):
        chosen = random.sample(range(columns), 3)
        atoms = [
            atom({i: 1}, random.choice(["<=", ">="]), random.randint(-10, 10))
            for i in chosen
        ]
        clauses.append(Any_(tuple(atoms)))
    boxes = [between(i, -20, 20) for i in range(columns)]
    return Set(f"table {columns}/{rules}", columns, every(*boxes, clauses))


def from_file(name: str, path: Path) -> Set:
    """A file of PiShield and DRL: a line with the ordering, then a clause a line, atoms with «or» between them."""
    ordering, *lines = path.read_text().strip().splitlines()
    clauses = [
        Any_(tuple(_parsed(part) for part in line.split(" or "))) for line in lines
    ]
    simple = [
        clause.parts[0] if len(clause.parts) == 1 else clause for clause in clauses
    ]
    return Set(name, len(ordering.split()) - 1, every(simple))


def _parsed(text: str) -> Atom:
    negated = text.strip().startswith("neg ")
    body = text.strip().removeprefix("neg ")
    left, relation, bound = re.split(r"(>=|>)", body)
    found = re.findall(r"([+-]?)\s*([\d.]*)\s*\*?\s*y_(\d+)", left)
    coefficients = {
        int(i): Fraction(sign + (number or "1")) for sign, number, i in found
    }
    if negated:  # not (a >= b) is -a > -b
        coefficients = {i: -c for i, c in coefficients.items()}
        return atom(
            coefficients, {">=": ">", ">": ">="}[relation], -Fraction(bound.strip())
        )
    return atom(coefficients, relation, Fraction(bound.strip()))


def ball(width: int, rows: int = 0) -> Set:
    """A ball of radius 2 around a point off zero, alone or with dense rows."""
    unit = tuple(((i, Fraction(1)),) for i in range(width))
    shifts = tuple(Fraction(i % 3 - 1, 10) for i in range(width))
    cone = Cone(unit, shifts, (), Fraction(2))
    if not rows:
        return Set(f"ball {width}", width, cone)
    return Set(
        f"ball {width} with {rows} rows",
        width,
        every(cone, polytope(width, rows).formula.parts),  # type: ignore[union-attr]
    )


def ellipsoid(width: int) -> Set:
    """A dense ellipsoid, coefficients with two decimals."""
    random = Random(1)
    rows = tuple(
        tuple(
            (j, Fraction(f"{(3 if i == j else 0) + random.gauss(0, 0.3):.2f}"))
            for j in range(width)
        )
        for i in range(width)
    )
    return Set(
        f"ellipsoid {width}",
        width,
        Cone(rows, (Fraction(1, 10),) * width, (), Fraction(5)),
    )


def cone(width: int) -> Set:
    """The norm of all outputs but the last is at most the last, which is at most 10."""
    unit = tuple(((i, Fraction(1)),) for i in range(width - 1))
    last = width - 1
    wall = Cone(unit, (Fraction(0),) * last, ((last, Fraction(1)),), Fraction(0))
    return Set(f"cone {width}", width, every(wall, atom({last: 1}, "<=", 10)))


def chosen_sets() -> list[Set]:
    """All sets; the rule file only if the environment variable MULTIPLEXNET_DATA says where it is."""
    sets = [
        box(10), chain(20), simplex(10), polytope(10, 30), polytope(50, 200), eight_boxes(), budget(10),
        whole_and_real(), balance(4), lots(10), lots(30), lots(10, demand=True), lots(30, demand=True), at_most(3, 30),
        table(40, 40), ball(10), ellipsoid(50), cone(20), ball(10, 30),
    ]  # fmt: skip
    path = (
        Path(os.environ.get("MULTIPLEXNET_DATA", ""))
        / "tabular"
        / "heloc"
        / "constraints.txt"
    )
    if os.environ.get("MULTIPLEXNET_DATA") and path.exists():
        sets.insert(6, from_file("heloc rules", path))
    return sets


# --- the verdict ----------------------------------------------------------------------------------------------------


def obeying(given: Set, x: Floats, limit: Floats | None) -> Bools:
    """Which rows of x, ``(N, D)``, lie in the set, exactly; NaN and infinities never do."""
    finite: Bools = np.asarray(np.isfinite(x).all(-1))
    safe = np.where(finite[:, None], x, 0.0)
    result = finite & _holds(given.formula, safe, limit)
    for i, low, high in given.whole:
        result &= (
            (safe[:, i] == np.floor(safe[:, i]))
            & (low <= safe[:, i])
            & (safe[:, i] <= high)
        )
    return np.asarray(result)


def _cone_holds(given: Cone, x: Floats) -> Bools:
    """In float64 where that decides, else in fractions."""
    with np.errstate(over="ignore", invalid="ignore"):
        inside, bound, size = _cone_values(given, x)
        gap = np.sqrt((inside * inside).sum(-1)) - bound
        sure = np.abs(gap) > 2.0**-40 * size + 1e-140
    result: Bools = np.asarray(sure & (gap < 0), dtype=np.bool_)
    for row in np.flatnonzero(np.logical_not(sure)):
        result[row] = _cone_exactly(given, x[row])
    return result


def _cone_values(given: Cone, x: Floats) -> tuple[Floats, Floats, Floats]:
    """What stands in the norm, what bounds it, and the size of all summands."""
    inside = np.zeros((len(x), len(given.rows)))
    size = np.full(len(x), abs(float(given.number)))
    bound = np.full(len(x), float(given.number))
    for k, (row, shift) in enumerate(zip(given.rows, given.shifts, strict=True)):
        inside[:, k] = float(shift)
        size += abs(float(shift))
        for i, c in row:
            inside[:, k] += float(c) * x[:, i]
            size += np.abs(float(c) * x[:, i])
    for i, c in given.bound:
        bound += float(c) * x[:, i]
        size += np.abs(float(c) * x[:, i])
    return inside, bound, size


def _cone_exactly(given: Cone, x: Floats) -> bool:
    exact = [Fraction(float(v)) for v in x]
    bound = sum((c * exact[i] for i, c in given.bound), given.number)
    inside = [
        sum((c * exact[i] for i, c in row), shift)
        for row, shift in zip(given.rows, given.shifts, strict=True)
    ]
    return bound >= 0 and sum((v * v for v in inside), Fraction(0)) <= bound * bound


def _holds(formula: Formula, x: Floats, limit: Floats | None) -> Bools:
    if isinstance(formula, Cone):
        return _cone_holds(formula, x)
    if isinstance(formula, Atom):
        return _atom_holds(formula, x, limit)
    parts = [_holds(part, x, limit) for part in formula.parts]
    return np.asarray(
        np.all(parts, 0) if isinstance(formula, All) else np.any(parts, 0)
    )


def _atom_holds(given: Atom, x: Floats, limit: Floats | None) -> Bools:
    terms = _summands(given, x, limit)
    with np.errstate(over="ignore", invalid="ignore"):
        value = terms.sum(-1)
        size = np.abs(terms).sum(-1)
        # Each summand has two roundings (of its coefficient and of the product), the sum one per summand.
        sure: Bools = np.abs(value) > (terms.shape[-1] + 4) * 2.0**-52 * size + 1e-290
    result: Bools = np.asarray(
        sure & (value < 0) & (given.relation != "=="), dtype=np.bool_
    )
    for row in np.flatnonzero(np.logical_not(sure)):
        result[row] = _exactly(given, x[row], None if limit is None else limit[row])
    return result


def _summands(given: Atom, x: Floats, limit: Floats | None) -> Floats:
    """Whose sum is to be compared with zero: ``(N, n)``."""
    with np.errstate(over="ignore"):
        columns = [float(c) * x[:, i] for i, c in given.coefficients]
        known = 0.0 if limit is None else -float(given.slope) * limit
    columns += [np.full(len(x), -float(given.bound)), known + np.zeros(len(x))]
    return np.stack(columns, -1)


def _exactly(given: Atom, x: Floats, limit: float | None) -> bool:
    value = sum(
        (c * Fraction(float(x[i])) for i, c in given.coefficients), -given.bound
    )
    if limit is not None:
        value -= given.slope * Fraction(float(limit))
    return (
        value == 0
        if given.relation == "=="
        else value < 0
        if given.relation == "<"
        else value <= 0
    )


def excess(given: Set, x: Floats, limit: Floats | None) -> float:
    """By how much the worst row misses the set's comparisons, in long doubles; NaN and infinities are left out."""
    finite = np.isfinite(x).all(-1)
    misses = _misses(
        given.formula,
        x[finite].astype(np.longdouble),
        None if limit is None else limit[finite],
    )
    return float(misses.max(initial=0.0))


def _misses(
    formula: Formula, x: NDArray[np.longdouble], limit: Floats | None
) -> NDArray[np.longdouble]:
    if isinstance(formula, Cone):
        pairs = zip(formula.rows, formula.shifts, strict=True)
        inside = [
            sum((_long(c) * x[:, i] for i, c in row), _long(shift))
            for row, shift in pairs
        ]
        bound = sum(
            (_long(c) * x[:, i] for i, c in formula.bound), _long(formula.number)
        )
        length = np.sqrt(sum(v * v for v in inside))
        return np.asarray(np.maximum(length - bound, 0))
    if isinstance(formula, Atom):
        known = 0.0 if limit is None else _long(formula.slope) * limit
        value = sum(
            (_long(c) * x[:, i] for i, c in formula.coefficients),
            -_long(formula.bound) - known,
        )
        return np.abs(value) if formula.relation == "==" else np.maximum(value, 0)
    parts = np.stack([_misses(part, x, limit) for part in formula.parts])
    return np.asarray(parts.max(0) if isinstance(formula, All) else parts.min(0))


def _long(value: Fraction) -> np.longdouble:
    return np.longdouble(value.numerator) / np.longdouble(value.denominator)
