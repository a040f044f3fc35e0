"""Symmetries: which relabellings leave the rules unchanged, so that no learner could tell the labels apart.

A relabelling gives every classifier a permutation of its labels, the same one for all outputs that it labels. If it
maps the set of obeying assignments onto itself, data that obey the rules cannot distinguish the labels from the
permuted ones. Relabellings that do so form a group. If only the identity does, labels can be learned from the rules.

The group is found by a chain of stabilisers: fix one label after the other until no freedom is left; then, from the
last to the first, ask for each label that looks the same whether some symmetry carries the fixed one to it. The order
of the group is the product of the numbers of such labels. One question is a search that assigns label by label, and
compares after each step how often which labels occur together (colour refinement), so that hardly any guess is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from multiplexnet.language.budget import MAX_TERMS
from multiplexnet.language.formula import Bool, Category, Variable
from multiplexnet.language.text import value_text
from multiplexnet.learning.finite import FiniteTerms, sharing
from multiplexnet.rules import Rules

__all__ = ["Labels", "Symmetries", "symmetries"]

Permutation = tuple[int, ...]

MANY = 12
"""How many labels or generators are written out in a text."""


@dataclass(frozen=True)
class Labels:
    """The labels of one classifier.

    Args:
        outputs: the names of the outputs that it labels.
        labels: as the user writes them, in the order of the domain.
        orbits: the labels in classes: a symmetry can carry a label to every label of its class, and to no other.
    """

    outputs: tuple[str, ...]
    labels: tuple[str, ...]
    orbits: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Symmetries:
    """The group of relabellings that leave the rules unchanged.

    Args:
        classifiers: their labels.
        order: how many relabellings there are, the identity among them.
        generators: relabellings from which all others are composed. Each has one permutation per classifier:
            ``permutation[i]`` is the position of the label that takes the place of label i.
    """

    classifiers: tuple[Labels, ...]
    order: int
    generators: tuple[tuple[Permutation, ...], ...]

    @property
    def identifiable(self) -> bool:
        """Whether the identity is the only one, so that labels can be learned from the rules."""
        return self.order == 1

    def __str__(self) -> str:
        if self.identifiable:
            return (
                "no relabelling but the identity keeps the rules: labels can be learned"
            )
        lines = [
            f"{self.order:,} relabellings keep the rules: labels can be learned up to these only"
        ]
        for labels in self.classifiers:
            for orbit in labels.orbits:
                if len(orbit) > 1:
                    lines.append(
                        f"  {listed(labels.outputs)}: {listed(orbit)} can take each other's places"
                    )
        lines += [
            f"  for instance {self._cycles(generator)}"
            for generator in self.generators[:3]
        ]
        return "\n".join(lines)

    def _cycles(self, generator: Sequence[Permutation]) -> str:
        parts = [
            _cycles(p, own.labels)
            for p, own in zip(generator, self.classifiers, strict=True)
        ]
        moved = zip(self.classifiers, parts, strict=True)
        return ", ".join(
            f"{listed(own.outputs)}: {text}" for own, text in moved if text
        )


def symmetries(
    rules: Rules | str | Sequence[str],
    *,
    classifier: Sequence[str] | None = None,
    max_terms: int = MAX_TERMS,
) -> Symmetries:
    """The relabellings that leave the set of obeying assignments unchanged.

    Args:
        rules: all their outputs are discrete, and there are no inputs.
        classifier: for every output a name; outputs of the same name are relabelled alike (default: all outputs with
            the same domain), as in :class:`~multiplexnet.learning.finite.EvidenceRatio`.
        max_terms: the most assignments that one block of the rules may have.

    Raises:
        DomainError: a real output, an input, or different domains for one classifier.
        TermBudgetExceeded: too many assignments.

    Example: digits can be learned from sums, and not from the parity of sums.
        >>> print(symmetries(Rules("y: int[0, 9][4]; y[0] + y[1] == 10*y[2] + y[3]")))
        no relabelling but the identity keeps the rules: labels can be learned
        >>> parity = "iff(odd, a + b == 1 or a + b == 3 or a + b == 5)"
        >>> print(symmetries(Rules(f"a: int[0, 3]; b: int[0, 3]; odd: bool; {parity}")))
        8 relabellings keep the rules: labels can be learned up to these only
          a, b: 0, 1, 2, 3 can take each other's places
          for instance a, b: (1 3)
          for instance a, b: (0 1)(2 3)
    """
    terms = FiniteTerms(rules, max_terms=max_terms)
    groups = sharing(terms.outputs, classifier)
    domains = [label_texts(terms.outputs[group[0]]) for group in groups]
    first = [sum(map(len, domains[:g])) for g in range(len(groups))]
    start = {
        terms.outputs[n]: first[g] for g, group in enumerate(groups) for n in group
    }
    relations = [
        frozenset(
            tuple(start[v] + code for v, code in zip(block.outputs, row, strict=True))
            for row in terms.codes(b).tolist()
        )
        for b, block in enumerate(terms.blocks)
    ]
    search = _Search(relations, [g for g, labels in enumerate(domains) for _ in labels])
    found = search.generators()
    spans = [(first[g], first[g] + len(labels)) for g, labels in enumerate(domains)]
    classifiers = tuple(
        Labels(
            tuple(terms.outputs[n].name for n in group),
            labels,
            tuple(
                tuple(labels[p - low] for p in orbit)
                for orbit in _orbits(range(low, high), found)
            ),
        )
        for group, labels, (low, high) in zip(groups, domains, spans, strict=True)
    )
    split = tuple(
        tuple(tuple(p - low for p in g[low:high]) for low, high in spans) for g in found
    )
    return Symmetries(classifiers, search.order, split)


def label_texts(variable: Variable) -> tuple[str, ...]:
    """The labels of a discrete output as the user writes them, in the order of its domain."""
    match variable.domain:
        case Category(labels):
            return labels
        case Bool():
            return ("False", "True")
    return tuple(value_text(variable, Fraction(k)) for k in variable.domain.values)  # type: ignore[union-attr]


# --- the group ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Colouring:
    """Points in classes that no symmetry mixes, as far as is known, and a trace that equal situations share."""

    colours: Permutation
    trace: tuple[int, ...]

    def cell(self, colour: int) -> list[int]:
        return [point for point, own in enumerate(self.colours) if own == colour]


class _Search:
    """The symmetries of relations over points.

    Args:
        relations: sets of tuples of points.
        colours: points of different colours are never exchanged.
    """

    def __init__(
        self, relations: Sequence[frozenset[tuple[int, ...]]], colours: Sequence[int]
    ) -> None:
        self._relations = relations
        self._levels = [self._refined(colours)]
        self._base: list[int] = []
        while (point := self._next_point()) is not None:
            self._base.append(point)
            self._levels.append(self._fixed(self._levels[-1], point))
        self.order = 1

    def _next_point(self) -> int | None:
        """A point of the smallest class that has more than one."""
        colours = self._levels[-1].colours
        sizes = Counter(colours)
        several = [point for point, colour in enumerate(colours) if sizes[colour] > 1]
        return min(
            several, key=lambda point: (sizes[colours[point]], point), default=None
        )

    def generators(self) -> list[Permutation]:
        """Generators of the group, found from the last stabiliser to the whole; ``order`` is known afterwards."""
        found: list[Permutation] = []
        sizes = []
        for depth in reversed(range(len(self._base))):
            point = self._base[depth]
            level = self._levels[depth]
            orbit = {point}
            rejected = set[int]()
            for image in level.cell(level.colours[point]):
                if image in orbit or image in rejected:
                    continue
                symmetry = self._extended(depth + 1, self._fixed(level, image))
                if symmetry is None:
                    rejected |= _orbit(
                        image, found
                    )  # what found carries to an impossible image is impossible too
                else:
                    found.append(symmetry)
                    orbit = _orbit(point, found)
            sizes.append(len(orbit))
        self.order = prod(sizes)
        return found

    def _extended(self, depth: int, image: _Colouring) -> Permutation | None:
        """A symmetry that carries the first ``depth`` points of the base to those fixed in ``image``, if any."""
        level = self._levels[depth]
        if image.trace != level.trace:
            return None
        if depth == len(self._base):
            place = {colour: point for point, colour in enumerate(image.colours)}
            symmetry = tuple(place[colour] for colour in level.colours)
            return symmetry if self._keeps(symmetry) else None
        options = image.cell(level.colours[self._base[depth]])
        tries = (
            self._extended(depth + 1, self._fixed(image, option)) for option in options
        )
        return next((symmetry for symmetry in tries if symmetry is not None), None)

    def _keeps(self, symmetry: Permutation) -> bool:
        return all(
            all(tuple(symmetry[point] for point in row) in relation for row in relation)
            for relation in self._relations
        )

    def _fixed(self, colouring: _Colouring, point: int) -> _Colouring:
        """The classes that are left when the point is told apart from all others."""
        colours = [2 * colour for colour in colouring.colours]
        colours[point] -= 1
        return self._refined(colours)

    def _refined(self, colours: Sequence[int]) -> _Colouring:
        """Points are told apart by their colour and by the colours with which they occur, until that changes nothing.

        Colours are numbered by the order of what tells them apart: a symmetry carries equal numbers to equal numbers.
        """
        trace: list[int] = []
        while True:
            signatures = self._signatures(colours)
            ranks = {
                signature: rank
                for rank, signature in enumerate(sorted(set(signatures)))
            }
            trace.append(hash(tuple(sorted(signatures))))
            if len(ranks) == len(set(colours)):
                return _Colouring(
                    tuple(ranks[signature] for signature in signatures), tuple(trace)
                )
            colours = [ranks[signature] for signature in signatures]

    def _signatures(self, colours: Sequence[int]) -> list[tuple[object, ...]]:
        occurrences: list[list[tuple[int, int, tuple[int, ...]]]] = [
            [] for _ in colours
        ]
        for number, relation in enumerate(self._relations):
            for row in relation:
                together = tuple(colours[point] for point in row)
                for position, point in enumerate(row):
                    occurrences[point].append((number, position, together))
        return [
            (colour, tuple(sorted(own)))
            for colour, own in zip(colours, occurrences, strict=True)
        ]


def _orbit(point: int, generators: Sequence[Permutation]) -> set[int]:
    """All points to which compositions of the generators carry a point."""
    reached = {point}
    queue = [point]
    while queue:
        here = queue.pop()
        new = {generator[here] for generator in generators} - reached
        reached |= new
        queue.extend(new)
    return reached


def _orbits(
    points: Iterable[int], generators: Sequence[Permutation]
) -> Iterator[tuple[int, ...]]:
    seen: set[int] = set()
    for point in points:
        if point not in seen:
            orbit = _orbit(point, generators)
            seen |= orbit
            yield tuple(sorted(orbit))


# --- text -----------------------------------------------------------------------------------------------------------


def listed(names: Sequence[str]) -> str:
    """Names with commas between them, the first of many."""
    return ", ".join(names[:MANY]) + (
        f", … ({len(names)} in all)" if len(names) > MANY else ""
    )


def _cycles(permutation: Permutation, labels: Sequence[str]) -> str:
    """The permutation in cycles, as in ``(0 2)(1 3)``; nothing for the identity."""
    text = ""
    seen = set[int]()
    for start in range(len(permutation)):
        cycle = []
        point = start
        while point not in seen:
            seen.add(point)
            cycle.append(labels[point])
            point = permutation[point]
        text += f"({' '.join(cycle)})" if len(cycle) > 1 else ""
    return text
