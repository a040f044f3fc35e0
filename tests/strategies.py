"""Random formulas and points for hypothesis, over any variables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import strategies as st

from multiplexnet.language.formula import (
    And,
    Apply,
    Atom,
    Bool,
    Category,
    Formula,
    Iff,
    Int,
    Ite,
    Linear,
    Max,
    Not,
    Or,
    Real,
    Relation,
    Symbol,
    Variable,
    maximum,
)

__all__ = ["VARIABLES", "atoms", "formulas", "linears", "numbers", "points"]

VARIABLES = (
    Variable("x", 0),
    Variable("y", 1),
    Variable("n", 2, Int(-2, 3)),
    Variable("on", 3, Bool()),
    Variable("colour", 4, Category(("red", "green", "blue"))),
    Variable("limit", 5, Real(Fraction(-1), Fraction(5, 2)), "input"),
)
"""Every kind of variable; the default of all strategies here."""

RELATIONS: tuple[Relation, ...] = ("<=", "<", "==")


def numbers() -> st.SearchStrategy[Fraction]:
    """Small rational numbers, among them thirds, which no float can hold."""
    return st.builds(Fraction, st.integers(-4, 4), st.sampled_from([1, 1, 2, 3]))


def points(
    variables: Sequence[Variable] = VARIABLES,
) -> st.SearchStrategy[dict[Variable, Fraction]]:
    """A value for every variable, within its domain."""
    return st.fixed_dictionaries(
        {variable: _values(variable) for variable in variables}
    )


def _values(variable: Variable) -> st.SearchStrategy[Fraction]:
    if not isinstance(variable.domain, Real):
        return st.sampled_from([Fraction(value) for value in variable.domain.values])
    lower, upper = variable.domain.lower, variable.domain.upper
    ends = [end for end in (lower, upper) if end is not None]
    inside = (
        numbers()
        .map(lambda v: v if lower is None else max(v, lower))
        .map(lambda v: v if upper is None else min(v, upper))
    )
    return st.one_of(inside, st.sampled_from(ends)) if ends else inside


def linears(
    variables: Sequence[Variable] = VARIABLES,
    *,
    depth: int = 2,
    functions: Sequence[str] = (),
) -> st.SearchStrategy[Linear]:
    """Linear expressions; with ``depth`` above 0 also over ``Max``, ``Ite`` and one-argument opaque functions."""
    symbol: st.SearchStrategy[Symbol] = st.sampled_from(variables)
    if depth:
        symbol = st.one_of(symbol, symbol, _compound(variables, depth - 1, functions))
    terms = st.lists(st.tuples(symbol, numbers()), max_size=3)
    return st.builds(_total, terms, numbers())


def _total(terms: list[tuple[Symbol, Fraction]], constant: Fraction) -> Linear:
    total = Linear.number(constant)
    for symbol, coefficient in terms:
        total += Linear.of(symbol) * coefficient
    return total


def _compound(
    variables: Sequence[Variable], depth: int, functions: Sequence[str]
) -> st.SearchStrategy[Symbol]:
    part = linears(variables, depth=depth, functions=functions)
    largest = (
        st.lists(part, min_size=2, max_size=3)
        .map(maximum)
        .map(_only_max)
        .filter(lambda m: m is not None)
    )
    kinds: list[st.SearchStrategy[Symbol]] = [
        largest,  # type: ignore[list-item]
        st.builds(Ite, atoms(variables, depth=depth, functions=functions), part, part),
    ]
    if functions:
        kinds.append(st.builds(Apply, st.sampled_from(functions), st.tuples(part)))
    return st.one_of(kinds)


def _only_max(linear: Linear) -> Max | None:
    """The maximum as a symbol, unless its arguments folded to something simpler."""
    symbol = linear.summands[0][0] if len(linear.summands) == 1 else None
    return symbol if isinstance(symbol, Max) else None


def atoms(
    variables: Sequence[Variable] = VARIABLES,
    *,
    depth: int = 2,
    functions: Sequence[str] = (),
) -> st.SearchStrategy[Atom]:
    """Comparisons of a linear expression with zero, strict ones and equalities included."""
    return st.builds(
        Atom,
        linears(variables, depth=depth, functions=functions),
        st.sampled_from(RELATIONS),
    )


def formulas(
    variables: Sequence[Variable] = VARIABLES,
    *,
    depth: int = 1,
    functions: Sequence[str] = (),
    max_leaves: int = 6,
) -> st.SearchStrategy[Formula]:
    """Formulas with every connective, also empty and single conjunctions and disjunctions.

    Args:
        variables: over which they speak.
        depth: how deep ``Max``, ``Ite`` and opaque functions nest inside atoms; 0 for plain linear atoms.
        functions: names of opaque functions of one argument.
        max_leaves: about how many atoms there are at most.
    """
    return st.recursive(
        atoms(variables, depth=depth, functions=functions),
        lambda part: st.one_of(
            st.builds(Not, part),
            st.builds(And, st.lists(part, max_size=3).map(tuple)),
            st.builds(Or, st.lists(part, max_size=3).map(tuple)),
            st.builds(Iff, part, part),
        ),
        max_leaves=max_leaves,
    )
