"""Values that a page gives to variables: as people write them, exact, in their declared range.

A page speaks of amounts (12.34, a date, a label's position). Formulas speak of whole steps of a unit where a variable
has one: cents, days. All values in here are in the formulas' words; :func:`amount` is what people see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor, isnan

from multiplexnet import Rules
from multiplexnet.errors import MultiplexError, QuestionError
from multiplexnet.playground.asked import number
from multiplexnet.playground.library import (
    FORMATS,
    Bool,
    Category,
    Refusal,
    Variable,
    conjunction_of,
    ends,
    holds,
    moment_number,
    number_text,
    satisfiable,
    value_text,
)

__all__ = ["amount", "inputs_of", "named", "read", "start", "values_of", "written"]


def amount(variable: Variable, value: Fraction) -> Fraction:
    """A value in the unit of its variable: 1234 cents are 12.34."""
    return value * variable.unit.size


def _middle(variable: Variable) -> Fraction:
    """The middle of the declared range, or the end that there is, or 0; of labels and truth values the first."""
    if isinstance(variable.domain, Bool | Category):
        return Fraction(0)
    known = [end for end in ends(variable.domain) if end is not None]
    value = sum(known, Fraction(0)) / len(known) if known else Fraction(0)
    return Fraction(floor(value)) if variable.is_discrete else value


def start(rules: Rules) -> dict[Variable, Fraction]:
    """Inputs to begin with: the middles of their ranges, or values that keep what is assumed, apart if possible."""
    middles = {variable: _middle(variable) for variable in rules.inputs}
    if not rules.specification.assumptions:
        return middles
    assumed = conjunction_of([rule.formula for rule in rules.specification.assumptions])
    rising = _spread(rules.inputs)
    falling = _spread(rules.inputs[::-1])
    try:
        for candidate in (rising, falling, middles):
            if holds(assumed, candidate):
                return candidate
        found = satisfiable(assumed, rules.inputs)
    except MultiplexError:
        return middles
    return middles if found is None else {v: found[v] for v in rules.inputs}


def _spread(variables: Sequence[Variable]) -> dict[Variable, Fraction]:
    """Each a little further up in its range than the one before."""
    return {
        v: _at(v, Fraction(k + 1, len(variables) + 1)) for k, v in enumerate(variables)
    }


def _at(variable: Variable, share: Fraction) -> Fraction:
    lower, upper = ends(variable.domain)
    if lower is None or upper is None:
        return _middle(variable) + share
    value = lower + share * (upper - lower)
    return Fraction(round(value)) if variable.is_discrete else value


def read(variable: Variable, typed: object) -> Fraction:
    """What was typed for a variable: a number, a fraction, or a date.

    Raises:
        QuestionError: it is none.
    """
    kind = variable.unit.kind
    if isinstance(typed, str) and typed.count("-") >= 2 and "date" in kind:
        try:
            return Fraction(
                moment_number(typed.strip(), "date" if kind == "date" else "datetime")
            )
        except Refusal as error:
            raise QuestionError(f"{variable.name}: {error}") from None
    return number(typed, variable.name) / variable.unit.size


def written(variable: Variable, number: float) -> str:
    """A float of a layer as a page puts it into a field: nothing for a missing value, a date as a date."""
    if isnan(number):
        return ""
    if variable.unit.kind == "int":
        return repr(number)
    return value_text(variable, Fraction(round(Fraction(number) / variable.unit.size)))


def named(
    variables: Sequence[Variable], names: Sequence[str], role: str
) -> list[Variable]:
    """The variables of these names."""
    known = {v.name: v for v in variables}
    if unknown := [name for name in names if name not in known]:
        raise QuestionError(
            f"{unknown[0]!r} is not an {role} of the rules (they have: {', '.join(known) or 'none'})"
        )
    return [known[name] for name in names]


def values_of(
    variables: Sequence[Variable],
    given: Mapping[str, object],
    form: str | None,
    role: str,
) -> dict[Variable, Fraction]:
    """What was typed, by variable, each the number of the format next to it (``None``: just that).

    Raises:
        QuestionError: a name that is not a variable, or a value outside its declared range.
    """
    found = {}
    for variable in named(variables, list(given), role):
        typed = read(variable, given[variable.name])
        found[variable] = _representable(variable, typed, form)
    return found


def inputs_of(
    rules: Rules, given: Mapping[str, object], form: str
) -> dict[Variable, Fraction]:
    """A value for every input: what was typed, or one to begin with."""
    begun = {v: _representable(v, value, form) for v, value in start(rules).items()}
    return {**begun, **values_of(rules.inputs, given, form, "input")}


def _representable(variable: Variable, value: Fraction, form: str | None) -> Fraction:
    lower, upper = ends(variable.domain)
    outside = (lower is not None and value < lower) or (
        upper is not None and value > upper
    )
    if outside or (variable.is_discrete and value.denominator != 1):
        raise QuestionError(_refused(variable, value))
    if form is None or variable.is_discrete:
        return value
    if abs(value) > FORMATS[form].max:
        raise QuestionError(f"{variable.name} = {number_text(value)} is beyond {form}")
    if FORMATS[form].representable(value):
        return value
    below = FORMATS[form].down(value)
    above = FORMATS[form].up(value)
    near, far = sorted((below, above), key=lambda end: abs(end - value))
    inside = (lower is None or near >= lower) and (upper is None or near <= upper)
    return near if inside else far


def _refused(variable: Variable, value: Fraction) -> str:
    lower, upper = ends(variable.domain)
    low = "−∞" if lower is None else value_text(variable, lower)
    high = "∞" if upper is None else value_text(variable, upper)
    whole = "a whole number in " if variable.is_discrete else ""
    if variable.unit.size != 1:
        whole = f"a multiple of {number_text(variable.unit.size)} in "
    found = number_text(amount(variable, value))
    return f"{variable.name} = {found}: it is declared as {whole}[{low}, {high}]"
