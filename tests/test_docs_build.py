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
import warnings
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

import multiplexnet as mx

ROOT = Path(__file__).parents[1]
RESOURCES = {
    "script",
    "img",
    "link",
    "source",
    "iframe",
    "video",
    "audio",
    "embed",
    "object",
}
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
        self.links += [
            Link(tag, given[name]) for name in ("href", "src", "data") if name in given
        ]


def complaints(folder: Path) -> Iterator[str]:
    """Of the HTML pages in a folder: links to nothing, and what is loaded from elsewhere."""
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.html"))
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
            target = (
                (path.parent / unquote(parts.path)).resolve() if parts.path else path
            )
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
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
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


NEEDS = (
    "the documentation needs the extra `docs`: pip install -c constraints.txt '.[docs]'"
)


def test_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason=NEEDS)
    pytest.importorskip("myst_nb", reason=NEEDS)
    folder = built(tmp_path / "html")
    assert (folder / "searchindex.js").exists()
    assert list(complaints(folder)) == []
    assert names_without_a_place(folder) == [], "list them in docs/reference/api.md"


# --- cells ----------------------------------------------------------------------------------------------------------

CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?P<options>(?::[^\n]*\n)*)(?P<code>.*?)^```",
    re.M | re.S,
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
    "page",
    [
        path
        for path in sorted((ROOT / "docs/howto").glob("*.md"))
        if path.stem != "index"
    ],
    ids=lambda path: path.stem,
)
def test_every_how_to_page_draws_a_picture_with_its_own_code(page: Path) -> None:
    cells = [found["code"] for found in CELL.finditer(page.read_text("utf-8"))]
    assert any("plt.subplots(" in cell for cell in cells)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_legend_says_where_it_is(page: Path) -> None:
    """Looking for the best place makes matplotlib warn where that takes long, and warnings are errors."""
    text = page.read_text(encoding="utf-8")
    legends = re.findall(r"\.legend\((.*)\)", text)
    assert [legend for legend in legends if "loc=" not in legend] == []


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
        (
            '<a href="https://example.org">x</a><p id="here"><a href="index.html#here">y</a>',
            None,
        ),
    ],
)
def test_the_checker_sees_what_it_is_for(
    tmp_path: Path, page: str, complaint: str | None
) -> None:
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    assert list(complaints(tmp_path)) == ([complaint] if complaint else [])


# --- reference ------------------------------------------------------------------------------------------------------

REFERENCE = ROOT / "docs/reference"
ENTRY = re.compile(
    r"^\.\. exception:: multiplexnet\.errors\.(?P<name>\w+)\n\n(?P<words>(?:   .*\n|\n)+)",
    re.M,
)


def own_errors() -> dict[str, type[Exception]]:
    """Every exception that ``errors.py`` defines."""
    return {
        name: thing
        for name, thing in vars(mx.errors).items()
        if isinstance(thing, type)
        and issubclass(thing, Exception)
        and thing.__module__ == mx.errors.__name__
    }


def test_every_error_is_explained_with_what_to_do() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    entries = {found["name"]: found["words"] for found in ENTRY.finditer(page)}
    errors = own_errors()
    assert entries.keys() == errors.keys()
    for name, words in entries.items():
        if name == "MultiplexError":
            continue
        base = next(b for b in errors[name].__bases__ if b is not mx.MultiplexError)
        article = "an" if base.__name__[0] in "AEIOU" else "a"
        assert f"Also {article} `{base.__name__}`." in words, name
        assert "**What to do.** " in words, name


def test_every_command_has_a_section_with_its_own_help() -> None:
    typer = pytest.importorskip("typer.main", reason=NEEDS)
    from multiplexnet.playground.command import app

    commands = typer.get_command(app).commands
    page = (REFERENCE / "command_line.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\S+)$", page, re.M)
    assert sorted(sections) == sorted(commands)
    for section in page.split("\n## ")[1:]:
        name = section.split("\n", 1)[0]
        assert f'help_of("{name}")' in section
        (example,) = re.findall(r"^```\n(multiplexnet .*)\n```$", section, re.M)
        known = {option for p in commands[name].params for option in p.opts}
        used = set(re.findall(r"(?<= )--?[a-z][\w-]*", example))
        assert example.split()[1] == name
        assert used <= known, (name, used - known)


# --- frameworks -----------------------------------------------------------------------------------------------------


FRAMEWORKS = (ROOT / "docs/howto/training_frameworks.md").read_text(encoding="utf-8")
"""The page about Accelerate, DDP and Lightning; its first cell makes rules, model and data."""


def shown(first: str) -> str:
    """The listing of that page that begins like this, with fewer epochs."""
    (found,) = re.findall(rf"^```\n({first}.*?)^```", FRAMEWORKS, re.M | re.S)
    assert "25" in found
    return str(found).replace("25", "2")


def test_what_the_page_shows_of_ddp_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process; ``tests/test_scale.py`` trains in two."""
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    place = f"file://{tmp_path / 'meeting'}"
    start = distributed.init_process_group
    monkeypatch.setattr(
        distributed,
        "init_process_group",
        lambda backend: start(backend, init_method=place, rank=0, world_size=1),
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    run_cell(next(CELL.finditer(FRAMEWORKS))["code"], names)
    try:
        run_cell(shown("import torch.distributed"), names)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
    assert names["rules"].satisfied(names["out"]).all()


def test_what_the_page_shows_of_lightning_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning is no dependency: where it is not installed, the page is shown and this is skipped."""
    pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    run_cell(next(CELL.finditer(FRAMEWORKS))["code"], names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own, about loaders and versions
        run_cell(shown("import lightning"), names)
    model, rows = names["model"].model.eval(), names["x"]
    assert names["rules"].satisfied(model(rows)).all()


def test_every_example_has_a_picture_of_modest_size() -> None:
    examples = {path.stem for path in (ROOT / "examples").glob("[0-9][0-9]_*.py")}
    pictures = {
        path.stem: path.stat().st_size
        for path in (ROOT / "docs/images/gallery").glob("*.png")
    }
    assert pictures.keys() == examples
    assert {name: size for name, size in pictures.items() if size >= HELD} == {}
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert [
        name for name in sorted(examples) if f"images/gallery/{name}.png" not in page
    ] == []
    assert [
        name for name in sorted(examples) if f"../examples/{name}.py" not in page
    ] == []
