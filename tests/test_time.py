"""Time: no compilation runs for minutes without a word, and a limit of time changes no result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import z3
from typer.testing import CliRunner

from multiplexnet import Multiplexer, Rules
from multiplexnet.compiler.record import record_of_compiled
from multiplexnet.errors import (
    CompileTimeout,
    MultiplexError,
    OptionError,
    TermBudgetExceeded,
)
from multiplexnet.exact import simplex
from multiplexnet.exact.deadline import NEVER, TERMS, Deadline
from multiplexnet.exact.hermite import solutions
from multiplexnet.exact.rows import Rows
from multiplexnet.geometry.split import parts_of
from multiplexnet.smt.encoder import Z3Encoder
from multiplexnet.smt.search import decided
from multiplexnet.tools.cli import app

PATIENCE = 45.0
"""Far more than any of these limits: on a busy machine everything takes longer."""


def apart(n: int) -> Rules:
    """n outputs that keep their distance from each other: n! terms, and nothing falls apart."""
    return Rules(
        f"x: real[{n}]\nall(x[i] >= x[j] + 1 or x[j] >= x[i] + 1 for i in range({n}) for j in range(i))"
    )


def pigeons(n: int) -> Rules:
    """One question that z3 cannot answer soon: n + 1 pigeons in n holes."""
    return Rules(
        f"p: bool[{(n + 1) * n}]\n"
        f"all(any(p[i * {n} + j] for j in range({n})) for i in range({n + 1}))\n"
        f"all(p[i * {n} + j] + p[k * {n} + j] <= 1 for j in range({n}) for i in range({n + 1}) for k in range(i))"
    )


def dense(n: int, m: int) -> Rules:
    """A polytope of n outputs and m rows."""
    rng = np.random.default_rng(0)
    A = rng.integers(-9, 10, (m, n))
    rows = (
        " + ".join(f"{c}*x[{j}]" for j, c in enumerate(a)) + f" <= {10 + i % 7}"
        for i, a in enumerate(A)
    )
    return Rules(f"x: real[{n}]\n" + "\n".join(rows))


# --- the limit is kept, in every phase ------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_finding_terms_ends_in_time(nested: bool) -> None:
    start = time.monotonic()
    with pytest.raises(CompileTimeout) as refusal:
        apart(7).compile(max_terms=100_000, nested=nested, seconds=1)
    assert time.monotonic() - start < PATIENCE
    assert isinstance(refusal.value, TimeoutError)
    assert isinstance(refusal.value, MultiplexError)
    assert refusal.value.seconds == 1
    assert refusal.value.doing in (
        "finding the terms of x[0], x[1], x[2], …",
        "decomposing x[0], x[1], x[2], …",
    )
    for word in (
        "1 s were not enough",
        refusal.value.doing,
        "terms so far",
        "cover=rows",
        "seconds=",
    ):
        assert word in str(refusal.value)


def test_a_single_question_ends_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(
        CompileTimeout, match="over while looking for a contradiction"
    ) as refusal:
        pigeons(12).compile(seconds=1)
    assert time.monotonic() - start < PATIENCE
    assert "drop rules" in str(refusal.value).lower()


def test_a_layer_is_built_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(CompileTimeout):
        Multiplexer(apart(7), max_terms=100_000, seconds=1)
    assert time.monotonic() - start < PATIENCE


def test_the_geometry_of_a_term_ends_in_time() -> None:
    compiled = dense(40, 200).compile(seconds=None)
    (block,) = compiled.blocks
    deadline = Deadline(1e-6)
    for form in ("float32", "bfloat16"):
        with pytest.raises(CompileTimeout):
            parts_of(block.terms[0], block.outputs, form, deadline)


@pytest.mark.parametrize(
    "text",
    [
        "x: real[3]; sum(x) == 1; x[0] >= 0",
        "x: real[2]; u: input[0, 1]; x[0] <= x[1] <= u",
    ],
)
def test_every_kind_of_part_looks_at_the_clock(text: str) -> None:
    (block,) = Rules(text).compile().blocks
    with pytest.raises(CompileTimeout):
        parts_of(block.terms[0], block.outputs, "float32", Deadline(1e-6))


def test_exact_programs_and_lattices_look_at_the_clock() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.integers(-9, 10, (30, 30)).tolist(), [1] * 30
    with pytest.raises(CompileTimeout):
        simplex.maximise([1] * 30, Rows.of(A, b), deadline=Deadline(1e-6))
    with pytest.raises(CompileTimeout):
        solutions(A[:5], [Fraction(n) for n in b[:5]], Deadline(1e-6))


def test_explain_tells_what_it_found_in_time() -> None:
    start = time.monotonic()
    explanation = apart(7).explain(max_terms=100_000, seconds=1)
    assert time.monotonic() - start < PATIENCE
    assert explanation.compiled is None
    assert explanation.problem is not None
    assert "1 s were not enough" in explanation.problem


def test_the_command_line_has_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "apart.rules"
    path.write_text(str(apart(7)))
    result = CliRunner().invoke(
        app, ["explain", str(path), "--seconds", "1", "--max-terms", "100000"]
    )
    assert result.exit_code == 2
    assert "1 s were not enough" in result.stdout


def test_the_default_is_a_minute() -> None:
    """And not for ever: what is asked for without a word ends by itself."""
    import inspect

    for callable_ in (Rules.compile, Rules.explain, Multiplexer.__init__):
        assert inspect.signature(callable_).parameters["seconds"].default == 60


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "5"])
def test_seconds_are_a_positive_number(seconds: object) -> None:
    with pytest.raises(
        ValueError, match="it is a positive number, or None for no limit"
    ):
        Rules("x >= 0").compile(seconds=seconds)  # type: ignore[arg-type]


# --- the limit changes nothing --------------------------------------------------------------------------------------


TEXTS = (
    "x: real[4]\nall(x[i] >= x[j] + 1 or x[j] >= x[i] + 1 for i in range(4) for j in range(i))",
    "p: bool[12]\nsum(p) <= 2",
    "n: int[0, 9]; x: real\nx <= n; x >= 0 or n >= 7",
    "x: real[3]; u: input[0, 1]\nsum(x) <= u; x[0] >= 0 or x[1] >= 2",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_limit_that_is_not_reached_changes_nothing(text: str) -> None:
    def blocks(seconds: float | None) -> object:
        compiled = Rules(text).compile(
            nested=True, max_terms=60, seconds=seconds, progress=lambda *_: None
        )
        return record_of_compiled(compiled)["blocks"]

    assert blocks(600) == blocks(None)


@pytest.mark.parametrize("text", TEXTS)
def test_a_layer_built_in_time_has_the_same_tables(text: str) -> None:
    limited, free = (
        dict(Multiplexer(Rules(text), seconds=s).named_buffers()) for s in (600, None)
    )
    assert limited.keys() == free.keys()
    assert all(torch.equal(limited[name], free[name]) for name in free)


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    for _ in range(5):
        Rules("x != y").compile(seconds=600)
    end = time.monotonic() + PATIENCE
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before


# --- progress -------------------------------------------------------------------------------------------------------


def test_every_phase_is_told() -> None:
    told: list[tuple[str, int]] = []
    Multiplexer(
        Rules("p: bool[12]; u: input[0, 1]; x: real\nsum(p) <= 3; x <= u"),
        max_terms=80,
        progress=lambda *step: told.append(step),
    )
    phases = list(dict.fromkeys(doing for doing, _ in told))
    assert phases == [
        "bringing the rules into normal form",
        "looking for a contradiction",
        "finding the terms of p[0], p[1], p[2], …",
        "decomposing p[0], p[1], p[2], …",
        "finding the terms of x",
        "proving that the terms say what the rules say",
        "looking for inputs without an output",
        "finding room for the terms in float32",
        "filling the tables of the maps",
    ]
    assert max(done for doing, done in told if doing.startswith("decomposing")) > 1


def test_who_is_told_may_stop_it() -> None:
    class Enough(Exception):
        pass

    def stop(doing: str, done: int) -> None:
        if done == 3:
            raise Enough

    with pytest.raises(Enough):
        apart(5).compile(progress=stop)


# --- what is known at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "n: int[0, 100000]",
        "n: int[0, 1000000000000000000000000]",
        "n: int[0, 100000]; n >= 7",
        "n: int[0, 100000]; x: real; x <= n; x >= 0",
        "n: int[0, 100000]; on: bool; implies(on, n >= 50)",
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_too_many_values_are_said_at_once(text: str, nested: bool) -> None:
    start = time.monotonic()
    with pytest.raises(
        TermBudgetExceeded,
        match=r"n can take more than 1000 values, and every value needs a term",
    ):
        Rules(text).compile(max_terms=1000, nested=nested, seconds=None)
    assert time.monotonic() - start < PATIENCE


@pytest.mark.parametrize(
    "rule", ["n <= 5", "n >= 99995", "n == 3 or n == 99999", "2*n == 14"]
)
def test_many_values_of_which_few_are_left(rule: str) -> None:
    (block,) = Rules(f"n: int[0, 100000]; {rule}").compile(max_terms=50).blocks
    code = compile(rule, "rule", "eval")
    values = [n for n in range(100_001) if eval(code, {"n": n})]
    assert [term.fixed[0][1] for term in block.terms] == values


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------


def test_a_question_can_be_interrupted() -> None:
    encoder = Z3Encoder(z3.Context())
    solver = z3.SimpleSolver(ctx=encoder.context)
    solver.add(
        *(encoder.formula(rule.formula) for rule in pigeons(12).specification.rules)
    )
    with Deadline(2) as deadline:
        deadline.begin(TERMS, "p")
        with pytest.raises(
            CompileTimeout,
            match="2 s were not enough: they were over while finding the terms of p",
        ):
            decided(solver, deadline)


def test_an_interrupt_is_none_of_the_answers() -> None:
    """z3 takes the signal and gives the question up; that must not be read as «there is no point»."""
    context = z3.Context()
    solver = z3.SimpleSolver(ctx=context)
    encoder = Z3Encoder(context)
    solver.add(
        *(encoder.formula(rule.formula) for rule in pigeons(12).specification.rules)
    )
    timer = threading.Timer(0.5, context.interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        decided(solver, NEVER)
    timer.join()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
@pytest.mark.parametrize("rules", ["pigeons(12)", "apart(8)"])
def test_an_interrupt_ends_a_compilation(rules: str, tmp_path: Path) -> None:
    program = tmp_path / "interrupted.py"
    program.write_text(
        textwrap.dedent(f"""
            import signal
            import sys
            # what starts in the background ignores interrupts
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from test_time import apart, pigeons
            rules = {rules}
            print("ready", flush=True)
            try:
                rules.compile(max_terms=10**6, seconds=None)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(2)
        try:
            out = _after_interrupts(process)
        finally:
            process.kill()
    assert out == "interrupted\n"


def _after_interrupts(process: subprocess.Popen[str]) -> str:
    """What it says; Python loses an interrupt that comes while a destructor runs, and a person presses again."""
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("it was not interrupted")


@pytest.mark.parametrize(
    "seconds", [float("inf"), 10**400, Fraction(60), np.float32(60)]
)
def test_any_positive_number_of_seconds_is_a_limit_or_none(seconds: Any) -> None:
    assert Rules("x >= 1").compile(seconds=seconds).blocks


@pytest.mark.parametrize("seconds", [0, -1, True, "60"])
def test_other_seconds_are_refused(seconds: Any) -> None:
    with pytest.raises(
        ValueError, match="it is a positive number, or None for no limit"
    ):
        Rules("x >= 1").compile(seconds=seconds)


def test_progress_has_to_be_a_function() -> None:
    progress: Any = 3
    with pytest.raises(
        OptionError, match="progress = 3; it is a function of two arguments"
    ):
        Rules("x >= 1").compile(progress=progress)
