"""Fourier–Motzkin elimination: rows over several outputs as bounds of one output after the other.

Eliminating x from ``l(y) ≤ x`` and ``x ≤ h(y)`` leaves ``l(y) ≤ h(y)`` for every pair: exactly what the other symbols
must satisfy for some x to exist. The outputs are eliminated in the order that makes fewest new rows, and computed in
the reverse order: whatever is chosen inside the bounds of one output leaves room for the next. Symbols that are not
eliminated (inputs, values of functions, outputs computed before) are parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.errors import EliminationError
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.magnitudes import refuse_far_rows
from multiplexnet.geometry.parts import Bound, OutputBounds, Parametric
from multiplexnet.geometry.polyhedron import without_redundant
from multiplexnet.language.formula import Atom, Linear, Symbol, Variable, coprime
from multiplexnet.language.text import formula_text

__all__ = [
    "EliminationStep",
    "coefficients",
    "eliminated",
    "growth",
    "parametric",
    "triangular",
]

ROW_BUDGET = 2000
"""Rows beyond which elimination is given up."""
PRUNED_ROWS = 80
"""Rows up to which redundant ones are sought by linear programs."""


@dataclass(frozen=True)
class EliminationStep:
    """One output taken out of some rows.

    Args:
        touching: the rows that bound it.
        rest: what remains for the other symbols.
    """

    touching: tuple[Atom, ...]
    rest: tuple[Atom, ...]


def eliminated(
    variable: Variable, rows: Sequence[Atom], deadline: Deadline = NEVER
) -> EliminationStep:
    """The rows (inequalities) that mention a variable, and the others together with what those imply without it.

    Raises:
        EliminationError: too many rows.

    Example:
        >>> x, y = (Linear.of(Variable(name, i)) for i, name in enumerate("xy"))
        >>> found = eliminated(Variable("x", 0), [Atom(y - x, "<"), Atom(x - 5, "<=")])
        >>> [formula_text(row) for row in found.rest]
        ['y < 5']
    """
    deadline.check()
    touching = [row for row in rows if row.linear.coefficient(variable)]
    others = [row for row in rows if not row.linear.coefficient(variable)]
    lower, upper = _sides(variable, touching)
    if len(lower) * len(upper) + len(others) > ROW_BUDGET:
        names = sorted(
            {
                s.name
                for row in touching
                for s, _ in row.linear.summands
                if isinstance(s, Variable)
            }
        )
        raise EliminationError(len(lower) * len(upper) + len(others), ROW_BUDGET, names)
    combined = [_combined(variable, low, high) for low in lower for high in upper]
    rest = _tightest([*others, *combined])
    if len(lower) * len(upper) > len(touching) and len(rest) <= PRUNED_ROWS:
        rest = _pruned(rest, deadline)
    return EliminationStep(tuple(touching), tuple(rest))


def growth(variable: Variable, rows: Iterable[Atom]) -> int:
    """How many rows more there are once the variable is eliminated, before any of them is dropped."""
    lower, upper = _sides(variable, rows)
    return len(lower) * len(upper) - len(lower) - len(upper)


def triangular(
    outputs: Sequence[Variable], rows: Sequence[Atom], deadline: Deadline = NEVER
) -> Parametric:
    """The inequalities as a parametric part: bounds for one output after the other, and guards for the parameters.

    Example:
        >>> x, y, u = Variable("x", 0), Variable("y", 1), Variable("u", 2, role="input")
        >>> part = triangular((x, y), [Atom(Linear.of(x) - Linear.of(y), "<"), Atom(Linear.of(y) - Linear.of(u), "<=")])
        >>> [v.name for v in part.outputs], [len(step.upper) for step in part.steps], part.guards
        (['x', 'y'], [1, 1], ())
    """
    left = list(outputs)
    remaining = tuple(rows)
    touching: dict[Variable, tuple[Atom, ...]] = {}
    while left:
        variable = min(left, key=lambda v: (growth(v, remaining), -v.index))
        found = eliminated(variable, remaining, deadline)
        touching[variable] = found.touching
        remaining = found.rest
        left.remove(variable)
    return parametric(tuple(reversed(touching)), rows, touching, remaining)


def parametric(
    order: Sequence[Variable],
    rows: Sequence[Atom],
    touching: Mapping[Variable, Sequence[Atom]],
    guards: Sequence[Atom],
) -> Parametric:
    """The part with these rows whose outputs are bounded, in this order, by the rows that touch them.

    Raises:
        MagnitudeError: numbers that float64 cannot compute with; a guard over one value is decided without it.
    """
    bounds = (
        _solved(row, variable) for variable in order for row in touching[variable]
    )
    refuse_far_rows(
        [*rows, *bounds, *(row for row in guards if len(row.linear.summands) > 1)]
    )
    known = set(order)
    mentioned = {s for row in [*rows, *guards] for s, _ in row.linear.summands}
    mentioned |= {
        s for v in order for row in touching[v] for s, _ in row.linear.summands
    }
    parameters = tuple(
        s
        for s, _ in Linear.total(dict.fromkeys(mentioned - known, Fraction(1))).summands
    )
    closed = [half for row in rows for half in _halves(row)]
    return Parametric(
        tuple(order),
        parameters,
        tuple(coefficients(row.linear, order) for row in closed),
        tuple(coefficients(row.linear, parameters) for row in closed),
        tuple(-row.linear.constant for row in closed),
        tuple(row.relation == "<" for row in closed),
        tuple(
            _step(variable, touching[variable], order[:j], parameters)
            for j, variable in enumerate(order)
        ),
        tuple(
            _affine(half, Fraction(1), (), parameters)
            for row in guards
            for half in _halves(row)
        ),
    )


# --- rows -----------------------------------------------------------------------------------------------------------


def _sides(variable: Variable, rows: Iterable[Atom]) -> tuple[list[Atom], list[Atom]]:
    """The rows that bound the variable from below, and those from above."""
    signed = [(row.linear.coefficient(variable), row) for row in rows]
    below = [row for c, row in signed if c < 0]
    above = [row for c, row in signed if c > 0]
    return below, above


def _combined(variable: Variable, low: Atom, high: Atom) -> Atom:
    linear = low.linear * high.linear.coefficient(
        variable
    ) - high.linear * low.linear.coefficient(variable)
    return Atom(coprime(linear), "<" if "<" in (low.relation, high.relation) else "<=")


def _tightest(rows: Iterable[Atom]) -> list[Atom]:
    """The tightest of the rows with the same normal; rows that always hold are dropped."""
    best: dict[object, Atom] = {}
    for row in rows:
        constant = row.linear.constant
        if not row.linear.summands:
            if constant > 0 or (constant == 0 and row.relation == "<"):
                raise ValueError(
                    f"the term is empty: its rows imply {formula_text(row)}"
                )
            continue
        key = (row.linear.summands, row.relation == "==")
        rank = (constant, row.relation == "<")
        if key not in best or rank > (
            best[key].linear.constant,
            best[key].relation == "<",
        ):
            best[key] = row
    return list(best.values())


def _pruned(rows: list[Atom], deadline: Deadline) -> list[Atom]:
    """The rows without those that the other inequalities imply, every symbol taken for a free variable."""
    plain = [row for row in rows if row.relation != "=="]
    symbols = list(dict.fromkeys(s for row in plain for s, _ in row.linear.summands))
    system = Rows.of(
        [coefficients(row.linear, symbols) for row in plain],
        [-row.linear.constant for row in plain],
        [row.relation == "<" for row in plain],
        n=len(symbols),
    )
    kept = without_redundant(system, deadline)
    left = {
        (a, b, strict) for a, b, strict in zip(kept.A, kept.b, kept.strict, strict=True)
    }
    keys = zip(system.A, system.b, system.strict, strict=True)
    return [row for row in rows if row.relation == "=="] + [
        r for r, key in zip(plain, keys, strict=True) if key in left
    ]


def _halves(row: Atom) -> tuple[Atom, ...]:
    """The row as inequalities."""
    return (
        (row,)
        if row.relation != "=="
        else (Atom(row.linear, "<="), Atom(-row.linear, "<="))
    )


# --- bounds ---------------------------------------------------------------------------------------------------------


def coefficients(linear: Linear, symbols: Sequence[Symbol]) -> tuple[Fraction, ...]:
    """The coefficients of these symbols, zero where one does not occur."""
    terms = dict(linear.summands)
    zero = Fraction(0)
    return tuple(terms.get(s, zero) for s in symbols)


def _step(
    variable: Variable,
    rows: Sequence[Atom],
    before: Sequence[Variable],
    parameters: Sequence[Symbol],
) -> OutputBounds:
    lower, upper = _sides(variable, rows)
    bounds = [
        tuple(
            _affine(row, -1 / row.linear.coefficient(variable), before, parameters)
            for row in side
        )
        for side in (lower, upper)
    ]
    return OutputBounds(*bounds)


def _solved(row: Atom, variable: Variable) -> Atom:
    """The row with coefficient 1 of the variable: the numbers of the bound that it is."""
    size = abs(row.linear.coefficient(variable))
    return Atom(row.linear * (1 / size), row.relation)


def _affine(
    row: Atom,
    factor: Fraction,
    outputs: Sequence[Variable],
    parameters: Sequence[Symbol],
) -> Bound:
    linear = row.linear * factor
    constant = linear.constant
    strict = row.relation == "<"
    return Bound(
        coefficients(linear, outputs),
        coefficients(linear, parameters),
        constant,
        strict,
    )
