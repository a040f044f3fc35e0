"""Trees that are grown once, as plain arrays: asking them needs nothing but an index."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiplexnet.errors import install, needing

__all__ = ["Branches", "grown", "tree_kinds"]

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Branches:
    """The nodes of trees, one tree after another: each node before those below it.

    Args:
        asked: the column that a node asks.
        most: codes up to this one go to the first node below it, others to the second.
        first: that node; a leaf leads to itself.
        second: the other one; a leaf leads to itself.
    """

    asked: Places
    most: Places
    first: Places
    second: Places

    @property
    def roots(self) -> Places:
        """Where each tree begins: the nodes that are below no other one."""
        below = np.concatenate([self.first, self.second])[np.tile(~self.is_leaf, 2)]
        return np.setdiff1d(np.arange(len(self.first)), below)

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        return np.asarray(self.first == np.arange(len(self.first)))

    @property
    def leaf(self) -> Places:
        """The number of the leaf at each node that is one."""
        return np.asarray(np.cumsum(self.is_leaf) - 1)

    @property
    def depth(self) -> int:
        """How many steps lead from a root to the farthest leaf."""
        depths = np.zeros(len(self.asked), dtype=np.int64)
        for node in np.flatnonzero(~self.is_leaf):
            below = [self.first[node], self.second[node]]
            depths[below] = np.maximum(depths[below], depths[node] + 1)
        return int(depths.max())


def tree_kinds() -> tuple[Any, Any]:
    """Trees for classes and for numbers, loaded when they are first asked for.

    Raises:
        MissingLibrary: they are not installed.
    """
    with needing("sklearn", "a model of tables", install("tables")):
        from sklearn.tree import ExtraTreeClassifier, ExtraTreeRegressor
    return ExtraTreeClassifier, ExtraTreeRegressor


def grown(
    codes: Places, targets: NDArray[np.generic], rows: int, trees: int
) -> tuple[Branches, Places]:
    """Trees that ask at random places, and the leaves ``(N, K)`` of each row that they were grown from.

    Args:
        codes: ``(N, j)``, what may be asked.
        targets: what rows of a leaf should have in common: classes ``(N,)``, or numbers ``(N, R)``.
        rows: that a leaf has at least.
        trees: K.
    """
    for_classes, for_numbers = tree_kinds()
    kind = for_classes if targets.ndim == 1 else for_numbers
    asked = codes.astype(np.float32)
    nodes = []
    ends = []
    sizes = [0]
    for seed in range(trees):
        model = kind(min_samples_leaf=rows, max_features=None, random_state=seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes")  # labels
            tree = model.fit(asked, targets).tree_
        before = np.array([0, 0, sizes[-1], sizes[-1]])
        nodes.append(_nodes(tree) + before[:, None])
        ends.append(tree.apply(asked) + sizes[-1])
        sizes.append(sizes[-1] + tree.node_count)
    branches = Branches(*np.concatenate(nodes, 1))
    return branches, branches.leaf[np.stack(ends, 1)]


def _nodes(tree: Any) -> Places:
    """Of one tree, ``(4, nodes)``: what each asks, up to where, and the two below it."""
    own = np.arange(tree.node_count)
    is_leaf = tree.children_left < 0
    return np.stack(
        [
            np.where(is_leaf, 0, tree.feature).astype(np.int64),
            np.where(is_leaf, 0, np.floor(tree.threshold)).astype(np.int64),
            np.where(is_leaf, own, tree.children_left).astype(np.int64),
            np.where(is_leaf, own, tree.children_right).astype(np.int64),
        ]
    )
