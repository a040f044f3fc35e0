"""What a page asked, read with suspicion: every field has its type and its largest size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from multiplexnet.errors import QuestionError

__all__ = ["Question", "number"]

LONGEST_TEXT = 50_000
LONGEST_NUMBER = 60
LARGEST_EXPONENT = 400
LONGEST_NAME = 200
MOST_VALUES = 5_000

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e([+-]?\d{1,4}))?|[+-]?\d+\s*/\s*\d+",
    re.IGNORECASE | re.ASCII,
)


def number(text: object, name: str) -> Fraction:
    """The exact number that was typed: a decimal, or a fraction such as ``1/3``.

    Raises:
        QuestionError: it is not a number, or one that is too long to be typed by a person.

    Example:
        >>> number("0.1", "x"), number("-1/3", "x"), number("2e3", "x")
        (Fraction(1, 10), Fraction(-1, 3), Fraction(2000, 1))
    """
    if not isinstance(text, str) or not text.strip():
        raise QuestionError(f"{name} has no value: type a number")
    words = text.strip().replace("−", "-")
    found = _NUMBER.fullmatch(words)
    if (
        len(words) > LONGEST_NUMBER
        or found is None
        or abs(int(found[3] or 0)) > LARGEST_EXPONENT
    ):
        raise QuestionError(
            f"{name} = {words[:40]}: write a number such as 2, 0.5, 1e-3 or 1/3"
        )
    try:
        return Fraction(words.replace(" ", ""))
    except ZeroDivisionError:
        raise QuestionError(
            f"{name} = {words[:40]}: nothing can be divided by 0"
        ) from None


class Question:
    """The fields of one question.

    Args:
        fields: as they came.
    """

    def __init__(self, fields: object) -> None:
        if not isinstance(fields, dict):
            raise QuestionError("a question is an object with named fields")
        self._fields: Mapping[str, Any] = fields

    @property
    def text(self) -> str:
        """The rules."""
        text = self._field("text", str)
        if len(text) > LONGEST_TEXT:
            raise QuestionError(
                f"the rules have {len(text):,} characters; the playground reads at most {LONGEST_TEXT:,}: use the "
                "library itself"
            )
        return str(text)

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """One of some words; the first if nothing was said."""
        word = self._fields.get(name, allowed[0])
        if word not in allowed:
            raise QuestionError(f"{name}: expected one of {', '.join(allowed)}")
        return str(word)

    def names(self, name: str) -> list[str]:
        """A list of words; empty if nothing was said."""
        words = self._many(name, list)
        if not all(
            isinstance(word, str) and len(word) <= LONGEST_NAME for word in words
        ):
            raise QuestionError(f"{name}: expected names")
        return list(words)

    def typed(self, name: str) -> dict[str, object]:
        """What was typed, by name; :func:`~multiplexnet.playground.answers.values.read` makes values of it."""
        return {
            key[:LONGEST_NAME]: value for key, value in self._many(name, dict).items()
        }

    def floats(self, name: str) -> list[float] | None:
        """A list of finite numbers, or ``None`` if nothing was said."""
        if self._fields.get(name) is None:
            return None
        values = self._many(name, list)
        if not all(
            isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < 1e300
            for v in values
        ):
            raise QuestionError(f"{name}: expected finite numbers")
        return [float(v) for v in values]

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number in a range; the least if nothing was said."""
        value = self._fields.get(name, least)
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or not least <= value <= most
        ):
            raise QuestionError(
                f"{name}: expected a whole number from {least} to {most}"
            )
        return value

    def _field(self, name: str, kind: type) -> Any:
        value = self._fields.get(name)
        if not isinstance(value, kind):
            raise QuestionError(
                f"{name}: expected {kind.__name__}, found {type(value).__name__}"
            )
        return value

    def _many(self, name: str, kind: type) -> Any:
        values = self._fields.get(name, kind())
        if not isinstance(values, kind) or len(values) > MOST_VALUES:  # type: ignore[arg-type]
            raise QuestionError(
                f"{name}: expected at most {MOST_VALUES} values as a {kind.__name__}"
            )
        return values
