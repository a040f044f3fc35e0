r"""Can made rows be told from real ones? Boosted trees try, on rows that they have not seen.

AUC is the chance that the trees find a made row more likely to be made than a real one: ½ if they cannot tell. The
*score* is :math:`1 - (2 \max(\mathrm{AUC}, ½) - 1)`: 1 if they cannot tell, 0 if they always can. An AUC far below ½
comes from rows that are in both tables: a row that was learned as real is judged as made.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import install, needing
from multiplexnet.quality.columns import Floats, SampledRows
from multiplexnet.quality.trees import Learner, classifier, features

__all__ = ["FEWEST", "Detection", "GivenAway", "auc", "detection"]

FOLDS = 3
FEWEST = 50
"""Rows of each kind without which nothing is said: trees learn nothing from fewer."""
LEAVES = 32
LEAST_BELOW = 0.02
SHUFFLED = 2_000
"""Judged rows that columns are shuffled in."""

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class GivenAway:
    """How much one column gives made rows away.

    Args:
        name: of the column.
        fall: by how much AUC falls if its values are shuffled among the rows that are judged.
        alone: AUC of one tree that sees nothing else.
    """

    name: str
    fall: float
    alone: float


@dataclass(frozen=True)
class Detection:
    """How well made rows were told from real ones.

    Args:
        auc: the mean over the folds.
        folds: AUC of each.
        rows: how many rows of each kind there were.
        columns: what each column gave away, most first.
    """

    auc: float
    folds: tuple[float, ...]
    rows: int
    columns: tuple[GivenAway, ...] = ()

    @property
    def score(self) -> float:
        """1 if made rows cannot be told from real ones, 0 if they always can."""
        return 1 - (2 * max(self.auc, 0.5) - 1)

    @property
    def is_reversed(self) -> bool:
        """Whether AUC is farther below ½ than chance has it, so that the score says nothing."""
        deviation = sqrt(1 / (6 * self.rows))
        return self.auc < 0.5 - max(LEAST_BELOW, 3 * deviation)


def detection(
    made: SampledRows,
    real: SampledRows,
    seed: int,
    *,
    by_column: bool = True,
    learner: Learner = classifier,
) -> Detection | None:
    """Trees are trained on two thirds of the rows and judged by the others, three times.

    Args:
        made: rows that should look real.
        real: as many others are taken of each as there are of the fewer.
        seed: of folds and trees.
        by_column: whether to find out which columns gave them away.
        learner: what tells them apart.

    Returns:
        ``None`` if there are too few rows, or no columns.
    """
    count = min(len(made), len(real))
    if count < FEWEST or not made.columns:
        return None
    values = np.concatenate([made.values[:count], real.values[:count]])
    is_made = np.repeat([1, 0], count)
    seen = features(values, made.columns)
    random = np.random.default_rng(seed)
    aucs = []
    falls = np.zeros(len(made.columns))
    alone = np.zeros(len(made.columns))
    for learned, judged in _folds(count, random):
        trees = learner(made.columns, seed)
        trees.fit(seen[learned], is_made[learned])
        found = auc(is_made[judged], trees.predict_proba(seen[judged])[:, 1])
        aucs.append(found)
        if not by_column:
            continue
        falls += _falls(trees, seen, is_made, judged, random) / FOLDS
        for k in range(len(made.columns)):
            alone[k] += _alone(seen[:, k], is_made, learned, judged, seed) / FOLDS
    columns: tuple[GivenAway, ...] = ()
    if by_column:
        given = [
            GivenAway(column.name, float(falls[k]), float(alone[k]))
            for k, column in enumerate(made.columns)
        ]
        columns = tuple(sorted(given, key=lambda own: -own.fall))
    return Detection(float(np.mean(aucs)), tuple(aucs), count, columns)


def _folds(count: int, random: np.random.Generator) -> list[tuple[Indices, Indices]]:
    """Rows to learn from and rows to judge, as many of both kinds in each part."""
    one = random.permutation(count) % FOLDS
    other = random.permutation(count) % FOLDS
    fold = np.concatenate([one, other])
    return [
        (np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(FOLDS)
    ]


def _falls(
    trees: Any,
    seen: Floats,
    is_made: Indices,
    judged: Indices,
    random: np.random.Generator,
) -> Floats:
    """By how much AUC falls, for every column, if its values are shuffled."""
    some = random.permutation(judged)[:SHUFFLED]
    whole = auc(is_made[some], trees.predict_proba(seen[some])[:, 1])
    falls = []
    for k in range(seen.shape[1]):
        shuffled = seen[some].copy()
        random.shuffle(shuffled[:, k])
        falls.append(whole - auc(is_made[some], trees.predict_proba(shuffled)[:, 1]))
    return np.array(falls)


def _alone(
    values: Floats, is_made: Indices, learned: Indices, judged: Indices, seed: int
) -> float:
    """AUC of one small tree that sees one column. Labels go by how frequent they are, which is all a tree can use."""
    with needing("sklearn", "a report of a made table", install("tables")):
        from sklearn.tree import DecisionTreeClassifier
    _, places = np.unique(values, return_inverse=True)  # the tree sees float32
    column = places[:, None]
    tree = DecisionTreeClassifier(
        max_leaf_nodes=LEAVES, min_samples_leaf=10, random_state=seed
    ).fit(column[learned], is_made[learned])
    return auc(is_made[judged], tree.predict_proba(column[judged])[:, 1])


def auc(truth: NDArray[np.generic], score: Floats) -> float:
    """The chance that a row of which it is true has a higher score than one of which it is not; ties count half.

    Example:
        >>> auc(np.array([1, 1, 0, 0]), np.array([0.9, 0.4, 0.4, 0.1]))
        0.875
    """
    positive = np.asarray(truth, dtype=np.bool_)
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]
    wins = ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2
    return float(wins / (positive.sum() * (~positive).sum()))
