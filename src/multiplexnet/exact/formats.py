"""Binary float formats as sets of exact numbers: which fractions they hold, and rounding to them.

A format holds the numbers ``k · 2^e`` with ``|k| < 2^precision`` and ``e ≥ least_exponent`` up to ``max``. Everything
is integer arithmetic; no float is ever made.

Subnormal numbers, those closer to zero than the smallest *normal* number ``2^(1 − largest_exponent)``, count only where
no mode of the processor reads or writes them as zero. ``torch.set_flush_denormal(True)`` does that to float64, float32
and bfloat16, and never to float16. So a bound that is rounded to one of these three is zero or a normal number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

__all__ = ["FORMATS", "Format", "first_wider", "floor_log2", "holding", "power_of_two"]


def power_of_two(exponent: int) -> Fraction:
    """``2^exponent``, exactly."""
    if exponent >= 0:
        return Fraction(1 << exponent)
    return Fraction(1, 1 << -exponent)


def floor_log2(value: Fraction) -> int:
    """The exponent ``e`` with ``2^e ≤ |value| < 2^(e+1)``; ``value`` is not zero."""
    n = abs(value.numerator)
    d = value.denominator
    e = n.bit_length() - d.bit_length()
    is_at_least = n >= d << e if e >= 0 else n << -e >= d
    return e if is_at_least else e - 1


@dataclass(frozen=True)
class Format:
    """The numbers of a binary float format of IEEE kind that every mode of the processor keeps.

    Args:
        name: as torch and numpy call it.
        precision: bits of the significand, the hidden one included (``p``).
        largest_exponent: ``e`` of the largest power of two ``2^e``.
        keeps_subnormals: whether its subnormal numbers are never taken for zero.

    Example:
        >>> half = Format("float16", 11, 15)
        >>> half.max, half.representable(Fraction(1, 10))
        (Fraction(65504, 1), False)
        >>> float(half.down(Fraction(1, 10))), float(half.up(Fraction(1, 10)))
        (0.0999755859375, 0.10003662109375)
        >>> half.next_up(Fraction(1024))
        Fraction(1025, 1)
        >>> single = Format("float32", 24, 127)
        >>> single.next_up(Fraction(0)) == Fraction(1, 2**126), single.representable(Fraction(1, 2**130))
        (True, False)
    """

    name: str
    precision: int
    largest_exponent: int
    keeps_subnormals: bool = False

    @property
    def least_exponent(self) -> int:
        """The exponent of the finest digit: that of the smallest normal numbers, and of the subnormal ones."""
        return 2 - self.largest_exponent - self.precision

    @cached_property
    def max(self) -> Fraction:
        """The largest finite number."""
        return (2 - power_of_two(1 - self.precision)) * power_of_two(
            self.largest_exponent
        )

    @cached_property
    def tiny(self) -> Fraction:
        """The smallest positive number: the spacing of the format around zero."""
        return power_of_two(self.tiny_exponent)

    @property
    def tiny_exponent(self) -> int:
        """The exponent of that number."""
        if self.keeps_subnormals:
            return self.least_exponent
        return 1 - self.largest_exponent

    @cached_property
    def epsilon(self) -> Fraction:
        """The distance from 1 to the next number, ``2^(1 − p)``; rounding to nearest errs by half of it at most."""
        return power_of_two(1 - self.precision)

    def representable(self, value: Fraction) -> bool:
        """Whether the format holds this number exactly."""
        denominator = value.denominator
        is_dyadic = denominator & (denominator - 1) == 0
        if not is_dyadic or abs(value) > self.max:
            return False
        digits = value / self.spacing(value)
        return digits.denominator == 1

    def is_clear_of_zero(self, value: Fraction) -> bool:
        """Whether no number that a mode takes for zero is nearer to this one than to zero."""
        return self.keeps_subnormals or not value or abs(value) >= 2 * self.tiny

    def spacing(self, value: Fraction) -> Fraction:
        """The distance between neighbouring numbers of the format in the binade of ``value``."""
        return power_of_two(self._digit(value))

    def _digit(self, value: Fraction) -> int:
        """The exponent of the last digit of ``value`` that the format keeps."""
        size = floor_log2(value) if value else self.tiny_exponent - 1
        if size < self.tiny_exponent:
            return self.tiny_exponent
        return max(size + 1 - self.precision, self.least_exponent)

    def _is_short(self, value: Fraction) -> bool:
        """Whether it is a whole number of as many bits as the format keeps."""
        if value.denominator != 1:
            return False
        return value.numerator.bit_length() <= self.precision

    def down(self, value: Fraction) -> Fraction:
        """The largest number of the format that is at most ``value``.

        Raises:
            OverflowError: every number of the format is larger.
        """
        if self._is_short(value):
            return value
        if value > self.max:
            return self.max
        if value < -self.max:
            raise OverflowError(
                f"{self.name} ends at {float(-self.max):g}: no number of it is smaller"
            )
        digit = self._digit(value)
        if digit >= 0:
            return Fraction(value.numerator // (value.denominator << digit) << digit)
        shifted = value.numerator << -digit
        return Fraction(shifted // value.denominator, 1 << -digit)

    def up(self, value: Fraction) -> Fraction:
        """The smallest number of the format that is at least ``value``.

        Raises:
            OverflowError: every number of the format is smaller.
        """
        if self._is_short(value):
            return value
        return -self.down(-value)

    def rounded(self, value: Fraction) -> Fraction:
        """The nearest number of the format, ties to even; beyond ``max`` it is ``max``, never infinite."""
        if abs(value) > self.max:
            return self.max if value > 0 else -self.max
        unit = self.spacing(value)
        return round(value / unit) * unit

    def next_up(self, value: Fraction) -> Fraction:
        """The smallest number of the format that is larger than ``value``."""
        if value >= self.max:
            raise OverflowError(
                f"{self.name} ends at {float(self.max):g}: no number of it is larger"
            )
        above = self.up(value)
        if above > value:
            return above
        a_little = power_of_two(self.least_exponent - 1)
        return self.up(value + a_little)

    def next_down(self, value: Fraction) -> Fraction:
        """The largest number of the format that is smaller than ``value``."""
        return -self.next_up(-value)


FORMATS = {
    form.name: form
    for form in (
        Format("float64", 53, 1023),
        Format("float32", 24, 127),
        Format("bfloat16", 8, 127),
        Format("float16", 11, 15, keeps_subnormals=True),
    )
}
"""The formats by name, the widest first."""


def first_wider(form: Format, fits: Callable[[Format], bool]) -> str | None:
    """The name of the narrowest format with more digits that fits, for messages; ``None``: none does.

    Example:
        >>> first_wider(FORMATS["bfloat16"], lambda wider: wider.max > 10**5)
        'float32'
    """
    wider = [other for other in FORMATS.values() if other.precision > form.precision]
    wider.sort(key=lambda other: other.precision)
    for other in wider:
        if fits(other):
            return other.name
    return None


def holding(value: Fraction) -> list[str]:
    """The names of the formats that hold this number exactly, the widest first."""
    return [form.name for form in FORMATS.values() if form.representable(value)]
