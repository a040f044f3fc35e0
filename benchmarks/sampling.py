"""How fast a model of tables makes rows, and in how much memory: ``python benchmarks/sampling.py MODEL 100000 …``.

Each number of rows is made in a process of its own, in one thread, and written as Parquet; one line of JSON each.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from multiplexnet.synthesis.synthesizer import Synthesizer


def main(model: str, counts: list[int]) -> None:
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    for count in counts:
        command = [sys.executable, __file__, model, str(count), "--here"]
        subprocess.run(command, env=alone, check=True)


def measured(model: str, count: int) -> dict[str, float]:
    known = Synthesizer.load(model)
    with TemporaryDirectory() as folder:
        known.sample(1)
        used = process_time()
        passed = perf_counter()
        known.sample_to(Path(folder) / "made.parquet", count)
        used = process_time() - used
        passed = perf_counter() - passed
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "rows": count,
        "rows per processor second": round(count / used),
        "rows per second": round(count / passed),
        "largest memory, MB": round(most),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    if sys.argv[-1] == "--here":
        print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
    else:
        main(sys.argv[1], [int(word) for word in sys.argv[2:]])
