"""Curved walls of a term: cones over its outputs, and anchors inside rows and cones.

Floats propose a centre (:mod:`multiplexnet.exact.interior`), exact arithmetic rounds it and judges, as it does for
polyhedra: the share of its room that rounding takes from a wall has to stay below one half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from multiplexnet.compiler.equalities import symbols_of
from multiplexnet.errors import CurvedError, MagnitudeError, ThinTermError
from multiplexnet.exact import lp
from multiplexnet.exact.cones import Cone, root_above
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import Format, first_wider, floor_log2, power_of_two
from multiplexnet.exact.interior import FloatCone, Walls, centre, deepest
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.anchors import COMFORTABLE, THIN, Point, clearance, text
from multiplexnet.geometry.parts import Parametric
from multiplexnet.language.curves import squares_of
from multiplexnet.language.formula import (
    Atom,
    Linear,
    Norm,
    Symbol,
    Variable,
    coprime,
    norm_in,
)
from multiplexnet.language.text import formula_text

__all__ = [
    "atom_of",
    "cone_of",
    "curved_anchor",
    "curved_centres",
    "curved_guard",
    "eaten",
    "moved_ball",
    "outer_rows",
    "refuse_far_cones",
    "refuse_far_numbers",
    "room_in",
    "squares_completed",
]

MANY = 100
"""Of a ball with more outputs the middle is taken, without a search."""
FURTHEST = power_of_two(450)
"""The numbers of a gauge up to here, and down to the inverse, are such that their squares are float64 numbers."""


def cone_of(row: Atom, outputs: Sequence[Variable]) -> Cone:
    """The set of a row with a norm, over outputs that it has no other variables than.

    Raises:
        CurvedError: it bounds no convex set.
    """
    found = norm_in(row.linear)
    if found is None or found[1] <= 0 or row.relation == "==":
        raise CurvedError(
            formula_text(row), "it bounds no convex set", "write `norm(…) <= …`"
        )
    norm, c = found
    places: dict[Symbol, int] = {v: j for j, v in enumerate(outputs)}
    bound = Linear(row.linear.summands[:-1], row.linear.constant) * (-1 / c)
    return Cone(
        norm.weights,
        tuple(_placed(argument, places) for argument in norm.arguments),
        tuple(argument.constant for argument in norm.arguments),
        _placed(bound, places),
        bound.constant,
        row.relation == "<",
    )


def atom_of(cone: Cone, outputs: Sequence[Symbol]) -> Atom:
    """The cone as a comparison, with coprime coefficients."""
    arguments = [
        Linear.total(dict(zip(outputs, row, strict=True)), c)
        for row, c in zip(cone.Y, cone.y, strict=True)
    ]
    norm = Linear.of(Norm(cone.weights, tuple(arguments)))
    bound = Linear.total(dict(zip(outputs, cone.s, strict=True)), cone.t)
    return Atom(coprime(norm - bound), "<" if cone.strict else "<=")


def moved_ball(outputs: Sequence[Variable], rows: Sequence[Atom]) -> Parametric:
    """The part of a ball or an ellipsoid whose centre and radius are known at run time.

    Raises:
        CurvedError: something else bounds its outputs as well, or its bound has outputs in it.
        MagnitudeError: numbers that float64 cannot square.
    """
    row = next(row for row in rows if norm_in(row.linear))
    known = [s for s in symbols_of(row) if s not in outputs]
    if len(rows) > 1:
        others = [formula_text(other) for other in rows if other is not row]
        raise CurvedError(
            formula_text(row),
            f"inputs tell where it or a wall beside it stands, and other walls bound its outputs, too ({others[0]})",
            "keep inputs out of these rules, or bound the outputs by flat walls alone",
        )
    if not all(isinstance(s, Variable) and s.is_input for s in known):
        raise CurvedError(
            formula_text(row),
            "it depends on a function or on outputs computed before",
            "give the value as an input",
        )
    cone = cone_of(row, [*outputs, *known])  # type: ignore[list-item]
    if any(cone.s[: len(outputs)]):
        raise CurvedError(
            formula_text(row),
            "it is a cone that inputs move",
            "keep inputs out of it; a ball or an ellipsoid may have them",
        )
    refuse_far_numbers([cone, squares_completed(cone, len(outputs))], [row, row])
    return Parametric(
        tuple(outputs), tuple(known), (), (), (), (), (), (), cones=(cone,)
    )


def curved_guard(rows: Sequence[Atom]) -> Parametric:
    """Curved walls that stand around run-time values alone, as a part without outputs.

    Raises:
        MagnitudeError: numbers that float64 cannot square.
    """
    known = list(dict.fromkeys(s for row in rows for s in symbols_of(row)))
    cones = [cone_of(row, known) for row in rows]  # type: ignore[arg-type]
    refuse_far_numbers(cones, rows)
    return Parametric((), tuple(known), (), (), (), (), (), (), cones=tuple(cones))


def squares_completed(cone: Cone, own: int) -> Cone:
    """The same cone with a norm of other rows: those that hold one of the first ``own`` coordinates are independent.

    So these can all be made 0 at once, and what the others come to is known when the other coordinates are.
    """
    coordinates = [Variable(f"coordinate {i}", i) for i in range(cone.n)]
    one = Linear.number(Fraction(1))
    squares = squares_of(_products(cone), [*map(Linear.of, coordinates), one])
    assert squares is not None  # a sum of squares is never negative
    places: dict[Symbol, int] = {v: i for i, v in enumerate(coordinates)}
    return Cone(
        tuple(weight for weight, _ in squares),
        tuple(_placed(linear, places) for _, linear in squares),
        tuple(linear.constant for _, linear in squares),
        cone.s,
        cone.t,
        cone.strict,
    )


def _products(cone: Cone) -> list[list[Fraction]]:
    """The matrix of the norm's square, as a form of all coordinates and of 1."""
    found = [[Fraction(0)] * (cone.n + 1) for _ in range(cone.n + 1)]
    for weight, row, shift in zip(cone.weights, cone.Y, cone.y, strict=True):
        held = [(j, c) for j, c in enumerate((*row, shift)) if c]
        for i, a in held:
            for j, b in held:
                found[i][j] += weight * a * b
    return found


def _placed(linear: Linear, places: dict[Symbol, int]) -> tuple[Fraction, ...]:
    row = [Fraction(0)] * len(places)
    for symbol, coefficient in linear.summands:
        row[places[symbol]] = coefficient
    return tuple(row)


def eaten(
    cones: Sequence[Cone], point: Sequence[Fraction], errors: Sequence[Fraction]
) -> Fraction | None:
    """The largest share of its room that errors of a point take from a cone; ``None``: it is not strictly inside."""
    most = Fraction(0)
    for cone in cones:
        if not cone.contains_strictly(point):
            return None
        sizes = cone.gauge(point).sizes
        own = sum((h * e for h, e in zip(sizes, errors, strict=True)), Fraction(0))
        most = max(most, own)
    return most


def refuse_far_numbers(cones: Sequence[Cone], atoms: Sequence[Atom]) -> None:
    """Raises ``MagnitudeError`` for a cone with numbers that float64 cannot square."""
    for cone, atom in zip(cones, atoms, strict=True):
        for square in cone.squares:
            _refuse_far(square, atom)


def curved_anchor(
    rows: Rows,
    cones: Sequence[Cone],
    atoms: Sequence[Atom],
    form: Format,
    names: Sequence[str],
    deadline: Deadline = NEVER,
) -> Point:
    """A point strictly inside all rows and cones, representable, from whose room rounding takes less than half.

    Args:
        rows: the linear rows.
        cones: the curved ones.
        atoms: the same as comparisons, for the message.
        form: the float format.
        names: of the outputs, for the message.
        deadline: when it gives up.

    Raises:
        ThinTermError: none was found.
    """
    if not len(rows) and len(cones) == 1 and len(names) > MANY:
        found = _best(rows, cones, [_middle(cones[0])], form)
        if found is not None:
            return found
    offers = list(curved_centres(rows, cones, deadline))
    found = _best(rows, cones, offers, form)
    if found is not None:
        return found
    wider = first_wider(
        form, lambda other: _best(rows, cones, offers, other) is not None
    )
    walls = [*text(rows, names), *map(formula_text, atoms)]
    raise ThinTermError(walls, form.name, wider)


def _middle(cone: Cone) -> Point:
    """Where the norm is least, nearly: of a ball the deepest point."""
    Y, y, _, _ = cone.floats
    try:
        found = np.linalg.solve(Y, -y)
    except np.linalg.LinAlgError:
        found = np.linalg.lstsq(Y, -y, rcond=None)[0]
    return tuple(Fraction(float(c)) for c in found)


def _best(
    rows: Rows, cones: Sequence[Cone], offers: Sequence[Point], form: Format
) -> Point | None:
    best: Point | None = None
    least = THIN
    for offer in offers:
        for point in _roundings(rows, cones, offer, form):
            judged = _judged(rows, cones, point, form)
            if judged is None or judged >= least:
                continue
            if judged < COMFORTABLE:
                return point
            best = point
            least = judged
    return best


def _judged(
    rows: Rows, cones: Sequence[Cone], point: Point, form: Format
) -> Fraction | None:
    if max(map(abs, point)) >= form.max:
        return None
    of_rows = clearance(rows, point, form)
    errors = [(form.epsilon * abs(c) + form.tiny) / 2 for c in point]
    of_cones = eaten(cones, point, errors)
    if of_rows is None or of_cones is None:
        return None
    return max(of_rows, of_cones)


def room_in(
    rows: Rows, cones: Sequence[Cone], point: Sequence[Fraction]
) -> Fraction | None:
    """Half the edge of a cube around the point inside rows and cones; ``None``: it is not strictly inside."""
    room = rows.room(point)
    if room is None:
        return None
    for cone in cones:
        if not cone.contains_strictly(point):
            return None
        size = sum(cone.gauge(point).sizes, Fraction(0))
        if size:
            room = min(room, 1 / size)
    return room


def _roundings(
    rows: Rows, cones: Sequence[Cone], offer: Point, form: Format
) -> Iterator[Point]:
    """The point on a coarse grid, as short dyadic numbers, then as near as the format allows."""
    room = room_in(rows, cones, offer)
    if room is not None:
        grid = power_of_two(floor_log2(min(room, Fraction(1))) - 3)
        coarse = tuple(round(c / grid) * grid for c in offer)
        if all(map(form.representable, coarse)):
            yield coarse
    yield tuple(map(form.rounded, offer))


def curved_centres(
    rows: Rows, cones: Sequence[Cone], deadline: Deadline = NEVER
) -> Iterator[Point]:
    """Proposals for a point deep inside, the best first; unchecked."""
    A, b = lp.unit_rows(rows)
    A = A.reshape(len(rows), rows.n)
    walls = Walls.of(A, b, [FloatCone(*cone.floats) for cone in cones])
    found = _deep_inside(walls, deadline)
    yield from found
    for wall in walls.cones:  # which may be too small to be found from afar
        middle = np.linalg.lstsq(wall.Y, -wall.y, rcond=None)[0]
        yield tuple(Fraction(float(c)) for c in middle)
    unit = walls.largest
    if not found and 0 < unit < 1:
        for point in _deep_inside(walls.measured_in(unit), deadline):
            yield tuple(c * Fraction(unit) for c in point)


def _deep_inside(walls: Walls, deadline: Deadline) -> list[Point]:
    depth, start = deepest(walls, deadline)
    if not depth > 0:
        return []
    points = (centre(walls, start, deadline), start)
    return [tuple(Fraction(float(c)) for c in point) for point in points]


def outer_rows(cones: Sequence[Cone], n: int) -> Rows:
    """Flat walls that balls and ellipsoids lie within: the ends of coordinates; else that no part exceeds the norm."""
    A: list[Sequence[Fraction]] = []
    b: list[Fraction] = []
    for cone in cones:
        if any(cone.s):
            continue
        for j, reach in enumerate(cone.reaches):
            if reach is None:
                continue
            own = [Fraction(0)] * n
            own[j] = Fraction(1)
            lower, upper = reach.around
            size = cone.t * reach.size
            A += [own, [-c for c in own]]
            b += [size + upper, size - lower]
        if None not in cone.reaches:
            continue
        for weight, row, shift in zip(cone.weights, cone.Y, cone.y, strict=True):
            size = cone.t * root_above(1 / weight)
            A += [row, [-c for c in row]]
            b += [size - shift, size + shift]
    return Rows.of(A, b, n=n)


def refuse_far_cones(
    cones: Sequence[Cone], anchor: Sequence[Fraction], atoms: Sequence[Atom]
) -> None:
    """Raises ``MagnitudeError`` for a cone whose gauge has numbers that float64 cannot square."""
    for cone, atom in zip(cones, atoms, strict=True):
        gauge = cone.gauge(anchor)
        for number in gauge.w:
            _refuse_far(number * number, atom)
        for factor, row in zip(gauge.factors, gauge.L, strict=True):
            for number in filter(None, row):
                _refuse_far(factor * number * number, atom)


def _refuse_far(square: Fraction, atom: Atom) -> None:
    if square and not 1 / FURTHEST <= abs(square) <= FURTHEST:
        raise MagnitudeError([formula_text(atom)], square)
