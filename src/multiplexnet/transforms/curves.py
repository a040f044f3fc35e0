r"""Curved walls in the gauge map: rows ``W·q + |L q| + E·|q|``.

The gauge of a cone around an anchor is linear plus a norm (:mod:`multiplexnet.exact.cones`), and so positively
homogeneous and subadditive like that of a linear row: an error δ in the point moves it by at most ``Σ_j h_j |δ_j|``,
``h_j = |w_j| + |L e_j|``. With h in place of |a| / s the contraction of linear rows serves cones word for word; the
proof is in ``docs/understand/guarantee.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from multiplexnet.exact.cones import Cone, ConeGauge
from multiplexnet.transforms.base import UNIT64

__all__ = ["ConeRows", "Margins", "cone_rows", "lengths"]

Array = NDArray[np.float64]


class Margins(NamedTuple):
    """What rounding may do, and what is taken off for it.

    Args:
        unit: the relative error of a point.
        tiny: its absolute error.
        safety: taken off every slack.
        loose: how many times as far from the anchor rounding may carry a point.
    """

    unit: float
    tiny: float
    safety: float
    loose: float


class ConeRows(NamedTuple):
    """The cones of one part as seen from its anchor: cone i of a direction q is ``W_i·q + |L_i q| + E_i·|q|``.

    Args:
        W: ``(C, n)``.
        E: ``(C, n)``, what rounding may add.
        L: ``(C, p, n)``, padded with zeros.
        left: the share of its room that each cone keeps; 0 for one that is taken loosely.
    """

    W: Array
    E: Array
    L: Array
    left: Sequence[Fraction] = ()


def cone_rows(
    cones: Sequence[Cone], anchor: Sequence[Fraction], margins: Margins
) -> ConeRows:
    """The rows of cones around a representable anchor strictly inside."""
    n = len(anchor)
    errors = [Fraction(margins.unit) * abs(c) + Fraction(margins.tiny) for c in anchor]
    gauges = [cone.gauge(anchor) for cone in cones]
    p = max((len(gauge.L) for gauge in gauges), default=0)
    W = np.zeros((len(cones), n))
    E = np.zeros((len(cones), n))
    L = np.zeros((len(cones), p, n))
    lefts = list[Fraction]()
    for i, gauge in enumerate(gauges):
        spent = sum(
            (h * e for h, e in zip(gauge.sizes, errors, strict=True)), Fraction(0)
        )
        sizes = np.array([float(h) for h in gauge.sizes])
        left = 1 - spent
        if left >= Fraction(1, 2):
            room = float(left) * (1 - margins.safety)
            W[i] = np.array([float(c) for c in gauge.w]) / room
            L[i, : len(gauge.L)] = _rooted(gauge) / room
            products = 4 * (n + len(gauge.L) + 8) * UNIT64
            E[i] = sizes / room * (margins.unit + products)
            lefts.append(left)
        else:
            E[i] = margins.loose * sizes / (1 - margins.safety)
            lefts.append(Fraction(0))
    return ConeRows(W, E, L, lefts)


def _rooted(gauge: ConeGauge) -> Array:
    """L as floats, each within two roundings."""
    found = np.zeros((len(gauge.L), len(gauge.w)))
    for k, (factor, row) in enumerate(zip(gauge.factors, gauge.L, strict=True)):
        for j, c in enumerate(row):
            if c:
                found[k, j] = math.copysign(math.sqrt(factor * c * c), c)
    return found


def lengths(products: Tensor, cones: int) -> tuple[Tensor, Tensor]:
    """``L q`` of each cone, ``(…, C, p)``, and its length, ``(…, C)``, from the products of all rows of L."""
    size = products.shape[-1] // cones
    inside = products.reshape(*products.shape[:-1], cones, size)
    # the clamp keeps the second derivative finite where q = 0
    length = inside.square().sum(-1).clamp(min=1e-300).sqrt()
    return inside, length
