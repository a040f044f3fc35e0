"""This library beside its peers: time, exact violations, dead gradients, set-up, and behaviour as a torch module.

    python benchmarks/peers.py [--only PEER …] [--sets NAME] [--missing] [--render] [--results FOLDER]

Needs the packages of benchmarks/peers-requirements.txt (``make peers`` installs them in an environment of their own)
and writes peers.json, peers.md and peers.png. Every pair of a peer and a set runs in a process of its own, one thread,
in steps; a step that takes more than 60 s of processor time or 4 GB, or hangs for 300 s, is stopped and said so, and
the next one starts in a fresh process.

* *time*: forward and backward in training, as a multiple of ``softplus`` on a tensor of the outputs' shape and dtype;
  they run in turn, processor times, medians. The batch is 16,384 rows, or the largest of 1,024, 128 and 16 that takes
  less than some 2 s a step; then times are compared per row with softplus on 16,384 rows, because on a small tensor
  most of its time is the call (``same_shape`` in the JSON is the ratio on the small one). The sets and the verdict are
  in benchmarks/peer_sets.py, the layers in peer_layers.py.
* *violations*: the share of rows outside the set, their floats read as exact numbers, tolerance zero, for raw values
  N(0, 10²), and of random sign and size 0.5 to 1 times 1e4 and 1e30; and by how much the worst row misses.
* *dead gradients*: the share of entries of the raw values' gradient that are exactly zero, there.
* *moved*: the share of raw rows that obey already and do not come back within 0.01, for layers that correct.
* what ``torch.compile(fullgraph=True)``, ``torch.export`` with a batch of any size, ``vmap`` over a leading dimension,
  ``deepcopy``, ``pickle`` and an empty batch do: works, wrong result, or the first line of the error.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import pickle
import platform
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from layer import turns
from peer_layers import PEERS, Layer, Peer
from peer_sets import Set, chosen_sets, excess, obeying
from torch import Tensor

RESULTS = Path(__file__).parent / "results"
BATCHES = (16384, 1024, 128, 16)
# rows N(0, 10²), and extreme ones, that are judged of a layer too slow for the largest batch
SOME = 128
FEW = 16
RAWS = {"N(0,10)": 10.0, "1e4": 1e4, "1e30": 1e30}
TOOLS = ("empty batch", "deepcopy", "pickle", "vmap", "export", "compile")
PASSES = (("time", *RAWS), TOOLS)
SECONDS = 60.0
GIGABYTES = 4.0
SILENT = 300.0  # by the clock: a step that waits for something uses no processor time


# --- one peer and one set, in a process of its own --------------------------------------------------------------------


@dataclass
class Cell:
    """A built layer, and what is measured of it."""

    peer: Peer
    given: Set
    layer: Layer
    batch: int
    report: Callable[[dict[str, Any]], None] = field(repr=False)

    def raw(self, rows: int, kind: str = "N(0,10)") -> tuple[Tensor, ...]:
        """Raw values, and the input of the set if it has one."""
        generator = torch.Generator().manual_seed(0)
        shape = (rows, self.layer.in_features)
        if kind == "N(0,10)":
            values = 10 * torch.randn(shape, generator=generator)
        else:
            sign = 2.0 * torch.randint(2, shape, generator=generator) - 1
            values = (
                RAWS[kind] * sign * (0.5 + torch.rand(shape, generator=generator) / 2)
            )
        values = values.to(self.peer.dtype)
        if self.given.limits is None:
            return (values,)
        low, high = self.given.limits
        return values, (low + (high - low) * torch.rand(rows, generator=generator)).to(
            self.peer.dtype
        )

    def run(self, step: str) -> Any:
        if step == "time":
            return self.times()
        if step in RAWS:
            return self.rows(step)
        return self.tool(step)

    # --- time ---------------------------------------------------------------------------------------------------------

    def times(self) -> dict[str, Any]:
        self.layer.train()
        rows = BATCHES[-1]
        for more in [b for b in reversed(BATCHES[:-1]) if b <= self.batch]:
            (seconds,) = turns(self.step(rows), seconds=0)
            if seconds * more / rows > 2:
                break
            rows = more
        self.batch = rows
        own, bare, full = turns(
            self.step(rows), self.bare(rows), self.bare(BATCHES[0]), seconds=1.0
        )
        ratio = own / full * BATCHES[0] / rows
        result = {
            "batch": rows,
            "ms": own * 1e3,
            "softplus_ms": bare * 1e3,
            "ratio": ratio,
            "same_shape": own / bare,
        }
        if self.layer.is_marginal and self.given.rows == ():
            own, bare = turns(
                self.step(rows, marginal=True), self.bare(rows), seconds=1.0
            )
            result |= {"marginal_ms": own * 1e3, "marginal_ratio": own / bare}
        return result

    def step(self, rows: int, *, marginal: bool = False) -> Callable[[], None]:
        raw, *limit = self.raw(rows)
        leaf = (raw / 10).requires_grad_()
        weights = torch.randn(rows, self.given.width, dtype=raw.dtype)

        def forward_and_backward() -> None:
            leaf.grad = None
            if marginal:
                self.layer.objective(leaf, weights, *limit).sum().backward()  # type: ignore[no-untyped-call]
            else:
                self.layer(leaf, *limit).backward(weights)

        return forward_and_backward

    def bare(self, rows: int) -> Callable[[], None]:
        leaf = torch.randn(
            rows, self.given.width, dtype=self.peer.dtype, requires_grad=True
        )
        weights = torch.randn_like(leaf)

        def forward_and_backward() -> None:
            leaf.grad = None
            F.softplus(leaf).backward(weights)  # type: ignore[no-untyped-call]

        return forward_and_backward

    # --- outputs and gradients ----------------------------------------------------------------------------------------

    def rows(self, kind: str) -> dict[str, Any]:
        slow = self.batch < BATCHES[0]
        raw, *limit = self.raw(
            (SOME if kind == "N(0,10)" else FEW) if slow else self.batch, kind
        )
        known = limit[0].double().numpy() if limit else None
        self.layer.eval()
        with torch.no_grad():
            x = self.layer(raw, *limit).double()
        obeys = obeying(self.given, x.numpy(), known)
        result = {
            "rows": len(x),
            "violating": float((~obeys).mean()),
            "excess": excess(self.given, x.numpy(), known),
            "not_finite": float((~x.isfinite()).any(-1).double().mean()),
        }
        if (
            raw.shape == x.shape
            and (before := obeying(self.given, raw.double().numpy(), known)).any()
        ):
            moved = ((x - raw.double()).abs().max(-1).values > 0.01).numpy()
            result |= {
                "obeying_before": float(before.mean()),
                "moved": float(moved[before].mean()),
            }
        return result | self.gradients(raw, *limit)

    def gradients(self, raw: Tensor, *limit: Tensor) -> dict[str, Any]:
        self.layer.train()
        leaf = raw.clone().requires_grad_()
        weights = torch.randn(len(raw), self.given.width, dtype=raw.dtype)
        try:
            self.layer.objective(leaf, weights, *limit).sum().backward()  # type: ignore[no-untyped-call]
        except Exception as error:
            return {"gradient": first_line(error)}
        assert leaf.grad is not None
        zero = leaf.grad == 0
        return {
            "dead": float(zero.double().mean()),
            "dead_rows": float(zero.all(-1).double().mean()),
            "gradient_not_finite": float((~leaf.grad.isfinite()).double().mean()),
        }

    # --- as a torch module --------------------------------------------------------------------------------------------

    def tool(self, name: str) -> str:
        self.layer.eval()
        given = self.raw(12)
        with torch.no_grad():
            expected = self.layer(*given)
            found = getattr(self, name.replace(" ", "_"))(*given)
        if found.shape != expected.shape:
            return f"wrong result: shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
        if not torch.allclose(found, expected, rtol=1e-4, atol=1e-5):
            return f"wrong result: off by {float((found - expected).abs().max()):.2g}"
        return "works"

    def empty_batch(self, *given: Tensor) -> Tensor:
        found = self.layer(*(tensor[:0] for tensor in given))
        assert found.shape == (0, self.given.width), f"shape {tuple(found.shape)}"
        return torch.cat([found, self.layer(*given)])

    def deepcopy(self, *given: Tensor) -> Tensor:
        found: Tensor = copy.deepcopy(self.layer)(*given)
        return found

    def pickle(self, *given: Tensor) -> Tensor:
        found: Tensor = pickle.loads(pickle.dumps(self.layer))(*given)
        return found

    def vmap(self, *given: Tensor) -> Tensor:
        found: Tensor = torch.vmap(self.layer)(
            *(tensor.reshape(3, 4, *tensor.shape[1:]) for tensor in given)
        )
        return found.flatten(0, 1)

    def export(self, *given: Tensor) -> Tensor:
        batch = torch.export.Dim("batch", min=2, max=1 << 20)
        some = tuple(tensor[:7].clone() for tensor in given)
        limits = {"limit": tuple({0: batch} for _ in given[1:])} if given[1:] else {}
        shapes = {"raw": {0: batch}, **limits}
        program = torch.export.export(self.layer, some, dynamic_shapes=shapes)
        found: Tensor = program.module()(*given)
        return found

    def compile(self, *given: Tensor) -> Tensor:
        compiled = torch.compile(self.layer, fullgraph=True)
        with torch.enable_grad():
            found: Tensor = compiled(given[0].clone().requires_grad_(), *given[1:])
            found.sum().backward()  # type: ignore[no-untyped-call]
        return found.detach()


def first_line(error: BaseException) -> str:
    """What an error says first, without folders of this machine."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {without_folders(text)}"[:160]


def without_folders(text: str) -> str:
    return re.sub(r"(/[\w.+-]+)+/", "", text)


def work(
    peer: Peer, given: Set, batch: int, steps: Sequence[str], out: io.TextIOBase
) -> None:
    """Build the layer and take the steps; one line of JSON each."""

    def report(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=out, flush=True)

    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    report({"imported": True, "cannot": peer.cannot(given)})
    peer.modules()
    report({"ready": True})
    try:
        start = time.process_time()
        layer = peer.build(given)
        report({"step": "set-up", "result": {"seconds": time.process_time() - start}})
    except Exception as error:
        report({"step": "set-up", "result": first_line(error)})
        return
    cell = Cell(peer, given, layer, batch, report)
    for step in steps:
        try:
            result = cell.run(step)
        except Exception as error:
            result = first_line(error)
        memory = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        )  # kilobytes on Linux
        report({"step": step, "result": result, "batch": cell.batch, "peak_gb": memory})


# --- all of them, each watched ----------------------------------------------------------------------------------------


def measured(
    peer: Peer, given: Set, steps: Sequence[str], known: dict[str, Any]
) -> dict[str, Any]:
    """What is known with what became of these steps; those that are stopped do not stop the others."""
    if reason := peer.cannot(given):
        return {"peer": peer.name, "set": given.name, "cannot": reason}
    left = [step for step in steps if peer.own_module or step not in TOOLS]
    if not left or (isinstance(known.get("set-up"), str) and "time" not in left):
        return known
    load = round(os.getloadavg()[0], 2)
    earlier = known.get("time", {})
    batch = (
        earlier["batch"]
        if "time" not in left and isinstance(earlier, dict)
        else BATCHES[0]
    )
    kept = {
        name: value for name, value in known.items() if name not in (*left, "set-up")
    }
    cell: dict[str, Any] = {"peer": peer.name, "set": given.name, **kept}
    if "time" in left:
        cell["load"] = load
    while left:
        done, stopped = watched(peer, given, batch, left)
        cell |= {line["step"]: line["result"] for line in done}
        cell["peak_gb"] = max(
            [cell.get("peak_gb", 0.0), *(line.get("peak_gb", 0.0) for line in done)]
        )
        batch = min([batch, *(line["batch"] for line in done if "batch" in line)])
        left = [step for step in left if step not in {line["step"] for line in done}]
        if stopped is None or "set-up" not in cell or isinstance(cell["set-up"], str):
            cell.setdefault("set-up", stopped)
            break
        smaller = [size for size in BATCHES if size < batch]
        if left[0] == "time" and smaller:  # too much at once, perhaps
            batch = smaller[0]
        else:
            cell[left.pop(0)] = stopped
    return cell


def watched(
    peer: Peer, given: Set, batch: int, steps: Sequence[str]
) -> tuple[list[dict[str, Any]], str | None]:
    """The steps that were finished, and why the next one was not."""
    command = [
        sys.executable,
        __file__,
        "--work",
        peer.name,
        given.name,
        str(batch),
        *steps,
    ]
    read, write = os.pipe()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PEERS_PIPE": str(write)}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[write], env=environment,
        start_new_session=True, text=True,
    )  # fmt: skip
    os.close(write)
    os.set_blocking(read, False)
    text = ""
    start = 0.0
    stopped = None
    heard = time.monotonic()
    with os.fdopen(read, "rb") as pipe:
        while process.poll() is None and stopped is None:
            time.sleep(0.02)
            seconds, gigabytes = used(process.pid)
            if new := pipe.read():
                text += new.decode()
                # a step is done: the next one has its own time
                start = seconds
                heard = time.monotonic()
            if seconds - start > SECONDS:
                stopped = f"stopped after {SECONDS:g} s"
            elif time.monotonic() - heard > SILENT:
                stopped = f"hangs: nothing in {SILENT:g} s"
            elif gigabytes > GIGABYTES:
                stopped = f"stopped at {GIGABYTES:g} GB"
        if stopped:
            os.killpg(process.pid, signal.SIGKILL)
        errors = process.communicate()[1]
        text += (pipe.read() or b"").decode()
    if stopped is None and process.returncode:
        last = errors.strip().splitlines()[-1:] or [""]
        stopped = (
            f"died with code {process.returncode}: {without_folders(last[0])[:120]}"
        )
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if "step" in line], stopped


def used(pid: int) -> tuple[float, float]:
    """The processor seconds of a process and its finished children, and the gigabytes that it holds (Linux)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it is gone
        return 0.0, 0.0
    seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * resource.getpagesize() / 1e9


def surroundings() -> dict[str, Any]:
    return {
        "command": "make peers",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processors": os.cpu_count(),
        "threads": 1,
        "limits": {"seconds": SECONDS, "gigabytes": GIGABYTES},
        "versions": {peer.name: peer.version for peer in PEERS},
        "dtypes": {peer.name: str(peer.dtype).removeprefix("torch.") for peer in PEERS},
    }


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        name, set_name, batch, *steps = sys.argv[2:]
        peer = next(peer for peer in PEERS if peer.name == name)
        given = next(given for given in chosen_sets() if given.name == set_name)
        with os.fdopen(int(os.environ["PEERS_PIPE"]), "w") as out:
            work(peer, given, int(batch), steps, out)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", help="these peers; what is known of others is kept"
    )
    parser.add_argument(
        "--sets",
        default="",
        help="sets whose name contains this; what is known of others is kept",
    )
    parser.add_argument(
        "--missing", action="store_true", help="measure only what is not known yet"
    )
    parser.add_argument(
        "--render",
        action="store_true",
        help="measure nothing, write the tables and the picture again",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="the folder to write to"
    )
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "peers.json"
    known = json.loads(path.read_text())["cells"] if path.exists() else []
    cells = {(cell["peer"], cell["set"]): cell for cell in known}
    pairs = [(peer, given) for given in chosen_sets() for peer in PEERS]
    names = options.only or [peer.name for peer in PEERS]
    wanted = [
        (p, s)
        for p, s in pairs
        if p.name in names and options.sets in s.name and not options.render
    ]
    for own in PASSES:
        for peer, given in wanted:
            start = time.monotonic()
            key = (peer.name, given.name)
            before = cells.get(key, {})
            left = [step for step in own if not (options.missing and step in before)]
            cells[key] = measured(peer, given, left, before)
            print(
                f"{given.name:18} {peer.name:20} {time.monotonic() - start:6.1f} s",
                file=sys.stderr,
                flush=True,
            )
            path.write_text(
                json.dumps({**surroundings(), "cells": list(cells.values())}, indent=1)
                + "\n"
            )
    from peer_tables import draw, markdown

    found = json.loads(path.read_text())
    (options.results / "peers.md").write_text(markdown(found))
    draw(found, options.results / "peers.png")


if __name__ == "__main__":
    main()
