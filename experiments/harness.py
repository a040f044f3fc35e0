"""What every experiment shares: settings that are the command line, runs that survive a kill, one line of JSON each.

An experiment declares a frozen dataclass derived from :class:`Common`, a function that takes it, and ends with
``command(Settings, main)``. Inside, ``Results(name, settings)`` gives one :class:`Run` per combination of settings;
``Run.epochs`` saves everything after each epoch, random states included, so that ``--resume`` ends with the same
numbers as a run that was never stopped. Under ``torchrun`` each process takes its slice of every batch and accelerate
averages the gradients (DDP).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import random
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np
import torch
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from torch import Tensor, nn

try:
    from accelerate import Accelerator as Accelerator
except ModuleNotFoundError:
    raise SystemExit(
        "the experiments need accelerate: pip install -c constraints.txt '.[experiments]'"
    ) from None

HERE = Path(__file__).parent
OUT = Path("out")


class ExperimentError(Exception):
    """Something that the user can mend; its text is all that the command line prints."""


class Diverged(ExperimentError):
    """The loss is no longer a number."""


class Stateful(Protocol):
    """What a checkpoint can hold: modules, optimizers, schedules, and whatever else can say and take its state."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state_dict: Any, /) -> Any: ...


# --- settings --------------------------------------------------------------------------------------------------------


def option(default: Any, text: str) -> Any:
    """A field with a default and the sentence that ``--help`` shows for it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Common:
    """The options of every experiment."""

    seeds: tuple[int, ...] = option((0, 1, 2, 3, 4), "one run for each")
    epochs: int | None = option(
        None, "epochs of training; without it, each method's own number"
    )
    quick: bool = option(
        False, "a small version that takes about a minute and writes to out/"
    )
    resume: bool = option(
        False,
        "skip runs that are in the results, go on with the one that was interrupted",
    )
    results: Path | None = option(
        None, "folder of NAME.jsonl; experiments/results without it"
    )
    figures: Path | None = option(
        None, "folder of the pictures; experiments/figures without it"
    )
    checkpoints: Path = option(
        OUT / "checkpoints", "folder of unfinished and of kept states"
    )
    threads: int = option(
        1, "of torch on a CPU; with more, small tensors only take longer"
    )
    data: Path | None = option(
        None, "folder of the data sets; else $MULTIPLEXNET_DATA, else a cache folder"
    )

    def for_quick(self) -> Self:
        """What ``--quick`` means; an experiment overrides it."""
        return self

    @property
    def results_folder(self) -> Path:
        return self.results or (OUT if self.quick else HERE / "results")

    @property
    def figures_folder(self) -> Path:
        folder = self.figures or (OUT if self.quick else HERE / "figures")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


S = TypeVar("S", bound=Common)


def _argument(hint: Any, default: Any) -> dict[str, Any]:
    """How argparse reads a field of type ``hint``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):  # X | None
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is tuple:
        return _argument(typing.get_args(hint)[0], default) | {"nargs": "+"}
    if typing.get_origin(hint) is Literal:
        return {
            "choices": typing.get_args(hint),
            "type": type(typing.get_args(hint)[0]),
        }
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction if default else "store_true"}
    return {"type": hint, "metavar": hint.__name__.upper()}


def parsed(settings: type[S], argv: Sequence[str] | None = None) -> S:
    """The command line as settings; an unknown option prints the usage and ends with exit code 2."""
    parser = argparse.ArgumentParser(
        description=settings.__doc__,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    hints = typing.get_type_hints(settings)
    for each in fields(settings):
        default = (
            each.default_factory()
            if each.default_factory is not MISSING
            else each.default
        )
        parser.add_argument(
            "--" + each.name.replace("_", "-"),
            default=argparse.SUPPRESS,
            help=f"{each.metadata.get('help', '')} (default: {_shown(default)})".strip(),
            **_argument(hints[each.name], default),
        )
    given: dict[str, Any] = vars(parser.parse_args(argv))
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
    }
    base = settings(quick=True).for_quick() if given.get("quick") else settings()
    return replace(base, **given)


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def command(
    settings: type[S], main: Callable[[S], None], argv: Sequence[str] | None = None
) -> None:
    """Run ``main`` with the settings of the command line; what the user can mend becomes one line and exit code 1."""
    chosen = parsed(settings, argv)
    torch.set_num_threads(chosen.threads)
    try:
        main(chosen)
    except ExperimentError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print(
            "\ninterrupted; the same command with --resume goes on from the last finished epoch",
            file=sys.stderr,
        )
        sys.exit(130)


# --- results ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file; none where there is no file."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path.exists()
        else []
    )


def spread(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """The mean and its standard error; the mean alone of one value, a dash of none."""
    if not values:
        return "–"
    error = (
        f" ± {stdev(values) / math.sqrt(len(values)):.{digits}f}"
        if len(values) > 1
        else ""
    )
    return f"{mean(values):{sign}.{digits}f}{error}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / f".{path.name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replaced(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file in one step: whoever kills the process leaves the old one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    write(part)
    os.replace(part, path)


class Results:
    """The lines of JSON of an experiment, one per run; a run that is repeated replaces its line.

    Args:
        name: of the experiment; the file is ``NAME.jsonl``.
        settings: where it lies, and whether finished runs are skipped.
    """

    def __init__(self, name: str, settings: Common) -> None:
        self.name, self.settings = name, settings
        self.path = settings.results_folder / f"{name}.jsonl"
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(read(self.path))

    def find(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line of a run, if it has finished."""
        return next((line for line in self if _has(line, key)), None)

    def write(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        line = json.dumps({**key, **values}, allow_nan=False)
        with _locked(self.path):
            others = [json.dumps(other) for other in self if not _has(other, key)]
            _replaced(
                self.path,
                lambda part: part.write_text(
                    "\n".join([*others, line]) + "\n", encoding="utf-8"
                ),
            )

    @contextmanager
    def run(self, key: Mapping[str, Any]) -> Iterator[Run]:
        """One run, to be finished with :meth:`Run.finish`; ``run.done`` says that it is in the results already."""
        yield Run(self, dict(key))

    def kept(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """What :meth:`Run.keep` put aside for a run, for pictures; empty where there is nothing."""
        path = Run(self, dict(key)).path("kept")
        return torch.load(path, weights_only=True) if path.exists() else {}


def _has(line: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    return all(line.get(name) == value for name, value in key.items())


# --- one run ---------------------------------------------------------------------------------------------------------


class Best:
    """The state of a module at the epoch whose value was the least.

    It is a part of the checkpoint when handed to :meth:`Run.epochs`, so that selection survives a kill.
    """

    def __init__(self) -> None:
        self.value, self.epoch, self.state = math.inf, -1, dict[str, Tensor]()

    def offer(self, value: float, epoch: int, module: nn.Module) -> bool:
        """Keep a copy of the state if the value is less than all before; says whether it was."""
        if not value < self.value:
            return False
        self.value, self.epoch = value, epoch
        self.state = {
            name: each.detach().clone()
            for name, each in bare(module).state_dict().items()
        }
        return True

    def restore(self, module: nn.Module) -> None:
        """Put the module back into its best state; it stays as it is if nothing was ever offered."""
        if self.state:
            bare(module).load_state_dict(self.state)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "epoch": self.epoch, "state": self.state}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.value, self.epoch, self.state = (
            state["value"],
            state["epoch"],
            state["state"],
        )


def bare(module: Any) -> Any:
    """The module itself, without the wrapper that DDP puts around it."""
    return (
        module.module
        if isinstance(module, nn.parallel.DistributedDataParallel)
        else module
    )


class Run:
    """One training run: its randomness, its processes, its checkpoints, its line of JSON.

    Args:
        results: where its line goes.
        key: what tells it from the other runs, as in ``{"method": "vae", "n": 100, "seed": 0}``.
    """

    def __init__(self, results: Results, key: dict[str, Any]) -> None:
        self.results, self.key, self.accelerator = results, key, results.accelerator
        self.name = " ".join(str(value) for value in key.values())
        self.curve: list[dict[str, float]] = []
        self.shuffle = torch.Generator()
        self.saved = "none yet"
        self.step, self.epoch = 0, 0
        self._began, self._before = perf_counter(), 0.0

    @property
    def done(self) -> bool:
        return self.results.settings.resume and self.results.find(self.key) is not None

    @property
    def is_main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    @property
    def rank(self) -> int:
        return int(self.accelerator.process_index)

    @property
    def world(self) -> int:
        return int(self.accelerator.num_processes)

    @property
    def device(self) -> torch.device:
        return torch.device(self.accelerator.device)

    @property
    def seconds(self) -> float:
        """Time spent on this run, earlier attempts included."""
        return self._before + perf_counter() - self._began

    def path(self, stage: str) -> Path:
        """The file of a stage; each process has its own, since each has its own random state."""
        slug = (
            "-".join(f"{name}={value}" for name, value in self.key.items())
            .replace("/", "_")
            .replace(" ", "_")
        )
        folder = self.results.settings.checkpoints / self.results.name
        return folder / (
            f"{slug}.{stage}.pt"
            if stage == "kept"
            else f"{slug}.{stage}.{self.rank}of{self.world}.pt"
        )

    def seed(self, seed: int) -> None:
        """Seed torch, numpy and Python, alike on all processes, so that all build the same model."""
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        self.shuffle.manual_seed(seed)

    def prepare(self, *parts: Any) -> Any:
        """Modules and optimizers made ready for the device and, under torchrun, for averaging gradients.

        From here on each process draws its own random numbers.
        """
        prepared = self.accelerator.prepare(*parts)
        if self.world > 1:
            torch.manual_seed(torch.initial_seed() + self.rank)
        return prepared

    def batches(self, rows: int, batch: int) -> Iterator[Tensor]:
        """Row numbers of one pass over the data, ``batch`` at a time over all processes together.

        All processes shuffle alike and take every ``world``-th row; a batch that cannot be shared evenly is filled up
        from its own beginning, so that every process takes every step.
        """
        order = torch.randperm(rows, generator=self.shuffle)
        for chunk in torch.split(order, batch):
            short = -len(chunk) % self.world
            yield torch.cat([chunk, chunk.repeat(self.world)[:short]])[
                self.rank :: self.world
            ]

    def epochs(
        self, total: int, *, stage: str = "train", **parts: Stateful
    ) -> Iterator[int]:
        """Number the epochs, saving all ``parts`` and random states after each; ``--resume`` goes on after the last.

        Args:
            total: how many epochs there are.
            stage: the name of this loop, where a run has several.
            **parts: modules, optimizers, schedules, :class:`Best`: what the loop changes.
        """
        first = self._load(stage, parts) if self.results.settings.resume else 0
        with self._bar(f"{self.name} · {stage}", total) as advance:
            advance(first)
            for self.epoch in range(first, total):
                yield self.epoch
                self._save(stage, self.epoch + 1, parts)
                advance(self.epoch + 1)

    def backward(self, loss: Tensor) -> None:
        self.accelerator.backward(loss)

    def check(self, loss: Tensor) -> None:
        """Raise :class:`Diverged` where the loss is not a finite number; call it before every step."""
        self.step += 1
        if not math.isfinite(value := float(loss.detach())):
            raise Diverged(
                f"the loss is {value} at step {self.step} (epoch {self.epoch + 1}) of «{self.name}»; "
                f"last good checkpoint: {self.saved}. Lower the learning rate and start again, or look into that state."
            )

    def agree(self, value: float) -> float:
        """The value of the first process, on all of them: decisions that depend on chance are taken together."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(shared, src=0)
        return float(shared)

    def log(self, **values: float) -> None:
        """Add a point to the curve, which is saved with the checkpoints and kept with the run."""
        self.curve.append({"epoch": self.epoch, **values})

    def keep(self, **tensors: Any) -> None:
        """Put tensors and plain data aside for pictures; :meth:`Results.kept` finds them again, also after a resume."""
        if self.is_main:
            _replaced(
                self.path("kept"),
                lambda part: torch.save({**tensors, "curve": self.curve}, part),
            )

    def finish(self, **values: Any) -> None:
        """Write the line of this run, print it, and remove its checkpoints."""
        bad = [
            name
            for name, value in values.items()
            if isinstance(value, float) and not math.isfinite(value)
        ]
        if bad:
            raise Diverged(
                f"«{self.name}» ended with {bad[0]} = {values[bad[0]]}; last good checkpoint: {self.saved}"
            )
        line = {**values, "seconds": round(self.seconds, 2)}
        if self.is_main:
            self.results.write(self.key, line)
            print(json.dumps({**self.key, **line}), flush=True)
        self.accelerator.wait_for_everyone()
        for path in self.path("*").parent.glob(_literally(self.path("*").name)):
            path.unlink()

    # --- checkpoints

    def _save(self, stage: str, epochs: int, parts: Mapping[str, Stateful]) -> None:
        state = {
            "epochs": epochs,
            "step": self.step,
            "seconds": self.seconds,
            "curve": self.curve,
            "random": _random_state(self.shuffle),
            "parts": {name: bare(part).state_dict() for name, part in parts.items()},
        }
        path = self.path(stage)
        _replaced(path, lambda part: torch.save(state, part))
        self.saved = f"{path} ({epochs} epochs)"

    def _load(self, stage: str, parts: Mapping[str, Stateful]) -> int:
        """Restore a stage; returns the number of epochs that it has behind it."""
        path = self.path(stage)
        if not path.exists():
            return 0
        state = torch.load(path, weights_only=True)
        for name, part in parts.items():
            bare(part).load_state_dict(state["parts"][name])
        _restore_random(state["random"], self.shuffle)
        self.curve, self.step, self.saved = (
            state["curve"],
            state["step"],
            f"{path} ({state['epochs']} epochs)",
        )
        self._before, self._began = state["seconds"], perf_counter()
        return int(state["epochs"])

    @contextmanager
    def _bar(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        console_off = not (self.is_main and sys.stderr.isatty())
        with Progress(*columns, disable=console_off, transient=True) as progress:
            task = progress.add_task(text, total=total)
            yield lambda finished: progress.update(task, completed=finished)


def _literally(name: str) -> str:
    """A glob pattern in which nothing but ``*`` is special."""
    return name.replace("[", "[[]")


def _random_state(shuffle: torch.Generator) -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": cuda,
        "numpy": (kind, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
        "python": random.getstate(),
        "shuffle": shuffle.get_state(),
    }


def _restore_random(state: Mapping[str, Any], shuffle: torch.Generator) -> None:
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    random.setstate(state["python"])
    shuffle.set_state(state["shuffle"])
