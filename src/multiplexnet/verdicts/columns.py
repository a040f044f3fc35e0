"""Columns of exact rational numbers in float64, and the exact sign of a linear expression over them.

A *column* holds one rational number a row, as ``unit · (parts[0] + parts[1] + …)``: a Fraction times a sum of
doubles, with no rounding anywhere. Floats are a column of one part; decimals with many digits need two.

The sign of ``v = constant + Σ coefficient · column`` is found in four steps, each for the rows the last one left open:

1. *Exact floats.* All values are multiples of one power of two and no sum can reach 53 bits: plain float64 is exact.
   Integers and short decimals, the usual tables with thousands of ties, end here.
2. *A filter.* Float64 gives v̂ with ``|v̂ − v| ≤ γ Σ |coefficient| |column|``, γ about (columns + parts) · 2⁻⁵³,
   which covers rounded coefficients, products and sums (Higham, *Accuracy and Stability*, section 3.1). Where
   ``|v̂|`` is larger than that, its sign is right.
3. *Error-free transformations.* Products and sums with their rounding errors (Dekker, Knuth), repeated until the
   leading part outweighs the rest or the rest is zero.
4. *Python integers*, for the few rows that are left and for magnitudes near overflow.

Subnormal numbers may be flushed to zero (``torch.set_flush_denormal``), in all arithmetic of a thread. Where that is so
they are taken out of their column, by their bits, and their rows are decided in Python integers. Steps 1 to 3 make no
subnormal numbers of their own that matter: what is smaller than :data:`SAFE_LOW` goes to step 4.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.exact.formats import FORMATS

__all__ = [
    "TINY",
    "Column",
    "Floats",
    "Signs",
    "amounts",
    "bounded_amounts",
    "expanded",
    "is_exact_in_float64",
    "product",
    "select",
    "signs",
    "to_float64",
    "total",
    "widened",
]

Floats = NDArray[np.float64]
Signs = NDArray[np.int8]
Weighted = Sequence[tuple[Fraction, "Column"]]

UNIT_ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-1000  # more than all underflow in one expression can add up to
# inside, nothing here overflows or underflows
SAFE_LOW = 2.0**-900
SAFE_HIGH = 2.0**900
TINY = 2.0**-1022  # the smallest positive float that is read as such in every mode
SUBNORMAL = (
    1 << 52
) - 1  # the magnitudes from 1 up to this are the bits of the subnormal floats
GRIDS = (0, -20)  # the powers of two that are tried for «all values are multiples of»
PASSES = 6


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """One exact number a row: ``unit · Σ parts``.

    Args:
        parts: float64 arrays of the same length, all finite.
        unit: a positive factor.
        odd: rows whose number the parts do not hold (their parts are zero), with the number.

    Example:
        >>> tenths = Column((np.array([1.0, 2.0]),), Fraction(1, 10))
        >>> tenths.exact(1)
        Fraction(1, 5)
    """

    parts: tuple[Floats, ...]
    unit: Fraction = Fraction(1)
    odd: Mapping[int, Fraction] = field(default_factory=dict)

    @staticmethod
    def constant(number: Fraction, length: int) -> Column:
        """The same number in every row."""
        sign = np.full(length, np.sign(number.numerator), dtype=np.float64)
        return Column((sign,), unit=abs(number) or Fraction(1))

    @staticmethod
    def floats(values: Floats) -> Column:
        """Float64 numbers, finite; where this thread reads subnormal ones as zero, these are odd."""
        if not _flushes():
            return Column((values,))
        magnitude = values.view(np.int64) & np.int64(2**63 - 1)
        is_subnormal = (magnitude > 0) & (magnitude <= SUBNORMAL)
        small = np.flatnonzero(is_subnormal)
        if not len(small):
            return Column((values,))
        unit = Fraction(1, 2**1074)
        odd = {}
        for i in small.tolist():
            sign = -1 if np.signbit(values[i]) else 1
            odd[i] = sign * int(magnitude[i]) * unit
        return Column((np.where(is_subnormal, 0.0, values),), odd=odd)

    @staticmethod
    def integers(numbers: NDArray[np.int64]) -> Column:
        """Integers of 64 bits, exactly."""
        high = numbers.astype(np.float64)
        if (
            len(numbers) == 0 or np.abs(high).max() < 2.0**53
        ):  # 2**53 + 1 is rounded to 2**53
            return Column((high,))
        # 2**63 does not fit int64: step down to the double below, the rest is then positive and small.
        high = np.where(high >= 2.0**63, np.nextafter(2.0**63, 0), high)
        low = numbers - high.astype(np.int64)
        return Column((high, low.astype(np.float64)))

    def __len__(self) -> int:
        return len(self.parts[0])

    def take(self, rows: NDArray[np.intp] | slice) -> Column:
        """The column at these rows; what was odd is dropped (its owner decides those rows)."""
        return Column(tuple(part[rows] for part in self.parts), self.unit)

    def times(self, factor: Fraction) -> Column:
        """The column times a positive factor."""
        odd = {row: number * factor for row, number in self.odd.items()}
        return Column(self.parts, self.unit * factor, odd)

    def at(self, rows: NDArray[np.intp]) -> Column:
        """The column at these rows, with the numbers of odd ones."""
        odd = {
            k: self.odd[row] for k, row in enumerate(rows.tolist()) if row in self.odd
        }
        return Column(tuple(part[rows] for part in self.parts), self.unit, odd)

    def with_number(self, number: Fraction, rows: NDArray[np.intp]) -> Column:
        """The column with one and the same number in these rows."""
        changed = dict(self.odd)
        parts = tuple(part.copy() for part in self.parts)
        for part in parts:
            part[rows] = 0.0
        for row in rows.tolist():
            changed.pop(row, None)
        if number:
            changed |= dict.fromkeys(rows.tolist(), number)
        return Column(parts, self.unit, changed)

    def exact(self, row: int) -> Fraction:
        if row in self.odd:
            return self.odd[row]
        numbers = (Fraction(float(part[row])) for part in self.parts)
        return self.unit * sum(numbers, Fraction(0))

    @cached_property
    def near(self) -> Floats:
        """``Σ parts`` in float64, without the unit."""
        first, *rest = self.parts
        if not rest:
            return first
        return np.asarray(sum(rest, first))

    @cached_property
    def size(self) -> Floats:
        """``Σ |parts|`` in float64: what rounding errors are relative to."""
        first, *rest = map(np.abs, self.parts)
        return np.asarray(sum(rest, first))

    @cached_property
    def top(self) -> float:
        """The largest ``size``."""
        return float(self.size.max(initial=0.0))

    @cached_property
    def grid(self) -> int | None:
        """An exponent g such that every part is a multiple of 2^g; None where no short one was found."""
        if len(self.parts) > 1 or self.top >= 2.0**53:
            return None
        values = self.parts[0]
        head = values[:64]
        for exponent in GRIDS:
            if _on_grid(head, exponent) and _on_grid(values, exponent):
                return exponent
        return None


def _flushes() -> bool:
    """Whether this thread takes subnormal numbers for zero."""
    return sys.float_info.min / 2 == 0.0


def widened(values: NDArray[np.floating[Any]]) -> Floats:
    """Float16, float32 or float64 numbers in float64, exactly, also where subnormal numbers are flushed to zero.

    Example:
        >>> float(widened(np.array(2.0**-149, dtype=np.float32))) == 2.0**-149
        True
    """
    wide = values.astype(np.float64, copy=False)
    if values.dtype != np.float32 or not _flushes():
        return wide
    bits = np.ascontiguousarray(values).view(np.int32).reshape(values.shape)
    magnitude = bits & np.int32(2**31 - 1)
    exact = np.copysign(magnitude.astype(np.float64) * 2.0**-149, wide)
    return np.where(magnitude < 1 << 23, exact, wide)


def is_exact_in_float64(number: Fraction) -> bool:
    """Whether float64 holds the number, and every mode reads it as it is."""
    return FORMATS["float64"].representable(number)


def _on_grid(values: Floats, exponent: int) -> bool:
    scaled = values if exponent == 0 else values * 2.0**-exponent
    return bool((np.rint(scaled) == scaled).all())


# --- a linear expression with integer coefficients ------------------------------------------------------------------


@dataclass(frozen=True)
class _Integral:
    """``scale · (constant + Σ coefficient · column)`` with integer coefficients of the columns' parts.

    Some rows of it keep its exponent, though they alone may be short enough for none: values are compared across both.
    """

    coefficients: tuple[int, ...]
    columns: tuple[Column, ...]
    constant: int
    scale: int
    length: int
    kept_exponent: int | None = None

    @staticmethod
    def of(
        weighted: Weighted, constant: Fraction, length: int, multiple: int = 1
    ) -> _Integral:
        """The expression times the least positive integer that makes it integral (and is a multiple of this one)."""
        factors = [coefficient * column.unit for coefficient, column in weighted]
        denominators = [factor.denominator for factor in factors]
        scale = lcm(multiple, constant.denominator, *denominators)
        coefficients = tuple(int(factor * scale) for factor in factors)
        columns = tuple(column for _, column in weighted)
        return _Integral(coefficients, columns, int(constant * scale), scale, length)

    def take(self, rows: NDArray[np.intp]) -> _Integral:
        return replace(
            self,
            columns=tuple(column.take(rows) for column in self.columns),
            length=len(rows),
            kept_exponent=self._exponent,
        )

    @cached_property
    def is_exact_in_floats(self) -> bool:
        """Whether plain float64 makes no rounding error: all is on one grid, and no sum is too long for it."""
        if self.longest > 53:
            return False
        finest = 0
        top = Fraction(abs(self.constant))
        for k, column in self._pairs:
            if column.grid is None:
                return False
            finest = min(finest, column.grid)
            top += abs(k) * Fraction(column.top)
        return top < Fraction(2) ** (53 + finest)

    @cached_property
    def longest(self) -> int:
        """The bits of the longest coefficient, the constant included."""
        numbers = (*self.coefficients, self.constant)
        return max(abs(number).bit_length() for number in numbers)

    @property
    def _pairs(self) -> zip[tuple[int, Column]]:
        return zip(self.coefficients, self.columns, strict=True)

    @cached_property
    def _exponent(self) -> int:
        """A shift that brings the largest coefficient to about one, so that none overflows."""
        if self.kept_exponent is not None:
            return self.kept_exponent
        if self.is_exact_in_floats:
            return 0
        return max(1, self.longest) - 1

    def _rounded(self, k: int) -> float:
        return float(Fraction(k, 1 << self._exponent))

    @cached_property
    def value(self) -> Floats:
        """The value over 2**exponent, evaluated in float64."""
        v = np.full(self.length, self._rounded(self.constant))
        for k, column in self._pairs:
            is_one = k == 1 << self._exponent
            v += column.near if is_one else self._rounded(k) * column.near
        return v

    @cached_property
    def _gamma(self) -> float:
        parts = max((len(column.parts) for column in self.columns), default=1)
        return (len(self.columns) + parts + 10) * UNIT_ROUNDOFF * (1 + 2.0**-10)

    def _bound(self, sizes: Sequence[Floats | float]) -> Floats | float:
        """γ Σ |coefficient| size + η. A coefficient that underflows counts as the smallest normal number."""
        smallest = float(np.finfo(np.float64).tiny)
        bound: Floats | float = max(abs(self._rounded(self.constant)), smallest)
        for k, size in zip(self.coefficients, sizes, strict=True):
            bound = bound + max(abs(self._rounded(k)), smallest) * size
        return self._gamma * bound + UNDERFLOW

    @property
    def uniform_bound(self) -> float:
        return float(self._bound([column.top for column in self.columns]))

    @property
    def row_bound(self) -> Floats:
        bound = self._bound([column.size for column in self.columns])
        return np.broadcast_to(bound, (self.length,))

    @property
    def ratio(self) -> Fraction:
        """``value · ratio`` is the expression as it was given."""
        return Fraction(1 << self._exponent, self.scale)

    def exact(self, row: int) -> Fraction:
        """The exact value over 2**exponent."""
        total = Fraction(self.constant)
        for k, column in self._pairs:
            for part in column.parts:
                total += k * Fraction(float(part[row]))
        return total / (1 << self._exponent)


# --- error-free transformations -------------------------------------------------------------------------------------


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _halves(a: Floats | float) -> tuple[Floats | float, Floats | float]:
    c = 134217729.0 * a
    high = c - (c - a)
    return high, a - high


def _two_product(a: Floats | float, b: Floats) -> tuple[Floats, Floats]:
    p = a * b
    ah, al = _halves(a)
    bh, bl = _halves(b)
    rest = p - ah * bh
    rest = rest - al * bh
    rest = rest - ah * bl
    return p, np.asarray(al * bl - rest)


def expanded(parts: Sequence[Floats], factor: Floats) -> tuple[Floats, ...]:
    """``(Σ parts) · factor``, exactly, in few parts; all are integers below 2^200."""
    if len(parts) == 1:
        product = parts[0] * factor
        if np.abs(product).max(initial=0.0) < 2.0**53:
            return (product,)
    pairs = [_two_product(part, factor) for part in parts]
    products = [product for product, _ in pairs]
    errors = [error for _, error in pairs]
    first, second, *others = [*products, *errors]
    high, low = _two_sum(first, second)
    rest = []
    for summand in others:
        low, error = _two_sum(low, summand)
        rest.append(error)
    needed = [part for part in (low, *rest) if part.any()]
    return (high, *needed)


def _pieces(k: int) -> list[float]:
    """Doubles that add up to the integer exactly."""
    pieces = []
    while k:
        pieces.append(float(k))
        k -= int(pieces[-1])
    return pieces


def _products(piece: float, part: Floats) -> tuple[list[Floats], NDArray[np.bool_]]:
    """Doubles that add up to the product, and the rows where they do so exactly.

    The piece is an integer, so everything is a multiple of the last digit of the part.
    """
    if abs(piece) == 1.0:
        return [piece * part], _is_safe(part)
    product, error = _two_product(piece, part)
    return [product, error], _is_safe(part) & (np.abs(product) < SAFE_HIGH)


def _is_safe(part: Floats) -> NDArray[np.bool_]:
    """Where neither a product with an integer nor its error can be subnormal, and where nothing overflows."""
    size = np.abs(part)
    return np.asarray((size < SAFE_HIGH) & ((size > SAFE_LOW) | (part == 0)))


def _expansion(form: _Integral) -> tuple[list[Floats], NDArray[np.bool_]]:
    """``scale · expression`` as a sum of doubles, and the rows where that sum is exact."""
    safe = np.ones(form.length, dtype=np.bool_)
    if form.longest > 800:
        return [np.zeros(form.length)], ~safe
    terms = [np.full(form.length, piece) for piece in _pieces(form.constant)]
    for k, column in form._pairs:
        for part in column.parts:
            for piece in _pieces(k):
                products, exact = _products(piece, part)
                terms += products
                safe &= exact
    return terms or [np.zeros(form.length)], safe


def _distilled(terms: list[Floats]) -> tuple[Floats, NDArray[np.bool_]]:
    """The sum of the terms with the right sign, and the rows where that sign is certain."""
    for _ in range(PASSES):
        for i in range(1, len(terms)):
            terms[i], terms[i - 1] = _two_sum(terms[i], terms[i - 1])
        leading = terms[-1]
        rest = np.zeros_like(leading)
        if len(terms) > 1:
            rest = np.sum(np.abs(terms[:-1]), axis=0)
        decided = (rest == 0) | (np.abs(leading) > 2 * rest)
        if decided.all():
            break
    if len(terms) == 1:
        return leading, decided
    corrected = leading + np.sum(terms[:-1], axis=0)
    return np.where(decided & (rest > 0), corrected, leading), decided


def _settled(form: _Integral) -> tuple[Signs, Floats]:
    """Exact signs, and values over 2**exponent good to a few ulps, whatever the cancellation."""
    terms, safe = _expansion(form)
    value, decided = _distilled(terms)
    sign = np.sign(value).astype(np.int8)
    value = np.ldexp(value, -form._exponent)
    for row in np.flatnonzero(~(safe & decided)):
        exact = form.exact(int(row))
        sign[row] = (exact > 0) - (exact < 0)
        value[row] = to_float64(exact)
    return sign, value


def to_float64(number: Fraction | float) -> float:
    """The nearest float64, infinite where there is none."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else -float("inf")


# --- signs and amounts ----------------------------------------------------------------------------------------------


def _signs_and_values(form: _Integral) -> tuple[Signs, Floats]:
    value = form.value
    sign = np.sign(value)
    if form.is_exact_in_floats:
        return sign.astype(np.int8), value
    # not (>) rather than (<=): NaN and infinity from overflow stay open
    open_rows = np.flatnonzero(~(np.abs(value) > form.uniform_bound))
    if len(open_rows):
        bound = form.take(open_rows).row_bound
        open_rows = open_rows[~(np.abs(value[open_rows]) > bound)]
    if len(open_rows):
        sign[open_rows], value[open_rows] = _settled(form.take(open_rows))
    return sign.astype(np.int8), value


def signs(weighted: Weighted, constant: Fraction, length: int) -> Signs:
    """The exact sign (−1, 0, 1) of ``constant + Σ coefficient · column``, row by row.

    Args:
        weighted: pairs of coefficient and column.
        constant: the constant of the expression.
        length: the number of rows.

    Example:
        >>> x, y = Column((np.array([0.1, 0.1]),)), Column((np.array([0.2, 0.2]),))
        >>> total = Column((np.array([0.3, 0.1 + 0.2]),))
        >>> one = Fraction(1)
        >>> signs([(one, x), (one, y), (-one, total)], Fraction(0), 2)  # float64 says 0.1 + 0.2 - (0.1 + 0.2) == 0
        array([ 1, -1], dtype=int8)
    """
    with np.errstate(all="ignore"):
        return _signs_and_values(_Integral.of(weighted, constant, length))[0]


def amounts(weighted: Weighted, constant: Fraction, length: int) -> Floats:
    """The value of the expression in float64, with the exact sign, row by row.

    Zero means exactly zero; a value too small for float64 is the smallest float of its sign.
    """
    with np.errstate(all="ignore"):
        return _amounts(_Integral.of(weighted, constant, length))


def bounded_amounts(
    weighted: Weighted, constant: Fraction, length: int
) -> tuple[Floats, Floats]:
    """The same, and a bound of the error row by row."""
    with np.errstate(all="ignore"):
        form = _Integral.of(weighted, constant, length)
        near = _amounts(form)
        return near, _error(form, near)


def _amounts(form: _Integral) -> Floats:
    sign, value = _signs_and_values(form)
    near = value if form.ratio == 1 else _times(value, form.ratio)
    lost = np.flatnonzero(sign != np.sign(near))  # underflow
    near[lost] = TINY * sign[lost]
    return near


def _times(value: Floats, ratio: Fraction) -> Floats:
    """``value · ratio``, rounded once where numerator and denominator are doubles."""
    if max(ratio.numerator, ratio.denominator).bit_length() <= 53:
        return value * float(ratio.numerator) / float(ratio.denominator)
    return value * to_float64(ratio)


def _error(form: _Integral, near: Floats) -> Floats:
    """How far ``near`` can be from the expression."""
    ratio = to_float64(form.ratio)
    if form.is_exact_in_floats and ratio == 1:
        return np.zeros(form.length)
    if not SAFE_LOW < ratio < SAFE_HIGH:
        return np.full(form.length, np.inf)
    error = 4 * UNIT_ROUNDOFF * np.abs(near) + UNDERFLOW
    if not form.is_exact_in_floats:
        error = error + form.row_bound * ratio * (1 + 2.0**-10)
    return np.where(np.isfinite(near), error, np.inf)


# --- new columns from old -------------------------------------------------------------------------------------------


def total(
    weighted: Weighted, constant: Fraction, length: int, multiple: int = 1
) -> tuple[Column, NDArray[np.intp]]:
    """``constant + Σ coefficient · column`` as a column, and the rows (near overflow) where it is not.

    The unit of the column is 1 over a multiple of ``multiple``.
    """
    with np.errstate(all="ignore"):
        form = _Integral.of(weighted, constant, length, multiple)
        unit = Fraction(1, form.scale)
        if form.is_exact_in_floats:
            return Column((form.value,), unit), np.empty(0, dtype=np.intp)
        summands, safe = _expansion(form)
        parts = tuple(np.where(safe, summand, 0.0) for summand in summands)
        return Column(parts, unit), np.flatnonzero(~safe)


def product(first: Column, second: Column) -> tuple[Column, NDArray[np.intp]]:
    """The product of two columns as a column, and the rows (near overflow or underflow) where it is not."""
    safe = np.ones(len(first), dtype=np.bool_)
    parts: list[Floats] = []
    with np.errstate(all="ignore"):
        for a in first.parts:
            for b in second.parts:
                high, low = _two_product(a, b)
                size = np.abs(high)
                safe &= (a == 0) | (b == 0) | ((size > SAFE_LOW) & (size < SAFE_HIGH))
                safe &= (np.abs(a) < SAFE_HIGH) & (np.abs(b) < SAFE_HIGH)
                parts += [high, low]
    kept = tuple(np.where(safe, part, 0.0) for part in parts)
    needed = tuple(part for part in kept[1:] if part.any())
    return Column((kept[0], *needed), first.unit * second.unit), np.flatnonzero(~safe)


def select(choice: NDArray[np.intp], columns: Sequence[Column]) -> Column:
    """Row by row the chosen one of several columns of the same unit."""
    most = max(len(column.parts) for column in columns)
    parts = [np.zeros(len(choice)) for _ in range(most)]
    for k, column in enumerate(columns):
        chosen = choice == k
        for i, part in enumerate(column.parts):
            parts[i] = np.where(chosen, part, parts[i])
    return Column(tuple(parts), columns[0].unit)
