"""A program written out: the calls of torch that its operations make, one after another, as the text of two functions.

The operations are run once on *names* instead of tensors. A name writes down what is done with it, so that the text has
the same calls in the same order as the operations, and nothing else: no loop, no look-up, no test of a type. At a
thousand rows these take longer than torch does. The text is made of numbers and of names that are made here; nothing
of what a user wrote gets into it. A tensor is given up after the line that reads it last, so that the next one takes
its memory, which is still in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

__all__ = ["Constants", "Name", "Script", "Writer", "function_text"]

HEAD = """import torch
from math import inf, nan
hardtanh_backward = torch.ops.aten.hardtanh_backward
"""
INFIX = {
    "__add__": "+",
    "__sub__": "-",
    "__mul__": "*",
    "__truediv__": "/",
    "__eq__": "==",
}


class Name:
    """What stands for a tensor while a script is written.

    Args:
        text: how it is called.
        writer: who is told what is done with it.
    """

    def __init__(self, text: str, writer: Writer) -> None:
        self.text = text
        self.writer = writer

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Name:
        """A function of torch: ``torch.lerp(a, b, m)``."""
        options = named or {}
        given = [*arguments, *options.values()]
        writer = next(one.writer for one in given if isinstance(one, Name))
        own = function.__name__
        called = own if own == "hardtanh_backward" else f"torch.{own}"
        return writer.call(f"{called}({_listed(arguments, options)})", given, options)

    def __getattr__(self, method: str) -> Callable[..., Name]:
        if method.startswith("__"):
            raise AttributeError(method)

        def called(*arguments: Any, **named: Any) -> Name:
            text = f"{self.text}.{method}({_listed(arguments, named)})"
            given = [self, *arguments, *named.values()]
            if method.endswith("_"):  # in place
                self.writer.note(text, given)
                return self
            return self.writer.call(text, given, named)

        return called

    def __getitem__(self, place: Any) -> Name:
        if isinstance(place, slice):
            return self.writer.call(f"{self.text}[:{place.stop}]", [self], {})
        return self.writer.call(f"{self.text}[{_written(place)}]", [self, place], {})


def _infix(sign: str) -> Callable[[Name, Any], Name]:
    def called(self: Name, other: Any) -> Name:
        text = f"{self.text} {sign} {_written(other)}"
        return self.writer.call(text, [self, other], {})

    return called


for _method, _sign in INFIX.items():
    setattr(Name, _method, _infix(_sign))
Name.__hash__ = object.__hash__  # type: ignore[method-assign]


def _written(value: Any) -> str:
    return value.text if isinstance(value, Name) else repr(value)


def _listed(arguments: Iterable[Any], named: Mapping[str, Any]) -> str:
    parts = [_written(value) for value in arguments]
    parts += [f"{key}={_written(value)}" for key, value in named.items()]
    return ", ".join(parts)


@dataclass(frozen=True)
class _Line:
    """``out = text``, or ``text`` alone if ``out`` is empty, and the names that are read."""

    out: str
    text: str
    reads: frozenset[str]


@dataclass
class Writer:
    """Collects lines.

    Args:
        lines: so far.
        count: of the tensors that they make.
    """

    lines: list[_Line] = field(default_factory=list)
    count: int = 0

    def row(self, letter: str, count: int) -> tuple[Name, ...]:
        """Names of given tensors: ``letter`` and a number."""
        return tuple(Name(f"{letter}{i}", self) for i in range(count))

    def note(self, text: str, given: Iterable[Any]) -> None:
        """A line whose result nobody needs."""
        self.lines.append(_Line("", text, _names(given)))

    def call(self, text: str, given: Iterable[Any], named: Mapping[str, Any]) -> Name:
        """A line that makes a tensor, or fills the one that is named ``out``."""
        if isinstance(named.get("out"), Name):
            self.note(text, given)
            filled: Name = named["out"]
            return filled
        self.count += 1
        made = Name(f"t{self.count}", self)
        self.lines.append(_Line(made.text, text, _names(given)))
        return made


def _names(given: Iterable[Any]) -> frozenset[str]:
    return frozenset(value.text for value in given if isinstance(value, Name))


class Constants(dict[Any, Name]):
    """Numbers, or tables of them, that become names when they are asked for."""

    def __init__(self, letter: str, writer: Writer) -> None:
        super().__init__()
        self._letter = letter
        self._writer = writer

    def __missing__(self, number: Any) -> Name:
        made = Name(f"{self._letter}{len(self)}", self._writer)
        self[number] = made
        return made


@dataclass(frozen=True)
class Script:
    """The text of ``forward`` and ``back``.

    Args:
        forward: from given tensors to the values of guards, and what ``back`` needs.
        back: from gradients, and what ``forward`` kept, to the gradients of known variables.
        numbers: that both read, as tensors.
        tables: the same of lists of numbers.
    """

    forward: str
    back: str
    numbers: tuple[float, ...]
    tables: tuple[tuple[float, ...], ...]

    @cached_property
    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The two functions."""
        space: dict[str, Any] = {}
        for text in (HEAD, self.forward, self.back):
            exec(compile(text, "<cascade>", "exec"), space)
        return space["forward"], space["back"]

    def __getstate__(self) -> dict[str, Any]:
        """What is saved: functions are made again."""
        return {own.name: getattr(self, own.name) for own in fields(self)}


def function_text(
    name: str,
    groups: Mapping[str, Sequence[Name]],
    lines: Sequence[_Line],
    results: Sequence[Sequence[str]],
) -> str:
    """A function of groups of tensors that returns tuples of them.

    Args:
        name: of the function.
        groups: its arguments, each with the names of what it has.
        lines: what it does.
        results: the names of what it returns.
    """
    given = {own.text for names in groups.values() for own in names}
    returned = {own for names in results for own in names}
    written = [f"def {name}({', '.join(groups)}):"]
    for group, names in groups.items():
        if names:
            written.append(f"    ({', '.join(own.text for own in names)},) = {group}")
    last = {own: i for i, line in enumerate(lines) for own in (*line.reads, line.out)}
    for i, line in enumerate(lines):
        written.append(
            f"    {line.out} = {line.text}" if line.out else f"    {line.text}"
        )
        ends = [
            own for own in sorted({*line.reads, line.out}) if own and last[own] == i
        ]
        over = [own for own in ends if own not in given and own not in returned]
        if over:
            written.append(f"    del {', '.join(over)}")
    told = [f"({', '.join(names)},)" if names else "()" for names in results]
    written.append(f"    return {', '.join(told)}")
    return "\n".join(written) + "\n"
