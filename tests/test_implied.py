"""Clauses that others imply are found without comparing them one by one: the same ones."""

from random import Random

import pytest

from multiplexnet.compiler.cascade.projection.implied import Known, Minimal
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Range,
    Row,
    Simplifier,
    clause_of,
    row_of,
    subsumes,
)

RANGES = {0: Range(0, 9), 1: Range(-3, 3), 2: Range(4, 4)}


def drawn(random: Random) -> list[Row]:
    """Rows over few left sides, so that many clauses share some."""
    return [
        row_of(
            {v: random.randint(-2, 2) for v in random.sample(range(3), 2)},
            random.randint(-6, 6),
        )
        for _ in range(random.randint(1, 4))
    ]


def clauses(random: Random, count: int) -> list[Clause]:
    found = [clause_of(drawn(random), RANGES) for _ in range(count)]
    return [clause for clause in found if clause is not None]


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_knows_what_comparing_all_finds(seed: int) -> None:
    random = Random(seed)
    known = Known()
    so_far: list[Clause] = []
    answers = set()
    for clause in clauses(random, 300):
        said = known.implies(clause)
        assert said == any(subsumes(other, clause) for other in so_far)
        answers.add(said)
        if clause and random.random() < 0.3:
            known.add(clause)
            so_far.append(clause)
        if so_far and random.random() < 0.1:
            gone = so_far.pop(random.randrange(len(so_far)))
            so_far = [clause for clause in so_far if clause != gone]
            known.remove(gone)
    assert answers == {True, False}


@pytest.mark.parametrize("seed", range(5))
def test_none_of_the_minimal_clauses_implies_another(seed: int) -> None:
    random = Random(seed)
    minimal = Minimal()
    expected: list[Clause] = []
    for clause in clauses(random, 300):
        replaced = minimal.add(clause)
        implied = any(subsumes(other, clause) for other in expected)
        assert (replaced is None) == implied
        if not implied:
            kept = [other for other in expected if not subsumes(clause, other)]
            assert set(replaced or ()) == set(expected) - set(kept)
            expected = [*kept, clause]
        assert list(minimal) == expected
        if expected and random.random() < 0.1:
            minimal.remove(expected.pop())


def test_a_clause_without_rows_implies_every_other() -> None:
    minimal = Minimal()
    minimal.add((Row(((0, 1),), 3),))
    assert minimal.add(()) == [(Row(((0, 1),), 3),)]
    assert list(minimal) == [()]
    assert minimal.add((Row(((0, 1),), 2),)) is None


def test_a_row_that_is_met_again_is_simplified_alike() -> None:
    random = Random(0)
    simplifier = Simplifier(RANGES)
    for _ in range(300):
        rows = drawn(random)
        assert simplifier.clause(rows) == clause_of(rows, RANGES)
