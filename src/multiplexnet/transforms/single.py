r"""Products in single precision: where the gauge map may use them, and what it takes off for them.

A layer whose values have at most the digits of float32 need not compute directions and rows in float64. What float32
loses in a row is known beforehand, at most ``(N + 6) 2⁻²⁴ |W_i|·|q|`` with N coefficients that are not 0: this is added
to the errors E of the row, and whatever is computed from then on is an upper bound again. The proof is in
``docs/understand/guarantee.md``.

The bound costs reach: a share of every slack. Where it would cost too much, and where numbers leave the range in which
float32 has relative errors, the products stay in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from multiplexnet.transforms.base import (
    LIMIT,
    is_forward_mode,
    is_transformed,
    wants_gradient,
)

__all__ = [
    "MOST_LOST",
    "float32_cut",
    "float32_tables",
    "is_single_now",
    "lost",
    "product",
]

UNIT32 = 2.0**-24
"""The relative error of one rounding in float32."""

OTHERS = 6
"""Roundings of a row besides those of its products: of W, of a sum, of the radius, of the point; and some to spare."""

SPARE = 1 + 2.0**-10
"""What the sum of all errors loses itself."""

MOST_LOST = 1e-3
"""The share of the slack that may be lost where a set is longest before products are made in float64."""

STEPS = 64
"""How many directions are looked at, each longer than the one before if possible."""

LARGEST_ROW = 2.0**100
"""Coefficients over slacks up to here, and down to 1 / LARGEST_ROW: with their errors they are normal numbers."""

FURTHEST32 = 2.0**124
"""No direction and no sum of products exceeds this."""

LEAST_CUT = 2.0**60
"""Raw values that are not larger than this are never cut."""

MOST_COLUMNS = 512
"""More outputs than this are not looked at: sums of thousands of numbers lose more than `SPARE` covers."""

LARGE = 2**22
"""Products of so many numbers are worth the call of another library."""

LEAST32 = 2.0**-126
"""The smallest normal number of float32."""


def float32_tables(
    tables: Mapping[str, Tensor], least_error: float
) -> dict[str, Tensor] | None:
    """The tables of a gauge map for products in float32; ``None`` where these may not be used.

    Args:
        tables: of float64 numbers, those of ``gauge_tables``.
        least_error: the smallest error of a row that is not 0.
    """
    rows = tables["rows"]
    added = added_errors(rows, tables["errors"])
    if not _in_range(rows, least_error) or lost(tables, added) > MOST_LOST:
        return None
    errors = (tables["errors"] + added) * SPARE
    # what is smaller than this keeps a point within a format that ends where `float32_cut` does not let it come
    errors = torch.where(errors < LEAST32, 0.0, errors)
    whiten = tables["whiten"].float()
    unwhiten = tables["unwhiten"]
    share = unwhiten @ whiten.double()
    correction = share.diagonal(dim1=1, dim2=2).sum(-1) - tables["dimension"]
    for _ in range(2):  # Newton's steps towards the inverse of what was rounded
        unwhiten = 2 * unwhiten - unwhiten @ whiten.double() @ unwhiten
    return {
        **tables,
        "whiten": whiten,
        "unwhiten": unwhiten,
        "rows": rows.float(),
        "errors": errors.float(),
        "log_det": tables["log_det"] + correction,
    }


def added_errors(rows: Tensor, errors: Tensor) -> Tensor:
    """What float32 may lose of the products of every row, ``(T, m, n)``; ``(T, 1, n)`` if all rows share one bound."""
    count = (rows != 0).sum(-1, keepdim=True)
    added = rows.abs() * ((count + OTHERS) * UNIT32)
    if errors.shape[1] > 1:
        return added
    return added.amax(1, keepdim=True)


def _in_range(rows: Tensor, least_error: float) -> bool:
    sizes = rows.abs()
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return False
    least = float(sizes.min())
    most = float(sizes.max())
    if rows.shape[-1] > MOST_COLUMNS or least_error < 2 * LEAST32:
        return False
    return least >= 1 / LARGEST_ROW and most <= LARGEST_ROW


def lost(tables: Mapping[str, Tensor], added: Tensor) -> float:
    """The share of the slack that the added errors take where the set is longest, as far as that is found.

    The longest direction has the least gauge. It is looked for among raw values of length 1, away from the mean of all
    rows and then, step by step, from the largest one, and among the axes of all rows. Infinite if a direction is found
    in which the set has no end.
    """
    whiten = tables["whiten"]
    slopes = tables["rows"] @ whiten
    units = torch.nn.functional.normalize(slopes, dim=-1)
    z = -units.mean(1)
    worst = _lost_along_axes(tables, added, slopes)
    for k in range(1, STEPS + 1):
        z = torch.nn.functional.normalize(z, dim=-1)
        direction = (whiten @ z.unsqueeze(-1)).abs()
        taken = (added @ direction).flatten(1).amax(-1)
        largest, row = (slopes @ z.unsqueeze(-1)).squeeze(-1).max(-1)
        worst = max(worst, _largest_share(taken, largest))
        steepest = units[torch.arange(len(units)), row]
        z = z - steepest / math.sqrt(k)
    return worst


def _lost_along_axes(
    tables: Mapping[str, Tensor], added: Tensor, slopes: Tensor
) -> float:
    """The same along the axes of ``Σ_i (W_i M)ᵀ (W_i M)``, to both sides: these find sets that are long and thin."""
    _, axes = torch.linalg.eigh(slopes.mT @ slopes)
    taken = (added @ (tables["whiten"] @ axes).abs()).amax(1)
    largest = (slopes @ axes).abs().amax(1)
    return _largest_share(taken, largest)


def _largest_share(taken: Tensor, largest: Tensor) -> float:
    """0 where nothing is taken."""
    return float((taken / largest).nan_to_num(0.0, posinf=math.inf).max())


def float32_cut(tables: Mapping[str, Tensor]) -> float:
    """Where raw values have to be cut so that no product leaves float32, a power of two; 0 if that is too near."""
    sums = tables["whiten"].double().abs().sum(-1, keepdim=True)
    sizes = tables["rows"].double().abs() + tables["errors"].double()
    most = max(1.0, float(sums.max()), float((sizes @ sums).max()))
    if not most < FURTHEST32:
        return 0.0
    cut = min(LIMIT, FURTHEST32 / 2.0 ** math.ceil(math.log2(most)))
    return cut if cut >= LEAST_CUT else 0.0


def is_single_now(values: Tensor) -> bool:
    """Whether torch makes products of float32 numbers in float32, no less, and will do so.

    Settings may allow fewer digits (``torch.set_float32_matmul_precision``). A graph that is recorded may be run under
    other settings, on another device and by other programs.
    """
    if not values.is_cpu or _is_recorded():
        return False
    return _allowed() in ("none", "ieee") and _keeps_digits()


def _allowed() -> str:
    """What ``torch.backends.mkldnn.matmul.fp32_precision`` says, which takes 8 µs; unknown where torch has changed."""
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)
    return "unknown" if getter is None else str(getter("mkldnn", "matmul"))


def _is_recorded() -> bool:
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return True
    modes = torch._C._TorchDispatchModeKey
    return any(
        torch._C._get_dispatch_mode(mode) is not None
        for mode in (modes.PROXY, modes.FAKE)
    )


@lru_cache
def _keeps_digits() -> bool:
    """Whether a product comes out with all its digits: libraries have settings of their own that allow fewer."""
    return _has_all_digits(torch.matmul)


def _has_all_digits(made: Callable[[Tensor, Tensor], Tensor]) -> bool:
    number = 1 + 2.0**-20
    numbers = torch.full((256, 256), number, dtype=torch.float32, device="cpu")
    one = torch.eye(256, dtype=torch.float32, device="cpu")
    return bool((made(numbers, one) == number).all()) and bool(
        (made(one, numbers) == number).all()
    )


# --- large products --------------------------------------------------------------------------------------------------


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right.mT``, ``(a, n)`` with ``(b, n) → (a, b)``.

    Large ones of float32 numbers that nothing records are made by oneDNN, which uses all of the registers of a
    processor where MKL does not (on those of AMD it takes half the time). Each sum is made of the same products.

    Example:
        >>> product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]]))
        tensor([[11., 17.]])
    """
    is_quick = (
        left.dtype is torch.float32
        and not is_transformed()
        and left.numel() * len(right) >= LARGE
        and not wants_gradient(left, right)
        and _is_quick_now(left)
    )
    return _by_onednn(left, right) if is_quick else left @ right.mT


def _is_quick_now(values: Tensor) -> bool:
    """Whether oneDNN may be asked, which neither graphs nor derivatives know of."""
    if is_forward_mode() or not is_single_now(values):
        return False
    return _onednn_keeps_digits()


@lru_cache
def _onednn_keeps_digits() -> bool:
    """Whether torch was built with oneDNN, and it makes products with all their digits."""
    try:
        return _has_all_digits(lambda a, b: _by_onednn(a, b.mT))
    except (AttributeError, RuntimeError):
        return False


def _by_onednn(left: Tensor, right: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(
        left, right, None, "none", [], ""
    )
    return found
