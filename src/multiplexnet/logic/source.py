"""Rule text cut into statements, each read by Python's own parser, with the place of every part for messages.

Statements end at a line end or ``;`` outside brackets and stand alone, so indentation means nothing. Python's parser
only gives a syntax tree; nothing here or later runs it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from multiplexnet.errors import RuleSyntaxError

__all__ = ["Statement", "statements"]

LONGEST_SHOWN = 300  # a longer line is not repeated in a message

_STRING = (
    r"""(?P<long>\"{3}|'{3})(?:\\.|(?!(?P=long)).)*(?:(?P=long)|\Z)|(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\n\\])*"""
)
_TOKEN = re.compile(rf"(?:{_STRING})(?:(?P=quote))?|\#[^\n]*|[()\[\]{{}};\n]|\\\n", re.DOTALL)

_HINTS = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"&&|∧", "write `and`"),
        (r"\|\||∨", "write `or`"),
        (r"<=+>|<-+>|↔|⇔", "write `iff(p, q)`"),
        (r"=+>|->|→|⇒", "write `implies(p, q)`, or `>=` to compare"),
        (r"=<|≤", "write `<=`"),
        (r"≥", "write `>=`"),
        (r"<>|≠", "write `!=`"),
        (r"!(?!=)|¬", "write `not`"),
        (r"−", "write `-` (this is another minus sign)"),
        (r"[·×]", "write `*`"),
        (r"(?<![<>=!:])=(?!=)", "write `==` for equality"),
        (r"\A(?:if|elif|else|when)\b", "write `implies(p, q)`, or `a if p else b` for a value"),
        (r"\A(?:for|while|forall)\b", "write `all(… for i in range(n))`"),
        (r"\A[^:()]*,[^:()]*:", "declare one name at a time, as in `a: real; b: real`"),
    )
)


@dataclass(frozen=True)
class Statement:
    """One declaration or rule.

    Args:
        node: its syntax tree.
        text: as written, without comments and surrounding space.
        line: 1-based line where it begins.
        column: 1-based column where it begins.
        source: all lines of the text.
    """

    node: ast.stmt
    text: str
    line: int
    column: int
    source: Sequence[str]

    @cached_property
    def _bytes(self) -> list[bytes]:
        return self.text.encode().split(b"\n")  # the columns of a syntax tree count bytes

    def written(self, node: ast.expr) -> str:
        """The part as the user wrote it."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        if first == last:
            return self._bytes[first][node.col_offset : node.end_col_offset].decode()
        head, body = self._bytes[first][node.col_offset :], self._bytes[first + 1 : last]
        return b" ".join([head, *body, self._bytes[last][: node.end_col_offset]]).decode()

    def error(self, node: ast.expr | ast.stmt, reason: str) -> RuleSyntaxError:
        """The error that points at a part of this statement."""
        column = len(self._bytes[node.lineno - 1][: node.col_offset].decode())
        return _error(self.source, *_place(self, node.lineno, column + 1), reason)


@dataclass(frozen=True)
class _Cut:
    """A statement that is not yet parsed."""

    text: str
    line: int
    column: int


def _place(cut: _Cut | Statement, line: int, column: int) -> tuple[int, int]:
    """Line and column in the whole text of a place in a statement; all 1-based."""
    return (cut.line + line - 1, column + cut.column - 1 if line == 1 else column)


def _error(source: Sequence[str], line: int, column: int, reason: str) -> RuleSyntaxError:
    shown = source[line - 1]
    if len(shown) > LONGEST_SHOWN:
        near = shown[max(0, column - 20) : column + 20].strip()
        return RuleSyntaxError(f"{reason} (near `{near}`)", line=line, column=column)
    return RuleSyntaxError(reason, line=line, column=column, source=re.sub(r"\s", " ", shown))


def statements(text: str) -> list[Statement]:
    """The statements of a rule text in order.

    Raises:
        RuleSyntaxError: the text is empty, or Python's grammar does not allow it.

    Example:
        >>> [(s.line, s.text) for s in statements("x: real; y: real  # outputs\\nx <= y")]
        [(1, 'x: real'), (1, 'y: real'), (2, 'x <= y')]
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    if plain.startswith("\ufeff"):
        plain = " " + plain[1:]  # the mark that some editors put before UTF-8
    source = plain.split("\n")
    if "\0" in plain:
        before = plain[: plain.index("\0")].split("\n")
        raise _error(source, len(before), len(before[-1]) + 1, "a NUL byte; this is no text file, or remove the byte")
    cuts = list(_cuts(plain, source))
    if not cuts:
        raise _error(source, 1, 1, "no rules: the text is empty or has only comments; write one, as in `x >= 2`")
    return [Statement(_tree(cut, source), cut.text, cut.line, cut.column, source) for cut in cuts]


def _cuts(text: str, source: Sequence[str]) -> Iterator[_Cut]:
    """The text between the line ends and semicolons outside brackets, comments left out."""
    starts = list(accumulate((len(line) + 1 for line in source), initial=0))
    row, begin, kept, parts, depth = 0, 0, 0, list[str](), 0
    for match in [*_TOKEN.finditer(text), None]:
        token, at = (match[0], match.start()) if match else ("\n", len(text))
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth = max(0, depth - 1)
        elif token[0] == "#":
            parts.append(text[kept:at].rstrip(" \t"))
            kept = at + len(token)
        elif token == "\n" and depth and match:
            continue
        elif token in ("\n", ";") and (not depth or not match):
            parts.append(text[kept:at])
            whole = "".join(parts)
            begin += len(whole) - len(whole.lstrip())
            while starts[row + 1] <= begin and row + 2 < len(starts):
                row += 1
            if whole.strip():
                yield _Cut(whole.strip(), row + 1, begin - starts[row] + 1)
            begin = kept = at + 1
            parts = []


def _tree(cut: _Cut, source: Sequence[str]) -> ast.stmt:
    """The syntax tree of one statement; what Python's parser refuses is explained."""
    try:
        body = ast.parse(cut.text).body
    except SyntaxError as error:
        raise _explained(error, cut, source) from None
    except (RecursionError, MemoryError):
        reason = "nested too deeply or too long a chain; split the rule, or write a long sum as `sum([a, b, …])`"
        raise _error(source, cut.line, cut.column, reason) from None
    except ValueError as error:
        raise _error(source, cut.line, cut.column, f"characters that are no text ({type(error).__name__})") from None
    if len(body) != 1:
        raise _error(source, cut.line, cut.column, "more than one statement; write one rule a line")
    return body[0]


def _explained(error: SyntaxError, cut: _Cut, source: Sequence[str]) -> RuleSyntaxError:
    masked = re.sub(_STRING, lambda match: re.sub(r"[^\n]", " ", match[0]), cut.text, flags=re.DOTALL)
    for pattern, advice in _HINTS:
        if found := pattern.search(masked):
            before = cut.text[: found.start()].split("\n")
            place = _place(cut, len(before), len(before[-1]) + 1)
            return _error(source, *place, f"`{found[0].strip()}` is not part of the language: {advice}")
    row = min(max(error.lineno or 1, 1), cut.text.count("\n") + 1)
    width = len(cut.text.split("\n")[row - 1])
    column = min(max(error.offset or 1, 1), width + 1)
    return _error(source, *_place(cut, row, column), f"this cannot be read as a rule or declaration: {error.msg}")
