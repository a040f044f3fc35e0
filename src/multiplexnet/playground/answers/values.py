"""Numbers that a page gives to variables: exact, in their declared range, and numbers of the dtype that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from multiplexnet.errors import QuestionError
from multiplexnet.playground.library import FORMATS, Variable, ends, number_text

__all__ = ["middle", "named", "values_of"]


def middle(variable: Variable) -> Fraction:
    """A value to begin with: the middle of the declared range, or the end that there is, or 0."""
    if variable.is_discrete:
        return ends(variable.domain)[0] or Fraction(0)
    known = [end for end in ends(variable.domain) if end is not None]
    return sum(known, Fraction(0)) / len(known) if known else Fraction(0)


def named(variables: Sequence[Variable], names: Sequence[str], role: str) -> list[Variable]:
    """The variables of these names."""
    known = {v.name: v for v in variables}
    if unknown := [name for name in names if name not in known]:
        raise QuestionError(
            f"{unknown[0]!r} is no {role} of the rules (they have: {', '.join(known) or 'none'})"
        )
    return [known[name] for name in names]


def values_of(
    variables: Sequence[Variable], given: Mapping[str, Fraction], form: str | None, role: str
) -> dict[Variable, Fraction]:
    """The given values by variable, each the number of the format next to what was typed (``None``: just that).

    Raises:
        QuestionError: a name that is no variable, or a value outside its declared range.
    """
    found = {v: given[v.name] for v in named(variables, list(given), role)}
    return {v: _representable(v, number, form) for v, number in found.items()}


def _representable(variable: Variable, number: Fraction, form: str | None) -> Fraction:
    lower, upper = ends(variable.domain)
    low, high = (
        ("−∞" if lower is None else number_text(lower)),
        ("∞" if upper is None else number_text(upper)),
    )
    outside = (lower is not None and number < lower) or (upper is not None and number > upper)
    if outside or (variable.is_discrete and number.denominator != 1):
        whole = "a whole number in " if variable.is_discrete else ""
        raise QuestionError(
            f"{variable.name} = {number_text(number)}: it is declared as {whole}[{low}, {high}]"
        )
    if form is None:
        return number
    if abs(number) > FORMATS[form].max:
        raise QuestionError(f"{variable.name} = {number_text(number)} is beyond {form}")
    if FORMATS[form].representable(number):
        return number
    below, above = FORMATS[form].down(number), FORMATS[form].up(number)
    near, far = sorted((below, above), key=lambda end: abs(end - number))
    inside = (lower is None or near >= lower) and (upper is None or near <= upper)
    return near if inside else far
