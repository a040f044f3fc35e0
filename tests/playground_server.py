"""The playground's command as a process, and rules that it cannot finish: what its tests share."""

from __future__ import annotations

import re
import subprocess
import sys

__all__ = ["ended", "exploding", "started"]


def exploding() -> str:
    """Rules whose terms nobody has the patience for; without ends of the outputs no cascade takes over."""
    rules = [
        f"implies(x[{i % 12}] + x[{(3 * i + 1) % 12}] > {i % 5} and x[{(5 * i + 2) % 12}] > {i % 3}, "
        f"x[{(7 * i + 3) % 12}] < x[{(i * i + 4) % 12}] - {i % 4 + 1})"
        for i in range(40)
    ]
    return "\n".join(["x: real[12]", "x[0] <= 9", *rules])


def started(*options: str) -> tuple[subprocess.Popen[str], int]:
    """The command, and where it listens."""
    command = [
        sys.executable,
        "-m",
        "multiplexnet",
        "playground",
        "--no-browser",
        *options,
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(
        r"playground: http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n", line
    )
    if found is None:
        ended(process)
        raise AssertionError(f"the command said {line!r}")
    return process, int(found[1])


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=30)
