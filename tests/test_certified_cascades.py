"""Certificates of cascades: what a layer says of its grid and its steps is proved again, a forged one is refuted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from math import floor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from multiplexnet import Multiplexer, Rules, certify
from multiplexnet.certificate import Certificate
from multiplexnet.certificate.cascade import steps
from multiplexnet.certificate.document import hashes
from multiplexnet.certificate.report import Report
from multiplexnet.errors import MultiplexError, RecordError
from multiplexnet.tools.cli import app

LOTS = "x: real[6]; all(v == 0 or 10 <= v <= 100 for v in x); "
RULES = {
    "lots": (LOTS + "sum(x) <= 300", torch.bfloat16),
    "carried": ("d: input[10, 500]; " + LOTS + "sum(x) == d", torch.float32),
    "off the grid": (
        "u: input[0, 6]; x: real; y: real; -3 <= x <= 3; 0 <= y <= 3; x + y == u",
        torch.float16,
    ),
    "counted": (
        "x: real[8]; all(0 <= v <= 10 for v in x); sum(1 if v > 0 else 0 for v in x) <= 3",
        torch.float64,
    ),
    "truth values": (
        "b: bool[9]; x: real; 0 <= x <= 9; sum(b) == 3; implies(b[0], x >= 2); implies(b[8], x < 5)",
        torch.float32,
    ),
    "wide": (
        "n: int[0, 1000000]; m: int[0, 1000000]; n + 3*m <= 1000000; m <= n",
        torch.float32,
    ),
    "labels": (
        'c: {"red", "green", "blue"}; x: real; 0 <= x <= 100; y: real; 0 <= y <= 9; x + y <= 60\n'
        'implies(c == "red", x >= 50)\nimplies(c == "blue", x <= 7)',
        torch.float16,
    ),
    "a sum of inputs": (
        "u: input[0, 6]; v: input[0, 6]; x: real; y: real; 0 <= x <= 13; 0 <= y <= 3\n"
        "x + 3*y < u + 2*v + 0.1; x - y == 0 or x >= 2",
        torch.float64,
    ),
    "a part": (
        "n: int[0, 99]; k: int[0, 99]; m: int[0, 99]; 3*n + 2*k + 3 <= 4*m; 4*m <= 3*n + 3*k + 3",
        torch.float32,
    ),
    "beside terms": (
        "x: real[6]; z: real; all(v == 0 or 10 <= v <= 100 for v in x); sum(x) <= 300; z >= 3 or z <= 1",
        torch.float32,
    ),
}


@cache
def issued(name: str) -> str:
    text, dtype = RULES[name]
    return Multiplexer(
        Rules(text), structure="cascade", dtype=dtype
    ).certificate.to_json()


def failing(report: Report) -> list[str]:
    return [f"{s.text}: {s.why}" for s in report.statements if not s.holds]


@pytest.mark.parametrize("name", RULES)
def test_what_is_issued_is_certified(name: str) -> None:
    certificate = Certificate.from_json(issued(name))
    report = certify(certificate)
    assert report.certified, failing(report)
    assert certificate.complete == (name != "a part")
    assert any(s.text.startswith("never stuck") for s in report.statements)


def test_rules_in_smtlib_and_other_rules() -> None:
    text = """
    (set-info :inputs "d[10, 200]")
    (declare-const x Real) (declare-const y Real) (declare-const d Real)
    (assert (or (= x 0) (<= 10 x 100))) (assert (or (= y 0) (<= 10 y 100))) (assert (<= (+ x y) d))
    """
    mux = Multiplexer(Rules.from_smtlib(text), structure="cascade")
    assert certify(mux.certificate).certified
    same = text.replace("(+ x y)", "(+ y x 0)")
    assert certify(mux.certificate, Rules.from_smtlib(same)).certified
    narrower = text.replace("(<= (+ x y) d)", "(< (+ x y) d)")
    report = certify(mux.certificate, Rules.from_smtlib(narrower))
    assert [s.text for s in report.statements if s.verdict == "refuted"] == [
        "the rules given: sound: the steps over x, y imply the rules"
    ]
    wider = text.replace("(<= (+ x y) d)", "(<= (+ x y) (+ d 1))")
    assert "complete" in failing(certify(mux.certificate, Rules.from_smtlib(wider)))[0]


def test_a_rule_over_a_cascade_and_a_term() -> None:
    rules = Rules("""
        x: real[6]; z: real
        not (any(v != 0 and not (10 <= v <= 100) for v in x) or sum(x) > 300 or (z < 3 and z > 1))
    """)
    mux = Multiplexer(rules, structure="cascade")
    assert mux.blocks
    assert mux.cascades
    report = certify(mux.certificate)
    assert report.certified, failing(report)


# --- forgery --------------------------------------------------------------------------------------------------------


def rehashed(data: Any) -> Certificate:
    """The document with hashes that fit again, as a forger would make them."""
    return Certificate({**data, "sha256": hashes(data)})


def outcome(data: Any) -> str:
    try:
        report = certify(rehashed(data))
    except MultiplexError:
        return "unreadable"
    return "certified" if report.certified else "\n".join(failing(report))


def tampered(name: str) -> tuple[Any, Any]:
    data = json.loads(issued(name))
    return data, data["layer"]["cascades"][0]


def test_a_changed_document_has_other_hashes() -> None:
    data, cascade = tampered("lots")
    cascade["ranges"][0][1] -= 1
    assert "the hashes" in failing(certify(Certificate(data)))[0]


def test_a_wider_bound_is_not_sound() -> None:
    data, cascade = tampered("lots")
    step = cascade["steps"][-1]
    row = next(row for clause in step["clauses"] for row in clause if len(row[1]) == 6)
    row[0] += 1
    assert outcome(data).startswith("sound")


def test_a_narrower_bound_is_not_complete() -> None:
    data, cascade = tampered("lots")
    step = cascade["steps"][-1]
    row = next(row for clause in step["clauses"] for row in clause if len(row[1]) == 6)
    row[0] -= 1
    assert "complete" in outcome(data)


def test_a_changed_coefficient_is_found() -> None:
    data, cascade = tampered("lots")
    row = next(r for c in cascade["steps"][-1]["clauses"] for r in c if len(r[1]) == 6)
    row[1][0][1] = 2
    assert "complete" in outcome(data)


def test_another_spacing_is_found() -> None:
    data, cascade = tampered("lots")
    cascade["spacing"][2] = str(2 * Fraction(cascade["spacing"][2]))
    assert outcome(data).startswith("sound")
    data, cascade = tampered("lots")
    cascade["spacing"] = [str(Fraction(h) / 2**130) for h in cascade["spacing"]]
    assert "number of the format" in outcome(data)


def test_a_moved_gap_is_found() -> None:
    data, cascade = tampered("lots")
    for step in cascade["steps"]:
        for clause in step["clauses"]:
            for row in clause:
                if row[1] == [[step["variable"], -1]]:
                    row[0] += 1  # from 10 less a step on
    assert outcome(data).startswith("sound")


def test_a_missing_option_gets_stuck_or_loses_points() -> None:
    data, cascade = tampered("lots")
    step = cascade["steps"][-1]
    step["sides"] = [[True]]
    said = outcome(data)
    assert "never stuck" in said
    assert "complete" in said
    data, cascade = tampered("labels")
    step = next(step for step in cascade["steps"] if step["values"])
    step["values"].pop()
    assert "complete" in outcome(data)


def test_a_missing_guard_and_a_carrier_that_carries_nothing() -> None:
    data, cascade = tampered("off the grid")
    cascade["guards"] = []
    assert outcome(data) not in ("certified", "unreadable")
    data, cascade = tampered("carried")
    cascade["carried"] = []
    assert outcome(data) not in ("certified", "unreadable")


def test_sums_that_round_are_found() -> None:
    data, cascade = tampered("wide")
    assert cascade["computing"] == "float32"
    row = next(
        row for step in cascade["steps"] for clause in step["clauses"] for row in clause
    )
    row[0] = 2**53
    assert "rounded in float32" in outcome(data)


def test_what_claims_to_be_all_and_is_a_part() -> None:
    data, cascade = tampered("a part")
    cascade["complete"] = True
    assert "complete" in outcome(data)


SMALL = """
u: input[0, 9]; n: int[0, 6]; m: int[0, 6]
n == 0 or n >= 3
n + 2*m <= u + 0.5
(1 if n > 3 else 0) + (1 if m > 2 else 0) <= 1
"""


def reached(cascade: Any, u: Fraction) -> set[tuple[int, ...]] | str:
    """The points that a document describes, one step after another, for one value of the input."""
    count = len(cascade["spacing"])
    point: dict[int, int] = {}
    for i, (kind, (exponent, _), *rest) in enumerate(cascade["known"], start=count):
        form = u / Fraction(2) ** exponent
        if kind == "whole":
            lower, upper = cascade["ranges"][i]
            point[i] = max(lower, min(upper, floor(form)))
        else:
            over = form - floor(form), Fraction(rest[0])
            point[i] = int(over[0] >= over[1] if rest[1] else over[0] > over[1])
    if not all(
        any(holds(row, point) for row in clause) for clause in cascade["guards"]
    ):
        return "refused"
    points = [point]
    for step in cascade["steps"]:
        grown = [after for before in points for after in taken(cascade, step, before)]
        if any(not list(taken(cascade, step, before)) for before in points):
            return "stuck"
        points = grown
    return {(p[0], p[1]) for p in points}


def holds(row: Any, point: dict[int, int]) -> bool:
    return bool(sum(c * point[v] for v, c in row[1]) <= row[0])


def taken(cascade: Any, step: Any, before: dict[int, int]) -> Iterator[dict[int, int]]:
    x = step["variable"]
    lower, upper = cascade["ranges"][x]
    for value in range(lower, upper + 1):
        after = before | {x: value}
        obeys = all(
            any(holds(row, after) for row in clause) for clause in step["clauses"]
        )
        if not obeys or (step["values"] is not None and value not in step["values"]):
            continue
        sides = []
        for clause in step["clauses"]:
            signs = {dict(map(tuple, row[1])).get(x, 0) for row in clause}
            if min(signs) < 0 < max(signs):
                below = [
                    row for row in clause if dict(map(tuple, row[1])).get(x, 0) < 0
                ]
                sides.append(any(holds(row, after) for row in below))
        if step["values"] is not None or sides in step["sides"]:
            yield after


@cache
def small() -> str:
    return Multiplexer(Rules(SMALL), structure="cascade").certificate.to_json()


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value, value + 1000]
    if value is None:
        return [[0], [0, 1]]
    try:
        number = Fraction(value)
    except ValueError:
        return [value + "x", "float64", "bit", "<"]
    return [str(number * 2), str(number + Fraction(1, 2)), "1/4"]


def allowed(u: Fraction) -> set[tuple[int, int]]:
    return {
        (n, m)
        for n, m in product(range(7), repeat=2)
        if (n == 0 or n >= 3)
        and n + 2 * m <= u + Fraction(1, 2)
        and (n > 3) + (m > 2) <= 1
    }


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_changed_leaf_is_found_or_says_the_same(draw: st.DataObject) -> None:
    data = json.loads(small())
    (cascade,) = data["layer"]["cascades"]
    path = draw.draw(st.sampled_from(list(leaves(cascade))))
    value = draw.draw(st.sampled_from(others(at(cascade, path))))
    at(cascade, path[:-1])[path[-1]] = value
    if outcome(data) != "certified":
        return
    for u in map(Fraction, ("0", "1/3", "1/2", "3", "17/4", "13/2", "9")):
        found = reached(cascade, u)
        assert found == allowed(u) or (
            not cascade["complete"] and found <= allowed(u)  # type: ignore[operator]
        ), path


def test_the_judge_of_changed_leaves_knows_the_true_document() -> None:
    (cascade,) = json.loads(small())["layer"]["cascades"]
    for u in map(Fraction, ("0", "1/3", "1/2", "3", "17/4", "13/2", "9")):
        assert reached(cascade, u) == allowed(u)


def test_a_dropped_clause_is_found_or_was_superfluous() -> None:
    found = set()
    steps_of = json.loads(small())["layer"]["cascades"][0]["steps"]
    for j, i in (
        (j, i) for j, step in enumerate(steps_of) for i in range(len(step["clauses"]))
    ):
        data = json.loads(small())
        (cascade,) = data["layer"]["cascades"]
        del cascade["steps"][j]["clauses"][i]
        said = outcome(data)
        found.add(said.partition(":")[0])
        if said == "certified":
            assert all(
                reached(cascade, Fraction(u, 4)) == allowed(Fraction(u, 4))
                for u in range(37)
            )
    assert found >= {"sound", "never stuck"}


# --- what was not decided, and the layer ------------------------------------------------------------------------------


def test_not_proved_in_the_time_is_a_verdict_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(steps, "SHORT", 1)
    monkeypatch.setattr(steps, "LONG", 1)
    (tmp_path / "layer.json").write_text(issued("carried"))
    report = certify(tmp_path / "layer.json")
    assert report.is_open
    assert not report.certified
    assert "not proved in the time" in str(report)
    assert {s.verdict for s in report.statements} == {"proved", "open"}
    run = CliRunner().invoke(app, ["certify", str(tmp_path / "layer.json")])
    assert run.exit_code == 3
    assert "OPEN" in run.output


def test_a_layer_whose_program_was_changed_has_no_certificate() -> None:
    mux = Multiplexer(Rules(LOTS + "sum(x) <= 300"), structure="cascade")
    assert mux.certificate.complete
    program: Any = mux.cascade_maps[0].program
    operation = next(one for one in program.operations if hasattr(one, "constant"))
    operation.constant += 1.0
    with pytest.raises(RecordError, match="changed after"):
        _ = mux.certificate


def test_a_layer_whose_script_was_changed_has_no_certificate() -> None:
    mux = Multiplexer(Rules(LOTS + "sum(x) <= 300"), structure="cascade")
    program: Any = mux.cascade_maps[0].program
    changed = program.script.forward.replace("torch.gt", "torch.lt")
    assert changed != program.script.forward
    object.__setattr__(program.script, "forward", changed)
    with pytest.raises(RecordError, match="changed after"):
        _ = mux.certificate


def test_a_layer_with_another_spacing_has_no_certificate() -> None:
    mux = Multiplexer(Rules(LOTS + "sum(x) <= 300"), structure="cascade")
    mux.cascade_maps[0].spacing[0] *= 2  # type: ignore[operator, index]
    with pytest.raises(RecordError, match="changed after"):
        _ = mux.certificate
