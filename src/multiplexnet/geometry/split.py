"""From one term to its parts: constants out, independent groups apart, each of the simplest kind that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.compiler.terms import Term
from multiplexnet.errors import EqualityError, OutOfRangeError, ThinTermError
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS, Format
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.anchors import anchor, text
from multiplexnet.geometry.elimination import coefficients, eliminated, parametric, triangular
from multiplexnet.geometry.lattice import lattice_of
from multiplexnet.geometry.magnitudes import refuse_far
from multiplexnet.geometry.opaque import staged
from multiplexnet.geometry.parts import Box, Parametric, Part, Polyhedron
from multiplexnet.geometry.polyhedron import implicit_equalities
from multiplexnet.language.formula import Atom, Linear, Symbol, Variable
from multiplexnet.language.text import formula_text

__all__ = ["parts_of"]

Constants = dict[Variable, Fraction]

WIDEST = 32
"""Inputs of one part whose outputs have nothing else in common."""


def parts_of(
    term: Term, outputs: Sequence[Variable], form: Format | str, deadline: Deadline = NEVER
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
    inner = {variable for block in term.blocks for variable in block.outputs}
    own = [variable for variable in outputs if variable not in inner]
    constants, rows = _without_constants(term, form)
    open_ = [v for v in own if v not in constants]
    stage = staged(open_, rows)
    followers = {v for part in stage.later for v in part.outputs}
    boxes: list[_Group] = []
    intervals: list[_Group] = []
    groups: list[_Group] = []
    for group in _groups([v for v in open_ if v not in followers], stage.rows):
        (
            boxes if group.is_separable else intervals if group.has_inputs_for_ends else groups
        ).append(group)
    parts = [*_intervals(intervals), *(_part(group, form, deadline) for group in groups)]
    box = _box(
        [_separable(boxes, constants, form), *(part for part in parts if isinstance(part, Box))],
        own,
    )
    return (
        *box,
        *(part for part in parts if not isinstance(part, Box)),
        *_guards(stage.rows, own),
        *stage.later,
    )


# --- constants ------------------------------------------------------------------------------------------------------


def _without_constants(term: Term, form: Format) -> tuple[Constants, list[Atom]]:
    """Discrete outputs and ``x = c`` put into the other rows, until no row is ``x = c`` any more."""
    constants = {v: _exact_value(c, Atom(Linear.of(v) - c, "=="), form) for v, c in term.fixed}
    rows = list(term.rows)
    while True:
        rows = [_substituted(row, constants) for row in rows]
        single = next((row for row in rows if row.relation == "==" and _is_value(row.linear)), None)
        if single is None:
            return constants, [row for row in rows if not _is_true(row)]
        ((symbol, coefficient),) = single.linear.summands
        assert isinstance(symbol, Variable)
        constants[symbol] = _exact_value(-single.linear.constant / coefficient, single, form)


def _is_value(linear: Linear) -> bool:
    return (
        len(linear.summands) == 1
        and isinstance(linear.summands[0][0], Variable)
        and not linear.summands[0][0].is_input
    )


def _substituted(row: Atom, constants: Mapping[Variable, Fraction]) -> Atom:
    if not constants or not any(s in constants for s, _ in row.linear.summands):
        return row
    kept = {s: c for s, c in row.linear.summands if s not in constants}
    known = sum(
        (
            c * constants[s]
            for s, c in row.linear.summands
            if isinstance(s, Variable) and s in constants
        ),
        Fraction(0),
    )
    return Atom(Linear.total(kept, row.linear.constant + known), row.relation)


def _is_true(row: Atom) -> bool:
    if row.linear.summands:
        return False
    constant = row.linear.constant
    if (
        constant == 0
        if row.relation == "=="
        else constant < 0 or (constant == 0 and row.relation == "<=")
    ):
        return True
    raise ValueError(f"the term is empty: it asks for {formula_text(row)}")


def _exact_value(value: Fraction, row: Atom, form: Format) -> Fraction:
    if form.representable(value):
        return value
    does = [f.name for f in FORMATS.values() if f.representable(value)]
    reason = (
        f"{form.name} does not hold this number exactly, {' and '.join(does)} would"
        if does
        else 'no binary float meets this equality exactly (equality="nearest" takes the nearest number instead)'
    )
    raise EqualityError([formula_text(row)], reason)


# --- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Outputs that rows tie together, and those rows."""

    outputs: tuple[Variable, ...]
    rows: tuple[Atom, ...]

    @property
    def is_separable(self) -> bool:
        return (
            all(len(row.linear.summands) == 1 and row.relation != "==" for row in self.rows)
            and not self.is_parametric
        )

    @property
    def is_parametric(self) -> bool:
        return bool(self.known)

    @property
    def has_inputs_for_ends(self) -> bool:
        """Whether it is one output between affine functions of inputs."""
        known = self.known
        inputs = bool(known) and all(
            isinstance(symbol, Variable) and symbol.is_input for symbol in known
        )
        return inputs and len(self.outputs) == 1 and all(row.relation != "==" for row in self.rows)

    @property
    def known(self) -> set[Symbol]:
        """What stands in the rows beside the outputs."""
        return {s for row in self.rows for s, _ in row.linear.summands}.difference(self.outputs)

    def system(self, atoms: Iterable[Atom]) -> Rows:
        """The rows over the outputs of the group."""
        chosen = list(atoms)
        return Rows.of(
            [coefficients(row.linear, self.outputs) for row in chosen],
            [-row.linear.constant for row in chosen],
            [row.relation == "<" for row in chosen],
            n=len(self.outputs),
        )


def _groups(outputs: Sequence[Variable], rows: Sequence[Atom]) -> list[_Group]:
    """The connected components of outputs and rows, ordered by first output; rows without outputs are left out."""
    place = {v: i for i, v in enumerate(outputs)}
    tied = [
        [place[s] for s, _ in row.linear.summands if isinstance(s, Variable) and s in place]
        for row in rows
    ]
    leader = list(range(len(outputs)))

    def root(i: int) -> int:
        while leader[i] != i:
            leader[i] = i = leader[leader[i]]
        return i

    for first, *others in filter(None, tied):
        for other in others:
            low, high = sorted((root(first), root(other)))
            leader[high] = low
    members: dict[int, tuple[list[Variable], list[Atom]]] = {root(i): ([], []) for i in leader}
    for i, v in enumerate(outputs):
        members[root(i)][0].append(v)
    for row, indices in zip(rows, tied, strict=True):
        if indices:
            members[root(indices[0])][1].append(row)
    return [_Group(tuple(vs), tuple(atoms)) for vs, atoms in members.values()]


# --- parts ----------------------------------------------------------------------------------------------------------


def _part(group: _Group, form: Format, deadline: Deadline) -> Part:
    deadline.check()
    if group.is_parametric:
        return _parametric(group, deadline)
    equalities = group.system(row for row in group.rows if row.relation == "==")
    rows = group.system(row for row in group.rows if row.relation != "==")
    try:
        if len(equalities):
            return lattice_of(group.outputs, equalities, rows, form, deadline)
        return _polyhedron(group, rows, form, deadline)
    except ThinTermError:
        hidden = _with_hidden_equalities(equalities, rows, deadline)
        if hidden is None:
            raise
    return lattice_of(group.outputs, *hidden, form, deadline)


def _parametric(group: _Group, deadline: Deadline) -> Parametric:
    equal = [formula_text(row) for row in group.rows if row.relation == "=="]
    if equal:
        raise EqualityError(
            equal, "equalities of outputs that run-time values bound are not supported"
        )
    return triangular(group.outputs, group.rows, deadline)


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
    found = {group.outputs[0]: eliminated(group.outputs[0], group.rows) for group in groups}
    touching = {output: elimination.touching for output, elimination in found.items()}
    guards = [row for elimination in found.values() for row in elimination.rest]
    return parametric(
        tuple(found), [row for group in groups for row in group.rows], touching, guards
    )


def _guards(rows: Sequence[Atom], own: Sequence[Variable]) -> tuple[Parametric, ...]:
    """What the rows ask of run-time values alone, as a part without outputs."""
    guards = [row for row in rows if not any(s in own for s, _ in row.linear.summands)]
    return (parametric((), guards, {}, guards),) if guards else ()


def _with_hidden_equalities(
    equalities: Rows, rows: Rows, deadline: Deadline
) -> tuple[Rows, Rows] | None:
    """The equalities with those that the rows only imply, and the other rows; ``None`` if there are no more."""
    reverse = Rows.of([[-c for c in a] for a in equalities.A], [-e for e in equalities.b], n=rows.n)
    found = implicit_equalities(equalities + reverse + rows, deadline)
    tight = {i - 2 * len(equalities) for i in found} & set(range(len(rows)))
    if not tight:
        return None
    if any(rows.strict[i] for i in tight):
        raise ValueError("the term is empty: a strict row of it can only hold with equality")
    return equalities + rows.subset(sorted(tight)), rows.subset(
        i for i in range(len(rows)) if i not in tight
    )


def _polyhedron(group: _Group, rows: Rows, form: Format, deadline: Deadline) -> Polyhedron:
    names = [v.name for v in group.outputs]
    inside = anchor(rows, form, names=names, deadline=deadline)
    refuse_far(rows.A, rows.slacks(inside), lambda i: text(rows.subset([i]), names)[0])
    zero = Fraction(0)  # by far the most of them
    A = tuple(tuple(Fraction(c) if c else zero for c in a) for a in rows.A)
    return Polyhedron(group.outputs, A, rows.b, rows.strict, inside)


def _separable(groups: Sequence[_Group], constants: Constants, form: Format) -> Box:
    """The constants, and the intervals of outputs that no row ties to another."""
    intervals = [_interval(group.rows, form) for group in groups]
    values = tuple(constants.values())
    return Box(
        (*constants, *(group.outputs[0] for group in groups)),
        (*values, *(low for low, _ in intervals)),
        (*values, *(high for _, high in intervals)),
    )


def _box(boxes: Sequence[Box], own: Sequence[Variable]) -> tuple[Box, ...]:
    """All boxes as one, outputs in declared order; none if it is empty."""
    ends = {
        v: pair for box in boxes for v, *pair in zip(box.outputs, box.lower, box.upper, strict=True)
    }
    members = tuple(v for v in own if v in ends)
    return (
        (Box(members, tuple(ends[v][0] for v in members), tuple(ends[v][1] for v in members)),)
        if members
        else ()
    )


def _interval(rows: Sequence[Atom], form: Format) -> tuple[Fraction | None, Fraction | None]:
    """The closed interval of the format's numbers that satisfy rows over one output."""
    lower: list[Fraction] = []
    upper: list[Fraction] = []
    for row in rows:
        bound = -row.linear.constant / row.linear.summands[0][1]
        side = 1 if row.linear.summands[0][1] > 0 else -1
        try:
            (upper if side > 0 else lower).append(_inward(bound, row, form, side))
        except OverflowError:
            raise OutOfRangeError(
                [formula_text(row)], form.name, form.max, _wider(rows, form)
            ) from None
    low = max(lower, default=None)
    high = min(upper, default=None)
    if low is not None and high is not None and low > high:
        raise _thin_interval(rows, form)
    return low, high


def _inward(bound: Fraction, row: Atom, form: Format, side: int) -> Fraction:
    """The last number of the format that satisfies an upper (``side = 1``) or lower (−1) bound.

    Raises:
        OverflowError: there is none.
    """
    return side * (form.next_down if row.relation == "<" else form.down)(side * bound)


def _thin_interval(rows: Sequence[Atom], form: Format) -> ThinTermError:
    return ThinTermError([formula_text(row) for row in rows], form.name, _wider(rows, form))


def _wider(rows: Sequence[Atom], form: Format) -> str | None:
    """The name of the next wider format that has a number between the bounds."""

    def fits(candidate: Format) -> bool:
        try:
            _interval(rows, candidate)
        except ThinTermError:
            return False
        return True

    wider = [f for f in FORMATS.values() if f.precision > form.precision]
    return next((f.name for f in sorted(wider, key=lambda f: f.precision) if fits(f)), None)
