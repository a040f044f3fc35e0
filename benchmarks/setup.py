"""How long it takes from rules to a layer, and how much memory: large sets, dense and sparse.

    python benchmarks/setup.py [--only NAME] [--write]

Each set is built in a process of its own; imports are not counted, and neither is making the terms that are given.
Seconds are those of the processor, one thread.
Memory is the most that the process held beyond what it held before. Goals are seconds on an idle machine. ``--write``
keeps what was measured in results/setup.json and fills the table of the documentation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from time import process_time

import numpy as np
import torch
from cost_page import fill, processor
from layer import boxes

from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

ROWS = 64
RESULTS = Path(__file__).parent / "results" / "setup.json"


Build = Callable[[], tuple[Rules | None, Multiplexer]]


@dataclass(frozen=True)
class Case:
    """Something to build, and the seconds that it should take.

    Args:
        name: of the line.
        begin: what is not counted; it returns what is.
        goal: in seconds.
    """

    name: str
    begin: Callable[[], Build]
    goal: float


@dataclass(frozen=True)
class Measured:
    """One line of the table."""

    name: str
    seconds: float
    goal: float
    megabytes: int
    outputs: int
    obeys: bool


# --- sets -----------------------------------------------------------------------------------------------------------


def from_rules(make: Callable[[], Rules]) -> Callable[[], Build]:
    def build() -> tuple[Rules, Multiplexer]:
        rules = make()
        return rules, Multiplexer(rules, seconds=None)

    return lambda: build


def polytope(n: int, m: int) -> Rules:
    """Dense rows around the origin, three decimals, as text."""
    random = Random(0)
    rows = [
        " + ".join(f"{random.gauss(0, 1):.3f}*x[{j}]" for j in range(n))
        + f" <= {random.uniform(1, 10):.3f}"
        for _ in range(m)
    ]
    return Rules("\n".join([f"x: real[{n}]", *rows]))


def polytope_of_arrays(n: int, m: int) -> Rules:
    random = np.random.default_rng(0)
    A = random.normal(size=(m, n)).round(3)
    return Rules.from_arrays(A, random.uniform(1, 10, m).round(3))


def simplex(n: int) -> Rules:
    return Rules(f"w: real[{n}]\nall(v >= 0 for v in w)\nsum(w) == 1")


def box_with_a_sum(n: int) -> Rules:
    return Rules(f"w: real[{n}]\nall(0 <= v <= 10 for v in w)\nsum(w) <= {n}")


def apart(n: int) -> Rules:
    """n outputs of which every two keep a distance of 1: n! terms."""
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    rows = [f"x[{i}] + 1 <= x[{j}] or x[{j}] + 1 <= x[{i}]" for i, j in pairs]
    return Rules("\n".join([f"x: real[{n}]", *rows]))


def given_boxes(count: int) -> Build:
    """A layer of terms that are there already."""
    rules, found = boxes(count)
    return lambda: (None, Multiplexer.from_compiled(rules, found))


def made_boxes(count: int) -> Build:
    """The same, the terms made out of atoms one by one as well."""
    return lambda: given_boxes(count)()


def chains_and_sums(count: int, *, tied: bool) -> Rules:
    """Chains of ten outputs between 0 and 10 and a bound on their sum; tied: sums over neighbouring chains as well."""
    from scipy.sparse import csr_array

    rows: list[tuple[Sequence[int], Sequence[int], int]] = []
    for i in range(count):
        rows += [([i], [-1], 0), ([i], [1], 10)]
    for first in range(0, count, 10):
        own = range(first, first + 10)
        rows += [([i, i + 1], [1, -1], 0) for i in own[:-1]]
        rows.append((own, [1] * 10, 40))
        if tied and first + 20 <= count:
            for start in (first + 2, first + 5, first + 8):
                rows.append((range(start, start + 10), [1] * 10, 50))
    numbers = [i for i, (columns, _, _) in enumerate(rows) for _ in columns]
    columns = [j for own, _, _ in rows for j in own]
    entries = [c for _, own, _ in rows for c in own]
    matrix = csr_array((entries, (numbers, columns)), shape=(len(rows), count))
    return Rules.from_arrays(matrix, np.array([bound for _, _, bound in rows]))


CASES = (
    Case("polytope 50/200", from_rules(lambda: polytope(50, 200)), 1),
    Case("polytope 50/200, arrays", from_rules(lambda: polytope_of_arrays(50, 200)), 1),
    Case("polytope 200/1,000", from_rules(lambda: polytope(200, 1000)), 5),
    Case(
        "polytope 200/1,000, arrays",
        from_rules(lambda: polytope_of_arrays(200, 1000)),
        5,
    ),
    Case("simplex 1,000", from_rules(lambda: simplex(1000)), 2),
    Case("1,000 outputs with a sum", from_rules(lambda: box_with_a_sum(1000)), 2),
    Case("720 terms", from_rules(lambda: apart(6)), 8),
    Case("10,000 given boxes", lambda: given_boxes(10_000), 2),
    Case("10,000 given boxes, and their terms", lambda: made_boxes(10_000), 2),
    Case(
        "5,000 outputs in 500 blocks, 15,000 rows",
        from_rules(lambda: chains_and_sums(5000, tied=False)),
        60,
    ),
    Case(
        "5,000 outputs in one, 16,497 rows",
        from_rules(lambda: chains_and_sums(5000, tied=True)),
        60,
    ),
)


# --- measuring ------------------------------------------------------------------------------------------------------


def measured(case: Case) -> Measured:
    Multiplexer("x >= 2 or x + y <= 1")  # what is loaded is not counted
    build = case.begin()
    before = getrusage(RUSAGE_SELF).ru_maxrss
    start = process_time()
    rules, mux = build()
    seconds = process_time() - start
    memory = getrusage(RUSAGE_SELF).ru_maxrss - before
    obeys = rules is None or _obeys(rules, mux)
    return Measured(
        case.name,
        round(seconds, 2),
        case.goal,
        round(memory / 1024),
        mux.out_features,
        obeys,
    )


def _obeys(rules: Rules, mux: Multiplexer) -> bool:
    raw = 30 * torch.randn(ROWS, mux.in_features)
    return bool(rules.satisfied(mux.eval()(raw).best()).all())


def _apart(name: str) -> Measured:
    """One set, in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--alone"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    return Measured(**json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a part of the name")
    parser.add_argument(
        "--write", action="store_true", help="keep the results, and fill the page"
    )
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.alone:
        (case,) = [case for case in CASES if case.name == options.only]
        print(json.dumps(asdict(measured(case))))
        return
    chosen = [case for case in CASES if not options.only or options.only in case.name]
    print("| set | s of processor | goal | MB | outputs obey |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    found = []
    load = os.getloadavg()[0]
    for case in chosen:
        line = _apart(case.name)
        found.append(asdict(line))
        obey = "yes" if line.obeys else "NO"
        print(
            f"| {line.name} | {line.seconds:.1f} | {line.goal:g} | {line.megabytes:,} | {obey} |",
            flush=True,
        )
    if options.write:
        write(found, load)


def write(found: Sequence[dict[str, object]], load: float) -> None:
    """The results, and the table of the page that is made of them."""
    results = {
        "command": "python benchmarks/setup.py --write",
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "processor": processor(),
        "sets": found,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    fill()


if __name__ == "__main__":
    main()
