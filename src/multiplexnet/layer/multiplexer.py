"""``Multiplexer``: rules as a layer that cannot break them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, cast

import torch
from torch import Tensor, nn

from multiplexnet.arguments import refuse_bad_count, refuse_uncallable
from multiplexnet.certificate.document import Certificate
from multiplexnet.compiler.cascade.build import Budget, Cascade
from multiplexnet.compiler.cascade.structure import Structure, refused_equalities
from multiplexnet.compiler.record import reading
from multiplexnet.compiler.terms import Block, Compiled, Term
from multiplexnet.errors import (
    CascadeError,
    DomainError,
    NestedError,
    RunTimeEqualityError,
    ShapeError,
)
from multiplexnet.exact.deadline import NEVER, SECONDS, Deadline, Tell
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.call import Call, checked_raw
from multiplexnet.layer.certificate import issued
from multiplexnet.layer.checks import (
    checked_function,
    refuse_changed,
    refuse_no_tensor,
    refuse_other_rules,
    refuse_uncovered,
    refuse_unknown_functions,
    refuse_without_memory,
    without_tables,
)
from multiplexnet.layer.construction.blocks import BuiltBlock, built_blocks, term_maps
from multiplexnet.layer.construction.blueprint import Blueprint, blueprint_of
from multiplexnet.layer.construction.layout import Layout
from multiplexnet.layer.construction.settings import (
    Arithmetic,
    CompileOptions,
    Equality,
    Functions,
    Settings,
)
from multiplexnet.layer.description import description, reasons, resolution
from multiplexnet.layer.holes import Holes, hole_tables
from multiplexnet.layer.inputs.columns import InputColumns
from multiplexnet.layer.inputs.conditions import blocks_about_inputs
from multiplexnet.layer.saved import SavedLayer, record_in, saved_state
from multiplexnet.layer.stacks import stacks_of
from multiplexnet.layer.units import Units, unit_table
from multiplexnet.layer.unroll import Head, unrolled
from multiplexnet.rules import Rules, rules_of
from multiplexnet.transforms.base import checked_dtype, dtype_name, in_full_precision
from multiplexnet.transforms.cascade.inside import Values
from multiplexnet.transforms.cascade.map import CascadeMap
from multiplexnet.transforms.separable import Separable
from multiplexnet.transforms.tables import (
    Derived,
    contents,
    fingerprint,
    in_memory,
    memory,
)
from multiplexnet.transforms.term_maps import Boxes, TermMaps

__all__ = ["Multiplexer"]


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
        precision: what polytopes and equalities are computed in, whatever comes out: ``"float64"``, or ``"float32"``
            where that costs less than a thousandth of the room between a point well inside and the walls, and nothing
            of the guarantee. It is faster with batches of many thousand rows. Layers of float64 do not ask for it.
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
    visible: Tensor
    unit_table: Tensor | None
    _certificate: Certificate | None

    def __init__(
        self,
        rules: Rules | str | Sequence[str],
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
        precision: Arithmetic = "float64",
        seconds: float | None = SECONDS,
        progress: Tell | None = None,
    ) -> None:
        asked = rules_of(rules)
        refuse_bad_count("max_terms", max_terms, 1, "terms")
        refuse_uncallable("boxes", boxes, "a map of intervals, as mx.Separable is")
        settings = Settings(
            int(max_terms), per_term, boxes, equality, values, precision
        )
        if cover is not None or per_term:  # both speak of terms
            structure = "terms"
        options = CompileOptions(cover, structure, order, budget)
        chosen = checked_dtype(dtype or torch.get_default_dtype())
        with Deadline(seconds, progress) as deadline:
            blueprint = blueprint_of(asked, options, settings, chosen, deadline)
            try:
                self._start(asked, blueprint, functions, deadline)
            except RunTimeEqualityError as error:
                raise refused_equalities(
                    asked.specification,
                    structure,
                    FORMATS[dtype_name(chosen)],
                    error.rows,
                    deadline,
                ) from None

    def _start(
        self,
        rules: Rules,
        blueprint: Blueprint,
        functions: Functions | None,
        deadline: Deadline = NEVER,
    ) -> list[BuiltBlock]:
        """The one way to a layer, from rules, compiled rules and saved ones alike."""
        super().__init__()
        functions = {} if functions is None else functions
        if not rules.outputs:
            raise ShapeError("the rules have no outputs: declare one, as in `x: real`")
        refuse_other_rules(rules.specification, blueprint.compiled)
        refuse_unknown_functions(rules.specification.functions, functions)
        self.rules = rules
        for variable in rules.inputs:
            _ = variable.place  # kept from here on: graphs cannot work it out
        modules = {n: f for n, f in functions.items() if isinstance(f, nn.Module)}
        self.modules_of_functions = nn.ModuleDict(modules)
        self._functions = {n: f for n, f in functions.items() if n not in modules}
        built = self._build(blueprint, deadline)
        self._settle(self.place.device)
        return built

    def _make(self, dtype: torch.dtype) -> None:
        self._build(self._blueprint.in_dtype(dtype, self.rules.specification))

    @in_memory
    def _build(
        self, blueprint: Blueprint, deadline: Deadline = NEVER
    ) -> list[BuiltBlock]:
        """Tables of all terms and cascades; nothing changes if that is refused."""
        dtype = checked_dtype(blueprint.dtype)
        specification = self.rules.specification
        layout = Layout.of(blueprint)
        about_inputs = blocks_about_inputs(blueprint.compiled)
        units = unit_table(blueprint.compiled.outputs, dtype)
        built = built_blocks(layout.blocks, blueprint, deadline)
        maps = term_maps(built, blueprint, deadline)
        built_conditions = built_blocks(about_inputs, blueprint, deadline)
        conditions = term_maps(built_conditions, blueprint, deadline)
        settings = blueprint.settings
        cascade_maps = [
            CascadeMap(cascade, dtype, settings.values, started=settings.started)
            for cascade in blueprint.cascades
        ]
        self._blueprint = blueprint
        self.dtype = dtype
        self.layout = layout
        self._inputs = InputColumns.of(
            self.rules, blueprint, layout.blocks, about_inputs
        )
        self.moved = {
            row: distance
            for own in built
            for _, moved in own.terms
            for row, distance in moved.items()
        }
        self.maps = nn.ModuleList(maps)
        self.conditions = nn.ModuleList(conditions)
        self.maps.train(self.training)
        self.cascade_maps = nn.ModuleList(cascade_maps)
        self.cascade_maps.train(self.training)
        self.stacks = None
        if units is None and not self._given_functions:
            self.stacks = stacks_of(built, layout, blueprint)
        if self.stacks is not None:
            self.stacks.train(self.training)
        self.hold(
            {
                **layout.tables(dtype, counted=settings.counted),
                "unit_table": units,
                **hole_tables(specification, dtype),
            }
        )
        self._certificate = None
        self._seal = fingerprint(self)
        return built

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def compiled(self) -> Compiled:
        """The terms that the rules were compiled to."""
        return self._blueprint.compiled

    @property
    def max_terms(self) -> int:
        """The most combinations of several blocks that are written out."""
        return self._blueprint.settings.max_terms

    @property
    def per_term(self) -> bool:
        """Whether every term has raw values of its own."""
        return self._blueprint.settings.per_term

    @property
    def boxes(self) -> Boxes:
        """The map of intervals."""
        return self._blueprint.settings.boxes

    @property
    def precision(self) -> Arithmetic:
        """What polytopes and equalities are computed in."""
        return self._blueprint.settings.precision

    @property
    def equality(self) -> Equality:
        """What was done with equalities that no float can meet."""
        return self._blueprint.settings.equality

    @property
    def values(self) -> Values:
        """What a raw value means in a cascade."""
        return self._blueprint.settings.values

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Independent parts of the rules; logit k of a block means its k-th term.

        Outputs that are merely bounded, without any choice, are one block together.
        """
        return self.layout.outer

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
        if self._certificate is None or fingerprint(self) != self._seal:
            twin = Multiplexer.__new__(Multiplexer)
            with memory():
                built = twin._start(self.rules, self._blueprint, self._given_functions)
            refuse_changed(contents(self), contents(twin))
            self._certificate = issued(
                self.rules.specification,
                self.compiled,
                built,
                self._cascade_maps,
                self.dtype,
                self.equality,
            )
        return self._certificate

    @property
    def complete(self) -> bool:
        """Whether everything that obeys the rules is reached (on the grid of a cascade: ``resolution``)."""
        return self.compiled.complete and all(
            cascade.reaches_all for cascade in self.cascades
        )

    @property
    def cascades(self) -> tuple[Cascade, ...]:
        """The parts of the rules that are computed one output after another."""
        return self._blueprint.cascades

    @property
    def resolution(self) -> dict[str, Fraction]:
        """By name, how far apart values lie of outputs that equalities tie together, or that a cascade computes.

        Such outputs live on a lattice of binary fractions, on which sums are exact. The dtype and the range of
        the outputs determine its step: declare ranges for a finer one. Of several terms the coarsest step is named.

        Example:
            >>> Multiplexer(Rules("x: real[2]; sum(x) == 1; x[0] >= 0; x[1] >= 0"), dtype=torch.float16).resolution
            {'x[0]': Fraction(1, 2048), 'x[1]': Fraction(1, 2048)}
        """
        return resolution(self)

    @property
    def out_features(self) -> int:
        """The number D of outputs."""
        return len(self.rules.outputs)

    @property
    def holes(self) -> Holes | None:
        """Which outputs may be missing, if any may."""
        if not self.rules.specification.flags:
            return None
        flags = cast(Tensor, self.hole_flags)
        numbers = cast(Tensor, self.hole_numbers)
        return Holes(flags, numbers, len(self.rules.specification.flags))

    @property
    def in_features(self) -> int:
        """The number of raw features: values, then the logits of every block with more than one term.

        An output that may be missing has two values, the second for its flag, behind those of all outputs; it counts
        where a cascade decides the flag.
        """
        return self.layout.in_values + sum(self.logit_sizes)

    @property
    def logit_sizes(self) -> list[int]:
        """The logits of every block that has a choice, then of every cascade that has any."""
        every = [*self.layout.logits, *(maps.in_logits for maps in self._cascade_maps)]
        return [size for size in every if size]

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.order.device

    def columns(self, part: int) -> Tensor:
        """The positions of the outputs of a block, or, behind all blocks, of a cascade."""
        return cast(Tensor, getattr(self, f"columns_{part}"))

    def __repr__(self) -> str:
        return f"Multiplexer({self.extra_repr()})"

    def extra_repr(self) -> str:
        """For ``print(module)``."""
        return description(self)

    @property
    def reasons(self) -> dict[Cascade, str]:
        """The cascades, and why each of them was taken instead of terms.

        Example:
            >>> mux = Multiplexer(Rules("n: int[0, 100000]"))
            >>> list(mux.reasons.values())
            ['n has 100,001 values']
        """
        return reasons(self)

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
        raw = checked_raw(self, raw)
        batch = raw.shape[:-1]
        given = self.input_columns(inputs, batch)
        call = Call.of(self, raw, given)
        choices = call.choices()
        cascades = tuple(call.cascades())
        return Branches(
            choices,
            batch,
            self.max_terms,
            self.order,
            cascades,
            self.holes,
            self.units,
            call.stacked(),
            self.visible,
        )

    def unroll(
        self, head: Head, h: Tensor, x: Tensor | None = None, /, **inputs: Any
    ) -> Branches:
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
            OptionError, ShapeError, DtypeError: a head that is no function, or an ``x`` or raw values of another shape.

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
        if self.maps:
            raise CascadeError("steps for all outputs (mux.unroll)", has_terms=True)
        self._refuse_holes_in_steps()
        refuse_no_tensor("h", h)
        refuse_uncallable("head", head, "a function of an output, h and what is left")
        given = self.input_columns(inputs, h.shape[:-1])
        return cast(Branches, self(unrolled(self, head, h, x, given), **inputs))

    def _refuse_holes_in_steps(self) -> None:
        """Raises ``CascadeError`` if a head cannot be asked for one output after another: some may be missing."""
        if self.holes is not None:
            raise CascadeError(
                "steps for outputs that may be missing (mux.unroll, mux.options)",
                has_terms=bool(self.maps),
            )

    @property
    def options(self) -> tuple[int, ...]:
        """For every output how many logits a head has to say of it if it is asked for one after another.

        Raises:
            CascadeError: some output may be missing, so that it cannot be asked for in this way.
        """
        self._refuse_holes_in_steps()
        found = [0] * self.out_features
        for columns, maps in self.cascade_parts():
            for step in maps.cascade.steps:
                if step.variable < maps.in_values and step.size > 1:
                    found[int(columns[step.variable])] = step.size
        return tuple(found)

    @property
    def units(self) -> Units | None:
        """The units of outputs that are counted in something else than ones, if there are any."""
        return None if self.unit_table is None else Units(self.unit_table)

    def computed(self, x: Tensor) -> Tensor:
        """What the maps compute for outputs ``(…, D)``: whole numbers of their units, then flags of what is missing."""
        steps = x if self.units is None else self.units.first(x.shape[-1]).inward(x)
        return steps if self.holes is None else self.holes.inward(steps)

    def seen(self, computed: Tensor) -> Tensor:
        """Outputs ``(…, D)`` as they leave the layer, for what the maps compute."""
        x = computed if self.units is None else self.units.outward(computed)
        return x if self.holes is None else self.holes.outward(x)

    @property
    def is_nested(self) -> bool:
        """Whether some terms go on in inner blocks, as they do when the rules have more plain terms than max_terms."""
        return self.layout.is_nested

    @property
    def functions(self) -> Functions:
        """The torch code of opaque functions by name."""
        return {
            name: checked_function(name, f) for name, f in self._given_functions.items()
        }

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
        return zip(self.blocks, self.block_term_maps, strict=True)

    def cascade_parts(self) -> Iterator[tuple[Tensor, CascadeMap]]:
        """The columns of every cascade, and its map."""
        first = len(self.layout.sizes)
        return (
            (self.columns(b), m) for b, m in enumerate(self._cascade_maps, start=first)
        )

    @property
    def _cascade_maps(self) -> list[CascadeMap]:
        return [cast(CascadeMap, maps) for maps in self.cascade_maps]

    @property
    def block_term_maps(self) -> list[TermMaps]:
        """The maps of the terms of every block, inner ones included."""
        return [cast(TermMaps, maps) for maps in self.maps]

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
            InputError: no number, one outside the declared range, or no input of the rules.

        Example:
            >>> rules = Rules("u: input[0, 6]; x: real; y: real; -3 <= x <= 3; 0 <= y <= 3; x + y == u")
            >>> mux = Multiplexer(rules, dtype=torch.bfloat16)
            >>> given = mux.on_grid(u=0.1)
            >>> bool((mux(torch.randn(1, 2).bfloat16(), **given).best().sum(-1) == given["u"]).all())
            True
        """
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return self._inputs.on_grid(inputs, like)

    @in_full_precision
    def input_columns(
        self, given: Mapping[str, Any], batch: torch.Size
    ) -> Tensor | None:
        """The inputs side by side, ``(*batch, I)``, in the dtype of the layer; ``None`` if the rules have none."""
        scalars = self.rules.scalar_inputs(given)
        if not scalars:
            return None
        like = torch.empty(0, dtype=self.dtype, device=self.device).expand(*batch, 0)
        conditions = [cast(TermMaps, maps) for maps in self.conditions]
        functions = self.functions if conditions else {}
        return self._inputs.read(scalars, like, conditions, functions)

    # --- other dtypes, devices and processes ------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """The rules and their compiled terms as JSON bytes, so that logit k keeps its meaning."""
        return saved_state(self.rules.specification, self._blueprint)

    def set_extra_state(self, state: Any) -> None:
        """Takes over the terms that were saved; they must be of the same rules."""
        saved = SavedLayer(record_in(state))
        with reading("a layer"):
            own = self._blueprint
            blueprint = saved.taken_over(own, self.rules.specification)
            device = self.device
            lost = device.type == "meta"
            if lost or not blueprint.is_like(own) or fingerprint(self) != self._seal:
                self._build(blueprint)
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
        if isinstance(state, Mapping):
            state = state.get("_extra_state")
        saved = SavedLayer(record_in(state))
        with reading("a layer"):
            specification = saved.specification()
            blueprint = saved.blueprint(specification, boxes)
            mux = cls.__new__(cls)
            mux._start(Rules.from_specification(specification), blueprint, functions)
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
        precision: Arithmetic = "float64",
    ) -> Multiplexer:
        """The layer of rules that have been compiled already; see the constructor.

        Example:
            >>> rules = Rules("x >= 2 or x <= -2")
            >>> Multiplexer.from_compiled(rules, rules.compile(), dtype=torch.bfloat16).dtype
            torch.bfloat16
        """
        settings = Settings(max_terms, per_term, boxes, equality, precision=precision)
        refuse_uncovered(compiled)
        chosen = dtype or torch.get_default_dtype()
        mux = cls.__new__(cls)
        mux._start(rules, Blueprint(compiled, chosen, settings), functions)
        return mux
