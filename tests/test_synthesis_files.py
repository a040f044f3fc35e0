"""Samples by several hands and into files: always the same rows; and what is begun, stopped and gone on with."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import multiplexnet as mx
from multiplexnet.errors import OptionError, TableError
from multiplexnet.synthesis import training
from multiplexnet.synthesis.columns.others import other_of
from multiplexnet.synthesis.drawing import files, pieces
from multiplexnet.synthesis.drawing.files import SampleProgress
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.together import Processes
from multiplexnet.synthesis.training import Recipe
from multiplexnet.tools.report_commands import app

TINY = (Recipe(Shape(4, 8, 1, 4, 0.1), steps=28, batch=32),)
RULES = "low: int[0, 99]; high: int[0, 99]; kind: {'a', 'b'}; low <= high; implies(kind == 'a', high <= 50)"


def table(rows: int = 300) -> pl.DataFrame:
    random = np.random.default_rng(0)
    low = random.integers(0, 50, rows)
    high = low + random.integers(0, 40, rows)
    return pl.DataFrame(
        {
            "who": [f"c-{k:04}" for k in range(rows)],
            "low": low,
            "high": high,
            "kind": np.where(high <= 50, random.choice(["a", "b"], rows), "b"),
            "price": random.integers(100, 9_900, rows) / 100,
            "said": [
                f"{'x' * int(k)} {j % 97}" for j, k in enumerate(low)
            ],
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def model() -> mx.Synthesizer:
    with pytest.warns(UserWarning, match="column"):
        return mx.Synthesizer(RULES).fit(table(), recipes=TINY)


# --- columns that are not learned ------------------------------------------------------------------------------------


def test_identifiers_are_numbered_anew_or_passed_on(model: mx.Synthesizer) -> None:
    made = model.sample(300, seed=1)
    assert made.columns == ["who", "low", "high", "kind", "price"]
    assert made["who"].to_list() == [f"c-{k + 1:04}" for k in range(300)]
    assert any("'who' has a value of its own" in note for note in model.notes)
    assert any("'said' is left out" in note for note in model.notes)
    given = pl.DataFrame({"who": ["x", "y"], "said": ["hello", None], "low": [3, 40]})
    done = model.sample(given=given)
    assert done["who"].to_list() == ["x", "y"]
    assert done["said"].to_list() == ["hello", None]
    assert done.columns == table().columns


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("row", list(range(7, 47)), "number"),
        ("customer_id", [3 * k % 41 for k in range(40)], "number"),
        ("wage", [3 * k % 41 for k in range(40)], None),
        ("id", [1, 1, *range(38)], None),
        ("mail", [f"{k}@x.org" for k in range(40)], "name"),
    ],
)
def test_what_is_an_identifier(name: str, cells: list[Any], kind: str | None) -> None:
    series = pl.Series(cells)
    found = other_of(name, series, is_number=series.dtype.is_integer())
    assert (None if found is None else found.kind) == kind


# --- known cells ----------------------------------------------------------------------------------------------------


def test_empty_cells_are_filled_in(model: mx.Synthesizer) -> None:
    given = pl.DataFrame(
        {"low": [45, None, 3], "kind": [None, "a", "a"], "high": [None, None, 20]},
        schema={"low": pl.Int64, "kind": pl.String, "high": pl.Int64},
    )
    done = model.sample(given=given, seed=3)
    assert done["low"].to_list()[::2] == [45, 3]
    assert done["kind"].to_list()[1:] == ["a", "a"]
    assert done["high"][2] == 20
    assert mx.check(mx.Rules(RULES), done).all_obey
    assert done["low"].null_count() == 0


def test_what_may_be_missing_is_known_to_be_missing_unless_filled() -> None:
    rules = "a: int[0, 9]?; b: int[0, 9]"
    rows = pl.DataFrame({"a": [1, None, 3, 5] * 30, "b": [1, 0, 3, 5] * 30})
    own = mx.Synthesizer(rules).fit(rows, recipes=TINY)
    given = {"a": [None] * 200, "b": [3] * 200}
    assert own.sample(given=given)["a"].null_count() == 200
    assert own.sample(given=given, fill=True)["a"].null_count() < 200


def test_rows_that_cannot_be_completed_are_named_with_their_rules(
    model: mx.Synthesizer,
) -> None:
    given = {"low": [60 - 20, 3, 45], "high": [20, 10, 60], "kind": ["b", "a", "a"]}
    with pytest.warns(UserWarning, match="left out") as told:
        done = model.sample(given=given)
    text = str(told[0].message)
    assert "row 1 (`low <= high`); row 3 (`implies(kind == 'a', high <= 50)`)" in text
    assert done["low"].to_list() == [3]
    with pytest.raises(TableError, match="no row is left"):
        model.sample(given={"low": [40], "high": [20]})
    with pytest.raises(
        TableError, match=r"column 'kind': 'c' is not among .* 'a', 'b'"
    ):
        model.sample(given={"kind": ["c"]})


# --- several hands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiplexnet.synthesis.drawing.pieces.PIECE", 600)
    monkeypatch.setattr(
        "multiplexnet.synthesis.drawing.pieces.pieces.__defaults__", (600,)
    )


def test_processes_make_the_rows_that_one_makes(
    small_pieces: None, model: mx.Synthesizer
) -> None:
    before = torch.get_num_threads()
    alone = model.sample(5_000, seed=3)
    assert model.sample(5_000, seed=3, jobs=2).equals(alone)
    assert torch.get_num_threads() == before
    with pytest.raises(
        OptionError, match="jobs = 0; it is a number of processes, at least 1"
    ):
        model.sample(5, jobs=0)


def test_processes_complete_the_rows_that_one_completes(
    small_pieces: None, model: mx.Synthesizer
) -> None:
    given = table(1_500).select(pl.col("high").clip(10, 80), "who")
    asked: dict[str, Any] = {"given": given, "where": "price >= 50", "seed": 3}
    assert model.sample(**asked, jobs=2).equals(model.sample(**asked))


def test_a_cluster_makes_the_same_shards_even_if_a_worker_is_killed(
    model: mx.Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("multiplexnet.synthesis.drawing.files.SHARD", 2_000)
    alone = tmp_path / "alone"
    model.sample_to(alone, 30_000, seed=4)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = list(client.run(os.getpid).values())
        killed: list[int] = []

        def kill_one(_: Any) -> None:
            if not killed:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        address = cluster.scheduler_address
        asked: dict[str, Any] = {"dask": address, "progress": kill_one}
        model.sample_to(tmp_path / "many", 30_000, seed=4, **asked)
        assert killed[0] not in client.run(os.getpid).values()
    names = sorted(path.name for path in alone.iterdir())
    assert len(names) > 3
    assert names == sorted(path.name for path in (tmp_path / "many").iterdir())
    for name in names:
        assert (alone / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    rows = pl.concat([pl.read_parquet(p) for p in sorted(alone.glob("*.parquet"))])
    assert rows.equals(model.sample(30_000, seed=4))


def test_a_folder_that_was_begun_is_completed(
    model: mx.Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiplexnet.synthesis.drawing.files.SHARD", 1_000)
    folder = tmp_path / "rows"
    model.sample_to(folder, 5_000)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "part-00001.parquet").unlink()
    kept = (folder / "part-00000.parquet").stat().st_mtime_ns
    done = model.sample_to(folder, 5_000)
    assert done.rows == 5_000
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert (folder / "part-00000.parquet").stat().st_mtime_ns == kept
    with pytest.raises(TableError, match="holds another sample"):
        model.sample_to(folder, 5_000, seed=1)
    with pytest.raises(TableError, match="is not empty"):
        model.sample_to(tmp_path, 5)
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(TableError, match="notes is no folder: name a"):
        model.sample_to(tmp_path / "notes", 5)
    with pytest.raises(TableError, match="into a folder"):
        model.sample_to(tmp_path / "rows.xlsx", 5)


# --- full disks and impatient people ----------------------------------------------------------------------------------

FULL = """
import resource, sys
from multiplexnet.synthesis.synthesizer import Synthesizer
from multiplexnet.synthesis.drawing import files, pieces
pieces.pieces.__defaults__ = (2_000,)
model = Synthesizer.load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
model.sample_to(sys.argv[2], 200_000)
"""


@pytest.mark.parametrize(("name", "size"), [("x.csv", 400_000), ("x.parquet", 1_700_000)])  # fmt: skip
def test_a_full_disk_leaves_whole_rows(
    model: mx.Synthesizer, tmp_path: Path, name: str, size: int
) -> None:
    model.save(tmp_path / "model.mx")
    path = tmp_path / name
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "model.mx"), str(path), str(size)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert said.returncode == 1
    last = said.stderr.strip().splitlines()[-1]
    assert "cannot be written: File too large" in last
    read = pl.read_csv(path) if name.endswith("csv") else pl.read_parquet(path)
    assert f"{read.height:,} of 200,000 rows are there" in last
    assert read.height >= 2_000
    expected = model.sample(read.height)
    assert read["price"].cast(pl.Float64).to_list() == expected["price"].to_list()


def test_interrupting_leaves_whole_row_groups(
    small_pieces: None,
    model: mx.Synthesizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "model.mx"
    model.save(path)
    real = pl.DataFrame.write_csv
    calls: list[int] = []

    def impatient(frame: pl.DataFrame, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(frame, *args, **options)

    monkeypatch.setattr(pl.DataFrame, "write_csv", impatient)
    out = tmp_path / "out.csv"
    command = ["sample", str(path), "-n", "9000", "-o", str(out)]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 130
    rows = pl.read_csv(out).height
    assert rows > 1_000
    assert f"interrupted: {rows:,} of 9,000 rows are in" in answer.output


def test_nothing_is_learned_that_is_too_large_to_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"x": [1, 2, 3] * 30, "y": [2, 3, 4] * 30, "z": [1, 1, 2] * 30}
    recipes = (Recipe(Shape(8, 16, 1, 4, 0.0), steps=9, batch=64), *TINY)
    monkeypatch.setattr("multiplexnet.synthesis.network.MOST_WEIGHTS", 600)
    own = mx.Synthesizer("x: int[0, 9]").fit(rows, recipes=recipes, minutes=0)
    own.save(tmp_path / "model.mx")
    again = mx.Synthesizer.load(tmp_path / "model.mx")
    assert again.sample(20).equals(own.sample(20))
    monkeypatch.setattr("multiplexnet.synthesis.network.MOST_WEIGHTS", 99)
    with pytest.raises(TableError, match="3 columns are too many"):
        mx.Synthesizer("x: int[0, 9]").fit(rows, recipes=recipes)


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_who_writes_the_same_file_does_not_write_into_the_same_draft(
    small_pieces: None, model: mx.Synthesizer, tmp_path: Path, name: str
) -> None:
    out = tmp_path / name

    def another(state: SampleProgress) -> None:
        if state.rows < 5_000:
            model.sample_to(out, 50, seed=2)

    assert model.sample_to(out, 5_000, seed=1, progress=another).rows == 5_000
    read = pl.read_csv(out) if name.endswith("csv") else pl.read_parquet(out)
    assert read.height == 5_000
    assert mx.check(RULES, out).all_obey
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_older_file_stays_until_there_are_rows(
    small_pieces: None,
    model: mx.Synthesizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    out = tmp_path / name
    out.write_text("old")
    seen = []

    def noted(_: Any) -> None:
        seen.append(out.read_text())

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as changed:
        changed.setattr(files, "made_pieces", full)
        with pytest.raises(TableError, match="0 of 900 rows are there"):
            model.sample_to(out, 900)
    assert out.read_text() == "old"
    model.sample_to(out, 900, progress=noted)
    assert set(seen) == {"old"}
    read = pl.read_csv(out) if name.endswith("csv") else pl.read_parquet(out)
    assert read.height == 900
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_is_read_is_not_written(model: mx.Synthesizer, tmp_path: Path) -> None:
    path = str(tmp_path / "model.mx")
    model.save(path)
    given = tmp_path / "given.csv"
    given.write_text("low\n3\n")
    answer = CliRunner().invoke(
        app, ["sample", path, "--given", str(given), "-o", str(given)]
    )
    assert answer.exit_code == 2
    assert "is a table that is read: write to another file" in answer.output
    assert given.read_text() == "low\n3\n"
    answer = CliRunner().invoke(
        app, ["sample", path, "-n", "3", "--fill", "-o", str(given)]
    )
    assert answer.exit_code == 2
    assert "--fill is for the empty cells of --given" in answer.output


PROGRAM = (sys.executable, "-m", "multiplexnet")


def _ignoring_interrupts() -> None:
    """As shells do for what runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def interrupted(
    arguments: list[str],
    folder: Path,
    begun: str,
    sent: signal.Signals = signal.SIGINT,
) -> str:
    """What the program says that Ctrl-C, or another signal, ends as soon as a file of such a name is there."""
    started = subprocess.Popen(
        [*PROGRAM, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_ignoring_interrupts,
    )
    while started.poll() is None and not any(
        p.stat().st_size for p in folder.glob(begun)
    ):
        sleep(0.05)
    said = _after_an_interrupt(started, sent)
    assert started.returncode == 130
    assert "Traceback" not in said
    return said


def _after_an_interrupt(
    started: subprocess.Popen[str], sent: signal.Signals = signal.SIGINT
) -> str:
    """What it says; whoever does not listen is not left running."""
    started.send_signal(sent)
    try:
        return started.communicate(timeout=120)[1]
    finally:
        started.kill()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_the_program_ends_in_order(
    model: mx.Synthesizer, tmp_path: Path, name: str, sent: signal.Signals
) -> None:
    model.save(tmp_path / "model.mx")
    out = tmp_path / name
    out.write_text("what was there before")
    asked = ["sample", str(tmp_path / "model.mx"), "-n", "100000000", "-o", str(out)]
    said = interrupted(asked, tmp_path, f".{name}-*.part", sent)
    if "nothing was written" in said:
        assert out.read_text() == "what was there before"
        return
    read = pl.read_csv(out) if name.endswith("csv") else pl.read_parquet(out)
    assert f"interrupted: {read.height:,} of 100,000,000 rows are in" in said


def test_the_program_keeps_what_it_has_learned(tmp_path: Path) -> None:
    table().write_csv(tmp_path / "data.csv")
    (tmp_path / "my.rules").write_text(RULES.replace("; ", "\n"))
    files = [str(tmp_path / name) for name in ("data.csv", "my.rules", "model.mx")]
    started = subprocess.Popen(
        [*PROGRAM, "fit", files[0], "--rules", files[1], "-o", files[2]],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    while "note: column 'said'" not in started.stderr.readline():
        assert started.poll() is None
    said = _after_an_interrupt(started)
    assert started.returncode == 130
    assert "Traceback" not in said
    assert "interrupted while learning; the same command goes on from there" in said
    assert (tmp_path / ".model.mx.learning").exists()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_memory_that_was_freed_is_given_back() -> None:
    """Small arrays that stay keep large free room between them from going back by itself."""
    arrays = [np.ones(12_000) for _ in range(2_000)]
    kept = arrays[::100]
    del arrays
    before = resident()
    pieces._give_back()
    assert before - resident() > 100 << 20
    assert len(kept) == 20


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- learning that goes on --------------------------------------------------------------------------------------------


def test_learning_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = (*TINY, Recipe(Shape(4, 12, 1, 4, 0.1), steps=28, batch=32))
    rows = table().drop("who", "said")
    whole = mx.Synthesizer(RULES).fit(rows, recipes=recipes, minutes=9)
    file = tmp_path / "learning"
    stops = [5, 17, 31]
    seen: list[int] = []

    def impatient(_: Any) -> None:
        seen.append(1)
        if len(seen) in stops:
            raise KeyboardInterrupt

    for _ in stops:
        with pytest.raises(KeyboardInterrupt):
            mx.Synthesizer(RULES).fit(
                rows, recipes=recipes, progress=impatient, checkpoint=file, minutes=9
            )
        assert file.exists()
    again = mx.Synthesizer(RULES).fit(rows, recipes=recipes, checkpoint=file, minutes=9)
    assert file.exists()
    again.save(tmp_path / "model.mx")
    assert not file.exists()
    assert again.log_likelihood == whole.log_likelihood
    assert again.sample(50).equals(whole.sample(50))
    file.write_bytes(b"something else")
    with pytest.warns(UserWarning, match="belongs to another fit, or is damaged"):
        mx.Synthesizer(RULES).fit(rows, recipes=TINY, checkpoint=file)


def test_minutes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.05
        return clock[0]

    monkeypatch.setattr(training, "monotonic", tick)
    long = (Recipe(Shape(4, 8, 1, 4, 0.1), steps=28, batch=32),) * 50
    told: list[training.Progress] = []
    rows = table().drop("who", "said")
    mx.Synthesizer(RULES).fit(rows, recipes=long, minutes=0.5, progress=told.append)
    assert clock[0] < 33
    tried = [state.recipe for state in told if state.recipe < state.recipes]
    assert 1 < tried[-1] + 1 < 50
    assert told[-1].recipe == 50  # there is still time for all rows
    assert all(state.seconds_left <= 30 for state in told)
    assert told[-1].rows_per_second > 0


def test_rows_that_were_learned_have_a_likelihood_though_they_were_rounded(
    tmp_path: Path,
) -> None:
    """Cells with more decimal places than are learned are rounded wherever they are read."""
    rows = pl.DataFrame({"share": [k / 3 for k in range(60)], "kind": ["a", "b"] * 30})
    with pytest.warns(UserWarning, match="'share' is rounded to 8 decimal places"):
        fitted = mx.Synthesizer("share >= 0").fit(rows, recipes=TINY)
    fitted.save(tmp_path / "model.mx")
    for model in (fitted, mx.Synthesizer.load(tmp_path / "model.mx")):
        assert np.isfinite(model.log_prob(rows)).all()
        back = model.encoder.decode(model.encoder.encode(rows))
        assert np.abs(back["share"].cast(float) - rows["share"]).max() < 1e-8


def test_a_recipe_ends_where_rows_kept_apart_become_less_likely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter(range(100, 0, -1))
    monkeypatch.setattr(
        training.RowModel, "mean_log_prob", lambda *_: float(next(scores))
    )
    long = (Recipe(Shape(4, 8, 1, 4, 0.1), steps=900, batch=32, leaf=0),)
    told: list[training.Progress] = []
    rows = table().drop("who", "said")
    model = mx.Synthesizer(RULES).fit(rows, recipes=long, progress=told.append)
    tried = [state for state in told if state.recipe < state.recipes]
    times = 60 * tried[-1].step / tried[0].steps
    assert times == 1 + training.PATIENCE
    assert model.log_likelihood == 100


def test_the_best_recipe_learns_once_more_from_all_rows() -> None:
    """As often as it was best with fewer, from tokens that rows kept apart have as well."""
    rows = table().drop("who", "said")
    told: list[training.Progress] = []
    model = mx.Synthesizer(RULES).fit(rows, recipes=TINY, progress=told.append)
    last = [state for state in told if state.recipe == state.recipes]
    assert last[-1].step == last[-1].steps
    assert last[-1].log_likelihood is None  # nothing is kept apart
    assert {int(own.counts.sum()) for own in model._known().model.tokens} == {300}


def test_without_time_for_all_rows_the_best_model_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Learning from all rows is not begun, or is left alone, if it would end too late."""
    rows = table().drop("who", "said")
    monkeypatch.setattr(training._Fit, "_is_worth_all_rows", lambda _: False)
    before = mx.Synthesizer(RULES).fit(rows, recipes=TINY, seed=3)
    monkeypatch.undo()
    step = training._Run._step

    def late(run: Any, *args: Any) -> None:
        if not len(run.held) and run.done == run.per_epoch - 1:
            run.end = -1.0
        step(run, *args)

    monkeypatch.setattr(training._Run, "_step", late)
    after = mx.Synthesizer(RULES).fit(rows, recipes=TINY, seed=3)
    assert (after.log_prob(rows) == before.log_prob(rows)).all()
    monkeypatch.undo()
    again = mx.Synthesizer(RULES).fit(rows, recipes=TINY, seed=3)
    assert (again.log_prob(rows) != before.log_prob(rows)).any()


def test_learning_from_all_rows_goes_on_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table().drop("who", "said")
    whole = mx.Synthesizer(RULES).fit(rows, recipes=TINY, seed=3)
    file = tmp_path / "learning"

    def interrupt(state: training.Progress) -> None:
        if state.recipe == state.recipes and state.step == state.steps - 1:
            raise KeyboardInterrupt

    halves = mx.Synthesizer(RULES)
    with pytest.raises(KeyboardInterrupt):
        halves.fit(rows, recipes=TINY, seed=3, checkpoint=file, progress=interrupt)
    told: list[training.Progress] = []
    halves.fit(rows, recipes=TINY, seed=3, checkpoint=file, progress=told.append)
    assert [state.recipe for state in told] == [len(TINY)]
    assert (halves.log_prob(rows) == whole.log_prob(rows)).all()
    assert halves.log_likelihood == whole.log_likelihood


def test_one_time_through_the_table_is_the_same_after_an_interrupt(
    tmp_path: Path,
) -> None:
    """Minutes that end learning make it depend on the clock; with 0 of them it does not."""
    rows = table().drop("who", "said")
    long = (Recipe(Shape(4, 8, 1, 4, 0.1), steps=900, batch=32),)
    file = tmp_path / "learning"

    def interrupt(state: training.Progress) -> None:
        if state.step == 2:
            raise KeyboardInterrupt

    halves = mx.Synthesizer(RULES)
    with pytest.raises(KeyboardInterrupt):
        halves.fit(rows, recipes=long, minutes=0, checkpoint=file, progress=interrupt)
    assert halves.checkpoint == file
    halves.fit(rows, recipes=long, minutes=0, checkpoint=file)
    halves.save(tmp_path / "halves.mx")
    for name in ("one.mx", "other.mx"):
        mx.Synthesizer(RULES).fit(rows, recipes=long, minutes=0).save(tmp_path / name)
        assert (tmp_path / name).read_bytes() == (tmp_path / "halves.mx").read_bytes()


def test_help_says_when_a_fit_is_reproducible() -> None:
    said = " ".join(re.findall(r"[\w-]+", CliRunner().invoke(app, ["fit", "--help"]).output))  # fmt: skip
    assert "The same seed gives the same model if learning ends before" in said
    assert "gives the same rows" not in said


def test_an_interrupt_before_anything_is_kept_does_not_promise_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training._Fit, "_try", interrupt)
    table().write_csv(tmp_path / "t.csv")
    (tmp_path / "t.rules").write_text(RULES)
    command = ["fit", "t.csv", "--rules", "t.rules", "-o", "m.mx"]
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 130
    assert "interrupted while learning" in answer.output
    assert "goes on" not in answer.output


def test_other_rules_do_not_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    """A score under other rules is another score."""
    rows = pl.DataFrame({"a": list(range(80)), "b": [k % 7 for k in range(80)]})
    file = tmp_path / "learning"

    def interrupt(_: training.Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mx.Synthesizer("a: int[0, 99]; b: int[0, 9]; a + b <= 83").fit(
            rows, recipes=TINY, checkpoint=file, progress=interrupt
        )
    other = mx.Synthesizer("a: int[0, 99]; b: int[0, 9]; a + b <= 82")
    with pytest.warns(UserWarning, match="belongs to another fit"):
        other.fit(rows, recipes=TINY, checkpoint=file)


def test_a_checkpoint_that_cannot_be_written_does_not_end_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table().drop("who", "said")
    file = tmp_path / "nowhere" / "learning"
    monkeypatch.setattr(training, "SAVED", 0.0)
    with pytest.warns(UserWarning, match="learning cannot be written"):
        mx.Synthesizer(RULES).fit(rows, recipes=TINY, checkpoint=file)


def test_a_model_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table().drop("who", "said")
    model = mx.Synthesizer(RULES).fit(rows, recipes=TINY)
    file = tmp_path / "model.mx"
    model.save(file)
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("multiplexnet.synthesis.storage._add", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.mx"]


def test_a_model_is_written_through_links_and_into_what_is_no_file(
    tmp_path: Path,
) -> None:
    rows = table().drop("who", "said")
    model = mx.Synthesizer(RULES).fit(rows, recipes=TINY)
    link = tmp_path / "link.mx"
    link.symlink_to(tmp_path / "model.mx")
    model.save(link)
    assert link.is_symlink()
    assert mx.Synthesizer.load(tmp_path / "model.mx").log_likelihood is not None
    model.save("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_recipes_are_those_of_the_library() -> None:
    wrong: list[Any] = [(), ("long",)]
    for recipes in wrong:
        with pytest.raises(TableError, match=r"recipes = .*: give at least one"):
            mx.Synthesizer(RULES).fit(table(), recipes=recipes)


def test_with_nothing_kept_apart_one_recipe_is_tried() -> None:
    told: list[training.Progress] = []
    rows = table().drop("who", "said").head(9)
    mx.Synthesizer(RULES).fit(rows, recipes=TINY * 3, progress=told.append)
    assert {state.recipe for state in told} == {0}


def test_what_the_first_process_decides_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clocks of several machines differ, so that verdicts are told and not times."""
    monkeypatch.setattr(Processes, "of_first", lambda *_: 1.0)
    assert Processes(1, 2).as_first(False) is True
    monkeypatch.setattr(Processes, "of_first", lambda *_: 0.0)
    assert Processes(1, 2).as_first(True) is False


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("multiplexnet.synthesis.synthesizer.RECIPES", TINY)
    rows = table().with_columns(
        pl.when(pl.int_range(pl.len()) == 6).then(99).otherwise("low").alias("low")
    )
    rows.write_csv(tmp_path / "data.csv")
    (tmp_path / "my.rules").write_text(RULES.replace("; ", "\n"))
    return [
        *("fit", str(tmp_path / "data.csv"), "--rules", str(tmp_path / "my.rules")),
        *("-o", str(tmp_path / "model.mx"), "--minutes", "0.2"),
    ]


def test_fit_says_what_breaks_rules_and_what_is_not_learned(asked: list[str]) -> None:
    answer = CliRunner().invoke(app, asked)
    assert answer.exit_code == 0, answer.output
    assert "warning: 1 of 300 rows break rules (`low <= high` by 1, first in row 7)" in answer.output  # fmt: skip
    assert "note: column 'who' has a value of its own in every row" in answer.output
    assert "1 does not obey the rules" in answer.output
    assert "ignored" not in answer.output  # `price` is in no rule, and learned
    answer = CliRunner().invoke(app, [*asked, "--violations", "error"])
    assert answer.exit_code == 2
    assert "mend them, or fit with violations='drop' or 'repair'" in answer.output


def test_advice_names_no_option_that_there_is_not(asked: list[str], tmp_path: Path) -> None:  # fmt: skip
    rules = tmp_path / "other.rules"
    rules.write_text("p >= q")
    data = str(tmp_path / "data.csv")
    asked[asked.index("--rules") + 1] = str(rules)
    report = ["report", data, data, "--rules", str(rules), "-o", str(tmp_path / "x.html")]  # fmt: skip
    for command in (asked, report):
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 2
        said = " ".join(answer.output.split())
        assert "has no columns 'p', 'q'" in said
        assert "Rename them, in the table or in the rules." in said
        assert "--by-position" not in said
    asked[1] = str(tmp_path / "lines.csv")
    Path(asked[1]).write_text("p|q\n1|2\n")
    said = " ".join(CliRunner().invoke(app, asked).output.split())
    assert "--delimiter" not in said


def test_a_fit_that_was_interrupted_goes_on(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = training._Run._step

    def impatient(run: Any, *args: Any) -> None:
        if run.done == 4:
            os.kill(os.getpid(), signal.SIGINT)
        step(run, *args)

    monkeypatch.setattr(training._Run, "_step", impatient)
    answer = CliRunner().invoke(app, asked)
    assert answer.exit_code == 130
    assert "the same command goes on from there" in answer.output
    assert not (tmp_path / "model.mx").exists()
    monkeypatch.setattr(training._Run, "_step", step)
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data.csv",
        "model.mx",
        "my.rules",
    ]


def test_sample_says_which_rows_are_near_the_condition_only(
    model: mx.Synthesizer, tmp_path: Path
) -> None:
    model.save(tmp_path / "model.mx")
    out = tmp_path / "out.parquet"
    command = ["sample", str(tmp_path / "model.mx"), "-n", "40", "-o", str(out)]
    answer = CliRunner().invoke(app, [*command, "--where", "price == 50.01"])
    assert answer.exit_code == 0, answer.output
    assert "all rows meet the condition" in answer.output
    assert pl.read_parquet(out)["price"].to_list() == [50.01] * 40
    answer = CliRunner().invoke(app, [*command, "--where", "price == 5000"])
    assert answer.exit_code == 2
    assert "no row within the ranges of the table can meet it" in answer.output


# --- several processes ------------------------------------------------------------------------------------------------


def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    """Gradients are added up over the halves of each batch; nothing is left to chance but the order of a sum."""
    rules = tmp_path / "my.rules"
    rules.write_text(RULES)
    table(900).drop("who", "said").write_csv(tmp_path / "rows.csv")
    command = ["-c", LEARN, "fit", "rows.csv", "--rules", "my.rules", "--json"]
    several = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--no-python"]
    for launch, name in (([], "one.mx"), ([*several, sys.executable], "two.mx")):
        subprocess.run(
            [sys.executable, *launch, *command, "-o", name],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=900,
        )
    one, two = (mx.Synthesizer.load(tmp_path / name) for name in ("one.mx", "two.mx"))
    assert two.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-4)
    known = table(200)
    assert two.log_prob(known) == pytest.approx(one.log_prob(known), rel=1e-2)
    assert (two.log_prob(known) != one.log_prob(known)).any()  # another order of sums
    assert not list(tmp_path.glob(".*.learning"))


LEARN = """
from multiplexnet.synthesis import synthesizer
from multiplexnet.synthesis.network import Shape
from multiplexnet.synthesis.training import Recipe
synthesizer.RECIPES = (Recipe(Shape(4, 8, 1, 4, 0.0), steps=42, batch=64),)
from multiplexnet.__main__ import main
main()
"""


def test_another_seed_leaves_a_checkpoint_alone(tmp_path: Path) -> None:
    """It learns beside it, and both go on where they were."""
    rows = table().drop("who", "said")
    file = tmp_path / "learning"

    def interrupt(state: training.Progress) -> None:
        if state.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mx.Synthesizer(RULES).fit(
            rows, recipes=TINY, checkpoint=file, progress=interrupt
        )
    begun = file.read_bytes()
    other = mx.Synthesizer(RULES)
    with (
        pytest.warns(UserWarning, match="it stays, and this fit is kept in"),
        pytest.raises(KeyboardInterrupt),
    ):
        other.fit(rows, recipes=TINY, seed=1, checkpoint=file, progress=interrupt)
    assert other.checkpoint is not None
    assert other.checkpoint != file
    told: list[training.Progress] = []
    with pytest.warns(UserWarning, match="it stays"):
        other.fit(rows, recipes=TINY, seed=1, checkpoint=file, progress=told.append)
    assert told[0].step == 4
    other.save(tmp_path / "model.mx")
    assert other.checkpoint is None
    assert file.read_bytes() == begun
    first = mx.Synthesizer(RULES).fit(
        rows, recipes=TINY, checkpoint=file, progress=told.append
    )
    first.save(tmp_path / "model.mx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.mx"]


def test_interrupting_a_folder_keeps_the_rows_that_were_made(
    model: mx.Synthesizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.mx"
    model.save(path)
    real = pieces._of_block
    calls: list[int] = []

    def impatient(*asked: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*asked)

    folder = tmp_path / "out"
    command = ["sample", str(path), "-n", "20000", "-o", str(folder)]
    with monkeypatch.context() as changed:
        changed.setattr(pieces, "_of_block", impatient)
        answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 130
    kept = pl.read_parquet(folder / "begun-00000.parquet")
    assert kept.height > 1_000
    assert f"interrupted: {kept.height:,} of 20,000 rows are in" in answer.output
    expected = model.sample(20_000)
    assert kept.equals(expected[: kept.height])
    assert CliRunner().invoke(app, command).exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "part-00000.parquet",
        "sample.json",
    ]
    assert pl.read_parquet(folder / "part-00000.parquet").equals(expected)


@pytest.mark.parametrize("what", ["model.mx", "given.csv"])
def test_rows_are_not_written_over_what_they_are_made_from(
    model: mx.Synthesizer, tmp_path: Path, what: str
) -> None:
    """Not under another name either."""
    path = tmp_path / "model.mx"
    model.save(path)
    given = tmp_path / "given.csv"
    given.write_text("low\n3\n")
    before = (tmp_path / what).read_bytes()
    other = tmp_path / "other.csv"
    other.symlink_to(tmp_path / what)
    known = mx.Synthesizer.load(path)
    with pytest.raises(TableError, match="is what rows are made from: write them to"):
        known.sample_to(other, given=given)
    for asked in (["-n", "3"], ["--given", str(given)]):
        command = ["sample", str(path), *asked, "-o", str(other)]
        if what == "model.mx" or "--given" in asked:
            answer = CliRunner().invoke(app, command)
            assert answer.exit_code == 2
            assert "write" in answer.output
    assert (tmp_path / what).read_bytes() == before
