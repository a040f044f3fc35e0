"""From one term to its parts: constants out, independent groups apart, each of the simplest kind that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from multiplexnet.compiler.equalities import (
    apart,
    is_copy,
    is_single_equality,
    substituted,
    symbols_of,
)
from multiplexnet.compiler.terms import Term
from multiplexnet.errors import (
    EliminationError,
    EqualityError,
    RunTimeEqualityError,
    ThinTermError,
)
from multiplexnet.exact.components import components
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS, Format, holding
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.anchors import anchor, text
from multiplexnet.geometry.boxes import constant_box, interval_box, joined
from multiplexnet.geometry.centres import centred
from multiplexnet.geometry.curves import (
    cone_of,
    curved_anchor,
    curved_guard,
    moved_ball,
    refuse_far_cones,
    refuse_far_numbers,
)
from multiplexnet.geometry.elimination import eliminated, parametric, triangular
from multiplexnet.geometry.lattice import lattice_of
from multiplexnet.geometry.magnitudes import refuse_far
from multiplexnet.geometry.opaque import stages_of
from multiplexnet.geometry.parts import Box, Parametric, Part, Polyhedron
from multiplexnet.geometry.polyhedron import implicit_equalities
from multiplexnet.language.curves import flattened, is_constant
from multiplexnet.language.formula import (
    FALSE,
    Atom,
    Linear,
    Symbol,
    Variable,
    atoms,
    norm_in,
    sign,
)
from multiplexnet.language.text import formula_text

__all__ = ["parts_of"]

Constants = dict[Variable, Fraction]

WIDEST = 32
"""Inputs of one part whose outputs have nothing else in common."""


def parts_of(
    term: Term,
    outputs: Sequence[Variable],
    form: Format | str,
    deadline: Deadline = NEVER,
) -> tuple[Part, ...]:
    """The parts of a term in an order in which they can be computed; together they hold each output once.

    Args:
        term: satisfiable; outputs of its inner ``blocks`` are left to those.
        outputs: the outputs of the block.
        form: the float format, or its name.
        deadline: when it gives up.

    Raises:
        CompileTimeout: it took too long.
        ThinTermError: the format has no room inside.
        EqualityError: no number of the format meets an equality, or it depends on run-time values.
        CyclicFunctionError, UnboundableError: opaque functions that cannot be followed.
        EliminationError: bounds with run-time values that multiply too fast.
        MagnitudeError: numbers that float64 cannot compute with.

    Example:
        >>> x, y = Variable("x", 0), Variable("y", 1)
        >>> term = Term((Atom(Linear.of(x) - Fraction(1, 10), "<"),))
        >>> parts_of(term, (x, y), "float16")[0].upper
        (Fraction(819, 8192), None)
    """
    deadline.step()
    form = FORMATS[form] if isinstance(form, str) else form
    plain = _plain_box(term, outputs, form)
    if plain is not None:
        return (plain,)
    inner = {variable for block in term.blocks for variable in block.outputs}
    own = [variable for variable in outputs if variable not in inner]
    constants, rows = _without_constants(term, form)
    rows = apart(rows)
    stages = stages_of([v for v in own if v not in constants], rows)
    later = {v for part in stages.later for v in part.outputs}
    first = [v for v in own if v not in constants and v not in later]
    groups = _GroupKinds.of(_groups(first, stages.rows))
    boxes = [constant_box(constants)]
    parts: list[Part] = [*_intervals(groups.between_inputs)]
    for group in groups.tied:
        part = _part(group, form, deadline)
        if isinstance(part, Box):
            boxes.append(part)
        else:
            parts.append(part)
    boxes.append(interval_box(groups.separable, form))
    box = joined(boxes, own)
    if box is not None:
        parts.insert(0, box)
    return (*parts, *_guards(stages.rows, own), *stages.later)


def _plain_box(term: Term, outputs: Sequence[Variable], form: Format) -> Box | None:
    """The one part of a term whose rows bound one output each; ``None`` of all other terms."""
    if term.fixed or term.blocks or not outputs:
        return None
    rows_of: dict[Symbol, list[Atom]] = {output: [] for output in outputs}
    for row in term.rows:
        summands = row.linear.summands
        if row.relation == "==" or len(summands) != 1:
            return None
        own = rows_of.get(summands[0][0])
        if own is None:
            return None
        own.append(row)
    return interval_box({output: rows_of[output] for output in outputs}, form)


# --- constants ------------------------------------------------------------------------------------------------------


def _without_constants(term: Term, form: Format) -> tuple[Constants, list[Atom]]:
    """Discrete outputs and ``x = c`` put into the other rows, until no row is ``x = c`` any more."""
    constants: Constants = {}
    for variable, value in term.fixed:
        row = Atom(Linear.of(variable) - value, "==")
        constants[variable] = _exact_value(value, row, form)
    rows = list(term.rows)
    while True:
        rows = [
            flat for row in rows for flat in _flattened(substituted(row, constants))
        ]
        single = next(filter(is_single_equality, rows), None)
        if single is None:
            return constants, [row for row in rows if not _is_true(row)]
        ((symbol, coefficient),) = single.linear.summands
        assert isinstance(symbol, Variable)
        value = -single.linear.constant / coefficient
        constants[symbol] = _exact_value(value, single, form)


def _flattened(row: Atom) -> list[Atom]:
    """``norm(x) <= 0`` as equalities; every other row as it is."""
    plain = flattened(row.linear, row.relation)
    if plain is None or is_constant(row.linear):
        return [row]
    if plain == FALSE:
        raise ValueError(f"the term is empty: it asks for {formula_text(row)}")
    return atoms(plain)


def _is_true(row: Atom) -> bool:
    """Whether a row without symbols holds.

    Raises:
        ValueError: it does not.
    """
    if not is_constant(row.linear):
        return False
    constant = sign(row.linear, {})
    if constant == 0 and row.relation != "<":
        return True
    if constant < 0 and row.relation != "==":
        return True
    raise ValueError(f"the term is empty: it asks for {formula_text(row)}")


def _exact_value(value: Fraction, row: Atom, form: Format) -> Fraction:
    if form.representable(value):
        return value
    would_do = holding(value)
    if would_do:
        reason = f"{form.name} does not hold this number exactly, {' and '.join(would_do)} would"
    else:
        reason = (
            'no binary float meets this equality exactly (equality="nearest" takes the nearest '
            "number instead)"
        )
    raise EqualityError([formula_text(row)], reason)


# --- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Outputs that rows tie together, and those rows."""

    outputs: tuple[Variable, ...]
    rows: tuple[Atom, ...]

    @property
    def curved(self) -> list[Atom]:
        """The rows with norms."""
        return [row for row in self.rows if norm_in(row.linear)]

    @property
    def is_separable(self) -> bool:
        """Whether it is one output between constants."""
        if self.known or self.has_equalities or self.curved:
            return False
        return all(len(row.linear.summands) == 1 for row in self.rows)

    @property
    def is_between_inputs(self) -> bool:
        """Whether it is one output between affine functions of inputs."""
        known = self.known
        if not known or self.has_equalities or len(self.outputs) > 1 or self.curved:
            return False
        return all(isinstance(symbol, Variable) and symbol.is_input for symbol in known)

    @property
    def with_ends(self) -> _Group:
        """The group with two bounds for ``x = u``: an output that equals an input lies between it and itself."""
        rows: list[Atom] = []
        for row in self.rows:
            if is_copy(row):
                rows += [Atom(row.linear, "<="), Atom(-row.linear, "<=")]
            else:
                rows.append(row)
        return _Group(self.outputs, tuple(rows))

    @property
    def has_equalities(self) -> bool:
        return any(row.relation == "==" for row in self.rows)

    @cached_property
    def known(self) -> frozenset[Symbol]:
        """What stands in the rows beside the outputs: values that are known at run time."""
        mentioned = {symbol for row in self.rows for symbol in symbols_of(row)}
        return frozenset(mentioned.difference(self.outputs))

    def system(self, atoms: Iterable[Atom]) -> Rows:
        """The rows over the outputs of the group."""
        chosen = list(atoms)
        places: dict[Symbol, int] = {v: j for j, v in enumerate(self.outputs)}
        return Rows.sparse(
            [_placed(row.linear, places) for row in chosen],
            [-row.linear.constant for row in chosen],
            [row.relation == "<" for row in chosen],
            len(self.outputs),
        )


def _placed(linear: Linear, places: Mapping[Symbol, int]) -> list[tuple[int, Fraction]]:
    """The coefficients with the places of their outputs, in order."""
    found: list[tuple[int, Fraction]] = []
    for symbol, c in linear.summands:
        place = places.get(symbol)
        if place is not None:
            found.append((place, c))
    return sorted(found)


@dataclass(frozen=True)
class _GroupKinds:
    """The groups of a term by what they become."""

    separable: dict[Variable, tuple[Atom, ...]]
    """Outputs between constants, with their rows."""
    between_inputs: list[_Group]
    tied: list[_Group]

    @staticmethod
    def of(groups: Iterable[_Group]) -> _GroupKinds:
        found = _GroupKinds({}, [], [])
        for group in groups:
            if group.is_separable:
                found.separable[group.outputs[0]] = group.rows
            elif group.is_between_inputs:
                found.between_inputs.append(group)
            else:
                found.tied.append(group)
        return found


def _groups(outputs: Sequence[Variable], rows: Sequence[Atom]) -> list[_Group]:
    """The connected components of outputs and rows, ordered by first output; rows without outputs are left out."""
    found = components(outputs, rows, keys_of=symbols_of)
    return [
        _Group(tuple(keys), tuple(items)).with_ends for keys, items in found if keys
    ]


# --- parts ----------------------------------------------------------------------------------------------------------


def _part(group: _Group, form: Format, deadline: Deadline) -> Part:
    deadline.check()
    if group.known:
        return _parametric(group, deadline)
    equalities = group.system(row for row in group.rows if row.relation == "==")
    rows = group.system(
        row for row in group.rows if row.relation != "==" and not norm_in(row.linear)
    )
    try:
        if len(equalities):
            return _lattice(group, equalities, rows, form, deadline)
        return _polyhedron(group, rows, form, deadline)
    except ThinTermError:
        hidden = _hidden_equalities(equalities, rows, deadline)
        if not hidden:
            raise
    equalities = equalities + rows.subset(hidden)
    rows = rows.subset(i for i in range(len(rows)) if i not in hidden)
    return _lattice(group, equalities, rows, form, deadline)


def _lattice(
    group: _Group, equalities: Rows, rows: Rows, form: Format, deadline: Deadline
) -> Part:
    return lattice_of(
        group.outputs, equalities, rows, form, deadline, curved=group.curved
    )


def _parametric(group: _Group, deadline: Deadline) -> Parametric:
    if group.curved:
        return moved_ball(group.outputs, group.rows)
    equal = [formula_text(row) for row in group.rows if row.relation == "=="]
    if equal:
        raise RunTimeEqualityError(equal, "build a Multiplexer(rules), which takes one")
    try:
        return triangular(group.outputs, group.rows, deadline)
    except EliminationError:
        part = centred(group.outputs, group.rows, deadline)
        if part is None:
            raise
        return part


def _intervals(groups: Iterable[_Group]) -> Iterator[Parametric]:
    """Outputs that only inputs bound, as few parts, each with a handful of inputs."""
    bundle: list[_Group] = []
    inputs: set[Symbol] = set()
    for group in groups:
        if bundle and len(inputs | group.known) > WIDEST:
            yield _bundled(bundle)
            bundle = []
            inputs = set()
        bundle.append(group)
        inputs |= group.known
    if bundle:
        yield _bundled(bundle)


def _bundled(groups: Sequence[_Group]) -> Parametric:
    rows: list[Atom] = []
    touching: dict[Variable, tuple[Atom, ...]] = {}
    guards: list[Atom] = []
    for group in groups:
        (output,) = group.outputs
        elimination = eliminated(output, group.rows)
        rows.extend(group.rows)
        touching[output] = elimination.touching
        guards.extend(elimination.rest)
    return parametric(tuple(touching), rows, touching, guards)


def _guards(rows: Sequence[Atom], own: Sequence[Variable]) -> tuple[Parametric, ...]:
    """What the rows ask of run-time values alone, as a part without outputs."""
    outputs = set(own)
    guards = [row for row in rows if outputs.isdisjoint(symbols_of(row))]
    curved = [row for row in guards if norm_in(row.linear)]
    flat = [row for row in guards if not norm_in(row.linear)]
    parts = [parametric((), flat, {}, flat)] if flat else []
    if curved:
        parts.append(curved_guard(curved))
    return tuple(parts)


def _hidden_equalities(equalities: Rows, rows: Rows, deadline: Deadline) -> list[int]:
    """The rows that can only hold with equality.

    Raises:
        ValueError: one of them is strict, so that nothing obeys.
    """
    first = 2 * len(equalities)
    found = implicit_equalities(equalities + equalities.reversed() + rows, deadline)
    hidden = sorted(i - first for i in found if i >= first)
    if any(rows.strict[i] for i in hidden):
        raise ValueError(
            "the term is empty: a strict row of it can only hold with equality"
        )
    return hidden


def _polyhedron(
    group: _Group, rows: Rows, form: Format, deadline: Deadline
) -> Polyhedron:
    names = [v.name for v in group.outputs]
    if group.curved:
        return _curved(group, rows, form, names, deadline)
    inside = anchor(rows, form, names=names, deadline=deadline)
    refuse_far(
        rows.coefficients,
        rows.slacks(inside),
        lambda i: text(rows.subset([i]), names)[0],
    )
    return Polyhedron(group.outputs, rows.A, rows.b, rows.strict, inside)


def _curved(
    group: _Group, rows: Rows, form: Format, names: Sequence[str], deadline: Deadline
) -> Polyhedron:
    """Rows and cones around an anchor."""
    cones = tuple(cone_of(row, group.outputs) for row in group.curved)
    refuse_far_numbers(cones, group.curved)
    inside = curved_anchor(rows, cones, group.curved, form, names, deadline)
    refuse_far(
        rows.coefficients,
        rows.slacks(inside),
        lambda i: text(rows.subset([i]), names)[0],
    )
    refuse_far_cones(cones, inside, group.curved)
    return Polyhedron(group.outputs, rows.A, rows.b, rows.strict, inside, cones)
