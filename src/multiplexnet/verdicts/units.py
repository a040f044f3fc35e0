"""The border between whole numbers of a unit, which formulas speak of, and the floats that people see.

A price in cents is a whole number k of 1/100. The float that stands for it is the float nearest to k/100; a float
stands for k if it is that one, and for nothing if it is none of them. All of this is exact, by the theorem below.

**Theorem.** Let the unit be p/q in lowest terms, q = 2^a m with m odd, |k p| < 2^53, and T a format of P bits to which
float64 is rounded, through one of B bits (float64 itself: B = 53; float16 and bfloat16 go through float32: B = 24). If
max(m, p) < 2^(B − 1 − P), then ``float64(k p) / q``, rounded to T, is the number of T nearest to k p / q.

*Proof.* k p and q are float64 numbers, so the quotient y is k p/q with a relative error below 2^-53, and a format on
the way to T adds at most 2^-24. Rounding to T can only go wrong if a midpoint j/2^s of two numbers of T, j < 2^(P+1),
lies between y and k p/q. But k p/q − j/2^s = (k p 2^s − q j) / (q 2^s) is zero, and then y is exact and nothing goes
wrong; or its numerator is at least 2^min(s, a), so that relatively it is at least 1/(m j) or, for s < a,
1/(2^(a−s) m j), where 2^(a−s) m ≤ p/4 since twice the spacing of T is at most the unit. So it is at least
1/(max(m, p) 2^(P+1)), more than the errors before it. ∎

Reading back is unambiguous where twice the spacing of T at the largest value is at most the unit: then ``x q / p``
differs from k by less than 1/2. What a format cannot tell apart like this is refused by name.
"""

from __future__ import annotations

from datetime import date, datetime
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import DtypeError, InputError
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.language.formula import Int, Variable
from multiplexnet.language.parser.moments import moment_number
from multiplexnet.language.text import number_text, value_text
from multiplexnet.verdicts.columns import Floats, widened
from multiplexnet.verdicts.numbers import fraction_of, is_tensor, numbers_of

__all__ = ["counted_input", "has_unit", "refuse_indistinct", "steps_of"]

EXACT = 2**50
"""Whole numbers below this are read back without doubt."""


def has_unit(variable: Variable) -> bool:
    """Whether its values are counted in something else than ones."""
    return variable.unit.size != 1


def refuse_indistinct(variable: Variable, name: str) -> None:
    """Raises ``DtypeError`` if some values of a variable with a unit are the same float, or none can be computed.

    Args:
        variable: an output or input.
        name: of the format.

    Example:
        >>> from multiplexnet.language.formula import Unit
        >>> price = Variable("price", 0, Int(0, 10**8, Unit(Fraction(1, 100), "decimal")))
        >>> refuse_indistinct(price, "float64")
        >>> refuse_indistinct(price, "float32")
        Traceback (most recent call last):
            ...
        multiplexnet.errors.DtypeError: `price` is counted in steps of 0.01 up to 1000000, which float32 cannot ...
    """
    if not isinstance(variable.domain, Int) or name not in FORMATS:
        return
    most = max(abs(variable.domain.lower), abs(variable.domain.upper))
    if not _tells_apart(variable.unit.size, most, FORMATS[name]):
        every = sorted(FORMATS.values(), key=lambda form: form.precision)
        wider = [
            form.name for form in every if _tells_apart(variable.unit.size, most, form)
        ]
        advice = (
            f"use {wider[0]}" if wider else "declare a narrower range or a coarser step"
        )
        raise DtypeError(
            f"`{variable.name}` is counted in steps of {number_text(variable.unit.size)} up to "
            f"{value_text(variable, Fraction(most))}, which {name} cannot tell apart: {advice}"
        )


def _tells_apart(size: Fraction, most: int, form: Format) -> bool:
    top = most * size
    if top > form.max or most >= EXACT or most * size.numerator >= 2**53:
        return False
    odd = size.denominator
    while odd % 2 == 0:
        odd //= 2
    if odd == 1:  # multiples are numbers of the format
        return size >= form.tiny and form.spacing(top) <= size
    passed = 24 if form.precision < 24 else 53
    is_nearest = (
        form.precision == 53
        or max(odd, size.numerator) < 1 << passed - 1 - form.precision
    )
    return is_nearest and size >= 2 * form.tiny and 2 * form.spacing(top) <= size


# --- floats -----------------------------------------------------------------------------------------------------------


def steps_of(values: Floats, variable: Variable, name: str) -> Floats:
    """The whole numbers that floats of one format stand for, in float64; a half more where they stand for none.

    Args:
        values: the floats, widened to float64.
        variable: whose values they are.
        name: of the format that they came in.

    Example:
        >>> from multiplexnet.language.formula import Unit
        >>> price = Variable("price", 0, Int(0, 10**4, Unit(Fraction(1, 100), "decimal")))
        >>> steps_of(np.array([12.34, 12.345, 0.1 + 0.2]), price, "float64")
        array([1234. , 1234.5,   30.5])
    """
    refuse_indistinct(variable, name)
    p = float(variable.unit.size.numerator)
    q = float(variable.unit.size.denominator)
    with np.errstate(all="ignore"):
        steps = np.rint(values * q / p)
        back = _rounded(steps * p / q, name)
    return np.where(np.isfinite(values) & (back != values), steps + 0.5, steps)


def _rounded(values: Floats, name: str) -> Floats:
    """Float64 numbers rounded to a format, in float64."""
    if name == "float64":
        return values
    single = values.astype(np.float32)
    if name == "float32":
        return widened(single)
    if name == "float16":
        return widened(single.astype(np.float16))
    bits = single.view(np.int32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & ~np.int32(
        0xFFFF
    )  # to the nearest, ties to even
    return widened(cast(NDArray[np.float32], kept.view(np.float32)))


# --- inputs -----------------------------------------------------------------------------------------------------------


def counted_input(variable: Variable, value: Any) -> Any:
    """What was given for an input, in whole numbers of its unit; dates of Python and numpy as days or seconds.

    Raises:
        InputError: a date that cannot be read.
        DtypeError: a dtype that cannot tell the values apart.

    Example:
        >>> from datetime import date
        >>> from multiplexnet.language.formula import Unit
        >>> start = Variable("start", 0, Int(0, 10**5, Unit(Fraction(1), "date")), "input")
        >>> counted_input(start, date(2024, 8, 3)), counted_input(start, "2024-08-03")
        (19938, 19938)
    """
    if variable.unit.kind in ("date", "datetime"):
        return _moments(variable, value)
    if not has_unit(variable):
        return value
    if is_tensor(value) and value.is_floating_point():
        return _tensor_steps(variable, value)
    is_array = isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"
    if is_array and value.dtype.name in FORMATS:
        return steps_of(widened(np.asarray(value)), variable, value.dtype.name)
    numbers = numbers_of(value, variable.name)
    steps = [_step(variable, fraction_of(number)) for number in numbers.flat]
    if numbers.shape == ():
        return steps[0]
    return np.array([*steps, None], dtype=object)[:-1].reshape(numbers.shape)


def _tensor_steps(variable: Variable, value: Any) -> Any:
    """As :func:`steps_of`, with operations of the tensor itself, so that graphs can record them."""
    refuse_indistinct(variable, str(value.dtype).removeprefix("torch."))
    p = float(variable.unit.size.numerator)
    q = float(variable.unit.size.denominator)
    steps = (value.double() * q / p).round()
    back = (steps * p / q).to(value.dtype)
    return (steps + 0.5 * (back != value)).to(value.dtype)


def _step(variable: Variable, number: Fraction) -> Fraction:
    """An exact number, or a float64 number that stands for a decimal."""
    size = variable.unit.size
    steps = number / size
    near = Fraction(round(steps))
    if steps != near and Fraction(float(near * size)) != number:
        return near + Fraction(1, 2)
    return near


def _moments(variable: Variable, value: Any) -> Any:
    """Days or seconds from dates, datetimes, texts and numpy's datetime64, alone or in lists; other values as given."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "M":
        unit = "D" if variable.unit.kind == "date" else "s"
        return value.astype(f"datetime64[{unit}]").astype(np.int64)
    if isinstance(value, list | tuple):
        return [_moments(variable, item) for item in value]
    if isinstance(value, str | date):
        return _moment(variable, value)
    return value


def _moment(variable: Variable, value: str | date) -> int:
    kind = "date" if variable.unit.kind == "date" else "datetime"
    text = value
    if isinstance(value, datetime):
        if value.tzinfo is not None or value.microsecond:
            raise InputError(
                f"input {variable.name} is {value}; give whole seconds and no time zone, as in datetime(2024, 8, 3, 14)"
            )
        text = value.date().isoformat() if kind == "date" else value.isoformat(" ")
    elif isinstance(value, date):
        text = value.isoformat()
    try:
        return moment_number(str(text), "date" if kind == "date" else "datetime")
    except Exception as error:
        raise InputError(f"input {variable.name}: {error}") from None
