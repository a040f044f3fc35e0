r"""Where a fresh cascade starts: logits and raw values of 0 should mean that no output is better off than another.

With all options alike, «at most 3 of 30» would switch on the first outputs half of the time and the last ones never.
The odds of an option are those of what lies below it: with s outputs on so far and m to come, and between a and b to be
on in the end, ``N(m, s) = Σ_{a ≤ s + i ≤ b} binom(m, i)`` ways remain, and being on starts at
``log N(m, s + 1) − log N(m, s)``. All combinations are then equally likely.

With shares of what is left drawn alike, the first of n outputs would get half of a budget. If m others want to have
their part of the same room, ``−log(1 + m)`` is added to the raw value: about what a uniform distribution does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb, log

from multiplexnet.compiler.cascade.build import Cascade, Step
from multiplexnet.compiler.cascade.projection.rows import Row

__all__ = ["Start", "shifts_of", "starts_of"]


@dataclass(frozen=True)
class Start:
    """What the logit of the second option of an output starts from.

    Args:
        before: the truth values that were counted before it.
        offsets: for every number of them that are true.
    """

    before: tuple[int, ...]
    offsets: tuple[float, ...]


def starts_of(cascade: Cascade) -> dict[int, Start]:
    """For outputs that are counted, by variable, where their choice starts."""
    position = {step.variable: place for place, step in enumerate(cascade.steps)}
    switches = dict(_switches(cascade))
    found: dict[int, Start] = {}
    for members, (least, most) in _counts(cascade, set(switches)):
        ordered = sorted(members, key=lambda variable: position[variable])
        for place, variable in enumerate(ordered):
            later = len(ordered) - place - 1
            offsets = tuple(_odds(later, s, least, most) for s in range(place + 1))
            found.setdefault(switches[variable], Start(tuple(ordered[:place]), offsets))
    return found


def _switches(cascade: Cascade) -> Iterator[tuple[int, int]]:
    """Truth values that can be counted, each with the output with two options that decides it."""
    options = {step.variable: step for step in cascade.steps}
    for step in cascade.steps:
        if step.values == (0, 1):
            yield step.variable, step.variable
        decided = _decided_by(step, len(cascade.visible))
        if decided is not None and options[decided].size == 2:
            yield step.variable, decided


def _decided_by(step: Step, visible: int) -> int | None:
    """The output of which a hidden truth value says that it is not at its lower end."""
    if step.variable < visible or step.bucket.range != (0, 1):
        return None
    x = {v for clause in step.bucket.lower for row in clause for v, _ in row.terms} - {
        step.variable
    }
    return x.pop() if len(x) == 1 else None


def _counts(
    cascade: Cascade, counted: set[int]
) -> Iterator[tuple[frozenset[int], tuple[int, int]]]:
    """Sets of truth values of which at least and at most so many are true; the largest sets first."""
    ends: dict[frozenset[int], list[int]] = {}
    for row in _certain(cascade.steps):
        members = frozenset(v for v, _ in row.terms)
        signs = {c for _, c in row.terms}
        if len(members) < 2 or not members <= counted or signs not in ({1}, {-1}):
            continue
        own = ends.setdefault(members, [0, len(members)])
        if signs == {1}:
            own[1] = min(own[1], row.bound)
        else:
            own[0] = max(own[0], -row.bound)
    for members in sorted(ends, key=len, reverse=True):
        yield members, (ends[members][0], ends[members][1])


def _odds(later: int, on: int, least: int, most: int) -> float:
    ways = [_ways(later, count, least, most) for count in (on, on + 1)]
    return log(ways[1]) - log(ways[0]) if all(ways) else 0.0


def _ways(later: int, on: int, least: int, most: int) -> int:
    return sum(
        comb(later, i) for i in range(max(0, least - on), min(later, most - on) + 1)
    )


def _certain(steps: Sequence[Step]) -> Iterator[Row]:
    """Rows that hold whatever else."""
    for step in steps:
        for row, *others in (*step.bucket.lower, *step.bucket.upper):
            if not others:
                yield row


def shifts_of(cascade: Cascade) -> list[float]:
    """For every output of the layer what its raw value starts from.

    ``narrowed`` has, for an output and a sign, those that have less room when it grows or shrinks: binary digits, since
    in a long chain every output narrows all that follow.
    """
    narrowed: dict[tuple[int, int], int] = {}
    for step in reversed(cascade.steps):
        v = step.variable
        if _is_determined(step):
            continue
        for row in _certain([step]):
            for j, c in row.terms:
                if j != v:
                    sign = 1 if c > 0 else -1
                    pushes = row.coefficient(v) * c < 0
                    further = narrowed.get((v, sign), 0) if pushes else 0
                    before = narrowed.get((j, sign), 0)
                    narrowed[j, sign] = before | 1 << v | further
    numbers = {step.variable for step in cascade.steps if step.values is None}
    return [
        log(1 + narrowed.get((j, -1), 0).bit_count())
        - log(1 + narrowed.get((j, 1), 0).bit_count())
        if j in numbers
        else 0.0
        for j in range(len(cascade.visible))
    ]


def _is_determined(step: Step) -> bool:
    """Whether two rows leave a single value."""
    rows = {(row.terms, row.bound) for row in _certain([step])}
    return any(
        (tuple((v, -c) for v, c in terms), -bound) in rows for terms, bound in rows
    )
