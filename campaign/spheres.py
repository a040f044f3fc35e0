"""Balls and ellipsoids that inputs move, in numbers of every size: ``norm([rows · x − c]) <= u`` with inputs c and u.

Some are written as a sum of squares, ``(row · x − c)**2 + … <= u``. Squares of such numbers under- and overflow
where the numbers themselves do not. The judge computes in whole numbers. Raw values far out come near the wall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np
import torch
from torch import Tensor

from campaign.raws import raw_rows
from campaign.subject import Finding
from campaign.whole import dot, over_one
from multiplexnet.errors import InputError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = ["MovedBall", "moved_balls"]

ROWS = 48
SIZES = (-300, -170, -155, -100, -30, -3, 0, 3, 30, 100, 155, 170, 300, 307)
"""Powers of ten that all inputs of a row are multiplied by."""
SQUARED = (-145, -100, -30, -3, 0, 3, 30, 100, 145)
"""The same where u is a square."""
NEAR = 0.9
"""The share of the squared radius that the farthest row has to exceed: there are far raw values among all."""
ORDINARY = range(-250, 301)
"""Sizes for which a ball with room around its middle may not be refused, in float64."""
ROOMY = 0.5
"""The share of the radius that may be used up in the middle of a ball with room."""


@dataclass(frozen=True)
class MovedBall:
    """``norm([row · x − c_i for each row]) <= u``.

    Args:
        rows: whole numbers, one row for each input c.
        strict: ``<``.
        squared: the sum of the squares is compared with u.
    """

    rows: tuple[tuple[int, ...], ...]
    strict: bool
    squared: bool

    @staticmethod
    def drawn(random: Random) -> MovedBall:
        n = random.randint(1, 3)
        own = [[int(i == j) for j in range(n)] for i in range(n)]
        more = [
            [random.randint(-3, 3) for _ in range(n)]
            for _ in range(random.choice([0, 0, 1, 2]))
        ]
        strict = random.random() < 0.3
        return MovedBall(tuple(map(tuple, own + more)), strict, random.random() < 0.4)

    def __str__(self) -> str:
        return f"x: real[{len(self.rows[0])}]; {self.declared}\n{self.wall('x')}"

    @property
    def declared(self) -> str:
        """The declarations of its inputs."""
        return f"c: input[{len(self.rows)}]; u: input[1e-305, 1.7e308]"

    def wall(self, name: str) -> str:
        """The comparison, around a vector of this name."""
        parts = []
        for i, row in enumerate(self.rows):
            terms = [f"({c})*{name}[{j}]" for j, c in enumerate(row)]
            parts.append(f"{' + '.join(terms)} - c[{i}]")
        relation = "<" if self.strict else "<="
        if self.squared:
            squares = " + ".join(f"({part})**2" for part in parts)
            return f"{squares} {relation} u"
        return f"norm([{', '.join(parts)}]) {relation} u"

    def obeyed(self, x: Sequence[float], c: Sequence[float], u: float) -> bool:
        """Whether a row obeys, decided in whole numbers."""
        total, under_total = self.total(x, c)
        square, under_square = self.square(u)
        left, right = total * under_square, square * under_total
        return u >= 0 and (left < right if self.strict else left <= right)

    def total(self, x: Sequence[float], c: Sequence[float]) -> tuple[int, int]:
        """The sum of the squares, over a denominator."""
        numbers, divisor = over_one([*x, *c])
        outputs, centre = numbers[: len(x)], numbers[len(x) :]
        parts = [
            dot(row, outputs) - m for row, m in zip(self.rows, centre, strict=True)
        ]
        return dot(parts, parts), divisor**2

    def square(self, u: float) -> tuple[int, int]:
        """What the sum of the squares may be, over a denominator."""
        number, divisor = u.as_integer_ratio()
        return (number, divisor) if self.squared else (number**2, divisor**2)

    def used_up(self, c: Sequence[float]) -> float:
        """How far the nearest point of all x is from the middle, for inputs of ordinary size."""
        Y = np.array(self.rows, dtype=np.float64)
        best = np.linalg.lstsq(Y, np.array(c), rcond=None)[0]
        return float(np.linalg.norm(Y @ best - np.array(c)))


def moved_balls(random: Random) -> Iterator[Finding]:
    """Layers of such rules: every row that they return obeys, what has room is not refused, and the wall is reached."""
    ball = MovedBall.drawn(random)
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    yield from _around_inputs(ball, random)
    try:
        mux = Multiplexer(Rules(str(ball)), dtype=torch.float64).eval()
    except InputError:  # more rows than outputs: some inputs leave nothing
        return
    for size in random.sample(SQUARED if ball.squared else SIZES, 4):
        c = [random.randint(-8, 8) / 8 for _ in ball.rows]
        radius = random.choice([0.01, 0.5, 1.0, 1.3, 1.7])
        yield _answered(ball, mux, size, c, radius, generator)


def _around_inputs(ball: MovedBall, random: Random) -> Iterator[Finding]:
    """The same wall around inputs alone: it refuses a row, or leaves one of two terms, where it does not hold."""
    if len(ball.rows) == 1:  # two flat walls, which are refused for such inputs
        return
    declared = f"y: real; v: input[{len(ball.rows[0])}]; {ball.declared}"
    alone, either = (
        Multiplexer(f"{declared}\n{ball.wall('v')}{rest}", dtype=torch.float64)
        for rest in ("; y <= 1", " and y <= 1 or y >= 2")
    )
    sizes = [s for s in (SQUARED if ball.squared else SIZES) if s in ORDINARY]
    for size in random.sample(sizes, 3):
        told = _judged(ball, alone, either, 10.0**size, random)
        yield Finding("moved balls: inputs alone", told, rows=2)


def _judged(
    ball: MovedBall,
    alone: Multiplexer,
    either: Multiplexer,
    scale: float,
    random: Random,
) -> str:
    """What two layers say of one row, beside what is true of it in whole numbers."""
    c = [random.randint(-8, 8) / 8 * scale for _ in ball.rows]
    v = [random.randint(-8, 8) / 8 * scale for _ in ball.rows[0]]
    radius = random.choice([0.25, 1.0, 2.0, 5.0]) * scale
    u = radius * radius if ball.squared else radius
    given = {"v": [v], "c": [c], "u": [u]}
    tensors = {k: torch.tensor(o, dtype=torch.float64) for k, o in given.items()}
    holds = ball.obeyed(v, c, u)
    where = f"for v = {v}, c = {c}, u = {u} around inputs alone:\n{ball}"
    try:
        y = alone(torch.zeros(1, 1).double(), **tensors).best().item()
    except InputError:
        if holds:
            return f"a row that obeys is refused, {where}"
    else:
        if not holds or not y <= 1:
            return f"y = {y} in a row that does not obey, {where}"
    raw = torch.tensor([[0.0, 9.0, -9.0]], dtype=torch.float64)
    for own in (raw, raw * torch.tensor([1.0, -1.0, -1.0])):
        y = either(own, **tensors).best().item()
        if not (y >= 2 or (holds and y <= 1)):
            return f"y = {y} breaks, {where}"
    return ""


def _answered(
    ball: MovedBall,
    mux: Multiplexer,
    size: int,
    c: Sequence[float],
    radius: float,
    generator: torch.Generator,
) -> Finding:
    scale = 10.0**size
    centre = torch.tensor(c, dtype=torch.float64) * scale
    own = torch.tensor(radius, dtype=torch.float64) * scale
    u = own * own if ball.squared else own
    raw = raw_rows(ROWS, mux.in_features, mux.dtype, generator)
    given = {"c": centre.expand(len(raw), -1), "u": u.expand(len(raw))}
    has_room = ball.used_up(c) < ROOMY * radius and size in ORDINARY
    try:
        x = mux(raw, **given).best()
    except InputError as error:
        told = f"c = {centre.tolist()}, u = {u.item()} has room in\n{ball}\n{error}"
        return Finding("moved balls: rows", told if has_room else "", rows=len(raw))
    told = _told(ball, x, centre, u)
    if not told and has_room:
        told = _short(ball, x, centre, u)
    return Finding("moved balls: rows", told, rows=len(raw))


def _told(ball: MovedBall, x: Tensor, centre: Tensor, u: Tensor) -> str:
    """What is wrong with the rows, if something is."""
    for row in x.tolist():
        finite = bool(np.isfinite(row).all())
        if not finite or not ball.obeyed(row, centre.tolist(), u.item()):
            return f"{row} breaks, for c = {centre.tolist()}, u = {u.item()},\n{ball}"
    return ""


def _short(ball: MovedBall, x: Tensor, centre: Tensor, u: Tensor) -> str:
    """That no row comes near the wall, if so."""
    farthest = max(Fraction(*ball.total(row, centre.tolist())) for row in x.tolist())
    share = float(farthest / Fraction(*ball.square(u.item())))
    if share > NEAR:
        return ""
    return (
        f"all stay within {share} of the square, for c = {centre.tolist()}, u = {u.item()},\n"
        f"{ball}"
    )
