"""A point deep inside linear rows and cones, in floats: a barrier, and Newton steps along its path.

Nothing that leaves this module is trusted: a point is a proposal to be checked in exact arithmetic.

First the largest τ is sought for which ``a_i·x + τ ≤ b_i`` and ``|Y x + y| ≤ s·x + t − τ`` have a point, which is
negative where the set is empty. Then, from a point inside, the analytic centre: the least of

    − Σ log(b_i − a_i·x) − Σ log((s·x + t)² − |Y x + y|²) + ½ |x − x₀|² / size²,

whose last part keeps it near where the set has no end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multiplexnet.exact.deadline import NEVER, Deadline

__all__ = ["FloatCone", "Walls", "centre", "deepest"]

Array = NDArray[np.float64]

LARGEST = 1e100
"""Numbers up to here are worked with."""
FAR = 1e6
"""How far from the origin a point is looked for, in units of the numbers of the walls."""
GROWTH = 12.0
"""By how much the weight of the goal grows from one centre of the path to the next."""
ENOUGH = 1e12
"""The weight at which the path ends."""
STEPS = 40
"""Newton steps for one centre."""
DECREMENT = 1e-8
"""The squared Newton decrement at which a centre is near enough."""
WIDE = 10.0
"""Of the sizes of the set the radius within which its centre stays if it has no end."""


@dataclass(frozen=True)
class FloatCone:
    """``|Y x + y| ≤ s·x + t``."""

    Y: Array
    y: Array
    s: Array
    t: float

    @property
    def unit(self) -> float:
        """How fast both sides change."""
        columns = np.linalg.norm(self.Y, axis=0)
        found = float(np.linalg.norm(self.s)) + float(columns.max(initial=0.0))
        return found if 0 < found < np.inf else 1.0

    @cached_property
    def products(self) -> Array:
        """``YᵀY``, which every step of a search needs."""
        return np.asarray(self.Y.T @ self.Y)

    @property
    def scaled(self) -> FloatCone:
        """The same cone, so that a step of 1 changes it by about 1."""
        unit = self.unit
        return FloatCone(self.Y / unit, self.y / unit, self.s / unit, self.t / unit)


@dataclass(frozen=True)
class Walls:
    """``A x ≤ b`` and cones."""

    A: Array
    b: Array
    cones: Sequence[FloatCone]

    @staticmethod
    def of(A: Array, b: Array, cones: Sequence[FloatCone]) -> Walls:
        """The walls, each in units of how fast it changes."""
        lengths = np.linalg.norm(A, axis=1)
        lengths[lengths == 0] = 1.0
        return Walls(A / lengths[:, None], b / lengths, [c.scaled for c in cones])

    @property
    def n(self) -> int:
        return int(self.A.shape[1])

    @property
    def largest(self) -> float:
        """The largest constant."""
        numbers = [float(np.abs(self.b).max(initial=0.0))]
        for cone in self.cones:
            numbers += [float(np.abs(cone.y).max(initial=0.0)), abs(cone.t)]
        return max(numbers)

    @property
    def size(self) -> float:
        """The largest constant, at least 1."""
        return max(1.0, self.largest)

    def measured_in(self, unit: float) -> Walls:
        """The same walls for x in another unit."""
        cones = [
            FloatCone(cone.Y, cone.y / unit, cone.s, cone.t / unit)
            for cone in self.cones
        ]
        return Walls(self.A, self.b / unit, cones)

    def lifted(self, reach: float, cap: float) -> Walls:
        """The walls in (x, τ): all of them moved inward by τ, with ends for x and τ."""
        n = self.n
        of_rows = np.column_stack([self.A, np.ones(len(self.A))])
        of_x = np.hstack([np.vstack([np.eye(n), -np.eye(n)]), np.zeros((2 * n, 1))])
        of_cap = np.append(np.zeros(n), 1.0)[None, :]
        A = np.vstack([of_rows, of_x, of_cap])
        b = np.concatenate([self.b, np.full(2 * n, reach), [cap]])
        cones = []
        for cone in self.cones:
            Y = np.hstack([cone.Y, np.zeros((len(cone.Y), 1))])
            cones.append(FloatCone(Y, cone.y, np.append(cone.s, -1.0), cone.t))
        return Walls(A, b, cones)

    def value(self, x: Array) -> float:
        """The barrier; infinite outside."""
        slack = self.b - self.A @ x
        if not (slack > 0).all():
            return np.inf
        total = -float(np.log(slack).sum())
        for cone in self.cones:
            bound = float(cone.s @ x) + cone.t
            inside = cone.Y @ x + cone.y
            length = float(np.linalg.norm(inside))
            if not bound > length:
                return np.inf
            total -= float(np.log(bound - length) + np.log(bound + length))
        return total

    def slopes(self, x: Array) -> tuple[Array, Array]:
        """Gradient and Hessian of the barrier."""
        slack = self.b - self.A @ x
        weighted = self.A / slack[:, None]
        gradient = weighted.sum(axis=0)
        hessian = weighted.T @ weighted
        for cone in self.cones:
            bound = float(cone.s @ x) + cone.t
            inside = cone.Y @ x + cone.y
            length = float(np.linalg.norm(inside))
            room = (bound - length) * (bound + length)
            down = 2 * (bound * cone.s - cone.Y.T @ inside)
            gradient = gradient - down / room
            curved = 2 * (np.outer(cone.s, cone.s) - cone.products)
            hessian = hessian + np.outer(down, down) / room**2 - curved / room
        return gradient, hessian


def deepest(walls: Walls, deadline: Deadline = NEVER) -> tuple[float, Array]:
    """The largest τ that was found, and where: the set has points if it is positive, and seems to have none if not."""
    size = walls.size
    n = walls.n
    if not size < LARGEST:
        return -np.inf, np.zeros(n)
    lifted = walls.lifted(FAR * size, size)
    x = np.zeros(n + 1)
    depth = size
    while not np.isfinite(lifted.value(x)):
        x[n] = -depth
        depth *= 4
        if depth > 1e200:
            return -np.inf, x[:n]
    goal = np.zeros(n + 1)
    goal[n] = -1.0
    weight = 1.0 / size
    pull = np.append(_pull(walls), 0.0)
    home = np.zeros(n + 1)
    with np.errstate(all="ignore"):
        while weight < ENOUGH / size:
            x = _newton(lifted, x, weight * goal, pull, home, deadline)
            if x[n] > 0 and weight * size > GROWTH:
                break  # inside: the centre does the rest
            weight *= GROWTH
    return float(x[n]), x[:n]


def centre(walls: Walls, start: Array, deadline: Deadline = NEVER) -> Array:
    """The analytic centre, from a point inside."""
    zeros = np.zeros(walls.n)
    with np.errstate(all="ignore"):
        return _newton(walls, start, zeros, _pull(walls), zeros, deadline)


def _pull(walls: Walls) -> Array:
    return np.full(walls.n, 1 / (WIDE * walls.size) ** 2)


def _newton(
    walls: Walls, x: Array, goal: Array, pull: Array, home: Array, deadline: Deadline
) -> Array:
    """The least of ``goal·x + barrier + ½ Σ pull (x − home)²``."""

    def value(at: Array) -> float:
        barrier = walls.value(at)
        return barrier + float(goal @ at) + 0.5 * float(pull @ (at - home) ** 2)

    now = value(x)
    for _ in range(STEPS):
        deadline.check()
        gradient, hessian = walls.slopes(x)
        gradient = gradient + goal + pull * (x - home)
        hessian = hessian + np.diag(pull)
        if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
            return x
        direction = _direction(hessian, gradient)
        decrement = -float(gradient @ direction)
        if not decrement > DECREMENT:
            return x
        length = 1.0
        while True:
            moved = x + length * direction
            there = value(moved)
            if there <= now - 0.1 * length * decrement:
                break
            length /= 2
            if length < 1e-12:
                return x
        x = moved
        now = there
    return x


def _direction(hessian: Array, gradient: Array) -> Array:
    scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    scaled = hessian / np.outer(scale, scale)
    try:
        found = np.linalg.solve(scaled + 1e-14 * np.eye(len(scale)), -gradient / scale)
    except np.linalg.LinAlgError:
        found = np.linalg.lstsq(scaled, -gradient / scale, rcond=None)[0]
    return np.asarray(found / scale)
