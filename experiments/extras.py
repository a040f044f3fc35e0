"""What the paper leaves open, each in a minute or two: small experiments, one a part.

* ``epochs``: how many outputs obey after each epoch of training, for the methods of ``synthetic.py`` (the paper's
  Fig. 2b);
* ``terms``: the same task with 2 to 10,000 terms: what is learned in as many steps, and what a step costs;
* ``estimators``: ways to train a choice among 256 terms: the exact sum, and estimates of it;
* ``wrong``: training rows that break the rules, and rules that are wrong: what is lost, how it is seen, what helps;
* ``attack``: inputs that are changed so as to break a rule;
* ``mixed``: whole numbers, truth values and reals in one density;
* ``generators``: a flow and a GAN with and without the layer (``generators.py``).

Each draws its own data. A line of the results has ``part``, ``method``, ``seed`` and what the part measures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple, Self

import harness
import synthetic
import torch
from generators import GENERATORS, generated
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

import multiplexnet as mx
from multiplexnet.compiler.terms import Block, Compiled, Proof, Term
from multiplexnet.language.formula import Atom, Linear, Rule, Specification, Variable

Part = Literal[
    "epochs", "terms", "estimators", "wrong", "attack", "mixed", "generators"
]
FEATURES = 8


@dataclass(frozen=True)
class Settings(harness.Common):
    """Small experiments about what the paper leaves open."""

    seeds: tuple[int, ...] = harness.option((0, 1, 2), "one run for each")
    parts: tuple[Part, ...] = harness.option(Part.__args__, "which experiments")  # type: ignore[attr-defined]
    steps: int = harness.option(400, "of training, in all parts but epochs")
    batch: int = harness.option(64, "rows a step")
    rate: float = harness.option(5e-3, "learning rate of Adam, which falls to 0")
    counts: tuple[int, ...] = harness.option(
        (2, 10, 100, 1000, 10_000), "numbers of terms"
    )

    def for_quick(self) -> Self:
        parts = tuple(part for part in self.parts if part != "epochs")
        return replace(self, seeds=(0,), parts=parts, steps=5, counts=(2, 20))


def network(outputs: int) -> nn.Sequential:
    """The same for all parts."""
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, outputs))


def trained(
    run: harness.Run,
    parameters: Sequence[Tensor],
    loss: Callable[[int], Tensor],
    settings: Settings,
) -> float:
    """Adam with a falling rate; returns the processor seconds of a step."""
    optimizer = torch.optim.Adam(parameters, settings.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    began = time.process_time()
    for step in range(settings.steps):
        value = loss(step)
        run.check(value)
        optimizer.zero_grad()
        run.backward(value)
        optimizer.step()
        schedule.step()
    return (time.process_time() - began) / settings.steps


# --- epochs: how many obey -------------------------------------------------------------------------------------------

OBEYING: tuple[synthetic.Method, ...] = (
    "vae",
    "dl2",
    "multiplexnet-paper",
    "multiplexnet",
    "multiplexnet-inside",
)
SIZE = 100


def epochs_run(run: harness.Run) -> dict[str, Any]:
    """Train a method of ``synthetic.py`` on 100 rows; the share of reconstructions that obey, after every epoch."""
    settings = synthetic.Settings()
    data = synthetic.drawn(SIZE, run.key["seed"], settings)
    synthetic.trained(run, data, settings)
    return {"obey": [round(point["obey"], 4) for point in run.curve]}


# --- a task with any number of terms ---------------------------------------------------------------------------------

SPREAD = 0.02
"""The standard deviation of what is learned, as a share of the range: the scale of the loss."""


@cache
def intervals(count: int) -> mx.Multiplexer:
    """0 ≤ x ≤ 1 without gaps that are as wide as the intervals between them; terms are given, not searched for."""
    x = Variable("x", 0)
    width = Fraction(1, 2 * count - 1)

    def term(k: int) -> Term:
        low, high = 2 * k * width, (2 * k + 1) * width
        return Term((Atom(-Linear.of(x) + low, "<="), Atom(Linear.of(x) - high, "<=")))

    block = Block((x,), tuple(term(k) for k in range(count)))
    specification = Specification((x,), (Rule(block.formula, f"{count} intervals"),))
    rules = mx.Rules.from_specification(specification)
    given = Compiled((x,), (), (block,), Proof(True, True, "given", 0))
    return mx.Multiplexer.from_compiled(
        rules, given, max_terms=1 << 20, dtype=torch.float32
    )


class Positions(NamedTuple):
    """Features, and a position in one of the intervals that follows from them."""

    h: Tensor
    x: Tensor


def positions(count: int, rows: int, seed: int) -> Positions:
    """The position is smooth in the features, then moved to the nearest interval."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(rows, FEATURES, generator=generator)
    smooth = torch.sigmoid(h[:, 0] - h[:, 1] * h[:, 2])
    width = 1 / (2 * count - 1)
    k = (smooth / (2 * width)).round().clamp(0, count - 1)
    inside = (smooth - 2 * k * width).clamp(0.05 * width, 0.95 * width)
    return Positions(h, 2 * k * width + inside)


def expected_loss(
    branches: mx.Branches, x: Tensor, estimator: mx.estimators.Estimator | None = None
) -> Tensor:
    """The paper's Eq. 9 for a Gaussian error."""

    def error(values: Tensor) -> Tensor:
        away = (values.squeeze(-1) - x.unsqueeze(-1)) / SPREAD
        return away.square() / 2

    return branches.loss(error, estimator=estimator).mean()


def learned_positions(
    run: harness.Run,
    count: int,
    estimator: mx.estimators.Estimator | None,
    settings: Settings,
) -> dict[str, Any]:
    """Train on rows that are always new; the error of the most probable term's value, in per cent of the range."""
    mux, seed = intervals(count), run.key["seed"]
    net = network(mux.in_features)

    def loss(step: int) -> Tensor:
        rows = positions(count, settings.batch, 1000 * (seed + 1) + step)
        return expected_loss(mux(net(rows.h)), rows.x, estimator)

    start = spread_of_gradients(net, count, estimator)
    seconds = trained(run, list(net.parameters()), loss, settings)
    test = positions(count, 1000, 999)
    with torch.no_grad():
        branches = mux(net(test.h))
        answers = branches.best().squeeze(-1)
        found = float(expected_loss(branches, test.x))
    trivial = (test.x - test.x.median()).abs().mean()
    return {
        "loss": found,
        "error": 100 * float((answers - test.x).abs().mean()),
        "trivial": 100 * float(trivial),
        "ms": 1e3 * seconds,
        "noise": start,
        "noise_after": spread_of_gradients(net, count, estimator),
    }


def spread_of_gradients(
    net: nn.Module, count: int, estimator: mx.estimators.Estimator | None
) -> float:
    """The mean squared distance of 20 estimated gradients from the exact one, over the square of its length."""
    if estimator is None:
        return 0.0
    rows = positions(count, 64, 5)

    def gradient(chosen: mx.estimators.Estimator | None) -> Tensor:
        net.zero_grad()
        branches = intervals(count)(net(rows.h))
        expected_loss(branches, rows.x, chosen).backward()  # type: ignore[no-untyped-call]
        return torch.cat(
            [p.grad.flatten() for p in net.parameters() if p.grad is not None]
        )

    exact = gradient(None)
    away = [float((gradient(estimator) - exact).square().sum()) for _ in range(20)]
    return mean(away) / float(exact.square().sum())


ESTIMATORS: dict[str, mx.estimators.Estimator | None] = {
    "exact": None,
    "score function": mx.estimators.ScoreFunction(samples=4),
    "top terms": mx.estimators.TopTerms(count=8, samples=2),
    "straight-through": mx.estimators.StraightThrough(temperature=0.5),
    "concrete": mx.estimators.Concrete(temperature=0.5),
}
MANY = 256


# --- wrong: rows that break the rules, and rules that are wrong ------------------------------------------------------


class Flaw(NamedTuple):
    """What is wrong: the share of training rows that break the rule; the declared limit over the true one."""

    share: float
    factor: float


FLAWS = (Flaw(0, 1), Flaw(0.05, 1), Flaw(0.2, 1), Flaw(0, 0.9), Flaw(0, 0.7))
WRONG = ("net", "layer", "layer-drop", "layer-widened")


class Limited(NamedTuple):
    """Features with a limit among them, and a value that is at most the limit."""

    h: Tensor
    limit: Tensor
    y: Tensor


def limited(rows: int, seed: int, share: float = 0.0) -> Limited:
    """Values between 0 and the limit; a share of them lies above it instead."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(rows, FEATURES, generator=generator)
    limit = 1 + torch.rand(rows, generator=generator)
    h[:, 0] = 4 * limit - 6
    y = limit * torch.sigmoid(2 * h[:, 1] + h[:, 2])
    broken = torch.rand(rows, generator=generator) < share
    above = limit + torch.randn(rows, generator=generator).abs()
    return Limited(h, limit, torch.where(broken, above, y))


@cache
def limited_layer(factor: float) -> mx.Multiplexer:
    """0 ≤ y ≤ factor · limit."""
    text = f"y: real; limit: input[1, 2]\n0 <= y <= {factor} * limit"
    return mx.Multiplexer(mx.Rules(text))


def wrong_run(run: harness.Run, flaw: Flaw, settings: Settings) -> dict[str, Any]:
    """Train on 1,000 rows; the error against the truth on others, and how many training rows the rule refuses."""
    method = run.key["method"]
    rows = limited(1000, 100 + run.key["seed"], flaw.share)
    mux = limited_layer(flaw.factor)
    obeys = mux.rules.satisfied(rows.y.unsqueeze(-1), limit=rows.limit)
    if method == "layer-drop":
        rows = Limited(*(column[obeys] for column in rows))
    if method == "layer-widened":
        widened = float((rows.y / rows.limit).quantile(0.99))
        mux = limited_layer(max(flaw.factor, round(widened, 2)))
    net = network(1)

    def answers(given: Limited) -> Tensor:
        raw: Tensor = net(given.h)
        y = raw if method == "net" else mux(raw, limit=given.limit).best()
        return torch.squeeze(y, -1)

    def loss(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(step)
        index = torch.randint(len(rows.y), (settings.batch,), generator=generator)
        batch = Limited(*(column[index] for column in rows))
        return (answers(batch) - batch.y).square().mean()

    trained(run, list(net.parameters()), loss, settings)
    test = limited(1000, 99)
    with torch.no_grad():
        y = answers(test)
    true = limited_layer(1).rules.satisfied(y.unsqueeze(-1), limit=test.limit)
    return {
        "error": float((y - test.y).square().mean().sqrt()),
        "seen": 1 - float(obeys.double().mean()),
        "broken": 1 - float(true.double().mean()),
    }


# --- attack: inputs that are changed so as to break a rule -----------------------------------------------------------

BUDGET = """
x: real[3]; limit: input[1, 3]
all(v >= 0 for v in x)
sum(x) <= limit
"""
ATTACKED = ("net", "penalty", "layer")
RADIUS, STEPS = 1.0, 40


@cache
def budget_layer() -> mx.Multiplexer:
    """Three amounts within a budget."""
    return mx.Multiplexer(mx.Rules(BUDGET))


def attack_run(run: harness.Run, settings: Settings) -> dict[str, Any]:
    """Train to share out a budget; then every feature may move by 1 towards a larger sum."""
    mux, method = budget_layer(), run.key["method"]
    net = network(mux.in_features if method == "layer" else 3)

    def drawn(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        h = torch.randn(rows, FEATURES, generator=generator)
        limit = 1 + 2 * torch.rand(rows, generator=generator)
        spent = torch.sigmoid(2 + h[:, 4:5]) * limit.unsqueeze(-1)
        return h, limit, spent * h[:, 1:4].softmax(-1)

    def answers(h: Tensor, limit: Tensor) -> Tensor:
        raw: Tensor = net(torch.cat([(limit - 2).unsqueeze(-1), h[:, 1:]], -1))
        x: Tensor = mux(raw, limit=limit).best() if method == "layer" else raw
        return x

    def loss(step: int) -> Tensor:
        h, limit, x = drawn(settings.batch, 1000 * (run.key["seed"] + 1) + step)
        y = answers(h, limit)
        extra = 10 * mx.penalty(mux.rules, y, limit=limit) if method == "penalty" else 0
        return ((y - x).square().sum(-1) + extra).mean()

    trained(run, list(net.parameters()), loss, settings)
    h, limit, x = drawn(1000, 999)
    moved = h.clone()
    for _ in range(STEPS):
        moved.requires_grad_()
        (slope,) = torch.autograd.grad(answers(moved, limit).sum(), moved)
        moved = (moved + 0.1 * slope.sign()).detach()
        moved = torch.maximum(torch.minimum(moved, h + RADIUS), h - RADIUS)
    with torch.no_grad():
        before, after = answers(h, limit), answers(moved, limit)
    return {
        "error": float((before - x).square().mean().sqrt()),
        "broken": broken(mux.rules, before, limit),
        "broken_attacked": broken(mux.rules, after, limit),
        "excess": float((after.sum(-1) - limit).max()),
    }


def broken(rules: mx.Rules, x: Tensor, limit: Tensor) -> float:
    """The share of rows that break the rules, exactly."""
    return 1 - float(rules.satisfied(x, limit=limit).double().mean())


# --- mixed: whole numbers, truth values and reals in one density -----------------------------------------------------

MIXED = """
n: int[0, 3]; on: bool; x: real
0 <= x <= n + 1
implies(on, x >= n)
"""


class Mixture(NamedTuple):
    """Rows n, on, x, and the logarithm of their true density."""

    rows: Tensor
    log_prob: Tensor


def mixture(rows: int, seed: int) -> Mixture:
    """n and on with given probabilities; x in what they leave, where it has the density 6 u (1 − u)."""
    torch.manual_seed(seed)
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    numbers: Any = torch.distributions.Categorical(shares)
    switch: Any = torch.distributions.Bernoulli(torch.tensor(0.3).double())
    inner: Any = torch.distributions.Beta(*torch.tensor([2.0, 2.0]).double())
    n, on = numbers.sample((rows,)), switch.sample((rows,))
    u = inner.sample((rows,)).clamp(1e-6, 1 - 1e-6)
    low = torch.where(on > 0, n, 0.0)
    width = n + 1 - low
    x = low + width * u
    log_prob = numbers.log_prob(n) + switch.log_prob(on) + inner.log_prob(u)
    return Mixture(torch.stack([n, on, x], -1), log_prob - width.log())


def mixed_run(run: harness.Run, settings: Settings) -> dict[str, Any]:
    """Fit by exact likelihood; nats a row on others, beside the true density and the uniform one."""
    mux = mx.Multiplexer(mx.Rules(MIXED), dtype=torch.float64)
    terms = len(mux.terms)
    logits, centre, log_scale = (
        nn.Parameter(torch.zeros(terms, dtype=torch.float64)) for _ in range(3)
    )

    def density() -> mx.RulesDistribution:
        base = [
            torch.distributions.Normal(
                centre[k].expand(mux.out_features),
                log_scale[k].exp().expand(mux.out_features),
            )
            for k in range(terms)
        ]
        return mx.RulesDistribution(mux, base, logits)

    train = mixture(2000, 10 + run.key["seed"])

    def loss(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(step)
        index = torch.randint(len(train.rows), (settings.batch,), generator=generator)
        return -density().log_prob(train.rows[index]).mean()

    start = mixture(2000, 9)
    with torch.no_grad():
        before = -float(density().log_prob(start.rows).mean())
    trained(run, [logits, centre, log_scale], loss, settings)
    with torch.no_grad():
        fitted: Any = density()
        samples = fitted.sample((2000,))
        return {
            "nll_start": before,
            "nll": -float(fitted.log_prob(start.rows).mean()),
            "nll_truth": -float(start.log_prob.mean()),
            "obey": float(mux.rules.satisfied(samples).double().mean()),
        }


# --- runs ------------------------------------------------------------------------------------------------------------


def keys(settings: Settings) -> Iterator[dict[str, Any]]:
    """What tells each run from the others, seeds apart."""
    for part in settings.parts:
        if part == "terms":
            for count in settings.counts:
                yield {"part": part, "method": "exact", "terms": count}
        elif part == "wrong":
            for flaw, method in product(FLAWS, WRONG):
                yield {"part": part, "method": method, **flaw._asdict()}
        else:
            for method in METHODS[part]:
                yield {"part": part, "method": method}


METHODS: dict[Part, Sequence[str]] = {
    "epochs": OBEYING,
    "estimators": tuple(ESTIMATORS),
    "attack": ATTACKED,
    "mixed": ("density",),
    "generators": tuple(GENERATORS),
}


def found_by(run: harness.Run, settings: Settings) -> dict[str, Any]:
    """What a run finds."""
    key = run.key
    match key["part"]:
        case "epochs":
            return epochs_run(run)
        case "terms":
            return learned_positions(run, key["terms"], None, settings)
        case "estimators":
            return learned_positions(run, MANY, ESTIMATORS[key["method"]], settings)
        case "wrong":
            return wrong_run(run, Flaw(key["share"], key["factor"]), settings)
        case "attack":
            return attack_run(run, settings)
        case "generators":
            return generated(run, 4 * settings.steps)
    return mixed_run(run, settings)


def main(settings: Settings) -> None:
    """All runs of the settings, then the picture."""
    results = harness.Results("extras", settings)
    for key in keys(settings):
        for seed in settings.seeds:
            with results.run({**key, "seed": seed}) as run:
                if not run.done:
                    run.seed(seed)
                    run.finish(**found_by(run, settings))
    if results.accelerator.is_main_process:
        draw(results, settings.figures_folder / "extras.png")


# --- the picture -----------------------------------------------------------------------------------------------------


def draw(results: harness.Results, path: Path) -> None:
    """Four panels: who obeys after each epoch, learning by number of terms, by estimator, with flaws."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    panels = figure.subplots(2, 2)
    lines = list(results)

    def of(part: str) -> list[dict[str, Any]]:
        return [line for line in lines if line["part"] == part]

    draw_epochs(panels[0, 0], of("epochs"))
    draw_terms(panels[0, 1], of("terms"))
    draw_estimators(panels[1, 0], of("estimators"))
    draw_wrong(panels[1, 1], of("wrong"))
    figure.savefig(path, dpi=110)


def draw_epochs(panel: Axes, lines: list[dict[str, Any]]) -> None:
    """A line a method, the mean over seeds."""
    panel.set_title(f"reconstructions that obey, {SIZE} rows")
    if not lines:
        return
    for method in OBEYING:
        found = [line["obey"] for line in lines if line["method"] == method]
        if found:
            shares = 100 * torch.tensor(found).mean(0)
            colour = synthetic.COLOURS[method]
            panel.plot(range(1, len(shares) + 1), shares, color=colour, label=method)
    panel.set(xlabel="epoch", ylabel="%")
    panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


def draw_terms(panel: Axes, lines: list[dict[str, Any]]) -> None:
    """The error, and the milliseconds of a step, over the number of terms."""
    beside = panel.twinx()
    panel.plot(
        [x["terms"] for x in lines], [x["error"] for x in lines], "o", color="tab:blue"
    )
    beside.plot(
        [x["terms"] for x in lines], [x["ms"] for x in lines], "x", color="tab:orange"
    )
    panel.set(title="number of terms", xscale="log", xlabel="terms", ylim=(0, None))
    panel.set_ylabel("o error, % of the range", color="tab:blue")
    beside.set(yscale="log", ylim=(1, 1000))
    beside.set_ylabel("x ms a step", color="tab:orange")


def draw_estimators(panel: Axes, lines: list[dict[str, Any]]) -> None:
    """The error of every seed."""
    for height, name in enumerate(ESTIMATORS):
        found = [line["error"] for line in lines if line["method"] == name]
        panel.plot(found, [height] * len(found), "o", alpha=0.6)
    panel.set_yticks(range(len(ESTIMATORS)), list(ESTIMATORS))
    panel.invert_yaxis()
    panel.set(title=f"{MANY} terms", xlabel="error, % of the range", xlim=(0, None))
    panel.grid(alpha=0.3)


def draw_wrong(panel: Axes, lines: list[dict[str, Any]]) -> None:
    """The error against the truth, by flaw and method."""
    for method, (place, flaw) in product(WRONG, enumerate(FLAWS)):
        errors = [
            line["error"]
            for line in lines
            if (line["method"], line["share"], line["factor"]) == (method, *flaw)
        ]
        colour = f"C{WRONG.index(method)}"
        label = "" if place else method
        panel.plot(
            [place] * len(errors), errors, "o", color=colour, alpha=0.6, label=label
        )
    names = [
        f"{100 * flaw.share:.0f} % break,\nlimit × {flaw.factor:g}" for flaw in FLAWS
    ]
    panel.set_xticks(range(len(FLAWS)), names, fontsize=8)
    panel.set_title("rows that break the rule, rules that are wrong")
    panel.set_ylabel("error against the truth")
    panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


if __name__ == "__main__":
    harness.command(Settings, main)
