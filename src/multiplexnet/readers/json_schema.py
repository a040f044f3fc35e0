"""Rules from a JSON Schema of one record, as a text of the language: kinds, ranges, choices, what may be missing.

Of a property these are read: ``type`` (number, integer, boolean, string with ``enum`` or of ``format`` date, array of
fixed size), ``minimum``, ``maximum``, ``exclusiveMinimum``, ``exclusiveMaximum``, ``multipleOf``, ``enum``, ``const``,
``formatMinimum`` and the like (ends of dates), ``required``, ``null`` beside another type, ``$ref`` and ``allOf``. What
rules cannot say is named, all of it at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from math import ceil, floor, isfinite
from pathlib import Path
from typing import Any

from multiplexnet.arguments import names_given
from multiplexnet.errors import SourceError, brief
from multiplexnet.language.parser.values import Refusal, decimal
from multiplexnet.language.text import number_text
from multiplexnet.readers.names import cannot_be_written, written_name

__all__ = ["schema_in", "text_of_schema"]

Schema = Mapping[str, Any]

REMARKS = frozenset(
    [
        *(
            "title",
            "description",
            "default",
            "examples",
            "deprecated",
            "readOnly",
            "writeOnly",
        ),
        *(
            "$comment",
            "$schema",
            "$id",
            "$defs",
            "definitions",
            "format",
            "additionalProperties",
        ),
    ]
)
"""Words that ask nothing of a number or a label."""


def schema_in(source: Any) -> Schema:
    """The schema itself, or the one in a file.

    Raises:
        SourceError: there is no such file, it is not JSON, or the schema no object.
    """
    if isinstance(source, str | Path):
        try:
            source = json.loads(
                Path(source).read_text(encoding="utf-8"), parse_float=decimal
            )
        except OSError as error:
            raise SourceError(
                f"{source} cannot be read: {error.strerror or error}"
            ) from None
        except Refusal as refusal:
            raise SourceError(f"{source}: {refusal.reason}") from None
        except ValueError as error:
            raise SourceError(f"{source} is not JSON: {error}") from None
    if not isinstance(source, Mapping):
        raise SourceError(
            f"a JSON Schema is an object, found {type(source).__name__}: give the dict, or the path of its file"
        )
    return source


def text_of_schema(schema: Schema, skip: Sequence[str] = ()) -> str:
    """Declarations and rules that say what the schema says of its properties, but for those to skip.

    Raises:
        SourceError: it says something that rules cannot say; the message names everything of the kind.

    Example:
        >>> print(text_of_schema({"properties": {"p": {"type": "number", "exclusiveMinimum": 0}}, "required": ["p"]}))
        p: real
        p > 0
    """
    skipped = names_given("skip", skip)
    reader = _Reader(schema, skipped)
    try:
        whole = reader.resolved(schema, "the schema")
    except _Unsaid as unsaid:
        raise SourceError(f"the schema: {unsaid}") from None
    properties = whole.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise SourceError(
            "the schema has no properties: rules are made from those of an object, "
            'as in {"properties": {"age": {"type": "number", "minimum": 0}}}'
        )
    reader.refuse_unknown_skips(properties)
    reader.leave(whole, "the schema", known={"type", "properties", "required"})
    required = _required(whole, properties)
    for name, own in properties.items():
        if name not in skipped:
            reader.add(name, own, name in required)
    if reader.unsaid:
        listed = "".join(f"\n    {line}" for line in reader.unsaid)
        raise SourceError(
            f"rules cannot say everything that the schema says:{listed}\n"
            "change it, or leave properties out with skip=[…]"
        )
    return "\n".join([*reader.declarations, *reader.rules])


def _required(whole: Schema, properties: Mapping[str, Any]) -> list[str]:
    """The names of the properties that must be there."""
    names = whole.get("required", [])
    if not isinstance(names, list | tuple):
        raise SourceError(
            f"`required` lists names of properties, found {names!r}: write a list"
        )
    for name in names:
        if not isinstance(name, str) or name not in properties:
            known = ", ".join(map(str, properties))
            raise SourceError(
                f"`required` names {name!r}, which is not a property; there are {known}"
            )
    return list(names)


class _Unsaid(Exception):
    """What rules cannot say."""


@dataclass
class _Reader:
    """Properties that become declarations and rules, and a list of what does not."""

    root: Schema
    skip: list[str]
    declarations: list[str] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)

    def refuse_unknown_skips(self, properties: Mapping[str, Any]) -> None:
        for name in self.skip:
            if name not in properties:
                known = ", ".join(map(str, properties))
                raise SourceError(
                    f"there is no property {name!r} to skip; there are {known}"
                )

    def leave(self, schema: Schema, place: str, known: set[str]) -> None:
        """Notes the words of a schema that are neither known nor remarks."""
        for word in schema:
            if word not in known | REMARKS:
                self.unsaid.append(f"{place}: `{word}` is not understood")

    def add(self, name: str, schema: Any, is_required: bool) -> None:
        place = f"property {name!r}"
        try:
            if not isinstance(name, str):
                raise _Unsaid("a name that is not text: rename it")
            if reason := cannot_be_written(name):
                raise _Unsaid(reason)
            own = self.resolved(schema, place)
            own, is_nullable = self._without_null(own, place)
            may_be_missing = is_nullable or not (is_required or "default" in own)
            self._declare(written_name(name), own, "?" if may_be_missing else "", place)
        except _Unsaid as unsaid:
            self.unsaid.append(f"{place}: {unsaid}")

    # --- kinds ------------------------------------------------------------------------------------------------------

    def _declare(self, name: str, own: Schema, mark: str, place: str) -> None:
        kind = _kind(own)
        if kind == "array":
            self._declare_vector(name, own, mark, place)
            return
        self.leave(own, place, known=set(_WORDS.get(kind, _CHOICES)))
        self.declarations.append(f"{name}: {_type_text(own, kind)}{mark}")
        self.rules += _rules(name, own, kind)

    def _declare_vector(self, name: str, own: Schema, mark: str, place: str) -> None:
        size = own.get("maxItems")
        if not isinstance(size, int) or size < 1 or own.get("minItems") != size:
            raise _Unsaid(
                "an array of any length: give it minItems and maxItems of the same size"
            )
        self.leave(own, place, known={"type", "items", "minItems", "maxItems"})
        items = self.resolved(own.get("items", {}), place)
        kind = _kind(items)
        if kind == "array":
            raise _Unsaid("an array of arrays: write it as one array")
        words = set(_WORDS.get(kind, _CHOICES))
        self.leave(items, f"{place}, its items", known=words)
        self.declarations.append(f"{name}: {_type_text(items, kind)}{mark}[{size}]")
        self.rules += [
            f"all({rule} for v in {name})" for rule in _rules("v", items, kind)
        ]

    # --- references -------------------------------------------------------------------------------------------------

    def resolved(self, schema: Any, place: str) -> dict[str, Any]:
        """The schema with what it refers to put in."""
        found: dict[str, Any] = {}
        for part in self._parts(schema, depth=0):
            for word, value in part.items():
                if word in found and found[word] != value and word not in REMARKS:
                    raise _Unsaid(f"`{word}` stands there twice with different values")
                found[word] = value
        return found

    def _parts(self, schema: Any, depth: int) -> Iterator[dict[str, Any]]:
        if depth > 20:
            raise _Unsaid("references that go round in a circle")
        if not isinstance(schema, Mapping):
            raise _Unsaid(
                f"`{schema}` says nothing of its kind: write a schema with a type"
            )
        yield {
            word: value
            for word, value in schema.items()
            if word not in ("$ref", "allOf")
        }
        if "$ref" in schema:
            yield from self._parts(self._target(schema["$ref"]), depth + 1)
        for part in _listed(schema, "allOf"):
            yield from self._parts(part, depth + 1)

    def _target(self, reference: str) -> Schema:
        target: Any = self.root
        head, *steps = str(reference).split("/")
        try:
            if head != "#":
                raise KeyError(head)
            for step in steps:
                target = target[step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError):
            raise _Unsaid(
                f"the reference {reference!r} leads nowhere in this schema"
            ) from None
        if not isinstance(target, Mapping):
            raise _Unsaid(f"the reference {reference!r} leads to no schema")
        return target

    def _without_null(
        self, own: dict[str, Any], place: str
    ) -> tuple[dict[str, Any], bool]:
        """The schema without ``null``, and whether it was there."""
        kinds = own.get("type")
        if isinstance(kinds, list):
            others = [kind for kind in kinds if kind != "null"]
            return {
                **own,
                "type": others[0] if len(others) == 1 else others,
            }, "null" in kinds
        for word in ("anyOf", "oneOf"):
            if word in own:
                rest = {key: value for key, value in own.items() if key != word}
                options = [
                    self.resolved(option, place) for option in _listed(own, word)
                ]
                chosen = _only(options, word)
                return {**chosen, **rest}, {"type": "null"} in options
        return own, False


def _listed(schema: Schema, word: str) -> list[Any]:
    """What stands in the list behind a word; nothing if the word is not there."""
    found = schema.get(word, [])
    if not isinstance(found, list | tuple):
        raise _Unsaid(f"`{word}` needs a list, found {_shown(found)}")
    return list(found)


def _shown(value: Any) -> str:
    """As JSON; numbers that were read as fractions are decimals again."""
    return json.dumps(
        value,
        default=lambda own: float(own) if isinstance(own, Fraction) else brief(own),
    )


def _only(options: Sequence[dict[str, Any]], word: str) -> dict[str, Any]:
    """The option that is left without ``null``, and without texts beside a number: so decimals are described."""
    left = [option for option in options if option.get("type") != "null"]
    numbers = [option for option in left if option.get("type") in ("number", "integer")]
    texts = [
        option
        for option in left
        if option.get("type") == "string" and "enum" not in option
    ]
    if len(numbers) == 1 and len(numbers) + len(texts) == len(left):
        left = numbers
    if len(left) != 1:
        raise _Unsaid(f"`{word}` with several kinds: write one, or one and null")
    return left[0]


# --- one property ---------------------------------------------------------------------------------------------------

_NUMBER = (
    "type",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "enum",
    "const",
)
KINDS = ("number", "integer", "boolean", "string", "array", "object")
_BOUNDS = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
}
_DATE_BOUNDS = {
    "formatMinimum": ">=",
    "formatExclusiveMinimum": ">",
    "formatMaximum": "<=",
    "formatExclusiveMaximum": "<",
}
_WORDS = {
    "number": _NUMBER,
    "integer": _NUMBER,
    "date": ("type", *_DATE_BOUNDS),
}
_CHOICES = ("type", "enum", "const")


def _kind(own: Schema) -> str:
    kind = own.get("type")
    values = _values(own)
    if kind is None and values:
        kind = _kind_of_values(values)
    if not isinstance(kind, str) or kind not in KINDS:
        shown = _shown(kind) if kind is not None else "no type"
        raise _Unsaid(
            f"{shown}: it needs number, integer, boolean, string with enum, or array"
        )
    if kind == "object":
        raise _Unsaid("an object inside an object: write its properties one level up")
    if kind == "string" and values is None:
        if own.get("format") == "date":
            return "date"
        raise _Unsaid(
            "a text of any kind: only labels can be told, with enum, and dates"
        )
    return kind


def _kind_of_values(values: Sequence[Any]) -> str | None:
    if all(isinstance(value, bool) for value in values):
        return "boolean"
    if all(isinstance(value, str) for value in values):
        return "string"
    if any(isinstance(value, bool | str) for value in values):
        return None
    return "number"


def _values(own: Schema) -> list[Any] | None:
    """The values of ``enum`` and ``const``, but for null."""
    if "const" in own:
        return [own["const"]]
    if own.get("enum") is None:
        return None
    return [value for value in _listed(own, "enum") if value is not None]


def _type_text(own: Schema, kind: str) -> str:
    if kind == "string":
        labels = [
            json.dumps(str(label), ensure_ascii=False) for label in _values(own) or ()
        ]
        doubled = [label for label, count in Counter(labels).items() if count > 1]
        if doubled:
            raise _Unsaid(f"`enum` holds {doubled[0]} twice: leave one of them out")
        return f"{{{', '.join(labels)}}}"
    if kind == "integer":
        low, high = _whole_ends(own)
        return f"int[{low}, {high}]"
    if kind == "number" and "multipleOf" in own:
        least, most, step = map(number_text, _grid(own))
        return f"real[{least}, {most}] step {step}"
    return {"number": "real", "boolean": "bool", "date": "date"}[kind]


def _whole_ends(own: Schema) -> tuple[int, int]:
    values = _values(own)
    lows = [ceil(_number(own["minimum"]))] if "minimum" in own else []
    highs = [floor(_number(own["maximum"]))] if "maximum" in own else []
    if "exclusiveMinimum" in own:
        lows.append(floor(_number(own["exclusiveMinimum"])) + 1)
    if "exclusiveMaximum" in own:
        highs.append(ceil(_number(own["exclusiveMaximum"])) - 1)
    if values:
        numbers = [_number(value) for value in values]
        lows.append(ceil(min(numbers)))
        highs.append(floor(max(numbers)))
    if not (lows and highs):
        raise _Unsaid("an integer without a range: give it minimum and maximum")
    if max(lows) > min(highs):
        raise _Unsaid("its bounds leave no whole number")
    return max(lows), min(highs)


def _number(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise _Unsaid(f"{value!r} is not a number")
    if isinstance(value, float) and not isfinite(value):
        raise _Unsaid(
            f"{value} is not a finite number: a bound that is infinite bounds nothing, so leave it out"
        )
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def _rules(name: str, own: Schema, kind: str) -> list[str]:
    if kind == "string":
        return []
    if kind == "date":
        return [
            f"{name} {relation} {_date_text(own[word])}"
            for word, relation in _DATE_BOUNDS.items()
            if word in own
        ]
    values = _values(own)
    if kind == "boolean":
        if values is None or len(set(values)) == 2:
            return []
        return [name if values[0] else f"not {name}"]
    found = []
    if kind == "number":
        found += [
            f"{name} {relation} {number_text(_number(own[word]))}"
            for word, relation in _BOUNDS.items()
            if word in own
        ]
    if values is not None:
        found.append(
            f"{name} in {{{', '.join(number_text(_number(v)) for v in values)}}}"
        )
    if "multipleOf" in own and kind == "integer":
        step = _step(own)
        found += [f"{name} % {step.numerator} == 0"] if step.numerator != 1 else []
    return found


def _date_text(value: Any) -> str:
    try:
        day = date.fromisoformat(value)
    except (TypeError, ValueError):
        raise _Unsaid(
            f"{_shown(value)} is not a date: write it like 2024-08-03"
        ) from None
    return f'date("{day.isoformat()}")'


def _grid(own: Schema) -> tuple[Fraction, Fraction, Fraction]:
    """The least and the greatest multiple that the bounds leave, and the step between them."""
    step = _step(own)
    low = own.get("minimum", own.get("exclusiveMinimum"))
    high = own.get("maximum", own.get("exclusiveMaximum"))
    if low is None or high is None:
        raise _Unsaid(
            "`multipleOf` without a range: give it minimum and maximum as well"
        )
    return ceil(_number(low) / step) * step, floor(_number(high) / step) * step, step


def _step(own: Schema) -> Fraction:
    step = _number(own["multipleOf"])
    if step <= 0:
        raise _Unsaid(f"`multipleOf` is {step}: it has to be greater than 0")
    return step
