"""More than one process, many terms, many outputs, many rows: the layer keeps its word and its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ddp_worker
import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.distributions import Normal

from multiplexnet.compiler.compile import compile_rules
from multiplexnet.errors import ShapeError
from multiplexnet.language.formula import atoms, variables
from multiplexnet.language.text import formula_text
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


# --- many outputs, of which each rule mentions few --------------------------------------------------------------------


def chains_and_sums(count: int, *, tied: bool) -> Rules:
    """Chains of ten outputs between 0 and 10 with a bound on their sum; tied: sums over two neighbours as well."""
    rows: list[tuple[list[int], list[int], int]] = []
    for i in range(count):
        rows += [([i], [-1], 0), ([i], [1], 10)]
    for first in range(0, count, 10):
        own = list(range(first, first + 10))
        rows += [([i, i + 1], [1, -1], 0) for i in own[:-1]]
        rows.append((own, [1] * 10, 40))
        if tied and first + 20 <= count:
            rows.append((list(range(first + 5, first + 15)), [1] * 10, 50))
    numbers = [i for i, (columns, _, _) in enumerate(rows) for _ in columns]
    columns = [j for own, _, _ in rows for j in own]
    entries = [c for _, own, _ in rows for c in own]
    matrix = csr_matrix((entries, (numbers, columns)), shape=(len(rows), count))
    return Rules.from_arrays(matrix, np.array([bound for _, _, bound in rows]))


def extreme_raws(mux: Multiplexer) -> Tensor:
    torch.manual_seed(0)
    wide = torch.randn(8, mux.in_features) * torch.logspace(-3, 30, 8).unsqueeze(1)
    return torch.cat([wide, torch.full((1, mux.in_features), float("inf")), -wide])


def test_rules_that_tie_a_thousand_outputs_are_no_table_of_zeros() -> None:
    rules = chains_and_sums(1000, tied=True)
    mux = Multiplexer(rules)
    (cascade,) = mux.cascades
    assert "make a vast table" in str(mux)
    assert cascade.complete
    mentioned = sum(len(row.terms) for row in cascade.rows)
    atoms_written = atoms(rules.specification.formula)
    written = sum(len(atom.linear.summands) for atom in atoms_written)
    assert mentioned < 3 * written
    assert rules.satisfied(mux(extreme_raws(mux)).best()).all()


def test_blocks_of_one_shape_are_tidied_and_proved_once_and_each_obeys() -> None:
    rules = chains_and_sums(200, tied=False)
    mux = Multiplexer(rules)
    alone = compile_rules(chains_and_sums(10, tied=False).specification)
    assert len(mux.compiled.blocks) == 20
    for block in mux.compiled.blocks:
        (term,) = block.terms
        assert len(term.rows) == len(alone.blocks[0].terms[0].rows)
        assert {v for row in term.rows for v in variables(row)} == set(block.outputs)
    assert rules.satisfied(mux(extreme_raws(mux)).best()).all()


def test_a_shape_is_the_same_set_in_other_names() -> None:
    """The second pair has the first one's coefficients the other way round, the third another bound."""
    text = (
        "a <= 2*b; b <= 3; a >= 0\nc <= 3; d <= 2*c; d >= 0\ne <= 2*f; f <= 4; e >= 0"
    )
    found = compile_rules(Rules(text).specification)
    alone = [compile_rules(Rules(line).specification) for line in text.splitlines()]
    for block, own in zip(found.blocks, alone, strict=True):
        said = [formula_text(row) for row in block.terms[0].rows]
        assert said == [formula_text(row) for row in own.blocks[0].terms[0].rows]


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
