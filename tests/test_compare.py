"""Two commits side by side: the runner asks both the same, in turns, and says where one of them cannot answer."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TEXT = "x: real[2]; all(-1 <= v <= 3 for v in x)"


@pytest.fixture(scope="module")
def compare() -> Any:
    path = ROOT / "benchmarks/compare.py"
    spec = importlib.util.spec_from_file_location("compare", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["compare"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def commit(compare: Any) -> Iterator[Any]:
    with compare.checked_out(None) as source:
        one = compare.Commit("here", source)
        yield one
        one.close()


def test_the_same_code_returns_the_same_bits_in_every_turn(
    compare: Any, commit: Any
) -> None:
    case = compare.Case("box", TEXT, rows=4)
    found = compare.compared(
        case, commit, commit, compare.Effort(2, 0.0), head_first=True
    )
    assert found.same
    assert min(*found.build, *found.forward, *found.both) > 0
    cells = compare.line(found).split("|")
    assert [cell.strip() for cell in (cells[1], cells[2], cells[-2])] == [
        "box",
        "4",
        "same",
    ]


def test_other_rules_return_other_bits(compare: Any, commit: Any) -> None:
    digests = [
        commit.ask(case=compare.asdict(compare.Case("", text, 4)))["digest"]
        for text in (TEXT, TEXT.replace("3", "4"))
    ]
    assert digests[0] != digests[1]


def test_what_a_commit_cannot_build_is_said_in_its_row(
    compare: Any, commit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    case = compare.Case("odd", TEXT, rows=4, structure="unknown")
    assert compare.report([case], commit, commit, compare.Effort(1, 0.0)) == []
    assert "| odd | 4 | here: OptionError:" in capsys.readouterr().out
