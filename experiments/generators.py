"""Other generators under the layer: a normalising flow and a GAN on the six rectangles, with and without the rules.

The paper has a variational autoencoder and says that others «could as easily be used». Each here is a network whose
last step is the layer, beside the same network without it:

* ``flow``: six affine couplings of the plane; ``flow-layer``: the same couplings of raw values, told which term they
  are for, with a learned p(k). The density of x is that of raw over |det ∂x/∂raw|, exactly;
* ``gan``: a generator of two outputs against a discriminator; ``gan-layer``: the generator's outputs go through the
  layer, a term is drawn, and its logits get the gradient of the relaxed choice, while the value stays that of the term.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import harness
import synthetic
import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["GENERATORS", "Density", "generated"]

ROWS, BATCH, HIDDEN = 1000, 128, 64
TERMS = len(synthetic.KNOWN)
Optimizer = torch.optim.Optimizer


# --- flows -----------------------------------------------------------------------------------------------------------


class Couplings(nn.Module):
    """A flow of two numbers: six times one of them is shifted and scaled by what a network reads from the other.

    Args:
        context: features that the networks read, too.
    """

    def __init__(self, context: int = 0, count: int = 6) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(
                nn.Linear(1 + context, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2)
            )
            for _ in range(count)
        )
        self.double()

    def log_prob(self, x: Tensor, context: Tensor) -> Tensor:
        """The log-density of x, ``(*batch, 2)``: x is led back to the normal distribution."""
        total = x.new_zeros(x.shape[:-1])
        for number, net in enumerate(self.nets):
            kept, moved = x[..., number % 2], x[..., 1 - number % 2]
            shift, log_scale = self._said(net, kept, context)
            moved = (moved - shift) * (-log_scale).exp()
            x = self._ordered(kept, moved, number)
            total = total - log_scale
        return total - x.square().sum(-1) / 2 - math.log(2 * math.pi)

    def forward(self, noise: Tensor, context: Tensor) -> Tensor:
        """x from normal noise: the same steps in the other direction."""
        x = noise
        for number, net in reversed(list(enumerate(self.nets))):
            kept, moved = x[..., number % 2], x[..., 1 - number % 2]
            shift, log_scale = self._said(net, kept, context)
            x = self._ordered(kept, moved * log_scale.exp() + shift, number)
        return x

    def _said(
        self, net: nn.Module, kept: Tensor, context: Tensor
    ) -> tuple[Tensor, Tensor]:
        shift, log_scale = net(torch.cat([kept.unsqueeze(-1), context], -1)).unbind(-1)
        return shift, 2 * torch.tanh(log_scale)

    def _ordered(self, kept: Tensor, moved: Tensor, number: int) -> Tensor:
        pair = [moved, kept] if number % 2 else [kept, moved]
        return torch.stack(pair, -1)


class Generator(nn.Module, ABC):
    """Something that draws points of the plane, and can be trained on some."""

    @abstractmethod
    def sample(self, count: int) -> Tensor: ...


class Density(Generator):
    """A generator that knows the density of what it draws."""

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor: ...


class PlainFlow(Density):
    """Couplings of the plane, in units of a third of the picture."""

    SCALE = 3.0

    def __init__(self) -> None:
        super().__init__()
        self.couplings = Couplings()

    def log_prob(self, x: Tensor) -> Tensor:
        found = self.couplings.log_prob(x.double() / self.SCALE, x.new_zeros(len(x), 0))
        return found - 2 * math.log(self.SCALE)

    def sample(self, count: int) -> Tensor:
        noise = torch.randn(count, 2, dtype=torch.float64)
        x: Tensor = self.couplings(noise, noise.new_zeros(count, 0))
        return self.SCALE * x


class LayerFlow(Density):
    """A term, then couplings of its raw values, then its map."""

    def __init__(self) -> None:
        super().__init__()
        self.couplings = Couplings(TERMS)
        self.logits = nn.Parameter(torch.zeros(TERMS, dtype=torch.float64))
        ((_, self.maps),) = synthetic.layer(torch.float64).block_maps()

    def log_prob(self, x: Tensor) -> Tensor:
        term = synthetic.terms_of(x)
        with torch.no_grad():
            raw = self.maps.inverse(x.double(), term)
            _, log_det = self.maps.forward_and_log_det(raw, term)
        inner = self.couplings.log_prob(raw, self._context(term))
        return self.logits.log_softmax(-1)[term] + inner - log_det

    def sample(self, count: int) -> Tensor:
        term = torch.multinomial(self.logits.softmax(-1), count, replacement=True)
        noise = torch.randn(count, 2, dtype=torch.float64)
        x: Tensor = self.maps(self.couplings(noise, self._context(term)), term)
        return x

    def _context(self, term: Tensor) -> Tensor:
        return F.one_hot(term, TERMS).double()


def fit_density(
    run: harness.Run, model: Density, rows: Tensor, steps: int, rate: float
) -> None:
    """Adam on the exact likelihood, with a falling rate."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = rows[torch.randint(len(rows), (BATCH,))]
        taken(run, optimizer, -model.log_prob(batch).mean())
        schedule.step()


# --- adversaries -----------------------------------------------------------------------------------------------------

NOISE, TEMPERATURE, SMOOTH = 8, 0.5, 0.1
"""Numbers that a generator starts from, the temperature of its choice, the weight of the discriminator's slope."""


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN),
        nn.LeakyReLU(0.2),
        nn.Linear(HIDDEN, HIDDEN),
        nn.LeakyReLU(0.2),
        nn.Linear(HIDDEN, outputs),
    )


class PlainGan(Generator):
    """Two outputs are the point."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(NOISE, 2)

    def sample(self, count: int) -> Tensor:
        x: Tensor = self.net(torch.randn(count, NOISE))
        return x


class LayerGan(Generator):
    """The outputs go through the layer, and a term is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.mux = synthetic.layer(per_term=True)
        self.net = perceptron(NOISE, self.mux.in_features)

    def sample(self, count: int) -> Tensor:
        branches = self.mux(self.net(torch.randn(count, NOISE)))
        noise = -torch.log(-torch.log(torch.rand(branches.logits.shape) + 1e-20))
        logits = branches.log_probs + noise
        index = logits.argmax(-1)[:, None, None].expand(-1, 1, 2)
        value = branches.x.gather(-2, index).squeeze(-2)
        weights = (logits / TEMPERATURE).softmax(-1).unsqueeze(-1)
        relaxed = (weights * branches.x.detach()).sum(-2)
        zero = relaxed - relaxed.detach()  # it carries the gradient
        drawn: Tensor = value + zero
        return drawn


def fit_against(
    run: harness.Run, model: Generator, rows: Tensor, steps: int, rate: float
) -> None:
    """Generator and discriminator in turn, each with the logistic loss; the discriminator's slope on data is small."""
    critic = perceptron(2, 1)
    players = [
        torch.optim.Adam(each.parameters(), rate, betas=(0.5, 0.9))
        for each in (critic, model)
    ]
    schedules = [
        torch.optim.lr_scheduler.CosineAnnealingLR(player, steps) for player in players
    ]
    for _ in range(steps):
        real = rows[torch.randint(len(rows), (BATCH,))].requires_grad_()
        score = critic(real)
        (slope,) = torch.autograd.grad(score.sum(), real, create_graph=True)
        made = model.sample(BATCH)
        loss = F.softplus(-score) + F.softplus(critic(made.detach()))
        steepness = SMOOTH * slope.square().sum(-1)
        taken(run, players[0], loss.mean() + steepness.mean())
        taken(run, players[1], F.softplus(-critic(made)).mean())
        for schedule in schedules:
            schedule.step()


def taken(run: harness.Run, optimizer: Optimizer, loss: Tensor) -> None:
    """One step down."""
    run.check(loss)
    optimizer.zero_grad()
    run.backward(loss)
    optimizer.step()


# --- results ---------------------------------------------------------------------------------------------------------

GENERATORS: dict[str, Callable[[], Generator]] = {
    "flow": PlainFlow,
    "flow-layer": LayerFlow,
    "gan": PlainGan,
    "gan-layer": LayerGan,
}


def generated(run: harness.Run, steps: int) -> dict[str, Any]:
    """Train on 1,000 rows; how many samples obey, how far they are from test rows, and what the density says."""
    settings = synthetic.Settings()
    data = synthetic.drawn(ROWS, run.key["seed"], settings)
    model = GENERATORS[run.key["method"]]()
    if isinstance(model, Density):
        fit_density(run, model, data.train, steps, 3e-3)
    else:
        fit_against(run, model, data.train, steps, 1e-3)
    with torch.no_grad():
        samples = model.sample(len(data.test))
        nll = (
            -float(model.log_prob(data.test).mean())
            if isinstance(model, Density)
            else None
        )
    return {
        "obey": float(synthetic.rules().satisfied(samples).double().mean()),
        "energy": synthetic.energy_distance(samples, data.test),
        "nll": nll,
    }
