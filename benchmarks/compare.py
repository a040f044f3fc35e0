"""Two commits side by side: how long the same layers take in each, as ratios.

    python benchmarks/compare.py BASE [HEAD] [--suite layer|cascade|all] [--quick] [--only NAME]

Each commit gets a git worktree and a process of its own (without HEAD the second is the working tree as it is). The two
take turns, a few runs each, who is first alternating, so that what else the machine does falls on both alike. Times are
processor times of one thread, medians over all turns; a ratio above 1 says that the second commit is slower. The cases
are those of ``benchmarks/layer.py`` and ``benchmarks/cascade.py`` here, handed to both as text. ``same`` tells whether
both return the same bits for the same raw values. Where a commit cannot build a layer, the row says why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


@dataclass(frozen=True)
class Case:
    """Rules as text, how a layer is asked to compute them, and on how many rows it is measured."""

    name: str
    text: str
    rows: int
    structure: str | None = None
    inputs: dict[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Effort:
    """How long is measured: turns of each commit, and seconds of processor time in each turn."""

    turns: int
    seconds: float


@dataclass(frozen=True)
class Compared:
    """Seconds of both commits, set-up, forward alone and with backward, and whether they return the same bits."""

    case: Case
    build: tuple[float, float]
    forward: tuple[float, float]
    both: tuple[float, float]
    same: bool


# --- the process of one commit ---------------------------------------------------------------------------------------


class Worker:
    """Builds layers and times them; it knows the library by its public names alone, which old commits have, too."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.actions: dict[str, Callable[[], object]] = {}

    def build(self, case: Case) -> dict[str, Any]:
        """A new layer: how long that took, and a hash of what it returns."""
        import torch

        import multiplexnet as mx

        options: dict[str, Any] = {}
        if case.structure is not None:
            options["structure"] = case.structure
        start = process_time()
        rules = mx.Rules(case.text)
        mux = mx.Multiplexer(rules, dtype=torch.float32, **options)
        seconds = process_time() - start
        torch.manual_seed(0)
        raw = torch.randn(case.rows, mux.in_features)
        given = {
            name: torch.rand(case.rows) * (upper - lower) + lower
            for name, (lower, upper) in (case.inputs or {}).items()
        }
        leaf = raw.clone().requires_grad_()

        def forward() -> torch.Tensor:
            mux.eval()
            with torch.no_grad():
                x: torch.Tensor = mux(raw, **given).best()
            return x

        def both() -> None:
            mux.train()
            torch.autograd.grad(mux(leaf, **given).best().sum(), leaf)

        self.actions = {"forward": forward, "both": both}
        content = forward().numpy().tobytes()
        return {"seconds": seconds, "digest": sha256(content).hexdigest()}

    def time(self, action: str, seconds: float) -> list[float]:
        """Processor times of an action, as many as fit into the seconds, but two at least."""
        run = self.actions[action]
        found: list[float] = []
        start = process_time()
        while len(found) < 2 or process_time() - start < seconds:
            before = process_time()
            run()
            found.append(process_time() - before)
        return found


def serve() -> None:
    """Answers questions, a line of JSON each, until there are no more."""
    worker = Worker()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "case" in question:
                answer: Any = worker.build(Case(**question["case"]))
            else:
                answer = worker.time(question["action"], question["seconds"])
        except Exception as error:  # what an old commit cannot do is part of the answer
            text = str(error).partition("\n")[0]
            answer = {"error": f"{type(error).__name__}: {text}"}
        print(json.dumps(answer), flush=True)


class Commit:
    """One commit, and the process that runs it."""

    def __init__(self, name: str, source: Path) -> None:
        self.name = name
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, **question: Any) -> Any:
        """The answer.

        Raises:
            RuntimeError: the commit cannot do it, or its process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its process has ended")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()  # which closes its pipes, too


@contextmanager
def checked_out(revision: str | None) -> Iterator[Path]:
    """The sources of a commit in a worktree of their own; of the working tree if there is none."""
    if revision is None:
        yield ROOT / "src"
        return
    git = ("git", "-C", str(ROOT), "worktree")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        added = [*git, "add", "--quiet", "--detach", str(tree), revision]
        subprocess.run(added, check=True)
        try:
            yield tree / "src"
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


# --- both ------------------------------------------------------------------------------------------------------------


def compared(
    case: Case, base: Commit, head: Commit, effort: Effort, *, head_first: bool
) -> Compared:
    pair = (base, head)
    built = [commit.ask(case=asdict(case)) for commit in pair]
    times: dict[str, tuple[list[float], list[float]]] = {}
    for action in ("forward", "both"):
        times[action] = ([], [])
        for commit in pair:  # which does not count
            commit.ask(action=action, seconds=0)
        for turn in range(effort.turns):
            order = (0, 1) if (turn % 2 == 0) != head_first else (1, 0)
            for i in order:
                found = pair[i].ask(action=action, seconds=effort.seconds)
                times[action][i].extend(found)
    forward = times["forward"]
    both = times["both"]
    return Compared(
        case,
        build=(built[0]["seconds"], built[1]["seconds"]),
        forward=(median(forward[0]), median(forward[1])),
        both=(median(both[0]), median(both[1])),
        same=built[0]["digest"] == built[1]["digest"],
    )


def layer_cases(quick: bool) -> Iterator[Case]:
    import layer

    for own in layer.CASES:
        if quick and own.slow:
            continue
        text = str(own.rules())
        for rows in own.batches[:1] if quick else own.batches:
            yield Case(own.name, text, rows, inputs=dict(own.inputs) or None)


def cascade_cases(quick: bool) -> Iterator[Case]:
    import cascade

    families = cascade.FAMILIES[:7]
    if quick:
        families = [own for own in families if "100" not in own.name]
    for own in families:
        ends = {"u": (10.0, 300.0)} if own.inputs(1) else None
        for rows in (1_024,) if quick else (1_024, 16_384):
            yield Case(own.name, own.text, rows, "cascade", ends)


SUITES = {"layer": layer_cases, "cascade": cascade_cases}


def ratio(pair: tuple[float, float]) -> str:
    return f"{pair[1] / pair[0]:.2f}"


def line(found: Compared) -> str:
    cells = [
        found.case.name,
        f"{found.case.rows:,}",
        f"{found.forward[0] * 1e3:.2f}",
        f"{found.forward[1] * 1e3:.2f}",
        ratio(found.forward),
        f"{found.both[0] * 1e3:.2f}",
        f"{found.both[1] * 1e3:.2f}",
        ratio(found.both),
        ratio(found.build),
        "same" if found.same else "other",
    ]
    return f"| {' | '.join(cells)} |"


def report(
    cases: Sequence[Case], base: Commit, head: Commit, effort: Effort
) -> list[Compared]:
    """Prints a row a case, as soon as it is known."""
    print(f"base: {base.name}; head: {head.name}; ratios are head / base")
    print(
        "| rules | rows | forward ms, base | head | ratio | both ms, base | head | ratio | build | bits |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --- |")
    rows: list[Compared] = []
    for number, case in enumerate(cases):
        try:
            found = compared(case, base, head, effort, head_first=number % 2 == 1)
        except RuntimeError as error:
            print(f"| {case.name} | {case.rows:,} | {error} |", flush=True)
            continue
        rows.append(found)
        print(line(found), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit, as git names it")
    parser.add_argument("head", nargs="?", help="another (default: the working tree)")
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--only", default="", help="rules whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer rows and turns")
    options = parser.parse_args()
    suites = list(SUITES) if options.suite == "all" else [options.suite]
    cases = [case for suite in suites for case in SUITES[suite](options.quick)]
    cases = [case for case in cases if options.only in case.name]
    effort = Effort(6, 0.05) if options.quick else Effort(20, 0.2)
    with ExitStack() as stack:
        commits = []
        for revision in (options.base, options.head):
            source = stack.enter_context(checked_out(revision))
            commit = Commit(revision or "the working tree", source)
            stack.callback(commit.close)
            commits.append(commit)
        rows = report(cases, commits[0], commits[1], effort)
    if rows:
        forward = median(own.forward[1] / own.forward[0] for own in rows)
        both = median(own.both[1] / own.both[0] for own in rows)
        print(f"median ratio: forward {forward:.2f}, with backward {both:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
