"""Exact verdicts: whether each row obeys the rules, its floats read as exact rational numbers, and how far off it is.

There is no tolerance: ``x + y == 0.3`` means three tenths, which no sum of two floats is. Formulas are evaluated in
:mod:`multiplexnet.verdicts.evaluation`, on arithmetic from :mod:`multiplexnet.verdicts.columns`; this
module takes arrays and tensors apart and puts the answers together. Only the few rows that float64 cannot decide cost
more than a few array operations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import DtypeError, InputError, ShapeError
from multiplexnet.language.formula import (
    Formula,
    Specification,
    Variable,
    nearest_to_zero,
)
from multiplexnet.verdicts.columns import Column, Floats, is_exact_in_float64, widened
from multiplexnet.verdicts.evaluation import (
    Bools,
    ExactRows,
    Functions,
    amount,
    in_domain,
    truth,
)
from multiplexnet.verdicts.numbers import (
    Exact,
    array_of,
    is_tensor,
    numbers_of,
    refuse_unlisted,
)
from multiplexnet.verdicts.units import has_unit, steps_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["allowed", "satisfied", "verdict", "violation", "violations"]

Values = TypeVar("Values", "Tensor", NDArray[Any])

CHUNK = 1 << 16  # rows at a time: a few columns of them stay in the cache


# --- arrays ---------------------------------------------------------------------------------------------------------


def _chunks(
    columns: Mapping[Variable, Exact], functions: Functions | None, length: int
) -> Iterator[tuple[slice, ExactRows, Bools]]:
    """Rows in chunks (one, if there are functions: they see the batch as it came), and where all values are finite."""
    step = max(length, 1) if functions else CHUNK
    for start in range(0, length, step):
        here = slice(start, start + step)
        finite = np.ones(min(step, length - start), dtype=np.bool_)
        for column in columns.values():
            if column.dtype != object:
                finite &= np.isfinite(column[here].astype(np.float64, copy=False))
        exact = {v: _column(column[here], finite) for v, column in columns.items()}
        yield here, ExactRows(exact, functions, len(finite)), finite


def _column(numbers: Exact, finite: Bools) -> Column:
    """Some rows of exact numbers, with 0 where they are not finite."""
    if numbers.dtype == object and len({id(number) for number in numbers}) == 1:
        return Column.constant(numbers[0], len(numbers))
    if numbers.dtype == object:
        odd = {i: number for i, number in enumerate(numbers.tolist()) if finite[i]}
        return Column((np.zeros(len(numbers)),), odd=odd)
    floats = cast(Floats, numbers)
    return Column.floats(floats if finite.all() else np.where(finite, floats, 0.0))


def satisfied(
    formula: Formula,
    columns: Mapping[Variable, Floats],
    functions: Functions | None = None,
) -> Bools:
    """Whether the formula holds, row by row; a row with NaN or an infinity never does.

    Args:
        formula: any formula.
        columns: a float64 array of shape (N,) for every variable of the formula.
        functions: for each opaque function a callable on float64 arrays; what it returns is read as exact.

    Example:
        >>> from fractions import Fraction
        >>> from multiplexnet.language.formula import Atom, Linear
        >>> x, y = Variable("x", 0), Variable("y", 1)
        >>> rule = Atom(Linear.of(x) + Linear.of(y) - Fraction(3, 10), "<=")      # x + y <= 0.3
        >>> satisfied(rule, {x: np.array([0.1, 0.1]), y: np.array([0.2, 0.1])})   # the floats are just above
        array([False,  True])
    """
    length = len(next(iter(columns.values()))) if columns else 0
    result = np.zeros(length, dtype=np.bool_)
    for here, rows, finite in _chunks(columns, functions, length):
        result[here] = truth(formula, rows) & finite
    return result


def violation(
    formula: Formula,
    columns: Mapping[Variable, Floats],
    functions: Functions | None = None,
) -> Floats:
    """How far each row is from obeying the formula (:mod:`multiplexnet.verdicts.evaluation`); NaN: infinitely far.

    It is 0 exactly where :func:`satisfied` is true. Other values are float64, good to the rounding of their terms.

    Example:
        >>> from multiplexnet.language.formula import Atom, Linear
        >>> x = Variable("x", 0)
        >>> violation(Atom(Linear.of(x) - 2, "<"), {x: np.array([1.0, 5.0, np.nan])})     # x < 2
        array([ 0.,  3., inf])
    """
    length = len(next(iter(columns.values()))) if columns else 0
    result = np.zeros(length)
    for here, rows, finite in _chunks(columns, functions, length):
        result[here] = np.where(finite, amount(formula, rows), inf)
    return result


# --- tensors --------------------------------------------------------------------------------------------------------


def verdict(
    specification: Specification,
    x: Values,
    inputs: Mapping[str, Any] | None = None,
    functions: Functions | None = None,
) -> Values:
    """Whether each output obeys every rule, with tolerance zero.

    Args:
        specification: the rules.
        x: outputs, shape ``(*batch, D)``: a floating tensor or array, read as exact numbers.
        inputs: a value for each input: a number (of Python or numpy, a Fraction, a Decimal), or a tensor, array or
            list of numbers that broadcasts to ``(*batch,)``; all of them are read as exact. An input that has a unit
            comes in whole numbers of it. Declared ranges of inputs and assumptions are not judged here, but by
            :func:`allowed`.
        functions: a callable for each opaque function; it gets tensors (arrays) of x's dtype and shape ``(*batch,)``.

    Returns:
        Booleans of shape ``(*batch,)``, on x's device. False too for NaN, infinities, and discrete
        outputs with a value outside their domain. In a column that may be missing NaN says that it is.

    Raises:
        ShapeError: the last dimension is not D, or an input does not fit the batch.
        DtypeError: x of integers, complex numbers or extended floats; an input of the latter two.
        InputError: an input or a function is missing, not one of the rules, or an input is not a finite number.

    Example:
        >>> from multiplexnet.language.formula import Atom, Linear, Rule
        >>> a = Variable("a", 0)
        >>> rules = Specification((a,), (Rule(Atom(-Linear.of(a), "<="), "a >= 0"),))
        >>> verdict(rules, np.array([[1.0], [-0.5]]))
        array([ True, False])
    """
    given = _FlatColumns.of(specification, x, inputs or {}, functions or {})
    result = np.ones(given.length, dtype=np.bool_)
    for here, rows, finite in given.chunks():
        result[here] = _obeying(specification, rows) & finite
    return cast(Values, given.like_x(result.reshape(given.batch)))


def allowed(
    specification: Specification,
    inputs: Mapping[str, Any],
    batch: tuple[int, ...] | None = None,
) -> Bools:
    """Whether the inputs of each row lie in their declared ranges and keep the assumptions, exactly.

    Args:
        specification: the rules.
        inputs: as for :func:`verdict`.
        batch: the shape of the answer; by default the one to which all inputs broadcast.

    Example:
        >>> from multiplexnet.language.parser.parse import parse
        >>> rules = parse("low: input; high: input; x: real; assume low <= high; low <= x <= high")
        >>> allowed(rules, {"low": np.array([0.0, 2.0]), "high": 1})
        array([ True, False])
    """
    if batch is None:
        shapes = (_input(value, name).shape for name, value in inputs.items())
        batch = np.broadcast_shapes(*shapes)
    columns = _input_columns(specification.inputs, inputs, batch)
    length = int(np.prod(batch, dtype=np.int64))
    result = np.ones(length, dtype=np.bool_)
    for here, rows, finite in _chunks(columns, None, length):
        result[here] = finite & truth(specification.assumed, rows)
        for variable in specification.inputs:
            result[here] &= in_domain(variable, rows, ranges=True)
    return result.reshape(batch)


def violations(
    specification: Specification,
    x: Values,
    inputs: Mapping[str, Any] | None = None,
    functions: Functions | None = None,
) -> Values:
    """How far each output is from obeying each rule: float64 of shape ``(*batch, number of rules)``.

    Arguments are those of :func:`verdict`; 0 means obeyed. Rows with NaN, infinities or a discrete output outside its
    domain are infinitely far from every rule, so that a row obeys exactly when all its violations are 0.

    Example:
        >>> from multiplexnet.language.formula import Atom, Linear, Rule
        >>> a = Variable("a", 0)
        >>> rules = Specification((a,), (Rule(Atom(-Linear.of(a), "<="), "a >= 0"),))
        >>> violations(rules, np.array([[1.0], [-0.5]]))
        array([[0. ],
               [0.5]])
    """
    given = _FlatColumns.of(specification, x, inputs or {}, functions or {})
    result = np.zeros((given.length, len(specification.rules)))
    for here, rows, finite in given.chunks():
        inside = finite & _inside(specification, rows)
        for k, rule in enumerate(specification.rules):
            result[here, k] = np.where(inside, amount(rule.formula, rows), inf)
    return cast(
        Values, given.like_x(result.reshape(*given.batch, len(specification.rules)))
    )


def _inside(specification: Specification, rows: ExactRows) -> Bools:
    discrete = (v for v in specification.variables if v.is_discrete)
    return reduce(
        np.logical_and,
        (in_domain(v, rows) for v in discrete),
        np.ones(rows.length, dtype=np.bool_),
    )


def _obeying(specification: Specification, rows: ExactRows) -> Bools:
    return _inside(specification, rows) & truth(specification.formula, rows)


@dataclass(frozen=True)
class _FlatColumns:
    """Outputs and inputs as flat float64 columns, and what is needed to hand the answer back in kind."""

    x: Any
    batch: tuple[int, ...]
    columns: Mapping[Variable, Exact]
    functions: Functions

    @staticmethod
    def of(
        specification: Specification,
        x: Any,
        inputs: Mapping[str, Any],
        functions: Functions,
    ) -> _FlatColumns:
        outputs = specification.columns
        array = _float64(x, "x")
        if array.ndim == 0 or array.shape[-1] != len(outputs):
            names = ", ".join(v.name for v in outputs[:8]) + (
                ", …" if len(outputs) > 8 else ""
            )
            raise ShapeError(
                f"x has shape {tuple(array.shape)}; the rules have {len(outputs)} outputs ({names}), "
                f"so its last dimension must be {len(outputs)}"
            )
        batch = array.shape[:-1]
        flat = {
            v: np.ascontiguousarray(array[..., i]).reshape(-1)
            for i, v in enumerate(outputs)
        }
        flat |= {
            v: steps_of(own, v, _format(x)) for v, own in flat.items() if has_unit(v)
        }
        columns: dict[Variable, Exact] = {
            **flat,
            **_present(specification, flat),
            **_input_columns(specification.inputs, inputs, batch),
        }
        if unknown := [
            name for name in functions if name not in specification.functions
        ]:
            raise InputError(f"{unknown[0]!r} is not a function of the rules")
        return _FlatColumns(
            x,
            batch,
            columns,
            {name: _on_batch(f, x, batch) for name, f in functions.items()},
        )

    @property
    def length(self) -> int:
        return int(np.prod(self.batch, dtype=np.int64))

    def chunks(self) -> Iterator[tuple[slice, ExactRows, Bools]]:
        return _chunks(self.columns, self.functions, self.length)

    def like_x(self, result: NDArray[Any]) -> Any:
        return _torch_like(result, self.x) if is_tensor(self.x) else result


def _format(x: Any) -> str:
    """The name of its dtype."""
    return (
        str(x.dtype).removeprefix("torch.")
        if is_tensor(x)
        else str(np.asarray(x).dtype.name)
    )


def _present(
    specification: Specification, columns: Mapping[Variable, Floats]
) -> dict[Variable, Exact]:
    """The columns that may be missing, with a number in place of NaN, and their flags."""
    found: dict[Variable, Exact] = {}
    for variable, flag in specification.flags.items():
        column = columns[variable]
        missing = np.isnan(column)
        found[variable] = _filled(column, missing, nearest_to_zero(variable.domain))
        # infinite numbers are none in a column of fractions; a flag that is NaN tells of them
        found[flag] = np.where(np.isinf(column), np.nan, missing)
    return found


def _filled(column: Floats, missing: Bools, number: Fraction) -> Exact:
    """The column with this number where it is missing: as fractions, if it is not a number of float64."""
    if is_exact_in_float64(number) or not missing.any():
        return np.where(missing, float(number), column)
    filled = np.full(len(column), number, dtype=object)
    for i in np.flatnonzero(np.isfinite(column)):
        filled[i] = Fraction(float(column[i]))
    return cast(Exact, filled)


def _input_columns(
    declared: tuple[Variable, ...], given: Mapping[str, Any], batch: tuple[int, ...]
) -> dict[Variable, Exact]:
    names = [v.name for v in declared]
    if unknown := [name for name in given if name not in names]:
        known = ", ".join(names) or "none"
        raise InputError(
            f"{unknown[0]!r} is not an input of the rules (their inputs: {known})"
        )
    if missing := [name for name in names if name not in given]:
        raise InputError(
            f"the rules need a value for {', '.join(missing)}: pass {missing[0]}=…"
        )
    return {
        v: _broadcast(_input(given[v.name], v.name), batch, v.name) for v in declared
    }


def _input(value: Any, name: str) -> Exact:
    is_floating = is_tensor(value) and value.is_floating_point()
    return _float64(value, name) if is_floating else numbers_of(value, name)


def _broadcast(array: Exact, batch: tuple[int, ...], name: str) -> Exact:
    try:
        return cast(Exact, np.broadcast_to(array, batch).reshape(-1))
    except ValueError:
        raise ShapeError(
            f"input {name} has shape {array.shape}; one value for each row of x means shape {batch} (or one number)"
        ) from None


def _float64(x: Any, name: str) -> Floats:
    """The same numbers in float64; every dtype that could round is refused."""
    refuse_unlisted(name, x)
    if is_tensor(x):
        if not x.is_floating_point():
            raise DtypeError(
                f"{name} has dtype {x.dtype}: give floats, for example {name}.double()"
            )
        return widened(array_of(x))
    try:
        array = np.asarray(x)
    except ValueError:
        raise ShapeError(
            f"{name} is a list whose parts have different lengths: give rows of the same length"
        ) from None
    if array.dtype not in (np.float64, np.float32, np.float16):
        raise DtypeError(
            f"{name} has dtype {array.dtype}: give floats, for example np.asarray({name}, dtype=float)"
        )
    return widened(array)


def _torch_like(array: NDArray[Any], x: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.as_tensor(array, device=x.device)


def _on_batch(
    function: Callable[..., Any], x: Any, batch: tuple[int, ...]
) -> Callable[..., Floats]:
    """The function between flat float64 arrays, called as the network calls it: x's dtype, device and batch shape."""

    def flat(*arguments: Floats) -> Floats:
        if is_tensor(x):
            given = [_torch_like(a.reshape(batch), x).to(x.dtype) for a in arguments]
        else:
            given = [a.reshape(batch).astype(x.dtype) for a in arguments]
        return _float64(function(*given), "the function's result").reshape(-1)

    return flat
