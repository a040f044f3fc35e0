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
        parts = []
        for i, row in enumerate(self.rows):
            terms = [f"({c})*x[{j}]" for j, c in enumerate(row)]
            parts.append(f"{' + '.join(terms)} - c[{i}]")
        relation = "<" if self.strict else "<="
        outputs, inputs = len(self.rows[0]), len(self.rows)
        declared = f"x: real[{outputs}]; c: input[{inputs}]; u: input[1e-305, 1.7e308]"
        if self.squared:
            squares = " + ".join(f"({part})**2" for part in parts)
            return f"{declared}\n{squares} {relation} u"
        return f"{declared}\nnorm([{', '.join(parts)}]) {relation} u"

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
    try:
        mux = Multiplexer(Rules(str(ball)), dtype=torch.float64).eval()
    except InputError:  # more rows than outputs: some inputs leave nothing
        return
    for size in random.sample(SQUARED if ball.squared else SIZES, 4):
        c = [random.randint(-8, 8) / 8 for _ in ball.rows]
        radius = random.choice([0.01, 0.5, 1.0, 1.3, 1.7])
        yield _answered(ball, mux, size, c, radius, generator)


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
