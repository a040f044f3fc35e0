"""Random curved walls: balls, ellipsoids, cones, paraboloids, flat walls and alternatives, judged in whole numbers.

Every set is drawn around a point that obeys with room to spare, so that a layer in float64 has to be built for it. The
judge knows the numbers of the walls and nothing of the library. Rows are those at the walls, at ±inf and in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import cycle, product
from math import inf, isfinite, nextafter
from random import Random

import torch
from torch import Tensor

from campaign.formulas import nonzero, small
from campaign.raws import raw_rows
from campaign.subject import Finding
from campaign.whole import Over, dot, over_one
from multiplexnet.certificate.check import certify
from multiplexnet.errors import CompileTimeout, MultiplexError, ThinTermError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = ["Wall", "Walls", "curved_walls"]

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROWS = 96
CERTIFIED = 0.15
"""The share of the layers whose certificate is proved again."""

BEYOND = (1 + 2.0**-30, 1 + 2.0**-10, 1.5, 8.0)
"""Multiples of a row that may lie outside."""
BESIDE = tuple(product((-2, -1, 0, 1, 2), repeat=2))
"""How many floats the outputs in turn are moved by, around a point of a wall."""
SHORT = 2.0**18
"""Rows at the walls are asked about with this many steps in a unit as well."""
FAR = (2.0**60, 2.0**1020)
"""Rows so many times as far, in all coordinates and in one, are asked about in the same call."""

Point = Sequence[Fraction]


@dataclass(frozen=True)
class _WholeWall:
    """A wall whose numbers are whole: its sum of squares is divided by one number, its other side by another."""

    weights: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    shifts: tuple[int, ...]
    bound: tuple[int, ...]
    number: int
    under_total: int
    under_side: int


@dataclass(frozen=True)
class Wall:
    """``√(Σ weight · (row·x + shift)²) ≤ bound·x + number``, strict or not; without weights ``0 ≤ bound·x + number``.

    Args:
        weights: of the squares, positive.
        rows: one for each square.
        shifts: one for each square.
        bound: the coefficients on the other side.
        number: the constant there.
        strict: ``<``.
        words: how it is written, ``norm``, ``squares`` or ``flat``.
    """

    weights: tuple[Fraction, ...]
    rows: tuple[tuple[Fraction, ...], ...]
    shifts: tuple[Fraction, ...]
    bound: tuple[Fraction, ...]
    number: Fraction
    strict: bool
    words: str

    def obeyed(self, x: Over) -> bool:
        """Whether a point lies inside, decided in whole numbers: both sides are multiplied until nothing is divided."""
        numbers, divisor = x
        own = self._whole
        side = dot(own.bound, numbers) + own.number * divisor
        parts = [
            dot(row, numbers) + shift * divisor
            for row, shift in zip(own.rows, own.shifts, strict=True)
        ]
        total = sum(w * v * v for w, v in zip(own.weights, parts, strict=True))
        if self.words == "squares":
            total *= own.under_side
            other = side * own.under_total * divisor
        elif side < 0 or (side == 0 and self.strict):
            return False
        else:
            total *= own.under_side**2
            other = side * side * own.under_total
        return total < other if self.strict else total <= other

    @cached_property
    def _whole(self) -> _WholeWall:
        n = len(self.bound)
        weights, under_weights = over_one(self.weights)
        every = [number for row in self.rows for number in row]
        parts, under_parts = over_one([*every, *self.shifts])
        side, under_side = over_one([*self.bound, self.number])
        count = len(self.rows)
        return _WholeWall(
            weights,
            tuple(parts[i * n : (i + 1) * n] for i in range(count)),
            parts[count * n :],
            side[:-1],
            side[-1],
            under_weights * under_parts**2,
            under_side,
        )

    def moved(self, by: Point) -> Wall:
        """The same wall elsewhere."""
        shifts = [
            s - _value(r, by) for r, s in zip(self.rows, self.shifts, strict=True)
        ]
        number = self.number - _value(self.bound, by)
        return replace(self, shifts=tuple(shifts), number=number)

    def __str__(self) -> str:
        relation = "<" if self.strict else "<="
        side = _sum(self.bound, self.number)
        parts = [_sum(r, s) for r, s in zip(self.rows, self.shifts, strict=True)]
        if self.words == "flat":
            return f"0 {relation} {side}"
        if self.words == "squares":
            squares = [
                f"{_number(w)}*({part})**2"
                for w, part in zip(self.weights, parts, strict=True)
            ]
            return f"{' + '.join(squares)} {relation} {side}"
        weights = ", ".join(map(_number, self.weights))
        return f"norm([{', '.join(parts)}], 2, [{weights}]) {relation} {side}"


def _value(row: Sequence[Fraction], x: Point) -> Fraction:
    return sum((a * v for a, v in zip(row, x, strict=True)), Fraction(0))


def _number(value: Fraction) -> str:
    return f"({value.numerator}/{value.denominator})"


def _sum(row: Sequence[Fraction], constant: Fraction) -> str:
    parts = [f"{_number(a)}*x[{j}]" for j, a in enumerate(row) if a]
    return " + ".join([*parts, _number(constant)])


@dataclass(frozen=True)
class Walls:
    """Clauses of walls: one of each clause holds."""

    n: int
    clauses: tuple[tuple[Wall, ...], ...]

    def obeyed(self, x: Sequence[float]) -> bool:
        """Whether a row of finite numbers obeys."""
        point = over_one(x)
        return all(
            any(wall.obeyed(point) for wall in clause) for clause in self.clauses
        )

    def moved(self, by: Point) -> Walls:
        """The same walls elsewhere."""
        clauses = [tuple(wall.moved(by) for wall in clause) for clause in self.clauses]
        return Walls(self.n, tuple(clauses))

    def __str__(self) -> str:
        lines = [" or ".join(map(str, clause)) for clause in self.clauses]
        return "\n".join([f"x: real[{self.n}]", *lines])

    @staticmethod
    def drawn(random: Random) -> Walls:
        """Some walls around a point."""
        n = random.choice([1, 2, 2, 3, 3, 4, 6, 10])
        point = [Fraction(random.randint(-16, 16), 4) for _ in range(n)]
        clauses = []
        for _ in range(random.randint(1, 4)):
            here = _wall(random, n, point)
            others = [
                _wall(random, n, [c + random.randint(-9, 9) for c in point])
                for _ in range(random.choice([0, 0, 0, 1, 2]))
            ]
            clause = [here, *others]
            random.shuffle(clause)
            clauses.append(tuple(clause))
        return Walls(n, tuple(clauses))


def _wall(random: Random, n: int, point: Point) -> Wall:
    """A wall that a point keeps, with a share of its size to spare."""
    words = random.choice(["norm", "norm", "squares", "flat"])
    count = 0 if words == "flat" else random.choice([1, n, n, min(n, 2)])
    rows = tuple(_row(random, n, i, n == count) for i in range(count))
    shifts = tuple(
        -_value(row, point) if random.random() < 0.5 else small(random) for row in rows
    )
    plain = random.random() < 0.5
    weights = tuple(Fraction(1) if plain else abs(nonzero(random)) for _ in rows)
    leans = words == "flat" or random.random() < 0.3
    bound = tuple(
        small(random) if leans else Fraction(0) for _ in range(n)
    )  # a cone, or a ball
    parts = [_value(row, point) + s for row, s in zip(rows, shifts, strict=True)]
    total = sum((w * v * v for w, v in zip(weights, parts, strict=True)), Fraction(0))
    needed = total if words == "squares" else _above_root(total)
    spare = random.choice([Fraction(1), Fraction(1, 8), Fraction(10), Fraction(1, 100)])
    number = needed - _value(bound, point) + spare * (1 + needed)
    return Wall(weights, rows, shifts, bound, number, random.random() < 0.4, words)


def _row(random: Random, n: int, i: int, plain: bool) -> tuple[Fraction, ...]:
    if plain and random.random() < 0.7:
        return tuple(Fraction(int(i == j)) for j in range(n))
    return tuple(
        nonzero(random) if random.random() < 0.6 else Fraction(0) for _ in range(n)
    )


def _above_root(number: Fraction) -> Fraction:
    """A short number that is at least the root."""
    found = Fraction(0)
    while found * found < number:
        found += Fraction(1, 4)
    return found


def curved_walls(random: Random) -> Iterator[Finding]:
    """Layers of such walls: they are built, and every row that they return obeys."""
    walls = Walls.drawn(random)
    seed = random.getrandbits(60)
    generator = torch.Generator().manual_seed(seed)
    rules = Rules(str(walls))
    elsewhere = _digits(Random(seed), walls.n)
    for dtype in DTYPES:
        try:
            mux = Multiplexer(rules, dtype=dtype).eval()
        except ThinTermError as error:
            # some term may only touch a wall; but what is drawn around a point has room
            if dtype is torch.float64 and len(walls.clauses[0]) == 1 and _single(walls):
                yield Finding("curves: built", f"{walls}\n{error}")
            continue
        except CompileTimeout:  # it gave up in its time and said so
            return
        yield _obedience(walls, mux, generator)
        raw = raw_rows(16, mux.in_features, mux.dtype, generator)
        x = mux(raw).best().double()
        yield _verdict(walls, rules, x)
        moved = walls.moved(elsewhere)
        by = torch.tensor([float(c) for c in elsewhere], dtype=torch.float64)
        yield _verdict(moved, Rules(str(moved)), x + by)
        if dtype is torch.float32 and random.random() < CERTIFIED:
            report = certify(mux.certificate, rules)
            wrong = "" if report.certified else f"{walls}\n{report}"
            yield Finding("curves: certificate", wrong)


def _single(walls: Walls) -> bool:
    return all(len(clause) == 1 for clause in walls.clauses)


def _obedience(walls: Walls, mux: Multiplexer, generator: torch.Generator) -> Finding:
    raw = raw_rows(ROWS, mux.in_features, mux.dtype, generator)
    try:
        branches = mux(raw)
    except MultiplexError as error:
        return Finding("curves: rows", f"{walls}\n{error}", rows=ROWS)
    every = torch.cat([branches.best(), branches.x.flatten(0, -2)])
    wrong = next((text for row in every if (text := _told(walls, row))), "")
    return Finding("curves: rows", wrong, rows=len(every))


def _digits(random: Random, n: int) -> list[Fraction]:
    """Numbers with seven decimal places."""
    return [Fraction(random.randint(-(10**8), 10**8), 10**7) for _ in range(n)]


def _verdict(walls: Walls, rules: Rules, x: Tensor) -> Finding:
    """At the walls, and a few numbers beyond them, verdicts are those of fractions.

    Short numbers, which columns are computed with without rounding, are asked about together with large ones, too.
    """
    steps = 2.0 ** torch.arange(-53, -20, 2, dtype=torch.float64)
    beyond = [x * (1 + step) for step in steps.tolist()]
    found = [_at_the_wall(walls, row) for row in x[:4].tolist()]
    near = [torch.tensor(rows, dtype=torch.float64) for rows in found]
    short = torch.cat(near).mul(SHORT).round().div(SHORT)
    asked = 0
    far = [torch.cat([x[:2], x[0].diag()]) * factor for factor in FAR]
    for rows in (torch.cat([*beyond, *near]), torch.cat([short, *far])):
        moved = rows[rows.isfinite().all(-1)]
        said = rules.satisfied(moved).tolist()
        kept = (rules.violation(moved) == 0).all(-1).tolist()
        for row, *verdicts in zip(moved.tolist(), said, kept, strict=True):
            if verdicts != [walls.obeyed(row)] * 2:
                return Finding(
                    "curves: verdict", f"{row} is judged {verdicts} by\n{walls}"
                )
        asked += len(moved)
    return Finding("curves: verdict", rows=asked)


def _at_the_wall(walls: Walls, row: Sequence[float]) -> list[list[float]]:
    """Points around the place where the ray through a row leaves the walls, up to two floats away from it.

    Float64 alone would judge some of them wrongly.
    """

    def obeyed(factor: float) -> bool:
        numbers = [factor * v for v in row]
        return all(map(isfinite, numbers)) and walls.obeyed(numbers)

    inside = 1.0
    outside = next((f for f in BEYOND if not obeyed(f)), None)
    if outside is None or not obeyed(inside):
        return [list(row)]
    while inside < (middle := (inside + outside) / 2) < outside:
        if obeyed(middle):
            inside = middle
        else:
            outside = middle
    found = []
    for factor, steps in product((inside, outside), BESIDE):
        shifts = zip(row, cycle(steps), strict=False)
        found.append([_floats_beside(factor * v, step) for v, step in shifts])
    return found


def _floats_beside(number: float, steps: int) -> float:
    for _ in range(abs(steps)):
        number = nextafter(number, inf if steps > 0 else -inf)
    return number


def _told(walls: Walls, row: Tensor) -> str:
    """What is wrong with a row, if something is."""
    numbers = row.double().tolist()
    if row.isfinite().all() and walls.obeyed(numbers):
        return ""
    return f"{numbers} in {row.dtype} breaks\n{walls}"
