"""Anchors and margins, recomputed in fractions: the numbers of the theorem in ``docs/understand/guarantee.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.certificate.formats import SLACK

__all__ = ["Margins", "NotInside", "Sparse", "margins", "solved"]

Sparse = Mapping[int, Fraction]
"""Coefficients that are not 0, by position."""
Row = tuple[Sparse, Fraction]
"""``(a, b)`` of a row ``a·x ≤ b``."""


@dataclass(frozen=True)
class Margins:
    """Slacks, what is left of each once rounding took its share, and the rows that are taken loosely instead."""

    slack: tuple[Fraction, ...]
    room: tuple[Fraction, ...]
    loose: tuple[int, ...]


class NotInside(Exception):
    """An anchor that is not strictly inside; the text says which row it breaks."""


def margins(
    rows: Sequence[Row], anchor: Sequence[Fraction], unit: Fraction, tiny: Fraction
) -> Margins:
    """The margins of rows around an anchor.

    ``s = b − a·c`` and ``left = s − Σ |a_j| (unit |c_j| + tiny)``. The room is ``left`` as the float64 that the layer
    divides by; a row with ``left < s / 2`` is loose, and its room is ``s``.

    Raises:
        NotInside: a slack is not positive, or below what float64 can work with.
    """
    error = [unit * abs(c) + tiny for c in anchor]
    slacks = []
    room = []
    loose = []
    for i, (a, b) in enumerate(rows):
        slack = b - sum((x * anchor[j] for j, x in a.items()), Fraction(0))
        if slack < SLACK:
            raise NotInside(f"its slack in row {i} is {_short(slack)}")
        left = slack - sum((abs(x) * error[j] for j, x in a.items()), Fraction(0))
        if left < slack / 2:
            loose.append(i)
            left = slack
        slacks.append(slack)
        room.append(Fraction(float(left)))
    return Margins(tuple(slacks), tuple(room), tuple(loose))


def _short(number: Fraction) -> str:
    text = str(number)
    return text if len(text) <= 30 else f"about {float(number):.6g}"


# --- coordinates of a lattice ---------------------------------------------------------------------------------------

Affine = tuple[dict[int, Fraction], Fraction]
"""``Σ coefficient · x_i + constant`` by the positions i."""


def solved(
    origin: Sequence[Fraction], basis: Sequence[Sparse], width: int
) -> tuple[list[Affine], list[Affine]]:
    """For ``x = origin + basis t``: every t_j as an affine function of x, and those functions that are 0 at all such x.

    Gauss–Jordan elimination, one output after the other, those with the fewest coordinates first: where an output is
    a coordinate, as most are, there is nothing to eliminate.

    Raises:
        ValueError: the coordinates of a point are not unique.
    """
    known: dict[
        int, tuple[dict[int, Fraction], Affine]
    ] = {}  # t_j = Σ over unknown t_k, and an affine function of x
    zero: list[Affine] = []
    for i in sorted(range(len(basis)), key=lambda i: len(basis[i])):
        rest, own = _substituted(basis[i], ({i: Fraction(-1)}, origin[i]), known)
        if not rest:
            zero.append(own)
            continue
        pivot = min(rest)
        factor = -1 / rest.pop(pivot)
        found = {j: c * factor for j, c in rest.items()}, _scaled(own, factor)
        for j, (others, affine) in list(known.items()):
            if pivot in others:
                known[j] = _substituted(others, affine, {pivot: found})
        known[pivot] = found
    if len(known) < width:
        raise ValueError("the basis of a lattice is not independent")
    return [known[j][1] for j in range(width)], zero


def _substituted(
    unknown: Sparse,
    affine: Affine,
    known: dict[int, tuple[dict[int, Fraction], Affine]],
) -> tuple[dict[int, Fraction], Affine]:
    """``Σ unknown · t + affine`` with the known t put in."""
    left = dict[int, Fraction]()
    total = dict(affine[0])
    constant = affine[1]
    for j, c in unknown.items():
        if j not in known:
            left[j] = left.get(j, Fraction(0)) + c
            continue
        others, own = known[j]
        for k, d in others.items():
            left[k] = left.get(k, Fraction(0)) + c * d
        for i, d in own[0].items():
            total[i] = total.get(i, Fraction(0)) + c * d
        constant += c * own[1]
    return dict(_nonzero(left)), (dict(_nonzero(total)), constant)


def _nonzero(coefficients: dict[int, Fraction]) -> Iterator[tuple[int, Fraction]]:
    return ((i, c) for i, c in coefficients.items() if c)


def _scaled(affine: Affine, factor: Fraction) -> Affine:
    coefficients, constant = affine
    scaled = {i: c * factor for i, c in coefficients.items()}
    return scaled, constant * factor
