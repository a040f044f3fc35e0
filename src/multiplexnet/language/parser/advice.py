"""What people write who know another language, and what to write instead."""

from __future__ import annotations

import re
from keyword import iskeyword

__all__ = ["NO_DATE", "other_function", "other_name", "other_syntax", "quote"]

_SIGNS = tuple(
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
        (
            r"\?",
            "write it behind the type of an output that may be missing, as in `x: real?`",
        ),
        (r"(?<![<>=!:])=(?!=)", "write `==` for equality"),
        (
            r"\A(?:if|elif|else|when)\b",
            "write `implies(p, q)`, or `a if p else b` for a value",
        ),
        (r"\A(?:for|while|forall)\b", "write `all(… for i in range(n))`"),
        (r"\A[^:()]*,[^:()]*:", "declare one name at a time, as in `a: real; b: real`"),
        (r"\bbetween\b", "write a range as a rule, as in `0 <= x <= 1`"),
        (r"--.*|//.*", "comments begin with `#`"),
        (r"(?<=\d)\s*\.\.+", "write `0 <= x <= 1`, or `n in range(1, 4)` for 1, 2, 3"),
        (r"(?<=\d)\s*%(?!\s*[\w(\[])", "write a share as a number: 50 % is `0.5`"),
        (
            r"(?<=:)\s*(?:optional|nullable)\b",
            "write `?` behind the type, as in `x: real?`",
        ),
        (
            r"(?<=\s)if\b(?!.*\belse\b)",
            "write `implies(p, q)`, or `a if p else b` for a value",
        ),
        (
            r"\A[^:()\[\]]*[<>=][^:()\[\]]*:(?!=)",
            "write `implies(p, q)` for «if p, then q»",
        ),
        (r"[$€£]", "write the number alone; the unit belongs to the name or a comment"),
        (
            r"(?<=[\w\])}]), *[^\W\d]\w* *:",
            "declare one name at a time, as in `a: real; b: real`",
        ),
    )
)
"""Signs and words of other languages, each with what to write instead."""

NO_DATE = re.compile(r"(?<![\w.\-])[12]\d{3}-[01]?\d-[0-3]?\d(?![\w.\-])")
"""A date that stands there as a subtraction."""

_TYPE_FIRST = re.compile(
    r"\A(?P<type>real|int|bool|input|float|double|integer|decimal|date|var|let)\s+(?P<name>[^\W\d]\w*)"
)
_FACTOR = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?)((?![eEjJ]\b)[^\W\d]\w*)")
_UNIT = re.compile(r"(?<![\w.])\d[\d_.]*[ \t]+(?P<word>[^\W\d]\w*)")
_WORDS = re.compile(r"(?<![\w.])[^\W\d]\w*(?:[ \t]+[^\W\d]\w*)+")
_ODD_NAME = re.compile(r"\A([^\W\d][\w \t]*(?:[-./&#]+[ \t]*\w+[ \t]*)+):(?!=)")
_UNFINISHED = re.compile(r"(?:\b(?:and|or|not|in|is|if|else|for)|[<>=+\-*/,])\Z")


def other_syntax(text: str) -> tuple[int, str] | None:
    """Where something stands that Python's grammar refuses, and what to write instead; ``None`` where nothing is known.

    Example:
        >>> other_syntax("x >= 3 && y <= 2")
        (7, '`&&` is not part of the language: write `and`')
        >>> other_syntax("Loan Amount <= 3")[1]
        '`Loan Amount`: a name with blanks is quoted, as in `"Loan Amount": real` and `"Loan Amount" >= 0`'
    """
    if found := _ODD_NAME.match(text):
        return 0, quote(found[1].strip(), "is not a plain name: quote it")
    for pattern, advice in _SIGNS:
        if found := pattern.search(text):
            return (
                found.start(),
                f"`{found[0].strip()}` is not part of the language: {advice}",
            )
    if found := _TYPE_FIRST.match(text):
        return 0, f"`{found[0]}`: the name stands first, as in `{found['name']}: real`"
    if found := _FACTOR.search(text):
        return (
            found.start(),
            f"`{found[0]}`: write the product with its sign, `{found[1]}*{found[2]}`",
        )
    if (found := _UNIT.search(text)) and not _is_ours(found["word"]):
        unit = f"`{found['word']}`: write the number alone; a unit belongs to the name or a comment"
        return found.start("word"), unit
    for found in _WORDS.finditer(text):
        words = found[0].split()
        if not any(map(_is_ours, words)):
            name = " ".join(words)
            return found.start(), quote(name, "a name with blanks is quoted", ":")
    if found := _UNFINISHED.search(text):
        reason = f"this cannot be read: it ends behind `{found[0]}`; write what follows, over several lines in brackets"
        return len(text), reason
    return None


def _is_ours(word: str) -> bool:
    return iskeyword(word) or word in ("missing", "step", "input", "assume")


def quote(name: str, reason: str, sign: str = "") -> str:
    """The advice to quote a name."""
    return f'`{name}`{sign} {reason}, as in `"{name}": real` and `"{name}" >= 0`'


def other_name(name: str) -> str | None:
    """What to write in place of a name that other languages know."""
    if name in ("true", "false"):
        return f"`{name}`: write `{name.title()}`, or the truth value alone, as `p` or `not p`"
    if name.lower() in ("null", "none", "na", "missing"):
        return f"`{name}`: write `x is missing` or `x is not missing`"
    return None


CURVED = "rules are linear, and this is curved; an opaque function is declared, as in `f: function`"
_FUNCTIONS = {
    **dict.fromkeys(
        ("isnull", "is_null", "isna", "isnan", "is_missing", "missing", "is_none"),
        "write `x is missing` or `x is not missing`",
    ),
    **dict.fromkeys(
        ("forall", "every", "each"), "write `all(… for v in x)`, or `all(x >= 0)`"
    ),
    **dict.fromkeys(
        ("exists", "some"), "write `any(… for v in x)`, or `any(x >= 0)`"
    ),
    **dict.fromkeys(("month", "day", "weekday", "hour"), "only `year(d)` is known; compare with dates, as in "
        '`date("2024-03-01") <= d <= date("2024-03-31")`'),
    **dict.fromkeys(("sqrt", "exp", "log", "pow", "sin", "cos", "std", "var"), CURVED),
    **dict.fromkeys(("avg", "average"), "write `mean(x)`"),
    **dict.fromkeys(("clip", "clamp"), "write the range as a rule, as in `0 <= x <= 1`"),
    "between": "write the range as a rule, as in `0 <= x <= 1`",
    **dict.fromkeys(("coalesce", "ifnull", "nvl", "fillna"), "write `(x if x is not missing else 0)`"),
    **dict.fromkeys(("days", "timedelta", "date_diff", "datediff"), "a difference of dates is a number of days, as in "
        "`end - start <= 30`"),
    **dict.fromkeys(("hours", "minutes", "seconds"), "a difference of times is a number of seconds, as in "
        "`end - start <= 2*60*60`"),
    **dict.fromkeys(("today", "now"), "rules do not know the day: declare it as an input, as in `today: input date`"),
    "float": "write numbers as they are, as in `0.5`; a bound that is infinite is left out",
    "if_then": "write `implies(p, q)`",
    "sorted": "write `is_sorted(x)`",
}  # fmt: skip


def other_function(name: str) -> str | None:
    """What to write in place of a function that other languages know."""
    advice = _FUNCTIONS.get(name.lower())
    return None if advice is None else f"`{name}`: {advice}"
