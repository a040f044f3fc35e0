"""The certificate as a document: plain JSON with exact numbers, its hashes, and strict reading.

::

    rules    as they were written, in which language, and the variables they declare
    terms    what they were compiled to: blocks of terms, every number "p/q"
    layer    dtype, constants of the error bound, for every term its parts with anchors and margins, and cascades
    proved   what the compiler's solver proved, and which solver that was
    sha256   of each of these, and of all of them together

A document holds no floats, no name twice and nothing that is run. ``docs/understand/certificate.md`` has the details.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from multiplexnet.errors import RecordError, opening

__all__ = ["PARTS", "Certificate", "hashes"]

FORMAT = "multiplexnet certificate"
VERSION = 1
PARTS = ("rules", "terms", "layer", "proved")
"""The parts of a document, each with a hash of its own."""
OPTIONAL = {"layer": {"cascades"}, "terms": {"tangents"}}
"""What a part need not have."""
WIDTH = 100
"""Lists and objects longer than this are written over several lines."""
DEEPEST = 200
"""How deeply lists and objects may be nested in one another."""


@dataclass(frozen=True)
class Certificate:
    """What is known of a layer, so that somebody else can check it (``multiplexnet certify FILE``).

    Args:
        data: the document as plain data: dicts, lists, strings, whole numbers, true, false and null.

    Example:
        >>> import multiplexnet as mx
        >>> certificate = mx.Multiplexer(mx.Rules("x >= 2 or x <= -2")).certificate
        >>> certificate.sound, certificate.complete, certificate.data["terms"]["blocks"][0]["terms"][0]["rows"]
        (True, True, [['<=', ['2', [0, '-1']]]])
        >>> Certificate.from_json(certificate.to_json()) == certificate
        True
    """

    data: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        _check_shape(self.data)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        said = "sound and complete" if self.complete else "sound"
        return f"Certificate({said}, {self.data['layer']['dtype']}, {self.solver}, sha256 {self.sha256[:12]}…)"

    # --- what it says -----------------------------------------------------------------------------------------------

    @property
    def sound(self) -> bool:
        """Whether the compiler proved that every term implies the rules (cascades are proved by ``certify`` alone)."""
        return bool(self.data["proved"]["sound"])

    @property
    def complete(self) -> bool:
        """Whether everything that obeys is said to be reached: by the terms, and on the grids of the cascades."""
        cascades = self.data["layer"].get("cascades", [])
        return bool(self.data["proved"]["complete"]) and all(
            one["complete"] and not one.get("late") for one in cascades
        )

    @property
    def solver(self) -> str:
        """Name and version of the solver that did."""
        return str(self.data["proved"]["solver"])

    @property
    def checks(self) -> int:
        """How many questions it was asked."""
        return int(self.data["proved"]["questions"])

    @property
    def sha256(self) -> str:
        """The hash of the whole document."""
        return str(self.data["sha256"]["document"])

    # --- files ------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The document as text."""
        return _laid_out(self.data) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the document to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8", newline="\n")

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """The document in a text.

        Raises:
            RecordError: the text is not a certificate.
        """
        try:
            plain = text.decode("utf-8") if isinstance(text, bytes) else text
            data = json.loads(
                plain.removeprefix("\ufeff"),
                object_pairs_hook=_once,
                parse_float=_no_float,
                parse_constant=_no_float,
            )
        except RecursionError:
            raise RecordError(
                "this is not a certificate: it is nested too deeply"
            ) from None
        except ValueError as error:  # what is not JSON or not UTF-8, or has numbers of thousands of digits
            raise RecordError(f"this is not a certificate: {error}") from None
        return cls(data)

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """The document in a file.

        Raises:
            MissingFileError: there is no such file.
            OSError: as the system says.
            RecordError: the file is not a certificate.
        """
        with opening(path):
            written = Path(path).read_bytes()
        return cls.from_json(written)


def _laid_out(data: Any, indent: str = "") -> str:
    """JSON where what fits into a line stands in one."""
    short = json.dumps(data, ensure_ascii=False, allow_nan=False)
    if (
        len(indent) + len(short) <= WIDTH
        or not isinstance(data, dict | list)
        or not data
    ):
        return short
    inner = indent + "  "
    if isinstance(data, dict):
        opened = "{"
        closed = "}"
        lines = [f"{json.dumps(k)}: {_laid_out(v, inner)}" for k, v in data.items()]
    else:
        opened = "["
        closed = "]"
        lines = [_laid_out(v, inner) for v in data]
    return "\n".join(
        [
            opened,
            *(f"{inner}{line}," for line in lines[:-1]),
            inner + lines[-1],
            indent + closed,
        ]
    )


def hashes(data: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of the parts of a document and of the whole, which depend on its data alone, not on its layout."""
    parts = {name: _hash(data[name]) for name in PARTS}
    return {**parts, "document": _hash([FORMAT, VERSION, *parts.values()])}


def _hash(data: Any) -> str:
    plain = json.dumps(
        data, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(plain.encode()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same name twice")
    return found


def _no_float(text: str) -> NoReturn:
    raise ValueError(
        f"the number {text[:40]}: only whole numbers and exact texts such as '1/3' are used"
    )


def _check_shape(data: Any) -> None:
    names = {"format", "version", *PARTS, "sha256"}
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordError(
            f"this is not a certificate: an object with format {FORMAT!r} is expected"
        )
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise RecordError(
            f"a certificate of version {str(data.get('version'))[:40]}: this program reads {VERSION}"
        )
    if set(data) != names:
        raise RecordError(f"a certificate has exactly {', '.join(sorted(names))}")
    for name, inner in {
        "rules": {"language", "text", "variables", "functions"},
        "terms": {"blocks", "inner"},
        "layer": {"dtype", "equality", "bound", "maps"},
        "proved": {"sound", "complete", "solver", "questions", "covered", "version"},
        "sha256": {*PARTS, "document"},
    }.items():
        optional = OPTIONAL.get(name, set())
        if not isinstance(data[name], dict) or set(data[name]) - optional != inner:
            raise RecordError(
                f"{name} of a certificate has exactly {', '.join(sorted(inner))}"
            )
    _check_depth(data)


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(DEEPEST):
        nodes = (node.values() if isinstance(node, dict) else node for node in level)
        level = [
            child for node in nodes for child in node if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise RecordError(
        f"this is not a certificate: it is nested deeper than {DEEPEST} levels"
    )
