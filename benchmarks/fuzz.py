"""Mutation fuzzing of everything that reads what a stranger wrote: no crash, and no exception but our own.

    python benchmarks/fuzz.py --minutes 60 --seed 0

Seeds are what can be read: the rules of the corpus in the three languages, sentences with every later word, JSON
schemas, arrays, tables in all formats, databases, certificates, saved layers and models of tables. Each is changed at
random (characters, words and lines dropped, doubled, swapped, replaced by what has hurt parsers before; in JSON also
single leaves and whole branches, in binary files bits and bytes) and given to its reader. Whatever comes out but a
result or a ``MultiplexError`` is a finding, and so is an input that takes longer than ``--slow`` seconds of processor
time; one that takes four times as long, or all of 16 GB of memory, is given up. The summary goes to
``benchmarks/results/fuzz.json``, as it grows. Minutes are minutes of processor time: on a busy machine an hour takes
longer.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz_readers import Target, targets

import multiplexnet
from multiplexnet.errors import MultiplexError

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "fuzz.json"
WRITTEN_EVERY = 2000
"""Runs, after which the summary is written."""
PATIENCE = 4.0
"""How many times as long as what counts as slow an input may take before it is given up."""
MOST_MEMORY = 16 << 30
"""Bytes of address space: whoever asks for more gets a ``MemoryError``, which is a finding."""


class GivenUp(BaseException):
    """An input that takes far too long."""


# --- running --------------------------------------------------------------------------------------------------------


def tried(target: Target, dice: random.Random, slow: float) -> dict[str, Any] | None:
    """One mutation; what is wrong with the reader, if something is."""
    given = target.change(dice.choice(target.seeds), dice)
    start = time.process_time()
    finding = None
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE * slow)
    try:
        target.read(given)
        target.read_well += 1
    except MultiplexError as error:
        target.refused[type(error).__name__] += 1
        str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what extensions raise in a panic is no Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        finding = {
            "error": f"{type(error).__name__}: {str(error)[:200]}",
            "where": f"{Path(where.filename).name}:{where.lineno}",
        }
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - start
    target.runs += 1
    target.slowest = max(target.slowest, seconds)
    if finding is None and seconds > slow:
        finding = {"error": f"{seconds:.1f} s", "where": "slow"}
    shown = given if isinstance(given, str) else bytes(given).decode(errors="replace")
    return (
        None
        if finding is None
        else {"reader": target.name, **finding, "input": shown[:2000]}
    )


def fuzzed(
    seconds: float,
    seed: int,
    slow: float,
    *,
    most: int | None = None,
    every: int = 4,
    write: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Fuzz for some seconds of processor time (or ``most`` runs) and give the summary, which is written as it grows."""
    signal.signal(signal.SIGVTALRM, _give_up)
    dice = random.Random(seed)
    start = time.perf_counter()
    processor = time.process_time()
    findings: dict[str, dict[str, Any]] = {}

    def summary() -> dict[str, Any]:
        return {
            "command": f"python benchmarks/fuzz.py --minutes {seconds / 60:g} --seed {seed}",
            "multiplexnet": multiplexnet.__version__,
            "python": sys.version.split()[0],
            "seconds": round(time.perf_counter() - start),
            "processor_seconds": round(time.process_time() - processor),
            "runs": sum(target.runs for target in all_targets),
            "findings": list(findings.values()),
            "largest_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            // 1024,
            "readers": {target.name: _counts(target) for target in all_targets},
        }

    with tempfile.TemporaryDirectory() as folder:
        all_targets = targets(Path(folder), every)
        weights = [target.share for target in all_targets]
        runs = 0
        enough = seconds + processor
        while time.process_time() < enough and (most is None or runs < most):
            (target,) = dice.choices(all_targets, weights)
            found = tried(target, dice, slow)
            runs += 1
            if found is not None:
                place = f"{found['reader']} {found['where']}"
                if place not in findings:
                    findings[place] = found
                    print(f"{place}: {found['error']}", file=sys.stderr, flush=True)
            if write is not None and runs % WRITTEN_EVERY == 0:
                write(summary())
    return summary()


def _give_up(signum: int, frame: object) -> None:
    raise GivenUp("far too slow")


def _counts(target: Target) -> dict[str, Any]:
    return {
        "seeds": len(target.seeds),
        "runs": target.runs,
        "read": target.read_well,
        "refused": dict(sorted(target.refused.items())),
        "slowest_seconds": round(target.slowest, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="of processor time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--slow",
        type=float,
        default=30.0,
        help="seconds of processor time that count as a finding",
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    options.output.parent.mkdir(parents=True, exist_ok=True)

    def write(summary: dict[str, Any]) -> None:
        text = json.dumps(summary, indent=1) + "\n"
        options.output.write_text(text, encoding="utf-8")

    summary = fuzzed(60 * options.minutes, options.seed, options.slow, write=write)
    write(summary)
    print(
        f"{summary['runs']:,} runs, {len(summary['findings'])} findings: {options.output}"
    )
    if summary["findings"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
