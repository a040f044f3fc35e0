"""What the documents show happens: their Python runs, their prompts answer as printed, their links lead somewhere."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import cost_page
import pytest
import torch

import multiplexnet as mx

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "examples/README.md",
    ROOT / "experiments/README.md",
]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


class Listing(NamedTuple):
    """A fenced part of a document."""

    path: Path
    line: int
    language: str
    body: str

    @property
    def is_session(self) -> bool:
        return self.body.lstrip().startswith(">>>")

    @property
    def is_python(self) -> bool:
        return self.language in {"python", "py"} and not self.is_session


def listings(path: Path) -> Iterator[Listing]:
    text = path.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        body = re.sub(f"^{found['indent']}", "", found["body"], flags=re.MULTILINE)
        yield Listing(
            path, text[: found.start()].count("\n") + 1, found["language"], body
        )


def name_of(value: Any) -> str:
    return (
        f"{value.path.relative_to(ROOT)}:{value.line}"
        if isinstance(value, Listing)
        else str(value.relative_to(ROOT))
    )


ALL = [listing for path in DOCUMENTS for listing in listings(path)]
WITH_SESSIONS = [
    path
    for path in DOCUMENTS
    if any(each.is_session for each in ALL if each.path == path)
]
WITH_PYTHON = [
    path
    for path in DOCUMENTS
    if any(each.is_python for each in ALL if each.path == path)
]


def exchanges(session: str) -> Iterator[tuple[str, str]]:
    """What is typed at ``>>>`` and ``...``, and what is answered."""
    typed, answer = "", ""
    for line in session.splitlines():
        if line.startswith(">>>") and typed:
            yield typed, answer
            typed, answer = "", ""
        if line.startswith((">>>", "...")):
            typed += line[4:] + "\n"
        else:
            answer += line + "\n"
    yield typed, answer


def answer_to(typed: str, names: dict[str, Any]) -> str:
    """What Python's prompt would say; of an error, what follows its traceback."""
    output = StringIO()
    try:
        with redirect_stdout(output):
            exec(compile(typed, "<prompt>", "single"), names)
    except Exception as error:
        return output.getvalue() + "".join(traceback.format_exception_only(error))
    return output.getvalue()


def agrees(shown: str, said: str) -> bool:
    """Line by line; ``...`` in what is shown stands for anything."""
    pattern = (
        re.escape(shown.strip()).replace(re.escape("..."), ".*").replace("…", ".*")
    )
    lines = "\n".join(line.rstrip() for line in said.strip().splitlines())
    return re.fullmatch(pattern, lines, re.DOTALL) is not None


@pytest.mark.parametrize("path", WITH_PYTHON, ids=name_of)
def test_python_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "__name__": "__main__",
        "torch": torch,
        "nn": torch.nn,
        "mx": mx,
    }
    for listing in ALL:
        if listing.path == path and listing.is_python:
            source = (
                "\n" * listing.line + listing.body
            )  # so that an error names the line of the document
            exec(compile(source, str(path), "exec"), names)


@pytest.mark.parametrize("path", WITH_SESSIONS, ids=name_of)
def test_sessions_answer_as_shown(path: Path) -> None:
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "mx": mx}
    for listing in ALL:
        if listing.path == path and listing.is_session:
            for typed, shown in exchanges(listing.body):
                said = answer_to(typed, names)
                assert agrees(shown, said), (
                    f"line {listing.line}: {typed.strip()} says\n{said}"
                )


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), (
                f"{path.relative_to(ROOT)} links to {target}, which is not there"
            )


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_the_commands_that_set_all_up(command: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{command} " in text


def test_the_gallery_of_the_readme_shows_the_rules_of_the_examples() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[[^]]+\]\((examples/\w+\.py)\) \| `([^`]+)` \|", text, re.MULTILINE
    )
    assert len(rows) == 6
    for path, rules in rows:
        example = (ROOT / path).read_text(encoding="utf-8")
        assert [rule for rule in rules.split("; ") if rule not in example] == []


QUOTED = re.compile(r"<!-- peers: (.*?) -->\n(.*?)<!-- end -->", re.DOTALL)


def cells(table: str) -> dict[tuple[str, str], str]:
    """The cells of a table by the names of row and column."""
    lines = [
        line.strip("|").split("|")
        for line in table.splitlines()
        if line.startswith("|")
    ]
    head, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return {
        (row[0], name): cell
        for row in rows
        for name, cell in zip(head[1:], row[1:], strict=True)
    }


@pytest.mark.parametrize("document", ["README.md", "docs/understand/comparison.md"])
def test_the_comparison_is_quoted_as_it_was_measured(document: str) -> None:
    measured = (ROOT / "benchmarks/results/peers.md").read_text(encoding="utf-8")
    quoted = QUOTED.findall((ROOT / document).read_text(encoding="utf-8"))
    assert len(quoted) == 2
    for title, table in quoted:
        section = measured.split(f"## {title}\n")[1].split("\n## ")[0]
        assert cells(table).items() <= cells(section).items()


def test_the_page_of_costs_shows_what_was_measured() -> None:
    page = cost_page.PAGE.read_text(encoding="utf-8")
    assert cost_page.filled(page) == page
