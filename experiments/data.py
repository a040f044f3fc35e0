"""MNIST and CIFAR-100 from a folder, or from their public homes, checked by their checksums either way.

Rankings of sushi and questions about paths are read from the folder only.

A file is looked for in the folder given, else in ``$MULTIPLEXNET_DATA``, and then in a cache folder
(``$XDG_CACHE_HOME/multiplexnet``, ``~/.cache/multiplexnet``), where downloads go.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from harness import ExperimentError
from rich.progress import wrap_file
from torch import Tensor

SHA256 = {
    "mnist/train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "mnist/train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "mnist/t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "mnist/t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "cifar100/train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "cifar100/test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
    "sushi/sushi.soc": "af374669dce6551e66d15ffa087c7744ce5e0b14e4265fc6c57e4fe7672de3a4",
    "grid_paths/paths.txt": "d973484deb511634db6058c03661ebb9d23f52cf8d383c3554bd73f53372b360",
}
"""Every file that an experiment reads, with its checksum."""

MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist"
CIFAR_HOME = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"

Split = tuple[Tensor, Tensor, Tensor]


def cache() -> Path:
    """The folder for downloads and for what is worked out once."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "multiplexnet"
    )


def folders(folder: Path | None) -> list[Path]:
    """Where files are looked for, in this order."""
    named = folder or os.environ.get("MULTIPLEXNET_DATA")
    return [*([Path(named)] if named else []), cache()]


def mnist(folder: Path | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (60000, 28, 28) as bytes, their labels, test images (10000, 28, 28), their labels."""
    names = [name for name in SHA256 if name.startswith("mnist/")]
    train, train_labels, test, test_labels = (
        _idx(located(name, folder, _from_home)) for name in names
    )
    return train, train_labels.long(), test, test_labels.long()


def cifar100(folder: Path | None = None) -> tuple[Split, Split]:
    """For training and test: images (N, 3, 32, 32) as bytes, fine labels (100), coarse labels (20)."""
    return _records(located("cifar100/train.bin", folder, _unpacked)), _records(
        located("cifar100/test.bin", folder, _unpacked)
    )


def sushi(folder: Path | None = None) -> Tensor:
    """The distinct orders of ten kinds of sushi, best first, as numbers 0 … 9: (4926, 10)."""
    lines = _lines(located("sushi/sushi.soc", folder, _not_fetched))
    kinds = int(lines[0])
    orders = [line.split(",")[1:] for line in lines[2 + kinds :]]
    return torch.tensor([[int(kind) - 1 for kind in order] for order in orders])


def published_order(rows: int) -> list[int]:
    """The order in which published code takes sushi and paths apart, 60/20/20, for Semantic Loss as for SPL.

    It is that of numpy's first generator with seed 0; with it, a number in a log of SPL comes out as it stands there.
    """
    order: list[int] = np.random.RandomState(0).permutation(rows).tolist()
    return order


Question = tuple[list[int], list[int], list[list[int]]]
"""Edges that are removed, the two ends, and all shortest paths that are listed, as edges."""


def grid_paths(folder: Path | None = None) -> list[Question]:
    """Questions for a shortest path on a 4 × 4 grid."""
    lines = _lines(located("grid_paths/paths.txt", folder, _not_fetched))
    parts = [[_numbers(part) for part in line.split(",")] for line in lines]
    return [(removed, ends, paths) for removed, ends, *paths in parts]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split("-")]


def located(
    name: str, folder: Path | None, download: Callable[[str, Path], None]
) -> Path:
    """The path of a file whose checksum is right, downloaded if it is nowhere.

    Raises:
        ExperimentError: if the file is damaged, or nowhere and cannot be fetched.
    """
    places = [each / name for each in folders(folder)]
    for path in places:
        if path.exists():
            return _verified(path, name)
    try:
        places[-1].parent.mkdir(parents=True, exist_ok=True)
        download(name, places[-1])
    except (OSError, urllib.error.URLError, tarfile.TarError) as error:
        looked = " and ".join(map(str, places))
        raise ExperimentError(
            f"{name} is missing: looked for {looked}; the download failed too ({error}). Put the file there, or set "
            f"MULTIPLEXNET_DATA (or --data) to the folder that holds {name}."
        ) from error
    return _verified(places[-1], name)


def _verified(path: Path, name: str) -> Path:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256[name]:
        raise ExperimentError(
            f"{path} is damaged: its SHA-256 is {found[:16]}…, not {SHA256[name][:16]}…. Delete it and start again; "
            "it is then fetched anew."
        )
    return path


def _not_fetched(name: str, path: Path) -> None:
    raise FileNotFoundError(
        "it is not downloaded; experiments/README.md says where it is from"
    )


def _from_home(name: str, path: Path) -> None:
    _fetched(f"{MNIST_HOME}/{Path(name).name}", path)


def _unpacked(name: str, path: Path) -> None:
    """Fetch the archive of CIFAR-100 and take both files out of it, by name."""
    archive = path.with_name("cifar-100-binary.tar.gz")
    _fetched(CIFAR_HOME, archive)
    with tarfile.open(archive) as tar:
        for split in ("train.bin", "test.bin"):
            member = tar.extractfile(f"cifar-100-binary/{split}")
            assert member is not None
            path.with_name(split).write_bytes(member.read())
    archive.unlink()


def _fetched(address: str, path: Path) -> None:
    part = path.with_name(path.name + ".part")
    with urllib.request.urlopen(address, timeout=30) as answer, part.open("wb") as file:
        size = int(answer.headers.get("Content-Length", 0))
        with wrap_file(answer, size, description=path.name) as shown:
            _copied(shown, file)
    os.replace(part, path)


def _copied(source: BinaryIO, target: BinaryIO) -> None:
    while chunk := source.read(1 << 20):
        target.write(chunk)


def _idx(path: Path) -> Tensor:
    """A tensor of bytes from the idx format: two zeros, type 8, the number of axes, their lengths, the values."""
    content = gzip.decompress(path.read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, 4).astype(int)
    return torch.from_numpy(
        np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
    )


def _records(path: Path) -> Split:
    """Records of a coarse label, a fine label and 3 × 32 × 32 pixels."""
    records = torch.from_numpy(np.fromfile(path, np.uint8).reshape(-1, 2 + 3 * 32 * 32))
    return (
        records[:, 2:].reshape(-1, 3, 32, 32),
        records[:, 1].long(),
        records[:, 0].long(),
    )
