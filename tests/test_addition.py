"""Digits from sums: the columns of an addition, what is predicted, what is known of rows, runs on tiny digits."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import addition
import data
import harness
import mnist
import pytest
import tables
import tiny_digits
import torch
from mnist import Digits

Fit = Callable[..., list[dict[str, Any]]]
TINY = [
    "--results",
    "results",
    "--figures",
    "figures",
    "--encoders",
    "mlp",
    "--validation",
    "100",
]


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run the experiment on tiny digits; its lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "mnist", tiny_digits.digits)

    def run(*options: str) -> list[dict[str, Any]]:
        harness.command(addition.Settings, addition.main, [*TINY, *options])
        return harness.read(Path("results/addition.jsonl"))

    return run


def test_the_probability_of_a_sum_is_that_of_all_its_addends() -> None:
    log_q = torch.randn(3, 2, 2, 10).log_softmax(-1)
    digits = torch.tensor([[0, 3, 4], [1, 0, 0], [1, 9, 8]])
    for row, total in enumerate((34, 100, 198)):
        numbers = [
            (a, b)
            for a, b in product(product(range(10), repeat=2), repeat=2)
            if 10 * (a[0] + b[0]) + a[1] + b[1] == total
        ]
        chances = [
            sum(
                log_q[row, n, p, number[p]]
                for n, number in enumerate(pair)
                for p in (0, 1)
            )
            for pair in numbers
        ]
        expected = torch.stack([torch.as_tensor(chance) for chance in chances])
        found = addition.log_sum(log_q, digits)[row]
        assert float(found) == pytest.approx(float(expected.logsumexp(0)), abs=1e-3)


@pytest.mark.parametrize("places", [1, 2])
def test_the_weight_of_all_additions_of_shown_sums(places: int) -> None:
    log_q = torch.randn(2, 3 * places + 1, 10).log_softmax(-1)
    low = 10**places
    sums = [
        [int(digit) for digit in f"{a:0{places}}{b:0{places}}{a + b:0{places + 1}}"]
        for a, b in product(range(low), repeat=2)
    ]
    each = [log_q[:, range(3 * places + 1), row].sum(-1) for row in sums]
    expected = -torch.stack(each).logsumexp(0).mean()
    found = addition.free_loss(log_q, "likelihood")
    assert float(found) == pytest.approx(float(expected), abs=1e-3)


def test_the_evidence_of_shown_sums_of_one_digit_is_that_of_quadruples() -> None:
    log_q = torch.randn(50, 4, 10).log_softmax(-1)
    found = addition.free_loss(log_q, "evidence")
    assert float(found) == pytest.approx(float(mnist.evidence_ratio()(log_q)), abs=1e-4)


@pytest.mark.parametrize("case", ["free-1", "free-2", "free-4"])
def test_labels_that_are_all_alike_obey_and_are_worth_nothing(
    case: addition.Case,
) -> None:
    images, labels, *_ = tiny_digits.digits()
    rows = addition.rows_of(case, Digits(images, labels), 0)
    truth, zeros = (
        addition.seen(each, 10) for each in (rows.labels, torch.zeros_like(rows.labels))
    )
    for log_q in (truth, zeros):
        obeys = addition.free_loss(log_q, "likelihood")
        assert float(obeys) == pytest.approx(0, abs=1e-3)
    perfect = -(addition.places_of(case) + 1) * math.log(10)
    ratios = [float(addition.free_loss(log_q, "evidence")) for log_q in (truth, zeros)]
    assert ratios[0] == pytest.approx(perfect, abs=0.3)
    assert ratios[1] > -1e-3


@pytest.mark.parametrize(
    ("case", "relabellings", "shortcuts"),
    [
        *((f"sum-{places}", 1, 0) for places in (1, 2, 4)),
        *((f"free-{places}", 1, 1) for places in (1, 2, 4)),
        ("parity", 28_800, 2 * 5**10 - 1),
        ("half", 1, 2),
    ],
)
def test_what_is_predicted(
    case: addition.Case, relabellings: int, shortcuts: int
) -> None:
    """Of parity: the even digits among themselves, the odd ones, and both kinds swapped, 2 · (5!)²."""
    assert addition.prediction(case).order == relabellings
    assert addition.shortcuts(case).count == shortcuts


def test_predictions_are_written_and_nothing_is_trained(fit: Fit) -> None:
    assert fit("--predict", "--cases", "half") == []
    (line,) = harness.read(Path("results/addition-predicted.jsonl"))
    wrong = [[0, 1, 3, 2, 3], [0, 1, 4, 1, 2]]
    assert line == {"case": "half", "relabellings": 1, "shortcuts": 2, "first": wrong}


def test_half_of_the_sums_leave_two_shortcuts_that_the_evidence_ratio_notices() -> None:
    wrong = [maps for (maps,) in addition.shortcuts("half")]
    assert wrong == [(0, 1, 3, 2, 3), (0, 1, 4, 1, 2)]
    pairs = torch.tensor(addition.HALF)
    known = pairs.sum(-1, keepdim=True)
    losses = []
    for labels in ((0, 1, 2, 3, 4), *wrong):
        log_q = addition.seen(torch.tensor(labels)[pairs].unsqueeze(-1), 10)
        likelihood = addition.known_loss(log_q, known, "half", "likelihood")
        assert float(likelihood) == pytest.approx(0, abs=1e-4), "sums tell nothing"
        losses.append(float(addition.evidence(log_q, known)))
    assert min(losses[1:]) > losses[0] + 0.2


def test_the_one_shortcut_of_shown_sums_calls_everything_zero() -> None:
    for case in ("free-1", "free-2", "free-4"):
        assert [*addition.shortcuts(case)] == [((0,) * 10,)]


def test_every_stored_run_ended_as_was_predicted() -> None:
    """In a map of digits to labels that keeps what is known: the identity, or one of the shortcuts."""
    for line in harness.read(tables.RESULTS / "addition.jsonl"):
        ended = tables.ended(line)
        assert addition.shortcuts(line["case"]).keeps([ended]), line


def test_the_map_that_labels_follow() -> None:
    digits = torch.tensor([[0, 1], [2, 2], [2, 1]])
    labels = torch.tensor([[0, 1], [7, 7], [2, 1]])
    found = addition.followed(digits, labels)
    assert found["map"] == [0, 1, 7]
    assert found["follow_map"] == pytest.approx(5 / 6)


def test_a_confusion_counts_labels_by_digit() -> None:
    digits, labels = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([0, 1, 3, 2, 3, 4])
    shares = torch.tensor(addition.confusion(digits, labels))
    assert shares[2].tolist() == [0, 0, 0, 1, 0]
    assert shares[4].tolist() == [0, 0, 0, 0.5, 0.5]


def test_the_probability_of_a_parity() -> None:
    log_q = torch.randn(1, 2, 1, 10).log_softmax(-1)
    p = log_q.exp()[0, :, 0]
    odd = sum(p[0, a] * p[1, b] for a in range(10) for b in range(10) if (a + b) % 2)
    loss = addition.known_loss(log_q, torch.tensor([[1]]), "parity", "likelihood")
    assert float(loss) == pytest.approx(-float(torch.as_tensor(odd).log()), abs=1e-5)


@pytest.mark.parametrize("case", ["free-1", "free-2", "free-4"])
def test_shown_sums_are_right(case: addition.Case) -> None:
    images, labels, *_ = tiny_digits.digits()
    rows = addition.rows_of(case, Digits(images, labels), 0)
    places = addition.places_of(case)
    for row in rows.labels.tolist():
        text = "".join(map(str, row))
        a, b = int(text[:places]), int(text[places : 2 * places])
        assert a + b == int(text[2 * places :])
    assert bool((rows.known == 1).all())
    wrong = rows.labels.clone()
    wrong[:, 0] = (wrong[:, 0] + 1) % 10
    assert bool((addition.known_of(case, wrong) == 0).all())


@pytest.mark.parametrize("case", ["sum-1", "sum-2", "sum-4", "parity", "half"])
def test_rows_are_what_they_are_said_to_be(case: addition.Case) -> None:
    images, labels, *_ = tiny_digits.digits()
    rows = addition.rows_of(case, Digits(images, labels), 0)
    numbers = [[int("".join(map(str, n))) for n in row] for row in rows.labels.tolist()]
    for (a, b), known in zip(numbers, rows.known.tolist(), strict=True):
        total = int("".join(map(str, known)))
        assert total == ((a + b) % 2 if case == "parity" else a + b)
        assert case != "half" or (a, b) in addition.HALF
    if case != "half":
        assert len({*rows.images.flatten().tolist()}) == rows.images.numel() > 590
    again = addition.rows_of(case, Digits(images, labels), 0)
    assert torch.equal(rows.images, again.images)


def test_sums_alone_name_the_digits(fit: Fit) -> None:
    (line,) = fit("--cases", "sum-1", "--epochs", "12", "--images", "32")
    assert line["digits"] == 1
    assert line["accuracy"] == 1
    assert line["relabellings"] == 1


def test_shown_sums_alone_name_the_digits(fit: Fit) -> None:
    (line,) = fit(
        *("--cases", "free-2", "--methods", "evidence"),
        *("--epochs", "20", "--free-images", "210"),
    )
    assert line["digits"] > 0.95
    assert line["map"] == [*range(10)]
    assert line["predicted"]
    assert line["evidence"] < 0.9 * line["evidence_of_truth"]


def test_every_case_writes_its_lines(fit: Fit) -> None:
    lines = fit("--epochs", "1")
    found = [(line["case"], line["method"]) for line in lines]
    cases = addition.Case.__args__  # type: ignore[attr-defined]
    both = {"half", "free-1", "free-2", "free-4"}
    expected = [
        (case, method)
        for case in cases
        for method in ("likelihood", "evidence")
        if method == "likelihood" or case in both
    ]
    assert found == expected
    for line in lines:
        assert 0 <= line["accuracy"] <= 1
        assert 0 <= line["digits"] <= 1
        assert ("evidence" in line) == (line["case"] in both)
    assert Path("figures/addition_half.png").stat().st_size > 1000


def test_a_curve_takes_as_many_steps_with_few_rows(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """250 rows of ten images a step are 25 steps; 12 passes over 20 rows and 4 over 60 are 24 each."""
    steps: list[int] = []
    check = harness.Run.check

    def counted(run: harness.Run, loss: torch.Tensor) -> None:
        steps.append(run.key["rows"])
        check(run, loss)

    monkeypatch.setattr(harness.Run, "check", counted)
    options = ("--cases", "sum-1", "--images", "20", "--epochs", "1")
    fit(*options, "--curve", "20", "60")
    lines = harness.read(Path("results/addition-curve.jsonl"))
    assert [line["rows"] for line in lines] == [20, 60]
    assert (steps.count(20), steps.count(60)) == (24, 24)
    assert not Path("results/addition.jsonl").exists()


@pytest.mark.skipif(
    "MULTIPLEXNET_DATA" not in os.environ,
    reason="set MULTIPLEXNET_DATA to a folder with mnist/",
)
def test_quick_on_real_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harness.command(addition.Settings, addition.main, ["--quick"])
    lines = harness.read(Path("out/addition.jsonl"))
    assert [line["case"] for line in lines] == ["sum-1", "half", "half"]
    assert lines[2]["evidence"] > lines[2]["evidence_of_truth"] - 0.1
