"""The text format of PiShield and DRL: an ``ordering`` line, then one disjunction of linear atoms a line.

::

    ordering y_0 y_1 y_2
    y_1 - 2 y_0 >= 0
    neg y_2 > 0.5 or y_1 > 3

``neg`` negates the one atom that follows. Numbers are exact decimals, ``2y_0``, ``2 y_0`` and ``2*y_0`` are the same,
``=`` and ``==`` too; empty lines and ``#`` comments are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from multiplexnet.errors import RuleSyntaxError
from multiplexnet.language.formula import (
    Atom,
    Formula,
    Linear,
    Relation,
    Rule,
    Specification,
    Symbol,
    Variable,
    disjunction,
    negation,
)
from multiplexnet.language.parser.values import did_you_mean

__all__ = ["from_ordering"]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#.*)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<relation>>=|<=|==|>|<|=)
      | (?P<sign>[+-])
      | (?P<times>\*)
      | (?P<name>[^\W\d]\w*)""",
    re.VERBOSE | re.ASCII,
)
_LONGEST = 400  # digits, and exponent: floats end there, beyond it exact numbers only cost time


def from_ordering(text: str) -> Specification:
    """The rules of a text in the ``ordering`` format.

    The first line names all outputs. Their order there is the order in which PiShield corrects them, not that of the
    table: when the names are ``y_0``, ``y_1`` … without a gap, the outputs come by number, as the columns do;
    otherwise they come as listed.

    Args:
        text: the contents of a ``constraints.txt``.

    Raises:
        RuleSyntaxError: with line and column.

    Example:
        >>> spec = from_ordering("ordering y_1 y_0\\ny_1 - 2y_0 >= 0.5\\nneg y_0 > 0 or y_1 > 3")
        >>> [v.name for v in spec.outputs], spec.rules[1].text, spec.rules[1].line
        (['y_0', 'y_1'], 'neg y_0 > 0 or y_1 > 3', 3)
    """
    lines = [
        _Line(source, number) for number, source in enumerate(text.split("\n"), start=1)
    ]
    written = [line for line in lines if line.tokens]
    if not written:
        raise RuleSyntaxError(
            "the text is empty: begin with a line such as `ordering y_0 y_1`"
        )
    variables = _outputs(written[0])
    rules = tuple(_rule(line, variables) for line in written[1:])
    return Specification(tuple(variables.values()), rules, text=text)


def _rule(line: _Line, outputs: Mapping[str, Variable]) -> Rule:
    return Rule(
        _RuleReader(line, outputs).rule(),
        line.source.partition("#")[0].strip(),
        line.number,
    )


def _outputs(line: _Line) -> dict[str, Variable]:
    head, *names = line.tokens
    if head.text != "ordering":
        raise line.error(
            f"expected `ordering` and the names of all outputs first, found `{head.text}`",
            head,
        )
    if not names:
        raise line.error("expected the names of the outputs after `ordering`", head)
    seen = set()
    for name in names:
        if name.kind != "name" or name.text in ("or", "neg"):
            raise line.error(
                f"expected the name of an output, found `{name.text}`", name
            )
        if name.text in seen:
            raise line.error(f"{name.text} is listed twice", name)
        seen.add(name.text)
    ordered = _in_order([name.text for name in names])
    return {name: Variable(name, i) for i, name in enumerate(ordered)}


def _in_order(names: Sequence[str]) -> Sequence[str]:
    """By number if the names are y_0, y_1 … without a gap, else as listed."""
    numbered = [f"y_{i}" for i in range(len(names))]
    return numbered if set(names) == set(numbered) else names


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    column: int


class _Line:
    """One line of the text in tokens."""

    def __init__(self, source: str, number: int) -> None:
        self.source = source
        self.number = number
        self.tokens = list(self._tokens())

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        while position < len(self.source):
            match = _TOKEN.match(self.source, position)
            if match is None or match.lastgroup is None:
                character = _Token("unknown", self.source[position], position + 1)
                raise self.error(f"unexpected character `{character.text}`", character)
            if match.lastgroup != "skip":
                yield _Token(match.lastgroup, match[0], position + 1)
            position = match.end()

    def error(self, reason: str, token: _Token | None) -> RuleSyntaxError:
        """The exception for what is wrong at the token, or at the end of the line."""
        column = token.column if token else len(self.source.rstrip()) + 1
        return RuleSyntaxError(
            reason, line=self.number, column=column, source=self.source
        )


_RELATIONS: dict[str, tuple[Relation, int]] = {
    "<=": ("<=", 1),
    "<": ("<", 1),
    ">=": ("<=", -1),
    ">": ("<", -1),
    "=": ("==", 1),
    "==": ("==", 1),
}
_MISPLACED = {
    "neg": "`neg` stands in front of a whole atom, as in `neg y_0 > 1 or y_1 > 2`",
    "and": "there is no `and` in this format: write each part on a line of its own",
    "not": "`not` is written `neg` in this format",
}


class _RuleReader:
    """Reads the rule of one line from left to right."""

    def __init__(self, line: _Line, outputs: Mapping[str, Variable]) -> None:
        self.line = line
        self.outputs = outputs
        self.next = 0

    def rule(self) -> Formula:
        """``atom or atom …``."""
        atoms = [self.atom()]
        while self.take("name", "or"):
            atoms.append(self.atom())
        if self.token:
            raise self.error("`or` or the end of the line")
        return disjunction(atoms)

    def atom(self) -> Formula:
        """``linear relation linear``, perhaps with ``neg`` in front."""
        negated = self.take("name", "neg")
        left = self.linear()
        found = self.take("relation")
        if found is None:
            raise self.error("one of >= > <= < =")
        relation, sign = _RELATIONS[found.text]
        atom = Atom((left - self.linear()) * sign, relation)
        return negation(atom) if negated else atom

    def linear(self) -> Linear:
        """A sum of terms with signs between them, and perhaps one in front."""
        coefficients: dict[Symbol, Fraction] = {}
        constant = Fraction(0)
        sign = self.take("sign")
        while True:
            size, output = self.term()
            signed = -size if sign and sign.text == "-" else size
            if output is None:
                constant += signed
            else:
                coefficients[output] = coefficients.get(output, Fraction(0)) + signed
            sign = self.take("sign")
            if sign is None:
                return Linear.total(coefficients, constant)

    def term(self) -> tuple[Fraction, Variable | None]:
        """``2``, ``y``, ``2 y`` or ``2*y``."""
        number = self.take("number")
        if number is None:
            return Fraction(1), self.output()
        if self.take("times") or self._is_name(self.token):
            size = self.number(number)
            return size, self.output()
        return self.number(number), None

    @staticmethod
    def _is_name(token: _Token | None) -> bool:
        return token is not None and token.kind == "name" and token.text != "or"

    def number(self, token: _Token) -> Fraction:
        digits, _, exponent = token.text.lower().partition("e")
        too_long = len(digits) > _LONGEST or len(exponent) > _LONGEST
        if too_long or abs(int(exponent or 0)) > _LONGEST:
            raise self.line.error("this number is out of range", token)
        return Fraction(token.text)

    def output(self) -> Variable:
        token = self.token
        if token is None or not self._is_name(token):
            raise self.error("a number or an output")
        if token.text in _MISPLACED and token.text not in self.outputs:
            raise self.line.error(_MISPLACED[token.text], token)
        if token.text not in self.outputs:
            hint = did_you_mean(token.text, self.outputs)
            raise self.line.error(
                f"unknown output `{token.text}`{hint}: it is not in the `ordering` line",
                token,
            )
        self.next += 1
        return self.outputs[token.text]

    @property
    def token(self) -> _Token | None:
        tokens = self.line.tokens
        if self.next == len(tokens):
            return None
        return tokens[self.next]

    def take(self, kind: str, text: str | None = None) -> _Token | None:
        """The next token if it is of this kind, which is then read."""
        token = self.token
        if token is None or token.kind != kind or text not in (None, token.text):
            return None
        self.next += 1
        return token

    def error(self, expected: str) -> RuleSyntaxError:
        found = f"`{self.token.text}`" if self.token else "the end of the line"
        return self.line.error(f"expected {expected}, found {found}", self.token)
