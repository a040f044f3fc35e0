"""Independent parts: conjuncts that share no output can be decided one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from multiplexnet.language.formula import And, Formula, Variable, variables

__all__ = ["Component", "components", "conjuncts"]


@dataclass(frozen=True)
class Component:
    """Conjuncts in normal form and the outputs that occur in them."""

    outputs: tuple[Variable, ...]
    conjuncts: tuple[Formula, ...]


def conjuncts(formula: Formula) -> tuple[Formula, ...]:
    """The parts of a top-level conjunction."""
    return formula.arguments if isinstance(formula, And) else (formula,)


def components(parts: Iterable[Formula], outputs: Sequence[Variable]) -> list[Component]:
    """The finest split of the conjuncts such that no two components share an output, ordered by first output.

    Every output belongs to exactly one component; one that occurs nowhere has a component of its own. Conjuncts over
    inputs alone form a component without outputs, which comes last.
    """
    wanted = set(outputs)
    leader = {output: output for output in outputs}

    def find(output: Variable) -> Variable:
        while leader[output] is not output:
            leader[output] = leader[leader[output]]
            output = leader[output]
        return output

    mentioned = [(part, [v for v in variables(part) if v in wanted]) for part in parts]
    for _, found in mentioned:
        for other in found[1:]:
            leader[find(other)] = find(found[0])
    groups: dict[Variable | None, tuple[list[Variable], list[Formula]]] = {}
    for output in outputs:
        groups.setdefault(find(output), ([], []))[0].append(output)
    for part, found in mentioned:
        groups.setdefault(find(found[0]) if found else None, ([], []))[1].append(part)
    return [Component(tuple(members), tuple(formulas)) for members, formulas in groups.values()]
