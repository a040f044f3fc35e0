"""Six rectangles: how much a density estimate gains from knowing where data can lie.

Points of N(0, 25 I) are kept where they fall into one of six rectangles around the origin. What is known are eight
rectangles, each a little longer: two of them hold no data, and all have an empty strip at their far end. The methods:

* ``uniform``, the trivial baseline: the uniform density on the eight rectangles, which needs no data at all, and
  ``counted``, which has learned one thing: how many rows lie in each rectangle, plus one;
* ``vae``, a variational autoencoder that knows nothing, and ``dl2``, which pays for broken rules (weight 50);
* ``multiplexnet-paper``, the model as published, with the authors' map: the two raw values are a point of the plane.
  Each term turns it into the frame of its rectangle, subtracts the lower ends, applies the paper's map of an interval
  and turns the result back, in floats as they come. p(k) is uniform, q(k|x) comes from the encoder;
* ``multiplexnet-paper-prior``, the same with a learned p(k);
* ``multiplexnet-shared-raw``, the same model with the maps of this library: intervals by the paper's map, turned
  rectangles by the gauge map. All terms read the same two raw values, which are no point of the plane here;
* ``multiplexnet``, ours: z → k → x is one generative model. The decoder gives p(k|z) and raw values for each term,
  and k is summed out. Several draws of z a row, more and smaller steps, the epoch chosen by the validation bound;
* ``multiplexnet-inside``, the same with the noise inside the map: raw = mean + noise, then x = h_k(raw), with the
  exact density of x given z. Every sample obeys, noise and all, and not only the means;
* ``multiplexnet-density``, without a latent: a mixture over the terms of one law in the coordinates of their
  rectangles, which starts near the uniform one. Its likelihood is exact.

A line of the results has ``elbo``, the proper −ELBO on test data, with every constant (log 2πσ² and log p(k)); ``nll``,
the lesser of two bounds on the negative log-likelihood, by importance sampling from q(z|x) and by draws from the prior;
``satisfied`` and ``prior_satisfied``, the fractions (0…1) of reconstructions and of prior samples that obey, exactly;
``sample_satisfied``, the fraction of samples of the density that is scored; ``energy``, their energy distance to the
test rows (0 for equal distributions), and ``means_energy``, that of the prior samples; ``thickness``, how far samples
spread across their rectangles (0.289: as uniform ones do; 0: a curve), and ``means_thickness``.

As in the paper a reconstruction and a prior sample are what the decoder says, the mean of a Gaussian, whereas −ELBO and
NLL belong to mean plus noise: ``sample_satisfied`` and ``energy`` judge the latter. Where the noise is inside the map,
and for the exact densities, the two are the same. The exact densities have no gap (``elbo`` is ``nll``) and no
reconstructions (``satisfied`` is of a second set of samples).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import NormalDist, mean, stdev
from typing import Any, Literal, NamedTuple, Self, get_args

import harness
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import multiplexnet as mx
from multiplexnet.transforms import PaperSeparable, Separable

Method = Literal[
    "uniform",
    "counted",
    "vae",
    "dl2",
    "multiplexnet-paper",
    "multiplexnet-paper-prior",
    "multiplexnet-shared-raw",
    "multiplexnet",
    "multiplexnet-inside",
    "multiplexnet-density",
]
METHODS: tuple[Method, ...] = get_args(Method)

Ingredient = Literal["conditional-prior", "raw-per-term", "bound", "draws", "steps"]
"""What ``multiplexnet`` has and the published model has not; ``--without`` leaves one of them out.

Without ``steps`` there is one pass an epoch at the paper's rate, 75 to 600 steps in all, instead of 1200 smaller ones.
"""


@dataclass(frozen=True)
class Settings(harness.Common):
    """Density estimation on six rectangles with the knowledge of eight."""

    methods: tuple[Method, ...] = harness.option(METHODS, "what is compared")
    sizes: tuple[int, ...] = harness.option((100, 250, 500, 1000), "training rows")
    validation: int = harness.option(
        1000, "rows for curves and the choice of the epoch"
    )
    test: int = harness.option(5000, "rows that the results are measured on")
    importance: int = harness.option(
        500,
        "draws from q(z|x) a row, for a bound on the likelihood; a fifth with terms",
    )
    prior: int = harness.option(20_000, "draws from the prior, for the other one")
    draws: int = harness.option(64, "draws of z a row for the −ELBO of the results")
    rate: float | None = harness.option(
        None, "learning rate; without it, each method's own"
    )
    same_recipe: bool = harness.option(
        False,
        "all methods take the steps, draws and choice of the epoch of ours; to synthetic-same-recipe.jsonl",
    )
    without: tuple[Ingredient, ...] = harness.option(
        (),
        "instead of all methods, multiplexnet without each of these; to synthetic-without.jsonl",
    )

    def for_quick(self) -> Self:
        return replace(
            self,
            seeds=(0,),
            sizes=(250,),
            test=1000,
            importance=100,
            prior=4000,
            draws=16,
        )


class Recipe(NamedTuple):
    """How a method is trained, with Adam and a rate that falls to zero along a cosine.

    Args:
        rate: the first learning rate.
        steps: about how many steps are taken over 75 epochs, by several passes an epoch; ``None``: one pass each.
        batch: rows a step.
        draws: of z for every row of a step.
        selects: whether the epoch with the least bound on the validation rows is taken, instead of the last.
    """

    rate: float
    steps: int | None
    batch: int
    draws: int
    selects: bool

    def passes(self, rows: int) -> int:
        """How often an epoch goes through the data."""
        return (
            1
            if self.steps is None
            else max(1, round(self.steps / (EPOCHS * math.ceil(rows / self.batch))))
        )


EPOCHS = 75
PUBLISHED = Recipe(rate=1e-2, steps=None, batch=128, draws=1, selects=False)
OURS = Recipe(rate=3e-3, steps=1200, batch=128, draws=4, selects=True)
DENSITY = Recipe(rate=0.1, steps=150, batch=1024, draws=1, selects=True)
UNTRAINED = Recipe(rate=0.0, steps=0, batch=1, draws=1, selects=False)


# --- data and rules --------------------------------------------------------------------------------------------------

TURNED = 0.7071068
"""√½, rounded up: turned rectangles are rounded outward, by 1e-6 at most, so that no row of data is lost."""
DIRECTIONS = (
    (1.0, 0.0),
    (TURNED, TURNED),
    (0.0, 1.0),
    (-TURNED, TURNED),
    (-1.0, 0.0),
    (-TURNED, -TURNED),
    (0.0, -1.0),
    (TURNED, -TURNED),
)
WITH_DATA = (0, 1, 3, 4, 5, 7)
NEAR, FAR, END_OF_DATA, SIDE = 2.5, 6.0, 5.5, 0.5


class Rectangle(NamedTuple):
    """A rectangle: ``near ≤ cx + sy ≤ far`` and ``|cy − sx| ≤ side``."""

    c: float
    s: float
    near: float
    far: float
    side: float

    @property
    def text(self) -> str:
        radial, lateral = f"{self.c} * x + {self.s} * y", f"{self.c} * y - {self.s} * x"
        return f"({self.near} <= {radial} <= {self.far} and -{self.side} <= {lateral} <= {self.side})"

    @property
    def corners(self) -> list[tuple[float, float]]:
        """In a row around it, for pictures."""
        ends = [
            (self.near, -self.side),
            (self.far, -self.side),
            (self.far, self.side),
            (self.near, self.side),
        ]
        return [(self.c * r - self.s * t, self.s * r + self.c * t) for r, t in ends]


KNOWN = tuple(
    Rectangle(c, s, NEAR, FAR, SIDE)
    if 0.0 in (c, s)
    else Rectangle(c, s, 2.499999, 6.000001, 0.500001)
    for c, s in DIRECTIONS
)


@cache
def rules() -> mx.Rules:
    """The eight rectangles."""
    return mx.Rules(
        "x: real; y: real\n" + " or ".join(rectangle.text for rectangle in KNOWN)
    )


@cache
def layer(
    dtype: torch.dtype = torch.float32, *, per_term: bool = False, paper: bool = False
) -> mx.Multiplexer:
    """The rules as a layer; it has no parameters, so that all models share it."""
    return mx.Multiplexer(
        rules(),
        dtype=dtype,
        per_term=per_term,
        boxes=PaperSeparable if paper else Separable,
    )


def points(rows: int, seed: int) -> Tensor:
    """Points of N(0, 25 I) in the six rectangles, ``(rows, 2)``, float32."""
    generator = torch.Generator().manual_seed(seed)
    angles = torch.tensor(WITH_DATA, dtype=torch.float64) * math.pi / 4
    along, across = (
        torch.stack([angles.cos(), angles.sin()]),
        torch.stack([-angles.sin(), angles.cos()]),
    )
    found: list[Tensor] = []
    while sum(map(len, found)) < rows:
        x = 5 * torch.randn(20 * rows, 2, generator=generator, dtype=torch.float64)
        radial, lateral = x @ along, (x @ across).abs()
        found.append(
            x[((radial > NEAR) & (radial < END_OF_DATA) & (lateral < SIDE)).any(-1)]
        )
    return torch.cat(found)[:rows].float()


def entropy() -> float:
    """Of the truth, in nats: the mean of |x|²/50 + log 50π + log of the mass of N(0, 25 I) in the rectangles."""
    law, sides = NormalDist(0, 5), ((NEAR, END_OF_DATA), (-SIDE, SIDE))
    masses = [law.cdf(b) - law.cdf(a) for a, b in sides]
    squares = [
        25 * (1 - (b * law.pdf(b) - a * law.pdf(a)) / mass)
        for (a, b), mass in zip(sides, masses, strict=True)
    ]
    return sum(squares) / 50 + math.log(
        50 * math.pi * len(WITH_DATA) * math.prod(masses)
    )


class Data(NamedTuple):
    """Rows for training, for the choice of the epoch, and for the results."""

    train: Tensor
    validation: Tensor
    test: Tensor


def drawn(rows: int, seed: int, settings: Settings) -> Data:
    """The data of a seed; a smaller training set is the beginning of a larger one."""
    counts = (max(rows, 1000), settings.validation, settings.test)
    train, validation, test = (
        points(count, 3 * seed + part) for part, count in enumerate(counts)
    )
    if not rules().satisfied(torch.cat([train, validation, test])).all():
        raise harness.ExperimentError(
            "a row of the data breaks the rules: they have to be rounded outward further"
        )
    return Data(train[:rows], validation, test)


# --- models ----------------------------------------------------------------------------------------------------------

PRECISION = 10.0
"""1 / 2σ² of the Gaussian likelihood."""
CONSTANT = math.log(math.pi / PRECISION)
"""log 2πσ²."""
AT_ONCE = 5000
"""Rows that are evaluated at a time."""


class Model(nn.Module, ABC):
    """A density on the plane. ``model(x)`` is the training loss of some rows."""

    @abstractmethod
    def bound(self, x: Tensor, draws: int) -> Tensor:
        """The −ELBO of every row, averaged over draws of z."""

    @abstractmethod
    def nll(self, x: Tensor, settings: Settings) -> float:
        """The negative log-likelihood of the rows, or the best bound on it."""

    @abstractmethod
    def reconstructions(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def samples(self, count: int) -> Tensor:
        """What the decoder says for draws from the prior."""

    def noisy(self, samples: Tensor) -> Tensor:
        """Samples of the density that is scored, from what the decoder says."""
        return samples


class Uniform(Model):
    """A density that is the same everywhere in a known rectangle: at first uniform, what the rules alone are worth."""

    def __init__(self) -> None:
        super().__init__()
        self.areas = torch.tensor(
            [(r.far - r.near) * 2 * r.side for r in KNOWN], dtype=torch.float64
        )
        self.weights = self.areas / self.areas.sum()

    def count(self, x: Tensor) -> None:
        """Rectangles weigh as many rows as they hold, and one more."""
        counts = torch.bincount(_home(x), minlength=len(KNOWN)) + 1.0
        self.weights = counts.double() / counts.sum()

    def bound(self, x: Tensor, draws: int) -> Tensor:
        density = self.weights / self.areas
        return -density.log()[_home(x)].to(x.dtype)

    def nll(self, x: Tensor, settings: Settings) -> float:
        return float(self.bound(x.double(), 1).mean())

    def reconstructions(self, x: Tensor) -> Tensor:
        return self.samples(len(x))

    def samples(self, count: int) -> Tensor:
        index = torch.multinomial(self.weights, count, replacement=True)
        frame = frames(torch.float64)
        u = torch.rand(count, 2, dtype=torch.float64)
        place = frame.low[index] + u * frame.width[index]
        solved: Tensor = torch.linalg.solve(frame.turn[index], place.unsqueeze(-1))
        return solved.squeeze(-1)


def _home(x: Tensor) -> Tensor:
    """For every row of data the rectangle that it lies in: each points another way from the origin."""
    directions = torch.tensor([(r.c, r.s) for r in KNOWN], dtype=x.dtype)
    return (x @ directions.T).argmax(-1)


class Frames(NamedTuple):
    """The coordinates of the known rectangles: ``turn @ x`` lies between ``low`` and ``low + width``."""

    turn: Tensor
    low: Tensor
    width: Tensor


@cache
def frames(dtype: torch.dtype) -> Frames:
    """In the order of KNOWN."""
    turn = [[[r.c, r.s], [-r.s, r.c]] for r in KNOWN]
    low = [[r.near, -r.side] for r in KNOWN]
    width = [[r.far - r.near, 2 * r.side] for r in KNOWN]
    return Frames(*(torch.tensor(values, dtype=dtype) for values in (turn, low, width)))


class Posterior(NamedTuple):
    """q(z|x), a Gaussian, and the logits of q(k|x), which only the published model has."""

    mean: Tensor
    log_variance: Tensor
    choice: Tensor

    def draw(self, draws: int) -> tuple[Tensor, Tensor]:
        """z, ``(draws, rows, latent)``, and log p(z) − log q(z|x), ``(draws, rows)``."""
        noise = torch.randn(draws, *self.mean.shape)
        z = self.mean + (self.log_variance / 2).exp() * noise
        return z, (noise.square() + self.log_variance - z.square()).sum(-1) / 2

    @property
    def divergence(self) -> Tensor:
        """KL(q(z|x) ‖ p(z)) of every row."""
        return (
            self.log_variance.exp() + self.mean.square() - 1 - self.log_variance
        ).sum(-1) / 2


def distance(x: Tensor, centre: Tensor) -> Tensor:
    """−log N(x; centre, σ²)."""
    return PRECISION * (x - centre).square().sum(-1) + CONSTANT


class Autoencoder(Model):
    """A VAE with one hidden layer of 250 and 25 latent dimensions; what its decoder says, subclasses read.

    Args:
        features: of the decoder.
        choices: logits of q(k|x) that the encoder gives besides q(z|x).
        draws: of z for every row of a training step.
    """

    def __init__(
        self,
        features: int,
        choices: int,
        draws: int,
        hidden: int = 250,
        latent: int = 25,
    ) -> None:
        super().__init__()
        self.latent, self.draws, self._parts = latent, draws, [latent, latent, choices]
        self.encoder = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent + choices)
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, features)
        )

    @abstractmethod
    def centres(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The centres of p(x|z), ``(*batch, K, 2)``, and the logarithms of their weights, ``(*batch, K)``."""

    def posterior(self, x: Tensor) -> Posterior:
        return Posterior(*self.encoder(x).split_with_sizes(self._parts, -1))

    def forward(self, x: Tensor) -> Tensor:
        return self.bound(x, self.draws).mean()

    def bound(self, x: Tensor, draws: int) -> Tensor:
        q = self.posterior(x)
        return self.cost(x, q.draw(draws)[0], q).mean(0) + q.divergence

    def cost(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        """What the bound takes for −log p(x|z); ``(draws, rows)``."""
        return -self.log_likelihood(x, z)

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x|z), the choice of the term summed out."""
        centres, log_p = self.centres(z)
        return log_sum_exp(log_p - distance(x.unsqueeze(-2), centres))

    def term(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        """The logits of the term that a reconstruction comes from: q(k | x, z)."""
        centres, log_p = self.centres(z)
        return log_p - distance(x.unsqueeze(-2), centres)

    def reconstructions(self, x: Tensor) -> Tensor:
        q = self.posterior(x)
        z = q.draw(1)[0].squeeze(0)
        return picked(self.centres(z)[0], self.term(x, z, q))

    def samples(self, count: int) -> Tensor:
        return picked(*self.centres(torch.randn(count, self.latent)))

    def noisy(self, samples: Tensor) -> Tensor:
        return samples + torch.randn_like(samples) / math.sqrt(2 * PRECISION)

    def nll(self, x: Tensor, settings: Settings) -> float:
        draws = settings.importance // (
            1 if isinstance(self, Plain) else 5
        )  # eight terms a draw are slower
        return min(self.from_posterior(x, draws), self.from_prior(x, settings.prior))

    def from_posterior(self, x: Tensor, draws: int) -> float:
        """−log of the mean of p(x, z) / q(z|x) over draws from q: a bound on the NLL in expectation."""
        q, step = self.posterior(x), max(1, AT_ONCE // len(x))
        weights: list[Tensor] = []
        for start in range(0, draws, step):
            z, log_ratio = q.draw(min(step, draws - start))
            weights.append(self.log_likelihood(x, z) + log_ratio)
        return float(
            math.log(draws) - torch.logsumexp(torch.cat(weights), 0).double().mean()
        )

    def from_prior(self, x: Tensor, draws: int) -> float:
        """−log of the mean of p(x|z) over draws from the prior, the same for all rows: a bound in expectation, too."""
        found = [
            self.centres(z)
            for z in torch.split(torch.randn(draws, self.latent), AT_ONCE)
        ]
        centres, log_p = (
            torch.cat(part).flatten(0, 1) for part in zip(*found, strict=True)
        )
        near = (
            log_p > -20.0
        )  # what is less likely adds nothing; leaving it out keeps the bound a bound
        centres, log_p = centres[near], log_p[near] - math.log(draws) - CONSTANT
        weights = log_p - PRECISION * centres.square().sum(-1)
        tiles = list(
            zip(torch.split(weights, 1000), torch.split(centres, 1000), strict=True)
        )  # they stay in the cache
        sums = []
        for rows in torch.split(2 * PRECISION * x, 200):
            sums.append(
                log_sum_exp(
                    torch.stack(
                        [log_sum_exp(torch.addmm(w, rows, c.T)) for w, c in tiles], -1
                    )
                )
            )
        return float((PRECISION * x.square().sum(-1) - torch.cat(sums)).double().mean())


def log_sum_exp(values: Tensor) -> Tensor:
    """Over the last axis, without what is below e⁻⁸⁰ of the largest: numbers that small make ``exp`` slow."""
    top = values.amax(-1, keepdim=True)
    return (values - top).clamp(min=-80.0).exp().sum(-1).log() + top.squeeze(-1)


def picked(centres: Tensor, logits: Tensor) -> Tensor:
    """One of the centres of every row, drawn by its logits."""
    index = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
    return centres.gather(
        -2, index[..., None, None].expand(*index.shape, 1, 2)
    ).squeeze(-2)


class Plain(Autoencoder):
    """A VAE without rules; with a weight, its training pays for reconstructions that break them (DL2)."""

    def __init__(self, draws: int, weight: float = 0.0) -> None:
        super().__init__(features=2, choices=0, draws=draws)
        self.weight = weight

    def centres(self, z: Tensor) -> tuple[Tensor, Tensor]:
        centre = self.decoder(z).unsqueeze(-2)
        return centre, centre.new_zeros(centre.shape[:-1])

    def cost(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        centre = self.decoder(z)
        cost = distance(x, centre)
        return (
            cost + self.weight * mx.dl2_loss(rules(), centre)
            if self.weight and self.training
            else cost
        )


class Published(Autoencoder):
    """The paper's model with the authors' map: q(k|x) from the encoder, raw values in the plane.

    Args:
        draws: of z for every row of a training step.
        learned: whether p(k) is learned; without it all terms are as likely.
    """

    def __init__(self, draws: int, *, learned: bool = False) -> None:
        super().__init__(features=2, choices=len(KNOWN), draws=draws)
        self.prior = nn.Parameter(torch.zeros(len(KNOWN)), requires_grad=learned)

    def centres(self, z: Tensor) -> tuple[Tensor, Tensor]:
        frame = frames(torch.float32)
        turned = torch.einsum("kij,...j->...ki", frame.turn, self.decoder(z))
        inside = between(turned - frame.low, frame.width) + frame.low
        x = torch.einsum(
            "kji,...kj->...ki", frame.turn, inside
        )  # the turn is orthogonal
        return x, self.prior.log_softmax(-1).expand(x.shape[:-1])

    def cost(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        centres, log_p = self.centres(z)
        return chosen_cost(distance(x.unsqueeze(-2), centres), log_p, q)

    def term(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        return q.choice


def between(raw: Tensor, width: Tensor) -> Tensor:
    """The paper's map into (0, width): ``width − softplus(k − softplus(raw))``, k so that −∞ goes to 0."""
    k = width.expm1().log()
    return width - F.softplus(k - F.softplus(raw))


class SharedRaw(Autoencoder):
    """The paper's model with our maps: uniform p(k), q(k|x) from the encoder, two raw values that all terms read."""

    def __init__(self, draws: int) -> None:
        super().__init__(features=2, choices=len(KNOWN), draws=draws)
        self.rules = layer(paper=True)

    def branches(self, z: Tensor, choice: Tensor) -> mx.Branches:
        raw = self.decoder(z)
        found: mx.Branches = self.rules(
            torch.cat([raw, choice.expand(*raw.shape[:-1], -1)], -1)
        )
        return found

    def centres(self, z: Tensor) -> tuple[Tensor, Tensor]:
        branches = self.branches(z, z.new_zeros(len(KNOWN)))
        return branches.x, branches.log_probs

    def cost(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        return self.branches(z, q.choice).loss(
            lambda centre: distance(x.unsqueeze(-2), centre)
        )

    def term(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        return q.choice


class Conditional(Autoencoder):
    """Ours: the decoder gives p(k|z) and raw values for every term, and k is summed out.

    Args:
        draws: of z for every row of a training step.
        without: ``conditional-prior``: all terms are as likely, whatever z; ``raw-per-term``: all read the same raw
            values; ``bound``: k is not summed out, but has a q(k|x) from the encoder, as in the paper.
    """

    def __init__(self, draws: int, without: Ingredient | None = None) -> None:
        rules = layer(per_term=without != "raw-per-term")
        choices = len(KNOWN) if without == "bound" else 0
        super().__init__(features=rules.in_features, choices=choices, draws=draws)
        self.rules, self.without = rules, without

    def centres(self, z: Tensor) -> tuple[Tensor, Tensor]:
        branches = self.rules(self.decoder(z))
        return branches.x, self.prior(branches).log_softmax(-1)

    def prior(self, branches: mx.Branches) -> Tensor:
        """The logits of p(k|z)."""
        alike = self.without == "conditional-prior"
        return torch.zeros_like(branches.logits) if alike else branches.logits

    def cost(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        branches = self.rules(self.decoder(z))
        prior = self.prior(branches)

        def away(centre: Tensor) -> Tensor:
            return distance(x.unsqueeze(-2), centre)

        if self.without == "bound":
            return chosen_cost(away(branches.x), prior.log_softmax(-1), q)
        cost: Tensor = branches.evidence_loss(away, prior=prior)
        return cost

    def term(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        return q.choice if self.without == "bound" else super().term(x, z, q)


def chosen_cost(away: Tensor, log_p: Tensor, q: Posterior) -> Tensor:
    """The paper's bound: the mean over q(k|x) of the distance, and the divergence of q(k|x) from p(k)."""
    log_q = q.choice.log_softmax(-1)
    return (log_q.exp() * (away + log_q - log_p)).sum(-1)


class Inside(Autoencoder):
    """Ours with the noise inside the map: raw ~ N(mean, scale²) for the chosen term, then x = h_k(raw).

    The density of x given z is that of raw over |det ∂x/∂raw|, for the one term that contains x. Neither raw nor the
    determinant depends on a parameter, so that they cost one inverse a batch.
    """

    def __init__(self, draws: int) -> None:
        super().__init__(features=5 * len(KNOWN), choices=0, draws=draws)
        self.rules = layer(torch.float64)
        ((_, self.maps),) = self.rules.block_maps()

    def said(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of p(k|z), and the means and logarithms of the scales of every term's raw values."""
        logits, places, log_scales = self.decoder(z).split_with_sizes(
            [len(KNOWN), 2 * len(KNOWN), 2 * len(KNOWN)], -1
        )
        shape = (*z.shape[:-1], len(KNOWN), 2)
        return logits, places.reshape(shape), log_scales.reshape(shape).clamp(-5.0, 3.0)

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        logits, places, log_scales = self.said(z)
        term, raw, log_det = self.pulled(x)
        index = term.expand(z.shape[:-1])[..., None, None].expand(*z.shape[:-1], 1, 2)
        place = places.gather(-2, index).squeeze(-2)
        log_scale = log_scales.gather(-2, index).squeeze(-2)
        log_p = logits.log_softmax(-1).gather(-1, index[..., 0]).squeeze(-1)
        standard = (raw - place) * (-log_scale).exp()
        log_normal = (
            -standard.square() / 2 - log_scale - math.log(2 * math.pi) / 2
        ).sum(-1)
        return log_p + log_normal - log_det

    @torch.no_grad()
    def pulled(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For every row the term that contains it, the raw values that lead there, and log |det| of the map."""
        term = terms_of(x)
        raw = self.maps.inverse(x.double(), term)
        log_det = self.maps.forward_and_log_det(raw, term)[1]
        return term, raw.float(), log_det.float()

    def centres(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Samples, not means: what obeys is what is scored."""
        logits, places, log_scales = self.said(z)
        raw = places + log_scales.exp() * torch.randn_like(places)
        terms = torch.arange(len(KNOWN)).expand(logits.shape)
        return self.maps(raw.double(), terms), logits.log_softmax(-1)

    def term(self, x: Tensor, z: Tensor, q: Posterior) -> Tensor:
        return self.said(z)[0]

    def noisy(self, samples: Tensor) -> Tensor:
        return samples

    def nll(self, x: Tensor, settings: Settings) -> float:
        return self.from_posterior(x, settings.importance)


@cache
def rectangles_of_terms() -> tuple[int, ...]:
    """For every term of the layer the number of its rectangle."""
    ((_, maps),) = layer(torch.float64).block_maps()
    found = []
    for term in range(len(KNOWN)):
        x, y = maps(torch.zeros(2, dtype=torch.float64), torch.tensor(term)).tolist()
        found.append(
            max(range(len(KNOWN)), key=lambda k: KNOWN[k].c * x + KNOWN[k].s * y)
        )
    return tuple(found)


def terms_of(x: Tensor) -> Tensor:
    """For every row of data the term that contains it: rectangles share no point."""
    directions = torch.tensor(
        [(KNOWN[k].c, KNOWN[k].s) for k in rectangles_of_terms()], dtype=x.dtype
    )
    return (x @ directions.T).argmax(-1)


class Law(nn.Module):
    """A mixture of logistic distributions of logit(u), u in the unit square; the standard one makes u uniform."""

    def __init__(self, components: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(components, dtype=torch.float64))
        self.places = nn.Parameter(
            0.1 * torch.randn(components, 2, dtype=torch.float64)
        )
        self.log_scales = nn.Parameter(torch.zeros(components, 2, dtype=torch.float64))

    def log_prob(self, u: Tensor) -> Tensor:
        """The log-density of u, ``(*batch, 2)``."""
        raw = torch.logit(u, 1e-12).unsqueeze(-2)
        standard = (raw - self.places) * (-self.log_scales).exp()
        parts = (log_logistic(standard) - self.log_scales).sum(
            -1
        ) + self.weights.log_softmax(-1)
        return torch.logsumexp(parts, -1) - log_logistic(raw).sum((-1, -2))

    def sample(self, shape: Sequence[int]) -> Tensor:
        index = torch.multinomial(
            self.weights.softmax(-1), math.prod(shape), replacement=True
        ).reshape(*shape)
        noise = torch.logit(torch.rand(*shape, 2, dtype=torch.float64), 1e-12)
        return torch.sigmoid(self.places[index] + self.log_scales[index].exp() * noise)


def log_logistic(raw: Tensor) -> Tensor:
    """The log-density of the standard logistic distribution."""
    return -F.softplus(raw) - F.softplus(-raw)


class Pulled:
    """The law of a term's raw values that the term's map carries to a law in the coordinates of a rectangle.

    With the uniform law it is |det| of the map over the area.

    Args:
        rules: the layer.
        term: the number of a term; its rectangle is found.
        law: of the unit square.
    """

    def __init__(self, rules: mx.Multiplexer, term: int, law: Law) -> None:
        ((_, self.maps),) = rules.block_maps()
        self.term, self.law = term, law
        found = KNOWN[rectangles_of_terms()[term]]
        self.turn = torch.tensor(
            [[found.c, found.s], [-found.s, found.c]], dtype=rules.dtype
        )
        self.low = torch.tensor([found.near, -found.side], dtype=rules.dtype)
        self.width = torch.tensor(
            [found.far - found.near, 2 * found.side], dtype=rules.dtype
        )
        self.log_area = (self.width.log().sum() - torch.logdet(self.turn)).item()

    def log_prob(self, raw: Tensor) -> Tensor:
        x, log_det = self.maps.forward_and_log_det(
            raw, torch.full(raw.shape[:-1], self.term)
        )
        u = (x @ self.turn.T - self.low) / self.width
        return self.law.log_prob(u) - self.log_area + log_det

    def rsample(self, shape: Sequence[int]) -> Tensor:
        x = torch.linalg.solve(
            self.turn, (self.low + self.width * self.law.sample(shape)).unsqueeze(-1)
        ).squeeze(-1)
        return self.maps.inverse(x, torch.full(tuple(shape), self.term))


class Density(Model):
    """The exact density: learned p(k), and within all terms one law in the coordinates of their rectangles.

    Args:
        rows: how many rows it will learn from: a Gaussian prior on the parameters of the law counts like one of them.
    """

    def __init__(self, rows: int, components: int = 8) -> None:
        super().__init__()
        self.rows, self.law = rows, Law(components)
        self.logits = nn.Parameter(torch.zeros(len(KNOWN), dtype=torch.float64))
        self.rules = layer(torch.float64)
        self.bases = [Pulled(self.rules, term, self.law) for term in range(len(KNOWN))]

    @property
    def distribution(self) -> mx.RulesDistribution:
        return mx.RulesDistribution(self.rules, self.bases, self.logits)

    def forward(self, x: Tensor) -> Tensor:
        squares = torch.stack(
            [parameter.square().sum() for parameter in self.law.parameters()]
        )
        return self.bound(x, 1).mean() + squares.sum() / (2 * self.rows)

    def bound(self, x: Tensor, draws: int) -> Tensor:
        return -self.distribution.log_prob(x.double())

    def nll(self, x: Tensor, settings: Settings) -> float:
        return float(self.bound(x, 1).mean())

    def reconstructions(self, x: Tensor) -> Tensor:
        return self.samples(len(x))

    def samples(self, count: int) -> Tensor:
        return self.distribution.sample((count,))


def model_and_recipe(
    method: Method, rows: int, settings: Settings
) -> tuple[Model, Recipe]:
    """What a method is, and how it is trained."""
    published = method in (
        "vae",
        "dl2",
        "multiplexnet-paper",
        "multiplexnet-paper-prior",
        "multiplexnet-shared-raw",
    )
    recipe = PUBLISHED if published and not settings.same_recipe else OURS
    match method:
        case "uniform" | "counted":
            return Uniform(), UNTRAINED
        case "vae":
            return Plain(recipe.draws), recipe
        case "dl2":
            return Plain(recipe.draws, weight=50.0), recipe
        case "multiplexnet-paper":
            return Published(recipe.draws), recipe
        case "multiplexnet-paper-prior":
            return Published(recipe.draws, learned=True), recipe
        case "multiplexnet-shared-raw":
            return SharedRaw(recipe.draws), recipe
        case "multiplexnet":
            return Conditional(recipe.draws), recipe
        case "multiplexnet-inside":
            return Inside(recipe.draws), recipe
        case "multiplexnet-density":
            return Density(rows), DENSITY


def without(ingredient: Ingredient) -> tuple[Model, Recipe]:
    """Ours without one of its ingredients."""
    if ingredient == "draws":
        return Conditional(1), OURS._replace(draws=1)
    if ingredient == "steps":
        return Conditional(OURS.draws), OURS._replace(
            steps=PUBLISHED.steps, rate=PUBLISHED.rate
        )
    return Conditional(OURS.draws, ingredient), OURS


# --- training and results --------------------------------------------------------------------------------------------


def trained(run: harness.Run, data: Data, settings: Settings) -> Model:
    """The model of a run after its last or its best epoch."""
    rows = len(data.train)
    if ingredient := run.key.get("without"):
        model, recipe = without(ingredient)
    else:
        model, recipe = model_and_recipe(run.key["method"], rows, settings)
    if recipe is UNTRAINED:
        if isinstance(model, Uniform) and run.key["method"] == "counted":
            model.count(data.train)
        return model
    epochs, passes = settings.epochs or EPOCHS, recipe.passes(rows)
    steps = passes * math.ceil(rows / recipe.batch)
    optimizer = torch.optim.Adam(model.parameters(), settings.rate or recipe.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    wrapped, optimizer = run.prepare(model, optimizer)
    best = harness.Best()
    for epoch in run.epochs(
        epochs, model=wrapped, optimizer=optimizer, schedule=schedule, best=best
    ):
        wrapped.train()
        for index in (
            index for _ in range(passes) for index in run.batches(rows, recipe.batch)
        ):
            loss = wrapped(data.train[index])
            run.check(loss)
            optimizer.zero_grad()
            run.backward(loss)
            optimizer.step()
            schedule.step()
        bound = run.agree(validated(wrapped, data.validation))
        obey = obeying(model, data.validation)
        run.log(steps=(epoch + 1) * steps, elbo=bound, obey=obey)
        if recipe.selects:
            best.offer(bound, epoch, wrapped)
    best.restore(wrapped)
    model.eval()
    return model


@torch.no_grad()
def obeying(model: Model, rows: Tensor) -> float:
    """The share of reconstructions that obey, exactly; draws of training stay as they are."""
    with torch.random.fork_rng(devices=()):
        reconstructed = model.reconstructions(rows)
    return float(rules().satisfied(reconstructed).double().mean())


@torch.no_grad()
def validated(wrapped: nn.Module, rows: Tensor) -> float:
    """The −ELBO of the validation rows, without penalties."""
    model: Model = harness.bare(wrapped).eval()
    return float(model.bound(rows, draws=4).mean())


@torch.no_grad()
def measured(
    model: Model, x: Tensor, settings: Settings
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The values of a line of the results, and points for the pictures."""
    step = max(1, AT_ONCE // len(x))
    bounds = [
        model.bound(x, draws=step).mean()
        for _ in range(math.ceil(settings.draws / step))
    ]
    reconstructed, sampled = model.reconstructions(x), model.samples(len(x))
    noisy = model.noisy(sampled)
    nll = model.nll(x, settings)
    exact = isinstance(model, Density | Uniform)
    values = {
        "elbo": nll if exact else float(torch.stack(bounds).mean()),
        "nll": nll,
        "satisfied": float(rules().satisfied(reconstructed).double().mean()),
        "prior_satisfied": float(rules().satisfied(sampled).double().mean()),
        "sample_satisfied": float(rules().satisfied(noisy).double().mean()),
        "energy": energy_distance(noisy, x),
        "means_energy": energy_distance(sampled, x),
        "thickness": thickness(noisy),
        "means_thickness": thickness(sampled),
    }
    return values, {
        "reconstructions": reconstructed[:1000].float(),
        "samples": sampled[:1000].float(),
    }


def energy_distance(a: Tensor, b: Tensor) -> float:
    """2 E|a − b| − E|a − a′| − E|b − b′|: 0 for equal distributions, about 2 E|a − a′| / n for two sets of n rows."""
    a, b = a.double(), b.double()
    between_sets, within_a, within_b = (
        float(torch.cdist(*pair).mean()) for pair in ((a, b), (a, a), (b, b))
    )
    return 2 * between_sets - within_a - within_b


def thickness(x: Tensor) -> float:
    """How far points spread across their rectangle, whose width counts as 1: 0 for a line along it, 0.289 if uniform.

    The mean over all points that lie in a rectangle of the standard deviation in their own; 0 if none does.
    """
    x = x.double()
    frame = frames(torch.float64)
    home = _home(x)
    turned = (frame.turn[home] @ x.unsqueeze(-1)).squeeze(-1)
    place = (turned - frame.low[home]) / frame.width[home]
    inside = ((place >= 0) & (place <= 1)).all(-1)
    parts = [place[inside & (home == k), 1] for k in range(len(KNOWN))]
    several = [part for part in parts if len(part) > 1]
    total = sum(len(part) * float(part.std()) for part in several)
    return total / max(1, sum(map(len, several)))


def main(settings: Settings) -> None:
    """All runs, then the table and the pictures."""
    results = harness.Results(results_name(settings), settings)
    for key in keys(settings):
        with results.run(key) as run:
            if not run.done:
                one_run(run, settings)
    if results.accelerator.is_main_process and not settings.without:
        Console().print(table(results, settings))
        for path in figures(results, settings):
            print(path)


def results_name(settings: Settings) -> str:
    """The file that the lines go to."""
    if settings.without:
        return "synthetic-without"
    return "synthetic-same-recipe" if settings.same_recipe else "synthetic"


def keys(settings: Settings) -> Iterator[dict[str, Any]]:
    """What tells each run from the others."""
    if settings.without:
        for n, left_out, seed in product(
            settings.sizes, settings.without, settings.seeds
        ):
            key = {"method": "multiplexnet", "without": left_out}
            yield {**key, "n": n, "seed": seed}
        return
    for n, method, seed in product(settings.sizes, settings.methods, settings.seeds):
        yield {"method": method, "n": n, "seed": seed}


def one_run(run: harness.Run, settings: Settings) -> None:
    """Train, measure, keep points for the pictures, write the line."""
    run.seed(run.key["seed"])
    data = drawn(run.key["n"], run.key["seed"], settings)
    model = trained(run, data, settings)
    values, points = measured(model, data.test, settings) if run.is_main else ({}, {})
    run.keep(**points)
    run.finish(**values)


# --- table and pictures ----------------------------------------------------------------------------------------------

COLOURS = dict(
    zip(
        METHODS,
        (
            "black",
            "tab:brown",
            "tab:gray",
            "tab:orange",
            "tab:blue",
            "tab:olive",
            "tab:cyan",
            "tab:red",
            "tab:purple",
            "tab:green",
        ),
        strict=True,
    )
)


def runs(
    results: harness.Results, settings: Settings, method: Method, n: int
) -> Iterator[Mapping[str, Any]]:
    """The lines of the runs that were asked for."""
    for seed in settings.seeds:
        if line := results.find({"method": method, "n": n, "seed": seed}):
            yield line


def table(results: harness.Results, settings: Settings) -> Table:
    """Means over the seeds, with standard deviations."""
    names = (
        "N",
        "method",
        "−ELBO",
        "NLL",
        "recon. %",
        "prior %",
        "samples %",
        "energy",
        "s",
    )
    title = "Six rectangles: nats on test data (less is better), % that obey"
    shown = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for number, name in enumerate(names):
        shown.add_column(name, justify="left" if number == 1 else "right", no_wrap=True)
    for n in settings.sizes:
        for method in settings.methods:
            lines = list(runs(results, settings, method, n))
            columns = {name: [line[name] for line in lines] for name in lines[0]}
            obey = ("satisfied", "prior_satisfied", "sample_satisfied")
            shares = [f"{100 * mean(columns[name]):.1f}" for name in obey]
            energy = f"{mean(columns['energy']):.3f}"
            spread = [spreads(columns[name]) for name in ("elbo", "nll")]
            shown.add_row(
                str(n),
                method,
                *spread,
                *shares,
                energy,
                f"{mean(columns['seconds']):.0f}",
            )
        shown.add_section()
    shown.caption = (
        f"No method can have less than {entropy():.3f}, the entropy of the truth."
    )
    return shown


def spreads(values: Sequence[float]) -> str:
    """Mean and standard deviation, as text."""
    return f"{mean(values):.2f}" + (f"±{stdev(values):.2f}" if len(values) > 1 else "")


def figures(results: harness.Results, settings: Settings) -> Iterator[Path]:
    """Draw all pictures; yields their paths."""
    suffix = "_same_recipe" if settings.same_recipe else ""
    path = settings.figures_folder / f"synthetic_curves{suffix}.png"
    curves(results, settings).savefig(path, dpi=110)
    yield path
    path = settings.figures_folder / f"synthetic_sizes{suffix}.png"
    over_sizes(list(results)).savefig(path, dpi=110)
    yield path
    for n in settings.sizes:
        path = settings.figures_folder / f"synthetic_samples_{n}{suffix}.png"
        pictures(results, settings, n).savefig(path, dpi=110)
        yield path


def over_sizes(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """−ELBO and NLL of test rows over the number of training rows, beside the trivial baseline and the entropy."""
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, 2, sharey=True)
    for panel, (name, title) in zip(
        panels, (("elbo", "−ELBO"), ("nll", "NLL")), strict=True
    ):
        for method in METHODS[1:]:
            own = [line for line in lines if line["method"] == method]
            if not own:
                continue
            sizes = sorted({line["n"] for line in own})
            values = [mean(x[name] for x in own if x["n"] == n) for n in sizes]
            panel.plot(sizes, values, "o-", ms=4, color=COLOURS[method], label=method)
        panel.axhline(
            float(Uniform().areas.sum().log()), color="black", ls="--", label="uniform"
        )
        panel.axhline(entropy(), color="black", ls=":", label="entropy of the truth")
        panel.set(title=f"{title}, test rows", xlabel="training rows")
        panel.set(xscale="log", yscale="log", ylim=(2.7, 20))
        panel.set_yticks([3, 4, 5, 7, 10, 20], labels=["3", "4", "5", "7", "10", "20"])
        panel.set_xticks([100, 250, 500, 1000], labels=["100", "250", "500", "1000"])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside right center",
        frameon=False,
    )
    return figure


def curves(results: harness.Results, settings: Settings) -> Figure:
    """The −ELBO of the validation rows over the steps of training, where there are any: mean over seeds, and range."""
    figure = Figure(
        figsize=(3.6 * len(settings.sizes) + 1.6, 3.9), layout="constrained"
    )
    panels: Sequence[Axes] = figure.subplots(
        1, len(settings.sizes), sharey=True, squeeze=False
    )[0]
    for panel, n in zip(panels, settings.sizes, strict=True):
        for method in settings.methods:
            kept = [
                results.kept({"method": method, "n": n, "seed": seed})
                for seed in settings.seeds
            ]
            found = [one["curve"] for one in kept if one.get("curve")]
            if found:
                steps = [point["steps"] for point in found[0]]
                values = torch.tensor(
                    [[point["elbo"] for point in curve] for curve in found]
                )
                panel.plot(steps, values.mean(0), color=COLOURS[method], label=method)
                panel.fill_between(
                    steps,
                    values.amin(0),
                    values.amax(0),
                    color=COLOURS[method],
                    alpha=0.15,
                    lw=0,
                )
        panel.set(
            title=f"N = {n}", xlabel="steps", xscale="log", yscale="log", ylim=(2.7, 40)
        )
        panel.set_yticks(
            [3, 4, 5, 7, 10, 20, 40], labels=["3", "4", "5", "7", "10", "20", "40"]
        )
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("−ELBO, validation rows")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside right center",
        frameon=False,
    )
    return figure


def pictures(results: harness.Results, settings: Settings, n: int) -> Figure:
    """Points of the first seed: data and reconstructions above, data again and what comes from the prior below.

    These are samples where a model has no noise beside its map, and the means of its samples elsewhere.
    """
    seed = settings.seeds[0]
    shown = [points(1000, 3 * seed)[:n], points(1000, 3 * seed + 2)]
    figure = Figure(
        figsize=(2.5 * (1 + len(settings.methods)), 5.4), layout="constrained"
    )
    panels = figure.subplots(
        2, 1 + len(settings.methods), sharex=True, sharey=True, squeeze=False
    )
    for row, (x, title) in enumerate(
        zip(shown, (f"{n} training rows", "1000 test rows"), strict=True)
    ):
        scatter(panels[row, 0], x, "black", title)
    for column, method in enumerate(settings.methods, start=1):
        kept = results.kept({"method": method, "n": n, "seed": seed})
        titles = (method, "samples" if method in WHOLE else "prior means")
        for row, name in enumerate(("reconstructions", "samples")):
            scatter(
                panels[row, column],
                kept.get(name, torch.zeros(0, 2)),
                COLOURS[method],
                titles[row],
            )
    panels[0, 1].set_ylabel("reconstructions")
    panels[1, 1].set_ylabel("from the prior")
    return figure


WHOLE: tuple[Method, ...] = (
    "uniform",
    "counted",
    "multiplexnet-inside",
    "multiplexnet-density",
)
"""Methods whose points from the prior are samples, noise and all."""


def scatter(panel: Axes, x: Tensor, colour: str, title: str) -> None:
    """Points, and the eight rectangles."""
    for rectangle in KNOWN:
        panel.add_patch(
            Polygon(
                rectangle.corners,
                closed=True,
                fill=False,
                edgecolor="firebrick",
                lw=0.8,
            )
        )
    panel.scatter(
        x[:, 0].numpy(), x[:, 1].numpy(), s=2.5, color=colour, alpha=0.6, lw=0
    )
    panel.set(xlim=(-7.2, 7.2), ylim=(-7.2, 7.2), aspect="equal", xticks=[], yticks=[])
    panel.set_title(title, fontsize=9)


if __name__ == "__main__":
    harness.command(Settings, main)
