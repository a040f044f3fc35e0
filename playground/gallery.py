"""The rules of the gallery as examples of the playground: ``python playground/gallery.py`` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import multiplexnet as mx

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "src/multiplexnet/playground/static/examples.json"


def rules_of(path: Path) -> mx.Rules:
    """The rules of a program of the gallery, which is run up to the line that makes its layer."""
    lines = path.read_text(encoding="utf-8").splitlines()
    stop = next(k for k, line in enumerate(lines) if "mx.Multiplexer(" in line)
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines[:stop]), str(path), "exec"), names)
    rules = names["rules"]
    assert isinstance(rules, mx.Rules)
    return rules


def examples() -> list[dict[str, str]]:
    """All of them; the first is what the playground begins with."""
    first = (ROOT / "examples/actuator.rules").read_text(encoding="utf-8")
    found = [
        {
            "file": "actuator.rules",
            "title": "an actuator and its pressure",
            "text": first,
        }
    ]
    for path in sorted((ROOT / "examples").glob("[0-9][0-9]_*.py")):
        rules = rules_of(path)
        if (
            not rules.specification.text
        ):  # from arrays: a thousand rows are nothing to type
            continue
        text = dedent(str(rules)).strip() + "\n"
        found.append(
            {"file": path.name, "title": path.stem[3:].replace("_", " "), "text": text}
        )
    return found


if __name__ == "__main__":
    OUTPUT.write_text(
        json.dumps(examples(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    print(f"{OUTPUT.relative_to(ROOT)}: {len(examples())} examples")
