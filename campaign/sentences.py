"""Rules as the campaign makes them: trees of its own, which share nothing with the parser they are written for.

A :class:`Node` is a number or a truth value::

    number    number, variable, call, +, *, max, min, abs, case
    truth     <=, <, >=, >, ==, !=, and, or, not, implies, iff, xor, case, flag, is, in, missing

What a node means is said three times, each time from scratch: as text of the rule language (here), as exact verdicts on
rows (:mod:`~campaign.verdict`) and as a z3 expression (:mod:`~campaign.solver`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from keyword import iskeyword
from typing import Any, Literal

__all__ = [
    "COMPARISONS",
    "Declared",
    "Node",
    "Sentence",
    "call",
    "number",
    "product",
    "spelled",
    "total",
    "variable",
]

COMPARISONS = ("<=", "<", ">=", ">", "==", "!=")
Kind = Literal["real", "int", "bool", "category", "input"]


@dataclass(frozen=True)
class Node:
    """One construct: ``op`` applied to ``parts``; ``value`` is its number, name or label, if it has one."""

    op: str
    parts: tuple[Node, ...] = ()
    value: Fraction | str | None = None

    def __str__(self) -> str:
        return _WRITE.get(self.op, _call)(self)

    def walk(self) -> Iterator[Node]:
        """The node and all that it is made of."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def replaced(self, change: Callable[[Node], Node | None]) -> Node:
        """The tree in which ``change`` has had its way, from the leaves upwards; ``None`` leaves a node as it is."""
        own = (
            replace(self, parts=tuple(part.replaced(change) for part in self.parts))
            if self.parts
            else self
        )
        return change(own) or own

    @property
    def names(self) -> set[str]:
        """The variables that occur."""
        return {
            str(node.value)
            for node in self.walk()
            if node.op in ("variable", "flag", "is")
        }


def number(value: Fraction | int) -> Node:
    """A constant."""
    return Node("number", (), Fraction(value))


def variable(name: str) -> Node:
    """A variable as a number."""
    return Node("variable", (), name)


def call(function: str, *names: str) -> Node:
    """The value of an opaque function of variables."""
    return Node("call", tuple(map(variable, names)), function)


def product(factor: Fraction | int, node: Node) -> Node:
    """A multiple of a node."""
    return Node("*", (node,), Fraction(factor))


def total(*parts: Node) -> Node:
    """A sum."""
    return parts[0] if len(parts) == 1 else Node("+", parts)


# --- text -----------------------------------------------------------------------------------------------------------


def _number(node: Node) -> str:
    assert isinstance(node.value, Fraction)
    return _fraction(node.value)


def _fraction(value: Fraction) -> str:
    """As a person would write it: whole, decimal where that ends soon, with an exponent where it is long."""
    if value < 0:
        return f"(-{_fraction(-value)})"
    rest = value.denominator
    places = 0
    while rest % 2 == 0 or rest % 5 == 0:
        rest //= 5 if rest % 5 == 0 else 2
        places += 1
    if rest != 1 or places > 60:
        return f"({value.numerator} / {value.denominator})"
    digits = value * 10**places
    if places == 0 and value >= 10**6 and value % 10**6 == 0:
        exponent = len(str(value)) - len(str(value).rstrip("0"))
        return f"{str(value)[:-exponent]}e{exponent}"
    return f"{digits.numerator}e-{places}" if places else str(value)


_PLAIN = re.compile(r"[a-z_]\w*(\[\d+\])?")


def spelled(name: str) -> str:
    """A name, in back-ticks where it is not plain."""
    if _PLAIN.fullmatch(name) and not iskeyword(name) and name not in ("sum", "odd[7]"):
        return name
    return "`" + name.replace("`", "``") + "`"


def _joined(word: str) -> Callable[[Node], str]:
    return lambda node: "(" + f" {word} ".join(map(str, node.parts)) + ")"


def _call(node: Node) -> str:
    return f"{node.value if node.op == 'call' else node.op}({', '.join(map(str, node.parts))})"


def _sum(node: Node) -> str:
    """``sum(v)`` where ``value`` says that the parts were all of a vector, and they still are."""
    name, _, length = str(node.value).partition("/")
    whole = bool(length) and [part.value for part in node.parts] == [
        f"{name}[{i}]" for i in range(int(length))
    ]
    return f"sum({name})" if whole else _joined("+")(node)


def _connective(node: Node) -> str:
    if not node.parts:
        return "True" if node.op == "and" else "False"
    return str(node.parts[0]) if len(node.parts) == 1 else _joined(node.op)(node)


def _case(node: Node) -> str:
    condition, then, otherwise = node.parts
    return f"({then} if {condition} else {otherwise})"


_WRITE: Mapping[str, Callable[[Node], str]] = {
    "number": _number,
    "variable": lambda node: spelled(str(node.value)),
    "flag": lambda node: spelled(str(node.value)),
    "missing": lambda node: f"({spelled(str(node.value))} is missing)",
    "is": lambda node: f'({spelled(str(node.value))} == "{node.parts[0].value}")',
    "label": lambda node: f'"{node.value}"',
    "in": lambda node: (
        f"({node.parts[0]} in {{{', '.join(map(str, node.parts[1:]))}}})"
    ),
    "+": _sum,
    "*": lambda node: f"{_number(node)} * {node.parts[0]}",
    "and": _connective,
    "or": _connective,
    "not": lambda node: f"(not {node.parts[0]})",
    "case": _case,
    **{word: _joined(word) for word in COMPARISONS},
}


# --- sentences ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Declared:
    """One variable and its domain; ``input`` is a real one that is known at run time."""

    name: str
    kind: Kind = "real"
    lower: Fraction | None = None
    upper: Fraction | None = None
    labels: tuple[str, ...] = ()
    word: str = ""
    """How a whole number is declared, if not as ``int``: as a ``date`` or by its ``step``."""

    def __post_init__(self) -> None:
        if (self.lower is None) != (self.upper is None):
            raise ValueError(
                f"{self.name} has one end, and the language knows two or none"
            )

    def __str__(self) -> str:
        name = spelled(self.name)
        ends = (
            ""
            if self.lower is None or self.upper is None
            else f"[{_fraction(self.lower)}, {_fraction(self.upper)}]"
        )
        if self.kind == "category":
            labels = ", ".join(f'"{label}"' for label in self.labels)
            return f"{name}: {{{labels}}}"
        if self.word == "step":
            return f"{name}: real{ends} step 1"
        return f"{name}: {self.word or self.kind}{ends}"

    @property
    def vector(self) -> str | None:
        """The name of the vector that it is an element of, ``v`` for ``v[2]``."""
        vector, bracket, _ = self.name.partition("[")
        return (
            vector
            if bracket and vector.isidentifier() and self.name != "odd[7]"
            else None
        )

    @property
    def values(self) -> range | None:
        """The whole numbers that a discrete variable may be; ``None`` for a real one."""
        if self.kind in ("real", "input"):
            return None
        if self.kind == "int":
            assert self.lower is not None
            assert self.upper is not None
            return range(int(self.lower), int(self.upper) + 1)
        return range(2 if self.kind == "bool" else len(self.labels))


@dataclass(frozen=True)
class Sentence:
    """Declarations and rules, and what is known of them beforehand.

    Args:
        declared: the variables, outputs before inputs.
        rules: truth values; all of them have to hold.
        kind: the family that the rules were drawn from, ``thin`` or ``fusion``.
        satisfiable: whether some point obeys, where the construction tells.
        point: the only point that obeys, if there is just one.
        twin: other rules with the same meaning.
    """

    declared: tuple[Declared, ...]
    rules: tuple[Node, ...]
    kind: str = "written"
    satisfiable: bool | None = None
    point: tuple[Fraction, ...] | None = None
    twin: Sentence | None = None

    def __str__(self) -> str:
        return "\n".join([*self._declarations(), *map(str, self.rules)])

    def _declarations(self) -> Iterator[str]:
        sizes = Counter(d.vector for d in self.declared)
        for d in self.declared:
            if d.vector is None:
                yield str(d)
            elif d.name.endswith("[0]"):
                kind, step, size = str(replace(d, name=d.vector)).partition(" step ")
                yield f"{kind}[{sizes[d.vector]}]{step}{size}"
        yield from (f"{name}: function" for name in self.functions)

    @property
    def calls(self) -> tuple[Node, ...]:
        """Every call of an opaque function, each once; its arguments are variables."""
        return tuple(
            dict.fromkeys(
                node for rule in self.rules for node in rule.walk() if node.op == "call"
            )
        )

    @property
    def functions(self) -> tuple[str, ...]:
        """The opaque functions by name."""
        return tuple(dict.fromkeys(str(node.value) for node in self.calls))

    @property
    def outputs(self) -> tuple[Declared, ...]:
        return tuple(d for d in self.declared if d.kind != "input")

    @property
    def inputs(self) -> tuple[Declared, ...]:
        return tuple(d for d in self.declared if d.kind == "input")

    def plain(self) -> Sentence:
        """The rules alone, without what is known of them."""
        return Sentence(self.declared, self.rules, self.kind)

    def record(self) -> dict[str, Any]:
        """Variables and rules as JSON."""
        return {
            "kind": self.kind,
            "declared": [
                [
                    d.name,
                    d.kind,
                    *(None if end is None else str(end) for end in (d.lower, d.upper)),
                    list(d.labels),
                ]
                for d in self.declared
            ],
            "rules": [_record(rule) for rule in self.rules],
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Sentence:
        """What :meth:`record` wrote."""
        declared = tuple(
            Declared(name, kind, _end(lower), _end(upper), tuple(labels))
            for name, kind, lower, upper, labels in record["declared"]
        )
        return Sentence(declared, tuple(map(_node, record["rules"])), record["kind"])


def _end(text: str | None) -> Fraction | None:
    return None if text is None else Fraction(text)


def _record(node: Node) -> list[Any]:
    value = str(node.value) if isinstance(node.value, Fraction) else node.value
    return [node.op, value, *map(_record, node.parts)]


def _node(record: list[Any]) -> Node:
    op, value, *parts = record
    return Node(
        op,
        tuple(map(_node, parts)),
        Fraction(value) if op in ("number", "*") else value,
    )
