"""Eager, compiled and exported: the same layer, the same bits; and graphs that are run where eager raises.

A recorded graph cannot raise. A row that eager refuses (an input outside its range or NaN, or one that leaves no
output) has to come out of it as NaN in every output.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from io import StringIO
from math import inf, nan
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from campaign.calls import Function
from campaign.changes import in_a_graph
from campaign.subject import Finding, Given, Subject
from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer

__all__ = ["recorded_graphs", "same_in_graphs"]


class _Best(nn.Module):
    """A layer that ends in its best term, as one would deploy it."""

    def __init__(self, mux: Multiplexer) -> None:
        super().__init__()
        self.mux = mux
        self.train(mux.training)

    def forward(self, raw: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        branches: Branches = self.mux(raw, **inputs)
        return branches.best()


def same_in_graphs(
    mux: Multiplexer, raw: Tensor, inputs: Mapping[str, Tensor], *, inductor: bool
) -> Iterator[tuple[str, str, Tensor | None]]:
    """The name of each kind of graph, what is wrong with it (nothing: an empty text), and the values it gives.

    Kernels that torch writes itself (``inductor``) may give other bits, and have to obey all the same. Graphs make
    their products in float64; so does a layer where torch may make those of float32 with fewer digits.
    """
    given = dict(inputs)
    best = _Best(mux)
    usual = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        expected = best(raw, given)
    finally:
        torch.set_float32_matmul_precision(usual)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about torch
        traced = torch.compile(best, fullgraph=True, backend="aot_eager")(raw, given)
        yield "aot_eager", _difference(expected, traced), traced
        program = torch.export.export(best, (raw, given))
        exported = program.module()(raw, given)
        yield "export", _difference(expected, exported), exported
        if inductor:
            generated = torch.compile(best, fullgraph=True)(raw, given)
            yield "inductor", "", generated
        torch.compiler.reset()


def _difference(expected: Tensor, found: Tensor) -> str:
    if torch.equal(expected, found):
        return ""
    row = int((expected != found).any(-1).nonzero()[0, 0])
    return f"row {row} is {found[row].tolist()}, eager {expected[row].tolist()}"


# --- where eager raises ---------------------------------------------------------------------------------------------

ROWS = 32
Graph = Callable[[Tensor, Given], Tensor]


def recorded_graphs(subject: Subject) -> Iterator[Finding]:
    """torch.export and ONNX, with inputs of every kind: rows obey, and rows that eager refuses are NaN."""
    subject = _with_losses(subject)
    raw = subject.raw(ROWS)
    given = _inputs(subject)
    answered = subject.answered(raw, given)
    if not answered.any():
        return
    first = int(answered.nonzero()[0, 0])
    example = (  # graphs are made for so many rows
        raw[first].repeat(ROWS, 1),
        {name: column[first].repeat(ROWS) for name, column in given.items()},
    )
    makers: dict[str, Callable[[nn.Module, Tensor, Given], Graph]] = {
        "export": _exported
    }
    if (
        subject.mux.dtype is not torch.bfloat16 and has_onnx()
    ):  # numpy, and so onnxruntime's interface, lacks bfloat16
        makers["onnx"] = _in_onnx
    for name, make in makers.items():
        check = f"a recorded graph: {name}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's own, about torch
                run = make(_Best(subject.mux), *example)
                x = run(raw, given)
        except Exception as error:
            yield Finding(
                check, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            )
            continue
        here = {column: values[answered] for column, values in given.items()}
        yield subject.judged(f"{check}: rows", x[answered], raw[answered], here)
        if name == "export":
            yield Finding(f"{check}: gradients", in_a_graph(subject, run, ROWS))
        if name == "onnx":
            # There subnormal inputs are read as the runtime reads them: rows that eager refuses for them may obey.
            read = _are_small(given, subject.mux.dtype) & ~answered & ~x.isnan().all(-1)
            own = {column: values[read] for column, values in given.items()}
            yield subject.judged(f"{check}: rows", x[read], raw[read], own)
            x = x.masked_fill(read.unsqueeze(-1), nan)
        yield Finding(f"{check}: refused rows are NaN", _plausible(x, answered, given))
    torch.compiler.reset()


def _with_losses(subject: Subject) -> Subject:
    """The same layer with functions that have no value where their first argument is below −1."""
    if not subject.functions:
        return subject

    def losing(function: Function) -> Function:
        return lambda x, *rest: function(x, *rest).masked_fill(x < -1, nan)

    mux = subject.mux
    functions = {name: losing(code) for name, code in subject.functions.items()}
    other = Multiplexer.from_state(
        mux.state_dict(), boxes=mux.boxes, functions=functions
    )
    return replace(subject, mux=other.train(mux.training))


def has_onnx() -> bool:
    """Whether what ONNX needs is installed; the library itself does without."""
    return all(
        find_spec(name) is not None for name in ("onnx", "onnxscript", "onnxruntime")
    )


def _inputs(subject: Subject) -> Given:
    """Inputs within their ranges and outside of them, of every size, NaN and infinite."""
    dtype = subject.mux.dtype
    found = {}
    allowed = subject.extreme_inputs(ROWS, 1)
    for declared in subject.sentence.inputs:
        wild = [nan, inf, -inf, -5.0, 1e4, float(torch.finfo(dtype).max)]
        if declared.upper is not None:
            wild += [float(min(2 * abs(declared.upper) + 1, Fraction(10**300)))] * 2
        other = torch.tensor(
            subject.random.choices(wild, k=ROWS), dtype=torch.float64
        ).to(dtype)
        chosen = torch.rand(ROWS, generator=subject.generator) < 0.25
        found[declared.name] = torch.where(
            chosen, other, allowed.get(declared.name, other)
        )
    return found


def _are_small(given: Given, dtype: torch.dtype) -> Tensor:
    """Where an input is subnormal."""
    found = torch.zeros(ROWS, dtype=torch.bool)
    for column in given.values():
        size = column.double().abs()
        found |= (size > 0) & (size < torch.finfo(dtype).smallest_normal)
    return found


def _plausible(x: Tensor, answered: Tensor, given: Given) -> str:
    """The first row that eager refuses and the graph has a number for."""
    bad = ~answered & ~x.isnan().all(-1)
    if not bad.any():
        return ""
    row = int(bad.nonzero()[0, 0])
    told = {name: float(column[row]) for name, column in given.items()}
    return f"for {told}, which eager refuses, the graph says {x[row].tolist()}"


def _exported(best: nn.Module, raw: Tensor, given: Given) -> Graph:
    module: Graph = torch.export.export(best, (raw, given)).module()
    return module


ONNX = """
import sys
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1] + "/layer.onnx", providers=["CPUExecutionProvider"])
given = numpy.load(sys.argv[1] + "/given.npz")
wanted = {known.name: given[known.name] for known in session.get_inputs()}  # what does not matter may be left out
numpy.save(sys.argv[1] + "/found.npy", session.run(None, wanted)[0])
"""
"""In a process of its own: should the runtime die of a graph, the campaign lives to tell."""


def _in_onnx(best: nn.Module, raw: Tensor, given: Given) -> Graph:
    names = ["raw", *given]
    columns = (raw, *given.values())
    with _silent():
        program: Any = torch.onnx.export(
            _Columns(best, given),
            columns,
            dynamo=True,
            verbose=False,
            input_names=names,
            optimize=False,  # its optimizer may name two nodes alike, and such a graph does not load
        )

    def run(rows: Tensor, known: Given) -> Tensor:
        with TemporaryDirectory() as folder:
            program.save(f"{folder}/layer.onnx")
            arrays: dict[str, Any] = {
                name: column.numpy() for name, column in {"raw": rows, **known}.items()
            }
            np.savez(f"{folder}/given.npz", **arrays)
            done = subprocess.run(
                [sys.executable, "-c", ONNX, folder],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                told = done.stderr.strip().splitlines()[-1:] or [
                    f"it died with code {done.returncode}"
                ]
                raise RuntimeError(told[0])
            return torch.from_numpy(np.load(f"{folder}/found.npy"))

    return run


class _Columns(nn.Module):
    """The same with one argument for every input, as ONNX knows them."""

    def __init__(self, best: nn.Module, names: Iterable[str]) -> None:
        super().__init__()
        self.best = best
        self.names = tuple(names)
        self.train(best.training)

    def forward(self, raw: Tensor, *columns: Tensor) -> Tensor:
        x: Tensor = self.best(raw, dict(zip(self.names, columns, strict=True)))
        return x


@contextmanager
def _silent() -> Iterator[None]:
    """torch tells how far it has come, and which other packages it would know."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        log.setLevel(level)
