"""The campaign: it finds nothing in the library, everything in a library with a fault, and can be trusted itself."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from multiplexnet.campaign.calls import functions_of, with_values
from multiplexnet.campaign.regressions import record_of, replayed, save, small
from multiplexnet.campaign.run import Plan, Summary, campaign
from multiplexnet.campaign.sentences import Declared, Node, Sentence, number, product, total, variable
from multiplexnet.campaign.solver import Meaning
from multiplexnet.campaign.trial import Trial, trial
from multiplexnet.campaign.variants import KINDS, sentence
from multiplexnet.campaign.verdict import Judge
from multiplexnet.cli import app
from multiplexnet.errors import RecordError
from multiplexnet.logic.formula import holds
from multiplexnet.rules import Rules

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
FAULTS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "faults.py"))
BY_NAME = {fault.name: fault for fault in FAULTS["FAULTS"]}


# --- nothing is found -----------------------------------------------------------------------------------------------


def test_two_hundred_formulas_and_no_violation() -> None:
    summary = campaign(Plan(200, 20_000, seed=1))
    assert summary.violations == []
    assert summary.formulas >= 200
    assert summary.rows >= 20_000
    assert set(summary.kinds) == set(KINDS)
    for check in (
        "emptiness",
        "sound",
        "complete",
        "certificate",
        "the certificate sees tampering",
        "points are reached",
    ):
        assert summary.counts[f"check: {check}"] > 20
    assert summary.counts["points judged inside"] > 1000 < summary.counts["points judged outside"]
    assert summary.counts["empty"] > 5


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_failed_holds(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    outcome = replayed(record)
    assert outcome.violations == []
    assert str(Sentence.from_record(record["sentence"])).splitlines() == record["text"]


def test_compiled_and_exported_layers_give_the_same_bits() -> None:
    x, y = variable("x"), variable("y")
    rules = (Node("or", (Node("<", (total(x, y), number(1))), Node(">=", (x, number(Fraction(7, 3)))))),)
    outcome = Trial(Sentence((Declared("x"), Declared("y")), rules), 100, random=Random(3), graphs=True).run()
    assert outcome.violations == []
    assert outcome.counts["check: same in a graph: aot_eager"] == 1
    assert outcome.counts["check: rows of a graph: export"] == 1
    torch.compiler.reset()


# --- faults are found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["contraction", "inward rounding", "strictness", "range rows", "lattice", "prime implicants", "term order",
             "certificate", "NaN in eval"]
)  # fmt: skip
def test_a_planted_fault_is_found(name: str) -> None:
    hunt = FAULTS["hunted"](BY_NAME[name], 40)
    assert hunt.found
    assert hunt.check != "crash"


def test_faults_leave_nothing_behind() -> None:
    before = [(target, name, getattr(target, name)) for f in BY_NAME.values() for target, name, _ in f.patches()]
    for fault in BY_NAME.values():
        with FAULTS["planted"](fault):
            assert all(getattr(target, name) is not old for target, name, old in _patched(fault, before))
    assert all(getattr(target, name) is old for target, name, old in before)


def _patched(fault: Any, known: list[tuple[Any, str, Any]]) -> Iterator[tuple[Any, str, Any]]:
    own = {(id(target), name) for target, name, _ in fault.patches()}
    return ((target, name, old) for target, name, old in known if (id(target), name) in own)


def test_a_failure_is_shrunk_saved_and_replayed(tmp_path: Path) -> None:
    with FAULTS["planted"](BY_NAME["strictness"]):
        index = next(i for i in range(100) if trial(0, i, 200).violations)
        first = trial(0, index, 200).violations[0]
        found, violation = small(sentence(0, index), first, rows=100)
        path = save(tmp_path, record_of(found, violation, seed=0, index=index))
        assert replayed(json.loads(path.read_text(encoding="utf-8"))).violations
    assert replayed(json.loads(path.read_text(encoding="utf-8"))).violations == []
    assert len(found.rules) == 1
    assert len(found.declared) == 1
    assert len(str(found)) <= len(str(sentence(0, index)))


# --- the campaign itself --------------------------------------------------------------------------------------------


def in_fractions(tried: Sentence) -> dict[str, Callable[..., Fraction]]:
    """The functions of a sentence, whose values in float64 are exact."""

    def exact(function: Callable[..., torch.Tensor]) -> Callable[..., Fraction]:
        return lambda *given: Fraction(float(function(*(torch.tensor(float(g), dtype=torch.float64) for g in given))))

    return {name: exact(function) for name, function in functions_of(tried).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_judge_agrees_with_fractions(kind: str) -> None:
    """On rows of every size, on z3's points and on the floats around them."""
    numbers = [i for i in range(200) if sentence(2, i).kind == kind][:4]
    random, sides = np.random.default_rng(0), set()
    for index in numbers:
        tried = sentence(2, index)
        formula = Rules(str(tried)).specification
        model = Meaning(tried).model()
        rows = random.choice([-3.0, -1.0, -0.5, 0.0, 1e-9, 0.1, 1 / 3, 2.0, 1e6, 1e300], (20, len(tried.declared)))
        if isinstance(model, dict):
            largest = Fraction(10) ** 300  # some of z3's numbers are beyond float64
            point = np.array([float(min(max(model[d.name], -largest), largest)) for d in tried.declared])
            rows = np.concatenate([rows, [point, np.nextafter(point, np.inf), np.nextafter(point, -np.inf)]])
        for j, d in enumerate(tried.declared):
            if d.values is not None:
                rows[:, j] = random.choice(np.array(d.values, dtype=float), len(rows))
        rows = with_values(tried, rows, torch.float64)
        by_name = {v.name: v for v in formula.variables}
        variables = [by_name[d.name] for d in tried.declared]
        expected = [
            holds(formula.formula, dict(zip(variables, map(Fraction, row), strict=False)), in_fractions(tried))
            for row in rows.tolist()
        ]
        judge = Judge(tried)
        assert judge(rows).tolist() == expected
        assert judge.in_floats + judge.in_integers == len(rows)
        sides |= set(expected)
    assert sides <= {True, False}
    assert False in sides


def test_the_judge_needs_integers_on_the_boundary_only() -> None:
    tenth = Node("<", (product(3, variable("x")), number(Fraction(3, 10))))
    judge = Judge(Sentence((Declared("x"),), (tenth,)))
    below = np.nextafter(0.1, 0)
    assert judge(np.array([[0.1], [below], [0.0], [1.0], [-np.inf], [np.nan]])).tolist() == [
        *(False, True, True, False, False, False)
    ]
    assert judge.in_integers == 2


def test_a_trial_is_a_function_of_its_numbers() -> None:
    for index in (3, 11):
        once, again = trial(5, index, 100), trial(5, index, 100)
        assert (once.kind, once.counts, once.violations) == (again.kind, again.counts, again.violations)


def without_seconds(summary: Summary) -> dict[str, Any]:
    return {key: value for key, value in summary.record().items() if key != "seconds"}


class Interrupted(Exception):
    pass


def test_an_interrupted_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    plan, path = Plan(6, 150, seed=2), tmp_path / "campaign.json"

    def stop(summary: Summary) -> None:
        if summary.formulas == 3:
            summary.save(path)
            raise Interrupted

    with pytest.raises(Interrupted):
        campaign(plan, output=path, progress=stop)
    assert json.loads(path.read_text())["formulas"] == 3
    resumed = campaign(plan, output=path, resume=True)
    assert without_seconds(resumed) == without_seconds(campaign(plan))
    assert json.loads(path.read_text()) == resumed.record()
    assert without_seconds(campaign(plan, output=path, resume=True)) == without_seconds(resumed)
    with pytest.raises(RecordError, match="another plan"):
        campaign(replace(plan, seed=3), output=path, resume=True)


def test_a_campaign_goes_on_until_it_has_its_rows() -> None:
    summary = campaign(Plan(1, 2_000, seed=4))
    assert summary.rows >= 2_000


def test_several_processes_count_the_same() -> None:
    plan = Plan(2, 64, seed=2)
    assert without_seconds(campaign(plan, jobs=2)) == without_seconds(campaign(plan))


def test_the_command(tmp_path: Path) -> None:
    path, runner = tmp_path / "summary.json", CliRunner()
    arguments = ["campaign", "--formulas", "4", "--rows", "100", "--seed", "2", "--output", str(path)]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert json.loads(path.read_text())["violations"] == 0
    assert '"formulas": 4' in result.stdout
    path.write_text("{}")
    result = runner.invoke(app, [*arguments, "--resume"])
    assert result.exit_code == 2
    with FAULTS["planted"](BY_NAME["inward rounding"]):
        result = runner.invoke(app, [*arguments, "--regressions", str(tmp_path / "regressions")])
    assert result.exit_code == 1
    assert "violated: rows of all terms: seed 2, number" in result.stdout
    assert list((tmp_path / "regressions").glob("*.json"))
