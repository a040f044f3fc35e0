"""Pictures: the outlines behind them against geometry done by hand, and that they come out at all."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from multiplexnet.compiler.compile import compile_rules
from multiplexnet.compiler.terms import Compiled
from multiplexnet.errors import PlotError
from multiplexnet.language.parser.parse import parse
from multiplexnet.tools.plane import Edge, frame_of, is_attained, outline, regions
from multiplexnet.tools.plot import plot_terms

FRAME = (np.array([-2.0, -2.0]), np.array([2.0, 2.0]))


def compiled(text: str) -> Compiled:
    return compile_rules(parse(text))


def edges(
    text: str, *names: str, frame: tuple[np.ndarray, np.ndarray] = FRAME
) -> list[Edge]:
    rules = compiled(text)
    axes = [v for name in names for v in rules.outputs if v.name == name]
    (region,) = regions(rules, axes, {})
    return outline(region, frame)


def corners(found: list[Edge]) -> set[tuple[float, ...]]:
    return {tuple(float(c) for c in np.round(edge.start, 6) + 0.0) for edge in found}


def sides(found: list[Edge]) -> dict[frozenset[tuple[float, ...]], str]:
    ends = [
        frozenset(
            tuple(float(c) for c in np.round(p, 6) + 0.0) for p in (e.start, e.end)
        )
        for e in found
    ]
    return {end: edge.kind for end, edge in zip(ends, found, strict=True)}


def test_a_triangle_with_one_open_side() -> None:
    found = edges("x >= 0\ny >= 0\nx + y < 1", "x", "y")
    assert sides(found) == {
        frozenset({(0.0, 0.0), (1.0, 0.0)}): "closed",
        frozenset({(0.0, 0.0), (0.0, 1.0)}): "closed",
        frozenset({(1.0, 0.0), (0.0, 1.0)}): "open",
    }


def test_what_goes_on_ends_at_the_frame() -> None:
    found = edges("x: real; y: real\nx >= 1", "x", "y")
    assert sorted(sides(found).values()) == ["closed", "frame", "frame", "frame"]
    assert corners(found) == {(1.0, -2.0), (2.0, -2.0), (2.0, 2.0), (1.0, 2.0)}


def test_equalities_are_segments_and_points() -> None:
    (segment,) = edges("x == y\n0 <= x < 1", "x", "y")
    assert {tuple(np.round(segment.start, 6)), tuple(np.round(segment.end, 6))} == {
        (0.0, 0.0),
        (1.0, 1.0),
    }
    (point,) = edges("x == 1\ny == 0.5", "x", "y")
    assert point.start.tolist() == point.end.tolist() == [1.0, 0.5]


def test_ends_of_segments_are_attained_or_not() -> None:
    rules = compiled("x == y\n0 <= x < 1")
    (region,) = regions(rules, rules.outputs, {})
    assert is_attained(region, np.array([0.0, 0.0]), FRAME)
    assert not is_attained(region, np.array([1.0, 1.0]), FRAME)


def test_a_projection_has_the_corners_of_the_shadow() -> None:
    simplex = "x: real[4]\nsum(x) == 1\nall(x[i] >= 0 for i in range(4))"
    assert corners(edges(simplex, "x[0]", "x[2]")) == {
        (0.0, 0.0),
        (1.0, 0.0),
        (0.0, 1.0),
    }
    chain = edges("x: real[3]\n0 <= x[0] < x[1] < x[2] <= 1", "x[0]", "x[2]")
    assert sides(chain)[frozenset({(0.0, 0.0), (1.0, 1.0)})] == "open"
    assert sides(chain)[frozenset({(0.0, 0.0), (0.0, 1.0)})] == "closed"


def test_scales_that_differ_by_nine_powers_of_ten() -> None:
    rules = compiled("0 <= x <= 1000000\n0 <= y <= 0.001\nx + y <= 2000000")
    (region,) = regions(rules, rules.outputs, {})
    frame = frame_of([region], 2)
    assert len(outline(region, frame)) == 4


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("0 <= x <= 10\n0 <= y <= 20", [-1.5, -3.0], [11.5, 23.0]),
        ("x >= 0\ny >= 0", [-2.0, -2.0], [2.0, 2.0]),
        ("x: real; y: real\nx - y <= 1 or x - y > 0", [-10.0, -10.0], [10.0, 10.0]),
        ("x: real[3]\n0 <= x[0] <= x[2] <= x[1] <= 1", [-0.15, -0.15], [1.15, 1.15]),
    ],
)
def test_the_frame_shows_all_corners(
    text: str, lower: list[float], upper: list[float]
) -> None:
    rules = compiled(text)
    frame = frame_of(list(regions(rules, rules.outputs[:2], {})), 2)
    assert np.allclose(frame, [lower, upper])


def test_blocks_are_multiplied_and_inputs_put_in() -> None:
    rules = compiled(
        "x <= -1 or x >= 1\ny <= -1 or y >= u\nu: input[0, 4]\nx: real; y: real"
    )
    found = list(regions(rules, rules.outputs, {rules.inputs[0]: Fraction(3, 2)}))
    assert [region.label for region in found] == ["0·0", "0·1", "1·0", "1·1"]
    assert any((-2.0, 1.5) in corners(outline(region, FRAME)) for region in found)


PICTURES = {
    "plane": (
        "a == 0 or 200 < a < 400\nimplies(a > 0, b >= a + 2)\n0 <= b <= 725",
        ("a", "b"),
    ),
    "line": ("x <= -2 or 0 < x < 1 or x == 3", ("x",)),
    "discrete": (
        'n: int[0, 3]; c: {"red", "green"}; y: real\nimplies(c == "red", n >= 2)\n0 <= y < 5',
        ("n", "c"),
    ),
    "lines": (
        "n: int[0, 3]; on: bool; y: real\nimplies(on, y >= n)\n0 <= y < 5",
        ("n", "y"),
    ),
    "many": (
        " or ".join(
            f"({i} <= x < {i}.5 and {i % 3} <= y <= {i % 3}.5)" for i in range(35)
        ),
        ("x", "y"),
    ),
    "default axes": ("x: real[3]\nx[0] <= x[1] <= x[2]", None),
    "nothing known": ("x: real; y: real\nx <= y or x > y", None),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_come_out(name: str, tmp_path: Path) -> None:
    text, axes = PICTURES[name]
    plot_terms(compiled(text), axes, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_term_without_points_at_this_input(tmp_path: Path) -> None:
    rules = compiled(
        "u: input[0, 1]; x: real; y: real\nx == 0 or 1 <= x <= 2 * u\n0 <= y <= 1"
    )
    nothing = [
        outline(region, FRAME) == []
        for region in regions(rules, rules.outputs, {rules.inputs[0]: Fraction(0)})
    ]
    assert sorted(nothing) == [False, True]
    plot_terms(rules, ("x", "y"), tmp_path / "p.svg", at={"u": Fraction(0)})


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    rules = compiled("u: input; x: real; y: real; z: real\nx + y + z <= u")
    cases = [
        (
            ("x", "w"),
            {},
            r"'w' is not an output of the rules \(their outputs: x, y, z\)",
        ),
        (("x", "y", "z"), {}, "a picture has one axis or two different ones"),
        (("x", "x"), {}, "a picture has one axis or two different ones"),
        (
            ("x", "y"),
            {"v": Fraction(1)},
            r"'v' is not an input of the rules \(their inputs: u\)",
        ),
    ]
    for axes, at, message in cases:
        with pytest.raises(PlotError, match=message):
            plot_terms(rules, axes, tmp_path / "p.png", at=at)
    with pytest.raises(PlotError, match="rules with functions cannot be drawn"):
        plot_terms(
            compiled("f: function; x: real; y: real\nx <= f(y)"),
            ("x", "y"),
            tmp_path / "p.png",
        )
    with pytest.raises(PlotError, match=r"p\.xyz"):
        plot_terms(rules, ("x", "y"), tmp_path / "p.xyz")
