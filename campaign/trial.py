"""One sentence through the whole road: text, terms, certificate, four layers, rows; every step checked by other code.

A trial ends in an :class:`Outcome`: what was counted on the way, and the violations that were found. A refusal, one of
the library's own exceptions, is no violation; it is counted by what was refused and in which dtype. When a layer has
been asked for its rows, a few of the :data:`ATTACKS` are made on it.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from campaign.calls import functions_of
from campaign.cascades import CASCADES
from campaign.changes import changes
from campaign.coefficients import (
    coefficients_from_inputs,
    switches_from_inputs,
    walls_from_inputs,
)
from campaign.compiling import CompileChecks
from campaign.curves import curved_walls
from campaign.densities import densities
from campaign.extremes import extreme_inputs, repairs, uncovered_inputs
from campaign.flushed import while_flushing
from campaign.givens import given_numbers
from campaign.graphs import recorded_graphs, same_in_graphs
from campaign.losses import losses
from campaign.missing import missing_values
from campaign.one_by_one import SECONDS, one_by_one
from campaign.raws import input_values, raw_rows
from campaign.reaching import unreached
from campaign.sentences import COMPARISONS, Sentence
from campaign.solver import Meaning
from campaign.sparse import sparse_sets
from campaign.spheres import moved_balls
from campaign.subject import Attack, Finding, Subject, combinations, rows_of
from campaign.tampering import changed_tables
from campaign.trips import round_trips
from campaign.variants import sentence as numbered
from campaign.verdict import Judge
from campaign.vocabulary import other_words
from multiplexnet.compiler.cascade.structure import Structure
from multiplexnet.compiler.explanation.diagnose import uncovered_input
from multiplexnet.compiler.terms import Compiled
from multiplexnet.errors import (
    ContradictionError,
    EqualityError,
    InputError,
    MagnitudeError,
    MultiplexError,
    ThinTermError,
)
from multiplexnet.language.formula import Atom
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.construction.settings import Arithmetic
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.transforms.separable import PaperSeparable, Separable

__all__ = ["DTYPES", "Outcome", "Trial", "Violation", "trial"]

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ARITHMETICS: tuple[Arithmetic, ...] = ("float64", "float32")
MAX_TERMS = 256
FEW_TERMS = 64
"""The second for sentences that are meant to be decomposed."""
PAPER = 0.15
"""The share of layers that map intervals as the paper does."""
COPIED = 0.1
"""The share of layers that are cast, saved and run under autocast as well."""
GRAPHS_EVERY = 250
"""Every so many trials the layer is also compiled and exported by torch, which takes seconds."""
INSISTED = 0.06
"""The share of the other sentences that are computed one output after another as well, where that is possible."""
FLUSHED = 0.1
"""The share of layers made for cascades that are asked while subnormal numbers are taken for zero."""
ALSO_TERMS = ("moved",)
"""Families whose sentences are attacked as terms, too: these take the ones that leave something to choose."""
CHOSEN = 0.25
"""The share of sentences made for cascades that are left to choose their structure."""
RECORDED = 0.015
"""The share of sentences whose layer is exported, to ONNX too, and run also where eager raises."""
MISSING = 0.1
"""The share of sentences that are asked once more, with outputs that may be missing."""
COEFFICIENTS = 0.2
"""How often rules with coefficients from inputs and assumptions are drawn besides."""
OTHER_WORDS = 0.2
"""How often rules in other words, or from arrays, are drawn besides."""
CURVES = 0.1
"""How often curved walls are drawn besides."""
SPARSE = 0.04
"""How often large sparse sets are drawn besides."""
COMBINATIONS = 24
"""Of inputs in one batch, at most: where some are refused, each is asked by itself."""
FAR = (24, 40, 100)
"""Powers of two: how far out, besides near zero, a set that was refused as thin is looked for room."""
ATTACKS: Mapping[str, tuple[Attack, float]] = {
    "extreme inputs": (extreme_inputs, 0.5),
    "repair": (repairs, 0.25),
    "given numbers": (given_numbers, 0.3),
    "flushing": (while_flushing, 0.15),
    "round trips": (round_trips, 0.03),
    "changed tables": (changed_tables, 0.04),
    "densities": (densities, 1.0),
}
"""Every attack by its name, and the share of layers that it is made on."""


@dataclass(frozen=True)
class Violation:
    """Something that must not happen.

    Args:
        check: which check found it.
        what: in words.
        dtype: of the layer, if there was one.
        raw: the raw row, as numbers, if it takes one.
        inputs: the inputs of that row.
        training: whether the layer was in training mode.
    """

    check: str
    what: str
    dtype: str | None = None
    raw: tuple[float, ...] | None = None
    inputs: tuple[float, ...] = ()
    training: bool = False


@dataclass
class Outcome:
    """What came of one trial."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    suspicious: list[str] = field(default_factory=list)
    seconds: float = 0.0


def name_of(dtype: torch.dtype) -> str:
    """``float32``."""
    return str(dtype).removeprefix("torch.")


def trial(seed: int, index: int, rows: int) -> Outcome:
    """The trial with this number: about ``rows`` rows are asked of the layers that can be built."""
    graphs = index % GRAPHS_EVERY == GRAPHS_EVERY - 1
    recorded = Random(f"{seed}/{index}/recorded").random() < RECORDED
    insisted = Random(f"{seed}/{index}/insisted").random() < INSISTED
    precision = Random(f"{seed}/{index}/precision").choice(ARITHMETICS)
    random = Random(f"{seed}/{index}/trial")
    sentence = numbered(seed, index)
    run = Trial(
        sentence,
        rows,
        random=random,
        graphs=graphs,
        recorded=recorded,
        insisted=insisted,
        precision=precision,
    )
    outcome = run.run()
    apart = Random(
        f"{seed}/{index}/missing"
    )  # so that all else is drawn as it was before
    if apart.random() < MISSING and sentence.kind not in CASCADES:
        run.besides("missing", missing_values(sentence, apart))
    products = Random(f"{seed}/{index}/coefficients")
    if products.random() < COEFFICIENTS:
        run.besides("coefficients", coefficients_from_inputs(products))
        run.besides("coefficients", walls_from_inputs(products))
        run.besides("coefficients", switches_from_inputs(products))
    words = Random(f"{seed}/{index}/other words")
    if words.random() < OTHER_WORDS:
        run.besides("words", other_words(words))
    curves = Random(f"{seed}/{index}/curves")
    if curves.random() < CURVES:
        run.besides("curves", curved_walls(curves))
    balls = Random(f"{seed}/{index}/moved balls")
    if balls.random() < CURVES:
        run.besides("moved balls", moved_balls(balls))
    many = Random(f"{seed}/{index}/sparse")
    if many.random() < SPARSE:
        run.besides("sparse", sparse_sets(many))
    return outcome


class Trial:
    """One sentence, and all that is asked of it.

    Args:
        sentence: the rules.
        rows: how many rows the four layers are asked for together.
        random: decides on everything that is drawn.
        graphs: whether compiled and exported layers are compared as well.
        recorded: whether a layer is exported, to ONNX too, and run also where eager raises.
        insisted: whether the outputs are computed one after another as well.
        precision: what terms compute in.
        given: raw rows (and inputs) to be tried besides, by dtype.
        thorough: whether the checks that trials make now and then are all made.
    """

    def __init__(
        self,
        sentence: Sentence,
        rows: int,
        *,
        random: Random,
        graphs: bool = False,
        recorded: bool = False,
        insisted: bool = False,
        precision: Arithmetic = "float64",
        given: Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]
        | None = None,
        thorough: bool = False,
    ) -> None:
        self.sentence = sentence
        self.rows = rows
        self.random = random
        self.graphs = graphs
        self.given = given or {}
        self.thorough = thorough
        self.recorded = recorded
        self.insisted = insisted or thorough
        self.precision: Arithmetic = precision
        self.max_terms = FEW_TERMS if sentence.kind == "circuits" else MAX_TERMS
        self.outcome = Outcome(sentence.kind)
        self.judge = Judge(sentence)
        self.edges = _edges(sentence)
        self.generator = torch.Generator().manual_seed(random.getrandbits(60))

    def run(self) -> Outcome:
        """The outcome; whatever goes wrong is in it."""
        start = perf_counter()
        try:
            self._road()
        except Exception as error:
            self._found("crash", _told(error))
        self.outcome.seconds = perf_counter() - start
        self.outcome.counts["verdicts in floats"] += self.judge.in_floats
        self.outcome.counts["verdicts in integers"] += self.judge.in_integers
        return self.outcome

    def besides(self, name: str, findings: Iterable[Finding]) -> None:
        """What is found apart from the road of the sentence."""
        start = perf_counter()
        try:
            for finding in findings:
                self._checked(finding.check)
                self.outcome.counts[f"rows: {finding.check}"] += finding.rows
                if finding.wrong:
                    self._found(finding.check, finding.wrong)
        except Exception as error:
            self._found(f"{name}: crash", _told(error))
        self.outcome.seconds += perf_counter() - start

    # --- bookkeeping --------------------------------------------------------------------------------------------------

    def _found(self, check: str, what: str, **more: Any) -> None:
        self.outcome.violations.append(Violation(check, what, **more))

    def _checked(self, check: str, count: int = 1) -> None:
        self.outcome.counts[f"check: {check}"] += count

    def _refused(self, where: str, error: MultiplexError) -> None:
        self.outcome.counts[f"refused: {where}: {type(error).__name__}"] += 1

    # --- the road -----------------------------------------------------------------------------------------------------

    def _road(self) -> None:
        rules = Rules(str(self.sentence))
        meaning = Meaning(self.sentence)
        if self.sentence.kind in CASCADES:
            self._one_by_one(rules, meaning)
            if self.sentence.kind not in ALSO_TERMS:
                return
        if self.insisted and not self.sentence.calls:
            self._one_by_one(rules, meaning)
        compiled = self._compiled(rules, meaning)
        if compiled is None:
            return
        self._compile_checks(rules, compiled, meaning)
        if not self._covered(compiled, meaning):
            for mux in self._layers(rules, compiled, meaning):
                self._attack(uncovered_inputs, mux)
            return
        built = []
        for mux in self._layers(rules, compiled, meaning):
            self._forward(mux)
            built.append(mux)
        for mux in built:
            self._attacks(mux)
        if built and self.recorded:
            self._attack(recorded_graphs, self.random.choice(built))
        self.outcome.counts["sentences with a layer"] += bool(built)
        self.outcome.counts["unanswered by z3"] += meaning.unanswered

    def _one_by_one(self, rules: Rules, meaning: Meaning) -> None:
        """Layers that compute one output after another, in every dtype that is not refused."""
        made_for = self.sentence.kind in CASCADES
        structure: Structure = "cascade"
        if made_for and self.random.random() < CHOSEN:
            structure = "auto"
        built = 0
        for dtype in DTYPES:
            try:
                mux = Multiplexer(
                    rules, structure=structure, dtype=dtype, seconds=SECONDS
                )
            except MultiplexError as error:
                self._refused(f"one by one {name_of(dtype)}", error)
                if made_for and self.sentence.satisfiable and dtype is torch.float64:
                    self._found(
                        "one by one: built in float64", str(error), dtype="float64"
                    )
                continue
            if not mux.cascades:
                continue
            built += 1
            self._attack(one_by_one(self.rows // len(DTYPES), meaning), mux)
            self._attack(extreme_inputs, mux)
            self._attack(repairs, mux)
            self._attack(changes, mux)
            if self.recorded and dtype is torch.float64:
                self._attack(recorded_graphs, mux)
            if made_for and self.random.random() < FLUSHED:
                self._attack(while_flushing, mux)
        if made_for:
            self.outcome.counts["sentences with a layer"] += bool(built)
        self.outcome.counts["sentences with a cascade"] += bool(built)

    def _compiled(self, rules: Rules, meaning: Meaning) -> Compiled | None:
        """The terms; ``None`` if there are none, or too many. z3 and the compiler have to agree on which."""
        model = meaning.model()
        try:
            compiled = rules.compile(max_terms=self.max_terms, nested=True)
        except ContradictionError:
            compiled = None
        except MultiplexError as error:
            self._refused("compile", error)
            return None
        said = "z3 does not know" if model is None else f"z3 finds {model or 'nothing'}"
        self._checked("emptiness")
        self.outcome.counts["empty"] += compiled is None
        if model is not None and (model is False) != (compiled is None):
            self._found(
                "emptiness",
                f"the compiler finds {'nothing' if compiled is None else 'terms'}, {said}",
            )
        known = self.sentence.satisfiable
        if known is not None and known != (compiled is not None):
            self._found(
                "emptiness", f"known to be {'' if known else 'un'}satisfiable, {said}"
            )
        if isinstance(model, dict):
            self._checked("the judge accepts z3's points", self._judge_agrees(model))
        return compiled

    def _judge_agrees(self, model: Mapping[str, Fraction]) -> int:
        """Whether the judge agrees with z3 on z3's own point, where floats hold it."""
        if (
            max((abs(model[name]) for name in self.judge.names), default=0)
            > sys.float_info.max
        ):
            return 0
        row = [float(model[name]) for name in self.judge.names]
        if any(
            Fraction(value) != model[name]
            for value, name in zip(row, self.judge.names, strict=True)
        ):
            return 0
        if not self.judge(np.array([row]))[0]:
            self._found("judge", f"z3's point {row} breaks the rules")
        return 1

    def _compile_checks(
        self, rules: Rules, compiled: Compiled, meaning: Meaning
    ) -> None:
        checks = CompileChecks(
            self.sentence, rules, compiled, meaning, self.random, thorough=self.thorough
        )
        for check, wrong in checks.run():
            self._checked(check)
            if wrong:
                self._found(check, wrong)

    def _covered(self, compiled: Compiled, meaning: Meaning) -> bool:
        """Whether all inputs in their ranges leave an output, as the library says; z3 is asked about single ones."""
        if not self.sentence.inputs:
            return True
        uncovered = uncovered_input(compiled)
        if uncovered is not None:
            self.outcome.counts["refused: layer: InputError"] += 1
            point = {v.name: value for v, value in uncovered}
            self._checked("uncovered inputs")
            if meaning.model(*meaning.at(point)) not in (False, None):
                self._found("uncovered inputs", f"said to leave no output: {point}")
            return False
        for _ in range(2):
            point = {d.name: self._input(d) for d in self.sentence.inputs}
            self._checked("uncovered inputs")
            if meaning.model(*meaning.at(point)) is False:
                self._found("uncovered inputs", f"said to leave an output: {point}")
        return True

    def _input(self, declared: Any) -> Fraction:
        low = Fraction(-100) if declared.lower is None else declared.lower
        high = Fraction(100) if declared.upper is None else declared.upper
        share = self.random.choice(
            [Fraction(0), Fraction(1), Fraction(self.random.randint(0, 64), 64)]
        )
        return Fraction(low + (high - low) * share)

    def _layers(
        self, rules: Rules, compiled: Compiled, meaning: Meaning
    ) -> Iterator[Multiplexer]:
        """In every dtype that is not refused."""
        precisions = ARITHMETICS if self.thorough else (self.precision,)
        for dtype, precision in product(DTYPES, precisions):
            mux = self._layer(rules, compiled, dtype, precision, meaning)
            if mux is not None:
                yield mux

    def _layer(
        self,
        rules: Rules,
        compiled: Compiled,
        dtype: torch.dtype,
        precision: Arithmetic,
        meaning: Meaning,
    ) -> Multiplexer | None:
        try:
            boxes = PaperSeparable if self.random.random() < PAPER else Separable
            functions = functions_of(self.sentence)
            return Multiplexer.from_compiled(
                rules,
                compiled,
                max_terms=self.max_terms,
                dtype=dtype,
                boxes=boxes,
                functions=functions,
                precision=precision,
            )
        except MultiplexError as error:
            self._refused(name_of(dtype), error)
            if (
                self.sentence.point is not None
            ):  # made of numbers that every format holds
                self._found("single points are kept", str(error), dtype=name_of(dtype))
            if isinstance(error, ThinTermError):
                self._checked("refused as thin, and it is")
                if self._has_room(error, dtype, meaning):
                    self.outcome.counts[
                        f"suspicious: {name_of(dtype)}: refused as thin, yet wide"
                    ] += 1
                    self.outcome.suspicious.append(
                        f"{name_of(dtype)}: {' and '.join(error.rows)}"
                    )
            return None

    def _has_room(
        self, error: ThinTermError, dtype: torch.dtype, meaning: Meaning
    ) -> bool:
        """Whether the refused rows are plainly wide: a cube many spacings wide, well inside the format."""
        try:
            formulas = [
                rule.formula
                for rule in Rules("\n".join(error.rows)).specification.rules
            ]
        except MultiplexError:
            return False
        info = torch.finfo(dtype)
        atoms = [formula for formula in formulas if isinstance(formula, Atom)]
        for exponent in (0, 8, 14):
            spacing = Fraction(info.eps) * 2**exponent
            if meaning.room(atoms, 64 * spacing, Fraction(2**exponent), spacing):
                return True
        return any(
            meaning.room(
                atoms,
                64 * Fraction(info.eps) * 2**size,
                Fraction(2**size),
                Fraction(info.eps) * 2**size,
            )
            for size in FAR
            if 2.0**size < info.max
        )

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _forward(self, mux: Multiplexer) -> None:
        share = max(self.rows // len(DTYPES), 8)
        size = prod(len(block.terms) for block in mux.blocks)
        written = not mux.is_nested and size <= 32
        half = share // 2
        if written:
            self._terms(mux, max(8, half // size))
        self._beyond(mux)
        self._best(mux, half if written else share)
        self._gradients(mux, written)
        if mux.dtype is torch.float64:
            self._verdicts_agree(mux)
        if mux.dtype is torch.float64 and not mux.is_nested and not self.sentence.calls:
            self._reach(mux)
        if self.random.random() < COPIED or self.thorough:
            self._copies(mux)
        if self.graphs and mux.dtype is torch.float32:
            self._in_graphs(mux)

    def _batch(
        self, mux: Multiplexer, count: int, *, with_nan: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Raw rows and inputs, those that were given first."""
        raw = raw_rows(
            count, mux.in_features, mux.dtype, self.generator, with_nan=with_nan
        )
        pairs = [
            pair
            for pair in self.given.get(name_of(mux.dtype), ())
            if len(pair[0]) == mux.in_features
        ]
        given = {
            d.name: self._drawn_inputs(
                input_values(d, mux.dtype, self.generator, self.edges), count, mux.dtype
            )
            for d in self.sentence.inputs
        }
        if count > COMBINATIONS and all(len(values) for values in given.values()):
            chosen = torch.randint(COMBINATIONS, (count,), generator=self.generator)
            given = {name: values[chosen] for name, values in given.items()}
        if pairs:
            raw = torch.cat(
                [
                    torch.tensor([r for r, _ in pairs], dtype=torch.float64).to(
                        mux.dtype
                    ),
                    raw,
                ]
            )
            for i, name in enumerate(given):
                first = torch.tensor([u[i] for _, u in pairs], dtype=torch.float64).to(
                    mux.dtype
                )
                given[name] = torch.cat([first, given[name]])
        return raw, given

    def _drawn_inputs(
        self, values: Sequence[float], count: int, dtype: torch.dtype
    ) -> Tensor:
        if not values:
            return torch.zeros(0, dtype=dtype)
        pool = torch.tensor(values, dtype=torch.float64).to(dtype)
        return pool[torch.randint(len(pool), (count,), generator=self.generator)]

    def _branches(
        self, mux: Multiplexer, raw: Tensor, given: dict[str, Tensor]
    ) -> list[tuple[Branches, Tensor, Any]]:
        """What the layer says, for all rows at once; if it refuses some inputs, for the rows with the others."""
        if any(len(values) == 0 for values in given.values()):
            self.outcome.counts[
                f"refused: {name_of(mux.dtype)}: no input is a number of the dtype"
            ] += 1
            return []
        try:
            return [(mux(raw, **given), raw, given)]
        except InputError as error:
            self._refused(f"forward {name_of(mux.dtype)}", error)
        if not given:
            return []
        answered = torch.zeros(len(raw), dtype=torch.bool)
        for here in combinations(given):
            try:
                mux(raw[here], **{name: column[here] for name, column in given.items()})
                answered |= here
            except InputError as error:
                self._refused(f"inputs {name_of(mux.dtype)}", error)
        if not answered.any():
            return []
        raw = raw[answered]
        given = {name: column[answered] for name, column in given.items()}
        return [(mux(raw, **given), raw, given)]

    def _terms(self, mux: Multiplexer, count: int) -> None:
        """Every term of every row, in training."""
        mux.train()
        for branches, raw, given in self._branches(mux, *self._batch(mux, count)):
            x = branches.x
            possible = possible_terms(branches)
            n, k = possible.shape
            columns = {
                name: value.unsqueeze(-1).expand(n, k) for name, value in given.items()
            }
            where = torch.arange(n).unsqueeze(-1).expand(n, k)[possible]
            own = {name: column[possible] for name, column in columns.items()}
            self._judged("rows of all terms", mux, x[possible], own, raw, where)
            self._impossible(
                mux,
                x[~possible],
                {name: column[~possible] for name, column in columns.items()},
            )

    def _impossible(
        self, mux: Multiplexer, x: Tensor, given: Mapping[str, Tensor]
    ) -> None:
        """Where a term cannot be met there is no number that could be taken for an output."""
        if not len(x):
            return
        self._checked("impossible terms")
        told = x.isfinite().all(-1)
        rows = self._rows(
            x[told], {name: column[told] for name, column in given.items()}
        )
        wrong = np.flatnonzero(~self.judge(rows))
        if len(wrong):
            row = rows[int(wrong[0])].tolist()
            self._found(
                "impossible terms",
                f"{row} of `.x` breaks the rules",
                dtype=name_of(mux.dtype),
            )

    def _best(self, mux: Multiplexer, count: int) -> None:
        """The best term, or a sample, of every row, in ``eval()``; NaN among the raw values."""
        mux.eval()
        for branches, raw, given in self._branches(
            mux, *self._batch(mux, count, with_nan=True)
        ):
            sampled = self.random.random() < 0.25
            x = branches.sample(self.generator) if sampled else branches.best()
            self._judged("rows in eval", mux, x, given, raw, torch.arange(len(raw)))

    def _judged(
        self,
        check: str,
        mux: Multiplexer,
        x: Tensor,
        given: Mapping[str, Tensor],
        raw: Tensor,
        where: Tensor,
    ) -> None:
        """The exact verdict on every row; ``where`` says which raw row each came from."""
        rows = self._rows(x, given)
        name = name_of(mux.dtype)
        self.outcome.counts[f"rows: {name}"] += len(rows)
        self._checked(check)
        if x.dtype != mux.dtype:
            self._found(check, f"the layer of {mux.dtype} returns {x.dtype}")
        wrong = np.flatnonzero(~self.judge(rows))
        if self.sentence.point is not None:
            only = np.array([float(value) for value in self.sentence.point])
            wrong = np.union1d(wrong, np.flatnonzero((rows != only).any(axis=1)))
        if len(wrong):
            first = int(wrong[0])
            self._found(
                check,
                f"{len(wrong)} of {len(rows)} rows break the rules; the first is {rows[first].tolist()}",
                dtype=name,
                raw=tuple(raw[int(where[first])].double().tolist()),
                inputs=tuple(
                    rows[first].tolist()[
                        len(self.sentence.outputs) : len(self.sentence.declared)
                    ]
                ),
                training=mux.training,
            )

    def _rows(self, x: Tensor, given: Mapping[str, Tensor]) -> NDArray[np.float64]:
        return rows_of(self.sentence, x, given)

    # --- attacks ------------------------------------------------------------------------------------------------------

    def _attacks(self, mux: Multiplexer) -> None:
        for attack, share in ATTACKS.values():
            if self.random.random() < share or self.thorough:
                self._attack(attack, mux)
        self._attack(losses, mux)
        self._attack(changes, mux)

    def _attack(self, attack: Attack, mux: Multiplexer) -> None:
        """One attack; an exception that it does not expect is a violation of its own."""
        subject = Subject(
            self.sentence, mux.eval(), self.judge, self.random, self.generator
        )
        try:
            for finding in attack(subject):
                self._noted(mux, finding)
        except Exception as error:
            name = attack.__name__.replace("_", " ")
            self._found(f"crash in {name}", _told(error), dtype=name_of(mux.dtype))

    def _noted(self, mux: Multiplexer, finding: Finding) -> None:
        self._checked(finding.check)
        self.outcome.counts[f"rows: {name_of(mux.dtype)}"] += finding.rows
        if finding.wrong:
            self._found(
                finding.check,
                finding.wrong,
                dtype=name_of(mux.dtype),
                raw=finding.raw,
                inputs=finding.inputs,
            )

    # --- what else a layer promises -----------------------------------------------------------------------------------

    def _gradients(self, mux: Multiplexer, written: bool) -> None:
        """Finite for raw values of every size."""
        mux.train()
        for branches, raw, given in self._branches(mux, *self._gradient_batch(mux)):
            x = branches.x if written else branches.best()
            x = (
                torch.where(possible_terms(branches).unsqueeze(-1), x, 0.0)
                if written
                else x
            )
            weight = (
                torch.rand(x.shape, generator=self.generator, dtype=torch.float64) * 2
                - 1
            )
            if not x.requires_grad:
                continue
            (gradient,) = torch.autograd.grad((x.double() * weight).mean(), raw)
            self._checked("finite gradients")
            if not gradient.isfinite().all():
                row = int((~gradient.isfinite()).any(-1).nonzero()[0, 0])
                self._found(
                    "finite gradients",
                    f"the gradient of row {row} is {gradient[row].tolist()}",
                    dtype=name_of(mux.dtype),
                    raw=tuple(raw[row].detach().double().tolist()),
                    inputs=tuple(float(column[row]) for column in given.values()),
                )

    def _gradient_batch(self, mux: Multiplexer) -> tuple[Tensor, dict[str, Tensor]]:
        raw, given = self._batch(mux, 16)
        return raw.requires_grad_(), given

    def _verdicts_agree(self, mux: Multiplexer) -> None:
        """``Rules.satisfied`` and the judge say the same of rows inside, of their neighbours and of others."""
        mux.eval()
        for branches, _, given in self._branches(mux, *self._batch(mux, 24)):
            x = branches.best()
            near = [
                torch.nextafter(x, torch.full_like(x, side))
                for side in (-np.inf, np.inf)
            ]
            other = 4 * torch.randn(
                x.shape, generator=self.generator, dtype=torch.float64
            )
            offers = torch.cat([x, *near, other, other.round()])
            own = {name: value.repeat(5) for name, value in given.items()}
            own_verdict = self.judge(self._rows(offers, own))
            verdict = mux.rules.satisfied(
                offers, functions=functions_of(self.sentence), **own
            ).numpy()
            self._checked("Rules.satisfied agrees")
            self.outcome.counts["points judged inside"] += int(own_verdict.sum())
            self.outcome.counts["points judged outside"] += int((~own_verdict).sum())
            if not np.array_equal(verdict, own_verdict):
                row = offers[int(np.flatnonzero(verdict != own_verdict)[0])].tolist()
                self._found("Rules.satisfied agrees", f"it does not on {row}")

    def _reach(self, mux: Multiplexer) -> None:
        mux.eval()
        missed, tried = unreached(mux, self.sentence, self.random, self.judge)
        self._checked("points are reached", tried)
        if missed:
            self._found("points are reached", missed, dtype=name_of(mux.dtype))

    def _copies(self, mux: Multiplexer) -> None:
        """Cast from another dtype, saved and loaded, under autocast: the same bits."""
        mux.eval()
        start = torch.float32 if mux.dtype is torch.float64 else torch.float64
        for branches, raw, given in self._branches(mux, *self._batch(mux, 16)):
            expected = branches.best()
            loaded = Multiplexer.from_state(
                mux.state_dict(),
                boxes=mux.boxes,
                functions=functions_of(self.sentence),
            )
            found = {"loaded": loaded.eval()(raw, **given).best()}
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found["under autocast"] = mux(raw, **given).best()
            try:
                other = Multiplexer.from_compiled(
                    mux.rules,
                    mux.compiled,
                    max_terms=self.max_terms,
                    dtype=start,
                    boxes=mux.boxes,
                    functions=functions_of(self.sentence),
                    precision=mux.precision,
                )
                found["cast"] = other.to(mux.dtype).eval()(raw, **given).best()
            except (
                ThinTermError,
                EqualityError,
                MagnitudeError,
            ):  # in the dtype that it would be cast from
                pass
            for name, x in found.items():
                self._checked(f"the same bits: {name}")
                if x.dtype != expected.dtype or not torch.equal(x, expected):
                    self._found(
                        f"the same bits: {name}",
                        "they are not",
                        dtype=name_of(mux.dtype),
                    )

    def _beyond(self, mux: Multiplexer) -> None:
        """An input outside its declared range is refused."""
        raw, given = self._batch(mux, 2)
        for d in self.sentence.inputs:
            if d.upper is None or not all(len(values) for values in given.values()):
                continue
            beyond = torch.tensor(
                [float(d.upper) + max(1.0, abs(float(d.upper)))] * 2,
                dtype=torch.float64,
            ).to(mux.dtype)
            self._checked("inputs out of range are refused")
            try:
                mux(raw, **{**given, d.name: beyond})
            except InputError as error:
                if "outside its declared range" in str(error):
                    continue
            self._found(
                "inputs out of range are refused",
                f"{d} takes {beyond[0]}",
                dtype=name_of(mux.dtype),
            )

    def _in_graphs(self, mux: Multiplexer) -> None:
        mux.eval()
        for _, raw, given in self._branches(mux, *self._batch(mux, 40)):
            for graph, wrong, x in same_in_graphs(
                mux, raw, given, inductor=self.random.random() < 0.25
            ):
                self._checked(f"same in a graph: {graph}")
                if wrong:
                    self._found(
                        "same in a graph", f"{graph}: {wrong}", dtype=name_of(mux.dtype)
                    )
                if x is not None:
                    self._judged(
                        f"rows of a graph: {graph}",
                        mux,
                        x,
                        given,
                        raw,
                        torch.arange(len(raw)),
                    )


def _told(error: Exception) -> str:
    """An exception and the last places on its way, without the folders of this machine."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames
    ]
    return f"{', '.join(places)}\n{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _edges(sentence: Sentence) -> list[Fraction]:
    """Numbers that an input by itself is compared with."""
    names = {d.name for d in sentence.inputs}
    return [
        node.parts[1].value
        for rule in sentence.rules
        for node in rule.walk()
        if node.op in COMPARISONS
        and node.parts[0].op == "variable"
        and node.parts[0].value in names
        if isinstance(node.parts[1].value, Fraction) and node.parts[1].op == "number"
    ]


def possible_terms(branches: Branches) -> Tensor:
    """Which terms can be met in which rows, ``(*batch, K)``."""
    impossible = branches.joint(
        [choice.logits.isneginf().double() for choice in branches.choices]
    )
    return impossible == 0
