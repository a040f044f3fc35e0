"""Optimal power flow: flows from reactances, optima, rules that imply the true limits, an exact judge, runs."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import harness
import numpy as np
import power
import pytest
import torch

RING: dict[str, Any] = {
    "buses": 3,
    "loads": [[2, 90.0]],
    "generators": [
        {"bus": 0, "least": 0.0, "most": 150.0, "c1": 10.0, "c2": 0.0},
        {"bus": 1, "least": 0.0, "most": 100.0, "c1": 20.0, "c2": 0.1},
    ],
    "branches": [
        {"from": 0, "to": 1, "x": 0.1, "limit": None},
        {"from": 0, "to": 2, "x": 0.1, "limit": 50.0},
        {"from": 1, "to": 2, "x": 0.1, "limit": None},
    ],
}
"""Three buses in a ring of equal lines: two thirds of what bus 0 sends to bus 2 take the direct line, limited to 50."""


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[power.Case]:
    case = power.Case("14", RING)
    monkeypatch.setattr(power, "case_of", lambda name: case)
    power.scaled.cache_clear()
    power.denominators.cache_clear()
    yield case
    power.scaled.cache_clear()
    power.denominators.cache_clear()


def test_flows_follow_from_reactances(ring: power.Case) -> None:
    (line,) = ring.lines
    differences = [c - line.loads[0] for c in line.generators]
    assert differences == [Fraction(2, 3), Fraction(1, 3)]


def test_the_flows_of_a_case_balance_at_every_bus() -> None:
    """One unit from a generator to a load: the flows out of every other bus add up to 0."""
    data = power.case_of("30").data
    case = power.Case("30", data)
    start, end = data["generators"][1]["bus"], data["loads"][-1][0]
    left = [Fraction(0)] * data["buses"]
    for number, branch in enumerate(data["branches"]):
        generators, loads = case._factors(number)
        flow = generators[1] - loads[-1]
        left[branch["from"]] += flow
        left[branch["to"]] -= flow
    expected = {start: 1, end: -1}
    assert left == [expected.get(bus, 0) for bus in range(data["buses"])]


def test_the_optimum_uses_the_cheap_generator_up_to_the_limit(ring: power.Case) -> None:
    """2/3 a + 1/3 (90 − a) = 50 at a = 60."""
    found = power.Solver(ring, tuple(ring.lines)).solve(np.array([90.0]))
    assert found.p == pytest.approx([60.0, 30.0], abs=1e-4)
    assert found.bound == pytest.approx(60 * 10 + 30 * 20 + 0.1 * 900, rel=1e-6)
    free = power.Solver(ring, ()).solve(np.array([90.0]))
    assert free.p == pytest.approx([90.0, 0.0], abs=1e-4)


def test_the_judge_has_no_tolerance(ring: power.Case) -> None:
    """At a load of 90 the limit is kept exactly from 30 on, and the next float below breaks it."""
    loads = torch.tensor([[90.0]])
    least = torch.tensor([[30.0]])
    below = least.nextafter(torch.zeros(1))
    assert power.judged(ring, least, loads) == (0.0, 0.0)
    verdict = power.judged(ring, below, loads)
    assert verdict.violations == 1
    assert verdict.largest == pytest.approx(float(least - below) / 3)
    assert power.judged(ring, torch.tensor([[-1.0]]), loads).violations == 1
    assert power.judged(ring, torch.tensor([[101.0]]), loads).violations == 1


@pytest.mark.parametrize("name", ["14", "30", "57", "118"])
def test_rules_allow_what_the_judge_does_and_no_more(name: power.Name) -> None:
    """The rules' limits are smaller than the true ones, and by less than 0.1 MW; inputs lie in their ranges."""
    case = power.case_of(name)
    known = power.Known.of(case)
    text = power.rules_of(case).splitlines()[-len(case.lines) :]
    for line, rule in zip(case.lines, text, strict=True):
        limit = Fraction(rule.rpartition("<= ")[2])
        assert line.limit - Fraction(1, 10) < limit <= line.limit
    for share in (power.LOW, power.HIGH):
        loads = torch.tensor([float(share * load) for load in case.loads])
        inputs = [float(u) for u in known.inputs(loads).values()]
        ends = zip(inputs, known.ranges, strict=True)
        assert all(low - 1e-5 <= u <= high + 1e-5 for u, (low, high) in ends)


def test_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ["--quick", "--epochs", "4", "--rows", "40", "--test", "8"]
    harness.command(power.Settings, power.main, quick)
    lines = {line["method"]: line for line in harness.read(Path("out/power.jsonl"))}
    assert set(lines) == set(power.ANSWERS)
    for method in (
        "multiplexnet",
        "multiplexnet-cost",
        "multiplexnet-cost-long",
        "repair",
    ):
        assert lines[method]["violations"] == 0
        assert lines[method]["gap"] > -1e-6
    assert lines["net"]["violations"] > 0
    assert Path("out/power_gap.png").stat().st_size > 1000
