"""Optimal power flow: which power station gives how much, so that loads are met cheaply and no line is overloaded.

In the direct-current approximation the flow on a line is a linear function of what goes into every bus: flow = PTDF ·
(generation − load), where the matrix PTDF (power transfer distribution factors) follows from the reactances. The angles
of the usual formulation are eliminated, and with them the balance of every bus: what is left of it is that generation
equals load. So the rules are, for generators p and loads d, which are inputs:

    0 ≤ p ≤ most,    sum(p) == sum(d),    −limit ≤ PTDF (p − d) ≤ limit.

The first generator gives what the others leave of the load, so that the sum is kept by definition. The rules bound it
and the others: a dense polytope that the loads move. Coefficients are PTDF rounded to six decimals, and limits are
smaller by all that the rounding can matter, so that what obeys the rules keeps the true limits. The judge knows nothing
of this: it computes all flows from the reactances in fractions, and has no tolerance.

The cases are those of IEEE with 14, 30, 57 and 118 buses, out of pandapower (``power_cases.py``). Three of them have no
limits of lines; there one line in twenty, those that carry most at the optimum without limits, gets nine tenths of that
flow as its limit. Every load is scaled by a number between 0.8 and 1.2 of its own. What is trained:

* ``net``, a network that learns the solver's answers by squared error. Its answers are also judged when they are cut to
  0 … most (``clip``), moved to the nearest point that obeys by 100 steps of a dual method (``projection``), and moved
  inside by ``mux.repair`` (``repair``);
* ``dc3``, with a penalty, and corrected by ten steps down the violation, in training too (after Donti et al. 2021);
* ``multiplexnet``, the layer, by the same squared error;
* ``multiplexnet-cost``, the layer, by the cost of its own answers, without solved instances: what obeys in any case
  may be asked to be cheap;
* ``multiplexnet-cost-long``, the same for longer, on loads that are drawn anew at every step: they need no solver.

A line of the results has ``gap``, the mean of cost / optimum − 1; ``violations``, the share of rows that break a limit,
exactly; ``largest``, by how many MW; ``ms_alone`` and ``ms_batch``, processor milliseconds an instance.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, floor, lcm
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import harness
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor, nn

import multiplexnet as mx

Name = Literal["14", "30", "57", "118"]
Method = Literal[
    "net", "dc3", "multiplexnet", "multiplexnet-cost", "multiplexnet-cost-long"
]
Array = NDArray[np.float64]

FRESH = ("multiplexnet-cost-long",)
"""Methods that never see the same loads twice."""
LOW, HIGH = Fraction(4, 5), Fraction(6, 5)
"""The shares of its load that a bus may have."""
DIGITS = 6
"""Decimals of the coefficients in the rules."""
BY_SUMS = ("118",)
"""Cases whose rules read sums of the loads: one input for each of 99 loads is too much for the search of a centre."""


@dataclass(frozen=True)
class Settings(harness.Common):
    """Optimal power flow on the cases of IEEE, learned from solved instances."""

    seeds: tuple[int, ...] = harness.option((0, 1, 2), "one run for each")
    cases: tuple[Name, ...] = harness.option(Name.__args__, "numbers of buses")  # type: ignore[attr-defined]
    methods: tuple[Method, ...] = harness.option(Method.__args__, "what to train")  # type: ignore[attr-defined]
    rows: int = harness.option(400, "solved instances to train on")
    test: int = harness.option(100, "solved instances to report on")
    hidden: int = harness.option(128, "units of the hidden layer")
    batch: int = harness.option(80, "rows a step")
    rate: float = harness.option(3e-3, "highest learning rate of Adam")
    penalty: float = harness.option(1.0, "weight of the violation in the loss of dc3")
    longer: int = harness.option(6, "times as many epochs for multiplexnet-cost-long")
    long_rate: float = harness.option(3e-3, "its highest learning rate")

    def for_quick(self) -> Self:
        few = replace(self, epochs=20, rows=80, test=20, longer=2)
        return replace(few, seeds=(0,), cases=("14",))

    def rate_of(self, method: Method) -> float:
        return self.long_rate if method in FRESH else self.rate

    def epochs_of(self, method: Method) -> int:
        return (self.epochs or 100) * (self.longer if method in FRESH else 1)


# --- the network of lines --------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line with a limit: its number, its limit, and its flow: a sum over generators minus one over loads."""

    number: int
    limit: Fraction
    generators: list[Fraction]
    loads: list[Fraction]


@dataclass(frozen=True)
class Case:
    """Buses, lines, generators and loads; powers in MW."""

    name: Name
    data: Mapping[str, Any]

    @cached_property
    def loads(self) -> list[Fraction]:
        return [exact(load) for _, load in self.data["loads"]]

    @cached_property
    def most(self) -> list[Fraction]:
        """What every generator can give; the least is 0 in all cases."""
        return [exact(each["most"]) for each in self.data["generators"]]

    @cached_property
    def costs(self) -> Array:
        """c1 and c2 of ``c1 p + c2 p²``, one row a generator."""
        return np.array([[each["c1"], each["c2"]] for each in self.data["generators"]])

    def cost(self, p: Array) -> Array:
        total: Array = (self.costs[:, 0] * p + self.costs[:, 1] * p**2).sum(-1)
        return total

    @cached_property
    def lines(self) -> list[Line]:
        """Those with a limit that some generation and load in their ranges would exceed."""
        every = [
            Line(number, limit, *self._factors(number))
            for number, limit in self._limits().items()
        ]
        return [line for line in every if self._can_exceed(line)]

    def _limits(self) -> dict[int, Fraction]:
        own = {
            number: exact(branch["limit"])
            for number, branch in enumerate(self.data["branches"])
            if branch["limit"] is not None
        }
        return own or self._made_limits()

    def _made_limits(self) -> dict[int, Fraction]:
        """Nine tenths of the flow without limits, rounded down to whole MW, for one line in twenty."""
        load = np.array(self.loads, dtype=float)
        p = Solver(self, ()).solve(load).p
        numbers = range(len(self.data["branches"]))
        factors = [self._factors(number) for number in numbers]
        own, taken = (
            np.array([each[i] for each in factors], dtype=float) for i in (0, 1)
        )
        flows = np.abs(own @ p - taken @ load)
        heaviest = np.argsort(-flows)[: max(1, round(len(flows) / 20))]
        return {int(i): Fraction(floor(0.9 * flows[i])) for i in sorted(heaviest)}

    def _can_exceed(self, line: Line) -> bool:
        given = [(Fraction(0), most) for most in self.most]
        taken = [(-HIGH * load, -LOW * load) for load in self.loads]
        low, high = ends([*line.generators, *line.loads], [*given, *taken])
        return high > line.limit or low < -line.limit

    def _factors(self, number: int) -> tuple[list[Fraction], list[Fraction]]:
        """The row of the PTDF at the buses of generators and of loads."""
        branch = self.data["branches"][number]
        potential = self._potentials(branch["from"], branch["to"])
        row = [each / exact(branch["x"]) for each in potential]
        generators = [row[each["bus"]] for each in self.data["generators"]]
        return generators, [row[bus] for bus, _ in self.data["loads"]]

    def _potentials(self, start: int, end: int) -> list[Fraction]:
        """The angles if one unit goes in at ``start`` and out at ``end``; they are 0 at the last bus."""
        found = self._elimination.solved({start: Fraction(1), end: Fraction(-1)})
        return [found.get(bus, Fraction(0)) for bus in range(self.data["buses"])]

    @cached_property
    def _elimination(self) -> Elimination:
        """Of the matrix of susceptances, whose last bus is the reference."""
        matrix: dict[int, dict[int, Fraction]] = {}
        for branch in self.data["branches"]:
            a, b, susceptance = branch["from"], branch["to"], 1 / exact(branch["x"])
            for i, j, value in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)):
                row = matrix.setdefault(i, {})
                row[j] = row.get(j, Fraction(0)) + value * susceptance
        reference = self.data["buses"] - 1
        del matrix[reference]
        for row in matrix.values():
            row.pop(reference, None)
        return Elimination.of(matrix)


@dataclass(frozen=True)
class Elimination:
    """A symmetric matrix in fractions, eliminated bus after bus, the one with the fewest neighbours first."""

    steps: list[tuple[int, Fraction, dict[int, Fraction]]]

    @classmethod
    def of(cls, matrix: dict[int, dict[int, Fraction]]) -> Elimination:
        steps = []
        while matrix:
            bus = min(matrix, key=lambda i: (len(matrix[i]), i))
            row = matrix.pop(bus)
            pivot = row.pop(bus)
            for i, value in row.items():
                factor = value / pivot
                del matrix[i][bus]
                for j, other in row.items():
                    matrix[i][j] = matrix[i].get(j, Fraction(0)) - factor * other
            steps.append((bus, pivot, row))
        return cls(steps)

    def solved(self, right: dict[int, Fraction]) -> dict[int, Fraction]:
        """x with matrix · x = right."""
        right = dict(right)
        for bus, pivot, row in self.steps:
            if value := right.get(bus):
                for i, other in row.items():
                    right[i] = right.get(i, Fraction(0)) - value * other / pivot
        x: dict[int, Fraction] = {}
        for bus, pivot, row in reversed(self.steps):
            rest = right.get(bus, Fraction(0)) - sum(c * x[i] for i, c in row.items())
            x[bus] = rest / pivot
        return x


def exact(number: float) -> Fraction:
    """A decimal of the file, exactly."""
    return Fraction(str(number))


def ends(
    factors: Iterable[Fraction], ranges: Iterable[tuple[Fraction, Fraction]]
) -> tuple[Fraction, Fraction]:
    """The least and the greatest value of a sum of products."""
    pairs = [
        sorted((c * low, c * high))
        for c, (low, high) in zip(factors, ranges, strict=True)
    ]
    return sum((p[0] for p in pairs), Fraction(0)), sum(
        (p[1] for p in pairs), Fraction(0)
    )


@cache
def case_of(name: Name) -> Case:
    """One of the four."""
    path = harness.HERE / "power_cases.json"
    return Case(name, json.loads(path.read_text(encoding="utf-8"))[name])


# --- the solver ------------------------------------------------------------------------------------------------------


class Solution(NamedTuple):
    """What generators give, and what the optimum costs at least."""

    p: Array
    bound: float


@dataclass(frozen=True)
class Solver:
    """Linear programs (HiGHS) with tangents as costs; tangents at the answer are added until the answer stays."""

    case: Case
    lines: tuple[Line, ...]
    start: int = 12
    rounds: int = 30
    precision: float = 1e-7

    @cached_property
    def _flows(self) -> tuple[Array, Array, Array]:
        n, k = len(self.case.most), len(self.case.loads)
        of = [np.array([line.generators for line in self.lines], dtype=float)]
        of += [np.array([line.loads for line in self.lines], dtype=float)]
        limits = np.array([line.limit for line in self.lines], dtype=float)
        return of[0].reshape(-1, n), of[1].reshape(-1, k), limits

    def solve(self, load: Array) -> Solution:
        """The optimum of the quadratic costs, to a relative precision that the bound proves."""
        most = np.array(self.case.most, dtype=float)
        tangents = list(np.outer(np.linspace(0, 1, self.start), most))
        for _ in range(self.rounds):
            solution = self._program(load, most, np.array(tangents))
            cost = float(self.case.cost(solution.p))
            if cost - solution.bound <= self.precision * cost:
                break
            tangents.append(solution.p)
        return solution

    def _program(self, load: Array, most: Array, points: Array) -> Solution:
        """Unknowns are generation and costs: cost ≥ value + slope · (p − point) for every point."""
        n = len(most)
        c1, c2 = self.case.costs.T
        slopes = c1 + 2 * c2 * points
        constants = -c2 * points**2
        eye = np.eye(n)
        tangents = [np.hstack([np.diag(slope), -eye]) for slope in slopes]
        generators, loads, limits = self._flows
        base = loads @ load
        flows = np.hstack([generators, np.zeros_like(generators)])
        answer = linprog(
            np.append(np.zeros(n), np.ones(n)),
            np.vstack([*tangents, flows, -flows]),
            np.concatenate([*(-constants), limits + base, limits - base]),
            np.append(np.ones(n), np.zeros(n))[None],
            [load.sum()],
            [*((0, end) for end in most), *([(None, None)] * n)],
        )
        if answer.status:
            raise harness.ExperimentError(f"case {self.case.name}: {answer.message}")
        return Solution(answer.x[:n], float(answer.fun))


class Rows(NamedTuple):
    """Loads ``(N, K)``, what generators give at the optimum ``(N, G)``, and what that costs at least ``(N,)``."""

    loads: Tensor
    p: Tensor
    optimum: Tensor


def random_loads(
    case: Case, count: int, generator: torch.Generator | None = None
) -> Tensor:
    """Every load by a number between 0.8 and 1.2 of its own."""
    nominal = torch.tensor([float(load) for load in case.loads])
    low, high = float(LOW) + 1e-6, float(HIGH) - 1e-6
    scales = low + (high - low) * torch.rand(count, len(nominal), generator=generator)
    return nominal * scales


def solved(case: Case, count: int, seed: int) -> tuple[Rows, float]:
    """Random loads, solved; and processor milliseconds an instance."""
    loads = random_loads(case, count, torch.Generator().manual_seed(seed))
    solver = Solver(case, tuple(case.lines))
    began = time.process_time()
    found = [solver.solve(load) for load in loads.double().numpy()]
    spent = 1e3 * (time.process_time() - began) / count
    p = torch.tensor(np.array([each.p for each in found]))
    return Rows(loads, p.float(), torch.tensor([each.bound for each in found])), spent


class Instances(NamedTuple):
    """Rows to train on, rows to report on, and what solving took, in milliseconds an instance."""

    train: Rows
    test: Rows
    solver_ms: float


def instances(case: Case, settings: Settings) -> Instances:
    """The same for all methods and seeds; kept beside the checkpoints."""
    folder = settings.checkpoints / "power"
    path = folder / f"instances-{case.name}-{settings.rows}-{settings.test}.pt"
    if not path.exists():
        train, _ = solved(case, settings.rows, 1)
        test, spent = solved(case, settings.test, 2)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save((tuple(train), tuple(test), spent), path)
    train, test, spent = torch.load(path, weights_only=True)
    return Instances(Rows(*train), Rows(*test), spent)


# --- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """The inputs of the rules: linear functions of the loads, and how they make the load and what it puts on lines.

    Args:
        case: whose loads.
        weights: one row an input, over the loads.
        total: the load as a sum over the inputs.
        lines: what the loads put on every line, as sums over the inputs.
        error: by how much an input may be off, in MW, since it is computed in floats.
    """

    case: Case
    weights: list[list[Fraction]]
    total: list[Fraction]
    lines: list[list[Fraction]]
    error: Fraction

    @classmethod
    def of(cls, case: Case) -> Known:
        count = len(case.loads)
        one = Fraction(1)
        if case.name not in BY_SUMS:
            return cls(
                case,
                unit_rows(count),
                [one] * count,
                [line.loads for line in case.lines],
                Fraction(0),
            )
        relative = [shifted(line.loads, line.generators[0]) for line in case.lines]
        moving = [row for row in relative if any(row)]
        weights = [[one] * count, *moving]
        units = unit_rows(len(weights))
        lines = [
            units[1 + moving.index(row)] if any(row) else [Fraction(0)] * len(weights)
            for row in relative
        ]
        lines = [
            [a + line.generators[0] * b for a, b in zip(own, units[0], strict=True)]
            for own, line in zip(lines, case.lines, strict=True)
        ]
        return cls(case, weights, units[0], lines, Fraction(1, 1000))

    @cached_property
    def ranges(self) -> list[tuple[Fraction, Fraction]]:
        spans = [(LOW * load, HIGH * load) for load in self.case.loads]
        exact_ends = [ends(row, spans) for row in self.weights]
        return [(low - self.error, high + self.error) for low, high in exact_ends]

    def inputs(self, loads: Tensor) -> dict[str, Tensor]:
        """What the layer is given: one tensor an input."""
        values = (loads.double() @ self._matrix).float()
        return {f"u{i}": values[..., i] for i in range(values.shape[-1])}

    @cached_property
    def _matrix(self) -> Tensor:
        return (
            torch.tensor([[float(c) for c in row] for row in self.weights]).double().T
        )


def unit_rows(count: int) -> list[list[Fraction]]:
    """The identity."""
    return [[Fraction(int(i == j)) for j in range(count)] for i in range(count)]


def shifted(row: list[Fraction], by: Fraction) -> list[Fraction]:
    """Every number less the same."""
    return [c - by for c in row]


def decimal(number: Fraction, digits: int, rounding: Callable[[Fraction], int]) -> str:
    """A number in decimals, as rules have it."""
    scaled = rounding(number * 10**digits)
    sign = "-" if scaled < 0 else ""
    whole, part = divmod(abs(scaled), 10**digits)
    return f"{sign}{whole}.{part:0{digits}d}"


def rules_of(case: Case) -> str:
    """The rules in the library's language. The first generator is what the load leaves, and no output."""
    known = Known.of(case)
    outputs = case.most[1:]
    bounds = [
        f"[{decimal(low, 6, floor)}, {decimal(high, 6, ceil)}]"
        for low, high in known.ranges
    ]
    text = [f"u{i}: input{bound}" for i, bound in enumerate(bounds)]
    text.append(f"p: real[{len(outputs)}]")
    text += [f"0 <= p[{i}] <= {float(most)}" for i, most in enumerate(outputs)]
    error = known.error * sum(map(abs, known.total))
    total = summed(known.total, "u{}")
    largest = decimal(case.most[0] - error, 6, floor)
    text.append(f"{decimal(error, 6, ceil)} <= {total} - sum(p) <= {largest}")
    for line, base in zip(case.lines, known.lines, strict=True):
        first = line.generators[0]
        own = shifted(line.generators[1:], first)
        put = [
            c - first * t for c, t in zip(base, known.total, strict=True)
        ]  # what loads put on the line if the first generator meets them
        text.append(line_rule(line, own, put, known, outputs))
    return "\n".join(text)


def line_rule(
    line: Line,
    own: list[Fraction],
    put: list[Fraction],
    known: Known,
    outputs: list[Fraction],
) -> str:
    """One line's limit, smaller by what the rounding of coefficients and of inputs can matter."""
    sizes = [*outputs, *(max(abs(low), abs(high)) for low, high in known.ranges)]
    rounded = [Fraction(decimal(c, DIGITS, round)) for c in (*own, *put)]
    lost = sum(
        (
            abs(c - r) * size
            for c, r, size in zip((*own, *put), rounded, sizes, strict=True)
        ),
        Fraction(0),
    )
    lost += known.error * sum(map(abs, put))
    limit = decimal(line.limit - lost, 6, floor)
    flow = summed(rounded[: len(own)], "p[{}]")
    base = summed(rounded[len(own) :], "u{}")
    return f"-{limit} <= {flow} - ({base}) <= {limit}"


def summed(factors: list[Fraction], name: str) -> str:
    """A sum of products."""
    terms = [
        f"{decimal(c, DIGITS, round)}*{name.format(i)}"
        for i, c in enumerate(factors)
        if c
    ]
    return " + ".join(terms) or "0"


class Layer(NamedTuple):
    """The layer of a case, what its inputs are, and what building it took."""

    mux: mx.Multiplexer
    rules: mx.Rules
    known: Known
    seconds: float


@cache
def layer_of(name: Name) -> Layer:
    """Built once for all runs: it has no parameters."""
    case = case_of(name)
    began = time.process_time()
    rules = mx.Rules(rules_of(case))
    mux = mx.Multiplexer(rules, structure="terms", seconds=600)
    return Layer(mux, rules, Known.of(case), time.process_time() - began)


# --- networks --------------------------------------------------------------------------------------------------------


class Limits(nn.Module):
    """All limits as ``A p ≤ b`` for the outputs p, in floats: for methods that come near them, not for the judge."""

    A: Tensor
    constant: Tensor
    slope: Tensor

    def __init__(self, case: Case) -> None:
        super().__init__()
        n, k = len(case.most) - 1, len(case.loads)
        most = torch.tensor([float(each) for each in case.most])
        one, eye = torch.ones(1, n), torch.eye(n)
        own, put = (
            torch.tensor(
                [[float(c - line.generators[0]) for c in row] for row, line in rows]
            )
            for rows in (
                [(line.generators[1:], line) for line in case.lines],
                [(line.loads, line) for line in case.lines],
            )
        )
        limit = torch.tensor([float(line.limit) for line in case.lines])
        none, all_loads = torch.zeros(n, k), torch.ones(1, k)
        zero = torch.zeros(n)
        self.register_buffer("A", torch.cat([-eye, eye, one, -one, own, -own]))
        constant = [zero, most[1:], zero[:1], most[:1], limit, limit]
        self.register_buffer("constant", torch.cat(constant))
        slope = [none, none, all_loads, -all_loads, put, -put]
        self.register_buffer("slope", torch.cat(slope))
        self.step = 1 / float(torch.linalg.matrix_norm(self.A, 2)) ** 2

    def excess(self, p: Tensor, loads: Tensor) -> Tensor:
        """By how many MW each limit is broken; negative where it is kept."""
        return p @ self.A.T - self.constant - loads @ self.slope.T

    def corrected(self, p: Tensor, loads: Tensor, steps: int = 10) -> Tensor:
        """Steps down the squared violation."""
        for _ in range(steps):
            p = p - self.step * self.excess(p, loads).relu() @ self.A
        return p

    def projected(self, p: Tensor, loads: Tensor, steps: int = 100) -> Tensor:
        """Towards the nearest point that obeys, by accelerated steps up the dual problem."""
        price = ahead = torch.zeros(*p.shape[:-1], len(self.A))
        for number in range(steps):
            before = price
            excess = self.excess(p - ahead @ self.A, loads)
            price = (ahead + self.step * excess).relu()
            ahead = price + number / (number + 3) * (price - before)
        return p - price @ self.A


class Model(nn.Module):
    """Loads to what the generators but the first give; the same trunk for all methods."""

    middle: Tensor
    size: Tensor
    nominal: Tensor

    def __init__(self, case: Case, method: Method, start: Tensor, hidden: int) -> None:
        super().__init__()
        self.method = method
        self.layer = layer_of(case.name)
        self.limits = Limits(case)
        loads = [float(load) for load in case.loads]
        self.register_buffer("nominal", torch.tensor(loads))
        most = [float(each) for each in case.most[1:]]
        self.register_buffer("size", torch.tensor(most))
        self.register_buffer("middle", start)
        outputs = self.layer.mux.in_features if self.has_layer else len(most)
        self.net = nn.Sequential(
            nn.Linear(len(loads), hidden),
            nn.ReLU(),
            nn.Linear(hidden, outputs),
        )

    @property
    def has_layer(self) -> bool:
        return self.method.startswith("multiplexnet")

    def forward(self, loads: Tensor) -> Tensor:
        raw = self.net((loads / self.nominal - 1) / 0.2)
        if self.has_layer:
            answers: Tensor = self.layer.mux(
                raw, **self.layer.known.inputs(loads)
            ).best()
            return answers
        p: Tensor = self.middle + self.size * raw
        return self.limits.corrected(p, loads) if self.method == "dc3" else p


def everything(p: Tensor, loads: Tensor) -> Tensor:
    """What all generators give: the first the rest of the load."""
    first = loads.sum(-1, keepdim=True) - p.sum(-1, keepdim=True)
    return torch.cat([first, p], -1)


class Loss(nn.Module):
    """Squared error against the solver, with a penalty for dc3; or the cost."""

    costs: Tensor
    scale: Tensor

    def __init__(self, model: Model, case: Case, penalty: float) -> None:
        super().__init__()
        self.model, self.penalty = model, penalty
        self.register_buffer("costs", torch.tensor(case.costs).float())
        most = [float(each) for each in case.most]
        self.register_buffer("scale", torch.tensor(most))

    def forward(self, loads: Tensor, target: Tensor) -> Tensor:
        answers = self.model(loads)
        p = everything(answers, loads)
        if self.model.method.startswith("multiplexnet-cost"):
            c1, c2 = self.costs.T
            cost = (c1 * p + c2 * p.square()).sum(-1)
            return torch.mean(cost / (c1.max() * loads.sum(-1)))
        loss: Tensor = ((p - target) / self.scale).square().sum(-1).mean()
        if self.model.method == "dc3":
            excess = self.model.limits.excess(answers, loads).relu()
            loss = (
                loss
                + self.penalty * (excess / self.scale.mean()).square().sum(-1).mean()
            )
        return loss


# --- judging ---------------------------------------------------------------------------------------------------------

FINE = 2**149
"""The reciprocal of the least float32: all of them are whole multiples of it."""


class Verdict(NamedTuple):
    """The share of rows that break a limit, and the most MW by which one does."""

    violations: float
    largest: float


def judged(case: Case, p: Tensor, loads: Tensor) -> Verdict:
    """Every limit of every row, in whole numbers: floats are taken as the fractions that they are."""
    worst = [
        row_excess(case, *row) for row in zip(wholes(p), wholes(loads), strict=True)
    ]
    broken = [excess for excess in worst if excess > 0]
    return Verdict(len(broken) / len(worst), float(max(broken, default=0)))


def wholes(x: Tensor) -> list[list[int]]:
    """Float32 numbers as multiples of the least one."""
    return [[int(Fraction(v) * FINE) for v in row] for row in x.tolist()]


def row_excess(case: Case, p: list[int], loads: list[int]) -> Fraction:
    """By how much the most broken limit is broken; negative or 0 if none is."""
    given = [sum(loads) - sum(p), *p]
    ends = zip(given, case.most, strict=True)
    own = [max(Fraction(-each), each - most * FINE) for each, most in ends]
    flows = [
        abs(dot(generators, given) - dot(taken, loads)) - limit * FINE
        for limit, generators, taken in scaled(case.name)
    ]
    lines = [
        Fraction(excess) / below
        for excess, below in zip(flows, denominators(case.name), strict=True)
    ]
    return max([*own, *lines]) / FINE


def dot(a: list[int], b: list[int]) -> int:
    """A sum of products."""
    return sum(x * y for x, y in zip(a, b, strict=True))


@cache
def denominators(name: Name) -> list[int]:
    """For each line one number that makes all its factors whole."""
    return [
        lcm(
            line.limit.denominator,
            *(c.denominator for c in (*line.generators, *line.loads)),
        )
        for line in case_of(name).lines
    ]


@cache
def scaled(name: Name) -> list[tuple[int, list[int], list[int]]]:
    """Limits and factors of lines, times their denominators."""
    return [
        (
            int(line.limit * below),
            [int(c * below) for c in line.generators],
            [int(c * below) for c in line.loads],
        )
        for line, below in zip(case_of(name).lines, denominators(name), strict=True)
    ]


# --- runs ------------------------------------------------------------------------------------------------------------

Answer = Callable[[Tensor], Tensor]


def answers_of(model: Model) -> dict[str, Answer]:
    """What is reported of a model: its answers, and for the plain network also what is done with them afterwards."""

    def repaired(loads: Tensor) -> Tensor:
        known = model.layer.known.inputs(loads)
        moved: Tensor = model.layer.mux.repair(model(loads), **known)
        return moved

    found: dict[str, Answer] = {model.method: model}
    if model.method == "net":
        found["clip"] = lambda loads: torch.clamp(model(loads), min=0).minimum(
            model.size
        )
        found["projection"] = lambda loads: model.limits.projected(model(loads), loads)
        found["repair"] = repaired
    return found


@torch.no_grad()
def measured(case: Case, answer: Answer, rows: Rows) -> dict[str, Any]:
    """Gap, exact violations and time."""
    p = answer(rows.loads)
    costs = case.cost(everything(p.double(), rows.loads.double()).numpy())
    gap = costs / rows.optimum.numpy() - 1
    verdict = judged(case, p, rows.loads)
    return {
        "gap": float(gap.mean()),
        "gap_worst": float(gap.max()),
        "violations": verdict.violations,
        "largest": verdict.largest,
        "ms_batch": spent(lambda: answer(rows.loads)) / len(rows.loads),
        "ms_alone": spent(lambda: answer(rows.loads[:1])),
    }


def spent(call: Callable[[], Any], times: int = 7) -> float:
    """Processor milliseconds of a call, the least of several."""
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(1e3 * (time.process_time() - began))
    return round(min(found), 4)


def one_run(run: harness.Run, case: Case, method: Method, settings: Settings) -> None:
    """Train, report on test rows, write a line for every kind of answer."""
    rows, test, solver_ms = instances(case, settings)
    run.seed(run.key["seed"])
    model = Model(case, method, rows.p.mean(0)[1:], settings.hidden)
    loss_of = Loss(model, case, settings.penalty)
    rate, epochs = settings.rate_of(method), settings.epochs_of(method)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    steps = epochs * ceil(len(rows.p) / settings.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    training, optimizer = run.prepare(loss_of, optimizer)
    for _ in run.epochs(epochs, model=training, optimizer=optimizer, schedule=schedule):
        for index in run.batches(len(rows.p), settings.batch):
            loads = rows.loads[index]
            if method in FRESH:
                loads = random_loads(case, len(index))
            loss = training(loads, rows.p[index])
            run.check(loss)
            optimizer.zero_grad()
            run.backward(loss)
            optimizer.step()
            schedule.step()
    model.eval()
    about = {
        "solver_ms": round(solver_ms, 2),
        "build_seconds": round(model.layer.seconds, 1),
        "rows": len(test.loads),
    }
    found = {
        name: measured(case, answer, test) | about
        for name, answer in answers_of(model).items()
    }
    own = found.pop(method)
    for name, values in found.items():
        key = run.key | {"method": name}
        run.results.write(key, values | {"seconds": round(run.seconds, 2)})
    run.finish(**own)


# --- results ---------------------------------------------------------------------------------------------------------

ANSWERS = (
    "net",
    "clip",
    "projection",
    "dc3",
    "repair",
    "multiplexnet",
    "multiplexnet-cost",
    "multiplexnet-cost-long",
)
"""All methods, in the order of tables and pictures."""


def draw(results: harness.Results, settings: Settings, path: Path) -> None:
    """Gap and violations of every seed, a panel a case."""
    figure = Figure(
        figsize=(3.1 * len(settings.cases) + 1.6, 3.8), layout="constrained"
    )
    panels = figure.subplots(
        1, len(settings.cases), sharex=True, sharey=True, squeeze=False
    )[0]
    lines = list(results)
    for panel, name in zip(panels, settings.cases, strict=True):
        for number, method in enumerate(ANSWERS):
            own = [
                line
                for line in lines
                if line["case"] == name and line["method"] == method
            ]
            marker = "o" if method.startswith("multiplexnet") else "x"
            panel.plot(
                [100 * abs(line["gap"]) for line in own],
                [100 * line["violations"] for line in own],
                marker,
                color=f"C{number}",
                label=method,
                alpha=0.8,
            )
            circle_negative(panel, own, f"C{number}")
        panel.set(title=f"case {name}", xscale="log", ylim=(-4, 104))
        panel.set_xlabel("|gap| to the optimum, %\n(in a circle: negative)")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("rows that break a limit, %")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside right center",
        frameon=False,
    )
    figure.savefig(path, dpi=110)


def circle_negative(
    panel: Axes, lines: Iterable[Mapping[str, Any]], colour: str
) -> None:
    """Mark what costs less than the optimum, since it breaks limits: by its size alone it would look best."""
    negative = [line for line in lines if line["gap"] < 0]
    panel.plot(
        [100 * abs(line["gap"]) for line in negative],
        [100 * line["violations"] for line in negative],
        "o",
        mfc="none",
        mec=colour,
        ms=12,
    )


def main(settings: Settings) -> None:
    """All runs of the settings, then the picture."""
    results = harness.Results("power", settings)
    for name in settings.cases:
        case = case_of(name)
        for method in settings.methods:
            for seed in settings.seeds:
                with results.run({"case": name, "method": method, "seed": seed}) as run:
                    if not run.done:
                        one_run(run, case, method, settings)
    if results.accelerator.is_main_process:
        draw(results, settings, settings.figures_folder / "power_gap.png")


if __name__ == "__main__":
    harness.command(Settings, main)
