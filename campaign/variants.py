"""Metamorphic variants: from sentences whose meaning is known, others whose meaning follows.

The pure function of the whole campaign is here too: ``sentence(seed, index)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from campaign.boundaries import BOUNDARIES
from campaign.cascades import CASCADES, cascaded
from campaign.formulas import FAMILIES, LATER, any_size, drawn, nonzero
from campaign.sentences import (
    COMPARISONS,
    Node,
    Sentence,
    number,
    product,
    total,
    variable,
)
from campaign.words import in_other_words

__all__ = ["KINDS", "sentence"]

TURNED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "==", "!=": "!="}
SATISFIABLE = (
    "boxes",
    "polytopes",
    "unions",
    "equalities",
    "disequalities",
    "far",
    "degenerate",
)

WORDS = 0.05
"""The share of sentences that are written in words that came later."""


def sentence(seed: int, index: int) -> Sentence:
    """The sentence with this number, whichever came before it.

    Example:
        >>> sentence(0, 7) == sentence(0, 7)
        True
        >>> len({str(sentence(0, i)) for i in range(50)})
        50
    """
    apart = Random(
        f"{seed}/{index}/words"
    )  # so that all else is drawn as it was before
    found = _in_plain_words(seed, index)
    if apart.random() < WORDS and found.twin is None:
        return in_other_words(found, apart)
    return found


def _in_plain_words(seed: int, index: int) -> Sentence:
    newest = Random(f"{seed}/{index}/cascades")
    if newest.random() < CASCADED:
        return cascaded(newest)
    latest = Random(f"{seed}/{index}/boundaries")
    if latest.random() < len(BOUNDARIES) / (len(KINDS) - len(CASCADES)):
        kind = latest.choice(list(BOUNDARIES))
        return replace(BOUNDARIES[kind](latest), kind=kind)
    later = Random(f"{seed}/{index}/later")
    if later.random() < len(LATER) / (len(KINDS) - len(CASCADES) - len(BOUNDARIES)):
        return drawn(later.choice(list(LATER)), later)
    random = Random(f"{seed}/{index}")
    kind = random.choice((*FAMILIES, *VARIANTS))
    return VARIANTS[kind](random) if kind in VARIANTS else drawn(kind, random)


def _base(random: Random) -> Sentence:
    return drawn(
        random.choice(
            [family for family in FAMILIES if family not in ("points", "empty", "ends")]
        ),
        random,
    )


def negation(random: Random) -> Sentence:
    """What the rules forbid."""
    base = _base(random)
    return Sentence(
        base.declared, (Node("not", (Node("and", base.rules),)),), "negation"
    )


def permutation(random: Random) -> Sentence:
    """The same rules in another order, and their parts too."""
    base = _base(random)

    def shuffled(node: Node) -> Node | None:
        if node.op in ("and", "or", "+", "max", "min", "iff", "xor"):
            return replace(
                node, parts=tuple(random.sample(node.parts, len(node.parts)))
            )
        if node.op in COMPARISONS and random.random() < 0.5:
            return Node(TURNED[node.op], node.parts[::-1])
        return None

    rules = [rule.replaced(shuffled) for rule in base.rules]
    random.shuffle(rules)
    return replace(base, rules=tuple(rules), kind="permutation", twin=base)


def scaling(random: Random) -> Sentence:
    """Every comparison multiplied by a number of its own, some of them turned round by a negative one."""
    base = _base(random)

    def scaled(node: Node) -> Node | None:
        if node.op not in COMPARISONS:
            return None
        factor = random.choice([nonzero, any_size])(random)
        parts = tuple(product(factor, part) for part in node.parts)
        return Node(node.op if factor > 0 else TURNED[node.op], parts)

    return replace(
        base,
        rules=tuple(rule.replaced(scaled) for rule in base.rules),
        kind="scaling",
        twin=base,
    )


def substitution(random: Random) -> Sentence:
    """``a·x + b`` for one of the real outputs."""
    base = _base(random)
    names = [d.name for d in base.declared if d.kind == "real"]
    if not names:
        return replace(base, kind="substitution")
    name = random.choice(names)
    instead = total(
        product(nonzero(random), variable(name)),
        number(random.choice([nonzero, any_size])(random)),
    )
    rules = tuple(
        rule.replaced(lambda node: instead if node == variable(name) else None)
        for rule in base.rules
    )
    return replace(base, rules=rules, kind="substitution")


def fusion(random: Random) -> Sentence:
    """Two satisfiable sentences fused: with s = x + x′ each may be written by the others, and still holds somewhere."""
    first = drawn(random.choice(SATISFIABLE), random)
    second = _renamed(drawn(random.choice(SATISFIABLE), random))
    first = _small(first)
    second = _small(second)
    a = random.choice(first.declared).name
    b = random.choice(second.declared).name

    def fused(name: str, other: str) -> Callable[[Node], Node | None]:
        instead = total(variable("s"), product(-1, variable(other)))
        return lambda node: (
            instead if node == variable(name) and random.random() < 0.5 else None
        )

    rules = [rule.replaced(fused(a, b)) for rule in first.rules] + [
        rule.replaced(fused(b, a)) for rule in second.rules
    ]
    if random.random() < 0.3:
        rules.append(Node("==", (variable("s"), total(variable(a), variable(b)))))
    return Sentence(
        (*first.declared, *second.declared, replace(first.declared[0], name="s")),
        tuple(rules),
        "fusion",
        True,
    )


def _small(sentence: Sentence) -> Sentence:
    """The first two rules and their variables: whatever all rules leave, these leave too."""
    rules = sentence.rules[:2]
    used = {name for rule in rules for name in rule.names}
    return replace(
        sentence,
        declared=tuple(d for d in sentence.declared if d.name in used)
        or sentence.declared,
        rules=rules,
    )


def _renamed(sentence: Sentence) -> Sentence:
    def other(node: Node) -> Node | None:
        return variable(f"{node.value}2") if node.op == "variable" else None

    return replace(
        sentence,
        declared=tuple(replace(d, name=f"{d.name}2") for d in sentence.declared),
        rules=tuple(rule.replaced(other) for rule in sentence.rules),
    )


VARIANTS: Mapping[str, Callable[[Random], Sentence]] = {
    "negation": negation,
    "permutation": permutation,
    "scaling": scaling,
    "substitution": substitution,
    "fusion": fusion,
}
KINDS = (*FAMILIES, *VARIANTS, *LATER, *BOUNDARIES, *CASCADES)
"""Every kind of sentence that the campaign draws; but for those that become cascades, all equally often."""
CASCADED = 0.15
"""The share of sentences that become cascades."""
