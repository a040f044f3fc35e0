"""What a layer costs: time against a bare softplus, memory and time for many terms, seconds to set it up.

    python benchmarks/layer.py [--quick] [--json] [--only NAME] [--write]

The layer's ``best()`` and ``softplus`` of a tensor of the same shape ``(B, D)`` as its outputs run in turn, one thread,
forward alone (eval, no gradient) and forward with backward (training); the table gives the ratio of the medians. Times
are processor times, which other programs on the machine disturb less than the clock. «Products too» are layers with
``precision="float32"``, where that makes a difference. «Loss» is the expected loss over all terms, «loss by output» the
same of a loss that is given output by output, which needs no combinations of terms of several blocks. Rule files of
tabular data come from the folder in the environment variable MULTIPLEXNET_DATA (``tabular/*/constraints.txt``); without
it they are left out. Many terms are boxes in ten dimensions that are handed to the layer as they are: to find 10,000
terms is the compiler's business (benchmarks/compile.py), to run them the layer's. ``--write`` keeps the results in
results/layer.json and fills the tables of the documentation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from time import process_time

import torch
import torch.nn.functional as F
from cost_page import fill, processor
from torch import Tensor

from multiplexnet.compiler.terms import Block, Compiled, Proof, Term
from multiplexnet.language.formula import Atom, Linear, Rule, Specification, Variable
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules
from multiplexnet.transforms.gauge import Gauge

BATCHES = (1024, 16384)
DTYPES = (torch.float32, torch.float64)
PRODUCTS = ", products too"
RESULTS = Path(__file__).parent / "results" / "layer.json"


@dataclass(frozen=True)
class Case:
    """Rules, and the multiples of a softplus to reach forward and backward.

    Args:
        name: what ``--only`` looks for.
        rules: makes them.
        goals: by batch, in float32.
        loss: the goal of the loss over all terms, at the largest batch; ``None``: it is not measured.
        by_output: whether it is measured output by output as well.
        slow: whether they take long to set up.
        inputs: the ends between which inputs are drawn.
        batches: how many rows are measured.
    """

    name: str
    rules: Callable[[], Rules]
    goals: Mapping[int, float] = field(default_factory=dict)
    loss: float | None = None
    by_output: bool = False
    slow: bool = False
    inputs: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    batches: tuple[int, ...] = BATCHES


@dataclass(frozen=True)
class Cost:
    """One row of the first table; times in milliseconds, ratios to softplus."""

    name: str
    dtype: str
    batch: int
    forward: float
    forward_ratio: float
    both: float
    both_ratio: float
    goal: float | None
    setup_seconds: float


@dataclass(frozen=True)
class Many:
    """One row of the second table; memory as a share of one tensor of all values of all terms."""

    terms: int
    setup_seconds: float
    best_ms: float
    step_seconds: float
    step_memory: float


# --- rules ----------------------------------------------------------------------------------------------------------


def polytope(n: int, m: int) -> Callable[[], Rules]:
    """m dense inequalities around the origin, coefficients with three decimals."""

    def row(random: Random) -> str:
        return (
            " + ".join(f"{random.gauss(0, 1):.3f}*x[{j}]" for j in range(n))
            + f" <= {random.uniform(1, 10):.3f}"
        )

    def rules() -> Rules:
        random = Random(0)
        return Rules("\n".join([f"x: real[{n}]", *(row(random) for _ in range(m))]))

    return rules


def eight_boxes() -> Rules:
    corners = [(x, y) for x in (-9, -3, 3, 9) for y in (-3, 3)]
    return Rules(
        " or ".join(
            f"({x} <= x <= {x} + 2 and {y} <= y <= {y} + 2)" for x, y in corners
        )
    )


def same_shaped_blocks(count: int) -> Rules:
    """Pairs that are ordered within a range, none of which knows of another."""
    pairs = [(2 * i, 2 * i + 1) for i in range(count)]
    rows = [f"0 <= x[{a}]; x[{a}] <= x[{b}]; x[{b}] <= 10" for a, b in pairs]
    return Rules("\n".join([f"x: real[{2 * count}]", *rows]))


def choices(count: int) -> Rules:
    """Pairs that keep a distance, in either order."""
    pairs = [(2 * i, 2 * i + 1) for i in range(count)]
    rows = [f"x[{a}] + 1 <= x[{b}] or x[{b}] + 1 <= x[{a}]" for a, b in pairs]
    return Rules("\n".join([f"x: real[{2 * count}]", *rows]))


CASES = (
    Case(
        "box 10",
        lambda: Rules("x: real[10]\nall(-1 <= v <= 3 for v in x)"),
        {16384: 1.25, 1024: 2.5},
    ),
    Case(
        "decimal box 10", lambda: Rules("x: real[10]\nall(-0.1 < v < 3.3 for v in x)")
    ),
    Case(
        "chain 20",
        lambda: Rules("q: real[20]\nall(q[i] <= q[i + 1] for i in range(19))"),
        {16384: 3},
    ),
    Case(
        "simplex 10",
        lambda: Rules("w: real[10]\nall(v >= 0 for v in w)\nsum(w) == 1"),
        {16384: 4, 1024: 6},
    ),
    Case("equality of 10", lambda: Rules("x: real[10]\nsum(x) == 3"), {16384: 5}),
    Case("polytope n=10 m=30", polytope(10, 30), {16384: 5}),
    Case("polytope n=50 m=200", polytope(50, 200), {16384: 6}),
    Case("polytope n=200 m=1000", polytope(200, 1000), {16384: 12}, slow=True),
    Case("8 boxes in 2-D, best()", eight_boxes, {16384: 5.5}, loss=25),
    Case("31 same-shaped blocks", lambda: same_shaped_blocks(31), {1024: 15}),
    Case("31 same-shaped choices", lambda: choices(31), {1024: 15}),
    Case(
        "10 outputs, one bound from an input",
        lambda: Rules(
            "u: input[0, 10]\nx: real[10]\nall(0 <= v <= 10 for v in x)\nx[0] <= u"
        ),
        {16384: 3},
        inputs={"u": (1.0, 10.0)},
    ),
    Case(
        "10 outputs below an input",
        lambda: Rules("u: input[0, 10]\nx: real[10]\nall(0 <= v <= u for v in x)"),
        {16384: 3, 1: 8},
        inputs={"u": (1.0, 10.0)},
        batches=(1, *BATCHES),
    ),
    Case(
        "rules with inputs, one row",
        lambda: Rules(
            "u: input[0, 10]\nx: real[3]\nx[0] >= 0\nx[0] <= x[1] <= x[2] <= u"
        ),
        {1: 8},
        inputs={"u": (1.0, 10.0)},
        batches=(1,),
    ),
)


def files() -> Iterator[Case]:
    """The rule files of tabular data, if the environment says where they are."""
    folder = os.environ.get("MULTIPLEXNET_DATA", "")
    for name, goal, loss in (("heloc", 10.0, 60.0), ("url", 20.0, 300.0)):
        path = Path(folder) / "tabular" / name / "constraints.txt"
        if folder and path.exists():
            yield Case(
                f"{name} rules",
                lambda path=path: Rules.load(path),  # type: ignore[misc]
                {16384: goal},
                loss,
                by_output=True,
            )
        else:
            print(
                f"{name} rules left out: set MULTIPLEXNET_DATA to a folder with {'/'.join(path.parts[-3:])}",
                file=sys.stderr,
            )


def boxes(count: int, width: int = 10) -> tuple[Rules, Compiled]:
    """Rules that are already in disjunctive normal form, without asking a solver."""
    random = Random(0)
    outputs = tuple(Variable(f"x[{j}]", j) for j in range(width))

    def term() -> Term:
        low = [random.randint(-100, 100) for _ in outputs]
        rows = [
            (Atom(-Linear.of(v) + a, "<="), Atom(Linear.of(v) - a - 5, "<="))
            for v, a in zip(outputs, low, strict=True)
        ]
        return Term(tuple(row for pair in rows for row in pair))

    block = Block(outputs, tuple(term() for _ in range(count)))
    specification = Specification(outputs, (Rule(block.formula, f"{count} boxes"),))
    return Rules.from_specification(specification), Compiled(
        outputs, (), (block,), Proof(True, True, "given", 0)
    )


# --- measuring ------------------------------------------------------------------------------------------------------


def turns(*actions: Callable[[], object], seconds: float) -> list[float]:
    """The median processor time of each action in seconds; they take turns."""
    for action in actions:
        action()
    times: list[list[float]] = [[] for _ in actions]
    start = process_time()
    while process_time() - start < seconds or len(times[0]) < 5:
        for action, own in zip(actions, times, strict=True):
            before = process_time()
            action()
            own.append(process_time() - before)
    return [median(own) for own in times]


Answer = Callable[[Tensor], Tensor]
"""What a layer makes of raw values, or softplus of a tensor."""


def with_backward(answer: Answer, leaf: Tensor) -> Callable[[], None]:
    """A step forward and backward."""
    leaf = leaf.clone().requires_grad_()
    gradient = torch.randn_like(answer(leaf))

    def step() -> None:
        leaf.grad = None
        answer(leaf).backward(gradient)  # type: ignore[no-untyped-call]

    return step


@dataclass(frozen=True)
class Timed:
    """A layer that is measured.

    Args:
        case: its rules.
        mux: the layer.
        setup: seconds that it took to build.
        kind: what the layer computes in, beside its dtype.
        seconds: how long each measurement takes.
    """

    case: Case
    mux: Multiplexer
    setup: float
    kind: str
    seconds: float

    def best(self, batch: int) -> Cost:
        """``best()`` of so many rows."""
        given = {
            name: (torch.rand(batch) * (upper - lower) + lower).to(self.mux.dtype)
            for name, (lower, upper) in self.case.inputs.items()
        }

        def best(raw: Tensor) -> Tensor:
            x: Tensor = self.mux(raw, **given).best()
            return x

        return self._cost(best, batch, "", self.case.goals.get(batch))

    def loss(self, batch: int) -> Cost:
        """The expected squared distance over all terms."""
        y = torch.randn(batch, 1, self.mux.out_features, dtype=self.mux.dtype)

        def loss(raw: Tensor) -> Tensor:
            found: Tensor = self.mux(raw).loss(lambda x: (x - y).square().sum(-1))
            return found

        return self._cost(loss, batch, ", loss", self.case.loss)

    def loss_by_output(self, batch: int) -> Cost:
        """The same, which sees the squared distance of each output."""
        y = torch.randn(batch, 1, self.mux.out_features, dtype=self.mux.dtype)

        def loss(raw: Tensor) -> Tensor:
            found: Tensor = self.mux(raw).loss(lambda x: (x - y).square())
            return found

        return self._cost(loss, batch, ", loss by output", None)

    def _cost(self, answer: Answer, batch: int, what: str, goal: float | None) -> Cost:
        mux = self.mux
        raw = torch.randn(batch, mux.in_features, dtype=mux.dtype)
        z = torch.randn(batch, mux.out_features, dtype=mux.dtype)
        mux.eval()
        with torch.no_grad():
            own, bare = turns(
                lambda: answer(raw), lambda: F.softplus(z), seconds=self.seconds
            )
        mux.train()
        own_both, bare_both = turns(
            with_backward(answer, raw),
            with_backward(F.softplus, z),
            seconds=self.seconds,
        )
        return Cost(
            name=self.case.name + what,
            dtype=str(mux.dtype).removeprefix("torch.") + self.kind,
            batch=batch,
            forward=own * 1e3,
            forward_ratio=own / bare,
            both=own_both * 1e3,
            both_ratio=own_both / bare_both,
            goal=goal if mux.dtype is torch.float32 else None,
            setup_seconds=self.setup,
        )


def costs(cases: Sequence[Case], seconds: float) -> Iterator[Cost]:
    for case in cases:
        start = process_time()
        rules = case.rules()
        mux = Multiplexer(rules, dtype=DTYPES[0], seconds=None)
        setup = process_time() - start
        if case.loss is not None:
            yield Timed(case, mux, setup, "", seconds).loss(BATCHES[-1])
        if case.by_output:
            yield Timed(case, mux, setup, "", seconds).loss_by_output(BATCHES[-1])
        if narrow := in_float32(rules):
            timed = Timed(case, narrow, setup, PRODUCTS, seconds)
            yield from map(timed.best, case.batches)
        for dtype in DTYPES:
            timed = Timed(case, mux.to(dtype), setup, "", seconds)
            yield from map(timed.best, case.batches)


def in_float32(rules: Rules) -> Multiplexer | None:
    """The layer with products in float32; ``None`` if it has none."""
    mux = Multiplexer(rules, dtype=torch.float32, precision="float32", seconds=None)
    parts = [part for part in mux.modules() if isinstance(part, Gauge)]
    return mux if any(part.rows.dtype is torch.float32 for part in parts) else None


def peak_bytes(action: Callable[[], object]) -> int:
    """The most that torch held at once during the action, beyond what it held before."""
    with torch.profiler.profile(profile_memory=True) as profile:
        action()
    assert profile.profiler is not None
    alive = 0
    peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak


def many(count: int, batch: int = 1024, width: int = 10) -> Many:
    rules, compiled = boxes(count, width)
    start = process_time()
    mux = Multiplexer.from_compiled(rules, compiled, dtype=torch.float32)
    setup = process_time() - start
    raw = torch.randn(batch, mux.in_features, requires_grad=True)
    target = torch.randn(batch, 1, width)

    def step() -> None:
        raw.grad = None
        mux(raw).loss(lambda x: (x - target).square().sum(-1)).mean().backward()

    (seconds,) = turns(step, seconds=0)
    raw.grad = None
    memory = peak_bytes(step) / (4 * batch * count * width)
    mux.eval()
    with torch.no_grad():
        (best,) = turns(lambda: mux(raw).best(), seconds=0.5)
    return Many(count, setup, best * 1e3, seconds, memory)


# --- showing --------------------------------------------------------------------------------------------------------

HEADS = {
    Cost: (
        "rules",
        "dtype",
        "batch",
        "forward ms",
        "× softplus",
        "both ms",
        "× softplus",
        "goal",
        "set-up s",
    ),
    Many: (
        "terms (boxes in 10-D, batch 1,024)",
        "set-up s",
        "best() ms",
        "step s",
        "step memory / (B, K, D)",
    ),
}


def cells(row: Cost | Many) -> list[str]:
    if isinstance(row, Many):
        numbers = (row.setup_seconds, row.best_ms, row.step_seconds, row.step_memory)
        return [f"{row.terms:,}", *(f"{number:.2f}" for number in numbers)]
    goal = "" if row.goal is None else f"≤ {row.goal:g}"
    return [
        row.name, row.dtype, f"{row.batch:,}", f"{row.forward:.3f}", f"{row.forward_ratio:.1f}",
        f"{row.both:.3f}", f"{row.both_ratio:.1f}", goal, f"{row.setup_seconds:.2f}",
    ]  # fmt: skip


def show(kind: type[Cost] | type[Many], rows: Sequence[Cost | Many]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        for columns in [list(HEADS[kind]), *map(cells, rows)]:
            print("  ".join(columns))
        return
    table = Table(*HEADS[kind])
    for row in rows:
        table.add_row(*cells(row))
    Console(width=130).print(table)


def write(first: Sequence[Cost], second: Sequence[Many], load: float) -> None:
    """The results, and the tables of the page that are made of them."""
    results = {
        "command": "python benchmarks/layer.py --write",
        "torch": torch.__version__,
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "processor": processor(),
        "layers": [asdict(row) for row in first],
        "many_terms": [asdict(row) for row in second],
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short measurements, without what takes long to set up",
    )
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON per row instead of tables"
    )
    parser.add_argument(
        "--only",
        default="",
        help="rules whose name contains this ('terms': the second table)",
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the results, and fill the page"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chosen = [
        c
        for c in (*CASES, *files())
        if options.only in c.name and not (options.quick and c.slow)
    ]
    counts = (
        []
        if options.only not in "terms"
        else [100, 1000]
        if options.quick
        else [100, 1000, 10_000]
    )
    load = os.getloadavg()[0]
    first = list(costs(chosen, 0.1 if options.quick else 1.0))
    second = [many(count) for count in counts]
    if options.write:
        write(first, second, load)
    if options.json:
        rows: list[Cost | Many] = [*first, *second]
        print("\n".join(json.dumps(asdict(row)) for row in rows))
        return
    if first:
        show(Cost, first)
    if second:
        show(Many, second)


if __name__ == "__main__":
    main()
