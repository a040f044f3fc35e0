"""What a layer refuses at run time, and how it says so: inputs out of range, rows without room, lost values.

Verdicts on tensors can only be acted on where their values can be looked at: not while a graph is recorded, not under
``vmap``, not without data on the meta device. There every output of the row is NaN, in all terms: a row that cannot
obey is never a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from multiplexnet.arguments import refuse_uncallable, refuse_unknown
from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.late_rows import is_late
from multiplexnet.compiler.cascade.structure import Plan
from multiplexnet.compiler.terms import Compiled
from multiplexnet.errors import (
    ContradictionError,
    DtypeError,
    GraphError,
    InputError,
    OptionError,
    RecordError,
    ShapeError,
)
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import Format
from multiplexnet.language.formula import (
    Atom,
    Specification,
    Variable,
    atoms,
    variables,
)
from multiplexnet.language.text import value_text
from multiplexnet.transforms.base import dtype_name
from multiplexnet.verdicts.numbers import refuse_unlisted

__all__ = [
    "anywhere",
    "can_be_seen",
    "checked_function",
    "refuse_changed",
    "refuse_contradiction",
    "refuse_lost",
    "refuse_no_tensor",
    "refuse_other_rules",
    "refuse_roomless",
    "refuse_stuck",
    "refuse_uncovered",
    "refuse_uncovered_parts",
    "refuse_unknown_equality",
    "refuse_unknown_functions",
    "refuse_unmoved",
    "refuse_unseen",
    "refuse_without_memory",
    "rows_where",
    "whole_rows",
    "without_tables",
]

Function = Callable[..., Tensor]
SHOWN = 3
"""Rules that a message quotes."""


def anywhere(mask: Tensor) -> bool | None:
    """Whether the mask holds somewhere; ``None`` where values cannot be looked at."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return None
    try:
        return bool(mask.any())
    except (
        RuntimeError
    ):  # vmap, the meta device, tensors that record what is done to them
        return None


def can_be_seen(values: Tensor) -> bool:
    """Whether the numbers of a tensor can be looked at: not while a graph is recorded."""
    return anywhere(values != values) is not None


def whole_rows(x: Tensor) -> Tensor:
    """``x``, ``(…, D)``, with every output of a row NaN if one of them is: half a row is not to be used."""
    return x.masked_fill(x.isnan().any(-1, keepdim=True), torch.nan)


def rows_where(mask: Tensor) -> str:
    """The first rows where the mask holds, as text."""
    rows = [tuple(row) for row in mask.nonzero()[:5].tolist()]
    if not rows[0]:
        return "the only row"
    text = ", ".join(str(row[0] if len(row) == 1 else row) for row in rows)
    more = int(mask.sum()) - len(rows)
    if len(rows) == 1:
        return f"row {text}"
    if more > 0:
        return f"rows {text} and {more} more"
    return f"rows {text}"


def refuse_no_tensor(name: str, value: object) -> None:
    """Raises ``DtypeError`` for an array, a list or a number where a tensor is expected, or a sparse one."""
    if not isinstance(value, Tensor):
        make = (
            "torch.from_numpy" if type(value).__module__ == "numpy" else "torch.tensor"
        )
        raise DtypeError(
            f"{name} is of type {type(value).__name__}; a tensor is expected: {make}({name})"
        )
    refuse_unlisted(name, value)


def refuse_no_layer(name: str, found: object) -> None:
    """Raises ``OptionError`` for anything but a layer; what wraps one passes, as what torch.compile makes does."""
    if not hasattr(found, "term_parts"):
        raise OptionError(name, found, "a layer, as in mx.Multiplexer(rules)")


def checked_loss(loss: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The loss function, which raises unless it returns a tensor."""
    refuse_uncallable(
        "f", loss, "a function of values, as in lambda x: (x - y).square().sum(-1)"
    )

    def checked(x: Tensor) -> Tensor:
        found = loss(x)
        if not isinstance(found, Tensor):
            raise DtypeError(
                f"the loss returned {type(found).__name__}; it must return a tensor, "
                "one number for every row of every term"
            )
        return found

    return checked


# --- inputs ---------------------------------------------------------------------------------------------------------


def refuse_uncovered(compiled: Compiled, deadline: Deadline = NEVER) -> None:
    """Raises ``InputError`` if some inputs that ranges and assumptions allow leave no output; asks z3."""
    if not compiled.inputs:
        return
    from multiplexnet.compiler.explanation.diagnose import uncovered_input

    _refuse_input(uncovered_input(compiled, deadline=deadline))


def refuse_uncovered_parts(
    specification: Specification, plan: Plan, form: Format, deadline: Deadline
) -> None:
    """The same for cascades that inputs can leave without an output, where that is decided soon: by few terms.

    Others say so in the rows where it happens.
    """
    if not any(cascade.guards for _, cascade in plan.cascades):
        return
    from multiplexnet.compiler.explanation.diagnose import uncovered_parts

    found = uncovered_parts(specification, plan, form, deadline=deadline)
    if found is not None:
        refuse_contradiction(specification, deadline)
    _refuse_input(found)


def _refuse_input(found: Sequence[tuple[Variable, Fraction]] | None) -> None:
    if found is not None:
        point = ", ".join(
            f"{variable.name} = {value_text(variable, value)}"
            for variable, value in found
        )
        raise InputError(
            f"for {point} no output obeys the rules: declare narrower ranges, as in `limit: input[0, 100]`, "
            "say what inputs keep to, as in `assume low <= high`, or relax the rules"
        )


def refuse_roomless(
    given: Tensor,
    feasible: Sequence[Tensor | None],
    inputs: Sequence[Variable],
    dtype: torch.dtype,
) -> Tensor | None:
    """Raises ``InputError`` for rows in which some block has no term that can be met.

    Args:
        given: the inputs, ``(*batch, I)``; NaN where they were outside and that could not be raised.
        feasible: for every block which terms can be met, ``(*batch, K)``; ``None``: all.
        inputs: what they are called.
        dtype: of the layer.

    Returns:
        The rows ``(*batch,)`` that cannot obey, where values cannot be looked at; ``None`` if there are none.
    """
    nothing = given.isnan().any(-1)
    for terms in feasible:
        if terms is not None:
            nothing = nothing | ~terms.any(-1)
    found = anywhere(nothing)
    if found:
        raise InputError(
            f"for these values of {', '.join(v.name for v in inputs)} no term leaves room between the floats of "
            f"{dtype_name(dtype)}: {rows_where(nothing)}"
        )
    return nothing if found is None else None


def refuse_stuck(
    stuck: Tensor,
    known: Sequence[Tensor],
    cascade: Cascade,
    specification: Specification,
    dtype: torch.dtype,
) -> None:
    """Raises ``InputError`` for rows whose inputs leave a cascade without any output; in a graph they are NaN.

    Args:
        stuck: these rows, ``(*batch,)``.
        known: what their inputs contribute, ``(B,)`` each.
        cascade: whose guards they fail.
        specification: the rules.
        dtype: of the layer.
    """
    if not anywhere(stuck):
        return
    names = ", ".join(v.name for v in specification.inputs)
    row = int(stuck.reshape(-1).nonzero()[0])
    own = enumerate(known[: len(cascade.known)], start=len(cascade.outputs))
    point = {i: float(value[row]) for i, value in own}
    failing = [c for c in cascade.guards if not any(row.holds(point) for row in c)]  # type: ignore[arg-type]
    rounded = list(cascade.asking_for_grid(row for clause in failing for row in clause))
    if rounded:
        unit = float(Fraction(2) ** max(bit.form.exponent for bit in rounded))
        raise InputError(
            f"these values of {names} lie between the points of the grid: {rows_where(stuck)}. In {dtype_name(dtype)} "
            f"outputs have to add up to multiples of {unit:g} here (mux.resolution tells the grid): round the inputs "
            "with mux.on_grid(…), or use a wider dtype"
        )
    finest = float(min(cascade.spacing[: len(cascade.visible)]))
    grid = f"multiples of {finest:g} or more in {dtype_name(dtype)} (mux.resolution)"
    rules = _rules_of_inputs(cascade, specification)
    if cascade.refuses_no_more:
        raise InputError(
            f"for these values of {names} no output on the grid obeys {rules}: {rows_where(stuck)}. Outputs are "
            f"{grid}: pass other inputs, declare narrower ranges of them, or relax the rules"
        )
    raise InputError(
        f"for these values of {names} none of the points that this layer reaches obeys {rules}: {rows_where(stuck)}. "
        f"Outputs are {grid}, and of these it reaches only a part: there may be others that obey. "
        f"{_ways_to_reach_more(cascade, specification)}, or pass other inputs"
    )


def _ways_to_reach_more(cascade: Cascade, specification: Specification) -> str:
    """What may help where a cascade does not reach all points of its grid."""
    own = set(cascade.visible)
    rows = [
        atom
        for rule in specification.rules
        for atom in atoms(rule.formula)
        if own & set(variables(atom))
    ]
    ways = ["give the rules more room than rounding takes"]
    if not cascade.complete:
        ways = ["name another order of the outputs with order=[…]"]
        if not any(is_late(row) or _is_equality_with_inputs(row) for row in rows):
            ways.append('take terms with structure="terms"')
        ways.append("declare narrower ranges of the outputs")
    first, *others = ways
    return ", ".join([f"{first[:1].upper()}{first[1:]}", *others])


def _rules_of_inputs(cascade: Cascade, specification: Specification) -> str:
    """The rules that tie outputs of a cascade to inputs, as they were written."""
    own = set(cascade.visible)
    texts = []
    for rule in specification.rules:
        named = set(variables(rule.formula))
        if named & own and any(v.is_input for v in named):
            texts.append(
                f"`{rule.text}`" + (f" (line {rule.line})" if rule.line else "")
            )
    more = f" and {len(texts) - SHOWN} more rules" if len(texts) > SHOWN else ""
    return (", ".join(texts[:SHOWN]) + more) or "the rules"


def refuse_unseen(x: Tensor, what: str) -> None:
    """Raises ``GraphError`` where values cannot be looked at."""
    if anywhere(x.isnan()) is None:
        raise GraphError(what)


def refuse_unmoved(x: Tensor, dtype: torch.dtype) -> None:
    """Raises ``InputError`` for rows of ``x``, ``(*batch, D)``, that could not be moved into the rules: NaN."""
    lost = x.isnan().any(-1)
    if anywhere(lost):
        raise InputError(
            "cannot be repaired: for these inputs no term leaves room between the floats of "
            f"{dtype_name(dtype)}, or a function is NaN or infinite there: {rows_where(lost)}"
        )


# --- opaque functions -----------------------------------------------------------------------------------------------


def refuse_unknown_functions(
    wanted: Sequence[str], functions: Mapping[str, Function]
) -> None:
    """Raises ``InputError`` unless there is code for exactly the functions of the rules.

    Raises:
        OptionError: no mapping.
    """
    if not isinstance(functions, Mapping):
        raise OptionError(
            "functions",
            functions,
            "a mapping from the functions of the rules to torch code, as in {'f': torch.sin}",
        )
    missing = [name for name in wanted if name not in functions]
    if missing:
        raise InputError(
            f"the rules use {missing[0]!r}: give it as functions={{{missing[0]!r}: …}}"
        )
    unknown = [name for name in functions if name not in wanted]
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is not a function of the rules (they declare: {', '.join(wanted) or 'none'})"
        )


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
            raise InputError(
                f"the function {name!r} returned {type(value).__name__}; it must return a tensor"
            )
        if value.shape != first.shape:
            raise ShapeError(
                f"the function {name!r} returned shape {tuple(value.shape)} for arguments of shape "
                f"{tuple(first.shape)}: it must return one number for every row"
            )
        if value.dtype != first.dtype:
            raise DtypeError(
                f"the function {name!r} returned {value.dtype} for arguments of {first.dtype}"
            )
        return value

    return checked


def refuse_lost(
    x: Tensor, expected: Tensor | None, functions: Mapping[str, Function]
) -> None:
    """Raises ``InputError`` where values were lost: a function was NaN or infinite, or left no float beyond it.

    Args:
        x: ``(…, D)``.
        expected: ``(…,)``, where NaN has another reason.
        functions: those that might be the cause.
    """
    lost = x.isnan().any(-1)
    if expected is not None:
        lost = lost & ~expected
    if anywhere(lost):
        names = ", ".join(functions)
        raise InputError(
            f"the rules cannot be met where {names} is NaN or infinite, or where no number of "
            f"{dtype_name(x.dtype)} lies between the bounds that it leads to: {rows_where(lost)}"
        )


def refuse_contradiction(specification: Specification, deadline: Deadline) -> None:
    """Raises ``ContradictionError`` if no output at all obeys the rules, on whatever grid; asks z3."""
    from multiplexnet.compiler.compile import contradiction

    chosen = contradiction(specification, deadline)
    if chosen:
        raise ContradictionError([(rule.line, rule.text) for rule in chosen])


# --- rules and their terms ------------------------------------------------------------------------------------------


def refuse_other_rules(specification: Specification, compiled: Compiled) -> None:
    """Raises ``RecordError`` if the terms were compiled from other rules.

    Of terms that somebody put together by hand only the outputs and inputs can be compared.
    """
    same = (compiled.outputs, compiled.inputs) == (
        specification.outputs,
        specification.inputs,
    )
    if not same or compiled.specification not in (None, specification):
        raise RecordError(
            "these terms were compiled from other rules than the layer is given: compile the rules again"
        )


def refuse_unknown_equality(equality: str) -> None:
    """Raises ``OptionError`` unless this is a way with equalities."""
    refuse_unknown("equality", equality, ("exact", "nearest"))


def _is_equality_with_inputs(atom: Atom) -> bool:
    return atom.relation == "==" and {v.is_input for v in variables(atom)} == {
        True,
        False,
    }


# --- tables ---------------------------------------------------------------------------------------------------------


ARBITRARY = ("whiten", "unwhiten", "coordinates", "log_det")
"""Tables that may hold any finite numbers: no rule depends on what they say."""


def refuse_changed(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises ``RecordError`` unless what is in memory is, bit for bit, what was just made from the terms.

    Args:
        found: the :func:`~multiplexnet.transforms.tables.contents` of a layer.
        expected: those of one that was made from the same terms a moment ago.
    """
    same = {
        name
        for name in found.keys() & expected.keys()
        if _same(name, found[name], expected[name])
    }
    different = (found.keys() | expected.keys()) - same
    if different:
        raise RecordError(
            f"the table {min(different)} of this layer is not the one that its terms give: it was changed after the "
            "layer was built, so nothing can be said of it; build the layer anew"
        )


def _same(name: str, found: Any, expected: Any) -> bool:
    if not isinstance(found, Tensor) or not isinstance(expected, Tensor):
        return type(found) is type(expected) and bool(found == expected)
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if name.rpartition(".")[2] in ARBITRARY:
        return bool(found.isfinite().all())
    return torch.equal(found.cpu(), expected)


def refuse_without_memory(device: torch.device) -> None:
    """Raises ``RecordError`` if tables on this device have no numbers."""
    if device.type == "meta":
        raise RecordError(
            "this layer is on the meta device, where tables have no numbers, so nothing can be said of them: "
            'mux.to("cpu") makes them, or build the layer anew'
        )


def without_tables(name: str, place: torch.device, device: torch.device) -> str:
    """What is wrong with values on another device than the tables, and what to do."""
    advice = "move one of them with .to(…)"
    if device.type == "meta":
        advice = f'mux.to("{place}") makes its tables, as mux.to_empty(device="{place}") does'
    return f"{name} is on {place} and the layer on {device}: {advice}"
