"""Terms, blocks and seconds of the compiler for families of rules, each compilation with its certificate.

    python benchmarks/compile.py [--quick] [--seeds N] [--only NAME]

Random families are compiled for several seeds: the table gives the mean and the largest number of terms and seconds.
Contradictory ones are left out. Reading the text and loading z3 and scipy is not counted. On a busy machine set
OPENBLAS_NUM_THREADS=1: threads of numpy that wait for each other otherwise take more time than all the rest.
The three rule files of tabular data come from the folder that the environment names in MULTIPLEXNET_DATA
(``tabular/*/constraints.txt``); without it they are left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from time import perf_counter

from multiplexnet.compiler.circuit import kept_terms
from multiplexnet.errors import ContradictionError, TermBudgetExceeded
from multiplexnet.rules import Rules


@dataclass(frozen=True)
class Family:
    """Rules of one kind; ``goal`` are seconds to reach on an idle machine, ``nested`` allows decomposition."""

    name: str
    rules: Callable[[int], Rules]
    goal: float | None = None
    seeds: int = 1
    quick: bool = True
    nested: bool = False
    max_terms: int = 4096


@dataclass(frozen=True)
class Measurement:
    """One compilation: ``terms`` of the largest block written out, ``kept`` in all blocks, shared ones once."""

    blocks: int
    terms: int
    kept: int
    seconds: float
    proved: bool


# --- families -------------------------------------------------------------------------------------------------------


def eight_boxes(_: int) -> Rules:
    """Four boxes along the axes and four turned by 45°."""
    upright = [
        f"{x - 1} <= x <= {x + 1} and {y - 1} <= y <= {y + 1}"
        for x in (-3, 3)
        for y in (-3, 3)
    ]
    corners = [(8, 8), (8, -8), (-8, 8), (-8, -8)]
    turned = [
        f"{s} - 1.25 <= x + y <= {s} + 1.25 and {d} - 4/3 <= x - y <= {d} + 4/3"
        for s, d in corners
    ]
    return Rules(" or ".join(f"({box})" for box in [*upright, *turned]))


def mnist_addition(_: int) -> Rules:
    """Two digits and the two digits of their sum."""
    return Rules("y: int[0, 9][4]\ny[0] + y[1] == 10*y[2] + y[3]")


def super_classes(_: int) -> Rules:
    """A hundred probabilities, of which the five of some super-class have nearly all."""
    return Rules(
        "p: real[100]\nall(v >= 0 for v in p)\nsum(p) == 1\nany(sum(p[5*k:5*k + 5]) >= 0.95 for k in range(20))"
    )


def two_sided(n: int) -> Callable[[int], Rules]:
    return lambda _: Rules(f"x: real[{n}]\nall(v <= -1 or v >= 1 for v in x)")


def random_formula(atoms: int, variables: int = 8) -> Callable[[int], Rules]:
    """Nested *and* and *or* of atoms over one to three of the variables."""

    def atom(random: Random) -> str:
        chosen = random.sample(range(variables), random.randint(1, 3))
        left = " + ".join(
            f"{random.choice([-3, -2, -1, 1, 2, 3])}*x[{i}]" for i in chosen
        )
        return (
            f"{left} {random.choice(['<=', '>=', '<', '>'])} {random.randint(-10, 10)}"
        )

    def formula(random: Random, size: int) -> str:
        if size == 1:
            return atom(random)
        parts = min(size, random.randint(2, 4))
        cuts = [0, *sorted(random.sample(range(1, size), parts - 1)), size]
        join = random.choice([" and ", " or "])
        return "(" + join.join(formula(random, b - a) for a, b in pairwise(cuts)) + ")"

    return lambda seed: Rules(f"x: real[{variables}]\n{formula(Random(seed), atoms)}")


def if_then(rules: int, variables: int) -> Callable[[int], Rules]:
    """«If … and … then …» over atoms with one variable each."""

    def atom(random: Random, variable: int) -> str:
        return f"x[{variable}] {random.choice(['<=', '>='])} {random.randint(-10, 10)}"

    def line(random: Random) -> str:
        first, second, third = (
            atom(random, v) for v in random.sample(range(variables), 3)
        )
        return f"implies({first} and {second}, {third})"

    def text(seed: int) -> Rules:
        random = Random(seed)
        return Rules(
            "\n".join([f"x: real[{variables}]", *(line(random) for _ in range(rules))])
        )

    return text


def dense_polytope(n: int, m: int) -> Callable[[int], Rules]:
    """One term: m dense inequalities around a point, coefficients with three decimals."""

    def row(random: Random, centre: Sequence[float]) -> str:
        normal = [random.gauss(0, 1) for _ in centre]
        bound = sum(
            a * c for a, c in zip(normal, centre, strict=True)
        ) + random.uniform(1, 10)
        return (
            " + ".join(f"{a:.3f}*x[{j}]" for j, a in enumerate(normal))
            + f" <= {bound:.3f}"
        )

    def rules(seed: int) -> Rules:
        random = Random(seed)
        centre = [random.gauss(0, 5) for _ in range(n)]
        return Rules(
            "\n".join([f"x: real[{n}]", *(row(random, centre) for _ in range(m))])
        )

    return rules


def at_most(k: int, n: int) -> Callable[[int], Rules]:
    return lambda _: Rules(f"on: bool[{n}]\nsum(on) <= {k}")


def at_least_one(n: int) -> Callable[[int], Rules]:
    return lambda _: Rules(f"on: bool[{n}]\nsum(on) >= 1")


def knapsack(n: int, limit: int) -> Callable[[int], Rules]:
    return lambda _: Rules(
        f"on: bool[{n}]\nsum((i + 1)*on[i] for i in range({n})) <= {limit}"
    )


def colours(n: int) -> Callable[[int], Rules]:
    return lambda _: Rules(
        f'c: {{"r", "g", "b"}}[{n}]\nall(c[i] != c[i + 1] for i in range({n - 1}))'
    )


def actuators(n: int, k: int) -> Callable[[int], Rules]:
    """Each off or within its range, at most k on."""
    each = f"all((200 < a[i] < 400) if on[i] else a[i] == 0 for i in range({n}))"
    return lambda _: Rules(f"on: bool[{n}]; a: real[{n}]\n{each}\nsum(on) <= {k}")


def steps(n: int) -> Callable[[int], Rules]:
    """Two-sided outputs, each of which says something about the next."""
    after = f"all(implies(x[i] >= 1, x[i + 1] >= 1 or x[i + 1] <= -5) for i in range({n - 1}))"
    return lambda _: Rules(f"x: real[{n}]\nall(v <= -1 or v >= 1 for v in x)\n{after}")


FAMILIES = (
    Family("8 boxes", eight_boxes, 0.1),
    Family("MNIST addition", mnist_addition, 0.5),
    Family("20 super-classes on the simplex", super_classes, 0.5),
    *(Family(f"two-sided, n = {n}", two_sided(n), 0.5) for n in (5, 10, 20)),
    *(
        Family(
            f"random formula, {n} atoms, 8 variables", random_formula(n), 2.0, seeds=10
        )
        for n in (10, 20, 30)
    ),
    Family("10 rules «if … and … then …», 8 variables", if_then(10, 8), 1.0, seeds=5),
    Family(
        "20 rules «if … and … then …», 10 variables",
        if_then(20, 10),
        20.0,
        seeds=3,
        quick=False,
    ),
    Family("dense polytope, n = 10, m = 30", dense_polytope(10, 30), 1.0),
    Family("dense polytope, n = 50, m = 200", dense_polytope(50, 200), 1.0),
    Family("at least 1 of 20 Booleans", at_least_one(20), nested=True),
    Family("at most 3 of 30 Booleans", at_most(3, 30), nested=True),
    Family("at most 5 of 100 Booleans", at_most(5, 100), nested=True, quick=False),
    Family(
        "24 Booleans that weigh at most 100",
        knapsack(24, 100),
        nested=True,
        quick=False,
    ),
    Family("60 colours in a row", colours(60), nested=True),
    Family("30 actuators, at most 4 on", actuators(30, 4), nested=True),
    Family("40 two-sided steps", steps(40), nested=True),
)


def files() -> Iterator[Family]:
    """The rule files of tabular data, if the environment says where they are."""
    folder = os.environ.get("MULTIPLEXNET_DATA")
    found = sorted(Path(folder).glob("tabular/*/constraints.txt")) if folder else []
    if not found:
        print(
            "rule files of tabular data left out: set MULTIPLEXNET_DATA to a folder with tabular/*/constraints.txt"
        )
    for path in found:
        yield Family(
            f"{path.parent.name}/constraints.txt",
            lambda _, path=path: Rules.load(path),  # type: ignore[misc]
        )


# --- measuring ------------------------------------------------------------------------------------------------------


def measure(family: Family, seed: int) -> Measurement | None:
    rules = family.rules(seed)
    start = perf_counter()
    try:
        compiled = rules.compile(
            max_terms=family.max_terms, nested=family.nested, seconds=None
        )
    except (ContradictionError, TermBudgetExceeded):
        return None
    seconds = perf_counter() - start
    proof = compiled.proof
    terms = max((block.size for block in compiled.blocks), default=0)
    return Measurement(
        len(compiled.blocks),
        terms,
        kept_terms(compiled.blocks),
        seconds,
        proof.sound and proof.complete,
    )


def line(family: Family, seeds: int) -> tuple[str, ...]:
    found = [m for seed in range(seeds) if (m := measure(family, seed)) is not None]
    if not found:
        return (family.name, "", f"over {family.max_terms}", "", "", "", "")
    goal = "" if family.goal is None else f"{family.goal:g}"
    proved = "yes" if all(m.proved for m in found) else "NO"
    columns = (
        [m.blocks for m in found],
        [m.terms for m in found],
        [m.kept for m in found],
    )
    seconds = [m.seconds for m in found]
    name = (
        family.name
        if len(found) == 1
        else f"{family.name} ({len(found)} of {seeds} seeds)"
    )
    return (name, *map(_whole, columns), _pair(seconds, "{:.2f}"), goal, proved)


def _whole(values: Sequence[int]) -> str:
    return _pair(values, "{:,.0f}" if max(values) < 10**9 else "{:.1e}")


def _pair(values: Sequence[float], pattern: str) -> str:
    """Mean and largest, or the one value."""
    average = pattern.format(mean(values))
    largest = pattern.format(max(values))
    return largest if len(values) == 1 else f"{average}, max {largest}"


HEAD = (
    "rules",
    "blocks",
    "terms of the largest block",
    "terms kept",
    "seconds",
    "goal",
    "certified",
)


def show(lines: Iterator[tuple[str, ...]]) -> None:
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table
    except ImportError:
        for columns in [HEAD, *lines]:
            print("  ".join(columns), flush=True)
        return
    table = Table(*HEAD)
    with Live(table, console=Console(width=150)):
        for columns in lines:
            table.add_row(*columns)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one seed of each family, without the slow ones",
    )
    parser.add_argument("--seeds", type=int, help="seeds of each random family")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args()
    dense_polytope(20, 100)(0).compile()  # loads z3 and scipy
    chosen = [
        f
        for f in (*FAMILIES, *files())
        if options.only in f.name and (f.quick or not options.quick)
    ]
    show(
        line(f, 1 if options.quick or f.seeds == 1 else options.seeds or f.seeds)
        for f in chosen
    )


if __name__ == "__main__":
    main()
