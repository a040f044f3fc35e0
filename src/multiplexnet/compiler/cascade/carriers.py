r"""Sums that have to equal an input which lies between the points of the grid: one output carries the rest.

In ``x_1 + … + x_n == u`` with all x_i ≥ 0, on a grid of spacing h, let ``f = u − h ⌊u/h⌋`` be what u has beyond the
grid. One of the outputs, the *carrier*, is ``x_n = h k_n + f``, the others are ``h k_i``, and ``Σ k_i = ⌊u/h⌋`` is
exact.

The carrier is a number of the format: if the spacing of the format at u is at least h, f is 0. If it is smaller, x_n is
a multiple of it, and 0 ≤ x_n ≤ u, since no other summand is negative; all such multiples are numbers of the format.

What else equalities say of spacings stands here, too: which ones outputs should share, and which whole numbers are
multiples of others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm

from multiplexnet.compiler.cascade.clauses import AtomClause, Ends
from multiplexnet.compiler.cascade.input_parts import Form
from multiplexnet.language.formula import Int, Linear, Real, Variable

__all__ = ["carriers_of", "multiples_of", "shared_steps"]

ROUNDS = 8
"""How often divisors are passed on from equality to equality."""


def carriers_of(
    clauses: Sequence[AtomClause],
    ends: Mapping[Variable, Ends],
    steps: Mapping[Variable, Fraction],
    inputs: Sequence[Variable],
    others: Collection[Variable] = (),
) -> dict[Variable, Form]:
    """For every equality of this kind an output that occurs in no other one, and the input in units of its spacing.

    Args:
        clauses: the rules; an equality is two of them.
        ends: what is known of the values of the outputs.
        steps: the spacings of the outputs.
        inputs: in declared order.
        others: outputs that carry nothing, since products with them have to be whole numbers of steps.
    """
    equalities = list(_equalities(clauses))
    place = {variable: i for i, variable in enumerate(inputs)}
    found: dict[Variable, Form] = {}
    for linear in equalities:
        fitting = _fitting(linear, ends, steps)
        if fitting is None:
            continue
        outputs, given = fitting
        elsewhere = {
            s for other in equalities if other is not linear for s, _ in other.summands
        }
        alone = [v for v in outputs if v not in elsewhere and v not in others]
        if alone:
            exponent = _exponent(steps[alone[-1]])
            found[alone[-1]] = Form(((place[given], 1),), exponent)
    return found


def shared_steps(
    clauses: Sequence[AtomClause], steps: Mapping[Variable, Fraction]
) -> dict[Variable, Fraction]:
    """For real outputs that equalities tie together the coarsest of their spacings, where it is not their own.

    With one spacing for all of them the coefficients of a balance stay ±1, and projections of it are exact.

    Args:
        clauses: the rules; an equality is two of them.
        steps: the spacings of the outputs.
    """
    shared: dict[Variable, set[Variable]] = {}
    for linear in _equalities(clauses):
        tied = {s for s, c in linear.summands if s in steps and abs(c) == 1}
        real = {
            s for s in tied if isinstance(s, Variable) and isinstance(s.domain, Real)
        }
        together = real.union(*(shared.get(v, ()) for v in real))
        shared.update(dict.fromkeys(together, together))
    coarsest = {v: max(steps[w] for w in together) for v, together in shared.items()}
    return {v: step for v, step in coarsest.items() if step != steps[v]}


def multiples_of(clauses: Sequence[AtomClause]) -> dict[Variable, Fraction]:
    """For whole outputs a number larger than 1 of which equalities leave multiples alone.

    In ``3 n + 5 k == 15 u`` n is a multiple of 5 and k one of 3. The input u is whole, too: 15 u is, and u is a whole
    number divided by a power of two. This is not said of several inputs, since only their sum has to be whole.

    Args:
        clauses: the rules; an equality is two of them.
    """
    found: dict[Variable, int] = {}
    equalities = [own for own in _equalities(clauses) if _is_whole(own)]
    for _ in range(ROUNDS):
        before = dict(found)
        for linear in equalities:
            _pass_divisors(linear, found)
        if found == before:
            break
    return {v: Fraction(divisor) for v, divisor in found.items() if divisor > 1}


def _is_whole(linear: Linear) -> bool:
    """Whether an equality has whole outputs alone, and at most one input that may be no whole number."""
    symbols = [symbol for symbol, _ in linear.summands]
    variables = [symbol for symbol in symbols if isinstance(symbol, Variable)]
    real = [v for v in variables if isinstance(v.domain, Real)]
    numbers = [linear.constant, *(c for _, c in linear.summands)]
    return (
        len(variables) == len(symbols)
        and len(real) <= 1
        and all(v.is_input for v in real)
        and all(number.denominator == 1 for number in numbers)
    )


def _pass_divisors(linear: Linear, divisors: dict[Variable, int]) -> None:
    """What the other summands of an equality have in common divides each of them."""
    sizes: dict[Variable, int] = {}
    for variable, c in linear.summands:
        assert isinstance(variable, Variable)
        size = abs(int(c))
        is_real = isinstance(variable.domain, Real)
        sizes[variable] = (
            size // (size & -size) if is_real else size * divisors.get(variable, 1)
        )
    for variable, c in linear.summands:
        assert isinstance(variable, Variable)
        if variable.is_input or not isinstance(variable.domain, Int):
            continue
        rest = [size for other, size in sizes.items() if other is not variable]
        shared = gcd(int(linear.constant), *rest)
        if shared:
            own = shared // gcd(shared, int(c))
            divisors[variable] = lcm(divisors.get(variable, 1), own)


def _equalities(clauses: Sequence[AtomClause]) -> Iterator[Linear]:
    single = {
        clause[0].linear
        for clause in clauses
        if len(clause) == 1 and clause[0].relation == "<="
    }
    for linear in sorted(
        single, key=lambda one: [(getattr(s, "index", -1), c) for s, c in one.summands]
    ):
        if -linear in single and linear.summands[0][1] > 0:
            yield linear


def _fitting(
    linear: Linear, ends: Mapping[Variable, Ends], steps: Mapping[Variable, Fraction]
) -> tuple[list[Variable], Variable] | None:
    """The outputs and the input of ``Σ x_i + number == u``, if it is one and nothing in it is negative."""
    symbols = [symbol for symbol, _ in linear.summands]
    if any(abs(c) != 1 for _, c in linear.summands):
        return None
    variables = [symbol for symbol in symbols if isinstance(symbol, Variable)]
    given = [v for v in variables if v.is_input]
    outputs = [v for v in variables if not v.is_input]
    if len(variables) < len(symbols) or len(given) != 1 or not outputs:
        return None
    sign = linear.coefficient(outputs[0])
    step = steps[outputs[0]]
    number = linear.constant * sign
    alike = all(linear.coefficient(v) == sign and steps[v] == step for v in outputs)
    real = all(isinstance(v.domain, Real) and _is_positive(ends[v]) for v in outputs)
    whole = number >= 0 and (number / step).denominator == 1
    opposite = linear.coefficient(given[0]) == -sign
    return (outputs, given[0]) if alike and real and whole and opposite else None


def _is_positive(ends: Ends) -> bool:
    lower, _ = ends
    return lower is not None and lower >= 0


def _exponent(power: Fraction) -> int:
    return power.numerator.bit_length() - power.denominator.bit_length()
