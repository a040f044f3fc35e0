"""Connected components: what falls apart into groups that have nothing in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["Component", "components"]

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Component(NamedTuple, Generic[Key, Item]):
    """Keys that items tie together, and those items."""

    keys: list[Key]
    items: list[Item]


def components(
    keys: Sequence[Key], items: Iterable[Item], keys_of: Callable[[Item], Iterable[Any]]
) -> list[Component[Key, Item]]:
    """The finest split of keys and items such that no two components share a key.

    Args:
        keys: different keys. Each belongs to exactly one component; one that no item has is alone in its own.
        items: what ties keys together, for example rows that tie variables together.
        keys_of: what an item has; whatever is not among ``keys`` is passed over.

    Returns:
        The components, ordered by their first key; keys and items in the order given. Items without any of the keys
        are one more component, the last, which has no keys.

    Example:
        >>> components("abcd", ["ca", "d", "??"], keys_of=list)  # doctest: +NORMALIZE_WHITESPACE
        [Component(keys=['a', 'c'], items=['ca']),
         Component(keys=['b'], items=[]),
         Component(keys=['d'], items=['d']),
         Component(keys=[], items=['??'])]
    """
    forest = _Forest(keys)
    tied = [(item, forest.joined(keys_of(item))) for item in items]
    found: dict[Key | None, Component[Key, Item]] = {}
    for key in keys:
        component = found.setdefault(forest.root(key), Component([], []))
        component.keys.append(key)
    for item, first in tied:
        root = None if first is None else forest.root(first)
        component = found.setdefault(root, Component([], []))
        component.items.append(item)
    return list(found.values())


class _Forest(Generic[Key]):
    """Keys in trees, one tree a component: each key knows another of its tree, only the root knows itself."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._parent: dict[Key, Key] = {key: key for key in keys}
        self._trees = len(self._parent)

    def root(self, key: Key) -> Key:
        parent = self._parent
        while (above := parent[key]) is not key:  # a root knows itself, the very object
            parent[key] = key = parent[above]
        return key

    def joined(self, candidates: Iterable[Any]) -> Key | None:
        """Joins the trees of those candidates that are keys; one of them, or ``None`` if none is."""
        if self._trees == 1:
            return next((key for key in candidates if key in self._parent), None)
        own: list[Key] = [key for key in candidates if key in self._parent]
        if not own:
            return None
        first = own[0]
        root = self.root(first)
        for other in own[1:]:
            found = self.root(other)
            if found is not root:
                self._parent[found] = root
                self._trees -= 1
        return first
