"""The tools that watch over changes of the code: digests of layers, and the density of lines."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def loaded(name: str) -> Any:
    path = ROOT / f"benchmarks/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digests() -> Any:
    return loaded("digests")


def test_equal_layers_have_equal_digests_and_others_do_not(digests: Any) -> None:
    texts = ("x >= 2 or x <= -2", "x >= 2 or x <= -2", "x >= 2 or x <= -3")
    first, again, other = (
        digests.described({"text": text, "certified": True}) for text in texts
    )
    assert first == again
    assert all(first[field] != other[field] for field in ("terms", "outputs", "tables"))
    assert first["certificate"] != other["certificate"]


def test_what_differs_is_named(
    digests: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"name": "a", "text": "x > 0", "terms": "1"},
        {"name": "b", "text": "x > 1", "error": "CompileTimeout: long"},
        {"name": "c", "text": "x > 2", "terms": "3"},
    ]
    base = tmp_path / "base"
    head = tmp_path / "head"
    base.write_text("\n".join(map(json.dumps, lines)))
    lines[2] |= {"terms": "4"}
    head.write_text("\n".join(map(json.dumps, lines)))
    assert digests.compare(base, base) == 0
    assert digests.compare(base, head) == 1
    told = capsys.readouterr().out
    assert "c: other terms" in told
    assert "left out: took too long: 1" in told


def test_density_counts_what_its_header_says(tmp_path: Path) -> None:
    density = loaded("density")
    path = tmp_path / "module.py"
    path.write_text(
        "def f(a):\n"
        '    """Says what it is."""\n'
        "    # why\n"
        "    b, c = a, 1\n"
        "\n"
        "    return b if a else c if b else a\n"
    )
    module = density.module_of(path)
    assert (module.lines, module.packed, module.nested) == (6, 1, 1)
    (function,) = module.functions
    assert function.lines == 2
