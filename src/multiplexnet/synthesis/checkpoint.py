"""How far training is, in a file: so that one that was interrupted goes on, and ends as it would have ended."""

from __future__ import annotations

import json
import warnings
import zipfile
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiplexnet.synthesis.replacing import in_place_of

__all__ = ["Checkpoint", "file_of", "fingerprint", "read", "write"]

DOCUMENT = "learning.json"
FORMAT = "multiplexnet learning 2"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Checkpoint:
    """A state of training: numbers, and tensors by name."""

    numbers: dict[str, Any]
    tensors: dict[str, Tensor]

    def under(self, name: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, without that."""
        start = f"{name}/"
        return {
            key.removeprefix(start): tensor
            for key, tensor in self.tensors.items()
            if key.startswith(start)
        }


def fingerprint(values: NDArray[np.int64], *others: object) -> str:
    """The same for the same rows and settings."""
    told = repr((values.shape, *others)).encode()
    return sha256(told + np.ascontiguousarray(values).tobytes()).hexdigest()


def file_of(path: Path, begun: str) -> Path:
    """Where a training is kept: this file, or one beside it where it holds something else, which stays."""
    if not path.exists() or read(path, begun) is not None:
        return path
    own = path.with_name(f"{path.name}.{begun[:8]}")
    warnings.warn(
        f"{path} belongs to another fit, or is damaged: it stays, and this fit is kept in {own}",
        stacklevel=3,
    )
    return own


def write(path: Path, begun: str, state: Checkpoint) -> None:
    """Write a state in place of the one before; ``begun`` says of which training."""
    with in_place_of(path) as draft, zipfile.ZipFile(draft, "w") as file:
        document = {"format": FORMAT, "begun": begun, "numbers": state.numbers}
        file.writestr(DOCUMENT, json.dumps(document))
        for name, tensor in state.tensors.items():
            buffer = BytesIO()
            np.save(buffer, tensor.detach().numpy(), allow_pickle=False)
            file.writestr(f"{name}.npy", buffer.getvalue())


def read(path: Path, begun: str) -> Checkpoint | None:
    """The state in a file; ``None`` if it is none of this training, or is damaged."""
    try:
        with zipfile.ZipFile(path) as file:
            document = json.loads(file.read(DOCUMENT))
            if (document["format"], document["begun"]) != (FORMAT, begun):
                return None
            tensors = {}
            for name in file.namelist():
                if name.endswith(".npy"):
                    array = np.load(BytesIO(file.read(name)), allow_pickle=False)
                    tensors[name.removesuffix(".npy")] = torch.from_numpy(array)
            return Checkpoint(document["numbers"], tensors)
    except Exception:  # whatever is wrong with it, learning begins anew
        return None
