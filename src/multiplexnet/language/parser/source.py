"""Rule text cut into statements, each read by Python's own parser, with the place of every part for messages.

Statements end at a line end or ``;`` outside brackets and stand alone, so indentation means nothing. Python's parser
only gives a syntax tree; nothing here or later runs it.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.parser.advice import NO_DATE, other_syntax
from multiplexnet.language.parser.spelling import (
    STRING,
    Misspelt,
    Spelling,
    keyword_in,
    spelled,
)

__all__ = ["Statement", "source_of", "statements"]

LONGEST_SHOWN = 300  # a longer line is not repeated in a message

_ELEMENTS = r"(?:\[[0-9]++\][^\#;()\[\]{}`\"'\\\n]*+)++"
"""``[0] + 2*x[1] <= 3``: elements and what stands between them; in long sums, brackets one by one take their time."""
_TOKEN = re.compile(rf"{STRING}|\#[^\n]*|{_ELEMENTS}|[()\[\]{{}};\n]|\\\n", re.DOTALL)

_ASSUME = re.compile(
    r"assume\b[ \t]*(?=\S)(?![:=<>!+*/%,.)\]]|(?:and|or|in|is|if|else)\b)"
)

_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")

_LAMBDA = re.compile(
    r"(?P<word>lambda)\s*:\s*(?:(?:real|int|bool|input|decimal|date|datetime|function)\b|\{)"
)
"""A declaration of something that is called so."""
_OTHER_BLANK = re.compile(r"[^\S \t\n\f]")
_MARK = re.compile(r"[^:?]*:(?=\s*[^\s?])[^?]*[\w\])}\"' ]\?", re.DOTALL)
"""A declaration up to the ``?`` behind its type."""


@dataclass(frozen=True)
class Statement:
    """One declaration or rule.

    Args:
        text: as written, without comments and surrounding space.
        line: 1-based line where it begins.
        column: 1-based column where it begins.
        source: all lines of the text.
    """

    text: str
    line: int
    column: int
    source: Sequence[str]

    @property
    def assumed(self) -> Statement | None:
        """What stands behind the word ``assume``, if this is an assumption."""
        found = _ASSUME.match(self.text)
        if found is None:
            return None
        return replace(
            self, text=self.text[found.end() :], column=self.column + found.end()
        )

    def tree(self) -> ast.stmt:
        """Its syntax tree, made anew at each call: to keep 100,000 of them costs more than to make them twice."""
        if "-" in self.text and (found := NO_DATE.search(self._masked)):
            raise self._at(
                found.start(), f'`{found[0]}`: write a date as `date("2024-08-03")`'
            )
        if found := _LAMBDA.match(self.text):  # Python's parser reads a function
            raise self._at(*_quote_it(found))
        try:
            body = self._spelling.restored(ast.parse(self._spelling.text).body)
        except Misspelt as error:
            raise self._at(error.at, error.reason) from None
        except SyntaxError as error:
            raise self._explained(error) from None
        except (RecursionError, MemoryError):
            reason = "nested too deeply or too long a chain; split the rule, or write a long sum as `sum([a, b, …])`"
            raise self._error(1, 1, reason) from None
        except ValueError as error:
            raise self._error(
                1,
                1,
                f"characters that are not text ({type(error).__name__}): remove them",
            ) from None
        if len(body) != 1:
            raise self._error(1, 1, "more than one statement: write one rule a line")
        return body[0]

    @cached_property
    def may_be_missing(self) -> bool:
        """Whether this is a declaration with a ``?`` behind the type."""
        return self._mark is not None

    @cached_property
    def _unmarked(self) -> str:
        """The text with a blank in place of that ``?``, which Python's grammar does not know."""
        if self._mark is None:
            return self.text
        return self.text[: self._mark] + " " + self.text[self._mark + 1 :]

    @cached_property
    def _mark(self) -> int | None:
        """Where the ``?`` of a declaration stands."""
        if "?" not in self.text:
            return None
        found = _MARK.match(self._masked)
        return None if found is None else found.end() - 1

    @cached_property
    def _masked(self) -> str:
        """The text with blanks in place of everything in quotes."""
        return re.sub(
            STRING,
            lambda match: re.sub(r"[^\n]", " ", match[0]),
            self.text,
            flags=re.DOTALL,
        )

    def written(self, node: ast.expr) -> str:
        """The part as the user wrote it."""
        first = node.lineno - 1
        last = (node.end_lineno or node.lineno) - 1
        if first == last:
            return self._bytes[first][node.col_offset : node.end_col_offset].decode()
        head = self._bytes[first][node.col_offset :]
        body = self._bytes[first + 1 : last]
        tail = self._bytes[last][: node.end_col_offset]
        return b" ".join([head, *body, tail]).decode()

    def error(self, node: ast.expr | ast.stmt, reason: str) -> RuleSyntaxError:
        """The error that points at a part of this statement."""
        before = self._bytes[node.lineno - 1][: node.col_offset]
        column = len(before.decode()) + 1
        return self._error(node.lineno, column, reason)

    @cached_property
    def _spelling(self) -> Spelling:
        return spelled(self._unmarked)

    @cached_property
    def _bytes(self) -> list[bytes]:
        return self.text.encode().split(
            b"\n"
        )  # the columns of a syntax tree count bytes

    def _error(self, line: int, column: int, reason: str) -> RuleSyntaxError:
        """The error at a place in this statement, 1-based as in the text."""
        if line == 1:
            column += self.column - 1
        return _error(self.source, self.line + line - 1, column, reason)

    def _at(self, position: int, reason: str) -> RuleSyntaxError:
        """The error at a position in the text of this statement."""
        before = self.text[:position].split("\n")
        return self._error(len(before), len(before[-1]) + 1, reason)

    def _explained(self, error: SyntaxError) -> RuleSyntaxError:
        """What Python's parser refused, with advice where a sign of another language stands in the text."""
        if found := _OTHER_BLANK.search(self._masked):
            sign = f"U+{ord(found[0]):04X}"
            return self._at(
                found.start(), f"a blank of another kind ({sign}): type a blank"
            )
        if keyword := keyword_in(self._masked, declared=True):
            return self._at(*_quote_it(keyword))
        if advice := other_syntax(self._masked):
            return self._at(*advice)
        if keyword := keyword_in(self._masked, declared=False):
            return self._at(*_quote_it(keyword))
        row, column = self._refused_at(error)
        if "integer string conversion" in error.msg:
            return self._error(
                row,
                column,
                "a number of thousands of digits: scale the rule to smaller numbers",
            )
        return self._error(
            row, column, f"this cannot be read as a rule or declaration: {error.msg}"
        )

    def _refused_at(self, error: SyntaxError) -> tuple[int, int]:
        """Line and column that Python's parser points at: it counts the characters of the spelling."""
        lines = self._spelling.text.split("\n")
        row = min(max(error.lineno or 1, 1), len(lines))
        before = lines[row - 1][: max(error.offset or 1, 1) - 1].encode()
        written = self._bytes[row - 1][: len(before)]
        return row, len(written.decode(errors="ignore")) + 1


def _quote_it(found: re.Match[str]) -> tuple[int, str]:
    """Where a word of Python stands, and what to do about it."""
    word = found["word"]
    return found.start("word"), (
        f'`{word}` is a word of Python: if it is a name, quote it, as in `"{word}": real` and `"{word}" >= 0`'
    )


def _error(
    source: Sequence[str], line: int, column: int, reason: str
) -> RuleSyntaxError:
    shown = source[line - 1]
    if len(shown) > LONGEST_SHOWN:
        near = shown[max(0, column - 20) : column + 20].strip()
        return RuleSyntaxError(f"{reason} (near `{near}`)", line=line, column=column)
    return RuleSyntaxError(
        reason, line=line, column=column, source=re.sub(r"\s", " ", shown)
    )


def source_of(text: str) -> list[str]:
    """The lines of a text, whatever its line ends."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    if plain.startswith("\ufeff"):
        plain = " " + plain[1:]  # the mark that some editors put before UTF-8
    return plain.split("\n")


def statements(text: str) -> list[Statement]:
    """The statements of a rule text in order.

    Raises:
        RuleSyntaxError: there are none.

    Example:
        >>> [(s.line, s.text) for s in statements("x: real; y: real  # outputs\\nx <= y")]
        [(1, 'x: real'), (1, 'y: real'), (2, 'x <= y')]
    """
    source = source_of(text)
    plain = "\n".join(source)
    if "\0" in plain:
        before = plain[: plain.index("\0")].split("\n")
        raise _error(
            source,
            len(before),
            len(before[-1]) + 1,
            "a NUL byte: remove it, or give a text file",
        )
    found = list(_cut(plain, source))
    if not found:
        raise _error(
            source,
            1,
            1,
            "no rules: the text is empty or has only comments; write one, as in `x >= 2`",
        )
    return found


def _cut(text: str, source: Sequence[str]) -> Iterator[Statement]:
    starts = list(accumulate((len(line) + 1 for line in source), initial=0))
    for begin, written in _spans(text):
        begin += len(written) - len(written.lstrip())
        if statement := written.strip():
            line = bisect_right(starts, begin)
            yield Statement(statement, line, begin - starts[line - 1] + 1, source)


def _spans(text: str) -> Iterator[tuple[int, str]]:
    """What stands between the line ends and semicolons outside brackets, comments left out, with its position."""
    begin = 0
    kept = 0
    parts = list[str]()
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        at = match.start()
        if token[0] == "#":
            parts.append(text[kept:at].rstrip(" \t"))
            kept = match.end()
        elif token in ("\n", ";") and not depth:
            yield begin, "".join([*parts, text[kept:at]])
            begin = kept = match.end()
            parts = []
        else:
            depth = max(0, depth + (token in _OPENING) - (token in _CLOSING))
    yield begin, "".join([*parts, text[kept:]])
