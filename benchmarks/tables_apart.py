"""How far figures of a made table can be trusted, and what gives it away: ``python benchmarks/tables_apart.py adult``.

Rows that ``made_tables.py`` holds out are for judging alone. Here a quarter of the rows to learn from is kept apart in
their place, and several tables are drawn from one model, so that what is chance in drawing can be told from what was
learned. Beside them stand two tables of the rows that were learned from: some of them, and as many drawn with
replacement, as a method makes that remembers the columns of its rows and nothing beyond.

Every run is a line of ``benchmarks/results/tables_apart.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any

import numpy as np
import polars as pl
import torch
from made_tables import Trees, encoded
from table_methods import Learned, ours
from table_sets import TARGETS, TableSet, table_set

from multiplexnet.quality.columns import SampledRows
from multiplexnet.quality.detection import detection
from multiplexnet.quality.usefulness import Usefulness, usefulness

LINES = Path(__file__).parent / "results" / "tables_apart.jsonl"
APART = 0.25
"""The share of the rows to learn from that is kept apart."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    data = os.environ.get("MULTIPLEXNET_DATA", "data")
    parser.add_argument("name", choices=TARGETS)
    parser.add_argument("--data", type=Path, default=Path(data))
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--columns", action="store_true", help="column by column, too")
    parser.add_argument("--lines", type=Path, default=LINES)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    own = parted(table_set(asked.name, asked.data))
    start = process_time()
    learned = ours()(own, asked.seed, asked.minutes)
    line: dict[str, Any] = {
        "set": asked.name,
        "seed": asked.seed,
        "budget_minutes": asked.minutes,
        "fit_seconds": round(process_time() - start, 2),
    }
    line |= figures(own, learned, asked.draws, by_column=asked.columns)
    with asked.lines.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=1))


def parted(own: TableSet) -> TableSet:
    """Rows to learn from in two parts, the second one in place of those that are held out."""
    order = np.random.default_rng(7).permutation(own.train.height)
    cut = round(APART * own.train.height)
    return replace(own, train=own.train[order[cut:]], held=own.train[order[:cut]])


def figures(
    own: TableSet, learned: Learned, draws: int, *, by_column: bool
) -> dict[str, Any]:
    """Of made tables mean and standard deviation over the draws; of real ones the same."""
    made = list(judged(own, list(drawn(own, learned, draws))))
    real = list(judged(own, list(sampled(own, draws, replacement=False))))
    again = list(judged(own, list(sampled(own, draws, replacement=True))))
    found: dict[str, Any] = {
        "draws": draws,
        "score": spread([score(*pair) for pair in made]),
        "useful": spread([useful(own, *pair) for pair in made]),
        "real_score": spread([score(*pair) for pair in real]),
        "replaced_score": spread([score(*pair) for pair in again]),
    }
    if learned.log_prob is not None:
        log_prob = learned.log_prob(own.held)
        found["log_likelihood"] = float(log_prob[np.isfinite(log_prob)].mean())
    if by_column:
        names = [column.name for column in made[0][1].columns]
        found["alone"] = {
            name: {
                "made": spread([score(*pair, [name]) for pair in made]),
                "replaced": spread([score(*pair, [name]) for pair in again]),
            }
            for name in names
        }
    return found


Pair = tuple[SampledRows, SampledRows, SampledRows]
"""Rows that were learned from, made rows, and rows kept apart, as numbers."""


def drawn(own: TableSet, learned: Learned, draws: int) -> Iterator[pl.DataFrame]:
    """Tables of one model."""
    count = own.train.height
    rows = learned.draw(draws * count)
    for k in range(draws):
        yield rows.slice(k * count, count)


def sampled(own: TableSet, draws: int, *, replacement: bool) -> Iterator[pl.DataFrame]:
    """Tables of the rows that were learned from."""
    for k in range(draws):
        random = np.random.default_rng(k)
        count = own.train.height
        places = random.choice(count, count, replace=replacement)
        yield own.train[places]


def judged(own: TableSet, tables: Sequence[pl.DataFrame]) -> Iterator[Pair]:
    """The same as numbers, with the rows that they are judged by."""
    for table in tables:
        yield encoded(own, table)


def score(
    train: SampledRows,
    made: SampledRows,
    held: SampledRows,
    names: Sequence[str] | None = None,
) -> float:
    """Detection of all columns, or of some; above 1 where trees were wrong by chance."""
    own = made if names is None else only(made, names)
    other = held if names is None else only(held, names)
    told = detection(own, other, 0, by_column=False, learner=Trees)
    assert told is not None
    return 2 - 2 * told.auc


def only(rows: SampledRows, names: Sequence[str]) -> SampledRows:
    """Some of the columns."""
    places = [k for k, column in enumerate(rows.columns) if column.name in names]
    columns = tuple(rows.columns[k] for k in places)
    return replace(rows, columns=columns, values=rows.values[:, places])


def useful(
    own: TableSet, train: SampledRows, made: SampledRows, held: SampledRows
) -> float:
    """AUC of trees that learned from made rows over that of those that learned from real ones."""
    target = next(column for column in held.columns if column.name == own.target)
    found = usefulness(made, train, held, target, 0, learner=Trees)
    assert isinstance(found, Usefulness)
    assert found.made.auc is not None
    assert found.real.auc is not None
    return found.made.auc / found.real.auc


def spread(values: Sequence[float]) -> list[float]:
    """Mean and standard deviation."""
    return [round(mean(values), 5), round(stdev(values), 5)]


if __name__ == "__main__":
    main()
