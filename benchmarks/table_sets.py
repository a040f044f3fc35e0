"""What ``benchmarks/made_tables.py`` learns from: four data sets, their rules, and rows that are held out.

Everybody learns from rows that obey and is compared with held-out rows that obey: how a method treats rows that break
the rules is another question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import multiplexnet as mx

HELD = 0.25
"""The share of rows that are held out, where the data come as one table."""
RULES = Path(__file__).parent / "rules"
ADULT = [
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship",
    "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
]  # fmt: skip
TARGETS = {
    "adult": "income",
    "heloc": "RiskPerformance",
    "url": "status",
    "faults": "failure.type",
}
CHAINS = {
    "faults": (
        ("X_Minimum", "X_Maximum"),
        ("Y_Minimum", "Y_Maximum"),
        ("Minimum_of_Luminosity", "Maximum_of_Luminosity", "Sum_of_Luminosity"),
    )
}
"""Rules that only compare columns."""


@dataclass(frozen=True)
class TableSet:
    """A data set.

    Args:
        name: of the data set.
        rules: what rows obey.
        target: the column that models are trained to predict.
        train: rows that obey, to learn from.
        held: other rows that obey.
        dropped: how many rows of both were left out because they break a rule.
        requirements: the rules as PiShield reads them, if they come so.
        chains: the rules as columns of which each is less than the next one, if that is all they say.
    """

    name: str
    rules: mx.Rules
    target: str
    train: pl.DataFrame
    held: pl.DataFrame
    dropped: tuple[int, int]
    requirements: Path | None = None
    chains: tuple[tuple[str, ...], ...] | None = None


def table_set(name: str, folder: Path) -> TableSet:
    """The data set of this name, from a folder with ``tabular/``."""
    own = folder / "tabular" / name
    if name == "adult":
        train, held = _adult(own / "train.csv"), _adult(own / "test.csv")
        rules = mx.Rules.load(RULES / "adult.rules")
    else:
        frame, rules = _single(name, own)
        order = np.random.default_rng(0).permutation(frame.height)
        cut = round(HELD * frame.height)
        train, held = frame[order[cut:]], frame[order[:cut]]
    kept = [obeying(rules, frame) for frame in (train, held)]
    dropped = train.height - kept[0].height, held.height - kept[1].height
    requirements = own / "constraints.txt"
    return TableSet(
        name,
        rules,
        TARGETS[name],
        kept[0],
        kept[1],
        dropped,
        requirements if requirements.exists() else None,
        CHAINS.get(name),
    )


def _adult(path: Path) -> pl.DataFrame:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line]
    frame = pl.DataFrame(rows, schema=ADULT, orient="row")
    numbers = [
        name
        for name in ADULT
        if frame[name].cast(pl.Int64, strict=False).null_count() == 0
    ]
    return frame.with_columns(
        pl.col(numbers).cast(pl.Int64), pl.col("income").str.strip_chars(".")
    )


def _single(name: str, folder: Path) -> tuple[pl.DataFrame, mx.Rules]:
    """A table with the constraints of PiShield and DRL, which count columns without the target."""
    frame = pl.read_csv(folder / f"{name}.csv", infer_schema_length=None)
    target = TARGETS[name]
    if name == "faults":  # «target» says whether failure.type is 0
        kinds = pl.format("type {}", target).alias(target)
        frame = frame.drop("target").with_columns(kinds)
    columns = [own for own in frame.columns if own != target]
    text = (folder / "constraints.txt").read_text(encoding="utf-8")
    named = re.sub(r"y_(\d+)", lambda found: columns[int(found[1])], text)
    return frame, mx.Rules.from_ordering(named)


def obeying(rules: mx.Rules, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that obey."""
    found = mx.check(rules, frame, limit=0).obeys
    assert found is not None
    return frame.filter(found)
