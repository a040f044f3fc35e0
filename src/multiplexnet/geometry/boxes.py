"""Boxes: outputs that no row ties to another, each in an interval whose ends are numbers of the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from multiplexnet.errors import OutOfRangeError, ThinTermError
from multiplexnet.exact.formats import Format, first_wider
from multiplexnet.geometry.parts import Box
from multiplexnet.language.formula import Atom, Variable
from multiplexnet.language.text import formula_text

__all__ = ["constant_box", "interval_box", "joined"]


def constant_box(constants: Mapping[Variable, Fraction]) -> Box:
    """Outputs with one value each."""
    values = tuple(constants.values())
    return Box(tuple(constants), values, values)


def interval_box(rows_of: Mapping[Variable, Sequence[Atom]], form: Format) -> Box:
    """The intervals of some outputs, from rows that mention the output alone.

    Raises:
        OutOfRangeError: a bound that no number of the format satisfies.
        ThinTermError: no number of the format between the bounds.
    """
    intervals = [_interval(rows, form) for rows in rows_of.values()]
    lower = tuple(low for low, _ in intervals)
    upper = tuple(high for _, high in intervals)
    return Box(tuple(rows_of), lower, upper)


def joined(boxes: Sequence[Box], order: Sequence[Variable]) -> Box | None:
    """All boxes as one, their outputs in this order; ``None`` if they have none."""
    lower: dict[Variable, Fraction | None] = {}
    upper: dict[Variable, Fraction | None] = {}
    for box in boxes:
        lower.update(zip(box.outputs, box.lower, strict=True))
        upper.update(zip(box.outputs, box.upper, strict=True))
    outputs = tuple(output for output in order if output in lower)
    if not outputs:
        return None
    lows = tuple(lower[output] for output in outputs)
    highs = tuple(upper[output] for output in outputs)
    return Box(outputs, lows, highs)


def _interval(
    rows: Sequence[Atom], form: Format
) -> tuple[Fraction | None, Fraction | None]:
    """The closed interval of the format's numbers that satisfy rows over one output."""
    lower: list[Fraction] = []
    upper: list[Fraction] = []
    for row in rows:
        ((_, coefficient),) = row.linear.summands
        try:
            if coefficient.numerator > 0:
                bound = _quotient(-row.linear.constant, coefficient)
                upper.append(_at_most(bound, row, form))
            else:
                bound = _quotient(row.linear.constant, -coefficient)
                lower.append(_at_least(bound, row, form))
        except OverflowError:
            wider = first_wider(form, lambda other: _has_interval(rows, other))
            raise OutOfRangeError(
                [formula_text(row)], form.name, form.max, wider
            ) from None
    low = max(lower, default=None)
    high = min(upper, default=None)
    if low is not None and high is not None and _exceeds(low, high):
        wider = first_wider(form, lambda other: _has_interval(rows, other))
        raise ThinTermError([formula_text(row) for row in rows], form.name, wider)
    return low, high


def _quotient(number: Fraction, divisor: Fraction) -> Fraction:
    return number if divisor == 1 else number / divisor


def _at_most(bound: Fraction, row: Atom, form: Format) -> Fraction:
    """The largest number of the format up to the bound, or below it if the row is strict.

    Raises:
        OverflowError: there is none.
    """
    if row.relation == "<":
        return form.next_down(bound)
    return form.down(bound)


def _at_least(bound: Fraction, row: Atom, form: Format) -> Fraction:
    """The smallest number of the format from the bound on, or above it if the row is strict.

    Raises:
        OverflowError: there is none.
    """
    if row.relation == "<":
        return form.next_up(bound)
    return form.up(bound)


def _exceeds(number: Fraction, other: Fraction) -> bool:
    """Whether the number is larger; to compare fractions as such takes longer."""
    first = number.numerator * other.denominator
    return first > other.numerator * number.denominator


def _has_interval(rows: Sequence[Atom], form: Format) -> bool:
    try:
        _interval(rows, form)
    except ThinTermError:
        return False
    return True
