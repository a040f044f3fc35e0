"""Equalities that no binary float meets, moved to the nearest ones that floats can meet.

``x = 1/3`` or ``x + y = 0.3`` hold for no floats at all. A point x* of the term with room in every inequality is
rounded to a binary grid; the rows ``a·x = b`` then become ``a·x = a·x⁰``, which hold at x⁰ and so have solutions, with
right-hand sides as close to b as the grid is fine. The finest grid on which the format holds the whole term is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from multiplexnet.compiler.terms import Term
from multiplexnet.errors import EqualityError, ThinTermError
from multiplexnet.exact import simplex
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS, Format, floor_log2, power_of_two
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.parts import Part
from multiplexnet.geometry.split import parts_of
from multiplexnet.language.formula import Atom, Linear, Variable

__all__ = ["parts_with_moved_equalities"]


def parts_with_moved_equalities(
    term: Term,
    outputs: Sequence[Variable],
    form: Format | str,
    deadline: Deadline = NEVER,
) -> tuple[tuple[Part, ...], dict[Atom, Fraction]]:
    """The parts of a term, and by how much the right-hand side of each equality had to move (none: all are exact).

    Raises:
        EqualityError, ThinTermError: as :func:`~multiplexnet.geometry.split.parts_of`, if no grid helps.

    Example:
        >>> x = Variable("x", 0)
        >>> third = Term((Atom(Linear.of(x) - Fraction(1, 3), "=="),))
        >>> parts, moved = parts_with_moved_equalities(third, (x,), "float16")
        >>> float(parts[0].lower[0]), float(max(moved.values()))
        (0.333251953125, 8.138020833333333e-05)
    """
    form = FORMATS[form] if isinstance(form, str) else form
    try:
        return parts_of(term, outputs, form, deadline), {}
    except EqualityError as error:
        refusal: Exception = error
    own = [
        row for row in term.rows if all(s in outputs for s, _ in row.linear.summands)
    ]
    point = _inside(own, dict(term.fixed), deadline)
    size = max([abs(v) for v in point.values()] + [Fraction(1, 1 << form.precision)])
    finest = floor_log2(size) + 1 - form.precision
    for exponent in range(finest, finest + form.precision):
        moved = _moved(term, own, point, power_of_two(exponent), dict(term.fixed))
        try:
            parts = parts_of(moved, outputs, form, deadline)
        except (EqualityError, ThinTermError) as error:
            refusal = error
            continue
        return parts, _distances(term.rows, moved.rows)
    raise refusal


def _distances(before: Sequence[Atom], after: Sequence[Atom]) -> dict[Atom, Fraction]:
    """By how much the right-hand sides of those rows moved that did."""
    distances = {}
    for old, new in zip(before, after, strict=True):
        if new != old:
            distances[old] = abs(new.linear.constant - old.linear.constant)
    return distances


def _inside(
    rows: Sequence[Atom], fixed: dict[Variable, Fraction], deadline: Deadline
) -> dict[Variable, Fraction]:
    """An exact point of the rows with slack in every inequality."""
    symbols = dict.fromkeys(symbol for row in rows for symbol, _ in row.linear.summands)
    variables = [s for s in symbols if isinstance(s, Variable) and s not in fixed]
    A: list[list[Fraction | int]] = []
    b: list[Fraction | int] = []
    for row in rows:
        a = [row.linear.coefficient(v) for v in variables]
        bound = -row.linear.constant - sum(
            row.linear.coefficient(v) * c for v, c in fixed.items()
        )
        A.append([*a, int(row.relation != "==")])
        b.append(bound)
        if row.relation == "==":
            A.append([*(-c for c in a), 0])
            b.append(-bound)
    room: list[Fraction | int] = [*[0] * len(variables), 1]
    found = simplex.maximise(
        room, Rows.of([*A, room], [*b, 1], n=len(room)), deadline=deadline
    )
    return dict(zip(variables, found.point, strict=False))


def _moved(
    term: Term,
    rows: Sequence[Atom],
    point: dict[Variable, Fraction],
    grid: Fraction,
    fixed: dict[Variable, Fraction],
) -> Term:
    """The term with its equalities moved so that they hold at the point rounded to the grid."""
    rounded = {v: round(c / grid) * grid for v, c in point.items()} | fixed

    def met(row: Atom) -> Atom:
        if row.relation != "==" or row not in rows:
            return row
        value = sum(
            (c * rounded[s] for s, c in row.linear.summands if isinstance(s, Variable)),
            Fraction(0),
        )
        return Atom(Linear(row.linear.summands, -value), "==")

    return replace(term, rows=tuple(map(met, term.rows)))
