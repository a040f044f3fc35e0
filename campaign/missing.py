"""Outputs that may be missing: a sentence is declared with ``?`` here and there, and layers and verdicts are judged.

The judge knows nothing of missing values. For every pattern of them it gets another sentence, over the variables that
are there: what a comparison needs and does not have is unknown, and the sentence says where the rules are not known to
be broken. That is said here from scratch, on the campaign's own trees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from campaign.raws import input_values, raw_rows
from campaign.sentences import COMPARISONS, Declared, Node, Sentence, spelled
from campaign.subject import Finding
from campaign.verdict import Judge
from multiplexnet.errors import MultiplexError
from multiplexnet.layer.multiplexer import Multiplexer
from multiplexnet.rules import Rules

__all__ = ["HoleJudge", "missing_values", "possible", "with_holes"]

ROWS = 120
SECONDS = 20.0
MOST_TERMS = 128
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TRUE = Node("and")
FALSE = Node("or")

Gone = frozenset[str]


# --- sentences ------------------------------------------------------------------------------------------------------


def with_holes(sentence: Sentence, random: Random) -> tuple[Sentence, Gone]:
    """Which outputs may be missing, and the sentence with some rules about that."""
    families = list(dict.fromkeys(d.vector or d.name for d in sentence.outputs))
    chosen = random.sample(families, random.randint(1, len(families)))
    nullable = [d.name for d in sentence.outputs if (d.vector or d.name) in chosen]
    rules = list(sentence.rules)
    for _ in range(random.choice([0, 1, 1, 2])):
        rules.append(_about(random, nullable, rules))
    random.shuffle(rules)
    return replace(sentence, rules=tuple(rules), twin=None, point=None), frozenset(
        nullable
    )


def _about(random: Random, nullable: list[str], rules: list[Node]) -> Node:
    """A rule about what is missing."""
    one = Node("missing", (), random.choice(nullable))
    other = Node("missing", (), random.choice(nullable))
    there = Node("not", (other,))
    return random.choice(
        [
            Node("implies", (one, other)),
            Node("or", (one, there)),
            Node("or", (one, other)),
            Node("implies", (random.choice(rules), there)),
            Node("case", (one, random.choice(rules), there)),
            there,
        ]
    )


def text_of(sentence: Sentence, nullable: Gone) -> str:
    """The sentence in the rule language, with its question marks."""
    marks = {
        spelled(d.vector or d.name) for d in sentence.outputs if d.name in nullable
    }
    lines = []
    for line in str(sentence).split("\n")[: -len(sentence.rules)]:
        name = line.partition(":")[0]
        lines.append(_marked(line, sentence) if name in marks else line)
    return "\n".join([*lines, *map(str, sentence.rules)])


def _marked(line: str, sentence: Sentence) -> str:
    """A declaration with a question mark behind its type, and before the size of a vector."""
    name = line.partition(":")[0]
    is_vector = any(d.vector == name for d in sentence.declared)
    at = line.rindex("[") if is_vector else len(line.partition(" step ")[0])
    return f"{line[:at]}?{line[at:]}"


# --- meaning --------------------------------------------------------------------------------------------------------


def possible(node: Node, gone: Gone, positive: bool = True) -> Node:
    """Where the node (or its negation) is not known to be false, in terms of the variables that are there."""
    match node.op:
        case "missing":
            return TRUE if (node.value in gone) == positive else FALSE
        case "flag" | "is":
            return TRUE if node.value in gone else _signed(node, positive)
        case "not":
            return possible(node.parts[0], gone, not positive)
        case "and" | "or":
            op = node.op if positive else {"and": "or", "or": "and"}[node.op]
            return Node(
                op, tuple(possible(part, gone, positive) for part in node.parts)
            )
        case "implies":
            premise, conclusion = node.parts
            return possible(
                Node("or", (Node("not", (premise,)), conclusion)), gone, positive
            )
        case "iff" | "xor":
            return _equivalent(node, gone, (node.op == "iff") == positive)
        case "case":
            condition, then, otherwise = node.parts
            yes = Node("and", (condition, then))
            no = Node("and", (Node("not", (condition,)), otherwise))
            return possible(Node("or", (yes, no)), gone, positive)
        case "in":
            equal = tuple(
                Node("==", (node.parts[0], other)) for other in node.parts[1:]
            )
            return possible(Node("or", equal), gone, positive)
    assert node.op in COMPARISONS
    return _compared(node, gone, positive)


def _signed(node: Node, positive: bool) -> Node:
    return node if positive else Node("not", (node,))


def _equivalent(node: Node, gone: Gone, same: bool) -> Node:
    left, right = node.parts
    cases = []
    for side in (True, False):
        other = side if same else not side
        cases.append(
            Node("and", (possible(left, gone, side), possible(right, gone, other)))
        )
    return Node("or", tuple(cases))


def _compared(node: Node, gone: Gone, positive: bool) -> Node:
    """A comparison; one of a conditional number is decided case by case."""
    case = next((part for part in _numbers(node) if part.op == "case"), None)
    speaks_of_holes = node.names & gone or any(
        part.op == "missing" for part in node.walk()
    )
    if case is None or not speaks_of_holes:
        return TRUE if _needed(node) & gone else _signed(node, positive)
    condition, then, otherwise = case.parts
    yes = possible(condition, gone)
    no = possible(condition, gone, False)
    chosen = [_instead(node, case, value) for value in (then, otherwise)]
    return Node(
        "or",
        (
            Node("and", (yes, no)),
            Node("and", (Node("not", (no,)), possible(chosen[0], gone, positive))),
            Node("and", (Node("not", (yes,)), possible(chosen[1], gone, positive))),
        ),
    )


def _numbers(node: Node) -> Iterator[Node]:
    """The numbers that a comparison is made of, those inside conditions left out."""
    stack = list(node.parts)
    while stack:
        part = stack.pop()
        yield part
        stack.extend(part.parts[1:] if part.op == "case" else part.parts)


def _instead(node: Node, case: Node, value: Node) -> Node:
    return node.replaced(lambda part: value if part == case else None)


def _needed(comparison: Node) -> set[str]:
    """The variables that a comparison depends on: ``x + y <= x`` does not depend on x."""
    left, right = comparison.parts
    total = _coefficients(left)
    total.update({key: -c for key, c in _coefficients(right).items()})
    return {name for part, c in total.items() if c for name in part.names}


def _coefficients(node: Node) -> Counter[Node]:
    """The summands of a number by what they are multiples of."""
    found: Counter[Node] = Counter()
    match node.op:
        case "number":
            pass
        case "+":
            for part in node.parts:
                found.update(_coefficients(part))
        case "*":
            assert isinstance(node.value, Fraction)
            factor = node.value
            found.update(
                {key: c * factor for key, c in _coefficients(node.parts[0]).items()}
            )
        case _:
            found[node] = 1
    return found


class HoleJudge:
    """Whether rows with missing values obey.

    Args:
        sentence: the rules.
        nullable: the outputs that may be missing.
    """

    def __init__(self, sentence: Sentence, nullable: Gone) -> None:
        self.sentence = sentence
        self.nullable = nullable
        self._judges: dict[Gone, Judge] = {}

    def __call__(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The verdicts on rows of shape (N, number of declared variables)."""
        verdict = np.zeros(len(rows), dtype=np.bool_)
        names = [d.name for d in self.sentence.declared]
        is_nullable = np.array([name in self.nullable for name in names])
        holes = np.isnan(rows) & is_nullable
        for pattern in np.unique(holes, axis=0):
            here = (holes == pattern).all(axis=1)
            gone = frozenset(
                name for name, is_gone in zip(names, pattern, strict=True) if is_gone
            )
            verdict[here] = self._judge(gone)(rows[here][:, ~pattern])
        return verdict

    def _judge(self, gone: Gone) -> Judge:
        if gone not in self._judges:
            left = tuple(d for d in self.sentence.declared if d.name not in gone)
            rules = tuple(possible(rule, gone) for rule in self.sentence.rules)
            self._judges[gone] = Judge(Sentence(left, rules))
        return self._judges[gone]


# --- the attack -----------------------------------------------------------------------------------------------------


def missing_values(base: Sentence, random: Random) -> Iterator[Finding]:
    """Layers and verdicts of the sentence with some of its outputs declared as missing."""
    if base.calls or not base.outputs or not base.rules:
        return
    sentence, nullable = with_holes(base, random)
    judge = HoleJudge(sentence, nullable)
    rules = Rules(text_of(sentence, nullable))
    generator = torch.Generator().manual_seed(random.getrandbits(60))
    rows = _rows(sentence, nullable, random)
    yield _agree("missing: satisfied", rules, sentence, judge, rows)
    try:
        mux = Multiplexer(
            rules,
            dtype=random.choice(DTYPES),
            structure=random.choice(["auto", "terms", "cascade"]),
            max_terms=MOST_TERMS,
            seconds=SECONDS,
        )
    except MultiplexError:
        return
    given = {d.name: _input(d, mux.dtype, generator, random) for d in sentence.inputs}
    raw = raw_rows(ROWS, mux.in_features, mux.dtype, generator)
    asked: Mapping[str, Callable[[], Tensor]] = {
        "missing: best": lambda: mux(raw, **given).best(),
        "missing: sample": lambda: mux(raw, **given).sample(generator),
        "missing: repair": lambda: mux.repair(
            _outputs(sentence, nullable, mux.dtype, random), **given
        ),
    }
    for check, ask in asked.items():
        try:
            x = ask()
        except MultiplexError:
            continue
        yield _judged(check, sentence, judge, x, given)


def _input(
    declared: Declared, dtype: torch.dtype, generator: torch.Generator, random: Random
) -> Tensor:
    """The same number in all rows, so that one that is refused is refused alone."""
    values = input_values(declared, dtype, generator) or [0.0]
    return torch.full((ROWS,), random.choice(values), dtype=torch.float64).to(dtype)


def _outputs(
    sentence: Sentence, nullable: Gone, dtype: torch.dtype, random: Random
) -> Tensor:
    rows = _rows(sentence, nullable, random)
    places = [i for i, d in enumerate(sentence.declared) if d.kind != "input"]
    return torch.from_numpy(rows[:, places]).to(dtype)


def _rows(sentence: Sentence, nullable: Gone, random: Random) -> NDArray[np.float64]:
    """Rows near the rules' own numbers, with holes."""
    known = [
        float(node.value)
        for rule in sentence.rules
        for node in rule.walk()
        if node.op == "number"
        and isinstance(node.value, Fraction)
        and abs(node.value) < 10**300
    ]
    columns = []
    for declared in sentence.declared:
        values = [float(v) for v in list(declared.values or ())[:50]] or [
            0.0,
            1.0,
            -2.5,
            *known,
        ]
        column = random.choices(values, k=ROWS)
        if declared.name in nullable:
            column = [np.nan if random.random() < 0.4 else value for value in column]
        columns.append(column)
    return np.array(columns, dtype=np.float64).T


def _agree(
    check: str,
    rules: Rules,
    sentence: Sentence,
    judge: HoleJudge,
    rows: NDArray[np.float64],
) -> Finding:
    """Whether the library's verdict is the judge's."""
    names = [d.name for d in sentence.declared]
    outputs = np.stack([rows[:, names.index(v.name)] for v in rules.outputs], axis=1)
    given = {d.name: rows[:, names.index(d.name)] for d in sentence.inputs}
    said = rules.satisfied(outputs, functions=None, **given)
    wrong = np.flatnonzero(said != judge(rows))
    if not len(wrong):
        return Finding(check, rows=len(rows))
    told = f"{rules} at {dict(zip(names, rows[wrong[0]].tolist(), strict=True))}"
    return Finding(check, f"the verdict differs: {told}", rows=len(rows))


def _judged(
    check: str,
    sentence: Sentence,
    judge: HoleJudge,
    x: Tensor,
    given: Mapping[str, Tensor],
) -> Finding:
    columns = dict(
        zip(
            (d.name for d in sentence.outputs),
            x.detach().double().unbind(-1),
            strict=True,
        )
    )
    columns |= {name: value.double() for name, value in given.items()}
    rows = torch.stack([columns[d.name] for d in sentence.declared], -1).numpy()
    wrong = np.flatnonzero(~judge(rows))
    if not len(wrong):
        return Finding(check, rows=len(rows))
    told = text_of(sentence, judge.nullable)
    return Finding(check, f"{rows[wrong[0]].tolist()} breaks\n{told}", rows=len(rows))
