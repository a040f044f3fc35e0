"""What people write and Python's grammar does not know, respelled so that every byte keeps its place.

::

    "Loan Amount": real        a quoted name, declared
    `Loan Amount` <= 3         a name in back-ticks, anywhere
    start >= d"2024-08-03"     a date
    x: real[0, 10] step 0.5    a grid
    start: input date          an input of another kind than a number

A name becomes an identifier of as many bytes, and its place is kept, so that it can be put back into the syntax tree;
``d"…"`` becomes ``b"…"``, and a word between two parts of a declaration ``|``. The columns of the tree are those of the
text as it was written.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = [
    "STRING",
    "Misspelt",
    "Spelling",
    "is_plain",
    "keyword_in",
    "name_text",
    "spelled",
]

_LONG_STRING = r"""(?P<long>\"{3}|'{3})(?:\\.|(?!(?P=long)).)*(?:(?P=long)|\Z)"""
_SHORT_STRING = r"""(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\n\\])*"""
_BACK_TICKS = r"(?P<ticks>`(?:[^`\n]|``)*`?)"
STRING = rf"(?:{_BACK_TICKS}|{_LONG_STRING}|{_SHORT_STRING}(?:(?P=quote))?)"
"""A quoted text, or a name in back-ticks; one that is not closed ends with its line."""

_QUOTED = re.compile(rf"(?:(?<!\w)(?P<date>d)(?=[\"']))?{STRING}", re.DOTALL)
_DECLARES = re.compile(r"\s*:(?!=)")
_STEP = re.compile(r"(?<=[\])\w]) *\bstep\b(?= *[-+(.\d])")
_INPUT = re.compile(r"(:\s*input)([ \t]+)(?=[a-z{])")
_DAY = re.compile(r"[-0-9T: .]*")
_OURS = {"and", "or", "not", "in", "is", "if", "else", "for", "True", "False"}
_UNUSUAL = frozenset("`\"'") | {"step", "input"}


class Misspelt(Exception):
    """A name that cannot be one; ``at`` is its position in the text."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


@dataclass(frozen=True)
class Spelling:
    """A statement in Python's grammar.

    Args:
        text: as many bytes as were written, each part at its place.
        names: the names that stand at placeholders, by line and byte.
        dates: where dates stand.
    """

    text: str
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    dates: frozenset[tuple[int, int]] = frozenset()

    def restored(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of a syntax tree with the names that were written; a date is marked by its ``kind``."""
        if not self.names and not self.dates:
            return body
        for node in (node for statement in body for node in ast.walk(statement)):
            if isinstance(node, ast.Name):
                node.id = self.names.get((node.lineno, node.col_offset), node.id)
            if (
                isinstance(node, ast.Constant)
                and (node.lineno, node.col_offset) in self.dates
            ):
                node.kind = "date"
        return body


def spelled(text: str) -> Spelling:
    """The statement in Python's grammar.

    Raises:
        Refusal: a name that cannot be one.

    Example:
        >>> spelled('`a b` <= 3').text
        '_____ <= 3'
        >>> spelled('"class": real[0, 1] step 0.5').text
        '_______: real[0, 1]|     0.5'
    """
    if not any(sign in text for sign in _UNUSUAL):
        return Spelling(text)
    names: dict[tuple[int, int], str] = {}
    dates: set[tuple[int, int]] = set()

    def respelled(match: re.Match[str]) -> str:
        written = match[0]
        if match["ticks"]:
            names[_place(text, match.start())] = _checked(
                _between_ticks(written, match.start()), match.start()
            )
            return "_" * len(written.encode())
        if match["date"] and _DAY.fullmatch(written[2:-1]):
            dates.add(_place(text, match.start()))
            return "b" + written[1:]
        if not text[: match.start()].strip() and _DECLARES.match(text, match.end()):
            names[_place(text, match.start())] = _checked(
                _quoted(written, match.start()), match.start()
            )
            return "_" * len(written.encode())
        return written

    plain = _QUOTED.sub(respelled, text)
    if ":" in plain and ("step" in plain or "input" in plain):
        plain = _outside_strings(plain, _declaration)
    return Spelling(plain, names, frozenset(dates))


def _declaration(text: str) -> str:
    text = _STEP.sub(_bar, text)
    return _INPUT.sub(lambda match: match[1] + "|".ljust(len(match[2])), text)


def _bar(match: re.Match[str]) -> str:
    """A bar of the match's length, so that all else stays where it was."""
    return "|".ljust(len(match[0]))


def _outside_strings(text: str, change: Callable[[str], str]) -> str:
    """The text with its parts outside quoted texts changed."""
    parts = []
    end = 0
    for match in _QUOTED.finditer(text):
        parts += [change(text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(text[end:])])


def _place(text: str, at: int) -> tuple[int, int]:
    """Line and byte of a position, as in a syntax tree."""
    before = text[:at].split("\n")
    return len(before), len(before[-1].encode())


def _between_ticks(written: str, at: int) -> str:
    if len(written) < 2 or not written.endswith("`"):
        raise Misspelt(
            "a name in back-ticks that does not end: write a second back-tick", at
        )
    return written[1:-1].replace("``", "`")


def _quoted(written: str, at: int) -> str:
    try:
        return str(ast.literal_eval(written))
    except (SyntaxError, ValueError):
        raise Misspelt(
            "a name in quotes that cannot be read: quote it as a text", at
        ) from None


def _checked(name: str, at: int) -> str:
    if not name.strip():
        raise Misspelt(
            "a name without letters: write the column's name between the quotes", at
        )
    if not name.isprintable():
        raise Misspelt(
            "a name with a line break, tab or unprintable sign: rename the column", at
        )
    return name


_KEYWORD = rf"\b(?P<word>{'|'.join(set(keyword.kwlist) - _OURS)})\b"
_DECLARED = re.compile(
    rf"\A\s*\b(?P<word>{'|'.join(keyword.kwlist)})\s*:\s*(?:[a-z]+\s*(?:[\[(]|\Z)|\{{)"
)


def keyword_in(text: str, *, declared: bool) -> re.Match[str] | None:
    """A word of Python that is declared as a name, or stands in a rule where it can only be meant as one.

    Example:
        >>> keyword_in("class: real", declared=True)["word"], keyword_in("x <= from", declared=False)["word"]
        ('class', 'from')
    """
    return _DECLARED.match(text) if declared else re.search(_KEYWORD, text)


def is_plain(name: str) -> bool:
    """Whether a name can be written without quotes."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and unicodedata.normalize("NFKC", name) == name
    )


def name_text(name: str, words: frozenset[str] = frozenset()) -> str:
    """The name as it is written in rules: in back-ticks, unless it is plain and none of these words.

    Example:
        >>> name_text("total"), name_text("Loan Amount"), name_text("class")
        ('total', '`Loan Amount`', '`class`')
    """
    if is_plain(name) and name not in words:
        return name
    return "`" + name.replace("`", "``") + "`"
