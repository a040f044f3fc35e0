"""What an array holds, of whatever kind it is: its shape and its numbers that are not zero.

Duplicates in a sparse array are added as exact numbers, not in its type, where ``100 + 100`` may be −56.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import SourceError
from multiplexnet.language.text import number_text
from multiplexnet.readers.decimals import (
    LONG,
    SURE_DIGITS,
    Array,
    Number,
    exact_numbers,
    is_long,
)

__all__ = ["Entries", "entries"]


@dataclass(frozen=True)
class Entries:
    """The numbers of an array that are not zero.

    Args:
        shape: the shape of the array.
        places: for every dimension the indices of the numbers, by growing place.
        numbers: the numbers there; those that are not finite are kept, for others to judge.
    """

    shape: tuple[int, ...]
    places: tuple[Array, ...]
    numbers: list[Number]


def entries(data: Any, name: str) -> Entries:
    """What an array holds.

    Args:
        data: an array of numpy, ``scipy.sparse`` or torch, or nested lists.
        name: what messages call it.

    Raises:
        SourceError: it is none of these, or a number is missing in it.
    """
    if isinstance(data, type):
        return _dense(data, name)
    if hasattr(data, "tocoo"):
        sparse = data.tocoo()
        own = sparse.coords if hasattr(sparse, "coords") else (sparse.row, sparse.col)
        return _added(sparse.shape, own, sparse.data)
    if hasattr(data, "detach"):
        return _of_tensor(data, name)
    return _dense(data, name)


# --- numpy and lists ------------------------------------------------------------------------------------------------


def _dense(data: Any, name: str) -> Entries:
    array = _array_of(data, name)
    if array.dtype.kind not in "biufO":
        raise SourceError(
            f"{name} holds values of type {array.dtype}: numbers are needed"
        )
    _refuse_masked(data, name)
    places = np.nonzero(np.atleast_1d(_is_not_zero(array)))
    return Entries(array.shape, places, exact_numbers(np.atleast_1d(array)[places]))


def _array_of(data: Any, name: str) -> Array:
    if isinstance(data, np.ndarray):
        return np.asarray(data)
    if isinstance(data, list | tuple):
        data = [_values_of(row) for row in data]
    try:
        objects = np.array(data, dtype=object)
    except (ValueError, TypeError, RuntimeError) as error:
        raise SourceError(f"{name} is not an array: {error}") from None
    if any(_is_list(value) for value in objects.flat):
        raise SourceError(f"{name} is not an array: its rows are not all of one length")
    return objects


def _values_of(row: Any) -> Any:
    """The values of an array as they are: numpy would widen them, and uncover those that are masked."""
    return list(row) if isinstance(row, np.ndarray) and row.ndim else row


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and value is not np.ma.masked


def _refuse_masked(data: Any, name: str) -> None:
    if np.ma.is_masked(data):
        place = np.argwhere(np.ma.getmaskarray(data))[0].tolist()
        where = ", ".join(map(str, place))
        raise SourceError(f"{name}[{where}] is missing: a finite number is needed")


def _is_not_zero(array: Array) -> NDArray[np.bool_]:
    """Where something stands; what is no number is not zero, even if it is false, as ``None`` is."""
    if array.dtype != object:
        return np.not_equal(array, 0)
    found = [
        bool(value) if isinstance(value, Real | Decimal | np.bool_) else True
        for value in array.flat
    ]
    return np.array(found, dtype=bool).reshape(array.shape)


# --- sparse ---------------------------------------------------------------------------------------------------------


def _added(shape: Sequence[int], places: Sequence[Array], values: Array) -> Entries:
    """Entries from numbers in any order, those of one place added exactly.

    Truth values have no sum: of these one stands for all that are true.
    """
    values = np.asarray(values)
    order = np.lexsort(tuple(places)[::-1])
    order = order[values[order] != 0]
    values = values[order]
    own = tuple(np.asarray(axis)[order] for axis in places)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = np.any([axis[1:] != axis[:-1] for axis in own], axis=0)
    numbers = exact_numbers(values)
    if not is_first.all():
        add = max if values.dtype == bool else _sum
        ends = [*np.flatnonzero(is_first).tolist(), len(numbers)]
        sums = [add(numbers[start:stop]) for start, stop in pairwise(ends)]
        kept = np.array([number != 0 for number, _ in sums], dtype=bool)
        own = tuple(axis[is_first][kept] for axis in own)
        numbers = [pair for pair in sums if pair[0] != 0]
    return Entries(tuple(shape), own, numbers)


def _sum(numbers: Sequence[Number]) -> Number:
    if len(numbers) == 1:
        return numbers[0]
    total = Fraction(0)
    for number, text in numbers:
        if number is None:
            return None, text
        total += number
    return (None, LONG) if is_long(total) else (total, number_text(total))


# --- tensors --------------------------------------------------------------------------------------------------------


def _of_tensor(data: Any, name: str) -> Entries:
    if reason := _without_numbers(data):
        raise SourceError(f"{name} is {reason}")
    try:
        tensor = data.detach().cpu().resolve_conj().resolve_neg()
        if str(tensor.layout).startswith("torch.sparse"):
            return _of_sparse_tensor(tensor)
        array = _values(tensor.to_dense())
    except (RuntimeError, TypeError, ValueError) as error:
        found = str(error).partition("\n")[0]
        raise SourceError(
            f"{name} is a tensor that cannot be read ({found}): give one of numbers, on the CPU"
        ) from None
    return _dense(array, name)


def _without_numbers(tensor: Any) -> str | None:
    """Why this tensor cannot be read, and what to do."""
    if tensor.is_meta:
        return "a tensor on the device meta, without numbers: give one that has them, on the CPU, say"
    if tensor.is_quantized:
        return "a quantized tensor: give plain numbers, as from .dequantize()"
    if tensor.is_nested:
        return "a nested tensor, whose rows need not be of one length: give a plain one, as from torch.stack(list(…))"
    return None


def _of_sparse_tensor(tensor: Any) -> Entries:
    tensor = tensor.to_sparse_coo()
    places = tuple(tensor._indices().numpy())
    values = _values(tensor._values())
    if values.ndim > 1:  # the last dimensions are dense
        inner = np.indices(values.shape[1:]).reshape(values.ndim - 1, -1)
        count = len(values)
        outer = [np.repeat(axis, inner.shape[1]) for axis in places]
        places = (*outer, *(np.tile(axis, count) for axis in inner))
    return _added(tensor.shape, places, values.reshape(-1))


def _values(tensor: Any) -> Array:
    """A dense tensor as numpy's array, whose floats are printed as the decimals that they stand for."""
    is_short = tensor.is_floating_point() and tensor.element_size() < 4
    if is_short and str(tensor.dtype) != "torch.float16":
        return _decimals(tensor)
    array: Array = tensor.numpy()
    return array


def _decimals(tensor: Any) -> NDArray[np.float64]:
    """A format that numpy does not have, as float64: every number rounded to as few digits as are read as it.

    The bfloat16 nearest to 0.1 is 0.10009765625; it stands for 0.1.
    """
    wide = tensor.double()
    values, which = np.unique(wide.numpy(), return_inverse=True)
    left = np.isfinite(values)
    found = values.copy()
    for digits in range(SURE_DIGITS):
        tried = np.array([float(f"{value:.{digits}e}") for value in values])
        again = wide.new_tensor(tried).to(tensor.dtype).double().numpy()
        fits = left & (again == values)
        found[fits] = tried[fits]
        left &= ~fits
        if not left.any():
            break
    return found[which].reshape(tuple(tensor.shape))
