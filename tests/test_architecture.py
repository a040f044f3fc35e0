"""The shape of the package: data flows one way, each stage knows its own heavy dependency, names load when needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import multiplexnet

ROOT = Path(multiplexnet.__file__).parent

STAGES: tuple[str, ...] = (
    "errors",
    "arguments",
    "exact",
    "language",
    "readers",
    "smt",
    "compiler",
    "geometry",
    "verdicts",
    "rules",
    "transforms",
    "certificate",
    "layer",
    "learning",
    "reports",
    "tables",
    "quality",
    "synthesis",
    "tools",
    "playground",
    "__main__",
)
"""From rules to command line; a file imports from its own stage and the stages before it."""

HOMES = {
    "z3": ("smt", "compiler"),
    "cvc5": ("certificate.questions", "certificate.rules"),
    "scipy": (
        "exact",
        "compiler.witness",
        "geometry",
        "quality.nearness",
        "tools.plane",
    ),
    "sklearn": ("quality.detection", "quality.trees", "synthesis.growing"),
    "polars": ("tables", "quality", "synthesis", "tools"),
    "pyarrow": ("tables.sources.columnar", "tables.output"),
    "distributed": ("tables.parallel",),
    "duckdb": ("tables.sources.databases",),
    "matplotlib": ("tools",),
    "starlette": ("playground.server",),
    "typer": (
        "tools.cli",
        "tools.table_commands",
        "tools.synthesis_commands",
        "tools.report_commands",
        "playground.command",
    ),
    "uvicorn": ("playground.server",),
    "rich": ("reports", "tools"),
}
"""Where each heavy dependency may be imported at all."""

FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def name_of(path: Path) -> str:
    """The module of a file, without the name of the package: ``language.formula``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, also inside functions; not what only the type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not is_for_types(node):
            yield from imports(node)


@cache
def imported(path: Path) -> tuple[str, ...]:
    return tuple(imports(ast.parse(path.read_text(encoding="utf-8"))))


def inner(path: Path) -> set[str]:
    """The modules of the package that a file imports."""
    known = {name_of(file) for file in FILES}
    found = set()
    for name in imported(path):
        if name.startswith("multiplexnet."):
            module = name.removeprefix("multiplexnet.")
            found.add(module if module in known else module.rpartition(".")[0])
    return found - {""}


def stage(module: str) -> int:
    part = module.partition(".")[0]
    assert part in STAGES, (
        f"{part} has no stage: put it into STAGES, after everything that it imports"
    )
    return STAGES.index(part)


def belongs(module: str, homes: tuple[str, ...]) -> bool:
    return any(module == home or module.startswith(home + ".") for home in homes)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_only_from_its_own_stage_and_the_stages_before_it(
    path: Path,
) -> None:
    late = {module for module in inner(path) if stage(module) > stage(name_of(path))}
    assert not late


@pytest.mark.parametrize("package", sorted(HOMES))
def test_a_heavy_dependency_has_its_home(package: str) -> None:
    users = {
        name_of(path)
        for path in FILES
        if any(name.partition(".")[0] == package for name in imported(path))
    }
    assert users
    assert {user for user in users if not belongs(user, HOMES[package])} == set()


def test_torch_begins_after_geometry() -> None:
    users = {
        name_of(path)
        for path in FILES
        if any(name.partition(".")[0] == "torch" for name in imported(path))
    }
    assert {user for user in users if stage(user) <= stage("rules")} <= {
        "verdicts.satisfaction"
    }


def test_no_file_imports_itself_through_others() -> None:
    graph = {name_of(path): inner(path) for path in FILES}
    while graph:
        free = {
            module
            for module, needed in graph.items()
            if not needed & graph.keys() - {module}
        }
        assert free, f"a circle among {sorted(graph)}"
        graph = {
            module: needed for module, needed in graph.items() if module not in free
        }


def fresh(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "('z3', 'torch', 'numpy', 'scipy', 'polars')"
    assert (
        fresh(
            f"import sys, multiplexnet; print([n for n in {heavy} if n in sys.modules])"
        )
        == "[]"
    )


def test_reading_rules_does_not_load_torch_or_z3() -> None:
    code = "import sys, multiplexnet as mx; str(mx.Rules('x >= 1'));"
    assert (
        fresh(f"{code} print([n for n in ('z3', 'torch') if n in sys.modules])") == "[]"
    )


def test_every_public_name_can_be_loaded_and_listed() -> None:
    assert set(multiplexnet.__all__) <= set(dir(multiplexnet))
    for name in multiplexnet.__all__:
        assert getattr(multiplexnet, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="no attribute 'Rule'"):
        multiplexnet.Rule  # noqa: B018


def test_the_folders_are_those_that_contributing_lists() -> None:
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `src/multiplexnet/([\w.]+?)/?` \|", text, re.MULTILINE)
    folders = [path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()]
    files = [path.name for path in ROOT.glob("*.py") if path.stem.isalpha()]
    assert sorted(listed) == sorted([*folders, *files])


def conditionals(tree: ast.AST) -> list[ast.IfExp]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.IfExp)]


def test_no_conditional_stands_inside_another() -> None:
    found = []
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in conditionals(tree):
            if len(conditionals(node)) > 1:
                found.append(f"{name_of(path)}:{node.lineno}")
    assert found == []


def test_contexts_of_z3_are_made_in_one_place() -> None:
    """Others end the process where an expression is collected in another thread."""
    made = [path for path in FILES if "z3.Context(" in path.read_text("utf-8")]
    assert made == [ROOT / "smt" / "context.py"]
