"""Symmetries of rules: the group against all permutations, and what is known of digits, parities and colours."""

from __future__ import annotations

from itertools import permutations, product
from math import factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multiplexnet
from multiplexnet.errors import DomainError, ShapeError, TermBudgetExceeded
from multiplexnet.learning.finite import FiniteTerms, sharing
from multiplexnet.learning.symmetry import Symmetries, symmetries
from multiplexnet.rules import Rules

Relabelling = tuple[tuple[int, ...], ...]


def addition(base: int) -> str:
    return f"y: int[0, {base - 1}][4]; y[0] + y[1] == {base}*y[2] + y[3]"


def parity(base: int) -> str:
    odd = " or ".join(f"a + b == {s}" for s in range(1, 2 * base - 1, 2))
    return f"a: int[0, {base - 1}]; b: int[0, {base - 1}]; odd: bool; iff(odd, {odd})"


def all_symmetries(
    rules: Rules, classifier: list[str] | None = None
) -> set[Relabelling]:
    """By trying every tuple of permutations on every assignment."""
    terms = FiniteTerms(rules)
    groups = sharing(terms.outputs, classifier)
    of = {n: g for g, group in enumerate(groups) for n in group}
    places = [[terms.outputs.index(v) for v in block.outputs] for block in terms.blocks]
    relations = [
        {tuple(row) for row in terms.codes(b).tolist()}
        for b in range(len(terms.blocks))
    ]
    sizes = [len(terms.outputs[group[0]].domain.values) for group in groups]  # type: ignore[union-attr]
    found = set()
    for relabelling in product(*(permutations(range(size)) for size in sizes)):
        if all(
            {
                tuple(relabelling[of[n]][v] for n, v in zip(place, row, strict=True))
                for row in relation
            }
            == relation
            for place, relation in zip(places, relations, strict=True)
        ):
            found.add(relabelling)
    return found


def generated(found: Symmetries) -> set[Relabelling]:
    """All compositions of the generators."""
    identity = tuple(tuple(range(len(own.labels))) for own in found.classifiers)
    group, queue = {identity}, [identity]
    while queue:
        here = queue.pop()
        for generator in found.generators:
            new = tuple(
                tuple(g[i] for i in h) for g, h in zip(generator, here, strict=True)
            )
            if new not in group:
                group.add(new)
                queue.append(new)
    return group


def check(rules: Rules, classifier: list[str] | None = None) -> Symmetries:
    """Order, generators and orbits against brute force."""
    found, expected = (
        symmetries(rules, classifier=classifier),
        all_symmetries(rules, classifier),
    )
    assert found.order == len(expected)
    assert generated(found) == expected
    assert found.identifiable == (len(expected) == 1)
    for g, own in enumerate(found.classifiers):
        for orbit in own.orbits:
            images = {
                own.labels[relabelling[g][own.labels.index(orbit[0])]]
                for relabelling in expected
            }
            assert images == set(orbit)
        assert sorted(label for orbit in own.orbits for label in orbit) == sorted(
            own.labels
        )
    return found


# --- brute force -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *map(addition, (2, 3, 4, 5)),
        *map(parity, (2, 3, 4, 5)),
        "a: int[0, 4]; b: int[0, 4]; a != b",
        "a: int[0, 4]; b: int[0, 4]; a <= b",
        "a: int[0, 4]; b: int[0, 4]; a + b == 4",
        "a: bool; b: bool; c: bool; xor(a, xor(b, c))",
        "a: bool; b: bool; a or b",
        'a: {"red", "green", "blue"}; b: {"red", "green", "blue"}; a == "red" or b == "red"',
        "a: int[0, 2]; b: int[0, 2]; c: int[0, 2]; d: int[0, 2]\na != b\nc == d",  # two blocks
        "a: int[0, 3]; n: bool; iff(n, a >= 2)",
        "a: int[0, 3]; b: int[0, 2]; a + b >= 2",
        "a: int[0, 3]; True",
        "a: int[0, 4]; a <= 1",  # labels that never obey are alike
    ],
)
def test_against_all_permutations(text: str) -> None:
    check(Rules(text))


@given(
    st.sets(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=8),
    st.sets(st.tuples(*[st.integers(0, 2)] * 2), min_size=1),
)
@settings(max_examples=12, deadline=None)
def test_random_relations(
    first: set[tuple[int, int]], second: set[tuple[int, int]]
) -> None:
    """Two blocks: one over a single domain, one whose second output belongs to the other."""
    one = " or ".join(f"(a == {i} and b == {j})" for i, j in first)
    two = " or ".join(f"(c == {i} and d == {j})" for i, j in second)
    check(
        Rules(f"a: int[0, 3]; b: int[0, 3]; c: int[0, 2]; d: int[0, 3]\n{one}\n{two}")
    )


def test_a_group_that_refinement_alone_does_not_see() -> None:
    """A hexagon and two triangles look alike to colour refinement; only the search tells what is a symmetry."""
    hexagon = [(i, (i + 1) % 6) for i in range(6)]
    triangles = [(i, (i + 1) % 3) for i in range(3)] + [
        (3 + i, 3 + (i + 1) % 3) for i in range(3)
    ]
    for edges, order in ((hexagon, 12), (triangles, 72)):
        both = [*edges, *((j, i) for i, j in edges)]
        text = " or ".join(f"(a == {i} and b == {j})" for i, j in both)
        assert symmetries(Rules(f"a: int[0, 5]; b: int[0, 5]\n{text}")).order == order


# --- what is known ---------------------------------------------------------------------------------------------------


def test_digits_can_be_learned_from_addition() -> None:
    found = symmetries(Rules(addition(10)))
    assert found.identifiable
    assert found.generators == ()
    assert found.classifiers[0].orbits == tuple((str(d),) for d in range(10))
    assert (
        str(found)
        == "no relabelling but the identity keeps the rules: labels can be learned"
    )


def test_digits_cannot_be_learned_from_parity() -> None:
    found = symmetries(Rules(parity(10)))
    assert found.order == 2 * factorial(5) ** 2
    assert found.classifiers[0].orbits == (tuple(map(str, range(10))),)
    assert found.classifiers[1].orbits == (("False",), ("True",))
    assert str(found).splitlines()[:2] == [
        "28,800 relabellings keep the rules: labels can be learned up to these only",
        "  a, b: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 can take each other's places",
    ]


def test_colours_of_a_map_are_interchangeable() -> None:
    """Neighbours differ: any permutation of the colours will do, and they are not listed."""
    found = symmetries(Rules("r: int[0, 11][2]; r[0] != r[1]"))
    assert found.order == factorial(12)
    assert not found.identifiable


def test_sums_without_a_carry_can_be_mirrored() -> None:
    """a + b + c = 12 over digits 0 … 8: d ↦ 8 − d is a symmetry, and no other is."""
    found = symmetries(
        Rules("a: int[0, 8]; b: int[0, 8]; c: int[0, 8]; a + b + c == 12")
    )
    assert found.generators == ((tuple(range(8, -1, -1)),),)
    assert "for instance a, b, c: (0 8)(1 7)(2 6)(3 5)" in str(found)


def test_hours_of_a_clock() -> None:
    """a + b = c modulo 12: the automorphisms of the cyclic group, h ↦ 5 h and 7 h and 11 h."""
    found = check_order(
        "a: int[0, 11]; b: int[0, 11]; c: int[0, 11]; a + b == c or a + b == c + 12", 4
    )
    assert ("1", "5", "7", "11") in found.classifiers[0].orbits
    assert ("6",) in found.classifiers[0].orbits


def check_order(text: str, order: int) -> Symmetries:
    found = symmetries(Rules(text))
    assert found.order == order == len(generated(found))
    return found


def test_classifiers_of_their_own_have_more_freedom() -> None:
    rules = Rules("a: int[0, 3]; b: int[0, 3]; a == b")
    assert check(rules).order == factorial(4)
    assert check(rules, ["left", "right"]).order == factorial(
        4
    )  # the same permutation on both sides
    rules = Rules("a: int[0, 3]; b: int[0, 3]; a + b == 2 or a + b == 4")
    assert check(rules, ["left", "right"]).order % check(rules).order == 0
    assert [
        own.outputs for own in symmetries(rules, classifier=["l", "r"]).classifiers
    ] == [
        ("a",),
        ("b",),
    ]


def test_labels_are_written_as_the_user_writes_them() -> None:
    found = symmetries(
        Rules(
            'a: {"red", "green", "blue"}; b: {"red", "green", "blue"}; a == "red" or b == "red"'
        )
    )
    assert found.classifiers[0].labels == ("red", "green", "blue")
    assert found.classifiers[0].orbits == (("red",), ("green", "blue"))
    assert str(found).splitlines()[1:] == [
        "  a, b: green, blue can take each other's places",
        "  for instance a, b: (green blue)",
    ]


def test_it_is_public() -> None:
    assert multiplexnet.symmetries is symmetries


# --- refusals --------------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(DomainError, match="output x is real"):
        symmetries(Rules("x: real; a: bool; implies(a, x > 1)"))
    with pytest.raises(DomainError, match="depend on the input u"):
        symmetries(Rules("a: bool; u: input[0, 1]; implies(a, u > 0.5)"))
    with pytest.raises(ShapeError, match="classifier has 1 names"):
        symmetries(Rules("a: bool; b: bool; a or b"), classifier=["one"])
    with pytest.raises(DomainError, match="whose domains differ"):
        symmetries(
            Rules("a: bool; b: int[0, 3]; a or b >= 1"), classifier=["one", "one"]
        )
    with pytest.raises(TermBudgetExceeded):
        symmetries(Rules(addition(10)), max_terms=50)
