"""The six rectangles: data, bounds and densities mean what they say, and every method runs, stops and goes on."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import harness
import pytest
import synthetic
import torch
from torch import Tensor, nn

import multiplexnet as mx

TINY = (
    "--sizes",
    "20",
    "--validation",
    "30",
    "--test",
    "40",
    "--importance",
    "50",
    "--prior",
    "50",
    "--draws",
    "2",
)
VALUES = (
    "elbo",
    "nll",
    "satisfied",
    "prior_satisfied",
    "sample_satisfied",
    "energy",
    "means_energy",
    "thickness",
    "means_thickness",
)
Fit = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fit:
    """Run the experiment with options; its lines, without their seconds."""
    monkeypatch.chdir(tmp_path)
    folders = ("--results", "results", "--figures", "figures")

    def run(*options: str) -> list[dict[str, Any]]:
        harness.command(
            synthetic.Settings,
            synthetic.main,
            [*folders, *TINY, "--seeds", "3", *options],
        )
        lines = harness.read(Path("results/synthetic.jsonl"))
        return [
            {name: value for name, value in line.items() if name != "seconds"}
            for line in lines
        ]

    return run


# --- data and rules


def test_data_lie_in_six_equal_rectangles_and_obey_exactly() -> None:
    x = synthetic.points(12_000, seed=5)
    angle = torch.atan2(x[:, 1], x[:, 0]) * 4 / math.pi
    counts = torch.bincount(angle.round().long() % 8, minlength=8)
    assert counts[[2, 6]].tolist() == [0, 0]
    assert (counts[list(synthetic.WITH_DATA)] - 2000).abs().max() < 5 * 41, (
        "five standard deviations"
    )
    assert synthetic.rules().satisfied(x).all()
    assert float(x.norm(dim=1).max()) < math.hypot(5.5, 0.5)


def test_the_entropy_is_that_of_the_data() -> None:
    """Each rectangle has 1/6 of the mass; within it the density falls with |x|² / 50."""
    assert synthetic.entropy() == pytest.approx(2.881, abs=5e-4)
    along, across = (
        torch.linspace(a, b, 501, dtype=torch.float64)
        for a, b in ((2.5, 5.5), (-0.5, 0.5))
    )
    density = (-torch.cartesian_prod(along, across).square().sum(-1) / 50).exp()
    density = density / density.mean() / (6 * 3.0 * 1.0)
    assert synthetic.entropy() == pytest.approx(
        -float((density.log() * density).mean()) * 18, abs=0.01
    )


def test_the_rules_are_eight_terms_that_share_no_point() -> None:
    terms = synthetic.layer(torch.float64).terms
    assert len(terms) == 8
    grid = torch.linspace(-7, 7, 281, dtype=torch.float64)
    x = torch.cartesian_prod(grid, grid)
    inside = torch.stack(
        [mx.Rules(f"x: real; y: real\n{r.text}").satisfied(x) for r in synthetic.KNOWN]
    )
    assert torch.equal(inside.any(0), synthetic.rules().satisfied(x))
    assert inside.sum(0).max() == 1


# --- models


def autoencoders() -> list[synthetic.Autoencoder]:
    return [
        synthetic.Plain(1),
        synthetic.Published(1),
        synthetic.SharedRaw(1),
        synthetic.Conditional(1),
        synthetic.Conditional(1, "conditional-prior"),
        synthetic.Conditional(1, "raw-per-term"),
        synthetic.Conditional(1, "bound"),
    ]


@pytest.mark.parametrize(
    "model", autoencoders(), ids=lambda model: type(model).__name__
)
def test_both_bounds_agree_with_an_integral_where_there_is_one(
    model: synthetic.Autoencoder,
) -> None:
    """A decoder that ignores z makes p(x) a mixture of K Gaussians, and a posterior that is the prior has no gap."""
    with torch.no_grad():
        for net, last in ((model.encoder, 0.0), (model.decoder, 2.0)):
            layer = net[-1]
            assert isinstance(layer, nn.Linear)
            layer.weight.zero_()
            layer.bias.copy_(torch.linspace(-last / 2, last, len(layer.bias)))
        x = synthetic.points(50, seed=2)
        centres, log_p = model.eval().centres(torch.zeros(model.latent))
        gaussians = torch.distributions.MultivariateNormal(
            centres, torch.eye(2) / (2 * synthetic.PRECISION)
        )
        log_density: Tensor = gaussians.log_prob(x.unsqueeze(-2))  # type: ignore[no-untyped-call]
        exact = -float(torch.logsumexp(log_density + log_p, -1).mean())
        assert model.from_posterior(x, 7) == pytest.approx(exact, rel=1e-5)
        assert model.from_prior(x, 30) == pytest.approx(exact, rel=1e-4)
        assert float(model.bound(x, 3).mean()) >= exact - 1e-4
        chooses_by_encoder = model.posterior(x).choice.shape[-1] > 0
        if (
            not chooses_by_encoder
        ):  # q(k|x) of the encoder is uniform here, far from p(k|x)
            assert float(model.bound(x, 3).mean()) == pytest.approx(exact, rel=1e-5)


def test_the_exact_density_starts_uniform_integrates_to_one_and_samples_what_it_says() -> (
    None
):
    model = synthetic.Density(rows=10)
    with torch.no_grad():
        model.law.places.zero_()
        x = synthetic.points(20, seed=1)
        assert model.bound(x, 1).tolist() == pytest.approx(
            [math.log(8 * 3.5)] * 20, abs=1e-5
        ), "areas differ by 4e-6"
        model.law.places.normal_()
        model.law.log_scales.uniform_(
            -0.6, 0.0
        )  # thin tails, so that sums on a grid converge
        model.logits.normal_()
        middles = -6.4 + 0.04 * (torch.arange(320, dtype=torch.float64) + 0.5)
        grid = torch.cartesian_prod(middles, middles)
        grid = grid[synthetic.rules().satisfied(grid)]
        mass = (-model.bound(grid, 1)).exp() * 0.04**2
        assert float(mass.sum()) == pytest.approx(1.0, abs=0.02)
        samples = model.samples(4000)
        assert synthetic.rules().satisfied(samples).all()
        for axis, least in ((0, 3.0), (0, -1.0), (1, 0.0), (1, -3.0)):
            share = float((samples[:, axis] > least).double().mean())
            assert share == pytest.approx(
                float(mass[grid[:, axis] > least].sum()), abs=0.04
            )


def test_noise_inside_the_map_has_an_exact_density_and_samples_that_obey() -> None:
    torch.manual_seed(0)
    model = synthetic.Inside(1).eval()
    with torch.no_grad():
        z = torch.randn(model.latent)
        middles = -6.4 + 0.02 * (torch.arange(640, dtype=torch.float64) + 0.5)
        grid = torch.cartesian_prod(middles, middles)
        grid = grid[synthetic.rules().satisfied(grid)].float()
        mass = (
            model.log_likelihood(grid, z.expand(len(grid), -1)).double().exp() * 0.02**2
        )
        assert float(mass.sum()) == pytest.approx(1.0, abs=0.02)
        centres, log_p = model.centres(z.expand(4000, -1))
        samples = synthetic.picked(centres, log_p)
        assert synthetic.rules().satisfied(samples).all()
        assert torch.equal(model.noisy(samples), samples)
        for axis, least in ((0, 3.0), (0, -1.0), (1, 0.0), (1, -3.0)):
            share = float((samples[:, axis] > least).double().mean())
            assert share == pytest.approx(
                float(mass[grid[:, axis] > least].sum()), abs=0.04
            )


def test_every_row_of_data_belongs_to_the_term_whose_rectangle_holds_it() -> None:
    x = synthetic.points(500, seed=4)
    terms = synthetic.terms_of(x)
    held = synthetic.layer(torch.float64).terms
    for row, term in zip(x[:50].double(), terms[:50].tolist(), strict=True):
        rules = mx.Rules(
            f"x: real; y: real\n{synthetic.KNOWN[synthetic.rectangles_of_terms()[term]].text}"
        )
        assert rules.satisfied(row)
    assert len(held) == len(set(synthetic.rectangles_of_terms()))


def test_the_trivial_baseline_knows_the_rules_and_nothing_else() -> None:
    model = synthetic.Uniform()
    x = synthetic.points(10, seed=0)
    assert model.bound(x, 1).tolist() == pytest.approx([math.log(28)] * 10, abs=1e-5)
    samples = model.samples(3000)
    assert float(synthetic.rules().satisfied(samples).double().mean()) > 0.99


def test_counting_says_how_many_rows_lie_in_each_rectangle() -> None:
    rows = synthetic.points(600, 0)
    model = synthetic.Uniform()
    model.count(rows)
    held = [
        mx.Rules(f"x: real; y: real\n{r.text}").satisfied(rows).sum().item()
        for r in synthetic.KNOWN
    ]
    assert sum(held) == 600
    expected = [(count + 1) / 608 for count in held]
    assert model.weights.tolist() == pytest.approx(expected)
    densities = model.weights / model.areas
    assert model.bound(rows, 1).mean() == pytest.approx(
        -sum(n * math.log(d) for n, d in zip(held, densities, strict=True)) / 600
    )
    assert synthetic.rules().satisfied(model.samples(500)).all()


def test_the_authors_map_leaves_a_point_deep_inside_its_rectangle_where_it_is() -> None:
    model = synthetic.Published(1)
    x = torch.tensor([4.25, 0.0])
    model.decoder = nn.Sequential(nn.Identity())
    near = model.centres(x)[0][0]
    assert float((near - x).abs().max()) < 0.2


def test_a_learned_prior_leaves_little_to_rectangles_without_data() -> None:
    torch.manual_seed(0)
    model = synthetic.Published(1, learned=True)
    rows = synthetic.points(200, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(200):
        optimizer.zero_grad()
        model(rows).backward()
        optimizer.step()
    prior = model.prior.detach().softmax(-1)
    empty = [k for k in range(8) if k not in synthetic.WITH_DATA]
    assert float(prior[empty].sum()) < 0.05
    assert not synthetic.Published(1).prior.requires_grad


def test_the_thickness_of_data_and_of_a_curve() -> None:
    x = synthetic.points(5000, seed=1)
    assert synthetic.thickness(x) == pytest.approx(0.29, abs=0.01)
    frame = synthetic.frames(torch.float64)
    along = torch.linspace(0, 1, 50, dtype=torch.float64)
    place = torch.stack([along, torch.full_like(along, 0.3)], -1)
    line = (frame.low[0] + place * frame.width[0]) @ frame.turn[0]
    assert synthetic.thickness(line) == pytest.approx(0, abs=1e-6)
    assert synthetic.thickness(torch.cat([line, line + 100])) < 1e-6, "none beyond"
    assert synthetic.thickness(torch.full((5, 2), 100.0)) == 0


def test_the_energy_distance_of_equal_and_of_shifted_rows() -> None:
    x = synthetic.points(800, seed=1)
    assert synthetic.energy_distance(x, x) == pytest.approx(0.0, abs=1e-9)
    assert synthetic.energy_distance(x, synthetic.points(800, seed=2)) < 0.02
    assert synthetic.energy_distance(x + 3.0, x) > 0.5


def test_dl2_pays_for_broken_rules_in_training_only() -> None:
    model = synthetic.Plain(1, weight=50.0)
    x = synthetic.points(10, seed=0)
    q = model.posterior(x)
    z = q.draw(1)[0]
    plain = model.eval().cost(x, z, q)
    assert (model.train().cost(x, z, q) > plain + 1).all(), (
        "an untrained decoder is far from all rectangles"
    )
    torch.testing.assert_close(plain, -model.log_likelihood(x, z))


# --- runs


def test_every_method_writes_its_line_and_the_pictures(
    fit: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = fit("--epochs", "2")
    assert [line["method"] for line in lines] == list(synthetic.METHODS)
    for line in lines:
        assert list(line) == ["method", "n", "seed", *VALUES]
        assert line["nll"] <= line["elbo"]
        if line["method"].startswith("multiplexnet"):
            assert (line["satisfied"], line["prior_satisfied"]) == (1.0, 1.0)
    assert {path.name for path in Path("figures").iterdir()} == {
        "synthetic_curves.png",
        "synthetic_samples_20.png",
        "synthetic_sizes.png",
    }
    printed = capsys.readouterr().out
    assert printed.count("multiplexnet-density") == 2, (
        "in a line of JSON and in the table"
    )
    assert "figures/synthetic_curves.png" in printed


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say what the validation bound will be after each of the next epochs; None is Ctrl-C."""
    monkeypatch.setattr(synthetic, "figures", lambda *_: [])

    def say(*values: float | None) -> None:
        following = iter(values)

        def validated(*_: Any) -> float:
            if (value := next(following)) is None:
                raise KeyboardInterrupt
            return value

        monkeypatch.setattr(synthetic, "validated", validated)

    return say


def test_without_each_ingredient_ours_still_obeys(fit: Fit) -> None:
    ingredients = get_args(synthetic.Ingredient)
    fit("--without", *ingredients, "--epochs", "1")
    lines = harness.read(Path("results/synthetic-without.jsonl"))
    assert [line["without"] for line in lines] == list(ingredients)
    assert {line["satisfied"] for line in lines} == {1.0}
    assert len({line["elbo"] for line in lines}) == len(ingredients)


def test_ours_takes_the_best_epoch_and_the_published_recipe_the_last(
    fit: Fit, bounds: Callable[..., None]
) -> None:
    for method, counts in (("multiplexnet", True), ("vae", False)):
        lines = []
        for values in ((2.0, 1.0), (1.0, 2.0)):
            bounds(*values)
            lines.append(fit("--methods", method, "--epochs", "2")[-1])
        assert (lines[0]["elbo"] != lines[1]["elbo"]) == counts


@pytest.mark.parametrize("method", ["multiplexnet", "multiplexnet-density"])
def test_a_killed_run_ends_with_the_same_line(
    fit: Fit, method: str, bounds: Callable[..., None]
) -> None:
    options = ("--methods", method, "--epochs", "3")
    bounds(1.0, 2.0, 3.0)
    whole = fit(*options)
    Path("results/synthetic.jsonl").unlink()
    bounds(1.0, None)
    with pytest.raises(SystemExit) as ended:
        fit(*options)
    assert ended.value.code == 130
    bounds(2.0, 3.0)
    assert fit(*options, "--resume") == whole


def test_a_diverging_run_names_step_and_checkpoint(fit: Fit) -> None:
    with pytest.raises(SystemExit) as ended:
        fit("--methods", "multiplexnet", "--rate", "1e30")
    text = str(ended.value.code)
    assert "at step" in text
    assert "last good checkpoint" in text
    assert not Path("results/synthetic.jsonl").exists()


def test_two_processes_write_one_line(tmp_path: Path) -> None:
    script = [
        synthetic.__file__,
        *TINY,
        "--seeds",
        "3",
        "--methods",
        "multiplexnet",
        "--epochs",
        "1",
    ]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        *script,
    ]
    folders = ["--results", "results", "--figures", "figures"]
    subprocess.run(
        [*launch, *folders], cwd=tmp_path, check=True, capture_output=True, timeout=600
    )
    (line,) = (tmp_path / "results" / "synthetic.jsonl").read_text().splitlines()
    assert json.loads(line)["satisfied"] == 1.0
