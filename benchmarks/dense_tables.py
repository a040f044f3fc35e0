"""Tables under rules that are too dense to be projected: how many tries to draw a row get stuck, and how fast rows are.

    python -m benchmarks.dense_tables [NAME …] [--rows 2000] [--minutes 1]

* ``inequalities``: thirty over the same ten columns of two decimals, with coefficients of two digits; and sixty over
  twenty (``more inequalities``). Rows are drawn around a centre that obeys, and about one in ten is kept.
* ``if-then``: forty rules between sums of two of twelve columns; rows come from a walk that keeps to them.
* ``equalities``: of three whole numbers each, with coefficients that divide none of the others.

One line of JSON each; every row that was made is checked by fractions.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from random import Random
from time import perf_counter, process_time
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import multiplexnet as mx
from multiplexnet.synthesis.drawing.conditions import share_that_ends

Made = tuple[str, pl.DataFrame]
Numbers = NDArray[np.int64]


def inequalities(columns: int, rules: int, rows: int) -> Made:
    random = np.random.default_rng(0)
    signs = random.choice([-1, 1], (rules, columns))
    sizes = random.integers(10, 100, (rules, columns)) * signs
    centre = random.integers(2_000, 8_000, columns)
    spread = 0.5 * np.eye(columns)
    spread += random.normal(size=(columns, columns)) / columns**0.5
    apart = 300 * random.normal(size=(40 * rows, columns)) @ spread.T
    points = np.round(centre + apart).astype(np.int64)
    reach = 300 * np.sqrt(((sizes @ spread) ** 2).sum(1))
    most = sizes @ centre + np.round(reach * random.uniform(0.7, 2.0, rules))
    points = points[(points @ sizes.T <= most).all(1)][:rows]
    names = [f"c{i}" for i in range(columns)]
    text = [f"{name}: real" for name in names]
    for own, bound in zip(sizes.tolist(), most.tolist(), strict=True):
        text.append(f"{_sum(own, names)} <= {bound / 100:.2f}")
    return "\n".join(text), pl.DataFrame(points / 100, schema=names)


def if_then(rows: int) -> Made:
    random = Random(0)
    width = 12
    centre = np.array([random.randint(4, 16) for _ in range(width)])

    def comparison() -> tuple[list[int], list[int], int]:
        own = random.sample(range(width), 2)
        sizes = [random.choice([-3, -2, -1, 1, 2, 3]) for _ in own]
        return own, sizes, int(np.dot(sizes, centre[own])) + random.randint(-4, 4)

    rules: list[tuple[Any, Any]] = []
    while len(rules) < 40:
        pair = comparison(), comparison()
        if _obey(centre, [pair]):
            rules.append(pair)
    points = _walked(centre, rules, rows)
    names = [f"n{i}" for i in range(width)]
    text = [f"{name}: int[0, 20]" for name in names]
    for pair in rules:
        sides = [
            f"{_sum(sizes, [names[i] for i in own])} <= {most}"
            for own, sizes, most in pair
        ]
        text.append(f"implies({', '.join(sides)})")
    return "\n".join(text), pl.DataFrame(points, schema=names)


def _obey(points: Numbers, rules: list[tuple[Any, Any]]) -> Any:
    def holds(side: tuple[list[int], list[int], int]) -> Any:
        own, sizes, most = side
        return points[..., own] @ np.array(sizes) <= most

    good = np.ones(points.shape[:-1], dtype=np.bool_)
    for first, second in rules:
        good = good & (~holds(first) | holds(second))
    return good


def _walked(centre: Numbers, rules: list[tuple[Any, Any]], rows: int) -> Numbers:
    """Points at the ends of walks of small steps, each of which obeys."""
    random = np.random.default_rng(0)
    points = np.repeat(centre[None], rows, 0)
    for _ in range(300):
        steps = random.integers(-2, 3, points.shape)
        moved = points + steps * (random.random(points.shape) < 0.25)
        moved = np.clip(moved, 0, 20)
        points = np.where(_obey(moved, rules)[:, None], moved, points)
    return points


def equalities(rows: int) -> Made:
    random = np.random.default_rng(0)
    a, b, d, f = random.integers(0, 200, (4, 400 * rows))
    c = (3 * a + 5 * b) // 7
    e = (2 * c + 3 * d) // 5
    good = (3 * a + 5 * b == 7 * c) & (2 * c + 3 * d == 5 * e)
    good &= (4 * a - 3 * e + 2 * f <= 300) & (7 * b + 3 * d - 4 * f >= -200)
    text = [f"{name}: int[0, 400]" for name in "abcdef"]
    text += ["3*a + 5*b == 7*c", "2*c + 3*d == 5*e"]
    text += ["4*a - 3*e + 2*f <= 300", "7*b + 3*d - 4*f >= -200"]
    points = np.stack([a, b, c, d, e, f], 1)[good][:rows]
    return "\n".join(text), pl.DataFrame(points, schema=list("abcdef"))


def _sum(sizes: list[int], names: list[str]) -> str:
    parts = (f"{c}*{name}" for c, name in zip(sizes, names, strict=True))
    return " + ".join(parts).replace("+ -", "- ")


SETS: dict[str, Callable[[int], Made]] = {
    "inequalities": lambda rows: inequalities(10, 30, rows),
    "more inequalities": lambda rows: inequalities(20, 60, rows),
    "if-then": if_then,
    "equalities": equalities,
}


def measured(name: str, rows: int, minutes: float) -> dict[str, Any]:
    text, table = SETS[name](rows)
    rules = mx.Rules(text)
    begun = perf_counter()
    used = process_time()
    learning: list[tuple[float, float]] = []

    def noted(_: str) -> None:
        learning.append((perf_counter() - begun, process_time() - used))

    model = mx.Synthesizer(rules).fit(table, minutes=minutes, note=noted)
    share = share_that_ends(model._known().model)
    drawing = process_time()
    made = model.sample(20_000, seed=1)
    drawing = process_time() - drawing
    return {
        "rules": name,
        "rows": table.height,
        "seconds until learning": round(learning[0][0], 1),
        "of the processor": round(learning[0][1], 1),
        "tries that get stuck": round(1 - share, 3),
        "rows per processor second": round(made.height / drawing),
        "all obey": mx.check(rules, made).all_obey,
        "log-likelihood": round(model.log_likelihood or 0.0, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SETS))
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=1.0)
    asked = parser.parse_args()
    for name in asked.names:
        print(json.dumps(measured(name, asked.rows, asked.minutes)), flush=True)


if __name__ == "__main__":
    main()
