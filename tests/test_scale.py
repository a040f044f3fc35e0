"""More than one process, many terms, many outputs, many rows: the layer keeps its word and its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ddp_worker
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from multiplexnet.errors import ShapeError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.rules import Rules

WORKER = Path(ddp_worker.__file__)

# --- several processes ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes that train together under torchrun have at the end."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(WORKER),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def alone(parts: list[slice]) -> tuple[dict[str, Tensor], list[float]]:
    """The same training in one process."""
    net = ddp_worker.Net()
    losses = ddp_worker.trained(net, parts)
    return net.state_dict(), losses


def test_processes_that_train_together_have_the_same_parameters(
    ranks: list[dict[str, Any]],
) -> None:
    first, second = (rank["state"] for rank in ranks)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_they_are_those_of_one_process_to_the_last_bit(
    ranks: list[dict[str, Any]],
) -> None:
    state, _ = alone([ddp_worker.part_of(rank, 2) for rank in range(2)])
    assert all(torch.equal(ranks[0]["state"][name], state[name]) for name in state)


def test_rows_summed_in_another_order_differ_by_rounding_alone(
    ranks: list[dict[str, Any]],
) -> None:
    state, losses = alone([slice(None)])
    assert losses[-1] < losses[0]
    for name in state:
        torch.testing.assert_close(
            ranks[0]["state"][name], state[name], rtol=1e-12, atol=1e-12
        )


def test_what_they_say_obeys(ranks: list[dict[str, Any]]) -> None:
    assert all(all(rank["obeys"]) for rank in ranks)


# --- many rows --------------------------------------------------------------------------------------------------------


def test_samples_come_in_chunks_and_obey() -> None:
    rules = Rules("x: real; y: real\nx >= 2 or x <= -2\ny <= x")
    p = RulesDistribution(Multiplexer(rules), Normal(torch.zeros(2), 1.0))
    chunks = list(p.samples(25, chunk=10))
    assert [tuple(chunk.shape) for chunk in chunks] == [(10, 2), (10, 2), (5, 2)]
    assert rules.satisfied(torch.cat(chunks)).all()
    assert not torch.equal(chunks[0], chunks[1])
    assert list(p.samples(0)) == []


@pytest.mark.parametrize(("count", "chunk"), [(-1, 10), (10, 0)])
def test_chunks_that_make_no_sense_are_refused(count: int, chunk: int) -> None:
    p = RulesDistribution(Multiplexer(Rules("x >= 2")), Normal(torch.zeros(1), 1.0))
    with pytest.raises(ShapeError, match="the count is 0 or more, a chunk 1 or more"):
        p.samples(count, chunk=chunk)
