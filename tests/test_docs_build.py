"""The documentation is built without a warning, its links lead somewhere, and no page loads anything from elsewhere.

The build runs every cell: two to three minutes of one core.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
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


def files_of_the_sources() -> set[Path]:
    """Python's own caches aside."""
    return {path for path in (ROOT / "docs").rglob("*") if "__pycache__" not in path.parts}


def test_the_pages(tmp_path: Path) -> None:
    """In one test, since building takes two to three minutes of processor time."""
    needs = "the documentation needs the extra `docs`: pip install '.[docs]'"
    pytest.importorskip("sphinx", reason=needs)
    pytest.importorskip("myst_nb", reason=needs)
    before = files_of_the_sources()
    folder = built(tmp_path / "html")
    assert (folder / "searchindex.js").exists()
    assert list(complaints(folder)) == []
    assert names_without_a_place(folder) == [], "list them in docs/reference/api.md"
    assert files_of_the_sources() == before, "a cell writes beside its page"


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
