"""Rules that a sample of rows suggests: orders, sums, and what one value says about another column.

Floats suggest; whether a rule holds, and in how many rows, is decided exactly afterwards on the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Candidates", "Values", "candidates_of"]

MOST_PAIRED = 60
"""Columns that are compared in pairs."""
MOST_TRIPLES = 30
"""Columns that are tried in triples."""
PROBE = 512
"""Rows on which pairs and triples are tried before all rows of the sample are looked at."""
MOST_OF_A_KIND = 50
"""Candidates of one kind, the best supported first."""
FEWEST_ROWS = 30
"""Rows for which an «if» must hold."""
SMALLEST_SHARE = 0.005
"""The share of rows for which an «if» must hold."""
GAIN = 0.2
"""By how much an «if» must make a value more certain than it is anyway."""
MOST_VALUES = 20
"""Different values of a column that an «if» or a «then» is made of."""
LEAST_CHANCE = 10
"""Rows in which an order must fail where values of different rows are compared: otherwise it says nothing new."""
TIMES_RARER = 5
CLOSE = 1e-9
"""Relative error up to which sums of floats count as equal."""
LARGEST_COEFFICIENT = 12

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Values:
    """A column of the sample as floats.

    Args:
        name: as rules write it.
        numbers: its values, labels as their positions, NaN where there is none.
        words: what rules write for «has this value», by position; empty for numbers.
        is_number: whether it can be compared and added.
        moment: ``"date"`` or ``"datetime"`` if it can be compared with others of them.
    """

    name: str
    numbers: Floats
    words: tuple[str, ...] = ()
    is_number: bool = True
    moment: str = ""

    def equals(self, value: float) -> str:
        """The atom «it has this value»."""
        if self.words:
            return self.words[int(value)]
        return f"{self.name} == {_number(value)}"


def _moments(columns: Sequence[Values], moment: str) -> list[Values]:
    return [column for column in columns if column.moment == moment]


@dataclass(frozen=True)
class Candidates:
    """Rules that the sample suggests, and what was not looked at."""

    rules: tuple[str, ...]
    skipped: tuple[str, ...]


def candidates_of(columns: Sequence[Values], support: float) -> Candidates:
    """Rules that hold for at least this share of the rows that they speak of, in the sample."""
    skipped: list[str] = []
    numbers = [column for column in columns if column.is_number]
    if len(numbers) > MOST_PAIRED:
        skipped.append(
            f"orders between columns: only the first {MOST_PAIRED} of {len(numbers)} numeric columns were compared"
        )
    if len(numbers) > MOST_TRIPLES:
        skipped.append(
            f"sums of two columns: only the first {MOST_TRIPLES} of {len(numbers)} numeric columns were tried"
        )
    relations = list(_relations([c for c in numbers if _varies(c.numbers)]))
    tied = [names for names, _ in relations]
    kinds: list[tuple[str, Iterable[str]]] = [
        ("orders", _orders(numbers[:MOST_PAIRED], support, tied)),
        ("orders of dates", _orders(_moments(columns, "date"), support, tied)),
        ("orders of times", _orders(_moments(columns, "datetime"), support, tied)),
        ("sums", [*(text for _, text in relations), *_sums(numbers, support, tied)]),
        ("if … then …", _implications(columns[:MOST_PAIRED], support)),
    ]
    rules: list[str] = []
    for kind, found in kinds:
        own = list(dict.fromkeys(found))
        if len(own) > MOST_OF_A_KIND:
            skipped.append(f"{kind}: {len(own) - MOST_OF_A_KIND} more candidates")
        rules += own[:MOST_OF_A_KIND]
    return Candidates(tuple(rules), tuple(skipped))


# --- orders ---------------------------------------------------------------------------------------------------------


def _orders(
    columns: Sequence[Values], support: float, tied: Sequence[frozenset[str]]
) -> list[str]:
    """``a <= b``, where neither ranges nor equalities nor other orders say so."""
    below: dict[tuple[int, int], tuple[float, str]] = {}
    for i, j in permutations(range(len(columns)), 2):
        if {columns[i].name, columns[j].name} in tied:
            continue
        a = columns[i].numbers
        b = columns[j].numbers
        probe = a[:PROBE] <= b[:PROBE]
        there = ~(np.isnan(a[:PROBE]) | np.isnan(b[:PROBE]))
        if probe.sum() < (support - 0.05) * there.sum():
            continue
        if (found := _order(columns[i], columns[j], support)) is not None:
            below[i, j] = found
    kept = []
    for (i, j), (share, relation) in below.items():
        if relation == "==" and i > j:
            continue
        if relation != "==" and _is_implied(i, j, below):
            continue
        kept.append((share, f"{columns[i].name} {relation} {columns[j].name}"))
    return [text for _, text in sorted(kept, key=lambda pair: -pair[0])]


def _order(left: Values, right: Values, support: float) -> tuple[float, str] | None:
    there = ~(np.isnan(left.numbers) | np.isnan(right.numbers))
    a = left.numbers[there]
    b = right.numbers[there]
    if len(a) < FEWEST_ROWS or a.max() <= b.min():  # ranges say it already
        return None
    if (a == b).all():
        return 1.0, "=="
    share = float((a <= b).mean())
    if share < support or not _is_evidence(a, b, share):
        return None
    return share, "<" if (a < b).all() else "<="


def _is_evidence(a: Floats, b: Floats, share: float) -> bool:
    """Whether the order fails far less often than between values of different rows."""
    of_other_rows = np.roll(b, len(b) // 2)
    by_chance = int((a > of_other_rows).sum())
    fails = (1 - share) * len(a)
    return by_chance >= LEAST_CHANCE and fails <= by_chance / TIMES_RARER


def _is_implied(
    i: int, j: int, below: dict[tuple[int, int], tuple[float, str]]
) -> bool:
    """Whether a column in between says it, in all rows of the sample."""
    for k in {k for _, k in below}:
        if k in (i, j):
            continue
        first = below.get((i, k))
        second = below.get((k, j))
        if first and second and first[0] == second[0] == 1 and (k, i) not in below:
            return True
    return False


# --- sums -----------------------------------------------------------------------------------------------------------


def _sums(
    columns: Sequence[Values], support: float, tied: Sequence[frozenset[str]]
) -> Iterator[str]:
    """Sums of two columns that nearly always hold, where no equality says so."""
    varying = [c for c in columns if _varies(c.numbers)]
    for text, names in _pairs(varying[:MOST_TRIPLES], support):
        if not any(names <= known for known in tied):
            yield text


def _varies(numbers: Floats) -> bool:
    there = numbers[~np.isnan(numbers)]
    return len(there) >= FEWEST_ROWS and there.min() < there.max()


def _relations(columns: Sequence[Values]) -> Iterator[tuple[frozenset[str], str]]:
    """Equalities that hold in all rows of the sample: the null space of the columns and a column of ones."""
    if len(columns) < 2:
        return
    table = np.stack([c.numbers for c in columns], axis=1)
    table = table[~np.isnan(table).any(axis=1)]
    if len(table) < 2 * len(columns) + FEWEST_ROWS:
        return
    rows = table[
        np.linspace(
            0, len(table) - 1, min(len(table), 4 * len(columns) + PROBE)
        ).astype(int)
    ]
    varies = rows.min(axis=0) < rows.max(axis=0)  # rare values may be in none of them
    if varies.sum() < 2:
        return
    rows = rows[:, varies]
    columns = [c for c, there in zip(columns, varies, strict=True) if there]
    scale = np.abs(rows).max(axis=0)
    stacked = np.column_stack([rows / scale, np.ones(len(rows))])
    _, values, vectors = np.linalg.svd(stacked, full_matrices=True)
    space = vectors[
        np.append(values, np.zeros(len(vectors) - len(values))) < CLOSE * values[0] * 10
    ]
    for vector in _reduced(space):
        coefficients = _small_integers(vector[:-1] / scale, vector[-1])
        if coefficients is None:
            continue
        weights, constant = coefficients
        used = [(w, c) for w, c in zip(weights, columns, strict=True) if w]
        error = np.abs(rows @ np.array(weights, dtype=float) + float(constant))
        size = np.abs(rows) @ np.abs(np.array(weights, dtype=float)) + abs(
            float(constant)
        )
        if len(used) >= 2 and (error <= CLOSE * size).all():
            yield frozenset(c.name for _, c in used), _equality(used, constant)


def _reduced(space: Floats) -> Floats:
    """A basis of the space with many zeros: its reduced echelon form, pivots as large as possible."""
    rows = space.copy()
    done = 0
    for column in range(rows.shape[1] - 1):
        if done == len(rows):
            break
        pivot = done + int(np.abs(rows[done:, column]).argmax())
        if abs(rows[pivot, column]) < 1e-7:
            continue
        rows[[done, pivot]] = rows[[pivot, done]]
        rows[done] /= rows[done, column]
        others = np.arange(len(rows)) != done
        rows[others] -= np.outer(rows[others, column], rows[done])
        done += 1
    rows[np.abs(rows) < 1e-7] = 0.0
    return rows[:done]


def _small_integers(
    weights: Floats, constant: float
) -> tuple[list[int], Fraction] | None:
    """The weights as whole numbers, if a multiple of them is small ones; the constant along with them."""
    sizes = np.abs(weights[weights != 0])
    if not len(sizes):
        return None
    for factor in range(1, LARGEST_COEFFICIENT + 1):
        scaled = weights / sizes.min() * factor
        rounded = np.rint(scaled)
        if (
            np.abs(scaled - rounded).max() < 1e-5
            and np.abs(rounded).max() <= LARGEST_COEFFICIENT
        ):
            number = Fraction(float(constant / sizes.min() * factor)).limit_denominator(
                10_000
            )
            return [int(w) for w in rounded], number
    return None


def _equality(used: Sequence[tuple[int, Values]], constant: Fraction) -> str:
    """Written with a plus where there can be one: the columns of the sign of the many on the left."""
    sign = 1 if sum(np.sign(w) for w, _ in used) >= 0 else -1
    left = [(sign * w, c) for w, c in used if sign * w > 0]
    right = [(-sign * w, c) for w, c in used if sign * w < 0]
    number = -sign * constant
    before = [_multiple(w, c.name) for w, c in left]
    after = [_multiple(w, c.name) for w, c in right]
    if number < 0:
        before.append(_number(-number))
    elif number or not after:
        after.append(_number(number))
    return f"{' + '.join(before)} == {' + '.join(after)}"


def _multiple(weight: int, name: str) -> str:
    return name if weight == 1 else f"{weight}*{name}"


def _pairs(
    columns: Sequence[Values], support: float
) -> Iterator[tuple[str, frozenset[str]]]:
    """``a + b == c`` in nearly all rows."""
    if len(columns) < 3:
        return
    table = np.stack([c.numbers for c in columns], axis=1)
    table = table[~np.isnan(table).any(axis=1)]
    count = min(len(table), PROBE)
    places = np.linspace(0, len(table) - 1, count).astype(int)
    probe = table[places]
    if len(probe) < FEWEST_ROWS:
        return
    for i, j in combinations(range(len(columns)), 2):
        total = (probe[:, i] + probe[:, j])[:, None]
        error = np.abs(total - probe)
        size = np.abs(probe[:, [i]]) + np.abs(probe[:, [j]])
        shares = (error <= CLOSE * size).mean(axis=0)
        for k in np.flatnonzero(shares >= support - 0.05).tolist():
            zeros = (probe[:, [i, j]] == 0).mean(axis=0)
            if k not in (i, j) and not (zeros > 0.5).any():
                names = [columns[n].name for n in (i, j, k)]
                yield f"{names[0]} + {names[1]} == {names[2]}", frozenset(names)


# --- if … then … ----------------------------------------------------------------------------------------------------


def _implications(columns: Sequence[Values], support: float) -> list[str]:
    """``implies(a == u, b == v)`` where the «if» makes the «then» much more certain than it is anyway."""
    coded = [(c, *_coded(c.numbers)) for c in columns if not c.moment]
    small = [(c, values, codes) for c, values, codes in coded if values is not None]
    found: list[tuple[float, int, str]] = []
    for (a, a_values, a_codes), (b, b_values, b_codes) in permutations(small, 2):
        counts = np.zeros((len(a_values), len(b_values)), dtype=np.int64)
        there = (a_codes >= 0) & (b_codes >= 0)
        np.add.at(counts, (a_codes[there], b_codes[there]), 1)
        found += _strong(a, a_values, b, b_values, counts, support)
    found.sort(key=lambda entry: (-entry[0], -entry[1]))
    return [text for _, _, text in found]


def _coded(numbers: Floats) -> tuple[Floats | None, Any]:
    """The different values of a column, if they are few, and which one each row has (−1: none).

    Of a column of many values those that many rows have count, such as 0.
    """
    there = ~np.isnan(numbers)
    values, counts = np.unique(numbers[there], return_counts=True)
    if len(values) < 2:
        return None, None
    if len(values) > MOST_VALUES:
        values = values[counts >= 0.05 * there.sum()]
        if not len(values):
            return None, None
        rest = np.isin(numbers, values, invert=True) & there
        places = np.searchsorted(values, np.where(there & ~rest, numbers, values[0]))
        codes = np.where(rest, len(values), places)
        return np.append(values, np.nan), np.where(there, codes, -1)
    codes = np.searchsorted(values, np.where(there, numbers, values[0]))
    return values, np.where(there, codes, -1)


def _strong(
    a: Values,
    a_values: Floats,
    b: Values,
    b_values: Floats,
    counts: Any,
    support: float,
) -> Iterator[tuple[float, int, str]]:
    total = counts.sum()
    if not total:
        return
    anyway = counts.sum(axis=0) / total
    for u, own in enumerate(counts):
        rows = int(own.sum())
        if np.isnan(a_values[u]) or rows < max(FEWEST_ROWS, SMALLEST_SHARE * total):
            continue
        v = int(own.argmax())
        share = own[v] / rows
        if np.isnan(b_values[v]) or share < support or share - anyway[v] < GAIN:
            continue
        yield share, rows, f"implies({a.equals(a_values[u])}, {b.equals(b_values[v])})"


def _number(value: float | Fraction) -> str:
    from multiplexnet.language.text import number_text

    if isinstance(value, Fraction):
        return number_text(value)
    return number_text(Fraction(repr(float(value))))
