"""Large sparse sets: chains, sums and balances of many outputs, of which each row mentions a few, judged in fractions.

Every set is drawn around a point that obeys all inequalities with room to spare, so that a layer in float64 has to be
built for it. The judge knows the rows and nothing of the library. Now and then there are so many outputs that no table
holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from campaign.raws import raw_rows
from campaign.subject import Finding
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = ["Sparse", "sparse_sets"]

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROWS = 48
FEW_ROWS = 8
"""How many rows are asked of the vast ones."""
LARGE = (12, 120)
VAST = (1_050, 1_300)
"""How many outputs there are, from and to."""
VAST_SHARE = 0.03
BALANCED = 0.3
"""The share of sets that have equalities, too."""

Entries = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Row:
    """``Σ c x_j ≤ bound`` or, balanced, ``= bound``."""

    entries: Entries
    bound: int
    balanced: bool = False

    def obeyed(self, x: Sequence[Fraction]) -> bool:
        total = sum((c * x[j] for j, c in self.entries), Fraction(0))
        return total == self.bound if self.balanced else total <= self.bound


@dataclass(frozen=True)
class Sparse:
    """The rows over so many outputs; each has a range besides, which is among them."""

    width: int
    rows: tuple[Row, ...]

    @staticmethod
    def drawn(random: Random, width: int) -> Sparse:
        point = [random.randint(-20, 20) for _ in range(width)]
        rows = list(_ranges(random, point))
        rows += _windows(random, point)
        rows += _pairs(random, point)
        if random.random() < BALANCED:
            rows += _balances(random, point)
        return Sparse(width, tuple(rows))

    @property
    def rules(self) -> Rules:
        """The rules, from arrays without zeros."""
        unequal = [row for row in self.rows if not row.balanced]
        balanced = [row for row in self.rows if row.balanced]
        A, b = self._arrays(unequal)
        C, d = self._arrays(balanced)
        if not balanced:
            return Rules.from_arrays(A, b)
        return Rules.from_arrays(A, b, C=C, d=d)

    def _arrays(self, rows: Sequence[Row]) -> tuple[csr_array, np.ndarray]:
        numbers = [i for i, row in enumerate(rows) for _ in row.entries]
        columns = [j for row in rows for j, _ in row.entries]
        entries = [c for row in rows for _, c in row.entries]
        shape = (len(rows), self.width)
        matrix = csr_array((entries, (numbers, columns)), shape=shape)
        return matrix, np.array([row.bound for row in rows])

    def broken(self, x: Sequence[Fraction]) -> Row | None:
        """A row that the point breaks, if there is one."""
        return next((row for row in self.rows if not row.obeyed(x)), None)


def _ranges(random: Random, point: Sequence[int]) -> Iterator[Row]:
    for j, value in enumerate(point):
        yield Row(((j, -1),), random.randint(1, 30) - value)
        yield Row(((j, 1),), random.randint(1, 30) + value)


def _windows(random: Random, point: Sequence[int]) -> Iterator[Row]:
    """Sums of neighbours, which overlap or do not."""
    length = random.randint(2, 10)
    step = random.choice([length, max(1, length // 2)])
    sign = random.choice([-1, 1])
    for first in range(0, len(point) - length + 1, step):
        entries = tuple((j, sign) for j in range(first, first + length))
        yield _around(random, entries, point)


def _pairs(random: Random, point: Sequence[int]) -> Iterator[Row]:
    """Chains of neighbours, or pairs with other coefficients."""
    steep = random.random() < 0.3
    share = random.choice([0.3, 1.0])
    for j in range(len(point) - 1):
        if random.random() < share:
            c = random.choice([1, 2, 3]) if steep else 1
            yield _around(random, ((j, c), (j + 1, -1)), point)


def _balances(random: Random, point: Sequence[int]) -> Iterator[Row]:
    """Equalities over groups that share nothing."""
    length = random.randint(3, 6)
    for first in range(0, len(point) - length + 1, 2 * length):
        entries = tuple((j, 1) for j in range(first, first + length))
        yield Row(entries, sum(point[j] for j, _ in entries), balanced=True)


def _around(random: Random, entries: Entries, point: Sequence[int]) -> Row:
    """The row with some room at the point."""
    return Row(entries, sum(c * point[j] for j, c in entries) + random.randint(1, 25))


def sparse_sets(random: Random) -> Iterator[Finding]:
    """A layer of such a set: it is built, and every row that it returns obeys; one after another, too."""
    vast = random.random() < VAST_SHARE
    sparse = Sparse.drawn(random, random.randint(*(VAST if vast else LARGE)))
    rules = sparse.rules
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    dtype = random.choice(DTYPES)
    asked = FEW_ROWS if vast else ROWS
    mux = _built(rules, dtype, "auto")
    if isinstance(mux, Multiplexer):
        yield _obedience(sparse, mux, asked, generator)
    elif dtype is torch.float64:
        yield Finding("sparse: built", f"{sparse}\n{mux}")
    insisted = None if vast else _built(rules, dtype, "cascade")
    if isinstance(insisted, Multiplexer):
        yield _obedience(sparse, insisted, asked, generator)


def _built(rules: Rules, dtype: torch.dtype, structure: str) -> Multiplexer | str:
    """The layer, or what was said against it."""
    try:
        return Multiplexer(rules, dtype=dtype, structure=structure).eval()  # type: ignore[arg-type]
    except MultiplexError as error:
        return f"{type(error).__name__}: {error}"


def _obedience(
    sparse: Sparse, mux: Multiplexer, count: int, generator: torch.Generator
) -> Finding:
    raw = raw_rows(count, mux.in_features, mux.dtype, generator)
    every = mux(raw).best()
    wrong = next((text for row in every if (text := _told(sparse, row))), "")
    return Finding("sparse: rows", wrong, rows=len(every))


def _told(sparse: Sparse, row: Tensor) -> str:
    """What is wrong with a row, if something is."""
    numbers = row.double().tolist()
    if not row.isfinite().all():
        return f"{numbers} in {row.dtype} is not finite, of {sparse}"
    broken = sparse.broken([Fraction(v) for v in numbers])
    return "" if broken is None else f"{numbers} in {row.dtype} breaks {broken}"
