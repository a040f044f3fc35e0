"""How dense code is: how much a reader meets on one line, how long functions and modules are, how much is tested.

    python benchmarks/density.py src/multiplexnet [OTHER …] [--tests tests] [--densest 40]

A folder a row. Density is the number of nodes of Python's syntax tree for every line of a function's body, where blank
lines, comments and docstrings do not count. A packed assignment is one of several values to several names (``a, b = 1,
2``); a nested conditional is one inside another (``x if a else y if b else z``). ``--densest`` lists functions.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles


@dataclass(frozen=True)
class Function:
    """A function: where it is, how many lines its body has, and how many nodes."""

    place: str
    lines: int
    nodes: int

    @property
    def density(self) -> float:
        return self.nodes / self.lines


@dataclass(frozen=True)
class Module:
    """A file and what was counted in it."""

    lines: int
    functions: tuple[Function, ...]
    packed: int
    nested: int


def module_of(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    lines = text.splitlines()
    return Module(
        lines=len(lines),
        functions=tuple(_functions(path, lines, nodes)),
        packed=sum(map(_is_packed, nodes)),
        nested=sum(map(_is_nested, nodes)),
    )


def _functions(
    path: Path, lines: list[str], nodes: list[ast.AST]
) -> Iterator[Function]:
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body
        if ast.get_docstring(node) is not None:
            body = body[1:]
        if not body:
            continue
        own = [line.strip() for line in lines[body[0].lineno - 1 : body[-1].end_lineno]]
        code = [line for line in own if line and not line.startswith("#")]
        count = sum(1 for part in body for _ in ast.walk(part))
        yield Function(f"{path}:{node.lineno} {node.name}", len(code), count)


def _is_packed(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and any(isinstance(target, ast.Tuple) for target in node.targets)
    )


def _is_nested(node: ast.AST) -> bool:
    if not isinstance(node, ast.IfExp):
        return False
    inner = [child for part in ast.iter_child_nodes(node) for child in ast.walk(part)]
    return any(isinstance(child, ast.IfExp) for child in inner)


def row(folder: Path, modules: list[Module], tests: Path | None) -> str:
    functions = [own for module in modules for own in module.functions]
    lines = sum(module.lines for module in modules)
    nodes = sum(own.nodes for own in functions)
    cells = [
        folder.name,
        f"{len(modules)}",
        f"{lines:,}",
        f"{median(module.lines for module in modules):.0f}",
        f"{median(own.lines for own in functions):.0f}",
        f"{quantiles([own.lines for own in functions], n=20)[-1]:.0f}",
        f"{nodes / sum(own.lines for own in functions):.2f}",
        f"{1000 * sum(module.packed for module in modules) / lines:.1f}",
        f"{sum(module.nested for module in modules)}",
        "–" if tests is None else f"{_lines_below(tests) / lines:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _lines_below(folder: Path) -> int:
    paths = folder.rglob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--tests", type=Path, help="of the first folder")
    parser.add_argument("--densest", type=int, default=0, metavar="N")
    options = parser.parse_args()
    print(
        "| folder | modules | lines | median module | median function | 95 % function | nodes a line "
        "| packed per 1,000 lines | nested conditionals | test lines a line |"
    )
    print("| --- |" + " --: |" * 9)
    for place, folder in enumerate(options.folders):
        modules = [module_of(path) for path in sorted(folder.rglob("*.py"))]
        print(row(folder, modules, options.tests if place == 0 else None))
        functions = [own for module in modules for own in module.functions]
        functions.sort(key=lambda own: own.density, reverse=True)
        for own in functions[: options.densest]:
            print(f"{own.density:6.1f} {own.lines:4} {own.place}")


if __name__ == "__main__":
    main()
