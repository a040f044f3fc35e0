"""Opaque functions: outputs that a function bounds come after those in its arguments.

``y > f(x)`` bounds y once x is known. The outputs that must come last are eliminated first: one that a row with a
function bounds and that no function still needs. What the elimination leaves ties the outputs before it, functions
among them again if need be. In the end no row has a function of outputs any more, and the outputs taken out, in
reverse, are parametric parts whose parameters are function values and earlier outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from multiplexnet.compiler.equalities import symbols_of
from multiplexnet.errors import (
    CurvedError,
    CyclicFunctionError,
    EqualityError,
    UnboundableError,
)
from multiplexnet.geometry.elimination import eliminated, growth, parametric
from multiplexnet.geometry.parts import Parametric
from multiplexnet.language.formula import Apply, Atom, Variable, norm_in, symbols
from multiplexnet.language.text import formula_text

__all__ = ["Stages", "stages_of"]


@dataclass(frozen=True)
class Stages:
    """Rows without functions of outputs, and the parts that follow once their outputs are known, in order."""

    rows: tuple[Atom, ...]
    later: tuple[Parametric, ...]


def stages_of(outputs: Sequence[Variable], rows: Sequence[Atom]) -> Stages:
    """Separate what functions bound from what must be known before.

    Args:
        outputs: the outputs that are not constant.
        rows: of one term.

    Raises:
        CyclicFunctionError: no order of the outputs will do.
        UnboundableError: the rows limit the value of a function of outputs.
        EqualityError: an equality with an output that follows a function.

    Example:
        >>> from multiplexnet.language.formula import Linear
        >>> x, y = Variable("x", 0), Variable("y", 1)
        >>> function = Linear.of(Apply("f", (Linear.of(x),)))
        >>> found = stages_of((x, y), [Atom(function - Linear.of(y), "<"), Atom(Linear.of(x) - 1, "<=")])
        >>> [formula_text(row) for row in found.rows], [part.outputs[0].name for part in found.later]
        (['x <= 1'], ['y'])
    """
    own = frozenset(outputs)
    remaining = tuple(rows)
    late: list[tuple[Variable, tuple[Atom, ...]]] = []
    while functional := [row for row in remaining if needed([row], own)]:
        variable = _last(functional, remaining, own)
        equal = [
            row
            for row in remaining
            if row.relation == "==" and row.linear.coefficient(variable)
        ]
        if equal:
            raise EqualityError(
                list(map(formula_text, equal)), f"{variable.name} follows {UNSUPPORTED}"
            )
        _refuse_curved(variable, remaining)
        found = eliminated(variable, remaining)
        late.append((variable, found.touching))
        remaining = found.rest
    return Stages(remaining, tuple(_parts(late[::-1], own)))


def _refuse_curved(variable: Variable, rows: Iterable[Atom]) -> None:
    for row in rows:
        if norm_in(row.linear) and variable in symbols_of(row):
            raise CurvedError(
                formula_text(row),
                f"{variable.name} follows the value of a function",
                "bound it by flat walls",
            )


UNSUPPORTED = "the value of a function, and equalities between such outputs are not supported; write an inequality"


def needed(rows: Iterable[Atom], own: frozenset[Variable]) -> set[Variable]:
    """The outputs that the functions in the rows have to know."""
    applied = (
        s for row in rows for s, _ in row.linear.summands if isinstance(s, Apply)
    )
    return {
        v
        for function in applied
        for v in symbols(function)
        if isinstance(v, Variable) and v in own
    }


def _bounded(row: Atom, own: frozenset[Variable]) -> set[Variable]:
    symbols = [symbol for symbol, _ in row.linear.summands]
    return {s for s in symbols if isinstance(s, Variable) and s in own}


def _last(
    functional: Sequence[Atom], rows: Sequence[Atom], own: frozenset[Variable]
) -> Variable:
    """The output to compute last: one that functions bound and none needs, with the least growth."""
    bare = [row for row in functional if not _bounded(row, own)]
    if bare:
        raise UnboundableError([formula_text(row) for row in bare])
    offers = {v for row in functional for v in _bounded(row, own)} - needed(
        functional, own
    )
    if not offers:
        raise CyclicFunctionError([formula_text(row) for row in functional])
    return min(offers, key=lambda v: (growth(v, rows), -v.index))


@dataclass
class _Stage:
    outputs: list[Variable]
    touching: dict[Variable, tuple[Atom, ...]]


def _parts(
    late: Sequence[tuple[Variable, tuple[Atom, ...]]], own: frozenset[Variable]
) -> list[Parametric]:
    """The late outputs in order; each joins the last stage it depends on, unless a function has to know that first."""
    stages: list[_Stage] = []
    place: dict[Variable, int] = {}
    for variable, rows in late:
        first = needed(rows, own)
        tied = {v for row in rows for v in _bounded(row, own)} - {variable}
        last = max((place[v] for v in first | tied if v in place), default=-1)
        at_last = {v for v in place if place[v] == last}
        if not at_last & tied or at_last & first:
            stages.append(_Stage([], {}))
            last = len(stages) - 1
        stages[last].outputs.append(variable)
        stages[last].touching[variable] = rows
        place[variable] = last
    return [_part(stage) for stage in stages]


def _part(stage: _Stage) -> Parametric:
    rows = list(
        dict.fromkeys(row for touching in stage.touching.values() for row in touching)
    )
    return parametric(stage.outputs, rows, stage.touching, ())
