"""Faults planted on purpose: each safeguard is switched off in turn, and the campaign has to find that out.

    python -m benchmarks.faults [--only NAME] [--formulas N] [--results FOLDER] [--jobs N] [--resume]

A fault is a patch of one or two functions. While it is in force the trials of the campaign run from number 0 on, as in
``python -m campaign --seed 0``, until one of them reports a violation; without any fault the first hundred of them
report none. faults.json and faults.md say after how many formulas and seconds each fault was found, and by which check.
Results are written as they come; with ``--resume`` a fault that was hunted with the present code is not hunted again.
A second line of defence cannot be noticed while the first one holds: it is left out alone to show that, and, where both
can be, together with the first.

A new safeguard gets one line in ``FAULTS``: its name, what is done instead, the patches (an object, the name of its
attribute, what stands there instead), and, if one attack is there to notice it, ``by="round trip"``: how the names of
the checks begin that have to find it. ``_silent`` refuses nothing; ``_unchanged`` returns its first argument.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import campaign.trial as trial_module
from campaign.cascade_faults import CASCADE_FAULTS, one_gap
from campaign.cascades import CASCADES
from campaign.run import code, versions
from campaign.trial import Outcome, trial
from campaign.variants import sentence
from multiplexnet.compiler import compile as dnf
from multiplexnet.compiler import proof as certify
from multiplexnet.compiler import tidy
from multiplexnet.compiler.cascade import late_rows as late_compiler
from multiplexnet.compiler.cascade.build import Cascade
from multiplexnet.compiler.implicants import Implicants
from multiplexnet.compiler.shapes import Shaped, shaped
from multiplexnet.compiler.terms import Block
from multiplexnet.compiler.tidy import Tidy
from multiplexnet.exact.formats import Format, power_of_two
from multiplexnet.geometry import boxes, elimination, grids, magnitudes, split
from multiplexnet.geometry import lattice as lattices
from multiplexnet.language.formula import Atom, Formula, Linear, conjunction
from multiplexnet.language.parser import operations
from multiplexnet.language.parser.comparisons import comparison
from multiplexnet.language.parser.values import Number
from multiplexnet.layer import branches, repair
from multiplexnet.layer import multiplexer as layer
from multiplexnet.layer.branches import Choice
from multiplexnet.layer.construction.blueprint import Blueprint
from multiplexnet.layer.inputs import columns as input_columns
from multiplexnet.layer.inputs import numbers as inputs
from multiplexnet.layer.inputs import ranges
from multiplexnet.layer.inputs.assumptions import Assumptions
from multiplexnet.layer.inputs.ranges import FloatRange
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.transforms import (
    base,
    curves,
    gauge,
    grouping,
    lattice,
    separable,
    single,
    tables,
)
from multiplexnet.transforms.cascade import late_rows as late
from multiplexnet.transforms.run_time import (
    guards,
    intervals,
    parametric,
    spheres,
    triangular,
)
from multiplexnet.transforms.run_time.curved_guards import CurvedGuards
from multiplexnet.transforms.run_time.guards import Condition, Guards
from multiplexnet.transforms.run_time.intervals import Intervals
from multiplexnet.transforms.run_time.parametric import ParametricGauge
from multiplexnet.transforms.run_time.reading import Read
from multiplexnet.transforms.tables import Derived, Tabled
from multiplexnet.transforms.term_maps import TermMaps
from multiplexnet.verdicts import columns as exact
from multiplexnet.verdicts import curves as verdict_curves
from multiplexnet.verdicts import evaluation
from multiplexnet.verdicts.numbers import fraction_of

SEED = 0
ROWS = 400
"""That each trial asks for."""
MOST_FORMULAS = 3000
MOST_SECONDS = 3000.0
"""Of processor time: when the search for a fault is given up."""
QUIET = 150
"""Trials that a second line of defence is left out for, and that find nothing without any fault."""

Patch = tuple[Any, str, Any]
"""An object, the name of its attribute, and what stands there instead."""


@dataclass(frozen=True)
class Fault:
    """One safeguard, and how it is switched off.

    Args:
        name: of the safeguard.
        what: what is done instead.
        patches: made when the fault is planted.
        second_line: why it cannot be noticed alone, if it cannot.
        by: how the names of the checks begin that have to find it (any check: an empty text).
        among: the kinds of sentences that are tried (all kinds: none are named).
    """

    name: str
    what: str
    patches: Callable[[], Sequence[Patch]]
    second_line: str = ""
    by: str = ""
    among: tuple[str, ...] = ()


# --- the faults -----------------------------------------------------------------------------------------------------


def _contraction() -> Sequence[Patch]:
    honest = gauge.gauge_rows

    def rows(*arguments: Any, unit: float, tiny: float) -> gauge.GaugeRows:
        return honest(*arguments, unit=0.0, tiny=0.0)

    return [(gauge, "gauge_rows", rows), (gauge, "SAFETY", 0.0), *_no_float32_margin()]


def _no_float32_margin() -> Sequence[Patch]:
    return [(single, "added_errors", lambda rows, errors: torch.zeros_like(errors))]


def _curved_contraction() -> Sequence[Patch]:
    honest = curves.cone_rows

    def rows(cones: Any, anchor: Any, margins: curves.Margins) -> curves.ConeRows:
        return honest(cones, anchor, margins._replace(unit=0.0, tiny=0.0, safety=0.0))

    return [(gauge, "cone_rows", rows)]


def _rounded_centre() -> Sequence[Patch]:
    """The room of a cone as it is before the point is rounded."""
    honest = curves.cone_rows

    def rows(cones: Any, anchor: Any, margins: curves.Margins) -> curves.ConeRows:
        found = honest(cones, anchor, margins)
        left = np.array([float(share) for share in found.left])
        scale = np.where(left > 0, left, 1.0)[:, None]
        return curves.ConeRows(
            found.W * scale, found.E * 0, found.L * scale[..., None], found.left
        )

    return [(gauge, "cone_rows", rows)]


def _no_lengths(q: Tensor, index: Any, table: Tensor) -> tuple[Tensor, Tensor]:
    inside, length = curves.lengths(
        gauge.times(table.flatten(1, 2), q, index), table.shape[1]
    )
    return inside, 0 * length


def _shape_without_constants(*groups: Sequence[Formula]) -> Shaped | None:
    own = shaped(*groups)
    if own is None:
        return None
    zero = Fraction(0)
    shape = tuple(tuple(row._replace(constant=zero) for row in g) for g in own.shape)
    return replace(own, shape=shape)


def _sure_lengths() -> Sequence[Patch]:
    honest = verdict_curves.bounded_norm

    def exact_lengths(*arguments: Any) -> Any:
        near, _ = honest(*arguments)
        return near, np.zeros_like(near)

    return [(evaluation, "bounded_norm", exact_lengths)]


def _contraction_at_run_time() -> Sequence[Patch]:
    honest = ParametricGauge.__init__

    def start(self: ParametricGauge, *arguments: Any) -> None:
        honest(self, *arguments)
        self.precision = replace(self.precision, unit=0.0, tiny=0.0)
        for table, without in (
            (self.tiny, 0.0),
            (self.kept, 1.0),
            (self.shrunk, 1.0),
            (self.grown, 1.0),
        ):
            table.fill_(without)

    return [(ParametricGauge, "__init__", start)]


def _nearest_bound(bound: Fraction, row: Atom, form: Format) -> Fraction:
    return form.rounded(bound)


def _strictness() -> Sequence[Patch]:
    def closed(honest: Callable[..., Fraction]) -> Callable[..., Fraction]:
        def end(bound: Fraction, row: Atom, form: Format) -> Fraction:
            return honest(bound, replace(row, relation="<="), form)

        return end

    return [
        (boxes, "_at_most", closed(boxes._at_most)),
        (boxes, "_at_least", closed(boxes._at_least)),
    ]


def _nearest_ends() -> Sequence[Patch]:
    return [
        (boxes, "_at_most", _nearest_bound),
        (boxes, "_at_least", _nearest_bound),
    ]


def _never_negative(honest: Callable[..., Any]) -> Callable[..., Any]:
    def part(self: late.Budgets, variable: int, coefficient: Any, sign: int) -> Any:
        return honest(self, variable, coefficient, sign or 1)

    return part


def _is_largest(numbers: Sequence[Linear], place: int) -> Formula:
    own = Number(numbers[place])
    return conjunction(comparison("<=", Number(other), own) for other in numbers)


def _one_case(honest: Callable[..., Any]) -> Callable[..., Any]:
    def cases(atom: Atom) -> Iterator[Any]:
        every = list(honest(atom))
        return iter([(every[-1][0], others) for _, others in every])

    return cases


def _unsorted(self: Any, terms: Any) -> Block:
    return Block(self.component.outputs, tuple(dict.fromkeys(terms)))


def _clamp() -> Sequence[Patch]:
    honest = separable._tables

    def open_ended(*arguments: Any) -> dict[str, Tensor]:
        tables = honest(*arguments)
        inf = torch.full_like(tables["lower"], torch.inf)
        return {**tables, "lower": -inf, "upper": inf}

    return [(separable, "_tables", open_ended)]


def _widths(lower: Tensor, upper: Tensor, dtype: torch.dtype) -> Tensor:
    return (upper - lower).clamp(max=torch.finfo(dtype).max).to(dtype).double()


def _straight_through(value: Tensor, smooth: Tensor) -> Tensor:
    return smooth + (value - smooth).detach()


def _no_range_rows(anchor: Sequence[Fraction], precision: Any) -> gauge.GaugeRows:
    nothing = np.zeros((len(anchor), len(anchor)))
    return gauge.GaugeRows(nothing, nothing)


def _without_error(
    values: Tensor,
    matrix: Tensor,
    constant: Tensor,
    index: Tensor | None,
    underflow: Tensor,
) -> tuple[Tensor, Tensor]:
    total = gauge.times(matrix, values, index) + constant
    return total, torch.zeros_like(total)


def _silent(*arguments: Any, **options: Any) -> None:
    """Refuses nothing."""


def _unchanged(first: Any, *arguments: Any, **options: Any) -> Any:
    """Checks nothing."""
    return first


def _all_hold() -> Sequence[Patch]:
    def patched(kind: type[Condition]) -> Patch:
        honest = kind.feasible

        def feasible(
            self: Condition, parameters: Tensor, index: Tensor | None = None
        ) -> Tensor:
            return torch.ones_like(honest(self, parameters, index))

        return kind, "feasible", feasible

    return [patched(Guards), patched(CurvedGuards)]


def _number(value: float, count: int, axes: int = 1) -> Tensor:
    """A margin whose row 0 is a plain number, which ONNX's exporter may leave out."""
    return torch.full((count,), value, dtype=torch.float64)


def _zeros_for_nan() -> Sequence[Patch]:
    honest = Choice.terms

    def terms(
        self: Choice, start: int, stop: int, instead: Tensor | None = None
    ) -> Tensor:
        return honest(
            self, start, stop, self.raw.new_zeros(()) if instead is None else instead
        )

    return [(Choice, "terms", terms)]


def _uncast() -> Sequence[Patch]:
    honest = Multiplexer._build

    def build(self: Multiplexer, blueprint: Blueprint, *rest: Any) -> Any:
        if "dtype" not in vars(self):
            return honest(self, blueprint, *rest)
        self.dtype = blueprint.dtype
        return []

    return [(Multiplexer, "_build", build)]


def _with_subnormals() -> Sequence[Patch]:
    """The formats of the geometry, whose numbers may be subnormal; a mode can flush them."""
    return [
        (Format, "tiny", property(lambda form: power_of_two(form.least_exponent))),
        (Format, "tiny_exponent", property(lambda form: form.least_exponent)),
    ]


def _nearest_input(variable: Any, number: Any, form: Format, side: int) -> float:
    return float(form.rounded(fraction_of(number)))


def _as_buffers(self: Tabled, held: Mapping[str, Tensor | None]) -> None:
    self.table_names = tuple(held)
    for name, table in held.items():
        self.register_buffer(name, table, persistent=False)


def _unmade() -> Sequence[Patch]:
    honest = Derived._settle

    def settle(
        self: Derived, device: torch.device, dtype: torch.dtype | None = None
    ) -> None:
        if self.device.type == "meta" and device.type != "meta":
            for _, part in tables._tabled(self):
                found = {
                    name: torch.empty_like(table, device=device)
                    for name, table in part.own_tables().items()
                }
                part.hold({**dict.fromkeys(part.table_names), **found})
        honest(self, device, dtype)

    return [(Derived, "_settle", settle)]


def _float_signs(form: Any) -> tuple[Any, Any]:
    return np.sign(form.value).astype(np.int8), form.value


def _always_flushed() -> Sequence[Patch]:
    """Every layer is asked while subnormal numbers are taken for zero, not some of them."""
    attack, _ = trial_module.ATTACKS["flushing"]
    return [
        (trial_module, "ATTACKS", {**trial_module.ATTACKS, "flushing": (attack, 1.0)})
    ]


FAULTS = (
    Fault("contraction", "the gauge map leaves nothing for rounding", _contraction),
    Fault("margin of float32", "products in float32 are taken to be as good as those in float64", _no_float32_margin),
    Fault("ranges of float32", "products in float32 may leave its numbers", lambda: [
        (single, "_in_range", lambda rows, least_error: True), (gauge, "float32_cut", lambda tables: base.LIMIT)],
        among=("closed",)),
    Fault("contraction at run time", "nor does it where bounds are inputs", _contraction_at_run_time),
    Fault("contraction of curved walls", "balls and cones leave nothing for rounding", _curved_contraction,
        by="curves"),
    Fault("rounding at curved walls", "the point is taken to be where it was before it was rounded", _rounded_centre,
        by="curves"),
    Fault("gauge of a cone", "its norm is left out", lambda: [
        (gauge, "curved", _no_lengths)], by="curves"),
    Fault("verdicts on lengths", "float64 is taken to have roots exactly", _sure_lengths, by="curves"),
    Fault("lengths of moved balls", "numbers are squared as they are, whatever their size", lambda: [
        (spheres, "_length", lambda parts, tiny: parts.square().sum(-1).sqrt() + tiny)], by="moved balls"),
    Fault("shapes", "blocks that differ by a constant alone are taken for the same", lambda: [
        (tidy, "shaped", _shape_without_constants)], by="sparse"),
    Fault("units of distributions", "draws are whole numbers of a unit", lambda: [
        (layer.Multiplexer, "seen", lambda self, x: x)], by="words: distribution"),
    Fault("loose rows", "rounding is taken to carry a point no further than it was", lambda: [
        (gauge, "LOOSE", 1.0), (parametric, "LOOSE", 1.0)]),
    Fault("range rows", "the gauge map may leave the format", lambda: [(gauge, "range_rows", _no_range_rows)]),
    Fault("inward rounding", "bounds are rounded to nearest", _nearest_ends),
    Fault("strictness", "< is taken for <= in boxes", _strictness),
    Fault("whole numbers", "they need not be numbers of the format", lambda: [
        (split, "_exact_value", lambda value, row, form: value)]),
    Fault("magnitudes", "numbers that float64 cannot work with are let in", lambda: [
        (split, "refuse_far", _silent), (lattices, "refuse_far", _silent), (elimination, "refuse_far_rows", _silent)]),
    Fault("widths", "an interval is lower + (upper − lower) σ", lambda: [(separable, "_widths", _widths)]),
    Fault("clamp", "half-lines and free outputs are not clamped to the format", _clamp),
    Fault("exact straight-through", "smooth + (value − smooth) instead of value + (smooth − smooth)", lambda: [
        (separable, "exactly", _straight_through)]),
    Fault("lattice", "solutions of equalities are not rounded to their grid", lambda: [
        (torch, "round", lambda t: t)]),
    Fault("outward step", "ends that are inputs are met without a step for rounding", lambda: [
        (Intervals, "_outward", lambda self, y: y)]),
    Fault("strictness at run time", "< is taken for <= where ends are inputs", lambda: [
        (intervals, "_above", lambda y, ends, strict: y >= ends)]),
    Fault("errors of slacks", "slacks and ends at run time are taken as computed", lambda: [
        (parametric, "affine", _without_error), (intervals, "affine", _without_error)]),
    Fault("cut of raw values", "infinite raw values go into the maps", lambda: [
        (gauge, "finite", lambda raw, dtype=torch.float64, cut=0.0: raw.to(dtype)),
        (parametric, "finite", lambda raw: raw.double()),
        (separable, "_cut", lambda z: z)]),
    Fault("reach of raw values", "raw values are measured by rows of any size", lambda: [
        (gauge, "FURTHEST", torch.inf)],
        "rows of such a size are refused when the layer is built"),
    Fault("quotients and reach of raw values", "rows of any size are let in and measure raw values", lambda: [
        (magnitudes, "LARGEST_QUOTIENT", torch.inf), (gauge, "FURTHEST", torch.inf)], by="rows", among=("ends",)),
    Fault("NaN in eval", "NaN is not read as 0", lambda: [(TermMaps, "_read", lambda self, raw: raw)]),
    Fault("mask", "terms without room for the inputs are not masked", lambda: [
        (TermMaps, "feasible", lambda self, *arguments, **options: None)]),
    Fault("guards", "conditions on inputs are not looked at", _all_hold),
    Fault("ends of guards", "they end at the nearest float", lambda: [(guards, "down", float)]),
    Fault("range of inputs", "inputs outside their range are let in", lambda: [
        (FloatRange, "contains", lambda self, values: torch.ones_like(values, dtype=torch.bool))]),
    Fault("rows that cannot obey", "a graph gives numbers for them", lambda: [
        (Choice, "without", lambda self, rows: self)]),
    Fault("half rows", "a graph gives the outputs that a lost function does not bound", lambda: [
        (branches, "whole_rows", lambda x: x), (trial_module, "RECORDED", 1.0)],
        by="a recorded graph", among=("functions",)),
    Fault("tables in ONNX", "they are constants, which ONNX Runtime reads as float32 and may leave out", lambda: [
        (base, "_solid", lambda *arguments, **options: nullcontext()), (trial_module, "RECORDED", 1.0)],
        by="a recorded graph", among=("closing",)),
    Fault("ranges in ONNX", "their ends are plain numbers, which its exporter makes float32", lambda: [
        (ranges, "exact_number", _unchanged), (trial_module, "RECORDED", 1.0)],
        by="a recorded graph", among=("inputs",)),
    Fault("impossible terms", "they are 0 in x", _zeros_for_nan),
    Fault("stand-ins", "losses see NaN for terms that cannot be met", lambda: [
        (Choice, "stand_in", lambda self: None)], by="losses", among=("deciding", "inputs", "wide")),
    Fault("rows that cannot be repaired", "they come back as they are", lambda: [
        (repair, "refuse_unmoved", _silent)]),
    Fault("margins in ONNX", "they are plain numbers, which the exporter leaves out", lambda: [
        (intervals, "margin", _number), (parametric, "margin", _number), (guards, "margin", _number)]),
    Fault("uncovered inputs", "inputs that leave no output are not looked for", lambda: [
        (trial_module, "uncovered_input", lambda compiled: None)]),
    Fault("contradictions", "they are not looked for", lambda: [
        (dnf, "_refuse_contradiction", _silent)]),
    Fault("prime implicants", "literals that are not needed stay", lambda: [
        (Implicants, "_shrunk", lambda self, literals: literals)]),
    Fault("irredundant cover", "terms that are not needed stay", lambda: [
        (dnf, "irredundant", lambda sandbox, found, table, known: [implicant.literals for implicant in found])]),
    Fault("term order", "terms stay as they were found", lambda: [(dnf._BlockCompiler, "_sorted", _unsorted)]),
    Fault("certificate", "every implication is believed", lambda: [
        (certify._Checker, "imply", lambda self, *arguments: True),
        (certify._Checker, "_all_imply", lambda self, *arguments: True)]),
    Fault("subnormal bounds", "bounds are rounded to numbers that a mode takes for zero", _with_subnormals),
    Fault("subnormal inputs", "they are read as the processor reads them", lambda: [
        (module, "read", lambda values: Read(values.double(), None, True))
        for module in (intervals, parametric, guards, ranges)] + [*_always_flushed()],
        among=("subnormal", "inputs", "wide", "closing")),
    Fault("subnormal ends", "ends that are inputs are met by numbers that a mode takes for zero", lambda: [
        (Intervals, "_normal", lambda self, ends: ends),
        (intervals, "kept", lambda y, precision: y.to(precision.dtype).double()), *_always_flushed()],
        among=("subnormal", "inputs", "wide")),
    Fault("anchors at run time", "they may lie next to the numbers that are flushed", lambda: [
        (parametric, "clear_of_zero", lambda y, precision: y)],
        "only a row within a few subnormal numbers of its anchor would notice"),
    Fault("subnormal verdicts", "Rules.satisfied computes with subnormal numbers", lambda: [
        (exact, "_flushes", lambda: False)]),
    Fault("sides of numbers", "an input that the dtype does not hold is the nearest float", lambda: [
        (inputs, "_neighbour", _nearest_input)]),
    Fault("levels of rows", "rows at run time may overflow", lambda: [
        (module, "level", lambda coefficients, constant: Fraction(1)) for module in (intervals, parametric, guards)],
        "a row that overflows is NaN, and a part with such a row counts as infeasible"),
    Fault("cut of directions", "around an anchor, directions and ends may overflow", lambda: [
        (parametric, "FAR", torch.inf), (parametric, "LARGEST64", torch.inf),
        (grouping, "Triangular", ParametricGauge)], by="rows", among=("wide",)),
    Fault("one after another", "outputs that bound each other at run time stay around an anchor", lambda: [
        (grouping, "Triangular", ParametricGauge)], by="points are reached", among=("moved",)),
    Fault("numbers left", "a point is taken as it is where a step has no number of the format left", lambda: [
        (triangular, "_is_all", lambda met: True)], among=("moved",)),
    Fault("room in repair", "rows without room come back as they were", lambda: [
        (repair, "refuse_unmoved", _silent)]),
    Fault("exact verdict", "Rules.satisfied decides by the signs of floats", lambda: [
        (exact, "_signs_and_values", _float_signs)]),
    Fault("cast", "a layer keeps its tables when it is cast", _uncast),
    Fault("tables as state", "tables are buffers, which torch's tools write to", lambda: [
        (Tabled, "hold", _as_buffers)]),
    Fault("tables made anew", "a layer that comes from the meta device takes its memory as it is", _unmade),
    Fault("tables looked at", "a certificate once issued is believed", lambda: [
        (layer, "fingerprint", lambda module: "")]),
    Fault("rules about inputs", "rows that break a rule about inputs alone are let in", lambda: [
        (input_columns, "refuse_broken_inputs", lambda met, inputs, *rest: inputs)]),
    Fault("autocast", "it is left on inside the layer", lambda: [
        (torch, "is_autocast_enabled", lambda *arguments: False)]),
    Fault("implicit equalities", "flat terms keep their inequalities", lambda: [
        (Tidy, "_implicit_equalities", lambda self, rows: [])],
        "the geometry finds them again when the set proves too thin"),
    Fault("hidden equalities", "the geometry does not look for them", lambda: [
        (split, "_hidden_equalities", lambda *arguments: [])],
        "the compiler has written them down as equalities"),
    Fault("implicit and hidden equalities", "both", lambda: [
        (Tidy, "_implicit_equalities", lambda self, rows: []),
        (split, "_hidden_equalities", lambda *arguments: [])], among=("points", "degenerate")),
    Fault("range of the grid", "outputs in equalities go as far as the format, whatever their step", lambda: [
        (grids, "_held", lambda grain, form: form.max)]),
    Fault("exactness of the grid", "sums on the lattice are not checked to be exact", lambda: [
        (lattice, "check_exact", lambda part: None)],
        "the geometry chooses the step of the grid so that they are"),
    *(Fault(name, what, patches, among=tuple(CASCADES)) for name, (what, patches) in CASCADE_FAULTS.items()),
    Fault("cascade: ranks", "of many gaps one is seen", one_gap, among=("apart",)),
    Fault("assumptions", "rows that break an assumption about inputs are let in", lambda: [
        (Assumptions, "kept", lambda self, inputs, given: inputs)], by="coefficients"),
    Fault("margin of a quotient", "what is left of a budget over a price is taken as it is rounded", lambda: [
        (late, "MARGIN", 1.0)], by="coefficients"),
    Fault("either sign", "a coefficient that may have either sign is taken for one that is never negative", lambda: [
        (late.Budgets, "_part", _never_negative(late.Budgets._part))], by="coefficients"),
    Fault("cases of a truth value", "where it is off, the bound is that where it is on", lambda: [
        (late_compiler, "_cases", _one_case(late_compiler._cases))], by="coefficients"),
    Fault("outputs that are torn", "nothing is left to an output, and the row is let in all the same", lambda: [
        (Cascade, "torn", property(lambda self: None))], by="coefficients"),
    Fault("ties of argmax", "each of the largest numbers is the first of them", lambda: [
        (operations, "_is_first", _is_largest)], by="words"),
)  # fmt: skip
"""Every safeguard that can be switched off."""


# --- the hunt -------------------------------------------------------------------------------------------------------


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The fault in force."""
    with ExitStack() as stack:
        for target, name, instead in fault.patches():
            stack.enter_context(patch.object(target, name, instead))
        yield


@dataclass(frozen=True)
class Hunt:
    """What came of the trials with one fault in force."""

    name: str
    what: str
    found: bool
    formulas: int
    seconds: float
    cpu_seconds: float
    check: str = ""
    example: str = ""
    second_line: str = ""
    code: str = ""


def hunted(
    fault: Fault,
    most: int = MOST_FORMULAS,
    *,
    run: Callable[[int, int, int], Outcome] = trial,
) -> Hunt:
    """Trials from number 0 on (of the kinds that are named) until a violation counts, or there were enough of them."""
    start = perf_counter()
    cpu = process_time()
    most = min(most, QUIET) if fault.second_line else most
    check = example = ""
    number = 0
    numbers = (
        n for n in count() if not fault.among or sentence(SEED, n).kind in fault.among
    )
    with planted(fault):
        while not check and number < most and process_time() - cpu < MOST_SECONDS:
            outcome = run(SEED, next(numbers), ROWS)
            number += 1
            first = next(
                (
                    found
                    for found in outcome.violations
                    if found.check.startswith(fault.by)
                ),
                None,
            )
            if first is not None:
                check = first.check
                example = first.what.strip().splitlines()[-1][:200]
    return Hunt(
        fault.name,
        fault.what,
        bool(check),
        number,
        round(perf_counter() - start, 1),
        round(process_time() - cpu, 1),
        check,
        example,
        fault.second_line,
        code(),
    )


NOTHING = Fault(
    "none",
    "nothing is switched off",
    lambda: [],
    second_line="there is nothing to find",
)


def table(hunts: Sequence[Hunt]) -> str:
    """The findings as Markdown."""
    lines = [
        "Written by `python -m benchmarks.faults`; trials as in `python -m campaign --seed 0`, from number 0 on.",
        "",
        "| safeguard | switched off: | found by | formulas | seconds | of processor |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for hunt in hunts:
        found = hunt.check if hunt.found else "nothing"
        why = f" (second line: {hunt.second_line})" if hunt.second_line else ""
        lines.append(
            f"| {hunt.name} | {hunt.what}{why} | {found} | {hunt.formulas} | {hunt.seconds} | {hunt.cpu_seconds} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--only", nargs="*", help="names of safeguards")
    parser.add_argument(
        "--formulas", type=int, default=MOST_FORMULAS, help="give up after so many"
    )
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the results of faults hunted with this code",
    )
    options = parser.parse_args()
    names = [fault.name for fault in (NOTHING, *FAULTS)]
    known = _read(options.results)
    done = {
        name: hunt
        for name, hunt in known.items()
        if options.resume and hunt.code == code()
    }
    left = [name for name in names if name not in done]
    if options.only:
        left = [name for name in names if name in options.only]
        done = known
    for hunt in hunts_of(left, options.formulas, options.jobs):
        print(json.dumps(asdict(hunt), ensure_ascii=False), flush=True)
        done[hunt.name] = hunt
        _write(options.results, [done[name] for name in names if name in done])


def hunts_of(names: Sequence[str], most: int, jobs: int) -> Iterator[Hunt]:
    """The hunts for these faults, each as soon as it is over."""
    if jobs == 1:
        yield from (_hunted_by_name(name, most) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed(
            [pool.submit(_hunted_by_name, name, most) for name in names]
        ):
            yield done.result()


def _hunted_by_name(name: str, most: int) -> Hunt:
    """In a process of its own there are no patches to hand over, only names."""
    torch.set_num_threads(1)
    return hunted(
        next(fault for fault in (NOTHING, *FAULTS) if fault.name == name), most
    )


def _read(folder: Path) -> dict[str, Hunt]:
    """What was written before, by name."""
    path = folder / "faults.json"
    if not path.exists():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    return {hunt["name"]: Hunt(**hunt) for hunt in record["hunts"]}


def _write(folder: Path, hunts: Sequence[Hunt]) -> None:
    folder.mkdir(exist_ok=True)
    record = {
        "command": "python -m benchmarks.faults",
        **versions(),
        "rows": ROWS,
        "hunts": [asdict(h) for h in hunts],
    }
    (folder / "faults.json").write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / "faults.md").write_text(table(hunts), encoding="utf-8")


if __name__ == "__main__":
    main()
