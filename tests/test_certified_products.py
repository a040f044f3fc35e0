"""Certificates of cascades that multiply inputs and outputs, or assume something of inputs: proved, or refuted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multiplexnet import Multiplexer, Rules, certify
from multiplexnet.certificate import Certificate
from multiplexnet.certificate.document import hashes
from multiplexnet.certificate.report import Report
from multiplexnet.errors import MultiplexError

LOTS = "x: real[4]; all(v == 0 or 10 <= v <= 100 for v in x); "
RULES = {
    "a price": (
        "p: input[0, 100]; b: input[0, 1000]; x: real; 0 <= x <= 50; p*x <= b",
        torch.float32,
    ),
    "a matrix": (
        "a: input[0, 9][4]; c: input[0, 9][4]; b: input[0, 500][2]; " + LOTS + "\n"
        "sum(a[j]*x[j] for j in range(4)) <= b[0]\n"
        "sum(c[j]*x[j] for j in range(4)) < b[1]; sum(x) <= 300",
        torch.bfloat16,
    ),
    "a limit": (
        "u: input[0, 5]; x: real; y: real; 0 <= y <= 9; 0 <= x <= 30; x <= u*y",
        torch.float64,
    ),
    "a quotient": (
        "u: input[0.5, 4]; x: real; y: real; 0 <= x <= 9; 0 <= y <= 9; x/u + y <= 2",
        torch.float16,
    ),
    "a range from a product": (
        "p: input[1, 9]; b: input[0, 10]; x: real; y: real; x >= 0; 0 <= y <= 5\n"
        "p*x + y <= b; x + y <= 8",
        torch.float32,
    ),
    "mixed": (
        "p: input[0, 9][2]; q: input[-4, 0]; b: input[1, 90]; n: int[0, 20]; on: bool; x: real[2]\n"
        "0 <= x[0] <= x[1] <= 8\np[0]*x[0] + (p[1] + 1)*x[1] + p[0]*n + 3*on < b\nq*x[0] - 2*x[1] >= -40",
        torch.float32,
    ),
    "two inputs": (
        "p: input[0, 9]; q: input[0, 9]; x: real; 0 <= x <= 9; p*x <= p*q + 1",
        torch.float32,
    ),
    "assumed": (
        "p: input; q: input; x: real; 0 <= x <= 9\n(p - q)*x <= 5\nassume p >= q",
        torch.float32,
    ),
    "either sign": (
        "a: input[-5, 5][2]; b: input[0, 9]; x: real[2]; all(v == -3 or 0 <= v <= 9 for v in x)\n"
        "a[0]*x[0] + a[1]*x[1] <= b",
        torch.float32,
    ),
    "both sides": (
        "p: input[0, 9]; b: input[0, 90]; w: input[-1, 9]; n: input[0, 9]; q: input[-2, 2]; x: real; y: real\n"
        "0 <= x <= 9; 0 <= y <= 9; p*x + q*y <= b; w*x >= n",
        torch.bfloat16,
    ),
    "beside terms": (
        "p: input[0, 9]; x: real; z: real; 0 <= x <= 9; p*x <= 5; z >= 3 or z <= 1",
        torch.float32,
    ),
}


@cache
def issued(name: str) -> str:
    text, dtype = RULES[name]
    return Multiplexer(Rules(text), dtype=dtype).certificate.to_json()


def failing(report: Report) -> list[str]:
    return [f"{s.text}: {s.why}" for s in report.statements if not s.holds]


@pytest.mark.parametrize("name", RULES)
def test_what_is_issued_is_certified(name: str) -> None:
    report = certify(Certificate.from_json(issued(name)))
    assert report.certified, failing(report)
    said = [s.text for s in report.statements]
    assert any("have the signs that are said" in text for text in said)
    assert any(text.startswith("never stuck") for text in said)
    assert any(text.endswith("which rounding may take") for text in said)
    assert not Certificate.from_json(issued(name)).complete


# --- forgery --------------------------------------------------------------------------------------------------------


def rehashed(data: Any) -> Certificate:
    """The document with hashes that fit again, as a forger would make them."""
    return Certificate({**data, "sha256": hashes(data)})


def outcome(data: Any) -> str:
    try:
        report = certify(rehashed(data))
    except MultiplexError:
        return "unreadable"
    assert not report.is_open
    return "certified" if report.certified else "\n".join(failing(report))


def tampered(name: str) -> tuple[Any, Any]:
    data = json.loads(issued(name))
    return data, data["layer"]["cascades"][0]


def test_a_dropped_row_or_output_of_it_is_not_sound() -> None:
    data, cascade = tampered("a matrix")
    del cascade["late"][0]
    assert outcome(data).startswith("sound")
    data, cascade = tampered("a matrix")
    del cascade["late"][0][0][2]
    assert outcome(data).startswith("sound")
    data, cascade = tampered("a price")
    del cascade["late"]
    assert outcome(data).startswith("sound")


def test_another_bound_or_coefficient_is_found() -> None:
    data, cascade = tampered("a matrix")
    ((_, coefficient, _), *_), bound, _ = cascade["late"][0]
    bound[0][1] += 1
    assert outcome(data).startswith("sound")
    bound[0][1] -= 1
    coefficient[0][1] += 1  # narrower
    assert "complete" in outcome(data)
    cascade["complete"] = False
    assert outcome(data) == "certified"
    data, cascade = tampered("a matrix")
    cascade["late"][1][2] = False  # <= for <
    assert outcome(data).startswith("sound")


def test_another_sign_or_no_easy_end_is_found() -> None:
    data, cascade = tampered("a price")
    cascade["late"][0][0][0][2] = -1
    assert "signs that are said" in outcome(data)
    data, cascade = tampered("mixed")
    for row in cascade["late"]:
        for term in row[0]:
            term[2] = -term[2]
    said = outcome(data)
    assert "signs that are said" in said
    assert "never stuck" in said


def test_rows_that_disagree_on_an_end_are_not_read() -> None:
    data, cascade = tampered("a matrix")
    last = cascade["steps"][-1]["variable"]
    term = next(t for t in cascade["late"][0][0] if t[0] == last)
    term[2] = -1
    assert outcome(data) == "unreadable"


def test_either_sign_and_both_sides_cannot_be_forged() -> None:
    data, cascade = tampered("either sign")
    cascade["late"][0][0][1][2] = 1
    assert "signs that are said" in outcome(data)
    data, cascade = tampered("either sign")
    step = next(step for step in cascade["steps"] if step["variable"] == 1)
    step["clauses"].append([[cascade["ranges"][1][1] - 1, [[1, 1]]]])
    assert outcome(data).startswith("never stuck")
    data, cascade = tampered("both sides")
    cascade["steps"].reverse()
    assert outcome(data) == "unreadable"
    report = certify(Certificate.from_json(issued("both sides")))
    assert any("finds one for x" in s.text for s in report.statements)


def test_without_its_assumption_a_certificate_is_refuted() -> None:
    certificate = Certificate.from_json(issued("assumed"))
    text = RULES["assumed"][0]
    assert certify(certificate, Rules(text)).certified
    for other in (
        text.replace("\nassume p >= q", ""),
        text.replace(">= q", ">= q - 1"),
    ):
        report = certify(certificate, Rules(other))
        (wrong,) = (s for s in report.statements if not s.holds)
        assert "have the signs that are said" in wrong.text
        assert wrong.verdict == "refuted"
        data = json.loads(issued("assumed"))
        data["rules"]["text"] = data["rules"]["text"].replace(text, other)
        assert "signs that are said" in outcome(data)


SMALL = """
p: input[0, 3]; q: input[-2, 0]; b: input[0, 9]; n: int[0, 4]; m: int[0, 3]; j: int[0, 2]
n == 0 or n >= 2
p*n + (1 - q)*m - j <= b
m - q*n < 3
n + m <= 5
"""
NAMES = ("p", "q", "b")
POINTS = [
    tuple(map(Fraction, point))
    for point in product(("0", "1", "5/2"), ("-2", "-1/3", "0"), ("0", "3", "13/2"))
]


def allowed(u: tuple[Fraction, ...]) -> set[tuple[int, ...]]:
    p, q, b = u
    return {
        (n, m, j)
        for n, m, j in product(range(5), range(4), range(3))
        if (n == 0 or n >= 2)
        and p * n + (1 - q) * m - j <= b
        and m - q * n < 3
        and n + m <= 5
    }


@cache
def small() -> str:
    return Multiplexer(Rules(SMALL), dtype=torch.float32).certificate.to_json()


def value(polynomial: Any, u: tuple[Fraction, ...]) -> Fraction:
    total = Fraction(0)
    for places, c in polynomial:
        for place in places:
            c = c * u[place]
        total += c
    return total


def reached(cascade: Any, u: tuple[Fraction, ...]) -> set[tuple[int, ...]] | str:
    """The points that a document without known values describes, step by step, for one value of the inputs."""
    order = [step["variable"] for step in cascade["steps"]]
    points: list[dict[int, int]] = [{}]
    if not late_hold(cascade, {}, u):
        return "refused"
    for step in cascade["steps"]:
        grown = []
        for before in points:
            own = list(taken(cascade, step, before, u))
            if not own:
                return "stuck" if before else "refused"
            grown += own
        points = grown
    return {tuple(point[i] for i in sorted(order)) for point in points}


def late_hold(cascade: Any, point: dict[int, int], u: tuple[Fraction, ...]) -> bool:
    """Whether late rows hold with what is not computed at its easy end."""
    for terms, bound, strict in cascade["late"]:
        total = Fraction(0)
        for v, coefficient, sign in terms:
            factor = value(coefficient, u)
            easy = cascade["ranges"][v][0 if (sign or factor) >= 0 else 1]
            total += factor * Fraction(cascade["spacing"][v]) * point.get(v, easy)
        if total > value(bound, u) or (strict and total == value(bound, u)):
            return False
    return True


def holds(row: Any, point: dict[int, int]) -> bool:
    return bool(sum(c * point[v] for v, c in row[1]) <= row[0])


def taken(
    cascade: Any, step: Any, before: dict[int, int], u: tuple[Fraction, ...]
) -> Iterator[dict[int, int]]:
    x = step["variable"]
    lower, upper = cascade["ranges"][x]
    for k in range(lower, upper + 1):
        after = before | {x: k}
        clauses = step["clauses"]
        if not all(any(holds(row, after) for row in clause) for clause in clauses):
            continue
        sides = []
        for clause in clauses:
            signs = {dict(map(tuple, row[1])).get(x, 0) for row in clause}
            if min(signs) < 0 < max(signs):
                sides.append(
                    any(
                        holds(r, after) for r in clause if dict(map(tuple, r[1]))[x] < 0
                    )
                )
        if sides in step["sides"] and late_hold(cascade, after, u):
            yield after


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, own in items:
            yield from leaves(own, (*path, key))
    else:
        yield path


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def others(own: Any) -> list[Any]:
    if isinstance(own, bool):
        return [not own]
    if isinstance(own, int):
        return [own + 1, own - 1, -own, own + 1000]
    if own is None:
        return [[0], [0, 1]]
    try:
        number = Fraction(own)
    except ValueError:
        return ["float64", "bit"]
    return [str(number * 2), "1/4"]


def test_the_judge_of_changed_leaves_knows_the_true_document() -> None:
    (cascade,) = json.loads(small())["layer"]["cascades"]
    assert not cascade["known"]
    for u in POINTS:
        assert reached(cascade, u) == allowed(u)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_changed_leaf_is_found_or_says_the_same(draw: st.DataObject) -> None:
    data = json.loads(small())
    (cascade,) = data["layer"]["cascades"]
    path = draw.draw(st.sampled_from(list(leaves(cascade))))
    changed = draw.draw(st.sampled_from(others(at(cascade, path))))
    judge(data, path, changed)


def judge(data: Any, path: tuple[Any, ...], changed: Any) -> str:
    (cascade,) = data["layer"]["cascades"]
    at(cascade, path[:-1])[path[-1]] = changed
    said = outcome(data)
    if said != "certified":
        return said
    for u in POINTS:
        found = reached(cascade, u)
        if found == "refused" and (not allowed(u) or not cascade["complete"]):
            continue
        assert found == allowed(u) or (
            not cascade["complete"] and found <= allowed(u)  # type: ignore[operator]
        ), (path, changed)
    return said
