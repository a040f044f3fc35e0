"""Dates and times as whole numbers: days, or seconds, since 1970 began."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Literal

from multiplexnet.language.parser.values import Refusal

__all__ = ["FIRST", "LAST", "Moment", "moment_number", "moment_text", "new_year"]

Moment = Literal["date", "datetime"]

_EPOCH = date(1970, 1, 1)
_MIDNIGHT = datetime(1970, 1, 1)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?", re.ASCII)
SECONDS_A_DAY = 86_400


def _days(day: date) -> int:
    return (day - _EPOCH).days


FIRST: dict[Moment, int] = {
    "date": _days(date.min),
    "datetime": _days(date.min) * SECONDS_A_DAY,
}
LAST: dict[Moment, int] = {
    "date": _days(date.max),
    "datetime": (_days(date.max) + 1) * SECONDS_A_DAY - 1,
}
"""The years 1 to 9999."""


def moment_number(text: str, kind: Moment) -> int:
    """The days of a date, the seconds of a time.

    Raises:
        Refusal: it is none.

    Example:
        >>> moment_number("1970-01-02", "date"), moment_number("1970-01-02 00:00:01", "datetime")
        (1, 86401)
    """
    form = _DAY if kind == "date" else _TIME
    if not form.fullmatch(text):
        example = "2024-08-03" if kind == "date" else "2024-08-03 14:30"
        raise Refusal(
            f'"{text}" is not a {kind}: write year, month and day, as in "{example}"'
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Refusal(f'"{text}" is not a {kind} ({error})') from None
    if kind == "date":
        return _days(moment.date())
    return round((moment - _MIDNIGHT).total_seconds())


def moment_text(number: int, kind: Moment) -> str | None:
    """The date or time as it is written; ``None`` beyond the years 1 to 9999.

    Example:
        >>> moment_text(19938, "date"), moment_text(61, "datetime"), moment_text(10**9, "date")
        ('2024-08-03', '1970-01-01 00:01:01', None)
    """
    if not FIRST[kind] <= number <= LAST[kind]:
        return None
    if kind == "date":
        return (_EPOCH + timedelta(days=number)).isoformat()
    return (_MIDNIGHT + timedelta(seconds=number)).isoformat(" ")


def new_year(year: int, kind: Moment) -> int:
    """The number of the first day, or second, of a year; beyond 1 to 9999 that of a year beyond all dates."""
    if year < 1:
        return FIRST[kind]
    if year > date.max.year:
        return LAST[kind] + 1
    days = _days(date(year, 1, 1))
    return days if kind == "date" else days * SECONDS_A_DAY
