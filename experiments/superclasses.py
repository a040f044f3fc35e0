"""Classes in super-classes: the rules that hold them together, and eight ways to learn them.

The rules are a disjunction of terms, one per super-class, that bound logits by an opaque function of the others,
``bound(…) = log(α / (1 − α)) + logsumexp(…)``. The paper asks it of each class of a super-class by itself, which is
more than «the super-class has probability at least α»; asked of the logits of the super-classes, it is that exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import torch
from harness import ExperimentError
from torch import Tensor, nn
from torch.nn import functional as F

import multiplexnet as mx


class Hierarchy(nn.Module):
    """Which classes belong to which super-class, as the training labels have it.

    Args:
        fine: the class of every image.
        coarse: its super-class.
    """

    members: Tensor
    parent: Tensor

    def __init__(self, fine: Tensor, coarse: Tensor) -> None:
        super().__init__()
        pairs = torch.unique(
            torch.stack([coarse, fine], -1), dim=0
        )  # in order of super-class, then class
        groups, classes = int(coarse.max()) + 1, int(fine.max()) + 1
        if (
            len(pairs) != classes
            or not (pairs[:, 0].bincount(minlength=groups) * groups == classes).all()
        ):
            raise ExperimentError(
                f"{len(pairs)} pairs of class and super-class, {classes} classes, {groups} super-classes: every class "
                "must occur, with one super-class, and all super-classes must have equally many; is this CIFAR-100?"
            )
        self.register_buffer(
            "members", pairs[:, 1].reshape(groups, -1), persistent=False
        )
        self.register_buffer(
            "parent", pairs[:, 0][pairs[:, 1].argsort()], persistent=False
        )

    @property
    def groups(self) -> int:
        return len(self.members)

    @property
    def classes(self) -> int:
        return len(self.parent)

    def logits(self, classes: Tensor) -> Tensor:
        """Logits of the super-classes, logsumexp over their classes: ``(*batch, C)`` becomes ``(*batch, G)``."""
        own = classes.index_select(-1, self.members.flatten())
        return own.reshape(*own.shape[:-1], *self.members.shape).logsumexp(-1)

    def within(self, classes: Tensor) -> Tensor:
        """log p(class | its super-class), ``(*batch, C)``."""
        return classes - self.logits(classes).index_select(-1, self.parent)


# --- rules -----------------------------------------------------------------------------------------------------------


def odds(alpha: float) -> float:
    """α / (1 − α), α read as the decimal number that it is written as."""
    exact = Fraction(str(alpha))
    return float(exact / (1 - exact))


@dataclass(frozen=True)
class Bound:
    """log(α / (1 − α)) + logsumexp(others), rounded up to a number of their dtype: what exceeds it has enough."""

    alpha: float

    def __call__(self, *others: Tensor) -> Tensor:
        value = torch.stack(others, -1).double().logsumexp(-1) + math.log(
            odds(self.alpha)
        )
        dtype = others[0].dtype
        above = torch.nextafter(
            value.detach().to(dtype),
            torch.tensor(math.inf, dtype=dtype, device=value.device),
        )
        return above + (value - value.detach()).to(
            dtype
        )  # that zero carries the gradient


def group_rules(hierarchy: Hierarchy) -> mx.Rules:
    """Some super-class has probability at least α: its logit exceeds the bound of the others'."""
    groups = range(hierarchy.groups)
    terms = (
        f"s[{i}] > bound({', '.join(f's[{j}]' for j in groups if j != i)})"
        for i in groups
    )
    return mx.Rules(
        f"s: real[{hierarchy.groups}]; bound: function\n{' or '.join(terms)}"
    )


def class_rules(hierarchy: Hierarchy) -> mx.Rules:
    """The paper's: every class of some super-class exceeds the bound of all classes outside, by itself."""
    terms = []
    for members in hierarchy.members.tolist():
        outside = ", ".join(
            f"x[{j}]" for j in range(hierarchy.classes) if j not in members
        )
        terms.append(" and ".join(f"x[{c}] > bound({outside})" for c in members))
    return mx.Rules(
        f"x: real[{hierarchy.classes}]; bound: function\n{' or '.join(f'({term})' for term in terms)}"
    )


def certain(logits: Tensor, hierarchy: Hierarchy, alpha: float) -> Tensor:
    """Whether some super-class surely has probability ≥ α, decided by itself and on the safe side, ``(*batch,)``.

    In float64 the share of a super-class and that of the rest are off by less than a relative 2⁻⁴⁰ (a hundred terms, an
    exp of a difference below 745 each); what is closer to α than that counts as broken.
    """
    shares = torch.exp(logits.double() - logits.double().amax(-1, keepdim=True))
    inside = (
        shares
        if logits.shape[-1] == hierarchy.groups
        else shares[..., hierarchy.members].sum(-1)
    )
    mine = torch.eye(hierarchy.groups, dtype=torch.bool, device=logits.device)
    outside = (
        inside.unsqueeze(-2)
        .expand(*inside.shape, hierarchy.groups)
        .masked_fill(mine, 0.0)
        .sum(-1)
    )
    return (inside * (1 - 2**-39) >= odds(alpha) * outside).any(-1)


# --- methods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a method says of images: logits of the classes (or of the super-classes alone) and its decisions."""

    logits: Tensor
    coarse: Tensor
    fine: Tensor | None


class Head(nn.Module, ABC):
    """From what the last linear layer puts out to a loss and to an answer.

    Args:
        hierarchy: classes and super-classes.
        alpha: what some super-class must have.
    """

    def __init__(self, hierarchy: Hierarchy, alpha: float) -> None:
        super().__init__()
        self.hierarchy, self.alpha = hierarchy, alpha

    @property
    def outputs(self) -> int:
        """The size of the last linear layer."""
        return self.hierarchy.classes

    @abstractmethod
    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        """One loss per image; z is ``(batch, outputs)``."""

    def logits(self, z: Tensor) -> Tensor:
        """Logits of the classes."""
        return z

    def answer(self, z: Tensor) -> Answer:
        logits = self.logits(z).double()
        return Answer(
            logits, self.hierarchy.logits(logits).argmax(-1), logits.argmax(-1)
        )


class Vanilla(Head):
    """Cross-entropy of the classes; the super-class is the one with the largest sum of probabilities."""

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        return F.cross_entropy(z, fine, reduction="none")


class VanillaSuperclass(Vanilla):
    """The same with half a cross-entropy of the super-class added: what that alone is worth."""

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        return super().loss(z, fine) + half(self.hierarchy, z, fine)


class Superclass(Head):
    """Cross-entropy of the super-classes, and nothing about classes."""

    @property
    def outputs(self) -> int:
        return self.hierarchy.groups

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        return F.cross_entropy(z, self.hierarchy.parent[fine], reduction="none")

    def answer(self, z: Tensor) -> Answer:
        return Answer(z.double(), z.argmax(-1), None)


class Hierarchical(Head):
    """A head for the super-class and one for the class within it, decided in this order."""

    @property
    def outputs(self) -> int:
        return self.hierarchy.classes + self.hierarchy.groups

    def _heads(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return z[..., : self.hierarchy.classes], z[..., self.hierarchy.classes :]

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        classes, groups = self._heads(z)
        coarse = F.cross_entropy(groups, self.hierarchy.parent[fine], reduction="none")
        return coarse - picked(self.hierarchy.within(classes), fine)

    def answer(self, z: Tensor) -> Answer:
        classes, groups = self._heads(z.double())
        within, coarse = self.hierarchy.within(classes), groups.argmax(-1)
        logits = within + groups.log_softmax(-1)[:, self.hierarchy.parent]
        inside = self.hierarchy.parent == coarse.unsqueeze(-1)
        return Answer(logits, coarse, within.masked_fill(~inside, -math.inf).argmax(-1))


class DL2(Vanilla):
    """Cross-entropy and 0.6 times the loss of DL2: every super-class should have at least α, or at most 1 − α."""

    def __init__(self, hierarchy: Hierarchy, alpha: float) -> None:
        super().__init__(hierarchy, alpha)
        self.rules = mx.Rules(
            f"p: real[{hierarchy.groups}]\nall(v >= {alpha} or v <= 1 - {alpha} for v in p)"
        )

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        return super().loss(z, fine) + 0.6 * mx.dl2_loss(
            self.rules, self.hierarchy.logits(z).softmax(-1)
        )


ROWS = 125
"""So many rows of 20 terms and 100 outputs are held at once; of more, the layer computes everything twice."""


class Paper(Head):
    """MultiplexNet as published: the rules ask each class by itself, and π comes from outputs of its own."""

    def __init__(self, hierarchy: Hierarchy, alpha: float) -> None:
        super().__init__(hierarchy, alpha)
        self.mux = mx.Multiplexer(
            class_rules(hierarchy), functions={"bound": Bound(alpha)}
        )

    @property
    def outputs(self) -> int:
        return self.mux.in_features

    def branches(self, z: Tensor) -> mx.Branches:
        branches: mx.Branches = self.mux(z)
        return branches

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        parts = zip(torch.split(z, ROWS), torch.split(fine, ROWS), strict=True)
        return torch.cat(
            [
                self.branches(own).loss(partial(cost, label=label))
                for own, label in parts
            ]
        )

    def logits(self, z: Tensor) -> Tensor:
        return self.branches(z).best()


class Tied(Head):
    """MultiplexNet with the choice tied to the classes: the logit of term i is that of super-class i.

    The layer moves the logits of super-classes, so that all classes of one are shifted by a common amount. Given its
    super-class a class is as probable as before, and ``−log p(fine | coarse)`` stands outside of the sum over terms.
    """

    def __init__(self, hierarchy: Hierarchy, alpha: float) -> None:
        super().__init__(hierarchy, alpha)
        self.mux = mx.Multiplexer(
            group_rules(hierarchy), functions={"bound": Bound(alpha)}
        )
        winners = self.mux(torch.zeros(self.mux.in_features)).x.argmax(-1)
        self.register_buffer("winners", winners, persistent=False)

    winners: Tensor
    """The super-class that wins in each term: the compiler is free to order terms as it likes."""

    def branches(self, z: Tensor) -> mx.Branches:
        s = self.hierarchy.logits(z)
        branches: mx.Branches = self.mux(
            torch.cat([s, s.index_select(-1, self.winners)], -1)
        )  # values, then the choice
        return branches

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        coarse = self.hierarchy.parent[fine]
        return self.branches(z).loss(lambda s: cost(s, coarse)) - picked(
            self.hierarchy.within(z), fine
        )

    def logits(self, z: Tensor) -> Tensor:
        best = self.branches(z).best().double()
        return self.hierarchy.within(z.double()) + best.index_select(
            -1, self.hierarchy.parent
        )


class TiedSuperclass(Tied):
    """The same with half a cross-entropy of the super-class added."""

    def loss(self, z: Tensor, fine: Tensor) -> Tensor:
        return super().loss(z, fine) + half(self.hierarchy, z, fine)


def half(hierarchy: Hierarchy, z: Tensor, fine: Tensor) -> Tensor:
    """Half a cross-entropy of the super-class, from logits of the classes."""
    return 0.5 * F.cross_entropy(
        hierarchy.logits(z), hierarchy.parent[fine], reduction="none"
    )


def picked(values: Tensor, label: Tensor) -> Tensor:
    """The value at the label, ``(*batch, n)`` and ``(*batch,)``; terms between them are spread over."""
    while label.dim() < values.dim():
        label = label.unsqueeze(-1)
    return values.gather(-1, label.expand(*values.shape[:-1], 1)).squeeze(-1)


def cost(logits: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy for every term: ``(batch, K, n)`` and ``(batch,)`` give ``(batch, K)``."""
    return logits.logsumexp(-1) - picked(logits, label)


HEADS: dict[str, type[Head]] = {
    "vanilla": Vanilla,
    "vanilla-superclass": VanillaSuperclass,
    "superclass": Superclass,
    "hierarchical": Hierarchical,
    "dl2": DL2,
    "multiplexnet-paper": Paper,
    "multiplexnet": Tied,
    "multiplexnet-superclass": TiedSuperclass,
}
