"""Names of outputs that come from elsewhere: whether rules can speak of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from multiplexnet.arguments import listed
from multiplexnet.errors import SourceError
from multiplexnet.language.parser.operations import WORDS
from multiplexnet.language.parser.spelling import name_text

__all__ = ["cannot_be_written", "output_names", "written_name"]


def output_names(names: Any, width: int) -> list[str]:
    """A name for every column.

    Args:
        names: one for every column, or the name of a vector (``None``: ``x``).
        width: how many columns there are.

    Raises:
        SourceError: too many or too few, one twice, or one that no rule could say.

    Example:
        >>> output_names("w", 2), output_names(["a", "b"], 2)
        (['w[0]', 'w[1]'], ['a', 'b'])
    """
    if names is None:
        names = "x"
    if isinstance(names, str):
        _refuse_unwritable(names)
        return [f"{names}[{i}]" for i in range(width)]
    allowed = "one name for each column, as in ['a', 'b'], or that of a vector"
    own = [str(name) for name in listed("names", names, allowed)]
    if len(own) != width:
        raise SourceError(
            f"names= holds {len(own)} names, and there are {width} columns: give one name for each"
        )
    doubled = [name for name, count in Counter(own).items() if count > 1]
    if doubled:
        raise SourceError(
            f"the name {doubled[0]!r} stands twice in names=: rename one of them"
        )
    for name in own:
        _refuse_unwritable(name)
    return own


def _refuse_unwritable(name: str) -> None:
    if reason := cannot_be_written(name):
        raise SourceError(f"names=: {reason}")


def cannot_be_written(name: str) -> str | None:
    """Why a rule cannot speak of this name; ``None``: it can, in back-ticks at least.

    Example:
        >>> cannot_be_written("Loan Amount"), cannot_be_written(" ")
        (None, 'a name without letters: rename it')
    """
    if not name.strip():
        return "a name without letters: rename it"
    if not name.isprintable():
        return f"{name!r} has a line break, tab or unprintable sign: rename it"
    return None


def written_name(name: str) -> str:
    """The name as rules write it.

    Example:
        >>> written_name("loan"), written_name("Loan Amount"), written_name("sum")
        ('loan', '`Loan Amount`', '`sum`')
    """
    return name_text(name, WORDS)
