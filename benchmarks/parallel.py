"""`multiplexnet check` on a long Parquet file: in one process, in two, and on a Dask cluster of two workers.

    python benchmarks/parallel.py [--rows 10000000]

Twenty rules over ten columns, those of benchmarks/check.py. Reports have to be the same. Seconds are those of a wall
clock, with what it takes to start processes; some 800 MB are written to a temporary folder for 10⁷ rows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from check import COLUMNS, NAMES, rules

from multiplexnet.tables.check import check_table

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


def main(rows: int) -> None:
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
        for name, options in ways.items():
            start = perf_counter()
            reports.append(check_table(specification, Path(folder) / "*.parquet", **options))
            print(f"{name:26} {perf_counter() - start:7.1f} s, {len(paths)} files")
        assert all(report == reports[0] for report in reports), "the reports differ"
        print(f"the same report: {reports[0].obeying:,} rows obey")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    main(parser.parse_args().rows)
