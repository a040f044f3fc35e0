"""The text of the rules in a file, which people read, says what the rules do that the model is held to."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from multiplexnet.language.formula import Specification
from multiplexnet.language.ordering import from_ordering
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import formula_text

__all__ = ["with_true_texts"]

OTHERWISE = (
    "the text of the rules in the file does not say what the rules do that rows are held to, and the latter are shown: "
    "somebody changed the file, or the version that wrote it read this text otherwise"
)


def with_true_texts(
    specification: Specification,
) -> tuple[Specification, tuple[str, ...]]:
    """The specification, with texts written anew where they do not say what its rules do; and what is to be said of it.

    A record holds rules twice, as they were written and as they were read, and a stranger may have changed one of them.
    The former is read again. Rules that were read from something else, such as SMT-LIB, have no other text than that
    of their formulas.

    Args:
        specification: as it was recorded.

    Example:
        >>> honest = parse("b: int[0, 9]; b <= 8")
        >>> with_true_texts(honest) == (honest, ())
        True
    """
    read = _read(specification.text)
    if read is not None and _is_begun_by(specification, read):
        return specification, ()
    rules = [
        replace(rule, text=formula_text(rule.formula), line=None)
        for rule in specification.rules
    ]
    found = replace(specification, text="", rules=tuple(rules))
    return found, () if read is None else (OTHERWISE,)


def _read(text: str) -> Specification | None:
    """What a text says; ``None``: nothing, or nothing that is read as rules."""
    for reader in (parse, from_ordering):
        with suppress(ValueError, RecursionError):
            return reader(text)
    return None


def _is_begun_by(specification: Specification, read: Specification) -> bool:
    """Whether it has what was read, and otherwise only columns that a table was found to have."""
    declared = specification.variables[: len(read.variables)]
    return (declared, specification.rules) == (read.variables, read.rules)
