"""Rules from arrays: ``A x <= b`` and ``C x == d``, however many rows and columns, without a text in between.

A float stands for the decimal that Python prints for it, as it would in a text: ``0.1`` is one tenth. Whole numbers,
fractions and decimals are what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import SourceError
from multiplexnet.language.formula import Atom, Linear, Rule, Specification, Variable
from multiplexnet.language.parser.values import MOST_BITS, MOST_DIGITS
from multiplexnet.language.text import number_text, variable_text
from multiplexnet.readers.names import output_names

__all__ = ["from_arrays"]

Array = NDArray[Any]
LONG = f"a number of more than {MOST_DIGITS:,} digits"
SURE_DIGITS = 15
"""Two decimals of at most so many digits are never read as the same float64."""


def from_arrays(A: Any, b: Any, C: Any, d: Any, names: Any) -> Specification:
    """The specification of ``A x <= b`` and ``C x == d`` (see :meth:`multiplexnet.rules.Rules.from_arrays`)."""
    systems = [
        _system(A, b, ("A", "b"), "<="),
        _system(C, d, ("C", "d"), "=="),
    ]
    given = [system for system in systems if system is not None]
    if not given:
        raise SourceError(
            "neither A and b nor C and d were given: there are no rows to obey"
        )
    width = _common_width(given)
    listed = not (names is None or isinstance(names, str))
    outputs = tuple(
        Variable(name, i, whole=listed and bool(Variable(name, i).place[1]))
        for i, name in enumerate(output_names(names, width))
    )
    rules = [rule for system in given for rule in system.rules(outputs)]
    return Specification(outputs, tuple(rules))


# --- systems of rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """Rows ``matrix x relation bounds``, the matrix without its zeros.

    Args:
        matrix: the name of the matrix in messages.
        width: its columns.
        starts: row i has the entries from ``starts[i]`` to ``starts[i + 1]``, by growing column.
        columns: the column of every entry.
        entries: every entry as an exact number, with its text.
        bounds: for every row its right side; ``None`` bounds nothing.
        relation: between the two.
    """

    matrix: str
    width: int
    starts: Array
    columns: Array
    entries: list[tuple[Fraction, str]]
    bounds: list[tuple[Fraction, str] | None]
    relation: Literal["<=", "=="]

    def rules(self, outputs: Sequence[Variable]) -> Iterator[Rule]:
        """One rule a row; a row whose bound is infinite says nothing and is left out."""
        starts = self.starts.tolist()
        symbols = [outputs[j] for j in self.columns.tolist()]
        written = {symbol: variable_text(symbol) for symbol in outputs}
        for i, bound in enumerate(self.bounds):
            if bound is None:
                continue
            own = slice(starts[i], starts[i + 1])
            number, text = bound
            entries = self.entries[own]
            summands = tuple(
                (symbol, c)
                for symbol, (c, _) in zip(symbols[own], entries, strict=True)
            )
            left = _sum_text([written[symbol] for symbol in symbols[own]], entries)
            atom = Atom(Linear(summands, -number), self.relation)
            yield Rule(atom, f"{left} {self.relation} {text}")


def _sum_text(names: Sequence[str], entries: Sequence[tuple[Fraction, str]]) -> str:
    parts: list[str] = []
    for name, (_, text) in zip(names, entries, strict=True):
        size = text.removeprefix("-")
        parts.append("- " if text is not size else "+ ")
        parts.append(name if size == "1" else f"{size}*{name}")
        parts.append(" ")
    if not parts:
        return "0"
    parts[0] = parts[0].strip("+ ")
    return "".join(parts[:-1])


def _system(
    matrix: Any, bounds: Any, names: tuple[str, str], relation: Literal["<=", "=="]
) -> _System | None:
    left, right = names
    if matrix is None and bounds is None:
        return None
    if matrix is None or bounds is None:
        absent, present = (left, right) if matrix is None else (right, left)
        raise SourceError(
            f"{present} was given without {absent}: the rows are {left} x {relation} {right}"
        )
    height, width, rows, columns, values = _entries(matrix, left)
    side = _dense(bounds, right)
    if side.shape != (height,):
        raise SourceError(
            f"{right} has shape {side.shape}; {left} has {height} rows, so {right} needs shape ({height},)"
        )
    starts = np.searchsorted(rows, np.arange(height + 1))
    places = list(zip(rows.tolist(), columns.tolist(), strict=True))
    return _System(
        left,
        width,
        starts,
        columns,
        [
            _finite(pair, left, place)
            for pair, place in zip(_numbers(values), places, strict=True)
        ],
        _bounds(side, right, relation),
        relation,
    )


def _common_width(systems: Sequence[_System]) -> int:
    first, *others = systems
    for other in others:
        if other.width != first.width:
            raise SourceError(
                f"{first.matrix} has {first.width} columns and {other.matrix} has {other.width}: "
                "both need one column for every output"
            )
    if not first.width:
        raise SourceError(
            f"{first.matrix} has no columns: it needs one for every output"
        )
    return first.width


def _bounds(side: Array, name: str, relation: str) -> list[tuple[Fraction, str] | None]:
    found: list[tuple[Fraction, str] | None] = []
    for i, (number, text) in enumerate(_numbers(side)):
        if text in ("inf", "infinity") and relation == "<=":
            found.append(None)
        else:
            found.append(_finite((number, text), name, (i,)))
    return found


def _finite(
    pair: tuple[Fraction | None, str], name: str, place: tuple[int, ...]
) -> tuple[Fraction, str]:
    number, text = pair
    if number is None:
        where = ", ".join(map(str, place))
        advice = "scale its row" if text == LONG else "a finite number is needed"
        raise SourceError(f"{name}[{where}] is {text}: {advice}")
    return number, text


# --- arrays of any kind ---------------------------------------------------------------------------------------------


def _entries(matrix: Any, name: str) -> tuple[int, int, Array, Array, Array]:
    """Height, width, and of every entry that is not zero its row, column and value, row by row."""
    if hasattr(matrix, "tocsr"):  # scipy.sparse
        sparse = matrix.tocsr().copy()
        sparse.sum_duplicates()
        sparse.eliminate_zeros()
        sparse.sort_indices()
        height, width = sparse.shape
        rows = np.repeat(np.arange(height), np.diff(sparse.indptr))
        return height, width, rows, np.asarray(sparse.indices), np.asarray(sparse.data)
    array = _dense(matrix, name)
    if array.ndim != 2:
        raise SourceError(
            f"{name} has shape {array.shape}: it needs two dimensions, one row a rule and one column an output"
        )
    rows, columns = np.nonzero(array)
    return array.shape[0], array.shape[1], rows, columns, array[rows, columns]


def _dense(data: Any, name: str) -> Array:
    if hasattr(
        data, "detach"
    ):  # a tensor; numpy has no bfloat16, and float32 holds its numbers
        tensor = data.detach().cpu().to_dense()
        is_short = tensor.is_floating_point() and tensor.element_size() < 4
        array = np.asarray(tensor.float() if is_short else tensor)
    else:
        array = _array_of(data, name)
    if array.dtype.kind not in "biufO":
        raise SourceError(
            f"{name} holds values of type {array.dtype}: numbers are needed"
        )
    return array


def _array_of(data: Any, name: str) -> Array:
    if isinstance(data, np.ndarray):
        return data
    try:
        objects = np.array(data, dtype=object)
    except ValueError as error:
        raise SourceError(f"{name} is not an array: {error}") from None
    if any(isinstance(value, list | tuple | np.ndarray) for value in objects.flat):
        raise SourceError(f"{name} is not an array: its rows are not all of one length")
    return objects


# --- exact numbers --------------------------------------------------------------------------------------------------


def _numbers(values: Array) -> list[tuple[Fraction | None, str]]:
    """The numbers of a flat array, exactly, each with its text; ``None`` where it is not finite."""
    if values.dtype != np.float64:
        return (
            [_number(value) for value in values.tolist()]
            if values.dtype.kind in "biu"
            else [_number(value) for value in values]
        )
    known: dict[float, tuple[Fraction | None, str]] = {}
    digits, places = _decimals(values)
    for value, m, k in zip(
        values.tolist(), digits.tolist(), places.tolist(), strict=True
    ):
        if value not in known:
            known[value] = (
                _number(value) if k < 0 else (Fraction(m, 10**k), _text(value))
            )
    return [
        known[value] if value == value else (None, "nan") for value in values.tolist()
    ]


def _decimals(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``digits`` and ``places`` with value = digits / 10^places; −1 places where it takes more than sure digits.

    A decimal of at most :data:`SURE_DIGITS` digits that is read as the value is the one that Python prints for it.
    """
    digits = np.zeros(values.shape, dtype=np.int64)
    places = np.full(values.shape, -1, dtype=np.int64)
    left = np.isfinite(values) & (np.abs(values) < 10.0**SURE_DIGITS)
    for k in range(SURE_DIGITS + 1):
        scaled = np.rint(np.where(left, values, 0.0) * 10.0**k)
        fits = (
            left & (np.abs(scaled) < 10.0**SURE_DIGITS) & (scaled / 10.0**k == values)
        )
        digits[fits] = scaled[fits].astype(np.int64)
        places[fits] = k
        left &= ~fits
        if not left.any():
            break
    return digits, places


def _number(value: Any) -> tuple[Fraction | None, str]:
    if isinstance(value, bool | np.bool_):
        value = int(value)
    if _is_long(value):
        return None, LONG
    if isinstance(value, Integral):
        return Fraction(int(value)), str(int(value))
    if isinstance(value, Rational):
        number = Fraction(value)
        return number, number_text(number)
    if isinstance(value, float | np.floating):
        return (Fraction(str(value)) if np.isfinite(value) else None), _text(value)
    if isinstance(value, Decimal):
        return (Fraction(value) if value.is_finite() else None), _text(value)
    return None, f"a value of type {type(value).__name__}"


def _is_long(value: Any) -> bool:
    """Whether an exact number has more digits than rules may have."""
    if isinstance(value, Rational):
        parts = (int(value.numerator), int(value.denominator))
        most: int = MOST_BITS
        return max(part.bit_length() for part in parts) > most
    if not isinstance(value, Decimal) or not value.is_finite():
        return False
    size = max(len(value.as_tuple().digits), abs(value.adjusted()))
    return size > MOST_DIGITS


def _text(value: Any) -> str:
    return str(value).removesuffix(".0").lower()
