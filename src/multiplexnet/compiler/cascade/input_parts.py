r"""What inputs contribute to rows, as whole numbers that are known at run time.

A row ``Σ A k ≤ B − σ F`` over whole k has on its right side a number B, a sign σ and a form ``F = Σ c_l u_l / 2^e``
of the inputs, c whole, the first of them positive. With ``F = r + φ``, r whole and 0 ≤ φ < 1, and ``B = b_0 + b_1``
in the same way, the row says the same as one of

    σ = +1, ≤ :   Σ A k + r + [φ > b_1]      ≤ b_0
    σ = +1, < :   Σ A k + r + [φ ≥ b_1]      ≤ b_0
    σ = −1, ≤ :   Σ A k − r − [φ ≥ 1 − b_1]  ≤ b_0
    σ = −1, < :   Σ A k − r − [φ > 1 − b_1]  ≤ b_0        if b_1 > 0
                  Σ A k − r − [φ > 0]        ≤ b_0 − 1    if b_1 = 0

where [·] is 1 or 0. So r and these *bits* are all that the inputs are to a cascade, and no rule is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor

__all__ = ["Bit", "Form", "Known", "Whole", "right_side"]


@dataclass(frozen=True)
class Form:
    """``Σ coefficient · input / 2^exponent``, inputs by position, coefficients whole, the first one positive."""

    terms: tuple[tuple[int, int], ...]
    exponent: int

    @property
    def is_exact(self) -> bool:
        """Whether its whole part and its rest are computed without rounding: one input, times a power of two."""
        return len(self.terms) == 1 and self.terms[0][1] == 1


@dataclass(frozen=True)
class Whole:
    """The whole part r of a form."""

    form: Form


@dataclass(frozen=True)
class Bit:
    """``[φ > threshold]``, or with ``closed`` ``[φ ≥ threshold]``, of the rest φ of a form.

    Where the form is rounded, r is at most its whole part; the bit of a row in which it ``subtracts`` from the left
    side is 1 only if that is certain, and any other one makes up for an r that is too small, so that it may be 2.
    """

    form: Form
    threshold: Fraction
    closed: bool
    subtracts: bool = False


Known = Whole | Bit


def right_side(
    form: Form, sign: int, number: Fraction, strict: bool
) -> tuple[dict[Known, int], int]:
    """What a row ``Σ A k ≤ number − sign · form`` (or ``<``) gets on its left side, and its whole bound.

    Example: k ≤ u − ½ for an input u of spacing 1 is k − r − [φ ≥ ½] ≤ −1.
        >>> u = Form(((0, 1),), 0)
        >>> added, bound = right_side(u, -1, Fraction(-1, 2), strict=False)
        >>> list(added.values()), bound
        ([-1, -1], -1)
    """
    base = floor(number)
    rest = number - base
    if sign > 0:
        bit, constant = _bit(form, rest, closed=strict, subtracts=False)
        added: dict[Known, int] = {Whole(form): 1}
        if bit is not None:
            added[bit] = 1
        return added, base - constant
    if rest:
        bit, constant = _bit(form, 1 - rest, closed=not strict, subtracts=True)
    elif strict:
        bit, constant = _bit(form, Fraction(0), closed=False, subtracts=True)
        base -= 1
    else:
        bit = None
        constant = 0
    added = {Whole(form): -1}
    if bit is not None:
        added[bit] = -1
    return added, base + constant


def _bit(
    form: Form, threshold: Fraction, *, closed: bool, subtracts: bool
) -> tuple[Bit | None, int]:
    """The bit, or 1 if it always is."""
    if closed and threshold == 0 and (form.is_exact or subtracts):
        return None, 1
    return Bit(form, threshold, closed, subtracts and not form.is_exact), 0
