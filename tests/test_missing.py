"""Missing values: against SQL and three-valued logic, in texts, verdicts, tables, and in layers of both kinds."""

from __future__ import annotations

import math
import sqlite3
from datetime import date
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch import nn

import multiplexnet as mx
from campaign.missing import missing_values
from campaign.variants import sentence
from multiplexnet.errors import (
    CoefficientError,
    DomainError,
    RecordError,
    RuleSyntaxError,
)
from multiplexnet.language.formula import holds
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import formula_text, specification_text
from multiplexnet.layer.branches import Branches
from multiplexnet.learning.baselines import penalty
from multiplexnet.learning.finite import FiniteTerms
from multiplexnet.learning.term_transform import term_transform

NAN = float("nan")
DECLARED = "x: real?; y: real; n: int[3, 9]?; c: {'a', 'b'}?; on: bool?\n"

SQL: list[tuple[str, str]] = [
    ("x <= y", "x <= y"),
    ("not x == y", "not x = y"),
    ("x <= 2 or y >= 5", "x <= 2 or y >= 5"),
    ("x > 1 and n != 4", "x > 1 and n <> 4"),
    ("implies(x is missing, n is missing)", "not (x is null) or n is null"),
    ("not (c == 'a' and n > 5)", "not (c = 'a' and n > 5)"),
    ("c in {'a'} or on", "c in ('a') or on"),
    ("not on or x is not missing", "not on or x is not null"),
    ("x + 2*n <= y", "x + 2*n <= y"),
    (
        "(x if x is not missing else 0) + y <= 4",
        "case when x is null then 0 else x end + y <= 4",
    ),
    ("max(x, y) <= 3", "max(x, y) <= 3"),
    ("min(x, n) >= 2", "min(x, n) >= 2"),
    ("abs(x - y) > 1", "abs(x - y) > 1"),
    ("x <= y <= n", "x <= y and y <= n"),
    ("not (x <= y <= n)", "not (x <= y and y <= n)"),
    ("x is missing or x >= 3", "x is null or x >= 3"),
]


def rows() -> list[tuple[float | None, ...]]:
    return list(
        product(
            [None, 1.0, 4.0],
            [0.0, 3.0, 6.0],
            [None, 4.0, 6.0],
            [None, 0.0, 1.0],
            [None, 1.0],
        )
    )


def array(
    found: list[tuple[float | None, ...]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([[NAN if v is None else v for v in row] for row in found])


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    """The rows as SQL sees them."""
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "create table t (x real, y real, n integer, c text, on_ integer)"
    )
    for x, y, n, c, on in rows():
        label = None if c is None else "ab"[int(c)]
        connection.execute("insert into t values (?, ?, ?, ?, ?)", (x, y, n, label, on))
    return connection


@pytest.mark.parametrize(("rule", "sql"), SQL, ids=[rule for rule, _ in SQL])
def test_a_rule_fails_where_the_check_of_sql_fails(
    database: sqlite3.Connection, rule: str, sql: str
) -> None:
    sql = sql.replace("or on", "or on_").replace("not on ", "not on_ ")
    answers = [
        row[0] for row in database.execute(f"select {sql} from t order by rowid")
    ]
    rules = mx.Rules(DECLARED + rule)
    found = rules.satisfied(array(rows()))
    assert found.tolist() == [answer is None or bool(answer) for answer in answers]
    assert (rules.violation(array(rows()))[:, 0] == 0).tolist() == found.tolist()


def test_a_condition_that_is_unknown_leaves_the_number_unknown() -> None:
    rules = mx.Rules("x: real?; y: real\n(1 if x > 0 else 2) + y <= 0")
    rows = np.array([[NAN, 5.0], [1.0, 5.0], [1.0, -1.0]])
    assert rules.satisfied(rows).tolist() == [True, False, True]


def test_texts_are_read_again_with_the_same_meaning() -> None:
    for rule, _ in SQL:
        first = parse(DECLARED + rule)
        again = parse(specification_text(first))
        assert again.variables == first.variables
        for row in rows()[::7]:
            point = {
                v: Fraction(value or 0)
                for v, value in zip(first.columns, row, strict=True)
            }
            values = dict(zip(first.columns, row, strict=True))
            point |= {
                flag: Fraction(values[v] is None) for v, flag in first.flags.items()
            }
            assert holds(first.rules[0].formula, point) == holds(
                again.rules[0].formula, point
            )
    vector = parse(
        "w: real?[2]; k: int[0, 9]?[2]\nall(v is missing or v >= 0 for v in w)"
    )
    assert specification_text(vector).startswith("w: real?[2]\nk: int[0, 9]?[2]\n")
    assert (
        formula_text(parse("x: real?\nx is not missing").rules[0].formula)
        == "x is not missing"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "u: input?; x: real\nx <= u",
            "`?` is for outputs: inputs and functions are known",
        ),
        (
            "x: real\nx is missing",
            "`x` is never missing: declare that it may be with `?`",
        ),
        ("x >= 0 or x is missing", "`x` is never missing"),
        ("x: real?[2]\nx is missing", "`x` is a vector: say of each element"),
        ("x: real?\nx + 1 is missing", "only an output by itself can be missing"),
        ("x: real?\nx is None", "`None`: write `x is missing`"),
        ("x: real?\n0 <= x is missing", "`x is missing` stands alone"),
        ("x: real\nx ? 1", "`?` is not part of the language: write it behind the type"),
        ("x: real??\nx >= 0", "`?` is not part of the language"),
    ],
)
def test_messages(text: str, message: str) -> None:
    with pytest.raises(RuleSyntaxError) as refused:
        mx.Rules(text)
    assert message in str(refused.value)


def test_tables_and_arrays_agree(tmp_path: Path) -> None:
    rules = mx.Rules(DECLARED + "\n".join(rule for rule, _ in SQL[:8]))
    lines = ["x,y,n,c,on"]
    for x, y, n, c, on in rows():
        label = "" if c is None else "ab"[int(c)]
        lines.append(
            ",".join(
                ["" if v is None else str(v) for v in (x, y, n)]
                + [label, str(on or "NA")]
            )
        )
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    report = mx.check(rules, path)
    assert report.obeys is not None
    assert (report.obeys == rules.satisfied(array(rows()))).all()
    assert {(c.variable.name, c.reason, c.fails) for c in report.cells} == {
        (name, "missing", False) for name in ("x", "n", "c", "on")
    }
    holes = {"x": [NAN, 1.0, None], "y": [1.0, NAN, 1.0]}
    found = mx.check(mx.Rules("x: real?; y: real\nx <= y"), holes).obeys
    assert found is not None
    assert found.tolist() == [True, False, True]


# --- layers ---------------------------------------------------------------------------------------------------------

TEXT = """
x: real?; y: real; n: int[3, 9]?
0 <= x <= 5
-8 <= y <= 8
x <= y
implies(x is not missing, n is not missing)
(x if x is not missing else 0) + y <= 6
"""


@pytest.mark.parametrize("structure", ["terms", "cascade"])
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64], ids=str
)
def test_layers_choose_what_is_missing(structure: str, dtype: torch.dtype) -> None:
    rules = mx.Rules(TEXT)
    mux = mx.Multiplexer(rules, structure=structure, dtype=dtype)  # type: ignore[arg-type]
    assert mux.out_features == 3
    generator = torch.Generator().manual_seed(0)
    raw = (
        (4 * torch.randn(500, mux.in_features, generator=generator))
        .to(dtype)
        .requires_grad_()
    )
    branches = mux(raw)
    for x in (branches.best(), branches.sample(generator)):
        assert x.shape == (500, 3)
        assert rules.satisfied(x).all()
        share = x.isnan().float().mean(0)
        assert 0.05 < share[0] < 0.95
        assert 0.01 < share[2] < 0.95
        assert share[1] == 0
    branches.best().nan_to_num().square().sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    assert raw.grad[:, 1].any()
    raw[0].detach().fill_(NAN)
    twin = mx.Multiplexer.from_state(mux.state_dict())
    assert torch.equal(twin(raw).best().nan_to_num(99), mux(raw).best().nan_to_num(99))


def test_a_layer_has_no_coefficients_from_inputs_for_what_may_be_missing() -> None:
    rules = mx.Rules(
        "p: input[1, 9]; x: real?; y: real\n0 <= x <= 9; 0 <= y <= 9; p * x + y <= 20"
    )
    assert rules.satisfied(torch.tensor([[NAN, 9.0], [3.0, 9.0]]), p=9.0).tolist() == [
        True,
        False,
    ]
    with pytest.raises(CoefficientError, match="only one of several alternatives"):
        mx.Multiplexer(rules)


def test_losses_see_no_nan() -> None:
    mux = mx.Multiplexer(mx.Rules(TEXT), structure="terms")
    raw = torch.randn(20, mux.in_features, requires_grad=True)
    branches = mux(raw)
    assert branches.x.isnan().any()
    target = torch.tensor([1.0, 2.0, 4.0])

    def summed(x: torch.Tensor) -> torch.Tensor:
        assert x.shape[-1] == 3
        assert x.isfinite().all()
        return (x - target).square().sum(-1)

    whole = branches.loss(summed)
    each = branches.loss(lambda x: (x - target).square())
    sampled = branches.loss(summed, estimator=mx.estimators.TopTerms(4))
    torch.testing.assert_close(whole, each)
    assert sampled.isfinite().all()
    (whole.sum() + branches.evidence_loss(summed).sum()).backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()


def test_probabilities_of_rows_with_missing_values_add_up() -> None:
    rules = mx.Rules(
        "n: int[1, 3]?; k: int[0, 2]?; on: bool\nn <= k + 2; implies(on, k is not missing)"
    )
    every = torch.tensor(list(product([NAN, 1, 2, 3], [NAN, 0, 1, 2], [0, 1])))
    obeys = rules.satisfied(every)
    cascade = mx.Multiplexer(rules, structure="cascade")
    branches = cascade(torch.randn(cascade.in_features))
    found = branches.log_prob(every).exp()
    assert found.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert (found[~obeys] == 0).all()
    terms = mx.Multiplexer(rules, structure="terms")
    logits = torch.randn(terms.in_features - 5)
    p = mx.RulesDistribution(
        terms, torch.distributions.Normal(torch.zeros(3), 1.0), logits
    )
    masses = p.log_prob(every).exp()
    assert masses.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert ((masses > 0) == obeys).all()
    exact = -(masses[obeys] * masses[obeys].log()).sum()
    assert p.entropy(10).item() == pytest.approx(exact.item(), abs=1e-4)
    assert rules.satisfied(p.sample((100,))).all()


def test_a_density_beside_a_mass_for_what_is_missing() -> None:
    rules = mx.Rules("x: real?\n0 < x < 1")
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    normal = torch.distributions.Normal(torch.zeros(1, dtype=torch.float64), 1.0)
    p = mx.RulesDistribution(mux, normal, torch.tensor([0.0, 1.0], dtype=torch.float64))
    grid = torch.linspace(0, 1, 20_001, dtype=torch.float64)[1:-1].unsqueeze(-1)
    inside = torch.trapezoid(p.log_prob(grid).exp(), grid.squeeze(-1))
    missing = p.log_prob(torch.tensor([[NAN]], dtype=torch.float64)).exp()
    assert (inside + missing).item() == pytest.approx(1.0, abs=1e-3)
    assert missing.item() == pytest.approx(torch.softmax(p.logits, 0).max().item())


@pytest.mark.parametrize("structure", ["terms", "cascade"])
def test_repair_keeps_what_is_missing(structure: str) -> None:
    rules = mx.Rules(TEXT)
    mux = mx.Multiplexer(rules, structure=structure)  # type: ignore[arg-type]
    x0 = torch.tensor(
        [
            [NAN, 9.0, NAN],
            [NAN, 3.0, 4.0],
            [7.0, 4.0, NAN],
            [0.1, 3.0, 3.2],
            [NAN, NAN, 3.0],
            [9, 2, 4],
        ],
        requires_grad=True,
    )
    x = mux.repair(x0)
    assert rules.satisfied(x).all()
    assert x.isnan().tolist() == [
        [True, False, True],
        [True, False, False],
        [False, False, False],
        [False, False, False],
        [True, False, False],
        [False, False, False],
    ]
    assert torch.equal(x[1], x0[1].detach()) or x[1, 1:].tolist() == [3.0, 4.0]
    torch.autograd.backward(x.nan_to_num().sum())
    assert x0.grad is not None
    assert x0.grad.isfinite().all()


def test_repair_makes_nothing_missing_because_it_is_near() -> None:
    mux = mx.Multiplexer(mx.Rules("x: real?\n5 <= x <= 9"), structure="terms")
    assert mux.repair(torch.tensor([[0.1], [NAN]])).isnan().tolist() == [
        [False],
        [True],
    ]


def test_certificates_and_records_speak_of_flags() -> None:
    rules = mx.Rules("x: real?; on: bool\n0 <= x <= 5; implies(on, x is missing)")
    mux = mx.Multiplexer(rules)
    assert mx.certify(mux.certificate, rules).certified
    assert not mx.certify(
        mux.certificate, mx.Rules("x: real?; on: bool\n0 <= x <= 5")
    ).certified
    assert not mx.certify(
        mux.certificate, mx.Rules("x: real; on: bool\n0 <= x <= 5")
    ).certified
    state = bytes(mux.get_extra_state().tolist()).replace(
        b"x is missing", b"z is missing"
    )
    state = state.replace(b'"sha256"', b'"none"')  # it would not fit
    with pytest.raises(RecordError, match="a flag of an output that is none"):
        mx.Multiplexer.from_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


class Best(nn.Module):
    def __init__(self, mux: mx.Multiplexer) -> None:
        super().__init__()
        self.mux = mux

    def forward(self, raw: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        branches: Branches = self.mux(raw, u=u)
        return branches.best()


def test_in_a_recorded_graph_a_row_that_cannot_obey_is_nan_in_all() -> None:
    rules = mx.Rules("u: input[0, 9]; x: real?; y: real\n0 <= x <= 5; y <= u; y >= 0")
    mux = mx.Multiplexer(rules)
    raw = torch.randn(6, mux.in_features)
    u = torch.tensor([1.0, 2.0, -1.0, 3.0, -2.0, 0.5])
    program = torch.export.export(Best(mux), (raw, u)).module()
    x = program(raw, u)
    lost = u < 0
    assert x[lost].isnan().all()
    assert not x[~lost, 1].isnan().any()
    assert rules.satisfied(x[~lost], u=u[~lost]).all()


def test_explain_tells_the_range_of_what_is_there() -> None:
    found = mx.Rules("x: real?; y: real\n5 <= x <= 9; y == 1").explain()
    ranges = {r.variable.name: (r.lower, r.upper) for r in found.ranges}
    assert ranges == {"x": (Fraction(5), Fraction(9)), "y": (Fraction(1), Fraction(1))}
    assert "x is missing" in str(found)


def test_other_readers_of_rules() -> None:
    rules = mx.Rules("x: real?; y: real\nx <= y")
    x = torch.tensor([[NAN, 1.0], [3.0, 1.0]])
    assert penalty(rules, x).tolist() == [0.0, 4.0]
    with pytest.raises(DomainError, match="output k may be missing"):
        FiniteTerms(mx.Rules("k: bool?\nk or k is missing"))
    with pytest.raises(DomainError, match="outputs that may be missing"):
        term_transform(mx.Multiplexer(rules), 0)
    covered = mx.Rules("x: real?; y: real\n0 <= x <= y; y <= 9 or y >= 20").compile(
        cover=np.array([[NAN, 1.0], [2.0, 3.0]])
    )
    assert covered.covered == 1
    assert sum(len(block.terms) for block in covered.blocks) == 2


def test_decimals_and_dates_that_may_be_missing(tmp_path: Path) -> None:
    rules = mx.Rules(
        """
        "Loan Amount": decimal(2)[0, 1000]?; fee: decimal(2)[3, 50]?
        start: date["2024-01-01", "2024-12-31"]; end: date["2024-01-01", "2024-12-31"]?
        start <= end
        implies(`Loan Amount` is missing, fee is missing)
        fee <= 0.1 * `Loan Amount`
        """
    )
    path = tmp_path / "loans.csv"
    path.write_text(
        "Loan Amount,fee,start,end\n100.10,10.01,2024-03-01,2024-03-02\n100.10,10.02,2024-03-01,2024-02-29\n"
        ",,2024-03-01,\n,5.00,2024-03-01,n/a\n100.105,,2024-03-01,2025-01-01\n99.00,3.00,01.03.2024,\n"
    )
    report = mx.check(rules, path)
    assert [(r.violations, r.largest) for r in report.rules] == [
        (1, Fraction(1)),
        (1, Fraction(1)),
        (1, Fraction(1, 100)),
    ]
    assert {c.reason: c.fails for c in report.cells} == {
        "missing": False,
        "not a date": True,
    }
    assert report.obeys is not None
    assert report.obeys.tolist() == [True, False, True, False, False, False]
    day = date(2024, 3, 1)
    listed = {
        "Loan Amount": [100.1, None],
        "fee": [10.01, None],
        "start": [day] * 2,
        "end": [day, None],
    }
    assert mx.check(rules, listed).all_obey
    moments = {
        **listed,
        "start": np.array([day] * 2, "datetime64[D]"),
        "end": np.array(["NaT"] * 2, "datetime64[D]"),
    }
    assert mx.check(rules, moments).all_obey
    mux = mx.Multiplexer(rules, dtype=torch.float64)
    branches = mux(torch.randn(100, mux.in_features, dtype=torch.float64))
    x = branches.best()
    assert rules.satisfied(x).all()
    assert branches.log_prob(x).isfinite().all()
    broken = x + torch.tensor([0.0, 7.0, 0.0, 0.0], dtype=torch.float64)
    mended = mux.repair(broken)
    assert rules.satisfied(mended).all()
    assert torch.equal(mended.isnan(), broken.isnan())


def test_the_campaign_judges_missing_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds nothing wrong here, and finds a parser that forgets what is unknown."""
    base = [sentence(14, index) for index in (1, 3, 4, 7, 8, 9)]
    found = [f for k, own in enumerate(base) for f in missing_values(own, Random(k))]
    assert len(found) > 10
    assert [f.wrong for f in found if f.wrong] == []
    monkeypatch.setattr(
        "multiplexnet.language.parser.parse.possible", lambda formula, flags: formula
    )
    wrong = [next(missing_values(own, Random(k))).wrong for k, own in enumerate(base)]
    assert any("the verdict differs" in text for text in wrong)


def test_a_missing_whole_number_beyond_floats_is_unknown() -> None:
    """What stands for it, 2⁵³ + 1, is not a number of float64."""
    rules = mx.Rules(
        "n: int[9007199254740993, 9007199254740995]?\nn > 9007199254740995"
    )
    n = torch.tensor([[torch.nan], [9007199254740994.0], [torch.inf]]).double()
    assert rules.satisfied(n).tolist() == [True, False, False]


NEEDS = [  # a rule, and rows of x, y and p with whether they obey
    ("x + y - x >= 1", {(None, 0, 0): False, (None, 2, 0): True}),
    ("y + 0*x >= 1", {(None, 0, 0): False, (None, 2, 0): True}),
    ("implies(x >= x, y >= 1)", {(None, 0, 0): False, (None, 2, 0): True}),
    ("x + y >= 1", {(None, 0, 0): True, (0, 0, 0): False}),
    ("(x if p else y) >= 1", {(0, 0, None): True, (None, 0, 0): False}),
    (
        "(x >= 1) if p else (y >= 1)",
        {
            (0, 0, None): False,
            (0, 2, None): True,
            (2, 0, None): True,
            (None, 0, None): True,
            (None, 0, 1): True,
            (None, 0, 0): False,
        },
    ),
]


@pytest.mark.parametrize(("rule", "rows"), NEEDS, ids=[rule for rule, _ in NEEDS])
def test_what_a_rule_needs_is_the_same_in_every_reading(
    rule: str, rows: dict[tuple[int | None, ...], bool]
) -> None:
    rules = mx.Rules(f"x: real?; y: real?; p: bool?\n{rule}")
    expected = list(rows.values())
    numbers = [[math.nan if cell is None else cell for cell in row] for row in rows]
    assert rules.satisfied(np.array(numbers, dtype=float)).tolist() == expected
    columns = dict(zip("xyp", map(list, zip(*rows, strict=True)), strict=True))
    report = mx.check(rules, columns)
    assert report.obeys is not None
    assert report.obeys.tolist() == expected
    base = sqlite3.connect(":memory:")
    base.execute('CREATE TABLE "t" ("x" REAL, "y" REAL, "p" INTEGER)')
    base.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    text = str(mx.sql(rules, "t", dialect="sqlite"))
    queries = [line for line in text.splitlines() if line.startswith("SELECT")]
    broken = {row for query in queries for row in base.execute(query.rstrip(";"))}
    assert [row not in broken for row in rows] == expected
