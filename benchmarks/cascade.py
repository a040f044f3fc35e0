"""What cascades cost: seconds to build, options, and time of a step as a multiple of a bare softplus.

    python benchmarks/cascade.py [--quick]

Times are processor times of this process, the least of several runs, forward and backward of ``best()`` in float32, one
thread. A ratio compares with ``softplus`` on a tensor of raw values of the same shape, forward and backward, both in
turns. Everything is written to ``benchmarks/results/cascade.json``, and the table in ``docs/understand/cost.md`` is
drawn anew from it, unless it is ``--quick``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from random import Random
from time import process_time

import torch
from torch import Tensor
from torch.nn.functional import softplus

from multiplexnet import Multiplexer, Rules

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/cascade.json"
PAGE = ROOT / "docs/understand/cost.md"
SIZES = {16_384: 15, 1_024: 60}
"""Rows of a batch, and how often it is run."""
BARE = 4
"""So many times is the softplus run for every step of a layer: it is short."""


@dataclass(frozen=True)
class Family:
    """Rules of one kind, and values for their inputs."""

    name: str
    text: str
    inputs: Callable[[int], dict[str, Tensor]] = lambda rows: {}
    seed: int | None = None


def lots(n: int, rest: str) -> str:
    return f"x: real[{n}]; all(v == 0 or 10 <= v <= 100 for v in x); {rest}"


def table(columns: int, rules: int, seed: int) -> str:
    """«If … and … then …» over columns between −20 and 20."""
    random = Random(seed)

    def atom(column: int) -> str:
        return f"x[{column}] {random.choice(['<=', '>='])} {random.randint(-10, 10)}"

    lines = [f"x: real[{columns}]", "all(-20 <= v <= 20 for v in x)"]
    for _ in range(rules):
        first, second, third = map(atom, random.sample(range(columns), 3))
        lines.append(f"implies({first} and {second}, {third})")
    return "\n".join(lines)


def demand(rows: int) -> dict[str, Tensor]:
    return {"u": torch.rand(rows) * 290 + 10}


FAMILIES = [
    *(
        Family(f"{n} lots, sum at most 300", lots(n, "sum(x) <= 300"))
        for n in (10, 30, 100)
    ),
    *(
        Family(
            f"{n} lots, sum equals an input",
            "u: input[10, 300]; " + lots(n, "sum(x) == u"),
            demand,
        )
        for n in (10, 30)
    ),
    Family(
        "at most 3 of 30 quantities",
        "x: real[30]; all(0 <= v <= 10 for v in x); sum(1 if v > 0 else 0 for v in x) <= 3",
    ),
    Family(
        "chain of 20",
        "x: real[20]; 0 <= x[0]; x[19] <= 9; all(x[i] <= x[i+1] for i in range(19))",
    ),
    *(
        Family(f"table {columns}/{rules}", table(columns, rules, seed), seed=seed)
        for columns, rules in (
            (20, 20),
            (40, 40),
            (80, 80),
            (20, 40),
            (40, 80),
            (80, 160),
        )
        for seed in range(3)
    ),
]


@dataclass(frozen=True)
class Measured:
    """What was found for one family.

    Args:
        rules: its name.
        seed: of a random one.
        build_seconds: processor time from rules to layer.
        most_options: of one output.
        all_options: of all outputs together.
        ratios: multiples of a softplus, for each of ``SIZES``.
    """

    rules: str
    seed: int | None
    build_seconds: float
    most_options: int
    all_options: int
    ratios: tuple[float, ...]


def seconds_of(work: Callable[[], object]) -> float:
    """The processor time of one run."""
    start = process_time()
    work()
    return process_time() - start


def ratio(mux: Multiplexer, family: Family, rows: int, runs: int) -> float:
    """Forward and backward as a multiple of a softplus: the least times of runs in turns, after one each."""
    raw = torch.randn(rows, mux.in_features, requires_grad=True)
    plain = torch.randn(rows, mux.out_features, requires_grad=True)
    given = family.inputs(rows)

    def own() -> object:
        return torch.autograd.grad(mux(raw, **given).best().sum(), raw)

    def bare() -> object:
        return torch.autograd.grad(softplus(plain).sum(), plain)

    own()
    bare()
    owns, bares = [], []
    for _ in range(runs):
        owns.append(seconds_of(own))
        bares += [seconds_of(bare) for _ in range(BARE)]
    return min(owns) / min(bares)


def measured(family: Family, sizes: Mapping[int, int]) -> Measured:
    """What a family costs, for batches of these sizes, each run so many times."""
    rules = Rules(family.text)
    start = process_time()
    mux = Multiplexer(rules, structure="cascade")
    seconds = process_time() - start
    options = [step.size for cascade in mux.cascades for step in cascade.steps]
    return Measured(
        family.name,
        family.seed,
        round(seconds, 2),
        max(options),
        sum(options),
        tuple(round(ratio(mux, family, *size), 1) for size in sizes.items()),
    )


# --- what is written --------------------------------------------------------------------------------------------------


def table_of(found: Sequence[Measured]) -> Iterator[str]:
    """Lines of the table: of families with several seeds the largest figures."""
    columns = ["rules", "build s", "most options of an output"]
    columns += [f"× softplus, {rows:,} rows" for rows in SIZES]
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for rules, same in groupby(found, key=lambda one: one.rules):
        own = list(same)
        cells = [
            rules if len(own) == 1 else f"{rules}, the worst of {len(own)}",
            f"{max(one.build_seconds for one in own):.2f}",
            str(max(one.most_options for one in own)),
            *(
                f"{max(ratios):.1f}"
                for ratios in zip(*(one.ratios for one in own), strict=True)
            ),
        ]
        yield f"| {' | '.join(cells)} |"


def write(found: Sequence[Measured]) -> None:
    """The results, and the table of the page."""
    load = os.getloadavg()[1]
    results = {
        "command": "python benchmarks/cascade.py",
        "torch": torch.__version__,
        "load_in_five_minutes": round(load, 1),
        "processors": os.cpu_count(),
        "rows": list(SIZES),
        "families": [asdict(one) for one in found],
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    busy = (
        f"on a busy machine (on average {load:.0f} programs wanted its {os.cpu_count()} processors), so that "
        "ratios may be higher than alone"
        if load > 1.5
        else "on a quiet machine"
    )
    said = "\n".join([f"Measured {busy}.", "", *table_of(found), ""])
    page = PAGE.read_text(encoding="utf-8")
    marks = r"(<!-- benchmarks/cascade.py -->\n).*?(<!-- end -->)"
    PAGE.write_text(
        re.sub(marks, lambda own: own[1] + said + own[2], page, flags=re.DOTALL),
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer families and runs")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = []
    for family in FAMILIES[:2] if quick else FAMILIES:
        found.append(measured(family, dict.fromkeys(SIZES, 3) if quick else SIZES))
        print(*table_of(found[-1:]), sep="\n", flush=True)
    if not quick:
        write(found)


if __name__ == "__main__":
    main()
