"""``Multiplexer``: rules as a layer that cannot break them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from multiplexnet.certificate.document import Certificate
from multiplexnet.compiler.cascade.build import Budget, Cascade
from multiplexnet.compiler.cascade.record import cascade_from, record_of_cascade
from multiplexnet.compiler.cascade.structure import (
    Structure,
    cascade_of_part,
    planned,
    reason,
    rule_parts,
)
from multiplexnet.compiler.record import (
    compiled_from,
    flag_from,
    list_from,
    reading,
    record_of_compiled,
    record_of_specification,
    specification_from,
    whole_from,
)
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import (
    CascadeError,
    CoefficientError,
    DomainError,
    DtypeError,
    GridError,
    InputError,
    NestedError,
    OptionError,
    RecordError,
    RunTimeEqualityError,
    ShapeError,
)
from multiplexnet.exact.deadline import GEOMETRY, NEVER, SECONDS, TABLES, Deadline, Tell
from multiplexnet.exact.formats import FORMATS
from multiplexnet.geometry.moved_equalities import parts_with_moved_equalities
from multiplexnet.geometry.parts import Part
from multiplexnet.geometry.split import parts_of
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.language.formula import ONE, Atom, Specification, Variable
from multiplexnet.layer.assumptions import Assumptions
from multiplexnet.layer.branches import Branches, Choice, Inner
from multiplexnet.layer.checks import (
    as_written,
    blocks_about_inputs,
    checked_function,
    refuse_broken_inputs,
    refuse_changed,
    refuse_contradiction,
    refuse_no_tensor,
    refuse_other_rules,
    refuse_roomless,
    refuse_stuck,
    refuse_uncovered,
    refuse_uncovered_parts,
    refuse_unknown,
    refuse_unknown_equality,
    refuse_unknown_functions,
    refuse_without_memory,
    without_tables,
)
from multiplexnet.layer.holes import Holes, hole_tables
from multiplexnet.layer.inputs import GivenInput, given_inputs, input_tensor, rounded_input
from multiplexnet.layer.issue import BuiltBlock, issued
from multiplexnet.layer.units import Units, unit_table
from multiplexnet.layer.unroll import Head, unrolled
from multiplexnet.rules import Rules
from multiplexnet.transforms.base import DTYPES, in_full_precision
from multiplexnet.transforms.cascade.choice import CascadeChoice
from multiplexnet.transforms.cascade.inside import Values
from multiplexnet.transforms.cascade.map import CascadeMap
from multiplexnet.transforms.separable import Separable
from multiplexnet.transforms.tables import Derived, contents, fingerprint, in_memory, memory
from multiplexnet.transforms.term_maps import Boxes, TermMaps
from multiplexnet.verdicts.numbers import refuse_unlisted
from multiplexnet.verdicts.units import refuse_indistinct

__all__ = ["Multiplexer"]

Functions = Mapping[str, Callable[..., Tensor]]
Equality = Literal["exact", "nearest"]


def _joined(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, those that are a single box as one block: they cost one map together instead of one each."""
    boxes = [block for block in blocks if len(block.terms) == 1 and _is_box(block.terms[0])]
    if len(boxes) < 2:
        return list(blocks)
    outputs = sorted((v for block in boxes for v in block.outputs), key=lambda v: v.index)
    terms = [block.terms[0] for block in boxes]
    rows = (row for term in terms for row in term.rows)
    fixed = (pair for term in terms for pair in term.fixed)
    joined = Block(tuple(outputs), (Term(tuple(rows), tuple(fixed)),))
    return sorted(
        [joined, *(block for block in blocks if block not in boxes)],
        key=lambda b: b.outputs[0].index,
    )


def _is_box(term: Term) -> bool:
    """Whether every row bounds one output, by a number or by inputs."""
    symbols = [[symbol for symbol, _ in row.linear.summands] for row in term.rows]
    others = [[s for s in row if not (isinstance(s, Variable) and s.is_input)] for row in symbols]
    return not term.blocks and all(len(s) == 1 and isinstance(s[0], Variable) for s in others)


def _with_inner(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, then those that their terms go on in, each once however often it is shared."""
    found = list(blocks)
    seen = {id(block) for block in blocks}
    for block in found:  # it grows while we walk
        for inner in (inner for term in block.terms for inner in term.blocks):
            if id(inner) not in seen:
                seen.add(id(inner))
                found.append(inner)
    return found


class Multiplexer(Derived):
    """Maps whatever a network says to outputs that obey the rules, exactly and always.

    The rules are compiled to terms φ_1 ∨ … ∨ φ_K, each a polyhedron with a differentiable map h_k into it. A raw vector
    holds one value per output, read by all maps, and then the logits of the choice among the terms, block by block
    (a block with one term needs none).

    Args:
        rules: what has to hold.
        max_terms: the most terms a block may have, and the most combinations of several blocks that are written out.
        cover: rows of data; the fewest terms found that contain those of them that obey, instead of all terms.
        dtype: what comes out, and what the guarantee is built for (default: torch's).
        per_term: every term gets raw values of its own.
        functions: for every opaque function of the rules a torch function of tensors ``(*batch,)``.
        boxes: the map of intervals: :class:`~multiplexnet.transforms.separable.Separable` (sigmoid), or
            ``PaperSeparable``, the paper's own.
        equality: ``"exact"`` refuses an equality that no binary float can meet (3x = 1); ``"nearest"`` moves its
            right-hand side to the nearest that floats can meet, which then holds exactly; ``mux.moved`` says by how
            much.
        structure: ``"terms"`` or ``"cascade"`` insist on one of them; ``"auto"`` takes terms where they are few, and
            computes outputs one after another where they would explode, where an equality holds inputs, and where
            inputs bound outputs that depend on each other.
        order: names of outputs in the order in which a cascade shall compute them; others follow.
        budget: what the projections of a cascade may cost.
        values: what a raw value means in a cascade: ``"share"``, a share of what is left for the output (densities, a
            safe start), or ``"clamp"``, a prediction that is cut where nothing is left (regression).
        seconds: how long compiling and building may take together (``None``: no limit).
        progress: called in every phase, with what is being done and how many steps of it are done.

    Raises:
        CompileTimeout: it took longer; says what took the time, how far it came and what to change.
        ContradictionError, TermBudgetExceeded: no terms, or too many.
        CascadeBudgetExceeded, RangeError, GridError: a cascade that explodes, lacks ends or has no grid.
        ThinTermError, EqualityError: a term that the dtype cannot hold.
        InputError: inputs in their declared range for which no output obeys, or functions that are missing.

    Example:
        >>> rules = Rules("x >= 2 or x <= -2")
        >>> mux = Multiplexer(rules)
        >>> mux.in_features, mux.out_features
        (3, 1)
        >>> branches = mux(torch.tensor([0.5, 1.0, -1.0]))
        >>> branches.x.shape, bool(rules.satisfied(branches.best()))
        (torch.Size([2, 1]), True)
    """

    order: Tensor
    unit_table: Tensor | None
    _certificate: Certificate | None
    _counted = False
    """Whether logits of 0 mean that all plain terms are alike; layers of version 0.1.0 did not know this."""
    _started = False
    """Whether cascades start where no output is better off than another; the first that were saved did not."""

    def __init__(
        self,
        rules: Rules,
        *,
        max_terms: int = MAX_TERMS,
        cover: Any = None,
        dtype: torch.dtype | None = None,
        per_term: bool = False,
        functions: Functions | None = None,
        boxes: Boxes = Separable,
        equality: Equality = "exact",
        structure: Structure = "auto",
        order: Sequence[str] | None = None,
        budget: Budget | None = None,
        values: Values = "share",
        seconds: float | None = SECONDS,
        progress: Tell | None = None,
    ) -> None:
        refuse_unknown_equality(equality)
        refuse_unknown("values", values, ("share", "clamp"))
        refuse_unknown("structure", structure, ("auto", "terms", "cascade"))
        if budget is not None and not isinstance(budget, Budget):
            raise OptionError("budget", budget, "a Budget, as in Budget(clauses=5000), or None")
        if cover is not None or per_term:  # both speak of terms
            structure = "terms"
        form = FORMATS[_name(_checked_dtype(dtype or torch.get_default_dtype()))]
        for variable in rules.specification.variables:
            if variable.unit.kind != "int":
                refuse_indistinct(variable, form.name)
        with Deadline(seconds, progress) as deadline:
            try:
                plan = planned(
                    rules.specification,
                    structure,
                    form,
                    order=_named(rules, order),
                    budget=budget,
                    deadline=deadline,
                )
            except GridError:
                refuse_contradiction(rules.specification, deadline)
                raise
            written = Rules.from_specification(plan.terms) if plan.cascades else rules
            compiled = written.compiled_before(
                deadline, max_terms=max_terms, cover=cover, nested=True
            )
            if plan.cascades:
                compiled = replace(
                    compiled,
                    outputs=rules.specification.outputs,
                    specification=rules.specification,
                )
            refuse_uncovered(compiled, deadline)
            refuse_uncovered_parts(rules.specification, plan, form, deadline)
            try:
                self._start(
                    rules,
                    compiled,
                    max_terms,
                    dtype,
                    per_term,
                    functions,
                    boxes,
                    equality,
                    deadline,
                    cascades=[cascade for _, cascade in plan.cascades],
                    values=values,
                )
            except RunTimeEqualityError as error:
                raise as_written(error, rules.specification, structure) from None

    def _start(
        self,
        rules: Rules,
        compiled: Compiled,
        max_terms: int,
        dtype: torch.dtype | None,
        per_term: bool,
        functions: Functions | None,
        boxes: Boxes,
        equality: Equality,
        deadline: Deadline = NEVER,
        *,
        counted: bool = True,
        cascades: Sequence[Cascade] = (),
        values: Values = "share",
        started: bool = True,
    ) -> list[BuiltBlock]:
        """The one way to a layer, from rules, compiled rules and saved ones alike."""
        super().__init__()
        functions = functions or {}
        refuse_unknown_equality(equality)
        if not rules.outputs:
            raise ShapeError("the rules have no outputs: declare one, as in `x: real`")
        refuse_other_rules(rules.specification, compiled)
        refuse_unknown_functions(rules.specification.functions, functions)
        self.rules = rules
        _ = [
            variable.place for variable in rules.inputs
        ]  # kept from here on: graphs cannot work it out
        self.max_terms = max_terms
        self.per_term = per_term
        self._boxes = boxes
        self._equality = equality
        self._functions = {n: f for n, f in functions.items() if not isinstance(f, nn.Module)}
        self.modules_of_functions = nn.ModuleDict(
            {n: f for n, f in functions.items() if isinstance(f, nn.Module)}
        )
        self._counted = counted
        self.values, self._started = values, started
        made = self._build(compiled, dtype or torch.get_default_dtype(), deadline, cascades)
        self._settle(self.place.device)
        return made

    def _make(self, dtype: torch.dtype) -> None:
        cascades = self.cascades if dtype == self.dtype else self._cascades_in(dtype)
        self._build(self.compiled, dtype, NEVER, cascades)

    def _cascades_in(self, dtype: torch.dtype) -> list[Cascade]:
        """The same cascades for another dtype; each of their options has to keep its meaning."""
        if not self.cascades:
            return []
        form = FORMATS[_name(_checked_dtype(dtype))]
        parts = {part.outputs: part for part in rule_parts(self.rules.specification)}
        found = []
        for old in self.cascades:
            order = [v for v in old.order if v in old.visible]
            new = cascade_of_part(parts[old.visible], self.compiled.inputs, form, order=order)
            if [step.size for step in new.steps] != [step.size for step in old.steps]:
                names = ", ".join(v.name for v in old.visible[:6])
                raise DtypeError(
                    f"in {dtype} the outputs {names} have other options than in {self.dtype}, so that logits would "
                    "change their meaning: build a new layer for this dtype"
                )
            found.append(new)
        return found

    @in_memory
    def _build(
        self,
        compiled: Compiled,
        dtype: torch.dtype,
        deadline: Deadline = NEVER,
        cascades: Sequence[Cascade] = (),
    ) -> list[BuiltBlock]:
        """Tables of all terms and cascades for one dtype; nothing changes if that is refused."""
        _checked_dtype(dtype)
        outer = _joined([block for block in compiled.blocks if block.outputs])
        blocks = _with_inner(outer)
        units = unit_table(compiled.outputs, dtype)
        made = self._made(blocks, dtype, deadline)
        maps = self._tables(made, compiled, dtype, deadline)
        about_inputs = blocks_about_inputs(compiled)
        conditions = self._tables(
            self._made(about_inputs, dtype, deadline), compiled, dtype, deadline
        )
        self.compiled = compiled
        self.dtype = dtype
        self._certificate = None
        self._given_inputs = given_inputs([*blocks, *about_inputs], compiled.inputs, cascades)
        self.moved = {
            row: distance
            for own in made
            for _, moved in own.terms
            for row, distance in moved.items()
        }
        self.maps = nn.ModuleList(maps)
        self.conditions = nn.ModuleList(conditions)
        self.maps.train(self.training)
        self.cascade_maps = nn.ModuleList(
            CascadeMap(cascade, dtype, self.values, started=self._started) for cascade in cascades
        )
        self.cascade_maps.train(self.training)
        position = {variable: j for j, variable in enumerate(compiled.outputs)}
        columns = [
            torch.tensor([position[v] for v in block.outputs], dtype=torch.int64)
            for block in blocks
        ]
        columns += [
            torch.tensor([position[v] for v in cascade.visible], dtype=torch.int64)
            for cascade in cascades
        ]
        everything = list(range(len(compiled.outputs)))
        self._in_order = len(columns) == 1 and columns[0].tolist() == everything
        number = {id(block): b for b, block in enumerate(blocks)}
        self._inner = [
            [(k, number[id(inner)]) for k, term in enumerate(block.terms) for inner in term.blocks]
            for block in blocks
        ]
        self._blocks = tuple(outer)
        self._sizes = [len(block.terms) for block in blocks]
        # A block without outputs is a condition on inputs: it holds or not, and there is nothing to choose.
        self._logits = [
            len(block.terms) if block.outputs and len(block.terms) > 1 else 0 for block in blocks
        ]
        self.hold(
            {
                "order": torch.cat([*columns[: len(outer)], *columns[len(blocks) :]]).argsort(),
                **{f"columns_{b}": own for b, own in enumerate(columns)},
                **self._places(columns),
                **self._offsets(blocks, dtype),
                "unit_table": units,
                **hole_tables(self.rules.specification, dtype),
            }
        )
        self._assumptions = Assumptions.of(self.rules.specification)
        self._about_inputs, self._seal = about_inputs, fingerprint(self)
        return made

    def _places(self, columns: Sequence[Tensor]) -> dict[str, Tensor]:
        """Where the outputs of inner blocks stand among those of the block around them, for every link."""
        return {  # found here, since ONNX does not know how to search
            f"places_{b}_{i}": torch.searchsorted(columns[b], columns[child])
            for b, links in enumerate(self._inner)
            for i, (_, child) in enumerate(links)
        }

    def _offsets(self, blocks: Sequence[Block], dtype: torch.dtype) -> dict[str, Tensor | None]:
        """What is added to the logits of decomposed rules, so that logits of 0 mean all plain terms alike.

        «At most 3 of 30» branches thirty times. With both branches alike the first outputs would be drawn half the
        time and the last ones never; the log of the number of plain terms below a branch makes up for that. Layers
        that were saved before this was counted have none.
        """
        offsets: dict[str, Tensor | None] = {}
        for b, block in enumerate(blocks):
            offsets[f"offset_{b}"] = None
            if self._counted and self.is_nested and self._logits[b]:
                counts = [log(term.count) for term in block.terms]
                offsets[f"offset_{b}"] = torch.tensor(
                    [c - max(counts) for c in counts], dtype=dtype
                )
        return offsets

    def _made(
        self, blocks: Sequence[Block], dtype: torch.dtype, deadline: Deadline = NEVER
    ) -> list[BuiltBlock]:
        form = str(dtype).removeprefix("torch.")
        parts = {"exact": _exact_parts, "nearest": parts_with_moved_equalities}[self._equality]
        deadline.begin(GEOMETRY, form)
        return [
            BuiltBlock(block, [parts(term, block.outputs, form, deadline) for term in block.terms])
            for block in blocks
        ]

    def _tables(
        self,
        made: Sequence[BuiltBlock],
        compiled: Compiled,
        dtype: torch.dtype,
        deadline: Deadline = NEVER,
    ) -> list[TermMaps]:
        deadline.begin(TABLES)
        maps: list[TermMaps] = []
        for own in made:
            deadline.step(len(maps))
            parts = [parts for parts, _ in own.terms]
            maps.append(
                TermMaps(parts, own.block.outputs, dtype, boxes=self._boxes, inputs=compiled.inputs)
            )
        return maps

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Independent parts of the rules; logit k of a block means its k-th term.

        Outputs that are merely bounded, without any choice, are one block together.
        """
        return self._blocks

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of all blocks, in the order of the logits."""
        return tuple(term for block in self.blocks for term in block.terms)

    @property
    def certificate(self) -> Certificate:
        """What is known of this layer, as a document that ``multiplexnet certify`` checks without the compiler.

        The document is written once; whether it is true of the tables in memory is looked at every time.

        Raises:
            RecordError: the tables in memory are not those that the terms give.
        """
        refuse_without_memory(self.device)
        if any(cascade.late for cascade in self.cascades):
            raise CoefficientError(
                "the certificate does not describe rows whose coefficients are inputs",
                "what such a layer returns is judged exactly by rules.satisfied(…)",
            )
        if self._certificate is None or fingerprint(self) != self._seal:
            twin = Multiplexer.__new__(Multiplexer)
            options = (
                self.max_terms,
                self.dtype,
                self.per_term,
                self._given_functions,
                self._boxes,
                self._equality,
            )
            with memory():
                made = twin._start(
                    self.rules,
                    self.compiled,
                    *options,
                    counted=self._counted,
                    cascades=self.cascades,
                    values=self.values,
                    started=self._started,
                )
            refuse_changed(contents(self), contents(twin))
            self._certificate = issued(
                self.rules.specification,
                self.compiled,
                made,
                self._cascade_maps,
                self.dtype,
                self._equality,
            )
        return self._certificate

    @property
    def complete(self) -> bool:
        """Whether everything that obeys the rules is reached (on the grid of a cascade: ``resolution``)."""
        return self.compiled.complete and all(cascade.complete for cascade in self.cascades)

    @property
    def cascades(self) -> tuple[Cascade, ...]:
        """The parts of the rules that are computed one output after another."""
        return tuple(maps.cascade for maps in self._cascade_maps)

    @property
    def resolution(self) -> dict[str, Fraction]:
        """By name, how far apart values lie of outputs that equalities tie together, or that a cascade computes.

        Such outputs live on a lattice of binary fractions, on which sums are exact. The dtype and the range of
        the outputs determine its step: declare ranges for a finer one. Of several terms the coarsest step is named.

        Example:
            >>> Multiplexer(Rules("x: real[2]; sum(x) == 1; x[0] >= 0; x[1] >= 0"), dtype=torch.float16).resolution
            {'x[0]': Fraction(1, 2048), 'x[1]': Fraction(1, 2048)}
        """
        steps: dict[int, Fraction] = {}
        for b, maps in enumerate(self._maps):
            for column, step in zip(self._columns(b).tolist(), maps.resolution(), strict=True):
                steps[column] = max(step, steps.get(column, Fraction(0)))
        for columns, cascade in self.cascade_parts():
            steps |= zip(columns.tolist(), cascade.cascade.spacing, strict=False)
        return {
            v.name: steps[j] * v.unit.size for j, v in enumerate(self.rules.outputs) if steps.get(j)
        }

    @property
    def out_features(self) -> int:
        """The number D of outputs."""
        return len(self.rules.outputs)

    @property
    def holes(self) -> Holes | None:
        """Which outputs may be missing, if any may."""
        if not self.rules.specification.flags:
            return None
        flags, numbers = cast(Tensor, self.hole_flags), cast(Tensor, self.hole_numbers)
        return Holes(flags, numbers, len(self.rules.specification.flags))

    @property
    def in_features(self) -> int:
        """The number of raw features: values, then the logits of every block with more than one term.

        An output that may be missing has two values, the second for its flag, behind those of all outputs; it counts
        where a cascade decides the flag.
        """
        return self._values + sum(self._logit_sizes)

    @property
    def _logit_sizes(self) -> list[int]:
        """The logits of every block that has a choice, then of every cascade that has any."""
        every = [*self._logits, *(maps.in_logits for maps in self._cascade_maps)]
        return [size for size in every if size]

    @property
    def _values(self) -> int:
        if not self.per_term:
            return len(self.compiled.outputs)
        widths = [self._columns(b).numel() for b in range(len(self._sizes))]
        return sum(size * width for size, width in zip(self._sizes, widths, strict=True))

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.order.device

    def _columns(self, block: int) -> Tensor:
        return cast(Tensor, getattr(self, f"columns_{block}"))

    def __repr__(self) -> str:
        return f"Multiplexer({self.extra_repr()})"

    def extra_repr(self) -> str:
        """For ``print(module)``."""
        sizes = " × ".join(map(str, self._sizes[:8])) + (" × …" if len(self._sizes) > 8 else "")
        chosen = [f"terms={sizes}"] if sizes else []
        chosen += [self._cascade_text(cascade, why) for cascade, why in self.reasons.items()]
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {', '.join(chosen)}, "
            f"dtype={_name(self.dtype)}{self._step_text()}"
        )

    @property
    def reasons(self) -> dict[Cascade, str]:
        """The cascades, and why each of them was taken instead of terms.

        Example:
            >>> mux = Multiplexer(Rules("n: int[0, 100000]"))
            >>> list(mux.reasons.values())
            ['n has 100,001 values']
        """
        if not self.cascades:
            return {}
        parts = {part.outputs: part for part in rule_parts(self.rules.specification)}
        form = FORMATS[_name(self.dtype)]
        return {
            cascade: reason(parts[cascade.visible], self.compiled.inputs, form)
            for cascade in self.cascades
        }

    @staticmethod
    def _cascade_text(cascade: Cascade, why: str) -> str:
        order = [v.name for v in cascade.order if v in set(cascade.visible)]
        named = ", ".join(order) if len(order) < 4 else f"{order[0]}, {order[1]}, …, {order[-1]}"
        options = sum(step.size for step in cascade.steps if step.size > 1)
        outputs = f"{len(order)} output{'s' if len(order) > 1 else ''}"
        return f"cascade of {outputs} with {options} options ({why}; order {named})"

    def _step_text(self) -> str:
        """The coarsest step of outputs on a lattice, if there are any and the tables can be read."""
        coarsest = (
            max(self.resolution.values(), default=None) if self.device.type != "meta" else None
        )
        return "" if coarsest is None else f", coarsest_step={float(coarsest):.3g}"

    # --- what it does -----------------------------------------------------------------------------------------------

    def forward(self, raw: Tensor, /, **inputs: Any) -> Branches:
        """The branches of every row.

        Args:
            raw: ``(*batch, in_features)`` in the dtype of the layer.
            inputs: for every input of the rules a tensor ``(*batch,)`` (a vector input: ``(*batch, n)``) in the dtype
                of the layer, or numbers: of Python or numpy, fractions, decimals, integer tensors, arrays, lists. These
                are read as exact. A number that the dtype does not hold is rounded to the side on which the rules still
                hold for the number itself, if there is one.

        Raises:
            ShapeError, DtypeError, InputError: what was found and what was expected.
        """
        raw = self._checked(raw)
        batch = raw.shape[:-1]
        given = self.input_columns(inputs, batch)
        sizes = [self._values, raw.shape[-1] - self._values]
        values, logits = (
            raw.split_with_sizes(sizes, -1) if sizes[1] else (raw, raw)
        )  # without logits: no copy backward
        nodes = list(self._choices(values, logits, given))
        choices = self._linked(nodes)
        if given is not None:
            feasible = [choice.feasible for choice in choices]
            lost = refuse_roomless(given, feasible, self.compiled.inputs, self.dtype)
            if lost is not None:
                choices = self._linked([node.without(lost) for node in nodes])
        cascades = tuple(self._cascaded(values, logits, given))
        return Branches(
            choices, batch, self.max_terms, self.order, cascades, self.holes, self.units
        )

    def unroll(self, head: Head, h: Tensor, x: Tensor | None = None, /, **inputs: Any) -> Branches:
        """The branches for a head that sees what is left: it is asked for one output after another.

        Args:
            head: ``head(j, h, left)`` says a raw value and, if output j has K > 1 options, K logits: ``(*batch, 1)`` or
                ``(*batch, 1 + K)``. ``left`` has the outputs so far, the ends of what is left for this one, and which
                of its options there are; :attr:`options` has K.
            h: what the network says, ``(*batch, F)``; the head gets it as it is.
            x: outputs to go along instead of the head's own, ``(*batch, D)``: −log p(x) then trains every step given
                the true values before it.
            inputs: as for ``forward``.

        Raises:
            CascadeError: some outputs come from terms, which are computed at once.

        Example:
            >>> rules = Rules("x: real[3]; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 150")
            >>> mux = Multiplexer(rules, structure="cascade")
            >>> heads = nn.ModuleList(nn.Linear(8 + 3 + 2, 1 + k) for k in mux.options)
            >>> def head(j, h, left):
            ...     ends = torch.stack([left.lower, left.upper], -1)
            ...     return heads[j](torch.cat([h, left.x / 100, ends / 100], -1))
            >>> x = mux.unroll(head, torch.randn(5, 8)).best()
            >>> bool(rules.satisfied(x).all())
            True
        """
        if self.maps or self.holes is not None:
            raise CascadeError(
                "steps for all outputs (mux.unroll; nor where an output may be missing)",
                has_terms=bool(self.maps),
            )
        refuse_no_tensor("h", h)
        given = self.input_columns(inputs, h.shape[:-1])
        return cast(Branches, self(unrolled(self, head, h, x, given), **inputs))

    @property
    def options(self) -> tuple[int, ...]:
        """For every output how many logits a head has to say of it if it is asked for one after another."""
        found = [0] * self.out_features
        for columns, maps in self.cascade_parts():
            for step in maps.cascade.steps:
                if step.variable < maps.in_values and step.size > 1:
                    found[int(columns[step.variable])] = step.size
        return tuple(found)

    def _cascaded(
        self, values: Tensor, logits: Tensor, inputs: Tensor | None
    ) -> Iterator[CascadeChoice]:
        """The parts that are computed one output after another; their logits come last."""
        logit = sum(self._logits)
        for columns, maps in self.cascade_parts():
            own = values if self._in_order else values.index_select(-1, columns)
            mine = logits[..., logit : logit + maps.in_logits] if maps.in_logits else None
            logit += maps.in_logits
            known = maps.known(inputs)
            if known:
                refused = maps.refused(known).reshape(values.shape[:-1])
                refuse_stuck(refused, known, maps.cascade, self.rules.specification, self.dtype)
            yield CascadeChoice(maps, own, mine, columns, inputs, known)

    def _choices(self, values: Tensor, logits: Tensor, inputs: Tensor | None) -> Iterator[Choice]:
        value = 0
        logit = 0
        functions = self.functions
        for b, (maps, size) in enumerate(zip(self._maps, self._sizes, strict=True)):
            columns = self._columns(b)
            width = columns.numel()
            if self.per_term:
                own = values[..., value : value + size * width].reshape(
                    *values.shape[:-1], size, width
                )
                value += size * width
            else:
                alone = len(self._sizes) == 1 and not self.cascades
                own = values if alone else values.index_select(-1, columns)
            mine = logits[..., logit : logit + size] if self._logits[b] else None
            logit += self._logits[b]
            offset = getattr(self, f"offset_{b}", None)
            if mine is not None and offset is not None:
                mine = mine + offset
            feasible = None if inputs is None else maps.feasible(inputs, functions=functions)
            units = None if self.units is None else self.units.of(columns)
            yield Choice(
                maps,
                own,
                mine,
                columns,
                feasible,
                inputs,
                functions,
                self.per_term,
                offset=offset,
                units=units,
            )

    def _linked(self, nodes: list[Choice]) -> tuple[Choice, ...]:
        """The choices of the outer blocks, each with the inner ones of its terms; shared ones stay shared."""
        if not self.is_nested:
            return tuple(nodes)
        done: dict[int, Choice] = {}

        def linked(b: int) -> Choice:
            if b not in done:
                links = enumerate(self._inner[b])
                inner = [
                    Inner(k, linked(child), getattr(self, f"places_{b}_{i}"))
                    for i, (k, child) in links
                ]
                done[b] = nodes[b].with_inner(inner)
            return done[b]

        return tuple(linked(b) for b in range(len(self._blocks)))

    @property
    def units(self) -> Units | None:
        """The units of outputs that are counted in something else than ones, if there are any."""
        return None if self.unit_table is None else Units(self.unit_table)

    @property
    def is_nested(self) -> bool:
        """Whether some terms go on in inner blocks, as they do when the rules have more plain terms than max_terms."""
        return any(self._inner)

    @property
    def functions(self) -> Functions:
        """The torch code of opaque functions by name."""
        return {name: checked_function(name, f) for name, f in self._given_functions.items()}

    @property
    def _given_functions(self) -> dict[str, Callable[..., Tensor]]:
        return {**self._functions, **dict(self.modules_of_functions.items())}

    def block_maps(self) -> Iterator[tuple[Block, TermMaps]]:
        """Every block that has outputs, with the maps of its terms, if there is nothing but terms.

        Raises:
            CascadeError: some outputs come from a cascade.
            DomainError: some outputs have a unit, which the maps do not know.
        """
        if self.cascades:
            raise CascadeError("maps of all terms", has_terms=bool(self.maps))
        if self.units is not None:
            names = ", ".join(v.name for v in self.compiled.outputs if v.unit.size != 1)
            raise DomainError(
                f"{names}: maps and densities of single terms are not there for outputs with a unit; declare them as "
                "`int`, or use a cascade's branches.log_prob"
            )
        return self.term_parts()

    def term_parts(self) -> Iterator[tuple[Block, TermMaps]]:
        """Every block of terms that has outputs, with their maps."""
        if self.is_nested:
            raise NestedError("maps of plain terms")
        return zip(self.blocks, self._maps, strict=True)

    def cascade_parts(self) -> Iterator[tuple[Tensor, CascadeMap]]:
        """The columns of every cascade, and its map."""
        first = len(self._sizes)
        return ((self._columns(b), m) for b, m in enumerate(self._cascade_maps, start=first))

    @property
    def _cascade_maps(self) -> list[CascadeMap]:
        return [cast(CascadeMap, maps) for maps in self.cascade_maps]

    @property
    def _maps(self) -> list[TermMaps]:
        return [cast(TermMaps, maps) for maps in self.maps]

    def _checked(self, raw: Tensor) -> Tensor:
        refuse_no_tensor("raw", raw)
        if raw.dim() == 0 or raw.shape[-1] != self.in_features:
            logits = self._logit_sizes
            why = f"{self._values} raw values" + (
                f" + {' + '.join(map(str, logits))} logits" if logits else ""
            )
            raise ShapeError(
                f"raw has shape {tuple(raw.shape)}; its last dimension must be in_features = {self.in_features} ({why})"
            )
        if not raw.is_floating_point():
            raise DtypeError(
                f"raw has dtype {raw.dtype}; a network's output is floating point: {self.dtype} here"
            )
        self.check_device("raw", raw)
        if raw.dtype != self.dtype:
            if not torch.is_autocast_enabled(raw.device.type):
                raise DtypeError(
                    f"raw has dtype {raw.dtype}, but the guarantee was built for {self.dtype}: convert raw, or the "
                    f"layer with mux.to({raw.dtype}), which builds it anew"
                )
            raw = raw.to(self.dtype)
        return raw

    def check_device(self, name: str, values: Tensor) -> None:
        """Raises ``ShapeError`` unless the values are where the tables are.

        Tables that were left behind by someone who moved the buffers of the layer, and nothing else, follow first.
        """
        if values.device == self.device:
            return
        if values.device != self.place.device:
            raise ShapeError(without_tables(name, values.device, self.device))
        self._settle(values.device)

    def repair(self, x0: Tensor, /, **inputs: Any) -> Tensor:
        """Outputs of a network that already exists, moved into the rules where they break them.

        Args:
            x0: ``(*batch, D)`` in the dtype of the layer.
            inputs: as for ``forward``.

        Returns:
            ``(*batch, D)``: rows that obey come back bit for bit, in others every broken block moves to a near point of
            its nearest term. The gradient passes through unchanged.

        Raises:
            InputError: a row that no output could mend.
            GraphError: values cannot be looked at, since a graph is being recorded.

        Example:
            >>> mux = Multiplexer(Rules("x >= 2 or x <= -2"))
            >>> mux.repair(torch.tensor([[1.5], [-7.0]]))
            tensor([[ 2.],
                    [-7.]])
        """
        from multiplexnet.layer.repair import repaired

        moved: Tensor = repaired(self, x0, inputs)
        return moved

    @in_full_precision
    def on_grid(self, **inputs: Any) -> dict[str, Any]:
        """The inputs as tensors of the layer's dtype, rounded to numbers in their range that the layer takes.

        An input that outputs of a cascade have to add up to becomes the nearest that they can. Inputs that have a unit,
        dates among them, are exact as they are and come back so. The rules hold for what comes back.

        Raises:
            InputError: no number, or no input of the rules.

        Example:
            >>> rules = Rules("u: input[0, 6]; x: real; y: real; -3 <= x <= 3; 0 <= y <= 3; x + y == u")
            >>> mux = Multiplexer(rules, dtype=torch.bfloat16)
            >>> given = mux.on_grid(u=0.1)
            >>> bool((mux(torch.randn(1, 2).bfloat16(), **given).best().sum(-1) == given["u"]).all())
            True
        """
        self.rules.refuse_unknown_inputs(inputs)
        units: dict[Variable, Fraction] = {}
        for cascade in self.cascades:
            for place, unit in cascade.input_units.items():
                variable = self.compiled.inputs[place]
                units[variable] = max(units.get(variable, Fraction(0)), unit)
        return {name: self._on_grid(name, value, units) for name, value in inputs.items()}

    def _on_grid(self, name: str, value: Any, units: Mapping[Variable, Fraction]) -> Any:
        """What was given for an input, a vector included, rounded to the coarsest grid of its elements."""
        refuse_unlisted(name, value)
        own = self.rules.input_groups[name]
        if own[0].unit != ONE:
            return value
        sides = {given.side for given in self._given_inputs if given.variable in own}
        whole = GivenInput.of(replace(own[0], name=name), sides.pop() if len(sides) == 1 else 0)
        unit = max((units[variable] for variable in own if variable in units), default=None)
        return rounded_input(
            whole, value, unit, torch.empty(0, dtype=self.dtype, device=self.device)
        )

    @in_full_precision
    def input_columns(self, given: Mapping[str, Any], batch: torch.Size) -> Tensor | None:
        """The inputs side by side, ``(*batch, I)``, in the dtype of the layer; ``None`` if the rules have none."""
        scalars = self.rules.scalar_inputs(given)
        if not self.compiled.inputs:
            return None
        like = torch.empty(0, dtype=self.dtype, device=self.device).expand(*batch, 0)
        columns = [
            input_tensor(own, scalars[own.variable.name], like) for own in self._given_inputs
        ]
        return self._obeying(self._assumptions.kept(torch.stack(columns, -1), scalars), scalars)

    def _obeying(self, inputs: Tensor, given: Mapping[str, Any]) -> Tensor:
        """The inputs, NaN where they break a rule about inputs alone and that could not be raised."""
        for block, maps in zip(self._about_inputs, self.conditions, strict=True):
            met = cast(TermMaps, maps).feasible(inputs, functions=self.functions)
            if met is not None:
                inputs = refuse_broken_inputs(
                    met.any(-1), inputs, given, block, self.rules.specification, self.functions
                )
        return inputs

    # --- other dtypes, devices and processes ------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """The rules and their compiled terms as JSON bytes, so that logit k keeps its meaning."""
        record = {
            "version": 1,
            "specification": record_of_specification(self.rules.specification),
            "compiled": record_of_compiled(self.compiled),
            "dtype": str(self.dtype).removeprefix("torch."),
            "equality": self._equality,
            "max_terms": self.max_terms,
            "per_term": self.per_term,
            "counted": self._counted,
            "cascades": [record_of_cascade(cascade) for cascade in self.cascades],
            "values": self.values,
            "started": self._started,
        }
        return torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8).clone()

    def set_extra_state(self, state: Any) -> None:
        """Takes over the terms that were saved; they must be of the same rules."""
        record = _record(state)
        with reading("a layer"):
            specification = specification_from(record["specification"])
            if specification != self.rules.specification:
                raise RecordError("the saved layer was built from other rules than this one")
            if record["per_term"] != self.per_term:
                raise RecordError(
                    f"the saved layer has per_term={record['per_term']}; build this one alike"
                )
            device = self.device
            cascades = _cascades_from(record, specification)
            if cascades and record["dtype"] != _name(self.dtype):
                raise RecordError(
                    f"the saved layer is one of {record['dtype']}; build this one for the same dtype"
                )
            compiled = compiled_from(record["compiled"], specification, _outputs_of(cascades))
            lost = device.type == "meta"
            counted = flag_from(record.get("counted", False))
            same = counted == self._counted and record["compiled"] == record_of_compiled(
                self.compiled
            )
            values = _values_from(record)
            started = flag_from(record.get("started", False))
            same = same and (values, started) == (self.values, self._started)
            if lost or not same or self.cascades != cascades or fingerprint(self) != self._seal:
                self._counted, self.values, self._started = counted, values, started
                self._build(compiled, self.dtype, NEVER, cascades)
                self._settle(state.device if lost else device)

    @classmethod
    def from_state(
        cls, state: Any, *, functions: Functions | None = None, boxes: Boxes = Separable
    ) -> Multiplexer:
        """The layer that was saved, without compiling anything: z3 is not needed.

        Terms are taken as they were saved. Whether they are those of the rules, if a stranger saved them, is what the
        layer's certificate and ``multiplexnet certify`` tell.

        Args:
            state: a layer's ``state_dict()``, or its ``get_extra_state()``.
            functions: as for the constructor; code is not saved.
            boxes: as for the constructor.

        Example:
            >>> mux = Multiplexer(Rules("x >= 2 or x <= -2"))
            >>> Multiplexer.from_state(mux.state_dict()).terms == mux.terms
            True
        """
        record = _record(state.get("_extra_state") if isinstance(state, Mapping) else state)
        with reading("a layer"):
            specification = specification_from(record["specification"])
            mux = cls.__new__(cls)
            cascades = _cascades_from(record, specification)
            mux._start(
                Rules.from_specification(specification),
                compiled_from(record["compiled"], specification, _outputs_of(cascades)),
                whole_from(record["max_terms"]),
                {str(dtype): dtype for dtype in DTYPES}[f"torch.{record['dtype']}"],
                flag_from(record["per_term"]),
                functions,
                boxes,
                record["equality"],
                counted=flag_from(record.get("counted", False)),
                cascades=cascades,
                values=_values_from(record),
                started=flag_from(record.get("started", False)),
            )
            return mux

    @classmethod
    def from_compiled(
        cls,
        rules: Rules,
        compiled: Compiled,
        *,
        max_terms: int = MAX_TERMS,
        dtype: torch.dtype | None = None,
        per_term: bool = False,
        functions: Functions | None = None,
        boxes: Boxes = Separable,
        equality: Equality = "exact",
    ) -> Multiplexer:
        """The layer of rules that have been compiled already; see the constructor.

        Example:
            >>> rules = Rules("x >= 2 or x <= -2")
            >>> Multiplexer.from_compiled(rules, rules.compile(), dtype=torch.bfloat16).dtype
            torch.bfloat16
        """
        refuse_unknown_equality(equality)
        refuse_uncovered(compiled)
        mux = cls.__new__(cls)
        mux._start(rules, compiled, max_terms, dtype, per_term, functions, boxes, equality)
        return mux


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _checked_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype not in DTYPES:
        names = ", ".join(map(_name, DTYPES))
        raise DtypeError(f"no guarantee can be given in {dtype}; use one of {names}")
    return dtype


def _named(rules: Rules, order: Sequence[str] | None) -> list[Variable] | None:
    """Outputs by their names."""
    if order is None:
        return None
    if isinstance(order, str) or not isinstance(order, Sequence):
        raise OptionError("order", order, f"a list of names of outputs, as in order=[{order!r}]")
    known = {variable.name: variable for variable in rules.outputs}
    for place, name in enumerate(order):
        if not isinstance(name, str) or name not in known:
            raise InputError(
                f"order: {name!r} is no output of the rules (they have: {', '.join(list(known)[:12])})"
            )
        if name in order[:place]:
            raise InputError(f"order: it names {name} twice; name every output once")
    return [known[name] for name in order]


def _cascades_from(record: Any, specification: Specification) -> tuple[Cascade, ...]:
    """The cascades of a saved layer; layers saved before there were any have none."""
    found = tuple(
        cascade_from(one, specification.variables, len(specification.inputs))
        for one in list_from(record.get("cascades", []))
    )
    outputs = [v for cascade in found for v in cascade.visible]
    if len(set(outputs)) < len(outputs):
        raise RecordError("the saved layer computes an output twice")
    return found


def _values_from(record: Any) -> Values:
    """What a raw value means in a saved layer."""
    found = record.get("values", "share")
    if found not in ("share", "clamp"):
        raise RecordError(
            f"the saved layer has values = {found!r}, which this version does not know"
        )
    return cast(Values, found)


def _outputs_of(cascades: Sequence[Cascade]) -> frozenset[Variable]:
    return frozenset(v for cascade in cascades for v in cascade.visible)


def _exact_parts(
    term: Term, outputs: tuple[Variable, ...], form: str, deadline: Deadline
) -> tuple[tuple[Part, ...], dict[Atom, Fraction]]:
    return parts_of(term, outputs, form, deadline), {}


def _record(state: Any) -> Any:
    """The record in a saved state: JSON bytes, which run nothing."""
    if isinstance(state, Tensor) and state.is_meta:
        raise RecordError(
            "this state is on the meta device, which holds no numbers: load it without map_location"
        )
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.dim() != 1:
        raise RecordError(
            "this is not the state of a Multiplexer: its _extra_state is a vector of bytes"
        )
    try:
        record = json.loads(state.cpu().numpy().tobytes())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"this is not the state of a Multiplexer ({error})") from None
    if not isinstance(record, dict) or record.get("version") != 1:
        raise RecordError(
            "this is not the state of a Multiplexer: a record of version 1 is expected"
        )
    return record
