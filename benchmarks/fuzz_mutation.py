"""Random changes of texts, plain data and bytes: what has hurt readers before, and what nobody thought of."""

from __future__ import annotations

import json
import random
from typing import Any

__all__ = ["NASTY", "damaged", "mutated", "mutated_bytes", "mutated_json"]

NASTY = (
    *(
        "1e999999999",
        "10**10**10",
        "1/0",
        "0x" + "f" * 999,
        "9" * 5000,
        "1e-400",
        "-0",
        "NaN",
        "Infinity",
        "null",
    ),
    *(
        "(" * 300,
        "[" * 300,
        "{" * 300,
        "not " * 300,
        "-" * 300,
        "abs(" * 99,
        '"',
        "'",
        '"""',
        "\\",
        "\\\n",
        "`",
        "#",
    ),
    *(
        "\0",
        "\ufeff",
        "\u202e",
        "\ud800",
        "٣",
        "ﬁ",
        "\r",
        "\t",
        "\v",
        "\x1b[2J",
        "é",
        "𝒙",
        "=cmd|' /C calc'!A0",
    ),
    *(
        "__import__('os').system('false')",
        "x.__class__",
        "lambda: 0",
        "exec",
        "f'{x}'",
        "import os",
        "x[99999999999]",
    ),
    *(
        "real[1000000000]",
        "int[0, 10000000000]",
        "range(1000000000)",
        "all(x for x in x)",
        "for i in range(9)",
        "**",
    ),
    *(
        "(assert",
        "(declare-fun f (Real) Real)",
        "(exit)",
        "(forall ((z Real)) (> z 0))",
        "|",
        ";",
        "ordering",
        "neg",
    ),
    *(
        "and",
        "or",
        "implies(",
        "==",
        "!=",
        "<",
        ">=",
        ":",
        ",",
        "%",
        "//",
        "step 0.1",
        "assume ",
        "limit*x",
        "/limit",
        "date",
        "datetime[",
        "year(",
        "argmax(",
        "count(",
        "norm(x, 2)",
        "inf",
        "round(",
        "range(0, 9, 2)",
        "(push 1)",
        "(pop 1)",
        "(check-sat)",
        "(check-sat-assuming (p))",
        "decimal(2)[0, 1]",
        'd"2024-01-01"',
        "date(",
        "[:, 1]",
        "axis=0",
        "@",
        "``",
        "input ",
        " is missing",
        "if",
        "else",
        "in",
        "?",
        "real?",
        "is missing",
        "is not missing",
        "True",
        "None",
        "...",
    ),
)


def mutated(text: str, dice: random.Random) -> str:
    """The text with a few random changes."""
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        text = dice.choice(CHANGES)(text, dice)
    return text


def _span(text: str, dice: random.Random) -> tuple[int, int]:
    start = dice.randint(0, len(text))
    return start, min(len(text), start + dice.choice((0, 1, 1, 2, 5, 20)))


def _dropped(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    return text[:start] + text[stop:]


def _doubled(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    return text[:stop] + text[start:stop] * dice.choice((1, 2, 50)) + text[stop:]


def _nasty(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    return text[:start] + dice.choice(NASTY) + text[stop:]


def _character(text: str, dice: random.Random) -> str:
    at = dice.randint(0, len(text))
    return (
        text[:at]
        + chr(dice.choice((dice.randint(0, 127), dice.randint(0, 0x10FFFF))))
        + text[at + 1 :]
    )


def _moved(text: str, dice: random.Random) -> str:
    start, stop = _span(text, dice)
    rest = text[:start] + text[stop:]
    at = dice.randint(0, len(rest))
    return rest[:at] + text[start:stop] + rest[at:]


def _lines(text: str, dice: random.Random) -> str:
    lines = text.split("\n")
    dice.shuffle(lines)
    return "\n".join(lines[: dice.randint(1, len(lines))])


CHANGES = (_dropped, _doubled, _nasty, _nasty, _character, _moved, _lines)


def mutated_json(data: Any, dice: random.Random) -> Any:
    """Plain data with some leaves and branches changed."""
    data = json.loads(json.dumps(data))
    for _ in range(dice.choice((1, 1, 2, 5))):
        parent, key = _place(data, dice)
        value = parent[key]
        kind = dice.randrange(6)
        if kind == 0:
            del parent[key]
        elif kind == 1 and isinstance(parent, list):
            parent.insert(key, value)
        elif kind == 2 and isinstance(value, int):
            parent[key] = dice.choice(
                (value + 1, -value - 1, 10**20, True, str(value), None)
            )
        elif kind == 3 and isinstance(value, str):
            parent[key] = mutated(value, dice)
        elif kind == 4:
            other, name = _place(data, dice)
            parent[key] = json.loads(json.dumps(other[name]))
        else:
            parent[key] = dice.choice(
                (
                    None,
                    True,
                    -1,
                    2**70,
                    "",
                    "1/0",
                    [],
                    {},
                    [[]],
                    "x",
                    dice.choice(NASTY),
                    [value],
                )
            )
        if not data:
            break
    return data


def _place(data: Any, dice: random.Random) -> tuple[Any, Any]:
    """A random place in the data, and its key there; the deeper the likelier."""
    places: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        node = stack.pop()
        for key, value in (
            list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        ):
            places.append((node, key))
            if isinstance(value, dict | list):
                stack.append(value)
    return dice.choice(places) if places else ({"": None}, "")


def mutated_bytes(text: str, dice: random.Random) -> bytes:
    """A text as a file in which some bytes are wrong."""
    data = mutated(text, dice).encode(errors="surrogatepass")
    return data if dice.random() < 0.3 else damaged(data, dice)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Bytes changed, inserted and cut out, bits flipped."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randint(0, len(changed))
        kind = dice.randrange(4)
        if kind == 0:
            del changed[at : at + dice.choice((1, 4, 100))]
        elif kind == 1:
            changed[at:at] = dice.randbytes(dice.choice((1, 1, 4, 8)))
        elif kind == 2:
            changed[at : at + 1] = dice.randbytes(1)
        elif at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
    return bytes(changed)
