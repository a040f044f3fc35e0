"""What the experiments share: a killed run ends as if it had not been, two processes are one, faults are named."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data
import harness
import pytest
import tables
import torch
import toy_experiment as toy

TOY = Path(toy.__file__)
Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run the toy experiment with options; the line that it wrote, without its seconds."""
    monkeypatch.chdir(tmp_path)

    def run(*options: str) -> dict[str, Any]:
        harness.command(
            toy.Settings,
            toy.main,
            ["--results", "results", "--kinds", "noisy", *options],
        )
        (line,) = harness.read(Path("results/toy.jsonl"))
        return {name: value for name, value in line.items() if name != "seconds"}

    return run


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_a_killed_run_goes_on_and_ends_with_the_same_result(
    fit: Fit, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit("--epochs", "5")
    Path("results/toy.jsonl").unlink()
    with pytest.raises(SystemExit) as ended:
        fit("--epochs", "5", "--stop-after", str(stop))
    assert ended.value.code == 130
    repeated: set[int] = set()
    monkeypatch.setattr(
        harness.Run, "check", lambda self, loss: repeated.add(self.epoch)
    )
    assert fit("--epochs", "5", "--resume") == whole
    assert repeated == {*range(stop, 5)}, "finished epochs are not repeated"


def test_a_finished_run_is_skipped_with_resume_and_repeated_without(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    first = fit()
    capsys.readouterr()
    assert fit("--resume") == first
    assert capsys.readouterr().out == ""
    fit()
    assert json.loads(capsys.readouterr().out)["weights"] == first["weights"]


def test_what_is_kept_is_found_again_and_checkpoints_are_gone(fit: Fit) -> None:
    line = fit()
    results = harness.Results("toy", toy.Settings(results=Path("results")))
    kept = results.kept({"kind": "noisy", "seed": 0})
    assert kept["weight"].flatten().tolist() == line["weights"]
    assert [point["epoch"] for point in kept["curve"]] == [0, 1, 2, 3]
    assert [path.name for path in Path("out/checkpoints/toy").iterdir()] == [
        "kind=noisy-seed=0.kept.pt"
    ]


def test_a_loss_that_is_no_number_stops_with_step_and_checkpoint(fit: Fit) -> None:
    with pytest.raises(SystemExit) as ended:
        fit("--learning-rate", "1e60", "--epochs", "9")
    assert "at step 4 (epoch 2)" in str(ended.value.code)
    assert "noisy-seed=0.train.0of1.pt (1 epochs)" in str(ended.value.code)
    assert Path("out/checkpoints/toy/kind=noisy-seed=0.train.0of1.pt").exists()


@pytest.mark.parametrize(
    "option", ["--bogus", "--kinds=other", "--epochs=many", "--epoch=3"]
)
def test_an_unknown_option_prints_the_usage(
    fit: Fit, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        fit(option)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_quick_is_a_start_from_which_options_depart() -> None:
    assert harness.parsed(toy.Settings, []).learning_rate == 0.1
    assert harness.parsed(toy.Settings, ["--quick"]).learning_rate == 0.01
    assert (
        harness.parsed(
            toy.Settings, ["--quick", "--learning-rate", "0.5"]
        ).learning_rate
        == 0.5
    )
    assert harness.parsed(toy.Settings, ["--seeds", "3", "4"]).seeds == (3, 4)
    assert harness.parsed(toy.Settings, ["--quick"]).results_folder == Path("out")


def test_two_processes_fit_what_one_fits(tmp_path: Path) -> None:
    """Gradients are averaged over the halves of each batch: the same steps, up to the order of a sum."""
    for launch, folder in (
        ([sys.executable], "one"),
        ([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"], "two"),
    ):
        subprocess.run(
            [*launch, str(TOY), "--results", folder],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            timeout=120,
        )
    (one,), (two,) = (
        harness.read(tmp_path / folder / "toy.jsonl") for folder in ("one", "two")
    )
    assert two["weights"] == pytest.approx(one["weights"], rel=1e-12)


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data, no network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MULTIPLEXNET_DATA", raising=False)
    for address in ("MNIST_HOME", "CIFAR_HOME"):
        monkeypatch.setattr(data, address, "http://127.0.0.1:9/none")
    return tmp_path


@pytest.mark.parametrize(
    ("loader", "name"),
    [
        (data.mnist, "train-images-idx3-ubyte.gz"),
        (data.cifar100, "train.bin"),
        (data.sushi, "sushi.soc"),
        (data.grid_paths, "paths.txt"),
    ],
)
def test_missing_data_say_which_file_where_and_what_to_do(
    nowhere: Path, loader: Callable[..., Any], name: str
) -> None:
    with pytest.raises(harness.ExperimentError) as error:
        loader(nowhere / "given")
    for part in (
        name,
        str(nowhere / "given"),
        str(nowhere / "cache"),
        "MULTIPLEXNET_DATA",
    ):
        assert part in str(error.value)


def test_a_damaged_file_is_told_by_its_checksum(nowhere: Path) -> None:
    path = nowhere / "mnist" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"not an image"))
    with pytest.raises(
        harness.ExperimentError,
        match=r"damaged: its SHA-256 is [0-9a-f]{16}…, not 440fcabf73cc546f…",
    ):
        data.mnist(nowhere)


def test_images_are_read_as_they_were_written(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiny files in the official formats, read back."""
    monkeypatch.setattr(data, "_verified", lambda path, name: path)
    (nowhere / "mnist").mkdir()
    (nowhere / "cifar100").mkdir()
    digits = torch.arange(2 * 28 * 28).reshape(2, 28, 28).to(torch.uint8)
    for name in data.SHA256:
        path = nowhere / name
        if not name.startswith(("mnist", "cifar100")):
            continue
        if "images" in name:
            path.write_bytes(
                gzip.compress(
                    bytes(
                        [
                            0,
                            0,
                            8,
                            3,
                            0,
                            0,
                            0,
                            2,
                            0,
                            0,
                            0,
                            28,
                            0,
                            0,
                            0,
                            28,
                            *digits.flatten().tolist(),
                        ]
                    )
                )
            )
        elif "labels" in name:
            path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 3])))
        else:
            path.write_bytes(bytes([4, 99, *(i % 251 for i in range(3072))]))
    images, labels, *_ = data.mnist(nowhere)
    assert torch.equal(images, digits)
    assert labels.tolist() == [7, 3]
    (pictures, fine, coarse), _ = data.cifar100(nowhere)
    assert pictures.flatten().tolist() == [i % 251 for i in range(3072)]
    assert (fine.tolist(), coarse.tolist()) == ([99], [4])


def test_rankings_and_paths_are_read_as_they_were_written(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_verified", lambda path, name: path)
    for name, text in (
        ("sushi/sushi.soc", "3\n1,a\n2,b\n3,c\n4,4,2\n3,3,1,2\n1,2,3,1\n"),
        ("grid_paths/paths.txt", "21-12,3-9,2-1,4\n"),
    ):
        (nowhere / name).parent.mkdir()
        (nowhere / name).write_text(text, encoding="utf-8")
    assert data.sushi(nowhere).tolist() == [[2, 0, 1], [1, 2, 0]]
    assert data.grid_paths(nowhere) == [([21, 12], [3, 9], [[2, 1], [4]])]


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_mean_comes_with_its_standard_error_where_it_has_one() -> None:
    assert harness.spread([1.0, 1.5, 0.5], sign="+") == "+1.00 ± 0.29"  # 0.5 / √3
    assert harness.spread([2.25], 1) == "2.2"
    assert harness.spread([]) == "–"


def test_the_tables_of_the_readme_are_those_of_the_results() -> None:
    text = tables.README.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run python experiments/tables.py"
    shown = re.findall(r"<!-- ([\w-]+) -->\n", text.replace("<!-- end -->", ""))
    assert sorted(shown) == sorted(filter(tables.is_measured, tables.TABLES))
