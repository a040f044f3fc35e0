"""Equalities of a term: constants put into its rows, copies of inputs apart, and which no map of a term can meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from multiplexnet.compiler.terms import Block, Term, with_inner
from multiplexnet.exact.components import components
from multiplexnet.language.curves import put_in
from multiplexnet.language.formula import (
    Apply,
    Atom,
    Linear,
    Norm,
    Symbol,
    Variable,
    norm_in,
)

__all__ = [
    "apart",
    "beyond_terms",
    "is_copy",
    "is_single_equality",
    "substituted",
    "symbols_of",
]


def beyond_terms(blocks: Iterable[Block]) -> frozenset[Variable]:
    """Outputs that a term of some block ties by an equality and by inputs at once, which only a cascade meets.

    Example:
        >>> u = Variable("u", 0, role="input")
        >>> x, y = Variable("x", 1), Variable("y", 2)
        >>> sum_of_both = Atom(Linear.of(x) + Linear.of(y) - Linear.of(u), "==")
        >>> sorted(v.name for v in beyond_terms([Block((x, y), (Term((sum_of_both,)),))]))
        ['x', 'y']
    """
    found: set[Variable] = set()
    for block in with_inner(blocks):
        for term in block.terms:
            found.update(_beyond(term, block.outputs))
    return frozenset(found)


def _beyond(term: Term, outputs: Sequence[Variable]) -> Iterator[Variable]:
    if not term.equalities or any(_is_opaque(row) for row in term.rows):
        return
    inner = {variable for block in term.blocks for variable in block.outputs}
    constants, rows = _constants(term)
    own = [v for v in outputs if v not in inner and v not in constants]
    for tied, together in components(own, apart(rows), keys_of=symbols_of):
        mentioned = {symbol for row in together for symbol in symbols_of(row)}
        is_equal = any(row.relation == "==" and not is_copy(row) for row in together)
        if tied and is_equal and not mentioned <= set(tied):
            yield from tied


def _is_opaque(row: Atom) -> bool:
    return any(isinstance(symbol, Apply) for symbol in symbols_of(row))


def _constants(term: Term) -> tuple[dict[Variable, Fraction], list[Atom]]:
    """Discrete outputs and ``x = c``, and the other rows with these put into them."""
    constants = dict(term.fixed)
    rows = list(term.rows)
    while True:
        rows = [substituted(row, constants) for row in rows]
        single = next(filter(is_single_equality, rows), None)
        if single is None:
            return constants, [row for row in rows if row.linear.summands]
        ((symbol, coefficient),) = single.linear.summands
        assert isinstance(symbol, Variable)
        constants[symbol] = -single.linear.constant / coefficient


def is_single_equality(row: Atom) -> bool:
    """Whether the row is ``x = c`` for an output x."""
    if row.relation != "==" or len(row.linear.summands) != 1:
        return False
    symbol, _ = row.linear.summands[0]
    return isinstance(symbol, Variable) and not symbol.is_input


def substituted(row: Atom, constants: Mapping[Variable, Fraction]) -> Atom:
    """The row with numbers in place of some outputs."""
    if not constants or not any(s in constants for s in symbols_of(row)):
        return row
    curved: list[Linear] = []
    kept: dict[Symbol, Fraction] = {}
    constant = row.linear.constant
    for symbol, coefficient in row.linear.summands:
        if isinstance(symbol, Variable) and symbol in constants:
            constant += coefficient * constants[symbol]
        elif isinstance(symbol, Norm):
            numbers: dict[Symbol, Linear] = {
                v: Linear.number(c) for v, c in constants.items()
            }
            curved.append(_in_norm(symbol, numbers) * coefficient)
        else:
            kept[symbol] = coefficient
    linear = Linear.total(kept, constant)
    for part in curved:
        linear = linear + part
    return Atom(linear, row.relation)


def _in_norm(norm: Norm, values: Mapping[Symbol, Linear]) -> Linear:
    """The norm with expressions in place of some symbols."""
    arguments = []
    for argument in norm.arguments:
        linear = argument
        for symbol, c in argument.summands:
            if symbol in values:
                linear = linear + (values[symbol] - Linear.of(symbol)) * c
        arguments.append(linear)
    return put_in(norm, arguments)


def apart(rows: Sequence[Atom]) -> list[Atom]:
    """The rows with u in place of x where a row says x = u: no other row ties such an output then."""
    copies = dict(_copy(row) for row in rows if is_copy(row))
    found = []
    for row in rows:
        linear = row.linear
        if not is_copy(row):
            for symbol, c in row.linear.summands:
                if symbol in copies:
                    linear = (
                        linear + (Linear.of(copies[symbol]) - Linear.of(symbol)) * c
                    )
                elif copies and isinstance(symbol, Norm):
                    known = {s: Linear.of(u) for s, u in copies.items()}
                    linear = linear + (_in_norm(symbol, known) - Linear.of(symbol)) * c
        found.append(Atom(linear, row.relation))
    return found


def is_copy(row: Atom) -> bool:
    """Whether a row is ``x = u`` for an output x and an input u."""
    symbols = [symbol for symbol, _ in row.linear.summands]
    if row.relation != "==" or row.linear.constant or len(symbols) != 2:
        return False
    if sum((c for _, c in row.linear.summands), Fraction(0)):
        return False
    return {s.is_input for s in symbols if isinstance(s, Variable)} == {True, False}


def _copy(row: Atom) -> tuple[Symbol, Symbol]:
    (first, _), (second, _) = row.linear.summands
    known = isinstance(first, Variable) and first.is_input
    return (second, first) if known else (first, second)


def symbols_of(row: Atom) -> list[Symbol]:
    """What stands in a row, in its order; of a norm what stands in its arguments."""
    found = [symbol for symbol, _ in row.linear.summands]
    norm = norm_in(row.linear)
    if norm is None:
        return found
    inside = [s for argument in norm[0].arguments for s, _ in argument.summands]
    return list(dict.fromkeys([*found[:-1], *inside]))
