"""What size costs: terms, outputs and rows of a layer, and files of up to ten million rows, with the memory of each.

    python benchmarks/scale.py [--part layers | training | streams | draw] [--rows 10000000] [--results FOLDER]

* *layers*: a training step (the marginal loss, forward and backward) against the number of terms K, of outputs D and of
  rows B, one varied at a time; memory is the most that torch held at once during the step.
* *training*: 10,000 terms, and 2,000 outputs: loss before and after, and whether every row obeys, exactly.
* *streams*: ``multiplexnet check`` on CSV and Parquet, and ``RulesDistribution.samples``, from 10⁵ to 10⁷ rows, each in
  a process of its own; memory is the most that the process held (peak resident set). Some 400 MB of files are written
  to a temporary folder and deleted.

Layers are built from terms that are given (``Multiplexer.from_compiled``): to find them is the compiler's business
(benchmarks/compile.py). Writes scale.json and scale.png.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import torch
from layer import boxes, peak_bytes, turns
from torch import Tensor, nn

from multiplexnet.compiler.terms import Block, Compiled, Proof, Term
from multiplexnet.language.formula import Atom, Linear, Rule, Specification, Variable
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.rules import Rules

RESULTS = Path(__file__).parent / "results"
RULES = "x: real; y: real; z: real\nx <= y\ny <= z or z <= -1\nx + y + z <= 10"
TERMS = (10, 100, 1000, 10_000)
OUTPUTS = (10, 50, 200, 1000, 2000)
ROWS = (64, 1024, 16384, 65536)
CHUNK = 1 << 18  # rows of a file that are written at once


def chain(width: int) -> tuple[Rules, Compiled]:
    """x[0] <= x[1] <= … as one term that is given."""
    outputs = tuple(Variable(f"x[{j}]", j) for j in range(width))
    rows = [Atom(Linear.of(a) - Linear.of(b), "<=") for a, b in pairwise(outputs)]
    block = Block(outputs, (Term(tuple(rows)),))
    specification = Specification(outputs, (Rule(block.formula, "ordered"),))
    return Rules.from_specification(specification), Compiled(
        outputs, (), (block,), Proof(True, True, "given", 0)
    )


# --- layers -----------------------------------------------------------------------------------------------------------


def loss_of(branches: Branches, target: Tensor) -> Tensor:
    return branches.loss(lambda x: (x - target.unsqueeze(-2)).square().sum(-1)).mean()


def step_cost(given: tuple[Rules, Compiled], rows: int) -> dict[str, Any]:
    """Set-up seconds, and the seconds and bytes of a training step."""
    start = process_time()
    mux = Multiplexer.from_compiled(*given, max_terms=1 << 20, dtype=torch.float32)
    setup = process_time() - start
    raw = torch.randn(rows, mux.in_features, requires_grad=True)
    target = torch.randn(rows, mux.out_features)

    def step() -> None:
        raw.grad = None
        loss_of(mux(raw), target).backward()  # type: ignore[no-untyped-call]

    (seconds,) = turns(step, seconds=0)
    raw.grad = None
    size = {"terms": len(mux.terms), "outputs": mux.out_features, "rows": rows}
    return {
        **size,
        "setup_seconds": setup,
        "step_seconds": seconds,
        "step_megabytes": peak_bytes(step) / 1e6,
    }


def layers() -> dict[str, Any]:
    return {
        "terms": [step_cost(boxes(count), 256) for count in TERMS],
        "outputs": [step_cost(chain(width), 256) for width in OUTPUTS],
        "rows": [step_cost(boxes(10), rows) for rows in ROWS],
    }


# --- training ---------------------------------------------------------------------------------------------------------


def training(steps: int = 60, rows: int = 64) -> dict[str, Any]:
    cases = {
        "10,000 terms, 10 outputs": boxes(10_000),
        "2,000 outputs, one term": chain(2000),
    }
    return {name: trained(given, steps, rows) for name, given in cases.items()}


def trained(given: tuple[Rules, Compiled], steps: int, rows: int) -> dict[str, Any]:
    """A linear network that learns to say what some rows say that obey the rules."""
    torch.manual_seed(0)
    rules, compiled = given
    mux = Multiplexer.from_compiled(
        rules, compiled, max_terms=1 << 20, dtype=torch.float32
    )
    net = nn.Linear(16, mux.in_features)
    seen = torch.randn(rows, 16)
    with torch.no_grad():
        target = mux(torch.randn(rows, mux.in_features)).best()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    start = process_time()
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of(mux(net(seen)), target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    seconds = process_time() - start
    mux.eval()
    judged = torch.cat([net(seen), 1e4 * torch.randn(rows, mux.in_features)])
    obeying = rules.satisfied(mux(judged).best().detach())
    return {
        "steps": steps, "rows": rows, "first_loss": losses[0], "last_loss": losses[-1], "step_seconds": seconds / steps,
        "rows_judged": len(judged), "rows_obeying": int(obeying.sum()),
    }  # fmt: skip


# --- streams ----------------------------------------------------------------------------------------------------------


def streams(most: int) -> list[dict[str, Any]]:
    counts = [count for count in (10**5, 10**6, 10**7) if count <= most]
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "three.rules").write_text(RULES)
        for count in counts:
            for kind in ("csv", "parquet", "samples"):
                found.append(in_a_process(kind, count, folder))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def in_a_process(kind: str, count: int, folder: Path) -> dict[str, Any]:
    """What a fresh process needs for that many rows."""
    if kind == "samples":
        command = [sys.executable, __file__, "--sample", str(count)]
    else:
        path = folder / f"table.{kind}"
        subprocess.run(
            [sys.executable, __file__, "--write", str(path), str(count)], check=True
        )
        command = [
            sys.executable,
            "-m",
            "multiplexnet",
            "check",
            str(folder / "three.rules"),
            str(path),
            "--json",
        ]
    start = perf_counter()
    before = os.times()
    peak = 0.0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    while process.poll() is None:  # what it says fits into the pipe
        peak = max(peak, peak_megabytes(process.pid))
        sleep(0.01)
    after = os.times()
    said = json.loads(process.communicate()[0])
    if kind != "samples":
        path.unlink()
    assert said["rows"] == count, said
    return {
        "kind": kind, "rows": count, "obeying": said["obeying_rows"], "seconds": perf_counter() - start,
        "processor_seconds": sum(after[2:4]) - sum(before[2:4]), "peak_megabytes": peak,
    }  # fmt: skip


def peak_megabytes(pid: int) -> float:
    """The most that a process has held so far (Linux); its ``ru_maxrss`` would start with what its parent holds."""
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:  # it is gone
        return 0.0
    return int(found[1]) / 1e3 if found else 0.0


def sample(count: int) -> dict[str, Any]:
    """Draws that many rows, and judges them all, chunk by chunk."""
    torch.set_num_threads(1)
    mux = Multiplexer(Rules(RULES), dtype=torch.float32)
    p = RulesDistribution(mux, torch.distributions.Normal(torch.zeros(3), 1.0))
    drawn = obeying = 0
    for rows in p.samples(count):
        drawn += len(rows)
        obeying += int(mux.rules.satisfied(rows).sum())
    return {"rows": drawn, "obeying_rows": obeying}


def write(path: Path, count: int) -> None:
    """A table of that many rows, in chunks; some three quarters of them obey."""
    import polars as pl

    random = np.random.default_rng(0)

    def some(start: int) -> pl.DataFrame:
        values = np.sort(random.normal(size=(min(CHUNK, count - start), 3)), axis=-1)
        flip = random.random(len(values)) < 0.25
        values[flip] = values[flip][:, ::-1]
        return pl.DataFrame(np.round(values, 6), schema=["x", "y", "z"])

    text = path if path.suffix == ".csv" else path.with_suffix(".csv")
    with text.open("wb") as file:
        for start in range(0, count, CHUNK):
            some(start).write_csv(file, include_header=start == 0)
    if path.suffix == ".parquet":
        pl.scan_csv(text).sink_parquet(path)
        text.unlink()


# --- picture ----------------------------------------------------------------------------------------------------------


def draw(found: dict[str, Any], path: Path) -> None:
    """Time and memory of a step against K, D and B; memory of the streams."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(14, 3.6))
    names = {
        "terms": "terms K (256 rows, D = 10)",
        "outputs": "outputs D (256 rows, a chain)",
        "rows": "rows (K = D = 10)",
    }
    for panel, (name, label) in zip(panels, names.items(), strict=False):
        rows = found["layers"][name]
        x = [row[name] for row in rows]
        panel.loglog(
            x,
            [1e3 * row["step_seconds"] for row in rows],
            "o-",
            color="#d62728",
            label="step, ms",
        )
        panel.loglog(
            x,
            [row["step_megabytes"] for row in rows],
            "s--",
            color="#1f77b4",
            label="memory of a step, MB",
        )
        panel.set_xlabel(label)
        panel.legend(frameon=False, fontsize=8)
    colours = {"csv": "#d62728", "parquet": "#1f77b4", "samples": "#2ca02c"}
    labels = {"csv": "check, CSV", "parquet": "check, Parquet", "samples": "samples"}
    for kind, colour in colours.items():
        rows = [row for row in found["streams"] if row["kind"] == kind]
        panels[3].semilogx(
            [row["rows"] for row in rows],
            [row["peak_megabytes"] for row in rows],
            "o-",
            color=colour,
            label=labels[kind],
        )
    panels[3].set_ylim(bottom=0)
    panels[3].set_xlabel("rows")
    panels[3].set_title("peak memory of the process, MB", fontsize=9)
    panels[3].legend(frameon=False, fontsize=8)
    for panel in panels:
        panel.grid(color="#dddddd", linewidth=0.6)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part",
        choices=["layers", "training", "streams", "draw"],
        help="only this; the rest is kept",
    )
    parser.add_argument("--rows", type=int, default=10**7, help="of the longest stream")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="the folder to write to"
    )
    parser.add_argument("--sample", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sample is not None:
        print(json.dumps(sample(options.sample)))
        return
    if options.write:
        write(Path(options.write[0]), int(options.write[1]))
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = options.results / "scale.json"
    found = (
        json.loads(path.read_text())
        if path.exists()
        else {"command": "make scale", "torch": torch.__version__}
    )
    parts: dict[str, Callable[[], Any]] = {
        "layers": layers,
        "training": training,
        "streams": lambda: streams(options.rows),
    }
    for name, part in parts.items():
        if options.part in (None, name):
            found[name] = part()
            found[f"{name}_load"] = round(os.getloadavg()[0], 2)
            path.write_text(json.dumps(found, indent=1) + "\n")
    if {"layers", "streams"} <= found.keys():
        draw(found, options.results / "scale.png")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
