"""Time of `multiplexnet check`: one million rows, ten columns, twenty rules, in one process.

    python benchmarks/check.py [rows]

Three tables: numbers of 17 digits without ties, prices where half of the comparisons are ties, and 17 digits where they
are. Reading means the file into columns of strings; checking means all the rest.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import polars as pl

from multiplexnet.language.formula import Specification
from multiplexnet.language.parser.parse import parse
from multiplexnet.tables.check import check_table

COLUMNS = 10
NAMES = [f"x{i}" for i in range(COLUMNS)]


def rules() -> Specification:
    """Twenty rules of several kinds over ten columns."""
    lines = [f"{a}: real" for a in NAMES]
    for i, a in enumerate(NAMES):
        b, c, d = (NAMES[(i + k) % COLUMNS] for k in (1, 3, 4))
        lines.append(f"{a} <= {b} or {a} + 2*{c} >= 0.1")
        lines.append(
            f"implies({a} > 0, {b} >= {a} / 3 - 5)"
            if i % 2
            else f"abs({a} - {d}) <= 1000"
        )
    return parse("\n".join(lines))


def tables(rows: int) -> dict[str, pl.DataFrame]:
    random = np.random.default_rng(0)
    free = random.normal(size=(rows, COLUMNS)) * 10
    equal = np.where(random.random((rows, COLUMNS)) < 0.5, free[:, :1], free)
    return {
        "17 digits, no ties": pl.DataFrame(free, schema=NAMES),
        "prices, half are ties": pl.DataFrame(np.round(equal, 2), schema=NAMES),
        "17 digits, half are ties": pl.DataFrame(equal, schema=NAMES),
    }


def reading(path: Path) -> float:
    start = perf_counter()
    for _ in pl.scan_csv(path, infer_schema=False).collect_batches():
        pass
    return perf_counter() - start


def main(rows: int) -> None:
    specification = rules()
    print(f"{rows:,} rows, {COLUMNS} columns, {len(specification.rules)} rules")
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in tables(rows).items():
            path = Path(folder) / "table.csv"
            frame.write_csv(path)
            read = reading(path)
            processor = process_time()
            report = check_table(specification, path)
            print(
                f"{name:26} read {read:5.2f} s, check {report.seconds - read:5.2f} s, together {report.seconds:5.2f} s "
                f"(processor time {process_time() - processor:5.2f} s); {report.obeying:,} rows obey"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
