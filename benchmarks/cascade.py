"""What cascades cost: seconds to build, options, and time of a step as a multiple of a bare softplus.

    python benchmarks/cascade.py [--quick]

Times are processor times of this process, the least of several runs, forward and backward of ``best()`` in float32, one
thread. A ratio compares with ``softplus`` on a tensor of raw values of the same shape, forward and backward.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from time import process_time

import torch
from torch import Tensor
from torch.nn.functional import softplus

from multiplexnet import Multiplexer, Rules


@dataclass(frozen=True)
class Family:
    """Rules of one kind, and values for their inputs."""

    name: str
    text: str
    inputs: Callable[[int], dict[str, Tensor]] = lambda rows: {}


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
    *(Family(f"{n} lots, sum at most 300", lots(n, "sum(x) <= 300")) for n in (10, 30, 100)),
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
        "chain of 20", "x: real[20]; 0 <= x[0]; x[19] <= 9; all(x[i] <= x[i+1] for i in range(19))"
    ),
    *(
        Family(f"table {columns}/{rules}, seed {seed}", table(columns, rules, seed))
        for columns, rules in ((20, 20), (40, 40), (80, 80), (20, 40), (40, 80), (80, 160))
        for seed in range(3)
    ),
]


def least(work: Callable[[], object], runs: int) -> float:
    """The least processor time of some runs, after one that does not count."""
    work()
    found = []
    for _ in range(runs):
        start = process_time()
        work()
        found.append(process_time() - start)
    return min(found)


def ratio(mux: Multiplexer, family: Family, rows: int, runs: int) -> float:
    """Forward and backward as a multiple of a softplus."""
    raw = torch.randn(rows, mux.in_features, requires_grad=True)
    plain = torch.randn(rows, mux.out_features, requires_grad=True)
    given = family.inputs(rows)
    own = least(lambda: torch.autograd.grad(mux(raw, **given).best().sum(), raw), runs)
    bare = least(lambda: torch.autograd.grad(softplus(plain).sum(), plain), runs)
    return own / bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer families and runs")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("| rules | build s | options: most, all | × softplus, 16,384 | × softplus, 1,024 |")
    print("| --- | --- | --- | --- | --- |")
    for family in FAMILIES[:2] if quick else FAMILIES:
        rules = Rules(family.text)
        start = process_time()
        mux = Multiplexer(rules, structure="cascade")
        seconds = process_time() - start
        sizes = [step.size for cascade in mux.cascades for step in cascade.steps]
        times = [ratio(mux, family, rows, 3 if quick else 9) for rows in (16_384, 1_024)]
        cells = [f"{seconds:.2f}", f"{max(sizes)}, {sum(sizes)}", *(f"{t:.1f}" for t in times)]
        print(f"| {family.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
