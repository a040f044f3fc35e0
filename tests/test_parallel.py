"""Reports add up, so pieces of a table can be checked anywhere: in processes, and on a real Dask cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

import multiplexnet as mx
from multiplexnet.errors import OptionError, TableError
from multiplexnet.tables import parallel
from multiplexnet.tables.check import CheckOptions, check_table
from multiplexnet.tables.parallel import spread
from multiplexnet.tables.report import TableReport
from multiplexnet.tables.work import empty_report

RULES = mx.Rules(
    """
    x: real; y: real?; n: int[0, 5]; low: input; high: input
    assume low <= high
    low <= x <= high
    implies(n >= 3, x + 0.1*y <= 1)
    x < 2
    """
)
ROWS = 5000


def frame(rows: int = ROWS) -> pl.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=rows).round(2)
    texts = [None if k % 37 == 0 else f"{v}" for k, v in enumerate(x.tolist())]
    texts[11] = "much"
    return pl.DataFrame(
        {
            "x": texts,
            "y": pl.Series(random.normal(size=rows)).set(
                pl.Series(random.random(rows) < 0.1), None
            ),
            "n": random.integers(-1, 7, rows),
            "low": random.normal(size=rows) - 1,
            "high": random.normal(size=rows) + 1,
            "other": random.random(rows),
        }
    )


def same(one: TableReport, two: TableReport) -> bool:
    arrays = [(one.obeys, two.obeys), (one.breaks, two.breaks)]
    return one == two and all(
        (a is None and b is None) or np.array_equal(a, b)  # type: ignore[arg-type]
        for a, b in arrays
    )


# --- laws -----------------------------------------------------------------------------------------------------------


def test_reports_of_parts_add_up_to_the_report_of_the_whole() -> None:
    whole = frame(300)
    chance = Random(0)
    for _ in range(5):
        cuts = [0, *sorted(chance.sample(range(301), 3)), 300]
        parts = [mx.check(RULES, whole[a:b], limit=7) for a, b in pairwise(cuts)]
        a, b, c, d = parts
        expected = mx.check(RULES, whole, limit=7)
        assert same(a + b + c + d, expected)
        assert same((a + b) + (c + d), expected)
        assert same(a + ((b + c) + d), expected)
    nothing = empty_report(RULES.specification)
    assert same(nothing + expected, expected)
    assert same(expected + nothing, expected)


def test_strips_of_parts_add_up() -> None:
    whole = frame(3000)
    expected = check_table(
        RULES.specification, _file(whole), CheckOptions(strips=True)
    ).strips
    assert expected is not None
    files = [_file(whole[a:b]) for a, b in ((0, 1000), (1000, 1777), (1777, 3000))]
    found = check_table(RULES.specification, files, CheckOptions(strips=True)).strips
    assert found is not None
    assert found.width == expected.width
    assert {k: v.tolist() for k, v in found.counts.items()} == {
        k: v.tolist() for k, v in expected.counts.items()
    }


def _file(rows: pl.DataFrame) -> Any:
    from multiplexnet.tables.sources.objects import tables_of

    return tables_of(rows, ())[0]


def test_reports_of_different_rules_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="different rules"):
        mx.check(mx.Rules("x <= 1"), {"x": [1]}) + mx.check(
            mx.Rules("x <= 2"), {"x": [1]}
        )


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiplexnet.tables.parallel.PIECE", 700)


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    frame().write_parquet(path, row_group_size=500)
    return path


def test_two_processes_report_what_one_does(small_pieces: None, parquet: Path) -> None:
    text = parquet.with_suffix(".csv")
    frame().write_csv(text)
    bad = [parquet.with_name(f"bad{k}.csv") for k in range(2)]
    alone = mx.check(RULES, [parquet, text], output=bad[0])
    together = mx.check(RULES, [parquet, text], output=bad[1], jobs=2)
    assert same(alone, together)
    assert bad[0].read_text() == bad[1].read_text()
    with pytest.raises(TableError, match="row 1, column 'x': the cell is empty"):
        mx.check(RULES, text, missing="error", jobs=2)


def worked_on(task: tuple[int, str]) -> tuple[int, int]:
    """The number of a piece, and the process that did it; the first process that is not asked to report here dies."""
    number, mark = task
    time.sleep(0.25)
    home, _, folder = mark.partition(" ")
    if folder and os.getpid() != int(home):
        with suppress(FileExistsError):
            (Path(folder) / "dead").mkdir()
            os._exit(1)
    return number, os.getpid()


def test_this_process_begins_while_the_others_start() -> None:
    done = list(spread(worked_on, ((k, "") for k in range(40)), 2, None))
    assert [number for number, _ in done] == list(range(40))
    assert done[0][1] == os.getpid()
    assert len({process for _, process in done}) == 2


def test_what_a_lost_process_was_doing_is_done_again(tmp_path: Path) -> None:
    mark = f"{os.getpid()} {tmp_path}"
    done = list(spread(worked_on, ((k, mark) for k in range(40)), 2, None))
    assert [number for number, _ in done] == list(range(40))
    assert (tmp_path / "dead").exists()


def test_jobs_that_cannot_be() -> None:
    with pytest.raises(
        OptionError, match="jobs = 0; it is a number of processes, at least 1"
    ):
        mx.check(RULES, frame(20), jobs=0)
    with pytest.raises(
        TableError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"
    ):
        mx.check(RULES, frame(20), dask="tcp://127.0.0.1:9")


# --- Dask -----------------------------------------------------------------------------------------------------------


def test_a_cluster_reports_what_one_process_does_even_if_a_worker_is_killed(
    small_pieces: None, parquet: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    alone = mx.check(RULES, parquet)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = list(client.run(os.getpid).values())
        assert len(set(workers)) == 2
        killed: list[int] = []

        def kill_one(_: int) -> None:
            if not killed:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        together = mx.check(
            RULES, parquet, dask=cluster.scheduler_address, progress=kill_one
        )
        assert killed
        assert killed[0] not in client.run(os.getpid).values()
    assert same(alone, together)


def test_workers_of_a_local_cluster_keep_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dask has them give it back at once, and each array is new memory then: a check took twice as long."""
    pytest.importorskip("distributed")
    monkeypatch.delenv(parallel.TRIM, raising=False)  # other clusters of this process
    with parallel._client("local", 1) as client:
        found = client.run(os.environ.get, parallel.TRIM)
        assert list(found.values()) == [None]
        threads = client.run(os.environ.get, "OMP_NUM_THREADS")
        assert list(threads.values()) == ["1"]


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from multiplexnet.rules import Rules\nfrom multiplexnet.tables.check import check\n"
        "check(Rules('x <= y'), {'x': [1], 'y': [2]}, jobs=2)\n"
    )
    said = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert said.returncode == 1
    last = said.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "multiplexnet.errors.TableError: processes of jobs=2 end as they start."
    )
    assert 'under `if __name__ == "__main__":`' in last
