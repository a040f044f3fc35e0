"""What every process of tests/test_scale.py runs under torchrun: training of a small network whose outputs obey rules.

    torchrun --nproc-per-node 2 tests/ddp_worker.py FOLDER

Each process takes its part of every batch and writes its parameters to FOLDER. ``trained`` is the same training in one
process: on all rows at once, or part after part with the gradients added up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from multiplexnet.layer.branches import Branches
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

RULES = """
    a: real; b: real; w: real[3]; limit: input[250, 1000]
    a == 0 or 200 < a < 400
    implies(a > 0, b >= a + 2)
    b <= limit
    all(v >= 0 for v in w); sum(w) == 1
"""
ROWS, STEPS = (
    32,
    6,
)  # the rows of a batch, a power of two: halves are scaled without rounding


class Net(nn.Module):
    """Rows ``(B, 4)`` to branches over five outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mux = Multiplexer(Rules(RULES), dtype=torch.float64)
        self.body = nn.Sequential(
            nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, self.mux.in_features)
        ).double()

    def forward(self, rows: Tensor) -> Branches:
        """As in the README: the layer reads what the network says."""
        branches: Branches = self.mux(self.body(rows), limit=limits(rows))
        return branches


def limits(rows: Tensor) -> Tensor:
    return 250 + 750 * torch.sigmoid(rows[..., 0])


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)
        for _ in range(STEPS)
    ]


def loss_of(branches: Branches, rows: Tensor) -> Tensor:
    target = torch.stack(
        [
            300 * (rows[..., 1] > 0),
            300 + 50 * rows[..., 2],
            *rows[..., 1:].softmax(-1).unbind(-1),
        ],
        -1,
    )
    return branches.loss(lambda x: (x - target.unsqueeze(-2)).square()).mean()


def trained(net: nn.Module, parts: list[slice]) -> list[float]:
    """The losses of the steps; a step sees the mean over its parts, whose gradients are added up."""
    optimiser, losses = torch.optim.Adam(net.parameters(), lr=0.01), []
    for rows in batches():
        optimiser.zero_grad()
        each = [loss_of(net(rows[part]), rows[part]) / len(parts) for part in parts]
        for loss in each:
            loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(sum(loss.item() for loss in each))
    return losses


def part_of(rank: int, size: int) -> slice:
    return slice(rank * ROWS // size, (rank + 1) * ROWS // size)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    net = Net()
    losses = trained(nn.parallel.DistributedDataParallel(net), [part_of(rank, size)])
    obeys = [
        bool(net.mux.rules.satisfied(net(rows).best(), limit=limits(rows)).all())
        for rows in batches()
    ]
    torch.save(
        {"state": net.state_dict(), "losses": losses, "obeys": obeys},
        folder / f"{rank}.pt",
    )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
