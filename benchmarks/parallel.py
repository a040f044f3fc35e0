"""`multiplexnet check` on a long Parquet file: in one process, in two, and on a Dask cluster of two workers.

    python benchmarks/parallel.py [--rows 10000000]

Twenty rules over ten columns, those of benchmarks/check.py. Reports have to be the same. Seconds are those of a wall
clock, with what it takes to start processes, and of the processor, those of processes that have ended included. The
latter say how much work comes on top (processes that start, a cluster's messages). The former say how much sooner it is
done, where each process has a processor of its own; so the summary tells how busy the machine was. Some 800 MB are
written to a temporary folder for 10⁷ rows. The summary goes to ``benchmarks/results/parallel.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from check import COLUMNS, NAMES, rules

import multiplexnet
from multiplexnet.tables.check import CheckOptions, check_table

RESULTS = Path(__file__).parent / "results" / "parallel.json"
GROUP = 1 << 16  # rows of a row group
FILE = 1 << 20  # rows of a file


def write(folder: Path, rows: int) -> list[Path]:
    """Files of prices, half of them ties."""
    random = np.random.default_rng(0)
    paths: list[Path] = []
    for start in range(0, rows, FILE):
        count = min(FILE, rows - start)
        free = random.normal(size=(count, COLUMNS)) * 10
        equal = np.where(random.random((count, COLUMNS)) < 0.5, free[:, :1], free)
        paths.append(folder / f"part{len(paths):03}.parquet")
        frame = pl.DataFrame(np.round(equal, 2), schema=NAMES)
        frame.write_parquet(paths[-1], row_group_size=GROUP)
    return paths


def processor_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def main(rows: int, output: Path) -> None:
    specification = rules()
    ways: dict[str, dict[str, Any]] = {
        "one process": {},
        "--jobs 2": {"jobs": 2},
        "--dask local, two workers": {"dask": "local", "jobs": 2},
    }
    print(
        f"{rows:,} rows, {COLUMNS} columns, {len(specification.rules)} rules, {os.cpu_count()} processors"
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), rows)
        reports = []
        measured = {}
        for name, options in ways.items():
            start = perf_counter()
            processor = processor_seconds()
            files = Path(folder) / "*.parquet"
            asked = CheckOptions(**options)
            reports.append(check_table(specification, files, asked))
            measured[name] = {
                "seconds": round(perf_counter() - start, 1),
                "processor_seconds": round(processor_seconds() - processor, 1),
                "load": round(os.getloadavg()[0], 1),
            }
            print(f"{name:26} {measured[name]}, {len(paths)} files", flush=True)
        assert all(report == reports[0] for report in reports), "the reports differ"
        print(f"the same report: {reports[0].obeying:,} rows obey")
    summary = {
        "command": f"python benchmarks/parallel.py --rows {rows}",
        "multiplexnet": multiplexnet.__version__,
        "rows": rows,
        "processors": os.cpu_count(),
        "obeying": reports[0].obeying,
        "ways": measured,
    }
    output.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    main(chosen.rows, chosen.output)
