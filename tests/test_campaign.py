"""The campaign: it finds nothing in the library, everything in a library with a fault, and can be trusted itself."""

from __future__ import annotations

import copy
import json
import runpy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import campaign.run as campaign_run
from campaign.__main__ import app
from campaign.boundaries import BOUNDARIES
from campaign.calls import functions_of, with_values
from campaign.extremes import extreme_inputs, repairs
from campaign.flushed import while_flushing
from campaign.flushing import flushing, is_flushing
from campaign.givens import given_numbers
from campaign.regressions import record_of, replayed, save, small
from campaign.run import Plan, Summary, campaign
from campaign.sentences import (
    Declared,
    Node,
    Sentence,
    number,
    product,
    total,
    variable,
)
from campaign.solver import Meaning
from campaign.subject import Attack, Finding, Subject
from campaign.tampering import changed_tables
from campaign.trial import Outcome, Trial, trial
from campaign.trips import round_trips
from campaign.variants import KINDS, sentence
from campaign.verdict import Judge
from multiplexnet.errors import InputError, RecordError
from multiplexnet.language.formula import holds
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))
FAULTS: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[1] / "benchmarks" / "faults.py")
)
BY_NAME = {fault.name: fault for fault in FAULTS["FAULTS"]}


# --- nothing is found -----------------------------------------------------------------------------------------------


def numbers_of_every_kind(seed: int) -> list[int]:
    """The first 20 sentences, and the first one of each kind that is not among them."""
    first: dict[str, int] = {}
    for index in range(200):
        first.setdefault(sentence(seed, index).kind, index)
    return sorted({*range(20), *first.values()})


def test_formulas_of_every_kind_and_no_violation() -> None:
    """`make campaign` asks the same of 10,000 formulas."""
    summary = Summary(Plan(0, 0))
    for index in numbers_of_every_kind(seed=1):
        outcome = trial(1, index, 100)
        assert outcome.violations == []
        summary.add(outcome)
    assert set(summary.kinds) == set(KINDS)
    assert summary.rows >= 8_000
    for check in (
        "emptiness",
        "sound",
        "complete",
        "proof",
        "the proof sees tampering",
        "points are reached",
        "impossible terms",
        "rows for extreme inputs",
        "rows of repair",
        "inputs as they are given: forward",
        "inputs as they are given: repair",
        "inputs as they are given: satisfied",
        "rows while flushing",
        "Rules.satisfied while flushing",
        "round trip: meta, to_empty, loaded",
        "densities",
    ):
        assert summary.counts[f"check: {check}"] > 1, check
    assert summary.counts["points judged inside"] > 1000
    assert summary.counts["points judged outside"] > 1000
    assert summary.counts["empty"] > 0


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_failed_holds(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    outcome = replayed(record)
    assert outcome.violations == []
    assert str(Sentence.from_record(record["sentence"])).splitlines() == record["text"]


def test_compiled_and_exported_layers_give_the_same_bits() -> None:
    x, y = variable("x"), variable("y")
    rules = (
        Node(
            "or",
            (
                Node("<", (total(x, y), number(1))),
                Node(">=", (x, number(Fraction(7, 3)))),
            ),
        ),
    )
    outcome = Trial(
        Sentence((Declared("x"), Declared("y")), rules),
        100,
        random=Random(3),
        graphs=True,
    ).run()
    assert outcome.violations == []
    assert outcome.counts["check: same in a graph: aot_eager"] == 1
    assert outcome.counts["check: rows of a graph: export"] == 1
    torch.compiler.reset()


@pytest.mark.parametrize("index", range(3))
def test_recorded_graphs_with_inputs_obey_or_say_nan(index: int) -> None:
    kinds = [lower_and_upper, bounded_by_input, guarded_by_input]
    outcome = Trial(kinds[index](), 40, random=Random(index), recorded=True).run()
    graphs = [
        violation for violation in outcome.violations if "graph" in violation.check
    ]
    assert graphs == []
    assert outcome.counts["check: a recorded graph: export: rows"] == 1
    assert outcome.counts["check: a recorded graph: export: refused rows are NaN"] == 1


# --- faults are found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["contraction", "inward rounding", "strictness", "range rows", "lattice", "prime implicants", "term order",
             "certificate", "NaN in eval", "stand-ins", "cut of directions"]
)  # fmt: skip
def test_a_planted_fault_is_found(name: str) -> None:
    hunt = FAULTS["hunted"](BY_NAME[name], 40)
    assert hunt.found
    assert hunt.check != "crash"


def test_faults_leave_nothing_behind() -> None:
    before = [
        (target, name, getattr(target, name))
        for f in BY_NAME.values()
        for target, name, _ in f.patches()
    ]
    for fault in BY_NAME.values():
        with FAULTS["planted"](fault):
            assert all(
                getattr(target, name) is not old
                for target, name, old in _patched(fault, before)
            )
    assert all(getattr(target, name) is old for target, name, old in before)


def _patched(
    fault: Any, known: list[tuple[Any, str, Any]]
) -> Iterator[tuple[Any, str, Any]]:
    own = {(id(target), name) for target, name, _ in fault.patches()}
    return (
        (target, name, old) for target, name, old in known if (id(target), name) in own
    )


def test_a_failure_is_shrunk_saved_and_replayed(tmp_path: Path) -> None:
    with FAULTS["planted"](BY_NAME["strictness"]):
        outcomes = ((i, trial(0, i, 100).violations) for i in range(100))
        index, (first, *_) = next(found for found in outcomes if found[1])
        found, violation = small(sentence(0, index), first, rows=100)
        path = save(tmp_path, record_of(found, violation, seed=0, index=index))
        assert replayed(json.loads(path.read_text(encoding="utf-8"))).violations
    assert replayed(json.loads(path.read_text(encoding="utf-8"))).violations == []
    assert len(found.rules) == 1
    assert len(found.declared) == 1
    assert len(str(found)) <= len(str(sentence(0, index)))


# --- attacks find what they are made for ----------------------------------------------------------------------------


def lower_and_upper() -> Sentence:
    """u <= x <= v."""
    x, u, v = map(variable, "xuv")
    known = [
        Declared("u", "input", Fraction(-5), Fraction(0)),
        Declared("v", "input", Fraction(1), Fraction(10**9)),
    ]
    return Sentence((Declared("x"), *known), (Node("<=", (u, x)), Node("<=", (x, v))))


def bounded_by_input() -> Sentence:
    """x <= u."""
    return Sentence(
        (Declared("x"), Declared("u", "input")),
        (Node("<=", (variable("x"), variable("u"))),),
    )


def guarded_by_input() -> Sentence:
    """0 <= x <= 1 or u > 3."""
    x, u = variable("x"), variable("u")
    between = Node("and", (Node(">=", (x, number(0))), Node("<=", (x, number(1)))))
    known = Declared("u", "input", Fraction(-4), Fraction(4))
    return Sentence(
        (Declared("x"), known), (Node("or", (between, Node(">", (u, number(3))))),)
    )


class Broken(nn.Module):
    """A layer with one thing wrong; what is not is left to a right layer of the same rules."""

    def __init__(self, mux: Multiplexer) -> None:
        super().__init__()
        self.mux = mux

    def __getattr__(self, name: str) -> Any:
        return (
            super().__getattr__("mux")
            if name == "mux"
            else getattr(super().__getattr__("mux"), name)
        )

    def forward(self, raw: Tensor, **inputs: Any) -> Any:
        return self.mux(raw, **inputs)


class Answer:
    """Branches of which only the best is asked."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def best(self) -> Tensor:
        return self.x


def tensors_only(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """The policy that is easiest to get right: tensors of the dtype, and nothing else."""
    for name, value in inputs.items():
        if (
            not isinstance(value, Tensor)
            or value.dtype != dtype
            or not value.isfinite().all()
        ):
            raise InputError(f"{name} is not a tensor of {dtype}")
    return inputs


class Strict(Broken):
    """Nothing is wrong with it: it refuses whatever is not a tensor of its dtype."""

    def forward(self, raw: Tensor, **inputs: Any) -> Any:
        return self.mux(raw, **tensors_only(inputs, self.mux.dtype))

    def repair(self, x0: Tensor, **inputs: Any) -> Tensor:
        return self.mux.repair(x0, **tensors_only(inputs, self.mux.dtype))


class Rounds(Strict):
    """Python's numbers become numbers of the dtype, without a word."""

    def forward(self, raw: Tensor, **inputs: Any) -> Any:
        own = {
            name: torch.as_tensor(value).to(self.mux.dtype)
            for name, value in inputs.items()
        }
        return self.mux(raw, **own)


class Overflows(Broken):
    """NaN where an input is large."""

    def forward(self, raw: Tensor, **inputs: Any) -> Any:
        x = self.mux(raw, **inputs).best()
        large = inputs["u"].double().abs() > 1e30
        return Answer(x.masked_fill(large.unsqueeze(-1), torch.nan))


class Lazy(Broken):
    """Repairs nothing that is infinite."""

    def repair(self, x0: Tensor, **inputs: Any) -> Tensor:
        return torch.where(x0.isfinite(), self.mux.repair(x0, **inputs), x0)


class Restless(Broken):
    """Moves what obeys."""

    def repair(self, x0: Tensor, **inputs: Any) -> Tensor:
        x = self.mux.repair(x0, **inputs)
        return torch.nextafter(x, torch.full_like(x, -torch.inf))


class Flushes(Broken):
    """The smallest normal number, halved: zero while the mode is on, and inside otherwise."""

    def forward(self, raw: Tensor, **inputs: Any) -> Any:
        x = self.mux(raw, **inputs).best()
        least = torch.finfo(x.dtype).smallest_normal
        return Answer(torch.full_like(x, least) * 0.5)


class Forgetful(Broken):
    """A copy is another layer than the one that was copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        return Restart(self.mux)


class Restart(Broken):
    """Answers something else that obeys."""

    def forward(self, raw: Tensor, **inputs: Any) -> Any:
        return self.mux(torch.zeros_like(raw), **inputs)


class Believes(Broken):
    """Its certificate was written once."""

    @property
    def certificate(self) -> str:
        return "certified"


def positive() -> Sentence:
    return Sentence((Declared("x"),), (Node(">", (variable("x"), number(0))),))


def findings(
    attack: Attack, kind: type[nn.Module], tried: Sentence, dtype: torch.dtype
) -> list[Finding]:
    """What an attack finds, several times over, on a layer that has this wrong with it."""
    layer: Any = kind(Multiplexer(Rules(str(tried)), dtype=dtype)).eval()
    found = []
    for seed in range(4):
        subject = Subject(
            tried,
            layer,
            Judge(tried),
            Random(seed),
            torch.Generator().manual_seed(seed),
        )
        found += [finding for finding in attack(subject) if finding.wrong]
    return found


@pytest.mark.parametrize(
    ("attack", "kind", "tried", "check"),
    [
        (
            given_numbers,
            Rounds,
            bounded_by_input(),
            "inputs as they are given: forward",
        ),
        (given_numbers, Rounds, lower_and_upper(), "inputs as they are given: forward"),
        (extreme_inputs, Overflows, bounded_by_input(), "rows for extreme inputs"),
        (repairs, Lazy, positive(), "rows of repair"),
        (repairs, Restless, positive(), "repair leaves alone what obeys"),
        (while_flushing, Flushes, positive(), "rows while flushing"),
        (round_trips, Forgetful, positive(), "round trip: deepcopy"),
        (changed_tables, Believes, positive(), "the certificate sees changed tables"),
    ],
)
def test_an_attack_finds_what_it_is_made_for(
    attack: Attack, kind: type, tried: Sentence, check: str
) -> None:
    assert check in {
        finding.check for finding in findings(attack, kind, tried, torch.float32)
    }


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)
def test_a_layer_that_takes_tensors_alone_passes(dtype: torch.dtype) -> None:
    found = findings(given_numbers, Strict, bounded_by_input(), dtype)
    assert [
        finding for finding in found if "satisfied" not in finding.check + finding.wrong
    ] == []


def test_a_number_is_judged_as_it_was_given() -> None:
    """0.1 in float32 is more than 0.1."""
    wrong = [
        f.wrong
        for f in findings(given_numbers, Rounds, bounded_by_input(), torch.float32)
    ]
    assert any(
        "as float: [0.10000000149011612] breaks the rules" in text for text in wrong
    )
    wrong = [
        f.wrong
        for f in findings(given_numbers, Rounds, lower_and_upper(), torch.float32)
    ]
    assert any(
        "v = 16777217 as" in text or "v = 257 as" in text or "outside its range" in text
        for text in wrong
    )


def test_tables_are_restored_after_they_were_changed() -> None:
    mux = Multiplexer(Rules("x + y <= 1"), dtype=torch.float64).eval()
    before = copy.deepcopy(dict(mux.named_buffers()))
    tried = Sentence(
        (Declared("x"), Declared("y")),
        (Node("<=", (total(*map(variable, "xy")), number(1))),),
    )
    list(
        changed_tables(Subject(tried, mux, Judge(tried), Random(0), torch.Generator()))
    )
    assert all(torch.equal(before[name], table) for name, table in mux.named_buffers())


# --- a mode that lies -----------------------------------------------------------------------------------------------


def test_the_mode_is_restored_even_on_error() -> None:
    def interrupted() -> None:
        with flushing() as possible:
            assert is_flushing() == possible
            raise Interrupted

    assert not is_flushing()
    with pytest.raises(Interrupted):
        interrupted()
    assert not is_flushing()
    with flushing(), flushing():
        pass
    assert not is_flushing()


def test_the_judge_is_not_fooled_by_the_mode() -> None:
    least, normal = 5e-324, 2.2250738585072014e-308
    rows = np.array(
        [[0.0], [-0.0], [least], [-least], [normal], [normal - least], [1e-310], [1.0]]
    )
    bounds = [Fraction(0), Fraction(least), Fraction(1, 10**310), Fraction(normal)]
    for op in ("<", "<=", ">", ">=", "==", "!="):
        for bound in bounds:
            judge = Judge(
                Sentence((Declared("x"),), (Node(op, (variable("x"), number(bound))),))
            )
            expected = judge(rows).tolist()
            with flushing():
                found = judge(rows).tolist()
            assert found == expected
    whole = Judge(Sentence((Declared("n", "int", Fraction(0), Fraction(3)),), ()))
    with flushing():
        assert whole(rows).tolist() == [
            True,
            True,
            False,
            False,
            False,
            False,
            False,
            True,
        ]


def test_rows_become_integers_by_their_bits() -> None:
    bits = (
        np.random.default_rng(0)
        .integers(0, 2**63, 2000, dtype=np.uint64)
        .view(np.float64)
    )
    rows = np.concatenate(
        [bits[np.isfinite(bits)], -bits[np.isfinite(bits)], [0.0, 5e-324, -5e-324]]
    )[:, None]
    same = Judge(Sentence((Declared("x"),), (Node("==", (variable("x"), number(0))),)))
    with flushing():
        assert same(rows).sum() == 1
    for value in rows[::50, 0].tolist():
        judge = Judge(
            Sentence(
                (Declared("x"),),
                (Node("==", (variable("x"), number(Fraction(value)))),),
            )
        )
        with flushing():
            assert judge(np.array([[value]]))[0]


# --- families -------------------------------------------------------------------------------------------------------


def drawn_sentences(kind: str) -> list[Sentence]:
    return [replace(BOUNDARIES[kind](Random(seed)), kind=kind) for seed in range(8)]


def test_circuits_are_decomposed_and_decide_by_inputs() -> None:
    for tried in drawn_sentences("circuits")[:3]:
        compiled = Rules(str(tried)).compile(max_terms=64, nested=True)
        assert any(term.blocks for _, term in compiled.terms)
        assert any("u" in rule.names for rule in tried.rules)


def test_rules_about_inputs_alone_are_drawn() -> None:
    outputs = [{d.name for d in tried.outputs} for tried in drawn_sentences("alone")]
    without = [
        any(not rule.names & own for rule in tried.rules)
        for tried, own in zip(drawn_sentences("alone"), outputs, strict=True)
    ]
    assert all(without)


def test_sets_at_the_boundaries_can_be_obeyed() -> None:
    for kind in ("cones", "sides", "subnormal"):
        for tried in drawn_sentences(kind):
            assert isinstance(Meaning(tried).model(), dict)


def test_inputs_have_two_ends_or_none() -> None:
    with pytest.raises(ValueError, match="u has one end"):
        Declared("u", "input", Fraction(0))


# --- the campaign itself --------------------------------------------------------------------------------------------


def in_fractions(tried: Sentence) -> dict[str, Callable[..., Fraction]]:
    """The functions of a sentence, whose values in float64 are exact."""

    def exact(function: Callable[..., torch.Tensor]) -> Callable[..., Fraction]:
        return lambda *given: Fraction(
            float(
                function(*(torch.tensor(float(g), dtype=torch.float64) for g in given))
            )
        )

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
        rows = random.choice(
            [-3.0, -1.0, -0.5, 0.0, 1e-9, 0.1, 1 / 3, 2.0, 1e6, 1e300],
            (20, len(tried.declared)),
        )
        if isinstance(model, dict):
            largest = Fraction(10) ** 300  # some of z3's numbers are beyond float64
            point = np.array(
                [
                    float(min(max(model[d.name], -largest), largest))
                    for d in tried.declared
                ]
            )
            rows = np.concatenate(
                [
                    rows,
                    [point, np.nextafter(point, np.inf), np.nextafter(point, -np.inf)],
                ]
            )
        for j, d in enumerate(tried.declared):
            if d.values is not None:
                rows[:, j] = random.choice(np.array(d.values, dtype=float), len(rows))
        rows = with_values(tried, rows, torch.float64)
        by_name = {v.name: v for v in formula.variables}
        variables = [by_name[d.name] for d in tried.declared]
        expected = [
            holds(
                formula.formula,
                dict(zip(variables, map(Fraction, row), strict=False)),
                in_fractions(tried),
            )
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
    assert judge(
        np.array([[0.1], [below], [0.0], [1.0], [-np.inf], [np.nan]])
    ).tolist() == [*(False, True, True, False, False, False)]
    assert judge.in_integers == 2


def test_a_trial_is_a_function_of_its_numbers() -> None:
    for index in (3, 11):
        once, again = trial(5, index, 100), trial(5, index, 100)
        assert (once.kind, once.counts, once.violations) == (
            again.kind,
            again.counts,
            again.violations,
        )


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
    assert without_seconds(campaign(plan, output=path, resume=True)) == without_seconds(
        resumed
    )
    with pytest.raises(RecordError, match="another plan"):
        campaign(replace(plan, seed=3), output=path, resume=True)


def test_a_campaign_goes_on_until_it_has_its_rows() -> None:
    summary = campaign(Plan(1, 2_000, seed=4))
    assert summary.rows >= 2_000


def test_several_processes_count_the_same() -> None:
    plan = Plan(2, 64, seed=114)  # whose first sentences take a moment each
    assert without_seconds(campaign(plan, jobs=2)) == without_seconds(campaign(plan))


class Threads(ThreadPoolExecutor):
    """Threads in the place of processes."""

    def __init__(self, jobs: int, **_: Any) -> None:
        super().__init__(jobs)


def test_trials_that_were_handed_out_ahead_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []

    def short(seed: int, index: int, rows: int) -> Outcome:
        begun.append(index)
        sleep(0.01)
        return Outcome("boxes")

    monkeypatch.setattr(campaign_run, "ProcessPoolExecutor", Threads)
    monkeypatch.setattr(campaign_run, "trial", short)
    assert campaign(Plan(2, 0), jobs=2).formulas == 2
    assert len(begun) < campaign_run.IN_FLIGHT


def test_the_command(tmp_path: Path) -> None:
    path, runner = tmp_path / "summary.json", CliRunner()
    arguments = [
        "--formulas",
        "4",
        "--rows",
        "100",
        "--seed",
        "2",
        "--output",
        str(path),
    ]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert json.loads(path.read_text())["violations"] == 0
    assert '"formulas": 4' in result.stdout
    path.write_text("{}")
    result = runner.invoke(app, [*arguments, "--resume"])
    assert result.exit_code == 2
    with FAULTS["planted"](BY_NAME["inward rounding"]):
        result = runner.invoke(
            app, [*arguments, "--regressions", str(tmp_path / "regressions")]
        )
    assert result.exit_code == 1
    assert "violated: rows of all terms: seed 2, number" in result.stdout
    assert list((tmp_path / "regressions").glob("*.json"))
