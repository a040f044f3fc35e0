"""Float formats and the constants of the error bound, written down a second time for the check.

A format holds zero and ``k · 2^e`` with ``|k| < 2^p`` between ``tiny`` and ``largest``: numbers closer to zero than
``tiny`` are taken for zero in some modes of a processor, so a layer may not count on them. The constants are those of
``docs/understand/guarantee.md``: what the layer uses must be these numbers, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["FORMATS", "SAFETY", "SLACK", "Format", "grid"]

SAFETY = Fraction(1, 2**46)
LOOSE = Fraction(8.01)
SLACK = Fraction(1, 2**900)
"""σ, the factor of loose rows, and the least slack."""


def power(exponent: int) -> Fraction:
    """``2^exponent``."""
    return Fraction(2) ** exponent


def grid(value: Fraction) -> Fraction:
    """The largest power of two that a dyadic number, not 0, is a multiple of."""
    return Fraction(value.numerator & -value.numerator, value.denominator)


@dataclass(frozen=True)
class Format:
    """A binary float format.

    Args:
        p: digits of the significand.
        top: the exponent of its largest power of two.

    Example:
        >>> FORMATS["float16"].largest, FORMATS["float16"].after(Fraction(1024))
        (Fraction(65504, 1), Fraction(1025, 1))
    """

    p: int
    top: int

    @property
    def largest(self) -> Fraction:
        """Ω."""
        beyond = self.top + 1
        return power(beyond) - power(beyond - self.p)

    @property
    def digit(self) -> Fraction:
        """The finest digit of any number."""
        return power(2 - self.top - self.p)

    @property
    def unit(self) -> Fraction:
        """υ, as the float64 number that the layer computes with."""
        half_step = 2.0 ** (1 - self.p) / 2
        return Fraction(half_step * 1.001 + 2.0**-50)

    @property
    def tiny(self) -> Fraction:
        """τ, the smallest positive number that every mode keeps: the smallest normal one; in float16 the smallest."""
        return self.digit if self.top == 15 else power(1 - self.top)

    def holds(self, value: Fraction) -> bool:
        """Whether a number belongs to the format."""
        if not value:
            return True
        denominator = value.denominator
        if (
            denominator & (denominator - 1)
            or not self.tiny <= abs(value) <= self.largest
        ):
            return False
        return grid(value) >= self.digit and abs(value) / grid(value) < power(self.p)

    def after(self, value: Fraction) -> Fraction:
        """The number after one of the format below ``largest``."""
        if value < 0:
            return -self.before(-value)
        return value + self._ulp(value) if value else self.tiny

    def before(self, value: Fraction) -> Fraction:
        """The number before one of the format above ``-largest``."""
        if value <= 0:
            return -self.after(-value)
        if value == self.tiny:
            return Fraction(0)
        spacing = self._ulp(value)
        below = value - spacing
        return below if self._ulp(below) == spacing else value - spacing / 2

    def _ulp(self, value: Fraction) -> Fraction:
        """The distance from a positive number of the format to the next."""
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        exponent -= value < power(exponent)
        return max(self.digit, power(exponent + 1 - self.p))

    def is_clear_of_zero(self, value: Fraction) -> bool:
        """Whether no number that a mode takes for zero is nearer to this one than to zero."""
        if self.top == 15 or not value:
            return True
        return abs(value) >= 2 * self.tiny

    @property
    def bound(self) -> dict[str, Fraction]:
        """The constants of the error bound by their names in a certificate."""
        return {
            "unit": self.unit,
            "tiny": self.tiny,
            "largest": self.largest,
            "safety": SAFETY,
            "loose": LOOSE,
            "least_slack": SLACK,
        }


FORMATS = {
    "float64": Format(53, 1023),
    "float32": Format(24, 127),
    "bfloat16": Format(8, 127),
    "float16": Format(11, 15),
}
