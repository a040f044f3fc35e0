"""The cascade: projections lose nothing, outputs obey exactly in four formats, probabilities sum to 1."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import floor
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import torch
import z3
from torch import Tensor

from multiplexnet import Multiplexer, Rules
from multiplexnet.compiler.cascade.build import Budget, Cascade, cascade_of
from multiplexnet.compiler.cascade.clauses import clauses_of
from multiplexnet.compiler.cascade.hidden_outputs import revealed
from multiplexnet.compiler.cascade.input_parts import Bit, Form, Whole, right_side
from multiplexnet.compiler.cascade.projection.order import Elimination
from multiplexnet.compiler.cascade.projection.project import bucket_of, projection
from multiplexnet.compiler.cascade.projection.rows import (
    Clause,
    Range,
    Row,
    clause_of,
    row_of,
    variables_of,
)
from multiplexnet.compiler.cascade.proof import proof_of
from multiplexnet.compiler.cascade.record import cascade_from, record_of_cascade
from multiplexnet.compiler.normal import normal_form
from multiplexnet.errors import (
    CascadeBudgetExceeded,
    CompileTimeout,
    DtypeError,
    GridError,
    RangeError,
    RecordError,
)
from multiplexnet.exact.deadline import NEVER, Deadline
from multiplexnet.exact.formats import FORMATS
from multiplexnet.language.formula import Variable
from multiplexnet.language.formula import holds as true_at
from multiplexnet.language.parser.parse import parse
from multiplexnet.transforms.cascade import walk
from multiplexnet.transforms.cascade.input_parts import known_values
from multiplexnet.transforms.cascade.inside import Values
from multiplexnet.transforms.cascade.map import CascadeMap
from multiplexnet.transforms.cascade.operations import Choice

DTYPES = ("float64", "float32", "bfloat16", "float16")
Inputs = Callable[[int, torch.dtype], dict[str, Tensor]]


def compiled(
    rules: Rules,
    dtype: str,
    *,
    order: Sequence[Variable] | None = None,
    budget: Budget | None = None,
    deadline: Deadline = NEVER,
) -> Cascade:
    """One cascade for all of the rules, also where they fall apart into several blocks."""
    written = rules.specification
    found = revealed(written.formula, len(written.variables))
    return cascade_of(
        found.formula,
        (*written.outputs, *found.hidden),
        written.inputs,
        FORMATS[dtype],
        hidden=found.hidden,
        order=order,
        budget=budget,
        deadline=deadline,
    )


def raws(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Ordinary raw values, large ones, infinities, zeros."""
    scales = torch.tensor([1.0, 3.0, 30.0, 1e4, 1e30, torch.inf, 0.0])
    drawn = torch.randn(rows, columns) * scales[torch.randint(0, 7, (rows, columns))]
    same = torch.randn(rows, 1) * scales[torch.randint(0, 7, (rows, 1))]
    mixed = torch.where(torch.rand(rows, 1) < 0.5, drawn, same.expand_as(drawn))
    return mixed.nan_to_num(0.0, torch.inf, -torch.inf).to(dtype)


def scalars(rules: Rules, given: dict[str, Tensor]) -> Tensor | None:
    if not given:
        return None
    columns = rules.scalar_inputs(given)
    return torch.stack([columns[v.name] for v in rules.inputs], -1)


# --- families -------------------------------------------------------------------------------------------------------


def lots(n: int, rest: str) -> str:
    return f"x: real[{n}]; all(v == 0 or 10 <= v <= 100 for v in x); {rest}"


def table(columns: int, rules: int, seed: int, mixed: bool = False) -> str:
    """«If … and … then …» over columns between −20 and 20, some of the comparisons between two columns."""
    random = Random(seed)

    def atom(first: int, second: int) -> str:
        right = (
            f"x[{second}] + {random.randint(-10, 10)}"
            if mixed and random.random() < 0.5
            else random.randint(-10, 10)
        )
        return f"x[{first}] {random.choice(['<=', '>='])} {right}"

    lines = [f"x: real[{columns}]", "all(-20 <= v <= 20 for v in x)"]
    for _ in range(rules):
        a, b, c, d = random.sample(range(columns), 4)
        lines.append(f"implies({atom(a, b)} and {atom(b, c)}, {atom(c, d)})")
    return "\n".join(lines)


def uniform(name: str, low: float, high: float, count: int = 0) -> Inputs:
    def draw(rows: int, dtype: torch.dtype) -> dict[str, Tensor]:
        return {
            name: (torch.rand(rows, count) if count else torch.rand(rows))
            .mul(high - low)
            .add(low)
            .to(dtype)
        }

    return draw


def halves(name: str, low: int, high: int, count: int = 0) -> Inputs:
    def draw(rows: int, dtype: torch.dtype) -> dict[str, Tensor]:
        shape = (rows, count) if count else (rows,)
        return {name: (torch.randint(2 * low, 2 * high + 1, shape) / 2).to(dtype)}

    return draw


FAMILIES: dict[str, tuple[str, Inputs | None]] = {
    "lots, sum at most a number": (lots(10, "sum(x) <= 300"), None),
    "30 lots": (lots(30, "sum(x) <= 300"), None),
    "100 lots": (lots(100, "sum(x) <= 300"), None),
    "lots, sum equals a number": (lots(10, "sum(x) == 300"), None),
    "100 lots, sum equals a number": (lots(100, "sum(x) == 300"), None),
    "lots, sum at most an input": (
        "u: input[0, 1000]; " + lots(10, "sum(x) <= u"),
        uniform("u", 0, 400),
    ),
    "lots, sum equals an input": (
        "u: input[10, 300]; " + lots(10, "sum(x) == u"),
        uniform("u", 10, 300),
    ),
    "shares of an input of any size": (
        "u: input[0, 300]; x: real[5]; all(0 <= v <= 100 for v in x); sum(x) == u; x[0] <= x[4]; "
        "x[2] == 0 or x[4] >= 1",
        lambda rows, dtype: {"u": (300 * torch.rand(rows) ** 9).to(dtype)},
    ),
    "two sums that share an output": (
        "u: input[0, 20]; v: input[0, 20]; x: real[3]; all(0 <= w <= 20 for w in x); x[0] + x[1] == u; "
        "x[1] + x[2] == v",
        lambda rows, dtype: (
            uniform("u", 0, 20)(rows, dtype) | uniform("v", 0, 20)(rows, dtype)
        ),
    ),
    "at most 3 of 30": ("x: bool[30]; sum(x) <= 3", None),
    "exactly 3 of 100": ("x: bool[100]; sum(x) == 3", None),
    "at least 97 of 100": ("x: bool[100]; sum(x) >= 97", None),
    "at most 3 of 30 quantities": (
        "x: real[30]; all(0 <= v <= 10 for v in x); sum(1 if v > 0 else 0 for v in x) <= 3",
        None,
    ),
    "exactly 3 of 20 quantities, and a sum": (
        "x: real[20]; all(0 <= v <= 10 for v in x); sum(1 if v > 0 else 0 for v in x) == 3; sum(x) <= 12",
        None,
    ),
    "at least 17 of 20 quantities": (
        "x: real[20]; all(0 <= v <= 10 for v in x); sum(1 if v > 5 else 0 for v in x) >= 17",
        None,
    ),
    "whole numbers, a label and a real": (
        'n: int[0, 200]; m: int[0, 200]; y: real; c: {"a", "b", "c"}; n <= m <= 3*n; 0 <= y <= n; '
        'm == 7 or n >= 20; implies(c == "b", y >= 2); implies(c == "a", m + n <= 100)',
        None,
    ),
    "an output that is at most the first": (
        "n: int[0, 200]; m: int[0, 200]; k: int[0, 200]; 2*n <= 3*m; 3*m <= 7*n; k <= n",
        None,
    ),
    "band that an input moves": (
        "d: input[0, 100]; a: real; b: real; 0 <= a <= 100; 0 <= b <= 100; d <= a + b <= d + 2",
        uniform("d", 0, 100),
    ),
    "two inputs": (
        "u: input[0, 10]; v: input[0, 10]; x: real; y: real; 0 <= x; 0 <= y; "
        "x + y <= u - 3*v + 31; x - y >= v - u - 30",
        lambda rows, dtype: (
            uniform("u", 0, 10)(rows, dtype) | uniform("v", 0, 10)(rows, dtype)
        ),
    ),
    "cases of an input": (
        "u: input[0, 10]; x: real; y: real; 0 <= x <= 9; 0 <= y <= 9; x + y <= 12; "
        "implies(u > 5.1, x >= y + 2); implies(u <= 5.1, x <= y - 1)",
        uniform("u", 0, 10),
    ),
    "chain": (
        "x: real[20]; 0 <= x[0]; x[19] <= 100; all(x[i] < x[i+1] for i in range(19))",
        None,
    ),
    "inventory": (
        "d: input[0, 10][12]; s: real[12]; b: real[12]; all(0 <= v <= 50 for v in s); all(0 <= v <= 10 for v in b); "
        "s[0] == 10; all(s[i+1] == s[i] + b[i] - d[i] for i in range(11))",
        halves("d", 0, 9, 12),
    ),
    "gaps between outputs": (
        "x: real[4]; all(0 <= v <= 20 for v in x); all(abs(x[i] - x[i+1]) >= 3 for i in range(3))",
        None,
    ),
    "table 20/20": (table(20, 20, 0), None),
    "table 40/40": (table(40, 40, 1), None),
    "table 80/80": (table(80, 80, 2), None),
    "table 20/40": (table(20, 40, 1), None),
    "table with comparisons 20/20": (table(20, 20, 0, mixed=True), None),
    "table with comparisons 40/40": (table(40, 40, 1, mixed=True), None),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_row_obeys_and_no_row_gets_stuck(name: str, dtype: str) -> None:
    text, inputs = FAMILIES[name]
    rules, form, rows = Rules(text), getattr(torch, dtype), 400
    layer = CascadeMap(compiled(rules, dtype), form).eval()
    given = inputs(rows, form) if inputs else {}
    values, logits = (
        raws(rows, layer.in_values, form),
        raws(rows, layer.in_logits, form),
    )
    for x in (
        layer(values, logits, scalars(rules, given)),
        layer.sample(values, logits, scalars(rules, given)),
        layer.sample(values, logits, scalars(rules, given), noisy=True),
        layer.nearest(values, scalars(rules, given)),
    ):
        assert x.dtype == form
        assert rules.satisfied(x, functions=None, **given).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_program_and_the_walk_agree_bit_for_bit(name: str) -> None:
    text, inputs = FAMILIES[name]
    rules, rows = Rules(text), 100
    layer = CascadeMap(compiled(rules, "float32"), torch.float32)
    given = scalars(rules, inputs(rows, torch.float32) if inputs else {})
    values = torch.randn(rows, layer.in_values, requires_grad=True)
    logits = torch.randn(rows, layer.in_logits)
    own = layer._read_logits(logits)
    fast = layer(values, logits, given)
    plain = layer.recorded(values, own, given, layer.known(given))
    assert torch.equal(fast, plain)
    weights = torch.randn_like(fast)
    (one,), (other,) = (
        torch.autograd.grad((x * weights).sum(), values) for x in (fast, plain)
    )
    ties = (one - other).abs() > 1e-3 * (1 + other.abs())
    assert ties.float().mean() < 0.02


@contextmanager
def ties_noted() -> Iterator[list[Tensor]]:
    """Where two of the numbers that a walk takes the largest or smallest of are that number, ``(B,)`` each time."""
    found: list[Tensor] = []

    def noting(honest: Callable[..., Any]) -> Callable[..., Any]:
        def extreme(numbers: Sequence[Any]) -> Any:
            result = honest(numbers)
            if isinstance(result, Tensor):
                same = [(torch.as_tensor(one) == result).int() for one in numbers]
                found.append(sum(same, torch.zeros(())) > 1)
            return result

        return extreme

    largest = patch.object(walk, "_largest", noting(walk._largest))
    smallest = patch.object(walk, "_smallest", noting(walk._smallest))
    with largest, smallest:
        yield found


TIES = {
    "band": "u: input[1, 9]; x: real[4]; all(0 <= v <= 5 for v in x); u <= sum(x) <= u + 1",
    "orders": "x: real[6]; 0 <= x[0]; x[5] <= 9; all(x[i] <= x[i+1] for i in range(5))",
    "multiples": "n: int[0, 1000][3]; m: int[0, 1000]; n[0] <= n[1] <= 3*n[0]; n[2] + 2*n[1] <= 1500; m >= n[2]",
    "alternatives": "x: real[3]; all(-10 <= v <= 10 for v in x); 3*x[0] + 2*x[1] - x[2] <= 7; "
    "x[1] >= x[0] - 1 or x[2] >= 3; implies(x[0] >= 2, x[1] <= 3)",
    "lots": "u: input[1, 290]; x: real[4]; all(0 <= v <= 100 for v in x); x[0] == 0 or x[0] >= 10; sum(x) == u",
}


@pytest.mark.parametrize("values", ["share", "clamp"])
@pytest.mark.parametrize("name", TIES)
def test_gradients_of_the_program_and_of_a_graph_differ_at_ties_alone(
    name: str, values: Values
) -> None:
    """A graph records the walk. Which of two equal ends gets the gradient is open; in other rows all bits count."""
    rules, rows = Rules(TIES[name]), 300
    layer = CascadeMap(compiled(rules, "float64"), torch.float64, values)
    given = torch.rand(rows, 1).double() * 280 + 5 if name == "lots" else None
    if name == "band":
        given = torch.rand(rows, 1).double() * 8 + 1
    raw = (2 * torch.randn(rows, layer.in_values).double()).requires_grad_()
    logits = torch.randn(rows, layer.in_logits).double()
    fast = layer(raw, logits, given)
    with ties_noted() as ties:
        own = layer._read_logits(logits)
        plain = layer.recorded(raw, own, given, layer.known(given))
    assert torch.equal(fast, plain)
    weights = torch.randn_like(fast)
    (one,), (other,) = (
        torch.autograd.grad((x * weights).sum(), raw) for x in (fast, plain)
    )
    clear = ~torch.stack(ties).any(0)
    assert clear.sum() > 20
    torch.testing.assert_close(one[clear], other[clear], rtol=1e-9, atol=1e-9)


def test_what_ranges_and_conditions_decide_is_not_computed() -> None:
    rules = Rules("u: input[10, 300]; " + lots(30, "sum(x) == u"))
    program = CascadeMap(compiled(rules, "float32"), torch.float32).program
    assert program is not None
    kinds = Counter(type(one).__name__ for one in program.operations)
    assert kinds["Choice"] == 30
    assert kinds["Compared"] <= 1  # all rows speak of what is left
    assert kinds["Within"] <= 3 * 30
    assert kinds["Affine"] + kinds["Extreme"] <= 4 * 30
    middle = [one for one in program.operations if isinstance(one, Choice)][10]
    zero, spent, some, rest = middle.ends
    assert zero == spent == (0.0, 0.0)
    assert middle.rivals[1] is None  # 0 is all that is left to an output with nothing
    assert some[0] == 10 * 2**17
    assert rest[0] == rest[1]  # a number, not an interval


def test_guards_are_looked_at_though_ranges_say_that_they_hold() -> None:
    rules = Rules("u: input[0, 9]; x: real; y: real; -9 <= x <= 9; 0 <= y; x + y == u")
    layer = CascadeMap(compiled(rules, "float32"), torch.float32)
    assert layer.program is not None
    assert len(layer.program.guards) == len(layer.cascade.guards) > 0


# --- projection -----------------------------------------------------------------------------------------------------


def random_clauses(random: Random, unit: bool) -> tuple[list[Clause], dict[int, Range]]:
    ranges = {i: Range(random.randint(-4, 0), random.randint(1, 5)) for i in range(3)}
    found = []
    for _ in range(random.randint(1, 6)):
        rows = []
        for _ in range(random.randint(1, 3)):
            chosen = random.sample(range(3), random.randint(1, 3))
            sizes = {
                v: random.choice([-1, 1] if unit and v == 2 else [-3, -2, -1, 1, 2, 3])
                for v in chosen
            }
            rows.append(row_of(sizes, random.randint(-6, 6)))
        clause = clause_of(rows, ranges)
        if clause is not None and 2 in variables_of(clause):
            found.append(clause)
    return found, ranges


def holds(clauses: list[Clause] | tuple[Clause, ...], point: dict[int, int]) -> bool:
    return all(any(row.holds(point) for row in clause) for clause in clauses)


@pytest.mark.parametrize("unit", [True, False])
def test_a_projection_says_for_which_others_a_value_exists(unit: bool) -> None:
    random, exact = Random(0), 0
    for _ in range(400):
        clauses, ranges = random_clauses(random, unit)
        found = projection(bucket_of(2, clauses, ranges), ranges)
        exact += found.exact
        for a, b in product(
            *(range(ranges[v].lower, ranges[v].upper + 1) for v in (0, 1))
        ):
            some = any(
                holds(clauses, {0: a, 1: b, 2: c})
                for c in range(ranges[2].lower, ranges[2].upper + 1)
            )
            claimed = holds(found.clauses, {0: a, 1: b})
            assert some or not claimed
            assert claimed or not some or not found.exact
    assert exact == 400 if unit else exact > 200


def test_values_of_one_other_variable_are_tried_where_no_coefficient_is_one() -> None:
    between = [
        (Row(((0, 1), (1, -3)), 0),),
        (Row(((0, -1), (1, 3)), 0),),
    ]  # y ≤ 3 x ≤ y
    ranges = {0: Range(0, 6), 1: Range(0, 9)}
    found = projection(bucket_of(1, between, ranges), ranges)
    assert found.exact
    assert [holds(found.clauses, {0: y}) for y in range(7)] == [1, 0, 0, 1, 0, 0, 1]


def test_values_that_are_sure_are_not_tried_however_many_they_are() -> None:
    between = [
        (Row(((0, 2), (1, -3)), 0),),
        (Row(((0, -7), (1, 3)), 0),),
    ]  # 2 y ≤ 3 x ≤ 7 y: one by one, 2^60 values of y would take years
    ranges = {0: Range(-9, 2**60), 1: Range(-(2**60), 2**62)}
    found = projection(bucket_of(1, between, ranges), ranges)
    assert found.exact
    assert [holds(found.clauses, {0: y}) for y in (-1, 0, 1, 2, 2**60)] == [
        0,
        1,
        1,
        1,
        1,
    ]


def test_a_dark_shadow_and_one_value_are_taken_where_others_are_many() -> None:
    between = [
        (Row(((0, 2), (1, 1), (2, -3)), 0),),
        (Row(((0, -2), (1, -1), (2, 3)), 0),),
    ]  # 2 y + z ≤ 3 x ≤ 2 y + z
    ranges = {0: Range(0, 900), 1: Range(0, 900), 2: Range(0, 900)}
    found = projection(bucket_of(2, between, ranges), ranges)
    assert not found.exact
    assert holds(found.clauses, {0: 0, 1: 0})  # x = 0
    assert not holds(found.clauses, {0: 1, 1: 0})


@pytest.mark.parametrize(
    "name",
    [
        "lots, sum equals a number",
        "whole numbers, a label and a real",
        "gaps between outputs",
    ],
)
def test_z3_agrees_that_each_projection_is_the_set_of_points_with_a_value(
    name: str,
) -> None:
    rules = Rules(FAMILIES[name][0])
    cascade = compiled(rules, "bfloat16")
    ranges = dict(enumerate(cascade.ranges))
    clauses = [c for step in cascade.steps for c in step.bucket.clauses]
    search = Elimination(
        clauses,
        ranges,
        [step.variable for step in cascade.steps],
        after={},
        order=[s.variable for s in cascade.steps],
    )
    search.run()
    for bucket, found in zip(search.buckets[-6:], search.projections[-6:], strict=True):
        x = bucket.variable
        names = {v: z3.Int(f"v{v}") for v in ranges}

        def written(
            clauses: tuple[Clause, ...], names: dict[int, z3.ArithRef] = names
        ) -> z3.BoolRef:
            rows = [
                z3.Or(
                    [
                        z3.Sum([c * names[v] for v, c in row.terms]) <= row.bound
                        for row in clause
                    ]
                )
                for clause in clauses
            ]
            return z3.And(rows)

        others = {
            v
            for clause in (*bucket.clauses, *found.clauses)
            for v in variables_of(clause)
        } - {x}
        inside = [
            z3.And(names[v] >= ranges[v].lower, names[v] <= ranges[v].upper)
            for v in others
        ]
        own = z3.And(
            names[x] >= bucket.range.lower,
            names[x] <= bucket.range.upper,
            written(bucket.clauses),
        )
        solver = z3.Solver()
        solver.set("timeout", 60_000)
        solver.add(*inside, written(found.clauses) != z3.Exists([names[x]], own))
        assert solver.check() == z3.unsat


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    [
        "lots, sum at most an input",
        "lots, sum equals an input",
        "two sums that share an output",
        "whole numbers, a label and a real",
        "band that an input moves",
        "two inputs",
        "cases of an input",
        "chain",
        "table 20/20",
        "table with comparisons 20/20",
    ],
)
def test_z3_proves_what_a_cascade_promises(name: str, dtype: str) -> None:
    rules = Rules(FAMILIES[name][0])
    cascade = compiled(rules, dtype)
    clauses = clauses_of(
        revealed(rules.formula, len(rules.specification.variables)).formula, 2000
    )
    proof = proof_of(cascade, clauses, rules.inputs)
    assert proof.sound
    assert proof.never_stuck
    assert proof.complete == cascade.complete


def test_z3_notices_a_cascade_that_lost_a_clause_or_gained_one() -> None:
    rules = Rules(lots(4, "sum(x) <= 150"))
    cascade = compiled(rules, "float32")
    clauses = clauses_of(revealed(rules.formula, 4).formula, 2000)
    last = cascade.steps[-1]
    loose = replace(last, bucket=replace(last.bucket, upper=()))
    assert not proof_of(
        replace(cascade, steps=(*cascade.steps[:-1], loose)), clauses, ()
    ).sound
    first = cascade.steps[2]
    careless = replace(first, bucket=replace(first.bucket, upper=()))
    assert not proof_of(
        replace(cascade, steps=(*cascade.steps[:2], careless, last)), clauses, ()
    ).never_stuck
    narrow = replace(
        last,
        bucket=replace(
            last.bucket, upper=(*last.bucket.upper, (Row(((last.variable, 1),), 5),))
        ),
    )
    assert not proof_of(
        replace(cascade, steps=(*cascade.steps[:-1], narrow)), clauses, ()
    ).complete


# --- everything is reached ------------------------------------------------------------------------------------------

SMALL = {
    "order": "n: int[0, 6]; m: int[0, 6]; n <= m <= 3*n",
    "gaps": "n: int[0, 5]; m: int[0, 5]; k: int[0, 5]; n != m; m != k; n + m + k <= 9; n == 0 or n >= 3",
    "exactly": "b: bool[5]; sum(b) == 2",
    "labels": 'c: {"p", "q", "r"}; n: int[0, 4]; implies(c == "p", n >= 3); implies(c == "q", n != 2)',
    "counted": "n: int[0, 2][4]; sum(1 if v > 0 else 0 for v in n) <= 2",
    "sum": "n: int[0, 4][3]; all(v == 0 or v >= 2 for v in n); sum(n) == 6",
}


@pytest.mark.parametrize("name", SMALL)
def test_probabilities_are_positive_exactly_where_rules_hold_and_sum_to_one(
    name: str,
) -> None:
    rules = Rules(SMALL[name])
    layer = CascadeMap(compiled(rules, "float64"), torch.float64)
    assert layer.cascade.complete
    domains = [list(v.domain.values) for v in rules.outputs]  # type: ignore[union-attr]
    points = torch.tensor(list(product(*domains)), dtype=torch.float64)
    values = torch.randn(layer.in_values, dtype=torch.float64).expand(len(points), -1)
    logits = torch.randn(layer.in_logits, dtype=torch.float64).expand(len(points), -1)
    log_p = layer.log_prob(points, values, logits)
    assert torch.equal(log_p > -torch.inf, rules.satisfied(points))
    assert abs(float(log_p.exp().sum()) - 1) < 1e-12
    many = layer.sample(
        values[:1].expand(40_000, -1), logits[:1].expand(40_000, -1), noisy=True
    )
    seen, counts = torch.unique(many, dim=0, return_counts=True)
    expected = layer.log_prob(seen, values[: len(seen)], logits[: len(seen)]).exp()
    assert ((counts / 40_000 - expected).abs() < 0.015).all()


def test_a_raw_value_of_zero_draws_uniformly_within_an_interval() -> None:
    cascade = compiled(Rules("n: int[0, 9]; m: int[0, 9]; n <= m"), "float32")
    layer = CascadeMap(cascade, torch.float32, started=False)
    drawn = layer.sample(torch.zeros(20_000, 2), None, noisy=True)
    first = drawn[:, layer.cascade.steps[0].variable]
    counts = torch.stack([(first == k).float().mean() for k in range(10)])
    assert ((counts[1:-1] - 1 / 9).abs() < 0.02).all()


@pytest.mark.parametrize(
    "name", ["30 lots", "lots, sum equals a number", "table 20/20", "exactly 3 of 100"]
)
def test_inverse_and_nearest_give_outputs_back(name: str) -> None:
    rules = Rules(FAMILIES[name][0])
    layer = CascadeMap(compiled(rules, "float32"), torch.float32).eval()
    x = layer(torch.randn(200, layer.in_values) * 2, torch.randn(200, layer.in_logits))
    assert torch.equal(layer.nearest(x), x)
    values, logits = layer.inverse(x)
    again = layer(values, logits)
    close = (again - x).abs() <= 1e-3 * (1 + x.abs())
    assert close.float().mean() > 0.99


def test_log_prob_can_be_trained_on() -> None:
    rules = Rules(lots(3, "sum(x) <= 150"))
    layer = CascadeMap(compiled(rules, "float32"), torch.float32)
    data = torch.tensor([[0.0, 50.0, 100.0], [0.0, 48.0, 90.0], [0.0, 52.0, 95.0]])
    head = torch.zeros(layer.in_values + layer.in_logits, requires_grad=True)
    optimiser = torch.optim.Adam([head], 0.05)
    losses = []
    for _ in range(200):
        values, logits = head.expand(3, -1).split_with_sizes(
            [layer.in_values, layer.in_logits], -1
        )
        loss = -layer.log_prob(data, values, logits).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 1
    assert torch.isfinite(torch.tensor(losses)).all()


# --- inputs ---------------------------------------------------------------------------------------------------------


def test_whole_parts_and_bits_of_one_input_are_exact() -> None:
    random = Random(0)
    numbers = [
        random.choice([-1, 1]) * random.random() * 2.0 ** random.randint(-60, 40)
        for _ in range(2000)
    ]
    numbers += [0.0, -0.0, 1.0, -1.0, 0.125, -0.125, 5e-324, -5e-324, 1e300, -1e300]
    u = torch.tensor(numbers, dtype=torch.float64)
    for exponent in (-3, 0, 5):
        form, ends = Form(((0, 1),), exponent), Range(-(2**50), 2**50)
        for threshold, closed in (
            (Fraction(0), False),
            (Fraction(1, 3), False),
            (Fraction(1, 2), True),
        ):
            bit = Bit(form, threshold, closed)
            whole, bits = known_values(
                [Whole(form), bit], [ends, Range(0, 1)], u.unsqueeze(0)
            )
            for i, number in enumerate(numbers):
                exact = Fraction(number) / Fraction(2) ** exponent
                rest = exact - floor(exact)
                expected = min(max(floor(exact), ends.lower), ends.upper)
                assert whole[i] == expected
                if expected == floor(exact):
                    assert bool(bits[i]) == (
                        rest >= threshold if closed else rest > threshold
                    )


@pytest.mark.parametrize("terms", [((0, 1), (1, -3)), ((0, 3),), ((0, 1), (1, 1))])
def test_rows_with_several_inputs_err_on_the_safe_side_and_by_little(
    terms: tuple[tuple[int, int], ...],
) -> None:
    random, form = Random(1), Form(terms, -4)
    columns = [
        [
            random.uniform(-9, 9)
            if random.random() < 0.7
            else random.randint(-90, 90) / 16
            for _ in range(800)
        ]
        for _ in range(2)
    ]
    u = torch.tensor(columns, dtype=torch.float64)
    for sign, strict, number in product(
        (1, -1), (False, True), (Fraction(0), Fraction(1, 3), Fraction(-7, 2))
    ):
        added, bound = right_side(form, sign, number, strict)
        ranges = [Range(-(2**40), 2**40)] * len(added)
        found = known_values(list(added), ranges, u)
        left = torch.stack(
            [c * value for c, value in zip(added.values(), found, strict=True)]
        ).sum(0)
        for i in range(u.shape[1]):
            exact = (
                number
                - sign * sum(c * Fraction(columns[place][i]) for place, c in terms) * 16
            )
            largest = -floor(-exact) - 1 if strict else floor(exact)
            room = bound - int(left[i])
            assert largest - 1 <= room <= largest
            if all(float(columns[place][i] * 16).is_integer() for place, _ in terms):
                assert room == largest


def test_inputs_that_leave_nothing_come_out_as_nan() -> None:
    rules = Rules("u: input; x: real; y: real; 0 <= x <= 9; 0 <= y <= 9; x + y <= u")
    layer = CascadeMap(compiled(rules, "float32"), torch.float32).eval()
    x = layer(torch.randn(3, 2), None, torch.tensor([[-1.0], [0.0], [1e30]]))
    assert x[0].isnan().all()
    assert (x[1] == 0).all()
    assert not x[2].isnan().any()


def test_an_input_off_the_grid_is_carried_by_one_output() -> None:
    rules = Rules(
        "u: input[0, 18]; x: real; y: real; 0 <= x <= 9; 0 <= y <= 9; x + y == u"
    )
    layer = CascadeMap(compiled(rules, "float32"), torch.float32).eval()
    u = torch.tensor([1.5, 2.0**-30, 1.1, 17.9, 2.0**-126, 0.0])
    x = layer(torch.randn(6, 2), None, u.unsqueeze(-1))
    assert rules.satisfied(x, u=u).all()
    subnormal = torch.tensor([1e-44])  # a mode of the processor may take it for zero
    assert layer(torch.randn(1, 2), None, subnormal.unsqueeze(-1)).isnan().all()
    assert torch.equal(layer.nearest(x, u.unsqueeze(-1)), x)
    assert (
        layer.log_prob(x, torch.zeros(6, 2), None, u.unsqueeze(-1)) > -torch.inf
    ).all()


def test_an_input_off_the_grid_comes_out_as_nan_where_no_output_can_carry_it() -> None:
    rules = Rules(
        "u: input[0, 18]; x: real; y: real; -9 <= x <= 9; 0 <= y <= 9; x + y == u"
    )
    layer = CascadeMap(compiled(rules, "float32"), torch.float32).eval()
    x = layer(torch.randn(2, 2), None, torch.tensor([[1.5], [2.0**-30]]))
    assert x[0].sum() == 1.5
    assert x[1].isnan().all()


# --- NaN, dtypes, records, torch --------------------------------------------------------------------------------------


def test_nan_stays_in_training_and_is_read_as_zero_in_eval() -> None:
    layer = CascadeMap(
        compiled(Rules(lots(3, "sum(x) <= 150")), "float32"), torch.float32
    )
    values = torch.tensor([[0.3, torch.nan, 0.1]])
    logits = torch.tensor([[torch.nan] * layer.in_logits])
    assert layer(values, logits).isnan().any()
    layer.eval()
    assert torch.equal(
        layer(values, logits), layer(values.nan_to_num(), torch.zeros_like(logits))
    )


@pytest.mark.parametrize(
    "name",
    [
        "lots, sum equals an input",
        "whole numbers, a label and a real",
        "at most 3 of 30 quantities",
    ],
)
def test_a_cascade_is_saved_and_read_again(name: str) -> None:
    rules = Rules(FAMILIES[name][0])
    cascade = compiled(rules, "float16")
    record = json.loads(json.dumps(record_of_cascade(cascade)))
    again = cascade_from(record, rules.specification.variables, len(rules.inputs))
    assert again == cascade


@pytest.mark.parametrize(
    "damage",
    [
        lambda r: r["steps"].pop(),
        lambda r: r["steps"].append(r["steps"][0]),
        lambda r: r["ranges"][0].reverse(),
        lambda r: r["spacing"].__setitem__(0, "3"),
        lambda r: r["outputs"].__setitem__(0, 99),
        lambda r: r["steps"][0]["clauses"].append([[1, [[0, 1], [99, 1]]]]),
        lambda r: r["ranges"][0].__setitem__(1, 2**60),
        lambda r: r["steps"][0].__setitem__("sides", []),
        lambda r: r.pop("guards"),
    ],
)
def test_a_damaged_record_is_refused(
    damage: Callable[[dict[str, object]], object],
) -> None:
    rules = Rules(lots(4, "sum(x) <= 300"))
    record = json.loads(json.dumps(record_of_cascade(compiled(rules, "float32"))))
    damage(record)
    with pytest.raises(RecordError):
        cascade_from(record, rules.specification.variables, 0)


def test_vmap_export_and_second_derivatives() -> None:
    layer = CascadeMap(
        compiled(Rules(lots(3, "sum(x) <= 150")), "float32"), torch.float32
    ).eval()
    values, logits = torch.randn(6, 3), torch.randn(6, layer.in_logits)
    expected = layer(values, logits)
    assert torch.equal(torch.vmap(layer)(values, logits), expected)
    exported = torch.export.export(layer, (values, logits))
    assert torch.equal(exported.module()(values, logits), expected)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda a, b: layer(a, b)))(
        values, logits
    )
    assert jacobian.shape == (6, 3, 3)
    values.requires_grad_()
    (first,) = torch.autograd.grad(
        layer(values, logits).sum(), values, create_graph=True
    )
    (second,) = torch.autograd.grad(first.sum(), values)
    (expected,) = torch.autograd.grad(layer(values, logits).sum(), values)
    assert torch.allclose(first, expected)
    step = torch.zeros_like(values)
    step[:, 0] = 1e-3
    with torch.no_grad():
        moved = (values + step).requires_grad_()
    (after,) = torch.autograd.grad(layer(moved, logits).sum(), moved)
    assert torch.allclose(
        (after - expected).sum(-1) / 1e-3, second[:, 0], rtol=0.05, atol=0.3
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_intervals_as_wide_as_whole_numbers_go_are_not_left(dtype: str) -> None:
    """The difference of the ends has to be exact as well, or a value may come out beyond them."""
    form = FORMATS[dtype]
    most = min(2**form.precision, int(form.max)) - 1
    rules = Rules(
        f"x: real; y: real; {-most} <= x <= {most - 1}; {-most} <= y <= {most - 1}; x <= y"
    )
    layer = CascadeMap(compiled(rules, dtype), getattr(torch, dtype)).eval()
    assert layer.cascade.size < (2**53 if layer.computing is torch.float64 else 2**24)
    x = layer(raws(2000, 2, getattr(torch, dtype)), None)
    assert rules.satisfied(x).all()


# --- refusals -------------------------------------------------------------------------------------------------------


def test_an_output_without_ends_is_named() -> None:
    with pytest.raises(RangeError, match="`-1000 <= y <= 1000`"):
        compiled(Rules("x: real; y: real; 0 <= x <= 1; y >= x"), "float32")


def test_whole_numbers_that_a_format_does_not_hold_are_refused_by_name() -> None:
    rules = Rules("n: int[0, 100000]; m: int[0, 100000]; n <= m")
    with pytest.raises(
        DtypeError,
        match=r"float16 holds whole numbers up to 2048.*n goes from 0 to 100000",
    ):
        compiled(rules, "float16")
    assert compiled(rules, "float32").complete


def test_rules_that_no_point_of_the_grid_obeys_are_refused() -> None:
    with pytest.raises(GridError, match="no point of the grid obeys"):
        compiled(
            Rules("x: real; y: real; 0 <= x <= 1; 0 <= y <= 1; x + y == 0.3"), "float32"
        )


def test_a_budget_of_clauses_and_one_of_seconds_name_the_output() -> None:
    dense = Rules(table(20, 60, 0, mixed=True))
    with pytest.raises(
        CascadeBudgetExceeded, match=r"without x\[\d+\] have more than 30 clauses"
    ):
        compiled(dense, "float32", budget=Budget(clauses=30))
    with (
        pytest.raises(
            CompileTimeout, match=r"projecting the rules onto the outputs before x\[\d+"
        ),
        Deadline(0.1) as deadline,
    ):
        compiled(dense, "float32", deadline=deadline)


def test_the_order_can_be_named_and_progress_is_told() -> None:
    rules = Rules(lots(4, "sum(x) <= 300"))
    order = [rules.outputs[i] for i in (2, 0, 3, 1)]
    told: list[str] = []
    with Deadline(60, lambda doing, count: told.append(doing)) as deadline:
        cascade = compiled(rules, "float32", order=order, deadline=deadline)
    assert list(cascade.order) == order
    assert told[0] == "projecting the rules onto the outputs before x[1]"


# --- programs written out -------------------------------------------------------------------------------------------


def test_a_script_is_made_of_its_own_names_and_of_numbers() -> None:
    rules = Rules(
        "u: input[10, 90]; secret: real[4]; all(v == 0 or 3 <= v <= 20 for v in secret); sum(secret) <= u"
    )
    script = CascadeMap(compiled(rules, "float32"), torch.float32).program.script  # type: ignore[union-attr]
    given = {"read", "width", "values", "logits", "known", "numbers", "tables", "kept"}
    given |= {"grads", "found", "torch", "inf", "nan", "hardtanh_backward"}
    for text in (script.forward, script.back):
        assert "secret" not in text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name):
                assert node.id in given or re.fullmatch("[a-z][0-9]+", node.id)
            assert not isinstance(node, ast.Import | ast.ImportFrom | ast.Lambda)
            assert not (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_a_script_keeps_for_the_way_back_what_that_reads_alone() -> None:
    rules = Rules(
        "x: real[6]; 0 <= x[0]; x[5] <= 9; all(x[i] <= x[i + 1] for i in range(5))"
    )
    program = CascadeMap(compiled(rules, "float32"), torch.float32).program
    assert program is not None
    read = torch.rand(6, 5)
    _, _, (*_, kept) = program.run(read, None, [])
    assert len(kept) <= 6


def test_a_layer_that_has_run_is_copied_and_pickled() -> None:
    rules = Rules("x: real[3]; all(v == 0 or 1 <= v <= 5 for v in x); sum(x) <= 9")
    mux = Multiplexer(rules, structure="cascade")
    raw = torch.randn(20, mux.in_features)
    x = mux(raw).best()
    for same in (copy.deepcopy(mux), pickle.loads(pickle.dumps(mux))):
        assert torch.equal(same(raw).best(), x)


def test_one_of_many_values_is_as_many_clauses_and_not_their_product() -> None:
    specification = parse("n: int[0, 400]; n % 2 == 1 or n == 400")
    clauses = clauses_of(normal_form(specification.formula), most=1000)
    assert len(clauses) == 2 + 200  # its ends, and the gaps between 201 values
    for n in range(401):
        point = {specification.outputs[0]: Fraction(n)}
        obeys = all(any(true_at(a, point) for a in clause) for clause in clauses)
        assert obeys == (n % 2 == 1 or n == 400)
