"""What may be given for an argument: refusals (``OptionError``) that say what to give instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from numbers import Integral, Real
from os import PathLike
from typing import Any

from multiplexnet.errors import OptionError

__all__ = [
    "listed",
    "names_given",
    "refuse_bad_address",
    "refuse_bad_count",
    "refuse_bad_minutes",
    "refuse_bad_path",
    "refuse_bad_seed",
    "refuse_bad_share",
    "refuse_no_function",
    "refuse_no_text",
    "refuse_no_truth",
    "refuse_other_kind",
    "refuse_uncallable",
    "refuse_unknown",
]


def listed(name: str, found: Any, allowed: str) -> list[Any]:
    """What was given, as a list; one text is a list of one.

    Raises:
        OptionError: it is not a list of anything.

    Example:
        >>> listed("skip", "label", "names"), listed("skip", range(2), "names")
        (['label'], [0, 1])
    """
    if isinstance(found, str):
        return [found]
    if isinstance(found, bytes | bytearray) or not isinstance(found, Iterable):
        raise OptionError(name, found, allowed)
    try:
        return list(found)
    except TypeError:  # arrays and tensors without a dimension
        raise OptionError(name, found, allowed) from None


def names_given(name: str, found: Any) -> list[str]:
    """Names: one, or several.

    Raises:
        OptionError: it is neither.

    Example:
        >>> names_given("skip", "label"), names_given("skip", ("a", "b"))
        (['label'], ['a', 'b'])
    """
    allowed = "a list of names, as in ['a', 'b'], or one name"
    names = listed(name, found, allowed)
    for one in names:
        if not isinstance(one, str):
            raise OptionError(name, found, allowed)
    return [str(one) for one in names]


def refuse_unknown(name: str, found: object, allowed: Sequence[str]) -> None:
    """Raises ``OptionError`` unless an argument is one of these words."""
    if not isinstance(found, str) or found not in allowed:
        *others, last = (f'"{word}"' for word in allowed)
        raise OptionError(name, found, f"{', '.join(others)} or {last}")


def refuse_bad_count(name: str, found: Any, least: int, what: str) -> None:
    """Raises ``OptionError`` unless it is a whole number and at least this."""
    is_whole = isinstance(found, Integral) and not isinstance(found, bool)
    if not is_whole or found < least:
        raise OptionError(name, found, f"a number of {what}, at least {least}")


def refuse_bad_share(name: str, found: Any, what: str) -> None:
    """Raises ``OptionError`` unless it is a share."""
    is_number = isinstance(found, Real) and not isinstance(found, bool)
    if not is_number or not isfinite(found) or not 0 < found <= 1:
        raise OptionError(name, found, f"a share of {what}, above 0 and at most 1")


def refuse_bad_minutes(found: Any) -> None:
    """Raises ``OptionError`` unless it is a length of time."""
    is_number = isinstance(found, Real) and not isinstance(found, bool)
    if not is_number or not 0 <= found < float("inf"):
        raise OptionError("minutes", found, "a number of minutes, at least 0")


def refuse_bad_seed(found: Any) -> None:
    """Raises ``OptionError`` unless it is a whole number that generators take."""
    is_whole = isinstance(found, Integral) and not isinstance(found, bool)
    if not is_whole or not abs(int(found)) < 2**63:
        raise OptionError("seed", found, "a whole number between -2^63 and 2^63")


def refuse_no_truth(name: str, found: object) -> None:
    """Raises ``OptionError`` unless it is a truth value."""
    if type(found).__name__ not in ("bool", "bool_"):  # that of numpy among them
        raise OptionError(name, found, "True or False")


def refuse_no_text(name: str, found: object, allowed: str) -> None:
    """Raises ``OptionError`` unless it is a text, or ``None``."""
    if found is not None and not isinstance(found, str):
        raise OptionError(name, found, allowed)


def refuse_other_kind(
    name: str, found: object, kinds: type | tuple[type, ...], allowed: str
) -> None:
    """Raises ``OptionError`` unless it is of one of these types."""
    if not isinstance(found, kinds):
        raise OptionError(name, found, allowed)


def refuse_bad_address(name: str, found: object) -> None:
    """Raises ``OptionError`` unless it may be the address of a Dask scheduler, or ``None``."""
    refuse_no_text(
        name,
        found,
        'the address of a scheduler, as in "tcp://10.0.0.1:8786" (that of a client is client.scheduler.address), '
        'or "local"',
    )


def refuse_bad_path(name: str, found: object) -> None:
    """Raises ``OptionError`` unless it may be the path of a file, or ``None``."""
    if found is not None and (not isinstance(found, str | PathLike) or not str(found)):
        raise OptionError(name, found, 'the path of a file, as in "rows.csv"')


def refuse_no_function(name: str, found: object, of: str) -> None:
    """Raises ``OptionError`` unless it can be called, or is ``None``."""
    if found is not None and not callable(found):
        raise OptionError(name, found, f"a function of {of}")


def refuse_uncallable(name: str, found: object, allowed: str) -> None:
    """Raises ``OptionError`` unless it can be called."""
    if not callable(found):
        raise OptionError(name, found, allowed)
