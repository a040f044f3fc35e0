"""Layers that compute one output after another: every row obeys, none gets stuck, and nothing is lost.

The judge is that of all trials. Besides, an input may be refused only if z3 finds no point of the grid for it, a point
that z3 finds has a probability, a layer's own samples have finite ones, and copies and other orders are asked the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from campaign.raws import input_values, raw_rows
from campaign.sentences import Declared
from campaign.solver import Meaning
from campaign.subject import Finding, Given, Subject
from multiplexnet.errors import InputError, MultiplexError
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["SECONDS", "one_by_one"]

SECONDS = 20.0
"""What a cascade may take to build."""
COMBINATIONS = 6
"""Of inputs, at most."""
ASKED = 2
"""Refused inputs that z3 is asked about, and points that it is asked for."""
MILLISECONDS = 700
"""What z3 may take for one of them."""
ORDERED = 0.35
"""The share of layers that are built once more in another order."""
NORMAL = Fraction(1, 2**126)
"""Smaller inputs are subnormal in some format, and may be refused."""
COPIED = 0.35
"""The share of layers that are copied, saved and cast."""

Point = Mapping[str, Fraction]


def one_by_one(rows: int, meaning: Meaning) -> Callable[[Subject], Iterator[Finding]]:
    """The attack on a layer, with about so many rows."""

    def cascade(subject: Subject) -> Iterator[Finding]:
        yield from _OneByOne(subject, rows, meaning).findings()

    return cascade


class _OneByOne:
    def __init__(self, subject: Subject, rows: int, meaning: Meaning) -> None:
        self.subject, self.meaning = subject, meaning
        self.mux = subject.mux
        self.dtype = subject.mux.dtype
        self.count = max(8, rows // 3)
        self.refused: list[Point] = []

    def findings(self) -> Iterator[Finding]:
        batches = list(self._batches())
        for raw, given in batches:
            yield from self._rows(raw, given)
            yield from self._gradients(raw, given)
        yield from self._refusals()
        for raw, given in batches[:1]:
            yield from self._points(raw, given)
            if self.subject.random.random() < ORDERED:
                yield from self._in_another_order(raw, given)
            if self.subject.random.random() < COPIED:
                yield from self._copies(raw, given)

    # --- what goes in -------------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[tuple[Tensor, Given]]:
        """Raw rows, once in training and once with NaN among them, for inputs that are not refused."""
        columns = self._inputs()
        if columns is None:
            return
        for with_nan in (False, True):
            size = len(next(iter(columns.values()))) if columns else 1
            raw = raw_rows(
                size * max(1, self.count // size),
                self.mux.in_features,
                self.dtype,
                self.subject.generator,
                with_nan=with_nan,
            )
            chosen = torch.arange(len(raw)) % size
            yield raw, {name: values[chosen] for name, values in columns.items()}

    def _inputs(self) -> Given | None:
        """Combinations of inputs that the layer takes, a row each; ``None`` if there is none."""
        declared = self.subject.sentence.inputs
        pools = [input_values(d, self.dtype, self.subject.generator) for d in declared]
        if any(not pool for pool in pools):
            return None
        found: list[list[float]] = []
        for _ in range(COMBINATIONS if declared else 0):
            values = [self.subject.random.choice(pool) for pool in pools]
            if self._takes(declared, values):
                found.append(values)
        if declared and not found:
            return None
        table = torch.tensor(found, dtype=torch.float64).to(self.dtype)
        return {d.name: table[:, i] for i, d in enumerate(declared)}

    def _takes(self, declared: tuple[Declared, ...], values: list[float]) -> bool:
        given = {
            d.name: torch.tensor([value], dtype=torch.float64).to(self.dtype)
            for d, value in zip(declared, values, strict=True)
        }
        try:
            self.mux.eval()(
                torch.zeros(1, self.mux.in_features, dtype=self.dtype), **given
            )
        except InputError:
            self.refused.append({name: Fraction(float(v)) for name, v in given.items()})
            return False
        return True

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _rows(self, raw: Tensor, given: Given) -> Iterator[Finding]:
        branches = self.mux.eval()(raw, **given)
        for name, x in (
            ("best", branches.best()),
            ("drawn", branches.sample(self.subject.generator)),
        ):
            yield self._judged(f"one by one: rows {name}", x, raw, given)
        if branches.choices:
            return
        x = _noisy(branches, self.subject.generator)
        yield self._judged("one by one: rows with noise", x, raw, given)
        plain = self._plain(len(raw), given)
        x = _noisy(plain, self.subject.generator)
        yield self._judged("one by one: rows with noise", x, None, given)
        yield Finding("one by one: own samples are probable", _improbable(plain, x))

    def _plain(self, count: int, given: Given, scale: float = 2.0) -> Branches:
        """The layer's answer to raw values of ordinary size."""
        drawn = torch.randn(
            count, self.mux.in_features, generator=self.subject.generator
        )
        branches: Branches = self.mux.eval()((scale * drawn).to(self.dtype), **given)
        return branches

    def _judged(
        self, check: str, x: Tensor, raw: Tensor | None, given: Given
    ) -> Finding:
        if x.dtype != self.dtype:
            return Finding(check, f"the layer of {self.dtype} returns {x.dtype}")
        return self.subject.judged(check, x, raw, given)

    def _gradients(self, raw: Tensor, given: Given) -> Iterator[Finding]:
        few = raw[:16].nan_to_num(0.0).requires_grad_()
        own = {name: values[:16] for name, values in given.items()}
        x = self.mux.train()(few, **own).best()
        yield self._judged("one by one: rows in training", x, few.detach(), own)
        if not x.requires_grad:
            return
        (gradient,) = torch.autograd.grad(x.double().mean(), few)
        bad = ~gradient.isfinite().all(-1)
        wrong = f"{gradient[bad][0].tolist()}" if bad.any() else ""
        yield Finding("one by one: finite gradients", wrong)

    # --- z3 -----------------------------------------------------------------------------------------------------------

    def _refusals(self) -> Iterator[Finding]:
        """Inputs are refused only where no point of the grid obeys."""
        for point in self.refused[:ASKED] if self._is_exact else ():
            if any(0 < abs(value) < NORMAL for value in point.values()):
                continue
            model = self._model(point)
            wrong = ""
            if isinstance(model, dict):
                told = {name: float(value) for name, value in point.items()}
                wrong = f"{told} is refused, and {_told(model)} obeys on the grid"
            yield Finding("one by one: refused inputs leave nothing", wrong)

    def _points(self, raw: Tensor, given: Given) -> Iterator[Finding]:
        """A point of the grid that z3 finds has a probability."""
        if not self._is_exact or self.mux.compiled.blocks:
            return
        point = {name: Fraction(float(values[0])) for name, values in given.items()}
        for _ in range(ASKED):
            model = self._model(point, *self._somewhere())
            if not isinstance(model, dict):
                continue
            names = [d.name for d in self.subject.sentence.outputs]
            x = torch.tensor(
                [[float(model[name]) for name in names]], dtype=torch.float64
            )
            exact = all(
                Fraction(v) == model[n]
                for v, n in zip(x[0].tolist(), names, strict=True)
            )
            if not exact or not torch.equal(x.to(self.dtype).double(), x):
                continue
            branches = self._plain(1, {n: values[:1] for n, values in given.items()})
            lost = not bool(branches.log_prob(x.to(self.dtype)).isfinite())
            wrong = f"{_told(model)} obeys and is never drawn" if lost else ""
            yield Finding("one by one: points are reached", wrong)

    def _model(self, inputs: Point, *more: Any) -> dict[str, Fraction] | bool | None:
        """A point of the grid that obeys for these inputs."""
        asked = (*self.meaning.at(inputs), *self._on_grid(inputs), *more)
        return self.meaning.model(*asked, milliseconds=MILLISECONDS)

    @property
    def _is_exact(self) -> bool:
        """Whether the layer loses no point of the grid: sums of several inputs are rounded to the safe side."""
        known = [one for cascade in self.mux.cascades for one in cascade.known]
        return self.mux.complete and all(one.form.is_exact for one in known)

    def _somewhere(self) -> list[Any]:
        """That one of the outputs is in some half of its range, as the rows show it."""
        declared = self.subject.random.choice(self.subject.sentence.outputs)
        if declared.kind not in ("real", "int"):
            return []
        constant = self.meaning.constants[declared.name]
        return [constant >= 1 if self.subject.random.random() < 0.5 else constant <= 0]

    def _on_grid(self, inputs: Point) -> list[Any]:
        """That real outputs lie on the grid, or as far beside it as an input that they carry."""
        steps = self.mux.resolution
        beside: dict[str, Fraction] = {}
        names = [d.name for d in self.subject.sentence.inputs]
        for cascade in self.mux.cascades:
            for variable, form in cascade.carried:
                value = inputs[names[form.terms[0][0]]]
                step = cascade.spacing[variable]
                beside[cascade.outputs[variable].name] = value - step * floor(
                    value / step
                )
        real = [d.name for d in self.subject.sentence.outputs if d.kind == "real"]
        return self.meaning.on_grid(
            {
                name: (steps[name], beside.get(name, Fraction(0)))
                for name in real
                if name in steps
            },
            Fraction(torch.finfo(self.dtype).max),
        )

    # --- the same once more -------------------------------------------------------------------------------------------

    def _in_another_order(self, raw: Tensor, given: Given) -> Iterator[Finding]:
        """Another order obeys as well, and draws nothing that this one does not."""
        names = [d.name for d in self.subject.sentence.outputs]
        order = self.subject.random.sample(names, len(names))
        try:
            other = Multiplexer(
                self.mux.rules,
                structure="cascade",
                order=order,
                dtype=self.dtype,
                seconds=SECONDS,
            ).eval()
        except MultiplexError:
            return
        wide = raw_rows(len(raw), other.in_features, self.dtype, self.subject.generator)
        asked = replace(self.subject, mux=other)
        try:
            branches = other(wide, **given)
        except InputError:
            return
        x = branches.best()
        yield asked.judged("one by one: rows in another order", x, None, given)
        same = other.resolution == self.mux.resolution and self._is_exact
        carried = [c.carried for mux in (self.mux, other) for c in mux.cascades]
        if (
            same
            and not any(carried)
            and not branches.choices
            and not self.mux.compiled.blocks
        ):
            own = self._plain(len(raw), given, scale=0.5)
            yield Finding("one by one: orders reach the same", _improbable(own, x))

    def _copies(self, raw: Tensor, given: Given) -> Iterator[Finding]:
        """Copied, saved and loaded, cast: the same bits."""
        mux = self.mux.eval()
        expected = mux(raw, **given).best()
        state = mux.state_dict()
        made: dict[str, Callable[[], Multiplexer]] = {
            "copied": lambda: copy.deepcopy(mux),
            "loaded": lambda: Multiplexer.from_state(state),
            "cast to and fro": lambda: self._cast(),
        }
        for name, make in made.items():
            try:
                found = make().eval()(raw, **given).best()
            except MultiplexError:
                if name == "cast to and fro":
                    continue
                raise
            same = found.dtype == expected.dtype and torch.equal(found, expected)
            yield Finding(
                f"one by one: the same bits: {name}", "" if same else "they are not"
            )

    def _cast(self) -> Multiplexer:
        other = torch.float64 if self.dtype is not torch.float64 else torch.float32
        return copy.deepcopy(self.mux).to(other).to(self.dtype)


def _noisy(branches: Branches, generator: torch.Generator) -> Tensor:
    """Options and values drawn as ``log_prob`` says."""
    return branches.ordered(
        [part.sample(generator, noisy=True) for part in branches.cascades]
    )


def _improbable(branches: Branches, x: Tensor) -> str:
    """The first row whose logarithm of a probability is not a finite number of at most 0."""
    found = branches.log_prob(x).detach().double()
    bad = np.flatnonzero(~((found <= 1e-9) & found.isfinite()).numpy())
    if not len(bad):
        return ""
    first = int(bad[0])
    return f"log p of {x[first].tolist()} is {float(found[first])}"


def _told(model: Point) -> str:
    return ", ".join(f"{name} = {value}" for name, value in model.items())
