"""Rules from arrays: ``A x <= b`` and ``C x == d``, however many rows and columns, without a text in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from multiplexnet.errors import SourceError, brief
from multiplexnet.language.formula import Atom, Linear, Rule, Specification, Variable
from multiplexnet.language.text import variable_text
from multiplexnet.readers.decimals import LONG, Array, Number
from multiplexnet.readers.entries import Entries, entries
from multiplexnet.readers.names import output_names

__all__ = ["from_arrays"]


def from_arrays(A: Any, b: Any, C: Any, d: Any, names: Any) -> Specification:
    """The specification of ``A x <= b`` and ``C x == d`` (see :meth:`multiplexnet.rules.Rules.from_arrays`)."""
    systems = [
        _system(A, b, ("A", "b"), "<="),
        _system(C, d, ("C", "d"), "=="),
    ]
    given = [system for system in systems if system is not None]
    if not given:
        raise SourceError(
            "neither A and b nor C and d were given: there are no rows to obey"
        )
    width = _common_width(given)
    if names is None:
        names = _column_names({"A": A, "C": C})
    listed = not (names is None or isinstance(names, str))
    outputs = tuple(
        Variable(name, i, whole=listed and bool(Variable(name, i).place[1]))
        for i, name in enumerate(output_names(names, width))
    )
    rules = [rule for system in given for rule in system.rules(outputs)]
    return Specification(outputs, tuple(rules))


def _column_names(matrices: dict[str, Any]) -> list[str] | None:
    """What data frames call their columns, the same for both; ``None`` if they have no names.

    Raises:
        SourceError: they have other names, or the same in another order.
    """
    found = {}
    for matrix, frame in matrices.items():
        names = list(getattr(frame, "columns", []))
        if names and all(isinstance(name, str) for name in names):
            found[matrix] = names
    if len(found) == 2 and found["A"] != found["C"]:
        raise SourceError(
            f"A has the columns {brief(found['A'])}, and C {brief(found['C'])}: "
            "give them in the same order under the same names, or say names=[…]"
        )
    return next(iter(found.values()), None)


# --- systems of rows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _System:
    """Rows ``matrix x relation bounds``, the matrix without its zeros.

    Args:
        matrix: the name of the matrix in messages.
        width: its columns.
        starts: row i has the entries from ``starts[i]`` to ``starts[i + 1]``, by growing column.
        columns: the column of every entry.
        entries: every entry as an exact number, with its text.
        bounds: for every row its right side; ``None`` bounds nothing.
        relation: between the two.
    """

    matrix: str
    width: int
    starts: Array
    columns: Array
    entries: list[tuple[Fraction, str]]
    bounds: list[tuple[Fraction, str] | None]
    relation: Literal["<=", "=="]

    def rules(self, outputs: Sequence[Variable]) -> Iterator[Rule]:
        """One rule a row; a row whose bound is infinite says nothing and is left out."""
        starts = self.starts.tolist()
        symbols = [outputs[j] for j in self.columns.tolist()]
        written = {symbol: variable_text(symbol) for symbol in outputs}
        for i, bound in enumerate(self.bounds):
            if bound is None:
                continue
            own = slice(starts[i], starts[i + 1])
            number, text = bound
            entries = self.entries[own]
            summands = tuple(
                (symbol, c)
                for symbol, (c, _) in zip(symbols[own], entries, strict=True)
            )
            left = _sum_text([written[symbol] for symbol in symbols[own]], entries)
            atom = Atom(Linear(summands, -number), self.relation)
            yield Rule(atom, f"{left} {self.relation} {text}")


def _sum_text(names: Sequence[str], entries: Sequence[tuple[Fraction, str]]) -> str:
    parts: list[str] = []
    for name, (_, text) in zip(names, entries, strict=True):
        size = text.removeprefix("-")
        parts.append("- " if text is not size else "+ ")
        parts.append(name if size == "1" else f"{size}*{name}")
        parts.append(" ")
    if not parts:
        return "0"
    parts[0] = parts[0].strip("+ ")
    return "".join(parts[:-1])


def _system(
    matrix: Any, bounds: Any, names: tuple[str, str], relation: Literal["<=", "=="]
) -> _System | None:
    left, right = names
    if matrix is None and bounds is None:
        return None
    if matrix is None or bounds is None:
        absent, present = (left, right) if matrix is None else (right, left)
        raise SourceError(
            f"{present} was given without {absent}: the rows are {left} x {relation} {right}"
        )
    table = entries(matrix, left)
    if len(table.shape) != 2:
        raise SourceError(
            f"{left} has shape {table.shape}: it needs two dimensions, "
            "one row a rule and one column an output, as in [[1, 2]]"
        )
    height, width = table.shape
    side = entries(bounds, right)
    if side.shape != (height,):
        raise SourceError(
            f"{right} has shape {side.shape}; {left} has {height} rows, so {right} needs shape ({height},)"
        )
    rows, columns = table.places
    places = zip(rows.tolist(), columns.tolist(), strict=True)
    return _System(
        left,
        width,
        np.searchsorted(rows, np.arange(height + 1)),
        columns,
        [
            _finite(pair, left, place)
            for pair, place in zip(table.numbers, places, strict=True)
        ],
        _bounds(side, right, relation),
        relation,
    )


def _common_width(systems: Sequence[_System]) -> int:
    first, *others = systems
    for other in others:
        if other.width != first.width:
            raise SourceError(
                f"{first.matrix} has {first.width} columns and {other.matrix} has {other.width}: "
                "both need one column for every output"
            )
    if not first.width:
        raise SourceError(
            f"{first.matrix} has no columns: it needs one for every output"
        )
    return first.width


def _bounds(
    side: Entries, name: str, relation: str
) -> list[tuple[Fraction, str] | None]:
    found: list[tuple[Fraction, str] | None] = [(Fraction(0), "0")] * side.shape[0]
    for i, pair in zip(side.places[0].tolist(), side.numbers, strict=True):
        if pair[1] in ("inf", "infinity") and relation == "<=":
            found[i] = None
        else:
            found[i] = _finite(pair, name, (i,))
    return found


def _finite(pair: Number, name: str, place: tuple[int, ...]) -> tuple[Fraction, str]:
    number, text = pair
    if number is None:
        where = ", ".join(map(str, place))
        advice = "scale its row" if text == LONG else "a finite number is needed"
        raise SourceError(f"{name}[{where}] is {text}: {advice}")
    return number, text
