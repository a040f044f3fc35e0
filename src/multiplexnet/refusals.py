"""What a layer refuses at run time, and how it says so: inputs out of range, rows without room, lost values.

Verdicts on tensors can only be acted on where their values can be looked at: not while a graph is recorded, not under
``vmap``, not without data on the meta device. There the row comes out as NaN, which is no output that breaks a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn

from multiplexnet.compiler.cascade import Cascade
from multiplexnet.errors import DtypeError, InputError, RecordError, ShapeError
from multiplexnet.geometry.magnitudes import down, up
from multiplexnet.logic.formula import Real, Variable
from multiplexnet.logic.terms import Compiled
from multiplexnet.logic.text import number_text

__all__ = [
    "checked_function",
    "refuse_changed",
    "refuse_lost",
    "refuse_out_of_range",
    "refuse_roomless",
    "refuse_stuck",
    "refuse_uncovered",
    "refuse_unknown_functions",
]

Function = Callable[..., Tensor]


def _anywhere(mask: Tensor) -> bool:
    """Whether the mask holds somewhere, as far as that can be known."""
    if torch.compiler.is_compiling():
        return False
    try:
        return bool(mask.any())
    except RuntimeError:  # vmap, the meta device
        return False


def _rows_where(mask: Tensor) -> str:
    """The first rows where the mask holds, as text."""
    rows = [tuple(row) for row in mask.nonzero()[:5].tolist()]
    if not rows[0]:
        return "the only row"
    text = ", ".join(str(row[0] if len(row) == 1 else row) for row in rows)
    more = int(mask.sum()) - len(rows)
    return f"row {text}" if len(rows) == 1 else f"rows {text}" + (f" and {more} more" if more > 0 else "")


# --- inputs ---------------------------------------------------------------------------------------------------------


def refuse_uncovered(compiled: Compiled) -> None:
    """Raises ``InputError`` if some inputs in their declared range leave no output; asks z3."""
    if not compiled.inputs:
        return
    from multiplexnet.logic.diagnose import uncovered_input

    found = uncovered_input(compiled)
    if found is not None:
        point = ", ".join(f"{variable.name} = {value}" for variable, value in found)
        raise InputError(
            f"for {point} no output obeys the rules: declare narrower ranges, as in `limit: input[0, 100]`, "
            "or relax the rules"
        )


def refuse_out_of_range(variable: Variable, values: Tensor) -> Tensor:
    """The values of an input, NaN where they lie outside its domain and that could not be raised as ``InputError``."""
    outside = ~_inside(variable, values)
    if _anywhere(outside):
        raise InputError(
            f"input {variable.name} is outside its declared range {_range(variable)} in {_rows_where(outside)}"
        )
    return values.masked_fill(outside, torch.nan)


def _inside(variable: Variable, values: Tensor) -> Tensor:
    """Compared exactly: with the float64 numbers next to the ends, on the inside."""
    wide, domain = values.double(), variable.domain
    inside = values.isfinite()
    if not isinstance(domain, Real):
        inside = inside & (wide == wide.round())
    lower, upper = _ends(variable)
    if lower is not None:
        inside = inside & (wide >= up(lower))
    if upper is not None:
        inside = inside & (wide <= down(upper))
    return inside


def _ends(variable: Variable) -> tuple[Fraction | None, Fraction | None]:
    domain = variable.domain
    if isinstance(domain, Real):
        return domain.lower, domain.upper
    return Fraction(domain.values.start), Fraction(domain.values.stop - 1)


def _range(variable: Variable) -> str:
    lower, upper = _ends(variable)
    low, high = "-inf" if lower is None else number_text(lower), "inf" if upper is None else number_text(upper)
    return f"[{low}, {high}]" if isinstance(variable.domain, Real) else f"{{{low}, …, {high}}}"


def refuse_roomless(feasible: Tensor, inputs: Sequence[Variable], dtype: torch.dtype) -> None:
    """Raises ``InputError`` for rows in which no term can be met; ``feasible`` is ``(*batch, K)``."""
    nothing = ~feasible.any(-1)
    if _anywhere(nothing):
        raise InputError(
            f"for these values of {', '.join(v.name for v in inputs)} no term leaves room between the floats of "
            f"{str(dtype).removeprefix('torch.')}: {_rows_where(nothing)}"
        )


def refuse_stuck(stuck: Tensor, cascade: Cascade, inputs: Sequence[Variable], dtype: torch.dtype) -> None:
    """Raises ``InputError`` for rows whose inputs leave a cascade without any output."""
    if _anywhere(stuck):
        finest = min(cascade.spacing[: len(cascade.visible)])
        raise InputError(
            f"for these values of {', '.join(v.name for v in inputs)} no point of the grid obeys: "
            f"{_rows_where(stuck)}. In {str(dtype).removeprefix('torch.')} the outputs are multiples of "
            f"{float(finest):g} or more (mux.resolution); an input that they have to add up to has to be one, too: "
            "round it with mux.on_grid(…)"
        )


# --- opaque functions -----------------------------------------------------------------------------------------------


def refuse_unknown_functions(wanted: Sequence[str], functions: Mapping[str, Function]) -> None:
    """Raises ``InputError`` unless there is code for exactly the functions of the rules."""
    missing = [name for name in wanted if name not in functions]
    if missing:
        raise InputError(f"the rules use {missing[0]!r}: give it as functions={{{missing[0]!r}: …}}")
    unknown = [name for name in functions if name not in wanted]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no function of the rules (they declare: {', '.join(wanted) or 'none'})")


def checked_function(name: str, function: Function) -> Function:
    """The function, which raises unless it returns one number of the same dtype for every row.

    Autocast is off while it runs: the rules hold for the function as evaluated in the dtype of the layer.
    """

    def checked(*arguments: Tensor) -> Tensor:
        first = arguments[0]
        if first.device.type != "meta" and torch.is_autocast_enabled(first.device.type):
            with torch.autocast(first.device.type, enabled=False):
                value = function(*arguments)
        else:
            value = function(*arguments)
        if not isinstance(value, Tensor):
            raise InputError(f"the function {name!r} returned {type(value).__name__}; it must return a tensor")
        if value.shape != first.shape:
            raise ShapeError(
                f"the function {name!r} returned shape {tuple(value.shape)} for arguments of shape "
                f"{tuple(first.shape)}: it must return one number for every row"
            )
        if value.dtype != first.dtype:
            raise DtypeError(f"the function {name!r} returned {value.dtype} for arguments of {first.dtype}")
        return value

    return checked


def refuse_lost(x: Tensor, expected: Tensor | None, functions: Mapping[str, Function]) -> None:
    """Raises ``InputError`` where values were lost: a function was NaN or infinite, or left no float beyond it.

    Args:
        x: ``(…, D)``.
        expected: ``(…,)``, where NaN has another reason.
        functions: those that might be the cause.
    """
    lost = x.isnan().any(-1)
    if expected is not None:
        lost = lost & ~expected
    if _anywhere(lost):
        names = ", ".join(functions)
        raise InputError(
            f"the rules cannot be met where {names} is NaN or infinite, or where no number of "
            f"{str(x.dtype).removeprefix('torch.')} lies between the bounds that it leads to: {_rows_where(lost)}"
        )


# --- tables ---------------------------------------------------------------------------------------------------------


ARBITRARY = ("whiten", "unwhiten", "coordinates", "log_det")
"""Tables that may hold anything: no rule depends on what they say."""


def refuse_changed(tables: nn.Module, fresh: nn.Module) -> None:
    """Raises ``RecordError`` unless the tables in memory are, bit for bit, those that were just made from the terms."""
    found, expected = (
        {name: table for name, table in module.named_buffers() if name.rpartition(".")[2] not in ARBITRARY}
        for module in (tables, fresh)
    )
    same = {name for name in found.keys() & expected.keys() if _same(found[name], expected[name])}
    different = (found.keys() | expected.keys()) - same
    if different:
        raise RecordError(
            f"the table {min(different)} of this layer is not the one that its terms give: it was changed after the "
            "layer was built, so nothing can be said of it; build the layer anew"
        )


def _same(found: Tensor, expected: Tensor) -> bool:
    return not found.is_meta and torch.equal(found.cpu(), expected)
