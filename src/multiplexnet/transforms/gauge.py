r"""Polyhedra: one radial map, exact by a contraction that is known before anything is computed.

Around an anchor c strictly inside ``A x ≤ b`` the *gauge* of a direction q says how far the boundary is: with slacks
``s = b − A c`` and ``w_i = a_i / s_i`` it is ``γ(q) = max(0, max_i w_i·q)``, and ``c + q`` lies inside where γ(q) < 1.
The transform stretches every ray,

    x = c + q · tanh(G) / G,    q = M z,    G = γ(q) up to rounding,

which is a bijection of R^n onto the inside, bounded or not. M whitens the rows. Since G is positively homogeneous, the
inverse and the determinant are closed: ``log|det| = (n − 1) log(tanh G / G) + log(1 − tanh² G) + log|det M|``.

Everything is computed in float64 and rounded once at the end. The error δ of that rounding is bounded beforehand,
``|δ_j| ≤ unit (|c_j| + r |q_j|) + tiny``, and taken off the slacks (the part in c) and added to the gauge (the part in
q): then ``r G ≤ 1`` alone implies ``a_i·x < b_i`` for the floats that come out. The proof, with every rounding, is in
``docs/understand/guarantee.md``.

A curved wall is a row with a norm in it, ``W_i·q + |L_i q|`` (:mod:`multiplexnet.transforms.curves`). These stand
before the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from multiplexnet.exact.rows import Number
from multiplexnet.geometry.magnitudes import LEAST_SLACK
from multiplexnet.geometry.parts import Polyhedron
from multiplexnet.transforms.base import (
    LIMIT,
    UNIT64,
    Differentiable,
    Precision,
    Transform,
    by_operations,
    can_overwrite,
    exactly,
    finite,
    gradient_floor,
    in_full_precision,
    is_transformed,
    precision_of,
    quarter_cell,
    recorded,
    rows_of,
    wants_gradient,
    without_zeros,
)
from multiplexnet.transforms.chosen import by_term, reordered, run_products
from multiplexnet.transforms.curves import ConeRows, Margins, cone_rows, lengths
from multiplexnet.transforms.single import (
    float32_cut,
    float32_tables,
    is_single_now,
    product,
)

__all__ = ["Gauge", "GaugeRows", "gauge_rows"]

SAFETY = 2.0**-46
"""Taken off every slack: covers the few float64 roundings that no sum over rows or columns multiplies."""

LOOSE = 8.01
"""Rounding may carry a point at most this many times as far from a representable anchor as it was."""

FURTHEST = 2.0**900
"""The most that a raw value of 1 may mean: times the largest raw value it is still a float64 number."""

FURTHEST_ANCHOR = 2.0**126
"""Anchors up to here, and a direction in float32, make no number beyond that format."""

PROJECTION_STEPS = 100
"""Steps of the projection that :meth:`Gauge.nearest` begins with; what is missing then the ray makes up for."""

CUTS = 8
"""How many tangents of a cone the projection is made with, one after another."""

NARROW = 16
"""Up to so many columns vectors are laid out in memory feature by feature: their rows are too short for products."""

FEW = 128
"""More columns than this are searched in groups."""

GROUP = 12
"""Columns of a group."""

CHUNK = 2**19
"""Row products that are held at a time (but never fewer than 1024 batch rows): they stay in the cache."""


# --- constants of one polyhedron -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaugeRows:
    """The rows of one polyhedron as seen from its anchor: row i of a direction q is ``W_i·q + E_i·|q|``.

    If that is at most 1/r for all i, the rounded point ``c + r q`` satisfies every row, strictly.

    Args:
        W: ``(m, n)``, normals over what is left of the slacks.
        E: ``(m, n)``, what rounding may add.
        room: what is left of each slack (of a row taken loosely: the slack).
    """

    W: np.ndarray
    E: np.ndarray
    room: Sequence[float] = ()


def gauge_rows(
    A: Sequence[Sequence[Number]],
    b: Sequence[Fraction],
    anchor: Sequence[Fraction],
    *,
    unit: float,
    tiny: float,
) -> GaugeRows:
    """The rows of ``A x ≤ b`` around a representable anchor strictly inside.

    A row whose slack rounding could use up is taken *loosely*: the anchor is a number of the format, so rounding
    never carries a coordinate further from it than a small multiple, whatever the slack.

    Raises:
        ValueError: the anchor is not strictly inside.
    """
    shape = (len(A), len(anchor))
    entries = [[(j, a) for j, a in enumerate(row) if a] for row in A]
    normals = np.zeros(shape)
    for i, row in enumerate(entries):
        for j, a in row:
            normals[i, j] = float(a)
    margin = [Fraction(unit) * abs(c) + Fraction(tiny) for c in anchor]
    W = np.zeros(shape)
    E = np.zeros(shape)
    room = list[float]()
    products = 4 * (len(anchor) + 8) * UNIT64
    relative = unit + products  # rounding of the point, and of the row products
    values = _products(entries, anchor)
    sizes = [[(j, a if a > 0 else -a) for j, a in row] for row in entries]
    spent = _products(sizes, margin)
    for i, bound in enumerate(b):
        slack = bound - values[i]
        left = slack - spent[i]
        _refuse_small(slack, i)
        if left >= slack / 2:
            room.append(float(left))
            W[i] = normals[i] / (room[i] * (1 - SAFETY))
            E[i] = np.abs(W[i]) * relative
        else:
            room.append(float(slack))
            E[i] = LOOSE * np.abs(normals[i]) / (room[i] * (1 - SAFETY))
    return GaugeRows(W, E, room)


def _products(
    rows: Sequence[Sequence[tuple[int, Number]]], values: Sequence[Fraction]
) -> list[Fraction]:
    """The rows, given by places and coefficients, times the values: exactly, in whole numbers."""
    unit = math.lcm(*(value.denominator for value in values))
    whole = [value.numerator * (unit // value.denominator) for value in values]
    found = []
    for row in rows:
        own = math.lcm(*(a.denominator for _, a in row))
        total = sum(a.numerator * (own // a.denominator) * whole[j] for j, a in row)
        found.append(Fraction(total, own * unit))
    return found


def _refuse_small(slack: Fraction, row: int) -> None:
    if slack <= 0:
        found = float(slack)
        raise ValueError(
            f"the anchor does not lie strictly inside row {row}: its slack is {found:g}"
        )
    if slack < LEAST_SLACK:
        raise ValueError(
            f"the slack of the anchor in row {row} is too small for float64"
        )


def range_rows(anchor: Sequence[Fraction], precision: Precision) -> GaugeRows:
    """The rows that keep every coordinate below the largest number of the format."""
    largest = Fraction(precision.largest)
    share = Fraction(1 - 2 * precision.unit)
    room = [(largest - abs(c)) * share for c in anchor]
    if min(room) <= 0:
        raise ValueError("the anchor lies at the end of the format")
    E = np.diag([(1 + precision.unit) / float(r) for r in room])
    return GaugeRows(np.zeros_like(E), E)


def _least_error(rows: Sequence[GaugeRows]) -> float:
    """The smallest error of a row that is not 0."""
    return min(float(row.E[row.E > 0].min(initial=math.inf)) for row in rows)


class Scale(NamedTuple):
    """What the size of a raw value is measured by.

    Args:
        rows: how many of the rows, from the first on, count; the others merely keep the map within a format.
        unit: the length of a column that none of these rows mentions.
        reach: the most that a raw value of 1 may mean; rows may leave more room than the format has numbers.
    """

    rows: int
    unit: float = 1.0
    reach: float = math.inf


def whitening(
    rows: GaugeRows, scale: Scale, curves: np.ndarray | None = None
) -> np.ndarray:
    """``√n (WᵀW)^{−1/2}``, symmetric so that raw value j belongs to output j; scales of columns are taken out first.

    Directions that no row restricts keep the scale of their columns. ``curves``, ``(C, p, n)``, are rows of norms: they
    stand n times as long among those of W, so that raw values of size 1 lead well inside a ball and not to its wall.
    """
    W = rows.W[: scale.rows]
    E = rows.E[: scale.rows]
    if curves is not None:
        round_rows = curves.reshape(-1, W.shape[1]) * W.shape[1]
        W = np.concatenate([W, round_rows])
        E = np.concatenate([E, np.zeros_like(round_rows)])
    size = np.maximum(np.abs(W), E / LOOSE)
    columns = size.max(axis=0, initial=0.0)
    columns[columns == 0] = 1.0 / scale.unit
    scaled = np.where(W != 0, W, size) / columns
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    restricted = values > 1e-10 * max(values.max(), 1e-300)
    stretched = np.sqrt(len(columns) / np.maximum(values, 1e-300))
    roots = np.where(restricted, stretched, 1.0)
    symmetric = (vectors * roots) @ vectors.T
    M = np.asarray(symmetric / columns[:, None])
    furthest = float(np.abs(M).max(initial=0.0))
    return M * min(1.0, scale.reach / max(furthest, 1e-300))


def gauge_tables(
    rows: Sequence[GaugeRows],
    limits: Sequence[GaugeRows],
    anchors: Sequence[Sequence[Fraction]],
    scales: Sequence[Scale],
    *,
    tight: bool,
    curves: np.ndarray | None = None,
) -> dict[str, Tensor]:
    """The tables of :class:`Gauge`: one row per polyhedron, padded with zeros, which have no effect.

    ``curves``, ``(T, C, p, n)``, belong to the first C rows, if there are any. ``rows`` holds W and a last row of
    zeros, whose product is the 0 in ``max(0, …)``. ``errors`` holds E row by row if ``tight``, ``(T, m, n)``, and else
    one bound ``(T, 1, n)`` for all rows.
    """
    count = len(rows)
    n = max(len(anchor) for anchor in anchors)
    sizes = [len(row.W) for row in rows]
    if tight:
        sizes = [
            len(row.W) + len(limit.W) for row, limit in zip(rows, limits, strict=True)
        ]
    m = 1 + max(sizes)
    tables = {
        "anchor": np.zeros((count, n)),
        "whiten": np.zeros((count, n, n)),
        "unwhiten": np.zeros((count, n, n)),
        "rows": np.zeros((count, m, n)),
        "errors": np.zeros((count, m if tight else 1, n)),
        "log_det": np.zeros(count),
        "dimension": np.array([float(len(anchor)) for anchor in anchors]),
    }
    each = zip(rows, limits, anchors, scales, strict=True)
    for k, (row, limit, anchor, scale) in enumerate(each):
        d = len(anchor)
        M = whitening(row, scale, None if curves is None else curves[k, :, :, :d])
        E = np.concatenate([row.E, limit.E])
        if not tight:
            E = E.max(axis=0, keepdims=True)
        tables["anchor"][k, :d] = [float(c) for c in anchor]
        tables["whiten"][k, :d, :d] = M
        tables["unwhiten"][k, :d, :d] = np.linalg.inv(M)
        tables["log_det"][k] = np.linalg.slogdet(M)[1]
        tables["rows"][k, : len(row.W), :d] = row.W
        tables["errors"][k, : len(E), :d] = E
    if curves is not None:
        tables["curves"] = curves
    return {name: torch.from_numpy(table) for name, table in tables.items()}


def _stacked(cones: Sequence[ConeRows]) -> np.ndarray:
    """The rows of the norms of all parts, ``(T, C, p, n)``, padded with zeros."""
    shape = tuple(max(c.L.shape[axis] for c in cones) for axis in range(3))
    found = np.zeros((len(cones), *shape))
    for k, own in enumerate(cones):
        C, p, n = own.L.shape
        found[k, :C, :p, :n] = own.L
    return found


def _after(cones: ConeRows, rows: GaugeRows, first: int) -> GaugeRows:
    """The rows of cones, as many as ``first``, and then the others."""
    missing = np.zeros((first - len(cones.W), rows.W.shape[1]))
    return GaugeRows(
        np.concatenate([cones.W, missing, rows.W]),
        np.concatenate([cones.E, missing, rows.E]),
        rows.room,
    )


# --- the stacked computation -----------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """What the map needs of every term; see :func:`gauge_tables`."""

    anchor: Tensor
    whiten: Tensor
    rows: Tensor
    errors: Tensor
    curves: Tensor | None = None
    by_feature: bool = False
    """Whether products of a single term are laid out feature by feature, which is faster; other bits in float64."""
    runs: tuple[int, ...] = ()
    """How many rows of the batch have each term, if they stand in the order of terms."""
    cut: float = LIMIT
    """Where raw values are cut."""

    @property
    def tight(self) -> bool:
        return self.errors.shape[1] > 1

    def double(self) -> Tables:
        """The same numbers in float64."""
        return self._replace(
            anchor=self.anchor.double(),
            whiten=self.whiten.double(),
            rows=self.rows.double(),
            errors=self.errors.double(),
        )


class Rounding(NamedTuple):
    """What a lattice makes of every point t of the map: ``origin + basis · (t rounded to integers)``."""

    origin: Tensor
    basis: Tensor


class Matrices(NamedTuple):
    """What the gradient needs of every term; ``basis`` is that of the :class:`Rounding`, if there is one."""

    whiten: Tensor
    rows: Tensor
    basis: Tensor | None
    curves: Tensor | None = None
    runs: tuple[int, ...] = ()
    cut: float = LIMIT


class Slopes(NamedTuple):
    """Derivatives in z of a single polyhedron without curves.

    Args:
        point: of the point before it is stretched, M (on a lattice: basis M), ``(number of outputs, number of z)``, in
            the dtype of the gradient in x.
        rows: of the products of all rows, W M.
    """

    point: Tensor
    rows: Tensor


class GaugePoint(NamedTuple):
    """What the gradient needs of every point.

    Args:
        z: the raw values.
        chosen: the chosen terms, if any were chosen.
        grad: the gradient in x.
        G: the gauge.
        row: the position of the largest row among the rows of all terms.
        q: the direction from the anchor, before it is stretched.
    """

    z: Tensor
    chosen: Tensor | None
    grad: Tensor
    G: Tensor
    row: Tensor
    q: Tensor


def by_feature(matrix: Tensor, vector: Tensor) -> Tensor:
    """``matrix @ vector``, ``(m, n)`` with ``(B, n) → (B, m)``, laid out in memory feature by feature."""
    return product(matrix, vector).mT


def is_by_feature(vector: Tensor) -> bool:
    """Whether vectors are laid out so."""
    return vector.dim() == 2 and vector.shape[-1] > 1 and vector.stride(0) == 1


def laid_out(matrix: Tensor, vector: Tensor) -> Tensor:
    """``matrix @ vector``, ``(m, n)`` with ``(*batch, n) → (*batch, m)``, laid out in memory as the vectors are."""
    if is_by_feature(vector):
        return by_feature(matrix, vector)
    return vector @ matrix.mT


def whitened(z: Tensor, index: Tensor | None, tables: Tables) -> Tensor:
    """The direction ``q = M z`` of raw values."""
    values = finite(z, tables.whiten.dtype, tables.cut)
    if tables.by_feature and values.shape[-1] <= NARROW:
        return by_feature(tables.whiten[0], values)
    return times(tables.whiten, values, index, tables.runs)


def times(
    matrix: Tensor,
    vector: Tensor,
    index: Tensor | None,
    runs: tuple[int, ...] = (),
) -> Tensor:
    """``matrix[k] @ vector``: of the only term, of the chosen terms, or of all.

    ``(T, m, n)`` with ``(*batch, n) → (*batch, m)`` if T = 1 or ``index`` is given, else with
    ``(*batch, 1 or T, n) → (*batch, T, m)``. ``runs`` are those of :class:`Tables`.
    """
    if len(matrix) == 1:
        return product(vector, matrix[0])
    if runs:
        return run_products(vector, matrix.mT, runs)
    if index is not None:
        return (rows_of(matrix, index) @ vector.unsqueeze(-1)).squeeze(-1)
    if vector.shape[-2] == 1:
        flat = vector.squeeze(-2) @ matrix.flatten(0, 1).mT
        return flat.reshape(*flat.shape[:-1], *matrix.shape[:2])
    return torch.einsum("...tn,tmn->...tm", vector, matrix)


def row_products(q: Tensor, index: Tensor | None, tables: Tables) -> Tensor:
    """``W_i·q (+ |L_i q|) (+ E_i·|q|)`` of all rows."""
    if tables.by_feature:
        products = by_feature(tables.rows[0], q)
        products = _with_lengths(products, q, index, tables.curves)
        if tables.tight:
            products = products + by_feature(tables.errors[0], q.abs())
        return products
    products = times(tables.rows, q, index, tables.runs)
    products = _with_lengths(products, q, index, tables.curves)
    if tables.tight:
        products = products + times(tables.errors, q.abs(), index, tables.runs)
    return products


def _with_lengths(
    products: Tensor, q: Tensor, index: Tensor | None, curves: Tensor | None
) -> Tensor:
    """``W_i·q + |L_i q|`` of the rows that are cones, which come first."""
    if curves is None:
        return products
    _, length = curved(q, index, curves)
    cones = length.shape[-1]
    first = products[..., :cones] + length
    if cones == products.shape[-1]:
        return first
    if is_by_feature(products):
        return torch.cat([first.mT, products.mT[cones:]]).mT
    return torch.cat([first, products[..., cones:]], -1)


def first_equal(products: Tensor, value: Tensor) -> Tensor:
    """The first column of every row, ``(B, m)``, that has this value; the last one if it is NaN.

    As ``max`` would find it in three times the time: small whole numbers are compared many at a time. Products that
    nothing records are overwritten, since truth values that are floats are found many at a time, too.
    """
    m = products.shape[-1]
    if can_overwrite():
        ranks = torch.arange(m, 0, -1, dtype=products.dtype, device=products.device)
        places = products.eq_(value.unsqueeze(-1)).mul_(ranks).amax(-1)
        return places.neg_().add_(m).clamp_(max=m - 1).long()
    dtype = torch.uint8 if m < 2**8 else torch.int32
    rank = torch.arange(m, 0, -1, dtype=dtype, device=products.device)
    found = (products == value.unsqueeze(-1)).to(dtype) * rank
    return (m - found.amax(-1).long()).clamp(max=m - 1)


def largest_column(products: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of every row, ``(B, m)`` laid out feature by feature, and the first column that has it.

    Many columns are searched in groups: the first group that has the value, and the first column there.
    """
    m = products.shape[-1]
    if m <= FEW:
        value = products.amax(-1)
        return value, first_equal(products, value)
    whole = m // GROUP * GROUP
    features = products.mT
    groups = features[:whole].reshape(m // GROUP, GROUP, features.shape[-1])
    largest = groups.amax(1)
    if whole < m:
        largest = torch.cat([largest, features[whole:].amax(0, keepdim=True)])
    value = largest.amax(0)
    start = (first_equal(largest.mT, value) * GROUP).clamp(max=m - GROUP)
    columns = start + torch.arange(GROUP, device=start.device).unsqueeze(-1)
    own = features.gather(0, columns)
    return value, start + first_equal(own.mT, value)


def largest_row(
    q: Tensor, index: Tensor | None, tables: Tables
) -> tuple[Tensor, Tensor]:
    """The largest ``W_i·q (+ |L_i q|) (+ E_i·|q|)`` and its position among the rows of all terms."""
    products = row_products(q, index, tables)
    if tables.by_feature:
        return largest_column(products)
    count, m = tables.rows.shape[:2]
    if m == 2 and not is_transformed():  # which takes a third of the time
        first, second = products.unbind(-1)
        value = torch.maximum(first, second)
        row = (second > first).long()
    else:
        value, row = products.max(-1)
    if count == 1:
        return value, row
    if index is None:
        index = torch.arange(count, device=row.device)
    return value, row + m * index


def curved(q: Tensor, index: Tensor | None, curves: Tensor) -> tuple[Tensor, Tensor]:
    """``L q`` of every cone, and its length."""
    rows = curves.flatten(1, 2)
    products = laid_out(rows[0], q) if len(rows) == 1 else times(rows, q, index)
    return lengths(products, curves.shape[1])


def steepest(
    q: Tensor, row: Tensor, index: Tensor | None, rows: Tensor, curves: Tensor | None
) -> Tensor:
    """The gradient of the gauge in q, whose largest row is i = ``row``: ``W_i + L_iᵀ L_i q / |L_i q|``."""
    w = F.embedding(row, rows.flatten(0, 1))
    if curves is None:
        return w
    inside, length = curved(q, index, curves)
    cones = torch.arange(curves.shape[1], device=q.device)
    is_largest = (row % rows.shape[1]).unsqueeze(-1) == cones
    share = torch.where(is_largest, 1 / length, 0.0)
    unit = (inside * share.unsqueeze(-1)).flatten(-2)
    return w + _transposed(curves.flatten(1, 2), unit, index)


def gauge(q: Tensor, index: Tensor | None, tables: Tables) -> tuple[Tensor, Tensor]:
    """G(q), an upper bound of 0 and of every row, and the row that is the largest."""
    value, row = largest_row(q, index, tables)
    return with_errors(value, q, index, tables), row


def gauge_alone(q: Tensor, index: Tensor | None, tables: Tables) -> Tensor:
    """G(q), without the row."""
    value = row_products(q, index, tables).amax(-1)
    return with_errors(value, q, index, tables)


def with_errors(
    value: Tensor, q: Tensor, index: Tensor | None, tables: Tables
) -> Tensor:
    """The largest row, to which the bound of all errors is added unless each row has its own in it."""
    if tables.tight:
        return value
    return value + times(tables.errors, q.abs(), index, tables.runs).squeeze(-1)


def radius(G: Tensor) -> Tensor:
    """``tanh(G) / G``; 1 at 0. Like all of float64 it may be off by a few roundings, which ``SAFETY`` covers."""
    G = G.clamp(min=1e-8)
    reach = torch.tanh(G)
    if G.dtype is torch.float32:
        reach = reach.clamp(max=1.0)
    return reach.div_(G) if can_overwrite() else reach / G


def radius_and_decline(G: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """``tanh(G) / G`` for the gradient, and its derivative, with ``floor`` added to that of tanh.

    tanh is flat in float64 from G = 19 on: without the floor a network that went too far never comes back. Close to 0,
    where the textbook form of the derivative cancels, it is −2G/3 and so is taken linear.
    """
    if G.dtype is torch.float32:  # which has no 1 + 1e-12, and cancels sooner
        r, decline = radius_and_decline(G.double(), floor)
        return r.float(), decline.float()
    safe = G.clamp(min=1e-4)
    reach = torch.tanh(safe)
    r = reach / safe
    slope = 1 + floor - reach * reach
    return r, (slope - r) / (safe * safe) * G


def log_slope(G: Tensor) -> Tensor:
    """``log(1 − tanh² G)``, without cancellation."""
    rest = F.softplus(-2 * G)
    return 2 * (math.log(2.0) - G - rest)


def projected(d: Tensor, rows: Tensor, cuts: Tensor | None = None) -> Tensor:
    """The points nearest to ``d``, ``(*batch, T, n)``, where ``rows @ d ≤ 1``, ``(T, m, n)``, up to some digits.

    The dual of the projection, min_{λ ≥ 0} ½|Wᵀλ|² − λ·(W d − 1) with rows of length 1, by accelerated gradient steps
    (FISTA); rows of zeros have no effect. ``cuts``, ``(*batch, T, k, n)``, are rows that every point has for itself.
    """
    length = rows.norm(dim=-1).clamp(min=1e-300)
    W = rows / length.unsqueeze(-1)
    bound = torch.where(length > 1e-300, 1 / length, 1.0)
    size = torch.linalg.matrix_norm(W, 2).clamp(min=1.0)
    step = 1 / size.square().unsqueeze(-1)
    surplus = torch.einsum("...tn,tmn->...tm", d, W) - bound
    if cuts is not None:
        own, surplus = _with_cuts(d, W, surplus, cuts)
        step = 1 / (size.square() + cuts.shape[-2]).unsqueeze(-1)
        return _nearest_dual(d, own, surplus, step, "...tmn")
    return _nearest_dual(d, W, surplus, step, "tmn")


def _with_cuts(
    d: Tensor, W: Tensor, surplus: Tensor, cuts: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows and cuts of length 1 for every point, and by how much each exceeds its bound there."""
    length = cuts.norm(dim=-1).clamp(min=1e-300)
    unit = cuts / length.unsqueeze(-1)
    over = (unit @ d.unsqueeze(-1)).squeeze(-1) - 1 / length
    shared = W.expand(*d.shape[:-2], *W.shape)
    return torch.cat([shared, unit], -2), torch.cat([surplus, over], -1)


def _nearest_dual(
    d: Tensor, W: Tensor, surplus: Tensor, step: Tensor, axes: str
) -> Tensor:
    old = ahead = torch.zeros_like(surplus)
    for k in range(PROJECTION_STEPS):
        back = torch.einsum(f"...tm,{axes}->...tn", ahead, W)
        slope = torch.einsum(f"...tn,{axes}->...tm", back, W) - surplus
        new = (ahead - step * slope).clamp(min=0)
        ahead = new + (k / (k + 3)) * (new - old)
        old = new
    return d - torch.einsum(f"...tm,{axes}->...tn", old, W)


def projected_inside(d: Tensor, rows: Tensor, curves: Tensor) -> Tensor:
    """As :func:`projected`, with cones: their tangents at the point so far are cuts of it, again and again."""
    point = projected(d, rows)
    cones = curves.shape[1]
    cuts = d.new_zeros(*point.shape[:-1], 0, point.shape[-1])
    for _ in range(CUTS):
        inside, length = curved(point, None, curves)
        unit = inside / length.unsqueeze(-1)
        tangent = rows[:, :cones] + torch.einsum("...tcp,tcpn->...tcn", unit, curves)
        cuts = torch.cat([cuts, tangent], -2)
        point = projected(d, rows, cuts)
    return point


def _joined(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The results of all chunks as one."""
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(pieces) for pieces in zip(*parts, strict=True))


class _Radial(Differentiable):
    """``x = round(c + q tanh(G) / G)`` for a flat batch, chunk by chunk.

    Only the largest row of each point has a gradient, so backward needs no product over all rows; it is written with
    differentiable operations and can be differentiated again.
    """

    @staticmethod
    def forward(
        z: Tensor,
        index: Tensor | None,
        tables: Tables,
        grid: Rounding | None,
        dtype: torch.dtype,
        floor: float,
    ) -> tuple[Tensor, ...]:
        chunks = _chunks(tables, z, index)
        parts = [_point(tables, grid, dtype, *chunk) for chunk in chunks]
        return _joined(parts)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        z, index, tables, grid, _, ctx.floor = inputs
        ctx.runs = tables.runs
        ctx.cut = tables.cut
        basis = None if grid is None else grid.basis.to(tables.rows.dtype)
        ctx.mark_non_differentiable(*output[1:])
        without_zeros(ctx)
        kept = (tables.whiten, tables.rows, basis, tables.curves)
        ctx.save_for_backward(z, index, *kept, *output[1:])

    @staticmethod
    @in_full_precision
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        z, index, whiten, rows, basis, curves, *saved = ctx.saved_tensors
        if grads[0] is None:
            return torch.zeros_like(z), None, None, None, None, None
        matrices = Matrices(whiten, rows, basis, curves, ctx.runs, ctx.cut)
        chunks = _chunks(matrices, z, index, grads[0], *saved)
        parts = [
            _pulled_back(matrices, ctx.floor, GaugePoint(*chunk)) for chunk in chunks
        ]
        gradient = parts[0] if len(parts) == 1 else torch.cat(parts)
        return gradient, None, None, None, None, None


class _RadialAlone(Differentiable):
    """:class:`_Radial` of a single polyhedron without curves, whose derivatives in z are tables.

    With r = tanh(G)/G, g the gradient in x, P and v the slopes of the point and of the largest row, the gradient in z
    is ``h + (r′/r) (h·z) v`` for ``h = r Pᵀ g``, since q = M z.
    """

    @staticmethod
    def forward(
        z: Tensor,
        tables: Tables,
        grid: Rounding | None,
        slopes: Slopes,
        dtype: torch.dtype,
        floor: float,
    ) -> tuple[Tensor, ...]:
        chunks = _chunks(tables, z, None)
        parts = [_point(tables, grid, dtype, *chunk)[:3] for chunk in chunks]
        return _joined(parts)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        z, tables, _, slopes, _, ctx.floor = inputs
        ctx.cut = tables.cut
        ctx.mark_non_differentiable(*output[1:])
        without_zeros(ctx)
        ctx.save_for_backward(z, *slopes, *output[1:])

    @staticmethod
    @in_full_precision
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raw, point, rows, *saved = ctx.saved_tensors
        if grads[0] is None:
            return torch.zeros_like(raw), None, None, None, None, None
        slopes = Slopes(point, rows)
        matrices = Matrices(point.unsqueeze(0), rows.unsqueeze(0), None)
        chunks = _chunks(matrices, raw, None, grads[0], *saved)
        parts = [
            _slopes_applied(slopes, (ctx.floor, ctx.cut), z, grad, G, row)
            for z, _, grad, G, row in chunks
        ]
        own = parts[0] if len(parts) == 1 else torch.cat(parts)
        return own, None, None, None, None, None


def _slopes_applied(
    slopes: Slopes,
    limits: tuple[float, float],
    raw: Tensor,
    grad: Tensor,
    G: Tensor,
    row: Tensor,
) -> Tensor:
    """The gradient in z of :class:`_RadialAlone`."""
    floor, cut = limits
    computing = slopes.rows.dtype
    if G.dtype is not computing:
        G = G.to(computing)
    if torch.is_grad_enabled():  # to be differentiated again
        v = F.embedding(row, slopes.rows)
        G = exactly(G, (v * finite(raw, computing, cut)).sum(-1))
    r, decline = radius_and_decline(G, floor)
    point = slopes.point
    g = grad.to(point.dtype) * r.to(point.dtype).unsqueeze(-1)
    h = by_feature(point.mT, g) if g.shape[-1] <= NARROW else product(g, point.mT)
    if computing is torch.float64:
        h = h.double()  # far out both summands nearly cancel
    elif not h.is_contiguous():
        h = torch.cat(
            [h]
        )  # as the others are: elementwise products of two layouts take longer
    if can_overwrite():
        z, v = _laid_out_as(h, raw, row, slopes.rows, cut)
        along = z.mul_(h).sum(-1).mul_(decline.div_(r))
        gradient = h.addcmul_(v, along.unsqueeze(-1))
    else:
        z = finite(raw, computing, cut)
        v = F.embedding(row, slopes.rows)
        along = (h * z).sum(-1) * (decline / r)
        gradient = torch.addcmul(h, v, along.unsqueeze(-1))
    return _row_by_row(gradient, raw.dtype)


def _laid_out_as(
    other: Tensor, raw: Tensor, row: Tensor, rows: Tensor, cut: float
) -> tuple[Tensor, Tensor]:
    """Raw values, cut, and the rows of a table, in the dtype of others and laid out in memory as they are.

    Elementwise products of two layouts take longer than another layout of both.
    """
    z = torch.empty_like(other).copy_(raw).clamp_(-cut, cut)
    if not is_by_feature(other):
        return z, F.embedding(row, rows)
    places = row.expand(rows.shape[-1], len(row))
    return z, rows.mT.gather(1, places).mT


def _chunks(
    tables: Tables | Matrices,
    z: Tensor,
    index: Tensor | None,
    *others: Tensor,
) -> list[tuple[Any, ...]]:
    """The batch in chunks; in one piece while a graph is recorded, and where rows stand by their terms."""
    count, m, n = tables.rows.shape
    if tables.curves is not None:
        m += tables.curves.shape[1] * tables.curves.shape[2]
    size = max(1024, CHUNK // (m * (count if index is None else n)))
    if tables.runs:
        return [(z, index, *others)]
    if torch.compiler.is_compiling() or z.shape[0] <= size:
        return [(z, index, *others)]
    chunks = []
    for start in range(0, len(z), size):
        here = slice(start, start + size)
        chosen = None if index is None else index[here]
        chunks.append((z[here], chosen, *(other[here] for other in others)))
    return chunks


def _point(
    tables: Tables,
    grid: Rounding | None,
    dtype: torch.dtype,
    z: Tensor,
    index: Tensor | None,
) -> tuple[Tensor, ...]:
    """x, and what backward needs: G, the largest row and q."""
    q = whitened(z, index, tables)
    G, row = gauge(q, index, tables)
    return _stretched(tables, grid, dtype, q, G, index), G, row, q


def _value(
    tables: Tables,
    grid: Rounding | None,
    dtype: torch.dtype,
    z: Tensor,
    index: Tensor | None,
) -> Tensor:
    """x alone."""
    q = whitened(z, index, tables)
    G = gauge_alone(q, index, tables)
    return _stretched(tables, grid, dtype, q, G, index)


def _stretched(
    tables: Tables,
    grid: Rounding | None,
    dtype: torch.dtype,
    q: Tensor,
    G: Tensor,
    index: Tensor | None,
) -> Tensor:
    """``c + q tanh(G) / G`` as a number of the dtype, on the grid if there is one."""
    anchor = _take(tables.anchor, index)
    r = radius(G).unsqueeze(-1)
    if q.dtype is not anchor.dtype:  # that of a grid has more digits
        q = q.to(anchor.dtype)
        r = r.to(anchor.dtype)
    x = torch.addcmul(anchor, q, r)
    if grid is not None:
        steps = _whole(x)
        x = _on_grid(grid, steps, index, tables.runs)
    return _row_by_row(x, dtype)


def _whole(t: Tensor) -> Tensor:
    """t rounded; its gradient is that of t, which backward sees to, but in forward mode and where it is exported."""
    if by_operations():
        return exactly(torch.round(t), t)
    return t.round_() if can_overwrite() else torch.round(t)


def _row_by_row(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The values in the dtype, contiguous: ``to`` leaves the layout alone if the dtype is theirs."""
    if values.dtype is dtype and not values.is_contiguous():
        return torch.cat([values])  # as `contiguous`, in two thirds of the time
    return values.to(dtype, memory_format=torch.contiguous_format)


def _on_grid(
    grid: Rounding, t: Tensor, index: Tensor | None, runs: tuple[int, ...]
) -> Tensor:
    origin = _take(grid.origin, index)
    if len(grid.basis) > 1:
        return origin + times(grid.basis, t, index, runs)
    basis = grid.basis[0]
    if t.shape[-1] <= NARROW:
        return torch.addmm(origin.unsqueeze(-1), basis, t.mT).mT
    return torch.addmm(origin, t, basis.mT)


def _pulled_back(matrices: Matrices, floor: float, reached: GaugePoint) -> Tensor:
    """The gradient in z: ``Mᵀ (r g + r′ (g·q) w)`` with r = tanh(G)/G, g the gradient in x and w the largest row."""
    z, index, grad, G, row, q = reached
    whiten, rows, basis, curves, runs, cut = matrices
    if torch.is_grad_enabled():  # to be differentiated again
        q = times(whiten, finite(z, whiten.dtype, cut), index)
    w = steepest(q, row, index, rows, curves)
    if torch.is_grad_enabled():
        G = exactly(G, (w * q).sum(-1))
    g = _as(q, grad)
    if basis is not None:
        g = _transposed(basis, g, index, runs)
    r, decline = radius_and_decline(G, floor)
    along = _row_sums(g * q) * decline
    pulled = torch.addcmul(g * r.unsqueeze(-1), w, along.unsqueeze(-1))
    if z.dtype is not torch.float64:
        pulled = pulled.float()
        whiten = whiten.float()
    shared = z.dim() == 3 and z.shape[-2] == 1
    gradient = _transposed(whiten, pulled, index, runs, shared=shared)
    return _row_by_row(gradient, z.dtype)


def _row_sums(values: Tensor) -> Tensor:
    """``values.sum(-1)``, which takes ten times as long as a sum of two columns."""
    if values.shape[-1] != 2 or is_transformed():
        return values.sum(-1)
    first, second = values.unbind(-1)
    return first + second


def _as(other: Tensor, values: Tensor) -> Tensor:
    """The values in the dtype of others, and laid out in memory as they are."""
    if is_by_feature(other):
        return values.mT.to(other.dtype, memory_format=torch.contiguous_format).mT
    return values.to(other.dtype)


def _take(table: Tensor, index: Tensor | None) -> Tensor:
    if len(table) == 1:
        return table[0]
    return table if index is None else rows_of(table, index)


def _transposed(
    matrix: Tensor,
    vector: Tensor,
    index: Tensor | None,
    runs: tuple[int, ...] = (),
    *,
    shared: bool = False,
) -> Tensor:
    """``matrix[k]ᵀ @ vector``, summed over the terms if they share one raw value."""
    if len(matrix) == 1:
        return laid_out(matrix[0].mT, vector)
    if runs:
        return run_products(vector, matrix, runs)
    if index is not None:
        return (vector.unsqueeze(-2) @ rows_of(matrix, index)).squeeze(-2)
    if shared:
        return (vector.flatten(-2) @ matrix.flatten(0, 1)).unsqueeze(-2)
    return torch.einsum("...tm,tmn->...tn", vector, matrix)


class Gauge(Transform):
    """Polyhedra by the gauge map.

    Args:
        parts: one polyhedron per term; smaller ones are padded to the largest number n of outputs and m of rows.
        dtype: of the values that come out.
        grain: the spacing of the grid, one per part, to which the caller rounds what comes out (default: none).
        scales: what raw values are measured by, one per part (default: by all rows).
        single: whether products may be made in float32 unless what comes out is float64 (with a grain: even then).

    Example:
        >>> from fractions import Fraction
        >>> rows = ((Fraction(1), Fraction(1)), (Fraction(-1), Fraction(0)), (Fraction(0), Fraction(-1)))
        >>> bounds, quarter = (Fraction(1), Fraction(0), Fraction(0)), Fraction(1, 4)
        >>> part = Polyhedron((), rows, bounds, (True, True, True), (quarter, quarter))
        >>> x = Gauge([part], torch.float16)(torch.tensor([[1e4, -float("inf")]], dtype=torch.float16))
        >>> bool((x > 0).all() and x.double().sum() < 1)
        True
    """

    anchor: Tensor
    whiten: Tensor
    unwhiten: Tensor
    rows: Tensor
    errors: Tensor
    log_det: Tensor
    dimension: Tensor
    curves: Tensor | None = None
    cut: float = LIMIT
    point_slopes: Tensor | None = None
    row_slopes: Tensor | None = None

    def __init__(
        self,
        parts: Sequence[Polyhedron],
        dtype: torch.dtype,
        *,
        grain: Sequence[Fraction] | None = None,
        scales: Sequence[Scale] | None = None,
        single: bool = False,
    ) -> None:
        precision = precision_of(dtype)
        grain = grain or [Fraction(0)] * len(parts)
        rows = []
        for part, spacing in zip(parts, grain, strict=True):
            tiny = precision.tiny + float(spacing)
            rows.append(
                gauge_rows(part.A, part.b, part.anchor, unit=precision.unit, tiny=tiny)
            )
        limits = [range_rows(part.anchor, precision) for part in parts]
        any_loose = any(((row.W == 0) & (row.E != 0)).any() for row in rows)
        if not scales:
            reach = min(precision.largest / 8, FURTHEST)
            scales = [Scale(len(part.A), reach=reach) for part in parts]
        curves = None
        if any(part.cones for part in parts):
            cones = [
                cone_rows(
                    part.cones,
                    part.anchor,
                    Margins(
                        precision.unit,
                        precision.tiny + float(spacing),
                        SAFETY,
                        LOOSE,
                    ),
                )
                for part, spacing in zip(parts, grain, strict=True)
            ]
            any_loose = any_loose or any(0 in found.left for found in cones)
            curves = _stacked(cones)
            first = curves.shape[1]
            rows = [_after(c, row, first) for c, row in zip(cones, rows, strict=True)]
            scales = [scale._replace(rows=scale.rows + first) for scale in scales]
        tight = precision.unit > 1e-4 or any_loose
        anchors = [part.anchor for part in parts]
        super().__init__(
            dtype,
            gauge_tables(rows, limits, anchors, scales, tight=tight, curves=curves),
        )
        narrow_enough = dtype is not torch.float64 or any(grain)
        if single and narrow_enough and curves is None:
            self._narrow(_least_error(rows))
        self._hold_slopes(self.whiten, dtype)

    def _narrow(self, least_error: float) -> None:
        """From now on products are made in float32, if they may be."""
        tables = float32_tables(self.own_tables(), least_error)
        if tables is None or float(self.anchor.abs().max()) > FURTHEST_ANCHOR:
            return
        cut = float32_cut(tables)
        if not cut:
            return
        if self.precision.dtype is not torch.float64:
            tables["anchor"] = self.anchor.float()
        self.hold(tables)
        self.cut = cut

    def read(self, select: Tensor, basis: Tensor, dtype: torch.dtype) -> None:
        """From now on read raw values ``select @ raw``, ``select`` of shape ``(T, n, number of raw values)``.

        What comes out is rounded, multiplied by ``basis`` and a number of the dtype.
        """
        self.whiten = self.whiten @ select.to(self.whiten.dtype)
        self.unwhiten = select.mT @ self.unwhiten
        self._hold_slopes(basis @ self.whiten.double(), dtype)

    def _hold_slopes(self, point: Tensor, dtype: torch.dtype) -> None:
        """The tables of :class:`Slopes`, if there are any, and what the derivative is raised by."""
        self.floor = gradient_floor(dtype)
        self.is_widest = dtype is torch.float64
        if len(self) > 1 or self.curves is not None:
            return
        slopes = {
            "point_slopes": point.to(precision_of(dtype).computing, copy=True),
            "row_slopes": self.rows @ self.whiten,
        }
        self.hold({**self.own_tables(), **slopes})

    @property
    def slopes(self) -> Slopes | None:
        if self.point_slopes is None or self.row_slopes is None:
            return None
        return Slopes(self.point_slopes[0], self.row_slopes[0])

    @property
    def tables(self) -> Tables:
        is_narrow = self.curves is None or self.whiten.shape[-1] <= NARROW
        by_feature = len(self) == 1 and is_narrow and not self.is_widest
        return Tables(
            self.anchor,
            self.whiten,
            self.rows,
            self.errors,
            self.curves,
            by_feature,
            cut=self.cut,
        )

    @property
    def wide_tables(self) -> Tables:
        """The tables in float64."""
        return self.tables.double()

    def forward(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.on_grid(raw, index, None, self.precision.dtype)

    def on_grid(
        self,
        raw: Tensor,
        index: Tensor | None,
        grid: Rounding | None,
        dtype: torch.dtype,
    ) -> Tensor:
        """The map, followed by what ``grid`` says, as numbers of the dtype."""
        flat, chosen = self._flat(raw, index)
        together = None
        if chosen is not None and not self.is_widest and self.curves is None:
            together = by_term(chosen, len(self))
        if together is None or chosen is None:
            x = self._mapped(flat, chosen, grid, dtype, self.tables)
        else:
            order, back, runs = together
            tables = self.tables._replace(runs=runs)
            own = reordered(flat, order, back)
            x = self._mapped(own, chosen.index_select(0, order), grid, dtype, tables)
            x = reordered(x, back, order)
        return x.reshape(self._shape(raw, index, x.shape[-1]))

    def _mapped(
        self,
        z: Tensor,
        index: Tensor | None,
        grid: Rounding | None,
        dtype: torch.dtype,
        tables: Tables,
    ) -> Tensor:
        if tables.rows.dtype is torch.float32 and not is_single_now(z):
            tables = tables.double()
        if not wants_gradient(z):
            chunks = _chunks(tables, z, index)
            parts = [_value(tables, grid, dtype, *chunk) for chunk in chunks]
            return parts[0] if len(parts) == 1 else torch.cat(parts)
        slopes = self.slopes
        values: tuple[Tensor, ...]
        if slopes is None:
            told = (z, index, tables, grid, dtype, self.floor)
            values = recorded(_Radial, *told)
        else:
            alone = (z, tables, grid, slopes, dtype, self.floor)
            values = recorded(_RadialAlone, *alone)
        return values[0]

    def inverse(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        flat, chosen = self._flat(x, index)
        d = flat.double() - _take(self.anchor, chosen)
        G = gauge(d, chosen, self.wide_tables)[0].clamp(1e-8, 1 - UNIT64)
        q = d * (torch.atanh(G) / G).unsqueeze(-1)
        raw = times(self.unwhiten, q, chosen).to(self.precision.dtype)
        return raw.reshape(self._shape(x, index, raw.shape[-1]))

    def unrounded(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        return self.off_grid(x, quarter_cell(x, self.precision.dtype), index)

    def off_grid(self, x: Tensor, cell: Tensor, index: Tensor | None) -> Tensor:
        """:meth:`unrounded` of points that stand for cells of this size; ``cell`` has the shape of ``x``."""
        flat, chosen = self._flat(x.double(), index)
        own, _ = self._flat(cell, index)
        d = flat - _take(self.anchor, chosen)
        tables = self.wide_tables
        sizes = tables.rows.abs()
        if self.curves is not None:
            padding = (0, 0, 0, sizes.shape[1] - self.curves.shape[1])
            sizes = sizes + F.pad(self.curves.norm(dim=2), padding)
        change = times(sizes, own, chosen).amax(-1)
        if tables.tight:
            loose = times(tables.errors, own, chosen).amax(-1)
            change = torch.maximum(change, loose)
        found = gauge(d, chosen, tables)[0].clamp(min=1e-8)
        G = torch.minimum(found, 1 - change.clamp(UNIT64, 0.5))
        q = d * (torch.atanh(G) / found).unsqueeze(-1)
        raw = times(self.unwhiten, q, chosen)
        return raw.reshape(self._shape(x, index, raw.shape[-1]))

    def nearest(
        self, x: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> Tensor:
        """The projection of ``x`` onto the closure, up to some digits, and from there the ray towards the anchor."""
        if index is not None:
            return super().nearest(x, index, parameters)
        d = x.double() - self.anchor
        if self.curves is None:
            inside = self.anchor + projected(d, self.rows.double())
        else:
            inside = self.anchor + projected_inside(d, self.rows, self.curves)
        raw = torch.nan_to_num(self.inverse(inside))
        near: Tensor = self(raw)
        return near

    def forward_and_log_det(
        self, raw: Tensor, index: Tensor | None = None, parameters: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        flat, chosen = self._flat(raw, index)
        tables = self.wide_tables
        q = whitened(flat, chosen, tables)
        value, row = gauge(q.detach(), chosen, tables)
        w = steepest(q, row, chosen, tables.rows, self.curves)
        G = exactly(value, (w * q).sum(-1)).clamp(min=1e-8)
        log_radius = torch.log(torch.tanh(G) / G)
        others = _take(self.dimension, chosen) - 1
        across = others * log_radius
        log_det = across + log_slope(G) + _take(self.log_det, chosen)
        shape = self._shape(raw, index, 1)[:-1]
        total = log_det.to(self.precision.computing)
        return self(raw, index), total.reshape(shape)

    def _flat(self, raw: Tensor, index: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Raw values with a single batch axis, and without a term axis if there is one term only."""
        alone = len(self) == 1
        inner = raw.shape[-1:] if alone or index is not None else raw.shape[-2:]
        flat = raw.reshape(-1, *inner)
        if alone or index is None:
            return flat, None
        return flat, index.reshape(-1)

    def _shape(self, raw: Tensor, index: Tensor | None, width: int) -> tuple[int, ...]:
        if index is None:
            return (*raw.shape[:-2], len(self), width)
        return (*raw.shape[:-1], width)
