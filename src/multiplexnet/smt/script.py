"""An SMT-LIB script cut into commands, with the place of every word for messages. The terms are left to z3."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from multiplexnet.errors import RuleSyntaxError

__all__ = ["Command", "Script", "Token", "blank"]

_TOKEN = re.compile(
    r"""(?P<skip>(?:\s|;[^\n]*)+)|[()]|"(?:[^"]|"")*"|\|[^|\\]*\||[^\s()";|]+"""
)


@dataclass(frozen=True)
class Token:
    """A bracket or a word, and its offset in the text."""

    text: str
    start: int

    @property
    def symbol(self) -> str:
        """The word without the bars of a quoted symbol."""
        return self.text.strip("|")


@dataclass(frozen=True)
class Command:
    """One ``( … )`` at the outermost level; ``words`` are its tokens between the brackets."""

    words: tuple[Token, ...]
    start: int
    end: int

    @property
    def name(self) -> str:
        return self.words[0].text


class Script:
    """The text, its lines and its commands.

    Raises:
        RuleSyntaxError: brackets or quotes do not match, or something stands outside a command.

    Example:
        >>> [command.name for command in Script("(declare-const x Real) (assert (> x 0)) ; positive").commands]
        ['declare-const', 'assert']
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.commands = list(self._commands())

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 1."""
        line = min(bisect_right(self._starts, offset), len(self.lines))
        return line, offset - self._starts[line - 1] + 1

    def error(self, reason: str, offset: int) -> RuleSyntaxError:
        """The exception for what is wrong at the offset."""
        line, column = self.place(offset)
        return RuleSyntaxError(
            reason, line=line, column=column, source=self.lines[line - 1]
        )

    def written(self, start: int, end: int) -> str:
        """The text between two offsets on one line, without comments."""
        return _TOKEN.sub(
            lambda m: " " if m["skip"] else m[0], self.text[start:end]
        ).strip()

    def only(self, names: frozenset[str]) -> str:
        """The text with everything but these commands blanked out, so that every place stays where it is."""
        kept = [command for command in self.commands if command.name in names]
        return self.keeping(kept, lambda script, c: script.text[c.start : c.end])

    def keeping(
        self, commands: Iterable[Command], written: Callable[[Script, Command], str]
    ) -> str:
        """The text with everything but these commands blanked out; ``written`` gives each with its own length."""
        pieces = []
        position = 0
        for command in commands:
            pieces += [
                blank(self.text[position : command.start]),
                written(self, command),
            ]
            position = command.end
        return "".join(pieces)

    def _tokens(self) -> Iterator[Token]:
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self.error(
                    f"the quote {self.text[position]} is never closed", position
                )
            if not match["skip"]:
                yield Token(match[0], position)
            position = match.end()

    def _commands(self) -> Iterator[Command]:
        tokens: list[Token] = []
        opened: list[int] = []
        for token in self._tokens():
            tokens.append(token)
            if token.text == "(":
                opened.append(token.start)
            elif not opened:
                raise self.error(
                    f"expected a command such as (assert …), found `{token.text}`",
                    token.start,
                )
            elif token.text == ")":
                start = opened.pop()
                if not opened:
                    yield self._command(tokens, start)
                    tokens = []
        if opened:
            raise self.error("this bracket is never closed", opened[0])

    def _command(self, tokens: list[Token], start: int) -> Command:
        words = tuple(tokens[1:-1])
        if not words or words[0].text == "(":
            raise self.error(
                "expected the name of a command after `(`, as in (assert …)", start
            )
        return Command(words, start, tokens[-1].start + 1)


def blank(text: str) -> str:
    """As many spaces, on as many lines."""
    return re.sub(r"[^\n]", " ", text)
