"""Tables under rules that are too dense to be projected: tries may get stuck, and every row that ends obeys."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import multiplexnet as mx
from multiplexnet.compiler.cascade.projection import outer
from multiplexnet.compiler.cascade.projection.outer import outer_projection
from multiplexnet.compiler.cascade.projection.project import bucket_of
from multiplexnet.compiler.cascade.projection.rows import Clause, Range, Row, row_of
from multiplexnet.errors import RecordError, StuckRowsError, TableError
from multiplexnet.language.formula import Specification
from multiplexnet.synthesis import synthesizer
from multiplexnet.synthesis.allowed import AllowedRows, LeftIntervals, allowed_by
from multiplexnet.synthesis.drawing import conditions
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe

TINY = (Recipe(Shape(4, 8, 1, 4, 0.0), steps=60, batch=64),)
BLIND = (Recipe(Shape(4, 8, 1, 4, 0.0), steps=1, batch=64, rate=1e-6, leaf=0),)
"""Nothing is learned of how columns depend on each other, so that many tries get stuck."""
Numbers = dict[str, Fraction]


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Projections of all rules are cut short at once, however few they are."""

    def compiled(specification: Specification, rows: Any) -> AllowedRows:
        return allowed_by(specification, dense=specification.outputs)

    monkeypatch.setattr(synthesizer, "_compiled_here", compiled)


def fitted(
    rules: str, table: pl.DataFrame, recipes: tuple[Recipe, ...] = TINY
) -> mx.Synthesizer:
    with pytest.warns(UserWarning, match="too densely to be projected"):
        return mx.Synthesizer(rules).fit(table, recipes=recipes)


def rows_of(table: pl.DataFrame) -> Iterator[Numbers]:
    for row in table.iter_rows(named=True):
        yield {name: Fraction(str(cell)) for name, cell in row.items()}


# --- what is kept of a projection -------------------------------------------------------------------------------------


def clauses_and_ranges(random: Random) -> tuple[list[Clause], dict[int, Range]]:
    ranges = {i: Range(random.randint(-4, 0), random.randint(1, 5)) for i in range(3)}
    clauses = []
    for _ in range(random.randint(1, 7)):
        rows = []
        for _ in range(random.randint(1, 3)):
            own = [*random.sample(range(2), random.randint(0, 2)), 2]
            sizes = {v: random.choice([-5, -3, -2, -1, 1, 2, 3, 5]) for v in own}
            rows.append(row_of(sizes, random.randint(-6, 6)))
        clauses.append(tuple(rows))
    return clauses, ranges


@pytest.mark.parametrize("work", [1, 1_000_000])
def test_what_is_kept_holds_wherever_the_bucket_does(work: int) -> None:
    random = Random(0)
    cut_off = 0
    for _ in range(300):
        clauses, ranges = clauses_and_ranges(random)
        found = outer_projection(bucket_of(2, clauses, ranges), ranges, work=work)
        own = [range(r.lower, r.upper + 1) for r in ranges.values()]
        for first in product(*own[:2]):
            points = [dict(enumerate((*first, last))) for last in own[2]]
            possible = any(
                all(any(row.holds(point) for row in clause) for clause in clauses)
                for point in points
            )
            kept = all(
                any(row.holds(points[0]) for row in clause) for clause in found.clauses
            )
            assert kept or not possible
            cut_off += not kept
    assert cut_off


def test_rows_whose_sums_are_not_exact_are_dropped() -> None:
    ranges = {i: Range(-(2**40), 2**40) for i in range(3)}
    low = (Row(((0, 4097), (1, 1), (2, -4099)), 5),)
    high = (Row(((0, 1), (1, 4097), (2, 4101)), 5),)
    assert outer_projection(bucket_of(2, [low, high], ranges), ranges).clauses == ()


def test_what_two_leave_is_left_by_both() -> None:
    random = Random(1)

    def left(count: int) -> LeftIntervals:
        """Intervals with gaps between, some of them left out."""
        ends = sorted(random.sample(range(40), 2 * count))
        lower = torch.tensor(ends[::2], dtype=torch.float64).unsqueeze(-1)
        upper = torch.tensor(ends[1::2], dtype=torch.float64).unsqueeze(-1)
        possible = torch.tensor([[random.random() < 0.7] for _ in range(count)])
        return LeftIntervals(lower, upper, possible)

    for _ in range(100):
        one, two = left(random.randint(1, 5)), left(random.randint(1, 5))
        both = one.within(two)
        for number in range(40):
            value = torch.tensor([float(number)])
            expected = bool(one.contain(value)) and bool(two.contain(value))
            assert bool(both.contain(value)) == expected
        assert both.counts.sum() == sum(
            bool(both.contain(torch.tensor([float(n)]))) for n in range(40)
        )


# --- exactly the distribution of the tries that end -----------------------------------------------------------------


def thirds(row: Numbers) -> bool:
    return 3 * row["a"] + 5 * row["b"] == 7 * row["c"] and row["a"] + row["c"] <= 12


THIRDS = "a: int[0, 9]; b: int[0, 9]; c: int[0, 12]; 3*a + 5*b == 7*c; a + c <= 12"


def every_third() -> pl.DataFrame:
    every = list(product(range(10), range(10), range(13)))
    rows = [t for t in every if thirds(dict(zip("abc", map(Fraction, t), strict=True)))]
    return pl.DataFrame(rows, schema=list("abc"), orient="row")


@pytest.fixture
def model(dense: None) -> mx.Synthesizer:
    table = every_third()
    return fitted(THIRDS, table.sample(300, with_replacement=True, seed=0), BLIND)


def far(drawn: pl.DataFrame, chances: dict[tuple[int, ...], float]) -> float:
    """By how many standard errors the frequency of some row is off, at most."""
    count = Counter(drawn.rows())
    assert set(count) <= set(chances)
    n = drawn.height
    off = [
        abs(count[row] - n * p) / max(1.0, (n * p * (1 - p)) ** 0.5)
        for row, p in chances.items()
    ]
    return float(max(off))


def test_rows_have_the_distribution_of_tries_that_end(model: mx.Synthesizer) -> None:
    table = every_third()
    p = np.exp(model.log_prob(table))
    share = p.sum()
    assert 0.05 < share < 0.9
    told = conditions.share_that_ends(model._known().model)
    assert told == pytest.approx(share, abs=0.04)
    assert f"{100 * (1 - told):.1f} % of tries to draw a row end nowhere" in " ".join(
        model.notes
    )
    made = model.sample(20_000, seed=3)
    assert all(map(thirds, rows_of(made.head(500))))
    assert far(made, dict(zip(table.rows(), p / share, strict=True))) < 4.5


@pytest.mark.parametrize("where", ["b >= 4", "a + c >= 8 or b == 1", "a <= 5"])
def test_under_a_condition_they_have_it_too(model: mx.Synthesizer, where: str) -> None:
    table = every_third()
    meets = np.asarray(mx.check(mx.Rules(f"{THIRDS}; {where}"), table).obeys)
    p = np.exp(model.log_prob(table)) * meets
    told: list[Any] = []
    made = model.sample(8_000, where=where, seed=4, progress=told.append)
    assert told[-1].exact == 8_000
    chances = dict(zip(table.rows(), p / p.sum(), strict=True))
    assert far(made, {row: chance for row, chance in chances.items() if chance}) < 4.5


def test_known_columns_are_completed(model: mx.Synthesizer) -> None:
    table = every_third()
    p = np.exp(model.log_prob(table)) * (table["c"] == 5).to_numpy()
    made = model.sample(given={"c": [5] * 4_000}, seed=5)
    chances = dict(zip(table.rows(), p / p.sum(), strict=True))
    assert far(made, {row: chance for row, chance in chances.items() if chance}) < 4.5


def test_given_rows_of_which_none_ends_are_left_out(model: mx.Synthesizer) -> None:
    given = pl.DataFrame({"a": [1, 1, 2], "b": [5, 1, 3]})
    with pytest.warns(UserWarning, match="no completion was found .* for row 2, and"):
        made = model.sample(given=given)
    assert made.rows() == [(1, 5, 4), (2, 3, 3)]


def test_given_rows_that_cannot_be_completed_are_told_so(model: mx.Synthesizer) -> None:
    given = pl.DataFrame({"a": [1, 7, 2], "c": [4, 7, 3]})
    with pytest.warns(UserWarning, match=r"cannot be completed .* row 2 \(.*`a \+ c"):
        made = model.sample(given=given)
    assert made.rows() == [(1, 5, 4), (2, 3, 3)]


def test_what_is_not_found_is_said(model: mx.Synthesizer, tmp_path: Path) -> None:
    rules = "a: int[0, 9]; b: int[0, 9]; c: int[0, 9]; d: int[0, 9]; 6*a + 10*b + 6*d == 15*c"
    every = [t for t in product(range(10), repeat=4) if 6 * t[0] + 10 * t[1] + 6 * t[3] == 15 * t[2]]  # fmt: skip
    model = fitted(rules, pl.DataFrame(every, schema=list("abcd"), orient="row"))
    given = pl.DataFrame({"c": [3, 4, 4]})  # 45 is odd
    with pytest.warns(UserWarning, match="no completion was found .* for row 1, and"):
        made = model.sample(given=given)
    assert made["c"].to_list() == [4, 4]
    with pytest.warns(UserWarning, match="no completion was found .* for row 1, and"):
        state = model.sample_to(tmp_path / "made.csv", given=given)
    assert (state.rows, state.unfound) == (2, (1,))
    with pytest.raises(StuckRowsError, match="no row is left"):
        model.sample(given=given.head(1))
    with pytest.raises(
        StuckRowsError, match=r"where = 'c == 3 or c == 7': for .* no try"
    ):
        model.sample(10, where="c == 3 or c == 7")


def test_columns_where_tries_end_are_named(
    model: mx.Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "PATIENT", 1)
    with pytest.raises(StuckRowsError, match=r"nothing was left of [abc]") as caught:
        model.sample(256)
    assert "drop or split rules" in str(caught.value)


def test_rows_that_break_rules_have_no_probability(model: mx.Synthesizer) -> None:
    every = pl.DataFrame(
        list(product(range(10), range(10), range(13))), schema=list("abc"), orient="row"
    )
    found = np.isfinite(model.log_prob(every))
    assert found.tolist() == [thirds(row) for row in rows_of(every)]


# --- files, processes, what cannot be ---------------------------------------------------------------------------------


def test_files_blocks_and_processes_make_the_same_rows(
    model: mx.Synthesizer, tmp_path: Path
) -> None:
    made = model.sample(3_000, seed=7)
    assert made.head(300).equals(model.sample(300, seed=7))
    model.save(tmp_path / "model.mx")
    again = mx.Synthesizer.load(tmp_path / "model.mx")
    assert again.sample(3_000, seed=7).equals(made)
    assert again.sample(3_000, seed=7, jobs=2).equals(made)
    assert again.notes == model.notes


def test_a_file_says_where_rows_get_stuck(
    model: mx.Synthesizer, tmp_path: Path
) -> None:
    path = tmp_path / "model.mx"
    model.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    document = json.loads(parts["model.json"])
    assert (document["format"], document["outer"]) == ("multiplexnet table model 4", [0])  # fmt: skip
    for change in ({"outer": [1]}, {"outer": "all"}, {"outer": [-1]}):
        parts["model.json"] = json.dumps(document | change).encode()
        with zipfile.ZipFile(path, "w") as file:
            for name, content in parts.items():
                file.writestr(name, content)
        with pytest.raises(RecordError):
            mx.Synthesizer.load(path)


def test_files_of_rules_that_are_projected_are_as_before(tmp_path: Path) -> None:
    model = mx.Synthesizer("a: int[0, 3]; b: int[0, 3]; a <= b").fit(
        {"a": [0, 1, 2] * 9, "b": [1, 1, 3] * 9}, recipes=TINY
    )
    model.save(tmp_path / "model.mx")
    with zipfile.ZipFile(tmp_path / "model.mx") as file:
        document = json.loads(file.read("model.json"))
    assert document["format"] == "multiplexnet table model 3"
    assert "outer" not in document


def test_the_encoder_is_refused(model: mx.Synthesizer) -> None:
    with pytest.raises(StuckRowsError, match="would stand for no row"):
        _ = model.encoder


def test_rows_that_get_stuck_while_they_are_repaired_are_left_out(dense: None) -> None:
    broken = pl.DataFrame({"a": [1, 2], "b": [1, 2], "c": [1, 2]})
    table = pl.concat([every_third(), broken])
    with (
        pytest.warns(UserWarning, match="too densely to be projected"),
        pytest.warns(UserWarning, match="they are moved to the nearest values"),
        pytest.warns(UserWarning, match="got stuck while they were repaired"),
    ):
        model = mx.Synthesizer(THIRDS).fit(table, recipes=TINY, violations="repair")
    assert all(map(thirds, rows_of(model.sample(200))))


# --- dense rules of several kinds -----------------------------------------------------------------------------------


def written(sizes: Sequence[int], names: Sequence[str]) -> str:
    return " + ".join(f"{c}*{v}" for c, v in zip(sizes, names, strict=True)).replace("+ -", "- ")  # fmt: skip


def polytope(
    columns: int, rows: int
) -> tuple[str, pl.DataFrame, list[tuple[list[int], Fraction]]]:
    """Dense inequalities with coefficients of two digits over decimals, and rows around a centre that obeys."""
    random = np.random.default_rng(0)
    signs = random.choice([-1, 1], (rows, columns))
    sizes = random.integers(10, 100, (rows, columns)) * signs
    centre = random.integers(2_000, 8_000, columns)
    room = np.abs(sizes).sum(1) * random.integers(60, 160, rows)
    most = sizes @ centre + room
    points = centre + random.integers(-400, 401, (20_000, columns))
    points = points[(points @ sizes.T <= most).all(1)][:600]
    names = [f"c{i}" for i in range(columns)]
    text = "; ".join(f"{name}: real" for name in names)
    bounds = [Fraction(int(own), 100) for own in most]
    for own, bound in zip(sizes.tolist(), bounds, strict=True):
        text += f"\n{written(own, names)} <= {float(bound)}"
    table = pl.DataFrame(points / 100, schema=names)
    return text, table, list(zip(sizes.tolist(), bounds, strict=True))


def test_thirty_dense_inequalities_over_ten_decimals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(synthesizer, "PROJECTED", 0.1)
    text, table, wanted = polytope(10, 30)
    assert table.height > 200
    model = fitted(text, table)
    assert model.log_likelihood is not None
    made = model.sample(400, seed=1)
    for row in rows_of(made):
        own = list(row.values())
        for sizes, bound in wanted:
            assert sum(c * x for c, x in zip(sizes, own, strict=True)) <= bound
    middle = float(table["c0"].to_numpy()[0])
    few = model.sample(50, where=f"c0 <= {middle}", seed=2)
    assert (few["c0"].cast(float) <= middle).all()
    given = made.head(20).select("c3", "c7")
    assert model.sample(given=given).select("c3", "c7").equals(given)


def test_dense_if_then_rules_and_counts(dense: None) -> None:
    random = Random(3)
    names = [f"n{i}" for i in range(7)]
    centre = {name: random.randint(3, 9) for name in names}

    def comparison() -> tuple[list[str], list[int], int]:
        own = random.sample(names, 3)
        sizes = [random.choice([-3, -2, -1, 1, 2, 3]) for _ in own]
        at = sum(c * centre[v] for c, v in zip(sizes, own, strict=True))
        return own, sizes, at + random.randint(-3, 3)

    def holds(row: dict[str, Any], own: list[str], sizes: list[int], most: int) -> bool:
        return bool(sum(c * row[v] for c, v in zip(sizes, own, strict=True)) <= most)

    pairs: list[tuple[Any, Any]] = []
    while len(pairs) < 14:
        pair = comparison(), comparison()
        if not holds(centre, *pair[0]) or holds(centre, *pair[1]):
            pairs.append(pair)

    def obeys(row: dict[str, Any]) -> bool:
        large = sum(row[name] > centre[name] for name in names)
        return large <= 3 and all(
            not holds(row, *a) or holds(row, *b) for a, b in pairs
        )

    found = [centre]
    while len(found) < 400:
        row = dict(random.choice(found))
        row[random.choice(names)] = random.randint(0, 12)
        if obeys(row):
            found.append(row)
    text = "; ".join(f"{name}: int[0, 12]" for name in names)
    counted = " + ".join(f"(1 if {name} > {centre[name]} else 0)" for name in names)
    text += f"\n{counted} <= 3"
    for a, b in pairs:
        left, right = (f"{written(s, own)} <= {most}" for own, s, most in (a, b))
        text += f"\nimplies({left}, {right})"
    model = fitted(text, pl.DataFrame(found))
    assert model._known().model.allowed.cascades[0].hidden == 7
    assert np.isfinite(model.log_prob(pl.DataFrame(found))).all()
    assert all(map(obeys, rows_of(model.sample(1_000))))
    some = model.sample(100, where="n0 + n1 >= 9", seed=2)
    assert all(obeys(row) and row["n0"] + row["n1"] >= 9 for row in rows_of(some))


def test_projections_that_lose_most_rows_are_cut_short() -> None:
    rows = []
    for a, b, d in product(range(0, 60, 3), range(0, 60, 5), range(0, 60, 4)):
        c, no_c = divmod(3 * a + 5 * b, 7)
        e, no_e = divmod(2 * c + 3 * d, 5)
        if not no_c and not no_e:
            rows.append((a, b, d, c, e))
    table = pl.DataFrame(rows, schema=list("abdce"), orient="row")
    text = "; ".join(f"{name}: int[0, 200]" for name in "abdce")
    model = fitted(f"{text}; 3*a + 5*b == 7*c; 2*c + 3*d == 5*e", table)
    assert np.isfinite(model.log_prob(table)).all()
    for row in rows_of(model.sample(300)):
        assert 3 * row["a"] + 5 * row["b"] == 7 * row["c"]
        assert 2 * row["c"] + 3 * row["d"] == 5 * row["e"]


def test_counts_are_decided_after_the_last_column(
    dense: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outer, "KEPT", 0)  # nothing is known of what comes later
    every = [t for t in product(range(6), repeat=3) if sum(n >= 3 for n in t) == 1]
    table = pl.DataFrame(every, schema=list("abc"), orient="row")
    rules = "; ".join(f"{name}: int[0, 5]" for name in "abc")
    counted = " + ".join(f"(1 if {name} >= 3 else 0)" for name in "abc")
    model = fitted(f"{rules}; {counted} == 1", table, BLIND)
    own = model._known().model.allowed
    assert own.cascades[0].steps[-1].variable >= 3  # a hidden output
    everything = pl.DataFrame(
        list(product(range(6), repeat=3)), schema=list("abc"), orient="row"
    )
    p = np.exp(model.log_prob(everything))
    assert set(everything.filter(p > 0).rows()) == set(every)
    assert p.sum() < 0.9
    made = model.sample(10_000, seed=1)
    kept = {row: float(q) for row, q in zip(everything.rows(), p, strict=True) if q}
    assert far(made, {row: q / p.sum() for row, q in kept.items()}) < 4.5
    some = model.sample(300, where="a >= 3 or b >= 3", seed=2)
    assert set(some.rows()) <= {t for t in every if max(t[:2]) >= 3}


def test_equalities_of_whole_numbers_that_no_order_reaches_are_learned() -> None:
    random = np.random.default_rng(0)
    a, b, d, f = random.integers(0, 200, (4, 400_000))
    c, e = (3 * a + 5 * b) // 7, (2 * ((3 * a + 5 * b) // 7) + 3 * d) // 5
    good = (3 * a + 5 * b == 7 * c) & (2 * c + 3 * d == 5 * e)
    good &= (4 * a - 3 * e + 2 * f <= 300) & (7 * b + 3 * d - 4 * f >= -200)
    table = pl.DataFrame(np.stack([a, b, c, d, e, f], 1)[good], schema=list("abcdef"))
    model = fitted(
        "; ".join(f"{name}: int[0, 400]" for name in "abcdef") + "\n"
        "3*a + 5*b == 7*c; 2*c + 3*d == 5*e; 4*a - 3*e + 2*f <= 300; 7*b + 3*d - 4*f >= -200",
        table.head(800),
    )
    for row in rows_of(model.sample(300)):
        assert 3 * row["a"] + 5 * row["b"] == 7 * row["c"]
        assert 2 * row["c"] + 3 * row["d"] == 5 * row["e"]
        assert 4 * row["a"] - 3 * row["e"] + 2 * row["f"] <= 300
        assert 7 * row["b"] + 3 * row["d"] - 4 * row["f"] >= -200


def test_rules_that_contradict_each_other_are_refused(dense: None) -> None:
    table = {"a": [1, 2, 3], "b": [1, 2, 3]}
    with pytest.raises(TableError, match="no row is left"):
        mx.Synthesizer("a: int[0, 9]; b: int[0, 9]; a < b").fit(table)
