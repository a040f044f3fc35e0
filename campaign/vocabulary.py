"""Rules in the words that people expect of vectors, matrices, whole numbers, decimals and dates; and rules from arrays.

Each rule is a text and its meaning in plain Python, on fractions: the judge knows nothing of the library. Verdicts are
compared on rows near the rules' own numbers, and what layers return is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from math import ceil, floor
from random import Random
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Normal

from campaign.raws import raw_rows
from campaign.subject import Finding
from multiplexnet.compiler.cascade.structure import Structure
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.learning.distribution import RulesDistribution
from multiplexnet.rules import Rules

__all__ = ["Scene", "other_words"]

ROWS = 80
SECONDS = 20.0
MOST_TERMS = 128
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
STRUCTURES: tuple[Structure, ...] = ("auto", "auto", "terms", "cascade")
FIRST_DAY = date(1970, 1, 1)
ARRAYS = 0.2
"""The share of rules that come from arrays."""

Values = Mapping[str, Fraction]


@dataclass(frozen=True)
class Said:
    """A rule: what is written, and whether it holds."""

    text: str
    holds: Callable[[Values], bool]


@dataclass(frozen=True)
class Name:
    """One number of a row.

    Args:
        name: as the library calls it.
        size: what it is a multiple of; ``None`` for a real number.
        lower: its lower end.
        upper: its upper end.
    """

    name: str
    size: Fraction | None
    lower: Fraction
    upper: Fraction

    def read(self, value: float, dtype: torch.dtype) -> Fraction | None:
        """The number that a float stands for; ``None`` if it is none that it may be."""
        if not np.isfinite(value):
            return None
        if self.size is None:
            return Fraction(value)
        found = round(Fraction(value) / self.size) * self.size
        nearest = torch.tensor(float(found), dtype=torch.float64).to(dtype).item()
        return found if nearest == value and self._has(found) else None

    def _has(self, value: Fraction) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True)
class Scene:
    """Declared outputs and inputs, with rules over them.

    Args:
        declarations: lines of the language.
        outputs: the numbers of a row, in order.
        inputs: the names of inputs, each with the elements that it has.
        rules: all of them hold.
        assumed: whether inputs are allowed.
    """

    declarations: tuple[str, ...]
    outputs: tuple[Name, ...]
    inputs: Mapping[str, tuple[str, ...]]
    rules: tuple[Said, ...]
    assumed: Callable[[Values], bool]

    def __str__(self) -> str:
        return "\n".join([*self.declarations, *(rule.text for rule in self.rules)])

    def obeys(
        self, row: Sequence[float], given: Values, dtype: torch.dtype = torch.float64
    ) -> bool:
        """Whether a row obeys, decided in fractions."""
        values = dict(given)
        for own, value in zip(self.outputs, row, strict=True):
            found = own.read(value, dtype)
            if found is None:
                return False
            values[own.name] = found
        return all(rule.holds(values) for rule in self.rules)

    @staticmethod
    def drawn(random: Random) -> Scene:
        """Some kinds of outputs, with one to three rules."""
        count = random.choice([1, 1, 2])
        kinds = list(dict.fromkeys(random.choices(list(KINDS), WEIGHTS, k=count)))
        parts = [KINDS[kind] for kind in kinds]
        rules: list[Said] = []
        for part in parts:
            rules += [
                part.rule(random)
                for _ in range(random.choice([1, 1, 2] if len(parts) == 1 else [1]))
            ]
        if len(rules) > 1 and random.random() < 0.4:
            rules = [_joined(random, rules[0], rules[1]), *rules[2:]]
        ends = [Said(text, holds) for part in parts for text, holds in part.ends]
        declarations = [line for part in parts for line in part.declarations]
        inputs: dict[str, tuple[str, ...]] = {}
        assumed: Callable[[Values], bool] = _always
        if "vector" in kinds and random.random() < 0.3:
            declarations += ["low: input[-3, 3]", "high: input[-3, 3]"]
            declarations.append("assume low <= high")
            inputs |= {"low": ("low",), "high": ("high",)}
            assumed = _in_order
            rules.append(Said("low <= v[0] <= high", _between))
        if "matrix" in kinds and random.random() < 0.3:
            declarations.append("c: input[0, 2][2, 2]")
            inputs["c"] = tuple(f"c[{i}, {j}]" for i in range(2) for j in range(2))
            rules.append(Said("all(w <= c + 1)", _below))
        return Scene(
            tuple(declarations),
            tuple(own for part in parts for own in part.outputs),
            inputs,
            (*ends, *rules),
            assumed,
        )


def _always(values: Values) -> bool:
    return True


def _in_order(values: Values) -> bool:
    return values["low"] <= values["high"]


def _between(values: Values) -> bool:
    return values["low"] <= values["v[0]"] <= values["high"]


def _below(values: Values) -> bool:
    places = [f"[{i}, {j}]" for i in range(2) for j in range(2)]
    return all(values[f"w{at}"] <= values[f"c{at}"] + 1 for at in places)


def _joined(random: Random, left: Said, right: Said) -> Said:
    word = random.choice(["or", "implies", "xor", "if"])
    match word:
        case "or":
            text = f"({left.text}) or ({right.text})"
            return Said(text, lambda v: left.holds(v) or right.holds(v))
        case "implies":
            text = f"implies({left.text}, {right.text})"
            return Said(text, lambda v: not left.holds(v) or right.holds(v))
        case "xor":
            text = f"xor({left.text}, {right.text})"
            return Said(text, lambda v: left.holds(v) != right.holds(v))
    text = f"({right.text}) if ({left.text}) else not ({right.text})"
    return Said(text, lambda v: right.holds(v) == left.holds(v))


# --- kinds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Outputs of one kind, and the rules that are drawn over them."""

    declarations: tuple[str, ...]
    outputs: tuple[Name, ...]
    rule: Callable[[Random], Said]
    ends: tuple[tuple[str, Callable[[Values], bool]], ...] = ()


def _small(random: Random, most: int = 3) -> Fraction:
    return Fraction(random.randint(-4 * most, 4 * most), 4)


def _text(number: Fraction) -> str:
    whole = number.denominator == 1
    return str(number) if whole else f"({number.numerator}/{number.denominator})"


RELATIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _compared(
    random: Random, text: str, value: Callable[[Values], Any], bound: Fraction
) -> Said:
    relation = random.choice(["<=", "<=", ">=", ">=", "<", ">", "!=", "=="])
    compare = RELATIONS[relation]
    return Said(f"{text} {relation} {_text(bound)}", lambda v: compare(value(v), bound))


def _over_vector(random: Random, vector: str, names: Sequence[str]) -> Said:
    """A rule about the numbers of one vector."""

    def own(values: Values) -> list[Fraction]:
        return [values[name] for name in names]

    last = len(names) - 1
    a = _small(random)
    k = random.randint(0, last)
    some = sorted(random.sample(range(len(names)), random.randint(1, last)))
    weights = [random.choice([-2, -1, 1, 2, 3]) for _ in names]
    word = random.choice(list(VECTOR_WORDS))
    match word:
        case "argmax":
            return Said(
                f"argmax({vector}) == {k}", lambda v: own(v).index(max(own(v))) == k
            )
        case "argmin":
            listed = ", ".join(map(str, some))
            return Said(
                f"argmin({vector}) in {{{listed}}}",
                lambda v: own(v).index(min(own(v))) in some,
            )
        case "is_sorted":
            return Said(f"is_sorted({vector})", lambda v: own(v) == sorted(own(v)))
        case "count":
            text = f"count({vector} > {_text(a)})"
            return _compared(
                random, text, lambda v: sum(x > a for x in own(v)), Fraction(k + 1)
            )
        case "count for":
            text = f"count(t >= {_text(a)} for t in {vector})"
            return _compared(
                random, text, lambda v: sum(x >= a for x in own(v)), Fraction(k + 1)
            )
        case "mean":
            return _compared(
                random, f"mean({vector})", lambda v: sum(own(v)) / len(names), a
            )
        case "dot":
            text = f"dot({weights}, {vector})"
            return _compared(
                random,
                text,
                lambda v: sum(w * x for w, x in zip(weights, own(v), strict=True)),
                a,
            )
        case "norm 1":
            text = f"norm({vector}, 1)"
            return _compared(random, text, lambda v: sum(map(abs, own(v))), abs(a) + 1)
        case "norm inf":
            text = f"norm({vector}, inf)"
            return _compared(random, text, lambda v: max(map(abs, own(v))), abs(a) + 1)
        case "all":
            return Said(
                f"all({vector} >= {_text(a)})", lambda v: all(x >= a for x in own(v))
            )
        case "any":
            return Said(
                f"any({vector} > {_text(a)})", lambda v: any(x > a for x in own(v))
            )
        case "range":
            text = f"max({vector}) - min({vector})"
            return _compared(random, text, lambda v: max(own(v)) - min(own(v)), abs(a))
    rows = [weights, weights[::-1]]
    bounds = [a, a + 2]
    text = f"all({rows} @ {vector} <= [{', '.join(map(_text, bounds))}])"
    return Said(
        text,
        lambda v: all(
            sum(w * x for w, x in zip(row, own(v), strict=True)) <= bound
            for row, bound in zip(rows, bounds, strict=True)
        ),
    )


VECTOR_WORDS = (
    "argmax",
    "argmin",
    "is_sorted",
    "count",
    "count for",
    "mean",
    "dot",
    "norm 1",
    "norm inf",
    "all",
    "any",
    "range",
    "matrix product",
)

SQUARE = [[f"w[{i}, {j}]" for j in range(2)] for i in range(2)]


def _vector_rule(random: Random) -> Said:
    if random.random() < 0.3:
        i = random.randrange(3)
        return _rounded(random, f"v[{i}]")
    return _over_vector(random, "v", ["v[0]", "v[1]", "v[2]"])


def _rounded(random: Random, name: str) -> Said:
    word, meaning = random.choice(
        [
            ("floor", floor),
            ("ceil", ceil),
            ("round", lambda x: floor(x + Fraction(1, 2))),
        ]
    )
    bound = Fraction(random.randint(-2, 2))
    return _compared(random, f"{word}({name})", lambda v: meaning(v[name]), bound)


def _matrix_rule(random: Random) -> Said:
    """About a row, a column, sums along an axis, or one element."""
    a = _small(random)
    k = random.randrange(2)
    columns = [[row[j] for row in SQUARE] for j in range(2)]
    match random.choice(["row", "column", "axis 0", "axis 1", "largest", "element"]):
        case "row":
            return _over_vector(random, f"w[{k}]", SQUARE[k])
        case "column":
            return _over_vector(random, f"w[:, {k}]", columns[k])
        case "axis 0":
            return Said(
                f"all(sum(w, axis=0) <= {_text(a)})",
                lambda v: all(sum(v[n] for n in own) <= a for own in columns),
            )
        case "axis 1":
            return Said(
                f"all(t >= {_text(a)} for t in sum(w, axis=1))",
                lambda v: all(sum(v[n] for n in own) >= a for own in SQUARE),
            )
        case "largest":
            return Said(
                f"any(max(w, axis=1) > {_text(a)})",
                lambda v: any(max(v[n] for n in own) > a for own in SQUARE),
            )
    return _compared(
        random, f"w[{k}, 1] - w[-1, 0]", lambda v: v[SQUARE[k][1]] - v["w[1, 0]"], a
    )


def _whole_rule(random: Random) -> Said:
    name = f"n[{random.randrange(2)}]"
    size = random.choice([2, 3, 5])
    rest = random.randrange(size)
    match random.choice(["remainder", "quotient", "in range", "sum"]):
        case "remainder":
            return Said(f"{name} % {size} == {rest}", lambda v: v[name] % size == rest)
        case "quotient":
            text = f"{name} // {size}"
            bound = Fraction(random.randint(0, 3))
            return _compared(random, text, lambda v: v[name] // size, bound)
        case "in range":
            chosen = range(rest, 12, size)
            text = f"{name} in range({rest}, 12, {size})"
            return Said(text, lambda v: v[name] in chosen)
    return _over_vector(random, "n", ["n[0]", "n[1]"])


def _decimal_rule(random: Random) -> Said:
    price = Fraction(random.randint(0, 999), 100)
    match random.choice(["price", "step", "both"]):
        case "price":
            return _compared(random, "p", lambda v: v["p"], price)
        case "step":
            return _compared(
                random, "s", lambda v: v["s"], Fraction(random.randint(0, 8), 2)
            )
    return _compared(random, "p - 2*s", lambda v: v["p"] - 2 * v["s"], price - 3)


def _date_rule(random: Random) -> Said:
    day = date(2023, 6, 1) + timedelta(days=random.randrange(700))
    days = Fraction((day - FIRST_DAY).days)
    match random.choice(["literal", "text", "year", "apart"]):
        case "literal":
            relation = random.choice(["<=", ">", "!="])
            compare = RELATIONS[relation]
            spelled = random.choice([f'date("{day}")', f'd"{day}"'])
            return Said(f"a {relation} {spelled}", lambda v: compare(v["a"], days))
        case "text":
            return Said(f'b >= "{day}"', lambda v: v["b"] >= days)
        case "year":
            year = random.choice([2023, 2024, 2025])
            return Said(f"year(a) == {year}", lambda v: _day(v["a"]).year == year)
    gap = Fraction(random.randint(0, 60))
    return _compared(random, "b - a", lambda v: v["b"] - v["a"], gap)


def _day(days: Fraction) -> date:
    return FIRST_DAY + timedelta(days=int(days))


def _inside(names: Sequence[str], lower: int, upper: int) -> Callable[[Values], bool]:
    return lambda v: all(lower <= v[name] <= upper for name in names)


def _days(text: str) -> Fraction:
    return Fraction((date.fromisoformat(text) - FIRST_DAY).days)


ONE = Fraction(1)
ENDS = (Fraction(-5), Fraction(5))
DAYS = ("2023-06-01", "2025-05-31")
WEIGHTS = (4, 2, 2, 1, 1)
"""How often each of the kinds is drawn: most words are about vectors."""
KINDS: Mapping[str, Part] = {
    "vector": Part(
        ("v: real[3]",),
        tuple(Name(f"v[{i}]", None, *ENDS) for i in range(3)),
        _vector_rule,
        (("all(-5 <= v <= 5)", _inside([f"v[{i}]" for i in range(3)], -5, 5)),),
    ),
    "matrix": Part(
        ("w: real[2, 2]",),
        tuple(Name(name, None, *ENDS) for row in SQUARE for name in row),
        _matrix_rule,
        (("all(-5 <= w <= 5)", _inside([*SQUARE[0], *SQUARE[1]], -5, 5)),),
    ),
    "whole": Part(
        ("n: int[0, 14][2]",),
        tuple(Name(f"n[{i}]", ONE, Fraction(0), Fraction(14)) for i in range(2)),
        _whole_rule,
    ),
    "decimal": Part(
        ("p: decimal(2)[0, 9.99]", "s: real[0, 4] step 0.5"),
        (
            Name("p", Fraction(1, 100), Fraction(0), Fraction(999, 100)),
            Name("s", Fraction(1, 2), Fraction(0), Fraction(4)),
        ),
        _decimal_rule,
    ),
    "date": Part(
        tuple(f'{name}: date["{DAYS[0]}", "{DAYS[1]}"]' for name in "ab"),
        tuple(Name(name, ONE, *map(_days, DAYS)) for name in "ab"),
        _date_rule,
    ),
}


# --- the attack -----------------------------------------------------------------------------------------------------


def other_words(random: Random) -> Iterator[Finding]:
    """Verdicts and layers of such rules."""
    if random.random() < ARRAYS:
        yield from _from_arrays(random)
        return
    scene = Scene.drawn(random)
    rules = Rules(str(scene))
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    given = _inputs(scene, random)
    yield _verdicts(scene, rules, random, given)
    dtype = random.choice(DTYPES)
    structure: Structure = random.choice(STRUCTURES)
    try:
        mux = Multiplexer(
            rules,
            dtype=dtype,
            structure=structure,
            max_terms=MOST_TERMS,
            seconds=SECONDS,
        )
    except MultiplexError:
        return
    raw = raw_rows(ROWS, mux.in_features, dtype, generator)
    tensors = {name: torch.tensor(column).to(dtype) for name, column in given.items()}
    try:
        branches = mux(raw, **tensors)
    except MultiplexError:  # some row has no output that obeys
        return
    yield _judged("words: best", scene, branches.best(), given)
    yield _judged("words: sample", scene, branches.sample(generator), given)
    if not mux.is_nested:
        yield from _distribution(scene, mux, tensors, given, generator)


def _distribution(
    scene: Scene,
    mux: Multiplexer,
    inputs: Mapping[str, Tensor],
    given: Mapping[str, NDArray[np.float64]],
    generator: torch.Generator,
) -> Iterator[Finding]:
    """What a distribution draws obeys, and has a probability."""
    base = Normal(torch.zeros(mux.out_features, dtype=mux.dtype), 1.0)
    own = RulesDistribution(mux, base, inputs=inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        x = own.sample(() if inputs else (ROWS,))
    yield _judged("words: distribution", scene, x, given)
    lost = own.log_prob(x).isneginf().nonzero().flatten().tolist()
    told = f"{x[lost[0]].tolist()} has no probability\n{scene}" if lost else ""
    yield Finding("words: probabilities", told)


def _inputs(scene: Scene, random: Random) -> dict[str, NDArray[np.float64]]:
    """Numbers that every dtype holds, and that are allowed."""
    found: dict[str, list[Any]] = {name: [] for name in scene.inputs}
    for _ in range(ROWS):
        numbers = sorted(random.randint(-12, 12) / 4 for _ in range(2))
        if "low" in found:
            found["low"].append(numbers[0])
            found["high"].append(numbers[1])
        if "c" in found:
            found["c"].append(
                [[random.randint(0, 8) / 4 for _ in range(2)] for _ in range(2)]
            )
    return {name: np.array(column) for name, column in found.items()}


def _known(
    scene: Scene, given: Mapping[str, NDArray[np.float64]], k: int
) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for name, elements in scene.inputs.items():
        numbers = np.ravel(given[name][k])
        found |= {
            own: Fraction(float(x)) for own, x in zip(elements, numbers, strict=True)
        }
    return found


def _verdicts(
    scene: Scene,
    rules: Rules,
    random: Random,
    given: Mapping[str, NDArray[np.float64]],
) -> Finding:
    """Whether ``satisfied`` says what the judge says, on rows of round numbers."""
    rows = np.array(
        [[_value(own, random) for own in scene.outputs] for _ in range(ROWS)]
    )
    said = rules.satisfied(rows, functions=None, **given)
    for k, row in enumerate(rows.tolist()):
        if bool(said[k]) != scene.obeys(row, _known(scene, given, k)):
            told = f"the verdict on {row}, {_known(scene, given, k)} differs\n{scene}"
            return Finding("words: satisfied", told, rows=ROWS)
    return Finding("words: satisfied", rows=ROWS)


def _value(own: Name, random: Random) -> float:
    if own.size is None:
        return random.randint(-20, 20) / 4
    steps = random.randint(0, int((own.upper - own.lower) / own.size))
    value = float(own.lower + steps * own.size)
    return value + (own.size == ONE or 0.001) * (random.random() < 0.03)


def _judged(
    check: str, scene: Scene, x: Tensor, given: Mapping[str, NDArray[np.float64]]
) -> Finding:
    for k, row in enumerate(x.detach().double().tolist()):
        if not scene.obeys(row, _known(scene, given, k), x.dtype):
            told = f"{row} disobeys in {x.dtype}, {_known(scene, given, k)}\n{scene}"
            return Finding(check, told, rows=len(x))
    return Finding(check, rows=len(x))


# --- arrays ---------------------------------------------------------------------------------------------------------


def _from_arrays(random: Random) -> Iterator[Finding]:
    """Rows of ``A x <= b`` around a point, now and then with ``C x == d`` through it."""
    width = random.randint(1, 5)
    point = [Fraction(random.randint(-20, 20), 10) for _ in range(width)]
    A = _matrix(random, random.randint(1, 8), width)
    b = [float(_product(row, point) + random.randint(1, 30)) for row in A]
    C = _matrix(random, 1, width) if random.random() < 0.3 else None
    d = None if C is None else [float(_product(C[0], point))]
    wrapped = random.choice([np.array, scipy.sparse.csr_array, torch.tensor, list])
    rules = Rules.from_arrays(wrapped(A), b, C=C, d=d)
    try:
        mux = Multiplexer(rules, dtype=random.choice(DTYPES), seconds=SECONDS)
    except MultiplexError:
        return
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    x = mux(raw_rows(ROWS, mux.in_features, mux.dtype, generator)).best()
    for row in x.detach().double().tolist():
        values = list(map(Fraction, row))
        above = any(
            _product(own, values) > Fraction(str(bound))
            for own, bound in zip(A, b, strict=True)
        )
        beside = C is not None and _product(C[0], values) != Fraction(str(d[0]))  # type: ignore[index]
        if above or beside:
            told = f"{row} disobeys in {x.dtype}\n{rules}"
            yield Finding("words: arrays", told, rows=ROWS)
            return
    yield Finding("words: arrays", rows=ROWS)


def _matrix(random: Random, height: int, width: int) -> list[list[float]]:
    rows = [
        [random.choice([0, 0, 1, -1, 0.1, 2.5, -3]) for _ in range(width)]
        for _ in range(height)
    ]
    for row in rows:
        row[random.randrange(width)] = random.choice([1.0, -2.0, 0.7])
    return [[float(c) for c in row] for row in rows]


def _product(row: Sequence[float], values: Sequence[Fraction]) -> Fraction:
    pairs = zip(row, values, strict=True)
    return sum((Fraction(str(c)) * x for c, x in pairs), Fraction(0))
