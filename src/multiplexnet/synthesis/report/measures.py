r"""How alike two tables are: can a classifier tell them apart, does one serve in place of the other, are copies in it?

Every figure is taken of (real, made) and, beside it, of two halves of the real table: that is what «perfect» scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = [
    "Coded",
    "Detection",
    "Nearest",
    "Usefulness",
    "coded",
    "detection",
    "nearest",
    "pair_strengths",
    "usefulness",
]

Floats = NDArray[np.float64]
FOLDS = 3
MOST_ROWS = 20_000
"""Rows of each table that a classifier sees."""
MOST_NEAREST = 2_000
"""Rows whose nearest neighbours are looked for."""
PARTS = 10
"""Parts that a column is cut into where the strength of pairs is measured."""


@dataclass(frozen=True)
class Coded:
    """Tables as numbers: labels by their place among all labels, NaN for missing cells.

    Args:
        names: of the columns.
        is_label: for every column whether its numbers are places of labels.
        tables: one matrix ``(N, C)`` for each table.
    """

    names: tuple[str, ...]
    is_label: tuple[bool, ...]
    tables: tuple[Floats, ...]


def coded(frames: Sequence[pl.DataFrame]) -> Coded:
    """Tables with the same columns as numbers.

    Example:
        >>> both = coded([pl.DataFrame({"c": ["b", None]}), pl.DataFrame({"c": ["a", "b"]})])
        >>> both.is_label, both.tables[1].tolist()
        ((True,), [[0.0], [1.0]])
    """
    names = tuple(frames[0].columns)
    is_label = tuple(_is_text(frame_column(frames, name)) for name in names)
    columns: list[list[Floats]] = [[] for _ in frames]
    for name, text in zip(names, is_label, strict=True):
        own = [frame[name] for frame in frames]
        for found, numbers in zip(
            columns, _labels(own) if text else map(_numbers, own), strict=True
        ):
            found.append(numbers)
    return Coded(names, is_label, tuple(np.stack(found, -1) for found in columns))


def frame_column(frames: Sequence[pl.DataFrame], name: str) -> pl.Series:
    return frames[0][name]


def _is_text(series: pl.Series) -> bool:
    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def _labels(columns: Sequence[pl.Series]) -> list[Floats]:
    texts = [column.cast(pl.String) for column in columns]
    known = sorted({label for text in texts for label in text.drop_nulls().unique().to_list()})
    place = {label: float(k) for k, label in enumerate(known)}
    return [
        text.replace_strict(place, default=None, return_dtype=pl.Float64).to_numpy()
        for text in texts
    ]


def _numbers(column: pl.Series) -> Floats:
    if column.dtype in (pl.Date, pl.Datetime):
        column = column.to_physical()
    return column.cast(pl.Float64).to_numpy()


def _classifier(is_label: Sequence[bool], tables: Sequence[Floats]) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    few = [
        text and max(_top(table[:, j]) for table in tables) < 250 for j, text in enumerate(is_label)
    ]
    return HistGradientBoostingClassifier(
        max_iter=100, max_depth=6, learning_rate=0.3, categorical_features=few, random_state=0
    )


def _top(column: Floats) -> float:
    return float(np.nanmax(column, initial=0.0))


@dataclass(frozen=True)
class Detection:
    """Whether a classifier tells two tables apart.

    Args:
        auc: 0.5: it cannot; 1: always.
        gave_away: the columns that it needs most, and how much it loses without them.
    """

    auc: float
    gave_away: tuple[tuple[str, float], ...]

    @property
    def score(self) -> float:
        """1: it cannot tell; 0: it always can."""
        return 2 - 2 * max(self.auc, 0.5)


def detection(tables: Coded, first: int, second: int, seed: int = 0) -> Detection:
    """A boosted-tree classifier on equal halves, three folds."""
    from sklearn.inspection import permutation_importance
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold

    random = np.random.default_rng(seed)
    size = min(len(tables.tables[first]), len(tables.tables[second]), MOST_ROWS)
    halves = [random.permutation(tables.tables[k])[:size] for k in (first, second)]
    X = np.concatenate(halves)
    y = np.repeat([0, 1], size)
    model = _classifier(tables.is_label, halves)
    scores = []
    losses = np.zeros(len(tables.names))
    for fitted, judged in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y):
        model.fit(X[fitted], y[fitted])
        scores.append(roc_auc_score(y[judged], model.predict_proba(X[judged])[:, 1]))
        some = judged[:MOST_NEAREST]
        found = permutation_importance(
            model, X[some], y[some], n_repeats=1, random_state=seed, scoring="roc_auc"
        )
        losses += found.importances_mean / FOLDS
    most = sorted(zip(tables.names, losses.tolist(), strict=True), key=lambda pair: -pair[1])[:5]
    return Detection(float(np.mean(scores)), tuple(most))


@dataclass(frozen=True)
class Usefulness:
    """What a classifier of a label column, trained on one table, is worth on another: AUC and F1."""

    auc: float
    f1: float


def usefulness(tables: Coded, train: int, test: int, target: str) -> Usefulness | None:
    """Trained on one table, tested on another; ``None`` if the target has a single value in one of them."""
    from sklearn.metrics import f1_score, roc_auc_score

    place = tables.names.index(target)
    others = [j for j in range(len(tables.names)) if j != place]
    X, y = tables.tables[train][:, others], tables.tables[train][:, place]
    unseen, truth = tables.tables[test][:, others], tables.tables[test][:, place]
    known = np.unique(y)
    kept = np.isin(truth, known)
    if len(known) < 2 or len(np.unique(truth[kept])) < len(known):
        return None
    model = _classifier([tables.is_label[j] for j in others], (X, unseen))
    model.fit(X[:MOST_ROWS], y[:MOST_ROWS])
    chances = model.predict_proba(unseen[kept])
    guess = model.classes_[chances.argmax(-1)]
    if len(known) == 2:
        auc = roc_auc_score(truth[kept], chances[:, 1])
        f1 = f1_score(
            truth[kept], guess, pos_label=known[np.argmin([np.sum(y == v) for v in known])]
        )
    else:
        auc = roc_auc_score(truth[kept], chances, multi_class="ovr", average="weighted")
        f1 = f1_score(truth[kept], guess, average="weighted")
    return Usefulness(float(auc), float(f1))


def pair_strengths(tables: Coded, which: int) -> Floats:
    """The normalised mutual information of every pair of columns, each cut into parts as the first table says."""
    from sklearn.metrics import normalized_mutual_info_score

    matrix = tables.tables[which][:MOST_ROWS]
    parts = [
        _parts(matrix[:, j], tables.tables[0][:, j], text) for j, text in enumerate(tables.is_label)
    ]
    count = len(parts)
    found = np.ones((count, count))
    for i in range(count):
        for j in range(i):
            found[i, j] = found[j, i] = normalized_mutual_info_score(parts[i], parts[j])
    return found


def _parts(values: Floats, reference: Floats, is_label: bool) -> NDArray[np.int64]:
    missing = np.isnan(values)
    if is_label:
        cells = np.where(missing, -1, values)
    else:
        edges = np.unique(np.nanquantile(reference, np.linspace(0, 1, PARTS + 1)[1:-1]))
        cells = np.where(missing, -1, np.searchsorted(edges, values))
    return cells.astype(np.int64)


@dataclass(frozen=True)
class Nearest:
    """How near rows of one table come to another: the median distance, and the share that stand in it as they are."""

    median: float
    copies: float


def nearest(tables: Coded, rows: int, among: int, seed: int = 0) -> Nearest:
    """Distances summed over the columns: of numbers as shares of their range, of labels and missing cells 0 or 1."""
    random = np.random.default_rng(seed)
    reference = tables.tables[0]
    low = np.nanmin(reference, axis=0)
    span = np.nanmax(reference, axis=0) - low
    span[~(span > 0)] = 1.0
    some = random.permutation(tables.tables[rows])[:MOST_NEAREST]
    others = tables.tables[among][:MOST_ROWS]
    label = np.array(tables.is_label)
    found = np.empty(len(some))
    for i, row in enumerate(some):
        apart = np.abs(others - row)
        steps = np.where(label, (apart > 0).astype(float), np.minimum(apart / span, 1.0))
        differ = np.isnan(others) != np.isnan(row)
        both = np.isnan(others) & np.isnan(row)
        steps = np.where(differ, 1.0, np.where(both, 0.0, steps))
        found[i] = steps.sum(-1).min()
    return Nearest(float(np.median(found)), float(np.mean(found == 0)))
