"""The gallery: every example fits on a page, runs without a warning, prints numbers and ends by asserting its rules."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9][0-9]_*.py"))
PAGE = 40
"""How many lines an example has at most."""

every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def test_the_gallery_is_complete() -> None:
    assert [path.name[:2] for path in EXAMPLES] == [
        f"{i:02}" for i in range(1, len(EXAMPLES) + 1)
    ]


@every_example
def test_it_runs_and_prints_its_result(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(r"\d", printed)
    assert not re.search(r"\b(nan|inf)\b", printed)


@every_example
def test_it_fits_on_a_page_and_ends_with_its_rules(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= PAGE
    assert "torch.manual_seed(0)" in lines
    assert lines[-1].startswith("assert ")
    assert any("rules.satisfied(" in line for line in lines)


@every_example
def test_it_uses_the_public_names_alone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "import multiplexnet as mx" in text
    assert not re.search(r"from multiplexnet|multiplexnet\.|\._[a-z]", text)


def test_the_table_of_the_gallery_names_every_example() -> None:
    text = (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(\d\d_\w+\.py)\]\(\1\) \|", text, re.MULTILINE) == [
        path.name for path in EXAMPLES
    ]
