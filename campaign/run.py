"""The campaign itself: trial after trial, counted, saved as it goes, and resumed where it stopped.

The summary is one JSON document. It is written every few seconds, each time as a whole, so that a campaign that is
interrupted loses nothing but the trial it was at. Trials are told by number and merged in order, with several processes
too: the counts do not depend on how often a campaign was interrupted, nor on the number of processes.
"""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from hashlib import sha256
from itertools import count
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

from campaign.regressions import record_of, save, small
from campaign.trial import DTYPES, Outcome, name_of, trial
from campaign.variants import sentence
from multiplexnet.errors import RecordError

__all__ = ["Plan", "Summary", "campaign"]

SHARE_BUILT = 0.95
"""Of the rows asked for, about what share is got: some rules are empty, some layers are refused, attacks add some."""
SAVE_SECONDS = 5.0
IN_FLIGHT = 64
"""Trials handed out for each process ahead of the one that is waited for: some take half a minute, most a moment."""
MOST_EXAMPLES = 20
"""Refusals that look suspicious are told in full up to here."""
MOST_SHRUNK = 5
"""Violations beyond these are told, and not shrunk."""


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Args:
        formulas: how many sentences at least.
        rows: how many rows at least are to be judged exactly, in all dtypes together.
        seed: of everything.
    """

    formulas: int
    rows: int
    seed: int = 0

    @property
    def rows_each(self) -> int:
        """The rows that every trial asks for: a number that depends on the plan alone."""
        return max(32, ceil(self.rows / max(self.formulas, 1) / SHARE_BUILT))


@dataclass
class Summary:
    """What has been done so far."""

    plan: Plan
    formulas: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)
    stretches: list[dict[str, Any]] = field(default_factory=list)
    suspicious: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows that were judged exactly."""
        return sum(self.counts[f"rows: {name_of(dtype)}"] for dtype in DTYPES)

    @property
    def is_done(self) -> bool:
        return self.formulas >= self.plan.formulas and self.rows >= self.plan.rows

    def add(self, outcome: Outcome) -> None:
        """Take in the next trial."""
        self.formulas += 1
        self.kinds[outcome.kind] += 1
        self.counts.update(outcome.counts)
        self.seconds += outcome.seconds
        self.suspicious = [*self.suspicious, *outcome.suspicious][:MOST_EXAMPLES]

    def begin(self) -> None:
        """Note with which code the campaign goes on from here."""
        if not self.stretches or self.stretches[-1]["code"] != code():
            self.stretches.append({"from": self.formulas, **versions()})

    def record(self) -> dict[str, Any]:
        """The summary as JSON."""
        plan = self.plan
        part = self._part
        return {
            "command": f"python -m campaign --formulas {plan.formulas} --rows {plan.rows} --seed {plan.seed}",
            "plan": asdict(plan),
            "done": self.is_done,
            "formulas": self.formulas,
            "rows": self.rows,
            "violations": len(self.violations),
            "suspicious": part("suspicious: "),
            "rows by dtype": part("rows: "),
            "checks": part("check: "),
            "formulas by kind": dict(sorted(self.kinds.items())),
            "refused": part("refused: "),
            "other counts": {
                k: v for k, v in sorted(self.counts.items()) if ": " not in k
            },
            "seconds": round(self.seconds, 1),
            "stretches": self.stretches,
            "what looks suspicious": self.suspicious,
            "what was violated": self.violations,
        }

    def _part(self, prefix: str) -> dict[str, int]:
        return {
            k.removeprefix(prefix): v
            for k, v in sorted(self.counts.items())
            if k.startswith(prefix)
        }

    def save(self, path: Path) -> None:
        """Write the summary, whole or not at all."""
        draft = path.with_name(path.name + ".part")
        draft.write_text(
            json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )
        os.replace(draft, path)

    @staticmethod
    def load(path: Path) -> Summary:
        """What :meth:`save` wrote.

        Raises:
            RecordError: the file holds no summary.
        """
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            summary = Summary(
                Plan(**record["plan"]), record["formulas"], record["seconds"]
            )
            summary.kinds.update(record["formulas by kind"])
            for name, prefix in _PREFIXES.items():
                summary.counts.update(
                    {prefix + key: value for key, value in record[name].items()}
                )
            summary.violations = record["what was violated"]
            summary.stretches = record["stretches"]
            summary.suspicious = record["what looks suspicious"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{path} is not a summary of a campaign ({error}): leave out --resume"
            ) from None
        return summary


_PREFIXES = {
    "suspicious": "suspicious: ",
    "rows by dtype": "rows: ",
    "checks": "check: ",
    "refused": "refused: ",
    "other counts": "",
}


@cache
def code() -> str:
    """A hash of the package and of the campaign."""
    root = Path(__file__).parents[1]
    files = sorted(
        file for part in ("src", "campaign") for file in (root / part).rglob("*.py")
    )
    return sha256(
        b"".join(
            path.relative_to(root).as_posix().encode() + path.read_bytes()
            for path in files
        )
    ).hexdigest()[:16]


def versions() -> dict[str, str]:
    """What the trials ran with."""
    import numpy
    import torch
    import z3

    from multiplexnet import __version__

    return {
        "code": code(),
        "multiplexnet": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "z3": z3.get_version_string(),
        "numpy": numpy.__version__,
        "machine": platform.machine(),
    }


def campaign(
    plan: Plan,
    *,
    output: Path | None = None,
    resume: bool = False,
    jobs: int = 1,
    regressions: Path | None = None,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """All trials of the plan, and further ones until it has its rows.

    Args:
        plan: how much.
        output: where the summary is kept.
        resume: go on from ``output`` if it is there.
        jobs: processes.
        regressions: the folder for small files of what failed.
        progress: called after every trial.

    Raises:
        RecordError: ``output`` is not a summary, or one of another plan.
    """
    summary = Summary(plan)
    if resume and output is not None and output.exists():
        summary = Summary.load(output)
        if summary.plan != plan:
            raise RecordError(
                f"{output} belongs to another plan, {summary.plan}: give its numbers, or another file"
            )
    summary.begin()
    saved = monotonic()
    for index, outcome in _outcomes(summary, jobs):
        summary.add(outcome)
        before = len(
            summary.violations
        )  # a trial is shrunk however many violations it comes with
        for violation in outcome.violations:
            summary.violations.append(
                {"index": index, "kind": outcome.kind, **asdict(violation)}
            )
        if outcome.violations and regressions is not None and before < MOST_SHRUNK:
            _save_small(plan, index, outcome, regressions)
        if output is not None and (
            monotonic() - saved > SAVE_SECONDS or outcome.violations
        ):
            summary.save(output)
            saved = monotonic()
        if progress is not None:
            progress(summary)
        if summary.is_done:
            break
    if output is not None:
        summary.save(output)
    return summary


def _outcomes(summary: Summary, jobs: int) -> Iterator[tuple[int, Outcome]]:
    """The trials that are left, in order, without end."""
    if summary.is_done:
        return
    run = partial(_numbered, summary.plan)
    if jobs == 1:
        yield from map(run, count(summary.formulas))
        return
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_one_thread
    ) as pool:
        waiting = [
            pool.submit(run, index)
            for index in range(summary.formulas, summary.formulas + IN_FLIGHT * jobs)
        ]
        try:
            for index in count(summary.formulas + len(waiting)):
                yield waiting.pop(0).result()
                waiting.append(pool.submit(run, index))
        finally:  # who asks no further wants none of those handed out ahead
            pool.shutdown(cancel_futures=True)


def _numbered(plan: Plan, index: int) -> tuple[int, Outcome]:
    return index, trial(plan.seed, index, plan.rows_each)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _save_small(plan: Plan, index: int, outcome: Outcome, folder: Path) -> None:
    first = outcome.violations[0]
    found, violation = small(sentence(plan.seed, index), first)
    save(folder, record_of(found, violation, seed=plan.seed, index=index))
