"""The campaign's verdicts on curved walls and moved balls, in whole numbers: those of fractions."""

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest

from campaign.curves import Wall, Walls
from campaign.spheres import MovedBall

SIZES = (1.0, 1.0, 1.0, 1e-300, 1e150, 5e-324)


def in_fractions(wall: Wall, x: Sequence[float]) -> bool:
    """As the wall is written in its class."""
    point = [Fraction(v) for v in x]

    def value(row: Sequence[Fraction]) -> Fraction:
        return sum((a * v for a, v in zip(row, point, strict=True)), Fraction(0))

    side = value(wall.bound) + wall.number
    parts = [value(row) + s for row, s in zip(wall.rows, wall.shifts, strict=True)]
    total = sum(
        (w * p * p for w, p in zip(wall.weights, parts, strict=True)), Fraction(0)
    )
    if wall.words == "squares":
        return total < side if wall.strict else total <= side
    if side < 0:
        return False
    return total < side**2 if wall.strict else total <= side**2


def drawn_row(random: Random, n: int) -> list[float]:
    return [
        random.choice([random.randint(-16, 16) / 4, random.gauss(0, 3)])
        * random.choice(SIZES)
        for _ in range(n)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_walls_are_judged_as_in_fractions(seed: int) -> None:
    random = Random(seed)
    walls = Walls.drawn(random)
    for row in [drawn_row(random, walls.n) for _ in range(60)]:
        expected = all(
            any(in_fractions(wall, row) for wall in clause) for clause in walls.clauses
        )
        assert walls.obeyed(row) == expected


@pytest.mark.parametrize(("strict", "inside"), [(False, True), (True, False)])
@pytest.mark.parametrize("words", ["norm", "squares"])
def test_a_point_of_the_wall_obeys_unless_it_is_strict(
    strict: bool, inside: bool, words: str
) -> None:
    third = Fraction(1, 3)
    radius = Fraction(5, 3) if words == "norm" else Fraction(25, 9)
    rows = ((third, Fraction(0)), (Fraction(0), third))
    wall = Wall(
        (Fraction(1),) * 2, rows, (Fraction(0),) * 2, (Fraction(0),) * 2, radius, strict, words
    )  # fmt: skip
    walls = Walls(2, ((wall,),))
    assert walls.obeyed([3.0, 4.0]) is inside
    assert walls.obeyed([3.0, 3.9999999999999996])
    assert not walls.obeyed([3.0, 4.000000000000001])


@pytest.mark.parametrize("seed", range(40))
def test_balls_are_judged_as_in_fractions(seed: int) -> None:
    random = Random(seed)
    ball = MovedBall.drawn(random)
    for _ in range(30):
        x = drawn_row(random, len(ball.rows[0]))
        c = [random.randint(-8, 8) / 8 for _ in ball.rows]
        u = random.choice([0.5, 1.0, 1e-300, 9 * random.random()])
        total = sum(
            (
                sum(a * Fraction(v) for a, v in zip(row, x, strict=True)) - Fraction(m)
            ) ** 2
            for row, m in zip(ball.rows, c, strict=True)
        )  # fmt: skip
        square = Fraction(u) if ball.squared else Fraction(u) ** 2
        assert ball.obeyed(x, c, u) == (
            total < square if ball.strict else total <= square
        )
