"""Label-free MNIST in small: the free energy by hand, digits named by the rule alone, both phases resumed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
import harness
import mnist
import pytest
import tiny_digits
import torch

import multiplexnet as mx

TINY = [
    "--seeds",
    "0",
    "--results",
    "results",
    "--figures",
    "figures",
    "--validation",
    "100",
    "--batch",
    "64",
]
MLP = ["--methods", "multiplexnet", "--encoders", "mlp"]
SHORT = [
    "--quadruples",
    "128",
    "--label-epochs",
    "2",
    "--epochs",
    "2",
    "--restarts",
    "0",
]
Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run the experiment on tiny digits; the one line that it wrote, without its seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "mnist", tiny_digits.digits)

    def run(*options: str, file: str = "mnist") -> dict[str, Any]:
        harness.command(mnist.Settings, mnist.main, [*TINY, *options])
        (line,) = harness.read(Path(f"results/{file}.jsonl"))
        return {name: value for name, value in line.items() if name != "seconds"}

    return run


@pytest.fixture
def model() -> mnist.M2:
    return mnist.M2(mnist.label_net("mlp", 1.0), mnist.finite_terms(mnist.ADDITION))


def test_quadruples_obey_the_rule_and_their_addends_are_uniform() -> None:
    images, labels, *_ = tiny_digits.digits()
    rows = mnist.Digits(images, labels).quadruples(
        5000, torch.Generator().manual_seed(0)
    )
    assert mx.Rules(mnist.ADDITION).satisfied(labels[rows].double()).all()
    for position in (0, 1):
        assert (
            torch.bincount(labels[rows[:, position]], minlength=10)
            .float()
            .div(5000)
            .allclose(torch.tensor(0.1), atol=0.02)
        )
    assert set(rows.flatten().tolist()) == {*range(len(labels))}, "every image is drawn"


def test_the_free_energy_is_that_of_the_hundred_sums(model: mnist.M2) -> None:
    log_q, costs = torch.randn(3, 4, 10).log_softmax(-1), torch.rand(3, 4, 10)
    for row, found in enumerate(model.free_energy(log_q, costs)):
        sums = [
            (a, b, (a + b) // 10, (a + b) % 10) for a in range(10) for b in range(10)
        ]
        joint = torch.stack(
            [
                sum((log_q[row, n, y] for n, y in enumerate(h)), torch.zeros(()))
                for h in sums
            ]
        )
        pi = joint.softmax(0)
        value = torch.stack(
            [
                sum((costs[row, n, y] for n, y in enumerate(h)), torch.zeros(()))
                for h in sums
            ]
        )
        assert found.item() == pytest.approx(
            (pi * (value + pi.log() + math.log(100))).sum().item(), rel=1e-5
        )


def test_without_the_rule_it_is_that_of_four_single_images() -> None:
    free = mnist.M2(mnist.label_net("mlp", 1.0), mnist.finite_terms(mnist.DIGITS))
    log_q, costs = torch.randn(3, 4, 10).log_softmax(-1), torch.rand(3, 4, 10)
    single = (log_q.exp() * (costs + log_q + math.log(10))).sum((-1, -2))
    torch.testing.assert_close(free.free_energy(log_q, costs), single)


def test_costs_are_those_of_each_label_decoded_alone(model: mnist.M2) -> None:
    x = torch.rand(2, 4, 28, 28)
    torch.manual_seed(1)
    costs = model.eval().costs(x)
    torch.manual_seed(1)
    mean, log_variance = model.encoder(x.flatten(0, 1)).chunk(2, -1)
    posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    z = (
        mean.reshape(2, 4, -1)
        + torch.randn(2, 4, 50) * posterior.scale.reshape(2, 4, -1)
    ).flatten(0, 1)
    kl = torch.distributions.kl_divergence(
        posterior, torch.distributions.Normal(0.0, 1.0)
    ).sum(-1)
    for label in range(2):  # the two that all four positions can have
        logits, grey = model.images(z, torch.full((8,), label)), x.reshape(8, 784)
        pixels = (
            grey * logits.sigmoid().log() + (1 - grey) * (1 - logits.sigmoid()).log()
        )
        torch.testing.assert_close(costs[..., label].flatten(), kl - pixels.sum(-1))


def test_labels_that_no_sum_has_are_not_decoded(model: mnist.M2) -> None:
    tens = model.possible[model.possible[:, 0] == 2, 1]
    assert tens.tolist() == [0, 1]
    assert len(model.possible) == 32


def test_distorted_images_stay_images_and_differ() -> None:
    x = torch.zeros(16, 28, 28)
    x[:, 10:18, 10:18] = 1
    y = mnist.distorted(x)
    assert y.shape == x.shape
    assert y.min() >= 0
    assert y.max() <= 1
    centre = torch.arange(28.0)
    middle = (y.sum(1) * centre).sum(1) / y.sum((1, 2))
    assert middle.std() > 0.5
    assert (middle - 13.5).abs().max() < 3, "moved by two pixels and a little"


def test_accuracy_with_and_without_renaming() -> None:
    labels = torch.arange(10).repeat(3)
    named, renamed = torch.eye(10)[labels], torch.eye(10)[(labels + 1) % 10]
    assert mnist.accuracy(named, labels) == (1.0, 1.0)
    assert mnist.accuracy(renamed, labels) == (0.0, 1.0)


def test_the_rule_alone_names_the_digits(fit: Fit) -> None:
    """No label is given; every test image gets its own."""
    line = fit(*MLP, "--quadruples", "1920", "--label-epochs", "4", "--epochs", "1")
    assert line["accuracy"] == 1.0
    assert line["evidence"] < -4.3
    assert Path("figures/mnist_multiplexnet_mlp.png").stat().st_size > 1000


@pytest.mark.parametrize("encoder", ["mlp", "cnn"])
@pytest.mark.parametrize("method", ["multiplexnet", "m2"])
def test_every_method_writes_its_line(fit: Fit, method: str, encoder: str) -> None:
    line = fit("--methods", method, "--encoders", encoder, *SHORT)
    assert (line["method"], line["encoder"], line["seed"]) == (method, encoder, 0)
    assert 0 <= line["accuracy"] <= line["accuracy_best_renaming"] <= 1
    assert 0 < line["elbo"] < 784 * math.log(2) + 50
    assert ("restarts" in line) == (method == "multiplexnet")


@pytest.mark.parametrize(
    "ablation",
    ["no-ratio-in-b", "full-initialisation", "no-augmentation", "joint", "paper"],
)
def test_ablations_write_to_a_file_of_their_own(fit: Fit, ablation: str) -> None:
    line = fit(*MLP, *SHORT, "--ablations", ablation, file="mnist-ablations")
    assert line["ablation"] == ablation
    assert ("accuracy_a" in line) == (ablation not in ("joint", "paper")), (
        "phase A was there, or was not"
    )
    assert not Path("results/mnist.jsonl").exists()


def test_few_rows_are_the_same_in_every_epoch() -> None:
    images, labels, *_ = tiny_digits.digits()
    few = mnist.FewRows(mnist.Digits(images, labels), 40, seed=3)
    generator = torch.Generator().manual_seed(0)
    epochs = [few.quadruples(100, generator) for _ in range(2)]
    assert not torch.equal(*epochs), "in another order"
    for rows in epochs:
        times = Counter(map(tuple, rows.tolist()))
        assert {*times} == {*map(tuple, few.rows.tolist())}
        assert {*times.values()} == {2, 3}
    cut = few.quadruples(30, generator)
    assert len({*map(tuple, cut.tolist())}) == 30, "none twice"


def test_few_rows_write_to_a_file_of_their_own(fit: Fit) -> None:
    line = fit(*MLP, *SHORT, "--fixed", "50", file="mnist-fixed")
    assert (line["encoder"], line["rows"], line["seed"]) == ("mlp", 50, 0)
    assert line["images"] <= 200
    assert 0 <= line["accuracy"] <= line["accuracy_best_renaming"] <= 1
    assert line["evidence_of_rows"] < 0.5
    assert not Path("results/mnist.jsonl").exists()
    assert Path("figures/mnist_fixed.png").stat().st_size > 1000


def test_the_rule_names_the_digits_of_few_fixed_rows(fit: Fit) -> None:
    options = ("--quadruples", "1920", "--label-epochs", "4", "--fixed", "200")
    line = fit(*MLP, *options, file="mnist-fixed")
    assert line["accuracy"] > 0.95
    assert line["evidence_of_rows"] < -4.3


@pytest.mark.parametrize("stop", [2, 6, 12])
def test_a_killed_run_ends_with_the_same_line(
    fit: Fit, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two attempts at phase A, two epochs of two steps each, and two of phase B: killed in the second epoch of each."""
    options = (*MLP, *SHORT, "--restarts", "1", "--stuck", "-9")
    whole = fit(*options)
    assert whole["restarts"] == 1
    Path("results/mnist.jsonl").unlink()
    real, steps = harness.Run.check, iter(range(stop + 1))

    def check(run: harness.Run, loss: torch.Tensor) -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        real(run, loss)

    with monkeypatch.context() as patched:
        patched.setattr(harness.Run, "check", check)
        with pytest.raises(SystemExit) as ended:
            fit(*options)
    assert ended.value.code == 130
    assert fit(*options, "--resume") == whole


def test_two_processes_train_both_phases(tmp_path: Path) -> None:
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        tiny_digits.__file__,
    ]
    options = [*TINY, *MLP, *SHORT]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*launch, *options],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=120,
        env=environment,
    )
    (line,) = harness.read(tmp_path / "results/mnist.jsonl")
    assert math.isfinite(line["elbo"])
    assert 0 <= line["accuracy"] <= 1


@pytest.mark.skipif(
    "MULTIPLEXNET_DATA" not in os.environ,
    reason="set MULTIPLEXNET_DATA to a folder with mnist/",
)
def test_real_digits_are_named_by_the_rule_alone(tmp_path: Path) -> None:
    """Half a phase A of the MLP: more than nine test images in ten have their own label, and the meter says so."""
    images, labels, test, test_labels = data.mnist()
    digits, held_out = (
        mnist.Digits(images[:55000], labels[:55000]),
        mnist.Digits(images[55000:], labels[55000:]),
    )
    settings = mnist.Settings(
        checkpoints=tmp_path, results=tmp_path, quadruples=10240, label_epochs=4
    )
    with harness.Results("mnist", settings).run({"seed": 0}) as run:
        plan = mnist.phases("multiplexnet", "none")
        net, evidence, restarts = mnist.learned_labels(
            run, "mlp", plan, digits, held_out, settings
        )
        right, _ = mnist.accuracy(
            mnist.all_labels(net, mnist.Digits(test, test_labels), run.device),
            test_labels,
        )
    assert right > 0.9
    assert evidence < -3.9
    assert restarts == 0
