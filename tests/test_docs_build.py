"""The documentation is built without a warning, its links lead somewhere, and no page loads anything from elsewhere.

``make docs`` starts a Python for every page that has cells. Here the cells run in this one, and the pages are built
without them, which takes a third of the time.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

import multiplexnet as mx

ROOT = Path(__file__).parents[1]
RESOURCES = {"script", "img", "link", "source", "iframe", "video", "audio", "embed", "object"}
"""Elements whose address a browser fetches by itself; of a link (``<a>``) it waits for a click."""
NOT_FETCHED = {"index", "search", "prev", "next", "canonical", "author", "genindex"}
"""What ``<link rel=…>`` says about a page without fetching it."""
HELD = 60_000
"""Bytes that a picture of the gallery has at most."""


class Link(NamedTuple):
    """An address in a page."""

    element: str
    address: str


class Page(HTMLParser):
    """The links of a page, and the places in it that links can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[Link] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "link" and set(given.get("rel", "").split()) <= NOT_FETCHED:
            tag = "a"
        self.links += [Link(tag, given[name]) for name in ("href", "src", "data") if name in given]


def complaints(folder: Path) -> Iterator[str]:
    """Of the HTML pages in a folder: links to nothing, and what is loaded from elsewhere."""
    pages = {
        path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))
    }
    for path, page in pages.items():
        for link in page.links:
            place = f"{path.relative_to(folder)}: {link.address}"
            parts = urlsplit(link.address)
            if parts.scheme == "data" or parts.scheme == "mailto":
                continue
            if parts.scheme or parts.netloc:
                if link.element in RESOURCES:
                    yield f"{place} is loaded from elsewhere"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{place} leads to no file"
                continue
            named = {unquote(parts.fragment)} - {""}
            if target in pages and not named <= pages[target].anchors:
                yield f"{place} leads to no place in {target.name}"
    for path in sorted(folder.rglob("*.css")):
        for address in re.findall(
            r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)", path.read_text("utf-8")
        ):
            yield f"{path.relative_to(folder)}: {address} is loaded from elsewhere"


def built(folder: Path) -> Path:
    """The documentation as HTML pages."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    said = subprocess.run(
        [*command, str(ROOT / "docs"), str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return folder


def names_without_a_place(folder: Path) -> list[str]:
    """Public names that no page of the reference explains."""
    anchors: set[str] = set()
    for path in (folder / "reference").glob("*.html"):
        anchors |= Page(path.read_text(encoding="utf-8")).anchors
    return [name for name in mx.__all__ if not anchors & places_of(name)]


def places_of(name: str) -> set[str]:
    """Where a public name can be explained: as it is imported, among the errors, or as a module."""
    module = getattr(getattr(mx, name), "__name__", name)
    return {f"multiplexnet.{name}", f"multiplexnet.errors.{name}", f"module-{module}"}


NEEDS = "the documentation needs the extra `docs`: pip install -c constraints.txt '.[docs]'"


def test_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason=NEEDS)
    pytest.importorskip("myst_nb", reason=NEEDS)
    folder = built(tmp_path / "html")
    assert (folder / "searchindex.js").exists()
    assert list(complaints(folder)) == []
    assert names_without_a_place(folder) == [], "list them in docs/reference/api.md"


# --- cells ----------------------------------------------------------------------------------------------------------

CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?P<options>(?::[^\n]*\n)*)(?P<code>.*?)^```", re.M | re.S
)
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if "{code-cell}" in path.read_text("utf-8")
]


def run_cell(code: str, names: dict[str, Any]) -> None:
    """Runs a cell and shows the value of its last line, as a notebook does."""
    module = ast.parse(code)
    last = module.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(module, "cell", "exec"), names)
        return
    module.body.pop()
    exec(compile(module, "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    for show in ("_repr_html_", "_repr_png_", "__repr__"):
        if hasattr(value, show):
            getattr(value, show)()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_cells_of_a_page_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a warning and without a word on stderr; what they write is written elsewhere."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason=NEEDS)
    text = page.read_text(encoding="utf-8")
    cells = [found["code"] for found in CELL.finditer(text)]
    assert len(cells) == text.count("{code-cell}")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for cell in cells:
            run_cell(cell, names)
    finally:
        pyplot.close("all")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ('<a href="other.html">x</a>', "index.html: other.html leads to no file"),
        ('<a href="#here">x</a>', "index.html: #here leads to no place in index.html"),
        ('<img src="picture.png">', "index.html: picture.png leads to no file"),
        (
            '<script src="https://cdn.example/x.js">',
            "index.html: https://cdn.example/x.js is loaded from elsewhere",
        ),
        (
            '<link rel="stylesheet" href="//a.example/x.css">',
            "index.html: //a.example/x.css is loaded from elsewhere",
        ),
        ('<a href="https://example.org">x</a><p id="here"><a href="index.html#here">y</a>', None),
    ],
)
def test_the_checker_sees_what_it_is_for(tmp_path: Path, page: str, complaint: str | None) -> None:
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert list(complaints(tmp_path)) == ([complaint] if complaint else [])


def test_every_example_has_a_picture_of_modest_size() -> None:
    examples = {path.stem for path in (ROOT / "examples").glob("[0-9][0-9]_*.py")}
    pictures = {
        path.stem: path.stat().st_size for path in (ROOT / "docs/images/gallery").glob("*.png")
    }
    assert pictures.keys() == examples
    assert {name: size for name, size in pictures.items() if size >= HELD} == {}
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert [name for name in sorted(examples) if f"images/gallery/{name}.png" not in page] == []
    assert [name for name in sorted(examples) if f"../examples/{name}.py" not in page] == []
