"""Shortcuts: against all maps of labels, and what is known of sums, parities and half of the sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multiplexnet as mx
from multiplexnet.errors import (
    DomainError,
    ProductError,
    ShapeError,
    ShortcutBudgetExceeded,
    TermBudgetExceeded,
    UnknownNameError,
)
from multiplexnet.learning import shortcuts as module

Maps = tuple[tuple[int, ...], ...]

SUM = "a: int[0, 4]; b: int[0, 4]; s: int[0, 8]; a + b == s"
HALF = [[0, 0, 0], [0, 1, 1], [2, 3, 5], [2, 4, 6]]


def all_assignments(rules: mx.Rules) -> list[tuple[int, ...]]:
    """What obeys, by trying everything."""
    domains = [variable.domain.values for variable in rules.outputs]  # type: ignore[union-attr]
    every = list(product(*domains))
    obeying = rules.satisfied(np.array(every, dtype=float))
    return [row for row, fine in zip(every, obeying, strict=True) if fine]


def by_trying(
    rules: mx.Rules, rows: Sequence[tuple[int, ...]], groups: list[list[int]]
) -> set[Maps]:
    """All maps of the labels that occur under which all rows obey, the identity among them."""
    obeying = {*all_assignments(rules)}
    of = {n: g for g, group in enumerate(groups) for n in group}
    values = [rules.outputs[group[0]].domain.values for group in groups]  # type: ignore[union-attr]
    seen = [{row[n] for row in rows for n in group} for group in groups]
    options = [
        product(*(own if value in occurring else [value] for value in own))
        for own, occurring in zip(values, seen, strict=True)
    ]
    found = set()
    for maps in product(*map(list, options)):
        images = [
            tuple(
                maps[of[n]][values[of[n]].index(value)] if n in of else value
                for n, value in enumerate(row)
            )
            for row in rows
        ]
        if obeying.issuperset(images):
            positions = zip(values, maps, strict=True)
            found.add(tuple(tuple(map(own.index, image)) for own, image in positions))
    return found


def check(
    text: str, groups: list[list[int]], rows: Sequence[tuple[int, ...]] | None = None
) -> module.Shortcuts:
    """Count, list and membership against trying every map."""
    rules = mx.Rules(text)
    occurring = all_assignments(rules) if rows is None else rows
    names = [variable.name for variable in rules.outputs]
    labelled = {n: g for g, group in enumerate(groups) for n in group}
    found = mx.shortcuts(
        rules,
        rows,
        classifier=[str(labelled.get(n)) for n in range(len(names))],
        given=[name for n, name in enumerate(names) if n not in labelled],
    )
    expected = by_trying(rules, occurring, groups)
    identity = tuple(tuple(range(len(own.labels))) for own in found.classifiers)
    assert len(found) == found.count == len(expected) - 1
    assert {*found} == expected - {identity}
    assert len([*found]) == found.count, "each once"
    assert found.identifiable == (found.count == 0)
    assert all(found.keeps(maps) for maps in expected)
    return found


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (SUM, [[0, 1]]),
        ("a: int[0, 2]; b: int[0, 2]; s: int[0, 4]; a + b == s", [[0], [1]]),
        ("a: int[0, 3]; b: int[0, 3]; a + b == 3", [[0, 1]]),
        ("a: int[0, 3]; b: int[0, 3]; a != b", [[0, 1]]),
        ("a: int[0, 3]; b: int[0, 3]; a <= b", [[0, 1]]),
        ("a: int[0, 3]; b: int[0, 3]; o: int[0, 1]; (a + b) % 2 == o", [[0, 1]]),
        ("a: int[0, 3]; b: int[0, 3]; o: int[0, 1]; (a + b) % 2 == o", [[0, 1], [2]]),
        ("y: int[0, 2][4]; y[0] + y[1] == 3*y[2] + y[3]", [[0, 1, 2, 3]]),
        ("a: int[3, 5]; b: int[-1, 1]; a + b >= 4", [[0], [1]]),
        ("a: bool; b: bool; c: bool; xor(a, xor(b, c))", [[0, 1, 2]]),
        ('c: {"red", "green", "blue"}; n: bool; iff(n, c == "red")', [[0]]),
        ("y: int[0, 2][4]\ny[0] != y[1]\ny[2] == y[3]", [[0, 1, 2, 3]]),
        ("a: int[0, 4]; a <= 1", [[0]]),  # three labels do not occur
    ],
)
def test_against_all_maps(text: str, groups: list[list[int]]) -> None:
    check(text, groups)


@given(
    st.sets(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=10),
    st.data(),
)
@settings(max_examples=25, deadline=None)
def test_random_relations_of_which_some_rows_occur(
    obeying: set[tuple[int, int, int]], data: st.DataObject
) -> None:
    text = " or ".join(f"(a == {i} and b == {j} and c == {k})" for i, j, k in obeying)
    rows = data.draw(st.lists(st.sampled_from(sorted(obeying)), min_size=1))
    groups = data.draw(st.sampled_from([[[0, 1, 2]], [[0, 1]], [[0], [1, 2]]]))
    check(f"a: int[0, 2]; b: int[0, 2]; c: int[0, 2]\n{text}", groups, rows)


def test_half_of_the_sums_leave_two_shortcuts() -> None:
    found = check(SUM, [[0, 1]], [(a, b, s) for a, b, s in HALF])
    assert [*found] == [((0, 1, 3, 2, 3),), ((0, 1, 4, 1, 2),)]
    assert str(found).splitlines() == [
        "2 shortcuts: maps of labels under which all rows obey, and labels are wrong",
        "  a, b: 2 → 3, 3 → 2, 4 → 3",
        "  a, b: 2 → 4, 3 → 1, 4 → 2",
    ]


def test_all_sums_leave_none() -> None:
    assert mx.shortcuts(SUM, given=["s"]).identifiable
    assert (
        str(mx.shortcuts(SUM, given=["s"]))
        == "no shortcut: labels under which all rows obey are the right ones"
    )


def test_parity_is_counted_and_not_listed() -> None:
    """Even digits to even ones and odd to odd, or the other way round: 2 · 5¹⁰, less the identity."""
    parity = "a: int[0, 9]; b: int[0, 9]; odd: int[0, 1]; (a + b) % 2 == odd"
    found = mx.shortcuts(parity, given=["odd"])
    assert found.count == 2 * 5**10 - 1
    assert found.keeps([[8, 3] * 5])
    assert found.keeps([[3, 8] * 5])
    assert not found.keeps([[3, 8] * 4 + [8, 8]])
    assert str(found).startswith("19,531,249 shortcuts")
    assert str(found).endswith("…")


def test_sums_of_images_leave_one_that_calls_everything_zero() -> None:
    found = mx.shortcuts("y: int[0, 9][4]; y[0] + y[1] == 10*y[2] + y[3]")
    assert [*found] == [((0,) * 10,)]


def test_permutations_among_them_are_the_symmetries() -> None:
    odd = "iff(odd, a + b == 1 or a + b == 3 or a + b == 5)"
    rules = mx.Rules(f"a: int[0, 3]; b: int[0, 3]; odd: bool; {odd}")
    found = mx.shortcuts(rules, given=["odd"])
    every = {*permutations(range(4))}
    exchanged = [maps for (maps,) in found if maps in every]
    assert len(exchanged) + 1 == mx.symmetries(rules).order == 8


def test_more_rows_of_the_same_labels_leave_fewer() -> None:
    rows = [[0, 0, 0], [2, 3, 5], [2, 4, 6], [3, 4, 7]]
    counts = [mx.shortcuts(SUM, rows[:n], given=["s"]).count for n in (3, 4)]
    assert counts == [2, 0]


def test_rows_may_be_too_many_to_write_out() -> None:
    """Of all sums of numbers with three digits, 0 + 0 … 0 + 9 are enough."""
    total = "100*(a[0] + b[0]) + 10*(a[1] + b[1]) + a[2] + b[2]"
    rules = f"a: int[0, 9][3]; b: int[0, 9][3]; s: int[0, 1998]; {total} == s"
    rows = np.zeros((10, 7))
    rows[:, 5] = rows[:, 6] = range(10)
    assert mx.shortcuts(rules, rows, given=["s"]).identifiable
    with pytest.raises(TermBudgetExceeded):
        mx.shortcuts(rules, given=["s"], max_terms=20)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DomainError, match="output x is real"):
        mx.shortcuts("x: real; a: bool; implies(a, x > 1)")
    with pytest.raises(DomainError, match="depend on the input u"):
        mx.shortcuts("a: bool; u: input[0, 1]; implies(a, u > 0.5)")
    with pytest.raises(UnknownNameError, match="no 't'"):
        mx.shortcuts(SUM, given=["t"])
    with pytest.raises(ShapeError, match=r"\(1, 2\); it is \(B, 3\)"):
        mx.shortcuts(SUM, [[0, 0]])
    with pytest.raises(DomainError, match=r"row 1, \[0\.0, 1\.0, 2\.0\], breaks"):
        mx.shortcuts(SUM, [[0, 1, 1], [0, 1, 2]])
    with pytest.raises(ShapeError, match="classifier has 1 names; the rules have 3"):
        mx.shortcuts(SUM, classifier=["one"], given=["s"])
    with pytest.raises(ProductError):
        mx.shortcuts("a: int[0, 9][3]; a[0] != 1; a[1] != 2; a[2] != 3", max_terms=100)
    monkeypatch.setattr(module, "BRANCHES", 3)
    with pytest.raises(ShortcutBudgetExceeded, match="more than 3"):
        mx.shortcuts("r: int[0, 5][2]; r[0] != r[1]")
    monkeypatch.setattr(module, "CANDIDATES", 10)
    with pytest.raises(ShortcutBudgetExceeded, match="72 images"):
        mx.shortcuts("r: int[0, 5][2]; r[0] != r[1]")
