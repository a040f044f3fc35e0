"""Boosted trees that tell rows apart: what detection and usefulness are measured with.

Labels are categories to the trees, empty cells a value of their own, below all numbers. A tree takes 255 categories:
labels beyond the most frequent ones are one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from multiplexnet.errors import install, needing
from multiplexnet.quality.columns import ComparedColumn, Floats

__all__ = ["MOST_LABELS", "Learner", "classifier", "features", "regressor"]

Learner = Callable[[tuple[ComparedColumn, ...], int], Any]
"""Makes what learns, with ``fit``, ``predict_proba`` and ``classes_``, for these columns and this seed."""

TREES = 100
DEPTH = 6
RATE = 0.3
LARGEST = 1e30
"""Numbers beyond it are it: some trees are made of float32."""
MOST_LABELS = 250
"""Labels of a column that the trees tell apart, the most frequent; all others are one."""


def features(values: Floats, columns: tuple[ComparedColumn, ...]) -> Floats:
    """The values as the trees take them.

    Example:
        >>> column = ComparedColumn("k", "label", tuple(str(k) for k in range(400)))
        >>> features(np.array([[7.0], [399.0], [np.nan]]), (column,)).ravel().tolist()
        [7.0, 250.0, 251.0]
    """
    found = np.clip(values, -LARGEST, LARGEST)
    for k, column in enumerate(columns):
        is_empty = np.isnan(values[:, k])
        if column.kind == "label":
            found[:, k] = np.minimum(found[:, k], MOST_LABELS)
            found[is_empty, k] = MOST_LABELS + 1
        else:
            found[is_empty, k] = -10 * LARGEST
    return found


def classifier(columns: tuple[ComparedColumn, ...], seed: int) -> Any:
    """A learner of classes, not fitted yet."""
    with needing("sklearn", "a report of a made table", install("tables")):
        from sklearn.ensemble import HistGradientBoostingClassifier
    return HistGradientBoostingClassifier(**_settings(columns, seed))


def regressor(columns: tuple[ComparedColumn, ...], seed: int) -> Any:
    """A learner of numbers, not fitted yet."""
    with needing("sklearn", "a report of a made table", install("tables")):
        from sklearn.ensemble import HistGradientBoostingRegressor
    return HistGradientBoostingRegressor(**_settings(columns, seed))


def _settings(columns: tuple[ComparedColumn, ...], seed: int) -> dict[str, Any]:
    return {
        "max_iter": TREES,
        "max_depth": DEPTH,
        "max_leaf_nodes": 2**DEPTH,
        "learning_rate": RATE,
        "early_stopping": False,
        "categorical_features": [column.kind == "label" for column in columns],
        "random_state": seed,
    }
