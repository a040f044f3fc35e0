"""Rules in which inputs multiply outputs, and assumptions about inputs: drawn, written, built, judged in fractions.

The judge knows nothing of the library: a rule is a list of products and a bound, evaluated here with exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import torch
from torch import Tensor

from campaign.raws import raw_rows
from campaign.subject import Finding
from multiplexnet.errors import DtypeError, InputError, MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = ["Budget", "coefficients_from_inputs"]

ROWS = 100
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Budget:
    """``Σ (price_j + extra_j) x_j ≤ budget_i`` (or ``<``) for i = 0, 1, …, and ``price_0 ≤ price_1 + gap``.

    Args:
        whole: which outputs are whole numbers.
        tops: their upper ends; the lower ones are 0, or 1 for the ``raised``.
        lots: which outputs are 0 or at least half of their upper end.
        raised: which outputs are at least 1.
        extras: what is added to each price.
        rows: how many budgets there are.
        strict: whether the products stay below their budgets.
        gap: what is assumed of the first two prices; ``None``: nothing.
    """

    whole: tuple[bool, ...]
    tops: tuple[int, ...]
    lots: tuple[bool, ...]
    raised: tuple[bool, ...]
    extras: tuple[int, ...]
    rows: int
    strict: bool
    gap: int | None

    @staticmethod
    def drawn(random: Random) -> Budget:
        """Any of them."""
        count = random.randint(1, 5)
        lots = tuple(random.random() < 0.4 for _ in range(count))
        return Budget(
            tuple(random.random() < 0.4 for _ in range(count)),
            tuple(random.choice([2, 10, 100, 1000]) for _ in range(count)),
            lots,
            tuple(not lot and random.random() < 0.2 for lot in lots),
            tuple(random.choice([0, 0, 1, 3]) for _ in range(count)),
            random.randint(1, 3),
            random.random() < 0.3,
            random.choice([None, 0, 2]) if count > 1 else None,
        )

    def __str__(self) -> str:
        count = len(self.tops)
        lines = [f"budget: input[0, 5000][{self.rows}]"]
        lines += [f"p{i}: input[0, 100][{count}]" for i in range(self.rows)]
        if self.gap is not None:
            lines.append(f"assume p0[0] <= p0[1] + {self.gap}")
        for j, top in enumerate(self.tops):
            lines.append(f"x{j}: int[0, {top}]" if self.whole[j] else f"x{j}: real")
            lines.append(f"{int(self.raised[j])} <= x{j} <= {top}")
            if self.lots[j]:
                lines.append(f"x{j} == 0 or x{j} >= {top // 2}")
        relation = "<" if self.strict else "<="
        for i in range(self.rows):
            parts = [f"(p{i}[{j}] + {extra}) * x{j}" for j, extra in enumerate(self.extras)]
            lines.append(f"{' + '.join(parts)} {relation} budget[{i}]")
        return "\n".join(lines)

    def broken(self, x: list[float], given: dict[str, list[float]]) -> str:
        """What a row breaks, decided in fractions."""
        values = list(map(Fraction, x))
        for j, value in enumerate(values):
            if not int(self.raised[j]) <= value <= self.tops[j]:
                return f"x{j} is out of range"
            if self.whole[j] and value.denominator != 1:
                return f"x{j} is no whole number"
            if self.lots[j] and 0 < value < self.tops[j] // 2:
                return f"x{j} is no lot"
        for i in range(self.rows):
            prices = map(Fraction, given[f"p{i}"])
            spent = sum((p + e) * v for p, e, v in zip(prices, self.extras, values, strict=True))
            budget = Fraction(given["budget"][i])
            if spent > budget or (self.strict and spent == budget):
                return f"budget {i} is exceeded"
        return ""

    def is_allowed(self, given: dict[str, list[float]]) -> bool:
        """Whether the inputs keep the assumption."""
        if self.gap is None:
            return True
        first, second = map(Fraction, given["p0"][:2])
        return first <= second + self.gap


def coefficients_from_inputs(random: Random) -> Iterator[Finding]:
    """A layer of such rules: every row obeys, and exactly the rows that break the assumption are refused as such."""
    budget = Budget.drawn(random)
    dtype = random.choice(DTYPES)
    try:
        mux = Multiplexer(Rules(str(budget)), dtype=dtype)
    except DtypeError:  # whole numbers that the dtype does not hold
        return
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    given = _inputs(budget, dtype, generator)
    rows = [{name: own[i].tolist() for name, own in given.items()} for i in range(ROWS)]
    allowed = torch.tensor([budget.is_allowed(row) for row in rows])
    yield _refusal(mux, given, allowed, generator)
    kept = torch.nonzero(allowed)[:, 0]
    yield _obedience(budget, mux, given, kept, generator)


def _inputs(budget: Budget, dtype: torch.dtype, generator: torch.Generator) -> dict[str, Tensor]:
    """Prices and budgets: many zeros, ends and ties, and budgets that a whole number of pieces just uses up."""
    count = len(budget.tops)
    found = {}
    for i in range(budget.rows):
        prices = 100 * torch.rand(ROWS, count, generator=generator)
        kind = torch.rand(ROWS, count, generator=generator)
        prices[kind < 0.15] = 0
        prices[kind > 0.9] = prices[kind > 0.9].round()
        found[f"p{i}"] = prices.to(dtype).clamp(max=100)
        found[f"p{i}"][: ROWS // 4, :1] = found[f"p{i}"][: ROWS // 4, -1:]
    used = []
    for i in range(budget.rows):
        first = found[f"p{i}"][:, 0].double() + budget.extras[0]
        pieces = torch.randint(0, 40, (ROWS,), generator=generator)
        any_size = 5000 * torch.rand(ROWS, generator=generator)
        tight = torch.rand(ROWS, generator=generator) < 0.5
        used.append(torch.where(tight, first * pieces, any_size.double()).to(dtype).clamp(0, 5000))
    found["budget"] = torch.stack(used, -1)
    return found


def _refusal(
    mux: Multiplexer, given: dict[str, Tensor], allowed: Tensor, generator: torch.Generator
) -> Finding:
    """Whether the assumption is checked in every row."""
    broken = torch.nonzero(~allowed)[:, 0].tolist()
    for i in broken[:5]:
        own = {name: values[i : i + 1] for name, values in given.items()}
        raw = raw_rows(1, mux.in_features, mux.dtype, generator)
        try:
            mux(raw, **own)
        except InputError as error:
            if "assumption" in str(error):
                continue
        return Finding("coefficients: assumption", f"row {i} was not refused", rows=len(broken))
    return Finding("coefficients: assumption", rows=len(broken))


def _obedience(
    budget: Budget,
    mux: Multiplexer,
    given: dict[str, Tensor],
    kept: Tensor,
    generator: torch.Generator,
) -> Finding:
    """Whether what comes out obeys."""
    own: dict[str, Any] = {name: values[kept] for name, values in given.items()}
    raw = raw_rows(len(kept), mux.in_features, mux.dtype, generator)
    try:
        x = mux(raw, **own).best()
    except MultiplexError as error:
        if any(budget.raised) or budget.strict:  # there may be rows without any output
            return Finding("coefficients: rows")
        return Finding("coefficients: rows", f"refused: {error}", rows=len(kept))
    for i in range(len(kept)):
        row = {name: values[i].tolist() for name, values in own.items()}
        wrong = budget.broken(x[i].tolist(), row)
        if wrong:
            told = f"{wrong}: {x[i].tolist()}, {row}\n{budget}"
            return Finding("coefficients: rows", told, rows=len(kept))
    return Finding("coefficients: rows", rows=len(kept))
