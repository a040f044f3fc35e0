"""The inputs of a layer as tensors of its dtype, on which the rules hold for the numbers that were given.

A floating tensor must have the dtype of the layer. Anything else is an exact number
(:mod:`multiplexnet.verdicts.numbers`). If the
dtype does not hold it, a neighbour stands for it: in ``x <= u`` the one below, in ``x >= u`` the one above. What holds
for the neighbour then holds for the number. Where the rules use an input in both ways, as in ``x <= u or x >= u + 1``,
in an equality or as the argument of a function, no neighbour will do, and the number is refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.terms import Block
from multiplexnet.errors import DtypeError, InputError, ShapeError
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.language.formula import Atom, Variable, ends, symbols
from multiplexnet.layer.checks import can_be_seen, without_tables
from multiplexnet.layer.inputs.ranges import (
    FloatRange,
    number_is_inside,
    refuse_out_of_range,
    refused_range,
)
from multiplexnet.transforms.base import dtype_name
from multiplexnet.verdicts.numbers import Exact, fraction_of, numbers_of

__all__ = ["GivenInput", "Side", "given_inputs", "input_tensor", "rounded_input"]

Side = Literal[-1, 0, 1]
"""To which side a number may be rounded: down, neither, up."""

SHORT = Context(prec=17)


@dataclass(frozen=True)
class GivenInput:
    """What a layer knows of an input before it is given.

    Args:
        variable: the input.
        within: the range that its values must lie in.
        side: to which side a number that the dtype does not hold may be rounded.
    """

    variable: Variable
    within: FloatRange
    side: Side

    @staticmethod
    def of(variable: Variable, side: Side) -> GivenInput:
        return GivenInput(variable, FloatRange.of(variable), side)


def given_inputs(
    blocks: Iterable[Block],
    inputs: Sequence[Variable],
    cascades: Iterable[Cascade] = (),
) -> tuple[GivenInput, ...]:
    """Every input, with the side on which each row, ``a·x + c·u <= b``, of terms and cascades is harder to meet."""
    if not inputs:
        return ()
    signs: dict[Variable, set[int]] = {variable: set() for variable in inputs}
    for row in (row for block in blocks for term in block.terms for row in term.rows):
        for variable, sign in _uses(row):
            signs[variable].add(sign)
    for cascade in cascades:
        for position, sign in (*_uses_in(cascade), *_uses_late(cascade, inputs)):
            signs[inputs[position]].add(sign)
    return tuple(
        GivenInput.of(variable, _side(found)) for variable, found in signs.items()
    )


def _uses_late(
    cascade: Cascade, inputs: Sequence[Variable]
) -> Iterator[tuple[int, int]]:
    """The inputs of late rows by position, with the sign that each has on the left side; 0 if that is not known."""
    known = [_sign(*ends(variable.domain)) for variable in inputs]
    for row in cascade.late:
        for v, coefficient, _ in row.terms:
            output = _sign(*cascade.ranges[v])
            for (place,), c in (term for term in coefficient if term[0]):
                yield place, output * (1 if c > 0 else -1)
        for places, c in row.bound:
            for i, place in enumerate(places):
                others = [known[other] for j, other in enumerate(places) if j != i]
                yield place, math.prod(others) * (-1 if c > 0 else 1)


def _sign(lower: Fraction | int | None, upper: Fraction | int | None) -> int:
    """1 for a range without negative numbers, -1 for one without positive ones, else 0."""
    if lower is not None and lower >= 0:
        return 1
    return -1 if upper is not None and upper <= 0 else 0


def _uses_in(cascade: Cascade) -> Iterator[tuple[int, int]]:
    """The inputs of a cascade by position, with the sign of their coefficient in each row."""
    for row in cascade.rows:
        for v, c in row.terms:
            place = v - len(cascade.outputs)
            if place >= 0:
                for position, factor in cascade.known[place].form.terms:
                    yield position, 1 if c * factor > 0 else -1


def _uses(row: Atom) -> Iterator[tuple[Variable, int]]:
    """The inputs of a row with the sign of their coefficient, 0 where both directions count."""
    for symbol, coefficient in row.linear.summands:
        own = (symbol,) if isinstance(symbol, Variable) else symbols(symbol)
        sign = 0
        if isinstance(symbol, Variable) and row.relation != "==":
            sign = 1 if coefficient > 0 else -1
        for variable in own:
            if isinstance(variable, Variable) and variable.is_input:
                yield variable, sign


def _side(signs: set[int]) -> Side:
    if signs <= {1}:
        return 1
    return -1 if signs == {-1} else 0


def input_tensor(given: GivenInput, value: Any, like: Tensor) -> Tensor:
    """What was given for an input, ``(*batch,)``.

    Args:
        given: the input.
        value: what was given for it.
        like: ``(*batch, 0)``, of the dtype and on the device of the layer.

    Raises:
        ShapeError: it does not fit the batch.
        DtypeError: a floating tensor of another dtype, complex numbers.
        InputError: no number, not finite, outside the declared range, or a number that the dtype does not hold and
            that neither neighbour may stand for.

    Example:
        >>> u = Variable("u", 0, role="input")
        >>> like = torch.empty(0)
        >>> [input_tensor(GivenInput.of(u, side), 0.1, like).item() for side in (-1, 1)]
        [0.09999999403953552, 0.10000000149011612]
    """
    variable = given.variable
    dtype = like.dtype
    batch = like.shape[:-1]
    if isinstance(value, Tensor) and value.is_floating_point():
        if value.dtype != dtype:
            raise DtypeError(
                f"input {variable.name} has dtype {value.dtype}; the layer works in {dtype}"
            )
        if value.is_meta and not like.is_meta:  # there is nothing to be moved
            name = f"input {variable.name}"
            raise ShapeError(without_tables(name, value.device, like.device))
        return refuse_out_of_range(
            given.within, _expanded(variable, value.to(like.device), batch)
        )
    is_plain = isinstance(value, bool | int | float)
    if is_plain and _is_short(value, dtype):  # can be recorded in a graph, too
        return refuse_out_of_range(given.within, like.new_full((), value).expand(batch))
    _refuse_in_graph(variable, value, dtype)
    numbers = numbers_of(value, variable.name)
    near = _held(numbers, dtype)
    if near is not None:
        return refuse_out_of_range(
            given.within, _expanded(variable, near.to(like.device), batch)
        )
    return _expanded(
        variable, _rounded(variable, numbers, dtype, given.side).to(like.device), batch
    )


def rounded_input(
    given: GivenInput, value: Any, unit: Fraction | None, like: Tensor
) -> Tensor:
    """What was given for an input, as numbers that the layer takes for it, in the shape in which they came.

    Args:
        given: the input.
        value: what was given for it.
        unit: a power of two that the numbers have to be multiples of, if they have to.
        like: of the dtype and on the device of the layer.

    Returns:
        The nearest multiples that lie in the declared range. Without a unit a tensor of the dtype comes back as it is,
        and another number is rounded as :func:`input_tensor` does it, or to the nearest where that would refuse it.

    Raises:
        InputError: no number, one outside the declared range, or one that the dtype has no room for.

    Example: no multiple of 1/64 below 0.1 is in the range.
        >>> from multiplexnet.language.formula import Real
        >>> u = Variable("u", 0, Real(Fraction(1, 10), Fraction(6)), role="input")
        >>> rounded_input(GivenInput.of(u, 0), 0.1, Fraction(1, 64), torch.empty(0)).item()
        0.109375
    """
    between = replace(given.within, is_whole=False)  # wholeness comes by rounding
    is_plain = isinstance(value, Tensor) and value.is_floating_point()
    if is_plain and unit is None and value.dtype == like.dtype:
        return refuse_out_of_range(between, value)
    if is_plain and (unit is not None or not given.side):
        wide = refuse_out_of_range(between, value.double())
        return _nearest(given, wide, unit, like.dtype)
    _refuse_in_graph(given.variable, value, like.dtype)
    numbers = numbers_of(value, given.variable.name)
    device = value.device if isinstance(value, Tensor) else like.device
    if unit is None and given.side:
        return _rounded(given.variable, numbers, like.dtype, given.side).to(device)
    _refuse_huge(given.variable, numbers, FORMATS[dtype_name(like.dtype)])
    wide = torch.tensor(numbers.tolist(), dtype=torch.float64, device=device)
    wide = refuse_out_of_range(between, wide.reshape(numbers.shape))
    return _nearest(given, wide, unit, like.dtype)


def _refuse_huge(variable: Variable, numbers: Exact, form: Format) -> None:
    """Raises ``InputError`` for exact numbers that are beyond the format."""
    if numbers.dtype != object:
        return
    for number in numbers.flat:
        if isinstance(number, Fraction) and abs(number) > form.max:
            raise InputError(
                f"input {variable.name} is {_text(number)}, and the largest number of {form.name} is "
                f"{float(form.max):g}: measure it in other units"
            )


def _nearest(
    given: GivenInput, wide: Tensor, unit: Fraction | None, dtype: torch.dtype
) -> Tensor:
    """The nearest numbers of the dtype that are multiples of the unit and lie in the range if the given ones do."""
    whole = wide if unit is None else (wide / float(unit)).round() * float(unit)
    near = whole.to(dtype)  # a multiple of the unit, too: both are powers of two
    least, most = _inner_ends(given.variable, unit, FORMATS[dtype_name(dtype)])
    if least > most:
        return near
    inside = given.within.contains(wide) & near.isfinite()
    return torch.where(inside, near.clamp(least, most), near)


def _inner_ends(
    variable: Variable, unit: Fraction | None, form: Format
) -> tuple[float, float]:
    """The least and the largest number of the format in the range of an input that is a multiple of the unit."""
    lower, upper = (
        None if end is None else Fraction(end) for end in ends(variable.domain)
    )
    if unit is not None:
        lower = None if lower is None else math.ceil(lower / unit) * unit
        upper = None if upper is None else math.floor(upper / unit) * unit
    least = -form.max if lower is None else _above(lower, form)
    most = form.max if upper is None else _below(upper, form)
    return (
        math.inf if least is None else float(least),
        -math.inf if most is None else float(most),
    )


def _expanded(variable: Variable, values: Tensor, batch: torch.Size) -> Tensor:
    try:
        return values.expand(batch)
    except RuntimeError:
        raise ShapeError(
            f"input {variable.name} has shape {tuple(values.shape)}; one value per row is {tuple(batch)}"
        ) from None


def _held(numbers: Exact, dtype: torch.dtype) -> Tensor | None:
    """The numbers as a tensor, if all of them are normal numbers of the dtype or zero."""
    if numbers.dtype == object:
        return None
    wide = torch.from_numpy(numbers.copy())
    near = wide.to(dtype)
    normal = (wide.view(torch.int64) << 1 == 0) | (
        wide.abs() >= torch.finfo(dtype).smallest_normal
    )
    return near if bool(((near.double() == wide) & normal).all()) else None


def _is_short(value: float, dtype: torch.dtype) -> bool:
    """Whether the dtype plainly holds a number: few digits, neither huge nor tiny."""
    if not -1e4 < value < 1e4:
        return False
    if not abs(value) >= 2.0**-4:
        return isinstance(value, int) or _is_zero(value)
    digits = value * 2.0**4
    return digits == math.floor(digits) and abs(digits) < 2 / torch.finfo(dtype).eps


def _is_zero(value: float) -> bool:
    """By its bits: where subnormal numbers are flushed, they compare equal to zero."""
    if torch.compiler.is_compiling():
        return value == 0
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits in (0, -(2**63))


def _refuse_in_graph(variable: Variable, value: Any, dtype: torch.dtype) -> None:
    """Raises ``DtypeError`` where numbers would have to be looked at one by one and cannot be."""
    unseen = isinstance(value, Tensor) and not can_be_seen(value)
    if unseen or torch.compiler.is_compiling():
        raise DtypeError(
            f"input {variable.name} is not a tensor of {dtype}: outside of a graph every number is looked at and taken "
            "as exact, but while a graph is recorded (torch.compile, torch.export, torch.vmap) that cannot be done; "
            f"convert it before, as in {variable.name}=value.to({dtype})"
        )


def _rounded(
    variable: Variable, numbers: Exact, dtype: torch.dtype, side: Side
) -> Tensor:
    """The numbers one by one, in fractions."""
    form = FORMATS[dtype_name(dtype)]
    known: dict[Any, float] = {}
    for number in numbers.flat:
        if number not in known:
            known[number] = _neighbour(variable, number, form, side)
    values = [known[number] for number in numbers.flat]
    return torch.tensor(values, dtype=torch.float64).reshape(numbers.shape).to(dtype)


def _neighbour(variable: Variable, number: Any, form: Format, side: Side) -> float:
    if not isinstance(number, Fraction) and not math.isfinite(number):
        raise refused_range(variable, f"(it is {number})")
    exact = fraction_of(number)
    if not number_is_inside(variable, exact):
        raise refused_range(variable, f"(it is {_text(exact)})")
    if form.representable(exact):
        return float(exact)
    below = _below(exact, form)
    above = _above(exact, form)
    found = {-1: below, 0: None, 1: above}[side]
    if found is None:
        raise InputError(_unheld(variable, exact, form, below, above, side))
    return float(found)


def _below(number: Fraction, form: Format) -> Fraction | None:
    return form.down(number) if number >= -form.max else None


def _above(number: Fraction, form: Format) -> Fraction | None:
    return form.up(number) if number <= form.max else None


def _unheld(
    variable: Variable,
    number: Fraction,
    form: Format,
    below: Fraction | None,
    above: Fraction | None,
    side: Side,
) -> str:
    ends = " and ".join("none" if end is None else _text(end) for end in (below, above))
    why = {
        -1: f"the rules need one that is smaller, and {form.name} has none",
        0: "the rules hold for neither in its place, since they use the input in both directions",
        1: f"the rules need one that is larger, and {form.name} has none",
    }[side]
    return (
        f"input {variable.name} is {_text(number)}, which {form.name} does not hold; its neighbours there are {ends}, "
        f"and {why}: give a number that {form.name} holds, for example a tensor of torch.{form.name}"
    )


def _text(number: Fraction) -> str:
    """About the number, with the digits of a float64."""
    return str(SHORT.divide(number.numerator, number.denominator).normalize(SHORT))
