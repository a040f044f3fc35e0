"""The text that a certificate quotes: rules as they were written, and in which language."""

from __future__ import annotations

from multiplexnet.errors import MultiplexError
from multiplexnet.language.formula import Specification
from multiplexnet.language.ordering import from_ordering
from multiplexnet.language.parser.parse import parse
from multiplexnet.language.text import specification_text

__all__ = ["rules_text"]


def rules_text(specification: Specification) -> tuple[str, str]:
    """The language and the text of the rules; rules that came from no text are written anew."""
    text = specification.text
    for language, read in (("rules", parse), ("ordering", from_ordering)):
        try:
            if text and read(text) == specification:
                return language, text
        except MultiplexError:
            continue
    if specification.assumptions:  # which SMT-LIB does not know
        return "rules", specification_text(specification)
    if text.lstrip().startswith(("(", ";")):
        return "smtlib", text
    from multiplexnet.smt.smtlib import to_smtlib

    return "smtlib", to_smtlib(specification)
