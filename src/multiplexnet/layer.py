"""``Multiplexer``: rules as a layer that cannot break them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn

from multiplexnet.branches import Branches, Choice, Inner
from multiplexnet.certificate.document import Certificate
from multiplexnet.certificate.issue import Made, issued
from multiplexnet.compiler.cascade import Budget, Cascade
from multiplexnet.compiler.cascade_record import cascade_from, record_of_cascade
from multiplexnet.compiler.cascade_structure import Structure, cascade_of_part, planned, rule_parts
from multiplexnet.errors import CascadeError, DtypeError, InputError, NestedError, RecordError, ShapeError
from multiplexnet.geometry.formats import FORMATS as EXACT_FORMATS
from multiplexnet.geometry.nearest import nearest_parts
from multiplexnet.geometry.parts import Part
from multiplexnet.geometry.split import parts_of
from multiplexnet.logic.formula import Atom, Specification, Variable
from multiplexnet.logic.record import (
    compiled_from,
    flag_from,
    list_from,
    reading,
    record_of_compiled,
    record_of_specification,
    specification_from,
    whole_from,
)
from multiplexnet.logic.terms import Block, Compiled, Term
from multiplexnet.refusals import (
    checked_function,
    refuse_changed,
    refuse_out_of_range,
    refuse_roomless,
    refuse_stuck,
    refuse_uncovered,
    refuse_unknown_functions,
)
from multiplexnet.rules import Rules
from multiplexnet.transforms.base import FORMATS, in_full_precision
from multiplexnet.transforms.cascade import CascadeMap
from multiplexnet.transforms.cascade_choice import CascadeChoice
from multiplexnet.transforms.choose import Boxes, TermMaps
from multiplexnet.transforms.separable import Separable

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
    rows, fixed = (row for term in terms for row in term.rows), (pair for term in terms for pair in term.fixed)
    joined = Block(tuple(outputs), (Term(tuple(rows), tuple(fixed)),))
    return sorted([joined, *(block for block in blocks if block not in boxes)], key=lambda b: b.outputs[0].index)


def _is_box(term: Term) -> bool:
    """Whether every row bounds one output, by a number or by inputs."""
    symbols = [[symbol for symbol, _ in row.linear.terms] for row in term.rows]
    others = [[s for s in row if not (isinstance(s, Variable) and s.is_input)] for row in symbols]
    return not term.blocks and all(len(s) == 1 and isinstance(s[0], Variable) for s in others)


def _with_inner(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, then those that their terms go on in, each once however often it is shared."""
    found, seen = list(blocks), {id(block) for block in blocks}
    for block in found:  # it grows while we walk
        for inner in (inner for term in block.terms for inner in term.blocks):
            if id(inner) not in seen:
                seen.add(id(inner))
                found.append(inner)
    return found


class Multiplexer(nn.Module):
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
            computes outputs one after another where they would explode or an equality holds inputs.
        order: names of outputs in the order in which a cascade shall compute them; others follow.
        budget: what the projections of a cascade may cost.

    Raises:
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
    _certificate: Certificate | None
    _budget: Budget | None

    def __init__(
        self,
        rules: Rules,
        *,
        max_terms: int = 4096,
        cover: Any = None,
        dtype: torch.dtype | None = None,
        per_term: bool = False,
        functions: Functions | None = None,
        boxes: Boxes = Separable,
        equality: Equality = "exact",
        structure: Structure = "auto",
        order: Sequence[str] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if equality not in ("exact", "nearest"):
            raise ValueError(f'equality = {equality!r}; it is "exact" or "nearest"')
        if structure not in ("auto", "terms", "cascade"):
            raise ValueError(f'structure = {structure!r}; it is "auto", "terms" or "cascade"')
        dtype = _checked_dtype(dtype or torch.get_default_dtype())
        if cover is not None or per_term:  # both speak of terms
            structure = "terms"
        named = _named(rules, order)
        plan = planned(rules.specification, structure, EXACT_FORMATS[_name(dtype)], order=named, budget=budget)
        written = Rules.from_specification(plan.terms) if plan.cascades else rules
        compiled = written.compile(max_terms=max_terms, cover=cover, nested=True)
        compiled = replace(compiled, outputs=rules.outputs)
        refuse_uncovered(compiled)
        self._start(rules, compiled, max_terms, per_term, functions or {}, boxes, equality)
        self._budget = budget
        self._build(compiled, dtype, [cascade for _, cascade in plan.cascades])

    def _start(
        self,
        rules: Rules,
        compiled: Compiled,
        max_terms: int,
        per_term: bool,
        functions: Functions,
        boxes: Boxes,
        equality: Equality,
    ) -> None:
        super().__init__()
        if not rules.outputs:
            raise ShapeError("the rules have no outputs: declare one, as in `x: real`")
        refuse_unknown_functions(rules.specification.functions, functions)
        self.rules, self.max_terms, self.per_term = rules, max_terms, per_term
        self._boxes, self._equality = boxes, equality
        self._functions = {n: f for n, f in functions.items() if not isinstance(f, nn.Module)}
        self.modules_of_functions = nn.ModuleDict({n: f for n, f in functions.items() if isinstance(f, nn.Module)})
        self.compiled = compiled

    def _build(self, compiled: Compiled, dtype: torch.dtype, cascades: Sequence[Cascade] = ()) -> None:
        """Geometry and tables of all terms and cascades for one dtype; nothing changes if that is refused."""
        _checked_dtype(dtype)
        outer = _joined([block for block in compiled.blocks if block.outputs])
        blocks = _with_inner(outer)
        made = self._made(blocks, dtype)
        maps = self._tables(made, compiled, dtype)
        self.compiled, self.dtype, self._certificate = compiled, dtype, None
        self.moved = {row: distance for own in made for _, moved in own.terms for row, distance in moved.items()}
        self.maps = nn.ModuleList(maps)
        self.maps.train(self.training)
        self.cascade_maps = nn.ModuleList(CascadeMap(cascade, dtype) for cascade in cascades)
        self.cascade_maps.train(self.training)
        position = {variable: j for j, variable in enumerate(compiled.outputs)}
        columns = [torch.tensor([position[v] for v in block.outputs]) for block in blocks]
        columns += [torch.tensor([position[v] for v in cascade.visible]) for cascade in cascades]
        for b, own in enumerate(columns):
            self.register_buffer(f"columns_{b}", own, persistent=False)
        side_by_side = [*columns[: len(outer)], *columns[len(blocks) :]]
        self.register_buffer("order", torch.cat(side_by_side).argsort(), persistent=False)
        number = {id(block): b for b, block in enumerate(blocks)}
        self._inner = [
            [(k, number[id(inner)]) for k, term in enumerate(block.terms) for inner in term.blocks] for block in blocks
        ]
        self._blocks, self._sizes = tuple(outer), [len(block.terms) for block in blocks]

    def _made(self, blocks: Sequence[Block], dtype: torch.dtype) -> list[Made]:
        form = str(dtype).removeprefix("torch.")
        parts = {"exact": _exact_parts, "nearest": nearest_parts}[self._equality]
        return [Made(block, [parts(term, block.outputs, form) for term in block.terms]) for block in blocks]

    def _tables(self, made: Sequence[Made], compiled: Compiled, dtype: torch.dtype) -> list[TermMaps]:
        return [
            TermMaps(
                [parts for parts, _ in own.terms],
                own.block.outputs,
                dtype,
                boxes=self._boxes,
                inputs=compiled.inputs,
            )
            for own in made
        ]

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

        Raises:
            RecordError: the tables in memory are not those that the terms give.
        """
        if self.cascades:
            raise CascadeError("certificates in this form")
        if self._certificate is None:
            made = self._made(_with_inner(self._blocks), self.dtype)
            refuse_changed(self.maps, nn.ModuleList(self._tables(made, self.compiled, self.dtype)))
            self._certificate = issued(self.rules.specification, self.compiled, made, self.dtype, self._equality)
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
    def resolution(self) -> dict[str, float]:
        """For every output that a cascade computes the spacing of its grid: its values are multiples of it."""
        pairs = (zip(c.visible, c.spacing, strict=False) for c in self.cascades)
        return {variable.name: float(step) for pair in pairs for variable, step in pair}

    @property
    def out_features(self) -> int:
        """The number D of outputs."""
        return len(self.compiled.outputs)

    @property
    def in_features(self) -> int:
        """The number of raw features: values, then the logits of every block with more than one term."""
        return self._values + sum(self._logit_sizes)

    @property
    def _logit_sizes(self) -> list[int]:
        """The logits of every block that has a choice, then of every cascade that has any."""
        blocks = [size for size in self._sizes if size > 1]
        return blocks + [maps.in_logits for maps in self._cascade_maps if maps.in_logits]

    @property
    def _values(self) -> int:
        if not self.per_term:
            return self.out_features
        widths = [self._columns(b).numel() for b in range(len(self._sizes))]
        return sum(size * width for size, width in zip(self._sizes, widths, strict=True))

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self._columns(0).device

    def _columns(self, block: int) -> Tensor:
        return cast(Tensor, getattr(self, f"columns_{block}"))

    def __repr__(self) -> str:
        return f"Multiplexer({self.extra_repr()})"

    def extra_repr(self) -> str:
        """For ``print(module)``."""
        sizes = " × ".join(map(str, self._sizes[:8])) + (" × …" if len(self._sizes) > 8 else "")
        chosen = [f"terms={sizes}"] if sizes else []
        chosen += [f"cascade of {maps.in_values} outputs, {maps.in_logits} options" for maps in self._cascade_maps]
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {', '.join(chosen)}, "
            f"dtype={_name(self.dtype)}"
        )

    # --- what it does -----------------------------------------------------------------------------------------------

    def forward(self, raw: Tensor, /, **inputs: Any) -> Branches:
        """The branches of every row.

        Args:
            raw: ``(*batch, in_features)`` in the dtype of the layer.
            inputs: for every input of the rules a tensor ``(*batch,)`` (a vector input: ``(*batch, n)``) or a number.

        Raises:
            ShapeError, DtypeError, InputError: what was found and what was expected.
        """
        raw = self._checked(raw)
        batch = raw.shape[:-1]
        given = self.input_columns(inputs, batch)
        sizes = [self._values, raw.shape[-1] - self._values]
        values, logits = raw.split_with_sizes(sizes, -1) if sizes[1] else (raw, raw)  # without logits: no copy backward
        choices = self._linked(list(self._choices(values, logits, given)))
        for choice in choices:
            if choice.feasible is not None:
                refuse_roomless(choice.feasible, self.compiled.inputs, self.dtype)
        return Branches(choices, batch, self.max_terms, self.order, tuple(self._cascaded(values, logits, given)))

    def _cascaded(self, values: Tensor, logits: Tensor, inputs: Tensor | None) -> Iterator[CascadeChoice]:
        """The parts that are computed one output after another; their logits come last."""
        logit = sum(size for size in self._sizes if size > 1)
        for b, maps in enumerate(self._cascade_maps, start=len(self._sizes)):
            own = values.index_select(-1, self._columns(b))
            mine = logits[..., logit : logit + maps.in_logits] if maps.in_logits else None
            logit += maps.in_logits
            if inputs is not None and maps.cascade.guards:
                refuse_stuck(maps.refused(inputs), maps.cascade, self.compiled.inputs, self.dtype)
            yield CascadeChoice(maps, own, mine, self._columns(b), inputs)

    def _choices(self, values: Tensor, logits: Tensor, inputs: Tensor | None) -> Iterator[Choice]:
        value, logit, functions = 0, 0, self.functions
        for b, (maps, size) in enumerate(zip(self._maps, self._sizes, strict=True)):
            columns = self._columns(b)
            width = columns.numel()
            if self.per_term:
                own = values[..., value : value + size * width].reshape(*values.shape[:-1], size, width)
                value += size * width
            else:
                own = values if len(self._sizes) == 1 else values.index_select(-1, columns)
            mine = logits[..., logit : logit + size] if size > 1 else None
            logit += size if size > 1 else 0
            feasible = None if inputs is None else maps.feasible(inputs, functions=functions)
            yield Choice(maps, own, mine, columns, feasible, inputs, functions, self.per_term)

    def _linked(self, nodes: list[Choice]) -> tuple[Choice, ...]:
        """The choices of the outer blocks, each with the inner ones of its terms; shared ones stay shared."""
        if not self.is_nested:
            return tuple(nodes)
        done: dict[int, Choice] = {}

        def linked(b: int) -> Choice:
            if b not in done:
                done[b] = nodes[b].with_inner([Inner(term, linked(child)) for term, child in self._inner[b]])
            return done[b]

        return tuple(linked(b) for b in range(len(self._blocks)))

    @property
    def is_nested(self) -> bool:
        """Whether some terms go on in inner blocks, as they do when the rules have more plain terms than max_terms."""
        return any(self._inner)

    @property
    def functions(self) -> Functions:
        """The torch code of opaque functions by name."""
        functions: dict[str, Callable[..., Tensor]] = {**self._functions, **dict(self.modules_of_functions.items())}
        return {name: checked_function(name, f) for name, f in functions.items()}

    def block_maps(self) -> Iterator[tuple[Block, TermMaps]]:
        """Every block that has outputs, with the maps of its terms, if there is nothing but terms."""
        if self.cascades:
            raise CascadeError("maps of all terms")
        return self.term_parts()

    def term_parts(self) -> Iterator[tuple[Block, TermMaps]]:
        """Every block of terms that has outputs, with their maps."""
        if self.is_nested:
            raise NestedError("maps of plain terms")
        return zip(self.blocks, self._maps, strict=True)

    @property
    def _maps(self) -> list[TermMaps]:
        return [cast(TermMaps, maps) for maps in self.maps]

    @property
    def _cascade_maps(self) -> list[CascadeMap]:
        return [cast(CascadeMap, maps) for maps in self.cascade_maps]

    def cascade_parts(self) -> Iterator[tuple[Tensor, CascadeMap]]:
        """The columns of every cascade, and its map."""
        return ((self._columns(b), m) for b, m in enumerate(self._cascade_maps, start=len(self._sizes)))

    def _checked(self, raw: Tensor) -> Tensor:
        if raw.dim() == 0 or raw.shape[-1] != self.in_features:
            logits = self._logit_sizes
            why = f"{self._values} raw values" + (f" + {' + '.join(map(str, logits))} logits" if logits else "")
            raise ShapeError(
                f"raw has shape {tuple(raw.shape)}; its last dimension must be in_features = {self.in_features} ({why})"
            )
        if not raw.is_floating_point():
            raise DtypeError(f"raw has dtype {raw.dtype}; a network's output is floating point: {self.dtype} here")
        if raw.device != self.device:
            raise ShapeError(f"raw is on {raw.device} and the layer on {self.device}: move one of them with .to(…)")
        if raw.dtype != self.dtype:
            if not torch.is_autocast_enabled(raw.device.type):
                raise DtypeError(
                    f"raw has dtype {raw.dtype}, but the guarantee was built for {self.dtype}: convert raw, or the "
                    f"layer with mux.to({raw.dtype}), which builds it anew"
                )
            raw = raw.to(self.dtype)
        return raw

    def repair(self, x0: Tensor, /, **inputs: Any) -> Tensor:
        """Outputs of a network that already exists, moved into the rules where they break them.

        Args:
            x0: ``(*batch, D)`` in the dtype of the layer.
            inputs: as for ``forward``.

        Returns:
            ``(*batch, D)``: rows that obey come back bit for bit, in others every broken block moves to a near point of
            its nearest term. The gradient passes through unchanged.

        Example:
            >>> mux = Multiplexer(Rules("x >= 2 or x <= -2"))
            >>> mux.repair(torch.tensor([[1.5], [-7.0]]))
            tensor([[ 2.],
                    [-7.]])
        """
        from multiplexnet.repair import repaired

        return repaired(self, x0, inputs)

    def on_grid(self, **inputs: Any) -> dict[str, Any]:
        """The inputs; those that outputs of a cascade have to add up to are rounded to the nearest that they can.

        Example:
            >>> rules = Rules("u: input[0, 6]; x: real; y: real; 0 <= x <= 3; 0 <= y <= 3; x + y == u")
            >>> mux = Multiplexer(rules, dtype=torch.bfloat16)
            >>> given = mux.on_grid(u=torch.tensor([0.1], dtype=torch.bfloat16))
            >>> bool((mux(torch.randn(1, 2).bfloat16(), **given).best().sum(-1) == given["u"]).all())
            True
        """
        names = [variable.name for variable in self.compiled.inputs]
        units: dict[str, float] = {}
        for cascade in self.cascades:
            for place, unit in cascade.input_units.items():
                name = names[place].partition("[")[0]
                units[name] = max(units.get(name, 0.0), float(unit))
        return {
            name: _multiple(value, units[name], self.dtype) if name in units else value
            for name, value in inputs.items()
        }

    @in_full_precision
    def input_columns(self, given: Mapping[str, Any], batch: torch.Size) -> Tensor | None:
        """The inputs side by side, ``(*batch, I)``, in the dtype of the layer; ``None`` if the rules have none."""
        scalars = self.rules.scalar_inputs(given)
        if not self.compiled.inputs:
            return None
        columns = [self._input(variable, scalars[variable.name], batch) for variable in self.compiled.inputs]
        return torch.stack(columns, -1)

    def _input(self, variable: Variable, value: Any, batch: torch.Size) -> Tensor:
        tensor = torch.as_tensor(value, device=self.device)
        if isinstance(value, float) or not tensor.is_floating_point():  # Python's numbers have no dtype of their own
            tensor = torch.as_tensor(value, dtype=self.dtype, device=self.device)
        if tensor.dtype != self.dtype:
            raise DtypeError(f"input {variable.name} has dtype {tensor.dtype}; the layer works in {self.dtype}")
        try:
            tensor = tensor.expand(batch)
        except RuntimeError:
            raise ShapeError(
                f"input {variable.name} has shape {tuple(tensor.shape)}; one value per row is {tuple(batch)}"
            ) from None
        return refuse_out_of_range(variable, tensor)

    # --- other dtypes, devices and processes ------------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        probe = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        if probe.dtype != self.dtype and probe.dtype.is_floating_point:
            device = self.device
            self._rebuild(probe.dtype)  # the constants of one dtype cast to another guarantee nothing
            super()._apply(lambda table: table.to(device), recurse)  # type: ignore[no-untyped-call]
        return cast(Self, super()._apply(fn, recurse))  # type: ignore[no-untyped-call]

    def _rebuild(self, dtype: torch.dtype) -> None:
        """The same blocks and cascades for another dtype; each option of a cascade has to keep its meaning."""
        wanted = [set(cascade.visible) for cascade in self.cascades]
        cascades = []
        if wanted:
            form = EXACT_FORMATS[_name(_checked_dtype(dtype))]
            parts = [part for part in rule_parts(self.rules.specification) if set(part.outputs) in wanted]
            inputs = self.compiled.inputs
            for part, old in zip(parts, self.cascades, strict=True):
                order = [v for v in old.order if v in old.visible]
                found = cascade_of_part(part, inputs, form, order=order, budget=self._budget)
                if [step.size for step in found.steps] != [step.size for step in old.steps]:
                    names = ", ".join(v.name for v in part.outputs[:6])
                    raise DtypeError(
                        f"in {dtype} the outputs {names} have other options than in {self.dtype}, so that logits would "
                        "change their meaning: build a new layer for this dtype"
                    )
                cascades.append(found)
        self._build(self.compiled, dtype, cascades)

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
            "cascades": [record_of_cascade(cascade) for cascade in self.cascades],
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
                raise RecordError(f"the saved layer has per_term={record['per_term']}; build this one alike")
            cascades = _cascades_from(record, specification)
            apart = {v for cascade in cascades for v in cascade.visible}
            device, compiled = self.device, compiled_from(record["compiled"], specification, apart)
            if record["dtype"] != _name(self.dtype) and cascades:
                raise RecordError(f"the saved layer is one of {record['dtype']}; build this one for the same dtype")
            same = tuple(cascades) == self.cascades
            if record["compiled"]["blocks"] != record_of_compiled(self.compiled)["blocks"] or not same:
                self._build(compiled, self.dtype, cascades)
                self.to(device)

    @classmethod
    def from_state(cls, state: Any, *, functions: Functions | None = None, boxes: Boxes = Separable) -> Multiplexer:
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
            if record["equality"] not in ("exact", "nearest"):
                raise ValueError("an unknown way with equalities")
            cascades = _cascades_from(record, specification)
            apart = {v for cascade in cascades for v in cascade.visible}
            return cls.from_compiled(
                Rules.from_specification(specification),
                compiled_from(record["compiled"], specification, apart),
                cascades=cascades,
                max_terms=whole_from(record["max_terms"]),
                dtype={str(dtype): dtype for dtype in FORMATS}[f"torch.{record['dtype']}"],
                per_term=flag_from(record["per_term"]),
                functions=functions,
                boxes=boxes,
                equality=record["equality"],
            )

    @classmethod
    def from_compiled(
        cls,
        rules: Rules,
        compiled: Compiled,
        *,
        cascades: Sequence[Cascade] = (),
        max_terms: int = 4096,
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
        mux = cls.__new__(cls)
        mux._start(rules, compiled, max_terms, per_term, functions or {}, boxes, equality)
        mux._budget = None
        mux._build(compiled, dtype or torch.get_default_dtype(), cascades)
        return mux


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _multiple(value: Any, unit: float, dtype: torch.dtype) -> Tensor:
    return ((torch.as_tensor(value, dtype=torch.float64) / unit).round() * unit).to(dtype)


def _checked_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype not in FORMATS:
        names = ", ".join(map(_name, FORMATS))
        raise DtypeError(f"no guarantee can be given in {dtype}; use one of {names}")
    return dtype


def _named(rules: Rules, order: Sequence[str] | None) -> list[Variable] | None:
    """Outputs by their names."""
    if order is None:
        return None
    known = {variable.name: variable for variable in rules.outputs}
    for name in order:
        if name not in known:
            raise InputError(f"order: {name!r} is no output of the rules (they have: {', '.join(list(known)[:12])})")
    return [known[name] for name in order]


def _cascades_from(record: Any, specification: Specification) -> list[Cascade]:
    """The cascades of a saved layer; layers saved before there were any have none."""
    found = [
        cascade_from(one, specification.variables, len(specification.inputs))
        for one in list_from(record.get("cascades", []))
    ]
    outputs = [v for cascade in found for v in cascade.visible]
    if len(set(outputs)) < len(outputs):
        raise RecordError("the saved layer computes an output twice")
    return found


def _exact_parts(term: Term, outputs: tuple[Variable, ...], form: str) -> tuple[tuple[Part, ...], dict[Atom, Fraction]]:
    return parts_of(term, outputs, form), {}


def _record(state: Any) -> Any:
    """The record in a saved state: JSON bytes, which run nothing."""
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.dim() != 1:
        raise RecordError("this is not the state of a Multiplexer: its _extra_state is a vector of bytes")
    try:
        record = json.loads(state.cpu().numpy().tobytes())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"this is not the state of a Multiplexer ({error})") from None
    if not isinstance(record, dict) or record.get("version") != 1:
        raise RecordError("this is not the state of a Multiplexer: a record of version 1 is expected")
    return record
