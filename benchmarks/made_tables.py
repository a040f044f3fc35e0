"""Tables under rules beside other makers of tables: ``make tables``.

Every cell (data set, method, seed) is a line of ``benchmarks/results/tables.jsonl``, written as soon as it is done: a
run that was interrupted goes on where it was. ``--write`` makes the tables of the documentation from those lines.

Detection and usefulness are XGBoost's (100 trees, depth 6, learning rate 0.3; three folds), detection against held-out
rows only, as many of each. A single thread everywhere; minutes are those of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import polars as pl
import torch
import xgboost
from table_methods import METHODS, Learned, Variant
from table_pages import write
from table_sets import TARGETS, TableSet, table_set

import multiplexnet as mx
from multiplexnet.quality.columns import ComparedColumn, SampledRows, compared
from multiplexnet.quality.detection import detection
from multiplexnet.quality.nearness import nearness_of_equal_samples
from multiplexnet.quality.pairs import pairs
from multiplexnet.quality.sampling import Sample
from multiplexnet.quality.usefulness import Usefulness, usefulness

LINES = Path(__file__).parent / "results" / "tables.jsonl"
Line = dict[str, Any]


class Trees:
    """XGBoost's classifier with classes of any numbers."""

    def __init__(self, columns: tuple[ComparedColumn, ...], seed: int) -> None:
        kinds = ["c" if column.kind == "label" else "q" for column in columns]
        self.model = xgboost.XGBClassifier(
            n_estimators=100,
            max_depth=6,
            learning_rate=0.3,
            tree_method="hist",
            enable_categorical=True,
            feature_types=kinds,
            n_jobs=1,
            random_state=seed,
        )
        self.classes_: Any = None

    def fit(self, questions: Any, answers: Any) -> None:
        self.classes_, places = np.unique(answers, return_inverse=True)
        self.model.fit(questions, places)

    def predict_proba(self, questions: Any) -> Any:
        return self.model.predict_proba(questions)


def main() -> None:
    asked = arguments()
    if asked.write:
        write(read(asked.lines))
        return
    torch.set_num_threads(1)
    asked.lines.parent.mkdir(exist_ok=True)
    for name, method, seed in wanted(asked):
        for line in cells(name, method, seed, asked):
            with asked.lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            print(json.dumps(line, ensure_ascii=False), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    data = os.environ.get("MULTIPLEXNET_DATA", "data")
    parser.add_argument("--data", type=Path, default=Path(data))
    parser.add_argument("--sets", nargs="*", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--rows", type=int, help="learn from so many rows only, if data are scarce"
    )
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--write", action="store_true", help="write the tables")
    return parser.parse_args()


def read(path: Path) -> list[Line]:
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def wanted(asked: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """What there is no line of yet: cheap methods first, then the next data set, then the next seed."""
    for seed in asked.seeds:
        for method in asked.only:
            for name in asked.sets:
                yield name, method, seed


def cells(
    name: str, method: str, seed: int, asked: argparse.Namespace
) -> Iterator[Line]:
    """The lines of a method that learns once."""
    learn, variants = METHODS[method]
    shown = name if asked.rows is None else f"{name} {asked.rows}"
    done = {
        (line["set"], line["method"], line["seed"], line["budget_minutes"])
        for line in read(asked.lines)
    }
    open_variants = {
        variant: make
        for variant, make in variants.items()
        if (shown, title(method, variant), seed, asked.minutes) not in done
    }
    if not open_variants:
        return
    own = table_set(name, asked.data)
    if asked.rows is not None:
        own = replace(own, train=own.train.head(asked.rows))
    facts: Line = {"set": shown, "seed": seed, "budget_minutes": asked.minutes}
    start = process_time()
    try:
        learned = learn(own, seed, asked.minutes)
    except Exception as error:  # a neighbour's failure is a result
        for variant in open_variants:
            yield {**facts, "method": title(method, variant), "error": reason(error)}
        return
    facts["fit_seconds"] = round(process_time() - start, 2)
    facts["load"] = os.getloadavg()[0]
    facts["machine"] = platform.processor() or platform.machine()
    for variant, make in open_variants.items():
        line = {**facts, "method": title(method, variant), **(learned.facts or {})}
        try:
            yield {**line, **measured(own, learned, make, seed)}
        except Exception as error:
            yield {**line, "error": reason(error)}


def title(method: str, variant: str) -> str:
    return f"{method}, {variant}" if variant else method


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def measured(own: TableSet, learned: Learned, make: Variant, seed: int) -> Line:
    """All figures of the rows that one variant makes."""
    start = process_time()
    made = make(own, learned.draw, max(own.train.height, own.held.height))
    seconds = process_time() - start
    found: Line = {
        "rows": made.height,
        "draw_seconds": round(seconds, 3),
        "rows_per_second": round(made.height / max(seconds, 1e-9)),
    }
    if not made.height:
        return {**found, "error": "no row is left"}
    checked = mx.check(own.rules, made, limit=0)
    found["violating"] = checked.rows - checked.obeying
    train, rows, held = encoded(own, made)
    told = detection(rows, held, seed, by_column=False, learner=Trees)
    if told is not None:
        found |= {"auc": told.auc, "score": told.score, "detected_rows": told.rows}
    target = next(column for column in held.columns if column.name == own.target)
    useful = usefulness(rows, train, held, target, seed, learner=Trees)
    if isinstance(useful, Usefulness):
        found |= {
            "made_auc": useful.made.auc,
            "real_auc": useful.real.auc,
            "made_f1": useful.made.f1,
            "real_f1": useful.real.f1,
        }
    both = pairs(rows, held)
    near = nearness_of_equal_samples(rows, train, held)
    assert both is not None
    assert near is not None
    found |= {
        "weighted_nmi": both.weighted,
        "trend": both.trend,
        "nearest_share": near.share,
        "copies": near.made_to_learned.copies,
        "real_copies": near.real_to_learned.copies,
    }
    if learned.log_prob is not None:
        log_prob = learned.log_prob(own.held)
        there = np.isfinite(log_prob)
        found["log_likelihood"] = float(log_prob[there].mean())
        found["impossible_held_rows"] = int((~there).sum())
    return found


def encoded(
    own: TableSet, made: pl.DataFrame
) -> tuple[SampledRows, SampledRows, SampledRows]:
    order = np.random.default_rng(0).permutation(own.train.height)
    samples = [
        Sample("train", own.train.height, own.train[order]),
        Sample("made", made.height, made),
        Sample("held", own.held.height, own.held),
    ]
    (train, rows, held), _ = compared(own.rules.specification, samples)
    return train, rows, held


if __name__ == "__main__":
    main()
