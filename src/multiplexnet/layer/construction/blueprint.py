"""The blueprint of a layer: its terms and cascades in one dtype, from which all tables follow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch

from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.cascade.structure import (
    Plan,
    cascade_of_part,
    planned,
    rule_parts,
)
from multiplexnet.compiler.equalities import beyond_terms
from multiplexnet.compiler.record import record_of_compiled
from multiplexnet.compiler.terms import Compiled
from multiplexnet.errors import DtypeError, GridError, InputError, OptionError
from multiplexnet.exact.deadline import Deadline
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.language.formula import Specification, Variable
from multiplexnet.layer.checks import (
    refuse_contradiction,
    refuse_uncovered,
    refuse_uncovered_parts,
)
from multiplexnet.layer.construction.settings import CompileOptions, Settings
from multiplexnet.rules import Rules
from multiplexnet.transforms.base import checked_dtype, dtype_name
from multiplexnet.verdicts.units import refuse_indistinct

__all__ = ["Blueprint", "blueprint_of"]


@dataclass(frozen=True)
class Blueprint:
    """All that the tables of a layer are made from.

    Args:
        compiled: the terms.
        dtype: what comes out of the layer.
        settings: what else it was told.
        cascades: the parts of the rules that are computed one output after another.
        origin: what this was cast from. An order that is named may allow a finer grid than the search that
            found it, so a layer that is cast back takes the blueprint it began with.
    """

    compiled: Compiled
    dtype: torch.dtype
    settings: Settings
    cascades: tuple[Cascade, ...] = ()
    origin: Blueprint | None = None

    def is_like(self, other: Blueprint) -> bool:
        """Whether both give the same tables in the same dtype."""
        return (
            self.settings == other.settings
            and self.cascades == other.cascades
            and record_of_compiled(self.compiled) == record_of_compiled(other.compiled)
        )

    def in_dtype(self, dtype: torch.dtype, specification: Specification) -> Blueprint:
        """The same for another dtype; each option of a cascade has to keep its meaning.

        Raises:
            DtypeError: it would not.
        """
        if dtype == self.dtype or not self.cascades:
            return replace(self, dtype=dtype)
        origin = self.origin or self
        if dtype == origin.dtype:
            return origin
        form = FORMATS[dtype_name(checked_dtype(dtype))]
        parts = {part.outputs: part for part in rule_parts(specification)}
        found = []
        for old in self.cascades:
            order = [v for v in old.order if v in old.visible]
            new = cascade_of_part(
                parts[old.visible], self.compiled.inputs, form, order=order
            )
            if [step.size for step in new.steps] != [step.size for step in old.steps]:
                names = ", ".join(v.name for v in old.visible[:6])
                raise DtypeError(
                    f"in {dtype} the outputs {names} have other options than in {self.dtype}, so that logits would "
                    "change their meaning: build a new layer for this dtype"
                )
            found.append(new)
        return replace(self, dtype=dtype, cascades=tuple(found), origin=origin)


def blueprint_of(
    rules: Rules,
    options: CompileOptions,
    settings: Settings,
    dtype: torch.dtype,
    deadline: Deadline,
) -> Blueprint:
    """The rules compiled, partly to terms and partly to cascades.

    Raises:
        CompileTimeout, ContradictionError, TermBudgetExceeded, CascadeBudgetExceeded, RangeError, GridError: see
            ``Multiplexer``.
        InputError: inputs for which no output obeys, or an order that names no output.
    """
    form = FORMATS[dtype_name(dtype)]
    specification = rules.specification
    plan = _plan(rules, options, form, deadline)
    compiled = _terms(rules, plan, options, settings, deadline)
    beyond = beyond_terms(compiled.blocks) if options.structure == "auto" else ()
    if beyond:
        plan = _plan(rules, options, form, deadline, beyond)
        compiled = _terms(rules, plan, options, settings, deadline)
    if plan.cascades:
        compiled = replace(
            compiled, outputs=specification.outputs, specification=specification
        )
    refuse_uncovered(compiled, deadline)
    refuse_uncovered_parts(specification, plan, form, deadline)
    cascades = tuple(cascade for _, cascade in plan.cascades)
    return Blueprint(compiled, dtype, settings, cascades)


def _terms(
    rules: Rules,
    plan: Plan,
    options: CompileOptions,
    settings: Settings,
    deadline: Deadline,
) -> Compiled:
    """The terms of what a plan leaves to them."""
    written = Rules.from_specification(plan.terms) if plan.cascades else rules
    return written.compiled_before(
        deadline, max_terms=settings.max_terms, cover=options.cover, nested=True
    )


def _plan(
    rules: Rules,
    options: CompileOptions,
    form: Format,
    deadline: Deadline,
    beyond: Collection[Variable] = (),
) -> Plan:
    """Which parts of the rules are cascades; a contradiction is called one, whatever the grid."""
    for variable in rules.specification.variables:
        if variable.unit.kind != "int":
            refuse_indistinct(variable, form.name)
    try:
        return planned(
            rules.specification,
            options.structure,
            form,
            order=_named(rules, options.order),
            budget=options.budget,
            deadline=deadline,
            beyond=beyond,
        )
    except GridError:
        refuse_contradiction(rules.specification, deadline)
        raise


def _named(rules: Rules, order: Sequence[str] | None) -> list[Variable] | None:
    """Outputs by their names."""
    if order is None:
        return None
    if isinstance(order, str) or not isinstance(order, Sequence):
        example = order if isinstance(order, str) else rules.outputs[0].name
        raise OptionError(
            "order", order, f"a list of names of outputs, as in order=[{example!r}]"
        )
    order = _elements(rules, order)
    known = {variable.name: variable for variable in rules.outputs}
    for place, name in enumerate(order):
        if not isinstance(name, str) or name not in known:
            raise InputError(
                f"order: {name!r} is not an output of the rules (they have: {', '.join(list(known)[:12])})"
            )
        if name in order[:place]:
            raise InputError(f"order: it names {name} twice; name every output once")
    return [known[name] for name in order]


def _elements(rules: Rules, order: Sequence[str]) -> list[str]:
    """The names with those of all elements in place of that of a vector."""
    names = [variable.name for variable in rules.outputs]
    found = []
    for name in order:
        own = [known for known in names if known.startswith(f"{name}[")]
        found += [name] if name in names or not own else own
    return found
