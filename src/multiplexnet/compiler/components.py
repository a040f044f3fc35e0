"""Independent parts: conjuncts that share no output can be decided one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from multiplexnet.exact.components import components as connected
from multiplexnet.language.formula import Formula, Variable, conjuncts, variables

__all__ = ["RuleComponent", "components", "conjuncts"]


@dataclass(frozen=True)
class RuleComponent:
    """Conjuncts in normal form and the outputs that occur in them."""

    outputs: tuple[Variable, ...]
    conjuncts: tuple[Formula, ...]


def components(
    parts: Iterable[Formula], outputs: Sequence[Variable]
) -> list[RuleComponent]:
    """The finest split of the conjuncts such that no two components share an output, ordered by first output.

    Every output belongs to exactly one component; one that occurs nowhere has a component of its own. Conjuncts over
    inputs alone form a component without outputs, which comes last.
    """
    found = connected(outputs, parts, keys_of=variables)
    return [RuleComponent(tuple(part.keys), tuple(part.items)) for part in found]
