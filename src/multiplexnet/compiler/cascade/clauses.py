"""Formulas in normal form as clauses of comparisons, and the ranges that clauses give to their variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, product

from multiplexnet.language.formula import (
    And,
    Atom,
    Formula,
    Linear,
    Or,
    Product,
    Real,
    Symbol,
    Variable,
    count_of,
    nearest_to_zero,
)
from multiplexnet.language.missing import flags_among

__all__ = [
    "AtomClause",
    "Ends",
    "TooManyClauses",
    "clauses_of",
    "least",
    "product_ends",
    "ranges_of",
]

AtomClause = tuple[Atom, ...]
Ends = tuple[Fraction | None, Fraction | None]

ROUNDS = 30
"""How often ranges are passed on from clause to clause; they are right after every round."""
LONG = 8
"""Variables from which a row is narrowed in one go."""
CASES = 64
"""The most values of a discrete output that are gone through where another output has no ends without them."""


class TooManyClauses(Exception):
    """A formula that has more clauses than allowed."""


def clauses_of(formula: Formula, most: int) -> list[AtomClause]:
    """The formula, in normal form, as a conjunction of disjunctions of inequalities; equalities become two of them.

    Raises:
        TooManyClauses: there are more than ``most``.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> from multiplexnet.compiler.normal import normal_form
        >>> [len(clause) for clause in clauses_of(normal_form(parse("x == 0 or x >= 3").formula), most=9)]
        [2, 2]
    """
    match formula:
        case Atom(linear, "=="):
            return [(Atom(linear, "<="),), (Atom(-linear, "<="),)]
        case Atom():
            return [(formula,)]
        case And(arguments):
            parts = [
                clause
                for argument in arguments
                for clause in clauses_of(argument, most)
            ]
            return _within(list(dict.fromkeys(parts)), most + len(arguments))
        case Or(arguments):
            found: list[AtomClause] = [()]
            points, others = _points(arguments)
            sides = [_gaps(linear, values) for linear, values in points.items()]
            sides += [clauses_of(argument, most) for argument in others]
            for own in sides:
                if len(found) * len(own) > most:
                    raise TooManyClauses
                found = [tuple(dict.fromkeys((*a, *b))) for a, b in product(found, own)]
            return found
    raise TypeError(f"not in normal form: {formula!r}")


def _points(
    arguments: Iterable[Formula],
) -> tuple[dict[Linear, list[Fraction]], list[Formula]]:
    """Alternatives that one expression has one of several values, by expression; and the others."""
    found: dict[Linear, list[Fraction]] = {}
    where: dict[Linear, list[Formula]] = {}
    others: list[Formula] = []
    for argument in arguments:
        if not isinstance(argument, Atom) or argument.relation != "==":
            others.append(argument)
            continue
        _, factor = argument.linear.summands[0]
        scaled = argument.linear * (1 / factor)
        own = Linear(scaled.summands, Fraction(0))
        found.setdefault(own, []).append(-scaled.constant)
        where.setdefault(own, []).append(argument)
    for own in [own for own, values in found.items() if len(values) == 1]:
        del found[own]
        others += where[own]
    return found, others


def _gaps(linear: Linear, values: Iterable[Fraction]) -> list[AtomClause]:
    """That an expression has one of some values: it is in their range, and in no gap between two of them."""

    def at_most(value: Fraction) -> Atom:
        return Atom(Linear(linear.summands, -value), "<=")

    def at_least(value: Fraction) -> Atom:
        return Atom(-Linear(linear.summands, -value), "<=")

    ordered = sorted(set(values))
    between = [(at_most(below), at_least(above)) for below, above in pairwise(ordered)]
    return [(at_least(ordered[0]),), (at_most(ordered[-1]),), *between]


def _within(clauses: list[AtomClause], most: int) -> list[AtomClause]:
    if len(clauses) > most:
        raise TooManyClauses
    return clauses


# --- ranges ---------------------------------------------------------------------------------------------------------


def ranges_of(
    clauses: Sequence[AtomClause], variables: Iterable[Variable]
) -> dict[Variable, Ends]:
    """Ends that every variable keeps wherever the clauses hold; ``None`` where none was found.

    A row bounds a variable by the ends of the others; a clause bounds it by the weakest of its rows that can hold. An
    output that may be missing has the ends that it has where it is not, and its stand-in between them. Where an output
    is left without an end, those that it has for each value of a truth value or label are joined.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> from multiplexnet.compiler.normal import normal_form
        >>> specification = parse("x >= 0; y >= 0; x + y <= 3")
        >>> clauses = clauses_of(normal_form(specification.formula), most=9)
        >>> [str(ends[1]) for ends in ranges_of(clauses, specification.variables).values()]
        ['3', '3']
        >>> specification = parse("on: bool; x: real; implies(on, 0 <= x <= 9); implies(not on, x == -1)")
        >>> clauses = clauses_of(normal_form(specification.formula), most=9)
        >>> [str(end) for end in ranges_of(clauses, specification.variables)[specification.outputs[1]]]
        ['-1', '9']
    """
    found = {variable: _declared(variable) for variable in variables}
    _settle(clauses, found)
    for _ in range(ROUNDS):
        if not _narrow_by_cases(clauses, found):
            break
        _settle(clauses, found)
    return found


def _settle(clauses: Sequence[AtomClause], found: dict[Variable, Ends]) -> None:
    """Passes ends on from clause to clause until nothing changes, or long enough."""
    flags = flags_among(found)
    for _ in range(ROUNDS):
        before = dict(found)
        for clause in clauses:
            _narrow(clause, found)
        for variable, flag in flags.items():
            _narrow_present(clauses, variable, flag, found)
        if found == before:
            break


def _narrow_by_cases(clauses: Sequence[AtomClause], ends: dict[Variable, Ends]) -> bool:
    """Finds ends for outputs without, by going through the values of others; whether any was found."""
    if not any(None in own and not v.is_input for v, own in ends.items()):
        return False
    before = dict(ends)
    for variable, own in _deciding(clauses, ends).items():
        domain = variable.domain
        assert not isinstance(domain, Real)
        cases = []
        for value in map(Fraction, domain.values):
            case = {**ends, variable: (value, value)}
            for clause in own:
                _narrow(clause, case)
            cases.append(case)
        for other in {v for clause in own for v in _open(clause, ends)}:
            lowers = [case[other][0] for case in cases]
            uppers = [case[other][1] for case in cases]
            ends[other] = _weakest(min, lowers), _weakest(max, uppers)
    return ends != before


def _deciding(
    clauses: Sequence[AtomClause], ends: Mapping[Variable, Ends]
) -> dict[Variable, list[AtomClause]]:
    """Outputs with few values, each with its clauses, if one of these mentions an output without an end."""
    found: dict[Variable, list[AtomClause]] = {}
    for clause in clauses:
        for variable in dict.fromkeys(v for atom in clause for v in _bounded(atom)):
            domain = variable.domain
            if not isinstance(domain, Real) and count_of(domain) <= CASES:
                found.setdefault(variable, []).append(clause)
    return {
        variable: own
        for variable, own in found.items()
        if not variable.is_input and any(_open(clause, ends) for clause in own)
    }


def _open(clause: AtomClause, ends: Mapping[Variable, Ends]) -> list[Variable]:
    """The outputs of a clause that have no end on one side."""
    named = dict.fromkeys(v for atom in clause for v in _bounded(atom))
    return [v for v in named if None in ends[v] and not v.is_input]


def _weakest(
    choose: Callable[[list[Fraction]], Fraction], ends: Sequence[Fraction | None]
) -> Fraction | None:
    """The end that holds in all cases, if there is one."""
    given = [end for end in ends if end is not None]
    return choose(given) if len(given) == len(ends) else None


def _declared(variable: Variable) -> Ends:
    domain = variable.domain
    if isinstance(domain, Real):
        return domain.lower, domain.upper
    return Fraction(domain.values[0]), Fraction(domain.values[-1])


def _narrow(clause: AtomClause, ends: dict[Variable, Ends]) -> None:
    if len(clause) == 1 and _is_long(clause[0]):
        _narrow_long(clause[0], ends)
        return
    possible = [
        atom for atom in clause if (least := _least(atom, ends)) is None or least <= 0
    ]
    if not possible:
        return
    shared = set.intersection(*(set(_bounded(atom)) for atom in possible))
    for variable in shared:
        own = [_bounds(atom, variable, ends) for atom in possible]
        low, high = ends[variable]
        weakest = _weakest(min, [lower for lower, _ in own])
        if weakest is not None and (low is None or weakest > low):
            low = weakest
        weakest = _weakest(max, [upper for _, upper in own])
        if weakest is not None and (high is None or weakest < high):
            high = weakest
        ends[variable] = low, high


def _is_long(atom: Atom) -> bool:
    """Whether a comparison has many variables, and nothing else."""
    summands = atom.linear.summands
    return len(summands) > LONG and all(isinstance(s, Variable) for s, _ in summands)


def _narrow_long(atom: Atom, ends: dict[Variable, Ends]) -> None:
    """What :func:`_narrow` does, in one go: the ends that a row gives are not those that it is bounded by."""
    shares = {
        v: None if (end := ends[v][c < 0]) is None else c * end for v, c in _own(atom)
    }
    unknown = [v for v, share in shares.items() if share is None]
    if len(unknown) > 1:
        return
    known = [share for share in shares.values() if share is not None]
    total = sum(known, atom.linear.constant)
    if not unknown and total > 0:
        return
    for v, c in _own(atom):
        if unknown and v != unknown[0]:
            continue
        limit = -(total - (shares[v] or 0)) / c
        low, high = ends[v]
        if c > 0:
            ends[v] = low, limit if high is None else min(high, limit)
        else:
            ends[v] = limit if low is None else max(low, limit), high


def _own(atom: Atom) -> Iterator[tuple[Variable, Fraction]]:
    """The variables of a comparison without products, with their coefficients."""
    for symbol, c in atom.linear.summands:
        assert isinstance(symbol, Variable)
        yield symbol, c


def _narrow_present(
    clauses: Sequence[AtomClause],
    variable: Variable,
    flag: Variable,
    ends: dict[Variable, Ends],
) -> None:
    """What the clauses leave of a variable that may be missing: of itself, or of what stands for it."""
    present = {**ends, flag: (Fraction(0), Fraction(0))}
    for clause in clauses:
        if any(
            symbol == variable for atom in clause for symbol, _ in atom.linear.summands
        ):
            _narrow(clause, present)
    stand_in = nearest_to_zero(variable.domain)
    low, high = present[variable]
    least, most = ends[variable]
    if low is not None:
        least = min(low, stand_in) if least is None else max(least, min(low, stand_in))
    if high is not None:
        most = max(high, stand_in) if most is None else min(most, max(high, stand_in))
    ends[variable] = least, most


def _least(
    atom: Atom, ends: Mapping[Variable, Ends], without: Variable | None = None
) -> Fraction | None:
    """The least value of the left side, the part of one variable left out; ``None`` if there is no least."""
    kept = [
        (s, c)
        for s, c in atom.linear.summands
        if without is None or not _holds(s, without)
    ]
    return least(Linear(tuple(kept), atom.linear.constant), ends)


def least(linear: Linear, ends: Mapping[Variable, Ends]) -> Fraction | None:
    """The least value of an expression between the ends of its variables; ``None`` if there is none."""
    total = linear.constant
    for symbol, c in linear.summands:
        match symbol:
            case Variable():
                end = ends[symbol][c < 0]
            case Product(known, other):
                end = product_ends(ends[known], ends[other])[c < 0]
            case _:
                end = None
        if end is None:
            return None
        total += c * end
    return total


def product_ends(first: Ends, second: Ends) -> Ends:
    """The ends of a product of two numbers, each between its own."""
    if None in first or None in second:
        signs = [ends[0] is not None and ends[0] >= 0 for ends in (first, second)]
        return (first[0] * second[0] if all(signs) else None), None  # type: ignore[operator]
    products = [a * b for a in first for b in second]  # type: ignore[operator]
    return min(products), max(products)


def _holds(symbol: Symbol, variable: Variable) -> bool:
    return symbol == variable or (
        isinstance(symbol, Product) and symbol.other == variable
    )


def _bounded(atom: Atom) -> Iterator[Variable]:
    """The variables that a comparison may bound: all of its own, of products the outputs."""
    for symbol, _ in atom.linear.summands:
        if isinstance(symbol, Variable):
            yield symbol
        elif isinstance(symbol, Product) and not symbol.other.is_input:
            yield symbol.other


def _bounds(atom: Atom, variable: Variable, ends: Mapping[Variable, Ends]) -> Ends:
    """The ends that one row gives to a variable of it."""
    rest = _least(atom, ends, without=variable)
    if rest is None:
        return None, None
    own = [(s, c) for s, c in atom.linear.summands if _holds(s, variable)]
    factors = [(s.known if isinstance(s, Product) else None, c) for s, c in own]
    linear = Linear.total(
        {known: c for known, c in factors if known is not None},
        sum((c for known, c in factors if known is None), Fraction(0)),
    )
    low = least(linear, ends)
    negative_high = least(-linear, ends)
    high = None if negative_high is None else -negative_high
    if low is not None and low > 0:
        return None, _quotient(-rest, low, high)
    if high is not None and high < 0:
        found = _quotient(-rest, -high, None if low is None else -low)
        return (None if found is None else -found), None
    return None, None


def _quotient(room: Fraction, low: Fraction, high: Fraction | None) -> Fraction:
    """The largest of ``room`` over all numbers from ``low`` to ``high``, which are positive."""
    if room >= 0:
        return room / low
    return Fraction(0) if high is None else room / high
