"""Rules in which inputs multiply outputs, and assumptions about inputs: drawn, written, built, judged in fractions.

The judge knows nothing of the library: a rule is a list of products and a bound, evaluated here with exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from random import Random
from typing import Any

import torch
from torch import Tensor

from campaign.raws import raw_rows
from campaign.subject import Finding
from multiplexnet.errors import DtypeError, InputError, MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = [
    "Budget",
    "Switches",
    "Walls",
    "coefficients_from_inputs",
    "switches_from_inputs",
    "walls_from_inputs",
]

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
            parts = [
                f"(p{i}[{j}] + {extra}) * x{j}" for j, extra in enumerate(self.extras)
            ]
            lines.append(f"{' + '.join(parts)} {relation} budget[{i}]")
        return "\n".join(lines)

    def broken(self, x: list[float], given: dict[str, list[float]]) -> str:
        """What a row breaks, decided in fractions."""
        values = list(map(Fraction, x))
        for j, value in enumerate(values):
            if not int(self.raised[j]) <= value <= self.tops[j]:
                return f"x{j} is out of range"
            if self.whole[j] and value.denominator != 1:
                return f"x{j} is not a whole number"
            if self.lots[j] and 0 < value < self.tops[j] // 2:
                return f"x{j} is not a lot"
        for i in range(self.rows):
            prices = map(Fraction, given[f"p{i}"])
            spent = sum(
                (p + e) * v for p, e, v in zip(prices, self.extras, values, strict=True)
            )
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


def _inputs(
    budget: Budget, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Tensor]:
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
        used.append(
            torch.where(tight, first * pieces, any_size.double())
            .to(dtype)
            .clamp(0, 5000)
        )
    found["budget"] = torch.stack(used, -1)
    return found


def _refusal(
    mux: Multiplexer,
    given: dict[str, Tensor],
    allowed: Tensor,
    generator: torch.Generator,
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
        return Finding(
            "coefficients: assumption", f"row {i} was not refused", rows=len(broken)
        )
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


# --- coefficients of either sign, and outputs that several products bound from both sides -----------------------------

KINDS = ("input[0, 9]", "input[-9, 0]", "input[-9, 9]", "input[-0.5, 9]")
ENDS = {"input[0, 9]": (0, 9), "input[-9, 0]": (-9, 0), "input[-9, 9]": (-9, 9)}
ROOM = Fraction(1, 50)
"""How wide an interval has to be, as a part of its output's size, for rows that leave it to be let in for certain."""
RADIUS = Fraction(1, 2**46)
"""What rounding may take of a budget, as a part of the numbers it is computed from (docs/understand/guarantee.md)."""
SMALLEST = Fraction(1, 2**900)
"""Smaller coefficients multiply in float64 with errors of their own size, which may cost a row its output."""
LOST = Fraction(1, 2**1010)
"""What a few sums and products near the smallest float64 may take of it besides (the same page: 2^-1015 each)."""
ONE_BY_ONE = 40
"""Rows that are asked one by one, since some of them are refused."""


@dataclass(frozen=True)
class Walls:
    """``Σ a_j x_j ≤ b`` with a_j of either sign, and ``w_i x_0 ≥ n_i`` for i = 0, 1, ….

    Args:
        whole: which outputs are whole numbers.
        ends: of the outputs.
        lots: which outputs are at one of their ends, or in the upper half of their range.
        kinds: how each a_j is declared.
        torn: how each w_i is declared.
        strict: whether the sum stays below b.
    """

    whole: tuple[bool, ...]
    ends: tuple[tuple[int, int], ...]
    lots: tuple[bool, ...]
    kinds: tuple[str, ...]
    torn: tuple[str, ...]
    strict: bool

    @staticmethod
    def drawn(random: Random) -> Walls:
        """Any of them."""
        count = random.randint(1, 4)
        lower = [random.choice([0, 0, -4, -100, 1]) for _ in range(count)]
        return Walls(
            tuple(random.random() < 0.4 for _ in range(count)),
            tuple((end, end + random.choice([2, 10, 200])) for end in lower),
            tuple(random.random() < 0.3 for _ in range(count)),
            tuple(random.choice(KINDS) for _ in range(count)),
            tuple(random.choice(KINDS) for _ in range(random.choice([0, 1, 1, 2]))),
            random.random() < 0.3,
        )

    def __str__(self) -> str:
        lines = ["b: input[-500, 5000]"]
        lines += [f"a{j}: {kind}" for j, kind in enumerate(self.kinds)]
        lines += [
            f"w{i}: {kind}; n{i}: input[-50, 50]" for i, kind in enumerate(self.torn)
        ]
        for j, (lower, upper) in enumerate(self.ends):
            kind = f"int[{lower}, {upper}]" if self.whole[j] else "real"
            lines += [f"x{j}: {kind}", f"{lower} <= x{j} <= {upper}"]
            if self.lots[j]:
                lines.append(f"x{j} == {lower} or x{j} >= {self._middle(j)}")
        parts = " + ".join(f"a{j}*x{j}" for j in range(len(self.ends)))
        lines.append(f"{parts} {'<' if self.strict else '<='} b")
        lines += [f"w{i}*x0 >= n{i}" for i in range(len(self.torn))]
        return "\n".join(lines)

    def _middle(self, j: int) -> int:
        lower, upper = self.ends[j]
        return (lower + upper) // 2 + 1

    def broken(self, x: list[float], given: dict[str, Fraction]) -> str:
        """What a row breaks, decided in fractions."""
        if not all(map(isfinite, x)):
            return "an output is not a number"
        values = list(map(Fraction, x))
        for j, (value, (lower, upper)) in enumerate(
            zip(values, self.ends, strict=True)
        ):
            if not lower <= value <= upper:
                return f"x{j} is out of range"
            if self.whole[j] and value.denominator != 1:
                return f"x{j} is not a whole number"
            if self.lots[j] and lower < value < self._middle(j):
                return f"x{j} is not a lot"
        spent = sum(given[f"a{j}"] * value for j, value in enumerate(values))
        if spent > given["b"] or (self.strict and spent == given["b"]):
            return "the sum is above its bound"
        for i in range(len(self.torn)):
            if given[f"w{i}"] * values[0] < given[f"n{i}"]:
                return f"row {i} of x0 is not met"
        return ""

    def has_room(self, given: dict[str, Fraction]) -> bool:
        """Whether inputs leave x_0 more than rounding can take, with the others where their products are smallest."""
        lower, upper = map(Fraction, self.ends[0])
        rest = given["b"]
        size = abs(rest)
        for j in range(1, len(self.ends)):
            products = [given[f"a{j}"] * end for end in self.ends[j]]
            rest -= min(products)
            size += max(map(abs, products))
        rows = [(given["a0"], rest - RADIUS * size - LOST)]
        for i in range(len(self.torn)):
            need = given[f"n{i}"]
            rows.append((-given[f"w{i}"], -need - RADIUS * abs(need) - LOST))
        for factor, bound in rows:
            if 0 < abs(factor) < SMALLEST:
                return False
            if factor > 0:
                upper = min(upper, bound / factor)
            elif factor < 0:
                lower = max(lower, bound / factor)
            elif bound <= 0:
                return False
        width = upper - lower
        largest = max(abs(end) for end in self.ends[0])
        return not self.lots[0] and width > (2 if self.whole[0] else ROOM * largest)


def walls_from_inputs(random: Random) -> Iterator[Finding]:
    """A layer of such rules: every row obeys, and no row that leaves room is refused."""
    walls = Walls.drawn(random)
    dtype = random.choice(DTYPES)
    try:
        mux = Multiplexer(Rules(str(walls)), dtype=dtype)
    except DtypeError:  # whole numbers that the dtype does not hold
        return
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    given = _either_sign(walls, dtype, generator)
    raw = raw_rows(ONE_BY_ONE, mux.in_features, dtype, generator)
    obeyed = 0
    for i, answer in enumerate(_answers(mux, raw, given)):
        exact = {name: Fraction(values[i].item()) for name, values in given.items()}
        if isinstance(answer, InputError):
            if walls.has_room(exact):
                told = f"refused though there is room: {answer}, {exact}\n{walls}"
                yield Finding("coefficients: room", told, rows=obeyed)
                return
            continue
        obeyed += 1
        wrong = walls.broken(answer, exact)
        if wrong:
            yield Finding(
                "coefficients: walls",
                f"{wrong}: {answer}, {exact}\n{walls}",
                rows=obeyed,
            )
            return
    yield Finding("coefficients: walls", rows=obeyed)


def _answers(
    mux: Multiplexer, raw: Tensor, given: dict[str, Tensor]
) -> list[list[float] | InputError]:
    """The answer to each row, or why it is refused; rows are asked together as long as none of them is."""
    inputs: dict[str, Any] = dict(given)
    try:
        rows: list[list[float] | InputError] = mux(raw, **inputs).best().tolist()
        return rows
    except InputError as error:
        if len(raw) == 1:
            return [error]
    found = []
    half = len(raw) // 2
    for part in (slice(half), slice(half, None)):
        own = {name: values[part] for name, values in given.items()}
        found += _answers(mux, raw[part], own)
    return found


def _either_sign(
    walls: Walls, dtype: torch.dtype, generator: torch.Generator
) -> dict[str, Tensor]:
    """Inputs at ends, at zero and beside it, and bounds that a value in the range just meets."""
    found: dict[str, Tensor] = {}
    kinds = {f"a{j}": kind for j, kind in enumerate(walls.kinds)}
    kinds |= {f"w{i}": kind for i, kind in enumerate(walls.torn)}
    for name, kind in kinds.items():
        lower, upper = ENDS.get(kind, (-0.5, 9))
        drawn = lower + (upper - lower) * torch.rand(ONE_BY_ONE, generator=generator)
        how = torch.rand(ONE_BY_ONE, generator=generator)
        drawn[how < 0.15] = 0
        drawn[how > 0.85] = drawn[how > 0.85].round()
        tiny = torch.finfo(dtype).smallest_normal * (1 if upper > 0 else -1)
        drawn = drawn.to(dtype)
        drawn[(how > 0.2) & (how < 0.25)] = tiny
        found[name] = drawn.clamp(lower, upper)
    near = _points(walls, generator)
    total = sum(found[f"a{j}"].double() * near[j] for j in range(len(walls.ends)))
    loose = (
        300
        * torch.rand(ONE_BY_ONE, generator=generator)
        * (torch.rand(ONE_BY_ONE, generator=generator) < 0.7)
    )
    found["b"] = (total + loose).to(dtype).clamp(-500, 5000)
    for i in range(len(walls.torn)):
        found[f"n{i}"] = (found[f"w{i}"].double() * near[0]).to(dtype).clamp(-50, 50)
    return found


def _points(walls: Walls, generator: torch.Generator) -> list[Tensor]:
    """Values in the ranges of the outputs, a third of them whole numbers."""
    found = []
    for lower, upper in walls.ends:
        point = lower + (upper - lower) * torch.rand(ONE_BY_ONE, generator=generator)
        whole = torch.rand(ONE_BY_ONE, generator=generator) < 0.3
        found.append(torch.where(whole, point.round(), point).double())
    return found


# --- truth values that inputs multiply --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Switches:
    """``low_j on_j ≤ x_j ≤ high_j on_j`` with inputs low_j ≤ high_j, and ``Σ x_j ≤ 12``.

    Args:
        whole: which x are whole numbers.
        fixed: what the lower ends are instead of inputs, by position.
        strict: whether x_j stays below ``high_j on_j + 1/2`` instead.
    """

    whole: tuple[bool, ...]
    fixed: tuple[Fraction | None, ...]
    strict: bool

    @staticmethod
    def drawn(random: Random) -> Switches:
        """Any of them."""
        count = random.randint(1, 3)
        lowest = [None, None, Fraction(1, 2), Fraction(2)]
        return Switches(
            tuple(random.random() < 0.3 for _ in range(count)),
            tuple(random.choice(lowest) for _ in range(count)),
            random.random() < 0.3,
        )

    def __str__(self) -> str:
        lines = []
        for j, whole in enumerate(self.whole):
            lines += [f"high{j}: input[2, 9]", f"on{j}: bool"]
            lines += [f"x{j}: int[0, 10]" if whole else f"x{j}: real; 0 <= x{j} <= 10"]
            lower = self.fixed[j]
            if lower is None:
                lines += [f"low{j}: input[0, 9]", f"assume low{j} <= high{j}"]
            lines.append(f"{f'low{j}' if lower is None else lower}*on{j} <= x{j}")
            above = f"high{j}*on{j}"
            lines.append(f"x{j} < {above} + 1/2" if self.strict else f"x{j} <= {above}")
        lines.append(f"{' + '.join(f'x{j}' for j in range(len(self.whole)))} <= 12")
        return "\n".join(lines)

    def broken(self, row: dict[str, Fraction]) -> str:
        """What a row breaks, decided in fractions."""
        for j, whole in enumerate(self.whole):
            x, on, fixed = row[f"x{j}"], row[f"on{j}"], self.fixed[j]
            lower = (row[f"low{j}"] if fixed is None else fixed) * on
            upper = row[f"high{j}"] * on
            above = x >= upper + Fraction(1, 2) if self.strict else x > upper
            if x < lower or above or not 0 <= x <= 10 or on not in (0, 1):
                return f"x{j} is out of its ends"
            if whole and x.denominator != 1:
                return f"x{j} is not a whole number"
        if sum(row[f"x{j}"] for j in range(len(self.whole))) > 12:
            return "the sum is above 12"
        return ""


def switches_from_inputs(random: Random) -> Iterator[Finding]:
    """A layer of such rules: every row obeys, and none is refused, since everything may be off."""
    switches = Switches.drawn(random)
    dtype = random.choice(DTYPES)
    rules = Rules(str(switches))
    mux = Multiplexer(rules, dtype=dtype)
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    given: dict[str, Any] = {}
    for j, fixed in enumerate(switches.fixed):
        high = (2 + 7 * torch.rand(ROWS, generator=generator)).to(dtype).clamp(2, 9)
        given[f"high{j}"] = high
        if fixed is None:
            share = (1.5 * torch.rand(ROWS, generator=generator)).clamp(max=1)
            given[f"low{j}"] = torch.minimum((high * share).to(dtype), high)
    try:
        x = mux(raw_rows(ROWS, mux.in_features, dtype, generator), **given).best()
    except InputError as error:
        told = f"refused: {error}\n{switches}"
        yield Finding("coefficients: switches", told, rows=ROWS)
        return
    names = [v.name for v in rules.outputs]
    for i in range(ROWS):
        row = {name: Fraction(own[i].item()) for name, own in given.items()}
        row |= dict(zip(names, map(Fraction, x[i].tolist()), strict=True))
        wrong = switches.broken(row)
        if wrong:
            told = f"{wrong}: {row}\n{switches}"
            yield Finding("coefficients: switches", told, rows=ROWS)
            return
    yield Finding("coefficients: switches", rows=ROWS)
